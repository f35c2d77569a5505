//! Processes that outlived the Segue that had started them.
//!
//! A command carries the key of its call in its environment, and what it starts inherits it. So what
//! is left of a call can be found by its key, and nothing has to be written down beforehand. Whoever
//! goes on with a run ends what is left of calls that were never answered, before anybody asks
//! whether they did their work: else one of them might do it after the answer.
//!
//! A process may clear its environment, or write over it. So those that are started here are also
//! written down, where whoever comes later finds them (`ledger`).
//!
//! The same is done for a call that is given up, by its time or by its caller: the group of its command
//! is ended at once, and what has left that group is found by the key.
//!
//! An MCP server works on many calls, so it carries who started it instead, and the pipe that it writes
//! to. One whose Segue has ended is nobody's, and is ended by the next Segue that begins, and with what is
//! left of calls. What it has sent away into a session of its own is left alone; the server itself may be
//! in one (`setsid`), and is known by the pipe.
//!
//! The system gives up a dead owner's lock when its last process has begun its command, so nothing
//! starts behind a run that somebody else could take. Only where there is `/proc`; elsewhere nothing
//! is found.

use std::collections::BTreeSet;
use std::io::PipeReader;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::Mutex;

pub use abandoned::settle;
pub(super) use abandoned::{AbandonedCall, is_free};

/// The variable that holds a call's key.
pub(super) const KEY: &str = "SEGUE_KEY";

/// The variable that says whose server a process is.
pub(super) const OWNER: &str = "SEGUE_OWNER";

/// What a server of this process carries that writes to this pipe, where the system can say it.
pub(super) fn owner_of(output: &PipeReader) -> Option<String> {
    system::owner_of(output)
}

/// Writes down that a process was started, for a call or as a server.
pub(super) fn note(process: Option<u32>, key: Option<&str>) {
    if let Some(number) = process {
        system::note(number, key);
    }
}

/// The folder in which it is written down what was started, if there can be one.
pub fn started_folder() -> Option<PathBuf> {
    system::folder()
}

/// Ends servers whose Segue has ended.
pub fn end_left_servers() {
    system::end_left_servers();
}

/// Finds and ends what is left of calls.
#[derive(Default)]
pub(crate) struct Orphans {
    seen: Mutex<Option<Seen>>,
}

/// What processes carried at one time.
struct Seen {
    begun: Instant,
    left: LeftProcesses,
}

/// What may be left of those who have ended.
#[derive(Default)]
struct LeftProcesses {
    /// The keys of calls.
    keys: BTreeSet<String>,
    /// Whether there are servers that nobody has any more.
    has_servers: bool,
}

impl Orphans {
    /// Ends every process that carries one of these keys, and every server whose Segue has ended. They
    /// belong to nobody any more: whoever asks has the run.
    pub(crate) async fn end(&self, keys: Vec<Arc<str>>) {
        if keys.is_empty() {
            return;
        }
        let asked = Instant::now();
        let mut seen = self.seen.lock().await;
        // Looking takes a while; many who ask at once share one look, begun after they asked.
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
