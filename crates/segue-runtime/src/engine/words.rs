//! Plans that are asked for in words: made through a model, kept, looked at, executed later.
//!
//! A plan is kept under its id, and belongs to a request, which may have several. Asking and executing
//! know nothing of each other but what is kept. A plan is taken for execution by replacing what was
//! kept at the version that was looked at, so two callers cannot both begin it.

use std::sync::Arc;
use std::time::Duration;

use segue_core::access::Principal;
use segue_core::compile::source::Source;
use segue_core::diagnostic::{Code, Diagnostic, Severity};
use segue_core::plan::Plan;
use segue_core::view::RunView;
use segue_core::words::{
    Asked, Conversation, Cost, Effect, Event, Origin, PlanRecord, PlanState, Proposal, Unplanned,
    is_same, readdressed, similar,
};
use serde::{Deserialize, Serialize};

use super::{Engine, EngineError, RunRequest};
use crate::driver::now_ms;
use crate::llm::Model;
use crate::store::{Expect, Item, Shelf, StoreError};

/// Plans that are read at once when all of them are looked through.
const PAGE: usize = 500;

/// How many similar plans are offered.
const OFFERED_MAX: usize = 3;

/// What somebody wants a plan for.
pub struct AskRequest<'a> {
    /// In their own words.
    pub query: Arc<str>,
    /// The request that the plan is another version of; a new one otherwise.
    pub request_id: Option<Arc<str>>,
    /// Whether a plan that worked before will do.
    pub reuse: Reuse,
    /// Who asks, where somebody came in: the plan is theirs, and only plans that they see will do.
    pub who: Option<Principal>,
    /// Is told what is done meanwhile.
    pub told: &'a (dyn Fn(Meanwhile<'_>) + Sync),
}

impl AskRequest<'_> {
    /// A plan for this, as a request of its own.
    pub fn new(query: impl Into<Arc<str>>) -> AskRequest<'static> {
        AskRequest {
            query: query.into(),
            request_id: None,
            reuse: Reuse::Same,
            who: None,
            told: &|_| {},
        }
    }
}

impl AskRequest<'_> {
    fn sees(&self, record: &PlanRecord) -> bool {
        is_seen(self.who.as_ref(), record)
    }
}

/// Whether a plan is there for somebody; for whoever sits at this machine each is.
fn is_seen(who: Option<&Principal>, record: &PlanRecord) -> bool {
    who.is_none_or(|who| who.sees(record.principal.as_deref()))
}

/// Which plan that worked before will do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// One that was made for the very same words.
    Same,
    /// This one.
    This(Arc<str>),
    /// None: a model is asked.
    Nothing,
}

/// What is done while a plan is made.
#[derive(Clone, Copy, Debug)]
pub enum Meanwhile<'a> {
    /// A model is asked.
    Asking {
        /// Which one.
        model: &'a str,
        /// The how-manieth time, from 1.
        round: u32,
    },
    /// It is asked again after a while, because it did not answer.
    Resting {
        /// How long.
        ms: u64,
        /// Why.
        why: &'a str,
    },
}

/// A plan that was made.
#[derive(Debug)]
pub struct Planned {
    /// What is kept of it.
    pub record: PlanRecord,
    /// The plan, ready to run.
    pub plan: Arc<Plan>,
    /// Its text.
    pub source: Source,
    /// What is worth knowing of it.
    pub findings: Vec<Diagnostic>,
}

/// A plan that belongs to a run from now on.
#[derive(Debug)]
pub struct Taken {
    /// How it stood.
    pub before: PlanRecord,
    /// How it stands.
    pub now: PlanRecord,
    /// The version of what is kept of it.
    version: u64,
}

/// Why there is no plan, or why it is not executed.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// Nobody could be asked.
    #[error("no model is configured to plan with")]
    NoModel,
    /// The model gave none.
    #[error("{}", _0.message)]
    Unplanned(Box<Unplanned>),
    /// The request has no plan, or there is no such request.
    #[error("Plan not found for requestId: {0}")]
    NoPlanFor(Arc<str>),
    /// There is no such plan.
    #[error("there is no plan `{0}`")]
    NotFound(Arc<str>),
    /// It was executed already, or is being executed.
    #[error("plan `{plan_id}` is {} by run {run_id}", match state {
        PlanState::InProgress => "being executed",
        PlanState::Pending | PlanState::Completed | PlanState::Failed => "executed already",
    })]
    Executed {
        /// The plan.
        plan_id: Arc<str>,
        /// How it stands.
        state: PlanState,
        /// The run that executes it, or did.
        run_id: Arc<str>,
    },
    /// It does not fit the tools as they are now.
    #[error("plan `{plan_id}` does not fit the tools as they are now")]
    Unsound {
        /// The plan.
        plan_id: Arc<str>,
        /// Its text.
        text: Source,
        /// What is wrong.
        findings: Vec<Diagnostic>,
    },
    /// The engine could not do its part.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl From<StoreError> for PlanError {
    fn from(error: StoreError) -> PlanError {
        PlanError::Engine(error.into())
    }
}

impl PlanError {
    /// Its permanent name.
    pub fn code(&self) -> Code {
        match self {
            PlanError::NoModel => Code::Llm,
            PlanError::Unplanned(unplanned) => unplanned.code,
            PlanError::NoPlanFor(_) | PlanError::NotFound(_) => Code::NotFound,
            PlanError::Executed { .. } => Code::Conflict,
            PlanError::Unsound { findings, .. } => {
                findings.first().map_or(Code::Internal, |finding| finding.code)
            }
            PlanError::Engine(_) => Code::Internal,
        }
    }

    /// What to do about it.
    pub fn help(&self) -> Option<String> {
        match self {
            PlanError::NoModel => Some(
                "say which in `segue.yaml`, such as `llm: { provider: openai, model: gpt-5, \
                 api_key: \"${OPENAI_API_KEY}\" }`; `base_url` names a local one"
                    .to_owned(),
            ),
            PlanError::Unplanned(unplanned) => unplanned.help.clone(),
            PlanError::NoPlanFor(_) | PlanError::NotFound(_) => {
                Some("`segue plans` lists them".to_owned())
            }
            PlanError::Executed { state: PlanState::InProgress, run_id, .. } => {
                Some(format!("`segue runs show {run_id}` says how it goes"))
            }
            PlanError::Executed { .. } => Some("`--again` executes it once more".to_owned()),
            PlanError::Unsound { .. } => Some("ask for another with `segue plan --ask`".to_owned()),
            PlanError::Engine(_) => None,
        }
    }
}

/// Whether an id is that of a request, where that of a plan could stand.
pub fn is_request_id(id: &str) -> bool {
    id.starts_with("req_")
}

/// What is kept of a request.
#[derive(Serialize, Deserialize)]
struct RequestRecord {
    query: Arc<str>,
    /// Its plans, in the order in which they were made.
    plans: Vec<Arc<str>>,
}

impl Engine {
    /// Makes a plan of words, and keeps it.
    pub async fn ask(&self, request: AskRequest<'_>) -> Result<Planned, PlanError> {
        let chance = &self.inner.chance;
        let known = match &request.request_id {
            Some(id) => {
                let none = || PlanError::NoPlanFor(id.clone());
                let item = self.shelf(Shelf::Requests, id).await?.ok_or_else(none)?;
                if !request.sees(&self.plan_of_request(id).await?) {
                    return Err(none());
                }
                Some(item)
            }
            None => None,
        };
        let request_id = request.request_id.clone();
        let asked = Asked {
            query: request.query.clone(),
            request_id: request_id.unwrap_or_else(|| chance.stamped_id("req")),
            plan_id: chance.stamped_id("plan"),
        };
        let earlier = match &request.reuse {
            Reuse::Nothing => None,
            Reuse::This(plan_id) => {
                let found = Some(self.plan_record(plan_id).await?);
                let seen = found.filter(|record| request.sees(record));
                Some(seen.ok_or_else(|| PlanError::NotFound(plan_id.clone()))?)
            }
            Reuse::Same => {
                let offered = self.used_by(request.who.as_ref(), &asked.query).await?;
                let mut offered = offered.into_iter();
                offered.find(|record| is_same(&record.query, &asked.query))
            }
        };
        let (document, origin, warnings) = match earlier {
            Some(earlier) => {
                let document = readdressed(&earlier.document, &asked);
                (document, Origin::UsedBefore { plan_id: earlier.plan_id }, Vec::new())
            }
            None => {
                let model = self.inner.model.as_ref().ok_or(PlanError::NoModel)?;
                let Proposal { document, cost, findings } =
                    self.converse(&**model, asked.clone(), request.told).await?;
                let warnings = findings.iter().filter(|f| f.severity == Severity::Warning);
                let warnings = warnings.map(|finding| finding.message.as_str().into()).collect();
                (document, made_by(&**model, cost), warnings)
            }
        };
        let record = PlanRecord {
            request_id: asked.request_id,
            plan_id: asked.plan_id,
            version: 1,
            query: asked.query,
            state: PlanState::Pending,
            created_ms: now_ms(),
            origin,
            run_id: None,
            document,
            warnings,
            principal: request.who.map(|who| who.name),
        };
        let (source, plan, findings) = self.plan_of(&record)?;
        let record = self.keep_new(record, known).await?;
        Ok(Planned { record, plan, source, findings })
    }

    /// Talks to a model until there is a plan or no hope of one.
    async fn converse(
        &self,
        model: &dyn Model,
        asked: Asked,
        told: &(dyn Fn(Meanwhile<'_>) + Sync),
    ) -> Result<Proposal, PlanError> {
        let limits = self.inner.limits.clone();
        let (mut conversation, mut effect) =
            Conversation::begin(asked, &self.inner.catalog, limits);
        let mut round = 0;
        let mut why: Arc<str> = "".into();
        loop {
            let event = match effect {
                Effect::Finish(outcome) => {
                    return outcome.map_err(|error| PlanError::Unplanned(Box::new(error)));
                }
                Effect::Rest { ms } => {
                    told(Meanwhile::Resting { ms, why: &why });
                    tokio::time::sleep(Duration::from_millis(ms)).await;
                    Event::Rested
                }
                Effect::Ask(prompt) => {
                    round += 1;
                    told(Meanwhile::Asking { model: model.name(), round });
                    match model.answer(&prompt).await {
                        Ok(reply) => Event::Answered(reply),
                        Err(failure) => {
                            why = failure.message.clone();
                            Event::Failed { failure, entropy: self.inner.chance.draw() }
                        }
                    }
                }
            };
            effect = conversation.handle(event);
        }
    }

    /// Plans that did their work and were made for words like these, the nearest first.
    pub async fn used_before(&self, query: &str) -> Result<Vec<PlanRecord>, PlanError> {
        self.used_by(None, query).await
    }

    /// The same of those that somebody sees.
    pub async fn used_by(
        &self,
        who: Option<&Principal>,
        query: &str,
    ) -> Result<Vec<PlanRecord>, PlanError> {
        let mut records = self.plans(usize::MAX).await?;
        records.retain(|record| record.state == PlanState::Completed && is_seen(who, record));
        let queries: Vec<&str> = records.iter().map(|record| &*record.query).collect();
        let mut offered: Vec<PlanRecord> = Vec::new();
        for position in similar(query, &queries) {
            let record = &records[position];
            let is_known = offered.iter().any(|other| is_same(&other.query, &record.query));
            // What does not fit the tools any more is no offer.
            if !is_known && self.plan_of(record).is_ok() {
                offered.push(record.clone());
            }
            if offered.len() == OFFERED_MAX {
                break;
            }
        }
        Ok(offered)
    }

    /// The plans that are kept, newest first, so many at most.
    pub async fn plans(&self, limit: usize) -> Result<Vec<PlanRecord>, PlanError> {
        let shelves = self.inner.store.shelves();
        let (mut records, mut after) = (Vec::new(), None);
        loop {
            let page = shelves.page(Shelf::Plans, after, PAGE).await?;
            for item in &page.items {
                records.extend(self.as_it_stands(item).await?.map(|(record, _)| record));
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

    /// A plan that is kept.
    pub async fn plan_record(&self, plan_id: &Arc<str>) -> Result<PlanRecord, PlanError> {
        let item = self.shelf(Shelf::Plans, plan_id).await?;
        let record = match item {
            Some(item) => self.as_it_stands(&item).await?,
            None => None,
        };
        let found = record.map(|(record, _)| record);
        found.ok_or_else(|| PlanError::NotFound(plan_id.clone()))
    }

    /// The plan that an id of either kind means: this one, or the last one of a request.
    pub async fn find_plan(&self, id: &str) -> Result<PlanRecord, PlanError> {
        let id: Arc<str> = id.into();
        if is_request_id(&id) {
            return self.plan_of_request(&id).await;
        }
        self.plan_record(&id).await
    }

    /// The plans of a request, the first one first.
    pub async fn plans_of_request(
        &self,
        request_id: &Arc<str>,
    ) -> Result<Vec<PlanRecord>, PlanError> {
        let none = || PlanError::NoPlanFor(request_id.clone());
        let item = self.shelf(Shelf::Requests, request_id).await?.ok_or_else(none)?;
        let mut records = Vec::new();
        for plan_id in read_request(&item).ok_or_else(none)?.plans {
            match self.plan_record(&plan_id).await {
                Ok(record) => records.push(record),
                // It was thrown away.
                Err(PlanError::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        if records.is_empty() { Err(none()) } else { Ok(records) }
    }

    /// The last plan of a request: the one that is meant when somebody speaks of its plan.
    pub async fn plan_of_request(&self, request_id: &Arc<str>) -> Result<PlanRecord, PlanError> {
        let last = self.plans_of_request(request_id).await?.pop();
        last.ok_or_else(|| PlanError::NoPlanFor(request_id.clone()))
    }

    /// The plan of a record, against the tools as they are now.
    pub fn plan_of(
        &self,
        record: &PlanRecord,
    ) -> Result<(Source, Arc<Plan>, Vec<Diagnostic>), PlanError> {
        let source = source_of(record);
        match self.plan(&source) {
            (Some(plan), findings) => Ok((source, plan, findings)),
            (None, findings) => {
                let plan_id = record.plan_id.clone();
                Err(PlanError::Unsound { plan_id, text: source, findings })
            }
        }
    }

    /// Throws a plan away that nobody executed.
    pub async fn forget_plan(&self, plan_id: &Arc<str>) -> Result<(), PlanError> {
        self.inner.store.shelves().discard(Shelf::Plans, plan_id).await?;
        Ok(())
    }

    /// Executes a plan that is kept. The request's plan is that of [`Engine::plan_of`]. One that was
    /// executed already is only executed `again` when that is said.
    pub async fn execute_plan(
        &self,
        plan_id: &Arc<str>,
        again: bool,
        mut request: RunRequest<'_>,
    ) -> Result<RunView, PlanError> {
        let run_id = request.run_id.get_or_insert_with(|| self.new_run_id()).clone();
        let taken = self.take_plan(plan_id, again, run_id).await?;
        let view = self.run(request).await?;
        if view.started_at.is_none() {
            // It was refused before anything began.
            self.give_plan_back(taken).await;
            return Ok(view);
        }
        let ended = PlanRecord { state: PlanState::of_run(view.status), ..taken.now };
        // Whoever changed it meanwhile knows more; and what the run did is in its journal.
        let _ = self.keep(&ended, Expect::Version(taken.version)).await;
        Ok(view)
    }

    /// Gives a plan back whose run did not begin.
    pub async fn give_plan_back(&self, taken: Taken) {
        // Whoever changed it meanwhile knows more.
        let _ = self.keep(&taken.before, Expect::Version(taken.version)).await;
    }

    /// Whether there is a model to plan with.
    pub fn has_model(&self) -> bool {
        self.inner.model.is_some()
    }

    /// Takes a plan for the run of this id, which is about to begin: from then on the plan stands as the
    /// run does, whoever moves it. For those who have runs moved elsewhere.
    pub async fn take_plan(
        &self,
        plan_id: &Arc<str>,
        again: bool,
        run_id: Arc<str>,
    ) -> Result<Taken, PlanError> {
        let gone = || PlanError::NotFound(plan_id.clone());
        let item = self.shelf(Shelf::Plans, plan_id).await?.ok_or_else(gone)?;
        let (before, version) = self.as_it_stands(&item).await?.ok_or_else(gone)?;
        let is_free = match before.state {
            PlanState::Pending => true,
            PlanState::InProgress => false,
            PlanState::Completed | PlanState::Failed => again,
        };
        let executed = |state, by: Option<&Arc<str>>| {
            let run_id = by.cloned().unwrap_or_else(|| "of somebody else".into());
            PlanError::Executed { plan_id: plan_id.clone(), state, run_id }
        };
        if !is_free {
            return Err(executed(before.state, before.run_id.as_ref()));
        }
        let state = PlanState::InProgress;
        let now = PlanRecord { state, run_id: Some(run_id), ..before.clone() };
        match self.keep(&now, Expect::Version(version)).await {
            Ok(version) => Ok(Taken { before, now, version }),
            Err(StoreError::Changed { .. }) => Err(executed(state, None)),
            Err(error) => Err(error.into()),
        }
    }

    /// The run that executed a plan, or does.
    pub async fn result_of_plan(&self, plan_id: &Arc<str>) -> Result<Option<RunView>, PlanError> {
        match self.plan_record(plan_id).await?.run_id {
            Some(run_id) => Ok(Some(self.stored(&run_id).await?.view())),
            None => Ok(None),
        }
    }

    async fn shelf(&self, shelf: Shelf, key: &Arc<str>) -> Result<Option<Item>, PlanError> {
        Ok(self.inner.store.shelves().kept(shelf, key).await?)
    }

    async fn keep(&self, record: &PlanRecord, expect: Expect) -> Result<u64, StoreError> {
        let item = item(&record.plan_id, record);
        self.inner.store.shelves().keep(Shelf::Plans, &item, expect).await
    }

    /// Keeps a new plan, and its place in its request.
    async fn keep_new(
        &self,
        mut record: PlanRecord,
        known: Option<Item>,
    ) -> Result<PlanRecord, PlanError> {
        let mut known = known;
        loop {
            let earlier = known.as_ref().and_then(read_request);
            let mut request = earlier.unwrap_or_else(|| RequestRecord {
                query: record.query.clone(),
                plans: Vec::new(),
            });
            request.plans.push(record.plan_id.clone());
            record.version = u32::try_from(request.plans.len()).unwrap_or(u32::MAX);
            let expect =
                known.as_ref().map_or(Expect::Absent, |item| Expect::Version(item.version));
            // A request never names a plan that is not there.
            self.keep(&record, Expect::Anything).await?;
            let place = item(&record.request_id, &request);
            match self.inner.store.shelves().keep(Shelf::Requests, &place, expect).await {
                Ok(_) => return Ok(record),
                Err(StoreError::Changed { .. }) => {
                    known = self.shelf(Shelf::Requests, &record.request_id).await?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// A record with the state that its run gives it, and its version; nothing when it cannot be read.
    /// A run that was resumed or taken back has told nobody, so what is found out is written down.
    async fn as_it_stands(&self, item: &Item) -> Result<Option<(PlanRecord, u64)>, PlanError> {
        let Ok(mut record) = serde_json::from_str::<PlanRecord>(&item.text) else {
            return Ok(None);
        };
        let mut version = item.version;
        let Some(run_id) = &record.run_id else { return Ok(Some((record, version))) };
        match self.inner.store.run(run_id).await? {
            // It is about to begin, never began, or is forgotten; by itself it must not begin twice.
            None if record.state == PlanState::InProgress => record.state = PlanState::Failed,
            None => {}
            Some(row) if PlanState::of_run(row.status) == record.state => {}
            Some(row) => {
                record.state = PlanState::of_run(row.status);
                // Whoever came first has written what we would, or something newer.
                version = self.keep(&record, Expect::Version(version)).await.unwrap_or(version);
            }
        }
        Ok(Some((record, version)))
    }
}

fn made_by(model: &dyn Model, cost: Cost) -> Origin {
    Origin::Model { model: model.name().clone(), cost }
}

/// The text of a plan, as a person would want to read it.
pub fn source_of(record: &PlanRecord) -> Source {
    let json = serde_json::to_string_pretty(&record.document).unwrap_or_default();
    Source::new(format!("{}.json", record.plan_id), json)
}

fn item(key: &Arc<str>, text: &impl Serialize) -> Item {
    let text = serde_json::to_string(text).unwrap_or_default();
    Item { key: key.clone(), text: text.into(), version: 0, at_ms: now_ms() }
}

fn read_request(item: &Item) -> Option<RequestRecord> {
    serde_json::from_str(&item.text).ok()
}
