//! Compositions: list, execute and validate.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use segue_core::view::{RunStatus, RunView};
use serde::Serialize;

use crate::api::compositions;
use crate::api::documents;
use crate::api::requests::ExecuteComposition;
use crate::api::responses::CompositionResult;
use crate::api::runs::start::{self, CallOptions};
use crate::http::request::{ApiRequest, HandlerResult, json};
use crate::http::route::RunId;

/// `GET /api/v1/compositions`
pub(super) fn list(request: &ApiRequest) -> HandlerResult {
    Ok(json(StatusCode::OK, &compositions::list(request.service(), &request.who)))
}

/// `GET /api/v1/compositions/{name}`
pub(super) fn get(request: &ApiRequest) -> HandlerResult {
    let found = compositions::get(request.service(), &request.who, request.part("name"))?;
    Ok(json(StatusCode::OK, &found))
}

/// `POST /api/v1/compositions/{name}/test`
pub(super) async fn test(request: ApiRequest) -> HandlerResult {
    let (wanted, name) = (request.read()?, request.part("name"));
    let report = compositions::test(request.service(), &request.who, name, &wanted).await?;
    Ok(json(StatusCode::OK, &report))
}

/// `POST /api/v1/compositions/validate`
pub(super) async fn validate(request: ApiRequest) -> HandlerResult {
    let wanted: ExecuteComposition = request.read()?;
    let document = wanted.document()?;
    let result = documents::validate(request.service(), &request.who, document).await?;
    Ok(json(StatusCode::OK, &result))
}

/// `POST /api/v1/compositions/execute`
pub(super) async fn execute(request: ApiRequest) -> HandlerResult {
    let wanted: ExecuteComposition = request.read()?;
    let call = call_options(&request);
    result(start::execute(request.service(), &request.who, &wanted, call).await?)
}

/// How a request waits for its run.
pub(super) fn call_options(request: &ApiRequest) -> CallOptions<'_> {
    CallOptions {
        origin: &request.origin,
        key: request.header("idempotency-key"),
        timeout: request.wait_timeout(),
    }
}

/// The result of a run, or of a dry run.
pub(super) fn result(view: RunView) -> HandlerResult {
    if view.status == RunStatus::DryRun {
        return Ok(json(StatusCode::OK, &CompositionResult::from(view)));
    }
    Ok(run_response(view.status, &view.run_id.clone(), &CompositionResult::from(view)))
}

/// A response about a run: 202 with its address until it has finished.
pub(super) fn run_response(status: RunStatus, run_id: &str, result: &impl Serialize) -> Response {
    let goes_on = matches!(status, RunStatus::Pending | RunStatus::Running | RunStatus::Waiting);
    let mut response = json(if goes_on { StatusCode::ACCEPTED } else { StatusCode::OK }, result);
    response.extensions_mut().insert(RunId(run_id.into()));
    if goes_on {
        add_location(&mut response, &format!("/api/v1/runs/{run_id}"));
    }
    response
}

/// Says where something is.
pub(super) fn add_location(response: &mut Response, path: &str) {
    if let Ok(location) = HeaderValue::from_str(path) {
        response.headers_mut().insert(header::LOCATION, location);
    }
}
