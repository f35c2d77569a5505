//! The HTTP server: connections, timeouts, authentication, and how a request finds its handler.
//!
//! ```text
//! acceptor.rs, connections.rs,      TCP and TLS connections: how many, how slow, and how they end
//!   write_timeout.rs
//! auth/                             each request: host, origin, token, size of the body
//! request_log.rs                    request ids, metrics and the log of requests
//! route.rs, request.rs, problem.rs  tables of routes; a request to a handler; errors
//! public.rs                         which requests need no token
//! readiness.rs                      whether the store can be written
//! ```
//!
//! The surfaces are routers that `server.rs` puts behind it.

pub mod acceptor;
pub mod auth;
mod connections;
pub mod problem;
pub mod public;
pub mod readiness;
pub mod request;
mod request_log;
pub mod route;
mod write_timeout;

pub use acceptor::{bind, tls};
