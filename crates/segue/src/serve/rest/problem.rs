//! What went wrong, as RFC 9457 has it.

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use segue_core::diagnostic::{Code, Diagnostic, DiagnosticView, Severity};
use segue_core::planner::PlanState;
use segue_core::source::Source;
use segue_core::view::ErrorView;
use segue_runtime::engine::{EngineError, PlanningError};
use segue_runtime::library::LibraryError;
use segue_runtime::store::StoreError;
use serde::Serialize;

use crate::serve::acting::Unacted;
use crate::serve::executing::Unexecuted;
use crate::serve::execution::Undescribed;
use crate::serve::following::Unfollowed;
use crate::serve::keys::Unclaimed;
use crate::serve::plans::{PlanOffer, Unbegun, Unmade, Unwritten};

/// The media type of problems.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// What is sent of a problem.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Problem")]
pub struct ProblemView {
    /// `urn:segue:error:` and the code.
    #[serde(rename = "type")]
    pub kind: String,
    /// What the code means.
    pub title: &'static str,
    /// The status of the answer.
    pub status: u16,
    /// What went wrong this time.
    pub detail: String,
    /// What kind of error; each has a page in the manual.
    pub code: Code,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    /// The run that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// The request that it answers: its `X-Request-Id`, or the one that it was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Every finding about a composition.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub diagnostics: Vec<DiagnosticView>,
    /// Why a run could not begin.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<ErrorView>,
    /// Plans that worked for words like those that none was made of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub used_before: Vec<PlanOffer>,
}

/// A problem, on its way to become an answer.
#[derive(Debug)]
pub struct Problem {
    view: Box<ProblemView>,
    status: StatusCode,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Problem {
    /// A problem of this kind.
    pub fn new(status: StatusCode, code: Code, detail: impl Into<String>) -> Problem {
        let view = ProblemView {
            kind: format!("urn:segue:error:{code}"),
            title: code.summary(),
            status: status.as_u16(),
            detail: detail.into(),
            code,
            help: None,
            run_id: None,
            request_id: None,
            diagnostics: Vec::new(),
            errors: Vec::new(),
            used_before: Vec::new(),
        };
        Problem { view: Box::new(view), status, headers: Vec::new() }
    }

    /// Something that was named is not there.
    pub fn not_found(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::NOT_FOUND, Code::NotFound, detail)
    }

    /// A right is missing.
    pub fn forbidden(detail: impl Into<String>) -> Problem {
        let problem = Problem::new(StatusCode::FORBIDDEN, Code::Unauthorized, detail);
        problem.with(header::WWW_AUTHENTICATE, r#"Bearer error="insufficient_scope""#)
    }

    /// A request that can be read and makes no sense.
    pub fn wrong(code: Code, detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, code, detail)
    }

    /// Something is not as the request supposes.
    pub fn conflict(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::CONFLICT, Code::Conflict, detail)
    }

    /// Too much is going on.
    pub fn busy(detail: impl Into<String>) -> Problem {
        let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, Code::Limit, detail);
        problem.with(header::RETRY_AFTER, "1")
    }

    /// Our own code panicked.
    pub fn panicked() -> Problem {
        let detail = "Segue itself failed, which is a defect of it; its log says where";
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, Code::Internal, detail)
    }

    /// Why a run could not begin.
    pub fn refused(errors: Vec<ErrorView>) -> Problem {
        let (code, detail) = errors
            .first()
            .map_or((Code::Internal, String::new()), |error| (error.code, error.message.clone()));
        let help = match code {
            Code::InputSchema => Some("`input` of the request is what the run is given"),
            Code::PolicyViolation => Some("`context` of the request is what its caller brings"),
            _ => None,
        };
        let mut problem = Problem::wrong(code, detail);
        problem.view.help = help.map(str::to_owned);
        problem.view.errors = errors;
        problem
    }

    /// Everything that is wrong with a composition.
    pub fn findings(source: &Source, findings: &[Diagnostic]) -> Problem {
        let mut errors = findings.iter().filter(|finding| finding.severity == Severity::Error);
        let first = errors.next();
        let code = first.map_or(Code::Parse, |finding| finding.code);
        let message = first.map_or("it cannot be read", |finding| &*finding.message);
        let detail = match errors.count() {
            0 => message.to_owned(),
            more => format!("there are {} mistakes; the first one: {message}", more + 1),
        };
        let mut problem = Problem::wrong(code, detail);
        problem.view.diagnostics = findings.iter().map(|finding| finding.view(source)).collect();
        problem
    }

    /// Says what to do.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Problem {
        self.view.help = Some(help.into());
        self
    }

    /// Names the run that it is about.
    #[must_use]
    pub fn of_run(mut self, run_id: &str) -> Problem {
        self.view.run_id = Some(run_id.to_owned());
        self
    }

    /// Adds a header to the answer.
    #[must_use]
    pub fn with(mut self, name: HeaderName, value: &'static str) -> Problem {
        self.headers.push((name, HeaderValue::from_static(value)));
        self
    }

    /// Adds a header whose text is made up here; one that cannot be sent is left out.
    #[must_use]
    pub fn with_text(mut self, name: HeaderName, text: &str) -> Problem {
        self.headers.extend(HeaderValue::from_str(text).ok().map(|value| (name, value)));
        self
    }

    /// Says which methods a path has.
    #[must_use]
    pub fn allowing(self, methods: &str) -> Problem {
        self.with_text(header::ALLOW, methods)
    }

    /// Ends the connection with the answer, because the rest of the request is not read.
    #[must_use]
    pub fn closing(self) -> Problem {
        self.with(header::CONNECTION, "close")
    }

    /// The status of the answer.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// What is said of it.
    pub fn view(&self) -> &ProblemView {
        &self.view
    }
}

/// Writes into a problem, if this is one, which request it answers. Whoever makes a problem does not
/// know; the door does.
pub fn name_request(response: &mut Response, request_id: &str) {
    if let Some(mut view) = response.extensions_mut().remove::<ProblemView>() {
        view.request_id = Some(request_id.to_owned());
        *response.body_mut() = Body::from(serde_json::to_string(&view).unwrap_or_default());
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = serde_json::to_string(&self.view).unwrap_or_default();
        let mut response = Response::new(Body::from(body));
        response.extensions_mut().insert(*self.view);
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        headers.extend(self.headers);
        response
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Problem {
        let detail = error.to_string();
        match error {
            StoreError::Unknown { .. } => Problem::not_found(detail),
            StoreError::Owned { run_id, .. }
            | StoreError::Ended { run_id, .. }
            | StoreError::Fenced { run_id, .. }
            | StoreError::Lost { run_id, .. }
            | StoreError::SetAside { run_id, .. } => Problem::conflict(detail).of_run(&run_id),
            StoreError::Unavailable { .. } => {
                Problem::new(StatusCode::SERVICE_UNAVAILABLE, Code::Unreachable, detail)
                    .with(header::RETRY_AFTER, "1")
            }
            StoreError::Damaged { run_id, .. } | StoreError::PlanUnavailable { run_id, .. } => {
                Problem::new(StatusCode::INTERNAL_SERVER_ERROR, Code::Internal, detail)
                    .of_run(&run_id)
            }
            StoreError::Changed { .. } => Problem::conflict(detail),
            StoreError::Broken { .. }
            | StoreError::DamagedItem { .. }
            | StoreError::Truncated { .. } => {
                Problem::new(StatusCode::INTERNAL_SERVER_ERROR, Code::Internal, detail)
            }
        }
    }
}

impl From<EngineError> for Problem {
    fn from(error: EngineError) -> Problem {
        let detail = error.to_string();
        match error {
            EngineError::Store(error) => error.into(),
            EngineError::Stopped { run_id, .. } => {
                Problem::new(StatusCode::SERVICE_UNAVAILABLE, Code::Unreachable, detail)
                    .of_run(&run_id)
                    .help("nothing is lost: the run goes on from its journal")
                    .with(header::RETRY_AFTER, "1")
            }
            EngineError::DefinitionChanged { .. } => {
                Problem::new(StatusCode::CONFLICT, Code::DefinitionChanged, detail)
            }
            EngineError::NotReceived { run_id } => Problem::conflict(detail).of_run(&run_id),
            EngineError::MissingTool { .. } => {
                Problem::new(StatusCode::CONFLICT, Code::UnknownTool, detail)
            }
            EngineError::UnknownTool { nearest, .. } => {
                let problem = Problem::not_found(detail);
                match nearest {
                    Some(near) => problem.help(format!("did you mean `{near}`?")),
                    None => problem,
                }
            }
            EngineError::Arguments { .. } => Problem::wrong(Code::InputSchema, detail),
            EngineError::Tool(_) => Problem::new(StatusCode::BAD_GATEWAY, Code::ToolError, detail),
        }
    }
}

impl From<Undescribed> for Problem {
    fn from(error: Undescribed) -> Problem {
        match error {
            Undescribed::Wrong(detail) => Problem::wrong(Code::InvalidField, detail),
            Undescribed::Unknown(detail) => Problem::not_found(detail),
            Undescribed::Forbidden(detail) => Problem::forbidden(detail),
            Undescribed::Library(error) => error.into(),
            Undescribed::Findings { source, diagnostics } => {
                Problem::findings(&source, &diagnostics)
            }
        }
    }
}

impl From<LibraryError> for Problem {
    fn from(error: LibraryError) -> Problem {
        let detail = error.to_string();
        match error {
            LibraryError::Unknown(_) => Problem::not_found(detail),
            LibraryError::NameTaken { id, may_replace: true } => {
                let detail = format!("there is a template `{id}` already");
                Problem::conflict(detail).help("`PUT` replaces it; with GraphQL, `replace: true`")
            }
            LibraryError::NameTaken { .. } | LibraryError::ShippedTemplate(_) => {
                Problem::conflict(detail)
            }
            LibraryError::InvalidTemplate { text, diagnostics } => {
                Problem::findings(&text, &diagnostics)
            }
            LibraryError::Store(error) => error.into(),
        }
    }
}

impl From<Unacted> for Problem {
    fn from(error: Unacted) -> Problem {
        match error {
            Unacted::Engine(error) => error.into(),
            Unacted::Unasked(run_id) => {
                Problem::conflict("nothing of this kind is asked in this run").of_run(&run_id)
            }
            Unacted::Several(run_id, steps) => {
                let steps: Vec<String> = steps.iter().map(|step| format!("`{step}`")).collect();
                let detail = format!("several steps ask: {}", steps.join(", "));
                Problem::conflict(detail).help("`step` says which is meant").of_run(&run_id)
            }
            Unacted::Misfit(misfit) => Problem::wrong(Code::InputSchema, misfit),
            Unacted::Lost => {
                let detail = "the run could not be acted on";
                Problem::new(StatusCode::INTERNAL_SERVER_ERROR, Code::Internal, detail)
            }
        }
    }
}

impl From<PlanningError> for Problem {
    fn from(error: PlanningError) -> Problem {
        let (code, detail, help) = (error.code(), error.to_string(), error.help());
        let problem = match error {
            PlanningError::NoModel => Problem::new(StatusCode::CONFLICT, code, detail),
            PlanningError::Unplanned(unplanned) => {
                let status = match code {
                    Code::Llm => StatusCode::BAD_GATEWAY,
                    Code::Limit => StatusCode::PAYLOAD_TOO_LARGE,
                    _ => StatusCode::UNPROCESSABLE_ENTITY,
                };
                let mut problem = Problem::new(status, code, detail);
                let findings = unplanned.findings.into_iter();
                let errors = findings.map(|f| ErrorView::check(f.code, f.message, f.help));
                problem.view.errors = errors.collect();
                problem
            }
            PlanningError::NoPlanFor(_) | PlanningError::NotFound(_) => {
                return Problem::not_found(detail);
            }
            PlanningError::Executed { state: PlanState::InProgress, run_id, .. } => {
                return Problem::conflict(detail).of_run(&run_id);
            }
            PlanningError::Executed { run_id, .. } => {
                let help = "`again` executes it once more";
                return Problem::conflict(detail).of_run(&run_id).help(help);
            }
            PlanningError::InvalidPlan { text, findings, .. } => {
                let mut problem = Problem::findings(&text, &findings);
                problem.view.detail = detail;
                return problem.help("ask for another version of it");
            }
            PlanningError::Engine(error) => return error.into(),
        };
        match help {
            Some(help) => problem.help(help),
            None => problem,
        }
    }
}

impl From<Unmade> for Problem {
    fn from(Unmade { error, used_before }: Unmade) -> Problem {
        let mut problem = Problem::from(error);
        problem.view.used_before = used_before;
        problem
    }
}

impl From<Unbegun> for Problem {
    fn from(error: Unbegun) -> Problem {
        match error {
            Unbegun::Plan(error) => error.into(),
            Unbegun::Busy(detail) => Problem::busy(detail),
            Unbegun::Engine(error) => error.into(),
        }
    }
}

impl From<Unclaimed> for Problem {
    fn from(error: Unclaimed) -> Problem {
        match error {
            Unclaimed::Unfit { chars_max } => {
                let detail = format!("`Idempotency-Key` has 1 to {chars_max} characters");
                Problem::wrong(Code::InvalidField, detail)
            }
            Unclaimed::Taken => {
                let detail = "this `Idempotency-Key` came with another body before";
                Problem::wrong(Code::Conflict, detail)
            }
            Unclaimed::Store(error) => error.into(),
        }
    }
}

impl From<Unexecuted> for Problem {
    fn from(error: Unexecuted) -> Problem {
        match error {
            Unexecuted::Undescribed(error) => error.into(),
            Unexecuted::Refused(errors) => Problem::refused(errors),
            Unexecuted::Unclaimed(error) => error.into(),
            Unexecuted::Unbegun(error) => error.into(),
            Unexecuted::Engine(error) => error.into(),
        }
    }
}

impl From<Unwritten> for Problem {
    fn from(error: Unwritten) -> Problem {
        match error {
            Unwritten::Name(name) => {
                let detail = format!("`{name}` cannot name a composition");
                let help = "small letters, digits, `-` and `_`, at most 64";
                Problem::wrong(Code::InvalidField, detail).help(help)
            }
            Unwritten::Plan => {
                let detail = "the plan cannot be written as a composition";
                Problem::wrong(Code::Conversion, detail)
            }
        }
    }
}

impl From<Unfollowed> for Problem {
    fn from(error: Unfollowed) -> Problem {
        match error {
            Unfollowed::Full => Problem::busy("too many follow runs (`served_streams_max`)"),
            Unfollowed::Engine(error) => error.into(),
            Unfollowed::Lost => {
                let detail = "the journal could not be read";
                Problem::new(StatusCode::INTERNAL_SERVER_ERROR, Code::Internal, detail)
            }
        }
    }
}
