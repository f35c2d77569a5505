//! Inline compositions run only for callers with `compose`, on every surface and wherever in them a
//! tool is named; and no caller approves for another.

use super::{EXECUTE, entry};
use crate::serve::host::{Host, error, value};
use crate::served::{Served, TOKEN};
use crate::support::{Json, World, json};

/// `command:mark` leaves a mark and does not ask; `command:erase` asks.
const CONFIG: &str = "\
compositions: ['lib/*.yaml']
commands:
  mark: { argv: [sh, -c, 'echo x >> marks.txt'], read_only: false }
  erase: { argv: [sh, -c, 'echo x >> marks.txt'], read_only: false }
  peek: { argv: [echo, '{}'], read_only: true }
tools: { 'command:mark': { destructive: false }, 'command:erase': { destructive: true } }
toolsets: { marks: { allow: ['command:mark'] } }
";

const MARK_IT: &str = "name: mark-it\nsteps: [ { id: a, tool: 'command:mark' } ]\n";

const ERASE_IT: &str = "name: erase-it\nsteps: [ { id: a, tool: 'command:erase' } ]\n";

/// Runs the composition that it is given.
const DO_IT: &str = "name: do-it\nsteps: [ { id: a, expand: '{{ input.plan }}' } ]\n";

fn world(server: &str) -> World {
    let world = World::new();
    world.file("segue.yaml", format!("{CONFIG}{server}"));
    for (name, text) in [("mark-it", MARK_IT), ("erase-it", ERASE_IT), ("do-it", DO_IT)] {
        world.file(&format!("lib/{name}.yaml"), text);
    }
    world
}

/// Principals by name, with their rights.
fn served(principals: &[(&str, &str)]) -> (World, Served) {
    let mut server = format!("server:\n  token: {TOKEN}\n  principals:\n");
    server.extend(principals.iter().map(|(name, rights)| entry(name, rights, "")));
    let world = world(&server);
    let served = Served::start(&world, "memory", &[]);
    (world, served)
}

fn marks(world: &World) -> usize {
    std::fs::read_to_string(world.path("marks.txt")).map_or(0, |text| text.lines().count())
}

fn own(step: &Json) -> Json {
    json!({ "name": "own", "error_handling": { "failure_strategy": "rollback" }, "steps": [step, { "id": "z", "tool": "echo" }] })
}

/// One inline composition for each place that can name a tool.
fn places(tool: &str) -> Vec<(&'static str, Json)> {
    let call = json!({ "id": "a", "tool": tool });
    let spare = json!({ "tool": tool, "parameters": {} });
    vec![
        ("step", own(&call)),
        ("fallback", own(&json!({ "id": "f", "tool": "fail", "fallback": [spare] }))),
        ("rollback", own(&json!({ "id": "r", "tool": "mark-it", "rollback": spare }))),
        (
            "probe",
            own(&json!({ "id": "p", "tool": "mark-it", "probe": {
            "tool": tool, "parameters": {}, "done_when": "{{ true }}" } })),
        ),
        ("parallel", own(&json!({ "id": "p", "parallel": [call] }))),
        ("loop", own(&json!({ "id": "l", "loop": { "over": [1], "steps": [call] } }))),
        ("expand", own(&json!({ "id": "e", "expand": { "name": "made", "steps": [call] } }))),
        (
            "what a served composition expands",
            own(&json!({ "id": "d", "tool": "do-it", "parameters": {
                "plan": { "name": "made", "steps": [call] } } })),
        ),
    ]
}

fn graphql(request: &Json) -> Json {
    json!({
        "query": "mutation($r: CompositionRequest!) { executeComposition(request: $r) { status } }",
        "variables": { "r": request },
    })
}

/// S0: without `compose` a caller runs served compositions and nothing of its own: on no surface,
/// in no place of a composition, and not by storing it as a template first.
#[test]
fn without_compose_nothing_that_one_wrote_runs() {
    let (world, served) = served(&[("reader", "read, run, write")]);
    for (place, composition) in places("command:mark") {
        let request = json!({ "composition": composition });
        let problem = served.post_as("reader", EXECUTE, &request).is_problem(403, "unauthorized");
        assert!(problem["detail"].as_str().unwrap().contains("`compose`"), "{place}: {problem}");
        let answer = served.post_as("reader", "/graphql", &graphql(&request)).is(200);
        let told = answer["errors"][0]["message"].as_str().unwrap_or_else(|| panic!("{answer}"));
        assert!(told.contains("`compose`"), "{place}: {told}");
        let answer = served.call_as("reader", "composition_execute", &request);
        let told = answer["result"]["content"][0]["text"].as_str().unwrap();
        assert!(told.contains("`compose`") && answer["result"]["isError"] == true, "{place}");
        let template = json!({ "id": "mine", "composition": composition });
        let problem = served.post_as("reader", "/api/v1/compositions/templates", &template);
        let problem = problem.is_problem(403, "unauthorized");
        assert!(problem["detail"].as_str().unwrap().contains("`compose`"), "{place}: {problem}");
        let answer = served.call_as("reader", "composition_create_template", &template);
        assert!(answer.to_string().contains("`compose`"), "{place}: {answer}");
    }
    let kept = json!({ "query": "mutation($t: TemplateRequest!) { createTemplate(template: $t) { id } }",
        "variables": { "t": { "id": "mine", "composition": own(&json!({ "id": "a", "tool": "echo" })) } } });
    let answer = served.post_as("reader", "/graphql", &kept).is(200);
    assert!(answer["errors"][0]["message"].as_str().unwrap().contains("`compose`"), "{answer}");
    assert_eq!(marks(&world), 0);
    // Checking calls nothing, nor does a dry run.
    let (_, one) = places("command:mark").remove(0);
    let dry = json!({ "composition": one, "options": { "dry_run": true } });
    assert_eq!(served.post_as("reader", EXECUTE, &dry).is(200)["status"], "dry_run");
    let checked =
        served.post_as("reader", "/api/v1/compositions/validate", &json!({ "composition": one }));
    assert_eq!(checked.is(200)["ok"], true);
    assert_eq!(marks(&world), 0);
    // What is served runs.
    assert_eq!(
        served.post_as("reader", EXECUTE, &json!({ "name": "mark-it" })).is(200)["success"],
        true
    );
    assert_eq!(marks(&world), 1);
    let json_table = json!({ "template_id": "json-table-v1", "options": { "dry_run": true } });
    assert_ne!(served.post_as("reader", EXECUTE, &json_table).status, 403);
}

/// S0: on stdio the model itself calls: what it writes is made of what is served and what only reads, and
/// of what `server.inline` names. What a run makes as it goes is held to the same, as is a template that
/// was kept.
#[test]
fn a_host_composes_of_reads_and_of_what_is_served() {
    let world = world("");
    let mut host = Host::legacy(&world, &json!({}));
    for (place, composition) in places("command:mark") {
        // What the served composition in it does is its own.
        let before = marks(&world);
        let answer = host.call("composition_execute", json!({ "composition": composition }));
        let told = answer.to_string();
        assert!(told.contains("tool-not-allowed"), "{place}: {told}");
        assert!(place == "probe" || told.contains("server.inline"), "{place}: {told}");
        assert_eq!(marks(&world), before, "{place}");
        let template = json!({ "id": "mine", "composition": composition, "replace": true });
        let kept = host.call("composition_create_template", template);
        if kept["isError"] != true {
            let ran = host.call("composition_execute", json!({ "template_id": "mine" }));
            assert!(ran.to_string().contains("tool-not-allowed"), "{place}: {ran}");
        }
        assert_eq!(marks(&world), before, "{place}");
    }
    let reads = json!({ "composition": own(&json!({ "id": "a", "tool": "command:peek" })) });
    assert_eq!(value(&host.call("composition_execute", reads))["status"], "success");
    let calls = json!({ "composition": own(&json!({ "id": "a", "tool": "mark-it" })) });
    assert_eq!(value(&host.call("composition_execute", calls))["status"], "success");
    assert_eq!(marks(&world), 1);
    // The model does not consent for the person.
    let yes = json!({ "name": "erase-it", "options": { "approved": true } });
    let told = error(&host.call("composition_execute", yes)).to_owned();
    assert!(told.contains("`options.approved`") && told.contains("person"), "{told}");
    assert_eq!(marks(&world), 1);
    // What the operator names may be used too, and nothing else.
    let world = self::world("server: { inline: marks }\n");
    let mut host = Host::legacy(&world, &json!({}));
    let (_, marking) = places("command:mark").remove(0);
    value(&host.call("composition_execute", json!({ "composition": marking })));
    assert_eq!(marks(&world), 1);
    let (_, erasing) = places("command:erase").remove(0);
    let answer = host.call("composition_execute", json!({ "composition": erasing }));
    assert!(error(&answer).contains("server.inline"), "{answer}");
}

/// D3: a composition that a run makes of its input is its caller's own, also in what the operator serves.
#[test]
fn what_a_served_composition_expands_is_its_callers() {
    let (world, served) = served(&[("reader", "read, run"), ("author", "read, run, compose")]);
    let made = |tool: &str| json!({ "name": "made", "steps": [{ "id": "a", "tool": tool }] });
    let request = |tool: &str| json!({ "name": "do-it", "input": { "plan": made(tool) } });
    let is_refused = |answer: &Json| {
        let told = answer.to_string();
        assert!(told.contains("tool-not-allowed") && told.contains("`compose`"), "{told}");
        assert_eq!(marks(&world), 0);
    };
    for tool in ["command:mark", "command:peek"] {
        is_refused(&served.post_as("reader", EXECUTE, &request(tool)).json());
        is_refused(&served.call_as("reader", "do_it", &request(tool)["input"]));
    }
    served.post_as("reader", EXECUTE, &request("mark-it")).is(200);
    served.post_as("author", EXECUTE, &request("command:mark")).is(200);
    assert_eq!(marks(&world), 2);
    let world = self::world("");
    let mut host = Host::legacy(&world, &json!({}));
    let told = host.call("do_it", request("command:mark")["input"].clone()).to_string();
    assert!(told.contains("tool-not-allowed") && told.contains("server.inline"), "{told}");
    value(&host.call("do_it", request("command:peek")["input"].clone()));
    assert_eq!(marks(&world), 0);
    let world = self::world("server: { inline: marks }\n");
    let mut host = Host::legacy(&world, &json!({}));
    value(&host.call("do_it", request("command:mark")["input"].clone()));
    assert_eq!(marks(&world), 1);
}

/// D3: the same when a caller with `compose` resumes the run after a restart.
#[test]
fn what_a_run_expands_after_a_restart_is_its_callers() {
    let mut server = format!("server:\n  token: {TOKEN}\n  principals:\n");
    server.push_str(&entry("reader", "read, run", ""));
    let world = world(&server);
    world.file(
        "lib/later.yaml",
        "name: later\nsteps: [ { id: w, approve: { message: 'Go on?' } }, \
         { id: a, depends_on: [w], expand: '{{ input.plan }}' } ]\n",
    );
    let served = Served::start(&world, "sqlite:runs.db", &[]);
    let made = json!({ "name": "made", "steps": [{ "id": "a", "tool": "command:mark" }] });
    let request = json!({ "name": "later", "input": { "plan": made } });
    let waiting = served.post_as("reader", EXECUTE, &request).is(202);
    let run = waiting["run_id"].as_str().unwrap();
    drop(served);
    let served = Served::start(&world, "sqlite:runs.db", &[]);
    let path = format!("/api/v1/runs/{run}/approve");
    let told = served.send("POST", &path, &[], &json!({ "approved": true })).json().to_string();
    assert!(told.contains("tool-not-allowed") && told.contains("`compose`"), "{told}");
    assert_eq!(marks(&world), 0);
}

/// S0: approval is a right of its own, whether given in advance or while a run waits; on MCP a
/// caller without it is not asked, and the run waits for one who has it.
#[test]
fn consent_is_a_right_of_its_own() {
    let (world, served) = served(&[("reader", "read, run")]);
    let approved = json!({ "name": "erase-it", "options": { "approved": true } });
    let problem = served.post_as("reader", EXECUTE, &approved).is_problem(403, "unauthorized");
    assert!(problem["detail"].as_str().unwrap().contains("`approve`"), "{problem}");
    let answer = served.post_as("reader", "/graphql", &graphql(&approved)).is(200);
    assert!(answer["errors"][0]["message"].as_str().unwrap().contains("`approve`"), "{answer}");
    let waiting = served.post_as("reader", EXECUTE, &json!({ "name": "erase-it" })).is(202);
    let run = waiting["run_id"].as_str().unwrap();
    // A person who approves sees everything that the approval covers, on every surface.
    let covers = json!([{ "tool": "command:erase", "effect": "destroys", "arguments": {},
        "can_be_undone": false, "takes_back": false }]);
    assert_eq!(waiting["waiting_for"][0]["covers"], covers, "{waiting}");
    let view = served.get_as("reader", &format!("/api/v1/runs/{run}")).is(200);
    assert_eq!(view["waiting_for"][0]["covers"], covers, "{view}");
    let query = format!(
        "{{ run(runId: \"{run}\") {{ waitingFor {{ covers {{ tool effect arguments canBeUndone }} }} }} }}"
    );
    let answer = served.post_as("reader", "/graphql", &json!({ "query": query })).is(200);
    let covered = &answer["data"]["run"]["waitingFor"][0]["covers"][0];
    assert_eq!(covered["tool"], "command:erase", "{answer}");
    assert_eq!(covered["canBeUndone"], false, "{answer}");
    let told = served.call_as("reader", "run_get", &json!({ "run_id": run }));
    let told = &told["result"]["structuredContent"]["waiting_for"][0]["covers"];
    assert_eq!(told, &covers, "{told}");
    let path = format!("/api/v1/runs/{run}/approve");
    let problem = served.post_as("reader", &path, &json!({ "approved": true }));
    let problem = problem.is_problem(403, "unauthorized");
    assert!(problem["detail"].as_str().unwrap().contains("`approve`"), "{problem}");
    let query = format!("mutation {{ approveRun(runId: \"{run}\", approved: true) {{ status }} }}");
    let answer = served.post_as("reader", "/graphql", &json!({ "query": query })).is(200);
    assert!(answer["errors"][0]["message"].as_str().unwrap().contains("`approve`"), "{answer}");
    let answers = json!({ "a": { "action": "accept", "content": {} } });
    let update = json!({ "taskId": run, "inputResponses": answers });
    let answer = served.mcp_as("reader", "tasks/update", update);
    assert!(answer["error"]["message"].as_str().unwrap().contains("`approve`"), "{answer}");
    let answer = served.call_as("reader", "erase_it", &json!({}));
    let told =
        answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"));
    assert!(told.contains("waits") && told.contains("`approve`"), "{told}");
    assert!(told.contains("command:erase: may destroy, cannot be rolled back, with {}"), "{told}");
    assert_eq!(marks(&world), 0);
    served.send("POST", &path, &[], &json!({ "approved": true })).is(200);
    assert_eq!(marks(&world), 1);
}

/// D4: the one question of an atomic composition lists what its calls are given, too.
#[test]
fn a_question_for_all_calls_lists_their_arguments() {
    let (world, served) = served(&[("reader", "read, run")]);
    world.file(
        "lib/tidy.yaml",
        "name: tidy\natomic: true\nsteps:\n\
         \x20 - { id: a, tool: files_delete, parameters: { path: old.txt } }\n\
         \x20 - { id: b, tool: files_delete, parameters: { path: '{{ input.path }}' } }\n",
    );
    let request = json!({ "name": "tidy", "input": { "path": "x" } });
    let waiting = crate::support::until(|| {
        let answer = served.post_as("reader", EXECUTE, &request);
        (answer.status == 202).then(|| answer.json())
    });
    let covers = waiting["waiting_for"][0]["covers"].as_array().unwrap();
    let deletes: Vec<&Json> =
        covers.iter().filter(|call| call["tool"] == "builtin:files_delete").collect();
    assert_eq!(deletes[0]["arguments"], json!({ "path": "old.txt" }), "{covers:?}");
    assert_eq!(deletes[1]["arguments"], json!({ "path": "{{ input.path }}" }), "{covers:?}");
}

/// D3: checkpoints belong to their principal: those of others are not visible.
#[test]
fn checkpoints_are_hidden_from_other_principals() {
    let world = world("");
    world.file(
        "lib/keep.yaml",
        "name: keep\nsteps: [ { id: a, tool: checkpoint_save, parameters: { content: 'a secret' } } ]\n",
    );
    world.file(
        "lib/find.yaml",
        "name: find\nsteps:\n  - { id: a, tool: checkpoint_search, parameters: { query: secret, manual: never } }\n\
         \x20 - { id: b, tool: checkpoint_list }\n",
    );
    let mut server = format!("{CONFIG}server:\n  token: {TOKEN}\n  principals:\n");
    server.extend(["ada", "bob"].map(|name| entry(name, "read, run", "")));
    world.file("segue.yaml", server);
    let served = Served::start(&world, "sqlite:runs.db", &[]);
    served.post_as("ada", EXECUTE, &json!({ "name": "keep" })).is(200);
    let found = |who: &str| {
        let ran = served.post_as(who, EXECUTE, &json!({ "name": "find" })).is(200);
        let listed = ran["output"]["b"]["checkpoints"].as_array().unwrap().len();
        (ran["output"]["a"]["count"].as_u64().unwrap(), listed)
    };
    assert_eq!((found("ada"), found("bob")), ((1, 1), (0, 0)));
    // The operator's, at the command line and by the token, are in one place, and not Ada's.
    let args = ["--config", "segue.yaml", "--store", "sqlite:runs.db", "run", "keep", "--json"];
    world.json(0, &args);
    let ran = served.post(EXECUTE, &json!({ "name": "find" })).is(200);
    assert_eq!(ran["output"]["a"]["count"], 1, "{ran}");
    assert_eq!(found("ada"), (1, 1));
}
