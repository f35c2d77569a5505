//! The usual comforts: `init`, `doctor`, `explain`, `completions`, `schema`, `--help`.

use std::fs;

use clap::CommandFactory as _;
use segue_core::diagnostic::Code;

use crate::support::{Json, World, json};

#[test]
fn what_init_writes_runs() {
    let world = World::new();
    let said = world.segue(&["init"]).exits(0).stderr;
    assert!(said.contains("created ./files/ for the file tools"), "{said}");
    let view = world.json(0, &["run", "hello", "-i", "name=Ada", "--json"]);
    assert_eq!(view["output"], json!({ "text": "Hello, Ada!", "characters": 11 }));
    assert!(world.segue(&["plan", "hello"]).exits(0).stdout.starts_with("hello · 3 steps"));
    let checked = world.segue(&["check"]).exits(0);
    assert!(checked.stderr.contains("nothing found"), "{}", checked.stderr);
}

/// The example works also beside tools of the same short names.
#[test]
fn what_init_writes_runs_beside_other_tools() {
    let world = World::new();
    world.segue(&["init"]).exits(0);
    let mut config = fs::read_to_string(world.path("segue.yaml")).unwrap();
    config.push_str("commands: { echo: { argv: ['true'] }, sleep: { argv: ['true'] } }\n");
    world.file("segue.yaml", config);
    let args = ["--config", "segue.yaml", "run", "hello", "-i", "name=Ada", "--json"];
    assert_eq!(world.json(0, &args)["output"]["text"], "Hello, Ada!");
}

#[test]
fn init_overwrites_nothing_unless_told() {
    let world = World::new();
    world.file("segue.yaml", "# mine\n");
    let refused = world.segue(&["init"]).exits(2);
    assert!(refused.stderr.contains("`segue.yaml` exists already"), "{}", refused.stderr);
    assert!(refused.stderr.contains("--force"), "{}", refused.stderr);
    assert_eq!(fs::read_to_string(world.path("segue.yaml")).unwrap(), "# mine\n");
    assert!(!world.path("compositions").exists(), "it began all the same");
    world.segue(&["init", "--force"]).exits(0);
    assert_ne!(fs::read_to_string(world.path("segue.yaml")).unwrap(), "# mine\n");
}

#[test]
fn init_into_another_folder_says_where_to_go_on() {
    let world = World::new();
    let done = world.segue(&["init", "fresh"]).exits(0);
    assert!(done.stderr.contains("cd fresh && segue run hello"), "{}", done.stderr);
    assert!(world.path("fresh/compositions/hello.yaml").is_file());
}

#[test]
fn doctor_finds_a_healthy_world_well_and_a_broken_one_not() {
    let world = World::new();
    world.segue(&["init"]).exits(0);
    assert_eq!(world.json(0, &["doctor", "--json"])["ok"], true);
    world.file("compositions/broken.yaml", "name: broken\nsteps: []\n");
    let report = world.json(2, &["doctor", "--json"]);
    assert_eq!(report["ok"], false);
    assert!(report.to_string().contains("broken.yaml"), "{report:#}");
}

/// A note about a file that was not loaded says which line of it is wrong.
#[test]
fn what_is_not_loaded_is_named_with_its_line() {
    let world = World::new();
    world.segue(&["init"]).exits(0);
    let broken =
        "name: broken\nsteps:\n  - { id: a, tool: echo, parameters: { x: '{{ 1\u{a0}+ 2 }}' } }\n";
    world.file("compositions/broken.yaml", broken);
    let said = world.segue(&["run", "hello", "-i", "name=Ada"]).exits(0).stderr;
    assert!(said.contains("broken.yaml:3:") && said.contains("was not loaded"), "{said}");
    assert!(said.contains("U+00A0, a non-breaking space"), "{said}");
}

/// `**` at the end means what is in the folders, whatever the folder of the configuration is called, and a
/// pattern that finds nothing is said to.
#[test]
fn patterns_find_files_or_are_named() {
    let world = World::new();
    world.file(
        "a[b]/segue.yaml",
        "compositions: ['lib/**', 'lbi/**', 'x**']\ntemplates: ['t/**']\n",
    );
    world.file("a[b]/lib/deep/hi.yaml", "name: hi\nsteps: [ { id: a, tool: echo } ]\n");
    world.file("a[b]/lib/hi.test.yaml", "tests: []\n");
    world.file(
        "a[b]/t/mine.yaml",
        "id: mine\ncomposition: { name: m, steps: [{ id: a, tool: echo }] }\n",
    );
    let config = ["--config", "a[b]/segue.yaml"];
    let done = world.segue(&[&config[..], &["run", "hi"]].concat()).exits(0);
    assert!(
        done.stderr.contains("note: `lbi/**` of `compositions` matches no file"),
        "{}",
        done.stderr
    );
    assert!(done.stderr.contains("`x**` of `compositions` is not a pattern"), "{}", done.stderr);
    assert!(!done.stderr.contains("`lib/**`"), "{}", done.stderr);
    world.segue(&[&config[..], &["templates", "show", "mine"]].concat()).exits(0);
    let done = world.segue(&[&config[..], &["doctor"]].concat()).exits(2);
    assert!(done.stdout.contains("WRONG  pattern        `lbi/**`"), "{}", done.stdout);
}

/// `*.yaml` beside the configuration matches the configuration too, which is no composition.
#[test]
fn a_pattern_does_not_read_its_own_configuration() {
    let world = World::new();
    world.file("segue.yaml", "compositions: ['*.yaml']\n");
    world.file("hi.yaml", "name: hi\nsteps: [ { id: a, tool: echo } ]\n");
    for args in [&["run", "hi"][..], &["--config", "./segue.yaml", "run", "hi"], &["check"]] {
        let done = world.segue(args).exits(0);
        assert!(!done.stderr.contains("segue.yaml"), "{}", done.stderr);
    }
    let said = world.segue(&["check"]).exits(0).stderr;
    assert!(said.contains("1 file checked, nothing found"), "{said}");
}

#[test]
fn doctor_names_commands_that_are_not_there() {
    let world = World::new();
    world.file("mine.yaml", "commands: { nap: { argv: [no-such-program-anywhere] } }\n");
    let report = world.segue(&["--config", "mine.yaml", "doctor"]).exits(2).stdout;
    assert!(report.contains("no-such-program-anywhere"), "{report}");
}

#[test]
fn configurations_are_checked_like_compositions() {
    let world = World::new();
    world.file("segue.yaml", "compositons: []\nstore: sqllite:x.db\n");
    let said = world.segue(&["tools"]).exits(2).stderr;
    for part in ["error[config]", "segue.yaml:1:1", "did you mean `compositions`?", ":2:8"] {
        assert!(said.contains(part), "no {part:?} in\n{said}");
    }
    world.file("segue.yaml", "builtins: { files: { root: \"${NO_SUCH_VARIABLE_HERE}\" } }\n");
    let said = world.segue(&["tools"]).exits(2).stderr;
    assert!(said.contains("NO_SUCH_VARIABLE_HERE"), "{said}");
    world.segue(&["--config", "nowhere.yaml", "tools"]).exits(2);
}

#[test]
fn completions_are_there_for_every_shell() {
    let world = World::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = world.segue(&["completions", shell]).exits(0).stdout;
        assert!(script.contains("SEGUE_COMPLETE"), "{shell}: {script}");
    }
}

#[test]
fn every_code_is_explained() {
    let world = World::new();
    for code in Code::ALL {
        let page = world.segue(&["explain", code.as_str()]).exits(0).stdout;
        assert!(page.starts_with(&format!("# {code}\n")), "{page}");
        assert!(page.contains("## What to do"), "{code}: {page}");
    }
    let list = world.json(0, &["explain", "--json"]);
    assert_eq!(list["codes"].as_array().unwrap().len(), Code::ALL.len());
    let slip = world.segue(&["explain", "unknown-tol"]).exits(2);
    assert!(slip.stderr.contains("did you mean `unknown-tool`?"), "{}", slip.stderr);
}

#[test]
fn schemas_of_both_drafts_are_printed() {
    let world = World::new();
    let current = world.json(0, &["schema"]);
    assert_eq!(current["$schema"], "https://json-schema.org/draft/2020-12/schema");
    let older = world.json(0, &["schema", "--draft", "07"]);
    assert_eq!(older["$schema"], "http://json-schema.org/draft-07/schema#");
}

/// The schema of a fresh folder accepts what Segue accepts there, without a network, and finds a wrong
/// tool and a wrong parameter.
#[test]
fn init_writes_a_schema_with_the_tools_of_the_folder() {
    let world = World::new();
    world.segue(&["init"]).exits(0);
    let hello = fs::read_to_string(world.path("compositions/hello.yaml")).unwrap();
    let header = "# yaml-language-server: $schema=../.segue/composition.schema.json\n";
    assert!(hello.starts_with(header), "{hello}");
    let written = fs::read_to_string(world.path(".segue/composition.schema.json")).unwrap();
    let schema: Json = serde_json::from_str(&written).unwrap();
    assert!(jsonschema::meta::is_valid(&schema));
    assert_eq!(schema, world.json(0, &["schema", "--tools", "--draft", "07"]));
    for draft in ["07", "2020-12"] {
        let schema = world.json(0, &["schema", "--tools", "--draft", draft]);
        let validator = jsonschema::validator_for(&schema).unwrap();
        let step = |tool: &str, parameters: Json| json!({ "name": "c", "steps": [{ "id": "a", "tool": tool, "parameters": parameters }] });
        assert!(
            validator.is_valid(&step("builtin:text_stats", json!({ "text": "{{ input.x }}" })))
        );
        assert!(validator.is_valid(&step("sleep", json!({ "ms": "{{ input.ms }}" }))));
        assert!(!validator.is_valid(&step("builtin:text_stat", json!({ "text": "x" }))), "{draft}");
        assert!(!validator.is_valid(&step("sleep", json!({ "ms": "soon" }))), "{draft}");
        assert!(!validator.is_valid(&step("sleep", json!({}))), "{draft}");
    }
}

/// Commands and recorded tools are in the schema; of a server whose tools are unknown, every name is accepted,
/// and nothing is started.
#[test]
fn the_schema_has_the_tools_of_the_configuration() {
    let world = World::new();
    let config = "commands: { today: { argv: [date] } }\n\
                  mcpServers: { away: { command: does-not-exist } }\n";
    world.file("segue.yaml", config);
    let printed = world.segue(&["schema", "--tools", "--offline"]).exits(0);
    assert!(printed.stderr.contains("`away`"), "{}", printed.stderr);
    let validator = jsonschema::validator_for(&printed.json()).unwrap();
    for (tool, is_known) in [("today", true), ("away:anything", true), ("tomorrow", false)] {
        let document = json!({ "name": "c", "steps": [{ "id": "a", "tool": tool }] });
        assert_eq!(validator.is_valid(&document), is_known, "{tool}");
    }
    let written = world.segue(&["schema", "--tools", "--offline", "--write"]).exits(0);
    assert!(written.stdout.is_empty(), "{}", written.stdout);
    assert!(world.path(".segue/composition.schema.json").is_file());
    world.segue(&["schema", "--write"]).exits(2);
    world.segue(&["schema", "--tools", "--test"]).exits(2);
}

#[test]
fn every_command_helps() {
    let world = World::new();
    let mut waiting = vec![(Vec::new(), segue::cli::Cli::command())];
    let mut seen = 0;
    while let Some((path, command)) = waiting.pop() {
        for inner in command.get_subcommands() {
            let path = [path.clone(), vec![inner.get_name().to_owned()]].concat();
            waiting.push((path, inner.clone()));
        }
        let mut args: Vec<&str> = path.iter().map(String::as_str).collect();
        args.push("--help");
        let help = world.segue(&args).exits(0);
        assert!(help.stdout.contains("Usage: segue"), "{args:?}: {}", help.stdout);
        assert!(help.stderr.is_empty(), "{args:?}: {}", help.stderr);
        seen += 1;
    }
    assert!(seen > 11, "only {seen} commands");
}

#[test]
fn wrong_usage_ends_with_2() {
    let world = World::new();
    for args in [&["frobnicate"][..], &[], &["run"], &["check"], &["plan", "x", "--format", "gif"]]
    {
        let done = world.segue(args).exits(2);
        assert!(!done.stderr.is_empty() && done.stdout.is_empty(), "{args:?}: {done:?}");
    }
    assert!(world.segue(&["--version"]).exits(0).stdout.starts_with("segue "));
}
