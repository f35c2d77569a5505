//! The history of runs: listing them, pruning them, and finding damaged ones.

use std::sync::Arc;

use async_trait::async_trait;
use segue_core::access::Caller;
use segue_core::view::RunStatus;

use super::StoreError;

/// A run in short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRow {
    /// UUIDv7.
    pub run_id: Arc<str>,
    /// The composition's name.
    pub name: Arc<str>,
    /// Its status.
    pub status: RunStatus,
    /// The hash of its plan.
    pub plan_hash: Arc<str>,
    /// When it began, in milliseconds since 1970.
    pub started_ms: u64,
    /// When its last entry was written.
    pub updated_ms: u64,
    /// When it ended.
    pub ended_ms: Option<u64>,
    /// Entries in its journal.
    pub length: u64,
    /// The process that drives it.
    pub owner: Option<Arc<str>>,
    /// How often it changed hands.
    pub epoch: u64,
    /// The authenticated caller that started it.
    pub caller: Option<Caller>,
    /// Why no process resumes it by itself.
    pub set_aside: Option<Arc<str>>,
}

/// Which runs to list.
#[derive(Clone, Debug, Default)]
pub struct RunQuery {
    /// Filter by status; empty means all.
    pub statuses: Vec<RunStatus>,
    /// Only runs whose composition's name contains this.
    pub name: Option<Arc<str>>,
    /// Only runs that began then or later.
    pub since_ms: Option<u64>,
    /// Only runs that began before then.
    pub before_ms: Option<u64>,
    /// Only runs that this principal started.
    pub principal: Option<Arc<str>>,
    /// Continue behind this place: `next` of the page before.
    pub after: Option<u64>,
    /// How many at most.
    pub limit: usize,
}

/// A page of runs, and the damaged ones among them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunListing {
    /// Newest first.
    pub runs: Vec<RunRow>,
    /// Runs that are set aside because they are damaged, and why.
    pub damaged: Vec<StoreError>,
    /// Where the next page begins, unless this is known to be the last one.
    pub next: Option<u64>,
}

/// A run that got entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunChange {
    /// The place of its last entries among the changes of all runs.
    pub at: u64,
    /// The run as it is now.
    pub row: RunRow,
}

/// The runs that got entries behind a place, whichever process wrote them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunChanges {
    /// Each run once, in the order of their last entries.
    pub runs: Vec<RunChange>,
    /// The place to read on from.
    pub next: u64,
    /// Whether there are more changes behind `next`.
    pub has_more: bool,
    /// Whether changes may be missing, because the given place is not one of this store.
    pub is_gap: bool,
}

/// Which ended runs to delete. Unfinished runs always stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Those that ended before then, in milliseconds since 1970.
    pub ended_before_ms: Option<u64>,
    /// All but so many of those that ended last.
    pub keep_last: Option<usize>,
}

/// What a store knows of its runs without their journals.
#[async_trait]
pub trait RunHistory: Send + Sync {
    /// One run in short.
    async fn run(&self, run_id: &Arc<str>) -> Result<Option<RunRow>, StoreError>;

    /// Runs in short, newest first, a page at a time.
    async fn runs(&self, query: &RunQuery) -> Result<RunListing, StoreError>;

    /// The runs that got entries behind a place, which is `next` of the call before; without a place,
    /// only the place where changes end now. Reads a bounded part of the changes, and no journal: a
    /// caller may ask ten times a second.
    async fn changes(&self, since: Option<u64>) -> Result<RunChanges, StoreError>;

    /// Runs whose id begins with this text, by id. Finds them by an index, however many runs there are.
    async fn runs_with_prefix(&self, prefix: &str, limit: usize)
    -> Result<Vec<RunRow>, StoreError>;

    /// Every run that has not ended.
    async fn unfinished(&self) -> Result<RunListing, StoreError>;

    /// Deletes ended runs; returns how many.
    async fn prune(&self, retention: Retention) -> Result<u64, StoreError>;

    /// Every damaged run, and every loss that the store noticed. Reads everything.
    async fn list_damaged(&self) -> Result<Vec<StoreError>, StoreError> {
        Ok(Vec::new())
    }

    /// Deletes what [`RunHistory::list_damaged`] names, except runs whose owner is alive; returns how
    /// many runs.
    async fn delete_damaged(&self) -> Result<u64, StoreError> {
        Ok(0)
    }
}
