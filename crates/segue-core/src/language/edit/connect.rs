//! Connections of steps: references to values, and `depends_on`.

use std::sync::Arc;

use super::draft::EditDraft;
use super::fields::{add_field, set_at};
use super::insert::Content;
use super::path::{self, Segment, ValuePath, pointer_parts};
use super::steps::is_item;
use super::subject::Subject;
use super::types::Reference;
use super::uses::{Use, is_identifier, uses};
use crate::diagnostic::Code;
use crate::document::{Node, NodeKind};
use crate::language::EditError;
use crate::value::Value;

pub(super) fn connect(
    subject: &mut Subject,
    from: &str,
    to: &str,
    reference: Option<&Reference>,
) -> Result<(), EditError> {
    subject.find(from)?;
    let target = subject.find(to)?.path.clone();
    if from == to {
        let message = format!("step `{to}` cannot wait for itself");
        return Err(EditError::new(Code::Cycle, message));
    }
    match reference {
        Some(reference) => {
            let parts = pointer_parts(&reference.field).ok_or_else(|| {
                let message = format!("`{}` is not a JSON Pointer", reference.field);
                EditError::new(Code::InvalidField, message)
                    .help("write it like `/parameters/title`")
            })?;
            let value = Value::from(placeholder(subject, from, &reference.path));
            set_at(subject, target, &parts, &reference.field, &value)
        }
        None if subject.is_program() => {
            let message = "`depends_on` belongs to graphs; the steps of a chain follow each other";
            Err(EditError::new(Code::InvalidField, message)
                .help("move the step, or connect a value with a field"))
        }
        None => add_dependency(subject, &target, from),
    }
}

/// `{{ from.path }}`, so that it means the value of the step wherever it stands.
fn placeholder(subject: &Subject, from: &str, path: &str) -> String {
    let path = path.trim().trim_start_matches('.');
    let below = match path.strip_prefix("output") {
        Some(rest) if rest.is_empty() || rest.starts_with(['.', '[']) => {
            rest.trim_start_matches('.')
        }
        _ => path,
    };
    let first = below.split(['.', '[']).next().unwrap_or_default();
    let key = subject.step(from).and_then(|step| step.output_key.clone());
    let is_own_key = key.is_some_and(|(key, _)| *key == *first);
    let rest = match below {
        "" => String::new(),
        below if below.starts_with('[') => below.to_owned(),
        below => format!(".{below}"),
    };
    let is_plain = !is_own_key && !is_item(&subject.composition, from);
    if is_plain && (is_identifier(from) || !rest.contains(['\'', '"'])) {
        return format!("{{{{ {from}{rest} }}}}");
    }
    if is_identifier(from) {
        return format!("{{{{ steps.{from}.output{rest} }}}}");
    }
    format!("{{{{ steps['{from}'].output{rest} }}}}")
}

/// Adds an entry to the `depends_on` of the step at a path, if it is not there.
pub(super) fn add_dependency(
    subject: &mut Subject,
    step: &[Segment],
    id: &str,
) -> Result<(), EditError> {
    let field = path::key(step, "depends_on");
    let own = Value::from(id);
    match subject.draft.node(&field).map(Node::to_value) {
        None => add_field(subject, step, "depends_on", &vec![own].into()),
        Some(Value::Array(items)) if items.contains(&own) => Ok(()),
        Some(Value::Array(items)) => {
            subject.draft.insert_item(&field, items.len(), &Content::Value(own))
        }
        Some(Value::Null) => subject.draft.set(&field, &vec![own].into()),
        Some(single) if single == own => Ok(()),
        Some(single) => subject.draft.set(&field, &vec![single, own].into()),
    }
}

/// Removes the entries of a step from the `depends_on` of another; whether there were any.
pub(super) fn remove_dependency(
    draft: &mut EditDraft,
    step: &[Segment],
    id: &str,
) -> Result<bool, EditError> {
    let field = path::key(step, "depends_on");
    let Some(node) = draft.node(&field) else { return Ok(false) };
    let is_id = |node: &Node| node.as_str().is_some_and(|name| **name == *id);
    match &node.kind {
        NodeKind::String(_) if is_id(node) => draft.remove(&field).map(|()| true),
        NodeKind::Array(items) => {
            let found: Vec<usize> = items
                .iter()
                .enumerate()
                .filter(|(_, item)| is_id(item))
                .map(|(at, _)| at)
                .collect();
            if found.is_empty() {
                return Ok(false);
            }
            if found.len() == items.len() {
                return draft.remove(&field).map(|()| true);
            }
            for at in found.into_iter().rev() {
                draft.remove(&path::index(&field, at))?;
            }
            Ok(true)
        }
        _ => Ok(false),
    }
}

pub(super) fn disconnect(subject: &mut Subject, from: &str, to: &str) -> Result<(), EditError> {
    subject.find(from)?;
    let place = subject.find(to)?.path.clone();
    let Some(source) = subject.step(from) else { return Ok(()) };
    let reads: Vec<Use> = uses(&subject.composition)
        .into_iter()
        .filter(|used| used.target() == Some(source.index))
        .collect();
    let own: Vec<&Use> = reads.iter().filter(|used| used.step.as_deref() == Some(to)).collect();
    let mut fields = Vec::new();
    for used in &own {
        let path = subject.draft.layout().path_of(used.site);
        let path =
            path.filter(|path| path.starts_with(&place)).ok_or_else(|| alias_error(used, to))?;
        let field = path::pointer(&path[place.len()..]);
        if !used.is_alone {
            let message = format!(
                "`{field}` of `{to}` reads `{}` inside a larger expression",
                used.written()
            );
            return Err(EditError::new(Code::Expression, message)
                .help(format!("change the expression in `{field}` first")));
        }
        if is_required(&path) {
            let message = format!("`{field}` of `{to}` is needed and reads `{}`", used.written());
            return Err(EditError::new(Code::InvalidField, message)
                .help(format!("set `{field}` to another value first")));
        }
        fields.push(path);
    }
    let had_entry = remove_dependency(&mut subject.draft, &place, from)?;
    if fields.is_empty() && !had_entry {
        return Err(not_connected(subject, &reads, from, to, &place));
    }
    // From the end, so that the paths of earlier items stay right; an entry of `depends_on` is no item
    // of any of them.
    fields.sort();
    fields.dedup();
    for field in fields.into_iter().rev() {
        subject.draft.remove(&field)?;
    }
    Ok(())
}

fn alias_error(used: &Use, to: &str) -> EditError {
    let message = format!("`{}` of `{to}` stands in a value that an alias repeats", used.written());
    EditError::new(Code::Unsupported, message)
        .help("write the value out in place of the alias first")
}

/// Whether a step cannot do without the field at a path.
fn is_required(path: &[Segment]) -> bool {
    let name = |segment: Option<&Segment>| match segment {
        Some(Segment::Key(key)) => Some(key.clone()),
        _ => None,
    };
    let last = name(path.last());
    let outer = name(path.len().checked_sub(2).and_then(|at| path.get(at)));
    let last = last.as_deref();
    match outer.as_deref() {
        Some("loop") => last == Some("over"),
        Some("repeat") => last == Some("until"),
        Some("approve") => last == Some("message"),
        Some("probe") => last == Some("done_when"),
        _ => {
            let in_case = path.len() >= 3
                && matches!(path[path.len() - 2], Segment::Index(_))
                && name(path.get(path.len() - 3)).as_deref() == Some("choose");
            (in_case && last == Some("when")) || matches!(last, Some("wait" | "expand"))
        }
    }
}

fn not_connected(
    subject: &Subject,
    reads: &[Use],
    from: &str,
    to: &str,
    place: &[Segment],
) -> EditError {
    let inside = |id: &Arc<str>| {
        let step = subject.steps.iter().find(|step| step.id == *id);
        step.is_some_and(|step| step.path.starts_with(place) && *step.id != *to)
    };
    let inner = reads.iter().filter_map(|used| used.step.as_ref()).find(|id| inside(id));
    let error = EditError::new(
        Code::NotFound,
        format!("step `{to}` has no reference to `{from}` and no entry for it in `depends_on`"),
    );
    match inner {
        Some(inner) => {
            error.help(format!("the step `{inner}` inside it has one; disconnect that one"))
        }
        None => error,
    }
}

/// The paths of the steps outside of some steps.
pub(super) fn others(subject: &Subject, inside: &[ValuePath]) -> Vec<ValuePath> {
    let is_inside = |path: &ValuePath| inside.iter().any(|outer| path.starts_with(outer));
    subject.steps.iter().map(|step| step.path.clone()).filter(|path| !is_inside(path)).collect()
}
