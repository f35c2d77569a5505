//! How a name or a value is written at a place: with which quotes, and what follows it.

use crate::document::{NodeKind, plain_kind};
use crate::source::{Notation, Span};
use crate::value::Value;

/// A scalar of the original text at the position.
#[derive(Clone, Copy)]
pub(super) struct ScalarPlace {
    /// The inside: without quotes.
    pub(super) start: usize,
    pub(super) end: usize,
    /// Its quote.
    pub(super) quote: Option<char>,
}

impl ScalarPlace {
    /// The scalar with this span in the text with the mark, which stands at `at`.
    pub(super) fn at(text: &str, span: Span, at: usize) -> ScalarPlace {
        let start = (span.start as usize).min(at);
        let end = (span.end as usize).saturating_sub(super::MARK.len()).max(at).min(text.len());
        let whole = text.get(start..end).unwrap_or_default();
        // The position may be before the quote; then the quote is not the scalar's.
        let quote = whole.chars().next().filter(|c| matches!(c, '"' | '\'') && at > start);
        let Some(quote) = quote else { return ScalarPlace { start, end, quote: None } };
        let is_closed = whole.len() > 1 && whole.ends_with(quote) && at < end;
        ScalarPlace { start: start + 1, end: end - usize::from(is_closed), quote: Some(quote) }
    }

    /// The part of the line of the position that a proposal replaces.
    pub(super) fn line_span(&self, text: &str, at: usize) -> Span {
        let before = text[self.start..at].rfind('\n').map_or(self.start, |it| self.start + it + 1);
        let after = text[at..self.end].find(['\n', '\r']).map_or(self.end, |it| at + it);
        Span::new(before, after)
    }
}

/// A text as a scalar.
pub(super) fn text_scalar(text: &str, quote: Option<char>, notation: Notation) -> String {
    match (quote, notation) {
        (Some('\''), _) => text.replace('\'', "''"),
        (Some(_), _) => escaped(text),
        (None, Notation::Json) => format!("\"{}\"", escaped(text)),
        (None, Notation::Yaml) if is_safe(text) => text.to_owned(),
        (None, Notation::Yaml) => format!("\"{}\"", escaped(text)),
    }
}

/// A value as a scalar or in brackets.
pub(super) fn value_text(value: &Value, quote: Option<char>, notation: Notation) -> String {
    match value {
        Value::String(text) => text_scalar(text, quote, notation),
        other => other.to_json(),
    }
}

/// The inside of a double-quoted text.
fn escaped(text: &str) -> String {
    let json = Value::from(text).to_json();
    json[1..json.len() - 1].to_owned()
}

/// Whether YAML reads a text without quotes as itself, also in brackets.
fn is_safe(text: &str) -> bool {
    let first = text.chars().next();
    let begins = first.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '$' | '/' | '.'));
    let is_odd = |c: char| c.is_control() || matches!(c, ',' | '[' | ']' | '{' | '}' | '"' | '#');
    begins
        && !text.contains(is_odd)
        && !text.contains(": ")
        && !text.ends_with([':', ' '])
        && matches!(plain_kind(text, Span::default()), NodeKind::String(_))
}
