//! Scheduling: concurrency slots, ready steps, and frames that can close.

use std::cmp::Reverse;

use super::frame::ReadyStep;
use super::journal::NodeId;
use super::node::NodeState;
use super::state::RunState;

impl RunState {
    pub(super) fn push_ready(&mut self, node: NodeId) {
        let remaining = self.planned(node).remaining_ms;
        let activation = self.frame(node.frame).activation;
        self.activations[activation as usize].ready.push(ReadyStep::new(node, remaining));
        self.mark_runnable(activation);
    }

    /// Queues an activation that may have a step to start.
    pub(super) fn mark_runnable(&mut self, activation: u32) {
        if !std::mem::replace(&mut self.activations[activation as usize].is_runnable, true) {
            self.runnable.push(Reverse(activation));
        }
    }

    /// Removes the oldest queued activation.
    fn pop_runnable(&mut self) {
        if let Some(Reverse(activation)) = self.runnable.pop() {
            self.activations[activation as usize].is_runnable = false;
        }
    }

    /// A step takes a slot of its composition and of each enclosing one.
    pub(super) fn take_slot(&mut self, frame: u32) {
        let mut at = Some(self.frame(frame).activation);
        while let Some(activation) = at {
            let around = &mut self.activations[activation as usize];
            around.running += 1;
            at = around.parent;
        }
    }

    pub(super) fn free_slot(&mut self, frame: u32) {
        let mut at = Some(self.frame(frame).activation);
        while let Some(activation) = at {
            let around = &mut self.activations[activation as usize];
            around.running -= 1;
            at = around.parent;
        }
        while let Some(activation) = self.blocked_by_concurrency.pop() {
            self.mark_runnable(activation);
        }
    }

    fn has_room(&self, activation: u32) -> bool {
        let mut at = Some(activation);
        while let Some(activation) = at {
            let around = &self.activations[activation as usize];
            if around.running >= around.max_concurrency {
                return false;
            }
            at = around.parent;
        }
        true
    }

    pub(super) fn holds_slot(&self, node: NodeId) -> bool {
        matches!(self.step_state(node).node, NodeState::Calling { .. } | NodeState::Probing { .. })
    }

    /// Takes a frame that can close: all its steps are settled, or it stopped with no call under
    /// way; the root frame of a composition only if no inner frame is open.
    pub(super) fn next_closable_frame(&mut self) -> Option<u32> {
        while let Some(at) = self.closable_frames.pop_first() {
            let frame = self.frame(at);
            let is_over = frame.unsettled == 0 || (frame.stopped.is_some() && frame.active == 0);
            let is_alone = !self.is_root(at) || self.activation_of(at).open_frames <= 1;
            // A requested rollback opens a finished run again.
            let is_open = !frame.closed || (at == 0 && self.rollback_asked.is_some());
            if is_over && is_alone && is_open {
                return Some(at);
            }
        }
        None
    }

    /// Takes the next ready step; steps of stopped frames are skipped.
    pub(super) fn next_ready(&mut self) -> Option<NodeId> {
        while let Some(Reverse(at)) = self.runnable.peek().copied() {
            if !self.has_room(at) {
                self.pop_runnable();
                self.blocked_by_concurrency.push(at);
                continue;
            }
            let Some(ready) = self.activations[at as usize].ready.pop() else {
                self.pop_runnable();
                continue;
            };
            let node = ready.node();
            let waits = matches!(
                self.step_state(node).node,
                NodeState::Pending
                    | NodeState::Confirmed { .. }
                    | NodeState::RetryReady { .. }
                    | NodeState::FallbackReady { .. }
            );
            if waits && self.frame(node.frame).stopped.is_none() {
                return Some(node);
            }
        }
        None
    }
}
