//! What whoever writes has at hand: the file, and what it knows of the runs in it.
//!
//! Whoever adds to a run has to know its epoch, its length and its last hash. They are read from the
//! file once and then remembered. SQLite says whether anybody else has written since; then nothing
//! is remembered any more. So the fence is held against what is in the file, inside the transaction,
//! and a run that this process alone writes costs no reading.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::{Connection, OptionalExtension as _, params};
use segue_core::id::ToolId;

use super::ack_log::{self, Lengths};
use super::append_batch::PlanBundle;
use super::error::SqliteError;
use super::pack::Hash;
use super::row::StoredRun;
use super::schema::BUSY_WAIT;
use crate::store::{Measured, StoreError, ToolStats};

/// Runs that are remembered.
const RUNS_MAX: usize = 10_000;

/// Calls that are worth writing their counts for; the end of a run always is.
const CALLS_MIN: u64 = 64;

/// Counts are written so far apart, in a transaction that is there anyway, or when there was none for
/// so long. A crash loses those of the time between, which are hints and nothing else.
pub(super) const COUNTS_INTERVAL: Duration = Duration::from_secs(1);

/// Calls that wait to be counted at most.
const NEWS_MAX: usize = 2_048;

/// Counts of calls that are not in the file yet.
#[derive(Debug, Default)]
pub(super) struct Counts(Mutex<Counting>);

#[derive(Debug, Default)]
struct Counting {
    tools: BTreeMap<ToolId, ToolStats>,
    /// Calls that are not counted yet.
    news: Vec<Measured>,
}

impl Counting {
    fn catch_up(&mut self) {
        for call in self.news.drain(..) {
            match self.tools.get_mut(&call.tool) {
                Some(stats) => stats.add(&call),
                None => {
                    let mut stats = ToolStats::new(call.tool.clone());
                    stats.add(&call);
                    self.tools.insert(call.tool, stats);
                }
            }
        }
    }
}

impl Counts {
    /// Takes calls in. Whoever writes into the file counts them: a run does not wait for that.
    pub(super) fn add(&self, measured: &[Measured]) {
        let mut counting = self.lock();
        counting.news.extend_from_slice(measured);
        if counting.news.len() >= NEWS_MAX {
            counting.catch_up();
        }
    }

    /// Counts what was taken in.
    pub(super) fn catch_up(&self) {
        self.lock().catch_up();
    }

    fn lock(&self) -> MutexGuard<'_, Counting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds them to those that were read from the file.
    pub(super) fn merge_into(&self, tools: &mut Vec<ToolStats>) {
        let mut counting = self.lock();
        counting.catch_up();
        for stats in counting.tools.values() {
            match tools.binary_search_by(|known| known.tool.cmp(&stats.tool)) {
                Ok(at) => tools[at].merge(stats),
                Err(at) => tools.insert(at, stats.clone()),
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        let counting = self.lock();
        counting.tools.is_empty() && counting.news.is_empty()
    }

    fn take(&self, calls_min: u64) -> BTreeMap<ToolId, ToolStats> {
        let mut counting = self.lock();
        counting.catch_up();
        let calls: u64 = counting.tools.values().map(|stats| stats.calls).sum();
        if calls < calls_min { BTreeMap::new() } else { std::mem::take(&mut counting.tools) }
    }
}

/// The file, and what is known of it.
pub(super) struct RunCache {
    pub(super) connection: Connection,
    /// Runs as they stand in the file, as long as nobody else has written it.
    runs: HashMap<Arc<str>, StoredRun>,
    /// Bundles that are in the file, for as long.
    bundles: HashSet<Hash>,
    /// What SQLite changes when somebody else has written.
    version: i64,
    counts: Arc<Counts>,
    /// When counts were last written.
    counted: Option<Instant>,
    /// Runs that ended in this transaction.
    ended: Vec<Measured>,
    /// Runs whose turns are written in this transaction, and not how they stand then.
    unsettled: Vec<Arc<str>>,
    /// Runs that had turns in this transaction, and how long they are with them.
    lengthened: Lengths,
    /// The number of the last commit.
    commit: u64,
    /// Whether the next transaction has begun already.
    has_begun: bool,
}

impl RunCache {
    pub(super) fn new(connection: Connection, counts: Arc<Counts>) -> RunCache {
        RunCache {
            connection,
            runs: HashMap::new(),
            bundles: HashSet::new(),
            version: 0,
            counts,
            counted: None,
            ended: Vec::new(),
            unsettled: Vec::new(),
            lengthened: Vec::new(),
            commit: 0,
            has_begun: false,
        }
    }

    /// Begins the next transaction if nobody else has the file; the answer is whether it did.
    pub(super) fn begin_at_once(&mut self) -> bool {
        let _ = self.connection.busy_timeout(Duration::ZERO);
        self.has_begun = self.begin().is_ok();
        let _ = self.connection.busy_timeout(BUSY_WAIT);
        self.has_begun
    }

    fn begin(&mut self) -> Result<(), SqliteError> {
        if !self.connection.is_autocommit() {
            // Whoever wrote last did not come to its end.
            self.clear();
            self.execute("ROLLBACK")?;
        }
        self.execute("BEGIN IMMEDIATE")
    }

    /// Forgets what it knows of runs, and what was to be done with this transaction.
    pub(super) fn clear(&mut self) {
        self.runs.clear();
        self.bundles.clear();
        self.unsettled.clear();
        self.ended.clear();
        self.lengthened.clear();
    }

    /// Does everything in one transaction, or nothing.
    pub(super) fn transaction(
        &mut self,
        work: impl FnOnce(&mut RunCache) -> Result<(), SqliteError>,
    ) -> Result<(), SqliteError> {
        if !std::mem::take(&mut self.has_begun) {
            self.begin()?;
        }
        self.lengthened.clear();
        let done = self.invalidate_if_changed().and_then(|()| work(self));
        let done = done.and_then(|()| self.settle());
        let done = done.and_then(|()| self.write_counts());
        let done = done.and_then(|()| {
            self.commit = ack_log::count_commit(&self.connection)?;
            self.execute("COMMIT")
        });
        self.ended.clear();
        self.unsettled.clear();
        if done.is_err() {
            // What is remembered may be what was not written.
            self.runs.clear();
            self.bundles.clear();
            if !self.connection.is_autocommit() {
                let _ = self.execute("ROLLBACK");
            }
        }
        done
    }

    /// The number of the last commit, and the runs that became longer with it.
    pub(super) fn committed(&self) -> (u64, &Lengths) {
        (self.commit, &self.lengthened)
    }

    fn execute(&self, sql: &str) -> Result<(), SqliteError> {
        self.connection.prepare_cached(sql)?.execute([])?;
        Ok(())
    }

    /// Forgets everything when somebody else has written.
    fn invalidate_if_changed(&mut self) -> Result<(), SqliteError> {
        let mut select = self.connection.prepare_cached("PRAGMA data_version")?;
        let version = select.query_row([], |row| row.get(0))?;
        if version != self.version || self.runs.len() > RUNS_MAX {
            self.version = version;
            self.runs.clear();
            self.bundles.clear();
        }
        Ok(())
    }

    /// Writes a bundle, unless it is there already.
    pub(super) fn write_bundle(
        &mut self,
        PlanBundle { hash, text }: &PlanBundle,
    ) -> Result<(), SqliteError> {
        if self.bundles.contains(hash) {
            return Ok(());
        }
        let mut select = self.connection.prepare_cached("SELECT 1 FROM bundle WHERE hash = ?1")?;
        if !select.exists([hash])? {
            let sql = "INSERT INTO bundle (hash, text) VALUES (?1, ?2)";
            self.connection.prepare_cached(sql)?.execute(params![hash, &**text])?;
        }
        self.bundles.insert(*hash);
        Ok(())
    }

    /// The run of this name. It is forgotten with that, unless it is kept again.
    pub(super) fn take_run(&mut self, run_id: &Arc<str>) -> Result<StoredRun, SqliteError> {
        if let Some(known) = self.runs.remove(run_id) {
            return Ok(known);
        }
        let found = StoredRun::find(&self.connection, run_id)?;
        found.ok_or_else(|| StoreError::Unknown { run_id: run_id.clone() }.into())
    }

    /// The run of this name, which stays as it is unless it is kept.
    pub(super) fn peek_run(&mut self, run_id: &Arc<str>) -> Result<StoredRun, SqliteError> {
        let stored = self.take_run(run_id)?;
        self.insert(stored.clone());
        Ok(stored)
    }

    /// A run has become longer.
    pub(super) fn note_length(&mut self, stored: &StoredRun) {
        self.lengthened.push((stored.row.run_id.clone(), stored.row.length));
    }

    /// Remembers a run whose next turn was just written. How it stands is written once, however many
    /// turns it has in this transaction.
    pub(super) fn insert_unsettled(&mut self, stored: StoredRun) {
        if self.unsettled.last() != Some(&stored.row.run_id) {
            self.unsettled.push(stored.row.run_id.clone());
        }
        self.insert(stored);
    }

    /// Writes how runs stand that have had turns: before anybody asks the file, and at the end. One
    /// that is not remembered any more has ended.
    pub(super) fn settle(&mut self) -> Result<(), SqliteError> {
        let mut unsettled = std::mem::take(&mut self.unsettled);
        unsettled.sort_unstable();
        unsettled.dedup();
        let mut stored = unsettled.iter().filter_map(|run_id| self.runs.get(run_id));
        stored.try_for_each(|stored| stored.update_status(&self.connection))
    }

    /// Remembers a run as it was just written.
    pub(super) fn insert(&mut self, stored: StoredRun) {
        self.runs.insert(stored.row.run_id.clone(), stored);
    }

    /// A run is over, which is a call of its composition.
    pub(super) fn count(&mut self, ended: Measured) {
        self.ended.push(ended);
    }

    /// Whether there are counts that are not in the file.
    pub(super) fn has_counts(&self) -> bool {
        !self.counts.is_empty()
    }

    /// Writes the counts if it is time to.
    fn write_counts(&mut self) -> Result<(), SqliteError> {
        self.counts.add(&self.ended);
        self.counts.catch_up();
        let calls_min = if self.ended.is_empty() { CALLS_MIN } else { 1 };
        if self.counted.is_none_or(|at| at.elapsed() >= COUNTS_INTERVAL) {
            self.write_counts_of(calls_min)?;
        }
        Ok(())
    }

    /// Writes the counts, if there are so many.
    pub(super) fn write_counts_of(&mut self, calls_min: u64) -> Result<(), SqliteError> {
        let counts = self.counts.take(calls_min);
        if !counts.is_empty() {
            self.counted = Some(Instant::now());
        }
        counts.values().try_for_each(|stats| add_counts(&self.connection, stats))
    }
}

/// Adds counts to those of the same tool. Counts that cannot be read any more begin anew: they are
/// hints, and no reason to stop a run.
fn add_counts(connection: &Connection, more: &ToolStats) -> Result<(), SqliteError> {
    let sql = "SELECT stats FROM tool WHERE id = ?1";
    let mut select = connection.prepare_cached(sql)?;
    let there: Option<String> =
        select.query_row([more.tool.as_str()], |row| row.get(0)).optional()?;
    let there = there.and_then(|text| serde_json::from_str::<ToolStats>(&text).ok());
    let mut stats = there.unwrap_or_else(|| ToolStats::new(more.tool.clone()));
    stats.merge(more);
    let text = serde_json::to_string(&stats).expect("counts have a form in JSON");
    let sql = "INSERT OR REPLACE INTO tool (id, stats) VALUES (?1, ?2)";
    connection.prepare_cached(sql)?.execute(params![more.tool.as_str(), text])?;
    Ok(())
}
