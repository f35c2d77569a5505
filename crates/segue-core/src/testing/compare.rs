//! Compares the expectations of a test with what happened.

use std::sync::Arc;

use super::{
    Expectations, ExpectedCall, ExpectedError, Located, LocatedName, Test, TestCall, TestRunResult,
    includes, without_visits,
};
use crate::catalog::{Catalog, ToolLookup};
use crate::id::refers_to_step;
use crate::source::Span;
use crate::value::Value;
use crate::view::{ErrorView, RunView, StepStatus};

/// An unmet expectation.
#[derive(Clone, Debug, PartialEq)]
pub struct UnmetExpectation {
    /// The span of the expectation.
    pub span: Span,
    /// The message.
    pub message: String,
    /// What to do, if there is one thing to do.
    pub help: Option<String>,
    /// The differing values.
    pub difference: Option<Difference>,
}

/// An expected and an actual value.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The expected value.
    pub expected: Value,
    /// The actual value.
    pub actual: Value,
}

impl UnmetExpectation {
    fn new(span: Span, message: impl Into<String>) -> UnmetExpectation {
        UnmetExpectation { span, message: message.into(), help: None, difference: None }
    }

    fn differing(mut self, expected: &Value, actual: &Value) -> UnmetExpectation {
        let (expected, actual) = (expected.clone(), actual.clone());
        self.difference = Some(Difference { expected, actual });
        self
    }
}

/// All unmet expectations; an empty list means that the test passes.
pub fn compare(test: &Test, played: &TestRunResult, catalog: &Catalog) -> Vec<UnmetExpectation> {
    let judge = TestComparer { test, expect: &test.expect, played, catalog, misses: Vec::new() };
    judge.judge()
}

struct TestComparer<'a> {
    test: &'a Test,
    expect: &'a Expectations,
    played: &'a TestRunResult,
    catalog: &'a Catalog,
    misses: Vec<UnmetExpectation>,
}

impl TestComparer<'_> {
    fn judge(mut self) -> Vec<UnmetExpectation> {
        // Unanswered calls come first, because other misses may follow from them.
        if self.test.is_strict {
            self.unanswered();
        }
        self.end();
        self.output();
        self.calls();
        self.order();
        self.steps();
        self.errors();
        if self.test.is_strict && self.misses.is_empty() {
            self.unused();
        }
        self.misses
    }

    fn miss(&mut self, span: Span, message: impl Into<String>) {
        self.misses.push(UnmetExpectation::new(span, message));
    }

    fn unanswered(&mut self) {
        for made in &self.played.calls {
            let Some(why) = &made.unanswered else { continue };
            let message = format!("unexpected {}: {why}", described(made));
            let mut miss = UnmetExpectation::new(self.test.name.span, message);
            let id = without_visits(&made.step);
            miss.help = Some(format!("give `tools` an answer for `{id}` or `{}`", made.tool));
            self.misses.push(miss);
        }
    }

    /// Checks the status: as expected, or success if the test expects no failure.
    fn end(&mut self) {
        let view = &self.played.view;
        let expect = self.expect;
        if let Some(Located { value: what, span }) = &expect.status
            && *what != view.status
        {
            let (wanted, got) = (what.as_str(), view.status.as_str());
            self.miss(*span, format!("expected status `{wanted}`, got `{got}`{}", because(view)));
        }
        if let Some(Located { value: what, span }) = &expect.success
            && *what != view.success
        {
            let message = format!("expected success: {what}, got {}", view.success);
            self.miss(*span, format!("{message}{}", because(view)));
        }
        let says_nothing = expect.status.is_none()
            && expect.success.is_none()
            && expect.errors.is_none()
            && expect.rolled_back.is_none();
        if says_nothing && !view.success {
            let got = view.status.as_str();
            let message = format!("expected success, got status `{got}`{}", because(view));
            self.miss(expect.span, message);
        }
    }

    fn output(&mut self) {
        let actual = &self.played.view.output;
        if let Some(Located { value: what, span }) = &self.expect.output
            && what != actual
        {
            let miss = UnmetExpectation::new(*span, "the output is not as expected");
            self.misses.push(miss.differing(what, actual));
        }
        if let Some(Located { value: what, span }) = &self.expect.output_includes
            && !includes(actual, what)
        {
            let miss = UnmetExpectation::new(*span, "the output does not include what is expected");
            self.misses.push(miss.differing(what, &cut_to(actual, what)));
        }
    }

    /// Matches each expected call with one that was made; unmatched ones on either side are misses.
    fn calls(&mut self) {
        for name in &self.expect.not_called {
            if let Some(made) = self.played.calls.iter().find(|made| self.means(name, made)) {
                let message = format!("expected no call of `{}`; {}", name.value, described(made));
                self.misses.push(UnmetExpectation::new(name.span, message));
            }
        }
        let Some(expected) = &self.expect.calls else { return };
        let calls = &self.played.calls;
        let mut is_taken = vec![false; calls.len()];
        let mut missing = Vec::new();
        for call in &expected.value {
            for _ in 0..call.times {
                let fits = |at: &usize| !is_taken[*at] && self.is_call(call, &calls[*at], true);
                match (0..calls.len()).find(fits) {
                    Some(at) => is_taken[at] = true,
                    None => missing.push(call),
                }
            }
        }
        for call in missing {
            let near = |at: &usize| !is_taken[*at] && self.is_call(call, &calls[*at], false);
            let near = (0..calls.len()).find(near);
            if let Some(at) = near {
                is_taken[at] = true;
            }
            self.misses.push(missing_call(call, near.map(|at| &calls[at])));
        }
        let extra = calls.iter().zip(&is_taken).filter(|(made, is_taken)| {
            self.test.is_strict && !**is_taken && made.unanswered.is_none()
        });
        let extra: Vec<String> =
            extra.map(|(made, _)| format!("unexpected {}", described(made))).collect();
        extra.into_iter().for_each(|message| self.miss(expected.span, message));
    }

    fn is_call(&self, call: &ExpectedCall, made: &TestCall, with_arguments: bool) -> bool {
        let is_tool = |name: &LocatedName| self.is_tool(name, made);
        let is_step = |name: &LocatedName| refers_to_step(&name.value, &without_visits(&made.step));
        let exact = call.arguments.as_ref().is_none_or(|args| args.value == made.args);
        let partly =
            call.arguments_include.as_ref().is_none_or(|part| includes(&made.args, &part.value));
        call.tool.as_ref().is_none_or(is_tool)
            && call.step.as_ref().is_none_or(is_step)
            && (!with_arguments || (exact && partly))
    }

    fn is_tool(&self, name: &LocatedName, made: &TestCall) -> bool {
        match self.catalog.find(&name.value) {
            ToolLookup::Found(tool) => tool.id == made.tool,
            ToolLookup::Ambiguous(_) | ToolLookup::Missing { .. } => false,
        }
    }

    fn means(&self, name: &LocatedName, made: &TestCall) -> bool {
        refers_to_step(&name.value, &without_visits(&made.step)) || self.is_tool(name, made)
    }

    fn order(&mut self) {
        let mut from = 0;
        let mut before: Option<&LocatedName> = None;
        for name in &self.expect.order {
            let rest = &self.played.calls[from..];
            let Some(at) = rest.iter().position(|made| self.means(name, made)) else {
                let order: Vec<&str> = self.played.calls.iter().map(|made| &*made.step).collect();
                let after = before.map_or_else(String::new, |b| format!(" after `{}`", b.value));
                let message = format!(
                    "expected a call of `{}`{after}; the calls were: {}",
                    name.value,
                    if order.is_empty() { "none".to_owned() } else { order.join(", ") }
                );
                return self.miss(name.span, message);
            };
            from += at + 1;
            before = Some(name);
        }
    }

    fn steps(&mut self) {
        let view = &self.played.view;
        for (name, status) in &self.expect.steps {
            let steps = view.steps.iter().filter(|s| refers_to_step(&name.value, &s.id));
            let mut found = false;
            for step in steps {
                found = true;
                if step.status.as_str() != &*status.value {
                    let got = step.status.as_str();
                    let message = format!(
                        "expected step `{}` to be `{}`, it is `{got}`",
                        step.id, status.value
                    );
                    self.misses.push(UnmetExpectation::new(status.span, message));
                }
            }
            if !found {
                let message = format!("step `{}` was never reached", name.value);
                self.misses.push(UnmetExpectation::new(name.span, message));
            }
        }
        let Some(expected) = &self.expect.rolled_back else { return };
        let is_back = |status| matches!(status, StepStatus::RolledBack);
        let back: Vec<&Arc<str>> =
            view.steps.iter().filter(|s| is_back(s.status)).map(|step| &step.id).collect();
        for name in &expected.value {
            if !back.iter().any(|step| refers_to_step(&name.value, step)) {
                let step = view.steps.iter().find(|step| refers_to_step(&name.value, &step.id));
                let status = step.map_or("pending", |step| step.status.as_str());
                let message =
                    format!("expected step `{}` to be rolled back, it is `{status}`", name.value);
                self.misses.push(UnmetExpectation::new(name.span, message));
            }
        }
        let is_expected =
            |step: &str| expected.value.iter().any(|name| refers_to_step(&name.value, step));
        for step in back.iter().filter(|step| self.test.is_strict && !is_expected(step)) {
            let message = format!("step `{step}` was rolled back unexpectedly");
            self.misses.push(UnmetExpectation::new(expected.span, message));
        }
    }

    fn errors(&mut self) {
        let Some(expected) = &self.expect.errors else { return };
        let mut left: Vec<&ErrorView> = self.played.view.errors.iter().collect();
        for error in &expected.value {
            match left.iter().position(|found| is_error(error, found)) {
                Some(at) => drop(left.remove(at)),
                None => {
                    let others: Vec<String> =
                        self.played.view.errors.iter().map(described_error).collect();
                    let others = if others.is_empty() {
                        "nothing went wrong".to_owned()
                    } else {
                        format!("there is: {}", others.join("; "))
                    };
                    let message = format!("expected {}; {others}", wanted_error(error));
                    self.misses.push(UnmetExpectation::new(error.span, message));
                }
            }
        }
        if self.test.is_strict {
            for error in left {
                let message = format!("unexpected error: {}", described_error(error));
                self.misses.push(UnmetExpectation::new(expected.span, message));
            }
        }
    }

    fn unused(&mut self) {
        for (name, used, times) in &self.played.unused {
            let message = match (used, times) {
                (0, _) => format!("missing call: an answer of `{}` was never used", name.value),
                (used, times) => format!(
                    "missing call: an answer of `{}` was used {used} of {} times",
                    name.value,
                    times.unwrap_or(1)
                ),
            };
            self.misses.push(UnmetExpectation::new(name.span, message));
        }
    }
}

/// The part of a value that can be compared with another: only members that the other has.
fn cut_to(value: &Value, part: &Value) -> Value {
    match (value, part) {
        (Value::Object(has), Value::Object(wanted)) => {
            let members = has.iter().filter_map(|(name, value)| {
                wanted.get(name).map(|part| (name.clone(), cut_to(value, part)))
            });
            Value::object(members)
        }
        (Value::Array(has), Value::Array(wanted)) if has.len() == wanted.len() => {
            let items = has.iter().zip(wanted.iter()).map(|(value, part)| cut_to(value, part));
            items.collect::<Vec<_>>().into()
        }
        _ => value.clone(),
    }
}

fn missing_call(call: &ExpectedCall, near: Option<&TestCall>) -> UnmetExpectation {
    let what = match (&call.tool, &call.step) {
        (Some(tool), Some(step)) => format!("`{}` by step `{}`", tool.value, step.value),
        (Some(tool), None) => format!("`{}`", tool.value),
        (None, step) => format!("step `{}`", step.as_ref().map_or("", |step| &*step.value)),
    };
    let Some(made) = near else {
        return UnmetExpectation::new(call.span, format!("missing call of {what}"));
    };
    let miss = UnmetExpectation::new(call.span, format!("the call of {what} has other arguments"));
    match (&call.arguments, &call.arguments_include) {
        (Some(exact), _) => miss.differing(&exact.value, &made.args),
        (None, Some(part)) => miss.differing(&part.value, &cut_to(&made.args, &part.value)),
        (None, None) => miss,
    }
}

/// Describes a call.
fn described(made: &TestCall) -> String {
    const ARGS_CHARS_MAX: usize = 200;
    let args = made.args.to_json();
    let args = match args.char_indices().nth(ARGS_CHARS_MAX) {
        Some((cut, _)) => format!("{}…", &args[..cut]),
        None => args,
    };
    format!("call of `{}` by step `{}` with {args}", made.tool, made.step)
}

/// The first error, for a run that should not have failed.
fn because(view: &RunView) -> String {
    view.errors.first().map_or_else(String::new, |error| format!(": {}", described_error(error)))
}

fn described_error(error: &ErrorView) -> String {
    match &error.step {
        Some(step) => format!("[{}] step `{step}`: {}", error.code, error.message),
        None => format!("[{}] {}", error.code, error.message),
    }
}

fn is_error(expected: &ExpectedError, found: &ErrorView) -> bool {
    let step = found.step.as_deref().map(without_visits);
    let is_step =
        |name: &LocatedName| step.as_deref().is_some_and(|step| refers_to_step(&name.value, step));
    expected.step.as_ref().is_none_or(is_step)
        && expected.code.is_none_or(|code| code == found.code)
        && expected.message.as_ref().is_none_or(|part| found.message.contains(&**part))
}

fn wanted_error(expected: &ExpectedError) -> String {
    let code = expected.code.map_or_else(|| "an error".to_owned(), |code| format!("[{code}]"));
    let step = expected.step.as_ref().map(|step| format!(" of step `{}`", step.value));
    let message = expected.message.as_ref().map(|part| format!(" with `{part}`"));
    format!("{code}{}{}", step.unwrap_or_default(), message.unwrap_or_default())
}
