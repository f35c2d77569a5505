//! The text of a composition, with the place of each step in it.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use crate::composition::Composition;
use crate::source::{Notation, Source, Span};

/// A place in a text: lines and columns from 1, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PlaceView {
    /// The first line.
    pub line: usize,
    /// The first column.
    pub column: usize,
    /// The last line.
    pub end_line: usize,
    /// One past the last column.
    pub end_column: usize,
}

/// The place of a step in the text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StepPlaceView {
    /// The step's id, which is unique in its composition.
    pub step: Arc<str>,
    /// Its place.
    #[serde(flatten)]
    pub place: PlaceView,
}

/// The name that the text of a request has.
pub const INLINE_NAME: &str = "composition";

/// Finds lines and columns of many places in one text.
pub struct Places<'a> {
    source: &'a Source,
    /// The first byte of each line.
    lines: Vec<usize>,
}

impl<'a> Places<'a> {
    /// Reads the lines of a text.
    pub fn new(source: &'a Source) -> Places<'a> {
        let newlines = source.text().bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let lines = std::iter::once(0).chain(newlines.map(|(at, _)| at + 1)).collect();
        Places { source, lines }
    }

    fn position(&self, offset: u32) -> (usize, usize) {
        let text = self.source.text();
        let mut offset = (offset as usize).min(text.len());
        while !text.is_char_boundary(offset) {
            offset -= 1;
        }
        let line = self.lines.partition_point(|begin| *begin <= offset);
        let begin = self.lines[line - 1];
        (line, text[begin..offset].chars().count() + 1)
    }

    /// The place of a span, without the white space at its end.
    pub fn place(&self, span: Span) -> PlaceView {
        let kept = self.source.slice(span).trim_end().len();
        let end = span.start.saturating_add(u32::try_from(kept).unwrap_or(u32::MAX));
        let ((line, column), (end_line, end_column)) =
            (self.position(span.start), self.position(end.max(span.start)));
        PlaceView { line, column, end_line, end_column }
    }
}

/// The place of every step of a composition, in the order of the text.
pub fn step_places(composition: &Composition) -> Vec<StepPlaceView> {
    let places = Places::new(&composition.source);
    let mut found = Vec::new();
    composition.body.walk(&mut |step| {
        found.push(StepPlaceView { step: step.id.clone(), place: places.place(step.span) });
    });
    found
}

/// The file of a text; nothing if it came with a request.
pub fn file_name(source: &Source) -> Option<Arc<str>> {
    Some(source.name().clone()).filter(|name| **name != *INLINE_NAME)
}

/// `json` or `yaml`.
pub fn format_name(source: &Source) -> &'static str {
    match source.notation() {
        Notation::Json => "json",
        Notation::Yaml => "yaml",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_those_of_positions() {
        let source = Source::new("x.yaml", "a: 1\nü🦀: x\nlast");
        let places = Places::new(&source);
        for offset in 0..=u32::try_from(source.text().len()).unwrap() {
            let expected = source.position(offset);
            assert_eq!(places.position(offset), (expected.line, expected.column), "{offset}");
        }
        let place = places.place(Span::new(0, 5));
        assert_eq!(place, PlaceView { line: 1, column: 1, end_line: 1, end_column: 5 });
    }
}
