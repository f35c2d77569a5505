//! Calls that are found again: whoever was called works on them under a name of its own, so that an
//! engine that stops loses nothing. What nobody knows by its name any more was lost after all.

use std::sync::Arc;

use super::advance::{TurnBuilder, tool_spec};
use super::journal::{Fact, NodeId};
use super::node::{IllegalFact, NodeState};
use super::state::RunState;
use super::{Answer, CallId};
use crate::composition::ResolvedRollback;
use crate::diagnostic::Code;
use crate::value::Value;

/// How the call at hand is found again, if it can be.
#[derive(Debug, Default)]
pub(super) struct ResumeHandle {
    /// What it takes to find it; null when nobody said.
    handle: Value,
    /// Whether it is looked for.
    is_requested: bool,
}

impl ResumeHandle {
    /// Whether it leads anywhere.
    fn is_known(&self) -> bool {
        !self.handle.is_null()
    }

    /// What to look for.
    pub(super) fn requested_handle(&self) -> Option<Value> {
        self.is_requested.then(|| self.handle.clone())
    }
}

impl RunState {
    /// A call that is under way can be found again.
    pub(super) fn set_resume_handle(
        &mut self,
        node: NodeId,
        handle: &Value,
    ) -> Result<(), IllegalFact> {
        let record = self.step_state_mut(node);
        if !is_call_open(&record.node) || handle.is_null() {
            return Err(IllegalFact);
        }
        record.resume_handle = ResumeHandle { handle: handle.clone(), is_requested: false };
        Ok(())
    }

    /// Whether the call at hand can be found again, with what was kept of its trail.
    pub(super) fn can_resume_call(&self, node: NodeId) -> bool {
        let handle = &self.step_state(node).resume_handle;
        handle.is_known() && !self.has_redacted_part(&handle.handle)
    }

    /// Such a call is looked for.
    pub(super) fn begin_resume(&mut self, node: NodeId) -> Result<(), IllegalFact> {
        let record = self.step_state_mut(node);
        if !is_call_open(&record.node) || !record.resume_handle.is_known() {
            return Err(IllegalFact);
        }
        record.resume_handle.is_requested = true;
        Ok(())
    }
}

impl TurnBuilder<'_> {
    /// Whoever was called says how the call is found again.
    pub(super) fn handle_received(&mut self, call: CallId, handle: Value) {
        let CallId { node, attempt } = call;
        let record = self.state.step_state(node);
        let is_at_hand = record.attempts == attempt && is_call_open(&record.node);
        if is_at_hand && !handle.is_null() && !self.is_rolling_back_by_composition(node) {
            self.record(Fact::HandleReceived { node, handle });
        }
    }

    /// A step that is being taken back by a composition has no call of its own.
    fn is_rolling_back_by_composition(&self, node: NodeId) -> bool {
        let is_rolling_back =
            matches!(self.state.step_state(node).node, NodeState::RollingBack { .. });
        is_rolling_back
            && matches!(self.state.resolved_rollback(node), ResolvedRollback::Call(call) if tool_spec(call).composition.is_some())
    }

    /// The engine stopped while a call was under way that can be found again. It has the time that a
    /// new one has: nobody knows how much was left.
    pub(super) fn resume_call(&mut self, node: NodeId, candidate: u16) {
        let step = self.state.step(node).clone();
        self.record(Fact::ResumeSent { node });
        self.send(node, &step, candidate);
    }

    /// The same for the call that takes a step back.
    pub(super) fn resume_rollback_call(&mut self, node: NodeId) {
        let ResolvedRollback::Call(call) = self.state.resolved_rollback(node).clone() else {
            return;
        };
        self.record(Fact::ResumeSent { node });
        self.send_rollback(node, &call);
    }

    /// Why a call that was looked for was not found, where that is what an answer means: its source
    /// cannot be asked, or does not know what became of it.
    pub(super) fn resume_failure(&self, node: NodeId, answer: &Answer) -> Option<Arc<str>> {
        self.state.step_state(node).resume_handle.requested_handle()?;
        match answer {
            Answer::Failure(failure) => {
                let unasked = matches!(
                    failure.code,
                    Code::Unreachable | Code::ToolNotAllowed | Code::PolicyViolation
                );
                (failure.in_doubt || unasked).then(|| failure.message.clone())
            }
            Answer::Unsent => Some("it was not looked for any more".into()),
            Answer::Value(_) | Answer::TimedOut | Answer::Aborted => None,
        }
    }

    /// A call was not found again: it is lost like any other.
    pub(super) fn resume_failed(&mut self, node: NodeId, candidate: u16, why: &str) {
        self.call_lost(node, candidate, Some(why));
    }
}

/// Whether a call of the step, or of what takes it back, is under way.
fn is_call_open(node: &NodeState) -> bool {
    matches!(node, NodeState::Calling { .. } | NodeState::RollingBack { .. })
}
