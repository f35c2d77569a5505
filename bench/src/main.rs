//! Benchmarks: Segue against hand-written floors, in one process and one run.
//!
//! The machine is noisy, so only ratios mean anything: floor and engine alternate (A B B A), and
//! the median of the pairs' ratios is reported with a bootstrap interval. Instructions are counted
//! too; they do not depend on the load of the machine.
//!
//! `just bench` prints the tables and writes them to `bench/RESULTS.md`. Parts of it:
//! `instructions` only counts, `time w1` times one workload, `durable` measures the store, `durable
//! w3` a part of it, `mcp` measures calls of MCP servers, `shared` measures the store in Postgres, `repeat w1 engine 1000` and `repeat
//! durable w1 1000` repeat the work for a profiler, `language` measures the language service. Separately, `scale` checks large runs and their
//! memory.

mod count;
mod database;
mod durable;
mod echo;
mod floor;
mod graph;
mod journal;
mod language;
mod mcp;
mod measure;
mod retries;
mod scale;
mod shared;
mod shared_floor;
mod start;
mod workload;

use std::process::Command;
use std::time::Duration;

use measure::{Clock, Row, compare};
use workload::Workload;

/// Settings of the allocator: it returns no memory to the system during a measurement. Without them
/// a side that frees a lot at once would pay for the same pages again in every round.
const HEAP: [(&str, &str); 2] =
    [("MALLOC_TRIM_THRESHOLD_", "2000000000"), ("MALLOC_MMAP_THRESHOLD_", "2000000000")];

fn main() -> Result<(), String> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["echo-server", "stdio"] => return echo::on_stdio(),
        ["echo-server", "http"] => return echo::on_http(),
        ["shared-process", url, runs, at_once] => return shared::process(url, runs, at_once),
        _ if std::env::var_os(HEAP[0].0).is_none() => return again_with_heap(),
        [] => everything()?,
        ["instructions"] => measure::print(&measure::table(&count::rows())),
        ["time", key] => {
            let workload = workload::named(key).ok_or_else(|| format!("no workload `{key}`"))?;
            measure::print(&measure::table(&[timed(workload)]));
        }
        ["repeat", "durable", part, times] => {
            let times = times.parse().map_err(|_| format!("`{times}` is not a number"))?;
            measure::print(&durable::repeat(part, times)?);
        }
        ["repeat", key, side, times] => {
            let times = times.parse().map_err(|_| format!("`{times}` is not a number"))?;
            count::repeat(key, side, times)?;
        }
        ["durable"] => measure::print(&measure::table(&durable::rows(&durable::PARTS))),
        ["durable", parts @ ..] if parts.iter().all(|part| durable::PARTS.contains(part)) => {
            measure::print(&measure::table(&durable::rows(parts)));
        }
        ["shared"] => shared::report(&shared::PARTS)?,
        ["shared", parts @ ..] if parts.iter().all(|part| shared::PARTS.contains(part)) => {
            shared::report(parts)?;
        }
        ["mcp"] => mcp::report(&mcp::PARTS)?,
        ["mcp", "pinned", parts @ ..] => mcp::pinned(parts),
        ["mcp", parts @ ..] if parts.iter().all(|part| mcp::PARTS.contains(part)) => {
            mcp::report(parts)?;
        }
        ["scale"] => scale::report()?,
        ["scale", case, size] => {
            let size = size.parse().map_err(|_| format!("`{size}` is not a number"))?;
            scale::one(case, size)?;
        }
        ["language"] => measure::print(&measure::table(&language::rows())),
        ["large"] => count::large(),
        _ => {
            return Err("instructions | time KEY | repeat KEY SIDE TIMES | repeat durable PART TIMES | durable [PART…] | shared [PART…] | mcp [PART…] | \
                        scale [CASE SIZE] | language | large"
                .to_owned());
        }
    }
    Ok(())
}

/// Starts this program again with the allocator's settings, which a process reads at its start.
fn again_with_heap() -> Result<(), String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let status = Command::new(program).args(std::env::args_os().skip(1)).envs(HEAP).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(status.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

fn everything() -> Result<(), String> {
    let mut rows = count::rows();
    rows.push(timed(workload::chain(10)));
    rows.push(timed(workload::wide()));
    rows.push(timed(workload::many()));
    rows.push(timed(workload::map(1_000)));
    rows.push(timed(workload::layered()));
    rows.push(large());
    rows.extend(count::peak_row());
    rows.extend([100, 1_000, 10_000].map(|steps| timed(workload::chain(steps))));
    rows.push(timed(workload::map(10_000)));
    rows.extend(graph::rows());
    rows.extend(language::rows());
    rows.extend(start::rows());
    let memory = measure::table(&rows);
    measure::print(&memory);
    let durable = measure::table(&durable::rows(&durable::PARTS));
    measure::print(&durable);
    measure::write(&measure::page(&memory, &durable));
    shared::report(&shared::PARTS)?;
    mcp::report(&mcp::PARTS)
}

fn timed(workload: Workload) -> Row {
    let Workload { name, most, steps, mut floor, mut engine } = workload;
    compare(Clock::Processor, &mut floor, &mut engine).row(&name, most, steps)
}

/// W6 has an absolute target: compared with a clone of the value, which no engine should make, any
/// time looks good.
fn large() -> Row {
    const MOST: Duration = Duration::from_micros(400);
    let Workload { name, most, steps, mut floor, mut engine } = workload::large();
    let pairs = compare(Clock::Processor, &mut floor, &mut engine);
    let met = Some(pairs.engine() <= MOST);
    Row { target: measure::show(MOST), met, ..pairs.row(&name, most, steps) }
}
