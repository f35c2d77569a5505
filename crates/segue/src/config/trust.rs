//! Which commands and servers of a configuration that was merely found may start, and whether its
//! model may be asked and its collector told of runs.
//!
//! Checking a stranger's repository must run nothing of theirs, nor send anything of ours to an
//! address of theirs. A configuration that its user named is trusted; one that was found in the
//! working directory starts nothing and asks nobody until its exact list of commands and servers, and
//! its model, have been allowed, by their hash. A project's `.mcp.json` is always found.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use segue_core::tool::hex_digest;
use segue_core::value::Value;

use super::{Config, Project, data_folder};

/// The lists of commands that were allowed.
#[derive(Debug, Default)]
pub struct Trust {
    file: Option<PathBuf>,
    hashes: BTreeSet<String>,
}

impl Trust {
    /// What was allowed before.
    pub fn load() -> Trust {
        let file = data_folder().map(|folder| folder.join("trusted"));
        let text = file.as_deref().and_then(|file| std::fs::read_to_string(file).ok());
        let hashes = text.unwrap_or_default().lines().map(ToOwned::to_owned).collect();
        Trust { file, hashes }
    }

    /// Whether the commands and servers of a configuration may start, its model be asked, and its
    /// collector be told of runs.
    pub fn allows(&self, config: &Config) -> bool {
        let nothing = config.commands.is_empty()
            && !has_servers(config)
            && config.llm.is_none()
            && config.traces.is_none();
        !config.discovered || nothing || self.hashes.contains(&hash(config))
    }

    /// Whether the servers of a project's `.mcp.json` may start.
    pub fn allows_project(&self, project: &Project) -> bool {
        let nothing = project.servers.is_empty() && project.unusable.is_empty();
        nothing || self.hashes.contains(&project_hash(project))
    }

    /// Allows the commands and servers that a configuration has now, and its project's.
    pub fn allow(&mut self, config: &Config) -> Result<(), String> {
        self.hashes.insert(hash(config));
        self.hashes.extend(config.project.as_ref().map(project_hash));
        let file = self.file.as_deref().ok_or("there is no data directory to remember it in")?;
        write(file, &self.hashes).map_err(|error| format!("{}: {error}", file.display()))
    }
}

fn write(file: &Path, hashes: &BTreeSet<String>) -> std::io::Result<()> {
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let lines: Vec<&str> = hashes.iter().map(String::as_str).collect();
    std::fs::write(file, lines.join("\n"))
}

/// Whether there are servers, those included that lack a variable today.
fn has_servers(config: &Config) -> bool {
    !config.servers.is_empty() || !config.unusable.is_empty()
}

/// The hash of where a configuration is and of every command and server in it, as written: a token
/// that is rotated changes nothing.
fn hash(config: &Config) -> String {
    let mut whole = vec![
        ("file", place(config.file.as_deref())),
        ("commands", config.commands_as_written.clone()),
    ];
    if has_servers(config) {
        whole.push(("servers", config.servers_as_written.clone()));
    }
    if config.llm.is_some() {
        whole.push(("llm", config.llm_as_written.clone()));
    }
    if config.traces.is_some() {
        whole.push(("observe", config.observe_as_written.clone()));
    }
    hex_digest(Value::object(whole).to_canonical_json().as_bytes())
}

fn project_hash(project: &Project) -> String {
    let whole = Value::object([
        ("file", place(Some(&project.file))),
        ("servers", project.as_written.clone()),
    ]);
    hex_digest(whole.to_canonical_json().as_bytes())
}

fn place(file: Option<&Path>) -> Value {
    let file = file.and_then(|file| file.canonicalize().ok());
    Value::from(file.unwrap_or_default().display().to_string())
}
