//! Plans made from natural language: a model makes them, the store keeps them, a run executes them
//! later.
//!
//! A plan is stored under its id and belongs to a request, which may have several. Planning and
//! executing share nothing but these records. A run claims a plan by replacing the record at the
//! version that it read, so two callers cannot both execute it.

use std::sync::Arc;
use std::time::Duration;

use segue_core::access::Principal;
use segue_core::diagnostic::{Code, Diagnostic, Severity};
use segue_core::plan::Plan;
use segue_core::planner::{
    Conversation, ConversationEffect, ConversationEvent, PlanOrigin, PlanQuery, PlanState,
    PlanningCost, PlanningFailure, Proposal, StoredPlan, copy_for_query, is_same_query,
    rank_similar,
};
use segue_core::source::Source;
use segue_core::view::RunView;
use serde::{Deserialize, Serialize};

use super::{Engine, EngineError, RunRequest};
use crate::driver::now_ms;
use crate::llm::Model;
use crate::store::{Collection, Precondition, StoreError, StoredItem};

/// How many plans one read of the listing returns.
const PAGE: usize = 500;

/// How many similar plans are offered.
const OFFERED_MAX: usize = 3;

/// A request for a plan.
pub struct PlanningRequest<'a> {
    /// What the plan should do, in the caller's own words.
    pub query: Arc<str>,
    /// The request that gets another version of its plan; `None` makes a new request.
    pub request_id: Option<Arc<str>>,
    /// Whether an earlier plan that succeeded may be reused.
    pub reuse: Reuse,
    /// The authenticated caller, who owns the plan. Only plans visible to them are reused.
    pub principal: Option<Principal>,
    /// Receives progress.
    pub on_event: &'a (dyn Fn(PlanningEvent<'_>) + Sync),
}

impl PlanningRequest<'_> {
    /// A new request for a plan.
    pub fn new(query: impl Into<Arc<str>>) -> PlanningRequest<'static> {
        PlanningRequest {
            query: query.into(),
            request_id: None,
            reuse: Reuse::Same,
            principal: None,
            on_event: &|_| {},
        }
    }
}

impl PlanningRequest<'_> {
    fn sees(&self, record: &StoredPlan) -> bool {
        is_visible(self.principal.as_ref(), record)
    }
}

/// Whether a plan is visible to a principal; a local user, who has no principal, sees all.
fn is_visible(who: Option<&Principal>, record: &StoredPlan) -> bool {
    who.is_none_or(|who| who.can_see(record.principal.as_deref()))
}

/// Which earlier plan that succeeded may be reused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// One made for exactly the same words.
    Same,
    /// The plan with this id.
    This(Arc<str>),
    /// None: ask a model.
    Nothing,
}

/// Progress of planning.
#[derive(Clone, Copy, Debug)]
pub enum PlanningEvent<'a> {
    /// The model is asked.
    Asking {
        /// The model's name.
        model: &'a str,
        /// Which round of the conversation, from 1.
        round: u32,
    },
    /// The model did not answer and is asked again after a pause.
    Retrying {
        /// The pause.
        ms: u64,
        /// Why.
        why: &'a str,
    },
}

/// A plan that was made or reused.
#[derive(Debug)]
pub struct Planned {
    /// Its record in the store.
    pub record: StoredPlan,
    /// The plan, ready to run.
    pub plan: Arc<Plan>,
    /// Its text.
    pub source: Source,
    /// Findings of the compiler that do not prevent the run.
    pub findings: Vec<Diagnostic>,
}

/// A plan that a run has claimed.
#[derive(Debug)]
pub struct ClaimedPlan {
    /// The record before the claim.
    pub before: StoredPlan,
    /// The record now.
    pub now: StoredPlan,
    /// The version of the record now.
    version: u64,
}

/// Why there is no plan, or why it cannot be executed.
#[derive(Debug, thiserror::Error)]
pub enum PlanningError {
    /// The configuration names no model.
    #[error("no model is configured to plan with")]
    NoModel,
    /// The model made no plan.
    #[error("{}", _0.message)]
    Unplanned(Box<PlanningFailure>),
    /// The request has no plan, or there is no such request.
    #[error("Plan not found for requestId: {0}")]
    NoPlanFor(Arc<str>),
    /// There is no such plan.
    #[error("there is no plan `{0}`")]
    NotFound(Arc<str>),
    /// A run has executed it, or is executing it.
    #[error("plan `{plan_id}` is {} by run {run_id}", match state {
        PlanState::InProgress => "being executed",
        PlanState::Pending | PlanState::Completed | PlanState::Failed => "executed already",
    })]
    Executed {
        /// The plan.
        plan_id: Arc<str>,
        /// The plan's state.
        state: PlanState,
        /// The run that executes it, or did.
        run_id: Arc<str>,
    },
    /// It does not compile against the current tools.
    #[error("plan `{plan_id}` does not compile against the current tools")]
    InvalidPlan {
        /// The plan.
        plan_id: Arc<str>,
        /// Its text.
        text: Source,
        /// The errors.
        findings: Vec<Diagnostic>,
    },
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl From<StoreError> for PlanningError {
    fn from(error: StoreError) -> PlanningError {
        PlanningError::Engine(error.into())
    }
}

impl PlanningError {
    /// The permanent error code.
    pub fn code(&self) -> Code {
        match self {
            PlanningError::NoModel => Code::Llm,
            PlanningError::Unplanned(unplanned) => unplanned.code,
            PlanningError::NoPlanFor(_) | PlanningError::NotFound(_) => Code::NotFound,
            PlanningError::Executed { .. } => Code::Conflict,
            PlanningError::InvalidPlan { findings, .. } => {
                findings.first().map_or(Code::Internal, |finding| finding.code)
            }
            PlanningError::Engine(_) => Code::Internal,
        }
    }

    /// What the user can do about it.
    pub fn help(&self) -> Option<String> {
        match self {
            PlanningError::NoModel => Some(
                "name one in `segue.yaml`, such as `llm: { provider: openai, model: gpt-5, \
                 api_key: \"${OPENAI_API_KEY}\" }`; `base_url` names a local one"
                    .to_owned(),
            ),
            PlanningError::Unplanned(unplanned) => unplanned.help.clone(),
            PlanningError::NoPlanFor(_) | PlanningError::NotFound(_) => {
                Some("`segue plans` lists them".to_owned())
            }
            PlanningError::Executed { state: PlanState::InProgress, run_id, .. } => {
                Some(format!("`segue runs show {run_id}` shows its progress"))
            }
            PlanningError::Executed { .. } => Some("`--again` executes it again".to_owned()),
            PlanningError::InvalidPlan { .. } => {
                Some("ask for another with `segue plan --ask`".to_owned())
            }
            PlanningError::Engine(_) => None,
        }
    }
}

/// Whether an id names a request rather than a plan.
pub fn is_request_id(id: &str) -> bool {
    id.starts_with("req_")
}

/// The stored record of a request.
#[derive(Serialize, Deserialize)]
struct RequestRecord {
    query: Arc<str>,
    /// Its plans, in the order in which they were made.
    plans: Vec<Arc<str>>,
}

impl Engine {
    /// Makes a plan from natural language, and stores it.
    pub async fn create_plan(
        &self,
        request: PlanningRequest<'_>,
    ) -> Result<Planned, PlanningError> {
        let ids = &self.inner.ids;
        let known = match &request.request_id {
            Some(id) => {
                let none = || PlanningError::NoPlanFor(id.clone());
                let item = self.read_item(Collection::Requests, id).await?.ok_or_else(none)?;
                if !request.sees(&self.plan_of_request(id).await?) {
                    return Err(none());
                }
                Some(item)
            }
            None => None,
        };
        let request_id = request.request_id.clone();
        let query = PlanQuery {
            query: request.query.clone(),
            request_id: request_id.unwrap_or_else(|| ids.stamped_id("req")),
            plan_id: ids.stamped_id("plan"),
        };
        let earlier = match &request.reuse {
            Reuse::Nothing => None,
            Reuse::This(plan_id) => {
                let found = Some(self.plan_record(plan_id).await?);
                let seen = found.filter(|record| request.sees(record));
                Some(seen.ok_or_else(|| PlanningError::NotFound(plan_id.clone()))?)
            }
            Reuse::Same => {
                let offered =
                    self.similar_plans_for(request.principal.as_ref(), &query.query).await?;
                let mut offered = offered.into_iter();
                offered.find(|record| is_same_query(&record.query, &query.query))
            }
        };
        let (document, origin, warnings) = match earlier {
            Some(earlier) => {
                let document = copy_for_query(&earlier.document, &query);
                (document, PlanOrigin::UsedBefore { plan_id: earlier.plan_id }, Vec::new())
            }
            None => {
                let model = self.inner.model.as_ref().ok_or(PlanningError::NoModel)?;
                let Proposal { document, cost, findings } =
                    self.run_planner(&**model, query.clone(), request.on_event).await?;
                let warnings = findings.iter().filter(|f| f.severity == Severity::Warning);
                let warnings = warnings.map(|finding| finding.message.as_str().into()).collect();
                (document, model_origin(&**model, cost), warnings)
            }
        };
        let record = StoredPlan {
            request_id: query.request_id,
            plan_id: query.plan_id,
            version: 1,
            query: query.query,
            state: PlanState::Pending,
            created_ms: now_ms(),
            origin,
            run_id: None,
            document,
            warnings,
            principal: request.principal.map(|who| who.name),
        };
        let (source, plan, findings) = self.plan_of(&record)?;
        let record = self.save_new_plan(record, known).await?;
        Ok(Planned { record, plan, source, findings })
    }

    /// Talks to a model until it has made a plan or given up.
    async fn run_planner(
        &self,
        model: &dyn Model,
        query: PlanQuery,
        told: &(dyn Fn(PlanningEvent<'_>) + Sync),
    ) -> Result<Proposal, PlanningError> {
        let limits = self.inner.limits.clone();
        let (mut conversation, mut effect) =
            Conversation::start(query, &self.inner.catalog, limits);
        let mut round = 0;
        let mut why: Arc<str> = "".into();
        loop {
            let event = match effect {
                ConversationEffect::Finish(outcome) => {
                    return outcome.map_err(|error| PlanningError::Unplanned(Box::new(error)));
                }
                ConversationEffect::Backoff { ms } => {
                    told(PlanningEvent::Retrying { ms, why: &why });
                    tokio::time::sleep(Duration::from_millis(ms)).await;
                    ConversationEvent::BackoffElapsed
                }
                ConversationEffect::Ask(prompt) => {
                    round += 1;
                    told(PlanningEvent::Asking { model: model.name(), round });
                    match model.answer(&prompt).await {
                        Ok(reply) => ConversationEvent::Answered(reply),
                        Err(failure) => {
                            why = failure.message.clone();
                            ConversationEvent::Failed {
                                failure,
                                entropy: self.inner.ids.random_u64(),
                            }
                        }
                    }
                }
            };
            effect = conversation.handle(event);
        }
    }

    /// Plans that succeeded and were made for similar words, the nearest first.
    pub async fn similar_plans(&self, query: &str) -> Result<Vec<StoredPlan>, PlanningError> {
        self.similar_plans_for(None, query).await
    }

    /// The same, among the plans visible to this principal.
    pub async fn similar_plans_for(
        &self,
        who: Option<&Principal>,
        query: &str,
    ) -> Result<Vec<StoredPlan>, PlanningError> {
        let mut records = self.plans(usize::MAX).await?;
        records.retain(|record| record.state == PlanState::Completed && is_visible(who, record));
        let queries: Vec<&str> = records.iter().map(|record| &*record.query).collect();
        let mut offered: Vec<StoredPlan> = Vec::new();
        for position in rank_similar(query, &queries) {
            let record = &records[position];
            let is_known = offered.iter().any(|other| is_same_query(&other.query, &record.query));
            // A plan that no longer compiles against the tools is not offered.
            if !is_known && self.plan_of(record).is_ok() {
                offered.push(record.clone());
            }
            if offered.len() == OFFERED_MAX {
                break;
            }
        }
        Ok(offered)
    }

    /// The stored plans, newest first, at most `limit`.
    pub async fn plans(&self, limit: usize) -> Result<Vec<StoredPlan>, PlanningError> {
        let key_value = self.inner.store.key_value();
        let (mut records, mut after) = (Vec::new(), None);
        loop {
            let page = key_value.list(Collection::Plans, after, PAGE).await?;
            for item in &page.items {
                records.extend(self.current_record(item).await?.map(|(record, _)| record));
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        records.reverse();
        records.truncate(limit);
        Ok(records)
    }

    /// A stored plan.
    pub async fn plan_record(&self, plan_id: &Arc<str>) -> Result<StoredPlan, PlanningError> {
        let item = self.read_item(Collection::Plans, plan_id).await?;
        let record = match item {
            Some(item) => self.current_record(&item).await?,
            None => None,
        };
        let found = record.map(|(record, _)| record);
        found.ok_or_else(|| PlanningError::NotFound(plan_id.clone()))
    }

    /// The plan with this id, or the last plan of the request with this id.
    pub async fn find_plan(&self, id: &str) -> Result<StoredPlan, PlanningError> {
        let id: Arc<str> = id.into();
        if is_request_id(&id) {
            return self.plan_of_request(&id).await;
        }
        self.plan_record(&id).await
    }

    /// The plans of a request, oldest first.
    pub async fn plans_of_request(
        &self,
        request_id: &Arc<str>,
    ) -> Result<Vec<StoredPlan>, PlanningError> {
        let none = || PlanningError::NoPlanFor(request_id.clone());
        let item = self.read_item(Collection::Requests, request_id).await?.ok_or_else(none)?;
        let mut records = Vec::new();
        for plan_id in read_request(&item).ok_or_else(none)?.plans {
            match self.plan_record(&plan_id).await {
                Ok(record) => records.push(record),
                // The plan was deleted.
                Err(PlanningError::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        if records.is_empty() { Err(none()) } else { Ok(records) }
    }

    /// The last plan of a request, which is the request's current plan.
    pub async fn plan_of_request(
        &self,
        request_id: &Arc<str>,
    ) -> Result<StoredPlan, PlanningError> {
        let last = self.plans_of_request(request_id).await?.pop();
        last.ok_or_else(|| PlanningError::NoPlanFor(request_id.clone()))
    }

    /// Compiles a stored plan against the current tools.
    pub fn plan_of(
        &self,
        record: &StoredPlan,
    ) -> Result<(Source, Arc<Plan>, Vec<Diagnostic>), PlanningError> {
        let source = source_of(record);
        match self.plan(&source) {
            (Some(plan), findings) => Ok((source, plan, findings)),
            (None, findings) => {
                let plan_id = record.plan_id.clone();
                Err(PlanningError::InvalidPlan { plan_id, text: source, findings })
            }
        }
    }

    /// Deletes a plan that was not executed.
    pub async fn delete_plan(&self, plan_id: &Arc<str>) -> Result<(), PlanningError> {
        self.inner.store.key_value().delete(Collection::Plans, plan_id).await?;
        Ok(())
    }

    /// Executes a stored plan. The request holds the plan of [`Engine::plan_of`]. A plan that was
    /// executed before needs `again`.
    pub async fn execute_plan(
        &self,
        plan_id: &Arc<str>,
        again: bool,
        mut request: RunRequest<'_>,
    ) -> Result<RunView, PlanningError> {
        let run_id = request.run_id.get_or_insert_with(|| self.new_run_id()).clone();
        let taken = self.claim_plan(plan_id, again, run_id).await?;
        let view = self.run(request).await?;
        if view.started_at.is_none() {
            // The run was refused before it began.
            self.release_plan(taken).await;
            return Ok(view);
        }
        let ended = StoredPlan { state: PlanState::of_run(view.status), ..taken.now };
        // On a conflict a newer record stands; the journal holds what the run did.
        let _ = self.save_record(&ended, Precondition::Version(taken.version)).await;
        Ok(view)
    }

    /// Leaves the run of a stored plan to other processes, as [`Engine::enqueue`] does.
    pub async fn enqueue_plan(
        &self,
        plan_id: &Arc<str>,
        again: bool,
        mut request: RunRequest<'_>,
    ) -> Result<RunView, PlanningError> {
        let run_id = request.run_id.get_or_insert_with(|| self.new_run_id()).clone();
        let taken = self.claim_plan(plan_id, again, run_id).await?;
        let enqueued = self.enqueue(request).await;
        if !enqueued.as_ref().is_ok_and(|view| view.started_at.is_some()) {
            self.release_plan(taken).await;
        }
        Ok(enqueued?)
    }

    /// Releases the claim on a plan whose run did not begin.
    pub async fn release_plan(&self, taken: ClaimedPlan) {
        // On a conflict a newer record stands.
        let _ = self.save_record(&taken.before, Precondition::Version(taken.version)).await;
    }

    /// Whether there is a model to plan with.
    pub fn has_model(&self) -> bool {
        self.inner.model.is_some()
    }

    /// Claims a plan for the run of this id, which is about to begin. From then on the plan's state
    /// follows the run's, whichever process drives it. For callers that have runs driven elsewhere.
    pub async fn claim_plan(
        &self,
        plan_id: &Arc<str>,
        again: bool,
        run_id: Arc<str>,
    ) -> Result<ClaimedPlan, PlanningError> {
        let gone = || PlanningError::NotFound(plan_id.clone());
        let item = self.read_item(Collection::Plans, plan_id).await?.ok_or_else(gone)?;
        let (before, version) = self.current_record(&item).await?.ok_or_else(gone)?;
        let is_free = match before.state {
            PlanState::Pending => true,
            PlanState::InProgress => false,
            PlanState::Completed | PlanState::Failed => again,
        };
        let executed = |state, by: Option<&Arc<str>>| {
            let run_id = by.cloned().unwrap_or_else(|| "of another caller".into());
            PlanningError::Executed { plan_id: plan_id.clone(), state, run_id }
        };
        if !is_free {
            return Err(executed(before.state, before.run_id.as_ref()));
        }
        let state = PlanState::InProgress;
        let now = StoredPlan { state, run_id: Some(run_id), ..before.clone() };
        match self.save_record(&now, Precondition::Version(version)).await {
            Ok(version) => Ok(ClaimedPlan { before, now, version }),
            Err(StoreError::Changed { .. }) => Err(executed(state, None)),
            Err(error) => Err(error.into()),
        }
    }

    /// The run that executes or executed a plan.
    pub async fn plan_result(&self, plan_id: &Arc<str>) -> Result<Option<RunView>, PlanningError> {
        match self.plan_record(plan_id).await?.run_id {
            Some(run_id) => Ok(Some(self.load_run(&run_id).await?.view())),
            None => Ok(None),
        }
    }

    async fn read_item(
        &self,
        collection: Collection,
        key: &Arc<str>,
    ) -> Result<Option<StoredItem>, PlanningError> {
        Ok(self.inner.store.key_value().get(collection, key).await?)
    }

    async fn save_record(
        &self,
        record: &StoredPlan,
        expect: Precondition,
    ) -> Result<u64, StoreError> {
        let item = item(&record.plan_id, record);
        self.inner.store.key_value().put(Collection::Plans, &item, expect).await
    }

    /// Stores a new plan, and adds it to its request.
    async fn save_new_plan(
        &self,
        mut record: StoredPlan,
        known: Option<StoredItem>,
    ) -> Result<StoredPlan, PlanningError> {
        let mut known = known;
        loop {
            let earlier = known.as_ref().and_then(read_request);
            let mut request = earlier.unwrap_or_else(|| RequestRecord {
                query: record.query.clone(),
                plans: Vec::new(),
            });
            request.plans.push(record.plan_id.clone());
            record.version = u32::try_from(request.plans.len()).unwrap_or(u32::MAX);
            let expect = known
                .as_ref()
                .map_or(Precondition::Absent, |item| Precondition::Version(item.version));
            // Stored first, so that a request never names a plan that does not exist.
            self.save_record(&record, Precondition::Anything).await?;
            let place = item(&record.request_id, &request);
            match self.inner.store.key_value().put(Collection::Requests, &place, expect).await {
                Ok(_) => return Ok(record),
                Err(StoreError::Changed { .. }) => {
                    known = self.read_item(Collection::Requests, &record.request_id).await?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// A record with the state that its run gives it, and its version; `None` when it cannot be
    /// read. A resume or a rollback changes only the run, so a changed state is stored here.
    async fn current_record(
        &self,
        item: &StoredItem,
    ) -> Result<Option<(StoredPlan, u64)>, PlanningError> {
        let Ok(mut record) = serde_json::from_str::<StoredPlan>(&item.text) else {
            return Ok(None);
        };
        let mut version = item.version;
        let Some(run_id) = &record.run_id else { return Ok(Some((record, version))) };
        match self.inner.store.run(run_id).await? {
            // The run is about to begin, never began, or was pruned. The plan must not run twice by
            // itself.
            None if record.state == PlanState::InProgress => record.state = PlanState::Failed,
            None => {}
            Some(row) if PlanState::of_run(row.status) == record.state => {}
            Some(row) => {
                record.state = PlanState::of_run(row.status);
                // On a conflict another caller has stored the same state, or a newer one.
                version = self
                    .save_record(&record, Precondition::Version(version))
                    .await
                    .unwrap_or(version);
            }
        }
        Ok(Some((record, version)))
    }
}

fn model_origin(model: &dyn Model, cost: PlanningCost) -> PlanOrigin {
    PlanOrigin::Model { model: model.name().clone(), cost }
}

/// The text of a plan, indented for people.
pub fn source_of(record: &StoredPlan) -> Source {
    let json = serde_json::to_string_pretty(&record.document).unwrap_or_default();
    Source::new(format!("{}.json", record.plan_id), json)
}

fn item(key: &Arc<str>, text: &impl Serialize) -> StoredItem {
    let text = serde_json::to_string(text).unwrap_or_default();
    StoredItem { key: key.clone(), text: text.into(), version: 0, at_ms: now_ms() }
}

fn read_request(item: &StoredItem) -> Option<RequestRecord> {
    serde_json::from_str(&item.text).ok()
}
