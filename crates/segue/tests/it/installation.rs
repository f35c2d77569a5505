//! Routes for the page: questions that wait, sources of tools, calls of tools, checks and settings.

use std::time::{Duration, Instant};

use crate::served::{Served, TOKEN};
use crate::support::{Json, World, json, repository};

const ADA: &str = "ada-ada-ada-ada-ada-ada-ada-ada-ada-ada";
const SECRET: &str = "correct-horse-battery-staple";

/// A server with an MCP server that returns what it is given, one that does not start, a tool that asks, and a
/// principal with few rights.
fn served() -> (World, Served) {
    let world = World::new();
    let script = repository().join("crates/segue/tests/seeds/server.py");
    let password = r#"{ "type": "string", "writeOnly": true }"#;
    let auth = format!(r#"{{ "type": "object", "properties": {{ "password": {password} }} }}"#);
    world.file(
        "tools.json",
        format!(
            r#"{{ "say": {{}}, "fail": {{ "answers": [{{ "fail": "no luck" }}] }},
                "login": {{ "input": {{ "type": "object", "properties": {{ "auth": {auth} }} }}, "answers": [{{ "ok": true }}] }} }}"#
        ),
    );
    world.file("lib/note.yaml", "name: note\nsteps: [ { id: write, tool: 'command:note' } ]\n");
    world.file(
        "segue.yaml",
        format!(
            "compositions: ['lib/*']\n\
             mcpServers:\n  good: {{ command: python3, args: ['{}', tools.json, calls.txt], env: {{ KEY: '${{KEY}}' }} }}\n  \
             bad: {{ command: no-such-program }}\n\
             commands: {{ note: {{ argv: [cat], read_only: false }}, slow: {{ argv: [sleep, '60'], read_only: true }} }}\n\
             tools: {{ 'command:note': {{ destructive: true }} }}\n\
             toolsets: {{ calm: {{ allow: [echo] }} }}\n\
             limits: {{ served_key_ms: 1000 }}\n\
             server:\n  token: {TOKEN}\n  principals: {{ ada: {{ token: '${{ADA}}', rights: [read, run], toolset: calm }} }}\n",
            script.display()
        ),
    );
    let served = Served::start_with(&world, "memory", &[], &[("KEY", SECRET), ("ADA", ADA)]);
    // A server does not wait for a slow MCP server.
    let began = Instant::now();
    while served.get("/api/v1/tools/good:say").status != 200 {
        assert!(began.elapsed() < Duration::from_mins(1), "the MCP server does not start");
    }
    (world, served)
}

fn call(served: &Served, tool: &str, body: &Json) -> crate::served::Answer {
    served.post(&format!("/api/v1/tools/{tool}/call"), body)
}

fn find<'a>(list: &'a Json, name: &str) -> &'a Json {
    let found = list.as_array().unwrap().iter().find(|it| it["name"] == name);
    found.unwrap_or_else(|| panic!("no `{name}` in {list:#}"))
}

/// A call is a run; what it sends and receives is shown without secrets, and only on request.
#[test]
fn a_tool_is_called_and_its_messages_are_shown() {
    let (_world, served) = served();
    let text = format!("{{{{ input.x }}}} and {SECRET}");
    let arguments = json!({ "text": text, "odd \"name\"": [1.50, null], "}}": { "a": 1 } });
    let body = json!({ "arguments": arguments, "frames": true });
    let result = call(&served, "good:say", &body).is(200);
    assert_eq!((&result["status"], &result["error"]), (&json!("success"), &json!(null)));
    // An argument is data: nothing in it is a template.
    assert_eq!(result["output"]["odd \"name\""], json!([1.50, null]));
    let said = result["output"]["text"].as_str().unwrap();
    assert!(said.starts_with("{{ input.x }} and ") && !said.contains(SECRET), "{said}");
    let frames = result["frames"].as_array().unwrap();
    let directions: Vec<&Json> = frames.iter().map(|frame| &frame["direction"]).collect();
    assert_eq!(directions, ["sent", "received"]);
    let (sent, received) = (&frames[0]["message"], &frames[1]["message"]);
    assert_eq!((&sent["method"], &sent["params"]["name"]), (&json!("tools/call"), &json!("say")));
    assert_eq!(sent["id"], received["id"]);
    assert!(received["result"].is_object(), "{received}");
    assert!(!result.to_string().contains(SECRET));
    let run = served.get(&format!("/api/v1/runs/{}", result["run_id"].as_str().unwrap())).is(200);
    assert_eq!((&run["name"], &run["status"]), (&json!("call-say"), &json!("success")));
    let result = call(&served, "good:say", &json!({})).is(200);
    assert_eq!(result["frames"], json!(null));
    let failed = call(&served, "good:fail", &json!({ "frames": true })).is(200);
    assert_eq!(failed["status"], "failed");
    assert!(failed["error"]["message"].as_str().unwrap().contains("no luck"), "{failed}");
    assert_eq!(failed["frames"].as_array().unwrap().len(), 2);
    // A tool without a server has no messages.
    let result = call(&served, "echo", &json!({ "arguments": { "x": 1 }, "frames": true })).is(200);
    assert_eq!((&result["output"], &result["frames"]), (&json!({ "x": 1 }), &json!([])));
}

/// A client that chose the id of a call cancels exactly this call before it has the answer.
#[test]
fn a_call_has_the_id_that_its_client_chose() {
    let (_world, served) = served();
    let chosen = "6f9619ff-8b86-4011-b42d-00c04fc964ff";
    let path = format!("/api/v1/runs/{chosen}");
    let body = json!({ "run_id": chosen });
    std::thread::scope(|scope| {
        let calling = scope.spawn(|| call(&served, "command:slow", &body));
        let began = Instant::now();
        while served.get(&path).status != 200 {
            assert!(began.elapsed() < Duration::from_secs(30), "the call does not begin");
        }
        served.post(&format!("{path}/cancel"), &json!({})).is(200);
        let result = calling.join().unwrap().is(200);
        assert_eq!((&result["run_id"], &result["status"]), (&json!(chosen), &json!("cancelled")));
    });
    // No second run has it, and it is a UUID.
    call(&served, "echo", &body).is_problem(409, "conflict");
    for odd in
        ["", "mine", "6F9619FF-8B86-4011-B42D-00C04FC964FF", "../../../../../../../../../../../../"]
    {
        call(&served, "echo", &json!({ "run_id": odd })).is_problem(422, "invalid-field");
    }
}

/// What the schema of a tool marks as sensitive reaches the tool, and no journal.
#[test]
fn a_sensitive_argument_is_not_stored() {
    let (world, served) = served();
    let body = json!({ "arguments": { "auth": { "password": "hunter2-hunter2" } } });
    let result = call(&served, "good:login", &body).is(200);
    assert!(std::fs::read_to_string(world.path("calls.txt")).unwrap().contains("hunter2-hunter2"));
    let id = result["run_id"].as_str().unwrap();
    for path in ["", "?preview=true", "/steps/call", "/value?step=call&part=input"] {
        let shown = served.get(&format!("/api/v1/runs/{id}{path}")).is(200).to_string();
        assert!(shown.contains("auth"), "{path}: {shown}");
        assert!(!shown.contains("hunter2"), "{path}: {shown}");
    }
}

#[test]
fn a_call_needs_its_rights_and_fitting_arguments() {
    let (_world, served) = served();
    call(&served, "nothing", &json!({})).is_problem(404, "not-found");
    call(&served, "text_split", &json!({ "arguments": { "text": 1 } }))
        .is_problem(422, "invalid-field");
    let path = "/api/v1/tools/echo/call";
    let answer = served.send_by(ADA, "POST", path, &[], &json!({}));
    assert!(answer.is_problem(403, "unauthorized")["detail"].as_str().unwrap().contains("compose"));
    let path = "/api/v1/tools/command:note/call";
    let answer = served.send_by(ADA, "POST", path, &[], &json!({}));
    answer.is_problem(404, "not-found");
}

/// A call that asks waits in the list of questions until a principal who may answers.
#[test]
fn questions_wait_until_they_are_answered() {
    let (_world, served) = served();
    assert_eq!(served.get("/api/v1/questions").is(200)["questions"], json!([]));
    let waiting = call(&served, "command:note", &json!({})).is(202);
    assert_eq!(waiting["status"], "waiting");
    assert_eq!(waiting["waiting_for"][0]["tool"], "command:note");
    let run = json!({ "name": "note" });
    served.post("/api/v1/compositions/execute", &run).is(202);
    let list = served.get("/api/v1/questions").is(200)["questions"].clone();
    let names: Vec<&Json> = list.as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["note", "call-note"]);
    let question = &list[1];
    assert_eq!(question["run_id"], waiting["run_id"]);
    assert_eq!(question["principal"], "the token");
    assert_eq!(question["question"]["kind"], "call");
    assert_eq!((&question["answerable"], &question["expires_at"]), (&json!(true), &json!(null)));
    assert!(question["asked_at"].is_string());
    // Another principal sees nothing of it.
    let other = served.send_by(ADA, "GET", "/api/v1/questions", &[], &json!(null)).is(200);
    assert_eq!(other["questions"], json!([]));
    let path = format!("/api/v1/runs/{}/approve", question["run_id"].as_str().unwrap());
    assert_eq!(served.post(&path, &json!({ "approved": true })).is(200)["status"], "success");
    let left = served.get("/api/v1/questions").is(200)["questions"].clone();
    assert_eq!(left.as_array().unwrap().len(), 1);
}

/// Every source has its state; a principal sees those whose tools it may use.
#[test]
fn sources_of_tools_have_a_state() {
    let (_world, served) = served();
    call(&served, "good:say", &json!({})).is(200);
    let list = served.get("/api/v1/servers").is(200)["servers"].clone();
    let good = find(&list, "good");
    assert_eq!((&good["kind"], &good["state"]), (&json!("mcp"), &json!("ready")));
    assert_eq!((&good["tools"], &good["transport"]), (&json!(3), &json!("stdio")));
    assert!(good["protocol"].is_string() && good["reason"].is_null(), "{good}");
    let bad = find(&list, "bad");
    assert_eq!((&bad["state"], &bad["tools"]), (&json!("failed"), &json!(0)));
    assert!(bad["reason"].as_str().unwrap().contains("no-such-program"), "{bad}");
    assert_eq!(find(&list, "command")["kind"], "command");
    assert_eq!(find(&list, "builtin")["state"], "ready");
    let list = served.send_by(ADA, "GET", "/api/v1/servers", &[], &json!(null)).is(200);
    assert_eq!(list["servers"].as_array().unwrap().len(), 1, "{list}");
    assert_eq!(
        (&list["servers"][0]["name"], &list["servers"][0]["tools"]),
        (&json!("builtin"), &json!(1))
    );
}

/// Only an administrator sees checks and settings, and neither has a secret.
#[test]
fn checks_and_settings_are_for_administrators() {
    let (_world, served) = served();
    for path in ["/api/v1/doctor", "/api/v1/settings"] {
        let answer = served.send_by(ADA, "GET", path, &[], &json!(null));
        answer.is_problem(403, "unauthorized");
        let text = served.get(path).is(200).to_string();
        assert!(![SECRET, TOKEN, ADA].iter().any(|secret| text.contains(secret)), "{text}");
    }
    let report = served.get("/api/v1/doctor").is(200);
    assert_eq!(report["ok"], false);
    let texts: Vec<String> =
        report["findings"].as_array().unwrap().iter().map(Json::to_string).collect();
    assert!(texts.iter().any(|text| text.contains("`bad` cannot be used")), "{texts:?}");
    assert!(texts.iter().any(|text| text.contains("can be written")), "{texts:?}");
    let settings = served.get("/api/v1/settings").is(200);
    assert_eq!(settings["trusted"], true);
    let list = &settings["settings"];
    let key = find(list, "limits.served_key_ms");
    assert_eq!(key["value"], 1000);
    assert!(key["from"].as_str().unwrap().ends_with("segue.yaml:8"), "{key}");
    assert_eq!(find(list, "limits.served_runs_max")["from"], "default");
    assert_eq!(find(list, "store")["from"], "command line");
    assert_eq!(find(list, "server.token")["value"], "***");
    assert_eq!(find(list, "mcpServers")["value"]["bad"]["command"], "no-such-program");
}
