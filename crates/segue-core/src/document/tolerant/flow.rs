//! Brackets of the tolerant reader: JSON, and YAML in flow style.

use std::sync::Arc;

use super::{Member, Node, NodeKind, Span, TolerantReader, shared};
use crate::document::yaml::plain_kind;

impl<'a> TolerantReader<'a> {
    /// A value in JSON or in flow style. Lines that are not deeper than `parent` end it.
    pub(super) fn flow_value(&mut self, parent: isize) -> Node {
        let start = self.at;
        loop {
            match self.peek() {
                Some(b'&') if !self.is_json => {
                    let anchor = self.property();
                    if !self.skip_in_flow(parent) {
                        return self.null(start);
                    }
                    let node = self.flow_value(parent);
                    self.keep(anchor, &node);
                    return node;
                }
                Some(b'!') if !self.is_json => {
                    self.property();
                    if !self.skip_in_flow(parent) {
                        return self.null(start);
                    }
                }
                _ => break,
            }
        }
        match self.peek() {
            Some(b'{') if self.rest().starts_with("{{") => self.bare_expression(),
            Some(b'{') => self.flow_object(parent),
            Some(b'[') => self.flow_array(parent),
            Some(b'"' | b'\'') => self.quoted_node(parent),
            Some(b'*') if !self.is_json => self.alias(),
            None | Some(b',' | b'}' | b']' | b':') => self.null(start),
            Some(_) => {
                let text = self.flow_plain();
                let span = Span::new(start, start + text.len());
                self.node(start, start + text.len(), plain_kind(text, span))
            }
        }
    }

    /// An expression without the quotes that it needs, up to its `}}` or the end of the line.
    fn bare_expression(&mut self) -> Node {
        let start = self.at;
        let line = &self.text[start..self.line_end()];
        let close = line.find("}}").map(|close| close + 2);
        let length = close.unwrap_or(line.trim_end_matches(['}', ']', ',', ' ']).len());
        let end = start + length.max(2);
        self.guesses.push(Span::new(start, end));
        self.advance_to(end);
        self.node(start, end, NodeKind::String(self.text[start..end].into()))
    }

    fn flow_object(&mut self, parent: isize) -> Node {
        let start = self.at;
        if self.enter().is_none() {
            self.advance_to(start + 1);
            return self.null(start);
        }
        self.advance_to(start + 1);
        self.brackets.push(b'}');
        let mut members = Vec::new();
        while self.goes_on(b'}', parent) {
            let (key, key_span) = self.flow_key(parent);
            let begin = self.at;
            let has_value = self.skip_in_flow(parent) && self.peek() == Some(b':');
            let value = if has_value {
                self.advance_to(self.at + 1);
                let begin = self.at;
                if self.skip_in_flow(parent) { self.flow_value(parent) } else { self.null(begin) }
            } else {
                self.guesses.push(key_span);
                self.null(begin)
            };
            if members.len() < self.keys_max {
                members.push(Member { key, key_span, value });
            }
        }
        self.brackets.pop();
        self.depth_left += 1;
        self.node(start, self.at, NodeKind::Object(members))
    }

    fn flow_array(&mut self, parent: isize) -> Node {
        let start = self.at;
        if self.enter().is_none() {
            self.advance_to(start + 1);
            return self.null(start);
        }
        self.advance_to(start + 1);
        self.brackets.push(b']');
        let mut items = Vec::new();
        while self.goes_on(b']', parent) {
            let before = self.at;
            items.push(self.flow_value(parent));
            if self.at == before {
                // A stray `:`.
                self.advance_to(before + 1);
            }
        }
        self.brackets.pop();
        self.depth_left += 1;
        self.node(start, self.at, NodeKind::Array(items))
    }

    /// Moves to the next member or item; false at the end of the collection, which is consumed.
    fn goes_on(&mut self, close: u8, parent: isize) -> bool {
        loop {
            if !self.skip_in_flow(parent) {
                self.guesses.push(Span::new(self.at, self.at));
                return false;
            }
            match self.peek() {
                Some(b',') => self.advance_to(self.at + 1),
                Some(byte) if byte == close => {
                    self.advance_to(self.at + 1);
                    return false;
                }
                Some(byte @ (b'}' | b']')) => {
                    self.guesses.push(Span::new(self.at, self.at + 1));
                    if self.brackets.contains(&byte) {
                        // It closes a collection around this one.
                        return false;
                    }
                    self.advance_to(self.at + 1);
                }
                _ => return true,
            }
        }
    }

    fn flow_key(&mut self, parent: isize) -> (Arc<str>, Span) {
        let start = self.at;
        let (key, end) = match self.peek() {
            Some(b'"' | b'\'') => (shared(&self.quoted(parent)), self.at),
            Some(b'{' | b'[') => {
                // A collection cannot be a key; its first bracket is passed over.
                self.advance_to(start + 1);
                (shared(""), self.at)
            }
            _ => {
                let key = self.flow_plain();
                (shared(key), start + key.len())
            }
        };
        (key, Span::new(start, end))
    }

    /// Text without quotes, up to what ends it in brackets.
    fn flow_plain(&mut self) -> &'a str {
        let start = self.at;
        let line = &self.text[start..self.line_end()];
        let bytes = line.as_bytes();
        let ends = |at: usize| match bytes[at] {
            b',' | b'}' | b']' | b'{' | b'[' => true,
            b'"' => self.is_json,
            b':' => {
                let next = bytes.get(at + 1);
                self.is_json || next.is_none_or(|next| b" \t,}]".contains(next))
            }
            b'#' => !self.is_json && at > 0 && bytes[at - 1] == b' ',
            _ => false,
        };
        let length = (0..bytes.len()).find(|at| ends(*at)).unwrap_or(bytes.len());
        let text = line[..length].trim_end();
        self.advance_to(start + length);
        text
    }

    /// Skips white space and comments in brackets; false at the end of the text, or at a line that
    /// belongs to a collection around the brackets.
    fn skip_in_flow(&mut self, parent: isize) -> bool {
        let is_new_line = self.skip_blank();
        let is_inside = !is_new_line || self.is_json || self.column() > parent || self.closes();
        !self.is_over() && is_inside
    }

    /// Whether a closing bracket is next; authors also write it at the column of the key.
    fn closes(&self) -> bool {
        matches!(self.peek(), Some(b'}' | b']')) && !self.brackets.is_empty()
    }
}
