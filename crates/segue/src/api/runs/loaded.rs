//! Runs that were read from the store, kept for a while: a page that shows a large run reads it piece
//! by piece.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use segue_core::access::Principal;
use segue_core::view::RunView;
use segue_runtime::engine::LoadedRun;
use segue_runtime::store::RunRow;
use tokio::time::Instant;

use super::RunService;
use crate::api::error::Error;
use crate::api::threads::calculate;

/// How many runs are kept.
const KEPT_MAX: usize = 4;

/// How long a run is kept after it was last read.
const KEPT_TIME: Duration = Duration::from_secs(30);

/// A run that was read, and its view.
pub struct ReadRun {
    /// The run.
    pub loaded: LoadedRun,
    view: OnceLock<RunView>,
}

impl ReadRun {
    /// Its view, made once.
    pub fn view(&self) -> &RunView {
        self.view.get_or_init(|| calculate(|| self.loaded.view()))
    }
}

/// The runs that are kept.
#[derive(Default)]
pub(super) struct ReadRuns(Mutex<Vec<(Arc<ReadRun>, Instant)>>);

impl ReadRuns {
    /// The run of this row, if nothing of the row has changed.
    fn find(&self, row: &RunRow) -> Option<Arc<ReadRun>> {
        let mut kept = self.0.lock();
        let (run, used) = kept.iter_mut().find(|(run, _)| run.loaded.row == *row)?;
        *used = Instant::now();
        Some(run.clone())
    }

    fn keep(&self, run: Arc<ReadRun>) {
        let mut kept = self.0.lock();
        kept.retain(|(other, _)| other.loaded.row.run_id != run.loaded.row.run_id);
        kept.insert(0, (run, Instant::now()));
        kept.truncate(KEPT_MAX);
    }

    fn drop_unused(&self) {
        self.0.lock().retain(|(_, used)| used.elapsed() < KEPT_TIME);
    }
}

impl RunService {
    /// A run of the caller, from the store or as it was read shortly before, if it got no entries since.
    pub async fn read_run(
        self: &Arc<RunService>,
        who: &Principal,
        run_id: &str,
    ) -> Result<Arc<ReadRun>, Error> {
        let row = self.row(who, run_id).await?;
        if let Some(run) = self.read_runs.find(&row) {
            return Ok(run);
        }
        let loaded = self.full_catalog().engine.load_run(&row.run_id).await?;
        let run = Arc::new(ReadRun { loaded, view: OnceLock::new() });
        self.read_runs.keep(run.clone());
        let service = Arc::downgrade(self);
        self.threads().requests.spawn(async move {
            // A little later than the run may go.
            tokio::time::sleep(KEPT_TIME + Duration::from_secs(1)).await;
            if let Some(service) = service.upgrade() {
                service.read_runs.drop_unused();
            }
        });
        Ok(run)
    }
}
