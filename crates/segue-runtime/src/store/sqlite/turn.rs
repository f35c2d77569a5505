//! A turn of a run, ready to be written: into the file, or on a slate first.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use segue_core::diagnostic::Code;
use segue_core::view::RunStatus;

use super::desk::Desk;
use super::fault::Fault;
use super::journal;
use super::pack::{Hash, Packed, pack};
use super::writer::unless_refused;
use crate::store::rules::{is_over, stopped_by};
use crate::store::{Lease, Record, RunRow, StoreError};

/// What a turn adds.
#[derive(Debug)]
pub(super) struct PackedRecord {
    pub(super) expected: u64,
    /// How many entries.
    pub(super) count: u64,
    pub(super) entries: Packed,
    pub(super) status: RunStatus,
    pub(super) at_ms: Option<u64>,
    /// What stopped the run, for what is counted; not known of what somebody else put on a slate.
    pub(super) stopped_by: Option<Code>,
}

impl PackedRecord {
    pub(super) fn new(record: Record<'_>, value_bytes_max: usize) -> PackedRecord {
        PackedRecord {
            expected: record.expected,
            count: record.entries.len() as u64,
            entries: pack(record.entries, value_bytes_max),
            status: record.status,
            at_ms: record.entries.last().map(|entry| entry.at_ms),
            stopped_by: stopped_by(record.entries),
        }
    }

    /// How long the journal is then.
    pub(super) fn length(&self) -> u64 {
        self.expected + self.count
    }
}

/// What the first turn of a run has beside its entries.
#[derive(Debug)]
pub(super) struct Begins {
    /// The run before its first entries.
    pub(super) row: RunRow,
    /// What its plan comes from.
    pub(super) bundle: Bundle,
    /// Whether its id was drawn for it a moment ago: then there is no other run of this id.
    pub(super) is_drawn: bool,
}

/// The text that a plan comes from, and its hash.
#[derive(Clone, Debug)]
pub(super) struct Bundle {
    pub(super) hash: Hash,
    pub(super) text: Arc<str>,
}

/// A turn of a run.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) lease: Lease,
    pub(super) begins: Option<Begins>,
    pub(super) record: PackedRecord,
    /// Whether it may stand on a slate although nobody was told so.
    in_doubt: AtomicBool,
}

impl Turn {
    pub(super) fn new(lease: Lease, begins: Option<Begins>, record: PackedRecord) -> Turn {
        Turn { lease, begins, record, in_doubt: AtomicBool::new(false) }
    }

    /// It may stand on a slate, and is not acknowledged.
    pub(super) fn doubt(&self) {
        self.in_doubt.store(true, Ordering::Relaxed);
    }

    /// Writes it.
    pub(super) fn write(&self, desk: &mut Desk) -> Result<(), Fault> {
        let written = match &self.begins {
            Some(begins) => journal::create(desk, begins, &self.record),
            None => journal::append(desk, &self.lease, &self.record),
        };
        match written {
            Err(Fault::Refused(refused)) if self.in_doubt.load(Ordering::Relaxed) => {
                if self.is_there(desk)? { Ok(()) } else { Err(Fault::Refused(refused)) }
            }
            other => other,
        }
    }

    /// Whether somebody has copied it from the slate. Nobody else writes with its lease: if the run has
    /// become as long as with it, it is there.
    fn is_there(&self, desk: &mut Desk) -> Result<bool, Fault> {
        let Turn { lease, begins, record, .. } = self;
        let is_over = is_over(record.status);
        let row = match desk.look_at(&lease.run_id) {
            Ok(stored) => stored.row,
            // Only what is over is forgotten.
            Err(Fault::Refused(StoreError::Unknown { .. })) => {
                return Ok(is_over && begins.is_none());
            }
            Err(fault) => return Err(fault),
        };
        // With its end a run becomes nobody's.
        let epoch = lease.epoch + u64::from(is_over);
        let is_ours = |begins: &Begins| is_over || row.owner == begins.row.owner;
        Ok((row.epoch, row.length) == (epoch, record.length())
            && row.ended_ms.is_some() == is_over
            && begins.as_ref().is_none_or(is_ours))
    }

    /// Copies it from a slate, unless it is in the file already.
    pub(super) fn copy(&self, desk: &mut Desk) -> Result<(), Fault> {
        unless_refused(copy_run(&[self], desk)).map(drop)
    }

    /// Whether it goes on where another one of its run ends, so that one row can hold both.
    fn goes_on_from(&self, before: &Turn) -> bool {
        let is_plain = |record: &PackedRecord| record.count > 0 && record.entries.parts.is_empty();
        self.begins.is_none()
            && self.lease.epoch == before.lease.epoch
            && self.record.expected == before.record.length()
            && is_plain(&self.record)
            && is_plain(&before.record)
    }
}

/// Copies what stands on a slate and is not in the file. Turns of one run that follow each other become
/// one row, which costs little more than one of them.
pub(super) fn copy(turns: &[Arc<Turn>], desk: &mut Desk) -> Result<(), Fault> {
    let mut runs: Vec<Vec<&Turn>> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for turn in turns {
        let place = *places.entry(&turn.lease.run_id).or_insert_with(|| {
            runs.push(Vec::new());
            runs.len() - 1
        });
        runs[place].push(turn);
    }
    runs.iter().try_for_each(|turns| unless_refused(copy_run(turns, desk)).map(drop))
}

/// Copies turns of one run. What the file refuses is of a run that is damaged, which whoever reads it is
/// told, or of another file than this.
fn copy_run(turns: &[&Turn], desk: &mut Desk) -> Result<(), Fault> {
    let Some(first) = turns.first() else { return Ok(()) };
    let there = desk.indexed(&first.lease.run_id)?;
    let is_known = |turn: &&&Turn| match there {
        Some(length) => turn.record.length() <= length,
        // Without a beginning: it ended, and was forgotten since.
        None => turn.begins.is_none(),
    };
    let mut is_new = there.is_none();
    let mut rest = &turns[turns.iter().take_while(is_known).count()..];
    while let [first, more @ ..] = rest {
        let pairs = rest.iter().zip(more).take_while(|(before, turn)| turn.goes_on_from(before));
        let count = pairs.count();
        let joined = (count > 0).then(|| joined(&first.record, &more[..count]));
        let record = joined.as_ref().unwrap_or(&first.record);
        let _ = unless_refused(match &first.begins {
            Some(begins) if std::mem::take(&mut is_new) => {
                journal::create_new(desk, begins, record)
            }
            Some(begins) => journal::create(desk, begins, record),
            None => journal::append(desk, &first.lease, record),
        })?;
        rest = &more[count..];
    }
    Ok(())
}

/// Several records as one: their lists of entries as one list.
fn joined(first: &PackedRecord, more: &[&Turn]) -> PackedRecord {
    let last = more.last().map_or(first, |turn| &turn.record);
    let mut bytes = first.entries.bytes.clone();
    for turn in more {
        // A comma in place of the end of the one and the beginning of the other.
        bytes.pop();
        bytes.push(b',');
        bytes.extend_from_slice(&turn.record.entries.bytes[1..]);
    }
    PackedRecord {
        expected: first.expected,
        count: last.length() - first.expected,
        entries: Packed { bytes, ..Packed::default() },
        status: last.status,
        at_ms: last.at_ms,
        stopped_by: last.stopped_by,
    }
}

#[cfg(test)]
mod tests {
    use segue_core::run::{Entry, Fact, NodeId};
    use segue_core::value::Value;
    use tempfile::TempDir;

    use super::super::desk::Durable;
    use super::super::pack::hash;
    use super::super::schema::{SqliteOptions, open_writer};
    use super::*;

    fn record(seq: u64, status: RunStatus) -> PackedRecord {
        let entry = |seq| {
            let node = NodeId { frame: 0, position: 0 };
            let fact = Fact::Succeeded { node, output: Value::from(seq), given: None };
            Entry { seq, at_ms: 1_000 + seq, fact }
        };
        let entries = &[entry(seq), entry(seq + 1)];
        PackedRecord::new(Record { expected: seq, entries, status, measured: &[] }, 1_000)
    }

    /// The turns of a run, two entries each.
    fn turns(run_id: &str) -> Vec<Arc<Turn>> {
        let lease = Lease { run_id: run_id.into(), epoch: 1 };
        let row = RunRow {
            run_id: lease.run_id.clone(),
            name: "c".into(),
            status: RunStatus::Pending,
            plan_hash: "plan".into(),
            started_ms: 1_000,
            updated_ms: 1_000,
            ended_ms: None,
            length: 0,
            owner: None,
            epoch: 1,
            caller: None,
        };
        let bundle = Bundle { hash: hash(b"bundle"), text: "bundle".into() };
        let begins = [Some(Begins { row, bundle, is_drawn: false }), None, None];
        let statuses = [RunStatus::Running, RunStatus::Running, RunStatus::Success];
        let turns = begins.into_iter().zip(statuses).zip(0..).map(|((begins, status), index)| {
            Arc::new(Turn::new(lease.clone(), begins, record(2 * index, status)))
        });
        turns.collect()
    }

    /// Turns of a run become one row, whatever stands between them, and nothing is copied twice.
    #[test]
    fn turns_that_follow_each_other_are_copied_as_one() {
        let folder = TempDir::new().unwrap();
        let connection = open_writer(&folder.path().join("runs.db"), &SqliteOptions::default());
        let mut desk = Desk::new(connection.unwrap(), Arc::default());
        let copied = |desk: &mut Desk, turns: &[Arc<Turn>]| {
            desk.transaction(Durable::Now, |desk| copy(turns, desk)).unwrap();
            let rows = "SELECT count(*) FROM turn";
            desk.connection.query_row(rows, [], |row| row.get::<_, i64>(0)).unwrap()
        };
        let (one, other, late) = (turns("one"), turns("other"), turns("late"));
        assert_eq!(copied(&mut desk, &one[..1]), 1);
        let mixed: Vec<Arc<Turn>> =
            one.iter().zip(&other).flat_map(|(one, other)| [one.clone(), other.clone()]).collect();
        assert_eq!(copied(&mut desk, &mixed), 3, "what was there, the rest of it, the other one");
        assert_eq!(copied(&mut desk, &mixed), 3, "what is there is left alone");
        assert_eq!(copied(&mut desk, &late[1..]), 3, "what has no beginning was forgotten");
        for run_id in ["one", "other"] {
            let entries = journal::load(&desk.connection, &run_id.into()).unwrap();
            assert!(entries.iter().map(|entry| entry.seq).eq(0..6), "{run_id}: {entries:?}");
        }
        let unfinished: i64 = desk
            .connection
            .query_row("SELECT count(*) FROM run WHERE ended_ms IS NULL", [], |row| row.get(0))
            .unwrap();
        assert_eq!(unfinished, 0);
    }
}
