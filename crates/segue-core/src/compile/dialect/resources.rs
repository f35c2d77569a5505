//! The documents of a text → the one that the caller names.
//!
//! A text holds one document, or resources of ToolHive as its users apply them: groups, servers,
//! definitions of composite tools, and virtual servers that hold composite tools or refer to them by
//! name. The source says which composite tool is meant if there are several.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::reader::first_line;
use crate::diagnostic::{Code, Diagnostic, nearest_name};
use crate::document::{self, Node, ReadLimits, document_start, second_document};
use crate::limits::Limits;
use crate::source::{Source, Span};

const API: &str = "toolhive.stacklok.dev/";
const DEFINITION: &str = "VirtualMCPCompositeToolDefinition";
const VIRTUAL_SERVER: &str = "VirtualMCPServer";
const SERVERS: &[&str] = &["MCPServer", "MCPRemoteProxy", "MCPServerEntry"];

/// The document that is meant.
pub(in crate::compile) struct SelectedDocument {
    /// The document, or the composite tool in it.
    pub(in crate::compile) root: Node,
    /// The servers whose tools a composite tool calls, if the text says so; `None` for a text that
    /// is no resource.
    pub(super) servers: Option<Vec<Arc<str>>>,
    /// The parts of the text whose comments are about it.
    pub(in crate::compile) comments: Vec<Span>,
}

impl SelectedDocument {
    /// A document that is no resource.
    pub(in crate::compile) fn of(root: Node) -> SelectedDocument {
        SelectedDocument { root, servers: None, comments: Vec::new() }
    }
}

/// A composition in a text.
#[derive(Clone, Debug)]
pub struct ListedComposition {
    /// Its name; `None` in a text that holds only this one.
    pub name: Option<Arc<str>>,
    /// The name of its resource, by which virtual servers refer to it.
    pub resource: Option<Arc<str>>,
    /// The text, of which this composition is meant.
    pub source: Source,
}

/// The compositions of a text.
#[derive(Clone, Debug, Default)]
pub struct TextCompositions {
    /// In the order of the text.
    pub compositions: Vec<ListedComposition>,
    /// Definitions that the text refers to by name and does not hold.
    pub missing: Vec<MissingDefinition>,
}

/// A definition that a text refers to and does not hold.
#[derive(Clone, Debug)]
pub struct MissingDefinition {
    /// Its name.
    pub name: Arc<str>,
    /// The servers of the group of the virtual server that refers to it.
    pub servers: Vec<Arc<str>>,
}

/// Selects the document that a source means.
pub(in crate::compile) fn select(
    source: &Source,
    limits: &Limits,
) -> Result<SelectedDocument, Vec<Diagnostic>> {
    let mut documents = document::read_all(source, ReadLimits::for_documents(limits))?;
    let Some(file) = ResourceFile::read(&documents) else {
        return match documents.get(1) {
            Some(second) => Err(vec![second_document(source, second)]),
            None => {
                let root = documents.swap_remove(0);
                if let Some(finding) = other_name(source, &root) {
                    return Err(vec![finding]);
                }
                let comments = vec![Span::new(0, source.text().len())];
                Ok(SelectedDocument { root, servers: None, comments })
            }
        };
    };
    file.select(source).map_err(|finding| vec![*finding])
}

/// The compositions of a text: one, unless it holds resources of ToolHive. A text that cannot be
/// read counts as one, so that compiling it gives the findings.
pub(in crate::compile) fn list(source: &Source, limits: &Limits) -> TextCompositions {
    let one = || {
        let own = ListedComposition { name: None, resource: None, source: source.clone() };
        TextCompositions { compositions: vec![own], missing: Vec::new() }
    };
    // Most texts hold no resource; they are read once, when they are compiled.
    let may_be = source.text().contains(API) || source.text().contains(VIRTUAL_SERVER);
    let may_be = may_be || source.text().contains(DEFINITION);
    if source.part().is_some() || !may_be {
        return one();
    }
    let Ok(documents) = document::read_all(source, ReadLimits::for_documents(limits)) else {
        return one();
    };
    let Some(file) = ResourceFile::read(&documents).filter(|file| file.stranger.is_none()) else {
        return one();
    };
    let missing = file.missing().map(|(name, _)| {
        let servers = file.servers_of(Some(&name), None);
        MissingDefinition { name, servers }
    });
    let missing: Vec<MissingDefinition> = missing.collect();
    let is_alone = file.tools.len() == 1 && missing.is_empty();
    let mut seen = BTreeSet::new();
    let mut compositions = Vec::new();
    for (at, tool) in file.tools.iter().enumerate() {
        let name = tool.label(at);
        if seen.insert(name.clone()) {
            let part = (!is_alone).then(|| name.clone());
            let source = source.clone().with_part(part);
            let resource = tool.resource.clone();
            compositions.push(ListedComposition { name: Some(name), resource, source });
        }
    }
    TextCompositions { compositions, missing }
}

/// A composite tool.
struct CompositeTool<'n> {
    name: Option<Arc<str>>,
    /// The name of its definition; `None` inside a virtual server.
    resource: Option<Arc<str>>,
    /// The definition, or the tool inside a virtual server.
    node: &'n Node,
    /// The group of the virtual server that it is in.
    group: Option<Arc<str>>,
    /// The position of its document.
    document: usize,
}

impl CompositeTool<'_> {
    /// How a source names it: its name, else its definition's, else its position.
    fn label(&self, at: usize) -> Arc<str> {
        let own = self.name.clone().or_else(|| self.resource.clone());
        own.unwrap_or_else(|| (at + 1).to_string().into())
    }
}

/// A definition's name in a virtual server.
struct Reference {
    name: Arc<str>,
    span: Span,
    group: Option<Arc<str>>,
}

/// The resources of a text.
struct ResourceFile<'n> {
    documents: &'n [Node],
    tools: Vec<CompositeTool<'n>>,
    references: Vec<Reference>,
    /// Each server, with its group.
    servers: Vec<(Arc<str>, Option<Arc<str>>)>,
    /// A document that is no resource.
    stranger: Option<&'n Node>,
}

impl<'n> ResourceFile<'n> {
    /// `None` if no document is a resource of ToolHive.
    fn read(documents: &'n [Node]) -> Option<ResourceFile<'n>> {
        let mut file = ResourceFile {
            documents,
            tools: Vec::new(),
            references: Vec::new(),
            servers: Vec::new(),
            stranger: None,
        };
        let mut is_toolhive = false;
        for (at, document) in documents.iter().enumerate() {
            let kind = document.get("kind").and_then(Node::as_str);
            if kind.is_none() || document.get("dialect").is_some() {
                file.stranger = file.stranger.or(Some(document));
                continue;
            }
            // `kubectl get -o yaml` writes several resources as a list.
            let items =
                document.get("items").filter(|_| kind.is_some_and(|kind| &**kind == "List"));
            let resources = items.map_or(std::slice::from_ref(document), Node::items);
            for resource in resources {
                is_toolhive |= file.add(resource, at);
            }
        }
        is_toolhive.then_some(file)
    }

    /// Adds a resource. Returns whether ToolHive defines it.
    fn add(&mut self, resource: &'n Node, document: usize) -> bool {
        let word = |name: &str| resource.get(name).and_then(Node::as_str);
        let kind = word("kind").map_or("", |kind| &**kind);
        let own_name = || resource.get("metadata")?.get("name")?.as_str().cloned();
        let spec = resource.get("spec");
        let name_of = |node: &Node| node.get("name").and_then(Node::as_str).cloned();
        if kind == DEFINITION {
            self.tools.push(CompositeTool {
                name: spec.and_then(name_of),
                resource: own_name(),
                node: resource,
                group: None,
                document,
            });
        } else if kind == VIRTUAL_SERVER {
            let config = spec.and_then(|spec| spec.get("config"));
            let group = group_of(spec).or_else(|| group_of(config));
            // Earlier versions have these fields in `spec`.
            for holder in [config, spec].into_iter().flatten() {
                let items = |field: &str| holder.get(field).map_or(&[][..], Node::items).iter();
                self.tools.extend(items("compositeTools").map(|node| CompositeTool {
                    name: name_of(node),
                    resource: None,
                    node,
                    group: group.clone(),
                    document,
                }));
                self.references.extend(items("compositeToolRefs").filter_map(|node| {
                    let named = node.get("name").unwrap_or(node);
                    let name = named.as_str()?.clone();
                    Some(Reference { name, span: named.span, group: group.clone() })
                }));
            }
        } else if SERVERS.contains(&kind) {
            self.servers.extend(own_name().map(|name| (name, group_of(spec))));
        }
        let is_api = word("apiVersion").is_some_and(|version| version.starts_with(API));
        is_api || kind == DEFINITION || kind == VIRTUAL_SERVER
    }

    /// Referred definitions that the text does not hold, each once, with their places.
    fn missing(&self) -> impl Iterator<Item = (Arc<str>, Span)> {
        let is_here =
            |name: &Arc<str>| self.tools.iter().any(|tool| tool.resource.as_ref() == Some(name));
        let mut seen = BTreeSet::new();
        let missing = self.references.iter().filter(move |reference| {
            !is_here(&reference.name) && seen.insert(reference.name.clone())
        });
        missing.map(|reference| (reference.name.clone(), reference.span))
    }

    fn select(&self, source: &Source) -> Result<SelectedDocument, Box<Diagnostic>> {
        if let Some(stranger) = self.stranger {
            let span = first_line(source, stranger.span);
            let message = "this document is no resource, and others in the file are";
            let help = "write a composition to a file of its own: only resources of ToolHive may share one";
            return Err(Diagnostic::error(Code::Unsupported, message, span).help(help).into());
        }
        let mut missing = self.missing();
        let named = self.tools.iter().enumerate().filter(|(at, tool)| {
            source
                .part()
                .is_none_or(|part| tool.label(*at) == *part || tool.resource.as_ref() == Some(part))
        });
        let named: Vec<_> = named.map(|(_, tool)| tool).collect();
        match (named.as_slice(), source.part()) {
            ([tool], Some(_)) => Ok(self.selected(source, tool)),
            ([tool], None) if missing.next().is_none() => Ok(self.selected(source, tool)),
            ([_, second, ..], Some(part)) => {
                let span = first_line(source, second.node.span);
                let message = format!("another composite tool is called `{part}` already");
                Err(Diagnostic::error(Code::DuplicateId, message, span).into())
            }
            ([], Some(part)) => Err(match missing.find(|(name, _)| name == part) {
                Some((name, span)) => not_here(&name, span),
                None => self.no_such(part),
            }
            .into()),
            ([], None) => {
                let only = missing.next();
                Err(match (only, missing.next()) {
                    (Some((name, span)), None) => not_here(&name, span),
                    (Some(_), Some(_)) => self.several(),
                    (None, _) => {
                        let span = first_line(source, self.documents[0].span);
                        let what = if self.documents.len() == 1 {
                            "resource has"
                        } else {
                            "resources have"
                        };
                        let message = format!("the {what} no composite tool");
                        Diagnostic::error(Code::NoSteps, message, span)
                    }
                }
                .into())
            }
            (_, None) => Err(self.several().into()),
        }
    }

    fn selected(&self, source: &Source, tool: &CompositeTool<'_>) -> SelectedDocument {
        let is_inline = tool.resource.is_none() && tool.node.get("kind").is_none();
        let comments = if is_inline && self.documents.len() + self.tools.len() > 2 {
            vec![tool.node.span]
        } else {
            let text = source.text();
            let begin = |at: usize| match self.documents.get(at) {
                Some(document) => document_start(text, document),
                None => text.len(),
            };
            // Comments before the first document are about the file.
            let head = Span::new(0, begin(0));
            vec![head, Span::new(begin(tool.document), begin(tool.document + 1))]
        };
        let mut servers = self.servers_of(tool.resource.as_ref(), tool.group.as_ref());
        if servers.is_empty() {
            servers = source.servers().to_vec();
        }
        SelectedDocument { root: tool.node.clone(), servers: Some(servers), comments }
    }

    /// The servers of the groups that a definition is referred to from, or that a tool is in; all of
    /// the file if there is no such group.
    fn servers_of(&self, definition: Option<&Arc<str>>, group: Option<&Arc<str>>) -> Vec<Arc<str>> {
        let referring = self.references.iter().filter(|it| Some(&it.name) == definition);
        let groups: Vec<&Arc<str>> =
            referring.filter_map(|it| it.group.as_ref()).chain(group).collect();
        let is_meant = |group: &Option<Arc<str>>| {
            groups.is_empty() || group.as_ref().is_some_and(|group| groups.contains(&group))
        };
        let servers = self.servers.iter().filter(|(_, group)| is_meant(group));
        servers.map(|(name, _)| name.clone()).collect()
    }

    /// The names of all composite tools, for messages.
    fn names(&self) -> Vec<Arc<str>> {
        let own = self.tools.iter().enumerate().map(|(at, tool)| tool.label(at));
        own.chain(self.missing().map(|(name, _)| name)).collect()
    }

    fn several(&self) -> Diagnostic {
        let names = self.names();
        let first = names.first().cloned().unwrap_or_default();
        let message = format!("the file has several composite tools: {}", quoted(&names));
        let help = format!("write which one is meant after the name of the file: `FILE#{first}`");
        Diagnostic::error(Code::Unsupported, message, Span::default()).help(help)
    }

    fn no_such(&self, part: &str) -> Diagnostic {
        let names = self.names();
        let message = format!("the file has no composite tool `{part}`");
        let help = match nearest_name(part, names.iter().map(|name| &**name)) {
            Some(near) => format!("did you mean `{near}`?"),
            None if names.is_empty() => "it has none".to_owned(),
            None => format!("it has {}", quoted(&names)),
        };
        Diagnostic::error(Code::NotFound, message, Span::default()).help(help)
    }
}

/// The finding about a document that is not called as the source names it.
fn other_name(source: &Source, root: &Node) -> Option<Diagnostic> {
    let part = source.part()?;
    let name = super::unwrap_template(root).get("name").and_then(Node::as_str);
    if name == Some(part) {
        return None;
    }
    let message = format!("the file has no composition `{part}`");
    let finding = Diagnostic::error(Code::NotFound, message, Span::default());
    Some(match name {
        Some(name) => finding.help(format!("it has `{name}`")),
        None => finding,
    })
}

/// The name of the group that a server or a virtual server belongs to.
fn group_of(spec: Option<&Node>) -> Option<Arc<str>> {
    let group = spec?.get("groupRef")?;
    group.get("name").unwrap_or(group).as_str().cloned()
}

fn not_here(name: &str, span: Span) -> Diagnostic {
    let message = format!("there is no `{DEFINITION}` called `{name}`");
    let help =
        "write it to this file, to another file of its folder, or to a file of `compositions`";
    Diagnostic::error(Code::NotFound, message, span).help(help)
}

fn quoted(names: &[Arc<str>]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}
