//! Processes that outlived the Segue that had started them.
//!
//! A command carries the key of its call in its environment, and what it starts inherits it. So what
//! is left of a call can be found by its key, and nothing has to be written down beforehand. Whoever
//! goes on with a run ends what is left of calls that were never answered, before anybody asks
//! whether they did their work: else one of them might do it after the answer.
//!
//! The system gives up a dead owner's lock when its last process has begun its command, so nothing
//! starts behind a run that somebody else could take. Only where there is `/proc`; elsewhere nothing
//! is found.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::Mutex;

/// The variable that holds a call's key.
pub(super) const KEY: &str = "SEGUE_KEY";

/// Finds and ends what is left of calls.
#[derive(Default)]
pub(crate) struct Orphans {
    seen: Mutex<Option<Seen>>,
}

/// The keys that processes carried at one time.
struct Seen {
    begun: Instant,
    keys: BTreeSet<String>,
}

impl Orphans {
    /// Ends every process that carries one of these keys. They belong to nobody any more: whoever
    /// asks has the run.
    pub(crate) async fn end(&self, keys: Vec<Arc<str>>) {
        if keys.is_empty() {
            return;
        }
        let asked = Instant::now();
        let mut seen = self.seen.lock().await;
        // Looking takes a while; many who ask at once share one look, begun after they asked.
        if seen.as_ref().is_none_or(|seen| seen.begun < asked) {
            let begun = Instant::now();
            let keys = tokio::task::spawn_blocking(system::carried).await.unwrap_or_default();
            *seen = Some(Seen { begun, keys });
        }
        let is_left = |seen: &Seen| keys.iter().any(|key| seen.keys.contains(&**key));
        let left = seen.as_ref().is_some_and(is_left);
        drop(seen);
        if left {
            let _ = tokio::task::spawn_blocking(move || system::end(&keys)).await;
        }
    }
}

#[cfg(target_os = "linux")]
mod system {
    use std::collections::BTreeSet;
    use std::sync::Arc;
    use std::time::Duration;

    use rustix::process::{
        Pid, PidfdFlags, Signal, getpgid, getpgrp, getpid, kill_process_group, pidfd_open,
        pidfd_send_signal,
    };

    use super::KEY;

    /// Looks for what is left, each a moment after the one before.
    const LOOKS_MAX: u32 = 500;
    const BETWEEN_LOOKS: Duration = Duration::from_millis(2);

    /// The keys that processes carry.
    pub(super) fn carried() -> BTreeSet<String> {
        processes().filter_map(key_of).collect()
    }

    /// Ends every process that carries one of these keys, and waits until none is left.
    pub(super) fn end(keys: &[Arc<str>]) {
        let is_meant = |pid: &Pid| key_of(*pid).is_some_and(|key| keys.iter().any(|k| **k == *key));
        for _ in 0..LOOKS_MAX {
            let left: Vec<Pid> = processes().filter(is_meant).collect();
            if left.is_empty() {
                return;
            }
            left.into_iter().for_each(|pid| end_one(pid, is_meant));
            std::thread::sleep(BETWEEN_LOOKS);
        }
    }

    fn end_one(pid: Pid, is_meant: impl Fn(&Pid) -> bool) {
        let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { return };
        // Again, now that the number cannot become anybody else's unnoticed.
        if !is_meant(&pid) {
            return;
        }
        // What stands still does not end by itself, and with it its group stays what it is.
        let _ = pidfd_send_signal(&process, Signal::STOP);
        if let Ok(group) = getpgid(Some(pid))
            && group != getpgrp()
        {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = pidfd_send_signal(&process, Signal::KILL);
    }

    /// Every process but this one.
    fn processes() -> impl Iterator<Item = Pid> {
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        numbers.filter_map(Pid::from_raw).filter(|pid| *pid != getpid())
    }

    /// The key that a process was started with. One that has ended has none any more.
    fn key_of(pid: Pid) -> Option<String> {
        let environment = std::fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).ok()?;
        let mut variables = environment.split(|byte| *byte == 0);
        let key = variables.find_map(|v| v.strip_prefix(KEY.as_bytes())?.strip_prefix(b"="))?;
        String::from_utf8(key.to_vec()).ok()
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    pub(super) fn carried() -> BTreeSet<String> {
        BTreeSet::new()
    }

    pub(super) fn end(_keys: &[Arc<str>]) {}
}
