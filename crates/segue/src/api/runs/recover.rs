//! Runs that go on: after a restart, when their timeout passes, or because a caller acts on them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use segue_core::access::{Caller, Principal};
use segue_core::view::RunStatus;
use segue_runtime::driver::RunCommand;
use segue_runtime::driver::now_ms;
use segue_runtime::engine::{Engine, EngineError, LoadedRun, ResumeRequest};
use segue_runtime::store::{Due, Lease, RunRow, StoreError, TakeOver};

use super::handle::{QuestionConfirmer, QuestionPolicy, RunHandle, RunOutcome};
use super::start::metric_name;
use super::{RunService, owner};
use crate::api::threads::log_join_panic;
use crate::observe::RequestOrigin;

/// How a run that goes on is acquired.
#[derive(Clone, Debug)]
pub(super) enum Acquire {
    /// Its driver takes it.
    Take(TakeOver),
    /// It was claimed.
    Taken(Lease),
}

impl RunService {
    /// Resumes every run that no process drives, if all its tools are configured and none of them is of
    /// a `pending` source. With `now` only those that call a tool of these sources. Returns these runs.
    pub async fn recover(
        self: &Arc<RunService>,
        pending: &BTreeSet<Arc<str>>,
        now: Option<&BTreeSet<Arc<str>>>,
    ) -> Result<Vec<RunRow>, EngineError> {
        let engine = self.full_catalog().engine;
        let found = engine.store().unfinished().await?;
        for damaged in &found.damaged {
            tracing::warn!(target: "segue::store", "{damaged}");
        }
        let mut resumed = Vec::new();
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
                let acquire = Acquire::Take(TakeOver::Recover);
                self.resume(&row, RunCommand::Resume, acquire, QuestionPolicy::Defer);
                resumed.push(row);
            }
        }
        Ok(resumed)
    }

    /// Resumes a run of the caller, with other answers to its questions. A run that this process drives or
    /// follows is joined; one that another process drives is followed.
    pub async fn join_or_resume(
        self: &Arc<RunService>,
        who: &Principal,
        run: &LoadedRun,
        policy: QuestionPolicy,
    ) -> Result<Arc<RunHandle>, EngineError> {
        let row = &run.row;
        if let Some(handle) = self.handle(who, &row.run_id) {
            return Ok(handle);
        }
        if self.is_shared() {
            let is_driven = !self.store().is_abandoned(&row.run_id).await?;
            if !self.drives() && !is_driven {
                let engine = self.full_catalog().engine;
                engine.post_command(&row.run_id, &RunCommand::Resume).await?;
                self.dispatch(&row.run_id, Due::Now).await;
            }
            if !self.drives() || is_driven {
                return Ok(self.follow_row(row, policy));
            }
        }
        let acquire = Acquire::Take(TakeOver::IfAbandoned);
        Ok(self.resume(row, RunCommand::Resume, acquire, policy))
    }

    pub(super) fn resume(
        self: &Arc<RunService>,
        row: &RunRow,
        command: RunCommand,
        acquire: Acquire,
        policy: QuestionPolicy,
    ) -> Arc<RunHandle> {
        let waiting = self.registry.waiting_engine(&row.run_id);
        let engine = waiting.unwrap_or_else(|| self.engine_of(row.caller.as_ref()));
        let (run_id, name) = (row.run_id.clone(), row.name.clone());
        let handle = Arc::new(RunHandle::new(run_id, name, None, policy, owner(row)));
        self.registry.add_resumed(&handle);
        let (driven, service) = (handle.clone(), self.clone());
        self.drive(handle.clone(), engine.clone(), async move {
            let name = metric_name(&engine, &driven.composition);
            let watch = service.observing.watch(&*driven, name, &RequestOrigin::default());
            let questions = QuestionConfirmer { handle: driven.clone() };
            let only_resumes = command == RunCommand::Resume;
            let (take_over, lease) = match acquire {
                Acquire::Take(take_over) => (take_over, None),
                Acquire::Taken(lease) => (TakeOver::Recover, Some(lease)),
            };
            let request = ResumeRequest {
                command,
                take_over,
                lease,
                confirmer: &questions,
                observer: &watch,
                cancel: Box::pin(driven.cancelled()),
                ..ResumeRequest::new(driven.run_id.clone())
            };
            let outcome = match engine.resume(request).await {
                // The run has ended since its row was read: its end is the result.
                Err(EngineError::Store(StoreError::Ended { run_id, .. })) if only_resumes => {
                    Ok(engine.load_run(&run_id).await?.view())
                }
                Err(EngineError::Store(error @ StoreError::SetAside { .. })) => {
                    tracing::warn!(target: "segue::store", "{error}");
                    Err(error.into())
                }
                other => other,
            };
            service.note_attempt(&driven.run_id, &outcome);
            outcome
        });
        handle
    }

    /// The engine of the principal that started a run, held to its toolset.
    fn engine_of(&self, caller: Option<&Caller>) -> Engine {
        self.catalogs.within(caller.and_then(|caller| caller.toolset.as_ref())).engine
    }

    /// Drives a run to its end, whether or not a client waits.
    pub(super) fn drive(
        self: &Arc<RunService>,
        handle: Arc<RunHandle>,
        engine: Engine,
        work: impl Future<Output = RunOutcome> + Send + 'static,
    ) {
        let service = self.clone();
        self.registry.cancel_wake(&handle.run_id);
        // Two tasks, so that the second one reports a panic of the first.
        let work = self.threads.runs.spawn(work);
        let mut leaving = self.leaving.subscribe();
        // Not in the pool that drives runs: a run that blocks its thread must be detached, too.
        self.threads.requests.spawn(async move {
            let abort = work.abort_handle();
            let outcome = tokio::select! {
                outcome = work => match outcome {
                    Ok(outcome) => outcome,
                    Err(error) => {
                        log_join_panic(&format!("run {}", handle.run_id), error);
                        let why = "Segue itself failed, which is a defect of it";
                        // Before the run is released: else this process claims it again at once.
                        service.leave_for_a_while(&handle.run_id, why);
                        engine.release_run(&handle.run_id).await;
                        Err(stopped(&handle.run_id, why))
                    }
                },
                // Also when the process began to leave before this task waited.
                () = async { drop(leaving.wait_for(|leaving| *leaving).await) } => {
                    abort.abort();
                    handle.detach();
                    Err(stopped(&handle.run_id, "Segue ends"))
                }
            };
            let is_waiting = matches!(&outcome, Ok(view) if view.status == RunStatus::Waiting);
            // Before the handle is removed: a caller that resumes the run then stops this timer. Where
            // several processes share the store, the store knows when the run is due.
            if is_waiting && !service.is_shared() {
                service.schedule_wake(handle.run_id.clone(), engine.clone()).await;
            }
            service.registry.remove(&handle);
            service.registry.keep_engine(&handle.run_id, engine, is_waiting);
            handle.end(outcome);
        });
    }

    /// Resumes a waiting run when its timeout, or that of its question, has passed.
    pub(super) async fn schedule_wake(self: &Arc<RunService>, run_id: Arc<str>, engine: Engine) {
        let Ok(Some(at_ms)) = engine.resumes_at(&run_id).await else { return };
        let (service, which) = (self.clone(), run_id.clone());
        let mut leaving = self.leaving.subscribe();
        let wake = async move {
            let pause = Duration::from_millis(at_ms.saturating_sub(now_ms()));
            let leaves = tokio::time::timeout(pause, leaving.wait_for(|leaving| *leaving));
            let is_due = leaves.await.is_err();
            let row = engine.store().run(&which).await.ok().flatten();
            match row.filter(|row| is_due && row.status == RunStatus::Waiting) {
                Some(row) => {
                    service.resume(
                        &row,
                        RunCommand::Resume,
                        Acquire::Take(TakeOver::IfAbandoned),
                        QuestionPolicy::Defer,
                    );
                }
                None => service.registry.cancel_wake(&which),
            }
        };
        self.registry.set_wake(run_id, || self.threads.requests.spawn(wake).abort_handle());
    }

    /// Waits until this process drives no run, at most so long. A run that is left then is in its
    /// journal, and goes on when Segue starts again.
    pub async fn settle(&self, timeout: Duration) {
        let until = tokio::time::Instant::now() + timeout;
        loop {
            let Some(handle) = self.registry.any() else { return };
            if tokio::time::timeout_at(until, handle.ended()).await.is_err() {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Stops driving every run, before the tool servers are ended: the journal would record a call to
    /// a server that we ended as a failure. The next start resumes the runs.
    pub async fn detach_all(&self) {
        let handles = self.registry.all();
        self.full_catalog().engine.stop_all();
        self.leaving.send_replace(true);
        for handle in handles {
            handle.ended().await;
        }
        // Without this the next process would wait for the leases of a process that died.
        if let Err(error) = self.store().release_all().await {
            tracing::warn!(target: "segue::store", "{error}");
        }
    }
}

/// This process no longer drives the run.
pub(super) fn stopped(run_id: &Arc<str>, why: &str) -> EngineError {
    EngineError::Stopped { run_id: run_id.clone(), why: why.to_owned() }
}
