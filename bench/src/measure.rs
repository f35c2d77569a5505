//! How things are measured and shown.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{Duration, Instant};

/// Pairs of floor and engine for one row.
const PAIRS: usize = 15;

/// One line of the table.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) floor: String,
    pub(crate) engine: String,
    pub(crate) ratio: String,
    pub(crate) target: &'static str,
}

/// Measures `floor` against `engine`, alternating.
pub(crate) fn compare(
    name: &'static str,
    target: &'static str,
    mut floor: impl FnMut(),
    mut engine: impl FnMut(),
) -> Row {
    floor();
    engine();
    let mut pairs = Vec::with_capacity(PAIRS);
    for round in 0..PAIRS {
        let (a, b) = if round % 2 == 0 {
            let a = time(&mut floor);
            (a, time(&mut engine))
        } else {
            let b = time(&mut engine);
            (time(&mut floor), b)
        };
        pairs.push((a, b));
    }
    let ratios: Vec<f64> = pairs.iter().map(|(a, b)| b.as_secs_f64() / a.as_secs_f64()).collect();
    let (low, high) = interval(&ratios);
    Row {
        name,
        floor: show(median_time(pairs.iter().map(|(a, _)| *a))),
        engine: show(median_time(pairs.iter().map(|(_, b)| *b))),
        ratio: format!("{:.2} ({low:.2}–{high:.2})", median(&ratios)),
        target,
    }
}

/// How long one call takes, long calls once and short ones often enough to be measured.
fn time(work: &mut impl FnMut()) -> Duration {
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

fn median(values: &[f64]) -> f64 {
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
fn interval(values: &[f64]) -> (f64, f64) {
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

pub(crate) fn page(table: &str) -> String {
    format!(
        "# Results\n\nWritten by `just bench`. Ratios are medians of alternating pairs in one process, with \
         a 95 % bootstrap interval; times are of one machine and mean little elsewhere.\n\n{table}"
    )
}

pub(crate) fn print(text: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}
