//! W7: calls of a tiny server, by the bare client of the protocol library and through the engine.
//!
//! Client and server share one core, so that neither waits for another core to wake. The CPU time
//! of both, with all threads, is measured: the time that would pass on that core if it were idle
//! otherwise.

use std::hint::black_box;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures_util::future::join_all;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ClientCapabilities, ClientConfig,
    ElicitationCapability, FormElicitationCapability, Implementation, ProtocolVersion,
    TASKS_EXTENSION_ID,
};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt as _, RoleClient, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use segue_core::plan::Plan;
use segue_core::source::Source;
use segue_core::value::Value;
use segue_runtime::engine::Engine;
use segue_runtime::tools::mcp::{
    InProcess, McpHttpConfig, ServerConfig, ServerTransport, StdioConfig, UpstreamServer,
};
use serde_json::{Map, Value as Json, json};
use tokio::runtime::Runtime;

use crate::floor::{self, record};
use crate::measure::{self, Clock, Row, compare, show};
use crate::workload::{Nowhere, Workload, lazily, plan, run, runtime, source};
use crate::{count, echo, graph};

/// Calls in a chain.
const STEPS: usize = 10;
/// Chains between two readings of the clock, which reads files for the CPU time of child processes.
const CHAINS: usize = 50;
/// Concurrent calls.
const AT_ONCE: usize = 64;

/// How the server is reached.
#[derive(Clone, Copy)]
pub(crate) enum Way {
    Stdio,
    Http,
    Local,
}

impl Way {
    const ALL: [Way; 3] = [Way::Stdio, Way::Http, Way::Local];

    fn key(self) -> &'static str {
        match self {
            Way::Stdio => "w7-stdio",
            Way::Http => "w7-http",
            Way::Local => "w7-local",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Way::Stdio => "over stdio",
            Way::Http => "over HTTP",
            Way::Local => "in process",
        }
    }

    pub(crate) fn named(key: &str) -> Option<Way> {
        Way::ALL.into_iter().find(|way| way.key() == key)
    }

    fn reach(self) -> ServerTransport {
        match self {
            Way::Stdio => ServerTransport::Stdio(StdioConfig {
                command: this_program(),
                args: vec!["echo-server".to_owned(), "stdio".to_owned()],
                ..StdioConfig::default()
            }),
            Way::Http => {
                ServerTransport::Http(McpHttpConfig { url: url(), ..McpHttpConfig::default() })
            }
            Way::Local => ServerTransport::Local(InProcess::new(echo::local)),
        }
    }
}

fn this_program() -> String {
    let program = std::env::current_exe().expect("a program knows where it is");
    program.to_str().expect("its path is text").to_owned()
}

/// The URL of the HTTP server: one for this process, started at the first use. It ends when its
/// stdin closes, with this process.
fn url() -> String {
    static SERVER: LazyLock<(Child, String)> = LazyLock::new(|| {
        let mut child = Command::new(this_program())
            .args(["echo-server", "http"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program starts again");
        let mut line = String::new();
        let output = child.stdout.take().expect("it is piped");
        BufReader::new(output).read_line(&mut line).expect("it says where it is");
        (child, line.trim().to_owned())
    });
    SERVER.1.clone()
}

/// The client metadata of the bare client. It equals the engine's, so that the server reads the
/// same.
fn says() -> ClientConfig {
    let mut offered = ClientCapabilities::default();
    let forms = FormElicitationCapability::new().with_schema_validation(true);
    offered.elicitation = Some(ElicitationCapability::new().with_form(forms));
    let tasks = (TASKS_EXTENSION_ID.to_owned(), serde_json::Map::new());
    offered.extensions = Some([tasks].into_iter().collect());
    ClientConfig::new(offered, Implementation::new("bare", "0.1.0"))
}

/// The bare client.
struct Bare {
    runtime: Runtime,
    client: RunningService<RoleClient, ClientConfig>,
    /// The server, if it was started for this client. It ends with the client.
    _server: Option<tokio::process::Child>,
}

impl Bare {
    fn new(way: Way) -> Bare {
        // The same era as the engine uses.
        let lifecycle = ClientLifecycleMode::Discover {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        };
        let runtime = runtime();
        let (client, server) = runtime.block_on(async {
            match way {
                Way::Stdio => {
                    let mut server = tokio::process::Command::new(this_program())
                        .args(["echo-server", "stdio"])
                        .stdin(Stdio::piped())
                        .stdout(Stdio::piped())
                        .spawn()
                        .expect("this program starts again");
                    let pipes = server.stdout.take().zip(server.stdin.take());
                    let pipes = pipes.expect("both are piped");
                    (says().serve_with_lifecycle(pipes, lifecycle).await, Some(server))
                }
                Way::Http => {
                    // The library's client uses TLS and needs a default provider.
                    let _ = rustls::crypto::ring::default_provider().install_default();
                    let config = StreamableHttpClientTransportConfig::with_uri(url());
                    let transport = StreamableHttpClientTransport::from_config(config);
                    (says().serve_with_lifecycle(transport, lifecycle).await, None)
                }
                Way::Local => (says().serve_with_lifecycle(echo::local(), lifecycle).await, None),
            }
        });
        Bare { runtime, client: client.expect("the server answers"), _server: server }
    }

    async fn call(&self, tool: &'static str, value: Json) -> Json {
        let mut args = Map::new();
        args.insert("value".to_owned(), value);
        let params = CallToolRequestParams::new(tool).with_arguments(args);
        let Ok(CallToolResponse::Complete(result)) = self.client.call_tool_once(params).await
        else {
            panic!("the server does what it is asked for");
        };
        result.structured_content.expect("the answer has a structure")["value"].take()
    }

    /// Each call gets the answer of the one before it.
    async fn chain(&self) -> Json {
        let mut value = record();
        for _ in 0..STEPS {
            value = self.call("echo", value).await;
        }
        value
    }
}

/// The engine, with the tools of the server.
struct Ours {
    runtime: Runtime,
    engine: Engine,
    plan: Arc<Plan>,
    input: Value,
}

impl Ours {
    fn new(way: Way, source: &Source) -> Ours {
        let runtime = runtime();
        let config = ServerConfig {
            name: "bench".into(),
            reach: way.reach(),
            identity: "bench".into(),
            timeout: None,
        };
        let limits = graph::limits();
        let server = Arc::new(UpstreamServer::new(config, &limits, None));
        let listing = runtime.block_on(server.listing()).expect("the server answers");
        let tools = server.tools(&listing);
        let engine = Engine::builder()
            .tools(tools)
            .limits(limits)
            .store(Arc::new(Nowhere::default()))
            .build()
            .0;
        let plan = plan(&engine, source);
        Ours { runtime, engine, plan, input: json!({ "value": record() }).into() }
    }

    fn run(&self) {
        black_box(self.runtime.block_on(run(&self.engine, &self.plan, &self.input)));
    }
}

/// A number of chains, one after the other.
pub(crate) fn chain(way: Way, chains: usize) -> Workload {
    Workload {
        name: format!("W7 chain of {STEPS} {}, per call", way.name()),
        most: 1.15,
        steps: STEPS * chains,
        floor: lazily(
            move || Bare::new(way),
            move |bare| {
                for _ in 0..chains {
                    black_box(bare.runtime.block_on(bare.chain()));
                }
            },
        ),
        engine: lazily(
            move || Ours::new(way, &source(&floor::chain(STEPS))),
            move |ours| (0..chains).for_each(|_| ours.run()),
        ),
    }
}

/// Calls of a slow tool, all at once on one connection.
fn at_once(way: Way) -> Row {
    let steps: Vec<String> = (0..AT_ONCE)
        .map(|at| {
            format!(
                "{{\"id\":\"s{at}\",\"tool\":\"bench:slow\",\
                 \"parameters\":{{\"value\":\"{{{{ input.value }}}}\"}}}}"
            )
        })
        .collect();
    let text = format!(
        "{{\"name\":\"slow\",\"max_concurrency\":{AT_ONCE},\"steps\":[{}]}}",
        steps.join(",")
    );
    let (bare, ours) = (Bare::new(way), Ours::new(way, &Source::new("slow.json", text)));
    let pairs = compare(
        Clock::Wall,
        &mut || {
            let calls = (0..AT_ONCE).map(|_| bare.call("slow", record()));
            black_box(bare.runtime.block_on(join_all(calls)));
        },
        &mut || ours.run(),
    );
    let name = format!("W7 {AT_ONCE} calls at once of {} {}", show(echo::SLOW), way.name());
    pairs.row(&name, 1.15, 1)
}

/// What the engine may add to a call.
const MOST_ADDED: Duration = Duration::from_micros(5);
const MOST_INSTRUCTIONS: f64 = 10_000.0;

/// The time of a chain.
fn timed(way: Way) -> Row {
    let Workload { name, most, steps, mut floor, mut engine } = chain(way, CHAINS);
    let pairs = compare(Clock::Family, &mut floor, &mut engine);
    let (added, low, high) = pairs.added_micros(steps);
    let row = pairs.row(&name, most, steps);
    Row {
        ratio: format!("{}, {added:+.1} µs ({low:+.1}–{high:+.1})", row.ratio),
        target: format!("{}, + {}", row.target, show(MOST_ADDED)),
        met: Some(row.met == Some(true) && added <= MOST_ADDED.as_secs_f64() * 1e6),
        ..row
    }
}

/// The instructions of a call in this process; the server's count only when it is in process.
fn counted(way: Way) -> Option<Row> {
    let floor = count::instructions(way.key(), "floor")? / STEPS as f64;
    let engine = count::instructions(way.key(), "engine")? / STEPS as f64;
    Some(Row {
        name: format!("W7 instructions per call {}", way.name()),
        floor: format!("{floor:.0}"),
        engine: format!("{engine:.0}"),
        ratio: format!("{:.2}, {:+.0}", engine / floor, engine - floor),
        target: format!("+ {MOST_INSTRUCTIONS:.0}"),
        met: Some(engine - floor <= MOST_INSTRUCTIONS),
    })
}

/// The parts that can be measured alone.
pub(crate) const PARTS: [&str; 3] = ["instructions", "time", "at-once"];

/// Measures in a process that is pinned to one core. With all parts it writes its section of the
/// page.
pub(crate) fn report(parts: &[&str]) -> Result<(), String> {
    let status = Command::new("taskset")
        .args(["-c", "0"])
        .arg(this_program())
        .args(["mcp", "pinned"])
        .args(parts)
        .status()
        .map_err(|error| format!("taskset: {error}"))?;
    if status.success() { Ok(()) } else { Err(status.to_string()) }
}

/// The measurement itself, in the pinned process.
pub(crate) fn pinned(parts: &[&str]) {
    let mut rows = Vec::new();
    for part in parts {
        match *part {
            "instructions" => rows.extend(Way::ALL.into_iter().filter_map(counted)),
            "time" => rows.extend(Way::ALL.map(timed)),
            _ => rows.extend(Way::ALL.map(at_once)),
        }
    }
    let table = measure::table(&rows);
    measure::print(&table);
    if parts == PARTS {
        measure::write_section("Through MCP", &format!("{MCP}\n{table}"));
    }
}

const MCP: &str = "**The floor** is the bare client of the protocol library (rmcp) in a loop: ten calls, each with what the
one before answered. The engine runs the same chain as a composition, and checks every argument and
every answer against the tool's schemas. The server is tiny, and answers with what it was given: a
record of about 200 bytes, as structure and as text, as the protocol wants it. Both clients say the
same of themselves with every call, as the protocol wants it too; the engine sends a key beside it.

Client and server are on one core. A time is the processor's, of both of them. Instructions are the
client's, and the server's as well where it is in the same process. Calls at once are timed by what
passes: one after the other they would take 1.3 s.
";
