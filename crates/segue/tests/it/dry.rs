//! Dry runs: the effect plan, and with `--reads` real data in it.

use crate::support::{Json, World, json, step};

const COPY: &str = "
name: c
error_handling: { rollback_on_failure: true }
steps:
  - { id: read, tool: files_read, parameters: { path: a.txt } }
  - { id: save, tool: checkpoint_save, parameters: { content: '{{ read.content }}' } }
  - { id: note, tool: files_write, parameters: { path: '{{ save.id }}.txt', content: '{{ read.content }}' } }
  - { id: old, tool: files_delete, parameters: { path: a.txt }, depends_on: note }
output: '{{ old.deleted }}'
";

fn would(view: &Json, id: &str) -> Json {
    step(view, id)["would"].clone()
}

/// S0-80: nothing is called, and every step says what it would do.
#[test]
fn a_dry_run_calls_nothing_and_shows_the_effects() {
    let world = World::with(COPY);
    world.file("a.txt", "hello");
    let view = world.run(0, &["--dry-run"]);
    assert_eq!((&view["status"], &view["steps_executed"]), (&json!("dry_run"), &json!(0)));
    let reads = json!({ "effect": "reads", "rollback": { "kind": "not_needed" }, "confirms": false, "called": false });
    assert_eq!(would(&view, "read"), reads);
    let undo = json!({ "kind": "call", "tool": "builtin:checkpoint_delete" });
    assert_eq!(would(&view, "save")["rollback"], undo);
    assert_eq!(would(&view, "old")["effect"], "destroys");
    assert_eq!(would(&view, "old")["confirms"], true);
    assert_eq!(step(&view, "save")["input"]["content"], "{{ read.content }}");
    assert_eq!(std::fs::read_to_string(world.path("a.txt")).unwrap(), "hello");
    assert!(view["steps"].as_array().unwrap().iter().all(|step| step["attempts"] == 0), "{view}");
    let list = world.segue(&["call", "checkpoint_list"]).exits(0).json();
    assert_eq!(list["checkpoints"], json!([]));
    // A document with errors has no effects to show.
    world.file("c.yaml", COPY.replace("files_read", "file_read"));
    assert_eq!(world.run(2, &["--dry-run"])["errors"][0]["code"], "unknown-tool");
}

/// With `--reads`, later steps are given real data, and nothing is changed.
#[test]
fn reads_are_real_and_writes_are_made_up() {
    let world = World::with(COPY);
    world.file("a.txt", "hello");
    let view = world.run(0, &["--dry-run", "--reads"]);
    assert_eq!((&view["status"], &view["success"]), (&json!("dry_run"), &json!(true)));
    assert_eq!(step(&view, "read")["output"]["content"], "hello");
    assert_eq!(would(&view, "read")["called"], true);
    assert_eq!(step(&view, "save")["input"]["content"], "hello");
    assert_eq!(step(&view, "save")["status"], "pending");
    assert_eq!(would(&view, "save")["called"], false);
    let id = step(&view, "save")["output"]["id"].as_str().unwrap().to_owned();
    assert_eq!(
        step(&view, "note")["input"],
        json!({ "path": format!("{id}.txt"), "content": "hello" })
    );
    assert_eq!((&view["steps_executed"], &view["steps_succeeded"]), (&json!(1), &json!(1)));
    let files: Vec<_> =
        std::fs::read_dir(world.folder()).unwrap().map(|f| f.unwrap().file_name()).collect();
    assert_eq!(files.len(), 2, "{files:?}");
    let list = world.segue(&["call", "checkpoint_list"]).exits(0).json();
    assert_eq!(list["checkpoints"], json!([]));
}

/// Waits, polls and questions are skipped; no denial can come.
#[test]
fn nothing_is_waited_for() {
    let world = World::with(
        "
name: c
steps:
  - { id: nap, wait: 1h }
  - id: ask
    approve: { message: how many?, schema: { type: object, required: [n], properties: { n: { type: integer, minimum: 3 } } } }
    depends_on: nap
  - id: poll
    depends_on: ask
    repeat:
      until: '{{ look.n > 5 }}'
      max_iterations: 100
      delay: 1h
      steps: [ { id: look, tool: echo, parameters: { n: '{{ ask.data.n }}' } } ]
  - { id: gone, tool: files_delete, parameters: { path: x }, success_when: 'output.deleted', depends_on: poll }
",
    );
    let view = world.run(0, &["--dry-run", "--reads"]);
    assert_eq!(step(&view, "poll")["status"], "success");
    assert_eq!(step(&view, "poll/look")["output"]["n"], 3);
    assert_eq!(
        (&step(&view, "gone")["status"], &view["success"]),
        (&json!("pending"), &json!(true))
    );
}

/// A failing read is reported, and nothing is rolled back because nothing was done.
#[test]
fn what_would_fail_is_said() {
    let world = World::with(COPY);
    for more in [&[][..], &["--error-strategy", "rollback"]] {
        let view = world.run(1, &[&["--dry-run", "--reads"], more].concat());
        assert_eq!((&view["status"], &view["success"]), (&json!("dry_run"), &json!(false)));
        assert_eq!(view["errors"][0]["code"], "not-found");
        assert_eq!(step(&view, "save")["status"], "skipped");
        let after = world.run(1, &["--dry-run", "--reads", "--error-strategy", "partial_success"]);
        assert_eq!(after["status"], "dry_run");
    }
    let done = world.segue(&["run", "c.yaml", "--dry-run", "--reads"]).exits(1);
    assert!(
        done.stdout.starts_with("read  builtin:files_read  reads · called · failed\n"),
        "{}",
        done.stdout
    );
}

/// Bodies and compositions that are called are rehearsed too; what would ask is not called.
#[test]
fn loops_and_compositions_are_rehearsed() {
    let world = World::with(
        "
name: c
steps:
  - id: each
    loop: { over: [a, b], as: x, steps: [ { id: in, tool: inner, parameters: { x: '{{ x }}' } } ] }
  - { id: shy, tool: text_stats, parameters: { text: one } }
  - { id: bare, tool: touch, parameters: { n: 1 } }
",
    );
    world.file(
        "inner.yaml",
        "
name: inner
input: { type: object, required: [x], properties: { x: { type: string } } }
steps:
  - { id: nap, wait: 1h }
  - { id: say, tool: echo, parameters: { x: '{{ input.x }}' }, depends_on: nap }
  - { id: put, tool: files_write, parameters: { path: '{{ say.x }}', content: '{{ say.x }}' } }
output: '{{ say.x }}'
",
    );
    world.file(
        "segue.yaml",
        "
compositions: [inner.yaml]
commands: { touch: { argv: [touch, made.txt] } }
tools: { text_stats: { confirm: always } }
",
    );
    let args = ["--config", "segue.yaml", "run", "c.yaml", "--json", "--dry-run", "--reads"];
    let view = world.segue(&args).exits(0).json();
    assert_eq!(step(&view, "each[1]/in/say")["output"]["x"], "b");
    assert_eq!(step(&view, "each[1]/in/put")["input"]["path"], "b");
    assert_eq!(step(&view, "each[1]/in/put")["status"], "pending");
    assert_eq!(would(&view, "shy")["called"], false);
    assert_eq!(step(&view, "bare")["output"], json!({}));
    assert!(!world.path("a").exists() && !world.path("made.txt").exists());
}

#[test]
fn reads_belong_to_dry_runs() {
    let world = World::with(COPY);
    let said = world.segue(&["run", "c.yaml", "--reads"]).exits(2).stderr;
    assert!(said.contains("--dry-run"), "{said}");
}
