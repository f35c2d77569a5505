//! The queue of runs: processes that share a store find the runs that no process drives.
//!
//! A run is *due* when it could go on now. A run that waits for a time is due then; a run that waits for a
//! person is due when a process sends it a command.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::Notify;

use super::{JournalStore, Lease, RunRow, StoreError};

/// Which runs a process wants to drive.
#[derive(Clone, Copy, Debug)]
pub struct ClaimRequest<'a> {
    /// The namespaces of the tools that this process can call. A run that needs another one is left.
    pub namespaces: &'a [Arc<str>],
    /// How many runs at most.
    pub room: usize,
    /// Runs that this process tried to drive lately, and could not.
    pub except: &'a [Arc<str>],
}

/// A run that this process owns from now on.
#[derive(Clone, Debug)]
pub struct ClaimedRun {
    /// The run.
    pub row: RunRow,
    /// The right to write it.
    pub lease: Lease,
}

/// When a run without an owner could go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// At once.
    Now,
    /// At this time, in milliseconds since 1970.
    At(u64),
    /// When a process sends it a command.
    OnCommand,
}

/// A process that shares the store, as it describes itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerInfo {
    /// The name of its machine.
    pub host: Arc<str>,
    /// The version of its program.
    pub version: Arc<str>,
    /// The namespaces of its tools.
    pub namespaces: Vec<Arc<str>>,
    /// A hash over the definitions of its tools: workers with different hashes have different tools.
    pub tools_hash: Arc<str>,
    /// How many runs it drives at once; 0 if it only takes requests.
    pub room: usize,
}

/// A process that shares the store, as the store knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerRow {
    /// Its name as an owner of runs.
    pub id: Arc<str>,
    /// As it describes itself.
    pub info: WorkerInfo,
    /// When it registered, in milliseconds since 1970, by the store's clock.
    pub started_ms: u64,
    /// How long ago its last heartbeat came, in milliseconds.
    pub beat_ago_ms: u64,
    /// Whether its lease holds.
    pub is_alive: bool,
    /// How many runs it owns.
    pub runs: u64,
}

/// The queue of runs of a store that several processes share. A store of one process has none: its defaults
/// claim nothing.
#[async_trait]
pub trait RunQueue: JournalStore {
    /// Whether several processes share this store, so that another one may drive a run of this one.
    fn is_shared(&self) -> bool {
        false
    }

    /// Takes over runs that are due, that no living process owns, and that this process can drive; as
    /// [`TakeOver::Recover`](super::TakeOver::Recover) does, a run during which processes keep dying is set
    /// aside. Several processes may claim at once: each run goes to one of them.
    async fn claim(&self, _request: ClaimRequest<'_>) -> Result<Vec<ClaimedRun>, StoreError> {
        Ok(Vec::new())
    }

    /// Gives an unfinished run back. No process claims it before it is due.
    async fn release_until(&self, lease: &Lease, _due: Due) -> Result<(), StoreError> {
        self.release(lease).await
    }

    /// Runs that are due and that no living process owns, the longest due first.
    async fn due_runs(&self, _limit: usize) -> Result<Vec<Arc<str>>, StoreError> {
        Ok(Vec::new())
    }

    /// Wakes this process when another one released a run that is due, or sent a command to a run without
    /// an owner. A signal may be lost.
    fn due_signal(&self) -> Option<Arc<Notify>> {
        None
    }

    /// Describes this process to the others, now and with every heartbeat.
    async fn announce(&self, _info: WorkerInfo) -> Result<(), StoreError> {
        Ok(())
    }

    /// The processes that share the store, and those that died lately.
    async fn workers(&self) -> Result<Vec<WorkerRow>, StoreError> {
        Ok(Vec::new())
    }
}
