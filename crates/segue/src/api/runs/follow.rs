//! Runs that other processes drive, followed for the clients of this one: their progress, their questions,
//! their end.
//!
//! A follower reads the journal from the store, and hands what it finds to the same [`RunHandle`] that a
//! driver would. What a client wants of the run goes through the store, too.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _};
use parking_lot::Mutex;
use segue_core::access::Principal;
use segue_core::run::{Question, QuestionId};
use segue_core::view::{RunStatus, RunView};
use segue_runtime::confirm::{Confirmer as _, Decision};
use segue_runtime::driver::{InputAck, Observer as _, RunCommand};
use segue_runtime::engine::{Engine, EngineError, PostedCommand, RunRequest};
use segue_runtime::store::{Due, RunRow, StoreError};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::handle::{QuestionConfirmer, QuestionPolicy, RunHandle, RunOutcome};
use super::recover::stopped;
use super::start::step_count;
use super::{RunService, StartRun, owner};
use crate::api::error::Error;
use crate::api::threads::log_join_panic;

/// How often the store is asked which of the followed runs changed.
const WATCH_EVERY: Duration = Duration::from_millis(50);

/// A run is read at least so often: the store does not report everything that may happen to it.
const READ_EVERY: Duration = Duration::from_secs(1);

/// A journal is read again after this many times the duration of its last reading.
const PAUSE_FACTOR: u32 = 5;

/// The runs that are followed, each with what wakes its followers.
#[derive(Default)]
pub(super) struct ChangeWatch {
    runs: Mutex<HashMap<Arc<str>, Arc<Notify>>>,
}

impl ChangeWatch {
    /// Forgets runs without followers; whether none is left. Decided under the lock, so that a follower
    /// that comes now starts another watcher.
    fn is_idle(&self) -> bool {
        let mut runs = self.runs.lock();
        runs.retain(|_, notify| Arc::strong_count(notify) > 1);
        runs.is_empty()
    }
}

impl RunService {
    /// What wakes a follower of a run when the run got entries.
    fn watch_changes(self: &Arc<RunService>, run_id: &Arc<str>) -> Arc<Notify> {
        let mut runs = self.change_watch.runs.lock();
        let is_first = runs.is_empty();
        let notify = runs.entry(run_id.clone()).or_default().clone();
        if is_first {
            self.threads().requests.spawn(watch_store(self.clone()));
        }
        notify
    }

    /// Writes a run, and leaves it to the processes that drive runs. Nothing if the run has values that are
    /// not stored, and this process can drive it.
    pub(super) async fn enqueue(
        self: &Arc<RunService>,
        who: &Principal,
        start: &StartRun,
    ) -> Result<Option<Arc<RunHandle>>, Error> {
        let (engine, caller) = (self.catalog(who).engine, who.caller());
        let runs_max = engine.limits().served_runs_max;
        if self.registry.followed_count() >= runs_max {
            let message = format!("{runs_max} runs are followed already; try again later");
            return Err(Error::busy(message));
        }
        let run_id = start.run_id.clone().unwrap_or_else(|| engine.new_run_id());
        let principal = Some(caller.principal.clone());
        let request = RunRequest {
            context: start.context.clone(),
            options: start.options.clone(),
            caller: Some(caller),
            run_id: Some(run_id.clone()),
            selection: start.selection.clone(),
            trace: self.observing.trace(&run_id, start.origin.trace.clone()),
            ..RunRequest::new(start.plan.clone(), start.input.clone())
        };
        let view = match engine.enqueue(request).await {
            Err(EngineError::NotStored { .. }) if self.drives() => return Ok(None),
            written => written?,
        };
        if view.started_at.is_none() {
            return Err(Error::not_admitted(view.errors));
        }
        self.dispatch(&run_id, Due::Now).await;
        let (name, steps) = (start.plan.composition.name.clone(), step_count(&start.plan));
        let handle = RunHandle::new(run_id, name, steps, start.policy, principal);
        Ok(Some(self.follow(handle, engine)))
    }

    /// Follows a run of the store that another process drives, or will drive.
    pub(super) fn follow_row(
        self: &Arc<RunService>,
        row: &RunRow,
        policy: QuestionPolicy,
    ) -> Arc<RunHandle> {
        let (run_id, name) = (row.run_id.clone(), row.name.clone());
        let handle = RunHandle::new(run_id, name, None, policy, owner(row));
        self.follow(handle, self.full_catalog().engine)
    }

    /// A run of the caller that this process drives or follows; one that another process drives is followed
    /// from now on.
    pub(super) async fn handle_or_follow(
        self: &Arc<RunService>,
        who: &Principal,
        run_id: &Arc<str>,
    ) -> Result<Option<Arc<RunHandle>>, StoreError> {
        if let Some(handle) = self.handle(who, run_id) {
            return Ok(Some(handle));
        }
        if !self.is_shared() {
            return Ok(None);
        }
        let row = self.row(who, run_id).await?;
        let moves = matches!(row.status, RunStatus::Pending | RunStatus::Running);
        Ok(moves.then(|| self.follow_row(&row, QuestionPolicy::Defer)))
    }

    fn follow(self: &Arc<RunService>, handle: RunHandle, engine: Engine) -> Arc<RunHandle> {
        let handle = self.registry.add_followed(Arc::new(handle));
        let follower = Follower {
            changes: self.watch_changes(&handle.run_id),
            service: self.clone(),
            handle: handle.clone(),
            engine,
            written: None,
            questions: Vec::new(),
            asked: Vec::new(),
            posted: Vec::new(),
            is_cancelled: false,
            read_time: Duration::ZERO,
        };
        // Two tasks, so that the second one reports a panic of the first.
        let work = self.threads.requests.spawn(follower.follow());
        let (service, followed) = (self.clone(), handle.clone());
        let mut leaving = self.leaving.subscribe();
        self.threads.requests.spawn(async move {
            let (abort, run_id) = (work.abort_handle(), followed.run_id.clone());
            let outcome = tokio::select! {
                outcome = work => outcome.unwrap_or_else(|error| {
                    log_join_panic(&format!("following run {run_id}"), error);
                    Err(stopped(&run_id, "Segue itself failed, which is a defect of it"))
                }),
                () = async { drop(leaving.wait_for(|leaving| *leaving).await) } => {
                    abort.abort();
                    followed.detach();
                    Err(stopped(&run_id, "Segue ends"))
                }
            };
            service.registry.remove_followed(&followed);
            followed.end(outcome);
        });
        handle
    }

    /// Leaves an action to the process that drives the run, now or next, and waits for what comes of it.
    pub(super) async fn act_elsewhere(
        self: &Arc<RunService>,
        who: &Principal,
        run_id: &str,
        command: &RunCommand,
        recorded: &watch::Sender<bool>,
    ) -> Result<RunView, EngineError> {
        let row = self.row(who, run_id).await?;
        let (run_id, engine) = (row.run_id, self.full_catalog().engine);
        let posted = engine.post_command(&run_id, command).await?;
        // It is durable: the next process that drives the run finds it.
        recorded.send_replace(true);
        self.dispatch(&run_id, Due::Now).await;
        let changes = self.watch_changes(&run_id);
        let acted = async {
            while !engine.is_taken(&posted).await? {
                woken(&changes, WATCH_EVERY * 2).await;
            }
            engine.follow(&run_id).await
        };
        // No caller waits longer.
        let limit = Duration::from_millis(self.limits().served_wait_ms_max);
        match tokio::time::timeout(limit, acted).await {
            Ok(outcome) => outcome,
            Err(_) => Ok(engine.load_run(&run_id).await?.view()),
        }
    }
}

/// Wakes the followers of runs that changed, as long as there are followers.
async fn watch_store(service: Arc<RunService>) {
    let mut since = None;
    while !service.change_watch.is_idle() {
        // A store that cannot be read now is read the next time.
        if let Ok(changes) = service.store().changes(since).await {
            since = Some(changes.next);
            let runs = service.change_watch.runs.lock();
            let changed = changes.runs.iter().filter_map(|change| runs.get(&change.row.run_id));
            changed.for_each(|notify| notify.notify_waiters());
            if changes.has_more {
                continue;
            }
        }
        tokio::time::sleep(WATCH_EVERY).await;
    }
}

async fn woken(changes: &Notify, most: Duration) {
    let _ = tokio::time::timeout(most, changes.notified()).await;
}

/// An open question, and its answer.
type Asking = (QuestionId, BoxFuture<'static, Option<Decision>>);

struct Follower {
    service: Arc<RunService>,
    handle: Arc<RunHandle>,
    engine: Engine,
    changes: Arc<Notify>,
    /// How many entries were read; none before the first reading.
    written: Option<u64>,
    /// Questions that a client is being asked.
    questions: Vec<Asking>,
    /// All questions that a client was asked.
    asked: Vec<QuestionId>,
    /// What was sent to the run, and what to acknowledge when it was taken.
    posted: Vec<(PostedCommand, InputAck)>,
    is_cancelled: bool,
    /// How long the last reading took.
    read_time: Duration,
}

/// What a follower waits for.
enum Event {
    Changed,
    Cancelled(Arc<str>),
    Answered(QuestionId, Option<Decision>),
}

impl Follower {
    async fn follow(mut self) -> RunOutcome {
        self.handle.recorded(InputAck::Start);
        loop {
            match self.read().await {
                Ok(Some(outcome)) => return outcome,
                Ok(None) => {}
                // The store may answer again soon.
                Err(EngineError::Store(StoreError::Unavailable { .. })) => {}
                Err(error) => return Err(error),
            }
            let handled = match self.next_event().await {
                Event::Changed => Ok(()),
                Event::Cancelled(by) => {
                    self.is_cancelled = true;
                    self.post(RunCommand::Cancel { by }, InputAck::Cancel).await
                }
                Event::Answered(question, decision) => self.answered(question, decision).await,
            };
            match handled {
                // The run has ended meanwhile: the next reading tells.
                Ok(()) | Err(EngineError::Store(StoreError::Ended { .. })) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads what is new; the outcome of a run that has ended, or waits for a person who is not here.
    async fn read(&mut self) -> Result<Option<RunOutcome>, EngineError> {
        let (run_id, store) = (self.handle.run_id.clone(), self.engine.store().clone());
        self.acknowledge().await?;
        let row = store.run(&run_id).await?;
        let row = row.ok_or_else(|| StoreError::Unknown { run_id: run_id.clone() })?;
        if self.written != Some(row.length) {
            return self.read_journal().await;
        }
        if let (Some(reason), RunStatus::Running) = (row.set_aside, row.status) {
            return Ok(Some(Err(StoreError::SetAside { run_id, reason }.into())));
        }
        let waits = row.status == RunStatus::Waiting;
        if waits && self.questions.is_empty() && self.posted.is_empty() {
            return Ok(Some(Ok(self.engine.load_run(&run_id).await?.view())));
        }
        Ok(None)
    }

    async fn read_journal(&mut self) -> Result<Option<RunOutcome>, EngineError> {
        let began = Instant::now();
        let loaded = self.engine.load_run(&self.handle.run_id).await?;
        let known = usize::try_from(self.written.unwrap_or(0)).unwrap_or(usize::MAX);
        let new = loaded.journal.get(known..).unwrap_or_default();
        self.handle.observe(&loaded.run, new);
        self.written = Some(loaded.journal.len() as u64);
        self.read_time = began.elapsed();
        if loaded.run.is_finished() {
            return Ok(Some(Ok(loaded.view())));
        }
        self.questions.retain(|(question, _)| loaded.run.has_open_question(*question));
        for question in loaded.run.questions() {
            if !self.asked.contains(&question.id) {
                self.asked.push(question.id);
                self.questions.push((question.id, ask(self.handle.clone(), question)));
            }
        }
        Ok(None)
    }

    /// Tells those that wait that what they sent is in the journal.
    async fn acknowledge(&mut self) -> Result<(), EngineError> {
        let mut left = Vec::new();
        for (posted, ack) in std::mem::take(&mut self.posted) {
            match self.engine.is_taken(&posted).await {
                Ok(true) => self.handle.recorded(ack),
                Ok(false) => left.push((posted, ack)),
                Err(error) => {
                    self.posted.push((posted, ack));
                    return Err(error);
                }
            }
        }
        self.posted = left;
        Ok(())
    }

    async fn next_event(&mut self) -> Event {
        let pause = (self.read_time * PAUSE_FACTOR).min(READ_EVERY);
        let most = if self.posted.is_empty() { READ_EVERY } else { WATCH_EVERY };
        let (changes, questions) = (&self.changes, &mut self.questions);
        let changed = async {
            woken(changes, most).await;
            tokio::time::sleep(pause).await;
        };
        tokio::select! {
            () = changed => Event::Changed,
            by = self.handle.cancelled(), if !self.is_cancelled => Event::Cancelled(by),
            (question, decision) = first_answer(questions) => Event::Answered(question, decision),
        }
    }

    async fn answered(
        &mut self,
        question: QuestionId,
        decision: Option<Decision>,
    ) -> Result<(), EngineError> {
        let ack = InputAck::Answer(question);
        let Some(Decision { granted, by, data }) = decision else {
            self.handle.recorded(ack);
            return Ok(());
        };
        self.post(RunCommand::Decide { question, granted, by, data }, ack).await
    }

    async fn post(&mut self, command: RunCommand, ack: InputAck) -> Result<(), EngineError> {
        let posted = self.engine.post_command(&self.handle.run_id, &command).await?;
        self.posted.push((posted, ack));
        self.service.dispatch(&self.handle.run_id, Due::Now).await;
        Ok(())
    }
}

/// Asks as the policy of the client says.
fn ask(handle: Arc<RunHandle>, question: Question) -> BoxFuture<'static, Option<Decision>> {
    async move { QuestionConfirmer { handle }.confirm(&question).await }.boxed()
}

/// The first answer; never without questions.
async fn first_answer(questions: &mut Vec<Asking>) -> (QuestionId, Option<Decision>) {
    poll_fn(|cx| {
        for at in 0..questions.len() {
            if let Poll::Ready(decision) = questions[at].1.poll_unpin(cx) {
                let (question, _) = questions.swap_remove(at);
                return Poll::Ready((question, decision));
            }
        }
        Poll::Pending
    })
    .await
}
