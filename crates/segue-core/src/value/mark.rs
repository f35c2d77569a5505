//! The mark that stands in the place of a sensitive value wherever values are written down.

use super::Value;

/// The mark that replaces a sensitive value.
pub(crate) const SENSITIVE: &str = "«sensitive»";

impl Value {
    /// Whether the mark stands anywhere in the value, names included. An array or object is walked
    /// once: it remembers the answer.
    pub fn is_marked(&self) -> bool {
        match self {
            Value::String(text) => is_marked_text(text),
            Value::Array(items) => items.is_marked(),
            Value::Object(members) => members.is_marked(),
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
        }
    }
}

/// Whether the mark stands in a text. Inputs may have millions of them, and nearly all are too short, or
/// without the letter that it begins with.
pub(super) fn is_marked_text(text: &str) -> bool {
    text.len() >= SENSITIVE.len()
        && text.as_bytes().contains(&SENSITIVE.as_bytes()[0])
        && text.contains(SENSITIVE)
}
