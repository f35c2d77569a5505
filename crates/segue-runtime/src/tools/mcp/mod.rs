//! Tools of MCP servers: Segue as a client, in both eras of the protocol.
//!
//! ```text
//! server.rs ─ connection.rs ─ stdio.rs, http.rs, first_post.rs   through the library: lifecycle,
//!     │          │            login.rs, pages.rs                 handshake, transports, OAuth, lists
//!     │          └─ calls/                                       ours: calls and raw answers
//!     ├─ definition.rs, server_record.rs                         tools, and what was seen of them before
//!     ├─ tool.rs, task.rs                                        one call of a tool; calls that become tasks
//!     └─ process_output.rs, error_text.rs                        what went wrong, for people
//! ```
//!
//! The protocol library (`rmcp`) performs the handshake, sends every request but calls, and answers
//! requests of servers. Calls bypass it: they are most of the traffic, and need none of its
//! features. `calls` says which message belongs to which side.
//!
//! Not here: which servers may start at all (the command line checks trust), the consequence of a
//! refusal (the core's).

mod calls;
mod connection;
mod definition;
mod error_text;
mod first_post;
mod frames;
mod http;
mod login;
mod pages;
mod process_output;
mod server;
mod server_record;
mod stdio;
mod task;
mod tool;

use std::sync::Arc;
use std::time::Duration;

pub use calls::exact_numbers::{mark_numbers, unmark_numbers};
pub use calls::frame::{LineFrame, LineFrames, guess_id};
pub use definition::{Listing, ToolDefinition, confusable_form};
pub use error_text::NO_MESSAGES;
pub use frames::{FrameRecording, RpcFrame};
pub use http::McpHttpConfig;
pub use server::{
    DefinitionChange, ServerCondition, ServerFigures, ServerUnavailable, UpstreamServer,
};
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
