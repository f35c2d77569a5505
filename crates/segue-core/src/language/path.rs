//! A tree and an offset → the way from the root to the value or key there.

use crate::document::{Member, Node, NodeKind};

/// One step of the way.
#[derive(Clone, Copy)]
pub(super) enum Crumb<'t> {
    /// Into a member of an object.
    Member { object: &'t Node, member: &'t Member },
    /// Into an item of a list.
    Item { list: &'t Node, item: &'t Node },
}

/// The way to an offset.
pub(super) struct Path<'t> {
    pub(super) crumbs: Vec<Crumb<'t>>,
    /// Whether the offset lies in the key of the last member.
    pub(super) is_key: bool,
    /// The value at the end; of a key, the member's value.
    pub(super) node: &'t Node,
}

/// The way to the innermost scalar or key that touches an offset; `None` between values.
pub(super) fn path_to(root: &Node, at: u32) -> Option<Path<'_>> {
    let (mut crumbs, mut node) = (Vec::new(), root);
    loop {
        match &node.kind {
            NodeKind::Object(members) => {
                let found = members.iter().find(|member| {
                    touches(member.key_span.start, member.key_span.end, at)
                        || holds(&member.value, at)
                })?;
                crumbs.push(Crumb::Member { object: node, member: found });
                let in_key = touches(found.key_span.start, found.key_span.end, at);
                node = &found.value;
                if in_key {
                    return Some(Path { crumbs, is_key: true, node });
                }
            }
            NodeKind::Array(items) => {
                // Items are sorted by their place, except those that an alias repeats.
                let after = items.partition_point(|item| item.span.start <= at);
                let guess = items.get(after.wrapping_sub(1)).filter(|item| holds(item, at));
                let item = guess.or_else(|| items.iter().find(|item| holds(item, at)))?;
                crumbs.push(Crumb::Item { list: node, item });
                node = item;
            }
            _ => return holds(node, at).then_some(Path { crumbs, is_key: false, node }),
        }
    }
}

/// Whether a value touches an offset. An empty value has no place.
fn holds(node: &Node, at: u32) -> bool {
    node.span.start < node.span.end && touches(node.span.start, node.span.end, at)
}

fn touches(start: u32, end: u32, at: u32) -> bool {
    start <= at && at <= end
}
