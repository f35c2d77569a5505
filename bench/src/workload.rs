//! Runs without a durable journal: W1 (chain), W2 (wide), W5 (graph), W6 (large).

use std::fmt::Write as _;
use std::hint::black_box;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use segue_core::compile::source::Source;
use segue_core::limits::Limits;
use segue_core::plan::Plan;
use segue_core::run::Entry;
use segue_core::value::{Map, Value};
use segue_runtime::engine::{Engine, RunRequest};
use segue_runtime::store::{
    Lease, NewRun, Record, Retention, RunQuery, RunRow, Runs, Store, StoreError, TakeOver,
    ToolStats,
};
use segue_runtime::tools::{Call, Tool, ToolError, ToolRunner};

use crate::floor::{self, deep_copy, echo, payload};
use crate::graph;
use crate::measure::{Row, compare};

struct Echo;

#[async_trait]
impl ToolRunner for Echo {
    async fn call(&self, call: Call) -> Result<Value, ToolError> {
        Ok(call.args)
    }
}

/// Keeps nothing: what is measured is the engine, not a journal.
pub(crate) struct Nowhere;

#[async_trait]
impl Store for Nowhere {
    async fn create(&self, run: NewRun<'_>, _record: Record<'_>) -> Result<Lease, StoreError> {
        Ok(Lease { run_id: run.run_id.clone(), epoch: 1 })
    }

    async fn append(&self, _lease: &Lease, _record: Record<'_>) -> Result<(), StoreError> {
        Ok(())
    }

    async fn load(&self, _run: &Arc<str>) -> Result<Vec<Entry>, StoreError> {
        Ok(Vec::new())
    }

    async fn plan(&self, run_id: &Arc<str>, _limits: &Limits) -> Result<Arc<Plan>, StoreError> {
        Err(StoreError::Unknown { run_id: run_id.clone() })
    }

    async fn take(&self, run_id: &Arc<str>, _how: TakeOver) -> Result<Lease, StoreError> {
        Err(StoreError::Unknown { run_id: run_id.clone() })
    }

    async fn release(&self, _lease: &Lease) -> Result<(), StoreError> {
        Ok(())
    }

    async fn run(&self, _run: &Arc<str>) -> Result<Option<RunRow>, StoreError> {
        Ok(None)
    }

    async fn runs(&self, _query: &RunQuery) -> Result<Runs, StoreError> {
        Ok(Runs::default())
    }

    async fn unfinished(&self) -> Result<Runs, StoreError> {
        Ok(Runs::default())
    }

    async fn prune(&self, _retention: Retention) -> Result<u64, StoreError> {
        Ok(0)
    }

    async fn tools(&self) -> Result<Vec<ToolStats>, StoreError> {
        Ok(Vec::new())
    }
}

fn engine() -> Engine {
    let spec = graph::catalog().tools().next().expect("there is one tool").clone();
    Engine::builder()
        .tools([Tool { spec, runner: Arc::new(Echo) }])
        .limits(graph::limits())
        .store(Arc::new(Nowhere))
        .build()
        .0
}

fn plan(engine: &Engine, source: &Source) -> Arc<Plan> {
    let (plan, findings) = engine.plan(source);
    plan.unwrap_or_else(|| panic!("{findings:?}"))
}

fn chain_source(steps: usize) -> Source {
    let mut text = String::from("name: chain\nsteps:\n");
    for at in 0..steps {
        let from = if at == 0 { "input".to_owned() } else { format!("s{}", at - 1) };
        let _ = writeln!(
            text,
            "  - {{ id: s{at}, tool: 'bench:echo', parameters: {{ value: '{{{{ {from}.value }}}}' }} }}"
        );
    }
    Source::new("chain.yaml", text)
}

fn wide_source(width: usize) -> Source {
    let mut text = String::from(
        "name: wide\nmax_concurrency: 128\nsteps:\n  - { id: first, tool: 'bench:echo', parameters: { value: '{{ input.value }}' } }\n",
    );
    for at in 0..width {
        let _ = writeln!(
            text,
            "  - {{ id: w{at}, tool: 'bench:echo', parameters: {{ value: '{{{{ first.value }}}}' }} }}"
        );
    }
    text.push_str("  - id: last\n    tool: 'bench:echo'\n    parameters:\n");
    for at in 0..width {
        let _ = writeln!(text, "      p{at}: '{{{{ w{at}.value }}}}'");
    }
    Source::new("wide.yaml", text)
}

pub(crate) fn rows() -> Vec<Row> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let engine = engine();
    let input = Value::object([("value", payload())]);
    let run = |plan: &Arc<Plan>, input: &Value| {
        let request = RunRequest::new(plan.clone(), input.clone());
        let view = runtime.block_on(engine.run(request)).expect("the store cannot fail");
        assert!(view.success, "{:?}", view.errors);
        black_box(view);
    };
    let chain = plan(&engine, &chain_source(10));
    let wide = plan(&engine, &wide_source(100));
    let layered = plan(&engine, &graph::layered_source(1_000));
    let large = Value::object([("value", Value::from("x".repeat(10 << 20)))]);
    let large_chain = plan(&engine, &chain_source(3));
    let layered_steps = floor::layered(1_000, 20);
    vec![
        compare(
            "W1 chain of 10",
            "≤ 2×",
            || {
                black_box(runtime.block_on(floor::chain(10)));
            },
            || run(&chain, &input),
        ),
        compare(
            "W2 1 → 100 → 1",
            "≤ 2.2×",
            || runtime.block_on(floor_wide(100)),
            || run(&wide, &input),
        ),
        compare(
            "W5 graph of 1,000",
            "≤ 2.2×",
            || runtime.block_on(floor_graph(&layered_steps)),
            || run(&layered, &Value::empty_object()),
        ),
        compare(
            "W6 10 MB through 3 steps (floor copies once)",
            "no deep clone",
            || {
                black_box(deep_copy(&large));
            },
            || run(&large_chain, &large),
        ),
    ]
}

async fn floor_wide(width: usize) {
    let first = echo(payload()).await;
    let mut calls: FuturesUnordered<_> = (0..width)
        .map(|_| {
            let mut args = Map::new();
            args.insert("value".into(), deep_copy(&first));
            echo(args.into())
        })
        .collect();
    let mut all = Map::new();
    let mut at = 0;
    while let Some(value) = calls.next().await {
        all.insert(format!("p{at}").into(), deep_copy(&value));
        at += 1;
    }
    black_box(echo(all.into()).await);
}

async fn floor_graph(steps: &[floor::FloorStep]) {
    let (dependants, _) = floor::plan(steps);
    let mut waiting: Vec<usize> = steps.iter().map(|step| step.needs.len()).collect();
    let mut values: Vec<Option<Value>> = vec![None; steps.len()];
    let mut calls = FuturesUnordered::new();
    let call = |at: usize| async move {
        let mut args = Map::new();
        args.insert("n".into(), Value::from(at));
        for n in 0..3 {
            args.insert(format!("p{n}").into(), Value::from(n));
        }
        (at, echo(args.into()).await)
    };
    for at in (0..steps.len()).filter(|at| waiting[*at] == 0) {
        calls.push(call(at));
    }
    while let Some((at, value)) = calls.next().await {
        values[at] = Some(deep_copy(&value));
        for next in &dependants[at] {
            waiting[*next] -= 1;
            if waiting[*next] == 0 {
                calls.push(call(*next));
            }
        }
    }
    black_box(values);
}
