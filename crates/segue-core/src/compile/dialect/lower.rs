//! Making a tree of native words out of one in the words of another dialect.
//!
//! Every part of the new tree stands where the part of the text that it came from stands, so that
//! findings point there, and comments find their way.

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

/// The place of something that nobody wrote: where `span` begins, and nothing of it, so that nobody
/// takes it for what stands there.
pub(super) fn empty_span(span: Span) -> Span {
    Span { start: span.start, end: span.start }
}

/// A member whose name stands where its value does.
pub(super) fn member(key: &str, value: Node) -> Member {
    Member { key: key.into(), key_span: value.span, value }
}

/// The first member with one of these names that says something: programs write what they do not
/// have as null.
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

/// The members with these names, as they are, in the order of the text.
pub(super) fn keep_members(node: &Node, names: &[&str]) -> Vec<Member> {
    let wanted =
        |member: &&Member| names.contains(&&*member.key) && member.value.kind != NodeKind::Null;
    node.members().iter().filter(wanted).cloned().collect()
}

/// Something of which nothing is known, in place of what cannot be read: it has been said that it
/// cannot, and nothing more is to be found in it.
pub(super) fn unknown(span: Span) -> Node {
    text(span, "{{ context.unknown }}")
}

/// A value that nobody wrote, where something else stands.
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

/// A name out of `word` that can stand in a path and that nothing else has.
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
