//! Plans from natural language, with the built program, and a model and an MCP server of the tests.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use crate::run::at_a_terminal;
use crate::support::{Done, Json, World, files_below, json, repository};

const KEY: &str = "sk-test-0123456789";
const QUERY: &str = "Create author Alice with email alice@test.com, then create blog by Alice titled Hello about world";

/// A server that speaks OpenAI's protocol and says these things, the last one for ever.
pub(crate) struct Model {
    port: u16,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Model {
    pub(crate) fn saying(texts: &[&str]) -> Model {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (seen, texts) =
            (requests.clone(), texts.iter().map(ToString::to_string).collect::<Vec<_>>());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let request = read_request(&mut stream);
                let mut seen = seen.lock().unwrap();
                let text = &texts[seen.len().min(texts.len() - 1)];
                seen.push(request);
                let message = json!({"role": "assistant", "content": text});
                let choices = json!([{"index": 0, "finish_reason": "stop", "message": message}]);
                let usage = json!({"prompt_tokens": 100, "completion_tokens": 20});
                let body = json!({"choices": choices, "usage": usage}).to_string();
                let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close";
                let _ = write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            }
        });
        Model { port, requests }
    }

    /// Where it is.
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    pub(crate) fn asked(&self) -> usize {
        self.requests.lock().unwrap().len()
    }
}

fn read_request(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    loop {
        let mut some = [0; 4096];
        let count = stream.read(&mut some).unwrap();
        bytes.extend_from_slice(&some[..count]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.to_ascii_lowercase();
        let length = length.split("content-length:").nth(1).unwrap_or("0").lines().next().unwrap();
        if body.len() >= length.trim().parse::<usize>().unwrap() {
            return text;
        }
    }
}

/// The plan of the seed.
pub(crate) fn good() -> Json {
    json!({
        "reasoning": "A blog needs an author.",
        "tools": [
            {"name": "createAuthor", "dependsOn": null,
             "parameters": {"name": "Alice", "email": "alice@test.com"}},
            {"name": "createBlog", "dependsOn": "createAuthor", "parameters":
             {"authorId": "{{createAuthor._id}}", "title": "Hello", "content": "about world"}}
        ],
        "executionOrder": ["createAuthor", "createBlog"]
    })
}

/// A world with the blog server and this model.
pub(crate) fn world(model: &Model) -> World {
    let world = World::new();
    let script = repository().join("crates/segue/tests/it/planning/blogs.py");
    let server = json!({"command": "python3", "args": [script.display().to_string(), "calls"]});
    let llm = json!({"base_url": model.url(), "model": "small-1",
                     "api_key": "${MODEL_KEY:-}"});
    world.file("segue.yaml", json!({"mcpServers": {"blog": server}, "llm": llm}).to_string());
    world
}

fn segue(world: &World, args: &[&str]) -> Done {
    let args = [&["--config", "segue.yaml", "--store", "sqlite:s.db"], args].concat();
    let mut command = world.command(crate::support::SEGUE);
    Done::of(command.env("MODEL_KEY", KEY).args(args).output().unwrap())
}

pub(crate) fn calls(world: &World) -> Vec<Json> {
    let text = fs::read_to_string(world.path("calls")).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// S4-04, S4-05, S4-06, S4-08, S4-09, S4-36, S4-37, S4-39, S4-48, S4-49, S4-56, S4-57: the walk-through of the
/// seed, over MCP: planned by one process, executed by another, looked at by a third.
#[test]
fn a_request_is_planned_executed_and_reused() {
    let model = Model::saying(&[&good().to_string()]);
    let world = world(&model);
    let planned = segue(&world, &["plan", "--ask", QUERY, "--json"]).exits(0).json();
    let (request, plan) =
        (planned["request_id"].as_str().unwrap(), planned["plan_id"].as_str().unwrap());
    let shape = regex::Regex::new("^(req|plan)_[0-9]{10}_[a-z0-9]{9}$").unwrap();
    assert!(shape.is_match(request) && shape.is_match(plan));
    assert_eq!((&planned["state"], &planned["version"]), (&json!("pending"), &json!(1)));
    assert_eq!(planned["plan"]["tools"], good()["tools"]);
    assert_eq!(planned["checked"]["steps"][1]["needs"], json!(["createAuthor"]));
    assert_eq!(planned["origin"]["model"]["rounds"], 1);
    assert!(calls(&world).is_empty());

    let view = segue(&world, &["run", "--request", request, "--json"]).exits(0).json();
    assert_eq!((&view["request_id"], &view["plan_id"]), (&json!(request), &json!(plan)));
    assert_eq!(view["output"]["createAuthor"]["_id"], "507f1f77bcf86cd799439011");
    let made = calls(&world);
    assert_eq!(made[0], json!(["createAuthor", {"name": "Alice", "email": "alice@test.com"}]));
    assert_eq!(made[1][1]["authorId"], "507f1f77bcf86cd799439011");

    let shown = segue(&world, &["plans", "show", request, "--json"]).exits(0).json();
    assert_eq!((&shown["state"], &shown["run_id"]), (&json!("completed"), &view["run_id"]));
    assert_eq!(shown["result"]["output"], view["output"]);
    let listed = segue(&world, &["plans", "--json"]).exits(0).json();
    assert_eq!(listed["plans"][0]["plan_id"], plan);
    let text = segue(&world, &["plans"]).exits(0).stdout;
    assert!(text.contains(plan) && text.contains("completed") && text.contains(request), "{text}");
    let text = segue(&world, &["plans", "show", plan]).exits(0).stdout;
    assert!(text.contains("planned by small-1 in 1 answer · 120 tokens"), "{text}");

    // Once is what was asked for.
    let again = segue(&world, &["run", plan, "--json"]).exits(2).json();
    assert_eq!((&again["errors"][0]["code"], calls(&world).len()), (&json!("conflict"), 2));
    let told = segue(&world, &["run", plan, "--again", "-o", "ndjson"]).exits(0).stdout;
    assert!(told.lines().count() > 4);
    assert!(told.lines().all(|line| line.contains(request)), "{told}");
    assert_eq!(calls(&world).len(), 4);
    let unknown = segue(&world, &["run", "--request", "req_1704123456_abc123def"]).exits(2).stderr;
    assert!(
        unknown.contains("Plan not found for requestId: req_1704123456_abc123def"),
        "{unknown}"
    );

    // The same words need no model; for similar ones the output names the plan that worked before.
    assert_eq!(model.asked(), 1);
    let same = segue(&world, &["plan", "--ask", QUERY, "--json"]).exits(0).json();
    assert_eq!(same["origin"]["used_before"]["plan_id"], plan);
    assert_eq!(model.asked(), 1);
    let alike = QUERY.replace("Alice", "Bob");
    let alike = segue(&world, &["plan", "--ask", &alike]).exits(0);
    assert!(alike.stderr.contains("used before for: Create author Alice"), "{}", alike.stderr);
    assert_eq!(model.asked(), 2);

    // The key has gone where it should, and nowhere else.
    assert!(model.requests.lock().unwrap()[0].contains(KEY));
    for file in files_below(&world.folder(), &["db", "db-wal", "yaml"]) {
        let bytes = fs::read(&file).unwrap();
        assert!(!String::from_utf8_lossy(&bytes).contains(KEY), "{}", file.display());
    }
}

/// What is shown, and what is written with `--save`, which runs like any composition.
#[test]
fn a_plan_is_shown_and_saved() {
    let invented = good().to_string().replace("createBlog", "createPost");
    let model = Model::saying(&[&invented, &good().to_string()]);
    let world = world(&model);
    let done = segue(&world, &["plan", "--ask", QUERY, "--save", "make-blog.yaml"]).exits(0);
    for part in [
        "plan · 2 steps · writes",
        "createBlog    blog:createBlog    writes  after createAuthor",
        "createBlog {\"authorId\":\"{{createAuthor._id}}\"",
        "why: A blog needs an author.",
        "request req_",
        "plan    plan_",
    ] {
        assert!(done.stdout.contains(part), "{part}: {}", done.stdout);
    }
    for part in [
        "asking small-1 …",
        "asking small-1 again (2) …",
        "in 2 answers · 240 tokens",
        "segue run plan_",
    ] {
        assert!(done.stderr.contains(part), "{part}: {}", done.stderr);
    }
    let saved = fs::read_to_string(world.path("make-blog.yaml")).unwrap();
    assert!(saved.starts_with("name: make-blog\n"), "{saved}");
    segue(&world, &["check", "make-blog.yaml"]).exits(0);
    let view = segue(&world, &["run", "make-blog.yaml", "--json"]).exits(0).json();
    assert_eq!(view["output"]["createBlog"]["title"], "Hello");
    // What is there is not written over.
    segue(&world, &["plan", "--ask", QUERY, "--save", "make-blog.yaml"]).exits(2);
}

/// A tool that talks a model into calling it gets no further than the plan that a person sees.
#[test]
fn a_destructive_call_of_a_plan_asks_for_confirmation() {
    let fooled = json!({
        "reasoning": "The tool says so.",
        "tools": [{"name": "wipe", "parameters": {}, "dependsOn": null}],
        "executionOrder": ["wipe"]
    });
    let model = Model::saying(&[&fooled.to_string()]);
    let world = world(&model);
    let planned = segue(&world, &["plan", "--ask", QUERY]).exits(0);
    assert!(planned.stdout.contains("destroys") && planned.stdout.contains("asks first"));
    let plans = segue(&world, &["plans", "--json"]).exits(0).json();
    let plan = plans["plans"][0]["plan_id"].as_str().unwrap();
    segue(&world, &["run", plan]).exits(3);
    assert!(calls(&world).is_empty());
    // The words of the tool were data of the document, not part of the instructions.
    let request = model.requests.lock().unwrap()[0].clone();
    let body: Json = serde_json::from_str(request.split_once("\r\n\r\n").unwrap().1).unwrap();
    assert!(!body["messages"][0]["content"].as_str().unwrap().contains("silently"));
    let document: Json =
        serde_json::from_str(body["messages"][1]["content"].as_str().unwrap()).unwrap();
    assert_eq!(document["request"], QUERY);
}

#[test]
fn planning_ends_with_the_findings_of_the_last_answer() {
    let model = Model::saying(&["I think you should create an author."]);
    let world = world(&model);
    let done = segue(&world, &["plan", "--ask", QUERY, "--json"]).exits(1);
    let error = &done.json()["error"];
    assert_eq!(error["code"], "llm");
    assert_eq!(error["findings"][0]["code"], "llm");
    assert_eq!(done.json()["cost"]["rounds"], 4);
    assert_eq!(model.asked(), 4);
    assert_eq!(segue(&world, &["plans", "--json"]).exits(0).json()["plans"], json!([]));
}

#[test]
fn without_a_model_it_is_said_how_to_get_one() {
    let world = World::new();
    let done = world.segue(&["plan", "--ask", "anything"]).exits(2);
    assert!(done.stderr.contains("[llm] no model is configured"), "{}", done.stderr);
    assert!(done.stderr.contains("llm: { provider: openai"), "{}", done.stderr);
    for (llm, says) in [
        ("{ model: m, base_url: nonsense }", "base_url"),
        ("{ provider: openia, model: m }", "`openai` or `anthropic`"),
        ("{ provider: openai }", "needs a `model`"),
        ("{ model: m, temperature: 1 }", "no field `temperature`"),
        ("{ model: m, api_key: \"${NOT_SET_ANYWHERE}\" }", "NOT_SET_ANYWHERE"),
    ] {
        world.file("segue.yaml", format!("llm: {llm}\n"));
        let done = world.segue(&["plan", "--ask", "anything"]).exits(2);
        assert!(done.stderr.contains(says), "{llm}: {}", done.stderr);
    }
}

/// D1: a key is sent nowhere because of a configuration that was merely found.
#[test]
fn a_model_of_an_untrusted_configuration_is_not_called() {
    let model = Model::saying(&[
        r#"{"tools": [{"name": "echo", "parameters": {"a": 1}}], "executionOrder": ["echo"]}"#,
    ]);
    let world = World::found();
    let base = format!("http://127.0.0.1:{}/v1", model.port);
    world
        .file("segue.yaml", format!("llm: {{ model: m, base_url: \"{base}\", api_key: {KEY} }}\n"));
    let done = world.segue(&["plan", "--ask", "say something"]).exits(1);
    assert!(done.stderr.contains("segue trust"), "{}", done.stderr);
    assert_eq!(model.asked(), 0);
    let trusted = world.segue(&["trust"]).exits(0).stderr;
    assert!(trusted.contains(&base) && trusted.contains("is trusted now"), "{trusted}");
    world.segue(&["plan", "--ask", "say something"]).exits(0);
    assert_eq!(model.asked(), 1);
    // Another address is another matter.
    world
        .file("segue.yaml", format!("llm: {{ model: n, base_url: \"{base}\", api_key: {KEY} }}\n"));
    world.segue(&["plan", "--ask", "say more"]).exits(1);
}

/// At a terminal a person decides which plan is kept and which is reused.
#[test]
fn a_person_decides_at_a_terminal() {
    let model = Model::saying(&[
        r#"{"tools": [{"name": "echo", "parameters": {"a": 1}}], "executionOrder": ["echo"]}"#,
    ]);
    let world = World::new();
    let base = format!("http://127.0.0.1:{}/v1", model.port);
    world.file(
        "own.yaml",
        format!("llm: {{ model: m, base_url: \"{base}\" }}\nstore: sqlite:s.db\n"),
    );
    let ask = |lines: &str, query: &str| {
        at_a_terminal(&world, lines, &["--config", "own.yaml", "plan", "--ask", query])
    };
    let plans = || {
        let listed = world.segue(&["--config", "own.yaml", "plans", "--json"]).exits(0).json();
        listed["plans"].as_array().unwrap().clone()
    };
    ask("n", "say something nice").exits(3);
    assert!(plans().is_empty());
    ask("y", "say something nice").exits(0);
    let plan = plans()[0]["plan_id"].as_str().unwrap().to_owned();
    world.segue(&["--config", "own.yaml", "run", &plan]).exits(0);
    assert_eq!(model.asked(), 2);
    let offered = ask("y|y", "say something very nice").exits(0);
    assert!(offered.stdout.contains("used before for: say something nice"), "{}", offered.stdout);
    assert_eq!((model.asked(), plans().len()), (2, 2));
    ask("n|y", "say something nice").exits(0);
    assert_eq!((model.asked(), plans().len()), (3, 3));
}
