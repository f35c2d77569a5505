//! Edits of a text, and why an edit is refused.

use std::fmt;

use crate::diagnostic::Code;
use crate::source::Span;

/// One replacement in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextEdit {
    /// The part of the original text to replace; empty to insert.
    pub span: Span,
    /// The new text.
    pub text: String,
}

impl TextEdit {
    /// Replaces a span.
    pub fn replace(span: Span, text: impl Into<String>) -> TextEdit {
        TextEdit { span, text: text.into() }
    }

    /// Inserts a text at an offset.
    pub fn insert(at: u32, text: impl Into<String>) -> TextEdit {
        TextEdit { span: Span { start: at, end: at }, text: text.into() }
    }
}

/// The text after the edits, which refer to the original text, are sorted and do not overlap.
///
/// An edit that does not fit the text (out of order, beyond the end, inside a character) is left out.
pub fn apply(text: &str, edits: &[TextEdit]) -> String {
    let mut edited = String::with_capacity(text.len());
    let mut from = 0;
    for edit in edits {
        let range = edit.span.range();
        let Some(kept) = text.get(from..range.start).filter(|_| text.get(range.clone()).is_some())
        else {
            continue;
        };
        edited.push_str(kept);
        edited.push_str(&edit.text);
        from = range.end;
    }
    edited.push_str(&text[from..]);
    edited
}

/// Why an edit of a composition is refused; the text stays as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EditError {
    /// The kind of failure.
    pub code: Code,
    /// The message.
    pub message: String,
    /// What to do, if there is one thing to do.
    pub help: Option<String>,
}

impl EditError {
    /// An error without help.
    pub fn new(code: Code, message: impl Into<String>) -> EditError {
        EditError { code, message: message.into(), help: None }
    }

    /// Adds a help text.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> EditError {
        self.help = Some(help.into());
        self
    }
}

impl fmt::Display for EditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for EditError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_refer_to_the_original_text() {
        let edits = [
            TextEdit::replace(Span::new(0, 1), "one"),
            TextEdit::insert(3, "+"),
            TextEdit::replace(Span::new(4, 5), ""),
        ];
        assert_eq!(apply("a bcd", &edits), "one b+c");
    }

    #[test]
    fn an_edit_that_does_not_fit_is_left_out() {
        let edits = [
            TextEdit::replace(Span::new(0, 1), "b"),
            TextEdit::replace(Span::new(0, 1), "out of order"),
            TextEdit::replace(Span::new(1, 2), "inside a character"),
            TextEdit::replace(Span::new(1, 9), "beyond the end"),
        ];
        assert_eq!(apply("aü", &edits), "bü");
    }
}
