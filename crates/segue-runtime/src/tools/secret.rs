//! Secrets of the configuration: whatever a tool says, they are taken out before anybody sees it.
//!
//! A tool gets its secrets from its configuration, not from a composition, so nothing of a run needs
//! them. They are looked for where a tool's answer enters Segue, in the forms in which they travel,
//! and so reach no journal, no log, no error and no other tool.

use std::cell::RefCell;
use std::sync::Arc;

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use regex::Regex;
use segue_core::value::Value;

use super::{Call, Tool, ToolError, ToolRunner};

/// What stands in a secret's place.
const REDACTED: &str = "«secret»";

/// Shorter values are words and numbers that stand everywhere, not secrets.
pub const SECRET_BYTES_MIN: usize = 8;

/// Values that nobody may see.
#[derive(Clone, Default)]
pub struct Secrets {
    values: Arc<[String]>,
    any: Option<Arc<Regex>>,
}

impl Secrets {
    /// These values, in every form in which they may come back.
    pub fn new(values: impl IntoIterator<Item = String>) -> Secrets {
        let values: Arc<[String]> =
            values.into_iter().filter(|value| value.len() >= SECRET_BYTES_MIN).collect();
        let mut forms: Vec<String> = values.iter().flat_map(|value| forms_of(value)).collect();
        // Of two that begin alike the longer one is meant.
        forms.sort_by_key(|form| std::cmp::Reverse(form.len()));
        forms.dedup();
        let pattern: Vec<String> = forms.iter().map(|form| regex::escape(form)).collect();
        let any = (!pattern.is_empty()).then(|| {
            let any = Regex::new(&pattern.join("|"));
            Arc::new(any.expect("literals make a pattern"))
        });
        Secrets { values, any }
    }

    /// These and others.
    pub(crate) fn and(&self, others: Vec<String>) -> Secrets {
        Secrets::new(self.values.iter().cloned().chain(others))
    }

    /// These and those.
    pub(crate) fn with(&self, others: &Secrets) -> Secrets {
        let more = others.values.iter().filter(|value| !self.values.contains(value));
        let more: Vec<String> = more.cloned().collect();
        if more.is_empty() { self.clone() } else { self.and(more) }
    }

    /// What a tool answered, without them.
    pub(crate) fn clean_outcome(
        &self,
        outcome: Result<Value, ToolError>,
    ) -> Result<Value, ToolError> {
        if self.any.is_none() {
            return outcome;
        }
        match outcome {
            Ok(value) => Ok(self.clean_value(value)),
            Err(mut error) => {
                let (ToolError::Refused { message, .. }
                | ToolError::Unreachable { message, .. }
                | ToolError::Silent { message }) = &mut error;
                *message = self.clean(message);
                Err(error)
            }
        }
    }

    /// The text without them.
    pub fn clean(&self, text: &str) -> String {
        match &self.any {
            None => text.to_owned(),
            Some(any) => any.replace_all(text, REDACTED).into_owned(),
        }
    }

    /// The value without them.
    pub(crate) fn clean_value(&self, value: Value) -> Value {
        let clean = self.any.as_ref().and_then(|any| redacted(any, &value));
        clean.unwrap_or(value)
    }

    /// Those of them that stand in a value as they are.
    pub(crate) fn found_in(&self, value: &Value) -> Vec<String> {
        let found = RefCell::new(Vec::new());
        if self.any.is_some() {
            value.map_texts(&|text| {
                let here = self.values.iter().filter(|secret| text.contains(secret.as_str()));
                found.borrow_mut().extend(here.cloned());
                None
            });
        }
        found.take()
    }

    /// The values without them.
    pub(crate) fn clean_all(&self, values: Vec<Value>) -> Vec<Value> {
        match &self.any {
            None => values,
            Some(_) => values.into_iter().map(|value| self.clean_value(value)).collect(),
        }
    }

    /// The tool, whose answers and questions tell nothing.
    #[must_use]
    pub fn around_tool(&self, tool: Tool) -> Tool {
        if self.any.is_none() {
            return tool;
        }
        let runner = Discreet { secrets: self.clone(), inner: tool.runner };
        Tool { spec: tool.spec, runner: Arc::new(runner) }
    }
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(REDACTED)
    }
}

fn forms_of(value: &str) -> Vec<String> {
    let json = Value::from(value).to_json();
    let hex = value.bytes().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
    let mut forms = vec![
        value.to_owned(),
        json[1..json.len() - 1].to_owned(),
        STANDARD.encode(value),
        URL_SAFE_NO_PAD.encode(value),
        utf8_percent_encode(value, NON_ALPHANUMERIC).to_string(),
        hex.to_uppercase(),
        hex,
    ];
    for before in 0..3 {
        forms.push(inside_base64(&STANDARD, value, before));
        forms.push(inside_base64(&URL_SAFE_NO_PAD, value, before));
    }
    forms.sort_unstable();
    forms.dedup();
    forms
}

/// What base64 makes of a value after so many other bytes, as in `user:TOKEN`: the characters that
/// depend on nothing else.
fn inside_base64(engine: &impl Engine, value: &str, before: usize) -> String {
    let bytes = [&[0; 2][..before], value.as_bytes()].concat();
    let (first, last) = ((before * 8).div_ceil(6), bytes.len() * 8 / 6);
    engine.encode(&bytes)[first..last].to_owned()
}

struct Discreet {
    secrets: Secrets,
    inner: Arc<dyn ToolRunner>,
}

#[async_trait]
impl ToolRunner for Discreet {
    async fn call(&self, mut call: Call) -> Result<Value, ToolError> {
        call.asker = call.asker.map(|asker| asker.discreet(&self.secrets));
        self.secrets.clean_outcome(self.inner.call(call).await)
    }

    fn may_ask(&self) -> bool {
        self.inner.may_ask()
    }
}

/// The value without secrets; nothing when it has none.
fn redacted(secrets: &Regex, value: &Value) -> Option<Value> {
    value.map_texts(&|text| {
        secrets.is_match(text).then(|| secrets.replace_all(text, REDACTED).into_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D2: in whatever form a secret comes back, it is taken out; what has none is left alone.
    #[test]
    fn no_form_of_a_secret_gets_through() {
        let secret = "s3cr3t/\"token\"+1";
        let secrets = Secrets::new([secret.to_owned(), "short".to_owned()]).any.unwrap();
        for form in forms_of(secret) {
            let value = Value::object([
                ("deep", Value::from(vec![Value::from(format!("a{form}b"))])),
                (form.as_str(), Value::from(1)),
            ]);
            let clean = redacted(&secrets, &value).unwrap().to_json();
            assert!(!clean.contains(&form), "{clean}");
            assert!(clean.contains("a«secret»b"), "{clean}");
        }
        assert!(redacted(&secrets, &Value::from("a short story")).is_none());
    }

    /// D2: also where something stands around it, as in a header of basic authentication.
    #[test]
    fn base64_of_more_than_a_secret_does_not_get_through() {
        let secrets = Secrets::new(["s3cr3t/token?1".to_owned()]).any.unwrap();
        for around in ["", "u", "us", "use"] {
            let text = format!("{around}:s3cr3t/token?1{around}");
            for encoded in [STANDARD.encode(&text), URL_SAFE_NO_PAD.encode(&text)] {
                let clean = redacted(&secrets, &Value::from(encoded.as_str())).unwrap().to_string();
                let left = clean.replace(REDACTED, "").len();
                assert!(left <= (2 * around.len() + 4) * 2, "{encoded}: {clean}");
            }
        }
    }
}
