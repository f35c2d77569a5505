//! Changes inside a string of the text: which bytes of the text stand for which bytes of the string.

use super::draft::TextChange;
use crate::language::TextEdit;
use crate::source::Span;

/// The edits of the text that change parts of a string; `None` if a part cannot be found in the text.
pub(super) fn replace_in_scalar(
    text: &str,
    span: Span,
    value: &str,
    changes: &[TextChange],
) -> Option<Vec<TextEdit>> {
    let raw = text.get(span.range())?;
    let offsets = Alignment::of(raw, value)?;
    changes
        .iter()
        .map(|change| {
            let (start, end) = change.range;
            let (from, to) = (offsets.start(start)?, offsets.end(end)?);
            let new = offsets.quoted(&change.text)?;
            let at = span.range().start;
            Some(TextEdit { span: Span::new(at + from, at + to), text: new })
        })
        .collect()
}

/// For each byte of a string the range of the text that stands for it.
struct Alignment {
    ranges: Vec<(usize, usize)>,
    quote: Option<char>,
}

impl Alignment {
    /// Follows both texts. Characters other than white space correspond one to one, apart from escapes;
    /// white space differs where lines are folded or indented.
    fn of(raw: &str, value: &str) -> Option<Alignment> {
        let quote = raw.chars().next().filter(|first| matches!(first, '"' | '\''));
        let body = match quote {
            Some(_) => 1..raw.len().checked_sub(1)?,
            None if raw.starts_with(['|', '>']) => raw.find('\n')? + 1..raw.len(),
            None => 0..raw.len(),
        };
        let mut ranges = Vec::with_capacity(value.len());
        let mut at = body.start;
        let mut wanted = value.chars().peekable();
        while let Some(&next) = wanted.peek() {
            let rest = raw.get(at..body.end)?;
            let Some(here) = rest.chars().next() else {
                // Only white space of the string can be left, as after a folded line.
                if !next.is_whitespace() {
                    return None;
                }
                ranges.extend(std::iter::repeat_n((at, at), next.len_utf8()));
                wanted.next();
                continue;
            };
            let (read, length) = match (quote, here) {
                (Some('"'), '\\') => escape(rest)?,
                (Some('\''), '\'') => (Some('\''), 2),
                _ => (Some(here), here.len_utf8()),
            };
            match read {
                Some(read) if read == next => {
                    ranges.extend(std::iter::repeat_n((at, at + length), next.len_utf8()));
                    at += length;
                    wanted.next();
                }
                None => at += length,
                Some(read) if read.is_whitespace() => at += length,
                Some(_) if next.is_whitespace() => {
                    ranges.extend(std::iter::repeat_n((at, at), next.len_utf8()));
                    wanted.next();
                }
                Some(_) => return None,
            }
        }
        Some(Alignment { ranges, quote })
    }

    fn start(&self, at: usize) -> Option<usize> {
        match self.ranges.get(at) {
            Some((start, _)) => Some(*start),
            None => self.ranges.last().map(|(_, end)| *end),
        }
    }

    fn end(&self, at: usize) -> Option<usize> {
        at.checked_sub(1).and_then(|last| self.ranges.get(last)).map(|(_, end)| *end)
    }

    /// A new part of the string as the text writes it.
    fn quoted(&self, text: &str) -> Option<String> {
        match self.quote {
            Some('"') => {
                let quoted = super::render::double_quoted(text);
                Some(quoted[1..quoted.len() - 1].to_owned())
            }
            Some(_) => Some(text.replace('\'', "''")),
            None => (!text.contains(['\n', '\r'])).then(|| text.to_owned()),
        }
    }
}

/// The character that an escape stands for, and its length. An escaped line break stands for none, as
/// does the white space that follows it.
fn escape(rest: &str) -> Option<(Option<char>, usize)> {
    let mut chars = rest.chars();
    chars.next();
    let kind = chars.next()?;
    let hex = |digits: usize| u32::from_str_radix(rest.get(2..2 + digits)?, 16).ok();
    let plain = |c: char| Some((Some(c), 1 + kind.len_utf8()));
    match kind {
        'n' => plain('\n'),
        't' | '\t' => plain('\t'),
        'r' => plain('\r'),
        'b' => plain('\u{8}'),
        'f' => plain('\u{c}'),
        '0' => plain('\0'),
        'a' => plain('\u{7}'),
        'v' => plain('\u{b}'),
        'e' => plain('\u{1b}'),
        'N' => plain('\u{85}'),
        '_' => plain('\u{a0}'),
        'L' => plain('\u{2028}'),
        'P' => plain('\u{2029}'),
        'x' => Some((char::from_u32(hex(2)?), 4)),
        'U' => Some((char::from_u32(hex(8)?), 10)),
        'u' => {
            let high = hex(4)?;
            if let Some(c) = char::from_u32(high) {
                return Some((Some(c), 6));
            }
            // A pair of JSON escapes makes one character.
            let low = rest.get(6..12)?.strip_prefix("\\u")?;
            let low = u32::from_str_radix(low, 16).ok()?;
            let code = 0x1_0000 + ((high - 0xd800) << 10) + low.checked_sub(0xdc00)?;
            Some((Some(char::from_u32(code)?), 12))
        }
        '\r' | '\n' => {
            let length = rest[1..].len() - rest[1..].trim_start().len();
            Some((None, 1 + length))
        }
        other => plain(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn renamed(raw: &str, value: &str, from: &str) -> String {
        let start = value.find(from).unwrap();
        let change = TextChange { range: (start, start + from.len()), text: "it's".to_owned() };
        let edits = replace_in_scalar(raw, Span::new(0, raw.len()), value, &[change]).unwrap();
        crate::language::apply(raw, &edits)
    }

    #[test]
    fn a_part_is_found_behind_escapes_folds_and_indentation() {
        assert_eq!(renamed(r#""\u00e9\n a.b""#, "é\n a.b", "a"), r#""\u00e9\n it's.b""#);
        assert_eq!(renamed("'don''t a.b'", "don't a.b", "a"), "'don''t it''s.b'");
        assert_eq!(renamed(">-\n   one\n   a.b", "one a.b", "a"), ">-\n   one\n   it's.b");
        assert_eq!(renamed("|\n     one\n    a.b", " one\na.b\n", "a"), "|\n     one\n    it's.b");
        assert_eq!(renamed("\"x \\\n   a.b\"", "x a.b", "a"), "\"x \\\n   it's.b\"");
        assert_eq!(renamed(r#""\ud83e\udd80 a""#, "🦀 a", "a"), r#""\ud83e\udd80 it's""#);
    }
}
