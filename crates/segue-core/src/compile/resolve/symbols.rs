//! All names of a composition, and their scopes.

use std::sync::Arc;

use indexmap::IndexMap;

use super::{ExprSite, StepUse};
use crate::composition::{Body, Composition, Flow, Step, StepKind, WaitFor};
use crate::diagnostic::{Code, Diagnostic};
use crate::expr::StepIndex;
use crate::source::{Source, Span};
use crate::types::{OtherProperties, Type};

/// Whether the steps inside a body have certainly run once their container is done.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Reachability {
    Surely,
    Maybe(&'static str),
}

pub(super) struct BodyInfo {
    /// The number of its steps.
    pub(super) steps: usize,
    /// The body and position of the step that contains this body.
    pub(super) parent: Option<(usize, usize)>,
    pub(super) owner: Option<StepIndex>,
    pub(super) reachability: Reachability,
}

pub(super) struct StepInfo {
    pub(super) id: Arc<str>,
    pub(super) id_span: Span,
    pub(super) output_key: Option<Arc<str>>,
    pub(super) body: usize,
    pub(super) position: usize,
}

/// Names and their steps, in the order of the text.
type Names = IndexMap<Arc<str>, StepIndex>;

/// All names of a composition.
pub(super) struct Symbols {
    pub(super) bodies: Vec<BodyInfo>,
    pub(super) steps: Vec<StepInfo>,
    pub(super) by_id: Names,
    pub(super) by_key: Names,
    pub(super) given: Names,
    /// In a program, every step that sets a name; the last one that ran wins.
    pub(super) givers: IndexMap<Arc<str>, Vec<StepIndex>>,
    pub(super) is_program: bool,
    pub(super) inputs: Vec<Arc<str>>,
    /// Whether the input may have undeclared properties.
    pub(super) input_is_open: bool,
    pub(super) findings: Vec<Diagnostic>,
}

impl Symbols {
    pub(super) fn collect(composition: &Composition, source: &Source) -> Symbols {
        let mut symbols = Symbols {
            bodies: vec![BodyInfo {
                steps: composition.body.steps.len(),
                parent: None,
                owner: None,
                reachability: Reachability::Surely,
            }],
            steps: Vec::new(),
            by_id: Names::new(),
            by_key: Names::new(),
            given: Names::new(),
            givers: IndexMap::new(),
            is_program: composition.body.flow == Flow::Program,
            inputs: input_names(composition),
            input_is_open: input_is_open(composition),
            findings: Vec::new(),
        };
        symbols.body(&composition.body, 0);
        symbols.check_names(&composition.body, source);
        symbols
    }

    fn body(&mut self, body: &Body, index: usize) {
        for (position, step) in body.steps.iter().enumerate() {
            let at = step.index as usize;
            // A step that could not be read leaves a gap without references.
            while self.steps.len() < at {
                self.steps.push(StepInfo {
                    id: "".into(),
                    id_span: Span::default(),
                    output_key: None,
                    body: 0,
                    position: 0,
                });
            }
            self.steps.push(StepInfo {
                id: step.id.clone(),
                id_span: step.id_span,
                output_key: step.output_key.as_ref().map(|(key, _)| key.clone()),
                body: index,
                position,
            });
            self.declare_id(step);
            let crossing = crossing(&step.kind);
            for inner in step.kind.bodies() {
                let inner_index = self.bodies.len();
                self.bodies.push(BodyInfo {
                    steps: inner.steps.len(),
                    parent: Some((index, position)),
                    owner: Some(step.index),
                    reachability: crossing,
                });
                self.body(inner, inner_index);
            }
        }
    }

    fn declare_id(&mut self, step: &Step) {
        match self.by_id.get(&step.id) {
            None => {
                self.by_id.insert(step.id.clone(), step.index);
            }
            Some(first) => {
                let message = format!("two steps are called `{}`", step.id);
                let first_span = self.steps[*first as usize].id_span;
                let finding = Diagnostic::error(Code::DuplicateId, message, step.id_span)
                    .help("give each step a name of its own")
                    .related(first_span, "the first one");
                self.findings.push(finding);
            }
        }
    }

    /// Output keys and given names must not clash with each other or with ids.
    fn check_names(&mut self, body: &Body, source: &Source) {
        body.walk(&mut |step| {
            if let Some((key, span)) = &step.output_key {
                self.declare_key(step, key, *span);
            }
            for name in given_names(step) {
                self.declare_given(step, &name, source);
            }
        });
    }

    fn declare_key(&mut self, step: &Step, key: &Arc<str>, span: Span) {
        let other_id = self.by_id.get(key).filter(|index| **index != step.index);
        if let Some(other) = other_id {
            let message = format!("`{key}` is the id of another step already");
            let related = self.steps[*other as usize].id_span;
            let finding = Diagnostic::error(Code::DuplicateId, message, span)
                .help("choose another output key")
                .related(related, "the step of that name");
            self.findings.push(finding);
            return;
        }
        match self.by_key.get(key) {
            None => {
                self.by_key.insert(key.clone(), step.index);
            }
            Some(first) => {
                let message = format!("two steps have the output key `{key}`");
                let related = self.steps[*first as usize].id_span;
                let finding = Diagnostic::error(Code::DuplicateId, message, span)
                    .help("give each output a name of its own")
                    .related(related, "the first one");
                self.findings.push(finding);
            }
        }
    }

    fn declare_given(&mut self, step: &Step, name: &Arc<str>, source: &Source) {
        if self.is_program {
            self.givers.entry(name.clone()).or_default().push(step.index);
        }
        let taken = self
            .by_id
            .get(name)
            .or_else(|| self.by_key.get(name))
            .or_else(|| self.given.get(name))
            .copied();
        let Some(taken) = taken else {
            self.given.insert(name.clone(), step.index);
            return;
        };
        if self.is_program && self.given.contains_key(name) {
            // Several steps may set the same state name.
            return;
        }
        let raw = source.slice(step.span);
        let start = step.span.start as usize;
        let place = raw
            .find(&**name)
            .map_or(step.id_span, |offset| Span::new(start + offset, start + offset + name.len()));
        let message = format!("the name `{name}` is given twice");
        let related = self.steps[taken as usize].id_span;
        let finding = Diagnostic::error(Code::DuplicateId, message, place)
            .help("choose another name")
            .related(related, "the step that has it already");
        self.findings.push(finding);
    }
}

fn input_names(composition: &Composition) -> Vec<Arc<str>> {
    match composition.input.as_ref().map(|schema| schema.ty()) {
        Some(Type::Object(object)) => object.properties.keys().cloned().collect(),
        _ => Vec::new(),
    }
}

fn input_is_open(composition: &Composition) -> bool {
    match composition.input.as_ref().map(|schema| schema.ty()) {
        Some(Type::Object(object)) => object.rest != OtherProperties::Closed,
        _ => true,
    }
}

fn crossing(kind: &StepKind) -> Reachability {
    match kind {
        StepKind::Parallel { wait_for: WaitFor::All, .. } => Reachability::Surely,
        other => Reachability::Maybe(other.keyword()),
    }
}

/// The names that a step defines for later ones.
pub(crate) fn given_names(step: &Step) -> Vec<Arc<str>> {
    let set = match &step.kind {
        StepKind::Set(names) => names.iter().map(|(name, _)| name.clone()).collect(),
        _ => Vec::new(),
    };
    let mapped = step.on_success.map_outputs.iter().map(|(_, name)| name.clone());
    let transformed = step.on_success.transform.iter().map(|(name, _)| name.clone());
    set.into_iter().chain(mapped).chain(transformed).collect()
}

/// How a use relates two steps.
pub(super) enum UseRelation {
    /// In `body`, the step at `position` needs the one at `needed`.
    Need { body: usize, position: usize, needed: usize },
    /// A step reads its own value, or that of a container around it.
    Itself,
    /// A step reads a step in another branch of the same container.
    Sibling,
}

impl Symbols {
    pub(super) fn level(&self, used: &StepUse) -> UseRelation {
        let target = &self.steps[used.step as usize];
        let (mut body, mut needed) = (target.body, target.position);
        let mut crossed = false;
        loop {
            if let Some(position) = self.position_in(body, used) {
                return match (position == needed, crossed) {
                    (true, true) => UseRelation::Sibling,
                    (true, false) => UseRelation::Itself,
                    (false, _) => UseRelation::Need { body, position, needed },
                };
            }
            match self.bodies[body].parent {
                Some((parent, position)) => {
                    (body, needed) = (parent, position);
                    crossed = true;
                }
                None => return UseRelation::Sibling,
            }
        }
    }

    /// The position in `body` of the step that contains the use, at any depth.
    fn position_in(&self, body: usize, used: &StepUse) -> Option<usize> {
        let (mut at, mut position) = (used.from_body, used.from_position);
        loop {
            if at == body {
                return Some(position);
            }
            (at, position) = self.bodies[at].parent?;
        }
    }

    /// Whether a step is in a body, at any depth.
    pub(super) fn is_within(&self, step: StepIndex, body: usize) -> bool {
        self.is_inside(self.steps[step as usize].body, body)
    }

    fn is_inside(&self, mut body: usize, ancestor: usize) -> bool {
        loop {
            if body == ancestor {
                return true;
            }
            match self.bodies[body].parent {
                Some((parent, _)) => body = parent,
                None => return false,
            }
        }
    }

    /// The keyword of the first container between `site` and the step that may not have run the
    /// step.
    pub(super) fn uncertain_reachability(
        &self,
        site: &ExprSite,
        step: StepIndex,
    ) -> Option<(&'static str, StepIndex)> {
        let mut body = self.steps[step as usize].body;
        let mut found = None;
        while !self.is_inside(site.body, body) {
            let info = &self.bodies[body];
            if let (Reachability::Maybe(word), Some(owner)) = (info.reachability, info.owner) {
                found = Some((word, owner));
            }
            body = info.parent?.0;
        }
        found
    }
}
