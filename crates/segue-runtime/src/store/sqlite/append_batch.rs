//! A turn of a run, packed for the writer.

use std::sync::Arc;

use segue_core::diagnostic::Code;
use segue_core::view::RunStatus;

use super::error::SqliteError;
use super::journal;
use super::pack::{Hash, Packed, pack};
use super::run_cache::RunCache;
use crate::store::rules::stopped_by;
use crate::store::{AppendRecord, Lease, RunRow};

/// What a turn adds.
#[derive(Debug)]
pub(super) struct PackedRecord {
    pub(super) expected: u64,
    /// How many entries.
    pub(super) count: u64,
    pub(super) entries: Packed,
    pub(super) status: RunStatus,
    pub(super) at_ms: Option<u64>,
    /// What stopped the run, for the statistics; unknown for turns from a legacy log.
    pub(super) stopped_by: Option<Code>,
    /// Whether the run made progress with it.
    pub(super) makes_progress: bool,
}

impl PackedRecord {
    pub(super) fn new(record: AppendRecord<'_>, value_bytes_max: usize) -> PackedRecord {
        PackedRecord {
            expected: record.expected,
            count: record.entries.len() as u64,
            entries: pack(record.entries, value_bytes_max),
            status: record.status,
            at_ms: record.entries.last().map(|entry| entry.at_ms),
            stopped_by: stopped_by(record.entries),
            makes_progress: record.entries.iter().any(|entry| entry.fact.is_progress()),
        }
    }
}

/// What the first turn of a run brings beside its entries.
#[derive(Debug)]
pub(super) struct NewRunRow {
    /// The row of the run before its first entries.
    pub(super) row: RunRow,
    /// Its plan.
    pub(super) bundle: PlanBundle,
}

/// The stored form of a plan, and its hash.
#[derive(Clone, Debug)]
pub(super) struct PlanBundle {
    pub(super) hash: Hash,
    pub(super) text: Arc<str>,
}

/// A turn of a run.
#[derive(Debug)]
pub(super) struct AppendBatch {
    pub(super) lease: Lease,
    pub(super) begins: Option<NewRunRow>,
    pub(super) record: PackedRecord,
}

impl AppendBatch {
    /// Writes it.
    pub(super) fn write(&self, cache: &mut RunCache) -> Result<(), SqliteError> {
        match &self.begins {
            Some(begins) => journal::create(cache, begins, &self.record),
            None => journal::append(cache, &self.lease, &self.record),
        }
    }
}
