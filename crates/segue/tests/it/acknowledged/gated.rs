//! A server in this process whose store can be held or broken on demand.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use async_trait::async_trait;
use segue::api::runs::RunService;
use segue::api::threads::Threads;
use segue::http::auth::{Authenticator, BrowserSessions};
use segue::http::bind;
use segue::mcp::builtin;
use segue::observe::Observers;
use segue::server::HttpServer;
use segue_core::limits::Limits;
use segue_core::source::Source;
use segue_runtime::engine::Engine;
use segue_runtime::library::Library;
use segue_runtime::store::{
    InterceptedStore, MemoryStore, Operation, RunHistory as _, StoreError, StoreInterceptor,
};
use segue_runtime::tools::builtin::{BuiltinConfig, tools};
use tokio::sync::watch;

use crate::served::{Served, TOKEN};

/// What happens to writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writes {
    /// They succeed.
    Pass,
    /// They wait until that changes.
    Wait,
    /// They fail, as on a full disk.
    Fail,
    /// Our own code panics.
    Panic,
}

/// Holds the writes of a store, or lets them fail, on demand.
pub(super) struct Gate {
    writes: watch::Sender<Writes>,
    held: AtomicUsize,
    /// Whether reads panic.
    panics: AtomicBool,
}

impl Gate {
    fn new() -> Gate {
        let writes = watch::Sender::new(Writes::Pass);
        Gate { writes, held: AtomicUsize::new(0), panics: AtomicBool::new(false) }
    }

    /// Sets what happens to writes from now on.
    pub(super) fn set(&self, writes: Writes) {
        self.writes.send_replace(writes);
    }

    /// Sets whether reads panic.
    pub(super) fn set_panics(&self, panics: bool) {
        self.panics.store(panics, Ordering::SeqCst);
    }

    /// How many writes wait.
    pub(super) fn held(&self) -> usize {
        self.held.load(Ordering::SeqCst)
    }

    async fn pass(&self) -> Result<(), StoreError> {
        self.held.fetch_add(1, Ordering::SeqCst);
        let mut writes = self.writes.subscribe();
        let decided = writes.wait_for(|writes| *writes != Writes::Wait).await;
        let writes = decided.map_or(Writes::Fail, |writes| *writes);
        self.held.fetch_sub(1, Ordering::SeqCst);
        match writes {
            Writes::Panic => panic!("made up for a test"),
            Writes::Fail => Err(StoreError::Unavailable { message: "no room".to_owned() }),
            Writes::Pass | Writes::Wait => Ok(()),
        }
    }
}

#[async_trait]
impl StoreInterceptor for Gate {
    async fn before(&self, operation: Operation<'_>) -> Result<(), StoreError> {
        match operation {
            Operation::ReadRuns => {
                assert!(!self.panics.load(Ordering::SeqCst), "made up for a test");
                Ok(())
            }
            Operation::Append { .. } | Operation::SendCommand | Operation::TryWrite => {
                self.pass().await
            }
        }
    }
}

/// A server in this process, until dropped.
pub(super) struct Place {
    pub(super) store: Arc<Gate>,
    inner: Arc<MemoryStore>,
    pub(super) served: Served,
    leave: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Place {
    /// Serves these compositions.
    pub(super) fn new(compositions: &[&str]) -> Place {
        let (store, inner) = (Arc::new(Gate::new()), Arc::new(MemoryStore::default()));
        let gated = InterceptedStore::new(inner.clone(), store.clone());
        let limits = Limits { served_wait_ms: 1, store_wait_ms_max: 1, ..Limits::default() };
        let config = BuiltinConfig {
            files_root: std::env::temp_dir(),
            limits: limits.clone(),
            ..BuiltinConfig::default()
        };
        let sources = compositions.iter().map(|text| Source::new("c.yaml", *text));
        let (engine, unloaded) = Engine::builder()
            .tools(tools(&config))
            .limits(limits)
            .store(Arc::new(gated))
            .compositions(sources)
            .build();
        assert!(unloaded.is_empty(), "{unloaded:?}");
        let (leave, leaving) = watch::channel(false);
        let (at, address) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.unwrap();
            // On one thread: what is answered too early is answered before anything is written.
            let handle = runtime.handle().clone();
            let threads =
                Threads { connections: handle.clone(), runs: handle.clone(), requests: handle };
            let (library, _) = Library::new(engine.clone(), Vec::new());
            let service = RunService::new(
                engine,
                library,
                BTreeMap::new(),
                builtin::names(),
                threads,
                Observers::default(),
            );
            runtime.block_on(async {
                let listener = bind(([127, 0, 0, 1], 0).into()).unwrap();
                let local = listener.local_addr().unwrap();
                at.send(local).unwrap();
                let server = HttpServer {
                    service,
                    at: local,
                    authenticator: watch::Sender::new(Arc::new(Authenticator::of(TOKEN)))
                        .subscribe(),
                    sessions: Arc::new(BrowserSessions::new(local.port())),
                    allowed_origins: Vec::new(),
                    allowed_hosts: Vec::new(),
                    state_key: None,
                    tls: None,
                };
                server.serve(listener, leaving).await;
            });
        });
        let served = Served::at(address.recv().unwrap().to_string());
        Place { store, inner, served, leave, thread: Some(thread) }
    }

    /// Whether a run is unfinished, and has no driver.
    pub(super) fn is_left(&self, run_id: &str) -> bool {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let row = runtime.block_on(self.inner.run(&run_id.into())).unwrap();
        row.is_some_and(|row| row.owner.is_none() && row.ended_ms.is_none())
    }

    /// How many entries the journal of a run has; none when the store has no such run.
    pub(super) fn written(&self, run_id: &str) -> Option<u64> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let row = runtime.block_on(self.inner.run(&run_id.into())).unwrap();
        row.map(|row| row.length)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.store.set(Writes::Fail);
        self.leave.send_replace(true);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || ended.is_none_or(|ended| ended.is_ok()));
    }
}
