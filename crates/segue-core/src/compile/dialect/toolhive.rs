//! Composite tools of ToolHive's virtual MCP servers: a graph of calls with Go templates.
//!
//! Reads a `VirtualMCPCompositeToolDefinition`, a server with one composite tool, or a bare
//! composite tool. [`super::resources`] finds it in a file with several resources.

use std::sync::Arc;

use super::go_template::{self, KnownSteps};
use super::grammar::{TOOLHIVE, TOOLHIVE_ANNOTATIONS, TOOLHIVE_ON_ERROR, TOOLHIVE_STEP};
use super::lower::{
    array, empty_span, first_member, keep_members, member, object, of_value, rename_member, text,
    unknown,
};
use super::reader::{DialectReader, first_line};
use crate::diagnostic::Code;
use crate::document::{Member, Node, NodeKind};
use crate::source::{Edition, Span};
use crate::value::{Map, Value};

/// The kinds of resources that hold composite tools.
const KINDS: &[&str] = &["VirtualMCPCompositeToolDefinition", "VirtualMCPServer"];

/// Whether a document holds such a tool.
pub(super) fn is_toolhive(root: &Node) -> bool {
    let kind = root.get("kind").and_then(Node::as_str);
    let is_typed = |step: &Node| {
        let word = step.get("type").and_then(Node::as_str);
        word.is_some_and(|word| matches!(&**word, "tool" | "tool_call" | "elicitation"))
    };
    kind.is_some_and(|kind| KINDS.contains(&&**kind))
        || root.get("steps").is_some_and(|steps| steps.items().iter().any(is_typed))
}

/// Lowers the composite tool to the native dialect.
pub(super) fn lower(
    reader: &mut DialectReader<'_>,
    root: &Node,
    servers: &[Arc<str>],
) -> Option<Node> {
    let spec = find_tool(reader, root)?;
    if !reader.check_record(spec, &TOOLHIVE, "a composite tool") {
        return None;
    }
    let mut members = keep_members(spec, &["name", "description", "timeout"]);
    members.extend(first_member(spec, &["parameters"]).map(input));
    let steps = first_member(spec, &["steps"]);
    let items = steps.map_or(&[][..], |steps| steps.value.items());
    let mut known = KnownSteps::of(items);
    if reader.source.edition() >= Edition::Second {
        known = known.with_parameters(spec.get("parameters"));
        // Go's templates write `<no value>` where a value is absent, and do not fail.
        members.push(member("unresolved", text(empty_span(spec.span), "keep")));
    }
    members.extend(server_names(spec, servers));
    members.extend(annotations(reader, spec));
    members.extend(failure_mode(reader, spec));
    match first_member(spec, &["output"]) {
        Some(found) => {
            let value = output(reader, &found.value, &known);
            members.push(Member { key: "output".into(), key_span: found.key_span, value });
        }
        None => members.extend(last_output(spec, items)),
    }
    if let Some(steps) = steps {
        let lowered = items.iter().filter_map(|step| lower_step(reader, step, &known)).collect();
        let value = array(steps.value.span, lowered);
        members.push(Member { key: "steps".into(), key_span: steps.key_span, value });
    }
    Some(object(spec.span, members))
}

/// The servers of the tool's group, whose tools its short names mean.
fn server_names(spec: &Node, servers: &[Arc<str>]) -> Option<Member> {
    let span = empty_span(spec.span);
    let names = servers.iter().map(|name| text(span, name.clone())).collect();
    (!servers.is_empty()).then(|| member("servers", array(span, names)))
}

/// What the author says about the effects of the tool.
fn annotations(reader: &mut DialectReader<'_>, spec: &Node) -> Option<Member> {
    let found = first_member(spec, &["annotations"])?;
    if !reader.check_record(&found.value, &TOOLHIVE_ANNOTATIONS, "`annotations`") {
        return None;
    }
    for hint in found.value.members() {
        match &*hint.key {
            "title" => drop(reader.text(&hint.value, "`title`")),
            name => drop(reader.bool(&hint.value, &format!("`{name}`"))),
        }
    }
    let value = object(found.value.span, vec![found.clone()]);
    Some(Member { key: "metadata".into(), key_span: found.key_span, value })
}

fn find_tool<'n>(reader: &mut DialectReader<'_>, root: &'n Node) -> Option<&'n Node> {
    if root.get("kind").is_none() {
        return Some(root);
    }
    let here = first_line(reader.source, root.span);
    let Some(spec) = root.get("spec") else {
        reader.error(Code::NoSteps, here, "the resource has no `spec`");
        return None;
    };
    if spec.get("steps").is_some() {
        return Some(spec);
    }
    let config = spec.get("config").unwrap_or(spec);
    match config.get("compositeTools").map_or(&[][..], Node::items) {
        [one] => Some(one),
        [] => {
            reader.error(Code::NoSteps, here, "the resource has no composite tool");
            None
        }
        [_, second, ..] => {
            let message = "the resource has several composite tools";
            let help = "a file holds one composition: write each to a file of its own";
            let span = first_line(reader.source, second.span);
            reader.error_with_help(Code::Unsupported, span, message, help);
            None
        }
    }
}

/// The parameters are a schema; older definitions list them by name.
fn input(found: &Member) -> Member {
    let is_schema = found.value.get("properties").is_some() || found.value.get("type").is_some();
    if is_schema {
        return rename_member(found, "input");
    }
    let (mut properties, mut required) = (Map::new(), Vec::new());
    for parameter in found.value.members() {
        let Value::Object(given) = parameter.value.to_value() else { continue };
        let mut schema = (*given).clone();
        if schema.shift_remove("required") == Some(Value::Bool(true)) {
            required.push(Value::String(parameter.key.clone()));
        }
        let ty = schema.get("type").and_then(Value::as_str).map(ToOwned::to_owned);
        if let (Some(ty), Some(Value::String(written))) = (ty, schema.get("default").cloned()) {
            schema.insert("default".into(), typed_default(&ty, &written));
        }
        properties.insert(parameter.key.clone(), schema.into());
    }
    let schema = Value::object([
        ("type", Value::from("object")),
        ("properties", properties.into()),
        ("required", required.into()),
    ]);
    let value = of_value(found.value.span, &schema);
    Member { key: "input".into(), key_span: found.key_span, value }
}

/// Parses a default that is written as text, by its type.
fn typed_default(ty: &str, written: &str) -> Value {
    match (ty, written.parse::<i64>(), written) {
        ("integer" | "number", Ok(number), _) => Value::from(number),
        ("boolean", _, "true") => Value::Bool(true),
        ("boolean", _, "false") => Value::Bool(false),
        _ => Value::from(written),
    }
}

fn failure_mode(reader: &mut DialectReader<'_>, spec: &Node) -> Option<Member> {
    let found = first_member(spec, &["failureMode"])?;
    let position =
        reader.one_of(&found.value, "`failureMode`", &["abort", "continue", "best_effort"]);
    let strategy = if position == Some(0) { "fail_fast" } else { "partial_success" };
    let span = found.value.span;
    let handling = object(span, vec![member("failure_strategy", text(span, strategy))]);
    Some(Member { key: "error_handling".into(), key_span: found.key_span, value: handling })
}

/// Each property takes its `value`, or the properties inside it.
fn output(reader: &mut DialectReader<'_>, node: &Node, known: &KnownSteps<'_>) -> Node {
    let mut members = Vec::new();
    for property in node.get("properties").map_or(&[][..], Node::members) {
        let value = match (property.value.get("value"), property.value.get("properties")) {
            (Some(value), _) => {
                let default = property.value.get("default").map(Node::to_value);
                template(reader, value, known, default.as_ref())
            }
            (None, Some(_)) => output(reader, &property.value, known),
            (None, None) => {
                let message = format!("the output `{}` has no `value`", property.key);
                reader.error(Code::InvalidField, property.key_span, message);
                continue;
            }
        };
        members.push(Member { value, ..property.clone() });
    }
    object(node.span, members)
}

/// Without an `output`, the result is the output of the last step.
fn last_output(spec: &Node, items: &[Node]) -> Option<Member> {
    let last = items.last()?;
    let id = last.get("id").and_then(Node::as_str)?;
    let may_be_skipped =
        last.get("condition").is_some() || first_member(spec, &["failureMode"]).is_some();
    let default = if may_be_skipped { " | default(none)" } else { "" };
    let whole = format!("{{{{ {}.output{default} }}}}", go_template::step(id));
    Some(member("output", text(empty_span(spec.span), whole)))
}

fn lower_step(reader: &mut DialectReader<'_>, step: &Node, known: &KnownSteps<'_>) -> Option<Node> {
    if !reader.check_record(step, &TOOLHIVE_STEP, "a step") {
        return None;
    }
    let word = step.get("type").map_or(Some(0), |node| {
        reader.one_of(node, "`type`", &["tool", "tool_call", "elicitation"])
    })?;
    let mut members = keep_members(step, &["id"]);
    if word == 2 {
        members.push(elicitation(reader, step, known));
        members.extend(on_decline(reader, step));
    } else {
        members.extend(first_member(step, &["tool"]).map(|found| {
            let value = match found.value.as_str().and_then(|name| name.split_once('.')) {
                Some((server, name)) => text(found.value.span, format!("{server}:{name}")),
                None => found.value.clone(),
            };
            Member { value, ..found.clone() }
        }));
        members.extend(first_member(step, &["arguments"]).map(|found| Member {
            key: "parameters".into(),
            key_span: found.key_span,
            value: template(reader, &found.value, known, None),
        }));
        members.extend(keep_members(step, &["timeout"]));
        members.extend(on_error(reader, step));
    }
    members
        .extend(first_member(step, &["dependsOn"]).map(|found| rename_member(found, "depends_on")));
    members.extend(first_member(step, &["condition"]).map(|found| Member {
        key: "when".into(),
        key_span: found.key_span,
        value: template(reader, &found.value, known, None),
    }));
    Some(object(step.span, members))
}

fn elicitation(reader: &mut DialectReader<'_>, step: &Node, known: &KnownSteps<'_>) -> Member {
    let mut members = Vec::new();
    members.extend(first_member(step, &["message"]).map(|found| Member {
        value: template(reader, &found.value, known, None),
        ..found.clone()
    }));
    members.extend(keep_members(step, &["schema", "timeout"]));
    let place = first_member(step, &["type"]).map_or(step.span, |found| found.key_span);
    Member { key_span: place, ..member("approve", object(step.span, members)) }
}

/// Reads `onDecline`. Skipping the remaining steps and aborting are the same: no further step runs.
fn on_decline(reader: &mut DialectReader<'_>, step: &Node) -> Option<Member> {
    let found = first_member(step, &["onDecline"])?;
    let action = first_member(&found.value, &["action"])?;
    let words = ["skip_remaining", "abort", "continue"];
    let position = reader.one_of(&action.value, "`action`", &words)?;
    (position == 2).then(|| on_failure(found.key_span, action.value.span, "continue", None))
}

fn on_failure(key_span: Span, span: Span, action: &str, default: Option<Node>) -> Member {
    let mut members = vec![member("action", text(span, action))];
    members.extend(default.map(|default| member("default", default)));
    Member { key: "on_failure".into(), key_span, value: object(span, members) }
}

fn on_error(reader: &mut DialectReader<'_>, step: &Node) -> Vec<Member> {
    let Some(found) = first_member(step, &["onError"]) else { return Vec::new() };
    if !reader.check_record(&found.value, &TOOLHIVE_ON_ERROR, "`onError`") {
        return Vec::new();
    }
    let action = first_member(&found.value, &["action"]);
    let span = action.map_or(found.value.span, |action| action.value.span);
    let words = ["abort", "continue", "retry"];
    let position =
        action.and_then(|action| reader.one_of(&action.value, "`action`", &words)).unwrap_or(0);
    match position {
        1 => {
            let default = first_member(step, &["defaultResults"]).map(|found| found.value.clone());
            vec![on_failure(found.key_span, span, "continue", default)]
        }
        2 => {
            let count = first_member(&found.value, &["maxRetries", "retryCount"]);
            let mut members: Vec<Member> =
                count.map(|count| rename_member(count, "max")).into_iter().collect();
            if count.is_none() {
                members.push(member("max", super::lower::number(span, 3)));
            }
            if let Some(delay) = first_member(&found.value, &["retryDelay"]) {
                let backoff = object(delay.value.span, vec![rename_member(delay, "initial")]);
                members.push(Member { value: backoff, ..rename_member(delay, "backoff") });
            }
            vec![Member {
                key: "retry".into(),
                key_span: found.key_span,
                value: object(found.value.span, members),
            }]
        }
        _ => vec![on_failure(found.key_span, span, "stop", None)],
    }
}

/// Translates Go templates in every string of a value.
fn template(
    reader: &mut DialectReader<'_>,
    node: &Node,
    known: &KnownSteps<'_>,
    default: Option<&Value>,
) -> Node {
    match &node.kind {
        NodeKind::String(written) => match go_template::translate(written, known, default) {
            Ok(translated) => text(node.span, translated),
            Err(what) => {
                let message = format!("this template cannot be translated: {what}");
                let help = "write it in a composition of its own, with Segue's `{{ … }}`";
                reader.error_with_help(Code::Unsupported, node.span, message, help);
                unknown(node.span)
            }
        },
        NodeKind::Array(items) => {
            let items = items.iter().map(|item| template(reader, item, known, None)).collect();
            array(node.span, items)
        }
        NodeKind::Object(members) => {
            let members = members.iter().map(|found| Member {
                value: template(reader, &found.value, known, None),
                ..found.clone()
            });
            object(node.span, members.collect())
        }
        _ => node.clone(),
    }
}
