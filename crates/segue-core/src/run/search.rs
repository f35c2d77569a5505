//! Text in the journal of a run.

use super::journal::{Entry, Fact};
use crate::value::Value;

/// A text to search for; large and small letters are the same.
#[derive(Clone, Debug)]
pub struct SearchText {
    lower: String,
}

impl SearchText {
    /// Searches for this text.
    pub fn new(text: &str) -> SearchText {
        SearchText { lower: text.to_lowercase() }
    }

    /// Whether it is part of another text.
    pub fn is_in(&self, text: &str) -> bool {
        text.contains(&self.lower) || text.to_lowercase().contains(&self.lower)
    }

    /// Whether it is part of a text or a number anywhere in a value.
    pub fn is_in_value(&self, value: &Value) -> bool {
        match value {
            Value::Null | Value::Bool(_) => false,
            Value::Number(_) => value.to_json().contains(&self.lower),
            Value::String(text) => self.is_in(text),
            Value::Array(items) => items.iter().any(|item| self.is_in_value(item)),
            Value::Object(members) => members.values().any(|member| self.is_in_value(member)),
        }
    }

    /// Whether it is part of an input, an argument, a value or a failure of a run. A journal holds no
    /// sensitive values, so it is never found in one.
    pub fn is_in_journal(&self, journal: &[Entry]) -> bool {
        journal.iter().any(|entry| match &entry.fact {
            Fact::Started(started) => {
                self.is_in_value(&started.input) || self.is_in_value(&started.context)
            }
            Fact::Called { args, .. } | Fact::RollbackCalled { args, .. } => self.is_in_value(args),
            Fact::Succeeded { output, .. }
            | Fact::Reused { output, .. }
            | Fact::Pinned { output, .. } => self.is_in_value(output),
            Fact::Failed { failure, .. }
            | Fact::Tolerated { failure, .. }
            | Fact::RollbackFailed { failure, .. } => self.is_in(&failure.message),
            _ => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_found_in_values() {
        let value = Value::object([("name", Value::from(vec![Value::from("Ünder 12")]))]);
        for (text, found) in [("ünder", true), ("R 12", true), ("name", false), ("13", false)] {
            assert_eq!(SearchText::new(text).is_in_value(&value), found, "{text}");
        }
        assert!(SearchText::new("34").is_in_value(&Value::from(12345)));
    }
}
