//! The part of Segue that performs I/O: it calls tools, stores journals and drives runs.
//!
//! The core takes every decision. This crate turns its effects into calls and the results into
//! events.
//!
//! A program that embeds Segue holds one handle, [`engine::Engine`]. [`tools::local::LocalTool`] is
//! a tool written in Rust, [`confirm::Confirmer`] answers a run's questions, [`store::Store`] keeps
//! journals, [`wrap::Wrapper`] adds retries to a tool, and [`chains::Chains`] runs steps that the
//! program makes while it goes.
//!
//! ```
//! use segue_core::source::Source;
//! use segue_core::value::Value;
//! use segue_runtime::engine::{Engine, RunRequest};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let (engine, _) = Engine::builder().build();
//! let text = "name: sum\nsteps:\n  - { id: s, set: { n: '{{ 40 + 2 }}' } }\noutput: '{{ s.n }}'\n";
//! let (plan, findings) = engine.plan(&Source::new("sum.yaml", text));
//! let plan = plan.unwrap_or_else(|| panic!("{findings:?}"));
//! let view = engine.run(RunRequest::new(plan, Value::empty_object())).await.expect("no store fails");
//! assert_eq!(view.output, Value::from(42));
//! # }
//! ```

pub mod chains;
pub mod confirm;
pub mod driver;
mod dry_run_tools;
pub mod engine;
pub mod inject;
pub mod library;
pub mod llm;
pub mod recorder;
pub mod skills;
pub mod store;
pub mod tools;
pub mod wrap;

/// The embedding page of the manual; its examples are compiled and run as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/embedding.md")]
mod embedding {}
