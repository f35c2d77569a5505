//! The queue of runs: each run that is due goes to one process that can drive it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use segue_core::id::ToolId;
use segue_core::plan::Plan;
use segue_core::schema::Schema;
use segue_core::source::Source;
use segue_core::tool::{Annotations, ToolSpec};
use segue_core::value::Value;
use segue_core::view::RunStatus;
use segue_runtime::engine::{Engine, RunRequest};
use segue_runtime::store::{
    ClaimRequest, ClaimedRun, Due, Lease, Store, StoreError, TakeOver, WorkerInfo,
};
use segue_runtime::tools::builtin::{self, BuiltinConfig};
use segue_runtime::tools::gate::Concurrency;
use segue_runtime::tools::{Tool, ToolError, ToolRequest, ToolRunner};

use crate::backings::Backing;
use crate::stores::{begin, entry, finish, plan_named, record};

for_every_store! {
    a_store_of_one_process_has_no_queue
}

for_shared_stores! {
    two_processes_claim_disjoint_runs
    only_what_is_due_is_claimed
    a_process_claims_only_what_its_tools_can_do
    room_and_exceptions_are_respected
    a_command_wakes_a_run_without_an_owner
    a_release_and_a_command_at_once_lose_no_wake
    the_runs_of_a_dead_process_are_claimed
    a_run_that_kills_is_set_aside_by_claims
    a_claim_that_is_dropped_is_given_back
    signals_tell_of_due_runs
    workers_are_listed
    slots_are_shared
    a_limit_of_a_source_holds_for_all_processes
}

async fn claim(store: &dyn Store, room: usize) -> Vec<ClaimedRun> {
    store.claim(ClaimRequest { namespaces: &[], room, except: &[] }).await.unwrap()
}

fn ids(claimed: &[ClaimedRun]) -> Vec<&str> {
    claimed.iter().map(|run| &*run.lease.run_id).collect()
}

/// Begins a run, and leaves it to the process that claims it.
async fn enqueue(store: &dyn Store, run_id: &str, plan: &Arc<Plan>, due: Due) {
    let lease = begin(store, run_id, plan).await;
    store.release_until(&lease, due).await.unwrap();
}

/// Waits until `is_so`; a busy machine gets there in time.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let end = std::time::Instant::now() + Duration::from_secs(30);
    while !is_so().await {
        assert!(std::time::Instant::now() < end, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn in_an_hour() -> Due {
    Due::At(segue_runtime::driver::now_ms() + 3_600_000)
}

/// A store of one process claims nothing and limits nothing, and a run that is released until a time is just released.
async fn a_store_of_one_process_has_no_queue(backing: Backing) {
    let (store, other) = (backing.open(), backing.open());
    let lease = begin(&*store, "a", &plan_named("queued")).await;
    store.release_until(&lease, Due::Now).await.unwrap();
    if store.is_shared() {
        assert_eq!(ids(&claim(&*other, 9).await), ["a"]);
        return;
    }
    assert!(claim(&*other, 9).await.is_empty());
    assert_eq!(other.due_runs(9).await, Ok(Vec::new()));
    assert_eq!(other.announce(WorkerInfo::default()).await, Ok(()));
    assert_eq!(other.workers().await, Ok(Vec::new()));
    assert!(other.due_signal().is_none());
    assert!(other.shared_slot(&"crm".into(), 0).await.unwrap().is_none());
    let lease = other.acquire(&"a".into(), TakeOver::IfAbandoned).await.unwrap();
    finish(&*other, &lease, 1).await;
}

/// J8: processes that claim at the same time get different runs, and together all of them.
async fn two_processes_claim_disjoint_runs(backing: Backing) {
    const RUNS: usize = 120;
    let plan = plan_named("queued");
    let store = backing.open();
    for n in 0..RUNS {
        enqueue(&*store, &format!("run-{n}"), &plan, Due::Now).await;
    }
    let claimers = (0..3).map(|_| {
        let store = backing.open();
        tokio::spawn(async move {
            let mut mine = Vec::new();
            loop {
                let some = claim(&*store, 7).await;
                if some.is_empty() {
                    return (store, mine);
                }
                for run in &some {
                    // The lease is good, and no other process has it.
                    let entries = [entry(1, Value::from(1))];
                    let record = record(1, &entries, RunStatus::Running);
                    assert_eq!(store.append(&run.lease, record).await, Ok(()));
                    assert!(store.is_held(&run.lease));
                    assert_eq!(run.row.epoch, run.lease.epoch);
                }
                mine.extend(some.into_iter().map(|run| run.lease.run_id));
            }
        })
    });
    let mut all = Vec::new();
    let mut stores = Vec::new();
    for claimer in claimers.collect::<Vec<_>>() {
        let (store, mine) = claimer.await.unwrap();
        stores.push(store);
        all.extend(mine);
    }
    assert_eq!(all.len(), RUNS);
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), RUNS, "each run once");
}

/// A run that waits for a time or a person is not claimed, an owned or ended one neither; the longest due
/// comes first.
async fn only_what_is_due_is_claimed(backing: Backing) {
    let (store, other) = (backing.open(), backing.open());
    let plan = plan_named("queued");
    let owned = begin(&*store, "owned", &plan).await;
    let ended = begin(&*store, "ended", &plan).await;
    finish(&*store, &ended, 1).await;
    enqueue(&*store, "later", &plan, in_an_hour()).await;
    enqueue(&*store, "never", &plan, Due::At(u64::MAX)).await;
    enqueue(&*store, "asks", &plan, Due::OnCommand).await;
    assert!(claim(&*other, 9).await.is_empty());
    assert_eq!(other.due_runs(9).await, Ok(Vec::new()));
    for id in ["first", "second", "third"] {
        enqueue(&*store, id, &plan, Due::Now).await;
    }
    enqueue(&*store, "past", &plan, Due::At(1)).await;
    let due = other.due_runs(9).await.unwrap();
    assert!(due.iter().map(|id| &**id).eq(["first", "second", "third", "past"]), "{due:?}");
    assert_eq!(other.due_runs(2).await.unwrap().len(), 2);
    assert_eq!(ids(&claim(&*other, 2).await), ["first", "second"]);
    let rest = claim(&*other, 9).await;
    assert_eq!(ids(&rest), ["third", "past"]);
    // Its time comes while it has no owner.
    let soon = Due::At(segue_runtime::driver::now_ms() + 300);
    other.release_until(&rest[0].lease, soon).await.unwrap();
    assert!(claim(&*store, 9).await.is_empty());
    until("its time comes", async || ids(&claim(&*store, 9).await) == ["third"]).await;
    let lost = other.release_until(&rest[0].lease, Due::Now).await;
    assert!(
        matches!(lost, Err(StoreError::Lost { .. })),
        "a lost lease releases nothing: {lost:?}"
    );
    assert!(store.is_held(&owned));
}

/// The steps of a run need namespaces; those of built-in tools are everywhere.
async fn a_process_claims_only_what_its_tools_can_do(backing: Backing) {
    let (store, other) = (backing.open(), backing.open());
    enqueue(&*store, "crm", &plan_with(&["crm:find"]), Due::Now).await;
    enqueue(&*store, "both", &plan_with(&["crm:find", "mail:send", "crm:find"]), Due::Now).await;
    enqueue(&*store, "none", &plan_with(&[]), Due::Now).await;
    let with = async |namespaces: &[&str]| -> Vec<ClaimedRun> {
        let namespaces: Vec<Arc<str>> = namespaces.iter().map(|name| (*name).into()).collect();
        let request = ClaimRequest { namespaces: &namespaces, room: 9, except: &[] };
        other.claim(request).await.unwrap()
    };
    assert_eq!(ids(&with(&["mail"]).await), ["none"]);
    assert!(with(&["mail", "x"]).await.is_empty());
    assert_eq!(ids(&with(&["x", "crm"]).await), ["crm"]);
    assert_eq!(ids(&with(&["x", "crm", "mail"]).await), ["both"]);
}

/// Calls at the same time, now and at most.
#[derive(Default)]
struct Calls {
    now: AtomicUsize,
    peak: AtomicUsize,
}

impl Calls {
    /// Is under way for a few turns of the other tasks.
    async fn pass(&self) {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.peak.fetch_max(now, Ordering::SeqCst);
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        self.now.fetch_sub(1, Ordering::SeqCst);
    }

    fn peak(&self) -> usize {
        self.peak.load(Ordering::SeqCst)
    }
}

/// Of all processes together no more than so many have a slot; a limit has its own slots; one that is
/// waited for in vain is free for the next.
async fn slots_are_shared(backing: Backing) {
    let stores = [backing.open(), backing.open(), backing.open()];
    let (crm, mail): (Arc<str>, Arc<str>) = ("crm".into(), "mail".into());
    let calls = Arc::new(Calls::default());
    let callers = stores.iter().cycle().take(12).map(|store| {
        let (store, calls, crm) = (store.clone(), calls.clone(), crm.clone());
        tokio::spawn(async move {
            for _ in 0..10 {
                let slot = store.shared_slot(&crm, 2).await.unwrap().unwrap();
                calls.pass().await;
                drop(slot);
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.unwrap();
    }
    assert_eq!((calls.peak(), calls.now.load(Ordering::SeqCst)), (2, 0));
    let one = stores[0].shared_slot(&crm, 2).await.unwrap();
    let two = stores[1].shared_slot(&crm, 2).await.unwrap();
    let other = stores[2].shared_slot(&mail, 1).await.unwrap();
    assert!(one.is_some() && two.is_some() && other.is_some());
    let wait = Duration::from_millis(200);
    let third = tokio::time::timeout(wait, stores[2].shared_slot(&crm, 2)).await;
    assert!(third.is_err(), "both are taken");
    drop(one);
    let third = stores[2].shared_slot(&crm, 2).await.unwrap();
    assert!(third.is_some());
    // A process that ends frees its slots.
    let [first, second, last] = stores;
    drop(second);
    assert!(last.shared_slot(&crm, 2).await.unwrap().is_some());
    drop((first, two, third));
}

/// `sources` limits a source across the engines of all processes with this store.
async fn a_limit_of_a_source_holds_for_all_processes(backing: Backing) {
    struct Passing(Arc<Calls>);
    #[async_trait::async_trait]
    impl ToolRunner for Passing {
        async fn call(&self, call: ToolRequest) -> Result<Value, ToolError> {
            self.0.pass().await;
            Ok(call.args)
        }
    }
    let calls = Arc::new(Calls::default());
    let engines = (0..2).map(|_| {
        let mut spec = ToolSpec::new(ToolId::new("crm", "find"), "finds", Schema::any_object());
        spec.annotations = Annotations { read_only: Some(true), ..Annotations::default() };
        let tool = Tool { spec: Arc::new(spec), runner: Arc::new(Passing(calls.clone())) };
        let limits = Concurrency { sources: [("crm".into(), 2)].into(), ..Concurrency::default() };
        Engine::builder().tools([tool]).concurrency(limits).store(backing.open()).build().0
    });
    let mut text = "name: many\nsteps:\n".to_owned();
    for n in 0..12 {
        let _ = writeln!(text, "  - {{ id: s{n}, tool: 'crm:find' }}");
    }
    let runs = engines.map(|engine| {
        let text = text.clone();
        tokio::spawn(async move {
            let (plan, findings) = engine.plan(&Source::new("many.yaml", text));
            let plan = plan.unwrap_or_else(|| panic!("{findings:?}"));
            engine.run(RunRequest::new(plan, Value::empty_object())).await.unwrap()
        })
    });
    for run in runs.collect::<Vec<_>>() {
        assert_eq!(run.await.unwrap().status, RunStatus::Success);
    }
    assert_eq!(calls.peak(), 2);
}

struct Silent;

#[async_trait::async_trait]
impl ToolRunner for Silent {
    async fn call(&self, call: ToolRequest) -> Result<Value, ToolError> {
        Ok(call.args)
    }
}

/// A plan whose steps call these tools, and a built-in one.
fn plan_with(tools: &[&str]) -> Arc<Plan> {
    let different = BTreeSet::from_iter(tools);
    let known = different.iter().map(|id| Tool {
        spec: Arc::new(ToolSpec::new(ToolId::from(**id), "for a test", Schema::any_object())),
        runner: Arc::new(Silent),
    });
    let known = known.chain(builtin::tools(&BuiltinConfig::default()));
    let (engine, _) = Engine::builder().tools(known).build();
    let mut text = "name: needs\nsteps:\n  - { id: e, tool: echo }\n".to_owned();
    for (n, id) in tools.iter().enumerate() {
        let _ = writeln!(text, "  - {{ id: s{n}, tool: '{id}' }}");
    }
    let (plan, findings) = engine.plan(&Source::new("needs.yaml", text));
    plan.unwrap_or_else(|| panic!("{findings:?}"))
}

async fn room_and_exceptions_are_respected(backing: Backing) {
    let (store, other) = (backing.open(), backing.open());
    let plan = plan_named("queued");
    for n in 0..6 {
        enqueue(&*store, &format!("run-{n}"), &plan, Due::Now).await;
    }
    assert!(claim(&*other, 0).await.is_empty());
    let except: [Arc<str>; 2] = ["run-0".into(), "run-2".into()];
    let request = ClaimRequest { namespaces: &[], room: 3, except: &except };
    assert_eq!(ids(&other.claim(request).await.unwrap()), ["run-1", "run-3", "run-4"]);
    assert_eq!(ids(&other.claim(request).await.unwrap()), ["run-5"]);
    assert!(other.claim(request).await.unwrap().is_empty());
    assert_eq!(ids(&claim(&*store, 9).await), ["run-0", "run-2"]);
}

/// A run that waits for a person is due when a process sends it a command; also when the command came while
/// the run still had its owner.
async fn a_command_wakes_a_run_without_an_owner(backing: Backing) {
    let (store, other) = (backing.open(), backing.open());
    let plan = plan_named("asks");
    enqueue(&*store, "a", &plan, Due::OnCommand).await;
    enqueue(&*store, "b", &plan, in_an_hour()).await;
    enqueue(&*store, "c", &plan, Due::OnCommand).await;
    assert!(claim(&*other, 9).await.is_empty());
    for id in ["a", "b"] {
        let number = store.send_command(&id.into(), &"go".into()).await.unwrap();
        let claimed = claim(&*other, 9).await;
        assert_eq!(ids(&claimed), [id]);
        other.remove_command(number).await.unwrap();
        other.release_until(&claimed[0].lease, Due::OnCommand).await.unwrap();
        assert!(claim(&*other, 9).await.is_empty(), "the command was handled");
    }
    let owned = other.acquire(&"c".into(), TakeOver::IfAbandoned).await.unwrap();
    store.send_command(&"c".into(), &"go".into()).await.unwrap();
    assert!(claim(&*store, 9).await.is_empty(), "its owner is alive");
    other.release_until(&owned, Due::OnCommand).await.unwrap();
    assert_eq!(ids(&claim(&*store, 9).await), ["c"], "the command was not handled");
}

/// A process sends a command while the owner of the run releases it: afterwards the run is due.
async fn a_release_and_a_command_at_once_lose_no_wake(backing: Backing) {
    let (store, other) = (backing.open(), backing.open());
    let plan = plan_named("asks");
    for round in 0..60 {
        let run_id: Arc<str> = format!("run-{round}").into();
        let lease = begin(&*store, &run_id, &plan).await;
        let text: Arc<str> = "go".into();
        let (released, sent) = tokio::join!(
            store.release_until(&lease, Due::OnCommand),
            other.send_command(&run_id, &text)
        );
        released.unwrap();
        assert_eq!(ids(&claim(&*other, 9).await), [&*run_id]);
        other.remove_command(sent.unwrap()).await.unwrap();
    }
}

/// The runs of a process that died are taken whatever they wait for, before those that are due.
async fn the_runs_of_a_dead_process_are_claimed(backing: Backing) {
    let store = backing.open();
    let plan = plan_named("abandoned");
    enqueue(&*store, "due", &plan, Due::Now).await;
    enqueue(&*store, "later", &plan, in_an_hour()).await;
    let later = store.acquire(&"later".into(), TakeOver::IfAbandoned).await.unwrap();
    let lease = begin(&*store, "a", &plan).await;
    let ended = begin(&*store, "ended", &plan).await;
    finish(&*store, &ended, 1).await;
    let backing = backing.after_death(store);
    let other = backing.open();
    let due = other.due_runs(9).await.unwrap();
    assert_eq!(due.iter().map(|id| &**id).collect::<BTreeSet<_>>(), ["a", "due", "later"].into());
    let claimed = claim(&*other, 2).await;
    let taken: BTreeSet<&str> = ids(&claimed).into_iter().collect();
    assert_eq!(taken, ["a", "later"].into());
    for run in &claimed {
        let before = if &*run.lease.run_id == "a" { &lease } else { &later };
        assert_eq!(run.lease.epoch, before.epoch + 1, "the dead process writes nothing");
        finish(&*other, &run.lease, 1).await;
    }
    assert_eq!(ids(&claim(&*other, 9).await), ["due"]);
}

/// A run with which two processes in a row died without progress is set aside, as by `TakeOver::Recover`.
async fn a_run_that_kills_is_set_aside_by_claims(mut backing: Backing) {
    let store = backing.open();
    enqueue(&*store, "a", &plan_named("poison"), Due::Now).await;
    for _ in 0..2 {
        assert_eq!(ids(&claim(&*store, 9).await), ["a"], "no process died");
        let row = store.run(&"a".into()).await.unwrap().unwrap();
        store.release(&Lease { run_id: row.run_id, epoch: row.epoch }).await.unwrap();
    }
    drop(store);
    for death in 0..2 {
        let store = backing.open();
        assert_eq!(ids(&claim(&*store, 9).await), ["a"], "after {death} deaths");
        backing = backing.after_death(store);
    }
    let store = backing.open();
    assert!(claim(&*store, 9).await.is_empty());
    let row = store.run(&"a".into()).await.unwrap().unwrap();
    assert!(row.set_aside.is_some() && row.owner.is_none(), "{row:?}");
    assert!(claim(&*store, 9).await.is_empty());
    assert_eq!(store.due_runs(9).await, Ok(Vec::new()));
    // A person resumes it, and it counts anew.
    let lease = store.acquire(&"a".into(), TakeOver::IfAbandoned).await.unwrap();
    store.release(&lease).await.unwrap();
    assert_eq!(ids(&claim(&*store, 9).await), ["a"]);
}

/// A caller that goes away while it claims or acquires has no driver for what it gets.
async fn a_claim_that_is_dropped_is_given_back(backing: Backing) {
    let (store, other) = (backing.open(), backing.open());
    let plan = plan_named("dropped");
    // They are owners already.
    begin(&*store, "first", &plan).await;
    begin(&*other, "second", &plan).await;
    enqueue(&*store, "a", &plan, Due::Now).await;
    let request = ClaimRequest { namespaces: &[], room: 9, except: &[] };
    let mut claiming = store.claim(request);
    let polled = futures_util::poll!(&mut claiming);
    assert!(polled.is_pending());
    drop(claiming);
    until("the claim arrives, and is given back", async || {
        other.run(&"a".into()).await.unwrap().unwrap().epoch == 4
    })
    .await;
    assert_eq!(ids(&claim(&*other, 9).await), ["a"]);
}

/// A process hears of a run that is due when it is released, and when it gets a command.
async fn signals_tell_of_due_runs(backing: Backing) {
    let (store, other) = (backing.open(), backing.open());
    let plan = plan_named("told");
    // It listens from then on.
    other.announce(WorkerInfo::default()).await.unwrap();
    let signal = other.due_signal().unwrap();
    let heard = async |max: u64| {
        tokio::time::timeout(Duration::from_millis(max), signal.notified()).await.is_ok()
    };
    while heard(50).await {}
    enqueue(&*store, "now", &plan, Due::Now).await;
    assert!(heard(20_000).await, "a run is due");
    enqueue(&*store, "asks", &plan, Due::OnCommand).await;
    let lease = begin(&*store, "busy", &plan).await;
    let entries = [entry(1, Value::Null)];
    store.append(&lease, record(1, &entries, RunStatus::Running)).await.unwrap();
    assert!(!heard(100).await, "turns, and runs that wait, tell nothing");
    store.send_command(&"asks".into(), &"go".into()).await.unwrap();
    assert!(heard(20_000).await, "a command came");
    store.release(&lease).await.unwrap();
    assert!(heard(20_000).await, "a run was released");
}

async fn workers_are_listed(backing: Backing) {
    let (store, other) = (backing.open(), backing.open());
    let info = WorkerInfo {
        host: "left".into(),
        version: "9.9".into(),
        namespaces: vec!["crm".into(), "mail".into()],
        tools_hash: "abc".into(),
        room: 7,
    };
    store.announce(info.clone()).await.unwrap();
    let plan = plan_named("worked");
    for id in ["a", "b"] {
        begin(&*store, id, &plan).await;
    }
    let ended = begin(&*store, "c", &plan).await;
    finish(&*store, &ended, 1).await;
    let now_ms = segue_runtime::driver::now_ms();
    let listed = other.workers().await.unwrap();
    let [worker] = &listed[..] else { panic!("{listed:?}") };
    assert_eq!((&worker.info, worker.runs, worker.is_alive), (&info, 2, true));
    assert!(worker.started_ms.abs_diff(now_ms) < 60_000 && worker.beat_ago_ms < 60_000);
    let owner = other.run(&"a".into()).await.unwrap().unwrap().owner;
    assert_eq!(owner, Some(worker.id.clone()));
    // It describes itself anew, and another process joins.
    let more = WorkerInfo { room: 8, ..info };
    store.announce(more.clone()).await.unwrap();
    begin(&*other, "d", &plan).await;
    let listed = other.workers().await.unwrap();
    assert_eq!(listed.iter().map(|worker| worker.info.room).collect::<Vec<_>>(), [8, 0]);
    drop(store);
    assert_eq!(other.workers().await.unwrap().len(), 1, "one that shut down is not listed");
}
