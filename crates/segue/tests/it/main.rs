//! Tests of the command line from outside: the built program, real folders, no network.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

mod acknowledged;
mod aside;
mod attack;
mod check;
mod cli;
mod coverage;
mod dev;
mod dialects;
mod docs;
mod dry;
mod examples;
mod features;
mod first_steps;
mod gate;
mod generate;
mod graphql;
mod hostile;
mod init;
mod inject;
mod installation;
mod interrupted;
mod kill;
mod layers;
mod leaked_secrets;
mod login;
mod mcp;
mod observe;
mod page;
mod parity;
mod permissions;
mod plan;
mod planning;
mod poison;
#[cfg(all(feature = "postgres", unix))]
mod postgres;
#[cfg(all(feature = "postgres", unix))]
#[path = "../../../segue-runtime/tests/it/postgres_proxy.rs"]
mod postgres_proxy;
#[cfg(all(feature = "postgres", unix))]
#[path = "../../../segue-runtime/tests/it/postgres_server.rs"]
mod postgres_server;
mod rest;
#[cfg(all(feature = "restate", unix))]
mod restate;
#[cfg(all(feature = "restate", unix))]
mod restate_server;
mod resumed_tasks;
mod run;
mod run_parts;
mod run_records;
mod runs;
mod seeds;
mod serve;
mod served;
mod session;
#[cfg(all(feature = "postgres", unix))]
mod shared;
#[cfg(all(feature = "postgres", unix))]
mod store_copy;
mod support;
mod templates;
mod terminal;
mod testing;
mod tidy;
mod toolhive;
mod tools;
mod toolsets;
mod trust;
#[cfg(all(feature = "postgres", unix))]
mod workers;
