//! Static checks: every problem of a composition that can be found without calling a tool.
//!
//! One pass over the resolved composition checks tools and parameters against the catalog, types of
//! expressions, order and reachability, and gives hints. Each concern is one function; all findings
//! are returned together.

mod guards;
mod hints;
mod observed;
mod order;
mod parameters;
mod plan;
mod program;
mod tools;

use super::resolve::downgrade_to_warnings;
use super::typing::{CallTyping, Typing};
use crate::composition::{Composition, Step, StepKind, StepRollback, ToolCall, Unresolved};
use crate::diagnostic::{Code, Diagnostic, Severity, nearest_name};
use crate::document::Node;
use crate::expr::{AstKind, Expr, Finding, Template, TypeScope};
use crate::source::{Source, Span};
use crate::types::{FieldLookup, Type};
use crate::value::Value;

pub(crate) use observed::{exprs_of, note_ast, note_reads, templates_of};
pub(super) use order::check as check_circles;
pub(super) use plan::check as check_order;
pub(super) use tools::attach as attach_tools;

/// Checks a composition whose names are resolved and whose tools are attached.
pub(super) fn check(composition: &Composition, source: &Source, root: &Node) -> Vec<Diagnostic> {
    let mut findings = order::check(composition);
    let typing = Typing::new(composition);
    let surely = types(composition, source, root, &typing);
    let likely = observed::check_observed(composition, &surely, |typing| {
        types(composition, source, root, typing)
    });
    findings.extend(surely);
    findings.extend(likely);
    findings.extend(tools::recursion(composition));
    findings.extend(tools::probes(composition));
    findings.extend(observed::check(composition, &typing));
    findings.extend(program::check(composition, root));
    findings.extend(guards::check(composition));
    findings.extend(hints::check(composition, root));
    findings
}

/// Tools, their parameters and the types of expressions.
fn types(
    composition: &Composition,
    source: &Source,
    root: &Node,
    typing: &Typing<'_>,
) -> Vec<Diagnostic> {
    let schemas = parameters::SchemaCache::default();
    let keeps = composition.unresolved == Unresolved::Keep;
    let mut checker = Checker { source, root, typing, keeps, findings: Vec::new(), schemas };
    composition.body.walk(&mut |step| checker.step(step));
    if let Some(output) = &composition.output {
        checker.template(output, typing);
    }
    checker.findings
}

/// State that the checks of one composition share.
struct Checker<'a> {
    source: &'a Source,
    /// The document, for spans inside parameters.
    root: &'a Node,
    typing: &'a Typing<'a>,
    /// Whether unresolved references stay in arguments as text (`unresolved: keep`).
    keeps: bool,
    findings: Vec<Diagnostic>,
    schemas: parameters::SchemaCache,
}

impl Checker<'_> {
    fn step(&mut self, step: &Step) {
        let typing = self.typing;
        if let Some(when) = &step.when {
            self.condition(when, typing, "`when`");
        }
        match &step.kind {
            StepKind::Tool(call) => self.tool_step(step, call),
            StepKind::Parallel { .. } => {}
            StepKind::Loop(each) => {
                let over = self.template(&each.over, typing);
                if let Some(reason) = over.conflict(&Type::array(Type::Any)) {
                    let span = self.template_span(&each.over, step.id_span);
                    let message = format!("`over` must be an array: {reason}");
                    self.findings.push(Diagnostic::error(Code::TypeMismatch, message, span));
                }
                if let Some(output) = &each.output {
                    self.template(output, typing);
                }
            }
            StepKind::Repeat(repeat) => self.condition(&repeat.until, typing, "`until`"),
            StepKind::Choose { cases, .. } => {
                for case in cases {
                    self.condition(&case.when, typing, "`when`");
                }
            }
            StepKind::Set(names) => {
                for (_, template) in names {
                    self.template(template, typing);
                }
            }
            StepKind::Approve { message, .. } => {
                self.template(message, typing);
            }
            StepKind::Wait { duration } => {
                let ty = self.template(duration, typing);
                let wanted = Type::union([Type::String, Type::Integer]);
                if let Some(reason) = ty.conflict(&wanted) {
                    let span = self.template_span(duration, step.id_span);
                    let message = format!("`wait` must be a duration: {reason}");
                    self.findings.push(Diagnostic::error(Code::TypeMismatch, message, span));
                }
            }
            StepKind::Expand(template) => {
                self.template(template, typing);
            }
        }
    }

    fn tool_step(&mut self, step: &Step, call: &ToolCall) {
        let typing = self.typing;
        self.call(call, typing);
        for fallback in &step.fallback {
            self.call(fallback, typing);
        }
        self.map_outputs(step);
        let over_output = CallTyping::of_call(typing, call);
        if let Some(expr) = &step.success_when {
            self.condition(expr, &over_output, "`success_when`");
        }
        if let Some(expr) = &step.fail_when {
            self.condition(expr, &over_output, "`fail_when`");
        }
        for (_, template) in &step.on_success.transform {
            self.template(template, &over_output);
        }
        if let Some(template) = &step.on_failure.default {
            self.template(template, typing);
        }
        if let StepRollback::Call(rollback) = &step.rollback {
            self.call(rollback, &over_output);
        }
        if let Some(probe) = &step.probe {
            let args =
                CallTyping { outer: typing, output: Type::Any, args: over_output.args.clone() };
            self.call(&probe.call, &args);
            let mut answer = CallTyping::of_call(typing, &probe.call);
            // `args` are the arguments of the call in doubt.
            answer.args = over_output.args.clone();
            self.condition(&probe.done_when, &answer, "`done_when`");
            if let Some(output) = &probe.output {
                self.template(output, &answer);
            }
        }
    }

    /// Warns about a mapped field that the value certainly lacks: its name would have no value.
    fn map_outputs(&mut self, step: &Step) {
        let Some(node) = self.root.find(step.span) else { return };
        let mapped = node.get("on_success").and_then(|node| node.get("map_outputs"));
        let value = self.typing.value(step.index);
        for member in mapped.map_or(&[][..], Node::members) {
            let FieldLookup::Undeclared { surely: true, declared } = value.field(&member.key)
            else {
                continue;
            };
            // `.` is the whole value; the rest may also be found in the value's `data`.
            let in_data =
                matches!(value.field("data"), FieldLookup::Undeclared { surely: true, .. });
            if &*member.key == "." || !in_data {
                continue;
            }
            let message = format!("the value of `{}` has no `{}` to map", step.id, member.key);
            let finding = Diagnostic::warning(Code::UnknownPath, message, member.key_span);
            let inner = super::resolve::unquoted(self.source, member.key_span);
            let near = nearest_name(&member.key, declared.iter().map(|name| &**name));
            self.findings.push(match near {
                Some(near) => finding.fix(inner, near),
                None => finding.help(format!("it has `{}`", declared.join("`, `"))),
            });
        }
    }

    fn call(&mut self, call: &ToolCall, scope: &dyn TypeScope) {
        let known = self.findings.len();
        self.template(&call.parameters.template, scope);
        if self.keeps {
            downgrade_to_warnings(&mut self.findings[known..]);
        }
        if let Some(tool) = call.tool.clone() {
            parameters::check(self, call, &tool, scope);
        }
    }

    /// Infers the type of a template, and reports errors inside it.
    fn template(&mut self, template: &Template, scope: &dyn TypeScope) -> Type {
        let source = self.source;
        let findings = &mut self.findings;
        template.infer(scope, &mut |expr, found| {
            findings.extend(found.into_iter().map(|finding| diagnostic(source, expr, finding)));
        })
    }

    fn condition(&mut self, expr: &Expr, scope: &dyn TypeScope, what: &str) {
        let mut found = Vec::new();
        let ty = expr.ast().infer(scope, &mut found);
        let source = self.source;
        self.findings.extend(found.into_iter().map(|finding| diagnostic(source, expr, finding)));
        let Some(reason) = ty.conflict(&Type::Bool) else { return };
        let span = expr.location().locate(source, expr.ast().at);
        let mut finding = Diagnostic::error(
            Code::TypeMismatch,
            format!("{what} must be true or false: {reason}"),
            span,
        );
        finding.help = Some(match &expr.ast().kind {
            AstKind::Const(Value::String(_)) => {
                "write the condition without quotes around it".to_owned()
            }
            _ => format!("compare it with something, such as `{{{{ {} != … }}}}`", expr.text()),
        });
        self.findings.push(finding);
    }

    /// The span of a template: its first expression, else the given span.
    fn template_span(&self, template: &Template, otherwise: Span) -> Span {
        let mut span = None;
        template.exprs(&mut |expr| {
            span.get_or_insert_with(|| expr.location().locate(self.source, expr.ast().at));
        });
        span.unwrap_or(otherwise)
    }
}

fn diagnostic(source: &Source, expr: &Expr, finding: Finding) -> Diagnostic {
    let span = expr.location().locate(source, finding.at);
    let mut diagnostic = match finding.severity {
        Severity::Error => Diagnostic::error(finding.code, finding.message, span),
        Severity::Warning => Diagnostic::warning(finding.code, finding.message, span),
        Severity::Hint => Diagnostic::hint(finding.code, finding.message, span),
    };
    diagnostic.help = finding.help;
    match finding.replacement {
        Some(replacement) => diagnostic.fix(span, replacement),
        None => diagnostic,
    }
}
