//! The errors of commands: an [`Error`] of the service layer → a message, a help and an exit code.
//!
//! The help names commands and flags, where that of a request over the network names its fields.

use segue_core::diagnostic::Code;
use segue_runtime::engine::{EngineError, PlanningError};
use segue_runtime::library::LibraryError;
use segue_runtime::store::StoreError;
use segue_runtime::tools::ToolError;

use super::Exit;
use crate::api::error::{Error, ErrorKind};
use crate::print::print_error;

impl Exit {
    /// The exit code of a command that did not do what it was asked to.
    pub(super) fn of_error(error: &Error) -> Exit {
        match (error.kind, error.code) {
            (ErrorKind::Upstream, Code::Unreachable) => Exit::Unreachable,
            (ErrorKind::Upstream, Code::Denied) => Exit::Denied,
            (
                ErrorKind::Malformed
                | ErrorKind::Invalid
                | ErrorKind::Forbidden
                | ErrorKind::NotFound
                | ErrorKind::Conflict
                | ErrorKind::Precondition
                | ErrorKind::TooLarge,
                _,
            ) => Exit::Usage,
            (
                ErrorKind::RunConflict
                | ErrorKind::Finished
                | ErrorKind::Busy
                | ErrorKind::Unavailable
                | ErrorKind::Upstream
                | ErrorKind::Internal,
                _,
            ) => Exit::RunFailed,
        }
    }
}

/// Prints an error; the exit code of the command.
pub(super) fn report_error(error: &Error) -> Exit {
    print_error(&error.message, error.help.as_deref());
    Exit::of_error(error)
}

/// Inputs or arguments that cannot be read, or do not fit.
pub(super) fn input_error(message: String) -> Error {
    Error::new(ErrorKind::Invalid, Code::InputSchema, message)
}

/// An error of the engine.
pub(super) fn engine_error(error: EngineError) -> Error {
    let help = engine_help(&error);
    with_help(error.into(), help)
}

/// An error of the store.
pub(super) fn store_error(error: StoreError) -> Error {
    engine_error(error.into())
}

/// Why there is no plan, or why it does not run.
pub(super) fn planning_error(error: PlanningError) -> Error {
    match error {
        PlanningError::Engine(error) => engine_error(error),
        error => {
            let help = error.help();
            with_help(error.into(), help)
        }
    }
}

/// An error of the library of templates.
pub(super) fn library_error(error: LibraryError) -> Error {
    let help = match &error {
        LibraryError::Store(_) => None,
        LibraryError::Unknown(_) => Some("`segue templates` lists them"),
        LibraryError::NameTaken { may_replace: true, .. } => Some("`--replace` replaces it"),
        LibraryError::NameTaken { .. } => Some("choose another id"),
        LibraryError::ShippedTemplate(_) | LibraryError::InvalidTemplate { .. } => None,
    };
    with_help(error.into(), help.map(str::to_owned))
}

fn with_help(error: Error, help: Option<String>) -> Error {
    match help {
        Some(help) => error.help(help),
        None => error,
    }
}

fn engine_help(error: &EngineError) -> Option<String> {
    let help = match error {
        EngineError::Stopped { run_id, .. } => {
            return Some(format!("nothing is lost; `segue resume {run_id}` resumes it"));
        }
        EngineError::Store(StoreError::Owned { .. }) => {
            "another process is running it; `segue runs show RUN --watch` follows it"
        }
        EngineError::Store(StoreError::Ended { .. }) => {
            "`segue rollback RUN` rolls back what it did, `segue run` starts a new run"
        }
        EngineError::DefinitionChanged { .. } => {
            "restore the tool's former definition, or `segue cancel RUN` and run it again"
        }
        EngineError::NotReceived { .. } => {
            "`segue cancel RUN --take-over` cancels a run whose process hangs, `segue resume RUN \
             --take-over` resumes it"
        }
        EngineError::NewerEngine { .. } => {
            "the run is unchanged; a newer Segue, such as the one that began it, resumes it"
        }
        EngineError::NotStored { .. } => "run it here: `segue run` without `--detach`",
        EngineError::MissingTool { is_untrusted: true, .. } => {
            "the run is unchanged; read the configuration, then run `segue trust`"
        }
        EngineError::MissingTool { .. } => {
            "the run is unchanged; resume it where the tool is configured, or with `--config FILE`; \
             `segue cancel RUN` cancels it"
        }
        EngineError::UnknownTool { nearest: None, .. } => "`segue tools` lists what is available",
        EngineError::Arguments { .. } => "`segue tools show ID` lists the parameters",
        EngineError::Tool(ToolError::Refused { code: Code::Denied, .. }) => {
            "`--yes` approves the call"
        }
        // Its own help names the nearest tool.
        EngineError::UnknownTool { .. } | EngineError::Tool(_) | EngineError::Store(_) => {
            return None;
        }
    };
    Some(help.to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use segue_core::view::RunStatus;

    use super::*;

    /// One error has one exit code, whichever command meets it.
    #[test]
    fn errors_have_their_exit_codes() {
        let run_id: Arc<str> = "run_1".into();
        let tool = |error: ToolError| engine_error(error.into());
        let ended = StoreError::Ended { run_id: run_id.clone(), status: RunStatus::Success };
        let unreachable = ToolError::Unreachable { message: String::new(), retry_after: None };
        let refused = |code| ToolError::Refused { code, message: String::new(), retryable: false };
        let missing = EngineError::UnknownTool { name: "x".to_owned(), nearest: None };
        for (error, exit) in [
            (store_error(ended), Exit::RunFailed),
            (engine_error(EngineError::NotReceived { run_id }), Exit::RunFailed),
            (tool(unreachable), Exit::Unreachable),
            (tool(refused(Code::Denied)), Exit::Denied),
            (tool(refused(Code::ToolError)), Exit::RunFailed),
            (engine_error(missing), Exit::Usage),
            (planning_error(PlanningError::NoModel), Exit::Usage),
            (planning_error(PlanningError::NotFound("p".into())), Exit::Usage),
            (library_error(LibraryError::Unknown("t".into())), Exit::Usage),
            (input_error(String::new()), Exit::Usage),
        ] {
            assert_eq!(Exit::of_error(&error), exit, "{error:?}");
        }
    }
}
