//! Copies of ended runs between stores: the same bytes, the same hashes, nothing twice.

use std::path::Path;
use std::sync::Arc;

use futures_util::future::{Either, select};
use rusqlite::Connection;
use segue_core::value::Value;
use segue_core::view::RunStatus;
use segue_runtime::store::{
    Collection, CopyReport, JournalStore as _, MemoryStore, Precondition, RunQuery, Store,
    StoreError, StoredItem, ToolStatistics as _, copy,
};
use tempfile::TempDir;

use crate::backings::Backing;
use crate::stores::{begin, entry, finish, noise, plan_named, record, sqlite};

/// More turns than one transaction of Postgres has numbers for.
const LONG: u64 = 1_100;

/// A store with a short run, one with large values, a long one, one that has not ended, and items.
async fn filled(store: &dyn Store) {
    let plan = plan_named("copied");
    let short = begin(store, "run-a", &plan).await;
    finish(store, &short, 1).await;
    let large = begin(store, "run-b", &plan).await;
    let numbers: Vec<Value> = noise(7).take(6_000).map(Value::from).collect();
    for seq in 1..3 {
        let entries = [entry(seq, Value::from(numbers.clone()))];
        store.append(&large, record(seq, &entries, RunStatus::Running)).await.unwrap();
    }
    finish(store, &large, 3).await;
    let long = begin(store, "run-c", &plan_named("long")).await;
    for seq in 1..LONG {
        let entries = [entry(seq, Value::from(seq))];
        store.append(&long, record(seq, &entries, RunStatus::Running)).await.unwrap();
    }
    finish(store, &long, LONG).await;
    begin(store, "run-d", &plan).await;
    for (key, text) in [("t1", "one"), ("t2", "two")] {
        let item = StoredItem { key: key.into(), text: text.into(), version: 1, at_ms: 77 };
        let put = store.key_value().put(Collection::Templates, &item, Precondition::Absent);
        put.await.unwrap();
    }
}

/// The bytes and hashes of a run in a file, in their order.
fn rows(folder: &TempDir, run_id: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    let connection = Connection::open(file(folder)).unwrap();
    let sql = "SELECT bytes, turn.hash FROM turn JOIN run ON run.number = turn.run
        WHERE run_id = ?1 ORDER BY turn.number";
    let mut select = connection.prepare(sql).unwrap();
    let rows = select.query_map([run_id], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.collect::<Result<_, _>>().unwrap()
}

fn file(folder: &TempDir) -> std::path::PathBuf {
    folder.path().join("runs.db")
}

async fn copied(from: &dyn Store, to: &dyn Store) -> CopyReport {
    copy(from, to, |_, _| {}).await.unwrap()
}

fn runs(report: &CopyReport) -> (u64, u64) {
    (report.runs.added, report.runs.present)
}

async fn ids(store: &dyn Store) -> Vec<Arc<str>> {
    let all = RunQuery { limit: 100, ..RunQuery::default() };
    store.runs(&all).await.unwrap().runs.into_iter().map(|row| row.run_id).collect()
}

/// From a file into another store and into a second file: the same bytes and hashes, and the same order.
async fn a_copy_of_a_copy_has_the_same_bytes(between: Backing) {
    let (first, second) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let from = sqlite(&file(&first));
    filled(&from).await;
    let (middle, to) = (between.open(), sqlite(&file(&second)));
    let report = copied(&from, &*middle).await;
    assert_eq!((runs(&report), report.unfinished.as_slice()), ((3, 0), &["run-d".into()][..]));
    assert_eq!(report.items[&Collection::Templates].added, 2);
    assert_eq!((&report.refused, report.tools.added), (&vec![], 2), "{report:?}");
    assert_eq!(runs(&copied(&*middle, &to).await), (3, 0));
    for run_id in ["run-a", "run-b", "run-c"] {
        let run_id: Arc<str> = run_id.into();
        let original = from.export(&run_id).await;
        assert_eq!(original, middle.export(&run_id).await);
        assert_eq!(original, to.export(&run_id).await);
        assert_eq!(rows(&first, &run_id), rows(&second, &run_id));
        let journal = |entries| format!("{entries:?}");
        let read = middle.load(&run_id).await.unwrap();
        assert_eq!(journal(read), journal(from.load(&run_id).await.unwrap()));
    }
    assert!(rows(&first, "run-c").len() > 1_024);
    assert_eq!(ids(&*middle).await, ids(&to).await);
    assert_eq!(&ids(&from).await[1..], ids(&to).await);
    assert_eq!(middle.tool_stats().await.unwrap(), from.tool_stats().await.unwrap());
    let again = copied(&from, &*middle).await;
    assert_eq!((runs(&again), again.tools.added, again.tools.present), ((0, 3), 0, 2));
    assert_eq!(again.items[&Collection::Templates].present, 2);
    // Templates keep their time; a run of the copy can be pruned, with its large values.
    let item = middle.key_value().get(Collection::Templates, &"t1".into()).await.unwrap().unwrap();
    assert_eq!((&*item.text, item.at_ms), ("one", 77));
    assert!(middle.list_damaged().await.unwrap().is_empty());
}

/// What a test reads of a store.
trait Exported {
    async fn export(&self, run_id: &Arc<str>) -> segue_runtime::store::RunCopy;
}

impl<S: Store + ?Sized> Exported for S {
    async fn export(&self, run_id: &Arc<str>) -> segue_runtime::store::RunCopy {
        self.export_run(run_id).await.unwrap().unwrap()
    }
}

/// Readers of changes hear of copied runs, however many turns these have.
async fn copied_runs_are_changes(target: Backing) {
    let folder = TempDir::new().unwrap();
    let from = sqlite(&file(&folder));
    filled(&from).await;
    let to = target.open();
    let before = to.changes(None).await.unwrap().next;
    copied(&from, &*to).await;
    let (mut since, mut seen) = (before, std::collections::BTreeSet::new());
    loop {
        let found = to.changes(Some(since)).await.unwrap();
        assert!(!found.is_gap);
        seen.extend(found.runs.into_iter().map(|change| change.row.run_id));
        since = found.next;
        if !found.has_more {
            break;
        }
    }
    assert_eq!(seen.iter().map(|id| &**id).collect::<Vec<_>>(), ["run-a", "run-b", "run-c"]);
    // A run that begins afterwards is a change behind them.
    let lease = begin(&*to, "run-e", &plan_named("later")).await;
    finish(&*to, &lease, 1).await;
    let later = to.changes(Some(since)).await.unwrap();
    assert_eq!(later.runs.len(), 1, "{later:?}");
}

/// A copy that ends in the middle is repeated: the rest is added, and nothing twice.
async fn an_interrupted_copy_is_repeated(target: Backing) {
    let folder = TempDir::new().unwrap();
    let from = sqlite(&file(&folder));
    filled(&from).await;
    let to = target.open();
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let mut stop = Some(stop);
    let progress = |done, _| {
        if done == 1 {
            let _ = stop.take().map(|stop| stop.send(()));
        }
    };
    {
        let copying = std::pin::pin!(copy(&from, &*to, progress));
        // The copy is dropped where it waits next.
        let Either::Left(_) = select(stopped, copying).await else { panic!("it was not stopped") };
    }
    let report = copied(&from, &*to).await;
    assert_eq!(report.runs.added + report.runs.present, 3, "{report:?}");
    assert!((1..3).contains(&report.runs.present), "{report:?}");
    assert_eq!(ids(&*to).await.len(), 3);
}

/// A change in the first store is found by its hashes, one in the second store by the comparison. Other
/// runs are copied.
async fn a_changed_entry_is_refused(target: Backing) {
    let folder = TempDir::new().unwrap();
    let from = sqlite(&file(&folder));
    filled(&from).await;
    drop(from);
    change(&file(&folder), "run-a");
    let from = sqlite(&file(&folder));
    let to = target.open();
    // The same id, and another content.
    let other = begin(&*to, "run-b", &plan_named("other")).await;
    finish(&*to, &other, 1).await;
    let report = copied(&from, &*to).await;
    assert_eq!(runs(&report), (1, 0), "{report:?}");
    let refused: Vec<(&str, bool)> = report
        .refused
        .iter()
        .map(|error| match error {
            StoreError::Damaged { run_id, what, .. } => (&**run_id, what.contains("two stores")),
            other => panic!("{other}"),
        })
        .collect();
    assert_eq!(refused, [("run-a", false), ("run-b", true)]);
    assert_eq!(to.run(&"run-a".into()).await.unwrap(), None);
}

/// Changes one letter of the last turn of a run.
fn change(file: &Path, run_id: &str) {
    let connection = Connection::open(file).unwrap();
    let sql = "UPDATE turn SET bytes = CAST(replace(CAST(bytes AS TEXT), 'null', 'true') AS BLOB)
        WHERE number = (SELECT last FROM run WHERE run_id = ?1)";
    assert_eq!(connection.execute(sql, [run_id]).unwrap(), 1);
}

for_durable_stores! {
    a_copy_of_a_copy_has_the_same_bytes
    copied_runs_are_changes
    an_interrupted_copy_is_repeated
    a_changed_entry_is_refused
}

/// A store in memory has nothing that would outlast its process.
#[tokio::test]
async fn a_store_in_memory_takes_no_copies() {
    let folder = TempDir::new().unwrap();
    let from = sqlite(&file(&folder));
    filled(&from).await;
    let memory = MemoryStore::default();
    let refused = copy(&from, &memory, |_, _| {}).await.unwrap_err();
    assert!(matches!(refused, StoreError::Broken { .. }), "{refused}");
}
