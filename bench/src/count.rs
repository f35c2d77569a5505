//! Instructions and memory, which a busy machine does not distort. Each is measured in its own
//! process, this program started again.

use std::process::Command;

use crate::measure::{Row, print};
use crate::workload::Workload;
use crate::{scale, workload};

/// Runs before and after which instructions are counted; their difference leaves the start away.
const RUNS: (u64, u64) = (20, 120);

/// The same for growth: its workloads take as long as thousands of runs and do the same each time.
const LARGE_RUNS: (u64, u64) = (1, 3);

/// Repeats one workload, for counting and for profilers.
pub(crate) fn repeat(key: &str, side: &str, times: u64) -> Result<(), String> {
    let mut workload = workload::named(key).ok_or_else(|| format!("no workload `{key}`"))?;
    let work = match side {
        "floor" => &mut workload.floor,
        "engine" => &mut workload.engine,
        other => return Err(format!("`floor` or `engine`, not `{other}`")),
    };
    (0..times).for_each(|_| work());
    Ok(())
}

/// Instructions per step, item and run, counted by callgrind on one thread.
pub(crate) fn rows() -> Vec<Row> {
    let row = |name: &str, key, most: f64, steps: u64| {
        let floor = instructions(key, "floor")? / (steps as f64);
        let engine = instructions(key, "engine")? / (steps as f64);
        Some(Row {
            name: name.to_owned(),
            floor: format!("{floor:.0}"),
            engine: format!("{engine:.0}"),
            ratio: format!("{:.2}", engine / floor),
            target: format!("≤ {most}×"),
            met: Some(engine <= most * floor),
        })
    };
    let rows = [
        row("W1 instructions per step", "w1", 2.0, 10),
        row("W2 instructions per run", "w2", 2.2, 1),
        row("W4 instructions per item", "w4", 2.4, 1_000),
        row("W5 instructions per step", "w5", 2.2, 1_000),
        growth_row("compile"),
        growth_row("retries"),
    ];
    if rows.iter().any(Option::is_none) {
        print("no valgrind here: instructions are not counted");
    }
    rows.into_iter().flatten().collect()
}

/// How the instructions of a workload grow: its floor is the small size, its engine one ten times as
/// large.
fn growth_row(key: &str) -> Option<Row> {
    let Workload { name, most, .. } = workload::named(key)?;
    let small = instructions_between(LARGE_RUNS, key, "floor")?;
    let large = instructions_between(LARGE_RUNS, key, "engine")?;
    Some(Row {
        name: format!("{name}, instructions"),
        floor: format!("{small:.0}"),
        engine: format!("{large:.0}"),
        ratio: format!("{:.2}", large / small),
        target: format!("≤ {most}×"),
        met: Some(large <= most * small),
    })
}

/// Instructions of one run of a workload: the difference of two counts.
pub(crate) fn instructions(key: &str, side: &str) -> Option<f64> {
    instructions_between(RUNS, key, side)
}

fn instructions_between((few, many): (u64, u64), key: &str, side: &str) -> Option<f64> {
    let difference = collected(key, side, many)? - collected(key, side, few)?;
    Some(difference as f64 / (many - few) as f64)
}

fn collected(key: &str, side: &str, times: u64) -> Option<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe().ok()?)
        .args(["repeat", key, side, &times.to_string()])
        .output()
        .ok()?;
    let text = String::from_utf8(output.stderr).ok()?;
    let line = text.lines().find_map(|line| line.split_once("Collected :"))?.1;
    line.trim().parse().ok()
}

/// The peak memory of W6, including the text that its input is read from.
pub(crate) fn peak_row() -> Option<Row> {
    let output = Command::new(std::env::current_exe().ok()?).arg("large").output().ok()?;
    let kib: u64 = String::from_utf8(output.stdout).ok()?.trim().parse().ok()?;
    Some(Row {
        name: "W6 peak memory of the process".to_owned(),
        floor: "—".to_owned(),
        engine: format!("{} MB", kib / 1024),
        ratio: "—".to_owned(),
        target: "≤ 130 MB".to_owned(),
        met: Some(kib <= 130 * 1024),
    })
}

/// Runs W6 once and prints the peak memory of this process, in KiB.
pub(crate) fn large() {
    workload::large_alone();
    print(&scale::peak_kib().to_string());
}
