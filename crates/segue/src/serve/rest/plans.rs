//! Plans: what a composition would do, before it does, and those that are made of words.

use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use segue_core::access::Principal;
use segue_core::diagnostic::Code;
use segue_core::limits::Limits;
use segue_core::run::admit;
use segue_core::value::Value;
use segue_core::view::{PlanView, RunView};
use segue_core::words::{PlanRecord, PlanState};
use segue_runtime::engine::PlanError;

use super::compositions::{rehearsed, result};
use super::problem::Problem;
use super::shapes::{KeptPlan, PlanList};
use super::visit::{Answer, Visit, json};
use crate::observe::Origin;
use crate::serve::acting::{awaited, seen};
use crate::serve::active::Asking;
use crate::serve::execution::{described_plan, is_dry, options};
use crate::serve::hall::{Hall, Wanted};
use crate::serve::listing::page;
use crate::serve::plans::{self, Kept, standing};

/// Plans on a page unless said otherwise.
const PAGE: usize = 50;

/// `POST /api/v1/plans`
pub(super) async fn plan(visit: Visit) -> Answer {
    let plan = described_plan(&visit.rest.hall, &visit.who, &visit.body).await?;
    Ok(json(StatusCode::OK, &PlanView::of(&plan)))
}

/// `POST /api/v1/plans/ask`
pub(super) async fn ask(visit: Visit) -> Answer {
    let (hall, who) = (&visit.rest.hall, &visit.who);
    let record = plans::ask(hall, who, &visit.body).await?.record;
    let mut response = shown(hall, who, StatusCode::CREATED, record).await?;
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
    Ok(shown(hall, who, StatusCode::OK, record).await?.0)
}

/// `DELETE /api/v1/plans/{id}`
pub(super) async fn delete(visit: Visit) -> Answer {
    let hall = &visit.rest.hall;
    let record = hall.plan_record(&visit.who, &visit.part("id").into()).await?;
    hall.served(&visit.who).engine.forget_plan(&record.plan_id).await?;
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

/// A plan as a composition of this name.
pub(in crate::serve) fn written(
    record: &PlanRecord,
    name: Option<&str>,
    limits: &Limits,
) -> Result<Arc<str>, Problem> {
    let text = record.composition(&format!("{}.yaml", name.unwrap_or("plan")), limits);
    let detail = "the plan cannot be written as a composition";
    text.ok_or_else(|| Problem::wrong(Code::Conversion, detail))
}

/// `POST /api/v1/plans/{id}/execute`
pub(super) async fn execute(visit: Visit) -> Answer {
    let (hall, who) = (&visit.rest.hall, &visit.who);
    let record = hall.find_plan(who, visit.part("id")).await?;
    result(executed(hall, (who, &visit.origin), &record, &visit.body, visit.patience()).await?)
}

/// Executes a plan as a body describes it, and waits for it so long.
pub(in crate::serve) async fn executed(
    hall: &Arc<Hall>,
    (who, origin): (&Principal, &Origin),
    record: &PlanRecord,
    described: &Value,
    patience: Duration,
) -> Result<RunView, Problem> {
    let (_, plan, _) = hall.served(who).engine.plan_of(record)?;
    let given = described.get("context").filter(|context| !context.is_null());
    let context = given.cloned().unwrap_or_else(Value::empty_object);
    let input = Value::empty_object();
    if is_dry(described) {
        return rehearsed(hall, who, &plan, input, context);
    }
    admit(&plan, input.clone(), &context).map_err(Problem::refused)?;
    let again = described.get("again").and_then(Value::as_bool).unwrap_or(false);
    let kept = Kept { plan_id: record.plan_id.clone(), again };
    let options = options(described)?;
    let (asking, run_id, origin) = (Asking::Later, None, origin.clone());
    let wanted = Wanted { plan, input, context, options, asking, run_id, origin };
    let active = plans::begin(hall, who, &kept, wanted).await?;
    Ok(awaited(&active, patience).await?)
}

/// The plans of a request from the first, or all of them from the last, as they stand.
pub(in crate::serve) async fn listed(
    hall: &Hall,
    who: &Principal,
    request_id: Option<&str>,
    state: Option<PlanState>,
) -> Result<Vec<PlanRecord>, PlanError> {
    let records = match request_id {
        Some(request_id) => hall.plans_of_request(who, &request_id.into()).await?,
        None => hall.plans(who, usize::MAX).await?,
    };
    let records = records.into_iter().map(|record| standing(hall, who, record));
    Ok(records.filter(|record| state.is_none_or(|state| record.state == state)).collect())
}

/// The run that executed a plan, or does; nothing when it is forgotten.
pub(in crate::serve) async fn result_of(
    hall: &Hall,
    who: &Principal,
    record: &PlanRecord,
) -> Option<RunView> {
    let stored = hall.stored(who, record.run_id.as_deref()?).await.ok()?;
    Some(seen(hall, who, &stored))
}

/// Everything about a plan, and its id.
async fn shown(
    hall: &Hall,
    who: &Principal,
    status: StatusCode,
    record: PlanRecord,
) -> Result<(Response, Arc<str>), Problem> {
    let (engine, record) = (hall.served(who).engine, standing(hall, who, record));
    let versions = hall.plans_of_request(who, &record.request_id).await?;
    let kept = KeptPlan {
        record: record.view(true),
        versions: versions.into_iter().map(|version| version.plan_id).collect(),
        checked: engine.plan_of(&record).ok().map(|(_, plan, _)| PlanView::of(&plan)),
        result: result_of(hall, who, &record).await,
    };
    Ok((json(status, &kept), record.plan_id.clone()))
}
