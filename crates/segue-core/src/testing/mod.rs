//! Tests of compositions: runs with mocked tools in simulated time, compared with expectations.
//!
//! `text → TestFile → check → TestRun → TestRunResult → compare`. All decisions about a test are
//! made here; the caller only performs calls of real tools where a test asks for them. Recording
//! goes the other way: the answers of a run's tools become the text of a test ([`record`]).
//!
//! Not here: finding files and printing results, which the command line does.

mod check;
mod compare;
mod mocks;
mod read;
mod recording;
mod test_run;

use std::sync::Arc;

use crate::composition::tool::ToolSpec;
use crate::diagnostic::Code;
use crate::document::Node;
use crate::id::ToolId;
use crate::run::{Failure, Options};
use crate::schema::Schema;
use crate::source::Span;
use crate::value::Value;
use crate::view::RunStatus;

pub use check::{catalog_for, check};
pub use compare::{Difference, UnmetExpectation, compare};
pub use read::{read_pinned_outputs, read_tests};
pub use recording::{RecordedCall, Recording, record};
pub use test_run::{TestCall, TestRun, TestRunResult};

/// A value with its span.
#[derive(Clone, Debug, PartialEq)]
pub struct Located<T> {
    /// The value.
    pub value: T,
    /// Its span.
    pub span: Span,
}

/// A name with its span.
pub type LocatedName = Located<Arc<str>>;

/// The tests of one file.
#[derive(Clone, Debug, Default)]
pub struct TestFile {
    /// The composition: a file, relative to this one, or a name.
    pub composition: Option<LocatedName>,
    /// Tools that only the tests declare.
    pub declared: Vec<Arc<ToolSpec>>,
    /// Mocks for every test.
    pub mocks: Vec<ToolMock>,
    /// The tests, in the order of the text.
    pub tests: Vec<Test>,
}

/// One test.
#[derive(Clone, Debug)]
pub struct Test {
    /// Its name.
    pub name: LocatedName,
    /// The input.
    pub input: Value,
    /// The caller's context.
    pub context: Value,
    /// Options of the run.
    pub options: Options,
    /// Mocks of tools.
    pub mocks: Vec<ToolMock>,
    /// Patterns of tools that are really called.
    pub real: Vec<LocatedName>,
    /// Answers of people.
    pub confirm: MockDecisions,
    /// Answers of people about calls in doubt, by step.
    pub doubts: Vec<(LocatedName, MockDecision)>,
    /// Whether unexpected calls and unused answers fail the test.
    pub is_strict: bool,
    /// The expectations.
    pub expect: Expectations,
}

/// The answers of a tool, or to the calls of a step.
#[derive(Clone, Debug)]
pub struct ToolMock {
    /// The tool or the step.
    pub name: LocatedName,
    /// The answers, in the order of use.
    pub responses: Vec<MockResponse>,
}

/// One mocked answer.
#[derive(Clone, Debug)]
pub struct MockResponse {
    /// Its span.
    pub span: Span,
    /// Members that the arguments must have.
    pub when: Option<Located<Value>>,
    /// The outcome.
    pub outcome: MockOutcome,
    /// The delay.
    pub delay_ms: u64,
    /// The number of calls that it answers; `None` means any.
    pub times: Option<u32>,
}

/// The outcome of a mocked call.
#[derive(Clone, Debug)]
pub enum MockOutcome {
    /// A value with its span.
    Value(Node),
    /// A failure.
    Failure(Failure),
    /// No answer, ever.
    NoAnswer,
}

/// Answers of people.
#[derive(Clone, Debug, Default)]
pub struct MockDecisions {
    /// The default answer.
    pub all: MockDecision,
    /// By step.
    pub steps: Vec<(LocatedName, MockDecision)>,
}

/// An answer of a person.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum MockDecision {
    /// Yes.
    #[default]
    Yes,
    /// No.
    No,
    /// No answer for now.
    Later,
    /// Yes, with data.
    With(Value),
}

/// The expectations of a run.
#[derive(Clone, Debug, Default)]
pub struct Expectations {
    /// Their span, or that of the test's name if there are none.
    pub span: Span,
    /// The status.
    pub status: Option<Located<RunStatus>>,
    /// Whether everything worked.
    pub success: Option<Located<bool>>,
    /// The output, exactly.
    pub output: Option<Located<Value>>,
    /// Members of the output.
    pub output_includes: Option<Located<Value>>,
    /// The calls.
    pub calls: Option<Located<Vec<ExpectedCall>>>,
    /// Tools and steps in the order of their calls.
    pub order: Vec<LocatedName>,
    /// Tools and steps that are not called.
    pub not_called: Vec<LocatedName>,
    /// Statuses of steps.
    pub steps: Vec<(LocatedName, LocatedName)>,
    /// The steps that are rolled back.
    pub rolled_back: Option<Located<Vec<LocatedName>>>,
    /// The errors.
    pub errors: Option<Located<Vec<ExpectedError>>>,
}

/// An expected call.
#[derive(Clone, Debug)]
pub struct ExpectedCall {
    /// Its span.
    pub span: Span,
    /// The tool.
    pub tool: Option<LocatedName>,
    /// The step.
    pub step: Option<LocatedName>,
    /// Its arguments, exactly.
    pub arguments: Option<Located<Value>>,
    /// Members of its arguments.
    pub arguments_include: Option<Located<Value>>,
    /// How often.
    pub times: u32,
}

/// An expected error.
#[derive(Clone, Debug)]
pub struct ExpectedError {
    /// Its span.
    pub span: Span,
    /// The step.
    pub step: Option<LocatedName>,
    /// Its code.
    pub code: Option<Code>,
    /// A part of its message.
    pub message: Option<Arc<str>>,
}

/// Whether a value includes another: objects may have more members, everything else must be equal.
pub fn includes(value: &Value, part: &Value) -> bool {
    match (value, part) {
        (Value::Object(has), Value::Object(wanted)) => wanted
            .iter()
            .all(|(name, wanted)| has.get(name).is_some_and(|value| includes(value, wanted))),
        (Value::Array(has), Value::Array(wanted)) => {
            has.len() == wanted.len()
                && has.iter().zip(wanted.iter()).all(|(value, part)| includes(value, part))
        }
        _ => value == part,
    }
}

/// The namespace of tools that exist only in a test and have none of their own.
const TEST: &str = "test";

/// A tool that only the tests declare.
pub(crate) fn test_tool(name: &str, input: Arc<Schema>) -> ToolSpec {
    let id = if name.contains(':') { name.into() } else { ToolId::new(TEST, name) };
    ToolSpec::new(id, "a tool that only the tests declare", input)
}

/// The failure of a mocked tool. Its code decides whether it is retryable, unless the test does.
pub(crate) fn mocked_failure(
    message: &Arc<str>,
    code: Option<Code>,
    retryable: Option<bool>,
) -> Failure {
    let code = code.unwrap_or(Code::ToolError);
    let passes =
        matches!(code, Code::ToolError | Code::Unreachable | Code::Timeout | Code::InDoubt);
    Failure {
        retryable: retryable.unwrap_or(passes),
        in_doubt: code == Code::InDoubt,
        ..Failure::permanent(code, message.clone())
    }
}

/// The path of a step without the number of a visit: `read#2` → `read`.
fn without_visits(path: &str) -> String {
    let parts = path.split('/').map(|part| part.split_once('#').map_or(part, |(id, _)| id));
    parts.collect::<Vec<_>>().join("/")
}

/// Whether a pattern matches a name; `*` matches any letters.
fn fits(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((before, rest)) => name.strip_prefix(before).is_some_and(|name| {
            name.char_indices()
                .map(|(at, _)| at)
                .chain([name.len()])
                .any(|at| fits(rest, &name[at..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_part_is_included_at_any_depth() {
        let whole = value(r#"{"a":{"b":1,"c":[{"d":2,"e":3}]},"f":null}"#);
        for part in ["{}", r#"{"a":{"b":1}}"#, r#"{"a":{"c":[{"d":2}]}}"#, r#"{"f":null}"#] {
            assert!(includes(&whole, &value(part)), "{part}");
        }
        for part in [r#"{"a":1}"#, r#"{"a":{"c":[]}}"#, r#"{"g":null}"#, r#"{"a":{"b":"1"}}"#] {
            assert!(!includes(&whole, &value(part)), "{part}");
        }
    }

    #[test]
    fn stars_stand_for_any_letters() {
        assert!(fits("text_*", "text_split") && fits("*", "echo") && fits("*_query", "json_query"));
        assert!(!fits("text_*", "json_query") && !fits("echo", "echoes") && !fits("e*x", "echo"));
    }

    #[test]
    fn visits_do_not_count() {
        assert_eq!(without_visits("each[2]/read#3"), "each[2]/read");
    }
}
