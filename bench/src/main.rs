//! Benchmarks: Segue against hand-written floors, in one process and one run.
//!
//! The machine is noisy, so only ratios mean anything: floor and engine alternate (A B B A), and
//! the median of the pairs' ratios is reported with a bootstrap interval. `just bench` prints the
//! table and writes it to `bench/RESULTS.md`; `just bench scale` checks large runs and their memory.

mod durable;
mod floor;
mod graph;
mod measure;
mod scale;
mod start;
mod workload;

use measure::Row;

fn main() -> Result<(), String> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => everything(),
        // Apart from the rest: it writes for minutes, and its numbers are the disk's.
        ["durable"] => measure::print(&measure::table(&durable::rows())),
        ["scale"] => scale::report()?,
        ["scale", case, size] => {
            let size = size.parse().map_err(|_| format!("`{size}` is not a number"))?;
            scale::one(case, size)?;
        }
        _ => return Err("durable | scale [CASE SIZE]".to_owned()),
    }
    Ok(())
}

fn everything() {
    let rows: Vec<Row> =
        [graph::rows(), workload::rows(), start::rows()].into_iter().flatten().collect();
    let table = measure::table(&rows);
    measure::print(&table);
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/RESULTS.md");
    if let Err(error) = std::fs::write(file, measure::page(&table)) {
        measure::print(&format!("cannot write {file}: {error}"));
    }
}
