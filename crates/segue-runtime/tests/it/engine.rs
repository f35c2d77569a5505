//! The engine and the local driver with real tools: sharing, nesting, panics, cancelling.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use futures_util::FutureExt as _;
use segue_core::diagnostic::Code;
use segue_core::id::ToolId;
use segue_core::limits::Limits;
use segue_core::plan::Plan;
use segue_core::schema::Schema;
use segue_core::source::Source;
use segue_core::tool::{Annotations, ToolSpec};
use segue_core::toolset::{Filter, Predicate, Toolset};
use segue_core::value::Value;
use segue_core::view::{RunStatus, RunView, StepStatus};
use segue_runtime::engine::{Engine, RunRequest};
use segue_runtime::tools::builtin::{self, BuiltinConfig};
use segue_runtime::tools::{Tool, ToolError, ToolRequest, ToolRunner};

fn builtins() -> Vec<Tool> {
    builtin::tools(&BuiltinConfig::default())
}

fn tool(name: &str, runner: impl ToolRunner + 'static) -> Tool {
    let mut spec = ToolSpec::new(ToolId::new("test", name), "for a test", Schema::any_object());
    spec.annotations = Annotations { read_only: Some(true), ..Annotations::default() };
    Tool { spec: Arc::new(spec), runner: Arc::new(runner) }
}

fn engine(tools: Vec<Tool>, compositions: &[&str]) -> Engine {
    let sources = compositions.iter().map(|text| Source::new("inner.yaml", *text));
    let (engine, unloaded) =
        Engine::builder().tools(builtins()).tools(tools).compositions(sources).build();
    assert!(unloaded.is_empty(), "{unloaded:?}");
    engine
}

fn plan(engine: &Engine, text: &str) -> Arc<Plan> {
    let (plan, findings) = engine.plan(&Source::new("test.yaml", text));
    plan.unwrap_or_else(|| panic!("{findings:?}"))
}

async fn run(engine: &Engine, text: &str) -> RunView {
    engine.run(RunRequest::new(plan(engine, text), Value::empty_object())).await.unwrap()
}

/// A large output is shared, not copied: ten readers and the result hold the same ten megabytes.
#[tokio::test]
async fn a_large_value_exists_once() {
    struct Large;

    #[async_trait]
    impl ToolRunner for Large {
        async fn call(&self, _call: ToolRequest) -> Result<Value, ToolError> {
            Ok(Value::object([("text", Value::from("x".repeat(10 << 20)))]))
        }
    }

    let engine = engine(vec![tool("large", Large)], &[]);
    let mut text = String::from(
        "name: share
steps:
  - { id: big, tool: 'test:large' }
",
    );
    for n in 0..10 {
        let _ = writeln!(
            text,
            "  - {{ id: r{n}, tool: echo, parameters: {{ t: '{{{{ big.text }}}}' }} }}"
        );
    }
    let view = run(&engine, &text).await;
    assert!(view.success, "{:?}", view.errors);
    let address = |value: &Value| value.as_str().unwrap().as_ptr();
    let original = address(view.results["big"].get("text").unwrap());
    for n in 0..10 {
        let copy = view.results[format!("r{n}").as_str()].get("t").unwrap();
        assert_eq!(address(copy), original, "r{n}");
    }
    assert_eq!(address(view.output.get("r9").unwrap().get("t").unwrap()), original);
}

const INNER: &str = "
name: inner
input: { type: object, required: [n], properties: { n: { type: integer }, times: { type: integer, default: 0 } } }
steps:
  - { id: flaky, tool: fail, parameters: { times: '{{ input.times }}', value: '{{ input.n }}' } }
output: { doubled: '{{ flaky.value * 2 }}' }
";

/// SX-04: a composition is a tool, with its own input, defaults and output.
#[tokio::test]
async fn compositions_nest() {
    let engine = engine(Vec::new(), &[INNER]);
    let view = run(
        &engine,
        "
name: outer
steps:
  - { id: a, tool: inner, parameters: { n: 21 } }
  - { id: b, tool: 'composition:inner', parameters: { n: '{{ a.doubled }}' } }
output: '{{ b.doubled }}'
",
    )
    .await;
    assert_eq!(view.output, Value::from(84), "{:?}", view.errors);
    let ids: Vec<&str> = view.steps.iter().map(|step| &*step.id).collect();
    assert_eq!(ids, ["a", "a/flaky", "b", "b/flaky"]);
}

/// A step that calls a composition has retries, fallbacks and timeouts like any other.
#[tokio::test(start_paused = true)]
async fn a_composition_is_retried_and_replaced() {
    let engine = engine(Vec::new(), &[INNER]);
    let view = run(
        &engine,
        "
name: outer
error_handling: { backoff: { initial: 1ms } }
steps:
  - { id: again, tool: inner, parameters: { n: 1, times: 2 }, retry_count: 2 }
  - { id: instead, tool: inner, parameters: { n: 1, times: 9 }, fallback: [ { tool: inner, parameters: { n: 5 } } ] }
  - { id: wrong, tool: inner, parameters: { n: 1 }, success_when: 'output.doubled > 5', on_failure: { action: continue, default: 0 } }
",
    )
    .await;
    assert_eq!(view.status, RunStatus::Partial, "{:?}", view.errors);
    assert_eq!(view.results["again"].get("doubled"), Some(&Value::from(2)));
    assert_eq!(view.results["instead"].get("doubled"), Some(&Value::from(10)));
    assert_eq!(view.results["wrong"], Value::from(0));
}

/// E10, S3-28: compositions that call each other in a cycle are refused when they are loaded.
#[test]
fn circles_of_compositions_are_refused() {
    let source = |name: &str, calls: &str| {
        let text = format!("name: {name}\nsteps: [{{ id: x, tool: {calls} }}]\n");
        Source::new(format!("{name}.yaml"), text)
    };
    let (engine, unloaded) = Engine::builder()
        .tools(builtins())
        .compositions([
            source("a", "b"),
            source("b", "a"),
            source("c", "echo"),
            source("c", "echo"),
        ])
        .build();
    let names: Vec<&str> = unloaded.iter().map(|unloaded| &**unloaded.source.name()).collect();
    assert_eq!(names, ["c.yaml", "a.yaml", "b.yaml"], "{unloaded:?}");
    assert!(engine.plan_named("c").is_some());
    let codes: Vec<&str> = unloaded.iter().map(|u| u.diagnostics[0].code.as_str()).collect();
    assert_eq!(codes[..2], ["duplicate-id", "recursion"]);
}

/// A panic in a tool fails that call alone.
#[tokio::test]
async fn a_panicking_tool_fails_alone() {
    struct Panics;

    #[async_trait]
    impl ToolRunner for Panics {
        async fn call(&self, _call: ToolRequest) -> Result<Value, ToolError> {
            panic!("out of cheese");
        }
    }

    let engine = engine(vec![tool("panics", Panics)], &[]);
    let view = run(
        &engine,
        "
name: alone
error_handling: { failure_strategy: partial_success }
steps:
  - { id: bad, tool: 'test:panics' }
  - { id: good, tool: echo, parameters: { x: 1 } }
",
    )
    .await;
    assert_eq!(view.status, RunStatus::Partial);
    assert_eq!(view.errors[0].code.as_str(), "internal");
    assert!(!view.errors[0].message.contains("cheese"));
}

/// Cancelling reaches calls in flight and starts nothing new.
#[tokio::test(start_paused = true)]
async fn cancelling_ends_what_runs() {
    struct Counts(Arc<AtomicU32>);

    #[async_trait]
    impl ToolRunner for Counts {
        async fn call(&self, _call: ToolRequest) -> Result<Value, ToolError> {
            struct Ended(Arc<AtomicU32>);
            impl Drop for Ended {
                fn drop(&mut self) {
                    self.0.fetch_add(1, Ordering::SeqCst);
                }
            }
            let _ended = Ended(self.0.clone());
            std::future::pending::<()>().await;
            Ok(Value::Null)
        }
    }

    let ended = Arc::new(AtomicU32::new(0));
    let engine = engine(vec![tool("hangs", Counts(ended.clone()))], &[]);
    let plan = plan(
        &engine,
        "name: stop\nsteps: [{ id: a, tool: 'test:hangs' }, { id: b, tool: echo, depends_on: a }]\n",
    );
    let mut request = RunRequest::new(plan, Value::empty_object());
    let after = tokio::time::sleep(std::time::Duration::from_secs(5));
    request.cancel = Box::pin(after.map(|()| "ada".into()));
    let view = engine.run(request).await.unwrap();
    assert_eq!(view.status, RunStatus::Cancelled);
    assert_eq!(ended.load(Ordering::SeqCst), 1);
    assert_eq!(view.steps[0].status, StepStatus::Cancelled);
    assert_eq!(view.steps[1].status, StepStatus::Skipped);
}

/// SX-05: reloaded compositions are limited to the same toolset as the first ones.
#[test]
fn a_toolset_stays_when_compositions_change() {
    let only_echo = Filter::Custom(Predicate::new(|tool| tool.id.name() == "echo"));
    let toolset = Toolset::builder("few").filter(only_echo);
    let first = Engine::builder().tools(builtins()).toolset(toolset).build().0;
    let (second, _) = first.with_compositions([]);
    let (third, _) = second.with_compositions([]);
    let calls_fail = Source::new("c.yaml", "name: c\nsteps: [{ id: a, tool: fail }]");
    for engine in [first, second, third] {
        let (plan, findings) = engine.plan(&calls_fail);
        assert!(plan.is_none());
        assert_eq!(findings[0].code, Code::ToolNotAllowed);
    }
}

/// Takes longer than anybody waits.
const ENDLESS: &str = "name: c\nsteps:\n  - id: a\n    set:\n      \
    x: \"{{ range(2000) | json_query('. as $a | $a[] as $x | $a[] as $y | $a[] as $z | empty') }}\"\n";

/// An evaluation that nobody wants to stop ends too, in a run and outside of one. Nothing else would stop it: neither fuel nor a timeout of the run.
#[tokio::test]
async fn runs_and_dry_runs_evaluate_no_longer_than_they_may() {
    let limits =
        Limits { expression_fuel_max: u64::MAX, evaluation_timeout_ms: 1, ..Limits::default() };
    let (engine, _) = Engine::builder().limits(limits).build();
    let (plan, findings) = engine.plan(&Source::new("c.yaml", ENDLESS));
    let plan = plan.unwrap_or_else(|| panic!("{findings:?}"));
    engine.dry_run(&plan, Value::empty_object(), Value::empty_object());
    let view = engine.run(RunRequest::new(plan, Value::empty_object())).await.unwrap();
    assert!(view.errors[0].message.contains("it took too long"), "{:?}", view.errors);
    // What its author says counts then, and the run goes on with its next step.
    let tolerant = format!(
        "{ENDLESS}    on_failure: {{ action: continue, default: {{ x: 1 }} }}\n  \
         - {{ id: b, depends_on: [a], set: {{ y: \"{{{{ a.x + 1 }}}}\" }} }}\noutput: '{{{{ y }}}}'\n"
    );
    let (plan, findings) = engine.plan(&Source::new("c.yaml", tolerant));
    let plan = plan.unwrap_or_else(|| panic!("{findings:?}"));
    let view = engine.run(RunRequest::new(plan, Value::empty_object())).await.unwrap();
    assert_eq!(view.output, Value::from(2), "{:?}", view.errors);
}
