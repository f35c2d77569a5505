//! `segue call`

use clap::Args;
use segue_runtime::confirm::{Confirmer, DenyAll};
use segue_runtime::engine::{CallRequest, EngineError, RunRequest, UnavailableTools};

use super::error::{engine_error, input_error, report_error};
use super::progress::ProgressDisplay;
use super::prompt;
use super::run_view::show_result;
use super::{Exit, Global, input, to_json};
use crate::api::error::Error;
use crate::api::runs::act::FOUR_EYES;
use crate::app::{App, ServerSelection};
use crate::print::{escape_control, print_data, print_error, print_note};

/// Call one tool and print its result
///
/// For example: `segue call echo -i text=hello`
#[derive(Args, Debug)]
pub(super) struct CallArgs {
    /// The tool: its id or its short name
    tool: String,
    /// An argument: `name=value` (read by the type of the parameter), `name:=JSON` or `name=@file`
    #[arg(short, value_name = "NAME=VALUE")]
    input: Vec<String>,
    /// All arguments as one JSON object: JSON, `@file`, or `-` for standard input
    #[arg(long = "input", value_name = "JSON|@FILE|-")]
    whole: Option<String>,
    /// Approve the call if it asks for confirmation
    #[arg(long)]
    yes: bool,
}

pub(super) fn call(global: &Global, args: &CallArgs) -> Exit {
    let app = match global.open(&ServerSelection::Tool(&args.tool)) {
        Ok(app) => app,
        Err(exit) => return exit,
    };
    let tool = match app.engine.tool(&args.tool) {
        Ok(tool) => tool.clone(),
        Err(error) => return report_unknown(&app, error, &args.tool),
    };
    let four_eyes = app.config.server.approvals.refusal(None, None);
    if let Some(reason) = four_eyes.filter(|_| args.yes) {
        return report_error(&Error::forbidden(reason).help(FOUR_EYES));
    }
    let given =
        input::read(args.whole.as_deref(), &args.input, Some(&tool.input), app.engine.limits());
    let given = match given {
        Ok(given) => given,
        Err(message) => return report_error(&input_error(message)),
    };
    if let Some(plan) = app.engine.plan_named(tool.id.name()).filter(|_| tool.composition.is_some())
    {
        let mut request = RunRequest::new(plan, given);
        request.options.approved = args.yes;
        return match app.runtime().block_on(app.engine.run(request)) {
            Ok(view) => show_result(&view),
            Err(error) => report_error(&engine_error(error)),
        };
    }
    let confirmer: Box<dyn Confirmer> = match four_eyes {
        Some(_) => Box::new(DenyAll),
        None => prompt::confirmer(&ProgressDisplay::Silent, DenyAll),
    };
    let request = CallRequest {
        approved: args.yes,
        confirmer: &*confirmer,
        ..CallRequest::new(tool.id.as_str(), given)
    };
    let outcome = app.runtime().block_on(async {
        // Dropping the call ends it and the processes it started.
        tokio::select! {
            outcome = app.engine.call(request) => Some(outcome),
            () = crate::app::signals::interrupted(app.engine.store()) => None,
        }
    });
    let Some(outcome) = outcome else { return Exit::Interrupted };
    match outcome {
        Ok(value) => {
            print_data(&to_json(&value));
            Exit::Success
        }
        Err(error) => report_error(&engine_error(error)),
    }
}

/// Prints why a tool is not known: its server cannot be used, it changed, or there is none.
pub(super) fn report_unknown(app: &App, error: EngineError, name: &str) -> Exit {
    let namespace = name.split(':').next().unwrap_or("");
    if let Some(why) = app.upstream.failed.get(namespace) {
        let message = format!("the MCP server `{namespace}` cannot be used: {why}");
        print_error(&message, Some("`segue doctor` checks every server"));
        return Exit::Unreachable;
    }
    if let Some(id) = app.engine.unavailable().changed_tool(name) {
        let message = format!("the definition of `{id}` differs from the accepted one");
        print_error(&message, Some(&UnavailableTools::change_help(id)));
        return Exit::Usage;
    }
    let exit = report_error(&engine_error(error));
    // A name with a namespace means that source only.
    if name.contains(':') {
        return exit;
    }
    for (name, why) in &app.upstream.failed {
        print_note(&format!("the MCP server `{name}` cannot be used: {}", escape_control(why)));
    }
    if app.upstream.failed.is_empty() { exit } else { Exit::Unreachable }
}
