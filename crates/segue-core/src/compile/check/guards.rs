//! Guards: how many steps a composition may have, and which tools it may call.

use crate::composition::Composition;
use crate::diagnostic::{Code, Diagnostic};
use crate::source::Span;

pub(super) fn check(composition: &Composition) -> Vec<Diagnostic> {
    let guards = &composition.guards;
    let mut findings = Vec::new();
    let (mut count, mut first_too_many) = (0u32, None);
    composition.body.walk(&mut |step| {
        count += 1;
        if guards.max_steps.is_some_and(|max| count > max) {
            first_too_many.get_or_insert(step.id_span);
        }
    });
    if let (Some(max), Some(span)) = (guards.max_steps, first_too_many) {
        let message = format!("the composition has {count} steps, its guard allows {max}");
        findings.push(Diagnostic::error(Code::MaxStepsExceeded, message, span));
    }
    composition.body.walk_calls(&mut |call| {
        let Some(tool) = &call.tool else { return };
        if !guards.allows(&tool.id) {
            findings.push(forbidden(&call.name, call.name_span));
        }
    });
    findings
}

fn forbidden(tool: &str, span: Span) -> Diagnostic {
    let message = format!("`{tool}` is not among the tools that may be called");
    Diagnostic::error(Code::ToolNotAllowed, message, span)
        .help("add it to `guards.allowed_tools`, or call another one")
}
