//! A run that this process drives: its progress, its open questions, its end. Clients watch it or not; the
//! run does not depend on them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::{Mutex, MutexGuard};
use segue_core::run::{CallId, Entry, Fact, Question, QuestionId, Run};
use segue_core::view::RunView;
use segue_runtime::confirm::{Confirmer, Decision, Defer, DenyAll};
use segue_runtime::driver::{InputAck, Observer};
use segue_runtime::engine::EngineError;
use segue_runtime::tools::Progress;
use tokio::sync::{broadcast, oneshot, watch};

use super::step_counts::ends_step;
use crate::print::escape_control;
use crate::step_events::{StepEvent, progress_event, step_event};

/// How many events a reader may be behind before it has to read the journal.
const BEHIND_MAX: usize = 256;

/// How a run ended.
pub type RunOutcome = Result<RunView, EngineError>;

/// The progress of a run.
#[derive(Clone, Default)]
pub struct RunProgress {
    /// How many steps have finished.
    pub steps_done: u32,
    /// The last event, as text.
    pub message: Arc<str>,
    /// How often a call has reported progress.
    pub progressed: u64,
    /// The progress that a call reported last, from 0 to 1, where it is known.
    pub fraction: Option<f64>,
    /// The open questions.
    pub questions: Vec<Arc<OpenQuestion>>,
    /// Whether its first turn is durable, and with it the action that started it.
    pub is_started: bool,
    /// Whether the cancellation is durable.
    pub is_cancelled: bool,
    /// How it ended; set once.
    pub outcome: Option<Arc<RunOutcome>>,
    /// Whether this process stopped driving it because it ends: the next start resumes the run.
    pub is_detached: bool,
}

/// An open question.
pub struct OpenQuestion {
    /// Counts from one within the run.
    pub id: u32,
    /// The question.
    pub question: Question,
}

/// A run that this process drives.
pub struct RunHandle {
    /// Its id.
    pub run_id: Arc<str>,
    /// Its composition.
    pub composition: Arc<str>,
    /// How many steps will run, where the plan decides it.
    pub steps: Option<u32>,
    /// Who answers its questions.
    pub policy: QuestionPolicy,
    /// The principal that started it.
    pub principal: Option<Arc<str>>,
    state: watch::Sender<RunProgress>,
    cancel: watch::Sender<Option<Arc<str>>>,
    answers: Mutex<Answers>,
    /// Made when the first client follows.
    events: OnceLock<broadcast::Sender<Arc<StepEvent>>>,
    /// The number of the last entry.
    last: AtomicU64,
}

#[derive(Default)]
struct Answers {
    asked: u32,
    pending: BTreeMap<u32, PendingAnswer>,
    /// Answers that were given and are not durable yet.
    unrecorded: Vec<(QuestionId, oneshot::Sender<()>)>,
}

/// Where the answer to an open question goes.
struct PendingAnswer {
    question: QuestionId,
    answer: oneshot::Sender<Option<Decision>>,
}

impl RunHandle {
    /// A run that is about to start or to go on.
    pub fn new(
        run_id: Arc<str>,
        composition: Arc<str>,
        steps: Option<u32>,
        policy: QuestionPolicy,
        principal: Option<Arc<str>>,
    ) -> RunHandle {
        RunHandle {
            run_id,
            composition,
            steps,
            policy,
            principal,
            state: watch::Sender::default(),
            cancel: watch::Sender::default(),
            answers: Mutex::default(),
            events: OnceLock::new(),
            last: AtomicU64::new(0),
        }
    }

    /// Its progress, now and whenever it changes.
    pub fn watch(&self) -> watch::Receiver<RunProgress> {
        self.state.subscribe()
    }

    /// Its events from now on; the earlier ones are in the journal.
    pub fn follow(&self) -> broadcast::Receiver<Arc<StepEvent>> {
        self.events.get_or_init(|| broadcast::Sender::new(BEHIND_MAX)).subscribe()
    }

    /// The open questions.
    pub fn questions(&self) -> Vec<Arc<OpenQuestion>> {
        self.state.borrow().questions.clone()
    }

    /// Waits until its start, or its resumption, is durable; the error says why it never was.
    pub async fn started(&self) -> Result<(), EngineError> {
        let state = self.until(|now| now.is_started).await;
        match state.outcome.as_deref() {
            Some(Err(error)) if !state.is_started => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Waits until this holds, or the run has ended.
    async fn until(&self, holds: impl Fn(&RunProgress) -> bool) -> RunProgress {
        let mut state = self.watch();
        let now = state.wait_for(|now| holds(now) || now.outcome.is_some()).await;
        now.expect("the sender lives as long as the run").clone()
    }

    /// Waits for its end.
    pub async fn ended(&self) -> Arc<RunOutcome> {
        self.until(|_| false).await.outcome.expect("it has ended")
    }

    /// Cancels it, and waits until that is durable. False when the run ended or was detached before it
    /// received that. `stop` interrupts its evaluation; only the first cancellation counts.
    pub async fn cancel(&self, by: Arc<str>, stop: impl FnOnce()) -> bool {
        self.cancel.send_if_modified(|cancel| {
            let is_first = cancel.is_none();
            if is_first {
                // First, because the run resets the interrupt when it receives the cancellation.
                stop();
                *cancel = Some(by);
            }
            is_first
        });
        self.until(|now| now.is_cancelled).await.is_cancelled
    }

    /// Resolves when a caller cancels it, to the name of that caller.
    pub async fn cancelled(&self) -> Arc<str> {
        let mut cancel = self.cancel.subscribe();
        let by = cancel.wait_for(Option::is_some).await.ok().and_then(|by| by.clone());
        match by {
            Some(by) => by,
            None => std::future::pending().await,
        }
    }

    /// Answers an open question, and waits until that is durable; without a decision the question stays
    /// open, and the run waits. False when the question was closed, or the run detached. The answer to a
    /// question of a tool call goes to the call, and not to the journal.
    pub async fn answer(&self, id: u32, decision: Option<Decision>) -> bool {
        let (recorded, is_recorded) = oneshot::channel();
        let Some(pending) = self.withdraw(id) else { return false };
        if !pending.question.is_in_journal() {
            return pending.answer.send(decision).is_ok();
        }
        self.answers().unrecorded.push((pending.question, recorded));
        pending.answer.send(decision).is_ok() && is_recorded.await.is_ok()
    }

    /// Closes a question.
    fn withdraw(&self, id: u32) -> Option<PendingAnswer> {
        let pending = self.answers().pending.remove(&id);
        self.state.send_modify(|state| state.questions.retain(|asked| asked.id != id));
        pending
    }

    /// Whether this process stopped driving it because it ends.
    pub fn is_detached(&self) -> bool {
        self.state.borrow().is_detached
    }

    /// Says that this process stops driving it.
    pub(super) fn detach(&self) {
        self.state.send_modify(|state| state.is_detached = true);
    }

    /// Says how it ended.
    pub(super) fn end(&self, outcome: RunOutcome) {
        self.answers().unrecorded.clear();
        self.state.send_modify(|state| {
            state.questions.clear();
            state.outcome.get_or_insert_with(|| Arc::new(outcome));
        });
    }

    fn answers(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock()
    }

    async fn ask(&self, question: &Question, timeout: Duration) -> Option<Decision> {
        let (answer, answered) = oneshot::channel();
        let id = {
            let mut answers = self.answers();
            answers.asked += 1;
            let id = answers.asked;
            answers.pending.insert(id, PendingAnswer { question: question.id, answer });
            id
        };
        let asked = Arc::new(OpenQuestion { id, question: question.clone() });
        self.state.send_modify(|state| state.questions.push(asked));
        let _guard = QuestionGuard { handle: self, id };
        let answered = tokio::time::timeout(timeout, answered).await;
        answered.ok().and_then(Result::ok).flatten()
    }
}

/// Closes a question when the run no longer waits for its answer: it was answered elsewhere, or too late.
struct QuestionGuard<'a> {
    handle: &'a RunHandle,
    id: u32,
}

impl Drop for QuestionGuard<'_> {
    // Work in `Drop`, because a run closes a question by dropping the future that waits for the answer.
    fn drop(&mut self) {
        self.handle.withdraw(self.id);
    }
}

impl Observer for RunHandle {
    fn observe(&self, run: &Run, entries: &[Entry]) {
        if let Some(events) = self.events.get().filter(|events| events.receiver_count() > 0) {
            for event in entries.iter().filter_map(|entry| step_event(run, entry)) {
                let _ = events.send(Arc::new(event));
            }
        }
        if let Some(entry) = entries.last() {
            self.last.store(entry.seq, Ordering::Relaxed);
        }
        let mut changes = entries.iter().rev().filter_map(|entry| match &entry.fact {
            Fact::Called { node, candidate, .. } => {
                Some(format!("{}: {}", run.path(*node), run.tool_name(*node, *candidate)))
            }
            Fact::Succeeded { node, .. }
            | Fact::Reused { node, .. }
            | Fact::Pinned { node, .. } => Some(format!("{}: done", run.path(*node))),
            Fact::Failed { node, .. } => Some(format!("{}: failed", run.path(*node))),
            Fact::Skipped { node, .. } | Fact::LeftOut { node } => {
                Some(format!("{}: skipped", run.path(*node)))
            }
            _ => None,
        });
        let Some(last) = changes.next() else { return };
        let done = entries.iter().filter(|entry| ends_step(&entry.fact)).count();
        self.state.send_modify(|state| {
            state.steps_done =
                state.steps_done.saturating_add(u32::try_from(done).unwrap_or(u32::MAX));
            state.message = last.as_str().into();
        });
    }

    fn progressed(&self, run: &Run, call: CallId, progress: &Progress) {
        if let Some(events) = self.events.get().filter(|events| events.receiver_count() > 0) {
            let last = self.last.load(Ordering::Relaxed);
            let _ = events.send(Arc::new(progress_event(run, call.node, last, progress)));
        }
        let message = format!("{}: {}", run.path(call.node), escape_control(&progress.to_string()));
        self.state.send_modify(|state| {
            state.progressed += 1;
            state.fraction = progress.fraction();
            state.message = message.as_str().into();
        });
    }

    fn recorded(&self, what: InputAck) {
        match what {
            InputAck::Start => self.state.send_modify(|state| state.is_started = true),
            InputAck::Cancel => self.state.send_modify(|state| state.is_cancelled = true),
            InputAck::Answer(question) => {
                let mut answers = self.answers();
                for (_, recorded) in answers.unrecorded.extract_if(.., |(of, _)| *of == question) {
                    // The client that answered may have disconnected.
                    let _ = recorded.send(());
                }
            }
        }
    }
}

/// Who answers the questions of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuestionPolicy {
    /// A client that watches the run; after this time the question stays open.
    Ask(Duration),
    /// No client: every call is denied, and a question that only a person can answer stays open.
    Deny,
    /// A later request: every question stays open.
    Defer,
}

/// Answers the questions of a run by its policy.
pub(super) struct QuestionConfirmer {
    pub(super) handle: Arc<RunHandle>,
}

#[async_trait]
impl Confirmer for QuestionConfirmer {
    async fn confirm(&self, question: &Question) -> Option<Decision> {
        match self.handle.policy {
            QuestionPolicy::Ask(timeout) => self.handle.ask(question, timeout).await,
            QuestionPolicy::Deny => DenyAll.confirm(question).await,
            QuestionPolicy::Defer => Defer.confirm(question).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use segue_core::run::{NodeId, QuestionKind};
    use segue_core::value::Value;

    use super::*;

    fn handle() -> RunHandle {
        let policy = QuestionPolicy::Ask(Duration::from_hours(1));
        RunHandle::new("r".into(), "c".into(), None, policy, None)
    }

    fn question(id: QuestionId) -> Question {
        let kind = QuestionKind::Approval { message: "really?".into(), schema: None };
        Question { id, step: "a".into(), kind }
    }

    /// A server may ask twice in one call: the first answer must not wait for an entry that is never
    /// written to the journal.
    #[tokio::test(start_paused = true)]
    async fn an_answer_to_a_call_is_not_awaited_in_the_journal() {
        let handle = handle();
        let yes = Decision { granted: true, by: "me".into(), data: Value::Null };
        for id in 1..=2 {
            let question = question(QuestionId::of_call(NodeId::RUN));
            let ask = handle.ask(&question, Duration::from_mins(1));
            let both = async { tokio::join!(ask, handle.answer(id, Some(yes.clone()))) };
            let both = tokio::time::timeout(Duration::from_mins(2), both).await;
            let (answer, is_told) = both.expect("neither waits for the journal");
            assert!(is_told && answer.is_some_and(|answer| answer.granted));
        }
    }

    /// An answer that the journal gets is awaited until it has it.
    #[tokio::test(start_paused = true)]
    async fn an_answer_to_a_run_is_awaited_in_the_journal() {
        let handle = handle();
        let id = QuestionId { node: NodeId::RUN, seq: 3 };
        let question = question(id);
        let mut ask = Box::pin(handle.ask(&question, Duration::from_mins(1)));
        assert!(futures_util::poll!(&mut ask).is_pending());
        let mut answer = Box::pin(handle.answer(1, None));
        assert!(futures_util::poll!(&mut answer).is_pending());
        assert!(ask.await.is_none());
        assert!(futures_util::poll!(&mut answer).is_pending());
        handle.recorded(InputAck::Answer(id));
        assert!(answer.await);
    }
}
