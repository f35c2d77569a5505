//! Where runs are kept: journals, plans, history, commands, tool statistics, key-value collections.
//!
//! `contract` says what every store does. [`MemoryStore`], [`SqliteStore`] and `PostgresStore` implement it.

mod chain;
mod contract;
mod copy;
mod intercept;
mod memory;
mod pack;
mod packed_record;
mod pending_counts;
#[cfg(feature = "postgres")]
mod postgres;
pub(crate) mod private_files;
mod rules;
mod run_copy;
mod sqlite;

pub use contract::{
    AppendRecord, ClaimRequest, ClaimedRun, Collection, CommandQueue, Due, Histogram, ItemPage,
    JournalStore, KeyValueStore, Lease, Measured, NewRun, PendingCommand, Precondition, Retention,
    RunChange, RunChanges, RunHistory, RunListing, RunQuery, RunQueue, RunRow, RunTransfer,
    SharedFigures, SharedSlot, SharedSlots, Store, StoreError, StoreFigures, StoredItem, TakeOver,
    ToolStatistics, ToolStats, WorkerInfo, WorkerRow,
};
pub use copy::{Copied, CopyReport, copy};
pub use intercept::{InterceptedStore, Operation, StoreInterceptor};
pub use memory::MemoryStore;
#[cfg(feature = "postgres")]
pub use postgres::{DatabaseFacts, PostgresOptions, PostgresStore, PostgresUrl, Standby, diagnose};
pub(crate) use rules::{run_ended, stopped_by};
pub use run_copy::RunCopy;
pub use sqlite::{SqliteOptions, SqliteStore};
