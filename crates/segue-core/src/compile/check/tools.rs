//! Resolves tool names to tools, and finds compositions that would call themselves.

use std::sync::Arc;

use crate::access::{INLINE, SERVED};
use crate::catalog::{Catalog, ToolLookup};
use crate::compile::resolve::unquoted;
use crate::composition::tool::{BUILTIN, COMPOSITION, DeclaredRollback, Impact, ToolSpec};
use crate::composition::{
    Body, Composition, Dialect, Params, ResolvedRollback, Step, StepKind, StepRollback, ToolCall,
};
use crate::diagnostic::{Code, Diagnostic};
use crate::expr::{ExprRoot, Template};
use crate::limits::Limits;
use crate::source::{Source, Span};
use crate::toolset::Toolset;
use crate::value::Value;

/// What a composition says about the names of the tools that it calls.
struct Caller {
    name: Arc<str>,
    servers: Vec<Arc<str>>,
    /// Whether a name may begin with any server's.
    any_prefix: bool,
}

/// Attaches the tool to every call.
pub(in crate::compile) fn attach(
    composition: &mut Composition,
    source: &Source,
    catalog: &Catalog,
) -> Vec<Diagnostic> {
    let caller = Caller {
        name: composition.name.clone(),
        servers: composition.servers.clone(),
        any_prefix: composition.dialect == Dialect::ToolHive,
    };
    let mut findings = Vec::new();
    composition.body.walk_calls_mut(&mut |call| {
        attach_one(call, &caller, source, catalog, &mut findings);
    });
    attach_rollbacks(&mut composition.body, catalog, &mut findings);
    findings.extend(catalog.toolset().and_then(|toolset| too_many_steps(composition, toolset)));
    findings
}

/// Reports the first step beyond the number that a toolset allows.
fn too_many_steps(composition: &Composition, toolset: &Toolset) -> Option<Diagnostic> {
    let (code, message) = toolset.size_error(composition)?;
    let max = toolset.guards().max_steps?;
    let (mut count, mut first) = (0, None);
    composition.body.walk(&mut |step| {
        count += 1;
        if count > max {
            first.get_or_insert(step.id_span);
        }
    });
    Some(Diagnostic::error(code, message, first?))
}

/// Attaches the rollback of each step: the author's, else the one that the tool declares.
fn attach_rollbacks(body: &mut Body, catalog: &Catalog, findings: &mut Vec<Diagnostic>) {
    for step in &mut body.steps {
        let step = Arc::make_mut(step);
        let own = match &step.kind {
            StepKind::Tool(call) => Some(call.clone()),
            _ => None,
        };
        step.resolved_rollback = resolve_rollback(step, own.as_ref(), catalog, findings);
        let fallbacks = step.fallback.clone();
        step.fallback_rollbacks = fallbacks
            .iter()
            .map(|fallback| resolve_rollback(step, Some(fallback), catalog, findings))
            .collect();
        findings.extend(unused_rollback(step));
        for inner in step.kind.bodies_mut() {
            attach_rollbacks(inner, catalog, findings);
        }
    }
}

/// Warns about a rollback of a step that only reads, since it is never used.
fn unused_rollback(step: &Step) -> Option<Diagnostic> {
    let StepRollback::Call(rollback) = &step.rollback else { return None };
    let StepKind::Tool(call) = &step.kind else { return None };
    let mut calls = std::iter::once(call).chain(&step.fallback);
    if !calls.all(only_reads) {
        return None;
    }
    let message = format!("`{}` only reads: there is nothing to roll back", call.name);
    let help = "drop the `rollback`; if the tool changes something after all, say `read_only: false` \
                for it in the configuration";
    Some(Diagnostic::warning(Code::Unused, message, rollback.name_span).help(help))
}

fn only_reads(call: &ToolCall) -> bool {
    call.tool.as_ref().is_some_and(|tool| tool.annotations.impact() == Impact::Reads)
}

/// Probes that may write: a probe is called without confirmation, so it must only read.
pub(super) fn probes(composition: &Composition) -> Vec<Diagnostic> {
    let mut findings = Vec::new();
    composition.body.walk(&mut |step| {
        let Some(probe) = &step.probe else { return };
        let Some(tool) = probe.call.tool.as_ref().filter(|_| !only_reads(&probe.call)) else {
            return;
        };
        let message = match tool.annotations.impact() {
            Impact::Unknown => format!("`{}` may change something: a probe only reads", tool.id),
            _ => format!("`{}` changes something: a probe only reads", tool.id),
        };
        let help = "ask with a tool that reads; if this one does, say `read_only: true` for it in the \
                    configuration";
        let span = probe.call.name_span;
        findings.push(Diagnostic::error(Code::ToolNotAllowed, message, span).help(help));
    });
    findings
}

/// The rollback of one call of a step: the author's, else the one that the call's tool declares.
fn resolve_rollback(
    step: &Step,
    call: Option<&ToolCall>,
    catalog: &Catalog,
    findings: &mut Vec<Diagnostic>,
) -> ResolvedRollback {
    match (&step.rollback, call) {
        (StepRollback::NotNeeded, _) => ResolvedRollback::NotNeeded,
        (StepRollback::Call(_), Some(call)) if only_reads(call) => ResolvedRollback::NotNeeded,
        (StepRollback::Call(call), _) => ResolvedRollback::Call(call.clone()),
        (StepRollback::Impossible { reason }, _) => {
            ResolvedRollback::Impossible { reason: reason.clone() }
        }
        (StepRollback::Declared, Some(call)) => declared_rollback(call, catalog, findings),
        (StepRollback::Declared, None) => ResolvedRollback::NotNeeded,
    }
}

fn declared_rollback(
    call: &ToolCall,
    catalog: &Catalog,
    findings: &mut Vec<Diagnostic>,
) -> ResolvedRollback {
    let Some(tool) = &call.tool else { return ResolvedRollback::Unknown };
    match &tool.rollback {
        DeclaredRollback::Unknown if tool.annotations.impact() == Impact::Reads => {
            ResolvedRollback::NotNeeded
        }
        DeclaredRollback::Unknown => ResolvedRollback::Unknown,
        DeclaredRollback::NotNeeded => ResolvedRollback::NotNeeded,
        DeclaredRollback::Impossible { reason } => {
            ResolvedRollback::Impossible { reason: reason.clone() }
        }
        DeclaredRollback::Call { tool: name, parameters } => {
            match declared_call(name, parameters, call.name_span, catalog) {
                Ok(rollback) => ResolvedRollback::Call(rollback),
                Err(reason) => {
                    let id = &tool.id;
                    let message =
                        format!("the declared rollback of `{id}` cannot be used: {reason}");
                    let finding = Diagnostic::warning(Code::UnknownTool, message, call.name_span);
                    findings.push(finding);
                    ResolvedRollback::Unknown
                }
            }
        }
    }
}

fn declared_call(
    name: &Arc<str>,
    parameters: &Value,
    span: Span,
    catalog: &Catalog,
) -> Result<ToolCall, String> {
    let ToolLookup::Found(tool) = catalog.find(name) else {
        return Err(format!("`{name}` is not available"));
    };
    let known =
        [("output", ExprRoot::Output), ("args", ExprRoot::Args), ("input", ExprRoot::Input)];
    let template = Template::over(parameters, &known, &Limits::default())?;
    let parameters = Params { template, span };
    Ok(ToolCall { name: name.clone(), name_span: span, tool: Some(tool.clone()), parameters })
}

fn attach_one(
    call: &mut ToolCall,
    caller: &Caller,
    source: &Source,
    catalog: &Catalog,
    findings: &mut Vec<Diagnostic>,
) {
    let inner = unquoted(source, call.name_span);
    let servers = caller.servers.as_slice();
    match catalog.find_among(&call.name, servers, caller.any_prefix) {
        ToolLookup::Found(tool) => {
            findings.extend(catalog.toolset().and_then(|toolset| refused(call, tool, toolset)));
            if !servers.iter().any(|server| **server == *tool.id.namespace()) {
                findings.extend(shadowed(call, tool, catalog));
                findings.extend(built_in(call, tool, servers));
            }
            call.tool = Some(tool.clone());
        }
        ToolLookup::Ambiguous(ids) => {
            let ids: Vec<String> = ids.iter().map(|id| format!("`{id}`")).collect();
            let message = format!("`{}` could be {}", call.name, ids.join(" or "));
            let finding = Diagnostic::error(Code::AmbiguousTool, message, call.name_span)
                .help("write the namespace too");
            findings.push(finding);
        }
        // `recursion` reports this once.
        ToolLookup::Missing { .. } if is_own(&call.name, &caller.name) => {}
        ToolLookup::Missing { nearest } => {
            let message = format!("Tool not found in registry: {}", call.name);
            let finding = Diagnostic::error(Code::UnknownTool, message, call.name_span);
            let absent = servers.iter().filter(|server| !has_server(catalog, server));
            let absent: Vec<String> = absent.map(|server| format!("`{server}`")).collect();
            findings.push(match (nearest, absent.is_empty()) {
                (Some(near), true) => finding.fix(inner, near),
                (None, true) => finding.help("`segue tools` lists what is available"),
                (_, false) => finding.help(format!(
                    "the document calls tools of the servers {}: configure them under these names, \
                     or others that have this tool",
                    absent.join(", ")
                )),
            });
        }
    }
}

/// A short name that means a built-in tool, although the document calls tools of servers.
fn built_in(call: &ToolCall, tool: &ToolSpec, servers: &[Arc<str>]) -> Option<Diagnostic> {
    let is_short = *call.name != *tool.id.as_str();
    if servers.is_empty() || tool.id.namespace() != BUILTIN || !is_short {
        return None;
    }
    let servers: Vec<String> = servers.iter().map(|server| format!("`{server}`")).collect();
    let message = format!("this calls `{}`: no configured server has `{}`", tool.id, call.name);
    let help = format!(
        "the document calls tools of the servers {}: configure the one that has this tool",
        servers.join(", ")
    );
    Some(Diagnostic::warning(Code::AmbiguousTool, message, call.name_span).help(help))
}

fn has_server(catalog: &Catalog, server: &str) -> bool {
    catalog.tools().any(|tool| tool.id.namespace() == server)
}

/// A short name that a configured tool shares with a built-in one.
fn shadowed(call: &ToolCall, tool: &ToolSpec, catalog: &Catalog) -> Option<Diagnostic> {
    let ids = catalog.same_name(&call.name);
    if ids.len() < 2 {
        return None;
    }
    let ids: Vec<String> = ids.iter().map(|id| format!("`{id}`")).collect();
    let message = format!("`{}` is {}: this calls `{}`", call.name, ids.join(" and "), tool.id);
    let finding = Diagnostic::hint(Code::AmbiguousTool, message, call.name_span);
    Some(finding.help("write the namespace too, so that another configuration changes nothing"))
}

/// A call that a toolset does not allow: of the tool itself, or of a tool that it calls as a
/// composition.
fn refused(call: &ToolCall, tool: &ToolSpec, toolset: &Toolset) -> Option<Diagnostic> {
    let (code, message) = match toolset.access_error(&tool.id) {
        Some(refusal) => refusal,
        None => {
            let (code, message) = toolset.inner_tools_error(tool.composition.as_ref()?)?;
            (code, format!("`{}` cannot be called: {message}", tool.id))
        }
    };
    let mut help = format!("`segue tools --toolset {}` lists what it has", toolset.name());
    if **toolset.name() == *INLINE {
        help += ": what only reads, what is served, and the toolset that `server.inline` names";
    }
    if **toolset.name() == *SERVED {
        help = "a run makes this composition, and its principal lacks the right `compose`: without it the \
                composition may call served compositions only"
            .into();
    }
    Some(Diagnostic::error(code, message, call.name_span).help(help))
}

fn is_own(called: &str, own_name: &str) -> bool {
    called == own_name || called.strip_prefix("composition:") == Some(own_name)
}

/// Calls that lead back to the composition, directly or through other compositions.
pub(super) fn recursion(composition: &Composition) -> Vec<Diagnostic> {
    let mut findings = Vec::new();
    composition.body.walk_calls(&mut |call| {
        let mut path = vec![composition.name.clone()];
        if is_recursive(call, &composition.name, &mut path, 0) {
            let path: Vec<String> = path.iter().map(ToString::to_string).collect();
            let message = format!("the composition calls itself: {}", path.join(" → "));
            let finding = Diagnostic::error(Code::Recursion, message, call.name_span)
                .help("use `repeat` or `loop` to do something several times");
            findings.push(finding);
        }
    });
    findings
}

/// Maximum nesting of compositions; the planner refuses deeper ones anyway.
const NESTING_MAX: usize = 32;

fn is_recursive(
    call: &ToolCall,
    own_name: &Arc<str>,
    path: &mut Vec<Arc<str>>,
    depth: usize,
) -> bool {
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
    inner.body.walk_calls(&mut |call| {
        found = found || is_recursive(call, own_name, path, depth + 1);
    });
    if !found {
        path.pop();
    }
    found
}
