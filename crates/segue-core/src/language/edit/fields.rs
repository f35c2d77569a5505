//! Fields of steps and of the composition.

use std::sync::Arc;

use super::insert::{Content, Slot};
use super::path::{self, Segment, ValuePath, pointer_parts};
use super::subject::Subject;
use crate::diagnostic::{Code, nearest_name};
use crate::document::{Node, NodeKind};
use crate::language::EditError;
use crate::value::Value;

/// The object whose fields are meant.
fn owner(subject: &Subject, step: Option<&str>) -> Result<ValuePath, EditError> {
    match step {
        Some(id) => Ok(subject.find(id)?.path.clone()),
        None => Ok(subject.base.clone()),
    }
}

fn parts(field: &str) -> Result<Vec<Arc<str>>, EditError> {
    pointer_parts(field).ok_or_else(|| {
        let help = format!("write `/{}`", field.replace('.', "/"));
        EditError::new(Code::InvalidField, format!("`{field}` is not a JSON Pointer")).help(help)
    })
}

pub(super) fn set(
    subject: &mut Subject,
    step: Option<&str>,
    field: &str,
    value: &Value,
) -> Result<(), EditError> {
    let owner = owner(subject, step)?;
    let parts = parts(field)?;
    if let (Some(id), [name]) = (step, parts.as_slice())
        && &**name == "id"
    {
        if value.as_str() == Some(id) {
            return Ok(());
        }
        let message = "the id of a step is not set like other fields";
        return Err(EditError::new(Code::InvalidField, message)
            .help("rename the step, so that the references to it stay right"));
    }
    set_at(subject, owner, &parts, field, value)
}

/// Sets the value at a pointer below a path.
pub(super) fn set_at(
    subject: &mut Subject,
    mut at: ValuePath,
    parts: &[Arc<str>],
    field: &str,
    value: &Value,
) -> Result<(), EditError> {
    for (depth, part) in parts.iter().enumerate() {
        let Some(node) = subject.draft.node(&at) else { break };
        let rest = &parts[depth + 1..];
        match &node.kind {
            NodeKind::Object(_) if node.get(part).is_some() => at = path::key(&at, part),
            NodeKind::Object(members) => {
                let value = nested(rest, value);
                if members.is_empty() && !subject.draft.layout().is_bracketed(node) {
                    let object = Value::object([(part.clone(), value)]);
                    return subject.draft.set(&at, &object);
                }
                let slot = subject.slot(&at, part);
                return subject.draft.add_member(&at, slot, part, &value);
            }
            NodeKind::Array(items) => {
                let count = items.len();
                match item_index(part, count) {
                    Some(index) if index < count => at = path::index(&at, index),
                    Some(index) if index == count => {
                        let content = Content::Value(nested(rest, value));
                        return subject.draft.insert_item(&at, index, &content);
                    }
                    _ => {
                        let message =
                            format!("`{field}` leads to an item of a list that has {count}");
                        return Err(EditError::new(Code::UnknownPath, message)
                            .help("write `-` in place of the number to append"));
                    }
                }
            }
            NodeKind::Null => return subject.draft.set(&at, &nested(&parts[depth..], value)),
            _ => {
                let message =
                    format!("`{field}` leads through {}, which has no fields", node.kind_name());
                return Err(
                    EditError::new(Code::UnknownPath, message).help("set the value around it")
                );
            }
        }
    }
    subject.draft.set(&at, value)
}

fn item_index(part: &str, count: usize) -> Option<usize> {
    if part == "-" { Some(count) } else { part.parse().ok() }
}

/// A value inside objects of these names.
fn nested(names: &[Arc<str>], value: &Value) -> Value {
    let inside = |value: Value, name: &Arc<str>| match &**name {
        "-" | "0" => vec![value].into(),
        _ => Value::object([(name.clone(), value)]),
    };
    names.iter().rev().fold(value.clone(), inside)
}

pub(super) fn clear(
    subject: &mut Subject,
    step: Option<&str>,
    field: &str,
) -> Result<(), EditError> {
    let mut at = owner(subject, step)?;
    let parts = parts(field)?;
    if let (Some(_), ["id"]) =
        (step, parts.iter().map(|part| &**part).collect::<Vec<_>>().as_slice())
    {
        let message = "the id of a step cannot be removed";
        return Err(EditError::new(Code::InvalidField, message).help("rename or remove the step"));
    }
    for part in &parts {
        let Some(node) = subject.draft.node(&at) else { break };
        at = child_path(node, &at, part).ok_or_else(|| absent(node, field, part))?;
    }
    subject.draft.remove(&at)
}

fn child_path(node: &Node, at: &[Segment], part: &str) -> Option<ValuePath> {
    match &node.kind {
        NodeKind::Object(_) => node.get(part).map(|_| path::key(at, part)),
        NodeKind::Array(items) => {
            let index = part.parse().ok().filter(|index| *index < items.len())?;
            Some(path::index(at, index))
        }
        _ => None,
    }
}

fn absent(node: &Node, field: &str, part: &str) -> EditError {
    let error = EditError::new(Code::UnknownPath, format!("there is no `{field}`"));
    match nearest_name(part, node.members().iter().map(|member| &*member.key)) {
        Some(near) => error.help(format!("did you mean `{near}`?")),
        None => error,
    }
}

/// Adds a field to an object where people would write it.
pub(super) fn add_field(
    subject: &mut Subject,
    object: &[Segment],
    name: &str,
    value: &Value,
) -> Result<(), EditError> {
    let slot: Slot = subject.slot(object, name);
    subject.draft.add_member(object, slot, name, value)
}
