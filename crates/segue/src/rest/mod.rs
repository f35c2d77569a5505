//! REST: resources over HTTP.
//!
//! ```text
//! routes.rs                                 the table: method, path, right, handler, documentation
//! compositions, templates, plans, runs,
//! events, tools, server .rs                 one file per resource: read a request, call the service, answer
//! openapi.rs, docs_page.rs                  the tables of routes for programs and for people
//! ```

#![allow(
    clippy::unnecessary_wraps,
    reason = "handlers have one shape, also those that cannot fail"
)]

mod compositions;
mod docs_page;
mod events;
pub mod openapi;
mod plans;
pub mod routes;
mod runs;
mod server;
mod templates;
mod tools;

use std::sync::Arc;

use axum::Router;

use crate::http::request::HandlerState;
use crate::http::route::mount;
use routes::ROUTES;

/// The router of every route of the table.
pub fn router(state: &Arc<HandlerState>) -> Router {
    mount(ROUTES, state)
}
