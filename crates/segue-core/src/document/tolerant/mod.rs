//! A text that does not parse → a tree, as far as its lines and brackets show one.
//!
//! The strict readers end at the first mistake. An editor needs the rest of the text too, so this
//! reader never fails: it follows indentation and brackets, closes what is left open, and takes a
//! line without a `:` among keys as a key that is being typed. Every value has its span, as from the
//! strict readers.
//!
//! The result is a guess. It serves proposals and names; nothing runs from it.

mod flow;
mod scalar;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Member, Node, NodeKind, ReadLimits};
use crate::source::{Notation, Source, Span};

/// A guessed tree.
pub(crate) struct TolerantTree {
    /// The first document.
    pub(crate) root: Node,
    /// The parts that needed a guess.
    pub(crate) guesses: Vec<Span>,
}

/// Reads the first document of a text, whatever it looks like.
pub(crate) fn read(source: &Source, limits: ReadLimits) -> TolerantTree {
    let is_json = source.notation() == Notation::Json;
    let mut reader = TolerantReader {
        text: source.text(),
        at: 0,
        line_start: 0,
        known_line: Cell::new((1, 0)),
        is_json,
        nodes_left: limits.nodes_max,
        depth_left: limits.depth_max,
        keys_max: limits.keys_max,
        anchors: BTreeMap::new(),
        brackets: Vec::new(),
        guesses: Vec::new(),
    };
    if source.text().len() > limits.bytes_max {
        return TolerantTree { root: reader.null(0), guesses: Vec::new() };
    }
    let root = reader.document();
    TolerantTree { root, guesses: reader.guesses }
}

struct TolerantReader<'a> {
    text: &'a str,
    /// Offset of the next byte, always on a character boundary.
    at: usize,
    /// Offset of the first byte of its line.
    line_start: usize,
    /// Where the end of the line is known: from an offset to that end.
    known_line: Cell<(usize, usize)>,
    is_json: bool,
    nodes_left: usize,
    depth_left: usize,
    keys_max: usize,
    anchors: BTreeMap<&'a str, Node>,
    /// The brackets that are open, by their closing byte.
    brackets: Vec<u8>,
    guesses: Vec<Span>,
}

/// Where a value of a block collection stands.
#[derive(Clone, Copy)]
struct BlockPlace {
    /// The column of the collection; −1 for the document.
    parent: isize,
    /// Whether a sequence may stand at the same column, as after `key:`.
    sequence_at_parent: bool,
    /// Whether a collection may begin on the same line, as after `- `.
    is_compact: bool,
}

impl<'a> TolerantReader<'a> {
    fn document(&mut self) -> Node {
        if self.text.starts_with('\u{feff}') {
            self.advance_to('\u{feff}'.len_utf8());
            self.line_start = self.at;
        }
        if self.is_json {
            self.skip_blank();
            return self.flow_value(-1);
        }
        self.skip_blank();
        while self.peek() == Some(b'%') {
            self.advance_to(self.line_end());
            self.skip_blank();
        }
        if self.at_marker() && self.peek() == Some(b'-') {
            self.advance_to(self.at + 3);
        }
        let place = BlockPlace { parent: -1, sequence_at_parent: false, is_compact: true };
        self.block_value(place)
    }

    /// The value after `key:`, `- ` or at the beginning of the document.
    fn block_value(&mut self, place: BlockPlace) -> Node {
        let begin = self.at;
        let mut is_own_line = self.skip_blank();
        let mut anchor = None;
        loop {
            if self.is_over() || self.is_outside(place, is_own_line) {
                return self.null(begin);
            }
            match self.peek() {
                Some(b'&') => anchor = Some(self.property()),
                Some(b'!') => drop(self.property()),
                _ => break,
            }
            is_own_line |= self.skip_blank();
        }
        let node = self.block_content(place, is_own_line || place.is_compact);
        if let Some(anchor) = anchor {
            self.keep(anchor, &node);
        }
        node
    }

    fn is_outside(&self, place: BlockPlace, is_own_line: bool) -> bool {
        let column = self.column();
        let continues = place.sequence_at_parent && column == place.parent && self.at_dash();
        is_own_line && column <= place.parent && !continues
    }

    fn block_content(&mut self, place: BlockPlace, may_begin: bool) -> Node {
        let column = self.column();
        match self.peek() {
            Some(b'*') => self.alias(),
            Some(b'|' | b'>') if self.at_block_scalar() => self.block_scalar(place.parent),
            Some(b'{' | b'[') if !self.rest().starts_with("{{") => self.flow_value(place.parent),
            Some(b'-') if may_begin && self.at_dash() => self.sequence(column, place.parent),
            _ if may_begin && (self.key_at(self.at).is_some() || self.begins_mapping(column)) => {
                self.mapping(column)
            }
            Some(b'"' | b'\'') => self.quoted_node(place.parent),
            _ => self.plain_scalar(place.parent),
        }
    }

    /// Whether a line without a `:` is a key that is being typed: the next line has a key at its
    /// column.
    fn begins_mapping(&mut self, column: isize) -> bool {
        let (at, line_start) = (self.at, self.line_start);
        self.advance_to(self.line_end());
        self.skip_blank();
        let found = !self.is_over()
            && self.column() == column
            && !self.at_dash()
            && self.key_at(self.at).is_some();
        (self.at, self.line_start) = (at, line_start);
        found
    }

    fn mapping(&mut self, column: isize) -> Node {
        let start = self.at;
        let Some(()) = self.enter() else { return self.too_deep() };
        let mut members: Vec<Member> = Vec::new();
        let place = BlockPlace { parent: column, sequence_at_parent: true, is_compact: false };
        loop {
            let member = match self.key_at(self.at) {
                Some((key, key_span, after)) => {
                    self.advance_to(after);
                    Member { key, key_span, value: self.block_value(place) }
                }
                None => self.unfinished_key(),
            };
            if members.len() < self.keys_max {
                members.push(member);
            }
            if !self.next_line() || self.column() < column {
                break;
            }
            if self.at_dash() && self.column() == column {
                // A dash among keys belongs to nothing.
                self.guess_line();
                if !self.next_line() || self.column() < column {
                    break;
                }
            }
        }
        self.depth_left += 1;
        let end = members.last().map_or(start, |last| last.value.span.range().end);
        self.node(start, end, NodeKind::Object(members))
    }

    /// A line among keys that has no `:` yet.
    fn unfinished_key(&mut self) -> Member {
        let (start, end) = (self.at, self.line_end());
        let written = self.text[start..end].split(" #").next().unwrap_or_default().trim_end();
        let key_span = Span::new(start, start + written.len());
        self.guesses.push(key_span);
        let key = written.trim_matches(['"', '\'']).into();
        let value = self.null(key_span.range().end);
        self.advance_to(end);
        Member { key, key_span, value }
    }

    fn sequence(&mut self, column: isize, parent: isize) -> Node {
        let start = self.at;
        let Some(()) = self.enter() else { return self.too_deep() };
        let mut items = Vec::new();
        let place = BlockPlace { parent: column, sequence_at_parent: false, is_compact: true };
        loop {
            if self.at_dash() {
                self.advance_to(self.at + 1);
                items.push(self.block_value(place));
            } else if column <= parent {
                break;
            } else {
                items.push(self.guess_line());
            }
            if !self.next_line() || self.column() < column {
                break;
            }
        }
        self.depth_left += 1;
        let end = items.last().map_or(start, |last| last.span.range().end);
        self.node(start, end, NodeKind::Array(items))
    }

    /// The rest of a line that belongs to nothing, as text.
    fn guess_line(&mut self) -> Node {
        let (start, end) = (self.at, self.line_end());
        let written = self.text[start..end].trim_end();
        self.guesses.push(Span::new(start, start + written.len()));
        self.advance_to(end);
        self.node(start, start + written.len(), NodeKind::String(written.into()))
    }

    /// Moves to the next line with content, past anything left on this one.
    fn next_line(&mut self) -> bool {
        let is_first = self.text[self.line_start..self.at].trim_start().is_empty();
        if !is_first {
            let rest = self.text[self.at..self.line_end()].trim_start();
            if !rest.is_empty() && !rest.starts_with('#') {
                self.guess_line();
            } else {
                self.advance_to(self.line_end());
            }
        }
        self.skip_blank();
        !self.is_over()
    }

    /// Skips an anchor or a tag, and returns its name.
    fn property(&mut self) -> &'a str {
        let rest = &self.text[self.at + 1..];
        let ends = |c: char| c.is_whitespace() || matches!(c, ',' | '[' | ']' | '{' | '}');
        let name = &rest[..rest.find(ends).unwrap_or(rest.len())];
        self.advance_to(self.at + 1 + name.len());
        name
    }

    fn keep(&mut self, anchor: &'a str, node: &Node) {
        if let Some(left) = self.nodes_left.checked_sub(size(node, self.nodes_left)) {
            self.nodes_left = left;
            self.anchors.insert(anchor, node.clone());
        }
    }

    fn alias(&mut self) -> Node {
        let start = self.at;
        let name = self.property();
        let target = self.anchors.get(name);
        let kind = target.and_then(|target| {
            self.nodes_left = self.nodes_left.checked_sub(size(target, self.nodes_left))?;
            Some(target.kind.clone())
        });
        self.node(start, self.at, kind.unwrap_or(NodeKind::Null))
    }

    /// Counts a level of nesting, if the limit allows it.
    fn enter(&mut self) -> Option<()> {
        self.depth_left = self.depth_left.checked_sub(1)?;
        Some(())
    }

    fn too_deep(&mut self) -> Node {
        let start = self.at;
        self.guess_line();
        self.null(start)
    }

    fn null(&mut self, at: usize) -> Node {
        self.node(at, at, NodeKind::Null)
    }

    /// A value; beyond the limit, reading ends.
    fn node(&mut self, start: usize, end: usize, kind: NodeKind) -> Node {
        match self.nodes_left.checked_sub(1) {
            Some(left) => self.nodes_left = left,
            None => self.advance_to(self.text.len()),
        }
        Node { span: Span::new(start, end.max(start)), kind }
    }
}

/// The number of values below a node, and itself; `more` than the limit if there are more.
fn size(root: &Node, limit: usize) -> usize {
    let (mut count, mut left) = (0, vec![root]);
    while let Some(node) = left.pop() {
        count += 1;
        if count > limit {
            break;
        }
        left.extend(node.items());
        left.extend(node.members().iter().map(|member| &member.value));
    }
    count
}

/// Text without its quotes and escapes, shared.
fn shared(text: &str) -> Arc<str> {
    Arc::from(text)
}

#[cfg(test)]
mod tests;
