//! The same with a real process that is killed right after it has answered, and a second one that looks.

use std::time::Instant;

use crate::served::Served;
use crate::support::{Json, World, json};

use super::{ASK, EXECUTE, LONG, QUICK, Told};

const STORE: &str = "sqlite:s.db";

/// How often each surface is killed. `SEGUE_ACK_KILLS` says another number.
const KILLS: u64 = 3;

/// Acknowledgements before each kill.
const ASKED: usize = 8;

fn world() -> World {
    let world = World::new();
    let config = "compositions: ['lib/*.yaml']\nserver: { token: open-sesame-open-sesame-open-sesame }\n\
                  limits: { served_wait_ms: 1 }\n";
    world.file("segue.yaml", config);
    for (name, text) in [("quick", QUICK), ("ask", ASK), ("long", LONG)] {
        world.file(&format!("lib/{name}.yaml"), text);
    }
    world
}

/// What another process finds of a run, at once.
fn found(world: &World, run_id: &str) -> Option<Json> {
    let args = ["--config", "segue.yaml", "--store", STORE, "--json", "runs", "show", run_id];
    let done = world.segue(&args);
    serde_json::from_str(&done.stdout).ok()
}

/// Begins a run of `name`, or acts on one, on one of the surfaces.
type Ask = fn(&Served, &str) -> Told;

const STARTS: &[(&str, Ask)] = &[
    ("REST", |served, _| served.told_by_rest(EXECUTE, &[], &json!({ "name": "quick" }))),
    ("REST with a key", |served, key| {
        let key = [("Idempotency-Key", key)];
        served.told_by_rest(EXECUTE, &key, &json!({ "name": "quick" }))
    }),
    ("GraphQL", |served, _| {
        let start = r#"executeComposition(request: { name: "quick" }, respondAsync: true)"#;
        served.told_by_graphql(start)
    }),
    ("MCP", |served, _| {
        served.told_by_mcp("tools/call", json!({ "name": "long", "arguments": {} }))
    }),
];

const APPROVALS: &[(&str, Ask)] = &[
    ("REST", |served, id| {
        let path = format!("/api/v1/runs/{id}/approve");
        served.told_by_rest(&path, &[], &json!({ "approved": true }))
    }),
    ("GraphQL", |served, id| {
        let text = format!(r#"approveRun(runId: "{id}", approved: true, respondAsync: true)"#);
        served.told_by_graphql(&text)
    }),
    ("MCP", |served, id| {
        let reply = json!({ "action": "accept", "content": {} });
        let params = json!({ "taskId": id, "inputResponses": { "ok": reply } });
        served.told_by_mcp("tasks/update", params)
    }),
];

fn kills() -> u64 {
    std::env::var("SEGUE_ACK_KILLS").ok().map_or(KILLS, |text| text.parse().unwrap())
}

/// Kills as `kill -9` does.
fn kill(served: Served) {
    drop(served);
}

/// Acknowledged runs survive a kill, and another process sees them before it.
#[test]
fn runs_that_were_acknowledged_outlive_the_process() {
    let (mut lost, mut asked) = (Vec::new(), 0);
    for (surface, ask) in STARTS {
        for round in 0..kills() {
            let world = world();
            let served = Served::start(&world, STORE, &[]);
            let told = (0..ASKED).map(|at| ask(&served, &format!("{round}-{at}")));
            let ids: Vec<String> = told
                .map(|told| told.run_id.filter(|_| told.is_ok).expect("an acknowledgement"))
                .collect();
            let last = ids.last().unwrap();
            let shown = served.get(&format!("/api/v1/runs/{last}"));
            if shown.status != 200 || found(&world, last).is_none() {
                lost.push(format!("{surface}: {last} cannot be read, {}", shown.status));
            }
            kill(served);
            asked += ids.len();
            let gone = ids.iter().filter(|id| found(&world, id).is_none());
            lost.extend(gone.map(|id| format!("{surface}: {id} is gone")));
        }
    }
    assert!(lost.is_empty(), "{} of {asked}:\n{}", lost.len(), lost.join("\n"));
}

/// Approvals that were acknowledged are in the journal after a kill.
#[test]
fn approvals_that_were_acknowledged_outlive_the_process() {
    let (mut lost, mut asked) = (Vec::new(), 0);
    for (surface, ask) in APPROVALS {
        for _ in 0..kills() {
            let world = world();
            let served = Served::start(&world, STORE, &[]);
            let ids: Vec<String> = (0..ASKED).map(|_| served.waiting()).collect();
            for id in &ids {
                assert!(ask(&served, id).is_ok, "{surface}");
            }
            kill(served);
            asked += ids.len();
            for id in ids {
                let run = found(&world, &id).unwrap_or_default();
                if run["decisions"].as_array().is_none_or(Vec::is_empty) {
                    lost.push(format!("{surface}: {id} was approved, and {run}"));
                }
            }
        }
    }
    assert!(lost.is_empty(), "{} of {asked}:\n{}", lost.len(), lost.join("\n"));
}

/// A key that came before the kill stands for the same run after it.
#[test]
fn a_key_stands_for_the_same_run_after_a_kill() {
    let world = world();
    let ask = |served: &Served| {
        let key = [("Idempotency-Key", "k")];
        served.told_by_rest(EXECUTE, &key, &json!({ "name": "quick" })).run_id.unwrap()
    };
    let served = Served::start(&world, STORE, &[]);
    let began = Instant::now();
    let first = ask(&served);
    kill(served);
    let served = Served::start(&world, STORE, &[]);
    assert_eq!(ask(&served), first, "after {:?}", began.elapsed());
    assert_eq!(served.get(&format!("/api/v1/runs/{first}")).is(200)["run_id"], *first);
}
