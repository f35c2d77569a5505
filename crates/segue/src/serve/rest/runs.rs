//! Runs: looking at them, and acting on them.

use std::sync::Arc;

use axum::http::StatusCode;
use segue_core::diagnostic::Code;
use segue_core::run::Question;
use segue_core::value::Value;
use segue_core::view::{RunStatus, RunView};
use segue_runtime::engine::{Stored, Wish};
use segue_runtime::store::{RunQuery, StoreError};

use super::compositions::run_answer;
use super::problem::Problem;
use super::shapes::RunList;
use super::visit::{Answer, Visit, json};
use crate::serve::question::{Unclear, meant, misfit};

/// Runs on a page unless said otherwise.
const PAGE: usize = 50;

/// `GET /api/v1/runs`
pub(super) async fn list(visit: Visit) -> Answer {
    let number = |name| visit.query(name).and_then(|text| text.parse().ok());
    let after = match visit.query("cursor").map(str::parse) {
        None => None,
        Some(Ok(after)) => Some(after),
        Some(Err(_)) => {
            let detail = "`cursor` is `next` of the page before";
            return Err(Problem::new(StatusCode::BAD_REQUEST, Code::InvalidField, detail));
        }
    };
    let query = RunQuery {
        statuses: visit.queries("status").filter_map(RunStatus::parse).collect(),
        name: visit.query("name").map(Arc::from),
        since_ms: number("since_ms"),
        before_ms: number("before_ms"),
        principal: None,
        after,
        limit: number("limit").and_then(|limit: u64| usize::try_from(limit).ok()).unwrap_or(PAGE),
    };
    let found = visit.rest.hall.runs(&visit.who, query).await?;
    let page = RunList {
        runs: found.runs.iter().map(Into::into).collect(),
        damaged: found.damaged.iter().map(ToString::to_string).collect(),
        next: found.next.map(|next| next.to_string()),
    };
    Ok(json(StatusCode::OK, &page))
}

/// `GET /api/v1/runs/{id}`
pub(super) async fn get(visit: Visit) -> Answer {
    Ok(json(StatusCode::OK, &view(&visit, &stored(&visit).await?)))
}

async fn stored(visit: &Visit) -> Result<Stored, Problem> {
    Ok(visit.rest.hall.stored(&visit.who, visit.part("id")).await?)
}

/// A run that has begun here is running, whatever its journal says yet.
fn view(visit: &Visit, stored: &Stored) -> RunView {
    let mut view = stored.view();
    if view.status == RunStatus::Pending
        && visit.rest.hall.active(&visit.who, &view.run_id).is_some()
    {
        view.status = RunStatus::Running;
    }
    view
}

/// `POST /api/v1/runs/{id}/cancel`
pub(super) async fn cancel(visit: Visit) -> Answer {
    let stored = stored(&visit).await?;
    if stored.run.is_finished() {
        return Err(ended(&stored));
    }
    act(&visit, &stored, Wish::Cancel).await
}

/// `POST /api/v1/runs/{id}/rollback`
pub(super) async fn rollback(visit: Visit) -> Answer {
    let stored = stored(&visit).await?;
    act(&visit, &stored, Wish::RollBack { by: visit.who.name.clone() }).await
}

/// `POST /api/v1/runs/{id}/resume`
pub(super) async fn resume(visit: Visit) -> Answer {
    let stored = stored(&visit).await?;
    if stored.run.is_finished() {
        return Err(ended(&stored));
    }
    let wish = match visit.body.get("assume").and_then(Value::as_str) {
        None => Wish::GoOn,
        Some(word) => decide(&visit, &stored, true, word == "done", "value")?,
    };
    act(&visit, &stored, wish).await
}

/// `POST /api/v1/runs/{id}/approve`
pub(super) async fn approve(visit: Visit) -> Answer {
    let stored = stored(&visit).await?;
    if stored.run.is_finished() {
        return Err(ended(&stored));
    }
    let granted = visit.body.get("approved").and_then(Value::as_bool).unwrap_or(true);
    let wish = decide(&visit, &stored, false, granted, "data")?;
    act(&visit, &stored, wish).await
}

fn ended(stored: &Stored) -> Problem {
    let (run_id, status) = (stored.row.run_id.clone(), stored.row.status);
    StoreError::Ended { run_id, status }.into()
}

/// The answer to the question that is meant.
fn decide(
    visit: &Visit,
    stored: &Stored,
    is_doubt: bool,
    granted: bool,
    data: &str,
) -> Result<Wish, Problem> {
    let step = visit.body.get("step").and_then(Value::as_str);
    let question: Question = meant(&stored.run, step, is_doubt).map_err(|unclear| {
        let problem = match unclear {
            Unclear::None => Problem::conflict("nothing of this kind is asked in this run"),
            Unclear::Several(steps) => {
                let steps: Vec<String> = steps.iter().map(|step| format!("`{step}`")).collect();
                let detail = format!("several steps ask: {}", steps.join(", "));
                Problem::conflict(detail).help("`step` says which is meant")
            }
        };
        problem.of_run(&stored.row.run_id)
    })?;
    let data = visit.body.get(data).cloned().unwrap_or_default();
    if let Some(misfit) = misfit(&question, &data, &stored.plan).filter(|_| granted) {
        return Err(Problem::wrong(Code::InputSchema, misfit));
    }
    Ok(Wish::Decide { question: question.id, granted, by: visit.who.name.clone(), data })
}

/// Has what is wanted happen, whether or not its caller waits for it.
async fn act(visit: &Visit, stored: &Stored, wish: Wish) -> Answer {
    let (hall, who) = (visit.rest.hall.clone(), visit.who.clone());
    let run_id = stored.row.run_id.clone();
    // On its own, so that it happens although the caller goes away.
    let acting = tokio::spawn(async move { hall.act(&who, &run_id, wish).await });
    match tokio::time::timeout(visit.patience(), acting).await {
        Ok(Ok(outcome)) => {
            let view = outcome?;
            Ok(run_answer(view.status, &view.run_id, &view))
        }
        Ok(Err(_)) => {
            let detail = "the run could not be acted on";
            Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, Code::Internal, detail))
        }
        Err(_) => {
            let view = RunView { status: RunStatus::Running, ..stored.view() };
            Ok(run_answer(view.status, &view.run_id, &view))
        }
    }
}
