//! Reading journals, and taking runs over.

use std::collections::HashMap;
use std::sync::Arc;

use segue_core::run::Entry;
use uuid::Uuid;

use super::Shared;
use super::error::unavailable;
use super::owner::bury;
use super::row::{DbRun, find, hash_of};
use super::session::DbSession;
use crate::store::chain::{ChainEnd, StoredTurn};
use crate::store::pack::Hash;
use crate::store::rules::{take_over, taken};
use crate::store::{Lease, StoreError, TakeOver};

/// Follows the chain from the last turn to the first. The numbers of turns grow, so this ends.
const CHAIN: &str = "WITH RECURSIVE chain AS (
        SELECT number, run, before, bytes, hash FROM turn WHERE number = $1 AND run = $2
        UNION ALL
        SELECT turn.number, turn.run, turn.before, turn.bytes, turn.hash
        FROM chain JOIN turn ON turn.number = chain.before
        WHERE turn.number < chain.number AND turn.run = chain.run
    )
    SELECT bytes, hash FROM chain ORDER BY number";

const PARTS: &str = "SELECT part.hash, part.bytes
    FROM part_use JOIN part ON part.hash = part_use.part WHERE part_use.run = $1";

/// An owner whose lease ended has no row afterwards, so it cannot prolong the lease.
const END_LEASE: &str = bury!("id = $1", " SELECT FROM ended");

const IS_ALIVE: &str = "SELECT 1 FROM worker WHERE id = $1 AND expires_at > clock_timestamp()";

/// Only if no other process changed the run since it was read, its owner is as dead as it was then, and this
/// process is alive.
const TAKE: &str = "UPDATE run SET owner = $3, epoch = $4, claim = $5, set_aside = $6, ticket = $8
    WHERE number = $1 AND epoch = $2
        AND ($7 OR owner IS NULL OR NOT EXISTS (SELECT FROM worker WHERE id = run.owner))
        AND ($3::text IS NULL OR EXISTS (
            SELECT FROM worker WHERE id = $3 AND expires_at > clock_timestamp() FOR KEY SHARE))";

/// Attempts to take a run over that another process changes at the same time.
const ATTEMPTS: usize = 20;

/// The whole journal of a run, with every hash checked.
pub(super) async fn load(session: &DbSession, run_id: &Arc<str>) -> Result<Vec<Entry>, StoreError> {
    loop {
        let Some(stored) = find(session, run_id).await? else { return Ok(Vec::new()) };
        match load_stored(session, &stored).await {
            // It may have been deleted, or a large value with it, between these statements.
            Err(StoreError::Damaged { .. }) if find(session, run_id).await?.is_none() => {}
            loaded => return loaded,
        }
    }
}

/// The journal up to the row that was read: turns are never changed.
pub(super) async fn load_stored(
    session: &DbSession,
    stored: &DbRun,
) -> Result<Vec<Entry>, StoreError> {
    let DbRun { number, row, bundle, head, .. } = stored;
    let end = ChainEnd { run_id: &row.run_id, bundle, length: row.length, head };
    let turns = turns(session, stored).await?.map_err(|what| end.damaged(0, what))?;
    let parts = parts(session, *number).await?;
    end.read(turns.iter(), |hash: &Hash| {
        parts.get(&hash[..]).cloned().ok_or_else(|| "a large value is missing".to_owned())
    })
}

/// The turns of a run, the first one first, or what is wrong with one.
pub(super) async fn turns(
    session: &DbSession,
    stored: &DbRun,
) -> Result<Result<Vec<StoredTurn>, String>, StoreError> {
    let rows = session.query(CHAIN, &[&stored.last, &stored.number]).await?;
    let turn = |row: &tokio_postgres::Row| -> Result<StoredTurn, String> {
        Ok(StoredTurn { bytes: row.get(0), hash: hash_of(row.get(1))? })
    };
    Ok(rows.iter().map(turn).collect())
}

/// The large values of a run, by their hashes.
pub(super) async fn parts(
    session: &DbSession,
    run: i64,
) -> Result<HashMap<Vec<u8>, Vec<u8>>, StoreError> {
    let rows = session.query(PARTS, &[&run]).await?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}

/// Whether an owner is alive.
pub(super) async fn is_alive(session: &DbSession, owner: &str) -> Result<bool, StoreError> {
    Ok(session.query_opt(IS_ALIVE, &[&owner]).await?.is_some())
}

/// Marks what one statement takes: a lost answer does not say which runs they are.
pub(super) fn new_ticket() -> i64 {
    Uuid::new_v4().as_u64_pair().0.cast_signed()
}

/// Takes a run over, or sets it aside.
pub(super) async fn acquire(
    shared: &Shared,
    run_id: &Arc<str>,
    how: TakeOver,
) -> Result<Lease, StoreError> {
    for _ in 0..ATTEMPTS {
        shared.ownership.alive(shared.options.lease).await;
        let me = shared.ownership.name().unwrap_or_default();
        let session = shared.sessions.borrow().await?;
        let unknown = || StoreError::Unknown { run_id: run_id.clone() };
        let before = find(&session, run_id).await?.ok_or_else(unknown)?;
        let mut alive = false;
        if let Some(owner) = &before.row.owner {
            alive = session.query(END_LEASE, &[&&**owner]).await?.is_empty()
                && is_alive(&session, owner).await?;
        }
        let mut after = before.clone();
        take_over(&mut after.row, &mut after.claim, how, &me, |_| alive)?;
        let ticket = new_ticket();
        let written = write_taken(&session, &before, &after, how, ticket).await;
        if written.is_err() {
            // It may be ours now, and no driver knows.
            shared.ownership.give_back_later(ticket);
        }
        if written? {
            let lease = taken(&after.row)?;
            shared.ownership.insert(run_id.clone(), after.held());
            shared.counters.takeovers.add(u64::from(before.row.owner.is_some()));
            return Ok(lease);
        }
    }
    Err(unavailable(format!("run {run_id} changes hands too often")))
}

/// Writes who has the run now, unless it changed hands meanwhile.
async fn write_taken(
    session: &DbSession,
    before: &DbRun,
    after: &DbRun,
    how: TakeOver,
    ticket: i64,
) -> Result<bool, StoreError> {
    let claim = after.claim.map(u64::cast_signed);
    let changed = session
        .execute(
            TAKE,
            &[
                &before.number,
                &before.row.epoch.cast_signed(),
                &after.row.owner.as_deref(),
                &after.row.epoch.cast_signed(),
                &claim,
                &after.row.set_aside.as_deref(),
                &(how == TakeOver::Force),
                &ticket,
            ],
        )
        .await?;
    Ok(changed > 0)
}
