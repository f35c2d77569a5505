//! Large values in short: a value of any size becomes one that a page can show at once, with the kind and
//! size of each part that was cut.
//!
//! A value that was cut is `{"$cut": {"kind", "bytes", "length", "preview"}}`.

use std::fmt::Write as _;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use crate::value::{Map, Value};

/// How many characters of a text are kept.
pub const TEXT_MAX: usize = 200;

/// How many entries of an array or object are kept.
pub const ENTRIES_MAX: usize = 100;

/// How many bytes of one value are kept, roughly.
pub const VALUE_BYTES_MAX: usize = 64 * 1024;

/// The bytes of a number, a quote or a comma, roughly.
const SMALL: usize = 8;

/// How many bytes may still be shown.
#[derive(Clone, Copy, Debug)]
pub struct CutBudget {
    left: usize,
}

impl CutBudget {
    /// So many bytes, for all values together.
    pub fn new(bytes: usize) -> CutBudget {
        CutBudget { left: bytes }
    }

    /// A value in short. Takes at most [`VALUE_BYTES_MAX`] of the budget.
    pub fn cut(&mut self, value: &Value) -> Value {
        let own = self.left.min(VALUE_BYTES_MAX);
        let mut budget = CutBudget { left: own };
        let shown = budget.shown(value);
        self.left -= own - budget.left;
        shown
    }

    /// A text in short, for people.
    pub fn cut_text(&mut self, text: &mut String) {
        let kept = text.char_indices().nth(TEXT_MAX * 10);
        if let Some((at, _)) = kept {
            let bytes = text.len();
            text.truncate(at);
            let _ = write!(text, "… ({bytes} bytes)");
        }
        self.spend(text.len());
    }

    fn spend(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub(bytes + SMALL);
    }

    fn shown(&mut self, value: &Value) -> Value {
        match value {
            Value::String(text) => match text.char_indices().nth(self.left.min(TEXT_MAX)) {
                None => {
                    self.spend(text.len());
                    value.clone()
                }
                Some((at, _)) => {
                    self.spend(at);
                    let preview = Value::from(&text[..at]);
                    cut_value("string", text.len(), text.chars().count(), preview)
                }
            },
            Value::Array(items) => {
                let mut shown = Vec::new();
                for item in items.iter().take(ENTRIES_MAX) {
                    if self.left == 0 {
                        break;
                    }
                    shown.push(self.shown(item));
                }
                self.spend(0);
                let is_whole = shown.len() == items.len();
                let shown = Value::from(shown);
                if is_whole { shown } else { cut_value("array", value.size(), items.len(), shown) }
            }
            Value::Object(members) => {
                let mut shown = Map::new();
                for (name, member) in members.iter().take(ENTRIES_MAX) {
                    if self.left == 0 {
                        break;
                    }
                    let name = short_name(name);
                    self.spend(name.len());
                    shown.insert(name, self.shown(member));
                }
                self.spend(0);
                let is_whole = shown.len() == members.len();
                let shown = Value::from(shown);
                if is_whole {
                    shown
                } else {
                    cut_value("object", value.size(), members.len(), shown)
                }
            }
            other => {
                self.spend(SMALL);
                other.clone()
            }
        }
    }
}

/// The name of a member, in short.
fn short_name(name: &Arc<str>) -> Arc<str> {
    match name.char_indices().nth(TEXT_MAX) {
        None => name.clone(),
        Some((at, _)) => format!("{}…", &name[..at]).into(),
    }
}

fn cut_value(kind: &'static str, bytes: usize, length: usize, preview: Value) -> Value {
    let cut = Value::object([
        ("kind", Value::from(kind)),
        ("bytes", Value::from(bytes as u64)),
        ("length", Value::from(length as u64)),
        ("preview", preview),
    ]);
    Value::object([("$cut", cut)])
}

/// A part of a value: the entries of an array or object, or the characters of a text, from an offset on.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ValuePage {
    /// The kind of the value: `string`, `array`, `object`, `number`, `boolean` or `null`.
    pub kind: &'static str,
    /// Its size, roughly.
    pub bytes: usize,
    /// How many entries or characters it has; zero if it has none.
    pub length: usize,
    /// The first entry or character of this part.
    pub offset: usize,
    /// This part. Large entries are cut: `{"$cut": {"kind", "bytes", "length", "preview"}}`.
    pub value: Value,
    /// The `offset` of the next part; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<usize>,
}

/// How many bytes of entries a part of a value shows.
const PAGE_BYTES_MAX: usize = 1024 * 1024;

/// How many characters of a text are a part of it, unless the caller says how many.
const PAGE_TEXT: usize = 10_000;

impl ValuePage {
    /// A part of a value.
    pub fn of(value: &Value, offset: usize, limit: Option<usize>) -> ValuePage {
        let mut budget = CutBudget::new(PAGE_BYTES_MAX);
        let entries = limit.unwrap_or(ENTRIES_MAX).min(ENTRIES_MAX * 10);
        let (length, shown, part) = match value {
            Value::String(text) => {
                let wanted = limit.unwrap_or(PAGE_TEXT);
                let part: String = text.chars().skip(offset).take(wanted).collect();
                (text.chars().count(), part.chars().count(), Value::from(part))
            }
            Value::Array(items) => {
                let part = items.iter().skip(offset).take(entries);
                let part: Vec<Value> = part.map(|item| budget.cut(item)).collect();
                (items.len(), part.len(), Value::from(part))
            }
            Value::Object(members) => {
                let part = members.iter().skip(offset).take(entries);
                let part: Map = part.map(|(name, v)| (name.clone(), budget.cut(v))).collect();
                (members.len(), part.len(), Value::from(part))
            }
            other => (0, 0, other.clone()),
        };
        let end = offset.saturating_add(shown);
        let next = (end < length && shown > 0).then_some(end);
        ValuePage { kind: json_kind(value), bytes: value.size(), length, offset, value: part, next }
    }
}

fn json_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The value at a JSON Pointer.
pub fn at_pointer<'a>(value: &'a Value, pointer: &str) -> Option<&'a Value> {
    if pointer.is_empty() {
        return Some(value);
    }
    let parts = pointer.strip_prefix('/')?.split('/');
    parts.map(|part| part.replace("~1", "/").replace("~0", "~")).try_fold(
        value,
        |at, part| match at {
            Value::Array(items) => items.get(part.parse::<usize>().ok()?),
            Value::Object(members) => members.get(&*part),
            _ => None,
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(value: &Value) -> Value {
        CutBudget::new(usize::MAX).cut(value)
    }

    #[test]
    fn small_values_stay_as_they_are() {
        let value = Value::object([
            ("text", Value::from("ä".repeat(TEXT_MAX))),
            ("items", Value::from(vec![Value::from(1); ENTRIES_MAX])),
        ]);
        assert_eq!(cut(&value), value);
    }

    #[test]
    fn a_long_text_keeps_its_beginning() {
        let shown = cut(&Value::from("ä".repeat(TEXT_MAX + 1)));
        let cut = shown.get("$cut").unwrap();
        assert_eq!(cut.get("kind").unwrap(), &Value::from("string"));
        assert_eq!(cut.get("length").unwrap(), &Value::from(TEXT_MAX as u64 + 1));
        assert_eq!(cut.get("bytes").unwrap(), &Value::from(2 * TEXT_MAX as u64 + 2));
        assert_eq!(cut.get("preview").unwrap().as_str().unwrap().chars().count(), TEXT_MAX);
    }

    #[test]
    fn one_value_is_never_larger_than_its_limit() {
        let text = Value::from("x".repeat(TEXT_MAX));
        let wide = Value::from(vec![Value::from(vec![text; ENTRIES_MAX]); ENTRIES_MAX]);
        let shown = cut(&wide);
        let size = shown.to_json().len();
        assert!((VALUE_BYTES_MAX / 2..2 * VALUE_BYTES_MAX).contains(&size), "{size}");
        let cut = shown.get("$cut").expect("entries were left out");
        assert_eq!(cut.get("length").unwrap(), &Value::from(ENTRIES_MAX as u64));
    }

    #[test]
    fn a_used_up_budget_shows_nothing_more() {
        let mut budget = CutBudget::new(100);
        budget.cut(&Value::from("x".repeat(150)));
        let rest = budget.cut(&Value::from(vec![Value::from(1)]));
        assert_eq!(rest.get("$cut").unwrap().get("preview").unwrap(), &Value::from(vec![]));
    }

    #[test]
    fn parts_of_a_value_follow_each_other() {
        let items: Vec<Value> = (0..250u64).map(Value::from).collect();
        let (value, mut seen, mut offset) = (Value::from(items.clone()), Vec::new(), Some(0));
        while let Some(at) = offset {
            let page = ValuePage::of(&value, at, None);
            assert_eq!((page.kind, page.length, page.offset), ("array", 250, at));
            seen.extend(page.value.as_array().unwrap().iter().cloned());
            offset = page.next;
        }
        assert_eq!(seen, items);
        let text = ValuePage::of(&Value::from("äbc"), 1, Some(1));
        assert_eq!((text.value, text.next), (Value::from("b"), Some(2)));
        assert_eq!(ValuePage::of(&Value::from("abc"), 9, None).next, None);
    }

    #[test]
    fn pointers_lead_to_values() {
        let value = Value::object([("a/b", Value::from(vec![Value::from(1), Value::from(2)]))]);
        assert_eq!(at_pointer(&value, "/a~1b/1"), Some(&Value::from(2)));
        assert_eq!(at_pointer(&value, ""), Some(&value));
        assert_eq!(at_pointer(&value, "/a~1b/2"), None);
        assert_eq!(at_pointer(&value, "a"), None);
    }
}
