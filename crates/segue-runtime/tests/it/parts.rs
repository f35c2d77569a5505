//! Runs of a part of a composition: what is counted, and what is called.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use segue_core::id::ToolId;
use segue_core::limits::Limits;
use segue_core::run::{PartTarget, StepSelection};
use segue_core::schema::Schema;
use segue_core::source::Source;
use segue_core::tool::{Annotations, ToolSpec};
use segue_core::value::Value;
use segue_core::view::{RunStatus, StepOrigin};
use segue_runtime::engine::{Engine, RunRequest};
use segue_runtime::store::{MemoryStore, ToolStatistics as _};
use segue_runtime::tools::{Tool, ToolError, ToolRequest, ToolRunner};

const TEXT: &str = "
name: counted
steps:
  - { id: a, tool: 'test:first', parameters: { n: 1 } }
  - { id: b, tool: 'test:second', parameters: { n: '{{ a.n }}' } }
  - { id: c, tool: 'test:second', parameters: { n: '{{ b.n }}' } }
";

/// Returns its arguments, and counts.
struct Counting(Arc<AtomicU64>);

#[async_trait]
impl ToolRunner for Counting {
    async fn call(&self, call: ToolRequest) -> Result<Value, ToolError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(call.args)
    }
}

/// Tools learn nothing from values that were given, and a composition nothing from a part of it.
#[tokio::test]
async fn what_a_part_does_not_call_is_not_counted() {
    let store = Arc::new(MemoryStore::default());
    let calls = Arc::new(AtomicU64::new(0));
    let tool = |name: &str| {
        let mut spec = ToolSpec::new(ToolId::new("test", name), "works", Schema::any_object());
        spec.annotations = Annotations { read_only: Some(true), ..Annotations::default() };
        Tool { spec: Arc::new(spec), runner: Arc::new(Counting(calls.clone())) }
    };
    let tools = [tool("first"), tool("second")];
    let engine = Engine::builder().tools(tools).store(store.clone()).build().0;
    let plan = engine.plan(&Source::new("counted.yaml", TEXT)).0.unwrap();
    let given = [("a".into(), Value::object([("n", Value::from(5))]))];
    let limits = Limits::default();
    let selection = StepSelection::new(&plan, PartTarget::Until("b"), &given, &limits).unwrap();
    let request = RunRequest::new(plan.clone(), Value::empty_object());
    let view = engine.run(RunRequest { selection, ..request }).await.unwrap();
    assert_eq!(view.status, RunStatus::Success, "{:?}", view.errors);
    let origins: Vec<_> = view.steps.iter().map(|step| step.origin).collect();
    assert_eq!(origins, [Some(StepOrigin::Pinned), None, Some(StepOrigin::LeftOut)]);
    assert_eq!(view.output, serde_json::from_str(r#"{"a":{"n":5},"b":{"n":5}}"#).unwrap());
    let counted = || async {
        let stats = store.tool_stats().await.unwrap();
        stats.iter().map(|it| format!("{} {}", it.tool, it.calls)).collect::<Vec<_>>()
    };
    assert_eq!((calls.load(Ordering::Relaxed), counted().await), (1, vec!["test:second 1".into()]));
    let whole = engine.run(RunRequest::new(plan, Value::empty_object())).await.unwrap();
    assert!(whole.part.is_none() && whole.steps.iter().all(|step| step.origin.is_none()));
    assert_eq!(counted().await, ["composition:counted 1", "test:first 1", "test:second 3"]);
}
