//! The history of runs: listing them, deleting ended ones, and finding damaged ones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::ack_log;
use super::error::{SqliteError, broken};
use super::owner::Owners;
use super::row::{StoredRun, signed, unknown_run};
use super::run_cache::RunCache;
use super::{SqliteStore, bundle_text, journal, schema};
use crate::store::packed_record::checked_bundle;
use crate::store::rules::matches_query;
use crate::store::{
    Retention, RunChange, RunChanges, RunHistory, RunListing, RunQuery, RunRow, StoreError,
};

/// Runs to delete in one transaction, so that writers need not wait long.
const DELETE_TOGETHER: i64 = 100;

/// Turns that one reading of changes looks at.
const CHANGES_TOGETHER: usize = 4_096;

#[async_trait]
impl RunHistory for SqliteStore {
    async fn run(&self, run_id: &Arc<str>) -> Result<Option<RunRow>, StoreError> {
        let run_id = run_id.clone();
        let find = move |connection: &Connection| StoredRun::find(connection, &run_id);
        Ok(self.read(find).await?.map(|stored| stored.row))
    }

    async fn runs(&self, query: &RunQuery) -> Result<RunListing, StoreError> {
        let query = query.clone();
        self.read(move |connection| runs(connection, &query)).await
    }

    async fn changes(&self, since: Option<u64>) -> Result<RunChanges, StoreError> {
        self.read(move |connection| changes(connection, since)).await
    }

    async fn runs_with_prefix(
        &self,
        prefix: &str,
        limit: usize,
    ) -> Result<Vec<RunRow>, StoreError> {
        let prefix = prefix.to_owned();
        let find =
            move |connection: &Connection| StoredRun::with_prefix(connection, &prefix, limit);
        Ok(self.read(find).await?.into_iter().map(|stored| stored.row).collect())
    }

    async fn unfinished(&self) -> Result<RunListing, StoreError> {
        self.read(unfinished).await
    }

    async fn prune(&self, retention: Retention) -> Result<u64, StoreError> {
        let mut deleted = 0;
        loop {
            let delete = move |cache: &mut RunCache| {
                cache.clear();
                prune(&cache.connection, retention)
            };
            match self.write(delete).await? {
                0 => break,
                some => deleted += some,
            }
        }
        if deleted > 0 {
            self.shrink().await;
        }
        Ok(deleted)
    }

    async fn list_damaged(&self) -> Result<Vec<StoreError>, StoreError> {
        let found = self.read(damaged).await?;
        let lost = self.read(ack_log::lost).await?;
        Ok(found.into_iter().map(|found| found.error).chain(lost).collect())
    }

    async fn delete_damaged(&self) -> Result<u64, StoreError> {
        let mut deleted = self.write(|cache| ack_log::clear_lost(&cache.connection)).await?;
        let _ = std::fs::remove_file(schema::sibling_path(&self.readers.path, "-wal-damaged"));
        if !self.read(damaged).await?.is_empty() {
            // A run that only an index lost is whole, and stays. And SQLite cannot delete from an index
            // a row that it does not have.
            let repair = |cache: &mut RunCache| Ok(cache.connection.execute_batch("REINDEX")?);
            self.write(repair).await?;
            let found = self.read(damaged).await?;
            let owners = self.owners.clone();
            let delete = move |cache: &mut RunCache| {
                cache.clear();
                delete_damaged(&cache.connection, &found, &owners)
            };
            deleted += self.write(delete).await?;
            self.shrink().await;
        }
        Ok(deleted)
    }
}

impl SqliteStore {
    /// Gives space back after runs were deleted. When that fails, the file keeps room for other runs.
    async fn shrink(&self) {
        let path = self.readers.path.clone();
        let _ = tokio::task::spawn_blocking(move || schema::shrink(&path)).await;
    }
}

/// A page of runs, newest first. Checksums come before filters: a damaged row is named, never just left
/// out.
fn runs(connection: &Connection, query: &RunQuery) -> Result<RunListing, SqliteError> {
    let transaction = connection.unchecked_transaction()?;
    check_integrity(&transaction, "run", "run_id")?;
    let mut page = RunListing { damaged: ack_log::lost(&transaction)?, ..RunListing::default() };
    let before = query.after.map_or(i64::MAX, signed);
    let sql = "WHERE number < ?1 ORDER BY number DESC";
    StoredRun::scan(&transaction, sql, [before], |stored| {
        match stored {
            Err(damaged) => page.damaged.push(damaged),
            Ok(stored) if matches_query(query, &stored.row) => {
                page.runs.push(stored.row);
                page.next = u64::try_from(stored.number).ok();
            }
            Ok(_) => {}
        }
        page.runs.len() < query.limit
    })?;
    if page.runs.len() < query.limit {
        page.next = None;
    }
    Ok(page)
}

/// The runs with turns behind a number. Numbers of turns grow over all runs and processes, also when
/// turns are deleted, so the table itself is the list of changes.
fn changes(connection: &Connection, since: Option<u64>) -> Result<RunChanges, SqliteError> {
    let transaction = connection.unchecked_transaction()?;
    let last = ack_log::last_commit(&transaction)?;
    let mut found = RunChanges { next: last, ..RunChanges::default() };
    let Some(since) = since else { return Ok(found) };
    found.is_gap = since > last;
    let sql = "SELECT number, run FROM turn WHERE number > ?1 ORDER BY number LIMIT ?2";
    let mut select = transaction.prepare_cached(sql)?;
    let parameters = params![signed(since), signed(CHANGES_TOGETHER as u64)];
    let turns = select.query_map(parameters, |row| Ok((row.get(1)?, row.get(0)?)))?;
    let turns = turns.collect::<Result<Vec<(i64, i64)>, _>>()?;
    if let (true, Some((_, at))) = (turns.len() == CHANGES_TOGETHER, turns.last()) {
        (found.next, found.has_more) = (u64::try_from(*at).unwrap_or(last), true);
    }
    // Of the turns of a run the last one counts.
    for (number, at) in BTreeMap::from_iter(turns) {
        StoredRun::scan(&transaction, "WHERE run.number = ?1", [number], |stored| {
            // A damaged run is named by the list of runs.
            if let Ok(StoredRun { row, .. }) = stored {
                found.runs.push(RunChange { at: u64::try_from(at).unwrap_or(last), row });
            }
            false
        })?;
    }
    found.runs.sort_by_key(|change| change.at);
    Ok(found)
}

/// Whether a table and the index of its names have as many rows: SQLite does not notice a page that lost
/// one.
pub(super) fn check_integrity(
    connection: &Connection,
    table: &str,
    name: &str,
) -> Result<(), SqliteError> {
    let count = |sql: &str| -> Result<i64, SqliteError> {
        Ok(connection.prepare_cached(sql)?.query_row([], |row| row.get(0))?)
    };
    let rows = count(&format!("SELECT count(*) FROM {table} NOT INDEXED"))?;
    let index = format!("sqlite_autoindex_{table}_1");
    let names =
        count(&format!("SELECT count({name}) FROM {table} INDEXED BY {index} WHERE {name} >= ''"))?;
    if rows != names {
        return Err(broken(format!("`{table}` has {rows} rows and {names} names")));
    }
    Ok(())
}

/// Every unfinished run, newest first. Read from the table and from an index: a run that only one of
/// them has is damaged.
fn unfinished(connection: &Connection) -> Result<RunListing, SqliteError> {
    let transaction = connection.unchecked_transaction()?;
    let sql = "SELECT number FROM run INDEXED BY run_unfinished WHERE ended_ms IS NULL";
    let mut select = transaction.prepare_cached(sql)?;
    let numbers = select.query_map([], |row| row.get::<_, i64>(0))?;
    let mut indexed = numbers.collect::<Result<BTreeSet<i64>, _>>()?;
    let mut found = RunListing::default();
    let sql = "WHERE ended_ms IS NULL ORDER BY number DESC";
    StoredRun::scan(&transaction, sql, [], |stored| {
        match stored {
            Ok(stored) => {
                if indexed.remove(&stored.number) {
                    found.runs.push(stored.row);
                } else {
                    found.damaged.push(unknown_run(stored.row.run_id));
                }
            }
            Err(damaged) => found.damaged.push(damaged),
        }
        true
    })?;
    let lost = ack_log::lost(&transaction)?;
    // The index has left the runs whose rows are damaged, most of them named above.
    for number in indexed.into_iter().skip(found.damaged.len()) {
        found.damaged.push(unknown_run(format!("#{number}").into()));
    }
    found.damaged.extend(lost);
    Ok(found)
}

/// Some of the runs that ended first and may be deleted.
fn prunable(connection: &Connection, retention: Retention) -> Result<Vec<i64>, SqliteError> {
    let count = |sql: &str, parameter: i64| -> Result<i64, SqliteError> {
        Ok(connection.prepare_cached(sql)?.query_row([parameter], |row| row.get(0))?)
    };
    let old = retention.ended_before_ms.map_or(Ok(0), |before| {
        count("SELECT count(*) FROM run WHERE ended_ms < ?1", signed(before))
    })?;
    let surplus = retention.keep_last.map_or(Ok(0), |keep| {
        count("SELECT count(*) - ?1 FROM run WHERE ended_ms IS NOT NULL", signed(keep as u64))
    })?;
    let wanted = old.max(surplus).min(DELETE_TOGETHER);
    let sql = "SELECT number FROM run INDEXED BY run_ended WHERE ended_ms IS NOT NULL
               ORDER BY ended_ms, number LIMIT ?1";
    let mut select = connection.prepare_cached(sql)?;
    let ended = select.query_map([wanted.max(0)], |row| row.get(0))?;
    Ok(ended.collect::<Result<_, _>>()?)
}

/// A damaged run.
struct Damaged {
    number: i64,
    /// Its name in the file, which may be anything.
    name: Value,
    error: StoreError,
}

/// Every damaged run.
fn damaged(connection: &Connection) -> Result<Vec<Damaged>, SqliteError> {
    let sql = "SELECT number, run_id FROM run NOT INDEXED ORDER BY number DESC";
    let mut select = connection.prepare_cached(sql)?;
    let all = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let all = all.collect::<Result<Vec<(i64, Value)>, _>>()?;
    let mut found = Vec::new();
    for (number, name) in all {
        match check(connection, number) {
            Ok(()) => {}
            Err(SqliteError::Refused(error)) => found.push(Damaged { number, name, error }),
            Err(fault) => return Err(fault),
        }
    }
    Ok(found)
}

/// Checks a run: its row, its journal and its plan.
fn check(connection: &Connection, number: i64) -> Result<(), SqliteError> {
    let mut found = None;
    StoredRun::scan(connection, "WHERE number = ?1", [number], |stored| {
        found = Some(stored);
        false
    })?;
    let Some(stored) = found.transpose()? else { return Ok(()) };
    journal::load(connection, &stored.row.run_id)?;
    let text = bundle_text(connection, &stored.bundle)?;
    checked_bundle(&stored.row.run_id, &stored.bundle, text)?;
    Ok(())
}

/// Deletes damaged runs, ended or not, unless their owner is alive; returns how many.
fn delete_damaged(
    connection: &Connection,
    found: &[Damaged],
    owners: &Owners,
) -> Result<u64, SqliteError> {
    let sql = "SELECT owner FROM run WHERE number = ?1 AND run_id IS ?2";
    let mut deleted = 0;
    for Damaged { number, name, .. } in found {
        let mut select = connection.prepare_cached(sql)?;
        let owner = select.query_row(params![number, name], |row| row.get(0)).optional()?;
        let is_owned = |owner: &Value| matches!(owner, Value::Text(name) if owners.is_alive(name));
        if owner.is_none_or(|owner| is_owned(&owner)) {
            continue;
        }
        connection.prepare_cached("DELETE FROM turn WHERE run = ?1")?.execute([number])?;
        connection.prepare_cached("DELETE FROM standing WHERE run = ?1")?.execute([number])?;
        delete_run(connection, *number)?;
        deleted += 1;
    }
    delete_unused_bundles(connection)?;
    Ok(deleted)
}

/// Deletes some of the runs that may be deleted; returns how many.
pub(super) fn prune(connection: &Connection, retention: Retention) -> Result<u64, SqliteError> {
    let ended = prunable(connection, retention)?;
    if ended.is_empty() {
        return Ok(0);
    }
    ended.iter().try_for_each(|number| delete_run(connection, *number))?;
    delete_unused_bundles(connection)?;
    Ok(ended.len() as u64)
}

fn delete_unused_bundles(connection: &Connection) -> Result<(), SqliteError> {
    let sql = "DELETE FROM bundle WHERE hash NOT IN (SELECT bundle FROM run)";
    connection.prepare_cached(sql)?.execute([])?;
    // `delete_run` turned it on.
    connection.pragma_update(None, "secure_delete", "fast")?;
    Ok(())
}

fn delete_run(connection: &Connection, run: i64) -> Result<(), SqliteError> {
    // Free pages keep nothing of a deleted run.
    connection.pragma_update(None, "secure_delete", true)?;
    let run_sql = |sql: &str| -> Result<(), SqliteError> {
        connection.prepare_cached(sql)?.execute([run])?;
        Ok(())
    };
    // Follows the chain as far as it is whole.
    run_sql(
        "WITH RECURSIVE chain (number, before) AS (
             SELECT number, before FROM turn
             WHERE number = (SELECT last FROM run WHERE number = ?1) AND run = ?1
             UNION ALL
             SELECT turn.number, turn.before FROM chain
             JOIN turn ON turn.number = chain.before AND turn.number < chain.number
             WHERE turn.run = ?1
         )
         DELETE FROM turn WHERE number IN (SELECT number FROM chain)",
    )?;
    run_sql(
        "DELETE FROM part WHERE number IN (SELECT part FROM part_use WHERE run = ?1)
         AND NOT EXISTS (SELECT 1 FROM part_use WHERE part = number AND run <> ?1)",
    )?;
    run_sql("DELETE FROM part_use WHERE run = ?1")?;
    run_sql("DELETE FROM run WHERE number = ?1")
}
