//! Searching runs, running them again, comparing them.

use super::super::{one, served, world};
use super::{EXECUTE, run_as, served_to_two};
use crate::served::{Served, TOKEN};
use crate::support::{Json, json, step};

fn ids(list: &Json) -> Vec<&str> {
    list["runs"].as_array().unwrap().iter().map(|run| run["run_id"].as_str().unwrap()).collect()
}

/// Runs are found by name, id, tool, and text in inputs, outputs and failures, only the caller's own.
#[test]
fn runs_are_found_by_text() {
    let (_world, served) = served_to_two("memory");
    let hers = run_as(&served, "ada-token", &one("echo", &json!({ "order": "Invoice 17" })));
    let his = run_as(&served, "bob-token", &one("echo", &json!({ "order": "Invoice 18" })));
    let failing = one("fail", &json!({ "message": "out of paper" }));
    let failed = run_as(&served, "ada-token", &failing);
    let secret = json!({ "name": "hidden", "steps": [
        { "id": "a", "tool": "echo", "parameters": { "key": "hush-hush" }, "sensitive": ["/key"] }] });
    run_as(&served, "ada-token", &secret);
    let find = |token: &str, query: &str| {
        let answer =
            served.send_by(token, "GET", &format!("/api/v1/runs?{query}"), &[], &json!(null));
        answer.is(200)
    };
    assert_eq!(ids(&find(TOKEN, "text=invoice")), [&*his, &*hers], "newest first");
    assert_eq!(ids(&find("ada-token", "text=invoice")), [&*hers]);
    assert_eq!(ids(&find(TOKEN, "text=PAPER")), [&*failed]);
    assert_eq!(ids(&find(TOKEN, "tool=fail")), [&*failed]);
    assert_eq!(ids(&find(TOKEN, "text=builtin:fail")), [&*failed]);
    assert_eq!(ids(&find(TOKEN, &format!("text={}", &hers[20..]))), [&*hers]);
    assert_eq!(ids(&find(TOKEN, "text=invoice&tool=fail")), [""; 0]);
    assert_eq!(ids(&find(TOKEN, "text=hush-hush")), [""; 0], "a sensitive value is never found");
    let none = find("bob-token", "text=nowhere");
    assert_eq!((&none["searched"], &none["next"]), (&json!(1), &json!(null)));
    let first = find(TOKEN, "text=invoice&limit=1");
    let next = format!("text=invoice&limit=1&cursor={}", first["next"].as_str().unwrap());
    assert_eq!((ids(&first), ids(&find(TOKEN, &next))), (vec![&*his], vec![&*hers]));
}

/// The command line searches with the same request.
#[test]
fn the_command_line_finds_runs_by_text() {
    let world = world("");
    world.file(
        "c.yaml",
        "name: c\nsteps: [{ id: a, tool: echo, parameters: { x: '{{ input.x }}' } }]\n",
    );
    for x in ["needle", "straw", "straw"] {
        let given = format!("x={x}");
        world.segue(&["--store", "sqlite:s.db", "run", "c.yaml", "-q", "-i", &given]).exits(0);
    }
    let list = |args: &[&str]| {
        let all = [&["--store", "sqlite:s.db", "runs"], args, &["--json"]].concat();
        world.segue(&all).exits(0).json()["runs"].as_array().unwrap().len()
    };
    let found =
        [&["--text", "NEEDLE"][..], &["--text", "straw"], &["--tool", "echo"], &["--tool", "x"]];
    assert_eq!(found.map(list), [1, 2, 3, 0]);
    assert_eq!(list(&["--text", "straw", "--limit", "1"]), 1);
}

const TWO: &str = "\
name: two
input: { type: object, properties: { x: { type: integer, default: 1 } } }
steps:
  - { id: first, tool: 'command:note', parameters: { text: first } }
  - { id: second, tool: echo, parameters: { x: '{{ input.x }}' }, depends_on: [first] }
  - id: each
    loop: { over: '{{ range(2) }}', steps: [{ id: inner, tool: echo, parameters: { n: '{{ item }}' } }] }
output: '{{ second.x }}'
";

fn approved(served: &Served, token: &str, composition: &str) -> String {
    let body = json!({ "composition": composition, "options": { "approved": true } });
    let answer = served.send_by(token, "POST", EXECUTE, &[], &body);
    answer.is(200)["run_id"].as_str().unwrap().to_owned()
}

/// A run runs again from one of its steps with another input, and is compared with the first.
#[test]
fn a_run_runs_again_from_a_step() {
    let (world, served) = served_to_two("memory");
    let first = approved(&served, "ada-token", TWO);
    let rerun = |body: &Json| {
        let path = format!("/api/v1/runs/{first}/rerun");
        served.send_by("ada-token", "POST", &path, &[], body)
    };
    let again = rerun(&json!({ "from": "second", "input": { "x": 2 } })).is(200);
    assert_eq!(again["output"], 2, "{again}");
    let notes = || std::fs::read_to_string(world.path("notes.txt")).unwrap().lines().count();
    assert_eq!(notes(), 1, "the first step is not called again");
    let second = again["run_id"].as_str().unwrap();
    let get = |path: String| served.send_by("ada-token", "GET", &path, &[], &json!(null)).is(200);
    let view = get(format!("/api/v1/runs/{second}"));
    assert!(step(&view, "first")["reason"].as_str().unwrap().contains("reused"), "{view}");
    // The whole run: it asks again, and is the same run for the same key.
    let key = [("Idempotency-Key", "k")];
    let whole = |body: &Json| {
        let path = format!("/api/v1/runs/{first}/rerun");
        served.send_by("ada-token", "POST", &path, &key, body)
    };
    let waiting = whole(&json!(null)).is(202);
    assert_eq!((&waiting["status"], notes()), (&json!("waiting"), 1));
    assert_eq!(whole(&json!(null)).is(202)["run_id"], waiting["run_id"]);
    whole(&json!({ "from": "second" })).is_problem(422, "conflict");
    // What cannot be: steps inside others, steps that are not there, runs of others.
    let inside = rerun(&json!({ "from": "each[1]/inner" })).is_problem(422, "invalid-field");
    assert!(inside["detail"].as_str().unwrap().contains("start at `each`"), "{inside}");
    let near = rerun(&json!({ "from": "secnd" })).is_problem(422, "invalid-field");
    assert!(near["detail"].as_str().unwrap().contains("did you mean `second`"), "{near}");
    rerun(&json!({ "options": { "dry_run": true } })).is(200);
    let path = format!("/api/v1/runs/{first}/rerun");
    let foreign = served.send_by("bob-token", "POST", &path, &[], &json!({}));
    foreign.is_problem(404, "not-found");
    // Beside each other.
    let both = get(format!("/api/v1/runs/{first}/compare?with={second}"));
    assert_eq!((&both["same_plan"], &both["output"]), (&json!(true), &json!("differs")));
    let of = |id: &str| {
        let steps = both["steps"].as_array().unwrap();
        steps.iter().find(|step| step["id"] == id).unwrap().clone()
    };
    assert_eq!(of("first")["output"], "same");
    let difference = json!([
        { "part": "input", "pointer": "/x", "left": 1, "right": 2 },
        { "part": "output", "pointer": "/x", "left": 1, "right": 2 },
    ]);
    assert_eq!(of("second")["differences"], difference);
    let path = format!("/api/v1/runs/{first}/compare?with={second}");
    let foreign = served.send_by("bob-token", "GET", &path, &[], &json!(null));
    foreign.is_problem(404, "not-found");
}

/// A sensitive input is not stored: who runs the run again gives it again.
#[test]
fn a_sensitive_input_is_given_again() {
    let (_world, served) = served("");
    let text = "\
name: keyed
input: { type: object, required: [key], properties: { key: { type: string, writeOnly: true } } }
steps: [{ id: a, tool: echo, parameters: { length: '{{ input.key | length }}' } }]
";
    let body = json!({ "composition": text, "input": { "key": "hush-hush" } });
    let run_id = served.post(EXECUTE, &body).is(200)["run_id"].as_str().unwrap().to_owned();
    let path = format!("/api/v1/runs/{run_id}/rerun");
    let refused = served.post(&path, &json!({})).is_problem(422, "invalid-field");
    assert!(refused["detail"].as_str().unwrap().contains("give it again in `input`"), "{refused}");
    served.post(&path, &json!({ "input": { "key": "hush" } })).is(200);
}
