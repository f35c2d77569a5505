//! Builds a tree of the native dialect from a tree of another dialect.
//!
//! Every node of the new tree has the span of the text that it came from, so findings point there
//! and comments keep their place.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::step::RESERVED;
use crate::document::{Member, Node, NodeKind};
use crate::id::is_step_id;
use crate::source::Span;
use crate::value::{Number, Value};

pub(super) fn object(span: Span, members: Vec<Member>) -> Node {
    Node { span, kind: NodeKind::Object(members) }
}

pub(super) fn array(span: Span, items: Vec<Node>) -> Node {
    Node { span, kind: NodeKind::Array(items) }
}

pub(super) fn text(span: Span, text: impl Into<Arc<str>>) -> Node {
    Node { span, kind: NodeKind::String(text.into()) }
}

pub(super) fn number(span: Span, number: i64) -> Node {
    Node { span, kind: NodeKind::Number(Number::Int(number)) }
}

/// A `when` of one plain path, as chains and plans write it: its value is a condition, and null,
/// empty and zero are false. The native dialect says so with `| bool`.
pub(super) fn truth_of(node: &Node) -> Option<Node> {
    let written = node.as_str()?;
    let inner = written.trim().strip_prefix("{{")?.strip_suffix("}}")?.trim();
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let is_path = inner.starts_with(|c: char| c.is_alphabetic() || c == '_')
        && inner.chars().all(|c| is_name(c) || matches!(c, '.' | '[' | ']'));
    if !is_path || matches!(inner, "true" | "false" | "none" | "True" | "False" | "None") {
        return None;
    }
    let end = written.find(inner)? + inner.len();
    Some(text(node.span, format!("{} | bool{}", &written[..end], &written[end..])))
}

/// The span of a generated node: empty, at the start of `span`, so that no finding or edit mistakes
/// the text there for the node.
pub(super) fn empty_span(span: Span) -> Span {
    Span { start: span.start, end: span.start }
}

/// A member whose key has the span of its value.
pub(super) fn member(key: &str, value: Node) -> Member {
    Member { key: key.into(), key_span: value.span, value }
}

/// The first member with one of these names and a value that is not null: programs write absent
/// fields as null.
pub(super) fn first_member<'n>(node: &'n Node, names: &[&str]) -> Option<&'n Member> {
    let says = |member: &&Member| member.value.kind != NodeKind::Null;
    names
        .iter()
        .find_map(|name| node.members().iter().filter(says).find(|member| &*member.key == *name))
}

/// The same member under another name.
pub(super) fn rename_member(member: &Member, key: &str) -> Member {
    Member { key: key.into(), ..member.clone() }
}

/// The members with these names, unchanged, in the order of the text.
pub(super) fn keep_members(node: &Node, names: &[&str]) -> Vec<Member> {
    let wanted =
        |member: &&Member| names.contains(&&*member.key) && member.value.kind != NodeKind::Null;
    node.members().iter().filter(wanted).cloned().collect()
}

/// A value of unknown type for a part that could not be read. The reader has reported it, so
/// nothing more is reported inside.
pub(super) fn unknown(span: Span) -> Node {
    text(span, "{{ context.unknown }}")
}

/// A generated value, with the span of the text that it replaces.
pub(super) fn of_value(span: Span, value: &Value) -> Node {
    let kind = match value {
        Value::Null => NodeKind::Null,
        Value::Bool(bool) => NodeKind::Bool(*bool),
        Value::Number(number) => NodeKind::Number(number.clone()),
        Value::String(text) => NodeKind::String(text.clone()),
        Value::Array(items) => {
            NodeKind::Array(items.iter().map(|item| of_value(span, item)).collect())
        }
        Value::Object(members) => NodeKind::Object(
            members
                .iter()
                .map(|(key, value)| Member {
                    key: key.clone(),
                    key_span: span,
                    value: of_value(span, value),
                })
                .collect(),
        ),
    };
    Node { span, kind }
}

/// A unique id, derived from `word`, that is a valid path segment.
pub(super) fn unused_id(word: &str, taken: &BTreeSet<Arc<str>>) -> Arc<str> {
    let short = word.rsplit(':').next().unwrap_or(word);
    let fits = |c: char| is_step_id(c.encode_utf8(&mut [0; 4]));
    let mut plain: String = short.chars().map(|c| if fits(c) { c } else { '_' }).collect();
    if plain.is_empty() {
        plain.push('_');
    }
    let is_free = |name: &str| !taken.contains(name) && !RESERVED.contains(&name);
    if is_free(&plain) {
        return plain.into();
    }
    let mut numbered = (2..).map(|number| format!("{plain}_{number}"));
    numbered.find(|name| is_free(name)).unwrap_or(plain).into()
}
