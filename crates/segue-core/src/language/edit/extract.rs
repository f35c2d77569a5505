//! Steps that become a composition of their own, and the step that calls it.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::connect::{add_dependency, others, remove_dependency};
use super::draft::{EditDraft, TextChange};
use super::insert::{Content, Moved};
use super::path::{self, Segment, ValuePath};
use super::steps::check_new_id;
use super::subject::{StepPlace, Subject};
use super::types::NewText;
use super::uses::{Use, by_path, is_identifier, uses};
use crate::catalog::{Catalog, ToolLookup};
use crate::compile::Typing;
use crate::composition::Step;
use crate::diagnostic::Code;
use crate::expr::{ExprRoot, StepIndex};
use crate::id::is_composition_name;
use crate::language::EditError;
use crate::source::Span;
use crate::value::{Map, Value};

/// A value that the extracted steps read from outside, or that others read from them.
struct Passed {
    /// Its name as a parameter or as a field of the output.
    name: Arc<str>,
    /// The expression that gives it.
    source: String,
    schema: Value,
}

/// What goes into the new composition, what comes out, and which names change on the way.
struct Boundary {
    inputs: Vec<Passed>,
    outputs: Vec<Passed>,
    inside: Vec<(Span, TextChange)>,
    outside: Vec<(Span, TextChange)>,
}

pub(super) fn extract(
    subject: &mut Subject,
    ids: &[Arc<str>],
    name: &Arc<str>,
    id: Option<&Arc<str>>,
    catalog: &Catalog,
) -> Result<NewText, EditError> {
    if subject.is_program() {
        let message = "the steps of a chain share its state, so they cannot be extracted";
        return Err(EditError::new(Code::Unsupported, message)
            .help("only steps of a graph become a composition of their own"));
    }
    if !is_composition_name(name) {
        let message = format!("`{name}` cannot name a composition");
        return Err(EditError::new(Code::InvalidField, message).help(
            "use lower-case letters, digits, `_` and `-`, at most 64, not beginning with a sign",
        ));
    }
    if let ToolLookup::Found(_) = catalog.find(&format!("composition:{name}")) {
        let message = format!("there is a composition `{name}` already");
        return Err(EditError::new(Code::DuplicateId, message).help("choose another name"));
    }
    let call = id.cloned().unwrap_or_else(|| name.clone());
    check_new_id(subject, &call)?;
    let steps = subject.siblings(ids)?;
    if subject.composition.output.is_none() && steps[0].in_list().0 == subject.own_list() {
        let message = "without `output` the composition returns the values of all its steps, which would change";
        return Err(EditError::new(Code::InvalidField, message)
            .help(format!("first say what it returns: `{}`", whole_output(subject))));
    }
    let inside: Vec<ValuePath> = steps.iter().map(|step| step.path.clone()).collect();
    let boundary = boundary(subject, &inside, &call)?;
    let text = new_text(subject, name, &steps, &boundary)?;
    let waits = call_in_place(subject, &steps, &inside, &boundary, &call)?;
    insert_call(subject, &steps, &boundary, (name, &call), waits)?;
    Ok(NewText { name: name.clone(), text })
}

/// The most steps that a proposed `output` names.
const PROPOSED_MAX: usize = 8;

/// An `output` that returns what a composition without one returns; of many steps, only its beginning.
fn whole_output(subject: &Subject) -> String {
    let steps = &subject.composition.body.steps;
    let value = |step: &Arc<Step>| {
        let name = step.output_key.as_ref().map_or(&step.id, |(key, _)| key);
        let value = if is_identifier(name) {
            name.to_string()
        } else {
            format!("steps[\"{}\"].output", step.id)
        };
        format!("{name}: '{{{{ {value} }}}}'")
    };
    let shown: Vec<String> = steps.iter().take(PROPOSED_MAX).map(value).collect();
    let more = if steps.len() > PROPOSED_MAX { ", …" } else { "" };
    format!("output: {{ {}{more} }}", shown.join(", "))
}

fn boundary(subject: &Subject, inside: &[ValuePath], call: &str) -> Result<Boundary, EditError> {
    let composition = &subject.composition;
    let is_inside = |id: &str| {
        let place = subject.steps.iter().find(|step| &*step.id == id);
        place.is_some_and(|place| inside.iter().any(|outer| place.path.starts_with(outer)))
    };
    let mut indices = BTreeSet::new();
    composition.body.walk(&mut |step| {
        if is_inside(&step.id) {
            indices.insert(step.index);
        }
    });
    let typing = Typing::new(composition);
    let mut boundary = Boundary {
        inputs: Vec::new(),
        outputs: Vec::new(),
        inside: Vec::new(),
        outside: Vec::new(),
    };
    for used in uses(composition) {
        let reader_is_inside = used.step.as_deref().is_some_and(is_inside);
        let target_is_inside = target(&used.root).is_some_and(|step| indices.contains(&step));
        match (reader_is_inside, target_is_inside) {
            (true, false) => boundary.pass_in(subject, &used, &typing)?,
            (false, true) => boundary.pass_out(&used, call)?,
            _ => {}
        }
    }
    Ok(boundary)
}

/// The step that a root belongs to.
fn target(root: &ExprRoot) -> Option<StepIndex> {
    match root {
        ExprRoot::Step(step)
        | ExprRoot::StepStatus(step)
        | ExprRoot::StepError(step)
        | ExprRoot::Given(step, _)
        | ExprRoot::Item(step)
        | ExprRoot::Loop(step) => Some(*step),
        _ => None,
    }
}

impl Boundary {
    /// Passes a value that an extracted step reads.
    fn pass_in(
        &mut self,
        subject: &Subject,
        used: &Use,
        typing: &Typing<'_>,
    ) -> Result<(), EditError> {
        let any = Value::empty_object;
        let field = match (&used.root, &used.next) {
            (ExprRoot::InputField(name), _) | (ExprRoot::Input, Some(name)) => Some(name),
            _ => None,
        };
        if let Some((path, schema)) = field.and_then(|name| certain_field(subject, name)) {
            let name = field.cloned().unwrap_or_default();
            let passed = passed_name(&mut self.inputs, &name, path, schema);
            if passed != name {
                let range = match used.root {
                    ExprRoot::Input => (used.range.0, used.range.1 + 1 + name.len()),
                    _ => used.range,
                };
                self.inside
                    .push((used.site, TextChange { range, text: format!("input.{passed}") }));
            }
            return Ok(());
        }
        let (base, source, schema) = match &used.root {
            ExprRoot::Input | ExprRoot::InputField(_) => {
                ("input".to_owned(), "input".to_owned(), any())
            }
            ExprRoot::Item(_) | ExprRoot::Loop(_) => {
                (base_name(used.written()), used.written().to_owned(), any())
            }
            ExprRoot::Step(step) => {
                let schema = if used.is_guarded { any() } else { typing.value(*step).to_schema() };
                (base_name(&used.name), guarded(used)?, schema)
            }
            ExprRoot::Given(..) | ExprRoot::StepStatus(_) | ExprRoot::StepError(_) => {
                (base_name(&used.name), guarded(used)?, any())
            }
            _ => return Ok(()),
        };
        let name = passed_name(&mut self.inputs, &base, source, schema);
        let text = match &used.root {
            ExprRoot::InputField(field) => format!("input.{name}.{field}"),
            _ => format!("input.{name}"),
        };
        self.inside.push((used.site, used.change(text)));
        Ok(())
    }

    /// Passes a value of an extracted step to its reader.
    fn pass_out(&mut self, used: &Use, call: &str) -> Result<(), EditError> {
        if !matches!(used.root, ExprRoot::Step(_) | ExprRoot::Given(..)) {
            let message = format!("`{}` is read outside of the steps", used.written());
            return Err(EditError::new(Code::Unsupported, message)
                .help("read the output of the step instead, or extract the reader too"));
        }
        let base = base_name(&used.name);
        let name = passed_name(&mut self.outputs, &base, guarded(used)?, Value::Null);
        let value = used.step_value(call);
        self.outside.push((used.site, used.change(format!("{value}.{name}"))));
        Ok(())
    }
}

/// The expression of a value. A reader that has a default for a field gets an empty object where there
/// is no value, so that the field is absent there too.
fn guarded(used: &Use) -> Result<String, EditError> {
    match (used.is_guarded, &used.next) {
        (false, _) => Ok(used.written().to_owned()),
        (true, Some(_)) => Ok(format!("{} | default({{}})", used.written())),
        (true, None) => {
            let message = format!(
                "`{}` may have no value, and an absent value cannot be passed",
                used.written()
            );
            Err(EditError::new(Code::Unsupported, message)
                .help("give it a value in a step of its own, with `set` and `default(…)`"))
        }
    }
}

/// A field of the input that always has a value, as an expression of the caller, and its schema.
fn certain_field(subject: &Subject, name: &str) -> Option<(String, Value)> {
    let schema = subject.composition.input.as_ref()?.json();
    let property = schema.get("properties")?.get(name)?;
    let required = schema.get("required").and_then(Value::as_array);
    let is_required =
        required.is_some_and(|names| names.iter().any(|known| known.as_str() == Some(name)));
    let is_certain = is_required || property.get("default").is_some();
    (is_certain && is_identifier(name)).then(|| (format!("input.{name}"), property.clone()))
}

/// A name for a value: `steps.search.output` → `search`.
fn base_name(name: &str) -> String {
    let name = name.strip_prefix("steps.").unwrap_or(name);
    let name = name.strip_suffix(".output").unwrap_or(name);
    let name: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' }).collect();
    if is_identifier(&name) { name } else { format!("value_{name}") }
}

/// The name under which an expression is passed; the same expression keeps its name.
fn passed_name(passed: &mut Vec<Passed>, base: &str, source: String, schema: Value) -> Arc<str> {
    if let Some(known) = passed.iter().find(|known| known.source == source) {
        return known.name.clone();
    }
    let is_taken = |name: &str| passed.iter().any(|known| &*known.name == name);
    let name = if is_taken(base) { super::steps::free_name(base, &is_taken) } else { base.into() };
    passed.push(Passed { name: name.clone(), source, schema });
    name
}

/// The text of the new composition.
fn new_text(
    subject: &Subject,
    name: &str,
    steps: &[StepPlace],
    boundary: &Boundary,
) -> Result<String, EditError> {
    let skeleton = Value::from(skeleton(subject, name, boundary));
    let mut draft = EditDraft::fresh(&subject.draft, name, &skeleton)?;
    let list = vec![Segment::Key("steps".into())];
    let changes = found(by_path(subject, boundary.inside.iter().cloned()))?;
    let layout = subject.draft.layout();
    for (position, step) in steps.iter().enumerate() {
        let (own_list, at) = step.in_list();
        let moved: Option<Moved> =
            subject.draft.node(own_list).and_then(|node| layout.moved(node, at));
        let Some(moved) = moved else { continue };
        draft.insert_item(&list, position, &Content::Moved(moved)).map_err(shared_value)?;
        let to = path::index(&list, position);
        let texts: Vec<(ValuePath, Vec<TextChange>)> = changes
            .iter()
            .filter(|(path, _)| path.starts_with(&step.path))
            .map(|(path, changes)| {
                let rest = path[step.path.len()..].iter().cloned();
                (to.iter().cloned().chain(rest).collect(), changes.clone())
            })
            .collect();
        draft.change_texts(&texts).map_err(shared_value)?;
        for inner in subject.steps.iter().filter(|inner| inner.path.starts_with(&step.path)) {
            let rest = inner.path[step.path.len()..].iter().cloned();
            let at: ValuePath = to.iter().cloned().chain(rest).collect();
            for outer in outer_dependencies(subject, inner, steps) {
                remove_dependency(&mut draft, &at, &outer)?;
            }
        }
    }
    Ok(draft.into_text())
}

fn found<T>(found: Option<T>) -> Result<T, EditError> {
    found.ok_or_else(|| shared_value(EditError::new(Code::Unsupported, "")))
}

fn shared_value(error: EditError) -> EditError {
    if error.code == Code::Limit {
        return error;
    }
    EditError::new(Code::Unsupported, "the steps hold a value that an alias repeats elsewhere")
        .help("write the value out in place of the alias first")
}

/// The new composition without its steps.
fn skeleton(subject: &Subject, name: &str, boundary: &Boundary) -> Map {
    let mut document = Map::new();
    document.insert("name".into(), Value::from(name));
    if !boundary.inputs.is_empty() {
        let names = boundary.inputs.iter().map(|passed| Value::String(passed.name.clone()));
        let required: Vec<Value> = names.collect();
        let properties = boundary.inputs.iter().map(|p| (p.name.clone(), p.schema.clone()));
        let schema = Value::object([
            ("type", Value::from("object")),
            ("required", required.into()),
            ("properties", Value::object(properties)),
        ]);
        document.insert("input".into(), schema);
    }
    for field in ["servers", "unresolved", "max_concurrency"] {
        let node = subject.draft.node(&path::key(&subject.base, field));
        if let Some(node) = node {
            document.insert(field.into(), node.to_value());
        }
    }
    document.insert("steps".into(), Vec::new().into());
    if !boundary.outputs.is_empty() {
        let value = |passed: &Passed| {
            (passed.name.clone(), Value::from(format!("{{{{ {} }}}}", passed.source)))
        };
        document.insert("output".into(), Value::object(boundary.outputs.iter().map(value)));
    }
    if let Some(node) = subject.draft.node(&path::key(&subject.base, "error_handling")) {
        document.insert("error_handling".into(), node.to_value());
    }
    document
}

/// The steps outside that a step inside names in `depends_on`.
fn outer_dependencies(subject: &Subject, step: &StepPlace, inside: &[StepPlace]) -> Vec<Arc<str>> {
    let Some(step) = subject.step(&step.id) else { return Vec::new() };
    let is_inside = |id: &str| {
        let place = subject.steps.iter().find(|step| &*step.id == id);
        place.is_some_and(|place| inside.iter().any(|outer| place.path.starts_with(&outer.path)))
    };
    step.depends_on.iter().map(|(id, _)| id.clone()).filter(|id| !is_inside(id)).collect()
}

/// The steps that the step at a path names in `depends_on`.
fn depends_on(subject: &Subject, step: &[Segment]) -> Vec<Arc<str>> {
    let Some(node) = subject.draft.node(&path::key(step, "depends_on")) else { return Vec::new() };
    node.items().iter().chain([node]).filter_map(|item| item.as_str().cloned()).collect()
}

/// Gives the readers outside their new names; answers what the call must wait for.
fn call_in_place(
    subject: &mut Subject,
    steps: &[StepPlace],
    inside: &[ValuePath],
    boundary: &Boundary,
    call: &str,
) -> Result<Vec<Arc<str>>, EditError> {
    let changes = found(by_path(subject, boundary.outside.iter().cloned()))?;
    subject.draft.change_texts(&changes)?;
    let within: Vec<StepPlace> = subject
        .steps
        .iter()
        .filter(|step| inside.iter().any(|outer| step.path.starts_with(outer)))
        .cloned()
        .collect();
    for other in others(subject, inside) {
        let waits = depends_on(subject, &other);
        if !within.iter().any(|step| waits.contains(&step.id)) {
            continue;
        }
        add_dependency(subject, &other, call)?;
        for step in &within {
            remove_dependency(&mut subject.draft, &other, &step.id)?;
        }
    }
    let mut waits: Vec<Arc<str>> = Vec::new();
    for step in &within {
        for id in outer_dependencies(subject, step, steps) {
            if !waits.contains(&id) {
                waits.push(id);
            }
        }
    }
    Ok(waits)
}

/// Puts the call in the place of the steps.
fn insert_call(
    subject: &mut Subject,
    steps: &[StepPlace],
    boundary: &Boundary,
    (name, call): (&str, &str),
    waits: Vec<Arc<str>>,
) -> Result<(), EditError> {
    let mut step = Map::new();
    step.insert("id".into(), Value::from(call));
    step.insert("tool".into(), Value::from(format!("composition:{name}")));
    if !boundary.inputs.is_empty() {
        let value = |passed: &Passed| {
            (passed.name.clone(), Value::from(format!("{{{{ {} }}}}", passed.source)))
        };
        step.insert("parameters".into(), Value::object(boundary.inputs.iter().map(value)));
    }
    if !waits.is_empty() {
        let ids: Vec<Value> = waits.into_iter().map(Value::String).collect();
        step.insert("depends_on".into(), ids.into());
    }
    let (list, first) = (steps[0].in_list().0.to_vec(), steps[0].in_list().1);
    subject.draft.insert_item(&list, first, &Content::Value(step.into()))?;
    for step in steps.iter().rev() {
        subject.draft.remove(&path::index(&list, step.in_list().1 + 1))?;
    }
    Ok(())
}
