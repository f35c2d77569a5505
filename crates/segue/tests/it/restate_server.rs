//! A Restate server of one test, on free ports, with its data in a temporary folder.
//!
//! It ends with the test process, because a shell beside it waits on a pipe that closes then. Where there is no
//! server (`scripts/install-restate` installs one) the tests say so and do nothing, and fail with `CI=true`.

use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Condvar, Mutex, MutexGuard};

use tempfile::TempDir;

use crate::served::Served;
use crate::support::{Json, json, repository, until};

/// Starts the server, tells its process id, and ends it when nobody holds the input any more.
const WATCHED: &str = r#""$@" & echo $!; read -r _; kill -9 $! 2> /dev/null; wait"#;

/// Servers at once: each takes a processor while it starts.
const TOGETHER_MAX: usize = 2;

/// A running server, or one that was killed.
pub(crate) struct RestateServer {
    program: PathBuf,
    data: TempDir,
    ports: [u16; 3],
    running: Option<Child>,
    pid: u32,
    _turn: Turn,
}

/// The right to run a server.
struct Turn;

static RUNNING: Mutex<usize> = Mutex::new(0);
static ENDED: Condvar = Condvar::new();

impl Turn {
    fn wait() -> Turn {
        let lock = || -> MutexGuard<'_, usize> { RUNNING.lock().unwrap() };
        let mut running = ENDED.wait_while(lock(), |running| *running >= TOGETHER_MAX).unwrap();
        *running += 1;
        Turn
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *RUNNING.lock().unwrap() -= 1;
        ENDED.notify_one();
    }
}

/// The program of the server.
fn program() -> Option<PathBuf> {
    let packages = repository().join("target/restate/node_modules/@restatedev");
    let found = std::fs::read_dir(packages).into_iter().flatten().flatten();
    let mut programs = found.map(|entry| entry.path().join("bin/restate-server"));
    programs.find(|program| program.exists())
}

/// Ports that are free now, each another one.
pub(crate) fn free_ports<const COUNT: usize>() -> [u16; COUNT] {
    let listeners = [(); COUNT].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

impl RestateServer {
    /// Starts a server; none where it is not installed.
    pub(crate) fn start() -> Option<RestateServer> {
        let Some(program) = program() else {
            let lack = "no Restate server: `scripts/install-restate` installs one";
            assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{lack}");
            // Not `eprintln`, which the test harness captures.
            let _ = writeln!(std::io::stderr(), "skipped: {lack}");
            return None;
        };
        let (data, ports) = (TempDir::new().unwrap(), free_ports());
        let mut server =
            RestateServer { program, data, ports, running: None, pid: 0, _turn: Turn::wait() };
        server.start_again();
        Some(server)
    }

    /// Starts the server on its data, at the same ports.
    pub(crate) fn start_again(&mut self) {
        let log = OpenOptions::new().create(true).append(true).open(self.data.path().join("log"));
        let [ingress, admin, node] = self.ports.map(|port| format!("127.0.0.1:{port}"));
        let mut command = Command::new("sh");
        command.args(["-c", WATCHED, "sh"]).arg(&self.program);
        command.args(["--no-logo", "--listen-mode", "tcp", "--node-name", "test"]);
        command.arg("--base-dir").arg(self.data.path().join("data"));
        command.args(["--default-num-partitions", "4"]);
        command
            .env("RESTATE_INGRESS__BIND_ADDRESS", ingress)
            .env("RESTATE_ADMIN__BIND_ADDRESS", admin)
            .env("RESTATE_BIND_ADDRESS", &node)
            .env("RESTATE_ADVERTISED_ADDRESS", format!("http://{node}"))
            .env("RESTATE_ROCKSDB_TOTAL_MEMORY_SIZE", "256MB")
            .env("RESTATE_DISABLE_TELEMETRY", "true")
            .env("RESTATE_LOG_DISABLE_ANSI_CODES", "true")
            // Nothing of it reaches the internet, and it waits for nothing there.
            .env("HTTPS_PROXY", "http://127.0.0.1:9");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log.unwrap());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        self.pid = lines.next().unwrap().unwrap().trim().parse().unwrap();
        // Its log goes on; nobody reads it.
        std::thread::spawn(move || lines.for_each(drop));
        self.running = Some(child);
        until(|| self.is_ready().then_some(()));
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        let killed = Command::new("kill").args(["-9", &self.pid.to_string()]).status();
        assert!(killed.unwrap().success());
        self.end();
    }

    fn end(&mut self) {
        if let Some(mut child) = self.running.take() {
            drop(child.stdin.take());
            let _ = child.wait();
        }
    }

    pub(crate) fn ingress(&self) -> String {
        format!("http://{}", self.address(0))
    }

    pub(crate) fn admin(&self) -> String {
        format!("http://{}", self.address(1))
    }

    fn address(&self, port: usize) -> String {
        format!("127.0.0.1:{}", self.ports[port])
    }

    fn is_ready(&self) -> bool {
        [(0, "/restate/health"), (1, "/health")].iter().all(|(port, path)| {
            let at = self.address(*port);
            TcpStream::connect(&at).is_ok()
                && Served::at(at).ask("GET", path, &[], "").status == 200
        })
    }

    /// The rows that a query of its admin API finds.
    pub(crate) fn query(&self, sql: &str) -> Vec<Json> {
        let headers = [("accept", "application/json"), ("content-type", "application/json")];
        let body = json!({ "query": sql }).to_string();
        let answer = Served::at(self.address(1)).ask("POST", "/query", &headers, &body);
        answer.is(200)["rows"].as_array().unwrap().clone()
    }

    /// What its admin API answers.
    pub(crate) fn admin_get(&self, path: &str) -> Json {
        Served::at(self.address(1)).ask("GET", path, &[], "").is(200)
    }

    /// What it has written down, as bytes.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.data.path().join("log")).unwrap_or_default()
    }
}

impl Drop for RestateServer {
    fn drop(&mut self) {
        self.end();
    }
}
