//! Runs over REST: following, answering and cancelling them, and disconnecting in between.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;

use super::{one, served, world};
use crate::served::{Served, TOKEN};
use crate::support::{Json, json, repository, until};

const EXECUTE: &str = "/api/v1/compositions/execute";
const ASYNC: [(&str, &str); 1] = [("Prefer", "respond-async")];

fn begin(served: &Served, composition: &Json) -> String {
    let answer = served.send("POST", EXECUTE, &ASYNC, &json!({ "composition": composition }));
    let run_id = answer.is(202)["run_id"].as_str().unwrap().to_owned();
    assert_eq!(answer.headers["location"], format!("/api/v1/runs/{run_id}"));
    run_id
}

/// Follows a run; `Last-Event-ID` says from where.
fn follow(served: &Served, run_id: &str, last: Option<&str>) -> impl Iterator<Item = Event> {
    let bearer = format!("Bearer {TOKEN}");
    let mut headers = vec![("Authorization", &*bearer)];
    headers.extend(last.map(|last| ("Last-Event-ID", last)));
    let mut stream = served.connect();
    let request = served.request("GET", &format!("/api/v1/runs/{run_id}/events"), &headers, "");
    stream.write_all(request.as_bytes()).unwrap();
    events(stream)
}

#[derive(Debug, PartialEq)]
struct Event {
    id: u64,
    kind: String,
    data: Json,
}

fn events(stream: TcpStream) -> impl Iterator<Item = Event> {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let mut id = 0;
    let mut kind = String::new();
    std::iter::from_fn(move || {
        loop {
            let line = lines.next()?;
            if let Some(text) = line.strip_prefix("id: ") {
                id = text.parse().unwrap();
            } else if let Some(text) = line.strip_prefix("event: ") {
                text.clone_into(&mut kind);
            } else if let Some(text) = line.strip_prefix("data: ") {
                let data = serde_json::from_str(text).unwrap();
                return Some(Event { id, kind: kind.clone(), data });
            }
        }
    })
}

/// Followers receive the lines of `-o ndjson`, each once, also when they reconnect.
#[test]
fn a_run_is_followed() {
    let (world, served) = served("");
    let text = "\
name: followed
steps:
  - { id: a, tool: echo, parameters: { x: 1 } }
  - { id: b, tool: sleep, parameters: { ms: 300 }, depends_on: [a] }
  - { id: c, tool: fail, parameters: { times: 1 }, retry_count: 1, depends_on: [b] }
";
    let run_id = begin(&served, &json!(text));
    let heard: Vec<Event> = follow(&served, &run_id, None).collect();
    let (last, steps) = heard.split_last().unwrap();
    assert_eq!((&*last.kind, &last.data["status"]), ("run", &json!("success")));
    assert_eq!(last.data["run_id"], run_id);
    assert!(
        steps.iter().all(|step| step.data["seq"] == step.id && step.data["event"] == step.kind)
    );
    assert!(heard.windows(2).all(|pair| pair[0].id < pair[1].id), "{heard:?}");
    // The same as at the command line, but for times.
    world.file("c.yaml", text);
    let printed =
        world.segue(&["--store", "memory", "run", "c.yaml", "-o", "ndjson"]).exits(0).stdout;
    let printed: Vec<Json> =
        printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told = |line: &Json| json!([line["event"], line["step"], line["seq"]]);
    let said: Vec<Json> = steps.iter().map(|step| told(&step.data)).collect();
    assert_eq!(said, printed[..printed.len() - 1].iter().map(told).collect::<Vec<_>>());
    // From every place on, the rest and nothing else.
    for (at, event) in heard.iter().enumerate() {
        let rest: Vec<Event> = follow(&served, &run_id, Some(&event.id.to_string())).collect();
        assert_eq!(rest, heard[at + 1..], "after {}", event.id);
    }
    let end = last.id.to_string();
    let path = format!("/api/v1/runs/{run_id}/events");
    assert_eq!(served.send("GET", &path, &[("Last-Event-ID", &end)], &json!(null)).status, 204);
    served
        .send("GET", &path, &[("Last-Event-ID", "x")], &json!(null))
        .is_problem(400, "invalid-field");
    served.get("/api/v1/runs/none/events").is_problem(404, "not-found");
}

/// A3: the approved arguments are the ones called, also when a value is stored nowhere; and the
/// approver does not see that value.
#[test]
fn what_is_allowed_is_called_with_its_sensitive_value() {
    let (_world, served) = served("");
    let text = "\
name: c
steps:
  - { id: save, tool: checkpoint_save, parameters: { content: kept }, sensitive: [/id] }
  - { id: delete, tool: checkpoint_delete, parameters: { id: '{{ save.id }}' } }
";
    let answer = served.send("POST", EXECUTE, &[], &json!({ "composition": text }));
    let waiting = answer.is(202);
    assert_eq!(waiting["waiting_for"][0]["args"], json!({ "id": "«sensitive»" }), "{waiting}");
    let path = format!("/api/v1/runs/{}/approve", waiting["run_id"].as_str().unwrap());
    let done = served.send("POST", &path, &[], &json!({ "approved": true }));
    let done = done.is(200);
    assert_eq!(
        (&done["status"], &done["output"]["delete"]["deleted"]),
        (&json!("success"), &json!(true)),
        "{done}"
    );
}

/// Followers receive a server's progress; a follower that reconnects later does not.
#[test]
fn progress_of_a_call_is_followed() {
    let script = repository().join("crates/segue-runtime/tests/fixtures/mcp/hostile.py");
    let server = json!({ "command": "python3", "args": [script, "tells_progress"] });
    let more = format!("mcpServers: {{ h: {server} }}\n");
    let more =
        more + "tools: { 'command:note': { destructive: true }, 'h:t': { confirm: never } }\n";
    let world = world("");
    let config = std::fs::read_to_string(world.path("segue.yaml")).unwrap();
    let own = "tools: { 'command:note': { destructive: true } }\n";
    world.file("segue.yaml", config.replace(own, &more));
    let served = Served::start(&world, "memory", &[]);
    let text =
        "name: c\nsteps: [{ id: w, wait: 300ms }, { id: a, tool: 'h:t', depends_on: [w] }]\n";
    let run_id = begin(&served, &json!(text));
    let heard: Vec<Event> = follow(&served, &run_id, None).collect();
    let told: Vec<&Event> = heard.iter().filter(|event| event.kind == "step_progress").collect();
    assert!(told.len() >= 2, "{heard:?}");
    assert_eq!(told[0].data["detail"], "1 of 4: part 1");
    // They have no number: a follower that reconnects asks for everything after an entry.
    assert_eq!(told[0].data["seq"], told[0].id);
    let again: Vec<Event> = follow(&served, &run_id, None).collect();
    let lasting = heard.into_iter().filter(|event| event.kind != "step_progress");
    assert_eq!(again, lasting.collect::<Vec<_>>());
}

/// A follower that joins late, leaves and reconnects has received each event once.
#[test]
fn a_follower_comes_back_in_the_middle() {
    let (_world, served) = served("");
    let steps: Vec<Json> = (0..6)
        .map(|n| json!({ "id": format!("s{n}"), "tool": "sleep", "parameters": { "ms": 40 } }))
        .collect();
    let run_id = begin(&served, &json!({ "name": "long", "max_concurrency": 1, "steps": steps }));
    let mut heard: Vec<Event> = Vec::new();
    while heard.last().is_none_or(|event| event.kind != "run") {
        let last = heard.last().map(|event| event.id.to_string());
        heard.extend(follow(&served, &run_id, last.as_deref()).take(3));
    }
    let whole: Vec<Event> = follow(&served, &run_id, None).collect();
    assert_eq!(heard, whole);
    assert_eq!(whole.iter().filter(|event| event.kind == "step_succeeded").count(), 6);
}

/// A call that asks leaves the run waiting; an approval lets it go on, a denial does not.
#[test]
fn a_run_waits_for_an_approval() {
    let (world, served) = served("");
    let note = json!({ "composition": one("command:note", &json!({ "text": "x" })) });
    let ask = || {
        let answer = served.post(EXECUTE, &note);
        let result = answer.is(202);
        assert_eq!((&result["status"], &result["success"]), (&json!("waiting"), &json!(false)));
        assert_eq!(result["waiting_for"][0]["kind"], "call");
        answer.headers["location"].clone()
    };
    let run = ask();
    assert!(!world.path("notes.txt").exists());
    assert_eq!(served.get(&run).is(200)["status"], "waiting");
    let listed = served.get("/api/v1/runs?status=waiting").is(200);
    assert_eq!(listed["runs"].as_array().unwrap().len(), 1);
    let yes = json!({ "approved": true });
    let other = json!({ "approved": true, "step": "other" });
    served.post(&format!("{run}/approve"), &other).is_problem(409, "conflict");
    // Who says nothing has not said yes.
    assert!(served.post(&format!("{run}/approve"), &json!(null)).status >= 400);
    for silent in [json!({}), json!({ "step": "w" })] {
        served.post(&format!("{run}/approve"), &silent).is_problem(422, "invalid-field");
    }
    assert_eq!(served.get(&run).is(200)["status"], "waiting");
    let view = served.post(&format!("{run}/approve"), &yes).is(200);
    assert_eq!(view["status"], "success", "{view}");
    assert!(world.path("notes.txt").exists());
    served.post(&format!("{run}/approve"), &yes).is_problem(409, "conflict");
    let run = ask();
    let view = served.post(&format!("{run}/approve"), &json!({ "approved": false })).is(200);
    assert_eq!(view["status"], "denied", "{view}");
    // With an approval from the start no person is asked.
    let mut approved = note;
    approved["options"] = json!({ "approved": true });
    assert_eq!(served.post(EXECUTE, &approved).is(200)["success"], true);
    // Whose word it was is in the journal, and who asked for it is said.
    let line = served.said("approveRun");
    assert!(line.contains("who=\"the token\"") && line.contains("status=409"), "{line}");
    served.said("executeComposition");
}

/// A response about a run in progress shows its state, also when the server stops meanwhile.
#[test]
fn a_run_that_goes_on_shows_how_it_stands() {
    let (_world, served) = served("limits: { served_leave_ms: 1 }\n");
    let slow = json!({ "composition": { "name": "slow", "steps": [
        { "id": "a", "tool": "echo", "parameters": { "n": 1 }, "output_key": "a" },
        { "id": "b", "tool": "sleep", "parameters": { "ms": 600_000 }, "depends_on": ["a"] }] } });
    let key = [("Idempotency-Key", "slow"), ("Prefer", "respond-async")];
    let begun = until(|| {
        let begun = served.send("POST", EXECUTE, &key, &slow).is(202);
        (begun["results"]["a"]["n"] == 1).then_some(begun)
    });
    assert_eq!(begun["status"], "running");
    assert!(begun["steps_executed"].as_u64().unwrap() > 0, "{begun}");
    let run = format!("/api/v1/runs/{}", begun["run_id"].as_str().unwrap());
    let took = || served.get(&run).is(200)["duration_ms"].as_u64().unwrap();
    let first = took();
    until(|| (took() > first).then_some(()));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| served.post(EXECUTE, &slow));
        until(|| {
            let running = served.get("/api/v1/runs?status=running").is(200);
            (running["runs"].as_array().unwrap().len() == 2).then_some(())
        });
        let pid = served.pid().to_string();
        assert!(
            std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap().success()
        );
        let answer = waiting.join().unwrap();
        let left = answer.is(202);
        assert_eq!(left["status"], "running");
        assert!(answer.headers["location"].starts_with("/api/v1/runs/"), "{answer:?}");
    });
}

/// `respond-async` is a preference: a run that is over by then is answered with its result, and the
/// description of the API says so.
#[test]
fn a_run_that_is_over_is_answered_with_its_result() {
    let (_world, served) = served("");
    let quick = json!({ "composition": { "name": "quick", "steps": [
        { "id": "a", "tool": "echo", "parameters": { "n": 1 }, "output_key": "a" }] } });
    let key = ("Idempotency-Key", "quick");
    served.send("POST", EXECUTE, &[key], &quick).is(200);
    let again = served.send("POST", EXECUTE, &[key, ASYNC[0]], &quick).is(200);
    assert_eq!(again["results"]["a"]["n"], 1);
    let described = served.get("/openapi.json").is(200).to_string();
    assert!(described.contains("with 200 and the result if the run has finished"));
}

/// The data of an answer is held against the form that was asked for.
#[test]
fn an_approval_has_its_form() {
    let (_world, served) = served("");
    let composition = json!({ "name": "asks", "steps": [
        { "id": "ok", "approve": { "message": "how many?", "schema": {
            "type": "object", "required": ["n"], "properties": { "n": { "type": "integer" } } } } },
        { "id": "use", "tool": "echo", "parameters": { "n": "{{ ok.data.n }}" }, "output_key": "used" },
    ] });
    let run_id = begin(&served, &composition);
    let path = format!("/api/v1/runs/{run_id}/approve");
    // The question says what it wants, and a yes that was given beforehand does not answer it.
    let request = json!({ "composition": composition, "options": { "approved": true } });
    let waits = served.post(EXECUTE, &request).is(202);
    let form = &waits["waiting_for"][0]["schema"];
    assert_eq!(form["properties"]["n"]["type"], "integer", "{waits}");
    let wrong = served.post(&path, &json!({ "approved": true, "data": { "n": "three" } }));
    wrong.is_problem(422, "input-schema");
    let view = served.post(&path, &json!({ "approved": true, "data": { "n": 3 } })).is(200);
    assert_eq!(view["results"]["used"]["n"], 3, "{view}");
}

/// A run is cancelled, and its steps are rolled back on request.
#[test]
fn runs_are_cancelled_and_rolled_back() {
    let (world, served) = served("");
    let run_id = begin(&served, &one("sleep", &json!({ "ms": 60_000 })));
    let view = served.post(&format!("/api/v1/runs/{run_id}/cancel"), &json!(null)).is(200);
    assert_eq!(view["status"], "cancelled");
    served.post(&format!("/api/v1/runs/{run_id}/cancel"), &json!(null)).is_problem(409, "conflict");
    served.post(&format!("/api/v1/runs/{run_id}/resume"), &json!({})).is_problem(409, "conflict");
    served.post("/api/v1/runs/none/cancel", &json!(null)).is_problem(404, "not-found");
    let write = one("files_write", &json!({ "path": "x.txt", "content": "x" }));
    let request = json!({ "composition": write, "options": { "approved": true } });
    let run_id = served.post(EXECUTE, &request).is(200)["run_id"].as_str().unwrap().to_owned();
    assert!(world.path("x.txt").exists());
    let view = served.post(&format!("/api/v1/runs/{run_id}/rollback"), &json!(null)).is(200);
    assert_eq!(view["status"], "rolled_back", "{view}");
    assert!(!world.path("x.txt").exists());
}

/// Pages of runs follow each other without gaps.
#[test]
fn runs_are_listed_a_page_at_a_time() {
    let (_world, served) = served("");
    for n in 0..5 {
        served.post(EXECUTE, &json!({ "name": "double-it", "input": { "n": n } })).is(200);
    }
    let (mut seen, mut path) = (Vec::new(), "/api/v1/runs?limit=2".to_owned());
    loop {
        let page = served.get(&path).is(200);
        let runs = page["runs"].as_array().unwrap().clone();
        seen.extend(runs.iter().map(|run| run["run_id"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/api/v1/runs?limit=2&cursor={next}");
    }
    assert_eq!(seen.len(), 5);
    assert!(seen.is_sorted_by(|a, b| a > b), "{seen:?}");
    assert_eq!(served.get("/api/v1/runs?name=double&status=failed").is(200)["runs"], json!([]));
}

/// Compositions, plans, tools and exports can be looked at.
#[test]
fn everything_can_be_looked_at() {
    let (_world, served) = served("toolsets: { small: { namespaces: [builtin] } }\n");
    let listed = served.get("/api/v1/compositions").is(200);
    assert_eq!(listed["compositions"][0]["name"], "double-it");
    let plan = served.post("/api/v1/plans", &json!({ "name": "double-it" })).is(200);
    assert_eq!(plan["steps"][0]["tool"], "builtin:echo", "{plan}");
    served
        .post("/api/v1/plans", &json!({ "composition": { "name": "x", "steps": [] } }))
        .is_problem(422, "no-steps");
    let tools = served.get("/api/v1/tools?search=echo").is(200);
    let tools = tools["tools"].as_array().unwrap();
    assert!(!tools.is_empty() && tools.len() < 10);
    assert_eq!(served.get("/api/v1/tools/echo").is(200)["confirms"], false);
    let problem = served.get("/api/v1/tools/ecko").is_problem(404, "not-found");
    assert!(problem["help"].as_str().unwrap().contains("echo"), "{problem}");
    let export = served.get("/api/v1/toolsets/all/export?format=openai").is(200);
    assert!(export["tools"].as_array().unwrap().len() > 3);
    served.get("/api/v1/toolsets/all/export").is_problem(400, "nil-adapter");
    served
        .get("/api/v1/toolsets/all/export?format=gemini&strict=true")
        .is_problem(422, "conversion");
    served.get("/api/v1/toolsets/smal/export?format=mcp").is_problem(404, "not-found");
    assert_eq!(served.get("/readyz").is(200)["compositions"], 1);
}

/// Pending requests are answered before the server stops; longer runs resume on the next one.
#[cfg(unix)]
#[test]
fn a_server_ends_when_it_has_answered() {
    let world = world("limits: { served_leave_ms: 700 }\n");
    let served = Served::start(&world, "sqlite:s.db", &[]);
    let long = begin(&served, &json!({ "name": "long", "steps": [{ "id": "w", "wait": "1s" }] }));
    let bearer = format!("Bearer {TOKEN}");
    let mut waiting = served.connect();
    let headers = [("Authorization", &*bearer), ("Content-Type", "application/json")];
    let body = json!({ "composition": one("sleep", &json!({ "ms": 400 })) }).to_string();
    waiting.write_all(served.request("POST", EXECUTE, &headers, &body).as_bytes()).unwrap();
    // It has begun when there are two.
    while served.get("/readyz").is(200)["runs"] != 2 {}
    let pid = rustix::process::Pid::from_raw(i32::try_from(served.pid()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut waiting, &mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"success\":true"), "{answer}");
    assert!(served.wait().success());
    let next = Served::start(&world, "sqlite:s.db", &[]);
    let last = follow(&next, &long, None).last().unwrap();
    assert_eq!(last.data["status"], "success");
    assert!(next.said_at_start(&format!("resumes the interrupted run {long} (long)")));
}
