//! The configuration changes while the server runs, and no request in progress notices.

use super::rights::EXECUTE;
use crate::served::{Served, TOKEN};
use crate::support::{SEGUE, World, json};

/// A composition that asks in the middle, between two calls of the server `first`.
const ASKS: &str = "\
name: asks
steps:
  - { id: a, tool: 'first:twice', parameters: { n: 1 }, output_key: a }
  - { id: ok, approve: { message: 'go on?' }, depends_on: [a] }
  - { id: b, tool: 'first:twice', parameters: { n: '{{ a.n }}' }, depends_on: [ok], output_key: b }
";

const TWICE: &str = "\
name: twice
input: { type: object, required: [n], properties: { n: { type: integer } } }
steps: [ { id: a, tool: echo, parameters: { n: '{{ input.n * 2 }}' } } ]
output: { n: '{{ a.n }}' }
";

/// A configuration with this server, and additional settings.
fn config(server: &str, more: &str) -> String {
    format!(
        "compositions: ['lib/*.yaml']\nmcpServers:\n  {server}:\n    command: '{SEGUE}'\n    \
         args: [--config, other.yaml, --store, memory, mcp]\n{more}"
    )
}

/// A world in which another Segue is the server of tools.
fn world(config: &str) -> World {
    let world = World::new();
    world.file("segue.yaml", config);
    world.file("other.yaml", "compositions: ['other/*.yaml']\n");
    world.file("other/twice.yaml", TWICE);
    world
}

/// The token that takes its place.
const CHANGED: &str = "changed-changed-changed-changed-changed";

const TOKENS: &str = "server: { token: open-sesame-open-sesame-open-sesame }\n";

/// How many processes a process has started and not ended.
fn children(served: &Served) -> usize {
    let pid = served.pid();
    let file = format!("/proc/{pid}/task/{pid}/children");
    std::fs::read_to_string(file).unwrap_or_default().split_whitespace().count()
}

fn tool_ids(served: &Served) -> Vec<String> {
    let listed = served.get("/api/v1/tools").is(200);
    let tools = listed["tools"].as_array().unwrap().iter();
    tools.map(|tool| tool["id"].as_str().unwrap().to_owned()).collect()
}

/// Runs in progress and waiting runs keep their servers; new ones get the new configuration, and a
/// server without callers ends.
#[test]
fn a_configuration_changes_under_runs() {
    let world = world(&config("first", TOKENS));
    world.file("lib/asks.yaml", ASKS);
    let served = Served::start(&world, "memory", &["--watch"]);
    let begun = served.post(EXECUTE, &json!({ "name": "asks" })).is(202);
    assert_eq!(begun["status"], "waiting", "{begun}");
    let waits = begun["run_id"].as_str().unwrap().to_owned();
    let sleeps = json!({ "composition": { "name": "sleeps", "steps": [
        { "id": "a", "tool": "first:twice", "parameters": { "n": 1 } },
        { "id": "b", "tool": "sleep", "parameters": { "ms": 60_000 }, "depends_on": ["a"] }] } });
    let prefer = [("Prefer", "respond-async")];
    let begun = served.send("POST", EXECUTE, &prefer, &sleeps).is(202);
    let sleeps = begun["run_id"].as_str().unwrap().to_owned();
    assert!(tool_ids(&served).iter().any(|id| id == "first:twice"));
    let old = children(&served);

    std::fs::remove_file(world.path("lib/asks.yaml")).unwrap();
    world.file(
        "segue.yaml",
        config(
            "second",
            "server: { token: open-sesame-open-sesame-open-sesame }\nlimits: { served_body_bytes_max: 2000 }\n",
        ),
    );
    served.said("configuration reloaded");
    let ids = tool_ids(&served);
    assert!(ids.iter().any(|id| id == "second:twice"), "{ids:?}");
    assert!(!ids.iter().any(|id| id.starts_with("first:")), "{ids:?}");
    let called = json!({ "composition": { "name": "n", "steps": [
        { "id": "a", "tool": "second:twice", "parameters": { "n": 4 }, "output_key": "a" }] } });
    assert_eq!(served.post(EXECUTE, &called).is(200)["results"]["a"]["n"], 8);
    // Limits are those of the new one.
    let large = json!({ "composition": "x".repeat(3_000) });
    served.post(EXECUTE, &large).is_problem(413, "limit");

    let view =
        served.post(&format!("/api/v1/runs/{waits}/approve"), &json!({ "approved": true })).is(200);
    assert_eq!(
        (&view["status"], &view["results"]["b"]["n"]),
        (&json!("success"), &json!(4)),
        "{view}"
    );
    let view = served.post(&format!("/api/v1/runs/{sleeps}/cancel"), &json!(null)).is(200);
    assert_eq!(view["status"], "cancelled", "{view}");
    // The old server has no callers any more.
    while cfg!(target_os = "linux") && children(&served) > old {
        std::thread::yield_now();
    }
}

/// A kept server leaks no secrets of a later configuration, also to runs that began
/// before it.
#[test]
fn a_server_that_is_kept_learns_new_secrets() {
    let world = world(&config("first", TOKENS));
    world.file(
        "other/say.yaml",
        "name: say\ninput: { type: object, properties: { text: { type: string } } }\n\
         steps: [ { id: a, tool: echo, parameters: { text: '{{ input.text }}' } } ]\n\
         output: { text: '{{ a.text }}' }\n",
    );
    let served = Served::start(&world, "memory", &["--watch"]);
    let asks = json!({ "composition": { "name": "asks", "steps": [
        { "id": "ok", "approve": { "message": "go on?" } },
        { "id": "b", "tool": "first:say", "parameters": { "text": "it is s3cr3t-and-long" },
          "depends_on": ["ok"], "output_key": "b" }] } });
    let begun = served.post(EXECUTE, &asks).is(202);
    let waits = begun["run_id"].as_str().unwrap();
    let more = "    env: { API_KEY: s3cr3t-and-long }\n";
    let second = config("second", "").replace("compositions: ['lib/*.yaml']\nmcpServers:\n", "");
    let first = config("first", "");
    world.file("segue.yaml", format!("{first}{second}{more}{TOKENS}"));
    served.said("configuration reloaded");
    let view =
        served.post(&format!("/api/v1/runs/{waits}/approve"), &json!({ "approved": true })).is(200);
    assert_eq!(view["results"]["b"]["text"], "it is «secret»", "{view}");
}

/// A configuration with a mistake is said to have one, and the one before stays.
#[test]
fn a_configuration_that_cannot_be_used_changes_nothing() {
    let world = world(&config("first", TOKENS));
    let served = Served::start(&world, "memory", &["--watch"]);
    world.file("segue.yaml", config("first", "server: { tokn: x }\n"));
    served.said("`server` has no field `tokn`");
    served.said("the previous one stays in use");
    assert!(tool_ids(&served).iter().any(|id| id == "first:twice"));
    world.file("segue.yaml", config("second", TOKENS));
    served.said("configuration reloaded");
    assert!(tool_ids(&served).iter().any(|id| id == "second:twice"));
}

/// A hangup has the configuration read again, also when it is not followed: who was let in before is not,
/// also on a connection that is still open, and who was not is.
#[cfg(unix)]
#[test]
fn a_hangup_reads_the_configuration_again() {
    use std::io::{Read as _, Write as _};
    let world = world(&config("first", TOKENS));
    let served = Served::start(&world, "memory", &[]);
    let ready = |token: &str| {
        let bearer = format!("Bearer {token}");
        served.ask("GET", "/readyz", &[("Authorization", &bearer)], "").status
    };
    assert_eq!((ready(TOKEN), ready(CHANGED)), (200, 401));
    let bearer = format!("Bearer {TOKEN}");
    let headers = [("Authorization", &*bearer), ("Connection", "keep-alive")];
    let request = served.request("GET", "/healthz", &headers, "");
    let again = served.request("GET", "/readyz", &headers[..1], "");
    let mut open = served.connect();
    open.write_all(request.as_bytes()).unwrap();
    let mut some = [0; 12];
    open.read_exact(&mut some).unwrap();
    world.file("segue.yaml", config("first", &format!("server: {{ token: {CHANGED} }}\n")));
    let pid = rustix::process::Pid::from_raw(served.pid().try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    served.said("configuration reloaded");
    assert_eq!((ready(TOKEN), ready(CHANGED)), (401, 200));
    open.write_all(again.as_bytes()).unwrap();
    let mut rest = String::new();
    open.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("HTTP/1.1 401"), "{rest}");
}

/// A stream ends when its token is revoked, on every surface. The run itself continues.
#[test]
fn streams_end_with_their_token() {
    use std::io::{Read as _, Write as _};
    let world = world(&config("first", TOKENS));
    let served = Served::start(&world, "memory", &["--watch"]);
    let sleeps = json!({ "composition": { "name": "sleeps", "steps": [
        { "id": "a", "tool": "sleep", "parameters": { "ms": 600_000 } }] } });
    let prefer = [("Prefer", "respond-async")];
    let begun = served.send("POST", EXECUTE, &prefer, &sleeps).is(202);
    let run_id = begun["run_id"].as_str().unwrap();
    let session = served.mcp_session();
    let bearer = format!("Bearer {TOKEN}");
    let query = format!("subscription {{ runEvents(runId: \"{run_id}\") {{ seq }} }}");
    let headers = [
        ("Authorization", &*bearer),
        ("Accept", "text/event-stream"),
        ("Content-Type", "application/json"),
        ("Mcp-Session-Id", &session),
    ];
    let asked = [
        ("GET", format!("/api/v1/runs/{run_id}/events"), String::new()),
        ("POST", "/graphql".to_owned(), json!({ "query": query }).to_string()),
        ("GET", "/mcp".to_owned(), String::new()),
    ];
    let mut streams: Vec<_> = asked
        .iter()
        .map(|(method, path, body)| {
            // Sessions are for MCP alone.
            let headers = if path == "/mcp" { &headers[..] } else { &headers[..3] };
            let mut stream = served.connect();
            stream.set_read_timeout(Some(std::time::Duration::from_mins(1))).unwrap();
            let request = served.request(method, path, headers, body);
            stream.write_all(request.as_bytes()).unwrap();
            let mut some = [0; 15];
            stream.read_exact(&mut some).unwrap();
            assert_eq!(std::str::from_utf8(&some).unwrap(), "HTTP/1.1 200 OK", "{path}");
            stream
        })
        .collect();
    world.file("segue.yaml", config("first", &format!("server: {{ token: {CHANGED} }}\n")));
    served.said("configuration reloaded");
    for (stream, (_, path, _)) in streams.iter_mut().zip(&asked) {
        let mut rest = String::new();
        stream.read_to_string(&mut rest).unwrap_or_else(|error| panic!("{path}: {error}"));
        assert!(rest.contains("text/event-stream"), "{path}: {rest}");
    }
    let view = served.send_by(
        CHANGED,
        "POST",
        &format!("/api/v1/runs/{run_id}/cancel"),
        &[],
        &json!(null),
    );
    assert_eq!(view.is(200)["status"], "cancelled");
}
