//! The request and response formats of OpenAI's chat completions, as OpenAI, local servers and
//! gateways speak them.

use segue_core::planner::{ModelReply, Prompt, Role, StopReason};
use segue_core::value::Value;

use super::{Headers, usage};

/// The address of OpenAI's own API.
pub(super) const BASE_URL: &str = "https://api.openai.com/v1";

/// The path of the chat completions API.
pub(super) const PATH: &str = "/chat/completions";

pub(super) fn headers(api_key: Option<&str>) -> Headers {
    let key = api_key.map(|key| ("authorization".to_owned(), format!("Bearer {key}")));
    key.into_iter().collect()
}

/// `is_own` means OpenAI itself, which rejects the field for the answer's length limit that all
/// other servers know.
pub(super) fn body(model: &str, prompt: &Prompt, is_own: bool) -> Value {
    let message = |role: &str, text: &str| {
        Value::object([("role", Value::from(role)), ("content", Value::from(text))])
    };
    let mut messages = vec![message("system", prompt.instructions)];
    messages.extend(prompt.messages.iter().map(|(speaker, text)| match speaker {
        Role::User => message("user", text),
        Role::Assistant => message("assistant", text),
    }));
    let bound = if is_own { "max_completion_tokens" } else { "max_tokens" };
    Value::object([
        ("model", Value::from(model)),
        ("messages", Value::from(messages)),
        (bound, Value::from(prompt.answer_tokens_max)),
        ("stream", Value::Bool(false)),
    ])
}

pub(super) fn reply(body: &Value) -> Option<ModelReply> {
    let choice = body.get("choices")?.at(0)?;
    let message = choice.get("message")?;
    let text = match message.get("content") {
        Some(Value::String(text)) => text.clone(),
        None | Some(Value::Null) => "".into(),
        Some(_) => return None,
    };
    let refusal = message.get("refusal").and_then(Value::as_str);
    let stop = match (choice.get("finish_reason").and_then(Value::as_str), refusal) {
        (_, Some(why)) => StopReason::Refused(why.into()),
        (Some("content_filter"), None) => StopReason::Refused("".into()),
        (Some("length"), None) => StopReason::Length,
        _ => StopReason::Finished,
    };
    Some(ModelReply { text, stop, usage: usage(body, &["prompt_tokens"], "completion_tokens") })
}
