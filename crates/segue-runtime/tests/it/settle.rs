//! Calls that write while their run stops: the run awaits them, and their answers count. The tools
//! are real: files, commands and an MCP server that continue when a file appears.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use segue_core::limits::Limits;
use segue_core::run::{Entry, Fact, Options, Run};
use segue_core::source::Source;
use segue_core::value::Value;
use segue_core::view::{RunStatus, RunView, StepStatus};
use segue_runtime::confirm::Defer;
use segue_runtime::driver::{Observer, RunCommand};
use segue_runtime::engine::{Engine, ResumeRequest, RunRequest};
use segue_runtime::store::{MemoryStore, NewRun, Store, TakeOver};
use segue_runtime::tools::builtin::{self, BuiltinConfig};
use segue_runtime::tools::command::{self, CommandConfig};
use segue_runtime::tools::local::{LocalTool, ToolContext};
use segue_runtime::tools::mcp::{ServerConfig, ServerTransport, StdioConfig, UpstreamServer};
use segue_runtime::tools::{Tool, ToolError};
use tempfile::TempDir;
use tokio::sync::Notify;

use crate::stores::record;

/// Waits for `go`, then creates `made` and reports it.
const MAKE: &str =
    "touch started; while [ ! -e go ]; do sleep 0.01; done; touch made; echo '{\"file\":\"made\"}'";
/// Fails as soon as the other one is in flight.
const TRIP: &str = "while [ ! -e started ]; do sleep 0.01; done; exit 1";
/// Succeeds as soon as the other one is in flight.
const QUICK: &str = "while [ ! -e started ]; do sleep 0.01; done; echo quick";

/// The files around a write that is held up.
struct Place {
    dir: TempDir,
    stops: Notify,
}

impl Observer for Place {
    fn observe(&self, _run: &Run, entries: &[Entry]) {
        if entries.iter().any(|entry| matches!(entry.fact, Fact::Stopped { .. })) {
            self.stops.notify_one();
        }
    }
}

impl Place {
    fn new() -> Place {
        Place { dir: TempDir::new().unwrap(), stops: Notify::new() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn has(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    fn sh(&self, name: &str, script: &str) -> Tool {
        let argv = ["sh", "-c", script].map(Value::from).to_vec();
        let cwd = Some(self.dir.path().to_owned());
        let destructive = Some(false);
        let config = CommandConfig { argv, cwd, destructive, ..CommandConfig::default() };
        command::tool(name, &config, &Limits::default()).unwrap_or_else(|error| panic!("{error}"))
    }

    fn engine(&self, compositions: &[&str], more: Vec<Tool>) -> Engine {
        let mut tools = more;
        tools.push(self.sh("make", MAKE));
        tools.push(self.sh("unmake", "rm -f made"));
        tools.push(self.sh("trip", TRIP));
        tools.push(self.sh("quick", QUICK));
        let sources = compositions.iter().map(|text| Source::new("inner.yaml", *text));
        let builder = Engine::builder().tools(tools).compositions(sources);
        let (engine, unloaded) = builder.store(Arc::new(MemoryStore::default())).build();
        assert!(unloaded.is_empty(), "{unloaded:?}");
        engine
    }

    /// Runs a composition, and releases the write once the run has stopped.
    async fn run(&self, engine: &Engine, text: &str, cancels: bool) -> RunView {
        let let_go = async {
            self.stops.notified().await;
            assert!(!self.has("made"), "it wrote before it was let go");
            std::fs::write(self.path("go"), "").unwrap();
        };
        let (view, ()) = tokio::join!(self.run_held(engine, text, cancels), let_go);
        view
    }

    async fn run_held(&self, engine: &Engine, text: &str, cancels: bool) -> RunView {
        let (plan, findings) = engine.plan(&Source::new("test.yaml", text));
        let plan = plan.unwrap_or_else(|| panic!("{findings:?}"));
        let mut request = RunRequest::new(plan, Value::empty_object());
        request.options = Options { approved: true, ..Options::default() };
        (request.observer, request.confirmer) = (self, &Defer);
        if cancels {
            let started = self.path("started");
            request.cancel = Box::pin(async move {
                wait_for(&started).await;
                "ada".into()
            });
        }
        engine.run(request).await.unwrap()
    }
}

async fn wait_for(path: &Path) {
    while !path.exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn status(view: &RunView, step: &str) -> StepStatus {
    let found = view.steps.iter().find(|one| &*one.id == step);
    found.unwrap_or_else(|| panic!("no step `{step}` in {:?}", view.steps)).status
}

const WRITE: &str = "{ id: write, tool: 'command:make', rollback: { tool: 'command:unmake', parameters: { file: '{{ output.file }}' } } }";

fn beside(strategy: &str, write: &str, other: &str) -> String {
    format!(
        "name: beside\nerror_handling: {{ failure_strategy: {strategy} }}\nsteps:\n  - {write}\n  - {other}\n"
    )
}

/// S1, S4: a step fails beside one that writes: the write is awaited, and the rollback uses its
/// output.
#[tokio::test]
async fn a_failure_beside_a_write_is_rolled_back_after_the_write() {
    let place = Place::new();
    let engine = place.engine(&[], Vec::new());
    let text = beside("rollback", WRITE, "{ id: trip, tool: 'command:trip' }");
    let view = place.run(&engine, &text, false).await;
    assert_eq!(view.status, RunStatus::RolledBack, "{:?}", view.errors);
    assert_eq!(status(&view, "write"), StepStatus::RolledBack);
    assert!(!place.has("made"), "what it wrote stands");
}

/// S1: the same with `files_write` beside `fail`, as a user would write it.
#[tokio::test]
async fn a_file_that_was_written_beside_a_failure_is_gone() {
    for round in 0..20 {
        let place = Place::new();
        let files = builtin::tools(&BuiltinConfig {
            files_root: place.dir.path().to_owned(),
            ..BuiltinConfig::default()
        });
        let engine = place.engine(&[], files);
        let write = "{ id: write, tool: files_write, parameters: { path: a.txt, content: x } }";
        let fail = "{ id: fail, tool: fail, parameters: { message: no } }";
        let view = place.run_held(&engine, &beside("rollback", write, fail), false).await;
        assert_eq!(view.status, RunStatus::RolledBack, "{round}: {:?}", view.errors);
        assert!(!place.has("a.txt"), "{round}: the file stands, and the run is rolled back");
    }
}

/// C2: a run cancelled during a write ends after it, and reports it.
#[tokio::test]
async fn a_cancel_during_a_write_waits_for_it() {
    for (strategy, ends, step) in [
        ("fail_fast", RunStatus::Cancelled, StepStatus::Success),
        ("rollback", RunStatus::RolledBack, StepStatus::RolledBack),
    ] {
        let place = Place::new();
        let engine = place.engine(&[], Vec::new());
        let text = beside(strategy, WRITE, "{ id: rest, wait: 1h }");
        let view = place.run(&engine, &text, true).await;
        assert_eq!((view.status, status(&view, "write")), (ends, step), "{:?}", view.errors);
        assert_eq!(place.has("made"), step == StepStatus::Success);
    }
}

/// C2: so does a run that times out.
#[tokio::test]
async fn a_timeout_of_the_run_waits_for_a_write() {
    let place = Place::new();
    let engine = place.engine(&[], Vec::new());
    let text = format!("timeout: 50ms\n{}", beside("rollback", WRITE, "{ id: rest, wait: 1h }"));
    let view = place.run(&engine, &text, false).await;
    assert_eq!(view.status, RunStatus::RolledBack, "{:?}", view.errors);
    assert!(!place.has("made"));
}

/// A branch that lost a race and writes is awaited: its result is reported, and the run succeeds.
#[tokio::test]
async fn a_loser_of_a_race_that_writes_is_awaited() {
    let place = Place::new();
    let engine = place.engine(&[], Vec::new());
    let text = format!(
        "name: race\nsteps:\n  - id: race\n    wait_for: any\n    parallel:\n      - {WRITE}\n      - {{ id: quick, tool: 'command:quick' }}\n"
    );
    let view = place.run(&engine, &text, false).await;
    assert_eq!(view.status, RunStatus::Success, "{:?}", view.errors);
    assert_eq!(status(&view, "race/write"), StepStatus::Success);
    assert!(place.has("made"));
}

/// S13: a write inside a composition is awaited and rolled back like any other.
#[tokio::test]
async fn a_write_inside_a_composition_is_awaited() {
    let place = Place::new();
    let inner = format!("name: inner\nsteps:\n  - {WRITE}\n");
    let engine = place.engine(&[&inner], Vec::new());
    let call = "{ id: call, tool: inner }";
    let text = beside("rollback", call, "{ id: trip, tool: 'command:trip' }");
    let view = place.run(&engine, &text, false).await;
    assert_eq!(view.status, RunStatus::RolledBack, "{:?}", view.errors);
    assert_eq!(status(&view, "call/write"), StepStatus::RolledBack);
    assert!(!place.has("made"));
}

/// Code that calls a composition.
struct Caller;

#[async_trait]
impl LocalTool for Caller {
    fn name(&self) -> &'static str {
        "caller"
    }
    fn description(&self) -> &'static str {
        "calls a composition"
    }
    fn parameters(&self) -> Value {
        Value::object([("type", Value::from("object"))])
    }
    fn composed_of(&self) -> Vec<&str> {
        vec!["composition:inner"]
    }
    async fn execute(&self, args: Value, context: &ToolContext) -> Result<Value, ToolError> {
        context.registry().execute("composition:inner", args).await
    }
}

/// S13: a composition that code calls starts nothing more when the run around it has stopped, and
/// its calls in flight are awaited.
#[tokio::test]
async fn a_composition_that_code_calls_stops_with_the_run() {
    let place = Place::new();
    let inner = "name: inner\nsteps:\n  - { id: write, tool: 'command:make' }\n\
         \x20 - { id: more, tool: 'command:more', depends_on: [write] }\n";
    let more = vec![place.sh("more", "touch more; echo more"), Tool::local(Caller)];
    let engine = place.engine(&[inner], more);
    let caller = "{ id: call, tool: caller, parameters: {} }";
    let text = beside("fail_fast", caller, "{ id: trip, tool: 'command:trip' }");
    let view = place.run(&engine, &text, false).await;
    assert_eq!(view.status, RunStatus::Failed, "{:?}", view.errors);
    assert!(place.has("made"), "the write under way was awaited");
    assert!(!place.has("more"), "a step started after the run had stopped");
}

/// An MCP server gets no cancellation for a call that writes, because it need not answer one.
#[tokio::test]
async fn a_call_of_an_mcp_server_that_writes_is_awaited() {
    let place = Place::new();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/mcp/hostile.py");
    let folder = place.dir.path().display().to_string();
    let reach = ServerTransport::Stdio(StdioConfig {
        command: "python3".to_owned(),
        args: vec![script.to_owned(), "held".to_owned(), folder],
        ..StdioConfig::default()
    });
    let config = ServerConfig { name: "h".into(), reach, identity: "h".into(), timeout: None };
    let server = Arc::new(UpstreamServer::new(config, &Limits::default(), None));
    let listing = server.listing().await.unwrap();
    let engine = place.engine(&[], server.tools(&listing));
    let write = WRITE.replace("command:make", "h:t");
    let text = beside("rollback", &write, "{ id: trip, tool: 'command:trip' }");
    let view = place.run(&engine, &text, false).await;
    assert_eq!(view.status, RunStatus::RolledBack, "{:?}", view.errors);
    assert!(!place.has("made"));
    server.close().await;
}

/// S15: a call without an answer at its deadline is in doubt, and a person is asked before anything
/// is rolled back. A cancel then leaves it in doubt, and the result names it.
#[tokio::test]
async fn a_write_that_stays_silent_is_in_doubt() {
    let place = Place::new();
    let engine = place.engine(&[], Vec::new());
    let write = WRITE.replace("rollback:", "timeout: 300ms, rollback:");
    let write = write.replace(", parameters: { file: '{{ output.file }}' }", "");
    let text = beside("rollback", &write, "{ id: trip, tool: 'command:trip' }");
    let view = place.run_held(&engine, &text, false).await;
    assert_eq!(view.status, RunStatus::Waiting, "{:?}", view.errors);
    assert_eq!(status(&view, "write"), StepStatus::InDoubt);
    assert_eq!(&*view.waiting_for[0].step, "write");
    let wish = RunCommand::Cancel { by: "ada".into() };
    let request = ResumeRequest { command: wish, ..ResumeRequest::new(view.run_id) };
    let view = engine.resume(request).await.unwrap();
    assert_eq!(view.status, RunStatus::RolledBack, "{:?}", view.errors);
    let named = |error: &segue_core::view::ErrorView| {
        error.in_doubt && error.step.as_deref() == Some("write")
    };
    assert!(view.errors.iter().any(named), "{:?}", view.errors);
}

/// B1: an interrupted run is cancelled without evaluating any forward step: that may be what ended
/// the process. So is one that is rolled back.
#[tokio::test]
async fn an_interrupted_run_ends_before_anything_is_worked_out() {
    let text = "name: poison\nsteps:\n  - { id: bad, set: { x: '{{ [][0].y }}' } }\noutput: '{{ bad.x }}'\n";
    let commands = [
        (RunCommand::Cancel { by: "ada".into() }, TakeOver::IfAbandoned),
        (RunCommand::RollBack { by: "ada".into() }, TakeOver::IfAbandoned),
    ];
    for (command, take_over) in commands {
        let before: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let engine = Engine::builder().store(before.clone()).build().0;
        let (plan, findings) = engine.plan(&Source::new("test.yaml", text));
        let plan = plan.unwrap_or_else(|| panic!("{findings:?}"));
        let request = RunRequest::new(plan.clone(), Value::empty_object());
        let run_id = engine.run(request).await.unwrap().run_id;
        let journal = before.load(&run_id).await.unwrap();
        // The process died right after the run had begun.
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let run = NewRun { run_id: &run_id, plan: &plan };
        let begun = record(0, &journal[..1], RunStatus::Running);
        let lease = store.create(run, begun).await.unwrap();
        store.release(&lease).await.unwrap();
        let engine = Engine::builder().store(store.clone()).build().0;
        let request = ResumeRequest { command, take_over, ..ResumeRequest::new(run_id.clone()) };
        let view = engine.resume(request).await.unwrap();
        assert_eq!(view.status, RunStatus::Cancelled, "{:?}", view.errors);
        assert_eq!(status(&view, "bad"), StepStatus::Skipped);
    }
}
