//! Numbers with more digits than the protocol library keeps: `18446744073709551616`, thirty digits of pi.
//!
//! The library reads every number into 64 bits. So what comes is kept beside what it reads ([`Raw`]),
//! and what leaves has marks in the library's hands ([`segue_runtime::tools::mcp::marked`]).

use axum::body::{Body, to_bytes};
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

use super::stdio::{Raw, no_message};

/// Where a client's message holds what people have answered.
const ANSWERS: [&str; 2] = ["/result/content", "/params/inputResponses"];

/// A message that came, with marks in place of numbers that the library would round in what people have
/// answered; nothing when there are none.
pub(super) fn with_marks(message: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(message).ok()?;
    // Most messages are none of these, and are not read twice.
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

/// Messages over HTTP: what comes is kept as it came, and what leaves has its numbers in place of their
/// marks. An event is written as one piece, so that no mark is cut.
pub(super) async fn exactly(
    State(bytes_max): State<usize>,
    request: Request,
    next: Next,
) -> Response {
    let (mut parts, body) = request.into_parts();
    let mut came = None;
    let body = if parts.method == Method::POST {
        let Ok(bytes) = to_bytes(body, bytes_max).await else {
            return StatusCode::PAYLOAD_TOO_LARGE.into_response();
        };
        let raw = Raw(bytes.to_vec().into());
        came = Some(raw.clone());
        parts.extensions.insert(raw);
        match with_marks(&bytes) {
            Some(marked) => Body::from(marked),
            None => Body::from(bytes),
        }
    } else {
        body
    };
    let response = next.run(Request::from_parts(parts, body)).await;
    // The library says so of a body that is no message as well as of one of another kind.
    if response.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE
        && let Some(Raw(text)) = came
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
