//! MCP servers: `mcpServers` of `segue.yaml` and the project's `.mcp.json` → configurations of servers.
//!
//! The format is that of every MCP host; fields of other hosts are ignored. No server is started here.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use segue_core::document::{Node, NodeKind};
use segue_core::tool::{BUILTIN, COMPOSITION, hex_digest};
use segue_core::value::Value;
use segue_runtime::tools::command::COMMAND;
use segue_runtime::tools::mcp::{
    McpHttpConfig, ServerConfig, ServerTransport, StdioConfig, confusable_form,
};

use super::expand::{self, expand};
use super::read::ConfigReader;
use super::{Config, Project, jsonc};
use crate::print::display_path;

/// The fields of a server.
const SERVER: &[&str] =
    &["type", "command", "args", "env", "cwd", "url", "headers", "timeout", "disabled"];

/// Fields of other hosts, which are ignored.
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

/// Namespaces of other tools.
const TAKEN: &[&str] = &[BUILTIN, COMPOSITION, COMMAND, "http"];

/// Why a server is left out.
enum ServerIssue {
    /// It is switched off.
    Off,
    /// Its configuration is wrong.
    Wrong(String),
    /// Its configuration is valid, but the server cannot be used, for example because a variable is not set.
    Unusable(String),
}

impl From<String> for ServerIssue {
    fn from(why: String) -> ServerIssue {
        ServerIssue::Wrong(why)
    }
}

impl ConfigReader<'_> {
    /// Reads servers of `segue.yaml`.
    pub(super) fn servers(&mut self, node: &Node, config: &mut Config) {
        if !matches!(node.kind, NodeKind::Object(_)) {
            self.error(node.span, format!("expected an object, found {}", node.kind_name()));
        }
        // `mcpServers` and `servers` may both be present.
        let before = config.servers_as_written.as_object().cloned().unwrap_or_default();
        let mut looks: BTreeMap<String, Arc<str>> =
            before.iter().map(|(name, _)| (confusable_form(name), name.clone())).collect();
        for member in node.members() {
            let known: Vec<&str> = SERVER.iter().chain(ELSEWHERE).copied().collect();
            if !self.keys(&member.value, &known, "a server") {
                continue;
            }
            if let Some(other) = looks.insert(confusable_form(&member.key), member.key.clone()) {
                let message = format!("`{}` and `{other}` look alike", member.key);
                self.error(member.key_span, message);
            }
            let name: Arc<str> = member.key.clone();
            match server(&name, &member.value.to_value(), &self.folder, self.env) {
                Ok(server) => drop(config.servers.insert(name, server)),
                Err(ServerIssue::Off) => {}
                Err(ServerIssue::Unusable(why)) => drop(config.unusable.insert(name, why)),
                Err(ServerIssue::Wrong(why)) => {
                    self.error(member.value.span, format!("server `{name}`: {why}"));
                }
            }
        }
        config.servers_as_written = match node.to_value() {
            Value::Object(written) if !before.is_empty() => {
                let all = before.iter().chain(written.iter());
                Value::object(all.map(|(name, entry)| (name.clone(), entry.clone())))
            }
            written => written,
        };
    }
}

/// The names of the servers of a `.mcp.json` that a configuration does not have. A file that cannot be
/// read has none.
pub(super) fn missing_names(file: &Path, own: &Value) -> Vec<Arc<str>> {
    let Ok(entries) = entries(file) else { return Vec::new() };
    let members = entries.as_object().into_iter().flat_map(|members| members.iter());
    let names = members.map(|(name, _)| name.clone());
    names.filter(|name| own.get(name).is_none()).collect()
}

/// The servers of a project's `.mcp.json`. A server that cannot be used does not affect the others.
/// Servers of `own`, those of `segue.yaml`, take precedence.
pub(super) fn project(file: PathBuf, own: &Value, env: &dyn Fn(&str) -> Option<String>) -> Project {
    let mut project = Project { file, ..Project::default() };
    let entries = match entries(&project.file) {
        Ok(entries) => entries,
        Err(why) => {
            project.notes.push(format!("`{}`: {why}", display_path(&project.file)));
            return project;
        }
    };
    let folder = project.file.parent().map_or_else(PathBuf::new, Path::to_owned);
    let names = |value: &Value| -> Vec<Arc<str>> {
        let members = value.as_object().into_iter().flat_map(|members| members.iter());
        members.map(|(name, _)| name.clone()).collect()
    };
    let (own, all) = (names(own), names(&entries));
    for name in all.iter().filter(|name| !own.contains(name)) {
        if let Err(why) = is_name(name) {
            let note = format!("`{}`: server `{name}`: {why}", display_path(&project.file));
            project.notes.push(note);
            continue;
        }
        let entry = entries.get(name).unwrap_or(&Value::Null);
        let is_alike =
            |other: &&Arc<str>| *other != name && confusable_form(other) == confusable_form(name);
        let alike = own.iter().chain(&all).find(is_alike);
        match (server(name, entry, &folder, env), alike) {
            (Err(ServerIssue::Off), _) => {}
            // Users could not tell which of them is called.
            (_, Some(other)) => {
                let why = format!("its name looks like `{other}`: rename one of them");
                project.unusable.insert(name.clone(), why);
            }
            (Ok(server), None) => drop(project.servers.insert(name.clone(), server)),
            (Err(ServerIssue::Unusable(why) | ServerIssue::Wrong(why)), None) => {
                project.unusable.insert(name.clone(), why);
            }
        }
    }
    project.as_written = entries;
    project
}

/// The servers of a host's file, as written.
fn entries(file: &Path) -> Result<Value, String> {
    let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
    let whole = jsonc::read(&text)?;
    let entries = whole.get("mcpServers").or_else(|| whole.get("servers"));
    match entries.ok_or("it has no `mcpServers`")? {
        entries @ Value::Object(_) => Ok(entries.clone()),
        other => Err(format!("`mcpServers` must be an object, found {}", other.kind())),
    }
}

/// Checks a server as if all its variables were set.
pub(crate) fn check(name: &str, entry: &Value) -> Result<(), String> {
    // This value is valid for every field.
    let env = |_: &str| Some("http://localhost".to_owned());
    match server(name, entry, Path::new(""), &env) {
        Ok(_) | Err(ServerIssue::Off) => Ok(()),
        Err(ServerIssue::Wrong(why) | ServerIssue::Unusable(why)) => Err(why),
    }
}

/// One server.
fn server(
    name: &str,
    entry: &Value,
    folder: &Path,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<ServerConfig, ServerIssue> {
    is_name(name)?;
    if entry.get("disabled").and_then(Value::as_bool) == Some(true) {
        return Err(ServerIssue::Off);
    }
    check_variables(entry, env).map_err(ServerIssue::Unusable)?;
    let text = |key: &str| match entry.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => expand(text, env).map(Some),
        Some(other) => Err(format!("`{key}` must be text, found {}", other.kind())),
    };
    let kind = text("type")?;
    if kind.as_deref() == Some("sse") {
        let why = "the old transport `sse` is not supported; use `http`";
        return Err(ServerIssue::Unusable(why.to_owned()));
    }
    let reach = match (kind.as_deref(), text("command")?, text("url")?) {
        (None | Some("stdio"), Some(command), _) => {
            let cwd = text("cwd")?.map_or_else(|| folder.to_owned(), |cwd| folder.join(cwd));
            ServerTransport::Stdio(StdioConfig {
                command: program(command, &cwd),
                args: arguments(entry, env)?,
                env: texts(entry, "env", env)?,
                cwd: Some(cwd).filter(|cwd| !cwd.as_os_str().is_empty()),
            })
        }
        (None | Some("http" | "streamable-http" | "streamableHttp"), None, Some(url)) => {
            if !url.starts_with("http://") && !url.starts_with("https://") {
                return Err("`url` must begin with `http://` or `https://`".to_owned().into());
            }
            ServerTransport::Http(McpHttpConfig { url, headers: texts(entry, "headers", env)? })
        }
        (Some(kind), ..) if !["stdio", "http"].contains(&kind) => {
            return Err(format!("`type` is `stdio` or `http`, not `{kind}`").into());
        }
        _ => return Err("it needs a `command` or a `url`".to_owned().into()),
    };
    let identity = hex_digest(identity(entry).to_canonical_json().as_bytes()).into();
    Ok(ServerConfig { name: name.into(), reach, identity, timeout: timeout(entry)? })
}

/// Checks that every variable of a server is set; the error names those that are not.
fn check_variables(entry: &Value, env: &dyn Fn(&str) -> Option<String>) -> Result<(), String> {
    let mut names = Vec::new();
    for key in ["command", "args", "env", "cwd", "url", "headers"] {
        entry.get(key).into_iter().for_each(|value| unset(value, env, &mut names));
    }
    match &*names {
        [] => Ok(()),
        [name] => Err(format!("the environment variable `{name}` is not set")),
        names => Err(format!("the environment variables `{}` are not set", names.join("`, `"))),
    }
}

/// Collects the variables of a value that are not set.
fn unset<'a>(value: &'a Value, env: &dyn Fn(&str) -> Option<String>, names: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => {
            for name in expand::unset(text, env) {
                if !names.contains(&name) {
                    names.push(name);
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| unset(item, env, names)),
        Value::Object(members) => members.iter().for_each(|(_, value)| unset(value, env, names)),
        _ => {}
    }
}

fn arguments(entry: &Value, env: &dyn Fn(&str) -> Option<String>) -> Result<Vec<String>, String> {
    match entry.get("args") {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(args)) => args.iter().map(|arg| expand(&arg.to_string(), env)).collect(),
        Some(other) => Err(format!("`args` must be a list, found {}", other.kind())),
    }
}

fn texts(
    entry: &Value,
    key: &str,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<BTreeMap<String, String>, String> {
    let members = match entry.get(key) {
        None | Some(Value::Null) => return Ok(BTreeMap::new()),
        Some(Value::Object(members)) => members,
        Some(other) => return Err(format!("`{key}` must be an object, found {}", other.kind())),
    };
    members.iter().map(|(k, v)| Ok((k.to_string(), expand(&v.to_string(), env)?))).collect()
}

/// The fields that identify a server, as written: the values of its variables may change.
fn identity(entry: &Value) -> Value {
    let keys = ["command", "args", "url"];
    Value::object(keys.map(|key| (key, entry.get(key).cloned().unwrap_or(Value::Null))))
}

/// A duration, or a number of milliseconds, as other hosts write it.
fn timeout(entry: &Value) -> Result<Option<std::time::Duration>, String> {
    let millis = match entry.get("timeout") {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(text)) => segue_core::duration::parse_duration(text),
        Some(other) => other.as_u64(),
    };
    let millis = millis.ok_or("`timeout` is a duration, such as `30s`, or milliseconds")?;
    Ok(Some(std::time::Duration::from_millis(millis)))
}

/// Makes the path of a relative program absolute: systems differ in which directory they search it in.
fn program(command: String, cwd: &Path) -> String {
    let path = Path::new(&command);
    if path.is_relative() && path.components().count() > 1 && !cwd.as_os_str().is_empty() {
        let path = cwd.join(path);
        return std::path::absolute(&path).unwrap_or(path).display().to_string();
    }
    command
}

/// Checks the name of a server, which becomes the namespace of its tools.
pub(crate) fn is_name(name: &str) -> Result<(), String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    if name.is_empty() || name.len() > 64 || !name.bytes().all(plain) {
        return Err("its name may only have letters, digits, `_`, `-` and `.`".to_owned());
    }
    if TAKEN.iter().any(|taken| confusable_form(taken) == confusable_form(name)) {
        return Err(format!("the name `{name}` is reserved for other tools"));
    }
    Ok(())
}
