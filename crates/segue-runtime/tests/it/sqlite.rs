//! What the SQLite store promises beyond the contract of every store.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use segue_core::run::{Entry, Fact, NodeId};
use segue_core::value::Value;
use segue_core::view::RunStatus;
use segue_runtime::store::{
    JournalStore as _, Lease, Retention, RunHistory as _, RunQuery, SqliteOptions, SqliteStore,
    Store as _, StoreError, TakeOver,
};
use tempfile::TempDir;

use crate::damage::copy_killed;
use crate::stores::{begin, entry, finish, noise, plan_named, record, sqlite};

fn facts(journal: &[Entry]) -> Vec<String> {
    journal.iter().map(|entry| format!("{:?}", entry.fact)).collect()
}

fn value(seq: u64) -> Value {
    let numbers = noise(seq).take(50).map(|number| Value::from(number % 1_000));
    if seq == 0 { Value::from("a") } else { numbers.collect::<Vec<Value>>().into() }
}

fn expected(count: u64) -> Vec<String> {
    (0..count).map(|seq| format!("{:?}", entry(seq, value(seq)).fact)).collect()
}

async fn add(store: &SqliteStore, lease: &Lease, seq: u64) -> Result<(), StoreError> {
    let entries = [entry(seq, value(seq))];
    store.append(lease, record(seq, &entries, RunStatus::Running)).await
}

fn has(page: &[u8], text: &str) -> bool {
    page.windows(text.len()).any(|window| window == text.as_bytes())
}

/// J8: a process that takes a run over while its owner writes finds every acknowledged entry, and goes on
/// behind them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_run_is_taken_whole() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("runs.db");
    let other = sqlite(&path);
    let plan = plan_named("busy");
    for round in 0..40 {
        let store = Arc::new(sqlite(&path));
        let lease = begin(&*store, &format!("run-{round}"), &plan).await;
        let (writes, theirs) = (store.clone(), lease.clone());
        let owner = tokio::spawn(async move {
            let mut acknowledged = 1;
            while add(&writes, &theirs, acknowledged).await.is_ok() {
                acknowledged += 1;
            }
            acknowledged
        });
        while store.figures().syncs < 5 + round {
            tokio::task::yield_now().await;
        }
        let taken = other.acquire(&lease.run_id, TakeOver::Force).await.unwrap();
        let acknowledged = owner.await.unwrap();
        let length = other.load(&lease.run_id).await.unwrap().len() as u64;
        assert!(length >= acknowledged, "{length} of {acknowledged} in round {round}");
        add(&other, &taken, length).await.unwrap();
        finish(&other, &taken, length + 1).await;
    }
    assert_eq!(other.list_damaged().await.unwrap(), []);
}

/// Runs begin, go on and end undisturbed while another process prunes all the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pruning_disturbs_no_run() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("runs.db");
    let other = sqlite(&path);
    let plan = plan_named("busy");
    let few = Retention { keep_last: Some(3), ..Retention::default() };
    for round in 0..30 {
        let (store, plan) = (sqlite(&path), plan.clone());
        let owner = tokio::spawn(async move {
            for run in 0..20 {
                let lease = begin(&store, &format!("run-{round}-{run}"), &plan).await;
                add(&store, &lease, 1).await.unwrap();
                finish(&store, &lease, 2).await;
            }
        });
        while !owner.is_finished() {
            other.prune(few).await.unwrap();
        }
        owner.await.unwrap();
    }
    assert_eq!(other.list_damaged().await.unwrap(), []);
    other.prune(few).await.unwrap();
    let left = other.runs(&RunQuery { limit: 9, ..RunQuery::default() }).await.unwrap().runs;
    assert_eq!(left.len(), 3, "and no run comes back");
}

/// D2: only its user may read a new store; an existing file keeps its permissions.
#[cfg(unix)]
#[tokio::test]
async fn a_store_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt as _;

    let rights = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let folder = TempDir::new().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let inner = folder.path().join("a/b");
    let store = sqlite(&inner.join("runs.db"));
    let lease = begin(&store, "a", &plan_named("kept")).await;
    finish(&store, &lease, 1).await;
    finish(&store, &begin(&store, "b", &plan_named("kept")).await, 1).await;
    for name in ["runs.db", "runs.db-wal", "runs.db-shm"] {
        assert_eq!(rights(&inner.join(name)), 0o600, "{name}");
    }
    for name in ["..", ".", "runs.db-owners"] {
        assert_eq!(rights(&inner.join(name)), 0o700, "{name}");
    }
    assert_eq!(rights(folder.path()), 0o755);
    let shared = folder.path().join("shared.db");
    fs::write(&shared, "").unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o640)).unwrap();
    begin(&sqlite(&shared), "a", &plan_named("shared")).await;
    assert_eq!(rights(&shared), 0o640);
    assert_eq!(rights(&folder.path().join("shared.db-owners")) & 0o707, 0o700);
}

/// D2: no file holds anything of a deleted run.
#[tokio::test]
async fn a_deleted_run_is_in_no_file() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("runs.db");
    let plan = plan_named("forgotten");
    let store = sqlite(&path);
    let lease = begin(&store, "a", &plan).await;
    for seq in 1..30 {
        let entries = [entry(seq, Value::from(format!("canary-{seq}-{}", "x".repeat(500))))];
        store.append(&lease, record(seq, &entries, RunStatus::Running)).await.unwrap();
    }
    finish(&store, &lease, 30).await;
    begin(&store, "kept", &plan).await;
    let all = Retention { keep_last: Some(0), ..Retention::default() };
    assert_eq!(store.prune(all).await, Ok(1));
    for name in ["runs.db", "runs.db-wal"] {
        let bytes = fs::read(folder.path().join(name)).unwrap();
        assert!(!bytes.windows(7).any(|window| window == b"canary-"), "{name}");
    }
    assert_eq!(store.load(&"kept".into()).await.unwrap().len(), 1);
}

/// J5: damaged runs are named and deleted, and no others.
#[tokio::test]
async fn damaged_runs_can_be_deleted() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("runs.db");
    let store = sqlite(&path);
    let plan = plan_named("damaged");
    for name in ["whole", "cut", "changed", "over"] {
        let lease = begin(&store, name, &plan).await;
        add(&store, &lease, 1).await.unwrap();
        if name == "over" {
            finish(&store, &lease, 2).await;
        }
    }
    assert_eq!(store.list_damaged().await.unwrap(), []);
    drop(store);
    let raw = rusqlite::Connection::open(&path).unwrap();
    let number = "(SELECT number FROM run WHERE run_id = ?1)";
    let cut = format!(
        "DELETE FROM turn WHERE number = (SELECT min(number) FROM turn WHERE run = {number})"
    );
    raw.execute(&cut, ["cut"]).unwrap();
    raw.execute("UPDATE run SET epoch = 9 WHERE run_id = ?1", ["changed"]).unwrap();
    drop(raw);
    let store = sqlite(&path);
    let named = |error: &StoreError| match error {
        StoreError::Damaged { run_id, .. } => run_id.to_string(),
        other => panic!("{other}"),
    };
    let damaged = store.list_damaged().await.unwrap();
    assert_eq!(damaged.iter().map(named).collect::<Vec<_>>(), ["changed", "cut"]);
    assert_eq!(store.delete_damaged().await, Ok(2));
    assert_eq!(store.list_damaged().await.unwrap(), []);
    let listed = store.runs(&RunQuery { limit: 9, ..RunQuery::default() }).await.unwrap();
    assert_eq!((listed.runs.len(), listed.damaged.len()), (2, 0));
    assert_eq!(store.load(&"whole".into()).await.unwrap().len(), 2);
}

/// J5: a run that only an index lost is named, and is whole again after damaged runs are deleted.
#[tokio::test]
async fn a_run_that_an_index_lost_is_found_again() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("runs.db");
    let store = sqlite(&path);
    let plan = plan_named("lost");
    for name in ["one-of-several", "another-one-of-them"] {
        let lease = begin(&store, name, &plan).await;
        add(&store, &lease, 1).await.unwrap();
        finish(&store, &lease, 2).await;
    }
    drop(store);
    let raw = rusqlite::Connection::open(&path).unwrap();
    raw.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    drop(raw);
    let mut file = fs::read(&path).unwrap();
    let is_index = |page: &&mut [u8]| page[0] == 0x0a && has(page, "one-of-several");
    let page = file.chunks_exact_mut(4_096).find(is_index).unwrap();
    let place = page.windows(14).position(|window| window == b"one-of-several").unwrap();
    page[place] ^= 2;
    fs::write(&path, file).unwrap();
    let store = sqlite(&path);
    assert_eq!(store.list_damaged().await.unwrap().len(), 1);
    assert!(store.load(&"one-of-several".into()).await.is_err());
    assert_eq!(store.delete_damaged().await, Ok(0));
    assert_eq!(store.list_damaged().await.unwrap(), []);
    assert_eq!(store.load(&"one-of-several".into()).await.unwrap().len(), 3);
    let all = Retention { keep_last: Some(0), ..Retention::default() };
    assert_eq!(store.prune(all).await, Ok(2), "and can be pruned like any other");
}

/// A link leads to the same store and its other files.
#[cfg(unix)]
#[tokio::test]
async fn a_link_leads_to_the_same_store() {
    let (folder, elsewhere) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let link = elsewhere.path().join("link.db");
    let store = sqlite(&folder.path().join("runs.db"));
    let lease = begin(&store, "a", &plan_named("kept")).await;
    for seq in 1..5 {
        add(&store, &lease, seq).await.unwrap();
    }
    std::os::unix::fs::symlink(folder.path().join("runs.db"), &link).unwrap();
    let other = sqlite(&link);
    assert_eq!(facts(&other.load(&lease.run_id).await.unwrap()), expected(5));
    let owned = other.acquire(&lease.run_id, TakeOver::IfAbandoned).await;
    assert!(matches!(owned, Err(StoreError::Owned { .. })), "{owned:?}");
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 1);
    drop(store);
}

/// Several processes that create a store at the same moment all open it.
#[test]
fn many_create_a_store_at_once() {
    const AT_ONCE: usize = 8;
    for round in 0..10 {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("new/runs.db");
        let together = std::sync::Barrier::new(AT_ONCE);
        let plan = plan_named("new");
        std::thread::scope(|scope| {
            for n in 0..AT_ONCE {
                let (path, together, plan) = (&path, &together, &plan);
                scope.spawn(move || {
                    together.wait();
                    let store = SqliteStore::open(path, SqliteOptions::default())
                        .unwrap_or_else(|error| panic!("{n} in round {round}: {error}"));
                    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                    runtime.block_on(async {
                        let lease = begin(&store, &format!("run-{n}"), plan).await;
                        finish(&store, &lease, 1).await;
                    });
                });
            }
        });
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let query = RunQuery { limit: 99, ..RunQuery::default() };
        let listed = runtime.block_on(sqlite(&path).runs(&query)).unwrap();
        assert_eq!((listed.runs.len(), listed.damaged.len()), (AT_ONCE, 0));
    }
}

/// How a process ends while it drives a run.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Leaves {
    /// It dies after it repeated a call.
    Dies,
    /// It dies after it looked for a call, did not find it, and repeated it.
    DiesSeeking,
    /// It dies after progress.
    DiesLater,
    /// It dies while the run waits for a person.
    DiesWaiting,
    /// It ends regularly.
    Ends,
}

impl Leaves {
    /// The facts that the process writes, one turn each.
    fn facts(self) -> Vec<Fact> {
        let node = NodeId { frame: 0, position: 0 };
        let called = || Fact::Called { node, candidate: 0, args: Value::Null };
        match self {
            Leaves::Dies | Leaves::Ends => vec![called()],
            Leaves::DiesSeeking => {
                let followed = Fact::HandleReceived { node, handle: Value::from("task") };
                vec![Fact::ResumeSent { node }, Fact::Lost { node }, called(), followed]
            }
            Leaves::DiesLater => vec![called(), entry(0, Value::Null).fact],
            Leaves::DiesWaiting => vec![Fact::Asked { node, candidate: 0, args: Value::Null }],
        }
    }
}

/// The store after a process drove run `a` and ended so, in another folder if it died.
async fn left(from: TempDir, leaves: Leaves) -> TempDir {
    let path = from.path().join("runs.db");
    let store = sqlite(&path);
    let lease = match store.run(&"a".into()).await.unwrap() {
        None => begin(&store, "a", &plan_named("poison")).await,
        Some(_) => store.acquire(&"a".into(), TakeOver::Recover).await.unwrap(),
    };
    let length = store.run(&"a".into()).await.unwrap().unwrap().length;
    for (seq, fact) in (length..).zip(leaves.facts()) {
        let waits = leaves == Leaves::DiesWaiting;
        let status = if waits { RunStatus::Waiting } else { RunStatus::Running };
        let entries = [Entry { seq, at_ms: 1_000 + seq, fact }];
        store.append(&lease, record(seq, &entries, status)).await.unwrap();
    }
    if leaves == Leaves::Ends {
        drop(store);
        return from;
    }
    let killed = TempDir::new().unwrap();
    copy_killed(from.path(), killed.path());
    killed
}

/// A run with which two processes in a row died is set aside: it is named, goes on when a person resumes it,
/// and is recovered again after that.
#[tokio::test]
async fn a_run_that_kills_is_set_aside() {
    use Leaves::{Dies, DiesLater, DiesSeeking, DiesWaiting, Ends};
    let a: Arc<str> = "a".into();
    for (history, is_aside) in [
        (vec![Dies], false),
        (vec![Dies, Dies], true),
        (vec![DiesLater, Dies], true),
        (vec![Dies, DiesLater], false),
        (vec![Dies, DiesLater, DiesLater, DiesLater, Dies], true),
        (vec![Ends, Ends, Ends, Ends], false),
        (vec![Dies, Ends, Dies], false),
        (vec![DiesWaiting], false),
        (vec![DiesWaiting, DiesWaiting], true),
        (vec![DiesWaiting, Ends, DiesWaiting], false),
        (vec![Dies, DiesSeeking], true),
        (vec![DiesSeeking, DiesLater], false),
    ] {
        let mut folder = TempDir::new().unwrap();
        for leaves in &history {
            folder = left(folder, *leaves).await;
        }
        let store = sqlite(&folder.path().join("runs.db"));
        let taken = store.acquire(&a, TakeOver::Recover).await;
        if !is_aside {
            assert!(taken.is_ok(), "{history:?}: {taken:?}");
            continue;
        }
        for taken in [taken, store.acquire(&a, TakeOver::Recover).await] {
            assert!(matches!(taken, Err(StoreError::SetAside { .. })), "{history:?}: {taken:?}");
        }
        let found = store.unfinished().await.unwrap();
        assert_eq!(found.damaged, []);
        assert!(found.runs[0].set_aside.is_some() && found.runs[0].owner.is_none());
        drop(store);
        let store = sqlite(&folder.path().join("runs.db"));
        let lease = store.acquire(&a, TakeOver::IfAbandoned).await.unwrap();
        assert_eq!(store.run(&a).await.unwrap().unwrap().set_aside, None, "{history:?}");
        store.release(&lease).await.unwrap();
        store.acquire(&a, TakeOver::Recover).await.unwrap();
    }
}
