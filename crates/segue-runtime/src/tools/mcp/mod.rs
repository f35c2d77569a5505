//! Tools of MCP servers: Segue as a client, in both eras of the protocol.
//!
//! ```text
//! server.rs ── connection.rs ── stdio.rs, http.rs      a life, a connection, the ways to a server
//!     │             └─ desk.rs, frame.rs, line.rs      answers off the wire, as they came; what leaves
//!     │                plain.rs, digits.rs             what the library would not keep
//!     │                bounded.rs, progress.rs         not too much, and not too often
//!     └─ definition.rs, answer.rs, record.rs           what they mean; what was seen before
//!        task.rs, login.rs                             calls that take long, followed to their end; tokens
//! ```
//!
//! The protocol library shakes hands, lists tools, follows tasks and answers what servers ask. What
//! it reads into its own types is read again here from the raw text, with bounds. Calls go past it:
//! they are most of what is said, and need nothing of it.
//!
//! Not here: which servers may start at all (trust is the command line's), what a refusal leads to
//! (the core's).

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

/// How long the question which era a server is of waits for its answer.
const PROBE_MAX: Duration = Duration::from_millis(2_500);

/// How a server is reached.
#[derive(Clone, PartialEq, Eq)]
pub enum ServerTransport {
    /// A process that is started here.
    Stdio(StdioConfig),
    /// A server in this process.
    Local(InProcess),
    /// An address.
    Http(McpHttpConfig),
}

/// A server, as it is configured.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerConfig {
    /// Its name, which its tools' ids begin with.
    pub name: Arc<str>,
    /// How it is reached.
    pub reach: ServerTransport,
    /// The hash of how it is configured: what its tools are pinned to beside their definitions.
    pub identity: Arc<str>,
    /// How long a call may take without a sign of progress.
    pub timeout: Option<Duration>,
}
