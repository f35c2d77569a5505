//! Replacements of values. Of objects and lists only the parts that differ change.

use super::layout::Layout;
use super::path::Segment;
use super::render::{is_plain, literal};
use crate::document::{Node, NodeKind};
use crate::language::TextEdit;
use crate::source::{Notation, Span};
use crate::value::Value;

impl Layout<'_> {
    /// Replaces the whole value at a path.
    pub(super) fn replace(&self, path: &[Segment], value: &Value) -> Vec<TextEdit> {
        let Some(old) = self.node(path) else { return Vec::new() };
        let key = Layout::key_of(path);
        let Some((last, outer)) = path.split_last() else { return Vec::new() };
        let Some(container) = self.node(outer) else { return Vec::new() };
        if self.is_bracketed(container) {
            let indent = self.lines.indent(self.part_start(container, last).unwrap_or_default());
            let text = self.in_brackets(old, value, &key, indent);
            return vec![self.over(container, last, old, text)];
        }
        match self.member(path) {
            Some(member) => {
                let column = self.lines.column(member.key_span.range().start);
                let colon = self.after_colon(member);
                self.replace_after(colon, column, old, value, &key, true)
            }
            None => {
                let dash = self.part_start(container, last).unwrap_or_default();
                let column = self.lines.column(dash);
                self.replace_after(dash + 1, column, old, value, &key, false)
            }
        }
    }

    /// The edit that puts a text over a value inside brackets, with its anchors and tags.
    fn over(&self, container: &Node, last: &Segment, old: &Node, text: String) -> TextEdit {
        let span = old.span.range();
        let from = match last {
            Segment::Index(_) => self.part_start(container, last).unwrap_or(span.start),
            Segment::Key(name) => {
                let member = container.members().iter().find(|member| member.key == *name);
                member.map_or(span.start, |m| self.props_start(self.after_colon(m), span.start))
            }
        };
        if span.is_empty() {
            let at = self.part_end(container, last).unwrap_or(span.start);
            return TextEdit { span: Span::new(at, at), text: format!(" {text}") };
        }
        TextEdit { span: Span::new(from, span.end), text }
    }

    fn in_brackets(&self, old: &Node, value: &Value, key: &str, indent: &str) -> String {
        match value {
            Value::String(text) => self.scalar_like(old, text),
            other => self.style.bracketed(other, key, indent),
        }
    }

    /// A string in the quotes that the old value had.
    fn scalar_like(&self, old: &Node, text: &str) -> String {
        let written = &self.text[old.span.range()];
        let is_string = matches!(old.kind, NodeKind::String(_)) && !self.is_alias(old);
        match (self.style.notation, written.chars().next()) {
            (Notation::Yaml, Some(quote @ ('"' | '\''))) if is_string => {
                if quote == '"' {
                    self.style.quoted(text, '"')
                } else {
                    self.style.quoted(text, '\'')
                }
            }
            (Notation::Yaml, Some(_)) if is_string && is_plain(text) => text.to_owned(),
            _ => self.style.string(text),
        }
    }

    /// Replaces a value in block style. `at` is the offset after its colon or dash, `column` that of its
    /// key or dash.
    fn replace_after(
        &self,
        at: usize,
        column: usize,
        old: &Node,
        value: &Value,
        key: &str,
        is_member: bool,
    ) -> Vec<TextEdit> {
        let props = self.after_props(at);
        let end = if old.span.range().is_empty() { props } else { self.end_of(old) };
        let text = match (value, literal(value)) {
            (Value::String(text), None) => format!(" {}", self.scalar_like(old, text)),
            _ if is_member => self.style.after_key(value, key, column),
            _ => {
                let list = key.strip_suffix("[]").unwrap_or(key);
                let gap = " ".repeat(self.style.gap.max(2) - 1);
                format!("{gap}{}", self.style.after_dash(value, list, column + gap.len() + 1))
            }
        };
        let starts_line = text.starts_with(['\r', '\n']);
        let is_lines = self.is_block(old) && is_member;
        let old_line_end = self.lines.end(at);
        if is_lines && old.span.range().start > old_line_end {
            // The line of the key stays, with a comment that it may have.
            let value_lines = Span::new(old_line_end, end);
            if starts_line {
                return vec![TextEdit { span: value_lines, text }];
            }
            return vec![
                TextEdit { span: Span::new(at, props), text },
                TextEdit { span: value_lines, text: String::new() },
            ];
        }
        let comment = &self.text[end..self.lines.end(end)];
        if !comment.trim().is_empty()
            && let Some(first) = text.find(['\r', '\n'])
        {
            // A comment behind the value stays on the line of the key.
            let line_end = self.lines.end(end);
            return vec![
                TextEdit { span: Span::new(at, end), text: text[..first].to_owned() },
                TextEdit { span: Span::new(line_end, line_end), text: text[first..].to_owned() },
            ];
        }
        vec![TextEdit { span: Span::new(at, end), text }]
    }
}
