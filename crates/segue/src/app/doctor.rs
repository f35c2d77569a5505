//! Checks of an installation that start no server: configuration, data folder, compositions, commands.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use segue_runtime::tools::redact::Secrets;

use super::App;
use crate::api::installation::Check;
use crate::config::documents::empty_patterns;
use crate::config::tokens::{TOKEN_CHARS_MIN, TOO_SHORT};
use crate::config::{Config, TrustFile, data_folder};
use crate::print::display_path;

/// Checks whose results do not change until the configuration does.
pub(crate) fn checks(app: &App) -> Vec<Check> {
    let version = format!("segue {}", env!("CARGO_PKG_VERSION"));
    let mut findings =
        vec![Check::good("version", version), configuration(app), data(), compositions(app)];
    let help = "a pattern begins at the folder of the configuration; `**` stands for folders";
    let patterns = empty_patterns(&app.config).into_iter();
    findings.extend(patterns.map(|message| Check::bad("pattern", message, help)));
    findings.extend(server(&app.config));
    findings.extend(commands(app));
    findings
}

fn configuration(app: &App) -> Check {
    match &app.config.file {
        Some(file) => Check::good("configuration", display_path(file)),
        None => Check::good("configuration", "none; `segue init` writes one"),
    }
}

fn data() -> Check {
    let Some(folder) = data_folder() else {
        let help = "set HOME or XDG_DATA_HOME";
        return Check::bad("data", "there is no data directory", help);
    };
    match probe(&folder) {
        Ok(()) => Check::good("data", folder.display().to_string()),
        Err(error) => {
            let message = format!("`{}` cannot be written: {error}", folder.display());
            Check::bad("data", message, "make it writable, or use `--store`")
        }
    }
}

/// Checks that files can be written to a folder.
fn probe(folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let file = folder.join(format!(".probe-{}", std::process::id()));
    std::fs::write(&file, "")?;
    std::fs::remove_file(file)
}

fn compositions(app: &App) -> Check {
    if app.not_loaded().is_empty() {
        let tools = app.engine.catalog().tools();
        let count = tools.filter(|tool| tool.composition.is_some()).count();
        return Check::good("compositions", format!("{count} loaded"));
    }
    let names: Vec<String> = app.not_loaded().iter().map(|u| u.source.name().to_string()).collect();
    let message = format!("{} could not be loaded", names.join(", "));
    Check::bad("compositions", message, format!("segue check {}", names.join(" ")))
}

/// What `segue serve` would refuse or warn about.
fn server(config: &Config) -> Vec<Check> {
    let exposed = would_be_exposed(config).then(|| Check::note("server", EXPOSED.0, EXPOSED.1));
    let guessable = is_guessable(config)
        .then(|| Check::bad("server", format!("`server.token`: {}", TOO_SHORT.0), TOO_SHORT.1));
    exposed.into_iter().chain(guessable).collect()
}

fn commands(app: &App) -> Vec<Check> {
    let mut findings = Vec::new();
    if !TrustFile::load().allows(&app.config) {
        let message = "this configuration was found here and is not trusted yet";
        findings.push(Check::bad("trust", message, "read it, then run `segue trust`"));
    }
    let secrets = Secrets::new(app.config.secrets.iter().cloned());
    for (name, command) in &app.config.commands {
        let program = command.argv.first().map(ToString::to_string).unwrap_or_default();
        // The variables of an untrusted configuration are not expanded.
        if !program.contains("${") && !is_program(&program) {
            let program = secrets.redact(&program);
            let message = format!("`{name}` starts `{program}`, which is not installed");
            findings.push(Check::bad("command", message, format!("install `{program}`")));
        }
    }
    findings
}

pub(crate) fn is_program(program: &str) -> bool {
    if program.contains('/') {
        return Path::new(program).is_file();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// The warning about a server that other machines can reach without encryption.
pub(crate) const EXPOSED: (&str, &str) = (
    "other machines can reach this server without TLS: tokens and values travel unencrypted",
    "set `server.tls`, or listen on 127.0.0.1 behind a proxy that encrypts",
);

/// Whether other machines can reach this address without encryption.
pub(crate) fn is_exposed(at: SocketAddr, config: &Config) -> bool {
    !at.ip().is_loopback() && config.server.tls.is_none()
}

/// Whether the configured address would be exposed.
pub(crate) fn would_be_exposed(config: &Config) -> bool {
    let at = config.server.listen.as_deref().and_then(address);
    at.is_some_and(|at| is_exposed(at, config))
}

/// Whether the configured token could be guessed.
pub(crate) fn is_guessable(config: &Config) -> bool {
    let token = config.server.token.as_ref();
    token.is_some_and(|token| token.chars().count() < TOKEN_CHARS_MIN)
}

/// Parses an address. `localhost` is the only name: others would need a lookup.
pub(crate) fn address(listen: &str) -> Option<SocketAddr> {
    let port = listen.strip_prefix("localhost:").and_then(|port| port.parse().ok());
    let here = port.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    listen.parse().ok().or(here)
}
