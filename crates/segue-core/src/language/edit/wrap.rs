//! Containers around steps, and steps that become steps of another kind.

use std::sync::Arc;

use super::fields::add_field;
use super::insert::Content;
use super::path::{self, Segment, ValuePath};
use super::steps::check_new_id;
use super::subject::Subject;
use super::types::Container;
use crate::compile::dialect::grammar::STEP_KINDS;
use crate::diagnostic::Code;
use crate::document::Node;
use crate::language::EditError;
use crate::value::{Map, Value};

pub(super) fn wrap(
    subject: &mut Subject,
    ids: &[Arc<str>],
    id: &str,
    container: &Container,
) -> Result<(), EditError> {
    check_new_id(subject, id)?;
    let steps = subject.siblings(ids)?;
    let (list, first) = (steps[0].in_list().0.to_vec(), steps[0].in_list().1);
    let (fields, inner) = container_fields(container);
    let mut step = Map::new();
    step.insert("id".into(), Value::from(id));
    step.extend(fields);
    subject.draft.insert_item(&list, first, &Content::Value(step.into()))?;
    let container = path::index(&list, first);
    let body: ValuePath = container.iter().cloned().chain(inner).collect();
    for (moved, step) in steps.iter().enumerate() {
        // Each step before has left the list, and the container has entered it.
        let from = path::index(&list, step.in_list().1 + 1 - moved);
        subject.draft.move_item(&from, &body, moved)?;
    }
    Ok(())
}

/// The fields of a container without steps, and the way from it to its list of steps.
fn container_fields(container: &Container) -> (Map, ValuePath) {
    let key = |name: &str| Segment::Key(name.into());
    let none = || Value::from(Vec::new());
    let object = |members: Vec<(&str, Option<Value>)>| {
        Value::object(members.into_iter().filter_map(|(name, value)| Some((name, value?))))
    };
    let (kind, value, inner) = match container {
        Container::Loop { over, item, max_concurrency } => {
            let fields = object(vec![
                ("over", Some(over.clone())),
                ("as", item.as_ref().map(|item| Value::from(&**item))),
                ("max_concurrency", max_concurrency.map(|count| Value::from(u64::from(count)))),
                ("steps", Some(none())),
            ]);
            ("loop", fields, vec![key("loop"), key("steps")])
        }
        Container::Repeat { until, max_iterations, delay } => {
            let fields = object(vec![
                ("until", Some(until.clone())),
                ("max_iterations", Some(Value::from(u64::from(*max_iterations)))),
                ("delay", delay.as_ref().map(|delay| Value::from(&**delay))),
                ("steps", Some(none())),
            ]);
            ("repeat", fields, vec![key("repeat"), key("steps")])
        }
        Container::Choose { when } => {
            let case = object(vec![("when", Some(when.clone())), ("steps", Some(none()))]);
            ("choose", vec![case].into(), vec![key("choose"), Segment::Index(0), key("steps")])
        }
        Container::Parallel { .. } => ("parallel", none(), vec![key("parallel")]),
    };
    let mut fields = Map::new();
    fields.insert(kind.into(), value);
    if let Container::Parallel { wait_for: Some(word) } = container {
        fields.insert("wait_for".into(), Value::from(&**word));
    }
    (fields, inner)
}

/// Fields that only steps of certain kinds have.
fn belongs(field: &str, kind: &str) -> bool {
    match field {
        "parameters" | "inputs" | "fallback" | "probe" | "idempotent" | "rollback"
        | "success_when" | "fail_when" => kind == "tool",
        "wait_for" => kind == "parallel",
        "retry" | "retry_count" => !matches!(kind, "set" | "approve" | "wait"),
        field => !STEP_KINDS.contains(&field) || field == kind,
    }
}

pub(super) fn change_kind(subject: &mut Subject, id: &str, to: &Value) -> Result<(), EditError> {
    let step = subject.find(id)?.path.clone();
    let Some(fields) = to.as_object() else {
        let message = format!("`to` must be an object, found {}", to.kind());
        return Err(EditError::new(Code::InvalidField, message).help("write `{ \"tool\": \"…\" }`"));
    };
    let kinds: Vec<&str> =
        STEP_KINDS.iter().copied().filter(|kind| fields.contains_key(*kind)).collect();
    let [kind] = kinds.as_slice() else {
        let message = format!("`to` has {} of the words of kinds", kinds.len());
        return Err(EditError::new(Code::InvalidField, message)
            .help(format!("give it one of `{}`", STEP_KINDS.join("`, `"))));
    };
    if let Some(stray) = fields.keys().find(|field| &***field == "id" || !belongs(field, kind)) {
        let message = format!("`{stray}` does not belong to `to`");
        return Err(EditError::new(Code::InvalidField, message));
    }
    let present: Vec<Arc<str>> = match subject.draft.node(&step) {
        Some(node) => node.members().iter().map(|member| member.key.clone()).collect(),
        None => Vec::new(),
    };
    let old_kind = present.iter().find(|field| STEP_KINDS.contains(&&***field)).cloned();
    let bodies = old_kind.as_deref().and_then(|kind| own_steps(subject, &step, kind));
    let new_list = list_of(kind, fields);
    let keeps = new_list.as_ref().is_some_and(|(_, is_given)| !is_given);
    if old_kind.as_deref() == Some(*kind) {
        return set_fields(subject, &step, fields);
    }
    check_bodies(subject, id, &step, bodies.as_ref(), keeps)?;
    let value = match &new_list {
        Some((inner, false)) => with_empty_list(&fields[*kind], &inner[1..]),
        _ => fields[*kind].clone(),
    };
    add_kind(subject, &step, old_kind.as_deref(), kind, &value)?;
    if let (Some(list), Some((inner, false))) = (bodies, new_list) {
        let target: ValuePath = step.iter().cloned().chain(inner).collect();
        let count = subject.draft.node(&list).map_or(0, |node| node.items().len());
        for at in 0..count {
            subject.draft.move_item(&path::index(&list, 0), &target, at)?;
        }
    }
    for field in &present {
        if !belongs(field, kind) || (fields.contains_key(field) && **field != **kind) {
            let is_set = fields.contains_key(field);
            if is_set {
                subject.draft.set(&path::key(&step, field), &fields[field])?;
            } else {
                subject.draft.remove(&path::key(&step, field))?;
            }
        }
    }
    let rest: Vec<(&Arc<str>, &Value)> =
        fields.iter().filter(|(field, _)| ***field != **kind && !present.contains(field)).collect();
    for (field, value) in rest {
        add_field(subject, &step, field, value)?;
    }
    Ok(())
}

/// Writes the new kind beside the old one, which is removed afterwards.
fn add_kind(
    subject: &mut Subject,
    step: &[Segment],
    old: Option<&str>,
    kind: &str,
    value: &Value,
) -> Result<(), EditError> {
    let position = old.and_then(|old| {
        let node: &Node = subject.draft.node(step)?;
        node.members().iter().position(|member| &*member.key == old)
    });
    match position {
        Some(at) => subject.draft.add_member(step, super::insert::Slot::After(at), kind, value),
        None => add_field(subject, step, kind, value),
    }
}

fn set_fields(subject: &mut Subject, step: &[Segment], fields: &Map) -> Result<(), EditError> {
    for (field, value) in fields {
        let at = path::key(step, field);
        match subject.draft.node(&at) {
            Some(_) => subject.draft.set(&at, value)?,
            None => add_field(subject, step, field, value)?,
        }
    }
    Ok(())
}

/// The list of steps that a step of a kind has, if it has one list.
fn own_steps(subject: &Subject, step: &[Segment], kind: &str) -> Option<ValuePath> {
    let list = match kind {
        "loop" | "repeat" => path::key(&path::key(step, kind), "steps"),
        "parallel" => path::key(step, "parallel"),
        "choose" => path::key(&path::index(&path::key(step, "choose"), 0), "steps"),
        _ => return None,
    };
    subject.draft.node(&list).map(|_| list)
}

/// The way to the list of steps of a new kind, and whether the request gives the steps.
fn list_of(kind: &str, fields: &Map) -> Option<(ValuePath, bool)> {
    let key = |name: &str| Segment::Key(name.into());
    let value = fields.get(kind)?;
    match kind {
        "loop" | "repeat" => Some((vec![key(kind), key("steps")], value.get("steps").is_some())),
        "parallel" => {
            let is_given = value.as_array().is_some_and(|branches| !branches.is_empty());
            Some((vec![key(kind)], is_given))
        }
        "choose" => {
            let case = value.at(0)?;
            let inner = vec![key(kind), Segment::Index(0), key("steps")];
            Some((inner, case.get("steps").is_some() || case.get("otherwise").is_some()))
        }
        _ => None,
    }
}

/// A value with an empty list of steps at a path.
fn with_empty_list(value: &Value, path: &[Segment]) -> Value {
    match path.split_last() {
        Some((Segment::Key(name), object)) => {
            path::with_member(value, object, name, &Vec::new().into())
        }
        _ => Vec::new().into(),
    }
}

/// Refuses to lose steps: those of several lists, or of a step that has none afterwards.
fn check_bodies(
    subject: &Subject,
    id: &str,
    step: &[Segment],
    kept: Option<&ValuePath>,
    keeps: bool,
) -> Result<(), EditError> {
    let inside = |other: &&super::subject::StepPlace| {
        other.path.len() > step.len() && other.path.starts_with(step)
    };
    let lost = subject.steps.iter().filter(inside).find(|inner| {
        let direct = kept.filter(|_| keeps).is_some_and(|list| inner.path.starts_with(list));
        !direct
    });
    match lost {
        None => Ok(()),
        Some(lost) => {
            let message = format!("step `{}` inside `{id}` would be lost", lost.id);
            Err(EditError::new(Code::InvalidField, message).help("move it out of the step first"))
        }
    }
}
