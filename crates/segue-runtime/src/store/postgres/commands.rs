//! Commands to the owners of runs. A notification wakes the owners. A run without an owner becomes due.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::Notify;

use super::PostgresStore;
use super::queue::wake_commanded;
use super::row::find;
use crate::store::{CommandQueue, PendingCommand, StoreError};

const DELETE_LATE: &str = "DELETE FROM command USING run
    WHERE run.run_id = command.run_id AND run.ended_ms IS NOT NULL";

const SEND: &str = "WITH sent AS (
        INSERT INTO command (run_id, text)
        SELECT run_id, $2 FROM run WHERE run_id = $1 AND ended_ms IS NULL
        RETURNING number
    )
    SELECT number, pg_notify('segue_command', '') FROM sent";

#[async_trait]
impl CommandQueue for PostgresStore {
    async fn send_command(&self, run_id: &Arc<str>, text: &Arc<str>) -> Result<u64, StoreError> {
        let (run_id, text) = (run_id.clone(), text.clone());
        self.on(|shared| async move {
            let session = shared.sessions.borrow().await?;
            let unknown = || StoreError::Unknown { run_id: run_id.clone() };
            find(&session, &run_id).await?.ok_or_else(unknown)?;
            session.execute(DELETE_LATE, &[]).await?;
            if let Some(row) = session.query_opt(SEND, &[&&*run_id, &&*text]).await? {
                // A statement of its own, which sees what an owner released before.
                wake_commanded(&session).await?;
                return Ok(row.get::<_, i64>(0).unsigned_abs());
            }
            let row = find(&session, &run_id).await?.ok_or_else(unknown)?.row;
            Err(StoreError::Ended { run_id: run_id.clone(), status: row.status })
        })
        .await
    }

    async fn pending_commands(&self) -> Result<Vec<PendingCommand>, StoreError> {
        self.on(|shared| async move {
            let session = shared.sessions.borrow().await?;
            let sql = "SELECT number, run_id, text FROM command ORDER BY number";
            let rows = session.query(sql, &[]).await?;
            let pending = rows.iter().map(|row| PendingCommand {
                number: row.get::<_, i64>(0).unsigned_abs(),
                run_id: row.get::<_, &str>(1).into(),
                text: row.get::<_, &str>(2).into(),
            });
            Ok(pending.collect())
        })
        .await
    }

    async fn remove_command(&self, number: u64) -> Result<(), StoreError> {
        self.on(move |shared| async move {
            let session = shared.sessions.borrow().await?;
            let number = number.cast_signed();
            session.execute("DELETE FROM command WHERE number = $1", &[&number]).await?;
            Ok(())
        })
        .await
    }

    fn command_signal(&self) -> Option<Arc<Notify>> {
        Some(self.shared.address.signals.commands.clone())
    }
}
