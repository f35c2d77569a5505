//! GraphQL: queries, mutations, refusals, and real clients.

mod limits;
mod walk;

use std::io::{Read as _, Write as _};

use segue::graphql;

use crate::rest::plans::planning;
use crate::rest::served;
use crate::served::{Served, TOKEN};
use crate::support::{Json, json};
use crate::words::{Model, calls, good};

const PATH: &str = "/graphql";

/// The response to a document with these variables.
fn ask(served: &Served, query: &str, variables: &Json) -> Json {
    served.post(PATH, &json!({ "query": query, "variables": variables })).is(200)
}

/// What a document without variables gives; nothing may be wrong with it.
#[track_caller]
fn data(served: &Served, query: &str) -> Json {
    let answer = ask(served, query, &json!({}));
    assert!(answer.get("errors").is_none(), "{answer}");
    answer["data"].clone()
}

/// The first error of a document, whose code is this.
#[track_caller]
fn error(served: &Served, query: &str, code: &str) -> Json {
    let answer = ask(served, query, &json!({}));
    assert_eq!(answer["errors"][0]["extensions"]["code"], code, "{answer}");
    answer["errors"][0].clone()
}

/// The data of each event that comes as an answer to a document.
fn events(served: &Served, query: &str) -> Vec<Json> {
    let bearer = format!("Bearer {TOKEN}");
    let headers = [
        ("Authorization", &*bearer),
        ("Content-Type", "application/json"),
        ("Accept", "text/event-stream"),
    ];
    let answer = served.ask("POST", PATH, &headers, &json!({ "query": query }).to_string());
    assert_eq!((answer.status, &*answer.headers["content-type"]), (200, "text/event-stream"));
    let (events, end) = answer.body.split_once("event: complete\ndata:\n\n").unwrap();
    assert_eq!(end, "");
    let events = events.split("\n\n").filter(|event| !event.is_empty());
    let data = events.map(|event| event.strip_prefix("event: next\ndata: ").unwrap());
    data.map(|data| serde_json::from_str(data).unwrap()).collect()
}

/// The schema in the repository is the served one.
#[test]
fn the_schema_is_current() {
    let committed = concat!(env!("CARGO_MANIFEST_DIR"), "/../../schema/segue.graphql");
    let committed = std::fs::read_to_string(committed).unwrap_or_default();
    assert!(committed == graphql::sdl(), "`just gen` writes `schema/segue.graphql`");
}

/// S4-05, S4-07, S4-08, S4-09, S4-11, S4-16, S4-36, S4-45, S4-48, S4-49, S4-54: the names of the seed, from
/// words to results.
#[test]
fn words_become_a_plan_and_then_a_run() {
    let model = Model::saying(&[&good().to_string()]);
    let (world, served) = planning(&model);
    let made = data(
        &served,
        r#"mutation { createPlanWithRequestId(query: "An author, then a blog") { requestId planId } }"#,
    );
    let made = &made["createPlanWithRequestId"];
    let shape = regex::Regex::new("^(req|plan)_[0-9]{10}_[a-z0-9]{9}$").unwrap();
    let (request, plan) = (made["requestId"].as_str().unwrap(), made["planId"].as_str().unwrap());
    assert!(shape.is_match(request) && shape.is_match(plan));
    assert!(calls(&world).is_empty(), "nothing is called while a plan is made");
    let look = format!(
        r#"{{ plan(requestId: "{request}") {{ planId version state executionOrder reasoning
            tools {{ toolName parameters dependsOn outputMapping }} origin {{ model rounds }}
            executionResults {{ results errors {{ message }} }} run {{ runId }} checked }} }}"#
    );
    let seen = &data(&served, &look)["plan"];
    assert_eq!((&seen["planId"], &seen["state"]), (&json!(plan), &json!("pending")));
    assert_eq!(seen["executionOrder"], json!(["createAuthor", "createBlog"]));
    assert_eq!(seen["tools"][1]["parameters"]["authorId"], "{{createAuthor._id}}");
    assert_eq!(seen["tools"][1]["dependsOn"], json!(["createAuthor"]));
    assert_eq!((&seen["executionResults"], &seen["run"]), (&json!(null), &json!(null)));
    assert_eq!(seen["checked"]["steps"][1]["needs"], json!(["createAuthor"]));

    let execute = format!(
        r#"mutation {{ executePlan(requestId: "{request}") {{ state runId run {{ requestId planId }}
            executionResults {{ success results errors {{ message }} }} }} }}"#
    );
    let dry = execute.replace("\") {", "\", options: { dryRun: true }) {");
    let dry = dry.replace("requestId planId }", "status }");
    let dry = &data(&served, &dry)["executePlan"];
    assert_eq!((&dry["state"], &dry["run"]["status"]), (&json!("pending"), &json!("dry_run")));
    assert!(calls(&world).is_empty());
    let ran = &data(&served, &execute)["executePlan"];
    assert_eq!(ran["state"], "completed");
    assert_eq!(ran["run"], json!({ "requestId": request, "planId": plan }));
    let results = &ran["executionResults"];
    assert_eq!(results["results"]["createBlog"]["authorId"], "507f1f77bcf86cd799439011");
    assert_eq!((&results["success"], &results["errors"]), (&json!(true), &json!([])));
    let line = served.said(&format!("status=200 run_id={}", ran["runId"]));
    assert!(line.contains("what=\"executePlan\""), "{line}");
    let again = error(&served, &execute, "conflict");
    assert_eq!((&again["path"], calls(&world).len()), (&json!(["executePlan"]), 2));
    assert_eq!(again["extensions"]["runId"], ran["runId"]);
    let by_request = format!(
        r#"mutation {{ executeByRequestId(requestId: "{request}", again: true) {{ planId state }} }}"#
    );
    let ran = &data(&served, &by_request)["executeByRequestId"];
    assert_eq!(*ran, json!({ "planId": plan, "state": "completed" }));

    let more = format!(
        r#"mutation {{ createPlanWithRequestId(query: "Another", requestId: "{request}") {{
            version versions {{ version state }} composition(name: "twice") }} }}"#
    );
    let second = &data(&served, &more)["createPlanWithRequestId"];
    assert_eq!(second["version"], 2);
    let versions =
        json!([{ "version": 1, "state": "completed" }, { "version": 2, "state": "pending" }]);
    assert_eq!(second["versions"], versions);
    assert!(second["composition"].as_str().unwrap().starts_with("name: twice\n"));
    let page = format!(
        r#"{{ plans(requestId: "{request}", state: completed) {{ nodes {{ planId }} }} }}"#
    );
    assert_eq!(data(&served, &page)["plans"]["nodes"], json!([{ "planId": plan }]));

    let unknown = r#"mutation { executePlan(requestId: "req_1704123456_abc123def") { state } }"#;
    let unknown = error(&served, unknown, "not-found");
    assert_eq!(unknown["message"], "Plan not found for requestId: req_1704123456_abc123def");
    error(&served, "mutation { executePlan { state } }", "invalid-field");
    let delete = format!(r#"mutation {{ deletePlan(planId: "{plan}") }}"#);
    assert_eq!(data(&served, &delete)["deletePlan"], plan);
}

/// S4-44…47, S4-50: a tool that fails ends the plan, and what was done before stays readable.
#[test]
fn a_plan_that_fails_says_so() {
    let mut plan = good();
    plan["tools"][1]["name"] = json!("fail");
    plan["tools"][1]["parameters"] = json!({ "message": "no room for {{createAuthor.name}}" });
    plan["executionOrder"] = json!(["createAuthor", "fail"]);
    let model = Model::saying(&[&plan.to_string()]);
    let (world, served) = planning(&model);
    let made = data(&served, r#"mutation { createPlanWithRequestId(query: "x") { requestId } }"#);
    let request = made["createPlanWithRequestId"]["requestId"].as_str().unwrap();
    let execute = format!(
        r#"mutation {{ executePlan(requestId: "{request}") {{ state executionResults {{
            success results errors {{ step code message }} }} run {{ steps {{ nodes {{ id output }} }} }} }} }}"#
    );
    let ran = &data(&served, &execute)["executePlan"];
    assert_eq!((&ran["state"], calls(&world).len()), (&json!("failed"), 1));
    let failure = &ran["executionResults"]["errors"][0];
    assert_eq!((&failure["step"], &failure["code"]), (&json!("fail"), &json!("tool-error")));
    assert!(failure["message"].as_str().unwrap().contains("no room for Alice"), "{failure}");
    assert_eq!(ran["run"]["steps"]["nodes"][0]["output"]["name"], "Alice");
}

/// Compositions are run, and runs are looked at, a page at a time.
#[test]
fn compositions_run_and_runs_are_listed() {
    let (_world, served) = served("");
    let query = "mutation ($request: CompositionRequest!, $key: String) {
        executeComposition(request: $request, idempotencyKey: $key) { runId status output success } }";
    let run = |n: u64, key: Option<&str>| {
        let request = json!({ "name": "double-it", "input": { "n": n } });
        let answer = ask(&served, query, &json!({ "request": request, "key": key }));
        answer["data"]["executeComposition"].clone()
    };
    let first = run(9_007_199_254_740_993, Some("k"));
    assert_eq!(first["output"]["n"].to_string(), "18014398509481986", "numbers stay exact");
    assert_eq!(run(9_007_199_254_740_993, Some("k"))["runId"], first["runId"]);
    for n in 0..4 {
        assert_eq!(run(n, None)["status"], "success");
    }
    let mut seen = Vec::new();
    let mut after = json!(null);
    loop {
        let query = "query ($after: String) { runs(first: 2, after: $after, status: [success], name: \"double\") {
            nodes { runId durationMs startedAt } next } }";
        let page = ask(&served, query, &json!({ "after": after }))["data"]["runs"].clone();
        let nodes = page["nodes"].as_array().unwrap();
        assert!(nodes.len() <= 2);
        seen.extend(nodes.iter().map(|node| node["runId"].clone()));
        after = page["next"].clone();
        if after.is_null() {
            break;
        }
    }
    assert_eq!((seen.len(), &seen[4]), (5, &first["runId"]), "newest first, each once");
    error(&served, r#"{ runs(after: "x") { next } }"#, "invalid-field");
    let query = format!(
        "{{ run(runId: {}) {{ steps(first: 1, status: success) {{ nodes {{ id tool input output attempts }} next }} }}
            compositions {{ nodes {{ name effect }} }} nothing: run(runId: \"x\") {{ name }} }}",
        first["runId"]
    );
    // What is not there leaves the rest to be seen.
    let answer = ask(&served, &query, &json!({}));
    assert_eq!(answer["errors"][0]["extensions"]["code"], "not-found");
    assert_eq!(answer["data"].get("nothing"), Some(&json!(null)), "null, and not left out");
    let alone =
        ask(&served, "{ a: run(runId: 1) { name } b: runs(first: 0) { next } }", &json!({}));
    assert_eq!(alone["data"], json!({ "a": null, "b": null }), "{alone}");
    assert_eq!(alone["errors"].as_array().unwrap().len(), 2);
    assert_eq!(answer["data"]["run"]["steps"]["nodes"][0]["tool"], "builtin:echo");
    assert_eq!(answer["data"]["compositions"]["nodes"][0]["name"], "double-it");
    // The same shapes as over REST.
    for (request, code) in [
        (json!({}), "invalid-field"),
        (json!({ "name": "x" }), "not-found"),
        (json!({ "name": "double-it", "input": [] }), "invalid-field"),
        (json!({ "name": "double-it" }), "input-schema"),
        (
            json!({ "name": "double-it", "input": { "n": 1 }, "options": { "maxConcurrency": 0 } }),
            "invalid-field",
        ),
        (json!({ "composition": "name: x" }), "no-steps"),
    ] {
        let answer = ask(&served, query_of_run(), &json!({ "request": request }));
        assert_eq!(answer["errors"][0]["extensions"]["code"], code, "{request}: {answer}");
    }
    let request = json!({ "composition": "name: x\nsteps: [{ id: a, tool: nope }]" });
    let answer = ask(&served, query_of_run(), &json!({ "request": request }));
    let finding = &answer["errors"][0]["extensions"]["diagnostics"][0];
    assert_eq!((&finding["code"], &finding["line"]), (&json!("unknown-tool"), &json!(2)));
}

fn query_of_run() -> &'static str {
    "mutation ($request: CompositionRequest!) { executeComposition(request: $request) { runId } }"
}

/// Questions of runs are answered, and runs are cancelled and rolled back.
#[test]
fn runs_are_acted_on() {
    let (world, served) = served("");
    let begin = |composition: &Json, mode: &str| {
        let query = format!(
            "mutation ($c: JSON!) {{ executeComposition(request: {{ composition: $c }}{mode}) {{
                runId status waitingFor {{ step kind tool }} }} }}"
        );
        ask(&served, &query, &json!({ "c": composition }))["data"]["executeComposition"].clone()
    };
    let note = json!({ "name": "n", "steps": [
        { "id": "w", "tool": "command:note", "parameters": { "text": "x" } }] });
    for (approved, status) in [(true, "success"), (false, "denied")] {
        let waiting = begin(&note, "");
        assert_eq!(
            (&waiting["status"], &waiting["waitingFor"][0]["step"]),
            (&json!("waiting"), &json!("w"))
        );
        let silent = format!("mutation {{ approveRun(runId: {}) {{ status }} }}", waiting["runId"]);
        error(&served, &silent, "invalid-field");
        let approve = format!(
            "mutation {{ approveRun(runId: {}, approved: {approved}) {{ status }} }}",
            waiting["runId"]
        );
        assert_eq!(data(&served, &approve)["approveRun"]["status"], status);
        error(&served, &approve, "conflict");
    }
    assert_eq!(std::fs::read_to_string(world.path("notes.txt")).unwrap().lines().count(), 1);

    let slow = json!({ "name": "s", "steps": [{ "id": "a", "tool": "sleep", "parameters": { "ms": 600_000 } }] });
    let running = begin(&slow, ", respondAsync: true");
    assert_eq!(running["status"], "running");
    let cancel = format!("mutation {{ cancelRun(runId: {}) {{ status }} }}", running["runId"]);
    assert_eq!(data(&served, &cancel)["cancelRun"]["status"], "cancelled");
    let resume = format!("mutation {{ resumeRun(runId: {}) {{ status }} }}", running["runId"]);
    error(&served, &resume, "conflict");

    let write = json!({ "name": "w", "steps": [
        { "id": "f", "tool": "files_write", "parameters": { "path": "a.txt", "content": "x" } }] });
    let written = begin(&write, "");
    assert!(world.path("a.txt").exists(), "{written}");
    let back = format!("mutation {{ rollbackRun(runId: {}) {{ status }} }}", written["runId"]);
    assert_eq!(data(&served, &back)["rollbackRun"]["status"], "rolled_back");
    assert!(!world.path("a.txt").exists());
    for what in ["approveRun", "cancelRun", "rollbackRun"] {
        assert!(served.said(&format!("what=\"{what}\"")).contains("path=\"/graphql\""));
    }
}

/// Tools are found by their words; templates are kept, found, run and forgotten.
#[test]
fn tools_and_templates() {
    let (_world, served) = served("");
    let tools =
        &data(&served, r#"{ tools(search: "echo") { nodes { id effect inputSchema confirms } } }"#)
            ["tools"];
    assert_eq!(tools["nodes"][0]["id"], "builtin:echo");
    assert_eq!(
        data(&served, r#"{ tool(id: "echo") { hash } }"#)["tool"]["hash"].as_str().unwrap().len(),
        64
    );
    let unknown = error(&served, r#"{ tool(id: "ehco") { id } }"#, "not-found");
    assert_eq!(unknown["extensions"]["help"], "did you mean `echo`?");
    let keep = r#"mutation { createTemplate(template: { id: "hi", composition: "name: hi\nsteps: [{ id: a, tool: echo, parameters: { x: 1 } }]",
        metadata: { category: "greeting" } }) { id category } }"#;
    assert_eq!(
        data(&served, keep)["createTemplate"],
        json!({ "id": "hi", "category": "greeting" })
    );
    error(&served, keep, "conflict");
    let run = r#"mutation { executeComposition(request: { templateId: "hi" }) { output } }"#;
    assert_eq!(data(&served, run)["executeComposition"]["output"], json!({ "a": { "x": 1 } }));
    let look = r#"{ template(id: "hi") { composition usageCount origin } templates(search: "greeting", first: 1) { nodes { id } } }"#;
    let seen = data(&served, look);
    assert_eq!(
        (&seen["template"]["composition"]["name"], &seen["template"]["origin"]),
        (&json!("hi"), &json!("store"))
    );
    assert_eq!(seen["templates"]["nodes"], json!([{ "id": "hi" }]));
    assert_eq!(data(&served, r#"mutation { deleteTemplate(id: "hi") }"#)["deleteTemplate"], "hi");
    error(&served, r#"{ template(id: "hi") { id } }"#, "not-found");
}

/// What happens in a run comes as events, while it happens and afterwards, from any place on.
#[test]
fn a_run_is_followed() {
    let (_world, served) = served("");
    let composition = json!({ "name": "f", "steps": [
        { "id": "a", "tool": "echo", "parameters": { "x": 1 } },
        { "id": "b", "tool": "sleep", "parameters": { "ms": 300 }, "depends_on": ["a"] }] });
    let query = "mutation ($c: JSON!) { executeComposition(request: { composition: $c }, respondAsync: true) { runId } }";
    let begun = ask(&served, query, &json!({ "c": composition }));
    let run_id = begun["data"]["executeComposition"]["runId"].as_str().unwrap();
    let follow = |more: &str| {
        let query = format!(
            r#"subscription {{ runEvents(runId: "{run_id}"{more}) {{ seq event step run {{ status output }} }} }}"#
        );
        events(&served, &query)
    };
    let heard = follow("");
    let of = |event: &Json| {
        json!([event["data"]["runEvents"]["event"], event["data"]["runEvents"]["step"]])
    };
    let said: Vec<Json> = heard.iter().map(of).collect();
    assert_eq!(
        said,
        [
            json!(["step_started", "a"]),
            json!(["step_succeeded", "a"]),
            json!(["step_started", "b"]),
            json!(["step_succeeded", "b"]),
            json!(["run", null]),
        ]
    );
    let last = &heard[4]["data"]["runEvents"];
    assert_eq!(
        (&last["run"]["status"], &last["run"]["output"]["a"]["x"]),
        (&json!("success"), &json!(1))
    );
    let after = format!(", after: {}", heard[1]["data"]["runEvents"]["seq"]);
    assert_eq!(follow(&after), heard[2..]);
    // Other operations come the same way, and so do errors.
    let one = events(&served, "{ runs { nodes { runId } } }");
    assert_eq!(one[0]["data"]["runs"]["nodes"][0]["runId"], run_id);
    for (query, code) in [
        (r#"subscription { runEvents(runId: "x") { seq } }"#, "not-found"),
        ("subscription { nothing }", "invalid-field"),
        ("subscription {", "parse"),
    ] {
        let wrong = events(&served, query);
        assert_eq!(
            (wrong.len(), &wrong[0]["errors"][0]["extensions"]["code"]),
            (1, &json!(code)),
            "{query}"
        );
    }
    let query = format!(r#"subscription {{ runEvents(runId: "{run_id}") {{ seq }} }}"#);
    let said = error(&served, &query, "invalid-field");
    assert!(said["message"].as_str().unwrap().contains("text/event-stream"), "{said}");
}

/// Followers have so many places, and leave theirs when they go.
#[test]
fn followers_have_so_many_places() {
    let (_world, served) = served("limits: { served_streams_max: 1 }\n");
    let slow = json!({ "name": "s", "steps": [{ "id": "a", "tool": "sleep", "parameters": { "ms": 600_000 } }] });
    let query = "mutation ($c: JSON!) { executeComposition(request: { composition: $c }, respondAsync: true) { runId } }";
    let begun = ask(&served, query, &json!({ "c": slow }));
    let run_id = begun["data"]["executeComposition"]["runId"].as_str().unwrap();
    let query = format!(r#"subscription {{ runEvents(runId: "{run_id}") {{ seq }} }}"#);
    let bearer = format!("Bearer {TOKEN}");
    let headers = [
        ("Authorization", &*bearer),
        ("Content-Type", "application/json"),
        ("Accept", "text/event-stream"),
    ];
    let mut stream = served.connect();
    let request = served.request("POST", PATH, &headers, &json!({ "query": query }).to_string());
    stream.write_all(request.as_bytes()).unwrap();
    let mut some = Vec::new();
    while !String::from_utf8_lossy(&some).contains("event: next") {
        let mut bytes = [0; 512];
        let count = stream.read(&mut bytes).unwrap();
        some.extend_from_slice(&bytes[..count]);
    }
    let refused = events(&served, &query);
    assert_eq!(refused[0]["errors"][0]["extensions"]["code"], "limit", "{refused:?}");
    drop(stream);
    let cancel = format!(r#"mutation {{ cancelRun(runId: "{run_id}") {{ status }} }}"#);
    assert_eq!(data(&served, &cancel)["cancelRun"]["status"], "cancelled");
    loop {
        let heard = events(&served, &query);
        if heard.len() > 1 {
            break;
        }
    }
}
