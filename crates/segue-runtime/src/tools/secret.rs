//! Secrets of the configuration: whatever a tool says, they are taken out before anybody sees it.
//!
//! A tool gets its secrets from its configuration, not from a composition, so nothing of a run needs
//! them. They are looked for where a tool's answer enters Segue, in the forms in which they travel,
//! and so reach no journal, no log, no error and no other tool.

use std::sync::Arc;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use regex::Regex;
use segue_core::value::Value;

use super::{Call, Tool, ToolError, ToolRunner};

/// What stands in a secret's place.
const REDACTED: &str = "«secret»";

/// Shorter values are words and numbers that stand everywhere, not secrets.
const SECRET_BYTES_MIN: usize = 8;

/// Values that nobody may see.
#[derive(Clone)]
pub struct Secrets {
    any: Option<Arc<Regex>>,
}

impl Secrets {
    /// These values, in every form in which they may come back.
    pub fn new(values: impl IntoIterator<Item = String>) -> Secrets {
        let mut forms: Vec<String> = values
            .into_iter()
            .filter(|value| value.len() >= SECRET_BYTES_MIN)
            .flat_map(|value| forms_of(&value))
            .collect();
        // Of two that begin alike the longer one is meant.
        forms.sort_by_key(|form| std::cmp::Reverse(form.len()));
        forms.dedup();
        let pattern: Vec<String> = forms.iter().map(|form| regex::escape(form)).collect();
        let any = (!pattern.is_empty()).then(|| {
            let any = Regex::new(&pattern.join("|"));
            Arc::new(any.expect("literals make a pattern"))
        });
        Secrets { any }
    }

    /// The text without them.
    pub(crate) fn clean(&self, text: &str) -> String {
        match &self.any {
            None => text.to_owned(),
            Some(any) => any.replace_all(text, REDACTED).into_owned(),
        }
    }

    /// The tool, whose answers tell nothing.
    #[must_use]
    pub fn around_tool(&self, tool: Tool) -> Tool {
        match &self.any {
            None => tool,
            Some(any) => {
                let runner = Discreet { secrets: any.clone(), inner: tool.runner };
                Tool { spec: tool.spec, runner: Arc::new(runner) }
            }
        }
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
    forms.sort_unstable();
    forms.dedup();
    forms
}

struct Discreet {
    secrets: Arc<Regex>,
    inner: Arc<dyn ToolRunner>,
}

#[async_trait]
impl ToolRunner for Discreet {
    async fn call(&self, call: Call) -> Result<Value, ToolError> {
        match self.inner.call(call).await {
            Ok(value) => Ok(redacted(&self.secrets, &value).unwrap_or(value)),
            Err(mut error) => {
                let (ToolError::Refused { message, .. }
                | ToolError::Unreachable { message, .. }
                | ToolError::Silent { message }) = &mut error;
                *message = self.secrets.replace_all(message, REDACTED).into_owned();
                Err(error)
            }
        }
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
}
