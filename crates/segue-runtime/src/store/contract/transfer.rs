//! Moving ended runs and statistics from one store to another.

use std::sync::Arc;

use async_trait::async_trait;

use super::super::RunCopy;
use super::{StoreError, ToolStats};

/// Ended runs and statistics, as one store gives them to another.
#[async_trait]
pub trait RunTransfer: Send + Sync {
    /// An ended run as it is stored, with every hash checked; none when there is no such run, or it has not
    /// ended.
    async fn export_run(&self, _run_id: &Arc<str>) -> Result<Option<RunCopy>, StoreError> {
        Err(keeps_no_bytes())
    }

    /// Adds an ended run with its own id, bytes and hashes, in one transaction; returns whether it did. A run
    /// of this id that is there already stays as it is.
    async fn import_run(&self, _run: &Arc<RunCopy>) -> Result<bool, StoreError> {
        Err(keeps_no_bytes())
    }

    /// Adds the statistics of tools that the store has none of; returns of how many tools.
    async fn import_stats(&self, _stats: &[ToolStats]) -> Result<u64, StoreError> {
        Err(keeps_no_bytes())
    }
}

fn keeps_no_bytes() -> StoreError {
    StoreError::Broken { what: "it keeps its runs only while a process has it".to_owned() }
}
