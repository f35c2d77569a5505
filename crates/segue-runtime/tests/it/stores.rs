//! What every store must do, whichever it is.

use std::sync::Arc;

use segue_core::run::{Entry, Fact, NodeId};
use segue_runtime::store::{MemoryStore, Store, StoreError};

fn entry(seq: u64) -> Entry {
    Entry { seq, at_ms: seq, fact: Fact::Woke { node: NodeId { frame: 0, position: 0 } } }
}

/// The conformance suite: a new store calls it from a test of its own.
async fn keeps_the_contract(store: &dyn Store) {
    let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
    assert!(store.load(&a).await.unwrap().is_empty(), "an unknown run has no journal");
    store.append(&a, 0, &[entry(0), entry(1)]).await.unwrap();
    store.append(&b, 0, &[entry(0)]).await.unwrap();
    store.append(&a, 2, &[entry(2)]).await.unwrap();
    let seqs = |journal: Vec<Entry>| journal.iter().map(|entry| entry.seq).collect::<Vec<_>>();
    assert_eq!(seqs(store.load(&a).await.unwrap()), [0, 1, 2], "entries stay in order");
    assert_eq!(seqs(store.load(&b).await.unwrap()), [0], "runs do not mix");

    // J8: a writer that is behind, or ahead, writes nothing.
    for expected in [0, 2, 4] {
        let refused = store.append(&a, expected, &[entry(9)]).await.unwrap_err();
        let fenced = StoreError::Fenced { run_id: a.clone(), expected, actual: 3 };
        assert_eq!(refused, fenced);
    }
    assert_eq!(seqs(store.load(&a).await.unwrap()), [0, 1, 2]);
}

#[tokio::test]
async fn the_memory_store_keeps_the_contract() {
    keeps_the_contract(&MemoryStore::default()).await;
}

#[tokio::test]
async fn the_memory_store_forgets_the_oldest_runs() {
    let store = MemoryStore::default();
    for n in 0..1_001 {
        store.append(&format!("run-{n}").into(), 0, &[entry(0)]).await.unwrap();
    }
    assert!(store.load(&"run-0".into()).await.unwrap().is_empty());
    assert_eq!(store.load(&"run-1".into()).await.unwrap().len(), 1);
}
