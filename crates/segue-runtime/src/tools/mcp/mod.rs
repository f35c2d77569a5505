//! Tools of MCP servers: Segue as a client, in both eras of the protocol.
//!
//! ```text
//! server.rs ── connection.rs ── stdio.rs, http.rs            lifecycle, connection, transports
//!     │             └─ router.rs, frame.rs, request_line.rs  raw answers off the wire; requests
//!     │                first_post.rs, exact_numbers.rs       data that the library would lose
//!     │                body_limit.rs, pages.rs, progress.rs  limits on size and rate
//!     ├─ definition.rs, call_result.rs, server_record.rs     their meaning; what was seen before
//!     └─ task.rs, login.rs, error_text.rs                    long calls, tokens, messages
//! ```
//!
//! The protocol library performs the handshake, lists tools, polls tasks and answers requests of
//! servers. Everything that it reads into its own types is read again here from the raw text, with
//! limits. Calls bypass it: they are most of the traffic, and need none of its features.
//!
//! Not here: which servers may start at all (the command line checks trust), the consequence of a
//! refusal (the core's).

mod body_limit;
mod call_result;
mod connection;
mod definition;
mod error_text;
mod exact_numbers;
mod first_post;
mod frame;
mod http;
mod login;
mod pages;
mod progress;
mod request_line;
mod router;
mod server;
mod server_record;
mod stdio;
mod tail;
mod task;

use std::sync::Arc;
use std::time::Duration;

pub use definition::{Listing, ToolDefinition, confusable_form};
pub use error_text::NO_MESSAGES;
pub use exact_numbers::{mark_numbers, unmark_numbers};
pub use frame::{LineFrame, LineFrames, guess_id};
pub use http::McpHttpConfig;
pub use server::{DefinitionChange, ServerFigures, ServerUnavailable, UpstreamServer};
pub use server_record::ProtocolEra;
pub(crate) use stdio::STDIO_END_MAX;
pub use stdio::{InProcess, StdioConfig};
pub use task::TaskSupport;

/// How long to wait for the answer to the question for a server's era.
const PROBE_MAX: Duration = Duration::from_millis(2_500);

/// How a server is reached.
#[derive(Clone, PartialEq, Eq)]
pub enum ServerTransport {
    /// A process that Segue starts.
    Stdio(StdioConfig),
    /// A server in this process.
    Local(InProcess),
    /// A URL.
    Http(McpHttpConfig),
}

/// The configuration of a server.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerConfig {
    /// The server's name, which is the namespace of its tools.
    pub name: Arc<str>,
    /// How it is reached.
    pub reach: ServerTransport,
    /// The hash of its configuration; pins of its tools include it.
    pub identity: Arc<str>,
    /// How long a call may take without progress.
    pub timeout: Option<Duration>,
}
