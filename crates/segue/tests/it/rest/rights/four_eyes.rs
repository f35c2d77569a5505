//! Four eyes: the principal that started a run does not answer its questions, on any surface.

use super::{EXECUTE, entry};
use crate::serve::host::{Host, text};
use crate::served::{Served, TOKEN};
use crate::support::{Done, Json, World, json};

const CONFIG: &str = "\
compositions: ['lib/*.yaml']
commands:
  erase: { argv: [sh, -c, 'echo x >> marks.txt'], read_only: false }
tools: { 'command:erase': { destructive: true } }
";

/// Compositions that ask: before a call, once for all calls, and by a step of its own.
const ASKING: &[(&str, &str)] = &[
    ("erase", "name: erase\nsteps: [ { id: a, tool: 'command:erase' } ]\n"),
    ("all", "name: all\natomic: true\nsteps: [ { id: a, tool: 'command:erase' } ]\n"),
    ("ask", "name: ask\nsteps: [ { id: a, approve: { message: 'Go on?' } } ]\n"),
];

const STORE: &str = "sqlite:s.db";

/// Whose fault it is, in every response.
const REASON: &str = "another person must answer";

fn world(approvals: &str) -> World {
    let world = World::new();
    let mut config = format!("{CONFIG}server:\n  token: {TOKEN}\n{approvals}  principals:\n");
    config.push_str(&entry("ada", "read, run, compose, approve, write", ""));
    config.push_str(&entry("root", "admin", ""));
    world.file("segue.yaml", config);
    for (name, composition) in ASKING {
        world.file(&format!("lib/{name}.yaml"), composition);
    }
    world
}

fn four_eyes() -> World {
    world("  approvals: { four_eyes: true }\n")
}

fn marks(world: &World) -> usize {
    std::fs::read_to_string(world.path("marks.txt")).map_or(0, |text| text.lines().count())
}

fn cli(world: &World, args: &[&str]) -> Done {
    world.segue(&[&["--config", "segue.yaml", "--store", STORE], args].concat())
}

/// A client that can ask its user, and knows tasks.
fn asking() -> Json {
    json!({ "extensions": { "io.modelcontextprotocol/tasks": {} }, "elicitation": { "form": {} } })
}

impl Served {
    /// Starts a run of a composition, which waits.
    fn waits_of(&self, token: &str, name: &str) -> String {
        let started = self.send_by(token, "POST", EXECUTE, &[], &json!({ "name": name }));
        started.is(202)["run_id"].as_str().unwrap().to_owned()
    }
}

fn approve_path(run: &str) -> String {
    format!("/api/v1/runs/{run}/approve")
}

fn approve_mutation(run: &str) -> Json {
    json!({ "query": format!("mutation {{ approveRun(runId: \"{run}\", approved: true) {{ status }} }}") })
}

fn task_update(run: &str) -> Json {
    let answers = json!({ "a": { "action": "accept", "content": {} } });
    json!({ "taskId": run, "inputResponses": answers })
}

/// Who starts a run cannot consent beforehand, wherever that is said.
#[test]
fn who_starts_a_run_does_not_consent_to_it_beforehand() {
    let world = four_eyes();
    let served = Served::start(&world, STORE, &[]);
    let options = json!({ "approved": true });
    let earlier = served.waits_of("ada-token", "erase");
    served.post_as("ada", &format!("/api/v1/runs/{earlier}/cancel"), &json!({})).is(200);
    for (path, body) in [
        (EXECUTE.to_owned(), json!({ "name": "erase", "options": options })),
        (format!("/api/v1/runs/{earlier}/rerun"), json!({ "options": options })),
        ("/api/v1/tools/command:erase/call".to_owned(), options.clone()),
    ] {
        let problem = served.post_as("ada", &path, &body).is_problem(403, "unauthorized");
        assert!(problem["detail"].as_str().unwrap().contains(REASON), "{path}: {problem}");
        let body = served.post(&path, &body);
        assert!(body.is_problem(403, "unauthorized").to_string().contains(REASON), "{path}");
    }
    let query = "mutation { executeComposition(request: { name: \"erase\", options: { approved: true } }) { status } }";
    let answer = served.post_as("ada", "/graphql", &json!({ "query": query })).is(200);
    assert!(answer["errors"][0]["message"].as_str().unwrap().contains(REASON), "{answer}");
    for args in [&["run", "erase", "--yes"][..], &["call", "command:erase", "--yes"]] {
        let done = cli(&world, args);
        assert!(done.stderr.contains(REASON), "{args:?}: {done:?}");
    }
    cli(&world, &["call", "command:erase"]).exits(3);
    assert_eq!(marks(&world), 0);
    cli(&world, &["run", "erase", "--yes", "--dry-run"]).exits(0);
}

/// The starter's answers are refused on every surface, and those of another principal are accepted there.
#[test]
fn another_principal_answers_on_every_surface() {
    let world = four_eyes();
    let served = Served::start(&world, STORE, &[]);
    for name in ["erase", "all", "ask"] {
        let run = served.waits_of("ada-token", name);
        for answer in [json!({ "approved": true }), json!({ "approved": false })] {
            let problem = served.post_as("ada", &approve_path(&run), &answer);
            let problem = problem.is_problem(403, "unauthorized");
            assert!(problem["detail"].as_str().unwrap().contains(REASON), "{problem}");
        }
        let answer = served.post_as("ada", "/graphql", &approve_mutation(&run)).is(200);
        assert!(answer["errors"][0]["message"].as_str().unwrap().contains(REASON), "{answer}");
        let answer = served.mcp_with("ada", &asking(), "tasks/update", task_update(&run));
        assert!(answer["error"]["message"].as_str().unwrap().contains(REASON), "{answer}");
        let task = served.mcp_with("ada", &asking(), "tasks/get", json!({ "taskId": run }));
        assert_eq!(task["result"]["status"], "working", "{task}");
        let resume = json!({ "name": "run_resume", "arguments": { "run_id": run } });
        let resumed = served.mcp_with("ada", &asking(), "tools/call", resume)["result"].clone();
        assert_ne!(resumed["resultType"], "input_required", "{resumed}");
        let view = served.get_as("ada", &format!("/api/v1/runs/{run}")).is(200);
        assert_eq!((&view["status"], &view["principal"]), (&json!("waiting"), &json!("ada")));
    }
    assert_eq!(marks(&world), 0);
    // REST, GraphQL, MCP, the command line.
    let run = served.waits_of("ada-token", "erase");
    served.post_as("root", &approve_path(&run), &json!({ "approved": true })).is(200);
    assert_eq!(marks(&world), 1);
    let run = served.waits_of("ada-token", "erase");
    let answer = served.post_as("root", "/graphql", &approve_mutation(&run)).is(200);
    assert_eq!(answer["data"]["approveRun"]["status"], "success", "{answer}");
    let run = served.waits_of("ada-token", "erase");
    let task = served.mcp_with("root", &asking(), "tasks/get", json!({ "taskId": run }));
    assert_eq!(task["result"]["status"], "input_required", "{task}");
    let answer = served.mcp_with("root", &asking(), "tasks/update", task_update(&run));
    assert!(answer.get("error").is_none(), "{answer}");
    let wait = json!({ "run_id": run, "wait_ms": 30_000 });
    let ended = served.call_as("root", "run_get", &wait)["result"]["structuredContent"].clone();
    assert_eq!(ended["status"], "success", "{ended}");
    let run = served.waits_of("ada-token", "erase");
    cli(&world, &["approve", &run]).exits(0);
    assert_eq!(marks(&world), 4);
}

/// A call in doubt is settled by another person, too.
#[test]
fn another_principal_settles_a_call_in_doubt() {
    let world = four_eyes();
    let served = Served::start(&world, STORE, &[]);
    let run = served.waits_of("ada-token", "erase");
    let path = format!("/api/v1/runs/{run}/resume");
    let problem = served.post_as("ada", &path, &json!({ "assume": "failed" }));
    assert!(problem.is_problem(403, "unauthorized").to_string().contains(REASON), "{problem:?}");
    let query = format!("mutation {{ resumeRun(runId: \"{run}\", assume: failed) {{ status }} }}");
    let answer = served.post_as("ada", "/graphql", &json!({ "query": query })).is(200);
    assert!(answer["errors"][0]["message"].as_str().unwrap().contains(REASON), "{answer}");
    // Nothing is in doubt: the other principal gets past the rule.
    let problem = served.post_as("root", &path, &json!({ "assume": "failed" }));
    assert!(!problem.body.contains(REASON), "{problem:?}");
}

/// The inbox says who may answer, and why not.
#[test]
fn the_inbox_says_why_a_question_is_not_the_callers() {
    let world = four_eyes();
    let served = Served::start(&world, STORE, &[]);
    served.waits_of("ada-token", "erase");
    let question = |who: &str| {
        let answer = served.get_as(who, "/api/v1/questions");
        crate::rest::documented("GET", "/api/v1/questions", &answer);
        answer.is(200)["questions"][0].clone()
    };
    let of_ada = question("ada");
    assert_eq!((&of_ada["answerable"], &of_ada["principal"]), (&json!(false), &json!("ada")));
    let reason = of_ada["not_answerable_because"].as_str().unwrap();
    assert!(reason.contains(REASON), "{reason}");
    let of_root = question("root");
    assert_eq!(of_root["answerable"], true);
    assert_eq!(of_root["not_answerable_because"], json!(null));
}

/// The operator is one person: at the command line, with the server's token, and at a stdio host.
#[test]
fn the_operator_is_one_person_by_every_way_in() {
    let world = four_eyes();
    let served = Served::start(&world, STORE, &[]);
    let is_refused = |run: &str| {
        let problem = served.post(&approve_path(run), &json!({ "approved": true }));
        problem.is_problem(403, "unauthorized");
        for args in [
            &["approve", run][..],
            &["approve", run, "--deny"],
            &["resume", run, "--yes"],
            &["resume", run, "--assume", "done"],
            &["rollback", run, "--yes"],
        ] {
            let done = cli(&world, args);
            assert!(done.stderr.contains(REASON), "{args:?}: {done:?}");
        }
        served.post_as("root", &approve_path(run), &json!({ "approved": true })).is(200);
    };
    is_refused(&served.waits_of(TOKEN, "erase"));
    let done = cli(&world, &["--output", "json", "run", "erase"]).exits(3);
    assert!(!done.stderr.contains("denied"), "{done:?}");
    is_refused(done.json()["run_id"].as_str().unwrap());
    for mut host in
        [Host::legacy(&world, &asking()), Host::modern(&world, &json!({ "elicitation": {} }))]
    {
        for tool in ["erase", "all", "ask"] {
            let result = host.call(tool, json!({}));
            assert_eq!(host.unread("elicitation/create"), 0, "{tool}");
            assert!(text(&result).contains("waits for an answer"), "{tool}: {result}");
            is_refused(result["_meta"]["segue/runId"].as_str().unwrap());
        }
    }
}

/// Without the rule who starts a run may answer; a stdio host that cannot ask is denied or waits, as the
/// configuration says.
#[test]
fn a_host_that_cannot_ask_waits_if_the_configuration_says_so() {
    let world = self::world("  approvals: { without_elicitation: wait }\n");
    let mut host = Host::legacy(&world, &json!({}));
    for tool in ["erase", "all"] {
        let result = host.call(tool, json!({}));
        assert!(text(&result).contains("waits for an answer"), "{tool}: {result}");
        let run = result["_meta"]["segue/runId"].as_str().unwrap();
        let before = marks(&world);
        cli(&world, &["approve", run]).exits(0);
        assert_eq!(marks(&world), before + 1, "{tool}");
    }
    // A host that declares elicitation and then fails leaves the question open, too.
    let mut host = Host::legacy(&world, &asking());
    for (tool, times) in [("erase", 1), ("all", 2)] {
        let id = host.begin("tools/call", json!({ "name": tool, "arguments": {} }));
        for _ in 0..times {
            let asked = host.request("elicitation/create");
            let refusal = json!({ "code": -32601, "message": "no" });
            host.send(&json!({ "jsonrpc": "2.0", "id": asked["id"], "error": refusal }));
        }
        let result = host.answer(id)["result"].clone();
        assert!(text(&result).contains("waits for an answer"), "{tool}: {result}");
    }
    assert_eq!(marks(&world), 2);
    let world = self::world("  approvals: { without_elicitation: deny }\n");
    let mut host = Host::legacy(&world, &json!({}));
    for tool in ["erase", "all"] {
        let told = host.call(tool, json!({})).to_string();
        assert!(told.contains("without_elicitation: wait"), "{tool}: {told}");
    }
    let mistake = self::world("  approvals: { without_elicitation: maybe, four_ears: true }\n");
    let told = cli(&mistake, &["run", "erase"]).exits(2).stderr;
    assert!(told.contains("`deny` or `wait`") && told.contains("four_ears"), "{told}");
}

/// A reload applies the rule to runs that already wait.
#[test]
fn a_reload_changes_who_may_answer() {
    let world = self::world("");
    let served = Served::start(&world, STORE, &["--watch"]);
    let run = served.waits_of("ada-token", "erase");
    let config = std::fs::read_to_string(world.path("segue.yaml")).unwrap();
    let strict = config.replace("server:\n", "server:\n  approvals: { four_eyes: true }\n");
    world.file("segue.yaml", strict);
    served.said("configuration reloaded");
    let yes = json!({ "approved": true });
    served.post_as("ada", &approve_path(&run), &yes).is_problem(403, "unauthorized");
    world.file("segue.yaml", config);
    crate::support::until(|| {
        (served.post_as("ada", &approve_path(&run), &yes).status == 200).then_some(())
    });
    assert_eq!(marks(&world), 1);
}
