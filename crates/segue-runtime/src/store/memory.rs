//! A store that lasts as long as the process.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use parking_lot::{Mutex, MutexGuard};
use segue_core::id::ToolId;
use segue_core::limits::Limits;
use segue_core::plan::Plan;
use segue_core::run::Entry;

use super::rules::{
    check_fence, composition_ended, is_final, matches_query, new_row, next_version, stopped_by,
};
use super::{
    AppendRecord, Collection, CommandQueue, ItemPage, JournalStore, KeyValueStore, Lease, Measured,
    NewRun, PendingCommand, Precondition, Retention, RunChange, RunChanges, RunHistory, RunListing,
    RunQuery, RunQueue, RunRow, RunTransfer, SharedSlots, Store, StoreError, StoredItem, TakeOver,
    ToolStatistics, ToolStats,
};

/// Ended runs to keep at most; the one that ended first goes first.
const ENDED_MAX: usize = 1_000;

/// Runs in memory.
pub struct MemoryStore {
    state: Arc<Mutex<MemoryState>>,
    /// Alive as long as this handle is.
    owner: Arc<Owner>,
}

/// A handle that may own runs, by its name.
struct Owner(Arc<str>);

#[derive(Default)]
struct MemoryState {
    /// By number, in the order in which they began.
    runs: BTreeMap<u64, MemoryRun>,
    numbers: BTreeMap<Arc<str>, u64>,
    ended: VecDeque<u64>,
    tools: BTreeMap<ToolId, ToolStats>,
    commands: Vec<PendingCommand>,
    collections: BTreeMap<Collection, Vec<(u64, StoredItem)>>,
    /// Numbers given so far, to runs, handles, commands and items.
    given: u64,
}

struct MemoryRun {
    row: RunRow,
    journal: Vec<Entry>,
    plan: Arc<Plan>,
    owner: Weak<Owner>,
    /// The place of its last entries among the changes.
    changed: u64,
}

impl Default for MemoryStore {
    fn default() -> MemoryStore {
        MemoryStore { state: Arc::default(), owner: Arc::new(Owner("0".into())) }
    }
}

impl MemoryStore {
    /// Another handle on the same runs, for another engine.
    #[must_use]
    pub fn peer(&self) -> MemoryStore {
        let name = self.state().next_number().to_string();
        MemoryStore { state: self.state.clone(), owner: Arc::new(Owner(name.into())) }
    }

    fn state(&self) -> MutexGuard<'_, MemoryState> {
        self.state.lock()
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
        let changed = self.next_number();
        let run = self.run(&lease.run_id)?;
        check_fence(&run.row, lease, record.expected)?;
        run.changed = changed;
        run.journal.extend_from_slice(record.entries);
        run.row.length = run.journal.len() as u64;
        run.row.status = record.status;
        run.row.updated_ms = record.entries.last().map_or(run.row.updated_ms, |last| last.at_ms);
        // A rollback on request reopens a run that had ended.
        let reopened = run.row.ended_ms.take().is_some();
        let ended = is_final(record.status).then(|| mark_ended(run, record.entries));
        if reopened {
            let number = self.numbers[&lease.run_id];
            self.ended.retain(|ended| *ended != number);
        }
        for measured in record.measured.iter().chain(ended.iter().filter(|_| !record.is_part)) {
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

    /// Deletes so many of the runs that ended first.
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
    let took_ms = run.row.updated_ms.saturating_sub(run.row.started_ms);
    composition_ended(&run.row.name, took_ms, run.row.status, stopped_by(entries))
}

#[async_trait]
impl JournalStore for MemoryStore {
    async fn create(&self, run: NewRun<'_>, record: AppendRecord<'_>) -> Result<Lease, StoreError> {
        let mut state = self.state();
        let run_id = run.run_id.clone();
        if let Ok(there) = state.run(&run_id) {
            let (expected, actual) = (record.expected, there.row.length);
            return Err(StoreError::Fenced { run_id, expected, actual });
        }
        let number = state.next_number();
        let run = MemoryRun {
            row: new_row(&run, &record, &self.owner.0),
            journal: Vec::new(),
            plan: run.plan.clone(),
            owner: Arc::downgrade(&self.owner),
            changed: number,
        };
        state.runs.insert(number, run);
        state.numbers.insert(run_id.clone(), number);
        let lease = Lease { run_id, epoch: 1 };
        state.append(&lease, record)?;
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
        let mut state = self.state();
        let run = state.run(run_id)?;
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
        let mut state = self.state();
        let run = state.run(&lease.run_id)?;
        check_fence(&run.row, lease, run.row.length)?;
        run.owner = Weak::new();
        run.row.owner = None;
        run.row.epoch += 1;
        Ok(())
    }

    async fn is_abandoned(&self, run_id: &Arc<str>) -> Result<bool, StoreError> {
        Ok(self.state().run(run_id).map_or(true, |run| run.owner.strong_count() == 0))
    }

    async fn try_write(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

#[async_trait]
impl RunHistory for MemoryStore {
    async fn run(&self, run_id: &Arc<str>) -> Result<Option<RunRow>, StoreError> {
        Ok(self.state().run(run_id).ok().map(|run| run.row.clone()))
    }

    async fn runs(&self, query: &RunQuery) -> Result<RunListing, StoreError> {
        let state = self.state();
        let before = query.after.unwrap_or(u64::MAX);
        let mut page = RunListing::default();
        for (number, run) in state.runs.range(..before).rev() {
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

    async fn changes(&self, since: Option<u64>) -> Result<RunChanges, StoreError> {
        let state = self.state();
        let mut found = RunChanges { next: state.given, ..RunChanges::default() };
        let Some(since) = since else { return Ok(found) };
        found.is_gap = since > state.given;
        let changed = state.runs.values().filter(|run| run.changed > since);
        found.runs =
            changed.map(|run| RunChange { at: run.changed, row: run.row.clone() }).collect();
        found.runs.sort_by_key(|change| change.at);
        Ok(found)
    }

    async fn runs_with_prefix(
        &self,
        prefix: &str,
        limit: usize,
    ) -> Result<Vec<RunRow>, StoreError> {
        let state = self.state();
        let rows = state.runs.values().map(|run| &run.row);
        let mut found: Vec<RunRow> =
            rows.filter(|row| row.run_id.starts_with(prefix)).cloned().collect();
        found.sort_by(|a, b| a.run_id.cmp(&b.run_id));
        found.truncate(limit);
        Ok(found)
    }

    async fn unfinished(&self) -> Result<RunListing, StoreError> {
        let state = self.state();
        let open = state.runs.values().rev().filter(|run| run.row.ended_ms.is_none());
        Ok(RunListing { runs: open.map(|run| run.row.clone()).collect(), ..RunListing::default() })
    }

    async fn prune(&self, retention: Retention) -> Result<u64, StoreError> {
        let mut state = self.state();
        let surplus = retention.keep_last.map_or(0, |keep| state.ended.len().saturating_sub(keep));
        let old = retention.ended_before_ms.map_or(0, |before| {
            let ended_ms = |number| state.runs.get(number).and_then(|run| run.row.ended_ms);
            state.ended.iter().take_while(|n| ended_ms(n).is_some_and(|at| at < before)).count()
        });
        let count = surplus.max(old);
        state.delete_oldest(count);
        Ok(count as u64)
    }
}

#[async_trait]
impl CommandQueue for MemoryStore {
    async fn send_command(&self, run_id: &Arc<str>, text: &Arc<str>) -> Result<u64, StoreError> {
        let mut state = self.state();
        let row = &state.run(run_id)?.row;
        if row.ended_ms.is_some() {
            return Err(StoreError::Ended { run_id: run_id.clone(), status: row.status });
        }
        let number = state.next_number();
        state.commands.push(PendingCommand { number, run_id: run_id.clone(), text: text.clone() });
        Ok(number)
    }

    async fn pending_commands(&self) -> Result<Vec<PendingCommand>, StoreError> {
        Ok(self.state().commands.clone())
    }

    async fn remove_command(&self, number: u64) -> Result<(), StoreError> {
        self.state().commands.retain(|command| command.number != number);
        Ok(())
    }
}

#[async_trait]
impl ToolStatistics for MemoryStore {
    async fn tool_stats(&self) -> Result<Vec<ToolStats>, StoreError> {
        Ok(self.state().tools.values().cloned().collect())
    }
}

impl RunQueue for MemoryStore {}

impl SharedSlots for MemoryStore {}

/// A store in memory has no bytes to give: its runs end with the process.
impl RunTransfer for MemoryStore {}

impl Store for MemoryStore {
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
        let mut state = self.state();
        let number = state.next_number();
        let items = state.collections.entry(collection).or_default();
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
        let mut state = self.state();
        let mut items =
            state.collections.entry(collection).or_default().iter().map(|(_, item)| item);
        Ok(items.find(|item| item.key == *key).cloned())
    }

    async fn list(
        &self,
        collection: Collection,
        after: Option<u64>,
        limit: usize,
    ) -> Result<ItemPage, StoreError> {
        let mut state = self.state();
        let items = state.collections.entry(collection).or_default().iter();
        let behind = items.filter(|(number, _)| after.is_none_or(|after| *number > after));
        let some: Vec<_> = behind.take(limit).cloned().collect();
        let next = some.last().filter(|_| some.len() == limit).map(|(number, _)| *number);
        let items = some.into_iter().map(|(_, item)| item).collect();
        Ok(ItemPage { items, damaged: Vec::new(), next })
    }

    async fn delete(&self, collection: Collection, key: &Arc<str>) -> Result<bool, StoreError> {
        let mut state = self.state();
        let items = state.collections.entry(collection).or_default();
        let before = items.len();
        items.retain(|(_, item)| item.key != *key);
        Ok(items.len() < before)
    }

    async fn delete_before(
        &self,
        collection: Collection,
        before_ms: u64,
    ) -> Result<u64, StoreError> {
        let mut state = self.state();
        let items = state.collections.entry(collection).or_default();
        let before = items.len();
        items.retain(|(_, item)| item.at_ms >= before_ms);
        Ok((before - items.len()) as u64)
    }
}
