//! Removals of items and members, with the comments directly above them and their blank lines.

use super::layout::{Extent, Layout};
use super::path::Segment;
use crate::document::{Node, NodeKind};
use crate::language::TextEdit;
use crate::source::Span;

fn cut(from: usize, to: usize) -> TextEdit {
    TextEdit { span: Span::new(from, to), text: String::new() }
}

impl Layout<'_> {
    /// Removes the part that a path names.
    pub(super) fn remove(&self, path: &[Segment]) -> Vec<TextEdit> {
        let Some((last, outer)) = path.split_last() else { return Vec::new() };
        let Some(container) = self.node(outer) else { return Vec::new() };
        let Some((at, count)) = Layout::position(container, last) else { return Vec::new() };
        if self.is_bracketed(container) {
            return self.remove_bracketed(container, at, count);
        }
        if count == 1 {
            return self.remove_only(outer, container, last);
        }
        let next = Layout::segment(container, at + 1);
        match self.extent(container, last) {
            Some(extent) => vec![self.remove_lines(&extent, at, next.is_some())],
            // The first part on the line of a dash: what follows moves up to it.
            None => self.remove_on_dash(container, last, next.as_ref()),
        }
    }

    /// Removes lines, and the blank lines that would be too many without them.
    fn remove_lines(&self, extent: &Extent, at: usize, has_next: bool) -> TextEdit {
        let above = self.lines.blanks_above(extent.comments);
        let mut end = self.lines.next(extent.end);
        let kept = self.are_kept(above, extent.comments);
        if end >= self.text.len() && !self.text.ends_with('\n') {
            // The last line has no ending, so the one before loses its own.
            if kept {
                return cut(extent.comments, self.text.len());
            }
            let from = self.text[..above].trim_end_matches(['\r', '\n']).len();
            return cut(from, self.text.len());
        }
        if at > 0 && above < extent.comments && !kept && (self.ends_with_blank(end) || !has_next) {
            return cut(above, end);
        }
        if at > 0 && above < extent.comments && !kept && has_next && !self.ends_with_blank(end) {
            // Only one side had a blank line: it stays between the neighbours.
            return cut(extent.comments, end);
        }
        if at == 0 {
            while end < self.text.len() && self.lines.is_blank(end) && has_next {
                end = self.lines.next(end);
            }
        }
        cut(extent.comments, end)
    }

    /// Whether the line that begins at an offset is blank.
    fn ends_with_blank(&self, at: usize) -> bool {
        at < self.text.len() && self.lines.is_blank(at)
    }

    /// Whether blank lines belong to a block scalar above them.
    pub(super) fn are_kept(&self, from: usize, to: usize) -> bool {
        from < to && self.scalar_at(self.root, from)
    }

    fn scalar_at(&self, node: &Node, at: usize) -> bool {
        if self.is_alias(node) {
            return false;
        }
        match &node.kind {
            NodeKind::Object(members) => {
                members.iter().any(|member| self.scalar_at(&member.value, at))
            }
            NodeKind::Array(items) => items.iter().any(|item| self.scalar_at(item, at)),
            _ => {
                node.span.range().start < at
                    && at <= self.end_of(node)
                    && self.end_of(node) > node.span.range().end
            }
        }
    }

    fn remove_on_dash(
        &self,
        container: &Node,
        last: &Segment,
        next: Option<&Segment>,
    ) -> Vec<TextEdit> {
        let (Some(start), Some(end)) =
            (self.part_start(container, last), self.part_end(container, last))
        else {
            return Vec::new();
        };
        let until = next.and_then(|next| self.part_start(container, next));
        let Some(next_start) = until else { return vec![cut(start, end)] };
        // Comments between belong to the next part, which then begins on a line of its own.
        let line = self.lines.start(next_start);
        let column = self.lines.column(next_start);
        let comments = self.lines.comments_above(line, column);
        let to =
            if comments < line { comments + self.lines.indent(comments).len() } else { next_start };
        vec![cut(start, to)]
    }

    /// Removes the only part of a collection in block style, which becomes empty.
    fn remove_only(&self, outer: &[Segment], container: &Node, last: &Segment) -> Vec<TextEdit> {
        let empty = if matches!(container.kind, NodeKind::Array(_)) { "[]" } else { "{}" };
        match (self.member(outer), self.extent(container, last)) {
            (Some(member), Some(extent)) => {
                let colon = self.after_props(self.after_colon(member));
                let insertion =
                    TextEdit { span: Span::new(colon, colon), text: format!(" {empty}") };
                // The line of the key remains; its line ending stays with it.
                let from = self.line_end_before(extent.comments);
                vec![insertion, cut(from, extent.end)]
            }
            _ => {
                let start = self.part_start(container, last).unwrap_or_default();
                let end = self.part_end(container, last).unwrap_or(start);
                vec![TextEdit { span: Span::new(start, end), text: empty.to_owned() }]
            }
        }
    }

    /// The end of the line before the one that begins at an offset, before its line ending.
    pub(super) fn line_end_before(&self, start: usize) -> usize {
        self.lines.previous(start).map_or(start, |above| self.lines.end(above))
    }

    fn remove_bracketed(&self, container: &Node, at: usize, count: usize) -> Vec<TextEdit> {
        let span = container.span.range();
        let (Some(last), next) =
            (Layout::segment(container, at), Layout::segment(container, at + 1))
        else {
            return Vec::new();
        };
        let (Some(start), Some(end)) =
            (self.part_start(container, &last), self.part_end(container, &last))
        else {
            return Vec::new();
        };
        if count == 1 {
            return vec![cut(span.start + 1, span.end - 1)];
        }
        let comma_before = at.checked_sub(1).and_then(|before| {
            let before = Layout::segment(container, before)?;
            self.comma_after(self.part_end(container, &before)?)
        });
        if self.has_own_lines(container, &last) {
            let line = self.lines.start(start);
            let column = self.lines.column(start);
            let first = if self.is_yaml() { self.lines.comments_above(line, column) } else { line };
            let lines = cut(first, self.lines.next(end));
            return match (next, self.comma_after(end), comma_before) {
                // The part before becomes the last one.
                (None, None, Some(comma)) => vec![cut(comma, comma + 1), lines],
                _ => vec![lines],
            };
        }
        match (next.and_then(|next| self.part_start(container, &next)), comma_before) {
            (Some(next), _) if !self.text[end..next].contains('#') => vec![cut(start, next)],
            (Some(_), _) => {
                let comma = self.comma_after(end).map_or(end, |comma| comma + 1);
                vec![cut(start, comma)]
            }
            (None, Some(comma)) if self.text[comma..start].contains('#') => {
                vec![cut(comma, comma + 1), cut(start, end)]
            }
            (None, Some(comma)) => {
                let before = Layout::segment(container, at - 1);
                let from = before.and_then(|before| self.part_end(container, &before));
                vec![cut(from.unwrap_or(comma), end)]
            }
            (None, None) => vec![cut(start, end)],
        }
    }
}
