//! The queue of runs: which of them are due, and which process takes them.
//!
//! A run without an owner has a time from which on it is due. No turn changes that time, so its index costs
//! a run that moves nothing. A run whose owner died is taken whatever its time is: nobody knows what it
//! waits for.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use segue_core::id::ToolId;
use segue_core::plan::Plan;
use segue_core::tool::{BUILTIN, COMPOSITION};
use tokio::sync::Notify;
use tokio_postgres::Row;

use super::journal::new_ticket;
use super::owner::{self, bury};
use super::row::{DbRun, select_runs};
use super::session::DbSession;
use super::{PostgresStore, Shared};
use crate::store::rules::DIED_TWICE;
use crate::store::{
    ClaimRequest, ClaimedRun, Due, Lease, RunHistory as _, RunQueue, StoreError, WorkerInfo,
    WorkerRow,
};

/// The owners of runs, each found by one step in the index.
macro_rules! owners {
    ($rest:literal) => {
        concat!(
            "(WITH RECURSIVE owners AS (
                (SELECT owner FROM run WHERE owner IS NOT NULL ORDER BY owner LIMIT 1)
                UNION ALL
                SELECT (SELECT run.owner FROM run WHERE run.owner > owners.owner
                    ORDER BY run.owner LIMIT 1)
                FROM owners WHERE owners.owner IS NOT NULL
            )
            SELECT owner FROM owners WHERE owner IS NOT NULL AND ",
            $rest,
            ")"
        )
    };
}

/// Ends the leases that are over, then takes runs of dead owners, then runs that are due. A row that
/// another process takes at the same time is left to it. The rule is that of `rules::take_over`. A process
/// whose own lease has ended takes nothing: others would see its runs as those of a dead owner, and set them
/// aside. The lock of its row holds off those that would delete it, and not its heartbeat.
const CLAIM: &str = bury!(
    "id <> ALL ($1)",
    concat!(
        ", me AS MATERIALIZED (
            SELECT FROM worker WHERE id = $5 AND expires_at > clock_timestamp() FOR KEY SHARE
        ), dead AS MATERIALIZED ",
        owners!(
            "owner <> ALL ($1) AND (NOT EXISTS (SELECT FROM worker WHERE id = owner)
                OR owner IN (SELECT id FROM ended))"
        ),
        ", abandoned AS MATERIALIZED (
            SELECT number FROM run
            WHERE EXISTS (SELECT FROM me)
                AND owner = ANY (ARRAY(SELECT owner FROM dead)) AND ended_ms IS NULL
                AND set_aside IS NULL AND namespaces <@ $2 AND run_id <> ALL ($3)
            ORDER BY due_at LIMIT $4 FOR UPDATE SKIP LOCKED
        ), free AS MATERIALIZED (
            SELECT number FROM run
            WHERE EXISTS (SELECT FROM me)
                AND ended_ms IS NULL AND owner IS NULL AND set_aside IS NULL
                AND due_at <= statement_timestamp() AND namespaces <@ $2 AND run_id <> ALL ($3)
            ORDER BY due_at LIMIT $4 - (SELECT count(*) FROM abandoned) FOR UPDATE SKIP LOCKED
        ), run AS (
            UPDATE run SET
                owner = CASE WHEN owner IS NULL OR claim IS NULL THEN $5 END,
                set_aside = CASE WHEN owner IS NOT NULL AND claim IS NOT NULL THEN $6 END,
                claim = CASE WHEN owner IS NOT NULL THEN length END,
                epoch = epoch + 1,
                ticket = $7
            WHERE number = ANY (ARRAY(
                SELECT number FROM abandoned UNION ALL SELECT number FROM free))
            RETURNING *
        ) ",
        select_runs!("ORDER BY run.due_at")
    )
);

const SET_ASIDE: &str = "UPDATE run SET owner = NULL, epoch = epoch + 1, set_aside = $2
    WHERE number = $1 AND owner = $3";

const DUE: &str = concat!(
    "WITH dead AS MATERIALIZED ",
    owners!(
        "NOT EXISTS (SELECT FROM worker WHERE id = owner AND expires_at > statement_timestamp())"
    ),
    "(SELECT run_id, due_at FROM run
        WHERE owner = ANY (ARRAY(SELECT owner FROM dead)) AND ended_ms IS NULL AND set_aside IS NULL
        ORDER BY due_at LIMIT $1)
    UNION ALL
    (SELECT run_id, due_at FROM run
        WHERE ended_ms IS NULL AND owner IS NULL AND set_aside IS NULL
            AND due_at <= statement_timestamp()
        ORDER BY due_at LIMIT $1)
    ORDER BY due_at LIMIT $1"
);

/// Makes runs due that wait for a command which is there.
const WAKE_COMMANDED: &str = "WITH woken AS (
        UPDATE run SET due_at = statement_timestamp()
        WHERE run_id = ANY (ARRAY(SELECT DISTINCT run_id FROM command))
            AND owner IS NULL AND ended_ms IS NULL AND due_at > statement_timestamp()
        RETURNING number
    )
    SELECT pg_notify('segue_due', '') FROM woken";

const WORKERS: &str = "SELECT id, host, version, namespaces, tools_hash, room,
        (extract(epoch FROM started_at) * 1000)::bigint,
        greatest(0, extract(epoch FROM clock_timestamp() - beat_at) * 1000)::bigint,
        is_alive AND expires_at > clock_timestamp(),
        (SELECT count(*) FROM run WHERE run.owner = id)
    FROM (SELECT *, true AS is_alive FROM worker UNION ALL SELECT *, false FROM dead_worker)
        AS worker
    ORDER BY started_at, id";

/// The namespaces of the tools that a run may call, one a line, without those that every process has.
pub(super) fn needed_namespaces(plan: &Plan) -> String {
    let tools = plan.callable_tools();
    let namespaces: BTreeSet<&str> = tools
        .keys()
        .map(ToolId::namespace)
        .filter(|namespace| ![BUILTIN, COMPOSITION].contains(namespace))
        .collect();
    Vec::from_iter(namespaces).join("\n")
}

/// What a process claims.
struct Wanted {
    namespaces: Vec<Arc<str>>,
    room: i64,
    except: Vec<Arc<str>>,
}

#[async_trait]
impl RunQueue for PostgresStore {
    fn is_shared(&self) -> bool {
        true
    }

    async fn claim(&self, request: ClaimRequest<'_>) -> Result<Vec<ClaimedRun>, StoreError> {
        self.owner().await?;
        let wanted = Wanted {
            namespaces: request.namespaces.to_vec(),
            room: i64::try_from(request.room).unwrap_or(i64::MAX),
            except: request.except.to_vec(),
        };
        self.taking(
            move |shared| async move { claim(&shared, &wanted).await },
            |claimed: &Vec<ClaimedRun>| claimed.iter().map(|run| run.lease.clone()).collect(),
        )
        .await
    }

    async fn release_until(&self, lease: &Lease, due: Due) -> Result<(), StoreError> {
        let released = lease.clone();
        let released = self.on(move |shared| async move {
            match owner::release_now(&shared, &released, due).await {
                // A living owner would keep a run that nobody drives.
                Err(error) => {
                    shared.ownership.release_later(released, due);
                    Err(error)
                }
                released => released,
            }
        });
        if released.await? {
            return Ok(());
        }
        let Lease { run_id, epoch } = lease.clone();
        match self.run(&run_id).await? {
            Some(row) if row.epoch != epoch => {
                Err(StoreError::Lost { run_id, epoch, actual: row.epoch })
            }
            Some(_) => Ok(()),
            None => Err(StoreError::Unknown { run_id }),
        }
    }

    async fn due_runs(&self, limit: usize) -> Result<Vec<Arc<str>>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.on(move |shared| async move {
            let rows = shared.sessions.borrow().await?.query(DUE, &[&limit]).await?;
            Ok(rows.iter().map(|row| row.get::<_, &str>(0).into()).collect())
        })
        .await
    }

    fn due_signal(&self) -> Option<Arc<Notify>> {
        Some(self.shared.address.signals.due.clone())
    }

    async fn announce(&self, info: WorkerInfo) -> Result<(), StoreError> {
        self.owner().await?;
        self.on(|shared| async move { owner::announce(&shared, info).await }).await
    }

    async fn workers(&self) -> Result<Vec<WorkerRow>, StoreError> {
        self.on(|shared| async move {
            let rows = shared.sessions.borrow().await?.query(WORKERS, &[]).await?;
            Ok(rows.iter().map(worker).collect())
        })
        .await
    }
}

async fn claim(shared: &Shared, wanted: &Wanted) -> Result<Vec<ClaimedRun>, StoreError> {
    let texts = |texts: &[Arc<str>]| -> Vec<String> {
        texts.iter().filter(|text| !text.contains('\0')).map(ToString::to_string).collect()
    };
    let names = texts(&shared.ownership.names());
    let (namespaces, except) = (texts(&wanted.namespaces), texts(&wanted.except));
    let ticket = new_ticket();
    let session = shared.sessions.borrow().await?;
    // It may have got a new name while it waited for a connection.
    let me = shared.ownership.name().unwrap_or_default();
    let claimed = session
        .query(CLAIM, &[&names, &namespaces, &except, &wanted.room, &&*me, &DIED_TWICE, &ticket])
        .await;
    if claimed.is_err() {
        // They may be ours now, and no driver knows.
        shared.ownership.give_back_later(ticket);
    }
    let mut runs = Vec::new();
    for row in &claimed? {
        match DbRun::read(row) {
            // One that is set aside has no owner.
            Ok(stored) if stored.row.set_aside.is_some() => {}
            Ok(stored) => {
                let lease = Lease { run_id: stored.row.run_id.clone(), epoch: stored.row.epoch };
                shared.ownership.insert(lease.run_id.clone(), stored.held());
                shared.counters.claims.add(1);
                // One without an owner has no claim.
                shared.counters.takeovers.add(u64::from(stored.claim.is_some()));
                runs.push(ClaimedRun { row: stored.row, lease });
            }
            Err(damage) => {
                let number: i64 = row.get(0);
                let noted =
                    session.execute(SET_ASIDE, &[&number, &damage.to_string(), &&*me]).await;
                if let Err(error) = noted {
                    // The caller hears of none of them.
                    shared.ownership.give_back_later(ticket);
                    return Err(error);
                }
            }
        }
    }
    Ok(runs)
}

/// Makes runs due that wait for a command which is there, and wakes the processes that may claim them.
pub(super) async fn wake_commanded(session: &DbSession) -> Result<(), StoreError> {
    session.query(WAKE_COMMANDED, &[]).await.map(drop)
}

fn worker(row: &Row) -> WorkerRow {
    let text = |column| -> Arc<str> { row.get::<_, &str>(column).into() };
    let number = |column| row.get::<_, i64>(column).unsigned_abs();
    let namespaces: Vec<&str> = row.get(3);
    WorkerRow {
        id: text(0),
        info: WorkerInfo {
            host: text(1),
            version: text(2),
            namespaces: namespaces.into_iter().map(Into::into).collect(),
            tools_hash: text(4),
            room: usize::try_from(number(5)).unwrap_or(usize::MAX),
        },
        started_ms: number(6),
        beat_ago_ms: number(7),
        is_alive: row.get(8),
        runs: number(9),
    }
}
