//! MCP servers: `mcpServers` of `segue.yaml` and the project's `.mcp.json` → what is started or
//! reached.
//!
//! The shape is the one that every host of the protocol reads, so fields that other hosts know are
//! passed over. Nothing is started here.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use segue_core::compile::document::{Node, NodeKind};
use segue_core::tool::{BUILTIN, COMPOSITION, hex_digest};
use segue_core::value::Value;
use segue_runtime::tools::command::COMMAND;
use segue_runtime::tools::mcp::{HttpConfig, Reach, ServerConfig, StdioConfig, look};

use super::Project;
use super::expand::expand;
use super::jsonc;
use super::read::Reader;

/// What a server has.
const SERVER: &[&str] =
    &["type", "command", "args", "env", "cwd", "url", "headers", "timeout", "disabled"];

/// What other hosts know of a server and Segue does not need.
const ELSEWHERE: &[&str] = &[
    "alwaysAllow",
    "autoApprove",
    "description",
    "dev",
    "envFile",
    "gallery",
    "icon",
    "name",
    "oauth",
    "tools",
    "transport",
    "trust",
    "version",
];

/// Names that other tools' ids begin with.
const TAKEN: &[&str] = &[BUILTIN, COMPOSITION, COMMAND, "http"];

impl Reader<'_> {
    /// The servers of `segue.yaml`.
    pub(super) fn servers(&mut self, node: &Node) -> BTreeMap<Arc<str>, ServerConfig> {
        if !matches!(node.kind, NodeKind::Object(_)) {
            self.error(node.span, format!("expected an object, found {}", node.kind_word()));
        }
        let mut servers = BTreeMap::new();
        let mut looks = BTreeMap::new();
        for member in node.members() {
            let known: Vec<&str> = SERVER.iter().chain(ELSEWHERE).copied().collect();
            if !self.keys(&member.value, &known, "a server") {
                continue;
            }
            if let Some(other) = looks.insert(look(&member.key), member.key.clone()) {
                let message = format!("`{}` and `{other}` look alike", member.key);
                self.error(member.key_span, message);
            }
            match server(&member.key, &member.value.to_value(), &self.folder, self.env) {
                Ok(Some(server)) => drop(servers.insert(server.name.clone(), server)),
                Ok(None) => {}
                Err(why) => {
                    self.error(member.value.span, format!("server `{}`: {why}", member.key));
                }
            }
        }
        servers
    }
}

/// The servers of a project's `.mcp.json`. One that cannot be used stops none of the others.
pub(super) fn project(file: PathBuf, env: &dyn Fn(&str) -> Option<String>) -> Project {
    let mut project = Project { file, ..Project::default() };
    let whole = std::fs::read_to_string(&project.file).map_err(|error| error.to_string());
    let whole = match whole.and_then(|text| jsonc::read(&text)) {
        Ok(whole) => whole,
        Err(why) => {
            project.notes.push(why);
            return project;
        }
    };
    let Some(entries) = whole.get("mcpServers").or_else(|| whole.get("servers")) else {
        project.notes.push("it has no `mcpServers`".to_owned());
        return project;
    };
    let folder = project.file.parent().map_or_else(PathBuf::new, Path::to_owned);
    for (name, entry) in entries.as_object().into_iter().flat_map(|entries| entries.iter()) {
        match server(name, entry, &folder, env) {
            Ok(Some(server)) => drop(project.servers.insert(server.name.clone(), server)),
            Ok(None) => {}
            Err(why) => project.notes.push(format!("server `{name}`: {why}")),
        }
    }
    project.as_written = entries.clone();
    project
}

/// One server; `None` when it is switched off.
fn server(
    name: &str,
    entry: &Value,
    folder: &Path,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<ServerConfig>, String> {
    is_name(name)?;
    if entry.get("disabled").and_then(Value::as_bool) == Some(true) {
        return Ok(None);
    }
    let text = |key: &str| match entry.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => expand(text, env).map(Some),
        Some(other) => Err(format!("`{key}` must be text, found {}", other.kind())),
    };
    let texts = |key: &str| -> Result<BTreeMap<String, String>, String> {
        let members = match entry.get(key) {
            None | Some(Value::Null) => return Ok(BTreeMap::new()),
            Some(Value::Object(members)) => members.clone(),
            Some(other) => {
                return Err(format!("`{key}` must be an object, found {}", other.kind()));
            }
        };
        members.iter().map(|(k, v)| Ok((k.to_string(), expand(&v.to_string(), env)?))).collect()
    };
    let reach = match (text("type")?.as_deref(), text("command")?, text("url")?) {
        (None | Some("stdio"), Some(command), _) => {
            let cwd = text("cwd")?.map_or_else(|| folder.to_owned(), |cwd| folder.join(cwd));
            let args = match entry.get("args") {
                None | Some(Value::Null) => Vec::new(),
                Some(Value::Array(args)) => args
                    .iter()
                    .map(|arg| expand(&arg.to_string(), env))
                    .collect::<Result<_, _>>()?,
                Some(other) => {
                    return Err(format!("`args` must be a list, found {}", other.kind()));
                }
            };
            Reach::Stdio(StdioConfig {
                command: program(command, &cwd),
                args,
                env: texts("env")?,
                cwd: Some(cwd).filter(|cwd| !cwd.as_os_str().is_empty()),
            })
        }
        (None | Some("http" | "streamable-http" | "streamableHttp"), None, Some(url)) => {
            if !url.starts_with("http://") && !url.starts_with("https://") {
                return Err("`url` begins with `http://` or `https://`".to_owned());
            }
            Reach::Http(HttpConfig { url, headers: texts("headers")? })
        }
        (Some("sse"), ..) => {
            return Err("the old transport `sse` is not spoken here; use `http`".to_owned());
        }
        (Some(kind), ..) if !["stdio", "http"].contains(&kind) => {
            return Err(format!("`type` is `stdio` or `http`, not `{kind}`"));
        }
        _ => return Err("it needs a `command` or a `url`".to_owned()),
    };
    let identity = hex_digest(identity(entry).to_canonical_json().as_bytes()).into();
    Ok(Some(ServerConfig { name: name.into(), reach, identity, timeout: timeout(entry)? }))
}

/// What makes a server the one that it is, as written: its variables' values may change.
fn identity(entry: &Value) -> Value {
    let keys = ["command", "args", "url"];
    Value::object(keys.map(|key| (key, entry.get(key).cloned().unwrap_or(Value::Null))))
}

/// A number of milliseconds, as other hosts have it, or a duration.
fn timeout(entry: &Value) -> Result<Option<std::time::Duration>, String> {
    let millis = match entry.get("timeout") {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(text)) => segue_core::compile::dialect::parse_duration(text),
        Some(other) => other.as_u64(),
    };
    let millis = millis.ok_or("`timeout` is a duration, such as `30s`, or milliseconds")?;
    Ok(Some(std::time::Duration::from_millis(millis)))
}

/// Which directory a relative program is searched in differs between systems: say it.
fn program(command: String, cwd: &Path) -> String {
    let path = Path::new(&command);
    if path.is_relative() && path.components().count() > 1 && !cwd.as_os_str().is_empty() {
        return cwd.join(path).display().to_string();
    }
    command
}

/// Whether tools' ids may begin with this.
pub(crate) fn is_name(name: &str) -> Result<(), String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    if name.is_empty() || name.len() > 64 || !name.bytes().all(plain) {
        return Err("its name is not letters, digits, `_`, `-`, `.`".to_owned());
    }
    if TAKEN.iter().any(|taken| look(taken) == look(name)) {
        return Err(format!("`{name}` is the name of other tools' source"));
    }
    Ok(())
}
