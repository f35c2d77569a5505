//! Reads the configuration for a command, and says what is wrong with it.

use std::path::Path;
use std::sync::Arc;

use segue_runtime::tools::redact::Secrets;

use super::{Exit, Global, print_error, print_status};
use crate::config::{self, Config, ConfigError, Loaded, StoreLocation, TrustFile, is_safe_part};
use crate::observe::log;
use crate::print::{TerminalStyle, display_path, render};

/// Loads the configuration, saying what is wrong with it.
pub(super) fn load_config(global: &Global) -> Result<Config, Exit> {
    taken(global, config::load(global.config.as_deref()))
}

/// The same for a command that only shows what it grants.
pub(super) fn load_config_as_written(global: &Global) -> Result<Config, Exit> {
    taken(global, config::load_as_written(global.config.as_deref()))
}

fn taken(global: &Global, loaded: Result<Loaded, ConfigError>) -> Result<Config, Exit> {
    match loaded {
        Ok(Loaded { mut config, source, diagnostics }) => {
            if let Some(source) = source
                && !global.quiet
            {
                diagnostics
                    .iter()
                    .for_each(|d| print_status(&render(d, &source, TerminalStyle::of_stderr())));
            }
            log::redact(Secrets::new(config.secrets.iter().cloned()));
            if !global.quiet && !TrustFile::load().allows(&config) {
                print_status(&untrusted_note(&config));
            }
            if let Some(store) = &global.store {
                match StoreLocation::parse(store, Path::new("")) {
                    Ok(store) => config.store = store,
                    Err(message) => {
                        print_error(&message, None);
                        return Err(Exit::Usage);
                    }
                }
            }
            Ok(config)
        }
        Err(ConfigError::Unreadable { file, reason }) => {
            print_error(&format!("cannot read `{}`: {reason}", display_path(&file)), None);
            Err(Exit::Usage)
        }
        Err(ConfigError::Wrong { source, diagnostics }) => {
            diagnostics
                .iter()
                .for_each(|d| print_status(&render(d, &source, TerminalStyle::of_stderr())));
            Err(Exit::Usage)
        }
    }
}

/// Says what of a found configuration has no effect yet.
fn untrusted_note(config: &Config) -> String {
    let file = config.file.as_deref().unwrap_or(Path::new("segue.yaml"));
    let part = |part: &Arc<str>| match &**part {
        // Inside the working directory it needs no trust.
        "builtins" if config.files_root.is_some() => "`builtins` (except `files.root`)".to_owned(),
        part if is_safe_part(part) => format!("`${{…}}` in `{part}`"),
        part => format!("`{part}`"),
    };
    let parts: Vec<String> = config.grants.parts.iter().map(part).collect();
    let (parts, verb) = match &*parts {
        [before @ .., last] if !before.is_empty() => {
            (format!("{} and {last}", before.join(", ")), "have")
        }
        one => (one.concat(), "has"),
    };
    format!(
        "note: `{}` was found here and is not trusted, so {parts} {verb} no effect: read it, then run \
         `segue trust`",
        display_path(file)
    )
}
