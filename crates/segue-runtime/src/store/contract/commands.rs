//! Commands from other processes to the process that drives a run.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::Notify;

use super::StoreError;

/// A command that the owner of its run has not taken yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingCommand {
    /// Grows from command to command.
    pub number: u64,
    /// The run.
    pub run_id: Arc<str>,
    /// The command; the store does not read it.
    pub text: Arc<str>,
}

/// A queue of commands to runs.
#[async_trait]
pub trait CommandQueue: Send + Sync {
    /// Sends a command to the owner of a run that has not ended; returns its number.
    async fn send_command(&self, run_id: &Arc<str>, text: &Arc<str>) -> Result<u64, StoreError>;

    /// Every pending command, the oldest first.
    async fn pending_commands(&self) -> Result<Vec<PendingCommand>, StoreError>;

    /// Wakes this process when another one sent a command; none when the store has to be polled. A signal
    /// may be lost.
    fn command_signal(&self) -> Option<Arc<Notify>> {
        None
    }

    /// Removes a command, because the owner handled it or no owner will.
    async fn remove_command(&self, number: u64) -> Result<(), StoreError>;
}
