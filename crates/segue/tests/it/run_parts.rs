//! `segue run --until`, `--only` and `--mocks`.

use crate::support::{Json, World, json, step};

const CONFIG: &str = "\
commands:
  note: { argv: [sh, -c, 'cat >> notes.txt; echo >> notes.txt'], read_only: false }
tools: { 'command:note': { confirm: never } }
";

const PARTS: &str = "\
name: parts
steps:
  - { id: fetch, tool: echo, parameters: { n: 1 } }
  - { id: write, tool: 'command:note', parameters: { text: '{{ fetch.n }}' } }
  - { id: report, tool: echo, parameters: { text: 'n is {{ fetch.n }}' }, depends_on: [write] }
  - { id: aside, tool: 'command:note', parameters: { text: aside } }
output: '{{ report.text }}'
";

fn world() -> World {
    let world = World::with(PARTS);
    world.file("segue.yaml", CONFIG);
    world
}

fn notes(world: &World) -> usize {
    std::fs::read_to_string(world.path("notes.txt")).map_or(0, |text| text.lines().count())
}

fn origin<'a>(view: &'a Json, id: &str) -> &'a Json {
    &step(view, id)["origin"]
}

#[test]
fn a_part_of_a_file_runs() {
    let world = world();
    let view = world.run(0, &["--until", "fetch"]);
    assert_eq!((&view["part"], notes(&world)), (&json!({ "until": "fetch" }), 0), "{view}");
    assert_eq!((&view["output"], &view["success"]), (&json!(null), &json!(true)));
    let view = world.run(0, &["--until", "report"]);
    assert_eq!((&view["output"], notes(&world)), (&json!("n is 1"), 1), "{view}");
    // On the values of that run, without naming the file; the inputs are its own.
    let only = world.json(0, &["run", "--only", "report", "--run", "last", "--json"]);
    assert_eq!((&only["output"], notes(&world)), (&json!("n is 1"), 1), "{only}");
    assert_eq!(origin(&only, "write"), "reused");
    assert_eq!(only["part"]["run"], view["run_id"]);
    // For people: what did not run, and why.
    let shown = world.segue(&["run", "c.yaml", "--until", "fetch"]).exits(0);
    assert!(shown.stderr.contains("[write] skipped: it is not part of this run"), "{shown:?}");
}

/// What the page keeps in a test file is given; a file with nothing but `tools` will do.
#[test]
fn outputs_come_from_a_file() {
    let world = world();
    let tests = "composition: c.yaml\ntools:\n  write: { returns: null }\n  fetch: { returns: { n: 5 } }\ntests:\n  - { name: all }\n";
    world.file("c.test.yaml", tests);
    let view = world.run(0, &["--mocks", "c.test.yaml"]);
    assert_eq!((&view["output"], notes(&world)), (&json!("n is 5"), 1), "{view}");
    assert_eq!(view["part"], json!({ "pinned": ["fetch", "write"] }));
    world.file("mocks.json", r#"{ "tools": { "write": { "returns": 1 } } }"#);
    let view = world.run(0, &["--until", "report", "--mocks", "mocks.json"]);
    assert_eq!((&view["output"], notes(&world)), (&json!("n is 1"), 1), "{view}");
    assert_eq!(origin(&view, "write"), "pinned");
    // Tests know more than a run can take: nothing of it is passed over.
    let refused = |text: &str, says: &str| {
        world.file("mocks.yaml", text);
        let done = world.segue(&["run", "c.yaml", "--mocks", "mocks.yaml"]).exits(2);
        assert!(done.stderr.contains(says), "{says}: {}", done.stderr);
        assert_eq!(notes(&world), 1);
    };
    refused("tools: { write: { error: no } }\n", "`write` needs one answer that is a value");
    refused("tools: { write: [{ returns: 1 }, { returns: 2 }] }\n", "needs one answer");
    refused("tools: { write: { returns: 1, when: { text: x } } }\n", "needs one answer");
    refused("tools: { 'command:note': { returns: 1 } }\n", "there is no step `command:note`");
    refused("tools: { wriet: { returns: 1 } }\n", "did you mean `write`?");
    refused("tool: { write: { returns: 1 } }\n", "did you mean `tools`");
    let missing = world.segue(&["run", "c.yaml", "--mocks", "gone.yaml"]).exits(2);
    assert!(missing.stderr.contains("cannot be read"), "{}", missing.stderr);
}

/// A part that was killed continues as the same part.
#[test]
fn a_killed_part_stays_a_part() {
    let world = world();
    let mocks = r#"{ "tools": { "fetch": { "returns": { "n": 8 } } } }"#;
    world.file("mocks.json", mocks);
    let args = ["run", "c.yaml", "-q", "--until", "report", "--mocks", "mocks.json"];
    let killed = world.segue(&[&args[..], &["--inject", "crash-after=1"]].concat());
    assert_eq!((killed.code, notes(&world)), (None, 0), "{killed:?}");
    let assumed = ["resume", "last", "--assume", "failed", "--json"];
    let mut view = world.segue(&["resume", "last", "--json"]).json();
    if view["status"] == "waiting" {
        view = world.segue(&assumed).json();
    }
    assert_eq!(view["part"], json!({ "until": "report", "pinned": ["fetch"] }), "{view}");
    assert_eq!(origin(&view, "aside"), "left_out");
    assert_eq!(step(&view, "fetch")["output"], json!({ "n": 8 }));
    let written = std::fs::read_to_string(world.path("notes.txt")).unwrap_or_default();
    assert!(!written.contains("aside"), "{written}");
}

/// Combinations that mean nothing are refused with what to do.
#[test]
fn what_cannot_be_combined_is_refused() {
    let world = world();
    let refused = |args: &[&str], says: &str| {
        let done = world.segue(&[&["run", "c.yaml"], args].concat()).exits(2);
        assert!(done.stderr.contains(says), "{args:?}, {says}: {}", done.stderr);
    };
    refused(&["--until", "fetch", "--only", "report", "--run", "last"], "cannot be used with");
    refused(&["--only", "report"], "--run <RUN>");
    refused(&["--run", "last"], "--only <STEP>");
    refused(&["--until", "fetch", "--dry-run"], "cannot be used with");
    refused(&["--until", "fetch", "--record", "x.test.yaml"], "cannot be used with");
    refused(&["--from", "write", "--run", "last", "--until", "report"], "cannot be used with");
    refused(&["--until", "fetsch"], "did you mean `fetch`?");
    refused(&["--only", "report", "--run", "last"], "no run");
    assert_eq!(notes(&world), 0);
    let help = world.segue(&["run", "--help"]).exits(0).stdout;
    for option in ["A part of the composition", "--until <STEP>", "--only <STEP>", "--mocks <FILE>"]
    {
        assert!(help.contains(option), "{option}: {help}");
    }
}
