//! Turns a run into a test that reproduces it.
//!
//! The answers of the tools become mocks. The test is run at once, and the result becomes its
//! expectations: a recorded test passes as long as its composition behaves the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::test_run::{TestCall, TestRun, TestRunResult};
use super::without_visits;
use crate::catalog::Catalog;
use crate::composition::Strategy;
use crate::diagnostic::Code;
use crate::document::to_yaml;
use crate::id::{ToolId, without_iterations};
use crate::limits::Limits;
use crate::plan::Plan;
use crate::run::{Failure, Options, Purpose, Run};
use crate::source::Source;
use crate::testing::read_tests;
use crate::value::{Map, Value};
use crate::view::{RunView, StepStatus};

/// Longer texts are cut where the run does not depend on them.
const TEXT_CHARS_MAX: usize = 1_000;

/// The part of a cut text that remains.
const TEXT_CHARS_KEPT: usize = 200;

/// A call of a run, as its tool received it.
#[derive(Clone, Debug)]
pub struct RecordedCall {
    /// The tool.
    pub tool: ToolId,
    /// The path of the step, with enclosing bodies and iterations.
    pub step: Arc<str>,
    /// Whether it was the step's own work, not a fallback, a rollback or a probe.
    pub is_own: bool,
    /// Its purpose.
    pub purpose: Purpose,
    /// The answer; `None` if there was none.
    pub answer: Option<Result<Value, Failure>>,
    /// Its duration.
    pub took_ms: u64,
}

/// The data of a recording.
pub struct Recording<'a> {
    /// The name of the test.
    pub name: &'a str,
    /// The composition as the test file names it; `None` if the file name implies it.
    pub composition: Option<&'a str>,
    /// The plan of the run.
    pub plan: &'a Arc<Plan>,
    /// The run.
    pub run: &'a Run,
    /// Options of the run.
    pub options: &'a Options,
    /// Its calls, in order.
    pub calls: &'a [RecordedCall],
    /// The tools.
    pub catalog: &'a Catalog,
    /// Limits.
    pub limits: &'a Arc<Limits>,
}

/// The text of a test that reproduces a run; the error says why that is impossible.
pub fn record(recording: &Recording<'_>) -> Result<String, String> {
    let mut reason = String::new();
    // Tries the shortest form first: texts are cut and delays omitted where they do not matter. An
    // order that was accidental is omitted too.
    for manner in [
        RecordDetail { cuts: true, delays: false, order: true },
        RecordDetail { cuts: false, delays: false, order: true },
        RecordDetail { cuts: false, delays: true, order: true },
        RecordDetail { cuts: true, delays: false, order: false },
        RecordDetail { cuts: false, delays: false, order: false },
    ] {
        match recording.render(manner) {
            Ok(text) => return Ok(text),
            Err(why) => reason = why,
        }
    }
    Err(reason)
}

/// How much detail a test records.
#[derive(Clone, Copy)]
struct RecordDetail {
    cuts: bool,
    delays: bool,
    order: bool,
}

impl Recording<'_> {
    fn render(&self, manner: RecordDetail) -> Result<String, String> {
        let view = self.run.view();
        let mut test = self.given(&view, manner);
        let played = self.played(&test)?;
        self.is_the_same(&view, &played, manner)?;
        test.insert("expect".into(), expected(&played, manner));
        Ok(to_yaml(&self.document(test)))
    }

    fn document(&self, test: Map) -> Value {
        let mut document = Map::new();
        if let Some(composition) = self.composition {
            document.insert("composition".into(), Value::from(composition));
        }
        document.insert("tests".into(), vec![Value::from(test)].into());
        document.into()
    }

    /// Everything except the expectations.
    fn given(&self, view: &RunView, manner: RecordDetail) -> Map {
        let (input, context) = self.run.input_and_context();
        let tools = self.tools(manner);
        let mut test = Map::new();
        test.insert("name".into(), Value::from(self.name));
        for (field, value) in [
            ("input", self.redact(input, manner)),
            ("context", self.redact(context, manner)),
            ("options", options(self.options)),
            ("confirm", self.confirm(view, manner)),
            ("tools", tools.into()),
        ] {
            if value.as_object().is_some_and(|members| !members.is_empty()) {
                test.insert(field.into(), value);
            }
        }
        test
    }

    /// The answers, by step; those of fallbacks, rollbacks and probes by tool.
    fn tools(&self, manner: RecordDetail) -> Map {
        let mut sensitive = BTreeMap::new();
        add_sensitive(self.plan, 0, "", &mut sensitive);
        let mut tools: BTreeMap<usize, (Arc<str>, Vec<Value>)> = BTreeMap::new();
        for call in self.calls {
            let path = without_visits(&call.step);
            let name = if call.is_own { path.as_str() } else { call.tool.as_str() };
            let mut answer = self.answer(call, manner);
            for pointer in sensitive.get(&without_iterations(&path)).into_iter().flatten() {
                blank(&mut answer, &format!("/returns{pointer}"));
            }
            let next = tools.len();
            let known = tools.iter().find(|(_, (known, _))| **known == *name).map(|(at, _)| *at);
            let at = known.unwrap_or(next);
            tools.entry(at).or_insert_with(|| (name.into(), Vec::new())).1.push(answer);
        }
        let said = |mut answers: Vec<Value>| match answers.len() {
            1 => answers.swap_remove(0),
            _ => answers.into(),
        };
        tools.into_values().map(|(name, answers)| (name, said(answers))).collect()
    }

    fn answer(&self, call: &RecordedCall, manner: RecordDetail) -> Value {
        let mut answer = match &call.answer {
            Some(Ok(value)) => vec![("returns", self.redact(value, manner))],
            Some(Err(failure)) => vec![("error", self.error(failure, manner))],
            None => vec![("silent", Value::Bool(true))],
        };
        if manner.delays && call.took_ms > 0 && call.answer.is_some() {
            answer.push(("delay", Value::from(format!("{}ms", call.took_ms))));
        }
        Value::object(answer)
    }

    fn error(&self, failure: &Failure, manner: RecordDetail) -> Value {
        let message = self.redact(&Value::from(&*failure.message), manner);
        let is_plain = failure.code == Code::ToolError && failure.retryable;
        if is_plain && failure.retry_after_ms.is_none() {
            return message;
        }
        let mut error = vec![
            ("message", message),
            ("code", Value::from(failure.code.as_str())),
            ("retryable", Value::Bool(failure.retryable)),
        ];
        if let Some(after) = failure.retry_after_ms {
            error.push(("retry_after", Value::from(format!("{after}ms"))));
        }
        Value::object(error)
    }

    /// The answers of people, except a plain yes.
    fn confirm(&self, view: &RunView, manner: RecordDetail) -> Value {
        let mut said: BTreeMap<Arc<str>, Value> = BTreeMap::new();
        for step in view.steps.iter().filter(|step| step.kind == "approve") {
            let data = step.output.get("data").filter(|data| data.as_object().is_some());
            if let Some(data) = data {
                said.insert(step.id.clone(), self.redact(data, manner));
            }
        }
        for error in &view.errors {
            if let (Code::Denied, Some(step)) = (error.code, &error.step) {
                said.insert(step.clone(), Value::from("no"));
            }
        }
        for wait in &view.waiting_for {
            said.insert(wait.step.clone(), Value::from("later"));
        }
        Value::object(said)
    }

    /// A value without sensitive parts.
    fn redact(&self, value: &Value, manner: RecordDetail) -> Value {
        let value = self.run.redact_value(value);
        let cut = |text: &str| {
            let length = text.chars().count();
            let end = text.char_indices().nth(TEXT_CHARS_KEPT).map(|(end, _)| end)?;
            let rest = length - TEXT_CHARS_KEPT;
            (length > TEXT_CHARS_MAX)
                .then(|| format!("{}… and {rest} more characters", &text[..end]))
        };
        if manner.cuts { value.map_texts(&cut).unwrap_or(value) } else { value }
    }

    /// Runs the test.
    fn played(&self, test: &Map) -> Result<TestRunResult, String> {
        let text = to_yaml(&self.document(test.clone()));
        let (file, findings) = read_tests(&Source::new("recorded.test.yaml", text), self.limits);
        let wrong = || findings.first().map_or_else(String::new, |found| found.message.clone());
        let file = file.ok_or_else(wrong)?;
        let mut play =
            TestRun::new(&file.tests[0], &file.mocks, self.plan, self.catalog, self.limits);
        let real = play.next_call();
        assert!(real.is_none(), "a recorded test calls no real tool");
        Ok(play.finish())
    }

    /// Whether the test reproduces the run.
    fn is_the_same(
        &self,
        view: &RunView,
        played: &TestRunResult,
        manner: RecordDetail,
    ) -> Result<(), String> {
        let (was, is) = (view.status.as_str(), played.view.status.as_str());
        if was != is {
            return Err(format!("it ended as `{was}`, and the recorded test as `{is}`"));
        }
        let was = self.calls.iter().map(|call| (&*call.step, call.tool.as_str()));
        let is = |made: &TestCall| (made.step.to_string(), made.tool.to_string());
        let mut was: Vec<_> = was.map(|(step, tool)| (step.to_owned(), tool.to_owned())).collect();
        let mut is: Vec<_> = played.calls.iter().map(is).collect();
        if !manner.order {
            was.sort_unstable();
            is.sort_unstable();
        }
        if was != is {
            let steps = |calls: &[(String, String)]| {
                calls.iter().map(|(step, _)| step.as_str()).collect::<Vec<_>>().join(", ")
            };
            let (was, is) = (steps(&was), steps(&is));
            return Err(format!("its calls were {was}, and those of the recorded test {is}"));
        }
        Ok(())
    }
}

/// The expectations of the same run.
fn expected(played: &TestRunResult, manner: RecordDetail) -> Value {
    let view = &played.view;
    let mut expect = vec![("status", Value::from(view.status.as_str()))];
    if !view.output.is_null() {
        expect.push(("output", view.output.clone()));
    }
    expect.push(("calls", calls(&played.calls).into()));
    let mut order: Vec<Value> = Vec::new();
    for made in &played.calls {
        let name = match made.purpose {
            Purpose::Work => Value::from(without_visits(&made.step)),
            Purpose::Rollback | Purpose::Probe => Value::from(made.tool.as_str()),
        };
        if order.last() != Some(&name) {
            order.push(name);
        }
    }
    if order.len() > 1 && manner.order {
        expect.push(("order", order.into()));
    }
    let back = view.steps.iter().filter(|step| step.status == StepStatus::RolledBack);
    let back: Vec<Value> = back.map(|step| Value::from(&*step.id)).collect();
    if !back.is_empty() {
        expect.push(("rolled_back", back.into()));
    }
    let errors = view.errors.iter().map(|error| {
        let step = error.step.as_ref().map(|step| ("step", Value::from(without_visits(step))));
        let code = ("code", Value::from(error.code.as_str()));
        Value::object(step.into_iter().chain([code]))
    });
    let errors: Vec<Value> = errors.collect();
    if !errors.is_empty() {
        expect.push(("errors", errors.into()));
    }
    Value::object(expect)
}

/// The calls; consecutive equal ones become one with a count.
fn calls(made: &[TestCall]) -> Vec<Value> {
    let mut calls: Vec<(Value, u64)> = Vec::new();
    for made in made {
        let call = Value::object([
            ("step", Value::from(without_visits(&made.step))),
            ("tool", Value::from(made.tool.as_str())),
            ("arguments", made.args.clone()),
        ]);
        match calls.last_mut() {
            Some((last, times)) if *last == call => *times += 1,
            _ => calls.push((call, 1)),
        }
    }
    let with_times = |(call, times): (Value, u64)| match (call, times) {
        (Value::Object(call), times) if times > 1 => {
            let mut call = (*call).clone();
            call.insert("times".into(), Value::from(times));
            Value::from(call)
        }
        (call, _) => call,
    };
    calls.into_iter().map(with_times).collect()
}

fn options(options: &Options) -> Value {
    let timeout = options.timeout_ms.map(|ms| ("timeout", Value::from(format!("{ms}ms"))));
    let at_once = options.max_concurrency.map(|n| ("max_concurrency", Value::from(u64::from(n))));
    let strategy = options.strategy.map(Strategy::as_str);
    let strategy = strategy.map(|word| ("error_strategy", Value::from(word)));
    Value::object(timeout.into_iter().chain(at_once).chain(strategy))
}

/// Pointers to sensitive values in the outputs of steps, by path without iterations.
fn add_sensitive(plan: &Plan, body: u32, outer: &str, into: &mut BTreeMap<String, Vec<Arc<str>>>) {
    for planned in plan.steps_of(body) {
        let path = format!("{outer}{}", planned.step.id);
        let inside = format!("{path}/");
        into.insert(path, planned.step.sensitive.clone());
        planned.bodies.iter().for_each(|body| add_sensitive(plan, *body, &inside, into));
        planned.nested.values().for_each(|nested| add_sensitive(nested, 0, &inside, into));
    }
}

/// Replaces the value at a JSON Pointer by a placeholder of the same kind.
fn blank(value: &mut Value, pointer: &str) {
    value.replace_at(pointer, &|value| match value {
        Value::Null => Value::Null,
        Value::Bool(_) => Value::Bool(false),
        Value::Number(_) => Value::from(0),
        Value::String(_) => Value::from(crate::run::REDACTED),
        Value::Array(_) => Vec::new().into(),
        Value::Object(_) => Value::empty_object(),
    });
}
