//! How a loop whose items retry grows: each item's body fails once and begins anew.

use std::collections::BTreeSet;
use std::hint::black_box;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use segue_core::source::Source;
use segue_core::value::Value;
use segue_runtime::engine::Engine;
use segue_runtime::tools::{Tool, ToolError, ToolRequest, ToolRunner};
use serde_json::json;

use crate::graph;
use crate::workload::{Nowhere, Workload, lazily, plan, run, runtime};

const TEXT: &str = "
name: retries
steps:
  - id: each
    loop:
      over: '{{ input.items }}'
      max_concurrency: 16
      steps:
        - id: body
          retry: { max: 1, backoff: { initial: 1ms, jitter: false } }
          parallel:
            - { id: one, tool: 'bench:echo', parameters: { value: '{{ item }}' } }
";

/// Fails the first call of each item, and returns its arguments at the second.
#[derive(Default)]
struct FailsOnce {
    failed: Mutex<BTreeSet<String>>,
}

#[async_trait]
impl ToolRunner for FailsOnce {
    async fn call(&self, call: ToolRequest) -> Result<Value, ToolError> {
        let item = call.args.get("value").map(ToString::to_string).unwrap_or_default();
        let mut failed = self.failed.lock().expect("no call panics");
        if failed.remove(&item) {
            return Ok(call.args);
        }
        failed.insert(item);
        Err(ToolError::failed("the first call fails"))
    }
}

fn engine() -> Engine {
    let spec = graph::catalog().tools().next().expect("there is one tool").clone();
    Engine::builder()
        .tools([Tool { spec, runner: Arc::new(FailsOnce::default()) }])
        .limits(graph::limits())
        .store(Arc::new(Nowhere::default()))
        .build()
        .0
}

/// 1,000 items as the floor, 10,000 as the engine: for counting.
pub(crate) fn growth() -> Workload {
    let of = |items: u64| {
        lazily(
            move || {
                let engine = engine();
                let plan = plan(&engine, &Source::new("retries.yaml", TEXT));
                let items: Vec<u64> = (0..items).collect();
                (runtime(), engine, plan, Value::from(json!({ "items": items })))
            },
            |(runtime, engine, plan, input)| {
                black_box(runtime.block_on(run(engine, plan, input)));
            },
        )
    };
    Workload {
        name: "loop whose items retry, 1,000 → 10,000 items".to_owned(),
        most: 12.0,
        steps: 1,
        floor: of(1_000),
        engine: of(10_000),
    }
}
