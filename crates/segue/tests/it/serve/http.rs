//! `segue serve`: who may come in over HTTP.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use super::{DOUBLE, world};
use crate::support::{Json, SEGUE, World, json};

struct Served {
    child: Child,
    address: String,
    /// What was said at the start.
    said: String,
}

impl Served {
    fn start(world: &World, args: &[&str]) -> Served {
        let mut command = world.command(SEGUE);
        command.args([
            "--config",
            "segue.yaml",
            "--store",
            "memory",
            "serve",
            "--listen",
            "127.0.0.1:0",
        ]);
        command.args(args).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let first = lines.next().unwrap();
        let address = first.rsplit("http://").next().unwrap().trim_end_matches("/mcp").to_owned();
        let said = if args.is_empty() { lines.next().unwrap() } else { String::new() };
        std::thread::spawn(move || lines.for_each(drop));
        Served { child, address, said }
    }

    /// The status and body of a request.
    fn post(&self, headers: &[(&str, &str)], message: &Json) -> (u16, String) {
        let body = message.to_string();
        let host = ("Host", self.address.as_str());
        let is_host = |(name, _): &&(&str, &str)| *name == "Host";
        let host = if headers.iter().any(|header| is_host(&header)) { None } else { Some(&host) };
        let lines = headers.iter().chain(host).map(|(name, value)| format!("{name}: {value}\r\n"));
        let text = format!(
            "POST /mcp HTTP/1.1\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nContent-Length: {}\r\n{}",
            body.len(),
            lines.collect::<String>()
        );
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.write_all(format!("{text}\r\n{body}").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        (status, answer)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A call in the era without `initialize`, with the headers that go with it.
fn call() -> (Json, Vec<(&'static str, &'static str)>) {
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

/// Without the token nobody is heard; nor under a name that is not ours, nor from a foreign page.
#[test]
fn only_who_has_the_token_is_heard() {
    let world = world(
        "server: { token: open-sesame, allowed_origins: ['https://app.example.org:443'] }\n",
        &[("double", DOUBLE)],
    );
    let served = Served::start(&world, &["-q"]);
    let (message, headers) = call();
    let with = |more: &[(&'static str, &'static str)]| {
        served.post(&[&headers[..], more].concat(), &message)
    };
    let token = ("Authorization", "Bearer open-sesame");
    assert_eq!(with(&[]).0, 401);
    assert_eq!(with(&[("Authorization", "Bearer open-sesam")]).0, 401);
    assert_eq!(with(&[("Authorization", "Basic open-sesame")]).0, 401);
    let (status, answer) = with(&[token]);
    assert!(status == 200 && answer.contains(r#"{"n":42}"#), "{answer}");
    assert_eq!(with(&[token, ("Origin", "http://evil.example")]).0, 403);
    assert_eq!(with(&[token, ("Origin", "https://app.example.org")]).0, 200);
    assert_eq!(with(&[token, ("Host", "evil.example")]).0, 403);
}

/// Without a configured token one is made up and said; letting everybody in is for this machine only.
#[test]
fn a_token_is_made_up_and_leaving_it_out_is_for_this_machine() {
    let world = world("", &[("double", DOUBLE)]);
    let (message, mut headers) = call();
    let served = Served::start(&world, &[]);
    let token = served.said.split(' ').nth(4).unwrap().to_owned();
    assert_eq!(served.post(&headers, &message).0, 401);
    let bearer = format!("Bearer {token}");
    let bearer: &'static str = bearer.leak();
    headers.push(("Authorization", bearer));
    assert_eq!(served.post(&headers, &message).0, 200, "{}", served.said);
    drop(served);
    let served = Served::start(&world, &["--no-token"]);
    assert_eq!(served.post(&headers[..3], &message).0, 200);
    let refused = ["--config", "segue.yaml", "serve", "--no-token", "--listen", "0.0.0.0:0"];
    assert!(world.segue(&refused).exits(2).stderr.contains("only this machine"));
    world.segue(&["--config", "segue.yaml", "serve", "--listen", "here"]).exits(2);
}
