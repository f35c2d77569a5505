//! A place in a composition → the names that an expression there may read, and their types.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Observations;
use super::path::Crumb;
use crate::compile::{CallTyping, Typing, given_names};
use crate::composition::{Body, Composition, Flow, Step, StepKind, WaitFor};
use crate::expr::{Ast, AstKind, Expr, ExprRoot, InferenceDepth, StepIndex, Template, TypeScope};
use crate::inferred_schema::InferredSchema;
use crate::limits::Limits;
use crate::source::Span;
use crate::types::{FieldLookup, Type};

/// A name that is visible.
pub(super) struct VisibleName {
    pub(super) name: Arc<str>,
    pub(super) root: ExprRoot,
    pub(super) about: Option<Arc<str>>,
}

/// The names at one place.
pub(super) struct NameScope<'a> {
    composition: &'a Composition,
    typing: Typing<'a>,
    observations: &'a Observations,
    limits: &'a Limits,
    /// The bodies around the place, outermost first, each with the position of the step around it.
    levels: Vec<(&'a Body, Option<usize>)>,
    /// The loops whose item is in scope, outermost first.
    loops: Vec<&'a Step>,
    /// The innermost step around the place.
    step: Option<&'a Step>,
    /// The field of that step.
    field: Option<Arc<str>>,
    /// A field inside that field.
    inner_field: Option<Arc<str>>,
    /// Parameters of lambdas around the place.
    pub(super) locals: Vec<(Arc<str>, Type)>,
}

/// Where each step stands.
type Places<'a> = BTreeMap<u32, (&'a Body, usize, &'a Step)>;

fn places<'a>(body: &'a Body, found: &mut Places<'a>) {
    for (position, step) in body.steps.iter().enumerate() {
        found.insert(step.span.start, (body, position, step));
        step.kind.bodies().into_iter().for_each(|inner| places(inner, found));
    }
}

impl<'a> NameScope<'a> {
    /// The scope at the end of a way through the document.
    pub(super) fn at(
        composition: &'a Composition,
        crumbs: &[Crumb<'_>],
        observations: &'a Observations,
        limits: &'a Limits,
    ) -> NameScope<'a> {
        let mut starts = Places::new();
        places(&composition.body, &mut starts);
        let mut scope = NameScope {
            composition,
            typing: Typing::from_observed(composition),
            observations,
            limits,
            levels: Vec::new(),
            loops: Vec::new(),
            step: None,
            field: None,
            inner_field: None,
            locals: Vec::new(),
        };
        for crumb in crumbs {
            match crumb {
                Crumb::Item { item, .. } => {
                    if let Some((body, position, step)) = starts.get(&item.span.start) {
                        scope.levels.push((body, Some(*position)));
                        scope.step = Some(*step);
                        (scope.field, scope.inner_field) = (None, None);
                    }
                }
                Crumb::Member { member, .. } => scope.enter(&member.key),
            }
        }
        if scope.levels.is_empty() {
            scope.levels.push((&composition.body, None));
        }
        scope
    }

    /// The scope of the arguments of a step; `None` if there is no such step.
    pub(super) fn of_step(
        composition: &'a Composition,
        id: &str,
        observations: &'a Observations,
        limits: &'a Limits,
    ) -> Option<NameScope<'a>> {
        let mut scope = NameScope::at(composition, &[], observations, limits);
        scope.levels.clear();
        scope.descend(&composition.body, id).then_some(scope)
    }

    /// Enters the bodies that lead to a step; whether it was found.
    fn descend(&mut self, body: &'a Body, id: &str) -> bool {
        for (position, step) in body.steps.iter().enumerate() {
            self.levels.push((body, Some(position)));
            if *step.id == *id {
                self.step = Some(step);
                return true;
            }
            let is_loop = matches!(step.kind, StepKind::Loop(_));
            if is_loop {
                self.loops.push(step);
            }
            for inner in step.kind.bodies() {
                if self.descend(inner, id) {
                    return true;
                }
            }
            if is_loop {
                self.loops.pop();
            }
            self.levels.pop();
        }
        false
    }

    /// The loops whose item is in scope, outermost first.
    pub(super) fn loops(&self) -> &[&'a Step] {
        &self.loops
    }

    /// The innermost step around this place.
    pub(super) fn innermost(&self) -> Option<&'a Step> {
        self.step
    }

    /// The step with an index.
    pub(super) fn step_at(&self, index: StepIndex) -> Option<&'a Step> {
        self.typing.step(index)
    }

    /// Writes the meaning of names into a template that is not part of the composition.
    pub(super) fn resolve_template(&self, template: &mut Template) {
        template.exprs_mut(&mut |expr| self.resolve(expr.ast_mut(), 0));
    }

    fn enter(&mut self, key: &Arc<str>) {
        let Some(step) = self.step else { return };
        if self.field.is_none() {
            self.field = Some(key.clone());
            return;
        }
        if self.inner_field.is_none() {
            self.inner_field = Some(key.clone());
        }
        match (&step.kind, self.field.as_deref(), &**key) {
            (StepKind::Loop(_), Some("loop"), "steps") => self.loops.push(step),
            (StepKind::Loop(each), Some("loop"), "output") => {
                self.loops.push(step);
                self.levels.push((&each.body, None));
            }
            (StepKind::Repeat(repeat), Some("repeat"), "until") => {
                self.levels.push((&repeat.body, None));
            }
            _ => {}
        }
    }

    pub(super) fn is_program(&self) -> bool {
        self.composition.body.flow == Flow::Program
    }

    /// The names that are in scope beside steps and inputs.
    fn extra(&self) -> &'static [&'static str] {
        match (self.field.as_deref(), self.inner_field.as_deref()) {
            (Some("success_when" | "fail_when" | "on_success" | "rollback"), _)
            | (Some("probe"), Some("done_when" | "output")) => &["output", "args"],
            (Some("on_failure"), _) => &["error", "args"],
            (Some("fallback"), _) => &["error"],
            (Some("probe"), _) => &["args"],
            _ => &[],
        }
    }

    /// Every step whose value may be read here.
    pub(super) fn steps(&self) -> Vec<&'a Step> {
        let mut found = Vec::new();
        for (body, position) in self.levels.iter().rev() {
            let later = position.map_or_else(BTreeSet::new, |at| dependants(body, at));
            for (at, step) in body.steps.iter().enumerate() {
                if Some(at) != *position && !later.contains(&at) {
                    add_reachable(step, &mut found);
                }
            }
        }
        found
    }

    /// The steps that this step may name in `depends_on` or `next`.
    pub(super) fn siblings(&self) -> Vec<&'a Step> {
        let Some((body, position)) = self.levels.last() else { return Vec::new() };
        let later = match position {
            Some(at) if body.flow == Flow::Graph => dependants(body, *at),
            _ => BTreeSet::new(),
        };
        let steps = body.steps.iter().enumerate();
        let steps = steps.filter(|(at, _)| Some(*at) != *position && !later.contains(at));
        steps.map(|(_, step)| &**step).collect()
    }

    /// The names of the innermost body's steps at the step around this place.
    pub(super) fn names(&self) -> Vec<VisibleName> {
        let mut names = Vec::new();
        let mut add = |name: &str, root: ExprRoot, about: Option<Arc<str>>| {
            names.push(VisibleName { name: name.into(), root, about });
        };
        for (name, _) in self.locals.iter().rev() {
            add(name, ExprRoot::Given(LOCAL, name.clone()), None);
        }
        for step in self.loops.iter().rev() {
            if let StepKind::Loop(each) = &step.kind {
                let about = format!("the item of the loop `{}`", step.id);
                add(&each.item, ExprRoot::Item(step.index), Some(about.into()));
            }
        }
        for extra in self.extra() {
            let root = match *extra {
                "output" => ExprRoot::Output,
                "args" => ExprRoot::Args,
                _ => ExprRoot::Error,
            };
            add(extra, root, None);
        }
        for step in self.steps() {
            let name = step.output_key.as_ref().map_or(&step.id, |(key, _)| key);
            add(name, ExprRoot::Step(step.index), Some(about(step)));
            for name in given_names(step) {
                let about = format!("set by the step `{}`", step.id);
                add(&name, ExprRoot::Given(step.index, name.clone()), Some(about.into()));
            }
        }
        for (name, about) in self.inputs() {
            add(&name, ExprRoot::InputField(name.clone()), about);
        }
        if let Some(last) = self.loops.last() {
            add("loop", ExprRoot::Loop(last.index), Some("index, first, last, length".into()));
        }
        for (word, root, about) in [
            ("input", ExprRoot::Input, "the input of the run"),
            ("context", ExprRoot::Context, "what the caller passes beside the input"),
            ("run", ExprRoot::Run, "id, name and start of this run"),
        ] {
            add(word, root, Some(about.into()));
        }
        names
    }

    /// The declared properties of the input, with their descriptions.
    pub(super) fn inputs(&self) -> Vec<(Arc<str>, Option<Arc<str>>)> {
        let schema = self.composition.input.as_ref().map(|schema| schema.json());
        let properties = schema.and_then(|schema| schema.get("properties")?.as_object());
        let about = |schema: &crate::value::Value| {
            schema.get("description").and_then(|text| text.as_str()).map(Arc::from)
        };
        let properties = properties.into_iter().flat_map(|known| known.iter());
        properties.map(|(name, schema)| (name.clone(), about(schema))).collect()
    }

    /// Keys of the context that the composition requires.
    pub(super) fn context_keys(&self) -> &'a [Arc<str>] {
        &self.composition.requires_context
    }

    fn lookup(&self, name: &str) -> Option<ExprRoot> {
        self.names().into_iter().find(|known| &*known.name == name).map(|known| known.root)
    }

    fn by_id(&self, id: &str) -> Option<StepIndex> {
        let mut found = None;
        self.composition.body.walk(&mut |step| {
            if *step.id == *id && found.is_none() {
                found = Some(step.index);
            }
        });
        found
    }

    /// The type of an expression; unknown if it cannot be read.
    pub(super) fn type_of_text(&self, text: &str) -> Type {
        let text: Arc<str> = text.replace("\\\"", "\"").into();
        let parsed = Template::parse_condition(&text, Span::default(), self.limits);
        let Ok(mut expr) = parsed else { return Type::Any };
        self.resolve(expr.ast_mut(), 0);
        self.type_of_expr(&expr)
    }

    fn type_of_expr(&self, expr: &Expr) -> Type {
        expr.ast().infer(self, &mut Vec::new())
    }

    /// Writes the meaning of names into an expression that is not part of the composition.
    fn resolve(&self, ast: &mut Ast, depth: usize) {
        if depth > self.limits.expression_depth_max {
            return;
        }
        if let Some(root) = self.collapsed(ast) {
            ast.kind = AstKind::Name { name: ast.path().into(), root };
            return;
        }
        match &mut ast.kind {
            AstKind::Name { root: ExprRoot::Lambda, .. } => {}
            AstKind::Name { name, root } => {
                *root = match &**name {
                    "state" if self.is_program() => ExprRoot::State,
                    other => self
                        .lookup(other)
                        .or_else(|| self.by_id(other).map(ExprRoot::Step))
                        .unwrap_or(ExprRoot::Unresolved),
                };
            }
            AstKind::Lambda(param, body) => {
                let param = param.clone();
                bind(body, &param);
                self.resolve(body, depth + 1);
            }
            _ => ast.children_mut(&mut |child| self.resolve(child, depth + 1)),
        }
    }

    /// The meaning of `steps.ID.output` and of an id followed by its own output key.
    fn collapsed(&self, ast: &Ast) -> Option<ExprRoot> {
        let AstKind::Field(base, last) = &ast.kind else { return None };
        match &base.kind {
            AstKind::Field(head, id) if is_word(head, "steps") => {
                let step = self.by_id(id)?;
                Some(match &**last {
                    "output" => ExprRoot::Step(step),
                    "status" => ExprRoot::StepStatus(step),
                    "error" => ExprRoot::StepError(step),
                    _ => ExprRoot::Unresolved,
                })
            }
            AstKind::Name { name, root: ExprRoot::Unresolved } => {
                let step = self.typing.step(self.by_id(name)?)?;
                let (key, _) = step.output_key.as_ref()?;
                (*key == *last && step.id != *last).then_some(ExprRoot::Step(step.index))
            }
            _ => None,
        }
    }

    /// The type of a visible name.
    pub(super) fn type_of_name(&self, root: &ExprRoot) -> Type {
        self.type_of(root)
    }

    fn observed(&self, index: StepIndex) -> Option<Type> {
        let step = self.typing.step(index)?;
        let value = self.observations.steps.get(&step.id)?;
        let mut shape = InferredSchema::default();
        shape.add(value);
        Some(shape.ty())
    }

    /// The call of the innermost step, whose output and arguments are in scope.
    fn call(&self) -> Option<CallTyping<'_>> {
        match &self.step?.kind {
            StepKind::Tool(call) => Some(CallTyping::of_call(&self.typing, call)),
            _ => None,
        }
    }
}

/// The index that stands for a parameter of a lambda; no composition has so many steps.
const LOCAL: StepIndex = StepIndex::MAX;

impl TypeScope for NameScope<'_> {
    fn depth(&self) -> &InferenceDepth {
        self.typing.depth()
    }

    fn type_of(&self, root: &ExprRoot) -> Type {
        let known = match root {
            ExprRoot::Given(LOCAL, name) => {
                let local = self.locals.iter().rev().find(|(local, _)| local == name);
                return local.map_or(Type::Any, |(_, ty)| ty.clone());
            }
            ExprRoot::Output => self.call().map_or(Type::Any, |call| call.output.clone()),
            ExprRoot::Args => self.call().map_or(Type::Any, |call| call.args.clone()),
            ExprRoot::Error | ExprRoot::StepError(_) => {
                Type::record([("code", Type::String), ("message", Type::String)])
            }
            other => self.typing.type_of(other),
        };
        match root {
            ExprRoot::Step(index) if matches!(known, Type::Any) => {
                self.observed(*index).unwrap_or(known)
            }
            _ => known,
        }
    }

    fn type_in_state(&self, name: &Arc<str>) -> Type {
        let step = self
            .loops
            .iter()
            .rev()
            .find(|step| matches!(&step.kind, StepKind::Loop(each) if each.item == *name));
        match step {
            Some(step) => self.type_of(&ExprRoot::Item(step.index)),
            None => self.typing.type_in_state(name),
        }
    }
}

/// Marks the uses of a lambda's parameter.
fn bind(ast: &mut Ast, param: &Arc<str>) {
    if let AstKind::Name { name, root } = &mut ast.kind
        && name == param
    {
        *root = ExprRoot::Lambda;
    }
    ast.children_mut(&mut |child| bind(child, param));
}

fn is_word(ast: &Ast, word: &str) -> bool {
    matches!(&ast.kind, AstKind::Name { name, .. } if &**name == word)
}

fn about(step: &Step) -> Arc<str> {
    match &step.kind {
        StepKind::Tool(call) => format!("the value of the step `{}`: `{}`", step.id, call.name),
        other => format!("the value of the step `{}`: `{}`", step.id, other.keyword()),
    }
    .into()
}

/// A step, and those inside it that have certainly run when it is done.
fn add_reachable<'a>(step: &'a Step, found: &mut Vec<&'a Step>) {
    found.push(step);
    if let StepKind::Parallel { branches, wait_for: WaitFor::All } = &step.kind {
        for inner in branches.iter().flat_map(|branch| &branch.body.steps) {
            add_reachable(inner, found);
        }
    }
}

/// The positions of the steps of a body that depend on one of them.
fn dependants(body: &Body, position: usize) -> BTreeSet<usize> {
    let mut by_need: Vec<Vec<usize>> = vec![Vec::new(); body.steps.len()];
    for (at, step) in body.steps.iter().enumerate() {
        for need in &step.needs {
            if let Some(list) = by_need.get_mut(need.position) {
                list.push(at);
            }
        }
    }
    let (mut found, mut left) = (BTreeSet::new(), vec![position]);
    while let Some(at) = left.pop() {
        for next in &by_need[at] {
            if found.insert(*next) {
                left.push(*next);
            }
        }
    }
    found
}

/// The declared members of a type.
pub(super) fn members(ty: &Type) -> BTreeMap<Arc<str>, Type> {
    let mut found: BTreeMap<Arc<str>, Type> = BTreeMap::new();
    for part in ty.parts() {
        if let Type::Object(object) = part {
            for name in object.properties.keys() {
                if let FieldLookup::Found { ty, .. } = ty.field(name) {
                    found.insert(name.clone(), ty);
                }
            }
        }
    }
    found
}
