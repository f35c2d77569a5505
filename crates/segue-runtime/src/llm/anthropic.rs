//! The request and response formats of Anthropic's messages API.

use segue_core::planner::{ModelReply, Prompt, Role, StopReason};
use segue_core::value::Value;

use super::{Headers, usage};

/// The address of Anthropic's own API.
pub(super) const BASE_URL: &str = "https://api.anthropic.com";

/// The path of the messages API.
pub(super) const PATH: &str = "/v1/messages";

/// The API version, which every request names.
const VERSION: &str = "2023-06-01";

pub(super) fn headers(api_key: Option<&str>) -> Headers {
    let version = ("anthropic-version".to_owned(), VERSION.to_owned());
    let key = api_key.map(|key| ("x-api-key".to_owned(), key.to_owned()));
    [version].into_iter().chain(key).collect()
}

pub(super) fn body(model: &str, prompt: &Prompt) -> Value {
    let messages: Vec<Value> = prompt
        .messages
        .iter()
        .map(|(speaker, text)| {
            let role = match speaker {
                Role::User => "user",
                Role::Assistant => "assistant",
            };
            // The API rejects a message without text.
            let text = if text.trim().is_empty() { "(no text)" } else { text };
            Value::object([("role", Value::from(role)), ("content", Value::from(text))])
        })
        .collect();
    Value::object([
        ("model", Value::from(model)),
        ("max_tokens", Value::from(prompt.answer_tokens_max)),
        ("system", Value::from(prompt.instructions)),
        ("messages", Value::from(messages)),
    ])
}

pub(super) fn reply(body: &Value) -> Option<ModelReply> {
    let parts = body.get("content")?.as_array()?;
    let texts =
        parts.iter().filter(|part| part.get("type").and_then(Value::as_str) == Some("text"));
    let text: String = texts.filter_map(|part| part.get("text")?.as_str()).collect();
    let stop = match body.get("stop_reason").and_then(Value::as_str) {
        Some("refusal") => StopReason::Refused("".into()),
        Some("max_tokens" | "model_context_window_exceeded") => StopReason::Length,
        _ => StopReason::Finished,
    };
    let read = &["input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"];
    Some(ModelReply { text: text.into(), stop, usage: usage(body, read, "output_tokens") })
}
