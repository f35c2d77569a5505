//! Runs and commands that this process writes down, and that another one performs: what several processes
//! with one store leave to each other.

use std::sync::Arc;

use segue_core::plan::Plan;
use segue_core::run::{Entry, Fact, Run};
use segue_core::version;
use segue_core::view::RunView;

use super::{Engine, EngineError, RunRequest, view_of};
use crate::driver::{RunCommand, now_ms};
use crate::store::{AppendRecord, Due, Lease, NewRun, RunRow, StoreError, TakeOver};

/// A command that lies in the store until the process that drives its run takes it.
#[derive(Clone, Debug)]
pub struct PostedCommand {
    run_id: Arc<str>,
    /// None if the run was only made due.
    number: Option<u64>,
    /// The epoch of the run when it was made due.
    epoch: u64,
}

impl Engine {
    /// Writes the beginning of a run, and leaves it to whichever process claims it. The view is that of a run
    /// that begins, or of one that is refused.
    pub async fn enqueue(&self, mut request: RunRequest<'_>) -> Result<RunView, EngineError> {
        let (mut run, started) = match self.prepare(&mut request, None) {
            Ok(prepared) => prepared,
            Err(refused) => return Ok(*refused),
        };
        let RunRequest { plan, selection, observer, .. } = request;
        let run_id = started.run_id.clone();
        let entries = run.begin(now_ms(), started, selection);
        let entries = run.redacted(&entries).into_owned();
        self.check_stored(&plan, &entries)?;
        let store = &self.inner.store;
        let record = AppendRecord {
            expected: 0,
            entries: &entries,
            status: run.status(),
            measured: &[],
            is_part: run.is_part(),
        };
        let lease = store.create(NewRun { run_id: &run_id, plan: &plan }, record).await?;
        observer.observe(&run, &entries);
        let view = view_of(&**store, &run).await;
        self.leave(&lease, run).await;
        Ok(view)
    }

    /// Writes that a person wants the rollback of a run that has ended, and leaves it to whichever process
    /// claims the run.
    pub async fn enqueue_rollback(
        &self,
        run_id: &Arc<str>,
        by: &Arc<str>,
    ) -> Result<PostedCommand, EngineError> {
        let store = &self.inner.store;
        let lease = store.acquire(run_id, TakeOver::Reopen).await?;
        let written = async {
            let mut loaded = self.load_run(run_id).await?;
            let entries = loaded.run.request_rollback(now_ms(), by.clone());
            let entries = loaded.run.redacted(&entries).into_owned();
            let (expected, status) = (loaded.journal.len() as u64, loaded.run.status());
            let is_part = loaded.run.is_part();
            if !entries.is_empty() {
                let record =
                    AppendRecord { expected, entries: &entries, status, measured: &[], is_part };
                store.append(&lease, record).await?;
            }
            Ok::<_, EngineError>(loaded.run)
        };
        match written.await {
            Ok(run) => self.leave(&lease, run).await,
            Err(error) => {
                self.inner.unreleased.release(&**store, lease).await;
                return Err(error);
            }
        }
        let posted = PostedCommand { run_id: run_id.clone(), number: None, epoch: 0 };
        Ok(posted)
    }

    /// Leaves a command to the process that drives the run, now or next; it is durable then.
    pub async fn post_command(
        &self,
        run_id: &Arc<str>,
        command: &RunCommand,
    ) -> Result<PostedCommand, EngineError> {
        let store = &self.inner.store;
        match command {
            RunCommand::Resume => return self.make_due(run_id).await,
            RunCommand::RollBack { by } if self.row(run_id).await?.ended_ms.is_some() => {
                return self.enqueue_rollback(run_id, by).await;
            }
            RunCommand::RollBack { .. } | RunCommand::Cancel { .. } | RunCommand::Decide { .. } => {
            }
        }
        let text = serde_json::to_string(command).unwrap_or_default().into();
        let number = store.send_command(run_id, &text).await?;
        if self.row(run_id).await?.set_aside.is_some() {
            // A person decides about it now, so that a process may try again.
            self.make_due(run_id).await?;
        }
        Ok(PostedCommand { run_id: run_id.clone(), number: Some(number), epoch: 0 })
    }

    /// Whether a process has taken the command, or drives the run that was made due.
    pub async fn is_taken(&self, posted: &PostedCommand) -> Result<bool, EngineError> {
        if let Some(number) = posted.number {
            let pending = self.inner.store.pending_commands().await?;
            return Ok(pending.iter().all(|command| command.number != number));
        }
        let row = self.row(&posted.run_id).await?;
        Ok(row.owner.is_some() || row.epoch > posted.epoch)
    }

    /// Makes a run due that no living process drives, also one that is set aside.
    async fn make_due(&self, run_id: &Arc<str>) -> Result<PostedCommand, EngineError> {
        let store = &self.inner.store;
        let epoch = match store.acquire(run_id, TakeOver::IfAbandoned).await {
            Ok(lease) => {
                store.release_until(&lease, Due::Now).await?;
                // The release makes it one more, the next owner two.
                lease.epoch + 1
            }
            Err(StoreError::Owned { .. }) => 0,
            Err(error) => return Err(error.into()),
        };
        Ok(PostedCommand { run_id: run_id.clone(), number: None, epoch })
    }

    /// Releases a run that this process does not drive, until it can go on.
    async fn leave(&self, lease: &Lease, run: Run) {
        let due = if run.is_waiting() {
            run.next_timer_ms(now_ms()).map_or(Due::OnCommand, Due::At)
        } else {
            Due::Now
        };
        let store = &self.inner.store;
        if store.release_until(lease, due).await.is_err() {
            // The entries are durable: the run goes on as soon as it can be released.
            self.inner.unreleased.release(&**store, lease.clone()).await;
        }
    }

    /// Fails if the entries of a run leave out a value that only this process has.
    fn check_stored(&self, plan: &Arc<Plan>, entries: &[Entry]) -> Result<(), EngineError> {
        let stored = Run::replay(plan.clone(), self.inner.limits.clone(), entries)
            .expect("a run reads its own entries");
        let (input, context) = stored.input_and_context();
        for (given, part) in [(input, "input"), (context, "context")] {
            if let Some(name) = stored.redacted_member(given) {
                return Err(EngineError::NotStored { part, name });
            }
        }
        match stored.redacted_pin() {
            Some(name) => Err(EngineError::NotStored { part: "mocks", name }),
            None => Ok(()),
        }
    }

    pub(super) async fn row(&self, run_id: &Arc<str>) -> Result<RunRow, EngineError> {
        let unknown = || StoreError::Unknown { run_id: run_id.clone() };
        Ok(self.inner.store.run(run_id).await?.ok_or_else(unknown)?)
    }

    /// Fails if a newer engine began the run, whose entries this one may not know.
    pub(super) fn check_version(journal: &[Entry]) -> Result<(), EngineError> {
        let began = journal.iter().find_map(|entry| match &entry.fact {
            Fact::Started(started) => Some(started.engine.clone()),
            _ => None,
        });
        match began.filter(|began| !version::may_continue(version::ENGINE, began)) {
            Some(version) => Err(EngineError::NewerEngine { version }),
            None => Ok(()),
        }
    }
}
