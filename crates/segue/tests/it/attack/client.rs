//! A client for servers that die while they answer: an answer counts once all of its bytes were read.

use std::fmt::Write as _;
use std::io::{Error, ErrorKind, Read as _, Result, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use crate::served::{Answer, Served};
use crate::support::{Json, json};

/// How long an answer may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// A client with a token.
#[derive(Clone)]
pub(super) struct Client {
    address: String,
    token: String,
    patience: Duration,
}

impl Client {
    pub(super) fn of(served: &Served, token: &str) -> Client {
        Client { address: served.address.clone(), token: token.to_owned(), patience: PATIENCE }
    }

    /// The same with another bound on how long an answer may take.
    pub(super) fn waiting(mut self, patience: Duration) -> Client {
        self.patience = patience;
        self
    }

    /// Sends a request and reads its answer, no byte further.
    pub(super) fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &Json,
    ) -> Result<Answer> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.send_text(method, path, headers, &body)
    }

    /// The same with a body that need not be JSON.
    pub(super) fn send_text(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Result<Answer> {
        let mut text = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\
             Authorization: Bearer {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n",
            self.address,
            self.token,
            body.len()
        );
        for (name, value) in headers {
            let _ = write!(text, "{name}: {value}\r\n");
        }
        text = text + "\r\n" + body;
        let mut stream = TcpStream::connect(&self.address)?;
        stream.set_read_timeout(Some(self.patience))?;
        stream.set_nodelay(true)?;
        // A server that refuses may answer before it has read everything.
        let _ = stream.write_all(text.as_bytes());
        let mut bytes = Vec::new();
        let mut part = vec![0; 65_536];
        loop {
            if let Some(answer) = whole(&bytes) {
                return Ok(answer);
            }
            let length = stream.read(&mut part)?;
            if length == 0 {
                return Err(Error::from(ErrorKind::UnexpectedEof));
            }
            bytes.extend_from_slice(&part[..length]);
        }
    }

    pub(super) fn get(&self, path: &str) -> Result<Answer> {
        self.send("GET", path, &[], &json!(null))
    }

    pub(super) fn post(&self, path: &str, body: &Json) -> Result<Answer> {
        self.send("POST", path, &[], body)
    }

    /// `Prefer: respond-async`
    pub(super) fn post_async(&self, path: &str, body: &Json) -> Result<Answer> {
        self.send("POST", path, &[("Prefer", "respond-async")], body)
    }

    /// The answer of GraphQL.
    pub(super) fn graphql(&self, query: &str, variables: &Json) -> Result<Json> {
        let body = json!({ "query": query, "variables": variables });
        Ok(self.post("/graphql", &body)?.json())
    }

    /// The answer of MCP, in the version without `initialize`. The client knows tasks, and nothing else.
    pub(super) fn mcp(&self, method: &str, mut params: Json) -> Result<Json> {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": { "name": "raw", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": {
                "extensions": { "io.modelcontextprotocol/tasks": {} } },
        });
        let named = ["name", "uri", "taskId"].iter().find_map(|key| params[key].as_str());
        let named = named.unwrap_or_default().to_owned();
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let mut headers = vec![
            ("Accept", "application/json, text/event-stream"),
            ("MCP-Protocol-Version", "2026-07-28"),
            ("Mcp-Method", method),
        ];
        if !named.is_empty() {
            headers.push(("Mcp-Name", &named));
        }
        let answer = self.send("POST", "/mcp", &headers, &message)?;
        let data = answer.body.lines().find_map(|line| line.strip_prefix("data: {"));
        let body = data.map_or(answer.body.clone(), |rest| format!("{{{rest}"));
        Ok(serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {answer:?}")))
    }
}

/// The answer, once all of it has come. Of a stream of events, its first message is all.
fn whole(bytes: &[u8]) -> Option<Answer> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let lower = head.to_lowercase();
    let field = |name: &str| lower.lines().find_map(|line| line.strip_prefix(name));
    if let Some(length) = field("content-length: ") {
        return (body.len() >= length.trim().parse().ok()?).then(|| Answer::parse(text));
    }
    if field("transfer-encoding: chunked").is_some() {
        let (body, is_over) = unchunked(body)?;
        let is_stream = field("content-type: ").is_some_and(|kind| kind.contains("event-stream"));
        let has_message = || {
            let start = body.find("data: {");
            is_stream && start.is_some_and(|start| body[start..].contains("\n\n"))
        };
        return (is_over || has_message()).then(|| Answer::parse(&format!("{head}\r\n\r\n{body}")));
    }
    lower.contains(" 204").then(|| Answer::parse(text))
}

/// The chunks of a body that have come, and whether the last one has.
fn unchunked(mut rest: &str) -> Option<(String, bool)> {
    let mut body = String::new();
    while let Some((length, more)) = rest.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).ok()?;
        if length == 0 {
            return Some((body, true));
        }
        if more.len() < length + 2 {
            break;
        }
        body.push_str(&more[..length]);
        rest = &more[length + 2..];
    }
    Some((body, false))
}
