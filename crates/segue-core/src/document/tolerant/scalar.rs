//! Scalars and keys of the tolerant reader, and how it moves over the text.

use std::sync::Arc;

use super::{Node, NodeKind, Span, TolerantReader, shared};
use crate::document::yaml::plain_kind;

impl<'a> TolerantReader<'a> {
    pub(super) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Moves forward to an offset.
    pub(super) fn advance_to(&mut self, to: usize) {
        let to = to.max(self.at).min(self.text.len());
        let passed = &self.text.as_bytes()[self.at..to];
        if let Some(newline) = memchr::memrchr(b'\n', passed) {
            self.line_start = self.at + newline + 1;
        }
        self.at = to;
    }

    /// The end of the current line, without its line break.
    pub(super) fn line_end(&self) -> usize {
        self.end_of_line(self.at)
    }

    fn end_of_line(&self, at: usize) -> usize {
        let (from, end) = self.known_line.get();
        if (from..=end).contains(&at) {
            return end;
        }
        let end = self.find_line_end(at);
        self.known_line.set((at, end));
        end
    }

    fn find_line_end(&self, at: usize) -> usize {
        let rest = &self.text.as_bytes()[at..];
        let end = memchr::memchr(b'\n', rest).map_or(self.text.len(), |newline| at + newline);
        let is_crlf = end > at && self.text.as_bytes()[end - 1] == b'\r';
        end - usize::from(is_crlf)
    }

    pub(super) fn column(&self) -> isize {
        isize::try_from(self.at - self.line_start).unwrap_or(isize::MAX)
    }

    /// Skips white space and comments; whether it came to another line.
    pub(super) fn skip_blank(&mut self) -> bool {
        let line = self.line_start;
        loop {
            let rest = self.rest();
            let blank = rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n']).len();
            self.advance_to(self.at + blank);
            let after_space = self.at == 0
                || self.text.as_bytes()[self.at - 1].is_ascii_whitespace()
                || self.line_start == self.at;
            if self.is_json || self.peek() != Some(b'#') || !after_space {
                return self.line_start != line;
            }
            self.advance_to(self.line_end());
        }
    }

    /// Whether the document has no more content.
    pub(super) fn is_over(&self) -> bool {
        self.at >= self.text.len() || self.at_marker()
    }

    /// Whether `---` or `...` begins here.
    pub(super) fn at_marker(&self) -> bool {
        let rest = self.rest();
        !self.is_json
            && self.at == self.line_start
            && (rest.starts_with("---") || rest.starts_with("..."))
            && rest.as_bytes().get(3).is_none_or(u8::is_ascii_whitespace)
    }

    pub(super) fn at_dash(&self) -> bool {
        let bytes = &self.text.as_bytes()[self.at..];
        bytes.first() == Some(&b'-') && bytes.get(1).is_none_or(u8::is_ascii_whitespace)
    }

    /// The key that begins at an offset, with its span and the offset after its `:`.
    pub(super) fn key_at(&self, start: usize) -> Option<(Arc<str>, Span, usize)> {
        let line = &self.text[start..self.end_of_line(start)];
        let bytes = line.as_bytes();
        let ends = |at: usize| bytes.get(at).is_none_or(|byte| matches!(byte, b' ' | b'\t'));
        if let Some(quote @ (b'"' | b'\'')) = bytes.first() {
            let close = closing_quote(line, 0, *quote)?;
            let gap = line[close + 1..].len() - line[close + 1..].trim_start().len();
            let colon = close + 1 + gap;
            if bytes.get(colon) != Some(&b':') {
                return None;
            }
            let key = unquoted(&line[1..close], *quote);
            return Some((shared(&key), Span::new(start, start + close + 1), start + colon + 1));
        }
        let colon = memchr::memchr_iter(b':', bytes).find(|colon| ends(colon + 1))?;
        let key = line[..colon].trim_end();
        let is_comment = key.contains(" #") || key.is_empty();
        (!is_comment).then(|| (shared(key), Span::new(start, start + key.len()), start + colon + 1))
    }

    pub(super) fn at_block_scalar(&self) -> bool {
        let header = &self.text[self.at + 1..self.line_end()];
        let header = header.split('#').next().unwrap_or_default().trim_end();
        header.bytes().all(|byte| matches!(byte, b'-' | b'+' | b'1'..=b'9'))
    }

    /// `|` or `>` and the indented lines below.
    pub(super) fn block_scalar(&mut self, parent: isize) -> Node {
        let start = self.at;
        let mut end = self.line_end();
        let mut from = (end + 1).max(self.after_newline(end));
        let (mut indent, mut text) = (None, String::new());
        while from < self.text.len() {
            let line_end = self.end_of_line(from);
            let line = &self.text[from..line_end];
            let column = line.len() - line.trim_start_matches(' ').len();
            if !line.trim().is_empty() {
                let needed = *indent.get_or_insert(column);
                if isize::try_from(column).unwrap_or(isize::MAX) <= parent || column < needed {
                    break;
                }
                end = line_end;
            }
            text.push_str(line.get(indent.unwrap_or(0).min(column)..).unwrap_or_default());
            text.push('\n');
            from = self.after_newline(line_end);
        }
        let header = &self.text[start..self.end_of_line(start)];
        let mut text = text.trim_end_matches('\n').to_owned();
        if header.starts_with('>') {
            text = folded(&text);
        }
        if !header.contains('-') {
            text.push('\n');
        }
        self.advance_to(end);
        self.node(start, end, NodeKind::String(text.into()))
    }

    fn after_newline(&self, line_end: usize) -> usize {
        let newline = memchr::memchr(b'\n', &self.text.as_bytes()[line_end..]);
        newline.map_or(self.text.len(), |newline| line_end + newline + 1)
    }

    /// A value without quotes, which may go on in deeper lines.
    pub(super) fn plain_scalar(&mut self, parent: isize) -> Node {
        let start = self.at;
        let mut end = self.plain_line();
        let mut text = self.text[start..end].to_owned();
        loop {
            let (at, line_start) = (self.at, self.line_start);
            let went_on = self.skip_blank() && !self.is_over() && self.column() > parent;
            if !went_on || self.at_dash() || self.key_at(self.at).is_some() {
                (self.at, self.line_start) = (at, line_start);
                break;
            }
            let from = self.at;
            end = self.plain_line();
            text.push(' ');
            text.push_str(&self.text[from..end]);
        }
        let span = Span::new(start, end);
        self.node(start, end, plain_kind(&text, span))
    }

    /// Moves behind the plain text of a line, and returns its end.
    fn plain_line(&mut self) -> usize {
        let line = &self.text[self.at..self.line_end()];
        let kept = if line.starts_with("{{") { line } else { cut_comment(line) };
        let end = self.at + kept.trim_end().len();
        self.advance_to(end.max(self.at));
        if end == self.at && self.at < self.line_end() && kept.is_empty() {
            self.advance_to(self.line_end());
        }
        end
    }

    pub(super) fn quoted_node(&mut self, parent: isize) -> Node {
        let start = self.at;
        let text = self.quoted(parent);
        self.node(start, self.at, NodeKind::String(shared(&text)))
    }

    /// A quoted text; one that is not closed ends with its line.
    pub(super) fn quoted(&mut self, parent: isize) -> String {
        let (start, quote) = (self.at, self.text.as_bytes()[self.at]);
        let close = self.closing_quote_within(start, quote, parent);
        if let Some(close) = close {
            self.advance_to(close + 1);
            return unquoted(&self.text[start + 1..close], quote);
        }
        let line = self.text[start..self.line_end()].trim_end();
        let in_brackets = !self.brackets.is_empty();
        // Brackets and commas at the end of the line belong to what is around.
        let text = if in_brackets { line.trim_end_matches(['}', ']', ',', ' ']) } else { line };
        let end = start + text.len().max(1);
        self.guesses.push(Span::new(start, end));
        self.advance_to(end);
        unquoted(&self.text[start + 1..end], quote)
    }

    /// The closing quote, on this line or on deeper lines that are no keys or items.
    fn closing_quote_within(&self, start: usize, quote: u8, parent: isize) -> Option<usize> {
        let mut line_end = self.end_of_line(start);
        let mut from = start;
        loop {
            let line = &self.text[from..line_end];
            let skipped = usize::from(from == start);
            if let Some(close) = closing_quote_from(line, skipped, quote) {
                return Some(from + close);
            }
            if self.is_json {
                return None;
            }
            from = self.after_newline(line_end);
            if from >= self.text.len() {
                return None;
            }
            line_end = self.end_of_line(from);
            let line = &self.text[from..line_end];
            let content = line.trim_start();
            let column = isize::try_from(line.len() - content.len()).unwrap_or(isize::MAX);
            let is_item = content.starts_with("- ") || content == "-";
            let begins = || self.key_at(from + (line.len() - content.len())).is_some();
            if !content.is_empty() && (column <= parent || is_item || begins()) {
                return None;
            }
        }
    }
}

/// Lines joined by spaces; an empty line is a line break.
fn folded(text: &str) -> String {
    let paragraphs = text.split("\n\n").map(|lines| lines.replace('\n', " "));
    paragraphs.collect::<Vec<_>>().join("\n")
}

/// A line up to its comment.
fn cut_comment(line: &str) -> &str {
    line.find(" #").map_or(line, |at| &line[..at])
}

/// The offset of the quote that closes the one at `open`.
fn closing_quote(line: &str, open: usize, quote: u8) -> Option<usize> {
    closing_quote_from(line, open + 1, quote)
}

fn closing_quote_from(line: &str, from: usize, quote: u8) -> Option<usize> {
    let bytes = line.as_bytes();
    let mut at = from;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if quote == b'"' => at += 1,
            byte if byte == quote => {
                if quote == b'\'' && bytes.get(at + 1) == Some(&quote) {
                    at += 1;
                } else {
                    return Some(at);
                }
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// Four hexadecimal digits.
fn code_unit(text: &str) -> Option<u16> {
    u16::from_str_radix(text.get(..4)?, 16).ok()
}

/// The text between quotes.
fn unquoted(raw: &str, quote: u8) -> String {
    if quote == b'\'' {
        return raw.replace("''", "'");
    }
    if !raw.contains('\\') {
        return raw.to_owned();
    }
    let (mut text, mut chars) = (String::with_capacity(raw.len()), raw.chars());
    while let Some(char) = chars.next() {
        if char != '\\' {
            text.push(char);
            continue;
        }
        match chars.next() {
            Some('n') => text.push('\n'),
            Some('t') => text.push('\t'),
            Some('u') => {
                let rest = chars.as_str();
                let pair =
                    || Some((code_unit(rest)?, code_unit(rest.get(4..)?.strip_prefix("\\u")?)?));
                let (units, length) = match (code_unit(rest), pair()) {
                    (Some(high @ 0xD800..0xDC00), Some((_, low))) => (vec![high, low], 10),
                    (Some(unit), _) => (vec![unit], 4),
                    (None, _) => continue,
                };
                text.push_str(&String::from_utf16_lossy(&units));
                chars = rest[length..].chars();
            }
            Some(other) => text.push(other),
            None => {}
        }
    }
    text
}
