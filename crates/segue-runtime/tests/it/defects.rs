//! Defects of earlier implementations of these documents, each with the test that would find it
//! here.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use segue_core::diagnostic::{Code, Diagnostic};
use segue_core::expose::{Adapter, ExportFormat, export};
use segue_core::id::ToolId;
use segue_core::limits::Limits;
use segue_core::schema::Schema;
use segue_core::source::Source;
use segue_core::tool::{Annotations, ToolSpec};
use segue_core::toolset::Toolset;
use segue_core::value::Value;
use segue_core::view::{RunStatus, RunView};
use segue_runtime::engine::{Engine, RunRequest};
use segue_runtime::tools::{Tool, ToolError, ToolRequest, ToolRunner};
use tokio::time::Instant;

use crate::support::{Json, json};

/// A tool's answers, call by call.
type Answers = VecDeque<Result<Json, &'static str>>;

/// Tools with scripted answers, which otherwise return their arguments and record every call.
#[derive(Clone, Default)]
struct Stage {
    answers: Arc<Mutex<BTreeMap<String, Answers>>>,
    calls: Arc<Mutex<Vec<(String, Json, Instant)>>>,
}

#[async_trait]
impl ToolRunner for Stage {
    async fn call(&self, call: ToolRequest) -> Result<Value, ToolError> {
        let name = call.tool.name().to_owned();
        self.calls.lock().unwrap().push((name.clone(), Json::from(&call.args), Instant::now()));
        let next = self.answers.lock().unwrap().get_mut(&name).and_then(VecDeque::pop_front);
        match next {
            Some(Ok(value)) => Ok(Value::from(value)),
            Some(Err(message)) => Err(ToolError::failed(message)),
            None => Ok(call.args),
        }
    }
}

/// The effect of `risky` is unknown, so its calls ask first; the others only read.
const TOOLS: &[&str] = &["one", "two", "three", "risky"];

fn spec(id: &str) -> ToolSpec {
    let mut spec = ToolSpec::new(ToolId::from(id), "for a test", Schema::any_object());
    if !id.ends_with("risky") {
        spec.annotations = Annotations { read_only: Some(true), ..Annotations::default() };
    }
    spec
}

impl Stage {
    /// Scripts a tool's answers, call by call.
    fn answering(
        self,
        tool: &str,
        answers: impl IntoIterator<Item = Result<Json, &'static str>>,
    ) -> Stage {
        self.answers.lock().unwrap().insert(tool.to_owned(), answers.into_iter().collect());
        self
    }

    fn engine(&self) -> Engine {
        let tools = TOOLS.iter().map(|name| {
            let spec = Arc::new(spec(&format!("test:{name}")));
            Tool { spec, runner: Arc::new(self.clone()) }
        });
        Engine::builder().tools(tools).build().0
    }

    async fn run(&self, text: &str, input: Json) -> RunView {
        let engine = self.engine();
        let (plan, findings) = engine.plan(&Source::new("document.yaml", text));
        let plan = plan.unwrap_or_else(|| panic!("{findings:?}"));
        engine.run(RunRequest::new(plan, Value::from(input))).await.unwrap()
    }

    fn findings(&self, text: &str) -> Vec<Diagnostic> {
        self.engine().plan(&Source::new("document.yaml", text)).1
    }

    /// The tools that were called, in order.
    fn order(&self) -> Vec<String> {
        self.calls.lock().unwrap().iter().map(|(name, ..)| name.clone()).collect()
    }

    /// The arguments of the calls, in order.
    fn given(&self) -> Vec<Json> {
        self.calls.lock().unwrap().iter().map(|(_, args, _)| args.clone()).collect()
    }
}

fn chain(steps: &str) -> String {
    format!("name: demo\ndialect: chain\nsteps:\n{steps}")
}

#[tokio::test]
async fn off_by_one_in_a_reference_to_the_state() {
    let stage = Stage::default();
    let text = chain(
        "  - { tool: one, inputs: { a: '{{ state.x }}', b: '{{state.x}}', c: '{{ state.xy }}', d: '{{ x }}' } }\n",
    );
    stage.run(&text, json!({"x": "value", "xy": "other"})).await;
    assert_eq!(stage.given(), [json!({"a": "value", "b": "value", "c": "other", "d": "value"})]);
}

#[tokio::test]
async fn embedded_and_several_templates_in_one_string() {
    let stage = Stage::default();
    let plan = r#"{"tools": [
        {"name": "one", "parameters": {"name": "Ada", "email": "a@b.c"}},
        {"name": "two", "dependsOn": "one", "parameters": {
            "text": "by {{one.name}} ({{one.email}})", "ends": "{{one.name}} and {{one.email}}"}}]}"#;
    stage.run(plan, json!({})).await;
    let expected = json!({"text": "by Ada (a@b.c)", "ends": "Ada and a@b.c"});
    assert_eq!(stage.given()[1], expected);
}

#[tokio::test]
async fn zero_false_and_empty_text_taken_as_missing() {
    let stage = Stage::default();
    let plan = r#"{"tools": [
        {"name": "one", "parameters": {"zero": 0, "no": false, "empty": "", "nothing": null}},
        {"name": "two", "dependsOn": "one", "parameters": {
            "zero": "{{one.zero}}", "no": "{{one.no}}", "empty": "{{one.empty}}", "nothing": "{{one.nothing}}"}}]}"#;
    let view = stage.run(plan, json!({})).await;
    assert_eq!(stage.given()[1], stage.given()[0]);
    assert!(view.warnings.is_empty(), "{:?}", view.warnings);
}

#[tokio::test]
async fn a_missing_middle_of_a_path() {
    let stage = Stage::default();
    let text = "
name: demo
steps:
  - { id: a, tool: one, parameters: { n: 1 } }
  - { id: b, tool: two, parameters: { x: '{{ a.no.such.thing }}' } }
";
    let view = stage.run(text, json!({})).await;
    assert_eq!(view.errors[0].code, Code::UnresolvedReference);
    assert_eq!(stage.order(), ["one"]);
    // A plan keeps it as it is written, says so and goes on.
    let stage = Stage::default();
    let plan = r#"{"tools": [{"name": "one", "parameters": {}},
        {"name": "two", "dependsOn": "one", "parameters": {"x": "{{one.no.such}}"}}]}"#;
    let view = stage.run(plan, json!({})).await;
    assert_eq!(stage.given()[1], json!({"x": "{{one.no.such}}"}));
    assert_eq!((view.success, view.warnings.len()), (true, 1));
}

#[test]
fn cycles_overflowing_the_stack() {
    let stage = Stage::default();
    let itself = r#"{"tools": [{"name": "one", "parameters": {}, "dependsOn": "one"}]}"#;
    assert_eq!(stage.findings(itself)[0].code, Code::Cycle);
    // A circle of thousands, and a chain of thousands that is none.
    let steps = 5_000;
    let mut text = "name: demo\nsteps:\n".to_owned();
    for n in 0..steps {
        let before = (n + steps - 1) % steps;
        let _ = writeln!(text, "  - {{ id: s{n}, tool: one, depends_on: [s{before}] }}");
    }
    let codes: Vec<Code> = stage.findings(&text).iter().map(|finding| finding.code).collect();
    assert_eq!(codes, [Code::Cycle]);
    let open = text.replacen(&format!(", depends_on: [s{}]", steps - 1), "", 1);
    assert!(stage.findings(&open).iter().all(|finding| finding.code != Code::Cycle));
}

#[tokio::test]
async fn topological_order_computed_but_ignored() {
    let stage = Stage::default();
    let plan = r#"{"tools": [
        {"name": "three", "parameters": {"x": "{{two.x}}"}},
        {"name": "two", "parameters": {"x": "{{one.x}}"}},
        {"name": "one", "parameters": {"x": 1}}],
        "executionOrder": ["three", "two", "one"]}"#;
    stage.run(plan, json!({})).await;
    assert_eq!(stage.order(), ["one", "two", "three"]);
    assert_eq!(stage.given()[2], json!({"x": 1}));
}

#[tokio::test]
async fn a_failure_that_does_not_stop() {
    let plan = r#"{"tools": [{"name": "one", "parameters": {}}, {"name": "two", "parameters": {}},
        {"name": "three", "parameters": {}}]}"#;
    let stage = Stage::default().answering("two", [Err("no")]);
    let view = stage.run(plan, json!({})).await;
    assert_eq!((view.status, stage.order()), (RunStatus::Failed, vec!["one".into(), "two".into()]));
    let steps = "  - { tool: one, inputs: {} }\n  - { tool: two, inputs: {} }\n  - { tool: three, inputs: {} }\n";
    let stage = Stage::default().answering("one", [Err("no")]);
    stage.run(&chain(steps), json!({})).await;
    assert_eq!(stage.order(), ["one"]);
}

#[tokio::test]
async fn a_jump_to_a_repeated_tool_looping_for_ever() {
    let stage = Stage::default();
    let text = chain(
        "  - { tool: one, inputs: { n: 1 }, on_success: { next: one } }\n\
         \x20 - { tool: two, inputs: {} }\n\
         \x20 - { tool: one, inputs: { n: 3 } }\n",
    );
    let view = stage.run(&text, json!({})).await;
    assert!(view.success);
    assert_eq!(stage.given(), [json!({"n": 1}), json!({"n": 3})]);
    // One that has no later step of that name leads to itself, and ends all the same.
    let stage = Stage::default();
    let text =
        chain("  - { tool: one, when: '{{ state.go }}', inputs: {}, on_success: { next: one } }\n");
    let view = stage.run(&text, json!({"go": true})).await;
    assert_eq!(view.errors[0].code, Code::LoopLimit);
    assert_eq!(stage.order().len(), 100);
}

#[tokio::test]
async fn a_jump_after_a_failure_without_an_action() {
    let stage = Stage::default().answering("one", [Err("no")]);
    let text = chain(
        "  - { tool: one, inputs: {}, on_success: { next: two }, on_failure: { next: three } }\n\
         \x20 - { tool: two, inputs: {} }\n\
         \x20 - { tool: three, inputs: {} }\n",
    );
    let view = stage.run(&text, json!({})).await;
    assert_eq!((view.success, stage.order()), (true, vec!["one".into(), "three".into()]));
}

#[tokio::test(start_paused = true)]
async fn continue_on_max_retries_ignored() {
    let failing = || Stage::default().answering("one", [Err("no"), Err("no"), Err("no")]);
    let steps = |then: &str| {
        chain(&format!(
            "  - {{ tool: one, inputs: {{}}, on_failure: {{ action: retry, max_retries: 2, {then} }} }}\n\
             \x20 - {{ tool: two, inputs: {{}}, on_success: {{ next: end }} }}\n\
             \x20 - {{ name: instead, tool: three, inputs: {{}}, fallthrough: true }}\n"
        ))
    };
    let stage = failing();
    let view = stage.run(&steps("continue_on_max_retries: true, next: instead"), json!({})).await;
    assert_eq!((view.success, stage.order().join(" ")), (true, "one one one three".to_owned()));
    let stage = failing();
    let view = stage.run(&steps("continue_on_max_retries: false"), json!({})).await;
    assert_eq!((view.success, stage.order().join(" ")), (false, "one one one".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn retries_without_backoff() {
    let stage = Stage::default().answering("one", [Err("no"), Err("no"), Err("no")]);
    let text = "
name: demo
error_handling: { max_retries: 3, backoff: { initial: 100ms, factor: 2, jitter: false } }
steps: [{ id: a, tool: one }]
";
    let begun = std::time::Instant::now();
    assert!(stage.run(text, json!({})).await.success);
    let passed = begun.elapsed() + Duration::from_millis(1);
    let calls = stage.calls.lock().unwrap();
    let waits: Vec<Duration> = calls.windows(2).map(|pair| pair[1].2 - pair[0].2).collect();
    // Rests end at a time of the clock on the wall, which goes on while everything else stands still.
    for (wait, meant) in waits.iter().zip([100, 200, 400]) {
        assert!(*wait + passed >= Duration::from_millis(meant), "{waits:?}, {passed:?}");
    }
    assert_eq!(waits.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn attempts_counted_as_steps() {
    let stage = Stage::default().answering("one", [Err("no"), Err("no")]);
    let text = chain(
        "  - { tool: one, inputs: {}, on_failure: { action: retry, max_retries: 3 } }\n\
         \x20 - { tool: two, inputs: {} }\n",
    );
    let view = stage.run(&text, json!({})).await;
    assert_eq!((view.steps_executed, view.steps_succeeded, view.steps_failed), (2, 2, 0));
    assert_eq!((view.steps[0].attempts, stage.order().len()), (3, 4));
}

#[tokio::test]
async fn the_state_of_the_caller_mutated() {
    let stage = Stage::default();
    let state = Value::from(json!({"x": {"deep": [1, 2]}}));
    let before = state.to_json();
    let steps = json!([{"tool": "one", "inputs": {"x": "{{ state.x }}", "y": 5},
                        "on_success": {"map_outputs": {"y": "x"}}}]);
    let steps = Value::from(steps).as_array().unwrap().to_vec();
    let chains = stage.engine().chains(Value::empty_object());
    let result = chains.execute_chain(&steps, Some(&state), None).await.unwrap();
    assert_eq!(result.get("final_state").unwrap().get("x"), Some(&Value::from(5)));
    assert_eq!(state.to_json(), before);
}

#[tokio::test]
async fn repeated_tool_names_collapsing() {
    let stage = Stage::default();
    let plan = r#"{"tools": [{"name": "one", "parameters": {"n": 1}}, {"name": "one", "parameters": {"n": 2}},
        {"name": "two", "parameters": {"first": "{{one.n}}", "second": "{{one_2.n}}"}}]}"#;
    let view = stage.run(plan, json!({})).await;
    assert_eq!(stage.given().last(), Some(&json!({"first": 1, "second": 2})));
    assert_eq!(view.results.len(), 3);
}

#[test]
fn a_missing_toolset_panicking() {
    let limits = Limits::default();
    let error = export(None, Some(Adapter::new(ExportFormat::Mcp)), &limits).unwrap_err();
    assert_eq!(error.code(), Code::NilToolset);
    let toolset = Toolset::builder("t").from_tools([]).build().unwrap();
    assert_eq!(export(Some(&toolset), None, &limits).unwrap_err().code(), Code::NilAdapter);
}

/// A toolset of tools with these ids, each with features that a host may not support.
fn toolset(ids: &[&str]) -> Toolset {
    let input = json!({"type": "object", "title": "T", "properties": {
        "a": {"type": "string", "pattern": "^x", "format": "email"}, "b": {"not": {"type": "null"}}}});
    let tools = ids.iter().map(|id| {
        let output = Some(Schema::any_object());
        let input = Arc::new(Schema::new(Value::from(input.clone())));
        Arc::new(ToolSpec { input, output, ..spec(id) })
    });
    Toolset::builder("t").from_tools(tools).build().unwrap()
}

#[test]
fn warnings_in_random_order() {
    let told = |ids: &[&str]| {
        let exported =
            export(Some(&toolset(ids)), Adapter::strict(ExportFormat::OpenAi), &Limits::default());
        exported.unwrap().losses.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let first = told(&["b:x", "a:x", "c:x"]);
    assert!(first.len() > 6, "{first:?}");
    for _ in 0..20 {
        assert_eq!(told(&["c:x", "b:x", "a:x"]), first);
    }
    // The findings of the check come in the order of the text.
    let wrong = "name: demo\nsteps:\n  - { id: a, tool: nobody }\n  - { id: a, tool: none }\n  - { id: c, tool: one, depends_on: [z] }\n";
    let findings = || {
        let found = Stage::default().findings(wrong);
        found.iter().map(|finding| finding.message.clone()).collect::<Vec<_>>()
    };
    let first = findings();
    assert!((0..20).all(|_| findings() == first), "{first:?}");
}

#[test]
fn duplicate_step_ids() {
    let stage = Stage::default();
    let composition = "name: demo\nsteps:\n  - { id: a, tool: one }\n  - { id: a, tool: two }\n";
    let skill = "name: demo\nsteps:\n  - { id: a, tool_id: one }\n  - { id: a, tool_id: two }\n";
    let plan = r#"{"tools": [{"id": "a", "name": "one", "parameters": {}}, {"id": "a", "name": "two", "parameters": {}}]}"#;
    let chain =
        chain("  - { name: a, tool: one, inputs: {} }\n  - { name: a, tool: two, inputs: {} }\n");
    for text in [composition, skill, plan, &chain] {
        let found = stage.findings(text);
        let duplicate = found.iter().find(|finding| finding.code == Code::DuplicateId);
        assert!(
            duplicate.is_some_and(|finding| finding.message.contains("`a`")),
            "{text}{found:?}"
        );
    }
}

#[test]
fn namespaces_lost_on_export() {
    let toolset = toolset(&["crm:search", "web:search"]);
    for format in ExportFormat::ALL {
        let exported =
            export(Some(&toolset), Some(Adapter::new(*format)), &Limits::default()).unwrap();
        let names: Vec<&str> = exported.tools.iter().map(|tool| &*tool.name).collect();
        assert_eq!(names, ["crm__search", "web__search"]);
    }
}

#[test]
fn output_schema_and_annotations_dropped_silently() {
    let toolset = toolset(&["crm:search"]);
    let lost = |format| {
        let exported =
            export(Some(&toolset), Some(Adapter::new(format)), &Limits::default()).unwrap();
        let features = exported.losses.iter().map(|loss| loss.feature.clone());
        features
            .filter(|feature| ["annotations", "outputSchema"].contains(&&**feature))
            .collect::<Vec<_>>()
    };
    assert_eq!(lost(ExportFormat::OpenAi), ["annotations", "outputSchema"]);
    assert_eq!(lost(ExportFormat::Anthropic), ["annotations", "outputSchema"]);
    assert!(lost(ExportFormat::Mcp).is_empty());
}

#[tokio::test]
async fn an_undeclared_tool_slipping_past_the_confirmation() {
    let atomic = |last: &str| {
        format!(
            "name: demo\natomic: true\nsteps:\n\
             \x20 - {{ id: plan, tool: one, parameters: {{ made: {{ name: made, steps: [{{ id: x, tool: risky }}] }} }} }}\n\
             \x20 - {{ id: do, {last}, depends_on: [plan] }}\n"
        )
    };
    // One yes was given for the whole: it covers what was declared then, and nothing that came later.
    for (last, calls) in [("tool: risky", 2), ("expand: '{{ plan.made }}'", 1)] {
        let stage = Stage::default();
        let engine = stage.engine();
        let (plan, findings) = engine.plan(&Source::new("document.yaml", atomic(last)));
        let plan = plan.unwrap_or_else(|| panic!("{findings:?}"));
        assert!(plan.needs_run_consent());
        let mut request = RunRequest::new(plan, Value::empty_object());
        request.options.consented = true;
        let view = engine.run(request).await.unwrap();
        assert_eq!((stage.order().len(), view.success), (calls, calls == 2), "{:?}", view.errors);
        if calls == 1 {
            assert_eq!(view.errors[0].code, Code::Denied);
            assert!(view.errors[0].message.contains("`test:risky` was not declared"));
        }
    }
}
