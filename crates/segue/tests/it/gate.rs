//! How many calls may be under way at once, and how a source in trouble is treated, by configuration.

use crate::support::World;

/// E9: the limits of the configuration reach the calls, and waiting is no timeout.
#[test]
fn configured_limits_hold() {
    let world = World::with(
        "
name: c
steps:
  - id: each
    loop:
      over: '{{ range(6) }}'
      as: n
      max_concurrency: 6
      steps: [ { id: x, tool: alone, parameters: { n: '{{ n }}' } } ]
",
    );
    // `mkdir` fails when another one is inside.
    world.file("alone.sh", "mkdir inside || exit 1\nsleep 0.02\nrmdir inside\n");
    let config = |limits: &str| {
        let text =
            format!("commands:\n  alone: {{ argv: [sh, alone.sh], read_only: true }}\n{limits}");
        world.file("segue.yaml", text);
        world.segue(&["--config", "segue.yaml", "run", "c.yaml", "--json"])
    };
    config("tools: { alone: { max_concurrency: 1 } }\n").exits(0);
    config("sources: { command: { max_concurrency: 1 } }\n").exits(0);
    config("limits: { calls_max: 1 }\n").exits(0);
    config("").exits(1);
}

#[test]
fn limits_that_make_no_sense_are_said_to_be_wrong() {
    let world = World::new();
    let said = |text: &str| {
        world.file("segue.yaml", text);
        world.segue(&["--config", "segue.yaml", "tools"]).exits(2).stderr
    };
    let wrong = said("tools: { echo: { max_concurrency: 0 } }\n");
    assert!(wrong.contains("must be a whole number from 1"), "{wrong}");
    let wrong = said("sources: { htpp: { max_concurrency: 2 } }\n");
    assert!(
        wrong.contains("`sources` names `htpp`, which does not exist; there are `builtin`"),
        "{wrong}"
    );
    let wrong = said("sources: { builtin: { concurrency: 2 } }\n");
    assert!(
        wrong.contains("did you mean `max_concurrency`?") || wrong.contains("its fields"),
        "{wrong}"
    );
    assert!(said("limits: { calls_max: 0 }\n").contains("no call could be made"));
}

/// C5: a loop over a command that cannot be started is answered without starting it again and
/// again; the run says that it could not be reached.
#[test]
fn a_source_with_an_open_breaker_is_not_called() {
    let world = World::with(
        "
name: c
steps:
  - id: each
    loop:
      over: '{{ range(40) }}'
      as: n
      max_concurrency: 1
      on_item_failure: continue
      steps: [ { id: x, tool: gone } ]
",
    );
    world.file(
        "segue.yaml",
        "commands: { gone: { argv: [./no-such-program], read_only: true } }\n\
         limits: { breaker_failures_max: 5 }\n",
    );
    let view = world.segue(&["--config", "segue.yaml", "run", "c.yaml", "--json"]).exits(4).json();
    let errors = view["errors"].as_array().unwrap();
    let left_alone =
        |e: &&crate::support::Json| e["message"].as_str().unwrap().contains("are paused");
    assert_eq!((errors.len(), errors.iter().filter(left_alone).count()), (40, 35));
    assert!(errors.iter().all(|error| error["code"] == "unreachable"));
}
