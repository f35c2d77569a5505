//! Journals and leases: what a driver needs to move a run.
//!
//! A run has one writer at a time. The process that creates or acquires it gets a [`Lease`]. The store
//! checks its epoch with every append, in the same transaction: a process that lost its lease while
//! it was stopped writes nothing when it wakes.

use std::sync::Arc;

use async_trait::async_trait;
use segue_core::limits::Limits;
use segue_core::plan::Plan;
use segue_core::run::Entry;
use segue_core::view::RunStatus;

use super::{Measured, StoreError};

/// The right to write one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The run.
    pub run_id: Arc<str>,
    /// Grows each time the run changes hands.
    pub epoch: u64,
}

/// A run that is about to begin.
#[derive(Clone, Debug)]
pub struct NewRun<'a> {
    /// UUIDv7.
    pub run_id: &'a Arc<str>,
    /// What it executes.
    pub plan: &'a Arc<Plan>,
}

/// What one turn adds to a run, all of it or nothing.
#[derive(Clone, Copy, Debug)]
pub struct AppendRecord<'a> {
    /// How many entries the journal has already.
    pub expected: u64,
    /// The entries to add.
    pub entries: &'a [Entry],
    /// The run's status after them.
    pub status: RunStatus,
    /// Calls that ended in this turn.
    pub measured: &'a [Measured],
    /// Whether the run leaves steps out, or was given values: its end counts as no call of its
    /// composition.
    pub is_part: bool,
}

/// When a process may take a run over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeOver {
    /// When the run has no owner, or its owner is dead.
    IfAbandoned,
    /// In any case, because a person says so. The owner before writes nothing from then on.
    Force,
    /// Also when the run has ended, because a person wants a rollback. Else as
    /// [`TakeOver::IfAbandoned`].
    Reopen,
    /// As [`TakeOver::IfAbandoned`], by a process that resumes every run it finds. A run during which two
    /// processes in a row died without progress is set aside instead: [`StoreError::SetAside`]. The
    /// other modes are a person's, and clear that.
    Recover,
}

/// Journals of runs, their plans, and the leases on them.
#[async_trait]
pub trait JournalStore: Send + Sync {
    /// Begins a run with its first entries, and takes the lease. As durable as
    /// [`JournalStore::append`].
    async fn create(&self, run: NewRun<'_>, record: AppendRecord<'_>) -> Result<Lease, StoreError>;

    /// Adds to a run. The entries are durable when this returns: the driver performs nothing that they
    /// announce before. A run that ends is released.
    async fn append(&self, lease: &Lease, record: AppendRecord<'_>) -> Result<(), StoreError>;

    /// Whether this process surely owns the run now, by its own clock. The driver asks before a call leaves:
    /// after the end of its lease another process may repeat the call.
    fn is_held(&self, _lease: &Lease) -> bool {
        true
    }

    /// Waits until this process surely owns the run again; an error says that it does not.
    async fn hold(&self, _lease: &Lease) -> Result<(), StoreError> {
        Ok(())
    }

    /// The whole journal of a run; empty when there is no such run.
    async fn load(&self, run_id: &Arc<str>) -> Result<Vec<Entry>, StoreError>;

    /// The plan that a run is bound to.
    async fn plan(&self, run_id: &Arc<str>, limits: &Limits) -> Result<Arc<Plan>, StoreError>;

    /// Takes a run over in order to go on with it; an ended one only to roll it back.
    async fn acquire(&self, run_id: &Arc<str>, how: TakeOver) -> Result<Lease, StoreError>;

    /// Gives an unfinished run back, so that any process may acquire it.
    async fn release(&self, lease: &Lease) -> Result<(), StoreError>;

    /// Gives back every run of this process, which is about to end.
    async fn release_all(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Whether a run has no owner, or its owner is dead: it moves only when a process acquires it.
    async fn is_abandoned(&self, run_id: &Arc<str>) -> Result<bool, StoreError>;

    /// Whether a write would succeed now: writes something durably, and deletes it again.
    async fn try_write(&self) -> Result<(), StoreError>;
}
