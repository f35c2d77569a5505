//! Forward execution: which steps start, and what a failure stops.

use std::sync::Arc;

use super::consent::denied_failure;
use super::journal::{Entry, Fact, Failure, NodeId, Started};
use super::node::NodeState;
use super::redact::FORGOTTEN_HINT;
use super::retry;
use super::scope::FrameScope;
use super::state::RunState;
use super::{Call, CallId, Effect, EventKind, Purpose, QuestionId, TimerId, Turn};
use crate::budget;
use crate::composition::tool::ToolSpec;
use crate::composition::{Step, StepKind, ToolCall, Unresolved};
use crate::diagnostic::Code;
use crate::expr::{EvalError, Expr, Template};
use crate::limits::Limits;
use crate::value::Value;
use crate::view::RunStatus;

/// Builds the turn that handles one event.
pub(super) struct TurnBuilder<'a> {
    pub(super) state: &'a mut RunState,
    pub(super) limits: &'a Limits,
    pub(super) at_ms: u64,
    pub(super) entropy: u64,
    /// Whether the run was just loaded and is to end: none of its calls is under way, and no
    /// forward step starts.
    pub(super) ends_on_resume: bool,
    pub(super) turn: Turn,
}

/// The result of evaluating a step's own expressions.
pub(super) type StepResult<T> = Result<T, Failure>;

impl TurnBuilder<'_> {
    pub(super) fn handle(&mut self, event: EventKind) {
        match event {
            EventKind::Start(started) => self.start_run(started),
            EventKind::StartPart { started, selection } => self.start_part(started, selection),
            EventKind::Answered { call, answer } => self.call_answered(call, answer),
            EventKind::HandleReceived { call, handle } => self.handle_received(call, handle),
            EventKind::Decided { question, granted, by, data } => {
                self.question_decided(question, granted, by, data);
            }
            EventKind::Expanded { node, outcome } => self.expanded(node, outcome),
            EventKind::RollBack { by } => self.request_rollback(by),
            EventKind::Proceed => {}
            EventKind::Resumed => self.resume_run(),
            EventKind::ResumedToEnd { by, roll_back: rolls_back } => {
                self.resume_to_end(by, rolls_back);
            }
            EventKind::TimerFired(TimerId::Run) => self.run_timed_out(),
            EventKind::TimerFired(TimerId::Step(node)) => self.step_timer_fired(node),
            EventKind::TimerFired(TimerId::Rollback(node)) => self.rollback_backoff_elapsed(node),
            EventKind::TimerFired(TimerId::Attempt(call)) => self.attempt_timed_out(call),
            EventKind::Cancel { by } => self.cancel(by),
        }
        self.advance();
    }

    /// Records a fact and applies it to the state.
    pub(super) fn record(&mut self, fact: Fact) {
        let entry = Entry { seq: self.state.seq, at_ms: self.at_ms, fact };
        self.state.apply(&entry).expect("the machine records legal facts only");
        self.turn.record.push(entry);
    }

    pub(super) fn start_run(&mut self, started: Box<Started>) {
        if self.state.started.is_some() {
            return;
        }
        self.begin_run(started);
        self.ask_for_consent();
    }

    pub(super) fn begin_run(&mut self, started: Box<Started>) {
        self.record(Fact::Started(started));
        self.set_run_timer();
    }

    /// Sets the timer for the run's timeout.
    pub(super) fn set_run_timer(&mut self) {
        if let Some(at_ms) = self.run_deadline() {
            self.turn.perform.push(Effect::SetTimer { timer: TimerId::Run, at_ms });
        }
    }

    /// The run's deadline, if it has one.
    pub(super) fn run_deadline(&self) -> Option<u64> {
        let own = self.state.options().and_then(|options| options.timeout_ms);
        let timeout = own.or(self.state.plan_of(0).composition.timeout_ms)?;
        // A clock that was set back must not extend the deadline.
        Some(self.state.started_ms.min(self.at_ms).saturating_add(timeout))
    }

    /// Starts ready steps and closes finished frames until nothing more follows. An interrupted or
    /// paused run stops in the middle; the driver's next event cancels it, ends it by timeout, or
    /// continues it.
    fn advance(&mut self) {
        while self.state.status == RunStatus::Running
            && !self.state.awaits_consent()
            && (self.state.is_rolling_back() || !budget::should_pause())
        {
            if let Some(node) = self.state.next_ready() {
                self.start(node);
            } else if !self.close_next_frame() && !self.continue_next_attempt() {
                break;
            }
        }
    }

    fn start(&mut self, node: NodeId) {
        let step = self.state.step(node).clone();
        match self.state.step_state(node).node {
            NodeState::RetryReady { candidate } if self.state.step_state(node).doubt.is_some() => {
                return self.ask_probe(node, &step, candidate);
            }
            NodeState::RetryReady { .. } if !matches!(step.kind, StepKind::Tool(_)) => {
                return self.start_non_tool_step(node, &step);
            }
            NodeState::Confirmed { candidate } | NodeState::RetryReady { candidate } => {
                let args = self.state.step_state(node).args.clone();
                return self.call(node, &step, candidate, args);
            }
            NodeState::FallbackReady { next } => return self.start_candidate(node, &step, next),
            _ => {}
        }
        if let Some((reason, by_failure)) = self.reason_to_skip(node) {
            return self.record(Fact::Skipped { node, reason, by_failure });
        }
        match self.condition(node, &step) {
            Ok(true) => {}
            Ok(false) => {
                let reason = "its `when` is false".into();
                return self.record(Fact::Skipped { node, reason, by_failure: false });
            }
            Err(failure) => return self.fail(node, failure),
        }
        match &step.kind {
            StepKind::Tool(_) => self.start_candidate(node, &step, 0),
            _ => self.start_non_tool_step(node, &step),
        }
    }

    /// Why a step is skipped: a need failed, or a need whose value it reads was skipped; and
    /// whether a failure is the cause.
    fn reason_to_skip(&self, node: NodeId) -> Option<(Arc<str>, bool)> {
        let frame = self.state.frame(node.frame);
        let plan = self.state.plan_of(node.frame);
        for need in &self.state.step(node).needs {
            let id = || &plan.step(plan.bodies[frame.body as usize].steps[need.position]).step.id;
            // Only a graph has needs: its steps and its nodes have the same positions.
            match &frame.nodes[need.position].node {
                NodeState::Failed { .. } => {
                    return Some((format!("`{}` failed", id()).into(), true));
                }
                NodeState::Cancelled { in_doubt, .. } => {
                    let how = if *in_doubt { "is in doubt" } else { "was cancelled" };
                    return Some((format!("`{}` {how}", id()).into(), true));
                }
                NodeState::Skipped { by_failure, .. } if *by_failure || need.reads_value => {
                    return Some((format!("`{}` was skipped", id()).into(), *by_failure));
                }
                _ => {}
            }
        }
        None
    }

    fn condition(&self, node: NodeId, step: &Step) -> StepResult<bool> {
        match &step.when {
            None => Ok(true),
            Some(when) => {
                self.eval_condition(when, &FrameScope::new(self.state, node.frame), "`when`")
            }
        }
    }

    /// The value of a condition; anything but true and false is a failure.
    pub(super) fn eval_condition(
        &self,
        expr: &Expr,
        scope: &FrameScope<'_>,
        what: &str,
    ) -> StepResult<bool> {
        match expr.eval(scope, self.limits).map_err(evaluation_failure)? {
            Value::Bool(truth) => Ok(truth),
            other => {
                let message = format!("{what} must be true or false, but is {}", other.kind());
                let mut failure = Failure::permanent(Code::Expression, message);
                failure.hint = Some(
                    "compare it with something, or add `| bool`: null, empty and zero are false"
                        .into(),
                );
                Err(failure)
            }
        }
    }

    pub(super) fn eval(&self, node: NodeId, template: &Template) -> StepResult<Value> {
        template
            .eval(&FrameScope::new(self.state, node.frame), self.limits)
            .map_err(evaluation_failure)
    }

    /// Starts the tool of a step (candidate 0) or its n-th fallback.
    fn start_candidate(&mut self, node: NodeId, step: &Step, candidate: u16) {
        let call = candidate_call(step, candidate);
        let mut kept = Vec::new();
        let args = self.arguments(node, call, &mut kept);
        if !kept.is_empty() {
            self.record(Fact::ReferencesKept { node, references: kept });
        }
        let args = match args {
            Ok(args) => args,
            Err(failure) => return self.fail(node, failure),
        };
        let tool = tool_spec(call);
        let uncovered = self.consent_violation(node, tool);
        if let Some(failure) =
            uncovered.or_else(|| self.rollback_consent_violation(node, candidate))
        {
            return self.fail(node, failure);
        }
        if self.needs_confirmation(node, step, candidate, &args) {
            self.record(Fact::Asked { node, candidate, args });
            return self.ask(node);
        }
        self.call(node, step, candidate, args);
    }

    /// The arguments of a call, checked against its tool's schema. Unresolved references that stay
    /// as written are added to `kept`.
    fn arguments(
        &self,
        node: NodeId,
        call: &ToolCall,
        kept: &mut Vec<Arc<str>>,
    ) -> StepResult<Value> {
        let error = self.state.step_state(node).last_failure.as_deref().map(error_value);
        let mut scope = FrameScope::new(self.state, node.frame);
        scope.error = error.as_ref();
        let template = &call.parameters.template;
        let args = match self.state.plan_of(node.frame).composition.unresolved {
            Unresolved::Fail => template.eval(&scope, self.limits),
            Unresolved::Keep => template.eval_keeping_unresolved(&scope, self.limits, kept),
        };
        let args = args.map_err(evaluation_failure)?;
        let violations = tool_spec(call).input.violations(&args);
        match violations.first() {
            None => Ok(args),
            Some(violation) => {
                let message = format!("arguments of `{}`: {violation}", tool_spec(call).id);
                Err(Failure::permanent(Code::InputSchema, message))
            }
        }
    }

    /// Records a call and requests it. `candidate` 0 is the tool itself.
    fn call(&mut self, node: NodeId, step: &Step, candidate: u16, args: Value) {
        // Recorded arguments can be reused, unless a part of them was redacted.
        if let Some(failure) = self.state.redacted_failure(&args) {
            if self.state.step_state(node).was_in_doubt {
                return self.begin_doubt(node, step, candidate, Arc::new(failure));
            }
            return self.fail(node, failure);
        }
        let own = self.state.plan_of(0).composition.guards.max_tool_calls.map(u64::from);
        let max = own.unwrap_or(u64::MAX).min(self.limits.run_calls_max);
        if self.state.calls >= max {
            let message = format!("the run made {max} calls, which is its limit");
            return self.fail(node, Failure::permanent(Code::Limit, message));
        }
        if tool_spec(candidate_call(step, candidate)).composition.is_some() {
            return self.enter_composition(node, candidate, args);
        }
        self.record(Fact::Called { node, candidate, args });
        self.send(node, step, candidate);
    }

    /// Requests the recorded call, or its recovery.
    pub(super) fn send(&mut self, node: NodeId, step: &Step, candidate: u16) {
        let tool = tool_spec(candidate_call(step, candidate));
        let covers_parts = tool.confirmation_covers_parts(self.covers_parts(node));
        let record = self.state.step_state(node);
        self.turn.perform.push(Effect::Call(Call {
            id: CallId { node, attempt: record.attempts },
            tool: tool.id.clone(),
            args: record.args.clone(),
            timeout_ms: step.timeout_ms,
            key: self.state.call_key(node, Purpose::Work),
            step: self.state.path(node),
            attempt: record.candidate_attempts,
            purpose: Purpose::Work,
            covers_parts,
            overwrites: self.overwrites_for(node, tool),
            resume_handle: record.resume_handle.requested_handle(),
        }));
    }

    fn question_decided(&mut self, question: QuestionId, granted: bool, by: Arc<str>, data: Value) {
        let QuestionId { node, seq } = question;
        if node == NodeId::RUN {
            return self.consent_decided(seq, granted, by);
        }
        if self.state.step_state(node).asked_seq != seq {
            return;
        }
        if let NodeState::InDoubt { candidate } = self.state.step_state(node).node {
            return self.doubt_decided(node, candidate, granted, by, data);
        }
        let NodeState::AwaitingConfirmation { candidate } = self.state.step_state(node).node else {
            return;
        };
        if !granted {
            self.record(Fact::Refused { node: Some(node), by: by.clone() });
        }
        if let StepKind::Approve { .. } = self.state.step(node).kind {
            return self.approval_decided(node, granted, &by, data);
        }
        if granted {
            return self.record(Fact::Granted { node, by });
        }
        let step = self.state.step(node).clone();
        let tool = &tool_spec(candidate_call(&step, candidate)).id;
        let rollback = self.state.rollback_to_confirm(node, candidate);
        let rollback = rollback
            .map(|rollback| format!(", with `{}` to roll it back,", tool_spec(rollback).id));
        let rollback = rollback.unwrap_or_default();
        self.fail(node, denied_failure(format!("`{tool}`{rollback} was not confirmed")));
    }

    /// Stops an activation: nothing new starts, and running steps are asked to end.
    pub(super) fn stop(&mut self, frame: u32, failure: &Arc<Failure>) {
        if !self.may_stop(frame) {
            return;
        }
        self.record(Fact::Stopped { frame, failure: failure.clone() });
        for node in self.state.nodes_of(frame) {
            self.stop_node(node, failure);
        }
    }

    /// A rollback is not cancelled: it always completes.
    fn may_stop(&self, frame: u32) -> bool {
        let is_rolling_back =
            self.state.is_root(frame) && self.state.activation_of(frame).rollback.is_some();
        self.state.frame(frame).stopped.is_none() && !is_rolling_back
    }

    fn stop_node(&mut self, node: NodeId, failure: &Arc<Failure>) {
        let record = self.state.step_state(node);
        match record.node {
            NodeState::Calling { .. } => self.stop_call(node),
            // A running probe is worth waiting for: its answer decides whether there is something
            // to roll back.
            NodeState::Probing { .. } => self.set_stop_timer(node),
            // A person who cancels the run sees the question, and leaves it open.
            NodeState::InDoubt { .. }
                if failure.code != Code::Cancelled && self.asks_after_stop(node) => {}
            NodeState::AwaitingConfirmation { .. }
            | NodeState::Confirmed { .. }
            | NodeState::Backoff { .. }
            | NodeState::RetryReady { .. }
            | NodeState::FallbackReady { .. }
            | NodeState::InDoubt { .. }
            | NodeState::Sleeping
            | NodeState::Expanding
            | NodeState::BetweenRounds => {
                let in_doubt = record.was_in_doubt || record.has_acted || record.doubt.is_some();
                self.record(Fact::Cancelled { node, in_doubt });
            }
            NodeState::Open { .. } => {
                for frame in record.frames.clone() {
                    if !self.state.frame(frame).closed {
                        self.stop(frame, failure);
                    }
                }
            }
            _ => {}
        }
    }

    pub(super) fn run_timed_out(&mut self) {
        if self.state.status != RunStatus::Running || self.state.frame_is_closed(0) {
            return;
        }
        let mut failure = Failure::permanent(Code::Timeout, "the run exceeded its timeout");
        failure.hint = Some("raise the composition's `timeout`, or that of the run: `--timeout`, or `options.timeout`".into());
        self.stop(0, &Arc::new(failure));
    }

    /// An attempt without a call of its own timed out, or the wait for a call after a stop is over.
    fn attempt_timed_out(&mut self, call: CallId) {
        let CallId { node, attempt } = call;
        let record = self.state.step_state(node);
        if record.attempts != attempt {
            return;
        }
        let step = self.state.step(node).clone();
        let timeout = self.attempt_timeout(node, &step).unwrap_or(0);
        let failure = retry::timeout_failure(timeout, true);
        match record.node {
            NodeState::Sleeping | NodeState::BetweenRounds | NodeState::Expanding => {
                self.fail(node, failure);
            }
            NodeState::Calling { .. } | NodeState::Probing { .. } => self.stop_timed_out(node),
            NodeState::AwaitingConfirmation { .. } => self.approval_timed_out(node, &step),
            NodeState::RollingBack { .. } => self.rollback_timed_out(node),
            // The rollback of an attempt has the timeouts of its calls.
            NodeState::Open { .. } if record.attempt_rollback.is_some() => {}
            NodeState::Open { .. } => {
                let failure = Arc::new(failure);
                self.record(Fact::TimedOut { node, failure: failure.clone() });
                self.stop_bodies(node, &failure);
            }
            _ => {}
        }
    }

    pub(super) fn cancel(&mut self, by: Arc<str>) {
        let is_over = self.state.status != RunStatus::Running || self.state.frame_is_closed(0);
        if !is_over && self.may_stop(0) {
            self.record(Fact::CancelAsked { by });
            let failure = Failure::permanent(Code::Cancelled, "the run was cancelled");
            self.stop(0, &Arc::new(failure));
        } else if !is_over && self.state.activation_of(0).rollback.is_none() {
            self.leave_in_doubt(by);
        }
    }

    /// A person who cancels a stopped run does not want to resolve its unanswered calls: they stay
    /// in doubt.
    fn leave_in_doubt(&mut self, by: Arc<str>) {
        let frames = 0..u32::try_from(self.state.frames.len()).unwrap_or(u32::MAX);
        let nodes = frames.flat_map(|frame| self.state.nodes_of(frame));
        let doubtful: Vec<NodeId> = nodes
            .filter(|node| matches!(self.state.step_state(*node).node, NodeState::InDoubt { .. }))
            .filter(|node| self.state.is_stopped(*node))
            .collect();
        if !doubtful.is_empty() {
            self.record(Fact::CancelAsked { by });
        }
        for node in doubtful {
            self.record(Fact::Cancelled { node, in_doubt: true });
        }
    }

    fn rollback_backoff_elapsed(&mut self, node: NodeId) {
        if matches!(self.state.step_state(node).node, NodeState::RollbackBackoff { .. }) {
            let args = self.state.step_state(node).rollback_args.clone();
            self.call_rollback(node, args);
        }
    }

    fn step_timer_fired(&mut self, node: NodeId) {
        match self.state.step_state(node).node {
            NodeState::Backoff { .. } => self.record(Fact::Woke { node }),
            NodeState::Sleeping => self.succeed(node, Value::Null),
            NodeState::BetweenRounds => self.next_round(node),
            _ => {}
        }
    }

    /// Closes one activation whose steps are all settled; false if there is none.
    fn close_next_frame(&mut self) -> bool {
        let Some(frame) = self.state.next_closable_frame() else { return false };
        if self.advance_program(frame) {
            return true;
        }
        self.skip_rest(frame);
        if self.state.is_root(frame) && self.start_rollback(frame) {
            return true;
        }
        if !self.state.frame_is_closed(frame) {
            let failure = self.outcome(frame).err();
            let is_final = failure.as_deref().is_some_and(Failure::is_final);
            self.record(Fact::Closed { frame, failed: failure.is_some(), is_final });
        }
        match self.state.frame(frame).parent {
            Some(parent)
                if self.state.activation_of(frame).is_rollback && self.state.is_root(frame) =>
            {
                self.rollback_frame_closed(parent, frame);
            }
            Some(parent) => self.frame_closed(parent, frame),
            None => self.finish(),
        }
        true
    }

    fn skip_rest(&mut self, frame: u32) {
        for node in self.state.nodes_of(frame) {
            if matches!(self.state.step_state(node).node, NodeState::Pending) {
                let stopped = || ("the run stopped".into(), true);
                let (reason, by_failure) = self.reason_to_skip(node).unwrap_or_else(stopped);
                self.record(Fact::Skipped { node, reason, by_failure });
            }
        }
    }
}

/// The tool of a call; every call of a compiled composition has one.
pub(super) fn tool_spec(call: &ToolCall) -> &Arc<ToolSpec> {
    call.tool.as_ref().expect("a checked call has its tool")
}

pub(super) fn candidate_call(step: &Step, candidate: u16) -> &ToolCall {
    match (&step.kind, candidate) {
        (StepKind::Tool(call), 0) => call,
        (_, fallback) => &step.fallback[usize::from(fallback) - 1],
    }
}

/// A failure as a value for expressions.
pub(super) fn error_value(failure: &Failure) -> Value {
    Value::object([
        ("code", Value::from(failure.code.as_str())),
        ("message", Value::String(failure.message.clone())),
    ])
}

pub(super) fn evaluation_failure(error: EvalError) -> Failure {
    let mut failure = Failure::permanent(error.code, error.message);
    failure.hint = (error.code == Code::PolicyViolation).then(|| FORGOTTEN_HINT.into());
    failure
}
