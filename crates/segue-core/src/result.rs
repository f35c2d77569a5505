//! A run's result in the format of its document's dialect.
//!
//! Every surface publishes one [`RunView`], and in it the result of a chain, a skill or a plan in the
//! format of its dialect. [`dialect_result`] makes it from the view, and from the journal where every
//! attempt counts; no surface makes its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::compile::final_state_type;
use crate::composition::{Composition, Dialect};
use crate::run::{Entry, Fact, Failure, NodeId, Run};
use crate::value::{Map, Value};
use crate::view::{ErrorView, RunStatus, RunView, StepStatus, StepView, rfc3339};

/// The result of a run in the format of its dialect; `None` where the run view is that format.
pub fn dialect_result(view: &RunView, run: &Run, journal: &[Entry]) -> Option<Value> {
    match view.dialect {
        Dialect::Chain => Some(composite_result(view, history(run, journal))),
        Dialect::Skill => Some(skill(view)),
        Dialect::Plan => Some(plan(view)),
        Dialect::Composition | Dialect::Composed | Dialect::ToolHive | Dialect::Arazzo => None,
    }
}

/// Whether the format of a dialect lists every attempt, which only the journal has.
pub fn needs_journal(dialect: Dialect) -> bool {
    dialect == Dialect::Chain
}

/// The result of a view in the format of its dialect.
pub fn result_of(view: &RunView) -> Value {
    view.dialect_result.clone().unwrap_or_else(|| composition_result(view))
}

/// JSON Schema of the result of a chain, as [`composite_result`] makes it.
pub fn chain_schema(composition: &Composition) -> Value {
    let state = final_state_type(composition).to_schema();
    let ty = |name: &str| Value::object([("type", Value::from(name))]);
    let list = || Value::object([("type", Value::from("array")), ("items", ty("object"))]);
    let from_start =
        ["chain_id", "chain_name", "started_at"].map(|name| (name, ty("string"))).to_vec();
    let data = vec![
        ("success", ty("boolean")),
        ("chain_id", ty("string")),
        ("chain_name", ty("string")),
        ("steps_executed", ty("integer")),
        ("steps_succeeded", ty("integer")),
        ("steps_failed", ty("integer")),
        ("results", list()),
        ("execution_history", list()),
        ("final_state", object_schema(from_start, &state)),
        (
            "completed_at",
            Value::object([("type", Value::from(["string", "null"].map(Value::from).to_vec()))]),
        ),
    ];
    let whole = vec![
        ("tool", ty("string")),
        (
            "status",
            Value::object([(
                "enum",
                Value::from(["success", "failure"].map(Value::from).to_vec()),
            )]),
        ),
        ("chain_id", ty("string")),
        ("steps_executed", ty("integer")),
        ("data", object_schema(data, &state)),
    ];
    object_schema(whole, &Value::Null)
}

/// JSON Schema of an object with these members, and those of another schema, which may be absent.
fn object_schema(members: Vec<(&'static str, Value)>, others: &Value) -> Value {
    let required = members.iter().map(|(name, _)| Value::from(*name)).collect::<Vec<_>>();
    let others = others.get("properties").and_then(Value::as_object);
    let mut properties = others.map(|others| (**others).clone()).unwrap_or_default();
    properties.extend(members.into_iter().map(|(name, schema)| (Arc::from(name), schema)));
    Value::object([
        ("type", Value::from("object")),
        ("properties", properties.into()),
        ("required", required.into()),
        // The counts of retries have names of their own.
        ("additionalProperties", Value::Bool(true)),
    ])
}

/// The history: each attempt of each step with its outcome, in order.
pub fn history(run: &Run, journal: &[Entry]) -> Vec<Value> {
    let mut attempts: BTreeMap<NodeId, (u64, String)> = BTreeMap::new();
    let mut history = Vec::new();
    for entry in journal {
        let (node, status, detail) = match &entry.fact {
            Fact::Called { node, candidate, .. } | Fact::Entered { node, candidate, .. } => {
                let (count, tool) = attempts.entry(*node).or_default();
                *count += 1;
                *tool = run.tool_name(*node, *candidate);
                continue;
            }
            Fact::Succeeded { node, output, .. } => (node, "success", ("result", output.clone())),
            Fact::BackedOff { node, failure, .. } => (node, "retry", error(failure)),
            Fact::GaveUp { node, failure }
            | Fact::Tolerated { node, failure, .. }
            | Fact::Failed { node, failure } => (node, "failed", error(failure)),
            Fact::Skipped { node, reason, .. } => {
                (node, "skipped", ("reason", Value::String(reason.clone())))
            }
            _ => continue,
        };
        let (count, tool) = attempts.get(node).cloned().unwrap_or_default();
        let tool = if tool.is_empty() { run.tool_name(*node, 0) } else { tool };
        history.push(Value::object([
            ("step", Value::String(run.path(*node))),
            ("tool", Value::from(tool)),
            ("status", Value::from(status)),
            ("attempt", Value::from(count)),
            ("at", Value::from(rfc3339(entry.at_ms))),
            detail,
        ]));
    }
    history
}

fn error(failure: &Failure) -> (&'static str, Value) {
    ("error", Value::String(failure.message.clone()))
}

/// The result of a composite tool: the chain's result, with the names that it set.
pub fn composite_result(view: &RunView, history: Vec<Value>) -> Value {
    let mut data = chain_result(view, history);
    for (name, value) in &view.state {
        data.entry(name.clone()).or_insert_with(|| value.clone());
    }
    Value::object([
        ("tool", Value::String(view.name.clone())),
        ("status", Value::from(if view.success { "success" } else { "failure" })),
        ("chain_id", Value::String(view.chain_id.clone())),
        ("steps_executed", Value::from(view.steps_executed)),
        ("data", data.into()),
    ])
}

/// The result of a chain.
pub fn chain_result(view: &RunView, history: Vec<Value>) -> Map {
    let results = executed(view).map(|step| {
        let name = Value::String(chain_step_name(step));
        outcome([("step", name), ("status", Value::from(word(step)))], step, "result")
    });
    let members = [
        ("success", Value::Bool(view.success)),
        ("chain_id", Value::String(view.chain_id.clone())),
        ("chain_name", Value::String(view.name.clone())),
        ("steps_executed", Value::from(view.steps_executed)),
        ("steps_succeeded", Value::from(view.steps_succeeded)),
        ("steps_failed", Value::from(view.steps_failed)),
        ("results", results.collect::<Vec<_>>().into()),
        ("execution_history", history.into()),
        ("final_state", view.state.clone().into()),
        ("completed_at", view.completed_at.map_or(Value::Null, |at| Value::from(at.to_string()))),
    ];
    members.into_iter().map(|(name, value)| (Arc::from(name), value)).collect()
}

/// A step without a name is listed under its tool's name.
fn chain_step_name(step: &StepView) -> Arc<str> {
    let number = step.id.strip_prefix("step_");
    let is_numbered = number.is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit() || b == b'#'));
    match &step.tool {
        Some(tool) if is_numbered => tool.rsplit(':').next().unwrap_or(tool).into(),
        _ => step.id.clone(),
    }
}

/// The result of a skill: the value of each step up to the failed one, and the failure.
fn skill(view: &RunView) -> Value {
    let results = executed(view).map(|step| {
        let tool = step.tool.clone().map_or(Value::Null, Value::String);
        outcome([("step_id", Value::String(step.id.clone())), ("tool_id", tool)], step, "value")
    });
    Value::object([
        ("name", Value::String(view.name.clone())),
        ("results", results.collect::<Vec<_>>().into()),
        ("error", view.errors.first().map_or(Value::Null, typed_error)),
    ])
}

/// The result of a plan.
fn plan(view: &RunView) -> Value {
    let results = executed(view).map(|step| {
        let tool = step.tool.as_deref().map_or("", |tool| tool.rsplit(':').next().unwrap_or(tool));
        let about = [
            ("toolName", Value::from(tool)),
            ("stepId", Value::String(step.id.clone())),
            ("parameters", step.input.clone()),
            ("success", Value::Bool(step.status == StepStatus::Success)),
        ];
        outcome(about, step, "output")
    });
    let errors: Vec<Value> = view.errors.iter().map(typed_error).collect();
    let warnings: Vec<Value> = view.warnings.iter().map(|w| Value::from(w.as_str())).collect();
    Value::object([
        ("requestId", Value::String(view.request_id.clone())),
        ("planId", Value::String(view.plan_id.clone())),
        ("state", Value::from(plan_state(view.status))),
        (
            "executionResults",
            Value::object([
                ("results", results.collect::<Vec<_>>().into()),
                ("outputs", Value::Object(view.results.clone())),
                ("errors", errors.into()),
                ("warnings", warnings.into()),
            ]),
        ),
    ])
}

/// The status of a run in the words of the plan dialect.
pub fn plan_state(status: RunStatus) -> &'static str {
    match status {
        RunStatus::Pending | RunStatus::DryRun => "pending",
        RunStatus::Running | RunStatus::Waiting => "in-progress",
        RunStatus::Success => "completed",
        RunStatus::Partial
        | RunStatus::Failed
        | RunStatus::RolledBack
        | RunStatus::RollbackFailed
        | RunStatus::Cancelled
        | RunStatus::Denied => "failed",
    }
}

/// The result of a composition.
pub fn composition_result(view: &RunView) -> Value {
    let errors: Vec<Value> = view.errors.iter().map(typed_error).collect();
    let errors = (!errors.is_empty()).then(|| ("errors", Value::from(errors)));
    let members = [
        ("success", Value::Bool(view.success)),
        ("results", Value::Object(view.results.clone())),
        ("duration", Value::from(view.duration)),
        ("steps_executed", Value::from(view.steps_executed)),
    ];
    Value::object(members.into_iter().chain(errors))
}

/// The outermost steps that ran.
fn executed(view: &RunView) -> impl Iterator<Item = &StepView> {
    let ran = |step: &&StepView| {
        let is_left_out = matches!(step.status, StepStatus::Pending | StepStatus::Skipped);
        !is_left_out && !step.id.contains('/')
    };
    view.steps.iter().filter(ran)
}

fn word(step: &StepView) -> &'static str {
    if step.status == StepStatus::Success { "success" } else { "failed" }
}

/// The outcome of a step, with its value or its failure.
fn outcome<const N: usize>(
    about: [(&'static str, Value); N],
    step: &StepView,
    value: &'static str,
) -> Value {
    let came_to = match &step.error {
        Some(error) => ("error", typed_error(error)),
        None => (value, step.output.clone()),
    };
    Value::object(about.into_iter().chain([came_to]))
}

fn typed_error(error: &ErrorView) -> Value {
    let text = |text: &Option<Arc<str>>| text.clone().map_or(Value::Null, Value::String);
    Value::object([
        ("code", Value::from(error.code.as_str())),
        ("message", Value::from(error.message.as_str())),
        ("step", text(&error.step)),
        ("tool", text(&error.tool)),
        ("attempts", Value::from(u64::from(error.attempts))),
        ("phase", Value::from(error.phase)),
    ])
}
