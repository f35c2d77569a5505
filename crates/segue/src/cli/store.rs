//! `segue store`: copies a store into another one.

use std::sync::Arc;

use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use segue_runtime::store::{Copied, CopyReport, Store, StoreError, copy};
use serde_json::json;

use super::{Exit, Global, Output, print_json, report};
use crate::app::store::{open, open_existing};
use crate::app::{AppError, current_thread_runtime};
use crate::config::{StoreLocation, WorkerConfig};
use crate::observe::log;
use crate::print::{escape_control, print_data, print_error, print_status};

/// Copy what has ended from one store to another
#[derive(Args, Debug)]
pub(super) struct StoreArgs {
    #[command(subcommand)]
    command: StoreCommand,
}

#[derive(Debug, Subcommand)]
enum StoreCommand {
    /// Copy ended runs, templates, plans, requests, answers and statistics of tools
    ///
    /// Each run keeps its id, its bytes and its hashes, and is read back and compared. What TO has already
    /// stays as it is, so an interrupted copy can be repeated. Runs that have not ended are named and not
    /// copied. FROM is not changed.
    Copy {
        /// The store to read: `sqlite:FILE` or `postgres://…`; `${VAR}` stands for a variable
        from: String,
        /// The store to write, which is created when there is none
        to: String,
    },
}

/// Unfinished runs to name, at most.
const NAMED_MAX: usize = 20;

/// Without a terminal, a line of progress follows so many runs.
const REPORTED_RUNS: usize = 1_000;

pub(super) fn store(global: &Global, args: &StoreArgs) -> Exit {
    let StoreCommand::Copy { from, to } = &args.command;
    match copy_store(global, from, to) {
        Ok(exit) => exit,
        Err(error) => report(&error),
    }
}

fn copy_store(global: &Global, from: &str, to: &str) -> Result<Exit, AppError> {
    let (from, to) = (location("FROM", from)?, location("TO", to)?);
    if from == to {
        return Err(AppError::new("FROM and TO are the same store".to_owned(), None));
    }
    let secrets = [&from, &to].into_iter().filter_map(|it| it.password().map(str::to_owned));
    log::redact("the stores of a copy", segue_runtime::tools::redact::Secrets::new(secrets));
    let runtime = current_thread_runtime();
    let source = existing(&from)?;
    let target = open(&to, WorkerConfig::default().lease)?.ok_or_else(|| in_memory("TO"))?;
    let progress = Progress::new(global);
    let copied = runtime.block_on(copy(&*source, &*target, |done, all| progress.show(done, all)));
    progress.end();
    let copied = copied.map_err(|error: StoreError| {
        let help = "nothing is lost; repeat the copy: it goes on where it stopped";
        AppError::new(format!("cannot copy: {error}"), Some(help.to_owned()))
    })?;
    show(global, &copied);
    Ok(if copied.refused.is_empty() { Exit::Success } else { Exit::RunFailed })
}

/// The store that an argument names.
fn location(name: &str, text: &str) -> Result<StoreLocation, AppError> {
    match StoreLocation::parse_expanded(text) {
        Ok(StoreLocation::Memory) => Err(in_memory(name)),
        Ok(location) => Ok(location),
        Err(message) => Err(AppError::new(format!("{name}: {message}"), None)),
    }
}

fn in_memory(name: &str) -> AppError {
    let help = "write `sqlite:FILE` or `postgres://…`";
    let message = format!("{name}: a store in memory ends with its process");
    AppError::new(message, Some(help.to_owned()))
}

/// The store to read, which must be there.
fn existing(from: &StoreLocation) -> Result<Arc<dyn Store>, AppError> {
    let shown = from.shown().unwrap_or_default();
    let opened = open_existing(from).ok_or_else(|| format!("there is no store `{shown}`"));
    opened?.map_err(|error| format!("cannot open the store `{shown}`: {error}").into())
}

/// How far the copy is, on standard error.
struct Progress {
    bar: Option<ProgressBar>,
    writes_lines: bool,
}

impl Progress {
    fn new(global: &Global) -> Progress {
        let is_shown = !global.quiet;
        let is_rich = is_shown && global.output() == Output::Rich;
        let style = ProgressStyle::with_template("{pos} of {len} runs {wide_bar} {eta}");
        let bar = is_rich.then(|| ProgressBar::new(0));
        if let (Some(bar), Ok(style)) = (&bar, style) {
            bar.set_style(style);
        }
        Progress { bar, writes_lines: is_shown && global.output() == Output::Plain }
    }

    fn show(&self, done: usize, all: usize) {
        if let Some(bar) = &self.bar {
            bar.set_length(all as u64);
            bar.set_position(done as u64);
        } else if self.writes_lines && done > 0 && done.is_multiple_of(REPORTED_RUNS) {
            print_status(&format!("{done} of {all} runs"));
        }
    }

    fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn show(global: &Global, report: &CopyReport) {
    let CopyReport { runs, items, tools, unfinished, refused } = report;
    if global.is_json() {
        let count = |copied: &Copied| json!({ "copied": copied.added, "present": copied.present });
        let mut all = serde_json::Map::new();
        all.insert("runs".to_owned(), count(runs));
        all.extend(items.iter().map(|(name, copied)| (name.as_str().to_owned(), count(copied))));
        all.insert("tools".to_owned(), count(tools));
        all.insert("unfinished".to_owned(), json!(unfinished));
        let refused: Vec<String> = refused.iter().map(ToString::to_string).collect();
        all.insert("refused".to_owned(), json!(refused));
        return print_json(global, &all);
    }
    let line = |what: &str, Copied { added, present }: &Copied| {
        print_data(&format!("{what:<10} {added} copied, {present} there already"));
    };
    line("runs", runs);
    items.iter().for_each(|(collection, copied)| line(collection.as_str(), copied));
    line("tools", tools);
    if !unfinished.is_empty() {
        let more = unfinished.len().saturating_sub(NAMED_MAX);
        let named: Vec<&str> = unfinished.iter().take(NAMED_MAX).map(|id| &**id).collect();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        print_status(&format!(
            "not copied, because they have not ended: {}{more}; repeat the copy when they have",
            named.join(", ")
        ));
    }
    for error in refused {
        print_error(&escape_control(&error.to_string()), None);
    }
}
