//! Handles answers: a value, another attempt, a fallback, or the failure of the step.

use std::sync::Arc;

use super::advance::{
    StepResult, TurnBuilder, candidate_call, error_value, evaluation_failure, tool_spec,
};
use super::frame::StepState;
use super::journal::{Fact, Failure, NodeId};
use super::node::NodeState;
use super::retry;
use super::scope::FrameScope;
use super::stopping;
use super::{Answer, CallId, Effect, TimerId};
use crate::budget::interrupt::Interrupt;
use crate::composition::tool::{Impact, ToolSpec};
use crate::composition::{FailureAction, ItemFailure, Step, StepKind, Strategy};
use crate::diagnostic::Code;
use crate::value::{Map, Shared, Value};

/// Explains a chain that ended at a failure without `on_failure`.
const STOPS_BY_DEFAULT: &str = "without `on_failure` a failed step stops the chain; \
                                `action: continue` continues, `next` jumps elsewhere";

impl TurnBuilder<'_> {
    pub(super) fn call_answered(&mut self, call: CallId, answer: Answer) {
        if self.state.status != crate::view::RunStatus::Running {
            return;
        }
        let CallId { node, attempt } = call;
        let record = self.state.step_state(node);
        if matches!(record.node, NodeState::RollingBack { .. }) && record.attempts == attempt {
            return self.rollback_answered(node, answer);
        }
        let (is_probe, candidate) = match record.node {
            NodeState::Calling { candidate } if record.attempts == attempt => (false, candidate),
            NodeState::Probing { candidate } if record.attempts == attempt => (true, candidate),
            _ => return self.record(Fact::AnsweredLate { node, attempt }),
        };
        let step = self.state.step(node).clone();
        if is_probe {
            return self.probe_answered(node, &step, candidate, answer);
        }
        if let Some(why) = self.resume_failure(node, &answer) {
            return self.resume_failed(node, candidate, &why);
        }
        let tool = tool_spec(candidate_call(&step, candidate));
        match answer {
            Answer::Value(value) => self.attempt_returned(node, &step, candidate, value),
            Answer::Failure(failure) => {
                self.attempt_failed(node, &step, candidate, Arc::new(failure));
            }
            Answer::TimedOut => {
                let is_read = tool.annotations.impact() == Impact::Reads;
                let failure = retry::timeout_failure(step.timeout_ms.unwrap_or(0), is_read);
                self.attempt_failed(node, &step, candidate, Arc::new(failure));
            }
            Answer::Aborted if tool.annotations.impact() != Impact::Reads => {
                let message = format!("`{}` did not answer in the time after the stop", tool.id);
                let failure = Arc::new(stopping::unanswered_failure(message, None));
                self.attempt_failed(node, &step, candidate, failure);
            }
            Answer::Aborted | Answer::Unsent => {
                let record = self.state.step_state(node);
                let in_doubt = record.was_in_doubt || record.has_acted;
                self.record(Fact::Cancelled { node, in_doubt });
            }
        }
    }

    /// An attempt returned a value: a success, unless the schema or the author's conditions say
    /// otherwise.
    pub(super) fn attempt_returned(
        &mut self,
        node: NodeId,
        step: &Step,
        candidate: u16,
        value: Value,
    ) {
        let tool = tool_spec(candidate_call(step, candidate));
        match self.accept(node, step, tool, value) {
            Ok((output, given)) => self.record(Fact::Succeeded { node, output, given }),
            Err(mut failure) => {
                // The tool answered, so it did its work, even if its answer is rejected.
                let by_author = failure.code == Code::ToolError;
                failure.acted |= !by_author && tool.annotations.impact() != Impact::Reads;
                self.attempt_failed(node, step, candidate, Arc::new(failure));
            }
        }
    }

    /// Checks whether a value is a success, and computes the names that it sets.
    pub(super) fn accept(
        &self,
        node: NodeId,
        step: &Step,
        tool: &ToolSpec,
        output: Value,
    ) -> StepResult<(Value, Option<Shared<Map>>)> {
        if let Some(violation) =
            tool.output.as_ref().and_then(|s| s.violations(&output).into_iter().next())
        {
            // An interrupted composition may have only a redacted value.
            if let Some(failure) = self.state.redacted_failure(&output) {
                return Err(failure);
            }
            let message =
                format!("the answer of `{}` does not fit its schema: {violation}", tool.id);
            return Err(Failure::permanent(Code::OutputSchema, message));
        }
        let mut scope = FrameScope::new(self.state, node.frame);
        scope.output = Some(&output);
        scope.args = Some(&self.state.step_state(node).args);
        if let Some(expr) = &step.fail_when
            && self.eval_condition(expr, &scope, "`fail_when`")?
        {
            let message = format!("`fail_when` holds: {}", expr.text());
            return Err(Failure::transient(Code::ToolError, message));
        }
        if let Some(expr) = &step.success_when
            && !self.eval_condition(expr, &scope, "`success_when`")?
        {
            let message = format!("`success_when` does not hold: {}", expr.text());
            return Err(Failure::transient(Code::ToolError, message));
        }
        let given = self.assigned_names(node, step, &output)?;
        Ok((output, given))
    }

    /// Rejects a value that would exceed the run's limit of stored values.
    fn check_value_bytes(&self, step: &Step, output: &Value) -> StepResult<()> {
        let refused = |message: String| Failure::permanent(Code::Limit, message);
        let sensitive = &self.state.sensitive;
        sensitive.room_for(&step.sensitive, output, self.limits).map_err(refused)?;
        let max = self.limits.run_value_bytes_max;
        if self.state.value_bytes.saturating_add(output.size()) <= max {
            return Ok(());
        }
        Err(refused(format!("the values of this run would take more than {max} bytes")))
    }

    /// The names that `map_outputs` and `transform` set.
    pub(super) fn assigned_names(
        &self,
        node: NodeId,
        step: &Step,
        output: &Value,
    ) -> StepResult<Option<Shared<Map>>> {
        self.check_value_bytes(step, output)?;
        if step.on_success.map_outputs.is_empty() && step.on_success.transform.is_empty() {
            return Ok(None);
        }
        let mut given = Map::new();
        for (field, name) in &step.on_success.map_outputs {
            if let Some(value) = mapped_output(output, field) {
                given.insert(name.clone(), value);
            }
        }
        for (name, template) in &step.on_success.transform {
            let mut scope = FrameScope::new(self.state, node.frame);
            scope.output = Some(output);
            scope.args = Some(&self.state.step_state(node).args);
            scope.given = Some(&given);
            let value = template.eval(&scope, self.limits).map_err(evaluation_failure)?;
            given.insert(name.clone(), value);
        }
        Ok(Some(given.into()))
    }

    /// First retries, then resolving the doubt, then fallbacks, then the step fails.
    pub(super) fn attempt_failed(
        &mut self,
        node: NodeId,
        step: &Step,
        candidate: u16,
        mut failure: Arc<Failure>,
    ) {
        let frame = self.state.frame(node.frame);
        let activation = self.state.activation_of(node.frame);
        let composition = activation.plan.composition.clone();
        let budget = retry::retry_budget(step, &composition, activation.strategy);
        let stopped = frame.stopped.is_some();
        let tries = self.state.step_state(node).candidate_attempts;
        let tool = tool_spec(candidate_call(step, candidate));
        // A lost read has no side effect, so only its answer is missing.
        if failure.in_doubt && tool.annotations.impact() == Impact::Reads {
            let failure = Arc::make_mut(&mut failure);
            failure.in_doubt = false;
            failure.code = certain_code(failure.code);
        }
        let repeatable = is_repeatable(step, tool);
        // By default, retries inside a composition are not multiplied by retries of its call.
        let begins_anew = tool.composition.is_some() && step.retry.max.is_some();
        let may_retry = retry::may_retry(step, &failure, repeatable, begins_anew);
        if may_retry && tries <= budget && !stopped {
            let backoff =
                step.retry.backoff.as_ref().unwrap_or(&composition.error_handling.backoff);
            let delay = retry::delay_ms(backoff, &failure, tries + 1, self.entropy, self.limits);
            let until_ms = self.at_ms.saturating_add(delay);
            self.record(Fact::BackedOff { node, failure, until_ms });
            self.turn
                .perform
                .push(Effect::SetTimer { timer: TimerId::Step(node), at_ms: until_ms });
            return;
        }
        let failure =
            exhausted_failure(&failure, step, tries, budget, may_retry).map_or(failure, Arc::new);
        let in_doubt = failure.in_doubt || self.state.step_state(node).was_in_doubt;
        if in_doubt && tool.composition.is_none() {
            return self.begin_doubt(node, step, candidate, failure);
        }
        let has_fallback = usize::from(candidate) < step.fallback.len();
        let denied = failure.code == Code::Denied;
        // After a tool did its work, no fallback does it a second time.
        let acted = failure.acted || self.state.step_state(node).has_acted;
        let is_open = in_doubt || acted && tool.composition.is_none();
        if has_fallback && !stopped && !is_open && !denied {
            return self.record(Fact::GaveUp { node, failure });
        }
        self.fail_with(node, failure);
    }

    /// A step failed for good: its `on_failure` decides first, then the strategy.
    pub(super) fn fail(&mut self, node: NodeId, failure: Failure) {
        self.fail_with(node, Arc::new(failure));
    }

    /// The same with a failure of another step, which is reported there.
    pub(super) fn fail_with(&mut self, node: NodeId, mut failure: Arc<Failure>) {
        let step = self.state.step(node).clone();
        let StepState { was_in_doubt, has_acted, .. } = *self.state.step_state(node);
        if (was_in_doubt && !failure.in_doubt) || (has_acted && !failure.acted) {
            let failure = Arc::make_mut(&mut failure);
            failure.in_doubt |= was_in_doubt;
            failure.acted |= has_acted;
        }
        if let Some(failure) = self.retry_body(node, &step, failure) {
            self.fail_finally(node, &step, failure);
        }
    }

    /// A step failed, and has no attempt left.
    pub(super) fn fail_finally(&mut self, node: NodeId, step: &Step, failure: Arc<Failure>) {
        if step.on_failure.action == FailureAction::Continue && !failure.is_final() {
            match self.default_output(node, step, &failure) {
                Ok(output) => return self.record(Fact::Tolerated { node, failure, output }),
                Err(second) => return self.fail_for_good(node, step, &Arc::new(second)),
            }
        }
        self.fail_for_good(node, step, &failure);
    }

    fn default_output(&self, node: NodeId, step: &Step, failure: &Failure) -> StepResult<Value> {
        let Some(default) = &step.on_failure.default else { return Ok(Value::Null) };
        let error = error_value(failure);
        let mut scope = FrameScope::new(self.state, node.frame);
        scope.error = Some(&error);
        scope.args = Some(&self.state.step_state(node).args);
        // With a flag of its own: the interrupt that stopped the step must not stop its default
        // too.
        let own = Interrupt::default();
        own.run_interruptible(|| default.eval(&scope, self.limits)).map_err(evaluation_failure)
    }

    pub(super) fn fail_for_good(&mut self, node: NodeId, step: &Step, failure: &Arc<Failure>) {
        let is_program = self.state.frame(node.frame).visits.is_some();
        let mut failure = failure.clone();
        if is_program && failure.hint.is_none() && step.on_failure.action == FailureAction::Strategy
        {
            Arc::make_mut(&mut failure).hint = Some(STOPS_BY_DEFAULT.into());
        }
        let failure = &failure;
        self.record(Fact::Failed { node, failure: failure.clone() });
        let strategy = self.state.activation_of(node.frame).strategy;
        let goes_on = strategy == Strategy::PartialSuccess
            && !is_program
            && step.on_failure.action != FailureAction::Stop
            && failure.code != Code::Denied;
        // A stopped body has failed already, and its loop has handled that.
        if !goes_on && !self.state.is_stopped(node) {
            self.stop(node.frame, failure);
            self.stop_other_items(node.frame, failure);
        }
    }

    /// A loop that ends with the failure of an item starts no further items.
    fn stop_other_items(&mut self, frame: u32, failure: &Arc<Failure>) {
        let Some(parent) = self.state.frame(frame).parent else { return };
        let StepKind::Loop(each) = &self.state.step(parent).kind else { return };
        if each.on_item_failure == ItemFailure::Stop || failure.is_final() {
            self.stop_bodies(parent, failure);
        }
    }
}

/// Whether a call may be repeated: by the step's `idempotent`, else by the tool's.
pub(super) fn is_repeatable(step: &Step, tool: &ToolSpec) -> bool {
    step.idempotent.unwrap_or_else(|| tool.is_repeatable())
}

/// The code of a failure that is not in doubt, or no longer: a call without effect counts as
/// unreachable.
pub(super) fn certain_code(code: Code) -> Code {
    if code == Code::InDoubt { Code::Unreachable } else { code }
}

/// `map_outputs` looks in the value, then in its `data`; `.` is the whole value, and a value that
/// is no object is also available as `value`.
fn mapped_output(output: &Value, field: &str) -> Option<Value> {
    let path =
        |value: &Value| field.split('.').try_fold(value.clone(), |at, part| at.get(part).cloned());
    match (output, field) {
        (whole, ".") => Some(whole.clone()),
        (Value::Object(_), _) => path(output).or_else(|| path(output.get("data")?)),
        (whole, "value") => Some(whole.clone()),
        _ => None,
    }
}

/// The failure of a step after all attempts failed.
pub(super) fn exhausted_failure(
    failure: &Failure,
    step: &Step,
    tries: u32,
    budget: u32,
    may_retry: bool,
) -> Option<Failure> {
    let is_said = failure.code == Code::RetriesExhausted;
    if !may_retry || budget == 0 || tries <= budget || is_said {
        return None;
    }
    let message =
        format!("Max retries ({budget}) exceeded for step {}: {}", step.id, failure.message);
    let failure = failure.clone();
    Some(Failure {
        code: Code::RetriesExhausted,
        message: message.into(),
        retryable: false,
        ..failure
    })
}
