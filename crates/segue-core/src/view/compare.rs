//! Two runs beside each other: which steps ended otherwise, and where their values differ.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use super::cut::CutBudget;
use super::{RunView, StepStatus, StepView};
use crate::value::{Shared, Value};

/// How many steps a comparison lists.
pub const STEPS_MAX: usize = 1_000;

/// How many differences of one step are listed.
const DIFFERENCES_MAX: usize = 20;

/// How many bytes of differing values are listed.
const BYTES_MAX: usize = 2 * 1024 * 1024;

/// Whether two values are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Sameness {
    /// They are.
    Same,
    /// They are not.
    Differs,
    /// One of the runs has none.
    Absent,
}

/// A place where two values differ.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ValueDifference {
    /// `input`, `output`, `error` or `reason`.
    pub part: &'static str,
    /// The JSON Pointer of the place.
    pub pointer: String,
    /// The value there in the left run, cut if it is large; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left: Option<Value>,
    /// The value there in the right run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub right: Option<Value>,
}

/// A step in one of two runs.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ComparedStep {
    /// Its status.
    pub status: StepStatus,
    /// Milliseconds.
    pub duration_ms: u64,
    /// The number of attempts.
    pub attempts: u32,
    /// The tool that it called.
    pub tool: Option<Arc<str>>,
}

/// A step of two runs.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct StepComparison {
    /// Its path.
    pub id: Arc<str>,
    /// The step in the left run; null if it has no such step.
    pub left: Option<ComparedStep>,
    /// The step in the right run.
    pub right: Option<ComparedStep>,
    /// Which of `status`, `tool`, `attempts`, `input`, `output`, `error` and `reason` differ. A step that
    /// only one run has differs in its status.
    pub differs: Vec<&'static str>,
    /// Its arguments.
    pub input: Sameness,
    /// Its value.
    pub output: Sameness,
    /// The first differences.
    pub differences: Vec<ValueDifference>,
}

/// The steps of two runs beside each other.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct StepsComparison {
    /// The composition's result.
    pub output: Sameness,
    /// The first differences of the results.
    pub differences: Vec<ValueDifference>,
    /// Each step of either run, in the order of the left one.
    pub steps: Vec<StepComparison>,
    /// How many further steps are not listed.
    pub steps_left_out: usize,
}

/// Compares the steps and the results of two runs.
pub fn compare(left: &RunView, right: &RunView) -> StepsComparison {
    let mut budget = CutBudget::new(BYTES_MAX);
    let by_id = |view: &RunView| {
        let steps = view.steps.iter().enumerate();
        steps.map(|(at, step)| (step.id.clone(), at)).collect::<BTreeMap<_, _>>()
    };
    let (lefts, rights) = (by_id(left), by_id(right));
    let added = right.steps.iter().filter(|step| !lefts.contains_key(&step.id));
    let pairs = left
        .steps
        .iter()
        .map(|step| (Some(step), rights.get(&step.id).map(|at| &right.steps[*at])))
        .chain(added.map(|step| (None, Some(step))));
    let mut pairs = pairs.fuse();
    let steps = pairs.by_ref().take(STEPS_MAX);
    let steps = steps.filter_map(|(left, right)| step(left, right, &mut budget)).collect();
    let mut differences = Differences { found: Vec::new(), budget: &mut budget };
    let output = differences.compare("output", &left.output, &right.output);
    let differences = differences.found;
    StepsComparison { output, differences, steps, steps_left_out: pairs.count() }
}

fn step(
    left: Option<&StepView>,
    right: Option<&StepView>,
    budget: &mut CutBudget,
) -> Option<StepComparison> {
    let id = left.or(right)?.id.clone();
    let compared = |step: Option<&StepView>| {
        step.map(|step| ComparedStep {
            status: step.status,
            duration_ms: step.duration_ms,
            attempts: step.attempts,
            tool: step.tool.clone(),
        })
    };
    let (mut input, mut output) = (Sameness::Absent, Sameness::Absent);
    let mut differs = Vec::new();
    let mut note = |what: &'static str, is_same: bool| {
        if !is_same {
            differs.push(what);
        }
    };
    note("status", left.map(|step| step.status) == right.map(|step| step.status));
    let mut differences = Differences { found: Vec::new(), budget };
    if let (Some(left), Some(right)) = (left, right) {
        note("tool", left.tool == right.tool);
        note("attempts", left.attempts == right.attempts);
        input = differences.compare("input", &left.input, &right.input);
        note("input", input == Sameness::Same);
        output = differences.compare("output", &left.output, &right.output);
        note("output", output == Sameness::Same);
        let error = differences.compare("error", &error_of(left), &error_of(right));
        note("error", error == Sameness::Same);
        let reason = differences.compare("reason", &reason_of(left), &reason_of(right));
        note("reason", reason == Sameness::Same);
    }
    let differences = differences.found;
    let (left, right) = (compared(left), compared(right));
    Some(StepComparison { id, left, right, differs, input, output, differences })
}

/// An error without what differs in every run.
fn error_of(step: &StepView) -> Value {
    let error = step.error.as_ref();
    error.map_or(Value::Null, |error| {
        let code = Value::from(error.code.as_str());
        Value::object([("code", code), ("message", Value::from(error.message.as_str()))])
    })
}

fn reason_of(step: &StepView) -> Value {
    step.reason.as_deref().map_or(Value::Null, Value::from)
}

struct Differences<'a> {
    found: Vec<ValueDifference>,
    budget: &'a mut CutBudget,
}

impl Differences<'_> {
    fn compare(&mut self, part: &'static str, left: &Value, right: &Value) -> Sameness {
        if left.is_null() != right.is_null() {
            self.add(part, "", Some(left), Some(right));
            return Sameness::Absent;
        }
        let (before, mut pointer) = (self.found.len(), String::new());
        let is_same = self.walk(part, &mut pointer, left, right);
        debug_assert!(is_same || self.found.len() > before || before >= DIFFERENCES_MAX);
        if is_same { Sameness::Same } else { Sameness::Differs }
    }

    fn add(
        &mut self,
        part: &'static str,
        pointer: &str,
        left: Option<&Value>,
        right: Option<&Value>,
    ) {
        if self.found.len() < DIFFERENCES_MAX {
            let (left, right) =
                (left.map(|v| self.budget.cut(v)), right.map(|v| self.budget.cut(v)));
            self.found.push(ValueDifference { part, pointer: pointer.to_owned(), left, right });
        }
    }

    /// Whether two values are the same. Shared parts are not read, and nothing after the last
    /// difference that is listed.
    fn walk(
        &mut self,
        part: &'static str,
        pointer: &mut String,
        left: &Value,
        right: &Value,
    ) -> bool {
        let length = pointer.len();
        let mut is_same = true;
        let mut step = |all: &mut Self, name: &str, left: Option<&Value>, right: Option<&Value>| {
            if !is_same && all.found.len() >= DIFFERENCES_MAX {
                return;
            }
            pointer.push('/');
            pointer.push_str(&name.replace('~', "~0").replace('/', "~1"));
            is_same &= match (left, right) {
                (Some(left), Some(right)) => all.walk(part, pointer, left, right),
                _ => {
                    all.add(part, pointer, left, right);
                    false
                }
            };
            pointer.truncate(length);
        };
        match (left, right) {
            (Value::Array(one), Value::Array(two)) => {
                if !Shared::ptr_eq(one, two) {
                    for at in 0..one.len().max(two.len()) {
                        step(self, &at.to_string(), one.get(at), two.get(at));
                    }
                }
                is_same
            }
            (Value::Object(one), Value::Object(two)) => {
                if !Shared::ptr_eq(one, two) {
                    for (name, value) in one.iter() {
                        step(self, name, Some(value), two.get(name));
                    }
                    for (name, value) in two.iter().filter(|(name, _)| !one.contains_key(*name)) {
                        step(self, name, None, Some(value));
                    }
                }
                is_same
            }
            _ if left == right => true,
            _ => {
                self.add(part, pointer, Some(left), Some(right));
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostic::Code;
    use crate::view::ErrorView;

    fn view(steps: &[(&str, Value)]) -> RunView {
        let step = |(id, output): &(&str, Value)| StepView {
            id: (*id).into(),
            output: output.clone(),
            ..StepView::default()
        };
        RunView { steps: steps.iter().map(step).collect(), ..RunView::default() }
    }

    fn list(of: impl IntoIterator<Item = u64>) -> Value {
        Value::from(of.into_iter().map(Value::from).collect::<Vec<_>>())
    }

    #[test]
    fn differences_have_their_places() {
        let inner = |x: u64| Value::object([("x", Value::from(x)), ("a/b", list([1, 2]))]);
        let left = view(&[("a", inner(1)), ("b", Value::from(1)), ("gone", Value::from(1))]);
        let right = view(&[("a", inner(2)), ("b", Value::from(1)), ("new", Value::from(1))]);
        let found = compare(&left, &right);
        let steps: Vec<_> = found.steps.iter().map(|step| (&*step.id, step.output)).collect();
        let (same, differs, absent) = (Sameness::Same, Sameness::Differs, Sameness::Absent);
        assert_eq!(steps, [("a", differs), ("b", same), ("gone", absent), ("new", absent)]);
        assert_eq!(found.steps[0].input, same, "both have none");
        let [difference] = &found.steps[0].differences[..] else { panic!("{found:?}") };
        assert_eq!((difference.part, &*difference.pointer), ("output", "/x"));
        assert_eq!(difference.left, Some(Value::from(1)));
        assert!(found.steps[2].right.is_none() && found.steps[3].left.is_none());
        let what: Vec<_> = found.steps.iter().map(|step| step.differs.join(" ")).collect();
        assert_eq!(what, ["output", "", "status", "status"]);
    }

    #[test]
    fn every_part_of_a_step_is_compared() {
        let changes: [fn(&mut StepView); 7] = [
            |step| step.status = StepStatus::Failed,
            |step| step.tool = Some("web:get".into()),
            |step| step.attempts = 2,
            |step| step.input = Value::from(1),
            |step| step.output = Value::from(1),
            |step| step.error = Some(ErrorView::check(Code::Timeout, "late", None)),
            |step| step.reason = Some("reused".to_owned()),
        ];
        let parts = ["status", "tool", "attempts", "input", "output", "error", "reason"];
        let left = view(&[("a", Value::Null)]);
        for (change, part) in changes.into_iter().zip(parts) {
            let mut right = left.clone();
            change(&mut right.steps[0]);
            assert_eq!(compare(&left, &right).steps[0].differs, [part]);
        }
    }

    #[test]
    fn errors_differ_by_code_and_message() {
        let failed = |code, message: &str| {
            let mut view = view(&[("a", Value::Null)]);
            view.steps[0].error = Some(ErrorView::check(code, message, None));
            view
        };
        let found = compare(&failed(Code::Timeout, "late"), &failed(Code::Timeout, "too late"));
        let [difference] = &found.steps[0].differences[..] else { panic!("{found:?}") };
        assert_eq!((difference.part, &*difference.pointer), ("error", "/message"));
    }

    #[test]
    fn a_place_that_one_lacks_is_a_difference() {
        let one = view(&[("a", Value::object([("a/b", list([1, 2, 3]))]))]);
        let two = view(&[("a", Value::object([("a/b", list([1, 2])), ("c", Value::Null)]))]);
        let found = compare(&one, &two);
        let places: Vec<_> = found.steps[0].differences.iter().map(|d| &*d.pointer).collect();
        assert_eq!(places, ["/a~1b/2", "/c"]);
        assert_eq!(found.steps[0].differences[0].right, None);
    }

    #[test]
    fn only_the_first_differences_are_listed() {
        let (one, two) = (view(&[("a", list(0..100))]), view(&[("a", list(100..200))]));
        assert_eq!(compare(&one, &two).steps[0].differences.len(), DIFFERENCES_MAX);
        let many: Vec<(String, Value)> =
            (0..STEPS_MAX + 5).map(|n| (format!("s{n}"), Value::Null)).collect();
        let many: Vec<_> = many.iter().map(|(id, value)| (&**id, value.clone())).collect();
        let found = compare(&view(&many), &view(&many));
        assert_eq!((found.steps.len(), found.steps_left_out), (STEPS_MAX, 5));
    }
}
