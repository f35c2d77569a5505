//! Where runs are kept: their journals, their plans, and what they teach about tools.
//!
//! A run has one writer at a time. Whoever creates or takes it gets a [`Lease`], whose epoch is
//! checked with every append in the same transaction: a writer that was given up for dead, and
//! wakes, writes nothing. Whether an owner is alive is the store's to know.

mod memory;
pub(crate) mod private_files;
mod rules;
mod sqlite;
mod stats;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use segue_core::access::Caller;
use segue_core::limits::Limits;
use segue_core::plan::Plan;
use segue_core::plan::bundle::BundleError;
use segue_core::run::Entry;
use segue_core::view::RunStatus;

pub use memory::MemoryStore;
pub(crate) use rules::{run_ended, stopped_by};
pub use sqlite::{SqliteOptions, SqliteStore};
pub use stats::{Histogram, Measured, ToolStats};

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
    /// Somebody else took this run: stop.
    #[error("run {run_id} was taken over: its epoch is {actual}, not {epoch}")]
    Lost {
        /// The run.
        run_id: Arc<str>,
        /// The epoch of the lease.
        epoch: u64,
        /// The epoch of the run.
        actual: u64,
    },
    /// Somebody who is alive has this run: leave it alone.
    #[error("run {run_id} belongs to {owner}, which is alive")]
    Owned {
        /// The run.
        run_id: Arc<str>,
        /// Who has it.
        owner: Arc<str>,
    },
    /// The run is over: nothing can be added.
    #[error("run {run_id} is over: {}", status.as_str())]
    Ended {
        /// The run.
        run_id: Arc<str>,
        /// How it ended.
        status: RunStatus,
    },
    /// Processes died while they had this run: a person has to say that it goes on.
    #[error("run {run_id} is set aside: {reason}")]
    SetAside {
        /// The run.
        run_id: Arc<str>,
        /// Why.
        reason: Arc<str>,
    },
    /// There is no such run.
    #[error("there is no run {run_id}")]
    Unknown {
        /// What was asked for.
        run_id: Arc<str>,
    },
    /// What was kept of this run is not what was written: set it aside, others go on.
    #[error("the journal of run {run_id} is damaged at entry {seq}: {what}")]
    Damaged {
        /// The run, as far as its name can be read.
        run_id: Arc<str>,
        /// The first entry that cannot be trusted.
        seq: u64,
        /// What is wrong with it.
        what: String,
    },
    /// The plan of this run cannot be made again: set it aside, others go on.
    #[error("run {run_id} cannot go on: {reason}")]
    PlanUnavailable {
        /// The run.
        run_id: Arc<str>,
        /// Why not.
        reason: BundleError,
    },
    /// What is kept under this key is not what the writer thought: look again.
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
    /// What was kept under this key is not what was written: set it aside.
    #[error("what is kept as `{key}` among the {} is damaged", collection.as_str())]
    DamagedItem {
        /// The shelf.
        collection: Collection,
        /// The key, as far as it can be read.
        key: Arc<str>,
    },
    /// The store's log was damaged while no process had it open: what was committed last is gone.
    #[error(
        "the log was damaged: {commits} commits that were acknowledged are lost, and runs that lost entries are named"
    )]
    Truncated {
        /// How many commits.
        commits: u64,
    },
    /// The store as a whole cannot be used: somebody has to look at it.
    #[error("the store cannot be used: {what}")]
    Broken {
        /// What is wrong with it.
        what: String,
    },
    /// The store cannot be used now: wait, and try again.
    #[error("the store cannot be written: {message}")]
    Unavailable {
        /// What went wrong.
        message: String,
    },
}

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
    /// How many entries are there already.
    pub expected: u64,
    /// What became true.
    pub entries: &'a [Entry],
    /// How the run stands then.
    pub status: RunStatus,
    /// Calls that ended in this turn.
    pub measured: &'a [Measured],
}

/// When a run may be taken from somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeOver {
    /// When nobody has it, or nobody who is alive.
    IfAbandoned,
    /// In any case: a person says so. Whoever has it writes nothing from then on.
    Force,
    /// When it is over: a person wants it to be taken back. Else as [`TakeOver::IfLeft`].
    Reopen,
    /// As [`TakeOver::IfLeft`], by a process that goes on with every run it finds. A run during which two
    /// processes in a row died without progress is set aside instead: [`StoreError::SetAside`]. The
    /// other ways are a person's, and take it up again.
    Recover,
}

/// A run in short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRow {
    /// UUIDv7.
    pub run_id: Arc<str>,
    /// The composition's name.
    pub name: Arc<str>,
    /// How it stands.
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
    /// Who has it.
    pub owner: Option<Arc<str>>,
    /// How often it changed hands.
    pub epoch: u64,
    /// Who began it, where somebody came in to do so.
    pub caller: Option<Caller>,
    /// Why no process goes on with it by itself.
    pub set_aside: Option<Arc<str>>,
}

/// Which runs are wanted.
#[derive(Clone, Debug, Default)]
pub struct RunQuery {
    /// Only those that stand so; empty means all.
    pub statuses: Vec<RunStatus>,
    /// Only those whose composition's name contains this.
    pub name: Option<Arc<str>>,
    /// Only those that began then or later.
    pub since_ms: Option<u64>,
    /// Only those that began before then.
    pub before_ms: Option<u64>,
    /// Only those that this principal began.
    pub principal: Option<Arc<str>>,
    /// Go on behind this place: `next` of the page before.
    pub after: Option<u64>,
    /// How many at most.
    pub limit: usize,
}

/// Runs, and what could not be read among them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunListing {
    /// Newest first.
    pub runs: Vec<RunRow>,
    /// Runs that are set aside, and why.
    pub damaged: Vec<StoreError>,
    /// Where to go on, unless these are known to be the last ones.
    pub next: Option<u64>,
}

/// What may be forgotten. Only runs that are over ever are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Those that ended before then, in milliseconds since 1970.
    pub ended_before_ms: Option<u64>,
    /// All but so many of those that ended last.
    pub keep_last: Option<usize>,
}

/// What somebody wants of a run that somebody else has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingCommand {
    /// Grows from word to word.
    pub number: u64,
    /// The run.
    pub run_id: Arc<str>,
    /// What is wanted; a store does not read it.
    pub text: Arc<str>,
}

/// Where texts are kept beside the runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Collection {
    /// Compositions to start from.
    Templates,
    /// Plans that were made of words, by plan id.
    Plans,
    /// What somebody asked for in words, by request id.
    Requests,
    /// What was answered to requests that may come twice, by their key.
    Answers,
}

impl Collection {
    /// Its name in a store.
    pub fn as_str(self) -> &'static str {
        match self {
            Collection::Templates => "templates",
            Collection::Plans => "plans",
            Collection::Requests => "requests",
            Collection::Answers => "answers",
        }
    }
}

/// A text on a shelf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredItem {
    /// Its name, one of a kind on its shelf.
    pub key: Arc<str>,
    /// The text; a store does not read it.
    pub text: Arc<str>,
    /// Grows each time the text is replaced, from 1.
    pub version: u64,
    /// When it was written, in milliseconds since 1970.
    pub at_ms: u64,
}

/// Texts of a shelf, and what could not be read among them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ItemPage {
    /// The one that was kept first comes first.
    pub items: Vec<StoredItem>,
    /// Those that are set aside.
    pub damaged: Vec<StoreError>,
    /// Where to go on, unless these are known to be the last ones.
    pub next: Option<u64>,
}

/// What has to be under a key for it to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// Whatever is there is replaced.
    Anything,
    /// Nothing.
    Absent,
    /// This version.
    Version(u64),
}

/// How a store does, for those who look after it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreFigures {
    /// Turns of runs that were written since it was opened.
    pub appends: u64,
    /// Times that it was synced.
    pub syncs: u64,
    /// How long that took, the writing included.
    pub sync_time: Duration,
    /// Writes that wait.
    pub queue: u64,
    /// Size of its files.
    pub size_bytes: u64,
}

/// Keeps runs.
#[async_trait]
pub trait Store: Send + Sync {
    /// Begins a run with its first entries, and takes it. As durable as [`Store::append`].
    async fn create(&self, run: NewRun<'_>, record: AppendRecord<'_>) -> Result<Lease, StoreError>;

    /// Adds to a run. It is durable when this returns: nothing that the entries announce is done
    /// before. A run that is over is released.
    async fn append(&self, lease: &Lease, record: AppendRecord<'_>) -> Result<(), StoreError>;

    /// The whole journal of a run; empty when there is none.
    async fn load(&self, run_id: &Arc<str>) -> Result<Vec<Entry>, StoreError>;

    /// The plan that a run is bound to.
    async fn plan(&self, run_id: &Arc<str>, limits: &Limits) -> Result<Arc<Plan>, StoreError>;

    /// Takes a run in order to go on with it; one that is over only to have it taken back.
    async fn acquire(&self, run_id: &Arc<str>, how: TakeOver) -> Result<Lease, StoreError>;

    /// Gives a run back unfinished, so that anybody may take it.
    async fn release(&self, lease: &Lease) -> Result<(), StoreError>;

    /// Gives every run back that this process has: it ends, and does not die.
    async fn release_all(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// One run in short.
    async fn run(&self, run_id: &Arc<str>) -> Result<Option<RunRow>, StoreError>;

    /// Whether nobody has a run, or nobody who is alive: it moves when somebody takes it.
    async fn is_abandoned(&self, run_id: &Arc<str>) -> Result<bool, StoreError> {
        Ok(self.run(run_id).await?.is_none_or(|row| row.owner.is_none()))
    }

    /// Runs in short, newest first, a page at a time.
    async fn runs(&self, query: &RunQuery) -> Result<RunListing, StoreError>;

    /// Every run that is not over.
    async fn unfinished(&self) -> Result<RunListing, StoreError>;

    /// Leaves a word for whoever has a run that is not over; the answer is its number.
    async fn send_command(&self, run_id: &Arc<str>, text: &Arc<str>) -> Result<u64, StoreError>;

    /// Every word that was not taken, the oldest first.
    async fn pending_commands(&self) -> Result<Vec<PendingCommand>, StoreError>;

    /// Throws a word away, because it was heeded or nobody will hear it.
    async fn remove_command(&self, number: u64) -> Result<(), StoreError>;

    /// Forgets runs that are over; the answer is how many.
    async fn prune(&self, retention: Retention) -> Result<u64, StoreError>;

    /// Every run that is not what was written, and whatever else is set aside. Reads everything.
    async fn list_damaged(&self) -> Result<Vec<StoreError>, StoreError> {
        Ok(Vec::new())
    }

    /// Forgets what [`Store::damaged`] names, unless somebody who is alive has it; the answer is how
    /// many runs that were.
    async fn delete_damaged(&self) -> Result<u64, StoreError> {
        Ok(0)
    }

    /// What was measured of every tool that was called, by id; a composition counts as a tool.
    async fn tool_stats(&self) -> Result<Vec<ToolStats>, StoreError>;

    /// The texts that it keeps beside the runs.
    fn key_value(&self) -> &dyn KeyValueStore;

    /// Whether a write would succeed now: writes something, durably, and takes it away again.
    async fn try_write(&self) -> Result<(), StoreError>;

    /// How it does. One that cannot say does nothing.
    fn figures(&self) -> StoreFigures {
        StoreFigures::default()
    }
}

/// Keeps a few texts, each under a key. Part of a store, so that whoever wraps one passes it on.
#[async_trait]
pub trait KeyValueStore: Send + Sync {
    /// Keeps a text under the key of `item`, if what is there is as expected; the answer is its
    /// version, whatever that of `item` says. Durable when this returns.
    async fn put(
        &self,
        collection: Collection,
        item: &StoredItem,
        expect: Precondition,
    ) -> Result<u64, StoreError>;

    /// The text under a key.
    async fn get(
        &self,
        collection: Collection,
        key: &Arc<str>,
    ) -> Result<Option<StoredItem>, StoreError>;

    /// The texts of a shelf, those behind `after`, so many at most.
    async fn list(
        &self,
        collection: Collection,
        after: Option<u64>,
        limit: usize,
    ) -> Result<ItemPage, StoreError>;

    /// Throws away what is under a key, damaged or not; the answer is whether there was something.
    async fn delete(&self, collection: Collection, key: &Arc<str>) -> Result<bool, StoreError>;

    /// Throws away what was written before then; the answer is how many that were.
    async fn delete_before(
        &self,
        collection: Collection,
        before_ms: u64,
    ) -> Result<u64, StoreError>;
}
