//! `segue doctor`

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use segue_runtime::store::{SqliteOptions, SqliteStore, Store as _};
use segue_runtime::tools::mcp::{Listing, Reach, Unusable};
use serde::Serialize;

use super::app::{App, empty_patterns, store_file};
use super::upstream::Wanted;
use super::{Exit, Global, print_data, print_json};
use crate::config::{Config, Trust, data_folder};
use crate::print::clean;

/// Say what is wrong with this installation and its configuration
#[derive(Args, Debug)]
pub(super) struct DoctorArgs {}

/// One thing that was looked at.
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

    fn bad(what: &'static str, message: impl Into<String>, help: impl Into<String>) -> Finding {
        Finding { what, ok: false, message: message.into(), help: Some(help.into()) }
    }
}

pub(super) fn doctor(global: &Global, _args: &DoctorArgs) -> Exit {
    // Servers are looked at one by one below, all at once and with a bound.
    let app = match App::open(global, &Wanted::Recorded) {
        Ok(app) => app,
        Err(exit) => return exit,
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
    findings.extend(commands(&app));
    findings.extend(servers(&app));
    let ok = findings.iter().all(|finding| finding.ok);
    if global.is_json() {
        print_json(global, &serde_json::json!({ "ok": ok, "findings": findings }));
    } else {
        for Finding { what, ok, message, help } in &findings {
            let mark = if *ok { "ok   " } else { "WRONG" };
            print_data(&format!("{mark}  {what:<14} {message}"));
            if let Some(help) = help {
                print_data(&format!("       {:<14} {help}", ""));
            }
        }
    }
    if ok { Exit::Success } else { Exit::Usage }
}

fn configuration(app: &App) -> Finding {
    match &app.config.file {
        Some(file) => Finding::good("configuration", file.display().to_string()),
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

/// Whether everything in the store is what was written.
fn store(app: &App) -> Finding {
    let Some(file) = store_file(&app.config.store).filter(|file| file.exists()) else {
        return Finding::good("store", "there is none yet");
    };
    let opened = SqliteStore::open(&file, SqliteOptions::default());
    let damaged = opened.and_then(|store| app.runtime().block_on(store.damaged()));
    let named = format!("`{}`", file.display());
    match damaged {
        Ok(damaged) if damaged.is_empty() => Finding::good("store", named),
        Ok(damaged) => {
            let first = damaged[0].to_string();
            let more = damaged.len() - 1;
            let more = if more > 0 { format!("; and {more} more") } else { String::new() };
            let help = "the others are not touched; `segue runs prune --damaged` forgets them";
            Finding::bad("store", format!("{named}: {}{more}", clean(&first)), help)
        }
        Err(error) => {
            let help = "`--store sqlite:FILE` names another one";
            Finding::bad("store", format!("{named}: {}", clean(&error.to_string())), help)
        }
    }
}

/// Whether a file can be made there.
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
    if app.unloaded.is_empty() {
        let tools = app.engine.catalog().tools();
        let count = tools.filter(|tool| tool.composition.is_some()).count();
        return Finding::good("compositions", format!("{count} loaded"));
    }
    let names: Vec<String> = app.unloaded.iter().map(|u| u.source.name().to_string()).collect();
    let message = format!("{} could not be loaded", names.join(", "));
    Finding::bad("compositions", message, format!("segue check {}", names.join(" ")))
}

fn commands(app: &App) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !Trust::load().allows(&app.config) {
        let message = "the commands and servers of this configuration are not allowed yet";
        findings.push(Finding::bad("trust", message, "look at them, then run `segue trust`"));
    }
    for (name, command) in &app.config.commands {
        let program = command.argv.first().map(ToString::to_string).unwrap_or_default();
        if !is_program(&program) {
            let message = format!("`{name}` starts `{program}`, which is not there");
            findings.push(Finding::bad("command", message, format!("install `{program}`")));
        }
    }
    findings
}

/// How long a server may take until it is called slow, and until it is not waited for.
const SLOW: Duration = Duration::from_secs(3);
const SERVER_MAX: Duration = Duration::from_secs(10);

/// Starts every server that may start, all at once, and says how each one is.
fn servers(app: &App) -> Vec<Finding> {
    let mut findings = Vec::new();
    let project = app.config.project.as_ref();
    if let Some(project) = project {
        if !Trust::load().allows_project(project) {
            let message =
                format!("the servers of `{}` are not allowed yet", project.file.display());
            findings.push(Finding::bad("trust", message, "look at them, then run `segue trust`"));
        }
        let help = format!("correct `{}`", project.file.display());
        findings.extend(project.notes.iter().map(|note| Finding::bad("server", note, &help)));
    }
    for (name, why) in &app.upstream.failed {
        if app.upstream.servers().all(|server| server.name() != name) {
            let message = format!("`{name}` cannot be used: {}", clean(why));
            let help = "set what is missing, or correct where it is configured";
            findings.push(Finding::bad("server", message, help));
        }
    }
    let mut asked = Vec::new();
    for server in app.upstream.servers() {
        if !app.upstream.failed.contains_key(server.name()) {
            asked.push(server.clone());
        }
    }
    if asked.is_empty() {
        return findings;
    }
    let answers = app.runtime().block_on(async {
        let asking: Vec<_> = asked
            .into_iter()
            .map(|server| {
                tokio::spawn(async move {
                    let begun = std::time::Instant::now();
                    let listing = tokio::time::timeout(SERVER_MAX, server.listing()).await;
                    (server.name().clone(), listing, begun.elapsed())
                })
            })
            .collect();
        let mut answers = Vec::new();
        for answer in asking {
            answers.extend(answer.await);
        }
        answers
    });
    for (name, listing, time) in answers {
        findings.push(server(&app.config, &name, listing.ok(), time));
    }
    findings
}

/// How one server is; `None` is "still not ready".
fn server(
    config: &Config,
    name: &Arc<str>,
    listing: Option<Result<Arc<Listing>, Unusable>>,
    time: Duration,
) -> Finding {
    let configured = super::upstream::configured(config);
    let reach = configured.iter().find(|(server, _)| server.name == *name).map(|(s, _)| &s.reach);
    match listing {
        None => {
            let message =
                format!("`{name}` is too slow: not ready after {} s", SERVER_MAX.as_secs());
            Finding::bad("server", message, "start it by hand and see what it waits for")
        }
        Some(Err(unusable)) => match reach {
            Some(Reach::Stdio(stdio)) if !is_program(&stdio.command) => {
                let message = format!("`{name}` is missing: `{}` is not there", stdio.command);
                Finding::bad("server", message, format!("install `{}`", stdio.command))
            }
            _ => {
                let message = format!("`{name}` is broken: {}", clean(&unusable.why));
                Finding::bad("server", message, "start it by hand and see what it says")
            }
        },
        Some(Ok(listing)) => {
            let mut message = format!("`{name}` is good: {} tools", listing.tools.len());
            if time > SLOW {
                message = format!("`{name}` is slow ({} s) and good", time.as_secs());
            }
            for note in &listing.notes {
                message = format!("{message}; {note}");
            }
            Finding::good("server", message)
        }
    }
}

fn is_program(program: &str) -> bool {
    if program.contains('/') {
        return Path::new(program).is_file();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}
