//! Into the words of the protocol, and out of them.

use std::sync::Arc;

use axum::http::request::Parts;
use rmcp::model::{
    CallToolResponse, CallToolResult, ContentBlock, ElicitRequest, ElicitRequestParams,
    ElicitResult, ElicitationAction, ErrorData, InputRequest, JsonObject, MetaObject,
    RequestMetaObject, Resource, Tool, ToolAnnotations,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, model::CallToolRequestParams};
use segue_core::access::Principal;
use segue_core::document::read_json_value;
use segue_core::limits::Limits;
use segue_core::run::TraceContext;
use segue_core::tool::Annotations;
use segue_core::value::Value;
use segue_runtime::tools::mcp::{mark_numbers, unmark_numbers};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::stdio::Raw;
use crate::observe::RequestOrigin;
use crate::serve::audit;
use crate::serve::content::Piece;
use crate::serve::offer::Offer;
use crate::serve::own::Own;
use crate::serve::question::{Form, Reply};
use crate::serve::told::Told;

/// What the run that a message is about is named in.
pub(super) const RUN_ID: &str = "segue/runId";

/// What a caller's context is carried in.
const CONTEXT: &str = "segue/context";

/// What the trace that a request is a part of is carried in.
const TRACEPARENT: &str = "traceparent";

/// The header that carries the id of a session.
const SESSION: &str = "mcp-session-id";

/// A composition, as a tool of the protocol.
pub(super) fn tool_of_offer(offer: &Offer) -> Tool {
    let tool = Tool::new(offer.name.clone(), offer.description.clone(), object(&offer.input));
    tool.with_title(&*offer.composition)
        .with_raw_output_schema(object(&offer.output))
        .with_annotations(annotations(offer.annotations))
}

/// One of our tools.
pub(super) fn tool_of_own(own: &Own) -> Tool {
    Tool::new(own.name, own.description, object(&own.input_schema()))
        .with_raw_output_schema(object(&own.output_schema()))
        .with_annotations(annotations(own.annotations))
}

/// What nobody said is the worst.
fn annotations(known: Annotations) -> ToolAnnotations {
    ToolAnnotations::new()
        .read_only(known.read_only.unwrap_or(false))
        .destructive(known.destructive.unwrap_or(true))
        .idempotent(known.idempotent.unwrap_or(false))
        .open_world(known.open_world.unwrap_or(true))
}

/// An answer. The text is the value, exactly: hosts show one of the two, and not all the same one.
pub(super) fn result(told: Told) -> CallToolResult {
    let mut content = vec![ContentBlock::text(told.text)];
    if let Some(uri) = told.link {
        let link = Resource::new(uri, "output").with_mime_type("application/json");
        content.push(ContentBlock::resource_link(link));
    }
    content.extend(told.pieces.into_iter().filter_map(block));
    let mut result = match told.value {
        None => CallToolResult::error(content),
        Some(value) => {
            let mut result = CallToolResult::success(content);
            result.structured_content = Some(mark_numbers(&value));
            result
        }
    };
    result.meta = told.run_id.map(|run_id| {
        let mut meta = MetaObject::new();
        meta.insert(RUN_ID.to_owned(), (*run_id).into());
        meta
    });
    result
}

/// A part of a result that can be shown as more than text. What the library does not read is none.
fn block(piece: Piece) -> Option<ContentBlock> {
    match piece {
        Piece::Whole(item) => serde_json::from_value(json(&item)).ok(),
        Piece::Link { uri, name, mime_type } => {
            let link = Resource::new(uri, name);
            Some(ContentBlock::resource_link(match mime_type {
                Some(mime_type) => link.with_mime_type(mime_type),
                None => link,
            }))
        }
    }
}

/// Says who called what.
pub(super) fn tell(
    who: &Principal,
    tool: &str,
    answer: &Result<CallToolResponse, ErrorData>,
    request_id: Option<&str>,
) {
    let (status, run_id) = match answer {
        Ok(CallToolResponse::Complete(result)) => {
            let run_id = result.meta.as_ref().and_then(|meta| meta.get(RUN_ID)?.as_str());
            let is_error = result.is_error == Some(true);
            (if is_error { "error" } else { "answered" }, run_id.map(str::to_owned))
        }
        Ok(CallToolResponse::Task(created)) => ("task", Some(created.task.task_id.clone())),
        Ok(_) => ("asked", None),
        Err(_) => ("refused", None),
    };
    let status = audit::Status::Word(status);
    audit::tell(who, "callTool", tool, run_id.as_deref(), status, request_id);
}

/// The arguments of a call, exactly as they were written where that is known.
pub(super) fn arguments(
    params: &CallToolRequestParams,
    context: &RequestContext<RoleServer>,
    limits: &Limits,
) -> Result<Value, ErrorData> {
    #[derive(Deserialize)]
    struct Message<'a> {
        #[serde(borrow)]
        params: Params<'a>,
    }
    #[derive(Deserialize)]
    struct Params<'a> {
        #[serde(borrow)]
        arguments: Option<&'a RawValue>,
    }
    let over_http = || context.extensions.get::<Parts>()?.extensions.get::<Raw>();
    let raw = context.extensions.get::<Raw>().or_else(over_http);
    let exact = raw.and_then(|raw| serde_json::from_slice::<Message<'_>>(&raw.0).ok());
    let text = match (&exact, &params.arguments) {
        (Some(message), _) => message.params.arguments.map_or("{}", RawValue::get).to_owned(),
        (None, Some(arguments)) => serde_json::to_string(arguments).unwrap_or_default(),
        (None, None) => "{}".to_owned(),
    };
    let wrong = |message: String| ErrorData::invalid_params(message, None);
    let value = read_json_value(&text, limits).map_err(|finding| wrong(finding.message))?;
    match value {
        Value::Null => Ok(Value::empty_object()),
        other => Ok(other),
    }
}

/// Where a run comes from: the metadata of the request says it, or the HTTP request that it came by.
pub(super) fn origin(context: &RequestContext<RoleServer>) -> RequestOrigin {
    let parts = context.extensions.get::<Parts>();
    let by_http = parts.and_then(|parts| parts.extensions.get::<RequestOrigin>());
    let mut origin = by_http.cloned().unwrap_or_default();
    let session = parts.and_then(|parts| parts.headers.get(SESSION)?.to_str().ok());
    origin.session_id = session.map(Arc::from);
    let traceparent = context.meta.get(TRACEPARENT).and_then(serde_json::Value::as_str);
    origin.trace = traceparent.and_then(TraceContext::parse).or(origin.trace);
    origin
}

/// What a caller brings along, in the metadata of its request.
pub(super) fn caller_context(meta: &RequestMetaObject, limits: &Limits) -> Value {
    let text = meta.get(CONTEXT).map(ToString::to_string).unwrap_or_default();
    match read_json_value(&text, limits) {
        Ok(context @ Value::Object(_)) => context,
        _ => Value::empty_object(),
    }
}

/// A form, as a question of the protocol.
pub(super) fn elicitation(form: &Form) -> Result<ElicitRequest, ErrorData> {
    let schema = serde_json::from_value(json(&form.schema))
        .map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    let params = ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: form.message.clone(),
        requested_schema: schema,
    };
    Ok(ElicitRequest::new(params))
}

/// The same, inside an answer that asks.
pub(super) fn input_request(form: &Form) -> Result<InputRequest, ErrorData> {
    Ok(InputRequest::Elicitation(elicitation(form)?))
}

/// What a person did with a form.
pub(super) fn reply(result: ElicitResult) -> Reply {
    match result.action {
        ElicitationAction::Accept => {
            let content = result.content.unwrap_or(serde_json::Value::Null);
            Reply::Accepted(match value(&content) {
                Value::Null => Value::empty_object(),
                content => content,
            })
        }
        ElicitationAction::Decline => Reply::Declined,
        _ => Reply::Dismissed,
    }
}

/// Our value, as the library's.
pub(super) fn json(value: &Value) -> serde_json::Value {
    serde_json::to_value(value).unwrap_or_default()
}

/// The library's value, as ours, with numbers in place of their marks.
pub(super) fn value(json: &serde_json::Value) -> Value {
    let text = String::from_utf8(unmark_numbers(json.to_string().into_bytes()));
    read_json_value(&text.unwrap_or_default(), &Limits::default()).unwrap_or_default()
}

fn object(value: &Value) -> Arc<JsonObject> {
    match mark_numbers(value) {
        serde_json::Value::Object(object) => Arc::new(object),
        _ => Arc::default(),
    }
}
