//! Every write and every sync of a process fails once: no space, an I/O error, or a crash.
//!
//! `strace` injects the fault into one system call of a child process, which is this test program again.
//! Whatever fails, every acknowledged entry is in the store, and every run resumes to its end.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use segue_core::source::Source;
use segue_core::value::Value;
use segue_runtime::engine::RunRequest;
use segue_runtime::store::{InterceptedStore, SqliteOptions, SqliteStore};
use tempfile::TempDir;

use crate::backup::{CHAIN, Lengths, Print, STORE, assert_whole, engine, read_acknowledged};

const WRITES: &str = "pwrite64,write,ftruncate";
const SYNCS: &str = "fdatasync,fsync";

const FAULTS: [(&str, &str); 5] = [
    (WRITES, "error=ENOSPC"),
    (WRITES, "error=EIO"),
    (WRITES, "signal=KILL"),
    (SYNCS, "error=EIO"),
    (SYNCS, "signal=KILL"),
];

#[tokio::test]
#[ignore = "the child process of the test below"]
async fn write_some() {
    let path = std::env::var(STORE).unwrap();
    // The fault may hit the opening, or a run.
    let Ok(store) = SqliteStore::open(Path::new(&path), SqliteOptions::default()) else { return };
    let engine = engine(Arc::new(InterceptedStore::new(Arc::new(store), Arc::new(Print))));
    let plan = engine.plan(&Source::new("chain.yaml", CHAIN)).0.unwrap();
    for _ in 0..3 {
        let _ = engine.run(RunRequest::new(plan.clone(), Value::empty_object())).await;
    }
}

/// Runs the child in a trace of these calls; returns what it acknowledged, and how many calls it made.
fn child(store: &Path, calls: &str, inject: Option<String>) -> (Lengths, usize) {
    let trace = store.with_extension("trace");
    let mut command = Command::new("strace");
    // Only calls on files of the store: the child also writes to its standard streams.
    command.args(["-f", "-qq", "-y", "-e", &format!("trace={calls}"), "-o"]).arg(&trace);
    for file in ["", "-wal", "-shm"] {
        command.arg("-P").arg(format!("{}{file}", store.display()));
    }
    if let Some(inject) = inject {
        command.args(["-e", &inject]);
    }
    let output = command
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "faults::write_some", "--ignored", "--nocapture"])
        .env(STORE, store)
        .stdout(Stdio::null())
        .output()
        .unwrap();
    let mut acknowledged = Lengths::new();
    read_acknowledged(&output.stderr[..], |run_id, length| {
        acknowledged.insert(run_id, length);
    });
    let trace = std::fs::read_to_string(trace).unwrap();
    (acknowledged, trace.lines().filter(|line| line.contains("runs.db")).count())
}

/// J1, J2, J11
#[tokio::test]
#[ignore = "needs strace, and minutes: `just faults`"]
async fn every_write_and_sync_fails_once() {
    for (calls, fault) in FAULTS {
        let folder = TempDir::new().unwrap();
        let (acknowledged, count) = child(&folder.path().join("runs.db"), calls, None);
        assert!(acknowledged.len() == 3 && count > 10, "{acknowledged:?}, {count} calls");
        for when in 1..=count {
            let folder = TempDir::new().unwrap();
            let store = folder.path().join("runs.db");
            let inject = format!("inject={calls}:{fault}:when={when}");
            let (acknowledged, _) = child(&store, calls, Some(inject));
            assert_whole(&store, &acknowledged).await;
        }
    }
}
