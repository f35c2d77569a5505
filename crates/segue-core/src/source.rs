//! A named text, and positions in it.
//!
//! Spans are byte ranges. Lines and columns are computed only when a finding is shown. Columns
//! count characters, so they are right after non-ASCII text too.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

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
    part: Option<Arc<str>>,
    servers: Vec<Arc<str>>,
    edition: Edition,
}

/// How the text of a dialect is translated. A stored run keeps the edition that it was compiled
/// with, so that its plan does not change when a translation is corrected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Edition {
    /// Bundles without an edition.
    #[default]
    First,
    /// ToolHive: absent values and texts of tools as ToolHive's templates see them.
    Second,
}

impl Edition {
    /// The edition of texts that are compiled now.
    pub const CURRENT: Edition = Edition::Second;

    /// Whether it is the edition of bundles that have none.
    pub fn is_first(&self) -> bool {
        *self == Edition::First
    }
}

impl Source {
    /// A source whose notation follows from its name and its first character.
    pub fn new(name: impl Into<Arc<str>>, text: impl Into<Arc<str>>) -> Source {
        let (name, text) = (name.into(), text.into());
        let notation = Notation::detect(&name, &text);
        Source { name, text, notation, part: None, servers: Vec::new(), edition: Edition::CURRENT }
    }

    /// The same source with another text, in the same notation.
    #[must_use]
    pub(crate) fn with_text(&self, text: impl Into<Arc<str>>) -> Source {
        Source { text: text.into(), ..self.clone() }
    }

    /// The same text, of which one composition is meant, by its name.
    #[must_use]
    pub fn with_part(mut self, part: Option<Arc<str>>) -> Source {
        self.part = part;
        self
    }

    /// The same text, whose composition calls tools of these servers: another text refers to it and
    /// says so.
    #[must_use]
    pub fn with_servers(mut self, servers: Vec<Arc<str>>) -> Source {
        self.servers = servers;
        self
    }

    /// The same text, translated as in an earlier edition.
    #[must_use]
    pub fn with_edition(mut self, edition: Edition) -> Source {
        self.edition = edition;
        self
    }

    /// The name of the composition that is meant, if the text may hold several.
    pub fn part(&self) -> Option<&Arc<str>> {
        self.part.as_ref()
    }

    /// The servers whose tools it calls, as another text says that refers to it.
    pub fn servers(&self) -> &[Arc<str>] {
        &self.servers
    }

    /// How the text is translated.
    pub fn edition(&self) -> Edition {
        self.edition
    }

    /// Whether both mean the same composition of the same file.
    pub fn is_same_place(&self, other: &Source) -> bool {
        self.name == other.name && self.part == other.part
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
