//! `segue doctor`

use std::path::Path;
use std::time::Duration;

use clap::Args;
use segue_runtime::store::{JournalStore as _, RunHistory as _, SqliteOptions, SqliteStore};
use segue_runtime::tools::mcp::{Listing, NO_MESSAGES, ServerTransport, ServerUnavailable};
use segue_runtime::tools::redact::Secrets;
use serde::Serialize;

use super::run_actions::SET_ASIDE_HELP;
use super::serve::{EXPOSED, is_guessable, would_be_exposed};
use super::{Exit, Global, print_json, report};
use crate::app::{App, ServerSelection, configured_servers};
use crate::config::documents::empty_patterns;
use crate::config::tokens::TOO_SHORT;
use crate::config::{Config, TrustFile, data_folder};
use crate::print::{display_path, escape_control, print_data};

/// Check this installation, its configuration and its MCP servers
///
/// Starts every configured server, and prints one line per check: `ok`, `note` or `WRONG`.
#[derive(Args, Debug)]
pub(super) struct DoctorArgs {}

/// The result of one check.
#[derive(Serialize)]
struct Finding {
    what: &'static str,
    ok: bool,
    message: String,
    help: Option<String>,
}

impl Finding {
    fn good(what: &'static str, message: impl Into<String>) -> Finding {
        Finding { what, ok: true, message: message.into(), help: None }
    }

    /// A check that passed, with a remark.
    fn note(what: &'static str, message: impl Into<String>, help: impl Into<String>) -> Finding {
        Finding { ok: true, ..Finding::bad(what, message, help) }
    }

    fn bad(what: &'static str, message: impl Into<String>, help: impl Into<String>) -> Finding {
        Finding { what, ok: false, message: message.into(), help: Some(help.into()) }
    }
}

pub(super) fn doctor(global: &Global, _args: &DoctorArgs) -> Exit {
    // The servers are started below, all at once and with a shorter timeout.
    let bounded = |config: &mut Config| {
        let start_ms = u64::try_from(SERVER_MAX.as_millis()).unwrap_or(u64::MAX);
        config.limits.mcp_start_ms = config.limits.mcp_start_ms.min(start_ms);
    };
    let app = match App::open_with(&global.options(), &ServerSelection::Recorded, bounded) {
        Ok(app) => app,
        Err(error) => return report(&error),
    };
    let mut findings = vec![
        Finding::good("version", format!("segue {}", env!("CARGO_PKG_VERSION"))),
        configuration(&app),
        data(),
        store(&app),
        tools(&app),
        compositions(&app),
    ];
    let help = "a pattern begins at the folder of the configuration; `**` stands for folders";
    let patterns = empty_patterns(&app.config).into_iter();
    findings.extend(patterns.map(|message| Finding::bad("pattern", message, help)));
    findings.extend(server(&app.config));
    findings.extend(commands(&app));
    findings.extend(servers(&app));
    let ok = findings.iter().all(|finding| finding.ok);
    if global.is_json() {
        print_json(global, &serde_json::json!({ "ok": ok, "findings": findings }));
    } else {
        for Finding { what, ok, message, help } in &findings {
            let mark = match (ok, help) {
                (true, None) => "ok   ",
                (true, Some(_)) => "note ",
                (false, _) => "WRONG",
            };
            print_data(&format!("{mark}  {what:<14} {}", escape_control(message)));
            if let Some(help) = help {
                print_data(&format!("       {:<14} {}", "", escape_control(help)));
            }
        }
    }
    if ok { Exit::Success } else { Exit::Usage }
}

fn configuration(app: &App) -> Finding {
    match &app.config.file {
        Some(file) => Finding::good("configuration", display_path(file)),
        None => Finding::good("configuration", "none; `segue init` writes one"),
    }
}

fn data() -> Finding {
    let Some(folder) = data_folder() else {
        let help = "set HOME or XDG_DATA_HOME";
        return Finding::bad("data", "there is no data directory", help);
    };
    match probe(&folder) {
        Ok(()) => Finding::good("data", folder.display().to_string()),
        Err(error) => {
            let message = format!("`{}` cannot be written: {error}", folder.display());
            Finding::bad("data", message, "make it writable, or use `--store`")
        }
    }
}

/// Checks that the store can be written and that no run is damaged or set aside.
fn store(app: &App) -> Finding {
    let Some(file) = app.config.store.file().filter(|file| file.exists()) else {
        return Finding::good("store", "there is none yet");
    };
    let opened = SqliteStore::open(&file, SqliteOptions::default());
    let checked = opened.and_then(|store| {
        app.runtime().block_on(async {
            store.try_write().await?;
            let unfinished = store.unfinished().await?.runs;
            let aside: Vec<_> =
                unfinished.into_iter().filter(|run| run.set_aside.is_some()).collect();
            Ok((store.list_damaged().await?, aside))
        })
    });
    let named = format!("`{}`", file.display());
    match checked {
        Ok((damaged, aside)) if damaged.is_empty() && !aside.is_empty() => {
            let ids: Vec<&str> = aside.iter().map(|run| &*run.run_id).collect();
            let message = format!("{named}: set aside: {}", ids.join(", "));
            Finding::bad("store", message, SET_ASIDE_HELP)
        }
        Ok((damaged, _)) if damaged.is_empty() => Finding::good("store", named),
        Ok((damaged, _)) => {
            let first = damaged[0].to_string();
            let more = damaged.len() - 1;
            let more = if more > 0 { format!("; and {more} more") } else { String::new() };
            let help = "other runs are not affected; `segue runs prune --damaged` deletes them";
            Finding::bad("store", format!("{named}: {}{more}", escape_control(&first)), help)
        }
        Err(error) => {
            let help = "`--store sqlite:FILE` names another file";
            Finding::bad("store", format!("{named}: {}", escape_control(&error.to_string())), help)
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

fn tools(app: &App) -> Finding {
    let count = app.engine.catalog().tools().count();
    let broken: Vec<String> = app
        .engine
        .catalog()
        .tools()
        .filter(|tool| tool.input.check().is_err())
        .map(|tool| tool.id.to_string())
        .collect();
    if broken.is_empty() {
        return Finding::good("tools", format!("{count} available"));
    }
    let message = format!("the input schema of {} is wrong", broken.join(", "));
    Finding::bad("tools", message, "correct `input` in the configuration")
}

fn compositions(app: &App) -> Finding {
    if app.not_loaded().is_empty() {
        let tools = app.engine.catalog().tools();
        let count = tools.filter(|tool| tool.composition.is_some()).count();
        return Finding::good("compositions", format!("{count} loaded"));
    }
    let names: Vec<String> = app.not_loaded().iter().map(|u| u.source.name().to_string()).collect();
    let message = format!("{} could not be loaded", names.join(", "));
    Finding::bad("compositions", message, format!("segue check {}", names.join(" ")))
}

/// What `segue serve` would refuse or warn about.
fn server(config: &Config) -> Vec<Finding> {
    let exposed = would_be_exposed(config).then(|| Finding::note("server", EXPOSED.0, EXPOSED.1));
    let guessable = is_guessable(config)
        .then(|| Finding::bad("server", format!("`server.token`: {}", TOO_SHORT.0), TOO_SHORT.1));
    exposed.into_iter().chain(guessable).collect()
}

fn commands(app: &App) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !TrustFile::load().allows(&app.config) {
        let message = "this configuration was found here and is not trusted yet";
        findings.push(Finding::bad("trust", message, "read it, then run `segue trust`"));
    }
    let secrets = Secrets::new(app.config.secrets.iter().cloned());
    for (name, command) in &app.config.commands {
        let program = command.argv.first().map(ToString::to_string).unwrap_or_default();
        // The variables of an untrusted configuration are not expanded.
        if !program.contains("${") && !is_program(&program) {
            let program = secrets.redact(&program);
            let message = format!("`{name}` starts `{program}`, which is not installed");
            findings.push(Finding::bad("command", message, format!("install `{program}`")));
        }
    }
    findings
}

/// After how long a server counts as slow, and when the check gives up.
const SLOW: Duration = Duration::from_secs(3);
const SERVER_MAX: Duration = Duration::from_secs(10);

/// Starts every trusted server, all at once, and checks its tools.
fn servers(app: &App) -> Vec<Finding> {
    let mut findings = Vec::new();
    let project = app.config.project.as_ref();
    if let Some(project) = project {
        if !TrustFile::load().allows_project(project) {
            let message =
                format!("the servers of `{}` are not trusted yet", display_path(&project.file));
            findings.push(Finding::bad("trust", message, "read it, then run `segue trust`"));
        }
        let help = format!("correct `{}`", display_path(&project.file));
        findings.extend(project.notes.iter().map(|note| Finding::bad("server", note, &help)));
    }
    for (name, why) in &app.upstream.failed {
        if app.upstream.servers().all(|server| server.name() != name) {
            let message = format!("`{name}` cannot be used: {}", escape_control(why));
            let help = "set the missing variable, or correct its configuration";
            findings.push(Finding::bad("server", message, help));
        }
    }
    let mut usable = Vec::new();
    for server in app.upstream.servers() {
        if !app.upstream.failed.contains_key(server.name()) {
            usable.push(server.clone());
        }
    }
    if usable.is_empty() {
        return findings;
    }
    let answers = app.runtime().block_on(async {
        let tasks: Vec<_> = usable
            .into_iter()
            .map(|server| {
                tokio::spawn(async move {
                    let started = std::time::Instant::now();
                    let listing = server.listing().await;
                    (server.name().clone(), listing, started.elapsed())
                })
            })
            .collect();
        let mut answers = Vec::new();
        for task in tasks {
            answers.extend(task.await);
        }
        answers
    });
    for (name, listing, time) in answers {
        findings.push(match &listing {
            Ok(listing) => good(&name, listing, time),
            Err(unusable) => bad(&app.config, &name, unusable, time),
        });
        findings.extend(
            listing.iter().flat_map(|listing| unknown_overrides(&app.config, &name, listing)),
        );
    }
    findings
}

/// A server that has listed its tools.
fn good(name: &str, listing: &Listing, time: Duration) -> Finding {
    let mut message = format!("`{name}` works: {} tools", listing.tools.len());
    if time > SLOW {
        message = format!("`{name}` works, but is slow ({} s)", time.as_secs());
    }
    for note in &listing.notes {
        message = format!("{message}; {note}");
    }
    Finding::good("server", message)
}

/// Overrides in `tools` for tools that a server does not have.
fn unknown_overrides(config: &Config, name: &str, listing: &Listing) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (tool, known) in &config.tools {
        let short = tool.strip_prefix(name).and_then(|rest| rest.strip_prefix(':'));
        if short.is_some_and(|short| listing.names().all(|listed| listed != short)) {
            let message = format!("`tools` names `{tool}`, which does not exist");
            findings.push(Finding::bad("tools", message, format!("correct {}", known.place)));
        }
    }
    findings
}

/// A server that cannot be used.
fn bad(config: &Config, name: &str, unusable: &ServerUnavailable, time: Duration) -> Finding {
    let configured = configured_servers(config);
    let reach = configured.iter().find(|(server, _)| &*server.name == name).map(|(s, _)| &s.reach);
    let secrets = Secrets::new(config.secrets.iter().cloned());
    let why = escape_control(&unusable.why);
    let broken = |help: &str| Finding::bad("server", format!("`{name}` is broken: {why}"), help);
    match reach {
        Some(ServerTransport::Stdio(stdio)) => {
            let has_cwd = stdio.cwd.as_ref().is_none_or(|cwd| cwd.is_dir());
            if has_cwd && !is_program(&stdio.command) {
                let program = secrets.redact(&stdio.command);
                let message = format!("`{name}` cannot start: `{program}` is not installed");
                return Finding::bad("server", message, install_help(&program));
            }
            if !has_cwd {
                return broken("create the folder, or correct `cwd`");
            }
            if why.contains(NO_MESSAGES) {
                return broken(
                    "the program is not an MCP server, or needs an option to serve over standard input and output",
                );
            }
            if time >= SERVER_MAX {
                let message = format!("`{name}` is too slow: {why}");
                return Finding::bad(
                    "server",
                    message,
                    "start it by hand to see what it waits for",
                );
            }
            broken("start it by hand to see its output")
        }
        _ if time >= SERVER_MAX => {
            let message = format!("`{name}` is too slow: {why}");
            Finding::bad("server", message, "check that a server answers at its `url`")
        }
        _ => broken("check `url`, and that an MCP server listens there"),
    }
}

/// The help for a program that is not installed.
fn install_help(program: &str) -> String {
    let mut words = program.split_whitespace();
    match words.next() {
        // `command` holds a whole shell command line.
        Some(first) if first != program && is_program(first) => {
            let args: Vec<String> = words.map(|word| format!("\"{word}\"")).collect();
            format!("write `command: {first}` and `args: [{}]`", args.join(", "))
        }
        _ => format!("install `{program}`"),
    }
}

fn is_program(program: &str) -> bool {
    if program.contains('/') {
        return Path::new(program).is_file();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}
