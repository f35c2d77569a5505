//! A composition → every place of the text that names a step, a value, an input or a tool.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::compile::{exprs_of, templates_of, unquoted};
use crate::composition::{Body, Composition, Next, Step, StepKind, Target, WaitFor};
use crate::document::{Member, Node};
use crate::expr::{Ast, AstKind, Expr, ExprRoot, StepIndex, Template};
use crate::id::ToolId;
use crate::source::{Source, Span};

/// What a name means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Symbol {
    /// A step, by its id.
    Step(StepIndex),
    /// The value of a step, by its output key.
    OutputKey(StepIndex),
    /// A name that steps define with `set`, `map_outputs` or `transform`.
    Given(Arc<str>),
    /// The variable of the loop at this step.
    Item(StepIndex),
    /// A property of the input.
    Input(Arc<str>),
    /// A tool that is called.
    Tool(ToolId),
}

/// A place that names something.
#[derive(Clone, Debug)]
pub(super) struct Occurrence {
    /// The name alone, without quotes and braces.
    pub(super) span: Span,
    pub(super) symbol: Symbol,
    pub(super) is_declaration: bool,
    /// Whether it is a scalar of its own, as opposed to a part of an expression.
    pub(super) is_scalar: bool,
    /// Whether the span is exactly the name. An expression that is written with escapes is only
    /// located as a whole.
    pub(super) is_exact: bool,
}

/// All occurrences of a text, in its order.
pub(super) fn collect(source: &Source, tree: &Node, composition: &Composition) -> Vec<Occurrence> {
    let mut steps = Vec::new();
    composition.body.walk(&mut |step| {
        let at = step.index as usize;
        if steps.len() <= at {
            steps.resize(at + 1, None);
        }
        steps[at] = Some(step);
    });
    let mut by_id = BTreeMap::new();
    for step in steps.iter().flatten() {
        // Of two steps with one id, the first one has it.
        by_id.entry(&*step.id).or_insert(step.index);
    }
    let found = Vec::new();
    let mut collector = Collector { source, tree, composition, steps, by_id, found };
    collector.inputs();
    collector.body(&composition.body);
    if let Some(output) = &composition.output {
        collector.template(output);
    }
    let mut found = collector.found;
    found.sort_by_key(|occurrence| occurrence.span);
    // A template that an alias repeats is found once for each use.
    found.dedup_by(|a, b| a.span == b.span && a.symbol == b.symbol);
    found
}

struct Collector<'a> {
    source: &'a Source,
    tree: &'a Node,
    composition: &'a Composition,
    steps: Vec<Option<&'a Step>>,
    by_id: BTreeMap<&'a str, StepIndex>,
    found: Vec<Occurrence>,
}

impl<'a> Collector<'a> {
    fn push(&mut self, span: Span, symbol: Symbol, is_declaration: bool) {
        let is_scalar = true;
        let occurrence = Occurrence { span, symbol, is_declaration, is_scalar, is_exact: true };
        self.found.push(occurrence);
    }

    /// A scalar that is exactly this name; others are generated or only derived from the text.
    fn scalar(&mut self, span: Span, name: &str, symbol: Symbol, is_declaration: bool) {
        let inner = unquoted(self.source, span);
        if !name.is_empty() && self.source.slice(inner) == name {
            self.push(inner, symbol, is_declaration);
        }
    }

    fn inputs(&mut self) {
        let properties = self.tree.get("input").and_then(|input| input.get("properties"));
        for Member { key, key_span, .. } in properties.map_or(&[][..], Node::members) {
            self.scalar(*key_span, key, Symbol::Input(key.clone()), true);
        }
        let required = self.tree.get("input").and_then(|input| input.get("required"));
        for node in required.map_or(&[][..], Node::items) {
            if let Some(name) = node.as_str() {
                self.scalar(node.span, name, Symbol::Input(name.clone()), false);
            }
        }
        for parameter in self.tree.get("parameters").map_or(&[][..], Node::items) {
            if let Some(node) = parameter.get("name")
                && let Some(name) = node.as_str()
            {
                self.scalar(node.span, name, Symbol::Input(name.clone()), true);
            }
        }
    }

    fn body(&mut self, body: &'a Body) {
        for step in &body.steps {
            self.scalar(step.id_span, &step.id, Symbol::Step(step.index), true);
            if let Some((key, span)) = &step.output_key {
                self.scalar(*span, key, Symbol::OutputKey(step.index), true);
            }
            self.references(step, body);
            self.given(step);
            templates_of(step, &mut |template| self.template(template));
            exprs_of(step, &mut |expr| self.expr(expr));
            step.kind.bodies().into_iter().for_each(|inner| self.body(inner));
        }
    }

    fn references(&mut self, step: &Step, body: &Body) {
        for (id, span) in &step.depends_on {
            if let Some(target) = self.by_id.get(&**id) {
                self.scalar(*span, id, Symbol::Step(*target), false);
            }
        }
        for next in [&step.on_success.next, &step.on_failure.next].into_iter().flatten() {
            let Next { name, span, target: Target::Step(at) } = next else { continue };
            if let Some(target) = body.steps.get(*at as usize).filter(|to| to.id == *name) {
                self.scalar(*span, name, Symbol::Step(target.index), false);
            }
        }
        for call in step.calls() {
            if let Some(tool) = &call.tool {
                self.scalar(call.name_span, &call.name, Symbol::Tool(tool.id.clone()), false);
            }
        }
    }

    /// The names that a step defines, which only the tree has with their places.
    fn given(&mut self, step: &Step) {
        let item = match &step.kind {
            StepKind::Loop(each) => Some(&each.item),
            _ => None,
        };
        let on_success = &step.on_success;
        let has_names = matches!(step.kind, StepKind::Set(_))
            || !on_success.map_outputs.is_empty()
            || !on_success.transform.is_empty();
        if item.is_none() && !has_names {
            return;
        }
        let Some(node) = self.tree.find(step.span) else { return };
        let inner = |outer: &str, field: &str| node.get(outer).and_then(|node| node.get(field));
        if let (Some(item), Some(named)) = (item, inner("loop", "as")) {
            self.scalar(named.span, item, Symbol::Item(step.index), true);
        }
        for names in [node.get("set"), inner("on_success", "transform")].into_iter().flatten() {
            for Member { key, key_span, .. } in names.members() {
                self.scalar(*key_span, key, Symbol::Given(key.clone()), true);
            }
        }
        for Member { value, .. } in
            inner("on_success", "map_outputs").map_or(&[][..], Node::members)
        {
            if let Some(name) = value.as_str() {
                self.scalar(value.span, name, Symbol::Given(name.clone()), true);
            }
        }
    }

    fn template(&mut self, template: &'a Template) {
        template.exprs(&mut |expr| self.expr(expr));
    }

    fn expr(&mut self, expr: &'a Expr) {
        let at = expr.ast().at;
        let span = expr.location().locate(self.source, at);
        let is_exact = self.source.slice(span) == expr.text();
        let place = ExprPlace { whole: span, is_exact, delta: span.start.wrapping_sub(at.start) };
        expr.ast().walk(&mut |node| self.ast(node, place));
    }

    fn ast(&mut self, ast: &'a Ast, place: ExprPlace) {
        match &ast.kind {
            AstKind::Name { name, root } => self.name(ast, name, root, place),
            AstKind::Field(base, name) => {
                let AstKind::Name { root, .. } = &base.kind else { return };
                let symbol = match root {
                    ExprRoot::Input => Symbol::Input(name.clone()),
                    ExprRoot::State if self.is_input(name) => Symbol::Input(name.clone()),
                    ExprRoot::State => Symbol::Given(name.clone()),
                    ExprRoot::Step(container) => match self.branch(*container, name) {
                        Some(step) => Symbol::Step(step),
                        None => return,
                    },
                    _ => return,
                };
                // A bare name of the state is a field of it with the same span.
                let from = if base.at == ast.at { ast.at.start } else { base.at.end };
                let part = place.span(from, ast.at.end);
                self.segment(part, name, symbol, place);
            }
            _ => {}
        }
    }

    /// The step of a branch that consists of it alone: members of the container's value have its id.
    fn branch(&self, container: StepIndex, name: &str) -> Option<StepIndex> {
        match &self.steps.get(container as usize).copied().flatten()?.kind {
            StepKind::Parallel { branches, wait_for: WaitFor::All } => {
                let branch = branches.iter().find(|branch| *branch.id == *name)?;
                let [only] = branch.body.steps.as_slice() else { return None };
                (*only.id == *name).then_some(only.index)
            }
            _ => None,
        }
    }

    /// Whether a name of a program's state comes from the input.
    fn is_input(&self, name: &str) -> bool {
        let schema = self.composition.input.as_ref();
        schema.is_some_and(|schema| {
            schema.json().get("properties").is_some_and(|declared| declared.get(name).is_some())
        })
    }

    fn name(&mut self, ast: &'a Ast, name: &Arc<str>, root: &ExprRoot, place: ExprPlace) {
        let span = place.span(ast.at.start, ast.at.end);
        match root {
            ExprRoot::Step(index) | ExprRoot::StepStatus(index) | ExprRoot::StepError(index) => {
                self.step_path(*index, span, place);
            }
            ExprRoot::Given(_, given) => {
                self.segment(span, given, Symbol::Given(given.clone()), place);
            }
            ExprRoot::Item(index) => {
                let item = name.strip_prefix("state.").unwrap_or(name);
                self.segment(span, item, Symbol::Item(*index), place);
            }
            ExprRoot::InputField(field) => {
                self.segment(span, field, Symbol::Input(field.clone()), place);
            }
            _ => {}
        }
    }

    /// `ID`, `KEY`, `ID.KEY` or `steps.ID.output`.
    fn step_path(&mut self, index: StepIndex, span: Span, place: ExprPlace) {
        let Some(step) = self.steps.get(index as usize).copied().flatten() else { return };
        let written = self.source.slice(span);
        let key = step.output_key.as_ref().map(|(key, _)| &**key);
        let by_id = Symbol::Step(index);
        if let Some(rest) = written.strip_prefix("steps").filter(|_| written != &*step.id) {
            let start = span.start + 5;
            let length = u32::try_from(rest.len()).unwrap_or(0);
            let part = Span { start, end: start + length };
            return self.first_segment(part, &step.id, by_id, place);
        }
        match key {
            Some(key) if written == key => {
                self.segment(span, key, Symbol::OutputKey(index), place);
            }
            Some(key) if written.len() > step.id.len() && written.starts_with(&*step.id) => {
                let middle = span.start + u32::try_from(step.id.len()).unwrap_or(0);
                self.segment(Span { end: middle, ..span }, &step.id, by_id, place);
                let rest = Span { start: middle, ..span };
                self.segment(rest, key, Symbol::OutputKey(index), place);
            }
            _ => self.segment(span, &step.id, by_id, place),
        }
    }

    /// The last name of a part of a path, such as `.NAME` or `['NAME']`.
    fn segment(&mut self, part: Span, name: &str, symbol: Symbol, place: ExprPlace) {
        let found = self.source.slice(part).rfind(name);
        self.found_segment(part, found, name, symbol, place);
    }

    fn first_segment(&mut self, part: Span, name: &str, symbol: Symbol, place: ExprPlace) {
        let found = self.source.slice(part).find(name);
        self.found_segment(part, found, name, symbol, place);
    }

    fn found_segment(
        &mut self,
        part: Span,
        found: Option<usize>,
        name: &str,
        symbol: Symbol,
        place: ExprPlace,
    ) {
        if name.is_empty() {
            return;
        }
        let start = found.map(|offset| part.start as usize + offset);
        let is_exact = place.is_exact && start.is_some();
        let span = match start.filter(|_| is_exact) {
            Some(start) => Span::new(start, start + name.len()),
            None => place.whole,
        };
        let (is_declaration, is_scalar) = (false, false);
        self.found.push(Occurrence { span, symbol, is_declaration, is_scalar, is_exact });
    }
}

/// The place of an expression in the source.
#[derive(Clone, Copy)]
struct ExprPlace {
    whole: Span,
    /// Whether the source contains the expression as its text is.
    is_exact: bool,
    /// From offsets in the expression's text to offsets in the source.
    delta: u32,
}

impl ExprPlace {
    fn span(self, start: u32, end: u32) -> Span {
        Span { start: start.wrapping_add(self.delta), end: end.wrapping_add(self.delta) }
    }
}
