//! Which commands of a configuration that was merely found may start.
//!
//! Checking a stranger's repository must run nothing of theirs. A configuration that its user named
//! is trusted; one that was found in the working directory starts nothing until its exact list of
//! commands has been allowed, by its hash.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use segue_core::tool::hex_digest;
use segue_core::value::Value;

use super::{Config, data_folder};

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

    /// Whether the commands of a configuration may start.
    pub fn allows(&self, config: &Config) -> bool {
        !config.discovered || config.commands.is_empty() || self.hashes.contains(&hash(config))
    }

    /// Allows the commands that a configuration has now.
    pub fn allow(&mut self, config: &Config) -> Result<(), String> {
        self.hashes.insert(hash(config));
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

/// The hash of where a configuration is and of every command in it.
fn hash(config: &Config) -> String {
    let file = config.file.as_deref().and_then(|file| file.canonicalize().ok());
    let commands = config.commands.iter().map(|(name, command)| {
        let env =
            command.env.iter().map(|(name, value)| (name.as_str(), Value::from(value.as_str())));
        let cwd = command.cwd.as_ref().map(|cwd| cwd.display().to_string());
        let parts = Value::object([
            ("argv", Value::from(command.argv.clone())),
            ("env", Value::object(env.collect::<Vec<_>>())),
            ("cwd", cwd.map_or(Value::Null, Value::from)),
        ]);
        (name.as_str(), parts)
    });
    let whole = Value::object([
        ("file", Value::from(file.unwrap_or_default().display().to_string())),
        ("commands", Value::object(commands.collect::<Vec<_>>())),
    ]);
    hex_digest(whole.to_canonical_json().as_bytes())
}
