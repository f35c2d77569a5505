//! Drivers move a run: they turn effects into calls and results into events. They take no
//! decisions.

mod append;
mod call;
mod commands;
mod drive;
mod evaluations;
mod ids;
mod local;
mod unreleased_leases;

use segue_core::run::{CallId, Entry, QuestionId, Run};

pub(crate) use commands::CommandRouter;
pub use commands::RunCommand;
pub use drive::{DriverContext, Expand, StartMode};
pub use ids::{IdSource, now_ms};
pub use local::drive;
pub(crate) use unreleased_leases::UnreleasedLeases;

use crate::tools::Progress;

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
