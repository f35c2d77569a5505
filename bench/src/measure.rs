//! How things are measured and shown.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{Duration, Instant};

/// Pairs of floor and engine for one row.
const PAIRS: usize = 15;

/// One line of the table.
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) floor: String,
    pub(crate) engine: String,
    pub(crate) ratio: String,
    pub(crate) target: &'static str,
}

/// Measures `floor` against `engine`, alternating; times are shown per one of `parts`.
pub(crate) fn compare(
    name: &str,
    target: &'static str,
    parts: usize,
    floor: &mut dyn FnMut(),
    engine: &mut dyn FnMut(),
) -> Row {
    floor();
    engine();
    let mut pairs = Vec::with_capacity(PAIRS);
    for round in 0..PAIRS {
        let (a, b) = if round % 2 == 0 {
            let a = time(floor);
            (a, time(engine))
        } else {
            let b = time(engine);
            (time(floor), b)
        };
        pairs.push((a, b));
    }
    let ratios: Vec<f64> = pairs.iter().map(|(a, b)| b.as_secs_f64() / a.as_secs_f64()).collect();
    let (low, high) = interval(&ratios);
    let part = |time: Duration| show(time.div_f64(parts as f64));
    Row {
        name: name.to_owned(),
        floor: part(median_time(pairs.iter().map(|(a, _)| *a))),
        engine: part(median_time(pairs.iter().map(|(_, b)| *b))),
        ratio: format!("{:.2} ({low:.2}–{high:.2})", median(&ratios)),
        target,
    }
}

/// How long one call takes, long calls once and short ones often enough to be measured.
fn time(work: &mut dyn FnMut()) -> Duration {
    const ENOUGH: Duration = Duration::from_millis(20);
    let begun = Instant::now();
    let mut times = 0u32;
    loop {
        work();
        times += 1;
        let took = begun.elapsed();
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
    let mut out =
        String::from("| what | floor | segue | ratio | target |\n|---|---|---|---|---|\n");
    for Row { name, floor, engine, ratio, target } in rows {
        let _ = writeln!(out, "| {name} | {floor} | {engine} | {ratio} | {target} |");
    }
    out
}

/// The page around the table: what was measured, and against what.
pub(crate) fn page(table: &str) -> String {
    format!("{PREFACE}\n{table}")
}

const PREFACE: &str = "# Results

Written by `just bench`. Times are of one busy machine and mean little elsewhere; what counts is the
ratio: the median of alternating pairs in one process, with a 95 % bootstrap interval, and the
instructions that callgrind counts (the difference of two run counts, on one thread).

**The floor** is what one would write by hand for exactly this workload: an inline dataflow over
`serde_json` values. It counts what each step waits for, builds its arguments anew, clones the values
that it reads (records of about 200 bytes, every text and map of them), and polls all calls in one place
through one boxed future each. It has no expressions, no schemas, no ids, no journal, no timers, no
cancellation and no report at the end, and its tools cannot fail. The engine does all of that in the
column beside it, with a journal that keeps nothing.
";

pub(crate) fn print(text: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}
