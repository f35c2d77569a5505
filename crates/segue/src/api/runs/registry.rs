//! The runs that this process drives, is about to start, or keeps an engine and a timer for.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;
use segue_core::access::Principal;
use segue_runtime::engine::Engine;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::RunService;
use super::handle::RunHandle;

/// The registry.
#[derive(Default)]
pub(super) struct RunRegistry {
    handles: Mutex<HashMap<Arc<str>, Arc<RunHandle>>>,
    /// Counts the runs that were removed from them.
    freed: watch::Sender<u64>,
    /// Runs that other processes drive, and that clients of this one follow.
    followed: Mutex<HashMap<Arc<str>, Arc<RunHandle>>>,
    /// Runs that are about to start: their plans are taken already.
    starting: Mutex<HashSet<Arc<str>>>,
    /// The engines of runs that wait for a person: they resume with the tools they started with.
    waiting: Mutex<HashMap<Arc<str>, Engine>>,
    /// The timers of waiting runs whose timeout will pass.
    wakes: Mutex<HashMap<Arc<str>, AbortHandle>>,
}

impl RunRegistry {
    /// How many runs of a caller are driven here.
    pub(super) fn count(&self, who: &Principal) -> usize {
        let handles = self.handles.lock();
        handles.values().filter(|handle| who.can_see(handle.principal.as_deref())).count()
    }

    /// How many runs are driven here.
    pub(super) fn driven_count(&self) -> usize {
        self.handles.lock().len()
    }

    /// A run of the caller that is driven here, or followed.
    pub(super) fn handle(&self, who: &Principal, run_id: &str) -> Option<Arc<RunHandle>> {
        let handle = self.get(run_id).or_else(|| self.followed.lock().get(run_id).cloned());
        handle.filter(|handle| who.can_see(handle.principal.as_deref()))
    }

    /// A run that this process drives, of any principal.
    pub(super) fn get(&self, run_id: &str) -> Option<Arc<RunHandle>> {
        self.handles.lock().get(run_id).cloned()
    }

    /// Every run that is driven here.
    pub(super) fn all(&self) -> Vec<Arc<RunHandle>> {
        self.handles.lock().values().cloned().collect()
    }

    /// Any run that is driven here.
    pub(super) fn any(&self) -> Option<Arc<RunHandle>> {
        self.handles.lock().values().next().cloned()
    }

    /// Adds a run unless `most` are driven already; the run with this id, if it is one of them.
    /// `make` makes the handle and is told the id that the caller wants for it.
    pub(super) fn add(
        &self,
        run_id: Option<&Arc<str>>,
        most: usize,
        make: impl FnOnce() -> RunHandle,
    ) -> Added {
        let mut handles = self.handles.lock();
        if let Some(handle) = run_id.and_then(|run_id| handles.get(run_id)) {
            return Added::Existing(handle.clone());
        }
        if handles.len() >= most {
            return Added::Full;
        }
        let handle = Arc::new(make());
        handles.insert(handle.run_id.clone(), handle.clone());
        Added::New(handle)
    }

    /// Adds a run that goes on, unless one with its id is driven here: the store decides between them.
    pub(super) fn add_resumed(&self, handle: &Arc<RunHandle>) {
        let mut handles = self.handles.lock();
        handles.entry(handle.run_id.clone()).or_insert_with(|| handle.clone());
    }

    /// Removes a run, unless another handle has taken its place.
    pub(super) fn remove(&self, handle: &Arc<RunHandle>) {
        let mut handles = self.handles.lock();
        if handles.get(&handle.run_id).is_some_and(|other| Arc::ptr_eq(other, handle)) {
            handles.remove(&handle.run_id);
        }
        drop(handles);
        self.freed.send_modify(|freed| *freed = freed.wrapping_add(1));
    }

    /// Changes when a run that was driven here has been removed.
    pub(super) fn freed(&self) -> watch::Receiver<u64> {
        self.freed.subscribe()
    }

    /// How many runs of other processes are followed.
    pub(super) fn followed_count(&self) -> usize {
        self.followed.lock().len()
    }

    /// Adds a run that another process drives.
    pub(super) fn add_followed(&self, handle: Arc<RunHandle>) -> Arc<RunHandle> {
        self.followed.lock().insert(handle.run_id.clone(), handle.clone());
        handle
    }

    /// Removes such a run, unless another handle has taken its place.
    pub(super) fn remove_followed(&self, handle: &Arc<RunHandle>) {
        let mut followed = self.followed.lock();
        if followed.get(&handle.run_id).is_some_and(|other| Arc::ptr_eq(other, handle)) {
            followed.remove(&handle.run_id);
        }
    }

    /// The engine that a waiting run started with.
    pub(super) fn waiting_engine(&self, run_id: &Arc<str>) -> Option<Engine> {
        self.waiting.lock().get(run_id).cloned()
    }

    /// Keeps the engine of a waiting run. One beyond the limit resumes with what is served then.
    pub(super) fn keep_engine(&self, run_id: &Arc<str>, engine: Engine, is_waiting: bool) {
        let mut waiting = self.waiting.lock();
        if is_waiting && waiting.len() < engine.limits().served_runs_max {
            waiting.insert(run_id.clone(), engine);
        } else {
            waiting.remove(run_id);
        }
    }

    /// Sets the timer of a waiting run. The timer cannot fire before it is stored.
    pub(super) fn set_wake(&self, run_id: Arc<str>, spawn: impl FnOnce() -> AbortHandle) {
        let mut wakes = self.wakes.lock();
        wakes.insert(run_id, spawn());
    }

    /// Stops the timer of a run.
    pub(super) fn cancel_wake(&self, run_id: &Arc<str>) {
        if let Some(wake) = self.wakes.lock().remove(run_id) {
            wake.abort();
        }
    }

    /// Whether a run is about to start here.
    pub(super) fn is_starting(&self, run_id: &str) -> bool {
        self.starting.lock().contains(run_id)
    }
}

/// What came of adding a run.
pub(super) enum Added {
    /// It is there now.
    New(Arc<RunHandle>),
    /// It was there already.
    Existing(Arc<RunHandle>),
    /// Too many runs are driven.
    Full,
}

/// A run is about to start as long as this lives.
pub struct StartReservation {
    service: Arc<RunService>,
    run_id: Arc<str>,
}

impl RunService {
    /// Says that a run is about to start, until the reservation is dropped.
    pub fn reserve_start(self: &Arc<RunService>, run_id: Arc<str>) -> StartReservation {
        self.registry.starting.lock().insert(run_id.clone());
        StartReservation { service: self.clone(), run_id }
    }

    /// Whether a run is about to start here.
    pub fn is_starting(&self, run_id: &str) -> bool {
        self.registry.is_starting(run_id)
    }
}

impl Drop for StartReservation {
    // Work in `Drop`, because the request that was to start the run may be dropped before.
    fn drop(&mut self) {
        self.service.registry.starting.lock().remove(&self.run_id);
    }
}
