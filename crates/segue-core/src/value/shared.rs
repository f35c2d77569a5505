//! Shared arrays and objects that know their serialized size.
//!
//! With sharing, a value that holds another one twice costs no more than one that holds it once;
//! sixty such steps make a value that cannot be traversed or written. So size and depth are
//! computed when a value is made, from those of its children.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::mark::is_marked_text;
use super::{Map, Value};

/// Shared content with its measure. Cloning costs a counter.
pub struct Shared<T>(Arc<MeasuredContent<T>>);

#[derive(Clone)]
struct MeasuredContent<T> {
    measure: Measure,
    /// Whether the mark of a sensitive value stands in it, once a run has looked.
    is_marked: OnceLock<bool>,
    content: T,
}

/// The size of a value, with shared parts counted each time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measure {
    /// Bytes, roughly.
    pub bytes: usize,
    /// Nesting of arrays and objects.
    pub depth: usize,
}

impl Measure {
    fn around(self, inner: Measure, more: usize) -> Measure {
        Measure {
            bytes: self.bytes.saturating_add(inner.bytes).saturating_add(more),
            depth: self.depth.max(inner.depth.saturating_add(1)),
        }
    }
}

/// A container of values.
pub trait HasMeasure {
    /// The measure, computed from the children.
    fn measure(&self) -> Measure;

    /// Whether the mark of a sensitive value stands in a child.
    fn is_marked(&self) -> bool;
}

const EMPTY: Measure = Measure { bytes: std::mem::size_of::<Value>(), depth: 1 };

impl HasMeasure for Vec<Value> {
    fn measure(&self) -> Measure {
        self.iter().fold(EMPTY, |sum, item| sum.around(item.measure(), 0))
    }

    fn is_marked(&self) -> bool {
        self.iter().any(Value::is_marked)
    }
}

impl HasMeasure for Map {
    fn measure(&self) -> Measure {
        self.iter().fold(EMPTY, |sum, (key, item)| sum.around(item.measure(), key.len()))
    }

    fn is_marked(&self) -> bool {
        self.iter().any(|(name, member)| is_marked_text(name) || member.is_marked())
    }
}

impl<T: HasMeasure> Shared<T> {
    /// Shares and measures content.
    pub fn new(content: T) -> Shared<T> {
        let (measure, is_marked) = (content.measure(), OnceLock::new());
        Shared(Arc::new(MeasuredContent { measure, is_marked, content }))
    }

    /// Its measure.
    pub fn measure(&self) -> Measure {
        self.0.measure
    }

    /// Whether it contains the mark of a sensitive value. Walks the value once, however many runs ask.
    pub fn is_marked(&self) -> bool {
        *self.0.is_marked.get_or_init(|| self.0.content.is_marked())
    }

    /// Whether both are the same allocation, not only equal.
    pub fn ptr_eq(one: &Shared<T>, other: &Shared<T>) -> bool {
        Arc::ptr_eq(&one.0, &other.0)
    }
}

impl<T: HasMeasure + Clone> Shared<T> {
    /// The content, copied only if it is shared.
    pub fn unwrap_or_clone(self) -> T {
        Arc::try_unwrap(self.0).map_or_else(|held| held.content.clone(), |held| held.content)
    }

    /// Changes the content of this handle only, and measures it again.
    pub fn update<R>(&mut self, change: impl FnOnce(&mut T) -> R) -> R {
        let held = Arc::make_mut(&mut self.0);
        let result = change(&mut held.content);
        held.measure = held.content.measure();
        held.is_marked = OnceLock::new();
        result
    }
}

impl Shared<Map> {
    /// Adds or replaces a member without visiting the others. The depth may stay that of a replaced
    /// member: too large, never too small.
    pub fn insert(&mut self, name: Arc<str>, value: Value) {
        let held = Arc::make_mut(&mut self.0);
        held.is_marked = OnceLock::new();
        let (added, length) = (value.measure(), name.len());
        if let Some(gone) = held.content.insert(name, value) {
            let bytes = gone.measure().bytes.saturating_add(length);
            held.measure.bytes = held.measure.bytes.saturating_sub(bytes);
        }
        held.measure = held.measure.around(added, length);
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.content
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Shared<T> {
        Shared(self.0.clone())
    }
}

impl<T: HasMeasure + Default> Default for Shared<T> {
    fn default() -> Shared<T> {
        Shared::new(T::default())
    }
}

impl<T: HasMeasure> From<T> for Shared<T> {
    fn from(content: T) -> Shared<T> {
        Shared::new(content)
    }
}

impl<T: PartialEq> PartialEq for Shared<T> {
    fn eq(&self, other: &Shared<T>) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || **self == **other
    }
}

impl<T: fmt::Debug> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl<T: Serialize> Serialize for Shared<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (**self).serialize(serializer)
    }
}

impl<'de, T: HasMeasure + Deserialize<'de>> Deserialize<'de> for Shared<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Shared<T>, D::Error> {
        T::deserialize(deserializer).map(Shared::new)
    }
}

impl<T: schemars::JsonSchema> schemars::JsonSchema for Shared<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> std::borrow::Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        T::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::SENSITIVE;

    /// Shared parts count each time, so growth by sharing is visible.
    #[test]
    fn a_value_that_holds_another_one_twice_is_twice_as_large() {
        let mut value = Value::from("x".repeat(1000));
        for _ in 0..200 {
            value = Value::from(vec![value.clone(), value]);
        }
        assert_eq!(value.measure(), Measure { bytes: usize::MAX, depth: 200 });
    }

    #[test]
    fn a_measure_follows_every_change() {
        let inner = Value::object([("text", Value::from("abc"))]);
        let mut members: Shared<Map> = Map::from_iter([("a".into(), inner.clone())]).into();
        let fresh = |members: &Shared<Map>| (**members).clone().measure();
        assert_eq!(members.measure(), fresh(&members));
        members.insert("b".into(), inner.clone());
        assert_eq!(members.measure(), fresh(&members));
        members.insert("b".into(), Value::from("y".repeat(100)));
        assert_eq!(members.measure(), fresh(&members));
        members.update(|members| members.shift_remove("a"));
        assert_eq!(members.measure(), fresh(&members));
        let mut whole = Value::Object(members);
        whole.replace_at("/b", &|_| inner.clone());
        let again = Value::object([("b", inner)]);
        assert_eq!((whole.measure(), &whole), (again.measure(), &again));
    }

    #[test]
    fn a_mark_is_found_after_every_change() {
        let mark = || Value::from(format!("key {SENSITIVE}"));
        let mut members: Shared<Map> = Map::from_iter([("a".into(), Value::Null)]).into();
        assert!(!members.is_marked());
        members.insert("b".into(), Value::from(vec![mark()]));
        assert!(members.is_marked() && members.clone().is_marked());
        members.update(|members| members.shift_remove("b"));
        assert!(!members.is_marked());
        members.insert(SENSITIVE.into(), Value::Null);
        assert!(members.is_marked());
        let mut whole = Value::from(vec![Value::Null, Value::Object(members)]);
        assert!(whole.is_marked());
        whole.replace_at("/1", &|_| Value::Null);
        assert!(!whole.is_marked());
        whole.replace_at("/0", &|_| mark());
        assert!(whole.is_marked());
    }
}
