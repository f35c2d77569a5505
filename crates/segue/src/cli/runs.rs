//! `segue runs`: lists, shows, compares and deletes runs.

use std::sync::Arc;

use clap::{Args, Subcommand};
use segue_core::duration::format_duration;
use segue_core::duration::parse_duration;
use segue_core::value::Value;
use segue_core::view::compare::{StepComparison, ValueDifference, compare as compare_views};
use segue_core::view::{AttemptView, DecisionView, ErrorView, RunStatus, RunView, StepView};
use segue_runtime::driver::now_ms;
use segue_runtime::engine::LoadedRun;
use segue_runtime::store::{Retention, RunListing, RunQuery, StoreError};
use serde::Serialize;
use serde_json::{Value as Json, json};

use super::error::{engine_error, report_error, store_error};
use super::run_actions::SET_ASIDE_HELP;
use super::run_ids::{find, short_length};
use super::run_view::{exit_code, show_errors, show_questions, summary};
use super::{Exit, Global, completions, print_json, run_ids, to_json};
use crate::api::error::Error;
use crate::api::responses::RunSummary;
use crate::api::runs::search::{RunSearch, search};
use crate::api::runs::summaries::is_interrupted;
use crate::app::{App, ServerSelection};
use crate::print::{escape_control, print_data, print_error, print_status};

/// What to do about interrupted runs.
const INTERRUPTED_HELP: &str =
    "`segue resume RUN` resumes one, `segue resume --all` resumes all of them";

/// List runs, or show one
///
/// Prints one line per run, the newest first: short id, status, composition, start and duration.
/// Every command that takes a run takes the short id.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct RunsArgs {
    /// Filter by status; may be repeated
    #[arg(long, value_name = "STATUS", value_parser = parse_status)]
    status: Vec<RunStatus>,
    /// Filter by composition: its name contains this text
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Search in names, ids, tools, inputs, outputs and failures
    #[arg(long, value_name = "TEXT")]
    text: Option<String>,
    /// Search in the tools of the plan
    #[arg(long, value_name = "TOOL")]
    tool: Option<String>,
    /// Filter by age: started within this time, such as `2h` or `7d`
    #[arg(long, value_name = "DURATION", value_parser = parse_time)]
    since: Option<u64>,
    /// The most runs to list
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = parse_limit)]
    limit: usize,
    #[command(subcommand)]
    command: Option<RunsCommand>,
}

#[derive(Debug, Subcommand)]
enum RunsCommand {
    /// Show a run: steps, attempts, inputs, outputs, timings and decisions
    Show {
        /// The run: its id, the start or the end of its id, or `last`
        #[arg(add = completions::runs())]
        run: String,
        /// Follow the run until it ends or waits for a person
        #[arg(long)]
        watch: bool,
        /// Print the journal, one JSON entry per line
        #[arg(long, conflicts_with = "watch")]
        journal: bool,
    },
    /// Show where two runs differ
    Compare {
        /// The first run
        #[arg(add = completions::runs())]
        first: String,
        /// The second run
        #[arg(add = completions::runs())]
        second: String,
    },
    /// Delete finished runs from the store; needs `--older-than`, `--keep` or `--damaged`
    Prune {
        /// Delete runs that ended longer ago than this, such as `30d`
        #[arg(long, value_name = "DURATION", value_parser = parse_time)]
        older_than: Option<u64>,
        /// Keep this many of the newest finished runs and delete the others
        #[arg(long, value_name = "N")]
        keep: Option<usize>,
        /// Delete damaged runs, finished or not
        #[arg(long)]
        damaged: bool,
    },
}

fn parse_status(word: &str) -> Result<RunStatus, String> {
    let words = || RunStatus::ALL.iter().map(|status| status.as_str()).collect::<Vec<_>>();
    RunStatus::parse(word).ok_or_else(|| format!("write one of {}", words().join(", ")))
}

fn parse_time(text: &str) -> Result<u64, String> {
    parse_duration(text)
        .ok_or_else(|| "write a number with a unit, such as `30m`, `2h` or `7d`".to_owned())
}

fn parse_limit(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| "write a number of at least 1".to_owned())
}

pub(super) fn runs(global: &Global, args: &RunsArgs) -> Exit {
    let app = match global.open_stored(&ServerSelection::Recorded) {
        Ok(app) => app,
        Err(exit) => return exit,
    };
    let outcome = app.runtime().block_on(async {
        match &args.command {
            None => list(global, &app, args).await,
            Some(RunsCommand::Show { run, watch: true, .. }) => watch(global, &app, run).await,
            Some(RunsCommand::Show { run, journal, .. }) => {
                let stored = stored(&app, run).await?;
                if *journal {
                    print_journal(&stored);
                } else {
                    let interrupted = is_interrupted(&**app.engine.store(), &stored.row).await;
                    let interrupted = interrupted.map_err(store_error)?;
                    show(global, &stored, interrupted);
                }
                Ok(Exit::Success)
            }
            Some(RunsCommand::Compare { first, second }) => {
                let (first, second) = (stored(&app, first).await?, stored(&app, second).await?);
                Ok(compare(global, &first, &second))
            }
            Some(RunsCommand::Prune { older_than, keep, damaged }) => {
                prune(global, &app, (*older_than, *keep), *damaged).await
            }
        }
    });
    outcome.unwrap_or_else(|error| report_error(&error))
}

async fn list(global: &Global, app: &App, args: &RunsArgs) -> Result<Exit, Error> {
    let query = RunQuery {
        statuses: args.status.clone(),
        name: args.name.as_deref().map(Arc::from),
        since_ms: args.since.map(|ago| now_ms().saturating_sub(ago)),
        limit: args.limit,
        ..RunQuery::default()
    };
    let found = find_runs(app, args, query).await.map_err(store_error)?;
    for damaged in &found.damaged {
        let help = "it is set aside; `segue runs prune --damaged` deletes it";
        print_error(&damaged.to_string(), Some(help));
    }
    let mut runs = Vec::with_capacity(found.runs.len());
    for row in &found.runs {
        let interrupted = is_interrupted(&**app.engine.store(), row).await.map_err(store_error)?;
        runs.push(RunSummary { interrupted, ..RunSummary::from(row) });
    }
    if global.is_json() {
        let damaged: Vec<_> = found.damaged.iter().map(ToString::to_string).collect();
        print_json(global, &json!({ "runs": runs, "damaged": damaged }));
        return Ok(Exit::Success);
    }
    print_list(&runs, short_length(app, &found.runs).await?);
    if !global.quiet {
        print_list_notes(&runs);
    }
    Ok(Exit::Success)
}

/// The runs of a list. A search goes on until it has found enough, or has read every run.
async fn find_runs(
    app: &App,
    args: &RunsArgs,
    mut query: RunQuery,
) -> Result<RunListing, StoreError> {
    let (store, limits) = (app.engine.store(), app.engine.limits());
    let wanted = RunSearch {
        text: args.text.as_deref().map(Arc::from),
        tool: args.tool.as_deref().map(Arc::from),
    };
    if wanted.is_empty() {
        return store.runs(&query).await;
    }
    let mut all = RunListing::default();
    loop {
        let page = search(&**store, limits, query.clone(), &wanted).await?.found;
        all.runs.extend(page.runs);
        all.damaged.extend(page.damaged.into_iter().filter(|_| query.after.is_none()));
        query.limit = args.limit - all.runs.len();
        query.after = page.next;
        if query.after.is_none() || query.limit == 0 {
            return Ok(all);
        }
    }
}

/// The status that people read: a run whose process is gone does not run.
fn status_label(status: RunStatus, interrupted: bool) -> &'static str {
    if interrupted { "interrupted" } else { status.as_str() }
}

fn print_list(runs: &[RunSummary], id_length: usize) {
    let width = runs.iter().map(|run| run.name.len()).max().unwrap_or(0);
    for run in runs {
        print_data(&format!(
            "{}  {:<15}  {:<width$}  {}  {}{}",
            run_ids::shortened(&run.run_id, id_length),
            status_label(run.status, run.interrupted),
            run.name,
            run.started_at,
            format_duration(run.duration_ms),
            if run.set_aside.is_some() { "  set aside" } else { "" }
        ));
    }
}

/// Prints the commands for interrupted runs and for runs that are set aside.
fn print_list_notes(runs: &[RunSummary]) {
    let is_aside = |run: &RunSummary| run.set_aside.is_some();
    if runs.iter().any(|run| run.interrupted && !is_aside(run)) {
        print_status(&format!("interrupted runs have lost their process: {INTERRUPTED_HELP}"));
    }
    if runs.iter().any(is_aside) {
        print_status(&format!(
            "runs that are set aside are not resumed by themselves: {SET_ASIDE_HELP}"
        ));
    }
    if runs.is_empty() {
        print_status("no runs");
    }
}

/// Loads a run by its id, the start or the end of its id, or `last`.
pub(super) async fn stored(app: &App, run: &str) -> Result<LoadedRun, Error> {
    let run_id = find(app, run).await?;
    app.engine.load_run(&run_id).await.map_err(engine_error)
}

/// A run with the details that only its journal has.
#[derive(Serialize)]
struct RunDetails {
    #[serde(flatten)]
    view: RunView,
    /// Decisions of people, with time and name.
    decisions: Vec<DecisionView>,
    /// Every attempt of every step.
    attempts: Vec<AttemptView>,
    /// Why it is not resumed until a person does so.
    #[serde(skip_serializing_if = "Option::is_none")]
    set_aside: Option<Arc<str>>,
    /// Whether it has not ended and no process runs it.
    interrupted: bool,
}

impl RunDetails {
    fn of(stored: &LoadedRun, interrupted: bool) -> RunDetails {
        RunDetails {
            view: stored.view(),
            decisions: stored.run.decisions(&stored.journal),
            attempts: stored.run.attempts(&stored.journal),
            set_aside: stored.row.set_aside.clone(),
            interrupted,
        }
    }
}

fn show(global: &Global, stored: &LoadedRun, interrupted: bool) {
    let shown = RunDetails::of(stored, interrupted);
    if global.is_json() {
        return print_json(global, &shown);
    }
    let RunDetails { view, decisions, attempts, set_aside, interrupted } = shown;
    let status = status_label(view.status, interrupted);
    print_data(&format!("{}  {}  {status}", view.run_id, view.name));
    if let Some(started) = &view.started_at {
        print_data(&format!("began {started}, took {}", format_duration(view.duration_ms)));
    }
    if let Some(reason) = set_aside {
        print_data(&format!("set aside: {reason}; {SET_ASIDE_HELP}"));
    } else if interrupted {
        print_data(&format!("no process is running it; `segue resume {}` resumes it", view.run_id));
    }
    print_data("");
    for step in &view.steps {
        show_step(step, &attempts);
    }
    for DecisionView { at, by, what } in &decisions {
        print_data(&format!("{at}  {}: {}", escape_control(by), escape_control(what)));
    }
    if !view.output.is_null() {
        print_data(&format!("\n{}", to_json(&view.output)));
    }
    show_errors(&view);
    show_questions(&view);
}

fn show_step(step: &StepView, attempts: &[AttemptView]) {
    let tool = step.tool.as_deref().unwrap_or(step.kind);
    let several = match step.attempts {
        0 | 1 => String::new(),
        several => format!(", {several} attempts"),
    };
    let took = format_duration(step.duration_ms);
    print_data(&format!("{}  {tool}  {}  {took}{several}", step.id, step.status.as_str()));
    if let Some(reason) = &step.reason {
        print_data(&format!("    because {reason}"));
    }
    if !step.input.is_null() {
        print_data(&format!("    given {}", shortened(&escape_control(&step.input.to_json()))));
    }
    // The result of the step shows the last attempt.
    let mut earlier: Vec<_> = attempts.iter().filter(|attempt| attempt.step == step.id).collect();
    earlier.pop();
    for AttemptView { started_at, duration_ms, outcome, code, message, .. } in earlier {
        let took =
            duration_ms.map_or_else(String::new, |ms| format!(" after {}", format_duration(ms)));
        let code = code.map_or_else(String::new, |code| format!(": [{code}]"));
        let message =
            message.as_deref().map_or_else(String::new, |m| format!(" {}", escape_control(m)));
        let outcome = outcome.replace('_', " ");
        print_data(&format!("    {started_at} {outcome}{took}{code}{}", shortened(&message)));
    }
    if !step.output.is_null() {
        print_data(&format!("    returned {}", shortened(&escape_control(&step.output.to_json()))));
    }
    if let Some(error) = &step.error {
        print_data(&format!("    [{}] {}", error.code, escape_control(&error.message)));
    }
}

fn shortened(text: &str) -> String {
    const SHOWN: usize = 200;
    match text.char_indices().nth(SHOWN) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}… ({} bytes)", &text[..at], text.len()),
    }
}

fn print_journal(stored: &LoadedRun) {
    for entry in &stored.journal {
        print_data(&serde_json::to_string(entry).unwrap_or_default());
    }
}

/// Prints changes until the run ends, waits for a person, or loses its process.
async fn watch(global: &Global, app: &App, run: &str) -> Result<Exit, Error> {
    const POLL_INTERVAL: std::time::Duration = std::time::Duration::from_millis(300);
    // Resolved once: `last` may soon mean another run.
    let run_id = find(app, run).await?;
    let progress = super::progress::for_followed(global);
    let mut seen = 0;
    loop {
        // Read before the journal: a process writes the final state before it releases the run.
        let abandoned = app.engine.store().is_abandoned(&run_id).await;
        let mut is_abandoned = abandoned.map_err(store_error)?;
        let stored = stored(app, &run_id).await?;
        if app.engine.store().is_shared() && stored.row.set_aside.is_none() {
            // Another process that shares the store goes on with it.
            is_abandoned = false;
        }
        progress.observer().observe(&stored.run, &stored.journal[seen..]);
        seen = stored.journal.len();
        let is_settled = stored.run.is_finished() || stored.run.is_waiting();
        if !is_settled && !is_abandoned {
            tokio::time::sleep(POLL_INTERVAL).await;
            continue;
        }
        let view = stored.view();
        if global.is_json() {
            print_json(global, &view);
        } else {
            show_errors(&view);
            show_questions(&view);
        }
        if !is_settled {
            let help = format!("`segue resume {run_id}` resumes it");
            print_error("the run was interrupted: no process is running it", Some(&help));
            return Ok(Exit::RunFailed);
        }
        if !global.is_json() && !global.quiet {
            print_status(&summary(&view));
        }
        return Ok(exit_code(&view));
    }
}

/// Differing fields by name, each with both values.
type Differences = serde_json::Map<String, Json>;

fn difference<const N: usize>(of: [(&str, [Json; 2]); N]) -> Differences {
    let differing = of.into_iter().filter(|(_, [one, two])| one != two);
    let both = |[first, second]: [Json; 2]| json!({ "first": first, "second": second });
    differing.map(|(what, values)| (what.to_owned(), both(values))).collect()
}

/// Errors without the fields that differ in every run.
fn errors_of(errors: &[ErrorView]) -> Json {
    let error = |error: &ErrorView| json!([error.step, error.code, error.message, error.phase]);
    errors.iter().map(error).collect()
}

/// Differences between two runs as a whole.
fn compare_runs(first: &LoadedRun, second: &LoadedRun, views: [&RunView; 2]) -> Differences {
    let runs = [first, second];
    let given = |what: fn(&LoadedRun) -> &Value| runs.map(|run| Json::from(what(run)));
    difference([
        ("status", views.map(|view| json!(view.status.as_str()))),
        ("composition", views.map(|view| json!(&*view.name))),
        ("plan_hash", runs.map(|run| json!(&*run.row.plan_hash))),
        ("input", given(|run| run.run.input_and_context().0)),
        ("context", given(|run| run.run.input_and_context().1)),
        ("output", views.map(|view| Json::from(&view.output))),
        ("errors", views.map(|view| errors_of(&view.errors))),
    ])
}

/// Differences of one step between two runs.
fn step_differences(step: &StepComparison) -> Differences {
    let (Some(one), Some(two)) = (&step.left, &step.right) else {
        let only = if step.left.is_some() { "first" } else { "second" };
        return Differences::from_iter([("only_in".to_owned(), json!(only))]);
    };
    let steps = [one, two];
    let mut all = difference([
        ("status", steps.map(|step| json!(step.status.as_str()))),
        ("tool", steps.map(|step| json!(step.tool))),
        ("attempts", steps.map(|step| json!(step.attempts))),
    ]);
    for ValueDifference { part, pointer, left, right } in &step.differences {
        let both = [left, right].map(|value| value.as_ref().map_or(Json::Null, Json::from));
        all.extend(difference([(&*format!("{part}{pointer}"), both)]));
    }
    all
}

/// Prints the differences between two runs, and their durations.
fn compare(global: &Global, first: &LoadedRun, second: &LoadedRun) -> Exit {
    let (one, two) = (first.view(), second.view());
    let run = compare_runs(first, second, [&one, &two]);
    let compared = compare_views(&one, &two);
    let differing = compared.steps.iter().filter(|step| !step.differs.is_empty());
    let differences = differing.map(|step| {
        let mut all = step_differences(step);
        all.insert("step".to_owned(), json!(step.id));
        all
    });
    let differences: Vec<Differences> = differences.collect();
    let statuses = [one.status.as_str(), two.status.as_str()];
    let durations = [one.duration_ms, two.duration_ms];
    if global.is_json() {
        let all = json!({
            "statuses": statuses,
            "durations_ms": durations,
            "run": run,
            "differences": differences,
            "steps_left_out": compared.steps_left_out,
        });
        print_json(global, &all);
        return Exit::Success;
    }
    let [took_one, took_two] = durations.map(format_duration);
    print_data(&format!("{} in {took_one} · {} in {took_two}", statuses[0], statuses[1]));
    print_differences("run", &run);
    for difference in &differences {
        print_differences(difference["step"].as_str().unwrap_or(""), difference);
    }
    match compared.steps_left_out {
        0 if run.is_empty() && differences.is_empty() => print_data("nothing differs"),
        0 => {}
        more => print_data(&format!("{more} further steps were not compared")),
    }
    Exit::Success
}

fn print_differences(of: &str, differences: &Differences) {
    for (what, both) in differences {
        match (&**what, both.as_str()) {
            ("step", _) => {}
            ("only_in", Some(only)) => print_data(&format!("{of}: only in the {only}")),
            _ => {
                let [one, two] =
                    ["first", "second"].map(|which| shortened(&both[which].to_string()));
                print_data(&format!("{of} {what}: {one} → {two}"));
            }
        }
    }
}

async fn prune(
    global: &Global,
    app: &App,
    (older_than, keep): (Option<u64>, Option<usize>),
    damaged: bool,
) -> Result<Exit, Error> {
    let by_age = older_than.is_some() || keep.is_some();
    if !by_age && !damaged {
        let help =
            "say which runs to delete: `--older-than 30d`, `--keep 1000`, or both; or `--damaged`";
        return Err(Error::invalid(help));
    }
    let (store, mut deleted) = (app.engine.store(), 0);
    if damaged {
        deleted += store.delete_damaged().await.map_err(store_error)?;
    }
    if by_age {
        let retention = Retention {
            ended_before_ms: older_than.map(|ago| now_ms().saturating_sub(ago)),
            keep_last: keep,
        };
        deleted += store.prune(retention).await.map_err(store_error)?;
    }
    if global.is_json() {
        print_json(global, &json!({ "forgotten": deleted }));
    } else {
        print_status(&format!("deleted {deleted} runs"));
    }
    Ok(Exit::Success)
}
