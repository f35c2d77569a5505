//! The plan dialect: tools to call, each after those that it depends on, as planners write them.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::grammar::{PLAN, PLAN_TOOL};
use super::lower::{
    array, empty_span, first_member, keep_members, member, number, object, of_value, rename_member,
    text, truth_of, unused_id,
};
use super::reader::{DialectReader, first_line};
use crate::diagnostic::{Code, Diagnostic, nearest_name};
use crate::document::{Member, Node, NodeKind};
use crate::value::Value;

/// Members that have the same meaning in the native dialect.
const SHARED: &[&str] = &[
    "description",
    "version",
    "input",
    "parameters",
    "requires",
    "atomic",
    "timeout",
    "timeout_ms",
    "max_concurrency",
    "guards",
    "output",
    "error_handling",
];

/// The default name of a plan.
const NAME_DEFAULT: &str = "plan";

/// Lowers the plan to the native dialect.
pub(super) fn lower(reader: &mut DialectReader<'_>, root: &Node) -> Option<Node> {
    reader.check_record(root, &PLAN, "a plan");
    if let Some(word) = root.get("dialect") {
        reader.one_of(word, "`dialect`", &["plan"]);
    }
    let here = empty_span(root.span);
    let name = first_member(root, &["name"]).cloned();
    let mut members = vec![name.unwrap_or_else(|| member("name", text(here, NAME_DEFAULT)))];
    members.extend(keep_members(root, SHARED));
    if root.get("max_concurrency").is_none() {
        members.push(member("max_concurrency", number(here, 1)));
    }
    members.push(member("unresolved", text(here, "keep")));
    members.extend(about(reader, root));
    refuse_both(reader, root, "tools", "selectedTools");
    refuse_both(reader, root, "executionOrder", "toolOrder");
    let Some(tools) = first_member(root, &["tools", "selectedTools"]) else {
        let place = first_line(reader.source, root.span);
        reader.error(Code::NoSteps, place, "a plan needs `tools`");
        return None;
    };
    let value = lower_tools(reader, root, &tools.value);
    members.push(Member { key: "steps".into(), key_span: tools.key_span, value });
    Some(object(root.span, members))
}

/// Reports two names of the same field.
fn refuse_both(reader: &mut DialectReader<'_>, root: &Node, one: &str, other: &str) {
    if let (Some(_), Some(second)) = (root.get(one), root.get(other)) {
        let message = format!("`{one}` and `{other}` say the same thing");
        reader.error_with_help(Code::InvalidField, second.span, message, "keep one of them");
    }
}

/// Moves texts for people and the ids of the plan store into the metadata.
fn about(reader: &mut DialectReader<'_>, root: &Node) -> Option<Member> {
    let mut members = match first_member(root, &["metadata"]) {
        Some(found) if !matches!(found.value.kind, NodeKind::Object(_)) => {
            return Some(found.clone());
        }
        Some(found) => found.value.members().to_vec(),
        None => Vec::new(),
    };
    for (word, native) in [
        ("query", "query"),
        ("reasoning", "reasoning"),
        ("requestId", "request_id"),
        ("planId", "plan_id"),
    ] {
        if let Some(found) = first_member(root, &[word])
            && reader.text(&found.value, &format!("`{word}`")).is_some()
        {
            members.push(rename_member(found, native));
        }
    }
    let place = empty_span(members.first()?.key_span);
    let span = first_member(root, &["metadata"]).map_or(place, |found| found.value.span);
    Some(member("metadata", object(span, members)))
}

/// One call of the plan.
struct PlannedCall<'n> {
    node: &'n Node,
    id: Arc<str>,
    tool: Arc<str>,
}

fn lower_tools(reader: &mut DialectReader<'_>, root: &Node, node: &Node) -> Node {
    let NodeKind::Array(items) = &node.kind else { return node.clone() };
    let mut taken: BTreeSet<Arc<str>> =
        items.iter().filter_map(|item| item.get("id")?.as_str().cloned()).collect();
    let mut planned = Vec::with_capacity(items.len());
    for item in items {
        if !reader.check_record(item, &PLAN_TOOL, "a tool of a plan") {
            continue;
        }
        let Some(name) = first_member(item, &["name", "toolName"]) else {
            let place = first_line(reader.source, item.span);
            reader.error(Code::InvalidField, place, "a tool of a plan needs a `name`");
            continue;
        };
        let Some(tool) = reader.text(&name.value, "`name`") else { continue };
        let own = item.get("id").and_then(Node::as_str).cloned();
        let id = own.unwrap_or_else(|| unused_id(&tool, &taken));
        taken.insert(id.clone());
        planned.push(PlannedCall { node: item, id, tool });
    }
    let order = match root.get("executionOrder").or_else(|| root.get("toolOrder")) {
        Some(order) => execution_order(reader, order, &planned),
        None => (0..planned.len()).collect(),
    };
    let steps = order.into_iter().map(|at| lower_tool(&planned[at], &planned)).collect();
    array(node.span, steps)
}

/// The positions of the calls in the order that the plan requests; calls that it does not name come
/// last. A tool that is called twice is named twice.
fn execution_order(
    reader: &mut DialectReader<'_>,
    order: &Node,
    planned: &[PlannedCall<'_>],
) -> Vec<usize> {
    let mut placed = vec![false; planned.len()];
    let mut positions = Vec::with_capacity(planned.len());
    for item in reader.list(order, "`executionOrder`") {
        let Some(name) = reader.text(item, "a tool") else { continue };
        let is_free = |at: &usize| !placed[*at];
        let by_id = (0..planned.len()).filter(is_free).find(|at| planned[*at].id == name);
        let by_tool = || (0..planned.len()).filter(is_free).find(|at| planned[*at].tool == name);
        match by_id.or_else(by_tool) {
            Some(at) => {
                placed[at] = true;
                positions.push(at);
            }
            None => {
                let message = format!("`executionOrder` names `{name}`, which is not planned");
                let near = nearest_name(&name, planned.iter().map(|planned| &*planned.id));
                let finding = Diagnostic::error(Code::UnknownStep, message, item.span);
                let inner = reader.name_in_key(item.span);
                reader.findings.push(finding.fix_with(inner, near));
            }
        }
    }
    positions.extend((0..planned.len()).filter(|at| !placed[*at]));
    positions
}

fn lower_tool(call: &PlannedCall<'_>, planned: &[PlannedCall<'_>]) -> Node {
    let item = call.node;
    let mut members = Vec::new();
    if let Some(name) = first_member(item, &["name", "toolName"]) {
        let id = first_member(item, &["id"]).cloned();
        // The id has the span of the tool's name, so findings about the step point there.
        let made = || member("id", text(name.value.span, call.id.clone()));
        members.push(id.unwrap_or_else(made));
        members.push(rename_member(name, "tool"));
    }
    members.extend(keep_members(item, &["parameters", "timeout", "timeout_ms", "retry_count"]));
    if let Some(found) = first_member(item, &["when"]) {
        let value = truth_of(&found.value).unwrap_or_else(|| found.value.clone());
        members.push(Member { value, ..found.clone() });
    }
    if let Some(found) = first_member(item, &["dependsOn"]) {
        let value = match &found.value.kind {
            NodeKind::String(_) => needed(&found.value, planned),
            NodeKind::Array(items) => {
                let items = items.iter().map(|item| needed(item, planned)).collect();
                array(found.value.span, items)
            }
            _ => found.value.clone(),
        };
        members.push(Member { key: "depends_on".into(), key_span: found.key_span, value });
    }
    if let Some(found) = first_member(item, &["outputMapping"]) {
        let mapped = object(found.value.span, vec![rename_member(found, "map_outputs")]);
        members.push(Member { key: "on_success".into(), key_span: found.key_span, value: mapped });
    }
    object(item.span, members)
}

/// Resolves a `dependsOn`: an id, else the first call of a tool.
fn needed(node: &Node, planned: &[PlannedCall<'_>]) -> Node {
    let Some(name) = node.as_str() else { return node.clone() };
    let is_id = planned.iter().any(|planned| planned.id == *name);
    let by_tool = planned.iter().find(|planned| planned.tool == *name);
    match by_tool.filter(|_| !is_id) {
        Some(found) => of_value(node.span, &Value::String(found.id.clone())),
        None => node.clone(),
    }
}
