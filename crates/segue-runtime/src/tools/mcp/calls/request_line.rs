//! Outgoing messages as text, with the exact arguments of a call.

use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, GetMeta as _, InputResponses, RequestId, RequestMetaObject,
};
use segue_core::value::Value;
use serde::Serialize;

use super::CallParams;
use super::exact_numbers::unmark_numbers;
use super::pending::PendingRequest;

/// The idempotency key in the metadata of a call: equal for all attempts of the same work.
pub(crate) const KEY: &str = "segue/idempotencyKey";

/// The trace context in the metadata of a call.
pub(crate) const TRACEPARENT: &str = "traceparent";

/// The text of a direct call, with the client metadata of every request.
pub(crate) fn call(id: i64, calling: &CallParams<'_>, manner: &str) -> String {
    let mut line = String::with_capacity(512 + manner.len());
    line.push_str(r#"{"jsonrpc":"2.0","id":"#);
    integer(&mut line, id);
    line.push_str(r#","method":"tools/call","params":{"name":"#);
    text(&mut line, calling.tool);
    line.push_str(r#","arguments":"#);
    calling.args.write_json(&mut line);
    if let Some((responses, state)) = &calling.answers {
        line.push_str(r#","inputResponses":"#);
        let responses = responses.clone().into_iter().collect();
        let mut written = String::new();
        Value::from(serde_json::Value::Object(responses)).write_json(&mut written);
        line.push_str(&exact(written));
        if let Some(state) = state {
            line.push_str(r#","requestState":"#);
            text(&mut line, state);
        }
    }
    if let Some(ttl) = calling.task_ms {
        line.push_str(r#","task":{"ttl":"#);
        Value::from(ttl).write_json(&mut line);
        line.push('}');
    }
    line.push_str(r#","_meta":{"#);
    line.push_str(manner);
    if let Some(traceparent) = calling.traceparent {
        member(&mut line, TRACEPARENT, traceparent);
    }
    member(&mut line, KEY, calling.key);
    line.push_str(r#""progressToken":"#);
    integer(&mut line, id);
    line.push_str("}}}");
    line
}

fn member(line: &mut String, name: &str, value: &str) {
    text(line, name);
    line.push(':');
    text(line, value);
    line.push(',');
}

fn text(line: &mut String, text: &str) {
    Value::from(text).write_json(line);
}

fn integer(line: &mut String, integer: i64) {
    Value::from(integer).write_json(line);
}

/// The text of an outgoing message, with the exact arguments of a call.
pub(crate) fn encode(
    message: &ClientJsonRpcMessage,
    slot: Option<&PendingRequest>,
) -> Result<String, serde_json::Error> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Params<'a> {
        name: &'a str,
        arguments: &'a Value,
        #[serde(skip_serializing_if = "Option::is_none")]
        input_responses: Option<&'a InputResponses>,
        #[serde(skip_serializing_if = "Option::is_none")]
        request_state: Option<&'a String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        task: Option<Wanted>,
        #[serde(rename = "_meta")]
        meta: &'a RequestMetaObject,
    }
    #[derive(Serialize)]
    struct Wanted {
        ttl: u64,
    }
    #[derive(Serialize)]
    struct Line<'a> {
        jsonrpc: &'static str,
        id: &'a RequestId,
        method: &'static str,
        params: Params<'a>,
    }
    if let ClientJsonRpcMessage::Request(request) = message
        && let ClientRequest::CallToolRequest(call) = &request.request
        && let Some(arguments) = slot.and_then(|slot| slot.arguments.as_ref())
    {
        let line = serde_json::to_string(&Line {
            jsonrpc: "2.0",
            id: &request.id,
            method: "tools/call",
            params: Params {
                name: &call.params.name,
                arguments,
                input_responses: call.params.input_responses.as_ref(),
                request_state: call.params.request_state.as_ref(),
                task: slot.and_then(|slot| slot.task_ms).map(|ttl| Wanted { ttl }),
                meta: request.request.get_meta(),
            },
        });
        return if call.params.input_responses.is_some() { line.map(exact) } else { line };
    }
    serde_json::to_string(message).map(exact)
}

/// People's answers with all their digits.
fn exact(line: String) -> String {
    String::from_utf8(unmark_numbers(line.into_bytes()))
        .expect("digits in place of a mark are valid UTF-8")
}
