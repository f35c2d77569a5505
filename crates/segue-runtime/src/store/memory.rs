//! A store that lasts as long as the process.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use async_trait::async_trait;
use segue_core::id::ToolId;
use segue_core::limits::Limits;
use segue_core::plan::Plan;
use segue_core::run::Entry;

use super::rules::{
    check_fence, composition_ended, is_final, matches_query, new_row, next_version, stopped_by,
};
use super::{
    AppendRecord, Collection, ItemPage, KeyValueStore, Lease, Measured, NewRun, PendingCommand,
    Precondition, Retention, RunListing, RunQuery, RunRow, Store, StoreError, StoredItem, TakeOver,
    ToolStats,
};

/// Runs that are over and kept at most; the one that ended first goes first.
const ENDED_MAX: usize = 1_000;

/// Runs in memory.
pub struct MemoryStore {
    kept: Arc<Mutex<MemoryState>>,
    /// Alive as long as this handle is.
    owner: Arc<Owner>,
}

/// Somebody who may have runs.
struct Owner(Arc<str>);

#[derive(Default)]
struct MemoryState {
    /// By the number that counts them.
    runs: BTreeMap<u64, MemoryRun>,
    numbers: BTreeMap<Arc<str>, u64>,
    ended: VecDeque<u64>,
    tools: BTreeMap<ToolId, ToolStats>,
    words: Vec<PendingCommand>,
    shelves: BTreeMap<Collection, Vec<(u64, StoredItem)>>,
    /// Numbers given so far, to runs and to handles.
    given: u64,
}

struct MemoryRun {
    row: RunRow,
    journal: Vec<Entry>,
    plan: Arc<Plan>,
    owner: Weak<Owner>,
}

impl Default for MemoryStore {
    fn default() -> MemoryStore {
        MemoryStore { kept: Arc::default(), owner: Arc::new(Owner("0".into())) }
    }
}

impl MemoryStore {
    /// Another handle on the same runs, for another engine.
    #[must_use]
    pub fn peer(&self) -> MemoryStore {
        let name = self.state().next_number().to_string();
        MemoryStore { kept: self.kept.clone(), owner: Arc::new(Owner(name.into())) }
    }

    fn state(&self) -> MutexGuard<'_, MemoryState> {
        // A panic while the lock is held leaves nothing half done: entries are added in one go.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryState {
    fn next_number(&mut self) -> u64 {
        self.given += 1;
        self.given
    }

    fn run(&mut self, run_id: &Arc<str>) -> Result<&mut MemoryRun, StoreError> {
        let found = self.numbers.get(run_id).and_then(|number| self.runs.get_mut(number));
        found.ok_or_else(|| StoreError::Unknown { run_id: run_id.clone() })
    }

    fn append(&mut self, lease: &Lease, record: AppendRecord<'_>) -> Result<(), StoreError> {
        let run = self.run(&lease.run_id)?;
        check_fence(&run.row, lease, record.expected)?;
        run.journal.extend_from_slice(record.entries);
        run.row.length = run.journal.len() as u64;
        run.row.status = record.status;
        run.row.updated_ms = record.entries.last().map_or(run.row.updated_ms, |last| last.at_ms);
        // A run that was over is open again while it is being taken back.
        let reopened = run.row.ended_ms.take().is_some();
        let ended = is_final(record.status).then(|| mark_ended(run, record.entries));
        if reopened {
            let number = self.numbers[&lease.run_id];
            self.ended.retain(|ended| *ended != number);
        }
        for measured in record.measured.iter().chain(&ended) {
            let tool = &measured.tool;
            self.tools
                .entry(tool.clone())
                .or_insert_with(|| ToolStats::new(tool.clone()))
                .add(measured);
        }
        if ended.is_some() {
            self.ended.push_back(self.numbers[&lease.run_id]);
            self.delete_oldest(self.ended.len().saturating_sub(ENDED_MAX));
        }
        Ok(())
    }

    /// Forgets so many of the runs that ended first.
    fn delete_oldest(&mut self, count: usize) {
        for number in self.ended.drain(..count) {
            if let Some(run) = self.runs.remove(&number) {
                self.numbers.remove(&run.row.run_id);
            }
        }
    }
}

fn mark_ended(run: &mut MemoryRun, entries: &[Entry]) -> Measured {
    run.row.ended_ms = Some(run.row.updated_ms);
    run.row.owner = None;
    run.row.epoch += 1;
    run.owner = Weak::new();
    composition_ended(&run.row, stopped_by(entries))
}

#[async_trait]
impl Store for MemoryStore {
    async fn create(&self, run: NewRun<'_>, record: AppendRecord<'_>) -> Result<Lease, StoreError> {
        let mut kept = self.state();
        let run_id = run.run_id.clone();
        if let Ok(there) = kept.run(&run_id) {
            let (expected, actual) = (record.expected, there.row.length);
            return Err(StoreError::Fenced { run_id, expected, actual });
        }
        let number = kept.next_number();
        let kept_run = MemoryRun {
            row: new_row(&run, &record, &self.owner.0),
            journal: Vec::new(),
            plan: run.plan.clone(),
            owner: Arc::downgrade(&self.owner),
        };
        kept.runs.insert(number, kept_run);
        kept.numbers.insert(run_id.clone(), number);
        let lease = Lease { run_id, epoch: 1 };
        kept.append(&lease, record)?;
        Ok(lease)
    }

    async fn append(&self, lease: &Lease, record: AppendRecord<'_>) -> Result<(), StoreError> {
        self.state().append(lease, record)
    }

    async fn load(&self, run_id: &Arc<str>) -> Result<Vec<Entry>, StoreError> {
        Ok(self.state().run(run_id).map(|run| run.journal.clone()).unwrap_or_default())
    }

    async fn plan(&self, run_id: &Arc<str>, _limits: &Limits) -> Result<Arc<Plan>, StoreError> {
        self.state().run(run_id).map(|run| run.plan.clone())
    }

    async fn acquire(&self, run_id: &Arc<str>, how: TakeOver) -> Result<Lease, StoreError> {
        let mut kept = self.state();
        let run = kept.run(run_id)?;
        let run_id = run_id.clone();
        if run.row.ended_ms.is_some() && how != TakeOver::Reopen {
            return Err(StoreError::Ended { run_id, status: run.row.status });
        }
        if let Some(owner) = run.owner.upgrade().filter(|_| how != TakeOver::Force) {
            return Err(StoreError::Owned { run_id, owner: owner.0.clone() });
        }
        run.owner = Arc::downgrade(&self.owner);
        run.row.owner = Some(self.owner.0.clone());
        run.row.epoch += 1;
        Ok(Lease { run_id, epoch: run.row.epoch })
    }

    async fn release(&self, lease: &Lease) -> Result<(), StoreError> {
        let mut kept = self.state();
        let run = kept.run(&lease.run_id)?;
        check_fence(&run.row, lease, run.row.length)?;
        run.owner = Weak::new();
        run.row.owner = None;
        run.row.epoch += 1;
        Ok(())
    }

    async fn run(&self, run_id: &Arc<str>) -> Result<Option<RunRow>, StoreError> {
        Ok(self.state().run(run_id).ok().map(|run| run.row.clone()))
    }

    async fn runs(&self, query: &RunQuery) -> Result<RunListing, StoreError> {
        let kept = self.state();
        let before = query.after.unwrap_or(u64::MAX);
        let mut page = RunListing::default();
        for (number, run) in kept.runs.range(..before).rev() {
            if matches_query(query, &run.row) {
                page.runs.push(run.row.clone());
                if page.runs.len() >= query.limit {
                    page.next = Some(*number);
                    break;
                }
            }
        }
        Ok(page)
    }

    async fn unfinished(&self) -> Result<RunListing, StoreError> {
        let kept = self.state();
        let open = kept.runs.values().rev().filter(|run| run.row.ended_ms.is_none());
        Ok(RunListing { runs: open.map(|run| run.row.clone()).collect(), ..RunListing::default() })
    }

    async fn send_command(&self, run_id: &Arc<str>, text: &Arc<str>) -> Result<u64, StoreError> {
        let mut kept = self.state();
        let row = &kept.run(run_id)?.row;
        if row.ended_ms.is_some() {
            return Err(StoreError::Ended { run_id: run_id.clone(), status: row.status });
        }
        let number = kept.next_number();
        kept.words.push(PendingCommand { number, run_id: run_id.clone(), text: text.clone() });
        Ok(number)
    }

    async fn pending_commands(&self) -> Result<Vec<PendingCommand>, StoreError> {
        Ok(self.state().words.clone())
    }

    async fn remove_command(&self, number: u64) -> Result<(), StoreError> {
        self.state().words.retain(|word| word.number != number);
        Ok(())
    }

    async fn try_write(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn prune(&self, retention: Retention) -> Result<u64, StoreError> {
        let mut kept = self.state();
        let surplus = retention.keep_last.map_or(0, |keep| kept.ended.len().saturating_sub(keep));
        let old = retention.ended_before_ms.map_or(0, |before| {
            let ended_ms = |number| kept.runs.get(number).and_then(|run| run.row.ended_ms);
            kept.ended.iter().take_while(|n| ended_ms(n).is_some_and(|at| at < before)).count()
        });
        let count = surplus.max(old);
        kept.delete_oldest(count);
        Ok(count as u64)
    }

    async fn tool_stats(&self) -> Result<Vec<ToolStats>, StoreError> {
        Ok(self.state().tools.values().cloned().collect())
    }

    fn key_value(&self) -> &dyn KeyValueStore {
        self
    }
}

#[async_trait]
impl KeyValueStore for MemoryStore {
    async fn put(
        &self,
        collection: Collection,
        item: &StoredItem,
        expect: Precondition,
    ) -> Result<u64, StoreError> {
        let mut kept = self.state();
        let number = kept.next_number();
        let items = kept.shelves.entry(collection).or_default();
        let there = items.iter_mut().find(|(_, there)| there.key == item.key);
        let version = there.as_ref().map(|(_, there)| there.version);
        let version = next_version(item, version, expect)?;
        let item = StoredItem { version, ..item.clone() };
        match there {
            Some((_, there)) => *there = item,
            None => items.push((number, item)),
        }
        Ok(version)
    }

    async fn get(
        &self,
        collection: Collection,
        key: &Arc<str>,
    ) -> Result<Option<StoredItem>, StoreError> {
        let mut kept = self.state();
        let mut items = kept.shelves.entry(collection).or_default().iter().map(|(_, item)| item);
        Ok(items.find(|item| item.key == *key).cloned())
    }

    async fn list(
        &self,
        collection: Collection,
        after: Option<u64>,
        limit: usize,
    ) -> Result<ItemPage, StoreError> {
        let mut kept = self.state();
        let items = kept.shelves.entry(collection).or_default().iter();
        let behind = items.filter(|(number, _)| after.is_none_or(|after| *number > after));
        let some: Vec<_> = behind.take(limit).cloned().collect();
        let next = some.last().filter(|_| some.len() == limit).map(|(number, _)| *number);
        let items = some.into_iter().map(|(_, item)| item).collect();
        Ok(ItemPage { items, damaged: Vec::new(), next })
    }

    async fn delete(&self, collection: Collection, key: &Arc<str>) -> Result<bool, StoreError> {
        let mut kept = self.state();
        let items = kept.shelves.entry(collection).or_default();
        let before = items.len();
        items.retain(|(_, item)| item.key != *key);
        Ok(items.len() < before)
    }

    async fn delete_before(
        &self,
        collection: Collection,
        before_ms: u64,
    ) -> Result<u64, StoreError> {
        let mut kept = self.state();
        let items = kept.shelves.entry(collection).or_default();
        let before = items.len();
        items.retain(|(_, item)| item.at_ms >= before_ms);
        Ok((before - items.len()) as u64)
    }
}
