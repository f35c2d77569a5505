//! Whose turn it is: slots, steps that are ready, and bodies that may be over.

use std::cmp::Reverse;

use super::frame::Ready;
use super::journal::NodeId;
use super::node::Node;
use super::state::State;

impl State {
    pub(super) fn push_ready(&mut self, node: NodeId) {
        let remaining = self.planned(node).remaining_ms;
        let activation = self.frame(node.frame).activation;
        self.activations[activation as usize].ready.push(Ready::new(node, remaining));
        self.wake(activation);
    }

    /// An activation may have a step to start.
    pub(super) fn wake(&mut self, activation: u32) {
        if !std::mem::replace(&mut self.activations[activation as usize].is_awake, true) {
            self.awake.push(Reverse(activation));
        }
    }

    /// Takes the oldest activation that may have a step to start out of their number.
    fn lull(&mut self) {
        if let Some(Reverse(activation)) = self.awake.pop() {
            self.activations[activation as usize].is_awake = false;
        }
    }

    /// A slot is one of the composition and of each composition around it.
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
        while let Some(activation) = self.starved.pop() {
            self.wake(activation);
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
        matches!(self.record(node).node, Node::Calling { .. } | Node::Probing { .. })
    }

    /// Takes an activation of a body that is over: all settled, or stopped with nothing under way;
    /// and of a composition only when nothing inside it is under way.
    pub(super) fn next_over(&mut self) -> Option<u32> {
        while let Some(at) = self.ending.pop_first() {
            let frame = self.frame(at);
            let is_over = frame.unsettled == 0 || (frame.stopped.is_some() && frame.active == 0);
            let is_alone = !self.is_root(at) || self.activation_of(at).open_frames <= 1;
            // A run that is over is opened again by a person who wants it to be taken back.
            let is_open = !frame.closed || (at == 0 && self.rollback_asked.is_some());
            if is_over && is_alone && is_open {
                return Some(at);
            }
        }
        None
    }

    /// Takes the next step whose turn it is; steps of stopped bodies are passed over.
    pub(super) fn next_ready(&mut self) -> Option<NodeId> {
        while let Some(Reverse(at)) = self.awake.peek().copied() {
            if !self.has_room(at) {
                self.lull();
                self.starved.push(at);
                continue;
            }
            let Some(ready) = self.activations[at as usize].ready.pop() else {
                self.lull();
                continue;
            };
            let node = ready.node();
            let waits = matches!(
                self.record(node).node,
                Node::Pending | Node::Granted { .. } | Node::Waking { .. } | Node::GivingUp { .. }
            );
            if waits && self.frame(node.frame).stopped.is_none() {
                return Some(node);
            }
        }
        None
    }
}
