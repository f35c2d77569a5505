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

/// The hash of where a configuration is and of every command in it, as written: a token that is
/// rotated changes nothing.
fn hash(config: &Config) -> String {
    let file = config.file.as_deref().and_then(|file| file.canonicalize().ok());
    let whole = Value::object([
        ("file", Value::from(file.unwrap_or_default().display().to_string())),
        ("commands", config.commands_as_written.clone()),
    ]);
    hex_digest(whole.to_canonical_json().as_bytes())
}
