//! The gate: limits across runs, queueing, budgets and breakers, through the engine.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use proptest::prelude::*;
use segue_core::diagnostic::Code;
use segue_core::id::ToolId;
use segue_core::limits::Limits;
use segue_core::plan::Plan;
use segue_core::schema::Schema;
use segue_core::source::Source;
use segue_core::tool::{Annotations, ToolSpec};
use segue_core::value::Value;
use segue_core::view::{RunStatus, RunView, StepStatus};
use segue_runtime::engine::{Engine, RunRequest};
use segue_runtime::tools::gate::Concurrency;
use segue_runtime::tools::{Tool, ToolError, ToolRequest, ToolRunner};

/// What the tools have observed.
#[derive(Default)]
struct Seen {
    /// In flight now, by tool, by source and in total.
    now: BTreeMap<String, usize>,
    /// The highest numbers in flight.
    peak: BTreeMap<String, usize>,
    /// Steps in the order of their calls.
    order: Vec<String>,
}

impl Seen {
    fn names(tool: &ToolId) -> [String; 3] {
        [tool.to_string(), tool.namespace().to_owned(), "all".to_owned()]
    }
}

/// Takes as long as its argument `ms` says, and counts calls in flight.
#[derive(Clone, Default)]
struct Busy(Arc<Mutex<Seen>>);

/// Counts down however a call ends.
struct UnderWay(Busy, ToolId);

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut seen = self.0.0.lock().unwrap();
        for name in Seen::names(&self.1) {
            *seen.now.get_mut(&name).unwrap() -= 1;
        }
    }
}

#[async_trait]
impl ToolRunner for Busy {
    async fn call(&self, call: ToolRequest) -> Result<Value, ToolError> {
        let _under_way = {
            let mut seen = self.0.lock().unwrap();
            seen.order.push(call.step.to_string());
            for name in Seen::names(&call.tool) {
                let now = seen.now.entry(name.clone()).or_default();
                *now += 1;
                let now = *now;
                let peak = seen.peak.entry(name).or_default();
                *peak = now.max(*peak);
            }
            UnderWay(self.clone(), call.tool.clone())
        };
        let ms = call.args.get("ms").and_then(Value::as_u64).unwrap_or(0);
        tokio::time::sleep(Duration::from_millis(ms)).await;
        Ok(call.args)
    }
}

/// Never reachable; counts the attempts.
#[derive(Clone, Default)]
struct Gone(Arc<Mutex<u32>>);

#[async_trait]
impl ToolRunner for Gone {
    async fn call(&self, _call: ToolRequest) -> Result<Value, ToolError> {
        *self.0.lock().unwrap() += 1;
        Err(ToolError::Unreachable { message: "nobody home".to_owned(), retry_after: None })
    }
}

fn tool(id: &str, annotations: Annotations, runner: impl ToolRunner + 'static) -> Tool {
    let mut spec = ToolSpec::new(ToolId::from(id), "for a test", Schema::any_object());
    spec.annotations = annotations;
    Tool { spec: Arc::new(spec), runner: Arc::new(runner) }
}

const READS: Annotations =
    Annotations { read_only: Some(true), destructive: None, idempotent: None, open_world: None };

const WRITES: Annotations = Annotations {
    read_only: Some(false),
    destructive: Some(false),
    idempotent: None,
    open_world: None,
};

fn engine(tools: Vec<Tool>, concurrency: Concurrency, limits: Limits) -> Engine {
    Engine::builder().tools(tools).concurrency(concurrency).limits(limits).build().0
}

fn plan(engine: &Engine, text: &str) -> Arc<Plan> {
    let (plan, findings) = engine.plan(&Source::new("test.yaml", text));
    plan.unwrap_or_else(|| panic!("{findings:?}"))
}

async fn run(engine: &Engine, text: &str) -> RunView {
    engine.run(RunRequest::new(plan(engine, text), Value::empty_object())).await.unwrap()
}

fn at_most(tool: &str, max: u32) -> Concurrency {
    Concurrency { tools: [(ToolId::from(tool), max)].into(), sources: BTreeMap::new() }
}

/// A loop over milliseconds that calls every tool once per item, all concurrently.
const WAVE: &str = "
name: wave
max_concurrency: 64
input: { type: object, properties: { waits: { type: array, items: { type: integer } } } }
steps:
  - id: each
    loop:
      over: '{{ input.waits }}'
      as: ms
      max_concurrency: 64
      steps:
        - { id: a, tool: 'near:a', parameters: { ms: '{{ ms }}' } }
        - { id: b, tool: 'near:b', parameters: { ms: '{{ ms }}' } }
        - { id: c, tool: 'far:c', parameters: { ms: '{{ ms }}' } }
";

fn waits(waits: &[u64]) -> Value {
    let waits: Vec<Value> = waits.iter().map(|ms| Value::from(*ms)).collect();
    Value::object([("waits", Value::from(waits))])
}

/// Concurrent runs, some of them cancelled, and then one more that is not.
async fn storm(tool_max: u32, source_max: u32, all_max: usize, runs: Vec<(Vec<u64>, Option<u64>)>) {
    let busy = Busy::default();
    let tools = ["near:a", "near:b", "far:c"].map(|id| tool(id, READS, busy.clone()));
    let concurrency = Concurrency {
        tools: [(ToolId::from("near:a"), tool_max)].into(),
        sources: [("near".into(), source_max)].into(),
    };
    let limits = Limits { calls_max: all_max, ..Limits::default() };
    let engine = engine(tools.into(), concurrency, limits);
    let plan = plan(&engine, WAVE);
    let started = runs.iter().map(|(items, cancel)| {
        let mut request = RunRequest::new(plan.clone(), waits(items));
        if let Some(after) = cancel {
            let after = tokio::time::sleep(Duration::from_millis(*after));
            request.cancel = Box::pin(after.map(|()| "ada".into()));
        }
        engine.run(request)
    });
    for (view, (_, cancel)) in join_all(started).await.into_iter().zip(&runs) {
        let view = view.unwrap();
        assert!(view.success || cancel.is_some(), "{:?}", view.errors);
    }
    let peaks = |expect: &dyn Fn(usize, usize) -> bool| {
        let seen = busy.0.lock().unwrap();
        let limits =
            [("near:a", tool_max as usize), ("near", source_max as usize), ("all", all_max)];
        for (name, max) in limits {
            let peak = seen.peak.get(name).copied().unwrap_or(0);
            assert!(expect(peak, max), "{name}: {peak} of {max}");
        }
        assert!(seen.now.values().all(|now| *now == 0), "{:?}", seen.now);
    };
    peaks(&|peak, max| peak <= max);
    // Nothing is held any more: enough work fills every limit that the others leave room for.
    *busy.0.lock().unwrap() = Seen::default();
    let view = engine.run(RunRequest::new(plan, waits(&[5; 40]))).await.unwrap();
    assert!(view.success, "{:?}", view.errors);
    let room = (tool_max as usize).min(source_max as usize).min(all_max);
    assert_eq!(busy.0.lock().unwrap().peak["near:a"], room);
    peaks(&|peak, max| peak <= max);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// E9: concurrent runs exceed no limit, and cancelled runs hold no slot, whether their calls
    /// wait or are in flight.
    #[test]
    fn limits_hold_across_runs(
        tool_max in 1..5_u32,
        source_max in 1..7_u32,
        all_max in 1..10_usize,
        runs in prop::collection::vec(
            (prop::collection::vec(0..30_u64, 0..12), prop::option::of(0..60_u64)),
            1..20,
        ),
    ) {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap()
            .block_on(storm(tool_max, source_max, all_max, runs));
    }
}

/// A timeout counts from when a call is sent: the last of ten waits nine times as long, and
/// succeeds.
#[tokio::test(start_paused = true)]
async fn queueing_does_not_count_against_a_timeout() {
    let busy = Busy::default();
    let engine = engine(vec![tool("near:a", READS, busy)], at_most("near:a", 1), Limits::default());
    let view = run(
        &engine,
        "
name: patient
steps:
  - id: each
    loop:
      over: '{{ [1, 2, 3, 4, 5, 6, 7, 8, 9, 10] }}'
      max_concurrency: 10
      as: n
      steps: [ { id: a, tool: 'near:a', parameters: { ms: 80 }, timeout: 100ms } ]
",
    )
    .await;
    assert!(view.success, "{:?}", view.errors);
}

/// A call cancelled while it waits was not made; one that was sent and may write is awaited.
#[tokio::test(start_paused = true)]
async fn what_was_not_sent_is_not_in_doubt() {
    let busy = Busy::default();
    let engine =
        engine(vec![tool("near:a", WRITES, busy.clone())], at_most("near:a", 1), Limits::default());
    let text = "
name: two
steps:
  - { id: sent, tool: 'near:a', parameters: { ms: 1000 } }
  - { id: waiting, tool: 'near:a', parameters: { ms: 1000 } }
";
    let mut request = RunRequest::new(plan(&engine, text), Value::empty_object());
    let after = tokio::time::sleep(Duration::from_millis(10));
    request.cancel = Box::pin(after.map(|()| "ada".into()));
    let view = engine.run(request).await.unwrap();
    assert_eq!(view.status, RunStatus::Cancelled);
    assert_eq!(view.steps[0].status, StepStatus::Success);
    assert_eq!(view.steps[1].status, StepStatus::Cancelled);
    assert_eq!(busy.0.lock().unwrap().order, ["sent"]);
}

/// First come, first served, also between runs.
#[tokio::test(start_paused = true)]
async fn the_queue_is_fair() {
    let busy = Busy::default();
    let engine =
        engine(vec![tool("near:a", READS, busy.clone())], at_most("near:a", 1), Limits::default());
    let plans: Vec<Arc<Plan>> = (0..20)
        .map(|n| {
            let text = format!(
                "name: q\nsteps: [{{ id: s{n:02}, tool: 'near:a', parameters: {{ ms: 7 }} }}]\n"
            );
            plan(&engine, &text)
        })
        .collect();
    let runs = plans.into_iter().map(|plan| engine.run(RunRequest::new(plan, waits(&[]))));
    join_all(runs).await;
    let expected: Vec<String> = (0..20).map(|n| format!("s{n:02}")).collect();
    assert_eq!(busy.0.lock().unwrap().order, expected);
}

const MANY: &str = "
name: many
error_handling: { backoff: { initial: 1ms, max: 1ms } }
steps:
  - id: each
    loop:
      over: '{{ range(200) }}'
      as: n
      max_concurrency: 1
      on_item_failure: continue
      steps: [ { id: x, tool: 'far:gone', retry_count: 4 } ]
";

/// C5: retries of a tool stay within its budget, across runs; a refused retry was not sent and says
/// why.
#[tokio::test(start_paused = true)]
async fn retries_stay_within_the_budget() {
    let gone = Gone::default();
    let limits = Limits {
        breaker_failures_max: 0,
        retries_per_second_min: 0,
        retries_saved_max: 5,
        ..Limits::default()
    };
    let engine =
        engine(vec![tool("far:gone", READS, gone.clone())], Concurrency::default(), limits);
    let view = run(&engine, MANY).await;
    // 200 first attempts earn 20 retries, 5 were saved; a little is lost while no more can be saved.
    let calls = *gone.0.lock().unwrap();
    assert!((200 + 20..=200 + 25).contains(&calls), "{calls}");
    let refused = view.errors.iter().filter(|error| error.code == Code::Limit);
    let refused: Vec<_> = refused.collect();
    assert!(refused.len() > 150, "{}", refused.len());
    assert!(refused[0].message.contains("the retry budget of `far:gone` is used up"));
    assert!(!refused[0].in_doubt);
}

/// C5: calls to a source that does not answer are paused; one call at a time probes it, and it is
/// back as soon as it answers.
#[tokio::test(start_paused = true)]
async fn an_open_breaker_makes_no_calls() {
    let gone = Gone::default();
    let engine = engine(
        vec![tool("far:gone", READS, gone.clone())],
        Concurrency::default(),
        Limits::default(),
    );
    let one = "name: one\nsteps: [ { id: x, tool: 'far:gone' } ]\n";
    for _ in 0..50 {
        let view = run(&engine, one).await;
        assert_eq!(view.errors[0].code, Code::Unreachable);
    }
    assert_eq!(*gone.0.lock().unwrap(), 20);
    let view = run(&engine, one).await;
    assert!(view.errors[0].message.contains("are paused"), "{:?}", view.errors);
    tokio::time::advance(Duration::from_millis(5_001)).await;
    for _ in 0..10 {
        run(&engine, one).await;
    }
    assert_eq!(*gone.0.lock().unwrap(), 21);
}
