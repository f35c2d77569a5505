//! YAML 1.2 → one tree per document, from a parser's events.
//!
//! The reader rejects values without a JSON form (foreign tags, keys that are not scalars) and
//! merge keys, which hide duplicate keys. An alias is a copy whose size is counted before it is
//! made, so an alias bomb stops at the limit.
//!
//! Nothing here recurses with the text. The parser gets the depth limit too, because it reads
//! ahead.
//!
//! Spans are those of the tokens. The parser's spans differ in three places, corrected here: a
//! block scalar begins at its indicator, a sequence at its first dash, and a block collection ends
//! with its last value, not with the token after it.

mod scalar;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use granit_parser::{
    ErrorKind, Event, Parser, ScalarStyle, ScanError, Span as Marks, StructureStyle, Tag,
};

use self::scalar::{CoreTag, Scalar};
use super::read_budget::{ReadBudget, ReadResult, char_span, parse_error, quote};
use super::{Member, Node, NodeKind, ReadLimits};
use crate::diagnostic::Diagnostic;
use crate::source::Span;

/// Reads every document of a text that is not empty; there is at least one.
pub(super) fn read(text: &str, budget: ReadLimits) -> Result<Vec<Node>, Vec<Diagnostic>> {
    let base = directive_end(text);
    let mut builder = TreeBuilder {
        text,
        base,
        budget: ReadBudget::new(budget),
        roots: Vec::new(),
        open: Vec::new(),
        places: Vec::new(),
        anchors: BTreeMap::new(),
        last_end: 0,
    };
    // One more than allowed, so that our own finding reports the limit, with its exact position.
    let depth_max = budget.depth_max.saturating_add(1);
    let options = granit_parser::options! {
        flow_nesting_limit: depth_max,
        block_nesting_limit: depth_max,
        // Directives are useless without foreign tags, and a hostile text can hold hundreds of
        // thousands.
        disallow_directives: true,
    };
    let roots = builder.documents(Parser::new_from_str_with_options(&text[base..], options));
    builder.budget.finish(roots)
}

/// The offset after the directive `%YAML 1.2`, which changes nothing.
fn directive_end(text: &str) -> usize {
    let (first, _) = text.split_once('\n').unwrap_or((text, ""));
    let directive = first.trim_start_matches('\u{feff}').trim_end();
    if directive == "%YAML 1.2" { text.len().min(first.len() + 1) } else { 0 }
}

struct TreeBuilder<'a> {
    text: &'a str,
    /// Offset of the part of the text that the parser sees.
    base: usize,
    budget: ReadBudget,
    /// The finished documents.
    roots: Vec<Node>,
    /// The open collections, outermost first.
    open: Vec<OpenCollection>,
    /// The place of each collection, by its number. Values move when their collection closes, so an
    /// anchor stores a place in the tree and no copy of the value.
    places: Vec<ChildSlot>,
    anchors: BTreeMap<usize, ChildSlot>,
    /// End of the last scalar or alias, or of the last opened or closed collection.
    last_end: usize,
}

/// A place in the tree: a child of a numbered collection.
#[derive(Clone, Copy)]
struct ChildSlot {
    /// `None` for the root.
    collection: Option<usize>,
    index: usize,
}

/// A collection that is not closed yet.
struct OpenCollection {
    number: usize,
    start: usize,
    style: StructureStyle,
    content: Content,
}

enum Content {
    Items(Vec<Node>),
    Members { members: Vec<Member>, key: Option<(Arc<str>, Span)> },
}

impl Content {
    fn len(&self) -> usize {
        match self {
            Content::Items(items) => items.len(),
            Content::Members { members, .. } => members.len(),
        }
    }

    fn child(&self, index: usize) -> Option<&Node> {
        match self {
            Content::Items(items) => items.get(index),
            Content::Members { members, .. } => members.get(index).map(|member| &member.value),
        }
    }
}

impl<'a> TreeBuilder<'a> {
    fn documents(
        &mut self,
        events: impl Iterator<Item = Result<(Event<'a>, Marks), ScanError>>,
    ) -> ReadResult<Vec<Node>> {
        for event in events {
            let (event, marks) = event.map_err(|error| self.refusal(&error))?;
            self.event(event, &marks)?;
        }
        let mut roots = std::mem::take(&mut self.roots);
        roots.retain(|root| root.kind != NodeKind::Null || root.span.start != root.span.end);
        if roots.is_empty() {
            let end = Span::new(self.text.len(), self.text.len());
            return Err(parse_error("the document is empty", end).into());
        }
        Ok(roots)
    }

    fn event(&mut self, event: Event<'a>, marks: &Marks) -> ReadResult<()> {
        let span = self.span(marks);
        match event {
            Event::DocumentStart(explicit, _) => {
                // An alias means an anchor of its own document.
                self.anchors.clear();
                self.places.clear();
                self.last_end = if explicit { span.range().end } else { span.range().start };
                Ok(())
            }
            Event::Scalar(text, style, anchor, tag) => {
                // The parser reports a missing value as `~`.
                let missing = style == ScalarStyle::Plain && span.range().is_empty();
                let text = if missing { Cow::Borrowed("") } else { text };
                let tag = self.tag(tag.as_deref(), marks)?;
                self.scalar(&Scalar { text, style, tag }, anchor, span)
            }
            Event::SequenceStart(style, anchor, tag) => {
                let tag = self.tag(tag.as_deref(), marks)?;
                let span = Span::new(self.sequence_start(style, span), span.range().end);
                self.collection(Content::Items(Vec::new()), style, (anchor, tag), span)
            }
            Event::MappingStart(style, anchor, tag) => {
                let tag = self.tag(tag.as_deref(), marks)?;
                let content = Content::Members { members: Vec::new(), key: None };
                self.collection(content, style, (anchor, tag), span)
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(span),
            Event::Alias(anchor) => self.alias(anchor, span),
            // Ends of the stream, and events that are not requested: comments, names of anchors.
            _ => Ok(()),
        }
    }

    fn scalar(&mut self, scalar: &Scalar<'_>, anchor: usize, span: Span) -> ReadResult<()> {
        let span = match scalar.style {
            ScalarStyle::Literal | ScalarStyle::Folded => self.block_scalar_span(span),
            _ => span,
        };
        self.last_end = span.range().end;
        if self.awaits_key() {
            return self.key(scalar, anchor, span);
        }
        self.budget.count(1, char_span(self.text, span.range().start))?;
        let kind = scalar.kind(span)?;
        self.anchor(anchor);
        self.insert(Node { span, kind })
    }

    fn key(&mut self, scalar: &Scalar<'_>, anchor: usize, span: Span) -> ReadResult<()> {
        let plain = scalar.style == ScalarStyle::Plain;
        if anchor != 0 {
            let finding = parse_error("an anchor cannot stand on a key", span);
            let help = "to name the whole mapping, put the anchor on a line before it";
            return Err(finding.help(help).into());
        }
        if plain && scalar.text.is_empty() && scalar.tag.is_none() {
            return Err(parse_error("a key is missing here", span).into());
        }
        if plain && scalar.text == "<<" {
            let finding =
                parse_error("merge key `<<` is not supported: it hides duplicate keys", span);
            return Err(finding
                .help("write the keys out, or give the alias a key of its own")
                .into());
        }
        if scalar.tag.is_some() {
            scalar.kind(span)?;
        }
        if let Some(Content::Members { key, .. }) = self.open.last_mut().map(|top| &mut top.content)
        {
            *key = Some((Arc::from(&*scalar.text), span));
        }
        Ok(())
    }

    /// An unquoted `{{ … }}` is a mapping in a mapping to YAML, and the most common mistake.
    fn complex_key(&self, at: Span) -> Diagnostic {
        let start = at.range().start;
        if start > 0 && self.text.as_bytes()[start - 1..].starts_with(b"{{") {
            let place = Span::new(start - 1, start + 1);
            return parse_error("an expression must be quoted in YAML", place)
                .help("put quotes around it: `\"{{ … }}\"`");
        }
        parse_error("a key must be a scalar", at).help("quote the key if it is meant as text")
    }

    fn collection(
        &mut self,
        content: Content,
        style: StructureStyle,
        (anchor, tag): (usize, Option<CoreTag>),
        span: Span,
    ) -> ReadResult<()> {
        let at = char_span(self.text, span.range().start);
        if self.awaits_key() {
            return Err(self.complex_key(at).into());
        }
        match (&content, tag) {
            (_, None)
            | (Content::Items(_), Some(CoreTag::Seq))
            | (Content::Members { .. }, Some(CoreTag::Map)) => {}
            (_, Some(tag)) => {
                return Err(parse_error(format!("{} is expected here", tag.noun()), at).into());
            }
        }
        self.budget.count(1, at)?;
        self.budget.enter(at)?;
        self.anchor(anchor);
        let number = self.places.len();
        self.places.push(self.place());
        self.open.push(OpenCollection { number, start: span.range().start, style, content });
        self.last_end = span.range().end;
        Ok(())
    }

    fn close(&mut self, end: Span) -> ReadResult<()> {
        let Some(OpenCollection { start, style, content, .. }) = self.open.pop() else {
            return Ok(());
        };
        self.budget.leave();
        if style == StructureStyle::Flow {
            self.last_end = end.range().end;
        }
        let kind = match content {
            Content::Items(mut items) => {
                items.shrink_to_fit();
                NodeKind::Array(items)
            }
            Content::Members { mut members, .. } => {
                self.budget.check_keys(&members)?;
                members.shrink_to_fit();
                NodeKind::Object(members)
            }
        };
        self.insert(Node { span: Span::new(start, self.last_end), kind })
    }

    fn alias(&mut self, anchor: usize, span: Span) -> ReadResult<()> {
        if self.awaits_key() {
            return Err(parse_error("an alias cannot be a key", span)
                .help("write the key out")
                .into());
        }
        self.budget.count_alias(span)?;
        let Some(target) = self.anchors.get(&anchor).and_then(|place| self.find(*place)) else {
            let message = "the alias stands inside the value that it repeats";
            return Err(parse_error(message, span).into());
        };
        let nodes = copy_size(target, &self.budget, span)?;
        let kind = target.kind.clone();
        self.budget.count(nodes, span)?;
        self.last_end = span.range().end;
        self.insert(Node { span, kind })
    }

    /// Inserts a finished value into its collection.
    fn insert(&mut self, node: Node) -> ReadResult<()> {
        match self.open.last_mut().map(|top| &mut top.content) {
            None => self.roots.push(node),
            Some(Content::Items(items)) => items.push(node),
            Some(Content::Members { members, key }) => {
                let Some((key, key_span)) = key.take() else {
                    return Err(parse_error("a key is missing here", node.span).into());
                };
                self.budget.count_key(members.len(), key_span)?;
                members.push(Member { key, key_span, value: node });
            }
        }
        Ok(())
    }

    fn span(&self, marks: &Marks) -> Span {
        let range = marks.byte_range().unwrap_or_default();
        Span::new(self.base + range.start, self.base + range.end.max(range.start))
    }

    fn awaits_key(&self) -> bool {
        let top = self.open.last().map(|top| &top.content);
        matches!(top, Some(Content::Members { key: None, .. }))
    }

    /// The place of the next value.
    fn place(&self) -> ChildSlot {
        match self.open.last() {
            Some(top) => ChildSlot { collection: Some(top.number), index: top.content.len() },
            None => ChildSlot { collection: None, index: 0 },
        }
    }

    fn anchor(&mut self, anchor: usize) {
        if anchor != 0 {
            self.anchors.insert(anchor, self.place());
        }
    }

    /// The finished value at a place; `None` while it is open.
    fn find(&self, mut place: ChildSlot) -> Option<&Node> {
        let mut path = Vec::new();
        while let Some(collection) = place.collection {
            path.push(place.index);
            place = self.places[collection];
        }
        let mut open = self.open.iter();
        let mut found: Option<&Node> = None;
        while let Some(index) = path.pop() {
            found = match found {
                Some(node) => child(node, index),
                // A child that an open collection lacks is the next open collection.
                None => open.next()?.content.child(index),
            };
        }
        found
    }

    fn tag(&self, tag: Option<&Tag>, marks: &Marks) -> ReadResult<Option<CoreTag>> {
        let Some(tag) = tag else { return Ok(None) };
        if let Some(core) = tag.core_suffix().and_then(CoreTag::parse) {
            return Ok(Some(core));
        }
        let span = marks.tag_span().map_or_else(|| self.span(marks), |tag| self.span(&tag));
        let written = self.text.get(span.range()).unwrap_or_default();
        Err(parse_error(format!("tag `{}` is not supported", quote(written)), span).into())
    }

    /// The parser gives the first content line; the indicator precedes it.
    fn block_scalar_span(&self, content: Span) -> Span {
        let start = self.skip_to_value(DocumentMarkers::Skip);
        let start = if start < content.range().start { start } else { content.range().start };
        let header_end =
            self.text[start..].find(['\n', '\r']).map_or(self.text.len(), |n| start + n);
        let end = content.range().end.max(header_end);
        let written = self.text[start..end].trim_end_matches(['\n', '\r', ' ', '\t']);
        Span::new(start, start + written.len())
    }

    /// For an unindented sequence under a key, the parser gives the offset after its first dash.
    fn sequence_start(&self, style: StructureStyle, span: Span) -> usize {
        let top = self.open.last().map(|top| &top.content);
        let under_key = matches!(top, Some(Content::Members { key: Some(_), .. }));
        if style == StructureStyle::Flow || !under_key {
            return span.range().start;
        }
        self.skip_to_value(DocumentMarkers::Stop).min(span.range().start)
    }

    /// The first byte of the next value: past indicators, comments, anchors and tags.
    fn skip_to_value(&self, dashes: DocumentMarkers) -> usize {
        let bytes = self.text.as_bytes();
        let ends_word = |at: usize| bytes.get(at).is_none_or(u8::is_ascii_whitespace);
        let mut at = self.last_end;
        while let Some(byte) = bytes.get(at) {
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' => at += 1,
                b'-' if dashes == DocumentMarkers::Stop => break,
                b':' | b'?' | b'-' if ends_word(at + 1) => at += 1,
                b'#' => at += bytes[at..].iter().take_while(|&&b| b != b'\n').count(),
                b'&' | b'!' => {
                    at += bytes[at..].iter().take_while(|b| !b.is_ascii_whitespace()).count();
                }
                _ => break,
            }
        }
        at
    }

    /// The parser's error as a finding with a corrected span.
    fn refusal(&self, error: &ScanError) -> Diagnostic {
        let marker = error.marker();
        let at = marker.byte_offset().map_or(self.text.len(), |offset| self.base + offset);
        let span = char_span(self.text, at.min(self.text.len()));
        match error.kind() {
            ErrorKind::RecursionLimitExceeded => self.budget.too_deep(span),
            ErrorKind::DirectiveDisallowed => parse_error("directives are not supported", span)
                .help("remove the line: a document is YAML 1.2 and has no tags of its own"),
            ErrorKind::UnknownAnchor => {
                let rest = self.text.get(at..).unwrap_or_default();
                let ends = |c: char| c.is_whitespace() || ",[]{}".contains(c);
                let alias = &rest[..rest.find(ends).unwrap_or(rest.len())];
                let span = Span::new(at, at + alias.len());
                parse_error(format!("alias `{}` has no anchor before it", quote(alias)), span)
            }
            ErrorKind::TabInBlockIndentation | ErrorKind::TabInIndentation => {
                let tab = self.text[..span.range().end].rfind('\t').unwrap_or(at);
                let finding = parse_error(message(error), char_span(self.text, tab));
                finding.help("indent with spaces")
            }
            kind => match advice(kind) {
                Some(advice) => parse_error(message(error), span).help(advice),
                None => parse_error(message(error), span),
            },
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum DocumentMarkers {
    Skip,
    Stop,
}

/// The parser's message; empty when it is built without its feature `error_messages`.
fn message(error: &ScanError) -> String {
    Some(error.info())
        .filter(|info| !info.is_empty())
        .unwrap_or_else(|| "not valid YAML".to_owned())
}

fn advice(kind: &ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::MappingValueNotAllowed => {
            Some("check the indentation, and quote text that contains `: `")
        }
        ErrorKind::UnexpectedCharacter { character } if character.is_control() => {
            Some("write it as an escape, in double quotes")
        }
        ErrorKind::UnexpectedCharacter { .. } => Some("quote text that begins with this character"),
        ErrorKind::UnknownQuotedScalarEscape => {
            Some(r"write a backslash as `\\`, or use single quotes")
        }
        ErrorKind::SimpleKeyExpected => Some("end the key with `:`, or check the indentation"),
        _ => None,
    }
}

fn child(node: &Node, index: usize) -> Option<&Node> {
    match &node.kind {
        NodeKind::Array(items) => items.get(index),
        NodeKind::Object(members) => members.get(index).map(|member| &member.value),
        _ => None,
    }
}

/// The number of values in a copy, if the limits allow it. Counts no further than the limit, so
/// refusing costs no more than copying.
fn copy_size(root: &Node, budget: &ReadBudget, span: Span) -> ReadResult<usize> {
    let mut nodes = 0;
    let mut left = vec![(root, 1)];
    while let Some((node, depth)) = left.pop() {
        nodes += 1;
        if nodes > budget.nodes_left() {
            return Err(budget.too_many_nodes(span).into());
        }
        match &node.kind {
            NodeKind::Array(_) | NodeKind::Object(_) if depth > budget.depth_left() => {
                return Err(budget.too_deep(span).into());
            }
            NodeKind::Array(items) => left.extend(items.iter().map(|item| (item, depth + 1))),
            NodeKind::Object(members) => left.extend(members.iter().map(|m| (&m.value, depth + 1))),
            _ => {}
        }
    }
    Ok(nodes)
}

/// The kind of a plain scalar by its form; text if no form fits.
pub(crate) fn plain_kind(text: &str, span: Span) -> NodeKind {
    let scalar = Scalar { text: Cow::Borrowed(text), style: ScalarStyle::Plain, tag: None };
    scalar.kind(span).unwrap_or_else(|_| NodeKind::String(text.into()))
}
