//! Generates JSON Schema from the grammar, for editors and for programs that write compositions.

use std::collections::BTreeSet;

use super::grammar::{
    ARAZZO, CALL, CHAIN, COMPOSITION, FieldGrammar, FieldShape, PLAN, PROBE, ROLLBACK,
    RecordGrammar, SKILL, STEP, STEP_KINDS, TEMPLATE, TEST_FILE, TOOLHIVE,
};
use super::tool_schema::{self, WorkspaceTools};
use crate::composition::Dialect;
use crate::value::{Map, Value};

/// The JSON Schema draft to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Draft {
    /// The current one.
    Draft2020,
    /// The draft that older editors support.
    Draft07,
}

impl Draft {
    fn uri(self) -> &'static str {
        match self {
            Draft::Draft2020 => "https://json-schema.org/draft/2020-12/schema",
            Draft::Draft07 => "http://json-schema.org/draft-07/schema#",
        }
    }

    /// The keyword of definitions.
    pub(super) fn definitions(self) -> &'static str {
        match self {
            Draft::Draft2020 => "$defs",
            Draft::Draft07 => "definitions",
        }
    }
}

/// The JSON Schema of compositions in every dialect.
pub fn composition_schema(draft: Draft) -> Value {
    schema_of_compositions(draft, None)
}

/// The same with the tools of a workspace: a call names one of them and has its parameters.
pub fn workspace_schema(draft: Draft, tools: WorkspaceTools<'_>) -> Value {
    schema_of_compositions(draft, Some(tools))
}

fn schema_of_compositions(draft: Draft, tools: Option<WorkspaceTools<'_>>) -> Value {
    let mut writer = SchemaWriter::new(draft);
    if let Some(tools) = tools {
        writer.has_tools = true;
        let definitions = tools.definitions(draft).into_iter();
        writer.definitions.extend(definitions.map(|(name, it)| (name.into(), it)));
    }
    let mut schema = writer.reference(&COMPOSITION);
    // Built from the inside out: each dialect is the `else` of the one before it, so the last comes
    // first.
    for (dialect, record, condition) in [
        (Dialect::Plan, &PLAN, is_plan()),
        (Dialect::Skill, &SKILL, is_skill()),
        (Dialect::Chain, &CHAIN, is_chain()),
        (Dialect::ToolHive, &TOOLHIVE, is_composite_tool()),
        (Dialect::Arazzo, &ARAZZO, has(&["arazzo"])),
    ] {
        writer.dialect = dialect;
        let then = writer.reference(record);
        let condition = any_of(vec![says(dialect), condition]);
        schema = Value::object([("if", condition), ("then", then), ("else", schema)]);
    }
    let has_steps = Value::object([("not", has(&["steps"]))]);
    let is_template = Value::object([("allOf", vec![has(&["composition"]), has_steps].into())]);
    writer.dialect = Dialect::Composition;
    let template = writer.reference(&TEMPLATE);
    schema = Value::object([("if", is_template), ("then", template), ("else", schema)]);
    writer.definitions.sort_unstable_keys();
    Value::object([
        ("$schema", Value::from(draft.uri())),
        ("title", Value::from("Segue composition")),
        // A Kubernetes resource wraps a composite tool.
        ("if", has(&["kind", "spec"])),
        ("then", typed("object")),
        ("else", schema),
        (draft.definitions(), writer.definitions.into()),
    ])
}

/// The JSON Schema of files with tests.
pub fn test_schema(draft: Draft) -> Value {
    let mut writer = SchemaWriter::new(draft);
    let schema = writer.reference(&TEST_FILE);
    writer.definitions.sort_unstable_keys();
    Value::object([
        ("$schema", Value::from(draft.uri())),
        ("title", Value::from("Segue tests")),
        ("allOf", vec![schema].into()),
        (draft.definitions(), writer.definitions.into()),
    ])
}

fn has(names: &[&str]) -> Value {
    Value::object([("required", words(names))])
}

fn any_of(schemas: Vec<Value>) -> Value {
    Value::object([("anyOf", schemas.into())])
}

/// A document that names its dialect.
fn says(dialect: Dialect) -> Value {
    let word = Value::object([("const", Value::from(dialect.as_str()))]);
    Value::object([
        ("required", words(&["dialect"])),
        ("properties", Value::object([("dialect", word)])),
    ])
}

fn is_chain() -> Value {
    has(&["implementation"])
}

fn is_plan() -> Value {
    let has_tools = any_of(vec![has(&["tools"]), has(&["selectedTools"])]);
    let has_steps = Value::object([("not", has(&["steps"]))]);
    Value::object([("allOf", vec![has_tools, has_steps].into())])
}

/// Whether one of the steps matches.
fn some_step(list: &str, step: Value) -> Value {
    let steps = Value::object([("type", Value::from("array")), ("contains", step)]);
    Value::object([("required", words(&[list])), ("properties", Value::object([(list, steps)]))])
}

fn is_skill() -> Value {
    let by_id = || any_of(["tool_id", "toolId", "ToolID"].map(|name| has(&[name])).to_vec());
    any_of(vec![some_step("steps", by_id()), some_step("Steps", by_id())])
}

fn is_composite_tool() -> Value {
    let word = Value::object([("enum", words(&["tool", "tool_call", "elicitation"]))]);
    let step = Value::object([
        ("required", words(&["type"])),
        ("properties", Value::object([("type", word)])),
    ]);
    some_step("steps", step)
}

struct SchemaWriter {
    draft: Draft,
    dialect: Dialect,
    definitions: Map,
    /// Whether the definitions of a workspace's tools are there.
    has_tools: bool,
}

/// The records of native compositions and chains whose `tool` is called with `parameters`.
const CALLS: &[&RecordGrammar] = &[&STEP, &CALL, &ROLLBACK, &PROBE];

impl SchemaWriter {
    fn new(draft: Draft) -> SchemaWriter {
        let (dialect, definitions) = (Dialect::Composition, Map::new());
        SchemaWriter { draft, dialect, definitions, has_tools: false }
    }

    fn record(&mut self, record: &'static RecordGrammar) -> Value {
        let mut properties = Map::new();
        let is_call = self.has_tools && CALLS.iter().any(|call| std::ptr::eq(*call, record));
        for field in record.fields_in(self.dialect) {
            let schema = match field.name {
                "tool" if is_call => self.described(field.doc, tool_schema::TOOL_NAME),
                _ => self.field(field),
            };
            properties.insert(field.name.into(), schema);
        }
        let mut schema = Map::new();
        schema.insert("description".into(), Value::from(record.doc));
        schema.insert("type".into(), Value::from("object"));
        schema.insert("properties".into(), properties.into());
        if !record.required.is_empty() {
            schema.insert("required".into(), words(record.required));
        }
        schema.insert("additionalProperties".into(), Value::Bool(false));
        if record.name == "step" {
            schema.insert("oneOf".into(), one_kind());
        }
        if is_call {
            // In a chain the parameters may be `inputs` instead.
            let required =
                (self.dialect != Dialect::Chain).then_some(tool_schema::TOOL_CALL_REQUIRED);
            let rules = [tool_schema::TOOL_CALL].into_iter().chain(required);
            let rules: Vec<Value> = rules.map(|name| self.pointer(name)).collect();
            schema.insert("allOf".into(), rules.into());
        }
        schema.into()
    }

    fn pointer(&self, name: &str) -> Value {
        let pointer = format!("#/{}/{name}", self.draft.definitions());
        Value::object([("$ref", Value::from(pointer))])
    }

    /// A definition with a description. Beside a `$ref`, older drafts ignore everything else.
    fn described(&self, doc: &str, name: &str) -> Value {
        let schema = vec![self.pointer(name)];
        Value::object([("description", Value::from(doc)), ("allOf", schema.into())])
    }

    fn field(&mut self, field: &'static FieldGrammar) -> Value {
        let shape = self.shape(&field.shape);
        let mut schema = Map::new();
        schema.insert("description".into(), Value::from(field.doc));
        match shape {
            // Beside a `$ref`, older drafts ignore everything else.
            Value::Object(members) if members.contains_key("$ref") => {
                schema.insert("allOf".into(), vec![Value::Object(members)].into());
            }
            Value::Object(members) => {
                schema.extend(members.iter().map(|(key, value)| (key.clone(), value.clone())));
            }
            _ => {}
        }
        schema.into()
    }

    fn shape(&mut self, shape: &'static FieldShape) -> Value {
        match shape {
            FieldShape::Text => typed("string"),
            FieldShape::Name => pattern("^[a-z0-9][a-z0-9_-]{0,63}$"),
            FieldShape::Id => pattern(r"^[\p{L}\p{N}_$-]{1,128}$"),
            FieldShape::Version => pattern(r"^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$"),
            FieldShape::Bool => typed("boolean"),
            FieldShape::Null => typed("null"),
            FieldShape::Bound => typed("integer"),
            FieldShape::Count | FieldShape::Millis => {
                Value::object([("type", Value::from("integer")), ("minimum", Value::from(0))])
            }
            FieldShape::Number => {
                Value::object([("type", Value::from("number")), ("minimum", Value::from(1))])
            }
            FieldShape::Duration => pattern(r"^(\d+(\.\d+)?(ms|s|m|min|h|d))+$"),
            FieldShape::Condition => types(&["string", "boolean"]),
            FieldShape::Template => Value::empty_object(),
            FieldShape::Object | FieldShape::Templates => typed("object"),
            FieldShape::Names => Value::object([
                ("type", Value::from("object")),
                ("additionalProperties", typed("string")),
            ]),
            FieldShape::Schema => types(&["object", "boolean"]),
            FieldShape::Words(choices) => Value::object([("enum", words(choices))]),
            FieldShape::Of(record) => self.reference(record),
            FieldShape::List(item) => {
                Value::object([("type", Value::from("array")), ("items", self.shape(item))])
            }
            FieldShape::Each(member) => Value::object([
                ("type", Value::from("object")),
                ("additionalProperties", self.shape(member)),
            ]),
            FieldShape::Either(shapes) => {
                let shapes: Vec<Value> = shapes.iter().map(|shape| self.shape(shape)).collect();
                Value::object([("anyOf", shapes.into())])
            }
        }
    }

    fn reference(&mut self, record: &'static RecordGrammar) -> Value {
        let name = match self.dialect {
            Dialect::Chain if differs(record) => format!("chain_{}", record.name),
            _ => record.name.to_owned(),
        };
        if !self.definitions.contains_key(&*name) {
            // Inserted before its fields, because records refer to each other.
            self.definitions.insert(name.as_str().into(), Value::Null);
            let schema = self.record(record);
            self.definitions.insert(name.as_str().into(), schema);
        }
        self.pointer(&name)
    }
}

/// Whether a record, or one inside it, has fields that only one dialect has.
fn differs(record: &'static RecordGrammar) -> bool {
    let mut seen = BTreeSet::new();
    let mut work = vec![record];
    while let Some(record) = work.pop() {
        if !seen.insert(record.name) {
            continue;
        }
        if record.fields.iter().any(|field| field.only.is_some()) {
            return true;
        }
        record.fields.iter().for_each(|field| inside(&field.shape, &mut work));
    }
    false
}

fn inside(shape: &'static FieldShape, records: &mut Vec<&'static RecordGrammar>) {
    match shape {
        FieldShape::Of(record) => records.push(record),
        FieldShape::List(inner) | FieldShape::Each(inner) => inside(inner, records),
        FieldShape::Either(shapes) => shapes.iter().for_each(|shape| inside(shape, records)),
        _ => {}
    }
}

/// A step has exactly one kind; a branch of `parallel` may have `steps` instead.
fn one_kind() -> Value {
    let kinds: Vec<Value> = STEP_KINDS
        .iter()
        .chain(&["steps"])
        .map(|kind| Value::object([("required", words(&[kind]))]))
        .collect();
    kinds.into()
}

pub(super) fn typed(word: &str) -> Value {
    Value::object([("type", Value::from(word))])
}

fn types(choices: &[&str]) -> Value {
    Value::object([("type", words(choices))])
}

pub(super) fn pattern(pattern: &str) -> Value {
    Value::object([("type", Value::from("string")), ("pattern", Value::from(pattern))])
}

pub(super) fn words(words: &[&str]) -> Value {
    words.iter().map(|word| Value::from(*word)).collect::<Vec<_>>().into()
}
