//! Statistics of tools. Processes count in memory and add their counts to the file now and then: in a
//! transaction that is there anyway, or before a checkpoint. A crash loses the last second of them.

use std::collections::BTreeMap;

use async_trait::async_trait;
use parking_lot::Mutex;
use rusqlite::{Connection, OptionalExtension as _, params};
use segue_core::id::ToolId;

use super::SqliteStore;
use super::error::SqliteError;
use crate::store::{Measured, StoreError, ToolStatistics, ToolStats};

/// Calls that wait to be counted at most.
const UNCOUNTED_MAX: usize = 2_048;

/// Counts that are not in the file yet.
#[derive(Debug, Default)]
pub(super) struct PendingCounts(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    tools: BTreeMap<ToolId, ToolStats>,
    /// Calls that are not counted yet.
    uncounted: Vec<Measured>,
}

impl Counts {
    fn catch_up(&mut self) {
        for call in self.uncounted.drain(..) {
            match self.tools.get_mut(&call.tool) {
                Some(stats) => stats.add(&call),
                None => {
                    let mut stats = ToolStats::new(call.tool.clone());
                    stats.add(&call);
                    self.tools.insert(call.tool, stats);
                }
            }
        }
    }
}

impl PendingCounts {
    /// Takes calls. The writer counts them: a run does not wait for that.
    pub(super) fn add(&self, measured: &[Measured]) {
        let mut counts = self.0.lock();
        counts.uncounted.extend_from_slice(measured);
        if counts.uncounted.len() >= UNCOUNTED_MAX {
            counts.catch_up();
        }
    }

    /// Counts what [`PendingCounts::add`] took.
    pub(super) fn catch_up(&self) {
        self.0.lock().catch_up();
    }

    /// Adds them to the statistics from the file.
    fn merge_into(&self, tools: &mut Vec<ToolStats>) {
        let mut counts = self.0.lock();
        counts.catch_up();
        for stats in counts.tools.values() {
            match tools.binary_search_by(|known| known.tool.cmp(&stats.tool)) {
                Ok(at) => tools[at].merge(stats),
                Err(at) => tools.insert(at, stats.clone()),
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        let counts = self.0.lock();
        counts.tools.is_empty() && counts.uncounted.is_empty()
    }

    /// Takes all of them, if there are so many calls.
    pub(super) fn take(&self, calls_min: u64) -> Vec<ToolStats> {
        let mut counts = self.0.lock();
        counts.catch_up();
        let calls: u64 = counts.tools.values().map(|stats| stats.calls).sum();
        if calls < calls_min {
            return Vec::new();
        }
        std::mem::take(&mut counts.tools).into_values().collect()
    }
}

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
    let there = there.and_then(|text| serde_json::from_str::<ToolStats>(&text).ok());
    let mut stats = there.unwrap_or_else(|| ToolStats::new(more.tool.clone()));
    stats.merge(more);
    let text = serde_json::to_string(&stats).expect("statistics have a form in JSON");
    let sql = "INSERT OR REPLACE INTO tool (id, stats) VALUES (?1, ?2)";
    connection.prepare_cached(sql)?.execute(params![more.tool.as_str(), text])?;
    Ok(())
}
