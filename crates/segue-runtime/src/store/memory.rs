//! A store that lasts as long as the process.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use segue_core::run::Entry;

use super::{Store, StoreError};

/// Journals that are kept at most; the oldest run goes first.
const RUNS_MAX: usize = 1_000;

/// Journals in memory.
#[derive(Default)]
pub struct MemoryStore {
    journals: Mutex<Journals>,
}

#[derive(Default)]
struct Journals {
    by_run: BTreeMap<Arc<str>, Vec<Entry>>,
    oldest_first: VecDeque<Arc<str>>,
}

impl Journals {
    fn append(
        &mut self,
        run_id: &Arc<str>,
        expected: u64,
        entries: &[Entry],
    ) -> Result<(), StoreError> {
        if !self.by_run.contains_key(run_id) {
            self.oldest_first.push_back(run_id.clone());
            if self.oldest_first.len() > RUNS_MAX
                && let Some(oldest) = self.oldest_first.pop_front()
            {
                self.by_run.remove(&oldest);
            }
        }
        let journal = self.by_run.entry(run_id.clone()).or_default();
        let actual = journal.len() as u64;
        if actual != expected {
            return Err(StoreError::Fenced { run_id: run_id.clone(), expected, actual });
        }
        journal.extend_from_slice(entries);
        Ok(())
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn append(
        &self,
        run_id: &Arc<str>,
        expected: u64,
        entries: &[Entry],
    ) -> Result<(), StoreError> {
        // A panic while the lock is held leaves nothing half done: entries are added in one go.
        let mut journals = self.journals.lock().unwrap_or_else(PoisonError::into_inner);
        journals.append(run_id, expected, entries)
    }

    async fn load(&self, run_id: &Arc<str>) -> Result<Vec<Entry>, StoreError> {
        let journals = self.journals.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(journals.by_run.get(run_id).cloned().unwrap_or_default())
    }
}
