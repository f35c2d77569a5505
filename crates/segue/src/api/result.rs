//! A run as the result of a tool: a value, a reference to the run, or its errors as text.

use std::fmt::Write as _;
use std::sync::Arc;

use segue_core::diagnostic::Code;
use segue_core::limits::Limits;
use segue_core::result::result_of;
use segue_core::value::{Map, Value};
use segue_core::view::{ErrorView, RunStatus, RunView, StepStatus};
use segue_runtime::engine::EngineError;

use crate::api::content::{ContentItem, content_items};
use crate::api::error::Error;
use crate::api::questions::waiting_text;
use crate::print::escape_control;

/// How much of a large result is shown.
const PREVIEW_CHARS: usize = 1_000;

/// The result of a tool call.
#[derive(Clone, Debug)]
pub struct ToolResult {
    /// The value; of a failure there is none.
    pub value: Option<Value>,
    /// The value as text, or the errors.
    pub text: String,
    /// The URI of the whole value, when this is only its beginning.
    pub link: Option<String>,
    /// The run, if one has started.
    pub run_id: Option<Arc<str>>,
    /// Images, audio and resources in it.
    pub content: Vec<ContentItem>,
    /// The result in the format of the document's dialect, unless it is too large: of a chain, a skill
    /// or a plan, and of every run that failed.
    pub dialect_result: Option<Value>,
    /// The errors of a run that failed.
    pub errors: Vec<ErrorView>,
}

/// Which part of a run is the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultPart {
    /// The composition's result; inside `result` where it need not be an object.
    Output {
        /// Whether it is inside `result`.
        is_wrapped: bool,
    },
    /// The run itself.
    Run,
}

/// How a run is shown as a result.
#[derive(Clone, Copy, Debug)]
pub struct RenderOptions {
    /// Which part of the run.
    pub part: ResultPart,
    /// The largest value that is sent whole.
    pub bytes_max: usize,
    /// The largest content that is sent with it.
    pub content_bytes_max: usize,
    /// Whether the client can ask a person.
    pub can_ask: bool,
}

impl RenderOptions {
    /// With the sizes of these limits.
    pub fn new(part: ResultPart, limits: &Limits, can_ask: bool) -> RenderOptions {
        RenderOptions {
            part,
            bytes_max: limits.served_result_bytes_max,
            content_bytes_max: limits.served_content_bytes_max,
            can_ask,
        }
    }
}

impl From<Error> for ToolResult {
    fn from(error: Error) -> ToolResult {
        ToolResult::error(error.text())
    }
}

impl ToolResult {
    /// A value; a reference to it if it is too large.
    pub fn value(value: Value, bytes_max: usize, run: Option<&RunView>) -> ToolResult {
        ToolResult::part(value, bytes_max, run.map(|run| (run, output_uri(&run.run_id))))
    }

    /// The same, with the URI of the whole value.
    fn part(value: Value, bytes_max: usize, whole: Option<(&RunView, String)>) -> ToolResult {
        let text = value.to_json();
        match whole {
            Some((run, uri)) if text.len() > bytes_max => ToolResult::too_large(run, &text, uri),
            _ => ToolResult { value: Some(value), ..ToolResult::error(text) },
        }
    }

    /// The state of a run.
    pub fn run(view: &RunView, with_steps: bool, bytes_max: usize) -> ToolResult {
        let uri = if with_steps { view_uri(&view.run_id) } else { output_uri(&view.run_id) };
        ToolResult::part(run_value(view, with_steps), bytes_max, Some((view, uri)))
    }

    /// An error.
    pub fn error(text: impl Into<String>) -> ToolResult {
        ToolResult {
            value: None,
            text: text.into(),
            link: None,
            run_id: None,
            content: Vec::new(),
            dialect_result: None,
            errors: Vec::new(),
        }
    }

    /// A run that goes on: the client reads its result later.
    pub fn running(run_id: &Arc<str>) -> ToolResult {
        let message = "The run goes on. Call `run_get` with this run_id to wait for its result, \
                       `run_cancel` to end it.";
        let value = reference(run_id, RunStatus::Running, message, None);
        ToolResult { run_id: Some(run_id.clone()), ..ToolResult::plain(value) }
    }

    /// The end of a run.
    pub fn outcome(
        outcome: &Result<RunView, EngineError>,
        render_options: RenderOptions,
    ) -> ToolResult {
        let RenderOptions { part, bytes_max, content_bytes_max, can_ask } = render_options;
        let view = match outcome {
            Err(error) => return ToolResult::error(engine_error(error)),
            Ok(view) => view,
        };
        let result = match part {
            ResultPart::Run if view.success => ToolResult::run(view, false, bytes_max),
            ResultPart::Output { is_wrapped } if view.success => {
                let output = if is_wrapped {
                    Value::object([("result", view.output.clone())])
                } else {
                    view.output.clone()
                };
                ToolResult::value(output, bytes_max, Some(view))
            }
            ResultPart::Run | ResultPart::Output { .. } => {
                ToolResult::error(failure(view, can_ask))
            }
        };
        let content = if view.success {
            content_items(&view.run_id, &view.output, content_bytes_max)
        } else {
            Vec::new()
        };
        // A run that never started is not in the store.
        ToolResult {
            run_id: view.started_at.is_some().then(|| view.run_id.clone()),
            content,
            dialect_result: dialect_result(view, bytes_max),
            errors: if view.success { Vec::new() } else { view.errors.clone() },
            ..result
        }
    }

    /// The steps of a dry run; of one that could not start, why.
    pub fn dry_run(
        outcome: &Result<RunView, EngineError>,
        render_options: RenderOptions,
    ) -> ToolResult {
        match outcome {
            Ok(view) if view.status == RunStatus::DryRun => {
                ToolResult::value(run_value(view, true), render_options.bytes_max, None)
            }
            other => ToolResult::outcome(other, render_options),
        }
    }

    fn plain(value: Value) -> ToolResult {
        let text = value.to_json();
        ToolResult { value: Some(value), ..ToolResult::error(text) }
    }

    fn too_large(run: &RunView, text: &str, uri: String) -> ToolResult {
        let message = format!("The result has {} bytes; read it at {uri}.", text.len());
        let preview: String = text.chars().take(PREVIEW_CHARS).collect();
        let value = reference(&run.run_id, run.status, &message, Some((&uri, &preview)));
        ToolResult { link: Some(uri), ..ToolResult::plain(value) }
    }
}

/// The result in the format of the dialect. The value of a composition that succeeded says the same.
fn dialect_result(view: &RunView, bytes_max: usize) -> Option<Value> {
    let is_said = view.success && view.dialect_result.is_none();
    let result = (!is_said).then(|| result_of(view))?;
    (result.to_json().len() <= bytes_max).then_some(result)
}

/// The URI of the result of a run.
pub fn output_uri(run_id: &str) -> String {
    format!("segue://runs/{run_id}/output")
}

/// The URI of a run with its steps.
pub fn view_uri(run_id: &str) -> String {
    format!("segue://runs/{run_id}/view")
}

/// A part of a run that a URI names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunPart {
    /// The composition's result.
    Output,
    /// The result in the format of the dialect.
    Result,
    /// All of it.
    View,
}

impl RunPart {
    /// The value of this part.
    pub fn value(self, view: &RunView) -> Value {
        match self {
            RunPart::Output => view.output.clone(),
            RunPart::Result => result_of(view),
            RunPart::View => run_value(view, true),
        }
    }
}

/// The run of a URI, and the part of it that the URI names.
pub fn run_of_uri(uri: &str) -> Option<(&str, RunPart)> {
    let (run_id, part) = uri.strip_prefix("segue://runs/")?.split_once('/')?;
    let part = match part {
        "output" => RunPart::Output,
        "result" => RunPart::Result,
        "view" => RunPart::View,
        _ => return None,
    };
    Some((run_id, part))
}

fn reference(run_id: &str, status: RunStatus, message: &str, large: Option<(&str, &str)>) -> Value {
    let mut members = vec![
        ("run_id", Value::from(run_id)),
        ("status", Value::from(status.as_str())),
        ("message", Value::from(message)),
    ];
    if let Some((uri, preview)) = large {
        members.push(("uri", Value::from(uri)));
        members.push(("preview", Value::from(preview)));
    }
    Value::object(members)
}

/// JSON Schema of a reference to a run.
pub fn reference_schema() -> Value {
    let text = |about: &str| {
        Value::object([("type", Value::from("string")), ("description", Value::from(about))])
    };
    Value::object([
        (
            "properties",
            Value::object([
                ("run_id", text("a run that goes on, or whose result is too large")),
                ("status", text("the status of the run")),
                ("message", text("what to do")),
                ("uri", text("where the whole result can be read")),
                ("preview", text("its beginning")),
            ]),
        ),
        ("required", Value::from(vec![Value::from("run_id"), Value::from("status")])),
    ])
}

/// Fields of a run that the result of a tool does not have.
pub const HIDDEN_RUN_FIELDS: [&str; 5] =
    ["request_id", "plan_id", "chain_id", "dialect", "duration"];

/// A run as a value, with its steps on demand.
pub fn run_value(view: &RunView, with_steps: bool) -> Value {
    let text = serde_json::to_string(view).unwrap_or_default();
    let whole = segue_core::document::read_trusted_json(&text);
    let Ok(whole) = whole.map(|node| node.to_value()) else { return Value::Null };
    let Value::Object(members) = whole else { return whole };
    let keep = |name: &str| match name {
        "steps" | "dialect_result" => with_steps,
        "state" | "results" => with_steps || view.output.is_null(),
        other => !HIDDEN_RUN_FIELDS.contains(&other),
    };
    let kept = members.iter().filter(|(name, _)| keep(name));
    kept.map(|(name, value)| (name.clone(), value.clone())).collect::<Map>().into()
}

/// The errors of a run, for a model that sees nothing else.
fn failure(view: &RunView, can_ask: bool) -> String {
    let mut text = String::new();
    let status = view.status.as_str().replace('_', " ");
    let _ = writeln!(text, "`{}`: {status}", view.name);
    for error in &view.errors {
        let place = match (&error.step, &error.tool) {
            (Some(step), Some(tool)) => format!("step `{step}` ({tool}): "),
            (Some(step), None) => format!("step `{step}`: "),
            _ => String::new(),
        };
        let _ = write!(text, "- {place}{} [{}", escape_control(&error.message), error.code);
        if error.attempts > 1 {
            let _ = write!(text, ", {} attempts", error.attempts);
        }
        if error.retryable {
            text.push_str(", trying again may help");
        }
        if error.in_doubt {
            text.push_str(", it may have done its work nevertheless");
        }
        text.push_str("]\n");
        if let Some(hint) = hint(error, &view.name, can_ask) {
            let _ = writeln!(text, "  {}", escape_control(&hint));
        }
    }
    let of_status = |status: StepStatus| {
        let steps = view.steps.iter().filter(move |step| step.status == status);
        steps.map(|step| format!("`{}`", step.id)).collect::<Vec<_>>().join(", ")
    };
    let undone = of_status(StepStatus::RolledBack);
    if !undone.is_empty() {
        let _ = writeln!(text, "Rolled back: {undone}.");
    }
    let left = of_status(StepStatus::RollbackFailed);
    if !left.is_empty() {
        let _ = writeln!(text, "Could not be rolled back, look at it by hand: {left}.");
    }
    for wait in &view.waiting_for {
        let _ = writeln!(text, "Step `{}` waits for an answer: {}", wait.step, waiting_text(wait));
    }
    if view.status == RunStatus::Waiting {
        let here = if can_ask {
            "No person has answered yet. Call `run_resume` with this run_id, and the person at this \
             host is asked; or a person"
        } else {
            "No person could be asked here. A person"
        };
        let _ = writeln!(
            text,
            "{here} who may decide runs `segue approve {}`, with `--deny` for a no; over HTTP that needs \
             the right `approve`.",
            view.run_id
        );
    }
    for warning in &view.warnings {
        let _ = writeln!(text, "Note: {}", escape_control(warning));
    }
    if !view.output.is_null() && view.output != Value::empty_object() {
        let output: String = view.output.to_json().chars().take(PREVIEW_CHARS * 4).collect();
        let _ = writeln!(text, "Partial result: {output}");
    }
    // A run that never started is not in the store.
    if view.started_at.is_some() {
        let _ = writeln!(text, "run_id: {}", view.run_id);
    }
    text
}

/// What to do about a failure, for a client that is not the command line.
fn hint(error: &ErrorView, composition: &str, can_ask: bool) -> Option<String> {
    match error.code {
        Code::Denied if can_ask => None,
        Code::Denied => Some(format!(
            "No person could be asked: this host does not declare elicitation. A person who may decide \
             runs `segue run {composition} --yes`, or sets `confirm: never` for the tool in `segue.yaml`. With \
             `server.approvals.without_elicitation: wait` such a run waits for an answer."
        )),
        Code::InputSchema if error.phase == "check" => None,
        Code::PolicyViolation if error.phase == "check" => {
            Some("The context is given in `_meta` as `segue/context`.".to_owned())
        }
        _ => error.hint.clone(),
    }
}

fn engine_error(error: &EngineError) -> String {
    match error {
        EngineError::Stopped { run_id, .. } => {
            format!(
                "{error}\nNothing is lost: the run goes on when Segue starts again.\nrun_id: {run_id}"
            )
        }
        other => other.to_string(),
    }
}

/// A view as a value.
pub fn json_of(view: &impl serde::Serialize) -> Value {
    let text = serde_json::to_string(view).unwrap_or_default();
    let node = segue_core::document::read_trusted_json(&text);
    node.map(|node| node.to_value()).unwrap_or_default()
}
