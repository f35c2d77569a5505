//! The shared store: a Postgres database, which processes on several machines use at once.
//!
//! A turn that is acknowledged is committed, and durable as the database is set to be. One task writes the
//! turns of all runs of this process ([`writer`]). Each run has one owner: a process with a lease by the
//! database's clock ([`owner`]). Every append compares the epoch and the length of the run, so a process
//! that lost its lease writes nothing.
//!
//! Journals have the same bytes and the same hash chain as in the SQLite store, so no entry can be changed
//! unnoticed. For everything else the database's own checksums stand.
//!
//! All connections live on a thread of their own: callers may come from any runtime.

mod collections;
mod commands;
mod counters;
mod diagnose;
mod error;
mod history;
mod journal;
mod owner;
mod queue;
mod row;
mod schema;
mod session;
mod slots;
mod statistics;
mod tls;
mod transfer;
mod url;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use segue_core::limits::Limits;
use segue_core::plan::Plan;
use segue_core::run::Entry;
use tokio::runtime::Handle;
use tokio::sync::{OnceCell, mpsc, oneshot};

use super::packed_record::{NewRunRow, PackedRecord, PlanCache};
use super::pending_counts::PendingCounts;
use super::rules::new_row;
use super::{
    AppendRecord, Due, JournalStore, KeyValueStore, Lease, NewRun, RunHistory as _, RunQueue as _,
    Store, StoreError, StoreFigures, TakeOver,
};
use counters::Counters;
pub use diagnose::{DatabaseFacts, Standby, diagnose};
use error::{broken, unavailable};
use owner::{Ownership, Standing};
use session::{Address, DbSession, SessionPool, Signals};
use slots::KnownLimits;
use tls::Tls;
pub use url::PostgresUrl;
use writer::{Begins, Write};

/// How long a closing store tries to release its runs.
const CLOSE_MAX: Duration = Duration::from_secs(3);

/// The database may take this long to answer a batch of turns, whatever the lease is.
const ANSWER_MIN: Duration = Duration::from_secs(2);

/// Options of a store.
#[derive(Clone, Debug)]
pub struct PostgresOptions {
    /// Values of this size and more are stored once, outside their turns.
    pub value_bytes_max: usize,
    /// How long a process owns its runs after its last heartbeat. Three heartbeats go into one.
    pub lease: Duration,
}

impl Default for PostgresOptions {
    fn default() -> PostgresOptions {
        let limits = Limits::default();
        PostgresOptions {
            value_bytes_max: limits.journal_value_bytes_max,
            lease: Duration::from_secs(10),
        }
    }
}

impl PostgresOptions {
    /// The shortest lease that a configuration may set: a heartbeat each second.
    pub const LEASE_MIN: Duration = Duration::from_secs(3);

    /// The longest one: runs of a process that died wait so long.
    pub const LEASE_MAX: Duration = Duration::from_mins(10);

    /// Longer than the lease: an answer that comes after its end tells at least that the turn is durable.
    fn answer_max(&self) -> Duration {
        (self.lease * 2).max(ANSWER_MIN)
    }
}

/// Runs in a database.
pub struct PostgresStore {
    shared: Arc<Shared>,
    runtime: Handle,
    writes: Option<mpsc::UnboundedSender<Write>>,
    registered: OnceCell<()>,
    plans: PlanCache,
    closing: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What the tasks of a store share.
struct Shared {
    address: Address,
    sessions: SessionPool,
    options: PostgresOptions,
    ownership: Ownership,
    counts: PendingCounts,
    counters: Counters,
    limits: KnownLimits,
    /// Turns that runs asked to write.
    appends: AtomicU64,
    commits: AtomicU64,
    /// Time that all commits took.
    nanos: AtomicU64,
    /// Turns that wait.
    queue: AtomicU64,
    /// Size of the tables when it was last measured.
    size_bytes: AtomicU64,
}

impl Shared {
    fn note_commit(&self, began: Instant) {
        let nanos = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
        self.commits.fetch_add(1, Ordering::Relaxed);
    }

    /// Measures the size of the tables. It is a figure for operators: an error leaves it as it was.
    async fn measure(&self, session: &DbSession) {
        let sql = "SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class
            WHERE relnamespace = 'segue'::regnamespace AND relkind = 'r'";
        if let Ok(Some(row)) = session.query_opt(sql, &[]).await {
            let size = row.get::<_, Option<i64>>(0).unwrap_or(0);
            self.size_bytes.store(size.unsigned_abs(), Ordering::Relaxed);
        }
    }
}

impl PostgresStore {
    /// Opens the store in a database, and creates its tables when there are none.
    pub fn open(url: &PostgresUrl, options: PostgresOptions) -> Result<PostgresStore, StoreError> {
        let tls = Tls::new(&url.encryption).map_err(broken)?;
        let address = Address { url: url.clone(), tls, signals: Arc::new(Signals::default()) };
        let shared = Arc::new(Shared {
            sessions: SessionPool::new(address.clone()),
            address,
            options,
            ownership: Ownership::default(),
            counts: PendingCounts::default(),
            counters: Counters::default(),
            limits: KnownLimits::default(),
            appends: AtomicU64::default(),
            commits: AtomicU64::default(),
            nanos: AtomicU64::default(),
            queue: AtomicU64::default(),
            size_bytes: AtomicU64::default(),
        });
        let (writes, posted) = mpsc::unbounded_channel();
        let (closing, closed) = oneshot::channel();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let inner = shared.clone();
        let stopped = |error: std::io::Error| unavailable(error.to_string());
        let thread = std::thread::Builder::new().name("segue-postgres".to_owned());
        let thread = thread.spawn(move || match runtime() {
            Ok(runtime) => {
                let handle = runtime.handle().clone();
                runtime.block_on(async {
                    let opened = schema::migrate(&inner.sessions).await;
                    let is_open = opened.is_ok();
                    let _ = ready.send(opened.map(|()| handle));
                    if is_open {
                        serve(inner, posted, closed).await;
                    }
                });
            }
            Err(error) => drop(ready.send(Err(unavailable(error.to_string())))),
        });
        let thread = thread.map_err(stopped)?;
        let gone = |_| unavailable("the thread of the store ended");
        let runtime = is_ready.recv().map_err(gone)??;
        Ok(PostgresStore {
            shared,
            runtime,
            writes: Some(writes),
            registered: OnceCell::new(),
            plans: PlanCache::default(),
            closing: Some(closing),
            thread: Some(thread),
        })
    }

    /// Does `work` on the thread of the connections.
    async fn on<T: Send + 'static, F>(
        &self,
        work: impl FnOnce(Arc<Shared>) -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let task = self.runtime.spawn(work(self.shared.clone()));
        task.await.map_err(|_| unavailable("the store is closed"))?
    }

    /// Does `work`, which takes runs. A caller that is gone when they are taken drives none of them: they
    /// are given back.
    async fn taking<T: Send + 'static, F>(
        &self,
        work: impl FnOnce(Arc<Shared>) -> F,
        leases: impl FnOnce(&T) -> Vec<Lease> + Send + 'static,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let (shared, work) = (self.shared.clone(), work(self.shared.clone()));
        self.runtime.spawn(async move {
            if let Err(Ok(taken)) = reply.send(work.await) {
                for lease in leases(&taken) {
                    shared.ownership.release_later(lease, Due::Now);
                }
            }
        });
        answer.await.map_err(|_| unavailable("the store is closed"))?
    }

    /// The name under which this process owns runs.
    async fn owner(&self) -> Result<Arc<str>, StoreError> {
        let register = || self.on(|shared| async move { owner::register(&shared).await });
        self.registered.get_or_try_init(register).await?;
        self.shared.ownership.name().ok_or_else(|| unavailable("the store has no owner"))
    }

    /// Packs a turn, and counts the calls that ended in it.
    fn packed(&self, record: AppendRecord<'_>) -> PackedRecord {
        self.shared.appends.fetch_add(1, Ordering::Relaxed);
        self.shared.counts.add(record.measured);
        let packed = PackedRecord::new(record, self.shared.options.value_bytes_max);
        if packed.entries.is_large() {
            // Count it now: a call that waits to be counted keeps its large value in memory.
            self.shared.counts.catch_up();
        }
        packed
    }

    async fn write(
        &self,
        lease: Lease,
        begins: Option<Begins>,
        record: PackedRecord,
    ) -> Result<(), StoreError> {
        let (write, answer) = Write::new(lease, begins, record);
        let closed = || unavailable("the store is closed");
        let writes = self.writes.as_ref().ok_or_else(closed)?;
        writes.send(write).map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// Writes turns until the store is closed, and releases what this process owns then.
async fn serve(
    shared: Arc<Shared>,
    posted: mpsc::UnboundedReceiver<Write>,
    closed: oneshot::Receiver<()>,
) {
    let mut writing = tokio::spawn(writer::write_all(shared.clone(), posted));
    let _ = closed.await;
    let leave = async {
        // The queue is closed: what is in it is written first.
        let _ = (&mut writing).await;
        if shared.ownership.name().is_some() {
            shared.flush_counts().await?;
            owner::release_all(&shared).await?;
            owner::unregister(&shared).await?;
        }
        Ok::<_, StoreError>(())
    };
    // The database may be gone: then the lease ends by itself.
    let _ = tokio::time::timeout(CLOSE_MAX, leave).await;
}

impl Drop for PostgresStore {
    /// A process that ends releases its runs: only after a crash do they wait for the end of its lease.
    fn drop(&mut self) {
        drop(self.writes.take());
        drop(self.closing.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[async_trait]
impl JournalStore for PostgresStore {
    async fn create(&self, run: NewRun<'_>, record: AppendRecord<'_>) -> Result<Lease, StoreError> {
        let row = new_row(&run, &record, &self.owner().await?);
        let lease = Lease { run_id: row.run_id.clone(), epoch: row.epoch };
        super::rules::check_fence(&row, &lease, record.expected)?;
        let namespaces = queue::needed_namespaces(run.plan);
        let run = NewRunRow { row, bundle: self.plans.bundle(run.plan) };
        self.write(lease.clone(), Some(Begins { run, namespaces }), self.packed(record)).await?;
        Ok(lease)
    }

    async fn append(&self, lease: &Lease, record: AppendRecord<'_>) -> Result<(), StoreError> {
        self.write(lease.clone(), None, self.packed(record)).await
    }

    fn is_held(&self, lease: &Lease) -> bool {
        self.shared.ownership.standing(lease) == Standing::Held
    }

    async fn hold(&self, lease: &Lease) -> Result<(), StoreError> {
        let wanted = lease.clone();
        let standing = self.on(|shared| async move {
            let max = shared.options.lease * 2;
            Ok(shared.ownership.settled(&wanted, max).await)
        });
        let Lease { run_id, epoch } = lease.clone();
        let standing = standing.await?;
        self.shared.counters.withheld.add(u64::from(standing != Standing::Held));
        match standing {
            Standing::Held => Ok(()),
            Standing::Uncertain => Err(unavailable("the lease cannot be prolonged")),
            Standing::Lost => match self.run(&run_id).await? {
                Some(row) if row.epoch != epoch => {
                    Err(StoreError::Lost { run_id, epoch, actual: row.epoch })
                }
                Some(_) => Err(unavailable("this process lost its lease")),
                None => Err(StoreError::Unknown { run_id }),
            },
        }
    }

    async fn load(&self, run_id: &Arc<str>) -> Result<Vec<Entry>, StoreError> {
        let run_id = run_id.clone();
        self.on(
            |shared| async move { journal::load(&*shared.sessions.borrow().await?, &run_id).await },
        )
        .await
    }

    async fn plan(&self, run_id: &Arc<str>, limits: &Limits) -> Result<Arc<Plan>, StoreError> {
        let find = run_id.clone();
        let stored = self
            .on(|shared| async move { row::find(&*shared.sessions.borrow().await?, &find).await });
        let unknown = || StoreError::Unknown { run_id: run_id.clone() };
        let stored = stored.await?.ok_or_else(unknown)?;
        let bundle = stored.bundle;
        if let Some(plan) = self.plans.known(&bundle) {
            return Ok(plan);
        }
        let text = self.on(|shared| async move {
            history::bundle_text(&*shared.sessions.borrow().await?, &stored).await
        });
        self.plans.read(run_id, bundle, text.await?, limits)
    }

    async fn acquire(&self, run_id: &Arc<str>, how: TakeOver) -> Result<Lease, StoreError> {
        self.owner().await?;
        let run_id = run_id.clone();
        self.taking(
            move |shared| async move { journal::acquire(&shared, &run_id, how).await },
            |lease| vec![lease.clone()],
        )
        .await
    }

    async fn release(&self, lease: &Lease) -> Result<(), StoreError> {
        self.release_until(lease, Due::Now).await
    }

    async fn release_all(&self) -> Result<(), StoreError> {
        self.on(|shared| async move { owner::release_all(&shared).await }).await
    }

    async fn is_abandoned(&self, run_id: &Arc<str>) -> Result<bool, StoreError> {
        let owner = self.run(run_id).await?.and_then(|row| row.owner);
        let Some(owner) = owner else { return Ok(true) };
        self.on(|shared| async move {
            Ok(!journal::is_alive(&*shared.sessions.borrow().await?, &owner).await?)
        })
        .await
    }

    async fn try_write(&self) -> Result<(), StoreError> {
        const WRITE: &str = "INSERT INTO item (collection, key, text, version, at_ms)
            VALUES ('probe', uuid_send(gen_random_uuid()), $1, 1, 0) RETURNING number";
        const DELETE: &str = "DELETE FROM item WHERE collection = 'probe' AND number = $1";
        /// More than a small run needs.
        const PROBE_BYTES: usize = 64 * 1024;
        self.on(|shared| async move {
            let session = shared.sessions.borrow().await?;
            let written = session.query_opt(WRITE, &[&vec![0_u8; PROBE_BYTES]]).await?;
            let number: i64 = written.map_or(0, |row| row.get(0));
            session.execute(DELETE, &[&number]).await?;
            Ok(())
        })
        .await
    }
}

impl Store for PostgresStore {
    fn key_value(&self) -> &dyn KeyValueStore {
        self
    }

    fn takeover_interval(&self) -> Option<Duration> {
        Some(self.shared.options.lease / owner::BEATS)
    }

    fn figures(&self) -> StoreFigures {
        let read = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        StoreFigures {
            appends: read(&self.shared.appends),
            syncs: read(&self.shared.commits),
            sync_time: Duration::from_nanos(read(&self.shared.nanos)),
            queue: read(&self.shared.queue),
            size_bytes: read(&self.shared.size_bytes),
            shared: self.shared.shared_figures(),
        }
    }
}
