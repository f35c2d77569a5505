//! One result, whatever the surface: the same document with the same input, through every surface.
//!
//! A row is a run, a column a surface. Each surface must give the same calls, output, status, errors and
//! result of the dialect as `segue run --json`, as far as it carries them. `acceptance/surfaces.md` is the
//! table of all runs; `just gen` writes it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;

use crate::mcp::real_servers;
use crate::seeds::{Example, folders};
use crate::served::{Served, TOKEN};
use crate::support::{Done, Json, SEGUE, World, json, repository};

/// Writes the page instead of comparing it.
const WRITE: &str = "SEGUE_WRITE_SURFACES";

/// How much of an output the page shows.
const SHOWN_CHARS_MAX: usize = 70;

const SURFACES: [&str; 6] = ["CLI", "REST", "GraphQL", "MCP", "Python", "nested"];

/// Runs beside those of the seeds, what each dialect does and each way to end: the name, the document,
/// the input and the status.
const CASES: &[(&str, &str, &str, &str)] = &[
    (
        "composition: success",
        r#"{name: sum-up, steps: [{id: a, tool: echo, parameters: {n: "{{ input.n }}"}},
            {id: b, tool: echo, parameters: {m: "{{ a.n + 1 }}"}}], output: {m: "{{ b.m }}"}}"#,
        r#"{"n": 20}"#,
        "success",
    ),
    (
        "composition: failure",
        "{name: it-fails, steps: [{id: a, tool: echo, parameters: {n: 1}},
            {id: b, tool: fail, parameters: {message: no luck}, depends_on: [a]}]}",
        "{}",
        "failed",
    ),
    (
        "composition: retry",
        "{name: tries-again, steps: [{id: a, tool: fail, parameters: {times: 1, value: 7},
            retry_count: 2}]}",
        "{}",
        "success",
    ),
    (
        "composition: rollback",
        "{name: rolls-back, steps: [{id: a, tool: checkpoint_save, parameters: {content: kept}},
            {id: b, tool: fail, depends_on: [a]}], error_handling: {rollback_on_failure: true}}",
        "{}",
        "rolled_back",
    ),
    (
        "composition: partial",
        "{name: in-part, steps: [{id: a, tool: echo, parameters: {n: 1}}, {id: b, tool: fail}],
            error_handling: {failure_strategy: partial_success}}",
        "{}",
        "partial",
    ),
    (
        "chain: success",
        r#"{name: chain_works, dialect: chain, parameters: [{name: text, type: string, required: true}],
            steps: [{tool: echo, inputs: {data: "{{ state.text }}"}, on_success: {map_outputs: {data: first}}},
            {tool: echo, inputs: {data: "2: {{ state.first }}"}, on_success: {map_outputs: {data: final_result}}}]}"#,
        r#"{"text": "Hello"}"#,
        "success",
    ),
    (
        "chain: failure",
        "{name: chain_fails, dialect: chain, steps: [{tool: echo, inputs: {data: 1},
            on_success: {map_outputs: {data: first}}}, {tool: fail, inputs: {message: down},
            on_failure: {action: retry, max_retries: 1}}]}",
        "{}",
        "failed",
    ),
    (
        "chain: a missing parameter",
        r#"{name: chain_needs, dialect: chain, parameters: [{name: text, type: string, required: true}],
            steps: [{tool: echo, inputs: {data: "{{ state.text }}"}}]}"#,
        "{}",
        "failed",
    ),
    (
        "skill: success",
        "{dialect: skill, name: skilled, steps: [{id: b, tool_id: echo, inputs: {n: 2}},
            {id: a, tool_id: echo, inputs: {n: 1}}]}",
        "{}",
        "success",
    ),
    (
        "skill: failure",
        "{dialect: skill, name: unskilled, steps: [{id: a, tool_id: echo, inputs: {n: 1}},
            {id: b, tool_id: fail, inputs: {message: no}}]}",
        "{}",
        "failed",
    ),
    (
        "plan: success",
        r#"{name: planned, tools: [{name: echo, parameters: {_id: abc}, dependsOn: null},
            {name: text_stats, parameters: {text: "{{echo._id}}"}, dependsOn: echo}],
            executionOrder: [echo, text_stats]}"#,
        "{}",
        "success",
    ),
    (
        "plan: failure",
        r#"{name: plan-fails, tools: [{name: echo, parameters: {_id: abc}, dependsOn: null},
            {name: fail, parameters: {message: "{{echo._id}}"}, dependsOn: echo}],
            executionOrder: [echo, fail]}"#,
        "{}",
        "failed",
    ),
    (
        "ToolHive: success",
        r#"{name: greet, description: Greets, parameters: {type: object, properties: {name: {type: string}}, required: [name]},
            steps: [{id: greet, type: tool, tool: builtin.echo, arguments: {text: "Hello {{.params.name}}"}}],
            output: {properties: {greeting: {type: string, value: "{{.steps.greet.output.text}}"}}}}"#,
        r#"{"name": "Ada"}"#,
        "success",
    ),
];

/// What one run came to, through one surface: only the members that the surface carries.
type Outcome = BTreeMap<&'static str, Json>;

/// A world that serves one document, and where its calls are seen.
struct Subject {
    world: World,
    file: &'static str,
    name: String,
    tool: String,
    input: Json,
    /// Whether the client in Python is tried: its libraries take a second to load.
    has_client: bool,
}

impl Subject {
    /// Runs it on the command line, which is what the others are held against.
    fn new(run: Run) -> (Subject, Outcome) {
        let Run { world, file, input, has_client, .. } = run;
        let mut config: Json =
            serde_json::from_str(&fs::read_to_string(world.path("segue.yaml")).unwrap()).unwrap();
        let args = ["run", file, "--yes", "--json", "-q", "--input", &input.to_string()];
        let view = world.segue(&[&["--store", "memory"], &args[..]].concat()).json();
        let name = view["name"].as_str().unwrap().to_owned();
        let calls = calls(&world);
        let outer = json!({ "name": "outer_of_it", "steps": [{ "id": "inner",
            "tool": format!("composition:{name}"), "parameters": input }], "output": "{{ inner }}" });
        world.file("outer.json", outer.to_string());
        config["compositions"] = json!([file]);
        config["server"] = json!({ "token": TOKEN });
        world.file("segue.yaml", config.to_string());
        let args = ["generate", &name, "--lang", "python", "-o", "client", "--json"];
        let report = world.json(0, &args);
        let tool = report["tool"].as_str().unwrap().to_owned();
        let mut outcome = of_view(&view);
        outcome.insert("calls", calls);
        (Subject { world, file, name, tool, input, has_client }, outcome)
    }

    /// What it comes to through every surface, in the order of [`SURFACES`] after the first.
    fn others(&self) -> Vec<Outcome> {
        // One server for all, but for built-in tools that keep something in its store.
        let shared = self.world.path("tools.json").exists().then(|| self.serve());
        let with = |way: &dyn Fn(&Served) -> Outcome| match &shared {
            Some(served) => way(served),
            None => way(&self.serve()),
        };
        let ways: [&dyn Fn() -> Outcome; 5] = [
            &|| with(&|served| self.rest(served)),
            &|| with(&|served| self.graphql(served)),
            &|| with(&|served| self.mcp(served)),
            &|| {
                if self.has_client { with(&|served| self.python(served)) } else { Outcome::new() }
            },
            &|| self.nested(),
        ];
        let through = |way: &&dyn Fn() -> Outcome| {
            let mut outcome = way();
            if !outcome.is_empty() {
                outcome.insert("calls", calls(&self.world));
            }
            outcome
        };
        ways.iter().map(through).collect()
    }

    fn serve(&self) -> Served {
        Served::start(&self.world, "memory", &[])
    }

    fn request(&self) -> Json {
        json!({ "name": self.name, "input": self.input, "options": { "approved": true } })
    }

    fn rest(&self, served: &Served) -> Outcome {
        let answer = served.post("/api/v1/compositions/execute", &self.request()).json();
        let Some(run_id) = answer["run_id"].as_str() else {
            // The run was refused before it began: a problem document.
            return [("codes", json!([answer["code"]]))].into();
        };
        // The response of the request and the stored run say the same.
        let stored = served.get(&format!("/api/v1/runs/{run_id}")).is(200);
        let of_both = ["duration", "duration_ms", "status", "output", "results", "steps_executed"];
        for member in of_both.into_iter().chain(["dialect_result", "chain_id", "completed_at"]) {
            assert_eq!(answer[member], stored[member], "{}: {member}", self.file);
        }
        of_view(&answer)
    }

    fn graphql(&self, served: &Served) -> Outcome {
        let errors = "errors { step tool code message attempts phase }";
        let query = format!(
            "mutation($request: CompositionRequest!) {{ executeComposition(request: $request) {{
                runId status success output results stepsExecuted dialectResult durationMs {errors} }} }}"
        );
        let body = json!({ "query": query, "variables": { "request": self.request() } });
        let answer = served.post("/graphql", &body).is(200);
        let run = &answer["data"]["executeComposition"];
        if run.is_null() {
            return [("codes", json!([answer["errors"][0]["extensions"]["code"]]))].into();
        }
        let run_id = run["runId"].as_str().unwrap();
        let stored = served.get(&format!("/api/v1/runs/{run_id}")).is(200);
        assert_eq!(stored["duration_ms"].as_f64(), run["durationMs"].as_f64());
        of_view(
            &json!({ "status": run["status"], "success": run["success"], "output": run["output"],
            "results": run["results"], "errors": run["errors"], "steps_executed": run["stepsExecuted"],
            "dialect_result": run["dialectResult"] }),
        )
    }

    fn mcp(&self, served: &Served) -> Outcome {
        let session = served.mcp_session();
        let ask = |tool: &str, arguments: &Json| {
            let message = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call",
                "params": { "name": tool, "arguments": arguments } });
            let body = served.mcp(Some(&session), &message).body;
            let mut data = body.lines().filter_map(|line| line.strip_prefix("data: "));
            let last = data.rfind(|data| !data.trim().is_empty());
            let answer: Json = serde_json::from_str(last.unwrap_or(&body)).unwrap();
            answer["result"].clone()
        };
        let result = ask(&self.tool, &self.input);
        let meta = &result["_meta"];
        let mut outcome = Outcome::new();
        if result["isError"] == true {
            outcome.extend(of_errors(&meta["segue/errors"]));
        } else {
            outcome.insert("output", masked(&unwrapped(&result["structuredContent"])));
        }
        let Some(run_id) = meta["segue/runId"].as_str() else { return outcome };
        if meta.get("segue/result").is_some_and(|own| own.get("duration").is_none()) {
            outcome.insert("result", masked(&meta["segue/result"]));
        }
        let run = ask("run_get", &json!({ "run_id": run_id }))["structuredContent"].clone();
        let stored = served.get(&format!("/api/v1/runs/{run_id}")).is(200);
        assert_eq!(stored["duration_ms"], run["duration_ms"], "{run}");
        for member in ["status", "success", "steps_executed"] {
            outcome.insert(member, run[member].clone());
        }
        outcome
    }

    fn python(&self, served: &Served) -> Outcome {
        let python = real_servers().join("hosts/bin/python");
        let mut command = self.world.command(python.to_str().unwrap());
        command.arg(repository().join("crates/segue/tests/it/parity.py"));
        command.args([&self.tool, &self.input.to_string()]);
        command.env("PYTHONPATH", self.world.path("client")).env("SEGUE_TOKEN", TOKEN);
        command.env("SEGUE_URL", format!("http://{}/mcp", served.address));
        let said = Done::of(command.output().unwrap()).exits(0).json();
        if said["errors"].is_array() {
            return of_errors(&said["errors"]);
        }
        let value = &said["value"];
        match value.get("chain_id") {
            Some(_) => [("result", masked(value))].into(),
            None => [("output", masked(value))].into(),
        }
    }

    fn nested(&self) -> Outcome {
        let args = ["--store", "memory", "run", "outer.json", "--yes", "--json", "-q"];
        let view = self.world.segue(&args).json();
        let mut outcome = of_view(&view);
        if view["started_at"].is_null() {
            // The check of the outer composition finds it first, and says so in its own words.
            return Outcome::new();
        }
        // Its own members are those of the outer run.
        for own in ["result", "results", "steps_executed", "errors", "status", "success"] {
            outcome.remove(own);
        }
        if view["success"] == false {
            outcome.remove("output");
        }
        outcome
    }
}

/// The calls since the last look, in any order: independent steps run at once.
fn calls(world: &World) -> Json {
    let path = world.path("calls.jsonl");
    let text = fs::read_to_string(&path).unwrap_or_default();
    let _ = fs::remove_file(&path);
    // The server answers from the beginning when its file is another one.
    if let Ok(tools) = fs::read(world.path("tools.json")) {
        fs::remove_file(world.path("tools.json")).unwrap();
        world.file("tools.json", tools);
    }
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    json!(lines)
}

/// The members of a run view that every surface has.
fn of_view(view: &Json) -> Outcome {
    let ns = view["duration"].as_u64();
    let ms = view["duration_ms"].as_u64();
    assert!(ns.is_none() || ns == ms.map(|ms| ms * 1_000_000), "{ns:?} and {ms:?}");
    let mut outcome = of_errors(&view["errors"]);
    if view["success"] == true || !view["output"].is_null() {
        outcome.insert("output", masked(&view["output"]));
    }
    for member in ["status", "success", "results", "steps_executed"] {
        outcome.insert(member, masked(&view[member]));
    }
    if view["dialect_result"].is_object() {
        outcome.insert("result", masked(&view["dialect_result"]));
    }
    outcome
}

fn of_errors(errors: &Json) -> Outcome {
    let errors = errors.as_array().cloned().unwrap_or_default();
    if errors.is_empty() {
        return Outcome::new();
    }
    let codes = errors.iter().map(|error| error["code"].clone()).collect();
    let about = ["step", "tool", "code", "message", "attempts", "phase"];
    let whole = |error: &Json| -> Json {
        about.iter().map(|name| ((*name).to_owned(), error[name].clone())).collect()
    };
    [("codes", codes), ("errors", errors.iter().map(whole).collect())].into()
}

fn unwrapped(value: &Json) -> Json {
    match value.as_object() {
        Some(members) if members.len() == 1 && members.contains_key("result") => {
            value["result"].clone()
        }
        _ => value.clone(),
    }
}

/// A result without what differs from run to run: ids and times.
fn masked(value: &Json) -> Json {
    const EACH_ITS_OWN: [&str; 7] =
        ["chain_id", "requestId", "planId", "started_at", "completed_at", "created_at", "at"];
    match value {
        Json::Object(members) => members
            .iter()
            .map(|(name, value)| {
                let is_own = EACH_ITS_OWN.contains(&&**name) && value.is_string();
                (name.clone(), if is_own { json!("…") } else { masked(value) })
            })
            .collect(),
        Json::Array(items) => items.iter().map(masked).collect(),
        Json::String(text) if text.starts_with("chk_") => json!("chk_…"),
        other => other.clone(),
    }
}

/// One row of the page, and everything about it that differs.
fn row(run: Run) -> (String, Vec<String>) {
    let (name, expected) = (run.name.clone(), run.status.clone());
    let (subject, cli) = Subject::new(run);
    if let Some(expected) = expected {
        assert_eq!(cli["status"], expected, "{name}: {cli:?}");
    }
    let mut wrong = Vec::new();
    let mut cells = vec!["reference".to_owned()];
    for (outcome, surface) in subject.others().iter().zip(&SURFACES[1..]) {
        let mut carried = Vec::new();
        for (member, value) in outcome {
            let empty = |value: Option<&Json>| value.is_none_or(Json::is_null);
            let same =
                cli.get(member) == Some(value) || (empty(cli.get(member)) && value.is_null());
            if same {
                carried.push(*member);
            } else {
                let expected = cli.get(member).cloned().unwrap_or_default();
                let short = |value: &Json| value.to_string().chars().take(700).collect::<String>();
                let (expected, got) = (short(&expected), short(value));
                wrong.push(format!("{name}, {surface}, {member}:\n  {expected}\n  {got}"));
                carried.push("DIFFERS");
            }
        }
        let carried = if carried.is_empty() { "–".to_owned() } else { carried.join(", ") };
        cells.push(carried);
    }
    let status = cli["status"].as_str().unwrap_or_default();
    let result = match (cli.get("output"), cli.get("codes")) {
        (Some(output), None) => output.to_string(),
        (Some(output), Some(codes)) => format!("{codes} {output}"),
        (None, codes) => codes.cloned().unwrap_or_default().to_string(),
    };
    let shown: String = result.replace('|', "\\|").chars().take(SHOWN_CHARS_MAX).collect();
    (format!("| {name} | {status} | `{shown}` | {} |", cells.join(" | ")), wrong)
}

/// A run of a document in a world of its own.
struct Run {
    name: String,
    world: World,
    file: &'static str,
    input: Json,
    has_client: bool,
    /// The status that it must have; a case of the seeds says so itself.
    status: Option<String>,
}

fn parity_runs() -> Vec<Run> {
    let run = |(name, text, input, status): &(&str, &str, &str, &str)| {
        let world = World::new();
        world.file("c.yaml", text);
        world.file("segue.yaml", "{}");
        let (name, input) = ((*name).to_owned(), serde_json::from_str(input).unwrap());
        let status = Some((*status).to_owned());
        Run { name, world, file: "c.yaml", input, has_client: true, status }
    };
    CASES.iter().map(run).collect()
}

/// The runs of the examples of the seeds.
fn seed_runs() -> Vec<Run> {
    let mut all = Vec::new();
    for folder in folders() {
        let example = Example::read(&folder);
        for (number, run) in example.runs().enumerate() {
            let is_run = ["check", "check_not", "plan"].iter().all(|word| run[word].is_null());
            if is_run {
                let (world, file) = example.world(run);
                let name = folder.file_name().unwrap().to_string_lossy().into_owned();
                let input = if run["input"].is_null() { json!({}) } else { run["input"].clone() };
                let (name, has_client) = (format!("{name}, run {number}"), number == 0);
                all.push(Run { name, world, file, input, has_client, status: None });
            }
        }
    }
    all
}

/// The rows of runs, made by two threads, and everything that differs.
fn rows(runs: Vec<Run>) -> (String, Vec<String>) {
    let count = runs.len();
    let runs = Mutex::new(runs.into_iter().enumerate());
    let made = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let next = runs.lock().unwrap().next();
                    let Some((at, run)) = next else { break };
                    let row = row(run);
                    made.lock().unwrap().insert(at, row);
                }
            });
        }
    });
    let made = made.into_inner().unwrap();
    assert_eq!(made.len(), count);
    let mut table = format!("| run | status | output or errors | {} |\n", SURFACES.join(" | "));
    let _ = writeln!(table, "|{}", "---|".repeat(SURFACES.len() + 3));
    let mut wrong = Vec::new();
    for (row, differing) in made.into_values() {
        let _ = writeln!(table, "{row}");
        wrong.extend(differing);
    }
    (table, wrong)
}

fn page() -> PathBuf {
    repository().join("acceptance/surfaces.md")
}

/// Compares one section of the page, or writes it.
fn section(title: &str, table: &str) {
    const HEAD: &str = "# Every run through every surface\n\n\
        Each cell names what the surface carries and what is the same as on the command line: `calls` of the tools,\n\
        `output`, `results` by output key, `result` in the format of the dialect, `status`, `errors`. `just gen` writes this\n\
        page; a test fails when it is not current, or when a value differs. `–`: not tried there, or refused by the check.\n";
    static PAGE: Mutex<()> = Mutex::new(());
    let _one_at_a_time = PAGE.lock().unwrap();
    let text = fs::read_to_string(page()).unwrap_or_default();
    let own = format!("\n## {title}\n\n{table}");
    if std::env::var_os(WRITE).is_none() {
        assert!(text.contains(&own), "`just gen` writes `acceptance/surfaces.md`\n{own}");
        return;
    }
    let mut sections: BTreeMap<String, String> = text
        .split("\n## ")
        .skip(1)
        .filter_map(|part| {
            Some((part.lines().next()?.to_owned(), format!("\n## {}\n", part.trim())))
        })
        .collect();
    sections.insert(title.to_owned(), own);
    let whole: String = std::iter::once(HEAD.to_owned()).chain(sections.into_values()).collect();
    fs::write(page(), whole).unwrap();
}

/// Success, failure, retry, rollback, each dialect: one result, whatever the surface.
#[test]
fn a_run_comes_to_the_same_through_every_surface() {
    let (table, wrong) = rows(parity_runs());
    section("Each dialect, each way to end", &table);
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Every example of the documents that Segue is based on, through every surface.
#[test]
fn the_examples_of_the_seeds_come_to_the_same_through_every_surface() {
    let (table, wrong) = rows(seed_runs());
    section("The examples of the seeds", &table);
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// S1-37, S1-63: the usage of the chains' document, with the tool that Segue generates.
#[test]
fn the_usage_of_the_document_works_as_written() {
    let folder = folders().into_iter().find(|folder| folder.ends_with("001-echo")).unwrap();
    let example = Example::read(&folder);
    let (world, file) = example.world(example.runs().next().unwrap());
    let text = fs::read_to_string(world.path(file)).unwrap();
    let needy = "requires: { context: [casefile_id] }\nname: needs_a_casefile";
    world.file("needy.yaml", text.replace("name: echo_chain_demo", needy));
    let asks = "{name: asks_first, dialect: chain, steps: [{name: ask, approve: {message: 'Go on?'}},
        {tool: echo_tool, inputs: {message: '{{ context.user_id }}'}, on_success: {map_outputs: {data: said}}}]}";
    world.file("asks.yaml", asks);
    let mut config: Json =
        serde_json::from_str(&fs::read_to_string(world.path("segue.yaml")).unwrap()).unwrap();
    config["compositions"] = json!([file, "needy.yaml", "asks.yaml"]);
    world.file("segue.yaml", config.to_string());
    for name in ["echo_chain_demo", "needs_a_casefile", "asks_first"] {
        let args = ["generate", name, "--lang", "python", "-o", "client", "--force", "-q"];
        world.segue(&args).exits(0);
    }
    let python = real_servers().join("hosts/bin/python");
    let mut command = world.command(python.to_str().unwrap());
    command.arg(repository().join("crates/segue/tests/it/seed_usage.py"));
    command.env("PYTHONPATH", world.path("client")).env("SEGUE", SEGUE);
    let said = Done::of(command.output().unwrap()).exits(0).stdout;
    assert_eq!(said, "3\nsuccess\npolicy-violation\nsuccess user_123\nfailure denied\n");
}
