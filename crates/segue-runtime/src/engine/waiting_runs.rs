//! Waiting runs, kept in memory with the sensitive values that their journals leave out. A resume
//! in the same process still has those values.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use segue_core::run::Run;

/// How many runs are kept. The oldest is dropped first, and resumes from its journal alone.
const RUNS_MAX: usize = 256;

/// Runs whose journals do not hold all their values.
#[derive(Default)]
pub(super) struct WaitingRuns {
    runs: Mutex<VecDeque<Run>>,
}

impl WaitingRuns {
    /// Keeps a run that waits, if its journal leaves out some of its values.
    pub(super) fn insert(&self, run: Run) {
        if !run.is_waiting() || !run.has_sensitive() {
            return;
        }
        let mut runs = self.runs();
        if runs.len() >= RUNS_MAX {
            runs.pop_front();
        }
        runs.push_back(run);
    }

    /// Removes and returns the run with this id, if its journal has not grown since.
    pub(super) fn take(&self, run_id: &str, written: u64) -> Option<Run> {
        let mut runs = self.runs();
        let at = runs.iter().position(|run| run.run_id() == run_id)?;
        runs.remove(at).filter(|run| run.entry_count() == written)
    }

    fn runs(&self) -> MutexGuard<'_, VecDeque<Run>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
