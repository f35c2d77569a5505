//! The way back: what was done is taken back, last first.
//!
//! One step at a time, in reverse order of completion, which is an order in which every step comes
//! after those that depended on it. Nothing is taken back while a call of the way forward is under
//! way, and nothing stops it: a step that cannot be taken back is named, and the others go on.

use std::sync::Arc;

use super::forward::{Moment, Outcome, candidate_call, evaluation, spec};
use super::journal::{Fact, Failure, NodeId};
use super::node::Node;
use super::retry;
use super::scope::FrameScope;
use super::{Answer, Call, CallId, Effect, TimerId};
use crate::composition::{Backoff, StepKind, Strategy, ToolCall, Undo};
use crate::diagnostic::Code;
use crate::tool::Impact;
use crate::value::Value;
use crate::view::RunStatus;

/// Attempts to take one step back.
const UNDO_TRIES_MAX: u32 = 5;

impl Moment<'_> {
    /// The way forward has ended: goes one step back, or ends the run.
    pub(super) fn go_back(&mut self) {
        if self.state.open_frames > 0 || self.state.undoing.is_some() {
            return;
        }
        if self.state.rollback.is_none() {
            let Some(failure) = self.reason_to_go_back() else { return self.finish_forward() };
            let steps = self.steps_to_undo();
            self.record(Fact::RollbackStarted { failure, steps });
        }
        while let Some(node) = self.state.to_undo.last().copied() {
            if self.undo(node) {
                return;
            }
        }
        self.finish_back();
    }

    fn reason_to_go_back(&self) -> Option<Arc<Failure>> {
        let composition = &self.state.plan_of(0).composition;
        let handling = &composition.error_handling;
        let strategy = self.state.activation_of(0).strategy;
        let wanted = handling.rollback_on_failure || strategy == Strategy::Rollback;
        if !wanted {
            return None;
        }
        if self.final_status() == RunStatus::Success {
            // A result that cannot be worked out fails a run whose steps all succeeded.
            return self.result(0, true).err().map(Arc::new);
        }
        if let Some(failure) = &self.state.frame(0).stopped {
            return Some(failure.clone());
        }
        // Without a stop, only a failure that nobody tolerated counts.
        self.state.frame(0).nodes.iter().find_map(|record| match &record.node {
            Node::Failed { failure } => Some(failure.clone()),
            _ => None,
        })
    }

    /// What is to be taken back, last settled first.
    fn steps_to_undo(&self) -> Vec<NodeId> {
        let mut steps = Vec::new();
        for (frame, open) in self.state.frames.iter().enumerate() {
            for position in 0..open.nodes.len() {
                let node = NodeId { frame: small(frame), position: small(position) };
                if self.is_to_be_undone(node) {
                    steps.push(node);
                }
            }
        }
        steps.sort_by_key(|node| std::cmp::Reverse(self.state.record(*node).settled_seq));
        steps
    }

    fn is_to_be_undone(&self, node: NodeId) -> bool {
        let did_something = match &self.state.record(node).node {
            Node::Done { .. } => true,
            Node::Failed { failure } | Node::Tolerated { failure, .. } => failure.in_doubt,
            Node::Cancelled { in_doubt } => *in_doubt,
            _ => false,
        };
        did_something
            && self.leaves_a_trace(node)
            && !self.is_inside_undone(node)
            && !self.reached_a_sink(node)
    }

    /// Whether there is something to take back at all.
    fn leaves_a_trace(&self, node: NodeId) -> bool {
        let step = self.state.step(node);
        match (self.state.undo_of(node), &step.kind) {
            (Undo::NotNeeded, _) => false,
            (Undo::Call(_) | Undo::Impossible { .. }, _) => true,
            // A composition is taken back by taking back the steps inside it.
            (Undo::Unknown, StepKind::Tool(_)) => {
                let tool = spec(candidate_call(step, self.state.record(node).candidate));
                tool.composition.is_none()
                    && !matches!(tool.annotations.impact(), Impact::None | Impact::Reads)
            }
            (Undo::Unknown, _) => false,
        }
    }

    /// Whether a step around this one has an undo of its own, which covers what is inside.
    fn is_inside_undone(&self, node: NodeId) -> bool {
        let mut inside = node.frame;
        while let Some(outer) = self.state.frame(inside).parent {
            let record = self.state.record(outer);
            // Only of the attempt that succeeded: earlier ones are taken back step by step.
            let covers = matches!(self.state.undo_of(outer), Undo::Call(_))
                && matches!(record.node, Node::Done { .. })
                && record.frames.last() == Some(&inside);
            if covers {
                return true;
            }
            inside = outer.frame;
        }
        false
    }

    /// Under `partial_success`, what led to a result that was reached stays.
    fn reached_a_sink(&self, node: NodeId) -> bool {
        if self.state.activation_of(0).strategy != Strategy::PartialSuccess
            || self.state.frame(0).stopped.is_some()
        {
            return false;
        }
        let mut top = node;
        while let Some(parent) = self.state.frame(top.frame).parent {
            top = parent;
        }
        let mut work = vec![top.position];
        let mut seen = vec![false; self.state.frame(0).nodes.len()];
        while let Some(position) = work.pop() {
            if std::mem::replace(&mut seen[position as usize], true) {
                continue;
            }
            let at = NodeId { frame: 0, position };
            let dependants = &self.state.planned(at).dependants;
            if dependants.is_empty() && self.state.record(at).node.output().is_some() {
                return true;
            }
            work.extend(dependants);
        }
        false
    }

    /// Takes a step back; false when that was settled at once.
    fn undo(&mut self, node: NodeId) -> bool {
        let step = self.state.step(node).clone();
        match &self.state.undo_of(node).clone() {
            Undo::Call(call) => match self.undo_args(node, call) {
                Ok(args) => {
                    self.call_undo(node, args);
                    true
                }
                Err(failure) => self.undo_failed(node, failure),
            },
            Undo::Impossible { reason } => {
                let message = format!("`{}` cannot be undone: {reason}", step.id);
                self.undo_failed(node, Failure::lasting(Code::RollbackFailed, message))
            }
            Undo::Unknown | Undo::NotNeeded => {
                let message = format!("nobody said how to undo `{}`", step.id);
                let mut failure = Failure::lasting(Code::RollbackFailed, message);
                failure.hint = Some(
                    "declare a `rollback` on the step, or for its tool in the configuration".into(),
                );
                self.undo_failed(node, failure)
            }
        }
    }

    fn undo_failed(&mut self, node: NodeId, failure: Failure) -> bool {
        self.record(Fact::UndoFailed { node, failure: Arc::new(failure) });
        false
    }

    fn undo_args(&self, node: NodeId, call: &ToolCall) -> Outcome<Value> {
        let record = self.state.record(node);
        let mut scope = FrameScope::new(self.state, node.frame);
        scope.output = record.node.output();
        scope.args = Some(&record.args);
        let wrong = |reason: &str| {
            let message = format!("the undo's arguments cannot be worked out: {reason}");
            Failure::lasting(Code::RollbackFailed, message)
        };
        let args = call.parameters.template.eval(&scope, self.limits);
        let args = args.map_err(|error| wrong(&evaluation(error).message))?;
        match spec(call).input.violations(&args).first() {
            None => Ok(args),
            Some(violation) => Err(wrong(&violation.to_string())),
        }
    }

    /// Announces the call that takes a step back and has it made.
    pub(super) fn call_undo(&mut self, node: NodeId, args: Value) {
        let step = self.state.step(node).clone();
        let Undo::Call(call) = self.state.undo_of(node).clone() else { return };
        self.record(Fact::UndoCalled { node, args: args.clone() });
        let record = self.state.record(node);
        let path = self.state.path(node);
        let run = self.state.started.as_ref().map_or("", |started| &*started.run_id);
        let id = CallId { node, attempt: record.attempts };
        let attempt = record.undo_tries;
        self.turn.perform.push(Effect::Call(Call {
            id,
            tool: spec(&call).id.clone(),
            args,
            timeout_ms: step.timeout_ms,
            // Another key than the step's own: it is other work.
            key: format!("{run}/{}/undo", self.state.key(node)).into(),
            step: path,
            attempt,
        }));
    }

    pub(super) fn undo_answered(&mut self, node: NodeId, answer: Answer) {
        let failure = match answer {
            Answer::Value(_) => return self.record(Fact::Undone { node }),
            Answer::Failure(failure) => failure,
            Answer::TimedOut => {
                retry::timed_out(self.state.step(node).timeout_ms.unwrap_or(0), true)
            }
            Answer::Ended => Failure::passing(Code::Cancelled, "the undo was ended from outside"),
        };
        let tries = self.state.record(node).undo_tries;
        if failure.retryable && tries < UNDO_TRIES_MAX {
            let backoff = Backoff::default();
            let delay = retry::delay_ms(&backoff, &failure, tries + 1, self.entropy, self.limits);
            let until_ms = self.at_ms.saturating_add(delay);
            self.record(Fact::UndoRested { node, failure: Arc::new(failure), until_ms });
            self.turn.perform.push(Effect::Wake { timer: TimerId::Step(node), at_ms: until_ms });
            return;
        }
        let message = format!("undoing `{}` failed: {}", self.state.step(node).id, failure.message);
        let failure = Failure { message: message.into(), code: Code::RollbackFailed, ..failure };
        self.record(Fact::UndoFailed { node, failure: Arc::new(failure) });
    }

    fn finish_back(&mut self) {
        let failed = self.state.frames.iter().any(|frame| {
            frame.nodes.iter().any(|record| matches!(record.node, Node::UndoFailed { .. }))
        });
        let undone = self.state.frames.iter().any(|frame| {
            frame.nodes.iter().any(|record| matches!(record.node, Node::Undone { .. }))
        });
        // With nothing to take back, the run ended as it ended.
        if !failed && !undone {
            return self.finish_forward();
        }
        let forward = self.final_status();
        let status = match (failed, forward) {
            (true, _) => RunStatus::RollbackFailed,
            (false, RunStatus::Partial) => RunStatus::Partial,
            (false, _) => RunStatus::RolledBack,
        };
        let output = self.result(0, false).unwrap_or_default();
        let output = if status == RunStatus::Partial { output } else { Value::Null };
        let failure = self.state.rollback.clone();
        self.record(Fact::Finished { status, output, failure });
    }
}

fn small(position: usize) -> u32 {
    u32::try_from(position).expect("a run has far fewer than 2^32 steps")
}
