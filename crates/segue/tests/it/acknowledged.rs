//! Acknowledged means durable: on every surface, nothing that changes a run is answered before the store
//! has it, and a store that cannot take it is the answer.
//!
//! The matrix is surface × action. Each row is asked twice: once while the store holds its writes, when
//! no answer may come; once while the store refuses them, when the answer is an error and the store is
//! as it was.

mod gated;
#[cfg(unix)]
mod killed;

use std::sync::mpsc::{TryRecvError, channel};

use gated::{Place, Writes};

use crate::served::{Served, TOKEN};
use crate::support::{Json, json};

const QUICK: &str = "name: quick\nsteps: [ { id: a, tool: echo, parameters: { n: 1 } } ]\n";

/// Waits for a person, after a step that could be rolled back.
const ASK: &str = "\
name: ask
steps:
  - { id: a, tool: echo, parameters: { n: 1 } }
  - { id: ok, approve: { message: 'go on?' }, depends_on: [a] }
";

/// Stays in flight until it is cancelled.
const LONG: &str = "name: long\nsteps: [ { id: a, tool: sleep, parameters: { ms: 600000 } } ]\n";

/// Stops soon when the store cannot be written.
const SHORT: &str = "\
name: short
steps:
  - { id: a, tool: sleep, parameters: { ms: 200 } }
  - { id: b, tool: sleep, parameters: { ms: 600000 }, depends_on: [a] }
";

/// The response that a client received.
#[derive(Debug)]
struct Told {
    /// Whether it says that it was done, or will be.
    is_ok: bool,
    /// The run that it names.
    run_id: Option<String>,
    /// The code of the error, or its text.
    why: String,
}

impl Served {
    fn told_by_rest(&self, path: &str, headers: &[(&str, &str)], body: &Json) -> Told {
        let headers = [&[("Prefer", "respond-async")], headers].concat();
        let answer = self.send("POST", path, &headers, body);
        let body = answer.json();
        let is_ok = answer.status < 300;
        if !is_ok {
            assert_eq!(answer.headers.get("retry-after").map(String::as_str), Some("1"), "{body}");
            assert_eq!(answer.status, 503, "{body}");
        }
        let text = |name: &str| body[name].as_str().map(str::to_owned);
        Told { is_ok, run_id: text("run_id"), why: text("code").unwrap_or_default() }
    }

    fn told_by_graphql(&self, mutation: &str) -> Told {
        let body = json!({ "query": format!("mutation {{ x: {mutation} {{ runId }} }}") });
        let body = self.send("POST", "/graphql", &[], &body).is(200);
        let why = body["errors"][0]["extensions"]["code"].as_str().unwrap_or_default().to_owned();
        let run_id = body["data"]["x"]["runId"].as_str().map(str::to_owned);
        Told { is_ok: body.get("errors").is_none(), run_id, why }
    }

    /// What a method of MCP answers a client that knows tasks and can ask.
    fn mcp_method(&self, method: &str, mut params: Json) -> Json {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": { "name": "raw", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": {
                "extensions": { "io.modelcontextprotocol/tasks": {} },
                "elicitation": { "form": {} } },
        });
        let name = params["name"].as_str().or(params["taskId"].as_str()).unwrap_or("").to_owned();
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let headers =
            [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", method), ("Mcp-Name", &name)];
        let bearer = format!("Bearer {TOKEN}");
        let bearer = ("Authorization", &*bearer);
        let (_, body) = self.call(&[&headers[..], &[bearer]].concat(), &message);
        let data = body.lines().find_map(|line| line.strip_prefix("data: {"));
        let body = data.map_or(body.clone(), |rest| format!("{{{rest}"));
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"))
    }

    fn told_by_mcp(&self, method: &str, params: Json) -> Told {
        let answer = self.mcp_method(method, params);
        let result = &answer["result"];
        let is_ok = result.is_object() && result["isError"] != true;
        let run_id = result["taskId"].as_str().or(result["_meta"]["segue/runId"].as_str());
        let why = answer["error"]["message"].as_str().or(result["content"][0]["text"].as_str());
        let why = why.unwrap_or_default().to_owned();
        Told { is_ok, run_id: run_id.map(str::to_owned), why }
    }

    /// A run that waits for a person.
    fn waiting(&self) -> String {
        let began = self.post("/api/v1/compositions/execute", &json!({ "name": "ask" })).is(202);
        assert_eq!(began["status"], "waiting", "{began}");
        began["run_id"].as_str().unwrap().to_owned()
    }

    /// A run that is under way.
    fn under_way(&self, name: &str) -> String {
        let headers = [("Prefer", "respond-async")];
        let body = json!({ "name": name });
        let began = self.send("POST", "/api/v1/compositions/execute", &headers, &body).is(202);
        let run_id = began["run_id"].as_str().unwrap().to_owned();
        loop {
            let answer = self.get(&format!("/api/v1/runs/{run_id}"));
            if answer.status == 200 && answer.json()["steps"][0]["status"] == "running" {
                return run_id;
            }
        }
    }

    /// A run whose host is asked something, and waits for the answer.
    fn asked(&self) -> String {
        let call = json!({ "name": "ask", "arguments": {} });
        let asked = self.mcp_method("tools/call", call)["result"].clone();
        if asked["resultType"] != "task" {
            assert!(asked["requestState"].is_string(), "{asked}");
            let runs = self.get("/api/v1/runs?limit=1").is(200);
            return runs["runs"][0]["run_id"].as_str().unwrap().to_owned();
        }
        // It took longer than the host waits.
        loop {
            let params = json!({ "taskId": asked["taskId"] });
            let task = self.mcp_method("tasks/get", params)["result"].clone();
            if task["status"] == "input_required" {
                return asked["taskId"].as_str().unwrap().to_owned();
            }
        }
    }
}

/// One row: its precondition, and the request.
struct Row {
    name: &'static str,
    /// The run that it is about; none begins one.
    of: Option<fn(&Place) -> String>,
    ask: fn(&Served, &str) -> Told,
}

const EXECUTE: &str = "/api/v1/compositions/execute";

fn waiting(place: &Place) -> String {
    place.served.waiting()
}

fn under_way(place: &Place) -> String {
    place.served.under_way("long")
}

fn asked(place: &Place) -> String {
    place.served.asked()
}

/// A run that stopped because its store could not be written.
fn interrupted(place: &Place) -> String {
    let run_id = place.served.under_way("short");
    place.store.set(Writes::Fail);
    while !place.is_left(&run_id) {
        std::thread::yield_now();
    }
    place.store.set(Writes::Pass);
    run_id
}

fn rest(served: &Served, run_id: &str, action: &str, body: &Json) -> Told {
    served.told_by_rest(&format!("/api/v1/runs/{run_id}/{action}"), &[], body)
}

fn answered(served: &Served, run_id: &str, reply: &Json) -> Told {
    let params = json!({ "taskId": run_id, "inputResponses": { "ok": reply } });
    served.told_by_mcp("tasks/update", params)
}

const ROWS: &[Row] = &[
    Row {
        name: "REST start",
        of: None,
        ask: |served, _| served.told_by_rest(EXECUTE, &[], &json!({ "name": "quick" })),
    },
    Row {
        name: "REST start of what is sent",
        of: None,
        ask: |served, _| {
            let sent = json!({ "composition": { "name": "one", "steps": [
                { "id": "a", "tool": "echo", "parameters": {} }] } });
            served.told_by_rest(EXECUTE, &[], &sent)
        },
    },
    Row {
        name: "REST start with a key",
        of: None,
        ask: |served, _| {
            let key = [("Idempotency-Key", "k1")];
            served.told_by_rest(EXECUTE, &key, &json!({ "name": "quick" }))
        },
    },
    Row {
        name: "REST approve",
        of: Some(waiting),
        ask: |served, id| rest(served, id, "approve", &json!({ "approved": true })),
    },
    Row {
        name: "REST deny",
        of: Some(waiting),
        ask: |served, id| rest(served, id, "approve", &json!({ "approved": false })),
    },
    Row {
        name: "REST cancel",
        of: Some(waiting),
        ask: |served, id| rest(served, id, "cancel", &json!(null)),
    },
    Row {
        name: "REST cancel under way",
        of: Some(under_way),
        ask: |served, id| rest(served, id, "cancel", &json!(null)),
    },
    Row {
        name: "REST resume",
        of: Some(interrupted),
        ask: |served, id| rest(served, id, "resume", &json!({})),
    },
    Row {
        name: "REST rollback",
        of: Some(waiting),
        ask: |served, id| rest(served, id, "rollback", &json!(null)),
    },
    Row {
        name: "REST rollback under way",
        of: Some(under_way),
        ask: |served, id| rest(served, id, "rollback", &json!(null)),
    },
    Row {
        name: "REST approve while a host is asked",
        of: Some(asked),
        ask: |served, id| rest(served, id, "approve", &json!({ "approved": true })),
    },
    Row {
        name: "GraphQL start",
        of: None,
        ask: |served, _| {
            let start = r#"executeComposition(request: { name: "quick" }, respondAsync: true)"#;
            served.told_by_graphql(start)
        },
    },
    Row {
        name: "GraphQL start with a key",
        of: None,
        ask: |served, _| {
            let start = r#"executeComposition(request: { name: "quick" }, idempotencyKey: "k2", respondAsync: true)"#;
            served.told_by_graphql(start)
        },
    },
    Row {
        name: "GraphQL approve",
        of: Some(waiting),
        ask: |served, id| {
            let text = format!(r#"approveRun(runId: "{id}", approved: true, respondAsync: true)"#);
            served.told_by_graphql(&text)
        },
    },
    Row {
        name: "GraphQL deny",
        of: Some(waiting),
        ask: |served, id| {
            let text = format!(r#"approveRun(runId: "{id}", approved: false, respondAsync: true)"#);
            served.told_by_graphql(&text)
        },
    },
    Row {
        name: "GraphQL cancel",
        of: Some(under_way),
        ask: |served, id| {
            served.told_by_graphql(&format!(r#"cancelRun(runId: "{id}", respondAsync: true)"#))
        },
    },
    Row {
        name: "GraphQL resume",
        of: Some(interrupted),
        ask: |served, id| {
            served.told_by_graphql(&format!(r#"resumeRun(runId: "{id}", respondAsync: true)"#))
        },
    },
    Row {
        name: "GraphQL rollback",
        of: Some(waiting),
        ask: |served, id| {
            served.told_by_graphql(&format!(r#"rollbackRun(runId: "{id}", respondAsync: true)"#))
        },
    },
    Row {
        name: "MCP call with task",
        of: None,
        ask: |served, _| {
            let call = json!({ "name": "quick", "arguments": {} });
            served.told_by_mcp("tools/call", call)
        },
    },
    Row {
        name: "MCP task approved",
        of: Some(waiting),
        ask: |served, id| answered(served, id, &json!({ "action": "accept", "content": {} })),
    },
    Row {
        name: "MCP task denied",
        of: Some(waiting),
        ask: |served, id| answered(served, id, &json!({ "action": "decline" })),
    },
    Row {
        name: "MCP task approved while it is under way",
        of: Some(asked),
        ask: |served, id| answered(served, id, &json!({ "action": "accept", "content": {} })),
    },
    Row {
        name: "MCP task cancelled",
        of: Some(waiting),
        ask: |served, id| served.told_by_mcp("tasks/cancel", json!({ "taskId": id })),
    },
    Row {
        name: "MCP task cancelled under way",
        of: Some(under_way),
        ask: |served, id| served.told_by_mcp("tasks/cancel", json!({ "taskId": id })),
    },
];

fn place() -> Place {
    Place::new(&[QUICK, ASK, LONG, SHORT])
}

/// Round trips after which an answer that was sent would have arrived.
const ROUNDS: usize = 50;

/// S0-93: no answer comes while the store holds the write, and what is answered then is in the store.
#[test]
fn nothing_is_acknowledged_before_it_is_durable() {
    let mut wrong = Vec::new();
    for row in ROWS {
        let place = place();
        let run_id = row.of.map(|of| of(&place));
        let before = run_id.as_ref().and_then(|run_id| place.written(run_id));
        place.store.set(Writes::Wait);
        let (to, from) = channel();
        let (address, ask, id) = (place.served.address.clone(), row.ask, run_id.clone());
        let asking = std::thread::spawn(move || {
            let told = ask(&Served::at(address), &id.unwrap_or_default());
            let _ = to.send(told);
        });
        let mut early = None;
        let mut rounds = 0;
        while early.is_none() && rounds < ROUNDS {
            rounds += usize::from(place.store.held() > 0);
            assert_eq!(place.served.ask("GET", "/healthz", &[], "").status, 200);
            match from.try_recv() {
                Ok(told) => early = Some(told),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => panic!("{}: no answer", row.name),
            }
        }
        if let Some(told) = early {
            wrong.push(format!("{}: answered before it was written: {told:?}", row.name));
            continue;
        }
        place.store.set(Writes::Pass);
        let told = from.recv().unwrap();
        asking.join().unwrap();
        let named = run_id.or(told.run_id.clone()).unwrap_or_else(|| latest(&place));
        let after = place.written(&named);
        if !told.is_ok || after.is_none() || after <= before {
            wrong.push(format!("{}: {told:?}, entries {before:?} → {after:?}", row.name));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), ROWS.len(), wrong.join("\n"));
}

/// The run that began last.
fn latest(place: &Place) -> String {
    let runs = place.served.get("/api/v1/runs?limit=1").is(200);
    runs["runs"][0]["run_id"].as_str().unwrap_or_default().to_owned()
}

/// A store that cannot be written is the answer, everywhere, and nothing has happened. Once it can be
/// written, the same request does what it asks for.
#[test]
fn a_store_that_cannot_be_written_is_the_answer() {
    let mut wrong = Vec::new();
    for row in ROWS {
        let place = place();
        let run_id = row.of.map(|of| of(&place));
        let before = run_id.as_ref().and_then(|run_id| place.written(run_id));
        place.store.set(Writes::Fail);
        let told = (row.ask)(&place.served, run_id.as_deref().unwrap_or(""));
        let named = run_id.clone().or(told.run_id.clone()).unwrap_or_default();
        let after = place.written(&named);
        if told.is_ok || told.why.is_empty() || after != before {
            wrong.push(format!("{}: {told:?}, entries {before:?} → {after:?}", row.name));
        }
        place.store.set(Writes::Pass);
        let told = (row.ask)(&place.served, run_id.as_deref().unwrap_or(""));
        let named = run_id.or(told.run_id.clone()).unwrap_or_else(|| latest(&place));
        let after = place.written(&named);
        if !told.is_ok || after.is_none() || after <= before {
            wrong.push(format!("{} again: {told:?}, {before:?} → {after:?}", row.name));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), ROWS.len(), wrong.join("\n"));
}

/// A panic while a request is worked on is an answer of that request, on every surface, and nothing else.
/// A panic of a run ends that run alone.
#[test]
fn a_panic_is_an_answer() {
    let place = place();
    let served = &place.served;
    place.store.set_panics(true);
    served.get("/api/v1/runs").is_problem(500, "internal");
    served.get("/api/v1/runs/x").is_problem(500, "internal");
    served.post("/api/v1/runs/x/cancel", &json!(null)).is_problem(500, "internal");
    let query = json!({ "query": "{ runs { next } }" });
    let answer = served.send("POST", "/graphql", &[], &query).is(200);
    assert_eq!(answer["errors"][0]["extensions"]["code"], "internal", "{answer}");
    let get = json!({ "name": "run_get", "arguments": { "run_id": "x" } });
    assert_eq!(served.mcp_method("tools/call", get)["error"]["code"], -32603);
    let task = json!({ "taskId": "x" });
    assert_eq!(served.mcp_method("tasks/get", task.clone())["error"]["code"], -32603);
    assert_eq!(served.mcp_method("tasks/cancel", task)["error"]["code"], -32603);
    place.store.set_panics(false);
    place.store.set(Writes::Panic);
    let told = served.told_by_rest(EXECUTE, &[], &json!({ "name": "quick" }));
    assert!(!told.is_ok, "{told:?}");
    place.store.set(Writes::Pass);
    assert!(served.told_by_rest(EXECUTE, &[], &json!({ "name": "quick" })).is_ok);
    assert_eq!(served.get("/api/v1/runs").is(200)["runs"].as_array().unwrap().len(), 1);
}

/// A server whose store cannot be written says that it is not ready.
#[test]
fn readiness_tries_a_write() {
    let place = place();
    place.store.set(Writes::Fail);
    let answer = place.served.get("/readyz");
    answer.is_problem(503, "unreachable");
    assert_eq!(answer.headers["retry-after"], "1");
    assert_eq!(place.served.get("/healthz").status, 200);
    place.store.set(Writes::Pass);
    while place.served.get("/readyz").status != 200 {}
}
