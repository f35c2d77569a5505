//! `segue doctor`

use std::time::Duration;

use clap::Args;
use segue_runtime::tools::mcp::{Listing, NO_MESSAGES, ServerTransport, ServerUnavailable};
use segue_runtime::tools::redact::Secrets;

use super::run_actions::SET_ASIDE_HELP;
use super::{Exit, Global, print_json, report};
use crate::api::installation::Check;
use crate::app::doctor::{checks, is_program};
#[cfg(not(feature = "restate"))]
use crate::app::service::dispatcher;
#[cfg(feature = "restate")]
use crate::app::service::restate_client;
#[cfg(feature = "postgres")]
use crate::app::shared_store::database_checks;
use crate::app::shared_store::worker_checks;
use crate::app::store::open_existing;
use crate::app::{App, AppOptions, ReportedFiles, ServerSelection, configured_servers};
#[cfg(feature = "restate")]
use crate::config::DriverConfig;
#[cfg(feature = "postgres")]
use crate::config::StoreLocation;
use crate::config::{Config, TrustFile};
#[cfg(feature = "restate")]
use crate::dispatch::restate::diagnose;
use crate::print::{display_path, escape_control, print_data};

/// Check this installation, its configuration and its MCP servers
///
/// Starts every configured server, and prints one line per check: `ok`, `note` or `WRONG`.
#[derive(Args, Debug)]
pub(super) struct DoctorArgs {}

pub(super) fn doctor(global: &Global, _args: &DoctorArgs) -> Exit {
    // The servers are started below, all at once and with a shorter timeout.
    let bounded = |config: &mut Config| {
        let start_ms = u64::try_from(SERVER_MAX.as_millis()).unwrap_or(u64::MAX);
        config.limits.mcp_start_ms = config.limits.mcp_start_ms.min(start_ms);
    };
    let options = AppOptions { reported: ReportedFiles::All, ..global.options() };
    let app = match App::open_with(&options, &ServerSelection::Recorded, bounded) {
        Ok(app) => app,
        Err(error) => return report(&error),
    };
    let mut findings = checks(&app);
    // Behind the data folder.
    let stored = std::iter::once(store(&app)).chain(shared_store(&app));
    findings.splice(3..3, stored.chain([tools(&app)]));
    findings.extend(restate(&app));
    findings.extend(servers(&app));
    let ok = findings.iter().all(|finding| finding.ok);
    if global.is_json() {
        print_json(global, &serde_json::json!({ "ok": ok, "findings": findings }));
    } else {
        for Check { what, ok, message, help } in &findings {
            let mark = match (ok, help) {
                (true, None) => "ok   ",
                (true, Some(_)) => "note ",
                (false, _) => "WRONG",
            };
            // A message may end with lines that a server wrote.
            let indent = format!("\n{:22}", "");
            let message = escape_control(message).replace('\n', &indent);
            print_data(&format!("{mark}  {what:<14} {message}"));
            if let Some(help) = help {
                print_data(&format!("{:22}{}", "", escape_control(help)));
            }
        }
    }
    if ok { Exit::Success } else { Exit::Usage }
}

/// Checks that the store can be written and that no run is damaged or set aside.
fn store(app: &App) -> Check {
    let location = &app.config.store;
    let Some(opened) = open_existing(location) else {
        let is_memory = location.file().is_none();
        let message = if is_memory { "runs are kept in memory" } else { "there is none yet" };
        return Check::good("store", message);
    };
    let checked = opened.and_then(|store| {
        app.runtime().block_on(async {
            store.try_write().await?;
            let unfinished = store.unfinished().await?.runs;
            let aside: Vec<_> =
                unfinished.into_iter().filter(|run| run.set_aside.is_some()).collect();
            Ok((store.list_damaged().await?, aside))
        })
    });
    let shown = location.file().map(|file| file.display().to_string()).or(location.shown());
    let named = format!("`{}`", shown.unwrap_or_default());
    match checked {
        Ok((damaged, aside)) if damaged.is_empty() && !aside.is_empty() => {
            let ids: Vec<&str> = aside.iter().map(|run| &*run.run_id).collect();
            let message = format!("{named}: set aside: {}", ids.join(", "));
            Check::bad("store", message, SET_ASIDE_HELP)
        }
        Ok((damaged, _)) if damaged.is_empty() => Check::good("store", named),
        Ok((damaged, _)) => {
            let first = damaged[0].to_string();
            let more = damaged.len() - 1;
            let more = if more > 0 { format!("; and {more} more") } else { String::new() };
            let help = "other runs are not affected; `segue runs prune --damaged` deletes them";
            Check::bad("store", format!("{named}: {}{more}", escape_control(&first)), help)
        }
        Err(error) => {
            let help = "`--store sqlite:FILE` names another file";
            Check::bad("store", format!("{named}: {}", escape_control(&error.to_string())), help)
        }
    }
}

/// Checks the database of a store that several processes share, and these processes.
fn shared_store(app: &App) -> Vec<Check> {
    let mut findings = Vec::new();
    #[cfg(feature = "postgres")]
    if let StoreLocation::Postgres(url) = &app.config.store {
        match app.runtime().block_on(segue_runtime::store::diagnose(url)) {
            Ok(facts) => findings.extend(database_checks(&facts)),
            // The check of the store says it already.
            Err(_) => return findings,
        }
    }
    if let Some(Ok(store)) = open_existing(&app.config.store)
        && store.is_shared()
        && let Ok(workers) = app.runtime().block_on(store.workers())
    {
        findings.extend(worker_checks(&workers));
    }
    findings
}

fn tools(app: &App) -> Check {
    let count = app.engine.catalog().tools().count();
    let broken: Vec<String> = app
        .engine
        .catalog()
        .tools()
        .filter(|tool| tool.input.check().is_err())
        .map(|tool| tool.id.to_string())
        .collect();
    if broken.is_empty() {
        return Check::good("tools", format!("{count} available"));
    }
    let message = format!("the input schema of {} is wrong", broken.join(", "));
    Check::bad("tools", message, "correct `input` in the configuration")
}

/// Checks Restate, where it decides which worker drives a run.
#[cfg(feature = "restate")]
fn restate(app: &App) -> Vec<Check> {
    let DriverConfig::Restate(config) = &app.config.driver else { return Vec::new() };
    match restate_client(config) {
        Ok(restate) => app.runtime().block_on(diagnose(&restate)),
        Err(error) => vec![Check::bad("restate", error.message(), "correct `driver.restate`")],
    }
}

/// This program knows no Restate.
#[cfg(not(feature = "restate"))]
fn restate(app: &App) -> Option<Check> {
    let error = dispatcher(&app.config).err()?;
    Some(Check::bad("restate", error.message(), "use a build with the feature `restate`"))
}

/// After how long a server counts as slow, and when the check gives up.
const SLOW: Duration = Duration::from_secs(3);
const SERVER_MAX: Duration = Duration::from_secs(10);

/// Starts every trusted server, all at once, and checks its tools.
fn servers(app: &App) -> Vec<Check> {
    let mut findings = Vec::new();
    let project = app.config.project.as_ref();
    if let Some(project) = project {
        if !TrustFile::load().allows_project(project) {
            let message =
                format!("the servers of `{}` are not trusted yet", display_path(&project.file));
            findings.push(Check::bad("trust", message, "read it, then run `segue trust`"));
        }
        let help = format!("correct `{}`", display_path(&project.file));
        findings.extend(project.notes.iter().map(|note| Check::bad("server", note, &help)));
    }
    for (name, why) in &app.upstream.failed {
        if app.upstream.servers().all(|server| server.name() != name) {
            let message = format!("`{name}` cannot be used: {}", escape_control(why));
            let help = "set the missing variable, or correct its configuration";
            findings.push(Check::bad("server", message, help));
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
fn good(name: &str, listing: &Listing, time: Duration) -> Check {
    let mut message = format!("`{name}` works: {} tools", listing.tools.len());
    if time > SLOW {
        message = format!("`{name}` works, but is slow ({} s)", time.as_secs());
    }
    for note in &listing.notes {
        message = format!("{message}; {note}");
    }
    Check::good("server", message)
}

/// Overrides in `tools` for tools that a server does not have.
fn unknown_overrides(config: &Config, name: &str, listing: &Listing) -> Vec<Check> {
    let mut findings = Vec::new();
    for (tool, known) in &config.tools {
        let short = tool.strip_prefix(name).and_then(|rest| rest.strip_prefix(':'));
        if short.is_some_and(|short| listing.names().all(|listed| listed != short)) {
            let message = format!("`tools` names `{tool}`, which does not exist");
            findings.push(Check::bad("tools", message, format!("correct {}", known.place)));
        }
    }
    findings
}

/// A server that cannot be used.
fn bad(config: &Config, name: &str, unusable: &ServerUnavailable, time: Duration) -> Check {
    let configured = configured_servers(config);
    let reach = configured.iter().find(|(server, _)| &*server.name == name).map(|(s, _)| &s.reach);
    let secrets = Secrets::new(config.secrets.iter().cloned());
    let why = escape_control(&unusable.why);
    let broken = |help: &str| Check::bad("server", format!("`{name}` is broken: {why}"), help);
    match reach {
        Some(ServerTransport::Stdio(stdio)) => {
            let has_cwd = stdio.cwd.as_ref().is_none_or(|cwd| cwd.is_dir());
            if has_cwd && !is_program(&stdio.command) {
                let program = secrets.redact(&stdio.command);
                let message = format!("`{name}` cannot start: `{program}` is not installed");
                return Check::bad("server", message, install_help(&program));
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
                return Check::bad("server", message, "start it by hand to see what it waits for");
            }
            broken("start it by hand to see its output")
        }
        _ if time >= SERVER_MAX => {
            let message = format!("`{name}` is too slow: {why}");
            Check::bad("server", message, "check that a server answers at its `url`")
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
