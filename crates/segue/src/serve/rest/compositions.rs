//! Compositions: what is served, and running and checking what somebody sends.

use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use segue_core::access::Principal;
use segue_core::plan::Plan;
use segue_core::run::admit;
use segue_core::value::Value;
use segue_core::view::{PlanView, RunStatus, RunView};
use serde::Serialize;

use super::keys::{self, Claim};
use super::problem::Problem;
use super::server::RunId;
use super::shapes::{CompositionLine, CompositionList, CompositionResult, ValidationResult};
use super::visit::{Answer, Visit, json};
use crate::observe::Origin;
use crate::serve::acting::awaited;
use crate::serve::active::Asking;
use crate::serve::execution::{Execution, Subject, execution, subject};
use crate::serve::hall::{Hall, Wanted};

/// `GET /api/v1/compositions`
pub(super) fn list(visit: &Visit) -> Answer {
    let compositions = lines(&visit.rest.hall, &visit.who);
    Ok(json(StatusCode::OK, &CompositionList { compositions }))
}

/// The compositions that are served to somebody.
pub(in crate::serve) fn lines(hall: &Hall, who: &Principal) -> Vec<CompositionLine> {
    let offers = hall.served(who).offers;
    let lines = offers.iter().map(|offer| {
        let schemas = (&offer.input, &offer.output);
        CompositionLine::new(&offer.composition, &offer.description, schemas, &offer.plan)
    });
    lines.collect()
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
    let (by, key) = ((&visit.who, &visit.origin), visit.header("idempotency-key"));
    result(executed(&visit.rest.hall, by, key, &visit.body, visit.patience()).await?)
}

/// What became of a run, or a dry one, in the words of the seed.
pub(super) fn result(view: RunView) -> Answer {
    if view.status == RunStatus::DryRun {
        return Ok(json(StatusCode::OK, &CompositionResult::from(view)));
    }
    Ok(run_answer(view.status, &view.run_id.clone(), &CompositionResult::from(view)))
}

/// Runs what a body describes and waits for it so long. The same key is the same run.
pub(in crate::serve) async fn executed(
    hall: &Arc<Hall>,
    (who, origin): (&Principal, &Origin),
    key: Option<&str>,
    described: &Value,
    patience: Duration,
) -> Result<RunView, Problem> {
    let Execution { plan, input, context, options, dry_run } =
        execution(hall, who, described).await?;
    if dry_run {
        return rehearsed(hall, who, &plan, input, context);
    }
    admit(&plan, input.clone(), &context).map_err(Problem::refused)?;
    let (asking, run_id, origin) = (Asking::Later, None, origin.clone());
    let mut wanted = Wanted { plan, input, context, options, asking, run_id, origin };
    let Some(key) = key else {
        let active = hall.start(who, wanted).map_err(Problem::busy)?;
        return Ok(awaited(&active, patience).await?);
    };
    match keys::claim(hall, who, key, described).await? {
        Claim::Begun(run_id) => again(hall, who, &run_id, patience).await,
        Claim::New(run_id) => {
            wanted.run_id = Some(run_id.clone());
            hall.start(who, wanted).map_err(Problem::busy)?;
            again(hall, who, &run_id, patience).await
        }
    }
}

/// What a run would do.
pub(super) fn rehearsed(
    hall: &Hall,
    who: &Principal,
    plan: &Arc<Plan>,
    input: Value,
    context: Value,
) -> Result<RunView, Problem> {
    let view = hall.served(who).engine.dry_run(plan, input, context);
    match view.status {
        RunStatus::DryRun => Ok(view),
        _ => Err(Problem::refused(view.errors)),
    }
}

/// A run whose request has a key: what its journal says, so that it is the same each time.
async fn again(
    hall: &Arc<Hall>,
    who: &Principal,
    run_id: &Arc<str>,
    patience: Duration,
) -> Result<RunView, Problem> {
    if let Some(active) = hall.active(who, run_id) {
        let view = awaited(&active, patience).await?;
        if view.status == RunStatus::Running {
            return Ok(view);
        }
    }
    Ok(hall.stored(who, run_id).await?.view())
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
