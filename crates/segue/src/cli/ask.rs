//! `segue plan --ask`: a request in natural language → a plan, shown before it is stored.

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use segue_core::diagnostic::{Code, Diagnostic, Severity};
use segue_core::duration::format_duration;
use segue_core::limits::Limits;
use segue_core::planner::{PlanOrigin, PlannedCalls, StoredPlan, is_same_query};
use segue_core::value::Value;
use segue_core::view::PlanView;
use segue_core::view::explain;
use segue_runtime::engine::{Planned, PlanningError, PlanningEvent, PlanningRequest};
use serde_json::json;

use super::error::planning_error;
use super::plan::PlanFormat;
use super::{Exit, Global, print_json, prompt};
use crate::api::requests::CreatePlan;
use crate::app::ServerSelection;
use crate::print::{escape_control, print_data, print_diagnostics, print_error, print_status};

/// A planning request.
#[derive(Args, Debug)]
pub(super) struct AskArgs {
    /// Have the configured model make a plan from this request in natural language
    #[arg(long = "ask", value_name = "WORDS", conflicts_with = "composition")]
    pub(super) query: Option<String>,
    /// With `--ask`: store the plan without asking for confirmation
    #[arg(long, requires = "query")]
    yes: bool,
    /// With `--ask`: also write the plan to this file as a composition
    #[arg(long, value_name = "FILE", requires = "query")]
    save: Option<PathBuf>,
    /// With `--ask`: make a new version of the plan of this request
    #[arg(long, value_name = "REQUEST", requires = "query")]
    request: Option<String>,
    /// With `--ask`: reuse this plan, which succeeded before
    #[arg(long = "use", value_name = "PLAN", requires = "query", conflicts_with = "fresh")]
    used: Option<String>,
    /// With `--ask`: ask the model even if an earlier plan fits
    #[arg(long, requires = "query")]
    fresh: bool,
}

pub(super) fn ask(global: &Global, args: &AskArgs, format: PlanFormat) -> Exit {
    let query = args.query.as_deref().unwrap_or_default();
    let app = match global.open_stored(&ServerSelection::Everything) {
        Ok(app) => app,
        Err(exit) => return exit,
    };
    let asks = !global.is_json()
        && !args.yes
        && std::io::stdin().is_terminal()
        && std::io::stderr().is_terminal();
    let is_quiet = global.quiet || global.is_json();
    let on_event = |event: PlanningEvent<'_>| {
        if !is_quiet {
            print_status(&event_note(event));
        }
    };
    let planning = async {
        let offered = app.engine.similar_plans(query).await?;
        let mut request = args.request();
        if asks && request.used_plan.is_none() && !request.fresh {
            choose_earlier(&mut request, &offered);
        }
        let request = request.planning_request(None);
        let request = PlanningRequest { on_event: &on_event, ..request };
        let planned = app.engine.create_plan(request).await?;
        Ok((planned, offered))
    };
    let outcome = app.runtime().block_on(async {
        tokio::select! {
            outcome = planning => Some(outcome),
            () = crate::app::signals::interrupted(app.engine.store()) => None,
        }
    });
    let (planned, offered) = match outcome {
        Some(Ok(made)) => made,
        Some(Err(error)) => return report_planning(global, error),
        None => return Exit::Interrupted,
    };
    show(global, &planned, &offered, format);
    let plan_id = &planned.record.plan_id;
    if asks && !prompt::ask("store this plan? [y/N] ") {
        if let Err(error) = app.runtime().block_on(app.engine.delete_plan(plan_id)) {
            return report_planning(global, error);
        }
        print_status("the plan was not stored");
        return Exit::Denied;
    }
    if let Some(file) = &args.save
        && let Err(message) = save(&planned.record, file)
    {
        print_error(&message, None);
        return Exit::Usage;
    }
    if !is_quiet {
        print_status(&format!("`segue run {plan_id}` runs it"));
    }
    Exit::Success
}

impl AskArgs {
    fn request(&self) -> CreatePlan {
        CreatePlan {
            query: self.query.as_deref().unwrap_or_default().into(),
            request_id: self.request.as_deref().map(Arc::from),
            used_plan: self.used.as_deref().map(Arc::from),
            fresh: self.fresh,
        }
    }
}

/// Asks on the terminal about each earlier plan; without a yes, the model is asked.
fn choose_earlier(request: &mut CreatePlan, offered: &[StoredPlan]) {
    for record in offered {
        let is_same = is_same_query(&record.query, &request.query);
        let same = if is_same { "for these words" } else { "for" };
        let words = escape_control(&record.query);
        let text = format!("used before {same}: {words}\n  {}\nuse it? [y/N] ", record.plan_id);
        if prompt::ask(&text) {
            request.used_plan = Some(record.plan_id.clone());
            return;
        }
    }
    request.fresh = true;
}

fn event_note(event: PlanningEvent<'_>) -> String {
    match event {
        PlanningEvent::Asking { model, round: 1 } => format!("asking {} …", escape_control(model)),
        PlanningEvent::Asking { model, round } => {
            format!("asking {} again ({round}) …", escape_control(model))
        }
        PlanningEvent::Retrying { ms, why } => {
            format!("no answer ({}); waiting {}", escape_control(why), format_duration(ms))
        }
    }
}

fn show(global: &Global, planned: &Planned, offered: &[StoredPlan], format: PlanFormat) {
    let view = PlanView::from_plan(&planned.plan);
    let record = &planned.record;
    match format {
        PlanFormat::Text if !global.is_json() => {
            let is_warning = |d: &&Diagnostic| d.severity == Severity::Warning;
            let warnings: Vec<_> = planned.findings.iter().filter(is_warning).cloned().collect();
            print_diagnostics(&warnings, &planned.source);
            print_data(&format!("{}\n{}", explain::to_text(&view), calls(&record.calls())));
            print_data(&format!("request {}\nplan    {}", record.request_id, record.plan_id));
            for warning in &record.warnings {
                print_status(&format!("warning: {}", escape_control(warning)));
            }
            if !global.quiet {
                print_status(&describe_origin(&record.origin));
                hint_at_similar(record, offered);
            }
        }
        PlanFormat::Mermaid => print_data(&explain::mermaid(&view)),
        PlanFormat::Dot => print_data(&explain::dot(&view)),
        PlanFormat::Svg => print_data(&explain::svg(&view)),
        PlanFormat::Text | PlanFormat::Json => {
            let mut shown = serde_json::to_value(record.view(true)).unwrap_or_default();
            shown["checked"] = serde_json::to_value(&view).unwrap_or_default();
            let before: Vec<_> = offered.iter().map(|record| record.view(false)).collect();
            shown["used_before"] = serde_json::to_value(before).unwrap_or_default();
            print_json(global, &shown);
        }
    }
}

/// The calls of a plan with their arguments, and the model's reasoning.
fn calls(calls: &PlannedCalls) -> String {
    let mut text = "calls:\n".to_owned();
    for call in &calls.tools {
        let parameters = match &call.parameters {
            Value::Null => "{}".to_owned(),
            parameters => parameters.to_json(),
        };
        let _ = writeln!(text, "  {} {}", escape_control(call.id()), escape_control(&parameters));
    }
    if let Some(why) = &calls.reasoning {
        let _ = writeln!(text, "\nwhy: {}", escape_control(why));
    }
    text
}

/// Where a plan comes from.
pub(super) fn describe_origin(origin: &PlanOrigin) -> String {
    match origin {
        PlanOrigin::UsedBefore { plan_id } => format!("used before as {plan_id}"),
        PlanOrigin::Model { model, cost } => {
            let answers = if cost.rounds == 1 { "answer" } else { "answers" };
            format!(
                "planned by {} in {} {answers} · {} tokens · {} of {} tools shown",
                escape_control(model),
                cost.rounds,
                cost.usage.total(),
                cost.tools_shown,
                cost.tools
            )
        }
    }
}

fn hint_at_similar(record: &StoredPlan, offered: &[StoredPlan]) {
    if matches!(record.origin, PlanOrigin::UsedBefore { .. }) {
        return;
    }
    for earlier in offered {
        let (words, plan_id) = (escape_control(&earlier.query), &earlier.plan_id);
        print_status(&format!("used before for: {words} (`--use {plan_id}` takes that plan)"));
    }
}

/// Writes the plan as a composition, named after its file.
fn save(record: &StoredPlan, file: &Path) -> Result<(), String> {
    let shown = file.display();
    let name =
        file.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let text = record.composition(&name, &Limits::default());
    let text = text.ok_or_else(|| format!("`{shown}` cannot be written"))?;
    if file.exists() {
        return Err(format!("`{shown}` exists already; nothing was written"));
    }
    std::fs::write(file, &*text).map_err(|error| format!("cannot write `{shown}`: {error}"))
}

/// Prints why there is no plan, or why it does not run.
pub(super) fn report_planning(global: &Global, error: PlanningError) -> Exit {
    let none = Vec::new();
    let (findings, cost) = match &error {
        PlanningError::Unplanned(unplanned) => (&unplanned.findings, Some(unplanned.cost)),
        PlanningError::InvalidPlan { findings, .. } => (findings, None),
        _ => (&none, None),
    };
    match &error {
        PlanningError::InvalidPlan { text, findings, .. } => print_diagnostics(findings, text),
        _ => {
            for finding in findings {
                print_status(&format!("  [{}] {}", finding.code, escape_control(&finding.message)));
            }
        }
    }
    let findings: Vec<_> = findings.iter().map(finding_json).collect();
    let error = planning_error(error);
    let (code, message, help) = (error.code, &error.message, error.help.as_deref());
    if global.is_json() {
        let error = json!({"code": code, "message": message, "hint": help, "findings": findings});
        print_json(global, &json!({ "error": error, "cost": cost }));
    }
    print_error(&format!("[{code}] {message}"), help);
    Exit::of_error(&error)
}

fn finding_json(finding: &Diagnostic) -> serde_json::Value {
    let code: Code = finding.code;
    json!({"code": code, "message": finding.message, "help": finding.help})
}
