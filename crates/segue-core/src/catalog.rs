//! The tools known at one moment, and what a name means among them.
//!
//! A [`Catalog`] is a snapshot. Plans copy the definitions they use, so a server that changes its
//! tools cannot change a plan.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::composition::tool::{BUILTIN, ToolSpec};
use crate::diagnostic::nearest_name;
use crate::id::ToolId;
use crate::toolset::{Toolset, ToolsetBuilder};

/// The result of looking up a name.
#[derive(Debug)]
pub enum ToolLookup<'a> {
    /// One tool.
    Found(&'a Arc<ToolSpec>),
    /// Several tools have this short name.
    Ambiguous(Vec<&'a ToolId>),
    /// None does; perhaps this one was meant.
    Missing {
        /// The nearest id, as short as it may be written.
        nearest: Option<String>,
    },
}

/// The tools known at one moment, by id.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    tools: BTreeMap<ToolId, Arc<ToolSpec>>,
    /// Short names, and the ids that end in them.
    names: BTreeMap<Arc<str>, Vec<ToolId>>,
    /// The toolset that limits compositions.
    toolset: Option<Toolset>,
}

impl Catalog {
    /// A catalog of these tools; an equal id replaces the earlier one.
    pub fn new(tools: impl IntoIterator<Item = Arc<ToolSpec>>) -> Catalog {
        let mut catalog = Catalog::default();
        for tool in tools {
            catalog.insert(tool);
        }
        catalog
    }

    /// Adds or replaces a tool.
    pub fn insert(&mut self, tool: Arc<ToolSpec>) {
        let id = tool.id.clone();
        if self.tools.insert(id.clone(), tool).is_none() {
            self.names.entry(id.name().into()).or_default().push(id);
        }
    }

    /// Limits compositions that are compiled against this catalog to a toolset: other tools are
    /// known, but may not be called.
    pub fn restrict(&mut self, toolset: Toolset) {
        self.toolset = Some(toolset);
    }

    /// The tools that the toolset allows, and no others: those are unknown to who reads this catalog.
    #[must_use]
    pub fn allowed(&self) -> Cow<'_, Catalog> {
        let Some(toolset) = &self.toolset else { return Cow::Borrowed(self) };
        let is_allowed = |tool: &&Arc<ToolSpec>| toolset.access_error(&tool.id).is_none();
        let mut allowed = Catalog::new(self.tools().filter(is_allowed).cloned());
        allowed.restrict(toolset.clone());
        Cow::Owned(allowed)
    }

    /// The toolset that limits compositions.
    pub fn toolset(&self) -> Option<&Toolset> {
        self.toolset.as_ref()
    }

    /// Every tool, by id.
    pub fn tools(&self) -> impl Iterator<Item = &Arc<ToolSpec>> {
        self.tools.values()
    }

    /// The tool of exactly this id.
    pub fn get(&self, id: &ToolId) -> Option<&Arc<ToolSpec>> {
        self.tools.get(id)
    }

    /// Resolves a name in a composition: an id, or a short name that only one tool has. A tool that
    /// the operator configured wins over a built-in.
    pub fn find(&self, name: &str) -> ToolLookup<'_> {
        if let Some(tool) = self.tools.get(&ToolId::from(name)) {
            return ToolLookup::Found(tool);
        }
        let ids = self.same_name(name);
        let mut configured = ids.iter().filter(|id| id.namespace() != BUILTIN);
        match (configured.next(), configured.next(), ids) {
            (Some(_), Some(_), _) => ToolLookup::Ambiguous(ids.iter().collect()),
            (Some(id), None, _) | (None, _, [id, ..]) => ToolLookup::Found(&self.tools[id]),
            (None, _, []) => ToolLookup::Missing { nearest: self.nearest(name) },
        }
    }

    /// Finds a tool as a composition with these `servers` means it: a short name that several tools
    /// have means the tool of one of these servers, and `server_tool` is `server:tool`, as hosts of
    /// several servers name it. With `any_prefix`, so it is for every server.
    pub fn find_among(&self, name: &str, servers: &[Arc<str>], any_prefix: bool) -> ToolLookup<'_> {
        match self.find(name) {
            ToolLookup::Ambiguous(ids) => {
                let is_meant = |id: &&&ToolId| servers.iter().any(|it| **it == *id.namespace());
                let mut meant = ids.iter().filter(is_meant);
                match (meant.next(), meant.next()) {
                    (Some(id), None) => ToolLookup::Found(&self.tools[*id]),
                    _ => ToolLookup::Ambiguous(ids),
                }
            }
            ToolLookup::Missing { nearest } => {
                let splits = name.match_indices('_').map(|(at, _)| (&name[..at], &name[at + 1..]));
                let splits = splits
                    .filter(|(server, _)| any_prefix || servers.iter().any(|it| **it == **server));
                let ids = splits.map(|(server, tool)| ToolId::new(server, tool));
                let found: Vec<&Arc<ToolSpec>> = ids.filter_map(|id| self.tools.get(&id)).collect();
                match found.as_slice() {
                    [] => ToolLookup::Missing { nearest },
                    [tool] => ToolLookup::Found(tool),
                    several => ToolLookup::Ambiguous(several.iter().map(|tool| &tool.id).collect()),
                }
            }
            found @ ToolLookup::Found(_) => found,
        }
    }

    /// The tools that have this short name.
    pub fn same_name(&self, name: &str) -> &[ToolId] {
        self.names.get(name).map_or(&[][..], Vec::as_slice)
    }

    fn nearest(&self, name: &str) -> Option<String> {
        let ids = self.tools.keys().map(ToolId::as_str);
        if let Some(id) = nearest_name(name, ids) {
            return Some(id.to_owned());
        }
        let short = name.rsplit_once(':').map_or(name, |(_, short)| short);
        let names = self.names.keys().map(|name| &**name);
        let found = nearest_name(short, names)
            .or_else(|| self.names.get_key_value(short).map(|(name, _)| &**name))?;
        match self.names[found].as_slice() {
            [id] if id.namespace() != BUILTIN => Some(id.to_string()),
            _ => Some(found.to_owned()),
        }
    }
}

impl ToolsetBuilder {
    /// Takes every tool of a catalog.
    #[must_use]
    pub fn from_catalog(self, catalog: &Catalog) -> ToolsetBuilder {
        self.from_tools(catalog.tools().cloned())
    }
}
