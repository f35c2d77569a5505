//! The outermost crate: the command line, and the servers over HTTP and MCP.
//!
//! A command or a request is translated, makes one call of the engine, and its result is translated
//! back. `app` makes the engine from configuration.

mod app;
pub mod cli;
pub mod config;
pub mod observe;
pub mod print;
pub mod serve;
pub mod step_events;
