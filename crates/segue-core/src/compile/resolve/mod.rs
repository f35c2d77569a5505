//! Resolves names, and derives the order of steps from them.
//!
//! Sets the [`Root`](crate::expr::Root) of every expression and the needs of every step. A
//! reference is a dependency. A reference into a body that may not have run needs a `default(…)`.

mod program;
mod symbols;
mod walk;

use std::sync::Arc;

use crate::composition::{
    Body, Composition, Dialect, Flow, Need, Step, StepKind, StepRollback, ToolCall, Unresolved,
};
use crate::diagnostic::{Code, Diagnostic, Severity, nearest_name};
use crate::expr::{Expr, StepIndex, Template};
use crate::source::{Source, Span};
use program::StateUse;
use symbols::{StepInfo, Symbols, UseRelation};
use walk::ExprWalk;

pub(crate) use symbols::given_names;

/// The needs of each step, by body and position.
type Needs = Vec<Vec<Vec<Need>>>;

/// Resolves every name of a composition.
pub(super) fn resolve(composition: &mut Composition, source: &Source) -> Vec<Diagnostic> {
    let mut symbols = Symbols::collect(composition, source);
    let mut findings = std::mem::take(&mut symbols.findings);
    let mut resolver = Resolver {
        keeps: composition.unresolved == Unresolved::Keep,
        is_list: composition.dialect == Dialect::Skill,
        symbols,
        source,
        findings: Vec::new(),
        uses: Vec::new(),
        state_uses: Vec::new(),
        next_body: 0,
    };
    let mut body = std::mem::take(&mut composition.body);
    resolver.body(&mut body, &ExprSite::top());
    if let Some(output) = &mut composition.output {
        resolver.template(output, &ExprSite::top());
    }
    match body.flow {
        Flow::Graph => {
            let mut needs = resolver.needs();
            write_needs(&mut body, &mut needs, &mut 0);
        }
        Flow::Program => resolver.reads_too_early(&body),
    }
    findings.append(&mut resolver.findings);
    composition.body = body;
    findings
}

/// The location of an expression, and the names that are in scope there beside the steps.
#[derive(Clone)]
struct ExprSite {
    body: usize,
    /// The position of the expression's step in its body; `None` for the composition's own
    /// `output`.
    position: Option<usize>,
    /// Enclosing loop variables, innermost last.
    items: Vec<(Arc<str>, StepIndex)>,
    /// `output`, `args` and `error`, where they are in scope.
    extra: &'static [&'static str],
    /// The step itself, whose `transform` may read the names that it defines.
    own_step: Option<StepIndex>,
}

impl ExprSite {
    fn top() -> ExprSite {
        ExprSite { body: 0, position: None, items: Vec::new(), extra: &[], own_step: None }
    }

    fn with(&self, extra: &'static [&'static str]) -> ExprSite {
        ExprSite { extra, ..self.clone() }
    }
}

/// A read of a step's value, or its name in `depends_on`.
struct StepUse {
    from_body: usize,
    from_position: usize,
    step: StepIndex,
    kind: UseKind,
    span: Span,
}

/// How a step uses another one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum UseKind {
    /// It reads its value.
    Read,
    /// It reads its value with a `default(…)`, or only its status.
    GuardedRead,
    /// It only waits for it.
    DependsOn,
}

impl UseKind {
    fn read(is_guarded: bool) -> UseKind {
        if is_guarded { UseKind::GuardedRead } else { UseKind::Read }
    }
}

struct Resolver<'a> {
    /// Whether unresolved references stay in arguments as text.
    keeps: bool,
    /// Whether steps run in list order, whatever they read.
    is_list: bool,
    symbols: Symbols,
    source: &'a Source,
    findings: Vec<Diagnostic>,
    uses: Vec<StepUse>,
    /// For each read of a state name, one entry per step that sets it.
    state_uses: Vec<Vec<StateUse>>,
    next_body: usize,
}

impl Resolver<'_> {
    /// Bodies have the same numbers as in [`Symbols::body`].
    fn body(&mut self, body: &mut Body, outer: &ExprSite) {
        let index = self.next_body;
        self.next_body += 1;
        for (position, step) in body.steps.iter_mut().enumerate() {
            let step = Arc::make_mut(step);
            let site = ExprSite {
                body: index,
                position: Some(position),
                items: outer.items.clone(),
                extra: &[],
                own_step: Some(step.index),
            };
            self.step(step, &site);
        }
    }

    fn step(&mut self, step: &mut Step, site: &ExprSite) {
        self.depends_on(step, site);
        self.optional(step.when.as_mut(), site);
        self.kind(step, site);
        for call in &mut step.fallback {
            self.call(call, &site.with(&["error"]));
        }
        let over_output = site.with(&["output", "args"]);
        self.optional(step.success_when.as_mut(), &over_output);
        self.optional(step.fail_when.as_mut(), &over_output);
        for (_, template) in &mut step.on_success.transform {
            self.template(template, &over_output);
        }
        if let Some(template) = &mut step.on_failure.default {
            self.template(template, &site.with(&["error", "args"]));
        }
        if let StepRollback::Call(call) = &mut step.rollback {
            self.call(call, &over_output);
        }
        if let Some(probe) = &mut step.probe {
            self.call(&mut probe.call, &site.with(&["args"]));
            self.expr(&mut probe.done_when, &over_output);
            if let Some(output) = &mut probe.output {
                self.template(output, &over_output);
            }
        }
    }

    fn kind(&mut self, step: &mut Step, site: &ExprSite) {
        match &mut step.kind {
            StepKind::Tool(call) => self.call(call, site),
            StepKind::Parallel { branches, .. } => {
                for branch in branches {
                    self.body(&mut branch.body, site);
                }
            }
            StepKind::Loop(each) => {
                self.template(&mut each.over, site);
                let mut inside = site.clone();
                inside.items.push((each.item.clone(), step.index));
                let body = self.next_body;
                self.body(&mut each.body, &inside);
                if let Some(output) = &mut each.output {
                    // An item's output is evaluated after all steps of its body, so it may read
                    // them.
                    let site = ExprSite { body, position: None, own_step: None, ..inside };
                    self.template(output, &site);
                }
            }
            StepKind::Repeat(repeat) => {
                let body = self.next_body;
                self.body(&mut repeat.body, site);
                let inside = ExprSite { body, position: None, own_step: None, ..site.clone() };
                self.expr(&mut repeat.until, &inside);
            }
            StepKind::Choose { cases, otherwise } => {
                for case in cases {
                    self.expr(&mut case.when, site);
                    self.body(&mut case.body, site);
                }
                if let Some(body) = otherwise {
                    self.body(body, site);
                }
            }
            StepKind::Set(names) => {
                for (_, template) in names {
                    self.template(template, site);
                }
            }
            StepKind::Approve { message, .. } => self.template(message, site),
            StepKind::Wait { duration } => self.template(duration, site),
            StepKind::Expand(template) => self.template(template, site),
        }
    }

    fn depends_on(&mut self, step: &Step, site: &ExprSite) {
        for (id, span) in &step.depends_on {
            match self.symbols.by_id.get(id) {
                Some(&target) => self.note_use(site, target, UseKind::DependsOn, *span),
                None => {
                    let ids = self.symbols.by_id.keys().map(|id| &**id);
                    let near = nearest_name(id, ids).map(ToOwned::to_owned);
                    let message = format!("there is no step `{id}`");
                    let finding = Diagnostic::error(Code::UnknownStep, message, *span);
                    self.findings
                        .push(finding.fix_with(unquoted(self.source, *span), near.as_deref()));
                }
            }
        }
    }

    fn call(&mut self, call: &mut ToolCall, site: &ExprSite) {
        let known = self.findings.len();
        self.template(&mut call.parameters.template, site);
        if self.keeps {
            downgrade_to_warnings(&mut self.findings[known..]);
        }
    }

    fn template(&mut self, template: &mut Template, site: &ExprSite) {
        template.exprs_mut(&mut |expr| self.expr(expr, site));
    }

    fn optional(&mut self, expr: Option<&mut Expr>, site: &ExprSite) {
        if let Some(expr) = expr {
            self.expr(expr, site);
        }
    }

    fn expr(&mut self, expr: &mut Expr, site: &ExprSite) {
        let place = expr.location();
        let mut walk = ExprWalk { resolver: self, place: &place, site, params: Vec::new() };
        walk.ast(expr.ast_mut(), false);
    }

    fn note_use(&mut self, site: &ExprSite, step: StepIndex, kind: UseKind, span: Span) {
        let from = match site.position {
            Some(position) => Some((site.body, position)),
            // At the end of a body its own steps are done; the container waits for steps outside.
            None if self.symbols.is_within(step, site.body) => None,
            None => self.symbols.bodies[site.body].parent,
        };
        if let Some((from_body, from_position)) = from {
            self.uses.push(StepUse { from_body, from_position, step, kind, span });
        }
    }

    /// Derives the needs of each step from the uses, by body and position.
    fn needs(&mut self) -> Needs {
        let mut needs: Needs =
            self.symbols.bodies.iter().map(|b| vec![Vec::new(); b.steps]).collect();
        for used in std::mem::take(&mut self.uses) {
            match self.symbols.level(&used) {
                UseRelation::Need { position, needed, .. } if self.is_list && needed > position => {
                    let id = &self.symbols.steps[used.step as usize].id;
                    self.findings.push(later(id, used.span));
                }
                UseRelation::Itself if self.is_list => {
                    let id = &self.symbols.steps[used.step as usize].id;
                    self.findings.push(later(id, used.span));
                }
                UseRelation::Need { body, position, needed } => {
                    let needs = &mut needs[body][position];
                    let reads_value = used.kind == UseKind::Read;
                    let is_reference = used.kind != UseKind::DependsOn;
                    match needs.iter_mut().find(|need| need.position == needed) {
                        Some(need) => {
                            need.reads_value |= reads_value;
                            need.is_reference |= is_reference;
                        }
                        None => needs.push(Need { position: needed, reads_value, is_reference }),
                    }
                }
                UseRelation::Itself => {
                    let StepInfo { id, id_span, .. } = &self.symbols.steps[used.step as usize];
                    let message =
                        format!("Circular dependency detected between tools: {id} → {id}");
                    let finding = Diagnostic::error(Code::Cycle, message, *id_span)
                        .help("a step cannot wait for itself")
                        .related(used.span, "here it does");
                    self.findings.push(finding);
                }
                UseRelation::Sibling => {
                    let id = &self.symbols.steps[used.step as usize].id;
                    self.findings.push(other_branch(id, used.span));
                }
            }
        }
        for needs in needs.iter_mut().flatten() {
            needs.sort_unstable_by_key(|need| need.position);
        }
        needs
    }
}

/// A step of a list reads a later one, which has not run yet.
fn later(id: &str, span: Span) -> Diagnostic {
    let message = format!("`{id}` has not run yet when this step reads it");
    Diagnostic::warning(Code::UnresolvedReference, message, span)
        .help("the reference stays as written; steps run in the order of their ids")
}

/// With `unresolved: keep`, an unresolved reference is only a warning.
pub(super) fn downgrade_to_warnings(findings: &mut [Diagnostic]) {
    for finding in findings {
        let leads_nowhere = matches!(
            finding.code,
            Code::UnresolvedReference | Code::UnknownPath | Code::UnknownStep
        );
        if leads_nowhere && finding.severity == Severity::Error {
            finding.severity = Severity::Warning;
            let kept = "the reference stays as written";
            finding.help = Some(match finding.help.take() {
                Some(help) => format!("{help}; else {kept}"),
                None => kept.to_owned(),
            });
        }
    }
}

fn other_branch(id: &str, span: Span) -> Diagnostic {
    let message = format!("`{id}` is in another branch, which may not have run yet");
    Diagnostic::error(Code::UnresolvedReference, message, span)
        .help("move the step out of the branches, or into this one")
}

/// The inside of a quoted scalar, so that a replacement keeps the quotes.
pub(crate) fn unquoted(source: &Source, span: Span) -> Span {
    let text = source.slice(span);
    if text.len() >= 2 && text.starts_with(['"', '\'']) {
        return Span { start: span.start + 1, end: span.end - 1 };
    }
    span
}

fn write_needs(body: &mut Body, needs: &mut Needs, next: &mut usize) {
    let index = *next;
    *next += 1;
    for (position, step) in body.steps.iter_mut().enumerate() {
        let step = Arc::make_mut(step);
        step.needs = std::mem::take(&mut needs[index][position]);
        for inner in step.kind.bodies_mut() {
            write_needs(inner, needs, next);
        }
    }
}
