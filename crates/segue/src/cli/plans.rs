//! `segue plans`: lists, shows and deletes plans that a model made.

use clap::{Args, Subcommand};
use segue_core::view::Timestamp;
use segue_runtime::engine::PlanningError;
use serde_json::json;

use super::ask::{describe_origin, report_planning};
use super::run_view::summary;
use super::{Exit, Global, print_json, to_json};
use crate::app::{App, ServerSelection};
use crate::print::{escape_control, print_data, print_status};

/// List the plans that `segue plan --ask` made, or show one
///
/// `segue run PLAN` runs a plan.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct PlansArgs {
    /// The most plans to list
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
    #[command(subcommand)]
    command: Option<PlansCommand>,
}

#[derive(Debug, Subcommand)]
enum PlansCommand {
    /// Show a plan: its origin, its state and the result of its run
    Show {
        /// The id of a plan, or of a request, which means its latest plan
        #[arg(value_name = "PLAN|REQUEST")]
        id: String,
    },
    /// Delete a plan
    Forget {
        /// The id of the plan
        plan: String,
    },
}

pub(super) fn plans(global: &Global, args: &PlansArgs) -> Exit {
    let app = match global.open_stored(&ServerSelection::Recorded) {
        Ok(app) => app,
        Err(exit) => return exit,
    };
    let outcome = app.runtime().block_on(async {
        match &args.command {
            None => list(global, &app, args.limit).await,
            Some(PlansCommand::Show { id }) => show(global, &app, id).await,
            Some(PlansCommand::Forget { plan }) => forget(&app, plan).await,
        }
    });
    match outcome {
        Ok(()) => Exit::Success,
        Err(error) => report_planning(global, error),
    }
}

async fn list(global: &Global, app: &App, limit: usize) -> Result<(), PlanningError> {
    let records = app.engine.plans(limit).await?;
    if global.is_json() {
        let views: Vec<_> = records.iter().map(|record| record.view(false)).collect();
        print_json(global, &json!({ "plans": views }));
        return Ok(());
    }
    for record in &records {
        print_data(&format!(
            "{}  {:<11}  {}  {}  {}",
            record.plan_id,
            record.state.as_str(),
            record.request_id,
            Timestamp(record.created_ms),
            shortened(&escape_control(&record.query))
        ));
    }
    if records.is_empty() && !global.quiet {
        print_status("no plans");
    }
    Ok(())
}

async fn show(global: &Global, app: &App, id: &str) -> Result<(), PlanningError> {
    let record = app.engine.find_plan(id).await?;
    let versions = app.engine.plans_of_request(&record.request_id).await?;
    let result = match app.engine.plan_result(&record.plan_id).await {
        // The run was deleted, its plan was not.
        Err(PlanningError::Engine(_)) => None,
        other => other?,
    };
    if global.is_json() {
        let mut shown = serde_json::to_value(record.view(true)).unwrap_or_default();
        let ids: Vec<&str> = versions.iter().map(|record| &*record.plan_id).collect();
        shown["versions"] = json!(ids);
        shown["result"] = serde_json::to_value(&result).unwrap_or_default();
        print_json(global, &shown);
        return Ok(());
    }
    print_data(&format!("{}  {}", record.plan_id, record.state.as_str()));
    let (version, of) = (record.version, versions.len());
    print_data(&format!("request {} · version {version} of {of}", record.request_id));
    print_data(&format!(
        "asked   {} · {}",
        Timestamp(record.created_ms),
        escape_control(&record.query)
    ));
    print_data(&format!("origin  {}", describe_origin(&record.origin)));
    if let Some(run_id) = &record.run_id {
        let state = result.as_ref().map_or_else(|| "deleted".to_owned(), summary);
        print_data(&format!("run     {run_id} · {}", escape_control(&state)));
    }
    print_data(&escape_control(&to_json(&record.document)));
    if let Some(result) = result.filter(|result| !result.output.is_null()) {
        print_data(&format!("result\n{}", to_json(&result.output)));
    }
    Ok(())
}

async fn forget(app: &App, plan: &str) -> Result<(), PlanningError> {
    let record = app.engine.plan_record(&plan.into()).await?;
    app.engine.delete_plan(&record.plan_id).await
}

fn shortened(text: &str) -> String {
    const CHARS_MAX: usize = 60;
    if text.chars().count() <= CHARS_MAX {
        return text.to_owned();
    }
    let begin: String = text.chars().take(CHARS_MAX).collect();
    format!("{begin}…")
}
