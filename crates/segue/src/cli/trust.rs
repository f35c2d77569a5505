//! `segue trust`

use std::path::PathBuf;

use clap::Args;

use super::app::load_config;
use super::{Exit, Global, complain, say};
use crate::config::Trust;

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
    let Some(file) = &config.file else {
        complain("there is no configuration here", Some("`segue init` writes one"));
        return Exit::Usage;
    };
    if config.commands.is_empty() {
        say(&format!("`{}` has no commands; there is nothing to allow", file.display()));
        return Exit::Success;
    }
    for (name, command) in config.commands_as_written.as_object().into_iter().flat_map(|c| c.iter())
    {
        say(&format!(
            "  {name}: {}",
            command.get("argv").map(ToString::to_string).unwrap_or_default()
        ));
    }
    // Whoever names a file here speaks of it as found, so that it is allowed where it is found.
    let config = crate::config::Config { discovered: true, ..config.clone() };
    match Trust::load().allow(&config) {
        Ok(()) => {
            let count = config.commands.len();
            let plural = if count == 1 { "" } else { "s" };
            say(&format!(
                "{count} command{plural} of `{}` may start now, as written",
                file.display()
            ));
            Exit::Success
        }
        Err(message) => {
            complain(&message, None);
            Exit::Usage
        }
    }
}
