//! Statistics of tools. Pending counts are added with a heartbeat, and when the store is closed.

use std::sync::Arc;

use async_trait::async_trait;

use super::{PostgresStore, Shared};
use crate::store::pending_counts::merged;
use crate::store::{StoreError, ToolStatistics, ToolStats};

const NAME: &str = "INSERT INTO tool (id, stats)
    SELECT id, '' FROM unnest($1::text[]) AS id ORDER BY id ON CONFLICT DO NOTHING";

const LOCK: &str = "SELECT id, stats FROM tool WHERE id = ANY ($1) ORDER BY id FOR UPDATE";

const WRITE: &str = "UPDATE tool SET stats = more.stats
    FROM unnest($1::text[], $2::text[]) AS more (id, stats) WHERE tool.id = more.id";

#[async_trait]
impl ToolStatistics for PostgresStore {
    async fn tool_stats(&self) -> Result<Vec<ToolStats>, StoreError> {
        self.on(|shared| async move {
            let session = shared.sessions.borrow().await?;
            let rows = session.query("SELECT stats FROM tool ORDER BY id", &[]).await?;
            let texts = rows.iter().map(|row| row.get::<_, &str>(0));
            // Statistics are hints: damaged ones are left out.
            let mut tools = texts.filter_map(|text| serde_json::from_str(text).ok()).collect();
            shared.counts.merge_into(&mut tools);
            Ok(tools)
        })
        .await
    }
}

impl Shared {
    /// Adds the pending counts to those of the database. They are hints: an error loses them.
    pub(super) async fn flush_counts(self: &Arc<Shared>) -> Result<(), StoreError> {
        let counts = self.counts.take(1);
        if counts.is_empty() {
            return Ok(());
        }
        let ids: Vec<&str> = counts.iter().map(|stats| stats.tool.as_str()).collect();
        let session = self.sessions.borrow().await?.begin().await?;
        session.execute(NAME, &[&ids]).await?;
        let there = session.query(LOCK, &[&ids]).await?;
        let texts: Vec<String> = counts
            .iter()
            .map(|stats| {
                let known = there.iter().find(|row| row.get::<_, &str>(0) == stats.tool.as_str());
                merged(known.map(|row| row.get(1)), stats)
            })
            .collect();
        session.execute(WRITE, &[&ids, &texts]).await?;
        session.commit().await
    }
}
