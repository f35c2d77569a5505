//! Names → what they mean, and from that the order of steps.
//!
//! Writes a [`Root`] into every expression and the needs into every step. A reference is a
//! dependency; where it leads into a body that may not have run, it needs a `default(…)`.

use std::sync::Arc;

use indexmap::IndexMap;

use super::source::{Source, Span};
use crate::composition::{
    Body, Composition, Need, Step, StepKind, StepRollback, ToolCall, WaitFor,
};
use crate::diagnostic::{Code, Diagnostic, nearest};
use crate::expr::{Ast, At, Expr, Kind, Place, Root, StepIndex, Template};
use crate::types::Type;

use super::dialect::RESERVED;

/// Resolves every name of a composition.
pub(super) fn resolve(composition: &mut Composition, source: &Source) -> Vec<Diagnostic> {
    let mut symbols = Symbols::collect(composition, source);
    let mut findings = std::mem::take(&mut symbols.findings);
    let mut resolver =
        Resolver { symbols, source, findings: Vec::new(), uses: Vec::new(), next_body: 0 };
    let mut body = std::mem::take(&mut composition.body);
    resolver.body(&mut body, &Site::top());
    if let Some(output) = &mut composition.output {
        resolver.template(output, &Site::top());
    }
    findings.append(&mut resolver.findings);
    let mut needs = resolver.needs();
    findings.append(&mut resolver.findings);
    write_needs(&mut body, &mut needs, &mut 0);
    composition.body = body;
    findings
}

/// Whether what is inside a body has surely run when its step is done.
#[derive(Clone, Copy, PartialEq)]
enum Crossing {
    Surely,
    Maybe(&'static str),
}

struct BodyInfo {
    /// How many steps it has.
    steps: usize,
    /// The body and the position in it of the step that has this body.
    parent: Option<(usize, usize)>,
    owner: Option<StepIndex>,
    crossing: Crossing,
}

struct StepInfo {
    id: Arc<str>,
    id_span: Span,
    output_key: Option<Arc<str>>,
    body: usize,
    position: usize,
}

/// Names and the steps behind them, in the order of the text.
type Names = IndexMap<Arc<str>, StepIndex>;

/// What each step needs, by body and position.
type Needs = Vec<Vec<Vec<Need>>>;

/// Everything that can be named.
struct Symbols {
    bodies: Vec<BodyInfo>,
    steps: Vec<StepInfo>,
    by_id: Names,
    by_key: Names,
    given: Names,
    inputs: Vec<Arc<str>>,
    findings: Vec<Diagnostic>,
}

impl Symbols {
    fn collect(composition: &Composition, source: &Source) -> Symbols {
        let mut symbols = Symbols {
            bodies: vec![BodyInfo {
                steps: composition.body.steps.len(),
                parent: None,
                owner: None,
                crossing: Crossing::Surely,
            }],
            steps: Vec::new(),
            by_id: Names::new(),
            by_key: Names::new(),
            given: Names::new(),
            inputs: input_names(composition),
            findings: Vec::new(),
        };
        symbols.body(&composition.body, 0);
        symbols.check_names(&composition.body, source);
        symbols
    }

    fn body(&mut self, body: &Body, index: usize) {
        for (position, step) in body.steps.iter().enumerate() {
            let at = step.index as usize;
            // A step that could not be read leaves a gap; nothing refers to it.
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
                    crossing,
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

fn crossing(kind: &StepKind) -> Crossing {
    match kind {
        StepKind::Parallel { wait_for: WaitFor::All, .. } => Crossing::Surely,
        other => Crossing::Maybe(other.word()),
    }
}

/// The names that a step gives to later ones.
pub(super) fn given_names(step: &Step) -> Vec<Arc<str>> {
    let set = match &step.kind {
        StepKind::Set(names) => names.iter().map(|(name, _)| name.clone()).collect(),
        _ => Vec::new(),
    };
    let mapped = step.on_success.map_outputs.iter().map(|(_, name)| name.clone());
    let transformed = step.on_success.transform.iter().map(|(name, _)| name.clone());
    set.into_iter().chain(mapped).chain(transformed).collect()
}

/// Where an expression stands, and what is known there beyond the steps.
#[derive(Clone)]
struct Site {
    body: usize,
    /// The position in its body of the step that the expression belongs to; the composition's own
    /// `output` belongs to none.
    position: Option<usize>,
    /// Loop variables around, innermost last.
    items: Vec<(Arc<str>, StepIndex)>,
    /// `output`, `args`, `error`, where they make sense.
    extra: &'static [&'static str],
    /// Names given by this very step, which its own `transform` may read.
    own_step: Option<StepIndex>,
}

impl Site {
    fn top() -> Site {
        Site { body: 0, position: None, items: Vec::new(), extra: &[], own_step: None }
    }

    fn with(&self, extra: &'static [&'static str]) -> Site {
        Site { extra, ..self.clone() }
    }
}

/// A step's value is read somewhere.
struct Use {
    from_body: usize,
    from_position: usize,
    step: StepIndex,
    guarded: bool,
    span: Span,
}

struct Resolver<'a> {
    symbols: Symbols,
    source: &'a Source,
    findings: Vec<Diagnostic>,
    uses: Vec<Use>,
    next_body: usize,
}

impl Resolver<'_> {
    /// Bodies are numbered in the same order as in [`Symbols::body`].
    fn body(&mut self, body: &mut Body, outer: &Site) {
        let index = self.next_body;
        self.next_body += 1;
        for (position, step) in body.steps.iter_mut().enumerate() {
            let step = Arc::make_mut(step);
            let site = Site {
                body: index,
                position: Some(position),
                items: outer.items.clone(),
                extra: &[],
                own_step: Some(step.index),
            };
            self.step(step, &site);
        }
    }

    fn step(&mut self, step: &mut Step, site: &Site) {
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
        }
    }

    fn kind(&mut self, step: &mut Step, site: &Site) {
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
                    // An item's output reads the steps of its own body, after all of them.
                    let site = Site { body, position: None, own_step: None, ..inside };
                    self.template(output, &site);
                }
            }
            StepKind::Repeat(repeat) => {
                let body = self.next_body;
                self.body(&mut repeat.body, site);
                let inside = Site { body, position: None, own_step: None, ..site.clone() };
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

    fn depends_on(&mut self, step: &Step, site: &Site) {
        for (id, span) in &step.depends_on {
            match self.symbols.by_id.get(id) {
                Some(&target) => self.note_use(site, target, true, *span),
                None => {
                    let ids = self.symbols.by_id.keys().map(|id| &**id);
                    let near = nearest(id, ids).map(ToOwned::to_owned);
                    let message = format!("there is no step `{id}`");
                    let finding = Diagnostic::error(Code::UnknownStep, message, *span);
                    self.findings
                        .push(finding.fix_with(unquoted(self.source, *span), near.as_deref()));
                }
            }
        }
    }

    fn call(&mut self, call: &mut ToolCall, site: &Site) {
        self.template(&mut call.parameters.template, site);
    }

    fn template(&mut self, template: &mut Template, site: &Site) {
        template.exprs_mut(&mut |expr| self.expr(expr, site));
    }

    fn optional(&mut self, expr: Option<&mut Expr>, site: &Site) {
        if let Some(expr) = expr {
            self.expr(expr, site);
        }
    }

    fn expr(&mut self, expr: &mut Expr, site: &Site) {
        let place = expr.place();
        let mut walk = Walk { resolver: self, place: &place, site, params: Vec::new() };
        walk.ast(expr.ast_mut(), false);
    }

    fn note_use(&mut self, site: &Site, step: StepIndex, guarded: bool, span: Span) {
        if let Some(from_position) = site.position {
            self.uses.push(Use { from_body: site.body, from_position, step, guarded, span });
        }
    }

    /// From the uses, the needs of each step, by body and position.
    fn needs(&mut self) -> Needs {
        let mut needs: Needs =
            self.symbols.bodies.iter().map(|b| vec![Vec::new(); b.steps]).collect();
        for used in std::mem::take(&mut self.uses) {
            match self.symbols.level(&used) {
                Level::Need { body, position, needed } => {
                    let needs = &mut needs[body][position];
                    let reads_value = !used.guarded;
                    match needs.iter_mut().find(|need| need.position == needed) {
                        Some(need) => need.reads_value |= reads_value,
                        None => needs.push(Need { position: needed, reads_value }),
                    }
                }
                Level::Itself => {
                    let StepInfo { id, id_span, .. } = &self.symbols.steps[used.step as usize];
                    let message =
                        format!("Circular dependency detected between tools: {id} → {id}");
                    let finding = Diagnostic::error(Code::Cycle, message, *id_span)
                        .help("a step cannot wait for itself")
                        .related(used.span, "here it does");
                    self.findings.push(finding);
                }
                Level::Sibling => {
                    let id = &self.symbols.steps[used.step as usize].id;
                    let message =
                        format!("`{id}` is in another branch, which may not have run yet");
                    let finding = Diagnostic::error(Code::UnresolvedReference, message, used.span)
                        .help("move the step out of the branches, or into this one");
                    self.findings.push(finding);
                }
            }
        }
        for needs in needs.iter_mut().flatten() {
            needs.sort_unstable_by_key(|need| need.position);
        }
        needs
    }
}

/// What a use means for the order of steps.
enum Level {
    /// In `body`, the step at `position` needs the one at `needed`.
    Need { body: usize, position: usize, needed: usize },
    /// A step reads itself, or a container that it is in.
    Itself,
    /// A step reads one in another branch of the same container.
    Sibling,
}

impl Symbols {
    fn level(&self, used: &Use) -> Level {
        let target = &self.steps[used.step as usize];
        let (mut body, mut needed) = (target.body, target.position);
        let mut crossed = false;
        loop {
            if let Some(position) = self.position_in(body, used) {
                return match (position == needed, crossed) {
                    (true, true) => Level::Sibling,
                    (true, false) => Level::Itself,
                    (false, _) => Level::Need { body, position, needed },
                };
            }
            match self.bodies[body].parent {
                Some((parent, position)) => {
                    (body, needed) = (parent, position);
                    crossed = true;
                }
                None => return Level::Sibling,
            }
        }
    }

    /// The position in `body` of the step that the use is in, at any depth.
    fn position_in(&self, body: usize, used: &Use) -> Option<usize> {
        let (mut at, mut position) = (used.from_body, used.from_position);
        loop {
            if at == body {
                return Some(position);
            }
            (at, position) = self.bodies[at].parent?;
        }
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

    /// The word of the first container that must be entered from `site` to reach the step and
    /// that need not have run it.
    fn doubtful_crossing(&self, site: &Site, step: StepIndex) -> Option<(&'static str, StepIndex)> {
        let mut body = self.steps[step as usize].body;
        let mut found = None;
        while !self.is_inside(site.body, body) {
            let info = &self.bodies[body];
            if let (Crossing::Maybe(word), Some(owner)) = (info.crossing, info.owner) {
                found = Some((word, owner));
            }
            body = info.parent?.0;
        }
        found
    }
}

/// One walk through one expression.
struct Walk<'r, 'a> {
    resolver: &'r mut Resolver<'a>,
    place: &'r Place,
    site: &'r Site,
    params: Vec<Arc<str>>,
}

impl Walk<'_, '_> {
    fn span(&self, at: At) -> Span {
        self.place.locate(self.resolver.source, at)
    }

    fn error(&mut self, code: Code, at: At, message: String) -> &mut Diagnostic {
        let finding = Diagnostic::error(code, message, self.span(at));
        self.resolver.findings.push(finding);
        self.resolver.findings.last_mut().expect("a finding was just pushed")
    }

    fn ast(&mut self, ast: &mut Ast, guarded: bool) {
        if self.collapse(ast, guarded) {
            return;
        }
        match &mut ast.kind {
            Kind::Name { name, root } => {
                let name = name.clone();
                *root = self.name(&name, ast.at, guarded);
            }
            Kind::Filter(name, input, args) if matches!(&**name, "default" | "d") => {
                self.ast(input, true);
                args.iter_mut().for_each(|arg| self.ast(&mut arg.value, guarded));
            }
            Kind::Test(name, input, args) if matches!(&**name, "defined" | "undefined") => {
                self.ast(input, true);
                args.iter_mut().for_each(|arg| self.ast(&mut arg.value, guarded));
            }
            Kind::Lambda(param, body) => {
                self.params.push(param.clone());
                self.ast(body, guarded);
                self.params.pop();
            }
            _ => ast.children_mut(&mut |child| self.ast(child, guarded)),
        }
    }

    /// Paths whose first names together mean one thing: `steps.ID.output`, `state.NAME`, and a
    /// step's id followed by its own output key.
    fn collapse(&mut self, ast: &mut Ast, guarded: bool) -> bool {
        let Kind::Field(base, last) = &ast.kind else { return false };
        let last = last.clone();
        let root = match &base.kind {
            Kind::Field(head, id) if is_name(head, "steps") && !self.is_shadowed("steps") => {
                let (id, at) = (id.clone(), base.at);
                self.steps_path(&id, &last, at, ast.at, guarded)
            }
            Kind::Name { name, .. } if &**name == "steps" && !self.is_shadowed("steps") => {
                // Without a third name it is incomplete; with one the caller above has it.
                let at = ast.at;
                self.error(
                    Code::UnresolvedReference,
                    at,
                    format!("`steps.{last}` is not a value"),
                )
                .help =
                    Some(format!("name its `output`, `status` or `error`: `steps.{last}.output`"));
                Root::Unresolved
            }
            Kind::Name { name, .. } if &**name == "state" && !self.is_shadowed("state") => {
                self.state_path(&last, ast.at, guarded)
            }
            Kind::Name { name, .. } if !self.is_shadowed(name) => {
                let step = self.resolver.symbols.by_id.get(name).copied();
                let own_key = step.filter(|step| {
                    let info = &self.resolver.symbols.steps[*step as usize];
                    info.output_key.as_ref() == Some(&last) && info.id != last
                });
                match own_key {
                    Some(step) => self.step_value(step, ast.at, guarded),
                    None => return false,
                }
            }
            _ => return false,
        };
        let name = ast.path().into();
        ast.kind = Kind::Name { name, root };
        true
    }

    fn is_shadowed(&self, name: &str) -> bool {
        self.params.iter().any(|param| &**param == name)
            || self.site.items.iter().any(|(item, _)| &**item == name)
    }

    fn steps_path(&mut self, id: &Arc<str>, what: &str, id_at: At, at: At, guarded: bool) -> Root {
        let Some(&step) = self.resolver.symbols.by_id.get(id) else {
            let near = nearest(id, self.resolver.symbols.by_id.keys().map(|id| &**id));
            let help = near.map(|near| format!("did you mean `{near}`?"));
            self.error(Code::UnknownStep, id_at, format!("there is no step `{id}`")).help = help;
            return Root::Unresolved;
        };
        match what {
            "output" => self.step_value(step, at, guarded),
            // Whether a step ran is known whatever became of it.
            "status" | "error" => {
                let span = self.span(at);
                self.resolver.note_use(self.site, step, true, span);
                if what == "status" { Root::StepStatus(step) } else { Root::StepError(step) }
            }
            other => {
                let near = nearest(other, ["output", "status", "error"]);
                let message = format!("`steps.{id}` has no `{other}`");
                let help = near.map_or_else(
                    || "it has `output`, `status` and `error`".to_owned(),
                    |near| format!("did you mean `{near}`?"),
                );
                self.error(Code::UnknownPath, at, message).help = Some(help);
                Root::Unresolved
            }
        }
    }

    fn state_path(&mut self, name: &Arc<str>, at: At, guarded: bool) -> Root {
        if let Some(&step) = self.resolver.symbols.given.get(name) {
            return self.given(step, name, at, guarded);
        }
        let near = nearest(name, self.resolver.symbols.given.keys().map(|name| &**name));
        let help = near.map(|near| format!("did you mean `state.{near}`?"));
        let message = format!("Variable not found in chain state: {name}");
        self.error(Code::UnresolvedReference, at, message).help = help;
        Root::Unresolved
    }

    fn given(&mut self, step: StepIndex, name: &Arc<str>, at: At, guarded: bool) -> Root {
        // A step's own `transform` reads what its `map_outputs` gave, without waiting for itself.
        let own = self.site.own_step == Some(step) && self.site.extra.contains(&"output");
        if !own {
            self.step_value(step, at, guarded);
        }
        Root::Given(step, name.clone())
    }

    fn step_value(&mut self, step: StepIndex, at: At, guarded: bool) -> Root {
        let span = self.span(at);
        if let Some((word, owner)) = self.resolver.symbols.doubtful_crossing(self.site, step)
            && !guarded
        {
            let symbols = &self.resolver.symbols;
            let id = symbols.steps[step as usize].id.clone();
            let owner = symbols.steps[owner as usize].id.clone();
            let message = match word {
                "loop" => format!("`{id}` runs once per item of the loop `{owner}`"),
                _ => format!("`{id}` is inside the `{word}` step `{owner}` and may not have run"),
            };
            let help = format!("read the value of `{owner}` instead, or add `default(…)`");
            self.error(Code::UnresolvedReference, at, message).help = Some(help);
            return Root::Step(step);
        }
        self.resolver.note_use(self.site, step, guarded, span);
        Root::Step(step)
    }

    fn name(&mut self, name: &Arc<str>, at: At, guarded: bool) -> Root {
        if self.params.contains(name) {
            return Root::Lambda;
        }
        if let Some((_, step)) = self.site.items.iter().rev().find(|(item, _)| item == name) {
            return Root::Item(*step);
        }
        if let Some(root) = self.reserved(name, at) {
            return root;
        }
        let symbols = &self.resolver.symbols;
        if let Some(&step) = symbols.by_key.get(name).or_else(|| symbols.by_id.get(name)) {
            return self.step_value(step, at, guarded);
        }
        if let Some(&step) = symbols.given.get(name) {
            return self.given(step, name, at, guarded);
        }
        if symbols.inputs.contains(name) {
            return Root::InputField(name.clone());
        }
        self.unknown(name, at);
        Root::Unresolved
    }

    fn reserved(&mut self, name: &str, at: At) -> Option<Root> {
        match name {
            "input" => Some(Root::Input),
            "context" => Some(Root::Context),
            "run" => Some(Root::Run),
            "loop" => match self.site.items.last() {
                Some((_, step)) => Some(Root::Loop(*step)),
                None => {
                    let message = "`loop` is known inside a loop only".to_owned();
                    self.error(Code::UnresolvedReference, at, message);
                    Some(Root::Unresolved)
                }
            },
            "state" | "steps" => {
                let message = format!("`{name}` alone is not a value");
                self.error(Code::UnresolvedReference, at, message).help =
                    Some(format!("name one of its fields: `{name}.NAME`"));
                Some(Root::Unresolved)
            }
            "output" | "args" | "error" if !self.site.extra.contains(&name) => {
                let message = format!("`{name}` is not known here");
                let help = match name {
                    "output" => {
                        "it is known in `success_when`, `fail_when`, `transform`, `rollback` and `probe`"
                    }
                    "args" => "it is known in `success_when`, `fail_when`, `rollback` and `probe`",
                    _ => "it is known in `fallback` and in `on_failure.default`",
                };
                self.error(Code::UnresolvedReference, at, message).help = Some(help.to_owned());
                Some(Root::Unresolved)
            }
            "output" => Some(Root::Output),
            "args" => Some(Root::Args),
            "error" => Some(Root::Error),
            _ => None,
        }
    }

    fn unknown(&mut self, name: &str, at: At) {
        let symbols = &self.resolver.symbols;
        let items = self.site.items.iter().map(|(item, _)| item);
        let candidates: Vec<&str> = symbols
            .by_key
            .keys()
            .chain(symbols.by_id.keys())
            .chain(symbols.given.keys())
            .chain(&symbols.inputs)
            .chain(items)
            .map(|name| &**name)
            .chain(RESERVED.iter().copied())
            .collect();
        let near = nearest(name, candidates).map(ToOwned::to_owned);
        let span = self.span(at);
        let mut finding = Diagnostic::error(
            Code::UnresolvedReference,
            format!("`{name}` is not known here"),
            span,
        );
        let dashed = candidates_with_dash(&self.resolver.symbols, name);
        finding = match near {
            _ if dashed.is_some() => {
                let id = dashed.unwrap_or_default();
                finding.help(format!(
                    "a name with a dash stands alone in `{{{{ … }}}}`; in an expression write `steps['{id}'].output`"
                ))
            }
            Some(near) => finding.fix(span, near),
            None => finding.help("name a step, an output key, or `input.NAME`"),
        };
        self.resolver.findings.push(finding);
    }
}

/// The step that is meant when its id has a dash, which an expression reads as a minus.
fn candidates_with_dash(symbols: &Symbols, name: &str) -> Option<Arc<str>> {
    let begins = |id: &&Arc<str>| id.strip_prefix(name).is_some_and(|rest| rest.starts_with('-'));
    symbols.by_id.keys().chain(symbols.by_key.keys()).find(begins).cloned()
}

fn is_name(ast: &Ast, wanted: &str) -> bool {
    matches!(&ast.kind, Kind::Name { name, .. } if &**name == wanted)
}

/// The inside of a quoted scalar, so that a replacement keeps the quotes.
pub(super) fn unquoted(source: &Source, span: Span) -> Span {
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
