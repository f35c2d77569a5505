//! A row of the table of routes: method, path, right, handler and documentation, and how a request finds
//! its row.
//!
//! REST, GraphQL and MCP have a table each. The router, the OpenAPI document and the tests of rights are
//! made from the tables, so none of them can miss a route.

use std::sync::Arc;

use axum::Router;
use axum::extract::{RawPathParams, Request};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use futures_util::future::BoxFuture;
use schemars::{Schema, SchemaGenerator};
use segue_core::access::{Principal, Right};
use segue_core::diagnostic::Code;
use segue_core::limits::Limits;

use super::problem::Problem;
use super::request::{ApiRequest, HandlerResult, HandlerState};
use crate::api::audit;
use crate::api::error::{Error, require};
use crate::api::threads::Panicked;
use crate::observe::RequestOrigin;

/// The method of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Reads; `HEAD` is answered, too.
    Get,
    /// Acts.
    Post,
    /// Replaces.
    Put,
    /// Deletes.
    Delete,
}

impl Verb {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Verb::Get => "GET",
            Verb::Post => "POST",
            Verb::Put => "PUT",
            Verb::Delete => "DELETE",
        }
    }

    /// Whether it answers requests of this method.
    pub fn answers(self, method: &Method) -> bool {
        method.as_str() == self.as_str() || (self == Verb::Get && method == Method::HEAD)
    }
}

/// Makes the schema of a type, for documentation.
pub type SchemaFn = fn(&mut SchemaGenerator) -> Schema;

/// The function that answers.
#[derive(Clone, Copy)]
pub enum Handler {
    /// Answers at once, on the thread that serves connections.
    Inline(fn(&ApiRequest) -> HandlerResult),
    /// Answers in the pool of requests, where it may wait, compile and evaluate.
    Worker(fn(ApiRequest) -> BoxFuture<'static, HandlerResult>),
    /// Answers on the thread that serves connections, and may wait.
    InlineAsync(fn(ApiRequest) -> BoxFuture<'static, HandlerResult>),
    /// Another router, with the same authentication.
    External,
}

/// The values that a parameter takes.
#[derive(Clone, Copy)]
pub enum ParameterKind {
    /// Any text.
    Text,
    /// Any text; may be repeated.
    Texts,
    /// `true` or `false`.
    Flag,
    /// A whole number within bounds.
    Number(u64, u64),
    /// One of these words.
    Word(fn() -> Vec<&'static str>),
    /// Any of these words; may be repeated.
    Words(fn() -> Vec<&'static str>),
}

impl ParameterKind {
    /// Why a value does not fit.
    pub fn problem_with(self, value: &str) -> Option<String> {
        match self {
            ParameterKind::Text | ParameterKind::Texts => None,
            ParameterKind::Flag if matches!(value, "true" | "false") => None,
            ParameterKind::Flag => Some("is `true` or `false`".to_owned()),
            ParameterKind::Number(least, most) => {
                let fits = value.parse().is_ok_and(|number| (least..=most).contains(&number));
                (!fits).then(|| format!("is a whole number from {least} to {most}"))
            }
            ParameterKind::Word(words) | ParameterKind::Words(words) => {
                (!words().contains(&value)).then(|| format!("is one of {}", words().join(", ")))
            }
        }
    }
}

/// A parameter of a query.
#[derive(Clone, Copy)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// What it means.
    pub about: &'static str,
    /// Its values.
    pub kind: ParameterKind,
    /// Whether it is required.
    pub is_required: bool,
}

/// A limit: its name and its value.
pub type BodyLimit = (&'static str, fn(&Limits) -> usize);

/// The body of a request.
#[derive(Clone, Copy)]
pub struct BodySpec {
    /// Its schema.
    pub shape: SchemaFn,
    /// Whether it is required.
    pub is_required: bool,
    /// A limit beyond that of every body.
    pub limit: Option<BodyLimit>,
}

/// A response that is not a problem.
#[derive(Clone, Copy)]
pub struct ResponseSpec {
    /// Its status.
    pub status: u16,
    /// When it is sent.
    pub about: &'static str,
    /// Its content.
    pub content: ResponseContent,
}

/// The content of a response.
#[derive(Clone, Copy)]
pub enum ResponseContent {
    /// Nothing.
    Nothing,
    /// JSON of this shape.
    Json(SchemaFn),
    /// Anything of this media type.
    Other(&'static str),
}

/// A row of the table.
#[derive(Clone, Copy)]
pub struct Route {
    /// The method.
    pub verb: Verb,
    /// The path, with its parts in braces.
    pub path: &'static str,
    /// The right that the caller needs.
    pub right: Right,
    /// Its operation id.
    pub name: &'static str,
    /// What it does, in a line.
    pub about: &'static str,
    /// More about it.
    pub more: &'static str,
    /// Parameters of its query.
    pub parameters: &'static [Parameter],
    /// The headers that it reads.
    pub headers: &'static [(&'static str, &'static str)],
    /// The body of a request.
    pub body: Option<BodySpec>,
    /// The responses that are not problems.
    pub responses: &'static [ResponseSpec],
    /// The statuses of its own problems.
    pub problems: &'static [u16],
    /// The function that answers.
    pub handler: Handler,
}

impl Route {
    /// Whether it changes anything, and is written to the audit log.
    pub fn is_audited(&self) -> bool {
        self.verb != Verb::Get && self.right != Right::Read
    }

    /// Whether it has a handler here, and not in another router.
    pub fn has_handler(&self) -> bool {
        !matches!(self.handler, Handler::External)
    }

    /// The parameters of its path.
    pub fn parts(&self) -> impl Iterator<Item = &'static str> {
        self.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
    }
}

/// A row without documentation, parameters or a handler.
pub const fn route(verb: Verb, path: &'static str, right: Right, name: &'static str) -> Route {
    Route {
        verb,
        path,
        right,
        name,
        about: "",
        more: "",
        parameters: &[],
        headers: &[],
        body: None,
        responses: &[],
        problems: &[],
        handler: Handler::External,
    }
}

/// A body that is required.
pub const fn needed(shape: SchemaFn) -> BodySpec {
    BodySpec { shape, is_required: true, limit: None }
}

/// A body that may be absent.
pub const fn optional(shape: SchemaFn) -> BodySpec {
    BodySpec { shape, is_required: false, limit: None }
}

/// A response of JSON.
pub const fn json(status: u16, about: &'static str, shape: SchemaFn) -> ResponseSpec {
    ResponseSpec { status, about, content: ResponseContent::Json(shape) }
}

/// An optional parameter.
pub const fn parameter(name: &'static str, kind: ParameterKind, about: &'static str) -> Parameter {
    Parameter { name, about, kind, is_required: false }
}

/// The run that a response is about, for the audit log.
#[derive(Clone)]
pub struct RunId(pub Arc<str>);

/// The row that a response belongs to, for metrics and the request log.
#[derive(Clone, Copy)]
pub struct MatchedRoute(pub &'static Route);

/// A router for the rows of a table that have a handler.
pub fn mount(table: &'static [Route], state: &Arc<HandlerState>) -> Router {
    let mut paths: Vec<&'static str> =
        table.iter().filter(|route| route.has_handler()).map(|route| route.path).collect();
    paths.dedup();
    let mut router = Router::new();
    for path in paths {
        let state = state.clone();
        let handle = move |params: Result<RawPathParams, _>, request: Request| async move {
            match params {
                Ok(params) => handle(state, table, path, &params, request).await,
                Err(_) => not_found().await,
            }
        };
        router = router.route(path, any(handle));
    }
    router
}

/// The response when no route has the path.
pub async fn not_found() -> Response {
    Problem::not_found("there is nothing at this path")
        .help("`/docs` lists every path")
        .into_response()
}

/// The row for a method at a path; the error lists the methods of the path.
pub fn find(
    table: &'static [Route],
    path: &str,
    method: &Method,
) -> Result<&'static Route, Problem> {
    let at_path = || table.iter().filter(|route| route.path == path);
    if let Some(route) = at_path().find(|route| route.verb.answers(method)) {
        return Ok(route);
    }
    let mut allowed: Vec<&str> = at_path().map(|route| route.verb.as_str()).collect();
    if at_path().any(|route| route.verb == Verb::Get) {
        allowed.push("HEAD");
    }
    let allowed = allowed.join(", ");
    let detail = format!("`{method}` is not for this path; it takes {allowed}");
    let problem = Problem::new(StatusCode::METHOD_NOT_ALLOWED, Code::InvalidField, detail);
    Err(problem.allowing(&allowed))
}

/// The principal of a request, which the auth layer has found.
pub fn principal(request: &Request) -> Principal {
    request.extensions().get::<Principal>().cloned().unwrap_or_else(Principal::anonymous)
}

async fn handle(
    state: Arc<HandlerState>,
    table: &'static [Route],
    path: &str,
    params: &RawPathParams,
    request: Request,
) -> Response {
    let route = match find(table, path, request.method()) {
        Ok(route) => route,
        Err(problem) => return problem.into_response(),
    };
    let who = principal(&request);
    let origin = request.extensions().get::<RequestOrigin>().cloned().unwrap_or_default();
    let uri_path = request.uri().path().to_owned();
    let answered = call(state, route, params, who.clone(), request).await;
    let mut response = answered.unwrap_or_else(IntoResponse::into_response);
    response.extensions_mut().insert(MatchedRoute(route));
    if route.is_audited() {
        let run_id = response.extensions().get::<RunId>().map(|RunId(run_id)| &**run_id);
        let status = audit::Status::Code(response.status().as_u16());
        audit::log(&who, route.name, &uri_path, run_id, status, origin.request_id.as_deref());
    }
    response
}

async fn call(
    state: Arc<HandlerState>,
    route: &'static Route,
    params: &RawPathParams,
    who: Principal,
    request: Request,
) -> HandlerResult {
    require(&who, route.right)?;
    let path = params.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let threads = state.service.threads().clone();
    let request = move || ApiRequest::new(state, route, path, who, request);
    match route.handler {
        Handler::Inline(handler) => handler(&request()?),
        Handler::InlineAsync(handler) => handler(request()?).await,
        Handler::Worker(handler) => {
            let answered = threads.answer(async move { handler(request()?).await }).await;
            answered.unwrap_or_else(|Panicked| Err(Error::panicked().into()))
        }
        Handler::External => Ok(not_found().await),
    }
}

/// Checks the right of a request to a router that has no handlers here, such as that of MCP.
pub async fn check_right(table: &'static [Route], request: Request, next: Next) -> Response {
    let route = match find(table, request.uri().path(), request.method()) {
        Err(problem) => return problem.into_response(),
        Ok(route) => route,
    };
    let mut response = match require(&principal(&request), route.right) {
        Ok(()) => next.run(request).await,
        Err(error) => Problem::from(error).into_response(),
    };
    response.extensions_mut().insert(MatchedRoute(route));
    response
}
