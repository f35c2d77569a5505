//! Runs that are in the store: looking at them, and going on with them.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use segue_core::id::ToolId;
use segue_core::plan::{PinnedTools, Plan};
use segue_core::run::{Entry, Run};
use segue_core::value::Value;
use segue_core::view::{RunStatus, RunView};

use super::call::Nested;
use super::{Engine, EngineError, UnavailableTools, stop_error};
use crate::confirm::{Confirmer, Defer};
use crate::driver::{self, DriverContext, NoObserver, Observer, RunCommand, StartMode};
use crate::store::{Lease, RunRow, Store, StoreError, TakeOver};

/// How long between two looks at what somebody else does with a run.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// How long somebody who can listen takes to hear a word, at most.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(5);

/// A run to go on with.
pub struct ResumeRequest<'a> {
    /// Which run.
    pub run_id: Arc<str>,
    /// What is wanted of it.
    pub command: RunCommand,
    /// Whether to take it from somebody who is alive.
    pub take_over: TakeOver,
    /// Who answers its questions.
    pub confirmer: &'a dyn Confirmer,
    /// Who watches.
    pub observer: &'a dyn Observer,
    /// Resolves when the run should end, to who wants it.
    pub cancel: BoxFuture<'a, Arc<str>>,
}

impl ResumeRequest<'_> {
    /// Goes on with a run, unwatched, leaving its questions open.
    pub fn new(run_id: impl Into<Arc<str>>) -> ResumeRequest<'static> {
        ResumeRequest {
            run_id: run_id.into(),
            command: RunCommand::Resume,
            take_over: TakeOver::IfAbandoned,
            confirmer: &Defer,
            observer: &NoObserver,
            cancel: Box::pin(std::future::pending()),
        }
    }
}

/// A run as it is in the store.
pub struct LoadedRun {
    /// In short.
    pub row: RunRow,
    /// The run itself.
    pub run: Run,
    /// Its journal.
    pub journal: Vec<Entry>,
    /// What it executes.
    pub plan: Arc<Plan>,
}

impl LoadedRun {
    /// The run as every surface shows it.
    pub fn view(&self) -> RunView {
        let mut view = self.run.view();
        if view.completed_at.is_none() {
            view.duration_ms = self.row.updated_ms.saturating_sub(self.row.started_ms);
            view.duration = view.duration_ms.saturating_mul(1_000_000);
        }
        view
    }
}

/// A run that nobody had, and how it went on.
#[derive(Debug)]
pub struct Recovered {
    /// Which run.
    pub run_id: Arc<str>,
    /// Whether it waited for a person before.
    pub waited: bool,
    /// How it stands now.
    pub outcome: Result<RunView, EngineError>,
}

impl Engine {
    /// Where runs are kept.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.inner.store
    }

    /// A run as it is in the store.
    pub async fn load_run(&self, run_id: &Arc<str>) -> Result<LoadedRun, EngineError> {
        let store = &self.inner.store;
        let unknown = || StoreError::Unknown { run_id: run_id.clone() };
        let row = store.run(run_id).await?.ok_or_else(unknown)?;
        let plan = store.plan(run_id, &self.inner.limits).await?;
        plan.bind(&self.inner.catalog);
        let journal = store.load(run_id).await?;
        let run = Run::replay(plan.clone(), self.inner.limits.clone(), &journal)
            .map_err(|error| damaged_journal(run_id, error.seq, error.to_string()))?;
        Ok(LoadedRun { row, run, journal, plan })
    }

    /// When a run that waits for a person goes on by itself, in milliseconds since 1970: its time is
    /// over then, or that of its question.
    pub async fn resumes_at(&self, run_id: &Arc<str>) -> Result<Option<u64>, EngineError> {
        let LoadedRun { run, .. } = self.load_run(run_id).await?;
        Ok(if run.is_waiting() { run.next_timer_ms(driver::now_ms()) } else { None })
    }

    /// Goes on with a run until it is over, or waits for a person who is not there.
    pub async fn resume(&self, request: ResumeRequest<'_>) -> Result<RunView, EngineError> {
        let store = &self.inner.store;
        self.inner.unreleased.release_now(&**store, &request.run_id).await;
        let lease = store.acquire(&request.run_id, request.take_over).await?;
        match self.resume_leased(&lease, request).await {
            // Nothing of the run was touched: whoever comes next may take it.
            Err(
                error @ (EngineError::DefinitionChanged { .. }
                | EngineError::MissingTool { .. }
                | EngineError::Store(_)
                | EngineError::Stopped { .. }),
            ) => {
                let _ = store.release(&lease).await;
                Err(error)
            }
            other => other,
        }
    }

    /// Tells the owner of a run what is wanted of it, and waits until that is durable. False when
    /// the run has no owner any more, so that the caller may go on with it. An owner that hangs hears
    /// nothing: then the word is taken back.
    pub async fn send_command(
        &self,
        run_id: &Arc<str>,
        command: &RunCommand,
    ) -> Result<bool, EngineError> {
        if let Some(event) = command.clone().into_event()
            && let Some(recorded) = self.inner.router.deliver(run_id, event)
        {
            return Ok(recorded.await.is_ok());
        }
        let store = &self.inner.store;
        let text = serde_json::to_string(command).unwrap_or_default().into();
        let number = store.send_command(run_id, &text).await?;
        let mut is_over = false;
        // Whoever waits for its store does not listen meanwhile.
        let patience = COMMAND_TIMEOUT + Duration::from_millis(self.inner.limits.store_wait_ms_max);
        let until = tokio::time::Instant::now() + patience;
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            if store.pending_commands().await?.iter().all(|word| word.number != number) {
                return Ok(true);
            }
            match store.acquire(run_id, TakeOver::IfAbandoned).await {
                Err(StoreError::Owned { .. }) if tokio::time::Instant::now() < until => {}
                Err(StoreError::Owned { .. }) => {
                    store.remove_command(number).await?;
                    return Err(EngineError::NotReceived { run_id: run_id.clone() });
                }
                // Perhaps because of this word, which is thrown away after the end is written.
                Err(StoreError::Ended { .. }) if !is_over => is_over = true,
                Ok(lease) => {
                    store.remove_command(number).await?;
                    store.release(&lease).await?;
                    return Ok(false);
                }
                Err(error) => {
                    store.remove_command(number).await?;
                    return Err(error.into());
                }
            }
        }
    }

    /// Has what a run of this process evaluates end soon, because the run shall: whoever calls this has
    /// it cancelled.
    pub fn stop(&self, run_id: &str) {
        self.inner.router.evaluations.stop(run_id);
    }

    /// The process ends. What runs evaluate now is dropped, and nothing of it is written: the next start
    /// goes on from their journals.
    pub fn stop_all(&self) {
        self.inner.router.evaluations.stop_all();
    }

    /// Releases a run whose driver is gone, so that it can be taken up by hand.
    pub async fn release_run(&self, run_id: &Arc<str>) {
        let store = &self.inner.store;
        if let Ok(lease) = store.acquire(run_id, TakeOver::Force).await {
            self.inner.unreleased.release(&**store, lease).await;
        }
    }

    /// Waits until a run that somebody else drives is over, waits for a person, or is left.
    pub async fn follow(&self, run_id: &Arc<str>) -> Result<RunView, EngineError> {
        loop {
            let stored = self.load_run(run_id).await?;
            let goes_on = !stored.run.is_finished() && !stored.run.is_waiting();
            if !goes_on || stored.row.owner.is_none() {
                return Ok(stored.view());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Goes on with every run that nobody has, all at once. A run that cannot be read, is set aside, or
    /// belongs to somebody delays none of the others.
    pub async fn recover(&self) -> Result<Vec<Recovered>, EngineError> {
        let mut recovered = Vec::new();
        let never = || Box::pin(std::future::pending()) as BoxFuture<'static, Arc<str>>;
        self.recover_observed(|_| NoObserver, never, |one| recovered.push(one)).await?;
        Ok(recovered)
    }

    /// The same, with somebody who watches each of them, ends all of them, and is told of each as soon
    /// as it does not go on any more.
    pub async fn recover_observed<O: Observer>(
        &self,
        watch: impl Fn(&RunRow) -> O,
        cancel: impl Fn() -> BoxFuture<'static, Arc<str>>,
        mut told: impl FnMut(Recovered),
    ) -> Result<(), EngineError> {
        let (found, watch, cancel) = (self.inner.store.unfinished().await?, &watch, &cancel);
        for error in found.damaged {
            told(Recovered { run_id: "?".into(), waited: false, outcome: Err(error.into()) });
        }
        let mut under_way: FuturesUnordered<_> = found
            .runs
            .into_iter()
            .map(|row| async move {
                let observer = watch(&row);
                let request = ResumeRequest {
                    take_over: TakeOver::Recover,
                    observer: &observer,
                    cancel: cancel(),
                    ..ResumeRequest::new(row.run_id.clone())
                };
                let outcome = self.resume(request).await;
                let waited = row.status == RunStatus::Waiting;
                Recovered { run_id: row.run_id, waited, outcome }
            })
            .collect();
        while let Some(recovered) = under_way.next().await {
            let outcome = &recovered.outcome;
            if !matches!(outcome, Err(EngineError::Store(StoreError::Owned { .. }))) {
                told(recovered);
            }
        }
        Ok(())
    }

    async fn resume_leased(
        &self,
        lease: &Lease,
        request: ResumeRequest<'_>,
    ) -> Result<RunView, EngineError> {
        let LoadedRun { mut run, journal, plan, .. } = self.load_run(&request.run_id).await?;
        // What was left for whoever had the run before was wanted first.
        let (words, mut wishes) = self.inner.router.pending_for(&request.run_id).await?;
        wishes.extend(request.command.into_event());
        self.check_pinned(&run.callable_tools(&wishes))?;
        self.inner.orphans.end(run.open_call_keys()).await;
        let written = journal.len() as u64;
        request.observer.resumed(&run, &journal);
        drop(journal);
        // Nothing was written since it was left here: it has what is not written down, too.
        run = self.inner.waiting_runs.take(&request.run_id, written).unwrap_or(run);
        let first = StartMode::Resume {
            lease: lease.clone(),
            written,
            commands: wishes,
            command_numbers: words,
        };
        let caller = run.caller().cloned();
        let expands_for = caller.clone();
        let expand = |document: &Value| self.expand(document, expands_for.as_ref());
        let drive = DriverContext {
            plan,
            registry: &self.inner.registry,
            gate: &self.inner.gate,
            store: &*self.inner.store,
            confirmer: request.confirmer,
            catalog: &self.inner.catalog,
            limits: &self.inner.limits,
            compositions: &Nested { engine: self, registry: &self.inner.registry, caller },
            observer: request.observer,
            ids: &self.inner.ids,
            expand: &expand,
            cancel: request.cancel,
            router: &self.inner.router,
            unreleased: &self.inner.unreleased,
        };
        match driver::drive(&mut run, first, drive).await {
            Ok(()) => {
                let view = run.view();
                self.inner.waiting_runs.insert(run);
                Ok(view)
            }
            Err(error) => Err(stop_error(&*self.inner.store, lease.run_id.clone(), error).await),
        }
    }

    /// Whether every tool that a plan may call is one of ours. A store may hold runs of other
    /// projects; going on with those would fail them.
    pub fn has_tools_of(&self, plan: &Plan) -> bool {
        plan.callable_tools().keys().all(|id| self.missing_tool(id).is_none())
    }

    /// Whether every tool that a plan may call is here, and is what it was when it was planned.
    pub fn check_requirements(&self, plan: &Plan) -> Result<(), EngineError> {
        self.check_pinned(&plan.callable_tools())
    }

    /// D4: a run is bound to the tools that it was planned with.
    fn check_pinned(&self, needed: &PinnedTools) -> Result<(), EngineError> {
        for (id, pinned) in needed {
            if let Some(lack) = self.missing_tool(id) {
                return Err(lack);
            }
            if let Some(now) = self.inner.catalog.get(id)
                && !pinned.is_compatible_with(now)
            {
                return Err(EngineError::DefinitionChanged { tool: id.to_string() });
            }
        }
        Ok(())
    }

    /// Why a tool cannot be called here, if it cannot.
    fn missing_tool(&self, id: &ToolId) -> Option<EngineError> {
        let UnavailableTools { untrusted, changed, .. } = &self.inner.unavailable;
        if changed.contains(id.as_str()) {
            return Some(EngineError::DefinitionChanged { tool: id.to_string() });
        }
        let is_untrusted = untrusted.contains(id.namespace());
        let is_there = self.inner.registry.get(id).is_some();
        let lack = || EngineError::MissingTool { tool: id.to_string(), is_untrusted };
        (is_untrusted || !is_there).then(lack)
    }
}

fn damaged_journal(run_id: &Arc<str>, seq: u64, what: String) -> StoreError {
    StoreError::Damaged { run_id: run_id.clone(), seq, what }
}
