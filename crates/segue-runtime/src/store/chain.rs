//! The hash chain of a journal, the same in every durable store.
//!
//! A turn has a hash over the hash before it, its place and its bytes; the first hash follows one of the
//! run itself. So no entry can be changed, moved, or come from another run unnoticed. The row of the run
//! has the length and the last hash, because a journal that lost its last turns is still a chain.

use std::sync::Arc;

use segue_core::run::{Entry, JOURNAL_FORMAT};
use segue_core::value::Value;
use sha2::{Digest as _, Sha256};

use super::StoreError;
use super::pack::{Hash, Unpacker};

/// The hash that the first turn of a run follows.
pub(super) fn root(run_id: &str, bundle: &Hash) -> Hash {
    let mut sha = Sha256::new_with_prefix(format!("segue journal {JOURNAL_FORMAT}\n{run_id}\n"));
    sha.update(bundle);
    sha.finalize().into()
}

/// The hash of a turn whose first entry has this number.
pub(super) fn link(before: &Hash, seq: u64, bytes: &[u8]) -> Hash {
    let mut sha = Sha256::new_with_prefix(before);
    sha.update(seq.to_le_bytes());
    sha.update(bytes);
    sha.finalize().into()
}

/// A turn as it is stored.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct StoredTurn {
    pub(super) bytes: Vec<u8>,
    pub(super) hash: Hash,
}

/// What the row of a run says about its journal.
pub(super) struct ChainEnd<'a> {
    pub(super) run_id: &'a Arc<str>,
    pub(super) bundle: &'a Hash,
    pub(super) length: u64,
    /// The hash of the last turn.
    pub(super) head: &'a Hash,
}

impl ChainEnd<'_> {
    pub(super) fn damaged(&self, seq: u64, what: String) -> StoreError {
        StoreError::Damaged { run_id: self.run_id.clone(), seq, what }
    }

    /// The entries of these turns, the first one first, with every hash checked. `part` finds a large
    /// value.
    pub(super) fn read<'t>(
        &self,
        turns: impl Iterator<Item = &'t StoredTurn>,
        part: impl FnMut(&Hash) -> Result<Vec<u8>, String>,
    ) -> Result<Vec<Entry>, StoreError> {
        let mut unpacker = Unpacker::new(part);
        let mut journal = Vec::new();
        let mut head = root(self.run_id, self.bundle);
        for StoredTurn { bytes, hash } in turns {
            let seq = journal.len() as u64;
            head = link(&head, seq, bytes);
            if head != *hash {
                return Err(self.damaged(seq, "its hash does not match".to_owned()));
            }
            let entries = unpacker.unpack(bytes).and_then(|written| entries(&written));
            journal.extend(entries.map_err(|what| self.damaged(seq, what))?);
        }
        let length = journal.len() as u64;
        if length != self.length || head != *self.head {
            let what = format!("there are {length} entries, and {} were written", self.length);
            return Err(self.damaged(length.min(self.length), what));
        }
        Ok(journal)
    }
}

/// The entries of a turn. Before version 4 of the tables of SQLite each row had one entry.
fn entries(written: &Value) -> Result<Vec<Entry>, String> {
    match written {
        Value::Array(entries) => entries.iter().map(Entry::from_value).collect(),
        entry => Ok(vec![Entry::from_value(entry)?]),
    }
}
