//! The contract of a store, one trait for each concern. A [`Store`] is their sum.
//!
//! `tests/it/stores.rs` checks every store against it, part by part.

mod commands;
mod error;
mod history;
mod journal;
mod key_value;
mod queue;
mod slots;
mod statistics;
mod transfer;

use std::time::Duration;

pub use commands::{CommandQueue, PendingCommand};
pub use error::StoreError;
pub use history::{Retention, RunChange, RunChanges, RunHistory, RunListing, RunQuery, RunRow};
pub use journal::{AppendRecord, JournalStore, Lease, NewRun, TakeOver};
pub use key_value::{Collection, ItemPage, KeyValueStore, Precondition, StoredItem};
pub use queue::{ClaimRequest, ClaimedRun, Due, RunQueue, WorkerInfo, WorkerRow};
pub use slots::{SharedSlot, SharedSlots};
pub use statistics::{Histogram, Measured, ToolStatistics, ToolStats};
pub use transfer::RunTransfer;

/// Figures of a store, for operators.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreFigures {
    /// Turns of runs that this process wrote since it opened the store.
    pub appends: u64,
    /// Commits, each with one sync.
    pub syncs: u64,
    /// How long they took, the writing included.
    pub sync_time: Duration,
    /// Writes that wait in the queue.
    pub queue: u64,
    /// Size of its files.
    pub size_bytes: u64,
    /// Those of a store that several processes share; all zero for others.
    pub shared: SharedFigures,
}

/// Figures of a store that several processes share. Counts are those of this process since it opened the
/// store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedFigures {
    /// Runs that it claimed.
    pub claims: u64,
    /// Runs that it took from an owner that died.
    pub takeovers: u64,
    /// Turns that were refused because another process owns the run.
    pub refused: u64,
    /// Calls that did not leave, because its lease was over.
    pub withheld: u64,
    /// How long its lease holds after a heartbeat.
    pub lease: Duration,
    /// How long ago its last heartbeat was sent that the store has answered; zero before the first one.
    pub heartbeat_age: Duration,
    /// Runs that are due and that no process drives, as far as they were counted.
    pub due: u64,
    /// How long the first of them has been due.
    pub due_age: Duration,
    /// How late this process hears of what others do.
    pub notification_lag: Duration,
}

/// A store: everything that Segue remembers.
pub trait Store:
    JournalStore + RunHistory + RunQueue + CommandQueue + ToolStatistics + RunTransfer + SharedSlots
{
    /// The key-value collections beside the runs.
    fn key_value(&self) -> &dyn KeyValueStore;

    /// How often a server looks for runs of processes that died; none where it finds them at its start.
    fn takeover_interval(&self) -> Option<Duration> {
        None
    }

    /// Figures for operators; all zero when the store has none.
    fn figures(&self) -> StoreFigures {
        StoreFigures::default()
    }
}
