//! The acknowledgement log: which commits a process acknowledged, outside SQLite's log.
//!
//! SQLite reads its log up to the first frame whose checksum does not match, and takes the rest for a
//! write that was cut off. So a flipped bit in the log of a killed process makes later commits vanish
//! without an error. Against that every commit has a number in the file, and each process writes a line
//! into its owner's file after every commit: the number of the commit, and the lengths of its runs.
//! The number of a commit is that of its last turn, so that a turn need not write a second page. A
//! commit without a turn takes the next number, and writes it into the table `commits`.
//! One write, no sync. The line outlives the process. It may not outlive a power failure; then it says
//! less than SQLite's log holds, which is harmless.
//!
//! The next process that opens the store compares the lines of dead owners with the file. A run that is
//! shorter than its line is marked and does not go on; a run that is missing is named. Only a file
//! beside the lines of a killed process is compared: a copy in another folder has none.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rusqlite::{Connection, OptionalExtension as _, params};
use twox_hash::XxHash3_64;

use super::error::SqliteError;
use super::row::{StoredRun, signed};
use super::run_cache::RunCache;
use crate::store::StoreError;

/// A longer file is rewritten without the commits that are in the store's file by now.
const BYTES_MAX: u64 = 64 * 1024;

/// Runs, and how long they were.
pub(super) type Lengths = Vec<(Arc<str>, u64)>;

/// The acknowledgement log of this process.
#[derive(Debug)]
pub(super) struct AckLog {
    lines: Mutex<AckLines>,
    is_settled: AtomicBool,
}

#[derive(Debug)]
struct AckLines {
    file: File,
    bytes: u64,
    /// Lines of commits that only SQLite's log may hold, and the last line.
    kept: VecDeque<(u64, String)>,
}

impl AckLog {
    /// Writes into this file, which is empty.
    pub(super) fn new(file: File) -> AckLog {
        let lines = Mutex::new(AckLines { file, bytes: 0, kept: VecDeque::new() });
        AckLog { lines, is_settled: AtomicBool::new(false) }
    }

    /// Notes a durable commit, before the writer acknowledges it. When this fails, damage of SQLite's log
    /// may go unnoticed; the commit is durable all the same.
    pub(super) fn note(&self, commit: u64, runs: &[(Arc<str>, u64)]) {
        let runs: Vec<(&str, u64)> = runs.iter().map(|(run, length)| (&**run, *length)).collect();
        let json =
            serde_json::to_string(&(commit, runs)).expect("numbers and texts have a form in JSON");
        // A line break first: the line before may be cut off.
        let line = format!("\n{} {json}\n", checksum(&json));
        let mut lines = self.lines.lock();
        if lines.file.write_all(line.as_bytes()).is_ok() {
            lines.bytes += line.len() as u64;
            lines.kept.push_back((commit, line));
        }
    }

    /// Drops the lines up to this commit, which is in the store's file. The last line stays: a damaged log
    /// may hide pages of the file, too.
    pub(super) fn checkpointed(&self, commit: u64) {
        let mut lines = self.lines.lock();
        while lines.kept.len() > 1 && lines.kept.front().is_some_and(|(known, _)| *known <= commit)
        {
            lines.kept.pop_front();
        }
        if lines.bytes > BYTES_MAX {
            let _ = lines.rewrite();
        }
    }

    /// Notes that SQLite's log is empty: there is nothing to compare.
    pub(super) fn settle(&self) {
        self.is_settled.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_settled(&self) -> bool {
        self.is_settled.load(Ordering::Relaxed)
    }
}

impl AckLines {
    /// Writes over the file and shortens it afterwards: every whole line is true at any time.
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

/// What dead processes acknowledged.
#[derive(Debug, Default)]
pub(super) struct Acknowledged {
    /// The last commit.
    pub(super) commit: u64,
    /// The commit of each run's last line, and its length then.
    runs: BTreeMap<Arc<str>, (u64, u64)>,
}

impl Acknowledged {
    /// Adds the lines of an owner's file, except damaged ones.
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

/// The number of the last commit in the file.
pub(super) fn last_commit(connection: &Connection) -> Result<u64, SqliteError> {
    let sql = "SELECT max(count, (SELECT coalesce(max(number), 0) FROM turn)) FROM commits";
    let number: i64 = connection.prepare_cached(sql)?.query_row([], |row| row.get(0))?;
    Ok(number.unsigned_abs())
}

/// Writes the number of a commit that no turn has.
pub(super) fn write_commit(connection: &Connection, number: u64) -> Result<(), SqliteError> {
    let mut update = connection.prepare_cached("UPDATE commits SET count = ?1")?;
    update.execute([signed(number)])?;
    Ok(())
}

/// Compares the acknowledgements with the file, and marks runs that lost entries.
pub(super) fn compare(
    cache: &mut RunCache,
    acknowledged: &Acknowledged,
) -> Result<(), SqliteError> {
    let there = last_commit(&cache.connection)?;
    let lost = acknowledged.commit.saturating_sub(there);
    let (mut short, mut gone) = (Vec::new(), Vec::new());
    for (run_id, (commit, length)) in &acknowledged.runs {
        match StoredRun::indexed(&cache.connection, run_id) {
            Ok(Some(stored)) if stored.row.length < *length => short.push(stored),
            // A run whose last commit is there was deleted since.
            Ok(None) if *commit > there => gone.push((run_id, *length)),
            // A damaged run is named already.
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
        let sql = "UPDATE commits SET lost = lost + ?1";
        cache.connection.execute(sql, [signed(lost)])?;
        // No later commit takes a number that was acknowledged.
        cache.skip_numbers(acknowledged.commit);
        Ok(())
    })
}

/// Names a run of which the file has nothing.
pub(super) fn note_lost(
    connection: &Connection,
    run_id: &Arc<str>,
    length: u64,
) -> Result<(), SqliteError> {
    let sql = "INSERT OR REPLACE INTO lost (run_id, length) VALUES (?1, ?2)";
    connection.execute(sql, params![run_id, signed(length)])?;
    Ok(())
}

/// Writes and whole runs that were lost with a log.
pub(super) fn lost(connection: &Connection) -> Result<Vec<StoreError>, SqliteError> {
    let writes: i64 = connection.query_row("SELECT lost FROM commits", [], |row| row.get(0))?;
    let mut lost = Vec::new();
    if writes > 0 {
        lost.push(StoreError::Truncated { writes: writes.unsigned_abs() });
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
    let what = format!("its {length} entries are lost: the log that held them was damaged");
    StoreError::Damaged { run_id: run_id.clone(), seq: 0, what }
}

/// Refuses a run that was lost with a log.
pub(super) fn check_not_lost(
    connection: &Connection,
    run_id: &Arc<str>,
) -> Result<(), SqliteError> {
    let mut select = connection.prepare_cached("SELECT length FROM lost WHERE run_id = ?1")?;
    match select.query_row([run_id], |row| row.get(0)).optional()? {
        Some(length) => Err(missing_run(run_id, length).into()),
        None => Ok(()),
    }
}

/// Deletes the names of lost runs; returns how many.
pub(super) fn clear_lost(connection: &Connection) -> Result<u64, SqliteError> {
    connection.execute("UPDATE commits SET lost = 0", [])?;
    Ok(connection.execute("DELETE FROM lost", [])? as u64)
}
