//! What `diagnose` sees of real databases: rights, standbys, poolers.

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use segue_runtime::store::{
    DatabaseFacts, PostgresOptions, PostgresStore, PostgresUrl, Standby, diagnose,
};
use tempfile::TempDir;

use crate::postgres_server::{database, programs, run_sql};

async fn facts(url: &str) -> DatabaseFacts {
    diagnose(&PostgresUrl::parse(url).unwrap()).await.unwrap()
}

/// The same address for another user.
fn as_user(url: &str, user: &str) -> String {
    url.replacen("segue@", &format!("{user}@"), 1)
}

/// The tests' server does not sync, and says so; everything else is in order.
#[tokio::test]
async fn a_new_database_and_one_with_tables() {
    let Some(url) = database() else { return };
    let empty = facts(&url).await;
    assert!(empty.version.starts_with(|letter: char| letter.is_ascii_digit()), "{empty:?}");
    assert_eq!((empty.tables, &empty.missing_rights), (None, &vec![]));
    assert!(!empty.syncs && empty.writes_full_pages && !empty.pools_transactions, "{empty:?}");
    assert_eq!(empty.synchronous_commit, "on");
    assert!(empty.clock_ahead_ms.abs() <= empty.clock_uncertain_ms + 50, "{empty:?}");
    let options = PostgresOptions::default();
    drop(PostgresStore::open(&PostgresUrl::parse(&url).unwrap(), options).unwrap());
    let filled = facts(&url).await;
    assert_eq!(filled.tables, Some(filled.tables_known));
    assert!(filled.missing_rights.is_empty(), "{filled:?}");
}

/// A user without rights is told which ones, before and after the tables are there.
#[tokio::test]
async fn missing_rights_are_named() {
    let Some(url) = database() else { return };
    let name = url.split("@/").nth(1).unwrap().split('?').next().unwrap();
    let (user, granted) = (format!("poor_{name}"), format!("granted_{name}"));
    run_sql(&url, &format!("CREATE ROLE {user} LOGIN; CREATE ROLE {granted} LOGIN")).unwrap();
    let found = facts(&as_user(&url, &user)).await;
    assert_eq!(found.missing_rights, [format!("CREATE on database {name}")]);
    drop(PostgresStore::open(&PostgresUrl::parse(&url).unwrap(), PostgresOptions::default()));
    let found = facts(&as_user(&url, &user)).await;
    let lacks = |right: &str| found.missing_rights.iter().any(|missing| missing == right);
    for right in ["USAGE on schema segue", "DELETE on turn", "INSERT on run", "USAGE on run_number"]
    {
        assert!(lacks(right), "{right}: {found:?}");
    }
    // What this says is enough is enough for a store.
    let grants = format!(
        "GRANT USAGE ON SCHEMA segue TO {granted};
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA segue TO {granted};
         GRANT USAGE ON SEQUENCE segue.run_number TO {granted}"
    );
    run_sql(&url, &grants).unwrap();
    let url = as_user(&url, &granted);
    assert_eq!(facts(&url).await.missing_rights, Vec::<String>::new());
    let store = PostgresStore::open(&PostgresUrl::parse(&url).unwrap(), PostgresOptions::default());
    let store = store.unwrap();
    let lease = crate::stores::begin(&store, "run", &crate::stores::plan_named("c")).await;
    crate::stores::finish(&store, &lease, 1).await;
}

/// A standby that commits do not wait for.
#[tokio::test]
async fn an_asynchronous_standby_is_seen() {
    let Some(url) = database() else { return };
    let socket = url.split("host=").nth(1).unwrap();
    let folder = TempDir::new().unwrap();
    let mut receiver = Command::new(programs().unwrap().join("pg_receivewal"))
        .args(["-h", socket, "-U", "segue", "-D"])
        .arg(folder.path())
        .env("PGAPPNAME", "tape")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let until = Instant::now() + Duration::from_secs(30);
    let seen = loop {
        let found = facts(&url).await;
        // Not of another test.
        let is_ours = |standby: &&Standby| standby.name == "tape";
        if let Some(standby) = found.standbys.iter().find(is_ours) {
            break standby.clone();
        }
        assert!(Instant::now() < until && receiver.try_wait().unwrap().is_none(), "{found:?}");
    };
    receiver.kill().unwrap();
    receiver.wait().unwrap();
    assert_eq!(seen.is_synchronous, Some(false));
}

/// Pools by transaction, as PgBouncer does: a request goes to a free connection of the server, which is free
/// again when the server says that no transaction is open.
struct Pooler {
    folder: TempDir,
}

/// The body of the next message, with its kind.
fn message(from: &mut impl std::io::Read) -> Option<(u8, Vec<u8>)> {
    let mut head = [0; 5];
    from.read_exact(&mut head).ok()?;
    let length = u32::from_be_bytes(head[1..].try_into().unwrap()) as usize;
    let mut body = vec![0; length - 4];
    from.read_exact(&mut body).ok()?;
    Some((head[0], [&head[..], &body].concat()))
}

impl Pooler {
    fn new(url: &str) -> Pooler {
        let folder = TempDir::new().unwrap();
        let listener = UnixListener::bind(folder.path().join(".s.PGSQL.5432")).unwrap();
        let server = Path::new(url.split("host=").nth(1).unwrap()).join(".s.PGSQL.5432");
        let free = Arc::<Mutex<Vec<UnixStream>>>::default();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (server, free) = (server.clone(), free.clone());
                std::thread::spawn(move || serve(client, &server, &free));
            }
        });
        Pooler { folder }
    }

    fn url(&self, url: &str) -> String {
        format!("{}host={}", url.split("host=").next().unwrap(), self.folder.path().display())
    }
}

/// Relays the answer of the server up to its `ReadyForQuery`; returns whether no transaction is open.
fn relay(server: &mut UnixStream, client: &mut UnixStream) -> Option<bool> {
    loop {
        let (kind, bytes) = message(server)?;
        client.write_all(&bytes).ok()?;
        if kind == b'Z' {
            return Some(bytes.last() == Some(&b'I'));
        }
    }
}

fn serve(mut client: UnixStream, server: &Path, free: &Mutex<Vec<UnixStream>>) -> Option<()> {
    // The first message has no kind.
    let mut length = [0; 4];
    client.read_exact(&mut length).ok()?;
    let mut start = vec![0; u32::from_be_bytes(length) as usize - 4];
    client.read_exact(&mut start).ok()?;
    let mut held = UnixStream::connect(server).ok();
    let first = held.as_mut()?;
    first.write_all(&[&length[..], &start].concat()).ok()?;
    relay(first, &mut client)?;
    // The connection that was used last comes first, and this one was not used.
    free.lock().unwrap().insert(0, held.take()?);
    loop {
        let (_, bytes) = message(&mut client)?;
        let mut server = held.take().or_else(|| free.lock().unwrap().pop())?;
        server.write_all(&bytes).ok()?;
        // These tests send nothing but simple queries through it: each gets one answer.
        if relay(&mut server, &mut client)? {
            free.lock().unwrap().push(server);
        } else {
            held = Some(server);
        }
    }
}

#[tokio::test]
async fn a_pooler_of_transactions_is_seen() {
    let Some(url) = database() else { return };
    let pooler = Pooler::new(&url);
    assert!(facts(&pooler.url(&url)).await.pools_transactions);
    assert!(!facts(&url).await.pools_transactions);
}
