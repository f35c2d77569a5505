//! How many steps of a run have finished, counted in its journal: the runs of other processes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use segue_core::run::Fact;
use segue_runtime::store::RunRow;
use tokio::time::Instant;

use super::RunService;

/// The steps of a run with a longer journal are not counted.
const ENTRIES_MAX: u64 = 5_000;

/// How many counts are kept.
const KEPT_MAX: usize = 1_000;

/// A run is counted again after this many times the duration of its last count, so that a large run
/// which changes all the time costs a twentieth of a processor.
const PAUSE_FACTOR: u32 = 20;

/// Whether a step finished with this entry.
pub(super) fn ends_step(fact: &Fact) -> bool {
    matches!(
        fact,
        Fact::Succeeded { .. }
            | Fact::Failed { .. }
            | Fact::Skipped { .. }
            | Fact::Reused { .. }
            | Fact::Pinned { .. }
            | Fact::LeftOut { .. }
    )
}

#[derive(Clone, Copy)]
struct StepCount {
    steps_done: u32,
    /// The length of the journal then.
    length: u64,
    at: Instant,
    took: Duration,
}

impl StepCount {
    fn is_fresh(&self, length: u64) -> bool {
        self.length == length || self.at.elapsed() < self.took * PAUSE_FACTOR
    }
}

/// The counts that are kept, by the id of the run.
#[derive(Default)]
pub(super) struct StepCounts(Mutex<BTreeMap<Arc<str>, StepCount>>);

impl RunService {
    /// How many steps of an unfinished run have finished, as its journal says.
    pub(super) async fn count_steps_done(&self, row: &RunRow) -> Option<u32> {
        if row.ended_ms.is_some() || row.length > ENTRIES_MAX {
            return None;
        }
        let known = self.step_counts.0.lock().get(&row.run_id).copied();
        if let Some(known) = known.filter(|known| known.is_fresh(row.length)) {
            return Some(known.steps_done);
        }
        let began = Instant::now();
        let entries = self.store().load(&row.run_id).await.ok()?;
        let steps_done = entries.iter().filter(|entry| ends_step(&entry.fact)).count();
        let steps_done = u32::try_from(steps_done).unwrap_or(u32::MAX);
        let length = entries.len() as u64;
        let count = StepCount { steps_done, length, at: Instant::now(), took: began.elapsed() };
        let mut kept = self.step_counts.0.lock();
        if kept.len() >= KEPT_MAX {
            kept.clear();
        }
        kept.insert(row.run_id.clone(), count);
        Some(steps_done)
    }
}
