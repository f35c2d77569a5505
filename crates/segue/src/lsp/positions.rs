//! Byte offsets ↔ positions of the protocol: a line, and a character in the encoding that was agreed on.

use gen_lsp_types::{Position, PositionEncodingKind, Range};
use segue_core::source::Span;

/// How characters of a line are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Utf8,
    Utf16,
}

impl Encoding {
    /// UTF-8 if the client offers it, else UTF-16, which every client has.
    pub(super) fn agreed(offered: Option<&[PositionEncodingKind]>) -> Encoding {
        let has_utf8 = offered.is_some_and(|it| it.contains(&PositionEncodingKind::UTF8));
        if has_utf8 { Encoding::Utf8 } else { Encoding::Utf16 }
    }

    pub(super) fn kind(self) -> PositionEncodingKind {
        match self {
            Encoding::Utf8 => PositionEncodingKind::UTF8,
            Encoding::Utf16 => PositionEncodingKind::UTF16,
        }
    }
}

/// The lines of a text.
pub(super) struct LineIndex {
    encoding: Encoding,
    lines: Vec<Line>,
}

struct Line {
    start: usize,
    /// The end without the line break.
    end: usize,
    /// Then every encoding counts bytes, and a long line costs nothing.
    is_ascii: bool,
}

impl LineIndex {
    pub(super) fn of(text: &str, encoding: Encoding) -> LineIndex {
        let bytes = text.as_bytes();
        let (mut lines, mut start) = (Vec::new(), 0);
        let mut line = |start: usize, end: usize| {
            lines.push(Line { start, end, is_ascii: bytes[start..end].is_ascii() });
        };
        for at in 0..bytes.len() {
            match bytes[at] {
                b'\n' => {
                    let is_after_return = at > start && bytes[at - 1] == b'\r';
                    line(start, at - usize::from(is_after_return));
                    start = at + 1;
                }
                // Alone, it is a line break, too.
                b'\r' if bytes.get(at + 1) != Some(&b'\n') => {
                    line(start, at);
                    start = at + 1;
                }
                _ => {}
            }
        }
        line(start, bytes.len());
        LineIndex { encoding, lines }
    }

    /// The offset of a position. One beyond a line means its end, one beyond the text the text's end.
    pub(super) fn offset(&self, text: &str, position: Position) -> usize {
        let Some(line) = self.lines.get(position.line as usize) else { return text.len() };
        let character = position.character as usize;
        let here = &text[line.start..line.end];
        if line.is_ascii {
            return line.start + character.min(here.len());
        }
        let mut seen = 0;
        for (at, letter) in here.char_indices() {
            let width = self.width(letter);
            // Inside of a character means its beginning.
            if seen + width > character {
                return line.start + at;
            }
            seen += width;
        }
        line.end
    }

    /// The position of an offset. One inside of a character means its beginning.
    pub(super) fn position(&self, text: &str, offset: usize) -> Position {
        let mut offset = offset.min(text.len());
        while !text.is_char_boundary(offset) {
            offset -= 1;
        }
        let index = self.lines.partition_point(|line| line.start <= offset).saturating_sub(1);
        let line = &self.lines[index];
        let offset = offset.min(line.end);
        let character = if line.is_ascii {
            offset - line.start
        } else {
            text[line.start..offset].chars().map(|letter| self.width(letter)).sum()
        };
        let clamp = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        Position { line: clamp(index), character: clamp(character) }
    }

    fn width(&self, letter: char) -> usize {
        match self.encoding {
            Encoding::Utf8 => letter.len_utf8(),
            Encoding::Utf16 => letter.len_utf16(),
        }
    }

    pub(super) fn range(&self, text: &str, span: Span) -> Range {
        let start = self.position(text, span.start as usize);
        let end = self.position(text, span.end.max(span.start) as usize);
        Range { start, end }
    }

    /// The bytes of a range. A range that is turned around is empty.
    pub(super) fn bytes(&self, text: &str, range: Range) -> std::ops::Range<usize> {
        let start = self.offset(text, range.start);
        start..self.offset(text, range.end).max(start)
    }

    pub(super) fn span(&self, text: &str, range: Range) -> Span {
        let bytes = self.bytes(text, range);
        Span::new(bytes.start, bytes.end)
    }

    /// The parts of a span on each of its lines.
    pub(super) fn per_line(&self, span: Span) -> impl Iterator<Item = Span> + '_ {
        let bytes = span.range();
        let first = self.lines.partition_point(|line| line.end < bytes.start);
        let lines =
            self.lines.iter().skip(first).take_while(move |line| line.start < span.range().end);
        lines.filter_map(move |line| {
            let (start, end) = (line.start.max(bytes.start), line.end.min(bytes.end));
            (start < end).then(|| Span::new(start, end))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_encodings_go_there_and_back() {
        let text = "a: ü🦀x\r\nb\rc\n🦀";
        for encoding in [Encoding::Utf8, Encoding::Utf16] {
            let lines = LineIndex::of(text, encoding);
            for (offset, _) in text.char_indices().chain([(text.len(), ' ')]) {
                // Between the two parts of a line break is the end of the line.
                let expected = if text[offset..].starts_with('\n') && text[..offset].ends_with('\r')
                {
                    offset - 1
                } else {
                    offset
                };
                let position = lines.position(text, offset);
                assert_eq!(lines.offset(text, position), expected, "{encoding:?} {position:?}");
            }
        }
        let at_x = text.find('x').unwrap();
        let character = |encoding| LineIndex::of(text, encoding).position(text, at_x).character;
        assert_eq!((character(Encoding::Utf8), character(Encoding::Utf16)), (9, 6));
        assert_eq!(LineIndex::of(text, Encoding::Utf16).position(text, text.len()).line, 3);
    }

    #[test]
    fn positions_outside_are_moved_inside() {
        let text = "ü🦀\nb";
        let lines = LineIndex::of(text, Encoding::Utf16);
        let offset = |line, character| lines.offset(text, Position { line, character });
        assert_eq!(offset(0, 99), 6);
        assert_eq!(offset(9, 0), text.len());
        assert_eq!(offset(0, 2), 2, "the second half of a surrogate pair");
        assert_eq!(lines.position(text, 4), Position { line: 0, character: 1 });
    }

    #[test]
    fn a_span_is_cut_at_line_breaks() {
        let text = "ab\ncd\r\nef";
        let lines = LineIndex::of(text, Encoding::Utf8);
        let parts: Vec<&str> =
            lines.per_line(Span::new(1, 8)).map(|part| &text[part.range()]).collect();
        assert_eq!(parts, ["b", "cd", "e"]);
    }
}
