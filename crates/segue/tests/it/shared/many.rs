//! Very many runs on one and on two workers: none is lost, and the memory of a worker is bounded.
//!
//! `SEGUE_MANY_RUNS` says how many (`just many-runs 10000`).

use std::io::Write as _;
use std::time::{Duration, Instant};

use segue_core::view::RunStatus;

use super::{Cluster, Process};
use crate::served::Served;
use crate::support::json;

/// Clients that start runs at the same time.
const CLIENTS: usize = 8;

/// The memory that a worker may need for runs that are under way, whatever their number.
const MEMORY_MAX_KB: u64 = 400_000;

/// What the runs of one measurement took.
struct Figures {
    per_second: f64,
    memory_kb: u64,
}

/// The worker's share of a run: three steps, the last of which reads the others.
fn composition(n: usize) -> crate::support::Json {
    json!({ "name": "hosted", "steps": [
        { "id": "a", "tool": "echo", "parameters": { "n": n } },
        { "id": "b", "tool": "echo", "parameters": { "n": "{{ a.n }}" } },
        { "id": "c", "tool": "echo", "parameters": { "sum": "{{ a.n + b.n }}" } } ] })
}

fn start(server: &Served, from: usize, to: usize) {
    for n in from..to {
        let body = json!({ "composition": composition(n) });
        let prefer = [("Prefer", "respond-async")];
        let answer = server.send("POST", "/api/v1/compositions/execute", &prefer, &body);
        // 200: it has ended already.
        assert!(matches!(answer.status, 200 | 202), "{answer:?}");
    }
}

fn measure(cluster: &Cluster, server: &Served, workers: &[Process], count: usize) -> Figures {
    let before = cluster.runs().len();
    let began = Instant::now();
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (from, to) = (client * count / CLIENTS, (client + 1) * count / CLIENTS);
            scope.spawn(move || start(server, from, to));
        }
    });
    while !cluster.unfinished().is_empty() {
        assert!(
            began.elapsed() < Duration::from_mins(20),
            "{} are stuck",
            cluster.unfinished().len()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    let took = began.elapsed();
    let rows = cluster.runs();
    assert_eq!(rows.len() - before, count, "runs are lost");
    let failed = rows.iter().find(|row| row.status != RunStatus::Success);
    assert!(failed.is_none(), "{failed:?}");
    let memory_kb = workers.iter().map(Process::peak_memory_kb).max().unwrap();
    Figures { per_second: count as f64 / took.as_secs_f64(), memory_kb }
}

#[test]
fn many_runs_on_one_and_on_two_workers() {
    let count = std::env::var("SEGUE_MANY_RUNS").ok().map_or(300, |text| text.parse().unwrap());
    for number in [1, 2] {
        let Some(cluster) = Cluster::new("") else { return };
        let workers: Vec<Process> = (0..number).map(|_| cluster.worker()).collect();
        workers.iter().for_each(|worker| drop(cluster.owner(worker)));
        let figures = measure(&cluster, &cluster.server(), &workers, count);
        let Figures { per_second, memory_kb } = figures;
        let text = format!(
            "{count} runs on {number} workers: {per_second:.0} runs/s, a worker needs {} MB at most",
            memory_kb / 1_024
        );
        // Not captured by the test harness.
        let _ = writeln!(std::io::stderr(), "{text}");
        assert!(memory_kb <= MEMORY_MAX_KB, "{text}");
    }
}
