//! Numbers with more digits than the protocol library keeps: `18446744073709551616`, thirty digits of pi.
//!
//! The library reads every number into 64 bits. So each message travels with its bytes ([`RawMessage`]), and
//! numbers in responses are marks until the library has written them
//! ([`segue_runtime::tools::mcp::marked`]).

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http_body_util::BodyExt as _;
use rmcp::model::ClientJsonRpcMessage;
use segue_core::document::read_json_value;
use segue_core::limits::Limits;
use segue_core::value::{Number, Value};
use segue_runtime::tools::mcp::{mark_numbers, unmark_numbers};

use super::stdio::{RawMessage, no_message};
use crate::http::request::CollectedBody;

/// Where a client's message holds the answers of a person.
const ANSWERS: [&str; 2] = ["/result/content", "/params/inputResponses"];

/// A message with marks in place of numbers that the library would round in the answers of a person;
/// nothing when there are none.
pub(super) fn with_marks(message: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(message).ok()?;
    // Most messages hold no answers, and are not read twice.
    if !["\"action\"", "\"inputResponses\""].iter().any(|name| text.contains(name)) {
        return None;
    }
    let mut json: serde_json::Value = serde_json::from_str(text).ok()?;
    let at = ANSWERS.into_iter().find(|at| json.pointer(at).is_some())?;
    let whole = read_json_value(text, &Limits::default()).ok()?;
    let exact = at.split('/').skip(1).try_fold(&whole, |value, name| value.get(name))?;
    if !has_digits(exact) {
        return None;
    }
    *json.pointer_mut(at)? = mark_numbers(exact);
    serde_json::to_vec(&json).ok()
}

/// Whether a value has a number that the library would round.
fn has_digits(value: &Value) -> bool {
    match value {
        Value::Number(Number::Written(_)) => true,
        Value::Array(items) => items.iter().any(has_digits),
        Value::Object(members) => members.values().any(has_digits),
        _ => false,
    }
}

/// The middleware over HTTP: requests keep their bytes, and responses get numbers in place of their marks.
/// The library writes an event as one frame, so that no mark is cut.
pub(super) async fn preserve_numbers(
    State(bytes_max): State<usize>,
    request: Request,
    next: Next,
) -> Response {
    let (mut parts, body) = request.into_parts();
    let mut received = None;
    let body = if parts.method == Method::POST {
        let CollectedBody(bytes) = parts.extensions.get().cloned().unwrap_or_default();
        if bytes.len() > bytes_max {
            return StatusCode::PAYLOAD_TOO_LARGE.into_response();
        }
        let raw = RawMessage(bytes.to_vec().into());
        received = Some(raw.clone());
        parts.extensions.insert(raw);
        match with_marks(&bytes) {
            Some(marked) => Body::from(marked),
            None => Body::from(bytes),
        }
    } else {
        body
    };
    let response = next.run(Request::from_parts(parts, body)).await;
    // The library has this status for a body that is no message, too.
    if response.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE
        && let Some(RawMessage(text)) = received
        && let Err(error) = serde_json::from_slice::<ClientJsonRpcMessage>(&text)
    {
        let answer = serde_json::to_string(&no_message(&text, &error)).unwrap_or_default();
        let kind = [(header::CONTENT_TYPE, "application/json")];
        return (StatusCode::BAD_REQUEST, kind, answer).into_response();
    }
    response.map(|body| {
        Body::new(
            body.map_frame(|frame| frame.map_data(|data| unmark_numbers(data.to_vec()).into())),
        )
    })
}
