//! One run, two processes, one of which is killed, stopped or left alone; and a disk that is full.

#![cfg(unix)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use rustix::process::{Pid, Signal, kill_process};

use crate::served::Served;
use crate::support::{Done, Json, SEGUE, World, copy_folder, repository, step, until};

/// A world with a composition, commands, and a store in its folder.
fn world(composition: &str, config: &str) -> World {
    let world = World::with(composition);
    world.file("segue.yaml", config);
    world
}

fn args<'a>(args: &[&'a str]) -> Vec<&'a str> {
    [args, &["--config", "segue.yaml", "--store", "sqlite:runs.db"]].concat()
}

fn start(world: &World, words: &[&str]) -> Child {
    let mut command = world.command(SEGUE);
    command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn end(child: Child) -> Done {
    Done::of(child.wait_with_output().unwrap())
}

/// The lines of a file, once there are so many of them.
#[track_caller]
fn lines(path: &Path, count: usize) -> Vec<String> {
    until(|| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        let lines: Vec<String> = whole.map(|line| line.trim().to_owned()).collect();
        (lines.len() >= count).then_some(lines)
    })
}

/// The journal of the last run.
fn journal(world: &World) -> Vec<Json> {
    let done = world.segue(&args(&["runs", "show", "last", "--journal"])).exits(0);
    done.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The entries of a journal that hold this fact.
fn facts<'a>(journal: &'a [Json], fact: &str) -> Vec<&'a Json> {
    journal.iter().filter(|entry| entry["fact"].get(fact).is_some()).collect()
}

fn signal(child: &Child, signal: Signal) {
    kill_process(pid(child.id()), signal).unwrap();
}

fn pid(number: u32) -> Pid {
    Pid::from_raw(number.cast_signed()).unwrap()
}

/// C3: a wait ends at its time in every process. It does not start anew, and does not end early.
#[test]
fn a_wait_that_was_killed_keeps_its_time() {
    let world = world("name: c\nsteps: [{ id: rest, wait: 2s }]\noutput: rested\n", "");
    let mut run = start(&world, &args(&["run", "c.yaml"]));
    let store = world.path("runs.db");
    until(|| store.exists().then_some(()));
    let slept = until(|| {
        let done = world.segue(&args(&["runs", "show", "last", "--journal"]));
        let mut journal = done.stdout.lines().map(|line| serde_json::from_str(line).unwrap());
        journal.find(|entry: &Json| entry["fact"].get("slept").is_some())
    });
    run.kill().unwrap();
    run.wait().unwrap();
    let at_ms = |entry: &Json| entry["at_ms"].as_u64().unwrap();
    let until_ms = slept["fact"]["slept"]["until_ms"].as_u64().unwrap();
    assert_eq!(until_ms, at_ms(&slept) + 2_000);
    // Most of the wait is over when another process resumes the run.
    let now = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    until(|| (now().as_millis() + 800 > u128::from(until_ms)).then_some(()));
    assert_eq!(world.json(0, &args(&["resume", "last", "-q"])), "rested");
    let journal = journal(&world);
    assert_eq!(facts(&journal, "slept").len(), 1);
    let woke = at_ms(facts(&journal, "succeeded")[0]);
    assert!(woke >= until_ms, "{} ms early", until_ms - woke);
    assert!(woke < until_ms + 1_200, "{} ms late", woke - until_ms);
}

/// Commands that stay until there is a file `go`.
const HOLDING: &str = r#"
commands:
  hold:
    argv: [sh, -c, 'echo "$$" >> pids; sleep 300 & echo "$!" >> pids; while [ ! -e go ]; do sleep 0.02; done; echo held']
    destructive: false
    idempotent: true
  hold-once:
    argv: [sh, -c, 'echo "$$" >> pids; sleep 300 & echo "$!" >> pids; while [ ! -e go ]; do sleep 0.02; done; echo held']
    destructive: false
    idempotent: false
  look:
    argv: [sh, -c, 'echo "$$" >> pids; sleep 300 & echo "$!" >> pids; while [ ! -e go ]; do sleep 0.02; done; echo held']
    read_only: true
  serve:
    argv: [sh, -c, 'setsid sh -c ''echo "$$" > server; exec sleep 300'' > /dev/null 2>&1 & while [ ! -s server ]; do :; done']
    destructive: false
    idempotent: false
"#;

const HOLD: &str = "name: c\nsteps: [{ id: hold, tool: hold }]\noutput: '{{ hold }}'\n";

fn is_running(number: &str) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
    // No process may have waited for it yet; it is over nevertheless.
    let state = state.rsplit(')').next().unwrap_or("").trim_start();
    !state.is_empty() && !state.starts_with(['Z', 'X'])
}

/// R3: the processes that a killed Segue left running of an open call are ended before the question
/// about the call. Processes that a finished step started on purpose are left alone.
#[test]
#[cfg(target_os = "linux")]
fn what_a_killed_segue_left_running_is_ended() {
    let composition = "
name: c
steps:
  - { id: serve, tool: serve }
  - { id: hold, tool: hold-once, depends_on: serve }
";
    let world = world(composition, HOLDING);
    let mut run = start(&world, &args(&["run", "c.yaml"]));
    let left = lines(&world.path("pids"), 2);
    let server = lines(&world.path("server"), 1).remove(0);
    run.kill().unwrap();
    run.wait().unwrap();
    assert!(left.iter().all(|pid| is_running(pid)), "{left:?}");
    let view = world.json(3, &args(&["resume", "last", "--json"]));
    assert_eq!(
        (&view["status"], &view["waiting_for"][0]["step"]),
        (&"waiting".into(), &"hold".into())
    );
    assert!(!left.iter().any(|pid| is_running(pid)), "{left:?}");
    assert!(is_running(&server));
    kill_process(pid(server.parse().unwrap()), Signal::KILL).unwrap();
}

/// R3: one that carries nothing of what it was started with is found, too.
#[test]
#[cfg(target_os = "linux")]
fn what_has_cleared_its_environment_is_ended() {
    let bare = |words: &str| format!("exec env -i PATH=\"$PATH\" {words}");
    // Killed no sooner than it could be written down.
    let noted = r#"until grep -qs "^$$ " /tmp/segue-"$(id -u)"/*; do sleep 0.01; done"#;
    let hold = bare(&format!(r#"sh -c '{noted}; echo "$$" >> pids; exec sleep 300'"#));
    let config = format!(
        "commands: {{ hold: {{ argv: [sh, -c, {}], destructive: false }} }}\n\
         mcpServers: {{ s: {{ command: sh, args: [-c, {}] }} }}\n",
        Json::from(hold),
        Json::from(bare("python3 server.py")),
    );
    for tool in ["hold", "s:act"] {
        let world = world(&format!("name: c\nsteps: [{{ id: act, tool: '{tool}' }}]\n"), &config);
        world.file("server.py", STUBBORN);
        let mut killed = start(&world, &args(&["run", "c.yaml"]));
        let left = lines(&world.path("pids"), 1).remove(0);
        killed.kill().unwrap();
        killed.wait().unwrap();
        assert!(is_running(&left), "{tool}");
        let view = world.json(3, &args(&["resume", "last", "--json"]));
        assert_eq!(view["waiting_for"][0]["kind"], "doubt", "{view}");
        assert!(!is_running(&left), "{tool}");
    }
}

/// A server that works on for minutes after its client is gone.
const STUBBORN: &str = r#"
import json, os, sys, time
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    answer = {"jsonrpc": "2.0", "id": asked["id"]}
    if asked["method"] == "initialize":
        version = asked["params"]["protocolVersion"]
        server = {"name": "stubborn", "version": "1"}
        answer["result"] = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}
    elif asked["method"] == "tools/list":
        hints = {"readOnlyHint": False, "destructiveHint": False}
        tool = {"name": "act", "inputSchema": {"type": "object"}, "annotations": hints}
        answer["result"] = {"tools": [tool]}
    elif asked["method"] == "tools/call":
        open("pids", "a").write(f"{os.getpid()}\n")
        time.sleep(300)
    else:
        answer["error"] = {"code": -32601, "message": "no"}
    print(json.dumps(answer), flush=True)
"#;

/// R3: a server of a killed Segue is ended by the next one, and before the question about its
/// calls. One whose Segue is alive works on.
#[test]
#[cfg(target_os = "linux")]
fn a_server_of_a_killed_segue_is_ended() {
    let world = world(
        "name: c\nsteps: [{ id: act, tool: 's:act' }]\n",
        "mcpServers: { s: { command: python3, args: [server.py] } }\n",
    );
    world.file("server.py", STUBBORN);
    let mut killed = start(&world, &args(&["run", "c.yaml"]));
    let left = lines(&world.path("pids"), 1);
    killed.kill().unwrap();
    killed.wait().unwrap();
    let mut alive =
        start(&world, &["run", "c.yaml", "--config", "segue.yaml", "--store", "memory"]);
    let both = lines(&world.path("pids"), 2);
    // D6: the next Segue ends it, although it does not go on with the run.
    assert!(!is_running(&left[0]) && is_running(&both[1]), "{both:?}");
    let view = world.json(3, &args(&["resume", "last", "--json"]));
    assert_eq!(view["waiting_for"][0]["kind"], "doubt", "{view}");
    assert!(!is_running(&left[0]) && is_running(&both[1]), "{both:?}");
    alive.kill().unwrap();
    alive.wait().unwrap();
    kill_process(pid(both[1].parse().unwrap()), Signal::KILL).unwrap();
}

/// A run with a live owner is left alone, and the message says so.
#[test]
fn a_run_with_a_live_owner_is_not_resumed() {
    let world = world(HOLD, HOLDING);
    let run = start(&world, &args(&["run", "c.yaml", "-q"]));
    lines(&world.path("pids"), 2);
    let before = journal(&world);
    let said = world.segue(&args(&["resume", "last"])).exits(1).stderr;
    assert!(
        said.contains("which is alive") && said.contains("another process is running it"),
        "{said}"
    );
    world.segue(&args(&["resume", "--all"])).exits(0);
    assert_eq!(journal(&world), before);
    world.file("go", "");
    assert_eq!(end(run).exits(0).json(), "held");
    assert_eq!(lines(&world.path("pids"), 2).len(), 2, "it was called twice");
}

/// J8: an owner that hangs, and from whom a person takes the run, writes nothing when it wakes.
#[test]
fn an_owner_that_wakes_after_its_run_was_taken_writes_nothing() {
    let world = world(HOLD, HOLDING);
    let run = start(&world, &args(&["run", "c.yaml"]));
    lines(&world.path("pids"), 2);
    signal(&run, Signal::STOP);
    world.segue(&args(&["resume", "last"])).exits(1);
    world.file("go", "");
    assert_eq!(world.json(0, &args(&["resume", "last", "--take-over", "-q"])), "held");
    let written = journal(&world);
    signal(&run, Signal::CONT);
    let said = end(run).exits(1).stderr;
    assert!(said.contains("taken over"), "{said}");
    assert_eq!(journal(&world), written);
}

/// Turns that follow each other so closely that a run which is stopped is stopped while it writes.
const BUSY: &str = r#"
name: c
steps:
  - id: each
    loop:
      over: "{{ range(1500) }}"
      as: n
      max_concurrency: 1
      steps: [{ id: one, tool: echo, parameters: { n: "{{ n }}" } }]
      output: "{{ one.n }}"
output: "{{ each | sum }}"
"#;

/// The lock for writing of the store of a world, held until it is dropped. Nothing when it is taken.
fn hold_lock(world: &World) -> Option<Connection> {
    let connection = Connection::open(world.path("runs.db")).unwrap();
    connection.busy_timeout(Duration::ZERO).unwrap();
    connection.execute_batch("BEGIN IMMEDIATE").ok().map(|()| connection)
}

/// How long a command waits for the lock of a store, with the time to start on a busy machine.
const TOLD_WITHIN: Duration = Duration::from_secs(5 + 2);

/// J8: all other processes read while an owner is suspended. A process that wants its run while the
/// file is locked gets an error with advice within five seconds. Once the lock is free its run is
/// taken, and the old owner writes nothing when it wakes.
#[test]
fn a_command_does_not_wait_long_for_a_stopped_owner() {
    let world = world(BUSY, "");
    let run = start(&world, &args(&["run", "c.yaml"]));
    until(|| world.json(0, &args(&["runs", "--json"]))["runs"].get(0).cloned());
    // Stopped between two writes, so that the lock can be held from here.
    let lock = until(|| {
        signal(&run, Signal::STOP);
        let lock = hold_lock(&world);
        if lock.is_none() {
            signal(&run, Signal::CONT);
        }
        lock
    });
    let listed = world.json(0, &args(&["runs", "--json"]));
    assert_eq!(listed["runs"][0]["status"], "running", "{listed}");
    let before = journal(&world);
    for command in ["resume", "cancel"] {
        let began = Instant::now();
        let refused = world.segue(&args(&[command, "last", "--take-over", "-q"]));
        let waited = began.elapsed();
        assert!(waited < TOLD_WITHIN, "{command}: {waited:?}");
        assert_ne!(refused.code, Some(0), "{command}: {refused:?}");
        let said = &refused.stderr;
        assert!(said.contains("kill -CONT"), "{command}: {said}");
        assert!(said.contains(&run.id().to_string()), "{command}: {said}");
    }
    assert_eq!(journal(&world), before);
    drop(lock);
    let sum = (0..1_500).sum::<u64>();
    assert_eq!(world.json(0, &args(&["resume", "last", "--take-over", "-q"])), sum);
    let written = journal(&world);
    signal(&run, Signal::CONT);
    let said = end(run).exits(1).stderr;
    assert!(said.contains("taken over"), "{said}");
    assert_eq!(journal(&world), written);
}

/// A server does not start on a store that it cannot write, and says so soon; it starts when it can.
#[test]
fn a_server_does_not_start_on_a_store_that_it_cannot_write() {
    let world = world("name: c\nsteps: [{ id: a, tool: echo, parameters: { n: 1 } }]\n", "");
    world.segue(&args(&["run", "c.yaml"])).exits(0);
    let lock = hold_lock(&world).unwrap();
    let began = Instant::now();
    let mut server = start(&world, &args(&["serve", "--listen", "127.0.0.1:0"]));
    let ended = until(|| {
        let is_late = began.elapsed() > TOLD_WITHIN;
        server.try_wait().unwrap().map(Some).or(is_late.then_some(None))
    });
    server.kill().unwrap();
    let said = end(server);
    assert_eq!(ended.and_then(|status| status.code()), Some(2), "{said:?}");
    assert!(said.stderr.contains("--store"), "{said:?}");
    assert!(!said.stderr.contains("listening"), "{said:?}");
    drop(lock);
    Served::start(&world, "sqlite:runs.db", &[]);
}

/// A4, C1: a run that another process drives is cancelled from here, and with it its command, which
/// only reads.
#[test]
fn a_run_is_cancelled_from_another_process() {
    let world = world("name: c\nsteps: [{ id: look, tool: look }]\n", HOLDING);
    let run = start(&world, &args(&["run", "c.yaml"]));
    let pids = lines(&world.path("pids"), 2);
    let said = world.segue(&args(&["cancel", "last"])).exits(0);
    assert!(said.stderr.contains("cancelled"), "{}", said.stderr);
    let there = end(run);
    assert!(there.stderr.contains("cancelled"), "{}", there.stderr);
    assert!(!pids.iter().any(|pid| is_running(pid)), "the command is ended");
    let journal = journal(&world);
    assert_eq!(facts(&journal, "finished").len(), 1);
    assert_eq!(facts(&journal, "cancel_asked").len(), 1);
}

/// A small disk, as long as it is mounted.
struct Disk(PathBuf);

impl Disk {
    /// Nothing when this process may not mount.
    fn mount(path: PathBuf, size: &str) -> Option<Disk> {
        std::fs::create_dir_all(&path).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "none"]).arg(&path);
        let mounted = mount.stderr(Stdio::null()).status().is_ok_and(|status| status.success());
        mounted.then_some(Disk(path))
    }

    fn resize(&self, size: &str) {
        let mut mount = Command::new("mount");
        mount.args(["-o", &format!("remount,size={size}")]).arg(&self.0);
        assert!(mount.status().unwrap().success());
    }

    /// Takes all the space that is left.
    fn fill(&self) {
        let mut ballast = std::fs::File::create(self.0.join("ballast")).unwrap();
        let full = std::io::copy(&mut std::io::repeat(1), &mut ballast).unwrap_err();
        assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    }

    fn free(&self) {
        std::fs::remove_file(self.0.join("ballast")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// Calls that may not be made twice, each with a long argument that the journal keeps.
const FILLING: &str = r#"
name: c
input: { type: object, properties: { long: { type: string, default: "" } } }
steps:
  - id: each
    loop:
      over: "{{ range(60) }}"
      as: n
      max_concurrency: 2
      steps:
        - id: one
          tool: once
          parameters: { name: "n{{ n }}", long: "{{ input.long }}" }
          retry_count: 9
          probe: { tool: look, parameters: { name: "{{ args.name }}" }, done_when: "{{ output.done }}" }
      output: "{{ one.name }}"
output: "{{ each | length }}"
"#;

/// The tools of the kill harness, and a store on a small disk.
fn full(size: &str, wait_ms: u32) -> Option<(World, Disk)> {
    let world = World::with(FILLING);
    copy_folder(&repository().join("crates/segue/tests/it/kill/world"), &world.folder());
    world.file("log", "");
    let config = std::fs::read_to_string(world.path("segue.yaml")).unwrap();
    world.file("segue.yaml", format!("{config}limits: {{ store_wait_ms_max: {wait_ms} }}\n"));
    let disk = Disk::mount(world.path("disk"), size);
    if disk.is_none() {
        skipped();
    }
    Some((world, disk?))
}

#[allow(clippy::print_stderr, reason = "whoever runs the tests should know")]
fn skipped() {
    eprintln!("skipped: this process may not mount a disk");
}

fn on_disk<'a>(args: &[&'a str]) -> Vec<&'a str> {
    [args, &["--config", "segue.yaml", "--store", "sqlite:disk/runs.db", "--json", "-q"]].concat()
}

/// Every call was made, and none of them twice.
#[track_caller]
fn each_was_done_once(world: &World) {
    let log = std::fs::read_to_string(world.path("log")).unwrap();
    for n in 0..60 {
        let end = format!(" once n{n}");
        let done = log.lines().filter(|line| line.starts_with("END") && line.ends_with(&end));
        assert_eq!(done.count(), 1, "n{n} in\n{log}");
    }
}

/// J11: a run stops where it is when the disk is full, says how to resume it, and resumes from
/// there.
#[test]
fn a_full_disk_stops_a_run_and_loses_nothing() {
    let Some((world, disk)) = full("600k", 200) else { return };
    let long = format!("long={}", "x".repeat(3_000));
    let done = world.segue(&on_disk(&["run", "c.yaml", "-i", &long])).exits(1);
    assert!(done.stderr.contains("stopped where it was"), "{}", done.stderr);
    let (_, command) = done.stderr.split_once("`segue resume ").unwrap();
    let run_id = command.split('`').next().unwrap();
    let view: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!((&view["run_id"], &view["status"]), (&run_id.into(), &"running".into()));
    assert_eq!((&view["success"], &view["errors"][0]["phase"]), (&false.into(), &"store".into()));
    disk.resize("64m");
    let view = world.json(0, &on_disk(&["resume", run_id]));
    assert_eq!((&view["status"], &view["output"]), (&"success".into(), &60.into()));
    assert_eq!(step(&view, "each")["status"], "success");
    each_was_done_once(&world);
}

/// J11: a run waits for space and continues by itself; calls in flight are not aborted.
#[test]
fn a_run_waits_for_space() {
    let Some((world, disk)) = full("4m", 30_000) else { return };
    let run = start(&world, &on_disk(&["run", "c.yaml"]));
    lines(&world.path("log"), 6);
    disk.fill();
    // Nothing new begins for as long as ten calls would take.
    let mut still = (0, Instant::now());
    until(|| {
        let length = std::fs::metadata(world.path("log")).unwrap().len();
        if length != still.0 {
            still = (length, Instant::now());
        }
        (still.1.elapsed() > Duration::from_millis(600)).then_some(())
    });
    disk.free();
    assert_eq!(end(run).exits(0).json()["output"], 60);
    each_was_done_once(&world);
    let log = std::fs::read_to_string(world.path("log")).unwrap();
    assert!(!log.contains(" look "), "a call was in doubt:\n{log}");
}

/// R1, D4: `resume --all` leaves runs alone whose tools are missing or not allowed here, and names
/// them; where they are available it resumes them.
#[test]
fn runs_of_other_projects_are_not_resumed() {
    let world = world(
        "name: c\nsteps:\n  - { id: a, tool: work }\n  - { id: b, tool: work, depends_on: a }\n",
        "commands: { work: { argv: ['true'], read_only: true } }\n",
    )
    .merely_found();
    world.file("other.yaml", "");
    let killed = world.segue(&args(&["run", "c.yaml", "--inject", "crash-after=2"]));
    assert_eq!(killed.code, None, "{killed:?}");
    let entries = journal(&world).len();
    let stored = ["--store", "sqlite:runs.db"];
    for (config, why) in [
        (&["--config", "other.yaml"][..], "`command:work`, which is not configured here"),
        (&[], "which comes from a configuration that is not allowed yet"),
    ] {
        let all = world.segue(&[&["resume", "--all"], config, &stored].concat()).exits(0);
        assert!(all.stderr.contains(why) && all.stderr.contains("0 runs resumed"), "{all:?}");
        let one = world.segue(&[&["resume", "last"], config, &stored].concat()).exits(1);
        assert!(one.stderr.contains(why) && one.stderr.contains("the run is unchanged"), "{one:?}");
    }
    assert_eq!(journal(&world).len(), entries);
    let all = world.segue(&args(&["resume", "--all"])).exits(0);
    assert!(all.stderr.contains("c: success\n1 run resumed"), "{all:?}");
}

/// C1: Ctrl-C cancels runs that `resume --all` resumes, as it cancels a single run.
#[test]
fn runs_that_go_on_together_are_interrupted() {
    let world = world("name: c\nsteps: [{ id: rest, wait: 1h }]\n", "");
    let killed = world.segue(&args(&["run", "c.yaml", "--inject", "crash-after=1"]));
    assert_eq!(killed.code, None, "{killed:?}");
    let all = start(&world, &args(&["resume", "--all"]));
    // Before another process resumes it.
    let owner = format!("{}-", all.id());
    let owners = || std::fs::read_dir(world.path("runs.db-owners")).into_iter().flatten().flatten();
    until(|| owners().find(|file| file.file_name().to_string_lossy().starts_with(&owner)));
    until(|| {
        world
            .segue(&args(&["resume", "last"]))
            .stderr
            .contains("another process is running")
            .then_some(())
    });
    signal(&all, Signal::INT);
    let all = end(all).exits(130);
    assert!(all.stderr.contains("c: cancelled"), "{all:?}");
}
