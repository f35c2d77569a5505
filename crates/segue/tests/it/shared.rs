//! Processes that share a database, as several machines would: workers, a server, and the database itself.
//!
//! All of them work in one folder, so that their tools write one log (`kill/world/tool.sh`). Segue does not
//! know the log: it shows which calls were made, and how often.

mod deaths;
mod many;
mod network;

use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use segue_core::limits::Limits;
use segue_core::run::{Entry, Fact, Run};
use segue_core::value::Value;
use segue_core::view::{RunStatus, RunView};
use segue_runtime::store::{
    JournalStore as _, PostgresOptions, PostgresStore, PostgresUrl, RunHistory as _, RunQuery,
    RunQueue as _, RunRow, StoreError,
};
use tokio::runtime::Runtime;

use crate::kill::check::{self, Marks};
use crate::postgres_server::Server;
use crate::served::{Served, TOKEN};
use crate::support::{Done, Json, SEGUE, World, copy_folder, repository, until};

/// The lease of the processes of these tests: the shortest that a configuration may have.
pub(crate) const LEASE: Duration = Duration::from_secs(3);

/// How long after the death of its owner a run may have no other one. A quiet machine needs a second after the
/// lease, as the figures of `just kill-shared` show; the rest is for a busy one.
pub(crate) const TAKEOVER_MAX: Duration = LEASE.saturating_add(Duration::from_secs(4));

/// A database and the folder in which its processes work.
pub(crate) struct Cluster {
    pub(crate) world: World,
    pub(crate) server: Server,
    pub(crate) url: String,
    /// The test's own handle, which owns no run.
    pub(crate) store: PostgresStore,
    runtime: Runtime,
}

/// A worker, or another process, which ends with its test.
pub(crate) struct Process {
    child: Child,
    /// How many runs it drives at most: no other process of the test has this number, so it tells which row
    /// of `workers` is its own.
    pub(crate) room: u16,
}

impl Cluster {
    /// A new database on a server of its own, which also listens on these addresses; none without Postgres.
    pub(crate) fn new(listen: &str) -> Option<Cluster> {
        Cluster::driven_by("", listen)
    }

    /// The same, where the configuration says more of who drives runs.
    pub(crate) fn driven_by(driver: &str, listen: &str) -> Option<Cluster> {
        let server = Server::own(listen)?;
        let url = server.database();
        let world = World::new();
        copy_folder(&repository().join("crates/segue/tests/it/kill/world"), &world.folder());
        world.file("log", "");
        let config = std::fs::read_to_string(world.path("segue.yaml")).unwrap();
        world.file("segue.yaml", config + &worker_section(0) + driver);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let options = PostgresOptions { lease: LEASE, ..PostgresOptions::default() };
        let store = PostgresStore::open(&PostgresUrl::parse(&url).unwrap(), options).unwrap();
        Some(Cluster { world, server, url, store, runtime })
    }

    /// What the store tells, once it can.
    #[track_caller]
    pub(crate) fn wait<T, F: Future<Output = Result<T, StoreError>>>(
        &self,
        read: impl Fn() -> F,
    ) -> T {
        until(|| match self.runtime.block_on(read()) {
            Ok(found) => Some(found),
            Err(StoreError::Unavailable { .. }) => None,
            Err(error) => panic!("{error}"),
        })
    }

    /// A worker on the database.
    pub(crate) fn worker(&self) -> Process {
        self.worker_by(self.world.command(SEGUE), &self.url)
    }

    /// A worker that reaches the database at this address, by a command that knows more of its host.
    pub(crate) fn worker_by(&self, mut command: Command, url: &str) -> Process {
        static NEXT: AtomicU16 = AtomicU16::new(100);
        let room = NEXT.fetch_add(1, Ordering::Relaxed);
        let config = std::fs::read_to_string(self.world.path("segue.yaml")).unwrap();
        let name = format!("worker-{room}.yaml");
        self.world.file(&name, config.replace(&worker_section(0), &worker_section(room)));
        let said = File::create(self.world.path(&format!("worker-{room}.log"))).unwrap();
        command.args(["--config", &name, "--store", url, "worker"]);
        command.stdout(Stdio::null()).stderr(said);
        Process { child: command.spawn().unwrap(), room }
    }

    /// A server that takes requests and drives nothing.
    pub(crate) fn server(&self) -> Served {
        Served::start(&self.world, &self.url, &["--no-drive"])
    }

    /// What a command on the same store gives.
    pub(crate) fn segue(&self, args: &[&str]) -> Done {
        self.world.segue(&[&["--config", "segue.yaml", "--store", &self.url], args].concat())
    }

    /// Starts a run that workers drive; none if it was not acknowledged.
    pub(crate) fn try_start(&self, composition: &str) -> Option<Arc<str>> {
        let done = self.segue(&["run", composition, "--detach", "--json", "-q"]);
        (done.code == Some(0)).then(|| done.json()["run_id"].as_str().unwrap().into())
    }

    pub(crate) fn start(&self, composition: &str) -> Arc<str> {
        let done = self.segue(&["run", composition, "--detach", "--json", "-q"]);
        done.exits(0).json()["run_id"].as_str().unwrap().into()
    }

    pub(crate) fn row(&self, run_id: &Arc<str>) -> RunRow {
        self.wait(|| self.store.run(run_id)).expect("lost: a run that was told of")
    }

    pub(crate) fn unfinished(&self) -> Vec<RunRow> {
        let found = self.wait(|| self.store.unfinished());
        assert!(found.damaged.is_empty(), "{:?}", found.damaged);
        found.runs
    }

    /// Every run, the newest first.
    pub(crate) fn runs(&self) -> Vec<RunRow> {
        let (mut rows, mut after) = (Vec::new(), None);
        loop {
            let query = RunQuery { after, limit: 1_000, ..RunQuery::default() };
            let page = self.wait(|| self.store.runs(&query));
            rows.extend(page.runs);
            match page.next {
                Some(next) => after = Some(next),
                None => return rows,
            }
        }
    }

    pub(crate) fn journal(&self, run_id: &Arc<str>) -> Vec<Entry> {
        self.wait(|| self.store.load(run_id))
    }

    /// A run as its journal tells it.
    pub(crate) fn view(&self, run_id: &Arc<str>) -> RunView {
        let limits = Arc::new(Limits::default());
        let plan = self.wait(|| self.store.plan(run_id, &limits));
        Run::replay(plan, limits, &self.journal(run_id)).unwrap().view()
    }

    /// The same as JSON.
    pub(crate) fn view_json(&self, run_id: &Arc<str>) -> Json {
        serde_json::to_value(self.view(run_id)).unwrap()
    }

    /// Waits for the end of a run.
    #[track_caller]
    pub(crate) fn ended(&self, run_id: &Arc<str>) -> RunView {
        until(|| self.row(run_id).ended_ms);
        self.view(run_id)
    }

    /// The name under which a worker owns runs, once it has announced itself.
    #[track_caller]
    pub(crate) fn owner(&self, worker: &Process) -> Arc<str> {
        until(|| self.find_owner(worker))
    }

    /// Waits until a worker took a run from another one; returns how long that took.
    #[track_caller]
    pub(crate) fn taken_by(&self, run_id: &Arc<str>, worker: &Process) -> Duration {
        let (began, next) = (Instant::now(), self.owner(worker));
        until(|| {
            let owner = self.row(run_id).owner;
            // Without an owner: it has released the run already, because a person is asked.
            owner.is_none_or(|owner| owner == next).then(|| began.elapsed())
        })
    }

    pub(crate) fn find_owner(&self, worker: &Process) -> Option<Arc<str>> {
        let rows = self.wait(|| self.store.workers());
        let own =
            rows.into_iter().find(|row| row.is_alive && row.info.room == usize::from(worker.room));
        own.map(|row| row.id)
    }

    /// Answers the first question that a run waits for, as a person would: yes, or what the log tells of a call
    /// in doubt. Returns the kind of question, and the process that carries the answer.
    pub(crate) fn answer(&self, run_id: &Arc<str>) -> Option<(&'static str, Child)> {
        let view = self.view(run_id);
        let wait = view.waiting_for.first()?;
        let mut command = self.world.command(SEGUE);
        command.args(["--config", "segue.yaml", "--store", &self.url, "-q"]);
        if wait.kind == "doubt" {
            let name = wait.args.get("name").and_then(Value::as_str).unwrap();
            let was_done =
                self.marks().iter().any(|mark| mark.starts_with("END ") && mark.ends_with(name));
            command.args(["resume", run_id, "--step", &wait.step, "--assume"]);
            if was_done {
                command.args([
                    "done",
                    "--value",
                    &format!("{{\"name\":\"{name}\",\"done\":true}}"),
                ]);
            } else {
                command.arg("failed");
            }
        } else {
            command.args(["approve", run_id, "--step", &wait.step]);
        }
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Some((wait.kind, child))
    }

    /// Waits for the end of a run, and answers its questions until then.
    #[track_caller]
    pub(crate) fn ended_with_answers(&self, run_id: &Arc<str>) -> RunView {
        let began = Instant::now();
        loop {
            let row = self.row(run_id);
            if row.ended_ms.is_some() {
                return self.view(run_id);
            }
            assert!(began.elapsed() < Duration::from_mins(1), "stuck: {row:#?}\n{}", self.said());
            if row.status == RunStatus::Waiting
                && let Some((_, mut answer)) = self.answer(run_id)
            {
                answer.wait().unwrap();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// What the workers have logged.
    fn said(&self) -> String {
        let files =
            std::fs::read_dir(self.world.folder()).unwrap().map(|entry| entry.unwrap().path());
        let logs =
            files.filter(|path| path.extension().is_some_and(|extension| extension == "log"));
        logs.map(|path| format!("{}:\n{}", path.display(), std::fs::read_to_string(&path).unwrap()))
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// Waits for the end of a run, and compares it with the log: nothing is lost, and nothing was done twice. It
    /// succeeds, unless a person said that a call in doubt was not made.
    #[track_caller]
    pub(crate) fn ends_well(&self, run_id: &Arc<str>) {
        let view = self.ended_with_answers(run_id);
        let journal = self.journal(run_id);
        check::run(&journal, &Marks::read(&self.world), &self.view_json(run_id));
        let is_refuted = |entry: &Entry| matches!(entry.fact, Fact::Resolved { done: false, .. });
        let is_excused = journal.iter().any(is_refuted);
        assert!(view.status == RunStatus::Success || is_excused, "{:?}", view.errors);
    }

    /// The log of the tools, a line for each mark.
    pub(crate) fn marks(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.world.path("log")).unwrap();
        log.lines().map(str::to_owned).collect()
    }

    /// How often work of this name was begun.
    pub(crate) fn begun(&self, name: &str) -> usize {
        let begun = |mark: &&String| mark.starts_with("START ") && mark.ends_with(name);
        self.marks().iter().filter(begun).count()
    }
}

/// What the processes of these tests are told of workers; 0 leaves the number of runs as it is.
fn worker_section(room: u16) -> String {
    let runs = if room == 0 { String::new() } else { format!(", runs: {room}") };
    let seconds = LEASE.as_secs();
    format!("worker: {{ lease: {seconds}s{runs} }}\nserver: {{ token: {TOKEN} }}\n")
}

impl Process {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// `kill -9`
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// The most memory that it has used, in kilobytes.
    pub(crate) fn peak_memory_kb(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
