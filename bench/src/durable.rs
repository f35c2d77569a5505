//! Runs with a durable journal: W1 (a lone chain), W3 (64 at once), W6 (a large value), and whether
//! a turn costs more when the store is large. Times are multiples of an fdatasync of this run.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::stream::{self, StreamExt as _};
use segue_core::compile::source::Source;
use segue_core::plan::Plan;
use segue_core::value::Value;
use segue_runtime::engine::{Engine, RunRequest};
use segue_runtime::store::{SqliteOptions, SqliteStore};
use segue_runtime::tools::{Call, Tool, ToolError, ToolRunner};

use crate::graph;
use crate::measure::{Row, median_time, show};

/// A folder of this process, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        let path = std::env::temp_dir().join(format!("segue-bench-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder for files can be made");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// How long it takes to make a page in the middle of a file durable.
fn fdatasync(folder: &Path) -> Duration {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(folder.join("sync"))
        .expect("a file can be made");
    file.write_all(&vec![0; 1 << 20]).and_then(|()| file.sync_all()).expect("it can be written");
    let times = (0..200u64).map(|n| {
        let begun = Instant::now();
        file.seek(SeekFrom::Start(n % 256 * 4_096)).expect("it is that long");
        file.write_all(&[1; 4_096]).and_then(|()| file.sync_data()).expect("it can be written");
        begun.elapsed()
    });
    median_time(times)
}

struct Echo;

#[async_trait]
impl ToolRunner for Echo {
    async fn call(&self, call: Call) -> Result<Value, ToolError> {
        Ok(call.args)
    }
}

/// Steps of the chain.
const STEPS: u32 = 10;

fn chain() -> Source {
    let mut text = String::from("name: chain\nsteps:\n");
    let mut from = "input".to_owned();
    for at in 0..STEPS {
        let _ = writeln!(
            text,
            "  - {{ id: s{at}, tool: 'bench:echo', parameters: {{ value: '{{{{ {from}.value }}}}' }} }}"
        );
        from = format!("s{at}");
    }
    Source::new("chain.yaml", text)
}

struct Bench {
    store: Arc<SqliteStore>,
    engine: Engine,
    plan: Arc<Plan>,
}

impl Bench {
    fn new(path: &Path) -> Bench {
        let store = SqliteStore::open(path, SqliteOptions::default());
        let store = Arc::new(store.unwrap_or_else(|error| panic!("{error}")));
        let spec = graph::catalog().tools().next().expect("there is one tool").clone();
        let (engine, _) = Engine::builder()
            .tools([Tool { spec, runner: Arc::new(Echo) }])
            .store(store.clone())
            .build();
        let (plan, findings) = engine.plan(&chain());
        let plan = plan.unwrap_or_else(|| panic!("{findings:?}"));
        Bench { store, engine, plan }
    }

    async fn run(&self, input: Value) {
        let view = self.engine.run(RunRequest::new(self.plan.clone(), input)).await;
        assert!(view.is_ok_and(|view| view.success));
    }

    /// Runs `runs` of them, `at_once` at once; how long it took and how many syncs.
    async fn measure(&self, runs: usize, at_once: usize, input: &Value) -> (Duration, u64) {
        let (begun, before) = (Instant::now(), self.store.commits());
        stream::iter(0..runs).for_each_concurrent(at_once, |_| self.run(input.clone())).await;
        (begun.elapsed(), self.store.commits() - before)
    }
}

/// The rows of the table.
pub(crate) fn rows() -> Vec<Row> {
    let input = &Value::object([("value", Value::from("x".repeat(200)))]);
    let large = &Value::object([("value", Value::from("x".repeat(10 << 20)))]);
    let folder = Folder::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime can be made");
    let bench = Bench::new(&folder.0.join("runs.db"));
    let mut rows = Vec::new();
    let mut row = |name: &str, steps: u32, target, (took, syncs): (Duration, u64)| {
        let sync = fdatasync(&folder.0);
        let per_step = took / steps;
        rows.push(Row {
            name: name.to_owned(),
            floor: format!("{} a sync", show(sync)),
            engine: format!(
                "{} a step, {:.2} syncs",
                show(per_step),
                syncs as f64 / f64::from(steps)
            ),
            ratio: format!("{:.2}", per_step.as_secs_f64() / sync.as_secs_f64()),
            target,
        });
    };
    runtime.block_on(async {
        bench.measure(10, 1, input).await;
        let lone = bench.measure(50, 1, input).await;
        row("W1 durable, a lone chain", 50 * STEPS, "≤ 1.2", lone);
        let many = bench.measure(2_000, 64, input).await;
        row("W3 durable, 64 chains at once", 2_000 * STEPS, "≥ 15 steps a sync", many);
        let few = bench.measure(3, 1, large).await;
        row("W6 durable, 10 MB through ten steps", 3 * STEPS, "written once", few);
        bench.measure(100_000, 1_000, input).await;
        let lone = bench.measure(50, 1, input).await;
        row("W1 durable, 100,000 runs in the store", 50 * STEPS, "within 1.2 of the first", lone);
    });
    rows
}
