//! Deserializes values from data formats, and any type from a value.
//!
//! [`from_value`] keeps nested values as they are: shared and exact. Serde supports neither shared
//! values nor exact numbers, so a nested value is passed through a thread-local.

use std::cell::RefCell;
use std::fmt;

use serde::de::value::{Error, MapDeserializer, SeqDeserializer, StrDeserializer};
use serde::de::{
    DeserializeOwned, DeserializeSeed, EnumAccess, Error as _, IntoDeserializer, MapAccess,
    SeqAccess, Unexpected, VariantAccess, Visitor,
};
use serde::{Deserialize, Deserializer, forward_to_deserialize_any};

use super::{Map, Number, Value};

/// The name under which a [`Value`] asks to be deserialized, so that [`Reader`] recognizes it.
const NAME: &str = "$segue::Value";

thread_local! {
    /// The value on its way from a [`Reader`] to the [`ValueVisitor`] that it calls next.
    static HANDED: RefCell<Option<Value>> = const { RefCell::new(None) };
}

/// Deserializes a type from a value. Nested values are shared, not copied.
pub fn from_value<T: DeserializeOwned>(value: &Value) -> Result<T, Error> {
    T::deserialize(ValueDeserializer(value))
}

struct ValueDeserializer<'a>(&'a Value);

impl<'a> IntoDeserializer<'_, Error> for ValueDeserializer<'a> {
    type Deserializer = ValueDeserializer<'a>;

    fn into_deserializer(self) -> ValueDeserializer<'a> {
        self
    }
}

impl<'de> Deserializer<'de> for ValueDeserializer<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(bool) => visitor.visit_bool(*bool),
            Value::Number(Number::Int(int)) => visitor.visit_i64(*int),
            Value::Number(Number::UInt(uint)) => visitor.visit_u64(*uint),
            Value::Number(Number::Float(float)) => visitor.visit_f64(*float),
            Value::Number(Number::Written(text)) => {
                Err(Error::invalid_value(Unexpected::Other(text), &"a number of 64 bits"))
            }
            Value::String(text) => visitor.visit_str(text),
            Value::Array(items) => {
                visitor.visit_seq(SeqDeserializer::new(items.iter().map(ValueDeserializer)))
            }
            Value::Object(members) => {
                let members = members.iter().map(|(key, value)| (&**key, ValueDeserializer(value)));
                visitor.visit_map(MapDeserializer::new(members))
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        if name == NAME {
            HANDED.set(Some(self.0.clone()));
            return visitor.visit_bytes(NAME.as_bytes());
        }
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.0 {
            Value::String(word) => visitor.visit_enum((**word).into_deserializer()),
            Value::Object(members) if members.len() == 1 => visitor.visit_enum(Variant(members)),
            other => Err(Error::invalid_type(Unexpected::Other(other.kind()), &"a variant")),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        unit unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

/// An object with one member: the name of a variant, and its content.
struct Variant<'a>(&'a Map);

impl<'de, 'a> EnumAccess<'de> for Variant<'a> {
    type Error = Error;
    type Variant = VariantContent<'a>;

    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, VariantContent<'a>), Error> {
        let (name, held) = self.0.first().ok_or_else(|| Error::custom("a variant has a name"))?;
        let name: StrDeserializer<'_, Error> = (**name).into_deserializer();
        Ok((seed.deserialize(name)?, VariantContent(held)))
    }
}

struct VariantContent<'a>(&'a Value);

impl<'de> VariantAccess<'de> for VariantContent<'_> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        <()>::deserialize(ValueDeserializer(self.0))
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Error> {
        seed.deserialize(ValueDeserializer(self.0))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _len: usize, visitor: V) -> Result<V::Value, Error> {
        ValueDeserializer(self.0).deserialize_any(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        ValueDeserializer(self.0).deserialize_any(visitor)
    }
}

impl<'de> Deserialize<'de> for Value {
    /// Exact from [`from_value`]. From other formats as exact as they are: foreign text goes
    /// through [`crate::document`], which has limits, rejects duplicate keys and keeps
    /// large numbers.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_newtype_struct(NAME, ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }

    fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<Value, E> {
        let handed = HANDED.take().filter(|_| bytes == NAME.as_bytes());
        handed.ok_or_else(|| E::invalid_type(Unexpected::Bytes(bytes), &self))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        Value::deserialize(deserializer)
    }

    fn visit_bool<E>(self, bool: bool) -> Result<Value, E> {
        Ok(Value::Bool(bool))
    }

    fn visit_i64<E>(self, int: i64) -> Result<Value, E> {
        Ok(Value::from(int))
    }

    fn visit_u64<E>(self, uint: u64) -> Result<Value, E> {
        Ok(Value::from(uint))
    }

    fn visit_f64<E>(self, float: f64) -> Result<Value, E> {
        Ok(Value::Number(Number::Float(float)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::from(text))
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(Value::from(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(items.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some((key, value)) = map.next_entry::<String, Value>()? {
            members.insert(key.into(), value);
        }
        Ok(members.into())
    }
}
