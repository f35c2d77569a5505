//! Calls that are found again: whoever was called works on them under a name of its own, so that an
//! engine that stops loses nothing. What nobody knows by its name any more was lost after all.

use std::sync::Arc;

use super::forward::{Moment, spec};
use super::journal::{Fact, NodeId};
use super::node::{IllegalFact, Node};
use super::state::State;
use super::{Answer, CallId};
use crate::composition::Undo;
use crate::diagnostic::Code;
use crate::value::Value;

/// How the call at hand is found again, if it can be.
#[derive(Debug, Default)]
pub(super) struct Trail {
    /// What it takes to find it; null when nobody said.
    handle: Value,
    /// Whether it is looked for.
    is_sought: bool,
}

impl Trail {
    /// Whether it leads anywhere.
    fn leads(&self) -> bool {
        !self.handle.is_null()
    }

    /// What to look for.
    pub(super) fn sought(&self) -> Option<Value> {
        self.is_sought.then(|| self.handle.clone())
    }
}

impl State {
    /// A call that is under way can be found again.
    pub(super) fn follow(&mut self, node: NodeId, handle: &Value) -> Result<(), IllegalFact> {
        let record = self.record_mut(node);
        if !is_called(&record.node) || handle.is_null() {
            return Err(IllegalFact);
        }
        record.trail = Trail { handle: handle.clone(), is_sought: false };
        Ok(())
    }

    /// Whether the call at hand can be found again, with what was kept of its trail.
    pub(super) fn can_seek(&self, node: NodeId) -> bool {
        let trail = &self.record(node).trail;
        trail.leads() && !self.is_forgotten(&trail.handle)
    }

    /// Such a call is looked for.
    pub(super) fn seek(&mut self, node: NodeId) -> Result<(), IllegalFact> {
        let record = self.record_mut(node);
        if !is_called(&record.node) || !record.trail.leads() {
            return Err(IllegalFact);
        }
        record.trail.is_sought = true;
        Ok(())
    }
}

impl Moment<'_> {
    /// Whoever was called says how the call is found again.
    pub(super) fn followed(&mut self, call: CallId, handle: Value) {
        let CallId { node, attempt } = call;
        let record = self.state.record(node);
        let is_at_hand = record.attempts == attempt && is_called(&record.node);
        if is_at_hand && !handle.is_null() && !self.is_entered(node) {
            self.record(Fact::Followed { node, handle });
        }
    }

    /// A step that is being taken back by a composition has no call of its own.
    fn is_entered(&self, node: NodeId) -> bool {
        let is_undoing = matches!(self.state.record(node).node, Node::Undoing { .. });
        is_undoing
            && matches!(self.state.undo_of(node), Undo::Call(call) if spec(call).composition.is_some())
    }

    /// The engine stopped while a call was under way that can be found again. It has the time that a
    /// new one has: nobody knows how much was left.
    pub(super) fn seek_call(&mut self, node: NodeId, candidate: u16) {
        let step = self.state.step(node).clone();
        self.record(Fact::Sought { node });
        self.send(node, &step, candidate);
    }

    /// The same for the call that takes a step back.
    pub(super) fn seek_undo(&mut self, node: NodeId) {
        let Undo::Call(call) = self.state.undo_of(node).clone() else { return };
        self.record(Fact::Sought { node });
        self.send_undo(node, &call);
    }

    /// Why a call that was looked for was not found, where that is what an answer means: its source
    /// cannot be asked, or does not know what became of it.
    pub(super) fn not_found(&self, node: NodeId, answer: &Answer) -> Option<Arc<str>> {
        self.state.record(node).trail.sought()?;
        match answer {
            Answer::Failure(failure) => {
                let unasked = matches!(
                    failure.code,
                    Code::Unreachable | Code::ToolNotAllowed | Code::PolicyViolation
                );
                (failure.in_doubt || unasked).then(|| failure.message.clone())
            }
            Answer::Unsent => Some("it was not looked for any more".into()),
            Answer::Value(_) | Answer::TimedOut | Answer::Ended => None,
        }
    }

    /// A call was not found again: it is lost like any other.
    pub(super) fn seek_ended(&mut self, node: NodeId, candidate: u16, why: &str) {
        self.call_lost(node, candidate, Some(why));
    }
}

/// Whether a call of the step, or of what takes it back, is under way.
fn is_called(node: &Node) -> bool {
    matches!(node, Node::Calling { .. } | Node::Undoing { .. })
}
