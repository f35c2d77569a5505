//! The lifecycle of a server: started at its first use, shared by all runs of the process,
//! restarted after it died, and paused while it keeps dying.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use segue_core::composition::Backoff;
use segue_core::limits::Limits;
use segue_core::value::Value;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::calls::Timeouts;
use super::connection::Connection;
use super::definition::{Listing, ToolDefinition};
use super::server_record::{self, ProtocolEra, ServerRecord};
use super::tool::McpTool;
use super::{ServerConfig, ServerTransport, login};
use crate::tools::redact::Secrets;
use crate::tools::{Tool, ToolError};

/// The first and the longest pause before a server is restarted.
const START_PAUSES: Backoff = Backoff::doubling(200, 30_000);

/// How many lines of standard error operators see.
const STDERR_LINES: usize = 20;

/// Marks an argument in a schema that is also sent as a header.
const HEADER: &str = "x-mcp-header";

/// A server, running or not.
pub struct UpstreamServer {
    pub(super) config: ServerConfig,
    pub(super) limits: Limits,
    /// The file of its recorded definitions.
    record: Option<PathBuf>,
    /// Redacted from everything that it says.
    secrets: RwLock<Secrets>,
    life: Mutex<ConnectionState>,
    counts: ServerCounts,
}

/// Counters for operators.
#[derive(Default)]
struct ServerCounts {
    starts: AtomicU64,
    failures: AtomicU64,
}

/// Figures of a server, for operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerFigures {
    /// Whether it is connected; false while it is being started.
    pub is_up: bool,
    /// How often a connection succeeded.
    pub starts: u64,
    /// How often a connection failed.
    pub failures: u64,
}

/// The condition of a server, for operators.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerCondition {
    /// Whether it is connected.
    pub is_up: bool,
    /// Whether it is being started.
    pub is_starting: bool,
    /// Why the last start failed.
    pub failure: Option<String>,
    /// The version of the protocol.
    pub protocol: Option<String>,
    /// The version of the server.
    pub version: Option<String>,
    /// How it is reached: `stdio`, `http` or `local`.
    pub transport: &'static str,
    /// The last lines of its standard error.
    pub stderr: Vec<String>,
}

#[derive(Default)]
struct ConnectionState {
    connection: Option<Arc<Connection>>,
    era: Option<ProtocolEra>,
    /// Failed starts in a row, counting connections that were soon lost.
    failures: u32,
    rest: Option<(Instant, String)>,
}

/// A tool whose definition differs from the accepted one.
#[derive(Clone, Debug)]
pub struct DefinitionChange {
    /// The tool's name at the server.
    pub tool: Arc<str>,
    /// The accepted definition.
    pub before: Value,
    /// The current definition; `None` when the tool is gone.
    pub now: Option<Value>,
}

/// A server that cannot be used now.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the MCP server `{server}` cannot be used: {why}")]
pub struct ServerUnavailable {
    /// The server's name.
    pub server: Arc<str>,
    /// The reason, for people.
    pub why: String,
    /// When it is tried again.
    pub retry_after: Option<Duration>,
}

impl From<ServerUnavailable> for ToolError {
    fn from(unusable: ServerUnavailable) -> ToolError {
        let message = unusable.to_string();
        ToolError::Unreachable { message, retry_after: unusable.retry_after }
    }
}

impl UpstreamServer {
    /// A server that is not started yet. Its definitions are recorded in a folder, if one is given.
    pub fn new(
        config: ServerConfig,
        limits: &Limits,
        folder: Option<&std::path::Path>,
    ) -> UpstreamServer {
        let record =
            folder.map(|folder| server_record::file(folder, &config.name, &config.identity));
        let (limits, secrets) = (limits.clone(), RwLock::default());
        let (life, counts) = (Mutex::default(), ServerCounts::default());
        UpstreamServer { config, limits, record, secrets, life, counts }
    }

    /// The same, with these secrets redacted from its errors.
    #[must_use]
    pub fn redacting(self, secrets: Secrets) -> UpstreamServer {
        UpstreamServer { secrets: RwLock::new(secrets), ..self }
    }

    /// Adds secrets to redact: the server outlives the configuration that it was made from.
    pub fn add_secrets(&self, secrets: &Secrets) {
        let mut known = self.secrets.write();
        *known = known.with(secrets);
    }

    fn secrets(&self) -> Secrets {
        self.secrets.read().clone()
    }

    /// Whether it has this configuration and these limits.
    pub fn has_config(&self, config: &ServerConfig, limits: &Limits) -> bool {
        self.config == *config && self.limits == *limits
    }

    /// Its figures.
    pub fn figures(&self) -> ServerFigures {
        ServerFigures {
            is_up: self.running().is_some(),
            starts: self.counts.starts.load(Ordering::Relaxed),
            failures: self.counts.failures.load(Ordering::Relaxed),
        }
    }

    /// Its condition, without starting it.
    pub fn condition(&self) -> ServerCondition {
        let transport = match self.config.reach {
            ServerTransport::Stdio(_) => "stdio",
            ServerTransport::Local(_) => "local",
            ServerTransport::Http(_) => "http",
        };
        let condition = ServerCondition { transport, ..ServerCondition::default() };
        let Ok(life) = self.life.try_lock() else {
            return ServerCondition { is_starting: true, ..condition };
        };
        let secrets = self.all_secrets();
        let Some(connection) = &life.connection else {
            let failure = life.rest.as_ref().map(|(_, why)| secrets.redact(why));
            return ServerCondition { failure, ..condition };
        };
        let stderr = secrets.redact(&connection.calls.output.stderr.last_lines(STDERR_LINES));
        let info = connection.calls.peer.peer_info();
        ServerCondition {
            is_up: !connection.is_closed(),
            protocol: info.as_ref().map(|info| info.protocol_version.to_string()),
            version: info
                .as_ref()
                .and_then(|info| Some(secrets.redact(&info.server_info.as_ref()?.version))),
            stderr: stderr.lines().map(str::to_owned).collect(),
            ..condition
        }
    }

    /// Its name, which is the namespace of its tools.
    pub fn name(&self) -> &Arc<str> {
        &self.config.name
    }

    /// Its tools when it was last seen, without starting it.
    pub fn recorded(&self) -> Option<Listing> {
        let seen = self.seen()?;
        Some(Listing::read(&self.config.name, &self.config.identity, seen.tools))
    }

    /// Its tools without a request: as listed if it runs, else as when it was last seen.
    pub fn known(&self) -> Option<Listing> {
        let running = self.running().map(|connection| (*connection.listing()).clone());
        running.or_else(|| self.recorded())
    }

    /// Whether it runs and announced a change of its tools that was not handled yet.
    pub fn has_changed(&self) -> bool {
        self.running().is_some_and(|connection| connection.has_changed())
    }

    /// Whether an earlier start timed out, and it was not seen since.
    pub fn was_late(&self) -> bool {
        self.late_file().is_some_and(|file| file.exists())
    }

    /// Records that a start timed out, so that not every start waits for it.
    pub fn note_late(&self) {
        if let Some(file) = self.late_file()
            && let Some(folder) = file.parent()
        {
            // If the file cannot be written, the next start waits again.
            let _ = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&file, ""));
        }
    }

    fn late_file(&self) -> Option<PathBuf> {
        Some(self.record.as_ref()?.with_extension("late"))
    }

    /// The file of its record.
    pub fn record(&self) -> Option<&std::path::Path> {
        self.record.as_deref()
    }

    /// Its connection, if it has one; `None` while it is being started.
    fn running(&self) -> Option<Arc<Connection>> {
        let connection = self.life.try_lock().ok()?.connection.clone();
        connection.filter(|connection| !connection.is_closed())
    }

    /// Its record, redacted: the file may be older than the redaction, or than the secret.
    fn seen(&self) -> Option<ServerRecord> {
        let ServerRecord { era, tools, accepted } = server_record::read(self.record.as_deref()?)?;
        let secrets = self.all_secrets();
        let clean = |(name, tool)| (name, secrets.redact_value(tool));
        let accepted = accepted.into_iter().map(clean).collect();
        Some(ServerRecord { era, tools: secrets.redact_all(tools), accepted })
    }

    /// Tools whose definition differs from the accepted one, when the server was last seen. A tool
    /// that is gone has no current definition.
    pub fn changes(&self) -> Vec<DefinitionChange> {
        let Some(seen) = self.seen() else { return Vec::new() };
        let mut now = server_record::by_name(&seen.tools);
        let change = |(tool, before): (Arc<str>, Value)| {
            let now = now.remove(&tool);
            DefinitionChange { tool, before, now }
        };
        seen.accepted.into_iter().map(change).collect()
    }

    /// Accepts the current definitions of these tools.
    pub fn accept(&self, tools: &[Arc<str>]) {
        let Some(file) = &self.record else { return };
        if let Some(mut seen) = self.seen() {
            seen.accepted.retain(|name, _| !tools.contains(name));
            server_record::write(file, &seen);
        }
    }

    /// Its current tools; starts it if necessary.
    pub async fn listing(&self) -> Result<Arc<Listing>, ServerUnavailable> {
        let connection = self.connection().await?;
        self.current(&connection).await
    }

    /// Logs in: `tell` shows a person the page to open. The error is a message for people.
    pub async fn login(&self, tell: impl FnOnce(&str)) -> Result<(), String> {
        let file = self.tokens().ok_or("there is no folder to store the login in")?;
        login::login(&self.config, &file, tell).await
    }

    /// Removes the stored login.
    pub fn forget_login(&self) {
        if let Some(file) = self.tokens() {
            // A missing file counts as removed.
            let _ = std::fs::remove_file(file);
        }
    }

    /// The file of its tokens.
    fn tokens(&self) -> Option<PathBuf> {
        Some(self.record.as_ref()?.with_extension("token"))
    }

    /// All secrets to redact, its tokens included.
    pub(super) fn all_secrets(&self) -> Secrets {
        match (&self.config.reach, self.tokens()) {
            (ServerTransport::Http(http), Some(file)) => {
                let tokens = login::secrets_in(&file, &http.url);
                if tokens.is_empty() { self.secrets() } else { self.secrets().and(tokens) }
            }
            _ => self.secrets(),
        }
    }

    /// Ends it, if it runs.
    pub async fn close(&self) {
        if let Some(connection) = self.life.lock().await.connection.take() {
            connection.close().await;
        }
    }

    /// The tools of a listing, each with its runner.
    pub fn tools(self: &Arc<UpstreamServer>, listing: &Listing) -> Vec<Tool> {
        let tools = listing.tools.iter().map(|(name, ToolDefinition { spec, pin, task })| Tool {
            spec: spec.clone(),
            runner: Arc::new(McpTool {
                server: self.clone(),
                name: name.clone(),
                pin: pin.clone(),
                read_only: spec.annotations.read_only == Some(true),
                has_headers: spec.input.json().to_json().contains(HEADER),
                task: *task,
            }),
        });
        tools.collect()
    }

    pub(super) fn unusable(
        &self,
        why: impl Into<String>,
        retry_after: Option<Duration>,
    ) -> ServerUnavailable {
        let why = self.all_secrets().redact(&why.into());
        ServerUnavailable { server: self.config.name.clone(), why, retry_after }
    }

    /// The connection, opened if there is none. Concurrent callers share one attempt.
    pub(super) async fn connection(&self) -> Result<Arc<Connection>, ServerUnavailable> {
        let life = self.life.lock().await;
        if let Some(connection) = &life.connection
            && !connection.is_closed()
        {
            return Ok(connection.clone());
        }
        // Boxed because it is large and rare: every call carries the future.
        Box::pin(self.connected(life)).await
    }

    async fn connected(
        &self,
        mut life: MutexGuard<'_, ConnectionState>,
    ) -> Result<Arc<Connection>, ServerUnavailable> {
        if let Some(connection) = &life.connection {
            // It has died. The first restart is immediate; a pause follows only if it fails, too.
            connection.close().await;
            life.connection = None;
        }
        if let Some((until, why)) = &life.rest
            && let Some(left) = until.checked_duration_since(Instant::now())
            && !left.is_zero()
        {
            return Err(self.unusable(why.clone(), Some(left)));
        }
        if life.era.is_none()
            && let Some(seen) = self.seen()
        {
            life.era = Some(seen.era);
        }
        let until = Instant::now() + Duration::from_millis(self.limits.mcp_start_ms);
        let opened = self.open(life.era, until).await;
        match opened {
            Ok(connection) => {
                self.counts.starts.fetch_add(1, Ordering::Relaxed);
                let connection = Arc::new(connection);
                *life = ConnectionState {
                    connection: Some(connection.clone()),
                    era: Some(connection.era),
                    ..ConnectionState::default()
                };
                self.save_record(&connection, &connection.listing());
                Ok(connection)
            }
            Err(why) => {
                self.counts.failures.fetch_add(1, Ordering::Relaxed);
                life.failures = life.failures.saturating_add(1);
                let pause = Duration::from_millis(START_PAUSES.wait_ms(life.failures));
                // The recorded era may be the cause.
                life.era = None;
                life.rest = Some((Instant::now() + pause, why.clone()));
                Err(self.unusable(why, Some(pause)))
            }
        }
    }

    /// Opens a connection. The recorded era may be outdated, or be found out too late: then it
    /// tries once more.
    async fn open(&self, known: Option<ProtocolEra>, until: Instant) -> Result<Connection, String> {
        let tokens = self.tokens();
        let open = |era| {
            let (config, secrets) = (&self.config, self.all_secrets());
            Connection::open(config, era, tokens.as_deref(), secrets, &self.limits, until)
        };
        let again = match open(known).await {
            Ok(connection) => return Ok(connection),
            Err(unopened) if Instant::now() >= until => return Err(unopened.why),
            Err(unopened) if unopened.is_modern => Some(ProtocolEra::Modern),
            Err(_) if known.is_some() => None,
            // Some programs accept no first message but `initialize`.
            Err(unopened) if unopened.is_startled => Some(ProtocolEra::Legacy),
            Err(unopened) => return Err(unopened.why),
        };
        open(again).await.map_err(|unopened| unopened.why)
    }

    /// The tools of a connection, listed again if the server announced a change.
    pub(super) async fn current(
        &self,
        connection: &Connection,
    ) -> Result<Arc<Listing>, ServerUnavailable> {
        let fresh = connection.fresh_listing(&self.config, &self.limits).await;
        let (listing, is_new) = fresh.map_err(|why| self.unusable(why, None))?;
        if is_new {
            self.save_record(connection, &listing);
        }
        Ok(listing)
    }

    fn save_record(&self, connection: &Connection, listing: &Listing) {
        if let Some(file) = &self.record {
            let seen = ServerRecord::seen(self.seen(), connection.era, &listing.raw);
            server_record::write(file, &seen);
            self.late_file().into_iter().for_each(|late| drop(std::fs::remove_file(late)));
        }
    }

    pub(super) fn timeouts(&self) -> Timeouts {
        let idle = self.config.timeout;
        let idle = idle.unwrap_or(Duration::from_millis(self.limits.mcp_idle_ms));
        Timeouts { idle, total: idle.max(Duration::from_millis(self.limits.mcp_call_ms)) }
    }
}

impl ServerConfig {
    /// Whether it is a program that Segue starts.
    pub fn is_started(&self) -> bool {
        matches!(self.reach, ServerTransport::Stdio(_))
    }
}
