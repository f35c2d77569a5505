//! The states of a step, as a table. What it does not list cannot happen.

use std::sync::Arc;

use super::journal::{Fact, Failure, NodeId};
use super::state::State;
use crate::diagnostic::Code;
use crate::value::Value;
use crate::view::StepStatus;

/// How a step of a run stands.
#[derive(Clone, Debug, Default)]
pub(super) enum Node {
    /// Waits for its needs, or for its turn.
    #[default]
    Pending,
    /// Waits for somebody's yes.
    Asking { candidate: u16 },
    /// Has the yes, and waits for its turn.
    Granted { candidate: u16 },
    /// A call is under way.
    Calling { candidate: u16 },
    /// An attempt failed; the next one begins later.
    Resting { candidate: u16 },
    /// Has rested, and waits for its turn.
    Waking { candidate: u16 },
    /// All attempts of a tool failed; the next fallback waits for its turn.
    GivingUp { next: u16 },
    /// Nobody knows whether its call did its work; the probe is asked.
    Probing { candidate: u16 },
    /// Nobody knows whether its call did its work; a person is asked.
    Doubtful { candidate: u16 },
    /// Waits for a time.
    Sleeping,
    /// Waits until the composition that it was given is checked.
    Expanding,
    /// Rests between two rounds.
    Paused,
    /// Its bodies, or the composition that it calls, are under way.
    Open { candidate: u16 },
    /// Has its value.
    Done { output: Value },
    /// Failed, and has the value that its author had ready.
    Tolerated { output: Value, failure: Arc<Failure> },
    /// Failed for good.
    Failed { failure: Arc<Failure> },
    /// Will not run.
    Skipped { reason: Arc<str>, by_failure: bool },
    /// Was stopped.
    Cancelled { in_doubt: bool },
    /// Is being taken back; remembers what it returned and how it stood.
    Undoing { before: Before },
    /// An attempt to take it back failed; the next one begins later.
    UndoResting { before: Before },
    /// Was taken back.
    Undone { before: Before },
    /// Could not be taken back.
    UndoFailed { before: Before, failure: Arc<Failure> },
}

/// What a step was before it was taken back.
#[derive(Clone, Debug, Default)]
pub(super) struct Before {
    output: Option<Value>,
    failure: Option<Arc<Failure>>,
}

/// A fact that does not fit the state of its step.
#[derive(Debug)]
pub(super) struct IllegalFact;

impl Node {
    /// The state after a fact.
    pub(super) fn next(self, fact: &Fact) -> Result<Node, IllegalFact> {
        use {Fact as F, Node as N};
        Ok(match (self, fact) {
            (N::Pending | N::GivingUp { .. }, F::Asked { candidate, .. }) => {
                N::Asking { candidate: *candidate }
            }
            (N::Asking { candidate }, F::Granted { .. }) => N::Granted { candidate },
            (
                N::Pending | N::Granted { .. } | N::GivingUp { .. } | N::Waking { .. },
                F::Called { candidate, .. },
            ) => N::Calling { candidate: *candidate },
            (
                N::Pending | N::Granted { .. } | N::GivingUp { .. } | N::Waking { .. },
                F::Entered { candidate, .. },
            ) => N::Open { candidate: *candidate },
            (N::Resting { candidate }, F::Woke { .. }) => N::Waking { candidate },
            (
                N::Calling { candidate }
                | N::Open { candidate }
                | N::Probing { candidate }
                | N::Doubtful { candidate },
                F::Rested { .. },
            ) => N::Resting { candidate },
            (
                N::Calling { candidate }
                | N::Open { candidate }
                | N::Probing { candidate }
                | N::Doubtful { candidate },
                F::GaveUp { .. },
            ) => N::GivingUp { next: candidate + 1 },
            (N::Calling { candidate }, F::Lost { .. }) => N::Waking { candidate },
            (
                N::Calling { candidate } | N::Waking { candidate } | N::Probing { candidate },
                F::Probed { .. },
            ) => N::Probing { candidate },
            (
                N::Calling { candidate }
                | N::Waking { candidate }
                | N::Probing { candidate }
                | N::Doubtful { candidate },
                F::Doubted { .. },
            ) => N::Doubtful { candidate },
            (node @ (N::Probing { .. } | N::Doubtful { .. }), F::Resolved { .. }) => node,
            (N::Pending, F::Expanding { .. }) => N::Expanding,
            (N::Expanding, F::Expanded { .. }) => N::Open { candidate: 0 },
            (N::Open { .. }, F::Paused { .. }) => N::Paused,
            (N::Paused, F::Opened { .. }) => N::Open { candidate: 0 },
            (N::Pending, F::Slept { .. }) => N::Sleeping,
            (N::Pending, F::Looped { .. } | F::Opened { .. }) => N::Open { candidate: 0 },
            (N::Open { candidate }, F::Opened { .. }) => N::Open { candidate },
            (
                N::Pending
                | N::Asking { .. }
                | N::Calling { .. }
                | N::Probing { .. }
                | N::Doubtful { .. }
                | N::Sleeping
                | N::Open { .. },
                F::Succeeded { output, .. },
            )
            | (N::Pending, F::Reused { output, .. }) => N::Done { output: output.clone() },
            (node, F::Tolerated { output, failure, .. }) if node.may_fail() => {
                N::Tolerated { output: output.clone(), failure: failure.clone() }
            }
            (node, F::Failed { failure, .. }) if node.may_fail() => {
                N::Failed { failure: failure.clone() }
            }
            (N::Pending, F::Skipped { reason, by_failure, .. }) => {
                N::Skipped { reason: reason.clone(), by_failure: *by_failure }
            }
            (
                N::Asking { .. }
                | N::Granted { .. }
                | N::Calling { .. }
                | N::Resting { .. }
                | N::Waking { .. }
                | N::GivingUp { .. }
                | N::Probing { .. }
                | N::Doubtful { .. }
                | N::Sleeping
                | N::Expanding
                | N::Paused
                | N::Open { .. },
                F::Cancelled { in_doubt, .. },
            ) => N::Cancelled { in_doubt: *in_doubt },
            (node, F::UndoCalled { .. } | F::UndoEntered { .. }) if node.may_be_undone() => {
                N::Undoing { before: node.into_before() }
            }
            (node, F::UndoFailed { failure, .. }) if node.may_be_undone() => {
                N::UndoFailed { before: node.into_before(), failure: failure.clone() }
            }
            (N::Undoing { before }, F::UndoRested { .. }) => N::UndoResting { before },
            (N::Undoing { before }, F::Undone { .. }) => N::Undone { before },
            _ => return Err(IllegalFact),
        })
    }

    /// Whether it waits to begin or is under way, apart from resting between two attempts.
    fn may_fail(&self) -> bool {
        !self.is_settled() && !matches!(self, Node::Resting { .. })
    }

    /// Whether it did something, or may have done something, that could be taken back.
    fn may_be_undone(&self) -> bool {
        // What could not be taken back may be tried again when a person asks for it.
        let again = matches!(
            self,
            Node::Undoing { .. } | Node::UndoResting { .. } | Node::UndoFailed { .. }
        );
        again || self.has_acted()
    }

    /// Whether it is settled and did something, or may have done something.
    pub(super) fn has_acted(&self) -> bool {
        match self {
            Node::Done { .. } => true,
            Node::Failed { failure } | Node::Tolerated { failure, .. } => failure.leaves_a_trace(),
            Node::Cancelled { in_doubt } => *in_doubt,
            _ => false,
        }
    }

    /// Whether something goes on by itself, so that the run does not wait for a person here.
    pub(super) fn is_busy(&self) -> bool {
        matches!(
            self,
            Node::Granted { .. }
                | Node::Calling { .. }
                | Node::Resting { .. }
                | Node::Waking { .. }
                | Node::GivingUp { .. }
                | Node::Probing { .. }
                | Node::Sleeping
                | Node::Expanding
                | Node::Paused
                | Node::Undoing { .. }
                | Node::UndoResting { .. }
        )
    }

    /// Whether a person is asked.
    pub(super) fn asks(&self) -> bool {
        matches!(self, Node::Asking { .. } | Node::Doubtful { .. })
    }

    fn into_before(self) -> Before {
        match self {
            Node::Done { output } => Before { output: Some(output), failure: None },
            Node::Tolerated { output, failure } => {
                Before { output: Some(output), failure: Some(failure) }
            }
            Node::Failed { failure } => Before { output: None, failure: Some(failure) },
            // Taken back or not, nobody knows what it did: that stays in the result.
            Node::Cancelled { in_doubt: true } => {
                let failure = Failure::lasting(Code::InDoubt, "it was ended before it answered");
                let failure = Arc::new(Failure { in_doubt: true, ..failure });
                Before { output: None, failure: Some(failure) }
            }
            Node::Undoing { before }
            | Node::UndoResting { before }
            | Node::UndoFailed { before, .. } => before,
            _ => Before::default(),
        }
    }

    /// Whether nothing more happens to it.
    pub(super) fn is_settled(&self) -> bool {
        matches!(
            self,
            Node::Done { .. }
                | Node::Tolerated { .. }
                | Node::Failed { .. }
                | Node::Skipped { .. }
                | Node::Cancelled { .. }
                | Node::Undoing { .. }
                | Node::UndoResting { .. }
                | Node::Undone { .. }
                | Node::UndoFailed { .. }
        )
    }

    /// Its value, when it has one.
    pub(super) fn output(&self) -> Option<&Value> {
        match self {
            Node::Done { output } | Node::Tolerated { output, .. } => Some(output),
            Node::Undoing { before }
            | Node::UndoResting { before }
            | Node::Undone { before }
            | Node::UndoFailed { before, .. } => before.output.as_ref(),
            _ => None,
        }
    }

    /// How it failed.
    pub(super) fn failure(&self) -> Option<&Arc<Failure>> {
        match self {
            Node::Failed { failure } | Node::Tolerated { failure, .. } => Some(failure),
            Node::Undoing { before }
            | Node::UndoResting { before }
            | Node::Undone { before }
            | Node::UndoFailed { before, .. } => before.failure.as_ref(),
            _ => None,
        }
    }

    /// Its word.
    pub(super) fn status(&self) -> StepStatus {
        match self {
            Node::Pending => StepStatus::Pending,
            Node::Asking { .. }
            | Node::Granted { .. }
            | Node::Calling { .. }
            | Node::Resting { .. }
            | Node::Waking { .. }
            | Node::GivingUp { .. }
            | Node::Probing { .. }
            | Node::Sleeping
            | Node::Expanding
            | Node::Paused
            | Node::Open { .. } => StepStatus::Running,
            Node::Doubtful { .. } => StepStatus::InDoubt,
            Node::Done { .. } => StepStatus::Success,
            Node::Failed { failure } => failed_as(failure),
            Node::Tolerated { .. } => StepStatus::Failed,
            Node::Skipped { .. } => StepStatus::Skipped,
            Node::Cancelled { in_doubt } => ended_as(*in_doubt),
            Node::Undoing { .. } | Node::UndoResting { .. } => StepStatus::Running,
            Node::Undone { .. } => StepStatus::RolledBack,
            Node::UndoFailed { .. } => StepStatus::RollbackFailed,
        }
    }
}

/// What a step is that failed for good: in doubt where its call may have done its work.
fn failed_as(failure: &Failure) -> StepStatus {
    if failure.in_doubt { StepStatus::InDoubt } else { StepStatus::Failed }
}

/// What a step is that was ended: in doubt where its call may have done its work.
fn ended_as(in_doubt: bool) -> StepStatus {
    if in_doubt { StepStatus::InDoubt } else { StepStatus::Cancelled }
}

impl State {
    /// How a step stands. One that was stopped is in doubt when something inside it is.
    pub(super) fn status_of(&self, node: NodeId) -> StepStatus {
        let record = self.record(node);
        match &record.node {
            Node::Cancelled { in_doubt } => ended_as(*in_doubt || self.doubts_inside(node)),
            other => other.status(),
        }
    }

    /// How a fact leaves its step, if it settles one.
    pub(super) fn settled_as(&self, fact: &Fact) -> Option<StepStatus> {
        Some(match fact {
            Fact::Succeeded { .. } | Fact::Reused { .. } => StepStatus::Success,
            Fact::Tolerated { .. } => StepStatus::Failed,
            Fact::Failed { failure, .. } => failed_as(failure),
            Fact::Skipped { .. } => StepStatus::Skipped,
            Fact::Cancelled { node, in_doubt } => ended_as(*in_doubt || self.doubts_inside(*node)),
            _ => return None,
        })
    }

    fn doubts_inside(&self, node: NodeId) -> bool {
        self.record(node).frames.iter().any(|frame| self.has_doubt(*frame))
    }
}
