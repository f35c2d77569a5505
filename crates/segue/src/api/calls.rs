//! One call of one tool, as a run of one step: it is recorded, asks and can be cancelled like any run.

use std::sync::Arc;

use schemars::JsonSchema;
use segue_core::access::Principal;
use segue_core::run::StepSelection;
use segue_core::tool::ToolSpec;
use segue_core::value::{Map, Value};
use segue_core::view::{ErrorView, RunStatus, RunView, Timestamp, WaitView};
use segue_runtime::tools::mcp::{FrameRecording, RpcFrame};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::error::Error;
use super::requests::{Document, ExecuteComposition, ExecutionOptions, Timeout, impl_request};
use super::runs::act::wait;
use super::runs::handle::QuestionPolicy;
use super::runs::start::{CallOptions, Execution, resolve};
use super::runs::{RunService, StartRun};

/// The step of the call.
const STEP: &str = "call";

/// Calls a tool.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CallTool {
    /// The arguments of the tool.
    #[serde(default)]
    #[schemars(extend("default" = {}))]
    pub arguments: Map,
    /// The timeout of the call.
    pub timeout: Option<Timeout>,
    /// Return the messages to and from the MCP server of the tool.
    #[serde(default)]
    #[schemars(extend("default" = false))]
    pub frames: bool,
    /// Consent to the call if it would ask a person.
    #[serde(default)]
    #[schemars(extend("default" = false))]
    pub approved: bool,
    /// The id for its run, a UUID that the client made: with it the client follows or cancels the call
    /// before it has the answer. Without one, the server makes it.
    pub run_id: Option<Arc<str>>,
}

impl_request!(CallTool);

/// The result of a call.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ToolCallResult {
    /// The id of its run.
    pub run_id: Arc<str>,
    /// The status of its run.
    pub status: RunStatus,
    /// What the tool returned; null if it did not.
    pub output: Value,
    /// Why it failed.
    pub error: Option<ErrorView>,
    /// The questions that it waits for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waiting_for: Vec<WaitView>,
    /// Milliseconds.
    pub duration_ms: u64,
    /// The messages to and from the MCP server, if they were asked for and the call has ended.
    pub frames: Option<Vec<CallFrame>>,
}

/// A message of a call.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CallFrame {
    /// Whether Segue sent or received it.
    pub direction: FrameDirection,
    /// When, as RFC 3339.
    pub at: Timestamp,
    /// The JSON-RPC message, without secrets. One that is too long is a text, and cut.
    pub message: Value,
}

/// The direction of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FrameDirection {
    /// To the server.
    Sent,
    /// From the server.
    Received,
}

impl From<RpcFrame> for CallFrame {
    fn from(frame: RpcFrame) -> CallFrame {
        let direction = if frame.is_sent { FrameDirection::Sent } else { FrameDirection::Received };
        CallFrame { direction, at: Timestamp(frame.at_ms), message: frame.message }
    }
}

/// Calls a tool that the caller may use, and waits for it.
pub async fn call(
    service: &Arc<RunService>,
    who: &Principal,
    id: &str,
    request: &CallTool,
    call: CallOptions<'_>,
) -> Result<ToolCallResult, Error> {
    let engine = service.catalog(&who.as_author()).engine;
    let tool = engine.usable_tool(id)?;
    let arguments: Value = request.arguments.clone().into();
    if let Some(violation) = tool.input.violations(&arguments).first() {
        return Err(Error::invalid(format!("the arguments do not fit: {violation}")));
    }
    let options = ExecutionOptions {
        timeout: request.timeout.clone(),
        approved: request.approved,
        ..ExecutionOptions::default()
    };
    let execute = ExecuteComposition {
        composition: Some(Document::try_from(composition(tool, &request.arguments))?),
        input: Some(Map::from_iter([("arguments".into(), arguments)])),
        options: Some(options),
        ..ExecuteComposition::default()
    };
    let Execution { plan, input, context, options, who, .. } =
        resolve(service, who, &execute).await?;
    let run_id = match &request.run_id {
        Some(chosen) => unused_run_id(service, chosen).await?,
        None => service.new_run_id(),
    };
    let recording = request.frames.then(|| FrameRecording::start(&run_id));
    let (policy, origin) = (QuestionPolicy::Defer, call.origin.clone());
    let (run_id, selection) = (Some(run_id), StepSelection::default());
    let start = StartRun { plan, input, context, options, policy, run_id, origin, selection };
    let handle = service.start(&who, start).await?;
    // Another principal may have taken the id between the check and the start. A second call of the same
    // principal with the same id gets the result of the first one.
    if handle.principal.as_ref() != Some(&who.caller().principal) {
        return Err(id_in_use(&handle.run_id));
    }
    let view = wait(service, &who, &handle, call.timeout).await?;
    Ok(result(view, recording.as_ref()))
}

/// An id that a client chose, if it is a UUID and no run has it.
async fn unused_run_id(service: &RunService, chosen: &Arc<str>) -> Result<Arc<str>, Error> {
    let is_dash = |at: usize| matches!(at, 8 | 13 | 18 | 23);
    let fits = |(at, c): (usize, u8)| match c {
        b'-' => is_dash(at),
        b'0'..=b'9' | b'a'..=b'f' => !is_dash(at),
        _ => false,
    };
    if chosen.len() != 36 || !chosen.bytes().enumerate().all(fits) {
        return Err(Error::invalid("`run_id` must be a UUID in lower case"));
    }
    if service.store().run(chosen).await?.is_some() {
        return Err(id_in_use(chosen));
    }
    Ok(chosen.clone())
}

fn id_in_use(run_id: &str) -> Error {
    Error::conflict(format!("a run has the id `{run_id}` already"))
}

fn result(mut view: RunView, recording: Option<&FrameRecording>) -> ToolCallResult {
    let frames = recording.filter(|_| view.completed_at.is_some()).map(FrameRecording::frames);
    let error = if view.errors.is_empty() { None } else { Some(view.errors.remove(0)) };
    ToolCallResult {
        run_id: view.run_id,
        status: view.status,
        output: view.output,
        error,
        waiting_for: view.waiting_for,
        duration_ms: view.duration_ms,
        frames: frames.map(|frames| frames.into_iter().map(CallFrame::from).collect()),
    }
}

/// The composition of one call. Its arguments come from the input: they are data, and never parsed as
/// templates.
fn composition(tool: &ToolSpec, arguments: &Map) -> Value {
    let quoted = |name: &str| Value::from(name).to_json();
    let parameters = arguments.iter().map(|(name, _)| {
        (&**name, Value::from(format!("{{{{ input.arguments[{}] }}}}", quoted(name))))
    });
    let step = Value::object([
        ("id", Value::from(STEP)),
        ("tool", Value::from(tool.id.as_str())),
        ("parameters", Value::object(parameters)),
    ]);
    Value::object([
        ("name", Value::from(run_name(tool.id.name()))),
        ("input", Value::from(input_schema(tool))),
        ("steps", Value::from(vec![step])),
        ("output", Value::from(format!("{{{{ {STEP} }}}}"))),
    ])
}

/// The schema of its input. It marks what the tool's schema marks as sensitive, so that no journal keeps
/// it; the arguments were checked against the tool's schema before.
fn input_schema(tool: &ToolSpec) -> Json {
    let mut schema = json!({ "type": "object" });
    for pointer in tool.input.sensitive() {
        let mut at = &mut schema["properties"]["arguments"];
        for name in pointer.split('/').skip(1) {
            at = &mut at["properties"][name.replace("~1", "/").replace("~0", "~")];
        }
        at["writeOnly"] = Json::Bool(true);
    }
    schema
}

/// The name of the run: `call-` and that of the tool, in the letters that names have.
fn run_name(tool: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let name: String = tool.chars().take(50).map(letter).collect();
    format!("call-{}", name.trim_matches('-'))
}
