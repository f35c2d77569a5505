//! What the servers behind a composition tell and give, as the host in front of it gets it.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::ANY_TOOL;
use super::host::{Host, error, value};
use super::hosts;
use crate::mcp::real_servers;
use crate::served::Served;
use crate::support::{Json, World, json, repository, until};

fn script() -> PathBuf {
    repository().join("crates/segue-runtime/tests/fixtures/mcp/hostile.py")
}

/// A scripted server whose tool `t` behaves so.
fn scripted(behaviour: &str) -> Json {
    json!({ "command": "python3", "args": [script(), behaviour] })
}

fn world(server: &Json, composition: &str, limits: &str) -> World {
    let world = World::new();
    world.file("c.yaml", composition);
    let tools = if composition.contains("'h:t'") { "'h:t': { confirm: never }" } else { "" };
    world.file(
        "segue.yaml",
        format!(
            "compositions: [c.yaml]\nmcpServers: {{ h: {server} }}\ntools: {{ {tools} }}\n{limits}"
        ),
    );
    world
}

const CALLS: &str = "name: c\nsteps: [{ id: a, tool: 'h:t' }]\noutput: '{{ a }}'\n";

/// What a server says of its progress reaches a host that wants to know it: more each time, less than
/// the step, in the server's words, and not all too often.
#[test]
fn progress_of_a_server_is_passed_on() {
    let world = world(&scripted("tells_progress"), CALLS, "");
    for mut host in hosts(&world, &json!({})) {
        let id = host.begin(
            "tools/call",
            json!({ "name": "c", "arguments": {}, "_meta": { "progressToken": "p" } }),
        );
        let mut told = Vec::new();
        let answer = loop {
            let message = host.wait(|message| {
                message["id"] == id || message["method"] == "notifications/progress"
            });
            if message["id"] == id {
                break message;
            }
            told.push(message["params"].clone());
        };
        assert_eq!(value(&answer["result"]), json!({ "result": "ok" }));
        let numbers: Vec<f64> =
            told.iter().map(|told| told["progress"].as_f64().unwrap()).collect();
        assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "{told:?}");
        let words: Vec<&str> = told.iter().map(|told| told["message"].as_str().unwrap()).collect();
        assert!(words.contains(&"a: 1 of 4: part 1"), "{words:?}");
        assert!(numbers.contains(&0.25), "{numbers:?}");
        // Forty words of the server within a second and a half.
        assert!((2..=8).contains(&told.len()), "{told:?}");
    }
}

/// The same for who follows the run at the command line.
#[test]
fn progress_of_a_server_is_an_event() {
    let world = world(&scripted("tells_progress"), CALLS, "");
    let args = ["--config", "segue.yaml", "run", "c", "-o", "ndjson"];
    let done = world.segue(&args).exits(0);
    let lines = done.stdout.lines().map(|line| serde_json::from_str::<Json>(line).unwrap());
    let events: Vec<Json> = lines.filter(|line| line["event"] == "step_progress").collect();
    assert!(events.len() >= 2, "{}", done.stdout);
    assert_eq!(events[0]["detail"], "1 of 4: part 1", "{events:?}");
    assert_eq!((&events[0]["fraction"], &events[0]["step"]), (&json!(0.25), &json!("a")));
    assert_eq!(events[0]["seq"], 1, "{events:?}");
}

/// The content of an answer that is more than text.
fn shown(answer: &Json) -> Vec<Json> {
    let content = answer["content"].as_array().unwrap();
    content.iter().filter(|block| block["type"] != "text").cloned().collect()
}

/// A picture that a real server gives is a value for expressions, and a picture for the host; one that is
/// too large is a link to it.
#[test]
fn a_picture_of_a_server_is_passed_on() {
    let program = real_servers().join("bin/mcp-server-everything");
    let server = json!({ "command": program, "args": ["stdio"] });
    let composition = "\
name: c
steps: [{ id: a, tool: 'h:get-tiny-image' }]
output: { kind: '{{ a[1].mimeType }}', picture: '{{ a[1] }}' }
";
    for content_bytes_max in [1_000_000, 100] {
        let limits = format!(
            "limits: {{ served_start_ms: 60000, served_content_bytes_max: {content_bytes_max} }}\n"
        );
        let world = world(&server, composition, &limits);
        for mut host in hosts(&world, &json!({})) {
            let answer = host.call("c", json!({}));
            let structured = value(&answer);
            assert_eq!(structured["kind"], "image/png", "{answer}");
            let data = structured["picture"]["data"].as_str().unwrap();
            let shown = shown(&answer);
            assert_eq!(shown.len(), 1, "{shown:?}");
            if content_bytes_max > 100 {
                assert_eq!((&shown[0]["type"], &shown[0]["data"]), (&json!("image"), &json!(data)));
                assert_eq!(shown[0]["mimeType"], "image/png");
                continue;
            }
            assert_eq!(shown[0]["type"], "resource_link", "{shown:?}");
            assert_eq!(shown[0]["mimeType"], "image/png");
            let read = host.ask("resources/read", json!({ "uri": shown[0]["uri"] }));
            let contents = &read["result"]["contents"][0];
            assert_eq!(
                (&contents["blob"], &contents["mimeType"]),
                (&json!(data), &json!("image/png"))
            );
        }
    }
}

/// A resource inside an answer, and a link that only its own server can read.
#[test]
fn resources_of_a_server_are_passed_on() {
    let world = world(&scripted("resources"), CALLS, "");
    let mut host = Host::modern(&world, &json!({}));
    let answer = host.call("c", json!({}));
    let given = value(&answer)["result"].clone();
    assert_eq!(given.as_array().map(Vec::len), Some(4), "{answer}");
    let shown = shown(&answer);
    let kinds: Vec<&Json> = shown.iter().map(|block| &block["type"]).collect();
    assert_eq!(kinds, ["resource", "resource_link", "audio"], "{shown:?}");
    assert_eq!(shown[0]["resource"]["text"], "inside");
    assert_eq!(shown[1]["uri"], "https://example.org/a");
}

const LIST_CHANGED: &str = "notifications/tools/list_changed";

/// The names of the compositions that a host is offered.
fn offered(host: &mut Host) -> Vec<String> {
    let tools = host.ask("tools/list", json!({}))["result"]["tools"].clone();
    let names = tools.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap());
    let own = |name: &&str| name.starts_with("composition_") || name.starts_with("run_");
    names.filter(|name| !own(name)).map(str::to_owned).collect()
}

/// A server that cannot be used at the start is tried again: what needs it is offered once it is there,
/// and a run that waited for it resumes.
#[cfg(unix)]
#[test]
fn a_server_that_comes_late_is_taken_in() {
    let late = json!({ "command": "python3", "args": ["late.py"] });
    let composition = "name: c\nsteps: [{ id: a, tool: 'h:t' }, { id: b, tool: sleep, parameters: { ms: 1000 }, depends_on: [a] }, { id: d, tool: 'h:t', depends_on: [b] }]\n";
    let world = world(&late, composition, "");
    std::fs::copy(script(), world.path("late.py")).unwrap();
    let mut host = Host::legacy(&world, &json!({}));
    let call = json!({ "name": "c", "arguments": {}, "_meta": { "progressToken": 1 } });
    host.begin("tools/call", call);
    let told = host.wait(|message| {
        message["params"]["message"].as_str().is_some_and(|words| words.contains("sleep"))
    });
    let run = json!({ "run_id": told["params"]["_meta"]["segue/runId"], "wait_ms": 30_000 });
    let pid = rustix::process::Pid::from_raw(i32::try_from(host.pid()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    drop(host);
    std::fs::remove_file(world.path("late.py")).unwrap();
    let home = world.folder().with_file_name("home");
    std::fs::remove_dir_all(home.join("data/segue/mcp")).unwrap();

    let mut host = Host::legacy(&world, &json!({}));
    assert!(offered(&mut host).is_empty());
    let not_loaded = host.ask("tools/call", json!({ "name": "c", "arguments": {} }));
    let message = not_loaded["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("composition `c` could not be loaded: "), "{message}");
    assert!(message.contains("is down") && message.contains("`segue check c`"), "{message}");
    let unknown =
        json!({ "composition": { "name": "q", "steps": [{ "id": "a", "tool": "h:t" }] } });
    let refused = host.call("composition_execute", unknown);
    assert!(error(&refused).contains("is down"), "{refused}");
    std::fs::copy(script(), world.path("late.py")).unwrap();
    host.notification(LIST_CHANGED);
    assert_eq!(offered(&mut host), ["c"]);
    assert_eq!(value(&host.call("run_get", run))["status"], "success");
}

/// A note about the configuration is logged once, as a warning, although the tools are taken in again
/// when a server comes late.
#[test]
fn notes_are_logged_once_and_as_warnings() {
    let world = World::with("name: c\nsteps: [{ id: a, tool: 'h:t' }]\n");
    world.file(
        "segue.yaml",
        "compositions: [c.yaml, 'nothing/*.yaml']\nmcpServers: { h: { command: python3, args: [late.py] } }\n",
    );
    let mut command = world.command(crate::support::SEGUE);
    command.args(["--config", "segue.yaml", "--store", "memory", "serve", "--port", "0"]);
    command.args(["--no-token", "--log-format", "json"]).stderr(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let mut lines = lines.map(|line| serde_json::from_str::<Json>(&line).unwrap());
    let says = |line: &Json, part: &str| line["message"].as_str().unwrap().contains(part);
    let mut seen: Vec<Json> = Vec::new();
    while !seen.last().is_some_and(|line| says(line, "listening at")) {
        seen.push(lines.next().unwrap());
    }
    let address = seen.last().unwrap()["message"].as_str().unwrap().to_owned();
    let address = address.split("://").nth(1).unwrap().split(' ').next().unwrap();
    let served = Served::at(address.to_owned());
    std::fs::copy(script(), world.path("late.py")).unwrap();
    until(|| served.get("/api/v1/compositions").body.contains("\"c\"").then_some(()));
    child.kill().unwrap();
    child.wait().unwrap();
    seen.extend(lines);
    let notes: Vec<&Json> = seen.iter().filter(|line| says(line, "matches no file")).collect();
    assert_eq!(notes.len(), 1, "{seen:#?}");
    for line in seen.iter().filter(|line| says(line, "matches no") || says(line, "cannot be used"))
    {
        assert_eq!(line["level"], "WARN", "{line}");
    }
}

/// The start does not wait long for a server that does not answer, nor twice, and not at all for
/// one that was seen before.
#[test]
fn a_silent_server_delays_no_other_client() {
    let mute = world(&scripted("mute"), CALLS, "limits: { served_start_ms: 100 }\n");
    let unused = "name: c\nsteps: [{ id: a, tool: echo }]\n";
    let unused = world(&scripted("mute"), unused, "");
    assert_eq!(offered(&mut Host::legacy(&unused, &json!({}))), ["c"]);
    let seen = world(&json!({ "command": "python3", "args": ["seen.py"] }), CALLS, "");
    std::fs::copy(script(), seen.path("seen.py")).unwrap();
    assert_eq!(offered(&mut Host::legacy(&seen, &json!({}))), ["c"]);
    seen.file("seen.py", "import time; time.sleep(600)");
    for (world, names) in [(mute, &[][..]), (unused, &["c"]), (seen, &["c"])] {
        let begun = Instant::now();
        let mut host = Host::legacy(&world, &json!({}));
        assert_eq!(offered(&mut host), names);
        assert_eq!(host.leave(), Some(0));
        assert!(begun.elapsed() < Duration::from_secs(7), "{:?}", begun.elapsed());
    }
}

/// What is accepted elsewhere, and what a server offers later, is served without a restart.
#[test]
fn changes_of_a_server_are_taken_in() {
    let server = json!({ "command": "python3", "args": [script(), "filed", "tools.json"] });
    let world = world(&server, CALLS, ANY_TOOL);
    world.file("tools.json", r#"{ "t": "does things" }"#);
    let mut host = Host::legacy(&world, &json!({}));
    assert_eq!(offered(&mut host), ["c"]);
    world.file("tools.json", r#"{ "t": "does other things" }"#);
    value(&host.call("c", json!({})));
    host.notification(LIST_CHANGED);
    assert!(offered(&mut host).is_empty(), "what changed is not called");
    world.segue(&["--config", "segue.yaml", "tools", "accept", "h:t"]).exits(0);
    host.notification(LIST_CHANGED);
    world.file("tools.json", r#"{ "t": "does other things", "more": "and this" }"#);
    value(&host.call("c", json!({})));
    let composition = json!({ "name": "q", "steps": [{ "id": "a", "tool": "h:more" }] });
    until(|| {
        let checked =
            value(&host.call("composition_validate", json!({ "composition": composition })));
        (checked["ok"] == true).then_some(())
    });
}
