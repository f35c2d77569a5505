//! Resolves `$ref` and `allOf` into one schema without them.

use std::collections::BTreeSet;

use super::profile::is_annotation;
use super::{ArgumentsEffect, LossHandling};
use crate::expose::convert::{ConvertError, ConvertResult, Converter};
use crate::value::{Map, Value};

/// A schema without references and `allOf`.
pub(super) enum FlatSchema {
    /// Its keywords.
    Plain(Map),
    /// It refers to itself.
    Recursive,
}

impl Converter<'_> {
    /// Inlines references. They stay open until the caller closes them, so that a recursive one is
    /// detected.
    pub(super) fn flatten(&mut self, schema: &Map, path: &str) -> ConvertResult<FlatSchema> {
        let mut flat = schema.clone();
        if let Some(reference) = flat.shift_remove("$ref") {
            let reference = reference.as_str().unwrap_or_default().to_owned();
            if self.open.contains(&reference) {
                return Ok(FlatSchema::Recursive);
            }
            let target = self.resolve(&reference)?;
            self.open.push(reference);
            self.record_loss(path, "$ref", LossHandling::Inlined, ArgumentsEffect::Same);
            match self.flatten_value(&target, path)? {
                FlatSchema::Recursive => return Ok(FlatSchema::Recursive),
                // Keywords beside a reference apply too.
                FlatSchema::Plain(target) => self.merge(&mut flat, &target, path, "$ref"),
            }
        }
        if let Some(parts) = flat.shift_remove("allOf") {
            self.record_loss(path, "allOf", LossHandling::Merged, ArgumentsEffect::Same);
            for part in parts.as_array().map_or(&[][..], |parts| parts.as_slice()) {
                match self.flatten_value(part, path)? {
                    FlatSchema::Recursive => return Ok(FlatSchema::Recursive),
                    FlatSchema::Plain(part) => self.merge(&mut flat, &part, path, "allOf"),
                }
            }
        }
        self.settle_choice(&mut flat, path);
        Ok(FlatSchema::Plain(flat))
    }

    /// Keeps one of `const` and `enum`; a contradiction of the two cannot be expressed.
    fn settle_choice(&mut self, flat: &mut Map, path: &str) {
        let (Some(only), Some(choices)) = (flat.get("const"), flat.get("enum")) else { return };
        if a_has(choices, only) {
            flat.shift_remove("enum");
        } else {
            flat.shift_remove("const");
            self.record_loss(path, "const", LossHandling::Dropped, ArgumentsEffect::Wider);
        }
    }

    fn flatten_value(&mut self, schema: &Value, path: &str) -> ConvertResult<FlatSchema> {
        self.count()?;
        match schema {
            Value::Object(schema) => self.flatten(schema, path),
            Value::Bool(true) => Ok(FlatSchema::Plain(Map::new())),
            _ => Err(ConvertError::new(format!("there is no schema at {path}"))),
        }
    }

    /// The target of a reference within the schema.
    fn resolve(&self, reference: &str) -> ConvertResult<Value> {
        let unknown =
            || ConvertError::new(format!("`{reference}` refers to nothing in the schema"));
        let pointer = reference.strip_prefix('#').ok_or_else(unknown)?;
        let mut found = self.root;
        for part in pointer.split('/').skip(1) {
            let part = part.replace("~1", "/").replace("~0", "~");
            found = match found {
                Value::Object(members) => members.get(&*part).ok_or_else(unknown)?,
                Value::Array(items) => {
                    part.parse().ok().and_then(|at: usize| items.get(at)).ok_or_else(unknown)?
                }
                _ => return Err(unknown()),
            };
        }
        if pointer.is_empty() || pointer.starts_with('/') {
            Ok(found.clone())
        } else {
            Err(unknown())
        }
    }

    /// Merges the constraints of one schema into another. Constraints that one schema cannot
    /// express are losses.
    pub(super) fn merge(&mut self, into: &mut Map, from: &Map, path: &str, feature: &str) {
        let is_exact = speaks_of_all(into, from) && speaks_of_all(from, into);
        if !is_exact {
            self.record_loss(path, feature, LossHandling::Merged, ArgumentsEffect::Wider);
        }
        for (keyword, value) in from {
            let Some(own) = into.get(keyword) else {
                into.insert(keyword.clone(), value.clone());
                continue;
            };
            if own == value || is_annotation(keyword) {
                continue;
            }
            match both(keyword, own, value) {
                Some(merged) => {
                    into.insert(keyword.clone(), merged);
                }
                None => {
                    self.record_loss(path, keyword, LossHandling::Dropped, ArgumentsEffect::Wider);
                }
            }
        }
    }
}

/// Whether the constraint of `a` on additional members and items covers the same ones after merging
/// `b`.
fn speaks_of_all(a: &Map, b: &Map) -> bool {
    let says_nothing = |keyword: &str| matches!(a.get(keyword), None | Some(Value::Bool(true)));
    let members = |schema: &Map| match schema.get("properties") {
        Some(Value::Object(members)) => members.keys().cloned().collect(),
        _ => BTreeSet::new(),
    };
    let of_members = says_nothing("additionalProperties")
        || (members(b).is_subset(&members(a)) && !b.contains_key("patternProperties"));
    let listed = |schema: &Map| {
        schema.get("prefixItems").and_then(Value::as_array).map_or(0, |items| items.len())
    };
    of_members && (says_nothing("items") || listed(b) <= listed(a))
}

/// One value of a keyword that combines two, if there is one.
fn both(keyword: &str, a: &Value, b: &Value) -> Option<Value> {
    match keyword {
        "required" => {
            let mut names = a.as_array()?.to_vec();
            let more = b.as_array()?.iter().filter(|name| !a_has(a, name)).cloned();
            names.extend(more.collect::<Vec<_>>());
            Some(names.into())
        }
        "properties" => {
            let (Value::Object(a), Value::Object(b)) = (a, b) else { return None };
            let mut members = (**a).clone();
            for (name, schema) in b.iter() {
                let merged = match members.get(name) {
                    Some(own) if own != schema => {
                        let parts = vec![own.clone(), schema.clone()];
                        Value::object([("allOf", Value::from(parts))])
                    }
                    _ => schema.clone(),
                };
                members.insert(name.clone(), merged);
            }
            Some(members.into())
        }
        "enum" => {
            let kept = a.as_array()?.iter().filter(|value| a_has(b, value)).cloned();
            let kept: Vec<Value> = kept.collect();
            (!kept.is_empty()).then(|| kept.into())
        }
        "additionalProperties" => match (a, b) {
            (Value::Bool(true), other) | (other, Value::Bool(true)) => Some(other.clone()),
            (Value::Bool(false), _) | (_, Value::Bool(false)) => Some(Value::Bool(false)),
            _ => Some(Value::object([("allOf", Value::from(vec![a.clone(), b.clone()]))])),
        },
        "items" => Some(Value::object([("allOf", Value::from(vec![a.clone(), b.clone()]))]))
            .filter(|_| a.as_array().is_none() && b.as_array().is_none()),
        "minimum" | "minLength" | "minItems" | "minProperties" | "exclusiveMinimum" => {
            Some(if a.as_f64()? >= b.as_f64()? { a.clone() } else { b.clone() })
        }
        "maximum" | "maxLength" | "maxItems" | "maxProperties" | "exclusiveMaximum" => {
            Some(if a.as_f64()? <= b.as_f64()? { a.clone() } else { b.clone() })
        }
        "type" => {
            let (a, b) = (type_names(a), type_names(b));
            let kept: Vec<Value> = a.iter().filter_map(|word| narrower(word, &b)).collect();
            match kept.as_slice() {
                [] => None,
                [one] => Some(one.clone()),
                _ => Some(kept.into()),
            }
        }
        _ => None,
    }
}

fn a_has(list: &Value, value: &Value) -> bool {
    list.as_array().is_some_and(|items| items.contains(value))
}

/// The types that a schema names.
pub(super) fn type_names(types: &Value) -> Vec<&str> {
    match types {
        Value::String(word) => vec![word],
        Value::Array(words) => words.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

fn narrower(word: &str, others: &[&str]) -> Option<Value> {
    match word {
        _ if others.contains(&word) => Some(Value::from(word)),
        "integer" if others.contains(&"number") => Some(Value::from("integer")),
        "number" if others.contains(&"integer") => Some(Value::from("integer")),
        _ => None,
    }
}
