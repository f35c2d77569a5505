//! The hall behind every door: which compositions are served, and the runs that are under way.
//!
//! Whoever asks for something says who they are. What their toolset refuses is not served to them, and
//! what is somebody else's is not there: both are decided by the core, and asked for here.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use segue_core::access::{Caller, INLINE, Principal, Right};
use segue_core::composition::{Flow, StepKind};
use segue_core::id::ToolId;
use segue_core::limits::Limits;
use segue_core::plan::Plan;
use segue_core::run::Options;
use segue_core::source::Source;
use segue_core::tool::COMPOSITION;
use segue_core::toolset::{Filter, Toolset, ToolsetBuilder};
use segue_core::value::Value;
use segue_core::view::{RunStatus, RunView};
use segue_runtime::driver::{RunCommand, now_ms};
use segue_runtime::engine::{Engine, EngineError, LoadError, LoadedRun, ResumeRequest, RunRequest};
use segue_runtime::library::Library;
use segue_runtime::store::{RunListing, RunQuery, RunRow, Store, StoreError, TakeOver};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::active::{Active, Asking, Outcome, Questions};
use super::offer::Offers;
use super::plans::Unbegun;
use super::threads::{Threads, tell_panic};
use crate::observe::{Observers, RequestOrigin};

/// What is served to somebody, at one moment.
#[derive(Clone)]
pub struct Served {
    /// The engine.
    pub engine: Engine,
    /// Its compositions, as they are offered.
    pub offers: Arc<Offers>,
    /// Its templates.
    pub library: Library,
}

impl Served {
    /// What of it a toolset leaves.
    fn within(&self, toolset: ToolsetBuilder, taken: &BTreeSet<&'static str>) -> Served {
        let engine = self.engine.with_toolset(toolset);
        let offers = Arc::new(Offers::of(&engine, taken));
        let library = self.library.with_engine(engine.clone());
        Served { engine, offers, library }
    }
}

/// Everything that there is, at one moment.
struct Stock {
    all: Served,
    /// Toolsets by name, which still want their source.
    toolsets: BTreeMap<Arc<str>, ToolsetBuilder>,
    /// What each of them leaves; made when somebody comes who is held to it.
    within: Mutex<BTreeMap<Arc<str>, Served>>,
}

/// The hall.
pub struct Hall {
    stock: RwLock<Arc<Stock>>,
    /// Names that offers must leave to others.
    taken: BTreeSet<&'static str>,
    /// What runs are driven on, and requests are worked on.
    threads: Threads,
    active: Mutex<HashMap<Arc<str>, Arc<Active>>>,
    /// Runs that are about to begin: what they execute is taken already.
    announced: Mutex<HashSet<Arc<str>>>,
    /// What runs that wait for a person were begun with: they go on with it, whatever is served then.
    waiting: Mutex<HashMap<Arc<str>, Engine>>,
    /// What goes on with those of them whose time is over some day.
    clocks: Mutex<HashMap<Arc<str>, AbortHandle>>,
    /// Counts how often what is offered has changed.
    changes: watch::Sender<u64>,
    /// Changes when runs are left where they are.
    leaving: watch::Sender<bool>,
    observing: Observers,
}

/// A run is about to begin as long as this lives.
pub struct Announced {
    hall: Arc<Hall>,
    run_id: Arc<str>,
}

impl Drop for Announced {
    // Work in `Drop`, because whoever was to begin it may go away before.
    fn drop(&mut self) {
        self.hall.announced().remove(&self.run_id);
    }
}

/// A run that somebody wants.
pub struct Wanted {
    /// What to run.
    pub plan: Arc<Plan>,
    /// Its input.
    pub input: Value,
    /// What the caller brings along.
    pub context: Value,
    /// What the caller asks for beyond the composition.
    pub options: Options,
    /// Who answers its questions.
    pub asking: Asking,
    /// The id that it gets, where that is decided already; one that is under way is joined.
    pub run_id: Option<Arc<str>>,
    /// Where it comes from.
    pub origin: RequestOrigin,
}

impl Hall {
    /// A hall for the compositions and templates of an engine, whose runs are driven by `threads`.
    /// Whoever comes is held to one of the toolsets, or to none.
    pub fn new(
        engine: Engine,
        library: Library,
        toolsets: BTreeMap<Arc<str>, ToolsetBuilder>,
        taken: BTreeSet<&'static str>,
        threads: Threads,
        observing: Observers,
    ) -> Arc<Hall> {
        let offers = Arc::new(Offers::of(&engine, &taken));
        let all = Served { engine, offers, library };
        Arc::new(Hall {
            stock: RwLock::new(Arc::new(Stock { all, toolsets, within: Mutex::default() })),
            taken,
            threads,
            active: Mutex::default(),
            announced: Mutex::default(),
            waiting: Mutex::default(),
            clocks: Mutex::default(),
            changes: watch::Sender::default(),
            leaving: watch::Sender::default(),
            observing,
        })
    }

    /// Where its work is done.
    pub fn threads(&self) -> &Threads {
        &self.threads
    }

    /// Those who are told of its runs.
    pub fn observing(&self) -> &Observers {
        &self.observing
    }

    fn stock(&self) -> Arc<Stock> {
        self.stock.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What is served to somebody now.
    pub fn served(&self, who: &Principal) -> Served {
        self.served_within(who.toolset.as_ref())
    }

    /// What is served to whoever is held to a toolset. Of one that is not there any more nothing is left.
    fn served_within(&self, toolset: Option<&Arc<str>>) -> Served {
        let stock = self.stock();
        let Some(name) = toolset else { return stock.all.clone() };
        let mut within = stock.within.lock().unwrap_or_else(PoisonError::into_inner);
        let made = within.entry(name.clone()).or_insert_with(|| {
            let unknown = || match &**name {
                INLINE => ToolsetBuilder::inline(None),
                _ => Toolset::builder(name.clone()).filter(Filter::Allow(Vec::new())),
            };
            let known = stock.toolsets.get(name).cloned();
            stock.all.within(known.unwrap_or_else(unknown), &self.taken)
        });
        made.clone()
    }

    /// What is served to those who may have everything.
    pub fn everything(&self) -> Served {
        self.stock().all.clone()
    }

    /// A toolset by its name.
    pub fn toolset(&self, name: &str) -> Option<ToolsetBuilder> {
        self.stock().toolsets.get(name).cloned()
    }

    /// The names of all toolsets.
    pub fn toolset_names(&self) -> Vec<Arc<str>> {
        self.stock().toolsets.keys().cloned().collect()
    }

    /// Where runs are kept.
    pub fn store(&self) -> Arc<dyn Store> {
        self.stock().all.engine.store().clone()
    }

    /// An id that no run has.
    pub fn new_run_id(&self) -> Arc<str> {
        self.stock().all.engine.new_run_id()
    }

    /// The limits in force.
    pub fn limits(&self) -> Arc<Limits> {
        self.stock().all.engine.limits().clone()
    }

    /// Changes whenever what is offered does.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Serves other compositions from now on, and the templates that `library` makes of an engine.
    /// Runs that are under way keep theirs.
    pub fn reload(
        &self,
        sources: Vec<Source>,
        library: impl FnOnce(&Engine) -> Library,
    ) -> Vec<LoadError> {
        let before = self.stock();
        let (engine, unloaded) = before.all.engine.with_compositions(sources);
        let library = library(&engine);
        self.replace(engine, library, before.toolsets.clone());
        unloaded
    }

    /// Serves another engine from now on. Runs that are under way, and those that wait for a person,
    /// keep theirs.
    pub fn replace(
        &self,
        engine: Engine,
        library: Library,
        toolsets: BTreeMap<Arc<str>, ToolsetBuilder>,
    ) {
        let before = self.stock();
        let offers = Arc::new(Offers::of(&engine, &self.taken));
        // Whether a toolset leaves something else now is known by asking it; who listens asks anyway.
        let is_same =
            offers.fingerprint() == before.all.offers.fingerprint() && toolsets == before.toolsets;
        let all = Served { engine, offers, library };
        let stock = Arc::new(Stock { all, toolsets, within: Mutex::default() });
        *self.stock.write().unwrap_or_else(PoisonError::into_inner) = stock;
        if !is_same {
            self.changes.send_modify(|count| *count += 1);
        }
    }

    /// How many runs of somebody are under way here.
    pub fn under_way(&self, who: &Principal) -> usize {
        self.actives().values().filter(|active| who.can_see(active.principal.as_deref())).count()
    }

    /// A run of theirs that is under way here.
    pub fn active(&self, who: &Principal, run_id: &str) -> Option<Arc<Active>> {
        let active = self.actives().get(run_id).cloned();
        active.filter(|active| who.can_see(active.principal.as_deref()))
    }

    /// Says that a run is about to begin, until it has or never will.
    pub fn announce(self: &Arc<Hall>, run_id: Arc<str>) -> Announced {
        self.announced().insert(run_id.clone());
        Announced { hall: self.clone(), run_id }
    }

    /// Whether a run is about to begin here.
    pub fn is_announced(&self, run_id: &str) -> bool {
        self.announced().contains(run_id)
    }

    fn announced(&self) -> MutexGuard<'_, HashSet<Arc<str>>> {
        self.announced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a run that is somebody's, unless too many are under way, and waits until its beginning is
    /// durable: whoever has the answer may name the run.
    pub async fn start(
        self: &Arc<Hall>,
        who: &Principal,
        wanted: Wanted,
    ) -> Result<Arc<Active>, Unbegun> {
        let active = self.begin(who, wanted).map_err(Unbegun::Busy)?;
        active.begun().await.map_err(Unbegun::Engine)?;
        Ok(active)
    }

    fn begin(self: &Arc<Hall>, who: &Principal, wanted: Wanted) -> Result<Arc<Active>, String> {
        let (engine, caller) = (self.served(who).engine, who.caller());
        let runs_max = engine.limits().served_runs_max;
        let active = {
            let mut actives = self.actives();
            if let Some(active) = wanted.run_id.as_ref().and_then(|run_id| actives.get(run_id)) {
                return Ok(active.clone());
            }
            if actives.len() >= runs_max {
                return Err(format!("{runs_max} runs are under way already; try again later"));
            }
            let plan = &wanted.plan;
            let name = plan.composition.name.clone();
            let run_id = wanted.run_id.unwrap_or_else(|| engine.new_run_id());
            let principal = Some(caller.principal.clone());
            let (asking, steps) = (wanted.asking, steps_of(plan));
            let active = Arc::new(Active::new(run_id, name, steps, asking, principal));
            actives.insert(active.run_id.clone(), active.clone());
            active
        };
        let (driven, observing) = (active.clone(), self.observing.clone());
        self.drive(active.clone(), engine.clone(), async move {
            let watch =
                observing.watch(&*driven, counted(&engine, &driven.composition), &wanted.origin);
            let questions = Questions { active: driven.clone() };
            let request = RunRequest {
                context: wanted.context,
                options: wanted.options,
                caller: Some(caller),
                run_id: Some(driven.run_id.clone()),
                trace: observing.trace(&driven.run_id, wanted.origin.trace.clone()),
                confirmer: &questions,
                observer: &watch,
                cancel: Box::pin(driven.cancelled()),
                ..RunRequest::new(wanted.plan, wanted.input)
            };
            engine.run(request).await
        });
        Ok(active)
    }

    /// Goes on with every run that nobody has, as far as its tools are ours and none of them is of a
    /// source that is not there yet. With `now` only with those of sources that are there since now.
    /// Returns how many.
    pub async fn recover(
        self: &Arc<Hall>,
        pending: &BTreeSet<Arc<str>>,
        now: Option<&BTreeSet<Arc<str>>>,
    ) -> Result<usize, EngineError> {
        let engine = self.everything().engine;
        let found = engine.store().unfinished().await?;
        for damaged in &found.damaged {
            tracing::warn!(target: "segue::store", "{damaged}");
        }
        let mut count = 0;
        for row in found.runs {
            if let Some(reason) = &row.set_aside {
                tracing::warn!(target: "segue::store", "run {} is set aside: {reason}", row.run_id);
                continue;
            }
            let Ok(plan) = engine.store().plan(&row.run_id, engine.limits()).await else {
                continue;
            };
            let is_due =
                !plan.calls_any_of(pending) && now.is_none_or(|now| plan.calls_any_of(now));
            if is_due && engine.has_tools_of(&plan) {
                self.go_on(&row, RunCommand::Resume, TakeOver::Recover, Asking::Later);
                count += 1;
            }
        }
        Ok(count)
    }

    fn go_on(
        self: &Arc<Hall>,
        row: &RunRow,
        wish: RunCommand,
        take_over: TakeOver,
        asking: Asking,
    ) -> Arc<Active> {
        let kept = self.waiting().get(&row.run_id).cloned();
        let engine = kept.unwrap_or_else(|| self.engine_of(row.caller.as_ref()));
        let (run_id, name) = (row.run_id.clone(), row.name.clone());
        let active = Arc::new(Active::new(run_id, name, None, asking, owner(row)));
        // Whoever drives it already is told by the store, and stays the one that is found.
        self.actives().entry(active.run_id.clone()).or_insert_with(|| active.clone());
        let (driven, observing) = (active.clone(), self.observing.clone());
        self.drive(active.clone(), engine.clone(), async move {
            let name = counted(&engine, &driven.composition);
            let watch = observing.watch(&*driven, name, &RequestOrigin::default());
            let questions = Questions { active: driven.clone() };
            let only_goes_on = wish == RunCommand::Resume;
            let request = ResumeRequest {
                command: wish,
                take_over,
                confirmer: &questions,
                observer: &watch,
                cancel: Box::pin(driven.cancelled()),
                ..ResumeRequest::new(driven.run_id.clone())
            };
            match engine.resume(request).await {
                // It has ended since it was looked at: how is the answer.
                Err(EngineError::Store(StoreError::Ended { run_id, .. })) if only_goes_on => {
                    Ok(engine.load_run(&run_id).await?.view())
                }
                Err(EngineError::Store(error @ StoreError::SetAside { .. })) => {
                    tracing::warn!(target: "segue::store", "{error}");
                    Err(error.into())
                }
                other => other,
            }
        });
        active
    }

    /// Goes on with a run of theirs that waits, whose questions are now answered by somebody else. One
    /// that is under way here is joined.
    pub fn take_up(
        self: &Arc<Hall>,
        who: &Principal,
        run: &LoadedRun,
        asking: Asking,
    ) -> Arc<Active> {
        if let Some(active) = self.active(who, &run.row.run_id) {
            return active;
        }
        self.go_on(&run.row, RunCommand::Resume, TakeOver::IfAbandoned, asking)
    }

    /// What a run goes on with that was begun by somebody: what their toolset leaves.
    fn engine_of(&self, caller: Option<&Caller>) -> Engine {
        self.served_within(caller.and_then(|caller| caller.toolset.as_ref())).engine
    }

    /// Has a run driven to its end, whoever listens.
    fn drive(
        self: &Arc<Hall>,
        active: Arc<Active>,
        engine: Engine,
        work: impl Future<Output = Outcome> + Send + 'static,
    ) {
        let hall = self.clone();
        self.stop_clock(&active.run_id);
        // Two tasks, so that a panic of the one is told by the other.
        let work = self.threads.runs.spawn(work);
        let mut leaving = self.leaving.subscribe();
        // Not where runs are moved: one that hears nothing is left, too.
        self.threads.requests.spawn(async move {
            let end = work.abort_handle();
            let outcome = tokio::select! {
                outcome = work => match outcome {
                    Ok(outcome) => outcome,
                    Err(error) => {
                        tell_panic(&format!("run {}", active.run_id), error);
                        engine.release_run(&active.run_id).await;
                        Err(lost(&active.run_id, "Segue itself failed, which is a defect of it"))
                    }
                },
                // Also when it was said before this task listened.
                () = async { drop(leaving.wait_for(|leaving| *leaving).await) } => {
                    end.abort();
                    active.leave();
                    Err(lost(&active.run_id, "Segue ends"))
                }
            };
            // Before anybody else can go on with it, which stops the clock.
            if matches!(&outcome, Ok(view) if view.status == RunStatus::Waiting) {
                hall.set_clock(active.run_id.clone(), engine.clone()).await;
            }
            let is_this = |other: &Arc<Active>| Arc::ptr_eq(other, &active);
            let mut actives = hall.actives();
            if actives.get(&active.run_id).is_some_and(is_this) {
                actives.remove(&active.run_id);
            }
            drop(actives);
            hall.keep_for_later(&active.run_id, engine, &outcome);
            active.end(outcome);
        });
    }

    /// Has a run that waits for a person go on when its time is over, or that of its question: nobody
    /// else would notice.
    async fn set_clock(self: &Arc<Hall>, run_id: Arc<str>, engine: Engine) {
        let Ok(Some(at_ms)) = engine.resumes_at(&run_id).await else { return };
        let (hall, which) = (self.clone(), run_id.clone());
        let mut leaving = self.leaving.subscribe();
        let mut clocks = self.clocks();
        let clock = self.threads.requests.spawn(async move {
            let pause = Duration::from_millis(at_ms.saturating_sub(now_ms()));
            let leaves = tokio::time::timeout(pause, leaving.wait_for(|leaving| *leaving));
            let is_over = leaves.await.is_err();
            let row = engine.store().run(&which).await.ok().flatten();
            match row.filter(|row| is_over && row.status == RunStatus::Waiting) {
                Some(row) => {
                    drop(hall.go_on(&row, RunCommand::Resume, TakeOver::IfAbandoned, Asking::Later))
                }
                None => hall.stop_clock(&which),
            }
        });
        clocks.insert(run_id, clock.abort_handle());
    }

    /// Somebody goes on with the run, which says anew when its time is over.
    fn stop_clock(&self, run_id: &Arc<str>) {
        if let Some(clock) = self.clocks().remove(run_id) {
            clock.abort();
        }
    }

    /// Keeps what a run that waits for a person goes on with. One too many goes on with what is served
    /// then.
    fn keep_for_later(&self, run_id: &Arc<str>, engine: Engine, outcome: &Outcome) {
        let mut waiting = self.waiting();
        let waits = matches!(outcome, Ok(view) if view.status == RunStatus::Waiting);
        if waits && waiting.len() < engine.limits().served_runs_max {
            waiting.insert(run_id.clone(), engine);
        } else {
            waiting.remove(run_id);
        }
    }

    /// A run in short, if it is somebody's.
    pub async fn row(&self, who: &Principal, run_id: &str) -> Result<RunRow, StoreError> {
        let run_id: Arc<str> = run_id.into();
        let found = match self.store().run(&run_id).await {
            // Whose it was is not known any more.
            Err(StoreError::Damaged { .. }) if !who.may(Right::Admin) => None,
            found => found?,
        };
        let theirs = found.filter(|row| who.can_see(owner(row).as_deref()));
        theirs.ok_or(StoreError::Unknown { run_id })
    }

    /// A run of theirs as it is in the store.
    pub async fn stored(&self, who: &Principal, run_id: &str) -> Result<LoadedRun, EngineError> {
        let row = self.row(who, run_id).await?;
        self.everything().engine.load_run(&row.run_id).await
    }

    /// A page of somebody's runs.
    pub async fn runs(
        &self,
        who: &Principal,
        mut query: RunQuery,
    ) -> Result<RunListing, StoreError> {
        if who.may(Right::Admin) {
            return self.store().runs(&query).await;
        }
        query.principal = Some(who.name.clone());
        let found = self.store().runs(&query).await?;
        Ok(RunListing { damaged: Vec::new(), ..found })
    }

    /// Ends a run of theirs, wherever it is.
    pub async fn cancel(
        self: &Arc<Hall>,
        who: &Principal,
        run_id: &str,
    ) -> Result<RunView, EngineError> {
        self.act(who, run_id, RunCommand::Cancel { by: who.name.clone() }).await
    }

    /// Ends a run that is under way here, whatever it evaluates. Whether that is durable.
    pub async fn cancel_active(&self, active: &Active, by: Arc<str>) -> bool {
        active.cancel(by, || self.everything().engine.stop(&active.run_id)).await
    }

    /// Has what is wanted of a run of theirs happen, wherever it is, and waits until it is over or waits
    /// for a person.
    pub async fn act(
        self: &Arc<Hall>,
        who: &Principal,
        run_id: &str,
        wish: RunCommand,
    ) -> Result<RunView, EngineError> {
        self.act_telling(who, run_id, wish, &watch::Sender::default()).await
    }

    /// The same; says when what is wanted is durable, and may be acknowledged.
    pub(super) async fn act_telling(
        self: &Arc<Hall>,
        who: &Principal,
        run_id: &str,
        wish: RunCommand,
        recorded: &watch::Sender<bool>,
    ) -> Result<RunView, EngineError> {
        loop {
            let (active, is_recorded) = match (self.active(who, run_id), &wish) {
                (Some(active), RunCommand::Cancel { by }) => {
                    let is_recorded = self.cancel_active(&active, by.clone()).await;
                    (active, is_recorded)
                }
                (Some(active), RunCommand::Resume) => {
                    let is_recorded = active.begun().await.is_ok();
                    (active, is_recorded)
                }
                (Some(active), wish) => {
                    if !self.everything().engine.send_command(&active.run_id, wish).await? {
                        // It was left meanwhile, because it waits.
                        active.ended().await;
                        continue;
                    }
                    (active, true)
                }
                (None, wish) => {
                    let row = self.row(who, run_id).await?;
                    // What is over is taken up again only to be taken back.
                    let take_over = match wish {
                        RunCommand::RollBack { .. } => TakeOver::Reopen,
                        RunCommand::Resume
                        | RunCommand::Cancel { .. }
                        | RunCommand::Decide { .. } => TakeOver::IfAbandoned,
                    };
                    let active = self.go_on(&row, wish.clone(), take_over, Asking::Later);
                    let is_recorded = active.begun().await.is_ok();
                    (active, is_recorded)
                }
            };
            if is_recorded {
                recorded.send_replace(true);
            }
            match &*active.ended().await {
                // Somebody else drives it, and is told.
                Err(EngineError::Store(StoreError::Owned { .. })) if wish != RunCommand::Resume => {
                    let engine = self.everything().engine;
                    if engine.send_command(&active.run_id, &wish).await? {
                        recorded.send_replace(true);
                        return engine.follow(&active.run_id).await;
                    }
                }
                // Segue ends, and the next start goes on with it.
                Err(_) if is_recorded && active.is_left() => {
                    return Ok(self.stored(who, run_id).await?.view());
                }
                // It was left to wait for a person before it heard.
                Ok(view) if !is_recorded && view.status == RunStatus::Waiting => {}
                other => return other.clone(),
            }
        }
    }

    /// Waits until nothing is under way, but not for ever. What is then left is in its journal, and
    /// goes on when Segue starts again.
    pub async fn settle(&self, patience: Duration) {
        let until = tokio::time::Instant::now() + patience;
        loop {
            let Some(active) = self.actives().values().next().cloned() else { return };
            if tokio::time::timeout_at(until, active.ended()).await.is_err() {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Leaves every run where it is, before what it calls goes away: a call whose server is ended by
    /// us would be told of as a failure of the run. The next start goes on from the journals.
    pub async fn abandon(&self) {
        let active: Vec<Arc<Active>> = self.actives().values().cloned().collect();
        self.everything().engine.stop_all();
        self.leaving.send_replace(true);
        for active in active {
            active.ended().await;
        }
        // Else the next process takes them for those of one that died.
        if let Err(error) = self.store().release_all().await {
            tracing::warn!(target: "segue::store", "{error}");
        }
    }

    /// Changes when runs are left where they are.
    pub fn leaving(&self) -> watch::Receiver<bool> {
        self.leaving.subscribe()
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<Arc<str>, Engine>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn clocks(&self) -> MutexGuard<'_, HashMap<Arc<str>, AbortHandle>> {
        self.clocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn actives(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<Active>>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whose run it is.
fn owner(row: &RunRow) -> Option<Arc<str>> {
    row.caller.as_ref().map(|caller| caller.principal.clone())
}

/// What runs of a composition are counted under: its name, if it is served. Who sends a composition
/// gives it any name.
fn counted<'a>(engine: &Engine, name: &'a str) -> &'a str {
    let is_served = engine.catalog().get(&ToolId::new(COMPOSITION, name)).is_some();
    if is_served { name } else { "other" }
}

/// How many steps will run, where the plan alone says it.
fn steps_of(plan: &Plan) -> Option<u32> {
    let is_counted = plan.composition.body.flow == Flow::Graph
        && plan.steps.iter().all(|step| {
            step.bodies.is_empty()
                && step.nested.is_empty()
                && !matches!(step.step.kind, StepKind::Expand(_))
        });
    is_counted.then(|| u32::try_from(plan.steps.len()).unwrap_or(u32::MAX))
}

/// Nobody drives the run any more.
fn lost(run_id: &Arc<str>, why: &str) -> EngineError {
    EngineError::Stopped { run_id: run_id.clone(), why: why.to_owned() }
}
