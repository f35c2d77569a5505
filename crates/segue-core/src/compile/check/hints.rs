//! Compares what a document says about its effects, as `metadata.annotations`, with its calls.

use crate::composition::Composition;
use crate::composition::tool::{Annotations, Impact};
use crate::diagnostic::{Code, Diagnostic};
use crate::document::{Node, NodeKind};

/// Warns about hints that promise less than the calls may do: clients see the effects of the calls.
pub(super) fn check(composition: &Composition, root: &Node) -> Vec<Diagnostic> {
    let hints = root.get("metadata").and_then(|metadata| metadata.get("annotations"));
    let Some(hints) = hints else { return Vec::new() };
    let says =
        |name: &str, value: bool| hints.get(name).filter(|node| node.kind == NodeKind::Bool(value));
    let mut findings = Vec::new();
    for (name, value, harmless) in
        [("readOnlyHint", true, Impact::Reads), ("destructiveHint", false, Impact::Writes)]
    {
        let Some(hint) = says(name, value) else { continue };
        let mut worse = Vec::new();
        composition.body.walk_calls(&mut |call| {
            let known = call.tool.as_ref().map(|tool| (&tool.id, tool.annotations));
            if let Some((id, annotations)) = known.filter(|(_, it)| it.impact() > harmless) {
                worse.push(format!("`{id}` {}", effect(annotations)));
            }
        });
        worse.sort();
        worse.dedup();
        if !worse.is_empty() {
            let message =
                format!("`{name}: {value}` is not true of its calls: {}", worse.join(", "));
            let help = "clients are told the effects of the calls; correct the hint, or declare the \
                        effects of these tools in the configuration";
            findings.push(Diagnostic::warning(Code::Practice, message, hint.span).help(help));
        }
    }
    findings
}

fn effect(annotations: Annotations) -> &'static str {
    match annotations.impact() {
        Impact::None | Impact::Reads => "reads",
        Impact::Writes => "writes",
        Impact::Destroys => "may destroy data",
        Impact::Unknown => "declares no effect",
    }
}
