//! A JSON Schema → the members, items and values that it allows, for proposals.

use indexmap::IndexMap;

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::types::Type;
use crate::value::Value;

/// How many parts of a schema one question visits.
const PARTS_MAX: usize = 256;

/// A part of a tool's schema, with the whole for its references.
#[derive(Clone, Debug)]
pub(super) struct SchemaPart {
    root: Value,
    part: Value,
}

/// A member that a schema declares.
pub(super) struct SchemaMember {
    pub(super) schema: SchemaPart,
    pub(super) is_required: bool,
}

impl SchemaPart {
    pub(super) fn whole(root: &Value) -> SchemaPart {
        SchemaPart { root: root.clone(), part: root.clone() }
    }

    fn with(&self, part: &Value) -> SchemaPart {
        SchemaPart { root: self.root.clone(), part: part.clone() }
    }

    /// The declared members, in the order of the schema.
    pub(super) fn members(&self) -> IndexMap<Arc<str>, SchemaMember> {
        let mut members: IndexMap<Arc<str>, SchemaMember> = IndexMap::new();
        for part in self.parts() {
            let required = part.get("required").and_then(Value::as_array);
            let required: BTreeSet<&str> = required
                .map(|names| names.iter().filter_map(Value::as_str).collect())
                .unwrap_or_default();
            let properties = part.get("properties").and_then(Value::as_object);
            for (name, schema) in properties.into_iter().flat_map(|known| known.iter()) {
                let is_required = required.contains(&**name);
                let entry = members.entry(name.clone());
                let known = entry
                    .or_insert_with(|| SchemaMember { schema: self.with(schema), is_required });
                known.is_required |= is_required;
            }
        }
        members
    }

    /// The schema of one member.
    pub(super) fn member(&self, name: &str) -> Option<SchemaPart> {
        let parts = self.parts();
        let declared = parts.iter().find_map(|part| part.get("properties")?.get(name));
        let others = || parts.iter().find_map(|part| part.get("additionalProperties"));
        declared.or_else(others).map(|schema| self.with(schema))
    }

    /// The schema of the items of a list.
    pub(super) fn items(&self) -> Option<SchemaPart> {
        let parts = self.parts();
        parts.iter().find_map(|part| part.get("items")).map(|schema| self.with(schema))
    }

    /// The literal values that the schema names, the default first.
    pub(super) fn values(&self) -> Vec<Value> {
        let mut values: Vec<Value> = Vec::new();
        let mut add = |value: &Value| {
            if values.len() < PARTS_MAX && !values.contains(value) {
                values.push(value.clone());
            }
        };
        for part in self.parts() {
            part.get("default").into_iter().for_each(&mut add);
            part.get("const").into_iter().for_each(&mut add);
            for word in ["enum", "examples"] {
                let list = part.get(word).and_then(Value::as_array);
                list.into_iter().flat_map(|list| list.iter()).for_each(&mut add);
            }
        }
        if self.ty().parts().contains(&Type::Bool) {
            add(&Value::Bool(true));
            add(&Value::Bool(false));
        }
        values
    }

    /// The type of the values.
    pub(super) fn ty(&self) -> Type {
        let Some(members) = self.part.as_object() else { return Type::Any };
        let mut whole = (**members).clone();
        for word in ["$defs", "definitions"] {
            if let Some(definitions) = self.root.get(word) {
                whole.entry(word.into()).or_insert_with(|| definitions.clone());
            }
        }
        Type::from_schema(&whole.into())
    }

    pub(super) fn description(&self) -> Option<Arc<str>> {
        let parts = self.parts();
        let texts = parts.iter().flat_map(|part| [part.get("description"), part.get("title")]);
        texts.flatten().find_map(Value::as_str).map(Arc::from)
    }

    /// The part as written.
    pub(super) fn json(&self) -> &Value {
        &self.part
    }

    /// The schema itself, what it refers to, and its alternatives; each once.
    fn parts(&self) -> Vec<Value> {
        let (mut found, mut followed) = (Vec::new(), BTreeSet::new());
        let mut left = vec![self.part.clone()];
        while let Some(part) = left.pop() {
            if found.len() >= PARTS_MAX {
                break;
            }
            if let Some(reference) = part.get("$ref").and_then(Value::as_str)
                && followed.insert(reference.to_owned())
            {
                left.extend(target(&self.root, reference).cloned());
            }
            for word in ["anyOf", "oneOf", "allOf"] {
                let list = part.get(word).and_then(Value::as_array);
                left.extend(list.into_iter().flat_map(|list| list.iter().rev().cloned()));
            }
            found.push(part);
        }
        found
    }
}

fn target<'v>(root: &'v Value, reference: &str) -> Option<&'v Value> {
    let mut parts = reference.strip_prefix("#/")?.split('/');
    parts.try_fold(root, |at, part| at.get(&part.replace("~1", "/").replace("~0", "~")))
}
