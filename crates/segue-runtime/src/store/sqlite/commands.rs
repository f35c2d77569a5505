//! Words that somebody leaves for whoever has a run.

use std::sync::Arc;

use rusqlite::Connection;

use super::error::SqliteError;
use super::row::StoredRun;
use crate::store::{PendingCommand, StoreError};

/// Leaves a word. Those that came too late, for runs that are over, are thrown away.
pub(super) fn insert(
    connection: &Connection,
    run_id: &Arc<str>,
    text: &Arc<str>,
) -> Result<u64, SqliteError> {
    let unknown = || StoreError::Unknown { run_id: run_id.clone() };
    let row = StoredRun::find(connection, run_id)?.ok_or_else(unknown)?.row;
    if row.ended_ms.is_some() {
        return Err(StoreError::Ended { run_id: run_id.clone(), status: row.status }.into());
    }
    let sql =
        "DELETE FROM word WHERE run_id IN (SELECT run_id FROM run WHERE ended_ms IS NOT NULL)";
    connection.prepare_cached(sql)?.execute([])?;
    let sql = "INSERT INTO word (run_id, text) VALUES (?1, ?2)";
    connection.prepare_cached(sql)?.execute([&**run_id, &**text])?;
    Ok(connection.last_insert_rowid().unsigned_abs())
}

/// Every word that was not taken, in the order in which they were left.
pub(super) fn list(connection: &Connection) -> Result<Vec<PendingCommand>, SqliteError> {
    let mut select =
        connection.prepare_cached("SELECT number, run_id, text FROM word ORDER BY number")?;
    let words = select.query_map([], |row| {
        Ok(PendingCommand {
            number: row.get::<_, i64>(0)?.unsigned_abs(),
            run_id: row.get::<_, String>(1)?.into(),
            text: row.get::<_, String>(2)?.into(),
        })
    })?;
    Ok(words.collect::<Result<_, _>>()?)
}

/// Throws a word away.
pub(super) fn delete(connection: &Connection, number: u64) -> Result<(), SqliteError> {
    let number = i64::try_from(number).unwrap_or(i64::MAX);
    connection.prepare_cached("DELETE FROM word WHERE number = ?1")?.execute([number])?;
    Ok(())
}
