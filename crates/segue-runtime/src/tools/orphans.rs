//! Processes that outlived the Segue that had started them.
//!
//! A command carries the key of its call in its environment, and what it starts inherits it. So what
//! is left of a call can be found by its key, and nothing has to be written down beforehand. Whoever
//! goes on with a run ends what is left of calls that were never answered, before anybody asks
//! whether they did their work: else one of them might do it after the answer.
//!
//! An MCP server works on many calls, so it carries who started it instead. One whose Segue has ended is
//! nobody's, and is ended with what is left of the calls; what it has sent away into a session of its
//! own is left alone.
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

/// The variable that says whose server a process is.
pub(super) const OWNER: &str = "SEGUE_OWNER";

/// What servers of this process carry, where the system can say it.
pub(super) fn owner() -> Option<String> {
    system::owner()
}

/// Finds and ends what is left of calls.
#[derive(Default)]
pub(crate) struct Orphans {
    seen: Mutex<Option<Seen>>,
}

/// What processes carried at one time.
struct Seen {
    begun: Instant,
    left: Left,
}

/// What may be left of those who have ended.
#[derive(Default)]
struct Left {
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
mod system {
    use std::sync::Arc;
    use std::time::Duration;

    use rustix::process::{
        Pid, PidfdFlags, Signal, getpid, kill_process_group, pidfd_open, pidfd_send_signal,
    };

    use super::{KEY, Left, OWNER};

    /// Looks for what is left, each a moment after the one before.
    const LOOKS_MAX: u32 = 500;
    const BETWEEN_LOOKS: Duration = Duration::from_millis(2);

    /// What processes carry.
    pub(super) fn left() -> Left {
        let mut left = Left::default();
        for pid in processes() {
            let Some(carried) = Carried::of(pid) else { continue };
            left.has_servers |= carried.is_left_server(pid);
            left.keys.extend(carried.key);
        }
        left
    }

    /// Ends every process that carries one of these keys and every server that nobody has, and waits
    /// until none is left.
    pub(super) fn end(keys: &[Arc<str>]) {
        let is_meant = |pid: &Pid| {
            Carried::of(*pid).is_some_and(|carried| {
                let is_one = |key: &String| keys.iter().any(|meant| **meant == **key);
                carried.key.as_ref().is_some_and(is_one) || carried.is_left_server(*pid)
            })
        };
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
        let group_of = |pid| Stat::of(pid).and_then(|stat| Pid::from_raw(stat.group));
        if let Some(group) = group_of(pid)
            && Some(group) != group_of(getpid())
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

    /// What a process was started with. One that has ended has nothing any more.
    struct Carried {
        key: Option<String>,
        owner: Option<String>,
    }

    impl Carried {
        fn of(pid: Pid) -> Option<Carried> {
            let path = format!("/proc/{}/environ", pid.as_raw_nonzero());
            let environment = std::fs::read(path).ok()?;
            let value_of = |name: &str| {
                let mut variables = environment.split(|byte| *byte == 0);
                let is_it =
                    |v: &&[u8]| v.strip_prefix(name.as_bytes())?.strip_prefix(b"=").map(drop);
                let value = variables.find(|v| is_it(v).is_some())?.get(name.len() + 1..)?;
                String::from_utf8(value.to_vec()).ok()
            };
            Some(Carried { key: value_of(KEY), owner: value_of(OWNER) })
        }

        /// Whether it is a server whose Segue has ended, or a part of one. Who has gone into a session of
        /// its own was meant to stay.
        fn is_left_server(&self, pid: Pid) -> bool {
            let Some(owner) = self.owner.as_ref() else { return false };
            let parts: Vec<&str> = owner.split(' ').collect();
            let [namespace, number, began, session] = parts[..] else { return false };
            let here = self::namespace();
            let is_alive = || {
                let owner = number.parse().ok().and_then(Pid::from_raw);
                let stat = owner.and_then(Stat::of).filter(|stat| !stat.is_over);
                stat.is_some_and(|stat| stat.began == began)
            };
            here.is_some_and(|here| here == namespace)
                && Stat::of(pid).is_some_and(|stat| stat.session == session)
                && !is_alive()
        }
    }

    /// This process, as its servers carry it. A number alone may be somebody else's later.
    pub(super) fn owner() -> Option<String> {
        let me = getpid();
        let Stat { began, session, .. } = Stat::of(me)?;
        Some(format!("{} {} {began} {session}", namespace()?, me.as_raw_nonzero()))
    }

    /// What the numbers of processes are counted in: another container has others.
    fn namespace() -> Option<String> {
        std::fs::read_link("/proc/self/ns/pid").ok()?.into_os_string().into_string().ok()
    }

    /// What the system says of a process. A group or a session that was begun outside a container has
    /// the number 0 inside it.
    struct Stat {
        /// Whether it has ended, even if nobody has noticed.
        is_over: bool,
        group: i32,
        session: String,
        began: String,
    }

    impl Stat {
        fn of(pid: Pid) -> Option<Stat> {
            let path = format!("/proc/{}/stat", pid.as_raw_nonzero());
            Stat::read(&std::fs::read_to_string(path).ok()?)
        }

        fn read(stat: &str) -> Option<Stat> {
            // Its name stands in brackets, and may hold anything.
            let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
            // The first one after the name is the third of them all.
            let field = |number: usize| fields.get(number - 3).copied();
            Some(Stat {
                is_over: matches!(field(3)?, "Z" | "X"),
                group: field(5)?.parse().ok()?,
                session: field(6)?.to_owned(),
                began: field(22)?.to_owned(),
            })
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        /// In a container that was entered, group and session are of outside.
        #[test]
        fn a_process_of_a_session_outside_is_read() {
            let line = "7 (a ) (b) S 1 0 0 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 987654 1 2";
            let Stat { is_over, group, session, began } = Stat::read(line).unwrap();
            assert!(!is_over);
            assert_eq!((group, &*session, &*began), (0, "0", "987654"));
            assert!(Pid::from_raw(group).is_none(), "a group that nothing can be sent to");
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::sync::Arc;

    use super::Left;

    pub(super) fn left() -> Left {
        Left::default()
    }

    pub(super) fn owner() -> Option<String> {
        None
    }

    pub(super) fn end(_keys: &[Arc<str>]) {}
}
