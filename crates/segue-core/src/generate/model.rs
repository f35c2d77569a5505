//! JSON Schemas → types that every target language has.
//!
//! Constraints beyond types (bounds, patterns, conditions) are left out, because Segue validates
//! every call. A schema that no type can express becomes "any".

use std::collections::BTreeMap;
use std::sync::Arc;

use super::ClientSubject;
use super::identifier::{UniqueNames, pascal};
use crate::value::{Map, Value};

/// The maximum number of types in one client; further ones become "any".
const DEFINITIONS_MAX: usize = 300;

/// The maximum nesting of types; deeper ones become "any". A tree-shaped result would unfold into
/// unreadably many types.
const DEPTH_MAX: usize = 8;

/// A type.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ModelType {
    Any,
    Null,
    Bool,
    Integer,
    Number,
    Text,
    /// A fixed set of values.
    Literals(Vec<Value>),
    List(Box<ModelType>),
    Map(Box<ModelType>),
    /// Nullable.
    Maybe(Box<ModelType>),
    Either(Vec<ModelType>),
    /// A named type.
    Named(usize),
    /// A named type inside its own definition.
    Again(usize),
}

/// A named type.
#[derive(Debug)]
pub(super) struct TypeDefinition {
    pub(super) name: String,
    pub(super) doc: String,
    pub(super) kind: DefinitionKind,
}

#[derive(Debug)]
pub(super) enum DefinitionKind {
    Object {
        fields: Vec<ModelField>,
        /// The type of additional members, if they are allowed.
        others: Option<ModelType>,
    },
    /// An enumeration of strings.
    Words(Vec<Arc<str>>),
    /// Another name for a type.
    Alias(ModelType),
}

#[derive(Debug)]
pub(super) struct ModelField {
    /// Its name in JSON.
    pub(super) wire: Arc<str>,
    pub(super) doc: String,
    pub(super) ty: ModelType,
    pub(super) is_required: bool,
}

/// The types of a client.
#[derive(Debug, Default)]
pub(super) struct TypeModel {
    definitions: Vec<Option<TypeDefinition>>,
    /// Each after the types that it uses.
    order: Vec<usize>,
}

impl TypeModel {
    pub(super) fn of(subject: &ClientSubject) -> TypeModel {
        let mut model = TypeModel::default();
        let mut taken = UniqueNames::default();
        for (name, doc, schema) in
            [("Input", "arguments", &subject.input), ("Output", "result", &subject.output)]
        {
            let mut reader = ModelReader {
                root: schema.json(),
                prefix: name,
                model: &mut model,
                taken: &mut taken,
                references: BTreeMap::new(),
                depth: 0,
            };
            let doc = format!("The {doc} of `{}`.", subject.composition);
            reader.root(name, &doc);
        }
        model
    }

    /// The types, each after the types that it uses.
    pub(super) fn definitions(&self) -> impl Iterator<Item = &TypeDefinition> {
        self.order.iter().map(|at| self.get(*at))
    }

    /// A type by its number.
    pub(super) fn get(&self, at: usize) -> &TypeDefinition {
        self.definitions[at]
            .as_ref()
            .expect("every reserved definition is filled before it is read")
    }

    /// Whether the result has a member of this name.
    fn result_has(&self, name: &str) -> bool {
        let output = self.definitions().find(|definition| definition.name == "Output");
        output.is_some_and(|definition| match &definition.kind {
            DefinitionKind::Object { fields, .. } => {
                fields.iter().any(|field| &*field.wire == name)
            }
            DefinitionKind::Words(_) | DefinitionKind::Alias(_) => false,
        })
    }

    /// Whether an answer with a run id refers to that run, and is not the result itself.
    pub(super) fn may_refer(&self) -> bool {
        !(self.result_has("run_id") && self.result_has("status"))
    }
}

struct ModelReader<'a> {
    /// The root that references are relative to.
    root: &'a Value,
    /// The prefix of type names.
    prefix: &'a str,
    model: &'a mut TypeModel,
    taken: &'a mut UniqueNames,
    /// Types of resolved references.
    references: BTreeMap<String, usize>,
    depth: usize,
}

impl ModelReader<'_> {
    /// The type of the root, which always has a name.
    fn root(&mut self, name: &str, doc: &str) {
        let whole = self.root.clone();
        let words = whole.as_object().map(|words| (**words).clone()).unwrap_or_default();
        let at = self.begin();
        self.references.insert("#".to_owned(), at);
        let name = self.taken.claim(name);
        let kind = if is_object(&words) {
            self.object(&words, &name)
        } else {
            DefinitionKind::Alias(self.ty(&whole, &format!("{name}Value")))
        };
        let own = words.get("description").and_then(Value::as_str).unwrap_or_default();
        let doc = if own.is_empty() { doc.to_owned() } else { format!("{doc}\n\n{own}") };
        self.finish(at, TypeDefinition { name, doc, kind });
    }

    /// Reserves a number for the next type.
    fn begin(&mut self) -> usize {
        self.model.definitions.push(None);
        self.model.definitions.len() - 1
    }

    fn finish(&mut self, at: usize, definition: TypeDefinition) {
        self.model.definitions[at] = Some(definition);
        self.model.order.push(at);
    }

    /// The type of a schema; `name` is its name if it needs one.
    fn ty(&mut self, schema: &Value, name: &str) -> ModelType {
        let Value::Object(words) = schema else { return ModelType::Any };
        if self.depth >= DEPTH_MAX || self.model.definitions.len() >= DEFINITIONS_MAX {
            return ModelType::Any;
        }
        self.depth += 1;
        let ty = self.ty_of(words, name);
        self.depth -= 1;
        ty
    }

    fn ty_of(&mut self, words: &Map, name: &str) -> ModelType {
        if let Some(target) = words.get("$ref").and_then(Value::as_str) {
            return self.reference(target);
        }
        if let Some(value) = words.get("const") {
            return literals(std::slice::from_ref(value));
        }
        if let Some(Value::Array(values)) = words.get("enum") {
            return self.choice(values, words, name);
        }
        for word in ["anyOf", "oneOf"] {
            if let Some(Value::Array(parts)) = words.get(word) {
                return self.either(parts, name);
            }
        }
        if let Some(Value::Array(parts)) = words.get("allOf") {
            return match parts.as_slice() {
                [part] => self.ty(part, name),
                _ => ModelType::Any,
            };
        }
        match words.get("type") {
            Some(Value::String(word)) => self.of_kind(word, words, name),
            Some(Value::Array(kinds)) => {
                let mut types = Vec::new();
                for kind in kinds.iter().filter_map(Value::as_str) {
                    types.push(self.of_kind(kind, words, name));
                }
                one_of(types)
            }
            _ if is_object(words) => self.of_kind("object", words, name),
            _ => ModelType::Any,
        }
    }

    fn of_kind(&mut self, kind: &str, words: &Map, name: &str) -> ModelType {
        match kind {
            "null" => ModelType::Null,
            "boolean" => ModelType::Bool,
            "integer" => ModelType::Integer,
            "number" => ModelType::Number,
            "string" => ModelType::Text,
            "array" => {
                let item = words.get("items").unwrap_or(&Value::Null);
                ModelType::List(Box::new(self.ty(item, &format!("{name}Item"))))
            }
            "object" if has_members(words) => {
                let at = self.begin();
                let name = self.taken.claim(name);
                let kind = self.object(words, &name);
                self.finish(at, TypeDefinition { name, doc: doc_of(words), kind });
                ModelType::Named(at)
            }
            "object" => match words.get("additionalProperties") {
                Some(others @ Value::Object(_)) => {
                    ModelType::Map(Box::new(self.ty(others, &format!("{name}Value"))))
                }
                _ => ModelType::Map(Box::new(ModelType::Any)),
            },
            _ => ModelType::Any,
        }
    }

    fn object(&mut self, words: &Map, name: &str) -> DefinitionKind {
        let required: Vec<&str> = match words.get("required") {
            Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        let mut fields = Vec::new();
        let properties = words.get("properties").and_then(Value::as_object);
        for (wire, schema) in properties.into_iter().flat_map(|properties| properties.iter()) {
            let ty = self.ty(schema, &format!("{name}{}", pascal(wire)));
            let mut doc = schema.as_object().map(|words| doc_of(words)).unwrap_or_default();
            if let Some(default) = schema.get("default") {
                let gap = if doc.is_empty() { "" } else { "\n\n" };
                doc = format!("{doc}{gap}Without it: `{}`.", default.to_json());
            }
            let is_required = required.contains(&&**wire);
            fields.push(ModelField { wire: wire.clone(), doc, ty, is_required });
        }
        let others = match words.get("additionalProperties") {
            Some(Value::Bool(true)) => Some(ModelType::Any),
            Some(schema @ Value::Object(_)) => Some(self.ty(schema, &format!("{name}Other"))),
            None if fields.is_empty() => Some(ModelType::Any),
            _ => None,
        };
        DefinitionKind::Object { fields, others }
    }

    fn choice(&mut self, values: &[Value], words: &Map, name: &str) -> ModelType {
        let is_null = |value: &&Value| value.is_null();
        let texts: Vec<Arc<str>> = values.iter().filter_map(Value::as_str).map(Arc::from).collect();
        let nulls = values.iter().filter(is_null).count();
        if texts.is_empty() || texts.len() + nulls != values.len() {
            return literals(values);
        }
        let at = self.begin();
        let name = self.taken.claim(name);
        let kind = DefinitionKind::Words(texts);
        self.finish(at, TypeDefinition { name, doc: doc_of(words), kind });
        if nulls > 0 {
            ModelType::Maybe(Box::new(ModelType::Named(at)))
        } else {
            ModelType::Named(at)
        }
    }

    fn either(&mut self, parts: &[Value], name: &str) -> ModelType {
        let mut types = Vec::new();
        for part in parts {
            types.push(self.ty(part, name));
        }
        one_of(types)
    }

    /// The type of a reference, read once. References to other documents are never followed.
    fn reference(&mut self, target: &str) -> ModelType {
        if let Some(at) = self.references.get(target) {
            let is_open = self.model.definitions[*at].is_none();
            return if is_open { ModelType::Again(*at) } else { ModelType::Named(*at) };
        }
        let Some(schema) = pointed(self.root, target).cloned() else { return ModelType::Any };
        let at = self.begin();
        self.references.insert(target.to_owned(), at);
        let own = target.rsplit('/').next().unwrap_or_default();
        let name = self.taken.claim(&format!("{}{}", self.prefix, pascal(own)));
        let words = schema.as_object().map(|words| (**words).clone()).unwrap_or_default();
        let kind = if is_object(&words) && has_members(&words) {
            self.object(&words, &name)
        } else {
            DefinitionKind::Alias(self.ty(&schema, &format!("{name}Value")))
        };
        self.finish(at, TypeDefinition { name, doc: doc_of(&words), kind });
        ModelType::Named(at)
    }
}

fn pointed<'a>(root: &'a Value, target: &str) -> Option<&'a Value> {
    let pointer = target.strip_prefix("#/")?;
    pointer
        .split('/')
        .try_fold(root, |at, part| at.get(&part.replace("~1", "/").replace("~0", "~")))
}

fn doc_of(words: &Map) -> String {
    words.get("description").and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Whether a schema describes only objects.
fn is_object(words: &Map) -> bool {
    match words.get("type") {
        Some(kind) => kind.as_str() == Some("object"),
        None => words.contains_key("properties"),
    }
}

fn has_members(words: &Map) -> bool {
    words.get("properties").and_then(Value::as_object).is_some_and(|members| !members.is_empty())
}

fn literals(values: &[Value]) -> ModelType {
    let is_plain = |value: &Value| {
        matches!(value, Value::String(_) | Value::Bool(_) | Value::Null) || value.as_i64().is_some()
    };
    if values.iter().all(is_plain) { ModelType::Literals(values.to_vec()) } else { ModelType::Any }
}

/// A union; `null` in it makes the other types nullable.
fn one_of(types: Vec<ModelType>) -> ModelType {
    let has_null = types.contains(&ModelType::Null);
    let mut others: Vec<ModelType> = Vec::new();
    for ty in types {
        if ty != ModelType::Null && !others.contains(&ty) {
            others.push(ty);
        }
    }
    let ty = match others.len() {
        0 => return if has_null { ModelType::Null } else { ModelType::Any },
        1 => others.swap_remove(0),
        _ if others.contains(&ModelType::Any) => ModelType::Any,
        _ => ModelType::Either(others),
    };
    match (has_null, ty) {
        (true, ModelType::Any) => ModelType::Any,
        (true, ty @ ModelType::Maybe(_)) => ty,
        (true, ty) => ModelType::Maybe(Box::new(ty)),
        (false, ty) => ty,
    }
}
