//! UTF-16 offsets, as editors count, ↔ byte offsets, as the core counts. The one place that converts.

use segue_core::source::Span;

/// The distance of two known offsets, in bytes.
const STEP: usize = 256;

/// The offsets of one text.
pub(super) struct Positions<'a> {
    text: &'a str,
    /// The UTF-16 offset of the first character at or after each multiple of [`STEP`] bytes, with its byte;
    /// empty for ASCII, where both offsets are the same.
    known: Vec<(usize, usize)>,
}

impl<'a> Positions<'a> {
    pub(super) fn new(text: &'a str) -> Positions<'a> {
        let mut known = Vec::new();
        if !text.is_ascii() {
            let mut units = 0;
            for (byte, letter) in text.char_indices() {
                if byte >= known.len() * STEP {
                    known.push((units, byte));
                }
                units += letter.len_utf16();
            }
        }
        Positions { text, known }
    }

    /// The byte of a UTF-16 offset; an offset inside a character is that of the character, one behind the
    /// end is the end.
    pub(super) fn to_byte(&self, offset: u32) -> u32 {
        let offset = offset as usize;
        let at = self.known.partition_point(|(units, _)| *units <= offset);
        let Some((mut units, begin)) = at.checked_sub(1).map(|at| self.known[at]) else {
            return shortened(offset.min(self.text.len()));
        };
        for (byte, letter) in self.text[begin..].char_indices() {
            units += letter.len_utf16();
            if units > offset {
                return shortened(begin + byte);
            }
        }
        shortened(self.text.len())
    }

    /// The UTF-16 offset of a byte.
    pub(super) fn to_utf16(&self, byte: u32) -> u32 {
        let byte = self.text.floor_char_boundary(byte as usize);
        let at = self.known.partition_point(|(_, begin)| *begin <= byte);
        match at.checked_sub(1).map(|at| self.known[at]) {
            None => shortened(byte),
            Some((units, begin)) => {
                shortened(units + self.text[begin..byte].encode_utf16().count())
            }
        }
    }

    /// The bytes between two UTF-16 offsets.
    pub(super) fn to_span(&self, start: u32, end: u32) -> Span {
        Span { start: self.to_byte(start), end: self.to_byte(end.max(start)) }
    }

    /// Start and end of a span in UTF-16 offsets.
    pub(super) fn of_span(&self, span: Span) -> (u32, u32) {
        (self.to_utf16(span.start), self.to_utf16(span.end))
    }
}

fn shortened(offset: usize) -> u32 {
    u32::try_from(offset).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_offset_is_converted_and_back() {
        let long = "aß€😀\r\n".repeat(200);
        for text in ["", "abc", "ß", "😀", "a😀b", &long] {
            let positions = Positions::new(text);
            let mut units = 0;
            for (byte, letter) in text.char_indices().chain([(text.len(), '\0')]) {
                assert_eq!(positions.to_utf16(shortened(byte)), units, "{byte} of {text:?}");
                assert_eq!(positions.to_byte(units), shortened(byte), "{units} of {text:?}");
                if letter.len_utf16() == 2 {
                    assert_eq!(positions.to_byte(units + 1), shortened(byte), "inside a character");
                    assert_eq!(positions.to_utf16(shortened(byte + 1)), units);
                }
                units += shortened(letter.len_utf16());
            }
            assert_eq!(positions.to_byte(u32::MAX), shortened(text.len()));
            assert_eq!(positions.to_utf16(u32::MAX), positions.to_utf16(shortened(text.len())));
        }
    }
}
