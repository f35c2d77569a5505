//! MCP servers that leak their secrets, and servers that cannot be used: the messages about them,
//! on every surface.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use crate::runs::everything;
use crate::serve::host::{Host, error, text, value};
use crate::served::{Served, TOKEN};
use crate::support::{Done, Json, SEGUE, World, json, repository};

const CANARY: &str = "canary-7f3a9b-5d";

const CALLS: &str = "name: tell\nsteps:\n  - { id: a, tool: 's:t' }\noutput: '{{ a }}'\n";

fn script() -> String {
    let script = repository().join("crates/segue-runtime/tests/fixtures/mcp/leaking.py");
    script.display().to_string()
}

/// A server at an address, which ends with its test.
struct AtAddress(Child, u16);

impl AtAddress {
    fn start(mode: &str) -> AtAddress {
        let mut command = Command::new("python3");
        let mut child = command.args([&script(), mode]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        AtAddress(child, line.trim().parse().unwrap())
    }
}

impl Drop for AtAddress {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A world whose server `s` is given the secret, written down or as a variable.
fn trusting(mode: &str, is_written: bool) -> (World, Option<AtAddress>) {
    let world = World::with(CALLS);
    let secret = if is_written { CANARY } else { "${CANARY}" };
    let at = mode.starts_with("http").then(|| AtAddress::start(mode));
    let server = match &at {
        None => {
            json!({ "command": "python3", "args": [script(), mode], "env": { "API_TOKEN": secret } })
        }
        Some(at) => json!({ "type": "http", "url": format!("http://127.0.0.1:{}/mcp", at.1),
            "headers": { "Authorization": format!("Bearer {secret}") } }),
    };
    let config = format!(
        "mcpServers: {{ s: {server} }}\ntoolsets: {{ any: {{ allow: ['*'] }} }}\n\
         server: {{ token: {TOKEN}, inline: any }}\n"
    );
    world.file("segue.yaml", format!("{config}compositions: ['lib/*.yaml']\n"));
    world.file("lib/tell.yaml", CALLS);
    (world, at)
}

fn segue(world: &World, args: &[&str]) -> Done {
    let mut command = world.command(SEGUE);
    command.env("CANARY", CANARY).args(["--config", "segue.yaml", "--store", "sqlite:s.db"]);
    Done::of(command.args(args).output().unwrap())
}

/// D2, reliability.md row 21: a secret that a server leaks, in whatever form, goes no further: not
/// to the command line, the journal, the record, MCP or REST.
#[test]
fn a_secret_in_the_answer_of_a_server_is_redacted() {
    let modes = ["start", "fails", "refuses", "dies", "asks", "lists", "http_start", "http_call"];
    for (n, mode) in modes.into_iter().enumerate() {
        let (world, _at) = trusting(mode, n % 2 == 0);
        let mut seen = String::new();
        for args in [
            &["run", "c.yaml", "--yes", "-v"][..],
            &["run", "c.yaml", "--yes", "--json"],
            &["check", "c.yaml"],
            &["doctor"],
            &["call", "s:t", "--yes"],
            &["runs", "show", "last", "--json"],
            &["tools"],
            &["tools", "show", "s:t"],
            &["check", "c.yaml", "--offline"],
        ] {
            let done = segue(&world, args);
            seen += &(done.stdout + &done.stderr);
        }
        let mut host = Host::start_with(&world, &[("CANARY", CANARY)], &[]);
        host.greet(&json!({ "elicitation": { "form": {} } }));
        let composition = json!({ "composition": CALLS });
        let validated = host.call("composition_validate", composition.clone());
        let id = host.begin(
            "tools/call",
            json!({ "name": "composition_execute", "arguments": composition }),
        );
        if mode == "asks" {
            let asked = host.request("elicitation/create");
            host.reply(&asked, json!({ "action": "decline" }));
            seen += &asked.to_string();
        }
        let executed = host.answer(id);
        seen += &validated.to_string();
        seen += &executed.to_string();
        drop(host);
        let served = Served::start_with(&world, "sqlite:s.db", &[], &[("CANARY", CANARY)]);
        for path in ["validate", "execute"] {
            let path = format!("/api/v1/compositions/{path}");
            seen += &served.post(&path, &json!({ "composition": CALLS })).body;
        }
        drop(served);
        assert!(seen.contains("«secret»"), "{mode} tells nothing:\n{seen}");
        assert!(!seen.contains(CANARY), "{mode}:\n{seen}");
        assert!(!everything(&world).contains(CANARY), "{mode}");
    }
}

/// A tool whose server cannot be used is not simply unknown: every surface says what is wrong with the
/// server, in the same words.
#[test]
fn every_surface_says_why_a_tool_is_unavailable() {
    let (world, _) = trusting("start", true);
    let why = "the MCP server `s` is down: no handshake";
    let told = |finding: &Json| {
        assert_eq!(finding["code"], "unknown-tool", "{finding}");
        assert!(finding["message"].as_str().unwrap().contains(why), "{finding}");
        assert!(finding["help"].as_str().unwrap().contains("`segue doctor`"), "{finding}");
    };
    let checked = segue(&world, &["check", "c.yaml", "--json"]).exits(4).json();
    told(&checked["diagnostics"][0]);

    let mut host = Host::start(&world);
    host.greet(&json!({}));
    let composition = json!({ "composition": CALLS });
    let validated = value(&host.call("composition_validate", composition.clone()));
    assert_eq!(validated["ok"], false);
    told(&validated["diagnostics"][0]);
    let refused = host.call("composition_execute", composition.clone());
    assert!(error(&refused).contains(why), "{}", text(&refused));

    let served = Served::start(&world, "memory", &[]);
    let validated = served.post("/api/v1/compositions/validate", &composition).is(200);
    told(&validated["diagnostics"][0]);
    // One that is served and cannot be loaded is named with the reason, too.
    let listed = segue(&world, &["tools"]).exits(0);
    assert!(listed.stderr.contains("lib/tell.yaml"), "{}", listed.stderr);
    assert!(listed.stderr.contains("cannot be used"), "{}", listed.stderr);
}
