//! A run that was interrupted goes on: what was under way is asked for again.

use std::sync::Arc;

use super::doubt::and_then;
use super::forward::{Moment, spec};
use super::journal::{Failure, NodeId};
use super::node::Node;
use super::{Effect, Event, EventKind, Run, TimerId};
use crate::composition::{Strategy, Undo};
use crate::diagnostic::Code;
use crate::plan::Pinned;
use crate::view::RunStatus;

impl Run {
    /// When a run that waits for a person goes on by itself: the first time that is over then. Takes the
    /// run, because this asks it for all that it would do.
    pub fn goes_on_at(mut self, at_ms: u64) -> Option<u64> {
        let turn = self.handle(Event { at_ms, entropy: 0, kind: EventKind::Resumed });
        let times = turn.perform.iter().filter_map(|effect| match effect {
            Effect::Wake { at_ms, .. } => Some(*at_ms),
            _ => None,
        });
        times.min()
    }

    /// The tools that the run may call when these things happen to it. One that ends calls nothing, but
    /// for what takes steps back where that follows.
    pub fn may_call(&self, wishes: &[EventKind]) -> Pinned {
        let root = self.state.activation_of(0);
        let plan = self.state.plan_of(0);
        let wanted = |is_it: fn(&EventKind) -> bool| wishes.iter().any(is_it);
        if root.back.is_some() || wanted(|wish| matches!(wish, EventKind::RollBack { .. })) {
            plan.undoing()
        } else if !wanted(|wish| matches!(wish, EventKind::Cancel { .. })) {
            plan.called()
        } else if root.strategy == Strategy::Rollback || plan.reverts() {
            plan.undoing()
        } else {
            Pinned::new()
        }
    }
}

impl Moment<'_> {
    /// The run was read from its journal, and is to end. It stops before anything of it is worked out:
    /// that may be what ended the engine before.
    pub(super) fn resumed_to_end(&mut self, by: Arc<str>, rolls_back: bool) {
        self.is_taken_up = true;
        if rolls_back {
            self.roll_back_by_hand(by);
        } else if self.run_deadline().is_some_and(|deadline| deadline <= self.at_ms) {
            // What was to happen while nobody was there happened before.
            self.run_timed_out();
        } else {
            self.cancel(by);
        }
        self.resumed();
    }

    /// The run was read from its journal by an engine that knows nothing of it yet.
    pub(super) fn resumed(&mut self) {
        if self.state.status != RunStatus::Running {
            return;
        }
        self.limit_run();
        self.repeat_consent();
        // Only what there was: what begins from here on needs no second asking.
        let frames = self.state.frames.len();
        for frame in 0..u32::try_from(frames).expect("a run has far fewer than 2^32 frames") {
            for node in self.state.nodes_of(frame) {
                self.resume(node);
            }
        }
    }

    fn resume(&mut self, node: NodeId) {
        let record = self.state.record(node);
        match record.node {
            Node::Calling { candidate } if self.is_worth_seeking(node) => {
                self.seek_call(node, candidate);
                if self.state.is_stopped(node) {
                    self.limit_settling(node);
                }
            }
            Node::Calling { candidate } => self.call_lost(node, candidate, None),
            Node::Probing { candidate } => {
                let step = self.state.step(node).clone();
                self.ask_probe(node, &step, candidate);
            }
            Node::Asking { .. } => {
                self.ask(node);
                self.limit_attempt(node);
            }
            Node::Doubtful { .. } => self.ask(node),
            Node::Resting { .. } | Node::UndoResting { .. } => self.wake_again(node),
            Node::Sleeping | Node::Paused => {
                self.wake_again(node);
                self.limit_attempt(node);
            }
            Node::Expanding => {
                let document = record.args.clone();
                if let Some(failure) = self.state.forgotten(&document) {
                    return self.fail(node, failure);
                }
                self.turn.perform.push(Effect::Expand { node, document });
                self.limit_attempt(node);
            }
            Node::Open { .. } => self.limit_attempt(node),
            Node::Undoing { .. } if self.state.can_seek(node) => self.seek_undo(node),
            Node::Undoing { .. } => self.undo_lost(node, None),
            _ => {}
        }
    }

    /// Whether a call can be found again, and whether anybody still wants its answer. A run that is
    /// to end is not kept by one: its tools need not be there.
    fn is_worth_seeking(&self, node: NodeId) -> bool {
        let is_wanted =
            !self.state.is_stopped(node) || !self.is_taken_up && !self.state.calls_a_read(node);
        is_wanted && self.state.can_seek(node)
    }

    fn wake_again(&mut self, node: NodeId) {
        let record = self.state.record(node);
        // A clock that was set back must not make the rest longer than it was meant to be.
        let at_ms = record.wake_ms.min(self.at_ms.saturating_add(record.rest_ms));
        let timer = match record.node {
            Node::UndoResting { .. } => TimerId::Undo(node),
            _ => TimerId::Step(node),
        };
        self.turn.perform.push(Effect::Wake { timer, at_ms });
    }

    /// The engine stopped while a step was being taken back. Where the undo was looked for, there is a
    /// reason why it was not found.
    pub(super) fn undo_lost(&mut self, node: NodeId, unfound: Option<&str>) {
        let Undo::Call(call) = self.state.undo_of(node) else { return };
        if spec(call).composition.is_some() {
            // Its steps are asked for again one by one.
            return self.limit_undo(node);
        }
        let args = self.state.record(node).undo_args.clone();
        let forgotten = self.state.forgotten(&args);
        if spec(call).is_repeatable() && forgotten.is_none() {
            return self.call_undo(node, args);
        }
        let mut message = "the engine stopped before the undo had answered".to_owned();
        if let Some(forgotten) = forgotten {
            message = format!("{message}, and to call it again {}", forgotten.message);
        }
        let mut failure = Failure::lasting(Code::InDoubt, and_then(message, unfound));
        failure.in_doubt = true;
        self.undo_gave_up(node, failure);
    }

    pub(super) fn only_reads(&self, node: NodeId) -> bool {
        let record = self.state.record(node);
        let reads = self.state.calls_a_read(node);
        reads && record.doubt.is_none() && !record.was_in_doubt && !record.has_acted
    }
}

/// Whose word it is when a person asks for what was done to be taken back.
pub(super) fn asked_back(by: &Arc<str>) -> Failure {
    Failure::lasting(Code::Cancelled, format!("{by} asked for it to be taken back"))
}
