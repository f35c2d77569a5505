//! Runs of a store that several processes share: this process claims those that no process drives.
//!
//! One loop looks for runs that are due: when the store says that one is, when a run here ends, and at least
//! twice a second. The store gives each run to one process. A run that cannot go on here is left to
//! the others for a while. With a dispatcher the loop claims nothing; it sends the runs again that are due,
//! because a request to the dispatcher may have been lost.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use segue_core::tool::hex_digest;
use segue_core::version::{self, may_claim_beside};
use segue_runtime::driver::RunCommand;
use segue_runtime::engine::EngineError;
use segue_runtime::store::{ClaimRequest, Due, StoreError, WorkerInfo, WorkerRow};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::RunService;
use super::handle::{QuestionPolicy, RunOutcome};
use super::recover::Acquire;

/// Runs to claim at once: another process may have room for the rest.
const TOGETHER_MAX: usize = 64;

/// How long a run is left to other processes after this one could not drive it.
const PAUSE: Duration = Duration::from_mins(1);

/// The longest time between two looks for runs: so long after the lease of a dead process another one may go on.
const LOOK_MAX: Duration = Duration::from_millis(500);

/// How many runs are sent to the dispatcher again at once.
const SENT_MAX: usize = 10_000;

/// How this process shares its store with others.
#[derive(Default)]
pub(super) struct Sharing {
    /// How many runs this process drives; without it, all that it starts and finds.
    room: RwLock<Option<usize>>,
    /// Sources of tools that are still starting: runs that need them are left.
    pending: RwLock<BTreeSet<Arc<str>>>,
    /// Runs that this process could not drive, and when.
    tried: Mutex<HashMap<Arc<str>, Instant>>,
    /// Becomes true when this process claims nothing more.
    stops: watch::Sender<bool>,
    /// Held while the loop is at work.
    at_work: tokio::sync::Mutex<()>,
}

/// What the loop remembers.
#[derive(Default)]
struct LoopState {
    announced: Option<WorkerInfo>,
    /// Why this process claims nothing.
    refusal: Option<String>,
    looked_at: Option<Instant>,
    sent_at: Option<Instant>,
}

/// Why a process of this version claims no runs beside these workers.
pub fn refusal(own_version: &str, workers: &[WorkerRow]) -> Option<String> {
    let others = workers.iter().filter(|worker| worker.is_alive && worker.info.room > 0);
    let mut apart = others.filter(|other| !may_claim_beside(own_version, &other.info.version));
    let WorkerRow { info, .. } = apart.next()?;
    Some(format!(
        "a worker of version {} is alive on `{}`, which cannot read what version {own_version} writes",
        info.version, info.host
    ))
}

impl RunService {
    /// How many runs this process drives at most; none means that it only takes requests.
    pub fn set_room(&self, room: usize) {
        *self.sharing.room.write() = Some(room);
    }

    /// Sources of tools that are still starting.
    pub fn set_pending_sources(&self, pending: BTreeSet<Arc<str>>) {
        *self.sharing.pending.write() = pending;
    }

    /// Whether other processes may drive runs of this one.
    pub fn is_shared(&self) -> bool {
        self.store().is_shared()
    }

    /// Whether this process drives runs by itself.
    pub(super) fn drives(&self) -> bool {
        self.dispatcher.read().is_none() && *self.sharing.room.read() != Some(0)
    }

    /// How many further runs this process drives.
    fn free_room(&self) -> usize {
        let room = self.sharing.room.read().unwrap_or(usize::MAX);
        room.min(self.limits().served_runs_max).saturating_sub(self.registry.driven_count())
    }

    /// Whether a run that is to start is left to other processes.
    pub(super) fn leaves_to_others(&self) -> bool {
        self.is_shared() && (!self.drives() || self.free_room() == 0)
    }

    /// Waits until this process has room for a run that a dispatcher sends.
    pub(super) async fn wait_for_room(&self) {
        let mut freed = self.registry.freed();
        while self.free_room() == 0 && freed.changed().await.is_ok() {}
    }

    /// Asks the dispatcher, where there is one, to have a run driven.
    pub(super) async fn dispatch(&self, run_id: &Arc<str>, due: Due) {
        let dispatcher = self.dispatcher.read().clone();
        if let Some(dispatcher) = dispatcher
            && let Err(error) = dispatcher.dispatch(run_id, due).await
        {
            tracing::warn!(target: "segue::worker", run_id = &**run_id, "{error}; it is sent again later");
        }
    }

    /// Notes that this process could not drive a run, so that it is left to others for a while.
    pub(super) fn note_attempt(&self, run_id: &Arc<str>, outcome: &RunOutcome) {
        let Err(error) = outcome else { return };
        // Another process has the run, or the store could not be reached: this process may go on with it.
        let may_go_on = matches!(
            error,
            EngineError::Stopped { .. }
                | EngineError::Store(
                    StoreError::Owned { .. }
                        | StoreError::Lost { .. }
                        | StoreError::Fenced { .. }
                        | StoreError::Unavailable { .. }
                )
        );
        if !may_go_on {
            self.leave_for_a_while(run_id, &error.to_string());
        }
    }

    /// Leaves a run to other processes, because this one cannot drive it.
    pub(super) fn leave_for_a_while(&self, run_id: &Arc<str>, why: &str) {
        if self.is_shared() {
            self.sharing.tried.lock().insert(run_id.clone(), Instant::now());
            tracing::info!(target: "segue::worker", run_id = &**run_id, "leaves a run to other workers: {why}");
        }
    }

    /// This process, as it describes itself to the others.
    pub fn worker_info(&self) -> WorkerInfo {
        let engine = self.full_catalog().engine;
        let pending = self.sharing.pending.read().clone();
        let mut namespaces = engine.namespaces();
        namespaces.retain(|namespace| !pending.contains(namespace));
        let tools = engine.catalog().tools().map(|tool| tool.hash().clone());
        let hashes: BTreeSet<String> = tools.collect();
        let room = self.sharing.room.read().unwrap_or(self.limits().served_runs_max);
        WorkerInfo {
            host: host_name(),
            version: version::ENGINE.into(),
            namespaces: namespaces.into_iter().collect(),
            tools_hash: hex_digest(Vec::from_iter(hashes).concat().as_bytes()).into(),
            room,
        }
    }

    /// Claims runs of the shared store, or sends them to the dispatcher, until this process stops to.
    pub async fn share_runs(self: Arc<RunService>) {
        let Some(every) = self.store().takeover_interval() else { return };
        let _at_work = self.sharing.at_work.lock().await;
        let mut stops = self.sharing.stops.subscribe();
        let (mut reloads, mut freed) = (self.reloads(), self.registry.freed());
        let signal = self.store().due_signal();
        let mut state = LoopState::default();
        loop {
            freed.mark_unchanged();
            // A claim that is given up gives back what it took.
            let is_full = tokio::select! {
                _ = stops.wait_for(|stops| *stops) => return,
                looked = self.share_once(&mut state, every) => looked.unwrap_or_else(|error| {
                    tracing::debug!(target: "segue::worker", "{error}");
                    false
                }),
            };
            tokio::select! {
                _ = stops.wait_for(|stops| *stops) => return,
                () = notified(signal.as_deref()) => {}
                _ = freed.changed(), if is_full => {}
                _ = reloads.changed() => {}
                () = tokio::time::sleep(every.min(LOOK_MAX)) => {}
            }
        }
    }

    /// Claims no further run. Returns when no claim is under way.
    pub async fn stop_claiming(&self) {
        self.sharing.stops.send_replace(true);
        drop(self.sharing.at_work.lock().await);
    }

    /// Looks once; returns whether there may be more runs than this process has room for.
    async fn share_once(
        self: &Arc<RunService>,
        state: &mut LoopState,
        every: Duration,
    ) -> Result<bool, StoreError> {
        let info = self.worker_info();
        if state.announced.as_ref() != Some(&info) {
            self.store().announce(info.clone()).await?;
            state.announced = Some(info.clone());
        }
        if self.dispatcher.read().is_some() {
            return self.send_due(state).await.map(|()| false);
        }
        if info.room == 0 || self.is_refused(state, &info, every).await? {
            return Ok(false);
        }
        loop {
            let room = self.free_room();
            let claimed = self.claim(&info, room.min(TOGETHER_MAX)).await?;
            if claimed < TOGETHER_MAX {
                return Ok(claimed == room);
            }
        }
    }

    /// Whether a worker is alive beside which this process must not claim. Looks as often as the lease
    /// demands.
    async fn is_refused(
        &self,
        state: &mut LoopState,
        info: &WorkerInfo,
        every: Duration,
    ) -> Result<bool, StoreError> {
        if state.looked_at.is_none_or(|at| at.elapsed() >= every) {
            let now = refusal(&info.version, &self.store().workers().await?);
            if let Some(reason) = now.as_ref().filter(|_| state.refusal != now) {
                tracing::warn!(target: "segue::worker", "claims no runs: {reason}");
            }
            (state.refusal, state.looked_at) = (now, Some(Instant::now()));
        }
        Ok(state.refusal.is_some())
    }

    /// Claims so many runs at most, and drives them; returns how many.
    async fn claim(
        self: &Arc<RunService>,
        info: &WorkerInfo,
        room: usize,
    ) -> Result<usize, StoreError> {
        if room == 0 {
            return Ok(0);
        }
        let except: Vec<Arc<str>> = {
            let mut tried = self.sharing.tried.lock();
            tried.retain(|_, at| at.elapsed() < PAUSE);
            tried.keys().cloned().collect()
        };
        let request = ClaimRequest { namespaces: &info.namespaces, room, except: &except };
        let claimed = self.store().claim(request).await?;
        for run in &claimed {
            tracing::info!(
                target: "segue::worker", run_id = &*run.row.run_id, composition = &*run.row.name,
                "claims a run"
            );
            let acquired = Acquire::Taken(run.lease.clone());
            self.resume(&run.row, RunCommand::Resume, acquired, QuestionPolicy::Defer);
        }
        Ok(claimed.len())
    }

    /// Sends the runs that are due to the dispatcher again.
    async fn send_due(&self, state: &mut LoopState) -> Result<(), StoreError> {
        let every = Duration::from_millis(self.limits().dispatch_again_ms);
        if state.sent_at.is_some_and(|at| at.elapsed() < every) {
            return Ok(());
        }
        for run_id in self.store().due_runs(SENT_MAX).await? {
            self.dispatch(&run_id, Due::Now).await;
        }
        state.sent_at = Some(Instant::now());
        Ok(())
    }
}

async fn notified(signal: Option<&Notify>) {
    match signal {
        Some(signal) => signal.notified().await,
        None => std::future::pending().await,
    }
}

/// The name of this machine.
#[cfg(unix)]
fn host_name() -> Arc<str> {
    rustix::system::uname().nodename().to_string_lossy().into()
}

/// The name of this machine.
#[cfg(not(unix))]
fn host_name() -> Arc<str> {
    std::env::var("COMPUTERNAME").unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(version: &str, room: usize, is_alive: bool) -> WorkerRow {
        let info = WorkerInfo { version: version.into(), room, ..WorkerInfo::default() };
        WorkerRow { id: "w".into(), info, started_ms: 0, beat_ago_ms: 0, is_alive, runs: 0 }
    }

    /// A worker waits for living workers that could not read its journals, and for no others.
    #[test]
    fn a_much_newer_worker_waits() {
        assert!(refusal("0.3.0", &[worker("0.3.0", 1, true), worker("0.1.0", 1, true)]).is_some());
        for other in [worker("0.1.0", 1, false), worker("0.1.0", 0, true), worker("0.5.0", 1, true)]
        {
            assert_eq!(refusal("0.3.0", &[worker("0.2.0", 1, true), other]), None);
        }
    }
}
