//! `segue completions`, and the values that a shell offers at the Tab key.
//!
//! The script of a shell calls this program with `SEGUE_COMPLETE` set, because only the program knows
//! the configured compositions and the stored runs. Completion prints no error: it offers nothing.

use std::ffi::OsStr;
use std::path::PathBuf;

use clap::{Args, CommandFactory as _};
use clap_complete::engine::{
    ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter as _,
};
use clap_complete::env::Shells;
use clap_complete::{CompleteEnv, Shell};
use segue_core::view::Timestamp;
use segue_runtime::store::{RunQuery, RunRow};

use super::{Cli, Exit};
use crate::app::store::open_existing;
use crate::app::{AppOptions, current_thread_runtime, load_config};
use crate::config::Config;
use crate::config::documents::composition_files;
use crate::print::{escape_control, print_data, print_error};

/// The variable that tells this program to complete a command line.
const VARIABLE: &str = "SEGUE_COMPLETE";

/// How many of the newest runs completion offers.
const RUNS_MAX: usize = 100;

/// Print a completion script for a shell
///
/// The script completes commands, flags, configured compositions and run ids.
/// For bash, write `source <(segue completions bash)` into `~/.bashrc`.
#[derive(Args, Debug)]
pub(super) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

pub(super) fn completions(args: &CompletionsArgs) -> Exit {
    let mut script = Vec::new();
    let shells = Shells::builtins();
    let written = shells
        .completer(&args.shell.to_string())
        .map(|shell| shell.write_registration(VARIABLE, "segue", "segue", "segue", &mut script));
    if !matches!(written, Some(Ok(()))) {
        print_error(&format!("there is no completion script for {}", args.shell), None);
        return Exit::Usage;
    }
    print_data(&String::from_utf8_lossy(&script));
    Exit::Success
}

/// Completes a command line and ends the process, if a shell asks for it.
pub(super) fn complete() {
    CompleteEnv::with_factory(Cli::command).var(VARIABLE).bin("segue").complete();
}

/// Completes configured compositions by name, and files.
pub(super) fn compositions() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| {
        let names = config().map(|config| composition_names(&config)).unwrap_or_default();
        let mut found = starting_with(typed, names.into_iter().map(CompletionCandidate::new));
        found.extend(PathCompleter::file().complete(typed));
        found
    })
}

/// Completes the newest runs by id, and `last`.
pub(super) fn runs() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| {
        let rows = config().map(|config| newest_runs(&config)).unwrap_or_default();
        let last = CompletionCandidate::new("last").help(Some("the newest run".into()));
        starting_with(typed, rows.iter().map(run_candidate).chain([last]))
    })
}

fn starting_with(
    typed: &OsStr,
    candidates: impl Iterator<Item = CompletionCandidate>,
) -> Vec<CompletionCandidate> {
    let typed = typed.to_string_lossy();
    candidates.filter(|it| it.get_value().to_string_lossy().starts_with(&*typed)).collect()
}

fn config() -> Option<Config> {
    let file = std::env::var_os("SEGUE_CONFIG").map(PathBuf::from);
    load_config(&AppOptions { config: file, quiet: true, ..AppOptions::default() }).ok()
}

fn composition_names(config: &Config) -> Vec<String> {
    let header = |source| segue_core::compile::read_header(&source, &config.limits);
    let headers = composition_files(config).into_iter().filter_map(header);
    headers.map(|header| header.name.to_string()).collect()
}

fn newest_runs(config: &Config) -> Vec<RunRow> {
    let Some(Ok(store)) = open_existing(&config.store) else { return Vec::new() };
    let query = RunQuery { limit: RUNS_MAX, ..RunQuery::default() };
    current_thread_runtime().block_on(store.runs(&query)).map(|it| it.runs).unwrap_or_default()
}

fn run_candidate(run: &RunRow) -> CompletionCandidate {
    let (status, started) = (run.status.as_str(), Timestamp(run.started_ms));
    let help = format!("{} {status} {started}", escape_control(&run.name)).replace('\n', " ");
    CompletionCandidate::new(&*run.run_id).help(Some(help.into()))
}
