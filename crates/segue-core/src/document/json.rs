//! JSON (RFC 8259) → tree, in one pass over the bytes.
//!
//! Strict: the reader rejects everything that the RFC does not allow, at its position, and names
//! common mistakes (a trailing comma, a comment, `True`). Text without escapes is copied once. The
//! keys of an object are compared when it closes.
//!

use std::sync::Arc;

use super::read_budget::{ReadBudget, ReadResult, char_span, parse_error, quote};
use super::{Member, Node, NodeKind, ReadLimits};
use crate::diagnostic::Diagnostic;
use crate::source::Span;
use crate::value::Number;

pub(super) fn read(text: &str, budget: ReadLimits) -> Result<Node, Vec<Diagnostic>> {
    let mut reader = JsonReader { text, at: 0, budget: ReadBudget::new(budget) };
    let root = reader.document();
    reader.budget.finish(root)
}

struct JsonReader<'a> {
    text: &'a str,
    /// Offset of the next byte; always between two tokens, so on a character boundary.
    at: usize,
    budget: ReadBudget,
}

impl<'a> JsonReader<'a> {
    fn document(&mut self) -> ReadResult<Node> {
        if self.text.starts_with('\u{feff}') {
            self.at = '\u{feff}'.len_utf8();
        }
        self.skip_space();
        if self.peek().is_none() {
            return Err(parse_error("the document is empty", char_span(self.text, self.at)).into());
        }
        let root = self.value()?;
        self.skip_space();
        if self.peek().is_some() {
            Err(self.unexpected(ExpectedToken::End).into())
        } else {
            Ok(root)
        }
    }

    /// Recursive: the depth limit is far below what the stack allows.
    fn value(&mut self) -> ReadResult<Node> {
        let start = self.at;
        self.budget.count(1, char_span(self.text, start))?;
        let kind = match self.peek() {
            Some(b'{') => NodeKind::Object(self.object()?),
            Some(b'[') => NodeKind::Array(self.array()?),
            Some(b'"') => NodeKind::String(self.string()?),
            Some(b'-' | b'0'..=b'9') => NodeKind::Number(self.number()?),
            _ => self.literal()?,
        };
        Ok(Node { span: Span::new(start, self.at), kind })
    }

    fn object(&mut self) -> ReadResult<Vec<Member>> {
        self.open()?;
        let mut members = Vec::new();
        if !self.eat(b'}') {
            loop {
                self.budget.count_key(members.len(), char_span(self.text, self.at))?;
                members.push(self.member()?);
                if !self.goes_on(b'}')? {
                    break;
                }
            }
        }
        self.budget.leave();
        self.budget.check_keys(&members)?;
        // A vector starts with capacity four; in a hostile text the unused capacity can outweigh
        // the data.
        members.shrink_to_fit();
        Ok(members)
    }

    fn member(&mut self) -> ReadResult<Member> {
        let start = self.at;
        if self.peek() != Some(b'"') {
            return Err(self.unexpected(ExpectedToken::Key).into());
        }
        let key = self.string()?;
        let key_span = Span::new(start, self.at);
        self.skip_space();
        if !self.eat(b':') {
            return Err(self.unexpected(ExpectedToken::Colon).into());
        }
        self.skip_space();
        Ok(Member { key, key_span, value: self.value()? })
    }

    fn array(&mut self) -> ReadResult<Vec<Node>> {
        self.open()?;
        let mut items = Vec::new();
        if !self.eat(b']') {
            loop {
                items.push(self.value()?);
                if !self.goes_on(b']')? {
                    break;
                }
            }
        }
        self.budget.leave();
        items.shrink_to_fit();
        Ok(items)
    }

    /// Consumes an opening bracket and the space after it.
    fn open(&mut self) -> ReadResult<()> {
        self.budget.enter(Span::new(self.at, self.at + 1))?;
        self.at += 1;
        self.skip_space();
        Ok(())
    }

    /// After an item: true if a comma follows, false if `close` ends the list.
    fn goes_on(&mut self, close: u8) -> ReadResult<bool> {
        self.skip_space();
        if self.eat(b',') {
            self.skip_space();
            return Ok(true);
        }
        if self.eat(close) {
            Ok(false)
        } else {
            Err(self.unexpected(ExpectedToken::CommaOr(close)).into())
        }
    }

    fn literal(&mut self) -> ReadResult<NodeKind> {
        let word = word_at(self.text, self.at);
        let kind = match word {
            "null" => NodeKind::Null,
            "true" => NodeKind::Bool(true),
            "false" => NodeKind::Bool(false),
            _ => return Err(self.unexpected(ExpectedToken::Value).into()),
        };
        self.at += word.len();
        Ok(kind)
    }

    fn number(&mut self) -> ReadResult<Number> {
        let start = self.at;
        self.eat(b'-');
        let first_digit = self.at;
        self.digits()?;
        if self.at > first_digit + 1 && self.text.as_bytes()[first_digit] == b'0' {
            let span = Span::new(start, self.at);
            let message =
                format!("number `{}` has a leading zero", quote(&self.text[span.range()]));
            return Err(parse_error(message, span)
                .help("remove the zero, or quote it as text")
                .into());
        }
        if self.eat(b'.') {
            self.digits()?;
        }
        if self.eat(b'e') || self.eat(b'E') {
            let _ = self.eat(b'+') || self.eat(b'-');
            self.digits()?;
        }
        Ok(Number::from_literal(&self.text[start..self.at]))
    }

    fn digits(&mut self) -> ReadResult<()> {
        if !matches!(self.peek(), Some(b'0'..=b'9')) {
            return Err(self.unexpected(ExpectedToken::Digit).into());
        }
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        Ok(())
    }

    fn string(&mut self) -> ReadResult<Arc<str>> {
        let start = self.at;
        self.at += 1;
        let plain = self.run();
        if self.eat(b'"') {
            return Ok(plain.into());
        }
        let mut text = String::from(plain);
        loop {
            match self.peek() {
                Some(b'"') => break self.at += 1,
                Some(b'\\') => text.push(self.escape(start)?),
                Some(_) => return Err(self.control_character().into()),
                None => return Err(self.unclosed(start).into()),
            }
            text.push_str(self.run());
        }
        Ok(text.into())
    }

    /// The longest part of a string without escapes.
    fn run(&mut self) -> &'a str {
        let rest = &self.text[self.at..];
        let special = |byte: &u8| matches!(byte, b'"' | b'\\' | ..0x20);
        let length = rest.as_bytes().iter().position(special).unwrap_or(rest.len());
        self.at += length;
        &rest[..length]
    }

    fn escape(&mut self, string_start: usize) -> ReadResult<char> {
        let start = self.at;
        self.at += 1;
        let Some(letter) = self.peek() else { return Err(self.unclosed(string_start).into()) };
        let char = match letter {
            b'"' | b'\\' | b'/' => char::from(letter),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.unicode_escape(start),
            _ => {
                let span = Span::new(start, char_span(self.text, self.at).range().end);
                let escape = quote(&self.text[span.range()]);
                let finding = parse_error(format!("`{escape}` is not an escape of JSON"), span);
                return Err(finding.help(r"write a backslash as `\\`").into());
            }
        };
        self.at += 1;
        Ok(char)
    }

    /// `\u` and four digits; characters beyond 16 bits take two of them.
    fn unicode_escape(&mut self, start: usize) -> ReadResult<char> {
        let first = self.code_unit()?;
        if let Some(char) = char::from_u32(first) {
            return Ok(char);
        }
        let lone_end = self.at;
        if first < 0xDC00 && self.text[self.at..].starts_with("\\u") {
            self.at += 1;
            let second = self.code_unit()?;
            if (0xDC00..0xE000).contains(&second) {
                let code = 0x1_0000 + ((first - 0xD800) << 10) + (second - 0xDC00);
                return Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
        }
        let span = Span::new(start, lone_end);
        let message = format!("`{}` is half of a surrogate pair", &self.text[span.range()]);
        Err(parse_error(message, span).help("write both halves, or the character itself").into())
    }

    /// `u` and four hexadecimal digits.
    fn code_unit(&mut self) -> ReadResult<u32> {
        let mut unit = 0;
        for _ in 0..4 {
            self.at += 1;
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            let Some(digit) = digit else {
                return Err(self.unexpected(ExpectedToken::HexDigit).into());
            };
            unit = unit * 16 + digit;
        }
        self.at += 1;
        Ok(unit)
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.at += 1;
        }
    }

    fn unclosed(&self, start: usize) -> Diagnostic {
        let span = Span::new(start, self.text.len());
        parse_error("the string is not closed", span).help("end it with `\"`")
    }

    fn control_character(&self) -> Diagnostic {
        let span = char_span(self.text, self.at);
        let char = quote(&self.text[span.range()]);
        let finding = parse_error(format!("`{char}` must be escaped in a string"), span);
        match self.peek() {
            Some(b'\n' | b'\r') => {
                finding.help("end the string with `\"`, or write the line break as `\\n`")
            }
            Some(b'\t') => finding.help("write the tab as `\\t`"),
            _ => finding,
        }
    }

    fn unexpected(&self, wanted: ExpectedToken) -> Diagnostic {
        let word = word_at(self.text, self.at);
        let (found, span) = match self.text[self.at..].chars().next() {
            None => ("the end of the text".to_owned(), Span::new(self.at, self.at)),
            Some(_) if !word.is_empty() => {
                (format!("`{}`", quote(word)), Span::new(self.at, self.at + word.len()))
            }
            Some(char) => (
                format!("`{}`", quote(char.encode_utf8(&mut [0; 4]))),
                char_span(self.text, self.at),
            ),
        };
        let finding = parse_error(format!("expected {}, found {found}", wanted.text()), span);
        self.advise(finding, wanted, word)
    }

    /// Adds help for a common mistake.
    fn advise(&self, finding: Diagnostic, wanted: ExpectedToken, word: &str) -> Diagnostic {
        let span = finding.span;
        let before = self.text[..self.at].trim_end();
        match (wanted, self.peek()) {
            (ExpectedToken::HexDigit, _) | (_, None) => finding,
            (_, Some(close @ (b'}' | b']'))) if before.ends_with(',') => finding
                .help(format!("remove the comma before `{}`", char::from(close)))
                .fix(Span::new(before.len() - 1, before.len()), ""),
            (_, Some(b'/' | b'#')) => {
                finding.help("JSON has no comments: remove it, or write the document as YAML")
            }
            (_, Some(b'\'')) => finding.help("write text in double quotes"),
            (ExpectedToken::Key, _) if !word.is_empty() => {
                finding.help("write the key in double quotes").fix(span, format!("\"{word}\""))
            }
            (ExpectedToken::Value | ExpectedToken::Digit, _) if !word.is_empty() => {
                advise_word(finding, word)
            }
            (ExpectedToken::Value, Some(b'+')) => finding.help("write the number without `+`"),
            (ExpectedToken::Value, Some(b'.')) => finding.help("write a zero before the `.`"),
            (ExpectedToken::CommaOr(_), Some(b'"' | b'{' | b'[' | b'-' | b'0'..=b'9')) => {
                finding.help("put a comma between the two").fix(Span::new(self.at, self.at), ",")
            }
            (ExpectedToken::End, _) => {
                finding.help("a document is one value: wrap several in `[` and `]`")
            }
            _ => finding,
        }
    }
}

/// Words of other notations for `true`, `null` or a string.
fn advise_word(finding: Diagnostic, word: &str) -> Diagnostic {
    let span = finding.span;
    match word.to_ascii_lowercase().as_str() {
        constant @ ("true" | "false" | "null") => finding.fix(span, constant),
        "none" | "nil" | "undefined" => finding.fix(span, "null"),
        "nan" | "inf" | "infinity" => {
            finding.help("JSON has no such number: use `null`, or quote it as text")
        }
        _ => finding.help("write text in double quotes"),
    }
}

/// The token that the grammar expects at a position.
#[derive(Clone, Copy)]
enum ExpectedToken {
    Value,
    Key,
    Colon,
    CommaOr(u8),
    Digit,
    HexDigit,
    End,
}

impl ExpectedToken {
    fn text(self) -> &'static str {
        match self {
            ExpectedToken::Value => "a value",
            ExpectedToken::Key => "a key in double quotes",
            ExpectedToken::Colon => "`:`",
            ExpectedToken::CommaOr(b'}') => "`,` or `}`",
            ExpectedToken::CommaOr(_) => "`,` or `]`",
            ExpectedToken::Digit => "a digit",
            ExpectedToken::HexDigit => "four hexadecimal digits",
            ExpectedToken::End => "the end of the text",
        }
    }
}

/// The word at a position (letters, digits and inner hyphens), cut to a length that fits a message.
fn word_at(text: &str, at: usize) -> &str {
    const CHARS_MAX: usize = 64;
    let rest = &text[at..];
    let within = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
    if !rest.starts_with(|c: char| within(c) && !c.is_ascii_digit()) {
        return "";
    }
    let mut chars = rest.char_indices().take(CHARS_MAX);
    let end = chars.find(|&(_, c)| !within(c) && c != '-').map(|(at, _)| at);
    let cut = || rest.char_indices().nth(CHARS_MAX).map_or(rest.len(), |(at, _)| at);
    &rest[..end.unwrap_or_else(cut)]
}
