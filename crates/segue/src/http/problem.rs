//! Problem documents (RFC 9457): the errors of REST and of the HTTP server, made from the service's in one
//! place.

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use segue_core::diagnostic::{Code, DiagnosticView};
use segue_core::view::ErrorView;
use serde::Serialize;

use crate::api::error::{Details, Error, ErrorKind};
use crate::api::files::CurrentText;
use crate::api::plans::PlanOffer;
use crate::api::session::SignInMethods;

/// The media type of problems.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// A problem document.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Problem")]
pub struct ProblemView {
    /// `urn:segue:error:` and the code.
    #[serde(rename = "type")]
    pub kind: String,
    /// What the code means.
    pub title: &'static str,
    /// The status of the response.
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
    /// The id of the request: its `X-Request-Id`, or the one that the server gave it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Every finding about a composition.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub diagnostics: Vec<DiagnosticView>,
    /// Why a run could not start.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<ErrorView>,
    /// Earlier plans that succeeded for similar words, when no plan could be made.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub used_before: Vec<PlanOffer>,
    /// What a file holds on disk, when the request expects another text.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub current: Option<CurrentText>,
    /// The ways to sign in, when the caller has to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sign_in: Option<SignInMethods>,
}

/// A problem with its headers, which becomes a response.
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
            current: None,
            sign_in: None,
        };
        Problem { view: Box::new(view), status, headers: Vec::new() }
    }

    /// Something that the request names does not exist.
    pub fn not_found(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::NOT_FOUND, Code::NotFound, detail)
    }

    /// Adds what to do.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Problem {
        self.view.help = Some(help.into());
        self
    }

    /// Adds the ways to sign in.
    #[must_use]
    pub fn sign_in(mut self, methods: SignInMethods) -> Problem {
        self.view.sign_in = Some(methods);
        self
    }

    /// Adds a header to the response.
    #[must_use]
    pub fn with(mut self, name: HeaderName, value: &'static str) -> Problem {
        self.headers.push((name, HeaderValue::from_static(value)));
        self
    }

    /// Adds a header with this text; one that cannot be sent is left out.
    #[must_use]
    pub fn with_text(mut self, name: HeaderName, text: &str) -> Problem {
        self.headers.extend(HeaderValue::from_str(text).ok().map(|value| (name, value)));
        self
    }

    /// Adds the methods of the path.
    #[must_use]
    pub fn allowing(self, methods: &str) -> Problem {
        self.with_text(header::ALLOW, methods)
    }

    /// Closes the connection after the response, because the rest of the request is not read.
    #[must_use]
    pub fn closing(self) -> Problem {
        self.with(header::CONNECTION, "close")
    }

    /// The status of the response.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The document.
    pub fn view(&self) -> &ProblemView {
        &self.view
    }
}

/// Adds the id of the request to a response that is a problem. Only the request log knows it.
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

/// The status of an error of the service.
pub fn status(kind: ErrorKind) -> StatusCode {
    match kind {
        ErrorKind::Malformed => StatusCode::BAD_REQUEST,
        ErrorKind::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
        ErrorKind::Forbidden => StatusCode::FORBIDDEN,
        ErrorKind::NotFound => StatusCode::NOT_FOUND,
        ErrorKind::Precondition => StatusCode::PRECONDITION_FAILED,
        ErrorKind::Conflict | ErrorKind::RunConflict | ErrorKind::Finished => StatusCode::CONFLICT,
        ErrorKind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        ErrorKind::Busy | ErrorKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        ErrorKind::Upstream => StatusCode::BAD_GATEWAY,
        ErrorKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Problem {
        let Details {
            kind,
            code,
            message,
            help,
            run_id,
            diagnostics,
            errors,
            used_before,
            current,
            ..
        } = error.into_details();
        let mut problem = Problem::new(status(kind), code, message);
        problem.view.help = help;
        problem.view.run_id = run_id.map(|run_id| run_id.to_string());
        problem.view.diagnostics = diagnostics;
        problem.view.errors = errors;
        problem.view.used_before = used_before;
        problem.view.current = current;
        match kind {
            ErrorKind::Forbidden => {
                problem.with(header::WWW_AUTHENTICATE, r#"Bearer error="insufficient_scope""#)
            }
            ErrorKind::Busy | ErrorKind::Unavailable => problem.with(header::RETRY_AFTER, "1"),
            ErrorKind::Malformed
            | ErrorKind::Invalid
            | ErrorKind::NotFound
            | ErrorKind::Conflict
            | ErrorKind::Precondition
            | ErrorKind::RunConflict
            | ErrorKind::Finished
            | ErrorKind::TooLarge
            | ErrorKind::Upstream
            | ErrorKind::Internal => problem,
        }
    }
}
