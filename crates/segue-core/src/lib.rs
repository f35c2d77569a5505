//! The part of Segue that thinks: text → composition → plan → run, without any I/O.
//!
//! No clock, no randomness, no files, no network, no threads: time and ids arrive in events, and
//! what should be done leaves as effects. Everything here can be tested by calling a function.
//!
//! Read in the order of the data: [`compile`] → [`composition`] → [`plan`] → [`run`] → [`view`].

pub mod compile;
pub mod composition;
pub mod diagnostic;
pub mod expose;
pub mod expr;
pub mod id;
pub mod limits;
pub mod plan;
pub mod rehearsal;
pub mod result;
pub mod run;
pub mod schema;
pub mod shape;
pub mod template;
pub mod tool;
pub mod toolset;
pub mod types;
pub mod value;
pub mod view;

/// The version of the language of compositions that this Segue reads: what `min_version` of a
/// template is held against. It grows with what can be written, not with each release.
pub const LANGUAGE_VERSION: semver::Version = semver::Version::new(1, 0, 0);
