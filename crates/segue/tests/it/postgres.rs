//! Commands and servers on a Postgres database, as machines that share it would have them.

use std::process::{Child, Command, Stdio};

use crate::postgres_server::database;

use crate::served::{Served, TOKEN};
use crate::support::{Json, SEGUE, World, json, until};

/// A machine: its own folder and home, and the same composition and tools. Calls write a line into `calls`
/// of the first one.
fn machines(count: usize, composition: &str) -> Vec<World> {
    let worlds: Vec<World> = (0..count).map(|_| World::with(composition)).collect();
    let calls = worlds[0].path("calls").display().to_string();
    let argv = |script: &str| format!("argv: [sh, -c, \"{script}\", sh, '{calls}']");
    for world in &worlds {
        world.file(
            "segue.yaml",
            format!(
                "commands:\n  note: {{ {}, destructive: false, idempotent: true }}\n  hold: {{ {}, \
                 destructive: false, idempotent: true }}\n",
                argv("echo note >> $1"),
                argv("echo hold >> $1; [ -e fast ] || exec sleep 300"),
            ),
        );
    }
    worlds
}

fn calls(world: &World) -> Vec<String> {
    let text = std::fs::read_to_string(world.path("calls")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn on<'a>(store: &'a str, args: &[&'a str]) -> Vec<&'a str> {
    [&["--store", store], args].concat()
}

fn start(world: &World, args: &[&str]) -> Child {
    let mut command = world.command(SEGUE);
    command.args(args).stdout(Stdio::piped()).stderr(Stdio::null());
    command.spawn().unwrap()
}

fn only_run(world: &World, store: &str) -> Json {
    world.json(0, &on(store, &["runs", "--json"]))["runs"][0].clone()
}

const HOLDS: &str =
    "name: c\nsteps:\n  - { id: a, tool: note }\n  - { id: b, tool: hold, depends_on: a }\n";

/// A run of one machine is listed and shown on another, and is cancelled from there.
#[test]
fn a_run_is_seen_and_cancelled_from_another_machine() {
    let Some(store) = database() else { return };
    let worlds = machines(2, HOLDS);
    let owner = start(&worlds[0], &on(&store, &["run", "c.yaml", "--json"]));
    until(|| Some(()).filter(|()| calls(&worlds[0]) == ["note", "hold"]));
    let run = only_run(&worlds[1], &store);
    assert_eq!((&run["name"], &run["status"]), (&"c".into(), &"running".into()));
    let id = run["run_id"].as_str().unwrap();
    let shown = worlds[1].json(0, &on(&store, &["runs", "show", id, "--json"]));
    assert_eq!(shown["run_id"], run["run_id"]);
    worlds[1].segue(&on(&store, &["cancel", id])).exits(0);
    let ended: Json = serde_json::from_slice(&owner.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(ended["status"], "cancelled", "{ended}");
    let doctor = worlds[1].segue(&on(&store, &["doctor"]));
    assert!(doctor.stdout.contains(&format!("ok     store          `{store}`")), "{doctor:?}");
    // The database of the tests does not sync.
    for line in ["ok     database       Postgres ", "WRONG  database       `fsync` is off"] {
        assert!(doctor.stdout.contains(line) && doctor.code == Some(2), "{doctor:?}");
    }
}

/// A machine dies. Another one goes on with its run after the lease has ended, and repeats nothing that
/// had completed.
#[test]
fn another_machine_goes_on_after_a_death() {
    let Some(store) = database() else { return };
    let worlds = machines(2, HOLDS);
    let mut owner = start(&worlds[0], &on(&store, &["run", "c.yaml", "--json"]));
    until(|| Some(()).filter(|()| calls(&worlds[0]) == ["note", "hold"]));
    owner.kill().unwrap();
    owner.wait().unwrap();
    let id = only_run(&worlds[1], &store)["run_id"].as_str().unwrap().to_owned();
    let cancel = on(&store, &["cancel", &id, "--json"]);
    let ended = until(|| {
        let done = worlds[1].segue(&cancel);
        Some(done).filter(|done| done.stdout.contains("cancelled"))
    });
    assert!(ended.stdout.contains("cancelled"), "{ended:?}");
    assert_eq!(calls(&worlds[0]), ["note", "hold"], "nothing is repeated");
}

/// A server dies while it drives a run. Another server goes on with it by itself, and repeats nothing that
/// had completed.
#[test]
fn another_server_goes_on_by_itself() {
    let Some(store) = database() else { return };
    let worlds = machines(2, HOLDS);
    for world in &worlds {
        let config = std::fs::read_to_string(world.path("segue.yaml")).unwrap();
        world.file("segue.yaml", format!("{config}server: {{ token: {TOKEN} }}\n"));
    }
    // On the second machine the last step ends.
    worlds[1].file("fast", "");
    let first = Served::start(&worlds[0], &store, &[]);
    let second = Served::start(&worlds[1], &store, &[]);
    let composition = json!({ "name": "c", "steps": [
        { "id": "a", "tool": "note" }, { "id": "b", "tool": "hold", "depends_on": ["a"] }] });
    let started = first.send(
        "POST",
        "/api/v1/compositions/execute",
        &[("Prefer", "respond-async")],
        &json!({ "composition": composition }),
    );
    let id = started.is(202)["run_id"].as_str().unwrap().to_owned();
    until(|| Some(()).filter(|()| calls(&worlds[0]) == ["note", "hold"]));
    let kill = Command::new("kill").args(["-9", &first.pid().to_string()]).status();
    assert!(kill.unwrap().success());
    let ended = until(|| {
        let run = second.get(&format!("/api/v1/runs/{id}")).is(200);
        Some(run).filter(|run| run["status"] != "running")
    });
    assert_eq!(ended["status"], "success", "{ended}");
    assert_eq!(calls(&worlds[0]), ["note", "hold", "hold"], "the call in doubt is idempotent");
}

/// D2: no message has the password, whatever goes wrong.
#[test]
fn no_message_has_the_password() {
    let world = World::with("name: c\nsteps: [{ id: a, tool: echo, parameters: { n: 1 } }]\n");
    let nobody = format!("postgres://segue:geheim-1@/x?host={}", world.folder().display());
    let unknown = "postgres://segue:geheim-1@localhost:1/x?pool=9";
    for store in [&*nobody, unknown] {
        world.file("segue.yaml", format!("store: '{store}'\n"));
        for args in [&["run", "c.yaml"][..], &["runs"], &["doctor"], &["-v", "tools"]] {
            let done = world.segue(args);
            let said = format!("{}{}", done.stdout, done.stderr);
            assert!(!said.contains("geheim-1"), "{args:?}: {said}");
        }
        let refused = world.segue(&["--store", store, "runs"]).exits(2);
        assert!(!refused.stderr.contains("geheim-1") && refused.stderr.contains("store"));
    }
    world.file("segue.yaml", format!("store: '{nobody}'\n"));
    let refused = world.segue(&["run", "c.yaml"]).exits(2);
    assert!(refused.stderr.contains("cannot open the store `postgres://segue@/x"), "{refused:?}");
}

/// Two servers on one store.
fn two_servers(store: &str, composition: &str) -> (Vec<World>, Vec<Served>) {
    let worlds = machines(2, composition);
    let served = worlds.iter().map(|world| {
        let config = std::fs::read_to_string(world.path("segue.yaml")).unwrap();
        world.file("segue.yaml", format!("{config}server: {{ token: {TOKEN} }}\n"));
        Served::start(world, store, &[])
    });
    let served = served.collect();
    (worlds, served)
}

/// The same key sent to two servers at the same moment starts one run, and both answer with it.
#[test]
fn a_key_is_one_run_on_two_servers() {
    let Some(store) = database() else { return };
    let (worlds, servers) = two_servers(&store, HOLDS);
    let composition = json!({ "name": "once", "steps": [{ "id": "a", "tool": "note" }] });
    for nth in 1..=4 {
        let key = format!("key-{nth}");
        let together = std::sync::Barrier::new(2);
        let ids: Vec<Json> = std::thread::scope(|scope| {
            let sent = servers.iter().map(|server| {
                let (key, together, body) =
                    (&key, &together, json!({ "composition": composition }));
                scope.spawn(move || {
                    together.wait();
                    let headers = [("Idempotency-Key", &**key)];
                    let path = "/api/v1/compositions/execute";
                    let answer = server.send("POST", path, &headers, &body);
                    assert!([200, 202].contains(&answer.status), "{answer:?}");
                    answer.json()["run_id"].clone()
                })
            });
            let sent: Vec<_> = sent.collect();
            sent.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert!(ids[0].is_string() && ids[0] == ids[1], "{ids:?}");
        until(|| Some(()).filter(|()| calls(&worlds[0]).len() == nth));
    }
}
