//! Findings that are not errors: steps that never run, outputs that are never read, steps that
//! cannot be rolled back before steps that may fail, and type errors that follow from observed
//! values of tools without a schema.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::compile::typing::{Typing, observed_schema};
use crate::composition::tool::{DeclaredRollback, Impact};
use crate::composition::{Body, Composition, Flow, Step, StepKind, StepRollback, Strategy};
use crate::diagnostic::{Code, Diagnostic, Severity};
use crate::expr::{Ast, AstKind, Expr, ExprRoot, StepIndex, Template};
use crate::value::Value;

pub(super) fn check(composition: &Composition, typing: &Typing<'_>) -> Vec<Diagnostic> {
    let mut findings = Vec::new();
    unreachable(composition, &mut findings);
    irreversible(composition, &mut findings);
    unused(composition, typing, &mut findings);
    too_short(composition, &mut findings);
    findings
}

/// Findings that hold if tools without a schema keep returning values of the observed shape.
pub(super) fn check_observed(
    composition: &Composition,
    surely: &[Diagnostic],
    check: impl FnOnce(&Typing<'_>) -> Vec<Diagnostic>,
) -> Vec<Diagnostic> {
    let mut seen = BTreeMap::new();
    composition.body.walk(&mut |step| {
        let StepKind::Tool(call) = &step.kind else { return };
        for call in std::iter::once(call).chain(&step.fallback) {
            seen.extend(observed_schema(call).map(|shape| (&*call.name, shape.samples())));
        }
    });
    if seen.is_empty() {
        return Vec::new();
    }
    let calls: Vec<String> =
        seen.iter().map(|(tool, samples)| format!("{samples} calls of `{tool}`")).collect();
    let calls = calls.join(" and ");
    let is_known = |finding: &Diagnostic| {
        surely.iter().any(|known| known.code == finding.code && known.span == finding.span)
    };
    let likely = check(&Typing::from_observed(composition)).into_iter();
    let hint = |finding: Diagnostic| Diagnostic {
        message: format!("{}, going by {calls}", finding.message),
        code: Code::Practice,
        severity: Severity::Hint,
        ..finding
    };
    likely.filter(|finding| !is_known(finding)).map(hint).collect()
}

/// Steps with a timeout that is shorter than their tool usually needs.
fn too_short(composition: &Composition, findings: &mut Vec<Diagnostic>) {
    composition.body.walk(&mut |step| {
        let StepKind::Tool(call) = &step.kind else { return };
        let observed = call.tool.as_ref().and_then(|tool| tool.observed.as_ref());
        let Some(observed) = observed.filter(|seen| seen.has_enough_calls()) else {
            return;
        };
        if let Some(timeout) = step.timeout_ms.filter(|timeout| *timeout < observed.p95_ms) {
            let message = format!(
                "step `{}` times out after {timeout} ms, and of 20 calls of `{}` one takes longer \
                 than {} ms",
                step.id, call.name, observed.p95_ms
            );
            let finding = Diagnostic::hint(Code::Practice, message, step.id_span)
                .help("raise `timeout`, or expect it to fail at times");
            findings.push(finding);
        }
    });
}

/// Conditions that are literally false, and cases behind one that is literally true.
fn unreachable(composition: &Composition, findings: &mut Vec<Diagnostic>) {
    composition.body.walk(&mut |step| {
        if step.when.as_ref().is_some_and(|when| literal(when) == Some(false)) {
            let message = format!("step `{}` can never run: its `when` is false", step.id);
            let finding = Diagnostic::warning(Code::UnreachableStep, message, step.id_span)
                .help("remove the step, or make the condition depend on something");
            findings.push(finding);
        }
        let StepKind::Choose { cases, .. } = &step.kind else { return };
        let mut always = false;
        for case in cases {
            let is_off = literal(&case.when) == Some(false);
            if let (true, Some(first)) = (always || is_off, case.body.steps.first()) {
                let message =
                    format!("step `{}` can never run: its case is never chosen", first.id);
                let finding = if always { Diagnostic::error } else { Diagnostic::warning };
                findings.push(finding(Code::UnreachableStep, message, first.id_span));
            }
            always |= literal(&case.when) == Some(true);
        }
    });
}

fn literal(expr: &Expr) -> Option<bool> {
    match &expr.ast().kind {
        AstKind::Const(Value::Bool(bool)) => Some(*bool),
        _ => None,
    }
}

/// With rollback enabled, a step that cannot be rolled back should come after the steps that may
/// fail.
fn irreversible(composition: &Composition, findings: &mut Vec<Diagnostic>) {
    let handling = &composition.error_handling;
    if !handling.rollback_on_failure && handling.strategy != Strategy::Rollback {
        return;
    }
    warn_in_body(&composition.body, findings);
}

fn warn_in_body(body: &Body, findings: &mut Vec<Diagnostic>) {
    for (position, step) in body.steps.iter().enumerate() {
        if let Some((what, advice)) = irreversible_reason(step) {
            let before = steps_before(body, position);
            let others = body.steps.iter().enumerate();
            let others = others.filter(|(other, _)| *other != position && !before[*other]);
            let fallible = others.filter(|(_, other)| may_fail(other));
            let fallible: Vec<usize> = fallible.map(|(other, _)| other).collect();
            if !fallible.is_empty() {
                let id = &step.id;
                let others = quoted(&ids(body, &fallible));
                let message = format!("step `{id}` {what}, and {others} may still fail after it");
                let help = order_help(body, position, &fallible, advice);
                let finding = Diagnostic::warning(Code::Irreversible, message, step.id_span);
                findings.push(finding.help(help));
            }
        }
        for inner in step.kind.bodies() {
            warn_in_body(inner, findings);
        }
    }
}

/// What to do about a step that should come after the `fallible` ones. A step that depends on it cannot
/// come before it: that would be a cycle.
fn order_help(body: &Body, position: usize, fallible: &[usize], advice: &str) -> String {
    let id = &body.steps[position].id;
    let (bound, free): (Vec<usize>, Vec<usize>) =
        fallible.iter().partition(|other| dependencies(body, **other)[position]);
    let (bound, free) = (ids(body, &bound), ids(body, &free));
    if free.is_empty() {
        let bound = quoted(&bound);
        return match advice {
            "" => format!("move `{id}` after {bound}, if {bound} can do without it"),
            advice => advice.to_owned(),
        };
    }
    let how = match body.flow {
        Flow::Graph if free.len() <= SHOWN => format!(": `depends_on: [{}]`", free.join(", ")),
        _ => String::new(),
    };
    let or = if advice.is_empty() { "" } else { ", or " };
    format!("{advice}{or}move `{id}` after {}{how}", quoted(&free))
}

fn ids<'a>(body: &'a Body, positions: &[usize]) -> Vec<&'a str> {
    positions.iter().map(|position| &*body.steps[*position].id).collect()
}

/// How many ids of steps a message lists.
const SHOWN: usize = 3;

/// Ids for a sentence; of many only the first.
fn quoted(ids: &[&str]) -> String {
    let shown: Vec<String> = ids.iter().take(SHOWN).map(|id| format!("`{id}`")).collect();
    match (&*shown, ids.len().saturating_sub(SHOWN)) {
        ([before @ .., last], 0) if !before.is_empty() => {
            format!("{} and {last}", before.join(", "))
        }
        (shown, 0) => shown.concat(),
        (shown, more) => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Why a step cannot be rolled back, and what to do about it besides moving the step.
fn irreversible_reason(step: &Step) -> Option<(String, &'static str)> {
    let StepKind::Tool(call) = &step.kind else { return None };
    let impossible = |reason: &Arc<str>| Some((format!("cannot be rolled back ({reason})"), ""));
    let tool = call.tool.as_ref()?;
    match (&step.rollback, &tool.rollback) {
        (StepRollback::Impossible { reason }, _)
        | (StepRollback::Declared, DeclaredRollback::Impossible { reason }) => impossible(reason),
        // A composition is rolled back step by step.
        (StepRollback::Declared, DeclaredRollback::Unknown)
            if tool.composition.is_none() && tool.annotations.impact() == Impact::Destroys =>
        {
            let advice = "declare a `rollback` on the step or for its tool";
            Some((format!("has no rollback although `{}` is destructive", tool.id), advice))
        }
        _ => None,
    }
}

fn may_fail(step: &Step) -> bool {
    match &step.kind {
        StepKind::Tool(call) => {
            call.tool.as_ref().is_none_or(|tool| tool.annotations.impact() != Impact::None)
        }
        StepKind::Set(_) | StepKind::Wait { .. } => false,
        _ => true,
    }
}

/// Whether the step at each position certainly ends before this step starts.
fn steps_before(body: &Body, position: usize) -> Vec<bool> {
    if body.flow == Flow::Program {
        return (0..body.steps.len()).map(|other| other < position).collect();
    }
    dependencies(body, position)
}

/// Whether this step depends on the step at each position, also through others.
fn dependencies(body: &Body, position: usize) -> Vec<bool> {
    let mut before = vec![false; body.steps.len()];
    let mut work = vec![position];
    while let Some(at) = work.pop() {
        for need in direct_dependencies(body, at) {
            if !std::mem::replace(&mut before[need], true) {
                work.push(need);
            }
        }
    }
    before
}

/// The steps that this step waits for. A chain runs in the order of its text, so there these are the
/// steps that it reads.
fn direct_dependencies(body: &Body, position: usize) -> Vec<usize> {
    let step = &body.steps[position];
    if body.flow == Flow::Graph {
        return step.needs.iter().map(|need| need.position).collect();
    }
    let (mut read, mut reads_state) = (BTreeSet::new(), false);
    let mut note = |step: &Step| {
        note_reads(step, &mut read);
        reads_state |= reads_chain_state(step);
    };
    note(step);
    step.kind.bodies().into_iter().for_each(|inner| inner.walk(&mut note));
    // A name of the state may be one that any earlier step has set.
    let is_read = |other: &usize| {
        read.contains(&body.steps[*other].index) || (reads_state && *other < position)
    };
    (0..body.steps.len()).filter(is_read).collect()
}

fn reads_chain_state(step: &Step) -> bool {
    let mut found = false;
    let mut note = |ast: &Ast| {
        ast.walk(&mut |node| {
            found |= matches!(&node.kind, AstKind::Name { root: ExprRoot::State, .. });
        });
    };
    templates_of(step, &mut |template| template.exprs(&mut |expr| note(expr.ast())));
    exprs_of(step, &mut |expr| note(expr.ast()));
    found
}

/// Named outputs that neither a step nor the composition's `output` reads.
fn unused(composition: &Composition, typing: &Typing<'_>, findings: &mut Vec<Diagnostic>) {
    let Some(output) = &composition.output else { return };
    let mut read = BTreeSet::new();
    note_template(output, &mut read);
    composition.body.walk(&mut |step| note_reads(step, &mut read));
    composition.body.walk(&mut |step| {
        let Some((key, span)) = &step.output_key else { return };
        if !read.contains(&step.index) && typing.step(step.index).is_some() {
            let message = format!("the output `{key}` is never read");
            let finding = Diagnostic::hint(Code::Unused, message, *span)
                .help("use it in a step or in `output`, or drop the `output_key`");
            findings.push(finding);
        }
    });
}

/// Adds the steps that a step reads, without what its nested bodies read.
pub(crate) fn note_reads(step: &Step, read: &mut BTreeSet<StepIndex>) {
    templates_of(step, &mut |template| note_template(template, read));
    exprs_of(step, &mut |expr| note_ast(expr.ast(), read));
}

/// Calls `visit` for every template of a step, without those of nested bodies.
pub(crate) fn templates_of<'a>(step: &'a Step, visit: &mut dyn FnMut(&'a Template)) {
    for call in step.calls() {
        visit(&call.parameters.template);
    }
    step.on_success.transform.iter().for_each(|(_, template)| visit(template));
    step.on_failure.default.iter().for_each(&mut *visit);
    step.probe.iter().filter_map(|probe| probe.output.as_ref()).for_each(&mut *visit);
    match &step.kind {
        StepKind::Loop(each) => {
            visit(&each.over);
            each.output.iter().for_each(visit);
        }
        StepKind::Set(names) => names.iter().for_each(|(_, value)| visit(value)),
        StepKind::Approve { message, .. } => visit(message),
        StepKind::Wait { duration } => visit(duration),
        StepKind::Expand(template) => visit(template),
        StepKind::Tool(_)
        | StepKind::Parallel { .. }
        | StepKind::Repeat(_)
        | StepKind::Choose { .. } => {}
    }
}

/// Calls `visit` for every condition of a step, without those of nested bodies.
pub(crate) fn exprs_of<'a>(step: &'a Step, visit: &mut dyn FnMut(&'a Expr)) {
    step.probe.iter().for_each(|probe| visit(&probe.done_when));
    [&step.when, &step.success_when, &step.fail_when].into_iter().flatten().for_each(&mut *visit);
    match &step.kind {
        StepKind::Repeat(repeat) => visit(&repeat.until),
        StepKind::Choose { cases, .. } => cases.iter().for_each(|case| visit(&case.when)),
        _ => {}
    }
}

fn note_template(template: &Template, read: &mut BTreeSet<StepIndex>) {
    template.exprs(&mut |expr| note_ast(expr.ast(), read));
}

/// Adds the steps that an expression reads.
pub(crate) fn note_ast(ast: &Ast, read: &mut BTreeSet<StepIndex>) {
    ast.walk(&mut |node| {
        if let AstKind::Name {
            root:
                ExprRoot::Step(step)
                | ExprRoot::StepStatus(step)
                | ExprRoot::StepError(step)
                | ExprRoot::Given(step, _),
            ..
        } = &node.kind
        {
            read.insert(*step);
        }
    });
}
