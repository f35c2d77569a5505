//! The same edits on plain values, written a second time and without texts.

use std::sync::Arc;

use segue_core::language::edit::{Container, Edit, Place};
use segue_core::value::{Map, Value};

/// Where a step is: keys and numbers from the root.
pub(crate) type Way = Vec<String>;

const KINDS: &[&str] =
    &["tool", "parallel", "loop", "repeat", "choose", "set", "approve", "wait", "expand"];

pub(crate) fn kind(edit: &Edit) -> &'static str {
    match edit {
        Edit::AddStep { .. } => "add",
        Edit::RemoveStep { .. } => "remove",
        Edit::RenameStep { .. } => "rename",
        Edit::MoveStep { .. } => "move",
        Edit::DuplicateStep { .. } => "duplicate",
        Edit::SetField { .. } => "set",
        Edit::ClearField { .. } => "clear",
        Edit::Connect { .. } => "connect",
        Edit::Disconnect { .. } => "disconnect",
        Edit::Wrap { .. } => "wrap",
        Edit::Extract { .. } => "extract",
        Edit::ChangeKind { .. } => "change kind",
    }
}

pub(crate) fn at<'v>(value: &'v Value, way: &[String]) -> Option<&'v Value> {
    way.iter().try_fold(value, |value, part| match value {
        Value::Array(items) => items.get(part.parse::<usize>().ok()?),
        other => other.get(part),
    })
}

/// Changes the value at a way; `None` removes it.
fn with(value: &Value, way: &[String], new: &dyn Fn(Option<&Value>) -> Option<Value>) -> Value {
    let Some((part, rest)) = way.split_first() else { return new(Some(value)).unwrap_or_default() };
    match value {
        Value::Array(items) => {
            let mut items: Vec<Value> = (**items).clone();
            let number: usize = part.parse().unwrap();
            if !rest.is_empty() {
                items[number] = with(&items[number], rest, new);
            } else if let Some(item) = new(items.get(number)) {
                items[number] = item;
            } else {
                items.remove(number);
            }
            items.into()
        }
        other => {
            let mut members: Map = other.as_object().map(|map| (**map).clone()).unwrap_or_default();
            if rest.is_empty() {
                match new(members.get(&**part)) {
                    Some(value) => drop(members.insert(part.as_str().into(), value)),
                    None => drop(members.shift_remove(&**part)),
                }
            } else {
                let inner = members.get(&**part).cloned().unwrap_or_else(Value::empty_object);
                members.insert(part.as_str().into(), with(&inner, rest, new));
            }
            members.into()
        }
    }
}

fn base(value: &Value) -> Way {
    let is_template = value.get("steps").is_none()
        && value.get("composition").is_some_and(|inner| inner.as_object().is_some());
    if is_template { vec!["composition".to_owned()] } else { Vec::new() }
}

fn own_list(value: &Value) -> Way {
    let mut way = base(value);
    let composition = at(value, &way).unwrap();
    if composition.get("implementation").is_some() {
        way.extend(["implementation".to_owned(), "composite".to_owned()]);
    }
    way.push("steps".to_owned());
    way
}

pub(crate) fn is_program(value: &Value) -> bool {
    let composition = at(value, &base(value)).unwrap();
    composition.get("implementation").is_some()
        || composition.get("dialect").and_then(Value::as_str) == Some("chain")
        || composition.get("flow").and_then(Value::as_str) == Some("program")
}

/// Every step that has an id, with its way, in the order of the text.
pub(crate) fn steps(value: &Value) -> Vec<(Arc<str>, Way)> {
    let mut found = Vec::new();
    collect(value, &own_list(value), false, &mut found);
    found
}

fn collect(root: &Value, list: &[String], branches: bool, found: &mut Vec<(Arc<str>, Way)>) {
    let Some(Value::Array(items)) = at(root, list) else { return };
    for (number, item) in items.iter().enumerate() {
        let mut way = list.to_vec();
        way.push(number.to_string());
        let inner = |parts: &[&str]| -> Way {
            way.iter().cloned().chain(parts.iter().map(|part| (*part).to_owned())).collect()
        };
        let is_group = branches && !KINDS.iter().any(|kind| item.get(kind).is_some());
        if is_group && item.get("steps").is_some() {
            collect(root, &inner(&["steps"]), false, found);
            continue;
        }
        if let Some(Value::String(id)) = item.get("id") {
            found.push((id.clone(), way.clone()));
        }
        collect(root, &inner(&["parallel"]), true, found);
        collect(root, &inner(&["loop", "steps"]), false, found);
        collect(root, &inner(&["repeat", "steps"]), false, found);
        let cases = item.get("choose").and_then(Value::as_array).map_or(0, |cases| cases.len());
        for case in 0..cases {
            collect(root, &inner(&["choose", &case.to_string(), "steps"]), false, found);
            collect(root, &inner(&["choose", &case.to_string(), "otherwise"]), false, found);
        }
    }
}

pub(crate) fn way_of(value: &Value, id: &str) -> Option<Way> {
    steps(value).into_iter().find(|(step, _)| **step == *id).map(|(_, way)| way)
}

/// The list and the position that a place means.
pub(crate) fn place_of(value: &Value, place: &Place) -> Option<(Way, usize)> {
    let split = |mut way: Way| {
        let number: usize = way.pop()?.parse().ok()?;
        Some((way, number))
    };
    match place {
        Place::Before { step } => split(way_of(value, step)?),
        Place::After { step } => {
            split(way_of(value, step)?).map(|(list, number)| (list, number + 1))
        }
        Place::FirstIn { step, .. } => Some((body_of(value, step.as_deref())?, 0)),
        Place::LastIn { step, .. } => {
            let list = body_of(value, step.as_deref())?;
            let count = at(value, &list)?.as_array()?.len();
            Some((list, count))
        }
    }
}

fn body_of(value: &Value, step: Option<&str>) -> Option<Way> {
    let Some(step) = step else { return Some(own_list(value)) };
    let mut way = way_of(value, step)?;
    let step = at(value, &way)?;
    let inner: &[&str] = if step.get("loop").is_some() {
        &["loop", "steps"]
    } else if step.get("repeat").is_some() {
        &["repeat", "steps"]
    } else if step.get("parallel").is_some() {
        &["parallel"]
    } else {
        &["choose", "0", "steps"]
    };
    way.extend(inner.iter().map(|part| (*part).to_owned()));
    at(value, &way)?.as_array()?;
    Some(way)
}

fn inserted(value: &Value, list: &[String], number: usize, item: &Value) -> Value {
    with(value, list, &|old| {
        let mut items: Vec<Value> = old?.as_array().map(|items| (**items).clone())?;
        items.insert(number, item.clone());
        Some(items.into())
    })
}

/// The entries of `depends_on` without some ids; nothing is left of a list without entries.
fn without_ids(value: &Value, skip: &[String], ids: &[Arc<str>]) -> Value {
    let mut now = value.clone();
    for (_, way) in steps(value) {
        if way.starts_with(skip) {
            continue;
        }
        let mut field = way.clone();
        field.push("depends_on".to_owned());
        let is_named =
            |value: &Value| value.as_str().is_some_and(|id| ids.iter().any(|own| **own == *id));
        let new = match at(&now, &field) {
            Some(single) if is_named(single) => None,
            Some(Value::Array(items)) if items.iter().any(is_named) => {
                let rest: Vec<Value> =
                    items.iter().filter(|item| !is_named(item)).cloned().collect();
                (!rest.is_empty()).then(|| rest.into())
            }
            _ => continue,
        };
        now = with(&now, &field, &|_| new.clone());
    }
    now
}

/// The value after an edit; `None` for edits that only `broken_promise` and the compiler judge.
pub(crate) fn applied(value: &Value, edit: &Edit) -> Option<Value> {
    match edit {
        Edit::AddStep { step, place } => {
            let (list, number) = place_of(value, place)?;
            Some(inserted(value, &list, number, step))
        }
        Edit::RemoveStep { step } => {
            let way = way_of(value, step)?;
            let inside = steps(value).into_iter().filter(|(_, inner)| inner.starts_with(&way));
            let ids: Vec<Arc<str>> = inside.map(|(id, _)| id).collect();
            Some(with(&without_ids(value, &way, &ids), &way, &|_| None))
        }
        Edit::MoveStep { step, place } => {
            let way = way_of(value, step)?;
            let moved = at(value, &way)?.clone();
            let marked = with(value, &way, &|_| Some(Value::from("moved away")));
            let (list, number) = place_of(value, place)?;
            let both = inserted(&marked, &list, number, &moved);
            Some(swept(&both))
        }
        Edit::SetField { step, field, value: new } => {
            let mut way = match step {
                Some(step) => way_of(value, step)?,
                None => base(value),
            };
            way.extend(field.split('/').skip(1).map(str::to_owned));
            Some(with(value, &way, &|_| Some(new.clone())))
        }
        Edit::ClearField { step, field } => {
            let mut way = way_of(value, step.as_deref()?)?;
            way.extend(field.split('/').skip(1).map(str::to_owned));
            Some(with(value, &way, &|_| None))
        }
        Edit::Connect { from, to, reference: None } => {
            let mut way = way_of(value, to)?;
            way.push("depends_on".to_owned());
            let from = Value::from(&**from);
            Some(with(value, &way, &|old| match old {
                Some(Value::Array(items)) if items.contains(&from) => old.cloned(),
                Some(Value::Array(items)) => {
                    let mut items: Vec<Value> = (**items).clone();
                    items.push(from.clone());
                    Some(items.into())
                }
                Some(single) if *single == from => Some(from.clone()),
                Some(single) => Some(vec![single.clone(), from.clone()].into()),
                None => Some(vec![from.clone()].into()),
            }))
        }
        Edit::Wrap { steps: ids, id, container } => wrapped(value, ids, id, container),
        _ => None,
    }
}

/// The value without the marks of steps that moved away.
fn swept(value: &Value) -> Value {
    match value {
        Value::Array(items) => {
            let kept = items.iter().filter(|item| item.as_str() != Some("moved away"));
            kept.map(swept).collect::<Vec<_>>().into()
        }
        Value::Object(members) => {
            Value::object(members.iter().map(|(key, value)| (key.clone(), swept(value))))
        }
        other => other.clone(),
    }
}

fn wrapped(value: &Value, ids: &[Arc<str>], id: &str, container: &Container) -> Option<Value> {
    let mut ways: Vec<(usize, Way)> = Vec::new();
    for step in ids {
        let mut way = way_of(value, step)?;
        let number: usize = way.pop()?.parse().ok()?;
        ways.push((number, way));
    }
    ways.sort();
    let (first, list) = ways.first()?.clone();
    let items = at(value, &list)?.as_array()?;
    let inside: Vec<Value> = ways.iter().map(|(number, _)| items[*number].clone()).collect();
    let inside = Value::from(inside);
    let object = |members: Vec<(&str, Value)>| Value::object(members);
    let step = match container {
        Container::Loop { over, item, .. } => {
            let mut fields = vec![("over", over.clone()), ("steps", inside)];
            fields.extend(item.as_ref().map(|item| ("as", Value::from(&**item))));
            object(vec![("id", Value::from(id)), ("loop", object(fields))])
        }
        Container::Parallel { .. } => object(vec![("id", Value::from(id)), ("parallel", inside)]),
        Container::Choose { when } => {
            let case = object(vec![("when", when.clone()), ("steps", inside)]);
            object(vec![("id", Value::from(id)), ("choose", vec![case].into())])
        }
        Container::Repeat { until, max_iterations, .. } => {
            let count = Value::from(u64::from(*max_iterations));
            let fields =
                vec![("until", until.clone()), ("max_iterations", count), ("steps", inside)];
            object(vec![("id", Value::from(id)), ("repeat", object(fields))])
        }
    };
    let mut rest: Vec<Value> = Vec::new();
    for (number, item) in items.iter().enumerate() {
        if number == first {
            rest.push(step.clone());
        } else if !ways.iter().any(|(own, _)| *own == number) {
            rest.push(item.clone());
        }
    }
    Some(with(value, &list, &|_| Some(rest.clone().into())))
}

/// What must hold after edits that `applied` does not model.
pub(crate) fn broken_promise(before: &Value, after: &Value, edit: &Edit) -> Option<String> {
    match edit {
        Edit::DuplicateStep { step, .. } => {
            let way = way_of(before, step)?;
            let mut copy = way.clone();
            let number: usize = copy.pop()?.parse().ok()?;
            copy.push((number + 1).to_string());
            let rest = with(after, &copy, &|_| None);
            let (old, new) = (at(before, &way)?, at(after, &copy)?);
            let same_shape = shape(old) == shape(new) && old.get("id") != new.get("id");
            (rest != *before || !same_shape).then(|| format!("the copy is {new}"))
        }
        Edit::RenameStep { step, to } => {
            let (old, new) = (way_of(before, step), way_of(after, to));
            let same = old == new && way_of(after, step).is_none() && shape(before) == shape(after);
            (!same).then(|| format!("after the rename it means {after}"))
        }
        Edit::Connect { from, to, reference: Some(reference) } => {
            let mut way = way_of(after, to)?;
            way.extend(reference.field.split('/').skip(1).map(str::to_owned));
            let written = at(after, &way).and_then(Value::as_str).unwrap_or_default();
            let is_right = written.starts_with("{{ ") && written.contains(&**from);
            let mut expected = way_of(before, to)?;
            expected.extend(reference.field.split('/').skip(1).map(str::to_owned));
            let rest = with(before, &expected, &|_| Some(Value::from(written)));
            (!is_right || rest != *after).then(|| format!("connected by `{written}`"))
        }
        Edit::Disconnect { from, to } => {
            let (was, is) = (way_of(before, to)?, way_of(after, to)?);
            let (was, is) = (at(before, &was)?, at(after, &is)?);
            let named = |step: &Value| {
                step.get("depends_on")
                    .is_some_and(|ids| ids.to_json().contains(&format!("\"{from}\"")))
            };
            (was == is || named(is)).then(|| format!("still connected: {is}"))
        }
        Edit::ChangeKind { step, to } => {
            let step = at(after, &way_of(after, step)?)?;
            let fields = to.as_object()?;
            let kinds = KINDS.iter().filter(|kind| step.get(kind).is_some()).count();
            let holds = fields.iter().all(|(key, value)| match step.get(key) {
                Some(now) if KINDS.contains(&&**key) && now.as_object().is_some() => {
                    value.as_object().is_some_and(|fields| {
                        fields.iter().all(|(key, value)| now.get(key) == Some(value))
                    })
                }
                now => now == Some(value),
            });
            (kinds != 1 || !holds).then(|| format!("the step became {step}"))
        }
        Edit::Extract { steps: ids, name, .. } => {
            let call = at(after, &way_of(after, name)?)?;
            let left = ids.iter().find(|id| way_of(after, id).is_some());
            let is_call = call.get("tool") == Some(&Value::from(format!("composition:{name}")));
            (left.is_some() || !is_call).then(|| format!("the call is {call}"))
        }
        _ => None,
    }
}

/// A value whose texts are all the same, and without keys' names.
fn shape(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            format!("[{}]", items.iter().map(shape).collect::<Vec<_>>().join(","))
        }
        Value::Object(members) => {
            format!("{{{}}}", members.values().map(shape).collect::<Vec<_>>().join(","))
        }
        other => other.kind().to_owned(),
    }
}
