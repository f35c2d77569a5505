//! Drivers move a run: they turn effects into calls and results into events. They take no
//! decisions.

mod append;
mod call;
mod drive;
mod ids;
mod local;

use std::sync::Arc;

use async_trait::async_trait;
use segue_core::run::{CallId, Entry, Question, QuestionId, QuestionKind, Run};
use segue_core::value::Value;

pub use drive::{DriverContext, Expand, StartMode};
pub use ids::{IdSource, now_ms};
pub use local::drive;

use crate::tools::Progress;

/// Answers the questions of a run.
#[async_trait]
pub trait Confirmer: Send + Sync {
    /// The answer and who gave it. `None` leaves the question open, and the run waits.
    async fn confirm(&self, question: &Question) -> Option<Decision>;
}

/// An answer to a question.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// Yes or no. Of a call in doubt: whether it did its work.
    pub granted: bool,
    /// Who answered.
    pub by: Arc<str>,
    /// Data that comes with the answer: the data of an approval, or the value that a call in doubt
    /// returned.
    pub data: Value,
}

/// For runs without a person: denies calls that ask, and leaves questions open that only a person
/// can answer.
pub struct DenyAll;

#[async_trait]
impl Confirmer for DenyAll {
    async fn confirm(&self, question: &Question) -> Option<Decision> {
        match question.kind {
            QuestionKind::Run { .. } | QuestionKind::Call { .. } => {
                Some(Decision { granted: false, by: "nobody".into(), data: Value::Null })
            }
            QuestionKind::Approval { .. } | QuestionKind::Doubt { .. } => None,
        }
    }
}

/// Leaves every question open, for a later answer.
pub struct Defer;

#[async_trait]
impl Confirmer for Defer {
    async fn confirm(&self, _question: &Question) -> Option<Decision> {
        None
    }
}

/// Watches a run. The driver calls it after a turn's entries are durable and before it performs the
/// turn's effects.
pub trait Observer: Send + Sync {
    /// The entries of a turn.
    fn observe(&self, run: &Run, entries: &[Entry]);

    /// A call in flight reports progress.
    fn progressed(&self, _run: &Run, _call: CallId, _progress: &Progress) {}

    /// A run resumes with this journal. None of the entries is new.
    fn resumed(&self, _run: &Run, _journal: &[Entry]) {}

    /// An input from outside is durable, with everything that follows from it. Acknowledge it no
    /// earlier.
    fn recorded(&self, _what: InputAck) {}
}

/// An input from outside that is acknowledged once it is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputAck {
    /// The run started, or resumed with the commands that were pending.
    Start,
    /// A request to cancel the run.
    Cancel,
    /// The answer to this question, or the fact that it needs none any more.
    Answer(QuestionId),
}

/// Ignores everything.
pub struct NoObserver;

impl Observer for NoObserver {
    fn observe(&self, _run: &Run, _entries: &[Entry]) {}
}
