//! Large runs and many runs: their results, and the memory that they need.
//!
//! `just bench scale` runs each case in a process of its own, because a process has one memory peak,
//! and prints a line per case. A wrong result ends it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use async_trait::async_trait;
use futures_util::future::join_all;
use segue_core::id::ToolId;
use segue_core::plan::Plan;
use segue_core::schema::Schema;
use segue_core::source::Source;
use segue_core::tool::{Annotations, ToolSpec};
use segue_core::value::Value;
use segue_core::view::RunView;
use segue_runtime::engine::{Engine, RunRequest};
use segue_runtime::tools::{Tool, ToolError, ToolRequest, ToolRunner};

use crate::graph;
use crate::measure::print;
use crate::workload::Nowhere;

/// Items of a loop that are under way at once.
const LOOP_CONCURRENCY: usize = 16;

/// The cases of the report.
const CASES: &[(&str, usize)] = &[
    ("loop", 1_000),
    ("loop", 10_000),
    ("loop", 100_000),
    ("kept-loop", 1_000),
    ("kept-loop", 10_000),
    ("graph", 1_000),
    ("runs", 1),
    ("runs", 1_000),
];

/// The figures of one case.
struct Figures {
    millis: u128,
    peak_kib: u64,
}

/// Runs every case in a process of its own and prints its figures.
pub(crate) fn report() -> Result<(), String> {
    let mut shown: BTreeMap<(&str, usize), Figures> = BTreeMap::new();
    let mut table = String::from("| case | size | time | peak RSS |\n|---|---|---|---|\n");
    for (case, size) in CASES {
        let one = child(case, *size)?;
        let peak = one.peak_kib as f64 / 1024.0;
        let _ = writeln!(table, "| {case} | {size} | {} ms | {peak:.1} MiB |", one.millis);
        shown.insert((case, *size), one);
    }
    print(&table);
    for (case, small, large) in
        [("loop", 1_000, 10_000), ("loop", 10_000, 100_000), ("kept-loop", 1_000, 10_000)]
    {
        let more = shown[&(case, large)].peak_kib.saturating_sub(shown[&(case, small)].peak_kib);
        let bytes = more * 1024 / (large - small) as u64;
        print(&format!("{case}: {bytes} bytes more for each item from {small} to {large} items"));
    }
    let (one, many) = (&shown[&("runs", 1)], &shown[&("runs", 1_000)]);
    let bytes = many.peak_kib.saturating_sub(one.peak_kib) * 1024 / 999;
    print(&format!("runs: {bytes} bytes more for each run under way"));
    Ok(())
}

fn child(case: &str, size: usize) -> Result<Figures, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new(program)
        .args(["scale", case, &size.to_string()])
        .output()
        .map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut numbers = text.split_whitespace().map(str::parse::<u64>);
    match (output.status.success(), numbers.next(), numbers.next()) {
        (true, Some(Ok(millis)), Some(Ok(peak_kib))) => {
            Ok(Figures { millis: u128::from(millis), peak_kib })
        }
        _ => Err(format!("{case} {size}: {}", String::from_utf8_lossy(&output.stderr))),
    }
}

/// One case: prints its milliseconds and this process's peak in KiB.
pub(crate) fn one(case: &str, size: usize) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    let begun = Instant::now();
    match case {
        "loop" => runtime.block_on(long_loop(size, false)),
        "kept-loop" => runtime.block_on(long_loop(size, true)),
        "graph" => runtime.block_on(random_graph(size)),
        "runs" => runtime.block_on(many_runs(size)),
        _ => return Err(format!("there is no case `{case}`")),
    }
    print(&format!("{} {}", begun.elapsed().as_millis(), peak_kib()));
    Ok(())
}

/// The memory peak of this process, from Linux; 0 elsewhere.
pub(crate) fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Yields, then adds up its numbers; counts the calls under way.
#[derive(Clone, Default)]
struct Sum {
    inside: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

#[async_trait]
impl ToolRunner for Sum {
    async fn call(&self, call: ToolRequest) -> Result<Value, ToolError> {
        let now = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        tokio::task::yield_now().await;
        let Value::Object(args) = &call.args else { return Ok(Value::Null) };
        let sum = args.values().filter_map(Value::as_u64).fold(0, |sum, n| (sum + n) % MODULUS);
        self.inside.fetch_sub(1, Ordering::SeqCst);
        Ok(Value::object([("sum", Value::from(sum))]))
    }
}

/// Keeps sums small.
const MODULUS: u64 = 1_000_000_007;

fn engine(sum: &Sum, keeps: bool) -> Engine {
    let mut spec = ToolSpec::new(ToolId::new("bench", "sum"), "adds up", Schema::any_object());
    spec.annotations = Annotations { read_only: Some(true), ..Annotations::default() };
    let tool = Tool { spec: Arc::new(spec), runner: Arc::new(sum.clone()) };
    let builder = Engine::builder().tools([tool]).limits(graph::limits());
    if keeps { builder.build().0 } else { builder.store(Arc::new(Nowhere::default())).build().0 }
}

fn plan(engine: &Engine, name: &str, text: String) -> Arc<Plan> {
    let (plan, findings) = engine.plan(&Source::new(name, text));
    plan.unwrap_or_else(|| panic!("{findings:?}"))
}

async fn run(engine: &Engine, plan: &Arc<Plan>, input: Value) -> RunView {
    let view = engine.run(RunRequest::new(plan.clone(), input)).await.expect("the store works");
    assert!(view.success, "{:?}", view.errors.first());
    view
}

/// A loop over many items, sixteen at once: the results are those of the items, in their order.
async fn long_loop(items: usize, keeps: bool) {
    let text = format!(
        "
name: long
max_concurrency: {LOOP_CONCURRENCY}
input: {{ type: object, properties: {{ items: {{ type: array, items: {{ type: integer }} }} }} }}
steps:
  - id: each
    loop:
      over: '{{{{ input.items }}}}'
      as: n
      max_concurrency: {LOOP_CONCURRENCY}
      steps: [ {{ id: add, tool: 'bench:sum', parameters: {{ n: '{{{{ n }}}}', one: 1 }} }} ]
      output: '{{{{ add.sum }}}}'
output: '{{{{ each }}}}'
"
    );
    let sum = Sum::default();
    let engine = engine(&sum, keeps);
    let plan = plan(&engine, "long.yaml", text);
    let numbers: Vec<Value> = (0..items).map(Value::from).collect();
    let view = run(&engine, &plan, Value::object([("items", Value::from(numbers))])).await;
    let expected: Vec<Value> = (1..=items).map(Value::from).collect();
    assert_eq!(view.output, Value::from(expected));
    assert_eq!(sum.most.load(Ordering::SeqCst), LOOP_CONCURRENCY);
}

/// SplitMix64, so that the graph is the same every time.
fn draw(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut bits = (*seed ^ (*seed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

/// A random layered graph: each step adds its number to the sums of up to four steps of earlier
/// layers. Compares every sum with one computed by hand.
async fn random_graph(steps: usize) {
    const WIDTH: u64 = 25;
    let mut seed = 7;
    let mut sums: Vec<u64> = Vec::new();
    let mut text = String::from("{\"name\":\"random\",\"steps\":[");
    for at in 0..steps as u64 {
        let before = at / WIDTH * WIDTH;
        let mut sum = at % MODULUS;
        let comma = if at > 0 { "," } else { "" };
        let _ = write!(
            text,
            "{comma}{{\"id\":\"s{at}\",\"tool\":\"bench:sum\",\"parameters\":{{\"n\":{at}"
        );
        for n in 0..if before == 0 { 0 } else { draw(&mut seed) % 5 } {
            let need = draw(&mut seed) % before;
            sum = (sum + sums[usize::try_from(need).expect("a position")]) % MODULUS;
            let _ = write!(text, ",\"p{n}\":\"{{{{ s{need}.sum }}}}\"");
        }
        text.push_str("}}");
        sums.push(sum);
    }
    text.push_str("]}");
    let engine = engine(&Sum::default(), false);
    let plan = plan(&engine, "random.json", text);
    let view = run(&engine, &plan, Value::empty_object()).await;
    for (at, sum) in sums.iter().enumerate() {
        let result = view.results.get(format!("s{at}").as_str()).and_then(|r| r.get("sum"));
        assert_eq!(result, Some(&Value::from(*sum)), "s{at}");
    }
}

/// Many runs at once in one process, each with its own input and its own result.
async fn many_runs(runs: usize) {
    let mut text = String::from("name: one\nsteps:\n");
    for at in 0..5 {
        let from = if at == 0 { "input.n".to_owned() } else { format!("s{}.sum", at - 1) };
        let _ = writeln!(
            text,
            "  - {{ id: s{at}, tool: 'bench:sum', parameters: {{ n: '{{{{ {from} }}}}', one: 1 }} }}"
        );
    }
    let sum = Sum::default();
    let engine = engine(&sum, false);
    let plan = plan(&engine, "one.yaml", text);
    let started = (0..runs).map(|n| run(&engine, &plan, Value::object([("n", Value::from(n))])));
    for (n, view) in join_all(started).await.iter().enumerate() {
        let last = view.results["s4"].get("sum").and_then(Value::as_u64);
        assert_eq!(last, Some(n as u64 + 5));
    }
    let most = engine.limits().calls_max.min(runs);
    assert_eq!(sum.most.load(Ordering::SeqCst), most);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same cases, small enough for the daily tests.
    #[tokio::test]
    async fn results_are_right() {
        long_loop(200, true).await;
        random_graph(150).await;
        many_runs(300).await;
    }
}
