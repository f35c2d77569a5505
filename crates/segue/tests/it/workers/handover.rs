//! Runs change hands: their process dies, ends, or only waits.

use std::time::{Duration, Instant};

use super::{LONG, Machines, SHORT};
use crate::support::until;

/// Between its two calls it waits, and nothing is under way.
const LONG_RUN: &str = "\
name: long
steps:
  - { id: a, tool: note, parameters: { step: a } }
  - { id: b, wait: 4s, depends_on: [a] }
  - { id: c, tool: note, parameters: { step: c }, depends_on: [b] }
";

/// Waits until the first step of a run is over, so that no call is under way.
fn until_first_step_is_over(machines: &Machines, run_id: &str) {
    until(|| {
        let run = machines.show(0, run_id);
        let is_over = run["steps"]
            .as_array()?
            .iter()
            .any(|step| step["id"] == "a" && step["status"] == "success");
        is_over.then_some(())
    });
}

/// A run that is left to two workers goes on with the second one when the first dies. Nothing happens twice.
#[test]
fn the_run_of_a_worker_that_is_killed_goes_on_with_another() {
    let Some(machines) = Machines::new(4, SHORT) else { return };
    let workers = [machines.worker(0), machines.worker(1)];
    let server = machines.server(2, &["--no-drive"]);
    let run_id = machines.detach(3, LONG_RUN);
    until_first_step_is_over(&machines, &run_id);
    let owner = machines.owner(&run_id).expect("a worker drives it");
    let (mut dead, mut alive): (Vec<_>, Vec<_>) =
        workers.into_iter().partition(|worker| worker.pid() == owner);
    let (dead, alive) = (dead.pop().unwrap(), alive.pop().unwrap());
    dead.kill();
    let died = Instant::now();
    until(|| (machines.owner(&run_id) == Some(alive.pid())).then_some(()));
    let took = died.elapsed();
    // The lease is 3 s; a busy machine gets some time on top.
    assert!(took < Duration::from_secs(3 + 1 + 8), "takeover took {took:?}");
    let ended = machines.until_status(3, &run_id, "success");
    assert_eq!(machines.calls(), ["a", "c"], "nothing happens twice: {ended}");
    let listed = server.get("/api/v1/runs").is(200);
    assert_eq!(listed["runs"][0]["status"], "success", "{listed}");
    println!("takeover after {took:?}");
}

/// SIGTERM leaves a run to another worker at once, not at the end of the lease.
#[test]
fn a_worker_that_ends_leaves_its_run_at_once() {
    let Some(machines) = Machines::new(2, LONG) else { return };
    let first = machines.worker(0);
    let run_id = machines.detach(1, LONG_RUN);
    until_first_step_is_over(&machines, &run_id);
    let second = machines.worker(1);
    first.terminate();
    until(|| (machines.owner(&run_id) == Some(second.pid())).then_some(()));
    machines.until_status(1, &run_id, "success");
    assert_eq!(machines.calls(), ["a", "c"]);
}

/// A run that waits for a person has no owner. When its question times out, any worker goes on with it.
#[test]
fn a_question_that_times_out_wakes_a_run_on_another_worker() {
    let Some(machines) = Machines::new(2, SHORT) else { return };
    let first = machines.worker(0);
    let run_id = machines.detach(
        1,
        "name: asks\nsteps:\n  - { id: a, tool: note, parameters: { step: a } }\n  - { id: b, approve: \
         { message: sure?, timeout: 5s, on_timeout: approve }, depends_on: [a] }\n  - { id: c, tool: \
         note, parameters: { step: c }, depends_on: [b] }\n",
    );
    until(|| {
        let waits = machines.show(1, &run_id)["status"] == "waiting";
        (waits && machines.owner(&run_id).is_none()).then_some(())
    });
    first.terminate();
    let second = machines.worker(1);
    machines.until_status(1, &run_id, "success");
    assert!(second.said("claims a run"), "{:?}", second.lines());
    assert_eq!(machines.calls(), ["a", "c"]);
}

/// A person answers through one server, while the worker that asked is dead and another one is alive.
#[test]
fn an_approval_reaches_a_run_whose_first_owner_is_dead() {
    let Some(machines) = Machines::new(4, SHORT) else { return };
    let first = machines.worker(0);
    let server = machines.server(1, &["--no-drive"]);
    machines.world(2).file("asks.yaml", ASKS);
    let run_id = machines.detach(2, ASKS);
    machines.until_status(3, &run_id, "waiting");
    first.kill();
    let second = machines.worker(3);
    let approved = server.post(
        &format!("/api/v1/runs/{run_id}/approve"),
        &crate::support::json!({ "approved": true }),
    );
    let view = approved.is(200);
    assert_eq!(view["status"], "success", "{view}");
    assert!(second.said("claims a run"), "{:?}", second.lines());
    assert_eq!(machines.calls(), ["a", "c"]);
}

const ASKS: &str = "\
name: asks
steps:
  - { id: a, tool: note, parameters: { step: a } }
  - { id: b, approve: { message: \"sure?\" }, depends_on: [a] }
  - { id: c, tool: note, parameters: { step: c }, depends_on: [b] }
";

/// A worker claims only runs whose tools it has.
#[test]
fn a_worker_without_the_tools_claims_nothing() {
    let Some(machines) = Machines::new(3, LONG) else { return };
    machines.world(0).file("segue.yaml", LONG);
    let without = machines.worker(0);
    let needs_a_tool = machines.detach(1, LONG_RUN);
    let needs_none =
        machines.detach(1, "name: plain\nsteps: [{ id: a, tool: echo, parameters: { n: 1 } }]\n");
    machines.until_status(1, &needs_none, "success");
    // It came first in the queue.
    assert_eq!(machines.owner(&needs_a_tool), None);
    let with = machines.worker(2);
    machines.until_status(1, &needs_a_tool, "success");
    assert!(with.said(&needs_a_tool) && !without.said(&needs_a_tool), "{:?}", without.lines());
}

/// A server drives what it starts while it has room, and leaves the rest to others.
#[test]
fn a_server_without_room_leaves_runs_to_others() {
    let config = "worker: { lease: 10m, runs: 1 }\n";
    let Some(machines) = Machines::new(2, config) else { return };
    let server = machines.server(0, &[]);
    let start = |wait: &str| {
        let composition =
            crate::support::json!({ "name": "c", "steps": [{ "id": "a", "wait": wait }] });
        let body = crate::support::json!({ "composition": composition });
        let prefer = [("Prefer", "respond-async")];
        let started = server.send("POST", "/api/v1/compositions/execute", &prefer, &body);
        started.is(202)["run_id"].as_str().unwrap().to_owned()
    };
    let first = start("1h");
    let second = start("100ms");
    assert!(machines.owner(&first).is_some());
    assert_eq!(machines.owner(&second), None);
    let worker = machines.worker(1);
    machines.until_status(1, &second, "success");
    assert!(worker.said(&second) && !worker.said(&first), "{:?}", worker.lines());
}
