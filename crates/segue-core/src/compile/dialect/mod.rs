//! Document → [`Composition`], one module per dialect. Later stages do not depend on the dialect.

mod arazzo;
mod arazzo_expr;
mod chain;
mod chain_expr;
mod go_template;
pub mod grammar;
mod json_schema;
mod lower;
mod native;
mod plan;
pub(crate) mod reader;
mod resources;
mod retry;
mod skill;
mod step;
pub(super) mod template;
mod tool_schema;
mod toolhive;

pub(super) use chain::is_reserved_in_state;
pub(super) use chain_expr::lower_chain;
pub use json_schema::{Draft, composition_schema, test_schema, workspace_schema};
pub use resources::{ListedComposition, MissingDefinition, TextCompositions};
pub(super) use resources::{SelectedDocument, list, select};
pub(crate) use step::RESERVED;
pub use tool_schema::WorkspaceTools;

use crate::composition::{Composition, Dialect};
use crate::diagnostic::{Code, Diagnostic};
use crate::document::{Node, NodeKind};
use crate::limits::Limits;
use crate::source::{Source, Span};
use reader::DialectReader;

/// The result of reading a document.
pub(super) struct ReadDocument {
    /// The composition, with unresolved names.
    pub(super) composition: Option<Composition>,
    /// Findings about the document.
    pub(super) findings: Vec<Diagnostic>,
    /// The document lowered to the native dialect, if it was in another one. Every node keeps its
    /// span in the text.
    pub(super) lowered: Option<Node>,
}

/// Reads the composition that a document holds.
pub(super) fn read(source: &Source, selected: &SelectedDocument, limits: &Limits) -> ReadDocument {
    let root = unwrap_template(&selected.root);
    let nothing =
        |finding| ReadDocument { composition: None, findings: vec![finding], lowered: None };
    if !matches!(root.kind, NodeKind::Object(_)) {
        let message = format!("a composition is an object, found {}", root.kind_name());
        let span = reader::first_line(source, root.span);
        return nothing(Diagnostic::error(Code::InvalidField, message, span));
    }
    let dialect = if selected.servers.is_some() { Dialect::ToolHive } else { detect(root) };
    let servers = selected.servers.as_deref().unwrap_or_default();
    let mut reader = DialectReader::new(source, limits, dialect);
    let lowered = match dialect {
        Dialect::Composition => {
            let composition = native::read(&mut reader, root);
            return ReadDocument { composition, findings: reader.findings, lowered: None };
        }
        Dialect::Chain => {
            let composition = chain::read(&mut reader, root);
            return ReadDocument { composition, findings: reader.findings, lowered: None };
        }
        Dialect::Skill => skill::lower(&mut reader, root),
        Dialect::Plan => plan::lower(&mut reader, root),
        Dialect::ToolHive => toolhive::lower(&mut reader, root, servers),
        Dialect::Arazzo => arazzo::lower(&mut reader, root),
        Dialect::Composed => return nothing(unsupported(root, dialect)),
    };
    let composition = lowered.as_ref().and_then(|tree| native::read_tree(&mut reader, tree));
    ReadDocument { composition, findings: reader.findings, lowered }
}

/// A template file wraps a composition of any dialect.
pub(crate) fn unwrap_template(root: &Node) -> &Node {
    match (root.get("composition"), root.get("steps")) {
        (Some(inner @ Node { kind: NodeKind::Object(_), .. }), None) => inner,
        _ => root,
    }
}

/// Detects the dialect: by the `dialect` field, else by fields that only one dialect has.
pub(crate) fn detect(root: &Node) -> Dialect {
    if let Some(word) = root.get("dialect").and_then(Node::as_str) {
        return Dialect::parse(word).unwrap_or_default();
    }
    let steps = root.get("steps").or_else(|| root.get("Steps")).map_or(&[][..], Node::items);
    let has_tool_id =
        |step: &Node| ["tool_id", "toolId", "ToolID"].iter().any(|name| step.get(name).is_some());
    if root.get("arazzo").is_some() {
        Dialect::Arazzo
    } else if toolhive::is_toolhive(root) {
        Dialect::ToolHive
    } else if root.get("implementation").is_some() {
        Dialect::Chain
    } else if steps.iter().any(has_tool_id) {
        Dialect::Skill
    } else if root.get("steps").is_none()
        && (root.get("tools").is_some() || root.get("selectedTools").is_some())
    {
        Dialect::Plan
    } else if root.get("composedOf").is_some() || root.get("composed_of").is_some() {
        Dialect::Composed
    } else {
        Dialect::Composition
    }
}

fn unsupported(root: &Node, dialect: Dialect) -> Diagnostic {
    let word = dialect.as_str();
    let message = format!("documents of the `{word}` dialect cannot be read yet");
    let span = Span { start: root.span.start, end: root.span.start };
    Diagnostic::error(Code::Unsupported, message, span)
        .help("write it as a composition: `steps` with `tool` and `parameters`")
}
