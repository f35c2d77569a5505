//! A turn of a run, packed for the writer.

use super::error::SqliteError;
use super::journal;
use super::run_cache::RunCache;
use crate::store::Lease;
use crate::store::packed_record::{NewRunRow, PackedRecord};

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
