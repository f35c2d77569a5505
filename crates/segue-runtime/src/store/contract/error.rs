//! Why a store refused or failed. The variants are the decisions that a caller takes.

use std::sync::Arc;

use segue_core::plan::bundle::BundleError;
use segue_core::view::RunStatus;

use super::Collection;

/// Why a store could not do what a caller asked. The variants are the decisions that follow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Another writer added to this run: stop.
    #[error("run {run_id} is at entry {actual}, not at {expected}: another process writes it")]
    Fenced {
        /// The run.
        run_id: Arc<str>,
        /// How many entries the writer expected.
        expected: u64,
        /// How many there are.
        actual: u64,
    },
    /// Another process took this run over: stop.
    #[error("run {run_id} was taken over by another process: its epoch is {actual}, not {epoch}")]
    Lost {
        /// The run.
        run_id: Arc<str>,
        /// The epoch of the lease.
        epoch: u64,
        /// The epoch of the run.
        actual: u64,
    },
    /// The owner of this run is alive: leave the run to it.
    #[error("run {run_id} belongs to {owner}, which is alive")]
    Owned {
        /// The run.
        run_id: Arc<str>,
        /// Its owner.
        owner: Arc<str>,
    },
    /// The run has ended: nothing can be added.
    #[error("run {run_id} has ended: {}", status.as_str())]
    Ended {
        /// The run.
        run_id: Arc<str>,
        /// How it ended.
        status: RunStatus,
    },
    /// Processes died while they drove this run: a person has to resume it.
    #[error("run {run_id} is set aside: {reason}")]
    SetAside {
        /// The run.
        run_id: Arc<str>,
        /// Why.
        reason: Arc<str>,
    },
    /// The store has no such run.
    #[error("there is no run {run_id}")]
    Unknown {
        /// The id that the caller gave.
        run_id: Arc<str>,
    },
    /// The stored run is damaged: set it aside, others go on.
    #[error("the journal of run {run_id} is damaged at entry {seq}: {what}")]
    Damaged {
        /// The run, as far as its id can be read.
        run_id: Arc<str>,
        /// The first entry that cannot be trusted.
        seq: u64,
        /// The damage.
        what: String,
    },
    /// The plan of this run cannot be rebuilt: set it aside, others go on.
    #[error("run {run_id} cannot go on: {reason}")]
    PlanUnavailable {
        /// The run.
        run_id: Arc<str>,
        /// Why not.
        reason: BundleError,
    },
    /// Another writer changed the item under this key: read it again.
    #[error("`{key}` was changed meanwhile: {}", match version {
        Some(version) => format!("it has version {version}"),
        None => "it is not there".to_owned(),
    })]
    Changed {
        /// The key.
        key: Arc<str>,
        /// Its version, when it is there.
        version: Option<u64>,
    },
    /// The stored item is damaged: set it aside.
    #[error("the item `{key}` of the collection `{}` is damaged", collection.as_str())]
    DamagedItem {
        /// The collection.
        collection: Collection,
        /// The key, as far as it can be read.
        key: Arc<str>,
    },
    /// The store's log was damaged while no process had it open: its last writes are gone.
    #[error(
        "the log was damaged, or an older copy took the place of the file: {writes} acknowledged writes are lost, and runs that lost entries are named"
    )]
    Truncated {
        /// How many turns of runs, and other commits.
        writes: u64,
    },
    /// The store as a whole cannot be used: a person has to look at it.
    #[error("the store cannot be used: {what}")]
    Broken {
        /// The reason.
        what: String,
    },
    /// The store cannot be used now: wait, and retry.
    #[error("the store cannot be written: {message}")]
    Unavailable {
        /// What went wrong.
        message: String,
    },
}
