//! Calls under way when a run stops going forward.
//!
//! A call that only reads is abandoned. A call that may write is awaited up to its deadline, and
//! its answer counts: the rollback uses its output. A call without an answer is in doubt. The
//! rollback starts only after that.

use super::advance::{TurnBuilder, candidate_call, tool_spec};
use super::in_doubt::lost_message;
use super::journal::{Failure, NodeId};
use super::state::RunState;
use super::{CallId, Effect, TimerId};
use crate::composition::StepKind;
use crate::diagnostic::Code;
use crate::tool::Impact;

impl RunState {
    /// Whether the tool that a step calls only reads.
    pub(super) fn calls_read_only_tool(&self, node: NodeId) -> bool {
        let step = self.step(node);
        let StepKind::Tool(_) = step.kind else { return true };
        let tool = tool_spec(candidate_call(step, self.step_state(node).candidate));
        tool.annotations.impact() == Impact::Reads
    }

    /// Whether nothing new starts in the frame around a step.
    pub(super) fn is_stopped(&self, node: NodeId) -> bool {
        self.frame(node.frame).stopped.is_some()
    }
}

impl TurnBuilder<'_> {
    /// The frame around a running call has stopped.
    pub(super) fn stop_call(&mut self, node: NodeId) {
        // A run that was just loaded has no running calls.
        if self.ends_on_resume {
            return;
        }
        let call = CallId { node, attempt: self.state.step_state(node).attempts };
        if self.state.calls_read_only_tool(node) {
            return self.turn.perform.push(Effect::Abort(call));
        }
        self.turn.perform.push(Effect::Settle(call));
        self.set_stop_timer(node);
    }

    /// Sets the timer for the end of the wait, if the step has no timeout.
    pub(super) fn set_stop_timer(&mut self, node: NodeId) {
        if self.state.step(node).timeout_ms.is_none() {
            let timer =
                TimerId::Attempt(CallId { node, attempt: self.state.step_state(node).attempts });
            let at_ms = self.at_ms.saturating_add(self.limits.settle_timeout_ms);
            self.turn.perform.push(Effect::SetTimer { timer, at_ms });
        }
    }

    /// The wait for a call is over; the abort arrives as its answer.
    pub(super) fn stop_timed_out(&mut self, node: NodeId) {
        if self.state.is_stopped(node) {
            let attempt = self.state.step_state(node).attempts;
            self.turn.perform.push(Effect::Abort(CallId { node, attempt }));
        }
    }

    /// Whether a person is asked about a call in doubt although everything around it has stopped: a
    /// rollback follows, and depends on the answer. A branch that lost a race blocks nothing, and a
    /// rollback cannot wait.
    pub(super) fn asks_after_stop(&self, node: NodeId) -> bool {
        let Some(stopped) = &self.state.frame(node.frame).stopped else { return true };
        let lost_a_race = stopped.code == Code::Cancelled && self.state.frame(0).stopped.is_none();
        let is_rollback = self.state.activation_of(node.frame).is_inside_rollback;
        let rolls_back =
            self.state.rollback_asked.is_some() || self.state.rolls_back_on_failure(node.frame);
        rolls_back && !lost_a_race && !is_rollback
    }
}

/// The failure of a call that may write and did not answer.
pub(super) fn unanswered_failure(what: String, unfound: Option<&str>) -> Failure {
    let failure = Failure::transient(Code::InDoubt, lost_message(what, unfound));
    Failure { in_doubt: true, ..failure }
}
