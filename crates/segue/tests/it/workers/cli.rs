//! `segue worker list`, `segue run --detach`, and the commands that act on runs, from any machine.

use super::{LONG, Machines};
use crate::support::{World, json, until};

/// Without a store that several processes share, there is nobody to leave a run to.
#[test]
fn a_shared_store_is_needed() {
    let world = World::with("name: c\nsteps: [{ id: a, tool: echo, parameters: { n: 1 } }]\n");
    for args in [
        &["worker"][..],
        &["worker", "list"],
        &["serve", "--no-drive", "--port", "0"],
        &["run", "c.yaml", "--detach"],
    ] {
        let refused = world.segue(&[&["--store", "sqlite:s.db"], args].concat()).exits(2);
        assert!(
            refused.stderr.contains("needs a store that several processes share"),
            "{refused:?}"
        );
    }
    world.file(
        "restate.yaml",
        "driver: { restate: { ingress: http://r:1, admin: http://r:2, advertise: http://w:3 } }\n",
    );
    let refused = world.segue(&["--config", "restate.yaml", "check", "c.yaml"]).exits(2);
    assert!(refused.stderr.contains("unshared-store"), "{refused:?}");
}

/// All processes that share a store, and what became of them.
#[test]
fn workers_are_listed() {
    let Some(machines) = Machines::new(3, "worker: { lease: 3s }\n") else { return };
    let nobody = machines.world(2).segue(&machines.args(&["worker", "list"])).exits(0);
    assert!(nobody.stderr.contains("no process shares this store"), "{nobody:?}");
    let worker = machines.worker(0);
    let _server = machines.server(1, &["--no-drive"]);
    let list = || machines.json(2, &["worker", "list", "--json"])["workers"].clone();
    let announced = |list: &serde_json::Value| {
        list.as_array().unwrap().iter().filter(|worker| worker["version"] != "").count()
    };
    let listed = until(|| Some(list()).filter(|list| announced(list) == 2));
    let rooms: Vec<u64> =
        listed.as_array().unwrap().iter().map(|worker| worker["room"].as_u64().unwrap()).collect();
    assert!(rooms.contains(&0) && rooms.contains(&256), "{listed}");
    let first = listed.as_array().unwrap().iter().find(|worker| worker["room"] == 256).unwrap();
    assert_eq!((&first["alive"], &first["runs"]), (&json!(true), &json!(0)), "{listed}");
    assert_eq!(first["version"], env!("CARGO_PKG_VERSION"));
    let namespaces = first["namespaces"].as_array().unwrap();
    assert!(namespaces.contains(&json!("command")), "{listed}");
    worker.kill();
    let text = until(|| {
        let done = machines.world(2).segue(&machines.args(&["worker", "list"])).exits(0);
        done.stdout.contains("dead").then_some(done.stdout)
    });
    assert!(text.contains("requests"), "{text}");
}

/// A run is left to workers of which there is none yet: the command says so, and prints the id alone.
#[test]
fn a_detached_run_waits_for_a_worker() {
    let Some(machines) = Machines::new(2, LONG) else { return };
    machines.world(0).file(
        "c.yaml",
        "name: c\ninput: { type: object, properties: { n: { type: integer } }, required: [n] }\nsteps: \
         [{ id: a, tool: echo, parameters: { n: \"{{ input.n }}\" } }]\noutput: \"{{ a.n }}\"\n",
    );
    let refused = machines.world(0).segue(&machines.args(&["run", "c.yaml", "--detach"]));
    refused.exits(2);
    let args = machines.args(&["run", "c.yaml", "-i", "n=7", "--detach"]);
    let left = machines.world(0).segue(&args).exits(0);
    assert!(left.stderr.contains("no worker is alive"), "{left:?}");
    let run_id = left.stdout.trim();
    assert!(left.stderr.contains(&format!("segue runs show {run_id} --watch")), "{left:?}");
    let follow = machines.args(&["runs", "show", run_id, "--watch", "--json"]);
    let mut follows = machines.world(0).command(crate::support::SEGUE);
    let follows = follows.args(follow).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let _worker = machines.worker(1);
    let ended = follows.wait_with_output().unwrap();
    let ended: serde_json::Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!((&ended["status"], &ended["output"]), (&json!("success"), &json!(7)), "{ended}");
}

/// A machine without the tools of a run leaves what a person wants of it to the workers.
#[test]
fn a_person_approves_on_a_machine_without_the_tools() {
    let Some(machines) = Machines::new(3, LONG) else { return };
    machines.world(2).file("segue.yaml", "");
    let _worker = machines.worker(0);
    let run_id = machines.detach(
        1,
        "name: asks\nsteps:\n  - { id: b, approve: { message: \"sure?\" } }\n  - { id: c, tool: note, \
         parameters: { step: c }, depends_on: [b] }\n",
    );
    machines.until_status(2, &run_id, "waiting");
    let approved = machines.world(2).segue(&machines.args(&["approve", &run_id])).exits(0);
    assert!(approved.stderr.contains("left to the workers"), "{approved:?}");
    assert_eq!(machines.calls(), ["c"]);
    machines.until_status(2, &run_id, "success");
}
