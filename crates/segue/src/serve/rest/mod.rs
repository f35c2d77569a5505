//! The door for programs: resources over HTTP.
//!
//! ```text
//! routes.rs ── one table: method, path, right, handler, documentation
//!     └─ visit.rs                                a request, held against its row of the table
//!          └─ compositions, templates, plans, runs, events, tools, server .rs    one file per resource
//! shapes.rs, problem.rs, openapi.rs, page.rs     what is asked and answered; the table for readers
//! ```
//!
//! The router, the OpenAPI document and the tests of who may do what are made from the table, so none of
//! them can know a route that the others do not.

#![allow(
    clippy::unnecessary_wraps,
    reason = "handlers have one shape, also those that cannot fail"
)]

mod compositions;
mod events;
pub mod openapi;
mod page;
mod plans;
pub mod problem;
pub mod routes;
mod runs;
mod server;
pub mod shapes;
mod templates;
mod tools;
pub mod visit;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::{RawPathParams, Request};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use segue_core::access::{Principal, Right};
use segue_core::diagnostic::Code;
use segue_core::schema::Schema;
use segue_core::value::Value;
use tokio::sync::watch;

use super::audit;
use super::following::Followers;
use super::hall::Hall;
use super::http::Resource;
use super::threads::Panicked;
use crate::observe::RequestOrigin;
use problem::Problem;
use routes::{Handler, ROUTES, Route, Verb};
use server::RunId;
use visit::{Answer, Visit};

/// What the door works with.
pub struct Rest {
    /// The hall.
    pub hall: Arc<Hall>,
    /// What we are to those who look for somebody to give them a token.
    pub resource: Resource,
    /// Who follows runs.
    pub followers: Arc<Followers>,
    readiness: server::Writable,
    /// What bodies are held against, by the name of their route.
    bodies: BTreeMap<&'static str, Schema>,
}

impl Rest {
    /// A door to a hall.
    pub fn new(hall: Arc<Hall>, resource: Resource, leaving: watch::Receiver<bool>) -> Rest {
        let followers = Followers::new(hall.clone(), leaving);
        let bodies = ROUTES.iter().filter_map(|route| Some((route.name, openapi::checked(route)?)));
        let bodies = bodies.collect();
        Rest { hall, resource, followers, readiness: server::Writable::default(), bodies }
    }

    /// What is wrong with a body of the route of this name.
    pub(super) fn fits(&self, route: &str, body: &Value) -> Result<(), Problem> {
        self.bodies.get(route).map_or(Ok(()), |schema| visit::fits(schema, body))
    }

    /// Every route of the table that is answered here.
    pub fn router(self) -> Router {
        let rest = Arc::new(self);
        let mut paths: Vec<&'static str> =
            ROUTES.iter().filter(|route| route.is_ours()).map(|route| route.path).collect();
        paths.dedup();
        let mut router = Router::new();
        for path in paths {
            let rest = rest.clone();
            let answer = move |params: Result<RawPathParams, _>, request: Request| async move {
                match params {
                    Ok(params) => answer(rest, path, &params, request).await,
                    Err(_) => not_found().await,
                }
            };
            router = router.route(path, any(answer));
        }
        router
    }
}

/// Nothing is at this path.
pub async fn not_found() -> Response {
    Problem::not_found("there is nothing at this path")
        .help("`/docs` says what there is")
        .into_response()
}

/// Whether somebody may do what a row of the table does.
pub fn allow(route: &Route, who: &Principal) -> Result<(), Problem> {
    may(who, route.right)
}

/// Whether somebody has a right.
pub fn may(who: &Principal, right: Right) -> Result<(), Problem> {
    if who.may(right) {
        return Ok(());
    }
    let detail = format!("`{}` may not do this: it needs `{}`", who.name, right.as_str());
    Err(Problem::forbidden(detail))
}

/// The row of the table for a method at a path; the error says which methods there are.
pub fn row(path: &str, method: &Method) -> Result<&'static Route, Problem> {
    let at_path = || ROUTES.iter().filter(|route| route.path == path);
    if let Some(route) = at_path().find(|route| route.verb.answers(method)) {
        return Ok(route);
    }
    let mut allowed: Vec<&str> = at_path().map(|route| route.verb.as_str()).collect();
    if at_path().any(|route| route.verb == Verb::Get) {
        allowed.push("HEAD");
    }
    let detail = format!("`{method}` is not for this path");
    let problem = Problem::new(StatusCode::METHOD_NOT_ALLOWED, Code::InvalidField, detail);
    Err(problem.allowing(&allowed.join(", ")))
}

/// The row of the table that an answer belongs to, for those who count.
#[derive(Clone, Copy)]
pub struct Answered(pub &'static Route);

async fn answer(rest: Arc<Rest>, path: &str, params: &RawPathParams, request: Request) -> Response {
    let route = match row(path, request.method()) {
        Ok(route) => route,
        Err(problem) => return problem.into_response(),
    };
    let who = request.extensions().get::<Principal>().cloned().unwrap_or_else(Principal::anonymous);
    let origin = request.extensions().get::<RequestOrigin>().cloned().unwrap_or_default();
    let asked = request.uri().path().to_owned();
    let answered = answered(rest, route, params, who.clone(), request).await;
    let mut response = answered.unwrap_or_else(IntoResponse::into_response);
    response.extensions_mut().insert(Answered(route));
    if route.is_audited() {
        let run_id = response.extensions().get::<RunId>().map(|RunId(run_id)| &**run_id);
        let status = audit::Status::Code(response.status().as_u16());
        audit::tell(&who, route.name, &asked, run_id, status, origin.request_id.as_deref());
    }
    response
}

async fn answered(
    rest: Arc<Rest>,
    route: &'static Route,
    params: &RawPathParams,
    who: Principal,
    request: Request,
) -> Answer {
    allow(route, &who)?;
    let path = params.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let threads = rest.hall.threads().clone();
    let visit = Visit::new(rest, route, path, who, request);
    match route.handler {
        Handler::Now(handler) => handler(&visit.await?),
        Handler::Soon(handler) => handler(visit.await?).await,
        Handler::Later(handler) => {
            let answered = threads.answer(async move { handler(visit.await?).await }).await;
            answered.unwrap_or_else(|Panicked| Err(Problem::panicked()))
        }
        Handler::Elsewhere => Ok(not_found().await),
    }
}
