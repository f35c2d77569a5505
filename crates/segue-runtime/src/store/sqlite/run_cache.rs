//! The connection that writes, and a cache of the runs in the file.
//!
//! An append needs the run's epoch, length and last hash. The cache reads them once. SQLite tells
//! whether another process has written since (`data_version`); then the cache forgets everything. So
//! the fence holds against the file, inside the transaction, and a run that only this process writes
//! costs no reading.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::{Connection, params};

use super::ack_log::{self, Lengths};
use super::error::SqliteError;
use super::row::{StoredRun, signed};
use super::schema::BUSY_WAIT;
use super::statistics;
use crate::store::pack::Hash;
use crate::store::packed_record::PlanBundle;
use crate::store::pending_counts::PendingCounts;
use crate::store::{Measured, StoreError};

/// Runs to remember.
const RUNS_MAX: usize = 10_000;

/// Calls that are worth a write of their counts; the end of a run always is.
const CALLS_MIN: u64 = 64;

/// Time between two writes of counts.
const COUNTS_INTERVAL: Duration = Duration::from_secs(1);

/// The connection that writes, and a cache of its file.
pub(super) struct RunCache {
    pub(super) connection: Connection,
    /// Runs as the file has them, until another process writes.
    runs: HashMap<Arc<str>, StoredRun>,
    /// Bundles in the file, until another process writes.
    bundles: HashSet<Hash>,
    /// SQLite changes it when another connection has written; none when the cache knows nothing.
    data_version: Option<i64>,
    counts: Arc<PendingCounts>,
    /// When counts were last written.
    counted: Option<Instant>,
    /// Runs that ended in this transaction, as calls of their compositions.
    ended: Vec<Measured>,
    /// Runs with turns in this transaction whose status is not written yet.
    unwritten: Vec<Arc<str>>,
    /// Runs with turns in this transaction, and their lengths.
    lengthened: Lengths,
    /// The number of the last commit, or of the last turn in this transaction.
    number: u64,
    /// Whether the last turn of this transaction gives its commit the number.
    is_numbered: bool,
    /// Whether the next transaction has begun already.
    has_begun: bool,
}

impl RunCache {
    pub(super) fn new(connection: Connection, counts: Arc<PendingCounts>) -> RunCache {
        RunCache {
            connection,
            runs: HashMap::new(),
            bundles: HashSet::new(),
            data_version: None,
            counts,
            counted: None,
            ended: Vec::new(),
            unwritten: Vec::new(),
            lengthened: Vec::new(),
            number: 0,
            is_numbered: false,
            has_begun: false,
        }
    }

    /// Begins the next transaction if no other process holds the file's lock; returns whether it did.
    pub(super) fn begin_at_once(&mut self) -> bool {
        let _ = self.connection.busy_timeout(Duration::ZERO);
        self.has_begun = self.begin().is_ok();
        let _ = self.connection.busy_timeout(BUSY_WAIT);
        self.has_begun
    }

    fn begin(&mut self) -> Result<(), SqliteError> {
        if !self.connection.is_autocommit() {
            // The last transaction ended in a panic.
            self.clear();
            self.execute("ROLLBACK")?;
        }
        self.execute("BEGIN IMMEDIATE")
    }

    /// Forgets all runs, and what this transaction noted of them.
    pub(super) fn clear(&mut self) {
        self.forget_file();
        self.unwritten.clear();
        self.ended.clear();
        self.lengthened.clear();
        // The caller may delete turns, and their numbers with them.
        self.is_numbered = false;
    }

    /// Forgets what the file holds.
    fn forget_file(&mut self) {
        self.runs.clear();
        self.bundles.clear();
    }

    /// Does `work` in one transaction, or nothing of it.
    pub(super) fn transaction(
        &mut self,
        work: impl FnOnce(&mut RunCache) -> Result<(), SqliteError>,
    ) -> Result<(), SqliteError> {
        if !std::mem::take(&mut self.has_begun) {
            self.begin()?;
        }
        self.lengthened.clear();
        self.is_numbered = false;
        let done = self.commit(work);
        self.ended.clear();
        self.unwritten.clear();
        if done.is_err() {
            // The cache may hold turns that are not in the file.
            self.data_version = None;
            if !self.connection.is_autocommit() {
                let _ = self.execute("ROLLBACK");
            }
        }
        done
    }

    fn commit(
        &mut self,
        work: impl FnOnce(&mut RunCache) -> Result<(), SqliteError>,
    ) -> Result<(), SqliteError> {
        self.forget_if_changed()?;
        work(self)?;
        self.write_statuses()?;
        self.write_counts()?;
        if !self.is_numbered {
            self.number += 1;
            ack_log::write_commit(&self.connection, self.number)?;
        }
        self.execute("COMMIT")
    }

    /// The number of the last commit, and the runs that became longer with it.
    pub(super) fn committed(&self) -> (u64, &Lengths) {
        (self.number, &self.lengthened)
    }

    /// The number of the next turn.
    pub(super) fn next_turn(&mut self) -> i64 {
        self.number += 1;
        self.is_numbered = true;
        signed(self.number)
    }

    /// Uses no number up to this one.
    pub(super) fn skip_numbers(&mut self, last: u64) {
        self.number = self.number.max(last);
    }

    fn execute(&self, sql: &str) -> Result<(), SqliteError> {
        self.connection.prepare_cached(sql)?.execute([])?;
        Ok(())
    }

    /// Forgets everything when another connection has written.
    fn forget_if_changed(&mut self) -> Result<(), SqliteError> {
        let mut select = self.connection.prepare_cached("PRAGMA data_version")?;
        let data_version = select.query_row([], |row| row.get(0))?;
        drop(select);
        if self.data_version != Some(data_version) || self.runs.len() > RUNS_MAX {
            self.forget_file();
            self.number = ack_log::last_commit(&self.connection)?;
            self.data_version = Some(data_version);
        }
        Ok(())
    }

    /// Writes a bundle, unless the file has it already.
    pub(super) fn write_bundle(
        &mut self,
        PlanBundle { hash, text }: &PlanBundle,
    ) -> Result<(), SqliteError> {
        if !self.bundles.contains(hash) {
            let sql = "INSERT OR IGNORE INTO bundle (hash, text) VALUES (?1, ?2)";
            self.connection.prepare_cached(sql)?.execute(params![hash, &**text])?;
            self.bundles.insert(*hash);
        }
        Ok(())
    }

    /// Takes a run out of the cache, or reads it from the file. The caller inserts it again after it
    /// wrote the run.
    pub(super) fn take_run(&mut self, run_id: &Arc<str>) -> Result<StoredRun, SqliteError> {
        if let Some(known) = self.runs.remove(run_id) {
            return Ok(known);
        }
        let found = StoredRun::find(&self.connection, run_id)?;
        found.ok_or_else(|| StoreError::Unknown { run_id: run_id.clone() }.into())
    }

    /// A copy of a run, which stays in the cache.
    pub(super) fn peek_run(&mut self, run_id: &Arc<str>) -> Result<StoredRun, SqliteError> {
        let stored = self.take_run(run_id)?;
        self.insert(stored.clone());
        Ok(stored)
    }

    /// Notes the new length of a run.
    pub(super) fn note_length(&mut self, stored: &StoredRun) {
        self.lengthened.push((stored.row.run_id.clone(), stored.row.length));
    }

    /// Remembers a run after a turn. Its status is written once in a transaction, however many turns it
    /// has there.
    pub(super) fn insert_unwritten(&mut self, stored: StoredRun) {
        if self.unwritten.last() != Some(&stored.row.run_id) {
            self.unwritten.push(stored.row.run_id.clone());
        }
        self.insert(stored);
    }

    /// Writes the statuses of runs with new turns: before a request reads the file, and before the
    /// commit. A run that ended is not in the cache, and its row is written.
    pub(super) fn write_statuses(&mut self) -> Result<(), SqliteError> {
        let mut unwritten = std::mem::take(&mut self.unwritten);
        unwritten.sort_unstable();
        unwritten.dedup();
        let mut stored = unwritten.iter().filter_map(|run_id| self.runs.get(run_id));
        stored.try_for_each(|stored| stored.update_status(&self.connection))
    }

    /// Remembers a run as it was just written.
    pub(super) fn insert(&mut self, stored: StoredRun) {
        self.runs.insert(stored.row.run_id.clone(), stored);
    }

    /// Counts a run that ended as a call of its composition.
    pub(super) fn count(&mut self, ended: Measured) {
        self.ended.push(ended);
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

    /// Writes the counts, if there are so many calls.
    fn write_counts_of(&mut self, calls_min: u64) -> Result<(), SqliteError> {
        let counts = self.counts.take(calls_min);
        if !counts.is_empty() {
            self.counted = Some(Instant::now());
        }
        counts.iter().try_for_each(|stats| statistics::add(&self.connection, stats))
    }

    /// Writes all counts, in a transaction of their own. They are hints: an error loses them.
    pub(super) fn flush_counts(&mut self) {
        if !self.counts.is_empty() {
            let _ = self.transaction(|cache| cache.write_counts_of(1));
        }
    }
}
