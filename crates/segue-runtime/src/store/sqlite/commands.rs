//! Commands to the owners of runs, in the table `word`.

use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::Connection;

use super::SqliteStore;
use super::error::SqliteError;
use super::row::{StoredRun, signed};
use crate::store::{CommandQueue, PendingCommand, StoreError};

#[async_trait]
impl CommandQueue for SqliteStore {
    async fn send_command(&self, run_id: &Arc<str>, text: &Arc<str>) -> Result<u64, StoreError> {
        let (run_id, text) = (run_id.clone(), text.clone());
        self.write(move |cache| insert(&cache.connection, &run_id, &text)).await
    }

    async fn pending_commands(&self) -> Result<Vec<PendingCommand>, StoreError> {
        self.read(list).await
    }

    async fn remove_command(&self, number: u64) -> Result<(), StoreError> {
        self.write(move |cache| delete(&cache.connection, number)).await
    }
}

/// Adds a command, and deletes those to runs that have ended.
fn insert(connection: &Connection, run_id: &Arc<str>, text: &Arc<str>) -> Result<u64, SqliteError> {
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

/// Every pending command, the oldest first.
fn list(connection: &Connection) -> Result<Vec<PendingCommand>, SqliteError> {
    let mut select =
        connection.prepare_cached("SELECT number, run_id, text FROM word ORDER BY number")?;
    let commands = select.query_map([], |row| {
        Ok(PendingCommand {
            number: row.get::<_, i64>(0)?.unsigned_abs(),
            run_id: row.get::<_, String>(1)?.into(),
            text: row.get::<_, String>(2)?.into(),
        })
    })?;
    Ok(commands.collect::<Result<_, _>>()?)
}

fn delete(connection: &Connection, number: u64) -> Result<(), SqliteError> {
    connection.prepare_cached("DELETE FROM word WHERE number = ?1")?.execute([signed(number)])?;
    Ok(())
}
