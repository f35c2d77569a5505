//! Translates a server's answer into the value of the call, or into an error.

use std::borrow::Cow;
use std::collections::BTreeMap;

use segue_core::diagnostic::Code;
use segue_core::document::read_json_value;
use segue_core::limits::Limits;
use segue_core::value::Value;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::pending::{ElicitationForm, object};
use crate::tools::ToolError;
use crate::tools::mcp::definition::strip_invisible;

/// The fields of an answer that decide its meaning.
#[derive(Deserialize)]
pub(crate) struct ParsedResult<'a> {
    #[serde(borrow, default, rename = "structuredContent")]
    structured: Option<&'a RawValue>,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(default, rename = "isError")]
    is_error: Option<bool>,
    #[serde(borrow, default, rename = "resultType")]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    task: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "inputRequests")]
    input_requests: Option<&'a RawValue>,
    #[serde(default, rename = "requestState")]
    state: Option<String>,
}

/// The questions of a server by name, and the state that it wants back with the answers.
pub(crate) type Forms = (BTreeMap<String, ElicitationForm>, Option<String>);

impl<'a> ParsedResult<'a> {
    /// Parses an answer. The error says why it does not parse.
    pub(crate) fn read(raw: &'a RawValue) -> Result<ParsedResult<'a>, String> {
        object(raw)
    }

    /// Whether it may be a task handle.
    pub(crate) fn may_be_task(&self) -> bool {
        self.task.is_some() || self.kind.as_deref() == Some("task")
    }

    /// The server's questions by name, and the state that it wants back. `None` when it does not
    /// ask, or asks for anything but forms.
    pub(crate) fn forms(&self) -> Option<Forms> {
        if self.kind.as_deref() != Some("input_required") {
            return None;
        }
        Some((forms_in(self.input_requests?)?, self.state.clone()))
    }

    /// The value of a call: `structuredContent`; else a single text as JSON; else that text; else
    /// the items; else null. An answer with `isError` is an error.
    pub(crate) fn value(&self, server: &str, limits: &Limits) -> Result<Value, ToolError> {
        let unread = |error: &dyn std::fmt::Display| malformed(server, error);
        match self.kind.as_deref() {
            None | Some("complete") => {}
            Some("input_required") => return Err(wants_input(server, self.input_requests)),
            Some(kind) => {
                return Err(unread(&format!("a result of type `{}`", strip_invisible(kind, 64))));
            }
        }
        let read = |raw: &RawValue| {
            read_json_value(raw.get(), limits).map_err(|finding| {
                ToolError::refused(
                    finding.code,
                    format!("the answer of `{server}`: {}", finding.message),
                )
            })
        };
        let content = self.content.map(read).transpose()?.unwrap_or(Value::Null);
        if self.is_error == Some(true) {
            return Err(ToolError::failed(text_of(&content).unwrap_or_else(|| {
                let structured = self.structured.map(|raw| raw.get().to_owned());
                structured.unwrap_or_else(|| "the tool failed and did not say why".to_owned())
            })));
        }
        if let Some(structured) = self.structured {
            return read(structured);
        }
        match content {
            Value::Null => Ok(Value::Null),
            Value::Array(items) if items.is_empty() => Ok(Value::Null),
            Value::Array(items) => match single_text(&items) {
                Some(text) => {
                    Ok(read_json_value(text, limits).unwrap_or_else(|_| Value::from(text)))
                }
                None => Ok(Value::Array(items)),
            },
            other => Err(unread(&format!("`content` is {}, not a list", other.kind()))),
        }
    }
}

/// The forms of input requests by name. `None` when any of them is no form.
pub(crate) fn forms_in(requests: &RawValue) -> Option<BTreeMap<String, ElicitationForm>> {
    #[derive(Deserialize)]
    struct Asked<'a> {
        method: String,
        #[serde(borrow)]
        params: Params<'a>,
    }
    #[derive(Deserialize)]
    struct Params<'a> {
        mode: Option<String>,
        message: String,
        #[serde(borrow, default, rename = "requestedSchema")]
        schema: Option<&'a RawValue>,
    }
    let asked: BTreeMap<String, Asked<'_>> = serde_json::from_str(requests.get()).ok()?;
    let form = |(name, Asked { method, params }): (String, Asked<'_>)| {
        let is_form = params.mode.as_deref().is_none_or(|mode| mode == "form");
        let schema = params.schema.map_or(r#"{"type":"object"}"#, RawValue::get);
        let schema = read_json_value(schema, &Limits::default()).ok()?;
        let form = ElicitationForm { message: params.message, schema };
        (method == "elicitation/create" && is_form).then_some((name, form))
    };
    asked.into_iter().map(form).collect()
}

fn single_text(items: &[Value]) -> Option<&str> {
    match items {
        [item] if item.get("type").and_then(Value::as_str) == Some("text") => {
            item.get("text").and_then(Value::as_str)
        }
        _ => None,
    }
}

/// The texts of an error, joined.
fn text_of(content: &Value) -> Option<String> {
    let items = content.as_array()?;
    let texts: Vec<&str> =
        items.iter().filter_map(|item| item.get("text").and_then(Value::as_str)).collect();
    (!texts.is_empty()).then(|| texts.join("\n"))
}

pub(crate) fn malformed(server: &str, why: &dyn std::fmt::Display) -> ToolError {
    ToolError::refused(Code::ToolError, format!("the answer of `{server}` cannot be used: {why}"))
}

/// The error for a server that asks a person during a call without one: declined, and the call is
/// over.
fn wants_input(server: &str, requests: Option<&RawValue>) -> ToolError {
    let requests =
        requests.and_then(|raw| serde_json::from_str::<serde_json::Value>(raw.get()).ok());
    let wanted = requests.as_ref().and_then(serde_json::Value::as_object).and_then(|requests| {
        requests.values().find_map(|request| request.pointer("/params/message")?.as_str())
    });
    declined(server, wanted.unwrap_or("input"))
}

pub(crate) fn declined(server: &str, wanted: &str) -> ToolError {
    let wanted = strip_invisible(wanted, 300);
    let message = format!(
        "the server `{server}` asks a person: “{wanted}”; no person can be asked, so Segue declined"
    );
    ToolError::refused(Code::Denied, message)
}

#[cfg(test)]
mod tests {
    use segue_core::diagnostic::Code;
    use segue_core::limits::Limits;
    use serde_json::value::RawValue;

    use super::{ParsedResult, malformed};
    use crate::tools::ToolError;

    fn read(json: &str) -> Result<String, ToolError> {
        let raw = RawValue::from_string(json.to_owned()).unwrap();
        let called = ParsedResult::read(&raw).map_err(|error| malformed("s", &error))?;
        called.value("s", &Limits::default()).map(|value| value.to_json())
    }

    #[test]
    fn the_value_is_what_the_rule_says() {
        for (json, expected) in [
            (
                r#"{"structuredContent":{"b":1,"a":18446744073709551616},"content":[]}"#,
                r#"{"b":1,"a":18446744073709551616}"#,
            ),
            (r#"{"content":[{"type":"text","text":"{\"n\":1}"}]}"#, r#"{"n":1}"#),
            (r#"{"content":[{"type":"text","text":"hi"}]}"#, r#""hi""#),
            (
                r#"{"content":[{"type":"text","text":"1"},{"type":"text","text":"2"}]}"#,
                r#"[{"type":"text","text":"1"},{"type":"text","text":"2"}]"#,
            ),
            (r#"{"content":[{"type":"image","data":"x"}]}"#, r#"[{"type":"image","data":"x"}]"#),
            (r#"{"content":[]}"#, "null"),
            ("{}", "null"),
            (r#"{"structuredContent":null,"content":[{"type":"text","text":"t"}]}"#, r#""t""#),
        ] {
            assert_eq!(read(json).unwrap(), expected, "{json}");
        }
    }

    #[test]
    fn an_error_is_never_a_value() {
        let failed = read(
            r#"{"isError":true,"content":[{"type":"text","text":"no"}],"structuredContent":{}}"#,
        );
        assert_eq!(failed, Err(ToolError::failed("no")));
        assert!(read(r#"{"isError":true}"#).is_err());
        for wrong in
            ["[]", "1", r#"{"content":"text"}"#, r#"{"isError":"yes"}"#, r#"{"resultType":"task"}"#]
        {
            assert!(
                matches!(read(wrong), Err(ToolError::Refused { retryable: false, .. })),
                "{wrong}"
            );
        }
    }

    #[test]
    fn a_question_is_declined_in_the_name_of_its_server() {
        let json = r#"{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{"message":"Your card number?"}}}}"#;
        let Err(ToolError::Refused { code: Code::Denied, message, .. }) = read(json) else {
            panic!("not declined")
        };
        assert!(message.contains("`s`") && message.contains("Your card number?"));
    }

    /// Content next to the structured value must obey the same limits, although it is not used.
    #[test]
    fn items_beside_a_structure_are_refused_when_they_are_wrong() {
        let deep = format!("{}{}", "[".repeat(2_000), "]".repeat(2_000));
        for content in [r#"[{"a":1,"a":2}]"#, r#"["\ud800"]"#, deep.as_str()] {
            let json = format!(r#"{{"structuredContent":{{"b":1}},"content":{content}}}"#);
            assert!(matches!(read(&json), Err(ToolError::Refused { .. })), "{content:.40}");
        }
    }

    /// Escapes in a key do not change its meaning.
    #[test]
    fn a_question_is_known_however_it_is_spelled() {
        let asked = r#"{"a":{"method":"elicitation/create","params":{"message":"Name?"}}}"#;
        let json =
            format!(r#"{{"resultType":"input\u005frequired","input\u0052equests":{asked}}}"#);
        let raw = RawValue::from_string(json).unwrap();
        let (forms, state) = ParsedResult::read(&raw).unwrap().forms().unwrap();
        assert_eq!((forms["a"].message.as_str(), state), ("Name?", None));
    }
}
