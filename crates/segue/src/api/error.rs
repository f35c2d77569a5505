//! The one error of the service layer, from which every surface makes its own.
//!
//! [`ErrorKind`] is the decision that a surface takes: `http::problem` maps it to a status, the command
//! line to an exit code. The code, the message and the details are shown as they are: as a problem
//! document (REST), as `extensions` (GraphQL), as the text of a tool result ([`Error::text`], MCP).

use std::fmt;
use std::fmt::Write as _;
use std::sync::Arc;

use segue_core::access::{Principal, Right};
use segue_core::diagnostic::{Code, Diagnostic, DiagnosticView, Severity};
use segue_core::planner::PlanState;
use segue_core::source::Source;
use segue_core::view::ErrorView;
use segue_runtime::engine::{EngineError, PlanningError};
use segue_runtime::library::LibraryError;
use segue_runtime::store::StoreError;
use segue_runtime::tools::ToolError;

use super::files::CurrentText;
use super::plans::PlanOffer;

/// What kind of failure it is: what the caller can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The request cannot be read.
    Malformed,
    /// The request can be read and makes no sense.
    Invalid,
    /// The caller lacks a right.
    Forbidden,
    /// Something that the request names does not exist, or is not the caller's.
    NotFound,
    /// The state of a plan, a template or a question does not allow it: another request may be
    /// allowed.
    Conflict,
    /// A file holds another text than the request expects: the error has it.
    Precondition,
    /// The state of a run does not allow it, or another process owns the run.
    RunConflict,
    /// The run has finished, and the action is for runs that have not.
    Finished,
    /// The request is larger than a limit.
    TooLarge,
    /// A limit of concurrent work is reached: the same request may succeed in a second.
    Busy,
    /// The store cannot be used now: the same request may succeed in a second.
    Unavailable,
    /// A tool or the model failed.
    Upstream,
    /// A defect of Segue, or damaged data.
    Internal,
}

/// Why the service did not do what a request asked.
#[derive(Debug)]
pub struct Error {
    details: Box<Details>,
}

/// The parts of an error.
#[derive(Debug)]
pub struct Details {
    /// What the caller can do about it.
    pub kind: ErrorKind,
    /// Its permanent code; each has a page in the manual.
    pub code: Code,
    /// What went wrong.
    pub message: String,
    /// What to do.
    pub help: Option<String>,
    /// The run that it is about.
    pub run_id: Option<Arc<str>>,
    /// Every finding about a composition.
    pub diagnostics: Vec<DiagnosticView>,
    /// Why a run could not start, or a plan could not be made.
    pub errors: Vec<ErrorView>,
    /// Earlier plans that succeeded for similar words, when no plan could be made.
    pub used_before: Vec<PlanOffer>,
    /// What a file holds, when the request expects another text.
    pub current: Option<CurrentText>,
    /// What stands above the findings in a text, in place of the message and the code.
    title: Option<&'static str>,
}

impl std::ops::Deref for Error {
    type Target = Details;

    fn deref(&self) -> &Details {
        &self.details
    }
}

impl Error {
    /// An error of this kind and code.
    pub fn new(kind: ErrorKind, code: Code, message: impl Into<String>) -> Error {
        let details = Details {
            kind,
            code,
            message: message.into(),
            help: None,
            run_id: None,
            diagnostics: Vec::new(),
            errors: Vec::new(),
            used_before: Vec::new(),
            current: None,
            title: None,
        };
        Error { details: Box::new(details) }
    }

    /// A field of the request makes no sense.
    pub fn invalid(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Invalid, Code::InvalidField, message)
    }

    /// A parameter cannot be read.
    pub fn malformed(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Malformed, Code::InvalidField, message)
    }

    /// Something that the request names does not exist.
    pub fn not_found(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::NotFound, Code::NotFound, message)
    }

    /// The caller lacks a right.
    pub fn forbidden(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Forbidden, Code::Unauthorized, message)
    }

    /// The state of something does not allow it.
    pub fn conflict(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Conflict, Code::Conflict, message)
    }

    /// The state of a run does not allow it, or another process owns the run.
    pub fn run_conflict(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::RunConflict, Code::Conflict, message)
    }

    /// A limit of concurrent work is reached.
    pub fn busy(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Busy, Code::Limit, message)
    }

    /// A defect of ours.
    pub fn internal(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Internal, Code::Internal, message)
    }

    /// Our own code panicked; the log has the place.
    pub fn panicked() -> Error {
        Error::internal("Segue itself failed, which is a defect of it; its log says where")
    }

    /// Why a run could not start with its input or context.
    pub fn not_admitted(errors: Vec<ErrorView>) -> Error {
        let (code, message) = errors
            .first()
            .map_or((Code::Internal, String::new()), |error| (error.code, error.message.clone()));
        let help = match code {
            Code::InputSchema => Some("`input` of the request is what the run is given"),
            Code::PolicyViolation => Some("`context` of the request is what its caller brings"),
            _ => None,
        };
        let own = errors.first().and_then(|error| error.hint.clone());
        let mut error = Error::new(ErrorKind::Invalid, code, message);
        error.details.help = own.or_else(|| help.map(str::to_owned));
        error.details.errors = errors;
        error
    }

    /// Everything that is wrong with a composition.
    pub fn findings(source: &Source, findings: &[Diagnostic]) -> Error {
        let mut errors = findings.iter().filter(|finding| finding.severity == Severity::Error);
        let first = errors.next();
        let code = first.map_or(Code::Parse, |finding| finding.code);
        let message = first.map_or("it cannot be read", |finding| &*finding.message);
        let message = match errors.count() {
            0 => message.to_owned(),
            more => format!("there are {} mistakes; the first one: {message}", more + 1),
        };
        let mut error = Error::new(ErrorKind::Invalid, code, message);
        error.details.diagnostics = findings.iter().map(|finding| finding.view(source)).collect();
        error.details.title = Some("the composition does not compile:");
        error
    }

    /// Adds what to do.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Error {
        self.details.help = Some(help.into());
        self
    }

    /// Adds the run that it is about.
    #[must_use]
    pub fn of_run(mut self, run_id: &Arc<str>) -> Error {
        self.details.run_id = Some(run_id.clone());
        self
    }

    /// Adds earlier plans that succeeded for similar words.
    #[must_use]
    pub fn used_before(mut self, used_before: Vec<PlanOffer>) -> Error {
        self.details.used_before = used_before;
        self
    }

    /// Adds what a file holds on disk.
    #[must_use]
    pub fn current_text(mut self, current: CurrentText) -> Error {
        self.details.current = Some(current);
        self
    }

    /// Its parts.
    pub fn into_details(self) -> Details {
        *self.details
    }

    /// Everything as text, for a model that sees nothing else.
    pub fn text(&self) -> String {
        let own = || match self.kind {
            // The message says it all.
            ErrorKind::NotFound => self.message.clone(),
            _ => format!("{} [{}]", self.message, self.code),
        };
        let mut text = self.title.map_or_else(own, str::to_owned);
        if let Some(help) = &self.help {
            let _ = write!(text, " ({help})");
        }
        for finding in self.diagnostics.iter().filter(|d| d.severity == Severity::Error) {
            let help = finding.help.as_ref().map(|help| format!(" ({help})")).unwrap_or_default();
            let (line, message, code) = (finding.line, &finding.message, finding.code);
            let _ = write!(text, "\n- line {line}: {message} [{code}]{help}");
        }
        for error in &self.errors {
            let _ = write!(text, "\n- {} [{}]", error.message, error.code);
        }
        for plan in &self.used_before {
            let _ = write!(text, "\nused before for: {} (`use`: {})", plan.query, plan.plan_id);
        }
        if let Some(run_id) = &self.run_id {
            let _ = write!(text, "\nrun_id: {run_id}");
        }
        text
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// Fails unless the caller has a right.
pub fn require(who: &Principal, right: Right) -> Result<(), Error> {
    if who.may(right) {
        return Ok(());
    }
    let message = format!("`{}` may not do this: it needs `{}`", who.name, right.as_str());
    Err(Error::forbidden(message))
}

/// Fails unless the caller has a right; says for which action it is needed, and what else is possible.
pub(super) fn require_for(
    who: &Principal,
    right: Right,
    action: &str,
    instead: &str,
) -> Result<(), Error> {
    if who.may(right) {
        return Ok(());
    }
    let message =
        format!("`{}` may not {action}: it needs `{}`; {instead}", who.name, right.as_str());
    Err(Error::forbidden(message))
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Error {
        let message = error.to_string();
        match error {
            StoreError::Unknown { .. } => Error::not_found(message),
            StoreError::Ended { run_id, .. } => {
                Error::new(ErrorKind::Finished, Code::Conflict, message).of_run(&run_id)
            }
            StoreError::Owned { run_id, .. }
            | StoreError::Fenced { run_id, .. }
            | StoreError::Lost { run_id, .. }
            | StoreError::SetAside { run_id, .. } => Error::run_conflict(message).of_run(&run_id),
            StoreError::Unavailable { .. } => {
                Error::new(ErrorKind::Unavailable, Code::Unreachable, message)
            }
            StoreError::Damaged { run_id, .. } | StoreError::PlanUnavailable { run_id, .. } => {
                Error::internal(message).of_run(&run_id)
            }
            StoreError::Changed { .. } => Error::conflict(message),
            StoreError::Broken { .. }
            | StoreError::DamagedItem { .. }
            | StoreError::Truncated { .. } => Error::internal(message),
        }
    }
}

impl From<EngineError> for Error {
    fn from(error: EngineError) -> Error {
        let message = error.to_string();
        match error {
            EngineError::Store(error) => error.into(),
            EngineError::Stopped { run_id, .. } => {
                Error::new(ErrorKind::Unavailable, Code::Unreachable, message)
                    .of_run(&run_id)
                    .help("nothing is lost: the run goes on from its journal")
            }
            EngineError::DefinitionChanged { .. } => {
                Error::new(ErrorKind::RunConflict, Code::DefinitionChanged, message)
            }
            EngineError::NewerEngine { .. } => {
                Error::new(ErrorKind::RunConflict, Code::Unsupported, message)
            }
            EngineError::NotStored { .. } => Error::invalid(message).help(
                "send it to a server that drives runs itself: `segue serve` without `--no-drive`",
            ),
            EngineError::NotReceived { run_id } => Error::run_conflict(message).of_run(&run_id),
            EngineError::MissingTool { .. } => {
                Error::new(ErrorKind::RunConflict, Code::UnknownTool, message)
            }
            EngineError::UnknownTool { nearest, .. } => {
                let error = Error::not_found(message);
                match nearest {
                    Some(near) => error.help(format!("did you mean `{near}`?")),
                    None => error,
                }
            }
            EngineError::Arguments { .. } => {
                Error::new(ErrorKind::Invalid, Code::InputSchema, message)
            }
            EngineError::Tool(error) => {
                let code = match error {
                    ToolError::Refused { code, .. } => code,
                    ToolError::Unreachable { .. } => Code::Unreachable,
                    ToolError::NoAnswer { .. } => Code::ToolError,
                };
                Error::new(ErrorKind::Upstream, code, message)
            }
        }
    }
}

impl From<LibraryError> for Error {
    fn from(error: LibraryError) -> Error {
        let message = error.to_string();
        match error {
            LibraryError::Unknown(_) => Error::not_found(message),
            LibraryError::NameTaken { id, may_replace: true } => {
                let message = format!("there is a template `{id}` already");
                Error::conflict(message)
                    .help("`PUT` replaces it; with GraphQL and MCP, `replace: true`")
            }
            LibraryError::NameTaken { .. } | LibraryError::ShippedTemplate(_) => {
                Error::conflict(message)
            }
            LibraryError::InvalidTemplate { text, diagnostics } => {
                Error::findings(&text, &diagnostics)
            }
            LibraryError::Store(error) => error.into(),
        }
    }
}

impl From<PlanningError> for Error {
    fn from(error: PlanningError) -> Error {
        let (code, message, help) = (error.code(), error.to_string(), error.help());
        let error = match error {
            PlanningError::NoModel => Error::new(ErrorKind::Conflict, code, message),
            PlanningError::Unplanned(unplanned) => {
                let kind = match code {
                    Code::Llm => ErrorKind::Upstream,
                    Code::Limit => ErrorKind::TooLarge,
                    _ => ErrorKind::Invalid,
                };
                let mut error = Error::new(kind, code, message);
                let findings = unplanned.findings.into_iter();
                let errors = findings.map(|f| ErrorView::check(f.code, f.message, f.help));
                error.details.errors = errors.collect();
                error
            }
            PlanningError::NoPlanFor(_) | PlanningError::NotFound(_) => {
                return Error::not_found(message);
            }
            PlanningError::Executed { state: PlanState::InProgress, run_id, .. } => {
                return Error::conflict(message).of_run(&run_id);
            }
            PlanningError::Executed { run_id, .. } => {
                let help = "with `again` the plan is executed again";
                return Error::conflict(message).of_run(&run_id).help(help);
            }
            PlanningError::InvalidPlan { text, findings, .. } => {
                let mut error = Error::findings(&text, &findings);
                (error.details.message, error.details.title) = (message, None);
                return error.help("ask for another version of it");
            }
            PlanningError::Engine(error) => return error.into(),
        };
        match help {
            Some(help) => error.help(help),
            None => error,
        }
    }
}
