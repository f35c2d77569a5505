//! What was acknowledged, written down outside the log.
//!
//! SQLite reads its log up to the first frame that does not fit, and takes what stands behind it for
//! a write that never came to its end. So a bit that flips in the log of a process that was killed
//! makes later commits vanish. Against that commits are counted in the file, and each process writes
//! into its owner's file which commit it acknowledged last and how long runs were with it: a line, one
//! write, no sync. What is written there outlives the process. It may not outlive a loss of power;
//! then it says less than the log has, which is no damage.
//!
//! Whoever opens the store compares what dead owners wrote with what is there. A run that is shorter
//! is marked, and does not go on; one that is not there any more is named.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::{Connection, params};
use twox_hash::XxHash3_64;

use super::error::SqliteError;
use super::row::{StoredRun, signed};
use super::run_cache::RunCache;
use crate::store::StoreError;

/// A file that is longer is written anew, without what is in the store's file by now.
const BYTES_MAX: u64 = 64 * 1024;

/// Runs, and how long they were.
pub(super) type Lengths = Vec<(Arc<str>, u64)>;

/// Writes down what this process acknowledges.
#[derive(Debug)]
pub(super) struct AckLog {
    lines: Mutex<AckLines>,
    is_settled: AtomicBool,
}

#[derive(Debug)]
struct AckLines {
    file: File,
    bytes: u64,
    /// Lines about what may stand in the log alone, and the last one.
    kept: VecDeque<(u64, String)>,
}

impl AckLog {
    /// Writes into this file, which is empty.
    pub(super) fn new(file: File) -> AckLog {
        let lines = Mutex::new(AckLines { file, bytes: 0, kept: VecDeque::new() });
        AckLog { lines, is_settled: AtomicBool::new(false) }
    }

    fn lines(&self) -> MutexGuard<'_, AckLines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A commit is durable, and about to be acknowledged. When this cannot be written, damage of the
    /// log may go unnoticed; the commit is durable all the same.
    pub(super) fn note(&self, commit: u64, runs: &[(Arc<str>, u64)]) {
        let runs: Vec<(&str, u64)> = runs.iter().map(|(run, length)| (&**run, *length)).collect();
        let json = serde_json::to_string(&(commit, runs)).expect("it has a form in JSON");
        // On a line of its own also behind one that was not written whole.
        let line = format!("\n{} {json}\n", checksum(&json));
        let mut lines = self.lines();
        if lines.file.write_all(line.as_bytes()).is_ok() {
            lines.bytes += line.len() as u64;
            lines.kept.push_back((commit, line));
        }
    }

    /// Every commit up to this one is in the store's file. The last line stays: a log that is damaged
    /// may hide what is in the file, too.
    pub(super) fn merged(&self, commit: u64) {
        let mut lines = self.lines();
        while lines.kept.len() > 1 && lines.kept.front().is_some_and(|(known, _)| *known <= commit)
        {
            lines.kept.pop_front();
        }
        if lines.bytes > BYTES_MAX {
            let _ = lines.rewrite();
        }
    }

    /// Everything is in the store's file, and nothing in the log: there is nothing to compare.
    pub(super) fn settle(&self) {
        self.is_settled.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_settled(&self) -> bool {
        self.is_settled.load(Ordering::Relaxed)
    }
}

impl AckLines {
    /// Over what is there, which is shortened afterwards: every line is true at any time.
    fn rewrite(&mut self) -> io::Result<()> {
        let text: String = self.kept.iter().map(|(_, line)| &**line).collect();
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(text.as_bytes())?;
        self.bytes = text.len() as u64;
        self.file.set_len(self.bytes)
    }
}

fn checksum(json: &str) -> String {
    format!("{:016x}", XxHash3_64::oneshot(json.as_bytes()))
}

/// What dead owners acknowledged.
#[derive(Debug, Default)]
pub(super) struct Acknowledged {
    /// The last commit.
    pub(super) commit: u64,
    /// How long runs were, and with which commit.
    runs: BTreeMap<Arc<str>, (u64, u64)>,
}

impl Acknowledged {
    /// Adds what stands in an owner's file. A line that is not whole says nothing.
    pub(super) fn add(&mut self, text: &[u8]) {
        for line in text.split(|byte| *byte == b'\n') {
            let Some((commit, runs)) = std::str::from_utf8(line).ok().and_then(read) else {
                continue;
            };
            self.commit = self.commit.max(commit);
            for (run, length) in runs {
                let known = self.runs.entry(run.into()).or_default();
                *known = (*known).max((commit, length));
            }
        }
    }
}

fn read(line: &str) -> Option<(u64, Vec<(String, u64)>)> {
    let (sum, json) = line.split_once(' ')?;
    if sum != checksum(json) {
        return None;
    }
    serde_json::from_str(json).ok()
}

/// How many commits the store has seen.
pub(super) fn commits(connection: &Connection) -> Result<u64, SqliteError> {
    let count: i64 = connection.query_row("SELECT count FROM commits", [], |row| row.get(0))?;
    Ok(count.unsigned_abs())
}

/// Counts one more.
pub(super) fn count_commit(connection: &Connection) -> Result<u64, SqliteError> {
    let mut update =
        connection.prepare_cached("UPDATE commits SET count = count + 1 RETURNING count")?;
    let count: i64 = update.query_row([], |row| row.get(0))?;
    Ok(count.unsigned_abs())
}

/// Compares what was acknowledged with what is there, and marks what lost something.
pub(super) fn compare(
    cache: &mut RunCache,
    acknowledged: &Acknowledged,
) -> Result<(), SqliteError> {
    let there = commits(&cache.connection)?;
    let lost = acknowledged.commit.saturating_sub(there);
    let (mut short, mut gone) = (Vec::new(), Vec::new());
    for (run_id, (commit, length)) in &acknowledged.runs {
        match StoredRun::indexed(&cache.connection, run_id) {
            Ok(Some(stored)) if stored.row.length < *length => short.push(stored),
            // One whose last commit is there was forgotten since.
            Ok(None) if *commit > there => gone.push((run_id, *length)),
            // What is damaged is named already.
            Ok(_) | Err(SqliteError::Refused(_)) => {}
            Err(fault) => return Err(fault),
        }
    }
    if lost == 0 && short.is_empty() {
        return Ok(());
    }
    cache.transaction(|cache| {
        short.into_iter().try_for_each(|stored| stored.mark_lost(&cache.connection))?;
        for (run_id, length) in gone {
            note_lost(&cache.connection, run_id, length)?;
        }
        let sql = "UPDATE commits SET count = max(count, ?1), lost = lost + ?2";
        cache.connection.execute(sql, [signed(acknowledged.commit), signed(lost)])?;
        Ok(())
    })
}

/// Names a run of which nothing is left.
pub(super) fn note_lost(
    connection: &Connection,
    run_id: &Arc<str>,
    length: u64,
) -> Result<(), SqliteError> {
    let sql = "INSERT OR REPLACE INTO lost (run_id, length) VALUES (?1, ?2)";
    connection.execute(sql, params![run_id, signed(length)])?;
    Ok(())
}

/// What was lost with a log: commits, and runs of which nothing is left.
pub(super) fn lost(connection: &Connection) -> Result<Vec<StoreError>, SqliteError> {
    let commits: i64 = connection.query_row("SELECT lost FROM commits", [], |row| row.get(0))?;
    let mut lost = Vec::new();
    if commits > 0 {
        lost.push(StoreError::Truncated { commits: commits.unsigned_abs() });
    }
    let mut select = connection.prepare_cached("SELECT run_id, length FROM lost")?;
    let runs = select
        .query_map([], |row| Ok(missing_run(&row.get::<_, String>(0)?.into(), row.get(1)?)))?;
    for run in runs {
        lost.push(run?);
    }
    Ok(lost)
}

fn missing_run(run_id: &Arc<str>, length: i64) -> StoreError {
    let what = format!("the log that held it was damaged: its {length} entries are lost");
    StoreError::Damaged { run_id: run_id.clone(), seq: 0, what }
}

/// Whether a run of which there is no row was lost with a log.
pub(super) fn check_not_lost(
    connection: &Connection,
    run_id: &Arc<str>,
) -> Result<(), SqliteError> {
    use rusqlite::OptionalExtension as _;

    let mut select = connection.prepare_cached("SELECT length FROM lost WHERE run_id = ?1")?;
    match select.query_row([run_id], |row| row.get(0)).optional()? {
        Some(length) => Err(missing_run(run_id, length).into()),
        None => Ok(()),
    }
}

/// Forgets what was lost; the answer is how many runs those were.
pub(super) fn clear_lost(connection: &Connection) -> Result<u64, SqliteError> {
    connection.execute("UPDATE commits SET lost = 0", [])?;
    Ok(connection.execute("DELETE FROM lost", [])? as u64)
}
