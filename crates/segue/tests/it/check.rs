//! `segue check`: the findings of the corpus through the program, as JSON and as a person sees them.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{Json, World, corpus, has_keys, json, keys};

/// Codes that do not depend on which tools there are.
const STRUCTURAL: &[&str] =
    &["parse", "invalid-field", "duplicate-key", "duplicate-id", "no-steps", "cycle"];

fn cases(part: &str) -> Vec<PathBuf> {
    let folder = corpus().join("check").join(part);
    let mut cases: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    cases.sort();
    cases
}

fn composition_of(case: &Path) -> PathBuf {
    let yaml = case.join("composition.yaml");
    if yaml.exists() { yaml } else { case.join("composition.json") }
}

/// `severity code line:column` of every finding that a case expects.
fn expected(case: &Path) -> Vec<String> {
    let text = fs::read_to_string(case.join("expected.txt")).unwrap();
    text.lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .map(|line| line.splitn(4, ' ').take(3).collect::<Vec<_>>().join(" "))
        .collect()
}

fn found(finding: &Json) -> String {
    let word = |key: &str| finding[key].as_str().unwrap().to_owned();
    format!("{} {} {}:{}", word("severity"), word("code"), finding["line"], finding["column"])
}

#[test]
fn the_structural_mistakes_of_the_corpus_are_found_through_the_program() {
    let world = World::new();
    let is_structural =
        |line: &String| STRUCTURAL.contains(&line.split(' ').nth(1).unwrap_or_default());
    let broken: Vec<PathBuf> = cases("broken")
        .into_iter()
        .filter(|case| expected(case).iter().all(is_structural))
        .collect();
    assert!(broken.len() > 40, "only {}", broken.len());
    let files: Vec<String> =
        broken.iter().map(|case| composition_of(case).display().to_string()).collect();
    let mut args = vec!["check", "--json"];
    args.extend(files.iter().map(String::as_str));
    let report = world.json(2, &args);
    assert_eq!(report["ok"], false);
    let findings = report["diagnostics"].as_array().unwrap();
    for (case, file) in broken.iter().zip(&files) {
        let here: Vec<String> =
            findings.iter().filter(|f| f["file"] == file.as_str()).map(found).collect();
        for line in expected(case) {
            assert!(here.contains(&line), "{file}: no {line:?} in {here:#?}");
        }
    }
}

#[test]
fn a_finding_has_exactly_these_keys() {
    let world =
        World::with("name: x\nsteps:\n  - id: a\n    tool: ehco\n    parameters: { a: 1 }\n");
    let report = world.json(2, &["check", "c.yaml", "--json"]);
    assert_eq!(keys(&report), ["ok", "diagnostics"]);
    assert_eq!(
        report["diagnostics"],
        json!([{
            "code": "unknown-tool",
            "severity": "error",
            "message": "Tool not found in registry: ehco",
            "file": "c.yaml",
            "line": 4,
            "column": 11,
            "end_line": 4,
            "end_column": 15,
            "help": "did you mean `echo`?",
            "url": "docs/errors/unknown-tool.md",
        }])
    );
    has_keys(
        &report["diagnostics"][0],
        "code severity message file line column end_line end_column",
    );
}

#[test]
fn several_files_are_checked_at_once_and_one_bad_one_is_enough() {
    let world = World::new();
    world.file("good.yaml", "name: good\nsteps: [ { id: a, tool: echo } ]\n");
    world.file("bad.yaml", "name: bad\nsteps: []\n");
    world.file("worse.json", "{\"name\": \"worse\",}");
    world.file(
        "hint.yaml",
        "name: hint\nsteps: [ { id: a, tool: echo, output_key: k } ]\noutput: 1\n",
    );
    let report = world.json(2, &["check", "--json", "good.yaml", "bad.yaml", "worse.json"]);
    let seen: Vec<String> = report["diagnostics"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| format!("{} {}", f["file"].as_str().unwrap(), f["code"].as_str().unwrap()))
        .collect();
    assert_eq!(seen, ["bad.yaml no-steps", "worse.json parse"]);
    let said = world.segue(&["check", "good.yaml", "bad.yaml", "worse.json"]).exits(2).stderr;
    assert!(said.contains("3 files checked: 2 errors"), "{said}");
    // A hint is no reason to refuse.
    let hinted = world.json(0, &["check", "--json", "good.yaml", "hint.yaml"]);
    assert_eq!(hinted["ok"], true);
    assert_eq!(hinted["diagnostics"][0]["severity"], "hint");
}

/// `check compositions/*.yaml` also names the tests beside the compositions.
#[test]
fn a_test_file_is_checked_as_a_test() {
    let world = World::new();
    world.file("good.yaml", "name: good\nsteps: [ { id: a, tool: echo } ]\n");
    world.file("good.test.yaml", "tests: [ { name: it runs, expect: { status: success } } ]\n");
    let report = world.json(0, &["check", "--json", "good.yaml", "good.test.yaml"]);
    assert_eq!(report, json!({ "ok": true, "diagnostics": [] }));
    world.file("good.test.yaml", "tests: [ { name: it runs, expct: { status: success } } ]\n");
    let report = world.json(2, &["check", "--json", "good.test.yaml"]);
    assert_eq!(report["diagnostics"][0]["code"], "invalid-field");
    assert_eq!(report["diagnostics"][0]["file"], "good.test.yaml");
}

#[test]
fn a_file_that_cannot_be_read_does_not_hide_the_findings_of_others() {
    let world = World::new();
    world.file("bad.yaml", "name: bad\nsteps: []\n");
    let done = world.segue(&["check", "nowhere.yaml", "bad.yaml"]).exits(2);
    assert!(done.stderr.contains("nowhere.yaml"), "{}", done.stderr);
    assert!(done.stderr.contains("error[no-steps]"), "{}", done.stderr);
    let report = world.json(2, &["check", "--json", "nowhere.yaml", "bad.yaml"]);
    assert_eq!(report["ok"], false);
}

#[test]
fn correct_compositions_are_ok() {
    let world = World::new();
    let correct: Vec<String> = [
        "every-top-level-field",
        "input-as-a-list-of-parameters",
        "kind-wait-forms",
        "seed-search-fold-store",
        "seed-three-ways-to-say-it",
    ]
    .iter()
    .map(|name| corpus().join("check/correct").join(name))
    .map(|case| composition_of(&case).display().to_string())
    .collect();
    let mut args = vec!["check", "--json"];
    args.extend(correct.iter().map(String::as_str));
    assert_eq!(world.json(0, &args), json!({ "ok": true, "diagnostics": [] }));
    args.remove(1);
    let said = world.segue(&args).exits(0);
    assert_eq!((&*said.stdout, &*said.stderr), ("", "5 files checked, nothing found\n"));
}

#[test]
fn guards_of_the_configuration_hold() {
    let steps = |count: usize| {
        let each = (0..count).map(|n| format!("  - {{ id: s{n}, tool: echo }}\n"));
        format!("name: x\nsteps:\n{}", each.collect::<String>())
    };
    let world = World::with(&steps(3));
    world.file("segue.yaml", "limits: { steps_max: 2 }\n");
    let report = world.json(2, &["check", "c.yaml", "--json"]);
    assert_eq!(report["diagnostics"][0]["code"], "max-steps-exceeded");
    world.file("c.yaml", steps(2));
    world.segue(&["check", "c.yaml"]).exits(0);
}

#[test]
fn dialects_that_cannot_be_read_yet_say_so() {
    let text = "name: x\ncomposedOf: [echo]\n";
    let report = World::with(text).json(2, &["check", "c.yaml", "--json"]);
    assert_eq!(report["diagnostics"][0]["code"], "unsupported");
}

#[test]
fn checking_calls_nothing() {
    let world = World::with(
        "name: x\nsteps: [ { id: a, tool: files_write, parameters: { path: a.txt, content: x } } ]\n",
    );
    world.segue(&["check", "c.yaml"]).exits(0);
    assert!(!world.path("a.txt").exists());
}

#[test]
fn findings_are_drawn_with_their_place_and_what_to_do() {
    let world = World::with("name: x\nsteps:\n  - id: a\n    tool: ehco\n");
    let drawn = world.segue(&["check", "c.yaml"]).exits(2);
    assert_eq!(drawn.stdout, "");
    for part in ["error[unknown-tool]", "c.yaml:4:11", "4 |     tool: ehco", "^^^^", "help:"] {
        assert!(drawn.stderr.contains(part), "no {part:?} in\n{}", drawn.stderr);
    }
    assert!(!drawn.stderr.contains('\u{1b}'));
}

#[test]
fn a_shop_order_full_of_mistakes() {
    let world = World::with(
        "name: Order\nsteps:\n  - id: find\n    tool: checkpoint_search\n    parameters: { query: 7, topk: 3 }\n\
         \x20 - id: fold\n    tool: context_fold\n    parameters: { content: \"{{ find.contnet }}\" }\n\
         \x20   when: \"{{ find.count }}\"\n  - id: fold\n    tool: echo\n    depend_on: [find, flod]\n",
    );
    insta::assert_snapshot!(world.segue(&["check", "c.yaml"]).exits(2).stderr);
}

#[test]
fn a_circle_and_text_beyond_ascii() {
    let world = World::with(
        "name: circle\ndescription: größer, 漢字 and 🦀\nsteps:\n\
         \x20 - { id: ä, tool: echo, parameters: { 漢字: \"🦀 {{ b.text | uper }}\" } }\n\
         \x20 - { id: a, tool: echo, parameters: { text: \"{{ b.text }}\" } }\n\
         \x20 - { id: b, tool: echo, parameters: { text: \"{{ a.text }}\" } }\n",
    );
    insta::assert_snapshot!(world.segue(&["check", "c.yaml"]).exits(2).stderr);
}
