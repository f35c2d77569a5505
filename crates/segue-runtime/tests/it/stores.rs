//! The contract of stores, part by part: every store passes the same suite.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use segue_core::diagnostic::Code;
use segue_core::id::ToolId;
use segue_core::limits::Limits;
use segue_core::plan::Plan;
use segue_core::run::{Entry, Fact, Failure, NodeId};
use segue_core::source::Source;
use segue_core::value::Value;
use segue_core::view::RunStatus;
use segue_runtime::engine::Engine;
use segue_runtime::store::{
    AppendRecord, Collection, JournalStore as _, KeyValueStore, Lease, Measured, MemoryStore,
    NewRun, Precondition, Retention, RunQuery, SqliteOptions, SqliteStore, Store, StoreError,
    StoredItem, TakeOver,
};

use crate::backings::Backing;

pub(crate) fn plan_named(name: &str) -> Arc<Plan> {
    let text = format!("name: {name}\nsteps: [{{ id: a, set: {{ x: 1 }} }}]");
    let (engine, _) = Engine::builder().build();
    engine.plan(&Source::new("x.yaml", text)).0.unwrap()
}

pub(crate) fn entry(seq: u64, value: Value) -> Entry {
    let node = NodeId { frame: 0, position: 0 };
    let fact = Fact::Succeeded { node, output: value, given: None };
    Entry { seq, at_ms: 1_000 + seq, fact }
}

/// Numbers that do not compress.
pub(crate) fn noise(seed: u64) -> impl Iterator<Item = u64> {
    let next = |state: &u64| Some(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    std::iter::successors(Some(seed), next).skip(4).map(|state| state >> 32)
}

pub(crate) fn record(expected: u64, entries: &[Entry], status: RunStatus) -> AppendRecord<'_> {
    AppendRecord { expected, entries, status, measured: &[], is_part: false }
}

pub(crate) fn sqlite(path: &Path) -> SqliteStore {
    SqliteStore::open(path, SqliteOptions::default()).unwrap()
}

/// A store whose lone runs write on their own thread, however long that takes.
pub(crate) fn sqlite_alone(path: &Path) -> SqliteStore {
    let alone_max = Duration::MAX;
    SqliteStore::open(path, SqliteOptions { alone_max, ..SqliteOptions::default() }).unwrap()
}

/// Begins a run with one entry.
pub(crate) async fn begin(store: &dyn Store, run_id: &str, plan: &Arc<Plan>) -> Lease {
    let entries = [entry(0, Value::from(run_id))];
    let run = NewRun { run_id: &run_id.into(), plan };
    store.create(run, record(0, &entries, RunStatus::Running)).await.unwrap()
}

/// Adds one entry that ends the run.
pub(crate) async fn finish(store: &dyn Store, lease: &Lease, seq: u64) {
    let entries = [entry(seq, Value::Null)];
    store.append(lease, record(seq, &entries, RunStatus::Success)).await.unwrap();
}

fn shown(journal: &[Entry]) -> String {
    format!("{journal:?}")
}

/// Two handles on one store, as two processes would have them.
type Two = (Arc<dyn Store>, Arc<dyn Store>);

/// Tests of the contract, one block for each trait: a new store is a new backing.
macro_rules! contract {
    ($($part:ident)*) => {
        $(
            async fn $part(backing: Backing) {
                parts::$part((backing.open(), backing.open())).await;
            }
        )*
        for_every_store! { $($part)* }
    };
}

contract! {
    // JournalStore
    journals_are_durable
    a_run_has_one_writer
    plans_are_durable
    // RunHistory
    runs_are_listed
    runs_are_found_by_the_beginning_of_their_id
    ended_runs_are_pruned
    changes_are_seen_by_every_handle
    // CommandQueue
    commands_wait_for_the_owner
    // ToolStatistics
    calls_are_counted
    // KeyValueStore
    items_have_versions
    items_are_listed_and_deleted
}

mod parts {
    use super::*;

    pub(super) async fn journals_are_durable((store, other): Two) {
        let plan = plan_named("kept");
        let a: Arc<str> = "a".into();
        assert!(store.load(&a).await.unwrap().is_empty(), "an unknown run has no journal");
        let first = begin(&*store, "a", &plan).await;
        begin(&*store, "b", &plan).await;
        for store in [&store, &other, &store] {
            assert_eq!(store.try_write().await, Ok(()), "it leaves nothing behind");
        }
        let large = Value::from("x".repeat(100_000));
        let wrapped = Value::object([("n", Value::from(u64::MAX)), ("large", large.clone())]);
        let more = [entry(1, large), entry(2, wrapped)];
        store.append(&first, record(1, &more, RunStatus::Waiting)).await.unwrap();
        let expected = shown(&[entry(0, Value::from("a")), more[0].clone(), more[1].clone()]);
        for store in [&store, &other] {
            assert_eq!(
                shown(&store.load(&a).await.unwrap()),
                expected,
                "entries stay as they were"
            );
            assert_eq!(store.load(&"b".into()).await.unwrap().len(), 1, "runs do not mix");
        }
        // J8: a writer that is behind, or ahead, writes nothing.
        for expected in [0, 2, 4] {
            let late = [entry(9, Value::Null)];
            let refused = store.append(&first, record(expected, &late, RunStatus::Running)).await;
            let fenced = StoreError::Fenced { run_id: a.clone(), expected, actual: 3 };
            assert_eq!(refused, Err(fenced));
        }
        let again = NewRun { run_id: &a, plan: &plan };
        let refused = store.create(again, record(0, &more, RunStatus::Running)).await;
        let fenced = StoreError::Fenced { run_id: a.clone(), expected: 0, actual: 3 };
        assert_eq!(refused, Err(fenced), "a run begins once");
        assert_eq!(shown(&store.load(&a).await.unwrap()), expected);
    }

    /// Entries of any handle are changes for all, each run once, in the order of their last entries.
    pub(super) async fn changes_are_seen_by_every_handle((store, other): Two) {
        let plan = plan_named("watched");
        let begun = begin(&*store, "a", &plan).await;
        let start = other.changes(None).await.unwrap();
        assert!(
            start.runs.is_empty() && !start.has_more,
            "without a place only the end: {start:?}"
        );
        let quiet = other.changes(Some(start.next)).await.unwrap();
        assert!(quiet.runs.is_empty() && !quiet.is_gap, "{quiet:?}");
        begin(&*other, "b", &plan).await;
        let one = [entry(1, Value::from(1))];
        store.append(&begun, record(1, &one, RunStatus::Waiting)).await.unwrap();
        for handle in [&store, &other] {
            let seen = handle.changes(Some(start.next)).await.unwrap();
            let told: Vec<_> =
                seen.runs.iter().map(|change| (&*change.row.run_id, change.row.status)).collect();
            assert_eq!(told, [("b", RunStatus::Running), ("a", RunStatus::Waiting)]);
            assert!(seen.runs[0].at < seen.runs[1].at && seen.runs[1].at <= seen.next, "{seen:?}");
            // From the first change on, only the second.
            let rest = handle.changes(Some(seen.runs[0].at)).await.unwrap();
            assert_eq!(rest.runs, seen.runs[1..]);
        }
        let seen = store.changes(Some(start.next)).await.unwrap();
        finish(&*store, &begun, 2).await;
        store.prune(Retention { keep_last: Some(0), ..Retention::default() }).await.unwrap();
        let pruned = other.changes(Some(seen.next)).await.unwrap();
        assert!(pruned.runs.is_empty(), "a deleted run has no changes: {pruned:?}");
        begin(&*store, "c", &plan).await;
        let after = other.changes(Some(pruned.next)).await.unwrap();
        assert_eq!(after.runs.len(), 1, "places are not used again after a deletion: {after:?}");
        let foreign = store.changes(Some(u64::MAX / 2)).await.unwrap();
        assert!(foreign.is_gap && foreign.runs.is_empty(), "{foreign:?}");
    }

    /// J8, J6: at most one process writes a run, and none after its end.
    pub(super) async fn a_run_has_one_writer((store, other): Two) {
        let plan = plan_named("leased");
        let a: Arc<str> = "a".into();
        let first = begin(&*store, "a", &plan).await;
        let owned = other.acquire(&a, TakeOver::IfAbandoned).await;
        assert!(matches!(owned, Err(StoreError::Owned { .. })), "its owner is alive: {owned:?}");

        let second = other.acquire(&a, TakeOver::Force).await.unwrap();
        assert!(second.epoch > first.epoch);
        let one = [entry(1, Value::from(1))];
        let lost = store.append(&first, record(1, &one, RunStatus::Running)).await;
        let expected = StoreError::Lost { run_id: a.clone(), epoch: 1, actual: second.epoch };
        assert_eq!(lost, Err(expected.clone()), "a lost lease writes nothing");
        assert_eq!(store.release(&first).await, Err(expected), "nor releases it");
        other.append(&second, record(1, &one, RunStatus::Running)).await.unwrap();

        other.release(&second).await.unwrap();
        let third = store.acquire(&a, TakeOver::IfAbandoned).await.unwrap();
        finish(&*store, &third, 2).await;
        let after = store.append(&third, record(3, &one, RunStatus::Running)).await;
        assert!(
            matches!(after, Err(StoreError::Lost { .. })),
            "nothing follows the end: {after:?}"
        );
        let ended = StoreError::Ended { run_id: a.clone(), status: RunStatus::Success };
        assert_eq!(other.acquire(&a, TakeOver::Force).await, Err(ended));
        let unknown = StoreError::Unknown { run_id: "unknown".into() };
        assert_eq!(other.acquire(&"unknown".into(), TakeOver::Force).await, Err(unknown));

        // A process may acquire runs of a dead owner.
        begin(&*store, "b", &plan).await;
        assert_eq!(other.is_abandoned(&"b".into()).await, Ok(false));
        drop(store);
        assert_eq!(other.is_abandoned(&"b".into()).await, Ok(true));
        let lease = other.acquire(&"b".into(), TakeOver::IfAbandoned).await.unwrap();
        finish(&*other, &lease, 1).await;
    }

    pub(super) async fn plans_are_durable((store, other): Two) {
        let plan = plan_named("planned");
        begin(&*store, "a", &plan).await;
        let limits = Limits::default();
        let again = other.plan(&"a".into(), &limits).await.unwrap();
        assert_eq!(again.hash(), plan.hash());
        let missing = other.plan(&"b".into(), &limits).await.map(|plan| plan.hash().clone());
        assert_eq!(missing, Err(StoreError::Unknown { run_id: "b".into() }));
    }

    pub(super) async fn runs_are_listed((store, other): Two) {
        let (left, right) = (plan_named("left-one"), plan_named("right-one"));
        for n in 0..7 {
            let lease =
                begin(&*store, &format!("run-{n}"), if n < 3 { &left } else { &right }).await;
            if n % 2 == 0 {
                finish(&*store, &lease, 1).await;
            }
        }
        let found = |query: RunQuery| {
            let store = other.clone();
            async move {
                let page = store.runs(&query).await.unwrap();
                assert_eq!(page.damaged, []);
                let ids: Vec<String> = page.runs.iter().map(|run| run.run_id.to_string()).collect();
                (ids.join(" "), page.next)
            }
        };
        let all = RunQuery { limit: 100, ..RunQuery::default() };
        let (ids, next) = found(all.clone()).await;
        assert_eq!(ids, "run-6 run-5 run-4 run-3 run-2 run-1 run-0");
        assert_eq!(next, None);
        let (ids, next) = found(RunQuery { limit: 3, ..all.clone() }).await;
        assert_eq!(ids, "run-6 run-5 run-4");
        let (ids, next) = found(RunQuery { limit: 3, after: next, ..all.clone() }).await;
        assert_eq!(ids, "run-3 run-2 run-1");
        assert_eq!(found(RunQuery { limit: 3, after: next, ..all.clone() }).await.0, "run-0");
        let name = Some("left".into());
        assert_eq!(found(RunQuery { name, ..all.clone() }).await.0, "run-2 run-1 run-0");
        let statuses = vec![RunStatus::Running];
        assert_eq!(found(RunQuery { statuses, ..all.clone() }).await.0, "run-5 run-3 run-1");
        assert_eq!(found(RunQuery { since_ms: Some(1_001), ..all.clone() }).await.0, "");
        assert_eq!(found(RunQuery { before_ms: Some(1_000), ..all }).await.0, "");

        let open = other.unfinished().await.unwrap();
        let ids: Vec<&str> = open.runs.iter().map(|run| &*run.run_id).collect();
        assert_eq!(ids, ["run-5", "run-3", "run-1"]);
        let run = other.run(&"run-4".into()).await.unwrap().unwrap();
        assert_eq!((run.length, run.status, run.ended_ms), (2, RunStatus::Success, Some(1_001)));
        assert_eq!((&*run.name, run.started_ms, run.owner), ("right-one", 1_000, None));
        assert_eq!(&run.plan_hash, right.hash());
        assert_eq!(other.run(&"unknown".into()).await.unwrap(), None);
    }

    pub(super) async fn runs_are_found_by_the_beginning_of_their_id((store, other): Two) {
        let plan = plan_named("c");
        for id in ["0199-b", "0199-a", "01a0-a", "0199%", "z"] {
            let lease = begin(&*store, id, &plan).await;
            finish(&*store, &lease, 1).await;
        }
        for (prefix, limit, expected) in [
            ("0199-", 9, "0199-a 0199-b"),
            ("0199-", 1, "0199-a"),
            ("0199-a", 9, "0199-a"),
            // No character of an id is a pattern.
            ("0199%", 9, "0199%"),
            ("_", 9, ""),
            ("0199-ab", 9, ""),
            ("01", 9, "0199%  0199-a 0199-b 01a0-a"),
        ] {
            let found = other.runs_with_prefix(prefix, limit).await.unwrap();
            let ids: Vec<&str> = found.iter().map(|run| &*run.run_id).collect();
            assert_eq!(ids, expected.split_whitespace().collect::<Vec<_>>(), "{prefix}");
        }
    }

    pub(super) async fn ended_runs_are_pruned((store, other): Two) {
        let plan = plan_named("forgotten");
        for n in 0..250 {
            let lease = begin(&*store, &format!("run-{n}"), &plan).await;
            if n != 1 {
                finish(&*store, &lease, 1).await;
            }
        }
        assert_eq!(other.prune(Retention::default()).await, Ok(0));
        let all = RunQuery { limit: 1_000, ..RunQuery::default() };
        let keep = Retention { keep_last: Some(10), ..Retention::default() };
        assert_eq!(other.prune(keep).await, Ok(239));
        let kept = store.runs(&all).await.unwrap().runs;
        assert_eq!(kept.len(), 11, "ten, and the unfinished one");
        assert!(store.load(&"run-0".into()).await.unwrap().is_empty());
        assert_eq!(store.load(&"run-1".into()).await.unwrap().len(), 1);
        assert_eq!(store.load(&"run-249".into()).await.unwrap().len(), 2);
        let old = |before| Retention { ended_before_ms: Some(before), ..Retention::default() };
        assert_eq!(other.prune(old(1_001)).await, Ok(0));
        assert_eq!(other.prune(old(1_002)).await, Ok(10));
        let plan = store.plan(&"run-1".into(), &Limits::default()).await.unwrap();
        assert_eq!(&*plan.composition.name, "forgotten");
    }

    pub(super) async fn commands_wait_for_the_owner((store, other): Two) {
        let plan = plan_named("commanded");
        let lease = begin(&*store, "run-1", &plan).await;
        begin(&*store, "run-2", &plan).await;
        let first = other.send_command(&"run-1".into(), &"end".into()).await.unwrap();
        let second = other.send_command(&"run-2".into(), &"go".into()).await.unwrap();
        let pending = store.pending_commands().await.unwrap();
        let texts: Vec<_> =
            pending.iter().map(|one| (one.number, &*one.run_id, &*one.text)).collect();
        assert_eq!(texts, [(first, "run-1", "end"), (second, "run-2", "go")]);
        store.remove_command(first).await.unwrap();
        store.remove_command(first).await.unwrap();
        assert_eq!(other.pending_commands().await.unwrap(), pending[1..]);
        // No number is given twice: a sender waits until the number of its command is gone.
        store.remove_command(second).await.unwrap();
        let third = other.send_command(&"run-2".into(), &"go".into()).await.unwrap();
        assert!(third > second);
        finish(&*store, &lease, 1).await;
        let late = other.send_command(&"run-1".into(), &"end".into()).await;
        let ended = StoreError::Ended { run_id: "run-1".into(), status: RunStatus::Success };
        assert_eq!(late, Err(ended));
        let unknown = other.send_command(&"run-3".into(), &"end".into()).await;
        assert_eq!(unknown, Err(StoreError::Unknown { run_id: "run-3".into() }));
    }

    fn item(key: &str, text: &str, at_ms: u64) -> StoredItem {
        StoredItem { key: key.into(), text: text.into(), version: 0, at_ms }
    }

    fn keys(items: &[StoredItem]) -> Vec<&str> {
        items.iter().map(|item| &*item.key).collect()
    }

    pub(super) async fn items_have_versions((store, other): Two) {
        let (store, other) = (store.key_value(), other.key_value());
        let a: Arc<str> = "a".into();
        assert_eq!(store.get(Collection::Plans, &a).await, Ok(None));
        let put = async |store: &dyn KeyValueStore, item: &StoredItem, expect| {
            store.put(Collection::Plans, item, expect).await
        };
        let changed = |version| Err(StoreError::Changed { key: "a".into(), version });
        let first = item("a", "one", 10);
        assert_eq!(put(store, &first, Precondition::Version(1)).await, changed(None));
        assert_eq!(put(store, &first, Precondition::Absent).await, Ok(1));
        assert_eq!(put(other, &first, Precondition::Absent).await, changed(Some(1)), "only once");
        let second = item("a", "two", 20);
        assert_eq!(put(other, &second, Precondition::Version(1)).await, Ok(2));
        assert_eq!(
            put(store, &second, Precondition::Version(1)).await,
            changed(Some(2)),
            "one wins"
        );
        assert_eq!(put(store, &second, Precondition::Anything).await, Ok(3));
        let is = StoredItem { version: 3, ..second };
        assert_eq!(other.get(Collection::Plans, &a).await, Ok(Some(is.clone())));
        assert_eq!(other.get(Collection::Templates, &a).await, Ok(None), "no mixing");
    }

    pub(super) async fn items_are_listed_and_deleted((store, other): Two) {
        let (store, other) = (store.key_value(), other.key_value());
        for (key, at_ms) in [("a", 20), ("c", 30), ("b", 30)] {
            let item = item(key, "x", at_ms);
            store.put(Collection::Plans, &item, Precondition::Anything).await.unwrap();
        }
        store.put(Collection::Requests, &item("d", "x", 5), Precondition::Anything).await.unwrap();
        let page = store.list(Collection::Plans, None, 2).await.unwrap();
        assert_eq!(keys(&page.items), ["a", "c"], "in the order of the first writes");
        let rest = store.list(Collection::Plans, page.next, 2).await.unwrap();
        assert_eq!((keys(&rest.items), rest.next), (vec!["b"], None));
        assert_eq!(store.delete_before(Collection::Plans, 30).await, Ok(1), "only older ones");
        assert_eq!(other.delete(Collection::Plans, &"b".into()).await, Ok(true));
        assert_eq!(other.delete(Collection::Plans, &"b".into()).await, Ok(false));
        assert_eq!(keys(&store.list(Collection::Plans, None, 9).await.unwrap().items), ["c"]);
        assert_eq!(keys(&store.list(Collection::Requests, None, 9).await.unwrap().items), ["d"]);
    }

    pub(super) async fn calls_are_counted((store, _other): Two) {
        let call = |name: &str, millis, result| Measured {
            tool: ToolId::new("x", name),
            took: Duration::from_millis(millis),
            result,
            has_schema: true,
        };
        let measured = [
            call("good", 10, Ok(Value::from("ten bytes!"))),
            call("good", 20, Ok(Value::Null)),
            call("bad", 1, Err(Code::Timeout)),
        ];
        let lease = begin(&*store, "a", &plan_named("counted")).await;
        let entries = [entry(1, Value::Null)];
        let record =
            AppendRecord { measured: &measured, ..record(1, &entries, RunStatus::Running) };
        store.append(&lease, record).await.unwrap();
        finish(&*store, &lease, 2).await;
        let lease = begin(&*store, "b", &plan_named("counted")).await;
        let failure = Some(Arc::new(Failure::permanent(Code::Timeout, "it took too long")));
        let fact = Fact::Finished { status: RunStatus::Failed, output: Value::Null, failure };
        let entries = [Entry { seq: 1, at_ms: 2, fact }];
        store.append(&lease, self::record(1, &entries, RunStatus::Failed)).await.unwrap();
        let tools = store.tool_stats().await.unwrap();
        let ids: Vec<&str> = tools.iter().map(|tool| tool.tool.as_str()).collect();
        assert_eq!(ids, ["composition:counted", "x:bad", "x:good"]);
        let [composition, bad, good] = &tools[..] else { panic!("{tools:?}") };
        assert_eq!((composition.calls, bad.calls, good.calls), (2, 1, 2));
        let failed = [(Code::Timeout, 1)];
        assert!(composition.errors.iter().eq(failed.iter().map(|(code, count)| (code, count))));
        assert_eq!(bad.errors.get(&Code::Timeout), Some(&1));
        assert!(good.errors.is_empty() && good.output_bytes.count() == 2);
        let slowest = good.took_us.quantile(1.0).unwrap();
        assert!((20_000..22_500).contains(&slowest), "{slowest}");
    }
}

#[tokio::test]
async fn the_memory_store_forgets_the_oldest_runs() {
    let store = MemoryStore::default();
    let plan = plan_named("memory");
    for n in 0..1_001 {
        let lease = begin(&store, &format!("run-{n}"), &plan).await;
        finish(&store, &lease, 1).await;
    }
    assert!(store.load(&"run-0".into()).await.unwrap().is_empty());
    assert_eq!(store.load(&"run-1".into()).await.unwrap().len(), 2);
}
