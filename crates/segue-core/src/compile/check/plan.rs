//! Checks of the plan dialect: an `executionOrder` that contradicts dependencies, and plan
//! conventions.

use std::sync::Arc;

use super::program::is_vague_name;
use crate::composition::{Composition, Dialect, Step, StepKind};
use crate::diagnostic::{Code, Diagnostic};
use crate::document::Node;

pub(in crate::compile) fn check(composition: &Composition, document: &Node) -> Vec<Diagnostic> {
    let mut findings = Vec::new();
    if composition.dialect == Dialect::Plan {
        let steps = &composition.body.steps;
        if let Some(order) = document.get("executionOrder") {
            overruled(steps, order, &mut findings);
        }
        for step in steps {
            unsaid(step, steps, &mut findings);
            vague(step, &mut findings);
        }
    }
    findings
}

/// Steps are in the order that the plan requests; dependencies override it.
fn overruled(steps: &[Arc<Step>], order: &Node, findings: &mut Vec<Diagnostic>) {
    for (position, step) in steps.iter().enumerate() {
        for need in step.needs.iter().filter(|need| need.position > position) {
            let needed = &steps[need.position].id;
            let message = format!(
                "`executionOrder` has `{}` before `{needed}`, which it depends on",
                step.id
            );
            let finding = Diagnostic::warning(Code::Practice, message, order.span)
                .help(format!("`{needed}` runs first; put it first in `executionOrder` too"));
            findings.push(finding);
        }
    }
}

/// A reference already is a dependency; writing `dependsOn` too helps readers of the plan.
fn unsaid(step: &Step, steps: &[Arc<Step>], findings: &mut Vec<Diagnostic>) {
    for need in &step.needs {
        let needed = &steps[need.position].id;
        if !step.depends_on.iter().any(|(said, _)| said == needed) {
            let message = format!("`{}` reads `{needed}` and has no `dependsOn` for it", step.id);
            let finding = Diagnostic::hint(Code::Practice, message, step.id_span)
                .help(format!("say `dependsOn: {needed}`; the step waits for it in any case"));
            findings.push(finding);
        }
    }
}

fn vague(step: &Step, findings: &mut Vec<Diagnostic>) {
    let StepKind::Tool(call) = &step.kind else { return };
    if is_vague_name(&step.id) {
        let message = format!("the name `{}` does not say what it is", step.id);
        let finding = Diagnostic::hint(Code::Practice, message, call.name_span)
            .help("choose a name that says what it does or holds");
        findings.push(finding);
    }
}
