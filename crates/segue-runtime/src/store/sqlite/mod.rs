//! The embedded store: one SQLite file that survives the process and the machine.
//!
//! Whatever is acknowledged is on disk: SQLite's log is the only one, and is synced with every commit
//! (`synchronous=FULL`). One at a time writes, and syncs once for all that wait ([`writer`]). Readers
//! have connections of their own and wait for nobody. Nothing is believed because it is there: rows have checksums and entries are chained by their hashes, so
//! a damaged run is named and set aside while the others go on.

mod ack_log;
mod append_batch;
mod collections;
mod commands;
mod error;
mod history;
mod journal;
mod legacy_log;
mod owner;
mod pack;
mod row;
mod run_cache;
mod schema;
mod writer;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension as _};
use segue_core::limits::Limits;
use segue_core::plan::Plan;
use segue_core::plan::bundle::unbundle;
use segue_core::run::Entry;
use tokio::sync::OnceCell;

use super::private_files::make_file;
use super::rules::new_row;
use super::{
    AppendRecord, Collection, ItemPage, KeyValueStore, Lease, NewRun, PendingCommand, Precondition,
    Retention, RunListing, RunQuery, RunRow, Store, StoreError, StoreFigures, StoredItem, TakeOver,
    ToolStats,
};
use append_batch::{AppendBatch, NewRunRow, PackedRecord, PlanBundle};
use error::{BUSY, SqliteError};
use owner::{Owner, Owners};
use pack::{Hash, hash};
use row::StoredRun;
use run_cache::{Counts, RunCache};
use schema::CheckpointMode;
pub use schema::SqliteOptions;
use writer::Writer;

/// Plans that are kept at hand.
const PLANS_MAX: usize = 64;

/// Runs in a file.
pub struct SqliteStore {
    writer: Writer,
    readers: Arc<Readers>,
    options: SqliteOptions,
    owners: Owners,
    owner: OnceCell<Owner>,
    plans: Mutex<VecDeque<KnownPlan>>,
    counts: Arc<Counts>,
    /// Whether this store has, or had, runs.
    has_runs: AtomicBool,
    /// Turns that were handed over to be written.
    appends: AtomicU64,
}

/// A plan and the bundle that it is kept as.
#[derive(Clone)]
struct KnownPlan {
    plan: Arc<Plan>,
    bundle: PlanBundle,
}

/// Connections that nobody uses at the moment.
struct Readers {
    path: PathBuf,
    free: Mutex<Vec<Connection>>,
}

impl SqliteStore {
    /// Opens the store in a file, and makes it when there is none.
    pub fn open(path: &Path, options: SqliteOptions) -> Result<SqliteStore, StoreError> {
        make_file(path);
        // What stands beside the file stands beside the file itself, whatever name leads to it.
        let path = &std::fs::canonicalize(path).map_err(|error| StoreError::Unavailable {
            message: format!("`{}`: {error}", path.display()),
        })?;
        let owners = Owners { folder: schema::sibling_path(path, "-owners"), store: path.clone() };
        let opening = owners.begin_opening();
        let (dead, acknowledged) = owners.dead();
        let is_used = || owners.has_live_owner();
        let connection = schema::open_newest(path, &options, acknowledged.commit, is_used)?;
        let counts = Arc::<Counts>::default();
        let mut cache = RunCache::new(connection, counts.clone());
        legacy_log::drain(&mut cache, path, &owners)?;
        ack_log::compare(&mut cache, &acknowledged)?;
        // As long as it stands in the log alone it may be damaged there, and needs its witness.
        if matches!(schema::checkpoint(&cache.connection, CheckpointMode::Truncate), Ok(true)) {
            dead.iter().for_each(|file| drop(std::fs::remove_file(file)));
        }
        drop(opening);
        Ok(SqliteStore {
            writer: Writer::start(cache, schema::open_merger(path)?, path, &options)?,
            readers: Arc::new(Readers { path: path.to_owned(), free: Mutex::default() }),
            options,
            owners,
            owner: OnceCell::new(),
            plans: Mutex::default(),
            counts,
            has_runs: AtomicBool::new(false),
            appends: AtomicU64::default(),
        })
    }

    /// Times that somebody waited for a sync, however many these were.
    pub fn commits(&self) -> u64 {
        self.writer.commits()
    }

    /// The name under which this store has runs.
    async fn owner(&self) -> Result<&Arc<str>, StoreError> {
        let register = || async {
            let owner = self.owners.register()?;
            self.writer.set_ack_log(owner.witness.clone());
            Ok::<_, StoreError>(owner)
        };
        Ok(&self.owner.get_or_try_init(register).await?.name)
    }

    /// Has something written, and waits until it is durable.
    async fn write<T: Send + 'static>(
        &self,
        work: impl FnMut(&mut RunCache) -> Result<T, SqliteError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.owner().await?;
        self.writer.write(work).await
    }

    async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, SqliteError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let readers = self.readers.clone();
        let read = tokio::task::spawn_blocking(move || readers.with(work)).await;
        let gone = |_| SqliteError::Unavailable("the reader was stopped".to_owned());
        Ok(read.map_err(gone).flatten()?)
    }

    fn bundle(&self, plan: &Arc<Plan>) -> KnownPlan {
        let known = |known: &&KnownPlan| Arc::ptr_eq(&known.plan, plan);
        if let Some(known) = self.known_plan(known) {
            return known;
        }
        let text: Arc<str> = plan.bundle().into();
        let bundle = PlanBundle { hash: hash(text.as_bytes()), text };
        self.know_plan(KnownPlan { plan: plan.clone(), bundle })
    }

    fn known_plan(&self, which: impl FnMut(&&KnownPlan) -> bool) -> Option<KnownPlan> {
        let plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        plans.iter().find(which).cloned()
    }

    fn know_plan(&self, known: KnownPlan) -> KnownPlan {
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        plans.push_front(known.clone());
        plans.truncate(PLANS_MAX);
        known
    }

    /// What is forgotten is forgotten. A file that stays as it is has room for others.
    async fn shrink(&self) {
        let path = self.readers.path.clone();
        let _ = tokio::task::spawn_blocking(move || schema::shrink(&path)).await;
    }

    /// Packs a turn, and counts the calls that ended in it.
    fn packed(&self, record: AppendRecord<'_>) -> PackedRecord {
        self.appends.fetch_add(1, Ordering::Relaxed);
        self.counts.add(record.measured);
        let packed = PackedRecord::new(record, self.options.value_bytes_max);
        if packed.entries.is_large() {
            // A value that takes room is not kept for its size.
            self.counts.catch_up();
        }
        packed
    }
}

impl Readers {
    fn with<T>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, SqliteError>,
    ) -> Result<T, SqliteError> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let connection = match free {
            Some(connection) => connection,
            None => schema::open_reader(&self.path)?,
        };
        let result = work(&connection);
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        result
    }
}

impl Drop for SqliteStore {
    /// A process that ends gives its runs back: only those that it died with look as if it had died.
    fn drop(&mut self) {
        if let Some(owner) = self.owner.get().filter(|_| self.has_runs.load(Ordering::Relaxed)) {
            let me = owner.name.clone();
            self.writer.post(move |cache| journal::release_all(cache, &me));
        }
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn create(&self, run: NewRun<'_>, record: AppendRecord<'_>) -> Result<Lease, StoreError> {
        let row = new_row(&run, &record, self.owner().await?);
        let lease = Lease { run_id: row.run_id.clone(), epoch: row.epoch };
        let KnownPlan { bundle, .. } = self.bundle(run.plan);
        let begins = Some(NewRunRow { row, bundle });
        let turn = AppendBatch { lease: lease.clone(), begins, record: self.packed(record) };
        self.writer.write_batch(turn).await?;
        self.has_runs.store(true, Ordering::Relaxed);
        Ok(lease)
    }

    async fn append(&self, lease: &Lease, record: AppendRecord<'_>) -> Result<(), StoreError> {
        let turn = AppendBatch { lease: lease.clone(), begins: None, record: self.packed(record) };
        self.writer.write_batch(turn).await
    }

    async fn load(&self, run_id: &Arc<str>) -> Result<Vec<Entry>, StoreError> {
        let run_id = run_id.clone();
        self.read(move |connection| journal::load(connection, &run_id)).await
    }

    async fn plan(&self, run_id: &Arc<str>, limits: &Limits) -> Result<Arc<Plan>, StoreError> {
        let id = run_id.clone();
        let name = self.read(move |connection| bundle_of(connection, &id)).await?;
        if let Some(known) = self.known_plan(|known| known.bundle.hash == name) {
            return Ok(known.plan);
        }
        let id = run_id.clone();
        let text = self.read(move |connection| bundle_text(connection, &id, &name)).await?;
        let plan = unbundle(&text, limits)
            .map_err(|reason| StoreError::PlanUnavailable { run_id: run_id.clone(), reason })?;
        let bundle = PlanBundle { hash: name, text: text.into() };
        Ok(self.know_plan(KnownPlan { plan, bundle }).plan)
    }

    async fn acquire(&self, run_id: &Arc<str>, how: TakeOver) -> Result<Lease, StoreError> {
        let me = self.owner().await?.clone();
        let (run_id, owners) = (run_id.clone(), self.owners.clone());
        let take =
            move |cache: &mut RunCache| journal::acquire(cache, &run_id, how, (&owners, &me));
        match self.write(take).await {
            Err(StoreError::Unavailable { message }) if message == BUSY => {
                Err(StoreError::Unavailable { message: self.owners.describe_holders() })
            }
            taken => {
                self.has_runs.store(true, Ordering::Relaxed);
                taken?
            }
        }
    }

    async fn release(&self, lease: &Lease) -> Result<(), StoreError> {
        let lease = lease.clone();
        self.write(move |cache| journal::release(cache, &lease)).await
    }

    async fn release_all(&self) -> Result<(), StoreError> {
        let me = self.owner().await?.clone();
        self.write(move |cache| journal::release_all(cache, &me)).await
    }

    async fn run(&self, run_id: &Arc<str>) -> Result<Option<RunRow>, StoreError> {
        let run_id = run_id.clone();
        let find = move |connection: &Connection| StoredRun::find(connection, &run_id);
        Ok(self.read(find).await?.map(|stored| stored.row))
    }

    async fn is_abandoned(&self, run_id: &Arc<str>) -> Result<bool, StoreError> {
        let owner = self.run(run_id).await?.and_then(|row| row.owner);
        Ok(owner.is_none_or(|owner| !self.owners.is_alive(&owner)))
    }

    async fn runs(&self, query: &RunQuery) -> Result<RunListing, StoreError> {
        let query = query.clone();
        self.read(move |connection| history::runs(connection, &query)).await
    }

    async fn unfinished(&self) -> Result<RunListing, StoreError> {
        self.read(history::unfinished).await
    }

    async fn send_command(&self, run_id: &Arc<str>, text: &Arc<str>) -> Result<u64, StoreError> {
        let (run_id, text) = (run_id.clone(), text.clone());
        self.write(move |cache| commands::insert(&cache.connection, &run_id, &text)).await
    }

    async fn pending_commands(&self) -> Result<Vec<PendingCommand>, StoreError> {
        self.read(commands::list).await
    }

    async fn remove_command(&self, number: u64) -> Result<(), StoreError> {
        self.write(move |cache| commands::delete(&cache.connection, number)).await
    }

    async fn try_write(&self) -> Result<(), StoreError> {
        self.writer.write(|cache| journal::write_probe(&cache.connection)).await?;
        self.writer.write(|cache| journal::delete_probe(&cache.connection)).await
    }

    async fn prune(&self, retention: Retention) -> Result<u64, StoreError> {
        let mut forgotten = 0;
        loop {
            let forget = move |cache: &mut RunCache| {
                cache.clear();
                history::prune(&cache.connection, retention)
            };
            match self.write(forget).await? {
                0 => break,
                some => forgotten += some,
            }
        }
        if forgotten > 0 {
            self.shrink().await;
        }
        Ok(forgotten)
    }

    async fn list_damaged(&self) -> Result<Vec<StoreError>, StoreError> {
        let found = self.read(history::damaged).await?;
        let lost = self.read(ack_log::lost).await?;
        Ok(found.into_iter().map(|found| found.error).chain(lost).collect())
    }

    async fn delete_damaged(&self) -> Result<u64, StoreError> {
        let mut forgotten = self.write(|cache| ack_log::clear_lost(&cache.connection)).await?;
        let _ = std::fs::remove_file(schema::sibling_path(&self.readers.path, "-wal-damaged"));
        if !self.read(history::damaged).await?.is_empty() {
            // A run that only an index has lost is whole, and stays. And nothing can be taken out of an
            // index that does not have it.
            let mend = |cache: &mut RunCache| Ok(cache.connection.execute_batch("REINDEX")?);
            self.write(mend).await?;
            let found = self.read(history::damaged).await?;
            let owners = self.owners.clone();
            let forget = move |cache: &mut RunCache| {
                cache.clear();
                history::delete_damaged(&cache.connection, &found, &owners)
            };
            forgotten += self.write(forget).await?;
            self.shrink().await;
        }
        Ok(forgotten)
    }

    async fn tool_stats(&self) -> Result<Vec<ToolStats>, StoreError> {
        let mut tools = self.read(history::tool_stats).await?;
        self.counts.merge_into(&mut tools);
        Ok(tools)
    }

    fn key_value(&self) -> &dyn KeyValueStore {
        self
    }

    fn figures(&self) -> StoreFigures {
        let path = &self.readers.path;
        let files = ["", "-wal", "-shm"].map(|suffix| schema::sibling_path(path, suffix));
        let sizes = files.iter().filter_map(|file| Some(std::fs::metadata(file).ok()?.len()));
        StoreFigures {
            appends: self.appends.load(Ordering::Relaxed),
            size_bytes: sizes.sum(),
            ..self.writer.figures()
        }
    }
}

#[async_trait]
impl KeyValueStore for SqliteStore {
    async fn put(
        &self,
        collection: Collection,
        item: &StoredItem,
        expect: Precondition,
    ) -> Result<u64, StoreError> {
        let item = item.clone();
        self.write(move |cache| collections::put(&cache.connection, collection, &item, expect))
            .await
    }

    async fn get(
        &self,
        collection: Collection,
        key: &Arc<str>,
    ) -> Result<Option<StoredItem>, StoreError> {
        let key = key.clone();
        self.read(move |connection| collections::get(connection, collection, &key)).await
    }

    async fn list(
        &self,
        collection: Collection,
        after: Option<u64>,
        limit: usize,
    ) -> Result<ItemPage, StoreError> {
        self.read(move |connection| collections::list(connection, collection, after, limit)).await
    }

    async fn delete(&self, collection: Collection, key: &Arc<str>) -> Result<bool, StoreError> {
        let key = key.clone();
        self.write(move |cache| collections::delete(&cache.connection, collection, &key)).await
    }

    async fn delete_before(
        &self,
        collection: Collection,
        before_ms: u64,
    ) -> Result<u64, StoreError> {
        self.write(move |cache| {
            collections::delete_before(&cache.connection, collection, before_ms)
        })
        .await
    }
}

fn bundle_of(connection: &Connection, run_id: &Arc<str>) -> Result<Hash, SqliteError> {
    let stored = StoredRun::find(connection, run_id)?;
    let unknown = || StoreError::Unknown { run_id: run_id.clone() };
    Ok(stored.ok_or_else(unknown)?.bundle)
}

fn bundle_text(
    connection: &Connection,
    run_id: &Arc<str>,
    name: &Hash,
) -> Result<String, SqliteError> {
    let mut select = connection.prepare_cached("SELECT text FROM bundle WHERE hash = ?1")?;
    let text: Option<String> = select.query_row([name], |row| row.get(0)).optional()?;
    let text = text.filter(|text| hash(text.as_bytes()) == *name);
    let what = "its plan is missing, or not what was stored".to_owned();
    text.ok_or_else(|| StoreError::Damaged { run_id: run_id.clone(), seq: 0, what }.into())
}
