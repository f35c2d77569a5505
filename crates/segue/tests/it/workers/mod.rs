//! Processes that share a Postgres store and leave runs to each other: workers, servers that only take
//! requests, runs that a command line leaves.

mod cli;
mod dispatched;
mod handover;
mod requests;
mod secrets;

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use tokio_postgres::{NoTls, SimpleQueryMessage};

use crate::served::{Served, TOKEN};
use crate::support::{Json, SEGUE, World, until};

/// The shortest lease that a configuration may have.
const SHORT: &str = "worker: { lease: 3s }\n";

/// A lease so long that no test sees its end: what changes hands was given.
const LONG: &str = "worker: { lease: 10m }\n";

/// Machines that share a database. Each has its own folder and home, and the same tools.
pub(super) struct Machines {
    pub(super) store: String,
    worlds: Vec<World>,
}

impl Machines {
    /// So many machines; none without a database. `config` is added to the configuration of each.
    pub(super) fn new(count: usize, config: &str) -> Option<Machines> {
        let store = crate::postgres_server::database()?;
        let worlds: Vec<World> = (0..count).map(|_| World::new()).collect();
        let calls = worlds[0].path("calls").display().to_string();
        let tools = format!(
            "commands:\n  note:\n    argv: [sh, -c, 'echo \"$2\" >> \"$1\"', sh, '{calls}', '{{{{ args.step \
             }}}}']\n    input: {{ type: object, properties: {{ step: {{ type: string }} }} }}\n    \
             destructive: false\n"
        );
        for world in &worlds {
            world.file("segue.yaml", format!("{tools}server: {{ token: {TOKEN} }}\n{config}"));
        }
        Some(Machines { store, worlds })
    }

    pub(super) fn world(&self, machine: usize) -> &World {
        &self.worlds[machine]
    }

    /// The steps that called `note`, in their order.
    pub(super) fn calls(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.worlds[0].path("calls")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    pub(super) fn args<'a>(&'a self, args: &[&'a str]) -> Vec<&'a str> {
        [&["--config", "segue.yaml", "--store", &self.store], args].concat()
    }

    /// A command on a machine that prints JSON.
    #[track_caller]
    pub(super) fn json(&self, machine: usize, args: &[&str]) -> Json {
        self.world(machine).json(0, &self.args(args))
    }

    pub(super) fn worker(&self, machine: usize) -> Worker {
        Worker::start(self.world(machine), &self.args(&["worker"]))
    }

    pub(super) fn server(&self, machine: usize, args: &[&str]) -> Served {
        Served::start(self.world(machine), &self.store, args)
    }

    /// Leaves a run of this composition to the workers; its id.
    #[track_caller]
    pub(super) fn detach(&self, machine: usize, composition: &str) -> String {
        self.world(machine).file("long.yaml", composition);
        let args = self.args(&["run", "long.yaml", "--detach"]);
        let done = self.world(machine).segue(&args).exits(0);
        done.stdout.trim().to_owned()
    }

    #[track_caller]
    pub(super) fn show(&self, machine: usize, run_id: &str) -> Json {
        self.json(machine, &["runs", "show", run_id, "--json"])
    }

    /// Waits until a run has this status.
    #[track_caller]
    pub(super) fn until_status(&self, machine: usize, run_id: &str, status: &str) -> Json {
        until(|| Some(self.show(machine, run_id)).filter(|run| run["status"] == status))
    }

    /// The rows of a query, as text.
    pub(super) fn rows(&self, sql: &str) -> Vec<Vec<Option<String>>> {
        let (url, sql) = (self.store.clone(), sql.to_owned());
        let work = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
                let connection = tokio::spawn(connection);
                let messages = client.simple_query(&sql).await.unwrap();
                drop(client);
                let _ = connection.await;
                let rows = messages.into_iter().filter_map(|message| match message {
                    SimpleQueryMessage::Row(row) => Some(row),
                    _ => None,
                });
                let cells = |row: tokio_postgres::SimpleQueryRow| {
                    (0..row.len()).map(|at| row.get(at).map(str::to_owned)).collect()
                };
                rows.map(cells).collect()
            })
        };
        std::thread::spawn(work).join().unwrap()
    }

    /// The process that owns a run, by its number.
    pub(super) fn owner(&self, run_id: &str) -> Option<u32> {
        let sql = format!("SELECT owner FROM segue.run WHERE run_id = '{run_id}'");
        let owner = self.rows(&sql).first()?.first()?.clone()?;
        owner.split('-').next()?.parse().ok()
    }
}

/// `segue worker`.
pub(super) struct Worker {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Worker {
    pub(super) fn start(world: &World, args: &[&str]) -> Worker {
        Worker::start_with(world, args, &[])
    }

    /// The same with variables of the environment.
    pub(super) fn start_with(world: &World, args: &[&str], env: &[(&str, &str)]) -> Worker {
        let mut command = world.command(SEGUE);
        let mut child =
            command.args(args).envs(env.iter().copied()).stderr(Stdio::piped()).spawn().unwrap();
        let lines: Arc<Mutex<Vec<String>>> = Arc::default();
        let (heard, from) = (lines.clone(), BufReader::new(child.stderr.take().unwrap()));
        std::thread::spawn(move || {
            from.lines().map_while(Result::ok).for_each(|line| heard.lock().unwrap().push(line));
        });
        let worker = Worker { child, lines };
        until(|| worker.said("worker ready on").then_some(()));
        worker
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether a line of its log has this in it.
    pub(super) fn said(&self, part: &str) -> bool {
        self.lines.lock().unwrap().iter().any(|line| line.contains(part))
    }

    pub(super) fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    /// Kills it, so that it can do nothing more.
    pub(super) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to end, and waits until it has.
    pub(super) fn terminate(mut self) {
        let asked = Command::new("kill").args(["-TERM", &self.pid().to_string()]).status();
        assert!(asked.unwrap().success());
        assert!(self.child.wait().unwrap().success(), "{:?}", self.lines());
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
