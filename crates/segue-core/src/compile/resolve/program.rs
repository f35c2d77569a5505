//! Names in a program: the state, and whether a name can be set before it is read.
//!
//! The order of a program is known only at run time, so references are no dependencies here. Two
//! errors are certain nevertheless: names that no step sets, and reads of names that only later
//! steps set.

use std::sync::Arc;

use super::symbols::UseRelation;
use super::walk::{ExprWalk, alone_help, name_with_dash};
use super::{Resolver, StepUse, UseKind};
use crate::compile::dialect::is_reserved_in_state;
use crate::composition::{Body, Target};
use crate::diagnostic::{Code, Diagnostic, Severity, nearest_name};
use crate::expr::{Ast, AstKind, ExprRoot, ExprSpan};

/// A read of a state name without a `default(…)`, where only steps set the name.
pub(super) struct StateUse {
    name: Arc<str>,
    /// The read, as a use of the step that sets the name.
    used: StepUse,
}

impl ExprWalk<'_, '_> {
    /// Resolves `state.NAME`; returns false for other expressions.
    pub(super) fn state_field(&mut self, ast: &mut Ast, guarded: bool) -> bool {
        let AstKind::Field(base, name) = &mut ast.kind else { return false };
        let AstKind::Name { name: head, root } = &mut base.kind else { return false };
        if &**head != "state" || self.is_shadowed("state") {
            return false;
        }
        // Inside a loop, `state.NAME` also finds the loop variable.
        let item = self.site.items.iter().rev().find(|(item, _)| item == name);
        if let Some((_, step)) = item.filter(|_| !self.is_in_state(name)) {
            let root = ExprRoot::Item(*step);
            ast.kind = AstKind::Name { name: ast.path().into(), root };
            return true;
        }
        *root = ExprRoot::State;
        let (name, at) = (name.clone(), ast.at);
        self.state_name(&name, at, guarded, "state.");
        true
    }

    fn is_in_state(&self, name: &Arc<str>) -> bool {
        let symbols = &self.resolver.symbols;
        symbols.givers.contains_key(name)
            || symbols.inputs.contains(name)
            || is_reserved_in_state(name)
    }

    /// Looks up a state name and records the read.
    pub(super) fn state_name(
        &mut self,
        name: &Arc<str>,
        at: ExprSpan,
        guarded: bool,
        prefix: &str,
    ) {
        let symbols = &self.resolver.symbols;
        if !self.is_in_state(name) {
            self.unknown_in_state(name, at, guarded, prefix);
            return;
        }
        let by_steps_alone = !symbols.inputs.contains(name) && !symbols.input_is_open;
        // Expressions after the call may read names that the step itself set; a rollback runs last.
        let before_the_call = !self.site.extra.contains(&"output");
        let is_doubtful = by_steps_alone && before_the_call && !guarded;
        let Some(from_position) = self.site.position.filter(|_| is_doubtful) else { return };
        let givers = symbols.givers.get(name).map_or(&[][..], Vec::as_slice);
        let span = self.span(at);
        let reads: Vec<StateUse> = givers
            .iter()
            .map(|step| StateUse {
                name: name.clone(),
                used: StepUse {
                    from_body: self.site.body,
                    from_position,
                    step: *step,
                    kind: UseKind::read(guarded),
                    span,
                },
            })
            .collect();
        if !reads.is_empty() {
            self.resolver.state_uses.push(reads);
        }
    }

    /// Reports an unknown state name. An open input may still provide it, so then only a likely
    /// typo is reported.
    fn unknown_in_state(&mut self, name: &str, at: ExprSpan, guarded: bool, prefix: &str) {
        let symbols = &self.resolver.symbols;
        let in_state = symbols.givers.keys().chain(&symbols.inputs).map(|known| &**known);
        // Without the prefix `state.` the name may refer to anything.
        let others = symbols.by_id.keys().chain(symbols.by_key.keys()).map(|known| &**known);
        let items = self.site.items.iter().map(|(item, _)| &**item);
        let others = others.chain(items).filter(|_| prefix.is_empty());
        let near = nearest_name(name, in_state.chain(others)).map(|near| format!("{prefix}{near}"));
        let is_open = symbols.input_is_open;
        if is_open && guarded && near.is_none() {
            return;
        }
        let span = self.span(at);
        let message = format!("Variable not found in chain state: {name}");
        let mut finding = Diagnostic::error(Code::UnresolvedReference, message, span);
        if is_open && near.is_none() {
            finding.severity = Severity::Warning;
        }
        let dashed = name_with_dash(&self.resolver.symbols, name).filter(|_| prefix.is_empty());
        finding = match (dashed, near) {
            (Some(id), _) => finding.help(alone_help(&id)),
            (None, Some(near)) => finding.fix(span, near),
            (None, None) => finding.help(format!(
                "declare `{name}` under `parameters`, or give it with `map_outputs`, `transform` or `set`"
            )),
        };
        self.resolver.findings.push(finding);
    }
}

impl Resolver<'_> {
    /// Reports reads of steps that have certainly not run yet, among the outermost steps.
    pub(super) fn reads_too_early(&mut self, body: &Body) {
        let returns = returns(body);
        let symbols = &self.symbols;
        let is_too_early = |used: &StepUse| match symbols.level(used) {
            UseRelation::Need { body: 0, position, needed } => {
                needed > position && !returns[position]
            }
            UseRelation::Itself if used.from_body == 0 => !returns[used.from_position],
            _ => false,
        };
        let mut findings = Vec::new();
        for used in self.uses.iter().filter(|used| used.kind == UseKind::Read) {
            let id = &symbols.steps[used.step as usize].id;
            if matches!(symbols.level(used), UseRelation::Sibling) {
                findings.push(super::other_branch(id, used.span));
            } else if is_too_early(used) {
                let message = format!("`{id}` has not run yet when this step reads it");
                let finding = Diagnostic::error(Code::UnresolvedReference, message, used.span)
                    .help(format!("move this step behind `{id}`, or add `default(…)`"));
                findings.push(finding);
            }
        }
        for reads in &self.state_uses {
            let [first, ..] = reads.as_slice() else { continue };
            if reads.iter().all(|read| is_too_early(&read.used)) {
                let message = format!("Variable not found in chain state: {}", first.name);
                let giver = &symbols.steps[first.used.step as usize].id;
                let help =
                    format!("`{giver}` sets it, and has not run yet when this step reads it");
                let finding =
                    Diagnostic::error(Code::UnresolvedReference, message, first.used.span);
                findings.push(finding.help(help));
            }
        }
        self.findings.append(&mut findings);
    }
}

/// For each step, whether a jump leads from it or a later step to it or an earlier step. Only then
/// can a later step have run already.
fn returns(body: &Body) -> Vec<bool> {
    let mut begins = vec![0i64; body.steps.len() + 1];
    for (from, ways) in body.transitions().iter().enumerate() {
        for target in [Some(ways.success), ways.failure].into_iter().flatten() {
            if let Target::Step(to) = target
                && to as usize <= from
            {
                begins[to as usize] += 1;
                begins[from + 1] -= 1;
            }
        }
    }
    let mut depth = 0;
    let inside = |change: &i64| {
        depth += change;
        depth > 0
    };
    begins[..body.steps.len()].iter().map(inside).collect()
}
