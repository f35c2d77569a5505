//! The tools of a workspace → JSON Schema definitions: which names there are, and which parameters
//! each takes.
//!
//! An editor without a language server sees the text before templates are rendered. So every place of
//! a tool's schema also accepts a string with `{{ … }}`, and keywords that cannot hold of a template are
//! left out. The schema accepts every composition that Segue accepts; what it cannot express, only
//! `segue check` finds. Not here: the fields of compositions (`json_schema.rs`).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::json_schema::{Draft, pattern, typed, words};
use crate::catalog::{Catalog, ToolLookup};
use crate::composition::tool::{Backend, ToolSpec};
use crate::value::{Map, Value};

/// The definition of every name of a tool.
pub(super) const TOOL_NAME: &str = "tool_name";

/// The definition that gives a call the parameters of its tool.
pub(super) const TOOL_CALL: &str = "tool_call";

/// The definition that says which calls must have `parameters`.
pub(super) const TOOL_CALL_REQUIRED: &str = "tool_call_required";

/// The most characters of a description.
const DESCRIPTION_CHARS_MAX: usize = 300;

/// The deepest nesting of a tool's schema that is described; below, everything is accepted.
const DEPTH_MAX: usize = 16;

/// The tools that the schema of compositions names.
#[derive(Clone, Copy)]
pub struct WorkspaceTools<'a> {
    /// The known tools.
    pub catalog: &'a Catalog,
    /// Sources whose tools are unknown, such as a server that was never started: each of their names
    /// is accepted.
    pub unknown_sources: &'a BTreeSet<Arc<str>>,
}

impl WorkspaceTools<'_> {
    /// The definitions of names and calls, and of the parameters of each tool.
    pub(super) fn definitions(self, draft: Draft) -> Vec<(String, Value)> {
        let mut definitions = vec![(TOOL_NAME.to_owned(), self.names())];
        let (mut rules, mut required) = (Vec::new(), Vec::new());
        for (index, tool) in self.catalog.tools().enumerate() {
            let names = self.names_of(tool);
            let name = format!("tool_{index}");
            let pointer = format!("#/{}/{name}", draft.definitions());
            let parameters = Parameters { draft, root: &pointer }.schema(tool.input.json());
            if is_required(tool) {
                required.extend(names.iter().map(|name| Value::from(&**name)));
            }
            let is_called = has_tool(names.iter().map(|name| Value::from(&**name)).collect());
            let parameters_of = Value::object([("$ref", Value::from(pointer.as_str()))]);
            let fields = ["parameters", "inputs"].map(|field| (field, parameters_of.clone()));
            let then = Value::object([("properties", Value::object(fields))]);
            rules.push(Value::object([("if", is_called), ("then", then)]));
            definitions.push((name, parameters));
        }
        let rules = if rules.is_empty() { vec![Value::Bool(true)] } else { rules };
        definitions.push((TOOL_CALL.to_owned(), Value::object([("allOf", rules.into())])));
        let required = if required.is_empty() {
            Value::Bool(true)
        } else {
            let then = Value::object([("required", words(&["parameters"]))]);
            Value::object([("if", has_tool(required)), ("then", then)])
        };
        definitions.push((TOOL_CALL_REQUIRED.to_owned(), required));
        definitions
    }

    /// The schema of a tool's name. Editors show the description of each name.
    fn names(self) -> Value {
        let (mut names, mut descriptions) = (Vec::new(), Vec::new());
        for tool in self.catalog.tools() {
            names.push(Value::from(tool.id.shared().clone()));
            descriptions.push(Value::from(short(&tool.description)));
        }
        let mut known: BTreeSet<&str> = BTreeSet::new();
        for tool in self.catalog.tools().filter(|tool| known.insert(tool.id.name())) {
            let name = tool.id.name();
            let text = match self.catalog.find(name) {
                ToolLookup::Found(tool) => format!("{}: {}", tool.id, short(&tool.description)),
                // A composition may say by `servers` which one it means.
                ToolLookup::Ambiguous(ids) => {
                    let ids: Vec<&str> = ids.iter().map(|id| id.as_str()).collect();
                    format!("ambiguous: {}", ids.join(", "))
                }
                ToolLookup::Missing { .. } => continue,
            };
            names.push(Value::from(name));
            descriptions.push(Value::from(text));
        }
        let known = Value::object([
            ("enum", Value::from(names)),
            ("enumDescriptions", Value::from(descriptions)),
        ]);
        let mut any = if self.catalog.tools().next().is_some() { vec![known] } else { Vec::new() };
        any.extend(self.open_names());
        let any = if any.is_empty() { typed("string") } else { any_of(any) };
        Value::object([("type", Value::from("string")), ("allOf", vec![any].into())])
    }

    /// Names that are accepted by their form: `source:name` of unknown sources, and `server_name`,
    /// which a composition with `servers` may write.
    fn open_names(self) -> Option<Value> {
        let servers = self.catalog.tools().filter(|tool| tool.backend == Backend::Mcp);
        let mut forms: BTreeSet<String> =
            servers.map(|tool| format!("{}_", escaped(tool.id.namespace()))).collect();
        for source in self.unknown_sources {
            forms.extend([format!("{}:", escaped(source)), format!("{}_", escaped(source))]);
        }
        let forms = Vec::from_iter(forms);
        (!forms.is_empty()).then(|| pattern(&format!("^({})", forms.join("|"))))
    }

    /// Every name that means this tool.
    fn names_of(self, tool: &Arc<ToolSpec>) -> Vec<Arc<str>> {
        let mut names = vec![tool.id.shared().clone()];
        let is_it =
            |found: ToolLookup<'_>| matches!(found, ToolLookup::Found(it) if it.id == tool.id);
        if tool.id.name() != tool.id.as_str() && is_it(self.catalog.find(tool.id.name())) {
            names.push(tool.id.name().into());
        }
        if tool.backend == Backend::Mcp {
            names.push(format!("{}_{}", tool.id.namespace(), tool.id.name()).into());
        }
        names
    }
}

/// Whether a call of the tool must have parameters.
fn is_required(tool: &ToolSpec) -> bool {
    let required = tool.input.json().get("required").and_then(Value::as_array);
    required.is_some_and(|required| !required.is_empty())
}

/// A call of one of these tools.
fn has_tool(names: Vec<Value>) -> Value {
    let name = Value::object([("enum", Value::from(names))]);
    Value::object([("required", words(&["tool"])), ("properties", Value::object([("tool", name)]))])
}

fn any_of(schemas: Vec<Value>) -> Value {
    Value::object([("anyOf", schemas.into())])
}

/// The first lines of a description, cut.
fn short(text: &str) -> String {
    let text = text.trim();
    match text.char_indices().nth(DESCRIPTION_CHARS_MAX) {
        Some((end, _)) => format!("{}…", text[..end].trim_end()),
        None => text.to_owned(),
    }
}

/// A name as a part of a pattern. `\-` is no escape for every engine, and `-` needs none here.
fn escaped(name: &str) -> String {
    name.chars().fold(String::new(), |mut escaped, letter| {
        if r"\^$.|?*+()[]{}/".contains(letter) {
            escaped.push('\\');
        }
        escaped.push(letter);
        escaped
    })
}

/// Translates the schema of a tool's arguments.
struct Parameters<'a> {
    draft: Draft,
    /// The pointer to the translated schema, before the pointers of its own references.
    root: &'a str,
}

/// Keywords with a schema for each name.
const MAPS: &[&str] = &["properties", "patternProperties", "$defs", "definitions"];

/// Keywords with numbers, and those with whole numbers.
const NUMBERS: &[&str] =
    &["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"];
const COUNTS: &[&str] =
    &["minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"];

/// Keywords that say something to people, and those that editors complete.
const NOTES: &[&str] = &["title", "description"];
const VALUES: &[&str] = &["const", "default"];

const TYPES: &[&str] = &["string", "number", "integer", "boolean", "object", "array", "null"];

impl Parameters<'_> {
    fn schema(&self, schema: &Value) -> Value {
        self.with_templates(schema, 0)
    }

    /// The schema, and strings with a template.
    fn with_templates(&self, schema: &Value, depth: usize) -> Value {
        let Value::Object(members) = schema else { return Value::Bool(true) };
        if depth > DEPTH_MAX {
            return Value::Bool(true);
        }
        let plain = self.plain(members, depth);
        if plain.is_empty() {
            return Value::Bool(true);
        }
        let mut outer = Map::new();
        // Editors show the description of the outer schema.
        for name in NOTES {
            outer.extend(plain.get(*name).map(|text| (Arc::from(*name), text.clone())));
        }
        let template = pattern(r"\{\{");
        outer.insert("anyOf".into(), vec![plain.into(), template].into());
        outer.into()
    }

    /// The keywords that are understood and have a value of the right kind. A keyword that a template
    /// could violate by its form, such as `not`, is left out.
    fn plain(&self, members: &Map, depth: usize) -> Map {
        let mut plain = Map::new();
        for (name, value) in members {
            let kept = match &**name {
                "type" => is_type(value).then(|| value.clone()),
                "enum" => is_list_of_all(value, |_| true).then(|| value.clone()),
                "format" => value.as_str().map(|_| value.clone()),
                "pattern" => value.as_str().filter(|it| is_common(it)).map(|_| value.clone()),
                "required" => is_names(value).then(|| value.clone()),
                "additionalProperties" => match value {
                    Value::Bool(_) => Some(value.clone()),
                    schema => Some(self.with_templates(schema, depth + 1)),
                },
                "anyOf" | "allOf" | "oneOf" => self.list(value, depth),
                "items" | "prefixItems" => {
                    plain.extend(self.items(name, value, depth));
                    continue;
                }
                "$ref" => value.as_str().and_then(|pointer| self.reference(pointer, depth)),
                name if NUMBERS.contains(&name) => value.as_f64().map(|_| value.clone()),
                name if COUNTS.contains(&name) => value.as_u64().map(|_| value.clone()),
                name if NOTES.contains(&name) => {
                    value.as_str().map(|text| Value::from(short(text)))
                }
                name if VALUES.contains(&name) => Some(value.clone()),
                name if MAPS.contains(&name) => self.map(name, value, depth),
                _ => None,
            };
            // With templates, two alternatives may fit.
            let name = if &**name == "oneOf" { Arc::from("anyOf") } else { name.clone() };
            plain.extend(kept.map(|kept| (name, kept)));
        }
        plain
    }

    fn list(&self, value: &Value, depth: usize) -> Option<Value> {
        let schemas = value.as_array().filter(|schemas| !schemas.is_empty())?;
        let schemas = schemas.iter().map(|schema| self.with_templates(schema, depth + 1));
        Some(schemas.collect::<Vec<_>>().into())
    }

    fn map(&self, name: &str, value: &Value, depth: usize) -> Option<Value> {
        let members = value.as_object()?.iter();
        // A pattern that another engine does not read would make the whole schema useless.
        let members = members.filter(|(key, _)| name != "patternProperties" || is_common(key));
        let members = members.map(|(key, it)| (key.clone(), self.with_templates(it, depth + 1)));
        Some(Value::object(members.collect::<Vec<_>>()))
    }

    /// The items of an array, in the words of the draft: the schemas of its first items are `items` in the
    /// older one and `prefixItems` in the current one.
    fn items(&self, name: &str, value: &Value, depth: usize) -> Option<(Arc<str>, Value)> {
        if value.as_array().is_none() {
            let is_schema = name == "items" && value.as_object().is_some();
            return is_schema.then(|| ("items".into(), self.with_templates(value, depth + 1)));
        }
        let first = match self.draft {
            Draft::Draft2020 => "prefixItems",
            Draft::Draft07 => "items",
        };
        Some((first.into(), self.list(value, depth)?))
    }

    /// A reference to the schema itself or to one of its definitions. Others are not followed.
    fn reference(&self, pointer: &str, depth: usize) -> Option<Value> {
        if pointer == "#" {
            // A schema that is only itself says nothing, and validators would not end.
            return (depth > 0).then(|| Value::from(self.root));
        }
        let (list, name) = pointer.strip_prefix("#/")?.split_once('/')?;
        let is_definition = matches!(list, "$defs" | "definitions") && !name.contains('/');
        // The definitions are in the alternative without a template.
        is_definition.then(|| Value::from(format!("{}/anyOf/0/{list}/{name}", self.root)))
    }
}

fn is_type(value: &Value) -> bool {
    let is_known = |value: &Value| value.as_str().is_some_and(|word| TYPES.contains(&word));
    is_known(value) || is_list_of_all(value, is_known)
}

fn is_names(value: &Value) -> bool {
    is_list_of_all(value, |name| name.as_str().is_some())
}

/// Whether it is a list of different values that are all right. Schemas must not repeat one.
fn is_list_of_all(value: &Value, is_right: impl Fn(&Value) -> bool) -> bool {
    let Some(values) = value.as_array().filter(|values| !values.is_empty()) else { return false };
    let different: BTreeSet<String> = values.iter().map(Value::to_canonical_json).collect();
    different.len() == values.len() && values.iter().all(is_right)
}

/// Whether a pattern has only what all engines read alike.
fn is_common(pattern: &str) -> bool {
    let mut groups = pattern.match_indices("(?").map(|(at, _)| pattern.as_bytes().get(at + 2));
    let is_escape_of_one =
        ["\\A", "\\z", "\\Z", "\\h", "\\p"].iter().any(|it| pattern.contains(it));
    groups.all(|after| matches!(after, Some(b':' | b'=' | b'!'))) && !is_escape_of_one
}
