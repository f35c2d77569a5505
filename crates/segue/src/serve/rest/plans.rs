//! Plans: what a composition would do, before it does.

use axum::http::StatusCode;
use segue_core::view::PlanView;

use super::visit::{Answer, Visit, json};
use crate::serve::execution::described_plan;

/// `POST /api/v1/plans`
pub(super) async fn plan(visit: Visit) -> Answer {
    let plan = described_plan(&visit.rest.hall, &visit.who, &visit.body).await?;
    Ok(json(StatusCode::OK, &PlanView::of(&plan)))
}
