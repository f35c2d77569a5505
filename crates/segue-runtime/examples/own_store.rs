//! A store written by the program: journals in memory, and every entry in an audit log.
//!
//! An interceptor sees the operations of another store, before and after it. A store from scratch
//! implements the traits that [`segue_runtime::store::Store`] sums up; its `append` returns when the
//! entries are durable, so that the engine calls nothing before.
//!
//! `cargo run -p segue-runtime --example own_store`

use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use segue_core::source::Source;
use segue_core::value::Value;
use segue_runtime::engine::{Engine, RunRequest};
use segue_runtime::store::{
    InterceptedStore, MemoryStore, Operation, StoreError, StoreInterceptor,
};
use segue_runtime::tools::builtin::{self, BuiltinConfig};

/// Notes each entry after the store has it.
#[derive(Default)]
struct AuditLog {
    lines: Mutex<Vec<String>>,
}

#[async_trait]
impl StoreInterceptor for AuditLog {
    async fn after(&self, operation: Operation<'_>) -> Result<(), StoreError> {
        if let Operation::Append { run_id, entries } = operation {
            let lines = entries.iter().map(|e| format!("{run_id} {}: {:?}", e.seq, e.fact));
            self.lines.lock().extend(lines);
        }
        Ok(())
    }
}

/// The audit log of one run.
pub async fn audited() -> Result<Vec<String>, String> {
    let log = Arc::new(AuditLog::default());
    let store = InterceptedStore::new(Arc::new(MemoryStore::default()), log.clone());
    let tools = builtin::tools(&BuiltinConfig::default());
    let (engine, _) = Engine::builder().tools(tools).store(Arc::new(store)).build();
    let text = "name: small\nsteps:\n  - { id: one, tool: echo, parameters: { n: 1 } }\n";
    let (plan, findings) = engine.plan(&Source::new("small.yaml", text));
    let plan = plan.ok_or_else(|| format!("{findings:?}"))?;
    let request = RunRequest::new(plan, Value::empty_object());
    engine.run(request).await.map_err(|error| error.to_string())?;
    let lines = log.lines.lock().clone();
    Ok(lines)
}

#[tokio::main(flavor = "current_thread")]
#[allow(clippy::print_stdout, reason = "an example shows what it does")]
async fn main() -> Result<(), String> {
    for line in audited().await? {
        println!("{line}");
    }
    Ok(())
}
