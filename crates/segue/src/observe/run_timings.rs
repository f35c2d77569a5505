//! The journal of a run → starts and ends of the run, its steps and their attempts.
//!
//! A step starts with the first fact about it and ends with the fact that settles it. An attempt starts
//! when a tool or a composition is called, and ends with the next fact that gives its outcome. For a
//! resumed run the old journal entries are applied first, so that start times are known.

use std::collections::HashMap;
use std::sync::Arc;

use segue_core::diagnostic::Code;
use segue_core::run::{CallId, Entry, Fact, Failure, NodeId, Purpose, Run};
use segue_core::tool::Backend;
use segue_core::view::{RunStatus, StepStatus};

/// Start times of a run and its open steps.
#[derive(Default)]
pub struct RunTimings {
    /// When the run started, or when a rollback of the finished run was requested.
    began_ms: u64,
    /// How often the run ended: once, and again after each rollback.
    ends: u32,
    steps: HashMap<NodeId, OpenStep>,
}

/// A step that has started.
#[derive(Default)]
struct OpenStep {
    began_ms: u64,
    /// Attempts so far, of any purpose; the run numbers its calls the same way.
    attempts: u32,
    /// Attempts so far by purpose: work, rollback, probe.
    by_purpose: [u32; 3],
    attempt: Option<Attempt>,
}

/// One attempt of a step.
#[derive(Clone)]
pub struct Attempt {
    /// The call.
    pub call: CallId,
    /// The tool.
    pub tool: Arc<str>,
    /// Where the tool runs.
    pub backend: Backend,
    /// Whether it works, rolls back or probes.
    pub purpose: Purpose,
    /// The number of this attempt among those of its purpose, from 1. The first rollback of a step is
    /// no second attempt of the step.
    pub number: u32,
    /// When it was journaled, in milliseconds since 1970.
    pub began_ms: u64,
}

impl Attempt {
    /// The name of the purpose in metrics and spans.
    pub fn purpose_name(&self) -> &'static str {
        match self.purpose {
            Purpose::Work => "do",
            Purpose::Rollback => "undo",
            Purpose::Probe => "probe",
        }
    }
}

/// The outcome of a step or an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanOutcome {
    /// It succeeded.
    Done,
    /// It failed.
    Failed(Code),
    /// It failed, and the composition has a default value for that.
    Tolerated(Code),
    /// It may have taken effect.
    InDoubt(Code),
    /// It was cancelled without effect.
    Cancelled,
    /// The engine stopped while it was under way.
    Lost,
    /// The step was skipped.
    Skipped,
    /// The result of an earlier run was reused.
    Reused,
    /// Its value was given.
    Pinned,
}

impl SpanOutcome {
    /// Its name in metrics and spans.
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
            SpanOutcome::Pinned => "pinned",
        }
    }

    /// The error code, if it failed.
    pub fn error(self) -> Option<&'static str> {
        match self {
            SpanOutcome::Failed(code)
            | SpanOutcome::Tolerated(code)
            | SpanOutcome::InDoubt(code) => Some(code.as_str()),
            SpanOutcome::Cancelled => Some(Code::Cancelled.as_str()),
            SpanOutcome::Lost => Some("lost"),
            SpanOutcome::Done
            | SpanOutcome::Skipped
            | SpanOutcome::Reused
            | SpanOutcome::Pinned => None,
        }
    }
}

/// An update about a run for metrics, traces and logs.
pub enum RunUpdate<'a> {
    /// The run started.
    Began,
    /// An attempt ended.
    Attempt(&'a Attempt, SpanOutcome),
    /// A step is settled.
    Step {
        /// The step.
        node: NodeId,
        /// When it started, if it did.
        began_ms: Option<u64>,
        /// Its outcome.
        outcome: SpanOutcome,
    },
    /// A step will be retried.
    Retried(NodeId),
    /// The run is being rolled back.
    RollingBack,
    /// The run ended.
    Ended {
        /// When it started.
        began_ms: u64,
        /// How often it had ended before.
        before: u32,
        /// Its status.
        status: RunStatus,
        /// The error of the run as a whole.
        code: Option<Code>,
    },
}

impl RunTimings {
    /// Applies an entry and emits the updates that follow from it.
    pub fn apply(&mut self, run: &Run, entry: &Entry, emit: &mut dyn FnMut(&RunUpdate<'_>)) {
        let at_ms = entry.at_ms;
        match &entry.fact {
            Fact::Started(_) => {
                self.began_ms = at_ms;
                emit(&RunUpdate::Began);
            }
            Fact::RollbackAsked { .. } => self.began_ms = at_ms,
            Fact::RollbackStarted { .. } => emit(&RunUpdate::RollingBack),
            Fact::Finished { status, failure, .. } => {
                let code = failure.as_ref().map(|failure| failure.code);
                let (began_ms, before, status) = (self.began_ms, self.ends, *status);
                emit(&RunUpdate::Ended { began_ms, before, status, code });
                self.ends += 1;
            }
            fact => {
                let Some(node) = fact.node() else { return };
                if let Some(outcome) = attempt_ended(run, fact)
                    && let Some(open) = self.steps.get_mut(&node)
                    && let Some(attempt) = open.attempt.take()
                {
                    emit(&RunUpdate::Attempt(&attempt, outcome));
                }
                if let Fact::BackedOff { .. } | Fact::RollbackBackedOff { .. } = fact {
                    emit(&RunUpdate::Retried(node));
                }
                if let Some(outcome) = step_ended(run, fact) {
                    // The step stays in the map: a rollback continues its count of attempts.
                    let began_ms = self.steps.get(&node).map(|open| open.began_ms);
                    emit(&RunUpdate::Step { node, began_ms, outcome });
                } else {
                    self.track_open(run, node, fact, at_ms);
                }
            }
        }
    }

    /// Notes the start of a step that is not settled, and of its attempt.
    fn track_open(&mut self, run: &Run, node: NodeId, fact: &Fact, at_ms: u64) {
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
        let number = &mut open.by_purpose[purpose as usize];
        *number += 1;
        let number = *number;
        open.attempt = Some(Attempt { call, tool, backend, purpose, number, began_ms: at_ms });
    }
}

/// The candidate and the purpose of an attempt that starts.
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

/// The outcome of the attempt that is under way.
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

/// The outcome of a step that is settled.
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
        Fact::Skipped { .. } | Fact::LeftOut { .. } => Some(SpanOutcome::Skipped),
        Fact::Cancelled { .. } => Some(SpanOutcome::Cancelled),
        Fact::Reused { .. } => Some(SpanOutcome::Reused),
        Fact::Pinned { .. } => Some(SpanOutcome::Pinned),
        _ => None,
    }
}
