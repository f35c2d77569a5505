//! The installation: questions that wait, sources of tools, one call of a tool, checks, settings.

use axum::http::StatusCode;

use super::compositions::{call_options, run_response};
use crate::api::calls::{self, CallTool};
use crate::api::inbox;
use crate::api::installation::{self as service};
use crate::http::request::{ApiRequest, HandlerResult, json};

/// `GET /api/v1/questions`
pub(super) async fn questions(request: ApiRequest) -> HandlerResult {
    let questions = inbox::questions(request.service(), &request.who).await?;
    Ok(json(StatusCode::OK, &questions))
}

/// `GET /api/v1/servers`
pub(super) fn servers(request: &ApiRequest) -> HandlerResult {
    Ok(json(StatusCode::OK, &service::servers(request.service(), &request.who)))
}

/// `POST /api/v1/tools/{id}/call`
pub(super) async fn call(request: ApiRequest) -> HandlerResult {
    let wanted: CallTool = request.read()?;
    let (id, options) = (request.part("id"), call_options(&request));
    let result = calls::call(request.service(), &request.who, id, &wanted, options).await?;
    Ok(run_response(result.status, &result.run_id, &result))
}

/// `GET /api/v1/doctor`
pub(super) async fn doctor(request: ApiRequest) -> HandlerResult {
    Ok(json(StatusCode::OK, &service::doctor(request.service(), &request.who).await))
}

/// `GET /api/v1/settings`
pub(super) fn settings(request: &ApiRequest) -> HandlerResult {
    Ok(json(StatusCode::OK, &request.service().installation().settings))
}
