//! MCP servers from the command line: a scripted one, and real ones from the registries.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::support::{Done, Json, SEGUE, World, copy_folder, json, repository};

/// The scripted server, which leaves a mark in the working folder when it starts.
fn scripted(behaviour: &str, mark: &str) -> String {
    let script = repository().join("crates/segue-runtime/tests/fixtures/mcp/hostile.py");
    let line = format!("touch {mark}; exec python3 {} {behaviour}", script.display());
    serde_json::json!({ "command": "sh", "args": ["-c", line] }).to_string()
}

const CALLS_H: &str = "name: x\nsteps:\n  - { id: a, tool: 'h:t' }\n";

fn world(servers: &[(&str, &str)]) -> World {
    let world = World::with(CALLS_H);
    world.file("segue.yaml", config(servers));
    world
}

fn config(servers: &[(&str, &str)]) -> String {
    let lines = servers.iter().map(|(name, entry)| format!("  {name}: {entry}\n"));
    format!("mcpServers:\n{}", lines.collect::<String>())
}

fn named(world: &World, args: &[&str]) -> Done {
    world.segue(&[&["--config", "segue.yaml"], args].concat())
}

/// A composition that uses one server starts one server.
#[test]
fn only_the_servers_that_are_needed_start() {
    let world = world(&[("h", &scripted("good", "h")), ("other", &scripted("good", "other"))]);
    let view = named(&world, &["run", "c.yaml", "--yes", "--json"]).exits(0).json();
    assert_eq!(view["results"]["a"], "ok");
    assert!(world.path("h").exists() && !world.path("other").exists());

    fs::remove_file(world.path("h")).unwrap();
    world
        .file("none.yaml", "name: none\nsteps:\n  - { id: a, tool: echo, parameters: { n: 1 } }\n");
    named(&world, &["run", "none.yaml"]).exits(0);
    assert!(!world.path("h").exists() && !world.path("other").exists());

    // Through a composition that another one calls, and by an id.
    world.file("lib/inner.yaml", "name: inner\nsteps:\n  - { id: a, tool: 'other:t' }\n");
    let servers = [("h", &*scripted("good", "h")), ("other", &*scripted("good", "other"))];
    world.file("segue.yaml", format!("{}compositions: ['lib/*.yaml']\n", config(&servers)));
    world.file("outer.yaml", "name: outer\nsteps:\n  - { id: a, tool: inner }\n");
    named(&world, &["run", "outer.yaml", "--yes"]).exits(0);
    assert!(!world.path("h").exists() && world.path("other").exists());
    named(&world, &["call", "h:t", "--yes"]).exits(0);
    assert!(world.path("h").exists());
}

/// In a container that was entered from outside, whose session has no number of its own there.
#[cfg(target_os = "linux")]
#[test]
fn servers_start_where_the_session_is_of_outside() {
    let world = world(&[("h", &scripted("good", "h"))]);
    let entered = |program: &str| {
        let mut command = world.command("unshare");
        command.args(["--user", "--map-root-user", "--pid", "--fork", "--mount-proc", program]);
        command
    };
    // Not everywhere may one make a container.
    if !entered("true").output().is_ok_and(|done| done.status.success()) {
        return;
    }
    let mut run = entered(SEGUE);
    run.args(["run", "c.yaml", "--yes", "--config", "segue.yaml", "--json"]);
    assert_eq!(Done::of(run.output().unwrap()).exits(0).json()["results"]["a"], "ok");
}

/// A program below a folder is found from wherever its configuration is named.
#[cfg(unix)]
#[test]
fn a_relative_program_is_found_beside_a_configuration_that_was_named_relatively() {
    use std::os::unix::fs::PermissionsExt as _;
    let world = World::with(CALLS_H);
    let script = repository().join("crates/segue-runtime/tests/fixtures/mcp/hostile.py");
    let text = format!("#!/bin/sh\nexec python3 {} good\n", script.display());
    world.file("sub/bin/server", text);
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(world.path("sub/bin/server"), executable).unwrap();
    world.file("sub/segue.yaml", "mcpServers: { h: { command: bin/server } }\n");
    world.segue(&["--config", "sub/segue.yaml", "run", "c.yaml", "--yes"]).exits(0);
}

/// A tool whose definition changes after it was first seen is not called, until the user has
/// accepted the change.
#[test]
fn a_tool_that_changed_has_to_be_accepted() {
    let world = world(&[("h", &scripted("rug_pull_at_restart starts", "h"))]);
    named(&world, &["run", "c.yaml", "--yes"]).exits(0);
    let refused = named(&world, &["run", "c.yaml", "--yes"]).exits(2);
    assert!(refused.stderr.contains("[definition-changed]"), "{}", refused.stderr);
    assert!(refused.stderr.contains("segue tools diff h:t"), "{}", refused.stderr);
    named(&world, &["call", "h:t", "--yes"]).exits(2);
    let diff = named(&world, &["tools", "diff"]).exits(0).stdout;
    assert!(diff.starts_with("h:t changed\n"), "{diff}");
    assert!(diff.contains("does things") && diff.contains("does other things"), "{diff}");
    let changes = named(&world, &["tools", "diff", "h:t", "--json"]).exits(0).json();
    assert_eq!(changes["changes"][0]["now"]["description"], "does other things");
    named(&world, &["tools", "accept", "nothing"]).exits(2);
    named(&world, &["tools", "accept", "h:t"]).exits(0);
    named(&world, &["run", "c.yaml", "--yes"]).exits(0);
    let none = named(&world, &["tools", "diff"]).exits(0);
    assert_eq!(none.stdout, "");
}

#[test]
fn a_server_that_cannot_start_stops_only_who_needs_it() {
    let world = world(&[("h", &scripted("early_exit", "h")), ("good", &scripted("good", "good"))]);
    for args in
        [&["run", "c.yaml"][..], &["check", "c.yaml"], &["plan", "c.yaml"], &["call", "h:t"]]
    {
        let done = named(&world, args).exits(4);
        assert!(
            done.stderr.contains("no handshake") || done.stderr.contains("no licence"),
            "{}",
            done.stderr
        );
    }
    let view = named(&world, &["run", "c.yaml", "--json"]).exits(4).json();
    assert_eq!(view["errors"][0]["code"], "unknown-tool");
    let listed = named(&world, &["tools", "--json"]).exits(0);
    assert!(listed.stdout.contains("good:t") && listed.stderr.contains("`h` cannot be used"));
    world.file("good.yaml", "name: x\nsteps:\n  - { id: a, tool: 'good:t' }\n");
    named(&world, &["run", "good.yaml", "--yes"]).exits(0);
    // A mistake of the text stays a mistake of the text.
    world.file("wrong.yaml", "name: x\nsteps:\n  - { id: a, tool: 'good:tt' }\n");
    named(&world, &["check", "wrong.yaml"]).exits(2);
}

/// D1: checking a stranger's repository starts nothing of theirs (reliability.md row 18).
#[test]
fn what_was_merely_found_starts_nothing_until_it_is_trusted() {
    let world = world(&[("h", &scripted("good", "started"))]).merely_found();
    world.file(
        ".mcp.json",
        format!("{{ // mine\n \"mcpServers\": {{ \"p\": {}, }} }}", scripted("good", "started")),
    );
    for args in [
        &["check", "c.yaml"][..],
        &["tools"],
        &["doctor"],
        &["run", "c.yaml", "--yes"],
        &["plan", "c.yaml"],
    ] {
        let done = world.segue(args);
        assert!(!world.path("started").exists(), "{args:?} started something: {}", done.stderr);
    }
    let refused = world.segue(&["call", "p:t", "--yes"]).exits(4);
    assert!(refused.stderr.contains("segue trust"), "{}", refused.stderr);
    let shown = world.segue(&["trust"]).exits(0);
    assert!(
        shown.stderr.contains("2 servers") && shown.stderr.contains("hostile.py"),
        "{}",
        shown.stderr
    );
    world.segue(&["call", "p:t", "--yes"]).exits(0);
    world.segue(&["run", "c.yaml", "--yes"]).exits(0);
    // Another command line is another server.
    fs::remove_file(world.path("started")).unwrap();
    world.file("segue.yaml", config(&[("h", &scripted("structured", "started"))]));
    world.segue(&["run", "c.yaml", "--yes"]);
    assert!(!world.path("started").exists());
}

#[test]
fn offline_starts_nothing_and_says_what_it_goes_by() {
    let world = world(&[("h", &scripted("good", "h"))]);
    named(&world, &["check", "--offline", "c.yaml"]).exits(2);
    assert!(!world.path("h").exists());
    named(&world, &["check", "c.yaml"]).exits(0);
    fs::remove_file(world.path("h")).unwrap();
    let done = named(&world, &["check", "--offline", "c.yaml"]).exits(0);
    assert!(done.stderr.contains("recorded definitions of `h`"), "{}", done.stderr);
    assert!(!world.path("h").exists());
}

/// A broken, a slow, a missing and a good server, in under 15 s.
#[test]
fn the_doctor_names_the_state_of_each_server() {
    let world = world(&[
        ("broken", &scripted("early_exit", "a")),
        ("slow", &scripted("mute", "b")),
        ("missing", "{ command: no-such-program }"),
        ("good", &scripted("good", "c")),
        ("noisy", "{ command: sh, args: [-c, 'echo hello; cat > noise'] }"),
        ("nowhere", "{ command: sh, cwd: not/there }"),
        ("line", "{ command: 'sh -c true' }"),
        ("closed", "{ url: 'http://127.0.0.1:9/mcp' }"),
        ("discreet", "{ command: '/no/${DOCTORS_SECRET}/x' }"),
    ]);
    let mut doctor = world.command(SEGUE);
    doctor.env("DOCTORS_SECRET", "kk-supersecret-777");
    doctor.args(["--config", "segue.yaml", "doctor"]);
    let begun = Instant::now();
    let done = Done::of(doctor.output().unwrap()).exits(2);
    let time = begun.elapsed();
    for words in [
        "`broken` is broken: no handshake: it ended (exit code 3)",
        "no licence",
        "`noisy` is broken: it was not ready within 10000 ms",
        "where only messages belong: hello",
        "`nowhere` is broken: its working directory",
        "`line` cannot start",
        r#"write `command: sh` and `args: ["-c", "true"]`"#,
        "`closed` is broken",
        "Connection refused",
        "`discreet` cannot start",
        "`slow` is too slow",
        "`missing` cannot start",
        "`good` works: 1 tools",
    ] {
        assert!(done.stdout.contains(words), "{words}: {}", done.stdout);
    }
    assert!(!done.stdout.contains("supersecret"), "{}", done.stdout);
    assert!(time < Duration::from_secs(15), "{time:?}");
}

/// What is said of a tool that its server does not have is said of none: a slip of the pen there would
/// take a question away.
#[test]
fn a_name_in_tools_that_its_server_does_not_have_is_a_mistake() {
    let world = World::with(CALLS_H);
    let good = scripted("good", "h");
    let tools = |name: &str| {
        let tools = format!("tools:\n  '{name}': {{ confirm: always }}\n");
        world.file("segue.yaml", format!("{}{tools}", config(&[("h", &good)])));
    };
    world.file("none.yaml", "name: none\nsteps:\n  - { id: a, tool: echo }\n");
    let said = |args: &[&str], code| named(&world, args).exits(code).stderr;
    // The tools of the server are unknown.
    tools("h:tt");
    assert!(!said(&["run", "none.yaml"], 0).contains("`h:tt`"));
    let wrong = said(&["run", "c.yaml", "--yes"], 2);
    let words = "segue.yaml:4:3: `tools` names `h:tt`, which does not exist; did you mean `h:t`?";
    assert!(wrong.contains(words), "{wrong}");
    let note = said(&["run", "none.yaml"], 0);
    assert!(note.contains("`h` did not list last time"), "{note}");
    assert!(named(&world, &["doctor"]).exits(2).stdout.contains("names `h:tt`"));
    tools("tt");
    said(&["run", "c.yaml", "--yes"], 2);
    tools("t");
    assert!(!said(&["run", "c.yaml", "--yes"], 0).contains("speaks of"));
}

/// A server without its variables, or of a transport that is not spoken, is no mistake of the file.
#[test]
fn a_server_that_lacks_something_stops_only_who_needs_it() {
    let lacks = "{ command: x, args: ['${SURELY_UNSET}'], env: { A: '${ALSO_UNSET}' } }";
    let world = world(&[("h", lacks), ("old", "{ type: sse, url: 'http://x' }")]);
    world.file("none.yaml", "name: none\nsteps:\n  - { id: a, tool: echo }\n");
    named(&world, &["run", "none.yaml"]).exits(0);
    let both = "the environment variables `SURELY_UNSET`, `ALSO_UNSET` are not set";
    for args in [&["run", "c.yaml"][..], &["check", "c.yaml"], &["call", "h:t"]] {
        let done = named(&world, args).exits(4);
        assert!(done.stderr.contains(both), "{args:?}: {}", done.stderr);
    }
    let listed = named(&world, &["tools"]).exits(0);
    assert!(listed.stderr.contains(both) && listed.stderr.contains("`sse`"), "{}", listed.stderr);
    let seen = named(&world, &["doctor"]).exits(2);
    assert!(seen.stdout.contains(both) && seen.stdout.contains("`sse`"), "{}", seen.stdout);
    // Who names another source gets no reason that is not one.
    named(&world, &["call", "builtin:ech"]).exits(2);
}

/// What is wrong with a project's `.mcp.json` is said, and names in it do not pass for others.
#[test]
fn a_projects_servers_are_looked_at_like_ones_own() {
    let world = World::with("name: x\nsteps:\n  - { id: a, tool: 'a:t' }\n").merely_found();
    let good = scripted("good", "good");
    world.file("segue.yaml", config(&[("blog", &good), ("off", "{ disabled: true }")]));
    let project = format!(
        r#"{{ "mcpServers": {{ "a": {{ "command": "x", "env": {{ "A": "${{SURELY_UNSET}}" }} }}, "c": {good},
             "b": {good}, "B": {good}, "bl0g": {good}, "off": {good}, "builtin": {good} }} }}"#
    );
    world.file(".mcp.json", project);
    world.segue(&["trust"]).exits(0);
    let done = world.segue(&["run", "c.yaml"]).exits(4);
    assert!(done.stderr.contains("`SURELY_UNSET` is not set"), "{}", done.stderr);
    let listed = world.segue(&["tools"]).exits(0);
    for words in [
        "`a` cannot be used: the environment variable",
        "`b` cannot be used: its name looks like `B`",
        "`B` cannot be used: its name looks like `b`",
        "`bl0g` cannot be used: its name looks like `blog`",
        "server `builtin`: the name `builtin` is reserved for other tools",
    ] {
        assert!(listed.stderr.contains(words), "{words}: {}", listed.stderr);
    }
    let tools: Vec<&str> =
        listed.stdout.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(tools.contains(&"blog:t") && tools.contains(&"c:t"), "{tools:?}");
    for other in ["b:t", "B:t", "bl0g:t", "off:t"] {
        assert!(!tools.contains(&other), "{other}: {tools:?}");
    }

    let broken = World::new();
    broken.file(".mcp.json", r#"{ "mcpServers": { "a": {}, "a": {} } }"#);
    for (args, code) in [(&["trust"][..], 2), (&["tools"], 0), (&["doctor"], 2)] {
        let done = broken.segue(args).exits(code);
        let said = format!("{}{}", done.stdout, done.stderr);
        assert!(said.contains(".mcp.json`: ") && said.contains("`a`"), "{args:?}: {said}");
    }
}

/// D1: whatever key servers stand under, trust is of all of them.
#[test]
fn trust_is_of_the_servers_under_both_keys() {
    let world = World::with(CALLS_H).merely_found();
    let file = |behaviour: &str| {
        let (h, other) = (scripted(behaviour, "started"), scripted("good", "other"));
        world.file("segue.yaml", format!("mcpServers: {{ h: {h} }}\nservers: {{ o: {other} }}\n"));
    };
    file("good");
    let shown = world.segue(&["trust"]).exits(0);
    assert!(shown.stderr.contains("2 servers"), "{}", shown.stderr);
    world.segue(&["run", "c.yaml", "--yes"]).exits(0);
    fs::remove_file(world.path("started")).unwrap();
    file("structured");
    world.segue(&["run", "c.yaml", "--yes"]);
    assert!(!world.path("started").exists());
}

#[test]
fn mistakes_in_servers_are_found() {
    for (entry, words) in [
        ("{ comand: x }", "did you mean `command`"),
        ("{}", "needs a `command` or a `url`"),
        ("{ url: 'file:///etc/passwd' }", "http://"),
        ("{ command: x, timeout: soon }", "duration"),
    ] {
        let done = named(&world(&[("h", entry)]), &["tools"]).exits(2);
        assert!(done.stderr.contains(words), "{entry}: {}", done.stderr);
    }
    for (one, other) in [("pay", "Pay"), ("builtin", "x"), ("a b", "x")] {
        let done = named(
            &world(&[(&format!("'{one}'"), "{ command: x }"), (other, "{ command: x }")]),
            &["tools"],
        );
        assert_eq!(done.code, Some(2), "{one} {other}: {}", done.stderr);
    }
}

#[test]
fn init_takes_over_the_servers_of_another_host() {
    let world = World::new();
    world.file("host.json", r#"{ "mcpServers": { "gh": { "command": "npx", "args": ["gh@1"], "env": { "GH_TOKEN": "ghp_1" } }, } } // end"#);
    let done = world.segue(&["init", "new", "--from", "host.json"]).exits(0);
    assert!(done.stderr.contains("`GH_TOKEN` was not copied"), "{}", done.stderr);
    let text = fs::read_to_string(world.path("new/segue.yaml")).unwrap();
    assert!(
        text.contains(r#"gh: {"command":"npx","args":["gh@1"],"env":{"GH_TOKEN":"${GH_TOKEN}"}}"#),
        "{text}"
    );
    assert!(!text.contains("ghp_1"));
    // What it says to do next works before any variable is set.
    let next = ["--config", "new/segue.yaml", "run", "hello", "-i", "name=Ada"];
    world.segue(&next).exits(0);
}

/// The folder with the real servers, installed once.
pub(crate) fn real_servers() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("mcp-servers");
        let script = repository().join("scripts/install-mcp-servers");
        let done = Command::new(script).arg(&folder).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        folder
    })
}

/// Runs the program where the real servers are found.
pub(crate) fn with_servers(world: &World, args: &[&str]) -> Done {
    let mut path = real_servers().join("bin").into_os_string();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let mut command = world.command(SEGUE);
    command.env("PATH", path).env("MEMORY_FILE", world.path("memory.json"));
    Done::of(command.args([&["--config", "segue.yaml"], args].concat()).output().unwrap())
}

fn example(name: &str) -> World {
    let world = World::new();
    copy_folder(&repository().join("examples/mcp").join(name), &world.folder());
    world
}

/// Each step's outcome in the JSON view.
fn results(done: &Done) -> Json {
    done.json()["output"].clone()
}

#[test]
fn git_log_is_folded_and_written_or_nothing_is_left() {
    let world = example("git-report");
    let repository = world.path("repository");
    let repository = repository.to_str().unwrap();
    for args in [
        &["init", "--quiet", repository][..],
        &[
            "-C",
            repository,
            "-c",
            "user.name=A",
            "-c",
            "user.email=a@example.org",
            "commit",
            "--quiet",
            "--allow-empty",
            "-m",
            "the first words",
        ],
    ] {
        assert!(Command::new("git").args(args).status().unwrap().success());
    }
    let input = format!("repository={repository}");
    with_servers(&world, &["run", "report.yaml", "-i", &input, "-i", "publish=false", "--json"])
        .exits(1);
    assert!(!world.path("report.md").exists());
    with_servers(&world, &["run", "report.yaml", "-i", &input, "--json"]).exits(0);
    assert!(fs::read_to_string(world.path("report.md")).unwrap().contains("the first words"));
}

#[test]
fn a_graph_is_built_by_a_loop() {
    let done = with_servers(&example("memory-graph"), &["run", "graph.yaml", "--json"]).exits(0);
    assert_eq!(results(&done), serde_json::json!({ "people": 3, "relations": 3 }));
}

#[test]
fn the_first_zone_that_is_known_wins() {
    let done = with_servers(&example("time-zones"), &["run", "zones.yaml", "--json"]).exits(0);
    assert_eq!(results(&done)["zone"], "Europe/Berlin");
}

#[test]
fn other_real_servers_answer() {
    let world = World::new();
    world.file(
        "segue.yaml",
        config(&[
            ("everything", "{ command: mcp-server-everything, args: [stdio] }"),
            ("files", "{ command: mcp-server-filesystem, args: [.] }"),
            ("sqlite", "{ command: mcp-server-sqlite, args: [--db-path, a.db] }"),
        ]),
    );
    world.file("a.txt", "hello");
    let path = format!("path={}", world.path("a.txt").canonicalize().unwrap().display());
    for (args, expected) in [
        (&["call", "everything:get-sum", "-i", "a=2", "-i", "b=3"][..], "5"),
        (&["call", "files:read_text_file", "-i", &path], "hello"),
        (&["call", "sqlite:read_query", "-i", "query=select 1 as x", "--yes"], "[{'x': 1}]"),
        (
            &[
                "call",
                "everything:trigger-long-running-operation",
                "-i",
                "duration=1",
                "-i",
                "steps=2",
            ],
            "completed",
        ),
    ] {
        let done = with_servers(&world, args).exits(0);
        assert!(done.stdout.contains(expected), "{args:?}: {}", done.stdout);
    }
    let failed =
        with_servers(&world, &["call", "files:read_text_file", "-i", "path=/etc/passwd"]).exits(1);
    assert!(failed.stderr.contains("denied"), "{}", failed.stderr);
}

/// A real server whose tool has to be called as a task: it is, and what it asks on its way is asked.
#[test]
fn a_task_of_a_real_server_is_followed() {
    let world = World::with(
        "name: c\nsteps:\n  - { id: a, tool: 'e:simulate-research-query', parameters: { topic: python, ambiguous: '{{ input.ask }}' } }\ninput: { type: object, properties: { ask: { type: boolean } } }\noutput: '{{ a }}'\n",
    );
    world.file("segue.yaml", config(&[("e", "{ command: mcp-server-everything, args: [stdio] }")]));
    let run = ["run", "c.yaml", "--yes", "--json", "-i"];
    let done = with_servers(&world, &[&run[..], &["ask=false"]].concat()).exits(0).json();
    assert!(done["output"].as_str().unwrap().contains("Stage 4: Generating report"), "{done}");
    // No person can be asked: the question is declined, and the server continues without an answer.
    let done = with_servers(&world, &[&run[..], &["ask=true"]].concat()).exits(0).json();
    assert!(done["output"].as_str().unwrap().contains("User declined"), "{done}");
}

/// A server of the extension: another Segue, whose slow composition becomes a task.
#[test]
fn a_task_of_another_segue_is_followed() {
    let world = World::with(
        "name: outer\nsteps:\n  - { id: a, tool: 'inner:slow' }\noutput: '{{ a.n }}'\n",
    );
    world.file(
        "inner/slow.yaml",
        "name: slow\nsteps: [ { id: a, tool: sleep, parameters: { ms: 1500, value: 7 } } ]\noutput: { n: '{{ a.value }}' }\n",
    );
    world.file("inner/segue.yaml", "compositions: ['slow.yaml']\n");
    let args = json!(["--config", "inner/segue.yaml", "--store", "sqlite:inner.db", "mcp"]);
    let entry = json!({ "command": SEGUE, "args": args }).to_string();
    world.file("segue.yaml", config(&[("inner", &entry)]));
    let view = named(&world, &["run", "c.yaml", "--yes", "--json"]).exits(0).json();
    assert_eq!(view["output"], 7, "{view}");
}

/// A process that ends with the test.
struct Ending(std::process::Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_real_server_answers_over_http() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let program = real_servers().join("bin/mcp-server-everything");
    let mut command = Command::new(program);
    command.arg("streamableHttp").env("PORT", port.to_string()).stdout(Stdio::null());
    let server = Ending(command.stderr(Stdio::null()).spawn().unwrap());
    let world = World::new();
    let entry = format!(
        "{{ type: http, url: 'http://127.0.0.1:{port}/mcp', headers: {{ X-Token: abc }} }}"
    );
    world.file("segue.yaml", config(&[("web", &entry)]));
    let until = Instant::now() + Duration::from_secs(30);
    let mut done = named(&world, &["call", "web:get-sum", "-i", "a=2", "-i", "b=3"]);
    while done.code == Some(4) && Instant::now() < until {
        done = named(&world, &["call", "web:get-sum", "-i", "a=2", "-i", "b=3"]);
    }
    assert!(done.exits(0).stdout.contains('5'));
    drop(server);
    named(&world, &["call", "web:get-sum", "-i", "a=2", "-i", "b=3"]).exits(4);
}
