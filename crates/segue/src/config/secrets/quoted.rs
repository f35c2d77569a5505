//! The text of a configuration → the same text without secrets, for quotes in findings.
//!
//! Only values of fields that hold no secret are quoted, in the form of [`super::masked`]. Every byte keeps
//! its position, so that the spans of findings stay valid.

use std::ops::Range;

use segue_core::diagnostic::{Diagnostic, nearest_name};
use segue_core::document::{Node, NodeKind, ReadLimits, read};
use segue_core::limits::Limits;
use segue_core::source::Source;

use super::arguments::{self, text_secrets};
use super::is_secret_name;
use super::masked::{MASK, is_secret_place, mask_text};

/// Fields whose values may be quoted. A misspelled `token` is not among them.
const QUOTED: &[&str] = &[
    "allow",
    "allowed_hosts",
    "allowed_origins",
    "args",
    "argv",
    "audience",
    "base_url",
    "category",
    "cert",
    "command",
    "compositions",
    "confirm",
    "cwd",
    "driver",
    "endpoint",
    "expires",
    "inline",
    "issuer",
    "keep",
    "listen",
    "max_concurrency",
    "method",
    "model",
    "older_than",
    "overwrite",
    "provider",
    "rights",
    "rollback",
    "root",
    "scopes",
    "store",
    "tags",
    "templates",
    "timeout",
    "tool",
    "toolset",
    "type",
    "url",
];

/// Secret fields, which a misspelled name is compared with first.
const NOT_QUOTED: &[&str] = &[
    "api_key",
    "credentials",
    "description",
    "env",
    "headers",
    "key",
    "password",
    "secret",
    "state_key",
    "token",
];

/// Shorter names are too short to be recognised when misspelled.
const MISSPELLED_BYTES_MIN: usize = 8;

/// A shorter secret is searched for only in the quotes of a message: it could be an ordinary word.
const SOUGHT_BYTES_MIN: usize = 8;

/// An even shorter secret is not searched for.
const QUOTED_BYTES_MIN: usize = 4;

/// The text and the findings without secrets; `given` are the expanded variables.
pub(crate) fn quote_redacted(
    source: &Source,
    mut findings: Vec<Diagnostic>,
    given: &[String],
) -> (Source, Vec<Diagnostic>) {
    let text = source.text();
    let mut hidden = HiddenRanges::default();
    match read(source, ReadLimits::for_documents(&Limits::default())) {
        Ok(root) => {
            hidden.node("", &root, false);
            hidden.comments(text);
        }
        Err(_) => hidden.lines(text),
    }
    hidden.texts.extend(given.iter().cloned());
    hidden.texts.retain(|text| text.len() >= QUOTED_BYTES_MIN);
    hidden.texts.sort_by_key(|text| std::cmp::Reverse(text.len()));
    for secret in hidden.texts.iter().filter(|text| text.len() >= SOUGHT_BYTES_MIN) {
        let again = text.match_indices(&**secret).map(|(at, found)| at..at + found.len());
        hidden.ranges.extend(again);
    }
    let clean = |text: &mut String| *text = cleaned(text, &hidden.texts);
    for finding in &mut findings {
        clean(&mut finding.message);
        finding.help.iter_mut().for_each(clean);
        finding.related.iter_mut().for_each(|(_, label)| clean(label));
    }
    (Source::new(source.name().to_string(), masked(text, &hidden.ranges)), findings)
}

/// A message without secrets. Its quotes are between backticks.
fn cleaned(message: &str, secrets: &[String]) -> String {
    let segment = |(at, segment): (usize, &str)| {
        let mut segment = segment.to_owned();
        for secret in secrets.iter().filter(|it| at % 2 == 1 || it.len() >= SOUGHT_BYTES_MIN) {
            segment = segment.replace(&**secret, MASK);
        }
        segment
    };
    message.split('`').enumerate().map(segment).collect::<Vec<_>>().join("`")
}

/// The ranges of a text that are hidden.
#[derive(Default)]
struct HiddenRanges {
    ranges: Vec<Range<usize>>,
    /// The hidden values, which messages may contain.
    texts: Vec<String>,
    /// The ranges of keys and values; everything else may be a comment.
    known: Vec<Range<usize>>,
}

impl HiddenRanges {
    /// Hides the secrets of the value of `name`.
    fn node(&mut self, name: &str, node: &Node, is_secret: bool) {
        let is_secret = is_secret || is_secret_place(name);
        match &node.kind {
            NodeKind::Array(items) => self.list(name, "", items, is_secret),
            NodeKind::Object(members) => {
                let program = node.get("command").and_then(Node::as_str).map_or("", |it| &**it);
                for member in members {
                    self.known.push(member.key_span.range());
                    match &member.value.kind {
                        NodeKind::Array(items) if &*member.key == "args" => {
                            self.list("args", program, items, is_secret);
                        }
                        _ => self.node(&member.key, &member.value, is_secret),
                    }
                }
            }
            kind => self.scalar(name, node, is_secret || holds_secret(name, kind)),
        }
    }

    fn list(&mut self, name: &str, program: &str, items: &[Node], is_secret: bool) {
        let words: Vec<&str> = items.iter().map(|it| it.as_str().map_or("", |it| &**it)).collect();
        for (item, secret) in items.iter().zip(arguments::argument_secrets(program, &words)) {
            self.node(name, item, is_secret || secret.is_all || !secret.ranges.is_empty());
        }
    }

    fn scalar(&mut self, name: &str, node: &Node, is_secret: bool) {
        self.known.push(node.span.range());
        let is_known = is_quoted(name);
        let is_shown = match &node.kind {
            NodeKind::Number(_) => is_known || name.ends_with("_max") || name.ends_with("_ms"),
            NodeKind::String(text) if mask_text(text) == **text => return,
            NodeKind::String(_) => is_known,
            _ => return,
        };
        if is_secret && let Some(text) = node.as_str() {
            self.texts.push(text.trim().to_owned());
        }
        if is_secret || !is_shown {
            self.ranges.push(node.span.range());
        }
    }

    /// Hides comments, which may hold old values.
    fn comments(&mut self, text: &str) {
        self.known.sort_by_key(|range| range.start);
        let mut known = self.known.iter().peekable();
        let mut at = 0;
        while let Some(found) = text[at..].find('#').map(|found| at + found) {
            while known.next_if(|range| range.end <= found).is_some() {}
            if let Some(range) = known.peek().filter(|range| range.contains(&found)) {
                at = range.end;
                continue;
            }
            let end = text[found..].find('\n').map_or(text.len(), |end| found + end);
            self.ranges.push(found + 1..end);
            at = end;
        }
    }

    /// For a text that cannot be parsed: hides everything but brackets and keys at the start of lines.
    fn lines(&mut self, text: &str) {
        let mut start = 0;
        for line in text.split_inclusive('\n') {
            let inner = line.trim_start_matches([' ', '\t', '-', '"', '\'']);
            let is_key = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
            let end = inner.find(|c| !is_key(c)).unwrap_or(inner.len());
            let rest = inner[end..].trim_start_matches(['"', '\'']);
            let is_key = rest.strip_prefix(':').is_some_and(|it| it.trim_start().len() < it.len());
            let shown = if is_key { line.len() - rest.len() + 1 } else { line.len() - inner.len() };
            // Brackets stay: one of them may be the error.
            let others = line[shown..].split_inclusive(['{', '}', '[', ']']);
            let mut at = start + shown;
            for part in others {
                let hidden = part.trim_end_matches(['{', '}', '[', ']']).len();
                self.ranges.push(at..at + hidden);
                at += part.len();
            }
            start += line.len();
        }
    }
}

/// Whether the values of a field may be quoted: a known field, or a misspelling of one.
fn is_quoted(name: &str) -> bool {
    let all = NOT_QUOTED.iter().chain(QUOTED).copied();
    let is_meant = || nearest_name(name, all).is_some_and(|near| QUOTED.contains(&near));
    QUOTED.contains(&name) || (name.len() >= MISSPELLED_BYTES_MIN && is_meant())
}

/// Whether a value of an ordinary field holds or names a secret.
fn holds_secret(name: &str, kind: &NodeKind) -> bool {
    let NodeKind::String(text) = kind else { return false };
    let is_word = |c: char| c.is_alphanumeric() || "_-".contains(c);
    text.split(|c| !is_word(c)).any(is_secret_name) || !text_secrets(name, text).is_empty()
}

/// The text with each byte of these ranges replaced by `*`. Line breaks and blanks stay.
fn masked(text: &str, ranges: &[Range<usize>]) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for range in ranges {
        for byte in bytes.get_mut(range.clone()).into_iter().flatten() {
            if !byte.is_ascii_whitespace() {
                *byte = b'*';
            }
        }
    }
    // Ranges lie on character boundaries; if one did not, nothing is quoted.
    String::from_utf8(bytes).unwrap_or_else(|_| "*".repeat(text.len()))
}
