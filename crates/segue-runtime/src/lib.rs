//! The part of Segue that acts: it calls tools, keeps journals and moves runs along.
//!
//! Every decision is the core's. This crate turns effects into calls and calls into events.
//!
//! For a program that embeds it: [`engine::Engine`] is the one handle. [`tools::local::LocalTool`] is a tool
//! in Rust, [`confirm::Confirmer`] answers questions, [`store::Store`] keeps journals,
//! [`wrap::Wrapper`] puts retries around a tool, and [`chains::Chains`] runs steps that are made on the way.
//!
//! ```
//! use segue_core::compile::source::Source;
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
pub mod store;
pub mod tools;
pub mod wrap;

/// The page about embedding, whose programs are compiled and run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/embedding.md")]
mod embedding {}
