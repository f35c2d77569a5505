//! Secrets are resolved where a run is driven: the database has none.

use std::fmt::Write as _;

use super::Machines;
use crate::support::{json, until};

const SECRET: &str = "geheimnis-4711-geheimnis";

/// Every table, as text and as bytes.
fn dump(machines: &Machines) -> String {
    let tables = machines.rows("SELECT tablename FROM pg_tables WHERE schemaname = 'segue'");
    let mut all = String::new();
    for table in tables.iter().flatten().flatten() {
        for row in machines.rows(&format!("SELECT t::text FROM segue.\"{table}\" AS t")) {
            all.extend(row.into_iter().flatten());
        }
    }
    all
}

fn hex(text: &str) -> String {
    text.bytes().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// A tool gets a secret from the environment of the worker and answers with it; a run waits, a command is
/// sent, a key is kept.
#[test]
fn the_database_has_no_secret() {
    let config = "worker: { lease: 10m }\n";
    let Some(machines) = Machines::new(2, config) else { return };
    for machine in 0..2 {
        let world = machines.world(machine);
        let config = std::fs::read_to_string(world.path("segue.yaml")).unwrap();
        let tells = "\n  tells:\n    argv: [sh, -c, 'echo \"it is $PASSWORD\"']\n    env: { PASSWORD: \
                     '${PASSWORD}' }\n    read_only: true\n";
        world.file("segue.yaml", config.replacen("commands:", &format!("commands:{tells}"), 1));
    }
    let env = [("PASSWORD", SECRET)];
    let server = crate::served::Served::start_with(
        machines.world(0),
        &machines.store,
        &["--no-drive"],
        &env,
    );
    let _worker = super::Worker::start_with(machines.world(1), &machines.args(&["worker"]), &env);
    let body = json!({ "composition": { "name": "c", "steps": [
        { "id": "a", "tool": "tells" },
        { "id": "b", "approve": { "message": "so: {{ a }}" }, "depends_on": ["a"] },
        { "id": "c", "tool": "note", "parameters": { "step": "{{ a }}" }, "depends_on": ["b"] }] },
        "input": { "said": format!("not {SECRET}?") } });
    // The server knows the secret, and leaves no run with it to others.
    let refused = server.post("/api/v1/compositions/execute", &body);
    assert!(!refused.body.contains(SECRET), "{refused:?}");
    let mut body = body;
    body["input"] = json!({});
    let key = [("Idempotency-Key", "once")];
    let waits = server.send("POST", "/api/v1/compositions/execute", &key, &body).is(202);
    assert_eq!(waits["status"], "waiting", "{waits}");
    let run_id = waits["run_id"].as_str().unwrap();
    let approve = format!("/api/v1/runs/{run_id}/approve");
    server.post(&approve, &json!({ "approved": true })).is(200);
    let ended = until(|| {
        Some(server.get(&format!("/api/v1/runs/{run_id}")).is(200))
            .filter(|run| run["status"] == "success")
    });
    assert!(ended.to_string().contains("it is «secret»"), "the value is redacted: {ended}");
    let dump = dump(&machines);
    assert!(
        dump.contains(run_id) && dump.contains(&hex("it is «secret»")),
        "the dump has the journal"
    );
    assert!(
        !dump.contains(SECRET) && !dump.contains(&hex(SECRET)),
        "the secret is in the database"
    );
}
