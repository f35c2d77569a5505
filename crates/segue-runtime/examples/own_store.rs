//! A store written by the program: journals in memory, and every entry in an audit log.
//!
//! [`segue_runtime::store::Store`] specifies what a store guarantees. Its `append` makes runs reliable:
//! no tool is called before the entries that announce the call are stored.
//!
//! `cargo run -p segue-runtime --example own_store`

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use segue_core::limits::Limits;
use segue_core::plan::Plan;
use segue_core::run::Entry;
use segue_core::source::Source;
use segue_core::value::Value;
use segue_runtime::engine::{Engine, RunRequest};
use segue_runtime::store::{
    AppendRecord, KeyValueStore, Lease, MemoryStore, NewRun, PendingCommand, Retention, RunListing,
    RunQuery, RunRow, Store, StoreError, TakeOver, ToolStats,
};
use segue_runtime::tools::builtin::{self, BuiltinConfig};

/// Keeps runs in memory, and logs each entry.
#[derive(Default)]
struct Audited {
    runs: MemoryStore,
    log: Mutex<Vec<String>>,
}

impl Audited {
    fn note(&self, run_id: &str, entries: &[Entry]) {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = entries.iter().map(|entry| format!("{run_id} {}: {:?}", entry.seq, entry.fact));
        log.extend(lines);
    }
}

#[async_trait]
impl Store for Audited {
    async fn create(&self, run: NewRun<'_>, record: AppendRecord<'_>) -> Result<Lease, StoreError> {
        let lease = self.runs.create(run, record).await?;
        self.note(&lease.run_id, record.entries);
        Ok(lease)
    }

    async fn append(&self, lease: &Lease, record: AppendRecord<'_>) -> Result<(), StoreError> {
        self.runs.append(lease, record).await?;
        self.note(&lease.run_id, record.entries);
        Ok(())
    }

    async fn load(&self, run_id: &Arc<str>) -> Result<Vec<Entry>, StoreError> {
        self.runs.load(run_id).await
    }

    async fn plan(&self, run_id: &Arc<str>, limits: &Limits) -> Result<Arc<Plan>, StoreError> {
        self.runs.plan(run_id, limits).await
    }

    async fn acquire(&self, run_id: &Arc<str>, how: TakeOver) -> Result<Lease, StoreError> {
        self.runs.acquire(run_id, how).await
    }

    async fn release(&self, lease: &Lease) -> Result<(), StoreError> {
        self.runs.release(lease).await
    }

    async fn release_all(&self) -> Result<(), StoreError> {
        self.runs.release_all().await
    }

    async fn run(&self, run_id: &Arc<str>) -> Result<Option<RunRow>, StoreError> {
        self.runs.run(run_id).await
    }

    async fn runs(&self, query: &RunQuery) -> Result<RunListing, StoreError> {
        self.runs.runs(query).await
    }

    async fn unfinished(&self) -> Result<RunListing, StoreError> {
        self.runs.unfinished().await
    }

    async fn send_command(&self, run_id: &Arc<str>, text: &Arc<str>) -> Result<u64, StoreError> {
        self.runs.send_command(run_id, text).await
    }

    async fn pending_commands(&self) -> Result<Vec<PendingCommand>, StoreError> {
        self.runs.pending_commands().await
    }

    async fn remove_command(&self, number: u64) -> Result<(), StoreError> {
        self.runs.remove_command(number).await
    }

    async fn try_write(&self) -> Result<(), StoreError> {
        self.runs.try_write().await
    }

    async fn prune(&self, retention: Retention) -> Result<u64, StoreError> {
        self.runs.prune(retention).await
    }

    async fn tool_stats(&self) -> Result<Vec<ToolStats>, StoreError> {
        self.runs.tool_stats().await
    }

    fn key_value(&self) -> &dyn KeyValueStore {
        self.runs.key_value()
    }
}

/// The audit log of one run.
pub async fn audited() -> Result<Vec<String>, String> {
    let store = Arc::new(Audited::default());
    let tools = builtin::tools(&BuiltinConfig::default());
    let (engine, _) = Engine::builder().tools(tools).store(store.clone()).build();
    let text = "name: small\nsteps:\n  - { id: one, tool: echo, parameters: { n: 1 } }\n";
    let (plan, findings) = engine.plan(&Source::new("small.yaml", text));
    let plan = plan.ok_or_else(|| format!("{findings:?}"))?;
    let request = RunRequest::new(plan, Value::empty_object());
    engine.run(request).await.map_err(|error| error.to_string())?;
    let log = store.log.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Ok(log)
}

#[tokio::main(flavor = "current_thread")]
#[allow(clippy::print_stdout, reason = "an example shows what it does")]
async fn main() -> Result<(), String> {
    for line in audited().await? {
        println!("{line}");
    }
    Ok(())
}
