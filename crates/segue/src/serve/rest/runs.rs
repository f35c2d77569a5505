//! Runs: looking at them, and acting on them.

use std::sync::Arc;

use axum::http::StatusCode;
use segue_core::diagnostic::Code;
use segue_core::view::RunStatus;
use segue_runtime::store::RunQuery;

use super::compositions::run_answer;
use super::problem::Problem;
use super::shapes::RunList;
use super::visit::{Answer, Visit, json};
use crate::serve::acting::{Deed, act, seen};

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
    let (hall, who) = (&visit.rest.hall, &visit.who);
    let stored = hall.stored(who, visit.part("id")).await?;
    Ok(json(StatusCode::OK, &seen(hall, who, &stored)))
}

/// `POST /api/v1/runs/{id}/cancel`
pub(super) async fn cancel(visit: Visit) -> Answer {
    done(&visit, &Deed::Cancel).await
}

/// `POST /api/v1/runs/{id}/rollback`
pub(super) async fn rollback(visit: Visit) -> Answer {
    done(&visit, &Deed::RollBack).await
}

/// `POST /api/v1/runs/{id}/resume`
pub(super) async fn resume(visit: Visit) -> Answer {
    done(&visit, &Deed::resuming(&visit.body)).await
}

/// `POST /api/v1/runs/{id}/approve`
pub(super) async fn approve(visit: Visit) -> Answer {
    done(&visit, &Deed::approving(&visit.body)).await
}

async fn done(visit: &Visit, deed: &Deed) -> Answer {
    let (hall, run_id) = (&visit.rest.hall, visit.part("id"));
    let view = act(hall, &visit.who, run_id, deed, visit.patience()).await?;
    Ok(run_answer(view.status, &view.run_id, &view))
}
