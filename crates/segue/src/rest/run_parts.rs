//! A run in pieces: values, steps, plan, text, and beside another run.

use axum::http::{HeaderValue, StatusCode, header};
use segue_core::view::StepStatus;

use crate::api::runs::inspect::{ListSteps, ReadValue, ValuePart};
use crate::http::request::{ApiRequest, HandlerResult, json};

/// How many steps a page has, unless the client says how many.
const PAGE: usize = 100;

fn number(request: &ApiRequest, name: &str) -> Option<usize> {
    request.query(name).and_then(|text| text.parse().ok())
}

/// `GET /api/v1/runs/{id}/value`
pub(super) async fn value(request: ApiRequest) -> HandlerResult {
    let (service, who, run_id) = (request.service(), &request.who, request.part("id"));
    let part = request.query("part").and_then(ValuePart::parse).unwrap_or(ValuePart::Output);
    let pointer = request.query("pointer").unwrap_or("");
    let wanted = ReadValue { step: request.query("step"), part, pointer };
    if request.query("download") == Some("true") {
        let value = service.run_value(who, run_id, &wanted).await?;
        let mut response = json(StatusCode::OK, &value);
        let file = format!("attachment; filename=\"run-{run_id}.json\"");
        // The id of a stored run has nothing to quote.
        if let Ok(file) = HeaderValue::from_str(&file) {
            response.headers_mut().insert(header::CONTENT_DISPOSITION, file);
        }
        return Ok(response);
    }
    let page = (number(&request, "offset").unwrap_or(0), number(&request, "limit"));
    Ok(json(StatusCode::OK, &service.value_page(who, run_id, &wanted, page).await?))
}

/// `GET /api/v1/runs/{id}/steps`
pub(super) async fn steps(request: ApiRequest) -> HandlerResult {
    let known = |word: &str| StepStatus::ALL.iter().copied().find(|s| s.as_str() == word);
    let wanted = ListSteps {
        parent: request.query("parent"),
        is_deep: request.query("deep") == Some("true"),
        statuses: request.queries("status").filter_map(known).collect(),
        offset: number(&request, "offset").unwrap_or(0),
        limit: number(&request, "limit").unwrap_or(PAGE),
    };
    let found = request.service().run_steps(&request.who, request.part("id"), &wanted).await?;
    Ok(json(StatusCode::OK, &found))
}

/// `GET /api/v1/runs/{id}/steps/{path}`
pub(super) async fn step(request: ApiRequest) -> HandlerResult {
    let (run_id, path) = (request.part("id"), request.part("path"));
    let found = request.service().run_step(&request.who, run_id, path).await?;
    Ok(json(StatusCode::OK, &found))
}

/// `GET /api/v1/runs/{id}/plan`
pub(super) async fn plan(request: ApiRequest) -> HandlerResult {
    let plan = request.service().run_plan(&request.who, request.part("id")).await?;
    Ok(json(StatusCode::OK, &plan))
}

/// `GET /api/v1/runs/{id}/source`
pub(super) async fn source(request: ApiRequest) -> HandlerResult {
    let source = request.service().run_source(&request.who, request.part("id")).await?;
    Ok(json(StatusCode::OK, &source))
}

/// `GET /api/v1/runs/{id}/compare`
pub(super) async fn compare(request: ApiRequest) -> HandlerResult {
    let (left, right) = (request.part("id"), request.query("with").unwrap_or(""));
    let found = request.service().compare_runs(&request.who, left, right).await?;
    Ok(json(StatusCode::OK, &found))
}
