//! How a text is written: what an addition must look like to fit in.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::lines::Lines;
use super::render::is_plain;
use crate::document::{Node, NodeKind};
use crate::source::{Notation, Source};

/// The habits of a text.
#[derive(Clone, Debug)]
pub(super) struct Style {
    pub(super) notation: Notation,
    pub(super) newline: &'static str,
    /// One level of indentation.
    pub(super) unit: String,
    /// The columns from a key to the dashes of its list.
    pub(super) dash: usize,
    /// The columns from a dash to its item.
    pub(super) gap: usize,
    /// The quote that strings in YAML have.
    pub(super) quote: char,
    /// Whether strings are quoted that need not be.
    pub(super) quotes_values: bool,
    /// Whether keys in YAML are quoted.
    pub(super) quotes_keys: bool,
    /// Whether a space follows the colons and commas inside brackets.
    pub(super) colon_space: bool,
    pub(super) comma_space: bool,
    /// Whether spaces stand inside the braces of an object on one line.
    pub(super) padding: bool,
    /// Whether collections in brackets are spread over lines.
    pub(super) is_pretty: bool,
    /// By key of the collection: how many stand on one line, and on several.
    one_line: BTreeMap<Arc<str>, [usize; 2]>,
}

impl Style {
    pub(super) fn of(source: &Source, root: &Node) -> Style {
        let text = source.text();
        let is_json = source.notation() == Notation::Json;
        let mut counts = Counts { text, is_json, ..Counts::default() };
        counts.node(root, None);
        let is_bracketed = text[root.span.range().start..].starts_with(['{', '[']);
        let most = |counts: &BTreeMap<usize, usize>, otherwise: usize| {
            counts.iter().max_by_key(|(_, count)| **count).map_or(otherwise, |(width, _)| *width)
        };
        Style {
            notation: source.notation(),
            newline: Lines(text).newline(0),
            unit: counts.unit.clone().unwrap_or_else(|| "  ".to_owned()),
            dash: most(&counts.dashes, 2),
            gap: most(&counts.gaps, 2),
            quote: if counts.single > counts.double { '\'' } else { '"' },
            quotes_values: counts.quoted >= 3 && counts.quoted > counts.plain,
            quotes_keys: counts.quoted_keys > counts.plain_keys,
            colon_space: counts.colons[1] >= counts.colons[0],
            comma_space: counts.commas[1] >= counts.commas[0],
            padding: counts.padded > counts.unpadded || (!is_json && counts.unpadded == 0),
            is_pretty: is_bracketed && text[root.span.range()].contains('\n'),
            one_line: counts.one_line,
        }
    }

    /// Whether collections under this key usually stand on one line; `None` if the text has none.
    pub(super) fn is_on_one_line(&self, key: &str) -> Option<bool> {
        self.one_line.get(key).map(|[one, several]| one >= several)
    }
}

/// Whether a node of YAML is an alias. A plain scalar cannot begin with `*`.
pub(super) fn is_alias(text: &str, node: &Node) -> bool {
    text[node.span.range()].starts_with('*')
}

/// Whether a node stands in brackets.
pub(super) fn is_bracketed(text: &str, node: &Node) -> bool {
    text[node.span.range()].starts_with(['{', '['])
}

/// The name of a list's items, as a key of styles.
pub(super) fn items_of(key: Option<&str>) -> String {
    format!("{}[]", key.unwrap_or_default())
}

#[derive(Default)]
struct Counts<'t> {
    text: &'t str,
    is_json: bool,
    unit: Option<String>,
    dashes: BTreeMap<usize, usize>,
    gaps: BTreeMap<usize, usize>,
    single: usize,
    double: usize,
    quoted: usize,
    plain: usize,
    quoted_keys: usize,
    plain_keys: usize,
    colons: [usize; 2],
    commas: [usize; 2],
    padded: usize,
    unpadded: usize,
    one_line: BTreeMap<Arc<str>, [usize; 2]>,
}

impl Counts<'_> {
    fn node(&mut self, node: &Node, key: Option<&str>) {
        if !self.is_json && is_alias(self.text, node) {
            return;
        }
        let written = &self.text[node.span.range()];
        match &node.kind {
            NodeKind::Object(members) => {
                self.collection(node, key, written);
                for member in members {
                    self.member(node, member);
                }
            }
            NodeKind::Array(items) => {
                self.collection(node, key, written);
                let name = items_of(key);
                for item in items {
                    self.node(item, Some(&name));
                }
            }
            NodeKind::String(text) => self.string(written, text),
            _ => {}
        }
    }

    fn member(&mut self, object: &Node, member: &crate::document::Member) {
        let lines = Lines(self.text);
        let (key, value) = (member.key_span.range(), member.value.span.range());
        let quoted = self.text[key.clone()].starts_with(['"', '\'']);
        *(if quoted { &mut self.quoted_keys } else { &mut self.plain_keys }) += 1;
        if is_bracketed(self.text, object) {
            let between = self.text.get(key.end..value.start).unwrap_or_default();
            if between.trim_start().starts_with(':') {
                self.colons[usize::from(between.ends_with(' '))] += 1;
            }
        } else if !is_bracketed(self.text, &member.value) && !is_alias(self.text, &member.value) {
            let column = lines.column(key.start);
            let inner = lines.column(value.start.min(self.text.len()));
            match &member.value.kind {
                NodeKind::Array(items) if !items.is_empty() && inner >= column => {
                    *self.dashes.entry(inner - column).or_default() += 1;
                    let gap = items[0].span.range().start.saturating_sub(value.start);
                    if lines.start(items[0].span.range().start) == lines.start(value.start) {
                        *self.gaps.entry(gap).or_default() += 1;
                    }
                }
                NodeKind::Object(members) if !members.is_empty() && inner > column => {
                    self.unit.get_or_insert_with(|| " ".repeat(inner - column));
                }
                _ => {}
            }
        }
        self.node(&member.value, Some(&member.key));
    }

    fn collection(&mut self, node: &Node, key: Option<&str>, written: &str) {
        let first = match &node.kind {
            NodeKind::Object(members) => members.first().map(|member| member.key_span),
            NodeKind::Array(items) => items.first().map(|item| item.span),
            _ => None,
        };
        let Some(first) = first else { return };
        let bracketed = written.starts_with(['{', '[']);
        let one_line = bracketed && !written.contains('\n');
        if let Some(key) = key {
            self.one_line.entry(key.into()).or_default()[usize::from(!one_line)] += 1;
        }
        if !bracketed {
            return;
        }
        let lines = Lines(self.text);
        let inside = &self.text
            [node.span.range().start + 1..first.range().start.max(node.span.range().start + 1)];
        if one_line && written.starts_with('{') {
            *(if inside.starts_with(' ') { &mut self.padded } else { &mut self.unpadded }) += 1;
        }
        if inside.contains('\n') && self.unit.is_none() {
            let outer = lines.indent(node.span.range().start);
            let inner = lines.indent(first.range().start);
            self.unit =
                inner.strip_prefix(outer).filter(|unit| !unit.is_empty()).map(str::to_owned);
        }
        self.commas_in(node);
    }

    fn commas_in(&mut self, node: &Node) {
        let mut spans: Vec<_> =
            node.members().iter().map(|m| (m.key_span.start, m.value.span.end)).collect();
        spans.extend(node.items().iter().map(|item| (item.span.start, item.span.end)));
        for pair in spans.windows(2) {
            let between = self.text.get(pair[0].1 as usize..pair[1].0 as usize).unwrap_or_default();
            if between.trim_start().starts_with(',') && !between.contains('\n') {
                self.commas[usize::from(between.ends_with(' '))] += 1;
            }
        }
    }

    fn string(&mut self, written: &str, text: &str) {
        match written.as_bytes().first() {
            Some(b'\'') => self.single += 1,
            Some(b'"') => self.double += 1,
            _ => {}
        }
        if is_plain(text) {
            *(if written.starts_with(['"', '\'']) { &mut self.quoted } else { &mut self.plain }) +=
                1;
        }
    }
}
