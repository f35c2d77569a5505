//! Plans: of a composition, and those that a model made of words.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use segue_core::planner::PlanState;
use segue_core::view::PlanView;

use super::compositions::{add_location, call_options, result};
use crate::api::documents;
use crate::api::error::Error;
use crate::api::plans::{self, NewPlan};
use crate::api::requests::{CreatePlan, ExecutePlan, PlanComposition};
use crate::api::responses::PlanList;
use crate::api::runs::start::execute_plan;
use crate::api::tools::page;
use crate::http::request::{ApiRequest, HandlerResult, json, no_content};

/// The default page size.
const PAGE: usize = 50;

/// `POST /api/v1/plans`
pub(super) async fn plan(request: ApiRequest) -> HandlerResult {
    let wanted: PlanComposition = request.read()?;
    let plan = documents::plan(request.service(), &request.who, wanted.document()?).await?;
    Ok(json(StatusCode::OK, &PlanView::from_plan(&plan)))
}

/// `POST /api/v1/plans/ask`
pub(super) async fn create(request: ApiRequest) -> HandlerResult {
    let (service, who) = (request.service(), &request.who);
    let wanted: CreatePlan = request.read()?;
    let NewPlan { planned, used_before } = plans::create(service, who, wanted).await?;
    let record = plans::with_state(service, who, planned.record);
    let details = plans::details(service, who, &record, used_before).await?;
    let mut response = json(StatusCode::CREATED, &details);
    add_location(&mut response, &format!("/api/v1/plans/{}", record.plan_id));
    Ok(response)
}

/// `GET /api/v1/plans`
pub(super) async fn list(request: ApiRequest) -> HandlerResult {
    let limit = request.query("limit").and_then(|limit| limit.parse().ok()).unwrap_or(PAGE);
    let state = request.query("state").and_then(PlanState::parse);
    let request_id = request.query("request_id");
    let records = plans::list(request.service(), &request.who, request_id, state).await?;
    let found = page(&records, request.query("cursor"), limit, |record| &record.plan_id);
    let unknown = || Error::malformed("`cursor` is `next` of the page before");
    let (records, next) = found.ok_or_else(unknown)?;
    let plans = records.iter().map(|record| record.view(false)).collect();
    Ok(json(StatusCode::OK, &PlanList { plans, next }))
}

/// `GET /api/v1/plans/{id}`
pub(super) async fn get(request: ApiRequest) -> HandlerResult {
    let (service, who) = (request.service(), &request.who);
    let record = plans::find_any(service, who, request.part("id")).await?;
    let record = plans::with_state(service, who, record);
    let details = plans::details(service, who, &record, Vec::new()).await?;
    Ok(json(StatusCode::OK, &details))
}

/// `DELETE /api/v1/plans/{id}`
pub(super) async fn delete(request: ApiRequest) -> HandlerResult {
    plans::delete(request.service(), &request.who, request.part("id")).await?;
    Ok(no_content())
}

/// `GET /api/v1/plans/{id}/composition`
pub(super) async fn composition(request: ApiRequest) -> HandlerResult {
    let service = request.service();
    let record = plans::find_any(service, &request.who, request.part("id")).await?;
    let text = plans::composition(service, &record, request.query("name"))?;
    let mut response = Response::new(text.to_string().into());
    let kind = HeaderValue::from_static("application/yaml");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

/// `POST /api/v1/plans/{id}/execute`
pub(super) async fn execute(request: ApiRequest) -> HandlerResult {
    let (service, who) = (request.service(), &request.who);
    let wanted: ExecutePlan = request.read()?;
    let record = plans::find_any(service, who, request.part("id")).await?;
    result(execute_plan(service, who, &record, &wanted, call_options(&request)).await?)
}
