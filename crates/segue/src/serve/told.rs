//! A run as an answer: a value, a reference to the run, or everything that went wrong, in words.

use std::fmt::Write as _;
use std::sync::Arc;

use segue_core::diagnostic::Code;
use segue_core::value::{Map, Value};
use segue_core::view::{ErrorView, RunStatus, RunView, StepStatus};
use segue_runtime::engine::EngineError;

use super::content::{Piece, pieces};
use super::question::asked;
use crate::print::escape_control;

/// What of a result that is too large is shown.
const PREVIEW_CHARS: usize = 1_000;

/// What a caller is told.
#[derive(Clone, Debug)]
pub struct Told {
    /// The value; of a failure there is none.
    pub value: Option<Value>,
    /// The same as text, or what went wrong.
    pub text: String,
    /// Where the whole of it can be read, when this is only its beginning.
    pub link: Option<String>,
    /// The run that it is about, if one has begun.
    pub run_id: Option<Arc<str>>,
    /// What of it can be shown as more than text.
    pub pieces: Vec<Piece>,
}

/// Which part of a run is the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// The composition's result; inside `result` where it need not be an object.
    Output {
        /// Whether it stands inside `result`.
        is_wrapped: bool,
    },
    /// The run itself.
    Run,
}

/// How something is told.
#[derive(Clone, Copy, Debug)]
pub struct Telling {
    /// Which part of the run.
    pub shape: Shape,
    /// The largest result that is sent as it is.
    pub bytes_max: usize,
    /// How much that can be shown as more than text goes along with it.
    pub content_bytes_max: usize,
    /// Whether a person can be asked through whoever is told.
    pub can_ask: bool,
}

impl Told {
    /// A value, unless it is larger than an answer may be.
    pub fn value(value: Value, bytes_max: usize, run: Option<&RunView>) -> Told {
        Told::part(value, bytes_max, run.map(|run| (run, output_uri(&run.run_id))))
    }

    /// The same, which is read at an address if it is larger.
    fn part(value: Value, bytes_max: usize, whole: Option<(&RunView, String)>) -> Told {
        let text = value.to_json();
        match whole {
            Some((run, uri)) if text.len() > bytes_max => Told::too_large(run, &text, uri),
            _ => Told { value: Some(value), text, link: None, run_id: None, pieces: Vec::new() },
        }
    }

    /// How a run stands, or what became of it.
    pub fn run(view: &RunView, with_steps: bool, bytes_max: usize) -> Told {
        let uri = if with_steps { view_uri(&view.run_id) } else { output_uri(&view.run_id) };
        Told::part(run_value(view, with_steps), bytes_max, Some((view, uri)))
    }

    /// Something went wrong.
    pub fn error(text: impl Into<String>) -> Told {
        Told { value: None, text: text.into(), link: None, run_id: None, pieces: Vec::new() }
    }

    /// A run that goes on: who wants its result asks again.
    pub fn under_way(run_id: &Arc<str>) -> Told {
        let message = "The run goes on. Call `run_get` with this run_id to wait for its result, \
                       `run_cancel` to end it.";
        let value = reference(run_id, RunStatus::Running, message, None);
        Told { run_id: Some(run_id.clone()), ..Told::plain(value) }
    }

    /// How a run ended.
    pub fn outcome(outcome: &Result<RunView, EngineError>, telling: Telling) -> Told {
        let Telling { shape, bytes_max, content_bytes_max, can_ask } = telling;
        let view = match outcome {
            Err(error) => return Told::error(engine_error(error)),
            Ok(view) => view,
        };
        let told = match shape {
            Shape::Run if view.success => Told::run(view, false, bytes_max),
            Shape::Output { is_wrapped } if view.success => {
                let output = if is_wrapped {
                    Value::object([("result", view.output.clone())])
                } else {
                    view.output.clone()
                };
                Told::value(output, bytes_max, Some(view))
            }
            Shape::Run | Shape::Output { .. } => Told::error(failure(view, can_ask)),
        };
        let pieces = if view.success {
            pieces(&view.run_id, &view.output, content_bytes_max)
        } else {
            Vec::new()
        };
        // A run that never began is nowhere.
        Told { run_id: view.started_at.is_some().then(|| view.run_id.clone()), pieces, ..told }
    }

    /// What a run would do, step by step; of one that could not begin, why.
    pub fn rehearsed(outcome: &Result<RunView, EngineError>, telling: Telling) -> Told {
        match outcome {
            Ok(view) if view.status == RunStatus::DryRun => {
                Told::value(run_value(view, true), telling.bytes_max, None)
            }
            other => Told::outcome(other, telling),
        }
    }

    fn plain(value: Value) -> Told {
        let text = value.to_json();
        Told { value: Some(value), text, link: None, run_id: None, pieces: Vec::new() }
    }

    fn too_large(run: &RunView, text: &str, uri: String) -> Told {
        let message = format!("The result has {} bytes; read it at {uri}.", text.len());
        let preview: String = text.chars().take(PREVIEW_CHARS).collect();
        let value = reference(&run.run_id, run.status, &message, Some((&uri, &preview)));
        Told { link: Some(uri), ..Told::plain(value) }
    }
}

/// Where the result of a run is read.
pub fn output_uri(run_id: &str) -> String {
    format!("segue://runs/{run_id}/output")
}

/// Where everything of a run is read, its steps included.
pub fn view_uri(run_id: &str) -> String {
    format!("segue://runs/{run_id}/view")
}

/// The run that an address means, and whether it means everything of it or only its result.
pub fn run_of_uri(uri: &str) -> Option<(&str, bool)> {
    let (run_id, part) = uri.strip_prefix("segue://runs/")?.split_once('/')?;
    match part {
        "output" => Some((run_id, false)),
        "view" => Some((run_id, true)),
        _ => None,
    }
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
                ("run_id", text("of a run that goes on, or whose result is too large")),
                ("status", text("how the run stands")),
                ("message", text("what to do")),
                ("uri", text("where the whole result can be read")),
                ("preview", text("its beginning")),
            ]),
        ),
        ("required", Value::from(vec![Value::from("run_id"), Value::from("status")])),
    ])
}

/// A run as a value: what every surface shows of it, with its steps on demand.
pub fn run_value(view: &RunView, with_steps: bool) -> Value {
    let text = serde_json::to_string(view).unwrap_or_default();
    let whole = segue_core::document::read_trusted_json(&text);
    let Ok(whole) = whole.map(|node| node.to_value()) else { return Value::Null };
    let Value::Object(members) = whole else { return whole };
    let keep = |name: &str| match name {
        "steps" => with_steps,
        "state" | "results" => with_steps || view.output.is_null(),
        "request_id" | "plan_id" | "chain_id" | "dialect" | "duration" => false,
        _ => true,
    };
    let kept = members.iter().filter(|(name, _)| keep(name));
    kept.map(|(name, value)| (name.clone(), value.clone())).collect::<Map>().into()
}

/// Everything that went wrong, for somebody who sees nothing but this.
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
        let _ = writeln!(text, "Step `{}` waits for an answer: {}", wait.step, asked(wait));
    }
    if view.status == RunStatus::Waiting {
        let here = if can_ask {
            "Nobody has answered yet. Call `run_resume` with this run_id, and the person at this \
             host is asked; or somebody"
        } else {
            "Nobody could be asked here. Somebody"
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
        let _ = writeln!(text, "What it has nevertheless: {output}");
    }
    // A run that never began is nowhere.
    if view.started_at.is_some() {
        let _ = writeln!(text, "run_id: {}", view.run_id);
    }
    text
}

/// What to do about a failure, for somebody who is not at the command line.
fn hint(error: &ErrorView, composition: &str, can_ask: bool) -> Option<String> {
    match error.code {
        Code::Denied if can_ask => None,
        Code::Denied => Some(format!(
            "Nobody could be asked: this host does not declare elicitation. Somebody who may decide \
             runs `segue run {composition} --yes`, or says `confirm: never` for the tool in `segue.yaml`."
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
