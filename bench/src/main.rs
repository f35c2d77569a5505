//! Benchmarks: Segue against hand-written floors, in one process and one run.
//!
//! The machine is noisy, so only ratios mean anything: floor and engine alternate (A B B A), and
//! the median of the pairs' ratios is reported with a bootstrap interval. Instructions are counted
//! beside the clock, and are the same on a busy machine.
//!
//! `just bench` prints the table and writes it to `bench/RESULTS.md`. Parts of it: `instructions`
//! counts only, `time w1` times one workload, `repeat w1 engine 1000` does the work for a profiler.
//! Apart from it: `scale` checks large runs and their memory, `durable` measures the store.

mod count;
mod durable;
mod floor;
mod graph;
mod measure;
mod scale;
mod start;
mod workload;

use measure::{Row, compare};
use workload::Workload;

fn main() -> Result<(), String> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] => everything(),
        ["instructions"] => measure::print(&measure::table(&count::rows())),
        ["time", key] => {
            let workload = workload::named(key).ok_or_else(|| format!("no workload `{key}`"))?;
            measure::print(&measure::table(&[timed(workload)]));
        }
        ["repeat", key, side, times] => {
            let times = times.parse().map_err(|_| format!("`{times}` is not a number"))?;
            count::repeat(key, side, times)?;
        }
        // Apart from the rest: it writes for minutes, and its numbers are the disk's.
        ["durable"] => measure::print(&measure::table(&durable::rows())),
        ["scale"] => scale::report()?,
        ["scale", case, size] => {
            let size = size.parse().map_err(|_| format!("`{size}` is not a number"))?;
            scale::one(case, size)?;
        }
        ["large"] => count::large(),
        _ => {
            return Err("instructions | time KEY | repeat KEY SIDE TIMES | durable | \
                        scale [CASE SIZE] | large"
                .to_owned());
        }
    }
    Ok(())
}

fn everything() {
    let mut rows = count::rows();
    rows.push(timed(workload::chain(10)));
    rows.push(timed(workload::wide()));
    rows.push(timed(workload::many()));
    rows.push(timed(workload::map(1_000)));
    rows.push(timed(workload::layered()));
    rows.push(timed(workload::large()));
    rows.extend([100, 1_000, 10_000].map(|steps| timed(workload::chain(steps))));
    rows.push(timed(workload::map(10_000)));
    rows.extend(count::peak_row());
    rows.extend(graph::rows());
    rows.extend(start::rows());
    let table = measure::table(&rows);
    measure::print(&table);
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/RESULTS.md");
    if let Err(error) = std::fs::write(file, measure::page(&table)) {
        measure::print(&format!("cannot write {file}: {error}"));
    }
}

fn timed(workload: Workload) -> Row {
    let Workload { name, target, steps, mut floor, mut engine } = workload;
    compare(&name, target, steps, &mut floor, &mut engine)
}
