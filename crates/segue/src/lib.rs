//! The part of Segue that speaks: the command line, and the servers for others.
//!
//! A command translates, makes one call of the engine, and translates back.

pub mod cli;
pub mod config;
pub mod observe;
pub mod print;
pub mod serve;
pub mod step_events;
