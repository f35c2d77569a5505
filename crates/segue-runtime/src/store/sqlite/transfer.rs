//! Ended runs and statistics for another store, and from one.

use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::{Connection, params};

use super::error::SqliteError;
use super::row::StoredRun;
use super::run_cache::RunCache;
use super::{SqliteStore, ack_log, bundle_text, journal};
use crate::store::chain::root;
use crate::store::run_copy::{RunCopy, StoredParts};
use crate::store::{RunTransfer, StoreError, ToolStats};

#[async_trait]
impl RunTransfer for SqliteStore {
    async fn export_run(&self, run_id: &Arc<str>) -> Result<Option<RunCopy>, StoreError> {
        let run_id = run_id.clone();
        self.read(move |connection| export(connection, &run_id)).await
    }

    async fn import_run(&self, run: &Arc<RunCopy>) -> Result<bool, StoreError> {
        let run = run.clone();
        self.write(move |cache| import(cache, &run)).await
    }

    async fn import_stats(&self, stats: &[ToolStats]) -> Result<u64, StoreError> {
        let stats = stats.to_vec();
        self.write(move |cache| import_stats(&cache.connection, &stats)).await
    }
}

fn export(connection: &Connection, run_id: &Arc<str>) -> Result<Option<RunCopy>, SqliteError> {
    // All reads see one state of the file.
    let transaction = connection.unchecked_transaction()?;
    let Some(stored) = StoredRun::find(&transaction, run_id)? else { return Ok(None) };
    if stored.row.ended_ms.is_none() {
        return Ok(None);
    }
    let mut turns = journal::turns(&transaction, &stored).map_err(|what| StoreError::Damaged {
        run_id: run_id.clone(),
        seq: 0,
        what,
    })?;
    turns.reverse();
    let text = bundle_text(&transaction, &stored.bundle)?;
    let StoredRun { row, bundle, head, .. } = stored;
    let part = |hash: &_| journal::part(&transaction, hash);
    Ok(Some(RunCopy::checked(StoredParts { row, bundle, text, head, turns, part })?))
}

fn import(cache: &mut RunCache, run: &RunCopy) -> Result<bool, SqliteError> {
    let RunCopy { row, bundle, head, turns, parts } = run;
    if StoredRun::indexed(&cache.connection, &row.run_id)?.is_some() {
        return Ok(false);
    }
    ack_log::check_not_lost(&cache.connection, &row.run_id)?;
    cache.write_bundle(bundle)?;
    let mut stored = StoredRun {
        number: StoredRun::next_number(&cache.connection)?,
        row: row.clone(),
        bundle: bundle.hash,
        head: root(&row.run_id, &bundle.hash),
        last: 0,
        is_apart: false,
        claim: None,
    };
    for turn in turns {
        journal::write_turn(cache, &mut stored, &turn.bytes, turn.hash)?;
    }
    for (hash, bytes) in parts {
        journal::add_part(&cache.connection, stored.number, hash, bytes)?;
    }
    stored.head = *head;
    cache.note_length(&stored);
    stored.insert(&cache.connection)?;
    Ok(true)
}

fn import_stats(connection: &Connection, stats: &[ToolStats]) -> Result<u64, SqliteError> {
    let mut added = 0;
    for one in stats {
        let text = serde_json::to_string(one).expect("statistics have a form in JSON");
        let sql = "INSERT OR IGNORE INTO tool (id, stats) VALUES (?1, ?2)";
        added += connection.prepare_cached(sql)?.execute(params![one.tool.as_str(), text])? as u64;
    }
    Ok(added)
}
