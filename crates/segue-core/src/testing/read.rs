//! Reads test files: tree → [`TestFile`].

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{
    Expectations, ExpectedCall, ExpectedError, Located, LocatedName, MockDecision, MockDecisions,
    MockOutcome, MockResponse, Test, TestFile, ToolMock, mocked_failure, test_tool,
};
use crate::compile::contained;
use crate::compile::dialect::grammar::{
    ANSWER, CONFIRM, EXPECT, EXPECTED_CALL, EXPECTED_ERROR, MOCK_FILE, TEST, TEST_ERROR, TEST_FILE,
    TEST_OPTIONS, TEST_TOOL,
};
use crate::compile::dialect::reader::{DialectReader, first_line};
use crate::composition::tool::{Annotations, ToolSpec};
use crate::composition::{Dialect, Strategy};
use crate::diagnostic::{Code, Diagnostic};
use crate::document::{self, Node, NodeKind, ReadLimits};
use crate::limits::Limits;
use crate::run::{Failure, Options};
use crate::schema::Schema;
use crate::source::{Source, Span};
use crate::value::Value;
use crate::view::{RunStatus, StepStatus};

/// The maximum of `times`.
const TIMES_MAX: u64 = 10_000;

/// Reads a test file, with all findings about the file itself.
pub fn read_tests(source: &Source, limits: &Limits) -> (Option<TestFile>, Vec<Diagnostic>) {
    let read = || match document::read(source, ReadLimits::for_documents(limits)) {
        Ok(root) => {
            let (file, findings) = read_tree(source, &root, limits);
            (Some(file).filter(|_| findings.is_empty()), findings)
        }
        Err(findings) => (None, findings),
    };
    contained(read).unwrap_or_else(|fault| (None, vec![fault]))
}

/// Reads the outputs that a file gives for steps, with all findings: a file with tests, of which the
/// `tools` of all tests count, or a file with `tools` alone. A run that takes them calls none of these
/// steps, so each has one answer, which is a value.
pub fn read_pinned_outputs(
    source: &Source,
    limits: &Limits,
) -> (Vec<(Arc<str>, Value)>, Vec<Diagnostic>) {
    let read = || match document::read(source, ReadLimits::for_documents(limits)) {
        Ok(root) => {
            let mut reader = DialectReader::new(source, limits, Dialect::Composition);
            let record = if root.get("tests").is_some() { &TEST_FILE } else { &MOCK_FILE };
            if !reader.check_record(&root, record, "a file with mocks") {
                return (Vec::new(), reader.findings);
            }
            let mocks = mocks(&mut reader, &root);
            let outputs = mocks.iter().filter_map(|mock| pinned_output(&mut reader, mock));
            let outputs: Vec<_> = outputs.collect();
            (outputs, reader.findings)
        }
        Err(findings) => (Vec::new(), findings),
    };
    contained(read).unwrap_or_else(|fault| (Vec::new(), vec![fault]))
}

fn pinned_output(reader: &mut DialectReader<'_>, mock: &ToolMock) -> Option<(Arc<str>, Value)> {
    let name = &mock.name;
    if let [MockResponse { when: None, delay_ms: 0, times: None, outcome, .. }] =
        mock.responses.as_slice()
        && let MockOutcome::Value(output) = outcome
    {
        return Some((name.value.clone(), output.to_value()));
    }
    let message = format!("`{}` needs one answer that is a value", name.value);
    let help = "a run takes `returns: VALUE` as the output of the step; errors, lists, `when`, \
                `times` and `delay` are for tests";
    reader.error_with_help(Code::InvalidField, name.span, message, help);
    None
}

/// Reads the tests of a document, and reports all findings.
fn read_tree(source: &Source, root: &Node, limits: &Limits) -> (TestFile, Vec<Diagnostic>) {
    let mut reader = DialectReader::new(source, limits, Dialect::Composition);
    let mut file = TestFile::default();
    if reader.check_record(root, &TEST_FILE, "a file with tests") {
        file.composition = root.get("composition").and_then(|node| name(&mut reader, node));
        file.declared = declared(&mut reader, root);
        file.mocks = mocks(&mut reader, root);
        let tests = root.get("tests").map_or(&[][..], |node| reader.list(node, "`tests`"));
        file.tests = tests.iter().filter_map(|node| test(&mut reader, node)).collect();
    }
    let mut names = BTreeSet::new();
    for test in &file.tests {
        if !names.insert(test.name.value.clone()) {
            let message = format!("another test is called `{}` already", test.name.value);
            reader.error(Code::DuplicateId, test.name.span, message);
        }
    }
    (file, reader.findings)
}

fn name(reader: &mut DialectReader<'_>, node: &Node) -> Option<LocatedName> {
    let what = reader.text(node, "a name")?;
    Some(Located { value: what, span: node.span })
}

fn names(reader: &mut DialectReader<'_>, node: &Node, what: &str) -> Vec<LocatedName> {
    reader.list(node, what).iter().filter_map(|item| name(reader, item)).collect()
}

fn object(reader: &mut DialectReader<'_>, node: &Node, what: &str) -> Option<Located<Value>> {
    if !matches!(node.kind, NodeKind::Object(_)) {
        let message = format!("{what} must be an object, found {}", node.kind_name());
        reader.error(Code::InvalidField, node.span, message);
        return None;
    }
    Some(placed(node))
}

fn placed(node: &Node) -> Located<Value> {
    Located { value: node.to_value(), span: node.span }
}

fn test(reader: &mut DialectReader<'_>, node: &Node) -> Option<Test> {
    if !reader.check_record(node, &TEST, "a test") {
        return None;
    }
    let own = node.get("name").and_then(|node| name(reader, node))?;
    let mut given = |field: &str| {
        let given = node.get(field);
        let value = given.and_then(|given| object(reader, given, &format!("`{field}`")));
        value.map_or_else(Value::empty_object, |value| value.value)
    };
    let (input, context) = (given("input"), given("context"));
    let options = node.get("options").map(|node| options(reader, node)).unwrap_or_default();
    let mocks = mocks(reader, node);
    let real = node.get("real").map(|node| names(reader, node, "`real`")).unwrap_or_default();
    let confirm = node.get("confirm").map(|node| confirm(reader, node)).unwrap_or_default();
    let doubts = node.get("doubts").and_then(|node| {
        object(reader, node, "`doubts`")?;
        Some(answers_of(reader, node))
    });
    let strict = node.get("strict").and_then(|node| reader.bool(node, "`strict`"));
    let expect = match node.get("expect") {
        Some(expected) => expect(reader, expected, node.key_span("expect")),
        None => Expectations { span: own.span, ..Expectations::default() },
    };
    Some(Test {
        name: own,
        input,
        context,
        options,
        mocks,
        real,
        confirm,
        doubts: doubts.unwrap_or_default(),
        is_strict: strict.unwrap_or(true),
        expect,
    })
}

fn options(reader: &mut DialectReader<'_>, node: &Node) -> Options {
    let mut options = Options::default();
    if reader.check_record(node, &TEST_OPTIONS, "`options`") {
        options.timeout_ms = node.get("timeout").and_then(|n| reader.duration(n, "`timeout`"));
        options.max_concurrency = node
            .get("max_concurrency")
            .and_then(|n| reader.positive(n, "`max_concurrency`", u64::from(u32::MAX)));
        options.strategy = node
            .get("error_strategy")
            .and_then(|node| reader.one_of(node, "`error_strategy`", Strategy::WORDS))
            .and_then(|position| Strategy::parse(Strategy::WORDS[position]));
    }
    options
}

/// The tools in `declare`.
fn declared(reader: &mut DialectReader<'_>, node: &Node) -> Vec<Arc<ToolSpec>> {
    let Some(node) = node.get("declare") else { return Vec::new() };
    if object(reader, node, "`declare`").is_none() {
        return Vec::new();
    }
    let mut declared = Vec::new();
    for member in node.members() {
        let tool = &member.value;
        if !reader.check_record_at(member.key_span, tool, &TEST_TOOL, "a tool") {
            continue;
        }
        let mut schema = |field: &str| {
            let node = tool.get(field)?;
            let schema = Schema::new(node.to_value());
            if let Err(wrong) = schema.check() {
                let message = format!("`{field}` is not a JSON Schema: {wrong}");
                reader.error(Code::InvalidField, node.span, message);
            }
            Some(Arc::new(schema))
        };
        let (input, output) = (schema("input"), schema("output"));
        let mut flag =
            |field: &str| tool.get(field).and_then(|node| reader.bool(node, &format!("`{field}`")));
        let annotations = Annotations {
            read_only: flag("read_only"),
            destructive: flag("destructive"),
            idempotent: flag("idempotent"),
            open_world: None,
        };
        let input = input.unwrap_or_else(Schema::any_object);
        let spec = test_tool(&member.key, input);
        declared.push(Arc::new(ToolSpec { output, annotations, ..spec }));
    }
    declared
}

/// The mocks in `tools`.
fn mocks(reader: &mut DialectReader<'_>, node: &Node) -> Vec<ToolMock> {
    let Some(node) = node.get("tools") else { return Vec::new() };
    if object(reader, node, "`tools`").is_none() {
        return Vec::new();
    }
    let mut mocks = Vec::new();
    for member in node.members() {
        let (nodes, is_list) = match &member.value.kind {
            NodeKind::Array(items) => (items.as_slice(), true),
            _ => (std::slice::from_ref(&member.value), false),
        };
        let once = is_list.then_some(1);
        let answers = nodes.iter().filter_map(|node| answer(reader, node, once)).collect();
        let name = Located { value: member.key.clone(), span: member.key_span };
        mocks.push(ToolMock { name, responses: answers });
    }
    mocks
}

fn answer(reader: &mut DialectReader<'_>, node: &Node, once: Option<u32>) -> Option<MockResponse> {
    if !reader.check_record(node, &ANSWER, "an answer") {
        return None;
    }
    let silent = node.get("silent").and_then(|node| reader.bool(node, "`silent`"));
    let mut said = Vec::new();
    if let Some(value) = node.get("returns") {
        said.push(MockOutcome::Value(value.clone()));
    }
    if let Some(node) = node.get("error") {
        said.push(MockOutcome::Failure(failure(reader, node)?));
    }
    if silent == Some(true) {
        said.push(MockOutcome::NoAnswer);
    }
    if said.len() != 1 {
        let message = "an answer is one of `returns`, `error` and `silent: true`";
        let first = first_line(reader.source, node.span);
        let help = "a value is written as `returns: VALUE`";
        reader.error_with_help(Code::InvalidField, first, message, help);
        return None;
    }
    let when = node.get("when").and_then(|node| object(reader, node, "`when`"));
    let delay_ms = node.get("delay").and_then(|node| reader.duration(node, "`delay`"));
    let times = match node.get("times") {
        None => once,
        Some(node) if node.as_str().is_some() => {
            reader.one_of(node, "`times`", &["any"])?;
            None
        }
        Some(node) => Some(reader.positive(node, "`times`", TIMES_MAX)?),
    };
    let (span, says) = (node.span, said.swap_remove(0));
    Some(MockResponse { span, when, outcome: says, delay_ms: delay_ms.unwrap_or(0), times })
}

fn failure(reader: &mut DialectReader<'_>, node: &Node) -> Option<Failure> {
    if let Some(message) = node.as_str() {
        return Some(mocked_failure(message, None, None));
    }
    if !reader.check_record(node, &TEST_ERROR, "`error`") {
        return None;
    }
    let message = node.get("message").and_then(|node| reader.text(node, "`message`"))?;
    let code = match node.get("code") {
        Some(node) => Some(code(reader, node)?),
        None => None,
    };
    let retryable = node.get("retryable").and_then(|node| reader.bool(node, "`retryable`"));
    let after = node.get("retry_after").and_then(|node| reader.duration(node, "`retry_after`"));
    Some(Failure { retry_after_ms: after, ..mocked_failure(&message, code, retryable) })
}

fn code(reader: &mut DialectReader<'_>, node: &Node) -> Option<Code> {
    let words: Vec<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
    reader.one_of(node, "`code`", &words).map(|position| Code::ALL[position])
}

fn confirm(reader: &mut DialectReader<'_>, node: &Node) -> MockDecisions {
    match &node.kind {
        NodeKind::Object(_) => {
            MockDecisions { all: MockDecision::Yes, steps: answers_of(reader, node) }
        }
        _ => MockDecisions { all: word(reader, node).unwrap_or_default(), steps: Vec::new() },
    }
}

/// Answers of people, by step.
fn answers_of(reader: &mut DialectReader<'_>, node: &Node) -> Vec<(LocatedName, MockDecision)> {
    let mut steps = Vec::new();
    for member in node.members() {
        let word = match &member.value.kind {
            NodeKind::Object(_) => Some(MockDecision::With(member.value.to_value())),
            _ => word(reader, &member.value),
        };
        let name = Located { value: member.key.clone(), span: member.key_span };
        steps.extend(word.map(|word| (name, word)));
    }
    steps
}

fn word(reader: &mut DialectReader<'_>, node: &Node) -> Option<MockDecision> {
    if let NodeKind::Bool(yes) = node.kind {
        return Some(if yes { MockDecision::Yes } else { MockDecision::No });
    }
    let position = reader.one_of(node, "`confirm`", CONFIRM)?;
    Some([MockDecision::Yes, MockDecision::No, MockDecision::Later][position].clone())
}

fn expect(reader: &mut DialectReader<'_>, node: &Node, span: Span) -> Expectations {
    let mut expect = Expectations { span, ..Expectations::default() };
    if !reader.check_record_at(span, node, &EXPECT, "`expect`") {
        return expect;
    }
    let statuses: Vec<&str> = RunStatus::ALL.iter().map(|status| status.as_str()).collect();
    expect.status = node.get("status").and_then(|node| {
        let position = reader.one_of(node, "`status`", &statuses)?;
        Some(Located { value: RunStatus::ALL[position], span: node.span })
    });
    expect.success = node
        .get("success")
        .and_then(|node| Some(Located { value: reader.bool(node, "`success`")?, span: node.span }));
    expect.output = node.get("output").map(placed);
    expect.output_includes = node.get("output_includes").map(placed);
    let mut list = |field: &str| {
        let node = node.get(field)?;
        Some(Located { value: names(reader, node, &format!("`{field}`")), span: node.span })
    };
    let [order, not_called, rolled_back] = ["order", "not_called", "rolled_back"].map(&mut list);
    expect.order = order.map(|names| names.value).unwrap_or_default();
    expect.not_called = not_called.map(|names| names.value).unwrap_or_default();
    expect.rolled_back = rolled_back;
    expect.calls = node.get("calls").map(|node| {
        let items = reader.list(node, "`calls`");
        let what = items.iter().filter_map(|item| expected_call(reader, item)).collect();
        Located { value: what, span: node.span }
    });
    expect.errors = node.get("errors").map(|node| {
        let items = reader.list(node, "`errors`");
        let what = items.iter().filter_map(|item| expected_error(reader, item)).collect();
        Located { value: what, span: node.span }
    });
    if let Some(node) = node.get("steps") {
        expect.steps = steps(reader, node);
    }
    expect
}

/// Expected statuses of steps.
fn steps(reader: &mut DialectReader<'_>, node: &Node) -> Vec<(LocatedName, LocatedName)> {
    let words: Vec<&str> = StepStatus::ALL.iter().map(|status| status.as_str()).collect();
    if object(reader, node, "`steps`").is_none() {
        return Vec::new();
    }
    let mut steps = Vec::new();
    for member in node.members() {
        let position = reader.one_of(&member.value, "the status of a step", &words);
        let step = Located { value: member.key.clone(), span: member.key_span };
        let status = |position: usize| Arc::from(words[position]);
        let status = position.map(|p| Located { value: status(p), span: member.value.span });
        steps.extend(status.map(|status| (step, status)));
    }
    steps
}

fn expected_call(reader: &mut DialectReader<'_>, node: &Node) -> Option<ExpectedCall> {
    // A bare name is a call of that tool.
    if node.as_str().is_some() {
        let (span, tool) = (node.span, name(reader, node));
        let (step, arguments, arguments_include) = (None, None, None);
        return Some(ExpectedCall { span, tool, step, arguments, arguments_include, times: 1 });
    }
    if !reader.check_record(node, &EXPECTED_CALL, "a call") {
        return None;
    }
    let first = first_line(reader.source, node.span);
    let tool = node.get("tool").and_then(|node| name(reader, node));
    let step = node.get("step").and_then(|node| name(reader, node));
    if tool.is_none() && step.is_none() {
        reader.error(Code::InvalidField, first, "a call needs `tool` or `step`");
        return None;
    }
    let mut value =
        |field: &str| node.get(field).and_then(|node| object(reader, node, &format!("`{field}`")));
    let (arguments, arguments_include) = (value("arguments"), value("arguments_include"));
    let times = match node.get("times") {
        Some(node) => reader.positive(node, "`times`", TIMES_MAX)?,
        None => 1,
    };
    Some(ExpectedCall { span: first, tool, step, arguments, arguments_include, times })
}

fn expected_error(reader: &mut DialectReader<'_>, node: &Node) -> Option<ExpectedError> {
    if !reader.check_record(node, &EXPECTED_ERROR, "an error") {
        return None;
    }
    let step = node.get("step").and_then(|node| name(reader, node));
    let code = match node.get("code") {
        Some(node) => Some(code(reader, node)?),
        None => None,
    };
    let message = node.get("message").and_then(|node| reader.text(node, "`message`"));
    let span = first_line(reader.source, node.span);
    Some(ExpectedError { span, step, code, message })
}
