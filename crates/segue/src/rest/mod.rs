//! REST: resources over HTTP.
//!
//! ```text
//! routes.rs, run_routes.rs,                 the tables: method, path, right, handler, documentation
//!   page_routes.rs, file_routes.rs,
//!   language_routes.rs
//! compositions, templates, plans, runs,
//! run_parts, events, tools, files, language, session,        one file per resource: read a request, call the service, answer
//! installation, server .rs
//! openapi.rs, docs_page.rs                  the tables of routes for programs and for people
//! ```

#![allow(
    clippy::unnecessary_wraps,
    reason = "handlers have one shape, also those that cannot fail"
)]

mod compositions;
mod docs_page;
mod events;
pub mod file_routes;
mod files;
mod installation;
mod language;
pub mod language_routes;
pub mod openapi;
pub mod page_routes;
mod plans;
pub mod routes;
mod run_parts;
mod run_routes;
mod runs;
mod server;
mod session;
mod templates;
mod tools;

use std::sync::Arc;

use axum::Router;

use crate::http::request::HandlerState;
use crate::http::route::mount;
use routes::ROUTES;

/// The router of every route of the tables.
pub fn router(state: &Arc<HandlerState>) -> Router {
    let tables = [page_routes::ROUTES, file_routes::ROUTES, language_routes::ROUTES];
    tables.iter().fold(mount(ROUTES, state), |router, table| router.merge(mount(table, state)))
}
