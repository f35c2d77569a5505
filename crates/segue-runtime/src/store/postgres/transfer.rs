//! Ended runs and statistics for another store, and from one.

use std::sync::Arc;

use async_trait::async_trait;

use super::error::broken;
use super::history::bundle_text;
use super::journal::{parts, turns};
use super::row::{DbRun, find};
use super::schema::place_base_in;
use super::session::DbSession;
use super::writer::TURNS_MAX;
use super::{PostgresStore, Shared};
use crate::store::chain::StoredTurn;
use crate::store::run_copy::{RunCopy, StoredParts};
use crate::store::{RunRow, RunTransfer, StoreError, ToolStats};

/// As a turn does. Locked before the transaction gets its number: readers of changes wait for it then.
const LOCK_TURNS: &str = "LOCK TABLE turn IN ROW EXCLUSIVE MODE";

/// A transaction's number, from which those of its turns come.
const NUMBER: &str = "SELECT pg_current_xact_id()::text::bigint";

const BUNDLE: &str = "INSERT INTO bundle (hash, text) VALUES ($1, $2) ON CONFLICT DO NOTHING";

const TURNS: &str = "INSERT INTO turn (number, run, before, bytes, hash)
    SELECT number, $1, before, bytes, hash
    FROM unnest($2::bigint[], $3::bigint[], $4::bytea[], $5::bytea[])
        AS given (number, before, bytes, hash)";

const PART: &str = "INSERT INTO part (hash, bytes) VALUES ($1, $2) ON CONFLICT DO NOTHING";

const PART_USE: &str = "INSERT INTO part_use (run, part) VALUES ($1, $2)";

const RUN: &str = "INSERT INTO run (number, run_id, name, status, plan_hash, bundle, started_ms,
        updated_ms, ended_ms, length, head, last, epoch, principal, toolset)
    VALUES (nextval('run_number'), $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 0, $11, $12, $13)
    ON CONFLICT (run_id) DO NOTHING RETURNING number";

const LAST: &str = "UPDATE run SET last = $2 WHERE number = $1";

const STATS: &str = "INSERT INTO tool (id, stats)
    SELECT * FROM unnest($1::text[], $2::text[]) ON CONFLICT DO NOTHING";

/// Bytes of turns in one statement, about.
const BYTES_MAX: usize = 4 * 1024 * 1024;

#[async_trait]
impl RunTransfer for PostgresStore {
    async fn export_run(&self, run_id: &Arc<str>) -> Result<Option<RunCopy>, StoreError> {
        let run_id = run_id.clone();
        self.on(|shared| async move { export(&*shared.sessions.borrow().await?, &run_id).await })
            .await
    }

    async fn import_run(&self, run: &Arc<RunCopy>) -> Result<bool, StoreError> {
        let run = run.clone();
        self.on(|shared| async move { import(&shared, &run).await }).await
    }

    async fn import_stats(&self, stats: &[ToolStats]) -> Result<u64, StoreError> {
        let stats = stats.to_vec();
        self.on(|shared| async move {
            let ids: Vec<&str> = stats.iter().map(|one| one.tool.as_str()).collect();
            let text = |one| serde_json::to_string(one).expect("statistics have a form in JSON");
            let texts: Vec<String> = stats.iter().map(text).collect();
            shared.sessions.borrow().await?.execute(STATS, &[&ids, &texts]).await
        })
        .await
    }
}

async fn export(session: &DbSession, run_id: &Arc<str>) -> Result<Option<RunCopy>, StoreError> {
    let Some(stored) = find(session, run_id).await? else { return Ok(None) };
    if stored.row.ended_ms.is_none() {
        return Ok(None);
    }
    let damaged = |what| StoreError::Damaged { run_id: run_id.clone(), seq: 0, what };
    let turns = turns(session, &stored).await?.map_err(damaged)?;
    let mut parts = parts(session, stored.number).await?;
    let text = bundle_text(session, &stored).await?;
    let DbRun { row, bundle, head, .. } = stored;
    let part = |hash: &[u8; 32]| {
        parts.remove(&hash[..]).ok_or_else(|| "a large value is missing".to_owned())
    };
    RunCopy::checked(StoredParts { row, bundle, text, head, turns, part }).map(Some)
}

async fn import(shared: &Shared, run: &RunCopy) -> Result<bool, StoreError> {
    let transaction = shared.sessions.borrow().await?.begin().await?;
    transaction.batch(LOCK_TURNS).await?;
    transaction.execute(BUNDLE, &[&&run.bundle.hash[..], &run.bundle.text.as_bytes()]).await?;
    let Some(number) = insert_row(&transaction, run).await? else { return Ok(false) };
    let places = places(shared, &transaction, run.turns.len()).await?;
    insert_turns(&transaction, number, &run.turns, &places).await?;
    for (hash, bytes) in &run.parts {
        transaction.execute(PART, &[&&hash[..], bytes]).await?;
        transaction.execute(PART_USE, &[&number, &&hash[..]]).await?;
    }
    transaction.execute(LAST, &[&number, &places.last().copied().unwrap_or(0)]).await?;
    transaction.commit().await?;
    Ok(true)
}

/// Adds the row; returns its number, and none when there is a run of this id.
async fn insert_row(session: &DbSession, run: &RunCopy) -> Result<Option<i64>, StoreError> {
    let RunRow { run_id, name, status, plan_hash, started_ms, updated_ms, .. } = &run.row;
    let RunRow { ended_ms, length, epoch, caller, .. } = &run.row;
    let principal = caller.as_ref().map(|caller| &*caller.principal);
    let toolset = caller.as_ref().and_then(|caller| caller.toolset.as_deref());
    let added = session
        .query_opt(
            RUN,
            &[
                &&**run_id,
                &&**name,
                &status.as_str(),
                &&**plan_hash,
                &&run.bundle.hash[..],
                &started_ms.cast_signed(),
                &updated_ms.cast_signed(),
                &ended_ms.map(u64::cast_signed),
                &length.cast_signed(),
                &&run.head[..],
                &epoch.cast_signed(),
                &principal,
                &toolset,
            ],
        )
        .await?;
    Ok(added.map(|row| row.get(0)))
}

/// Numbers for so many turns, which grow.
///
/// A transaction has numbers for [`TURNS_MAX`] turns. For more, other transactions lend theirs: they begin
/// after this one, and readers of changes look no further than this one before it ends.
async fn places(
    shared: &Shared,
    transaction: &DbSession,
    count: usize,
) -> Result<Vec<i64>, StoreError> {
    let base = place_base_in(transaction).await?;
    let mut numbers = vec![transaction_number(transaction).await?];
    let per_transaction = usize::try_from(TURNS_MAX).expect("a small number");
    if count > per_transaction {
        let lender = shared.address.connect().await?;
        while numbers.len() * per_transaction < count {
            numbers.push(transaction_number(&lender).await?);
        }
    }
    let of = |number: i64| (0..TURNS_MAX).map(move |nth| base + number * TURNS_MAX + nth);
    Ok(numbers.into_iter().flat_map(of).take(count).collect())
}

async fn transaction_number(session: &DbSession) -> Result<i64, StoreError> {
    let row = session.query_opt(NUMBER, &[]).await?;
    row.map(|row| row.get(0)).ok_or_else(|| broken("a transaction has no number"))
}

async fn insert_turns(
    session: &DbSession,
    run: i64,
    turns: &[StoredTurn],
    places: &[i64],
) -> Result<(), StoreError> {
    let mut first = 0;
    while first < turns.len() {
        let mut bytes = 0;
        let together = turns[first..].iter().take_while(|turn| {
            let fits = bytes < BYTES_MAX;
            bytes += turn.bytes.len();
            fits
        });
        let last = first + together.count();
        let before: Vec<i64> =
            (first..last).map(|at| if at == 0 { 0 } else { places[at - 1] }).collect();
        let texts: Vec<&[u8]> = turns[first..last].iter().map(|turn| &turn.bytes[..]).collect();
        let hashes: Vec<&[u8]> = turns[first..last].iter().map(|turn| &turn.hash[..]).collect();
        session.execute(TURNS, &[&run, &&places[first..last], &before, &texts, &hashes]).await?;
        first = last;
    }
    Ok(())
}
