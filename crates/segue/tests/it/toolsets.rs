//! Toolsets of the configuration, and what other hosts are given.

use crate::support::{Json, World, json};

const CONFIG: &str = "
store: memory
tools:
  files_delete: { tags: [danger], scopes: [write], category: files }
  files_read: { category: files }
  echo: { tags: [safe], confirm: never }
toolsets:
  safe: { tags_all: [safe] }
  files: { categories: [files], policy: { deny_tags: [danger] } }
  scoped: { namespaces: [builtin], policy: { allow_scopes: [] } }
  writing: { allow: [files_write, fail] }
  short: { guards: { max_steps: 2 } }
  shorter: { guards: { max_steps: 1, max_tool_calls: 0 } }
  few: { guards: { max_tool_calls: 1 } }
  quick: { guards: { timeout: 50ms } }
  patient: { guards: { timeout: 1h } }
  nothing: { policy: deny_all }
  picky: { where: \"tool.annotations.read_only and tool.name != 'echo'\" }
";

fn world() -> World {
    let world = World::new();
    world.file("segue.yaml", CONFIG);
    world
}

fn ids(world: &World, toolset: &str) -> Vec<String> {
    let listed = world.json(0, &["tools", "--json", "--toolset", toolset]);
    let tools = listed["tools"].as_array().unwrap();
    tools.iter().map(|tool| tool["id"].as_str().unwrap().to_owned()).collect()
}

/// S2-03, S2-14, S2-15
#[test]
fn toolsets_of_the_configuration_select_tools() {
    let world = world();
    assert_eq!(ids(&world, "safe"), ["builtin:echo"]);
    assert_eq!(ids(&world, "files"), ["builtin:files_read"]);
    assert_eq!(ids(&world, "nothing"), Vec::<String>::new());
    let scoped = ids(&world, "scoped");
    assert!(scoped.contains(&"builtin:echo".to_owned()) && scoped.is_sorted());
    assert!(!scoped.contains(&"builtin:files_delete".to_owned()));
    let picky = ids(&world, "picky");
    assert!(picky.contains(&"builtin:files_read".to_owned()));
    assert!(!picky.contains(&"builtin:echo".to_owned()));
    assert!(!picky.contains(&"builtin:files_write".to_owned()));
}

/// A composition that a toolset selects, but whose tools it does not, is not listed.
#[test]
fn compositions_that_cannot_run_are_not_listed() {
    let world = world();
    let toolset =
        "toolsets: { some: { allow: ['composition:says', 'composition:fails', echo] } }\n";
    world.file("segue.yaml", format!("store: memory\ncompositions: ['*s.yaml']\n{toolset}"));
    world.file("says.yaml", "name: says\nsteps: [{ id: a, tool: echo }]\n");
    world.file("fails.yaml", "name: fails\nsteps: [{ id: a, tool: fail }]\n");
    assert_eq!(ids(&world, "some"), ["builtin:echo", "composition:says"]);
}

#[test]
fn what_is_wrong_with_a_toolset_is_said() {
    let world = world();
    let done = world.segue(&["tools", "--toolset", "saef"]).exits(2);
    assert!(done.stderr.contains("there is no toolset `saef`"), "{done:?}");
    assert!(done.stderr.contains("did you mean `safe`?"), "{done:?}");
    world.file(
        "bad.yaml",
        "toolsets:\n  a: { namespace: [x] }\n  b: { policy: perhaps }\n  c: { where: \"tool.\" }\n  d: { policy: { allow_tags: [x] } }\n  e: { guards: { max_steps: many } }\n",
    );
    let done = world.segue(&["--config", "bad.yaml", "tools"]).exits(2);
    for part in [
        "did you mean `namespaces`?",
        "not `perhaps`",
        "bad.yaml:4",
        "no field `allow_tags`",
        "bad.yaml:6",
    ] {
        assert!(done.stderr.contains(part), "{part}: {}", done.stderr);
    }
}

const TIDY: &str = "
name: tidy
steps:
  - { id: a, tool: echo, parameters: { x: 1 } }
  - { id: b, tool: files_list, parameters: { path: . }, depends_on: [a] }
";

/// SX-05, S2-45: when it is checked, planned and run.
#[test]
fn a_composition_is_held_to_its_toolset() {
    let world = world();
    world.file("c.yaml", TIDY);
    let checked = world.json(2, &["check", "c.yaml", "--json", "--toolset", "safe"]);
    let finding = &checked["diagnostics"][0];
    assert_eq!(
        (finding["code"].as_str(), finding["line"].as_u64()),
        (Some("tool-not-allowed"), Some(5))
    );
    world.segue(&["plan", "c.yaml", "--toolset", "safe"]).exits(2);
    let view = world.run(2, &["--toolset", "safe"]);
    assert_eq!(view["errors"][0]["code"], "tool-not-allowed");
    assert_eq!(view["steps"], json!([]));
    let view = world.run(0, &["--toolset", "scoped"]);
    assert_eq!(view["status"], "success");
}

/// SX-05: compositions made at run time, and direct calls.
#[test]
fn each_call_is_held_to_the_toolset() {
    let world = world();
    world.file(
        "c.yaml",
        "
name: grows
steps:
  - id: made
    tool: echo
    parameters: { doc: \"name: inner\\nsteps: [{ id: x, tool: files_list, parameters: { path: . } }]\" }
  - { id: grown, expand: \"{{ made.doc }}\" }
",
    );
    let view = world.run(1, &["--toolset", "safe"]);
    let error = &view["errors"][0];
    assert_eq!(
        (error["step"].as_str(), error["code"].as_str()),
        (Some("grown"), Some("tool-not-allowed"))
    );
    world.run(0, &[]);
    let done = world.segue(&["call", "files_list", "-i", "path=.", "--toolset", "safe"]).exits(1);
    assert!(done.stderr.contains("`builtin:files_list` is not in the toolset `safe`"), "{done:?}");
    world.segue(&["call", "echo", "-i", "x=1", "--toolset", "safe"]).exits(0);
}

/// An interrupted run resumes within the toolset of the process that resumes it.
#[test]
fn a_run_goes_on_within_a_toolset() {
    let world = world();
    world.file("c.yaml", TIDY);
    let store = ["--store", "sqlite:runs.db"];
    world.segue(&[&["run", "c.yaml", "--inject", "crash-after=2"], &store[..]].concat());
    let runs = world.segue(&[&["runs", "--json"], &store[..]].concat()).exits(0).json();
    let run = runs["runs"][0]["run_id"].as_str().unwrap().to_owned();
    let view = world
        .segue(&[&["resume", &run, "--json", "--toolset", "safe"], &store[..]].concat())
        .exits(1)
        .json();
    let error = &view["errors"][0];
    assert_eq!(
        (error["step"].as_str(), error["code"].as_str()),
        (Some("b"), Some("tool-not-allowed"))
    );
}

/// S2-43, S2-44, SX-05: exactly at the limit passes, and no limit is none.
#[test]
fn guards_bound_what_runs() {
    let world = world();
    world.file("c.yaml", TIDY);
    world.run(0, &["--toolset", "short"]);
    let checked = world.json(2, &["check", "c.yaml", "--json", "--toolset", "shorter"]);
    let finding = &checked["diagnostics"][0];
    assert_eq!(
        (finding["code"].as_str(), finding["line"].as_u64()),
        (Some("max-steps-exceeded"), Some(5))
    );
    let view = world.run(1, &["--toolset", "few"]);
    let error = &view["errors"][0];
    assert_eq!((error["step"].as_str(), error["code"].as_str()), (Some("b"), Some("limit")));
    world
        .file("c.yaml", "name: slow\nsteps: [{ id: a, tool: sleep, parameters: { ms: 60000 } }]\n");
    let view = world.run(1, &["--toolset", "quick", "--timeout", "50s"]);
    assert!(view["errors"].to_string().contains("timeout"), "{view}");
    // A guard takes time away and never gives any.
    let slow =
        "name: slow\ntimeout: 50ms\nsteps: [{ id: a, tool: sleep, parameters: { ms: 60000 } }]\n";
    world.file("c.yaml", slow);
    let view = world.run(1, &["--toolset", "patient"]);
    assert!(view["errors"].to_string().contains("timeout"), "{view}");
}

/// A rollback that a tool declares is part of the tool, and stays allowed.
#[test]
fn a_rollback_stays_within_a_toolset() {
    let world = world();
    world.file(
        "c.yaml",
        "
name: undone
error_handling: { rollback_on_failure: true }
steps:
  - { id: a, tool: files_write, parameters: { path: x.txt, content: x } }
  - { id: b, tool: fail, parameters: {}, depends_on: [a] }
",
    );
    let view = world.run(1, &["--toolset", "writing"]);
    assert_eq!(view["status"], "rolled_back");
    assert!(!world.path("x.txt").exists());
    let undo =
        world.segue(&["call", "files_restore", "--input", "{}", "--yes", "--toolset", "writing"]);
    assert_ne!(undo.code, Some(0));
}

fn named(export: &Json, name: &str) -> bool {
    export["names"].as_object().unwrap().contains_key(name)
}

/// S2-22, S2-24, S2-25, S2-26, S2-36, S2-63: every format, from the command line.
#[test]
fn tools_are_exported_for_every_host() {
    let world = world();
    for format in ["mcp", "openai", "openai-responses", "anthropic", "gemini"] {
        let args = ["export", "--format", format, "--toolset", "files"];
        let export = world.json(0, &[&args[..], &["--json"]].concat());
        assert!(named(&export, "builtin__files_read"), "{export}");
        assert_eq!(export["errors"], json!([]));
        let plain = world.segue(&args).exits(0);
        assert_eq!(plain.json(), export["tools"]);
        let said = plain.stderr.lines().count();
        assert_eq!(said, export["losses"].as_array().unwrap().len(), "{}", plain.stderr);
        let again = world.segue(&args).exits(0);
        assert_eq!((again.stdout, again.stderr), (plain.stdout, plain.stderr));
    }
    let strict = world.json(0, &["export", "--format", "openai", "--strict", "--toolset", "files"]);
    assert_eq!(strict[0]["function"]["parameters"]["additionalProperties"], false);
    let done = world.segue(&["export", "--format", "mcp", "--strict"]).exits(2);
    assert!(done.stderr.contains("`mcp` has no strict form"), "{done:?}");
}

/// Every built-in tool can be exported to every host.
#[test]
fn all_tools_can_be_exported() {
    let world = world();
    for format in ["mcp", "openai", "openai-responses", "anthropic", "gemini"] {
        let export = world.json(0, &["export", "--format", format, "--json"]);
        assert_eq!(export["errors"], json!([]), "{format}");
        assert!(export["names"].as_object().unwrap().len() > 20);
    }
}

/// S2-29: what cannot be converted is named, and the rest printed.
#[test]
fn a_tool_that_cannot_be_exported_is_named() {
    let world = World::new();
    world.file(
        "segue.yaml",
        "store: memory\ncommands:\n  odd: { argv: ['true'], input: { type: object, properties: { x: { $ref: 'https://example.org/s' } } } }\n",
    );
    let done = world.segue(&["export", "--format", "openai", "-q"]).exits(1);
    assert!(done.stderr.contains("`command:odd` was not exported"), "{}", done.stderr);
    assert!(done.stdout.contains("builtin__echo"));
}
