//! The MCP servers of a configuration. A command starts only the servers whose tools it needs
//! ([`needed`]); of the others it uses the tools that they listed last time.
//!
//! A server process (`segue serve`, `segue mcp`) does not wait for slow or broken MCP servers. It
//! starts with the recorded listings, takes in each new listing when it arrives, and retries the
//! servers that fail.

mod needed;

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use parking_lot::Mutex;
use segue_core::diagnostic::Code;
use segue_core::value::Value;
use segue_runtime::engine::UnavailableTools;
use segue_runtime::tools::mcp::{self, Listing, ServerConfig, UpstreamServer};
use segue_runtime::tools::redact::Secrets;
use segue_runtime::tools::{Tool, ToolError, ToolRequest, ToolRunner};
use tokio::runtime::Runtime;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::Instant;

use super::{current_thread_runtime, start_progress};
use crate::config::{Config, TrustFile, data_folder};

use needed::ServerNeeds;

/// The delay before a failed server is tried again, unless it names one.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Which servers a command needs to start.
pub(crate) enum ServerSelection<'a> {
    /// None: recorded listings are enough.
    Recorded,
    /// Those that may have this tool, given by its id or its short name.
    Tool(&'a str),
    /// Those that these compositions call, given by file or name.
    Compositions(Vec<&'a str>),
    /// Those that configured compositions call and those without a recorded listing, in the
    /// background.
    Served,
    /// All of them.
    Everything,
}

/// The MCP servers of a configuration and their tools.
#[derive(Default)]
pub(crate) struct UpstreamServers {
    runtime: OnceCell<Rc<Runtime>>,
    servers: BTreeMap<Arc<str>, Arc<UpstreamServer>>,
    /// The names of all tools that servers have listed for this command, unusable tools included.
    pub(super) listed: BTreeMap<Arc<str>, BTreeSet<String>>,
    /// Servers that are no longer configured and that runs may still call.
    retired: Vec<Arc<UpstreamServer>>,
    /// Weak references to `servers` for metrics, which must not keep a server alive.
    observed: Arc<Mutex<Vec<Weak<UpstreamServer>>>>,
    /// Why a server cannot be used.
    pub(crate) failed: BTreeMap<Arc<str>, String>,
    /// Servers of a configuration that is not trusted.
    untrusted: BTreeSet<Arc<str>>,
    /// Servers whose tools are not known, because this command does not need them.
    unlisted: BTreeSet<Arc<str>>,
    /// Notes for people about servers.
    pub(super) notes: Vec<String>,
    /// Servers that this command knows by their recorded listing only.
    pub(crate) recorded: BTreeSet<Arc<str>>,
    pub(super) tools: Vec<Tool>,
    /// The latest listing of each server, while this process serves.
    listings: BTreeMap<Arc<str>, Listing>,
    /// Servers whose first listing has not arrived yet.
    pending: BTreeMap<Arc<str>, PendingServer>,
    /// Servers that announced a change and are being listed again.
    relisting: BTreeMap<Arc<str>, ListingTask>,
    /// The recorded listings' files, as they were when they were read.
    stamps: Vec<FileStamp>,
    /// Ids of tools whose definition differs from the accepted one. They cannot be called.
    pub(crate) changed: BTreeSet<String>,
}

impl UpstreamServers {
    /// The servers of a configuration, with the tools that a command needs. `others` are the tools
    /// that need no server.
    pub(super) fn open(
        config: &Config,
        selection: &ServerSelection<'_>,
        others: &[Tool],
        shows_waits: bool,
    ) -> UpstreamServers {
        let PreparedServers { mut upstream, mut listings, needed } =
            UpstreamServers::prepare(config, selection, others, None);
        if matches!(selection, ServerSelection::Served) {
            let runtime = upstream.runtime().clone();
            runtime.block_on(upstream.start(config, listings, needed));
            return upstream;
        }
        if !needed.is_empty() {
            let listing = start_progress::show(&needed, shows_waits, list_all(&needed));
            let answers = upstream.runtime().block_on(listing);
            upstream.take_answers(&needed, answers, &mut listings);
        }
        if matches!(selection, ServerSelection::Recorded) {
            upstream.recorded = listings.keys().cloned().collect();
        }
        upstream.add_tools(&listings);
        upstream
    }

    /// The servers of a new configuration, while this process serves. A server whose configuration
    /// stays the same is not restarted.
    pub(super) async fn reopen(
        config: &Config,
        others: &[Tool],
        before: &UpstreamServers,
    ) -> UpstreamServers {
        let PreparedServers { mut upstream, listings, needed } =
            UpstreamServers::prepare(config, &ServerSelection::Served, others, Some(before));
        upstream.start(config, listings, needed).await;
        upstream
    }

    /// Starts to list servers in the background. Waits a short time, once, for those without a
    /// recorded listing.
    async fn start(
        &mut self,
        config: &Config,
        listings: BTreeMap<Arc<str>, Listing>,
        needed: Vec<Arc<UpstreamServer>>,
    ) {
        let until = Instant::now() + Duration::from_millis(config.limits.served_start_ms);
        let mut awaited = Vec::new();
        for server in needed {
            let name = server.name().clone();
            if !listings.contains_key(&name) && !server.was_late() {
                awaited.push(name.clone());
            }
            self.pending.insert(
                name,
                PendingServer { task: spawn_listing(server, Duration::ZERO), why: None },
            );
        }
        self.listings = listings;
        for name in awaited {
            let Some(pending) = self.pending.get_mut(&name) else { continue };
            match tokio::time::timeout_at(until, &mut pending.task.0).await {
                Ok(answer) => drop(self.handle_answer(&name, answer)),
                Err(_) => self.servers[&name].note_late(),
            }
        }
        self.rebuild_tools();
    }

    /// Servers whose first listing has not arrived yet.
    pub(super) fn pending(&self) -> BTreeSet<Arc<str>> {
        self.pending.keys().cloned().collect()
    }

    /// Takes in what happened since the last call: listings that arrived, changes that servers
    /// announced, and listings that other processes recorded or accepted.
    pub(super) async fn poll_changes(&mut self) -> ServerChanges {
        self.notes.clear();
        let mut changes = ServerChanges::default();
        let is_done = |(_, pending): &(&Arc<str>, &PendingServer)| pending.task.0.is_finished();
        let done: Vec<_> = self.pending.iter().filter(is_done).map(|(n, _)| n.clone()).collect();
        for name in done {
            let Some(pending) = self.pending.get_mut(&name) else { continue };
            let answer = (&mut pending.task.0).await;
            changes.is_changed |= self.handle_answer(&name, answer);
            if !self.pending.contains_key(&name) {
                changes.answered.insert(name);
            }
        }
        for (name, mut task) in self.relisting.extract_if(.., |_, task| task.0.is_finished()) {
            if let Ok(Ok(listing)) = (&mut task.0).await {
                let known = self.listings.get(&name);
                changes.is_changed |= known.is_none_or(|known| known.raw != listing.raw);
            }
        }
        for (name, server) in &self.servers {
            if server.has_changed() && !self.relisting.contains_key(name) {
                self.relisting.insert(name.clone(), spawn_listing(server.clone(), Duration::ZERO));
            }
        }
        changes.is_changed |= self.stamps != self.current_stamps();
        changes
    }

    /// Takes in the answer of a pending server, or schedules a retry. Returns whether the tools or the
    /// reason for their absence changed.
    fn handle_answer(&mut self, name: &Arc<str>, answer: ListingResult) -> bool {
        let Some(mut pending) = self.pending.remove(name) else { return false };
        let (why, delay) = match answer {
            Ok(Ok(listing)) => {
                let notes = listing.notes.iter();
                self.notes.extend(notes.map(|note| format!("MCP server `{name}`: {note}")));
                self.listings.insert(name.clone(), (*listing).clone());
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
        pending.task = spawn_listing(self.servers[name].clone(), delay);
        pending.why = Some(why);
        self.pending.insert(name.clone(), pending);
        is_new
    }

    /// Makes the tools anew from the latest listings.
    pub(super) fn rebuild_tools(&mut self) {
        // Before the files are read, so that no change is missed.
        self.stamps = self.current_stamps();
        let now = self.servers.iter().filter_map(|(name, it)| Some((name.clone(), it.known()?)));
        self.listings.extend(now);
        for (name, pending) in &self.pending {
            // A recorded listing still says which tools there are; a call says why it fails.
            if self.listings.contains_key(name) {
                self.failed.remove(name);
            } else {
                let starting = || "it is still being started".to_owned();
                self.failed.insert(name.clone(), pending.why.clone().unwrap_or_else(starting));
            }
        }
        (self.tools, self.changed) = (Vec::new(), BTreeSet::new());
        let listings = std::mem::take(&mut self.listings);
        self.add_tools(&listings);
        self.listings = listings;
    }

    /// The recorded listings' files, as they are now.
    fn current_stamps(&self) -> Vec<FileStamp> {
        let stamp = |server: &Arc<UpstreamServer>| {
            let metadata = std::fs::metadata(server.record()?).ok()?;
            Some((metadata.modified().ok()?, metadata.len()))
        };
        self.servers.values().map(stamp).collect()
    }

    /// Replaces the servers. Those that are no longer configured end once no run calls them.
    pub(super) fn replace_servers(&mut self, mut now: UpstreamServers) {
        let stays =
            |server: &Arc<UpstreamServer>| now.servers.values().any(|s| Arc::ptr_eq(s, server));
        let before = std::mem::take(&mut self.servers).into_values();
        let retired: Vec<_> = before.filter(|server| !stays(server)).collect();
        self.retired.extend(retired);
        self.servers = std::mem::take(&mut now.servers);
        self.publish_servers();
        self.failed = std::mem::take(&mut now.failed);
        self.notes = std::mem::take(&mut now.notes);
        self.changed = std::mem::take(&mut now.changed);
        self.listings = std::mem::take(&mut now.listings);
        self.pending = std::mem::take(&mut now.pending);
        self.relisting.clear();
        self.stamps = std::mem::take(&mut now.stamps);
    }

    /// Shows metrics the servers that are configured now.
    fn publish_servers(&self) {
        *self.observed.lock() = self.servers.values().map(Arc::downgrade).collect();
    }

    /// A function that returns the servers that are configured when it is called.
    pub(super) fn server_source(&self) -> impl Fn() -> Vec<Arc<UpstreamServer>> + use<> {
        self.publish_servers();
        let observed = self.observed.clone();
        move || observed.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Ends the retired servers that no run calls any more.
    pub(super) async fn close_retired(&mut self) {
        let is_unused = |server: &mut Arc<UpstreamServer>| Arc::strong_count(server) == 1;
        for server in self.retired.extract_if(.., is_unused).collect::<Vec<_>>() {
            server.close().await;
        }
    }

    /// The servers of a configuration without starting one. Servers of `before` with the same
    /// configuration are taken over.
    fn prepare(
        config: &Config,
        selection: &ServerSelection<'_>,
        others: &[Tool],
        before: Option<&UpstreamServers>,
    ) -> PreparedServers {
        let mut upstream = UpstreamServers::default();
        let project = config.project.as_ref();
        upstream.failed.clone_from(&config.unusable);
        upstream.failed.extend(project.iter().flat_map(|project| project.unusable.clone()));
        upstream.notes.extend(project.iter().flat_map(|project| project.notes.clone()));
        let mut listings: BTreeMap<Arc<str>, Listing> = BTreeMap::new();
        let configured = configured_servers(config);
        if configured.is_empty() {
            return PreparedServers { upstream, listings, needed: Vec::new() };
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
                listings.insert(name.clone(), listing);
            }
            if !allowed {
                let why = "it comes from a configuration that was found here and is not trusted: read \
                           it, then run `segue trust`";
                upstream.failed.insert(name.clone(), why.to_owned());
                upstream.untrusted.insert(name.clone());
            }
            upstream.servers.insert(name, server);
        }
        let needed = ServerNeeds::new(config, others, &listings, &upstream).of(selection);
        let needed = needed.iter().filter(|name| !upstream.failed.contains_key(*name));
        let needed = needed.filter_map(|name| upstream.servers.get(name).cloned()).collect();
        PreparedServers { upstream, listings, needed }
    }

    /// Makes tools of listings. A tool whose definition differs from the accepted one is left out.
    fn add_tools(&mut self, listings: &BTreeMap<Arc<str>, Listing>) {
        let is_known =
            |name: &Arc<str>| listings.contains_key(name) || self.failed.contains_key(name);
        self.unlisted = self.servers.keys().filter(|name| !is_known(name)).cloned().collect();
        for (name, listing) in listings {
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

    /// Takes in the listings of servers.
    fn take_answers(
        &mut self,
        servers: &[Arc<UpstreamServer>],
        answers: Vec<ListingResult>,
        listings: &mut BTreeMap<Arc<str>, Listing>,
    ) {
        for (server, answer) in servers.iter().zip(answers) {
            let name = server.name().clone();
            match answer {
                Ok(Ok(listing)) => {
                    let notes = listing.notes.iter();
                    self.notes.extend(notes.map(|note| format!("MCP server `{name}`: {note}")));
                    self.listed.insert(name.clone(), listing.names().collect());
                    listings.insert(name, (*listing).clone());
                }
                Ok(Err(unusable)) => {
                    // The recorded listing may be out of date.
                    listings.remove(&name);
                    self.failed.insert(name, unusable.why);
                }
                Err(error) => drop(self.failed.insert(name, error.to_string())),
            }
        }
    }

    /// The runtime of calls. Connections live on it, so a command has one.
    pub(super) fn runtime(&self) -> &Rc<Runtime> {
        self.runtime.get_or_init(|| Rc::new(current_thread_runtime()))
    }

    /// Whether a namespace belongs to a server, usable or not.
    pub(super) fn is_server(&self, name: &str) -> bool {
        self.servers.contains_key(name) || self.failed.contains_key(name)
    }

    /// Every configured server.
    pub(crate) fn servers(&self) -> impl Iterator<Item = &Arc<UpstreamServer>> {
        self.servers.values()
    }

    /// Servers of a configuration that is not trusted.
    pub(crate) fn untrusted(&self) -> &BTreeSet<Arc<str>> {
        &self.untrusted
    }

    /// Tools that exist but cannot be called, and why.
    pub(super) fn unavailable(&self) -> UnavailableTools {
        UnavailableTools {
            sources: self.failed.clone(),
            untrusted: self.untrusted.clone(),
            not_started: self.unlisted.clone(),
            changed: self.changed.clone(),
        }
    }
}

impl Drop for UpstreamServers {
    // Work in `Drop`, because a command ends in many places and servers must end in all of them.
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.get() else { return };
        // Servers that are still starting are not waited for.
        self.pending.clear();
        self.relisting.clear();
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

/// The servers of a configuration before one is started.
struct PreparedServers {
    upstream: UpstreamServers,
    /// What servers listed last time.
    listings: BTreeMap<Arc<str>, Listing>,
    /// Servers to list now.
    needed: Vec<Arc<UpstreamServer>>,
}

/// The answer of a server that was listed.
type ListingResult = Result<Result<Arc<Listing>, mcp::ServerUnavailable>, JoinError>;

/// A listing under way. Dropping it ends it.
struct ListingTask(JoinHandle<Result<Arc<Listing>, mcp::ServerUnavailable>>);

impl Drop for ListingTask {
    // Work in `Drop`, because a server that is no longer needed must not be started.
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A server whose first listing has not arrived yet.
struct PendingServer {
    task: ListingTask,
    /// Why the last attempt failed.
    why: Option<String>,
}

/// What changed since the last poll.
#[derive(Default)]
pub(super) struct ServerChanges {
    /// Whether the tools must be made anew.
    pub(super) is_changed: bool,
    /// Servers whose first listing arrived.
    pub(super) answered: BTreeSet<Arc<str>>,
}

/// When a file was written, and its size; `None` without a file.
type FileStamp = Option<(SystemTime, u64)>;

/// Lists a server in the background, after a delay.
fn spawn_listing(server: Arc<UpstreamServer>, delay: Duration) -> ListingTask {
    ListingTask(tokio::spawn(async move {
        tokio::time::sleep(delay).await;
        server.listing().await
    }))
}

/// Lists servers, all at once.
async fn list_all(servers: &[Arc<UpstreamServer>]) -> Vec<ListingResult> {
    let spawn = |server: &Arc<UpstreamServer>| spawn_listing(server.clone(), Duration::ZERO);
    let tasks: Vec<ListingTask> = servers.iter().map(spawn).collect();
    let mut answers = Vec::new();
    for mut task in tasks {
        answers.push((&mut task.0).await);
    }
    answers
}

/// Every usable server of a configuration, and whether it comes from the project's `.mcp.json`.
pub(crate) fn configured_servers(config: &Config) -> Vec<(&ServerConfig, bool)> {
    let project = config.project.iter().flat_map(|project| project.servers.values());
    config.servers.values().map(|s| (s, false)).chain(project.map(|s| (s, true))).collect()
}

/// The runner of a tool whose server cannot be used.
struct UnusableTool(String);

#[async_trait]
impl ToolRunner for UnusableTool {
    async fn call(&self, call: ToolRequest) -> Result<Value, ToolError> {
        let message = format!("the server of `{}` cannot be used: {}", call.tool, self.0);
        Err(ToolError::refused(Code::PolicyViolation, message))
    }
}
