//! Whether a text is meant to be a composition, in any dialect.
//!
//! Editors open every YAML and JSON file, and only compositions get findings. So a document must have
//! something that only compositions have: `steps` alone are in many formats. The text may be broken.

use super::dialect::{self, grammar::STEP_KINDS};
use crate::composition::Dialect;
use crate::document::{self, Node, ReadLimits, tolerant};
use crate::limits::Limits;
use crate::source::Source;

/// What a step of a native composition or a chain may have beside its kind.
const STEP_FIELDS: &[&str] = &["depends_on", "output_key", "parameters"];

/// Whether one of the documents of a text is a composition, or the beginning of one.
pub(super) fn recognizes(source: &Source, limits: &Limits) -> bool {
    let budget = ReadLimits::for_documents(limits);
    match document::read_all(source, budget) {
        Ok(documents) => documents.iter().any(is_composition),
        Err(_) => is_composition(&tolerant::read(source, ReadLimits::for_documents(limits)).root),
    }
}

fn is_composition(root: &Node) -> bool {
    let root = dialect::unwrap_template(root);
    let has = |names: &[&str]| names.iter().any(|name| root.get(name).is_some());
    if let Some(word) = root.get("dialect").and_then(Node::as_str) {
        return Dialect::parse(word).is_some();
    }
    match dialect::detect(root) {
        Dialect::Arazzo | Dialect::ToolHive | Dialect::Skill => true,
        Dialect::Chain => root.get("implementation").is_some_and(|it| it.get("steps").is_some()),
        Dialect::Plan => has(&["selectedTools", "executionOrder", "toolOrder", "planId"]),
        Dialect::Composed => false,
        Dialect::Composition => {
            let steps = root.get("steps").map_or(&[][..], Node::items);
            has(&["name"]) && steps.iter().any(is_step)
        }
    }
}

/// A step with a kind, or one that is being written: `id` and nothing that Segue does not know.
fn is_step(step: &Node) -> bool {
    let has = |names: &[&str]| names.iter().any(|name| step.get(name).is_some());
    let is_begun = || has(&["id"]) && step.members().len() == 1;
    has(STEP_KINDS) || has(STEP_FIELDS) || is_begun()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_recognized(text: &str) -> bool {
        recognizes(&Source::new("a.yaml", text), &Limits::default())
    }

    #[test]
    fn compositions_are_recognized_also_while_they_are_written() {
        for text in [
            "name: a\nsteps:\n  - { id: x, tool: echo }\n",
            "name: a\nsteps:\n  - id: x\n",
            "name: a\nsteps:\n  - id: x\n    tool: ec\n    parameters: { text: \"{{ inp\n",
            "name: a\nsteps:\n  - id: x\n    parallel:\n",
            "dialect: chain\nname: a\n",
            "name: a\nimplementation:\n  steps: []\n",
            "id: t\ncomposition:\n  name: a\n  steps: [{ id: x, tool: echo }]\n",
            "arazzo: 1.0.1\n",
            "kind: VirtualMCPCompositeToolDefinition\nspec: {}\n",
        ] {
            assert!(is_recognized(text), "{text}");
        }
    }

    #[test]
    fn other_files_are_not() {
        for text in [
            "",
            "# nothing\n",
            "name: build\non: push\njobs: { a: { steps: [{ run: make }] } }\n",
            "name: nightly\nsteps:\n  - script: make\n    displayName: Build\n",
            "steps:\n  - name: gcr.io/a/b\n    id: build\n    args: [x]\n",
            "openapi: 3.1.0\ninfo: { title: x }\n",
            "kind: Deployment\nspec: { steps: 1 }\n",
            "tools: [a, b]\n",
            "services: { web: { image: x } }\n",
            "{\"name\": \"package\", \"scripts\": {}}",
            "- a\n- b\n",
            "name: [broken\n",
        ] {
            assert!(!is_recognized(text), "{text}");
        }
    }
}
