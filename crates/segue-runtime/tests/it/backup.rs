//! Copies by SQLite's own means, taken while a process writes, hold every acknowledged entry.
//!
//! A child process, which is this test program again, drives runs and prints each append after the store
//! has acknowledged it. The parent copies the store meanwhile, kills the child, and compares.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use rusqlite::Connection;
use rusqlite::backup::Backup;
use segue_core::id::ToolId;
use segue_core::schema::Schema;
use segue_core::source::Source;
use segue_core::tool::{Annotations, ToolSpec};
use segue_core::value::Value;
use segue_core::view::RunStatus;
use segue_runtime::engine::{Engine, RunRequest};
use segue_runtime::store::{
    InterceptedStore, JournalStore as _, Operation, RunHistory as _, RunQuery, Store, StoreError,
    StoreInterceptor,
};
use segue_runtime::tools::{Tool, ToolError, ToolRequest, ToolRunner};
use tempfile::TempDir;

use crate::stores::sqlite;

pub(crate) const CHAIN: &str = "
name: chain
steps:
  - { id: a, tool: 'test:work', parameters: { n: 1 } }
  - { id: b, tool: 'test:work', parameters: { n: '{{ a.n + 1 }}' } }
  - { id: c, tool: 'test:work', parameters: { n: '{{ b.n + 1 }}' } }
output: '{{ c.n }}'
";

/// Runs at once in the child.
const RUNS: usize = 8;

/// Copies of each kind.
const COPIES: usize = 3;

/// Acknowledgements before a copy, so that each sees new ones.
const ACKNOWLEDGED: usize = 100;

/// Where the child finds the store.
pub(crate) const STORE: &str = "SEGUE_BACKUP_STORE";

/// Returns its arguments.
struct Echo;

#[async_trait]
impl ToolRunner for Echo {
    async fn call(&self, call: ToolRequest) -> Result<Value, ToolError> {
        Ok(call.args)
    }
}

pub(crate) fn engine(store: Arc<dyn Store>) -> Engine {
    let mut spec = ToolSpec::new(ToolId::new("test", "work"), "works", Schema::any_object());
    spec.annotations =
        Annotations { destructive: Some(false), idempotent: Some(true), ..Annotations::default() };
    let tool = Tool { spec: Arc::new(spec), runner: Arc::new(Echo) };
    Engine::builder().tools([tool]).store(store).build().0
}

/// Prints acknowledgements: a run, and its length.
pub(crate) struct Print;

#[async_trait]
impl StoreInterceptor for Print {
    #[allow(clippy::print_stderr, reason = "the parent reads it")]
    async fn after(&self, operation: Operation<'_>) -> Result<(), StoreError> {
        if let Operation::Append { run_id, entries } = operation
            && let Some(last) = entries.last()
        {
            eprintln!("{run_id} {}", last.seq + 1);
        }
        Ok(())
    }
}

#[tokio::test]
#[ignore = "the child process of the test below"]
async fn write_until_killed() {
    let store = sqlite(Path::new(&std::env::var(STORE).unwrap()));
    let engine = engine(Arc::new(InterceptedStore::new(Arc::new(store), Arc::new(Print))));
    let plan = engine.plan(&Source::new("chain.yaml", CHAIN)).0.unwrap();
    let runs = (0..RUNS).map(|_| async {
        loop {
            engine.run(RunRequest::new(plan.clone(), Value::empty_object())).await.unwrap();
        }
    });
    futures_util::future::join_all(runs).await;
}

/// The acknowledged length of each run.
pub(crate) type Lengths = BTreeMap<String, u64>;

/// Reads what [`Print`] prints.
pub(crate) fn read_acknowledged(lines: impl Read, mut each: impl FnMut(String, u64)) {
    let (mut lines, mut line) = (BufReader::new(lines), String::new());
    // A line without its end was cut by a kill, and acknowledges nothing.
    while lines.read_line(&mut line).unwrap() > 0 && line.ends_with('\n') {
        if let Some((run_id, length)) = line.trim_end().split_once(' ')
            && let Ok(length) = length.parse()
        {
            each(run_id.to_owned(), length);
        }
        line.clear();
    }
}

/// The child process, and what it has acknowledged.
struct Load {
    child: Child,
    acknowledged: Arc<Mutex<Lengths>>,
    reader: JoinHandle<()>,
}

impl Load {
    fn start(store: &Path) -> Load {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "backup::write_until_killed", "--ignored", "--nocapture"])
            .env(STORE, store)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let acknowledged = Arc::<Mutex<Lengths>>::default();
        let (notes, lines) = (acknowledged.clone(), child.stderr.take().unwrap());
        let reader = std::thread::spawn(move || {
            read_acknowledged(lines, |run_id, length| {
                notes.lock().unwrap().insert(run_id, length);
            });
        });
        Load { child, acknowledged, reader }
    }

    fn acknowledged(&self) -> Lengths {
        self.acknowledged.lock().unwrap().clone()
    }

    /// Waits for as many more acknowledged runs.
    fn wait_for_more(&self) {
        let (began, before) = (Instant::now(), self.acknowledged().len());
        while self.acknowledged().len() < before + ACKNOWLEDGED {
            assert!(began.elapsed() < Duration::from_mins(2), "the child does not write");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Kills it (`kill -9`); returns all that it acknowledged.
    fn kill(mut self) -> Lengths {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.reader.join().unwrap();
        Arc::try_unwrap(self.acknowledged).unwrap().into_inner().unwrap()
    }
}

/// As `.backup` of SQLite's shell.
fn back_up(from: &Path, to: &Path) {
    let (source, mut copy) = (Connection::open(from).unwrap(), Connection::open(to).unwrap());
    let backup = Backup::new(&source, &mut copy).unwrap();
    backup.step(-1).unwrap();
}

fn vacuum_into(from: &Path, to: &Path) {
    let source = Connection::open(from).unwrap();
    source.execute("VACUUM INTO ?1", [to.to_str().unwrap()]).unwrap();
}

/// Every acknowledged entry is there, nothing is damaged, and every run resumes to its end.
pub(crate) async fn assert_whole(path: &Path, acknowledged: &Lengths) {
    let store = Arc::new(sqlite(path));
    for (run_id, length) in acknowledged {
        let there = store.load(&run_id.as_str().into()).await.unwrap().len() as u64;
        assert!(there >= *length, "{run_id} has {there} of {length} entries");
    }
    let listed = store.runs(&RunQuery { limit: usize::MAX, ..RunQuery::default() }).await.unwrap();
    assert!(listed.runs.len() >= acknowledged.len());
    assert_eq!((listed.damaged, store.list_damaged().await.unwrap()), (Vec::new(), Vec::new()));
    for resumed in engine(store.clone()).recover().await.unwrap() {
        let view = resumed.outcome.unwrap();
        assert_eq!((view.status, view.output), (RunStatus::Success, Value::from(3)));
    }
    assert_eq!(store.unfinished().await.unwrap().runs, []);
}

fn remove_siblings(store: &Path) {
    for suffix in ["-wal", "-shm"] {
        std::fs::remove_file(format!("{}{suffix}", store.display())).unwrap();
    }
    std::fs::remove_dir_all(format!("{}-owners", store.display())).unwrap();
}

/// J1: copies under load, a kill, and restores: elsewhere, and in place of the killed store.
#[tokio::test]
async fn a_backup_under_load_holds_every_acknowledged_entry() {
    let (folder, elsewhere) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let original = folder.path().join("runs.db");
    drop(sqlite(&original));
    let load = Load::start(&original);
    let mut copies = Vec::new();
    for number in 0..COPIES {
        for (kind, copy) in [("backup", back_up as fn(&Path, &Path)), ("vacuum", vacuum_into)] {
            load.wait_for_more();
            let path = elsewhere.path().join(format!("{kind}-{number}.db"));
            let before = load.acknowledged();
            copy(&original, &path);
            copies.push((path, before));
        }
    }
    load.wait_for_more();
    let acknowledged = load.kill();

    let (oldest, before) = &copies[0];
    let in_place = elsewhere.path().join("in-place.db");
    std::fs::copy(oldest, &in_place).unwrap();
    for (copy, before) in &copies {
        assert_whole(copy, before).await;
    }
    assert_whole(&original, &acknowledged).await;

    restore_over_a_killed_store(&in_place, before).await;
}

/// An older copy takes the place of a store whose process was killed.
async fn restore_over_a_killed_store(copy: &Path, before: &Lengths) {
    let folder = TempDir::new().unwrap();
    let store = folder.path().join("runs.db");
    std::fs::copy(copy, &store).unwrap();
    let load = Load::start(&store);
    load.wait_for_more();
    load.kill();
    remove_siblings(&store);
    std::fs::copy(copy, &store).unwrap();
    assert_whole(&store, before).await;

    // Beside the acknowledgements of a killed process, an older copy looks like a damaged log: the store
    // says so. Put back again as above, it is whole.
    let load = Load::start(&store);
    load.wait_for_more();
    load.kill();
    std::fs::remove_file(format!("{}-wal", store.display())).unwrap();
    std::fs::copy(copy, &store).unwrap();
    let damaged = sqlite(&store).list_damaged().await.unwrap();
    assert!(damaged.iter().any(|error| matches!(error, StoreError::Truncated { .. })));
    remove_siblings(&store);
    std::fs::copy(copy, &store).unwrap();
    assert_whole(&store, before).await;
}
