//! The door for hosts of the Model Context Protocol, in both of its eras.
//!
//! ```text
//! stdio.rs ── server.rs ── call.rs ── the hall        a way in, what is answered, one call of a tool
//!                 └─ wire.rs, seal.rs                 into the protocol's words; what a client carries
//!                    digits.rs                        numbers that the library would round
//! ```
//!
//! The protocol library knows both eras and matches requests and answers. Which of its words are
//! used, and when, is said here. Over HTTP the way in is the library's own.

mod call;
mod digits;
mod seal;
mod server;
mod stdio;
mod wire;

use std::sync::Arc;

use axum::middleware::from_fn_with_state;
use rmcp::ServiceExt as _;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use segue_core::access::{Principal, STDIO};
use segue_core::limits::Limits;
use tokio::sync::watch;

use super::hall::Hall;
use server::Server;
use stdio::{Line, Pipe};

/// The hall, once it is there: a client is greeted before every tool server has started.
pub type Opening = watch::Receiver<Option<Arc<Hall>>>;

/// Serves one client over standard input and output, until it goes away.
pub async fn serve_stdio(opening: Opening, limits: Arc<Limits>) {
    let line = Line::default();
    // Whoever started us holds the other end of the pipe, and has a model speak into it.
    let server = Server::new(Principal::host(STDIO), opening, &limits, line.clone(), false);
    let (read, write) = rmcp::transport::stdio_pipes();
    let pipe = Pipe::new(read, write, limits.mcp_message_bytes_max, line);
    // A client that goes away before it has said anything wants nothing.
    if let Ok(service) = Box::pin(server.serve(pipe)).await {
        let _ = service.waiting().await;
    }
}

/// Who may ask over HTTP, beyond those who have the token.
pub struct Guests {
    /// Names that we are reached under.
    pub hosts: Vec<String>,
    /// Web pages that may ask; every other one is refused.
    pub origins: Vec<String>,
}

/// The door over HTTP, at `/mcp`.
pub fn router(hall: Arc<Hall>, guests: Guests) -> axum::Router {
    let limits = hall.limits();
    let (_, opening) = watch::channel(Some(hall));
    let server = Server::new(Principal::anonymous(), opening, &limits, Line::default(), true);
    let config = StreamableHttpServerConfig::default()
        .with_allowed_hosts(guests.hosts)
        .with_allowed_origins(guests.origins)
        .enforce_origin_validation()
        .with_max_request_body_bytes(limits.mcp_message_bytes_max);
    let sessions = Arc::new(LocalSessionManager::default());
    let service = StreamableHttpService::new(move || Ok(server.clone()), sessions, config);
    let exactly = from_fn_with_state(limits.mcp_message_bytes_max, digits::exactly);
    axum::Router::new().route_service("/mcp", service).layer(exactly)
}
