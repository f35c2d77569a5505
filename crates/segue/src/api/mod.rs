//! The service layer: every request of every surface, typed, and what the service does with it.
//!
//! ```text
//! requests.rs, responses.rs, error.rs   what is asked and answered; the one error
//! served.rs, catalog.rs                 what is served to whom; a composition as a tool
//! runs/                                 starting runs, finding them, acting on them, following them
//! documents.rs, plans.rs,               compositions of a request; plans from words; templates; tools
//!   templates.rs, tools.rs
//! compositions.rs,                      compositions with their text; their tests
//!   composition_tests.rs
//! files/, language/                     the files of compositions; the language service, for editors
//! session.rs                            the session of a browser
//! calls.rs, inbox.rs, installation.rs   one call of a tool; questions that wait; sources, checks, settings
//! questions.rs                          what a person is asked, and what an answer means
//! result.rs, content.rs                 a run as the result of a tool
//! threads.rs, audit.rs                  thread pools and panics; the audit log
//! ```
//!
//! REST, GraphQL and MCP read a request, call a function here, and translate what it returns. Nothing
//! here knows a protocol, so every surface does the same.

pub mod audit;
pub mod calls;
pub mod catalog;
pub mod composition_tests;
pub mod compositions;
pub mod content;
pub mod documents;
pub mod error;
pub mod files;
pub mod inbox;
pub mod installation;
pub mod language;
pub mod plans;
pub mod questions;
pub mod requests;
pub mod responses;
pub mod result;
pub mod runs;
pub mod served;
pub mod session;
pub mod templates;
pub mod threads;
pub mod tools;
