//! The MCP servers of a configuration, as commands need them: only those that a command is about
//! are started; of the others, what was seen before is known.
//!
//! What serves others does not wait for servers that are slow or broken. It begins with what is known,
//! takes in what each server lists when it does, and asks again those that cannot be used.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use segue_core::compile::read_header;
use segue_core::diagnostic::Code;
use segue_core::source::Source;
use segue_core::tool::{COMPOSITION, DeclaredRollback};
use segue_core::value::Value;
use segue_runtime::engine::UnavailableTools;
use segue_runtime::library::shipped;
use segue_runtime::tools::mcp::{self, Listing, ServerConfig, UpstreamServer};
use segue_runtime::tools::redact::Secrets;
use segue_runtime::tools::{Tool, ToolError, ToolRequest, ToolRunner};
use tokio::runtime::Runtime;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::Instant;

use crate::config::documents::{composition_files, read_source};
use crate::config::{Config, TrustFile, data_folder};

/// When a server is asked again that does not say when.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What a command is about.
pub(super) enum ServerSelection<'a> {
    /// No tool: what was seen of servers before is enough.
    Recorded,
    /// One tool: its id, or its short name.
    Tool(&'a str),
    /// What compositions call: files, or names.
    Compositions(Vec<&'a str>),
    /// What every configured composition calls, and what is known of all other servers. Those that
    /// compositions call, and those that nobody has seen, are asked; who is slow is heard later.
    Served,
    /// Every tool.
    Everything,
}

/// The servers.
#[derive(Default)]
pub(super) struct UpstreamServers {
    runtime: OnceCell<Rc<Runtime>>,
    servers: BTreeMap<Arc<str>, Arc<UpstreamServer>>,
    /// What servers have listed for this command, by name, what cannot be used of it included.
    pub(super) listed: BTreeMap<Arc<str>, BTreeSet<String>>,
    /// Those that are not configured any more, until no run calls them.
    retired: Vec<Arc<UpstreamServer>>,
    /// Those of `servers`, for who looks at them and does not keep them alive.
    observed: Arc<Mutex<Vec<Weak<UpstreamServer>>>>,
    /// Why a server cannot be used.
    pub(super) failed: BTreeMap<Arc<str>, String>,
    /// Those that nobody has allowed yet.
    untrusted: BTreeSet<Arc<str>>,
    /// What is odd about others, for people.
    pub(super) notes: Vec<String>,
    /// Servers of which only what was recorded is known, and that a command is about.
    pub(super) recorded: BTreeSet<Arc<str>>,
    pub(super) tools: Vec<Tool>,
    /// What is known of the servers, while something is served.
    known: BTreeMap<Arc<str>, Listing>,
    /// Servers that were asked and have not answered yet.
    pending: BTreeMap<Arc<str>, PendingServer>,
    /// Servers that said that their tools changed, and list them again.
    listing: BTreeMap<Arc<str>, ListingTask>,
    /// The files in which servers are known, as they were when they were read.
    stamps: Vec<FileStamp>,
    /// Tools that are not what was accepted of them, by id. Nobody may call them.
    pub(super) changed: BTreeSet<String>,
}

impl UpstreamServers {
    /// The servers of a configuration, with the tools that a command needs. `others` are tools that
    /// are known already.
    pub(super) fn open(
        config: &Config,
        wanted: &ServerSelection<'_>,
        others: &[Tool],
    ) -> UpstreamServers {
        let (mut upstream, mut known, asked) = UpstreamServers::known(config, wanted, others, None);
        if matches!(wanted, ServerSelection::Served) {
            let runtime = upstream.runtime().clone();
            runtime.block_on(upstream.begin(config, known, asked));
            return upstream;
        }
        if !asked.is_empty() {
            let answers = upstream.runtime().block_on(listings(&asked));
            upstream.heard(&asked, answers, &mut known);
        }
        upstream.with_tools(&known, wanted)
    }

    /// The same for another configuration, while something is served. Servers that stay as they are
    /// configured are not started anew.
    pub(super) async fn reopen(
        config: &Config,
        others: &[Tool],
        before: &UpstreamServers,
    ) -> UpstreamServers {
        let (mut upstream, known, asked) =
            UpstreamServers::known(config, &ServerSelection::Served, others, Some(before));
        upstream.begin(config, known, asked).await;
        upstream
    }

    /// Asks servers for their tools, and waits a little for those of which nothing is known, once.
    async fn begin(
        &mut self,
        config: &Config,
        known: BTreeMap<Arc<str>, Listing>,
        asked: Vec<Arc<UpstreamServer>>,
    ) {
        let until = Instant::now() + Duration::from_millis(config.limits.served_start_ms);
        let mut awaited = Vec::new();
        for server in asked {
            let name = server.name().clone();
            if !known.contains_key(&name) && !server.was_late() {
                awaited.push(name.clone());
            }
            self.pending.insert(
                name,
                PendingServer { task: spawn_listing(server, Duration::ZERO), why: None },
            );
        }
        self.known = known;
        for name in awaited {
            let Some(pending) = self.pending.get_mut(&name) else { continue };
            match tokio::time::timeout_at(until, &mut pending.task.0).await {
                Ok(answer) => drop(self.handle_answer(&name, answer)),
                Err(_) => self.servers[&name].note_late(),
            }
        }
        self.rebuild_tools();
    }

    /// Servers that were asked and have not answered yet.
    pub(super) fn pending(&self) -> BTreeSet<Arc<str>> {
        self.pending.keys().cloned().collect()
    }

    /// Hears what has come of the servers since this was last called: answers of those that were
    /// asked, changes that they told of, and what other processes saw or accepted.
    pub(super) async fn poll_changes(&mut self) -> ServerChanges {
        self.notes.clear();
        let mut news = ServerChanges::default();
        let is_over = |(_, pending): &(&Arc<str>, &PendingServer)| pending.task.0.is_finished();
        let over: Vec<_> = self.pending.iter().filter(is_over).map(|(n, _)| n.clone()).collect();
        for name in over {
            let Some(pending) = self.pending.get_mut(&name) else { continue };
            let answer = (&mut pending.task.0).await;
            news.is_changed |= self.handle_answer(&name, answer);
            if !self.pending.contains_key(&name) {
                news.answered.insert(name);
            }
        }
        for (name, mut asking) in self.listing.extract_if(.., |_, asking| asking.0.is_finished()) {
            if let Ok(Ok(listing)) = (&mut asking.0).await {
                let known = self.known.get(&name);
                news.is_changed |= known.is_none_or(|known| known.raw != listing.raw);
            }
        }
        for (name, server) in &self.servers {
            if server.has_changed() && !self.listing.contains_key(name) {
                self.listing.insert(name.clone(), spawn_listing(server.clone(), Duration::ZERO));
            }
        }
        news.is_changed |= self.stamps != self.stamped();
        news
    }

    /// Takes down what a server answered, and asks it again later if that was nothing. Says whether
    /// anything is another now.
    fn handle_answer(&mut self, name: &Arc<str>, answer: ListingResult) -> bool {
        let Some(mut pending) = self.pending.remove(name) else { return false };
        let (why, pause) = match answer {
            Ok(Ok(listing)) => {
                let notes = listing.notes.iter();
                self.notes.extend(notes.map(|note| format!("MCP server `{name}`: {note}")));
                self.known.insert(name.clone(), (*listing).clone());
                self.failed.remove(name);
                return true;
            }
            Ok(Err(unusable)) => (unusable.why, unusable.retry_after.unwrap_or(RETRY_AFTER)),
            Err(error) => (error.to_string(), RETRY_AFTER),
        };
        let is_new = pending.why.as_ref() != Some(&why);
        if is_new {
            self.notes.push(format!("the MCP server `{name}` cannot be used: {why}"));
        }
        pending.task = spawn_listing(self.servers[name].clone(), pause);
        pending.why = Some(why);
        self.pending.insert(name.clone(), pending);
        is_new
    }

    /// Makes tools of what is known of the servers now.
    pub(super) fn rebuild_tools(&mut self) {
        // Before they are read, so that no change is missed.
        self.stamps = self.stamped();
        let now = self.servers.iter().filter_map(|(name, it)| Some((name.clone(), it.known()?)));
        self.known.extend(now);
        for (name, pending) in &self.pending {
            // What was seen before still says what it offers; a call says why it cannot be made.
            if self.known.contains_key(name) {
                self.failed.remove(name);
            } else {
                let starting = || "it is still being started".to_owned();
                self.failed.insert(name.clone(), pending.why.clone().unwrap_or_else(starting));
            }
        }
        (self.tools, self.changed) = (Vec::new(), BTreeSet::new());
        let known = std::mem::take(&mut self.known);
        self.add_tools(&known);
        self.known = known;
    }

    /// The files in which servers are known, as they are now.
    fn stamped(&self) -> Vec<FileStamp> {
        let stamp = |server: &Arc<UpstreamServer>| {
            let known = std::fs::metadata(server.record()?).ok()?;
            Some((known.modified().ok()?, known.len()))
        };
        self.servers.values().map(stamp).collect()
    }

    /// Goes on with other servers. Those that are left over end when no run calls them any more.
    pub(super) fn replace_servers(&mut self, mut now: UpstreamServers) {
        let stays =
            |server: &Arc<UpstreamServer>| now.servers.values().any(|s| Arc::ptr_eq(s, server));
        let left = std::mem::take(&mut self.servers).into_values();
        let left: Vec<_> = left.filter(|server| !stays(server)).collect();
        self.retired.extend(left);
        self.servers = std::mem::take(&mut now.servers);
        self.publish_servers();
        self.failed = std::mem::take(&mut now.failed);
        self.notes = std::mem::take(&mut now.notes);
        self.changed = std::mem::take(&mut now.changed);
        self.known = std::mem::take(&mut now.known);
        self.pending = std::mem::take(&mut now.pending);
        self.listing.clear();
        self.stamps = std::mem::take(&mut now.stamps);
    }

    /// Has those who look at the servers see the ones that are configured now.
    fn publish_servers(&self) {
        let servers = self.servers.values().map(Arc::downgrade).collect();
        *self.observed.lock().unwrap_or_else(PoisonError::into_inner) = servers;
    }

    /// The servers that are configured, whenever somebody looks.
    pub(super) fn server_source(&self) -> impl Fn() -> Vec<Arc<UpstreamServer>> + use<> {
        self.publish_servers();
        let seen = self.observed.clone();
        move || {
            let servers = seen.lock().unwrap_or_else(PoisonError::into_inner);
            servers.iter().filter_map(Weak::upgrade).collect()
        }
    }

    /// Ends servers that are not configured any more and that nothing calls.
    pub(super) async fn close_retired(&mut self) {
        let is_alone = |server: &mut Arc<UpstreamServer>| Arc::strong_count(server) == 1;
        for server in self.retired.extract_if(.., is_alone).collect::<Vec<_>>() {
            server.close().await;
        }
    }

    /// What is known of the servers of a configuration without asking them, and which are to be asked.
    fn known(
        config: &Config,
        wanted: &ServerSelection<'_>,
        others: &[Tool],
        before: Option<&UpstreamServers>,
    ) -> (UpstreamServers, BTreeMap<Arc<str>, Listing>, Vec<Arc<UpstreamServer>>) {
        let mut upstream = UpstreamServers::default();
        let project = config.project.as_ref();
        upstream.failed.clone_from(&config.unusable);
        upstream.failed.extend(project.iter().flat_map(|project| project.unusable.clone()));
        upstream.notes.extend(project.iter().flat_map(|project| project.notes.clone()));
        let mut known: BTreeMap<Arc<str>, Listing> = BTreeMap::new();
        let configured = configured(config);
        if configured.is_empty() {
            return (upstream, known, Vec::new());
        }
        let folder = data_folder().map(|folder| folder.join("mcp"));
        let trust = TrustFile::load();
        let secrets = Secrets::new(config.secrets.iter().cloned());
        for (server, is_project) in configured {
            let name = server.name.clone();
            let allowed = match (&config.project, is_project) {
                (Some(project), true) => trust.allows_project(project),
                _ => trust.allows(config),
            };
            let same = before.and_then(|before| before.servers.get(&name));
            let same = same.filter(|same| same.has_config(server, &config.limits)).cloned();
            same.iter().for_each(|same| same.add_secrets(&secrets));
            let server = same.unwrap_or_else(|| {
                let server = UpstreamServer::new(server.clone(), &config.limits, folder.as_deref());
                Arc::new(server.redacting(secrets.clone()))
            });
            if let Some(listing) = server.known() {
                known.insert(name.clone(), listing);
            }
            if !allowed {
                let why = "it comes from a configuration that was found here and not allowed yet: \
                           look at it, then run `segue trust`";
                upstream.failed.insert(name.clone(), why.to_owned());
                upstream.untrusted.insert(name.clone());
            }
            upstream.servers.insert(name, server);
        }
        let needed = ServerNeeds::new(config, others, &known, &upstream).of(wanted);
        let asked = needed.iter().filter(|name| !upstream.failed.contains_key(*name));
        let asked = asked.filter_map(|name| upstream.servers.get(name).cloned()).collect();
        (upstream, known, asked)
    }

    /// The same with the tools of the servers.
    fn with_tools(
        mut self,
        known: &BTreeMap<Arc<str>, Listing>,
        wanted: &ServerSelection<'_>,
    ) -> UpstreamServers {
        self.recorded = match wanted {
            ServerSelection::Recorded => known.keys().cloned().collect(),
            _ => BTreeSet::new(),
        };
        self.add_tools(known);
        self
    }

    fn add_tools(&mut self, known: &BTreeMap<Arc<str>, Listing>) {
        for (name, listing) in known {
            let mut tools = self.servers[name].tools(listing);
            for change in self.servers[name].changes() {
                let id = format!("{name}:{}", change.tool);
                tools.retain(|tool| tool.spec.id.as_str() != id);
                if change.now.is_some() {
                    self.changed.insert(id);
                }
            }
            let failed = self.failed.get(name);
            self.tools.extend(tools.into_iter().map(|tool| match failed {
                None => tool,
                Some(why) => Tool { spec: tool.spec, runner: Arc::new(UnusableTool(why.clone())) },
            }));
        }
    }

    /// Takes down what servers have answered.
    fn heard(
        &mut self,
        asked: &[Arc<UpstreamServer>],
        answers: Vec<ListingResult>,
        known: &mut BTreeMap<Arc<str>, Listing>,
    ) {
        for (server, answer) in asked.iter().zip(answers) {
            let name = server.name().clone();
            match answer {
                Ok(Ok(listing)) => {
                    let notes = listing.notes.iter();
                    self.notes.extend(notes.map(|note| format!("MCP server `{name}`: {note}")));
                    self.listed.insert(name.clone(), listing.names().collect());
                    known.insert(name, (*listing).clone());
                }
                Ok(Err(unusable)) => {
                    // What it was before says nothing of what it is now.
                    known.remove(&name);
                    self.failed.insert(name, unusable.why);
                }
                Err(error) => drop(self.failed.insert(name, error.to_string())),
            }
        }
    }

    /// What calls are made on. Connections live on it, so it is one for the whole command.
    pub(super) fn runtime(&self) -> &Rc<Runtime> {
        self.runtime.get_or_init(|| Rc::new(super::run::runtime()))
    }

    /// Whether a namespace is a server's, be it one that cannot be used.
    pub(super) fn is_server(&self, name: &str) -> bool {
        self.servers.contains_key(name) || self.failed.contains_key(name)
    }

    /// Every server, for those who look at each.
    pub(super) fn servers(&self) -> impl Iterator<Item = &Arc<UpstreamServer>> {
        self.servers.values()
    }

    /// What the engine is to say of tools that are not there.
    pub(super) fn unavailable(&self) -> UnavailableTools {
        UnavailableTools {
            sources: self.failed.clone(),
            untrusted: self.untrusted.clone(),
            changed: self.changed.clone(),
        }
    }
}

impl Drop for UpstreamServers {
    // Work in `Drop`, because a command ends in many places and servers must end in all of them.
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.get() else { return };
        // Nobody waits for one that is being started.
        self.pending.clear();
        self.listing.clear();
        let servers = std::mem::take(&mut self.servers).into_values();
        let servers = servers.chain(std::mem::take(&mut self.retired));
        runtime.block_on(async {
            let closing: Vec<_> =
                servers.map(|server| tokio::spawn(async move { server.close().await })).collect();
            for closed in closing {
                let _ = closed.await;
            }
        });
    }
}

/// What a server answered when it was asked for its tools.
type ListingResult = Result<Result<Arc<Listing>, mcp::ServerUnavailable>, JoinError>;

/// A server that is asked for its tools, as long as somebody wants to know.
struct ListingTask(JoinHandle<Result<Arc<Listing>, mcp::ServerUnavailable>>);

impl Drop for ListingTask {
    // Work in `Drop`, because a server that nobody asks for any more must not be started.
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A server that was asked and has not answered yet.
struct PendingServer {
    task: ListingTask,
    /// Why it could not be used when it was last asked.
    why: Option<String>,
}

/// What has come of the servers.
#[derive(Default)]
pub(super) struct ServerChanges {
    /// Something is another than what was made of it.
    pub(super) is_changed: bool,
    /// Servers that have answered for the first time.
    pub(super) answered: BTreeSet<Arc<str>>,
}

/// When a file was written, and its size; nothing when there is none.
type FileStamp = Option<(SystemTime, u64)>;

/// Asks a server for its tools, after a while.
fn spawn_listing(server: Arc<UpstreamServer>, pause: Duration) -> ListingTask {
    ListingTask(tokio::spawn(async move {
        tokio::time::sleep(pause).await;
        server.listing().await
    }))
}

/// Asks servers for their tools, all at once.
async fn listings(asked: &[Arc<UpstreamServer>]) -> Vec<ListingResult> {
    let ask = |server: &Arc<UpstreamServer>| spawn_listing(server.clone(), Duration::ZERO);
    let asking: Vec<ListingTask> = asked.iter().map(ask).collect();
    let mut answers = Vec::new();
    for mut asking in asking {
        answers.push((&mut asking.0).await);
    }
    answers
}

/// Every server of a configuration that can be used, and whether it is its project's.
pub(super) fn configured(config: &Config) -> Vec<(&ServerConfig, bool)> {
    let project = config.project.iter().flat_map(|project| project.servers.values());
    config.servers.values().map(|s| (s, false)).chain(project.map(|s| (s, true))).collect()
}

/// Which servers a command needs.
struct ServerNeeds<'a> {
    config: &'a Config,
    others: &'a [Tool],
    known: &'a BTreeMap<Arc<str>, Listing>,
    upstream: &'a UpstreamServers,
    /// Read when they are asked for.
    compositions: OnceCell<BTreeMap<Arc<str>, Source>>,
}

impl<'a> ServerNeeds<'a> {
    fn new(
        config: &'a Config,
        others: &'a [Tool],
        known: &'a BTreeMap<Arc<str>, Listing>,
        upstream: &'a UpstreamServers,
    ) -> ServerNeeds<'a> {
        ServerNeeds { config, others, known, upstream, compositions: OnceCell::new() }
    }

    fn of(&self, wanted: &ServerSelection<'_>) -> BTreeSet<Arc<str>> {
        let mut names: Vec<Arc<str>> = Vec::new();
        match wanted {
            ServerSelection::Recorded => return BTreeSet::new(),
            ServerSelection::Everything => return self.upstream.servers.keys().cloned().collect(),
            ServerSelection::Tool(name) => names.push((*name).into()),
            ServerSelection::Served => {
                let mut needed = self.servers_of(self.compositions().keys().cloned().collect());
                let unseen = |name: &&Arc<str>| !self.known.contains_key(*name);
                needed.extend(self.upstream.servers.keys().filter(unseen).cloned());
                return needed;
            }
            ServerSelection::Compositions(wanted) => {
                let bytes_max = self.config.limits.document_bytes_max;
                for name in wanted {
                    match Path::new(name).is_file().then(|| read_source(Path::new(name), bytes_max))
                    {
                        Some(Ok(source)) => self.calls(&source, &mut names),
                        Some(Err(_)) => {}
                        None if self.compositions().contains_key(*name) => {
                            names.push((*name).into());
                        }
                        None => match shipped(name) {
                            Some(source) => self.calls(&source, &mut names),
                            // Perhaps a template of the store, which is not open yet.
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

    /// The servers behind tools, those of compositions and undos included.
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

    /// The servers that have a tool of this short name: those that had it when they were last seen,
    /// and those that nobody has seen.
    fn with_tool(&self, short: &str) -> BTreeSet<Arc<str>> {
        let servers = self.upstream.servers.keys();
        servers
            .filter(|name| {
                self.known.get(*name).is_none_or(|listing| listing.tools.contains_key(short))
            })
            .cloned()
            .collect()
    }
}

/// A tool that is known and whose server must not start.
struct UnusableTool(String);

#[async_trait]
impl ToolRunner for UnusableTool {
    async fn call(&self, call: ToolRequest) -> Result<Value, ToolError> {
        let message = format!("the server of `{}` cannot be used: {}", call.tool, self.0);
        Err(ToolError::refused(Code::PolicyViolation, message))
    }
}
