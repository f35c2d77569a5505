//! The states of a step, as a transition table. A transition that it does not list is illegal.

use std::sync::Arc;

use super::journal::{Fact, Failure, NodeId};
use super::state::RunState;
use crate::diagnostic::Code;
use crate::value::Value;
use crate::view::StepStatus;

/// The state of a step.
#[derive(Clone, Debug, Default)]
pub(super) enum NodeState {
    /// Waits for its needs, or for a slot.
    #[default]
    Pending,
    /// Waits for confirmation.
    AwaitingConfirmation { candidate: u16 },
    /// Confirmed; waits for a slot.
    Confirmed { candidate: u16 },
    /// A call is under way.
    Calling { candidate: u16 },
    /// An attempt failed; the next one begins later.
    Backoff { candidate: u16 },
    /// Its delay is over; waits for a slot.
    RetryReady { candidate: u16 },
    /// All attempts of a tool failed; the next fallback waits for a slot.
    FallbackReady { next: u16 },
    /// The outcome of its call is unknown; the probe is called.
    Probing { candidate: u16 },
    /// The outcome of its call is unknown; a person is asked.
    InDoubt { candidate: u16 },
    /// Waits until a time.
    Sleeping,
    /// Waits for the compilation of its composition.
    Expanding,
    /// Waits between two rounds.
    BetweenRounds,
    /// Its bodies, or the composition that it calls, are under way.
    Open { candidate: u16 },
    /// Succeeded.
    Done { output: Value },
    /// Failed, with a default value.
    Tolerated { output: Value, failure: Arc<Failure> },
    /// Failed for good.
    Failed { failure: Arc<Failure> },
    /// Will not run.
    Skipped { reason: Arc<str>, by_failure: bool },
    /// Was stopped.
    Cancelled { in_doubt: bool },
    /// Being rolled back; remembers its value and its earlier state.
    RollingBack { before: StateBeforeRollback },
    /// A rollback attempt failed; the next one begins later.
    RollbackBackoff { before: StateBeforeRollback },
    /// Rolled back.
    RolledBack { before: StateBeforeRollback },
    /// Could not be rolled back.
    RollbackFailed { before: StateBeforeRollback, failure: Arc<Failure> },
}

/// The state of a step before its rollback.
#[derive(Clone, Debug, Default)]
pub(super) struct StateBeforeRollback {
    output: Option<Value>,
    failure: Option<Arc<Failure>>,
}

/// A fact that is illegal in the state of its step.
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
            (N::Expanding | N::BetweenRounds, F::BackedOff { .. }) => N::Backoff { candidate: 0 },
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
            (N::Pending | N::RetryReady { .. }, F::Expanding { .. }) => N::Expanding,
            (N::Expanding, F::Expanded { .. }) => N::Open { candidate: 0 },
            (N::Open { .. }, F::Paused { .. }) => N::BetweenRounds,
            (N::BetweenRounds, F::Opened { .. }) => N::Open { candidate: 0 },
            (N::Pending, F::Slept { .. }) => N::Sleeping,
            (N::Pending | N::RetryReady { .. }, F::Looped { .. } | F::Opened { .. }) => {
                N::Open { candidate: 0 }
            }
            (N::Open { candidate }, F::Opened { .. }) => N::Open { candidate },
            (
                N::Pending
                | N::AwaitingConfirmation { .. }
                | N::Calling { .. }
                | N::RetryReady { .. }
                | N::Probing { .. }
                | N::InDoubt { .. }
                | N::Sleeping
                | N::Open { .. },
                F::Succeeded { output, .. },
            )
            | (N::Pending, F::Reused { output, .. } | F::Pinned { output, .. }) => {
                N::Done { output: output.clone() }
            }
            (N::Pending, F::LeftOut { .. }) => {
                N::Skipped { reason: "it is not part of this run".into(), by_failure: false }
            }
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

    /// Whether it waits to start or runs, apart from delays between attempts.
    fn may_fail(&self) -> bool {
        !self.is_settled() && !matches!(self, NodeState::Backoff { .. })
    }

    /// Whether it has, or may have, side effects that can be rolled back.
    fn can_be_rolled_back(&self) -> bool {
        // A failed rollback may be repeated when a person requests it.
        let again = matches!(
            self,
            NodeState::RollingBack { .. }
                | NodeState::RollbackBackoff { .. }
                | NodeState::RollbackFailed { .. }
        );
        again || self.has_acted()
    }

    /// Whether it is settled and has, or may have, side effects.
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

    /// Whether it progresses without a person.
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

    /// Whether it waits for a person.
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
            // The outcome stays unknown after a rollback, so the result keeps it.
            NodeState::Cancelled { in_doubt: true } => {
                let failure =
                    Failure::permanent(Code::InDoubt, "it was aborted before it answered");
                let failure = Arc::new(Failure { in_doubt: true, ..failure });
                StateBeforeRollback { output: None, failure: Some(failure) }
            }
            NodeState::RollingBack { before }
            | NodeState::RollbackBackoff { before }
            | NodeState::RollbackFailed { before, .. } => before,
            _ => StateBeforeRollback::default(),
        }
    }

    /// Whether it is settled.
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

    /// Its value, if it has one.
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

    /// Its failure, if it has one.
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

    /// Its published status.
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

/// The status of a failed step: in doubt if its call may have done its work.
fn failed_status(failure: &Failure) -> StepStatus {
    if failure.in_doubt { StepStatus::InDoubt } else { StepStatus::Failed }
}

/// The status of a cancelled step: in doubt if its call may have done its work.
fn cancelled_status(in_doubt: bool) -> StepStatus {
    if in_doubt { StepStatus::InDoubt } else { StepStatus::Cancelled }
}

impl RunState {
    /// The status of a step. A stopped one is in doubt if a step inside it is.
    pub(super) fn status_of(&self, node: NodeId) -> StepStatus {
        let record = self.step_state(node);
        match &record.node {
            NodeState::Cancelled { in_doubt } => {
                cancelled_status(*in_doubt || self.has_doubt_inside(node))
            }
            other => other.status(),
        }
    }

    /// The status of a step after a fact that settles it.
    pub(super) fn settled_status(&self, fact: &Fact) -> Option<StepStatus> {
        Some(match fact {
            Fact::Succeeded { .. } | Fact::Reused { .. } | Fact::Pinned { .. } => {
                StepStatus::Success
            }
            Fact::Tolerated { .. } => StepStatus::Failed,
            Fact::Failed { failure, .. } => failed_status(failure),
            Fact::Skipped { .. } | Fact::LeftOut { .. } => StepStatus::Skipped,
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
