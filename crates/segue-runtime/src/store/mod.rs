//! Where journals are kept.

mod memory;

use std::sync::Arc;

use async_trait::async_trait;
use segue_core::run::Entry;

pub use memory::MemoryStore;

/// Why a store could not do what it was asked. The variants are the decisions that follow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Somebody else writes this run: stop.
    #[error("run {run_id} is at entry {actual}, not at {expected}: somebody else writes it")]
    Fenced {
        /// The run.
        run_id: Arc<str>,
        /// Where the writer thought it was.
        expected: u64,
        /// Where it is.
        actual: u64,
    },
    /// The store cannot be written now: wait, and write again.
    #[error("the store cannot be written: {message}")]
    Unavailable {
        /// What went wrong.
        message: String,
    },
}

/// Keeps the journals of runs.
#[async_trait]
pub trait Store: Send + Sync {
    /// Adds entries behind entry `expected`. They are durable when this returns: nothing that they
    /// announce is done before.
    async fn append(
        &self,
        run_id: &Arc<str>,
        expected: u64,
        entries: &[Entry],
    ) -> Result<(), StoreError>;

    /// The whole journal of a run; empty when there is none.
    async fn load(&self, run_id: &Arc<str>) -> Result<Vec<Entry>, StoreError>;
}
