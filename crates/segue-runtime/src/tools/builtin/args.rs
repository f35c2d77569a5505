//! Arguments → Rust values, by name.
//!
//! The engine has checked them against the tool's schema. An argument that is missing all the same
//! is the caller's mistake: it ends in `input-schema`, never in a panic.

use std::sync::Arc;

use segue_core::diagnostic::Code;
use segue_core::value::Value;

use crate::tools::ToolError;

/// The arguments of one call.
#[derive(Clone, Copy)]
pub(super) struct ToolArgs<'a>(pub(super) &'a Value);

impl<'a> ToolArgs<'a> {
    /// An argument; `null` is a value, absence is not.
    pub(super) fn value(self, name: &str) -> Option<&'a Value> {
        self.0.get(name)
    }

    pub(super) fn text(self, name: &str) -> Result<&'a Arc<str>, ToolError> {
        self.optional_text(name)?.ok_or_else(|| wrong(name, "is missing"))
    }

    pub(super) fn optional_text(self, name: &str) -> Result<Option<&'a Arc<str>>, ToolError> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(wrong(name, "is not text")),
        }
    }

    pub(super) fn text_or(self, name: &str, default: &'a str) -> Result<&'a str, ToolError> {
        Ok(self.optional_text(name)?.map_or(default, |text| text))
    }

    pub(super) fn flag_or(self, name: &str, default: bool) -> Result<bool, ToolError> {
        let Some(value) = self.value(name) else { return Ok(default) };
        value.as_bool().ok_or_else(|| wrong(name, "is not `true` or `false`"))
    }

    pub(super) fn count(self, name: &str) -> Result<Option<u64>, ToolError> {
        let Some(value) = self.value(name) else { return Ok(None) };
        // JSON Schema counts `3.0` as an integer, so it is accepted.
        let whole =
            |float: f64| ((0.0..2e15).contains(&float) && float.fract() == 0.0).then_some(float);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "checked above"
        )]
        let count = value.as_u64().or_else(|| value.as_f64().and_then(whole).map(|f| f as u64));
        count.map(Some).ok_or_else(|| wrong(name, "is not a count"))
    }

    pub(super) fn count_or(self, name: &str, default: usize) -> Result<usize, ToolError> {
        let count = self.count(name)?;
        Ok(count.map_or(default, |count| usize::try_from(count).unwrap_or(usize::MAX)))
    }

    pub(super) fn number_or(self, name: &str, default: f64) -> Result<f64, ToolError> {
        let Some(value) = self.value(name) else { return Ok(default) };
        value.as_f64().ok_or_else(|| wrong(name, "is not a number"))
    }

    /// A list of texts; empty when it is absent.
    pub(super) fn texts(self, name: &str) -> Result<Vec<&'a str>, ToolError> {
        let Some(value) = self.value(name) else { return Ok(Vec::new()) };
        let items = value.as_array().ok_or_else(|| wrong(name, "is not a list"))?;
        let texts: Option<Vec<&str>> = items.iter().map(Value::as_str).collect();
        texts.ok_or_else(|| wrong(name, "has an item that is not text"))
    }
}

fn wrong(name: &str, what: &str) -> ToolError {
    ToolError::refused(Code::InputSchema, format!("`{name}` {what}"))
}
