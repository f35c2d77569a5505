//! The part of Segue that speaks: the command line, and the servers for clients.
//!
//! A command or a handler reads a request, makes one call of the service or the engine, and translates the
//! result. `rest`, `graphql` and `mcp` call `api`, which knows none of them; `server` puts the three behind
//! one `http` server.

pub mod api;
pub mod cli;
pub mod config;
pub mod graphql;
pub mod http;
pub mod mcp;
pub mod observe;
pub mod print;
pub mod rest;
pub mod server;
pub mod step_events;
