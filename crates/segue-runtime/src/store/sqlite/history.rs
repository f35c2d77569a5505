//! Which runs there are, and forgetting them.

use std::collections::BTreeSet;

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::ack_log;
use super::error::{SqliteError, broken};
use super::owner::Owners;
use super::row::{StoredRun, signed, unknown_run};
use super::{bundle_text, journal};
use crate::store::rules::matches_query;
use crate::store::{Retention, RunListing, RunQuery, StoreError, ToolStats};

/// Runs that are forgotten in one transaction, so that others need not wait long.
const FORGET_TOGETHER: i64 = 100;

/// A page of runs, newest first. Rows are held against their checksums before they are compared
/// with what is wanted: a damaged one is named, never just left out.
pub(super) fn runs(connection: &Connection, query: &RunQuery) -> Result<RunListing, SqliteError> {
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

/// Whether a table and the index of its names tell of as many: a page that lost a row does not say
/// so.
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

/// Every run that is not over, newest first. Asked of the table and of an index: what only one of
/// them knows is damaged.
pub(super) fn unfinished(connection: &Connection) -> Result<RunListing, SqliteError> {
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
    // What is left of the index are runs whose rows are damaged, most of them named above.
    for number in indexed.into_iter().skip(found.damaged.len()) {
        found.damaged.push(unknown_run(format!("#{number}").into()));
    }
    found.damaged.extend(lost);
    Ok(found)
}

/// Some of the runs that ended first and may be forgotten.
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
    let wanted = old.max(surplus).min(FORGET_TOGETHER);
    let sql = "SELECT number FROM run INDEXED BY run_ended WHERE ended_ms IS NOT NULL
               ORDER BY ended_ms, number LIMIT ?1";
    let mut select = connection.prepare_cached(sql)?;
    let ended = select.query_map([wanted.max(0)], |row| row.get(0))?;
    Ok(ended.collect::<Result<_, _>>()?)
}

/// A run that is not what was written.
pub(super) struct Damaged {
    number: i64,
    /// Its name as it stands there, which may be anything.
    name: Value,
    pub(super) error: StoreError,
}

/// Every run that is not what was written.
pub(super) fn damaged(connection: &Connection) -> Result<Vec<Damaged>, SqliteError> {
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

/// Whether a run is what was written: its row, its journal and its plan.
fn check(connection: &Connection, number: i64) -> Result<(), SqliteError> {
    let mut found = None;
    StoredRun::scan(connection, "WHERE number = ?1", [number], |stored| {
        found = Some(stored);
        false
    })?;
    let Some(stored) = found.transpose()? else { return Ok(()) };
    journal::load(connection, &stored.row.run_id)?;
    bundle_text(connection, &stored.row.run_id, &stored.bundle)?;
    Ok(())
}

/// Forgets runs that are damaged, whether they are over or not, unless somebody has them; the answer is
/// how many.
pub(super) fn delete_damaged(
    connection: &Connection,
    found: &[Damaged],
    owners: &Owners,
) -> Result<u64, SqliteError> {
    let sql = "SELECT owner FROM run WHERE number = ?1 AND run_id IS ?2";
    let mut forgotten = 0;
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
        forgotten += 1;
    }
    delete_unused_bundles(connection)?;
    Ok(forgotten)
}

/// Forgets some of the runs that may be forgotten; the answer is how many.
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
    // What was asked for with the first one.
    connection.pragma_update(None, "secure_delete", "fast")?;
    Ok(())
}

fn delete_run(connection: &Connection, run: i64) -> Result<(), SqliteError> {
    // What is forgotten is not left in pages that are free.
    connection.pragma_update(None, "secure_delete", true)?;
    let run_sql = |sql: &str| -> Result<(), SqliteError> {
        connection.prepare_cached(sql)?.execute([run])?;
        Ok(())
    };
    // The chain is followed as far as it is whole.
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

/// What was counted of every tool.
pub(super) fn tool_stats(connection: &Connection) -> Result<Vec<ToolStats>, SqliteError> {
    let mut select = connection.prepare_cached("SELECT stats FROM tool ORDER BY id")?;
    let texts = select.query_map([], |row| row.get::<_, String>(0))?;
    let texts = texts.collect::<Result<Vec<_>, _>>()?;
    // Counts are hints; those that cannot be read are left out.
    Ok(texts.iter().filter_map(|text| serde_json::from_str(text).ok()).collect())
}
