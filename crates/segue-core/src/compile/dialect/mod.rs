//! Document → [`Composition`], one module per dialect. After this nobody knows which one it was.

mod chain;
pub mod grammar;
mod json_schema;
mod native;
mod reader;
mod step;

pub(super) use chain::is_reserved_in_state;
pub use json_schema::{Draft, composition_schema};
pub use reader::parse_duration;
pub(super) use step::RESERVED;

use super::document::{Node, NodeKind};
use super::source::{Source, Span};
use crate::composition::{Composition, Dialect};
use crate::diagnostic::{Code, Diagnostic};
use crate::limits::Limits;
use reader::Reader;

/// Reads the composition that a document holds. Names are not resolved yet.
pub(super) fn read(
    source: &Source,
    root: &Node,
    limits: &Limits,
) -> (Option<Composition>, Vec<Diagnostic>) {
    let root = unwrap_template(root);
    if !matches!(root.kind, NodeKind::Object(_)) {
        let message = format!("a composition is an object, found {}", root.kind_word());
        let span = reader::first_line(source, root.span);
        return (None, vec![Diagnostic::error(Code::InvalidField, message, span)]);
    }
    let dialect = detect(root);
    let mut reader = Reader::new(source, limits, dialect);
    let composition = match dialect {
        Dialect::Composition => native::read(&mut reader, root),
        Dialect::Chain => chain::read(&mut reader, root),
        other => return (None, vec![unsupported(root, other)]),
    };
    (composition, reader.findings)
}

/// A template file wraps a composition of any dialect.
pub(super) fn unwrap_template(root: &Node) -> &Node {
    match (root.get("composition"), root.get("steps")) {
        (Some(inner @ Node { kind: NodeKind::Object(_), .. }), None) => inner,
        _ => root,
    }
}

/// Which dialect a document is in: by its word, else by what only that dialect has.
fn detect(root: &Node) -> Dialect {
    if let Some(word) = root.get("dialect").and_then(Node::as_str) {
        match &**word {
            "chain" => return Dialect::Chain,
            "skill" => return Dialect::Skill,
            "composed" => return Dialect::Composed,
            "plan" => return Dialect::Plan,
            _ => return Dialect::Composition,
        }
    }
    let steps = root.get("steps").map_or(&[][..], Node::items);
    let has_tool_id =
        |step: &Node| ["tool_id", "toolId", "ToolID"].iter().any(|name| step.get(name).is_some());
    if root.get("implementation").is_some() {
        Dialect::Chain
    } else if steps.iter().any(has_tool_id) {
        Dialect::Skill
    } else if root.get("steps").is_none() && root.get("tools").is_some() {
        Dialect::Plan
    } else if root.get("composedOf").is_some() || root.get("composed_of").is_some() {
        Dialect::Composed
    } else {
        Dialect::Composition
    }
}

fn unsupported(root: &Node, dialect: Dialect) -> Diagnostic {
    let word = match dialect {
        Dialect::Composition => "composition",
        Dialect::Chain => "chain",
        Dialect::Skill => "skill",
        Dialect::Composed => "composed",
        Dialect::Plan => "plan",
    };
    let message = format!("documents of the `{word}` dialect cannot be read yet");
    let span = Span { start: root.span.start, end: root.span.start };
    Diagnostic::error(Code::Unsupported, message, span)
        .help("write it as a composition: `steps` with `tool` and `parameters`")
}
