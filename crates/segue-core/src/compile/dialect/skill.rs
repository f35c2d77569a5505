//! The skill dialect: calls one after the other, in the order of their ids.

use super::grammar::{SKILL, SKILL_STEP};
use super::lower::{
    array, empty_span, first_member, keep_members, member, number, object, rename_member, text,
};
use super::reader::{DialectReader, first_line};
use crate::diagnostic::Code;
use crate::document::{Member, Node, NodeKind};

/// Members that have the same meaning in the native dialect.
const SHARED: &[&str] = &[
    "version",
    "input",
    "parameters",
    "requires",
    "atomic",
    "timeout",
    "timeout_ms",
    "guards",
    "output",
    "metadata",
];

/// Lowers the skill to the native dialect.
pub(super) fn lower(reader: &mut DialectReader<'_>, root: &Node) -> Option<Node> {
    reader.check_record(root, &SKILL, "a skill");
    if let Some(word) = root.get("dialect") {
        reader.one_of(word, "`dialect`", &["skill"]);
    }
    let mut members = Vec::new();
    for (names, native) in
        [(["name", "Name"], "name"), (["description", "Description"], "description")]
    {
        members.extend(first_member(root, &names).map(|found| rename_member(found, native)));
    }
    members.extend(keep_members(root, SHARED));
    let here = empty_span(root.span);
    members.push(member("max_concurrency", number(here, 1)));
    members.push(member("unresolved", text(here, "keep")));
    let Some(steps) = first_member(root, &["steps", "Steps"]) else {
        let place = first_line(reader.source, root.span);
        reader.error(Code::NoSteps, place, "a skill needs `steps`");
        return None;
    };
    let value = lower_steps(reader, &steps.value);
    members.push(Member { key: "steps".into(), key_span: steps.key_span, value });
    Some(object(root.span, members))
}

/// Sorts the steps by id and chains each to the one before it.
fn lower_steps(reader: &mut DialectReader<'_>, node: &Node) -> Node {
    let NodeKind::Array(items) = &node.kind else { return node.clone() };
    let mut steps: Vec<(&Node, Vec<Member>)> = Vec::new();
    for item in items {
        if reader.check_record(item, &SKILL_STEP, "a step") {
            steps.extend(lower_step(reader, item).map(|lowered| (item, lowered)));
        }
    }
    let id = |members: &[Member]| {
        let id = members.iter().find(|member| &*member.key == "id")?;
        id.value.as_str().cloned()
    };
    steps.sort_by_key(|(_, members)| id(members));
    let mut before = None;
    let mut lowered = Vec::with_capacity(steps.len());
    for (item, mut members) in steps {
        let here = empty_span(item.span);
        let own = id(&members);
        if let Some(before) = before.filter(|before| Some(before) != own.as_ref()) {
            members.push(member("depends_on", array(here, vec![text(here, before)])));
        }
        before = own;
        lowered.push(object(item.span, members));
    }
    array(node.span, lowered)
}

fn lower_step(reader: &mut DialectReader<'_>, item: &Node) -> Option<Vec<Member>> {
    let Some(tool) = first_member(item, &["tool_id", "toolId", "ToolID"]) else {
        let place = first_line(reader.source, item.span);
        reader.error(Code::InvalidField, place, "a step of a skill needs a `tool_id`");
        return None;
    };
    if tool.value.as_str().is_some_and(|id| id.is_empty()) {
        reader.error(Code::InvalidField, tool.value.span, "`tool_id` is empty");
        return None;
    }
    let id = first_member(item, &["id", "ID"]).map(|id| rename_member(id, "id"));
    let inputs =
        first_member(item, &["inputs", "Inputs"]).map(|inputs| rename_member(inputs, "parameters"));
    Some(id.into_iter().chain([rename_member(tool, "tool")]).chain(inputs).collect())
}
