//! The workloads, each by hand and with the engine. No journal is kept, so that the engine is
//! measured and not a disk.

use std::fmt::Write as _;
use std::hint::black_box;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::join_all;
use segue_core::limits::Limits;
use segue_core::plan::Plan;
use segue_core::run::Entry;
use segue_core::source::Source;
use segue_core::value::{Shared, Value};
use segue_core::view::RunView;
use segue_runtime::engine::{Engine, RunRequest};
use segue_runtime::store::{
    AppendRecord, CommandQueue, JournalStore, KeyValueStore, Lease, MemoryStore, NewRun,
    PendingCommand, Retention, RunChanges, RunHistory, RunListing, RunQuery, RunQueue, RunRow,
    RunTransfer, SharedSlots, Store, StoreError, TakeOver, ToolStatistics, ToolStats,
};
use segue_runtime::tools::{Tool, ToolError, ToolRequest, ToolRunner};
use serde_json::{Value as Json, json};
use tokio::runtime::Runtime;

use crate::floor::{self, FloorStep, Flow, From, record};
use crate::graph;
use crate::mcp::{self, Way};
use crate::retries;

/// Concurrent runs in W3.
const RUNS: usize = 64;
/// Concurrent items in W4.
const ITEMS_AT_ONCE: usize = 16;
/// Records of W6: about 10 MB of text.
const LARGE_RECORDS: usize = 48_000;

/// One workload, by hand and with the engine.
pub(crate) struct Workload {
    pub(crate) name: String,
    /// The highest ratio that meets the target.
    pub(crate) most: f64,
    /// A time is divided by this before it is shown.
    pub(crate) steps: usize,
    pub(crate) floor: Box<dyn FnMut()>,
    pub(crate) engine: Box<dyn FnMut()>,
}

/// Returns its arguments.
struct Echo;

#[async_trait]
impl ToolRunner for Echo {
    async fn call(&self, call: ToolRequest) -> Result<Value, ToolError> {
        Ok(call.args)
    }
}

/// A store that keeps no runs.
#[derive(Default)]
pub(crate) struct Nowhere {
    empty: MemoryStore,
}

#[async_trait]
impl JournalStore for Nowhere {
    async fn create(
        &self,
        run: NewRun<'_>,
        _record: AppendRecord<'_>,
    ) -> Result<Lease, StoreError> {
        Ok(Lease { run_id: run.run_id.clone(), epoch: 1 })
    }

    async fn append(&self, _lease: &Lease, _record: AppendRecord<'_>) -> Result<(), StoreError> {
        Ok(())
    }

    async fn load(&self, run_id: &Arc<str>) -> Result<Vec<Entry>, StoreError> {
        self.empty.load(run_id).await
    }

    async fn plan(&self, run_id: &Arc<str>, limits: &Limits) -> Result<Arc<Plan>, StoreError> {
        self.empty.plan(run_id, limits).await
    }

    async fn acquire(&self, run_id: &Arc<str>, how: TakeOver) -> Result<Lease, StoreError> {
        self.empty.acquire(run_id, how).await
    }

    async fn release(&self, _lease: &Lease) -> Result<(), StoreError> {
        Ok(())
    }

    async fn is_abandoned(&self, run_id: &Arc<str>) -> Result<bool, StoreError> {
        self.empty.is_abandoned(run_id).await
    }

    async fn try_write(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

#[async_trait]
impl RunHistory for Nowhere {
    async fn run(&self, run_id: &Arc<str>) -> Result<Option<RunRow>, StoreError> {
        self.empty.run(run_id).await
    }

    async fn runs(&self, query: &RunQuery) -> Result<RunListing, StoreError> {
        self.empty.runs(query).await
    }

    async fn runs_with_prefix(
        &self,
        prefix: &str,
        limit: usize,
    ) -> Result<Vec<RunRow>, StoreError> {
        self.empty.runs_with_prefix(prefix, limit).await
    }

    async fn changes(&self, since: Option<u64>) -> Result<RunChanges, StoreError> {
        self.empty.changes(since).await
    }

    async fn unfinished(&self) -> Result<RunListing, StoreError> {
        self.empty.unfinished().await
    }

    async fn prune(&self, retention: Retention) -> Result<u64, StoreError> {
        self.empty.prune(retention).await
    }
}

#[async_trait]
impl CommandQueue for Nowhere {
    async fn send_command(&self, run_id: &Arc<str>, text: &Arc<str>) -> Result<u64, StoreError> {
        self.empty.send_command(run_id, text).await
    }

    async fn pending_commands(&self) -> Result<Vec<PendingCommand>, StoreError> {
        Ok(Vec::new())
    }

    async fn remove_command(&self, _number: u64) -> Result<(), StoreError> {
        Ok(())
    }
}

#[async_trait]
impl ToolStatistics for Nowhere {
    async fn tool_stats(&self) -> Result<Vec<ToolStats>, StoreError> {
        Ok(Vec::new())
    }
}

impl RunQueue for Nowhere {}

impl SharedSlots for Nowhere {}

impl RunTransfer for Nowhere {}

impl Store for Nowhere {
    fn key_value(&self) -> &dyn KeyValueStore {
        &self.empty
    }
}

fn engine() -> Engine {
    engine_with(Arc::new(Nowhere::default()))
}

/// An engine with one tool and this store.
pub(crate) fn engine_with(store: Arc<dyn Store>) -> Engine {
    let spec = graph::catalog().tools().next().expect("there is one tool").clone();
    Engine::builder()
        .tools([Tool { spec, runner: Arc::new(Echo) }])
        .limits(graph::limits())
        .store(store)
        .build()
        .0
}

pub(crate) fn plan(engine: &Engine, source: &Source) -> Arc<Plan> {
    let (plan, findings) = engine.plan(source);
    plan.unwrap_or_else(|| panic!("{findings:?}"))
}

pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

pub(crate) async fn run(engine: &Engine, plan: &Arc<Plan>, input: &Value) -> RunView {
    let request = RunRequest::new(plan.clone(), input.clone());
    let view = engine.run(request).await.expect("the store cannot fail");
    assert!(view.success, "{:?}", view.errors);
    view
}

/// The steps as a composition, where each reads its needs in expressions, as people write it.
pub(crate) fn source(steps: &[FloorStep]) -> Source {
    let mut text = String::from("{\"name\":\"bench\",\"max_concurrency\":128,\"steps\":[");
    for (at, step) in steps.iter().enumerate() {
        let comma = if at > 0 { "," } else { "" };
        let parameters: Vec<String> = step
            .arguments
            .iter()
            .map(|(name, from)| match from {
                From::Input(member) => format!("\"{name}\":\"{{{{ input.{member} }}}}\""),
                From::Step(need, member) => {
                    format!("\"{name}\":\"{{{{ {}.{member} }}}}\"", steps[*need].id)
                }
                From::Number(number) => format!("\"{name}\":{number}"),
            })
            .collect();
        let _ = write!(
            text,
            "{comma}{{\"id\":\"{}\",\"tool\":\"bench:echo\",\"parameters\":{{{}}}}}",
            step.id,
            parameters.join(",")
        );
    }
    text.push_str("]}");
    Source::new("bench.json", text)
}

fn map_source() -> Source {
    let text = format!(
        "name: map\nsteps:\n  - id: each\n    loop:\n      over: '{{{{ input.items }}}}'\n      \
         max_concurrency: {ITEMS_AT_ONCE}\n      steps:\n        \
         - {{ id: one, tool: 'bench:echo', parameters: {{ value: '{{{{ item }}}}' }} }}\n"
    );
    Source::new("map.yaml", text)
}

/// The workload with this key, for counting and for profilers.
pub(crate) fn named(key: &str) -> Option<Workload> {
    match key {
        "w1" => Some(chain(10)),
        "w2" => Some(wide()),
        "w3" => Some(many()),
        "w4" => Some(map(1_000)),
        "w5" => Some(layered()),
        "w6" => Some(large()),
        "compile" => Some(graph::compilation()),
        "retries" => Some(retries::growth()),
        _ => Way::named(key).map(|way| mcp::chain(way, 1)),
    }
}

/// Runs work on a value that is made at the first use, so that each side has its own heap when it
/// is counted alone.
pub(crate) fn lazily<T: 'static>(
    make: impl Fn() -> T + 'static,
    work: impl Fn(&T) + 'static,
) -> Box<dyn FnMut()> {
    let mut made = None;
    Box::new(move || work(made.get_or_insert_with(&make)))
}

/// A workload of steps that read each other.
fn flow(name: &str, most: f64, steps: Vec<FloorStep>) -> Workload {
    let input = || json!({ "value": record() });
    let steps = Arc::new(steps);
    let by_hand = steps.clone();
    Workload {
        name: name.to_owned(),
        most,
        steps: steps.len(),
        floor: lazily(
            move || (runtime(), Flow::new(by_hand.clone()), input()),
            |(runtime, flow, input)| {
                black_box(runtime.block_on(flow.run(&floor::Echo, input)));
            },
        ),
        engine: lazily(
            move || {
                let engine = engine();
                let plan = plan(&engine, &source(&steps));
                (runtime(), engine, plan, Value::from(input()))
            },
            |(runtime, engine, plan, input)| {
                black_box(runtime.block_on(run(engine, plan, input)));
            },
        ),
    }
}

/// W1, in several sizes.
pub(crate) fn chain(steps: usize) -> Workload {
    flow(&format!("W1 chain of {steps}, per step"), 2.0, floor::chain(steps))
}

pub(crate) fn wide() -> Workload {
    let wide = flow("W2 1 → 100 → 1", 2.2, floor::wide(100));
    Workload { steps: 1, ..wide }
}

pub(crate) fn layered() -> Workload {
    let layered = flow("W5 graph of 1,000", 2.2, floor::layered(1_000, graph::WIDTH));
    Workload { steps: 1, ..layered }
}

/// W3: concurrent chains, distributed over as many threads as there are cores. Each thread polls
/// its chains in turns.
pub(crate) fn many() -> Workload {
    const ROUNDS: usize = 8;
    const STEPS: usize = 10;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let engine = engine();
    let plan = plan(&engine, &source(&floor::chain(STEPS)));
    let flow = Flow::new(Arc::new(floor::chain(STEPS)));
    let json = json!({ "value": record() });
    let input = Value::from(json.clone());
    Workload {
        name: format!("W3 {RUNS} chains at once on {threads} threads, per step"),
        most: 2.0,
        steps: RUNS * ROUNDS * STEPS,
        floor: Box::new(move || {
            on_threads(threads, &|| {
                let runtime = runtime();
                for _ in 0..ROUNDS {
                    let runs = (0..RUNS / threads).map(|_| flow.run(&floor::Echo, &json));
                    black_box(runtime.block_on(join_all(runs)));
                }
            });
        }),
        engine: Box::new(move || {
            on_threads(threads, &|| {
                let runtime = runtime();
                for _ in 0..ROUNDS {
                    let runs = (0..RUNS / threads).map(|_| run(&engine, &plan, &input));
                    black_box(runtime.block_on(join_all(runs)));
                }
            });
        }),
    }
}

fn on_threads(threads: usize, work: &(dyn Fn() + Sync)) {
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
}

/// W4, in several sizes.
pub(crate) fn map(count: usize) -> Workload {
    let items = move || -> Vec<Json> { (0..count).map(|_| record()).collect() };
    Workload {
        name: format!("W4 {count} items, {ITEMS_AT_ONCE} at once, per item"),
        most: 2.4,
        steps: count,
        floor: lazily(
            move || (runtime(), items()),
            |(runtime, items)| {
                black_box(runtime.block_on(floor::map(&floor::Echo, items, ITEMS_AT_ONCE)));
            },
        ),
        engine: lazily(
            move || {
                let engine = engine();
                let plan = plan(&engine, &map_source());
                (runtime(), engine, plan, Value::from(json!({ "items": items() })))
            },
            |(runtime, engine, plan, input)| {
                black_box(runtime.block_on(run(engine, plan, input)));
            },
        ),
    }
}

/// W6: the floor clones the value once; a program that does not share would clone it at every step.
pub(crate) fn large() -> Workload {
    let (runtime, engine) = (runtime(), engine());
    let plan = plan(&engine, &source(&floor::chain(3)));
    let text = large_text();
    let json: Json = serde_json::from_str(&text).expect("it was just written");
    let input: Value = serde_json::from_str(&text).expect("it was just written");
    Workload {
        name: "W6 10 MB through 3 steps (floor: one clone)".to_owned(),
        most: 1.0,
        steps: 1,
        floor: Box::new(move || {
            black_box(json.clone());
        }),
        engine: Box::new(move || pass_through(&runtime, &engine, &plan, &input)),
    }
}

/// Runs W6 once, in a process that does nothing else. Its input is read from text, as inputs are.
pub(crate) fn large_alone() {
    let (runtime, engine) = (runtime(), engine());
    let plan = plan(&engine, &source(&floor::chain(3)));
    let input: Value = serde_json::from_str(&large_text()).expect("it was just written");
    pass_through(&runtime, &engine, &plan, &input);
}

/// The output must share its memory with the input, not be a copy.
fn pass_through(runtime: &Runtime, engine: &Engine, plan: &Arc<Plan>, input: &Value) {
    let view = runtime.block_on(run(engine, plan, input));
    let last = view.results.get("s2").and_then(|result| result.get("value"));
    let (Some(Value::Array(came)), Some(Value::Array(went))) = (last, input.get("value")) else {
        panic!("the last step has the list of records");
    };
    assert!(Shared::ptr_eq(came, went), "the value was copied");
}

/// A list of records in an object, about 10 MB of text.
pub(crate) fn large_text() -> String {
    let records = vec![record().to_string(); LARGE_RECORDS].join(",");
    format!("{{\"value\":[{records}]}}")
}
