//! Steps that have bodies: when each body opens, and what the bodies' ends mean.

use std::sync::Arc;

use super::forward::{Moment, Outcome};
use super::journal::{Fact, Failure, Item, NodeId};
use super::node::Node;
use super::scope::FrameScope;
use super::{CallId, Effect, Question, QuestionKind, TimerId};
use crate::compile::dialect::parse_duration;
use crate::composition::{
    Case, ItemFailure, LoopStep, Millis, RepeatStep, Silence, Step, StepKind, WaitFor,
};
use crate::diagnostic::Code;
use crate::expr::Template;
use crate::value::{Map, Value};
use crate::view::rfc3339;

use super::admit::{admit, with_defaults};

impl Moment<'_> {
    /// Starts a step that calls no tool.
    pub(super) fn start_other(&mut self, node: NodeId, step: &Step) {
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
            StepKind::Approve { message, .. } => self.ask_approval(node, message),
            StepKind::Expand(_) | StepKind::Tool(_) => {
                let message = format!("`{}` steps cannot run yet", step.kind.word());
                Err(Failure::lasting(Code::Unsupported, message))
            }
        };
        match outcome {
            Ok(()) => self.limit_attempt(node, step_timeout(step)),
            Err(failure) => self.fail(node, failure),
        }
    }

    /// Says when the attempt at hand has taken too long.
    fn limit_attempt(&mut self, node: NodeId, timeout_ms: Option<u64>) {
        let Some(timeout) = timeout_ms else { return };
        let attempt = self.state.record(node).attempts;
        let timer = TimerId::Attempt(CallId { node, attempt });
        let at_ms = self.at_ms.saturating_add(timeout);
        self.turn.perform.push(Effect::Wake { timer, at_ms });
    }

    pub(super) fn succeed(&mut self, node: NodeId, output: Value) {
        let step = self.state.step(node).clone();
        match self.given(node, &step, &output) {
            Ok(given) => self.record(Fact::Succeeded { node, output, given }),
            Err(failure) => self.fail(node, failure),
        }
    }

    fn set(&mut self, node: NodeId, step: &Step, names: &[(Arc<str>, Template)]) -> Outcome<()> {
        let mut values = Map::with_capacity(names.len());
        for (name, template) in names {
            values.insert(name.clone(), self.eval(node, template)?);
        }
        let mut given = values.clone();
        let output = Value::from(values);
        if let Some(more) = self.given(node, step, &output)? {
            given.extend(more.iter().map(|(name, value)| (name.clone(), value.clone())));
        }
        self.record(Fact::Succeeded { node, output, given: Some(Arc::new(given)) });
        Ok(())
    }

    fn wait(&mut self, node: NodeId, duration: &Template) -> Outcome<()> {
        let value = self.eval(node, duration)?;
        let millis = match &value {
            Value::String(text) => parse_duration(text),
            other => other.as_u64(),
        };
        let Some(millis) = millis.filter(|millis| *millis <= self.limits.duration_ms_max) else {
            return Err(Failure::lasting(Code::Expression, format!("`{value}` is not a duration")));
        };
        let until_ms = self.at_ms.saturating_add(millis);
        self.record(Fact::Slept { node, until_ms });
        self.turn.perform.push(Effect::Wake { timer: TimerId::Step(node), at_ms: until_ms });
        Ok(())
    }

    /// Asks a person; consent that was given beforehand is an answer.
    fn ask_approval(&mut self, node: NodeId, message: &Template) -> Outcome<()> {
        let message = self.eval(node, message)?;
        let text: Arc<str> = message.to_string().into();
        self.record(Fact::Asked { node, candidate: 0, args: message });
        if self.state.options().is_some_and(|options| options.approved) {
            self.approved(node, true, &"consent given beforehand".into());
            return Ok(());
        }
        let step = self.state.path(node);
        let kind = QuestionKind::Approval { message: text };
        self.turn.perform.push(Effect::Ask(Question { node, step, kind }));
        Ok(())
    }

    /// An `approve` step has its answer.
    pub(super) fn approved(&mut self, node: NodeId, granted: bool, by: &Arc<str>) {
        if granted {
            let output = Value::object([
                ("approved", Value::Bool(true)),
                ("by", Value::String(by.clone())),
                ("at", Value::from(rfc3339(self.at_ms))),
                ("data", Value::Null),
            ]);
            return self.succeed(node, output);
        }
        let id = self.state.step(node).id.clone();
        let mut failure = Failure::lasting(Code::Denied, format!("`{id}` was not approved"));
        failure.hint = Some("approve it when asked, or consent beforehand with `--yes`".into());
        self.fail(node, failure);
    }

    /// Nobody answered in time; the author said what that means.
    pub(super) fn approval_timed_out(&mut self, node: NodeId, step: &Step) {
        let StepKind::Approve { on_timeout, .. } = &step.kind else { return };
        self.approved(node, *on_timeout == Silence::Approve, &"nobody answered in time".into());
    }

    fn open_body(&mut self, node: NodeId, which: usize, item: Option<Item>) {
        let body = self.state.planned(node).bodies[which];
        self.record(Fact::Opened { node, body, item });
    }

    fn open_all(&mut self, node: NodeId) {
        for which in 0..self.state.planned(node).bodies.len() {
            self.open_body(node, which, None);
        }
    }

    /// Begins an attempt at a step that calls a composition.
    pub(super) fn enter_composition(
        &mut self,
        node: NodeId,
        step: &Step,
        candidate: u16,
        input: Value,
    ) {
        let nested = self.state.planned(node).nested[&candidate].clone();
        if let Err(errors) = admit(&nested, input.clone(), &self.state.context) {
            let message = errors.first().map_or_else(String::new, |error| error.message.clone());
            let code = errors.first().map_or(Code::InputSchema, |error| error.code);
            return self.fail(node, Failure::lasting(code, message));
        }
        let input = with_defaults(nested.composition.input.as_deref(), input);
        self.record(Fact::Entered { node, candidate, input });
        let own = nested.composition.timeout_ms;
        let timeout = [step.timeout_ms, own].into_iter().flatten().min();
        self.limit_attempt(node, timeout);
    }

    fn choose(&mut self, node: NodeId, cases: &[Case], otherwise: bool) -> Outcome<()> {
        for (which, case) in cases.iter().enumerate() {
            let scope = FrameScope::new(self.state, node.frame);
            if self.truth(&case.when, &scope, "`when`")? {
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

    fn start_loop(&mut self, node: NodeId, each: &LoopStep) -> Outcome<()> {
        let over = self.eval(node, &each.over)?;
        let Value::Array(items) = &over else {
            let message = format!("`over` must be an array, but is {}", over.kind());
            return Err(Failure::lasting(Code::TypeMismatch, message));
        };
        let own = each.max_iterations.map_or(usize::MAX, |max| max as usize);
        let max = own.min(self.limits.loop_items_max);
        if items.len() > max {
            let message = format!("the loop has {} items, the limit is {max}", items.len());
            return Err(Failure::lasting(Code::LoopLimit, message));
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
        let record = self.state.record(node);
        let index = record.frames.len();
        let items = record.items.as_ref().expect("a loop that runs has its items");
        let item = Item { value: items[index].clone(), index, length: items.len() };
        self.open_body(node, 0, Some(item));
    }

    /// One of a step's bodies is over.
    pub(super) fn frame_closed(&mut self, node: NodeId, frame: u32) {
        let Node::Open { candidate } = self.state.record(node).node else { return };
        let step = self.state.step(node).clone();
        let is_call = matches!(step.kind, StepKind::Tool(_));
        if let (false, Some(failure)) = (is_call, self.state.record(node).ended_by.clone()) {
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
                    // What is in doubt inside is in doubt outside.
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
            _ => {
                let outcome = self.outcome(frame);
                self.settle_with(node, outcome);
            }
        }
    }

    fn settle_with(&mut self, node: NodeId, outcome: Result<Value, Arc<Failure>>) {
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
        let failed = closed.nodes.iter().find_map(|record| match &record.node {
            Node::Failed { failure } => Some(failure.clone()),
            _ => None,
        });
        match failed {
            Some(failure) => Err(failure),
            None => {
                let last = closed.nodes.last().and_then(|record| record.node.output());
                Ok(last.cloned().unwrap_or_default())
            }
        }
    }

    fn composition_outcome(&self, frame: u32) -> Result<Value, Arc<Failure>> {
        self.outcome(frame)?;
        self.result(frame, true).map_err(Arc::new)
    }

    fn branch_closed(&mut self, node: NodeId, frame: u32, names: &[Arc<str>], wait_for: WaitFor) {
        let frames = self.state.record(node).frames.clone();
        let position = frames.iter().position(|other| *other == frame).unwrap_or(0);
        let all_closed = self.all_closed(node);
        let outcome = self.outcome(frame);
        // A branch all of whose steps were skipped has done nothing that could win.
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
            Arc::new(Failure::lasting(Code::Cancelled, "another branch decided"));
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
        let mut failure = Failure::lasting(Code::ToolError, message);
        failure.in_doubt = frames.iter().any(|frame| self.state.has_doubt(*frame));
        Arc::new(failure)
    }

    fn all_closed(&self, node: NodeId) -> bool {
        let record = self.state.record(node);
        record.closed as usize == record.frames.len()
    }

    /// Asks every body of a step that is still under way to end.
    pub(super) fn stop_bodies(&mut self, node: NodeId, failure: &Arc<Failure>) {
        for frame in self.state.record(node).frames.clone() {
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
        let record = self.state.record(node);
        let stopped = record.has_final_failure
            || (record.has_failed_body && each.on_item_failure == ItemFailure::Stop);
        let more = record.items.as_ref().is_some_and(|items| record.frames.len() < items.len());
        if more && !stopped && !self.is_ending(node) {
            return self.open_next_item(node);
        }
        if self.all_closed(node) {
            let frames = self.state.record(node).frames.clone();
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
                    value.map_err(|error| Arc::new(super::forward::evaluation(error)))
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
        match self.truth(&repeat.until, &scope, "`until`") {
            Err(failure) => self.fail(node, failure),
            Ok(true) => self.succeed(node, value),
            Ok(false) => {
                let rounds = self.state.record(node).frames.len();
                if rounds >= repeat.max_iterations as usize {
                    let message = format!("`until` did not hold within {rounds} rounds");
                    return self.fail(node, Failure::lasting(Code::LoopLimit, message));
                }
                if repeat.delay_ms == 0 {
                    return self.open_body(node, 0, None);
                }
                let until_ms = self.at_ms.saturating_add(repeat.delay_ms);
                self.record(Fact::Slept { node, until_ms });
                self.turn
                    .perform
                    .push(Effect::Wake { timer: TimerId::Step(node), at_ms: until_ms });
            }
        }
    }

    /// A `repeat` has rested between two rounds.
    pub(super) fn next_round(&mut self, node: NodeId, step: &Step) {
        let resting = self.all_closed(node);
        if matches!(step.kind, StepKind::Repeat(_)) && resting && !self.is_ending(node) {
            self.open_body(node, 0, None);
        }
    }
}

/// How long a step without a call may take: its own time, and for a question the time it stands.
fn step_timeout(step: &Step) -> Option<Millis> {
    match &step.kind {
        StepKind::Approve { timeout_ms, .. } => {
            [*timeout_ms, step.timeout_ms].into_iter().flatten().min()
        }
        _ => step.timeout_ms,
    }
}
