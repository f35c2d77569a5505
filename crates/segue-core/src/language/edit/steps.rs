//! Whole steps: add, remove, rename, move, duplicate.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::connect::remove_dependency;
use super::draft::TextChange;
use super::insert::{Content, Slot};
use super::path::{self, Segment, ValuePath};
use super::subject::Subject;
use super::types::Place;
use super::uses::{by_path, is_identifier, uses};
use crate::compile::dialect::RESERVED;
use crate::compile::dialect::grammar::STEP_KINDS;
use crate::composition::{Composition, Step, StepKind};
use crate::diagnostic::Code;
use crate::expr::{AstKind, ExprRoot, StepIndex};
use crate::id::is_step_id;
use crate::language::EditError;
use crate::source::Span;
use crate::value::Value;

pub(super) fn add(subject: &mut Subject, step: &Value, place: &Place) -> Result<(), EditError> {
    if step.as_object().is_none() {
        let message = format!("a step is an object, found {}", step.kind());
        return Err(EditError::new(Code::InvalidField, message));
    }
    let mut ids = Vec::new();
    ids_in(step, &mut ids);
    if !subject.is_program() && step.get("id").is_none() {
        return Err(EditError::new(Code::InvalidField, "a step needs an `id`"));
    }
    for (at, id) in ids.iter().enumerate() {
        check_new_id(subject, id)?;
        if ids[..at].contains(id) {
            let message = format!("two steps are called `{id}`");
            return Err(EditError::new(Code::DuplicateId, message));
        }
    }
    let (list, at) = subject.place(place)?;
    subject.draft.insert_item(&list, at, &Content::Value(step.clone()))
}

/// The ids of a step and of the steps inside it.
fn ids_in(step: &Value, ids: &mut Vec<Arc<str>>) {
    if let Some(Value::String(id)) = step.get("id")
        && (step.get("steps").is_none() || STEP_KINDS.iter().any(|kind| step.get(kind).is_some()))
    {
        ids.push(id.clone());
    }
    let lists = [
        step.get("steps"),
        step.get("otherwise"),
        step.get("parallel"),
        step.get("choose"),
        step.get("loop").and_then(|inner| inner.get("steps")),
        step.get("repeat").and_then(|inner| inner.get("steps")),
    ];
    for list in lists.into_iter().flatten() {
        list.as_array()
            .into_iter()
            .flat_map(|items| items.iter())
            .for_each(|item| ids_in(item, ids));
    }
}

/// Refuses an id that no step can have, or that another step has.
pub(super) fn check_new_id(subject: &Subject, id: &str) -> Result<(), EditError> {
    if RESERVED.contains(&id) || (subject.is_program() && id == "end") {
        return Err(EditError::new(Code::InvalidField, format!("`{id}` is a reserved name"))
            .help("choose another name"));
    }
    if !is_step_id(id) {
        return Err(EditError::new(Code::InvalidField, format!("a step cannot be called `{id}`"))
            .help("use letters, digits, `_`, `-` and `$`"));
    }
    if subject.taken().contains(id) {
        return Err(EditError::new(Code::DuplicateId, format!("there is a `{id}` already"))
            .help("choose another name"));
    }
    Ok(())
}

pub(super) fn remove(subject: &mut Subject, id: &str) -> Result<(), EditError> {
    let place = subject.find(id)?.clone();
    let inside: Vec<Arc<str>> = subject
        .steps
        .iter()
        .filter(|step| step.path.starts_with(&place.path))
        .map(|step| step.id.clone())
        .collect();
    let others: Vec<ValuePath> = subject
        .steps
        .iter()
        .filter(|step| !step.path.starts_with(&place.path))
        .map(|step| step.path.clone())
        .collect();
    for other in &others {
        for id in &inside {
            remove_dependency(&mut subject.draft, other, id)?;
        }
    }
    subject.draft.remove(&place.path)
}

pub(super) fn move_to(subject: &mut Subject, id: &str, place: &Place) -> Result<(), EditError> {
    let step = subject.find(id)?.clone();
    let (list, at) = subject.place(place)?;
    if list.starts_with(&step.path) {
        let message = format!("step `{id}` cannot move into itself");
        return Err(EditError::new(Code::InvalidField, message));
    }
    let (own_list, own) = step.in_list();
    if list == own_list && (at == own || at == own + 1) {
        return Ok(());
    }
    subject.draft.move_item(&step.path, &list, at).map(|_| ())
}

pub(super) fn rename(subject: &mut Subject, id: &str, to: &str) -> Result<(), EditError> {
    let place = subject.find(id)?.clone();
    if id == to {
        return Ok(());
    }
    check_new_id(subject, to)?;
    check_not_read(subject, to)?;
    let Some(step) = subject.step(id) else { return Ok(()) };
    let mut changes: Vec<(Span, TextChange)> = Vec::new();
    let container = parallel_around(&subject.composition, &step);
    for used in uses(&subject.composition) {
        let change = match used.target() {
            Some(target) if target == step.index => used.renamed(id, to),
            Some(target) if container == Some(target) => used.renamed_field(id, to),
            _ => None,
        };
        changes.extend(change.map(|change| (used.site, change)));
    }
    let whole = |span: Span| (span, TextChange { range: (0, id.len()), text: to.to_owned() });
    subject.composition.body.walk(&mut |other| {
        changes.extend(
            other.depends_on.iter().filter(|(name, _)| **name == *id).map(|(_, at)| whole(*at)),
        );
        let jumps = [&other.on_success.next, &other.on_failure.next];
        changes.extend(
            jumps.into_iter().flatten().filter(|next| *next.name == *id).map(|n| whole(n.span)),
        );
    });
    let named = ["id", "name"].into_iter().find(|field| {
        let node = subject.draft.node(&path::key(&place.path, field));
        node.and_then(crate::document::Node::as_str).is_some_and(|name| **name == *id)
    });
    let node = named.and_then(|field| subject.draft.node(&path::key(&place.path, field)));
    changes.extend(node.map(|node| whole(node.span)));
    let changes = by_path(subject, changes).ok_or_else(|| {
        let message = format!("a reference to `{id}` cannot be found in the text");
        EditError::new(Code::Unsupported, message)
            .help("write the value out where it stands as an alias")
    })?;
    subject.draft.change_texts(&changes)?;
    if named.is_none() {
        return subject.draft.add_member(&place.path, Slot::First, "id", &Value::from(to));
    }
    Ok(())
}

/// The `parallel` step of which a step is a branch: its value has a field with the id of the branch.
fn parallel_around(composition: &Composition, step: &Step) -> Option<StepIndex> {
    let mut found = None;
    composition.body.walk(&mut |outer| {
        if let StepKind::Parallel { branches, .. } = &outer.kind {
            let is_branch = |branch: &crate::composition::Branch| {
                branch.id == step.id && branch.body.steps.iter().any(|own| own.index == step.index)
            };
            if branches.iter().any(is_branch) {
                found = Some(outer.index);
            }
        }
    });
    found
}

/// Refuses a name that expressions read already, with another meaning.
fn check_not_read(subject: &Subject, name: &str) -> Result<(), EditError> {
    let reads = |used: &super::uses::Use| {
        let other = !matches!(used.root, ExprRoot::Unresolved | ExprRoot::Step(_));
        *used.name == *name && other
    };
    if !uses(&subject.composition).iter().any(reads) {
        return Ok(());
    }
    Err(EditError::new(
        Code::DuplicateId,
        format!("expressions read `{name}` with another meaning"),
    )
    .help("choose another name"))
}

/// A name like another one that nothing has yet.
pub(super) fn free_name(base: &str, is_taken: &dyn Fn(&str) -> bool) -> Arc<str> {
    let stem = base.trim_end_matches(|c: char| c.is_ascii_digit()).strip_suffix('_');
    let stem = stem.filter(|stem| !stem.is_empty()).unwrap_or(base);
    let mut names = (2_u32..).map(|number| format!("{stem}_{number}"));
    names.find(|name| !is_taken(name)).unwrap_or_default().into()
}

pub(super) fn duplicate(
    subject: &mut Subject,
    id: &str,
    copy: Option<&Arc<str>>,
) -> Result<(), EditError> {
    let place = subject.find(id)?.clone();
    let Some(step) = subject.step(id) else { return Ok(()) };
    if let Some(copy) = copy {
        check_new_id(subject, copy)?;
    }
    let (list, at) = place.in_list();
    let Some(moved) =
        subject.draft.node(list).and_then(|node| subject.draft.layout().copied(node, at))
    else {
        return Ok(());
    };
    let names = new_names(subject, &step, copy);
    let renames = changes_inside(&subject.composition, &step, &names);
    let changes = by_path(subject, renames).ok_or_else(|| {
        let message = format!("step `{id}` holds an alias, so a copy of it would share the value");
        EditError::new(Code::Unsupported, message)
            .help("write the value out in place of the alias first")
    })?;
    let (list, at) = (list.to_vec(), at);
    let has_id = subject.draft.node(&path::key(&place.path, "id")).is_some();
    subject.draft.insert_item(&list, at + 1, &Content::Moved(moved))?;
    let copy_path = path::index(&list, at + 1);
    let shifted = |path: ValuePath| -> ValuePath {
        copy_path.iter().cloned().chain(path[copy_path.len()..].iter().cloned()).collect()
    };
    let texts: Vec<(ValuePath, Vec<TextChange>)> = changes
        .iter()
        .filter(|(path, _)| path.starts_with(&place.path))
        .map(|(path, changes)| (shifted(path.clone()), changes.clone()))
        .collect();
    subject.draft.change_texts(&texts)?;
    rename_keys(subject, &copy_path, &names.keys)?;
    if !has_id {
        let id = names.ids.get(&step.index).map_or("", |(_, new)| new);
        let field = if subject.draft.node(&path::key(&copy_path, "name")).is_some() {
            "name"
        } else {
            "id"
        };
        if field == "id" {
            subject.draft.add_member(&copy_path, Slot::First, "id", &Value::from(id))?;
        }
    }
    Ok(())
}

/// The new names inside a copy.
struct NewNames {
    /// By step: the old and the new id.
    ids: BTreeMap<StepIndex, (Arc<str>, Arc<str>)>,
    /// Output keys and given names: old → new.
    keys: BTreeMap<Arc<str>, Arc<str>>,
}

fn new_names(subject: &Subject, step: &Step, copy: Option<&Arc<str>>) -> NewNames {
    let mut taken = subject.taken();
    let mut names = NewNames { ids: BTreeMap::new(), keys: BTreeMap::new() };
    let first = copy.cloned().unwrap_or_else(|| free_name(&step.id, &|name| taken.contains(name)));
    taken.insert(first.clone());
    names.ids.insert(step.index, (step.id.clone(), first));
    let is_program = subject.is_program();
    let body = crate::composition::Body {
        steps: vec![Arc::new(step.clone())],
        flow: subject.composition.body.flow,
    };
    body.walk(&mut |inner| {
        if inner.index != step.index {
            let name = free_name(&inner.id, &|name| taken.contains(name));
            taken.insert(name.clone());
            names.ids.insert(inner.index, (inner.id.clone(), name));
        }
        let keys = inner.output_key.iter().map(|(key, _)| key.clone());
        let given = crate::compile::given_names(inner).into_iter().filter(|_| !is_program);
        for key in keys.chain(given) {
            let name = free_name(&key, &|name| taken.contains(name));
            taken.insert(name.clone());
            names.keys.insert(key, name);
        }
    });
    names
}

/// The changes of strings inside a step that give its copy the new names.
fn changes_inside(
    composition: &Composition,
    step: &Step,
    names: &NewNames,
) -> Vec<(Span, TextChange)> {
    let mut changes = Vec::new();
    let body = crate::composition::Body {
        steps: vec![Arc::new(step.clone())],
        flow: composition.body.flow,
    };
    let whole = |span: Span, old: &str, new: &str| {
        (span, TextChange { range: (0, old.len()), text: new.to_owned() })
    };
    let by_old: BTreeMap<&str, &str> =
        names.ids.values().map(|(old, new)| (&**old, &**new)).collect();
    body.walk(&mut |inner| {
        if let Some((old, new)) = names.ids.get(&inner.index)
            && inner.id_span != inner.span
        {
            changes.push(whole(inner.id_span, old, new));
        }
        if let Some((key, span)) = &inner.output_key
            && let Some(new) = names.keys.get(key)
        {
            changes.push(whole(*span, key, new));
        }
        for (name, span) in &inner.depends_on {
            changes.extend(by_old.get(&**name).map(|new| whole(*span, name, new)));
        }
        for next in [&inner.on_success.next, &inner.on_failure.next].into_iter().flatten() {
            changes.extend(by_old.get(&*next.name).map(|new| whole(next.span, &next.name, new)));
        }
    });
    let inside = |id: &Option<Arc<str>>| id.as_ref().is_some_and(|id| by_old.contains_key(&**id));
    for used in uses(composition).into_iter().filter(|used| inside(&used.step)) {
        let renamed = used.target().and_then(|target| names.ids.get(&target));
        let key = names.keys.get(&used.name).filter(|_| renamed.is_some());
        match (key, renamed) {
            (Some(new), _) => {
                let new = if is_identifier(new) { new.to_string() } else { used.step_value(new) };
                let site = used.site;
                changes.push((site, used.change(new)));
            }
            (None, Some((old, new))) => {
                changes.extend(used.renamed(old, new).map(|change| (used.site, change)));
            }
            (None, None) => {}
        }
    }
    changes
}

/// Gives the names that a copied step sets their new names: the keys of `set` and `transform`, and the
/// values of `map_outputs`.
fn rename_keys(
    subject: &mut Subject,
    copy: &[Segment],
    keys: &BTreeMap<Arc<str>, Arc<str>>,
) -> Result<(), EditError> {
    if keys.is_empty() {
        return Ok(());
    }
    let mut found = Vec::new();
    if let Some(node) = subject.draft.node(copy) {
        naming_fields(node, copy, keys, &mut found);
    }
    for (object, old, new) in found {
        subject.draft.rename_key(&object, &old, &new)?;
    }
    Ok(())
}

type KeyRename = (ValuePath, Arc<str>, Arc<str>);

fn naming_fields(
    node: &crate::document::Node,
    at: &[Segment],
    keys: &BTreeMap<Arc<str>, Arc<str>>,
    found: &mut Vec<KeyRename>,
) {
    for member in node.members() {
        let inner = path::key(at, &member.key);
        match &*member.key {
            "parameters" | "inputs" => {}
            "set" | "transform" => {
                for name in member.value.members() {
                    if let Some(new) = keys.get(&name.key) {
                        found.push((inner.clone(), name.key.clone(), new.clone()));
                    }
                }
            }
            _ => naming_fields(&member.value, &inner, keys, found),
        }
    }
    for (position, item) in node.items().iter().enumerate() {
        naming_fields(item, &path::index(at, position), keys, found);
    }
}

/// Whether an expression of a step reads a loop variable or parameter of that name.
pub(super) fn is_item(composition: &Composition, name: &str) -> bool {
    let mut found = false;
    composition.body.walk(&mut |step| {
        found |= matches!(&step.kind, StepKind::Loop(each) if *each.item == *name);
        crate::compile::exprs_of(step, &mut |expr| {
            expr.ast().walk(&mut |ast| {
                found |= matches!(&ast.kind, AstKind::Lambda(param, _) if **param == *name);
            });
        });
    });
    found
}
