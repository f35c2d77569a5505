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

mod answer;
mod bounded;
mod connection;
mod definition;
mod desk;
mod digits;
mod frame;
mod http;
mod line;
mod login;
mod pages;
mod plain;
mod progress;
mod record;
mod server;
mod stdio;
mod tail;
mod task;
mod words;

use std::sync::Arc;
use std::time::Duration;

pub use definition::{Definition, Listing, look};
pub use digits::{marked, unmarked};
pub use frame::{Frame, Frames, seeming_id};
pub use http::HttpConfig;
pub use record::Era;
pub use server::{Change, Server, ServerFigures, Unusable};
pub(crate) use stdio::STDIO_END_MAX;
pub use stdio::{Local, StdioConfig};
pub use task::Support;
pub use words::NO_MESSAGES;

/// How long the question which era a server is of waits for its answer.
const PROBE_MAX: Duration = Duration::from_millis(2_500);

/// How a server is reached.
#[derive(Clone, PartialEq, Eq)]
pub enum Reach {
    /// A process that is started here.
    Stdio(StdioConfig),
    /// A server in this process.
    Local(Local),
    /// An address.
    Http(HttpConfig),
}

/// A server, as it is configured.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerConfig {
    /// Its name, which its tools' ids begin with.
    pub name: Arc<str>,
    /// How it is reached.
    pub reach: Reach,
    /// The hash of how it is configured: what its tools are pinned to beside their definitions.
    pub identity: Arc<str>,
    /// How long a call may take without a sign of progress.
    pub timeout: Option<Duration>,
}
