//! Tests of the runtime from outside, with real files, processes, sockets and databases.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

mod addresses;
#[cfg(unix)]
mod backup;
#[macro_use]
mod backings;
mod chains;
mod checkpoints;
mod code_tools;
#[cfg(unix)]
mod command;
mod copy;
#[path = "../../../segue-core/tests/support/mod.rs"]
mod core_support;
mod corpus;
mod damage;
mod defects;
#[cfg(all(feature = "postgres", unix))]
mod diagnose;
mod durable;
mod engine;
mod examples;
#[cfg(target_os = "linux")]
mod faults;
#[cfg(unix)]
mod files;
mod fold;
mod formats;
mod gate;
mod http;
#[cfg(unix)]
mod mcp;
#[cfg(unix)]
mod mcp_http;
mod parts;
mod planning;
#[cfg(all(feature = "postgres", unix))]
mod postgres;
#[cfg(all(feature = "postgres", unix))]
mod postgres_proxy;
#[cfg(all(feature = "postgres", unix))]
mod postgres_queue;
#[cfg(all(feature = "postgres", unix))]
mod postgres_server;
#[cfg(all(feature = "postgres", unix))]
mod postgres_tls;
mod processes;
mod queue;
mod recover;
mod run_commands;
mod runners;
mod server;
#[cfg(unix)]
mod settle;
#[cfg(all(feature = "postgres", unix))]
mod shared_figures;
mod skills;
mod sqlite;
mod stores;
mod support;
#[cfg(unix)]
mod tasks;
mod tools;
