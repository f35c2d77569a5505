//! Paths through a document, and changes of plain values at a path.

use std::sync::Arc;

use crate::document::{Node, NodeKind};
use crate::value::{Map, Value};

/// One step on a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Segment {
    Key(Arc<str>),
    Index(usize),
}

pub(super) type ValuePath = Vec<Segment>;

/// The path with one more segment.
pub(super) fn joined(path: &[Segment], last: Segment) -> ValuePath {
    let mut path = path.to_vec();
    path.push(last);
    path
}

pub(super) fn key(path: &[Segment], name: &str) -> ValuePath {
    joined(path, Segment::Key(name.into()))
}

pub(super) fn index(path: &[Segment], at: usize) -> ValuePath {
    joined(path, Segment::Index(at))
}

/// The segments of a JSON Pointer; `None` if it is none.
pub(super) fn pointer_parts(pointer: &str) -> Option<Vec<Arc<str>>> {
    if !pointer.starts_with('/') {
        return None;
    }
    let decode = |part: &str| Arc::from(part.replace("~1", "/").replace("~0", "~"));
    Some(pointer.split('/').skip(1).map(decode).collect())
}

/// The JSON Pointer of a path.
pub(super) fn pointer(path: &[Segment]) -> String {
    let part = |segment: &Segment| match segment {
        Segment::Key(name) => format!("/{}", name.replace('~', "~0").replace('/', "~1")),
        Segment::Index(at) => format!("/{at}"),
    };
    path.iter().map(part).collect()
}

pub(super) fn child<'n>(node: &'n Node, segment: &Segment) -> Option<&'n Node> {
    match (segment, &node.kind) {
        (Segment::Key(name), NodeKind::Object(_)) => node.get(name),
        (Segment::Index(at), NodeKind::Array(items)) => items.get(*at),
        _ => None,
    }
}

pub(super) fn node_at<'n>(root: &'n Node, path: &[Segment]) -> Option<&'n Node> {
    path.iter().try_fold(root, child)
}

/// The value in which the part at a path is another one. The path must exist.
pub(super) fn changed(
    value: &Value,
    path: &[Segment],
    change: &mut dyn FnMut(&Value) -> Value,
) -> Value {
    match (path.split_first(), value) {
        (None, value) => change(value),
        (Some((Segment::Key(name), rest)), Value::Object(members)) => {
            let mut members: Map = (**members).clone();
            if let Some(member) = members.get_mut(name) {
                *member = changed(member, rest, change);
            }
            members.into()
        }
        (Some((Segment::Index(at), rest)), Value::Array(items)) => {
            let mut items: Vec<Value> = (**items).clone();
            if let Some(item) = items.get_mut(*at) {
                *item = changed(item, rest, change);
            }
            items.into()
        }
        (Some(_), other) => other.clone(),
    }
}

/// The value with one more item in the array at a path.
pub(super) fn with_item(value: &Value, list: &[Segment], at: usize, item: &Value) -> Value {
    changed(value, list, &mut |list| {
        let mut items: Vec<Value> =
            list.as_array().map(|items| (**items).clone()).unwrap_or_default();
        items.insert(at.min(items.len()), item.clone());
        items.into()
    })
}

/// The value with one more member in the object at a path.
pub(super) fn with_member(value: &Value, object: &[Segment], name: &str, member: &Value) -> Value {
    changed(value, object, &mut |object| {
        let mut members: Map =
            object.as_object().map(|members| (**members).clone()).unwrap_or_default();
        members.insert(name.into(), member.clone());
        members.into()
    })
}

/// The value without the member or item at a path.
pub(super) fn without(value: &Value, path: &[Segment]) -> Value {
    let Some((last, container)) = path.split_last() else { return value.clone() };
    changed(value, container, &mut |container| match (last, container) {
        (Segment::Key(name), Value::Object(members)) => {
            let mut members: Map = (**members).clone();
            members.shift_remove(name);
            members.into()
        }
        (Segment::Index(at), Value::Array(items)) => {
            let mut items: Vec<Value> = (**items).clone();
            if *at < items.len() {
                items.remove(*at);
            }
            items.into()
        }
        (_, other) => other.clone(),
    })
}

/// The path of an item after another item was inserted into a list.
pub(super) fn after_insert(path: &[Segment], list: &[Segment], at: usize) -> ValuePath {
    shifted(path, list, |own| if own >= at { own + 1 } else { own })
}

/// The path of a node after an item was removed from a list; the node is not inside that item.
pub(super) fn after_remove(path: &[Segment], list: &[Segment], at: usize) -> ValuePath {
    shifted(path, list, |own| if own > at { own - 1 } else { own })
}

fn shifted(path: &[Segment], list: &[Segment], shift: impl Fn(usize) -> usize) -> ValuePath {
    let mut path = path.to_vec();
    if path.len() > list.len()
        && path.starts_with(list)
        && let Segment::Index(own) = &mut path[list.len()]
    {
        *own = shift(*own);
    }
    path
}
