//! Steps with bodies: when a body opens, and what its end means for the step.

use std::sync::Arc;

use super::advance::{StepResult, TurnBuilder};
use super::consent::denied_failure;
use super::journal::{Fact, Failure, LoopItem, NodeId};
use super::node::NodeState;
use super::scope::FrameScope;
use super::{CallId, Effect, TimerId, view};
use crate::composition::{
    Case, ItemFailure, LoopStep, OnApprovalTimeout, RepeatStep, Step, StepKind, WaitFor,
};
use crate::diagnostic::Code;
use crate::duration::Millis;
use crate::duration::parse_duration;
use crate::expr::Template;
use crate::plan::Plan;
use crate::schema::Schema;
use crate::value::{Map, Value};
use crate::view::rfc3339;

use super::admit::admit;

impl TurnBuilder<'_> {
    /// Starts a step that calls no tool.
    pub(super) fn start_non_tool_step(&mut self, node: NodeId, step: &Step) {
        let outcome = match &step.kind {
            StepKind::Set(names) => self.set(node, step, names),
            StepKind::Wait { duration } => self.wait(node, duration),
            StepKind::Parallel { .. } => {
                self.open_all(node);
                Ok(())
            }
            StepKind::Choose { cases, otherwise } => self.choose(node, cases, otherwise.is_some()),
            StepKind::Loop(each) => self.start_loop(node, each),
            StepKind::Repeat(_) => {
                self.open_body(node, 0, None);
                Ok(())
            }
            StepKind::Approve { message, schema, .. } => {
                self.ask_approval(node, message, schema.as_deref())
            }
            StepKind::Expand(template) => self.expand(node, template),
            StepKind::Tool(_) => unreachable!("`start_candidate` starts calls"),
        };
        match outcome {
            Ok(()) => self.set_attempt_timer(node),
            Err(failure) => self.fail(node, failure),
        }
    }

    /// Sets the timer for the current attempt.
    pub(super) fn set_attempt_timer(&mut self, node: NodeId) {
        let step = self.state.step(node).clone();
        let Some(timeout) = self.attempt_timeout(node, &step) else { return };
        let record = self.state.step_state(node);
        let timer = TimerId::Attempt(CallId { node, attempt: record.attempts });
        let at_ms = record.attempt_ms.min(self.at_ms).saturating_add(timeout);
        self.turn.perform.push(Effect::SetTimer { timer, at_ms });
    }

    /// The timeout of an attempt that is not a plain call: the step's own; for a question its time
    /// to answer; for a composition its own timeout.
    pub(super) fn attempt_timeout(&self, node: NodeId, step: &Step) -> Option<Millis> {
        let more = match &step.kind {
            StepKind::Approve { timeout_ms, .. } => *timeout_ms,
            StepKind::Tool(_) => {
                let candidate = self.state.step_state(node).candidate;
                let nested = self.state.planned(node).nested.get(&candidate);
                nested.and_then(|nested| nested.composition.timeout_ms)
            }
            _ => None,
        };
        [step.timeout_ms, more].into_iter().flatten().min()
    }

    /// Requests the compilation of a composition that an earlier step made.
    fn expand(&mut self, node: NodeId, template: &Template) -> StepResult<()> {
        let document = self.eval(node, template)?;
        let depth = self.state.activation_of(node.frame).depth;
        if depth >= self.limits.nesting_depth_max {
            let message = format!("compositions nest deeper than the limit of {depth}");
            return Err(Failure::permanent(Code::Recursion, message));
        }
        self.record(Fact::Expanding { node, document: document.clone() });
        self.turn.perform.push(Effect::Expand { node, document });
        Ok(())
    }

    /// The composition of an `expand` step was compiled.
    pub(super) fn expanded(&mut self, node: NodeId, outcome: Result<Arc<Plan>, Failure>) {
        if !matches!(self.state.step_state(node).node, NodeState::Expanding) {
            return;
        }
        let plan = match outcome {
            Ok(plan) => plan,
            Err(failure) => return self.fail(node, failure),
        };
        if let Some(failure) = self.guard_violation(node, &plan) {
            return self.fail(node, failure);
        }
        // It replaces its step, so it gets the input of the composition around it.
        let input = self.state.activation_of(node.frame).input.clone();
        match self.admit_input(&plan, input) {
            Ok(input) => self.record(Fact::Expanded { node, plan, input }),
            Err(failure) => self.fail(node, failure),
        }
    }

    /// An expanded composition must satisfy the guards of the composition around it.
    fn guard_violation(&self, node: NodeId, plan: &Plan) -> Option<Failure> {
        let around = self.state.plan_of(node.frame);
        let guards = &around.composition.guards;
        let (count, max) = (around.steps.len() + plan.steps.len(), guards.max_steps);
        if let Some(max) = max.filter(|max| count > *max as usize) {
            let message =
                format!("the composition would have {count} steps, its guard allows {max}");
            return Some(Failure::permanent(Code::MaxStepsExceeded, message));
        }
        let forbidden = plan.tools.keys().find(|tool| !guards.allows(tool))?;
        let message = format!("`{forbidden}` is not among the tools that may be called");
        Some(Failure::permanent(Code::ToolNotAllowed, message))
    }

    /// The input of an inner composition with its defaults, or why it is invalid.
    fn admit_input(&self, plan: &Plan, input: Value) -> StepResult<Value> {
        match admit(plan, input, &self.state.context, self.limits) {
            Ok(input) => Ok(input),
            Err(errors) => {
                let first = errors.into_iter().next();
                let (code, message) = first.map_or_else(
                    || (Code::InputSchema, "the input does not fit".to_owned()),
                    |error| (error.code, error.message),
                );
                Err(Failure::permanent(code, message))
            }
        }
    }

    pub(super) fn succeed(&mut self, node: NodeId, output: Value) {
        let step = self.state.step(node).clone();
        match self.assigned_names(node, &step, &output) {
            Ok(given) => self.record(Fact::Succeeded { node, output, given }),
            Err(failure) => self.fail(node, failure),
        }
    }

    fn set(&mut self, node: NodeId, step: &Step, names: &[(Arc<str>, Template)]) -> StepResult<()> {
        let mut values = Map::with_capacity(names.len());
        for (name, template) in names {
            values.insert(name.clone(), self.eval(node, template)?);
        }
        let mut given = values.clone();
        let output = Value::from(values);
        if let Some(more) = self.assigned_names(node, step, &output)? {
            given.extend(more.iter().map(|(name, value)| (name.clone(), value.clone())));
        }
        self.record(Fact::Succeeded { node, output, given: Some(given.into()) });
        Ok(())
    }

    fn wait(&mut self, node: NodeId, duration: &Template) -> StepResult<()> {
        let value = self.eval(node, duration)?;
        let millis = match &value {
            Value::String(text) => parse_duration(text),
            other => other.as_u64(),
        };
        let Some(millis) = millis.filter(|millis| *millis <= self.limits.duration_ms_max) else {
            return Err(Failure::permanent(
                Code::Expression,
                format!("`{value}` is not a duration"),
            ));
        };
        let until_ms = self.at_ms.saturating_add(millis);
        self.record(Fact::Slept { node, until_ms });
        self.turn.perform.push(Effect::SetTimer { timer: TimerId::Step(node), at_ms: until_ms });
        Ok(())
    }

    /// Asks a person. Approval in advance is an answer, unless the question requires data.
    fn ask_approval(
        &mut self,
        node: NodeId,
        message: &Template,
        form: Option<&Schema>,
    ) -> StepResult<()> {
        let message = self.eval(node, message)?;
        self.record(Fact::Asked { node, candidate: 0, args: message });
        let wants_data = form.is_some_and(|form| !form.violations(&Value::Null).is_empty());
        if self.state.options().is_some_and(|options| options.approved) && !wants_data {
            self.approval_decided(node, true, &"approval in advance".into(), Value::Null);
            return Ok(());
        }
        self.ask(node);
        Ok(())
    }

    /// Emits the question of a step.
    pub(super) fn ask(&mut self, node: NodeId) {
        if let Some(question) = view::question(self.state, node) {
            self.turn.perform.push(Effect::Ask(question));
        }
    }

    /// Handles the answer to an `approve` step.
    pub(super) fn approval_decided(
        &mut self,
        node: NodeId,
        granted: bool,
        by: &Arc<str>,
        data: Value,
    ) {
        if granted {
            if let StepKind::Approve { schema: Some(schema), .. } = &self.state.step(node).kind
                && !data.is_null()
                && let Some(violation) = schema.violations(&data).into_iter().next()
            {
                let message = format!("the answer of {by} does not fit: {violation}");
                return self.fail(node, Failure::permanent(Code::InputSchema, message));
            }
            let output = Value::object([
                ("approved", Value::Bool(true)),
                ("by", Value::String(by.clone())),
                ("at", Value::from(rfc3339(self.at_ms))),
                ("data", data),
            ]);
            return self.succeed(node, output);
        }
        let id = self.state.step(node).id.clone();
        self.fail(node, denied_failure(format!("`{id}` was not approved")));
    }

    /// The question timed out; `on_timeout` decides.
    pub(super) fn approval_timed_out(&mut self, node: NodeId, step: &Step) {
        let StepKind::Approve { on_timeout, .. } = &step.kind else { return };
        let granted = *on_timeout == OnApprovalTimeout::Approve;
        self.approval_decided(node, granted, &"timeout".into(), Value::Null);
    }

    fn open_body(&mut self, node: NodeId, which: usize, item: Option<LoopItem>) {
        let body = self.state.planned(node).bodies[which];
        self.record(Fact::Opened { node, body, item });
    }

    fn open_all(&mut self, node: NodeId) {
        for which in 0..self.state.planned(node).bodies.len() {
            self.open_body(node, which, None);
        }
    }

    /// Starts an attempt of a step that calls a composition.
    pub(super) fn enter_composition(&mut self, node: NodeId, candidate: u16, input: Value) {
        let nested = self.state.planned(node).nested[&candidate].clone();
        match self.admit_input(&nested, input) {
            Ok(input) => {
                self.record(Fact::Entered { node, candidate, input });
                self.set_attempt_timer(node);
            }
            Err(failure) => self.fail(node, failure),
        }
    }

    fn choose(&mut self, node: NodeId, cases: &[Case], otherwise: bool) -> StepResult<()> {
        for (which, case) in cases.iter().enumerate() {
            let scope = FrameScope::new(self.state, node.frame);
            if self.eval_condition(&case.when, &scope, "`when`")? {
                self.open_body(node, which, None);
                return Ok(());
            }
        }
        if otherwise {
            self.open_body(node, cases.len(), None);
        } else {
            self.succeed(node, Value::Null);
        }
        Ok(())
    }

    fn start_loop(&mut self, node: NodeId, each: &LoopStep) -> StepResult<()> {
        let over = self.eval(node, &each.over)?;
        let Value::Array(items) = &over else {
            let message = format!("`over` must be an array, but is {}", over.kind());
            return Err(Failure::permanent(Code::TypeMismatch, message));
        };
        let own = each.max_iterations.map_or(usize::MAX, |max| max as usize);
        let max = own.min(self.limits.loop_items_max);
        if items.len() > max {
            let message = format!("the loop has {} items, the limit is {max}", items.len());
            return Err(Failure::permanent(Code::LoopLimit, message));
        }
        if items.is_empty() {
            self.succeed(node, Value::from(Vec::new()));
            return Ok(());
        }
        let first = items.len().min(each.max_concurrency as usize);
        self.record(Fact::Looped { node, items: items.clone() });
        for _ in 0..first {
            self.open_next_item(node);
        }
        Ok(())
    }

    fn open_next_item(&mut self, node: NodeId) {
        let record = self.state.step_state(node);
        let index = record.attempt_frames().len();
        let items = record.items.as_ref().expect("a loop that runs has its items");
        let item = LoopItem { value: items[index].clone(), index, length: items.len() };
        self.open_body(node, 0, Some(item));
    }

    /// A body of a step is finished.
    pub(super) fn frame_closed(&mut self, node: NodeId, frame: u32) {
        let NodeState::Open { candidate } = self.state.step_state(node).node else { return };
        let step = self.state.step(node).clone();
        let is_call = matches!(step.kind, StepKind::Tool(_));
        if let (false, Some(failure)) = (is_call, self.state.step_state(node).ended_by.clone()) {
            if self.all_closed(node) {
                self.settle_with(node, Err(failure));
            }
            return;
        }
        match &step.kind {
            StepKind::Tool(_) if self.is_ending(node) => {
                self.record(Fact::Cancelled { node, in_doubt: false });
            }
            StepKind::Tool(_) => match self.composition_outcome(frame) {
                Ok(value) => self.attempt_returned(node, &step, candidate, value),
                Err(mut failure) => {
                    // A doubt inside is a doubt outside.
                    if self.state.has_doubt(frame) && !failure.in_doubt {
                        Arc::make_mut(&mut failure).in_doubt = true;
                    }
                    self.attempt_failed(node, &step, candidate, failure);
                }
            },
            StepKind::Parallel { branches, wait_for } => {
                let names: Vec<Arc<str>> = branches.iter().map(|b| b.id.clone()).collect();
                self.branch_closed(node, frame, &names, *wait_for);
            }
            StepKind::Loop(each) => self.item_closed(node, frame, each),
            StepKind::Repeat(repeat) => self.round_closed(node, frame, repeat),
            StepKind::Expand(_) => {
                let outcome = self.composition_outcome(frame);
                self.settle_with(node, outcome);
            }
            _ => {
                let outcome = self.outcome(frame);
                self.settle_with(node, outcome);
            }
        }
    }

    pub(super) fn settle_with(&mut self, node: NodeId, outcome: Result<Value, Arc<Failure>>) {
        if self.is_ending(node) {
            return self.record(Fact::Cancelled { node, in_doubt: false });
        }
        match outcome {
            Ok(output) => self.succeed(node, output),
            Err(failure) => self.fail_with(node, failure),
        }
    }

    /// Whether the body around a step has stopped, so that the step's own end decides nothing.
    fn is_ending(&self, node: NodeId) -> bool {
        self.state.frame(node.frame).stopped.is_some()
    }

    /// The value of a body: its last step's, unless one of its steps failed.
    pub(super) fn outcome(&self, frame: u32) -> Result<Value, Arc<Failure>> {
        let closed = self.state.frame(frame);
        if let Some(failure) = &closed.stopped {
            return Err(failure.clone());
        }
        // A failed step stays failed, also after its rollback.
        let failed = closed.nodes.iter().find_map(|record| {
            record.node.failure().filter(|_| record.node.output().is_none()).cloned()
        });
        match failed {
            Some(failure) => Err(failure),
            None => {
                // A program that skipped its last step has the value of the step before.
                let mut last = closed.nodes.iter().rev();
                let last = match closed.visits {
                    None => last.next().and_then(|record| record.node.output()),
                    Some(_) => last.find_map(|record| record.node.output()),
                };
                Ok(last.cloned().unwrap_or_default())
            }
        }
    }

    pub(super) fn composition_outcome(&self, frame: u32) -> Result<Value, Arc<Failure>> {
        self.outcome(frame)?;
        self.result(frame, true).map_err(Arc::new)
    }

    fn branch_closed(&mut self, node: NodeId, frame: u32, names: &[Arc<str>], wait_for: WaitFor) {
        let frames = self.state.step_state(node).attempt_frames().to_vec();
        let position = frames.iter().position(|other| *other == frame).unwrap_or(0);
        let all_closed = self.all_closed(node);
        let outcome = self.outcome(frame);
        // A branch with only skipped steps cannot win.
        let has_value = self.state.frame(frame).nodes.iter().any(|r| r.node.output().is_some());
        let won = outcome.is_ok() && has_value;
        let decides = match wait_for {
            WaitFor::All => all_closed,
            WaitFor::Any => true,
            WaitFor::FirstSuccess => won || all_closed,
        };
        if !decides {
            return;
        }
        let value = match (wait_for, outcome) {
            (WaitFor::All, _) => self.all_branches(&frames, names),
            (WaitFor::FirstSuccess, _) if !won => Err(self.every_failure(&frames, names)),
            (_, Ok(value)) => Ok(Value::object([
                ("winner", Value::String(names[position].clone())),
                ("value", value),
            ])),
            (_, Err(failure)) => Err(failure),
        };
        let over: Arc<Failure> =
            Arc::new(Failure::permanent(Code::Cancelled, "another branch decided"));
        self.stop_bodies(node, &over);
        self.settle_with(node, value);
    }

    fn all_branches(&self, frames: &[u32], names: &[Arc<str>]) -> Result<Value, Arc<Failure>> {
        let mut values = Map::new();
        for (frame, name) in frames.iter().zip(names) {
            values.insert(name.clone(), self.outcome(*frame)?);
        }
        Ok(values.into())
    }

    fn every_failure(&self, frames: &[u32], names: &[Arc<str>]) -> Arc<Failure> {
        let messages: Vec<String> = frames
            .iter()
            .zip(names)
            .filter_map(|(frame, name)| {
                self.outcome(*frame).err().map(|failure| format!("{name}: {}", failure.message))
            })
            .collect();
        let message = format!("no branch succeeded: {}", messages.join("; "));
        let mut failure = Failure::permanent(Code::ToolError, message);
        let outcomes = frames.iter().filter_map(|frame| self.outcome(*frame).err());
        failure.retryable = outcomes.into_iter().any(|failure| failure.retryable);
        failure.in_doubt = frames.iter().any(|frame| self.state.has_doubt(*frame));
        Arc::new(failure)
    }

    fn all_closed(&self, node: NodeId) -> bool {
        let record = self.state.step_state(node);
        record.closed as usize == record.frames.len()
    }

    /// Asks every running body of a step to end.
    pub(super) fn stop_bodies(&mut self, node: NodeId, failure: &Arc<Failure>) {
        for frame in self.state.step_state(node).frames.clone() {
            if !self.state.frame(frame).closed {
                self.stop(frame, failure);
            }
        }
    }

    fn item_closed(&mut self, node: NodeId, frame: u32, each: &LoopStep) {
        if let Err(failure) = self.outcome(frame)
            && (each.on_item_failure == ItemFailure::Stop || failure.is_final())
        {
            self.stop_bodies(node, &failure);
        }
        let record = self.state.step_state(node);
        let stopped = record.has_final_failure
            || (record.has_failed_body && each.on_item_failure == ItemFailure::Stop);
        let more =
            record.items.as_ref().is_some_and(|items| record.attempt_frames().len() < items.len());
        if more && !stopped && !self.is_ending(node) {
            return self.open_next_item(node);
        }
        if self.all_closed(node) {
            let frames = self.state.step_state(node).attempt_frames().to_vec();
            let values: Result<Vec<Value>, Arc<Failure>> =
                frames.iter().map(|frame| self.item_value(*frame, each)).collect();
            self.settle_with(node, values.map(Value::from));
        }
    }

    fn item_value(&self, frame: u32, each: &LoopStep) -> Result<Value, Arc<Failure>> {
        match (self.outcome(frame), each.on_item_failure) {
            (Err(failure), ItemFailure::Continue) if !failure.is_final() => Ok(Value::Null),
            (Err(failure), _) => Err(failure),
            (Ok(value), _) => match &each.output {
                None => Ok(value),
                Some(output) => {
                    let scope = FrameScope::new(self.state, frame);
                    let value = output.eval(&scope, self.limits);
                    value.map_err(|error| Arc::new(super::advance::evaluation_failure(error)))
                }
            },
        }
    }

    fn round_closed(&mut self, node: NodeId, frame: u32, repeat: &RepeatStep) {
        let value = match self.outcome(frame) {
            Ok(value) if !self.is_ending(node) => value,
            outcome => return self.settle_with(node, outcome),
        };
        let scope = FrameScope::new(self.state, frame);
        match self.eval_condition(&repeat.until, &scope, "`until`") {
            Err(failure) => self.fail(node, failure),
            Ok(true) => self.succeed(node, value),
            Ok(false) => {
                let rounds = self.state.step_state(node).attempt_frames().len();
                if rounds >= repeat.max_iterations as usize {
                    let message = format!("`until` did not hold within {rounds} rounds");
                    return self.fail(node, Failure::permanent(Code::LoopLimit, message));
                }
                if repeat.delay_ms == 0 {
                    return self.open_body(node, 0, None);
                }
                let until_ms = self.at_ms.saturating_add(repeat.delay_ms);
                self.record(Fact::Paused { node, until_ms });
                self.turn
                    .perform
                    .push(Effect::SetTimer { timer: TimerId::Step(node), at_ms: until_ms });
            }
        }
    }

    /// The delay between two rounds of a `repeat` is over.
    pub(super) fn next_round(&mut self, node: NodeId) {
        self.open_body(node, 0, None);
    }
}
