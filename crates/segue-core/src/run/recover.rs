//! Recovery: an interrupted run continues, and interrupted calls are repeated, resumed or put in
//! doubt.

use std::sync::Arc;

use super::advance::{TurnBuilder, tool_spec};
use super::in_doubt::lost_message;
use super::journal::{Failure, NodeId};
use super::node::NodeState;
use super::{Effect, Event, EventKind, Run, TimerId};
use crate::composition::{ResolvedRollback, Strategy};
use crate::diagnostic::Code;
use crate::plan::PinnedTools;
use crate::view::RunStatus;

impl Run {
    /// When a run that waits for a person continues by itself: its first timer. Consumes the run,
    /// because it handles a resume to find out.
    pub fn next_timer_ms(mut self, at_ms: u64) -> Option<u64> {
        let turn = self.handle(Event { at_ms, entropy: 0, kind: EventKind::Resumed });
        let times = turn.perform.iter().filter_map(|effect| match effect {
            Effect::SetTimer { at_ms, .. } => Some(*at_ms),
            _ => None,
        });
        times.min()
    }

    /// The tools that the run may call when it handles these events. A run that ends calls only
    /// rollback tools, if a rollback follows.
    pub fn callable_tools(&self, events: &[EventKind]) -> PinnedTools {
        let root = self.state.activation_of(0);
        let plan = self.state.plan_of(0);
        let wanted = |is_it: fn(&EventKind) -> bool| events.iter().any(is_it);
        if root.rollback.is_some() || wanted(|event| matches!(event, EventKind::RollBack { .. })) {
            plan.rollback_tools()
        } else if !wanted(|event| matches!(event, EventKind::Cancel { .. })) {
            plan.callable_tools()
        } else if root.strategy == Strategy::Rollback || plan.may_roll_back() {
            plan.rollback_tools()
        } else {
            PinnedTools::new()
        }
    }
}

impl TurnBuilder<'_> {
    /// The run was loaded from its journal, and is to end. It stops before any expression is
    /// evaluated, since one may have stopped the engine before.
    pub(super) fn resume_to_end(&mut self, by: Arc<str>, rolls_back: bool) {
        self.ends_on_resume = true;
        if rolls_back {
            self.request_rollback(by);
        } else if self.run_deadline().is_some_and(|deadline| deadline <= self.at_ms) {
            // A timeout that passed while the engine was down applies first.
            self.run_timed_out();
        } else {
            self.cancel(by);
        }
        self.resume_run();
    }

    /// The run was loaded from its journal by a new engine.
    pub(super) fn resume_run(&mut self) {
        if self.state.status != RunStatus::Running {
            return;
        }
        self.set_run_timer();
        self.ask_consent_again();
        // Only existing frames: later ones need no recovery.
        let frames = self.state.frames.len();
        for frame in 0..u32::try_from(frames).expect("a run has far fewer than 2^32 frames") {
            for node in self.state.nodes_of(frame) {
                self.resume_step(node);
            }
        }
    }

    fn resume_step(&mut self, node: NodeId) {
        let record = self.state.step_state(node);
        match record.node {
            NodeState::Calling { candidate } if self.should_resume_call(node) => {
                self.resume_call(node, candidate);
                if self.state.is_stopped(node) {
                    self.set_stop_timer(node);
                }
            }
            NodeState::Calling { candidate } => self.call_lost(node, candidate, None),
            NodeState::Probing { candidate } => {
                let step = self.state.step(node).clone();
                self.ask_probe(node, &step, candidate);
            }
            NodeState::AwaitingConfirmation { .. } => {
                self.ask(node);
                self.set_attempt_timer(node);
            }
            NodeState::InDoubt { .. } => self.ask(node),
            NodeState::Backoff { .. } | NodeState::RollbackBackoff { .. } => self.rearm_timer(node),
            NodeState::Sleeping | NodeState::BetweenRounds => {
                self.rearm_timer(node);
                self.set_attempt_timer(node);
            }
            NodeState::Expanding => {
                let document = record.args.clone();
                if let Some(failure) = self.state.redacted_failure(&document) {
                    return self.fail(node, failure);
                }
                self.turn.perform.push(Effect::Expand { node, document });
                self.set_attempt_timer(node);
            }
            NodeState::Open { .. } => self.set_attempt_timer(node),
            NodeState::RollingBack { .. } if self.state.can_resume_call(node) => {
                self.resume_rollback_call(node);
            }
            NodeState::RollingBack { .. } => self.rollback_call_lost(node, None),
            _ => {}
        }
    }

    /// Whether a call can be resumed by its handle, and its answer is still needed. A run that is
    /// to end does not wait for one: its tools may be unavailable.
    fn should_resume_call(&self, node: NodeId) -> bool {
        let is_wanted = !self.state.is_stopped(node)
            || !self.ends_on_resume && !self.state.calls_read_only_tool(node);
        is_wanted && self.state.can_resume_call(node)
    }

    fn rearm_timer(&mut self, node: NodeId) {
        let record = self.state.step_state(node);
        // A clock that was set back must not extend the delay.
        let at_ms = record.wake_ms.min(self.at_ms.saturating_add(record.backoff_ms));
        let timer = match record.node {
            NodeState::RollbackBackoff { .. } => TimerId::Rollback(node),
            _ => TimerId::Step(node),
        };
        self.turn.perform.push(Effect::SetTimer { timer, at_ms });
    }

    /// The engine stopped during a rollback call. `unfound` says why its recovery failed, if that
    /// was tried.
    pub(super) fn rollback_call_lost(&mut self, node: NodeId, unfound: Option<&str>) {
        let ResolvedRollback::Call(call) = self.state.resolved_rollback(node) else { return };
        if tool_spec(call).composition.is_some() {
            // Its steps are recovered one by one.
            return self.set_rollback_timer(node);
        }
        let args = self.state.step_state(node).rollback_args.clone();
        let forgotten = self.state.redacted_failure(&args);
        if tool_spec(call).is_repeatable() && forgotten.is_none() {
            return self.call_rollback(node, args);
        }
        let mut message = "the engine stopped before the rollback had answered".to_owned();
        if let Some(forgotten) = forgotten {
            message = format!("{message}, and it cannot be called again: {}", forgotten.message);
        }
        let mut failure = Failure::permanent(Code::InDoubt, lost_message(message, unfound));
        failure.in_doubt = true;
        self.rollback_gave_up(node, failure);
    }

    pub(super) fn only_reads(&self, node: NodeId) -> bool {
        let record = self.state.step_state(node);
        let reads = self.state.calls_read_only_tool(node);
        reads && record.doubt.is_none() && !record.was_in_doubt && !record.has_acted
    }
}

/// The cause of a rollback that a person requested.
pub(super) fn rollback_requested(by: &Arc<str>) -> Failure {
    Failure::permanent(Code::Cancelled, format!("{by} requested a rollback"))
}
