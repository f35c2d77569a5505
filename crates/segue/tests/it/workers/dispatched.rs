//! Runs that a dispatcher schedules: every answer to the question whether a process drove one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use segue::api::requests::{ApproveRun, ExecuteComposition};
use segue::api::runs::RunService;
use segue::api::runs::act::{RunAction, act};
use segue::api::runs::dispatch::{DispatchError, Dispatcher, Driven};
use segue::api::runs::start::{CallOptions, execute};
use segue::api::threads::Threads;
use segue::mcp::builtin;
use segue::observe::{Observers, RequestOrigin};
use segue_core::access::Principal;
use segue_core::view::{RunStatus, RunView};
use segue_runtime::driver::now_ms;
use segue_runtime::engine::Engine;
use segue_runtime::library::Library;
use segue_runtime::store::{
    Due, PostgresOptions, PostgresStore, PostgresUrl, RunHistory as _, RunQueue as _,
};
use segue_runtime::tools::builtin::{BuiltinConfig, tools};
use tokio::runtime::Handle;

use crate::postgres_server::database;
use crate::support::{Json, json};

/// Remembers what it is asked, and does nothing.
#[derive(Default)]
struct Asked {
    sent: Mutex<Vec<(Arc<str>, Due)>>,
    is_gone: AtomicBool,
}

#[async_trait]
impl Dispatcher for Asked {
    async fn dispatch(&self, run_id: &Arc<str>, due: Due) -> Result<(), DispatchError> {
        if self.is_gone.load(Ordering::Relaxed) {
            return Err(DispatchError("no route".into()));
        }
        self.sent.lock().push((run_id.clone(), due));
        Ok(())
    }
}

/// A process that shares the database.
struct Process {
    service: Arc<RunService>,
    store: Arc<PostgresStore>,
    asked: Arc<Asked>,
}

impl Process {
    fn new(url: &str, has_tools: bool) -> Process {
        let lease = Duration::from_mins(1);
        let options = PostgresOptions { lease, ..PostgresOptions::default() };
        let store = PostgresStore::open(&PostgresUrl::parse(url).unwrap(), options).unwrap();
        let store = Arc::new(store);
        let mut engine = Engine::builder().store(store.clone());
        if has_tools {
            let root = std::env::temp_dir();
            engine = engine.tools(tools(&BuiltinConfig { files_root: root, ..Default::default() }));
        }
        let engine = engine.build().0;
        let (library, _) = Library::new(engine.clone(), Vec::new());
        let here = Handle::current;
        let threads = Threads { connections: here(), runs: here(), requests: here() };
        let (toolsets, reserved) = (BTreeMap::new(), builtin::names());
        let observing = Observers::default();
        let service = RunService::new(engine, library, toolsets, reserved, threads, observing);
        let asked = Arc::new(Asked::default());
        service.set_dispatcher(asked.clone());
        Process { service, store, asked }
    }

    /// Starts a run of these steps, and does not wait for it.
    async fn start(&self, steps: Json) -> Arc<str> {
        let request = json!({ "composition": { "name": "c", "steps": steps } });
        let request: ExecuteComposition = serde_json::from_value(request).unwrap();
        let origin = RequestOrigin::default();
        let call = CallOptions { origin: &origin, key: None, timeout: Duration::ZERO };
        let view = execute(&self.service, &ada(), &request, call).await.unwrap();
        assert_eq!(view.status, RunStatus::Running);
        let row = self.store.run(&view.run_id).await.unwrap().unwrap();
        assert_eq!(row.owner, None, "it is left to the dispatcher");
        view.run_id
    }

    async fn drive(&self, run_id: &Arc<str>) -> Driven {
        self.service.drive_dispatched(run_id).await.unwrap()
    }

    async fn view(&self, run_id: &Arc<str>) -> RunView {
        self.service.view(&ada(), run_id).await.unwrap()
    }

    /// How often the dispatcher was asked for a run at once.
    fn asked_for(&self, run_id: &Arc<str>) -> usize {
        let sent = self.asked.sent.lock();
        sent.iter().filter(|(sent, due)| sent == run_id && *due == Due::Now).count()
    }
}

fn ada() -> Principal {
    Principal::administrator("ada")
}

fn echo() -> Json {
    json!([{ "id": "a", "tool": "echo", "parameters": { "n": 1 } }])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_driven_to_its_end_once() {
    let Some(url) = database() else { return };
    let process = Process::new(&url, true);
    let run_id = process.start(echo()).await;
    assert_eq!(process.asked_for(&run_id), 1);
    let (first, second) = tokio::join!(process.drive(&run_id), process.drive(&run_id));
    assert_eq!((first, second), (Driven::Over, Driven::Over));
    assert_eq!(process.drive(&run_id).await, Driven::Over, "also when it is asked again");
    assert_eq!(process.view(&run_id).await.status, RunStatus::Success);
    let unknown = process.service.drive_dispatched(&"no-such-run".into()).await;
    assert!(unknown.unwrap_err().to_string().contains("no-such-run"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_waits_says_until_when() {
    let Some(url) = database() else { return };
    let (server, worker) = (Process::new(&url, true), Process::new(&url, true));
    let asks = |timeout: Option<&str>| {
        let mut approve = json!({ "message": "sure?" });
        if let Some(timeout) = timeout {
            approve["timeout"] = json!(timeout);
        }
        json!([{ "id": "a", "approve": approve }])
    };
    let run_id = server.start(asks(Some("1h"))).await;
    let Driven::Waits(Due::At(at_ms)) = worker.drive(&run_id).await else { panic!("it waits") };
    let hour = 3_600_000;
    assert!((now_ms() + hour - 60_000..=now_ms() + hour).contains(&at_ms), "{at_ms}");
    let run_id = server.start(asks(None)).await;
    assert_eq!(worker.drive(&run_id).await, Driven::Waits(Due::OnCommand));
    // The answer is durable before a process takes it, and the dispatcher is asked again.
    let answer: ApproveRun = serde_json::from_value(json!({ "approved": true })).unwrap();
    let (service, run) = (server.service.clone(), run_id.clone());
    let answered = tokio::spawn(async move {
        let action = RunAction::Approve(answer);
        act(&service, &ada(), &run, action, Duration::from_mins(1)).await
    });
    while server.asked_for(&run_id) < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(worker.drive(&run_id).await, Driven::Over);
    assert_eq!(answered.await.unwrap().unwrap().status, RunStatus::Success);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_another_process_drives_is_left_to_it() {
    let Some(url) = database() else { return };
    let (first, second) = (Process::new(&url, true), Process::new(&url, true));
    let run_id = first.start(json!([{ "id": "a", "wait": "500ms" }])).await;
    let (service, run) = (first.service.clone(), run_id.clone());
    let driven = tokio::spawn(async move { service.drive_dispatched(&run).await });
    while second.store.run(&run_id).await.unwrap().unwrap().owner.is_none() {
        tokio::task::yield_now().await;
    }
    assert_eq!(second.drive(&run_id).await, Driven::OwnedElsewhere);
    // A process that ends says so by an error, and leaves the run to the next one.
    first.service.stop_claiming().await;
    first.service.detach_all().await;
    assert!(driven.await.unwrap().is_err());
    assert_eq!(second.drive(&run_id).await, Driven::Over);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_without_the_tools_says_which() {
    let Some(url) = database() else { return };
    let (with, without) = (Process::new(&url, true), Process::new(&url, false));
    let run_id = with.start(echo()).await;
    let Driven::CannotHere(reason) = without.drive(&run_id).await else {
        panic!("it has no tools")
    };
    assert!(reason.contains("echo"), "{reason}");
    assert_eq!(with.drive(&run_id).await, Driven::Over);
}

/// A dispatcher that cannot be reached loses nothing: the run is sent again.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_sent_again_when_the_dispatcher_was_gone() {
    let Some(url) = database() else { return };
    let (server, worker) = (Process::new(&url, true), Process::new(&url, true));
    server.asked.is_gone.store(true, Ordering::Relaxed);
    let run_id = server.start(echo()).await;
    assert_eq!(server.asked_for(&run_id), 0);
    assert_eq!(server.store.due_runs(10).await.unwrap(), std::slice::from_ref(&run_id));
    worker.service.set_room(8);
    tokio::spawn(worker.service.clone().share_runs());
    while worker.asked_for(&run_id) == 0 {
        tokio::task::yield_now().await;
    }
    let row = worker.store.run(&run_id).await.unwrap().unwrap();
    assert_eq!(row.owner, None, "nothing is claimed beside a dispatcher");
    assert_eq!(worker.drive(&run_id).await, Driven::Over);
    assert!(worker.store.due_runs(10).await.unwrap().is_empty());
    worker.service.stop_claiming().await;
}
