//! Loads the configuration for a command, and prints the notes about it.

use std::path::Path;
use std::sync::Arc;

use segue_runtime::tools::redact::Secrets;

use super::{AppError, AppOptions};
use crate::config::documents::default_patterns;
use crate::config::{
    self, Config, ConfigError, IgnoredProject, Loaded, StoreLocation, TrustFile, is_safe_part,
};
use crate::observe::log;
use crate::print::{display_path, escape_control, print_finding, print_note};

/// Loads the configuration.
pub(crate) fn load_config(options: &AppOptions) -> Result<Config, AppError> {
    accept(options, config::load_in(options.folder.as_deref(), options.config.as_deref())?)
}

/// Loads the configuration for a command that only shows its grants: no variable is expanded.
pub(crate) fn load_config_as_written(options: &AppOptions) -> Result<Config, AppError> {
    accept(options, config::load_as_written(options.config.as_deref())?)
}

/// Prints warnings, hides the configuration's secrets from the log, and applies `--store`.
fn accept(options: &AppOptions, loaded: Loaded) -> Result<Config, AppError> {
    let Loaded { mut config, source, diagnostics } = loaded;
    if let Some(source) = source.as_ref().filter(|_| !options.quiet) {
        diagnostics.iter().for_each(|finding| print_finding(finding, source));
    }
    let file = config.file.as_deref().unwrap_or(Path::new(""));
    log::redact(&file.to_string_lossy(), Secrets::new(config.secrets.iter().cloned()));
    if !options.quiet && !TrustFile::load().allows(&config) {
        print_note(&untrusted_note(&config));
    }
    if let Some(ignored) = config.ignored_project.as_ref().filter(|_| !options.quiet) {
        print_note(&ignored_note(ignored));
    }
    if let Some(store) = &options.store {
        config.store = StoreLocation::parse(store, Path::new(""))?;
    }
    if let (Some(finding), Some(source)) = (config.driver_finding(), source) {
        return Err(ConfigError::Wrong { source, diagnostics: vec![finding] }.into());
    }
    if options.finds_compositions && config.compositions.is_empty() {
        config.compositions = default_patterns(&config);
        config.has_found_compositions = true;
    }
    Ok(config)
}

/// The note about a `.mcp.json` that is not read. A person who names a configuration may expect it.
fn ignored_note(IgnoredProject { file, servers }: &IgnoredProject) -> String {
    let file = display_path(file);
    let servers: Vec<String> = servers.iter().map(|name| format!("`{name}`")).collect();
    let servers = escape_control(&servers.join(", ")).replace('\n', "\\n");
    format!(
        "`{file}` is not read, because the configuration was named; without {servers} of it: copy \
         what you need into `mcpServers`, as `segue init --from {file}` does"
    )
}

/// The note about the parts of an untrusted configuration that have no effect yet.
pub(super) fn untrusted_note(config: &Config) -> String {
    let file = config.file.as_deref().unwrap_or(Path::new("segue.yaml"));
    let part = |part: &Arc<str>| match &**part {
        // A root inside the working directory needs no trust.
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
        "`{}` was found here and is not trusted, so {parts} {verb} no effect: read it, then run \
         `segue trust`",
        display_path(file)
    )
}
