//! `segue runs`: what ran, and how it went.

use std::sync::Arc;

use clap::{Args, Subcommand};
use segue_core::compile::dialect::parse_duration;
use segue_core::view::{RunStatus, RunView, Timestamp, duration};
use segue_runtime::driver::now_ms;
use segue_runtime::engine::Stored;
use segue_runtime::store::{Retention, RunQuery, RunRow};
use serde_json::json;

use super::app::App;
use super::run::{exit_of, show_errors, show_questions};
use super::upstream::Wanted;
use super::{Exit, Global, complain, print_data, print_json, say, to_json};
use crate::print::clean;
use crate::serve::listing::RunLine;

/// Runs that are looked through for the beginning or the end of an id.
const SEARCHED_MAX: usize = 10_000;

/// List runs, or show one
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct RunsArgs {
    /// Only those that stand so; may be repeated
    #[arg(long, value_name = "STATUS", value_parser = parse_status)]
    status: Vec<RunStatus>,
    /// Only those of compositions whose name contains this
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Only those that began within this time, such as `2h` or `7d`
    #[arg(long, value_name = "DURATION", value_parser = parse_time)]
    since: Option<u64>,
    /// How many at most
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
    #[command(subcommand)]
    command: Option<RunsCommand>,
}

#[derive(Debug, Subcommand)]
enum RunsCommand {
    /// Show a run: steps, attempts, inputs, outputs, timings, who approved what
    Show {
        /// The run: its id, the beginning or the end of it, or `last`
        run: String,
        /// Follow it until it is over or waits for a person
        #[arg(long)]
        watch: bool,
        /// Print the journal, an entry a line
        #[arg(long, conflicts_with = "watch")]
        journal: bool,
    },
    /// Show where two runs differ
    Compare {
        /// One run
        first: String,
        /// Another one
        second: String,
    },
    /// Forget runs that are over
    Prune {
        /// Those that ended longer ago than this, such as `30d`
        #[arg(long, value_name = "DURATION", value_parser = parse_time)]
        older_than: Option<u64>,
        /// All but this many of the last ones
        #[arg(long, value_name = "N")]
        keep: Option<usize>,
    },
}

fn parse_status(word: &str) -> Result<RunStatus, String> {
    let words = || RunStatus::ALL.iter().map(|status| status.as_str()).collect::<Vec<_>>();
    RunStatus::parse(word).ok_or_else(|| format!("the words are {}", words().join(", ")))
}

fn parse_time(text: &str) -> Result<u64, String> {
    parse_duration(text)
        .ok_or_else(|| "write a number with a unit, such as `30m`, `2h` or `7d`".to_owned())
}

pub(super) fn runs(global: &Global, args: &RunsArgs) -> Exit {
    let app = match App::open_stored(global, &Wanted::Recorded, &[]) {
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
                    show(global, &stored);
                }
                Ok(Exit::Success)
            }
            Some(RunsCommand::Compare { first, second }) => {
                let (first, second) = (stored(&app, first).await?, stored(&app, second).await?);
                Ok(compare(global, &first.view(), &second.view()))
            }
            Some(RunsCommand::Prune { older_than, keep }) => {
                prune(global, &app, *older_than, *keep).await
            }
        }
    });
    outcome.unwrap_or_else(|message: String| {
        complain(&message, None);
        Exit::Usage
    })
}

async fn list(global: &Global, app: &App, args: &RunsArgs) -> Result<Exit, String> {
    let query = RunQuery {
        statuses: args.status.clone(),
        name: args.name.as_deref().map(Arc::from),
        since_ms: args.since.map(|ago| now_ms().saturating_sub(ago)),
        limit: args.limit,
        ..RunQuery::default()
    };
    let found = app.engine.store().runs(&query).await.map_err(|error| error.to_string())?;
    for damaged in &found.damaged {
        complain(&damaged.to_string(), Some("it is set aside; the others are not touched"));
    }
    if global.is_json() {
        let runs: Vec<_> = found.runs.iter().map(RunLine::from).collect();
        print_json(global, &json!({ "runs": runs }));
        return Ok(Exit::Success);
    }
    let width = found.runs.iter().map(|run| run.name.len()).max().unwrap_or(0);
    for run in &found.runs {
        let took = run.ended_ms.unwrap_or(run.updated_ms).saturating_sub(run.started_ms);
        print_data(&format!(
            "{}  {:<15}  {:<width$}  {}  {}",
            run.run_id,
            run.status.as_str(),
            run.name,
            Timestamp(run.started_ms),
            duration(took)
        ));
    }
    if found.runs.is_empty() && !global.quiet {
        say("no runs");
    }
    Ok(Exit::Success)
}

/// The run that is meant: by its id, the beginning or the end of it, or `last`.
pub(super) async fn find(app: &App, text: &str) -> Result<Arc<str>, String> {
    let store = app.engine.store();
    let said = |error: segue_runtime::store::StoreError| error.to_string();
    let exact: Arc<str> = text.into();
    if store.run(&exact).await.map_err(said)?.is_some() {
        return Ok(exact);
    }
    let limit = if text == "last" { 1 } else { SEARCHED_MAX };
    let query = RunQuery { limit, ..RunQuery::default() };
    let found = store.runs(&query).await.map_err(said)?;
    let fits = |run: &&RunRow| {
        text == "last" || run.run_id.starts_with(text) || run.run_id.ends_with(text)
    };
    let mut meant = found.runs.iter().filter(fits);
    match (meant.next(), meant.next()) {
        (Some(run), None) => Ok(run.run_id.clone()),
        (Some(_), Some(_)) => Err(format!("several runs are called `{text}…`: write more of it")),
        (None, _) => Err(format!("there is no run `{text}`; `segue runs` lists them")),
    }
}

async fn stored(app: &App, run: &str) -> Result<Stored, String> {
    let run_id = find(app, run).await?;
    app.engine.stored(&run_id).await.map_err(|error| error.to_string())
}

fn show(global: &Global, stored: &Stored) {
    let view = stored.view();
    if global.is_json() {
        return print_json(global, &view);
    }
    print_data(&format!("{}  {}  {}", view.run_id, view.name, view.status.as_str()));
    if let Some(started) = &view.started_at {
        print_data(&format!("began {started}, took {}", duration(view.duration_ms)));
    }
    print_data("");
    for step in &view.steps {
        let tool = step.tool.as_deref().unwrap_or(step.kind);
        let attempts = match step.attempts {
            0 | 1 => String::new(),
            several => format!(", {several} attempts"),
        };
        let took = duration(step.duration_ms);
        print_data(&format!("{}  {tool}  {}  {took}{attempts}", step.id, step.status.as_str()));
        if let Some(reason) = &step.reason {
            print_data(&format!("    because {reason}"));
        }
        if !step.input.is_null() {
            print_data(&format!("    given {}", shortened(&step.input.to_json())));
        }
        if !step.output.is_null() {
            print_data(&format!("    returned {}", shortened(&step.output.to_json())));
        }
        if let Some(error) = &step.error {
            print_data(&format!("    [{}] {}", error.code, clean(&error.message)));
        }
    }
    for (by, what) in stored.run.decisions(&stored.journal) {
        print_data(&format!("{by}: {what}"));
    }
    if !view.output.is_null() {
        print_data(&format!("\n{}", to_json(&view.output)));
    }
    show_errors(&view);
    show_questions(&view);
}

fn shortened(text: &str) -> String {
    const SHOWN: usize = 200;
    match text.char_indices().nth(SHOWN) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}… ({} bytes)", &text[..at], text.len()),
    }
}

fn print_journal(stored: &Stored) {
    for entry in &stored.journal {
        print_data(&serde_json::to_string(entry).unwrap_or_default());
    }
}

/// Shows what changes until the run is over, waits for a person, or is left by whoever had it.
async fn watch(global: &Global, app: &App, run: &str) -> Result<Exit, String> {
    const LOOK_EVERY: std::time::Duration = std::time::Duration::from_millis(300);
    // Found once: the last run may soon be another one.
    let run_id = find(app, run).await?;
    let progress = super::progress::watching(global);
    let mut seen = 0;
    loop {
        // Asked before: whoever leaves a run has written how it stands.
        let left = app.engine.store().is_left(&run_id).await;
        let is_left = left.map_err(|error| error.to_string())?;
        let stored = stored(app, &run_id).await?;
        progress.observer().observe(&stored.run, &stored.journal[seen..]);
        seen = stored.journal.len();
        let stands = stored.run.is_finished() || stored.run.is_waiting();
        if !stands && !is_left {
            tokio::time::sleep(LOOK_EVERY).await;
            continue;
        }
        let view = stored.view();
        if global.is_json() {
            print_json(global, &view);
        } else {
            show_errors(&view);
            show_questions(&view);
        }
        if !stands {
            let help = format!("`segue resume {run_id}` goes on with it");
            complain("the run was interrupted: nobody is working on it", Some(&help));
            return Ok(Exit::RunFailed);
        }
        if !global.is_json() && !global.quiet {
            say(&super::run::summary(&view));
        }
        return Ok(exit_of(&view));
    }
}

/// The steps in which two runs differ, and how.
fn compare(global: &Global, first: &RunView, second: &RunView) -> Exit {
    let steps: Vec<&Arc<str>> = first.steps.iter().map(|step| &step.id).collect();
    let added = second.steps.iter().map(|step| &step.id).filter(|id| !steps.contains(id));
    let mut differences = Vec::new();
    for id in steps.iter().copied().chain(added) {
        let one = first.steps.iter().find(|step| step.id == *id);
        let two = second.steps.iter().find(|step| step.id == *id);
        let (one, two) = match (one, two) {
            (Some(one), Some(two)) => (one, two),
            (one, _) => {
                let only = if one.is_some() { "first" } else { "second" };
                differences.push(json!({ "step": &**id, "only_in": only }));
                continue;
            }
        };
        let mut difference = serde_json::Map::new();
        let mut differs = |what: &str, one: serde_json::Value, two: serde_json::Value| {
            if one != two {
                difference.insert(what.to_owned(), json!({ "first": one, "second": two }));
            }
        };
        differs("status", json!(one.status.as_str()), json!(two.status.as_str()));
        differs("input", serde_json::Value::from(&one.input), serde_json::Value::from(&two.input));
        differs(
            "output",
            serde_json::Value::from(&one.output),
            serde_json::Value::from(&two.output),
        );
        differs("attempts", json!(one.attempts), json!(two.attempts));
        if !difference.is_empty() {
            difference.insert("step".to_owned(), json!(&**id));
            differences.push(difference.into());
        }
    }
    let statuses = [first.status.as_str(), second.status.as_str()];
    if global.is_json() {
        print_json(global, &json!({ "statuses": statuses, "differences": differences }));
        return Exit::Success;
    }
    print_data(&format!("{} · {}", statuses[0], statuses[1]));
    for difference in &differences {
        let step = difference["step"].as_str().unwrap_or("");
        if let Some(only) = difference["only_in"].as_str() {
            print_data(&format!("{step}: only in the {only}"));
        }
        for what in ["status", "attempts", "input", "output"] {
            if let Some(both) = difference.get(what) {
                let (one, two) = (both["first"].to_string(), both["second"].to_string());
                print_data(&format!("{step} {what}: {} → {}", shortened(&one), shortened(&two)));
            }
        }
    }
    if differences.is_empty() {
        print_data("no step differs");
    }
    Exit::Success
}

async fn prune(
    global: &Global,
    app: &App,
    older_than: Option<u64>,
    keep: Option<usize>,
) -> Result<Exit, String> {
    if older_than.is_none() && keep.is_none() {
        return Err("say what to forget: `--older-than 30d`, `--keep 1000`, or both".to_owned());
    }
    let retention = Retention {
        ended_before_ms: older_than.map(|ago| now_ms().saturating_sub(ago)),
        keep_last: keep,
    };
    let forgotten = app.engine.store().prune(retention).await.map_err(|error| error.to_string())?;
    if global.is_json() {
        print_json(global, &json!({ "forgotten": forgotten }));
    } else {
        say(&format!("forgot {forgotten} runs"));
    }
    Ok(Exit::Success)
}
