//! Retries of steps with bodies: a failed attempt ends, and the bodies begin anew.
//!
//! A composition that rolls back on failure rolls the failed attempt back first, so that the next
//! one does not do its work a second time. If a step stays, there is no next attempt.

use std::sync::Arc;

use super::advance::TurnBuilder;
use super::attempt::exhausted_failure;
use super::journal::{Fact, Failure, NodeId};
use super::node::NodeState;
use super::retry;
use super::rollback::RollbackReason;
use super::state::RunState;
use super::{Effect, TimerId};
use crate::composition::{Step, StepKind};

impl TurnBuilder<'_> {
    /// Handles the failure of a step with bodies: starts another attempt, or returns the failure
    /// that the step ends with.
    pub(super) fn retry_body(
        &mut self,
        node: NodeId,
        step: &Step,
        failure: Arc<Failure>,
    ) -> Option<Arc<Failure>> {
        if matches!(step.kind, StepKind::Tool(_)) || !self.may_retry_body(node, step, &failure) {
            return Some(failure);
        }
        let budget = step.retry.max.unwrap_or(0);
        let tries = self.state.step_state(node).candidate_attempts + 1;
        if tries > budget {
            return Some(
                exhausted_failure(&failure, step, tries, budget, true).map_or(failure, Arc::new),
            );
        }
        if !self.state.is_attempt_over(node) {
            // Branches that lost a race are still ending, here or further inside.
            self.record(Fact::FailureDecided { node, failure });
            return None;
        }
        let steps = self.attempt_to_roll_back(node);
        if steps.is_empty() {
            self.back_off_body(node, step, failure);
        } else {
            self.record(Fact::AttemptRollbackStarted { node, failure, steps });
            self.continue_attempt_rollback(node);
        }
        None
    }

    /// Whether another attempt may help, and cannot repeat a call that may have done its work.
    fn may_retry_body(&self, node: NodeId, step: &Step, failure: &Failure) -> bool {
        let record = self.state.step_state(node);
        let is_under_way = matches!(
            record.node,
            NodeState::Open { .. } | NodeState::Expanding | NodeState::BetweenRounds
        );
        let has_doubt = record.attempt_frames().iter().any(|frame| self.state.has_doubt(*frame));
        let may_retry = retry::may_retry(step, failure, false, true);
        is_under_way && may_retry && !has_doubt && !self.state.is_stopped(node)
    }

    /// The steps of a failed attempt that the composition rolls back before the next one.
    fn attempt_to_roll_back(&self, node: NodeId) -> Vec<NodeId> {
        if !self.state.activation_of(node.frame).rolls_back_on_failure() {
            return Vec::new();
        }
        let frames = self.state.step_state(node).attempt_frames();
        self.steps_to_roll_back(frames, RollbackReason::Retry)
    }

    fn back_off_body(&mut self, node: NodeId, step: &Step, failure: Arc<Failure>) {
        let composition = &self.state.plan_of(node.frame).composition;
        let backoff = step.retry.backoff.as_ref().unwrap_or(&composition.error_handling.backoff);
        let next = self.state.step_state(node).candidate_attempts + 2;
        let delay = retry::delay_ms(backoff, &failure, next, self.entropy, self.limits);
        let until_ms = self.at_ms.saturating_add(delay);
        self.record(Fact::BackedOff { node, failure, until_ms });
        self.turn.perform.push(Effect::SetTimer { timer: TimerId::Step(node), at_ms: until_ms });
    }

    /// Continues with a failed attempt after one of its rollbacks was answered, or after a body
    /// inside it closed; false if there is none.
    pub(super) fn continue_next_attempt(&mut self) -> bool {
        let Some(node) = self.state.failed_attempts.pop_first() else { return false };
        let record = self.state.step_state(node);
        let ended_by = record.ended_by.clone();
        if record.attempt_rollback.is_some() {
            self.continue_attempt_rollback(node);
        } else if let (NodeState::Open { .. }, Some(failure)) = (&record.node, ended_by)
            && !matches!(self.state.step(node).kind, StepKind::Tool(_))
            && self.state.is_attempt_over(node)
        {
            self.settle_with(node, Err(failure));
        }
        true
    }

    fn continue_attempt_rollback(&mut self, node: NodeId) {
        loop {
            let Some(back) = &self.state.step_state(node).attempt_rollback else { return };
            if back.current.is_some() {
                return;
            }
            let Some(next) = back.remaining.last().copied() else { break };
            let pivot = back.blocked.get(&next).copied();
            self.roll_back_step(next, pivot);
        }
        let back = self.state.step_state(node).attempt_rollback.as_ref();
        let Some(failure) = back.map(|back| back.cause.clone()) else { return };
        if self.state.is_stopped(node) {
            return self.record(Fact::Cancelled { node, in_doubt: false });
        }
        let step = self.state.step(node).clone();
        if self.state.has_failed_rollback(node) {
            return self.fail_finally(node, &step, failure);
        }
        self.back_off_body(node, &step, failure);
    }
}

impl RunState {
    /// Whether a step of the current attempt could not be rolled back.
    fn has_failed_rollback(&self, node: NodeId) -> bool {
        self.step_state(node).attempt_frames().iter().any(|frame| {
            self.nodes_of(*frame).any(|inner| {
                matches!(self.step_state(inner).node, NodeState::RollbackFailed { .. })
                    || self.has_failed_rollback(inner)
            })
        })
    }

    /// Whether every body of the current attempt is over, and every body inside them.
    fn is_attempt_over(&self, node: NodeId) -> bool {
        let inside = self.frames_inside(self.step_state(node).attempt_frames());
        inside.iter().all(|frame| self.frame(*frame).closed)
    }

    /// The next attempt of a step with bodies begins: what its bodies came to is forgotten.
    pub(super) fn forget_attempt(&mut self, node: NodeId, failure: &Arc<Failure>) {
        let record = self.step_state_mut(node);
        record.candidate_attempts += 1;
        record.attempts = record.candidate_attempts + 1;
        record.attempt_from = record.frames.len();
        record.attempt_rollback = None;
        record.ended_by = None;
        record.items = None;
        record.has_failed_body = false;
        record.has_final_failure = false;
        record.last_failure = Some(failure.clone());
    }
}
