//! Checks arguments against the tool's schema: literals by value, expressions by type.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Checker;
use crate::composition::ToolCall;
use crate::composition::tool::ToolSpec;
use crate::diagnostic::{Code, Diagnostic, nearest_name};
use crate::document::{Member, Node, NodeKind};
use crate::expr::{Template, TypeScope};
use crate::schema::Schema;
use crate::source::Span;
use crate::types::Type;
use crate::value::{Map, Shared, Value};

/// Compiled parts of tool schemas, by the address of the part. The tools outlive the check, so an
/// address always means the same part.
#[derive(Default)]
pub(super) struct SchemaCache(BTreeMap<usize, Schema>);

/// Schema keywords that the type alone decides, or that constrain nothing.
const DECIDED_BY_TYPE: &[&str] =
    &["type", "description", "title", "default", "examples", "deprecated", "readOnly", "writeOnly"];

pub(super) fn check(
    checker: &mut Checker<'_>,
    call: &ToolCall,
    tool: &Arc<ToolSpec>,
    scope: &dyn TypeScope,
) {
    let root = tool.input.json();
    let mut walk = ParameterWalk { checker, tool, root, scope, name_span: call.name_span };
    let given = call.parameters.span != call.name_span;
    match walk.checker.root.find(call.parameters.span).filter(|_| given) {
        Some(node) => walk.value(&call.parameters.template, node, root, &mut Vec::new()),
        None => {
            let node = Node { span: call.name_span, kind: NodeKind::Object(Vec::new()) };
            walk.value(&call.parameters.template, &node, root, &mut Vec::new());
        }
    }
}

struct ParameterWalk<'w, 'a> {
    checker: &'w mut Checker<'a>,
    tool: &'w ToolSpec,
    root: &'w Value,
    scope: &'w dyn TypeScope,
    name_span: Span,
}

impl ParameterWalk<'_, '_> {
    fn value<'t>(
        &mut self,
        template: &Template,
        node: &'t Node,
        schema: &Value,
        path: &mut Vec<&'t str>,
    ) {
        let schema = self.follow(schema);
        let plain = is_plain(&schema);
        match (&node.kind, template) {
            (NodeKind::Object(members), _) if plain && declares_members(&schema) => {
                self.members(template, node, members, &schema, path);
            }
            (_, Template::Literal(value)) => self.literal(value, node, &schema, path),
            (NodeKind::Array(nodes), Template::Array(items)) if plain && is_array(&schema) => {
                let Some(item_schema) = schema.get("items") else { return };
                for (item, node) in items.iter().zip(nodes) {
                    self.value(item, node, item_schema, path);
                }
            }
            _ => self.by_type(template, node, &schema, path),
        }
    }

    /// The schema behind `$ref`s, together with the definitions that it may need.
    fn follow(&self, schema: &Value) -> Value {
        const REFERENCES_MAX: usize = 16;
        let mut at = schema.clone();
        for _ in 0..REFERENCES_MAX {
            let Some(pointer) = at.get("$ref").and_then(Value::as_str) else { break };
            let Some(target) = resolve(self.root, pointer) else { break };
            at = target.clone();
        }
        at
    }

    fn members<'t>(
        &mut self,
        template: &Template,
        node: &'t Node,
        members: &'t [Member],
        schema: &Value,
        path: &mut Vec<&'t str>,
    ) {
        let properties = schema.get("properties").and_then(Value::as_object);
        let rest = schema.get("additionalProperties");
        for member in members {
            let given = member_template(template, &member.key);
            let declared = properties.and_then(|properties| properties.get(&*member.key));
            path.push(&member.key);
            match (declared, rest) {
                (Some(schema), _) => self.value(&given, &member.value, schema, path),
                (None, Some(Value::Bool(false))) => {
                    path.pop();
                    self.unknown(member, properties, path);
                    continue;
                }
                (None, Some(rest @ Value::Object(_))) => {
                    self.value(&given, &member.value, rest, path);
                }
                (None, _) => {}
            }
            path.pop();
        }
        for name in
            schema.get("required").and_then(Value::as_array).into_iter().flat_map(|n| n.iter())
        {
            let Some(name) = name.as_str() else { continue };
            if node.get(name).is_none() {
                self.missing(name, node, properties, path);
            }
        }
    }

    fn missing(
        &mut self,
        name: &str,
        node: &Node,
        properties: Option<&Shared<Map>>,
        path: &[&str],
    ) {
        let top = path.is_empty();
        let message = if top {
            format!("Missing required parameter: {name} of `{}`", self.tool.id)
        } else {
            format!("Missing required parameter: {name} in `{}`", path.join("."))
        };
        let what = properties
            .and_then(|properties| properties.get(name))
            .map_or_else(String::new, |schema| format!(" ({})", Type::from_schema(schema)));
        let span = if top { self.name_span } else { node.span };
        let finding = Diagnostic::error(Code::MissingParameter, message, span)
            .help(format!("add `{name}`{what} to the parameters"));
        self.checker.findings.push(finding);
    }

    fn unknown(&mut self, member: &Member, properties: Option<&Shared<Map>>, path: &[&str]) {
        let names: Vec<&str> =
            properties.into_iter().flat_map(|p| p.keys().map(|name| &**name)).collect();
        let owner = match path {
            [] => format!("`{}`", self.tool.id),
            path => format!("`{}`", path.join(".")),
        };
        let message = format!("{owner} has no parameter `{}`", member.key);
        let mut finding = Diagnostic::error(Code::UnknownParameter, message, member.key_span);
        let inner = crate::compile::resolve::unquoted(self.checker.source, member.key_span);
        finding = match nearest_name(&member.key, names.iter().copied()) {
            Some(near) => finding.fix(inner, near),
            None if names.is_empty() => finding.help("it takes no parameters"),
            None => finding.help(format!("its parameters are `{}`", names.join("`, `"))),
        };
        self.checker.findings.push(finding);
    }

    fn literal(&mut self, value: &Value, node: &Node, schema: &Value, path: &[&str]) {
        let only_type = schema
            .as_object()
            .is_some_and(|words| words.keys().all(|word| DECIDED_BY_TYPE.contains(&&**word)));
        if only_type {
            if let Some(reason) = literal_conflict(value, &Type::from_schema(schema)) {
                self.mismatch(node, path, &reason, value);
            }
            return;
        }
        let violations = self.compiled(schema).violations(value);
        for violation in violations {
            let at = node.at_pointer(&violation.pointer);
            self.mismatch(at, path, &violation.message, value);
        }
    }

    fn compiled(&mut self, schema: &Value) -> &Schema {
        let address = match schema {
            Value::Object(members) => std::ptr::from_ref(&**members) as usize,
            _ => 0,
        };
        let root = self.root;
        self.checker.schemas.0.entry(address).or_insert_with(|| {
            // A part may refer to definitions of the whole schema.
            let mut members =
                schema.as_object().map_or_else(Map::new, |members| (**members).clone());
            for word in ["$defs", "definitions"] {
                if let Some(definitions) = root.get(word) {
                    members.entry(word.into()).or_insert_with(|| definitions.clone());
                }
            }
            Schema::new(if schema.as_object().is_some() { members.into() } else { schema.clone() })
        })
    }

    fn mismatch(&mut self, node: &Node, path: &[&str], reason: &str, value: &Value) {
        let what = parameter_name(path);
        let message = format!("{what} of `{}` does not fit: {reason}", self.tool.id);
        let mut finding = Diagnostic::error(Code::TypeMismatch, message, node.span);
        if let (Value::String(text), NodeKind::String(_)) = (value, &node.kind)
            && text.parse::<f64>().is_ok()
            && reason.contains("expected")
        {
            finding = finding.help(format!("write it without quotes: `{text}`"));
        }
        self.checker.findings.push(finding);
    }

    fn by_type(&mut self, template: &Template, node: &Node, schema: &Value, path: &[&str]) {
        let ty = template.infer(self.scope, &mut |_, _| {});
        let wanted = self.type_with_definitions(schema);
        let Some(reason) = ty.conflict(&wanted) else { return };
        let span = match template {
            Template::Expr(_) => self.checker.template_span(template, node.span),
            _ => node.span,
        };
        let what = parameter_name(path);
        let message = format!("{what} of `{}` does not fit: {reason}", self.tool.id);
        let mut finding = Diagnostic::error(Code::TypeMismatch, message, span);
        finding.help = conversion(&ty, &wanted, template);
        self.checker.findings.push(finding);
    }

    fn type_with_definitions(&self, schema: &Value) -> Type {
        let Some(members) = schema.as_object() else { return Type::Any };
        let mut whole = (**members).clone();
        for word in ["$defs", "definitions"] {
            if let Some(definitions) = self.root.get(word) {
                whole.entry(word.into()).or_insert_with(|| definitions.clone());
            }
        }
        Type::from_schema(&whole.into())
    }
}

/// The help text for a type mismatch, if one conversion fixes it.
fn conversion(ty: &Type, wanted: &Type, template: &Template) -> Option<String> {
    match (ty, wanted, template) {
        (Type::String, Type::Integer | Type::Number | Type::Bool, Template::Text(_)) => {
            Some("text around `{{ … }}` makes it text: use one `{{ … }}` alone".to_owned())
        }
        (Type::String, Type::Integer, _) => Some("convert it: `{{ … | int }}`".to_owned()),
        (Type::String, Type::Number, _) => Some("convert it: `{{ … | float }}`".to_owned()),
        (Type::Array(_), Type::String, _) => Some("join it: `{{ … | join(', ') }}`".to_owned()),
        (Type::Object(_), Type::String, _) => {
            Some("name a field of it, or `{{ … | tojson }}`".to_owned())
        }
        (Type::Integer | Type::Number | Type::Bool, Type::String, _) => {
            Some("convert it: `{{ … | string }}`".to_owned())
        }
        (_, Type::Array(item), _) if ty.conflict(item).is_none() => {
            Some("make a list of it: `[…]`".to_owned())
        }
        _ => None,
    }
}

/// A literal can conflict with a type by its value: a fraction is not an integer.
fn literal_conflict(value: &Value, wanted: &Type) -> Option<String> {
    let ty = Type::of_value(value);
    let has = |part: &Type| wanted.parts().contains(part);
    if ty == Type::Number && has(&Type::Integer) && !has(&Type::Number) {
        return Some(format!("expected {wanted}, found {value}"));
    }
    ty.conflict(wanted)
}

fn parameter_name(path: &[&str]) -> String {
    if path.is_empty() { "the parameters".to_owned() } else { format!("`{}`", path.join(".")) }
}

/// Whether a schema consists only of the plain keywords of one object or array.
fn is_plain(schema: &Value) -> bool {
    const COMBINING: &[&str] =
        &["anyOf", "oneOf", "allOf", "not", "if", "patternProperties", "$ref", "dependentSchemas"];
    schema.as_object().is_some() && !COMBINING.iter().any(|word| schema.get(word).is_some())
}

fn declares_members(schema: &Value) -> bool {
    let is_object = schema.get("type").and_then(Value::as_str) == Some("object");
    is_object || (schema.get("type").is_none() && schema.get("properties").is_some())
}

fn is_array(schema: &Value) -> bool {
    schema.get("type").and_then(Value::as_str) == Some("array")
}

fn member_template(template: &Template, key: &str) -> Template {
    match template {
        Template::Object(members) => members
            .iter()
            .find(|(name, _)| &**name == key)
            .map_or(Template::Literal(Value::Null), |(_, member)| member.clone()),
        Template::Literal(value) => Template::Literal(value.get(key).cloned().unwrap_or_default()),
        _ => Template::Literal(Value::Null),
    }
}

fn resolve<'v>(root: &'v Value, reference: &str) -> Option<&'v Value> {
    reference
        .strip_prefix("#/")?
        .split('/')
        .try_fold(root, |at, part| at.get(&part.replace("~1", "/").replace("~0", "~")))
}
