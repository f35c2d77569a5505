//! Calls of MCP servers over HTTP: answers, streams, sessions and questions of a scripted server.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use segue_core::limits::Limits;
use segue_core::source::Source;
use segue_core::value::Value;
use segue_runtime::engine::{Engine, RunRequest};
use segue_runtime::tools::mcp::{
    Listing, McpHttpConfig, ServerConfig, ServerTransport, UpstreamServer,
};
use segue_runtime::tools::{Tool, ToolError};
use serde_json::{Value as Json, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Barrier, Notify};

use crate::mcp::{Helpful, call};

/// How the server answers a call.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Json,
    Events,
    /// In the modern era, with the content of its headers.
    Modern,
    /// In the modern era, with a second tool after `announce`.
    Announcing,
    /// Once so many calls are there.
    Together,
    /// The first session expires when the first call arrives.
    Expired,
    /// The stream ends after its first event, which has an id; the answer is in the next stream.
    Resumed,
    /// The stream ends.
    Cut,
    /// A person is asked first.
    Asking,
    /// Never.
    Silent,
    Large,
    Unwilling,
}

/// Concurrent calls.
const TOGETHER: usize = 64;

struct Site {
    way: Way,
    sessions: AtomicUsize,
    calls: AtomicUsize,
    connections: AtomicUsize,
    together: Barrier,
    /// The person's answer.
    said: Notify,
    cancelled: Notify,
    /// Announces a change of the tools to the subscriber.
    announce: Notify,
    /// Whether the change was announced.
    is_announced: AtomicBool,
    /// The id of the call whose stream ended early.
    cut: Mutex<Json>,
}

/// A request: its head and its message.
struct Asked {
    head: String,
    message: Json,
}

async fn read(stream: &mut BufReader<TcpStream>) -> Option<Asked> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).await.ok()? == 0 {
            return None;
        }
    }
    let head = head.to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).await.ok()?;
    Some(Asked { head, message: serde_json::from_slice(&body).unwrap_or_default() })
}

async fn write(stream: &mut BufReader<TcpStream>, text: &str) {
    // A client that has gone away is none of the server's business.
    let _ = stream.get_mut().write_all(text.as_bytes()).await;
}

/// A part of a stream of events; an empty one ends it.
async fn chunk(stream: &mut BufReader<TcpStream>, text: &str) {
    write(stream, &format!("{:x}\r\n{text}\r\n", text.len())).await;
}

async fn events(stream: &mut BufReader<TcpStream>) {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked";
    write(stream, &format!("{head}\r\n\r\n")).await;
}

async fn answer(stream: &mut BufReader<TcpStream>, status: &str, more: &str, body: &str) {
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n{more}");
    write(stream, &format!("{head}content-type: application/json\r\n\r\n{body}")).await;
}

fn result(id: &Json, result: &Json) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string()
}

impl Site {
    async fn serve(self: Arc<Site>, stream: TcpStream) {
        self.connections.fetch_add(1, Ordering::SeqCst);
        let mut stream = BufReader::new(stream);
        while let Some(asked) = read(&mut stream).await {
            self.respond(&mut stream, asked).await;
        }
    }

    async fn respond(&self, stream: &mut BufReader<TcpStream>, Asked { head, message }: Asked) {
        let id = &message["id"];
        if head.starts_with("get ") {
            if head.contains("last-event-id: 7") {
                events(stream).await;
                let id = self.cut.lock().unwrap().clone();
                let text = result(&id, &json!({ "structuredContent": { "again": true } }));
                chunk(stream, &format!("data: {text}\n\n")).await;
                return chunk(stream, "").await;
            }
            return answer(stream, "405 Method Not Allowed", "", "").await;
        }
        match message["method"].as_str() {
            Some("initialize") => {
                let session = self.sessions.fetch_add(1, Ordering::SeqCst) + 1;
                let us = json!({
                    "protocolVersion": "2025-11-25",
                    "capabilities": { "tools": {} },
                    "serverInfo": { "name": "site", "version": "1" },
                });
                let more = format!("mcp-session-id: s{session}\r\n");
                answer(stream, "200 OK", &more, &result(id, &us)).await;
            }
            Some("tools/list") if self.way == Way::Announcing => {
                let tool =
                    |name: &str| json!({ "name": name, "inputSchema": { "type": "object" } });
                let mut tools = vec![tool("t")];
                tools.extend(self.is_announced.load(Ordering::SeqCst).then(|| tool("new")));
                let list = json!({
                    "resultType": "complete", "ttlMs": 0, "cacheScope": "private", "tools": tools,
                });
                answer(stream, "200 OK", "", &result(id, &list)).await;
            }
            Some("subscriptions/listen") => self.announce_change(stream, id).await,
            Some("tools/list") if self.way == Way::Modern => {
                let region = json!({ "type": "string", "x-mcp-header": "Region" });
                let schema = json!({ "type": "object", "properties": { "region": region } });
                let tools = json!([
                    { "name": "t", "inputSchema": { "type": "object" } },
                    { "name": "u", "inputSchema": schema },
                ]);
                let list = json!({
                    "resultType": "complete", "ttlMs": 0, "cacheScope": "private", "tools": tools,
                });
                answer(stream, "200 OK", "", &result(id, &list)).await;
            }
            Some("tools/list") => {
                let tool = json!({
                    "name": "t", "inputSchema": { "type": "object" },
                    "annotations": { "readOnlyHint": self.way != Way::Cut },
                });
                answer(stream, "200 OK", "", &result(id, &json!({ "tools": [tool] }))).await;
            }
            Some("tools/call") => self.call(stream, id, &head, &message["params"]).await,
            Some("server/discover") if matches!(self.way, Way::Modern | Way::Announcing) => {
                let changes = self.way == Way::Announcing;
                let us = json!({
                    "resultType": "complete", "supportedVersions": ["2026-07-28"],
                    "capabilities": { "tools": { "listChanged": changes } },
                    "ttlMs": 0, "cacheScope": "private",
                    "_meta": { "io.modelcontextprotocol/serverInfo": { "name": "s", "version": "1" } },
                });
                answer(stream, "200 OK", "", &result(id, &us)).await;
            }
            Some("server/discover") => {
                let error = json!({ "code": -32601, "message": "no such method" });
                let text = json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string();
                answer(stream, "200 OK", "", &text).await;
            }
            method => {
                if method == Some("notifications/cancelled") {
                    self.cancelled.notify_one();
                }
                if message["result"]["content"]["name"] == "Ada" {
                    self.said.notify_one();
                }
                answer(stream, "202 Accepted", "", "").await;
            }
        }
    }

    /// Keeps a subscription open, and announces a change when the test says so.
    async fn announce_change(&self, stream: &mut BufReader<TcpStream>, id: &Json) {
        let notice = |method: &str, params: Json| {
            let mut params = params;
            params["_meta"] = json!({ "io.modelcontextprotocol/subscriptionId": id });
            let notice = json!({ "jsonrpc": "2.0", "method": method, "params": params });
            format!("data: {notice}\n\n")
        };
        let filter = json!({ "notifications": { "toolsListChanged": true } });
        events(stream).await;
        chunk(stream, &notice("notifications/subscriptions/acknowledged", filter)).await;
        self.announce.notified().await;
        self.is_announced.store(true, Ordering::SeqCst);
        chunk(stream, &notice("notifications/tools/list_changed", json!({}))).await;
        std::future::pending::<()>().await;
    }

    async fn call(&self, stream: &mut BufReader<TcpStream>, id: &Json, head: &str, params: &Json) {
        let count = self.calls.fetch_add(1, Ordering::SeqCst);
        let done = result(id, &json!({ "structuredContent": params["arguments"] }));
        match self.way {
            Way::Json | Way::Announcing => answer(stream, "200 OK", "", &done).await,
            Way::Modern => {
                let said = |name: &str| {
                    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
                };
                let era = &params["_meta"]["io.modelcontextprotocol/protocolVersion"];
                let told = json!({
                    "method": said("mcp-method"), "name": said("mcp-name"),
                    "region": said("mcp-param-region"), "version": said("mcp-protocol-version"),
                    "era": era,
                });
                let told = json!({ "resultType": "complete", "structuredContent": told });
                answer(stream, "200 OK", "", &result(id, &told)).await;
            }
            Way::Events => {
                events(stream).await;
                let progress = json!({
                    "jsonrpc": "2.0", "method": "notifications/progress",
                    "params": { "progressToken": params["_meta"]["progressToken"], "progress": 1 },
                });
                chunk(stream, &format!("data: {progress}\n\ndata: {done}\n\n")).await;
                chunk(stream, "").await;
            }
            Way::Together => {
                self.together.wait().await;
                answer(stream, "200 OK", "", &done).await;
            }
            Way::Expired if count == 0 || head.contains("mcp-session-id: s1\r\n") => {
                answer(stream, "404 Not Found", "", "").await;
            }
            Way::Expired => answer(stream, "200 OK", "", &done).await,
            Way::Resumed => {
                *self.cut.lock().unwrap() = id.clone();
                events(stream).await;
                chunk(stream, "id: 7\nretry: 1\ndata:\n\n").await;
                chunk(stream, "").await;
            }
            Way::Cut => {
                events(stream).await;
                chunk(stream, ": begun\n\n").await;
                chunk(stream, "").await;
            }
            Way::Asking => {
                events(stream).await;
                let schema = json!({
                    "type": "object", "properties": { "name": { "type": "string" } },
                });
                let ask = json!({
                    "jsonrpc": "2.0", "id": "q", "method": "elicitation/create",
                    "params": { "message": "Who?", "requestedSchema": schema },
                });
                chunk(stream, &format!("data: {ask}\n\n")).await;
                self.said.notified().await;
                chunk(stream, &format!("data: {done}\n\n")).await;
                chunk(stream, "").await;
            }
            Way::Silent => {
                events(stream).await;
                chunk(stream, ": begun\n\n").await;
                std::future::pending::<()>().await;
            }
            Way::Large => {
                let large = json!({ "structuredContent": { "x": "x".repeat(300_000) } });
                events(stream).await;
                chunk(stream, &format!("data: {}\n\n", result(id, &large))).await;
            }
            Way::Unwilling => answer(stream, "503 Service Unavailable", "", "later").await,
        }
    }
}

struct Opened {
    site: Arc<Site>,
    server: Arc<UpstreamServer>,
    listing: Arc<Listing>,
}

async fn open(way: Way) -> Opened {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let site = Arc::new(Site {
        way,
        sessions: AtomicUsize::default(),
        calls: AtomicUsize::default(),
        connections: AtomicUsize::default(),
        together: Barrier::new(TOGETHER),
        said: Notify::new(),
        cancelled: Notify::new(),
        announce: Notify::new(),
        is_announced: AtomicBool::default(),
        cut: Mutex::default(),
    });
    let serving = site.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serving.clone().serve(stream));
        }
    });
    let reach = ServerTransport::Http(McpHttpConfig { url, ..McpHttpConfig::default() });
    let config = ServerConfig { name: "h".into(), reach, identity: "h".into(), timeout: None };
    let limits = Limits { mcp_message_bytes_max: 200_000, ..Limits::default() };
    let server = Arc::new(UpstreamServer::new(config, &limits, None));
    let listing = server.listing().await.unwrap();
    Opened { site, server, listing }
}

impl Opened {
    fn tool(&self) -> Tool {
        self.server.tools(&self.listing).remove(0)
    }

    /// Calls the first tool.
    async fn call(&self, args: Json) -> Result<String, ToolError> {
        self.tool().runner.call(call(args.into())).await.map(|value: Value| value.to_json())
    }
}

#[tokio::test]
async fn an_answer_may_be_a_message_or_events() {
    for way in [Way::Json, Way::Events] {
        let opened = open(way).await;
        for n in ["1", "12345678901234567890123"] {
            let args: Json = serde_json::from_str(&format!("{{\"n\":{n}}}")).unwrap();
            let given = Value::from(args.clone()).to_json();
            assert_eq!(opened.call(args).await.unwrap(), given);
        }
        // The library holds one for what the server says unasked; calls share another one.
        let connections = opened.site.connections.load(Ordering::SeqCst);
        assert!(connections <= 3, "{connections} connections for two calls");
    }
}

/// In the modern era headers name the tool and the arguments that its schema marks.
#[tokio::test]
async fn headers_say_what_is_called() {
    let opened = open(Way::Modern).await;
    for (tool, region) in [("t", Json::Null), ("u", json!("eu"))] {
        let id = format!("h:{tool}");
        let tools = opened.server.tools(&opened.listing);
        let tool = tools.into_iter().find(|tool| tool.spec.id.as_str() == id).unwrap();
        let told = tool.runner.call(call(json!({ "region": "eu" }).into())).await.unwrap();
        let name = id.trim_start_matches("h:");
        let version = "2026-07-28";
        let expected = json!({
            "method": "tools/call", "name": name, "region": region, "version": version,
            "era": version,
        });
        assert_eq!(told.to_canonical_json(), Value::from(expected).to_canonical_json());
    }
}

/// A server of the modern era announces changes on the stream of its subscriber; then its tools are
/// listed again.
#[tokio::test]
async fn a_subscriber_learns_of_new_tools() {
    let opened = open(Way::Announcing).await;
    assert_eq!(opened.server.tools(&opened.listing).len(), 1);
    assert!(!opened.server.has_changed());
    opened.site.announce.notify_one();
    let changed = async {
        while !opened.server.has_changed() {
            tokio::task::yield_now().await;
        }
    };
    let changed = tokio::time::timeout(Duration::from_secs(10), changed).await;
    changed.expect("the announcement arrives");
    let listing = opened.server.listing().await.unwrap();
    assert_eq!(opened.server.tools(&listing).len(), 2);
    assert!(!opened.server.has_changed(), "it was announced once");
}

/// No call is answered before the last one has arrived: none of them waits for another.
#[tokio::test]
async fn calls_at_once_are_all_under_way() {
    let opened = open(Way::Together).await;
    let calls = (0..TOGETHER).map(|n| opened.call(json!({ "n": n })));
    for (n, answer) in futures_util::future::join_all(calls).await.into_iter().enumerate() {
        assert_eq!(answer.unwrap(), format!("{{\"n\":{n}}}"));
    }
}

#[tokio::test]
async fn a_session_that_is_over_is_begun_again() {
    let opened = open(Way::Expired).await;
    for n in 0..3 {
        assert_eq!(opened.call(json!({ "n": n })).await.unwrap(), format!("{{\"n\":{n}}}"));
    }
    assert_eq!(opened.site.sessions.load(Ordering::SeqCst), 2);
    // The first session received neither the call nor its repetition.
    assert_eq!(opened.site.calls.load(Ordering::SeqCst), 5);
}

#[tokio::test]
async fn a_stream_that_ends_is_taken_up_again() {
    let opened = open(Way::Resumed).await;
    assert_eq!(opened.call(json!({})).await.unwrap(), r#"{"again":true}"#);
}

#[tokio::test]
async fn an_answer_that_is_lost_is_in_doubt() {
    for (way, silent) in [(Way::Cut, true), (Way::Unwilling, true), (Way::Large, false)] {
        let outcome = open(way).await.call(json!({})).await;
        assert_eq!(matches!(outcome, Err(ToolError::NoAnswer { .. })), silent, "{outcome:?}");
        assert!(outcome.is_err());
    }
}

#[tokio::test]
async fn a_call_that_is_dropped_is_cancelled() {
    let opened = open(Way::Silent).await;
    let calling = opened.call(json!({}));
    tokio::select! {
        biased;
        _ = calling => panic!("there is no answer"),
        () = async {
            while opened.site.calls.load(Ordering::SeqCst) == 0 {
                tokio::task::yield_now().await;
            }
        } => {}
    }
    tokio::time::timeout(Duration::from_secs(10), opened.site.cancelled.notified()).await.unwrap();
}

/// A server's question in the stream of a call reaches a person, and the answer reaches the server.
#[tokio::test]
async fn a_server_asks_a_person_in_the_middle_of_a_call() {
    let opened = open(Way::Asking).await;
    let (engine, _) = Engine::builder().tools(vec![opened.tool()]).build();
    let text =
        "name: c\nsteps: [{ id: a, tool: 'h:t', parameters: { n: 1 } }]\noutput: '{{ a.n }}'\n";
    let (plan, findings) = engine.plan(&Source::new("c.yaml", text));
    let plan = plan.unwrap_or_else(|| panic!("{findings:?}"));
    let helpful = Helpful::new(Value::object([("name", Value::from("Ada"))]));
    let mut request = RunRequest::new(plan, Value::empty_object());
    request.confirmer = &helpful;
    request.options.approved = true;
    let view = engine.run(request).await.unwrap();
    assert_eq!(view.output, Value::from(1), "{:?}", view.errors);
    assert_eq!(helpful.asked(), ["a: the MCP server `h` asks: Who?"]);
}
