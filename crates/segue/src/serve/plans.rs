//! Plans that are asked for in words: how every door makes, shows and executes them, and the tools of
//! ours that do.

use std::fmt::Write as _;
use std::sync::Arc;

use schemars::JsonSchema;
use segue_core::access::Principal;
use segue_core::id::is_composition_name;
use segue_core::limits::Limits;
use segue_core::plan::Plan;
use segue_core::planner::{PlanState, StoredPlan};
use segue_core::value::Value;
use segue_core::view::{PlanView, RunView, Timestamp};
use segue_runtime::engine::{
    EngineError, Planned, PlanningError, PlanningRequest, Reuse, is_request_id,
};
use serde::Serialize;

use super::acting::seen;
use super::active::Active;
use super::hall::{Hall, Wanted};
use super::own::{Desk, json_of};
use super::told::{Told, run_value};

/// A plan that a run is about to execute.
pub struct Kept {
    /// The plan.
    pub plan_id: Arc<str>,
    /// Whether it may have been executed already.
    pub again: bool,
}

/// Why a plan is not executed.
#[derive(Debug)]
pub enum Unbegun {
    /// The plan is not to be had.
    Plan(PlanningError),
    /// Too much is going on.
    Busy(String),
    /// Its beginning could not be written.
    Engine(EngineError),
}

/// Why a plan is not written as a composition.
#[derive(Debug)]
pub enum Unwritten {
    /// It cannot be called so.
    Name(String),
    /// It cannot be one.
    Plan,
}

/// A plan that did its work for words like these; `use` takes it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PlanOffer {
    /// The plan.
    pub plan_id: Arc<str>,
    /// What was asked for then.
    pub query: Arc<str>,
    /// When it was made.
    pub created_at: Timestamp,
}

impl From<&StoredPlan> for PlanOffer {
    fn from(record: &StoredPlan) -> PlanOffer {
        let created_at = Timestamp(record.created_ms);
        PlanOffer { plan_id: record.plan_id.clone(), query: record.query.clone(), created_at }
    }
}

/// A plan that was made, and what else would have done.
pub struct Made {
    /// The plan.
    pub planned: Planned,
    /// Plans that worked for words like these.
    pub used_before: Vec<PlanOffer>,
}

/// Why none was made, and what would do.
#[derive(Debug)]
pub struct Unmade {
    /// Why.
    pub error: PlanningError,
    /// Plans that worked for words like these.
    pub used_before: Vec<PlanOffer>,
}

impl From<PlanningError> for Unmade {
    fn from(error: PlanningError) -> Unmade {
        Unmade { error, used_before: Vec::new() }
    }
}

impl Hall {
    /// A plan of theirs that is kept.
    pub async fn plan_record(
        &self,
        who: &Principal,
        plan_id: &Arc<str>,
    ) -> Result<StoredPlan, PlanningError> {
        let record = self.everything().engine.plan_record(plan_id).await?;
        let theirs = Some(record).filter(|record| who.can_see(record.principal.as_deref()));
        theirs.ok_or_else(|| PlanningError::NotFound(plan_id.clone()))
    }

    /// A plan of theirs by its id, or the last one of a request of theirs by that.
    pub async fn find_plan(&self, who: &Principal, id: &str) -> Result<StoredPlan, PlanningError> {
        let id: Arc<str> = id.into();
        if is_request_id(&id) {
            return self.plan_of_request(who, &id).await;
        }
        self.plan_record(who, &id).await
    }

    /// The last plan of a request of theirs.
    pub async fn plan_of_request(
        &self,
        who: &Principal,
        request_id: &Arc<str>,
    ) -> Result<StoredPlan, PlanningError> {
        let last = self.plans_of_request(who, request_id).await?.pop();
        last.ok_or_else(|| PlanningError::NoPlanFor(request_id.clone()))
    }

    /// The plans of a request of theirs, the first one first.
    pub async fn plans_of_request(
        &self,
        who: &Principal,
        request_id: &Arc<str>,
    ) -> Result<Vec<StoredPlan>, PlanningError> {
        let mut records = self.everything().engine.plans_of_request(request_id).await?;
        records.retain(|record| who.can_see(record.principal.as_deref()));
        if records.is_empty() {
            return Err(PlanningError::NoPlanFor(request_id.clone()));
        }
        Ok(records)
    }

    /// The plans of somebody, newest first, so many at most.
    pub async fn plans(
        &self,
        who: &Principal,
        limit: usize,
    ) -> Result<Vec<StoredPlan>, PlanningError> {
        let mut records = self.everything().engine.plans(usize::MAX).await?;
        records.retain(|record| who.can_see(record.principal.as_deref()));
        records.truncate(limit);
        Ok(records)
    }
}

/// The plans of theirs that worked for words like these.
pub async fn used_before(
    hall: &Hall,
    who: &Principal,
    query: &str,
) -> Result<Vec<PlanOffer>, PlanningError> {
    let found = hall.served(who).engine.similar_plans_for(Some(who), query).await?;
    Ok(found.iter().map(PlanOffer::from).collect())
}

/// Makes a plan of words and keeps it. `args` says which: `query`, and perhaps `request_id`, `use` and
/// `fresh`.
pub async fn ask(hall: &Hall, who: &Principal, args: &Value) -> Result<Made, Unmade> {
    let text = |name: &str| args.get(name).and_then(Value::as_str).map(Arc::<str>::from);
    let is_fresh = args.get("fresh").and_then(Value::as_bool).unwrap_or(false);
    let reuse = match text("use") {
        Some(plan_id) => Reuse::This(plan_id),
        None if is_fresh => Reuse::Nothing,
        None => Reuse::Same,
    };
    let who = &who.as_author();
    let query = text("query").unwrap_or_default();
    let used_before = used_before(hall, who, &query).await?;
    let (request_id, by) = (text("request_id"), Some(who.clone()));
    let request =
        PlanningRequest { request_id, reuse, principal: by, ..PlanningRequest::new(query) };
    match hall.served(who).engine.create_plan(request).await {
        Ok(planned) => Ok(Made { planned, used_before }),
        Err(error) => Err(Unmade { error, used_before }),
    }
}

/// Begins the run of a plan that is kept, which belongs to that run from then on.
pub async fn begin(
    hall: &Arc<Hall>,
    who: &Principal,
    kept: &Kept,
    mut wanted: Wanted,
) -> Result<Arc<Active>, Unbegun> {
    let engine = hall.served(who).engine;
    let run_id = wanted.run_id.clone().unwrap_or_else(|| engine.new_run_id());
    // Whoever looks at the plan between its being taken and the run's beginning is told the truth.
    let _announced = hall.announce(run_id.clone());
    let taken = engine.claim_plan(&kept.plan_id, kept.again, run_id).await;
    let taken = taken.map_err(Unbegun::Plan)?;
    wanted.run_id.clone_from(&taken.now.run_id);
    let begun = hall.start(who, wanted).await;
    if begun.is_err() {
        engine.release_plan(taken).await;
    }
    begun
}

/// A plan as it stands. One whose run begins here is being executed, whatever the journal says yet.
pub fn standing(hall: &Hall, who: &Principal, mut record: StoredPlan) -> StoredPlan {
    let begins =
        |run_id: &Arc<str>| hall.active(who, run_id).is_some() || hall.is_announced(run_id);
    if record.run_id.as_ref().is_some_and(begins) {
        record.state = PlanState::InProgress;
    }
    record
}

/// The plans of a request from the first, or all of them from the last, as they stand.
pub async fn listed(
    hall: &Hall,
    who: &Principal,
    request_id: Option<&str>,
    state: Option<PlanState>,
) -> Result<Vec<StoredPlan>, PlanningError> {
    let records = match request_id {
        Some(request_id) => hall.plans_of_request(who, &request_id.into()).await?,
        None => hall.plans(who, usize::MAX).await?,
    };
    let records = records.into_iter().map(|record| standing(hall, who, record));
    Ok(records.filter(|record| state.is_none_or(|state| record.state == state)).collect())
}

/// The run that executed a plan, or does; nothing when it is forgotten.
pub async fn result_of(hall: &Hall, who: &Principal, record: &StoredPlan) -> Option<RunView> {
    let stored = hall.stored(who, record.run_id.as_deref()?).await.ok()?;
    Some(seen(hall, who, &stored))
}

/// A plan as a composition of this name.
pub fn written(
    record: &StoredPlan,
    name: Option<&str>,
    limits: &Limits,
) -> Result<Arc<str>, Unwritten> {
    let name = name.unwrap_or("plan");
    if !is_composition_name(name) {
        return Err(Unwritten::Name(name.to_owned()));
    }
    record.composition(&format!("{name}.yaml"), limits).ok_or(Unwritten::Plan)
}

impl Desk<'_> {
    /// `plan_ask`
    pub(super) async fn ask(&self, args: &Value) -> Told {
        match ask(self.hall, self.who, args).await {
            Ok(made) => self.told(planned_value(&made)),
            Err(unmade) => unmade_error(&unmade),
        }
    }

    /// `plan_get`
    pub(super) async fn look_at_plan(&self, args: &Value) -> Told {
        let record = match self.record(args).await {
            Ok(record) => standing(self.hall, self.who, record),
            Err(told) => return told,
        };
        let mut value = value_of(&record);
        // A run that is forgotten, or somebody else's, has no result here.
        let result = result_of(self.hall, self.who, &record).await;
        if let (Value::Object(members), Some(view)) = (&value, &result) {
            let mut members = (**members).clone();
            members.insert("result".into(), run_value(view, false));
            value = members.into();
        }
        Told::value(value, self.hall.limits().served_result_bytes_max, result.as_ref())
    }

    /// The plan that `plan_execute` is to run; the error is the answer.
    pub async fn kept_plan(&self, args: &Value) -> Result<(Arc<Plan>, Kept), Told> {
        let record = self.record(args).await?;
        let planned = self.hall.served(&self.who.as_author()).engine.plan_of(&record);
        let (_, plan, _) = planned.map_err(|error| plan_error(&error))?;
        let again = args.get("again").and_then(Value::as_bool).unwrap_or(false);
        Ok((plan, Kept { plan_id: record.plan_id, again }))
    }

    async fn record(&self, args: &Value) -> Result<StoredPlan, Told> {
        let id = |name: &str| args.get(name).and_then(Value::as_str).map(Arc::<str>::from);
        let found = match (id("plan_id"), id("request_id")) {
            (Some(plan_id), None) => self.hall.plan_record(self.who, &plan_id).await,
            (None, Some(request_id)) => self.hall.plan_of_request(self.who, &request_id).await,
            _ => return Err(Told::error("give one of `plan_id` and `request_id`")),
        };
        found.map_err(|error| plan_error(&error))
    }
}

fn planned_value(Made { planned, used_before }: &Made) -> Value {
    let value = value_of(&planned.record);
    let Value::Object(members) = &value else { return value };
    let mut members = (**members).clone();
    members.insert("checked".into(), json_of(&PlanView::from_plan(&planned.plan)));
    if !used_before.is_empty() {
        members.insert("used_before".into(), json_of(used_before));
    }
    members.into()
}

fn value_of(record: &StoredPlan) -> Value {
    json_of(&record.view(true))
}

/// Why no plan was made, and which would do.
fn unmade_error(unmade: &Unmade) -> Told {
    let mut text = error_text(&unmade.error);
    for offer in &unmade.used_before {
        let _ = write!(text, "\nused before for: {} (`use`: {})", offer.query, offer.plan_id);
    }
    Told::error(text)
}

/// Why there is no plan, in words that a model can go on from.
pub fn plan_error(error: &PlanningError) -> Told {
    Told::error(error_text(error))
}

fn error_text(error: &PlanningError) -> String {
    let mut text = format!("{error} [{}]", error.code());
    if let Some(help) = error.help() {
        let _ = write!(text, " ({help})");
    }
    let findings = match error {
        PlanningError::Unplanned(unplanned) => &unplanned.findings[..],
        PlanningError::InvalidPlan { findings, .. } => findings,
        _ => &[],
    };
    for finding in findings {
        let _ = write!(text, "\n- {} [{}]", finding.message, finding.code);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;

    use segue_core::planner::{PlanOrigin as Made, PlanningCost};
    use segue_core::run::Options;
    use segue_core::source::Source;
    use segue_runtime::engine::Engine;
    use segue_runtime::library::Library;
    use segue_runtime::store::{Collection, Precondition, StoredItem};

    use super::*;
    use crate::observe::{Observers, RequestOrigin};
    use crate::serve::active::Asking;
    use crate::serve::threads::Threads;

    const PLAN: &str = r#"{ "tools": [{ "name": "echo", "parameters": {} }] }"#;

    /// S4-09: a plan that is taken is being executed, before its run has written anything; and one
    /// whose run is not about to begin any more is not.
    #[tokio::test]
    async fn a_plan_that_is_taken_is_in_progress() {
        let (engine, _) = Engine::builder().build();
        let who = Principal::administrator("ada");
        let record = StoredPlan {
            request_id: "req_1".into(),
            plan_id: "plan_1".into(),
            version: 1,
            query: "echo".into(),
            state: PlanState::Pending,
            created_ms: 0,
            origin: Made::Model { model: "m".into(), cost: PlanningCost::default() },
            run_id: None,
            document: json_of(&serde_json::from_str::<serde_json::Value>(PLAN).unwrap()),
            warnings: Vec::new(),
            principal: None,
        };
        let text = serde_json::to_string(&record).unwrap().into();
        let item = StoredItem { key: record.plan_id.clone(), text, version: 0, at_ms: 0 };
        engine
            .store()
            .key_value()
            .put(Collection::Plans, &item, Precondition::Absent)
            .await
            .unwrap();
        // Runs are driven on something that never moves.
        let idle = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (library, _) = Library::new(engine.clone(), Vec::new());
        let (taken, observing) = (BTreeSet::new(), Observers::default());
        let hall = Hall::new(
            engine.clone(),
            library,
            BTreeMap::new(),
            taken,
            {
                let handle = || idle.handle().clone();
                Threads { connections: handle(), runs: handle(), requests: handle() }
            },
            observing,
        );
        let state = async || {
            let record = hall.plan_record(&who, &record.plan_id).await.unwrap();
            standing(&hall, &who, record).state
        };
        assert_eq!(state().await, PlanState::Pending);

        let run_id = engine.new_run_id();
        let announced = hall.announce(run_id.clone());
        let given = engine.claim_plan(&record.plan_id, false, run_id).await.unwrap();
        assert_eq!(state().await, PlanState::InProgress);
        drop(announced);
        assert_eq!(state().await, PlanState::Failed, "nobody begins it");
        engine.release_plan(given).await;

        let source =
            Source::new("c", "name: c\nsteps: [ { id: a, approve: { message: go on? } } ]\n");
        let wanted = Wanted {
            plan: engine.plan(&source).0.unwrap(),
            input: Value::empty_object(),
            context: Value::empty_object(),
            options: Options::default(),
            asking: Asking::Later,
            run_id: None,
            origin: RequestOrigin::default(),
        };
        let kept = Kept { plan_id: record.plan_id.clone(), again: false };
        let mut begun = pin!(begin(&hall, &who, &kept, wanted));
        let is_pending = poll_fn(|cx| Poll::Ready(begun.as_mut().poll(cx).is_pending())).await;
        assert!(is_pending && hall.under_way(&who) == 1, "nothing is written yet");
        assert_eq!(state().await, PlanState::InProgress);
        idle.shutdown_background();
    }
}
