//! TLS to a database: a server with a certificate of an authority that this test makes.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use segue_runtime::store::{
    JournalStore as _, PostgresOptions, PostgresStore, PostgresUrl, StoreError,
};
use tempfile::TempDir;

use crate::postgres_server::{is_root, programs};

/// A server that accepts only encrypted connections, as `localhost`.
struct Server {
    folder: TempDir,
    port: u16,
    /// It ends when its input does.
    watchdog: Child,
}

/// Makes an authority and a certificate of it for `localhost`, and another authority.
const CERTIFICATES: &str = r#"
set -e
cd "$1"
authority() {
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -keyout "$1.key" \
    -out "$1.crt" -subj "/CN=$1" -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign
}
authority ours
authority other
openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout server.key -out server.csr -subj /CN=localhost
printf 'subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth' > server.ext
openssl x509 -req -in server.csr -CA ours.crt -CAkey ours.key -CAcreateserial -days 2 -extfile server.ext -out server.crt
chmod 600 server.key
"#;

const WATCHED: &str = r#"
"$1/initdb" -D "$2/data" -U segue --auth=trust --no-sync --locale=C -E UTF8 > "$2/log" 2>&1 || exit 1
printf 'hostssl all all 127.0.0.1/32 trust\n' > "$2/data/pg_hba.conf"
"$1/postgres" -D "$2/data" -k "$2" -p "$3" -c listen_addresses=127.0.0.1 -c fsync=off -c ssl=on \
  -c ssl_cert_file="$2/server.crt" -c ssl_key_file="$2/server.key" >> "$2/log" 2>&1 &
read -r _
kill -QUIT $!
wait
"#;

impl Server {
    fn start() -> Option<Server> {
        let Some(programs) = programs() else {
            let ci = std::env::var_os("CI").is_some_and(|ci| ci == "true");
            assert!(!ci, "no Postgres server: `scripts/install-postgres` installs one");
            return None;
        };
        let folder = TempDir::new().unwrap();
        let path = folder.path();
        let made = Command::new("sh").args(["-c", CERTIFICATES, "sh"]).arg(path).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let mut command = if is_root() {
            let owned = Command::new("chown").args(["-R", "nobody"]).arg(path).status();
            assert!(owned.unwrap().success());
            let mut command = Command::new("setpriv");
            command.args(["--reuid", "nobody", "--regid", "nogroup", "--clear-groups", "sh"]);
            command
        } else {
            Command::new("sh")
        };
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let port = free.port();
        command.args(["-c", WATCHED, "sh"]).arg(programs).arg(path).arg(port.to_string());
        let watchdog = command.current_dir("/").stdin(Stdio::piped()).spawn().unwrap();
        Some(Server { folder, port, watchdog })
    }

    fn url(&self, host: &str, parameters: &str) -> String {
        format!("postgres://segue@{host}:{}/postgres?{parameters}", self.port)
    }

    fn authority(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.crt"))
    }

    /// Opens a store, as soon as the server takes connections.
    fn open(&self, host: &str, parameters: &str) -> Result<PostgresStore, StoreError> {
        let url = PostgresUrl::parse(&self.url(host, parameters)).unwrap();
        let until = Instant::now() + Duration::from_mins(1);
        loop {
            match PostgresStore::open(&url, PostgresOptions::default()) {
                Err(StoreError::Unavailable { message })
                    if Instant::now() < until
                        && ["refused", "starting up"].iter().any(|why| message.contains(why)) =>
                {
                    std::thread::sleep(Duration::from_millis(20));
                }
                opened => return opened,
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let mut input = self.watchdog.stdin.take().unwrap();
        let _ = input.write_all(b"\n");
        let _ = self.watchdog.wait();
    }
}

fn verified(authority: &Path) -> String {
    format!("sslmode=verify-full&sslrootcert={}", authority.display())
}

/// The certificate must be of a known authority and of the host, unless only encryption is wanted; a server
/// that wants encryption gets no other connection.
#[test]
fn the_certificate_of_the_server_is_checked() {
    let Some(server) = Server::start() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let works = |store: PostgresStore| runtime.block_on(store.try_write()).unwrap();
    let ours = verified(&server.authority("ours"));
    works(server.open("localhost", &ours).unwrap());
    works(server.open("127.0.0.1", "sslmode=require").unwrap());
    for (host, parameters, said) in [
        // The certificate is not that of the address.
        ("127.0.0.1", ours.as_str(), "not valid for name"),
        ("localhost", verified(&server.authority("other")).as_str(), "UnknownIssuer"),
        // The authorities of the system do not know ours.
        ("localhost", "sslmode=verify-full", "UnknownIssuer"),
        ("127.0.0.1", "sslmode=disable", "pg_hba.conf"),
    ] {
        let refused = server.open(host, parameters).err().unwrap().to_string();
        assert!(refused.contains(said), "{host} {parameters}: {refused}");
    }
    let gone = server.folder.path().join("none.crt");
    let refused = server.open("localhost", &verified(&gone)).err().unwrap().to_string();
    assert!(refused.contains("`sslrootcert`"), "{refused}");
}
