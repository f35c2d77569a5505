//! Segue as somebody's tool: what is offered, and the runs that follow from it.
//!
//! ```text
//! http/ ── the house's address: who may come in at all
//! mcp/, rest/, graphql/ ── doors: requests of a protocol → what the hall does → answers of the protocol
//! hall.rs, active.rs                  which compositions are served; runs that are under way
//! offer.rs, told.rs, question.rs      a composition as a tool; a run as an answer; what is asked
//! execution.rs, listing.rs            a run that somebody describes; tools and runs as they are listed
//! executing.rs, keys.rs               having it run, once for each key
//! acting.rs, plans.rs                 what is wanted of a run; plans from words
//! following.rs                        what happens in a run, as it happens
//! threads.rs                          who works on requests, and who moves runs
//! own.rs                              tools of ours beside the compositions
//! audit.rs                            who did what, in a line
//! ```
//!
//! A run belongs to the hall and not to the request that began it: who goes away loses nothing.
//! Only what is below `mcp/`, `rest/` and `graphql/` knows a protocol, so that every door says the same.

pub mod acting;
pub mod active;
pub mod audit;
pub mod content;
pub mod executing;
pub mod execution;
pub mod following;
pub mod graphql;
pub mod hall;
pub mod http;
pub mod keys;
pub mod listing;
pub mod mcp;
pub mod offer;
pub mod own;
pub mod plans;
pub mod question;
pub mod rest;
pub mod threads;
pub mod told;
