//! `segue test` and `segue run --record`: tests of compositions.

use std::fs;

use crate::support::{World, copy_folder, files_below, json, repository};

/// Reads, then saves; rolls the saving back when the check at the end fails.
const NOTE: &str = "\
name: note
input: { type: object, required: [text], properties: { text: { type: string } } }
error_handling: { rollback_on_failure: true }
steps:
  - id: save
    tool: checkpoint_save
    parameters: { content: '{{ input.text }}' }
  - id: check
    tool: fail
    parameters: { times: 1, value: '{{ save.summary }}' }
    retry: { max: 2, backoff: { initial: 1h, max: 10h, jitter: false } }
output: { checked: '{{ check.value }}' }
";

const TESTS: &str = "\
tests:
  - name: the second attempt is enough
    input: { text: hello }
    tools:
      save: { returns: { id: c1, summary: hello, created_at: '2026-01-01T00:00:00Z' } }
      check:
        - { error: not yet }
        - { returns: { value: hello } }
    expect:
      output: { checked: hello }
      calls:
        - { tool: checkpoint_save, arguments: { content: hello } }
        - { tool: fail, times: 2 }
";

fn world(tests: &str) -> World {
    let world = World::new();
    world.file("note.yaml", NOTE);
    world.file("note.test.yaml", tests);
    world
}

/// Rests of hours take no time: the attempts come at once.
#[test]
fn tests_pass_without_waiting_and_without_a_store() {
    let world = world(TESTS);
    let done = world.segue(&["test"]).exits(0);
    assert_eq!(
        done.stdout,
        "ok    note.test.yaml · the second attempt is enough\n1 passed, 0 failed\n"
    );
    assert!(files_below(&world.folder(), &["db"]).is_empty());
    let report = world.json(0, &["test", "--json", "note.test.yaml"]);
    assert_eq!((&report["ok"], &report["passed"]), (&json!(true), &json!(1)));
    assert_eq!(report["files"][0]["tests"][0]["status"], "success");
}

#[test]
fn what_is_not_as_expected_is_shown_with_its_line_and_a_difference() {
    let world = world(&TESTS.replace("content: hello", "content: goodbye"));
    let done = world.segue(&["test"]).exits(1);
    for part in [
        "FAIL  note.test.yaml · the second attempt is enough",
        "note.test.yaml:12: the call of `checkpoint_save` has other arguments",
        "-  \"content\": \"goodbye\"",
        "+  \"content\": \"hello\"",
        "0 passed, 1 failed",
    ] {
        assert!(done.stdout.contains(part), "{part}\n{}", done.stdout);
    }
    let report = world.json(1, &["test", "--json"]);
    let miss = &report["files"][0]["tests"][0]["misses"][0];
    assert_eq!((&miss["line"], &miss["actual"]), (&json!(12), &json!({ "content": "hello" })));
}

#[test]
fn a_file_that_is_wrong_is_shown_and_hides_no_other() {
    let world = world(&TESTS.replace("status", "state").replace("  expect:", "  expct:"));
    world.file("other/note.yaml", NOTE);
    world.file("other/note.test.yaml", TESTS);
    world.file("target/skipped.test.yaml", "tests: 1");
    let done = world.segue(&["test"]).exits(2);
    assert!(done.stdout.contains("BROKEN  note.test.yaml"), "{}", done.stdout);
    assert!(done.stdout.contains("1 passed, 0 failed, 1 file cannot be tested"), "{}", done.stdout);
    assert!(done.stderr.contains("did you mean `expect`?"), "{}", done.stderr);
    // Nothing to test is a mistake, too.
    world.segue(&["test", "--filter", "nothing", "other"]).exits(2);
    world.segue(&["test", "nowhere"]).exits(2);
}

#[test]
fn a_build_server_reads_the_report() {
    let broken =
        "  - name: a <wrong> & \"quoted\" one\n    strict: false\n    expect: { status: failed }\n";
    let world = world(&format!("{TESTS}{broken}    input: {{ text: x }}\n"));
    world.segue(&["test", "--junit", "report.xml"]).exits(1);
    let xml = fs::read_to_string(world.path("report.xml")).unwrap();
    for part in [
        "<testsuites name=\"segue\" tests=\"2\" failures=\"1\" errors=\"0\">",
        "<testsuite name=\"note.test.yaml\" tests=\"2\" failures=\"1\" errors=\"0\">",
        "name=\"a &lt;wrong&gt; &amp; &quot;quoted&quot; one\" file=\"note.test.yaml\" line=\"14\"",
        "<failure message=\"expected status `failed`, got `success`\">",
    ] {
        assert!(xml.contains(part), "{part}\n{xml}");
    }
}

/// A recorded run is replayed, and a changed composition fails the recorded test.
#[test]
fn a_recorded_run_is_a_test_that_passes_until_the_composition_changes() {
    let world = World::new();
    world.file("note.yaml", NOTE.replace("initial: 1h", "initial: 1ms"));
    let run = ["run", "note.yaml", "-i", "text=hello", "--record", "note.test.yaml"];
    let store = ["--store", "memory"];
    let done = world.segue(&[&store[..], &run[..]].concat()).exits(0);
    assert!(done.stderr.contains("wrote `note.test.yaml`"), "{}", done.stderr);
    let text = fs::read_to_string(world.path("note.test.yaml")).unwrap();
    assert!(text.contains("- error: failed as asked\n"), "{text}");
    assert!(text.contains("order: [save, check]"), "{text}");
    world.segue(&["test"]).exits(0);
    // It would be lost otherwise.
    let again = world.segue(&[&store[..], &run[..]].concat()).exits(2);
    assert!(again.stderr.contains("exists already"), "{}", again.stderr);
    world.file("note.yaml", NOTE.replace("'{{ input.text }}'", "'{{ input.text }}!'"));
    let changed = world.segue(&["test"]).exits(1);
    assert!(changed.stdout.contains("+  \"content\": \"hello!\""), "{}", changed.stdout);
    world.file("note.yaml", NOTE.replace("tool: fail", "tool: echo"));
    let changed = world.segue(&["test"]).exits(1);
    assert!(changed.stdout.contains("missing call of `builtin:fail`"), "{}", changed.stdout);
}

#[test]
fn failures_and_rollbacks_are_recorded() {
    let world = World::new();
    world.file("note.yaml", NOTE.replace("times: 1", "times: 5").replace("1h", "1ms"));
    let run = ["run", "note.yaml", "-i", "text=hello", "--record", "deep/failed.test.json"];
    fs::create_dir(world.path("deep")).unwrap();
    world.segue(&[&["--store", "memory"][..], &run[..]].concat()).exits(1);
    let text = fs::read_to_string(world.path("deep/failed.test.json")).unwrap();
    let test: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(test["composition"], "../note.yaml");
    let expect = &test["tests"][0]["expect"];
    assert_eq!(expect["status"], "rolled_back");
    assert_eq!(expect["rolled_back"], json!(["save"]));
    assert_eq!(expect["errors"], json!([{ "step": "check", "code": "retries-exhausted" }]));
    world.segue(&["test"]).exits(0);
}

/// What is sensitive is in no recorded test, and long texts are cut where nothing depends on them.
#[test]
fn what_is_recorded_is_discreet_and_short() {
    let world = World::new();
    let composition = "\
name: login
input: { type: object, required: [word], properties: { word: { type: string } } }
steps:
  - id: enter
    tool: echo
    parameters: { word: '{{ input.word }}', page: '{{ input.page }}' }
    sensitive: [/word]
output: { words: '{{ enter.page | length > 0 }}' }
";
    world.file("login.yaml", composition);
    let page = format!("page={}", "long ".repeat(1000));
    let run = ["run", "login.yaml", "-i", "word=swordfish", "-i", &page];
    let run = [&["--store", "memory"][..], &run[..], &["--record", "login.test.yaml"]].concat();
    world.segue(&run).exits(0);
    let text = fs::read_to_string(world.path("login.test.yaml")).unwrap();
    assert!(!text.contains("swordfish"), "{text}");
    assert!(text.contains("word: redacted") && text.contains("more characters"), "{text}");
    assert!(text.len() < 2_000, "{text}");
    world.segue(&["test"]).exits(0);
}

#[test]
fn a_name_that_no_test_has_is_refused_before_anything_runs() {
    let world = World::new();
    world.file("note.yaml", NOTE);
    let done = world.segue(&["run", "note.yaml", "--record", "note.yaml"]).exits(2);
    assert!(done.stderr.contains("must end in `.test.yaml`"), "{}", done.stderr);
    assert_eq!(fs::read_to_string(world.path("note.yaml")).unwrap(), NOTE);
}

/// Tests beside configured compositions are not taken for compositions.
#[test]
fn tests_are_no_compositions() {
    let world = world(TESTS);
    world.file("segue.yaml", "compositions: ['n*.yaml']\n");
    let done = world.segue(&["check"]).exits(0);
    assert!(done.stderr.contains("1 file checked"), "{}", done.stderr);
}

/// The examples that have tests pass them, each in its own folder.
#[test]
fn the_tests_of_the_examples_pass() {
    let is_test = |path: &std::path::Path| path.to_string_lossy().ends_with(".test.yaml");
    let files = files_below(&repository().join("examples"), &["yaml"]);
    let tests: Vec<_> = files.into_iter().filter(|file| is_test(file)).collect();
    assert!(tests.len() >= 4, "{tests:?}");
    for file in tests {
        let world = World::new();
        copy_folder(file.parent().unwrap(), &world.folder());
        world.segue(&["test"]).exits(0);
    }
}
