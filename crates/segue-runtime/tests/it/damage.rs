//! J5: a store whose file was damaged gives what was written or says what is wrong, never anything
//! else.

use std::fs;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::sync::Arc;

use segue_core::limits::Limits;
use segue_core::value::Value;
use segue_core::view::RunStatus;
use segue_runtime::store::{
    Expect, Item, RunQuery, Shelf, Shelves as _, SqliteOptions, SqliteStore, Store, StoreError,
};
use tempfile::TempDir;

use crate::stores::{begin, entry, finish, plan_named, record};

/// Everything that can be asked of a store, each answer or the error instead of it.
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
    let texts = store.page(Shelf::Plans, None, 10).await;
    answers.push(texts.and_then(|mut found| match found.damaged.pop() {
        Some(damage) => Err(damage),
        None => Ok(format!("{:?}", found.items)),
    }));
    answers
}

/// A small store with everything in it, all of it in the one file.
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
        let item = Item { key: key.into(), text: "kept ".repeat(9).into(), version: 0, at_ms: 7 };
        store.keep(Shelf::Plans, &item, Expect::Absent).await.unwrap();
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
        // What is not an error is the truth.
        if flipped.len() == whole.len() {
            for (flipped, whole) in flipped.iter().zip(&whole) {
                assert!(flipped.is_err() || flipped == whole, "bit {bit}: {flipped:?} {whole:?}");
            }
        }
    }
    assert!(named > harmless / 4, "{named} named, {harmless} harmless: the store is mostly empty");
}
