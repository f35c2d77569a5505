//! A named text, and positions in it.
//!
//! Spans are byte ranges. Lines and columns are computed only when a finding is shown. Columns
//! count characters, so they are right after non-ASCII text too.

use std::sync::Arc;

/// A range of bytes in a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Span {
    /// A span from byte offsets. Documents are far smaller than 4 GiB, so offsets fit.
    pub fn new(start: usize, end: usize) -> Span {
        let clamp = |offset: usize| u32::try_from(offset).unwrap_or(u32::MAX);
        Span { start: clamp(start), end: clamp(end) }
    }

    /// The span as a range for slicing.
    pub fn range(self) -> std::ops::Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// The notation of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notation {
    /// JSON (RFC 8259).
    Json,
    /// YAML 1.2, core schema.
    Yaml,
}

impl Notation {
    /// Detected by the file extension, else by the first character: `{` and `[` begin JSON.
    pub fn detect(name: &str, text: &str) -> Notation {
        let extension = name.rsplit_once('.').map(|(_, e)| e.to_ascii_lowercase());
        match extension.as_deref() {
            Some("json") => Notation::Json,
            Some("yaml" | "yml") => Notation::Yaml,
            _ if text.trim_start_matches('\u{feff}').trim_start().starts_with(['{', '[']) => {
                Notation::Json
            }
            _ => Notation::Yaml,
        }
    }
}

/// A position for people: counted from one, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Line, from 1.
    pub line: usize,
    /// Column, from 1, in characters.
    pub column: usize,
}

/// A named text.
#[derive(Clone, Debug)]
pub struct Source {
    name: Arc<str>,
    text: Arc<str>,
    notation: Notation,
}

impl Source {
    /// A source whose notation follows from its name and its first character.
    pub fn new(name: impl Into<Arc<str>>, text: impl Into<Arc<str>>) -> Source {
        let (name, text) = (name.into(), text.into());
        let notation = Notation::detect(&name, &text);
        Source { name, text, notation }
    }

    /// The name that findings use, usually a path.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The whole text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// JSON or YAML.
    pub fn notation(&self) -> Notation {
        self.notation
    }

    /// The text under a span; empty when the span does not fit.
    pub fn slice(&self, span: Span) -> &str {
        self.text.get(span.range()).unwrap_or("")
    }

    /// Line and column of a byte offset.
    pub fn position(&self, offset: u32) -> Position {
        let mut offset = (offset as usize).min(self.text.len());
        while !self.text.is_char_boundary(offset) {
            offset -= 1;
        }
        let before = &self.text[..offset];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = before.bytes().filter(|&byte| byte == b'\n').count() + 1;
        Position { line, column: before[line_start..].chars().count() + 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters_not_bytes() {
        let source = Source::new("x.yaml", "a: 1\nü🦀: x\n");
        let offset = u32::try_from(source.text().find('x').unwrap()).unwrap();
        assert_eq!(source.position(offset), Position { line: 2, column: 5 });
    }
}
