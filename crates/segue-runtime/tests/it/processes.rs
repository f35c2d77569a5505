//! What the durable stores promise beyond the contract of every store: processes that come, go and die.

use std::sync::Arc;

use segue_core::run::{Entry, Fact, NodeId};
use segue_core::value::Value;
use segue_core::view::RunStatus;
use segue_runtime::store::{Lease, Retention, RunQuery, Store, StoreError, TakeOver};

use crate::backings::Backing;
use crate::stores::{begin, entry, finish, plan_named, record};

for_durable_stores! {
    a_busy_run_is_taken_whole
    pruning_disturbs_no_run
    pruning_at_once_keeps_enough
    many_create_a_store_at_once
    a_run_that_kills_is_set_aside
}

async fn add(store: &dyn Store, lease: &Lease, seq: u64) -> Result<(), StoreError> {
    let entries = [entry(seq, Value::from(seq))];
    store.append(lease, record(seq, &entries, RunStatus::Running)).await
}

/// J8: a process that takes a run over while its owner writes finds every acknowledged entry, and goes on
/// behind them.
async fn a_busy_run_is_taken_whole(backing: Backing) {
    let other = backing.open();
    let plan = plan_named("busy");
    for round in 0..40 {
        let store = backing.open();
        let lease = begin(&*store, &format!("run-{round}"), &plan).await;
        let (writes, theirs) = (store.clone(), lease.clone());
        let owner = tokio::spawn(async move {
            let mut acknowledged = 1;
            while add(&*writes, &theirs, acknowledged).await.is_ok() {
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
        add(&*other, &taken, length).await.unwrap();
        finish(&*other, &taken, length + 1).await;
    }
    assert_eq!(other.list_damaged().await.unwrap(), []);
}

/// Runs begin, go on and end undisturbed while another process prunes all the time.
async fn pruning_disturbs_no_run(backing: Backing) {
    let other = backing.open();
    let plan = plan_named("busy");
    let few = Retention { keep_last: Some(3), ..Retention::default() };
    for round in 0..30 {
        let (store, plan) = (backing.open(), plan.clone());
        let owner = tokio::spawn(async move {
            for run in 0..20 {
                let lease = begin(&*store, &format!("run-{round}-{run}"), &plan).await;
                add(&*store, &lease, 1).await.unwrap();
                finish(&*store, &lease, 2).await;
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

/// Processes that prune at the same time keep as many runs as each of them wants to.
async fn pruning_at_once_keeps_enough(backing: Backing) {
    let store = backing.open();
    let plan = plan_named("kept");
    for run in 0..300 {
        let lease = begin(&*store, &format!("run-{run}"), &plan).await;
        finish(&*store, &lease, 1).await;
    }
    let few = Retention { keep_last: Some(10), ..Retention::default() };
    let pruning = (0..3).map(|_| {
        let store = backing.open();
        tokio::spawn(async move { store.prune(few).await.unwrap() })
    });
    let mut deleted = 0;
    for one in pruning.collect::<Vec<_>>() {
        deleted += one.await.unwrap();
    }
    let query = RunQuery { limit: 999, ..RunQuery::default() };
    assert_eq!((deleted, store.runs(&query).await.unwrap().runs.len()), (290, 10));
}

/// Several processes that create a store at the same moment all open it.
async fn many_create_a_store_at_once(backing: Backing) {
    const AT_ONCE: usize = 8;
    let backing = Arc::new(backing);
    let together = Arc::new(std::sync::Barrier::new(AT_ONCE));
    let opened = (0..AT_ONCE).map(|_| {
        let (backing, together) = (backing.clone(), together.clone());
        std::thread::spawn(move || {
            together.wait();
            backing.open()
        })
    });
    let opened: Vec<_> = opened.collect();
    let plan = plan_named("new");
    for (n, store) in opened.into_iter().enumerate() {
        let store = store.join().unwrap();
        let lease = begin(&*store, &format!("run-{n}"), &plan).await;
        finish(&*store, &lease, 1).await;
    }
    let query = RunQuery { limit: 99, ..RunQuery::default() };
    let listed = backing.open().runs(&query).await.unwrap();
    assert_eq!((listed.runs.len(), listed.damaged.len()), (AT_ONCE, 0));
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

/// The store after a process drove run `a` and ended so.
async fn left(backing: Backing, run_id: &Arc<str>, leaves: Leaves) -> Backing {
    let store = backing.open();
    let lease = match store.run(run_id).await.unwrap() {
        None => begin(&*store, run_id, &plan_named("poison")).await,
        Some(_) => store.acquire(run_id, TakeOver::Recover).await.unwrap(),
    };
    let length = store.run(run_id).await.unwrap().unwrap().length;
    for (seq, fact) in (length..).zip(leaves.facts()) {
        let waits = leaves == Leaves::DiesWaiting;
        let status = if waits { RunStatus::Waiting } else { RunStatus::Running };
        let entries = [Entry { seq, at_ms: 1_000 + seq, fact }];
        store.append(&lease, record(seq, &entries, status)).await.unwrap();
    }
    if leaves == Leaves::Ends {
        drop(store);
        return backing;
    }
    backing.after_death(store)
}

/// A run with which two processes in a row died is set aside: it is named, goes on when a person resumes it,
/// and is recovered again after that.
async fn a_run_that_kills_is_set_aside(mut backing: Backing) {
    use Leaves::{Dies, DiesLater, DiesSeeking, DiesWaiting, Ends};
    let cases = [
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
    ];
    for (n, (history, is_aside)) in cases.into_iter().enumerate() {
        let a: Arc<str> = format!("run-{n}").into();
        for leaves in &history {
            backing = left(backing, &a, *leaves).await;
        }
        let store = backing.open();
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
        // The newest comes first.
        assert!(found.runs[0].set_aside.is_some() && found.runs[0].owner.is_none());
        drop(store);
        let store = backing.open();
        let lease = store.acquire(&a, TakeOver::IfAbandoned).await.unwrap();
        assert_eq!(store.run(&a).await.unwrap().unwrap().set_aside, None, "{history:?}");
        store.release(&lease).await.unwrap();
        store.acquire(&a, TakeOver::Recover).await.unwrap();
    }
}
