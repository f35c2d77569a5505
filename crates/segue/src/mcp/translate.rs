//! Our types as those of the protocol library, and back.

use std::collections::BTreeMap;
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

use super::builtin::BuiltinTool;
use super::stdio::RawMessage;
use crate::api::audit as audit_log;
use crate::api::catalog::ServedTool;
use crate::api::content::ContentItem;
use crate::api::questions::{FormReply, QuestionForm};
use crate::api::result::ToolResult;
use crate::observe::RequestOrigin;

/// The metadata field with the id of a run.
pub(super) const RUN_ID: &str = "segue/runId";

/// The metadata field with the result in the format of the document's dialect.
const RESULT: &str = "segue/result";

/// The metadata field with the errors of a run.
const ERRORS: &str = "segue/errors";

/// The metadata field with the context of a caller.
const CONTEXT: &str = "segue/context";

/// The metadata field with the trace of a request.
const TRACEPARENT: &str = "traceparent";

/// The header that carries the id of a session.
const SESSION: &str = "mcp-session-id";

/// A served composition, as a tool of the protocol.
pub(super) fn served_tool(tool: &ServedTool) -> Tool {
    Tool::new(tool.name.clone(), tool.description.clone(), object(&tool.input))
        .with_title(&*tool.title)
        .with_raw_output_schema(object(&tool.output))
        .with_annotations(annotations(tool.annotations))
}

/// One of our tools.
pub(super) fn builtin_tool(tool: &BuiltinTool) -> Tool {
    Tool::new(tool.name, tool.description, object(&tool.input_schema()))
        .with_raw_output_schema(object(&tool.output_schema()))
        .with_annotations(annotations(tool.annotations))
}

/// The hints of a tool; the worst where they are unknown.
fn annotations(known: Annotations) -> ToolAnnotations {
    ToolAnnotations::new()
        .read_only(known.read_only.unwrap_or(false))
        .destructive(known.destructive.unwrap_or(true))
        .idempotent(known.idempotent.unwrap_or(false))
        .open_world(known.open_world.unwrap_or(true))
}

/// A tool result. The text is the value, exactly: some hosts show the one, some the other.
pub(super) fn result(result: ToolResult) -> CallToolResult {
    let mut content = vec![ContentBlock::text(result.text)];
    if let Some(uri) = result.link {
        let link = Resource::new(uri, "output").with_mime_type("application/json");
        content.push(ContentBlock::resource_link(link));
    }
    content.extend(result.content.into_iter().filter_map(block));
    let mut sent = match result.value {
        None => CallToolResult::error(content),
        Some(value) => {
            let mut sent = CallToolResult::success(content);
            sent.structured_content = Some(mark_numbers(&value));
            sent
        }
    };
    let run_id = result.run_id.map(|run_id| (RUN_ID.to_owned(), (*run_id).into()));
    let own = result.dialect_result.map(|own| (RESULT.to_owned(), mark_numbers(&own)));
    let errors = serde_json::to_value(&result.errors).ok().filter(|_| !result.errors.is_empty());
    let errors = errors.map(|errors| (ERRORS.to_owned(), errors));
    let members: Vec<_> = run_id.into_iter().chain(own).chain(errors).collect();
    sent.meta = (!members.is_empty()).then(|| {
        let mut meta = MetaObject::new();
        for (name, value) in members {
            meta.insert(name, value);
        }
        meta
    });
    sent
}

/// An item of content; nothing where the library cannot read it.
fn block(item: ContentItem) -> Option<ContentBlock> {
    match item {
        ContentItem::Whole(item) => serde_json::from_value(json(&item)).ok(),
        ContentItem::Link { uri, name, mime_type } => {
            let link = Resource::new(uri, name);
            Some(ContentBlock::resource_link(match mime_type {
                Some(mime_type) => link.with_mime_type(mime_type),
                None => link,
            }))
        }
    }
}

/// Writes a call to the audit log.
pub(super) fn audit(
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
    let status = audit_log::Status::Word(status);
    audit_log::log(who, "callTool", tool, run_id.as_deref(), status, request_id);
}

/// The arguments of a call, exact to the digit where the bytes of the message are known.
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
    let over_http = || context.extensions.get::<Parts>()?.extensions.get::<RawMessage>();
    let raw = context.extensions.get::<RawMessage>().or_else(over_http);
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

/// The ids of a request: from its metadata, or from the HTTP request that carried it.
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

/// The context of a caller, from the metadata of its request.
pub(super) fn caller_context(meta: &RequestMetaObject, limits: &Limits) -> Value {
    let text = meta.get(CONTEXT).map(ToString::to_string).unwrap_or_default();
    match read_json_value(&text, limits) {
        Ok(context @ Value::Object(_)) => context,
        _ => Value::empty_object(),
    }
}

/// A form, as a question of the protocol.
pub(super) fn elicitation(form: &QuestionForm) -> Result<ElicitRequest, ErrorData> {
    let schema = serde_json::from_value(json(&form.schema))
        .map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    let params = ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: form.message.clone(),
        requested_schema: schema,
    };
    Ok(ElicitRequest::new(params))
}

/// The questions of a response that asks, by their names.
pub(super) fn input_requests(
    forms: &BTreeMap<String, QuestionForm>,
) -> Result<BTreeMap<String, InputRequest>, ErrorData> {
    let request = |form| Ok(InputRequest::Elicitation(elicitation(form)?));
    forms.iter().map(|(name, form)| Ok((name.clone(), request(form)?))).collect()
}

/// The reply of a person to a form.
pub(super) fn reply(result: ElicitResult) -> FormReply {
    match result.action {
        ElicitationAction::Accept => {
            let content = result.content.unwrap_or(serde_json::Value::Null);
            FormReply::Accepted(match value(&content) {
                Value::Null => Value::empty_object(),
                content => content,
            })
        }
        ElicitationAction::Decline => FormReply::Declined,
        _ => FormReply::Dismissed,
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
