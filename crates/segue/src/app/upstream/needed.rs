//! Which servers a command needs, from what it calls and what servers listed before.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use segue_core::compile::read_header;
use segue_core::source::Source;
use segue_core::tool::{COMPOSITION, DeclaredRollback};
use segue_runtime::library::shipped;
use segue_runtime::tools::Tool;
use segue_runtime::tools::mcp::Listing;

use super::{ServerSelection, UpstreamServers};
use crate::config::Config;
use crate::config::documents::{
    DocumentSearch, composition_files, composition_paths, file_and_part,
};

/// Which servers a command needs.
pub(super) struct ServerNeeds<'a> {
    config: &'a Config,
    others: &'a [Tool],
    listings: &'a BTreeMap<Arc<str>, Listing>,
    upstream: &'a UpstreamServers,
    /// Read on first use.
    compositions: OnceCell<BTreeMap<Arc<str>, Source>>,
}

impl<'a> ServerNeeds<'a> {
    pub(super) fn new(
        config: &'a Config,
        others: &'a [Tool],
        listings: &'a BTreeMap<Arc<str>, Listing>,
        upstream: &'a UpstreamServers,
    ) -> ServerNeeds<'a> {
        ServerNeeds { config, others, listings, upstream, compositions: OnceCell::new() }
    }

    pub(super) fn of(&self, selection: &ServerSelection<'_>) -> BTreeSet<Arc<str>> {
        let mut names: Vec<Arc<str>> = Vec::new();
        match selection {
            ServerSelection::Recorded => return BTreeSet::new(),
            ServerSelection::Everything => return self.upstream.servers.keys().cloned().collect(),
            ServerSelection::Tool(name) => names.push((*name).into()),
            ServerSelection::Served => {
                let mut needed = self.servers_of(self.compositions().keys().cloned().collect());
                let unseen = |name: &&Arc<str>| !self.listings.contains_key(*name);
                needed.extend(self.upstream.servers.keys().filter(unseen).cloned());
                return needed;
            }
            ServerSelection::Compositions(compositions) => {
                let configured = composition_paths(self.config);
                let search =
                    DocumentSearch { configured: &configured, limits: &self.config.limits };
                for name in compositions {
                    match file_and_part(name).map(|(path, part)| search.read(&path, part)) {
                        Some(Ok(sources)) => {
                            sources.iter().for_each(|source| self.calls(source, &mut names));
                        }
                        Some(Err(_)) => {}
                        None if self.compositions().contains_key(*name) => {
                            names.push((*name).into());
                        }
                        None => match shipped(name) {
                            Some(source) => self.calls(&source, &mut names),
                            // It may be a template in the store, which is not open yet.
                            None => return self.upstream.servers.keys().cloned().collect(),
                        },
                    }
                }
            }
        }
        self.servers_of(names)
    }

    fn calls(&self, source: &Source, names: &mut Vec<Arc<str>>) {
        if let Some(header) = read_header(source, &self.config.limits) {
            header.body.walk_calls(&mut |call| names.push(call.name.clone()));
        }
    }

    /// The servers behind these tools and behind what they call: steps of compositions and rollbacks.
    fn servers_of(&self, mut names: Vec<Arc<str>>) -> BTreeSet<Arc<str>> {
        let (mut needed, mut seen) = (BTreeSet::new(), BTreeSet::new());
        while let Some(name) = names.pop() {
            if !seen.insert(name.clone()) {
                continue;
            }
            if let Some(known) = self.config.tools.get(&name)
                && let Some(DeclaredRollback::Call { tool, .. }) = &known.rollback
            {
                names.push(tool.clone());
            }
            let (namespace, short) = name.split_once(':').unwrap_or(("", &name));
            if self.upstream.is_server(namespace) {
                needed.insert(namespace.into());
                continue;
            }
            let is_other = |tool: &Tool| tool.spec.id.name() == &*name;
            if !namespace.is_empty() && namespace != COMPOSITION || self.others.iter().any(is_other)
            {
                continue;
            }
            if let Some(source) = self.compositions().get(short) {
                self.calls(source, &mut names);
            } else if namespace.is_empty() {
                needed.extend(self.with_tool(short));
            }
        }
        needed
    }

    /// The configured compositions, by name.
    fn compositions(&self) -> &BTreeMap<Arc<str>, Source> {
        self.compositions.get_or_init(|| {
            let files = composition_files(self.config).into_iter();
            files
                .filter_map(|source| {
                    Some((read_header(&source, &self.config.limits)?.name.clone(), source))
                })
                .collect()
        })
    }

    /// The servers that may have a tool of this short name, or of this name with the server's before
    /// it: they listed it last time, or have never been listed.
    fn with_tool(&self, short: &str) -> BTreeSet<Arc<str>> {
        let servers = self.upstream.servers.keys();
        let own = |server: &str| short.strip_prefix(server)?.strip_prefix('_');
        servers
            .filter(|name| {
                self.listings.get(*name).is_none_or(|listing| {
                    let has = |tool: &str| listing.tools.contains_key(tool);
                    has(short) || own(name).is_some_and(has)
                })
            })
            .cloned()
            .collect()
    }
}
