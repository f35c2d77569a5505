//! `segue trust`

use std::path::{Path, PathBuf};

use clap::Args;
use segue_core::value::Value;

use super::load::load_config_as_written;
use super::{Exit, Global, print_data, print_error, print_json, print_status};
use crate::config::{Config, OverwriteList, TrustFile, TrustStatus, mask_value};
use crate::print::{display_path, escape_control};

/// Allow what a configuration that was found here grants
#[derive(Args, Debug)]
pub(super) struct TrustArgs {
    /// The configuration [default: segue.yaml here or above]
    file: Option<PathBuf>,
    /// List the configurations that are trusted
    #[arg(long, conflicts_with_all = ["file", "forget"])]
    list: bool,
    /// Trust the configuration no longer
    #[arg(long)]
    forget: bool,
}

pub(super) fn trust(global: &Global, args: &TrustArgs) -> Exit {
    if args.list {
        return list(global);
    }
    let mut global = global.clone();
    global.config = args.file.clone().or(global.config);
    // What is said of a configuration that is not trusted yet is said here in full.
    let loaded = load_config_as_written(&Global { quiet: true, ..global });
    let config = match loaded {
        Ok(config) => config,
        // What cannot be read can still be forgotten.
        Err(_) if args.forget && args.file.is_some() => Config::default(),
        Err(exit) => return exit,
    };
    let named = args.file.as_deref().or(config.file.as_deref());
    let project = config.project.as_ref().map(|project| project.file.as_path());
    let files: Vec<&Path> = named.into_iter().chain(project).collect();
    let Some(file) = files.first() else {
        print_error("there is no configuration here", Some("`segue init` writes one"));
        return Exit::Usage;
    };
    if args.forget {
        return forget(&files);
    }
    let notes: Vec<&String> = config.project.iter().flat_map(|project| &project.notes).collect();
    notes.iter().for_each(|note| print_error(&escape_control(note), None));
    let lists = config.file.as_deref().map(OverwriteList::all).unwrap_or_default();
    let granted = shown(&config, &lists);
    if granted.is_empty() && !notes.is_empty() {
        return Exit::Usage;
    }
    granted.iter().for_each(|line| print_status(&format!("  {}", escape_control(line))));
    // Whoever names a file here speaks of it as found, so that it is allowed where it is found.
    match TrustFile::allow(&config, &lists) {
        Ok(()) => {
            let granted = counted(&config, &lists);
            let what = if granted.is_empty() { "it grants nothing of its own" } else { &granted };
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

/// A line for everything that is granted, without secrets.
fn shown(config: &Config, lists: &[OverwriteList]) -> Vec<String> {
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
        lines.extend(servers.map(|(name, it)| format!(".mcp.json.{name}: {}", it.to_json())));
    }
    let folder = config.folder();
    lines.extend(lists.iter().map(|OverwriteList { file, patterns }| {
        let file = file.strip_prefix(&folder).unwrap_or(file);
        let patterns = Value::from(patterns.iter().cloned().map(Value::from).collect::<Vec<_>>());
        format!("overwrites of {}: {}", display_path(file), patterns.to_json())
    }));
    lines
}

/// What is granted, in short.
fn counted(config: &Config, lists: &[OverwriteList]) -> String {
    let unusable = config.project.iter().map(|project| project.unusable.len()).sum::<usize>();
    let servers = super::upstream::configured(config).len() + config.unusable.len() + unusable;
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
    let word = |standing| match standing {
        TrustStatus::Trusted => "trusted",
        TrustStatus::Changed => "changed since",
        TrustStatus::Gone => "gone",
    };
    if global.is_json() {
        let files = trust.list().into_iter().map(|(file, standing)| {
            serde_json::json!({ "file": file.display().to_string(), "state": word(standing) })
        });
        print_json(global, &serde_json::json!({ "trusted": files.collect::<Vec<_>>() }));
        return Exit::Success;
    }
    for (file, standing) in trust.list() {
        print_data(&format!("{:<14} {}", word(standing), display_path(file)));
    }
    Exit::Success
}

fn forget(files: &[&Path]) -> Exit {
    match TrustFile::revoke(files) {
        Ok(forgotten) if forgotten.is_empty() => {
            print_status(&format!("`{}` was not trusted", display_path(files[0])));
            Exit::Success
        }
        Ok(forgotten) => {
            for file in forgotten {
                print_status(&format!("`{}` is not trusted any more", display_path(&file)));
            }
            Exit::Success
        }
        Err(message) => failed(&message),
    }
}
