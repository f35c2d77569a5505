//! `--inject`: the planted faults happen, and nothing else.

use crate::support::{Json, World, step};

const SHOP: &str = "
name: c
overwrites: [paid.txt]
error_handling: { rollback_on_failure: true, backoff: { initial: 1ms, jitter: false } }
steps:
  - { id: pay, tool: files_write, parameters: { path: paid.txt, content: '10' } }
  - id: ship
    tool: echo
    parameters: { to: Ada }
    retry_count: 2
    depends_on: pay
  - { id: note, tool: echo, parameters: { to: '{{ ship.to }}' }, fallback: [{ tool: echo, parameters: { to: nobody } }] }
";

fn injected(code: i32, faults: &[&str]) -> (World, Json) {
    let world = World::with(SHOP);
    let args: Vec<&str> = faults.iter().flat_map(|fault| ["--inject", fault]).collect();
    let view = world.run(code, &args);
    (world, view)
}

#[test]
fn the_first_attempts_fail() {
    let (_, view) = injected(0, &["fail=ship:2"]);
    assert_eq!((&view["status"], &step(&view, "ship")["attempts"]), (&"success".into(), &3.into()));
    let (world, view) = injected(1, &["fail=ship"]);
    assert_eq!(view["status"], "rolled_back");
    assert_eq!(view["errors"][0]["attempts"], 3);
    assert!(!world.path("paid.txt").exists());
}

/// A fallback is not the tool that was made to fail.
#[test]
fn faults_are_not_injected_into_fallbacks() {
    let (_, view) = injected(0, &["fail=note"]);
    assert_eq!(step(&view, "note")["output"]["to"], "nobody");
}

#[test]
fn undos_fail() {
    let (world, view) = injected(1, &["fail=ship", "rollback-fail=pay"]);
    assert_eq!(view["status"], "rollback_failed");
    assert_eq!(step(&view, "pay")["status"], "rollback_failed");
    assert!(world.path("paid.txt").exists());
}

/// The call is made, and its answer is lost.
#[test]
fn answers_are_lost() {
    let world = World::with(SHOP);
    let lost = ["--inject", "lost=pay", "--inject", "rollback-fail=pay", "--json"];
    let view = world.segue(&[&["run", "c.yaml"], &lost[..]].concat()).json();
    assert!(world.path("paid.txt").exists());
    assert_eq!((&view["success"], &step(&view, "ship")["attempts"]), (&false.into(), &0.into()));
    let doubts = |error: &Json| error["in_doubt"] == true;
    assert!(view["errors"].as_array().unwrap().iter().any(doubts), "{view:#}");
    let (_, view) = injected(0, &["lost=ship:1"]);
    assert_eq!(step(&view, "ship")["attempts"], 2);
}

#[test]
fn steps_are_slow() {
    let (_, view) = injected(0, &["slow=ship:120ms"]);
    assert!(step(&view, "ship")["duration_ms"].as_u64().unwrap() >= 120);
}

#[test]
fn one_iteration_can_be_meant() {
    let world = World::with(
        "
name: c
steps:
  - id: each
    loop:
      over: [a, b, c]
      as: x
      on_item_failure: continue
      steps: [ { id: parse, tool: echo, parameters: { x: '{{ x }}' } } ]
",
    );
    let failed = |name: &str| {
        let view = world.run(1, &["--inject", &format!("fail={name}")]);
        let steps = view["steps"].as_array().unwrap();
        let failed = steps.iter().filter(|s| s["status"] == "failed").map(|s| s["id"].clone());
        failed.map(|id| id.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(failed("each[1]/parse"), ["each[1]/parse"]);
    let all = ["each[0]/parse", "each[1]/parse", "each[2]/parse"];
    assert_eq!(failed("parse"), all);
    assert_eq!(failed("each/parse"), all);
}

/// J1, from outside: the process is gone at once, as by `kill -9`, and what it had begun is there.
#[test]
#[cfg(unix)]
fn the_process_dies_after_an_append() {
    use std::os::unix::process::ExitStatusExt as _;
    let world = World::with(SHOP);
    let died = |after: u32| {
        let fault = format!("crash-after={after}");
        let args = ["run", "c.yaml", "--inject", &fault];
        world.command(crate::support::SEGUE).args(args).output().unwrap()
    };
    assert_eq!(died(1).status.signal(), Some(9));
    assert!(!world.path("paid.txt").exists());
    let second = died(2);
    assert_eq!(second.status.signal(), Some(9));
    assert!(second.stdout.is_empty());
    assert!(world.path("paid.txt").exists());
    let resumed = world.segue(&["resume", "last", "--json"]).exits(0).json();
    assert_eq!(
        (&resumed["status"], &step(&resumed, "pay")["attempts"]),
        (&"success".into(), &1.into())
    );
    assert_eq!(died(1_000).status.code(), Some(0));
}

#[test]
fn what_cannot_be_meant_is_refused() {
    let world = World::with(SHOP);
    let said = |fault: &str| world.segue(&["run", "c.yaml", "--inject", fault]).exits(2).stderr;
    assert!(said("fail=shop").contains("there is no step `shop`\nhelp: did you mean `ship`?"));
    assert!(said("rollback-fail=ship").contains("no call rolls it back"));
    assert!(said("explode=ship").contains("is not a fault: write fail=STEP[:N]"));
    assert!(said("slow=ship").contains("is not a fault"));
    assert!(!world.path("paid.txt").exists());
    let view = world.run(2, &["--inject", "fail=shop"]);
    assert_eq!(view["errors"][0]["code"], "not-found");
}
