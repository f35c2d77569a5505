//! Runs: list, read, cancel, roll back, resume and approve.

use std::sync::Arc;

use axum::http::StatusCode;
use segue_core::view::RunStatus;
use segue_runtime::store::RunQuery;

use super::compositions::{call_options, result, run_response};
use crate::api::error::Error;
use crate::api::requests::RerunRun;
use crate::api::runs::act::{RunAction, act};
use crate::api::runs::rerun;
use crate::api::runs::search::RunSearch;
use crate::http::request::{ApiRequest, HandlerResult, json};

/// The default page size.
const PAGE: usize = 50;

/// `GET /api/v1/runs`
pub(super) async fn list(request: ApiRequest) -> HandlerResult {
    let number = |name| request.query(name).and_then(|text| text.parse().ok());
    let after = request.query("cursor").map(str::parse).transpose();
    let query = RunQuery {
        statuses: request.queries("status").filter_map(RunStatus::parse).collect(),
        name: request.query("name").map(Arc::from),
        since_ms: number("since_ms"),
        before_ms: number("before_ms"),
        principal: None,
        after: after.map_err(|_| Error::malformed("`cursor` is `next` of the page before"))?,
        limit: number("limit").and_then(|limit: u64| usize::try_from(limit).ok()).unwrap_or(PAGE),
    };
    let wanted = |name| request.query(name).filter(|text| !text.is_empty()).map(Arc::from);
    let wanted = RunSearch { text: wanted("text"), tool: wanted("tool") };
    let found = request.service().search_runs(&request.who, query, &wanted).await?;
    Ok(json(StatusCode::OK, &found))
}

/// `GET /api/v1/runs/{id}`
pub(super) async fn get(request: ApiRequest) -> HandlerResult {
    let (who, run_id) = (&request.who, request.part("id"));
    let is_preview = request.query("preview") == Some("true");
    let details = request.service().run_details(who, run_id, is_preview).await?;
    Ok(json(StatusCode::OK, &details))
}

/// `POST /api/v1/runs/{id}/cancel`
pub(super) async fn cancel(request: ApiRequest) -> HandlerResult {
    act_on(&request, RunAction::Cancel).await
}

/// `POST /api/v1/runs/{id}/rollback`
pub(super) async fn rollback(request: ApiRequest) -> HandlerResult {
    act_on(&request, RunAction::RollBack).await
}

/// `POST /api/v1/runs/{id}/resume`
pub(super) async fn resume(request: ApiRequest) -> HandlerResult {
    let action = RunAction::Resume(request.read()?);
    act_on(&request, action).await
}

/// `POST /api/v1/runs/{id}/approve`
pub(super) async fn approve(request: ApiRequest) -> HandlerResult {
    let action = RunAction::Approve(request.read()?);
    act_on(&request, action).await
}

/// `POST /api/v1/runs/{id}/rerun`
pub(super) async fn rerun(request: ApiRequest) -> HandlerResult {
    let wanted: RerunRun = request.read()?;
    let (service, who, run_id) = (request.service(), &request.who, request.part("id"));
    let call = call_options(&request);
    result(rerun::rerun(service, who, run_id, &wanted, call).await?)
}

async fn act_on(request: &ApiRequest, action: RunAction) -> HandlerResult {
    let (run_id, timeout) = (request.part("id"), request.wait_timeout());
    let view = act(request.service(), &request.who, run_id, action, timeout).await?;
    Ok(run_response(view.status, &view.run_id, &view))
}
