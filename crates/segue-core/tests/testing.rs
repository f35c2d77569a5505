//! Tests of compositions: test files, their runs, and unmet expectations.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::sync::Arc;

use segue_core::catalog::Catalog;
use segue_core::diagnostic::Diagnostic;
use segue_core::id::ToolId;
use segue_core::limits::Limits;
use segue_core::plan::plan_text;
use segue_core::schema::Schema;
use segue_core::source::Source;
use segue_core::testing::read_tests;
use segue_core::testing::{TestRun, TestRunResult, catalog_for, check, compare};
use segue_core::tool::{Annotations, ToolSpec};
use segue_core::value::Value;
use segue_core::view::RunStatus;

/// Books, pays, and rolls the booking back when the payment fails.
const TRIP: &str = "
name: trip
input: { type: object, required: [to], properties: { to: { type: string } } }
error_handling: { rollback_on_failure: true, backoff: { initial: 10m, jitter: false } }
steps:
  - id: book
    tool: book
    parameters: { to: '{{ input.to }}' }
    rollback: { tool: cancel, parameters: { id: '{{ output.id }}' } }
  - id: pay
    tool: bank:pay
    parameters: { amount: '{{ book.price }}' }
    retry_count: 2
    timeout: 5s
    idempotent: true
output: { receipt: '{{ pay.receipt }}' }
";

fn schema(text: &str) -> Arc<Schema> {
    Arc::new(Schema::new(serde_json::from_str(text).unwrap()))
}

/// The known tools: `book`, with schemas.
fn known() -> Catalog {
    let input = schema(
        r#"{"type":"object","required":["to"],"additionalProperties":false,
            "properties":{"to":{"type":"string"}}}"#,
    );
    let output = schema(
        r#"{"type":"object","required":["id","price"],
            "properties":{"id":{"type":"string"},"price":{"type":"integer"}}}"#,
    );
    let mut book = ToolSpec::new(ToolId::from("travel:book"), "Books", input);
    book.output = Some(output);
    book.annotations = Annotations { destructive: Some(false), ..Annotations::default() };
    Catalog::new([Arc::new(book)])
}

/// The outcome of a test: findings about its file, or the run and its unmet expectations.
enum Outcome {
    Wrong(Vec<Diagnostic>),
    Ran(Box<TestRunResult>, Vec<String>),
}

/// Runs the first test of a file.
fn outcome(composition: &str, tests: &str) -> Outcome {
    let limits = Arc::new(Limits::default());
    let source = Source::new("trip.test.yaml", tests);
    let (file, findings) = read_tests(&source, &limits);
    let Some(file) = file else { return Outcome::Wrong(findings) };
    let composition = Source::new("trip.yaml", composition);
    let catalog = catalog_for(&file, &composition, &known(), &limits);
    let (plan, findings) = plan_text(&composition, &catalog, &limits);
    let Some(plan) = plan else { return Outcome::Wrong(findings) };
    let findings = check(&file, &plan, &catalog, &[ToolId::from("builtin:echo")]);
    if !findings.is_empty() {
        return Outcome::Wrong(findings);
    }
    let mut play = TestRun::new(&file.tests[0], &file.mocks, &plan, &catalog, &limits);
    assert!(play.next_call().is_none(), "nothing real is called");
    let played = play.finish();
    let misses = compare(&file.tests[0], &played, &catalog);
    let place = |start: u32| source.position(start).line;
    let misses = misses.iter().map(|miss| format!("{}: {}", place(miss.span.start), miss.message));
    let misses = misses.collect();
    Outcome::Ran(Box::new(played), misses)
}

/// The unmet expectations of a test of the trip.
#[track_caller]
fn misses(test: &str) -> Vec<String> {
    match outcome(TRIP, &format!("tests:\n  - name: t\n    input: {{ to: Oslo }}\n{test}")) {
        Outcome::Ran(_, misses) => misses,
        Outcome::Wrong(findings) => panic!("{findings:?}"),
    }
}

/// The findings about a file.
#[track_caller]
fn findings(tests: &str) -> Vec<String> {
    match outcome(TRIP, tests) {
        Outcome::Wrong(findings) => findings
            .iter()
            .map(|found| {
                format!("{}: {} {}", found.code, found.message, found.help.as_deref().unwrap_or(""))
            })
            .collect(),
        Outcome::Ran(_, misses) => panic!("it ran: {misses:?}"),
    }
}

const ANSWERS: &str = "    tools:
      book: { returns: { id: b1, price: 70 } }
      pay: { returns: { receipt: r1 } }
";

#[test]
fn what_is_as_expected_passes() {
    let expect = "    expect:
      status: success
      output: { receipt: r1 }
      calls:
        - { tool: 'bank:pay', arguments: { amount: 70 } }
        - { step: book, arguments_include: { to: Oslo } }
      order: [book, pay]
      not_called: [cancel]
";
    assert_eq!(misses(&format!("{ANSWERS}{expect}")), Vec::<String>::new());
    // Without `expect`, success is expected.
    assert_eq!(misses(ANSWERS), Vec::<String>::new());
}

#[test]
fn every_difference_is_found_with_its_line() {
    let expect = "    expect:
      status: failed
      output: { receipt: r2 }
      calls:
        - { tool: book, arguments: { to: Rome } }
        - { tool: cancel }
      order: [pay, book]
      not_called: [book]
      steps: { pay: skipped }
      rolled_back: [book]
      errors:
        - { step: pay, code: timeout }
";
    assert_eq!(
        misses(&format!("{ANSWERS}{expect}")),
        [
            "8: expected status `failed`, got `success`",
            "9: the output is not as expected",
            "14: expected no call of `book`; call of `travel:book` by step `book` with {\"to\":\"Oslo\"}",
            "11: the call of `book` has other arguments",
            "12: missing call of `cancel`",
            "11: unexpected call of `bank:pay` by step `pay` with {\"amount\":70}",
            "13: expected a call of `book` after `pay`; the calls were: book, pay",
            "15: expected step `pay` to be `skipped`, it is `success`",
            "16: expected step `book` to be rolled back, it is `success`",
            "18: expected [timeout] of step `pay`; nothing went wrong",
        ]
    );
}

#[test]
fn a_call_without_an_answer_and_an_unused_answer_fail_a_strict_test() {
    let unanswered = "    tools:
      book: { returns: { id: b1, price: 70 } }
      cancel: { returns: {} }
      pay: [{ error: busy }]
    expect: { status: rolled_back }
";
    let found = misses(unanswered);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("all answers of `pay` are used"), "{found:?}");
    let unused = format!("{ANSWERS}      cancel: {{ returns: {{}} }}\n");
    assert_eq!(misses(&unused), ["7: missing call: an answer of `cancel` was never used"]);
    // Without `strict`, extra calls are accepted.
    assert_eq!(misses(&format!("{unused}    strict: false\n")), Vec::<String>::new());
}

/// Delays of minutes and answers after hours cost no time: otherwise the test would time out.
#[test]
fn time_is_only_counted() {
    let test = "    tools:
      book: { returns: { id: b1, price: 70 }, delay: 3h }
      pay:
        - { error: busy }
        - { silent: true }
        - { returns: { receipt: r1 } }
    expect:
      calls: [book, { tool: 'bank:pay', times: 3 }]
";
    assert_eq!(misses(test), Vec::<String>::new());
}

#[test]
fn a_slow_answer_times_out_and_the_run_is_rolled_back() {
    let test = "tests:
  - name: t
    input: { to: Oslo }
    tools:
      book: { returns: { id: b1, price: 70 } }
      pay: { returns: { receipt: r1 }, delay: 6s }
      cancel: { returns: null, when: { id: b1 } }
    # Nobody knows whether it was paid, until somebody looks.
    doubts: { pay: no }
    expect: { status: rolled_back, rolled_back: [book], errors: [{ step: pay, code: timeout }] }
";
    let test = test.replace("timeout }", "retries-exhausted }");
    match outcome(TRIP, &test) {
        Outcome::Ran(played, misses) => {
            assert_eq!(played.view.status, RunStatus::RolledBack, "{:?}", played.view.errors);
            assert_eq!(misses, Vec::<String>::new());
            assert_eq!(played.calls.last().unwrap().tool.as_str(), "test:cancel");
        }
        Outcome::Wrong(findings) => panic!("{findings:?}"),
    }
}

#[test]
fn people_answer_as_the_test_says() {
    // The effect of `pay` is unknown, so it asks.
    let denied = format!(
        "{}      cancel: {{ returns: null }}\n    confirm: {{ pay: no }}\n    \
         expect: {{ status: rolled_back, not_called: [pay] }}\n",
        ANSWERS.replace("      pay: { returns: { receipt: r1 } }\n", "")
    );
    let denied = denied.replace("not_called: [pay]", "not_called: ['bank:pay']");
    let found = match outcome(
        TRIP,
        &format!(
            "declare: {{ 'bank:pay': {{}} }}\ntests:\n  - name: t\n    input: {{ to: Oslo }}\n{denied}"
        ),
    ) {
        Outcome::Ran(_, misses) => misses,
        Outcome::Wrong(findings) => panic!("{findings:?}"),
    };
    assert_eq!(found, Vec::<String>::new());
    let later = "    confirm: later\n    expect: { status: waiting }\n";
    assert_eq!(misses(&format!("{ANSWERS}{later}    strict: false\n")), Vec::<String>::new());
}

#[test]
fn a_file_that_cannot_be_meant_is_found_before_anything_runs() {
    let file = |test: &str| {
        format!(
            "tests:\n  - name: t\n    tools: {{ pay: {{ returns: 1 }}, cancel: {{ returns: 1 }} }}\n{test}"
        )
    };
    for (tests, expected) in [
        ("tests:\n  - name: t\n    tols: {}\n".to_owned(), "has no field `tols`"),
        ("tests:\n  - name: a\n  - name: a\n".to_owned(), "another test is called `a`"),
        ("test: []\n".to_owned(), "did you mean `tests`?"),
        (file("    expect: { status: sucess }\n"), "did you mean `success`?"),
        (file("    expect: { steps: { pai: success } }\n"), "did you mean `pay`?"),
        (file("    expect: { calls: [{ tool: boook }] }\n"), "did you mean"),
        (file("    expect: { calls: [{ tool: book, arguments: { too: x } }] }\n"), "no argument `too`"),
        (file("    real: [http_request]\n"), "tests may not really call `http_request`"),
        (file("    confirm: { paay: no }\n"), "did you mean `pay`?"),
        (file("    confirm: maybe\n"), "cannot be `maybe`"),
        (
            "tests:\n  - name: t\n    tools: { pay: { returns: 1, error: no } }\n".to_owned(),
            "an answer is one of",
        ),
        (
            "tests:\n  - name: t\n    tools: { pay: { returns: 1 }, book: { returns: { id: 7 } } }\n"
                .to_owned(),
            "the answer does not fit `travel:book`",
        ),
        ("tests:\n  - name: t\n    tools: { py: { returns: 1 } }\n".to_owned(), "bank:pay"),
    ] {
        let found = findings(&tests);
        assert!(found.iter().any(|found| found.contains(expected)), "{tests}\n{found:?}");
    }
}

/// What a test expects is found in the text that it is written in, also in JSON.
#[test]
fn json_is_read_as_yaml_is() {
    let test = r#"{"tests":[{"name":"t","input":{"to":"Oslo"},
        "tools":{"book":{"returns":{"id":"b","price":1}},"bank:pay":{"returns":{"receipt":"r"}}},
        "expect":{"output":{"receipt":"r"}}}]}"#;
    match outcome(TRIP, test) {
        Outcome::Ran(played, misses) => {
            assert_eq!(misses, Vec::<String>::new());
            assert_eq!(played.view.output.get("receipt"), Some(&Value::from("r")));
        }
        Outcome::Wrong(findings) => panic!("{findings:?}"),
    }
}
