//! `segue store copy`: between a file and a database, and what it refuses.

use crate::postgres_server::database;
use crate::support::World;

const HELLO: &str = "name: c\nsteps: [{ id: a, set: { x: 1 } }]\n";

/// Runs of a file go into a database and from there into another file, and are shown there.
#[test]
fn runs_move_into_a_database_and_back() {
    let Some(store) = database() else { return };
    let world = World::with(HELLO);
    let ids: Vec<String> = (0..3)
        .map(|_| {
            let run = world.json(0, &["--store", "sqlite:a.db", "run", "c.yaml", "--json"]);
            run["run_id"].as_str().unwrap().to_owned()
        })
        .collect();
    let copied = world.json(0, &["store", "copy", "sqlite:a.db", &store, "--json"]);
    assert_eq!(copied["runs"], serde_json::json!({ "copied": 3, "present": 0 }), "{copied}");
    let again = world.segue(&["store", "copy", "sqlite:a.db", &store]).exits(0);
    assert!(again.stdout.contains("runs       0 copied, 3 there already\n"), "{again:?}");
    world.segue(&["store", "copy", &store, "sqlite:b.db"]).exits(0);
    for id in &ids {
        let shown = |store: &str| world.json(0, &["--store", store, "runs", "show", id, "--json"]);
        assert_eq!(shown("sqlite:b.db"), shown("sqlite:a.db"));
        assert_eq!(shown(&store), shown("sqlite:a.db"));
    }
    world.segue(&["--store", "sqlite:b.db", "doctor"]).exits(0);
}

/// A run that has not ended is named and stays where it is.
#[test]
fn unfinished_runs_are_named() {
    let world = World::with("name: c\nsteps: [{ id: q, approve: { message: ok? } }]\n");
    let run = world.json(3, &["--store", "sqlite:a.db", "run", "c.yaml", "--json"]);
    let id = run["run_id"].as_str().unwrap();
    let copied = world.segue(&["store", "copy", "sqlite:a.db", "sqlite:b.db"]).exits(0);
    let named = format!("not copied, because they have not ended: {id}");
    assert!(copied.stderr.contains(&named), "{copied:?}");
    let listed = world.json(0, &["--store", "sqlite:b.db", "runs", "--json"]);
    assert_eq!(listed["runs"], serde_json::json!([]));
}

/// What cannot be copied, and that no message has a password.
#[test]
fn what_is_no_store_is_refused() {
    let world = World::with(HELLO);
    world.segue(&["--store", "sqlite:a.db", "run", "c.yaml"]).exits(0);
    for (from, to, said) in [
        ("memory", "sqlite:b.db", "FROM: a store in memory ends with its process"),
        ("sqlite:a.db", "memory", "TO: a store in memory ends with its process"),
        ("sqlite:none.db", "sqlite:b.db", "there is no store `sqlite:none.db`"),
        ("sqlite:a.db", "sqlite:a.db", "FROM and TO are the same store"),
        ("sqlite:a.db", "oracle:x", "TO: `oracle:…` is not a store"),
        ("sqlite:a.db", "postgres://u:${SECRET_OF_A_DATABASE}@h/d", "`SECRET_OF_A_DATABASE`"),
    ] {
        let refused = world.segue(&["store", "copy", from, to]).exits(2);
        assert!(refused.stderr.contains(said), "{from} {to}: {refused:?}");
    }
    assert!(!world.path("none.db").exists() && !world.path("b.db").exists());
    let mut command = world.command(crate::support::SEGUE);
    let to = "postgres://u:${SECRET_OF_A_DATABASE}@127.0.0.1:1/d?sslmode=disable";
    command.args(["store", "copy", "sqlite:a.db", to]).env("SECRET_OF_A_DATABASE", "tell-nobody");
    let output = command.output().unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("cannot open the store") && !said.contains("tell-nobody"), "{said}");
}
