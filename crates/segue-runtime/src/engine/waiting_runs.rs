//! Runs that wait for a person, as whoever moved them knows them: with the values that are written
//! nowhere. Whoever goes on with one in the same process has those still.

use std::collections::VecDeque;

use parking_lot::Mutex;
use segue_core::run::Run;

/// Runs that are remembered. The oldest is forgotten first, and goes on as its journal has it.
const RUNS_MAX: usize = 256;

/// Runs that are not in their journals as a whole.
#[derive(Default)]
pub(super) struct WaitingRuns {
    runs: Mutex<VecDeque<Run>>,
}

impl WaitingRuns {
    /// Remembers a run that waits, if its journal has not all of it.
    pub(super) fn insert(&self, run: Run) {
        if !run.is_waiting() || !run.has_sensitive() {
            return;
        }
        let mut runs = self.runs.lock();
        if runs.len() >= RUNS_MAX {
            runs.pop_front();
        }
        runs.push_back(run);
    }

    /// The run of this id, if nothing was written of it since.
    pub(super) fn take(&self, run_id: &str, written: u64) -> Option<Run> {
        let mut runs = self.runs.lock();
        let at = runs.iter().position(|run| run.run_id() == run_id)?;
        runs.remove(at).filter(|run| run.entry_count() == written)
    }
}
