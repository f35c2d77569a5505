//! Resolves a scalar by the core schema of YAML 1.2.
//!
//! `no`, `1_000` and `1:30` are strings, as the schema says. Rejected are values that JSON lacks
//! (`.inf`) and values that readers disagree on (`012` is ten or twelve).

use std::borrow::Cow;
use std::sync::Arc;

use granit_parser::ScalarStyle;

use crate::document::NodeKind;
use crate::document::read_budget::{ReadResult, parse_error, quote};
use crate::source::Span;
use crate::value::Number;

/// The tags of the core schema.
#[derive(Clone, Copy)]
pub(super) enum CoreTag {
    Str,
    Int,
    Float,
    Bool,
    Null,
    Map,
    Seq,
}

impl CoreTag {
    pub(super) fn parse(suffix: &str) -> Option<CoreTag> {
        Some(match suffix {
            "str" => CoreTag::Str,
            "int" => CoreTag::Int,
            "float" => CoreTag::Float,
            "bool" => CoreTag::Bool,
            "null" => CoreTag::Null,
            "map" => CoreTag::Map,
            "seq" => CoreTag::Seq,
            _ => return None,
        })
    }

    /// The type that the tag requires, for messages.
    pub(super) fn noun(self) -> &'static str {
        match self {
            CoreTag::Str => "text (`!!str`)",
            CoreTag::Int => "an integer (`!!int`)",
            CoreTag::Float => "a number (`!!float`)",
            CoreTag::Bool => "a boolean (`!!bool`)",
            CoreTag::Null => "null (`!!null`)",
            CoreTag::Map => "a mapping (`!!map`)",
            CoreTag::Seq => "a sequence (`!!seq`)",
        }
    }
}

/// A scalar as the parser saw it.
pub(super) struct Scalar<'a> {
    pub(super) text: Cow<'a, str>,
    pub(super) style: ScalarStyle,
    pub(super) tag: Option<CoreTag>,
}

impl Scalar<'_> {
    /// The kind of the scalar: by its tag, else a string if quoted, else by its form.
    pub(super) fn kind(&self, span: Span) -> ReadResult<NodeKind> {
        let text = || NodeKind::String(Arc::from(&*self.text));
        match self.tag {
            Some(CoreTag::Str) => return Ok(text()),
            None if self.style != ScalarStyle::Plain => return Ok(text()),
            _ => {}
        }
        let kind = match constant(&self.text) {
            Some(kind) => Some(kind),
            None => number(&self.text, span)?.map(NodeKind::Number),
        };
        match (self.tag, kind) {
            (None, kind) => Ok(kind.unwrap_or_else(text)),
            (Some(CoreTag::Float), Some(NodeKind::Number(number))) => Ok(NodeKind::Number(number)),
            (Some(CoreTag::Int), Some(NodeKind::Number(number))) if number.is_integer() => {
                Ok(NodeKind::Number(number))
            }
            (Some(CoreTag::Bool), Some(kind @ NodeKind::Bool(_)))
            | (Some(CoreTag::Null), Some(kind @ NodeKind::Null)) => Ok(kind),
            (Some(tag), _) => {
                let found = quote(&self.text);
                Err(parse_error(format!("{} is expected here, found `{found}`", tag.noun()), span)
                    .into())
            }
        }
    }
}

fn constant(text: &str) -> Option<NodeKind> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Some(NodeKind::Null),
        "true" | "True" | "TRUE" => Some(NodeKind::Bool(true)),
        "false" | "False" | "FALSE" => Some(NodeKind::Bool(false)),
        _ => None,
    }
}

/// A number of the core schema in JSON's form; `None` for lookalikes such as `1_000`.
fn number(text: &str, span: Span) -> ReadResult<Option<Number>> {
    if let Some((digits, radix)) = radix_digits(text) {
        let Ok(number) = u64::from_str_radix(digits, radix) else {
            let message = format!("`{}` is larger than 64 bits", quote(text));
            return Err(parse_error(message, span).help("write it in decimal").into());
        };
        return Ok(Some(Number::from_literal(&number.to_string())));
    }
    let (sign, unsigned) = match text.strip_prefix('-') {
        Some(unsigned) => ("-", unsigned),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        let finding = parse_error(format!("`{text}` is not a number that JSON has"), span);
        return Err(finding.help("use `null`, or quote it as text").into());
    }
    let Some((whole, fraction, exponent)) = decimal(unsigned) else { return Ok(None) };
    if whole.len() > 1 && whole.starts_with('0') {
        let finding = parse_error(format!("number `{}` has a leading zero", quote(text)), span);
        return Err(finding.help("quote it as text or write it without the zero").into());
    }
    if !text.starts_with('+') && !whole.is_empty() && fraction != Some("") {
        return Ok(Some(Number::from_literal(text)));
    }
    let or_zero = |digits: &str| if digits.is_empty() { "0".to_owned() } else { digits.to_owned() };
    let fraction = fraction.map_or(String::new(), |digits| format!(".{}", or_zero(digits)));
    let literal = format!("{sign}{}{fraction}{exponent}", or_zero(whole));
    Ok(Some(Number::from_literal(&literal)))
}

fn radix_digits(text: &str) -> Option<(&str, u32)> {
    let (digits, radix) = match text.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        None => (text.strip_prefix("0o")?, 8),
    };
    (!digits.is_empty() && digits.chars().all(|c| c.is_digit(radix))).then_some((digits, radix))
}

/// Splits `12`, `1.5`, `1.` or `.5`, with or without an exponent, into whole digits, optional
/// digits after the point, and the exponent with its `e`.
fn decimal(unsigned: &str) -> Option<(&str, Option<&str>, &str)> {
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let split = unsigned.find(['e', 'E']).unwrap_or(unsigned.len());
    let (mantissa, exponent) = unsigned.split_at(split);
    if !exponent.is_empty() {
        let digits = exponent[1..].strip_prefix(['-', '+']).unwrap_or(&exponent[1..]);
        if digits.is_empty() || !all_digits(digits) {
            return None;
        }
    }
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    let some_digit = !whole.is_empty() || fraction.is_some_and(|digits| !digits.is_empty());
    let well_formed = all_digits(whole) && fraction.is_none_or(all_digits);
    (some_digit && well_formed).then_some((whole, fraction, exponent))
}
