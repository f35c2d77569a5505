//! `segue plan --ask`: a request in natural language → a plan, shown before it is stored.

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use segue_core::diagnostic::{Code, Diagnostic, Severity};
use segue_core::duration::format_duration;
use segue_core::limits::Limits;
use segue_core::planner::{PlanOrigin, PlanState, StoredPlan, is_same_query};
use segue_core::value::Value;
use segue_core::view::PlanView;
use segue_core::view::explain;
use segue_runtime::engine::{
    EngineError, Planned, PlanningError, PlanningEvent, PlanningRequest, Reuse,
};
use segue_runtime::tools::ToolError;
use serde_json::json;

use super::plan::PlanFormat;
use super::{Exit, Global, print_json, prompt};
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
        let request = PlanningRequest {
            query: query.into(),
            request_id: args.request.as_deref().map(Arc::from),
            reuse: reuse(args, asks, query, &offered),
            principal: None,
            on_event: &on_event,
        };
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
        Some(Err(error)) => return report_error(global, &error),
        None => return Exit::Interrupted,
    };
    show(global, &planned, &offered, format);
    let plan_id = &planned.record.plan_id;
    if asks && !prompt::ask("store this plan? [y/N] ") {
        if let Err(error) = app.runtime().block_on(app.engine.delete_plan(plan_id)) {
            return report_error(global, &error);
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

/// Which earlier plan is reused. On a terminal, asks about each.
fn reuse(args: &AskArgs, asks: bool, query: &str, offered: &[StoredPlan]) -> Reuse {
    if let Some(plan_id) = &args.used {
        return Reuse::This(plan_id.as_str().into());
    }
    if args.fresh {
        return Reuse::Nothing;
    }
    if !asks {
        return Reuse::Same;
    }
    for record in offered {
        let same = if is_same_query(&record.query, query) { "for these words" } else { "for" };
        let words = escape_control(&record.query);
        let text = format!("used before {same}: {words}\n  {}\nuse it? [y/N] ", record.plan_id);
        if prompt::ask(&text) {
            return Reuse::This(record.plan_id.clone());
        }
    }
    Reuse::Nothing
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
            print_data(&format!("{}\n{}", explain::to_text(&view), calls(&record.document)));
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
fn calls(document: &Value) -> String {
    let empty = Value::empty_object();
    let calls = document.get("tools").and_then(Value::as_array);
    let mut text = "calls:\n".to_owned();
    for call in calls.into_iter().flat_map(|calls| calls.iter()) {
        let word = |key: &str| call.get(key).and_then(Value::as_str);
        let name = word("id").or(word("name")).unwrap_or_default();
        let parameters = call.get("parameters").unwrap_or(&empty).to_json();
        let _ = writeln!(text, "  {} {}", escape_control(name), escape_control(&parameters));
    }
    if let Some(why) = document.get("reasoning").and_then(Value::as_str) {
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
pub(super) fn report_error(global: &Global, error: &PlanningError) -> Exit {
    let (code, message, help) = (error.code(), error.to_string(), error.help());
    let none = Vec::new();
    let (findings, cost) = match error {
        PlanningError::Unplanned(unplanned) => (&unplanned.findings, Some(unplanned.cost)),
        PlanningError::InvalidPlan { findings, .. } => (findings, None),
        _ => (&none, None),
    };
    if global.is_json() {
        let list: Vec<_> = findings.iter().map(finding_json).collect();
        let error = json!({"code": code, "message": message, "hint": help, "findings": list});
        print_json(global, &json!({ "error": error, "cost": cost }));
    }
    match error {
        PlanningError::InvalidPlan { text, findings, .. } => print_diagnostics(findings, text),
        _ => {
            for finding in findings {
                print_status(&format!("  [{}] {}", finding.code, escape_control(&finding.message)));
            }
        }
    }
    print_error(&format!("[{code}] {message}"), help.as_deref());
    match error {
        PlanningError::Unplanned(unplanned) if unplanned.code != Code::Llm => Exit::Usage,
        PlanningError::Unplanned(_) => Exit::RunFailed,
        PlanningError::Engine(EngineError::Tool(ToolError::Unreachable { .. })) => {
            Exit::Unreachable
        }
        PlanningError::Engine(_) => Exit::RunFailed,
        PlanningError::Executed { state: PlanState::InProgress, .. } => Exit::Denied,
        PlanningError::NoModel
        | PlanningError::NoPlanFor(_)
        | PlanningError::NotFound(_)
        | PlanningError::Executed { .. }
        | PlanningError::InvalidPlan { .. } => Exit::Usage,
    }
}

fn finding_json(finding: &Diagnostic) -> serde_json::Value {
    let code: Code = finding.code;
    json!({"code": code, "message": finding.message, "help": finding.help})
}
