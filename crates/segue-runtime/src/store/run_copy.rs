//! An ended run in the form in which every durable store keeps it.
//!
//! Its turns have the same bytes and the same hashes in every store, so a store can give them to another one
//! unread, and each checks the chain for itself.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::sync::Arc;

use super::chain::{ChainEnd, StoredTurn};
use super::pack::Hash;
use super::packed_record::{PlanBundle, checked_bundle};
use super::{RunRow, StoreError};

/// An ended run, its plan, its turns and its large values. Only a store makes one, and checks it.
#[derive(Clone, PartialEq, Eq)]
pub struct RunCopy {
    pub(super) row: RunRow,
    pub(super) bundle: PlanBundle,
    /// The hash of the last turn, as the row of the run has it.
    pub(super) head: Hash,
    /// The first one first.
    pub(super) turns: Vec<StoredTurn>,
    /// The large values that the turns name, at any depth.
    pub(super) parts: BTreeMap<Hash, Vec<u8>>,
}

/// What a store has of an ended run.
pub(super) struct StoredParts<F> {
    pub(super) row: RunRow,
    pub(super) bundle: Hash,
    /// The text of its plan.
    pub(super) text: Option<String>,
    pub(super) head: Hash,
    pub(super) turns: Vec<StoredTurn>,
    /// Finds a large value.
    pub(super) part: F,
}

impl RunCopy {
    /// The run with every hash checked, and the large values that its turns name.
    pub(super) fn checked(
        stored: StoredParts<impl FnMut(&Hash) -> Result<Vec<u8>, String>>,
    ) -> Result<RunCopy, StoreError> {
        let StoredParts { row, bundle, text, head, turns, mut part } = stored;
        let text = checked_bundle(&row.run_id, &bundle, text)?.into();
        let mut parts = BTreeMap::new();
        let end =
            ChainEnd { run_id: &row.run_id, bundle: &bundle, length: row.length, head: &head };
        end.read(turns.iter(), |hash| {
            let bytes = part(hash)?;
            parts.insert(*hash, bytes.clone());
            Ok(bytes)
        })?;
        Ok(RunCopy { row, bundle: PlanBundle { hash: bundle, text }, head, turns, parts })
    }

    /// The run in short.
    pub fn row(&self) -> &RunRow {
        &self.row
    }

    /// The hash of its last turn: it stands for every entry before it.
    pub fn head(&self) -> String {
        self.head.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    /// How many bytes its journal has in the store.
    pub fn size(&self) -> usize {
        let turns: usize = self.turns.iter().map(|turn| turn.bytes.len()).sum();
        turns + self.parts.values().map(Vec::len).sum::<usize>()
    }

    /// Where two copies of a run differ; none when they are the same.
    pub(super) fn difference(&self, other: &RunCopy) -> Option<StoreError> {
        if self == other {
            return None;
        }
        let run_id: Arc<str> = other.row.run_id.clone();
        let what = "the two stores have different runs of this id".to_owned();
        Some(StoreError::Damaged { run_id, seq: 0, what })
    }
}

impl fmt::Debug for RunCopy {
    /// Without its content, which may be private.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunCopy")
            .field("row", &self.row)
            .field("head", &self.head())
            .field("turns", &self.turns.len())
            .field("parts", &self.parts.len())
            .finish_non_exhaustive()
    }
}
