//! J5: a store whose file is damaged returns what was written or an error, never anything else.

use std::fs;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use segue_core::limits::Limits;
use segue_core::value::Value;
use segue_core::view::RunStatus;
use segue_runtime::store::{
    Collection, JournalStore as _, KeyValueStore as _, Precondition, RunHistory as _, RunQuery,
    SqliteOptions, SqliteStore, StoreError, StoredItem,
};
use tempfile::TempDir;

use crate::stores::{begin, entry, finish, plan_named, record};

/// The result of every read of a store, or its error.
async fn answers(path: &Path) -> Vec<Result<String, StoreError>> {
    let store = match SqliteStore::open(path, SqliteOptions::default()) {
        Ok(store) => store,
        Err(error) => return vec![Err(error)],
    };
    let mut answers = Vec::new();
    for run_id in ["ended", "open", "large"] {
        let run_id: Arc<str> = run_id.into();
        answers.push(store.load(&run_id).await.map(|journal| format!("{journal:?}")));
        answers.push(store.run(&run_id).await.map(|run| format!("{run:?}")));
        let plan = store.plan(&run_id, &Limits::default()).await;
        answers.push(plan.map(|plan| plan.hash().to_string()));
    }
    let query = RunQuery { limit: 10, ..RunQuery::default() };
    for runs in [store.runs(&query).await, store.unfinished().await] {
        let named = |mut damaged: Vec<StoreError>| damaged.pop().map_or(Ok(()), Err);
        answers.push(runs.and_then(|found| {
            named(found.damaged)?;
            Ok(format!("{:?}", found.runs))
        }));
    }
    let texts = store.list(Collection::Plans, None, 10).await;
    answers.push(texts.and_then(|mut found| match found.damaged.pop() {
        Some(damage) => Err(damage),
        None => Ok(format!("{:?}", found.items)),
    }));
    answers
}

/// A small store with everything in it, and an empty log.
async fn small_store(path: &Path) {
    // Small pages, so that most bits mean something.
    let options =
        SqliteOptions { page_bytes: 512, value_bytes_max: 200, ..SqliteOptions::default() };
    let store = SqliteStore::open(path, options).unwrap();
    let plan = plan_named("p");
    let ended = begin(&store, "ended", &plan).await;
    finish(&store, &ended, 1).await;
    let open = begin(&store, "open", &plan).await;
    for seq in 1..4 {
        let entries = [entry(seq, Value::from(seq))];
        store.append(&open, record(seq, &entries, RunStatus::Running)).await.unwrap();
    }
    let large = begin(&store, "large", &plan).await;
    for seq in 1..3 {
        let entries = [entry(seq, Value::from("large ".repeat(40)))];
        store.append(&large, record(seq, &entries, RunStatus::Waiting)).await.unwrap();
    }
    for key in ["one", "two"] {
        let item =
            StoredItem { key: key.into(), text: "kept ".repeat(9).into(), version: 0, at_ms: 7 };
        store.put(Collection::Plans, &item, Precondition::Absent).await.unwrap();
    }
    drop(store);
    let raw = rusqlite::Connection::open(path).unwrap();
    raw.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    drop(raw);
}

#[tokio::test]
async fn every_flipped_bit_is_harmless_or_named() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("runs.db");
    small_store(&path).await;
    let whole = answers(&path).await;
    assert!(whole.iter().all(Result::is_ok), "{whole:?}");
    // Opening may write; every flip begins with the same file.
    fs::remove_file(folder.path().join("runs.db-wal")).ok();
    fs::remove_file(folder.path().join("runs.db-shm")).ok();
    let bytes = fs::read(&path).unwrap();
    // All of them take minutes: `SEGUE_FLIPS=1` goes through every bit.
    let stride: usize =
        std::env::var("SEGUE_FLIPS").ok().and_then(|n| n.parse().ok()).unwrap_or(97);
    let (mut harmless, mut named) = (0, 0);
    for bit in (0..bytes.len() * 8).step_by(stride) {
        let mut file = fs::File::create(&path).unwrap();
        file.write_all(&bytes).unwrap();
        file.seek(SeekFrom::Start((bit / 8) as u64)).unwrap();
        file.write_all(&[bytes[bit / 8] ^ (1 << (bit % 8))]).unwrap();
        drop(file);
        let flipped = answers(&path).await;
        for side in ["-wal", "-shm"] {
            fs::remove_file(folder.path().join(format!("runs.db{side}"))).ok();
        }
        if flipped == whole {
            harmless += 1;
            continue;
        }
        named += 1;
        let errors = flipped.iter().filter(|answer| answer.is_err()).count();
        assert!(errors > 0, "bit {bit} (byte {:#x}): {flipped:#?}", bit / 8);
        // A result that is no error is true.
        if flipped.len() == whole.len() {
            for (flipped, whole) in flipped.iter().zip(&whole) {
                assert!(flipped.is_err() || flipped == whole, "bit {bit}: {flipped:?} {whole:?}");
            }
        }
    }
    assert!(named > harmless / 4, "{named} named, {harmless} harmless: the store is mostly empty");
}

/// Copies the files of a store as `kill -9` leaves them: no process locks the copy of an owner's file.
pub(crate) fn copy_killed(from: &Path, to: &Path) {
    let owners = to.join("runs.db-owners");
    fs::remove_dir_all(&owners).ok();
    fs::create_dir_all(&owners).unwrap();
    fs::remove_file(to.join("runs.db-shm")).ok();
    for name in ["runs.db", "runs.db-wal"] {
        fs::copy(from.join(name), to.join(name)).unwrap();
    }
    for owner in fs::read_dir(from.join("runs.db-owners")).unwrap() {
        let owner = owner.unwrap();
        fs::copy(owner.path(), owners.join(owner.file_name())).unwrap();
    }
}

const RUNS: [&str; 3] = ["ended", "open", "late"];

/// What a store returns of its runs after a kill.
#[derive(Debug, PartialEq)]
struct Observed {
    /// The journal of each run, or its error.
    journals: Vec<Result<String, StoreError>>,
    /// Runs that `resume --all` would go on with.
    unfinished: Vec<String>,
    texts: usize,
    /// Whether every list names damage.
    is_named: bool,
}

async fn observe(path: &Path) -> Result<Observed, StoreError> {
    let store = SqliteStore::open(path, SqliteOptions::default())?;
    let mut journals = Vec::new();
    for run_id in RUNS {
        let journal = store.load(&run_id.into()).await;
        journals.push(journal.map(|journal| format!("{journal:?}")));
    }
    let found = store.unfinished().await?;
    let unfinished = found.runs.iter().map(|run| run.run_id.to_string()).collect();
    let listed = store.runs(&RunQuery { limit: 9, ..RunQuery::default() }).await?;
    let texts = store.list(Collection::Plans, None, 10).await?.items.len();
    let named = [found.damaged, listed.damaged, store.list_damaged().await?];
    let is_named = named.iter().all(|damaged| !damaged.is_empty());
    Ok(Observed { journals, unfinished, texts, is_named })
}

/// A store in the middle of two runs, with a checkpoint before its last commits or without one.
async fn busy_store(path: &Path, is_checkpointed: bool) -> SqliteStore {
    let options = SqliteOptions { page_bytes: 512, ..SqliteOptions::default() };
    let store = SqliteStore::open(path, options).unwrap();
    let plan = plan_named("p");
    let ended = begin(&store, "ended", &plan).await;
    let open = begin(&store, "open", &plan).await;
    for seq in 1..4 {
        let entries = [entry(seq, Value::from(seq))];
        store.append(&open, record(seq, &entries, RunStatus::Running)).await.unwrap();
    }
    if is_checkpointed {
        let raw = rusqlite::Connection::open(path).unwrap();
        raw.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())).unwrap();
    }
    finish(&store, &ended, 1).await;
    begin(&store, "late", &plan).await;
    let item = StoredItem { key: "one".into(), text: "kept".into(), version: 0, at_ms: 7 };
    store.put(Collection::Plans, &item, Precondition::Absent).await.unwrap();
    let entries = [entry(4, Value::from("last"))];
    store.append(&open, record(4, &entries, RunStatus::Running)).await.unwrap();
    store
}

/// J2, J5: whatever happens to the log of a killed process, each run has every acknowledged entry, or is
/// named and does not go on.
#[tokio::test]
async fn every_damage_of_the_log_is_harmless_or_named() {
    let stride: usize =
        std::env::var("SEGUE_FLIPS").ok().and_then(|n| n.parse().ok()).unwrap_or(997);
    let (folder, image) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    for is_checkpointed in [false, true] {
        let original = folder.path().join(format!("{is_checkpointed}"));
        fs::create_dir(&original).unwrap();
        let store = busy_store(&original.join("runs.db"), is_checkpointed).await;
        // Before the store takes a checkpoint by itself.
        let killed = folder.path().join(format!("{is_checkpointed}-killed"));
        copy_killed(&original, &killed);
        drop(store);
        let original = killed;
        let path = image.path().join("runs.db");
        copy_killed(&original, image.path());
        let whole = observe(&path).await.unwrap();
        assert!(!whole.is_named && whole.journals.iter().all(Result::is_ok), "{whole:?}");
        let log = fs::read(original.join("runs.db-wal")).unwrap();
        let flipped = (0..log.len() * 8).step_by(stride).map(|bit| {
            let mut flipped = log.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            (format!("bit {bit}"), flipped)
        });
        let cuts = (0..log.len()).step_by(512 + 24);
        let cut = cuts.map(|at| (format!("cut at {at}"), log[..at].to_vec()));
        let (mut harmless, mut named) = (0, 0);
        for (what, damaged) in flipped.chain(cut) {
            copy_killed(&original, image.path());
            fs::write(image.path().join("runs.db-wal"), damaged).unwrap();
            // The next process that opens the store finds the same.
            for _ in 0..2 {
                match observe(&path).await {
                    Ok(observed) if observed == whole => harmless += 1,
                    Err(_) => named += 1,
                    Ok(observed) => {
                        named += 1;
                        assert_named(
                            &observed,
                            &whole,
                            &format!("{what}, checkpointed: {is_checkpointed}"),
                        );
                    }
                }
            }
        }
        assert!(named > harmless, "{named} named, {harmless} harmless");
    }
}

/// Losses are named, and no run that lost entries goes on.
fn assert_named(observed: &Observed, whole: &Observed, what: &str) {
    assert!(observed.is_named, "{what}: {observed:#?}");
    for ((said_of, of), run) in observed.journals.iter().zip(&whole.journals).zip(RUNS) {
        assert!(said_of.is_err() || said_of == of, "{run}: {what}: {observed:#?}");
        let goes_on = observed.unfinished.iter().any(|unfinished| unfinished == run);
        assert!(!goes_on || said_of.is_ok(), "{run}: {what}: {observed:#?}");
    }
}

/// The owner's file of a copy of a killed store.
fn ack_log(folder: &Path) -> PathBuf {
    let owners = fs::read_dir(folder.join("runs.db-owners")).unwrap();
    let mut owners = owners.map(|owner| owner.unwrap().path());
    // Names that begin with a dot are no owners.
    let is_owner = |path: &PathBuf| !path.file_name().unwrap().to_string_lossy().starts_with('.');
    owners.find(is_owner).unwrap()
}

/// The store of a killed process: its folder, and the path of a copy to open.
async fn killed_store(folder: &TempDir, image: &TempDir) -> (PathBuf, PathBuf) {
    let store = busy_store(&folder.path().join("runs.db"), false).await;
    let killed = folder.path().join("killed");
    copy_killed(folder.path(), &killed);
    drop(store);
    copy_killed(&killed, image.path());
    (killed, image.path().join("runs.db"))
}

/// J5: a damaged or missing acknowledgement log is ignored. With a whole log of SQLite nothing is missing
/// and nothing is named; with a damaged one the whole lines still count.
#[tokio::test]
async fn damage_of_the_acknowledgement_log_is_harmless() {
    let stride: usize =
        std::env::var("SEGUE_FLIPS").ok().and_then(|n| n.parse().ok()).unwrap_or(97);
    let (folder, image) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (killed, path) = killed_store(&folder, &image).await;
    let whole = observe(&path).await.unwrap();
    assert!(!whole.is_named && whole.journals.iter().all(Result::is_ok), "{whole:?}");
    let lines = fs::read(ack_log(&killed)).unwrap();
    assert!(lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count() > 5);
    let flipped = (0..lines.len() * 8).step_by(stride).map(|bit| {
        let mut flipped = lines.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        (format!("bit {bit}"), flipped)
    });
    let cut = (0..lines.len()).step_by(31).map(|at| (format!("cut at {at}"), lines[..at].to_vec()));
    // Numbers that claim more than was acknowledged.
    let digits = (0..lines.len()).filter(|at| matches!(lines[*at], b'0'..=b'8'));
    let raised = digits.map(|at| {
        let mut raised = lines.clone();
        raised[at] = b'9';
        (format!("9 at {at}"), raised)
    });
    let garbage = [("garbage".to_owned(), vec![0xff; 4_096])];
    for (what, damaged) in flipped.chain(raised).chain(cut).chain(garbage) {
        copy_killed(&killed, image.path());
        fs::write(ack_log(image.path()), &damaged).unwrap();
        assert_eq!(observe(&path).await.unwrap(), whole, "{what}");
        // SQLite's log is gone, and the whole lines tell of it.
        let is_one_bit = damaged.len() == lines.len();
        if is_one_bit {
            copy_killed(&killed, image.path());
            fs::write(ack_log(image.path()), &damaged).unwrap();
            fs::write(image.path().join("runs.db-wal"), []).unwrap();
            let observed = observe(&path).await.unwrap();
            assert!(observed.is_named && observed.unfinished.is_empty(), "{what}: {observed:#?}");
            // A run that only the damaged line knew is not there; the others are named.
            let unknown = observed.journals.iter().filter(|journal| journal.is_ok()).count();
            assert!(unknown <= 1, "{what}: {observed:#?}");
        }
    }
    // Without acknowledgements SQLite's log alone counts.
    copy_killed(&killed, image.path());
    fs::remove_dir_all(image.path().join("runs.db-owners")).unwrap();
    assert_eq!(observe(&path).await.unwrap(), whole);
}

/// As the manual says: when the acknowledgement log is gone together with a part of SQLite's log, the last
/// entries are missing without an error, and the others are what was written.
#[tokio::test]
async fn a_cut_log_without_acknowledgements_is_trusted() {
    let (folder, image) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (killed, path) = killed_store(&folder, &image).await;
    let whole = observe(&path).await.unwrap();
    let log = fs::read(killed.join("runs.db-wal")).unwrap();
    let mut lengths = Vec::new();
    for at in (0..log.len()).step_by(2 * (512 + 24)) {
        copy_killed(&killed, image.path());
        fs::remove_dir_all(image.path().join("runs.db-owners")).unwrap();
        fs::write(image.path().join("runs.db-wal"), &log[..at]).unwrap();
        let Ok(observed) = observe(&path).await else { continue };
        assert!(!observed.is_named, "cut at {at}: {observed:?}");
        let there = observed.journals.iter().zip(&whole.journals);
        lengths.push(there.filter(|(observed, whole)| observed == whole).count());
    }
    // Runs are whole again one after the other, as the log gets longer.
    assert!(lengths.is_sorted() && lengths.contains(&0) && lengths.len() > 3, "{lengths:?}");
}
