//! Compositions: what is served, and running and checking what somebody sends.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use segue_core::view::{PlanView, RunStatus, RunView};
use serde::Serialize;

use super::server::RunId;
use super::shapes::{CompositionList, CompositionResult, ValidationResult};
use super::visit::{Answer, Visit, json};
use crate::serve::executing;
use crate::serve::execution::{Subject, subject};
use crate::serve::listing::compositions;
use crate::serve::threads::calculate;

/// `GET /api/v1/compositions`
pub(super) fn list(visit: &Visit) -> Answer {
    let compositions = compositions(&visit.rest.hall, &visit.who);
    Ok(json(StatusCode::OK, &CompositionList { compositions }))
}

/// `POST /api/v1/compositions/validate`
pub(super) async fn validate(visit: Visit) -> Answer {
    let rest = &visit.rest;
    let subject = subject(&rest.hall, &visit.who, &visit.body).await?;
    let who = subject.runs_as(&visit.who);
    let (plan, diagnostics) = match subject {
        Subject::Served(plan) => (Some(plan), Vec::new()),
        Subject::Own(source) | Subject::Template(source) | Subject::KeptTemplate(source) => {
            let engine = rest.hall.served(&who).engine;
            let (plan, diagnostics) = calculate(|| engine.plan(&source));
            (plan, diagnostics.iter().map(|finding| finding.view(&source)).collect())
        }
    };
    let result = ValidationResult {
        ok: plan.is_some(),
        diagnostics,
        plan: plan.map(|plan| PlanView::from_plan(&plan)),
    };
    Ok(json(StatusCode::OK, &result))
}

/// `POST /api/v1/compositions/execute`
pub(super) async fn execute(visit: Visit) -> Answer {
    let (by, key) = ((&visit.who, &visit.origin), visit.header("idempotency-key"));
    let ran = executing::execute(&visit.rest.hall, by, key, &visit.body, visit.patience()).await;
    result(ran?)
}

/// What became of a run, or a dry one, in the words of the seed.
pub(super) fn result(view: RunView) -> Answer {
    if view.status == RunStatus::DryRun {
        return Ok(json(StatusCode::OK, &CompositionResult::from(view)));
    }
    Ok(run_answer(view.status, &view.run_id.clone(), &CompositionResult::from(view)))
}

/// An answer about a run: 202, with where it is, until it is over.
pub(super) fn run_answer(status: RunStatus, run_id: &str, result: &impl Serialize) -> Response {
    let goes_on = matches!(status, RunStatus::Pending | RunStatus::Running | RunStatus::Waiting);
    let mut response = json(if goes_on { StatusCode::ACCEPTED } else { StatusCode::OK }, result);
    response.extensions_mut().insert(RunId(run_id.into()));
    if let (true, Ok(at)) = (goes_on, HeaderValue::from_str(&format!("/api/v1/runs/{run_id}"))) {
        response.headers_mut().insert(header::LOCATION, at);
    }
    response
}
