//! Redacts configured secrets from everything that a tool answers.
//!
//! A tool gets its secrets from its configuration, not from a composition, so no run needs them.
//! They are redacted where an answer enters Segue, in every encoding in which they travel. They
//! therefore reach no journal, no log, no error and no other tool.

use std::cell::RefCell;
use std::sync::Arc;

use async_trait::async_trait;
use segue_core::secret::SecretFinder;
use segue_core::value::Value;

use super::{Tool, ToolError, ToolRequest, ToolRunner};

/// Replaces a secret.
const REDACTED: &str = "«secret»";

/// Shorter values are common words and numbers, not secrets.
pub const SECRET_BYTES_MIN: usize = 8;

/// Secret values.
#[derive(Clone, Default)]
pub struct Secrets {
    values: Arc<[String]>,
    finder: Arc<SecretFinder>,
}

impl Secrets {
    /// Finds these values in every encoding in which they may come back.
    pub fn new(values: impl IntoIterator<Item = String>) -> Secrets {
        let values: Arc<[String]> =
            values.into_iter().filter(|value| value.len() >= SECRET_BYTES_MIN).collect();
        let finder = Arc::new(SecretFinder::new(values.iter().map(String::as_str)));
        Secrets { values, finder }
    }

    /// These secrets and more values.
    pub(crate) fn and(&self, others: Vec<String>) -> Secrets {
        Secrets::new(self.values.iter().cloned().chain(others))
    }

    /// These secrets and others.
    #[must_use]
    pub fn with(&self, others: &Secrets) -> Secrets {
        let more = others.values.iter().filter(|value| !self.values.contains(value));
        let more: Vec<String> = more.cloned().collect();
        if more.is_empty() { self.clone() } else { self.and(more) }
    }

    /// Redacts a tool's outcome.
    pub(crate) fn redact_outcome(
        &self,
        outcome: Result<Value, ToolError>,
    ) -> Result<Value, ToolError> {
        if self.finder.is_empty() {
            return outcome;
        }
        match outcome {
            Ok(value) => Ok(self.redact_value(value)),
            Err(mut error) => {
                let (ToolError::Refused { message, .. }
                | ToolError::Unreachable { message, .. }
                | ToolError::NoAnswer { message }) = &mut error;
                *message = self.redact(message);
                Err(error)
            }
        }
    }

    /// Redacts a text.
    pub fn redact(&self, text: &str) -> String {
        self.finder.replace(text, REDACTED).unwrap_or_else(|| text.to_owned())
    }

    /// Redacts a value.
    pub(crate) fn redact_value(&self, value: Value) -> Value {
        if self.finder.is_empty() {
            return value;
        }
        value.map_texts(&|text| self.finder.replace(text, REDACTED)).unwrap_or(value)
    }

    /// The secrets that a value contains, in any encoding.
    pub(crate) fn found_in(&self, value: &Value) -> Vec<String> {
        let found = RefCell::new(Vec::new());
        if !self.finder.is_empty() {
            value.map_texts(&|text| {
                if self.finder.is_found_in(text) {
                    let is_here =
                        |secret: &&String| SecretFinder::new([secret.as_str()]).is_found_in(text);
                    found.borrow_mut().extend(self.values.iter().filter(is_here).cloned());
                }
                None
            });
        }
        found.take()
    }

    /// Redacts several values.
    pub(crate) fn redact_all(&self, values: Vec<Value>) -> Vec<Value> {
        if self.finder.is_empty() {
            return values;
        }
        values.into_iter().map(|value| self.redact_value(value)).collect()
    }

    /// Wraps a tool: its answers and questions are redacted.
    #[must_use]
    pub fn wrap(&self, tool: Tool) -> Tool {
        if self.finder.is_empty() {
            return tool;
        }
        let runner = Redacting { secrets: self.clone(), inner: tool.runner };
        Tool { spec: tool.spec, runner: Arc::new(runner) }
    }
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(REDACTED)
    }
}

struct Redacting {
    secrets: Secrets,
    inner: Arc<dyn ToolRunner>,
}

#[async_trait]
impl ToolRunner for Redacting {
    async fn call(&self, mut call: ToolRequest) -> Result<Value, ToolError> {
        call.asker = call.asker.map(|asker| asker.redacting(&self.secrets));
        self.secrets.redact_outcome(self.inner.call(call).await)
    }

    fn may_ask(&self) -> bool {
        self.inner.may_ask()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D2: a secret is redacted in every encoding; a value without one is unchanged.
    #[test]
    fn no_form_of_a_secret_gets_through() {
        let secrets = Secrets::new(["s3cr3t/\"token\"+1".to_owned(), "short".to_owned()]);
        for form in
            ["s3cr3t/\"token\"+1", "s3cr3t%2f%22token%22%2B1", "s3cr3t\\/\\\"token\\u0022+1"]
        {
            let value = Value::object([
                ("deep", Value::from(vec![Value::from(format!("a{form}b"))])),
                (form, Value::from(1)),
            ]);
            let clean = secrets.redact_value(value).to_json();
            assert!(clean.contains("a«secret»b") && !clean.contains("token"), "{form}: {clean}");
        }
        let other = Value::from("a short story");
        assert_eq!(secrets.redact_value(other.clone()), other);
    }
}
