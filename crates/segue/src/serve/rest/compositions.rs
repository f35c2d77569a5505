//! Compositions: what is served, and running and checking what somebody sends.

use std::sync::Arc;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use segue_core::run::admit;
use segue_core::view::{PlanView, RunStatus, RunView};
use serde::Serialize;

use super::keys::{self, Claim};
use super::problem::Problem;
use super::server::RunId;
use super::shapes::{CompositionLine, CompositionList, CompositionResult, ValidationResult};
use super::visit::{Answer, Visit, json};
use crate::serve::active::{Active, Asking};
use crate::serve::execution::{Execution, Subject, execution, subject};
use crate::serve::hall::Wanted;

/// `GET /api/v1/compositions`
pub(super) fn list(visit: &Visit) -> Answer {
    let offers = visit.rest.hall.served(&visit.who).offers;
    let compositions = offers.iter().map(|offer| {
        let schemas = (&offer.input, &offer.output);
        CompositionLine::new(&offer.composition, &offer.description, schemas, &offer.plan)
    });
    let compositions = compositions.collect();
    Ok(json(StatusCode::OK, &CompositionList { compositions }))
}

/// `POST /api/v1/compositions/validate`
pub(super) async fn validate(visit: Visit) -> Answer {
    let rest = &visit.rest;
    let (plan, diagnostics) = match subject(&rest.hall, &visit.who, &visit.body).await? {
        Subject::Served(plan) => (Some(plan), Vec::new()),
        Subject::Text(source) => {
            let (plan, diagnostics) = rest.hall.served(&visit.who).engine.plan(&source);
            (plan, diagnostics.iter().map(|finding| finding.view(&source)).collect())
        }
    };
    let result = ValidationResult {
        ok: plan.is_some(),
        diagnostics,
        plan: plan.map(|plan| PlanView::of(&plan)),
    };
    Ok(json(StatusCode::OK, &result))
}

/// `POST /api/v1/compositions/execute`
pub(super) async fn execute(visit: Visit) -> Answer {
    let rest = visit.rest.clone();
    let Execution { plan, input, context, options, dry_run } =
        execution(&rest.hall, &visit.who, &visit.body).await?;
    if dry_run {
        let view = rest.hall.served(&visit.who).engine.dry_run(&plan, input, context);
        return match view.status {
            RunStatus::DryRun => Ok(json(StatusCode::OK, &CompositionResult::from(view))),
            _ => Err(Problem::refused(view.errors)),
        };
    }
    admit(&plan, input.clone(), &context).map_err(Problem::refused)?;
    let mut wanted = Wanted { plan, input, context, options, asking: Asking::Later, run_id: None };
    let Some(key) = visit.header("idempotency-key") else {
        let active = rest.hall.start(&visit.who, wanted).map_err(Problem::busy)?;
        return follow(&visit, &active).await;
    };
    match keys::claim(&rest.hall, &visit.who, key, &visit.body).await? {
        Claim::Begun(run_id) => again(&visit, &run_id).await,
        Claim::New(run_id) => {
            wanted.run_id = Some(run_id.clone());
            rest.hall.start(&visit.who, wanted).map_err(Problem::busy)?;
            again(&visit, &run_id).await
        }
    }
}

/// Waits for a run as long as the caller does.
async fn follow(visit: &Visit, active: &Arc<Active>) -> Answer {
    let ended = tokio::time::timeout(visit.patience(), active.ended()).await;
    match ended {
        Ok(outcome) => {
            let view = outcome.as_ref().clone()?;
            Ok(run_answer(view.status, &view.run_id.clone(), &CompositionResult::from(view)))
        }
        Err(_) => Ok(goes_on(active)),
    }
}

/// A run whose request has a key: what its journal says, so that it is the same each time.
async fn again(visit: &Visit, run_id: &Arc<str>) -> Answer {
    if let Some(active) = visit.rest.hall.active(&visit.who, run_id) {
        match tokio::time::timeout(visit.patience(), active.ended()).await {
            Ok(outcome) => drop(outcome.as_ref().clone()?),
            Err(_) => return Ok(goes_on(&active)),
        }
    }
    let view: RunView = visit.rest.hall.stored(&visit.who, run_id).await?.view();
    Ok(run_answer(view.status, run_id, &CompositionResult::from(view)))
}

fn goes_on(active: &Active) -> Response {
    let result = CompositionResult::running(&active.run_id, &active.composition);
    run_answer(RunStatus::Running, &active.run_id, &result)
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
