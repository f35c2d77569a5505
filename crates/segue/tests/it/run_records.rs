//! What the documents promise of the program as a whole: its phases, its records, its price.

use crate::support::{Done, Json, World, has_keys, json, step};

const FAILS: &str = "\
name: fails
error_handling: { rollback_on_failure: true }
input: { type: object, properties: { text: { type: string } } }
steps:
  - { id: keep, tool: checkpoint_save, parameters: { content: 'about {{ input.text }}' } }
  - { id: bad, tool: fail, parameters: { message: out of paper }, depends_on: keep }
";

/// The lines of a text that begin with one of these, in order.
fn lines<'a>(text: &'a str, heads: &[&str]) -> Vec<&'a str> {
    text.lines().filter(|line| heads.iter().any(|head| line.starts_with(head))).collect()
}

/// S0-45: validation, planning, execution, error handling and aggregation are reported in this
/// order.
#[test]
fn the_phases_of_a_run_are_printed() {
    let told = World::with(FAILS).segue(&["run", "c.yaml", "-v", "-i", "text=ink"]).exits(1).stderr;
    let heads =
        ["validated:", "planned:", "executes:", "handles an error:", "rolls back", "aggregates"];
    let phases = lines(&told, &heads);
    assert_eq!(phases.len(), heads.len(), "{told}");
    for (phase, head) in phases.iter().zip(heads) {
        assert!(phase.starts_with(head), "{told}");
    }
    assert!(phases[5].ends_with(": rolled_back"), "{told}");
    let terse = World::with(FAILS).segue(&["run", "c.yaml"]).exits(1).stderr;
    assert!(lines(&terse, &heads).is_empty(), "{terse}");
}

/// S4-27, S4-55: what a step was called with, as it is written and as it was resolved.
#[test]
fn raw_and_resolved_parameters_are_printed() {
    let told = World::with(FAILS).segue(&["run", "c.yaml", "-v", "-i", "text=ink"]).exits(1).stderr;
    let told = lines(&told, &["  written", "  given"]);
    assert_eq!(told[0], r#"  written {"content":"about {{ input.text }}"}"#);
    assert_eq!(told[1], r#"  given {"content":"about ink"}"#);
}

/// S4-06: every line of a trace has the id of the request.
#[test]
fn every_event_has_the_request() {
    let world = World::with(
        r#"{ "requestId": "req_1704123456_abc123def",
             "tools": [ { "name": "echo", "parameters": { "n": 1 } },
                        { "name": "sleep", "parameters": { "ms": "{{echo.n}}" }, "dependsOn": "echo" } ] }"#,
    );
    let told = world.segue(&["run", "c.yaml", "-o", "ndjson"]).exits(0).stdout;
    let events: Vec<Json> = told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events.len(), 5, "{told}");
    for event in &events {
        assert_eq!(event["request_id"], "req_1704123456_abc123def", "{event}");
    }
}

/// A world whose tool `mark` leaves a file behind.
fn marking(composition: &str) -> World {
    let world = World::with(composition);
    world.file(
        "segue.yaml",
        "commands: { mark: { argv: [touch, marked], read_only: true, output: {} } }\n",
    );
    world
}

fn with_config(world: &World, args: &[&str]) -> Done {
    world.segue(&[&["--config", "segue.yaml"], args].concat())
}

/// S0-19, S0-42, S0-46, S4-14, S4-53: what is wrong anywhere stops a document before its first call.
#[test]
fn a_composition_with_errors_calls_nothing() {
    let works = marking("name: x\nsteps: [{ id: a, tool: mark }]\n");
    with_config(&works, &["run", "c.yaml"]).exits(0);
    assert!(works.path("marked").exists());
    for wrong in [
        "name: x\nsteps:\n  - { id: a, tool: mark }\n  - { id: b, tool: nobody, depends_on: a }\n",
        "name: x\nsteps:\n  - { id: a, tool: mark }\n  - { id: b, tool: echo, depends_on: b }\n",
        "name: x\ndialect: chain\nsteps:\n  - { tool: mark, inputs: {} }\n  - { inputs: {} }\n",
        "name: x\nsteps:\n  - { id: a, tool_id: mark }\n  - { id: a, tool_id: echo }\n",
        "tools: [{ name: mark, parameters: {} }]\nexecutionOrder: [mark, nobody]\n",
        "tools:\n  - { name: mark, parameters: {} }\n  - { name: sleep, parameters: {}, dependsOn: mark }\n",
    ] {
        let world = marking(wrong);
        let view = with_config(&world, &["run", "c.yaml", "--json"]).exits(2).json();
        assert_eq!(view["errors"][0]["phase"], "check", "{wrong}{view:#}");
        assert_eq!(view["steps_executed"], 0, "{wrong}");
        assert!(!world.path("marked").exists(), "{wrong}");
    }
}

/// SX-02: whatever the dialect, each step says what it was, how it went, when, with what, and what
/// came of it; what is sensitive is not among it.
#[test]
fn every_dialect_leaves_the_same_records() {
    let composition = "name: x\nsteps:\n\
        \x20 - { id: a, tool: echo, parameters: { n: 1, key: hidden }, sensitive: [/key] }\n\
        \x20 - { id: b, tool: fail, parameters: { message: 'no {{ a.n }}' } }\n";
    let chain = "name: x\ndialect: chain\nsteps:\n\
        \x20 - { name: a, tool: echo, inputs: { n: 1, key: hidden }, sensitive: [/key], on_success: { map_outputs: { n: number } } }\n\
        \x20 - { name: b, tool: fail, inputs: { message: 'no {{ state.number }}' } }\n";
    let skill = "name: x\nsteps:\n\
        \x20 - { id: b, tool_id: fail, inputs: { message: 'no {{ a.n }}' } }\n\
        \x20 - { id: a, tool_id: echo, inputs: { n: 1 } }\n";
    let plan = "tools:\n  - { id: a, name: echo, parameters: { n: 1 } }\n\
        \x20 - { id: b, name: fail, parameters: { message: 'no {{a.n}}' }, dependsOn: a }\n";
    for (dialect, text) in
        [("composition", composition), ("chain", chain), ("skill", skill), ("plan", plan)]
    {
        let world = World::with(text);
        let view = world.run(1, &[]);
        assert_eq!(view["dialect"], dialect);
        let (a, b) = (step(&view, "a"), step(&view, "b"));
        for record in [a, b] {
            has_keys(record, "id tool status attempts started_at completed_at duration_ms input");
            assert_eq!(record["attempts"], 1, "{dialect}");
        }
        assert_eq!((&a["tool"], &a["status"]), (&json!("builtin:echo"), &json!("success")));
        assert_eq!(a["output"]["n"], 1, "{dialect}");
        assert_eq!((&b["tool"], &b["status"]), (&json!("builtin:fail"), &json!("failed")));
        assert_eq!(b["input"], json!({ "message": "no 1" }), "{dialect}");
        assert_eq!(b["error"]["code"], "tool-error", "{dialect}");
        let kept = world.json(0, &["runs", "show", "last", "--json"]);
        assert_eq!(kept["steps"], view["steps"], "{dialect}");
        if text.contains("sensitive") {
            assert!(!kept.to_string().contains("hidden"), "{dialect}");
        }
    }
}

/// S0-02: what the engine adds to the time of the tools, the best of five, with runs kept on disk.
#[test]
fn a_composition_costs_less_than_200_ms() {
    let seed = crate::support::repository().join("examples/search-fold-store/composition.json");
    let world = World::with(&std::fs::read_to_string(seed).unwrap());
    let overhead = || {
        let view = world.run(0, &["-i", "query=retry"]);
        let steps = view["steps"].as_array().unwrap();
        assert_eq!(steps.len(), 3);
        let inside: u64 = steps.iter().map(|step| step["duration_ms"].as_u64().unwrap()).sum();
        view["duration_ms"].as_u64().unwrap().saturating_sub(inside)
    };
    let best = (0..5).map(|_| overhead()).min().unwrap();
    assert!(best < 200, "{best} ms");
}
