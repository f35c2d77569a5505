//! The embedded store: one SQLite file that survives the process and the machine.
//!
//! SQLite's log is the only log, and every commit syncs it (`synchronous=FULL`): an acknowledged entry
//! is on disk, and in every copy that SQLite's own backup takes. One writer at a time writes for all
//! runs that wait, and syncs once ([`writer`]). Readers have connections of their own and never wait.
//! Nothing is trusted because it is in the file: rows have checksums and turns are chained by their
//! hashes, so a damaged run is named and set aside while the others go on.

mod ack_log;
mod append_batch;
mod collections;
mod commands;
mod error;
mod history;
mod journal;
mod legacy_log;
mod owner;
mod row;
mod run_cache;
mod schema;
mod statistics;
mod transfer;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use async_trait::async_trait;
use parking_lot::Mutex;
use rusqlite::{Connection, OptionalExtension as _};
use segue_core::limits::Limits;
use segue_core::plan::Plan;
use segue_core::run::Entry;
use tokio::sync::OnceCell;

use super::packed_record::{NewRunRow, PackedRecord, PlanCache};
use super::pending_counts::PendingCounts;
use super::private_files::make_file;
use super::rules::new_row;
use super::{
    AppendRecord, JournalStore, KeyValueStore, Lease, NewRun, RunHistory as _, RunQueue,
    SharedSlots, Store, StoreError, StoreFigures, TakeOver,
};
use crate::store::pack::Hash;
use append_batch::AppendBatch;
use error::{BUSY, SqliteError};
use owner::{Owner, Owners};
use row::StoredRun;
use run_cache::RunCache;
use schema::CheckpointMode;
pub use schema::SqliteOptions;
use writer::Writer;

/// Runs in a file.
pub struct SqliteStore {
    writer: Writer,
    readers: Arc<Readers>,
    options: SqliteOptions,
    owners: Owners,
    owner: OnceCell<Owner>,
    plans: PlanCache,
    counts: Arc<PendingCounts>,
    /// Whether this store owns runs, or did.
    has_runs: AtomicBool,
    /// Turns that runs asked to write.
    appends: AtomicU64,
}

/// Idle connections for reading.
struct Readers {
    path: PathBuf,
    free: Mutex<Vec<Connection>>,
}

impl SqliteStore {
    /// Opens the store in a file, and creates the file when there is none.
    pub fn open(path: &Path, options: SqliteOptions) -> Result<SqliteStore, StoreError> {
        make_file(path);
        // A link leads to the same store: its other files stand beside the file itself.
        let path = &std::fs::canonicalize(path).map_err(|error| StoreError::Unavailable {
            message: format!("`{}`: {error}", path.display()),
        })?;
        let owners = Owners { folder: schema::sibling_path(path, "-owners"), store: path.clone() };
        let opening = owners.begin_opening();
        let (dead, acknowledged) = owners.dead();
        let is_used = || owners.has_live_owner();
        let connection = schema::open_newest(path, &options, acknowledged.commit, is_used)?;
        let counts = Arc::<PendingCounts>::default();
        let mut cache = RunCache::new(connection, counts.clone());
        legacy_log::drain(&mut cache, path, &owners)?;
        ack_log::compare(&mut cache, &acknowledged)?;
        // Commits that only the log holds still need their acknowledgements.
        if matches!(schema::checkpoint(&cache.connection, CheckpointMode::Truncate), Ok(true)) {
            dead.iter().for_each(|file| drop(std::fs::remove_file(file)));
        }
        drop(opening);
        Ok(SqliteStore {
            writer: Writer::start(cache, schema::open_checkpointer(path)?, path, &options)?,
            readers: Arc::new(Readers { path: path.to_owned(), free: Mutex::default() }),
            options,
            owners,
            owner: OnceCell::new(),
            plans: PlanCache::default(),
            counts,
            has_runs: AtomicBool::new(false),
            appends: AtomicU64::default(),
        })
    }

    /// The name under which this store owns runs.
    async fn owner(&self) -> Result<&Arc<str>, StoreError> {
        let register = || async {
            let owner = self.owners.register()?;
            self.writer.set_ack_log(owner.ack_log.clone());
            Ok::<_, StoreError>(owner)
        };
        Ok(&self.owner.get_or_try_init(register).await?.name)
    }

    /// Queues a write, and waits until it is durable.
    async fn write<T: Send + 'static>(
        &self,
        work: impl FnMut(&mut RunCache) -> Result<T, SqliteError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.owner().await?;
        self.writer.write(work).await
    }

    /// Reads on a connection of its own.
    async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, SqliteError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let readers = self.readers.clone();
        let read = tokio::task::spawn_blocking(move || readers.with(work)).await;
        let stopped = |_| SqliteError::Unavailable("the reader was stopped".to_owned());
        Ok(read.map_err(stopped).flatten()?)
    }

    /// Packs a turn, and counts the calls that ended in it.
    fn packed(&self, record: AppendRecord<'_>) -> PackedRecord {
        self.appends.fetch_add(1, Ordering::Relaxed);
        self.counts.add(record.measured);
        let packed = PackedRecord::new(record, self.options.value_bytes_max);
        if packed.entries.is_large() {
            // Count it now: a call that waits to be counted keeps its large value in memory.
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
        let free = self.free.lock().pop();
        let connection = match free {
            Some(connection) => connection,
            None => schema::open_reader(&self.path)?,
        };
        let result = work(&connection);
        self.free.lock().push(connection);
        result
    }
}

impl Drop for SqliteStore {
    /// A process that ends releases its runs: only after a crash does it look as if it had died with
    /// them.
    fn drop(&mut self) {
        if let Some(owner) = self.owner.get().filter(|_| self.has_runs.load(Ordering::Relaxed)) {
            let me = owner.name.clone();
            self.writer.post(move |cache| journal::release_all(cache, &me));
        }
    }
}

#[async_trait]
impl JournalStore for SqliteStore {
    async fn create(&self, run: NewRun<'_>, record: AppendRecord<'_>) -> Result<Lease, StoreError> {
        let row = new_row(&run, &record, self.owner().await?);
        let lease = Lease { run_id: row.run_id.clone(), epoch: row.epoch };
        let begins = Some(NewRunRow { row, bundle: self.plans.bundle(run.plan) });
        let turn = AppendBatch { lease: lease.clone(), begins, record: self.packed(record) };
        self.writer.write_turn(move |cache| turn.write(cache)).await?;
        self.has_runs.store(true, Ordering::Relaxed);
        Ok(lease)
    }

    async fn append(&self, lease: &Lease, record: AppendRecord<'_>) -> Result<(), StoreError> {
        let turn = AppendBatch { lease: lease.clone(), begins: None, record: self.packed(record) };
        self.writer.write_turn(move |cache| turn.write(cache)).await
    }

    async fn load(&self, run_id: &Arc<str>) -> Result<Vec<Entry>, StoreError> {
        let run_id = run_id.clone();
        self.read(move |connection| journal::load(connection, &run_id)).await
    }

    async fn plan(&self, run_id: &Arc<str>, limits: &Limits) -> Result<Arc<Plan>, StoreError> {
        let id = run_id.clone();
        let name = self.read(move |connection| bundle_of(connection, &id)).await?;
        if let Some(plan) = self.plans.known(&name) {
            return Ok(plan);
        }
        let text = self.read(move |connection| bundle_text(connection, &name)).await?;
        self.plans.read(run_id, name, text, limits)
    }

    async fn acquire(&self, run_id: &Arc<str>, how: TakeOver) -> Result<Lease, StoreError> {
        let me = self.owner().await?.clone();
        let (run_id, owners) = (run_id.clone(), self.owners.clone());
        let acquire =
            move |cache: &mut RunCache| journal::acquire(cache, &run_id, how, (&owners, &me));
        match self.write(acquire).await {
            Err(StoreError::Unavailable { message }) if message == BUSY => {
                Err(StoreError::Unavailable { message: self.owners.describe_holders() })
            }
            acquired => {
                self.has_runs.store(true, Ordering::Relaxed);
                acquired?
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

    async fn is_abandoned(&self, run_id: &Arc<str>) -> Result<bool, StoreError> {
        let owner = self.run(run_id).await?.and_then(|row| row.owner);
        Ok(owner.is_none_or(|owner| !self.owners.is_alive(&owner)))
    }

    async fn try_write(&self) -> Result<(), StoreError> {
        self.writer.write(|cache| journal::write_probe(&cache.connection)).await?;
        self.writer.write(|cache| journal::delete_probe(&cache.connection)).await
    }
}

impl RunQueue for SqliteStore {}

impl SharedSlots for SqliteStore {}

impl Store for SqliteStore {
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

fn bundle_of(connection: &Connection, run_id: &Arc<str>) -> Result<Hash, SqliteError> {
    let stored = StoredRun::find(connection, run_id)?;
    let unknown = || StoreError::Unknown { run_id: run_id.clone() };
    Ok(stored.ok_or_else(unknown)?.bundle)
}

fn bundle_text(connection: &Connection, name: &Hash) -> Result<Option<String>, SqliteError> {
    let mut select = connection.prepare_cached("SELECT text FROM bundle WHERE hash = ?1")?;
    Ok(select.query_row([name], |row| row.get(0)).optional()?)
}
