//! What is written of runs, inside the writer's transactions.
//!
//! Every entry has a hash over its place, the hash before it and its bytes; the first one follows
//! the run's own. So no entry can be changed, moved, or come from another run unnoticed.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension as _, Row, params};
use segue_core::run::{Entry, JOURNAL_FORMAT};
use segue_core::view::RunStatus;
use sha2::{Digest as _, Sha256};

use super::fault::Fault;
use super::owner::Owners;
use super::pack::{Hash, Packed, Unpacker, pack};
use super::row::{StoredRun, signed};
use crate::store::rules::{composition_ended, fence, is_over};
use crate::store::{Lease, Record, RunRow, StoreError, TakeOver, ToolStats};

/// A turn, ready to be written.
pub(super) struct PackedRecord {
    expected: u64,
    entries: Vec<Packed>,
    status: RunStatus,
    at_ms: Option<u64>,
    /// Counts that go with it.
    pub(super) stats: Vec<ToolStats>,
}

impl PackedRecord {
    pub(super) fn new(record: Record<'_>, value_bytes_max: usize) -> PackedRecord {
        PackedRecord {
            expected: record.expected,
            entries: record.entries.iter().map(|entry| pack(entry, value_bytes_max)).collect(),
            status: record.status,
            at_ms: record.entries.last().map(|entry| entry.at_ms),
            stats: Vec::new(),
        }
    }
}

/// What the first entry of a run follows.
fn root(run_id: &str, bundle: &Hash) -> Hash {
    let mut sha = Sha256::new_with_prefix(format!("segue journal {JOURNAL_FORMAT}\n{run_id}\n"));
    sha.update(bundle);
    sha.finalize().into()
}

fn link(before: &Hash, seq: u64, bytes: &[u8]) -> Hash {
    let mut sha = Sha256::new_with_prefix(before);
    sha.update(seq.to_le_bytes());
    sha.update(bytes);
    sha.finalize().into()
}

fn known(connection: &Connection, run_id: &Arc<str>) -> Result<StoredRun, Fault> {
    let found = StoredRun::find(connection, run_id)?;
    found.ok_or_else(|| StoreError::Unknown { run_id: run_id.clone() }.into())
}

/// Begins a run. Its bundle is written unless it is there already.
pub(super) fn create(
    connection: &Connection,
    row: &RunRow,
    (hash, text): (&Hash, &str),
    record: &PackedRecord,
) -> Result<Lease, Fault> {
    let run_id = row.run_id.clone();
    if let Some(there) = StoredRun::indexed(connection, &run_id)? {
        let (expected, actual) = (record.expected, there.row.length);
        return Err(StoreError::Fenced { run_id, expected, actual }.into());
    }
    let lease = Lease { run_id, epoch: row.epoch };
    fence(row, &lease, record.expected)?;
    let sql = "INSERT OR IGNORE INTO bundle (hash, text) VALUES (?1, ?2)";
    connection.prepare_cached(sql)?.execute(params![hash, text])?;
    let head = root(&row.run_id, hash);
    let mut stored = StoredRun { number: 0, row: row.clone(), bundle: *hash, head };
    stored.insert(connection)?;
    add(connection, &mut stored, record)?;
    Ok(lease)
}

/// Adds to a run that this lease still holds.
pub(super) fn append(
    connection: &Connection,
    lease: &Lease,
    record: &PackedRecord,
) -> Result<(), Fault> {
    let mut stored = known(connection, &lease.run_id)?;
    fence(&stored.row, lease, record.expected)?;
    add(connection, &mut stored, record)
}

fn add(
    connection: &Connection,
    stored: &mut StoredRun,
    record: &PackedRecord,
) -> Result<(), Fault> {
    // At the end of the table, whichever run it is: entries that are written together share pages.
    let sql = "INSERT INTO entry (run, seq, bytes, hash) VALUES (?1, ?2, ?3, ?4)";
    let mut insert = connection.prepare_cached(sql)?;
    for Packed { bytes, parts } in &record.entries {
        let seq = stored.row.length;
        stored.head = link(&stored.head, seq, bytes);
        insert.execute(params![stored.number, signed(seq), bytes, stored.head])?;
        for (hash, bytes) in parts {
            add_part(connection, stored.number, hash, bytes)?;
        }
        stored.row.length += 1;
    }
    stored.row.status = record.status;
    stored.row.updated_ms = record.at_ms.unwrap_or(stored.row.updated_ms);
    record.stats.iter().try_for_each(|stats| count(connection, stats))?;
    // None also for a run that was over, and is being taken back because a person wants it.
    let ended_before = stored.row.ended_ms.take();
    if is_over(record.status) {
        stored.row.ended_ms = Some(stored.row.updated_ms);
        stored.row.owner = None;
        stored.row.epoch += 1;
        let ended = composition_ended(&stored.row);
        let mut stats = ToolStats::new(ended.tool.clone());
        stats.add(&ended);
        count(connection, &stats)?;
    }
    stored.update(connection, ended_before)
}

fn add_part(connection: &Connection, run: i64, hash: &Hash, bytes: &[u8]) -> Result<(), Fault> {
    let sql = "SELECT number FROM part WHERE hash = ?1";
    let there: Option<i64> =
        connection.prepare_cached(sql)?.query_row([hash], |row| row.get(0)).optional()?;
    let part = match there {
        Some(number) => number,
        None => {
            let sql = "INSERT INTO part (hash, bytes) VALUES (?1, ?2)";
            connection.prepare_cached(sql)?.insert(params![hash, bytes])?
        }
    };
    let sql = "INSERT OR IGNORE INTO part_use (run, part) VALUES (?1, ?2)";
    connection.prepare_cached(sql)?.execute([run, part])?;
    Ok(())
}

/// Adds counts to those of the same tool. Counts that cannot be read any more begin anew: they are
/// hints, and no reason to stop a run.
pub(super) fn count(connection: &Connection, more: &ToolStats) -> Result<(), Fault> {
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

/// Takes a run over.
pub(super) fn take(
    connection: &Connection,
    run_id: &Arc<str>,
    how: TakeOver,
    (owners, me): (&Owners, &Arc<str>),
) -> Result<Lease, Fault> {
    let mut stored = known(connection, run_id)?;
    let run_id = run_id.clone();
    if stored.row.ended_ms.is_some() && how != TakeOver::Reopen {
        return Err(StoreError::Ended { run_id, status: stored.row.status }.into());
    }
    let owner = stored.row.owner.take().filter(|_| how != TakeOver::Anyway);
    if let Some(owner) = owner.filter(|owner| owners.is_alive(owner)) {
        return Err(StoreError::Owned { run_id, owner }.into());
    }
    stored.row.owner = Some(me.clone());
    stored.row.epoch += 1;
    stored.update(connection, stored.row.ended_ms)?;
    Ok(Lease { run_id, epoch: stored.row.epoch })
}

/// Gives a run back.
pub(super) fn release(connection: &Connection, lease: &Lease) -> Result<(), Fault> {
    let mut stored = known(connection, &lease.run_id)?;
    fence(&stored.row, lease, stored.row.length)?;
    stored.row.owner = None;
    stored.row.epoch += 1;
    stored.update(connection, stored.row.ended_ms)
}

/// The whole journal of a run, every entry held against its hash.
pub(super) fn load(connection: &Connection, run_id: &Arc<str>) -> Result<Vec<Entry>, Fault> {
    // One view of the file for everything that is read.
    let transaction = connection.unchecked_transaction()?;
    let Some(stored) = StoredRun::find(&transaction, run_id)? else { return Ok(Vec::new()) };
    let damaged = |seq: u64, what: String| -> Fault {
        StoreError::Damaged { run_id: run_id.clone(), seq, what }.into()
    };
    let mut unpacker = Unpacker::new(|hash: &Hash| part(&transaction, hash));
    let sql = "SELECT run, seq, bytes, hash FROM entry WHERE run = ?1 ORDER BY seq";
    let mut select = transaction.prepare_cached(sql)?;
    let mut rows = select.query([stored.number])?;
    let mut journal = Vec::new();
    let mut head = root(run_id, &stored.bundle);
    loop {
        let seq = journal.len() as u64;
        let row = rows.next().map_err(|error| damaged(seq, error.to_string()))?;
        let Some(row) = row else { break };
        let bytes = chained(row, (stored.number, signed(seq)), |bytes| {
            head = link(&head, seq, bytes);
            head
        });
        let entry = bytes
            .and_then(|bytes| unpacker.unpack(bytes))
            .and_then(|written| Entry::from_value(&written));
        journal.push(entry.map_err(|what| damaged(seq, what))?);
    }
    let length = journal.len() as u64;
    if length != stored.row.length || head != stored.head {
        let what = format!("there are {length} entries, and {} were written", stored.row.length);
        return Err(damaged(length.min(stored.row.length), what));
    }
    Ok(journal)
}

/// The bytes of an entry that stands where it should and has the hash that it should.
fn chained<'a>(
    row: &'a Row<'_>,
    place: (i64, i64),
    hash_of: impl FnOnce(&[u8]) -> Hash,
) -> Result<&'a [u8], String> {
    let text = |error: rusqlite::Error| error.to_string();
    if (row.get(0).map_err(text)?, row.get(1).map_err(text)?) != place {
        return Err("it is missing".to_owned());
    }
    let bytes = row.get_ref(2).map_err(text)?.as_blob().map_err(|error| error.to_string())?;
    if row.get::<_, Hash>(3).map_err(text)? != hash_of(bytes) {
        return Err("it is not what was written".to_owned());
    }
    Ok(bytes)
}

fn part(connection: &Connection, hash: &Hash) -> Result<Vec<u8>, String> {
    let select = connection.prepare_cached("SELECT bytes FROM part WHERE hash = ?1");
    let found = select.and_then(|mut select| select.query_row([hash], |row| row.get(0)).optional());
    match found {
        Ok(Some(bytes)) => Ok(bytes),
        Ok(None) => Err("a large value is missing".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}
