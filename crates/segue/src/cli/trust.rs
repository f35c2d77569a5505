//! `segue trust`

use std::path::PathBuf;

use clap::Args;
use segue_core::value::Value;

use super::app::load_config;
use super::{Exit, Global, complain, say};
use crate::config::Trust;
use crate::print::clean;

/// Allow the commands of a configuration that was found here
#[derive(Args, Debug)]
pub(super) struct TrustArgs {
    /// The configuration [default: segue.yaml here or above]
    file: Option<PathBuf>,
}

pub(super) fn trust(global: &Global, args: &TrustArgs) -> Exit {
    let mut global = global.clone();
    global.config = args.file.clone().or(global.config);
    let config = match load_config(&global) {
        Ok(config) => config,
        Err(exit) => return exit,
    };
    let file =
        config.file.as_ref().or_else(|| config.project.as_ref().map(|project| &project.file));
    let Some(file) = file else {
        complain("there is no configuration here", Some("`segue init` writes one"));
        return Exit::Usage;
    };
    let notes = config.project.iter().flat_map(|project| &project.notes);
    let notes: Vec<&String> = notes.collect();
    notes.iter().for_each(|note| complain(&clean(note), None));
    let unusable = config.project.iter().map(|project| project.unusable.len()).sum::<usize>();
    let servers = super::upstream::configured(&config).len() + config.unusable.len() + unusable;
    let count = config.commands.len() + servers;
    if count == 0 && config.llm.is_none() && config.traces.is_none() {
        if !notes.is_empty() {
            return Exit::Usage;
        }
        let what =
            "has no commands, no servers, no model and no collector; there is nothing to allow";
        say(&format!("`{}` {what}", file.display()));
        return Exit::Success;
    }
    let members = |value: &Value| value.as_object().cloned().unwrap_or_default();
    for (name, command) in members(&config.commands_as_written).iter() {
        let argv = command.get("argv").map(ToString::to_string).unwrap_or_default();
        say(&format!("  {name}: {}", clean(&argv)));
    }
    let project = config.project.as_ref().map(|project| members(&project.as_written));
    for (name, server) in
        members(&config.servers_as_written).iter().chain(project.iter().flat_map(|p| p.iter()))
    {
        let shown = ["command", "args", "url", "env", "headers"].map(|key| server.get(key));
        let shown: Vec<String> = shown.into_iter().flatten().map(ToString::to_string).collect();
        say(&format!("  {name}: {}", clean(&shown.join(" "))));
    }
    if config.llm.is_some() {
        let shown = ["provider", "base_url", "model", "api_key"];
        let shown = shown.map(|key| config.llm_as_written.get(key));
        let shown: Vec<String> = shown.into_iter().flatten().map(ToString::to_string).collect();
        say(&format!("  llm: {}", clean(&shown.join(" "))));
    }
    if config.traces.is_some() {
        say(&format!("  observe: {}", clean(&config.observe_as_written.to_json())));
    }
    // Whoever names a file here speaks of it as found, so that it is allowed where it is found.
    let found = crate::config::Config { discovered: true, ..config.clone() };
    match Trust::load().allow(&found) {
        Ok(()) => {
            let plural = if count == 1 { "" } else { "s" };
            let what = if servers == 0 { "command" } else { "command and server" };
            let what = if config.commands.is_empty() { "server" } else { what };
            if count > 0 {
                let file = file.display();
                say(&format!("{count} {what}{plural} of `{file}` may start now, as written"));
            }
            if config.llm.is_some() {
                say(&format!("the model of `{}` may be asked now, as written", file.display()));
            }
            Exit::Success
        }
        Err(message) => {
            complain(&message, None);
            Exit::Usage
        }
    }
}
