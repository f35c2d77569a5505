//! The part of Segue that acts: it calls tools, keeps journals and moves runs along.
//!
//! Every decision is the core's. This crate turns effects into calls and calls into events.

pub mod chains;
pub mod driver;
pub mod engine;
pub mod inject;
pub mod library;
mod rehearse;
pub mod store;
pub mod tools;
