//! The text of an expression → its tokens. It never fails: an unknown character is an operator, and
//! an open string ends with the text.

/// A token, by its offsets in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) kind: Lexeme,
}

/// The form of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lexeme {
    Word,
    Number,
    Text,
    /// One character or `==`, `!=`, `<=`, `>=`, `//`, `**`.
    Sign,
}

/// The tokens of an expression.
pub(super) fn tokens(text: &str) -> Vec<Token> {
    let dashes = is_plain_path(text);
    let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$') || (dashes && c == '-');
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        let (kind, length) = match first {
            c if c.is_whitespace() => {
                at += c.len_utf8();
                continue;
            }
            c if c.is_ascii_digit() => {
                (Lexeme::Number, rest.find(|c: char| !is_word(c)).unwrap_or(rest.len()))
            }
            c if is_word(c) => {
                (Lexeme::Word, rest.find(|c: char| !is_word(c)).unwrap_or(rest.len()))
            }
            '"' | '\'' => (Lexeme::Text, text_length(rest, first)),
            // In a double-quoted scalar, the quotes of an expression are escaped.
            '\\' if rest[1..].starts_with('"') => (Lexeme::Text, escaped_length(rest)),
            c => {
                let doubled = ["==", "!=", "<=", ">=", "//", "**"];
                let is_doubled = doubled.iter().any(|sign| rest.starts_with(sign));
                (Lexeme::Sign, if is_doubled { 2 } else { c.len_utf8() })
            }
        };
        found.push(Token { start: at, end: at + length, kind });
        at += length;
    }
    found
}

/// Whether a text is only names joined by `.` and `[n]`: there a dash belongs to a name.
fn is_plain_path(text: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '$' | '.' | '[' | ']');
    text.trim().chars().all(is_part)
}

fn text_length(rest: &str, quote: char) -> usize {
    let bytes = rest.as_bytes();
    let mut at = 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 1,
            byte if char::from(byte) == quote => return at + 1,
            _ => {}
        }
        at += 1;
    }
    rest.len()
}

fn escaped_length(rest: &str) -> usize {
    rest[2..].find("\\\"").map_or(rest.len(), |close| close + 4)
}

/// The expressions in a string as it is written: offsets of their insides. An open one ends with the
/// string.
pub(super) fn expressions(raw: &str) -> Vec<(usize, usize)> {
    let (mut found, mut from) = (Vec::new(), 0);
    while let Some(open) = raw[from..].find("{{").map(|open| from + open + 2) {
        let next = || raw[open..].find("{{").map_or(raw.len(), |next| open + next);
        match close_of(raw, open) {
            Some(close) => {
                found.push((open, close));
                from = close + 2;
            }
            None => {
                from = next();
                found.push((open, from));
            }
        }
    }
    found
}

/// The `}}` that ends an expression; quotes and brackets nest.
fn close_of(raw: &str, open: usize) -> Option<usize> {
    let bytes = raw.as_bytes();
    let (mut depth, mut quote, mut at) = (0usize, None, open);
    while at < bytes.len() {
        match (quote, bytes[at]) {
            (Some(_), b'\\') => at += 1,
            (Some(open), close) if open == close => quote = None,
            (Some(_), _) => {}
            (None, byte @ (b'"' | b'\'')) => quote = Some(byte),
            (None, b'}') if depth == 0 && bytes.get(at + 1) == Some(&b'}') => return Some(at),
            // Before the next expression begins, this one was forgotten to be closed.
            (None, b'{') if bytes.get(at + 1) == Some(&b'{') => return None,
            (None, b'(' | b'[' | b'{') => depth += 1,
            (None, b')' | b']' | b'}') => depth = depth.saturating_sub(1),
            (None, _) => {}
        }
        at += 1;
    }
    // A quote that is not closed hides the braces.
    raw[open..].find("}}").map(|close| open + close)
}
