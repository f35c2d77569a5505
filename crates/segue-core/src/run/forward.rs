//! The way forward: what starts, what an answer means, what a failure stops.

use std::sync::Arc;

use super::journal::{Entry, Fact, Failure, NodeId, Started};
use super::node::Node;
use super::retry;
use super::scope::FrameScope;
use super::state::State;
use super::{Answer, Call, CallId, Effect, EventKind, Question, QuestionKind, TimerId, Turn};
use crate::composition::{FailureAction, Step, StepKind, Strategy, ToolCall};
use crate::diagnostic::Code;
use crate::expr::{EvalError, Expr, Template};
use crate::limits::Limits;
use crate::tool::{Impact, ToolSpec};
use crate::value::{Map, Value};
use crate::view::RunStatus;

/// One event being handled.
pub(super) struct Moment<'a> {
    pub(super) state: &'a mut State,
    pub(super) limits: &'a Limits,
    pub(super) at_ms: u64,
    pub(super) entropy: u64,
    pub(super) turn: Turn,
}

/// What a step's own expressions made of its value.
pub(super) type Outcome<T> = Result<T, Failure>;

impl Moment<'_> {
    pub(super) fn handle(&mut self, event: EventKind) {
        match event {
            EventKind::Start(started) => self.start_run(started),
            EventKind::Answered { call, answer } => self.answered(call, answer),
            EventKind::Decided { node, granted, by } => self.decided(node, granted, by),
            EventKind::Fired(TimerId::Run) => self.run_timed_out(),
            EventKind::Fired(TimerId::Step(node)) => self.fired(node),
            EventKind::Fired(TimerId::Attempt(call)) => self.attempt_timed_out(call),
            EventKind::Cancel => self.cancel(),
        }
        self.advance();
    }

    /// Writes a fact down and makes it true.
    pub(super) fn record(&mut self, fact: Fact) {
        let entry = Entry { seq: self.state.seq, at_ms: self.at_ms, fact };
        self.state.apply(&entry);
        self.turn.record.push(entry);
    }

    fn start_run(&mut self, started: Box<Started>) {
        if self.state.started.is_some() {
            return;
        }
        let timeout = started.options.timeout_ms;
        self.record(Fact::Started(started));
        let timeout = timeout.or(self.state.plan_of(0).composition.timeout_ms);
        if let Some(timeout) = timeout {
            let at_ms = self.at_ms.saturating_add(timeout);
            self.turn.perform.push(Effect::Wake { timer: TimerId::Run, at_ms });
        }
    }

    /// Starts what can start and ends what is over, until nothing more follows.
    fn advance(&mut self) {
        while self.state.status == RunStatus::Running {
            if self.state.frame_is_closed(0) {
                // Branches that lost may still be ending; they are awaited.
                if self.close_one() {
                    continue;
                }
                self.go_back();
                break;
            }
            if let Some(node) = self.state.next_ready() {
                self.start(node);
            } else if !self.close_one() {
                break;
            }
        }
    }

    fn start(&mut self, node: NodeId) {
        let step = self.state.step(node).clone();
        match self.state.record(node).node {
            Node::Granted { candidate } | Node::Waking { candidate } => {
                let args = self.state.record(node).args.clone();
                return self.call(node, &step, candidate, args);
            }
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
            _ => self.start_other(node, &step),
        }
    }

    /// A need that failed, or that was skipped though its value is read; and whether it is a
    /// failure that began it.
    fn reason_to_skip(&self, node: NodeId) -> Option<(Arc<str>, bool)> {
        let frame = self.state.frame(node.frame);
        let plan = self.state.plan_of(node.frame);
        for need in &self.state.step(node).needs {
            let id = || &plan.step(plan.bodies[frame.body as usize].steps[need.position]).step.id;
            match &frame.nodes[need.position].node {
                Node::Failed { .. } => return Some((format!("`{}` failed", id()).into(), true)),
                Node::Cancelled { .. } => {
                    return Some((format!("`{}` was cancelled", id()).into(), true));
                }
                Node::Skipped { by_failure, .. } if *by_failure || need.reads_value => {
                    return Some((format!("`{}` was skipped", id()).into(), *by_failure));
                }
                _ => {}
            }
        }
        None
    }

    fn condition(&self, node: NodeId, step: &Step) -> Outcome<bool> {
        match &step.when {
            None => Ok(true),
            Some(when) => self.truth(when, &FrameScope::new(self.state, node.frame), "`when`"),
        }
    }

    /// The value of a condition; anything but true and false is a failure.
    pub(super) fn truth(&self, expr: &Expr, scope: &FrameScope<'_>, what: &str) -> Outcome<bool> {
        match expr.eval(scope, self.limits).map_err(evaluation)? {
            Value::Bool(truth) => Ok(truth),
            other => {
                let message = format!("{what} must be true or false, but is {}", other.kind());
                Err(Failure::lasting(Code::Expression, message))
            }
        }
    }

    pub(super) fn eval(&self, node: NodeId, template: &Template) -> Outcome<Value> {
        template.eval(&FrameScope::new(self.state, node.frame), self.limits).map_err(evaluation)
    }

    /// Begins with the tool of a step (candidate 0) or with its n-th fallback.
    fn start_candidate(&mut self, node: NodeId, step: &Step, candidate: u16) {
        let call = candidate_call(step, candidate);
        let args = match self.arguments(node, call) {
            Ok(args) => args,
            Err(failure) => return self.fail(node, failure),
        };
        let tool = spec(call);
        let approved = self.state.options().is_some_and(|options| options.approved);
        // A composition asks for each of its calls that needs it.
        if tool.composition.is_none() && tool.needs_confirmation() && !approved {
            let tool = tool.id.clone();
            self.record(Fact::Asked { node, candidate, args: args.clone() });
            let step = self.state.path(node);
            let kind = QuestionKind::Call { tool, args };
            self.turn.perform.push(Effect::Ask(Question { node, step, kind }));
            return;
        }
        self.call(node, step, candidate, args);
    }

    /// The arguments of a call, checked against its tool's schema.
    fn arguments(&self, node: NodeId, call: &ToolCall) -> Outcome<Value> {
        let error = self.state.record(node).last_failure.as_deref().map(error_value);
        let mut scope = FrameScope::new(self.state, node.frame);
        scope.error = error.as_ref();
        let args = call.parameters.template.eval(&scope, self.limits).map_err(evaluation)?;
        let violations = spec(call).input.violations(&args);
        match violations.first() {
            None => Ok(args),
            Some(violation) => {
                let message = format!("arguments of `{}`: {violation}", spec(call).id);
                Err(Failure::lasting(Code::InputSchema, message))
            }
        }
    }

    /// Announces a call and has it made. `candidate` 0 is the tool itself.
    fn call(&mut self, node: NodeId, step: &Step, candidate: u16, args: Value) {
        if self.state.calls >= self.limits.run_calls_max {
            let message = format!("the run made {} calls", self.limits.run_calls_max);
            return self.fail(node, Failure::lasting(Code::Limit, message));
        }
        if spec(candidate_call(step, candidate)).composition.is_some() {
            return self.enter_composition(node, step, candidate, args);
        }
        let tool = spec(candidate_call(step, candidate)).id.clone();
        self.record(Fact::Called { node, candidate, args: args.clone() });
        let attempt = self.state.record(node).attempts;
        let path = self.state.path(node);
        let run = self.state.started.as_ref().map_or("", |started| &*started.run_id);
        self.turn.perform.push(Effect::Call(Call {
            id: CallId { node, attempt },
            tool,
            args,
            timeout_ms: step.timeout_ms,
            key: format!("{run}/{}", self.state.key(node)).into(),
            step: path,
            attempt: self.state.record(node).tries,
        }));
    }

    fn decided(&mut self, node: NodeId, granted: bool, by: Arc<str>) {
        let Node::Asking { candidate } = self.state.record(node).node else { return };
        if let StepKind::Approve { .. } = self.state.step(node).kind {
            return self.approved(node, granted, &by);
        }
        if granted {
            return self.record(Fact::Granted { node, by });
        }
        let step = self.state.step(node).clone();
        let tool = &spec(candidate_call(&step, candidate)).id;
        let mut failure = Failure::lasting(Code::Denied, format!("`{tool}` was not confirmed"));
        failure.hint = Some("confirm it when asked, or consent beforehand with `--yes`".into());
        self.fail(node, failure);
    }

    fn answered(&mut self, call: CallId, answer: Answer) {
        let CallId { node, attempt } = call;
        let record = self.state.record(node);
        if matches!(record.node, Node::Undoing { .. }) && record.attempts == attempt {
            return self.undo_answered(node, answer);
        }
        let Node::Calling { candidate } = record.node else {
            return self.record(Fact::Late { node, attempt });
        };
        if record.attempts != attempt {
            return self.record(Fact::Late { node, attempt });
        }
        let step = self.state.step(node).clone();
        let tool = spec(candidate_call(&step, candidate)).clone();
        match answer {
            Answer::Value(value) => self.attempt_returned(node, &step, candidate, value),
            Answer::Failure(failure) => {
                self.attempt_failed(node, &step, candidate, Arc::new(failure));
            }
            Answer::TimedOut => {
                let is_read = tool.annotations.impact() == Impact::Reads;
                let failure = retry::timed_out(step.timeout_ms.unwrap_or(0), is_read);
                self.attempt_failed(node, &step, candidate, Arc::new(failure));
            }
            Answer::Ended => {
                let in_doubt = tool.annotations.impact() != Impact::Reads;
                self.record(Fact::Cancelled { node, in_doubt });
            }
        }
    }

    /// An attempt has a value: a success, unless the schema or the author says otherwise.
    pub(super) fn attempt_returned(
        &mut self,
        node: NodeId,
        step: &Step,
        candidate: u16,
        value: Value,
    ) {
        let tool = spec(candidate_call(step, candidate));
        match self.accept(node, step, tool, value) {
            Ok((output, given)) => self.record(Fact::Succeeded { node, output, given }),
            Err(mut failure) => {
                // The tool has answered: it has done its work, whatever we made of the answer.
                let by_author = failure.code == Code::ToolError;
                failure.in_doubt |= !by_author && tool.annotations.impact() != Impact::Reads;
                self.attempt_failed(node, step, candidate, Arc::new(failure));
            }
        }
    }

    /// Whether a value is a success, and the names that it gives.
    fn accept(
        &self,
        node: NodeId,
        step: &Step,
        tool: &ToolSpec,
        output: Value,
    ) -> Outcome<(Value, Option<Arc<Map>>)> {
        if let Some(violation) =
            tool.output.as_ref().and_then(|s| s.violations(&output).into_iter().next())
        {
            let message =
                format!("the answer of `{}` does not fit its schema: {violation}", tool.id);
            return Err(Failure::lasting(Code::OutputSchema, message));
        }
        let mut scope = FrameScope::new(self.state, node.frame);
        scope.output = Some(&output);
        scope.args = Some(&self.state.record(node).args);
        if let Some(expr) = &step.fail_when
            && self.truth(expr, &scope, "`fail_when`")?
        {
            let message = format!("`fail_when` holds: {}", expr.text());
            return Err(Failure::passing(Code::ToolError, message));
        }
        if let Some(expr) = &step.success_when
            && !self.truth(expr, &scope, "`success_when`")?
        {
            let message = format!("`success_when` does not hold: {}", expr.text());
            return Err(Failure::passing(Code::ToolError, message));
        }
        let given = self.given(node, step, &output)?;
        Ok((output, given))
    }

    /// The names that `map_outputs` and `transform` give.
    pub(super) fn given(
        &self,
        node: NodeId,
        step: &Step,
        output: &Value,
    ) -> Outcome<Option<Arc<Map>>> {
        if step.on_success.map_outputs.is_empty() && step.on_success.transform.is_empty() {
            return Ok(None);
        }
        let mut given = Map::new();
        for (field, name) in &step.on_success.map_outputs {
            if let Some(value) = mapped(output, field) {
                given.insert(name.clone(), value);
            }
        }
        for (name, template) in &step.on_success.transform {
            let mut scope = FrameScope::new(self.state, node.frame);
            scope.output = Some(output);
            scope.args = Some(&self.state.record(node).args);
            scope.given = Some(&given);
            let value = template.eval(&scope, self.limits).map_err(evaluation)?;
            given.insert(name.clone(), value);
        }
        Ok(Some(Arc::new(given)))
    }

    /// Retries, then fallbacks, then the step has failed.
    pub(super) fn attempt_failed(
        &mut self,
        node: NodeId,
        step: &Step,
        candidate: u16,
        failure: Arc<Failure>,
    ) {
        let frame = self.state.frame(node.frame);
        let activation = self.state.activation_of(node.frame);
        let composition = activation.plan.composition.clone();
        let budget = retry::budget(step, &composition, activation.strategy);
        let stopped = frame.stopped.is_some();
        let tries = self.state.record(node).tries;
        let tool = spec(candidate_call(step, candidate));
        let repeatable = step.idempotent.unwrap_or_else(|| tool.is_repeatable());
        let may_retry = retry::may_retry(step, &failure, repeatable);
        if may_retry && tries <= budget && !stopped {
            let backoff =
                step.retry.backoff.as_ref().unwrap_or(&composition.error_handling.backoff);
            let delay = retry::delay_ms(backoff, &failure, tries + 1, self.entropy, self.limits);
            let until_ms = self.at_ms.saturating_add(delay);
            self.record(Fact::Rested { node, failure, until_ms });
            self.turn.perform.push(Effect::Wake { timer: TimerId::Step(node), at_ms: until_ms });
            return;
        }
        let failure = exhausted(&failure, step, tries, budget, may_retry).map_or(failure, Arc::new);
        let next = candidate + 1;
        let has_fallback = usize::from(candidate) < step.fallback.len();
        let certain = repeatable || !failure.in_doubt;
        let denied = failure.code == Code::Denied;
        if has_fallback && !stopped && certain && !denied {
            self.record(Fact::GaveUp { node, failure });
            self.start_candidate(node, step, next);
            return;
        }
        self.fail_with(node, failure);
    }

    /// A step failed for good: its author's word first, then the strategy.
    pub(super) fn fail(&mut self, node: NodeId, failure: Failure) {
        self.fail_with(node, Arc::new(failure));
    }

    /// The same with a failure that is another step's too; it is reported there.
    pub(super) fn fail_with(&mut self, node: NodeId, mut failure: Arc<Failure>) {
        let step = self.state.step(node).clone();
        if self.state.record(node).was_in_doubt && !failure.in_doubt {
            Arc::make_mut(&mut failure).in_doubt = true;
        }
        if step.on_failure.action == FailureAction::Continue && !failure.is_final() {
            match self.stand_in(node, &step, &failure) {
                Ok(output) => return self.record(Fact::Tolerated { node, failure, output }),
                Err(second) => return self.fail_for_good(node, &step, &Arc::new(second)),
            }
        }
        self.fail_for_good(node, &step, &failure);
    }

    fn stand_in(&self, node: NodeId, step: &Step, failure: &Failure) -> Outcome<Value> {
        let Some(default) = &step.on_failure.default else { return Ok(Value::Null) };
        let error = error_value(failure);
        let mut scope = FrameScope::new(self.state, node.frame);
        scope.error = Some(&error);
        scope.args = Some(&self.state.record(node).args);
        default.eval(&scope, self.limits).map_err(evaluation)
    }

    fn fail_for_good(&mut self, node: NodeId, step: &Step, failure: &Arc<Failure>) {
        self.record(Fact::Failed { node, failure: failure.clone() });
        let strategy = self.state.activation_of(node.frame).strategy;
        let goes_on = strategy == Strategy::PartialSuccess
            && step.on_failure.action != FailureAction::Stop
            && failure.code != Code::Denied;
        if !goes_on {
            self.stop(node.frame, failure);
        }
    }

    /// Nothing new starts in this activation; what runs is asked to end.
    pub(super) fn stop(&mut self, frame: u32, failure: &Arc<Failure>) {
        if self.state.frame(frame).stopped.is_some() {
            return;
        }
        self.record(Fact::Stopped { frame, failure: failure.clone() });
        for position in 0..self.state.frame(frame).nodes.len() {
            let position = u32::try_from(position).expect("positions are small");
            self.end_node(NodeId { frame, position }, failure);
        }
    }

    fn end_node(&mut self, node: NodeId, failure: &Arc<Failure>) {
        let record = self.state.record(node);
        match record.node {
            Node::Calling { .. } => {
                let attempt = record.attempts;
                self.turn.perform.push(Effect::End(CallId { node, attempt }));
            }
            Node::Asking { .. }
            | Node::Granted { .. }
            | Node::Resting { .. }
            | Node::Waking { .. }
            | Node::Sleeping => {
                let in_doubt = record.was_in_doubt;
                self.record(Fact::Cancelled { node, in_doubt });
            }
            Node::Open { .. } => {
                // A `repeat` that rests between two rounds has nothing to wait for.
                if record.closed as usize == record.frames.len() {
                    return self.record(Fact::Cancelled { node, in_doubt: false });
                }
                for frame in record.frames.clone() {
                    if !self.state.frame(frame).closed {
                        self.stop(frame, failure);
                    }
                }
            }
            _ => {}
        }
    }

    fn run_timed_out(&mut self) {
        if self.state.status != RunStatus::Running || self.state.frame_is_closed(0) {
            return;
        }
        let mut failure = Failure::lasting(Code::Timeout, "the run took longer than it may");
        failure.hint = Some("raise the composition's `timeout`, or `--timeout`".into());
        self.stop(0, &Arc::new(failure));
    }

    /// One attempt of a step without a call of its own took longer than it may.
    fn attempt_timed_out(&mut self, call: CallId) {
        let CallId { node, attempt } = call;
        let record = self.state.record(node);
        if record.attempts != attempt {
            return;
        }
        let step = self.state.step(node).clone();
        let nested = self.state.planned(node).nested.get(&record.candidate);
        let nested = nested.and_then(|nested| nested.composition.timeout_ms);
        let timeout = [step.timeout_ms, nested].into_iter().flatten().min().unwrap_or(0);
        let failure = retry::timed_out(timeout, true);
        match record.node {
            Node::Sleeping => self.fail(node, failure),
            Node::Asking { .. } => self.approval_timed_out(node, &step),
            Node::Open { .. } if record.closed as usize == record.frames.len() => {
                self.fail(node, failure);
            }
            Node::Open { .. } => {
                let failure = Arc::new(failure);
                self.record(Fact::TimedOut { node, failure: failure.clone() });
                self.stop_bodies(node, &failure);
            }
            _ => {}
        }
    }

    fn cancel(&mut self) {
        // Going back is not cancelled: what was done is taken back whatever anybody wishes.
        if self.state.status == RunStatus::Running && !self.state.frame_is_closed(0) {
            let failure = Failure::lasting(Code::Cancelled, "the run was cancelled");
            self.stop(0, &Arc::new(failure));
        }
    }

    fn fired(&mut self, node: NodeId) {
        let step = self.state.step(node).clone();
        match self.state.record(node).node {
            Node::Resting { .. } => self.record(Fact::Woke { node }),
            Node::UndoResting { .. } => {
                let args = self.state.record(node).undo_args.clone();
                self.call_undo(node, args);
            }
            Node::Sleeping => self.succeed(node, Value::Null),
            Node::Open { .. } => self.next_round(node, &step),
            _ => {}
        }
    }

    /// Ends one activation whose steps are all settled; false when there is none.
    fn close_one(&mut self) -> bool {
        let Some(frame) = self.state.next_over() else { return false };
        self.skip_rest(frame);
        let failure = self.outcome(frame).err();
        let is_final = failure.as_deref().is_some_and(Failure::is_final);
        self.record(Fact::Closed { frame, failed: failure.is_some(), is_final });
        // Without a parent the run is over, or goes back: `advance` decides.
        if let Some(parent) = self.state.frame(frame).parent {
            self.frame_closed(parent, frame);
        }
        true
    }

    fn skip_rest(&mut self, frame: u32) {
        for position in 0..self.state.frame(frame).nodes.len() {
            let position = u32::try_from(position).expect("positions are small");
            let node = NodeId { frame, position };
            if matches!(self.state.record(node).node, Node::Pending) {
                let stopped = || ("the run stopped".into(), true);
                let (reason, by_failure) = self.reason_to_skip(node).unwrap_or_else(stopped);
                self.record(Fact::Skipped { node, reason, by_failure });
            }
        }
    }

    /// The way forward has ended and nothing is to be taken back.
    pub(super) fn finish_forward(&mut self) {
        let status = self.final_status();
        let (status, output, failure) = match self.result(0, status == RunStatus::Success) {
            Ok(output) => (status, output, self.state.frame(0).stopped.clone()),
            Err(failure) => (RunStatus::Failed, Value::Null, Some(Arc::new(failure))),
        };
        self.record(Fact::Finished { status, output, failure });
    }

    pub(super) fn final_status(&self) -> RunStatus {
        let root = self.state.frame(0);
        match root.stopped.as_ref().map(|failure| failure.code) {
            Some(Code::Cancelled) => return RunStatus::Cancelled,
            Some(Code::Denied) => return RunStatus::Denied,
            Some(_) => return RunStatus::Failed,
            None => {}
        }
        let failed = |record: &super::state::Record| {
            let tolerated = matches!(record.node, Node::Tolerated { .. });
            record.node.failure().is_some() && !tolerated
        };
        if !root.nodes.iter().any(failed) {
            let tolerated = self.state.has_tolerated(0);
            return if tolerated { RunStatus::Partial } else { RunStatus::Success };
        }
        // Partial when some step that nobody waits for has its value.
        let plan = self.state.plan_of(0);
        let mut sinks =
            plan.steps_of(0).zip(&root.nodes).filter(|(step, _)| step.dependants.is_empty());
        if sinks.any(|(_, record)| record.node.output().is_some()) {
            RunStatus::Partial
        } else {
            RunStatus::Failed
        }
    }

    /// The result of a composition: its `output`, else every output key with its value. When not
    /// everything worked, what cannot be worked out is left away instead of failing again.
    pub(super) fn result(&self, frame: u32, complete: bool) -> Outcome<Value> {
        let plan = self.state.plan_of(frame);
        if let Some(output) = &plan.composition.output {
            let scope = FrameScope::new(self.state, frame);
            return match output.eval(&scope, self.limits) {
                Ok(value) => Ok(value),
                Err(_) if !complete => Ok(self.known_part(output, &scope)),
                Err(error) => Err(evaluation(error)),
            };
        }
        Ok(results(self.state, frame).into())
    }
}

impl Moment<'_> {
    /// Of an output that cannot be worked out as a whole, the members that can.
    fn known_part(&self, output: &Template, scope: &FrameScope<'_>) -> Value {
        let Template::Object(members) = output else { return Value::Null };
        let known = members.iter().filter_map(|(name, member)| {
            member.eval(scope, self.limits).ok().map(|value| (name.clone(), value))
        });
        known.collect::<Map>().into()
    }
}

/// Every output key of an activation with its value.
pub(super) fn results(state: &State, frame: u32) -> Map {
    let plan = state.plan_of(frame);
    let body = state.frame(frame).body;
    plan.steps_of(body)
        .zip(&state.frame(frame).nodes)
        .filter_map(|(planned, record)| {
            let key = planned.step.output_key.as_ref().map_or(&planned.step.id, |(key, _)| key);
            // What was taken back is no result.
            let is_result = matches!(record.node, Node::Done { .. } | Node::Tolerated { .. });
            let output = record.node.output().filter(|_| is_result)?;
            Some((key.clone(), output.clone()))
        })
        .collect()
}

/// The tool of a call; compositions that came out of the compiler have one everywhere.
pub(super) fn spec(call: &ToolCall) -> &Arc<ToolSpec> {
    call.tool.as_ref().expect("a checked call has its tool")
}

pub(super) fn candidate_call(step: &Step, candidate: u16) -> &ToolCall {
    match (&step.kind, candidate) {
        (StepKind::Tool(call), 0) => call,
        (_, fallback) => &step.fallback[usize::from(fallback) - 1],
    }
}

/// A failure as expressions see it.
pub(super) fn error_value(failure: &Failure) -> Value {
    Value::object([
        ("code", Value::from(failure.code.as_str())),
        ("message", Value::String(failure.message.clone())),
    ])
}

pub(super) fn evaluation(error: EvalError) -> Failure {
    Failure::lasting(error.code, error.message)
}

/// `map_outputs` looks in the value, then in its `data`; `.` is the whole value, and what is not
/// an object is also reachable as `value`.
fn mapped(output: &Value, field: &str) -> Option<Value> {
    let path =
        |value: &Value| field.split('.').try_fold(value.clone(), |at, part| at.get(part).cloned());
    match (output, field) {
        (whole, ".") => Some(whole.clone()),
        (Value::Object(_), _) => path(output).or_else(|| path(output.get("data")?)),
        (whole, "value") => Some(whole.clone()),
        _ => None,
    }
}

/// The failure of a step all of whose attempts failed.
fn exhausted(
    failure: &Failure,
    step: &Step,
    tries: u32,
    budget: u32,
    may_retry: bool,
) -> Option<Failure> {
    if !may_retry || budget == 0 || tries <= budget {
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
