//! Durable runs on the SQLite store, against a journal by hand or bare syncs; and whether a run costs
//! more when the store is large. Counts syncs beside the times.

use std::fs::{File, OpenOptions};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt as _};
use segue_core::plan::Plan;
use segue_core::value::Value;
use segue_runtime::engine::Engine;
use segue_runtime::store::{SqliteOptions, SqliteStore, Store as _};
use serde_json::{Value as Json, json};
use tokio::runtime::Runtime;

use crate::floor::{self, FloorStep, Flow, record};
use crate::graph;
use crate::journal::Journal;
use crate::measure::{Clock, Pairs, Row, compare};
use crate::workload::{engine_with, large_text, plan, run, runtime, source};

/// Steps of the chain.
const STEPS: usize = 10;
/// Steps at once in W2.
const WIDE: usize = 100;
/// Steps of W5.
const LAYERED: usize = 1_000;
/// Runs at once in W3.
const RUNS: usize = 64;
/// Places on the disk in W1, each with files of its own.
const PLACES: usize = 5;
/// Rounds before a measurement, in which the log gets its length.
const WARM: u64 = 128;
/// Rounds in which syncs are counted.
const COUNTED: u64 = 5;
/// The target of W3.
const STEPS_PER_SYNC_MIN: f64 = 15.0;
/// Once into the log and once into the file, and a little around it.
const WRITTEN_MOST: f64 = 2.2;

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

/// A file of full length whose pages are written and synced one after the other.
pub(crate) struct Syncs {
    file: File,
    page: u64,
}

impl Syncs {
    const PAGES: u64 = 256;
    const PAGE_BYTES: usize = 4_096;

    pub(crate) fn new(path: &Path) -> Syncs {
        let mut file = OpenOptions::new().write(true).create_new(true).open(path).expect("a file");
        let zeros = [0; Syncs::PAGE_BYTES];
        (0..Syncs::PAGES).for_each(|_| file.write_all(&zeros).expect("there is room"));
        file.sync_all().expect("it can be written");
        Syncs { file, page: 0 }
    }

    pub(crate) fn one(&mut self) {
        self.page = (self.page + 1) % Syncs::PAGES;
        let place = SeekFrom::Start(self.page * Syncs::PAGE_BYTES as u64);
        self.file.seek(place).expect("it is that long");
        let written = self.file.write_all(&[1; Syncs::PAGE_BYTES]);
        written.and_then(|()| self.file.sync_data()).expect("it can be written");
    }
}

/// A store in a file, and an engine that keeps its runs there.
struct Kept {
    store: Arc<SqliteStore>,
    engine: Engine,
    runtime: Runtime,
}

impl Kept {
    fn new(path: &Path) -> Kept {
        let store = SqliteStore::open(path, SqliteOptions::default());
        let store = Arc::new(store.unwrap_or_else(|error| panic!("{error}")));
        Kept { engine: engine_with(store.clone()), store, runtime: runtime() }
    }

    fn plan(&self, steps: &[FloorStep]) -> Arc<Plan> {
        plan(&self.engine, &source(steps))
    }

    /// Runs `runs` of them, `at_once` at once.
    fn run(&self, plan: &Arc<Plan>, input: &Value, runs: usize, at_once: usize) {
        let one = |_| async {
            run(&self.engine, plan, input).await;
        };
        self.runtime.block_on(stream::iter(0..runs).for_each_concurrent(at_once, one));
    }
}

/// The increase of a counter for each time that `work` runs.
fn counted(count: impl Fn() -> u64, mut work: impl FnMut()) -> f64 {
    let before = count();
    (0..COUNTED).for_each(|_| work());
    (count() - before) as f64 / COUNTED as f64
}

/// Writes the number of syncs behind the times.
fn with_syncs(row: Row, floor: f64, engine: f64) -> Row {
    Row {
        floor: format!("{}, {floor:.2} syncs", row.floor),
        engine: format!("{}, {engine:.2} syncs", row.engine),
        ..row
    }
}

fn input() -> Json {
    json!({ "value": record() })
}

/// W1 against one bare sync for each step. The time of a sync depends on where on the disk a file happens
/// to be, by a quarter; so W1 uses several files of each kind.
fn lone(folder: &Path) -> Row {
    let input = Value::from(input());
    let mut taken = 0.0;
    let pairs = (0..PLACES).map(|place| {
        let kept = Kept::new(&folder.join(format!("lone-{place}.db")));
        let mut syncs = Syncs::new(&folder.join(format!("syncs-{place}")));
        let plan = kept.plan(&floor::chain(STEPS));
        let mut engine = || kept.run(&plan, &input, 1, 1);
        let mut floor = || (0..STEPS).for_each(|_| syncs.one());
        (0..WARM).for_each(|_| engine());
        let pairs = compare(Clock::Wall, &mut floor, &mut engine);
        taken = counted(|| kept.store.figures().syncs, engine) / STEPS as f64;
        pairs
    });
    let pairs = pairs.reduce(Pairs::and).expect("there are several places");
    let row = pairs.row("W1 chain of 10, per step (floor: one fdatasync)", 1.6, STEPS);
    with_syncs(row, 1.0, taken)
}

/// A workload against the journal by hand, `runs` at once; syncs of floor and engine too.
fn journaled(
    kept: &Kept,
    journal: &Journal,
    steps: Vec<FloorStep>,
    runs: usize,
    row: (&str, f64),
) -> (Row, f64, f64) {
    let plan = kept.plan(&steps);
    let flow = Flow::new(Arc::new(steps));
    let (runtime, json) = (runtime(), input());
    let input = Value::from(json.clone());
    let mut floor = || {
        let all = (0..runs).map(|_| flow.run_durably(&floor::Echo, &json, journal));
        runtime.block_on(join_all(all));
    };
    let mut engine = || kept.run(&plan, &input, runs, runs);
    let row = compare(Clock::Wall, &mut floor, &mut engine).row(row.0, row.1, 1);
    let by_hand = counted(|| journal.syncs(), floor);
    let by_engine = counted(|| kept.store.figures().syncs, engine);
    (with_syncs(row, by_hand, by_engine), by_hand, by_engine)
}

/// W3, and how many steps share a sync.
fn many(kept: &Kept, journal: &Journal) -> [Row; 2] {
    let named = ("W3 64 chains at once", 2.0);
    let (row, floor, engine) = journaled(kept, journal, floor::chain(STEPS), RUNS, named);
    let steps = (RUNS * STEPS) as f64;
    let shared = Row {
        name: "W3 steps that share a sync".to_owned(),
        floor: format!("{:.1}", steps / floor),
        engine: format!("{:.1}", steps / engine),
        ratio: "—".to_owned(),
        target: format!("≥ {STEPS_PER_SYNC_MIN}"),
        met: Some(steps / engine >= STEPS_PER_SYNC_MIN),
    };
    [row, shared]
}

/// W6: how many bytes a run writes when a new large value goes through three steps.
fn large(kept: &Kept) -> Option<Row> {
    let plan = kept.plan(&floor::chain(3));
    let text = large_text();
    let input: Value = serde_json::from_str(&text).expect("a text of JSON");
    let before = written_bytes()?;
    kept.run(&plan, &input, 1, 1);
    let written = written_bytes()? - before;
    let megabytes = |bytes: u64| format!("{:.1} MB", bytes as f64 / 1e6);
    let ratio = written as f64 / text.len() as f64;
    Some(Row {
        name: "W6 bytes written for 10 MB through 3 steps (floor: the value)".to_owned(),
        floor: megabytes(text.len() as u64),
        engine: megabytes(written),
        ratio: format!("{ratio:.2}"),
        target: format!("once to log and file: ≤ {WRITTEN_MOST}×"),
        met: Some(ratio <= WRITTEN_MOST),
    })
}

/// Bytes that this process has written, from Linux.
fn written_bytes() -> Option<u64> {
    let io = std::fs::read_to_string("/proc/self/io").ok()?;
    io.lines().find_map(|line| line.strip_prefix("wchar: ")?.parse().ok())
}

/// The same runs in a store that has few and in one that has many.
fn growth(folder: &Path) -> [Row; 2] {
    let (few, many) = (Kept::new(&folder.join("few.db")), Kept::new(&folder.join("many.db")));
    let input = Value::from(input());
    let chain = |kept: &Kept| kept.plan(&floor::chain(STEPS));
    let plans = (chain(&few), chain(&many));
    few.run(&plans.0, &input, 100, 100);
    many.run(&plans.1, &input, 100_000, 1_000);
    let row = |name: &str, at_once: usize| {
        let both = |kept: &Kept, plan| kept.run(plan, &input, at_once, at_once);
        let mut floor = || both(&few, &plans.0);
        let mut engine = || both(&many, &plans.1);
        compare(Clock::Wall, &mut floor, &mut engine).row(name, 1.2, at_once * STEPS)
    };
    [
        row("W1 in a store of 100,000 runs, per step (floor: of 100)", 1),
        row("W3 in a store of 100,000 runs, per step (floor: of 100)", RUNS),
    ]
}

/// Repeats the work of one part, for a profiler. Returns what the syncs took of it.
pub(crate) fn repeat(part: &str, times: usize) -> Result<String, String> {
    let (steps, runs) = match part {
        "w1" => (floor::chain(STEPS), 1),
        "w2" => (floor::wide(WIDE), 1),
        "w5" => (floor::layered(LAYERED, graph::WIDTH), 1),
        "w3" => (floor::chain(STEPS), RUNS),
        other => return Err(format!("no part `{other}` can be repeated")),
    };
    let folder = Folder::new();
    let kept = Kept::new(&folder.0.join("runs.db"));
    let (plan, input) = (kept.plan(&steps), Value::from(input()));
    let mut bare = Syncs::new(&folder.0.join("syncs"));
    let (mut took, mut took_bare) = (Duration::ZERO, Duration::ZERO);
    (0..WARM).for_each(|_| kept.run(&plan, &input, runs, runs));
    let before = kept.store.figures();
    for _ in 0..times {
        let began = Instant::now();
        kept.run(&plan, &input, runs, runs);
        took += began.elapsed();
        let began = Instant::now();
        (0..STEPS).for_each(|_| bare.one());
        took_bare += began.elapsed();
    }
    let after = kept.store.figures();
    let syncs = after.syncs - before.syncs;
    let each = |what: Duration| what / u32::try_from(syncs).unwrap_or(u32::MAX).max(1);
    let (sync, all) = (each(after.sync_time.saturating_sub(before.sync_time)), each(took));
    let bare = took_bare / u32::try_from(times * STEPS).unwrap_or(u32::MAX).max(1);
    Ok(format!("{syncs} syncs, {sync:?} each; {all:?} from one to the next; {bare:?} a bare one"))
}

/// The parts of the table, by their names on the command line.
pub(crate) const PARTS: [&str; 6] = ["w1", "w2", "w5", "w3", "w6", "growth"];

/// The rows of some parts of the table.
pub(crate) fn rows(parts: &[&str]) -> Vec<Row> {
    let folder = Folder::new();
    let kept = Kept::new(&folder.0.join("runs.db"));
    let journal = Journal::new(&folder.0.join("journal"));
    let against = |name, most, steps| journaled(&kept, &journal, steps, 1, (name, most)).0;
    let mut rows = Vec::new();
    for part in parts {
        match *part {
            "w1" => rows.push(lone(&folder.0)),
            "w2" => rows.push(against("W2 1 → 100 → 1", 2.2, floor::wide(WIDE))),
            "w5" => {
                let steps = floor::layered(LAYERED, graph::WIDTH);
                rows.push(against("W5 graph of 1,000", 2.1, steps));
            }
            "w3" => rows.extend(many(&kept, &journal)),
            // In a store of its own: no checkpoint of other runs counts.
            "w6" => rows.extend(large(&Kept::new(&folder.0.join("large.db")))),
            _ => rows.extend(growth(&folder.0)),
        }
    }
    rows
}
