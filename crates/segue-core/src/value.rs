//! JSON values that are shared, not copied.
//!
//! Strings, arrays and objects sit behind an [`Arc`]: cloning any [`Value`] costs a counter, so a
//! 10 MB tool output read by ten steps exists once. Numbers are exact: one that neither a 64-bit
//! integer nor a float can hold is stored as written, never rounded.
//!
//! Not here: reading text ([`crate::document`]), paths and expressions ([`crate::expr`]).

mod de;
mod mark;
mod shared;

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use indexmap::IndexMap;
use serde::{Serialize, Serializer};

pub use de::from_value;
pub(crate) use mark::SENSITIVE;
pub use shared::{HasMeasure, Measure, Shared};

/// The members of an object, in the order of the text.
pub type Map = IndexMap<Arc<str>, Value>;

/// One JSON value. Cloning is cheap at any size.
#[derive(Clone, Default)]
pub enum Value {
    /// `null`
    #[default]
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number, exact as written.
    Number(Number),
    /// Text.
    String(Arc<str>),
    /// A list of values.
    Array(Shared<Vec<Value>>),
    /// Named values; the order is kept but does not affect equality.
    Object(Shared<Map>),
}

/// A JSON number that never loses a digit.
#[derive(Clone, Debug)]
pub enum Number {
    /// A whole number of 64 bits.
    Int(i64),
    /// A whole number above `i64::MAX`.
    UInt(u64),
    /// A finite float whose shortest decimal form is what was written.
    Float(f64),
    /// Any other number, as written: `18446744073709551616`, `1e400`, thirty digits of pi.
    Written(Arc<str>),
}

/// Any JSON.
impl schemars::JsonSchema for Value {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Value".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        true.into()
    }
}

impl Number {
    /// Reads a JSON number literal. The text must already follow JSON's grammar for numbers.
    pub fn from_literal(text: &str) -> Number {
        if !text.contains(['.', 'e', 'E']) && text != "-0" {
            if let Ok(int) = text.parse::<i64>() {
                return Number::Int(int);
            }
            if let Ok(uint) = text.parse::<u64>() {
                return Number::UInt(uint);
            }
            return Number::Written(text.into());
        }
        match text.parse::<f64>() {
            Ok(float) if float.is_finite() && is_exact(text, float) => Number::Float(float),
            _ => Number::Written(text.into()),
        }
    }

    /// The number as a signed 64-bit integer, when it is one.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Number::Int(int) => Some(*int),
            _ => None,
        }
    }

    /// The number as an unsigned 64-bit integer, when it is one.
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Number::Int(int) => u64::try_from(*int).ok(),
            Number::UInt(uint) => Some(*uint),
            _ => None,
        }
    }

    /// The nearest float; lossy for integers above 2^53 and for [`Number::Written`].
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Number::Int(int) => Some(*int as f64),
            Number::UInt(uint) => Some(*uint as f64),
            Number::Float(float) => Some(*float),
            Number::Written(text) => text.parse().ok().filter(|float: &f64| float.is_finite()),
        }
    }

    /// Whether the number has no fractional part (`3` and `3.0` have none).
    pub fn is_integer(&self) -> bool {
        match self {
            Number::Int(_) | Number::UInt(_) => true,
            Number::Float(float) => float.fract() == 0.0,
            Number::Written(text) => {
                let (digits, exponent) = significant_digits(text);
                exponent >= 0 || digits.is_empty()
            }
        }
    }
}

/// Whether the shortest decimal form of `float` has the written digits.
fn is_exact(text: &str, float: f64) -> bool {
    significant_digits(text) == significant_digits(&format!("{float:e}"))
}

/// A decimal as its digits without zeros on either side, and the power of ten of the last one.
fn significant_digits(text: &str) -> (String, i64) {
    let unsigned = text.trim_start_matches('-');
    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent: i64 = exponent.parse().unwrap_or(i64::MAX / 2);
    let digits = format!("{whole}{fraction}");
    let trimmed = digits.trim_end_matches('0');
    let dropped = i64::try_from(digits.len() - trimmed.len()).unwrap_or(0);
    let fraction_len = i64::try_from(fraction.len()).unwrap_or(0);
    let digits = trimmed.trim_start_matches('0').to_owned();
    let power = exponent.saturating_sub(fraction_len).saturating_add(dropped);
    let power = if digits.is_empty() { 0 } else { power };
    (digits, power)
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Number::Int(int) => write!(f, "{int}"),
            Number::UInt(uint) => write!(f, "{uint}"),
            // `{:?}` keeps the `.0` that tells 1.0 from 1, and is the shortest form that reads back.
            Number::Float(float) => write!(f, "{float:?}"),
            Number::Written(text) => f.write_str(text),
        }
    }
}

impl PartialEq for Number {
    fn eq(&self, other: &Number) -> bool {
        use Number::{Float, Int, UInt, Written};
        match (self, other) {
            (Int(a), Int(b)) => a == b,
            (UInt(a), UInt(b)) => a == b,
            (Float(a), Float(b)) => a == b,
            (Written(a), Written(b)) => {
                a == b
                    || (a.starts_with('-') == b.starts_with('-')
                        && significant_digits(a) == significant_digits(b))
            }
            (Float(float), exact) | (exact, Float(float)) => {
                !matches!(exact, Written(_))
                    && significant_digits(&format!("{float:e}"))
                        == significant_digits(&exact.to_string())
                    && (*float < 0.0) == exact.to_string().starts_with('-')
            }
            _ => false,
        }
    }
}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Number) -> Option<Ordering> {
        match (self, other) {
            (Number::Int(a), Number::Int(b)) => Some(a.cmp(b)),
            (Number::UInt(a), Number::UInt(b)) => Some(a.cmp(b)),
            (Number::Int(_), Number::UInt(_)) => Some(Ordering::Less),
            (Number::UInt(_), Number::Int(_)) => Some(Ordering::Greater),
            (a, b) if a == b => Some(Ordering::Equal),
            (a, b) => a.as_f64()?.partial_cmp(&b.as_f64()?),
        }
    }
}

impl Value {
    /// The value with every text, names included, changed by `change`; `None` if nothing changes,
    /// so that a large value is not copied.
    pub fn map_texts(&self, change: &dyn Fn(&str) -> Option<String>) -> Option<Value> {
        match self {
            Value::String(text) => change(text).map(Value::from),
            Value::Array(items) => {
                let changed: Vec<Option<Value>> =
                    items.iter().map(|item| item.map_texts(change)).collect();
                changed.iter().any(Option::is_some).then(|| {
                    let both = changed.into_iter().zip(items.iter());
                    let items = both.map(|(new, old)| new.unwrap_or_else(|| old.clone()));
                    Value::from(items.collect::<Vec<_>>())
                })
            }
            Value::Object(members) => {
                let changed: Vec<(Option<String>, Option<Value>)> = members
                    .iter()
                    .map(|(name, member)| (change(name), member.map_texts(change)))
                    .collect();
                changed.iter().any(|(name, member)| name.is_some() || member.is_some()).then(|| {
                    let both = changed.into_iter().zip(members.iter());
                    let members = both.map(|((name, member), (old_name, old))| {
                        let name = name.map_or_else(|| old_name.clone(), Arc::from);
                        (name, member.unwrap_or_else(|| old.clone()))
                    });
                    members.collect::<Map>().into()
                })
            }
            _ => None,
        }
    }

    /// An empty object.
    pub fn empty_object() -> Value {
        Map::new().into()
    }

    /// An object from its members.
    pub fn object<K: Into<Arc<str>>>(members: impl IntoIterator<Item = (K, Value)>) -> Value {
        members.into_iter().map(|(k, v)| (k.into(), v)).collect::<Map>().into()
    }

    /// A member of an object by its name.
    pub fn get(&self, key: &str) -> Option<&Value> {
        match self {
            Value::Object(members) => members.get(key),
            _ => None,
        }
    }

    /// An item of an array by its position.
    pub fn at(&self, index: usize) -> Option<&Value> {
        match self {
            Value::Array(items) => items.get(index),
            _ => None,
        }
    }

    /// The text of a string value.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// The truth value of a boolean.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(bool) => Some(*bool),
            _ => None,
        }
    }

    /// The value as a signed integer.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Value::Number(number) => number.as_i64(),
            _ => None,
        }
    }

    /// The value as an unsigned integer.
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Value::Number(number) => number.as_u64(),
            _ => None,
        }
    }

    /// The value as the nearest float.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Value::Number(number) => number.as_f64(),
            _ => None,
        }
    }

    /// The items of an array.
    pub fn as_array(&self) -> Option<&Shared<Vec<Value>>> {
        match self {
            Value::Array(items) => Some(items),
            _ => None,
        }
    }

    /// The members of an object.
    pub fn as_object(&self) -> Option<&Shared<Map>> {
        match self {
            Value::Object(members) => Some(members),
            _ => None,
        }
    }

    /// Whether the value is `null`.
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    /// The JSON name of the kind, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(number) if number.is_integer() => "integer",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        }
    }

    /// Compact JSON.
    pub fn to_json(&self) -> String {
        let mut out = String::new();
        self.write_json(&mut out);
        out
    }

    /// Appends compact JSON to `out`.
    pub fn write_json(&self, out: &mut String) {
        self.write(out, Order::Kept);
    }

    /// JSON with sorted keys and no whitespace: equal values give equal text.
    pub fn to_canonical_json(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, Order::Sorted);
        out
    }

    fn write(&self, out: &mut String, order: Order) {
        match self {
            Value::Null => out.push_str("null"),
            Value::Bool(true) => out.push_str("true"),
            Value::Bool(false) => out.push_str("false"),
            Value::Number(number) => {
                use fmt::Write as _;
                let _ = write!(out, "{number}");
            }
            Value::String(text) => write_json_string(text, out),
            Value::Array(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    item.write(out, order);
                }
                out.push(']');
            }
            Value::Object(members) => write_members(members, out, order),
        }
    }

    /// The size and depth of the value, serialized in full: shared parts count each time.
    pub fn measure(&self) -> Measure {
        let own = std::mem::size_of::<Value>();
        match self {
            Value::Null | Value::Bool(_) => Measure { bytes: own, depth: 0 },
            Value::Number(Number::Written(text)) => Measure { bytes: own + text.len(), depth: 0 },
            Value::Number(_) => Measure { bytes: own, depth: 0 },
            Value::String(text) => Measure { bytes: own + text.len(), depth: 0 },
            Value::Array(items) => items.measure(),
            Value::Object(members) => members.measure(),
        }
    }

    /// The number of bytes that this value holds, roughly; shared parts are counted each time.
    pub fn size(&self) -> usize {
        self.measure().bytes
    }

    /// Changes the value at a JSON Pointer, if there is one.
    pub fn replace_at(&mut self, pointer: &str, change: &dyn Fn(&Value) -> Value) {
        let Some(rest) = pointer.strip_prefix('/') else {
            *self = change(self);
            return;
        };
        let end = rest.find('/').unwrap_or(rest.len());
        let name = rest[..end].replace("~1", "/").replace("~0", "~");
        let go_on = |inner: Option<&mut Value>| {
            inner.into_iter().for_each(|inner| inner.replace_at(&rest[end..], change));
        };
        match self {
            Value::Array(items) => {
                items.update(|items| {
                    go_on(name.parse().ok().and_then(|at: usize| items.get_mut(at)));
                });
            }
            Value::Object(members) => members.update(|members| go_on(members.get_mut(&*name))),
            _ => {}
        }
    }
}

#[derive(Clone, Copy)]
enum Order {
    Kept,
    Sorted,
}

fn write_members(members: &Map, out: &mut String, order: Order) {
    let mut members: Vec<(&Arc<str>, &Value)> = members.iter().collect();
    if matches!(order, Order::Sorted) {
        members.sort_unstable_by(|a, b| a.0.cmp(b.0));
    }
    out.push('{');
    for (index, (key, value)) in members.into_iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        write_json_string(key, out);
        out.push(':');
        value.write(out, order);
    }
    out.push('}');
}

/// Appends a JSON string literal, escaping what JSON requires and nothing else.
pub fn write_json_string(text: &str, out: &mut String) {
    out.push('"');
    let mut start = 0;
    for (index, byte) in text.bytes().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.push_str(&text[start..index]);
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            other => {
                use fmt::Write as _;
                let _ = write!(out, "\\u{other:04x}");
            }
        }
        start = index + 1;
    }
    out.push_str(&text[start..]);
    out.push('"');
}

impl PartialEq for Value {
    fn eq(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::Null, Value::Null) => true,
            (Value::Bool(a), Value::Bool(b)) => a == b,
            (Value::Number(a), Value::Number(b)) => a == b,
            (Value::String(a), Value::String(b)) => a == b,
            (Value::Array(a), Value::Array(b)) => a == b,
            (Value::Object(a), Value::Object(b)) => a == b,
            _ => false,
        }
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_json())
    }
}

impl fmt::Display for Value {
    /// Text as it is, everything else as compact JSON: the form in which templates insert a value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::String(text) => f.write_str(text),
            other => f.write_str(&other.to_json()),
        }
    }
}

impl From<bool> for Value {
    fn from(bool: bool) -> Value {
        Value::Bool(bool)
    }
}

impl From<i32> for Value {
    fn from(int: i32) -> Value {
        Value::from(i64::from(int))
    }
}

impl From<i64> for Value {
    fn from(int: i64) -> Value {
        Value::Number(Number::Int(int))
    }
}

impl From<u64> for Value {
    fn from(uint: u64) -> Value {
        Value::Number(i64::try_from(uint).map_or(Number::UInt(uint), Number::Int))
    }
}

impl From<usize> for Value {
    fn from(size: usize) -> Value {
        Value::from(size as u64)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::String(text.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::String(text.into())
    }
}

impl From<Arc<str>> for Value {
    fn from(text: Arc<str>) -> Value {
        Value::String(text)
    }
}

impl From<Vec<Value>> for Value {
    fn from(items: Vec<Value>) -> Value {
        Value::Array(items.into())
    }
}

impl From<Map> for Value {
    fn from(members: Map) -> Value {
        Value::Object(members.into())
    }
}

impl From<serde_json::Value> for Value {
    fn from(json: serde_json::Value) -> Value {
        use serde_json::Value as Json;
        match json {
            Json::Null => Value::Null,
            Json::Bool(bool) => Value::Bool(bool),
            Json::Number(number) => Value::Number(Number::from_literal(&number.to_string())),
            Json::String(text) => Value::String(text.into()),
            Json::Array(items) => items.into_iter().map(Value::from).collect::<Vec<_>>().into(),
            Json::Object(members) => Value::object(members.into_iter().map(|(k, v)| (k, v.into()))),
        }
    }
}

impl From<&Value> for serde_json::Value {
    fn from(value: &Value) -> serde_json::Value {
        use serde_json::Value as Json;
        match value {
            Value::Null => Json::Null,
            Value::Bool(bool) => Json::Bool(*bool),
            Value::Number(Number::Int(int)) => Json::from(*int),
            Value::Number(Number::UInt(uint)) => Json::from(*uint),
            Value::Number(other) => other.as_f64().map_or(Json::Null, Json::from),
            Value::String(text) => Json::String(text.to_string()),
            Value::Array(items) => Json::Array(items.iter().map(Json::from).collect()),
            Value::Object(members) => {
                Json::Object(members.iter().map(|(k, v)| (k.to_string(), v.into())).collect())
            }
        }
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Value::Null => serializer.serialize_unit(),
            Value::Bool(bool) => serializer.serialize_bool(*bool),
            Value::Number(Number::Int(int)) => serializer.serialize_i64(*int),
            Value::Number(Number::UInt(uint)) => serializer.serialize_u64(*uint),
            Value::Number(Number::Float(float)) => serializer.serialize_f64(*float),
            Value::Number(Number::Written(text)) => {
                let raw = serde_json::value::RawValue::from_string(text.to_string());
                raw.map_err(serde::ser::Error::custom)?.serialize(serializer)
            }
            Value::String(text) => serializer.serialize_str(text),
            Value::Array(items) => items.serialize(serializer),
            Value::Object(members) => members.serialize(serializer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D5: all numbers pass through unchanged.
    #[test]
    fn numbers_survive_exactly() {
        for text in [
            "0",
            "-1",
            "9007199254740993",
            "9223372036854775807",
            "18446744073709551615",
            "18446744073709551616",
            "1e400",
            "0.1",
            "1.0",
            "-0.0",
            "3.14159265358979323846264338327",
            "123456789012345678901234567890",
        ] {
            assert_eq!(Number::from_literal(text).to_string(), text);
        }
    }

    #[test]
    fn equal_numbers_are_equal_in_any_form() {
        let number = Number::from_literal;
        assert_eq!(number("1"), number("1.0"));
        assert_eq!(number("100"), number("1e2"));
        assert_eq!(number("-0"), number("0"));
        assert_ne!(number("9007199254740993"), number("9007199254740992.0"));
        assert_ne!(number("-1"), number("1.0"));
        assert!(number("1e400").is_integer() && !number("1e-400").is_integer());
    }

    #[test]
    fn canonical_json_ignores_key_order() {
        let a = Value::object([("b", Value::from(1)), ("a", Value::Null)]);
        let b = Value::object([("a", Value::Null), ("b", Value::from(1))]);
        assert_eq!(a, b);
        assert_eq!(a.to_canonical_json(), b.to_canonical_json());
        assert_eq!(a.to_json(), r#"{"b":1,"a":null}"#);
    }
}
