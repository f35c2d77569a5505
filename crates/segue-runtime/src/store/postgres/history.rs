//! The history of runs: listing them, deleting ended ones, and finding damaged ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;

use super::error::broken;
use super::journal::{is_alive, load_stored};
use super::row::{DbRun, find, select, select_runs};
use super::session::DbSession;
use super::writer::TURNS_MAX;
use super::{PostgresStore, Shared};
use crate::store::packed_record::checked_bundle;
use crate::store::{
    Retention, RunChange, RunChanges, RunHistory, RunListing, RunQuery, RunRow, StoreError,
};

/// Runs to delete in one transaction.
const DELETE_TOGETHER: i64 = 100;

/// Turns that one reading of changes looks at.
const CHANGES_TOGETHER: u32 = 4_096;

/// Runs that one reading checks for damage.
const CHECK_TOGETHER: i64 = 200;

const RUNS: &str = select_runs!(
    "WHERE number < $1
        AND ($2::text[] IS NULL OR status = ANY ($2))
        AND ($3::text IS NULL OR strpos(name, $3) > 0)
        AND ($4::bigint IS NULL OR started_ms >= $4)
        AND ($5::bigint IS NULL OR started_ms < $5)
        AND ($6::text IS NULL OR principal = $6)
    ORDER BY number DESC LIMIT $7"
);

/// The number up to which transactions are over, and those below it that still write turns. A transaction
/// locks the table `turn` before it gets its number, and ends before it gives the lock back.
const WRITING: &str = "SELECT place_base, pg_snapshot_xmax(pg_current_snapshot())::text::bigint,
        (SELECT coalesce(array_agg(own.transactionid::text::bigint), '{}') FROM pg_locks own
            JOIN pg_locks held USING (pid)
            WHERE own.locktype = 'transactionid' AND own.mode = 'ExclusiveLock' AND own.granted
                AND held.locktype = 'relation' AND held.relation = 'segue.turn'::regclass
                AND held.database =
                    (SELECT oid FROM pg_database WHERE datname = current_database())
                AND held.mode = 'RowExclusiveLock')
    FROM store";

const CHANGED: &str = "SELECT number, run FROM turn WHERE number > $1 AND number <= $2
    ORDER BY number LIMIT $3";

/// One process prunes at a time, so that each counts what the others left: `Segp`.
const PRUNE_LOCK: &str = "SELECT pg_advisory_xact_lock(1399154544)";

const PRUNABLE: &str = "SELECT greatest(
        (SELECT count(*) FROM run WHERE ended_ms < $1),
        (SELECT count(*) - $2 FROM run WHERE ended_ms IS NOT NULL))";

/// Locked, so that none is rolled back meanwhile.
const PRUNED: &str = "SELECT number, bundle, run_id FROM run WHERE ended_ms IS NOT NULL
    ORDER BY ended_ms, number LIMIT $1 FOR UPDATE SKIP LOCKED";

/// Follows the chains as far as they are whole.
const DELETE_TURNS: &str = "WITH RECURSIVE chain AS (
        SELECT turn.number, turn.run, turn.before FROM run
        JOIN turn ON turn.number = run.last AND turn.run = run.number
        WHERE run.number = ANY ($1)
        UNION ALL
        SELECT turn.number, turn.run, turn.before FROM chain
        JOIN turn ON turn.number = chain.before
        WHERE turn.number < chain.number AND turn.run = chain.run
    )
    DELETE FROM turn USING chain WHERE turn.number = chain.number";

/// A transaction that begins to use a value or a plan holds a lock on it. The deletion that follows sees
/// what that transaction wrote, because its statement begins after the lock was there.
const LOCK_PARTS: &str = "SELECT FROM part WHERE hash = ANY ($1) ORDER BY hash FOR UPDATE";
const LOCK_BUNDLES: &str = "SELECT FROM bundle WHERE hash = ANY ($1) ORDER BY hash FOR UPDATE";

#[async_trait]
impl RunHistory for PostgresStore {
    async fn run(&self, run_id: &Arc<str>) -> Result<Option<RunRow>, StoreError> {
        let run_id = run_id.clone();
        self.on(|shared| async move {
            let session = shared.sessions.borrow().await?;
            Ok(find(&session, &run_id).await?.map(|stored| stored.row))
        })
        .await
    }

    async fn runs(&self, query: &RunQuery) -> Result<RunListing, StoreError> {
        let query = query.clone();
        self.on(|shared| async move { runs(&*shared.sessions.borrow().await?, &query).await }).await
    }

    async fn changes(&self, since: Option<u64>) -> Result<RunChanges, StoreError> {
        self.on(
            move |shared| async move { changes(&*shared.sessions.borrow().await?, since).await },
        )
        .await
    }

    async fn runs_with_prefix(
        &self,
        prefix: &str,
        limit: usize,
    ) -> Result<Vec<RunRow>, StoreError> {
        let prefix = prefix.to_owned();
        self.on(move |shared| async move {
            if prefix.contains('\0') {
                return Ok(Vec::new());
            }
            // Ids are compared by their bytes.
            let end = format!("{prefix}{}", char::MAX);
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            let sql = select_runs!("WHERE run_id >= $1 AND run_id < $2 ORDER BY run_id LIMIT $3");
            let session = shared.sessions.borrow().await?;
            let found = select(&session, sql, &[&prefix, &end, &limit]).await?;
            found.into_iter().map(|stored| Ok(stored?.row)).collect()
        })
        .await
    }

    async fn unfinished(&self) -> Result<RunListing, StoreError> {
        self.on(|shared| async move {
            let session = shared.sessions.borrow().await?;
            let sql = select_runs!("WHERE ended_ms IS NULL ORDER BY number DESC");
            let mut listing = RunListing::default();
            for stored in select(&session, sql, &[]).await? {
                match stored {
                    Ok(stored) => listing.runs.push(stored.row),
                    Err(damaged) => listing.damaged.push(damaged),
                }
            }
            Ok(listing)
        })
        .await
    }

    async fn prune(&self, retention: Retention) -> Result<u64, StoreError> {
        self.on(move |shared| async move {
            let mut deleted = 0;
            loop {
                match prune(&shared, retention).await? {
                    0 => return Ok(deleted),
                    some => deleted += some,
                }
            }
        })
        .await
    }

    async fn list_damaged(&self) -> Result<Vec<StoreError>, StoreError> {
        self.on(|shared| async move {
            let session = shared.sessions.borrow().await?;
            Ok(damaged(&session).await?.into_iter().map(|(_, error)| error).collect())
        })
        .await
    }

    async fn delete_damaged(&self) -> Result<u64, StoreError> {
        self.on(|shared| async move {
            let found = damaged(&*shared.sessions.borrow().await?).await?;
            let mut deleted = 0;
            for (number, _) in found {
                deleted += u64::from(delete_damaged(&shared, number).await?);
            }
            Ok(deleted)
        })
        .await
    }
}

/// A page of runs, newest first.
async fn runs(session: &DbSession, query: &RunQuery) -> Result<RunListing, StoreError> {
    let before = query.after.map_or(i64::MAX, u64::cast_signed);
    let statuses: Vec<&str> = query.statuses.iter().map(|status| status.as_str()).collect();
    let statuses = Some(statuses).filter(|statuses| !statuses.is_empty());
    let (since, until) = (query.since_ms.map(clamped), query.before_ms.map(clamped));
    let limit = i64::try_from(query.limit).unwrap_or(i64::MAX);
    if [&query.name, &query.principal].into_iter().flatten().any(|text| text.contains('\0')) {
        return Ok(RunListing::default());
    }
    let found = select(
        session,
        RUNS,
        &[
            &before,
            &statuses,
            &query.name.as_deref(),
            &since,
            &until,
            &query.principal.as_deref(),
            &limit,
        ],
    )
    .await?;
    let mut page = RunListing::default();
    for stored in found {
        match stored {
            Ok(stored) => {
                page.next = u64::try_from(stored.number).ok();
                page.runs.push(stored.row);
            }
            Err(damaged) => page.damaged.push(damaged),
        }
    }
    if page.runs.len() + page.damaged.len() < query.limit {
        page.next = None;
    }
    Ok(page)
}

fn clamped(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The number up to which every turn is there that ever will be.
async fn last_place(session: &DbSession) -> Result<i64, StoreError> {
    let row = session.query_opt(WRITING, &[]).await?;
    let row = row.ok_or_else(|| broken("the table `store` is empty"))?;
    let (base, next, writing): (i64, i64, Vec<i64>) = (row.get(0), row.get(1), row.get(2));
    // The lock table has the lower half of a transaction's number.
    let behind = |number: i64| next.wrapping_sub(number) & i64::from(u32::MAX);
    let oldest = writing.into_iter().map(behind).filter(|behind| *behind <= i64::from(i32::MAX));
    Ok(base + (next - oldest.max().unwrap_or(0)) * TURNS_MAX - 1)
}

/// The runs with turns behind a number.
async fn changes(session: &DbSession, since: Option<u64>) -> Result<RunChanges, StoreError> {
    let last = last_place(session).await?;
    let mut found = RunChanges { next: last.unsigned_abs(), ..RunChanges::default() };
    let Some(since) = since else { return Ok(found) };
    let since = clamped(since);
    if since > last {
        found.is_gap = true;
        return Ok(found);
    }
    let together = i64::from(CHANGES_TOGETHER);
    let turns = session.query(CHANGED, &[&since, &last, &together]).await?;
    let turns = turns.iter().map(|row| (row.get::<_, i64>(1), row.get::<_, i64>(0)));
    let turns: Vec<(i64, i64)> = turns.collect();
    if let (true, Some((_, at))) = (turns.len() == CHANGES_TOGETHER as usize, turns.last()) {
        (found.next, found.has_more) = (at.unsigned_abs(), true);
    }
    // Of the turns of a run the last one counts.
    let changed = BTreeMap::from_iter(turns);
    let numbers: Vec<i64> = changed.keys().copied().collect();
    let rows = select(session, select_runs!("WHERE number = ANY ($1)"), &[&numbers]).await?;
    // A damaged run is named by the list of runs.
    found.runs.extend(
        rows.into_iter().flatten().map(|stored| RunChange {
            at: changed[&stored.number].unsigned_abs(),
            row: stored.row,
        }),
    );
    found.runs.sort_by_key(|change| change.at);
    Ok(found)
}

/// Deletes some of the runs that may be deleted; returns how many.
async fn prune(shared: &Arc<Shared>, retention: Retention) -> Result<u64, StoreError> {
    let transaction = shared.sessions.borrow().await?.begin().await?;
    transaction.batch(PRUNE_LOCK).await?;
    let before = retention.ended_before_ms.map_or(i64::MIN, clamped);
    let keep = retention.keep_last.map_or(i64::MAX, |keep| clamped(keep as u64));
    let wanted = transaction.query_opt(PRUNABLE, &[&before, &keep]).await?;
    let wanted = wanted.map_or(0, |row| row.get::<_, i64>(0)).clamp(0, DELETE_TOGETHER);
    let ended = transaction.query(PRUNED, &[&wanted]).await?;
    let numbers: Vec<i64> = ended.iter().map(|row| row.get(0)).collect();
    delete_runs(&transaction, &numbers).await?;
    transaction.commit().await?;
    Ok(numbers.len() as u64)
}

/// Deletes runs with everything that only they use.
async fn delete_runs(session: &DbSession, numbers: &[i64]) -> Result<(), StoreError> {
    if numbers.is_empty() {
        return Ok(());
    }
    session.execute(DELETE_TURNS, &[&numbers]).await?;
    let sql = "DELETE FROM part_use WHERE run = ANY ($1) RETURNING part";
    let parts = session.query(sql, &[&numbers]).await?;
    let parts: Vec<&[u8]> = parts.iter().map(|row| row.get(0)).collect();
    session.query(LOCK_PARTS, &[&parts]).await?;
    let sql = "DELETE FROM part WHERE hash = ANY ($1)
        AND NOT EXISTS (SELECT FROM part_use WHERE part_use.part = part.hash)";
    session.execute(sql, &[&parts]).await?;
    let sql = "DELETE FROM command USING run
        WHERE run.number = ANY ($1) AND command.run_id = run.run_id";
    session.execute(sql, &[&numbers]).await?;
    let sql = "DELETE FROM run WHERE number = ANY ($1) RETURNING bundle";
    let bundles = session.query(sql, &[&numbers]).await?;
    let bundles: Vec<&[u8]> = bundles.iter().map(|row| row.get(0)).collect();
    session.query(LOCK_BUNDLES, &[&bundles]).await?;
    let sql = "DELETE FROM bundle WHERE hash = ANY ($1)
        AND NOT EXISTS (SELECT FROM run WHERE run.bundle = bundle.hash)";
    session.execute(sql, &[&bundles]).await?;
    Ok(())
}

/// Every damaged run, with its number.
async fn damaged(session: &DbSession) -> Result<Vec<(i64, StoreError)>, StoreError> {
    let (mut found, mut before) = (Vec::new(), i64::MAX);
    loop {
        let sql = "SELECT number FROM run WHERE number < $1 ORDER BY number DESC LIMIT $2";
        let numbers = session.query(sql, &[&before, &CHECK_TOGETHER]).await?;
        let Some(last) = numbers.last() else { return Ok(found) };
        before = last.get(0);
        for row in &numbers {
            let number: i64 = row.get(0);
            match check(session, number).await {
                Ok(()) => {}
                Err(error @ StoreError::Damaged { .. }) => found.push((number, error)),
                Err(error) => return Err(error),
            }
        }
    }
}

/// Checks a run: its row, its journal and its plan.
async fn check(session: &DbSession, number: i64) -> Result<(), StoreError> {
    let rows = select(session, select_runs!("WHERE number = $1"), &[&number]).await?;
    let Some(stored) = rows.into_iter().next().transpose()? else { return Ok(()) };
    let checked = async {
        load_stored(session, &stored).await?;
        let text = bundle_text(session, &stored).await?;
        checked_bundle(&stored.row.run_id, &stored.bundle, text)
    };
    match checked.await {
        // Deleted meanwhile.
        Err(StoreError::Damaged { .. }) if find(session, &stored.row.run_id).await?.is_none() => {
            Ok(())
        }
        checked => checked.map(drop),
    }
}

/// The stored form of a run's plan.
pub(super) async fn bundle_text(
    session: &DbSession,
    stored: &DbRun,
) -> Result<Option<String>, StoreError> {
    let sql = "SELECT text FROM bundle WHERE hash = $1";
    let row = session.query_opt(sql, &[&&stored.bundle[..]]).await?;
    Ok(row.and_then(|row| String::from_utf8(row.get(0)).ok()))
}

/// Deletes a damaged run, ended or not, unless its owner is alive; returns whether it did.
async fn delete_damaged(shared: &Arc<Shared>, number: i64) -> Result<bool, StoreError> {
    let transaction = shared.sessions.borrow().await?.begin().await?;
    let sql = "SELECT owner FROM run WHERE number = $1 FOR UPDATE";
    let Some(row) = transaction.query_opt(sql, &[&number]).await? else { return Ok(false) };
    if let Some(owner) = row.get::<_, Option<&str>>(0)
        && is_alive(&transaction, owner).await?
    {
        return Ok(false);
    }
    let sql = "DELETE FROM turn WHERE run = $1";
    transaction.execute(sql, &[&number]).await?;
    delete_runs(&transaction, &[number]).await?;
    transaction.commit().await?;
    Ok(true)
}
