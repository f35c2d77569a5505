//! The states of a step, as a table. What it does not list cannot happen.

use std::sync::Arc;

use super::journal::{Fact, Failure, NodeId};
use super::state::RunState;
use crate::diagnostic::Code;
use crate::value::Value;
use crate::view::StepStatus;

/// How a step of a run stands.
#[derive(Clone, Debug, Default)]
pub(super) enum NodeState {
    /// Waits for its needs, or for its turn.
    #[default]
    Pending,
    /// Waits for somebody's yes.
    AwaitingConfirmation { candidate: u16 },
    /// Has the yes, and waits for its turn.
    Confirmed { candidate: u16 },
    /// A call is under way.
    Calling { candidate: u16 },
    /// An attempt failed; the next one begins later.
    Backoff { candidate: u16 },
    /// Has rested, and waits for its turn.
    RetryReady { candidate: u16 },
    /// All attempts of a tool failed; the next fallback waits for its turn.
    FallbackReady { next: u16 },
    /// Nobody knows whether its call did its work; the probe is asked.
    Probing { candidate: u16 },
    /// Nobody knows whether its call did its work; a person is asked.
    InDoubt { candidate: u16 },
    /// Waits for a time.
    Sleeping,
    /// Waits until the composition that it was given is checked.
    Expanding,
    /// Rests between two rounds.
    BetweenRounds,
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
    RollingBack { before: StateBeforeRollback },
    /// An attempt to take it back failed; the next one begins later.
    RollbackBackoff { before: StateBeforeRollback },
    /// Was taken back.
    RolledBack { before: StateBeforeRollback },
    /// Could not be taken back.
    RollbackFailed { before: StateBeforeRollback, failure: Arc<Failure> },
}

/// What a step was before it was taken back.
#[derive(Clone, Debug, Default)]
pub(super) struct StateBeforeRollback {
    output: Option<Value>,
    failure: Option<Arc<Failure>>,
}

/// A fact that does not fit the state of its step.
#[derive(Debug)]
pub(super) struct IllegalFact;

impl NodeState {
    /// The state after a fact.
    pub(super) fn next(self, fact: &Fact) -> Result<NodeState, IllegalFact> {
        use {Fact as F, NodeState as N};
        Ok(match (self, fact) {
            (N::Pending | N::FallbackReady { .. }, F::Asked { candidate, .. }) => {
                N::AwaitingConfirmation { candidate: *candidate }
            }
            (N::AwaitingConfirmation { candidate }, F::Granted { .. }) => {
                N::Confirmed { candidate }
            }
            (
                N::Pending | N::Confirmed { .. } | N::FallbackReady { .. } | N::RetryReady { .. },
                F::Called { candidate, .. },
            ) => N::Calling { candidate: *candidate },
            (
                N::Pending | N::Confirmed { .. } | N::FallbackReady { .. } | N::RetryReady { .. },
                F::Entered { candidate, .. },
            ) => N::Open { candidate: *candidate },
            (N::Backoff { candidate }, F::Woke { .. }) => N::RetryReady { candidate },
            (
                N::Calling { candidate }
                | N::Open { candidate }
                | N::Probing { candidate }
                | N::InDoubt { candidate },
                F::BackedOff { .. },
            ) => N::Backoff { candidate },
            (
                N::Calling { candidate }
                | N::Open { candidate }
                | N::Probing { candidate }
                | N::InDoubt { candidate },
                F::GaveUp { .. },
            ) => N::FallbackReady { next: candidate + 1 },
            (N::Calling { candidate }, F::Lost { .. }) => N::RetryReady { candidate },
            (
                N::Calling { candidate } | N::RetryReady { candidate } | N::Probing { candidate },
                F::Probed { .. },
            ) => N::Probing { candidate },
            (
                N::Calling { candidate }
                | N::RetryReady { candidate }
                | N::Probing { candidate }
                | N::InDoubt { candidate },
                F::Doubted { .. },
            ) => N::InDoubt { candidate },
            (node @ (N::Probing { .. } | N::InDoubt { .. }), F::Resolved { .. }) => node,
            (N::Pending, F::Expanding { .. }) => N::Expanding,
            (N::Expanding, F::Expanded { .. }) => N::Open { candidate: 0 },
            (N::Open { .. }, F::Paused { .. }) => N::BetweenRounds,
            (N::BetweenRounds, F::Opened { .. }) => N::Open { candidate: 0 },
            (N::Pending, F::Slept { .. }) => N::Sleeping,
            (N::Pending, F::Looped { .. } | F::Opened { .. }) => N::Open { candidate: 0 },
            (N::Open { candidate }, F::Opened { .. }) => N::Open { candidate },
            (
                N::Pending
                | N::AwaitingConfirmation { .. }
                | N::Calling { .. }
                | N::Probing { .. }
                | N::InDoubt { .. }
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
                N::AwaitingConfirmation { .. }
                | N::Confirmed { .. }
                | N::Calling { .. }
                | N::Backoff { .. }
                | N::RetryReady { .. }
                | N::FallbackReady { .. }
                | N::Probing { .. }
                | N::InDoubt { .. }
                | N::Sleeping
                | N::Expanding
                | N::BetweenRounds
                | N::Open { .. },
                F::Cancelled { in_doubt, .. },
            ) => N::Cancelled { in_doubt: *in_doubt },
            (node, F::RollbackCalled { .. } | F::RollbackEntered { .. })
                if node.can_be_rolled_back() =>
            {
                N::RollingBack { before: node.into_before() }
            }
            (node, F::RollbackFailed { failure, .. }) if node.can_be_rolled_back() => {
                N::RollbackFailed { before: node.into_before(), failure: failure.clone() }
            }
            (N::RollingBack { before }, F::RollbackBackedOff { .. }) => {
                N::RollbackBackoff { before }
            }
            (N::RollingBack { before }, F::RolledBack { .. }) => N::RolledBack { before },
            _ => return Err(IllegalFact),
        })
    }

    /// Whether it waits to begin or is under way, apart from resting between two attempts.
    fn may_fail(&self) -> bool {
        !self.is_settled() && !matches!(self, NodeState::Backoff { .. })
    }

    /// Whether it did something, or may have done something, that could be taken back.
    fn can_be_rolled_back(&self) -> bool {
        // What could not be taken back may be tried again when a person asks for it.
        let again = matches!(
            self,
            NodeState::RollingBack { .. }
                | NodeState::RollbackBackoff { .. }
                | NodeState::RollbackFailed { .. }
        );
        again || self.has_acted()
    }

    /// Whether it is settled and did something, or may have done something.
    pub(super) fn has_acted(&self) -> bool {
        match self {
            NodeState::Done { .. } => true,
            NodeState::Failed { failure } | NodeState::Tolerated { failure, .. } => {
                failure.may_have_acted()
            }
            NodeState::Cancelled { in_doubt } => *in_doubt,
            _ => false,
        }
    }

    /// Whether something goes on by itself, so that the run does not wait for a person here.
    pub(super) fn is_busy(&self) -> bool {
        matches!(
            self,
            NodeState::Confirmed { .. }
                | NodeState::Calling { .. }
                | NodeState::Backoff { .. }
                | NodeState::RetryReady { .. }
                | NodeState::FallbackReady { .. }
                | NodeState::Probing { .. }
                | NodeState::Sleeping
                | NodeState::Expanding
                | NodeState::BetweenRounds
                | NodeState::RollingBack { .. }
                | NodeState::RollbackBackoff { .. }
        )
    }

    /// Whether a person is asked.
    pub(super) fn awaits_person(&self) -> bool {
        matches!(self, NodeState::AwaitingConfirmation { .. } | NodeState::InDoubt { .. })
    }

    fn into_before(self) -> StateBeforeRollback {
        match self {
            NodeState::Done { output } => {
                StateBeforeRollback { output: Some(output), failure: None }
            }
            NodeState::Tolerated { output, failure } => {
                StateBeforeRollback { output: Some(output), failure: Some(failure) }
            }
            NodeState::Failed { failure } => {
                StateBeforeRollback { output: None, failure: Some(failure) }
            }
            // Taken back or not, nobody knows what it did: that stays in the result.
            NodeState::Cancelled { in_doubt: true } => {
                let failure = Failure::permanent(Code::InDoubt, "it was ended before it answered");
                let failure = Arc::new(Failure { in_doubt: true, ..failure });
                StateBeforeRollback { output: None, failure: Some(failure) }
            }
            NodeState::RollingBack { before }
            | NodeState::RollbackBackoff { before }
            | NodeState::RollbackFailed { before, .. } => before,
            _ => StateBeforeRollback::default(),
        }
    }

    /// Whether nothing more happens to it.
    pub(super) fn is_settled(&self) -> bool {
        matches!(
            self,
            NodeState::Done { .. }
                | NodeState::Tolerated { .. }
                | NodeState::Failed { .. }
                | NodeState::Skipped { .. }
                | NodeState::Cancelled { .. }
                | NodeState::RollingBack { .. }
                | NodeState::RollbackBackoff { .. }
                | NodeState::RolledBack { .. }
                | NodeState::RollbackFailed { .. }
        )
    }

    /// Its value, when it has one.
    pub(super) fn output(&self) -> Option<&Value> {
        match self {
            NodeState::Done { output } | NodeState::Tolerated { output, .. } => Some(output),
            NodeState::RollingBack { before }
            | NodeState::RollbackBackoff { before }
            | NodeState::RolledBack { before }
            | NodeState::RollbackFailed { before, .. } => before.output.as_ref(),
            _ => None,
        }
    }

    /// How it failed.
    pub(super) fn failure(&self) -> Option<&Arc<Failure>> {
        match self {
            NodeState::Failed { failure } | NodeState::Tolerated { failure, .. } => Some(failure),
            NodeState::RollingBack { before }
            | NodeState::RollbackBackoff { before }
            | NodeState::RolledBack { before }
            | NodeState::RollbackFailed { before, .. } => before.failure.as_ref(),
            _ => None,
        }
    }

    /// Its word.
    pub(super) fn status(&self) -> StepStatus {
        match self {
            NodeState::Pending => StepStatus::Pending,
            NodeState::AwaitingConfirmation { .. }
            | NodeState::Confirmed { .. }
            | NodeState::Calling { .. }
            | NodeState::Backoff { .. }
            | NodeState::RetryReady { .. }
            | NodeState::FallbackReady { .. }
            | NodeState::Probing { .. }
            | NodeState::Sleeping
            | NodeState::Expanding
            | NodeState::BetweenRounds
            | NodeState::Open { .. } => StepStatus::Running,
            NodeState::InDoubt { .. } => StepStatus::InDoubt,
            NodeState::Done { .. } => StepStatus::Success,
            NodeState::Failed { failure } => failed_status(failure),
            NodeState::Tolerated { .. } => StepStatus::Failed,
            NodeState::Skipped { .. } => StepStatus::Skipped,
            NodeState::Cancelled { in_doubt } => cancelled_status(*in_doubt),
            NodeState::RollingBack { .. } | NodeState::RollbackBackoff { .. } => {
                StepStatus::Running
            }
            NodeState::RolledBack { .. } => StepStatus::RolledBack,
            NodeState::RollbackFailed { .. } => StepStatus::RollbackFailed,
        }
    }
}

/// What a step is that failed for good: in doubt where its call may have done its work.
fn failed_status(failure: &Failure) -> StepStatus {
    if failure.in_doubt { StepStatus::InDoubt } else { StepStatus::Failed }
}

/// What a step is that was ended: in doubt where its call may have done its work.
fn cancelled_status(in_doubt: bool) -> StepStatus {
    if in_doubt { StepStatus::InDoubt } else { StepStatus::Cancelled }
}

impl RunState {
    /// How a step stands. One that was stopped is in doubt when something inside it is.
    pub(super) fn status_of(&self, node: NodeId) -> StepStatus {
        let record = self.step_state(node);
        match &record.node {
            NodeState::Cancelled { in_doubt } => {
                cancelled_status(*in_doubt || self.has_doubt_inside(node))
            }
            other => other.status(),
        }
    }

    /// How a fact leaves its step, if it settles one.
    pub(super) fn settled_status(&self, fact: &Fact) -> Option<StepStatus> {
        Some(match fact {
            Fact::Succeeded { .. } | Fact::Reused { .. } => StepStatus::Success,
            Fact::Tolerated { .. } => StepStatus::Failed,
            Fact::Failed { failure, .. } => failed_status(failure),
            Fact::Skipped { .. } => StepStatus::Skipped,
            Fact::Cancelled { node, in_doubt } => {
                cancelled_status(*in_doubt || self.has_doubt_inside(*node))
            }
            _ => return None,
        })
    }

    fn has_doubt_inside(&self, node: NodeId) -> bool {
        self.step_state(node).frames.iter().any(|frame| self.has_doubt(*frame))
    }
}
