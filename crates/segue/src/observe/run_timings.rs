//! The journal of a run → what began and what ended, for those who count and those who tell.
//!
//! A step begins with the first fact about it and ends with the one that settles it. An attempt begins
//! when a tool, or a composition in its place, is entered upon, and ends with the next fact that says
//! what came of it. What happened before a run was interrupted is read from its journal, so that what
//! ends afterwards has its beginning.

use std::collections::HashMap;
use std::sync::Arc;

use segue_core::diagnostic::Code;
use segue_core::run::{CallId, Entry, Fact, Failure, NodeId, Purpose, Run};
use segue_core::tool::Backend;
use segue_core::view::{RunStatus, StepStatus};

/// What is known of a run that is under way.
#[derive(Default)]
pub struct RunTimings {
    /// When it began, or was taken up again to be taken back.
    began_ms: u64,
    /// How often it was over.
    ends: u32,
    steps: HashMap<NodeId, OpenStep>,
}

/// A step that has begun.
#[derive(Default)]
struct OpenStep {
    began_ms: u64,
    /// Attempts so far, of any purpose: what the run numbers its calls by.
    attempts: u32,
    attempt: Option<Attempt>,
}

/// One attempt of a step.
#[derive(Clone)]
pub struct Attempt {
    /// Which.
    pub call: CallId,
    /// The tool.
    pub tool: Arc<str>,
    /// Where that runs.
    pub backend: Backend,
    /// What it is for.
    pub purpose: Purpose,
    /// When it was announced, in milliseconds since 1970.
    pub began_ms: u64,
}

impl Attempt {
    /// The word for what it is for.
    pub fn purpose_name(&self) -> &'static str {
        match self.purpose {
            Purpose::Work => "do",
            Purpose::Rollback => "undo",
            Purpose::Probe => "probe",
        }
    }
}

/// How something ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanOutcome {
    /// Well.
    Done,
    /// Not well.
    Failed(Code),
    /// Not well, and its author had a value ready for that.
    Tolerated(Code),
    /// Nobody knows whether it did its work.
    InDoubt(Code),
    /// It was stopped, and has done nothing.
    Cancelled,
    /// The engine stopped while it was under way.
    Lost,
    /// It was not needed.
    Skipped,
    /// An earlier run had done it.
    Reused,
}

impl SpanOutcome {
    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            SpanOutcome::Done => "succeeded",
            SpanOutcome::Failed(_) => "failed",
            SpanOutcome::Tolerated(_) => "tolerated",
            SpanOutcome::InDoubt(_) => "in_doubt",
            SpanOutcome::Cancelled => "cancelled",
            SpanOutcome::Lost => "lost",
            SpanOutcome::Skipped => "skipped",
            SpanOutcome::Reused => "reused",
        }
    }

    /// What went wrong, for programs.
    pub fn error(self) -> Option<&'static str> {
        match self {
            SpanOutcome::Failed(code)
            | SpanOutcome::Tolerated(code)
            | SpanOutcome::InDoubt(code) => Some(code.as_str()),
            SpanOutcome::Cancelled => Some(Code::Cancelled.as_str()),
            SpanOutcome::Lost => Some("lost"),
            SpanOutcome::Done | SpanOutcome::Skipped | SpanOutcome::Reused => None,
        }
    }
}

/// What is told of a run.
pub enum RunUpdate<'a> {
    /// The run began.
    Began,
    /// An attempt ended.
    Attempt(&'a Attempt, SpanOutcome),
    /// A step is settled.
    Step {
        /// The step.
        node: NodeId,
        /// When it began, if it did.
        began_ms: Option<u64>,
        /// How it ended.
        outcome: SpanOutcome,
    },
    /// A step will be tried again.
    Retried(NodeId),
    /// What was done is being taken back.
    RollingBack,
    /// The run is over.
    Ended {
        /// When it began.
        began_ms: u64,
        /// How often it was over before.
        before: u32,
        /// How it stands.
        status: RunStatus,
        /// What went wrong with the run as a whole.
        code: Option<Code>,
    },
}

impl RunTimings {
    /// Takes in an entry, and tells what follows from it.
    pub fn apply(&mut self, run: &Run, entry: &Entry, tell: &mut dyn FnMut(&RunUpdate<'_>)) {
        let at_ms = entry.at_ms;
        match &entry.fact {
            Fact::Started(_) => {
                self.began_ms = at_ms;
                tell(&RunUpdate::Began);
            }
            Fact::RollbackAsked { .. } => self.began_ms = at_ms,
            Fact::RollbackStarted { .. } => tell(&RunUpdate::RollingBack),
            Fact::Finished { status, failure, .. } => {
                let code = failure.as_ref().map(|failure| failure.code);
                let (began_ms, before, status) = (self.began_ms, self.ends, *status);
                tell(&RunUpdate::Ended { began_ms, before, status, code });
                self.ends += 1;
            }
            fact => {
                let Some(node) = fact.node() else { return };
                if let Some(outcome) = attempt_ended(run, fact)
                    && let Some(open) = self.steps.get_mut(&node)
                    && let Some(attempt) = open.attempt.take()
                {
                    tell(&RunUpdate::Attempt(&attempt, outcome));
                }
                if let Fact::BackedOff { .. } | Fact::RollbackBackedOff { .. } = fact {
                    tell(&RunUpdate::Retried(node));
                }
                if let Some(outcome) = step_ended(run, fact) {
                    // Its attempts are counted on: what takes it back comes later.
                    let began_ms = self.steps.get(&node).map(|open| open.began_ms);
                    tell(&RunUpdate::Step { node, began_ms, outcome });
                } else {
                    self.goes_on(run, node, fact, at_ms);
                }
            }
        }
    }

    /// A step that is not settled by a fact has begun, and perhaps an attempt of it.
    fn goes_on(&mut self, run: &Run, node: NodeId, fact: &Fact, at_ms: u64) {
        let open = self
            .steps
            .entry(node)
            .or_insert_with(|| OpenStep { began_ms: at_ms, ..OpenStep::default() });
        let Some((candidate, purpose)) = attempt_began(fact) else { return };
        open.attempts += 1;
        let tool = run.tool_for(node, candidate, purpose);
        let (tool, backend) = match tool {
            Some(tool) => (tool.id.to_string().into(), tool.backend),
            None => (run.tool_name(node, candidate).into(), Backend::Local),
        };
        let call = CallId { node, attempt: open.attempts };
        open.attempt = Some(Attempt { call, tool, backend, purpose, began_ms: at_ms });
    }
}

/// Which candidate an attempt that begins is of, and what it is for.
fn attempt_began(fact: &Fact) -> Option<(u16, Purpose)> {
    match fact {
        Fact::Called { candidate, .. } | Fact::Entered { candidate, .. } => {
            Some((*candidate, Purpose::Work))
        }
        Fact::Probed { .. } => Some((0, Purpose::Probe)),
        Fact::RollbackCalled { .. } | Fact::RollbackEntered { .. } => Some((0, Purpose::Rollback)),
        _ => None,
    }
}

/// What came of the attempt that is under way.
fn attempt_ended(run: &Run, fact: &Fact) -> Option<SpanOutcome> {
    let failed = |failure: &Failure| {
        let is_known = !failure.in_doubt;
        let outcome = if is_known { SpanOutcome::Failed } else { SpanOutcome::InDoubt };
        Some(outcome(failure.code))
    };
    match fact {
        Fact::Succeeded { .. } | Fact::Resolved { .. } | Fact::RolledBack { .. } => {
            Some(SpanOutcome::Done)
        }
        Fact::BackedOff { failure, .. }
        | Fact::RollbackBackedOff { failure, .. }
        | Fact::GaveUp { failure, .. }
        | Fact::Failed { failure, .. }
        | Fact::Tolerated { failure, .. }
        | Fact::Probed { failure, .. }
        | Fact::Doubted { failure, .. }
        | Fact::RollbackFailed { failure, .. } => failed(failure),
        Fact::Cancelled { .. } => step_ended(run, fact),
        Fact::Lost { .. } => Some(SpanOutcome::Lost),
        _ => None,
    }
}

/// How a step is settled.
fn step_ended(run: &Run, fact: &Fact) -> Option<SpanOutcome> {
    if run.settled_status(fact) == Some(StepStatus::InDoubt) {
        let code = match fact {
            Fact::Failed { failure, .. } => failure.code,
            _ => Code::InDoubt,
        };
        return Some(SpanOutcome::InDoubt(code));
    }
    match fact {
        Fact::Succeeded { .. } => Some(SpanOutcome::Done),
        Fact::Failed { failure, .. } => Some(SpanOutcome::Failed(failure.code)),
        Fact::Tolerated { failure, .. } => Some(SpanOutcome::Tolerated(failure.code)),
        Fact::Skipped { .. } => Some(SpanOutcome::Skipped),
        Fact::Cancelled { .. } => Some(SpanOutcome::Cancelled),
        Fact::Reused { .. } => Some(SpanOutcome::Reused),
        _ => None,
    }
}
