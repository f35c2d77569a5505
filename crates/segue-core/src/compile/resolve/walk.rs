//! Resolves the names of one expression.

use std::sync::Arc;

use super::symbols::Symbols;
use super::{ExprSite, Resolver, UseKind};
use crate::compile::dialect::RESERVED;
use crate::diagnostic::{Code, Diagnostic, nearest_name};
use crate::expr::{Ast, AstKind, ExprLocation, ExprRoot, ExprSpan, StepIndex};
use crate::source::Span;

/// One traversal of one expression.
pub(super) struct ExprWalk<'r, 'a> {
    pub(super) resolver: &'r mut Resolver<'a>,
    pub(super) place: &'r ExprLocation,
    pub(super) site: &'r ExprSite,
    pub(super) params: Vec<Arc<str>>,
}

impl ExprWalk<'_, '_> {
    pub(super) fn span(&self, at: ExprSpan) -> Span {
        self.place.locate(self.resolver.source, at)
    }

    fn error(&mut self, code: Code, at: ExprSpan, message: String) -> &mut Diagnostic {
        let finding = Diagnostic::error(code, message, self.span(at));
        self.resolver.findings.push(finding);
        self.resolver.findings.last_mut().expect("a finding was just pushed")
    }

    pub(super) fn ast(&mut self, ast: &mut Ast, guarded: bool) {
        if self.resolver.symbols.is_program && self.state_field(ast, guarded) {
            return;
        }
        if self.collapse(ast, guarded) {
            return;
        }
        match &mut ast.kind {
            AstKind::Name { name, .. } => {
                let name = name.clone();
                let root = self.name(&name, ast.at, guarded);
                ast.kind = match root {
                    // A bare state name is a field of the state.
                    ExprRoot::State if &*name != "state" => {
                        let state = AstKind::Name { name: "state".into(), root };
                        AstKind::Field(Box::new(Ast { at: ast.at, kind: state }), name)
                    }
                    root => AstKind::Name { name, root },
                };
            }
            AstKind::Filter(name, input, args) if matches!(&**name, "default" | "d") => {
                self.ast(input, true);
                args.iter_mut().for_each(|arg| self.ast(&mut arg.value, guarded));
            }
            AstKind::Test(name, input, args) if matches!(&**name, "defined" | "undefined") => {
                self.ast(input, true);
                args.iter_mut().for_each(|arg| self.ast(&mut arg.value, guarded));
            }
            AstKind::Lambda(param, body) => {
                self.params.push(param.clone());
                self.ast(body, guarded);
                self.params.pop();
            }
            _ => ast.children_mut(&mut |child| self.ast(child, guarded)),
        }
    }

    /// Resolves paths whose first segments form one reference: `steps.ID.output`, `state.NAME`, and
    /// a step's id followed by its own output key.
    fn collapse(&mut self, ast: &mut Ast, guarded: bool) -> bool {
        let AstKind::Field(base, last) = &ast.kind else { return false };
        let last = last.clone();
        let root = match &base.kind {
            AstKind::Field(head, id) if is_name(head, "steps") && !self.is_shadowed("steps") => {
                let (id, at) = (id.clone(), base.at);
                self.steps_path(&id, &last, at, ast.at, guarded)
            }
            AstKind::Name { name, .. } if &**name == "steps" && !self.is_shadowed("steps") => {
                // `steps.ID` without a third segment is incomplete; with one, the enclosing node
                // resolves it.
                let at = ast.at;
                self.error(
                    Code::UnresolvedReference,
                    at,
                    format!("`steps.{last}` is not a value"),
                )
                .help =
                    Some(format!("name its `output`, `status` or `error`: `steps.{last}.output`"));
                ExprRoot::Unresolved
            }
            AstKind::Name { name, .. } if &**name == "state" && !self.is_shadowed("state") => {
                self.state_path(&last, ast.at, guarded)
            }
            AstKind::Name { name, .. } if !self.is_shadowed(name) => {
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
        ast.kind = AstKind::Name { name, root };
        true
    }

    pub(super) fn is_shadowed(&self, name: &str) -> bool {
        self.params.iter().any(|param| &**param == name)
            || self.site.items.iter().any(|(item, _)| &**item == name)
    }

    fn steps_path(
        &mut self,
        id: &Arc<str>,
        what: &str,
        id_at: ExprSpan,
        at: ExprSpan,
        guarded: bool,
    ) -> ExprRoot {
        let Some(&step) = self.resolver.symbols.by_id.get(id) else {
            let near = nearest_name(id, self.resolver.symbols.by_id.keys().map(|id| &**id));
            let help = near.map(|near| format!("did you mean `{near}`?"));
            self.error(Code::UnknownStep, id_at, format!("there is no step `{id}`")).help = help;
            return ExprRoot::Unresolved;
        };
        match what {
            "output" => self.step_value(step, at, guarded),
            // Every step has a status, whether it ran or not.
            "status" | "error" => {
                let span = self.span(at);
                self.resolver.note_use(self.site, step, UseKind::GuardedRead, span);
                if what == "status" {
                    ExprRoot::StepStatus(step)
                } else {
                    ExprRoot::StepError(step)
                }
            }
            other => {
                let near = nearest_name(other, ["output", "status", "error"]);
                let message = format!("`steps.{id}` has no `{other}`");
                let help = near.map_or_else(
                    || "it has `output`, `status` and `error`".to_owned(),
                    |near| format!("did you mean `{near}`?"),
                );
                self.error(Code::UnknownPath, at, message).help = Some(help);
                ExprRoot::Unresolved
            }
        }
    }

    fn state_path(&mut self, name: &Arc<str>, at: ExprSpan, guarded: bool) -> ExprRoot {
        if let Some(&step) = self.resolver.symbols.given.get(name) {
            return self.given(step, name, at, guarded);
        }
        let near = nearest_name(name, self.resolver.symbols.given.keys().map(|name| &**name));
        let help = near.map(|near| format!("did you mean `state.{near}`?"));
        let message = format!("Variable not found in chain state: {name}");
        self.error(Code::UnresolvedReference, at, message).help = help;
        ExprRoot::Unresolved
    }

    fn given(&mut self, step: StepIndex, name: &Arc<str>, at: ExprSpan, guarded: bool) -> ExprRoot {
        // A step's own `transform` reads names from its `map_outputs` without waiting for itself.
        let own = self.site.own_step == Some(step) && self.site.extra.contains(&"output");
        if !own {
            self.step_value(step, at, guarded);
        }
        ExprRoot::Given(step, name.clone())
    }

    fn step_value(&mut self, step: StepIndex, at: ExprSpan, guarded: bool) -> ExprRoot {
        let span = self.span(at);
        if let Some((word, owner)) = self.resolver.symbols.uncertain_reachability(self.site, step)
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
            return ExprRoot::Step(step);
        }
        self.resolver.note_use(self.site, step, UseKind::read(guarded), span);
        ExprRoot::Step(step)
    }

    fn name(&mut self, name: &Arc<str>, at: ExprSpan, guarded: bool) -> ExprRoot {
        if self.params.contains(name) {
            return ExprRoot::Lambda;
        }
        if let Some((_, step)) = self.site.items.iter().rev().find(|(item, _)| item == name) {
            return ExprRoot::Item(*step);
        }
        if let Some(root) = self.reserved(name, at) {
            return root;
        }
        let symbols = &self.resolver.symbols;
        if let Some(&step) = symbols.by_key.get(name).or_else(|| symbols.by_id.get(name)) {
            return self.step_value(step, at, guarded);
        }
        if symbols.is_program {
            self.state_name(name, at, guarded, "");
            return ExprRoot::State;
        }
        if let Some(&step) = symbols.given.get(name) {
            return self.given(step, name, at, guarded);
        }
        if symbols.inputs.contains(name) {
            return ExprRoot::InputField(name.clone());
        }
        self.unknown(name, at);
        ExprRoot::Unresolved
    }

    fn reserved(&mut self, name: &str, at: ExprSpan) -> Option<ExprRoot> {
        match name {
            "input" => Some(ExprRoot::Input),
            "context" => Some(ExprRoot::Context),
            "run" => Some(ExprRoot::Run),
            "loop" => match self.site.items.last() {
                Some((_, step)) => Some(ExprRoot::Loop(*step)),
                None => {
                    let message = "`loop` is available only inside a loop".to_owned();
                    self.error(Code::UnresolvedReference, at, message);
                    Some(ExprRoot::Unresolved)
                }
            },
            "state" if self.resolver.symbols.is_program => Some(ExprRoot::State),
            "state" | "steps" => {
                let message = format!("`{name}` alone is not a value");
                self.error(Code::UnresolvedReference, at, message).help =
                    Some(format!("name one of its fields: `{name}.NAME`"));
                Some(ExprRoot::Unresolved)
            }
            "output" | "args" | "error" if !self.site.extra.contains(&name) => {
                let message = format!("`{name}` is not available here");
                let help = match name {
                    "output" => {
                        "it is available in `success_when`, `fail_when`, `transform`, `rollback` and `probe`"
                    }
                    "args" => {
                        "it is available in `success_when`, `fail_when`, `rollback` and `probe`"
                    }
                    _ => "it is available in `fallback` and in `on_failure.default`",
                };
                self.error(Code::UnresolvedReference, at, message).help = Some(help.to_owned());
                Some(ExprRoot::Unresolved)
            }
            "output" => Some(ExprRoot::Output),
            "args" => Some(ExprRoot::Args),
            "error" => Some(ExprRoot::Error),
            _ => None,
        }
    }

    fn unknown(&mut self, name: &str, at: ExprSpan) {
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
        let near = nearest_name(name, candidates).map(ToOwned::to_owned);
        let span = self.span(at);
        let mut finding = Diagnostic::error(
            Code::UnresolvedReference,
            format!("`{name}` is not known here"),
            span,
        );
        finding = match (name_with_dash(&self.resolver.symbols, name), near) {
            (Some(id), _) => finding.help(alone_help(&id)),
            (None, Some(near)) => finding.fix(span, near),
            (None, None) => finding.help("name a step, an output key, or `input.NAME`"),
        };
        self.resolver.findings.push(finding);
    }
}

/// The step with a dash in its id that an expression read as a subtraction.
pub(super) fn name_with_dash(symbols: &Symbols, name: &str) -> Option<Arc<str>> {
    let begins = |id: &&Arc<str>| id.strip_prefix(name).is_some_and(|rest| rest.starts_with('-'));
    symbols.by_id.keys().chain(symbols.by_key.keys()).find(begins).cloned()
}

/// The help for that.
pub(super) fn alone_help(id: &str) -> String {
    format!(
        "a name with a dash stands alone in `{{{{ … }}}}`; in an expression write `steps['{id}'].output`"
    )
}

fn is_name(ast: &Ast, wanted: &str) -> bool {
    matches!(&ast.kind, AstKind::Name { name, .. } if &**name == wanted)
}
