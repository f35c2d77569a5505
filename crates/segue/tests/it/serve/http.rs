//! `segue serve`: authentication over HTTP.

use super::host::{Host, error};
use super::{DOUBLE, world};
use crate::served::Served;
use crate::support::{Json, json};

impl Served {
    /// The status and body of a call of MCP.
    pub(crate) fn call(&self, headers: &[(&str, &str)], message: &Json) -> (u16, String) {
        let own = [
            ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"),
        ];
        let answer = self.ask("POST", "/mcp", &[&own, headers].concat(), &message.to_string());
        (answer.status, answer.body)
    }
}

/// A call in the era without `initialize`, with the headers that go with it.
pub(crate) fn call<'a>() -> (Json, Vec<(&'a str, &'a str)>) {
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "double_it", "arguments": { "n": 21 },
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": { "name": "raw", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": {},
        } } });
    let headers = [
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", "double_it"),
    ];
    (message, headers.to_vec())
}

/// Requests without the token, with a foreign host name or from a foreign origin are refused.
#[test]
fn only_who_has_the_token_is_heard() {
    let world = world(
        "server: { token: open-sesame-open-sesame-open-sesame, allowed_origins: ['https://app.example.org:443'] }\n",
        &[("double", DOUBLE)],
    );
    let served = Served::start(&world, "memory", &[]);
    let (message, headers) = call();
    let with = |more: &[(&str, &str)]| served.call(&[&headers[..], more].concat(), &message);
    let token = ("Authorization", "Bearer open-sesame-open-sesame-open-sesame");
    assert_eq!(with(&[]).0, 401);
    assert_eq!(with(&[("Authorization", "Bearer open-sesam")]).0, 401);
    assert_eq!(with(&[("Authorization", "Basic open-sesame-open-sesame-open-sesame")]).0, 401);
    let (status, answer) = with(&[token]);
    assert!(status == 200 && answer.contains(r#"{"n":42}"#), "{answer}");
    assert_eq!(with(&[token, ("Origin", "http://evil.example")]).0, 403);
    assert_eq!(with(&[token, ("Origin", "https://app.example.org")]).0, 200);
    assert_eq!(with(&[token, ("Host", "evil.example")]).0, 403);
}

/// Numbers that no float holds come in and leave as they are, also over HTTP, in both kinds of answers.
#[test]
fn numbers_are_exact_over_http() {
    let same = "name: double-it\nsteps: [ { id: a, tool: echo, parameters: { n: '{{ input.n }}' } } ]\noutput: '{{ a }}'\n";
    let world = world("", &[("double", same)]);
    let served = Served::start(&world, "memory", &["--no-token"]);
    let (message, headers) = call();
    let message = message.to_string().replace("21", "18446744073709551617");
    let own =
        [("Content-Type", "application/json"), ("Accept", "application/json, text/event-stream")];
    let answer = served.ask("POST", "/mcp", &[&own[..], &headers].concat(), &message);
    let exact = r#""structuredContent":{"n":18446744073709551617}"#;
    assert!(answer.body.contains(exact), "{answer:?}");
}

/// Without a configured token one is generated and printed; serving without a token is for loopback
/// only.
#[test]
fn a_token_is_made_up_and_leaving_it_out_is_for_this_machine() {
    let world = world("", &[("double", DOUBLE)]);
    let (message, mut headers) = call();
    let served = Served::start(&world, "memory", &[]);
    let token = served.said("token: ").split(' ').nth(1).unwrap().to_owned();
    assert_eq!(served.call(&headers, &message).0, 401);
    let bearer = format!("Bearer {token}");
    let bearer: &'static str = bearer.leak();
    headers.push(("Authorization", bearer));
    assert_eq!(served.call(&headers, &message).0, 200);
    drop(served);
    let served = Served::start(&world, "memory", &["--no-token"]);
    assert_eq!(served.call(&headers[..3], &message).0, 200);
    let refused = ["--config", "segue.yaml", "serve", "--no-token", "--listen", "0.0.0.0:0"];
    assert!(world.segue(&refused).exits(2).stderr.contains("only a loopback address"));
    world.segue(&["--config", "segue.yaml", "serve", "--listen", "here"]).exits(2);
}

/// A body that is no message gets a protocol error.
#[test]
fn nonsense_is_answered_over_http() {
    let world =
        world("server: { token: open-sesame-open-sesame-open-sesame }\n", &[("double", DOUBLE)]);
    let served = Served::start(&world, "memory", &[]);
    let headers = [
        ("Authorization", "Bearer open-sesame-open-sesame-open-sesame"),
        ("Content-Type", "application/json"),
        ("Accept", "application/json, text/event-stream"),
    ];
    let one = r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#;
    for (body, code) in [("{not json", -32700), (&format!("[{one}]"), -32600), ("17", -32600)] {
        let answer = served.ask("POST", "/mcp", &headers, body);
        let told: Json = serde_json::from_str(&answer.body).unwrap();
        assert_eq!((answer.status, &told["error"]["code"]), (400, &json!(code)), "{body}: {told}");
    }
    let text = [headers[0], ("Content-Type", "text/plain"), headers[2]];
    assert_eq!(served.ask("POST", "/mcp", &text, one).status, 415);
}

/// A composition that needs a capability of its client is refused without it: by the error of the protocol,
/// which is 400 over HTTP, and in words where the protocol has none.
#[test]
fn a_client_without_a_required_capability_is_refused() {
    let needy = "name: double-it\nrequires: { capabilities: [sampling] }\nsteps: [ { id: a, tool: echo } ]\n";
    let token = "server: { token: open-sesame-open-sesame-open-sesame }\n";
    let world = world(token, &[("needy", needy)]);
    let served = Served::start(&world, "memory", &[]);
    let (mut message, mut headers) = call();
    headers.push(("Authorization", "Bearer open-sesame-open-sesame-open-sesame"));
    let (status, answer) = served.call(&headers, &message);
    assert!(status == 400 && answer.contains("-32021"), "{status} {answer}");
    assert!(answer.contains(r#""requiredCapabilities":{"sampling":{}}"#), "{answer}");
    message["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] =
        json!({ "sampling": {} });
    assert_eq!(served.call(&headers, &message).0, 200);
    let mut host = Host::legacy(&world, &json!({}));
    let told = host.call("double_it", json!({}));
    assert!(error(&told).contains("needs a host that declares `sampling`"), "{told}");
}
