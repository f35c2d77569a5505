//! Goes on with the runs of processes that die while this one serves, where the store tells of their death.
//!
//! Several servers may look at the same time: the store gives each run to one of them. A run that cannot go
//! on here is tried again later, or by another server that has its tools.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use segue_core::view::RunStatus;
use segue_runtime::driver::RunCommand;
use segue_runtime::store::{RunRow, StoreError, TakeOver};

use super::RunService;
use super::handle::QuestionPolicy;

/// Runs to take over at once: another server may have room for the rest.
const TOGETHER_MAX: usize = 256;

/// How long a run is left alone after an attempt.
const PAUSE: Duration = Duration::from_mins(1);

/// What this server did about runs that it does not drive.
#[derive(Default)]
struct Attempts {
    /// Runs that it tried to drive, and when.
    tried: HashMap<Arc<str>, Instant>,
    /// Waiting runs whose timer it has set, with their lengths.
    waiting: HashMap<Arc<str>, u64>,
}

impl RunService {
    /// Looks so often for runs that no living process drives, until this process leaves.
    pub async fn take_over_abandoned(self: Arc<RunService>, every: Duration) {
        let mut leaving = self.leaving.subscribe();
        let mut attempts = Attempts::default();
        while tokio::time::timeout(every, leaving.wait_for(|leaving| *leaving)).await.is_err() {
            // A store that cannot be read now is read the next time.
            if let Err(error) = self.take_over_once(&mut attempts).await {
                tracing::debug!(target: "segue::store", "{error}");
            }
        }
    }

    async fn take_over_once(
        self: &Arc<RunService>,
        attempts: &mut Attempts,
    ) -> Result<(), StoreError> {
        let rows = self.store().unfinished().await?.runs;
        let there: HashSet<&Arc<str>> = rows.iter().map(|row| &row.run_id).collect();
        attempts.tried.retain(|run_id, at| there.contains(run_id) && at.elapsed() < PAUSE);
        attempts.waiting.retain(|run_id, _| there.contains(run_id));
        let mut owners: HashMap<Arc<str>, bool> = HashMap::new();
        let mut taken = 0;
        for row in rows.iter().filter(|row| row.set_aside.is_none()) {
            if taken == TOGETHER_MAX || self.registry.get(&row.run_id).is_some() {
                continue;
            }
            if self.is_dead(row, &mut owners).await? {
                taken += usize::from(self.take_over(row, attempts).await);
            }
        }
        Ok(())
    }

    /// Whether no living process drives a run. Asks once for each owner.
    async fn is_dead(
        &self,
        row: &RunRow,
        owners: &mut HashMap<Arc<str>, bool>,
    ) -> Result<bool, StoreError> {
        let Some(owner) = &row.owner else { return Ok(true) };
        if let Some(known) = owners.get(owner) {
            return Ok(*known);
        }
        let is_dead = self.store().is_abandoned(&row.run_id).await?;
        owners.insert(owner.clone(), is_dead);
        Ok(is_dead)
    }

    /// Drives a run from now on, or wakes it when its timeout passes; returns whether it drives it.
    async fn take_over(self: &Arc<RunService>, row: &RunRow, attempts: &mut Attempts) -> bool {
        let run_id = &row.run_id;
        let engine = self.full_catalog().engine;
        if row.status == RunStatus::Waiting && row.owner.is_none() {
            if attempts.waiting.insert(run_id.clone(), row.length) != Some(row.length) {
                self.schedule_wake(run_id.clone(), engine).await;
            }
            return false;
        }
        if attempts.tried.contains_key(run_id) {
            return false;
        }
        let plan = engine.store().plan(run_id, engine.limits()).await;
        if !plan.is_ok_and(|plan| engine.has_tools_of(&plan)) {
            return false;
        }
        attempts.tried.insert(run_id.clone(), Instant::now());
        tracing::info!(target: "segue::store", run_id = &**run_id, "takes over a run without an owner");
        self.resume(row, RunCommand::Resume, TakeOver::Recover, QuestionPolicy::Defer);
        true
    }
}
