//! Waiting runs, kept in memory with the sensitive values that their journals leave out. A resume
//! in the same process still has those values.

use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;
use segue_core::run::Run;

/// How many runs are kept. The oldest is dropped first, and resumes from its journal alone.
const RUNS_MAX: NonZeroUsize = NonZeroUsize::new(256).expect("it is not zero");

/// Runs whose journals do not hold all their values.
pub(super) struct WaitingRuns {
    by_id: Mutex<LruCache<Arc<str>, Run>>,
}

impl Default for WaitingRuns {
    fn default() -> WaitingRuns {
        WaitingRuns { by_id: Mutex::new(LruCache::new(RUNS_MAX)) }
    }
}

impl WaitingRuns {
    /// Keeps a run that waits, if its journal leaves out some of its values.
    pub(super) fn insert(&self, run: Run) {
        if !run.is_waiting() || !run.has_sensitive() {
            return;
        }
        self.by_id.lock().put(run.run_id().into(), run);
    }

    /// Removes and returns the run with this id, if its journal has not grown since.
    pub(super) fn take(&self, run_id: &str, written: u64) -> Option<Run> {
        let run = self.by_id.lock().pop(run_id)?;
        (run.entry_count() == written).then_some(run)
    }
}
