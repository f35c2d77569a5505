//! Real hosts: the Python and TypeScript libraries, FastMCP and the Inspector, each as its users run it.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use super::{DOUBLE, world};
use crate::mcp::real_servers;
use crate::support::{Json, SEGUE, World, copy_folder, json, repository};

/// A program of the hosts' folder, with the real servers on its path.
fn program(world: &World, name: &str) -> Command {
    let folder = real_servers();
    let mut path = folder.join("bin").into_os_string();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let mut command = world.command(folder.join(name).to_str().unwrap());
    command.env("PATH", path).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn script(name: &str) -> PathBuf {
    repository().join("crates/segue/tests/it/serve/hosts").join(name)
}

#[track_caller]
fn json_of(output: &Output) -> Json {
    let (stdout, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(stdout.trim()).unwrap_or_else(|_| panic!("{stdout}\n{stderr}"))
}

/// Writes two files with a while between, through the file server.
const SLOW_WRITE: &str = "\
name: slow-write
atomic: true
input: { type: object, required: [one, two], properties: { one: { type: string }, two: { type: string } } }
steps:
  - { id: first, tool: 'files:write_file', parameters: { path: '{{ input.one }}', content: '1' } }
  - { id: rest, wait: 3s, depends_on: [first] }
  - { id: second, tool: 'files:write_file', parameters: { path: '{{ input.two }}', content: '2' }, depends_on: [rest] }
output: { done: true }
";

/// Issue 5: a composition over the file server is one tool, asks one question, and after `kill -9`
/// in the middle it goes on and is reported under its run id.
#[test]
fn a_python_host_sees_one_tool_and_loses_nothing() {
    for mode in ["legacy", "auto"] {
        let world = World::new();
        copy_folder(&repository().join("examples/mcp/rename-word"), &world.folder());
        let config = fs::read_to_string(world.path("segue.yaml")).unwrap();
        let limits = "limits: { served_wait_ms: 1000, served_start_ms: 60000 }";
        world.file("segue.yaml", format!("{config}{limits}\n"));
        world.file("a.txt", "the old one");
        world.file("b.txt", "old and older");
        let folder = world.folder().canonicalize().unwrap();
        // The second composition comes later, so that the host sees one tool first.
        world.file("slow.word.yaml", SLOW_WRITE);
        let mut host = program(&world, "hosts/bin/python");
        let seen = json_of(
            &host.arg(script("python_mcp.py")).args([SEGUE, mode]).arg(&folder).output().unwrap(),
        );
        let modern = seen["version"] == "2026-07-28";
        assert_eq!(modern, mode == "auto", "{seen}");
        assert_eq!(seen["tools"], json!(["rename_word", "slow_write"]), "{seen}");
        assert_eq!(seen["rename"]["is_error"], false, "{seen}");
        let text: Json = serde_json::from_str(seen["rename"]["text"].as_str().unwrap()).unwrap();
        assert_eq!(text, seen["rename"]["value"]);
        assert_eq!(fs::read_to_string(world.path("a.txt")).unwrap(), "the new one");
        assert_eq!(fs::read_to_string(world.path("b.txt")).unwrap(), "new and newer");
        let questions = seen["questions"].as_array().unwrap();
        assert_eq!(questions.len(), 2, "one for each run: {questions:?}");
        assert!(questions[0].as_str().unwrap().contains("files:write_file: may destroy"));
        assert_eq!(seen["before"], json!([true, false]));
        let run = &seen["run"];
        assert_eq!(
            (&run["run_id"], &run["status"]),
            (&seen["reference"]["run_id"], &json!("success"))
        );
        assert_eq!(run["steps"][0]["attempts"], 1, "what was done is not done again");
        assert_eq!(seen["after"], json!([true, true]));
    }
}

#[test]
fn fastmcp_reads_the_typed_result() {
    let world = world("", &[("double", DOUBLE)]);
    let mut host = program(&world, "hosts/bin/python");
    let seen = json_of(
        &host.arg(script("fastmcp_host.py")).arg(SEGUE).arg(world.folder()).output().unwrap(),
    );
    assert_eq!((&seen["value"], &seen["n"]), (&json!({ "n": 42 }), &json!(42)));
    assert_eq!(seen["is_error"], true);
    assert!(seen["text"].as_str().unwrap().contains("does not fit"), "{seen}");
}

const ASK_FIRST: &str = "\
name: ask-first
steps: [ { id: ask, approve: { message: Sure? } } ]
output: { sure: '{{ ask.approved }}' }
";

#[test]
fn the_typescript_library_lists_calls_and_is_asked() {
    let world = world("", &[("double", DOUBLE), ("ask", ASK_FIRST)]);
    let mut host = program(&world, "node/bin/node");
    host.env("SDK", real_servers().join("npm-hosts"));
    let seen = json_of(
        &host.arg(script("typescript_host.mjs")).arg(SEGUE).arg(world.folder()).output().unwrap(),
    );
    let names = seen["names"].as_array().unwrap();
    assert!(names.contains(&json!("double_it")) && names.contains(&json!("ask_first")), "{seen}");
    assert_eq!(seen["called"], json!({ "n": 42 }));
    assert_eq!(seen["asked"], json!({ "sure": true }), "{seen}");
    assert_eq!(seen["questions"].as_array().unwrap().len(), 1, "{seen}");
}

/// The Inspector in both eras; `--strict` also looks at how portable the schemas are.
#[test]
fn the_inspector_calls_and_finds_nothing_to_complain_about() {
    let world = world("", &[("double", DOUBLE)]);
    let entry =
        json!({ "command": SEGUE, "args": ["--config", "segue.yaml", "--store", "memory", "mcp"] });
    world.file("host.json", json!({ "mcpServers": { "segue": entry } }).to_string());
    for era in ["legacy", "modern"] {
        let inspect = |args: &[&str]| {
            let mut host = program(&world, "bin/mcp-inspector");
            host.args(["--cli", "--config", "host.json", "--server", "segue"]);
            host.args(["--protocol-era", era, "--format", "json"]).args(args);
            host.output().unwrap()
        };
        let listed = json_of(&inspect(&["--method", "tools/list"])).to_string();
        assert!(listed.contains("double_it"), "{listed}");
        let called =
            inspect(&["--method", "tools/call", "--tool-name", "double_it", "--tool-arg", "n=21"]);
        assert!(json_of(&called).to_string().contains("42"));
        let strict = inspect(&["--method", "tools/list", "--strict"]);
        assert_eq!(strict.status.code(), Some(0), "{strict:?}");
        let failed = inspect(&["--method", "tools/call", "--tool-name", "nothing"]);
        assert_ne!(failed.status.code(), Some(0));
    }
}
