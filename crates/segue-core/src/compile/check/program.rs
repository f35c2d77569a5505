//! Checks of programs: unreachable steps, endless cycles, and conventions of chains.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::composition::{
    Body, Composition, Dialect, FailureAction, Flow, Step, StepKind, Target, ToolCall, Transitions,
};
use crate::diagnostic::{Code, Diagnostic};
use crate::document::{Node, NodeKind};
use crate::expr::{Ast, AstKind, ExprRoot, Template};
use crate::source::Span;
use crate::value::Value;

pub(super) fn check(composition: &Composition, root: &Node) -> Vec<Diagnostic> {
    let mut findings = Vec::new();
    if composition.body.flow == Flow::Program {
        check_body(&composition.body, &mut findings);
        vague_names(composition, root, &mut findings);
        if composition.dialect == Dialect::Chain {
            undocumented(composition, root, &mut findings);
        }
        // Documents of other languages follow the conventions of those languages.
        if matches!(composition.dialect, Dialect::Chain | Dialect::Composition) {
            silent_about_failures(composition, &mut findings);
            composition.body.walk_calls(&mut |call| hard_coded(call, root, &mut findings));
        }
        unread_names(composition, root, &mut findings);
    }
    findings
}

fn check_body(body: &Body, findings: &mut Vec<Diagnostic>) {
    let ways = body.transitions();
    unreachable(body, &ways, findings);
    endless(body, &ways, findings);
    for step in &body.steps {
        step.kind.bodies().into_iter().for_each(|inner| check_body(inner, findings));
    }
}

/// The transitions that a step may actually take.
fn taken<'w>(step: &Step, ways: &'w Transitions) -> impl Iterator<Item = usize> + use<'w> {
    let skipped = step.when.is_some().then_some(ways.in_sequence);
    [Some(ways.success), skipped, ways.failure].into_iter().flatten().filter_map(position)
}

fn position(target: Target) -> Option<usize> {
    match target {
        Target::End => None,
        Target::Step(at) => Some(at as usize),
    }
}

fn unreachable(body: &Body, ways: &[Transitions], findings: &mut Vec<Diagnostic>) {
    let mut reached = vec![false; body.steps.len()];
    let mut work = vec![0];
    while let Some(at) = work.pop() {
        if let Some(step) = body.steps.get(at)
            && !std::mem::replace(&mut reached[at], true)
        {
            work.extend(taken(step, &ways[at]));
        }
    }
    for (step, _) in body.steps.iter().zip(reached).filter(|(_, reached)| !reached) {
        let message = format!("step `{}` can never run: nothing leads to it", step.id);
        let finding = Diagnostic::warning(Code::UnreachableStep, message, step.id_span)
            .help("name it in a `next`, or take it away");
        findings.push(finding);
    }
}

/// Every step has one transition after success, so following it finds the cycles.
fn endless(body: &Body, ways: &[Transitions], findings: &mut Vec<Diagnostic>) {
    let mut met_in = vec![usize::MAX; body.steps.len()];
    for start in 0..body.steps.len() {
        let mut at = Some(start);
        while let Some(step) = at.filter(|at| met_in[*at] == usize::MAX) {
            met_in[step] = start;
            at = position(ways[step].success);
        }
        let Some(first) = at.filter(|at| met_in[*at] == start) else { continue };
        let mut circle = vec![first];
        let mut next = position(ways[first].success);
        while let Some(step) = next.filter(|step| *step != first) {
            circle.push(step);
            next = position(ways[step].success);
        }
        let members: BTreeSet<usize> = circle.iter().copied().collect();
        let leaves = |at: &usize| {
            let (step, ways) = (&body.steps[*at], &ways[*at]);
            let skipped = step.when.is_some().then_some(ways.in_sequence);
            let mut others = [skipped, ways.failure].into_iter().flatten();
            others.any(|target| position(target).is_none_or(|at| !members.contains(&at)))
        };
        if !circle.iter().any(leaves) {
            findings.push(endless_circle(body, &circle));
        }
    }
}

fn endless_circle(body: &Body, circle: &[usize]) -> Diagnostic {
    let ids: Vec<&str> = circle.iter().chain(&circle[..1]).map(|at| &*body.steps[*at].id).collect();
    let message = format!("only a failure ends this circle of steps: {}", ids.join(" → "));
    let back = circle.iter().filter_map(|at| body.steps[*at].on_success.next.as_ref());
    let span = back.map(|next| next.span).next_back();
    Diagnostic::warning(Code::LoopLimit, message, span.unwrap_or(body.steps[circle[0]].id_span))
        .help("give one of them a `when`, or use `repeat` with `until`")
}

/// Names that tell a reader nothing: `tool1`, `x`, `tmp`.
pub(super) fn is_vague_name(name: &str) -> bool {
    const SAYING_NOTHING: &[&str] = &[
        "tool",
        "chain",
        "workflow",
        "pipeline",
        "composite",
        "step",
        "test",
        "tmp",
        "temp",
        "foo",
        "bar",
        "baz",
        "thing",
        "stuff",
        "var",
        "val",
    ];
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '_' || c == '-');
    stem.chars().count() <= 1 || SAYING_NOTHING.contains(&stem)
}

fn vague_names(composition: &Composition, root: &Node, findings: &mut Vec<Diagnostic>) {
    let mut hint = |name: &str, span: Span| {
        let message = format!("the name `{name}` does not say what it is");
        let finding = Diagnostic::hint(Code::Practice, message, span)
            .help("choose a name that says what it does or holds");
        findings.push(finding);
    };
    if let Some(name) = root.get("name").filter(|_| is_vague_name(&composition.name)) {
        hint(&composition.name, name.span);
    }
    composition.body.walk(&mut |step| {
        for (name, span) in
            given_names(step, root).into_iter().filter(|(name, _)| is_vague_name(name))
        {
            hint(&name, span);
        }
    });
}

/// The names that a step defines, with their spans.
fn given_names(step: &Step, root: &Node) -> Vec<(Arc<str>, Span)> {
    let Some(node) = root.find(step.span) else { return Vec::new() };
    let by_key = |node: Option<&Node>| -> Vec<(Arc<str>, Span)> {
        let members = node.map_or(&[][..], Node::members);
        members.iter().map(|member| (member.key.clone(), member.key_span)).collect()
    };
    let on_success = node.get("on_success");
    let mapped = on_success.and_then(|node| node.get("map_outputs"));
    let mapped = mapped.map_or(&[][..], Node::members).iter();
    let mapped = mapped.filter_map(|m| Some((m.value.as_str()?.clone(), m.value.span)));
    let mut names: Vec<(Arc<str>, Span)> = mapped.collect();
    names.extend(by_key(on_success.and_then(|node| node.get("transform"))));
    names.extend(by_key(node.get("set")));
    names
}

fn undocumented(composition: &Composition, root: &Node, findings: &mut Vec<Diagnostic>) {
    let documentation = composition.metadata.get("documentation");
    let summary = documentation.and_then(|node| node.get("summary")).and_then(Value::as_str);
    let has_summary = summary.is_some_and(|summary| !summary.trim().is_empty());
    if let Some(name) =
        root.get("name").filter(|_| composition.body.steps.len() > 1 && !has_summary)
    {
        let message =
            format!("`{}` has several steps and no `documentation.summary`", composition.name);
        let finding = Diagnostic::hint(Code::Practice, message, name.span)
            .help("say what it does step by step, and what it needs");
        findings.push(finding);
    }
}

/// How many steps one finding lists.
const NAMED_MAX: usize = 5;

/// One finding for all steps, so that an author who wants the default sees one hint and not many.
fn silent_about_failures(composition: &Composition, findings: &mut Vec<Diagnostic>) {
    let mut silent: Vec<&Step> = Vec::new();
    composition.body.walk(&mut |step| {
        let handling = step.on_failure.action != FailureAction::Strategy
            || step.retry.max.is_some()
            || !step.fallback.is_empty();
        if matches!(step.kind, StepKind::Tool(_)) && !handling {
            silent.push(step);
        }
    });
    let Some(first) = silent.first() else { return };
    let mut ids: Vec<String> =
        silent.iter().take(NAMED_MAX).map(|step| format!("`{}`", step.id)).collect();
    if silent.len() > NAMED_MAX {
        ids.push(format!("{} more", silent.len() - NAMED_MAX));
    }
    let last = ids.pop().unwrap_or_default();
    let ids = if ids.is_empty() { last } else { format!("{} or {last}", ids.join(", ")) };
    let message = format!("nothing says what happens when {ids} fails");
    let finding = Diagnostic::hint(Code::Practice, message, first.id_span)
        .help("the chain stops then; say so with `on_failure: { action: stop }`, or `retry` or `continue`");
    findings.push(finding);
}

/// Addresses of one person or site, where a parameter would make the chain reusable.
fn hard_coded(call: &ToolCall, root: &Node, findings: &mut Vec<Diagnostic>) {
    if call.parameters.span != call.name_span
        && let Some(arguments) = root.find(call.parameters.span)
    {
        hard_coded_in(arguments, "", findings);
    }
}

fn hard_coded_in(node: &Node, key: &str, findings: &mut Vec<Diagnostic>) {
    if let NodeKind::String(text) = &node.kind
        && !text.contains("{{")
        && let Some(what) = address_in(text)
    {
        let message = format!("`{key}` has {what} written into it");
        let finding = Diagnostic::hint(Code::Practice, message, node.span)
            .help("make it a parameter, so that the chain serves others too: `{{ state.NAME }}`");
        findings.push(finding);
    }
    node.items().iter().for_each(|item| hard_coded_in(item, key, findings));
    node.members().iter().for_each(|m| hard_coded_in(&m.value, &m.key, findings));
}

fn address_in(text: &str) -> Option<&'static str> {
    let is_address = |word: &str| {
        let parts = word.split_once('@');
        parts.is_some_and(|(who, host)| {
            !who.is_empty() && host.trim_matches('.').contains('.') && !host.contains('@')
        })
    };
    let mut words =
        text.split(|c: char| c.is_whitespace() || matches!(c, ',' | ';' | ':' | '<' | '>'));
    if text.starts_with("https://") || text.starts_with("http://") {
        Some("a web address")
    } else if words.any(is_address) {
        Some("a mail address")
    } else {
        None
    }
}

/// Names that a chain with an `output` defines and that neither a step nor the output reads.
/// Without an `output` the whole state is the result.
fn unread_names(composition: &Composition, root: &Node, findings: &mut Vec<Diagnostic>) {
    let Some(output) = &composition.output else { return };
    let mut read = StateReads::default();
    read.template(output);
    composition.body.walk(&mut |step| {
        super::observed::templates_of(step, &mut |template| read.template(template));
        super::observed::exprs_of(step, &mut |expr| read.ast(expr.ast()));
    });
    if read.all {
        return;
    }
    composition.body.walk(&mut |step| {
        for (name, span) in given_names(step, root) {
            if !read.names.contains(&name) {
                let message = format!("the name `{name}` is never read");
                let finding = Diagnostic::hint(Code::Unused, message, span)
                    .help("use it in a step or in `output`, or remove it");
                findings.push(finding);
            }
        }
    });
}

/// Names of the state that expressions read.
#[derive(Default)]
struct StateReads {
    names: BTreeSet<Arc<str>>,
    /// Whether an expression reads the state as a whole.
    all: bool,
}

impl StateReads {
    fn template(&mut self, template: &Template) {
        template.exprs(&mut |expr| self.ast(expr.ast()));
    }

    fn ast(&mut self, ast: &Ast) {
        match &ast.kind {
            AstKind::Field(base, name) if is_state(base) => {
                self.names.insert(name.clone());
            }
            AstKind::Name { root: ExprRoot::State, .. } => self.all = true,
            _ => ast.children(&mut |child| self.ast(child)),
        }
    }
}

fn is_state(ast: &Ast) -> bool {
    matches!(&ast.kind, AstKind::Name { root: ExprRoot::State, .. })
}
