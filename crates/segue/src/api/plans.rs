//! Plans that a model makes of words: how every surface asks for, shows and executes them.

use std::sync::Arc;

use schemars::JsonSchema;
use segue_core::access::Principal;
use segue_core::diagnostic::Code;
use segue_core::id::is_composition_name;
use segue_core::planner::{PlanState, StoredPlan};
use segue_core::view::{PlanView, RunView, Timestamp};
use segue_runtime::engine::{Planned, PlanningError, is_request_id};
use serde::Serialize;

use super::error::{Error, ErrorKind};
use super::requests::CreatePlan;
use super::responses::PlanDetails;
use super::runs::act::current_view;
use super::runs::handle::RunHandle;
use super::runs::{RunService, StartRun};

/// A stored plan that a run executes.
#[derive(Clone, Debug)]
pub struct PlanRef {
    /// The plan.
    pub plan_id: Arc<str>,
    /// Whether it may have been executed already.
    pub again: bool,
}

/// An earlier plan that succeeded for similar words; `use` takes it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PlanOffer {
    /// The plan.
    pub plan_id: Arc<str>,
    /// The words of that time.
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

/// A new plan, and earlier ones that succeeded for similar words.
pub struct NewPlan {
    /// The plan.
    pub planned: Planned,
    /// Earlier plans.
    pub used_before: Vec<PlanOffer>,
}

/// A stored plan of the caller.
pub async fn find(
    service: &RunService,
    who: &Principal,
    plan_id: &Arc<str>,
) -> Result<StoredPlan, Error> {
    let record = service.full_catalog().engine.plan_record(plan_id).await?;
    let theirs = Some(record).filter(|record| who.can_see(record.principal.as_deref()));
    Ok(theirs.ok_or_else(|| PlanningError::NotFound(plan_id.clone()))?)
}

/// A stored plan of the caller by its id, or the last version of a request by that.
pub async fn find_any(
    service: &RunService,
    who: &Principal,
    id: &str,
) -> Result<StoredPlan, Error> {
    let id: Arc<str> = id.into();
    if is_request_id(&id) {
        last_of(service, who, &id).await
    } else {
        find(service, who, &id).await
    }
}

/// The last version of a request of the caller.
pub async fn last_of(
    service: &RunService,
    who: &Principal,
    request_id: &Arc<str>,
) -> Result<StoredPlan, Error> {
    let last = versions(service, who, request_id).await?.pop();
    Ok(last.ok_or_else(|| PlanningError::NoPlanFor(request_id.clone()))?)
}

/// The plans of a request of the caller, the first version first.
pub async fn versions(
    service: &RunService,
    who: &Principal,
    request_id: &Arc<str>,
) -> Result<Vec<StoredPlan>, Error> {
    let mut records = service.full_catalog().engine.plans_of_request(request_id).await?;
    records.retain(|record| who.can_see(record.principal.as_deref()));
    if records.is_empty() {
        return Err(PlanningError::NoPlanFor(request_id.clone()).into());
    }
    Ok(records)
}

/// The plans of a request, the first version first, or all plans of the caller, the newest first.
pub async fn list(
    service: &RunService,
    who: &Principal,
    request_id: Option<&str>,
    state: Option<PlanState>,
) -> Result<Vec<StoredPlan>, Error> {
    let records = match request_id {
        Some(request_id) => versions(service, who, &request_id.into()).await?,
        None => {
            let mut records = service.full_catalog().engine.plans(usize::MAX).await?;
            records.retain(|record| who.can_see(record.principal.as_deref()));
            records
        }
    };
    let records = records.into_iter().map(|record| with_state(service, who, record));
    Ok(records.filter(|record| state.is_none_or(|state| record.state == state)).collect())
}

/// Earlier plans of the caller that succeeded for similar words.
pub async fn used_before(
    service: &RunService,
    who: &Principal,
    query: &str,
) -> Result<Vec<PlanOffer>, Error> {
    let found = service.catalog(who).engine.similar_plans_for(Some(who), query).await?;
    Ok(found.iter().map(PlanOffer::from).collect())
}

/// Asks the model for a plan, checks it and stores it.
pub async fn create(
    service: &RunService,
    who: &Principal,
    request: CreatePlan,
) -> Result<NewPlan, Error> {
    let who = &who.as_author();
    let used_before = used_before(service, who, &request.query).await?;
    let request = request.planning_request(Some(who.clone()));
    match service.catalog(who).engine.create_plan(request).await {
        Ok(planned) => Ok(NewPlan { planned, used_before }),
        Err(error) => Err(Error::from(error).used_before(used_before)),
    }
}

/// Deletes a stored plan of the caller.
pub async fn delete(service: &RunService, who: &Principal, plan_id: &str) -> Result<(), Error> {
    let record = find(service, who, &plan_id.into()).await?;
    Ok(service.catalog(who).engine.delete_plan(&record.plan_id).await?)
}

/// Starts the run of a stored plan, which belongs to that run from then on.
pub async fn start(
    service: &Arc<RunService>,
    who: &Principal,
    plan_ref: &PlanRef,
    mut start: StartRun,
) -> Result<Arc<RunHandle>, Error> {
    let engine = service.catalog(who).engine;
    let run_id = start.run_id.clone().unwrap_or_else(|| engine.new_run_id());
    // Between taking the plan and the first entry of the run, the plan is shown as in progress.
    let _reservation = service.reserve_start(run_id.clone());
    let taken = engine.claim_plan(&plan_ref.plan_id, plan_ref.again, run_id).await?;
    start.run_id.clone_from(&taken.now.run_id);
    let started = service.start(who, start).await;
    if started.is_err() {
        engine.release_plan(taken).await;
    }
    started
}

/// A stored plan with its current state. A plan whose run starts here is in progress, even if the
/// journal does not say so yet.
pub fn with_state(service: &RunService, who: &Principal, mut record: StoredPlan) -> StoredPlan {
    let is_starting =
        |run_id: &Arc<str>| service.handle(who, run_id).is_some() || service.is_starting(run_id);
    if record.run_id.as_ref().is_some_and(is_starting) {
        record.state = PlanState::InProgress;
    }
    record
}

/// The last run of a plan; nothing when it was deleted, or is not the caller's.
pub async fn last_run(
    service: &RunService,
    who: &Principal,
    record: &StoredPlan,
) -> Option<RunView> {
    let stored = service.stored(who, record.run_id.as_deref()?).await.ok()?;
    Some(current_view(service, who, &stored))
}

/// Everything about a stored plan.
pub async fn details<'a>(
    service: &RunService,
    who: &Principal,
    record: &'a StoredPlan,
    used_before: Vec<PlanOffer>,
) -> Result<PlanDetails<'a>, Error> {
    let versions = versions(service, who, &record.request_id).await?;
    Ok(PlanDetails {
        record: record.view(true),
        versions: versions.into_iter().map(|version| version.plan_id).collect(),
        checked: checked(service, who, record),
        result: last_run(service, who, record).await,
        used_before,
    })
}

/// Order and effects of a stored plan; nothing when it does not fit the tools of today.
pub fn checked(service: &RunService, who: &Principal, record: &StoredPlan) -> Option<PlanView> {
    let planned = service.catalog(who).engine.plan_of(record);
    planned.ok().map(|(_, plan, _)| PlanView::from_plan(&plan))
}

/// A stored plan as the text of a composition of this name.
pub fn composition(
    service: &RunService,
    record: &StoredPlan,
    name: Option<&str>,
) -> Result<Arc<str>, Error> {
    let name = name.unwrap_or("plan");
    if !is_composition_name(name) {
        let message = format!("`{name}` cannot name a composition");
        let help = "small letters, digits, `-` and `_`, at most 64";
        return Err(Error::invalid(message).help(help));
    }
    record.composition(&format!("{name}.yaml"), &service.limits()).ok_or_else(|| {
        let message = "the plan cannot be written as a composition";
        Error::new(ErrorKind::Invalid, Code::Conversion, message)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;

    use segue_core::planner::{PlanOrigin as PlanSource, PlanningCost};
    use segue_core::run::{Options, StepSelection};
    use segue_core::source::Source;
    use segue_core::value::Value;
    use segue_runtime::engine::Engine;
    use segue_runtime::library::Library;
    use segue_runtime::store::{Collection, Precondition, StoredItem};

    use super::*;
    use crate::api::result::json_of;
    use crate::api::runs::handle::QuestionPolicy;
    use crate::api::threads::Threads;
    use crate::observe::{Observers, RequestOrigin};

    const PLAN: &str = r#"{ "tools": [{ "name": "echo", "parameters": {} }] }"#;

    /// S4-09, S4-48: a plan that is taken is being executed, before its run has written anything; and one
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
            origin: PlanSource::Model { model: "m".into(), cost: PlanningCost::default() },
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
        let service = RunService::new(
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
            let record = find(&service, &who, &record.plan_id).await.unwrap();
            with_state(&service, &who, record).state
        };
        assert_eq!(state().await, PlanState::Pending);

        let run_id = engine.new_run_id();
        let reserved = service.reserve_start(run_id.clone());
        let given = engine.claim_plan(&record.plan_id, false, run_id).await.unwrap();
        assert_eq!(state().await, PlanState::InProgress);
        drop(reserved);
        assert_eq!(state().await, PlanState::Failed, "no run starts it");
        engine.release_plan(given).await;

        let source =
            Source::new("c", "name: c\nsteps: [ { id: a, approve: { message: go on? } } ]\n");
        let to_start = StartRun {
            plan: engine.plan(&source).0.unwrap(),
            input: Value::empty_object(),
            context: Value::empty_object(),
            options: Options::default(),
            policy: QuestionPolicy::Defer,
            run_id: None,
            origin: RequestOrigin::default(),
            selection: StepSelection::default(),
        };
        let plan_ref = PlanRef { plan_id: record.plan_id.clone(), again: false };
        let mut started = pin!(start(&service, &who, &plan_ref, to_start));
        let is_pending = poll_fn(|cx| Poll::Ready(started.as_mut().poll(cx).is_pending())).await;
        assert!(is_pending && service.active_count(&who) == 1, "nothing is written yet");
        assert_eq!(state().await, PlanState::InProgress);
        idle.shutdown_background();
    }
}
