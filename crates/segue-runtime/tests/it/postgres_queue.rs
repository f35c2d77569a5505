//! What the queue of runs in Postgres promises beyond its contract: real deaths, lost answers, older stores,
//! and what turns cost.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use segue_core::value::Value;
use segue_core::view::RunStatus;
use segue_runtime::store::{
    ClaimRequest, Due, JournalStore as _, NewRun, PostgresStore, RunHistory as _, RunQueue as _,
    SharedSlots as _, StoreError, TakeOver, WorkerInfo,
};
use tokio_postgres::{Client, NoTls};

use crate::postgres::{LEASE, add, open, until};
use crate::postgres_proxy::{Line, Proxy};
use crate::postgres_server::{database, query_number, run_sql};
use crate::stores::{begin, entry, finish, plan_named, record};

const ALL: ClaimRequest<'static> = ClaimRequest { namespaces: &[], room: 9, except: &[] };

/// A transaction of the test that holds a lock.
struct Locking(Client);

impl Locking {
    async fn new(url: &str, sql: &str) -> Locking {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute(&format!("BEGIN; {sql}")).await.unwrap();
        Locking(client)
    }

    async fn end(self) {
        self.0.batch_execute("COMMIT").await.unwrap();
    }
}

/// Whether a statement with this text waits for a lock.
fn waits(url: &str, text: &str) -> bool {
    let sql = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'
            AND datname = current_database() AND query LIKE '%{text}%'"
    );
    query_number(url, &sql).unwrap() > Some(0)
}

/// Waits for so many heartbeats of the process that owns a run; `at_each` looks meanwhile.
async fn beats(url: &str, run_id: &str, count: u32, at_each: impl Fn()) {
    let sql = format!(
        "SELECT (extract(epoch FROM beat_at) * 1000000)::bigint FROM segue.worker
            WHERE id = (SELECT owner FROM segue.run WHERE run_id = '{run_id}')"
    );
    let mut last = query_number(url, &sql).unwrap();
    for _ in 0..count {
        until("no heartbeat comes", async || {
            at_each();
            let now = query_number(url, &sql).unwrap();
            let is_new = now != last;
            last = now;
            is_new
        })
        .await;
    }
}

/// A store that an older version wrote is migrated once, by any of the processes that open it; its runs go
/// on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_store_gets_a_queue() {
    let Some(url) = database() else { return };
    let plan = plan_named("older");
    let store = open(&url);
    for id in ["free", "left", "ended"] {
        let lease = begin(&store, id, &plan).await;
        match id {
            "ended" => finish(&store, &lease, 1).await,
            _ => add(&store, &lease, 1).await.unwrap(),
        }
    }
    drop(store);
    run_sql(
        &url,
        "UPDATE segue.run SET owner = 'dead' WHERE run_id = 'left';
        ALTER TABLE segue.run DROP COLUMN due_at, DROP COLUMN namespaces, DROP COLUMN ticket;
        DROP INDEX segue.run_owner;
        ALTER TABLE segue.worker DROP COLUMN host, DROP COLUMN namespaces, DROP COLUMN tools_hash,
            DROP COLUMN room;
        DROP TABLE segue.dead_worker, segue.slot;
        UPDATE segue.store SET version = 1",
    )
    .unwrap();
    let opened = (0..4).map(|_| {
        let url = url.clone();
        std::thread::spawn(move || open(&url))
    });
    let stores: Vec<PostgresStore> =
        opened.collect::<Vec<_>>().into_iter().map(|one| one.join().unwrap()).collect();
    let claimed = stores[0].claim(ALL).await.unwrap();
    let ids: BTreeSet<&str> = claimed.iter().map(|run| &*run.lease.run_id).collect();
    assert_eq!(ids, ["free", "left"].into());
    for run in &claimed {
        assert_eq!(stores[1].load(&run.lease.run_id).await.unwrap().len(), 2);
        finish(&stores[0], &run.lease, 2).await;
    }
    assert_eq!(query_number(&url, "SELECT version FROM segue.store").unwrap(), Some(2));
}

/// A turn changes no index: Postgres writes the new row of the run beside the old one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_change_no_index() {
    const TURNS: u64 = 200;
    let Some(url) = database() else { return };
    let store = open(&url);
    let lease = begin(&store, "a", &plan_named("hot")).await;
    for seq in 1..=TURNS {
        add(&store, &lease, seq).await.unwrap();
    }
    store.release(&lease).await.unwrap();
    // A connection that closes tells its counts.
    drop(store);
    let count = |column: &str| {
        let sql = format!(
            "SELECT {column} FROM pg_stat_user_tables
                WHERE schemaname = 'segue' AND relname = 'run'"
        );
        query_number(&url, &sql).unwrap().unwrap_or(0)
    };
    let turns = TURNS.cast_signed();
    until("the counts arrive", async || count("n_tup_upd") > turns).await;
    let (all, hot) = (count("n_tup_upd"), count("n_tup_hot_upd"));
    // A page that a reader looks at may have no room for the next row.
    assert!(hot * 10 >= all * 9, "{hot} of {all} updates touched no index");
}

/// Begins runs, says so, and waits to be killed. Part of the next test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a process of another test"]
#[allow(clippy::print_stdout, reason = "the test that started it reads this")]
async fn a_process_to_kill() {
    let Ok(url) = std::env::var("SEGUE_TEST_DATABASE") else { return };
    let (store, plan) = (open(&url), plan_named("killed"));
    store.announce(WorkerInfo { host: "here".into(), ..WorkerInfo::default() }).await.unwrap();
    for id in ["a", "b", "c"] {
        begin(&store, id, &plan).await;
    }
    let _slot = store.shared_slot(&"crm".into(), 1).await.unwrap();
    println!("\nbegun");
    std::future::pending::<()>().await;
}

/// The runs of a process that is killed go to another one as soon as its lease ended, and it is listed as
/// dead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_of_a_killed_process_are_claimed_after_its_lease() {
    let Some(url) = database() else { return };
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "postgres_queue::a_process_to_kill", "--ignored", "--nocapture"])
        .env("SEGUE_TEST_DATABASE", &url)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "begun"));
    let store = open(&url);
    assert!(store.claim(ALL).await.unwrap().is_empty(), "their owner is alive");
    child.kill().unwrap();
    child.wait().unwrap();
    let killed = Instant::now();
    let limit: Arc<str> = "crm".into();
    let (freed, taken) = tokio::join!(store.shared_slot(&limit, 1), async {
        let mut taken = Vec::new();
        until("they are claimed", async || {
            taken.extend(store.claim(ALL).await.unwrap());
            taken.len() == 3
        })
        .await;
        (killed.elapsed(), taken)
    });
    let (took, _taken) = taken;
    assert!(took < LEASE + Duration::from_secs(1), "after {took:?}");
    assert!(freed.unwrap().is_some() && killed.elapsed() < LEASE + Duration::from_secs(2));
    let workers = store.workers().await.unwrap();
    let dead: Vec<_> = workers.iter().filter(|worker| !worker.is_alive).collect();
    assert_eq!(dead.len(), 1, "{workers:?}");
    assert_eq!((&*dead[0].info.host, dead[0].runs), ("here", 0));
    assert_eq!(workers.iter().map(|worker| worker.runs).sum::<u64>(), 3);
}

/// A release that is still to come does not take a run from its new driver.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_release_spares_the_next_driver() {
    let Some(url) = database() else { return };
    let proxy = Proxy::new(&url);
    let (store, other) = (open(&proxy.url(&url)), open(&url));
    let plan = plan_named("begun");
    begin(&store, "first", &plan).await;
    // A heartbeat between the two attempts may release the run.
    for attempt in 0..20 {
        let run_id: Arc<str> = format!("run-{attempt}").into();
        let entries = [entry(0, Value::Null)];
        let create = async || {
            let run = NewRun { run_id: &run_id, plan: &plan };
            store.create(run, record(0, &entries, RunStatus::Running)).await
        };
        proxy.set(Line::LosesAnswers);
        let lost = create().await;
        assert!(matches!(lost, Err(StoreError::Unavailable { .. })), "{lost:?}");
        proxy.set(Line::Open);
        let mut again = create().await;
        while let Err(StoreError::Unavailable { .. }) = again {
            again = create().await;
        }
        let Ok(lease) = again else { continue };
        beats(&url, "first", 3, || {}).await;
        let row = other.run(&run_id).await.unwrap().unwrap();
        assert!(row.owner.is_some() && row.epoch == lease.epoch, "{row:?}");
        return;
    }
    panic!("the second attempt never came in time");
}

/// A process that took a run over and got no answer does not keep it: no driver knows of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_was_taken_without_an_answer_is_given_back() {
    let Some(url) = database() else { return };
    let proxy = Proxy::new(&url);
    let (store, other) = (Arc::new(open(&proxy.url(&url))), open(&url));
    let plan = plan_named("taken");
    begin(&*store, "first", &plan).await;
    for (run_id, by_claim) in [("acquired", false), ("claimed", true)] {
        let run_id: Arc<str> = run_id.into();
        let lease = begin(&other, &run_id, &plan).await;
        other.release(&lease).await.unwrap();
        let (lock, waiting) = if by_claim {
            ("LOCK TABLE segue.dead_worker IN EXCLUSIVE MODE", "abandoned")
        } else {
            ("SELECT FROM segue.run WHERE run_id = 'acquired' FOR UPDATE", "ticket = $8")
        };
        // So that the connection has the statement, and only its answer is lost.
        let nothing = ClaimRequest { room: 0, ..ALL };
        until("it has a connection", async || store.claim(nothing).await.is_ok()).await;
        let lock = Locking::new(&url, lock).await;
        let taking = {
            let (store, run_id) = (store.clone(), run_id.clone());
            tokio::spawn(async move {
                if by_claim {
                    store.claim(ALL).await.map(drop)
                } else {
                    store.acquire(&run_id, TakeOver::IfAbandoned).await.map(drop)
                }
            })
        };
        until("it waits for the lock", async || waits(&url, waiting)).await;
        proxy.set(Line::LosesAnswers);
        lock.end().await;
        let lost = taking.await.unwrap();
        assert!(matches!(lost, Err(StoreError::Unavailable { .. })), "{lost:?}");
        proxy.set(Line::Open);
        until("it is given back", async || {
            let row = other.run(&run_id).await.unwrap().unwrap();
            row.epoch == lease.epoch + 3 && row.owner.is_none()
        })
        .await;
        assert_eq!(other.is_abandoned(&"first".into()).await, Ok(false), "its owner is alive");
        let lease = other.acquire(&run_id, TakeOver::Recover).await.unwrap();
        finish(&other, &lease, 1).await;
    }
}

/// Statistics that cannot be written now delay no heartbeat.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heartbeats_do_not_wait_for_statistics() {
    let Some(url) = database() else { return };
    let store = open(&url);
    let plan = plan_named("counted");
    let lease = begin(&store, "a", &plan).await;
    let lock = Locking::new(&url, "LOCK TABLE segue.tool").await;
    let ended = begin(&store, "b", &plan).await;
    finish(&store, &ended, 1).await;
    beats(&url, "a", 8, || assert!(store.is_held(&lease), "the lease ended")).await;
    lock.end().await;
    until("they are written", async || {
        query_number(&url, "SELECT count(*) FROM segue.tool WHERE stats <> ''").unwrap() == Some(1)
    })
    .await;
}

/// A run that is released until a time keeps it when the answer is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_release_is_repeated_with_its_time() {
    let Some(url) = database() else { return };
    let proxy = Proxy::new(&url);
    let (store, other) = (open(&proxy.url(&url)), open(&url));
    let plan = plan_named("waits");
    begin(&store, "kept", &plan).await;
    let lease = begin(&store, "a", &plan).await;
    proxy.set(Line::LosesAnswers);
    let failed = store.release_until(&lease, Due::OnCommand).await;
    assert!(matches!(failed, Err(StoreError::Unavailable { .. })), "{failed:?}");
    proxy.set(Line::Open);
    until("it is released", async || other.is_abandoned(&lease.run_id).await.unwrap()).await;
    assert!(other.claim(ALL).await.unwrap().is_empty(), "it waits for a command");
}

/// Claims due runs, so many at a time, until none is left; returns how many.
async fn claim_all(store: Arc<PostgresStore>, room: usize) -> usize {
    let mut count = 0;
    loop {
        let request = ClaimRequest { room, ..ALL };
        match store.claim(request).await.unwrap().len() {
            0 => return count,
            some => count += some,
        }
    }
}

/// A measurement, for a quiet machine, with syncs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
#[allow(clippy::print_stderr, reason = "the figures are for the person who runs it")]
async fn claims_are_fast() {
    const RUNS: usize = 4_000;
    const AT_ONCE: usize = 16;
    let Some(url) = database() else { return };
    run_sql(&url, "ALTER SYSTEM SET fsync = on").unwrap();
    run_sql(&url, "SELECT pg_reload_conf()").unwrap();
    let stores = [Arc::new(open(&url)), Arc::new(open(&url))];
    let plan = plan_named("measured");
    for (nth, (processes, room)) in [(1, 1), (1, 64), (2, 64)].into_iter().enumerate() {
        let began = Instant::now();
        let enqueued = (0..AT_ONCE).map(|caller| {
            let (store, plan) = (stores[0].clone(), plan.clone());
            tokio::spawn(async move {
                for n in 0..RUNS / AT_ONCE {
                    let lease = begin(&*store, &format!("{nth}-{caller}-{n}"), &plan).await;
                    store.release_until(&lease, Due::Now).await.unwrap();
                }
            })
        });
        for one in enqueued.collect::<Vec<_>>() {
            one.await.unwrap();
        }
        let took = began.elapsed().as_secs_f64();
        eprintln!("{AT_ONCE} callers: {:.0} runs a second are enqueued", RUNS as f64 / took);
        let began = Instant::now();
        let claimers = stores[..processes].iter().map(|store| claim_all(store.clone(), room));
        let claimed = futures_util::future::join_all(claimers).await;
        let took = began.elapsed().as_secs_f64();
        assert_eq!(claimed.iter().sum::<usize>(), RUNS);
        eprintln!(
            "{processes} processes, {room} at a time: {:.0} claims a second ({claimed:?})",
            RUNS as f64 / took
        );
    }
}
