//! Chains that a program makes while it runs.

use std::sync::Arc;

use async_trait::async_trait;
use segue_core::diagnostic::Code;
use segue_core::id::ToolId;
use segue_core::schema::Schema;
use segue_core::tool::{Annotations, ToolSpec};
use segue_core::value::Value;
use segue_runtime::chains::{ChainError, PlannedTool};
use segue_runtime::engine::Engine;
use segue_runtime::tools::builtin::{self, BuiltinConfig};
use segue_runtime::tools::{Tool, ToolError, ToolRequest, ToolRunner};

/// Returns the tools that the chain planned, while it runs.
struct Echo;

#[async_trait]
impl ToolRunner for Echo {
    async fn call(&self, call: ToolRequest) -> Result<Value, ToolError> {
        Ok(Value::object([("data", call.args.get("message").cloned().unwrap_or_default())]))
    }
}

fn engine() -> Engine {
    let mut spec = ToolSpec::new(ToolId::new("test", "echo_tool"), "echoes", Schema::any_object());
    spec.annotations = Annotations { read_only: Some(true), ..Annotations::default() };
    let echo = Tool { spec: Arc::new(spec), runner: Arc::new(Echo) };
    let builtins = builtin::tools(&BuiltinConfig::default());
    Engine::builder().tools(builtins).tools(vec![echo]).build().0
}

fn json(text: &str) -> Value {
    let limits = segue_core::limits::Limits::default();
    segue_core::document::read_json_value(text, &limits).unwrap()
}

fn steps(text: &str) -> Vec<Value> {
    json(text).as_array().unwrap().to_vec()
}

/// S1-41, S1-69, S1-70: an id for each, names for those that have one, tools in order.
#[tokio::test]
async fn planned_chains_are_known_by_id_and_name() {
    let chains = engine().chains(Value::empty_object());
    let tool = |name: &str| PlannedTool { name: name.into(), parameters: Value::empty_object() };
    let first = chains.plan_tool_chain(vec![tool("a"), tool("b")], Some("because"), Some("pair"));
    let second = chains.plan_tool_chain(vec![tool("c")], None, None);
    assert_ne!(first, second);
    assert_eq!(first.len(), "550e8400-e29b-41d4-a716-446655440000".len());
    let active = chains.active_chains();
    assert_eq!(active.len(), 1);
    assert_eq!(active.get("pair"), Some(&first));
    assert_eq!(chains.next_planned_tools(&first), [tool("a"), tool("b")]);
    assert!(chains.next_planned_tools("nothing").is_empty());
}

/// S1-42, S1-43, S1-44, S1-71, S1-72: one call, and the caller's own state is unchanged.
#[tokio::test]
async fn steps_run_as_a_chain() {
    let chains = engine().chains(Value::empty_object());
    let state = json(r#"{"message": "hello"}"#);
    let before = state.clone();
    let steps = steps(
        r#"[{"tool": "echo_tool", "inputs": {"message": "{{ state.message }}"},
             "on_success": {"map_outputs": {"data": "first_answer"}}},
            {"tool": "echo_tool", "inputs": {"message": "Step 2: {{ state.first_answer }}"},
             "on_success": {"map_outputs": {"data": "message"}}}]"#,
    );
    let result = chains.execute_chain(&steps, Some(&state), Some("twice")).await.unwrap();
    assert_eq!(state, before);
    let get = |name: &str| result.get(name).cloned().unwrap();
    assert_eq!(get("success"), Value::Bool(true));
    assert_eq!(get("chain_name"), Value::from("twice"));
    assert_eq!(get("steps_executed"), Value::from(2));
    let last = get("final_state").get("message").cloned();
    assert_eq!(last, Some(Value::from("Step 2: hello")));
    assert_eq!(get("final_state").get("chain_id"), Some(&get("chain_id")));
    assert_eq!(get("execution_history").as_array().unwrap().len(), 2);
    assert!(chains.active_chains().is_empty(), "a chain that is over is not active");
}

/// S1-58, S1-64, S1-95: a failure names its step and its cause; recovered ones do not count.
#[tokio::test]
async fn a_chain_that_fails_says_where_and_why() {
    let chains = engine().chains(Value::empty_object());
    let steps = steps(
        r#"[{"tool": "fail", "inputs": {"message": "first"}, "on_failure": {"action": "continue"}},
            {"name": "second_try", "tool": "fail", "inputs": {"message": "no luck"},
             "on_failure": {"action": "retry", "max_retries": 1}},
            {"tool": "echo_tool", "inputs": {}}]"#,
    );
    let error = chains.execute_chain(&steps, None, None).await.unwrap_err();
    let ChainError::Failed { index, step, cause, result } = error else { panic!("{error}") };
    assert_eq!((index, &*step), (1, "second_try"));
    assert_eq!(cause.code, Code::RetriesExhausted);
    assert!(cause.message.starts_with("Max retries (1) exceeded for step second_try"));
    assert_eq!(result.get("steps_executed"), Some(&Value::from(2)));
    assert_eq!(result.get("execution_history").unwrap().as_array().unwrap().len(), 3);
}

/// S1-65: a tool that fails twice and then succeeds.
#[tokio::test(start_paused = true)]
async fn a_tool_that_recovers_is_tried_again() {
    let chains = engine().chains(Value::empty_object());
    let steps = steps(
        r#"[{"tool": "fail", "inputs": {"times": 2, "value": 7},
             "on_failure": {"action": "retry", "max_retries": 3}}]"#,
    );
    let result = chains.execute_chain(&steps, None, None).await.unwrap();
    assert_eq!(result.get("steps_executed"), Some(&Value::from(1)));
    let state = result.get("final_state").unwrap();
    assert_eq!(state.get("step_0_retry_count"), Some(&Value::from(2)));
}

/// S1-92: steps that cannot run are reported before anything is called.
#[tokio::test]
async fn steps_that_are_no_chain_are_refused() {
    let chains = engine().chains(Value::empty_object());
    let steps = steps(r#"[{"tool": "echo_tool", "inputs": {}}, {"tool": "nobody", "inputs": {}}]"#);
    let error = chains.execute_chain(&steps, None, None).await.unwrap_err();
    let ChainError::Unsound { findings } = error else { panic!("{error}") };
    assert_eq!(findings, ["Tool not found in registry: nobody"]);
}

/// S4-04: a stored plan runs under the ids that it was stored with.
#[tokio::test]
async fn a_stored_plan_keeps_its_ids() {
    let engine = engine();
    let text = r#"{"requestId": "req_1704123456_abc123def", "planId": "plan_1704123456_xyz789ghi",
                   "tools": [{"name": "echo_tool", "parameters": {}, "dependsOn": null}]}"#;
    let source = segue_core::source::Source::new("plan.json", text);
    let (plan, findings) = engine.plan(&source);
    let plan = plan.unwrap_or_else(|| panic!("{findings:?}"));
    let request = segue_runtime::engine::RunRequest::new(plan, Value::empty_object());
    let view = engine.run(request).await.unwrap();
    assert_eq!(&*view.request_id, "req_1704123456_abc123def");
    assert_eq!(&*view.plan_id, "plan_1704123456_xyz789ghi");
    assert!(view.success);
}
