//! Static types of values.
//!
//! Types come from JSON Schemas and literals, and flow through expressions. They answer two
//! questions: can this path exist, and can this value be valid there? Both answers are "no" only if
//! no possible value would do; an unknown type is [`Type::Any`] and always accepted.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::value::Value;

/// How deep a schema is followed; deeper values are `Any`.
const SCHEMA_DEPTH_MAX: usize = 24;

/// How many nodes of a schema are visited; beyond that values are `Any`.
const SCHEMA_NODES_MAX: usize = 20_000;

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
    Array(Arc<Type>),
    /// Named values.
    Object(Arc<ObjectType>),
    /// One of several; never nested, never fewer than two.
    OneOf(Arc<[Type]>),
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
        Type::Array(Arc::new(item))
    }

    /// An object of exactly these members, all present.
    pub fn record<K: Into<Arc<str>>>(members: impl IntoIterator<Item = (K, Type)>) -> Type {
        let properties = members
            .into_iter()
            .map(|(name, ty)| (name.into(), Property { ty, required: true }))
            .collect();
        Type::Object(Arc::new(ObjectType { properties, rest: OtherProperties::Closed }))
    }

    /// An object with unknown members.
    pub fn any_object() -> Type {
        let rest = OtherProperties::Open(Type::Any);
        Type::Object(Arc::new(ObjectType { properties: BTreeMap::new(), rest }))
    }

    /// A union; [`Type::Any`] absorbs all others.
    pub fn union(types: impl IntoIterator<Item = Type>) -> Type {
        let mut flat: Vec<Type> = Vec::new();
        for ty in types {
            match ty {
                Type::Any => return Type::Any,
                Type::OneOf(parts) => {
                    for part in parts
                        .iter()
                        .filter(|part| !flat.contains(part))
                        .cloned()
                        .collect::<Vec<_>>()
                    {
                        flat.push(part);
                    }
                }
                other if flat.contains(&other) => {}
                other => flat.push(other),
            }
        }
        match flat.len() {
            0 => Type::Any,
            1 => flat.swap_remove(0),
            _ => Type::OneOf(flat.into()),
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
                Type::Array(item) => Some((**item).clone()),
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
        if matches!(expected, Type::Any) || matches!(self, Type::Any) {
            return None;
        }
        let mut reasons = Vec::new();
        for actual in self.parts() {
            for wanted in expected.parts() {
                match conflict_of_parts(actual, wanted) {
                    None => return None,
                    Some(reason) => reasons.push(reason),
                }
            }
        }
        // With unions on either side, the plain message is clearer than the reason of one pair.
        if self.parts().len() == 1 && expected.parts().len() == 1 {
            return reasons.pop();
        }
        Some(format!("expected {expected}, found {self}"))
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

fn conflict_of_parts(actual: &Type, wanted: &Type) -> Option<String> {
    match (actual, wanted) {
        (Type::Any, _) | (_, Type::Any) => None,
        (Type::Integer | Type::Number, Type::Integer | Type::Number) => None,
        (Type::Array(actual), Type::Array(wanted)) => {
            actual.conflict(wanted).map(|reason| format!("in the array's items: {reason}"))
        }
        (Type::Object(actual), Type::Object(wanted)) => conflict_of_objects(actual, wanted),
        (actual, wanted) if actual == wanted => None,
        (actual, wanted) => Some(format!("expected {wanted}, found {actual}")),
    }
}

fn conflict_of_objects(actual: &ObjectType, wanted: &ObjectType) -> Option<String> {
    for (name, property) in &wanted.properties {
        match actual.properties.get(name) {
            Some(given) => {
                if let Some(reason) = given.ty.conflict(&property.ty)
                    && (given.required || property.required)
                {
                    return Some(format!("in `{name}`: {reason}"));
                }
            }
            None if property.required && actual.rest == OtherProperties::Closed => {
                return Some(format!("`{name}` is missing"));
            }
            None => {}
        }
    }
    if wanted.rest != OtherProperties::Closed {
        return None;
    }
    let stranger = |(name, property): &(&Arc<str>, &Property)| {
        property.required && !wanted.properties.contains_key(*name)
    };
    let (name, _) = actual.properties.iter().find(stranger)?;
    Some(format!("`{name}` is not allowed"))
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
            Type::Array(item) if **item == Type::Any => f.write_str("array"),
            Type::Array(item) if matches!(**item, Type::OneOf(_)) => write!(f, "array of ({item})"),
            Type::Array(item) => write!(f, "array of {item}"),
            Type::Object(_) => f.write_str("object"),
            Type::OneOf(parts) => {
                let words: Vec<String> = parts.iter().map(ToString::to_string).collect();
                f.write_str(&words.join(" or "))
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
        let required: Vec<&str> = schema
            .get("required")
            .and_then(Value::as_array)
            .map_or_else(Vec::new, |names| names.iter().filter_map(Value::as_str).collect());
        let mut properties = BTreeMap::new();
        if let Some(declared) = schema.get("properties").and_then(Value::as_object) {
            for (name, property) in declared.iter() {
                let ty = self.read(property, depth + 1);
                let required = required.contains(&&**name);
                properties.insert(name.clone(), Property { ty, required });
            }
        }
        for name in required {
            properties.entry(name.into()).or_insert(Property { ty: Type::Any, required: true });
        }
        Type::Object(Arc::new(ObjectType { properties, rest: self.read_rest(schema, depth) }))
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
        Type::Object(Arc::new(whole))
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
}
