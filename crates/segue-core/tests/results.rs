//! The results of chains, skills and plans in their own formats, for runs of the corpus.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a broken fixture ends the test"
)]

mod support;

use std::fs;
use std::sync::Arc;

use segue_core::compile::compile;
use segue_core::limits::Limits;
use segue_core::plan::plan;
use segue_core::result;
use segue_core::run::{Entry, Run};
use segue_core::value::Value;
use segue_core::view::RunView;
use support::world::{World, simulate};
use support::{catalog, composition_of, corpus, with_compositions};

fn result_of(name: &str) -> Value {
    let (mut view, run, journal) = run_of(name);
    view.dialect_result = result::dialect_result(&view, &run, &journal);
    result::result_of(&view)
}

fn run_of(name: &str) -> (RunView, Run, Vec<Entry>) {
    let (case, limits) = (corpus().join("run").join(name), Limits::default());
    let catalog = with_compositions(&case, &catalog());
    let composition = compile(&composition_of(&case), &catalog, &limits).composition.unwrap();
    let plan = Arc::new(plan(&composition, &limits).unwrap());
    let world = fs::read_to_string(case.join("world.yaml")).unwrap_or_else(|_| "{}".to_owned());
    let outcome = simulate(&plan, &mut World::parse(&world), &catalog);
    let run = Run::replay(plan, Arc::new(limits), &outcome.journal).unwrap();
    (outcome.view, run, outcome.journal)
}

fn at<'v>(value: &'v Value, path: &str) -> &'v Value {
    path.split('.').fold(value, |at, part| match part.parse::<usize>() {
        Ok(index) => &at.as_array().unwrap_or_else(|| panic!("{path}: {value}"))[index],
        Err(_) => at.get(part).unwrap_or_else(|| panic!("{path}: {value}")),
    })
}

/// S1-37, S1-46, S1-47, S1-50, S1-51, S1-52, S1-54, S1-55, S1-57: what example 1 promises.
#[test]
fn a_chain_comes_to_what_the_document_says() {
    let result = result_of("chain-seed-echo");
    assert_eq!(at(&result, "tool"), &Value::from("echo_chain_demo"));
    assert_eq!(at(&result, "status"), &Value::from("success"));
    assert_eq!(at(&result, "steps_executed"), &Value::from(3));
    assert_eq!(at(&result, "chain_id"), &Value::from("chain"));
    let data = at(&result, "data");
    assert!(at(data, "final_state").get("final_result").is_some());
    assert_eq!(at(data, "success"), &Value::Bool(true));
    assert_eq!(at(data, "chain_name"), &Value::from("echo_chain_demo"));
    assert_eq!(at(data, "steps_succeeded"), &Value::from(3));
    assert_eq!(at(data, "steps_failed"), &Value::from(0));
    assert_eq!(at(data, "results.0.step"), &Value::from("echo_tool"));
    assert_eq!(at(data, "results.0.status"), &Value::from("success"));
    assert!(at(data, "results.0").get("result").is_some());
    assert_eq!(at(data, "final_state.chain_id"), &Value::from("chain"));
    assert_eq!(at(data, "final_state.started_at"), &Value::from("1970-01-01T00:00:00.001Z"));
    assert_eq!(at(data, "completed_at"), &Value::from("1970-01-01T00:00:00.031Z"));
}

/// S1-38: what example 2 promises.
#[test]
fn names_of_the_state_stand_beside_the_result() {
    let data = at(&result_of("chain-seed-gmail-to-drive"), "data").clone();
    assert_eq!(at(&data, "total_found"), &Value::from(2));
    assert_eq!(at(&data, "drive_file_id"), &Value::from("f1"));
    assert_eq!(at(&data, "archive_link"), &Value::from("https://drive.example/f1"));
}

/// S1-45, S1-48, S1-53, S1-56: each attempt is in the history, and counts as one step.
#[test]
fn attempts_are_history_and_one_step() {
    let result = result_of("chain-seed-gmail-upload-retried");
    let data = at(&result, "data");
    assert_eq!(at(data, "steps_executed"), &Value::from(2));
    let history = at(data, "execution_history").as_array().unwrap().clone();
    let said: Vec<String> = history
        .iter()
        .map(|line| format!("{} {} {}", at(line, "step"), at(line, "status"), at(line, "attempt")))
        .collect();
    assert_eq!(said, ["step_0 success 1", "step_1 retry 1", "step_1 retry 2", "step_1 success 3"]);
    assert_eq!(at(data, "final_state.step_1_retry_count"), &Value::from(2));
}

/// Rollback calls are no attempts of the step.
#[test]
fn attempts_do_the_work_of_a_step() {
    let (view, ..) = run_of("rollback-retries-the-undo");
    let attempts: Vec<u32> = view.steps.iter().map(|step| step.attempts).collect();
    assert_eq!(attempts, [1, 1]);
}

/// S1-52, S1-57: a chain that fails says so, and a failed step has its error.
#[test]
fn a_failed_chain_has_the_error_of_its_step() {
    let result = result_of("chain-seed-resilient-nothing-works");
    assert_eq!(at(&result, "status"), &Value::from("failure"));
    let data = at(&result, "data");
    assert_eq!(at(data, "success"), &Value::Bool(false));
    let results = at(data, "results").as_array().unwrap().clone();
    let last = results.last().unwrap();
    assert_eq!(at(last, "status"), &Value::from("failed"));
    assert_eq!(at(last, "step"), &Value::from("fallback_data_tool"));
    assert!(at(last, "error").get("message").is_some());
}

/// S1-57: the wrapper has these fields and no others, after a success and after a failure.
#[test]
fn the_wrapper_of_a_chain_has_five_fields() {
    for (name, tool, status, executed) in [
        ("chain-seed-echo", "echo_chain_demo", "success", 3),
        ("chain-seed-resilient-nothing-works", "resilient_workflow", "failure", 2),
    ] {
        let result = result_of(name);
        let fields: Vec<&str> = result.as_object().unwrap().keys().map(|name| &**name).collect();
        assert_eq!(fields, ["tool", "status", "chain_id", "steps_executed", "data"], "{name}");
        assert_eq!(at(&result, "tool"), &Value::from(tool));
        assert_eq!(at(&result, "status"), &Value::from(status), "{name}");
        assert_eq!(at(&result, "chain_id"), &Value::from("chain"), "{name}");
        assert_eq!(at(&result, "steps_executed"), &Value::from(executed), "{name}");
        assert_eq!(at(&result, "data.chain_id"), at(&result, "chain_id"), "{name}");
        assert_eq!(at(&result, "data.steps_executed"), &Value::from(executed), "{name}");
    }
}

/// S2-54, S2-55, S2-60: partial results and the failed step, with an error that has a kind.
#[test]
fn a_skill_returns_what_it_did_and_the_step_that_failed() {
    let result = result_of("skill-stops");
    let results = at(&result, "results").as_array().unwrap().clone();
    assert_eq!(results.len(), 2);
    assert_eq!(at(&results[0], "step_id"), &Value::from("a"));
    assert_eq!(at(&results[0], "tool_id"), &Value::from("builtin:echo"));
    assert_eq!(at(&results[0], "value.n"), &Value::from(1));
    assert_eq!(at(&results[1], "error.code"), &Value::from("tool-error"));
    assert_eq!(at(&result, "error.step"), &Value::from("b"));
    let whole = result_of("skill-sorted");
    assert_eq!(at(&whole, "results").as_array().unwrap().len(), 3);
    assert!(at(&whole, "error").is_null());
}

/// S4-01, S4-02, S4-36, S4-45, S4-46, S4-50, S4-54: ids, state, outputs and errors of a plan.
#[test]
fn a_plan_has_execution_results() {
    let result = result_of("plan-seed");
    assert_eq!(at(&result, "requestId"), &Value::from("req"));
    assert_eq!(at(&result, "planId"), &Value::from("plan"));
    assert_eq!(at(&result, "state"), &Value::from("completed"));
    let outputs = at(&result, "executionResults.outputs");
    assert_eq!(at(outputs, "createAuthor._id"), &Value::from("507f1f77bcf86cd799439011"));
    assert_eq!(at(outputs, "createBlog._id"), &Value::from("507f1f77bcf86cd799439012"));
    assert_eq!(at(&result, "executionResults.errors"), &Value::from(Vec::new()));
    let failed = result_of("plan-fails");
    assert_eq!(at(&failed, "state"), &Value::from("failed"));
    assert_eq!(at(&failed, "executionResults.errors.0.step"), &Value::from("createBlog"));
    assert_eq!(at(&failed, "executionResults.outputs.createAuthor._id"), &Value::from("a1"));
    assert_eq!(at(&failed, "executionResults.results.0.toolName"), &Value::from("createAuthor"));
    assert_eq!(at(&failed, "executionResults.results.0.success"), &Value::Bool(true));
    assert_eq!(at(&failed, "executionResults.results.0.output._id"), &Value::from("a1"));
    assert_eq!(at(&failed, "executionResults.results.1.success"), &Value::Bool(false));
    assert_eq!(at(&failed, "executionResults.results").as_array().unwrap().len(), 2);
    let kept = result_of("plan-unresolved");
    assert_eq!(at(&kept, "executionResults.warnings").as_array().unwrap().len(), 4);
}

/// S0-81…86: a composition's own result.
#[test]
fn a_composition_has_results_and_errors() {
    let result = result_of("fail-fast");
    assert_eq!(at(&result, "success"), &Value::Bool(false));
    for (field, value) in [
        ("step", Value::from("bad")),
        ("tool", Value::from("misc:anything")),
        ("attempts", Value::from(1)),
        ("phase", Value::from("call")),
    ] {
        assert_eq!(at(&result, "errors.0").get(field), Some(&value), "{field}");
    }
    assert!(at(&result, "errors.0").get("message").is_some());
    let fine = result_of("interpolation");
    assert!(fine.get("errors").is_none());
    assert_eq!(at(&fine, "success"), &Value::Bool(true));
    assert!(at(&fine, "results").get("found").is_some(), "by output key");
    assert!(at(&fine, "results").get("second").is_some(), "by id where there is no key");
    assert_eq!(at(&fine, "steps_executed"), &Value::from(2));
    assert!(at(&fine, "duration").as_u64().is_some());
}
