//! `segue generate`: typed clients, which compile, type-check and call a running Segue.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::mcp::real_servers;
use crate::support::{SEGUE, World, files_below, json, repository};

/// Every kind of type, and names that are no names elsewhere.
fn world() -> World {
    let world = World::new();
    let folder = repository().join("crates/segue/tests/it/generated");
    for name in ["tricky.yaml", "words.yaml"] {
        world.file(name, fs::read_to_string(folder.join(name)).unwrap());
    }
    world.file("segue.yaml", "compositions: [tricky.yaml, words.yaml]\n");
    for (name, language) in NAMES.iter().flat_map(|name| LANGUAGES.map(|language| (name, language)))
    {
        let to = format!("{language}/{name}");
        world.segue(&["-q", "generate", name, "--lang", language, "-o", &to]).exits(0);
    }
    world
}

const NAMES: [&str; 2] = ["tricky-types", "import"];
const LANGUAGES: [&str; 3] = ["rust", "python", "typescript"];

#[track_caller]
fn works(output: &Output) {
    let (stdout, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}\n{stderr}");
}

/// S1-66, S1-67: what is written for tricky schemas is what was looked at. `SEGUE_ACCEPT=1` takes
/// what is written now.
#[test]
fn what_is_written_is_what_was_looked_at() {
    let world = world();
    let golden = repository().join("crates/segue/tests/it/generated");
    let mut seen = 0;
    for language in LANGUAGES {
        for file in files_below(&world.path(language), &["rs", "py", "ts", "toml", "json"]) {
            let name = file.strip_prefix(world.folder()).unwrap();
            // Not the ending of a source file: nothing else should take it for one.
            let kept = golden.join(format!("{}.txt", name.display()));
            let text = fs::read_to_string(&file).unwrap();
            if std::env::var_os("SEGUE_ACCEPT").is_some() {
                fs::create_dir_all(kept.parent().unwrap()).unwrap();
                fs::write(&kept, &text).unwrap();
            }
            let expected = fs::read_to_string(&kept).unwrap_or_default();
            assert!(text == expected, "{} is not what was looked at", kept.display());
            seen += 1;
        }
    }
    assert_eq!(seen, 20);
}

#[test]
fn nothing_is_replaced_unasked() {
    let world = world();
    world.file("python/import/pyproject.toml", "mine");
    let args = ["generate", "import", "--lang", "python", "-o", "python/import"];
    let done = world.segue(&args).exits(2);
    assert!(done.stderr.contains("exists already"), "{}", done.stderr);
    assert_eq!(fs::read_to_string(world.path("python/import/pyproject.toml")).unwrap(), "mine");
    let report = world.json(0, &[&args[..], &["--force", "--json"]].concat());
    assert_eq!(report["tool"], json!("import"));
    assert_ne!(fs::read_to_string(world.path("python/import/pyproject.toml")).unwrap(), "mine");
    world.segue(&["generate", "nothing", "--lang", "rust", "-o", "x"]).exits(2);
}

/// Two parameters without a default, and one with.
const CHAIN: &str = "
name: greet_twice
parameters:
  - { name: who, type: string, required: true }
  - { name: times, type: integer, required: true }
  - { name: tone, type: string, default: kind }
implementation:
  type: composite
  composite:
    steps:
      - name: first
        tool: echo
        inputs: { who: '{{ state.who }}', times: '{{ state.times }}' }
        on_success: { map_outputs: { who: greeted } }
      - { name: second, tool: echo, inputs: { all: ['{{ state.greeted }}', '{{ state.tone }}'] } }
";

/// S1-68: a client of a chain gives every parameter to the chain's state. The run has the steps of
/// the document, and the tool's own name as the name of the chain.
#[test]
fn a_client_gives_every_parameter_to_the_state_of_its_chain() {
    let world = World::new();
    world.file("chain.yaml", CHAIN);
    world.file("segue.yaml", "compositions: [chain.yaml]\n");
    let args = ["-q", "generate", "greet_twice", "--lang", "python", "-o", "client"];
    world.segue(&args).exits(0);
    let python = real_servers().join("hosts/bin/python");
    let mut test = world.command(python.to_str().unwrap());
    test.args(["-m", "unittest", "discover", "-s"]).arg(world.path("client/tests"));
    works(&test.env("PYTHONPATH", world.path("client")).env("SEGUE", SEGUE).output().unwrap());
    let view = world.json(0, &["runs", "show", "last", "--json"]);
    let state = &view["state"];
    assert_eq!((&view["name"], &state["chain_name"]), (&json!("greet_twice"), &view["name"]));
    assert!(state["who"].is_string() && state["times"].is_i64(), "{state}");
    assert!(state["tone"].is_string(), "{state}");
    let steps = view["steps"].as_array().unwrap();
    let ids: Vec<&str> = steps.iter().map(|step| step["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["first", "second"]);
    assert_eq!(steps[0]["input"], json!({ "who": state["who"], "times": state["times"] }));
    assert_eq!(steps[1]["input"], json!({ "all": [state["who"], state["tone"]] }));
}

/// The client hands every parameter on, and a running Segue takes them.
#[test]
fn a_python_client_is_typed_and_works() {
    let (world, folder) = (world(), real_servers());
    for name in NAMES {
        let project = world.path(&format!("python/{name}"));
        let mut check = world.command(folder.join("hosts/bin/mypy").to_str().unwrap());
        // One cache for all: the libraries are the same.
        check.arg("--cache-dir").arg(folder.join("mypy-cache"));
        works(&check.arg(".").current_dir(&project).output().unwrap());
        let mut test = world.command(folder.join("hosts/bin/python").to_str().unwrap());
        test.args(["-m", "unittest", "discover", "-s"]).arg(project.join("tests"));
        works(&test.env("PYTHONPATH", &project).env("SEGUE", SEGUE).output().unwrap());
    }
}

#[test]
fn a_typescript_client_is_typed_and_works() {
    let (world, folder) = (world(), real_servers());
    for name in NAMES {
        let project = world.path(&format!("typescript/{name}"));
        std::os::unix::fs::symlink(
            folder.join("npm-clients/node_modules"),
            project.join("node_modules"),
        )
        .unwrap();
        let mut check = world.command(project.join("node_modules/.bin/tsc").to_str().unwrap());
        works(&check.current_dir(&project).output().unwrap());
        let mut test = world.command(folder.join("node/bin/node").to_str().unwrap());
        let file = files_below(&project.join("test"), &["ts"]).swap_remove(0);
        works(&test.arg("--test").arg(file).env("SEGUE", SEGUE).output().unwrap());
    }
}

/// With the versions of this workspace, from what was downloaded for it: nothing is fetched.
#[test]
fn a_rust_client_compiles_and_works() {
    let world = world();
    let members = NAMES.map(|name| format!("\"rust/{name}\"")).join(", ");
    // Together, so that what they are made of is built once.
    world.file("Cargo.toml", format!("[workspace]\nresolver = \"3\"\nmembers = [{members}]\n"));
    for name in NAMES {
        let manifest = world.path(&format!("rust/{name}/Cargo.toml"));
        let text = fs::read_to_string(&manifest).unwrap();
        let alone = text.find("# No part of whatever folder").unwrap();
        fs::write(&manifest, &text[..alone]).unwrap();
    }
    fs::copy(repository().join("Cargo.lock"), world.path("Cargo.lock")).unwrap();
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("generated");
    // The first time it builds for a minute or two, beside tests that have bounds of their own.
    let mut test = Command::new("nice");
    test.args(["-n", "19", env!("CARGO"), "test", "--offline", "--quiet", "--workspace", "-j1"]);
    test.current_dir(world.folder());
    test.env("CARGO_TARGET_DIR", target).env("CARGO_PROFILE_DEV_DEBUG", "0").env("SEGUE", SEGUE);
    test.env("XDG_DATA_HOME", world.path("data")).env("XDG_CONFIG_HOME", world.path("config"));
    works(&test.env("RUSTFLAGS", "-D warnings").output().unwrap());
}
