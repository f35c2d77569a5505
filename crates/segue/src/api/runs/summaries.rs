//! Runs in short: what a list shows of each, beyond its row in the store.

use segue_core::access::Principal;
use segue_core::view::RunStatus;
use segue_runtime::store::{RunListing, RunQuery, RunRow, Store, StoreError};

use super::RunService;
use super::start::step_count;
use crate::api::error::Error;
use crate::api::responses::{RunList, RunSummary};

/// How many tools a summary names.
const TOOLS_SHOWN: usize = 5;

/// How many runs of a page are shown with what their plans say. A plan that no run used lately is
/// read from the store.
const PLANS_READ_MAX: usize = 100;

/// Whether the process of a running run is gone, so that the run moves only when it is resumed.
pub async fn is_interrupted(store: &dyn Store, row: &RunRow) -> Result<bool, StoreError> {
    if row.status != RunStatus::Running {
        return Ok(false);
    }
    if store.is_shared() && row.owner.is_none() && row.set_aside.is_none() {
        // It is in the queue: the next free process drives it.
        return Ok(false);
    }
    store.is_abandoned(&row.run_id).await
}

impl RunService {
    /// A run in short. What the store cannot say now is left out.
    pub async fn summary(&self, row: &RunRow) -> RunSummary {
        let mut summary = self.plain_summary(row).await;
        let limits = self.limits();
        if let Ok(plan) = self.store().plan(&row.run_id, &limits).await {
            let names = plan.tools.keys().take(TOOLS_SHOWN);
            summary.tools = names.map(|id| id.as_str().into()).collect();
            summary.steps_total = step_count(&plan);
        }
        summary
    }

    /// The same without what only its plan says.
    async fn plain_summary(&self, row: &RunRow) -> RunSummary {
        let mut summary = RunSummary::from(row);
        match self.registry.get(&row.run_id) {
            Some(handle) => summary.steps_done = Some(handle.watch().borrow().steps_done),
            None => {
                summary.steps_done = self.count_steps_done(row).await;
                summary.interrupted = is_interrupted(&*self.store(), row).await.unwrap_or(false);
            }
        }
        summary
    }

    /// A page of the caller's runs, as every surface lists them.
    pub async fn run_list(&self, who: &Principal, query: RunQuery) -> Result<RunList, Error> {
        let found = self.runs(who, query).await?;
        Ok(self.summaries(found).await)
    }

    /// The summaries of a page of runs.
    pub(super) async fn summaries(&self, found: RunListing) -> RunList {
        let RunListing { runs, damaged, next } = found;
        let mut summaries = Vec::with_capacity(runs.len());
        for (nth, row) in runs.iter().enumerate() {
            summaries.push(if nth < PLANS_READ_MAX {
                self.summary(row).await
            } else {
                self.plain_summary(row).await
            });
        }
        RunList {
            runs: summaries,
            damaged: damaged.iter().map(ToString::to_string).collect(),
            next: next.map(|next| next.to_string()),
            searched: None,
        }
    }
}
