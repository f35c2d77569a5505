//! The hall behind every door: which compositions are served, and the runs that are under way.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use segue_core::compile::source::Source;
use segue_core::composition::{Flow, StepKind};
use segue_core::limits::Limits;
use segue_core::plan::Plan;
use segue_core::run::Options;
use segue_core::value::Value;
use segue_core::view::RunView;
use segue_runtime::engine::{
    Engine, EngineError, ResumeRequest, RunRequest, Stored, Unloaded, Wish,
};
use segue_runtime::library::Library;
use segue_runtime::store::{StoreError, TakeOver};
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::active::{Active, Asking, Outcome, Questions};
use super::offer::Offers;

/// What is served, at one moment.
#[derive(Clone)]
pub struct Served {
    /// The engine.
    pub engine: Engine,
    /// Its compositions, as they are offered.
    pub offers: Arc<Offers>,
    /// Its templates.
    pub library: Library,
}

/// The hall.
pub struct Hall {
    served: RwLock<Served>,
    /// Names that offers must leave to others.
    taken: BTreeSet<&'static str>,
    /// What runs are driven on: the connections of their tools live there.
    handle: Handle,
    active: Mutex<HashMap<Arc<str>, Arc<Active>>>,
    /// Counts how often what is offered has changed.
    changes: watch::Sender<u64>,
    /// Changes when runs are left where they are.
    leaving: watch::Sender<bool>,
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
}

impl Hall {
    /// A hall for the compositions and templates of an engine, whose runs are driven by `handle`.
    pub fn new(
        engine: Engine,
        library: Library,
        taken: BTreeSet<&'static str>,
        handle: Handle,
    ) -> Arc<Hall> {
        let offers = Arc::new(Offers::of(&engine, &taken));
        Arc::new(Hall {
            served: RwLock::new(Served { engine, offers, library }),
            taken,
            handle,
            active: Mutex::default(),
            changes: watch::Sender::default(),
            leaving: watch::Sender::default(),
        })
    }

    /// What is served now.
    pub fn served(&self) -> Served {
        self.served.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The engine.
    pub fn engine(&self) -> Engine {
        self.served().engine
    }

    /// The limits in force.
    pub fn limits(&self) -> Arc<Limits> {
        self.engine().limits().clone()
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
    ) -> Vec<Unloaded> {
        let before = self.served();
        let (engine, unloaded) = before.engine.with_compositions(sources);
        let offers = Arc::new(Offers::of(&engine, &self.taken));
        let changed = offers.fingerprint() != before.offers.fingerprint();
        let library = library(&engine);
        *self.served.write().unwrap_or_else(PoisonError::into_inner) =
            Served { engine, offers, library };
        if changed {
            self.changes.send_modify(|count| *count += 1);
        }
        unloaded
    }

    /// How many runs are under way here.
    pub fn under_way(&self) -> usize {
        self.actives().len()
    }

    /// A run that is under way here.
    pub fn active(&self, run_id: &str) -> Option<Arc<Active>> {
        self.actives().get(run_id).cloned()
    }

    /// Begins a run, unless too many are under way.
    pub fn start(self: &Arc<Hall>, wanted: Wanted) -> Result<Arc<Active>, String> {
        let engine = self.engine();
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
            let active = Arc::new(Active::new(run_id, name, steps_of(plan), wanted.asking));
            actives.insert(active.run_id.clone(), active.clone());
            active
        };
        let driven = active.clone();
        self.drive(active.clone(), async move {
            let questions = Questions { active: driven.clone() };
            let request = RunRequest {
                context: wanted.context,
                options: wanted.options,
                run_id: Some(driven.run_id.clone()),
                confirmer: &questions,
                observer: &*driven,
                cancel: Box::pin(driven.cancelled()),
                ..RunRequest::new(wanted.plan, wanted.input)
            };
            engine.run(request).await
        });
        Ok(active)
    }

    /// Goes on with every run that nobody has, as far as its tools are ours. Returns how many.
    pub async fn recover(self: &Arc<Hall>) -> Result<usize, EngineError> {
        let engine = self.engine();
        let found = engine.store().unfinished().await?;
        let mut count = 0;
        for row in found.runs {
            let Ok(plan) = engine.store().plan(&row.run_id, engine.limits()).await else {
                continue;
            };
            if engine.has_tools_of(&plan) {
                self.go_on(row.run_id, row.name, Wish::GoOn, TakeOver::IfLeft, Asking::Later);
                count += 1;
            }
        }
        Ok(count)
    }

    fn go_on(
        self: &Arc<Hall>,
        run_id: Arc<str>,
        name: Arc<str>,
        wish: Wish,
        take_over: TakeOver,
        asking: Asking,
    ) -> Arc<Active> {
        let (engine, active) = (self.engine(), Arc::new(Active::new(run_id, name, None, asking)));
        // Whoever drives it already is told by the store, and stays the one that is found.
        self.actives().entry(active.run_id.clone()).or_insert_with(|| active.clone());
        let driven = active.clone();
        self.drive(active.clone(), async move {
            let questions = Questions { active: driven.clone() };
            let request = ResumeRequest {
                wish,
                take_over,
                confirmer: &questions,
                observer: &*driven,
                cancel: Box::pin(driven.cancelled()),
                ..ResumeRequest::new(driven.run_id.clone())
            };
            engine.resume(request).await
        });
        active
    }

    /// Goes on with a run that waits, whose questions are now answered by somebody else. One that is
    /// under way here is joined.
    pub fn take_up(self: &Arc<Hall>, run: &Stored, asking: Asking) -> Arc<Active> {
        let (run_id, name) = (run.row.run_id.clone(), run.row.name.clone());
        if let Some(active) = self.active(&run_id) {
            return active;
        }
        self.go_on(run_id, name, Wish::GoOn, TakeOver::IfLeft, asking)
    }

    /// Has a run driven to its end, whoever listens.
    fn drive(
        self: &Arc<Hall>,
        active: Arc<Active>,
        work: impl Future<Output = Outcome> + Send + 'static,
    ) {
        let hall = self.clone();
        // Two tasks, so that a panic of the one is told by the other.
        let work = self.handle.spawn(work);
        let mut leaving = self.leaving.subscribe();
        self.handle.spawn(async move {
            let end = work.abort_handle();
            let outcome = tokio::select! {
                outcome = work => outcome.unwrap_or_else(|_| Err(lost(&active.run_id))),
                _ = leaving.changed() => {
                    end.abort();
                    Err(lost(&active.run_id))
                }
            };
            let is_this = |other: &Arc<Active>| Arc::ptr_eq(other, &active);
            let mut actives = hall.actives();
            if actives.get(&active.run_id).is_some_and(is_this) {
                actives.remove(&active.run_id);
            }
            drop(actives);
            active.end(outcome);
        });
    }

    /// A run as it is in the store.
    pub async fn stored(&self, run_id: &str) -> Result<Stored, EngineError> {
        self.engine().stored(&run_id.into()).await
    }

    /// Ends a run, wherever it is.
    pub async fn cancel(self: &Arc<Hall>, run_id: &str) -> Result<RunView, EngineError> {
        self.act(run_id, Wish::Cancel).await
    }

    /// Has what is wanted of a run happen, wherever it is, and waits until it is over or waits for a
    /// person.
    pub async fn act(self: &Arc<Hall>, run_id: &str, wish: Wish) -> Result<RunView, EngineError> {
        loop {
            let active = match (self.active(run_id), &wish) {
                (Some(active), Wish::Cancel) => {
                    active.cancel();
                    active
                }
                (Some(active), Wish::GoOn) => active,
                (Some(active), wish) => {
                    self.engine().tell(&active.run_id, wish).await?;
                    active
                }
                (None, wish) => {
                    let row = self.stored(run_id).await?.row;
                    // What is over is taken up again only to be taken back.
                    let take_over = match wish {
                        Wish::RollBack { .. } => TakeOver::Reopen,
                        Wish::GoOn | Wish::Cancel | Wish::Decide { .. } => TakeOver::IfLeft,
                    };
                    self.go_on(row.run_id, row.name, wish.clone(), take_over, Asking::Later)
                }
            };
            match &*active.ended().await {
                // Somebody else drives it, and is told.
                Err(EngineError::Store(StoreError::Owned { .. })) if wish != Wish::GoOn => {
                    let engine = self.engine();
                    if engine.tell(&active.run_id, &wish).await? {
                        return engine.follow(&active.run_id).await;
                    }
                }
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
        self.leaving.send_replace(true);
        for active in active {
            active.ended().await;
        }
    }

    /// Changes when runs are left where they are.
    pub fn leaving(&self) -> watch::Receiver<bool> {
        self.leaving.subscribe()
    }

    fn actives(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<Active>>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }
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

/// Nobody drives the run any more: Segue is ended, or its own code panicked.
fn lost(run_id: &Arc<str>) -> EngineError {
    let message = "nobody drives the run".to_owned();
    EngineError::Stopped { run_id: run_id.clone(), error: StoreError::Broken { what: message } }
}
