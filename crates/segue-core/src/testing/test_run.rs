//! Executes the run of a test in simulated time.
//!
//! Nothing waits: future events are ordered by time and handled next. The mocks of the test answer
//! calls; calls of real tools are returned to the caller, which passes their answers back.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::mocks::MockQueue;
use super::{Located, MockDecision, MockOutcome, MockResponse, Test, ToolMock, fits};
use crate::catalog::Catalog;
use crate::diagnostic::Code;
use crate::id::{ToolId, refers_to_step};
use crate::limits::Limits;
use crate::plan::Plan;
use crate::run::{
    self, Answer, Call, CallId, Effect, Event, EventKind, Failure, Purpose, Question, QuestionKind,
    Run, Started,
};
use crate::value::Value;
use crate::view::{ErrorView, RunStatus, RunView};

/// The start of every test: the beginning of 2026. A fixed time, so that tests can expect values
/// that depend on it.
const BEGINS_MS: u64 = 1_767_225_600_000;

/// The person who answers the questions of a test.
const TEST_PRINCIPAL: &str = "the test";

/// A call that was made.
#[derive(Clone, Debug)]
pub struct TestCall {
    /// The tool.
    pub tool: ToolId,
    /// The path of the step, with enclosing bodies and iterations.
    pub step: Arc<str>,
    /// Its purpose.
    pub purpose: Purpose,
    /// Its arguments.
    pub args: Value,
    /// Why no mock answered it, if so.
    pub unanswered: Option<String>,
}

/// The result of a test's run.
#[derive(Debug)]
pub struct TestRunResult {
    /// The run.
    pub view: RunView,
    /// The calls, in order.
    pub calls: Vec<TestCall>,
    /// Answers that were used less often than declared: both counts.
    pub unused: Vec<(Located<String>, u32, Option<u32>)>,
}

/// A test's run in progress.
pub struct TestRun<'a> {
    run: Run,
    test: &'a Test,
    catalog: &'a Catalog,
    limits: Arc<Limits>,
    script: MockQueue,
    /// Future events by time; of two at the same time, the one that was set first.
    pending: BTreeMap<(u64, u64), EventKind>,
    set: u64,
    now_ms: u64,
    calls: Vec<TestCall>,
    /// Calls of real tools.
    real: Vec<Call>,
    /// The view of a run that could not start.
    refused: Option<RunView>,
}

impl<'a> TestRun<'a> {
    /// Starts a test. `catalog` is the one that the plan was compiled against.
    pub fn new(
        test: &'a Test,
        shared: &[ToolMock],
        plan: &Arc<Plan>,
        catalog: &'a Catalog,
        limits: &Arc<Limits>,
    ) -> TestRun<'a> {
        let mut play = TestRun {
            run: Run::new(plan.clone(), limits.clone()),
            test,
            catalog,
            limits: limits.clone(),
            script: MockQueue::new(test, shared, catalog),
            pending: BTreeMap::new(),
            set: 0,
            now_ms: BEGINS_MS,
            calls: Vec::new(),
            real: Vec::new(),
            refused: None,
        };
        match run::admit(plan, test.input.clone(), &test.context, limits) {
            Err(errors) => play.refused = Some(refused(plan, errors)),
            Ok(input) => {
                let started = started(test, plan, input);
                play.later(0, EventKind::Start(Box::new(started)));
            }
        }
        play
    }

    /// Continues until a real tool is called; `None` when the run is over.
    pub fn next_call(&mut self) -> Option<Call> {
        while self.real.is_empty()
            && self.refused.is_none()
            && !self.run.is_finished()
            && let Some(((at_ms, _), kind)) = self.pending.pop_first()
        {
            self.now_ms = at_ms;
            // Constant entropy: a test is the same every time.
            let turn = self.run.handle(Event { at_ms, entropy: u64::MAX, kind });
            turn.perform.into_iter().for_each(|effect| self.perform(effect));
        }
        (!self.real.is_empty()).then(|| self.real.remove(0))
    }

    /// Passes the answer of a real tool.
    pub fn handle_answer(&mut self, call: CallId, answer: Answer) {
        self.later(0, EventKind::Answered { call, answer });
    }

    /// The result.
    pub fn finish(self) -> TestRunResult {
        let view = self.refused.unwrap_or_else(|| self.run.view());
        TestRunResult { view, calls: self.calls, unused: self.script.unused() }
    }

    fn later(&mut self, after_ms: u64, kind: EventKind) {
        self.at(self.now_ms.saturating_add(after_ms), kind);
    }

    fn at(&mut self, at_ms: u64, kind: EventKind) {
        self.set += 1;
        self.pending.insert((at_ms.max(self.now_ms), self.set), kind);
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Call(call) => self.call(call),
            // Its answer arrives at its own time.
            Effect::Settle(_) => {}
            Effect::Abort(call) => self.end(call),
            Effect::Ask(question) => {
                let Some((granted, data)) = self.decide(&question) else { return };
                let (question, by) = (question.id, TEST_PRINCIPAL.into());
                self.later(0, EventKind::Decided { question, granted, by, data });
            }
            Effect::Expand { node, document } => {
                let outcome = run::plan_composition(&document, self.catalog, &self.limits);
                self.later(0, EventKind::Expanded { node, outcome });
            }
            Effect::SetTimer { timer, at_ms } => self.at(at_ms, EventKind::TimerFired(timer)),
        }
    }

    fn call(&mut self, call: Call) {
        let mut made = TestCall {
            tool: call.tool.clone(),
            step: call.step.clone(),
            purpose: call.purpose,
            args: call.args.clone(),
            unanswered: None,
        };
        let mock = match self.script.answer(&call) {
            Some(Ok(mock)) => Some(mock),
            None if self.is_real(&call.tool) => {
                self.calls.push(made);
                self.real.push(call);
                return;
            }
            unanswered => {
                let why = unanswered.and_then(Result::err);
                let why = why.unwrap_or_else(|| format!("no mock answers `{}`", call.tool));
                made.unanswered = Some(why);
                None
            }
        };
        let (after_ms, answer) = match (mock, &made.unanswered) {
            (Some(mock), _) => mock_answer(&mock, &call),
            (None, Some(why)) if self.test.is_strict => {
                (0, Answer::Failure(Failure::permanent(Code::NotFound, why.clone())))
            }
            (None, _) => (0, Answer::Value(self.sample_output(&call.tool))),
        };
        self.calls.push(made);
        self.later(after_ms, EventKind::Answered { call: call.id, answer });
    }

    /// An aborted call ends at once, and its answer is dropped.
    fn end(&mut self, call: CallId) {
        let is_of =
            |kind: &EventKind| matches!(kind, EventKind::Answered { call: of, .. } if *of == call);
        self.pending.retain(|_, kind| !is_of(kind));
        self.real.retain(|real| real.id != call);
        self.later(0, EventKind::Answered { call, answer: Answer::Aborted });
    }

    fn is_real(&self, tool: &ToolId) -> bool {
        let names = [tool.name(), tool.as_str()];
        self.test.real.iter().any(|real| names.iter().any(|name| fits(&real.value, name)))
    }

    fn sample_output(&self, tool: &ToolId) -> Value {
        let output = self.catalog.get(tool).and_then(|tool| tool.output.as_ref());
        output.and_then(|schema| schema.sample()).unwrap_or_else(Value::empty_object)
    }

    /// A call in doubt stays in doubt unless the test answers it.
    fn decide(&self, question: &Question) -> Option<(bool, Value)> {
        let (steps, all) = match &question.kind {
            QuestionKind::Doubt { .. } => (&self.test.doubts, &MockDecision::Later),
            QuestionKind::Run { .. }
            | QuestionKind::Call { .. }
            | QuestionKind::Approval { .. } => (&self.test.confirm.steps, &self.test.confirm.all),
        };
        let own = steps.iter().find(|(name, _)| refers_to_step(&name.value, &question.step));
        let word = own.map_or(all, |(_, word)| word);
        match word {
            MockDecision::Yes => Some((true, data_of(&question.kind))),
            MockDecision::No => Some((false, Value::Null)),
            MockDecision::Later => None,
            MockDecision::With(data) => Some((true, data.clone())),
        }
    }
}

/// A yes to an approval that requires data includes a sample of it.
fn data_of(kind: &QuestionKind) -> Value {
    match kind {
        QuestionKind::Approval { schema: Some(schema), .. } => schema.sample().unwrap_or_default(),
        _ => Value::Null,
    }
}

/// The answer of a mock, and its delay.
fn mock_answer(mock: &MockResponse, call: &Call) -> (u64, Answer) {
    if let Some(timeout) = call.timeout_ms
        && (mock.delay_ms > timeout || matches!(mock.outcome, MockOutcome::NoAnswer))
    {
        return (timeout, Answer::TimedOut);
    }
    let answer = match &mock.outcome {
        MockOutcome::Value(node) => Answer::Value(node.to_value()),
        MockOutcome::Failure(failure) => Answer::Failure(failure.clone()),
        MockOutcome::NoAnswer => {
            let lost = Failure::transient(Code::InDoubt, "no answer came");
            Answer::Failure(Failure { in_doubt: true, ..lost })
        }
    };
    (mock.delay_ms, answer)
}

fn started(test: &Test, plan: &Plan, input: Value) -> Started {
    Started {
        run_id: "00000000-0000-7000-8000-000000000000".into(),
        request_id: "req_1767225600_000000000".into(),
        plan_id: "plan_1767225600_000000000".into(),
        chain_id: "00000000-0000-4000-8000-000000000000".into(),
        input,
        context: test.context.clone(),
        options: test.options.clone(),
        plan_hash: Some(plan.hash().clone()),
        engine: env!("CARGO_PKG_VERSION").into(),
        caller: None,
        trace: None,
        part: None,
    }
}

fn refused(plan: &Plan, errors: Vec<ErrorView>) -> RunView {
    let (name, dialect) = (plan.composition.name.clone(), plan.composition.dialect);
    RunView { name, dialect, status: RunStatus::Failed, errors, ..RunView::default() }
}
