//! `segue call`

use clap::Args;
use segue_core::diagnostic::Code;
use segue_runtime::confirm::DenyAll;
use segue_runtime::engine::{CallRequest, EngineError, RunRequest};
use segue_runtime::tools::ToolError;

use super::app::App;
use super::progress::ProgressDisplay;
use super::prompt;
use super::upstream::ServerSelection;
use super::{Exit, Global, input, print_data, print_error, to_json};

/// Call one tool
#[derive(Args, Debug)]
pub(super) struct CallArgs {
    /// Its id, or its short name
    tool: String,
    /// An argument: `name=value` by the type of the parameter, `name:=JSON`, `name=@file`
    #[arg(short, value_name = "NAME=VALUE")]
    input: Vec<String>,
    /// All arguments: JSON, `@file`, or `-` for standard input
    #[arg(long = "input", value_name = "JSON|@FILE|-")]
    whole: Option<String>,
    /// Consent to a call that would ask
    #[arg(long)]
    yes: bool,
}

pub(super) fn call(global: &Global, args: &CallArgs) -> Exit {
    let app = match App::open(global, &ServerSelection::Tool(&args.tool)) {
        Ok(app) => app,
        Err(exit) => return exit,
    };
    let tool = match app.engine.tool(&args.tool) {
        Ok(tool) => tool.clone(),
        Err(error) => return app.report_unknown(&error, &args.tool),
    };
    let given =
        input::read(args.whole.as_deref(), &args.input, Some(&tool.input), app.engine.limits());
    let given = match given {
        Ok(given) => given,
        Err(message) => {
            print_error(&message, None);
            return Exit::Usage;
        }
    };
    if let Some(plan) = app.engine.plan_named(tool.id.name()).filter(|_| tool.composition.is_some())
    {
        let mut request = RunRequest::new(plan, given);
        request.options.approved = args.yes;
        return match app.runtime().block_on(app.engine.run(request)) {
            Ok(view) => super::run::show_result(&view),
            Err(error) => {
                print_error(&error.to_string(), None);
                Exit::RunFailed
            }
        };
    }
    let confirmer = prompt::confirmer(&ProgressDisplay::Silent, DenyAll);
    let request = CallRequest {
        approved: args.yes,
        confirmer: &*confirmer,
        ..CallRequest::new(tool.id.as_str(), given)
    };
    let outcome = app.runtime().block_on(async {
        // Dropping the call ends it, with everything that it started.
        tokio::select! {
            outcome = app.engine.call(request) => Some(outcome),
            () = super::signals::interrupted(app.engine.store()) => None,
        }
    });
    let Some(outcome) = outcome else { return Exit::Interrupted };
    match outcome {
        Ok(value) => {
            print_data(&to_json(&value));
            Exit::Success
        }
        Err(error) => {
            print_error(&error.to_string(), hint(&error).as_deref());
            match error {
                EngineError::Tool(ToolError::Unreachable { .. }) => Exit::Unreachable,
                EngineError::Tool(ToolError::Refused { code: Code::Denied, .. }) => Exit::Denied,
                EngineError::Tool(_)
                | EngineError::Store(_)
                | EngineError::Stopped { .. }
                | EngineError::MissingTool { .. }
                | EngineError::NotReceived { .. }
                | EngineError::DefinitionChanged { .. } => Exit::RunFailed,
                EngineError::UnknownTool { .. } | EngineError::Arguments { .. } => Exit::Usage,
            }
        }
    }
}

/// What to do about an error of the engine.
pub(super) fn hint(error: &EngineError) -> Option<String> {
    match error {
        EngineError::UnknownTool { nearest: Some(near), .. } => {
            Some(format!("did you mean `{near}`?"))
        }
        EngineError::UnknownTool { .. } => Some("`segue tools` lists what is available".to_owned()),
        EngineError::Arguments { .. } => {
            Some("`segue tools show ID` lists the parameters".to_owned())
        }
        EngineError::Tool(ToolError::Refused { code: Code::Denied, .. }) => {
            Some("`--yes` consents to the call".to_owned())
        }
        EngineError::Tool(_)
        | EngineError::Store(_)
        | EngineError::Stopped { .. }
        | EngineError::MissingTool { .. }
        | EngineError::NotReceived { .. }
        | EngineError::DefinitionChanged { .. } => None,
    }
}
