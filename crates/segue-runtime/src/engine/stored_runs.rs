//! Runs in the store: loads, resumes, follows and recovers them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use segue_core::id::ToolId;
use segue_core::plan::{PinnedTools, Plan};
use segue_core::result;
use segue_core::run::{Entry, Run};
use segue_core::value::Value;
use segue_core::view::{RunStatus, RunView};

use super::call::Nested;
use super::{Engine, EngineError, UnavailableTools, stop_error};
use crate::confirm::{Confirmer, Defer};
use crate::driver::{self, DriverContext, NoObserver, Observer, RunCommand, StartMode};
use crate::store::{Lease, RunRow, Store, StoreError, TakeOver};

/// The pause between two polls of a run that another process drives.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// How long a responsive owner takes to receive a command, at most.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(5);

/// A run to resume.
pub struct ResumeRequest<'a> {
    /// The run's id.
    pub run_id: Arc<str>,
    /// The command for the run.
    pub command: RunCommand,
    /// Whether to take the run from an owner that is alive.
    pub take_over: TakeOver,
    /// The right to write the run, if the caller took the run already.
    pub lease: Option<Lease>,
    /// Answers the run's questions.
    pub confirmer: &'a dyn Confirmer,
    /// Watches the run.
    pub observer: &'a dyn Observer,
    /// Resolves when the run should be cancelled, to the name of who cancels it.
    pub cancel: BoxFuture<'a, Arc<str>>,
}

impl ResumeRequest<'_> {
    /// Resumes a run without an observer, and leaves its questions open.
    pub fn new(run_id: impl Into<Arc<str>>) -> ResumeRequest<'static> {
        ResumeRequest {
            run_id: run_id.into(),
            command: RunCommand::Resume,
            take_over: TakeOver::IfAbandoned,
            lease: None,
            confirmer: &Defer,
            observer: &NoObserver,
            cancel: Box::pin(std::future::pending()),
        }
    }
}

/// A run loaded from the store.
pub struct LoadedRun {
    /// The run's row in the listing.
    pub row: RunRow,
    /// The run itself.
    pub run: Run,
    /// Its journal.
    pub journal: Vec<Entry>,
    /// The plan that it executes.
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
        view.dialect_result = result::dialect_result(&view, &self.run, &self.journal);
        view
    }
}

/// The view of a run that a driver leaves, with the result in the format of its dialect.
pub(super) async fn view_of(store: &dyn Store, run: &Run) -> RunView {
    let mut view = run.view();
    if view.started_at.is_none() {
        return view;
    }
    let journal = if result::needs_journal(view.dialect) {
        // The run has ended whether or not its journal can be read now.
        store.load(&view.run_id).await.unwrap_or_default()
    } else {
        Vec::new()
    };
    view.dialect_result = result::dialect_result(&view, run, &journal);
    view
}

/// A run without an owner that was resumed, and its outcome.
#[derive(Debug)]
pub struct Recovered {
    /// The run's id.
    pub run_id: Arc<str>,
    /// Whether it waited for a person before.
    pub waited: bool,
    /// Its view now, or why it could not be resumed.
    pub outcome: Result<RunView, EngineError>,
}

impl Engine {
    /// The store that holds the runs.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.inner.store
    }

    /// Loads a run from the store.
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

    /// When a run that waits for a person continues by itself, in milliseconds since 1970: at its
    /// own timeout or its question's.
    pub async fn resumes_at(&self, run_id: &Arc<str>) -> Result<Option<u64>, EngineError> {
        let LoadedRun { run, .. } = self.load_run(run_id).await?;
        Ok(if run.is_waiting() { run.next_timer_ms(driver::now_ms()) } else { None })
    }

    /// Resumes a run until it finishes, or waits for a person who is not here.
    pub async fn resume(&self, mut request: ResumeRequest<'_>) -> Result<RunView, EngineError> {
        let store = &self.inner.store;
        let lease = match request.lease.take() {
            Some(lease) => lease,
            None => {
                self.inner.unreleased.release_now(&**store, &request.run_id).await;
                store.acquire(&request.run_id, request.take_over).await?
            }
        };
        match self.resume_leased(&lease, request).await {
            // The run is unchanged: release it for the next process.
            Err(
                error @ (EngineError::DefinitionChanged { .. }
                | EngineError::MissingTool { .. }
                | EngineError::NewerEngine { .. }
                | EngineError::Store(_)
                | EngineError::Stopped { .. }),
            ) => {
                let _ = store.release(&lease).await;
                Err(error)
            }
            other => other,
        }
    }

    /// Sends a command to the owner of a run, and waits until its effect is durable. Returns false
    /// when the run has no owner any more, so that the caller may resume it. When the owner hangs,
    /// the command is removed from the store.
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
        // An owner that waits for its store receives no commands meanwhile.
        let patience = COMMAND_TIMEOUT + Duration::from_millis(self.inner.limits.store_wait_ms_max);
        let until = tokio::time::Instant::now() + patience;
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            if store.pending_commands().await?.iter().all(|command| command.number != number) {
                return Ok(true);
            }
            match store.acquire(run_id, TakeOver::IfAbandoned).await {
                Err(StoreError::Owned { .. }) if tokio::time::Instant::now() < until => {}
                Err(StoreError::Owned { .. }) => {
                    store.remove_command(number).await?;
                    return Err(EngineError::NotReceived { run_id: run_id.clone() });
                }
                // This command may have ended it; the owner removes the command after the end is
                // durable.
                Err(StoreError::Ended { .. }) if !is_over => is_over = true,
                Ok(lease) => {
                    let removed = store.remove_command(number).await;
                    self.inner.unreleased.release(&**store, lease).await;
                    removed?;
                    return Ok(false);
                }
                Err(error) => {
                    store.remove_command(number).await?;
                    return Err(error.into());
                }
            }
        }
    }

    /// Stops the evaluation of a run in this process. The caller cancels the run as well.
    pub fn stop(&self, run_id: &str) {
        self.inner.router.evaluations.stop(run_id);
    }

    /// Stops every evaluation because the process shuts down. Their results are dropped and not
    /// written: the next start resumes the runs from their journals.
    pub fn stop_all(&self) {
        self.inner.router.evaluations.stop_all();
    }

    /// Releases a run whose driver is gone, so that a person can resume it.
    pub async fn release_run(&self, run_id: &Arc<str>) {
        let store = &self.inner.store;
        if let Ok(lease) = store.acquire(run_id, TakeOver::Force).await {
            self.inner.unreleased.release(&**store, lease).await;
        }
    }

    /// Waits until a run of another process finishes, waits for a person, or is left by its owner. A run of
    /// a shared store goes on with another owner.
    pub async fn follow(&self, run_id: &Arc<str>) -> Result<RunView, EngineError> {
        let is_shared = self.inner.store.is_shared();
        loop {
            let row = self.row(run_id).await?;
            let moves = matches!(row.status, RunStatus::Pending | RunStatus::Running);
            let is_driven = row.owner.is_some() || (is_shared && row.set_aside.is_none());
            if !(moves && is_driven) {
                return Ok(self.load_run(run_id).await?.view());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Resumes every run without an owner, concurrently. A run that is unreadable, set aside or
    /// owned delays none of the others.
    pub async fn recover(&self) -> Result<Vec<Recovered>, EngineError> {
        let mut recovered = Vec::new();
        let never = || Box::pin(std::future::pending()) as BoxFuture<'static, Arc<str>>;
        self.recover_observed(|_| NoObserver, never, |one| recovered.push(one)).await?;
        Ok(recovered)
    }

    /// The same, with an observer for each run, one way to cancel all of them, and a callback for
    /// each run that stops.
    pub async fn recover_observed<O: Observer>(
        &self,
        watch: impl Fn(&RunRow) -> O,
        cancel: impl Fn() -> BoxFuture<'static, Arc<str>>,
        mut report: impl FnMut(Recovered),
    ) -> Result<(), EngineError> {
        let (found, watch, cancel) = (self.inner.store.unfinished().await?, &watch, &cancel);
        for error in found.damaged {
            report(Recovered { run_id: "?".into(), waited: false, outcome: Err(error.into()) });
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
                report(recovered);
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
        Engine::check_version(&journal)?;
        // Commands left for the previous owner were sent first.
        let (numbers, mut commands) = self.inner.router.pending_for(&request.run_id).await?;
        commands.extend(request.command.into_event());
        self.check_pinned(&run.callable_tools(&commands))?;
        self.inner.orphans.end(run.open_call_keys()).await;
        let written = journal.len() as u64;
        request.observer.resumed(&run, &journal);
        drop(journal);
        // Nothing was written since this process left the run, so its copy in memory still holds
        // the values that the journal leaves out.
        run = self.inner.waiting_runs.take(&request.run_id, written).unwrap_or(run);
        let first =
            StartMode::Resume { lease: lease.clone(), written, commands, command_numbers: numbers };
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
                let view = view_of(&*self.inner.store, &run).await;
                self.inner.waiting_runs.insert(run);
                Ok(view)
            }
            Err(error) => Err(stop_error(&*self.inner.store, lease.run_id.clone(), error).await),
        }
    }

    /// Whether this engine has every tool that a plan may call. A store may hold runs of other
    /// projects; resuming those here would fail them.
    pub fn has_tools_of(&self, plan: &Plan) -> bool {
        plan.callable_tools().keys().all(|id| self.missing_tool(id).is_none())
    }

    /// The namespaces of the tools that can be called here.
    pub fn namespaces(&self) -> BTreeSet<Arc<str>> {
        let ids = self.inner.registry.specs().map(|spec| &spec.id);
        let callable = ids.filter(|id| self.missing_tool(id).is_none());
        callable.map(|id| id.namespace().into()).collect()
    }

    /// Checks that every tool a plan may call is available, with the definition that was planned
    /// with.
    pub fn check_requirements(&self, plan: &Plan) -> Result<(), EngineError> {
        self.check_pinned(&plan.callable_tools())
    }

    /// D4: a run is bound to the tool definitions that it was planned with.
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
