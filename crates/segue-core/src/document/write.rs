//! Writes a tree as readable YAML, with the comments of its original text.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{Node, NodeKind};
use crate::source::{Source, Span};

/// Lists of scalars up to this width are written on one line.
const WIDTH: usize = 88;

/// Writes a tree. `origin` is the tree of the original text, and `within` the parts of that text
/// whose comments are written. A comment stays with the node that it
/// preceded or followed there, or moves to the next node that still exists.
pub(crate) fn yaml(tree: &Node, origin: &Node, source: &Source, within: &[Span]) -> String {
    let mut places = Vec::new();
    anchors(tree, &mut places);
    places.sort_unstable();
    let mut writer = YamlWriter { out: String::new(), comments: BTreeMap::new(), rest: Vec::new() };
    let is_within = |at: u32| within.iter().any(|part| (part.start..part.end).contains(&at));
    let comments = comments(origin, source.text()).into_iter();
    for comment in comments.filter(|comment| is_within(comment.at)) {
        let place = match comment.beside {
            // The last node that begins on the same line.
            Some(line) => {
                let until = places.partition_point(|place| *place < comment.at);
                places[..until].last().copied().filter(|place| *place >= line)
            }
            None => None,
        };
        let next = || {
            let from = places.partition_point(|place| *place <= comment.at);
            places.get(from).copied()
        };
        match place.or_else(next) {
            Some(place) => writer.comments.entry(place).or_default().push(comment.text.to_owned()),
            None => writer.rest.push(comment.text.to_owned()),
        }
    }
    writer.block(tree, 0);
    for comment in std::mem::take(&mut writer.rest) {
        let _ = writeln!(writer.out, "{comment}");
    }
    writer.out
}

/// Collects the offsets of members and items.
fn anchors(node: &Node, places: &mut Vec<u32>) {
    for member in node.members() {
        places.push(member.key_span.start);
        anchors(&member.value, places);
    }
    for item in node.items() {
        places.push(item.span.start);
        anchors(item, places);
    }
}

struct Comment<'t> {
    at: u32,
    /// The start of the line, if something precedes the comment.
    beside: Option<u32>,
    text: &'t str,
}

/// The comments of a text: from each `#` that starts a word outside of a value to the end of its
/// line.
fn comments<'t>(origin: &Node, text: &'t str) -> Vec<Comment<'t>> {
    let mut taken = Vec::new();
    scalars(origin, &mut taken);
    taken.sort_unstable_by_key(|span| span.start);
    let is_taken = |at: u32| {
        let after = taken.partition_point(|span| span.start <= at);
        taken[..after].last().is_some_and(|span| at < span.end)
    };
    let mut found = Vec::new();
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let begins = |at: &usize| line[..*at].chars().next_back().is_none_or(char::is_whitespace);
        let at = line.match_indices('#').map(|(at, _)| at).filter(begins);
        let at = at.map(|at| (at, offset(start + at))).find(|(_, place)| !is_taken(*place));
        if let Some((column, at)) = at {
            let beside = (!line[..column].trim().is_empty()).then(|| offset(start));
            found.push(Comment { at, beside, text: line[column..].trim_end() });
        }
        start += line.len();
    }
    found
}

fn offset(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

fn scalars(node: &Node, spans: &mut Vec<Span>) {
    for member in node.members() {
        spans.push(member.key_span);
        scalars(&member.value, spans);
    }
    node.items().iter().for_each(|item| scalars(item, spans));
    if !matches!(node.kind, NodeKind::Array(_) | NodeKind::Object(_)) {
        spans.push(node.span);
    }
}

struct YamlWriter {
    out: String,
    /// Comments not yet written, by offset.
    comments: BTreeMap<u32, Vec<String>>,
    /// Comments after the last node.
    rest: Vec<String>,
}

impl YamlWriter {
    /// Writes a node that starts on its own line.
    fn block(&mut self, node: &Node, indent: usize) {
        match &node.kind {
            NodeKind::Object(members) if !members.is_empty() => {
                for member in members {
                    self.comments_at(member.key_span.start, indent);
                    self.pad(indent);
                    self.member(member, indent);
                }
            }
            NodeKind::Array(items) if !items.is_empty() => {
                for item in items {
                    self.item(item, indent);
                }
            }
            _ => {
                self.pad(indent);
                self.scalar(node, indent);
            }
        }
    }

    fn member(&mut self, member: &super::Member, indent: usize) {
        self.out.push_str(&word(&member.key));
        self.out.push(':');
        match &member.value.kind {
            _ if self.fits_on_a_line(&member.value) => {
                let _ = writeln!(self.out, " {}", flow(&member.value));
            }
            NodeKind::Object(_) | NodeKind::Array(_) => {
                self.out.push('\n');
                self.block(&member.value, indent + 2);
            }
            _ => {
                self.out.push(' ');
                self.scalar(&member.value, indent + 2);
            }
        }
    }

    fn item(&mut self, item: &Node, indent: usize) {
        self.comments_at(item.span.start, indent);
        match &item.kind {
            NodeKind::Object(members) if !members.is_empty() => {
                for (position, member) in members.iter().enumerate() {
                    self.comments_at(member.key_span.start, indent + 2 * usize::from(position > 0));
                    self.pad(indent);
                    self.out.push_str(if position == 0 { "- " } else { "  " });
                    self.member(member, indent + 2);
                }
            }
            NodeKind::Array(items) if !items.is_empty() && !self.fits_on_a_line(item) => {
                self.pad(indent);
                self.out.push_str("-\n");
                self.block(item, indent + 2);
            }
            _ => {
                self.pad(indent);
                self.out.push_str("- ");
                self.scalar(item, indent + 2);
            }
        }
    }

    /// Writes a scalar, or a collection that fits on one line.
    fn scalar(&mut self, node: &Node, indent: usize) {
        match &node.kind {
            NodeKind::String(text) if is_literal(text) => {
                let ends = if text.ends_with('\n') { "|" } else { "|-" };
                let _ = writeln!(self.out, "{ends}");
                for line in text.trim_end_matches('\n').split('\n') {
                    if !line.is_empty() {
                        self.pad(indent);
                        self.out.push_str(line);
                    }
                    self.out.push('\n');
                }
            }
            _ => {
                let _ = writeln!(self.out, "{}", flow(node));
            }
        }
    }

    /// Whether a value fits on one line: lists of scalars, small objects, no comment inside.
    fn fits_on_a_line(&self, node: &Node) -> bool {
        let is_flat = |node: &Node| {
            let has_lines = matches!(&node.kind, NodeKind::String(text) if is_literal(text));
            !has_lines && node.items().is_empty() && node.members().is_empty()
        };
        if node.items().is_empty() && node.members().is_empty() {
            return is_flat(node);
        }
        let mut places = Vec::new();
        anchors(node, &mut places);
        node.items().iter().all(is_flat)
            && node.members().iter().all(|member| is_flat(&member.value))
            && (node.members().len() <= 3)
            && !places.iter().any(|place| self.comments.contains_key(place))
            && flow(node).len() <= WIDTH
    }

    fn comments_at(&mut self, place: u32, indent: usize) {
        for comment in self.comments.remove(&place).unwrap_or_default() {
            self.pad(indent);
            let _ = writeln!(self.out, "{comment}");
        }
    }

    fn pad(&mut self, indent: usize) {
        self.out.extend(std::iter::repeat_n(' ', indent));
    }
}

/// A value on one line.
fn flow(node: &Node) -> String {
    match &node.kind {
        NodeKind::String(text) => word(text),
        NodeKind::Array(items) => {
            format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", "))
        }
        NodeKind::Object(members) if members.is_empty() => "{}".to_owned(),
        NodeKind::Object(members) => {
            let members = members
                .iter()
                .map(|member| format!("{}: {}", word(&member.key), flow(&member.value)));
            format!("{{ {} }}", members.collect::<Vec<_>>().join(", "))
        }
        _ => node.to_value().to_json(),
    }
}

/// A string, quoted only if YAML would read it as something else.
fn word(text: &str) -> String {
    if is_plain(text) { text.to_owned() } else { serde_json::to_string(text).unwrap_or_default() }
}

/// Whether a string needs no quotes in YAML, wherever it stands.
pub(crate) fn is_plain(text: &str) -> bool {
    const MEANING: &[&str] =
        &["null", "true", "false", "yes", "no", "on", "off", "y", "n", "nan", "inf"];
    let begins = text.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    let is_plain =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | ' ' | '$');
    begins
        && text.chars().all(is_plain)
        && !text.ends_with(' ')
        && !MEANING.contains(&text.to_lowercase().as_str())
}

/// Whether a string of several lines can be a literal block.
pub(crate) fn is_literal(text: &str) -> bool {
    let inside = text.strip_suffix('\n').unwrap_or(text);
    let is_printable = |c: char| c == '\n' || c == '\t' || !c.is_control();
    inside.contains('\n')
        && !inside.ends_with('\n')
        && !inside.starts_with([' ', '\n', '\t'])
        && !inside.contains(['\u{85}', '\u{2028}', '\u{2029}', '\u{feff}'])
        && inside.chars().all(is_printable)
}

/// Whether a part of a text holds a comment, outside of the scalars of a tree.
pub(crate) fn has_comment(tree: &Node, text: &str, from: usize, to: usize) -> bool {
    let within = |comment: &Comment<'_>| (from..to).contains(&(comment.at as usize));
    comments(tree, text).iter().any(within)
}
