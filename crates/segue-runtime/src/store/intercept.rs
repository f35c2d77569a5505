//! A store around another one, for audits, fault injection and tests.
//!
//! An interceptor sees the operations that it may want to watch, delay or refuse. Everything passes on
//! to the inner store.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use segue_core::limits::Limits;
use segue_core::plan::Plan;
use segue_core::run::Entry;
use tokio::sync::Notify;

use super::{
    AppendRecord, ClaimRequest, ClaimedRun, CommandQueue, Due, JournalStore, KeyValueStore, Lease,
    NewRun, PendingCommand, Retention, RunChanges, RunCopy, RunHistory, RunListing, RunQuery,
    RunQueue, RunRow, RunTransfer, SharedSlot, SharedSlots, Store, StoreError, StoreFigures,
    TakeOver, ToolStatistics, ToolStats, WorkerInfo, WorkerRow,
};

/// An operation that an interceptor sees.
#[derive(Clone, Copy, Debug)]
pub enum Operation<'a> {
    /// A run gets entries, the first ones included.
    Append {
        /// The run.
        run_id: &'a Arc<str>,
        /// The entries.
        entries: &'a [Entry],
    },
    /// A caller reads rows of runs.
    ReadRuns,
    /// A process sends a command to a run.
    SendCommand,
    /// A caller asks whether the store can be written.
    TryWrite,
}

/// Sees operations of an [`InterceptedStore`].
#[async_trait]
pub trait StoreInterceptor: Send + Sync {
    /// Called before an operation. The caller gets an error instead, and the inner store nothing.
    async fn before(&self, _operation: Operation<'_>) -> Result<(), StoreError> {
        Ok(())
    }

    /// Called after an operation that succeeded. The caller gets an error instead of its result.
    async fn after(&self, _operation: Operation<'_>) -> Result<(), StoreError> {
        Ok(())
    }
}

/// A store whose operations an interceptor sees.
pub struct InterceptedStore {
    inner: Arc<dyn Store>,
    interceptor: Arc<dyn StoreInterceptor>,
}

impl InterceptedStore {
    /// Puts an interceptor before a store.
    pub fn new(inner: Arc<dyn Store>, interceptor: Arc<dyn StoreInterceptor>) -> InterceptedStore {
        InterceptedStore { inner, interceptor }
    }

    async fn around<T: Send>(
        &self,
        operation: Operation<'_>,
        pass_on: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        self.interceptor.before(operation).await?;
        let result = pass_on.await?;
        self.interceptor.after(operation).await?;
        Ok(result)
    }
}

#[async_trait]
impl JournalStore for InterceptedStore {
    async fn create(&self, run: NewRun<'_>, record: AppendRecord<'_>) -> Result<Lease, StoreError> {
        let operation = Operation::Append { run_id: run.run_id, entries: record.entries };
        self.around(operation, self.inner.create(run, record)).await
    }

    async fn append(&self, lease: &Lease, record: AppendRecord<'_>) -> Result<(), StoreError> {
        let operation = Operation::Append { run_id: &lease.run_id, entries: record.entries };
        self.around(operation, self.inner.append(lease, record)).await
    }

    fn is_held(&self, lease: &Lease) -> bool {
        self.inner.is_held(lease)
    }

    async fn hold(&self, lease: &Lease) -> Result<(), StoreError> {
        self.inner.hold(lease).await
    }

    async fn load(&self, run_id: &Arc<str>) -> Result<Vec<Entry>, StoreError> {
        self.inner.load(run_id).await
    }

    async fn plan(&self, run_id: &Arc<str>, limits: &Limits) -> Result<Arc<Plan>, StoreError> {
        self.inner.plan(run_id, limits).await
    }

    async fn acquire(&self, run_id: &Arc<str>, how: TakeOver) -> Result<Lease, StoreError> {
        self.inner.acquire(run_id, how).await
    }

    async fn release(&self, lease: &Lease) -> Result<(), StoreError> {
        self.inner.release(lease).await
    }

    async fn release_all(&self) -> Result<(), StoreError> {
        self.inner.release_all().await
    }

    async fn is_abandoned(&self, run_id: &Arc<str>) -> Result<bool, StoreError> {
        self.inner.is_abandoned(run_id).await
    }

    async fn try_write(&self) -> Result<(), StoreError> {
        self.around(Operation::TryWrite, self.inner.try_write()).await
    }
}

#[async_trait]
impl RunHistory for InterceptedStore {
    async fn run(&self, run_id: &Arc<str>) -> Result<Option<RunRow>, StoreError> {
        self.around(Operation::ReadRuns, self.inner.run(run_id)).await
    }

    async fn runs(&self, query: &RunQuery) -> Result<RunListing, StoreError> {
        self.around(Operation::ReadRuns, self.inner.runs(query)).await
    }

    async fn changes(&self, since: Option<u64>) -> Result<RunChanges, StoreError> {
        self.inner.changes(since).await
    }

    async fn runs_with_prefix(
        &self,
        prefix: &str,
        limit: usize,
    ) -> Result<Vec<RunRow>, StoreError> {
        self.around(Operation::ReadRuns, self.inner.runs_with_prefix(prefix, limit)).await
    }

    async fn unfinished(&self) -> Result<RunListing, StoreError> {
        self.inner.unfinished().await
    }

    async fn prune(&self, retention: Retention) -> Result<u64, StoreError> {
        self.inner.prune(retention).await
    }

    async fn list_damaged(&self) -> Result<Vec<StoreError>, StoreError> {
        self.inner.list_damaged().await
    }

    async fn delete_damaged(&self) -> Result<u64, StoreError> {
        self.inner.delete_damaged().await
    }
}

#[async_trait]
impl CommandQueue for InterceptedStore {
    async fn send_command(&self, run_id: &Arc<str>, text: &Arc<str>) -> Result<u64, StoreError> {
        self.around(Operation::SendCommand, self.inner.send_command(run_id, text)).await
    }

    async fn pending_commands(&self) -> Result<Vec<PendingCommand>, StoreError> {
        self.inner.pending_commands().await
    }

    fn command_signal(&self) -> Option<Arc<Notify>> {
        self.inner.command_signal()
    }

    async fn remove_command(&self, number: u64) -> Result<(), StoreError> {
        self.inner.remove_command(number).await
    }
}

#[async_trait]
impl ToolStatistics for InterceptedStore {
    async fn tool_stats(&self) -> Result<Vec<ToolStats>, StoreError> {
        self.inner.tool_stats().await
    }
}

#[async_trait]
impl RunQueue for InterceptedStore {
    fn is_shared(&self) -> bool {
        self.inner.is_shared()
    }

    async fn claim(&self, request: ClaimRequest<'_>) -> Result<Vec<ClaimedRun>, StoreError> {
        self.inner.claim(request).await
    }

    async fn release_until(&self, lease: &Lease, due: Due) -> Result<(), StoreError> {
        self.inner.release_until(lease, due).await
    }

    async fn due_runs(&self, limit: usize) -> Result<Vec<Arc<str>>, StoreError> {
        self.inner.due_runs(limit).await
    }

    fn due_signal(&self) -> Option<Arc<Notify>> {
        self.inner.due_signal()
    }

    async fn announce(&self, info: WorkerInfo) -> Result<(), StoreError> {
        self.inner.announce(info).await
    }

    async fn workers(&self) -> Result<Vec<WorkerRow>, StoreError> {
        self.inner.workers().await
    }
}

#[async_trait]
impl RunTransfer for InterceptedStore {
    async fn export_run(&self, run_id: &Arc<str>) -> Result<Option<RunCopy>, StoreError> {
        self.inner.export_run(run_id).await
    }

    async fn import_run(&self, run: &Arc<RunCopy>) -> Result<bool, StoreError> {
        self.inner.import_run(run).await
    }

    async fn import_stats(&self, stats: &[ToolStats]) -> Result<u64, StoreError> {
        self.inner.import_stats(stats).await
    }
}

#[async_trait]
impl SharedSlots for InterceptedStore {
    async fn shared_slot(
        &self,
        name: &Arc<str>,
        max: u32,
    ) -> Result<Option<SharedSlot>, StoreError> {
        self.inner.shared_slot(name, max).await
    }
}

impl Store for InterceptedStore {
    fn key_value(&self) -> &dyn KeyValueStore {
        self.inner.key_value()
    }

    fn takeover_interval(&self) -> Option<Duration> {
        self.inner.takeover_interval()
    }

    fn figures(&self) -> StoreFigures {
        self.inner.figures()
    }
}
