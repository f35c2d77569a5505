//! The outermost crate: the command line, and the servers over HTTP and MCP.
//!
//! A command or a handler translates a request, makes one call of the service or the engine, and
//! translates the result. `lsp` serves editors from the core's language service. `rest`, `graphql` and `mcp` call `api`, which knows none of them; `server`
//! mounts them and the `page` on one `http` server. `app` makes the engine from the configuration.

pub mod api;
mod app;
pub mod cli;
pub mod config;
#[cfg(feature = "restate")]
pub mod dispatch;
pub mod graphql;
pub mod http;
mod lsp;
pub mod mcp;
pub mod observe;
pub mod page;
mod percent;
pub mod print;
pub mod rest;
pub mod server;
pub mod step_events;
