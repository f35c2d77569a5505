//! What the Postgres store promises beyond the contract of every store: leases, silence, lost answers.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use segue_core::id::ToolId;
use segue_core::run::Fact;
use segue_core::schema::Schema;
use segue_core::source::Source;
use segue_core::tool::{Annotations, ToolSpec};
use segue_core::value::Value;
use segue_core::view::RunStatus;
use segue_runtime::engine::{Engine, RunRequest};
use segue_runtime::store::{
    JournalStore as _, Lease, NewRun, PostgresOptions, PostgresStore, PostgresUrl, RunHistory as _,
    Store as _, StoreError, TakeOver,
};
use segue_runtime::tools::{Tool, ToolError, ToolRequest, ToolRunner};

use crate::postgres_proxy::{Line, Proxy};
use crate::postgres_server::{database, run_sql};
use crate::stores::{begin, entry, finish, plan_named, record};

pub(crate) const LEASE: Duration = Duration::from_millis(1_500);

pub(crate) fn open(url: &str) -> PostgresStore {
    let options = PostgresOptions { lease: LEASE, ..PostgresOptions::default() };
    PostgresStore::open(&PostgresUrl::parse(url).unwrap(), options).unwrap()
}

/// A store behind a proxy, and one with a line of its own.
fn two() -> Option<(Proxy, PostgresStore, PostgresStore)> {
    let url = database()?;
    let proxy = Proxy::new(&url);
    let store = open(&proxy.url(&url));
    Some((proxy, store, open(&url)))
}

/// Polls until `is_so`, for so long that a busy machine gets there.
pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !is_so().await {
        assert!(Instant::now() < end, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) async fn add(store: &PostgresStore, lease: &Lease, seq: u64) -> Result<(), StoreError> {
    let entries = [entry(seq, Value::from(seq))];
    store.append(lease, record(seq, &entries, RunStatus::Running)).await
}

/// J8: an owner that the database does not hear of knows that its lease ended before another process can
/// take its runs, and writes and calls nothing afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_owner_loses_its_runs_after_it_knows() {
    let Some((proxy, silent, other)) = two() else { return };
    let plan = plan_named("silent");
    let lease = begin(&silent, "a", &plan).await;
    assert!(silent.is_held(&lease));
    let owned = other.acquire(&lease.run_id, TakeOver::IfAbandoned).await;
    assert!(matches!(owned, Err(StoreError::Owned { .. })), "{owned:?}");
    proxy.set(Line::Silent);
    let began = Instant::now();
    let mut taken = None;
    until("the lease does not end", async || {
        let held_before = silent.is_held(&lease);
        match other.acquire(&lease.run_id, TakeOver::IfAbandoned).await {
            Ok(lease) => taken = Some((held_before, lease)),
            Err(StoreError::Owned { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        taken.is_some()
    })
    .await;
    let took = began.elapsed();
    let (_, taken) = taken.unwrap();
    assert!(!silent.is_held(&lease), "two processes may call now");
    assert!(took < LEASE + Duration::from_secs(1), "taken over after {took:?}");
    add(&other, &taken, 1).await.unwrap();
    proxy.set(Line::Open);
    let lost = StoreError::Lost { run_id: "a".into(), epoch: lease.epoch, actual: taken.epoch };
    until("the owner hears of it", async || silent.hold(&lease).await == Err(lost.clone())).await;
    until("it can write again", async || add(&silent, &lease, 1).await == Err(lost.clone())).await;
    assert!(!silent.is_held(&lease));
    finish(&other, &taken, 2).await;
    // It owns other runs under its new name.
    let next = begin(&silent, "b", &plan).await;
    assert!(silent.is_held(&next));
    finish(&silent, &next, 1).await;
}

/// A call of step `a` after which the owner hears nothing, until another process has its run.
struct Silencing {
    proxy: Arc<Proxy>,
    other: Arc<PostgresStore>,
    calls: Mutex<Vec<String>>,
}

#[async_trait]
impl ToolRunner for Silencing {
    async fn call(&self, call: ToolRequest) -> Result<Value, ToolError> {
        self.calls.lock().unwrap().push(call.step.to_string());
        let (proxy, other, run_id) = (self.proxy.clone(), self.other.clone(), call.run_id.clone());
        if &*call.step == "a" {
            proxy.set(Line::HoldsAnswers);
            tokio::spawn(async move {
                let end = Instant::now() + Duration::from_secs(30);
                loop {
                    let length = other.run(&run_id).await.unwrap().unwrap().length;
                    let taken = other.acquire(&run_id, TakeOver::IfAbandoned).await;
                    // The owner's turn with the next call is there, and not acknowledged.
                    assert!(taken.is_err() || length > 2, "{taken:?}");
                    if taken.is_ok() || Instant::now() > end {
                        break;
                    }
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                proxy.set(Line::Open);
            });
        }
        Ok(call.args)
    }
}

/// E2, J8: the acknowledgement of a turn arrives after the lease has ended, when another process has the run
/// already. The call that the turn announces does not leave; the next owner finds it in doubt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_is_withheld_after_the_lease() {
    let Some((proxy, store, other)) = two() else { return };
    let (proxy, other) = (Arc::new(proxy), Arc::new(other));
    let work = Arc::new(Silencing { proxy, other: other.clone(), calls: Mutex::default() });
    let mut spec = ToolSpec::new(ToolId::new("test", "work"), "works", Schema::any_object());
    spec.annotations = Annotations { destructive: Some(false), ..Annotations::default() };
    let tool = Tool { spec: Arc::new(spec), runner: work.clone() };
    let (engine, _) = Engine::builder().tools([tool]).store(Arc::new(store)).build();
    let text = "name: two\nsteps:\n  - { id: a, tool: 'test:work' }\n  \
                - { id: b, tool: 'test:work', depends_on: a }\n";
    let (plan, findings) = engine.plan(&Source::new("two.yaml", text));
    let plan = plan.unwrap_or_else(|| panic!("{findings:?}"));
    let run_id: Arc<str> = "two".into();
    let request = RunRequest::new(plan, Value::empty_object());
    let outcome = engine.run(RunRequest { run_id: Some(run_id.clone()), ..request }).await;
    assert!(outcome.is_err(), "{outcome:?}");
    assert_eq!(*work.calls.lock().unwrap(), ["a"], "the call of `b` left after the lease");
    let journal = other.load(&run_id).await.unwrap();
    let called = journal.iter().filter(|entry| matches!(entry.fact, Fact::Called { .. })).count();
    assert_eq!(called, 2, "the journal announces it");
}

/// An outage that is longer than the lease costs no run, as long as no other process took it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_keeps_what_nobody_took() {
    let Some((proxy, store, other)) = two() else { return };
    let lease = begin(&store, "a", &plan_named("silent")).await;
    proxy.set(Line::Silent);
    until("the lease ends", async || other.is_abandoned(&lease.run_id).await.unwrap()).await;
    assert!(!store.is_held(&lease), "no call leaves while nobody knows");
    proxy.set(Line::Open);
    until("it has its run again", async || store.hold(&lease).await.is_ok()).await;
    assert!(store.is_held(&lease));
    let owned = other.acquire(&lease.run_id, TakeOver::IfAbandoned).await;
    assert!(matches!(owned, Err(StoreError::Owned { .. })), "{owned:?}");
    until("it can write again", async || match add(&store, &lease, 1).await {
        Ok(()) => true,
        Err(StoreError::Unavailable { .. }) => false,
        Err(error) => panic!("{error}"),
    })
    .await;
    finish(&store, &lease, 2).await;
    assert_eq!(other.load(&lease.run_id).await.unwrap().len(), 3);
}

/// J2: a turn whose answer was lost is written once, however often the run tries again; also the last one,
/// after which the run has no owner.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_is_settled_by_looking() {
    let Some((proxy, store, other)) = two() else { return };
    let lease = begin(&store, "a", &plan_named("lost")).await;
    for seq in 1..8 {
        let ends = seq == 7;
        let entries = [entry(seq, Value::from(seq))];
        let status = if ends { RunStatus::Success } else { RunStatus::Running };
        if seq % 2 == 0 {
            // So that the next connection has the statement, and only its answer is missing.
            store.append(&lease, record(seq, &entries, status)).await.unwrap();
            continue;
        }
        proxy.set(Line::LosesAnswers);
        let lost = store.append(&lease, record(seq, &entries, status)).await;
        assert!(matches!(lost, Err(StoreError::Unavailable { .. })), "{lost:?}");
        // The database may not have executed it yet.
        until("the turn arrives", async || {
            other.load(&lease.run_id).await.unwrap().len() as u64 == seq + 1
        })
        .await;
        proxy.set(Line::Open);
        until("it is settled", async || {
            match store.append(&lease, record(seq, &entries, status)).await {
                Ok(()) => true,
                Err(StoreError::Unavailable { .. }) => false,
                Err(error) => panic!("turn {seq}: {error}"),
            }
        })
        .await;
    }
    let journal = other.load(&lease.run_id).await.unwrap();
    assert!(journal.iter().map(|entry| entry.seq).eq(0..8), "each turn once");
    let row = other.run(&lease.run_id).await.unwrap().unwrap();
    assert_eq!((row.status, row.owner), (RunStatus::Success, None));
}

/// A run that began without an answer has no driver: its living owner gives it back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_may_have_begun_is_given_back() {
    let Some((proxy, store, other)) = two() else { return };
    let plan = plan_named("begun");
    // It is an owner already.
    let first = begin(&store, "first", &plan).await;
    proxy.set(Line::LosesAnswers);
    let entries = [entry(0, Value::Null)];
    let run = NewRun { run_id: &"a".into(), plan: &plan };
    let lost = store.create(run, record(0, &entries, RunStatus::Running)).await;
    assert!(matches!(lost, Err(StoreError::Unavailable { .. })), "{lost:?}");
    proxy.set(Line::Open);
    until("it is given back, or never began", async || {
        let row = other.run(&"a".into()).await.unwrap();
        row.is_none_or(|row| row.owner.is_none())
    })
    .await;
    assert_eq!(other.is_abandoned(&first.run_id).await, Ok(false), "its owner is alive");
}

/// A release that fails is tried again: a living owner would keep a run that nobody drives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_is_tried_again() {
    let Some((proxy, store, other)) = two() else { return };
    let plan = plan_named("released");
    let (kept, lease) = (begin(&store, "kept", &plan).await, begin(&store, "a", &plan).await);
    proxy.set(Line::LosesAnswers);
    // No request arrives on connections that are gone.
    proxy.end_connections();
    let failed = store.release(&lease).await;
    assert!(matches!(failed, Err(StoreError::Unavailable { .. })), "{failed:?}");
    proxy.set(Line::Open);
    until("it is released", async || other.is_abandoned(&lease.run_id).await.unwrap()).await;
    until("it lives", async || !other.is_abandoned(&kept.run_id).await.unwrap()).await;
    let lease = other.acquire(&lease.run_id, TakeOver::IfAbandoned).await.unwrap();
    finish(&other, &lease, 1).await;
}

/// A command wakes the process that drives the run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_is_told() {
    use segue_runtime::store::CommandQueue as _;
    let Some((_proxy, store, other)) = two() else { return };
    let lease = begin(&store, "a", &plan_named("told")).await;
    let signal = store.command_signal().unwrap();
    // Those of the start.
    while tokio::time::timeout(Duration::from_millis(50), signal.notified()).await.is_ok() {}
    for _ in 0..3 {
        other.send_command(&lease.run_id, &"end".into()).await.unwrap();
        tokio::time::timeout(Duration::from_secs(20), signal.notified()).await.unwrap();
    }
    assert_eq!(store.pending_commands().await.unwrap().len(), 3);
}

/// A database that was restored into another server, whose transactions have smaller numbers, goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn places_grow_after_a_restore() {
    let Some(url) = database() else { return };
    let plan = plan_named("restored");
    let store = open(&url);
    let lease = begin(&store, "a", &plan).await;
    store.release(&lease).await.unwrap();
    drop(store);
    let far = 1_i64 << 50;
    run_sql(&url, &format!("UPDATE segue.turn SET number = number + {far}")).unwrap();
    run_sql(&url, &format!("UPDATE segue.run SET last = last + {far}")).unwrap();
    let (store, other) = (open(&url), open(&url));
    let gap = other.changes(Some(far.unsigned_abs())).await.unwrap();
    assert!(gap.is_gap, "{gap:?}");
    let lease = store.acquire(&"a".into(), TakeOver::IfAbandoned).await.unwrap();
    add(&store, &lease, 1).await.unwrap();
    let seen = other.changes(Some(far.unsigned_abs())).await.unwrap();
    let place = seen.runs[0].at;
    assert!(place > far.unsigned_abs() && seen.next >= place && !seen.is_gap, "{seen:?}");
    add(&store, &lease, 2).await.unwrap();
    let seen = other.changes(Some(place)).await.unwrap();
    assert_eq!(seen.runs.len(), 1, "{seen:?}");
    assert_eq!(other.load(&"a".into()).await.unwrap().len(), 3);
}

/// J5: a changed, a missing and a foreign turn is named, and only their runs are deleted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_runs_are_named_and_deleted() {
    let Some(url) = database() else { return };
    let (store, plan) = (open(&url), plan_named("damaged"));
    for name in ["whole", "cut", "changed", "short", "part"] {
        let lease = begin(&store, name, &plan).await;
        let large = Value::from(format!("{name}{}", "x".repeat(50_000)));
        let entries = [entry(1, large)];
        store.append(&lease, record(1, &entries, RunStatus::Running)).await.unwrap();
        finish(&store, &lease, 2).await;
    }
    assert_eq!(store.list_damaged().await.unwrap(), []);
    let of = |name: &str| format!("(SELECT number FROM segue.run WHERE run_id = '{name}')");
    for sql in [
        format!("DELETE FROM segue.turn WHERE run = {} AND before = 0", of("cut")),
        format!(
            "UPDATE segue.turn SET bytes = set_byte(bytes, 5, 1) WHERE run = {} AND before = 0",
            of("changed")
        ),
        "UPDATE segue.run SET length = length + 1 WHERE run_id = 'short'".to_owned(),
        format!("DELETE FROM segue.part_use WHERE run = {}", of("part")),
    ] {
        run_sql(&url, &sql).unwrap();
    }
    let named = |error: &StoreError| match error {
        StoreError::Damaged { run_id, .. } => run_id.to_string(),
        other => panic!("{other}"),
    };
    let mut damaged: Vec<_> = store.list_damaged().await.unwrap().iter().map(named).collect();
    damaged.sort();
    assert_eq!(damaged, ["changed", "cut", "part", "short"]);
    assert_eq!(store.delete_damaged().await, Ok(4));
    assert_eq!(store.list_damaged().await.unwrap(), []);
    assert_eq!(store.load(&"whole".into()).await.unwrap().len(), 3);
}

/// Appends of so many runs at once, so many each; returns how many a second.
async fn appends_per_second(store: &Arc<PostgresStore>, runs: usize, each: u64) -> f64 {
    let plan = plan_named("measured");
    let mut leases = Vec::new();
    for n in 0..runs {
        leases.push(begin(&**store, &format!("{runs}-{n}"), &plan).await);
    }
    let began = Instant::now();
    let writers = leases.into_iter().map(|lease| {
        let store = store.clone();
        tokio::spawn(async move {
            for seq in 1..=each {
                add(&store, &lease, seq).await.unwrap();
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    (runs as u64 * each) as f64 / began.elapsed().as_secs_f64()
}

/// A measurement, for a quiet machine and an optimised build, with syncs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
#[allow(clippy::print_stderr, reason = "the figures are for the person who runs it")]
async fn appends_are_fast() {
    let Some(url) = database() else { return };
    run_sql(&url, "ALTER SYSTEM SET fsync = on").unwrap();
    run_sql(&url, "SELECT pg_reload_conf()").unwrap();
    let store = Arc::new(open(&url));
    for (runs, each) in [(1, 2_000), (8, 1_000), (64, 500), (256, 200)] {
        let figure = appends_per_second(&store, runs, each).await;
        let commits = store.figures().syncs;
        eprintln!("{runs} runs: {figure:.0} appends a second; {commits} commits so far");
    }
}
