//! A run that is under way: how it stands, what it asks, how it ended. Whoever is interested looks;
//! nobody has to.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use segue_core::run::{CallId, Entry, Fact, Question, QuestionId, Run};
use segue_core::view::RunView;
use segue_runtime::confirm::{Confirmer, Decision, Defer, DenyAll};
use segue_runtime::driver::{InputAck, Observer};
use segue_runtime::engine::EngineError;
use segue_runtime::tools::Progress;
use tokio::sync::{broadcast, oneshot, watch};

use crate::print::escape_control;
use crate::step_events::{StepEvent, progress_event, step_event};

/// Events that a follower may be behind before it has to read them in the journal.
const BEHIND_MAX: usize = 256;

/// How a run ended.
pub type Outcome = Result<RunView, EngineError>;

/// How a run stands.
#[derive(Clone, Default)]
pub struct Standing {
    /// Steps that are over.
    pub steps_done: u32,
    /// The last thing that happened, in words.
    pub message: Arc<str>,
    /// How often a call has got further.
    pub progressed: u64,
    /// How much of the call that did so last is done, from 0 to 1, where that is known.
    pub fraction: Option<f64>,
    /// What somebody has to answer.
    pub questions: Vec<Arc<Asked>>,
    /// Whether its first turn is durable, with everything that was wanted of it then.
    pub is_begun: bool,
    /// Whether it is durable that it shall end.
    pub is_cancelled: bool,
    /// Set once, at the end.
    pub outcome: Option<Arc<Outcome>>,
    /// Whether it was left where it is, because Segue ends: the next start goes on with it.
    pub is_left: bool,
}

/// A question that stands.
pub struct Asked {
    /// Counts from one within the run.
    pub id: u32,
    /// What is asked.
    pub question: Question,
}

/// A run that is under way.
pub struct Active {
    /// Its id.
    pub run_id: Arc<str>,
    /// Its composition.
    pub composition: Arc<str>,
    /// Steps that its plan has, where that says how many will run.
    pub steps: Option<u32>,
    /// Who answers its questions.
    pub asking: Asking,
    /// Whose it is.
    pub principal: Option<Arc<str>>,
    standing: watch::Sender<Standing>,
    cancel: watch::Sender<Option<Arc<str>>>,
    answers: Mutex<Answers>,
    /// There once somebody follows.
    events: OnceLock<broadcast::Sender<Arc<StepEvent>>>,
    /// The number of the last entry.
    last: AtomicU64,
}

#[derive(Default)]
struct Answers {
    asked: u32,
    open: BTreeMap<u32, Open>,
    /// Answers that were given and are not durable yet.
    unrecorded: Vec<(QuestionId, oneshot::Sender<()>)>,
}

/// A question that nobody has answered.
struct Open {
    question: QuestionId,
    answer: oneshot::Sender<Option<Decision>>,
}

impl Active {
    /// A run that is about to begin or to go on.
    pub fn new(
        run_id: Arc<str>,
        composition: Arc<str>,
        steps: Option<u32>,
        asking: Asking,
        principal: Option<Arc<str>>,
    ) -> Active {
        Active {
            run_id,
            composition,
            steps,
            asking,
            principal,
            standing: watch::Sender::default(),
            cancel: watch::Sender::default(),
            answers: Mutex::default(),
            events: OnceLock::new(),
            last: AtomicU64::new(0),
        }
    }

    /// How it stands, now and whenever that changes.
    pub fn watch(&self) -> watch::Receiver<Standing> {
        self.standing.subscribe()
    }

    /// What happens from now on; what happened before is in the journal.
    pub fn follow(&self) -> broadcast::Receiver<Arc<StepEvent>> {
        self.events.get_or_init(|| broadcast::Sender::new(BEHIND_MAX)).subscribe()
    }

    /// What somebody has to answer now.
    pub fn questions(&self) -> Vec<Arc<Asked>> {
        self.standing.borrow().questions.clone()
    }

    /// Waits until it is durable that it began, or goes on; the error says why it never did.
    pub async fn begun(&self) -> Result<(), EngineError> {
        let standing = self.until(|now| now.is_begun).await;
        match standing.outcome.as_deref() {
            Some(Err(error)) if !standing.is_begun => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// How it stands when this holds, or when it is over.
    async fn until(&self, holds: impl Fn(&Standing) -> bool) -> Standing {
        let mut standing = self.watch();
        let now = standing.wait_for(|now| holds(now) || now.outcome.is_some()).await;
        now.expect("the sender lives as long as the run").clone()
    }

    /// How it ended, once it has.
    pub async fn ended(&self) -> Arc<Outcome> {
        self.until(|_| false).await.outcome.expect("it is over")
    }

    /// Has it end, and waits until that is durable. False when it was left before it heard. `stop` has
    /// what it evaluates end; it hears of one cancel only.
    pub async fn cancel(&self, by: Arc<str>, stop: impl FnOnce()) -> bool {
        self.cancel.send_if_modified(|cancel| {
            let is_first = cancel.is_none();
            if is_first {
                // Before the run can hear of it: hearing takes the stop back.
                stop();
                *cancel = Some(by);
            }
            is_first
        });
        self.until(|now| now.is_cancelled).await.is_cancelled
    }

    /// Resolves when somebody wants it to end, to who does.
    pub async fn cancelled(&self) -> Arc<str> {
        let mut cancel = self.cancel.subscribe();
        let by = cancel.wait_for(Option::is_some).await.ok().and_then(|by| by.clone());
        match by {
            Some(by) => by,
            None => std::future::pending().await,
        }
    }

    /// Answers a question that stands, and waits until that is durable; nothing leaves the question
    /// open, and the run waits. False when the question did not stand, or the run was left. The answer
    /// to a question of a call goes to the call alone, and is not awaited.
    pub async fn answer(&self, id: u32, decision: Option<Decision>) -> bool {
        let (recorded, is_recorded) = oneshot::channel();
        let Some(open) = self.withdraw(id) else { return false };
        if !open.question.is_in_journal() {
            return open.answer.send(decision).is_ok();
        }
        self.answers().unrecorded.push((open.question, recorded));
        open.answer.send(decision).is_ok() && is_recorded.await.is_ok()
    }

    /// A question does not stand any more.
    fn withdraw(&self, id: u32) -> Option<Open> {
        let open = self.answers().open.remove(&id);
        self.standing.send_modify(|standing| standing.questions.retain(|asked| asked.id != id));
        open
    }

    /// Whether it was left where it is, because Segue ends.
    pub fn is_left(&self) -> bool {
        self.standing.borrow().is_left
    }

    /// Says that it is left where it is.
    pub(super) fn leave(&self) {
        self.standing.send_modify(|standing| standing.is_left = true);
    }

    /// Says how it ended.
    pub(super) fn end(&self, outcome: Outcome) {
        self.answers().unrecorded.clear();
        self.standing.send_modify(|standing| {
            standing.questions.clear();
            standing.outcome.get_or_insert_with(|| Arc::new(outcome));
        });
    }

    fn answers(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn ask(&self, question: &Question, patience: Duration) -> Option<Decision> {
        let (answer, answered) = oneshot::channel();
        let id = {
            let mut answers = self.answers();
            answers.asked += 1;
            let id = answers.asked;
            answers.open.insert(id, Open { question: question.id, answer });
            id
        };
        let asked = Arc::new(Asked { id, question: question.clone() });
        self.standing.send_modify(|standing| standing.questions.push(asked));
        let _standing = Withdrawing { active: self, id };
        let answered = tokio::time::timeout(patience, answered).await;
        answered.ok().and_then(Result::ok).flatten()
    }
}

/// A question stands as long as somebody waits for its answer: not when it was answered elsewhere, nor
/// when it is too late.
struct Withdrawing<'a> {
    active: &'a Active,
    id: u32,
}

impl Drop for Withdrawing<'_> {
    // Work in `Drop`, because a run withdraws a question by no longer waiting for the answer.
    fn drop(&mut self) {
        self.active.withdraw(self.id);
    }
}

impl Observer for Active {
    fn observe(&self, run: &Run, entries: &[Entry]) {
        if let Some(events) = self.events.get().filter(|events| events.receiver_count() > 0) {
            for event in entries.iter().filter_map(|entry| step_event(run, entry)) {
                let _ = events.send(Arc::new(event));
            }
        }
        if let Some(entry) = entries.last() {
            self.last.store(entry.seq, Ordering::Relaxed);
        }
        let changes = entries.iter().filter_map(|entry| match &entry.fact {
            Fact::Called { node, candidate, .. } => {
                Some((false, format!("{}: {}", run.path(*node), run.tool_name(*node, *candidate))))
            }
            Fact::Succeeded { node, .. } => Some((true, format!("{}: done", run.path(*node)))),
            Fact::Failed { node, .. } => Some((true, format!("{}: failed", run.path(*node)))),
            Fact::Skipped { node, .. } => Some((true, format!("{}: skipped", run.path(*node)))),
            _ => None,
        });
        let changes: Vec<(bool, String)> = changes.collect();
        let Some((_, last)) = changes.last() else { return };
        let done = changes.iter().filter(|(is_over, _)| *is_over).count();
        self.standing.send_modify(|standing| {
            standing.steps_done =
                standing.steps_done.saturating_add(u32::try_from(done).unwrap_or(u32::MAX));
            standing.message = last.as_str().into();
        });
    }

    fn progressed(&self, run: &Run, call: CallId, progress: &Progress) {
        if let Some(events) = self.events.get().filter(|events| events.receiver_count() > 0) {
            let last = self.last.load(Ordering::Relaxed);
            let _ = events.send(Arc::new(progress_event(run, call.node, last, progress)));
        }
        let message = format!("{}: {}", run.path(call.node), escape_control(&progress.to_string()));
        self.standing.send_modify(|standing| {
            standing.progressed += 1;
            standing.fraction = progress.fraction();
            standing.message = message.as_str().into();
        });
    }

    fn recorded(&self, what: InputAck) {
        match what {
            InputAck::Start => self.standing.send_modify(|standing| standing.is_begun = true),
            InputAck::Cancel => self.standing.send_modify(|standing| standing.is_cancelled = true),
            InputAck::Answer(question) => {
                let mut answers = self.answers();
                for (_, recorded) in answers.unrecorded.extract_if(.., |(of, _)| *of == question) {
                    // Whoever answered may be gone.
                    let _ = recorded.send(());
                }
            }
        }
    }
}

/// Who answers the questions of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asking {
    /// Somebody who looks at how it stands; after a while the question is left open.
    Whoever(Duration),
    /// Nobody: no call is allowed, and what only a person can know is left open.
    Nobody,
    /// Somebody who comes later: every question is left open.
    Later,
}

/// The confirmer of a run that is under way.
pub(super) struct Questions {
    pub(super) active: Arc<Active>,
}

#[async_trait]
impl Confirmer for Questions {
    async fn confirm(&self, question: &Question) -> Option<Decision> {
        match self.active.asking {
            Asking::Whoever(patience) => self.active.ask(question, patience).await,
            Asking::Nobody => DenyAll.confirm(question).await,
            Asking::Later => Defer.confirm(question).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use segue_core::run::{NodeId, QuestionKind};
    use segue_core::value::Value;

    use super::*;

    fn active() -> Active {
        let patience = Duration::from_hours(1);
        Active::new("r".into(), "c".into(), None, Asking::Whoever(patience), None)
    }

    fn question(id: QuestionId) -> Question {
        let kind = QuestionKind::Approval { message: "really?".into(), schema: None };
        Question { id, step: "a".into(), kind }
    }

    /// A server may ask twice in one call: the first answer must not wait for an entry that the journal
    /// never gets.
    #[tokio::test(start_paused = true)]
    async fn an_answer_to_a_call_is_not_awaited_in_the_journal() {
        let active = active();
        let yes = Decision { granted: true, by: "me".into(), data: Value::Null };
        for id in 1..=2 {
            let question = question(QuestionId::of_call(NodeId::RUN));
            let ask = active.ask(&question, Duration::from_mins(1));
            let both = async { tokio::join!(ask, active.answer(id, Some(yes.clone()))) };
            let both = tokio::time::timeout(Duration::from_mins(2), both).await;
            let (answer, is_told) = both.expect("neither waits for the journal");
            assert!(is_told && answer.is_some_and(|answer| answer.granted));
        }
    }

    /// An answer that the journal gets is awaited until it has it.
    #[tokio::test(start_paused = true)]
    async fn an_answer_to_a_run_is_awaited_in_the_journal() {
        let active = active();
        let id = QuestionId { node: NodeId::RUN, seq: 3 };
        let question = question(id);
        let mut ask = Box::pin(active.ask(&question, Duration::from_mins(1)));
        assert!(futures_util::poll!(&mut ask).is_pending());
        let mut answer = Box::pin(active.answer(1, None));
        assert!(futures_util::poll!(&mut answer).is_pending());
        assert!(ask.await.is_none());
        assert!(futures_util::poll!(&mut answer).is_pending());
        active.recorded(InputAck::Answer(id));
        assert!(answer.await);
    }
}
