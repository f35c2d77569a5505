//! Segue is killed while a server works on one of its tasks: the resumed run finds the task again,
//! and nothing is done twice.

#![cfg(unix)]

use std::fs;
use std::process::{Child, Command, Stdio};

use crate::mcp::{real_servers, with_servers};
use crate::serve::host::{Host, value};
use crate::support::{Done, Json, SEGUE, World, json, repository, until};

/// A world whose composition calls one tool of a server.
fn world(tool: &str, server: &Json) -> World {
    let world = World::with(&format!(
        "name: c\nsteps: [{{ id: a, tool: '{tool}' }}]\noutput: '{{{{ a }}}}'\n"
    ));
    world.file("segue.yaml", json!({ "mcpServers": { "h": server } }).to_string());
    world
}

fn segue(world: &World, args: &[&str]) -> Done {
    with_servers(world, &[&["--store", "sqlite:runs.db"], args].concat())
}

/// The names of the facts of the last run, those of its one step.
fn facts(world: &World) -> Vec<String> {
    let done = segue(world, &["runs", "show", "last", "--journal"]);
    let entries = done.stdout.lines().map(|line| serde_json::from_str::<Json>(line).unwrap());
    let name = |entry: Json| entry["fact"].as_object().and_then(|fact| fact.keys().next().cloned());
    let names = entries.filter_map(name);
    names.filter(|name| !["started", "closed", "finished"].contains(&&**name)).collect()
}

/// Starts a run, and kills it once the task that it waits for is in its journal.
fn killed_while_it_waits(world: &World) {
    let mut command = world.command(SEGUE);
    let words = ["run", "c.yaml", "--yes", "--config", "segue.yaml", "--store", "sqlite:runs.db"];
    let mut run: Child =
        command.args(words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let store = world.path("runs.db");
    until(|| {
        let is_followed = store.exists() && facts(world) == ["called", "followed"];
        is_followed.then_some(())
    });
    run.kill().unwrap();
    run.wait().unwrap();
}

fn scripted(generation: &str, received: &str) -> Json {
    let script = repository().join("crates/segue-runtime/tests/fixtures/mcp/tasks.py");
    json!({ "command": "python3", "args": [script, generation, "keeps", received], "timeout": "5s" })
}

/// Both generations, with a server whose tasks outlive it.
#[test]
fn a_task_is_looked_up_after_a_kill() {
    for generation in ["core", "extension"] {
        let world = world("h:t", &scripted(generation, "received"));
        killed_while_it_waits(&world);
        world.file("received.go", "");
        let done = segue(&world, &["resume", "last", "-q"]).exits(0);
        assert_eq!(done.json(), "ok", "{generation}");
        assert_eq!(facts(&world), ["called", "followed", "sought", "succeeded"], "{generation}");
        let received = fs::read_to_string(world.path("received")).unwrap();
        assert_eq!(received.matches("\"tools/call\"").count(), 1, "{generation}");
        // The killed process could not send a cancellation, and no other process does.
        assert_eq!(received.matches("\"tasks/cancel\"").count(), 0, "{generation}");
    }
}

/// A server that does not know the task any more leaves the call in doubt.
#[test]
fn a_task_that_is_forgotten_is_in_doubt() {
    for generation in ["core", "extension"] {
        let world = world("h:t", &scripted(generation, "received"));
        killed_while_it_waits(&world);
        fs::remove_file(world.path("received.task")).unwrap();
        let view = segue(&world, &["resume", "last", "--json"]).json();
        assert_eq!(view["status"], "waiting", "{generation}: {view:#}");
        let message = view["waiting_for"][0]["message"].as_str().unwrap();
        assert!(message.contains("its recovery failed"), "{generation}: {message}");
        assert!(message.contains("Task not found"), "{generation}: {message}");
        assert_eq!(facts(&world), ["called", "followed", "sought", "doubted"], "{generation}");
        let received = fs::read_to_string(world.path("received")).unwrap();
        assert_eq!(received.matches("\"tools/call\"").count(), 1, "{generation}");
    }
}

/// A server that ends with the test.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A real HTTP server, which continues while Segue is dead.
fn python_server(world: &World, support: &str, answers: &str) -> (Ending, Json) {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let script = repository().join("crates/segue/tests/it/resumed_tasks/tasks_server.py");
    let mut command = Command::new(real_servers().join("python-1/bin/python"));
    command.arg(script).arg(port.to_string()).arg(world.folder()).args([support, answers]);
    let server = Ending(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    until(|| std::net::TcpStream::connect(("127.0.0.1", port)).ok());
    let url = format!("http://127.0.0.1:{port}/mcp/");
    (server, json!({ "type": "http", "url": url, "timeout": "2m" }))
}

/// The same with a server that the Python library makes, over HTTP.
#[test]
fn a_task_of_a_real_server_is_looked_up_after_a_kill() {
    let world = world("h:work", &Json::Null);
    let (_server, entry) = python_server(&world, "required", "json");
    world.file("segue.yaml", json!({ "mcpServers": { "h": entry } }).to_string());
    killed_while_it_waits(&world);
    world.file("go", "");
    assert_eq!(segue(&world, &["resume", "last", "-q"]).exits(0).json(), "done as a task");
    assert_eq!(facts(&world), ["called", "followed", "sought", "succeeded"]);
    assert_eq!(fs::read_to_string(world.path("began")).unwrap().lines().count(), 1);
}

/// The same with another Segue as the server, which exits when its stdin closes: its run resumes
/// from its journal, and the task is found in it.
#[test]
fn a_task_of_another_segue_is_looked_up_after_a_kill() {
    let args = json!(["--config", "inner/segue.yaml", "--store", "sqlite:inner.db", "mcp"]);
    let world = world("h:slow", &json!({ "command": SEGUE, "args": args }));
    world.file(
        "inner/slow.yaml",
        "name: slow\nsteps: [ { id: a, tool: work } ]\noutput: { said: '{{ a }}' }\n",
    );
    // The folder of its configuration is where its commands run.
    let work = "echo began >> began; while [ ! -e go ]; do sleep 0.02; done; echo done";
    let commands = json!({ "work": { "argv": ["sh", "-c", work], "destructive": false } });
    let config = json!({ "compositions": ["slow.yaml"], "commands": commands });
    world.file("inner/segue.yaml", config.to_string());
    killed_while_it_waits(&world);
    world.file("inner/go", "");
    let done = segue(&world, &["resume", "last", "--json"]).json();
    assert_eq!(done["output"]["said"], "done", "{done:#}");
    assert_eq!(fs::read_to_string(world.path("inner/began")).unwrap().lines().count(), 1);
}

/// What a server at an address says of tasks when it is greeted is read, however it answers: a tool that may
/// be called as a task is, when its call may take long.
#[test]
fn a_server_at_an_address_says_that_it_takes_tasks() {
    for answers in ["json", "events"] {
        let world = world("h:work", &Json::Null);
        let (_server, entry) = python_server(&world, "optional", answers);
        world.file("segue.yaml", json!({ "mcpServers": { "h": entry } }).to_string());
        world.file("go", "");
        let done = segue(&world, &["call", "h:work", "--yes"]).exits(0);
        assert_eq!(done.json(), "done as a task", "{answers}");
        // One that is soon over is called as any other.
        let entry = entry.to_string().replace("2m", "20s");
        world.file("segue.yaml", format!("{{ \"mcpServers\": {{ \"h\": {entry} }} }}"));
        let done = segue(&world, &["call", "h:work", "--yes"]).exits(0);
        assert_eq!(done.json(), "no task", "{answers}");
    }
}

/// A number that a person gives reaches a server at an address with all its digits.
#[test]
fn a_number_keeps_its_digits_on_its_way_to_an_address() {
    let world = world("h:work", &Json::Null);
    let (_server, entry) = python_server(&world, "optional", "sessions");
    let entry = entry.to_string().replace("2m", "20s");
    let tools = "{ \"h:work\": { \"confirm\": \"never\" } }";
    let config = format!(
        "{{ \"mcpServers\": {{ \"h\": {entry} }}, \"tools\": {tools}, \"compositions\": [\"c.yaml\"] }}"
    );
    world.file("segue.yaml", config);
    let mut host = Host::legacy(&world, &json!({ "elicitation": { "form": {} } }));
    let id = host.begin("tools/call", json!({ "name": "c", "arguments": {} }));
    let asked = host.request("elicitation/create");
    let large = "123456789012345678901234567890";
    host.send_line(&format!(
        r#"{{"jsonrpc":"2.0","id":{},"result":{{"action":"accept","content":{{"n":{large}}}}}}}"#,
        asked["id"]
    ));
    let answer = host.answer(id);
    assert_eq!(value(&answer["result"])["result"], format!("it is {large}"), "{answer}");
}
