//! What operators see of this installation: sources of tools, checks, settings.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use schemars::JsonSchema;
use segue_core::access::{Principal, Right};
use segue_core::tool::{BUILTIN, COMPOSITION, LOCAL};
use segue_core::value::Value;
use segue_runtime::tools::command::COMMAND;
use segue_runtime::tools::http::HTTP;
use segue_runtime::tools::mcp::{ServerCondition, UpstreamServer};
use serde::Serialize;

use super::runs::RunService;

/// What the process that serves knows of its configuration. A reload replaces it.
#[derive(Clone, Default)]
pub struct Installation {
    /// The MCP servers, which must not be kept alive by this.
    pub servers: Vec<Weak<UpstreamServer>>,
    /// Why a server cannot be used, by its name.
    pub failed: BTreeMap<Arc<str>, String>,
    /// Checks whose result does not change until the next reload.
    pub checks: Vec<Check>,
    /// The settings.
    pub settings: SettingList,
}

/// The sources of tools.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ServerList {
    /// MCP servers by name, then the other sources.
    pub servers: Vec<ServerView>,
}

/// A source of tools.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ServerView {
    /// Its name, which is the namespace of its tools.
    pub name: Arc<str>,
    /// What it is: `mcp`, `http`, `command`, `builtin` or `local`.
    pub kind: &'static str,
    /// Its state.
    pub state: ServerState,
    /// Why it cannot be used now.
    pub reason: Option<String>,
    /// How many of its tools the caller may use.
    pub tools: usize,
    /// The version of the protocol, while it is connected.
    pub protocol: Option<String>,
    /// The version of the server, while it is connected.
    pub version: Option<String>,
    /// How it is reached: `stdio`, `http` or `local`.
    pub transport: Option<&'static str>,
    /// The last lines of its standard error, for administrators.
    pub stderr: Vec<String>,
}

/// The state of a source of tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ServerState {
    /// Its tools can be called.
    Ready,
    /// It is being started.
    Starting,
    /// It could not be started.
    Failed,
    /// It is not connected; a call starts it.
    Stopped,
}

/// The result of a check.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Check {
    /// What is checked, in a word.
    pub what: &'static str,
    /// Whether it is as it should be.
    pub ok: bool,
    /// What was found.
    pub message: String,
    /// What to do; with `ok`, a remark.
    pub help: Option<String>,
}

impl Check {
    /// A check that passed.
    pub fn good(what: &'static str, message: impl Into<String>) -> Check {
        Check { what, ok: true, message: message.into(), help: None }
    }

    /// A check that passed, with a remark.
    pub fn note(what: &'static str, message: impl Into<String>, help: impl Into<String>) -> Check {
        Check { ok: true, ..Check::bad(what, message, help) }
    }

    /// A check that failed.
    pub fn bad(what: &'static str, message: impl Into<String>, help: impl Into<String>) -> Check {
        Check { what, ok: false, message: message.into(), help: Some(help.into()) }
    }
}

/// All checks, as `segue doctor --json` prints them.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DoctorReport {
    /// Whether every check passed.
    pub ok: bool,
    /// Each check.
    pub findings: Vec<Check>,
}

/// The settings in force, without secrets.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct SettingList {
    /// The configuration file.
    pub file: Option<String>,
    /// Whether its grants take effect: it was named, or is trusted.
    pub trusted: bool,
    /// Those of the file in its order, then those that have their default.
    pub settings: Vec<Setting>,
}

/// A setting.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Setting {
    /// Its path, such as `server.listen`.
    pub name: String,
    /// Its value as written; secrets are masked.
    pub value: Value,
    /// Where it comes from: `FILE:LINE`, `default`, or `command line`.
    pub from: String,
}

/// The sources of the tools that a caller may use. An administrator also sees those without tools.
pub fn servers(service: &RunService, who: &Principal) -> ServerList {
    let (installation, is_admin) = (service.installation(), who.may(Right::Admin));
    let mut counts: BTreeMap<Arc<str>, usize> = BTreeMap::new();
    for tool in service.catalog(who).engine.toolset().tools() {
        *counts.entry(tool.id.namespace().into()).or_default() += 1;
    }
    counts.remove(COMPOSITION);
    let mut servers = Vec::new();
    for server in installation.servers.iter().filter_map(Weak::upgrade) {
        let name = server.name().clone();
        let tools = counts.remove(&name).unwrap_or(0);
        let failed = installation.failed.get(&name);
        servers.push(mcp_server(name, server.condition(), failed, tools, is_admin));
    }
    for (name, why) in &installation.failed {
        if servers.iter().all(|known: &ServerView| known.name != *name) {
            let tools = counts.remove(name).unwrap_or(0);
            let condition = ServerCondition { failure: Some(why.clone()), ..Default::default() };
            servers.push(mcp_server(name.clone(), condition, Some(why), tools, is_admin));
        }
    }
    servers.extend(counts.into_iter().map(|(name, tools)| own_source(name, tools)));
    servers.retain(|server| is_admin || server.tools > 0);
    ServerList { servers }
}

fn mcp_server(
    name: Arc<str>,
    condition: ServerCondition,
    failed: Option<&String>,
    tools: usize,
    is_admin: bool,
) -> ServerView {
    let state = match &condition {
        ServerCondition { is_up: true, .. } => ServerState::Ready,
        ServerCondition { is_starting: true, .. } => ServerState::Starting,
        ServerCondition { failure: Some(_), .. } => ServerState::Failed,
        _ if failed.is_some() => ServerState::Failed,
        _ => ServerState::Stopped,
    };
    // The lines after the first one are of the server's standard error, which is for administrators.
    let shown = |reason: String| match reason.lines().next() {
        Some(first) if !is_admin => first.to_owned(),
        _ => reason,
    };
    let reason = condition.failure.or_else(|| failed.cloned()).map(shown);
    ServerView {
        name,
        kind: "mcp",
        state,
        reason: reason.filter(|_| state != ServerState::Ready),
        tools,
        protocol: condition.protocol,
        version: condition.version,
        transport: Some(condition.transport).filter(|it| !it.is_empty()),
        stderr: if is_admin { condition.stderr } else { Vec::new() },
    }
}

/// A source that is part of this process.
fn own_source(name: Arc<str>, tools: usize) -> ServerView {
    let kind = match &*name {
        COMMAND => "command",
        HTTP => "http",
        BUILTIN => "builtin",
        LOCAL => "local",
        _ => "mcp",
    };
    ServerView {
        name,
        kind,
        state: ServerState::Ready,
        reason: None,
        tools,
        protocol: None,
        version: None,
        transport: None,
        stderr: Vec::new(),
    }
}

/// The checks of this installation, as they are now. No server is started for them.
pub async fn doctor(service: &RunService, who: &Principal) -> DoctorReport {
    let mut findings = service.installation().checks.clone();
    findings.push(match service.store().try_write().await {
        Ok(()) => Check::good("store", "can be written"),
        Err(error) => {
            Check::bad("store", error.to_string(), "`--store sqlite:FILE` names another file")
        }
    });
    let engine = service.full_catalog().engine;
    let tools = engine.catalog().tools().count();
    findings.push(Check::good("tools", format!("{tools} available")));
    for server in servers(service, who).servers.into_iter().filter(|server| server.kind == "mcp") {
        let name = &server.name;
        let reason = server.reason.unwrap_or_default();
        findings.push(match server.state {
            ServerState::Ready => {
                Check::good("server", format!("`{name}` works: {} tools", server.tools))
            }
            ServerState::Stopped => Check::good("server", format!("`{name}` is not started")),
            ServerState::Starting => Check::good("server", format!("`{name}` is being started")),
            ServerState::Failed => {
                let message = format!("`{name}` cannot be used: {reason}");
                Check::bad("server", message, "`segue doctor` starts it and says more")
            }
        });
    }
    DoctorReport { ok: findings.iter().all(|check| check.ok), findings }
}
