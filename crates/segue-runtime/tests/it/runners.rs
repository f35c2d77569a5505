//! Plans and runners: a plan is data, and a runner is anything that can call a tool.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use segue_core::catalog::Catalog;
use segue_core::compile::compile;
use segue_core::diagnostic::Code;
use segue_core::id::ToolId;
use segue_core::limits::Limits;
use segue_core::plan::{Plan, plan};
use segue_core::run::{Effect, Event, EventKind, Options, Run, Started};
use segue_core::schema::Schema;
use segue_core::source::Source;
use segue_core::tool::{Annotations, Backend, ToolSpec};
use segue_core::value::Value;
use segue_core::view::RunStatus;
use segue_runtime::engine::{Engine, RunRequest};
use segue_runtime::library::Library;
use segue_runtime::tools::command::{self, CommandConfig};
use segue_runtime::tools::http::{self, HttpConfig};
use segue_runtime::tools::{Tool, ToolError, ToolRequest, ToolRunner};

use crate::support::{Bench, json};

/// A runner that records its requests.
#[derive(Clone, Default)]
struct Asked(Arc<Mutex<Vec<String>>>);

#[async_trait]
impl ToolRunner for Asked {
    async fn call(&self, call: ToolRequest) -> Result<Value, ToolError> {
        self.0.lock().unwrap().push(format!("{} {}", call.tool, call.args));
        Ok(call.args)
    }
}

fn spec(name: &str) -> Arc<ToolSpec> {
    let mut spec = ToolSpec::new(ToolId::new("mine", name), "for a test", Schema::any_object());
    spec.annotations = Annotations { read_only: Some(true), ..Annotations::default() };
    Arc::new(spec)
}

fn tools(runner: &Asked, names: &[&str]) -> Vec<Tool> {
    let tool = |name: &&str| Tool { spec: spec(name), runner: Arc::new(runner.clone()) };
    names.iter().map(tool).collect()
}

const SKILL: &str = "
name: pair
steps:
  - { id: second, tool_id: 'mine:two', inputs: { n: '{{ first.n }}' } }
  - { id: first, tool_id: 'mine:one', inputs: { n: 1 } }
";

fn planned(engine: &Engine, text: &str) -> Arc<Plan> {
    let (plan, findings) = engine.plan(&Source::new("skill.yaml", text));
    plan.unwrap_or_else(|| panic!("{findings:?}"))
}

/// S2-51, S2-52, S2-55: the engine gets its runners and limits, calls the runner of each
/// step's tool with the tool's id and inputs, in order, and has no other way to call.
#[tokio::test]
async fn a_skill_runs_through_the_runners_that_it_is_given() {
    let asked = Asked::default();
    let (engine, _) = Engine::builder().tools(tools(&asked, &["one", "two"])).build();
    let request = RunRequest::new(planned(&engine, SKILL), Value::empty_object());
    let view = engine.run(request).await.unwrap();
    assert!(view.success, "{:?}", view.errors);
    assert_eq!(*asked.0.lock().unwrap(), [r#"mine:one {"n":1}"#, r#"mine:two {"n":1}"#]);
    let narrow = Limits { steps_max: 1, ..Limits::default() };
    let builder = Engine::builder().tools(tools(&asked, &["one", "two"])).limits(narrow);
    let (plan, findings) = builder.build().0.plan(&Source::new("skill.yaml", SKILL));
    assert!(plan.is_none() && !findings.is_empty(), "its own limits hold");
}

/// A plan made where a tool had a runner fails where it has none, at that step and with its own kind
/// of error; the results before it are there.
#[tokio::test]
async fn a_tool_without_a_runner_is_an_error_of_its_own_kind() {
    let asked = Asked::default();
    let (whole, _) = Engine::builder().tools(tools(&asked, &["one", "two"])).build();
    let plan = planned(&whole, SKILL);
    let (poor, _) = Engine::builder().tools(tools(&asked, &["one"])).build();
    let view = poor.run(RunRequest::new(plan, Value::empty_object())).await.unwrap();
    assert_eq!(view.status, RunStatus::Failed);
    assert_eq!(view.errors[0].code, Code::UnknownTool);
    assert_eq!(view.errors[0].step.as_deref(), Some("second"));
    assert!(view.results.contains_key("first"));
    assert_eq!(asked.0.lock().unwrap().len(), 1);
}

/// S0-05: the language, the machine with its recovery, the engine and the library each work without
/// the others.
#[tokio::test]
async fn each_part_works_by_itself() {
    let limits = Limits::default();
    let text =
        "name: x\nsteps:\n  - { id: a, tool: 'mine:one', parameters: { n: 1 }, retry_count: 1 }\n";
    // The language: a text and a list of tools, and nothing that could call them.
    let catalog = Catalog::new([spec("one")]);
    let compiled = compile(&Source::new("x.yaml", text), &catalog, &limits);
    let made = Arc::new(plan(&compiled.composition.unwrap(), &limits).unwrap());
    // The machine: what is to be done comes back as data, and a failure is answered by another try.
    let mut run = Run::new(made.clone(), Arc::new(limits));
    let started = Started {
        run_id: "r".into(),
        request_id: "q".into(),
        plan_id: "p".into(),
        chain_id: "c".into(),
        input: Value::empty_object(),
        context: Value::empty_object(),
        options: Options::default(),
        plan_hash: None,
        engine: "test".into(),
        caller: None,
        trace: None,
        part: None,
    };
    let mut event = |at_ms: u64, kind: EventKind| run.handle(Event { at_ms, entropy: 0, kind });
    let first = event(1, EventKind::Start(Box::new(started)));
    let Some(Effect::Call(call)) = first.perform.first() else { panic!("{first:?}") };
    let failure = segue_core::run::Failure::transient(Code::ToolError, "no");
    let answer = segue_core::run::Answer::Failure(failure);
    let again = event(2, EventKind::Answered { call: call.id, answer });
    assert!(matches!(again.perform.first(), Some(Effect::SetTimer { .. })), "{again:?}");
    // The engine: the same plan, with a runner.
    let asked = Asked::default();
    let (engine, _) = Engine::builder().tools(tools(&asked, &["one"])).build();
    let view = engine.run(RunRequest::new(made, Value::empty_object())).await.unwrap();
    assert!(view.success);
    // The library: it can be read without any tools.
    let (library, unread) = Library::new(Engine::builder().build().0, Vec::new());
    assert!(unread.is_empty() && library.list("").await.unwrap().len() >= 10);
}

/// S2-66: each tool names its backend.
#[test]
fn a_tool_is_bound_to_what_stands_behind_it() {
    let limits = Limits::default();
    let argv = Value::from(json!(["true"])).as_array().unwrap().to_vec();
    let config = CommandConfig { argv, ..CommandConfig::default() };
    let command = command::tool("c", &config, &limits).unwrap_or_else(|error| panic!("{error}"));
    let config = HttpConfig { url: "http://127.0.0.1:9/x".to_owned(), ..HttpConfig::default() };
    let http = http::tool("h", &config, &limits).unwrap_or_else(|error| panic!("{error}"));
    let bench = Bench::new();
    let behind = [&command, &http, bench.tool("echo")].map(|tool| tool.spec.backend);
    assert_eq!(behind, [Backend::Command, Backend::Http, Backend::Local]);
}

/// A tool of which every twelfth call fails.
#[derive(Default)]
struct Moody(AtomicU32);

#[async_trait]
impl ToolRunner for Moody {
    async fn call(&self, call: ToolRequest) -> Result<Value, ToolError> {
        let turn = self.0.fetch_add(1, Ordering::SeqCst);
        if turn % 12 == 11 { Err(ToolError::failed("moody")) } else { Ok(call.args) }
    }
}

/// A different composition for each number: graphs, loops, branches and conditions of all sizes.
fn composition(number: usize) -> String {
    let mut text = format!(
        "name: c{number}\nerror_handling: {{ max_retries: {} }}\nsteps:\n  - {{ id: s0, tool: 'mine:moody', parameters: {{ n: {number} }} }}\n",
        if number.is_multiple_of(20) { 0 } else { 2 }
    );
    for step in 1..=number % 7 {
        let before = (number / step) % step;
        let call = format!("tool: 'mine:moody', parameters: {{ n: '{{{{ s0.n + {step} }}}}' }}");
        let _ = match (number + step) % 4 {
            0 => writeln!(text, "  - {{ id: s{step}, {call}, depends_on: [s{before}] }}"),
            1 => writeln!(
                text,
                "  - id: s{step}\n    loop: {{ over: [1, 2], steps: [{{ id: i{step}, {call} }}] }}"
            ),
            2 => writeln!(
                text,
                "  - id: s{step}\n    parallel: [{{ id: l{step}, {call} }}, {{ id: r{step}, {call} }}]"
            ),
            _ => writeln!(text, "  - {{ id: s{step}, when: '{{{{ s0.n > 2 }}}}', {call} }}"),
        };
    }
    text
}

/// S0-03: of five hundred runs of valid compositions at least 95 in 100 succeed, though the tool
/// sometimes fails; the others failed because of the tool, and for no other reason.
#[tokio::test(start_paused = true)]
async fn valid_compositions_succeed_unless_a_tool_does_not() {
    let tool = Tool { spec: spec("moody"), runner: Arc::new(Moody::default()) };
    let (engine, _) = Engine::builder().tools([tool]).build();
    let (mut failed, mut retried, total) = (0, 0, 500);
    for number in 0..total {
        let plan = planned(&engine, &composition(number));
        let view = engine.run(RunRequest::new(plan, Value::empty_object())).await.unwrap();
        retried += usize::from(view.steps.iter().any(|step| step.attempts > 1));
        failed += usize::from(!view.success);
        for error in &view.errors {
            assert!(error.message.contains("moody"), "{number}: {error:?}");
        }
    }
    assert!(retried > 50, "only {retried} runs had something to recover from");
    assert!(failed * 100 <= total * 5, "{failed} of {total} failed");
}
