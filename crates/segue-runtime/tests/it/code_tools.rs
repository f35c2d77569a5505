//! Code tools: which tools they may call, which calls ask a person, and what ends with a call.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use segue_core::diagnostic::Code;
use segue_core::run::{Question, QuestionKind};
use segue_core::source::Source;
use segue_core::tool::Annotations;
use segue_core::tool::ConfirmWhen;
use segue_core::toolset::{Filter, Predicate, Toolset};
use segue_core::value::Value;
use segue_core::view::{RunStatus, RunView};
use segue_runtime::confirm::{Confirmer, Decision, Defer, DenyAll};
use segue_runtime::driver::RunCommand;
use segue_runtime::engine::{CallRequest, Engine, EngineError, ResumeRequest, RunRequest};
use segue_runtime::tools::builtin::{self, BuiltinConfig};
use segue_runtime::tools::local::{LocalTool, ScopedRegistry, ToolContext};
use segue_runtime::tools::{Tool, ToolError};
use segue_runtime::wrap::Wrapper;
use tokio::sync::Notify;

use crate::stores::sqlite;

/// Gives every question the same answer, and records the questions.
pub(crate) struct Person {
    says: bool,
    asked: Mutex<Vec<QuestionKind>>,
}

impl Person {
    pub(crate) fn who_says(says: bool) -> Person {
        Person { says, asked: Mutex::default() }
    }

    pub(crate) fn asked(&self) -> Vec<QuestionKind> {
        self.asked.lock().unwrap().clone()
    }

    fn count(&self) -> usize {
        self.asked().len()
    }
}

#[async_trait]
impl Confirmer for Person {
    async fn confirm(&self, question: &Question) -> Option<Decision> {
        self.asked.lock().unwrap().push(question.kind.clone());
        Some(Decision { granted: self.says, by: "somebody".into(), data: Value::Null })
    }
}

/// Counts its calls; is declared destructive.
#[derive(Clone, Default)]
struct Part {
    name: &'static str,
    calls: Arc<AtomicUsize>,
}

impl Part {
    fn called(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl LocalTool for Part {
    fn name(&self) -> &str {
        self.name
    }
    fn description(&self) -> &'static str {
        "destroys something"
    }
    fn parameters(&self) -> Value {
        json(r#"{"type":"object","required":["n"],"properties":{"n":{"type":"integer"}}}"#)
    }
    fn annotations(&self) -> Annotations {
        Annotations { destructive: Some(true), ..Annotations::default() }
    }
    async fn execute(&self, args: Value, _context: &ToolContext) -> Result<Value, ToolError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        Ok(args)
    }
}

type Work =
    dyn Fn(Value, ScopedRegistry) -> BoxFuture<'static, Result<Value, ToolError>> + Send + Sync;

/// A tool whose work is a closure.
struct Whole {
    name: &'static str,
    of: Vec<&'static str>,
    atomic: bool,
    read_only: bool,
    asks: Option<ConfirmWhen>,
    work: Box<Work>,
}

fn code<F>(
    name: &'static str,
    of: &[&'static str],
    work: impl Fn(Value, ScopedRegistry) -> F + Send + Sync + 'static,
) -> Whole
where
    F: Future<Output = Result<Value, ToolError>> + Send + 'static,
{
    let work: Box<Work> = Box::new(move |args, registry| Box::pin(work(args, registry)));
    Whole { name, of: of.to_vec(), atomic: false, read_only: false, asks: None, work }
}

#[async_trait]
impl LocalTool for Whole {
    fn name(&self) -> &str {
        self.name
    }
    fn description(&self) -> &'static str {
        "calls others"
    }
    fn parameters(&self) -> Value {
        json(r#"{"type":"object"}"#)
    }
    fn read_only(&self) -> bool {
        self.read_only
    }
    fn composed_of(&self) -> Vec<&str> {
        self.of.clone()
    }
    fn atomic(&self) -> bool {
        self.atomic
    }
    fn requires_confirmation(&self) -> Option<ConfirmWhen> {
        self.asks.clone()
    }
    async fn execute(&self, args: Value, context: &ToolContext) -> Result<Value, ToolError> {
        (self.work)(args, context.registry().clone()).await
    }
}

const PARTS: [&str; 6] = ["p0", "p1", "p2", "p3", "p4", "p5"];

fn parts() -> Vec<Part> {
    PARTS.iter().map(|name| Part { name, ..Part::default() }).collect()
}

/// Calls all six parts in turn, each with the value of the one before.
fn all_six(atomic: bool) -> Whole {
    let work = |_, registry: ScopedRegistry| async move {
        let mut n = Value::object([("n", Value::from(1))]);
        for part in PARTS {
            n = registry.execute(part, n).await?;
        }
        Ok(n)
    };
    Whole { atomic, ..code("six", &PARTS, work) }
}

fn engine(tools: impl IntoIterator<Item = Tool>, compositions: &[String]) -> Engine {
    let sources = compositions.iter().map(|text| Source::new("inner.yaml", text.as_str()));
    let (engine, unloaded) = Engine::builder().tools(tools).compositions(sources).build();
    assert!(unloaded.is_empty(), "{unloaded:?}");
    engine
}

fn of_parts(parts: &[Part], whole: Whole) -> Engine {
    engine(parts.iter().cloned().map(Tool::local).chain([Tool::local(whole)]), &[])
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

async fn run(engine: &Engine, text: &str, confirmer: &dyn Confirmer) -> RunView {
    let (plan, findings) = engine.plan(&Source::new("test.yaml", text));
    let plan = plan.unwrap_or_else(|| panic!("{findings:?}"));
    let request = RunRequest { confirmer, ..RunRequest::new(plan, Value::empty_object()) };
    engine.run(request).await.unwrap()
}

async fn call(engine: &Engine, tool: &str, confirmer: &dyn Confirmer) -> Result<Value, ToolError> {
    let request = CallRequest { confirmer, ..CallRequest::new(tool, Value::empty_object()) };
    engine.call(request).await.map_err(|error| match error {
        EngineError::Tool(error) => error,
        other => panic!("{other}"),
    })
}

fn refusal(result: &Result<Value, ToolError>) -> (Code, &str) {
    match result {
        Err(ToolError::Refused { code, message, .. }) => (*code, message),
        other => panic!("expected a refusal, got {other:?}"),
    }
}

const ONE_STEP: &str = "name: c\nsteps:\n  - { id: s, tool: six }\noutput: '{{ s.n }}'\n";

fn total(parts: &[Part]) -> usize {
    parts.iter().map(Part::called).sum()
}

/// S3-01, S3-05, S3-06, S3-12, S3-17, S3-18, S3-20, S3-21, S3-22, S3-24, S3-31: an atomic tool of
/// six parts asks once, the same one without `atomic` six times, and after a denial nothing is
/// called. Both in a run and as a direct call.
#[tokio::test]
async fn one_question_for_six_parts_or_six() {
    for (atomic, questions) in [(true, 1), (false, 6)] {
        let parts = parts();
        let engine = of_parts(&parts, all_six(atomic));
        let yes = Person::who_says(true);
        let view = run(&engine, ONE_STEP, &yes).await;
        assert_eq!((view.status, view.output), (RunStatus::Success, Value::from(1)));
        assert_eq!((yes.count(), total(&parts)), (questions, 6));
        call(&engine, "six", &yes).await.unwrap();
        assert_eq!((yes.count(), total(&parts)), (2 * questions, 12));
        for nobody in [&Person::who_says(false) as &dyn Confirmer, &DenyAll] {
            let view = run(&engine, ONE_STEP, nobody).await;
            assert_eq!(view.status, RunStatus::Denied, "{:?}", view.errors);
            let denied = call(&engine, "six", nobody).await;
            assert_eq!(refusal(&denied).0, Code::Denied);
        }
        assert_eq!(total(&parts), 12, "after a no nothing is called");
    }
}

/// S3-26: consent given beforehand is explicit, and no person is asked.
#[tokio::test]
async fn consent_beforehand_covers_everything() {
    let parts = parts();
    let engine = of_parts(&parts, all_six(false));
    let request = CallRequest::new("six", Value::empty_object());
    engine.call(CallRequest { approved: true, ..request }).await.unwrap();
    let (plan, _) = engine.plan(&Source::new("test.yaml", ONE_STEP));
    let mut request = RunRequest::new(plan.unwrap(), Value::empty_object());
    request.options.approved = true;
    assert!(engine.run(request).await.unwrap().success);
    assert_eq!(total(&parts), 12);
}

/// S3-18, S3-19: an approval ends with its call. A part asks again when it is called directly, and
/// a registry that was kept calls nothing.
#[tokio::test]
async fn a_grant_ends_with_its_call() {
    let (kept, parts) = (Arc::new(Mutex::new(None)), parts());
    let keep = kept.clone();
    let whole = code("six", &["p0"], move |_, registry: ScopedRegistry| {
        *keep.lock().unwrap() = Some(registry.clone());
        async move { registry.execute("p0", json(r#"{"n":1}"#)).await }
    });
    let engine = of_parts(&parts, Whole { atomic: true, ..whole });
    let yes = Person::who_says(true);
    call(&engine, "six", &yes).await.unwrap();
    assert_eq!((yes.count(), parts[0].called()), (1, 1));
    let kept = kept.lock().unwrap().clone().unwrap();
    let late = kept.execute("p0", json(r#"{"n":1}"#)).await;
    assert_eq!(refusal(&late).0, Code::ToolNotAllowed);
    let direct = CallRequest::new("p0", json(r#"{"n":1}"#));
    engine.call(CallRequest { confirmer: &yes, ..direct }).await.unwrap();
    assert_eq!((yes.count(), parts[0].called()), (2, 2));
}

/// S3-13, S3-23, S3-27, S3-34: a refused part returns its reason to the code, and the parts
/// behind it do not run.
#[tokio::test]
async fn what_is_not_declared_is_refused() {
    let parts = parts();
    let whole = code("six", &["p0"], |args: Value, registry: ScopedRegistry| async move {
        let name = args.get("name").and_then(Value::as_str).unwrap_or("").to_owned();
        registry.execute(&name, args.get("args").cloned().unwrap_or_default()).await?;
        registry.execute("p0", json(r#"{"n":2}"#)).await
    });
    let engine = of_parts(&parts, whole);
    for (args, code, words) in [
        (r#"{"name":"p1","args":{"n":1}}"#, Code::ToolNotAllowed, "does not declare"),
        (r#"{"name":"px","args":{"n":1}}"#, Code::UnknownTool, "Unknown tool: px"),
        (r#"{"name":"p0","args":{}}"#, Code::MissingParameter, "Missing required parameter: n"),
        (r#"{"name":"p0","args":{"n":"x"}}"#, Code::InputSchema, "arguments of `local:p0`"),
    ] {
        let request = CallRequest { approved: true, ..CallRequest::new("six", json(args)) };
        let Err(EngineError::Tool(ToolError::Refused { code: found, message, .. })) =
            engine.call(request).await
        else {
            panic!("{args} is refused")
        };
        assert_eq!(found, code);
        assert!(message.contains(words), "{message}");
    }
    assert_eq!(total(&parts), 0);
}

/// S3-07, S3-09, S3-10, S3-32, S3-37: everything but name, description, parameters
/// and work is optional, and arguments decide whether a call asks.
#[tokio::test]
async fn arguments_decide_whether_it_asks() {
    let asks = ConfirmWhen::new(|args| args.get("amount").and_then(Value::as_u64) > Some(100));
    let pay = code("pay", &["read"], |args: Value, _| async move { Ok(args) });
    let read = Whole { read_only: true, ..code("read", &[], |args, _| async move { Ok(args) }) };
    let engine = engine([Tool::local(read), Tool::local(Whole { asks: Some(asks), ..pay })], &[]);
    let yes = Person::who_says(true);
    for (amount, questions) in [(1, 0), (101, 1)] {
        let text = format!(
            "name: c\nsteps:\n  - {{ id: s, tool: pay, parameters: {{ amount: {amount} }} }}\n"
        );
        let view = run(&engine, &text, &yes).await;
        assert!(view.success && yes.count() == questions, "{amount}: {:?}", view.errors);
    }
}

/// S3-11, S3-36: the question shows the tool, its arguments, its parts and the effect of each.
#[tokio::test]
async fn the_question_names_everything() {
    let parts = parts();
    let engine = of_parts(&parts, all_six(true));
    let yes = Person::who_says(true);
    let text = "name: c\nsteps:\n  - { id: s, tool: six, parameters: { why: because } }\n";
    run(&engine, text, &yes).await;
    let [QuestionKind::Call { tool, args, parts, .. }] = &yes.asked()[..] else { panic!() };
    assert_eq!((tool.as_str(), args), ("local:six", &json(r#"{"why":"because"}"#)));
    let named: Vec<&str> = parts.iter().map(|part| part.tool.name()).collect();
    assert_eq!(named, PARTS);
    assert!(parts.iter().all(|part| part.asks && !part.can_roll_back));
}

/// S3-25, S3-28: reading tools with writing parts, cycles and excessive nesting are refused when
/// the engine is built, each with its reason; sound tools are loaded.
#[tokio::test]
async fn unsound_compositions_of_code_are_not_loaded() {
    let idle = |_, _| async { Ok(Value::Null) };
    let mut tools = vec![
        Tool::local(Part { name: "p0", ..Part::default() }),
        Tool::local(Whole { read_only: true, ..code("reads", &["p0"], idle) }),
        Tool::local(code("a", &["b"], idle)),
        Tool::local(code("b", &["a"], idle)),
        Tool::local(code("self", &["local:self"], idle)),
        Tool::local(code("lost", &["nothing"], idle)),
        Tool::local(code("sound", &["p0"], idle)),
    ];
    const DEEP: [&str; 10] = ["d0", "d1", "d2", "d3", "d4", "d5", "d6", "d7", "d8", "d9"];
    tools.push(Tool::local(code(DEEP[0], &["p0"], idle)));
    for pair in DEEP.windows(2) {
        tools.push(Tool::local(code(pair[1], &[pair[0]], idle)));
    }
    let (engine, unloaded) = Engine::builder().tools(tools).build();
    let found = |name: &str| {
        let id = format!("local:{name}");
        let found = unloaded.iter().find(|unloaded| **unloaded.source.name() == *id);
        found.map(|unloaded| unloaded.diagnostics[0].code)
    };
    assert_eq!(found("reads"), Some(Code::PolicyViolation));
    assert_eq!((found("a"), found("b")), (Some(Code::Recursion), Some(Code::UnknownTool)));
    assert_eq!(found("self"), Some(Code::Recursion));
    assert_eq!(found("lost"), Some(Code::UnknownTool));
    assert_eq!((found("d7"), found("d8")), (None, Some(Code::Limit)));
    assert_eq!(found("sound"), None);
    assert!(engine.tool("sound").is_ok() && engine.tool("a").is_err());
}

/// S3-08, S3-16: every tool gets a context of its own, in a run, called directly, and called by
/// another tool: an own directory, and a registry of the tools that it declares itself. Tools that
/// only read need no person.
#[tokio::test]
async fn every_tool_gets_a_context() {
    type Seen = Arc<Mutex<Vec<(PathBuf, Code)>>>;
    struct Plain(Seen);

    #[async_trait]
    impl LocalTool for Plain {
        fn name(&self) -> &'static str {
            "plain"
        }
        fn description(&self) -> &'static str {
            "records its context"
        }
        fn parameters(&self) -> Value {
            json(r#"{"type":"object"}"#)
        }
        fn read_only(&self) -> bool {
            true
        }
        async fn execute(&self, args: Value, context: &ToolContext) -> Result<Value, ToolError> {
            let directory = context.temporary_directory()?.to_owned();
            assert!(directory.is_dir());
            let undeclared = context.registry().execute("plain", args.clone()).await;
            self.0.lock().unwrap().push((directory, refusal(&undeclared).0));
            Ok(args)
        }
    }

    let seen = Seen::default();
    let caller = |_, registry: ScopedRegistry| async move {
        registry.execute("plain", Value::empty_object()).await
    };
    let caller = Whole { read_only: true, ..code("caller", &["plain"], caller) };
    let engine = engine([Tool::local(Plain(seen.clone())), Tool::local(caller)], &[]);
    let text = "name: c\nsteps:\n  - { id: a, tool: plain }\n  - { id: b, tool: caller }\n";
    assert!(run(&engine, text, &DenyAll).await.success);
    call(&engine, "plain", &DenyAll).await.unwrap();
    call(&engine, "caller", &DenyAll).await.unwrap();
    let seen = seen.lock().unwrap();
    let directories: std::collections::BTreeSet<_> = seen.iter().map(|(path, _)| path).collect();
    assert_eq!((seen.len(), directories.len()), (4, 4), "{seen:?}");
    assert!(seen.iter().all(|(_, code)| *code == Code::ToolNotAllowed), "{seen:?}");
}

/// S3-14, S3-15, S3-33: a temporary directory is removed when the call ends, however it ends.
#[tokio::test(start_paused = true)]
async fn a_temporary_directory_ends_with_its_call() {
    struct Scratch {
        seen: Arc<Mutex<Vec<PathBuf>>>,
    }

    #[async_trait]
    impl LocalTool for Scratch {
        fn name(&self) -> &'static str {
            "scratch"
        }
        fn description(&self) -> &'static str {
            "writes to its directory"
        }
        fn parameters(&self) -> Value {
            json(r#"{"type":"object"}"#)
        }
        fn read_only(&self) -> bool {
            true
        }
        async fn execute(&self, args: Value, context: &ToolContext) -> Result<Value, ToolError> {
            let directory = context.temporary_directory()?;
            assert_eq!(context.temporary_directory()?, directory);
            std::fs::write(directory.join("x"), "x").unwrap();
            self.seen.lock().unwrap().push(directory.to_owned());
            if args.get("hangs").is_some() {
                std::future::pending::<()>().await;
            }
            Ok(Value::Bool(directory.join("x").exists()))
        }
    }

    let seen = Arc::new(Mutex::new(Vec::new()));
    let engine = engine([Tool::local(Scratch { seen: seen.clone() })], &[]);
    let text = "name: c\nsteps:\n  - { id: a, tool: scratch }\n  - { id: b, tool: scratch }\n  - \
                { id: late, tool: scratch, parameters: { hangs: true }, timeout: 1s }\n";
    let view = run(&engine, text, &DenyAll).await;
    assert_eq!(view.results["a"], Value::Bool(true));
    assert_eq!(view.errors[0].code, Code::Timeout);
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 3);
    assert!(seen[0] != seen[1] && seen.iter().all(|directory| !directory.exists()), "{seen:?}");
}

/// Parts wait at the gate, and a composed call holds no slot that they need.
#[tokio::test]
async fn parts_do_not_wait_for_the_call_that_waits_for_them() {
    let parts = parts();
    let limits = segue_core::limits::Limits { calls_max: 1, ..Default::default() };
    let tools = parts.iter().cloned().map(Tool::local).chain([Tool::local(all_six(true))]);
    let engine = Engine::builder().tools(tools).limits(limits).build().0;
    let text = "name: c\nsteps:\n  - { id: a, tool: six }\n  - { id: b, tool: six }\n";
    let view = run(&engine, text, &Person::who_says(true)).await;
    assert!(view.success && total(&parts) == 12, "{:?}", view.errors);
}

/// SX-05: a toolset with the whole and without its part refuses the part.
#[tokio::test]
async fn parts_are_held_to_the_toolset() {
    let parts = parts();
    let tools = parts.iter().cloned().map(Tool::local).chain([Tool::local(all_six(true))]);
    let only = Filter::Custom(Predicate::new(|tool| tool.id.name() != "p3"));
    let toolset = Toolset::builder("few").filter(only);
    let engine = Engine::builder().tools(tools).toolset(toolset).build().0;
    let refused = call(&engine, "six", &Person::who_says(true)).await;
    assert_eq!(refusal(&refused).0, Code::ToolNotAllowed);
    assert_eq!(total(&parts), 3, "what comes before it");
}

/// A change by a part is not repeated with the whole, even if the step wants retries.
#[tokio::test(start_paused = true)]
async fn a_failure_after_a_change_is_not_retried() {
    let parts = parts();
    let whole = code("six", &["p0"], |_, registry: ScopedRegistry| async move {
        registry.execute("p0", json(r#"{"n":1}"#)).await?;
        Err(ToolError::failed("and then it went wrong"))
    });
    let engine = of_parts(&parts, whole);
    let text = "name: c\nsteps:\n  - { id: s, tool: six, retry_count: 3 }\n";
    let view = run(&engine, text, &Person::who_says(true)).await;
    assert_eq!((view.status, parts[0].called()), (RunStatus::Failed, 1));
    assert!(!view.errors[0].retryable);
}

/// A part still in flight when the code fails leaves the whole in doubt.
#[tokio::test]
async fn a_part_that_was_given_up_is_in_doubt() {
    let begun = Arc::new(Notify::new());
    let begins = begun.clone();
    let hanging = code("hangs", &[], move |_, _| {
        begins.notify_one();
        std::future::pending()
    });
    let whole = code("six", &["hangs"], move |_, registry: ScopedRegistry| {
        let begun = begun.clone();
        async move {
            tokio::select! {
                outcome = registry.execute("hangs", Value::empty_object()) => outcome,
                () = begun.notified() => Err(ToolError::failed("too slow")),
            }
        }
    });
    let engine = engine([Tool::local(hanging), Tool::local(whole)], &[]);
    let outcome = call(&engine, "six", &Person::who_says(true)).await;
    assert!(matches!(outcome, Err(ToolError::NoAnswer { .. })), "{outcome:?}");
}

/// SX-06, S3-12, S3-17, S3-20, S3-21, S3-31: in every dialect, an atomic document of six calls asks
/// once, another one six times, and after a denial none of the calls is made.
#[tokio::test]
async fn every_dialect_asks_alike() {
    let listed = |line: &dyn Fn(&str) -> String| PARTS.map(line).concat();
    let native = listed(&|p| format!("  - {{ id: {p}, tool: {p}, parameters: {{ n: 1 }} }}\n"));
    let chain = listed(&|p| format!("      - {{ tool: {p}, inputs: {{ n: 1 }} }}\n"));
    let skill = listed(&|p| format!("  - {{ id: {p}, tool_id: {p}, inputs: {{ n: 1 }} }}\n"));
    let plan =
        listed(&|p| format!("  - {{ name: {p}, parameters: {{ n: 1 }}, dependsOn: null }}\n"));
    let documents = [
        format!("name: c\nsteps:\n{native}"),
        format!("name: c\nimplementation:\n  type: composite\n  composite:\n    steps:\n{chain}"),
        format!("name: c\nsteps:\n{skill}"),
        format!("name: c\ntools:\n{plan}"),
    ];
    for document in documents {
        for (head, questions) in [("atomic: true\n", 1), ("", 6)] {
            let (parts, text) = (parts(), format!("{head}{document}"));
            let engine = engine(parts.iter().cloned().map(Tool::local), &[]);
            let view = run(&engine, &text, &Person::who_says(false)).await;
            assert_eq!((view.success, total(&parts)), (false, 0), "{text}");
            let yes = Person::who_says(true);
            let view = run(&engine, &text, &yes).await;
            assert!(view.success, "{text}: {:?}", view.errors);
            assert_eq!((yes.count(), total(&parts)), (questions, 6), "{text}");
        }
    }
}

/// The one question of an atomic document names everything that it may call.
#[tokio::test]
async fn an_atomic_document_is_asked_about_as_a_whole() {
    let parts = parts();
    let engine = of_parts(&parts, all_six(false));
    let yes = Person::who_says(true);
    let view = run(&engine, &format!("atomic: true\n{ONE_STEP}"), &yes).await;
    assert!(view.success, "{:?}", view.errors);
    let [QuestionKind::Run { composition, calls, .. }] = &yes.asked()[..] else {
        panic!("{:?}", yes.asked())
    };
    assert_eq!(&**composition, "c");
    assert_eq!(calls.len(), 7, "the tool and what its code calls: {calls:?}");
}

/// An atomic composition inside another one asks once, when it is entered; the approval covers its
/// own calls and no others.
#[tokio::test]
async fn an_atomic_composition_inside_asks_once() {
    let parts = parts();
    let inner = "name: inner\natomic: true\nsteps:\n  - { id: a, tool: p0, parameters: { n: 1 } }\n  \
                 - { id: b, tool: p1, parameters: { n: 1 } }\n";
    let engine = engine(parts.iter().cloned().map(Tool::local), &[inner.to_owned()]);
    let text = "name: c\nsteps:\n  - { id: whole, tool: inner }\n  - { id: other, tool: p2, \
                parameters: { n: 1 }, depends_on: whole }\n";
    let yes = Person::who_says(true);
    let view = run(&engine, text, &yes).await;
    assert!(view.success, "{:?}", view.errors);
    let asked: Vec<(String, usize)> = yes
        .asked()
        .iter()
        .map(|kind| match kind {
            QuestionKind::Call { tool, parts, .. } => (tool.to_string(), parts.len()),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(asked, [("composition:inner".to_owned(), 2), ("local:p2".to_owned(), 0)]);
    let view = run(&engine, text, &Person::who_says(false)).await;
    assert_eq!((view.status, total(&parts)), (RunStatus::Denied, 3));
}

/// Code may call compositions, under the same rules: their calls ask where no approval covers them.
#[tokio::test]
async fn code_calls_compositions() {
    let inner = "name: inner\ninput: { type: object, required: [n], properties: { n: { type: integer } } \
                 }\nsteps:\n  - { id: a, tool: p0, parameters: { n: '{{ input.n }}' } }\noutput: '{{ a.n + \
                 1 }}'\n";
    for (atomic, questions) in [(true, 1), (false, 1)] {
        let parts = parts();
        let work = |_, registry: ScopedRegistry| async move {
            registry.execute("inner", json(r#"{"n":1}"#)).await
        };
        let whole = Whole { atomic, ..code("six", &["inner"], work) };
        let tools = parts.iter().cloned().map(Tool::local).chain([Tool::local(whole)]);
        let engine = engine(tools, &[inner.to_owned()]);
        let yes = Person::who_says(true);
        assert_eq!(call(&engine, "six", &yes).await, Ok(Value::from(2)));
        assert_eq!((yes.count(), total(&parts)), (questions, 1), "{atomic}");
        let denied = call(&engine, "six", &Person::who_says(false)).await;
        assert_eq!((refusal(&denied).0, total(&parts)), (Code::Denied, 1));
    }
}

/// A run that waits for its one answer resumes in another process, with the same tools; a condition
/// that is code cannot be stored, so such calls ask in any case.
#[tokio::test]
async fn the_one_question_survives_a_restart() {
    let directory = tempfile::TempDir::new().unwrap();
    let parts = parts();
    let build = || {
        let tools = parts.iter().cloned().map(Tool::local).chain([Tool::local(all_six(true))]);
        let store = Arc::new(sqlite(&directory.path().join("runs.db")));
        Engine::builder().tools(tools).store(store).build().0
    };
    let text = format!("atomic: true\n{ONE_STEP}");
    let view = run(&build(), &text, &Defer).await;
    assert_eq!((view.status, view.waiting_for[0].kind), (RunStatus::Waiting, "run"));
    let engine = build();
    let stored = engine.load_run(&view.run_id).await.unwrap();
    let question = stored.run.questions()[0].id;
    let by = "somebody".into();
    let wish = RunCommand::Decide { question, granted: true, by, data: Value::Null };
    let request = ResumeRequest { command: wish, ..ResumeRequest::new(view.run_id.clone()) };
    let view = engine.resume(request).await.unwrap();
    assert_eq!((view.status, total(&parts)), (RunStatus::Success, 6), "{:?}", view.errors);
    let stored = engine.load_run(&view.run_id).await.unwrap();
    let decisions = stored.run.decisions(&stored.journal);
    let decided: Vec<_> = decisions.iter().map(|made| (&*made.by, &*made.what)).collect();
    assert_eq!(decided, [("somebody", "approved the run")]);
}

/// S3-02, S3-03, S3-04: retry, timeout and fallback around any tool, as tools that compositions call.
#[tokio::test(start_paused = true)]
async fn wrappers_retry_limit_and_replace() {
    let tries = Arc::new(AtomicUsize::new(0));
    let counted = tries.clone();
    let flaky = code("flaky", &[], move |args, _| {
        let attempt = counted.fetch_add(1, Ordering::Relaxed);
        async move { if attempt < 2 { Err(ToolError::failed("not yet")) } else { Ok(args) } }
    });
    let slow = code("slow", &[], |args, _| async move {
        tokio::time::sleep(Duration::from_mins(1)).await;
        Ok(args)
    });
    let instead = code("instead", &[], |_, _| async { Ok(json(r#"{"n":7}"#)) });
    let tools = [flaky, slow, instead].map(|tool| Tool::local(Whole { read_only: true, ..tool }));
    let text = "name: c\nsteps:\n  - { id: a, tool: patient, parameters: { n: 1 } }\n  - { id: b, tool: \
                brisk, parameters: { n: 1 } }\noutput: ['{{ a.n }}', '{{ b.n }}']\n";
    let (engine, unloaded) = Engine::builder()
        .tools(tools)
        // In any order: it is around one that comes later.
        .wrapper(Wrapper::around("impatient").named("brisk").fallback("instead"))
        .wrapper(Wrapper::around("slow").named("impatient").timeout(Duration::from_secs(1)))
        .wrapper(Wrapper::around("flaky").named("patient").retry(2))
        .wrapper(Wrapper::around("nothing").named("hollow"))
        .build();
    assert_eq!(unloaded.len(), 1);
    assert_eq!(unloaded[0].diagnostics[0].message, "Unknown tool: nothing");
    let view = run(&engine, text, &DenyAll).await;
    assert_eq!(view.output, json("[1, 7]"), "{:?}", view.errors);
    assert_eq!(tries.load(Ordering::Relaxed), 3);
    let impatient = call(&engine, "impatient", &DenyAll).await;
    assert_eq!(refusal(&impatient).0, Code::Timeout);
}

/// S3-01, S3-06, S3-29, S3-30, S3-35: `atomic_edit` reads, checks and edits with one approval that
/// names both tools; the run's rollback restores the file; a file that changed meanwhile is not
/// touched.
#[tokio::test]
async fn atomic_edit_is_a_composed_tool() {
    let directory = tempfile::TempDir::new().unwrap();
    let file = directory.path().join("a.txt");
    std::fs::write(&file, "one two").unwrap();
    let engine = engine(
        builtin::tools(&BuiltinConfig {
            files_root: directory.path().to_owned(),
            ..BuiltinConfig::default()
        }),
        &[],
    );
    let edit = "  - { id: edit, tool: atomic_edit, parameters: { path: a.txt, find: one, replace: uno } }\n";
    let yes = Person::who_says(true);
    let view = run(&engine, &format!("name: c\nsteps:\n{edit}"), &DenyAll).await;
    assert_eq!(view.status, RunStatus::Denied);
    let fails = "  - { id: bad, tool: fail, depends_on: edit }\n";
    let back = "error_handling: { rollback_on_failure: true }\n";
    let view = run(&engine, &format!("name: c\nsteps:\n{edit}{fails}{back}"), &yes).await;
    assert_eq!(view.status, RunStatus::RolledBack, "{:?}", view.errors);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "one two");
    let view = run(&engine, &format!("name: c\nsteps:\n{edit}"), &yes).await;
    assert!(view.success, "{:?}", view.errors);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "uno two");
    assert_eq!(yes.count(), 2);
    let QuestionKind::Call { tool, parts, .. } = &yes.asked()[0] else { panic!() };
    let parts: Vec<&str> = parts.iter().map(|part| part.tool.name()).collect();
    assert_eq!((tool.name(), parts), ("atomic_edit", vec!["files_edit", "files_read"]));
    let stale = json(r#"{"path":"a.txt","find":"uno","replace":"x","expected":"one two"}"#);
    let stale = CallRequest { approved: true, ..CallRequest::new("files_edit", stale) };
    let stale = engine.call(stale).await;
    assert!(stale.unwrap_err().to_string().contains("has changed"));
}
