//! Many interrupted runs resume concurrently, and one that cannot delays none of them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use segue_core::id::ToolId;
use segue_core::limits::Limits;
use segue_core::plan::Plan;
use segue_core::plan::bundle::unbundle;
use segue_core::run::{Entry, Fact, NodeId};
use segue_core::schema::Schema;
use segue_core::source::Source;
use segue_core::tool::{Annotations, ToolSpec};
use segue_core::value::Value;
use segue_core::view::{RunStatus, RunView};
use segue_runtime::confirm::Defer;
use segue_runtime::driver::RunCommand;
use segue_runtime::engine::{Engine, EngineError, Recovered, ResumeRequest, RunRequest};
use segue_runtime::store::{
    JournalStore as _, MemoryStore, NewRun, RunHistory as _, RunQuery, Store, StoreError, TakeOver,
};
use segue_runtime::tools::command::{self, CommandConfig};
use segue_runtime::tools::{Tool, ToolError, ToolRequest, ToolRunner};
use tokio::sync::Notify;

use crate::backings::Backing;
use crate::stores::record;

const TWO_STEPS: &str = "
name: two-steps
steps:
  - { id: a, tool: 'test:work', parameters: { hangs: '{{ input.hangs }}' } }
  - { id: b, tool: 'test:work', parameters: { hangs: false }, depends_on: a }
output: done
";

/// Answers at once, or when the test releases it.
#[derive(Default)]
struct Work {
    let_go: Notify,
}

#[async_trait]
impl ToolRunner for Work {
    async fn call(&self, call: ToolRequest) -> Result<Value, ToolError> {
        if call.args.get("hangs") == Some(&Value::Bool(true)) {
            self.let_go.notified().await;
        }
        Ok(call.args)
    }
}

fn engine(store: Arc<dyn Store>) -> (Engine, Arc<Work>) {
    let work = Arc::new(Work::default());
    let tool = tool("work", "works", work.clone());
    (Engine::builder().tools([tool]).store(store).build().0, work)
}

fn tool(name: &str, description: &str, runner: Arc<Work>) -> Tool {
    let mut spec = ToolSpec::new(ToolId::new("test", name), description, Schema::any_object());
    spec.annotations =
        Annotations { destructive: Some(false), idempotent: Some(true), ..Annotations::default() };
    Tool { spec: Arc::new(spec), runner }
}

/// An engine whose tools have these names and descriptions.
fn with_tools(store: &Arc<dyn Store>, tools: &[(&str, &str)]) -> Engine {
    let tools = tools.iter().map(|(name, words)| tool(name, words, Arc::default()));
    Engine::builder().tools(tools).store(store.clone()).build().0
}

async fn resume(
    engine: &Engine,
    run_id: &str,
    command: RunCommand,
) -> Result<RunView, EngineError> {
    let take_over = match command {
        RunCommand::RollBack { .. } => TakeOver::Reopen,
        _ => TakeOver::IfAbandoned,
    };
    engine.resume(ResumeRequest { command, take_over, ..ResumeRequest::new(run_id) }).await
}

/// The journal of a run that was interrupted during its first call.
async fn interrupted(hangs: bool) -> (Arc<Plan>, Vec<Entry>) {
    let store = Arc::new(MemoryStore::default());
    let (engine, _) = engine(store.clone());
    let (plan, findings) = engine.plan(&Source::new("two-steps.yaml", TWO_STEPS));
    let plan = plan.unwrap_or_else(|| panic!("{findings:?}"));
    let input = Value::object([("hangs", Value::Bool(hangs))]);
    let run = engine.run(RunRequest::new(plan.clone(), input));
    let _ = tokio::time::timeout(Duration::from_millis(50), run).await;
    let rows = store.runs(&RunQuery { limit: 1, ..RunQuery::default() }).await.unwrap().runs;
    let mut journal = store.load(&rows[0].run_id).await.unwrap();
    let called = journal.iter().position(|entry| matches!(entry.fact, Fact::Called { .. }));
    journal.truncate(called.unwrap() + 1);
    (plan, journal)
}

fn renamed(journal: &[Entry], run_id: &str) -> Vec<Entry> {
    let mut journal = journal.to_vec();
    if let Fact::Started(started) = &mut journal[0].fact {
        started.run_id = run_id.into();
    }
    journal
}

/// A process drives many runs, and dies. One of them hangs when it resumes; one cannot be read.
async fn leave_behind(backing: Backing, count: usize) -> Backing {
    let store = backing.open();
    let (plan, journal) = interrupted(false).await;
    let (hanging_plan, hanging) = interrupted(true).await;
    let mut poisoned = renamed(&journal, "poisoned");
    let fact = Fact::Woke { node: NodeId { frame: 0, position: 1 } };
    poisoned.push(Entry { seq: poisoned.len() as u64, at_ms: poisoned[0].at_ms, fact });
    let mut left = vec![
        ("hanging".to_owned(), hanging_plan, renamed(&hanging, "hanging")),
        ("poisoned".to_owned(), plan.clone(), poisoned),
    ];
    for number in 0..count {
        let run_id = format!("run-{number}");
        left.insert(
            number.min(left.len()),
            (run_id.clone(), plan.clone(), renamed(&journal, &run_id)),
        );
    }
    let on = &store;
    let writes = left.iter().map(|(run_id, plan, journal)| async move {
        let run = NewRun { run_id: &run_id.as_str().into(), plan };
        on.create(run, record(0, journal, RunStatus::Running)).await.unwrap();
    });
    writes.collect::<FuturesUnordered<_>>().collect::<Vec<()>>().await;
    backing.after_death(store)
}

/// Resumes everything; returns how long it took until all but these two were over.
async fn recover(backing: Backing, count: usize) -> Duration {
    let backing = leave_behind(backing, count).await;
    let store = backing.open();
    let (engine, work) = engine(store.clone());
    let begun = Instant::now();
    let recovery = engine.recover();
    let others = async {
        while store.unfinished().await.unwrap().runs.len() > 2 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let took = begun.elapsed();
        work.let_go.notify_one();
        took
    };
    let (recovered, took) = tokio::join!(recovery, others);
    let recovered = recovered.unwrap();
    assert_eq!(recovered.len(), count + 2);
    for Recovered { run_id, outcome, .. } in &recovered {
        match outcome {
            Ok(view) => assert_eq!(view.status, RunStatus::Success, "{run_id}"),
            Err(EngineError::Store(StoreError::Damaged { run_id: named, seq, .. })) => {
                assert_eq!((&**run_id, &**named, *seq), ("poisoned", "poisoned", 2));
            }
            Err(error) => panic!("{run_id}: {error}"),
        }
    }
    let left = store.unfinished().await.unwrap().runs;
    let left: Vec<&str> = left.iter().map(|row| &*row.run_id).collect();
    assert_eq!(left, ["poisoned"]);
    took
}

for_durable_stores! { one_poisoned_run_delays_no_other }

/// J10: every run resumes, also behind one that hangs and one that cannot be read.
async fn one_poisoned_run_delays_no_other(backing: Backing) {
    let took = recover(backing, 200).await;
    assert!(took < Duration::from_secs(30), "{took:?}");
}

/// A measurement, for a quiet machine: `just recover`.
#[tokio::test]
#[ignore = "a measurement"]
#[allow(clippy::print_stderr, reason = "the figure is for the person who runs it")]
async fn ten_thousand_runs_recover_in_ten_seconds() {
    let took = recover(Backing::sqlite(), 10_000).await;
    eprintln!("10,000 interrupted runs went on and ended within {took:?}");
    assert!(took < Duration::from_secs(10), "{took:?}");
}

/// D4: a run whose tool is missing or has changed is not resumed. It can be cancelled all the same,
/// and resumes where its tools are.
#[tokio::test]
async fn a_run_without_its_tools_is_not_resumed() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let (plan, journal) = interrupted(false).await;
    for run_id in ["one", "two"] {
        let run = NewRun { run_id: &run_id.into(), plan: &plan };
        let journal = renamed(&journal, run_id);
        let lease = store.create(run, record(0, &journal, RunStatus::Running)).await.unwrap();
        store.release(&lease).await.unwrap();
    }
    for recovered in with_tools(&store, &[]).recover().await.unwrap() {
        let lack = EngineError::MissingTool { tool: "test:work".to_owned(), is_untrusted: false };
        assert_eq!(recovered.outcome.unwrap_err(), lack);
    }
    let changed = with_tools(&store, &[("work", "works otherwise")]);
    let refused = resume(&changed, "one", RunCommand::Resume).await.unwrap_err();
    assert_eq!(refused, EngineError::DefinitionChanged { tool: "test:work".to_owned() });
    for run_id in ["one", "two"] {
        assert_eq!(store.load(&run_id.into()).await.unwrap().len(), journal.len());
    }
    let ended = resume(&changed, "one", RunCommand::Cancel { by: "ada".into() }).await.unwrap();
    assert_eq!(ended.status, RunStatus::Cancelled);
    let (here, _) = engine(store);
    assert_eq!(resume(&here, "two", RunCommand::Resume).await.unwrap().status, RunStatus::Success);
}

/// D4: a rollback needs only its own tools unchanged, and so does a cancellation that rolls back.
#[tokio::test]
async fn a_rollback_needs_only_its_own_tools() {
    const UNDONE: &str = "
name: undone
error_handling: { rollback_on_failure: true }
steps:
  - { id: a, tool: 'test:work', rollback: { tool: 'test:undo' } }
  - { id: ask, approve: { message: Sure? }, depends_on: a }
";
    let back = || RunCommand::RollBack { by: "ada".into() };
    for command in [back(), RunCommand::Cancel { by: "ada".into() }] {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let before = with_tools(&store, &[("work", "works"), ("undo", "undoes")]);
        let (plan, findings) = before.plan(&Source::new("undone.yaml", UNDONE));
        let plan = plan.unwrap_or_else(|| panic!("{findings:?}"));
        let request = RunRequest::new(plan, Value::empty_object());
        let run = before.run(RunRequest { confirmer: &Defer, ..request }).await.unwrap();
        assert_eq!(run.status, RunStatus::Waiting);
        let other_undo = with_tools(&store, &[("work", "works"), ("undo", "does otherwise")]);
        let refused = resume(&other_undo, &run.run_id, command.clone()).await.unwrap_err();
        assert_eq!(refused, EngineError::DefinitionChanged { tool: "test:undo".to_owned() });
        let other_work = with_tools(&store, &[("work", "works otherwise"), ("undo", "undoes")]);
        let rolled_back = resume(&other_work, &run.run_id, command).await.unwrap();
        assert_eq!(rolled_back.status, RunStatus::RolledBack);
    }
}

/// D4: a run does not call a command that is another program by now. A run whose plan has no hash of the
/// program goes on, and so does one whose built-in tools have another description by now.
#[tokio::test]
async fn a_run_goes_on_with_the_commands_that_it_was_planned_with() {
    let text = "name: c\nsteps:\n  - { id: ask, approve: { message: Sure? } }\n  - { id: a, tool: 'command:work', depends_on: ask }\n  - { id: b, tool: 'builtin:work', depends_on: ask }\n";
    let tools = |argv: &[&str], is_noted: bool, words: &str| {
        let argv = argv.iter().map(|word| Value::from(*word)).collect();
        let config = CommandConfig { argv, read_only: Some(true), ..CommandConfig::default() };
        let mut command = command::tool("work", &config, &Limits::default()).unwrap();
        if !is_noted {
            Arc::make_mut(&mut command.spec).backend_hash = None;
        }
        let mut own = tool("work", words, Arc::default());
        Arc::make_mut(&mut own.spec).id = ToolId::new("builtin", "work");
        [command, own]
    };
    for (is_noted, later, words, goes_on) in [
        (true, ["echo", "1"], "works", true),
        (true, ["echo", "1"], "works better", true),
        (true, ["echo", "2"], "works", false),
        (false, ["echo", "2"], "works", true),
    ] {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let engine = |tools| Engine::builder().tools(tools).store(store.clone()).build().0;
        let before = engine(tools(&["echo", "1"], is_noted, "works"));
        let (plan, findings) = before.plan(&Source::new("c.yaml", text));
        let plan = plan.unwrap_or_else(|| panic!("{findings:?}"));
        // As the store keeps it.
        let plan = unbundle(&plan.bundle(), before.limits()).unwrap();
        let request = RunRequest::new(plan, Value::empty_object());
        let run = before.run(RunRequest { confirmer: &Defer, ..request }).await.unwrap();
        let after = engine(tools(&later, true, words));
        let outcome = resume(&after, &run.run_id, RunCommand::Resume).await;
        let changed = EngineError::DefinitionChanged { tool: "command:work".to_owned() };
        match outcome {
            Ok(view) => assert!(goes_on && view.status == RunStatus::Waiting, "{view:?}"),
            Err(error) => assert!(!goes_on && error == changed, "{error}"),
        }
    }
}
