//! Statistics of tools. The writer adds pending counts to the file in a transaction that is there anyway,
//! or before a checkpoint.

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::SqliteStore;
use super::error::SqliteError;
use crate::store::pending_counts::merged;
use crate::store::{StoreError, ToolStatistics, ToolStats};

#[async_trait]
impl ToolStatistics for SqliteStore {
    async fn tool_stats(&self) -> Result<Vec<ToolStats>, StoreError> {
        let mut tools = self.read(read_all).await?;
        self.counts.merge_into(&mut tools);
        Ok(tools)
    }
}

fn read_all(connection: &Connection) -> Result<Vec<ToolStats>, SqliteError> {
    let mut select = connection.prepare_cached("SELECT stats FROM tool ORDER BY id")?;
    let texts = select.query_map([], |row| row.get::<_, String>(0))?;
    let texts = texts.collect::<Result<Vec<_>, _>>()?;
    // Statistics are hints: damaged ones are left out.
    Ok(texts.iter().filter_map(|text| serde_json::from_str(text).ok()).collect())
}

/// Adds to the statistics of a tool. Damaged ones begin anew: they are hints, and no reason to stop a
/// run.
pub(super) fn add(connection: &Connection, more: &ToolStats) -> Result<(), SqliteError> {
    let sql = "SELECT stats FROM tool WHERE id = ?1";
    let mut select = connection.prepare_cached(sql)?;
    let there: Option<String> =
        select.query_row([more.tool.as_str()], |row| row.get(0)).optional()?;
    let text = merged(there.as_deref(), more);
    let sql = "INSERT OR REPLACE INTO tool (id, stats) VALUES (?1, ?2)";
    connection.prepare_cached(sql)?.execute(params![more.tool.as_str(), text])?;
    Ok(())
}
