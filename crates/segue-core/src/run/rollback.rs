//! Rollback: completed steps are rolled back, last first.
//!
//! One step at a time, in reverse order of completion, so each step comes after the steps that
//! depended on it. A rollback starts only after all forward calls have settled, and nothing stops
//! it: a step that cannot be rolled back is reported, and the others continue.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::advance::{StepResult, TurnBuilder, candidate_call, evaluation_failure, tool_spec};
use super::frame::Rollback;
use super::journal::{Entry, Fact, Failure, NodeId};
use super::node::{IllegalFact, NodeState};
use super::recover::rollback_requested;
use super::retry;
use super::scope::FrameScope;
use super::state::RunState;
use super::{Answer, Call, CallId, Effect, Overwrites, Purpose, TimerId};
use crate::budget;
use crate::budget::interrupt::Interrupt;
use crate::composition::tool::Impact;
use crate::composition::{Backoff, ResolvedRollback, StepKind, Strategy, ToolCall};
use crate::diagnostic::Code;
use crate::value::Value;
use crate::view::RunStatus;

/// The maximum number of attempts to roll one step back.
const ROLLBACK_ATTEMPTS_MAX: u32 = 5;

/// Why steps are rolled back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RollbackReason {
    /// Their composition failed.
    Failed,
    /// A person requested it.
    Requested,
    /// Their attempt failed, and another one follows.
    Retry,
}

impl TurnBuilder<'_> {
    /// Forward execution of a composition has ended: starts its rollback, if it needs one. False if
    /// nothing is to be rolled back.
    pub(super) fn start_rollback(&mut self, frame: u32) -> bool {
        if self.state.activation_of(frame).rollback.is_none() {
            let Some(failure) = self.rollback_cause(frame) else { return false };
            let steps = self.steps_to_roll_back(&[frame], RollbackReason::Failed);
            self.record(Fact::RollbackStarted { frame, failure, steps });
        }
        loop {
            let Some(back) = &self.state.activation_of(frame).rollback else { return false };
            if back.current.is_some() {
                return true;
            }
            let Some(node) = back.remaining.last().copied() else { return false };
            let pivot = back.blocked.get(&node).copied();
            self.roll_back_step(node, pivot);
        }
    }

    /// A person requested a rollback, during the run or after it.
    pub(super) fn request_rollback(&mut self, by: Arc<str>) {
        let failure = Arc::new(rollback_requested(&by));
        match self.state.status {
            RunStatus::Running if self.state.activation_of(0).rollback.is_none() => {
                self.record(Fact::RollbackAsked { by });
                self.stop(0, &failure);
            }
            RunStatus::Success
            | RunStatus::Partial
            | RunStatus::Failed
            | RunStatus::Cancelled
            | RunStatus::Denied
            | RunStatus::RollbackFailed => {
                self.record(Fact::RollbackAsked { by });
                let steps = self.steps_to_roll_back(&[0], RollbackReason::Requested);
                let cause = self.state.failure.clone().unwrap_or(failure);
                self.record(Fact::RollbackStarted { frame: 0, failure: cause, steps });
            }
            _ => {}
        }
    }

    fn rollback_cause(&self, frame: u32) -> Option<Arc<Failure>> {
        let activation = self.state.activation_of(frame);
        let asked = frame == 0 && self.state.rollback_asked.is_some();
        if !activation.rolls_back_on_failure() && !asked {
            return None;
        }
        if let Some(failure) = &self.state.frame(frame).stopped {
            return Some(failure.clone());
        }
        // Without a stop, only a failure that was not tolerated counts.
        let failed = self.state.frame(frame).nodes.iter().find_map(|record| match &record.node {
            NodeState::Failed { failure } => Some(failure.clone()),
            _ => None,
        });
        // An output that cannot be evaluated fails a composition whose steps all succeeded.
        failed.or_else(|| self.result(frame, true).err().map(Arc::new))
    }

    /// The steps to roll back in frames and inside them, last settled first.
    pub(super) fn steps_to_roll_back(&self, roots: &[u32], why: RollbackReason) -> Vec<NodeId> {
        let mut steps: Vec<NodeId> = Vec::new();
        for root in roots {
            for frame in self.state.frames_inside(&[*root]) {
                let nodes = self.state.nodes_of(frame);
                steps.extend(nodes.filter(|node| self.needs_rollback(*node, *root, why)));
            }
        }
        let settled = |node: &NodeId| self.state.step_state(*node).settled_seq;
        steps.sort_by_key(|node| (std::cmp::Reverse(settled(node)), *node));
        steps
    }

    fn needs_rollback(&self, node: NodeId, root: u32, why: RollbackReason) -> bool {
        // Rollback steps are not rolled back themselves, nor are steps that this run did not perform.
        let is_given = self.state.step_state(node).origin.is_some();
        if self.state.activation_of(node.frame).is_inside_rollback || is_given {
            return false;
        }
        let state = &self.state.step_state(node).node;
        let again =
            why == RollbackReason::Requested && matches!(state, NodeState::RollbackFailed { .. });
        (again || state.has_acted())
            && self.has_side_effects(node)
            && !self.is_inside_rolled_back(node)
            && (why != RollbackReason::Failed || !self.contributed_to_result(node, root))
    }

    /// Whether there is something to roll back.
    fn has_side_effects(&self, node: NodeId) -> bool {
        let step = self.state.step(node);
        match (self.state.resolved_rollback(node), &step.kind) {
            (ResolvedRollback::NotNeeded, _) => false,
            (ResolvedRollback::Call(_) | ResolvedRollback::Impossible { .. }, _) => true,
            // A composition is rolled back step by step.
            (ResolvedRollback::Unknown, StepKind::Tool(_)) => {
                let tool = tool_spec(candidate_call(step, self.state.step_state(node).candidate));
                tool.composition.is_none()
                    && !matches!(tool.annotations.impact(), Impact::None | Impact::Reads)
            }
            (ResolvedRollback::Unknown, _) => false,
        }
    }

    /// Whether an enclosing step has a rollback of its own, which covers the steps inside.
    fn is_inside_rolled_back(&self, node: NodeId) -> bool {
        let mut inside = node.frame;
        while let Some(outer) = self.state.frame(inside).parent {
            let record = self.state.step_state(outer);
            // Only for the attempt that succeeded: earlier ones are rolled back step by step.
            let covers = matches!(self.state.resolved_rollback(outer), ResolvedRollback::Call(_))
                // Also if an enclosing composition rolled it back already.
                && record.node.output().is_some()
                && record.node.failure().is_none()
                && record.frames.last() == Some(&inside);
            if covers {
                return true;
            }
            inside = outer.frame;
        }
        false
    }

    /// Under `partial_success`, steps that contributed to a result stay.
    fn contributed_to_result(&self, node: NodeId, root: u32) -> bool {
        if self.state.activation_of(root).strategy != Strategy::PartialSuccess
            || self.state.frame(root).stopped.is_some()
        {
            return false;
        }
        let mut top = node;
        while top.frame != root {
            let Some(parent) = self.state.frame(top.frame).parent else { return false };
            top = parent;
        }
        let mut work = vec![top.position];
        let mut seen = vec![false; self.state.frame(root).nodes.len()];
        while let Some(position) = work.pop() {
            if std::mem::replace(&mut seen[position as usize], true) {
                continue;
            }
            let at = NodeId { frame: root, position };
            // A step without a value contributes nothing.
            if self.state.step_state(at).node.output().is_none() {
                continue;
            }
            let dependants = &self.state.planned(at).dependants;
            if dependants.is_empty() {
                return true;
            }
            work.extend(dependants);
        }
        false
    }

    /// Rolls a step back, or records why it stays: `pivot` is a later step that cannot be.
    pub(super) fn roll_back_step(&mut self, node: NodeId, pivot: Option<NodeId>) {
        let id = self.state.step(node).id.clone();
        if let Some(pivot) = pivot {
            let pivot = self.state.path(pivot);
            let message = format!("`{id}` stays: the later step `{pivot}` cannot be rolled back");
            return self.rollback_failed(node, Failure::permanent(Code::RollbackFailed, message));
        }
        match &self.state.resolved_rollback(node).clone() {
            ResolvedRollback::Call(call) => match self.rollback_args(node, call) {
                Ok(args) => self.call_rollback(node, args),
                Err(failure) => self.rollback_failed(node, failure),
            },
            ResolvedRollback::Impossible { reason } => {
                let message = format!("`{id}` cannot be rolled back: {reason}");
                self.rollback_failed(node, Failure::permanent(Code::RollbackFailed, message));
            }
            ResolvedRollback::Unknown | ResolvedRollback::NotNeeded => {
                let message = format!("`{id}` has no rollback");
                let mut failure = Failure::permanent(Code::RollbackFailed, message);
                failure.hint = Some(
                    "declare a `rollback` on the step, or for its tool in the configuration".into(),
                );
                self.rollback_failed(node, failure);
            }
        }
    }

    fn rollback_failed(&mut self, node: NodeId, failure: Failure) {
        self.record(Fact::RollbackFailed { node, failure: Arc::new(failure) });
    }

    fn rollback_args(&self, node: NodeId, call: &ToolCall) -> StepResult<Value> {
        // A rollback cannot be cancelled: only its budget ends an evaluation.
        budget::interruptible(&Interrupt::default(), || self.eval_rollback_args(node, call))
    }

    fn eval_rollback_args(&self, node: NodeId, call: &ToolCall) -> StepResult<Value> {
        let record = self.state.step_state(node);
        let mut scope = FrameScope::new(self.state, node.frame);
        scope.output = record.node.output();
        scope.args = Some(&record.args);
        let wrong = |reason: &str| {
            let message = format!("the arguments of the rollback are wrong: {reason}");
            Failure::permanent(Code::RollbackFailed, message)
        };
        let args = call.parameters.template.eval(&scope, self.limits);
        let args = args.map_err(|error| wrong(&evaluation_failure(error).message))?;
        match tool_spec(call).input.violations(&args).first() {
            None => Ok(args),
            Some(violation) => Err(wrong(&violation.to_string())),
        }
    }

    /// Records the call that rolls a step back, and requests it.
    pub(super) fn call_rollback(&mut self, node: NodeId, args: Value) {
        let ResolvedRollback::Call(call) = self.state.resolved_rollback(node).clone() else {
            return;
        };
        if let Some(failure) = self.state.redacted_failure(&args) {
            return self.rollback_gave_up(node, failure);
        }
        if tool_spec(&call).composition.is_some() {
            self.record(Fact::RollbackEntered { node, input: args });
            return self.set_rollback_timer(node);
        }
        self.record(Fact::RollbackCalled { node, args });
        self.send_rollback(node, &call);
    }

    /// Requests the recorded rollback call, or its recovery.
    pub(super) fn send_rollback(&mut self, node: NodeId, call: &ToolCall) {
        let record = self.state.step_state(node);
        self.turn.perform.push(Effect::Call(Call {
            id: CallId { node, attempt: record.attempts },
            tool: tool_spec(call).id.clone(),
            args: record.rollback_args.clone(),
            timeout_ms: Some(self.rollback_timeout(node)),
            key: self.state.call_key(node, Purpose::Rollback),
            step: self.state.path(node),
            attempt: record.rollback_attempts,
            purpose: Purpose::Rollback,
            // The consent to a step included its rollback.
            covers_parts: true,
            overwrites: Overwrites::Everything,
            resume_handle: record.resume_handle.requested_handle(),
        }));
    }

    /// A rollback always has a timeout, because it cannot be cancelled.
    fn rollback_timeout(&self, node: NodeId) -> u64 {
        self.state.step(node).timeout_ms.unwrap_or(self.limits.rollback_timeout_ms)
    }

    /// Sets the timer for a composition that rolls a step back.
    pub(super) fn set_rollback_timer(&mut self, node: NodeId) {
        let timeout = self.rollback_timeout(node);
        let record = self.state.step_state(node);
        let timer = TimerId::Attempt(CallId { node, attempt: record.attempts });
        let at_ms = record.attempt_ms.min(self.at_ms).saturating_add(timeout);
        self.turn.perform.push(Effect::SetTimer { timer, at_ms });
    }

    /// A composition that rolls a step back timed out: it is stopped.
    pub(super) fn rollback_timed_out(&mut self, node: NodeId) {
        let failure = Arc::new(retry::timeout_failure(self.rollback_timeout(node), true));
        for frame in self.state.step_state(node).rollback_frames.clone() {
            if !self.state.frame_is_closed(frame) {
                self.stop(frame, &failure);
            }
        }
    }

    /// A composition that rolls a step back is finished.
    pub(super) fn rollback_frame_closed(&mut self, node: NodeId, frame: u32) {
        let answer = match self.composition_outcome(frame) {
            Ok(value) => Answer::Value(value),
            Err(failure) => {
                let in_doubt = failure.in_doubt || self.state.has_doubt(frame);
                Answer::Failure(Failure { in_doubt, ..(*failure).clone() })
            }
        };
        self.rollback_answered(node, answer);
    }

    pub(super) fn rollback_answered(&mut self, node: NodeId, answer: Answer) {
        if let Some(why) = self.resume_failure(node, &answer) {
            return self.rollback_call_lost(node, Some(&why));
        }
        let failure = match answer {
            Answer::Value(_) => return self.record(Fact::RolledBack { node }),
            Answer::Failure(failure) => failure,
            Answer::TimedOut => retry::timeout_failure(self.rollback_timeout(node), false),
            Answer::Aborted => {
                let mut failure = Failure::transient(Code::Cancelled, "the rollback was aborted");
                failure.in_doubt = true;
                failure
            }
            Answer::Unsent => Failure::transient(Code::Cancelled, "the rollback was aborted"),
        };
        let tries = self.state.step_state(node).rollback_attempts;
        let ResolvedRollback::Call(call) = self.state.resolved_rollback(node) else { return };
        let certain = !failure.in_doubt || tool_spec(call).is_repeatable();
        if failure.retryable && certain && tries < ROLLBACK_ATTEMPTS_MAX {
            let backoff = Backoff::default();
            let delay = retry::delay_ms(&backoff, &failure, tries + 1, self.entropy, self.limits);
            let until_ms = self.at_ms.saturating_add(delay);
            self.record(Fact::RollbackBackedOff { node, failure: Arc::new(failure), until_ms });
            self.turn
                .perform
                .push(Effect::SetTimer { timer: TimerId::Rollback(node), at_ms: until_ms });
            return;
        }
        self.rollback_gave_up(node, failure);
    }

    /// A step was not rolled back, or the outcome is unknown.
    pub(super) fn rollback_gave_up(&mut self, node: NodeId, failure: Failure) {
        let message =
            format!("rolling back `{}` failed: {}", self.state.step(node).id, failure.message);
        let failure = Failure { message: message.into(), code: Code::RollbackFailed, ..failure };
        self.record(Fact::RollbackFailed { node, failure: Arc::new(failure) });
    }

    /// The rollback is finished.
    pub(super) fn finish_rollback(&mut self) {
        let failed = self.any_node(|node| matches!(node, NodeState::RollbackFailed { .. }));
        let rolled_back = self.any_node(|node| matches!(node, NodeState::RolledBack { .. }));
        // With nothing to roll back, the run keeps its forward status.
        if !failed && !rolled_back {
            return self.finish_forward();
        }
        let by_hand = self.state.rollback_asked.is_some();
        let status = match (failed, self.final_status()) {
            (true, _) => RunStatus::RollbackFailed,
            (false, RunStatus::Partial) if !by_hand => RunStatus::Partial,
            (false, _) => RunStatus::RolledBack,
        };
        // No other status has a result, so none is evaluated.
        let output = match status {
            RunStatus::Partial => self.result(0, false).unwrap_or_default(),
            _ => Value::Null,
        };
        // A requested rollback is no failure: the run keeps its earlier failure, if any.
        let cause = self.state.activation_of(0).rollback.as_ref().map(|back| back.cause.clone());
        let failure = if by_hand { self.state.failure.clone() } else { cause };
        self.record(Fact::Finished { status, output, failure });
    }

    fn any_node(&self, is: impl Fn(&NodeState) -> bool) -> bool {
        self.state.frames.iter().any(|frame| frame.nodes.iter().any(|record| is(&record.node)))
    }
}

impl RunState {
    /// The rollback of these steps.
    fn rollback(&self, cause: &Arc<Failure>, steps: &[NodeId]) -> Rollback {
        let remaining: Vec<NodeId> = steps.iter().rev().copied().collect();
        let blocked = self.blocked_rollbacks(&remaining);
        Rollback { cause: cause.clone(), remaining, current: None, blocked }
    }

    /// Applies the start of a rollback of a failed attempt.
    pub(super) fn begin_attempt_rollback(
        &mut self,
        node: NodeId,
        cause: &Arc<Failure>,
        steps: &[NodeId],
    ) -> Result<(), IllegalFact> {
        let record = self.step_state(node);
        if !matches!(record.node, NodeState::Open { .. }) || record.attempt_rollback.is_some() {
            return Err(IllegalFact);
        }
        let back = self.rollback(cause, steps);
        self.step_state_mut(node).attempt_rollback = Some(Box::new(back));
        if !self.attempts_rolling_back.contains(&node) {
            self.attempts_rolling_back.push(node);
        }
        Ok(())
    }

    /// Applies the start of a composition's rollback.
    pub(super) fn begin_rollback(&mut self, frame: u32, cause: &Arc<Failure>, steps: &[NodeId]) {
        let back = self.rollback(cause, steps);
        let activation = self.frame(frame).activation;
        self.activations[activation as usize].rollback = Some(back);
        if !self.rolling_back.contains(&activation) {
            self.rolling_back.push(activation);
        }
        self.closable_frames.insert(frame);
    }

    /// Applies the transition table to a settled step; no other step depends on that.
    pub(super) fn advance_rollback(
        &mut self,
        node: NodeId,
        entry: &Entry,
    ) -> Result<(), IllegalFact> {
        let record = self.step_state_mut(node);
        let before = std::mem::take(&mut record.node);
        let was_busy = before.is_busy();
        record.node = before.next(&entry.fact)?;
        let is_busy = record.node.is_busy();
        let is_over =
            matches!(record.node, NodeState::RolledBack { .. } | NodeState::RollbackFailed { .. });
        self.busy = self.busy + u32::from(is_busy) - u32::from(was_busy);
        for activation in &self.rolling_back {
            let activation = &mut self.activations[*activation as usize];
            if activation.rollback.as_mut().is_some_and(|back| back.advance(node, is_over)) {
                self.closable_frames.insert(activation.root);
                return Ok(());
            }
        }
        for owner in &self.attempts_rolling_back {
            let record = &mut self.frames[owner.frame as usize].nodes[owner.position as usize];
            if record.attempt_rollback.as_mut().is_some_and(|back| back.advance(node, is_over)) {
                self.failed_attempts.insert(*owner);
                return Ok(());
            }
        }
        Err(IllegalFact)
    }

    /// These frames and every frame inside them. Costs what they hold, not what the run holds: a loop
    /// whose items retry asks once for each item.
    pub(super) fn frames_inside(&self, roots: &[u32]) -> Vec<u32> {
        let mut frames = roots.to_vec();
        let mut next = 0;
        while let Some(frame) = frames.get(next).copied() {
            for record in &self.frame(frame).nodes {
                frames.extend(record.frames.iter().chain(&record.rollback_frames));
            }
            next += 1;
        }
        frames
    }

    /// The steps that stay because a later step cannot be rolled back.
    pub(super) fn blocked_rollbacks(&self, steps: &[NodeId]) -> BTreeMap<NodeId, NodeId> {
        let is_pivot = |node: &NodeId| {
            let done = matches!(self.step_state(*node).node, NodeState::Done { .. });
            done && matches!(self.resolved_rollback(*node), ResolvedRollback::Impossible { .. })
        };
        let pivots: Vec<NodeId> = steps.iter().copied().filter(is_pivot).collect();
        let mut kept = BTreeMap::new();
        for node in steps.iter().filter(|node| !is_pivot(node)) {
            if let Some(pivot) = pivots.iter().find(|pivot| self.comes_before(*node, **pivot)) {
                kept.insert(*node, *pivot);
            }
        }
        kept
    }

    /// Whether one step is a dependency of another, directly or indirectly.
    fn comes_before(&self, mut first: NodeId, mut second: NodeId) -> bool {
        // Both are compared in the innermost frame that contains both; inner frames came later.
        while first.frame != second.frame {
            let deeper = if first.frame > second.frame { &mut first } else { &mut second };
            match self.frame(deeper.frame).parent {
                Some(parent) => *deeper = parent,
                None => return false,
            }
        }
        if self.frame(first.frame).visits.is_some() {
            return first.position < second.position;
        }
        let mut work = vec![first.position];
        let mut seen = vec![false; self.frame(first.frame).nodes.len()];
        while let Some(position) = work.pop() {
            if std::mem::replace(&mut seen[position as usize], true) {
                continue;
            }
            let at = NodeId { frame: first.frame, position };
            let dependants = &self.planned(at).dependants;
            if dependants.contains(&second.position) {
                return true;
            }
            work.extend(dependants);
        }
        false
    }
}
