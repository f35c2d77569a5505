//! Statistics of tools that are not in the store yet. Processes count in memory and add their counts to
//! the store now and then. A crash loses the last second of them.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use segue_core::id::ToolId;

use super::{Measured, ToolStats};

/// Calls that wait to be counted at most.
const UNCOUNTED_MAX: usize = 2_048;

/// Counts that are not in the store yet.
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

    /// Adds them to the statistics from the store.
    pub(super) fn merge_into(&self, tools: &mut Vec<ToolStats>) {
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

/// The stored statistics of a tool with more counts. Damaged ones begin anew: they are hints, and no
/// reason to stop a run.
pub(super) fn merged(there: Option<&str>, more: &ToolStats) -> String {
    let there = there.and_then(|text| serde_json::from_str::<ToolStats>(text).ok());
    let mut stats = there.unwrap_or_else(|| ToolStats::new(more.tool.clone()));
    stats.merge(more);
    serde_json::to_string(&stats).expect("statistics have a form in JSON")
}
