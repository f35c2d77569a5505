//! Calls in doubt: their outcome is unknown until a probe or a person resolves it.
//!
//! Idempotent calls were retried before they come here. Then the step's probe decides; if it has
//! none, or the probe cannot tell, a person does.

use std::sync::Arc;

use super::advance::{
    StepResult, TurnBuilder, candidate_call, error_value, evaluation_failure, tool_spec,
};
use super::attempt::{certain_code, is_repeatable};
use super::journal::{Fact, Failure, NodeId};
use super::retry;
use super::scope::FrameScope;
use super::stopping;
use super::{Answer, Call, CallId, Effect, Overwrites, Purpose, TimerId};
use crate::composition::{Backoff, Probe, Step};
use crate::diagnostic::Code;
use crate::value::Value;

/// The maximum number of probe calls for one doubt.
const PROBES_MAX: u32 = 5;

impl TurnBuilder<'_> {
    /// The outcome of a call is unknown.
    pub(super) fn begin_doubt(
        &mut self,
        node: NodeId,
        step: &Step,
        candidate: u16,
        mut failure: Arc<Failure>,
    ) {
        if !failure.in_doubt {
            let message =
                format!("an earlier attempt was never answered; the last one: {}", failure.message);
            let failure = Arc::make_mut(&mut failure);
            (failure.in_doubt, failure.message) = (true, message.into());
        }
        match &step.probe {
            // A probe asks about the step's own tool; it cannot tell about fallbacks.
            Some(probe) if candidate == 0 && !self.ends_on_resume => {
                self.call_probe(node, step, probe, failure);
            }
            _ => self.ask_person(node, failure),
        }
    }

    /// Calls the probe again after a delay.
    pub(super) fn ask_probe(&mut self, node: NodeId, step: &Step, candidate: u16) {
        let Some(failure) = self.state.step_state(node).doubt.clone() else { return };
        self.begin_doubt(node, step, candidate, failure);
    }

    fn call_probe(&mut self, node: NodeId, step: &Step, probe: &Probe, failure: Arc<Failure>) {
        let args = match self.probe_args(node, probe, &failure) {
            Ok(args) => args,
            Err(second) => {
                return self.ask_person(node, doubt_failure(&failure, "its probe", &second));
            }
        };
        if let Some(second) = self.probe_refused(node, probe, &args) {
            return self.ask_person(node, doubt_failure(&failure, "its probe", &second));
        }
        self.record(Fact::Probed { node, failure, args: args.clone() });
        let record = self.state.step_state(node);
        self.turn.perform.push(Effect::Call(Call {
            id: CallId { node, attempt: record.attempts },
            tool: tool_spec(&probe.call).id.clone(),
            args,
            timeout_ms: step.timeout_ms,
            key: self.state.call_key(node, Purpose::Probe),
            step: self.state.path(node),
            attempt: record.probes,
            purpose: Purpose::Probe,
            covers_parts: tool_spec(&probe.call).confirmation_covers_parts(self.covers_parts(node)),
            overwrites: Overwrites::if_allowed(false),
            resume_handle: None,
        }));
        if self.state.is_stopped(node) {
            self.set_stop_timer(node);
        }
    }

    /// Why a probe is not called: a person who would have to confirm it can answer the question
    /// directly.
    fn probe_refused(&self, node: NodeId, probe: &Probe, args: &Value) -> Option<Failure> {
        let tool = tool_spec(&probe.call);
        let asks = !self.covers_parts(node) && tool.must_confirm(args);
        let message = || format!("`{}` asks a person first", tool.id);
        let refused = asks.then(|| Failure::permanent(Code::Denied, message()));
        refused.or_else(|| self.consent_violation(node, tool))
    }

    fn probe_args(&self, node: NodeId, probe: &Probe, failure: &Failure) -> StepResult<Value> {
        let error = error_value(failure);
        let mut scope = FrameScope::new(self.state, node.frame);
        scope.args = Some(&self.state.step_state(node).args);
        scope.error = Some(&error);
        let args =
            probe.call.parameters.template.eval(&scope, self.limits).map_err(evaluation_failure)?;
        match tool_spec(&probe.call).input.violations(&args).first() {
            None => Ok(args),
            Some(violation) => Err(Failure::permanent(Code::InputSchema, violation.to_string())),
        }
    }

    /// Handles the answer of a probe.
    pub(super) fn probe_answered(
        &mut self,
        node: NodeId,
        step: &Step,
        candidate: u16,
        answer: Answer,
    ) {
        let (Some(probe), Some(doubt)) = (&step.probe, self.state.step_state(node).doubt.clone())
        else {
            return;
        };
        let failure = match answer {
            Answer::Value(value) => match self.is_done(node, probe, &value) {
                Ok(true) => {
                    let value = self.probe_output(node, probe, value);
                    return self.probe_confirmed(node, step, candidate, value, &doubt);
                }
                Ok(false) => {
                    return self.call_not_performed(node, step, candidate, "the probe".into());
                }
                Err(failure) => failure,
            },
            Answer::Aborted | Answer::Unsent => {
                Failure::permanent(Code::Cancelled, "it was ended before it answered")
            }
            Answer::TimedOut => retry::timeout_failure(step.timeout_ms.unwrap_or(0), true),
            Answer::Failure(failure) => failure,
        };
        let probes = self.state.step_state(node).probe_attempts;
        // A stopped body schedules no delays.
        if failure.retryable && probes < PROBES_MAX && !self.state.is_stopped(node) {
            let backoff = Backoff::default();
            let delay = retry::delay_ms(&backoff, &failure, probes + 1, self.entropy, self.limits);
            let until_ms = self.at_ms.saturating_add(delay);
            self.record(Fact::BackedOff { node, failure: doubt, until_ms });
            self.turn
                .perform
                .push(Effect::SetTimer { timer: TimerId::Step(node), at_ms: until_ms });
            return;
        }
        self.ask_person(node, doubt_failure(&doubt, "its probe", &failure));
    }

    fn is_done(&self, node: NodeId, probe: &Probe, value: &Value) -> StepResult<bool> {
        let tool = tool_spec(&probe.call);
        let violation = tool.output.as_ref().and_then(|s| s.violations(value).into_iter().next());
        if let Some(violation) = violation {
            let message = format!("the answer of `{}` does not fit: {violation}", tool.id);
            return Err(Failure::permanent(Code::OutputSchema, message));
        }
        let mut scope = FrameScope::new(self.state, node.frame);
        scope.output = Some(value);
        scope.args = Some(&self.state.step_state(node).args);
        self.eval_condition(&probe.done_when, &scope, "`done_when`")
    }

    /// The value of the original call, computed from the probe's answer.
    fn probe_output(&self, node: NodeId, probe: &Probe, answer: Value) -> StepResult<Value> {
        let Some(output) = &probe.output else { return Ok(answer) };
        let mut scope = FrameScope::new(self.state, node.frame);
        scope.output = Some(&answer);
        scope.args = Some(&self.state.step_state(node).args);
        output.eval(&scope, self.limits).map_err(evaluation_failure)
    }

    /// The work was done; the probe's answer gives the value, if it is valid.
    fn probe_confirmed(
        &mut self,
        node: NodeId,
        step: &Step,
        candidate: u16,
        found: StepResult<Value>,
        doubt: &Failure,
    ) {
        let tool = tool_spec(candidate_call(step, candidate)).clone();
        match found.and_then(|value| self.accept(node, step, &tool, value)) {
            Ok((output, given)) => {
                self.record(Fact::Resolved { node, done: true, by: "the probe".into() });
                self.record(Fact::Succeeded { node, output, given });
            }
            Err(failure) => {
                self.ask_person(node, doubt_failure(doubt, "the probe's answer", &failure));
            }
        }
    }

    /// The work was certainly not done: an ordinary failure.
    fn call_not_performed(&mut self, node: NodeId, step: &Step, candidate: u16, by: Arc<str>) {
        let Some(doubt) = self.state.step_state(node).doubt.clone() else { return };
        self.record(Fact::Resolved { node, done: false, by });
        let code = certain_code(doubt.code);
        let failure = Failure { in_doubt: false, code, ..(*doubt).clone() };
        self.attempt_failed(node, step, candidate, Arc::new(failure));
    }

    fn ask_person(&mut self, node: NodeId, failure: Arc<Failure>) {
        if !self.asks_after_stop(node) {
            return self.fail_with(node, failure);
        }
        self.record(Fact::Doubted { node, failure });
        self.ask(node);
    }

    /// A person says whether a call did its work; a yes may include its output.
    pub(super) fn doubt_decided(
        &mut self,
        node: NodeId,
        candidate: u16,
        done: bool,
        by: Arc<str>,
        data: Value,
    ) {
        let step = self.state.step(node).clone();
        if !done {
            return self.call_not_performed(node, &step, candidate, by);
        }
        if data.is_null() {
            // It was done, and its output is unknown.
            self.record(Fact::Resolved { node, done: true, by });
            return self.record(Fact::Succeeded { node, output: Value::Null, given: None });
        }
        let tool = tool_spec(candidate_call(&step, candidate)).clone();
        match self.accept(node, &step, &tool, data) {
            Ok((output, given)) => {
                self.record(Fact::Resolved { node, done: true, by });
                self.record(Fact::Succeeded { node, output, given });
            }
            Err(second) => {
                let Some(doubt) = self.state.step_state(node).doubt.clone() else { return };
                self.ask_person(node, doubt_failure(&doubt, "the person's answer", &second));
            }
        }
    }

    /// The engine stopped before a call was answered. `unfound` says why its recovery failed, if
    /// that was tried.
    pub(super) fn call_lost(&mut self, node: NodeId, candidate: u16, unfound: Option<&str>) {
        let step = self.state.step(node).clone();
        let tool = tool_spec(candidate_call(&step, candidate)).clone();
        let stopped = self.state.is_stopped(node);
        if stopped && self.state.calls_read_only_tool(node) {
            let in_doubt = !self.only_reads(node);
            return self.record(Fact::Cancelled { node, in_doubt });
        }
        if is_repeatable(&step, &tool) && !stopped {
            return self.record(Fact::Lost { node });
        }
        let message = format!("the engine stopped before `{}` had answered", tool.id);
        let failure = stopping::unanswered_failure(message, unfound);
        self.begin_doubt(node, &step, candidate, Arc::new(failure));
    }
}

/// The message of a lost call, with the reason why its recovery failed.
pub(super) fn lost_message(message: String, unfound: Option<&str>) -> String {
    match unfound {
        None => message,
        Some(why) => format!("{message}, and its recovery failed: {why}"),
    }
}

/// The failure of a doubt that a probe or a person could not resolve.
fn doubt_failure(doubt: &Failure, what: &str, second: &Failure) -> Arc<Failure> {
    let message = format!("{}; {what} does not resolve it: {}", doubt.message, second.message);
    Arc::new(Failure { message: message.into(), ..doubt.clone() })
}
