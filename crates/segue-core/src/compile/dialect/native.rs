//! The native dialect: the top of a composition, most of which other dialects share.
//! [`super::step`] reads its steps.

use std::sync::Arc;

use super::chain;
use super::grammar::{
    BACKOFF, CLIENT_CAPABILITIES, COMPOSITION, ERROR_HANDLING, GUARDS, PARAMETER, REQUIRES,
};
use super::reader::{DialectReader, first_line};
use super::step::read_steps;
use crate::composition::{
    Backoff, Body, Composition, CompositionGuards, ErrorHandling, Flow, Step, Strategy, Unresolved,
};
use crate::diagnostic::Code;
use crate::document::{Node, NodeKind};
use crate::duration::Millis;
use crate::id::is_composition_name;
use crate::schema::Schema;
use crate::value::{Map, Number, Value};

/// Default number of steps that run at once.
const CONCURRENCY_DEFAULT: u32 = 16;

pub(super) fn read(reader: &mut DialectReader<'_>, root: &Node) -> Option<Composition> {
    if let Some(word) = root.get("dialect") {
        reader.one_of(word, "`dialect`", &["composition"]);
    }
    read_tree(reader, root)
}

/// Reads a native tree, whether written so or lowered from another dialect.
pub(super) fn read_tree(reader: &mut DialectReader<'_>, root: &Node) -> Option<Composition> {
    if !reader.check_record(root, &COMPOSITION, "a composition") {
        return None;
    }
    if let Some(word) = root.get("flow")
        && reader.one_of(word, "`flow`", &["graph", "program"]) == Some(1)
    {
        reader.flow = Flow::Program;
    }
    let steps = match root.get("steps") {
        Some(node) => {
            if reader.flow == Flow::Program {
                chain::collect_names(node, reader);
            }
            read_all_steps(reader, node)
        }
        None => Vec::new(),
    };
    Some(read_top(reader, root, Body { steps, flow: reader.flow }))
}

/// Reads the fields at the top of a document, independent of its steps.
pub(super) fn read_top(reader: &mut DialectReader<'_>, root: &Node, body: Body) -> Composition {
    let name = root.get("name").and_then(|node| read_name(reader, node)).unwrap_or_default();
    let metadata = root.get("metadata").map_or_else(Value::empty_object, |node| {
        if !matches!(node.kind, NodeKind::Object(_)) {
            let message = format!("`metadata` must be an object, found {}", node.kind_name());
            reader.error(Code::InvalidField, node.span, message);
        }
        node.to_value()
    });
    let (guards, guarded_ms) = read_guards(reader, root);
    let (requires_context, requires_capabilities) = read_requires(reader, root);
    let own_ms = reader.duration_field(root, "timeout");
    let description = root.get("description").and_then(|n| reader.text(n, "`description`"));
    Composition {
        name,
        description: description.unwrap_or_default(),
        version: root.get("version").and_then(|node| read_version(reader, node)),
        dialect: reader.dialect,
        template: None,
        input: read_input(reader, root),
        requires_context,
        requires_capabilities,
        servers: read_servers(reader, root),
        atomic: root.get("atomic").and_then(|n| reader.bool(n, "`atomic`")).unwrap_or(false),
        overwrites: root.get("overwrites").map_or_else(Vec::new, |node| {
            let patterns = reader.list(node, "`overwrites`").iter();
            patterns.filter_map(|pattern| reader.text(pattern, "a pattern")).collect()
        }),
        timeout_ms: own_ms.into_iter().chain(guarded_ms).min(),
        max_concurrency: read_concurrency(reader, root).unwrap_or(CONCURRENCY_DEFAULT),
        guards,
        unresolved: root.get("unresolved").map_or_else(Unresolved::default, |node| {
            match reader.one_of(node, "`unresolved`", &["fail", "keep"]) {
                Some(1) => Unresolved::Keep,
                _ => Unresolved::Fail,
            }
        }),
        body,
        output: root.get("output").map(|node| reader.template(node)),
        error_handling: root
            .get("error_handling")
            .map_or_else(ErrorHandling::default, |node| read_error_handling(reader, node)),
        metadata,
        source: reader.source.clone(),
    }
}

fn read_servers(reader: &mut DialectReader<'_>, root: &Node) -> Vec<Arc<str>> {
    let Some(node) = root.get("servers") else { return Vec::new() };
    let names = reader.list(node, "`servers`").iter();
    names.filter_map(|name| reader.text(name, "a server")).collect()
}

fn read_name(reader: &mut DialectReader<'_>, node: &Node) -> Option<Arc<str>> {
    let name = reader.text(node, "`name`")?;
    if !is_composition_name(&name) {
        let message = format!("`{name}` cannot name a composition");
        let help =
            "use lower-case letters, digits, `_` and `-`, at most 64, not beginning with a sign";
        reader.error_with_help(Code::InvalidField, node.span, message, help);
    }
    Some(name)
}

fn read_version(reader: &mut DialectReader<'_>, node: &Node) -> Option<Arc<str>> {
    let version = reader.text(node, "`version`")?;
    if semver::Version::parse(&version).is_ok() {
        return Some(version);
    }
    let message = format!("`{version}` is not a semantic version");
    reader.error_with_help(Code::InvalidField, node.span, message, "write it as `1.0.0`");
    None
}

pub(super) fn read_all_steps(reader: &mut DialectReader<'_>, node: &Node) -> Vec<Arc<Step>> {
    if matches!(&node.kind, NodeKind::Array(items) if items.is_empty()) {
        reader.error(Code::NoSteps, node.span, "the composition has no steps");
        return Vec::new();
    }
    let steps = read_steps(reader, node, "`steps`");
    let count = reader.steps_read();
    if count > reader.limits.steps_max {
        let message =
            format!("the composition has {count} steps, the limit is {}", reader.limits.steps_max);
        reader.error(Code::MaxStepsExceeded, first_line(reader.source, node.span), message);
    }
    steps
}

fn read_concurrency(reader: &mut DialectReader<'_>, root: &Node) -> Option<u32> {
    let node = root.get("max_concurrency")?;
    let max = reader.limits.concurrency_max as u64;
    reader.positive(node, "`max_concurrency`", max)
}

/// Reads the guards, and the timeout that they set for the whole run.
fn read_guards(reader: &mut DialectReader<'_>, root: &Node) -> (CompositionGuards, Option<Millis>) {
    let mut guards = CompositionGuards::default();
    let Some(node) = root.get("guards") else { return (guards, None) };
    if !reader.check_record(node, &GUARDS, "`guards`") {
        return (guards, None);
    }
    guards.max_steps = node.get("max_steps").and_then(|n| read_bound(reader, n, "`max_steps`"));
    let calls = node.get("max_tool_calls");
    guards.max_tool_calls = calls.and_then(|n| read_bound(reader, n, "`max_tool_calls`"));
    guards.allowed_tools = node.get("allowed_tools").map(|tools| {
        let tools = reader.list(tools, "`allowed_tools`").iter();
        tools.filter_map(|tool| reader.text(tool, "a tool")).collect()
    });
    (guards, reader.duration_field(node, "timeout"))
}

/// Reads a bound; zero and less mean no bound.
fn read_bound(reader: &mut DialectReader<'_>, node: &Node, what: &str) -> Option<u32> {
    match &node.kind {
        NodeKind::Number(Number::Int(int)) => {
            (*int > 0).then(|| u32::try_from(*int).unwrap_or(u32::MAX))
        }
        _ => {
            let message = format!("{what} must be a whole number, found {}", node.kind_name());
            reader.error(Code::InvalidField, node.span, message);
            None
        }
    }
}

/// The keys of the context, and the capabilities of an MCP client, that a composition requires.
fn read_requires(reader: &mut DialectReader<'_>, root: &Node) -> (Vec<Arc<str>>, Vec<Arc<str>>) {
    let Some(node) = root.get("requires") else { return Default::default() };
    if !reader.check_record(node, &REQUIRES, "`requires`") {
        return Default::default();
    }
    let keys = node.get("context").map_or(&[][..], |keys| reader.list(keys, "`requires.context`"));
    let keys = keys.iter().filter_map(|key| reader.text(key, "a key")).collect();
    let what = "`requires.capabilities`";
    let named = node.get("capabilities").map_or(&[][..], |named| reader.list(named, what));
    let capability = |word: &Node| {
        let at = reader.one_of(word, "a capability", CLIENT_CAPABILITIES)?;
        Some(CLIENT_CAPABILITIES[at].into())
    };
    (keys, named.iter().filter_map(capability).collect())
}

fn read_error_handling(reader: &mut DialectReader<'_>, node: &Node) -> ErrorHandling {
    let mut handling = ErrorHandling::default();
    if !reader.check_record(node, &ERROR_HANDLING, "`error_handling`") {
        return handling;
    }
    if let Some(word) = node.get("failure_strategy")
        && let Some(position) = reader.one_of(word, "`failure_strategy`", Strategy::WORDS)
    {
        handling.strategy = Strategy::parse(Strategy::WORDS[position]).unwrap_or_default();
    }
    if let Some(flag) = node.get("rollback_on_failure") {
        handling.rollback_on_failure = reader.bool(flag, "`rollback_on_failure`").unwrap_or(false);
    }
    if let Some(count) = node.get("max_retries") {
        let max = u64::from(reader.limits.retries_max);
        handling.max_retries = reader.count(count, "`max_retries`", max);
    }
    if let Some(backoff) = node.get("backoff") {
        handling.backoff = read_backoff(reader, backoff);
    }
    handling
}

pub(super) fn read_backoff(reader: &mut DialectReader<'_>, node: &Node) -> Backoff {
    let mut backoff = Backoff::default();
    if !reader.check_record(node, &BACKOFF, "`backoff`") {
        return backoff;
    }
    if let Some(initial) = node.get("initial").and_then(|n| reader.duration(n, "`initial`")) {
        backoff.initial_ms = initial;
    }
    if let Some(factor) = node.get("factor").and_then(|n| reader.factor(n, "`factor`")) {
        backoff.factor = factor;
    }
    if let Some(max) = node.get("max").and_then(|n| reader.duration(n, "`max`")) {
        backoff.max_ms = max;
    }
    if let Some(jitter) = node.get("jitter").and_then(|n| reader.bool(n, "`jitter`")) {
        backoff.jitter = jitter;
    }
    backoff
}

fn read_input(reader: &mut DialectReader<'_>, root: &Node) -> Option<Arc<Schema>> {
    match (root.get("input"), root.get("parameters")) {
        (Some(_), Some(second)) => {
            let message = "`input` and `parameters` say the same thing";
            reader.error_with_help(Code::InvalidField, second.span, message, "keep one of them");
            None
        }
        (Some(node), None) => {
            let schema = read_schema(reader, node, "`input`")?;
            if !takes_objects(schema.json()) {
                let message = "`input` must take an object: the input of a run always is one";
                let help = "say `type: object`, and name the value under `properties`";
                let place = node.get("type").unwrap_or(node);
                reader.error_with_help(Code::InvalidField, place.span, message, help);
                return None;
            }
            warn_of_bare_names(reader, node);
            let properties = node.get("properties").map_or(&[][..], Node::members);
            let defaults = properties.iter().map(|member| (&member.key, &member.value));
            warn_of_defaults(reader, &schema, defaults);
            Some(schema)
        }
        (None, Some(node)) => {
            let schema = read_parameters(reader, node);
            let name = |node: &'_ Node| node.get("name").and_then(Node::as_str).cloned();
            let named: Vec<(Arc<str>, &Node)> =
                node.items().iter().filter_map(|node| Some((name(node)?, node))).collect();
            warn_of_defaults(reader, &schema, named.iter().map(|(name, node)| (name, *node)));
            Some(schema)
        }
        (None, None) => None,
    }
}

/// Warns of an `input` without any keyword of JSON Schema, such as `input: { folder: string }`: it
/// declares nothing, although its author lists names.
fn warn_of_bare_names(reader: &mut DialectReader<'_>, node: &Node) {
    let members = node.members();
    let Some(first) = members.first() else { return };
    if members.iter().any(|member| is_schema_keyword(&member.key)) {
        return;
    }
    let name = &first.key;
    let message = format!("`input` declares no input: `{name}` is not a keyword of JSON Schema");
    let help = format!(
        "write `input: {{ type: object, properties: {{ {name}: {{ type: string }} }} }}`, or \
         `parameters: [{{ name: {name}, type: string }}]`"
    );
    reader.warn(Code::InvalidField, first.key_span, message, &help);
}

/// Whether a key at the root of an object's schema has a meaning there.
fn is_schema_keyword(key: &str) -> bool {
    const KEYWORDS: &[&str] = &[
        "type",
        "properties",
        "required",
        "description",
        "title",
        "default",
        "examples",
        "enum",
        "const",
        "allOf",
        "anyOf",
        "oneOf",
        "not",
        "if",
        "then",
        "else",
        "definitions",
        "deprecated",
        "readOnly",
        "writeOnly",
        "additionalProperties",
        "unevaluatedProperties",
        "patternProperties",
        "propertyNames",
        "minProperties",
        "maxProperties",
        "dependentRequired",
        "dependentSchemas",
        "dependencies",
    ];
    key.starts_with('$') || key.starts_with("x-") || KEYWORDS.contains(&key)
}

/// Warns of defaults that their own schema rejects: a run that uses one fails before its first step.
fn warn_of_defaults<'n>(
    reader: &mut DialectReader<'_>,
    schema: &Schema,
    properties: impl Iterator<Item = (&'n Arc<str>, &'n Node)>,
) {
    for (name, property) in properties {
        let Some(default) = property.get("default") else { continue };
        let value = Value::object([(name.clone(), default.to_value())]);
        let path = format!("/{}", name.replace('~', "~0").replace('/', "~1"));
        let of_default = |pointer: &str| {
            pointer.strip_prefix(&path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let mut violations = schema.violations(&value).into_iter();
        if let Some(violation) = violations.find(|violation| of_default(&violation.pointer)) {
            let message = format!("the default of `{name}` does not fit: {}", violation.message);
            let help = "a run without this input fails before its first step";
            reader.warn(Code::InputSchema, default.span, message, help);
        }
    }
}

/// Whether the root of a schema allows objects.
fn takes_objects(schema: &Value) -> bool {
    let is_object = |kind: &Value| kind.as_str() == Some("object");
    match (schema, schema.get("type")) {
        (Value::Bool(takes), _) => *takes,
        (_, Some(Value::Array(kinds))) => kinds.iter().any(is_object),
        (_, Some(kind)) => is_object(kind),
        (_, None) => true,
    }
}

pub(super) fn read_schema(
    reader: &mut DialectReader<'_>,
    node: &Node,
    what: &str,
) -> Option<Arc<Schema>> {
    if !matches!(node.kind, NodeKind::Object(_) | NodeKind::Bool(_)) {
        let message = format!("{what} must be a JSON Schema, found {}", node.kind_name());
        reader.error(Code::InvalidField, node.span, message);
        return None;
    }
    let schema = Schema::new(node.to_value());
    if let Err(violation) = schema.check() {
        let message = format!("{what} is not a JSON Schema: {}", violation.message);
        let place = node.at_pointer(&violation.pointer);
        reader.error(Code::InvalidField, first_line(reader.source, place.span), message);
        return None;
    }
    Some(Arc::new(schema))
}

/// Turns a list of parameters into a closed object schema.
fn read_parameters(reader: &mut DialectReader<'_>, node: &Node) -> Arc<Schema> {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for parameter in reader.list(node, "`parameters`") {
        if !reader.check_record(parameter, &PARAMETER, "a parameter") {
            continue;
        }
        let Some(name) = parameter.get("name").and_then(|n| reader.text(n, "`name`")) else {
            continue;
        };
        let mut schema = Map::new();
        if let Some(word) = parameter.get("type") {
            let words = ["string", "integer", "number", "boolean", "array", "object", "any"];
            match reader.one_of(word, "`type`", &words) {
                Some(position) if words[position] != "any" => {
                    schema.insert("type".into(), Value::from(words[position]));
                }
                _ => {}
            }
        }
        for field in ["default", "description"] {
            if let Some(value) = parameter.get(field) {
                schema.insert(field.into(), value.to_value());
            }
        }
        let is_required = parameter.get("required").and_then(|n| reader.bool(n, "`required`"));
        if is_required == Some(true) {
            required.push(Value::String(name.clone()));
        }
        properties.insert(name, schema.into());
    }
    Arc::new(Schema::new(Value::object([
        ("type", Value::from("object")),
        ("properties", properties.into()),
        ("required", required.into()),
        ("additionalProperties", Value::Bool(false)),
    ])))
}
