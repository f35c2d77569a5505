//! Names of tools → tools, and compositions that would call themselves.

use std::sync::Arc;

use crate::compile::resolve::unquoted;
use crate::compile::source::Source;
use crate::composition::{Body, Composition, Step, StepKind, StepRollback, ToolCall};
use crate::diagnostic::{Code, Diagnostic};
use crate::tool::{COMPOSITION, Catalog, Lookup};

/// Finds the tool of every call.
pub(in crate::compile) fn attach(
    composition: &mut Composition,
    source: &Source,
    catalog: &Catalog,
) -> Vec<Diagnostic> {
    let name = composition.name.clone();
    let mut findings = Vec::new();
    each_call(&mut composition.body, &mut |call| {
        attach_one(call, &name, source, catalog, &mut findings);
    });
    findings
}

fn each_call(body: &mut Body, visit: &mut dyn FnMut(&mut ToolCall)) {
    for step in &mut body.steps {
        if let StepKind::Tool(call) = &mut step.kind {
            visit(call);
        }
        step.fallback.iter_mut().for_each(&mut *visit);
        if let StepRollback::Call(call) = &mut step.rollback {
            visit(call);
        }
        if let Some(probe) = &mut step.probe {
            visit(&mut probe.call);
        }
        for inner in step.kind.bodies_mut() {
            each_call(inner, visit);
        }
    }
}

fn attach_one(
    call: &mut ToolCall,
    own_name: &str,
    source: &Source,
    catalog: &Catalog,
    findings: &mut Vec<Diagnostic>,
) {
    let inner = unquoted(source, call.name_span);
    match catalog.find(&call.name) {
        Lookup::Found(tool) => call.tool = Some(tool.clone()),
        Lookup::Ambiguous(ids) => {
            let ids: Vec<String> = ids.iter().map(|id| format!("`{id}`")).collect();
            let message = format!("`{}` could be {}", call.name, ids.join(" or "));
            let finding = Diagnostic::error(Code::AmbiguousTool, message, call.name_span)
                .help("write the namespace too");
            findings.push(finding);
        }
        // Said once, as a recursion, by `recursion`.
        Lookup::Missing { .. } if is_own(&call.name, own_name) => {}
        Lookup::Missing { nearest } => {
            let message = format!("Tool not found in registry: {}", call.name);
            let finding = Diagnostic::error(Code::UnknownTool, message, call.name_span);
            findings.push(match nearest {
                Some(near) => finding.fix(inner, near),
                None => finding.help("`segue tools` lists what is available"),
            });
        }
    }
}

fn is_own(called: &str, own_name: &str) -> bool {
    called == own_name || called.strip_prefix("composition:") == Some(own_name)
}

/// Calls that lead back to the composition itself, directly or through others.
pub(super) fn recursion(composition: &Composition, _catalog: &Catalog) -> Vec<Diagnostic> {
    let mut findings = Vec::new();
    composition.body.walk(&mut |step: &Step| {
        let StepKind::Tool(call) = &step.kind else { return };
        let mut path = vec![composition.name.clone()];
        if leads_back(call, &composition.name, &mut path, 0) {
            let path: Vec<String> = path.iter().map(ToString::to_string).collect();
            let message = format!("the composition calls itself: {}", path.join(" → "));
            let finding = Diagnostic::error(Code::Recursion, message, call.name_span)
                .help("use `repeat` or `loop` to do something several times");
            findings.push(finding);
        }
    });
    findings
}

/// Compositions nest only so deep; beyond that the plan refuses them anyway.
const NESTING_MAX: usize = 32;

fn leads_back(call: &ToolCall, own_name: &Arc<str>, path: &mut Vec<Arc<str>>, depth: usize) -> bool {
    let calls_itself = match &call.tool {
        None => is_own(&call.name, own_name),
        Some(tool) => tool.id.namespace() == COMPOSITION && tool.id.name() == &**own_name,
    };
    if calls_itself {
        path.push(own_name.clone());
        return true;
    }
    let inner = call.tool.as_ref().and_then(|tool| tool.composition.as_ref());
    let Some(inner) = inner.filter(|_| depth < NESTING_MAX) else { return false };
    path.push(inner.name.clone());
    let mut found = false;
    inner.body.walk(&mut |step| {
        if let (false, StepKind::Tool(call)) = (found, &step.kind) {
            found = leads_back(call, own_name, path, depth + 1);
        }
    });
    if !found {
        path.pop();
    }
    found
}
