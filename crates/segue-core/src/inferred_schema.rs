//! Schemas inferred from observed values: kinds and member names only, never values, and bounded in
//! size.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::types::{ObjectType, OtherProperties, Property, Type};
use crate::value::Value;

/// The maximum depth; deeper values are "any".
const DEPTH_MAX: usize = 4;

/// The maximum number of members of one object. An object with more is treated as a map.
const MEMBERS_MAX: usize = 64;

/// The number of array items that are observed.
const ITEMS_MAX: usize = 16;

/// The minimum number of samples for a conclusion.
const SAMPLES_MIN: u64 = 5;

/// The observed shape of values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InferredSchema {
    /// The number of values.
    samples: u64,
    /// Kinds of values other than arrays and objects.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    scalars: BTreeSet<ScalarKind>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    object: Option<Members>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    items: Option<Box<InferredSchema>>,
    /// Whether a part was too deep to be observed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_cut: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ScalarKind {
    Null,
    Bool,
    Integer,
    Number,
    String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Members {
    /// The number of objects among the values.
    samples: u64,
    known: BTreeMap<Arc<str>, InferredSchema>,
    /// Whether there were more members than the limit.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_cut: bool,
}

impl InferredSchema {
    /// The number of observed values.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Whether there are enough samples for a conclusion.
    pub fn has_enough_samples(&self) -> bool {
        self.samples >= SAMPLES_MIN
    }

    /// Observes a value.
    pub fn add(&mut self, value: &Value) {
        self.add_at(value, 0);
    }

    fn add_at(&mut self, value: &Value, depth: usize) {
        self.samples += 1;
        let scalar = match value {
            Value::Null => ScalarKind::Null,
            Value::Bool(_) => ScalarKind::Bool,
            Value::Number(_) if Type::of_value(value) == Type::Integer => ScalarKind::Integer,
            Value::Number(_) => ScalarKind::Number,
            Value::String(_) => ScalarKind::String,
            Value::Array(_) | Value::Object(_) if depth >= DEPTH_MAX => {
                self.is_cut = true;
                return;
            }
            Value::Array(items) => {
                let shape = self.items.get_or_insert_default();
                items.iter().take(ITEMS_MAX).for_each(|item| shape.add_at(item, depth + 1));
                return;
            }
            Value::Object(members) => {
                let object = self.object.get_or_insert_default();
                object.samples += 1;
                for (name, value) in members.iter() {
                    if let Some(shape) = object.room(name) {
                        shape.add_at(value, depth + 1);
                    }
                }
                return;
            }
        };
        self.scalars.insert(scalar);
    }

    /// Merges another observation.
    pub fn merge(&mut self, other: &InferredSchema) {
        self.samples += other.samples;
        self.scalars.extend(&other.scalars);
        self.is_cut |= other.is_cut;
        if let Some(items) = &other.items {
            self.items.get_or_insert_default().merge(items);
        }
        if let Some(members) = &other.object {
            let object = self.object.get_or_insert_default();
            object.samples += members.samples;
            object.is_cut |= members.is_cut;
            for (name, shape) in &members.known {
                if let Some(room) = object.room(name) {
                    room.merge(shape);
                }
            }
        }
    }

    /// The type of the values, if future ones have the same shape.
    pub fn ty(&self) -> Type {
        if self.is_cut {
            return Type::Any;
        }
        let scalars = self.scalars.iter().map(|scalar| match scalar {
            ScalarKind::Null => Type::Null,
            ScalarKind::Bool => Type::Bool,
            ScalarKind::Integer => Type::Integer,
            ScalarKind::Number => Type::Number,
            ScalarKind::String => Type::String,
        });
        let items = self.items.iter().map(|items| {
            // Empty arrays say nothing about their items.
            Type::array(if items.samples == 0 { Type::Any } else { items.ty() })
        });
        let object = self.object.iter().map(Members::ty);
        Type::union(scalars.chain(items).chain(object).collect::<Vec<_>>())
    }
}

impl Members {
    /// The entry of a member, while the limit allows one.
    fn room(&mut self, name: &Arc<str>) -> Option<&mut InferredSchema> {
        if !self.known.contains_key(name) && self.known.len() >= MEMBERS_MAX {
            self.is_cut = true;
            return None;
        }
        Some(self.known.entry(name.clone()).or_default())
    }

    fn ty(&self) -> Type {
        let property = |(name, shape): (&Arc<str>, &InferredSchema)| {
            let required = shape.samples >= self.samples;
            (name.clone(), Property { ty: shape.ty(), required })
        };
        let properties = self.known.iter().map(property).collect();
        let rest =
            if self.is_cut { OtherProperties::Open(Type::Any) } else { OtherProperties::Closed };
        Type::object(ObjectType { properties, rest })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(json: &str) -> Value {
        Value::from(serde_json::from_str::<serde_json::Value>(json).unwrap())
    }

    fn shape(values: &[&str]) -> InferredSchema {
        let mut shape = InferredSchema::default();
        values.iter().for_each(|json| shape.add(&value(json)));
        shape
    }

    #[test]
    fn members_and_kinds_are_remembered() {
        let seen = shape(&[
            r#"{"id": 1, "tags": [], "name": "a"}"#,
            r#"{"id": 2, "tags": ["x"], "name": null}"#,
            r#"{"id": 2.5, "more": {"deep": true}}"#,
        ]);
        let Type::Object(object) = seen.ty() else { panic!("{}", seen.ty()) };
        assert_eq!(object.properties.len(), 4);
        let number = Type::union([Type::Integer, Type::Number]);
        assert_eq!(object.properties["id"], Property { ty: number, required: true });
        let name = Type::union([Type::Null, Type::String]);
        assert_eq!(object.properties["name"], Property { ty: name, required: false });
        assert_eq!(object.properties["tags"].ty, Type::array(Type::String));
        let more = Type::record([("deep", Type::Bool)]);
        assert_eq!(object.properties["more"], Property { ty: more, required: false });
        assert!(!seen.has_enough_samples());
    }

    #[test]
    fn merging_is_adding() {
        let (first, second) = (r#"{"a": [1, {"b": 2}]}"#, r#"[{"a": null}, "x"]"#);
        let mut merged = shape(&[first]);
        merged.merge(&shape(&[second, "3"]));
        assert_eq!(merged, shape(&[first, second, "3"]));
        let text = serde_json::to_string(&merged).unwrap();
        assert_eq!(serde_json::from_str::<InferredSchema>(&text).unwrap(), merged);
    }

    #[test]
    fn what_is_deep_or_a_map_may_be_anything() {
        let map: Vec<String> = (0..80).map(|n| format!("\"k{n}\": {n}")).collect();
        let seen = shape(&[&format!("{{{}}}", map.join(", "))]);
        assert!(
            matches!(seen.ty(), Type::Object(object) if object.rest == OtherProperties::Open(Type::Any))
        );
        let deep = shape(&[r#"{"a": {"b": {"c": {"d": {"e": 1}}}}}"#]);
        let schema = deep.ty().to_schema().to_json();
        assert!(schema.contains("\"d\"") && !schema.contains("\"e\""), "{schema}");
    }
}
