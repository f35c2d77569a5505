//! Tells a person which MCP servers a command waits for. Programs such as `npx` take seconds to start.

use std::io::IsTerminal as _;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use indicatif::ProgressBar;
use segue_runtime::tools::mcp::UpstreamServer;
use tokio::time::timeout;

use crate::print::{escape_control, print_status};

/// A shorter wait is not worth a line on a terminal.
const SHOWN_AFTER: Duration = Duration::from_millis(200);

/// Without a terminal the line stays, so that only a long wait is worth it.
const WRITTEN_AFTER: Duration = Duration::from_secs(2);

/// Awaits the listings of servers, and names these servers on standard error meanwhile.
pub(super) async fn show<T>(
    servers: &[Arc<UpstreamServer>],
    is_shown: bool,
    listing: impl Future<Output = T>,
) -> T {
    if !is_shown {
        return listing.await;
    }
    let mut listing = pin!(listing);
    let is_terminal = std::io::stderr().is_terminal();
    let delay = if is_terminal { SHOWN_AFTER } else { WRITTEN_AFTER };
    if let Ok(listed) = timeout(delay, &mut listing).await {
        return listed;
    }
    let names: Vec<String> = servers.iter().map(|server| format!("`{}`", server.name())).collect();
    let server = if names.len() == 1 { "server" } else { "servers" };
    let names = names.join(", ");
    let text = format!("waiting for the MCP {server} {} to start", escape_control(&names));
    if !is_terminal {
        print_status(&text);
        return listing.await;
    }
    let line = ProgressBar::new_spinner().with_message(text);
    line.enable_steady_tick(Duration::from_millis(80));
    let listed = listing.await;
    line.finish_and_clear();
    listed
}
