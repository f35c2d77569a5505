//! What people type in their first hour: each message names what to do, and says it once.

use crate::support::{World, json};

const BROKEN: &str = "name: broken\nsteps: [{ id: a, tool: ecko }]\n";

fn project() -> World {
    let world = World::new();
    world.segue(&["init"]).exits(0);
    world
}

/// A command that reports about a composition prints no note about the same composition; others do.
#[test]
fn findings_are_printed_once() {
    let world = project();
    world.file("compositions/broken.yaml", BROKEN);
    for args in [
        &["check", "compositions/broken.yaml"][..],
        &["check", "broken"],
        &["check"],
        &["plan", "broken"],
        &["run", "./compositions/broken.yaml"],
        &["run", "broken"],
    ] {
        let said = world.segue(args).exits(2).stderr;
        assert_eq!(said.matches("Tool not found in registry: ecko").count(), 1, "{args:?}: {said}");
        assert!(!said.contains("was not loaded"), "{args:?}: {said}");
    }
    let doctor = world.segue(&["doctor"]).exits(2);
    assert!(!doctor.stderr.contains("was not loaded"), "{}", doctor.stderr);
    assert!(doctor.stdout.contains("broken.yaml could not be loaded"), "{}", doctor.stdout);
    let said = world.segue(&["run", "hello", "-q"]).exits(0).stderr;
    assert!(!said.contains("was not loaded"), "{said}");
    let said = world.segue(&["run", "hello"]).exits(0).stderr;
    assert!(said.contains("broken.yaml:2:24` was not loaded"), "{said}");
}

/// `check` takes names as `run` does, and says what to write for a folder.
#[test]
fn check_takes_names() {
    let world = project();
    let said = world.segue(&["check", "hello"]).exits(0).stderr;
    assert!(said.contains("1 file checked, nothing found"), "{said}");
    let said = world.segue(&["check", "compositions/"]).exits(2).stderr;
    assert!(said.contains("`compositions/` is a folder"), "{said}");
    assert!(said.contains("`segue check compositions/*.yaml`"), "{said}");
    let said = world.segue(&["check", "helo"]).exits(2).stderr;
    assert!(said.contains("did you mean `hello`?"), "{said}");
}

/// A name that is nearly right is answered with the right one: of a composition, a file or a template.
#[test]
fn near_names_are_suggested() {
    let world = project();
    for (name, meant) in [
        ("helo", "hello"),
        ("compositions/hello", "compositions/hello.yaml"),
        ("collect-todo-v1", "collect-todos-v1"),
    ] {
        let said = world.segue(&["run", name]).exits(2).stderr;
        assert!(said.contains(&format!("did you mean `{meant}`?")), "{said}");
    }
    let said = world.segue(&["run", "something-else"]).exits(2).stderr;
    assert!(said.contains("configured compositions: hello"), "{said}");
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"me","version":"1"}}}
{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"Hello","arguments":{}}}
"#;
    let answers = world.segue_reading(call, &["mcp"]).exits(0).stdout;
    assert!(answers.contains("there is no tool `Hello`; did you mean `hello`?"), "{answers}");
}

/// Several inputs are missing: one remedy.
#[test]
fn one_remedy_is_printed_once() {
    let world = World::with(
        "name: c\ninput: { type: object, required: [a, b], properties: { a: {}, b: {} } }\nsteps: [{ id: s, tool: echo }]\n",
    );
    let said = world.segue(&["run", "c.yaml"]).exits(2).stderr;
    assert_eq!(said.matches("is a required property").count(), 2, "{said}");
    assert_eq!(said.matches("`-i name=value` gives an input").count(), 1, "{said}");
}

/// The tests of a composition run also when the composition is named.
#[test]
fn a_composition_stands_for_its_tests() {
    let world = World::with("name: c\nsteps: [{ id: s, tool: echo }]\n");
    let said = world.segue(&["test", "c.yaml"]).exits(2).stdout;
    assert!(said.contains("BROKEN  c.yaml"), "{said}");
    world.file("c.test.yaml", "tests: [{ name: works, tools: { s: { returns: {} } } }]\n");
    let said = world.segue(&["test", "c.yaml"]).exits(0).stdout;
    assert!(said.contains("ok    c.test.yaml · works"), "{said}");
}

/// Imported servers need trust, and until then one note names them.
#[test]
fn imported_servers_lead_to_trust() {
    let world = World::found();
    let servers = json!({ "one": { "command": "true" }, "two": { "command": "true" } });
    world.file(".mcp.json", json!({ "mcpServers": servers }).to_string());
    let said = world.segue(&["init"]).exits(0).stderr;
    assert!(
        said.contains("next: read ./segue.yaml, then run: segue trust && segue run hello"),
        "{said}"
    );
    let said = world.segue(&["tools"]).exits(0).stderr;
    let note = "note: without the MCP servers `one`, `two`: read the configuration, then run `segue trust`";
    assert!(said.contains(note), "{said}");
    assert_eq!(said.lines().count(), 2, "the file and its servers: {said}");
    let said = world.segue(&["trust"]).exits(0).stderr;
    assert!(
        said.contains(r#".mcp.json.one: {"command":"true"} (not used: `segue.yaml` has it too)"#),
        "{said}"
    );
    assert!(said.contains("as written: 2 servers"), "{said}");
}

/// A list of tools shows a sentence of each; the rest is in `tools show`.
#[test]
fn the_list_of_tools_is_short() {
    let world = World::new();
    let command =
        "{ argv: ['true'], description: 'Does it. Use this tool when a model wants it done.' }";
    world.file("segue.yaml", format!("commands: {{ c: {command} }}\n"));
    let listed = world.segue(&["tools", "--search", "command:c"]).exits(0).stdout;
    assert!(listed.contains("Does it.\n") && !listed.contains("Use this"), "{listed}");
    let shown = world.segue(&["tools", "show", "command:c"]).exits(0).stdout;
    assert!(shown.contains("Use this tool"), "{shown}");
}

/// The second start of a server says where the token is; a port that is taken leads to another one.
#[test]
fn a_server_says_what_to_do_about_its_token_and_its_port() {
    let world = World::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let said = world.segue(&["serve", "--port", &port]).exits(2).stderr;
    assert!(said.contains("`--port` names another port"), "{said}");
    world.file("segue.yaml", "compositions: []\n");
    for expected in ["shown once", "token: the one of an earlier start"] {
        let served = crate::served::Served::start(&world, "memory", &[]);
        served.said(expected);
    }
}
