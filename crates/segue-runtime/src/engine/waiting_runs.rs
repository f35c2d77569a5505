//! Runs that wait for a person, as whoever moved them knows them: with the values that are written
//! nowhere. Whoever goes on with one in the same process has those still.

use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;
use segue_core::run::Run;

/// Runs that are remembered. The oldest is forgotten first, and goes on as its journal has it.
const RUNS_MAX: NonZeroUsize = NonZeroUsize::new(256).expect("it is not zero");

/// Runs that are not in their journals as a whole.
pub(super) struct WaitingRuns {
    by_id: Mutex<LruCache<Arc<str>, Run>>,
}

impl Default for WaitingRuns {
    fn default() -> WaitingRuns {
        WaitingRuns { by_id: Mutex::new(LruCache::new(RUNS_MAX)) }
    }
}

impl WaitingRuns {
    /// Remembers a run that waits, if its journal has not all of it.
    pub(super) fn insert(&self, run: Run) {
        if !run.is_waiting() || !run.has_sensitive() {
            return;
        }
        self.by_id.lock().put(run.run_id().into(), run);
    }

    /// The run of this id, if nothing was written of it since.
    pub(super) fn take(&self, run_id: &str, written: u64) -> Option<Run> {
        let run = self.by_id.lock().pop(run_id)?;
        (run.entry_count() == written).then_some(run)
    }
}
