//! `segue trust`

use std::path::{Path, PathBuf};

use clap::Args;
use segue_core::value::Value;

use super::{Exit, Global, print_json, report};
use crate::app::{AppOptions, configured_servers, load_config_as_written};
use crate::config::{Config, OverwriteList, TrustFile, TrustStatus, mask_value};
use crate::print::{display_path, escape_control, print_data, print_error, print_status};

/// Trust the configuration of this folder, so that its commands and servers may run
///
/// Prints what the configuration grants. Trust covers its current text: a change needs trust again.
#[derive(Args, Debug)]
pub(super) struct TrustArgs {
    /// The configuration file [default: segue.yaml in this folder or a parent]
    file: Option<PathBuf>,
    /// List the trusted configurations
    #[arg(long, conflicts_with_all = ["file", "forget"])]
    list: bool,
    /// Revoke trust in the configuration
    #[arg(long)]
    forget: bool,
}

pub(super) fn trust(global: &Global, args: &TrustArgs) -> Exit {
    if args.list {
        return list(global);
    }
    let mut options = global.options();
    options.config = args.file.clone().or(options.config);
    // Quiet, because this command itself prints what the configuration grants.
    let config = match load_config_as_written(&AppOptions { quiet: true, ..options }) {
        Ok(config) => config,
        Err(error) => {
            let exit = report(&error);
            // Trust in a file that cannot be read can still be revoked.
            if !args.forget || args.file.is_none() {
                return exit;
            }
            Config::default()
        }
    };
    let named = args.file.as_deref().or(config.file.as_deref());
    let project = config.project.as_ref().map(|project| project.file.as_path());
    let files: Vec<&Path> = named.into_iter().chain(project).collect();
    let Some(file) = files.first() else {
        print_error("there is no configuration here", Some("`segue init` writes one"));
        return Exit::Usage;
    };
    if args.forget {
        return revoke(&files);
    }
    let notes: Vec<&String> = config.project.iter().flat_map(|project| &project.notes).collect();
    notes.iter().for_each(|note| print_error(&escape_control(note), None));
    let lists = config.file.as_deref().map(OverwriteList::all).unwrap_or_default();
    let granted = grant_lines(&config, &lists);
    if granted.is_empty() && !notes.is_empty() {
        return Exit::Usage;
    }
    granted.iter().for_each(|line| print_status(&format!("  {}", escape_control(line))));
    // Also for a named file: trust matters where the file is found without being named.
    match TrustFile::allow(&config, &lists) {
        Ok(()) => {
            let granted = summary(&config, &lists);
            let what = if granted.is_empty() { "it grants nothing" } else { &granted };
            print_status(&format!("`{}` is trusted now, as written: {what}", display_path(file)));
            Exit::Success
        }
        Err(message) => failed(&message),
    }
}

fn failed(message: &str) -> Exit {
    print_error(message, None);
    Exit::Usage
}

/// One line per grant, without secrets.
fn grant_lines(config: &Config, lists: &[OverwriteList]) -> Vec<String> {
    let mut lines = Vec::new();
    for (part, value) in config.grants.visible_parts() {
        let value = mask_value(part, value);
        match value.as_object() {
            Some(members) => {
                let line = |(name, it): (_, &Value)| format!("{part}.{name}: {}", it.to_json());
                lines.extend(members.iter().map(line));
            }
            None => lines.push(format!("{part}: {}", value.to_json())),
        }
    }
    if let Some(project) = &config.project {
        let servers = mask_value("mcpServers", &project.as_written);
        let servers = servers.as_object().into_iter().flat_map(|servers| servers.iter());
        lines.extend(servers.map(|(name, it)| {
            let is_shadowed =
                config.servers.contains_key(name) || config.unusable.contains_key(name);
            let shadowed = if is_shadowed { " (not used: `segue.yaml` has it too)" } else { "" };
            format!(".mcp.json.{name}: {}{shadowed}", it.to_json())
        }));
    }
    let folder = config.folder();
    lines.extend(lists.iter().map(|OverwriteList { file, patterns }| {
        let file = file.strip_prefix(&folder).unwrap_or(file);
        let patterns = Value::from(patterns.iter().cloned().map(Value::from).collect::<Vec<_>>());
        format!("overwrites of {}: {}", display_path(file), patterns.to_json())
    }));
    lines
}

/// The grants in one line.
fn summary(config: &Config, lists: &[OverwriteList]) -> String {
    let unusable = config.project.iter().map(|project| project.unusable.len()).sum::<usize>();
    let servers = configured_servers(config).len() + config.unusable.len() + unusable;
    let counts = [("command", config.commands.len()), ("server", servers)];
    let counts = counts.into_iter().filter(|(_, count)| *count > 0);
    let counts =
        counts.map(|(what, count)| format!("{count} {what}{}", if count == 1 { "" } else { "s" }));
    let is_other = |part: &&str| !matches!(*part, "commands" | "mcpServers" | "servers");
    let others = config.grants.parts.iter().map(|part| &**part).filter(is_other);
    let overwrites = match lists.len() {
        0 => None,
        1 => Some("`overwrites` of 1 composition".to_owned()),
        count => Some(format!("`overwrites` of {count} compositions")),
    };
    let others = others.map(|part| format!("`{part}`")).chain(overwrites);
    counts.chain(others).collect::<Vec<_>>().join(", ")
}

fn list(global: &Global) -> Exit {
    let trust = TrustFile::load();
    let word = |status| match status {
        TrustStatus::Trusted => "trusted",
        TrustStatus::Changed => "changed since",
        TrustStatus::Gone => "gone",
    };
    if global.is_json() {
        let files = trust.list().into_iter().map(|(file, status)| {
            serde_json::json!({ "file": file.display().to_string(), "state": word(status) })
        });
        print_json(global, &serde_json::json!({ "trusted": files.collect::<Vec<_>>() }));
        return Exit::Success;
    }
    for (file, status) in trust.list() {
        print_data(&format!("{:<14} {}", word(status), display_path(file)));
    }
    Exit::Success
}

fn revoke(files: &[&Path]) -> Exit {
    match TrustFile::revoke(files) {
        Ok(revoked) if revoked.is_empty() => {
            print_status(&format!("`{}` was not trusted", display_path(files[0])));
            Exit::Success
        }
        Ok(revoked) => {
            for file in revoked {
                print_status(&format!("`{}` is not trusted any more", display_path(&file)));
            }
            Exit::Success
        }
        Err(message) => failed(&message),
    }
}
