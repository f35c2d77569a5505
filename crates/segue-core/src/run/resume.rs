//! Resumable calls: the tool's source continues them under a handle, so an engine that restarts can
//! ask for the answer. A call whose handle the source no longer knows is lost like any other.

use std::sync::Arc;

use super::advance::{TurnBuilder, tool_spec};
use super::journal::{Fact, NodeId};
use super::node::{IllegalFact, NodeState};
use super::state::RunState;
use super::{Answer, CallId};
use crate::composition::ResolvedRollback;
use crate::diagnostic::Code;
use crate::value::Value;

/// The handle of the current call, if it has one.
#[derive(Debug, Default)]
pub(super) struct ResumeHandle {
    /// The handle; null if there is none.
    handle: Value,
    /// Whether the call is being resumed by it.
    is_requested: bool,
}

impl ResumeHandle {
    /// Whether there is a handle.
    fn is_known(&self) -> bool {
        !self.handle.is_null()
    }

    /// The handle, if the call is being resumed by it.
    pub(super) fn requested_handle(&self) -> Option<Value> {
        self.is_requested.then(|| self.handle.clone())
    }
}

impl RunState {
    /// Stores the handle of a running call.
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

    /// Whether the current call can be resumed; not if its handle was redacted.
    pub(super) fn can_resume_call(&self, node: NodeId) -> bool {
        let handle = &self.step_state(node).resume_handle;
        handle.is_known() && !self.has_redacted_part(&handle.handle)
    }

    /// Marks a call as being resumed.
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
    /// The tool's source returned a handle.
    pub(super) fn handle_received(&mut self, call: CallId, handle: Value) {
        let CallId { node, attempt } = call;
        let record = self.state.step_state(node);
        let is_at_hand = record.attempts == attempt && is_call_open(&record.node);
        if is_at_hand && !handle.is_null() && !self.is_rolling_back_by_composition(node) {
            self.record(Fact::HandleReceived { node, handle });
        }
    }

    /// A step that a composition rolls back has no call of its own.
    fn is_rolling_back_by_composition(&self, node: NodeId) -> bool {
        let is_rolling_back =
            matches!(self.state.step_state(node).node, NodeState::RollingBack { .. });
        is_rolling_back
            && matches!(self.state.resolved_rollback(node), ResolvedRollback::Call(call) if tool_spec(call).composition.is_some())
    }

    /// The engine stopped during a call with a handle. The resumed call gets the full timeout of a
    /// new one, since the remaining time is unknown.
    pub(super) fn resume_call(&mut self, node: NodeId, candidate: u16) {
        let step = self.state.step(node).clone();
        self.record(Fact::ResumeSent { node });
        self.send(node, &step, candidate);
    }

    /// The same for a rollback call.
    pub(super) fn resume_rollback_call(&mut self, node: NodeId) {
        let ResolvedRollback::Call(call) = self.state.resolved_rollback(node).clone() else {
            return;
        };
        self.record(Fact::ResumeSent { node });
        self.send_rollback(node, &call);
    }

    /// Why a call could not be resumed, if the answer means that: its source cannot be asked, or
    /// does not know the handle.
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
            Answer::Unsent => Some("the request for its answer was not sent".into()),
            Answer::Value(_) | Answer::TimedOut | Answer::Aborted => None,
        }
    }

    /// A call could not be resumed: it is lost like any other.
    pub(super) fn resume_failed(&mut self, node: NodeId, candidate: u16, why: &str) {
        self.call_lost(node, candidate, Some(why));
    }
}

/// Whether a call of the step, or its rollback call, is under way.
fn is_call_open(node: &NodeState) -> bool {
    matches!(node, NodeState::Calling { .. } | NodeState::RollingBack { .. })
}
