//! Measures pairs of floor and engine, and formats the results.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// How many pairs of floor and engine one row takes.
const PAIRS: usize = 25;

/// One line of the table.
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) floor: String,
    pub(crate) engine: String,
    pub(crate) ratio: String,
    pub(crate) target: String,
    /// Whether the target is met; `None` without a target.
    pub(crate) met: Option<bool>,
}

/// Times of floor and engine, in pairs.
pub(crate) struct Pairs(Vec<(Duration, Duration)>);

/// The clock that is read before and after the work.
#[derive(Clone, Copy)]
pub(crate) enum Clock {
    /// CPU time of this process: other processes do not count.
    Processor,
    /// CPU time of this process and its children, together.
    Family,
    /// Wall time.
    Wall,
}

impl Clock {
    fn now(self) -> Duration {
        let now = clock_gettime(match self {
            Clock::Processor | Clock::Family => ClockId::ProcessCPUTime,
            Clock::Wall => ClockId::Monotonic,
        });
        let now = Duration::try_from(now).expect("no clock runs before its beginning");
        if matches!(self, Clock::Family) { now + children() } else { now }
    }
}

/// The CPU time of the child processes, as the kernel reports it in `/proc`.
fn children() -> Duration {
    let tasks = |process: &str| {
        let tasks = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten();
        tasks.flatten().map(|task| task.path())
    };
    let read = |path: PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    let children = tasks("self").map(|task| read(task.join("children")));
    let children: Vec<String> = children
        .flat_map(|ids| ids.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    let nanos = children.iter().flat_map(|child| tasks(child)).filter_map(|task| {
        read(task.join("schedstat")).split_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanos.sum())
}

/// Measures `floor` against `engine`, alternating.
pub(crate) fn compare(clock: Clock, floor: &mut dyn FnMut(), engine: &mut dyn FnMut()) -> Pairs {
    floor();
    engine();
    let pair = |round: usize| {
        if round.is_multiple_of(2) {
            let a = time(clock, floor);
            (a, time(clock, engine))
        } else {
            let b = time(clock, engine);
            (time(clock, floor), b)
        }
    };
    Pairs((0..PAIRS).map(pair).collect())
}

impl Pairs {
    /// Merges two measurements.
    pub(crate) fn and(mut self, others: Pairs) -> Pairs {
        self.0.extend(others.0);
        self
    }

    /// A row of the table. Times are shown per one of `parts`; a ratio up to `most` meets the
    /// target.
    pub(crate) fn row(&self, name: &str, most: f64, parts: usize) -> Row {
        let ratios: Vec<f64> =
            self.0.iter().map(|(a, b)| b.as_secs_f64() / a.as_secs_f64()).collect();
        let (low, high) = interval(&ratios);
        let ratio = median(&ratios);
        let part = |time: Duration| show(time.div_f64(parts as f64));
        Row {
            name: name.to_owned(),
            floor: part(median_time(self.0.iter().map(|(a, _)| *a))),
            engine: part(self.engine()),
            ratio: format!("{ratio:.2} ({low:.2}–{high:.2})"),
            target: format!("≤ {most}×"),
            met: Some(ratio <= most),
        }
    }

    /// The time that the engine adds to the floor, per one of `parts`, in microseconds, with its
    /// interval.
    pub(crate) fn added_micros(&self, parts: usize) -> (f64, f64, f64) {
        let added = |(a, b): &(Duration, Duration)| (b.as_secs_f64() - a.as_secs_f64()) * 1e6;
        let added: Vec<f64> = self.0.iter().map(|pair| added(pair) / parts as f64).collect();
        let (low, high) = interval(&added);
        (median(&added), low, high)
    }

    /// The median time of the engine.
    pub(crate) fn engine(&self) -> Duration {
        median_time(self.0.iter().map(|(_, b)| *b))
    }
}

/// The time of one call; short calls are repeated until they can be measured.
fn time(clock: Clock, work: &mut dyn FnMut()) -> Duration {
    const ENOUGH: Duration = Duration::from_millis(20);
    let begun = clock.now();
    let mut times = 0u32;
    loop {
        work();
        times += 1;
        let took = clock.now().saturating_sub(begun);
        if took >= ENOUGH {
            return took / times;
        }
    }
}

pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

pub(crate) fn median_time(times: impl Iterator<Item = Duration>) -> Duration {
    let mut sorted: Vec<Duration> = times.collect();
    sorted.sort();
    sorted[sorted.len() / 2]
}

/// The 95 % bootstrap interval of the median, from a fixed sequence of draws.
pub(crate) fn interval(values: &[f64]) -> (f64, f64) {
    const DRAWS: usize = 1_000;
    let mut seed = 0x9E37_79B9_7F4A_7C15_u64;
    let mut medians: Vec<f64> = (0..DRAWS)
        .map(|_| {
            let sample: Vec<f64> = values
                .iter()
                .map(|_| {
                    seed ^= seed << 13;
                    seed ^= seed >> 7;
                    seed ^= seed << 17;
                    values[usize::try_from(seed % values.len() as u64).unwrap_or(0)]
                })
                .collect();
            median(&sample)
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    (medians[DRAWS / 40], medians[DRAWS - DRAWS / 40 - 1])
}

pub(crate) fn show(time: Duration) -> String {
    let nanos = time.as_nanos();
    match nanos {
        0..10_000 => format!("{nanos} ns"),
        10_000..10_000_000 => format!("{:.1} µs", nanos as f64 / 1e3),
        _ => format!("{:.1} ms", nanos as f64 / 1e6),
    }
}

pub(crate) fn table(rows: &[Row]) -> String {
    let mut out = String::from(
        "| what | floor | segue | ratio | target | met |\n|---|---|---|---|---|---|\n",
    );
    for Row { name, floor, engine, ratio, target, met } in rows {
        let met = met.map_or("—", |met| if met { "yes" } else { "**no**" });
        let _ = writeln!(out, "| {name} | {floor} | {engine} | {ratio} | {target} | {met} |");
    }
    out
}

/// The page: what was measured against what, and the tables.
pub(crate) fn page(memory: &str, durable: &str) -> String {
    format!("{PREFACE}\n## In memory\n\n{MEMORY}\n{memory}\n## Durable\n\n{DURABLE}\n{durable}")
}

/// The path of the page.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/RESULTS.md");

/// Rewrites the page.
pub(crate) fn write(page: &str) {
    if let Err(error) = std::fs::write(PAGE, page) {
        print(&format!("cannot write {PAGE}: {error}"));
    }
}

/// Rewrites one section of the page and leaves the others. A new section comes last.
pub(crate) fn write_section(heading: &str, body: &str) {
    let page = std::fs::read_to_string(PAGE).unwrap_or_default();
    let begin = format!("\n## {heading}\n");
    let (before, rest) = page.split_once(&begin).unwrap_or((&page, ""));
    let after = rest.find("\n## ").map_or("", |at| &rest[at..]);
    write(&format!("{before}{begin}\n{body}{after}"));
}

const PREFACE: &str = "# Results

Written by `just bench`. Times are of one busy machine and mean little elsewhere; what counts is the
ratio: the median of alternating pairs in one process, with a 95 % bootstrap interval, and the
instructions that callgrind counts (the difference of two run counts, on one thread). The allocator
keeps what it has, on both sides: what the kernel takes for pages that come and go is not measured.
In memory a time is the processor's (of all threads), so that others on the machine do not count; with
a disk it is what passed.
";

const MEMORY: &str = "**The floor** is what one would write by hand for exactly this workload: an inline dataflow over
`serde_json` values. It counts what each step waits for, builds its arguments anew, clones the values
that it reads (records of about 200 bytes, every text and map of them), and polls all calls in one place
through one boxed future each. It has no expressions, no schemas, no ids, no journal, no timers, no
cancellation and no report at the end, and its tools cannot fail. The engine does all of that in the
column beside it, with a journal that keeps nothing.

A time moves with what else runs, W1's most of all: on a busy machine its ratio is a third higher than
on a quiet one. Its instructions stay the same.

W3 runs on all cores, and runs of one composition share its plan and its tools: each step counts references
to them. What that costs depends on how far apart the cores are, and on where the linker and the allocator put
things: builds of nearly the same code had ratios from 1.9 to 3.0 on two cores, with the same instructions. On
one core (`taskset -c 0`) the ratio is 1.4.
";

const DURABLE: &str = "**The floor** is the same dataflow with a journal by hand. It serialises the value of every step,
appends it to a file that has its full length already, and syncs before the next step reads it; values
that wait at the same time share a sync. It does not record that a call is about to leave, and cannot be
read back. The floor of W1 is less: one bare sync of one page for each step.

Segue records calls and results, chained by hashes, in a SQLite file that can be queried. SQLite's log is
the only log. One writer takes all turns that wait, commits them in one transaction, and syncs the log once
(`synchronous=FULL`); a lone run commits on its own thread. Checkpoints move pages from the log into the
file on a connection that no run waits for.

A call leaves after its entry is durable, and a run ends after its end is durable. So a lone chain of ten
steps takes eleven syncs: one before each call, and one at the end.

The ratios depend on the disk. Where a sync takes milliseconds, it is most of the time on both sides. Where
it is fast, the engine's own work and SQLite's count, too: a transaction writes several pages of 4 KiB to
the log, the floor of W1 writes one. The time of a sync depends on where on the disk a file happens to be,
by a quarter; so W1 is measured in five places, each with files of its own.

W3 misses its target. The transaction of one turn writes about nine pages, where the floor writes one, and
two threads share the work of 64 chains with the writer. Fewer pages for each turn would help. W1 depends
on the machine: on others a commit of a lone run took 2.1 bare syncs, and W1 had a ratio of 1.9.
";

pub(crate) fn print(text: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}
