//! The Model Context Protocol: Segue as an MCP server, over standard input and output and over HTTP.
//!
//! ```text
//! server.rs                        the requests of the protocol; call.rs: one call of a tool; progress.rs; task_results.rs
//! builtin.rs, schema.rs            our own tools beside the compositions, and their schemas
//! translate.rs                     our types ⇄ those of the protocol library
//! stdio.rs, sessions.rs            the two transports; request_state.rs: what a client carries for us
//! exact_numbers.rs                 numbers that the library would round
//! ```
//!
//! The library knows every version of the protocol and matches requests with responses.

pub mod builtin;
mod call;
mod exact_numbers;
mod progress;
mod request_state;
mod schema;
mod server;
mod sessions;
mod stdio;
mod task_results;
mod translate;

use std::sync::Arc;

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use rmcp::ServiceExt as _;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use segue_core::access::{Principal, Right, STDIO};
use segue_core::limits::Limits;
use tokio::sync::watch;

use crate::api::runs::RunService;
use crate::http::route::{Route, Verb, check_right, route};
use server::Server;
use sessions::Sessions;
use stdio::{ClientGone, StdioServerTransport};

/// The path over HTTP.
const PATH: &str = "/mcp";

/// The routes over HTTP, which the library answers.
pub const ROUTES: &[Route] = &[
    Route {
        about: "MCP, in every version of the protocol",
        more: "Not a resource: see the manual, `docs/serving.md`.",
        ..route(Verb::Post, PATH, Right::Read, "mcp")
    },
    Route {
        about: "The notifications of the MCP server",
        ..route(Verb::Get, PATH, Right::Read, "mcpStream")
    },
    Route { about: "Ends an MCP session", ..route(Verb::Delete, PATH, Right::Read, "mcpEnd") },
];

/// The service, once it has started: clients are answered before every tool server has started.
pub type ServiceReceiver = watch::Receiver<Option<Arc<RunService>>>;

/// Serves one client over standard input and output, until it disconnects.
pub async fn serve_stdio(service: ServiceReceiver, limits: Arc<Limits>) {
    let client_gone = ClientGone::default();
    // The host that started us holds the other end of the pipe, and a model writes into it.
    let host = Principal::host(STDIO);
    let server = Server::new(host, service, &limits, client_gone.clone(), false, None);
    let (read, write) = rmcp::transport::stdio_pipes();
    let transport =
        StdioServerTransport::new(read, write, limits.mcp_message_bytes_max, client_gone);
    // A client that disconnects before its first request is no error.
    if let Ok(service) = Box::pin(server.serve(transport)).await {
        let _ = service.waiting().await;
    }
}

/// The host names and web pages that may call over HTTP.
pub struct AllowedOrigins {
    /// The host names of this server.
    pub hosts: Vec<String>,
    /// The origins of web pages; every other one is refused.
    pub origins: Vec<String>,
}

/// The router of `/mcp`.
pub fn router(
    service: Arc<RunService>,
    allowed: AllowedOrigins,
    state_key: Option<&str>,
) -> Router {
    let limits = service.limits();
    let (_, service) = watch::channel(Some(service));
    let anyone = Principal::anonymous();
    let server = Server::new(anyone, service, &limits, ClientGone::default(), true, state_key);
    let config = StreamableHttpServerConfig::default()
        .with_allowed_hosts(allowed.hosts)
        .with_allowed_origins(allowed.origins)
        .enforce_origin_validation()
        .with_max_request_body_bytes(limits.mcp_message_bytes_max);
    let library_sessions = Arc::new(LocalSessionManager::default());
    let service = StreamableHttpService::new(move || Ok(server.clone()), library_sessions, config);
    let bytes_max = limits.mcp_message_bytes_max;
    Router::new()
        .route_service(PATH, service)
        .layer(from_fn_with_state(bytes_max, exact_numbers::preserve_numbers))
        .layer(from_fn_with_state(Arc::new(Sessions::default()), sessions::check_owner))
        .layer(from_fn(|request, next| check_right(ROUTES, request, next)))
}
