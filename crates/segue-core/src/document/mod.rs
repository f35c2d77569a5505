//! Text → a tree per document, in which every value has a span.
//!
//! Two readers give the same tree: a strict JSON reader of our own, and YAML from a parser's
//! events. Both keep numbers exactly, reject duplicate keys, and count size, depth, values and
//! aliases while they read, so a hostile text ends in a finding before it costs memory.
//!
//! Not here: the meaning of the values ([`crate::compile::dialect`]).

mod json;
mod read_budget;
pub(crate) mod tolerant;
pub(crate) mod write;
mod yaml;

use std::sync::Arc;

pub(crate) use yaml::plain_kind;

use crate::diagnostic::{Code, Diagnostic};
use crate::limits::Limits;
use crate::source::{Notation, Source, Span};
use crate::value::{Number, Value};

/// A value with its span in the source.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The span of the value, including quotes and brackets.
    pub span: Span,
    /// The value.
    pub kind: NodeKind,
}

/// The value of a node.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeKind {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number, exact.
    Number(Number),
    /// Text, unescaped.
    String(Arc<str>),
    /// A list.
    Array(Vec<Node>),
    /// Members in the order of the text; keys are unique.
    Object(Vec<Member>),
}

/// One `key: value` of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// The key.
    pub key: Arc<str>,
    /// The span of the key.
    pub key_span: Span,
    /// The value.
    pub value: Node,
}

impl Node {
    /// A member of an object by name.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.members().iter().find(|member| &*member.key == key).map(|member| &member.value)
    }

    /// The span of a member's key, or of the object if it has no such member.
    pub fn key_span(&self, key: &str) -> Span {
        let member = self.members().iter().find(|member| &*member.key == key);
        member.map_or(self.span, |member| member.key_span)
    }

    /// The members of an object; empty for other kinds.
    pub fn members(&self) -> &[Member] {
        match &self.kind {
            NodeKind::Object(members) => members,
            _ => &[],
        }
    }

    /// The items of an array; empty for other kinds.
    pub fn items(&self) -> &[Node] {
        match &self.kind {
            NodeKind::Array(items) => items,
            _ => &[],
        }
    }

    /// The node at a JSON Pointer, or its nearest existing ancestor.
    pub fn at_pointer(&self, pointer: &str) -> &Node {
        let mut at = self;
        for part in pointer.split('/').skip(1) {
            let part = part.replace("~1", "/").replace("~0", "~");
            let next = match &at.kind {
                NodeKind::Array(items) => part.parse::<usize>().ok().and_then(|i| items.get(i)),
                _ => at.get(&part),
            };
            match next {
                Some(next) => at = next,
                None => break,
            }
        }
        at
    }

    /// The node below this one with exactly this span. A value that an alias repeats is found at
    /// its anchor.
    pub fn find(&self, span: Span) -> Option<&Node> {
        let holds = |node: &Node| node.span.start <= span.start && span.end <= node.span.end;
        let mut at = self;
        while at.span != span {
            at = match &at.kind {
                NodeKind::Array(items) => {
                    let after = items.partition_point(|item| item.span.start <= span.start);
                    let guess = items.get(after.wrapping_sub(1)).filter(|item| holds(item));
                    guess.or_else(|| items.iter().find(|item| holds(item)))?
                }
                NodeKind::Object(members) => {
                    members.iter().map(|member| &member.value).find(|value| holds(value))?
                }
                _ => return None,
            };
        }
        Some(at)
    }

    /// The text of a string.
    pub fn as_str(&self) -> Option<&Arc<str>> {
        match &self.kind {
            NodeKind::String(text) => Some(text),
            _ => None,
        }
    }

    /// The JSON name of the kind, for messages.
    pub fn kind_name(&self) -> &'static str {
        match &self.kind {
            NodeKind::Null => "null",
            NodeKind::Bool(_) => "boolean",
            NodeKind::Number(_) => "number",
            NodeKind::String(_) => "string",
            NodeKind::Array(_) => "array",
            NodeKind::Object(_) => "object",
        }
    }

    /// The value without spans.
    pub fn to_value(&self) -> Value {
        match &self.kind {
            NodeKind::Null => Value::Null,
            NodeKind::Bool(bool) => Value::Bool(*bool),
            NodeKind::Number(number) => Value::Number(number.clone()),
            NodeKind::String(text) => Value::String(text.clone()),
            NodeKind::Array(items) => items.iter().map(Node::to_value).collect::<Vec<_>>().into(),
            NodeKind::Object(members) => {
                Value::object(members.iter().map(|m| (m.key.clone(), m.value.to_value())))
            }
        }
    }
}

/// Limits on reading a text.
#[derive(Clone, Copy, Debug)]
pub struct ReadLimits {
    /// Bytes of text.
    pub bytes_max: usize,
    /// Levels of nesting.
    pub depth_max: usize,
    /// Values, after aliases are expanded.
    pub nodes_max: usize,
    /// Keys of one object.
    pub keys_max: usize,
    /// Aliases.
    pub aliases_max: usize,
}

impl ReadLimits {
    /// For documents that people write.
    pub fn for_documents(limits: &Limits) -> ReadLimits {
        ReadLimits {
            bytes_max: limits.document_bytes_max,
            depth_max: limits.document_depth_max,
            nodes_max: limits.document_nodes_max,
            keys_max: limits.document_keys_max,
            aliases_max: limits.document_aliases_max,
        }
    }

    /// For JSON that tools and callers send.
    pub fn for_values(limits: &Limits) -> ReadLimits {
        ReadLimits {
            bytes_max: limits.value_bytes_max,
            depth_max: limits.value_depth_max,
            nodes_max: limits.value_nodes_max,
            keys_max: limits.value_nodes_max,
            aliases_max: 0,
        }
    }
}

/// Reads a text that holds one document. All duplicate keys are reported. Any other error ends the reading, because
/// findings after a syntax error would be guesses.
pub fn read(source: &Source, budget: ReadLimits) -> Result<Node, Vec<Diagnostic>> {
    let mut documents = read_all(source, budget)?;
    match documents.get(1) {
        None => Ok(documents.swap_remove(0)),
        Some(second) => Err(vec![second_document(source, second)]),
    }
}

/// The finding about a second document in a text that can hold only one.
pub(crate) fn second_document(source: &Source, second: &Node) -> Diagnostic {
    let marker = document_start(source.text(), second);
    let length = if source.text()[marker..].starts_with("---") { "---".len() } else { 0 };
    let span = Span::new(marker, marker + length);
    Diagnostic::error(Code::Parse, "a second document begins here", span)
        .help("write each document to a file of its own; only resources of ToolHive may share one")
}

/// The offset of the line `---` that begins a document, or of its first value.
pub(crate) fn document_start(text: &str, document: &Node) -> usize {
    let start = document.span.range().start;
    let mut markers = text[..start].rmatch_indices("---").map(|(at, _)| at);
    markers.find(|at| *at == 0 || text[..*at].ends_with('\n')).unwrap_or(start)
}

/// Reads every document of a text. JSON is one document; YAML may separate several with `---`.
/// There is at least one, and none is empty.
pub fn read_all(source: &Source, budget: ReadLimits) -> Result<Vec<Node>, Vec<Diagnostic>> {
    if source.text().len() > budget.bytes_max {
        let message = format!(
            "document of {} bytes is larger than the limit of {} bytes",
            source.text().len(),
            budget.bytes_max
        );
        return Err(vec![Diagnostic::error(Code::Limit, message, Span::default())]);
    }
    match source.notation() {
        Notation::Json => json::read(source.text(), budget).map(|root| vec![root]),
        Notation::Yaml => yaml::read(source.text(), budget),
    }
}

/// Reads JSON that a tool or a caller sent. The error is the first finding, with its byte offset.
pub fn read_json_value(text: &str, limits: &Limits) -> Result<Value, Diagnostic> {
    let budget = ReadLimits::for_values(limits);
    if text.len() > budget.bytes_max {
        let message = format!("JSON is larger than the limit of {} bytes", budget.bytes_max);
        return Err(Diagnostic::error(Code::Limit, message, Span::default()));
    }
    let node = json::read(text, budget).map_err(|mut findings| findings.swap_remove(0))?;
    Ok(node.to_value())
}

/// Writes a value as readable YAML.
pub fn to_yaml(value: &Value) -> String {
    let json = value.to_json();
    let tree = read_trusted_json(&json).expect("`to_json` writes valid JSON");
    write::yaml(&tree, &tree, &Source::new("value.yaml", ""), &[])
}

/// Reads JSON that Segue itself wrote. The only limit is the stack: a value that was accepted once
/// must stay readable after limits change.
pub fn read_trusted_json(text: &str) -> Result<Node, Diagnostic> {
    const DEPTH_MAX: usize = 1_024;
    let budget = ReadLimits {
        bytes_max: usize::MAX,
        depth_max: DEPTH_MAX,
        nodes_max: usize::MAX,
        keys_max: usize::MAX,
        aliases_max: 0,
    };
    json::read(text, budget).map_err(|mut findings| findings.swap_remove(0))
}
