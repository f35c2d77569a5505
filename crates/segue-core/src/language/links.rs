//! Parts of a text that lead to other texts: compositions that are called, pages about codes.

use super::{Analysis, DocumentLink, LinkTarget};
use crate::compile::unquoted;
use crate::composition::Composition;
use crate::diagnostic::Code;
use crate::document::Node;

/// All links, in the order of the text.
pub(super) fn of(analysis: &Analysis, tree: &Node, composition: &Composition) -> Vec<DocumentLink> {
    let source = &analysis.source;
    let mut found = Vec::new();
    if let Some(node) = tree.get("$schema")
        && let Some(url) = node.as_str().filter(|url| url.starts_with("https://"))
    {
        let span = unquoted(source, node.span);
        found.push(DocumentLink { span, target: LinkTarget::Url(url.clone()) });
    }
    composition.body.walk(&mut |step| {
        for call in step.calls() {
            let inner = call.tool.as_ref().and_then(|tool| tool.composition.as_ref());
            if let Some(inner) = inner {
                let target = LinkTarget::Composition { source: inner.source.name().clone() };
                found.push(DocumentLink { span: unquoted(source, call.name_span), target });
            }
        }
        if step.retry.on.is_empty() {
            return;
        }
        let retry = tree.find(step.span).and_then(|node| node.get("retry")?.get("on"));
        for node in retry.map_or(&[][..], Node::items) {
            if let Some(code) = node.as_str().and_then(|name| Code::parse(name)) {
                let target = LinkTarget::ErrorPage { code };
                found.push(DocumentLink { span: unquoted(source, node.span), target });
            }
        }
    });
    found.retain(|link| source.text().get(link.span.range()).is_some());
    found.sort_by_key(|link| link.span);
    found
}
