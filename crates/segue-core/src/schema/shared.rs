//! Adapts our shared values to the validator: borrowed, never converted, and each access is
//! charged.

use std::borrow::Cow;
use std::cell::Cell;
use std::sync::Arc;

use jsonschema::json::{Array, Json, JsonNumber, Node, NodeIdentity, Object};
use jsonschema::types::JsonType;

use super::cost::SchemaCost;
use crate::budget::{BYTES_PER_OPERATION, spend_or_unwind};
use crate::value::{Map, Number, Value};

thread_local! {
    /// The cost of texts and names in the current validation.
    static COST: Cell<SchemaCost> = const { Cell::new(SchemaCost { places: 1, names: (1, 1) }) };
}

/// Runs `work` with this cost of texts and names.
pub(super) fn with_cost<T>(cost: SchemaCost, work: impl FnOnce() -> T) -> T {
    let _before = RestoreCost(COST.replace(cost));
    work()
}

struct RestoreCost(SchemaCost);

impl Drop for RestoreCost {
    fn drop(&mut self) {
        COST.set(self.0);
    }
}

/// Charges for matching a text with a pattern.
fn pay_for_text(text: &str) {
    pay_for_places(COST.get().places, text);
}

/// Charges for matching a name with all patterns at once.
fn pay_for_name(name: &str) {
    let SchemaCost { places, names: (patterns, of_names) } = COST.get();
    spend_or_unwind(patterns - 1);
    pay_for_places(places.max(of_names), name);
}

fn pay_for_places(places: u64, text: &str) {
    let steps = places.saturating_mul(text.len() as u64);
    spend_or_unwind(1 + steps / BYTES_PER_OPERATION as u64);
}

/// The representation for [`jsonschema`].
pub(super) struct SharedJson;

impl Json for SharedJson {
    type Node<'a> = &'a Value;
    type PreparedKey = Arc<str>;
    type StringBuffer = Value;

    fn prepare_key(key: &str) -> Arc<str> {
        key.into()
    }

    fn with_string_node<T>(buffer: &mut Value, text: &str, f: impl FnOnce(&Value) -> T) -> T {
        *buffer = Value::from(text);
        f(buffer)
    }
}

impl<'a> Node<'a, SharedJson> for &'a Value {
    type Object = &'a Map;
    type Array = &'a [Value];
    type Number = &'a Number;

    fn as_object(&self) -> Option<&'a Map> {
        spend_or_unwind(1);
        match self {
            Value::Object(members) => Some(members),
            _ => None,
        }
    }

    fn as_array(&self) -> Option<&'a [Value]> {
        spend_or_unwind(1);
        match self {
            Value::Array(items) => Some(items),
            _ => None,
        }
    }

    fn as_string(&self) -> Option<Cow<'a, str>> {
        match self {
            Value::String(text) => {
                pay_for_text(text);
                Some(Cow::Borrowed(text))
            }
            _ => None,
        }
    }

    fn as_number(&self) -> Option<&'a Number> {
        match self {
            Value::Number(number) => Some(number),
            _ => None,
        }
    }

    fn as_boolean(&self) -> Option<bool> {
        self.as_bool()
    }

    fn is_null(&self) -> bool {
        Value::is_null(self)
    }

    fn json_type(&self) -> JsonType {
        spend_or_unwind(1);
        match self {
            Value::Null => JsonType::Null,
            Value::Bool(_) => JsonType::Boolean,
            Value::Number(_) => JsonType::Number,
            Value::String(_) => JsonType::String,
            Value::Array(_) => JsonType::Array,
            Value::Object(_) => JsonType::Object,
        }
    }

    fn to_value(&self) -> Cow<'a, serde_json::Value> {
        spend_or_unwind((self.size() / BYTES_PER_OPERATION) as u64);
        Cow::Owned(serde_json::Value::from(*self))
    }

    fn identity(&self) -> Option<NodeIdentity> {
        Some(NodeIdentity::new(std::ptr::from_ref::<Value>(self) as usize))
    }
}

impl JsonNumber for &Number {
    fn as_u64(&self) -> Option<u64> {
        Number::as_u64(self)
    }

    fn as_i64(&self) -> Option<i64> {
        Number::as_i64(self)
    }

    fn as_f64(&self) -> Option<f64> {
        Number::as_f64(self)
    }

    fn as_str(&self) -> Cow<'_, str> {
        Cow::Owned(self.to_string())
    }

    fn to_number(&self) -> Cow<'_, serde_json::Number> {
        let number = match self {
            Number::Int(int) => Some((*int).into()),
            Number::UInt(uint) => Some((*uint).into()),
            other => other.as_f64().and_then(serde_json::Number::from_f64),
        };
        Cow::Owned(number.unwrap_or_else(|| 0.into()))
    }

    fn is_integer(&self) -> bool {
        Number::is_integer(self)
    }
}

impl<'a> Object<'a, SharedJson> for &'a Map {
    type Node = &'a Value;
    type MemberName = &'a str;
    type MembersIter = std::iter::Map<
        indexmap::map::Iter<'a, Arc<str>, Value>,
        fn((&'a Arc<str>, &'a Value)) -> (&'a str, &'a Value),
    >;

    fn len(&self) -> usize {
        Map::len(self)
    }

    fn get(&self, key: &Arc<str>) -> Option<&'a Value> {
        (*self).get(key)
    }

    fn members(&self) -> Self::MembersIter {
        // Names are matched with patterns too.
        self.keys().for_each(|key| pay_for_name(key));
        self.iter().map(|(key, value)| (&**key, value))
    }
}

impl<'a> Array<'a, SharedJson> for &'a [Value] {
    type Node = &'a Value;
    type ElementsIter = std::slice::Iter<'a, Value>;

    fn len(&self) -> usize {
        <[Value]>::len(self)
    }

    fn elements(&self) -> std::slice::Iter<'a, Value> {
        self.iter()
    }
}
