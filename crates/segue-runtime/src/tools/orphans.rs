//! Ends processes that outlived the Segue process that started them.
//!
//! A command has the key of its call in its environment, and its children inherit it. The remaining
//! processes of a call can therefore be found by its key. Before a resumed run asks whether an
//! unanswered call did its work, it ends the call's remaining processes: otherwise one of them
//! might do the work after the question was answered.
//!
//! A process may clear or overwrite its environment. Every process started here is therefore also
//! listed in a file (`ledger`).
//!
//! A call that times out or is dropped is handled the same way: its process group is killed at
//! once, and processes that have left the group are found by the key.
//!
//! An MCP server handles many calls, so its environment names its owner and its output pipe
//! instead. When the owner has ended, the next Segue process that starts, or that cleans up a call,
//! ends the server. Processes that the server moved into a session of their own are left alone. A
//! server that itself runs in its own session (`setsid`) is recognised by the pipe.
//!
//! The kernel releases a dead owner's lock only after its last child has executed its command, so
//! no process starts after another Segue has taken the run. This works only where `/proc` exists;
//! elsewhere nothing is found.

use std::collections::BTreeSet;
use std::io::PipeReader;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::Mutex;

pub use abandoned::settle;
pub(super) use abandoned::{AbandonedCall, is_free};

/// The environment variable with a call's key.
pub(super) const KEY: &str = "SEGUE_KEY";

/// The environment variable that names a server's owner.
pub(super) const OWNER: &str = "SEGUE_OWNER";

/// The owner value for a server that writes to this pipe, if the system provides it.
pub(super) fn owner_of(output: &PipeReader) -> Option<String> {
    system::owner_of(output)
}

/// Records a process that was started, for a call or as a server.
pub(super) fn note(process: Option<u32>, key: Option<&str>) {
    if let Some(number) = process {
        system::note(number, key);
    }
}

/// The folder of the ledgers, if there can be one.
pub fn started_folder() -> Option<PathBuf> {
    system::folder()
}

/// Ends servers whose owner has ended.
pub fn end_left_servers() {
    system::end_left_servers();
}

/// Finds and ends the remaining processes of calls.
#[derive(Default)]
pub(crate) struct Orphans {
    seen: Mutex<Option<Seen>>,
}

/// The result of one scan of the processes.
struct Seen {
    begun: Instant,
    left: LeftProcesses,
}

/// Processes that may remain of owners that have ended.
#[derive(Default)]
struct LeftProcesses {
    /// The keys of their calls.
    keys: BTreeSet<String>,
    /// Whether servers without an owner remain.
    has_servers: bool,
}

impl Orphans {
    /// Ends every process with one of these keys, and every server whose owner has ended. The
    /// caller holds the lease of the run, so no other owner uses these processes.
    pub(crate) async fn end(&self, keys: Vec<Arc<str>>) {
        if keys.is_empty() {
            return;
        }
        let asked = Instant::now();
        let mut seen = self.seen.lock().await;
        // A scan takes a while; concurrent callers share one that began after they asked.
        if seen.as_ref().is_none_or(|seen| seen.begun < asked) {
            let begun = Instant::now();
            let left = tokio::task::spawn_blocking(system::left).await.unwrap_or_default();
            *seen = Some(Seen { begun, left });
        }
        let is_left = |Seen { left, .. }: &Seen| {
            left.has_servers || keys.iter().any(|key| left.keys.contains(&**key))
        };
        let left = seen.as_ref().is_some_and(is_left);
        drop(seen);
        if left {
            let _ = tokio::task::spawn_blocking(move || system::end(&keys)).await;
        }
    }
}

#[cfg(target_os = "linux")]
mod ledger;

mod abandoned;

#[cfg(target_os = "linux")]
mod system;

#[cfg(not(target_os = "linux"))]
mod system {
    use std::sync::Arc;

    use super::LeftProcesses;

    pub(super) fn left() -> LeftProcesses {
        LeftProcesses::default()
    }

    pub(super) fn owner_of(_output: &std::io::PipeReader) -> Option<String> {
        None
    }

    pub(super) fn folder() -> Option<std::path::PathBuf> {
        None
    }

    pub(super) fn end_left_servers() {}

    pub(super) fn note(_number: u32, _key: Option<&str>) {}

    pub(super) fn end(_keys: &[Arc<str>]) {}
}
