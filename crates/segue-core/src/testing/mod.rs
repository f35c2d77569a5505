//! Tests of compositions: a run with mocked tools, in time that is only counted, and what was
//! expected of it.
//!
//! `text → TestFile → check → TestRun → TestRunResult → verdict`. Everything that is decided about a test is
//! decided here; whoever runs it only lends real tools to those calls that ask for them. A recorded
//! run takes the way back: what its tools answered becomes a text ([`record`]).
//!
//! Not here: finding the files and telling people (the command line's).

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
pub use read::read_tests;
pub use recording::{RecordedCall, Recording, record};
pub use test_run::{TestCall, TestRun, TestRunResult};

/// Something with the place where it was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Located<T> {
    /// What.
    pub value: T,
    /// Where.
    pub span: Span,
}

/// A name with its place.
pub type LocatedName = Located<Arc<str>>;

/// The tests of one file.
#[derive(Clone, Debug, Default)]
pub struct TestFile {
    /// The composition: a file, seen from this one, or a name.
    pub composition: Option<LocatedName>,
    /// Tools that only the tests know.
    pub declared: Vec<Arc<ToolSpec>>,
    /// Answers that every test has.
    pub mocks: Vec<ToolMock>,
    /// The tests, in the order of the text.
    pub tests: Vec<Test>,
}

/// One test.
#[derive(Clone, Debug)]
pub struct Test {
    /// What it shows.
    pub name: LocatedName,
    /// The input.
    pub input: Value,
    /// What the caller brings along.
    pub context: Value,
    /// What the caller asks for beyond the composition.
    pub options: Options,
    /// What tools answer.
    pub mocks: Vec<ToolMock>,
    /// Patterns of tools that are really called.
    pub real: Vec<LocatedName>,
    /// What people answer.
    pub confirm: MockDecisions,
    /// What people say of calls that were never answered, by step.
    pub doubts: Vec<(LocatedName, MockDecision)>,
    /// Whether what nobody expects fails the test.
    pub is_strict: bool,
    /// What is expected.
    pub expect: Expectations,
}

/// What a tool, or the calls of a step, are answered with.
#[derive(Clone, Debug)]
pub struct ToolMock {
    /// The tool or the step.
    pub name: LocatedName,
    /// In the order in which they are used.
    pub responses: Vec<MockResponse>,
}

/// One answer that is ready.
#[derive(Clone, Debug)]
pub struct MockResponse {
    /// Where it was written.
    pub span: Span,
    /// Members that the arguments must have.
    pub when: Option<Located<Value>>,
    /// What is said.
    pub outcome: MockOutcome,
    /// How long it takes.
    pub delay_ms: u64,
    /// How many calls it is for; absent means any.
    pub times: Option<u32>,
}

/// What a mocked tool says.
#[derive(Clone, Debug)]
pub enum MockOutcome {
    /// A value, with its place.
    Value(Node),
    /// A failure.
    Failure(Failure),
    /// Nothing, ever.
    NoAnswer,
}

/// What people answer when they are asked.
#[derive(Clone, Debug, Default)]
pub struct MockDecisions {
    /// To everything that has no word of its own.
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
    /// Nothing for now.
    Later,
    /// Yes, with data.
    With(Value),
}

/// What is expected of a run.
#[derive(Clone, Debug, Default)]
pub struct Expectations {
    /// Where it was written; the test's name when it was not.
    pub span: Span,
    /// How it ends.
    pub status: Option<Located<RunStatus>>,
    /// Whether everything worked.
    pub success: Option<Located<bool>>,
    /// The output, exactly.
    pub output: Option<Located<Value>>,
    /// What the output has.
    pub output_includes: Option<Located<Value>>,
    /// The calls.
    pub calls: Option<Located<Vec<ExpectedCall>>>,
    /// What is called one after the other.
    pub order: Vec<LocatedName>,
    /// What is not called.
    pub not_called: Vec<LocatedName>,
    /// How steps end.
    pub steps: Vec<(LocatedName, LocatedName)>,
    /// The steps that are taken back.
    pub rolled_back: Option<Located<Vec<LocatedName>>>,
    /// What goes wrong.
    pub errors: Option<Located<Vec<ExpectedError>>>,
}

/// A call that is expected.
#[derive(Clone, Debug)]
pub struct ExpectedCall {
    /// Where it was written.
    pub span: Span,
    /// The tool.
    pub tool: Option<LocatedName>,
    /// The step.
    pub step: Option<LocatedName>,
    /// Its arguments, exactly.
    pub arguments: Option<Located<Value>>,
    /// What its arguments have.
    pub arguments_include: Option<Located<Value>>,
    /// How often.
    pub times: u32,
}

/// An error that is expected.
#[derive(Clone, Debug)]
pub struct ExpectedError {
    /// Where it was written.
    pub span: Span,
    /// The step.
    pub step: Option<LocatedName>,
    /// Its code.
    pub code: Option<Code>,
    /// A part of its message.
    pub message: Option<Arc<str>>,
}

/// Whether a value has everything that another one has: objects may have more members, everything
/// else is equal.
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

/// A tool that only the tests know.
pub(crate) fn test_tool(name: &str, input: Arc<Schema>) -> ToolSpec {
    let id = if name.contains(':') { name.into() } else { ToolId::new(TEST, name) };
    ToolSpec::new(id, "a tool that only the tests know", input)
}

/// How a mocked tool fails. Whether trying again may help follows from the code unless it is said.
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

/// Whether a pattern fits a name; `*` stands for any letters.
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
