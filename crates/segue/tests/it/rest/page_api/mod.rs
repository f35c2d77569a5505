//! What a page needs of REST: one stream of everything, runs in pieces, search, reruns, comparisons,
//! and compositions with their text.

mod again;
mod compositions;
mod events;
mod parts;

use segue_core::tool::hex_digest;

use super::world;
use crate::served::Served;
use crate::support::{Json, World, json};

const EXECUTE: &str = "/api/v1/compositions/execute";

/// A server with two principals beside the administrator, whose tokens are their names and `-token`.
fn served_to_two(store: &str) -> (World, Served) {
    let principal = |name: &str| {
        let hash = hex_digest(format!("{name}-token").as_bytes());
        format!("    {name}: {{ token: 'sha256:{hash}', rights: [read, run, compose, approve] }}\n")
    };
    let head = "server:\n  token: open-sesame-open-sesame-open-sesame\n  principals:\n";
    let world = world(&format!("{head}{}{}", principal("ada"), principal("bob")));
    let served = Served::start(&world, store, &[]);
    (world, served)
}

/// Runs a composition as a principal, and returns the id of the run.
fn run_as(served: &Served, token: &str, composition: &Json) -> String {
    let body = json!({ "composition": composition });
    let answer = served.send_by(token, "POST", EXECUTE, &[], &body);
    assert!(matches!(answer.status, 200 | 202), "{answer:?}");
    answer.json()["run_id"].as_str().unwrap().to_owned()
}
