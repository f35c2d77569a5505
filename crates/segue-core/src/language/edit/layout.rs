//! Where the members and items of a document begin and end in its text, with what belongs to them:
//! dashes, anchors, commas, comments.

use super::lines::Lines;
use super::path::{Segment, ValuePath, node_at};
use super::style::{Style, is_alias, is_bracketed};
use crate::document::{Member, Node, NodeKind};
use crate::source::Notation;

/// A text with its tree.
pub(super) struct Layout<'d> {
    pub(super) text: &'d str,
    pub(super) root: &'d Node,
    pub(super) style: &'d Style,
    pub(super) lines: Lines<'d>,
}

/// The lines of an item or member that has lines of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    /// The begin of the line of its first comment above.
    pub(super) comments: usize,
    /// The begin of the line on which it begins.
    pub(super) first: usize,
    /// The column at which it begins: that of its dash or its key.
    pub(super) column: usize,
    /// The end of its last line, before the line ending.
    pub(super) end: usize,
}

impl<'d> Layout<'d> {
    pub(super) fn new(text: &'d str, root: &'d Node, style: &'d Style) -> Layout<'d> {
        Layout { text, root, style, lines: Lines(text) }
    }

    pub(super) fn node(&self, path: &[Segment]) -> Option<&'d Node> {
        node_at(self.root, path)
    }

    pub(super) fn is_yaml(&self) -> bool {
        self.style.notation == Notation::Yaml
    }

    pub(super) fn is_alias(&self, node: &Node) -> bool {
        self.is_yaml() && is_alias(self.text, node)
    }

    pub(super) fn is_bracketed(&self, node: &Node) -> bool {
        is_bracketed(self.text, node)
    }

    /// Whether a node is a collection in block style.
    pub(super) fn is_block(&self, node: &Node) -> bool {
        let is_collection = matches!(node.kind, NodeKind::Array(_) | NodeKind::Object(_));
        is_collection && !self.is_alias(node) && !self.is_bracketed(node)
    }

    /// Whether a path leads through brackets, so that everything there is in brackets.
    pub(super) fn is_in_brackets(&self, path: &[Segment]) -> bool {
        (0..=path.len())
            .any(|length| self.node(&path[..length]).is_some_and(|node| self.is_bracketed(node)))
    }

    /// The member that a path names.
    pub(super) fn member(&self, path: &[Segment]) -> Option<&'d Member> {
        let (Segment::Key(name), object) = path.split_last()? else { return None };
        self.node(object)?.members().iter().find(|member| member.key == *name)
    }

    /// The offset after the colon of a member.
    pub(super) fn after_colon(&self, member: &Member) -> usize {
        let end = member.key_span.range().end;
        self.text[end..].find(':').map_or(end, |colon| end + colon + 1)
    }

    /// The end of a value. A value that is missing ends where it could begin.
    pub(super) fn end_of(&self, node: &Node) -> usize {
        let end = node.span.range().end;
        if !self.is_block(node) {
            return self.with_kept_lines(node, end);
        }
        match &node.kind {
            NodeKind::Object(members) => {
                members.last().map_or(end, |member| self.member_end(member))
            }
            NodeKind::Array(items) => match items.last() {
                Some(last) if last.span.range().is_empty() => {
                    self.dash_of(node, items.len() - 1) + 1
                }
                Some(last) => self.end_of(last),
                None => end,
            },
            _ => end,
        }
    }

    pub(super) fn member_end(&self, member: &Member) -> usize {
        if member.value.span.range().is_empty() {
            let colon = self.after_colon(member);
            return self.after_props(colon);
        }
        self.end_of(&member.value)
    }

    /// Blank lines at the end of a block scalar belong to it if it keeps them (`|+`).
    fn with_kept_lines(&self, node: &Node, end: usize) -> usize {
        let written = &self.text[node.span.range()];
        let header = written.lines().next().unwrap_or_default();
        let header = header.split('#').next().unwrap_or_default();
        if !self.is_yaml() || !written.starts_with(['|', '>']) || !header.contains('+') {
            return end;
        }
        let mut end = self.lines.end(end);
        loop {
            let below = self.lines.next(end);
            if below >= self.text.len() || !self.lines.is_blank(below) {
                return end;
            }
            end = self.lines.end(below);
        }
    }

    /// The offset after the anchors and tags that follow on the same line.
    pub(super) fn after_props(&self, at: usize) -> usize {
        let mut end = at;
        if !self.is_yaml() {
            return end;
        }
        loop {
            let rest = &self.text[end..self.lines.end(end)];
            let word = rest.trim_start_matches(' ');
            if !word.starts_with(['&', '!']) {
                return end;
            }
            let start = end + rest.len() - word.len();
            end = start + word.find([' ', '\t', ',', ']', '}']).unwrap_or(word.len());
        }
    }

    /// Where the anchors and tags of a value begin that stand between two offsets.
    pub(super) fn props_start(&self, from: usize, value: usize) -> usize {
        if !self.is_yaml() || from >= value {
            return value;
        }
        let mut start = from;
        for line in self.text[from..value].split_inclusive('\n') {
            let code = line.split(" #").next().unwrap_or_default();
            let is_comment = code.trim_start().starts_with('#');
            if let Some(at) = code.find(['&', '!']).filter(|_| !is_comment) {
                return start + at;
            }
            start += line.len();
        }
        value
    }

    /// Where an item begins: at its dash, or at its anchor or value in brackets.
    pub(super) fn item_start(&self, list: &Node, at: usize) -> usize {
        let item = &list.items()[at];
        if !self.is_bracketed(list) {
            return self.dash_of(list, at);
        }
        let from = match at {
            0 => list.span.range().start + 1,
            _ => self.end_of(&list.items()[at - 1]),
        };
        self.props_start(from, item.span.range().start)
    }

    fn dash_of(&self, list: &Node, at: usize) -> usize {
        let Some(before) = at.checked_sub(1) else { return list.span.range().start };
        let previous = &list.items()[before];
        let mut from = if previous.span.range().is_empty() {
            self.dash_of(list, before) + 1
        } else {
            self.end_of(previous)
        };
        // Between two items stand white space and comments.
        loop {
            let rest = &self.text[from..];
            let word = rest.trim_start();
            from += rest.len() - word.len();
            match word.as_bytes().first() {
                Some(b'#') => from = self.lines.end(from),
                _ => return from,
            }
        }
    }

    /// The start of the part of a collection that a segment names.
    pub(super) fn part_start(&self, container: &Node, last: &Segment) -> Option<usize> {
        match last {
            Segment::Index(at) => {
                (*at < container.items().len()).then(|| self.item_start(container, *at))
            }
            Segment::Key(name) => {
                let member = container.members().iter().find(|member| member.key == *name)?;
                Some(member.key_span.range().start)
            }
        }
    }

    pub(super) fn part_end(&self, container: &Node, last: &Segment) -> Option<usize> {
        match last {
            Segment::Index(at) => {
                let item = container.items().get(*at)?;
                let is_missing = item.span.range().is_empty() && self.is_block(container);
                Some(if is_missing { self.dash_of(container, *at) + 1 } else { self.end_of(item) })
            }
            Segment::Key(name) => {
                let member = container.members().iter().find(|member| member.key == *name)?;
                Some(self.member_end(member))
            }
        }
    }

    /// The lines of a part that begins on a line of its own; `None` if something precedes it there.
    pub(super) fn extent(&self, container: &Node, last: &Segment) -> Option<Extent> {
        let start = self.part_start(container, last)?;
        if !self.lines.is_first(start) {
            return None;
        }
        let end = self.part_end(container, last)?;
        let column = self.lines.column(start);
        let first = self.lines.start(start);
        if !self.is_yaml() {
            return Some(Extent { comments: first, first, column, end: self.lines.end(end) });
        }
        Some(Extent {
            comments: self.lines.comments_above(first, column),
            first,
            column,
            end: self.lines.end_with_comments(end, column),
        })
    }

    /// The position of a part among its siblings, and their number.
    pub(super) fn position(container: &Node, last: &Segment) -> Option<(usize, usize)> {
        match last {
            Segment::Index(at) => Some((*at, container.items().len())),
            Segment::Key(name) => {
                let at = container.members().iter().position(|member| member.key == *name)?;
                Some((at, container.members().len()))
            }
        }
    }

    /// The segment of a part by its position.
    pub(super) fn segment(container: &Node, at: usize) -> Option<Segment> {
        match &container.kind {
            NodeKind::Array(items) => (at < items.len()).then_some(Segment::Index(at)),
            _ => container.members().get(at).map(|member| Segment::Key(member.key.clone())),
        }
    }

    /// The key under which a collection stands, for its style.
    pub(super) fn key_of(path: &[Segment]) -> String {
        let mut items = 0;
        for segment in path.iter().rev() {
            match segment {
                Segment::Key(name) => return format!("{name}{}", "[]".repeat(items)),
                Segment::Index(_) => items += 1,
            }
        }
        "[]".repeat(items)
    }

    /// Whether the items around a position in a block list are separated by blank lines.
    pub(super) fn is_spaced(&self, list: &Node, at: usize) -> bool {
        let has_gap = |at: usize| {
            let extent = (at < list.items().len()).then(|| self.extent(list, &Segment::Index(at)));
            extent.flatten().is_some_and(|extent| {
                let above = self.lines.blanks_above(extent.comments);
                above < extent.comments && !self.are_kept(above, extent.comments)
            })
        };
        let count = list.items().len();
        if count < 2 {
            return false;
        }
        let near = at.clamp(1, count - 1);
        has_gap(near)
    }

    /// Whether a part of a collection in brackets has lines of its own.
    pub(super) fn has_own_lines(&self, container: &Node, last: &Segment) -> bool {
        let (Some(start), Some(end)) =
            (self.part_start(container, last), self.part_end(container, last))
        else {
            return false;
        };
        let rest = &self.text[end..self.lines.end(end)];
        let rest = rest.trim_start();
        let rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
        let ends = rest.is_empty() || (self.is_yaml() && rest.starts_with('#'));
        self.lines.is_first(start) && ends
    }

    /// The offset of the comma that follows an offset inside brackets, past comments.
    pub(super) fn comma_after(&self, from: usize) -> Option<usize> {
        let mut at = from;
        loop {
            let rest = &self.text[at..];
            let word = rest.trim_start();
            at += rest.len() - word.len();
            match word.as_bytes().first() {
                Some(b',') => return Some(at),
                Some(b'#') if self.is_yaml() => at = self.lines.end(at),
                _ => return None,
            }
        }
    }

    /// The alias through which a path leads, if any: its own text, such as `*defaults`.
    pub(super) fn alias_on(&self, path: &[Segment]) -> Option<&'d str> {
        let inner = (0..path.len()).filter_map(|length| self.node(&path[..length]));
        inner.into_iter().find(|node| self.is_alias(node)).map(|node| &self.text[node.span.range()])
    }

    /// The first alias of the document.
    pub(super) fn any_alias(&self) -> Option<&'d str> {
        fn find<'d>(layout: &Layout<'d>, node: &'d Node) -> Option<&'d str> {
            if layout.is_alias(node) {
                return Some(&layout.text[node.span.range()]);
            }
            let members = node.members().iter().map(|member| &member.value);
            members.chain(node.items()).find_map(|child| find(layout, child))
        }
        if self.is_yaml() { find(self, self.root) } else { None }
    }

    /// The path of the node with a span, of nodes that are no copies of an alias.
    pub(super) fn path_of(&self, span: crate::source::Span) -> Option<ValuePath> {
        fn find(
            layout: &Layout<'_>,
            node: &Node,
            span: crate::source::Span,
            path: &mut ValuePath,
        ) -> bool {
            if node.span == span {
                return true;
            }
            let holds = |node: &Node| node.span.start <= span.start && span.end <= node.span.end;
            if layout.is_alias(node) || !holds(node) {
                return false;
            }
            for member in node.members() {
                path.push(Segment::Key(member.key.clone()));
                if find(layout, &member.value, span, path) {
                    return true;
                }
                path.pop();
            }
            for (at, item) in node.items().iter().enumerate() {
                path.push(Segment::Index(at));
                if find(layout, item, span, path) {
                    return true;
                }
                path.pop();
            }
            false
        }
        let mut path = ValuePath::new();
        find(self, self.root, span, &mut path).then_some(path)
    }
}
