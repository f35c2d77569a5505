//! A caller that wants more than its rights, as a principal with `read` and `run` over REST,
//! GraphQL and MCP, and as a host on stdio that cannot ask a person: every attempt is refused with
//! its reason, and no file changes.

mod caller;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::Stdio;

use segue::http::route::Verb;
use segue::server::routes;
use segue_core::access::Right;
use segue_core::tool::hex_digest;

use self::caller::Caller;
use super::client::Client;
use super::{OPERATOR, Table, is_long, nothing, say};
use crate::served::Served;
use crate::support::{Json, SEGUE, World, json};

const EXECUTE: &str = "/api/v1/compositions/execute";

/// The file tools reach the whole folder, as the least careful operator would have it.
const CONFIG: &str = "\
compositions: ['lib/*.yaml']
templates: ['templates/*.yaml']
builtins: { files: { root: . } }
commands: { hello: { argv: [echo, hello], destructive: false } }
";

/// What is served: each passes on what its caller says.
const SERVED: &[(&str, &str)] = &[
    (
        "put",
        "files_write, parameters: { path: '{{ input.path }}', content: '{{ input.content }}' }",
    ),
    (
        "edit",
        "files_edit, parameters: { path: '{{ input.path }}', find: a, replace: b, all: true }",
    ),
    ("remove", "files_delete, parameters: { path: '{{ input.path }}' }"),
    (
        "restore",
        "files_restore, parameters: { path: '{{ input.path }}', content: '{{ input.content }}' }",
    ),
    ("keep", "checkpoint_save, parameters: { content: '{{ input.content }}' }"),
    ("recall", "checkpoint_search, parameters: { query: '{{ input.content }}', manual: never }"),
    ("list", "checkpoint_list, parameters: { limit: 50 }"),
    ("forget", "checkpoint_delete, parameters: { id: '{{ input.content }}' }"),
];

/// Principals, their rights, and their tokens.
const RUNNER: (&str, &str, &str) =
    ("runner", "read, run", "runner-token-of-more-than-32-characters");
const ADA: (&str, &str, &str) =
    ("ada", "read, run, write", "ada-token-of-more-than-thirty-two-chars");
const SCRAPER: (&str, &str, &str) =
    ("scraper", "metrics", "scraper-token-of-more-than-32-characters");

fn world(principals: &[(&str, &str, &str)]) -> World {
    let mut server = format!("server:\n  token: {OPERATOR}\n  principals:\n");
    for (name, rights, token) in principals {
        let hash = hex_digest(token.as_bytes());
        let _ = writeln!(server, "    {name}: {{ token: 'sha256:{hash}', rights: [{rights}] }}");
    }
    let world = World::new();
    world.file("segue.yaml", format!("{CONFIG}{server}"));
    for (name, call) in SERVED {
        let text =
            format!("name: {name}\nsteps: [ {{ id: a, tool: {call} }} ]\noutput: '{{{{ a }}}}'\n");
        world.file(&format!("lib/{name}.yaml"), text);
    }
    world.file(
        "templates/own.yaml",
        "id: own\ncomposition:\n  name: own\n  steps: [ { id: a, tool: echo } ]\n",
    );
    world.file("notes/old.txt", "a text that is there");
    world
}

/// Other names of Segue's own files.
fn link(world: &World) {
    use std::os::unix::fs::symlink;
    symlink("segue.yaml", world.path("soft.yaml")).unwrap();
    symlink("lib", world.path("folder")).unwrap();
    symlink(".mcp.json", world.path("notes/none.json")).unwrap();
    std::fs::hard_link(world.path("segue.yaml"), world.path("hard.txt")).unwrap();
    std::fs::hard_link(world.path("lib/put.yaml"), world.path("hard-put.txt")).unwrap();
}

/// Paths of Segue's own files: those that are there, those that would be read if they were, and other
/// ways to write both.
const OWN_FILES: &[&str] = &[
    "segue.yaml",
    "./segue.yaml",
    "lib/../segue.yaml",
    "notes/../segue.yaml",
    "segue.yaml/",
    "./lib//put.yaml",
    "soft.yaml",
    "hard.txt",
    "hard-put.txt",
    "segue.yml",
    ".mcp.json",
    "sub/.mcp.json",
    "sub/segue.yaml",
    "lib/put.yaml",
    "lib/new.yaml",
    "folder/new.yaml",
    "folder/put.yaml",
    "templates/own.yaml",
    "templates/new.yaml",
    "notes/none.json",
    "s.db",
    "s.db-wal",
    "s.db-shm",
    "s.db-owners",
];

/// Every file and link below the folder with what is in it, but for the store's, which runs change.
fn files(world: &World) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut folders = vec![world.folder()];
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            let is_link = path.symlink_metadata().unwrap().is_symlink();
            let name = path.strip_prefix(world.folder()).unwrap().to_owned();
            if is_link {
                let target = std::fs::read_link(&path).unwrap();
                all.insert(name, target.into_os_string().into_encoded_bytes());
            } else if path.is_dir() {
                folders.push(path);
            } else if !name.to_string_lossy().starts_with("s.db") {
                all.insert(name, std::fs::read(&path).unwrap());
            }
        }
    }
    all
}

/// Whether the file of the store still is one.
fn is_store(world: &World) -> bool {
    std::fs::read(world.path("s.db")).is_ok_and(|bytes| bytes.starts_with(b"SQLite format 3\0"))
}

/// Something that must not succeed.
struct Attempt {
    what: String,
    request: Json,
    /// The reason names one of these; any reason will do when there are none.
    reasons: Vec<String>,
    /// Whether it must not succeed either when a person says yes to it.
    is_out_of_reach: bool,
}

fn attempt(what: &str, request: Json, reasons: &[&str]) -> Attempt {
    let reasons = reasons.iter().map(|word| (*word).to_owned()).collect();
    Attempt { what: what.to_owned(), request, reasons, is_out_of_reach: false }
}

/// A composition of one step that the caller wrote.
fn inline(tool: &str, parameters: &Json) -> Json {
    let step = json!({ "id": "a", "tool": tool, "parameters": parameters });
    json!({ "composition": { "name": "mine", "steps": [step] } })
}

fn attempts(world: &World) -> Vec<Attempt> {
    const AUTHOR: &[&str] = &["compose", "inline", "toolset"];
    let new = json!({ "path": "notes/new.txt", "content": "x" });
    let text = "name: mine\nsteps: [ { id: a, tool: files_write, parameters: { path: notes/y.txt, content: y } } ]\n";
    let over = json!({ "path": "notes/old.txt", "content": "overwritten" });
    let mut all = vec![
        attempt("an inline write", inline("files_write", &new), AUTHOR),
        attempt("an inline write as text", json!({ "composition": text }), AUTHOR),
        attempt("an inline command", inline("command:hello", &json!({})), AUTHOR),
        attempt(
            "an inline request",
            inline("http_request", &json!({ "url": "http://127.0.0.1:1/" })),
            AUTHOR,
        ),
        attempt("overwriting without a yes", json!({ "name": "put", "input": over }), &[]),
        attempt(
            "editing without a yes",
            json!({ "name": "edit", "input": { "path": "notes/old.txt" } }),
            &[],
        ),
        attempt(
            "deleting without a yes",
            json!({ "name": "remove", "input": { "path": "notes/old.txt" } }),
            &[],
        ),
    ];
    for name in ["put", "edit", "remove", "restore"] {
        let request = json!({ "name": name, "input": over, "options": { "approved": true } });
        all.push(attempt(&format!("`{name}` with options.approved"), request, &["approve"]));
    }
    for path in OWN_FILES {
        let file = path.trim_end_matches('/').rsplit('/').next().unwrap();
        // Deleting what is not there does nothing.
        let removes = world.path(path).exists().then_some("remove");
        for name in ["put", "edit", "restore"].into_iter().chain(removes) {
            let content = "commands: { evil: { argv: [id], destructive: false } }\n";
            let request = json!({ "name": name, "input": { "path": path, "content": content } });
            let what = format!("`{name}` of `{path}`");
            let attempt = attempt(&what, request, &["own file", file, "path", "was not confirmed"]);
            all.push(Attempt { is_out_of_reach: true, ..attempt });
        }
    }
    all
}

const COLUMNS: &[&str] = &["tried", "refused", "reached", "changed files", "no reason"];

/// Approves a waiting run without looking at it. Returns the result as text; `None` when nothing
/// waits.
fn approve(world: &World, operator: Option<&Client>, run_id: &str) -> Option<String> {
    if let Some(operator) = operator {
        let path = format!("/api/v1/runs/{run_id}/approve");
        let answer = operator.post(&path, &json!({ "approved": true })).unwrap();
        let view = (answer.status == 200).then(|| answer.json())?;
        return Some(view["errors"][0]["message"].as_str().unwrap_or_default().to_owned());
    }
    // A process for each takes its time.
    if !is_long() {
        return None;
    }
    let base = ["--config", "segue.yaml", "--store", "sqlite:s.db"];
    let done = world.segue(&[&base[..], &["approve", run_id, "-q"]].concat());
    (done.code != Some(2)).then_some(done.stderr)
}

/// Tries everything and writes down what was not refused.
fn attack(
    world: &World,
    caller: &mut Caller,
    operator: Option<&Client>,
    table: &mut Table,
) -> Vec<String> {
    let mut findings = Vec::new();
    let before = files(world);
    for Attempt { what, request, reasons, is_out_of_reach } in attempts(world) {
        let mut said = caller.execute(&request);
        let run_id = said.run_id.clone().filter(|_| is_out_of_reach && !said.is_done);
        if let Some(reason) = run_id.and_then(|run_id| approve(world, operator, &run_id)) {
            said.reason = reason;
        }
        let surface = caller.surface();
        table.add(surface, "tried", 1);
        let (after, is_store) = (files(world), is_store(world));
        let reason = said.reason.to_lowercase();
        let names = |word: &String| reason.contains(&word.to_lowercase());
        let has_reason = !reason.is_empty() && (reasons.is_empty() || reasons.iter().any(names));
        let about = || format!("{surface}: {what}: {:.300}", said.all);
        match (said.is_done, after == before && is_store) {
            (true, _) => {
                table.add(surface, "reached", 1);
                findings.push(format!("reached: {}", about()));
            }
            (false, false) => findings.push(format!("changed: {}", about())),
            (false, true) if !has_reason => {
                table.add(surface, "no reason", 1);
                findings.push(format!("no reason: {}", about()));
            }
            (false, true) => table.add(surface, "refused", 1),
        }
        if after != before || !is_store {
            table.add(surface, "changed files", 1);
            mend(world, &before);
        }
    }
    findings
}

/// Puts every file back, so that the next attempt meets what the first one met.
fn mend(world: &World, before: &BTreeMap<PathBuf, Vec<u8>>) {
    let after = files(world);
    for name in after.keys().filter(|name| !before.contains_key(*name)) {
        std::fs::remove_file(world.folder().join(name)).unwrap();
    }
    for (name, bytes) in before {
        let path = world.folder().join(name);
        let is_link = path.symlink_metadata().is_ok_and(|found| found.is_symlink());
        let is_same = after.get(name) == Some(bytes);
        if !is_link && !is_same {
            std::fs::write(path, bytes).unwrap();
        }
    }
}

/// D: who may, can: what is tried below is not impossible for another reason.
#[test]
fn what_is_given_is_reached() {
    let world = world(&[RUNNER]);
    let served = Served::start(&world, "sqlite:s.db", &[]);
    let operator = Client::of(&served, OPERATOR);
    let new = json!({ "path": "notes/new.txt", "content": "x" });
    let done = operator.post(EXECUTE, &inline("files_write", &new)).unwrap();
    assert_eq!(done.is(200)["success"], true);
    let over = json!({ "name": "put", "input": { "path": "notes/old.txt", "content": "new" },
                       "options": { "approved": true } });
    assert_eq!(operator.post(EXECUTE, &over).unwrap().is(200)["success"], true);
    assert_eq!(std::fs::read(world.path("notes/old.txt")).unwrap(), b"new");
    let runner = Client::of(&served, RUNNER.2);
    let put = json!({ "name": "put", "input": { "path": "notes/mine.txt", "content": "x" } });
    assert_eq!(runner.post(EXECUTE, &put).unwrap().is(200)["success"], true);
    let reads = inline("files_read", &json!({ "path": "notes/old.txt" }));
    let said = Caller::stdio(&world).execute(&reads);
    assert!(said.is_done, "{said:?}");
}

/// D: every attempt on every surface is refused, with the reason, and no file changes.
#[test]
fn a_caller_reaches_only_what_it_was_given() {
    let mut table = Table::new("reach", COLUMNS);
    let mut findings = Vec::new();
    let surfaces: [fn(Client) -> Caller; 3] = [Caller::Rest, Caller::Graphql, Caller::Mcp];
    for surface in surfaces {
        let world = world(&[RUNNER]);
        link(&world);
        let served = Served::start(&world, "sqlite:s.db", &[]);
        let mut caller = surface(Client::of(&served, RUNNER.2));
        let operator = Client::of(&served, OPERATOR);
        findings.extend(attack(&world, &mut caller, Some(&operator), &mut table));
        let ready = operator.get("/readyz").unwrap().status;
        assert_eq!(ready, 200, "{}", caller.surface());
    }
    let world = world(&[RUNNER]);
    link(&world);
    findings.extend(attack(&world, &mut Caller::stdio(&world), None, &mut table));
    table.print();
    nothing(&findings);
}

/// The attempts, and those that succeeded although they must not.
#[derive(Default)]
struct Tries {
    tried: u64,
    wrong: Vec<String>,
}

impl Tries {
    fn hold(&mut self, what: &str, is_refused: bool, said: &dyn std::fmt::Debug) {
        self.tried += 1;
        if !is_refused {
            self.wrong.push(format!("{what}: {said:?}").chars().take(400).collect());
        }
    }

    /// A run of another principal is not visible, on any surface.
    fn at_run(&mut self, client: &Client, id: &str) {
        let path = |action: &str| format!("/api/v1/runs/{id}{action}");
        for read in ["", "/events"] {
            let answer = client.get(&path(read)).unwrap();
            self.hold(&path(read), answer.status == 404, &answer);
        }
        for (act, body) in [
            ("/approve", json!({ "approved": true })),
            ("/cancel", json!({})),
            ("/resume", json!({})),
            ("/rollback", json!({})),
        ] {
            let answer = client.post(&path(act), &body).unwrap();
            self.hold(&path(act), matches!(answer.status, 403 | 404), &answer);
        }
        for (query, field) in [
            ("query ($r: ID!) { run(runId: $r) { runId } }", "run"),
            (
                "mutation ($r: ID!) { approveRun(runId: $r, approved: true) { runId } }",
                "approveRun",
            ),
            ("mutation ($r: ID!) { cancelRun(runId: $r) { runId } }", "cancelRun"),
        ] {
            let answer = client.graphql(query, &json!({ "r": id })).unwrap();
            let is_refused = answer["data"][field].is_null() && answer["errors"][0].is_object();
            self.hold(query, is_refused, &answer);
        }
        for tool in ["run_get", "run_cancel"] {
            let call = json!({ "name": tool, "arguments": { "run_id": id } });
            let answer = client.mcp("tools/call", call).unwrap();
            let is_refused = answer["result"]["isError"] == true || answer["error"].is_object();
            self.hold(tool, is_refused, &answer);
        }
        for method in ["tasks/get", "tasks/cancel"] {
            let answer = client.mcp(method, json!({ "taskId": id })).unwrap();
            self.hold(method, answer["error"].is_object(), &answer);
        }
    }

    /// Templates are changed by those who may.
    fn at_templates(&mut self, client: &Client) {
        let steps = json!([{ "id": "a", "tool": "echo" }]);
        let template = json!({ "id": "mine", "composition": { "name": "m", "steps": steps } });
        let all = "/api/v1/compositions/templates";
        let one = format!("{all}/own");
        for (verb, path, body) in
            [("POST", all, &template), ("PUT", &one, &template), ("DELETE", &one, &json!(null))]
        {
            let answer = client.send(verb, path, &[], body).unwrap();
            self.hold(&format!("{verb} {path}"), answer.status == 403, &answer);
        }
        let call = json!({ "name": "composition_create_template", "arguments": template });
        let answer = client.mcp("tools/call", call).unwrap();
        self.hold("composition_create_template", answer["error"].is_object(), &answer);
        let query = "mutation ($t: TemplateRequest!) { createTemplate(template: $t) { id } }";
        let answer = client.graphql(query, &json!({ "t": template })).unwrap();
        self.hold("createTemplate", answer["errors"][0].is_object(), &answer);
    }
}

/// D: runs, checkpoints and templates of another principal are not visible, on any surface.
#[test]
fn what_others_have_is_not_there() {
    let world = world(&[RUNNER, ADA]);
    let served = Served::start(&world, "sqlite:s.db", &[]);
    let (ada, runner) = (Client::of(&served, ADA.2), Client::of(&served, RUNNER.2));
    let run = |client: &Client, name: &str, content: &str| {
        client.post(EXECUTE, &json!({ "name": name, "input": { "content": content } })).unwrap()
    };
    let kept = run(&ada, "keep", "ada's secret of the blue whale").is(200);
    let checkpoint = kept["output"]["id"].as_str().unwrap_or_else(|| panic!("{kept}"));
    let waiting = run(&ada, "forget", checkpoint).is(202);
    let mut tries = Tries::default();
    tries.at_run(&runner, kept["run_id"].as_str().unwrap());
    tries.at_run(&runner, waiting["run_id"].as_str().unwrap());
    tries.at_templates(&runner);
    for (name, content) in [("recall", "secret of the blue whale"), ("list", "")] {
        let answer = run(&runner, name, content);
        let is_hidden = !answer.body.contains("whale") && !answer.body.contains(checkpoint);
        tries.hold(name, is_hidden, &answer);
    }
    let answer = run(&runner, "forget", checkpoint);
    tries.hold("forget", answer.json()["success"] == false, &answer);
    let still = run(&ada, "recall", "secret of the blue whale");
    assert!(still.body.contains(checkpoint), "{still:?}");
    say(&format!(
        "reach: {} attempts on what others have, {} reached",
        tries.tried,
        tries.wrong.len()
    ));
    nothing(&tries.wrong);
}

/// D: a token for metrics reads metrics, and nothing else on any route or surface.
#[test]
fn a_token_for_metrics_can_do_nothing_else() {
    let world = world(&[SCRAPER]);
    let served = Served::start(&world, "sqlite:s.db", &[]);
    let scraper = Client::of(&served, SCRAPER.2);
    assert_eq!(scraper.get("/metrics").unwrap().status, 200);
    let (mut tried, mut wrong) = (0, Vec::new());
    let others = routes().into_iter().filter(|route| route.right != Right::Public);
    for route in others.filter(|route| !matches!(route.path, "/metrics" | "/mcp" | "/graphql")) {
        let path = route.path.replace("{id}", "x").replace("{name}", "x").replace("{path}", "x");
        let body = if route.verb == Verb::Get { json!(null) } else { json!({}) };
        let answer = scraper.send(route.verb.as_str(), &path, &[], &body).unwrap();
        tried += 1;
        if answer.status != 403 {
            wrong.push(format!("{} {path}: {}", route.verb.as_str(), answer.status));
        }
    }
    let answer = scraper.graphql("{ runs { runs { runId } } }", &json!({})).unwrap();
    if answer.get("errors").is_none() && answer["status"] != 403 {
        wrong.push(format!("GraphQL: {answer}"));
    }
    let answer = scraper.mcp("tools/call", json!({ "name": "list", "arguments": {} })).unwrap();
    if answer.get("error").is_none() && answer["status"] != 403 {
        wrong.push(format!("MCP: {answer}"));
    }
    say(&format!(
        "reach: {} attempts with a token for metrics, {} reached",
        tried + 2,
        wrong.len()
    ));
    nothing(&wrong);
}

/// D: `segue serve` does not start with a token that could be guessed.
#[test]
fn a_short_token_is_refused_at_the_start() {
    let world = world(&[RUNNER]);
    let config = std::fs::read_to_string(world.path("segue.yaml")).unwrap();
    world.file("segue.yaml", config.replace(OPERATOR, "${SEGUE_TOKEN}"));
    let mut wrong = Vec::new();
    for token in ["guessable", "a-token-of-only-thirty-one-char"] {
        let mut command = world.command(SEGUE);
        command.env("SEGUE_TOKEN", token).stderr(Stdio::piped());
        command.args([
            "--config",
            "segue.yaml",
            "--store",
            "memory",
            "serve",
            "--listen",
            "127.0.0.1:0",
        ]);
        let mut child = command.spawn().unwrap();
        let mut said = String::new();
        for line in BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok) {
            said = said + &line + "\n";
            if line.contains("listening at") {
                let _ = child.kill();
            }
        }
        let code = child.wait().unwrap().code();
        if code != Some(2) || !said.contains("32 characters") || said.contains(token) {
            wrong.push(format!("{token}: ended with {code:?}: {said}"));
        }
    }
    nothing(&wrong);
}
