//! Engines that decide which process drives a run, and when.
//!
//! An engine knows the ids of runs and when they are due, and nothing else: the store has the journal, the
//! input, the answers. Each engine is one implementation of `api::runs::dispatch::Dispatcher`.

pub mod restate;
