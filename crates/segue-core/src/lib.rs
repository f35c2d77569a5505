//! The pure part of Segue: text → composition → plan → run, without any I/O.
//!
//! No clock, no randomness, no files, no network, no threads: time and ids arrive in events, and
//! actions leave as effects. Everything here can be tested by calling a function.
//!
//! Read in the order of the data: [`compile`] → [`composition`] → [`plan`] → [`run`] → [`view`].
//!
//! `segue-runtime` drives runs with it. By itself the core checks and plans:
//!
//! ```
//! use std::sync::Arc;
//! use segue_core::catalog::Catalog;
//! use segue_core::compile::compile;
//! use segue_core::id::ToolId;
//! use segue_core::limits::Limits;
//! use segue_core::plan::plan;
//! use segue_core::schema::Schema;
//! use segue_core::source::Source;
//! use segue_core::tool::ToolSpec;
//!
//! let search = ToolSpec::new(ToolId::new("web", "search"), "Searches", Schema::any_object());
//! let catalog = Catalog::new([Arc::new(search)]);
//! let text = "name: find\nsteps:\n  - { id: hits, tool: search, parameters: { q: segue } }\n";
//! let compiled = compile(&Source::new("find.yaml", text), &catalog, &Limits::default());
//! let composition = compiled.composition.expect("it has no errors");
//! let plan = plan(&composition, &Limits::default()).expect("it is not too deep");
//! assert_eq!(plan.declared_calls()[0].tool.as_str(), "web:search");
//! ```

pub mod access;
mod budget;
pub mod catalog;
pub mod code_tools;
pub mod compile;
pub mod composition;
pub mod diagnostic;
pub mod document;
pub mod dry_run;
pub mod duration;
pub mod expose;
pub mod expr;
pub mod generate;
pub mod id;
pub mod inferred_schema;
pub mod language;
pub mod limits;
pub mod pattern;
pub mod plan;
pub mod planner;
pub mod result;
pub mod run;
pub mod schema;
pub mod secret;
pub mod source;
pub mod template;
pub mod testing;
pub mod toolset;
pub mod types;
pub mod value;
pub mod version;
pub mod view;

pub use budget::interrupt;
pub use composition::tool;

/// The version of the composition language that this Segue reads; a template's `min_version` is
/// compared with it. It grows with the language, not with each release.
pub const LANGUAGE_VERSION: semver::Version = semver::Version::new(1, 0, 0);
