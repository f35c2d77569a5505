//! A composition → its parts with their places.

use std::sync::Arc;

use super::{OutlineItem, OutlineKind};
use crate::composition::{Body, Composition, Step, StepKind};
use crate::document::{Member, Node};
use crate::source::Span;
use crate::view::body_labels;

pub(super) fn of(tree: &Node, composition: &Composition) -> Vec<OutlineItem> {
    let mut items: Vec<OutlineItem> = tree.members().iter().filter_map(top).collect();
    items.extend(steps(&composition.body));
    items.sort_by_key(|item| item.span);
    items
}

/// The input and the output; the steps come from the composition.
fn top(member: &Member) -> Option<OutlineItem> {
    let (kind, children) = match &*member.key {
        "input" => {
            let properties = member.value.get("properties").map_or(&[][..], Node::members);
            let one = |member: &Member| {
                let place = Span { start: member.key_span.start, end: member.value.span.end };
                property(&member.key, member.key_span, place, &member.value)
            };
            (OutlineKind::Input, properties.iter().map(one).collect())
        }
        "parameters" => {
            let one = |node: &Node| {
                let name = node.get("name")?;
                Some(property(name.as_str()?, name.span, node.span, node))
            };
            (OutlineKind::Input, member.value.items().iter().filter_map(one).collect())
        }
        "output" => (OutlineKind::Output, Vec::new()),
        _ => return None,
    };
    Some(OutlineItem {
        name: member.key.to_string(),
        kind,
        detail: None,
        span: Span { start: member.key_span.start, end: member.value.span.end },
        name_span: member.key_span,
        children,
    })
}

fn property(name: &str, name_span: Span, span: Span, schema: &Node) -> OutlineItem {
    let detail = schema.get("type").and_then(Node::as_str).map(ToString::to_string);
    let (kind, children) = (OutlineKind::Input, Vec::new());
    OutlineItem { name: name.to_owned(), kind, detail, span, name_span, children }
}

fn step(step: &Arc<Step>) -> OutlineItem {
    let bodies = step.kind.bodies();
    // The steps of the only body stand below the step itself.
    let children = match bodies.as_slice() {
        [only] => steps(only),
        several => {
            several.iter().zip(body_labels(step)).map(|(body, label)| group(body, label)).collect()
        }
    };
    OutlineItem {
        name: step.id.to_string(),
        kind: OutlineKind::Step,
        detail: Some(match &step.kind {
            StepKind::Tool(call) => call.name.to_string(),
            other => other.keyword().to_owned(),
        }),
        span: step.span,
        name_span: step.id_span,
        children,
    }
}

fn steps(body: &Body) -> Vec<OutlineItem> {
    body.steps.iter().map(step).collect()
}

/// A body has no place of its own in the composition; its steps have.
fn group(body: &Body, name: String) -> OutlineItem {
    let first = body.steps.first().map_or_else(Span::default, |step| step.span);
    let last = body.steps.last().map_or(first, |step| step.span);
    let span = Span { start: first.start, end: last.end.max(first.end) };
    let name_span = body.steps.first().map_or(span, |step| step.id_span);
    OutlineItem {
        name,
        kind: OutlineKind::Body,
        detail: None,
        span,
        name_span,
        children: steps(body),
    }
}
