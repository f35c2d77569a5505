//! Where runs are kept: journals, plans, history, commands, tool statistics, key-value collections.
//!
//! `contract` says what every store does. [`MemoryStore`] and [`SqliteStore`] implement it.

mod chain;
mod contract;
mod intercept;
mod memory;
mod pack;
mod packed_record;
mod pending_counts;
pub(crate) mod private_files;
mod rules;
mod sqlite;

pub use contract::{
    AppendRecord, Collection, CommandQueue, Histogram, ItemPage, JournalStore, KeyValueStore,
    Lease, Measured, NewRun, PendingCommand, Precondition, Retention, RunChange, RunChanges,
    RunHistory, RunListing, RunQuery, RunRow, Store, StoreError, StoreFigures, StoredItem,
    TakeOver, ToolStatistics, ToolStats,
};
pub use intercept::{InterceptedStore, Operation, StoreInterceptor};
pub use memory::MemoryStore;
pub(crate) use rules::{run_ended, stopped_by};
pub use sqlite::{SqliteOptions, SqliteStore};
