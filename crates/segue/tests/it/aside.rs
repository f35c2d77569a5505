//! A store that several processes share, and runs that take processes down.

#![cfg(unix)]

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use segue_runtime::store::{RunHistory as _, SqliteOptions, SqliteStore};

use crate::served::Served;
use crate::support::{Done, SEGUE, World, json, until};

fn args<'a>(args: &[&'a str]) -> Vec<&'a str> {
    [args, &["--config", "segue.yaml", "--store", "sqlite:runs.db"]].concat()
}

fn start(world: &World, words: &[&str]) -> Child {
    let mut command = world.command(SEGUE);
    command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Crashes its caller, until a file `cured` exists.
const POISON: &str = r#"
commands:
  poison:
    argv: [sh, -c, 'if [ -e cured ]; then echo cured; else kill -9 "$PPID"; fi']
    destructive: false
    idempotent: true
"#;

const COMPOSITION: &str = "
name: c
steps:
  - { id: before, tool: echo, parameters: { text: done } }
  - { id: poison, tool: poison, depends_on: [before] }
output: '{{ poison }}'
";

fn poisoned() -> World {
    let world = World::with(COMPOSITION);
    world.file("segue.yaml", POISON);
    assert_eq!(world.segue(&args(&["run", "c.yaml"])).code, None);
    assert_eq!(world.segue(&args(&["resume", "--all"])).code, None, "it is taken up once more");
    world
}

/// A run that crashes the process is resumed once more and then set aside, and named wherever runs
/// are listed. A person resumes it.
#[test]
fn a_run_that_takes_processes_down_is_set_aside() {
    let world = poisoned();
    for _ in 0..2 {
        let said = world.segue(&args(&["resume", "--all"])).exits(0).stderr;
        assert!(said.contains("set aside") && said.contains("segue resume RUN"), "{said}");
    }
    let listed = world.json(0, &args(&["runs", "--json"]));
    let reason = listed["runs"][0]["set_aside"].as_str().unwrap();
    assert!(reason.contains("died"), "{listed}");
    assert!(world.segue(&args(&["runs"])).exits(0).stdout.contains("set aside"));
    let shown = world.segue(&args(&["runs", "show", "last"])).exits(0).stdout;
    assert!(shown.contains("set aside: two processes"), "{shown}");
    assert_eq!(world.json(0, &args(&["runs", "show", "last", "--json"]))["set_aside"], reason);
    let doctor = world.segue(&args(&["doctor"]));
    assert!(doctor.stdout.contains("set aside"), "{doctor:?}");
    world.file("cured", "");
    assert_eq!(world.json(0, &args(&["resume", "last", "-q"])), "cured");
    let listed = world.json(0, &args(&["runs", "--json"]));
    assert!(listed["runs"][0].get("set_aside").is_none(), "{listed}");
}

/// A run that is set aside is ended by a person, without going on with it.
#[test]
fn a_run_that_is_set_aside_can_be_cancelled() {
    let world = poisoned();
    world.segue(&args(&["resume", "--all"])).exits(0);
    let said = world.segue(&args(&["cancel", "last"])).exits(0);
    assert!(said.stderr.contains("cancelled"), "{}", said.stderr);
    assert_eq!(world.json(0, &args(&["runs", "--json"]))["runs"][0]["status"], "cancelled");
}

/// A server that is asked to stop did not crash: its runs are never set aside for that, however
/// often.
#[test]
fn a_server_that_ends_releases_its_runs() {
    let world =
        World::with("name: c\nsteps: [{ id: a, tool: sleep, parameters: { ms: 600000 } }]\n");
    let config = "compositions: ['c.yaml']\nlimits: { served_leave_ms: 50 }\n\
                  server: { token: open-sesame-open-sesame-open-sesame }\n";
    world.file("segue.yaml", config);
    let begun = Served::start(&world, "sqlite:runs.db", &[]);
    let execute = "/api/v1/compositions/execute";
    let headers = [("Prefer", "respond-async")];
    let run = begun.send("POST", execute, &headers, &json!({ "name": "c" })).is(202);
    let path = format!("/api/v1/runs/{}", run["run_id"].as_str().unwrap());
    let mut served = Some(begun);
    for _ in 0..4 {
        let now = served.take().unwrap_or_else(|| Served::start(&world, "sqlite:runs.db", &[]));
        while now.get(&path).is(200)["steps"][0]["status"] != "running" {}
        let pid = now.pid().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        assert!(now.wait().success());
        let listed = world.json(0, &args(&["runs", "--json"]));
        assert!(listed["runs"][0].get("set_aside").is_none(), "{listed}");
    }
}

/// A person who presses Ctrl-C twice ends the process by hand: the process gives its run back, and the
/// next one does not take it for that of a process that died.
#[test]
fn a_second_interrupt_releases_the_run() {
    let world = World::with("name: c\nsteps: [{ id: hold, tool: hold }]\n");
    let hold = "commands: { hold: { argv: [sh, -c, 'echo $$ > called; exec sleep 300'], \
                destructive: false, idempotent: true } }\n";
    world.file("segue.yaml", hold);
    let mut child = start(&world, &args(&["run", "c.yaml"]));
    let called =
        || std::fs::read_to_string(world.path("called")).ok().filter(|pid| !pid.is_empty());
    let called = until(called);
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    let interrupt = || {
        let pid = child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    };
    interrupt();
    assert!(said.any(|line| line.unwrap().contains("press Ctrl-C again")));
    interrupt();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let _ = Command::new("kill").args(["-9", called.trim()]).status();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let store = SqliteStore::open(&world.path("runs.db"), SqliteOptions::default()).unwrap();
    let found = runtime.block_on(store.unfinished()).unwrap();
    assert_eq!(found.runs[0].owner, None, "{found:?}");
}

/// Several processes that make a store at the same moment all have it.
#[test]
fn processes_make_a_store_together() {
    const AT_ONCE: usize = 8;
    let world = World::with("name: c\nsteps: [{ id: a, tool: echo, parameters: { n: 1 } }]\n");
    world.file("segue.yaml", "");
    let started: Vec<Child> =
        (0..AT_ONCE).map(|_| start(&world, &args(&["run", "c.yaml", "-q"]))).collect();
    for child in started {
        Done::of(child.wait_with_output().unwrap()).exits(0);
    }
    let listed = world.json(0, &args(&["runs", "--json"]));
    assert_eq!(listed["runs"].as_array().unwrap().len(), AT_ONCE, "{listed}");
}
