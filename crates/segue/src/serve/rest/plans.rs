//! Plans: what a composition would do, before it does, and those that are made of words.

use std::sync::Arc;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use segue_core::access::Principal;
use segue_core::diagnostic::Code;
use segue_core::planner::{PlanState, StoredPlan};
use segue_core::view::PlanView;

use super::compositions::result;
use super::problem::Problem;
use super::shapes::{KeptPlan, PlanList};
use super::visit::{Answer, Visit, json};
use crate::serve::executing::execute_plan;
use crate::serve::execution::described_plan;
use crate::serve::hall::Hall;
use crate::serve::listing::page;
use crate::serve::plans::{self, Made, PlanOffer, listed, result_of, standing, written};

/// Plans on a page unless said otherwise.
const PAGE: usize = 50;

/// `POST /api/v1/plans`
pub(super) async fn plan(visit: Visit) -> Answer {
    let plan = described_plan(&visit.rest.hall, &visit.who, &visit.body).await?;
    Ok(json(StatusCode::OK, &PlanView::from_plan(&plan)))
}

/// `POST /api/v1/plans/ask`
pub(super) async fn ask(visit: Visit) -> Answer {
    let (hall, who) = (&visit.rest.hall, &visit.who);
    let Made { planned, used_before } = plans::ask(hall, who, &visit.body).await?;
    let made = (planned.record, used_before);
    let mut response = shown(hall, who, StatusCode::CREATED, made).await?;
    let id = response.1;
    if let Ok(at) = HeaderValue::from_str(&format!("/api/v1/plans/{id}")) {
        response.0.headers_mut().insert(header::LOCATION, at);
    }
    Ok(response.0)
}

/// `GET /api/v1/plans`
pub(super) async fn list(visit: Visit) -> Answer {
    let number = visit.query("limit").and_then(|limit| limit.parse().ok());
    let state = visit.query("state").and_then(PlanState::parse);
    let records = listed(&visit.rest.hall, &visit.who, visit.query("request_id"), state).await?;
    let found = page(&records, visit.query("cursor"), number.unwrap_or(PAGE), |r| &r.plan_id);
    let (records, next) = found.ok_or_else(|| {
        let detail = "`cursor` is `next` of the page before";
        Problem::new(StatusCode::BAD_REQUEST, Code::InvalidField, detail)
    })?;
    let plans = records.iter().map(|record| record.view(false)).collect();
    Ok(json(StatusCode::OK, &PlanList { plans, next }))
}

/// `GET /api/v1/plans/{id}`
pub(super) async fn get(visit: Visit) -> Answer {
    let (hall, who) = (&visit.rest.hall, &visit.who);
    let record = hall.find_plan(who, visit.part("id")).await?;
    Ok(shown(hall, who, StatusCode::OK, (record, Vec::new())).await?.0)
}

/// `DELETE /api/v1/plans/{id}`
pub(super) async fn delete(visit: Visit) -> Answer {
    let hall = &visit.rest.hall;
    let record = hall.plan_record(&visit.who, &visit.part("id").into()).await?;
    hall.served(&visit.who).engine.delete_plan(&record.plan_id).await?;
    let mut response = Response::default();
    *response.status_mut() = StatusCode::NO_CONTENT;
    Ok(response)
}

/// `GET /api/v1/plans/{id}/composition`
pub(super) async fn composition(visit: Visit) -> Answer {
    let hall = &visit.rest.hall;
    let record = hall.find_plan(&visit.who, visit.part("id")).await?;
    let text = written(&record, visit.query("name"), &hall.limits())?;
    let mut response = Response::new(text.to_string().into());
    let kind = HeaderValue::from_static("application/yaml");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

/// `POST /api/v1/plans/{id}/execute`
pub(super) async fn execute(visit: Visit) -> Answer {
    let (hall, who) = (&visit.rest.hall, &visit.who);
    let record = hall.find_plan(who, visit.part("id")).await?;
    let (by, key) = ((who, &visit.origin), visit.header("idempotency-key"));
    result(execute_plan(hall, by, key, &record, &visit.body, visit.patience()).await?)
}

/// Everything about a plan, with those that worked before, and its id.
async fn shown(
    hall: &Hall,
    who: &Principal,
    status: StatusCode,
    (record, used_before): (StoredPlan, Vec<PlanOffer>),
) -> Result<(Response, Arc<str>), Problem> {
    let (engine, record) = (hall.served(who).engine, standing(hall, who, record));
    let versions = hall.plans_of_request(who, &record.request_id).await?;
    let kept = KeptPlan {
        record: record.view(true),
        versions: versions.into_iter().map(|version| version.plan_id).collect(),
        checked: engine.plan_of(&record).ok().map(|(_, plan, _)| PlanView::from_plan(&plan)),
        result: result_of(hall, who, &record).await,
        used_before,
    };
    Ok((json(status, &kept), record.plan_id.clone()))
}
