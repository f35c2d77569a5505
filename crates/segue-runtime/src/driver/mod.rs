//! Drivers move a run: effects become calls, calls become events. They decide nothing.

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
