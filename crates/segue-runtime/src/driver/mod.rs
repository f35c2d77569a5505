//! Drivers move a run: effects become calls, calls become events. They decide nothing.

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
    /// The answer, and whose it is; nothing leaves the question open, and the run waits.
    async fn confirm(&self, question: &Question) -> Option<Decision>;
}

/// An answer to a question.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// Yes or no. Of a call in doubt: whether it did its work.
    pub granted: bool,
    /// Whose word it is.
    pub by: Arc<str>,
    /// What comes with it: the data of an approval, or what a call in doubt returned.
    pub data: Value,
}

/// Nobody is there to ask: no call is allowed, and what only a person can know is left open.
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

/// Leaves every question to somebody who comes later.
pub struct Defer;

#[async_trait]
impl Confirmer for Defer {
    async fn confirm(&self, _question: &Question) -> Option<Decision> {
        None
    }
}

/// Watches a run. Called after the entries are durable, before what they announce is done.
pub trait Observer: Send + Sync {
    /// Something became true.
    fn observe(&self, run: &Run, entries: &[Entry]);

    /// A call that is under way has got further.
    fn progressed(&self, _run: &Run, _call: CallId, _progress: &Progress) {}

    /// A run goes on whose journal is this. Nothing of it is new.
    fn resumed(&self, _run: &Run, _journal: &[Entry]) {}

    /// Something that came from outside is durable, with everything that follows from it. Only now may
    /// it be acknowledged.
    fn recorded(&self, _what: InputAck) {}
}

/// What comes to a run from outside and is acknowledged once it is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputAck {
    /// The run began, or goes on with everything that was wanted of it at that moment.
    Start,
    /// The wish that the run ends.
    Cancel,
    /// The answer to this question, or that nobody has to answer it any more.
    Answer(QuestionId),
}

/// Looks away.
pub struct NoObserver;

impl Observer for NoObserver {
    fn observe(&self, _run: &Run, _entries: &[Entry]) {}
}
