//! Static types of values.
//!
//! Types come from JSON Schemas and literals, and flow through expressions. They answer two
//! questions: can this path exist, and can this value be valid there? Both answers are "no" only if
//! no possible value would do; an unknown type is [`Type::Any`] and always accepted. So is the part of a type
//! that exceeds a limit.

mod composite;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use crate::limits::{TYPE_ALTERNATIVES_MAX, TYPE_DEPTH_MAX, TYPE_NODES_MAX};
use crate::value::Value;

pub use composite::Composite;

/// How deep a schema is followed; deeper values are `Any`.
const SCHEMA_DEPTH_MAX: usize = 24;

/// How many nodes of a schema are visited; beyond that values are `Any`.
const SCHEMA_NODES_MAX: usize = 20_000;

/// How many pairs of types are compared to find a conflict; beyond that there is none.
const CONFLICT_PAIRS_MAX: usize = 100_000;

/// How many alternatives a message names.
const SHOWN_ALTERNATIVES_MAX: usize = 8;

/// A set of possible values.
#[derive(Clone, Debug, PartialEq)]
pub enum Type {
    /// Unknown.
    Any,
    /// `null`
    Null,
    /// `true` or `false`
    Bool,
    /// A number without a fraction.
    Integer,
    /// Any number.
    Number,
    /// Text.
    String,
    /// A list of values of this type.
    Array(Arc<Composite<Type>>),
    /// Named values.
    Object(Arc<Composite<ObjectType>>),
    /// One of several; never nested, never fewer than two.
    OneOf(Arc<Composite<Vec<Type>>>),
}

/// The members of an object type.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObjectType {
    /// Declared members.
    pub properties: BTreeMap<Arc<str>, Property>,
    /// Other members.
    pub rest: OtherProperties,
}

/// A declared member.
#[derive(Clone, Debug, PartialEq)]
pub struct Property {
    /// Its type.
    pub ty: Type,
    /// Whether it is always present.
    pub required: bool,
}

/// The members of an object beyond the declared ones.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum OtherProperties {
    /// Nothing: `additionalProperties: false`.
    Closed,
    /// Not specified. Tools mostly mean "none", JSON Schema means "any".
    #[default]
    Unsaid,
    /// Members of this type.
    Open(Type),
}

/// The result of looking up a member.
#[derive(Clone, Debug, PartialEq)]
pub enum FieldLookup {
    /// A declared member.
    Found {
        /// Its type.
        ty: Type,
        /// Whether every value has it.
        required: bool,
    },
    /// Unknown.
    Unknown,
    /// An object that does not declare this name.
    Undeclared {
        /// Whether no value can have it.
        surely: bool,
        /// The declared names.
        declared: Vec<Arc<str>>,
    },
    /// Not an object, so it has no members.
    NotAnObject,
}

impl Type {
    /// An array of values of this type.
    pub fn array(item: Type) -> Type {
        let array = Composite::array(item);
        if array.is_small() { Type::Array(array) } else { Type::Array(Composite::array(Type::Any)) }
    }

    /// An object. If it is too large, its large members are unknown.
    pub fn object(parts: ObjectType) -> Type {
        let object = Composite::object(parts);
        if object.is_small() {
            return Type::Object(object);
        }
        let mut parts = (**object).clone();
        let share = (TYPE_NODES_MAX / (parts.properties.len() + 2)).max(1);
        let bound = |ty: &mut Type| {
            let size = ty.size();
            if size.nodes > share || size.depth >= TYPE_DEPTH_MAX {
                *ty = Type::Any;
            }
        };
        parts.properties.values_mut().for_each(|property| bound(&mut property.ty));
        if let OtherProperties::Open(ty) = &mut parts.rest {
            bound(ty);
        }
        Type::Object(Composite::object(parts))
    }

    /// An object of exactly these members, all present.
    pub fn record<K: Into<Arc<str>>>(members: impl IntoIterator<Item = (K, Type)>) -> Type {
        let properties = members
            .into_iter()
            .map(|(name, ty)| (name.into(), Property { ty, required: true }))
            .collect();
        Type::object(ObjectType { properties, rest: OtherProperties::Closed })
    }

    /// An object with unknown members.
    pub fn any_object() -> Type {
        let rest = OtherProperties::Open(Type::Any);
        Type::object(ObjectType { properties: BTreeMap::new(), rest })
    }

    /// A union; [`Type::Any`] absorbs all others. Too many alternatives are unknown.
    pub fn union(types: impl IntoIterator<Item = Type>) -> Type {
        let mut flat: Vec<Type> = Vec::new();
        for ty in types {
            if matches!(ty, Type::Any) {
                return Type::Any;
            }
            for part in ty.parts() {
                if !flat.contains(part) {
                    flat.push(part.clone());
                }
            }
            if flat.len() > TYPE_ALTERNATIVES_MAX {
                return Type::Any;
            }
        }
        match flat.len() {
            0 => Type::Any,
            1 => flat.swap_remove(0),
            _ => {
                let union = Composite::one_of(flat);
                if union.is_small() { Type::OneOf(union) } else { Type::Any }
            }
        }
    }

    /// The alternatives: itself, or the parts of a union.
    pub fn parts(&self) -> &[Type] {
        match self {
            Type::OneOf(parts) => parts,
            other => std::slice::from_ref(other),
        }
    }

    /// The same without `null`.
    #[must_use]
    pub fn without_null(&self) -> Type {
        match self {
            Type::OneOf(parts) => {
                Type::union(parts.iter().filter(|part| **part != Type::Null).cloned())
            }
            other => other.clone(),
        }
    }

    /// The type of a literal.
    pub fn of_value(value: &Value) -> Type {
        match value {
            Value::Null => Type::Null,
            Value::Bool(_) => Type::Bool,
            Value::Number(number) if number.is_integer() => Type::Integer,
            Value::Number(_) => Type::Number,
            Value::String(_) => Type::String,
            Value::Array(items) => Type::array(Type::union(items.iter().map(Type::of_value))),
            Value::Object(members) => {
                Type::record(members.iter().map(|(k, v)| (k.clone(), Type::of_value(v))))
            }
        }
    }

    /// The type of an array's items; `Any` for an unknown type.
    pub fn item(&self) -> Option<Type> {
        let items: Vec<Type> = self
            .parts()
            .iter()
            .filter_map(|part| match part {
                Type::Any => Some(Type::Any),
                Type::Array(item) => Some((***item).clone()),
                _ => None,
            })
            .collect();
        if items.is_empty() { None } else { Some(Type::union(items)) }
    }

    /// Looks up a member.
    pub fn field(&self, name: &str) -> FieldLookup {
        let mut found = Vec::new();
        let mut always = true;
        let mut undeclared: Option<(bool, Vec<Arc<str>>)> = None;
        for part in self.parts() {
            match part {
                Type::Any => return FieldLookup::Unknown,
                Type::Object(object) => match object.member(name) {
                    FieldLookup::Found { ty, required } => {
                        always &= required;
                        found.push(ty);
                    }
                    FieldLookup::Undeclared { surely, declared } => {
                        let entry = undeclared.get_or_insert((true, Vec::new()));
                        entry.0 &= surely;
                        entry.1.extend(declared);
                    }
                    FieldLookup::Unknown | FieldLookup::NotAnObject => return FieldLookup::Unknown,
                },
                _ => always = false,
            }
        }
        match (found.is_empty(), undeclared) {
            (false, None) => FieldLookup::Found { ty: Type::union(found), required: always },
            (false, Some(_)) => FieldLookup::Found { ty: Type::union(found), required: false },
            (true, Some((surely, declared))) => FieldLookup::Undeclared { surely, declared },
            (true, None) => FieldLookup::NotAnObject,
        }
    }

    /// Why no value of this type is valid as `expected`; `None` if one may be.
    pub fn conflict(&self, expected: &Type) -> Option<String> {
        self.is_apart(expected, &Cell::new(CONFLICT_PAIRS_MAX)).then(|| self.reason(expected))
    }

    /// Whether no value of this type is valid as `expected`.
    fn is_apart(&self, expected: &Type, pairs_left: &Cell<usize>) -> bool {
        if matches!(expected, Type::Any) || matches!(self, Type::Any) {
            return false;
        }
        let pairs = self
            .parts()
            .iter()
            .flat_map(|it| expected.parts().iter().map(move |wanted| (it, wanted)));
        pairs.into_iter().all(|(actual, wanted)| {
            let left = pairs_left.get();
            pairs_left.set(left.saturating_sub(1));
            left > 0 && are_apart(actual, wanted, pairs_left)
        })
    }

    /// Why two types are apart. With unions on either side, the plain message is clearer than the reason of
    /// one pair.
    fn reason(&self, expected: &Type) -> String {
        match (self, expected) {
            (Type::Array(actual), Type::Array(wanted)) => {
                format!("in the array's items: {}", actual.reason(wanted))
            }
            (Type::Object(actual), Type::Object(wanted)) => {
                let left = Cell::new(CONFLICT_PAIRS_MAX);
                match conflict_of_objects(actual, wanted, &left) {
                    Some(ObjectConflict::In(name, actual, wanted)) => {
                        format!("in `{name}`: {}", actual.reason(wanted))
                    }
                    Some(ObjectConflict::Missing(name)) => format!("`{name}` is missing"),
                    Some(ObjectConflict::Extra(name)) => format!("`{name}` is not allowed"),
                    None => format!("expected {expected}, found {self}"),
                }
            }
            _ => format!("expected {expected}, found {self}"),
        }
    }

    /// A JSON Schema that every value of this type matches.
    pub fn to_schema(&self) -> Value {
        let typed = |word: &str| Value::object([("type", Value::from(word))]);
        match self {
            Type::Any => Value::empty_object(),
            Type::Null => typed("null"),
            Type::Bool => typed("boolean"),
            Type::Integer => typed("integer"),
            Type::Number => typed("number"),
            Type::String => typed("string"),
            Type::Array(item) => {
                Value::object([("type", Value::from("array")), ("items", item.to_schema())])
            }
            Type::Object(object) => object.to_schema(),
            Type::OneOf(parts) => {
                let parts: Vec<Value> = parts.iter().map(Type::to_schema).collect();
                Value::object([("anyOf", parts.into())])
            }
        }
    }

    /// Reads a JSON Schema, as far as static checks can use it.
    pub fn from_schema(schema: &Value) -> Type {
        SchemaReader { root: schema, nodes_left: Cell::new(SCHEMA_NODES_MAX) }.read(schema, 0)
    }
}

impl ObjectType {
    fn to_schema(&self) -> Value {
        let properties = self.properties.iter().map(|(name, p)| (name.clone(), p.ty.to_schema()));
        let required = self.properties.iter().filter(|(_, property)| property.required);
        let required: Vec<Value> = required.map(|(name, _)| Value::String(name.clone())).collect();
        let mut members = vec![
            ("type", Value::from("object")),
            ("properties", Value::object(properties)),
            ("required", required.into()),
        ];
        match &self.rest {
            OtherProperties::Closed => members.push(("additionalProperties", Value::Bool(false))),
            OtherProperties::Unsaid | OtherProperties::Open(Type::Any) => {}
            OtherProperties::Open(ty) => members.push(("additionalProperties", ty.to_schema())),
        }
        Value::object(members)
    }

    fn member(&self, name: &str) -> FieldLookup {
        if let Some(property) = self.properties.get(name) {
            return FieldLookup::Found { ty: property.ty.clone(), required: property.required };
        }
        let declared = || self.properties.keys().cloned().collect();
        match &self.rest {
            OtherProperties::Open(Type::Any) => FieldLookup::Unknown,
            OtherProperties::Open(ty) => FieldLookup::Found { ty: ty.clone(), required: false },
            OtherProperties::Closed => {
                FieldLookup::Undeclared { surely: true, declared: declared() }
            }
            OtherProperties::Unsaid if self.properties.is_empty() => FieldLookup::Unknown,
            OtherProperties::Unsaid => {
                FieldLookup::Undeclared { surely: false, declared: declared() }
            }
        }
    }
}

/// Whether no value of one alternative is valid as the other.
fn are_apart(actual: &Type, wanted: &Type, pairs_left: &Cell<usize>) -> bool {
    match (actual, wanted) {
        (Type::Any, _) | (_, Type::Any) => false,
        (Type::Integer | Type::Number, Type::Integer | Type::Number) => false,
        (Type::Array(actual), Type::Array(wanted)) => actual.is_apart(wanted, pairs_left),
        (Type::Object(actual), Type::Object(wanted)) => {
            conflict_of_objects(actual, wanted, pairs_left).is_some()
        }
        (actual, wanted) => actual != wanted,
    }
}

/// Why no value of one object type is valid as another.
enum ObjectConflict<'a> {
    In(&'a str, &'a Type, &'a Type),
    Missing(&'a str),
    Extra(&'a str),
}

fn conflict_of_objects<'a>(
    actual: &'a ObjectType,
    wanted: &'a ObjectType,
    pairs_left: &Cell<usize>,
) -> Option<ObjectConflict<'a>> {
    for (name, property) in &wanted.properties {
        match actual.properties.get(name) {
            Some(given)
                if (given.required || property.required)
                    && given.ty.is_apart(&property.ty, pairs_left) =>
            {
                return Some(ObjectConflict::In(name, &given.ty, &property.ty));
            }
            None if property.required && actual.rest == OtherProperties::Closed => {
                return Some(ObjectConflict::Missing(name));
            }
            Some(_) | None => {}
        }
    }
    if wanted.rest != OtherProperties::Closed {
        return None;
    }
    let stranger = |(name, property): &(&Arc<str>, &Property)| {
        property.required && !wanted.properties.contains_key(*name)
    };
    let (name, _) = actual.properties.iter().find(stranger)?;
    Some(ObjectConflict::Extra(name))
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Any => f.write_str("anything"),
            Type::Null => f.write_str("null"),
            Type::Bool => f.write_str("boolean"),
            Type::Integer => f.write_str("integer"),
            Type::Number => f.write_str("number"),
            Type::String => f.write_str("string"),
            Type::Array(item) => match &***item {
                Type::Any => f.write_str("array"),
                // Arrays of alternatives inside alternatives would fill pages.
                Type::OneOf(parts) if parts.iter().any(|part| matches!(part, Type::Array(_))) => {
                    f.write_str("array of several types")
                }
                Type::OneOf(_) => write!(f, "array of ({})", &***item),
                item => write!(f, "array of {item}"),
            },
            Type::Object(_) => f.write_str("object"),
            Type::OneOf(parts) => {
                let words = parts.iter().take(SHOWN_ALTERNATIVES_MAX).map(ToString::to_string);
                f.write_str(&words.collect::<Vec<_>>().join(" or "))?;
                match parts.len().saturating_sub(SHOWN_ALTERNATIVES_MAX) {
                    0 => Ok(()),
                    more => write!(f, " or {more} more"),
                }
            }
        }
    }
}

/// Follows a schema and its references.
struct SchemaReader<'a> {
    root: &'a Value,
    /// A small schema with mutual references can unfold without end.
    nodes_left: Cell<usize>,
}

impl SchemaReader<'_> {
    fn read(&self, schema: &Value, depth: usize) -> Type {
        let nodes_left = self.nodes_left.get();
        if depth > SCHEMA_DEPTH_MAX || nodes_left == 0 || schema.as_object().is_none() {
            return Type::Any;
        }
        self.nodes_left.set(nodes_left - 1);
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            return self
                .resolve(reference)
                .map_or(Type::Any, |target| self.read(target, depth + 1));
        }
        if let Some(value) = schema.get("const") {
            return Type::of_value(value);
        }
        if let Some(values) = schema.get("enum").and_then(Value::as_array) {
            return Type::union(values.iter().map(Type::of_value));
        }
        for word in ["anyOf", "oneOf"] {
            if let Some(parts) = schema.get(word).and_then(Value::as_array)
                && schema.get("properties").is_none()
            {
                return Type::union(parts.iter().map(|part| self.read(part, depth + 1)));
            }
        }
        if let Some(parts) = schema.get("allOf").and_then(Value::as_array) {
            return self.read_all(schema, parts, depth);
        }
        let nullable = schema.get("nullable").and_then(Value::as_bool) == Some(true);
        let ty = self.read_by_type(schema, depth);
        if nullable { Type::union([ty, Type::Null]) } else { ty }
    }

    fn read_by_type(&self, schema: &Value, depth: usize) -> Type {
        match schema.get("type") {
            Some(Value::String(word)) => self.read_word(word, schema, depth),
            Some(Value::Array(words)) => Type::union(
                words.iter().map(|w| self.read_word(w.as_str().unwrap_or(""), schema, depth)),
            ),
            _ if schema.get("properties").is_some() => self.read_object(schema, depth),
            _ => Type::Any,
        }
    }

    fn read_word(&self, word: &str, schema: &Value, depth: usize) -> Type {
        match word {
            "null" => Type::Null,
            "boolean" => Type::Bool,
            "integer" => Type::Integer,
            "number" => Type::Number,
            "string" => Type::String,
            "array" => {
                let item = schema.get("items").map_or(Type::Any, |item| self.read(item, depth + 1));
                let tuple = schema.get("prefixItems").is_some();
                Type::array(if tuple { Type::Any } else { item })
            }
            "object" => self.read_object(schema, depth),
            _ => Type::Any,
        }
    }

    fn read_object(&self, schema: &Value, depth: usize) -> Type {
        let required: BTreeSet<&str> = schema
            .get("required")
            .and_then(Value::as_array)
            .map_or_else(BTreeSet::new, |names| names.iter().filter_map(Value::as_str).collect());
        let mut properties = BTreeMap::new();
        if let Some(declared) = schema.get("properties").and_then(Value::as_object) {
            for (name, property) in declared.iter() {
                let ty = self.read(property, depth + 1);
                let required = required.contains(&**name);
                properties.insert(name.clone(), Property { ty, required });
            }
        }
        for name in required {
            properties.entry(name.into()).or_insert(Property { ty: Type::Any, required: true });
        }
        Type::object(ObjectType { properties, rest: self.read_rest(schema, depth) })
    }

    fn read_rest(&self, schema: &Value, depth: usize) -> OtherProperties {
        // These keywords can add members that `properties` does not list.
        let elsewhere = [
            "patternProperties",
            "unevaluatedProperties",
            "anyOf",
            "oneOf",
            "if",
            "dependentSchemas",
        ];
        if elsewhere.iter().any(|word| schema.get(word).is_some()) {
            return OtherProperties::Open(Type::Any);
        }
        match schema.get("additionalProperties") {
            Some(Value::Bool(false)) => OtherProperties::Closed,
            Some(Value::Bool(true)) => OtherProperties::Open(Type::Any),
            Some(schema) => OtherProperties::Open(self.read(schema, depth + 1)),
            None => OtherProperties::Unsaid,
        }
    }

    /// `allOf` of objects joins their members; of other types it is not followed.
    fn read_all(&self, schema: &Value, parts: &[Value], depth: usize) -> Type {
        let mut whole =
            ObjectType { properties: BTreeMap::new(), rest: OtherProperties::Open(Type::Any) };
        let own = self.read_by_type(schema, depth);
        for part in parts.iter().map(|part| self.read(part, depth + 1)).chain([own]) {
            match part {
                Type::Object(object) => {
                    for (name, property) in &object.properties {
                        let required = property.required
                            || whole.properties.get(name).is_some_and(|known| known.required);
                        let property = Property { ty: property.ty.clone(), required };
                        whole.properties.insert(name.clone(), property);
                    }
                }
                Type::Any => {}
                _ => return Type::Any,
            }
        }
        Type::object(whole)
    }

    fn resolve(&self, reference: &str) -> Option<&Value> {
        let pointer = reference.strip_prefix('#')?;
        pointer.split('/').skip(1).try_fold(self.root, |at, part| {
            let name = part.replace("~1", "/").replace("~0", "~");
            match at {
                Value::Array(items) => items.get(name.parse::<usize>().ok()?),
                other => other.get(&name),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ty(schema: &str) -> Type {
        Type::from_schema(&serde_json::from_str(schema).unwrap())
    }

    #[test]
    fn paths_are_known_as_far_as_the_schema_says() {
        let closed = ty(
            r#"{"type":"object","properties":{"id":{"type":"string"}},"required":["id"],"additionalProperties":false}"#,
        );
        assert_eq!(closed.field("id"), FieldLookup::Found { ty: Type::String, required: true });
        assert!(matches!(closed.field("di"), FieldLookup::Undeclared { surely: true, .. }));
        let unsaid = ty(r#"{"type":"object","properties":{"id":{"type":"string"}}}"#);
        assert!(matches!(unsaid.field("di"), FieldLookup::Undeclared { surely: false, .. }));
        assert_eq!(ty(r#"{"type":"object"}"#).field("di"), FieldLookup::Unknown);
        assert_eq!(ty(r#"{"type":"string"}"#).field("x"), FieldLookup::NotAnObject);
    }

    #[test]
    fn references_and_recursion_end() {
        let tree = ty(
            r##"{"$ref":"#/$defs/t","$defs":{"t":{"type":"object","properties":{"kids":{"type":"array","items":{"$ref":"#/$defs/t"}}},"required":["kids"]}}}"##,
        );
        let FieldLookup::Found { ty: kids, .. } = tree.field("kids") else { panic!("{tree:?}") };
        assert!(matches!(kids.item(), Some(Type::Object(_))));
        assert_eq!(ty(r##"{"$ref":"#"}"##), Type::Any);
    }

    #[test]
    fn conflicts_are_only_reported_when_certain() {
        let number_or_null = ty(r#"{"type":["number","null"]}"#);
        assert_eq!(number_or_null.conflict(&Type::Integer), None);
        assert!(number_or_null.conflict(&Type::String).is_some());
        assert_eq!(Type::Any.conflict(&Type::String), None);
        let wanted =
            ty(r#"{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}"#);
        assert_eq!(
            Type::record([("a", Type::Integer)]).conflict(&wanted).as_deref(),
            Some("in `a`: expected string, found integer")
        );
        assert!(Type::record([("b", Type::String)]).conflict(&wanted).is_some());
    }

    fn pair_of(ty: &Type) -> Type {
        Type::record([("a", ty.clone()), ("b", ty.clone())])
    }

    /// Parts are shared, so sixty lines can make a type whose tree has 2⁶⁰ nodes.
    #[test]
    fn a_type_that_grows_by_sharing_stays_small() {
        let ways: [fn(&Type) -> Type; 3] = [
            pair_of,
            |ty| Type::array(ty.clone()),
            |ty| Type::union([Type::array(ty.clone()), Type::record([("a", ty.clone())])]),
        ];
        for grow in ways {
            let grown = (0..60).fold(Type::String, |ty, _| grow(&ty));
            assert!(grown.size().nodes <= TYPE_NODES_MAX, "{:?}", grown.size());
            assert!(grown.size().depth <= TYPE_DEPTH_MAX, "{:?}", grown.size());
        }
        let many = (0..1_000).map(|n| Type::record([(format!("m{n}"), Type::Null)]));
        assert_eq!(Type::union(many.clone()), Type::Any);
        assert_eq!(Type::union(many.take(TYPE_ALTERNATIVES_MAX)).parts().len(), 128);
    }

    /// Of an object that is too large, the small members stay known.
    #[test]
    fn a_large_object_keeps_its_small_members() {
        let large = (0..12).fold(Type::String, |ty, _| pair_of(&ty));
        let members = (0..9).map(|n| (format!("m{n}"), large.clone()));
        let whole = Type::record(members.chain([("id".to_owned(), Type::Integer)]));
        assert_eq!(whole.field("id"), FieldLookup::Found { ty: Type::Integer, required: true });
        assert_eq!(whole.field("m0"), FieldLookup::Found { ty: Type::Any, required: true });
    }

    /// Unions inside unions are compared pair by pair, up to a limit; beyond it there is no conflict.
    #[test]
    fn a_comparison_of_unions_ends() {
        let grow = |ty: Type, leaf: &str| {
            let wide = (0..40).map(|n| Type::record([(format!("m{n}"), ty.clone())]));
            Type::union(wide.chain([Type::record([(leaf, Type::Null)])]))
        };
        let nested = |leaf: &str, end: Type| grow(grow(end, leaf), leaf);
        let (left, right) = (nested("x", Type::String), nested("y", Type::Integer));
        let pairs_left = Cell::new(1_000);
        assert!(!Type::array(left.clone()).is_apart(&Type::array(right), &pairs_left));
        assert_eq!(pairs_left.get(), 0);
        assert!(left.to_string().ends_with(" or 33 more"), "{left}");
    }
}
