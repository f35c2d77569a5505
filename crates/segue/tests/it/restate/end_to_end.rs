//! Workers, a database and Restate as they are operated: runs that are left to workers, and deaths.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::{Seen, address_of, proxy};
use crate::postgres_server::database;
use crate::restate_server::{RestateServer, free_ports};
use crate::served::{Served, TOKEN};
use crate::support::{Done, Json, SEGUE, World, json, until};

/// Machines that share a database and a Restate. Calls write a line into a file of the folder.
struct Machines {
    world: World,
    server: RestateServer,
}

/// A worker. It dies with its test.
struct Worker(Child);

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const ONE: &str = "name: c\nsteps: [{ id: a, tool: note }]\n";

const HOLDS: &str =
    "name: c\nsteps:\n  - { id: a, tool: note }\n  - { id: b, tool: hold, depends_on: a }\n";

const ASKS: &str = "name: c\nsteps:\n  - { id: a, approve: { message: go on? } }\n  \
                    - { id: b, tool: note, depends_on: a }\n";

const ASKS_FOR_A_WHILE: &str = "name: c\nsteps:\n  - { id: a, approve: { message: go on?, timeout: 1500ms, \
                    on_timeout: approve } }\n  - { id: b, tool: note, depends_on: a }\n";

impl Machines {
    /// None where a server is missing.
    fn new(composition: &str) -> Option<Machines> {
        let (store, server) = (database()?, RestateServer::start()?);
        let world = World::with(composition);
        let [port] = free_ports();
        let machines = Machines { world, server };
        let (ingress, admin) = (machines.server.ingress(), machines.server.admin());
        machines.configure(&store, &ingress, &admin, &format!("127.0.0.1:{port}"), port);
        Some(machines)
    }

    fn configure(&self, store: &str, ingress: &str, admin: &str, advertise: &str, port: u16) {
        let calls = self.world.path("calls").display().to_string();
        let command = |name: &str, script: &str| {
            format!(
                "  {name}: {{ argv: [sh, -c, \"{script}\", sh, '{calls}'], destructive: false, \
                 idempotent: true }}\n"
            )
        };
        // A call that holds ends with the folder of its test, also if its worker was killed.
        let note = command("note", "echo note >> $1");
        let hold = command(
            "hold",
            "echo hold $PPID >> $1; while [ -e c.yaml ] && [ ! -e fast ]; do sleep 0.05; done",
        );
        let text = format!(
            "store: '{store}'\ndriver: {{ restate: {{ ingress: '{ingress}', admin: '{admin}', advertise: \
             'http://{advertise}', listen: '127.0.0.1:{port}' }} }}\nworker: {{ lease: 3s }}\n\
             limits: {{ dispatch_again_ms: 1000 }}\ncommands:\n{note}{hold}"
        );
        self.world.file("segue.yaml", text);
    }

    fn worker(&self) -> Worker {
        let mut command = self.world.command(SEGUE);
        command.arg("worker").stdout(Stdio::null()).stderr(Stdio::null());
        Worker(command.spawn().unwrap())
    }

    /// Waits until Restate knows the workers.
    fn registered(&self) {
        let known = "SELECT id FROM sys_deployment";
        until(|| (!self.server.query(known).is_empty()).then_some(()));
    }

    /// Leaves a run to the workers; its id.
    fn detach(&self, args: &[&str]) -> (String, Done) {
        let done = self.world.segue(&[&["run", "c.yaml", "--detach"], args].concat()).exits(0);
        (done.stdout.trim().to_owned(), done)
    }

    fn shown(&self, run_id: &str) -> Json {
        self.world.json(0, &["runs", "show", run_id, "--json"])
    }

    /// Waits until a run has this status.
    fn is(&self, run_id: &str, status: &str) -> Json {
        let begun = Instant::now();
        until(|| {
            let run = self.shown(run_id);
            assert!(begun.elapsed().as_secs() < 55, "not `{status}`: {run:#}");
            (run["status"] == status).then_some(run)
        })
    }

    fn calls(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.world.path("calls")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Waits until a call holds; the process that made it.
    fn holder(&self) -> u32 {
        let found = |line: &String| line.strip_prefix("hold ").and_then(|pid| pid.parse().ok());
        until(|| self.calls().iter().find_map(found))
    }
}

fn kill(pid: u32) {
    assert!(Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
}

/// A run that is left to the workers is driven by one of them, and once.
#[test]
fn a_run_is_driven_by_a_worker() {
    let Some(machines) = Machines::new(ONE) else { return };
    let _worker = machines.worker();
    machines.registered();
    let (run_id, _) = machines.detach(&[]);
    machines.is(&run_id, "success");
    assert_eq!(machines.calls(), ["note"]);
    let doctor = machines.world.segue(&["doctor"]).stdout;
    assert!(
        doctor.contains("ok     restate        calls the workers at `http://127.0.0.1:"),
        "{doctor}"
    );
}

/// A run waits for a person, who answers from another process; and a question that nobody answers passes its
/// timeout.
#[test]
fn a_run_waits_for_a_person_and_for_a_time() {
    let Some(machines) = Machines::new(ASKS) else { return };
    let _worker = machines.worker();
    machines.registered();
    let (run_id, _) = machines.detach(&[]);
    machines.is(&run_id, "waiting");
    machines.world.segue(&["approve", &run_id]).exits(0);
    machines.is(&run_id, "success");
    machines.world.file("c.yaml", ASKS_FOR_A_WHILE);
    let (run_id, _) = machines.detach(&[]);
    machines.is(&run_id, "waiting");
    machines.is(&run_id, "success");
    assert_eq!(machines.calls(), ["note", "note"]);
}

/// The worker that drives a run is killed. Restate calls the other one, which goes on when the lease has
/// ended; nothing that had completed is repeated.
#[test]
fn another_worker_goes_on() {
    let Some(machines) = Machines::new(HOLDS) else { return };
    let workers = [machines.worker(), machines.worker()];
    machines.registered();
    let (run_id, _) = machines.detach(&[]);
    let holder = machines.holder();
    assert!(workers.iter().any(|worker| worker.0.id() == holder));
    machines.world.file("fast", "");
    let begun = Instant::now();
    kill(holder);
    machines.is(&run_id, "success");
    let taken = begun.elapsed();
    let calls = machines.calls();
    assert_eq!((calls.len(), &*calls[0]), (3, "note"), "{calls:?}");
    // The lease is 3 s; Restate tries again every 2 s.
    assert!(taken.as_secs() < 12, "{taken:?}");
}

/// Restate is killed while a run is driven: the run goes on, and Restate forgets nothing. While it is away, a
/// run that is started waits, and is sent again when it is back.
#[test]
fn restate_may_die() {
    let Some(mut machines) = Machines::new(HOLDS) else { return };
    let _worker = machines.worker();
    machines.registered();
    let (held, _) = machines.detach(&[]);
    machines.holder();
    machines.server.kill();
    machines.world.file("c.yaml", ONE);
    let (late, said) = machines.detach(&[]);
    assert!(said.stderr.contains("the run is sent again later"), "{said:?}");
    assert_eq!(machines.shown(&held)["status"], "running");
    machines.server.start_again();
    machines.is(&late, "success");
    machines.world.file("fast", "");
    machines.is(&held, "success");
    let calls = machines.calls();
    assert_eq!(calls.iter().filter(|call| call.starts_with("hold")).count(), 1, "{calls:?}");
}

/// What Restate adds to a run of one step: from its first entry to its last, with a database.
/// `cargo test … figures_of_runs -- --ignored --nocapture`
#[test]
#[ignore = "measures"]
fn figures_of_runs() {
    const LONE: usize = 200;
    const MANY: usize = 2_000;
    for driver in ["local", "claims", "restate"] {
        let Some(machines) = Machines::new(ONE) else { return };
        let config = std::fs::read_to_string(machines.world.path("segue.yaml")).unwrap();
        let lines =
            config.lines().filter(|line| driver == "restate" || !line.starts_with("driver:"));
        let text =
            lines.collect::<Vec<_>>().join("\n") + &format!("\nserver: {{ token: {TOKEN} }}\n");
        machines.world.file("segue.yaml", text);
        let store =
            config.lines().next().unwrap()["store: '".len()..].trim_end_matches('\'').to_owned();
        let args: &[&str] = if driver == "local" { &[] } else { &["--no-drive"] };
        let _worker = (driver != "local").then(|| machines.worker());
        if driver == "restate" {
            machines.registered();
        }
        let served = Served::start(&machines.world, &store, args);
        let body = json!({ "composition": { "name": "c",
            "steps": [{ "id": "a", "tool": "echo", "parameters": { "n": 1 } }] } });
        let execute = |prefer: &str| {
            let path = "/api/v1/compositions/execute";
            served.send("POST", path, &[("Prefer", prefer)], &body).json()
        };
        let mut times: Vec<u64> = Vec::new();
        for _ in 0..LONE {
            let run = execute("wait=30");
            times.push(run["duration_ms"].as_u64().unwrap_or_else(|| panic!("{run}")));
        }
        times.sort_unstable();
        let mean = times.iter().sum::<u64>() as f64 / LONE as f64;
        println!(
            "{driver}: lone p50 {} ms, p99 {} ms, mean {mean:.1} ms",
            times[LONE / 2],
            times[LONE * 99 / 100]
        );
        let begun = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| (0..MANY / 16).for_each(|_| drop(execute("respond-async"))));
            }
        });
        let sent = begun.elapsed();
        until(|| {
            let open = served.get("/api/v1/runs?status=running&limit=1").is(200);
            open["runs"].as_array().unwrap().is_empty().then_some(())
        });
        let all = begun.elapsed();
        println!(
            "{driver}: {MANY} runs sent in {sent:?}, ended in {all:?}: {:.0} runs/s",
            MANY as f64 / all.as_secs_f64()
        );
    }
}

/// Nothing of a run reaches Restate but its id: no input, no name, no result, no error.
#[tokio::test(flavor = "multi_thread")]
async fn restate_sees_nothing_of_a_run() {
    let Some(store) = database() else { return };
    let Some(server) = RestateServer::start() else { return };
    let composition = "name: geheim-name\ninput: { type: object, properties: { word: { type: string } } }\n\
                       steps:\n  - { id: geheim_step, tool: note }\n  \
                       - { id: ask, approve: { message: geheim-question }, depends_on: geheim_step }\n  \
                       - { id: fails, tool: wrong, depends_on: ask }\n";
    let machines = Machines { world: World::with(composition), server };
    let seen: Seen = Arc::new(Mutex::default());
    let ingress = proxy(address_of(&machines.server.ingress()), seen.clone()).await;
    let admin = proxy(address_of(&machines.server.admin()), seen.clone()).await;
    let [port] = free_ports();
    let worker = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let advertise = proxy(worker, seen.clone()).await;
    let [ingress, admin] = [ingress, admin].map(|at| format!("http://{at}"));
    machines.configure(&store, &ingress, &admin, &advertise.to_string(), port);
    let config = std::fs::read_to_string(machines.world.path("segue.yaml")).unwrap();
    let wrong =
        "  wrong: { argv: [sh, -c, 'echo geheim-error >&2; exit 1'], destructive: false }\n";
    machines.world.file("segue.yaml", config + wrong);
    let _worker = machines.worker();
    machines.registered();
    let (run_id, _) = machines.detach(&["-i", "word=geheim-input"]);
    machines.is(&run_id, "waiting");
    machines.world.segue(&["approve", &run_id]);
    let ended = machines.is(&run_id, "failed");
    assert!(ended.to_string().contains("geheim-error"), "{ended:#}");
    let bytes = String::from_utf8_lossy(&seen.lock().unwrap()).into_owned();
    assert!(bytes.contains(&run_id), "the proxies see nothing");
    assert!(!bytes.contains("geheim"), "{bytes}");
    assert!(!machines.server.log().contains("geheim"));
}
