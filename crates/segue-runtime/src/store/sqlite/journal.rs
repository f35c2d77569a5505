//! Journals and leases, inside the writer's transactions.
//!
//! A journal is a chain of turns, one row each. A turn names the turn before it, and has a hash over
//! its place, the hash before it and its entries; the first hash follows one of the run itself. So no
//! entry can be changed, moved, or come from another run unnoticed. The rows of all runs are in the
//! order in which the writer wrote them, without a second index: turns of one transaction share pages.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension as _, params};
use segue_core::run::Entry;

use super::ack_log;
use super::error::SqliteError;
use super::owner::Owners;
use super::row::StoredRun;
use super::run_cache::RunCache;
use crate::store::chain::{ChainEnd, StoredTurn, link, root};
use crate::store::pack::{Hash, Packed, compressed};
use crate::store::packed_record::{NewRunRow, PackedRecord};
use crate::store::rules::{check_fence, composition_ended, is_final, take_over, taken};
use crate::store::{Lease, StoreError, TakeOver};

/// The size of what [`write_probe`] writes: more than a small run needs.
const PROBE_BYTES: i64 = 64 * 1024;

/// Begins a run, unless there is one of this name.
pub(super) fn create(
    cache: &mut RunCache,
    begins: &NewRunRow,
    record: &PackedRecord,
) -> Result<(), SqliteError> {
    let run_id = begins.row.run_id.clone();
    if let Some(there) = StoredRun::indexed(&cache.connection, &run_id)? {
        let (expected, actual) = (record.expected, there.row.length);
        return Err(StoreError::Fenced { run_id, expected, actual }.into());
    }
    ack_log::check_not_lost(&cache.connection, &run_id)?;
    let NewRunRow { row, bundle } = begins;
    let lease = Lease { run_id: row.run_id.clone(), epoch: row.epoch };
    check_fence(row, &lease, record.expected)?;
    cache.write_bundle(bundle)?;
    let head = root(&row.run_id, &bundle.hash);
    let number = StoredRun::next_number(&cache.connection)?;
    let (row, bundle) = (row.clone(), bundle.hash);
    let mut stored = StoredRun { number, row, bundle, head, last: 0, is_apart: true, claim: None };
    if is_final(record.status) {
        // One write of its row is enough.
        stored.is_apart = false;
        add_turn(cache, &mut stored, record)?;
        cache.note_length(&stored);
        end(cache, &mut stored, record);
        return stored.insert(&cache.connection);
    }
    stored.insert(&cache.connection)?;
    add(cache, stored, record)
}

/// Adds to a run that this lease still holds.
pub(super) fn append(
    cache: &mut RunCache,
    lease: &Lease,
    record: &PackedRecord,
) -> Result<(), SqliteError> {
    let stored = cache.take_run(&lease.run_id)?;
    if let Err(refused) = check_fence(&stored.row, lease, record.expected) {
        cache.insert(stored);
        return Err(refused.into());
    }
    add(cache, stored, record)
}

fn add(
    cache: &mut RunCache,
    mut stored: StoredRun,
    record: &PackedRecord,
) -> Result<(), SqliteError> {
    add_turn(cache, &mut stored, record)?;
    cache.note_length(&stored);
    // None also for an ended run that a person rolls back.
    let ended_before = stored.row.ended_ms.take();
    let made_progress = record.makes_progress && stored.claim.take().is_some();
    if is_final(record.status) {
        stored.merge_status(&cache.connection)?;
        end(cache, &mut stored, record);
        return stored.update(&cache.connection, ended_before);
    }
    if !stored.is_apart || made_progress {
        stored.is_apart = true;
        stored.update(&cache.connection, ended_before)?;
    }
    cache.insert_unwritten(stored);
    Ok(())
}

/// Ends a run, and releases it.
fn end(cache: &mut RunCache, stored: &mut StoredRun, record: &PackedRecord) {
    stored.row.ended_ms = Some(stored.row.updated_ms);
    stored.row.owner = None;
    stored.row.epoch += 1;
    let row = &stored.row;
    let took_ms = row.updated_ms.saturating_sub(row.started_ms);
    if !record.is_part {
        cache.count(composition_ended(&row.name, took_ms, row.status, record.stopped_by));
    }
}

/// Writes a turn, and updates `stored` with it.
fn add_turn(
    cache: &mut RunCache,
    stored: &mut StoredRun,
    record: &PackedRecord,
) -> Result<(), SqliteError> {
    let Packed { bytes, parts } = &record.entries;
    if record.count > 0 {
        let bytes = compressed(bytes);
        let hash = link(&stored.head, stored.row.length, &bytes);
        write_turn(cache, stored, &bytes, hash)?;
        for (hash, bytes) in parts {
            add_part(&cache.connection, stored.number, hash, bytes)?;
        }
    }
    stored.row.length += record.count;
    stored.row.status = record.status;
    stored.row.updated_ms = record.at_ms.unwrap_or(stored.row.updated_ms);
    Ok(())
}

/// Writes the bytes of a turn behind the last one.
pub(super) fn write_turn(
    cache: &mut RunCache,
    stored: &mut StoredRun,
    bytes: &[u8],
    hash: Hash,
) -> Result<(), SqliteError> {
    let number = cache.next_turn();
    let sql = "INSERT INTO turn (number, run, before, bytes, hash) VALUES (?1, ?2, ?3, ?4, ?5)";
    let turn = params![number, stored.number, stored.last, bytes, hash];
    cache.connection.prepare_cached(sql)?.execute(turn)?;
    (stored.last, stored.head) = (number, hash);
    Ok(())
}

pub(super) fn add_part(
    connection: &Connection,
    run: i64,
    hash: &Hash,
    bytes: &[u8],
) -> Result<(), SqliteError> {
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

/// Writes a value of no run. It needs pages of its own, so a full file or disk refuses it; its commit
/// syncs like that of a turn.
pub(super) fn write_probe(connection: &Connection) -> Result<(), SqliteError> {
    let sql = "INSERT OR REPLACE INTO part (hash, bytes) VALUES (zeroblob(32), zeroblob(?1))";
    connection.prepare_cached(sql)?.execute([PROBE_BYTES])?;
    Ok(())
}

/// Deletes it, in a transaction of its own: SQLite does not write pages that are free again when it
/// commits.
pub(super) fn delete_probe(connection: &Connection) -> Result<(), SqliteError> {
    connection.prepare_cached("DELETE FROM part WHERE hash = zeroblob(32)")?.execute([])?;
    Ok(())
}

/// Takes a run over, or sets it aside.
pub(super) fn acquire(
    cache: &mut RunCache,
    run_id: &Arc<str>,
    how: TakeOver,
    (owners, me): (&Owners, &Arc<str>),
) -> Result<Result<Lease, StoreError>, SqliteError> {
    let mut stored = cache.peek_run(run_id)?;
    let is_alive = |owner: &str| owners.is_alive(owner);
    take_over(&mut stored.row, &mut stored.claim, how, me, is_alive)?;
    stored.update(&cache.connection, stored.row.ended_ms)?;
    let lease = taken(&stored.row);
    cache.insert(stored);
    Ok(lease)
}

/// Releases every unfinished run of an owner.
pub(super) fn release_all(cache: &mut RunCache, owner: &Arc<str>) -> Result<(), SqliteError> {
    let sql = "SELECT run_id FROM run INDEXED BY run_unfinished
               WHERE ended_ms IS NULL AND owner = ?1";
    let runs = {
        let mut select = cache.connection.prepare_cached(sql)?;
        let runs = select.query_map([owner], |row| row.get::<_, String>(0))?;
        runs.collect::<Result<Vec<_>, _>>()?
    };
    for run_id in runs {
        let stored = cache.peek_run(&run_id.into())?;
        let lease = Lease { run_id: stored.row.run_id.clone(), epoch: stored.row.epoch };
        release(cache, &lease)?;
    }
    Ok(())
}

/// Releases a run.
pub(super) fn release(cache: &mut RunCache, lease: &Lease) -> Result<(), SqliteError> {
    let mut stored = cache.peek_run(&lease.run_id)?;
    check_fence(&stored.row, lease, stored.row.length)?;
    stored.row.owner = None;
    stored.row.epoch += 1;
    stored.update(&cache.connection, stored.row.ended_ms)?;
    cache.insert(stored);
    Ok(())
}

/// The whole journal of a run, with every hash checked.
pub(super) fn load(connection: &Connection, run_id: &Arc<str>) -> Result<Vec<Entry>, SqliteError> {
    // All reads see one state of the file.
    let transaction = connection.unchecked_transaction()?;
    let Some(stored) = StoredRun::find(&transaction, run_id)? else { return Ok(Vec::new()) };
    let StoredRun { bundle, head, .. } = &stored;
    let end = ChainEnd { run_id, bundle, length: stored.row.length, head };
    let turns = turns(&transaction, &stored).map_err(|what| end.damaged(0, what))?;
    Ok(end.read(turns.iter().rev(), |hash| part(&transaction, hash))?)
}

/// The turns of a run, the last one first.
pub(super) fn turns(
    connection: &Connection,
    stored: &StoredRun,
) -> Result<Vec<StoredTurn>, String> {
    let sql = "SELECT run, before, bytes, hash FROM turn WHERE number = ?1";
    let mut select = connection.prepare_cached(sql).map_err(|error| error.to_string())?;
    let mut turns = Vec::new();
    let mut number = stored.last;
    while number != 0 {
        let turn = select.query_row([number], |row| {
            let turn = StoredTurn { bytes: row.get(2)?, hash: row.get(3)? };
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, turn))
        });
        let (run, before, turn) =
            turn.optional().map_err(|error| error.to_string())?.ok_or("entries are missing")?;
        // The numbers of turns grow, so this ends.
        if run != stored.number || before >= number {
            return Err("entries are not where they were written".to_owned());
        }
        turns.push(turn);
        number = before;
    }
    Ok(turns)
}

/// A large value.
pub(super) fn part(connection: &Connection, hash: &Hash) -> Result<Vec<u8>, String> {
    let select = connection.prepare_cached("SELECT bytes FROM part WHERE hash = ?1");
    let found = select.and_then(|mut select| select.query_row([hash], |row| row.get(0)).optional());
    match found {
        Ok(Some(bytes)) => Ok(bytes),
        Ok(None) => Err("a large value is missing".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use segue_core::run::{Fact, NodeId};
    use segue_core::value::Value;
    use segue_core::view::RunStatus;
    use tempfile::TempDir;

    use super::super::history::prune;
    use super::super::row::signed;
    use super::super::schema::{MIGRATIONS, SqliteOptions, open_writer};
    use super::*;
    use crate::store::pack::hash;
    use crate::store::pending_counts::PendingCounts;
    use crate::store::{AppendRecord, Retention, RunRow};

    fn entry(seq: u64) -> Entry {
        let node = NodeId { frame: 0, position: 0 };
        let fact = Fact::Succeeded { node, output: Value::from(seq), given: None };
        Entry { seq, at_ms: 1_000 + seq, fact }
    }

    fn record(seq: u64, status: RunStatus) -> PackedRecord {
        let entries = &[entry(seq), entry(seq + 1)];
        PackedRecord::new(
            AppendRecord { expected: seq, entries, status, measured: &[], is_part: false },
            1_000,
        )
    }

    /// A run with three entries, each a row by itself, as version 3 wrote it.
    fn write_version_3(connection: &Connection) -> RunRow {
        MIGRATIONS[..3].iter().for_each(|tables| connection.execute_batch(tables).unwrap());
        connection.pragma_update(None, "user_version", 3).unwrap();
        let (run_id, bundle) = (Arc::from("old"), hash(b"bundle"));
        let mut head = root(&run_id, &bundle);
        // Another run wrote in between.
        for (seq, number) in [(0, 1), (1, 5), (2, 7)] {
            let bytes = serde_json::to_vec(&entry(seq)).unwrap();
            head = link(&head, seq, &bytes);
            let sql = "INSERT INTO entry VALUES (?1, 1, ?2, ?3, ?4)";
            connection.execute(sql, params![number, signed(seq), bytes, head]).unwrap();
        }
        let row = RunRow {
            run_id,
            name: "old".into(),
            status: RunStatus::Running,
            plan_hash: "plan".into(),
            started_ms: 1_000,
            updated_ms: 1_002,
            ended_ms: None,
            length: 3,
            owner: None,
            epoch: 1,
            caller: None,
            set_aside: None,
        };
        let (row_now, is_apart) = (row.clone(), false);
        let stored =
            StoredRun { number: 1, row: row_now, bundle, head, last: 0, is_apart, claim: None };
        let sql = "INSERT INTO run VALUES
            (1, 'old', 'old', 'running', 'plan', ?1, 1000, 1002, NULL, 3, ?2, NULL, 1, ?3)";
        connection.execute(sql, params![bundle, head, stored.checksum()]).unwrap();
        row
    }

    /// J2: a run that an older Segue left unfinished goes on, ends, and is deleted whole.
    #[test]
    fn a_run_of_an_older_version_goes_on() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("runs.db");
        let row = write_version_3(&Connection::open(&path).unwrap());
        let connection = open_writer(&path, &SqliteOptions::default()).unwrap();
        let mut cache = RunCache::new(connection, Arc::<PendingCounts>::default());
        let length = |cache: &RunCache| load(&cache.connection, &row.run_id).unwrap().len();
        assert_eq!(length(&cache), 3);
        let found = StoredRun::find(&cache.connection, &row.run_id).unwrap().unwrap();
        assert_eq!(found.row, row);
        let lease = Lease { run_id: row.run_id.clone(), epoch: 1 };
        for (seq, status) in [(3, RunStatus::Running), (5, RunStatus::Success)] {
            cache.transaction(|cache| append(cache, &lease, &record(seq, status))).unwrap();
            assert_eq!(length(&cache) as u64, seq + 2);
        }
        let all = Retention { keep_last: Some(0), ..Retention::default() };
        assert_eq!(prune(&cache.connection, all).unwrap(), 1);
        let left = "SELECT (SELECT count(*) FROM turn) + (SELECT count(*) FROM standing)";
        let left: i64 = cache.connection.query_row(left, [], |row| row.get(0)).unwrap();
        assert_eq!(left, 0);
    }

    /// The file holds the number of every commit, also when the transaction deletes the turn that has it.
    #[test]
    fn a_deleted_turn_leaves_its_number() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("runs.db");
        let row = write_version_3(&Connection::open(&path).unwrap());
        let connection = open_writer(&path, &SqliteOptions::default()).unwrap();
        let mut cache = RunCache::new(connection, Arc::<PendingCounts>::default());
        let lease = Lease { run_id: row.run_id.clone(), epoch: 1 };
        let append_and_delete = |cache: &mut RunCache| {
            append(cache, &lease, &record(3, RunStatus::Success))?;
            cache.clear();
            let all = Retention { keep_last: Some(0), ..Retention::default() };
            assert_eq!(prune(&cache.connection, all)?, 1);
            Ok(())
        };
        cache.transaction(append_and_delete).unwrap();
        let (number, _) = cache.committed();
        assert!(number > 7, "the last turn of the run had this number");
        assert_eq!(ack_log::last_commit(&cache.connection).unwrap(), number);
    }
}
