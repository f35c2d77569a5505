//! A server that drives nothing answers as one that does.

use super::{LONG, Machines};
use crate::support::{Json, json, until};

const UNDOABLE: &str =
    "tools: { note: { rollback: { tool: note, parameters: { step: undone } } } }\n";

fn composition(steps: &Json) -> Json {
    json!({ "composition": { "name": "c", "steps": steps } })
}

fn note(id: &str) -> Json {
    json!({ "id": id, "tool": "note", "parameters": { "step": id } })
}

/// A request that waits gets the end of a run that a worker drives; its events come while it goes on.
#[test]
fn a_request_waits_for_a_run_that_a_worker_drives() {
    let Some(machines) = Machines::new(2, LONG) else { return };
    let server = machines.server(0, &["--no-drive"]);
    let worker = machines.worker(1);
    let ended = server.post("/api/v1/compositions/execute", &composition(&json!([note("a")])));
    let view = ended.is(200);
    assert_eq!((&view["status"], &view["success"]), (&json!("success"), &json!(true)), "{view}");
    assert!(worker.said("claims a run"));
    let events = format!("/api/v1/runs/{}/events", view["run_id"].as_str().unwrap());
    let events = server.send("GET", &events, &[("Accept", "text/event-stream")], &json!(null));
    assert!(events.body.contains("run_finished") || events.body.contains("success"), "{events:?}");
}

/// The same key is the same run, through whichever server it comes.
#[test]
fn a_key_is_one_run_for_all_servers() {
    let Some(machines) = Machines::new(3, LONG) else { return };
    let servers = [machines.server(0, &["--no-drive"]), machines.server(1, &["--no-drive"])];
    let _worker = machines.worker(2);
    let body = composition(&json!([note("a")]));
    let key = [("Idempotency-Key", "once")];
    let send =
        |at: usize| servers[at].send("POST", "/api/v1/compositions/execute", &key, &body).is(200);
    let (first, second) = (send(0), send(1));
    assert_eq!(first["run_id"], second["run_id"]);
    assert_eq!((&second["status"], machines.calls()), (&json!("success"), vec!["a".to_owned()]));
}

/// A run that has ended is rolled back, and one that goes on is cancelled, by a worker.
#[test]
fn runs_are_rolled_back_and_cancelled_by_a_worker() {
    let Some(machines) = Machines::new(2, &format!("{LONG}{UNDOABLE}")) else { return };
    let server = machines.server(0, &["--no-drive"]);
    let _worker = machines.worker(1);
    let path = "/api/v1/compositions/execute";
    let ended = server.post(path, &composition(&json!([note("a")]))).is(200);
    let run = format!("/api/v1/runs/{}", ended["run_id"].as_str().unwrap());
    let undone = server.post(&format!("{run}/rollback"), &json!({})).is(200);
    assert_eq!(undone["status"], "rolled_back", "{undone}");
    assert_eq!(machines.calls(), ["a", "undone"]);
    let prefer = [("Prefer", "respond-async")];
    let waits = composition(&json!([{ "id": "a", "wait": "1h" }]));
    let started = server.send("POST", path, &prefer, &waits).is(202);
    let run_id = started["run_id"].as_str().unwrap().to_owned();
    until(|| machines.owner(&run_id));
    let run = format!("/api/v1/runs/{run_id}");
    let cancelled = server.post(&format!("{run}/cancel"), &json!({})).is(200);
    assert_eq!(cancelled["status"], "cancelled", "{cancelled}");
}

/// What a client wants is kept while no worker is alive, and is never lost.
#[test]
fn a_command_waits_for_a_worker() {
    let Some(machines) = Machines::new(2, LONG) else { return };
    let server = machines.server(0, &["--no-drive"]);
    let path = "/api/v1/compositions/execute";
    let prefer = [("Prefer", "respond-async, wait=0")];
    let started = server.send("POST", path, &prefer, &composition(&json!([note("a")]))).is(202);
    let run_id = started["run_id"].as_str().unwrap().to_owned();
    let shown = server.get(&format!("/api/v1/runs/{run_id}")).is(200);
    assert_eq!((&shown["status"], &shown["interrupted"]), (&json!("running"), &json!(false)));
    let cancel = format!("/api/v1/runs/{run_id}/cancel");
    let cancelled = server.send("POST", &cancel, &prefer, &json!({}));
    assert!(matches!(cancelled.status, 200 | 202), "{cancelled:?}");
    let _worker = machines.worker(1);
    machines.until_status(1, &run_id, "cancelled");
    assert!(machines.calls().is_empty(), "it was cancelled before it began");
}

/// A value that only this process has would be lost to a worker.
#[test]
fn a_sensitive_input_is_not_left_to_workers() {
    let Some(machines) = Machines::new(2, LONG) else { return };
    let server = machines.server(0, &["--no-drive"]);
    let composition = json!({ "name": "c", "input": { "type": "object", "properties": {
        "pin": { "type": "string", "writeOnly": true } } },
        "steps": [{ "id": "a", "tool": "echo", "parameters": { "pin": "{{ input.pin }}" } }] });
    let body = json!({ "composition": composition, "input": { "pin": "geheim-4711" } });
    let refused = server.post("/api/v1/compositions/execute", &body);
    let problem = refused.is_problem(422, "invalid-field");
    assert!(problem["detail"].as_str().unwrap().contains("`pin`"), "{problem}");
    assert!(machines.rows("SELECT FROM segue.run").is_empty(), "nothing was written");
    let drives = machines.server(1, &[]);
    let ended = drives.post("/api/v1/compositions/execute", &body).is(200);
    assert_eq!(ended["status"], "success", "{ended}");
}

/// A model calls a composition through MCP: the answer is the end of a run that a worker drives.
#[test]
fn a_tool_call_waits_for_a_worker() {
    let Some(machines) = Machines::new(2, LONG) else { return };
    for machine in 0..2 {
        let config = machines.world(machine).path("segue.yaml");
        let text = std::fs::read_to_string(&config).unwrap() + "compositions: c.yaml\n";
        machines.world(machine).file("segue.yaml", text);
        machines.world(machine).file(
            "c.yaml",
            "name: greet\nsteps: [{ id: a, tool: note, parameters: { step: mcp } }]\noutput: \"done\"\n",
        );
    }
    let server = machines.server(0, &["--no-drive"]);
    let worker = machines.worker(1);
    let session = server.mcp_session();
    let call = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call",
        "params": { "name": "greet", "arguments": {} } });
    let answer = server.mcp(Some(&session), &call);
    assert!(answer.body.contains("done"), "{answer:?}");
    assert_eq!(machines.calls(), ["mcp"]);
    assert!(worker.said("claims a run"), "{:?}", worker.lines());
}
