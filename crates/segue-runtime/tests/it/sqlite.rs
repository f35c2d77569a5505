//! What the SQLite store promises beyond the contract of every store.

use std::fs;
use std::path::Path;

use segue_core::run::Entry;
use segue_core::value::Value;
use segue_core::view::RunStatus;
use segue_runtime::store::{
    JournalStore as _, Lease, Retention, RunHistory as _, RunQuery, SqliteStore, StoreError,
    TakeOver,
};
use tempfile::TempDir;

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
