//! A value → text in the style of the text around it.

use super::style::{Style, items_of};
use crate::document::write::is_literal;
use crate::source::Notation;
use crate::value::Value;

/// A collection that would be longer on one line is spread over lines.
const WIDTH: usize = 88;

impl Style {
    /// A value after `key:` in block style, with the space or line break before it. `column` is that of
    /// the key.
    pub(super) fn after_key(&self, value: &Value, key: &str, column: usize) -> String {
        if let Some(text) = literal(value) {
            return format!(" {}", self.literal_block(text, column + self.unit.len()));
        }
        if self.fits_on_a_line(value, key) {
            return format!(" {}", self.on_one_line(value));
        }
        let inner = match value {
            Value::Array(_) => column + self.dash,
            _ => column + self.unit.len(),
        };
        format!("{}{}{}", self.newline, " ".repeat(inner), self.block(value, inner, key))
    }

    /// A member of an object in block style.
    pub(super) fn block_member(&self, key: &str, value: &Value, column: usize) -> String {
        format!("{}:{}", self.key(key), self.after_key(value, key, column))
    }

    /// A value after its dash. `column` is that of the value, `list` the key of the list.
    pub(super) fn after_dash(&self, value: &Value, list: &str, column: usize) -> String {
        if let Some(text) = literal(value) {
            return self.literal_block(text, column);
        }
        let name = items_of(Some(list));
        let is_flow = match value {
            Value::Object(_) if self.is_on_one_line(&name).is_none() => is_empty(value),
            _ => self.fits_on_a_line(value, &name),
        };
        if is_flow { self.on_one_line(value) } else { self.block(value, column, &name) }
    }

    /// A whole document in block style.
    pub(super) fn document(&self, value: &Value) -> String {
        self.block(value, 0, "")
    }

    /// A collection in block style; its first line without indentation.
    fn block(&self, value: &Value, column: usize, key: &str) -> String {
        let between = format!("{}{}", self.newline, " ".repeat(column));
        let parts: Vec<String> = match value {
            Value::Object(members) => {
                members.iter().map(|(key, value)| self.block_member(key, value, column)).collect()
            }
            Value::Array(items) => {
                let dash = format!("-{}", " ".repeat(self.gap - 1));
                let item =
                    |item| format!("{dash}{}", self.after_dash(item, key, column + self.gap));
                items.iter().map(item).collect()
            }
            scalar => vec![self.on_one_line(scalar)],
        };
        parts.join(&between)
    }

    fn literal_block(&self, text: &str, column: usize) -> String {
        let mut out = (if text.ends_with('\n') { "|" } else { "|-" }).to_owned();
        for line in text.trim_end_matches('\n').split('\n') {
            out.push_str(self.newline);
            if !line.is_empty() {
                out.extend(std::iter::repeat_n(' ', column));
                out.push_str(line);
            }
        }
        out
    }

    fn fits_on_a_line(&self, value: &Value, key: &str) -> bool {
        let (Value::Object(_) | Value::Array(_)) = value else { return true };
        if is_empty(value) {
            return true;
        }
        if has_steps(value) && self.is_on_one_line(key) != Some(true) {
            return false;
        }
        let width = self.on_one_line(value).chars().count();
        match self.is_on_one_line(key) {
            _ if contains_literal(value) => false,
            Some(true) => width <= 2 * WIDTH,
            Some(false) => false,
            None => {
                let is_small = value.as_object().is_none_or(|members| members.len() <= 3);
                is_small && is_flat(value) && width <= WIDTH
            }
        }
    }

    /// A value on one line, in brackets where it is a collection.
    pub(super) fn on_one_line(&self, value: &Value) -> String {
        let comma = if self.comma_space { ", " } else { "," };
        match value {
            Value::String(text) => self.string(text),
            Value::Array(items) => {
                let items: Vec<String> = items.iter().map(|item| self.on_one_line(item)).collect();
                format!("[{}]", items.join(comma))
            }
            Value::Object(members) if members.is_empty() => "{}".to_owned(),
            Value::Object(members) => {
                let colon = self.colon();
                let member = |(key, value): (&std::sync::Arc<str>, &Value)| {
                    format!("{}{colon}{}", self.key(key), self.on_one_line(value))
                };
                let members: Vec<String> = members.iter().map(member).collect();
                let pad = if self.padding { " " } else { "" };
                format!("{{{pad}{}{pad}}}", members.join(comma))
            }
            other => other.to_json(),
        }
    }

    /// The colon inside brackets. YAML needs the space after a key that is not quoted.
    pub(super) fn colon(&self) -> &'static str {
        if self.colon_space || self.notation == Notation::Yaml { ": " } else { ":" }
    }

    /// A value inside brackets, spread over lines where the text does so. `indent` is that of the line
    /// on which it begins.
    pub(super) fn bracketed(&self, value: &Value, key: &str, indent: &str) -> String {
        let one_line = !self.is_pretty || is_empty(value) || self.is_on_one_line(key) == Some(true);
        if one_line || !matches!(value, Value::Object(_) | Value::Array(_)) {
            return self.on_one_line(value);
        }
        let inner = format!("{indent}{}", self.unit);
        let (open, parts, close) = match value {
            Value::Object(members) => {
                let member = |(key, value): (&std::sync::Arc<str>, &Value)| {
                    format!(
                        "{}{}{}",
                        self.key(key),
                        self.colon(),
                        self.bracketed(value, key, &inner)
                    )
                };
                ('{', members.iter().map(member).collect::<Vec<_>>(), '}')
            }
            Value::Array(items) => {
                let name = items_of(Some(key));
                let item = |item| self.bracketed(item, &name, &inner);
                ('[', items.iter().map(item).collect(), ']')
            }
            _ => return self.on_one_line(value),
        };
        let between = format!(",{}{inner}", self.newline);
        format!(
            "{open}{}{inner}{}{}{indent}{close}",
            self.newline,
            parts.join(&between),
            self.newline
        )
    }

    pub(super) fn key(&self, key: &str) -> String {
        match self.notation {
            Notation::Yaml if !self.quotes_keys && is_plain(key) => key.to_owned(),
            Notation::Yaml => self.quoted(key, self.quote),
            Notation::Json => self.quoted(key, '"'),
        }
    }

    /// A string on one line, quoted if it has to be or if the text always does.
    pub(super) fn string(&self, text: &str) -> String {
        match self.notation {
            Notation::Yaml if !self.quotes_values && is_plain(text) => text.to_owned(),
            Notation::Yaml => self.quoted(text, self.quote),
            Notation::Json => self.quoted(text, '"'),
        }
    }

    /// A string in these quotes, or in double quotes if it needs escapes.
    pub(super) fn quoted(&self, text: &str, quote: char) -> String {
        // In an expression both kinds of quotes occur; the other kind needs no escapes.
        let needs_escapes = text.chars().any(must_escape);
        let inner_double = text.contains('"') || text.contains('\\');
        let is_single = match quote {
            '\'' => true,
            _ => self.notation == Notation::Yaml && inner_double && !text.contains('\''),
        };
        if is_single && !needs_escapes && self.notation == Notation::Yaml {
            return format!("'{}'", text.replace('\'', "''"));
        }
        double_quoted(text)
    }
}

/// Characters that YAML does not allow, or reads as line breaks.
fn must_escape(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

/// A string in double quotes, as both JSON and YAML read it.
pub(super) fn double_quoted(text: &str) -> String {
    use std::fmt::Write as _;
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if must_escape(c) => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// The text of a string that is written as a literal block.
pub(super) fn literal(value: &Value) -> Option<&str> {
    value.as_str().filter(|text| is_literal(text))
}

/// Whether a value holds a list of steps, to which more may be added.
fn has_steps(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(has_steps),
        Value::Object(members) => members.iter().any(|(key, value)| {
            (matches!(&**key, "steps" | "otherwise") && value.as_array().is_some())
                || has_steps(value)
        }),
        _ => false,
    }
}

fn contains_literal(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(contains_literal),
        Value::Object(members) => members.values().any(contains_literal),
        scalar => literal(scalar).is_some(),
    }
}

fn is_flat(value: &Value) -> bool {
    let is_scalar =
        |value: &Value| !matches!(value, Value::Array(_) | Value::Object(_)) || is_empty(value);
    match value {
        Value::Array(items) => items.iter().all(is_scalar),
        Value::Object(members) => members.values().all(is_scalar),
        _ => true,
    }
}

pub(super) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        _ => false,
    }
}

/// Whether a string needs no quotes in YAML, in lines and in brackets alike.
pub(super) fn is_plain(text: &str) -> bool {
    const MEANING: &[&str] = &["null", "true", "false", "yes", "no", "on", "off", "nan", "inf"];
    let is_allowed = |c: char| {
        c.is_ascii_alphanumeric()
            || matches!(c, '_' | '-' | '.' | '/' | ' ' | '$' | ':' | '(' | ')' | '@' | '+')
    };
    let Some(first) = text.chars().next() else { return false };
    let begins = first.is_ascii_alphabetic() || matches!(first, '_' | '/') || is_duration(text);
    begins
        && text.chars().all(is_allowed)
        && !text.ends_with([' ', ':'])
        && !text.contains(": ")
        && !MEANING.contains(&text.to_lowercase().as_str())
}

/// A number with a unit, such as `30s`, which no reader takes for a number.
fn is_duration(text: &str) -> bool {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    unit.len() < text.len() && matches!(unit, "ms" | "s" | "m" | "h" | "d")
}
