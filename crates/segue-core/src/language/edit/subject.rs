//! The composition that is edited: where its steps and lists of steps are in the document.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::draft::EditDraft;
use super::insert::Slot;
use super::path::{self, Segment, ValuePath, node_at};
use super::types::Place;
use crate::catalog::Catalog;
use crate::compile::dialect::grammar::{CHAIN, COMPOSITION, LOOP, REPEAT, STEP, STEP_KINDS};
use crate::compile::dialect::unwrap_template;
use crate::compile::{self, contained};
use crate::composition::{Composition, Dialect, Flow, Step};
use crate::diagnostic::{Code, nearest_name};
use crate::document::Node;
use crate::language::EditError;
use crate::limits::Limits;
use crate::source::Source;

/// A composition with its text.
pub(super) struct Subject {
    pub(super) draft: EditDraft,
    /// The composition of the original text, with whatever errors it has.
    pub(super) composition: Arc<Composition>,
    /// Where the composition is in the document; templates wrap it.
    pub(super) base: ValuePath,
    /// The steps of the original text, in its order.
    pub(super) steps: Vec<StepPlace>,
}

/// A step in the document.
#[derive(Clone, Debug)]
pub(super) struct StepPlace {
    pub(super) id: Arc<str>,
    pub(super) path: ValuePath,
}

impl StepPlace {
    /// The list that contains the step, and its position there.
    pub(super) fn in_list(&self) -> (&[Segment], usize) {
        match self.path.split_last() {
            Some((Segment::Index(at), list)) => (list, *at),
            _ => (&[], 0),
        }
    }
}

impl Subject {
    pub(super) fn new(
        source: &Source,
        catalog: &Catalog,
        limits: &Limits,
    ) -> Result<Subject, EditError> {
        let fault = |finding: crate::diagnostic::Diagnostic| {
            EditError::new(finding.code, finding.message)
                .help("correct the text before you change its steps")
        };
        let examined =
            contained(|| compile::examine_text(source, catalog, limits)).map_err(fault)?;
        let Some(root) = examined.document else {
            let first = examined.diagnostics.into_iter().next();
            return Err(
                first.map_or_else(|| EditError::new(Code::Parse, "the text cannot be read"), fault)
            );
        };
        let Some(composition) = examined.composition else {
            let first = examined.diagnostics.into_iter().next();
            return Err(
                first.map_or_else(|| EditError::new(Code::Parse, "there is no composition"), fault)
            );
        };
        if !matches!(composition.dialect, Dialect::Composition | Dialect::Chain) {
            let message = format!(
                "compositions of the dialect `{}` are edited as text only",
                composition.dialect.as_str()
            );
            return Err(EditError::new(Code::Unsupported, message)
                .help("`segue convert` makes a native composition of it"));
        }
        let is_template = !std::ptr::eq(unwrap_template(&root), &raw const root);
        let base = if is_template { path::key(&[], "composition") } else { ValuePath::new() };
        let mut places = Vec::new();
        collect(&root, &list_path(&root, &base), false, &mut places);
        let steps = named(&root, &composition, places);
        let draft = EditDraft::new(source, root, limits);
        Ok(Subject { draft, composition: Arc::new(composition), base, steps })
    }

    pub(super) fn is_program(&self) -> bool {
        self.composition.body.flow == Flow::Program
    }

    /// The list of the composition's own steps.
    pub(super) fn own_list(&self) -> ValuePath {
        list_path(self.draft.root(), &self.base)
    }

    /// The place of a step of the original text.
    pub(super) fn find(&self, id: &str) -> Result<&StepPlace, EditError> {
        self.steps.iter().find(|step| &*step.id == id).ok_or_else(|| {
            let ids = self.steps.iter().map(|step| &*step.id);
            let error = EditError::new(Code::UnknownStep, format!("there is no step `{id}`"));
            match nearest_name(id, ids) {
                Some(near) => error.help(format!("did you mean `{near}`?")),
                None => error,
            }
        })
    }

    /// The step of the composition with this id.
    pub(super) fn step(&self, id: &str) -> Option<Arc<Step>> {
        find_step(&self.composition.body.steps, id)
    }

    /// Steps of one list, in the order of the text.
    pub(super) fn siblings(&self, ids: &[Arc<str>]) -> Result<Vec<StepPlace>, EditError> {
        let mut found = Vec::new();
        for id in ids {
            found.push(self.find(id)?.clone());
        }
        found.sort_by(|a, b| a.path.cmp(&b.path));
        found.dedup_by(|a, b| a.path == b.path);
        let Some(first) = found.first() else {
            return Err(EditError::new(Code::NoSteps, "no step is named"));
        };
        let list = first.in_list().0.to_vec();
        if let Some(other) = found.iter().find(|step| step.in_list().0 != list) {
            let message =
                format!("`{}` and `{}` are in different lists of steps", first.id, other.id);
            return Err(EditError::new(Code::InvalidField, message)
                .help("name steps that stand in one list"));
        }
        let last = found[found.len() - 1].in_list().1;
        if self.is_program() && last - first.in_list().1 + 1 != found.len() {
            let message = "the steps of a chain run in order, so those between must be named too";
            return Err(EditError::new(Code::InvalidField, message));
        }
        Ok(found)
    }

    /// The list of steps and the position that a place means.
    pub(super) fn place(&self, place: &Place) -> Result<(ValuePath, usize), EditError> {
        match place {
            Place::Before { step } => {
                let (list, at) = self.find(step)?.in_list();
                Ok((list.to_vec(), at))
            }
            Place::After { step } => {
                let (list, at) = self.find(step)?.in_list();
                Ok((list.to_vec(), at + 1))
            }
            Place::FirstIn { step, body } => Ok((self.body(step.as_deref(), body.as_deref())?, 0)),
            Place::LastIn { step, body } => {
                let list = self.body(step.as_deref(), body.as_deref())?;
                let count = self.draft.node(&list).map_or(0, |node| node.items().len());
                Ok((list, count))
            }
        }
    }

    /// A list of steps inside a step, or that of the composition.
    fn body(&self, step: Option<&str>, body: Option<&str>) -> Result<ValuePath, EditError> {
        let list = match step {
            None => Some(self.own_list()),
            Some(id) => {
                let place = self.find(id)?;
                self.draft.node(&place.path).and_then(|node| {
                    let inner = body_of(node, body)?;
                    Some(place.path.iter().cloned().chain(inner).collect())
                })
            }
        };
        let list = list.filter(|list: &ValuePath| self.draft.node(list).is_some());
        list.ok_or_else(|| {
            let owner = step.map_or("the composition".to_owned(), |id| format!("step `{id}`"));
            let message = match body {
                Some(body) => format!("{owner} has no list of steps called `{body}`"),
                None => format!("{owner} has no list of steps"),
            };
            EditError::new(Code::InvalidField, message)
                .help("steps stand inside `loop`, `repeat`, `choose` and `parallel`")
        })
    }

    /// Every name that steps have or give, of which a new one must differ.
    pub(super) fn taken(&self) -> BTreeSet<Arc<str>> {
        let mut taken: BTreeSet<Arc<str>> = self.steps.iter().map(|step| step.id.clone()).collect();
        self.composition.body.walk(&mut |step| {
            taken.insert(step.id.clone());
            taken.extend(step.output_key.iter().map(|(key, _)| key.clone()));
            taken.extend(compile::given_names(step));
            if let crate::composition::StepKind::Loop(each) = &step.kind {
                taken.insert(each.item.clone());
            }
        });
        taken
    }

    /// Where a new member of the object at a path belongs: after those that people write before it.
    pub(super) fn slot(&self, object: &[Segment], name: &str) -> Slot {
        let Some(node) = self.draft.node(object) else { return Slot::Last };
        let record = if object == self.base {
            if self.composition.dialect == Dialect::Chain { &CHAIN } else { &COMPOSITION }
        } else if is_step(object) {
            &STEP
        } else {
            match object.last() {
                Some(Segment::Key(key)) if &**key == "loop" => &LOOP,
                Some(Segment::Key(key)) if &**key == "repeat" => &REPEAT,
                _ => return Slot::Last,
            }
        };
        let rank = |name: &str| record.fields.iter().position(|field| field.name == name);
        let Some(own) = rank(name) else { return Slot::Last };
        let members = node.members().iter().enumerate();
        let before = members.filter(|(_, member)| rank(&member.key).is_some_and(|rank| rank < own));
        match before.map(|(at, _)| at).next_back() {
            Some(at) => Slot::After(at),
            None if name == "id" => Slot::First,
            None => Slot::Last,
        }
    }
}

/// Whether a path leads to a step: an item of a list of steps.
fn is_step(path: &[Segment]) -> bool {
    let list = path.split_last().filter(|(last, _)| matches!(last, Segment::Index(_)));
    let key = list.and_then(|(_, list)| list.last());
    let lists = ["steps", "otherwise", "parallel"];
    matches!(key, Some(Segment::Key(key)) if lists.contains(&&**key))
}

fn find_step(steps: &[Arc<Step>], id: &str) -> Option<Arc<Step>> {
    steps.iter().find_map(|step| {
        if &*step.id == id {
            return Some(step.clone());
        }
        step.kind.bodies().into_iter().find_map(|body| find_step(&body.steps, id))
    })
}

/// The list of steps of a composition or a chain.
fn list_path(root: &Node, base: &[Segment]) -> ValuePath {
    let composition = node_at(root, base).unwrap_or(root);
    let mut list = base.to_vec();
    if composition.get("implementation").is_some() {
        list.push(Segment::Key("implementation".into()));
        list.push(Segment::Key("composite".into()));
    }
    list.push(Segment::Key("steps".into()));
    list
}

/// The list of steps inside a step that a name means.
fn body_of(step: &Node, body: Option<&str>) -> Option<ValuePath> {
    let key = |name: &str| Segment::Key(name.into());
    for kind in ["loop", "repeat"] {
        if step.get(kind).is_some() {
            return body.is_none().then(|| vec![key(kind), key("steps")]);
        }
    }
    if let Some(branches) = step.get("parallel") {
        let Some(name) = body else { return Some(vec![key("parallel")]) };
        let called =
            |branch: &Node| branch.get("id").and_then(Node::as_str).is_some_and(|id| **id == *name);
        let at = branches.items().iter().position(called).or_else(|| name.parse().ok())?;
        branches.items().get(at)?.get("steps")?;
        return Some(vec![key("parallel"), Segment::Index(at), key("steps")]);
    }
    let cases = step.get("choose")?.items();
    let (at, list) = match body {
        Some("otherwise") => {
            (cases.iter().position(|case| case.get("otherwise").is_some())?, "otherwise")
        }
        Some(number) => (number.parse().ok()?, "steps"),
        None => (0, "steps"),
    };
    Some(vec![key("choose"), Segment::Index(at), key(list)])
}

/// Collects the paths of all steps of a list and of the lists inside them.
fn collect(root: &Node, list: &[Segment], are_branches: bool, into: &mut Vec<ValuePath>) {
    let Some(node) = node_at(root, list) else { return };
    for (at, item) in node.items().iter().enumerate() {
        let step = path::index(list, at);
        let has_kind = STEP_KINDS.iter().any(|kind| item.get(kind).is_some());
        if are_branches && !has_kind && item.get("steps").is_some() {
            collect(root, &path::key(&step, "steps"), false, into);
            continue;
        }
        into.push(step.clone());
        collect(root, &path::key(&step, "parallel"), true, into);
        for kind in ["loop", "repeat"] {
            collect(root, &path::key(&path::key(&step, kind), "steps"), false, into);
        }
        let cases = path::key(&step, "choose");
        for case in 0..item.get("choose").map_or(0, |cases| cases.items().len()) {
            let case = path::index(&cases, case);
            collect(root, &path::key(&case, "steps"), false, into);
            collect(root, &path::key(&case, "otherwise"), false, into);
        }
    }
}

/// The steps with their ids: a chain also names steps that have none.
fn named(root: &Node, composition: &Composition, places: Vec<ValuePath>) -> Vec<StepPlace> {
    let mut by_span = std::collections::BTreeMap::new();
    composition.body.walk(&mut |step| {
        by_span.entry(step.span).or_insert_with(|| step.id.clone());
    });
    let place = |path: ValuePath| {
        let node = node_at(root, &path)?;
        let id = by_span.get(&node.span).cloned();
        let id = id.or_else(|| node.get("id").and_then(Node::as_str).cloned())?;
        Some(StepPlace { id, path })
    };
    places.into_iter().filter_map(place).collect()
}
