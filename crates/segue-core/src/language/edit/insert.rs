//! Additions: an item of a list, a member of an object.

use super::layout::Layout;
use super::lines::reindented;
use super::path::Segment;
use super::render::is_empty;
use crate::document::Node;
use crate::language::TextEdit;
use crate::source::Span;
use crate::value::Value;

/// What is added to a list.
#[derive(Clone, Debug)]
pub(super) enum Content {
    /// A value, written in the style of the text.
    Value(Value),
    /// A part of the text, which keeps its bytes except for its indentation.
    Moved(Moved),
}

/// Where a member goes in its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    First,
    After(usize),
    Last,
}

/// A part of a text that moves.
#[derive(Clone, Debug)]
pub(super) struct Moved {
    pub(super) value: Value,
    /// Its text, without the indentation of its first line. In block style it begins with the dash or
    /// the comments above it.
    pub(super) text: String,
    /// The indentation of the lines that it had.
    pub(super) indent: String,
    pub(super) is_block: bool,
    pub(super) has_comments: bool,
    /// Whether blank lines separate the items of its list.
    pub(super) is_spaced: bool,
}

impl Content {
    pub(super) fn value(&self) -> &Value {
        match self {
            Content::Value(value) => value,
            Content::Moved(moved) => &moved.value,
        }
    }
}

fn insert(at: usize, text: impl Into<String>) -> TextEdit {
    TextEdit { span: Span::new(at, at), text: text.into() }
}

impl Layout<'_> {
    /// A part of a list, to move it elsewhere.
    pub(super) fn moved(&self, list: &Node, at: usize) -> Option<Moved> {
        let last = Segment::Index(at);
        let item = list.items().get(at)?;
        let start = self.part_start(list, &last)?;
        let end = self.part_end(list, &last)?;
        let value = item.to_value();
        let is_block = !self.is_bracketed(list);
        let is_spaced = is_block && self.is_spaced(list, at);
        if is_block && let Some(extent) = self.extent(list, &last) {
            let text = self.text[extent.comments..extent.end].to_owned();
            let indent = " ".repeat(extent.column);
            let text = text.strip_prefix(indent.as_str()).unwrap_or(text.trim_start()).to_owned();
            let has_comments = self.has_comments(item, extent.comments, extent.end);
            return Some(Moved { value, text, indent, is_block, has_comments, is_spaced });
        }
        if is_block {
            // The first item of a list on the line of another dash.
            let text = self.text
                [start..self.lines.end_with_comments(end, self.lines.column(start))]
                .to_owned();
            let indent = " ".repeat(self.lines.column(start));
            let has_comments = self.has_comments(item, start, end);
            return Some(Moved { value, text, indent, is_block, has_comments, is_spaced });
        }
        let text = self.text[start..end].to_owned();
        let indent = self.lines.indent(start).to_owned();
        let has_comments = self.has_comments(item, start, end);
        Some(Moved { value, text, indent, is_block, has_comments, is_spaced })
    }

    /// A copy of a part of a list, without the comments above it.
    pub(super) fn copied(&self, list: &Node, at: usize) -> Option<Moved> {
        let last = Segment::Index(at);
        let moved = self.moved(list, at)?;
        match self.extent(list, &last) {
            Some(extent) if moved.is_block => {
                let text = self.text[extent.first + extent.column..extent.end].to_owned();
                Some(Moved { text, ..moved })
            }
            _ => Some(moved),
        }
    }

    /// Whether a comment stands in a part of the text, outside of the scalars of a node.
    fn has_comments(&self, node: &Node, from: usize, to: usize) -> bool {
        self.is_yaml() && crate::document::write::has_comment(node, self.text, from, to)
    }

    /// Inserts into a list.
    pub(super) fn insert_item(
        &self,
        path: &[Segment],
        at: usize,
        content: &Content,
    ) -> Result<Vec<TextEdit>, &'static str> {
        let Some(list) = self.node(path) else { return Ok(Vec::new()) };
        let name = Layout::key_of(path);
        if !self.is_bracketed(list) {
            return Ok(vec![self.insert_block_item(list, at, content, &name)]);
        }
        let outer = path.split_last().map_or(path, |(_, outer)| outer);
        match (list.items().is_empty(), self.member(path)) {
            (true, Some(member)) if self.is_yaml() && !self.is_in_brackets(outer) => {
                let key = self.lines.column(member.key_span.range().start);
                let chunk = self.block_chunk(content, key + self.style.dash, &name);
                Ok(self.instead_of_brackets(list, &chunk))
            }
            _ => self.insert_bracketed_item(list, at, content, &name),
        }
    }

    /// Replaces `[]` after a key by lines of their own.
    fn instead_of_brackets(&self, list: &Node, chunk: &str) -> Vec<TextEdit> {
        let span = list.span.range();
        let line_end = self.lines.end(span.end);
        let before = self.text[..span.start].trim_end_matches(' ').len();
        vec![
            TextEdit { span: Span::new(before, span.end), text: String::new() },
            insert(line_end, format!("{}{chunk}", self.style.newline)),
        ]
    }

    /// The lines of an item in block style, without the last line ending.
    fn block_chunk(&self, content: &Content, dash: usize, list: &str) -> String {
        let indent = " ".repeat(dash);
        let gap = " ".repeat(self.style.gap.max(2) - 1);
        match content {
            Content::Value(value) => {
                let item = self.style.after_dash(value, list, dash + gap.len() + 1);
                format!("{indent}-{gap}{item}")
            }
            Content::Moved(moved) if moved.is_block => {
                let text = reindented(&moved.text, &moved.indent, &indent, true);
                format!("{indent}{text}")
            }
            Content::Moved(moved) => {
                let inner = " ".repeat(dash + gap.len() + 1);
                let text = reindented(&moved.text, &moved.indent, &inner, true);
                format!("{indent}-{gap}{text}")
            }
        }
    }

    fn insert_block_item(&self, list: &Node, at: usize, content: &Content, name: &str) -> TextEdit {
        let column = self.lines.column(list.span.range().start);
        let chunk = self.block_chunk(content, column, name);
        let place = at.min(list.items().len());
        let newline = self.lines.newline(list.span.range().start);
        let is_second = list.items().len() == 1 && place == 1;
        let was_spaced = matches!(content, Content::Moved(moved) if is_second && moved.is_spaced);
        let blank = if was_spaced || self.is_spaced(list, place) { newline } else { "" };
        let Some(before) = place.checked_sub(1) else {
            return match self.extent(list, &Segment::Index(0)) {
                Some(extent) => insert(extent.comments, format!("{chunk}{newline}{blank}")),
                None => {
                    let rest = chunk.trim_start_matches(' ');
                    let indent = " ".repeat(column);
                    insert(list.span.range().start, format!("{rest}{newline}{indent}"))
                }
            };
        };
        let last = Segment::Index(before);
        let end = self.part_end(list, &last).unwrap_or(list.span.range().end);
        let end = self.lines.end_with_comments(end, column);
        insert(end, format!("{newline}{blank}{chunk}"))
    }

    /// A value or a moved part inside brackets.
    fn bracketed_content(
        &self,
        content: &Content,
        key: &str,
        indent: &str,
    ) -> Result<String, &'static str> {
        match content {
            Content::Value(value) => Ok(self.style.bracketed(value, key, indent)),
            Content::Moved(moved) if moved.is_block && moved.has_comments => {
                Err("it has comments, which cannot stand inside brackets on one line")
            }
            Content::Moved(moved) if moved.is_block => Ok(self.style.on_one_line(&moved.value)),
            Content::Moved(moved) => Ok(reindented(&moved.text, &moved.indent, indent, true)),
        }
    }

    fn insert_bracketed_item(
        &self,
        list: &Node,
        at: usize,
        content: &Content,
        name: &str,
    ) -> Result<Vec<TextEdit>, &'static str> {
        let key = format!("{name}[]");
        let span = list.span.range();
        let outer = self.lines.indent(span.start);
        if list.items().is_empty() {
            let spread = self.style.is_pretty && self.style.is_on_one_line(name) != Some(true);
            if !spread {
                let part = self.bracketed_content(content, &key, outer)?;
                return Ok(vec![insert(span.start + 1, part)]);
            }
            let inner = format!("{outer}{}", self.style.unit);
            let part = self.bracketed_content(content, &key, &inner)?;
            let newline = self.style.newline;
            let inside = Span::new(span.start + 1, span.end - 1);
            return Ok(vec![TextEdit {
                span: inside,
                text: format!("{newline}{inner}{part}{newline}{outer}"),
            }]);
        }
        let count = list.items().len();
        let sibling = at.min(count - 1);
        let start = self.item_start(list, sibling);
        let indent = self.lines.indent(start).to_owned();
        let part = self.bracketed_content(content, &key, &indent)?;
        Ok(self.beside(list, at, &part))
    }

    /// Inserts a written part before the part at a position, or after the last one.
    fn beside(&self, container: &Node, at: usize, part: &str) -> Vec<TextEdit> {
        let count = container.items().len().max(container.members().len());
        let comma = if self.style.comma_space { ", " } else { "," };
        if at < count {
            let Some(last) = Layout::segment(container, at) else { return Vec::new() };
            let start = self.part_start(container, &last).unwrap_or_default();
            if !self.lines.is_first(start) {
                return vec![insert(start, format!("{part}{comma}"))];
            }
            let column = self.lines.column(start);
            let line = self.lines.start(start);
            let place = if self.is_yaml() { self.lines.comments_above(line, column) } else { line };
            let indent = self.lines.indent(start);
            return vec![insert(place, format!("{indent}{part},{}", self.lines.newline(start)))];
        }
        let Some(last) = Layout::segment(container, count - 1) else { return Vec::new() };
        let start = self.part_start(container, &last).unwrap_or_default();
        let end = self.part_end(container, &last).unwrap_or_default();
        let trailing = self.comma_after(end);
        if !self.lines.is_first(start)
            || !self.text[self.lines.start(container.span.range().start)..start].contains('\n')
        {
            return match trailing {
                Some(at) => vec![insert(at + 1, format!("{}{part},", &comma[1..]))],
                None => vec![insert(end, format!("{comma}{part}"))],
            };
        }
        let indent = self.lines.indent(start);
        let newline = self.lines.newline(end);
        match trailing {
            Some(at) => {
                vec![insert(self.lines.end(at), format!("{newline}{indent}{part},"))]
            }
            None => {
                let line_end = self.lines.end(end);
                // Behind the last value may stand a comment, or the closing bracket.
                let rest = self.text[end..line_end].trim_start();
                if rest.is_empty() || rest.starts_with('#') {
                    return vec![
                        insert(end, ","),
                        insert(line_end, format!("{newline}{indent}{part}")),
                    ];
                }
                vec![insert(end, format!(",{newline}{indent}{part}"))]
            }
        }
    }

    /// Adds a member to an object.
    pub(super) fn insert_member(
        &self,
        path: &[Segment],
        slot: Slot,
        key: &str,
        value: &Value,
    ) -> Vec<TextEdit> {
        let Some(object) = self.node(path) else { return Vec::new() };
        let members = object.members();
        let place = match slot {
            Slot::First => 0,
            Slot::After(at) => members.len().min(at + 1),
            Slot::Last => members.len(),
        };
        if self.is_bracketed(object) {
            return self.insert_bracketed_member(path, object, place, key, value);
        }
        let Some(first) = members.first() else { return Vec::new() };
        let column = self.lines.column(first.key_span.range().start);
        let newline = self.lines.newline(first.key_span.range().start);
        let member = self.style.block_member(key, value, column);
        let indent = " ".repeat(column);
        let Some(before) = place.checked_sub(1).map(|before| &members[before]) else {
            return vec![insert(
                first.key_span.range().start,
                format!("{member}{newline}{indent}"),
            )];
        };
        let end = self.lines.end_with_comments(self.member_end(before), column);
        vec![insert(end, format!("{newline}{indent}{member}"))]
    }

    fn insert_bracketed_member(
        &self,
        path: &[Segment],
        object: &Node,
        place: usize,
        key: &str,
        value: &Value,
    ) -> Vec<TextEdit> {
        let span = object.span.range();
        let outer_path = path.split_last().map_or(path, |(_, outer)| outer);
        let is_empty_block = object.members().is_empty()
            && self.is_yaml()
            && !self.is_in_brackets(outer_path)
            && self.member(path).is_some();
        let name = Layout::key_of(path);
        if is_empty_block && let Some(member) = self.member(path) {
            let added = Value::object([(key, value.clone())]);
            let column = self.lines.column(member.key_span.range().start);
            let text = self.style.after_key(&added, &name, column);
            let before = self.text[..span.start].trim_end_matches(' ').len();
            let text = if text.starts_with(['\r', '\n']) {
                let line_end = self.lines.end(span.end);
                return vec![
                    TextEdit { span: Span::new(before, span.end), text: String::new() },
                    insert(line_end, text),
                ];
            } else {
                text
            };
            return vec![TextEdit { span: Span::new(before, span.end), text }];
        }
        let written = |indent: &str| {
            let value = self.style.bracketed(value, key, indent);
            format!("{}{}{value}", self.style.key(key), self.style.colon())
        };
        let outer = self.lines.indent(span.start);
        if object.members().is_empty() {
            let spread = self.style.is_pretty && self.style.is_on_one_line(&name) != Some(true);
            let text = if spread && !is_empty(value) {
                let inner = format!("{outer}{}", self.style.unit);
                let newline = self.style.newline;
                format!("{newline}{inner}{}{newline}{outer}", written(&inner))
            } else {
                let pad = if self.style.padding { " " } else { "" };
                format!("{pad}{}{pad}", written(outer))
            };
            return vec![TextEdit { span: Span::new(span.start + 1, span.end - 1), text }];
        }
        let sibling =
            object.members()[place.min(object.members().len() - 1)].key_span.range().start;
        let indent = self.lines.indent(sibling);
        self.beside(object, place, &written(indent))
    }
}
