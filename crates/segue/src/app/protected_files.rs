//! The files that Segue's own file tools must not touch: configuration, keys, stores and programs.

use std::path::{Path, PathBuf};

use segue_core::value::Value;
use segue_runtime::tools::builtin::ProtectedFiles;
use segue_runtime::tools::mcp::ServerTransport;
use segue_runtime::tools::started_folder;

use super::configured_servers;
use crate::config::documents::absolute_pattern;
use crate::config::{Config, data_folder, user_config};

/// The files that decide what Segue may do, and those that hold its data.
pub(super) fn protected_files(config: &Config) -> ProtectedFiles {
    let project = config.project.as_ref().map(|project| project.file.clone());
    let key = config.server.tls.as_ref().map(|tls| tls.key.clone());
    let user = user_config().and_then(|file| file.parent().map(Path::to_owned));
    let folder = std::path::absolute(config.folder()).unwrap_or_else(|_| config.folder());
    let patterns = config.compositions.iter().chain(&config.templates);
    let patterns = patterns.filter_map(|pattern| pattern.expanded.as_deref());
    ProtectedFiles {
        private: config.file.clone().into_iter().chain(project).chain(key).collect(),
        folders: data_folder().into_iter().chain(user).chain(started_folder()).collect(),
        stores: config.store.checkpoint_file().into_iter().collect(),
        programs: programs(config),
        documents: patterns.map(|pattern| absolute_pattern(&folder, pattern)).collect(),
    }
}

/// Programs that are started by their path, and files among their arguments. A tool that could change
/// a script could have it run.
fn programs(config: &Config) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for command in config.commands.values() {
        let words = command.argv.iter().filter_map(Value::as_str);
        found.extend(words.filter_map(|word| file_of(word, command.cwd.as_deref())));
    }
    for (server, _) in configured_servers(config) {
        if let ServerTransport::Stdio(stdio) = &server.reach {
            let words = std::iter::once(&stdio.command).chain(&stdio.args);
            found.extend(words.filter_map(|word| file_of(word, stdio.cwd.as_deref())));
        }
    }
    found
}

fn file_of(word: &str, folder: Option<&Path>) -> Option<PathBuf> {
    let path = folder.unwrap_or(Path::new("")).join(word);
    // A path without a file counts, too: a tool could write a program there.
    let is_path = word.contains('/') && !word.contains("{{") && !path.is_dir();
    (is_path || path.is_file()).then_some(path)
}
