//! Processes, as `/proc` shows them.

use std::collections::HashMap;
use std::io::PipeReader;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::fstat;
use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, kill_process_group, pidfd_open, pidfd_send_signal,
};

use super::ledger::{self, ProcessLedger};
use super::{KEY, LeftProcesses, OWNER};
use crate::tools::mcp::STDIO_END_MAX;

/// The pauses between two scans: for the processes of calls, and for servers alone.
const POLL_INTERVALS: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(20)];

/// How long to wait for a killed process to end.
const END_MAX: Duration = Duration::from_secs(1);

/// Scans all processes for the keys of calls and for servers without an owner.
pub(super) fn left() -> LeftProcesses {
    let mut left = LeftProcesses::default();
    let ledger = ProcessLedger::read();
    for pid in processes() {
        let carried = ProcessMark::of(pid, &ledger);
        left.has_servers |= carried.is_left_server(pid);
        left.keys.extend(carried.key);
    }
    left
}

/// Ends every process with one of these keys and every server without an owner, and waits until
/// none is left. The death of its owner closed a server's stdin, so the server may be about to end:
/// it gets the same time for that as when its owner lives.
pub(super) fn end(keys: &[Arc<str>]) {
    let ledger = ProcessLedger::read();
    let is_of_call = |pid: &Pid| {
        let key = ProcessMark::of(*pid, &ledger).key;
        key.is_some_and(|key| keys.iter().any(|meant| **meant == *key))
    };
    let is_server = |pid: &Pid| ProcessMark::of(*pid, &ledger).is_left_server(*pid);
    let begun = Instant::now();
    let mut known: HashMap<Pid, LeftServer> = HashMap::new();
    loop {
        let left = processes().filter(|pid| is_of_call(pid) || is_server(pid));
        let (of_calls, servers): (Vec<Pid>, Vec<Pid>) = left.partition(is_of_call);
        let calls_end = !of_calls.is_empty() && begun.elapsed() < END_MAX;
        of_calls.into_iter().for_each(|pid| end_one(pid, is_of_call));
        let mut servers_end = false;
        for pid in servers {
            let server = known.entry(pid).or_insert_with(LeftServer::found);
            servers_end |= server.ends(|| ask_to_end(pid, is_server), || end_one(pid, is_server));
        }
        if !calls_end && !servers_end {
            return;
        }
        std::thread::sleep(POLL_INTERVALS[usize::from(!calls_end)]);
    }
}

/// A server without an owner, and how far its end has progressed.
struct LeftServer {
    found: Instant,
    asked: Option<Instant>,
    killed: Option<Instant>,
}

impl LeftServer {
    fn found() -> LeftServer {
        LeftServer { found: Instant::now(), asked: None, killed: None }
    }

    /// Sends the next signal when its time has come. False when the server does not end although
    /// killed.
    fn ends(&mut self, ask: impl FnOnce(), kill: impl FnOnce()) -> bool {
        let [closed_max, asked_max] = STDIO_END_MAX;
        match (self.asked, self.killed) {
            (None, _) if self.found.elapsed() > closed_max => {
                self.asked = Some(Instant::now());
                ask();
            }
            (Some(asked), None) if asked.elapsed() > asked_max => {
                self.killed = Some(Instant::now());
                kill();
            }
            (_, Some(killed)) => return killed.elapsed() < END_MAX,
            _ => {}
        }
        true
    }
}

/// Ends every server whose owner has ended, if any owner has.
pub(super) fn end_left_servers() {
    if ledger::has_ended_owner() {
        end(&[]);
        ledger::forget_ended();
    }
}

fn ask_to_end(pid: Pid, is_meant: impl Fn(&Pid) -> bool) {
    let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { return };
    if is_meant(&pid) {
        let _ = pidfd_send_signal(&process, Signal::TERM);
    }
}

fn end_one(pid: Pid, is_meant: impl Fn(&Pid) -> bool) {
    let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { return };
    // Checked again, now that the pidfd rules out a reused process id.
    if !is_meant(&pid) {
        return;
    }
    // A stopped process does not exit by itself, so its group id stays valid.
    let _ = pidfd_send_signal(&process, Signal::STOP);
    let group_of = |pid| Stat::of(pid).and_then(|stat| process_id(stat.group));
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
    numbers.filter_map(process_id).filter(|pid| *pid != getpid())
}

/// The call key and the owner of a process. Empty for a process that has ended.
#[derive(Default)]
struct ProcessMark {
    key: Option<String>,
    owner: Option<String>,
}

impl ProcessMark {
    /// Reads them from the environment, or else from the ledger.
    fn of(pid: Pid, ledger: &ProcessLedger) -> ProcessMark {
        let ProcessMark { key, owner } = ProcessMark::inside(pid).unwrap_or_default();
        match ledger.line_of(pid) {
            Some(noted) if key.is_none() && owner.is_none() => {
                let owner = noted.key.is_none().then(|| noted.owner.to_string());
                ProcessMark { key: noted.key.clone(), owner }
            }
            _ => ProcessMark { key, owner },
        }
    }

    fn inside(pid: Pid) -> Option<ProcessMark> {
        let path = format!("/proc/{}/environ", pid.as_raw_nonzero());
        let environment = std::fs::read(path).ok()?;
        let value_of = |name: &str| {
            let mut variables = environment.split(|byte| *byte == 0);
            let is_it = |v: &&[u8]| v.strip_prefix(name.as_bytes())?.strip_prefix(b"=").map(drop);
            let value = variables.find(|v| is_it(v).is_some())?.get(name.len() + 1..)?;
            String::from_utf8(value.to_vec()).ok()
        };
        Some(ProcessMark { key: value_of(KEY), owner: value_of(OWNER) })
    }

    /// Whether it is, or belongs to, a server whose owner has ended. A process that a server moved
    /// into its own session was meant to stay. A server that was started in its own session is
    /// recognised by its output, the pipe that its owner read.
    fn is_left_server(&self, pid: Pid) -> bool {
        let Some(owner) = self.owner.as_ref() else { return false };
        let parts: Vec<&str> = owner.split(' ').collect();
        let [namespace, number, began, session, ref output @ ..] = parts[..] else { return false };
        let here = self::namespace();
        let is_alive = || number.parse().is_ok_and(|number| is_alive(number, began));
        let is_part = |stat: Stat| {
            let first = stat.session.parse().ok().and_then(process_id);
            let writes = |pid| output.first().is_some_and(|output| writes_to(pid, output));
            stat.session == session || writes(pid) || first.is_some_and(writes)
        };
        here.is_some_and(|here| here == namespace)
            && Stat::of(pid).is_some_and(is_part)
            && !is_alive()
    }
}

/// Whether the stdout of a process is the pipe with this inode.
fn writes_to(pid: Pid, pipe: &str) -> bool {
    let output = std::fs::read_link(format!("/proc/{}/fd/1", pid.as_raw_nonzero()));
    output.is_ok_and(|output| output.as_os_str() == &*format!("pipe:[{pipe}]"))
}

/// Whether the process with this id started at this time, and is alive.
pub(super) fn is_alive(number: i32, began: &str) -> bool {
    let stat = process_id(number).and_then(Stat::of).filter(|stat| !stat.is_over);
    stat.is_some_and(|stat| stat.began == began)
}

/// The start time of the process with this id.
pub(super) fn began(number: i32) -> Option<String> {
    Some(Stat::of(process_id(number)?)?.began)
}

/// The ledger folder.
pub(super) fn folder() -> Option<PathBuf> {
    namespace().map(|_| ledger::place())
}

/// Records a process in the ledger.
pub(super) fn note(number: u32, key: Option<&str>) {
    ledger::note(number.cast_signed(), key);
}

/// Identifies this process in its servers' environment, with its start time: a process id may be
/// reused.
pub(super) fn owner() -> Option<String> {
    let me = getpid();
    let Stat { began, session, .. } = Stat::of(me)?;
    Some(format!("{} {} {began} {session}", namespace()?, me.as_raw_nonzero()))
}

/// The same for a server that writes to this pipe.
pub(super) fn owner_of(output: &PipeReader) -> Option<String> {
    let pipe = fstat(output).ok()?.st_ino;
    Some(format!("{} {pipe}", owner()?))
}

/// The PID namespace: another container has its own process ids.
pub(super) fn namespace() -> Option<String> {
    std::fs::read_link("/proc/self/ns/pid").ok()?.into_os_string().into_string().ok()
}

/// The process or group of a number. The kernel writes 0 for one outside the container, and -1 for the
/// group and session of a process that is ending: a signal to those would reach other processes.
fn process_id(number: i32) -> Option<Pid> {
    if number > 0 { Pid::from_raw(number) } else { None }
}

/// Fields of `/proc/PID/stat`.
struct Stat {
    /// Whether it has ended, reaped or not.
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
        // The name stands in brackets, and may hold any character.
        let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
        // The first field after the name is number 3.
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

    /// A process that entered a container has a group and a session from outside.
    #[test]
    fn a_process_of_a_session_outside_is_read() {
        let line = "7 (a ) (b) S 1 0 0 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 987654 1 2";
        let Stat { is_over, group, session, began } = Stat::read(line).unwrap();
        assert!(!is_over);
        assert_eq!((group, &*session, &*began), (0, "0", "987654"));
        assert!(process_id(group).is_none(), "no signal can be sent to this group");
    }

    /// The kernel has forgotten the group and the session of a process that is ending.
    #[test]
    fn a_process_that_is_ending_has_no_group() {
        let line = "7 (a) X 0 -1 -1 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 987654 1 2";
        let Stat { is_over, group, session, .. } = Stat::read(line).unwrap();
        assert!(is_over);
        assert!(process_id(group).is_none(), "no signal can be sent to this group");
        assert!(session.parse().ok().and_then(process_id).is_none());
    }
}
