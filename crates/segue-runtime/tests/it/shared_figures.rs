//! The figures of a shared store, from which operators see that processes die, wait or lose their leases.

use std::sync::Arc;
use std::time::{Duration, Instant};

use segue_core::value::Value;
use segue_core::view::RunStatus;
use segue_runtime::store::{
    ClaimRequest, Due, JournalStore as _, PostgresOptions, PostgresStore, PostgresUrl,
    RunQueue as _, SharedFigures, Store as _, StoreError, TakeOver,
};

use crate::postgres_server::{database, run_sql};
use crate::stores::{begin, entry, plan_named, record};

/// With a heartbeat every 200 ms.
fn open(url: &str) -> PostgresStore {
    let options =
        PostgresOptions { lease: Duration::from_millis(600), ..PostgresOptions::default() };
    PostgresStore::open(&PostgresUrl::parse(url).unwrap(), options).unwrap()
}

/// The figures as soon as they fit.
async fn figures(store: &PostgresStore, fit: impl Fn(&SharedFigures) -> bool) -> SharedFigures {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let found = store.figures().shared;
        if fit(&found) {
            return found;
        }
        assert!(Instant::now() < until, "{found:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_takeovers_and_refusals_are_counted() {
    let Some(url) = database() else { return };
    let (one, two) = (open(&url), open(&url));
    let lease = begin(&one, "run-a", &plan_named("c")).await;
    let other = begin(&two, "run-b", &plan_named("c")).await;
    two.release_until(&other, Due::OnCommand).await.unwrap();
    one.release_until(&lease, Due::Now).await.unwrap();
    // The one that waits for a command is not due.
    let waiting = figures(&two, |found| found.due == 1 && !found.due_age.is_zero()).await;
    assert_eq!((waiting.claims, waiting.takeovers, waiting.refused), (0, 0, 0), "{waiting:?}");
    let request = ClaimRequest { namespaces: &[], room: 8, except: &[] };
    let claimed = two.claim(request).await.unwrap();
    assert_eq!(claimed.len(), 1);
    let after = figures(&two, |found| found.due == 0).await;
    assert_eq!((after.claims, after.takeovers, after.due_age), (1, 0, Duration::ZERO));
    // Its owner dies.
    run_sql(&url, "UPDATE segue.run SET owner = 'dead' WHERE run_id = 'run-a'").unwrap();
    let run_id: Arc<str> = "run-a".into();
    one.acquire(&run_id, TakeOver::IfAbandoned).await.unwrap();
    assert_eq!(one.figures().shared.takeovers, 1);
    // The one before does not know: its turn is refused, and its calls do not leave.
    let lease = &claimed[0].lease;
    let entries = [entry(1, Value::Null)];
    let written = two.append(lease, record(1, &entries, RunStatus::Running)).await;
    assert!(matches!(written, Err(StoreError::Lost { .. })), "{written:?}");
    assert!(two.hold(lease).await.is_err());
    let last = two.figures().shared;
    assert_eq!((last.refused, last.withheld), (1, 1), "{last:?}");
}

/// A process hears itself, and its heartbeats are answered, until the database is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heartbeats_and_notifications_are_measured() {
    let Some(url) = database() else { return };
    let store = open(&url);
    assert_eq!(store.figures().shared.heartbeat_age, Duration::ZERO);
    begin(&store, "run-a", &plan_named("c")).await;
    let found = figures(&store, |found| !found.notification_lag.is_zero()).await;
    assert!(found.notification_lag < Duration::from_secs(5), "{found:?}");
    assert_eq!(found.lease, Duration::from_millis(600));
    let beats = figures(&store, |found| found.heartbeat_age < found.lease).await;
    assert!(beats.heartbeat_age < beats.lease);
    let name = url.split("@/").nth(1).unwrap().split('?').next().unwrap().to_owned();
    let server = url.replacen(&name, "postgres", 1);
    let shut = format!(
        "ALTER DATABASE {name} ALLOW_CONNECTIONS false;
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
    );
    run_sql(&server, &shut).unwrap();
    figures(&store, |found| found.heartbeat_age > found.lease * 2).await;
}
