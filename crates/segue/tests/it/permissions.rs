//! Who may touch what: Segue's own files, and configurations that were merely found.

use std::fs;
use std::io::{Read as _, Write as _};
#[cfg(unix)]
use std::os::unix::fs::symlink;
use std::path::Path;

use segue_core::tool::hex_digest;

use crate::served::{Served, TOKEN};
use crate::support::{Done, World, json};

const CONFIG: &str = "\
compositions: ['compositions/**/*.yaml', 'more/*/deep.yaml']
templates: ['templates/**']
store: sqlite:data/runs.db
builtins: { files: { root: . } }
commands: { tool: { argv: ['./tool.sh'], read_only: true } }
";

const HELLO: &str = "name: hello\nsteps: [ { id: a, tool: echo, parameters: { e: e } } ]\n";

/// A folder in which everything of Segue's lies below the root of the file tools.
#[cfg(unix)]
fn everything_below_the_root() -> World {
    let world = World::new();
    world.file("segue.yaml", CONFIG);
    world.file(".mcp.json", r#"{ "mcpServers": {} }"#);
    world.file("compositions/a.yaml", HELLO);
    world.file("templates/t.yaml", HELLO.replace("hello", "t"));
    world.file("tool.sh", "#!/bin/sh\necho e\n");
    world.file("elsewhere/notes.md", "e");
    world.file("compositions/readme.md", "e");
    world.segue(&["run", "hello"]).exits(0);
    assert!(world.path("data/runs.db").exists());
    symlink("segue.yaml", world.path("link")).unwrap();
    symlink("compositions", world.path("linked")).unwrap();
    fs::create_dir(world.path("more")).unwrap();
    symlink("../elsewhere", world.path("more/link")).unwrap();
    fs::hard_link(world.path("segue.yaml"), world.path("hard")).unwrap();
    fs::hard_link(world.path("data/runs.db"), world.path("hard.db")).unwrap();
    fs::hard_link(world.path("compositions/a.yaml"), world.path("hard.md")).unwrap();
    world
}

/// Names and contents of everything below a folder but the store, which every command writes to.
fn contents(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() && !path.is_symlink() && !path.ends_with("data") {
            found.extend(contents(&path));
        }
        found.push((path.display().to_string(), fs::read(&path).unwrap_or_default()));
    }
    found.retain(|(name, _)| !name.ends_with("hard.db"));
    found.sort();
    found
}

/// Every tool that changes files.
const CHANGES: &[&str] =
    &["files_write", "files_edit", "atomic_edit", "files_delete", "files_restore"];

/// What is Segue's own, in every spelling that leads to it: what exists, and what would be read once
/// it is there.
const OWN: &[&str] = &[
    "segue.yaml",
    "./segue.yaml",
    "elsewhere/../segue.yaml",
    "SEGUE.yaml",
    "Segue.Yml",
    "seg\u{200b}ue.yaml",
    "sub/segue.yaml",
    ".mcp.json",
    ".MCP.json",
    "link",
    "hard",
    "compositions/a.yaml",
    "compositions//new.yaml",
    "compositions/new/deep/x.yaml",
    "compositions/x.test.yaml",
    "COMPOSITIONS/x.YAML",
    "linked/a.yaml",
    "linked/new.yaml",
    "hard.md",
    "elsewhere/deep.yaml",
    "templates/t.yaml",
    "templates/new.json",
    "data/runs.db",
    "data/runs.db-wal",
    "data/runs.db-journal",
    "data/runs.db-owners/x",
    "hard.db",
    "tool.sh",
];

fn call(world: &World, tool: &str, path: &str) -> Done {
    let args = match tool {
        "files_write" | "files_restore" => json!({ "path": path, "content": "e" }),
        "files_edit" => json!({ "path": path, "find": "e", "replace": "x", "all": true }),
        "atomic_edit" => json!({ "path": path, "find": "hello", "replace": "x" }),
        _ => json!({ "path": path }),
    };
    world.segue(&["call", tool, "--yes", "--input", &args.to_string()])
}

/// D1: no file tool changes what Segue reads or keeps, however its path is written.
#[test]
#[cfg(unix)]
fn no_file_tool_changes_files_of_segue() {
    let world = everything_below_the_root();
    let before = contents(&world.folder());
    let mut wrong = Vec::new();
    for tool in CHANGES {
        for path in OWN {
            let done = call(&world, tool, path);
            let has_reason = ["Segue", "composition or a template", "contains `..`"]
                .iter()
                .any(|reason| done.stderr.contains(reason));
            // It reads first, and may find another reason there.
            let has_reason = has_reason || *tool == "atomic_edit";
            if done.code == Some(0) || !has_reason {
                wrong.push(format!("{tool} {path}: {:?} {}", done.code, done.stderr.trim()));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        CHANGES.len() * OWN.len(),
        wrong.join("\n")
    );
    assert_eq!(contents(&world.folder()), before);
    // Everything else is as free as before.
    for path in ["notes.md", "elsewhere/new/notes.md", "compositions/readme.md", "elsewhere/x.yaml"]
    {
        call(&world, "files_write", path).exits(0);
    }
}

/// D1: what holds secrets is not read either, nor listed; compositions are.
#[test]
#[cfg(unix)]
fn no_file_tool_reads_a_configuration_or_the_store() {
    let world = everything_below_the_root();
    for path in ["segue.yaml", "link", "hard", ".mcp.json", "data/runs.db", "hard.db"] {
        let refused = call(&world, "files_read", path);
        assert!(refused.code != Some(0) && refused.stderr.contains("Segue"), "{path}: {refused:?}");
    }
    call(&world, "files_read", "compositions/a.yaml").exits(0);
    let listed =
        world.segue(&["call", "files_list", "--input", r#"{ "recursive": true }"#]).exits(0);
    let listed: Vec<String> = listed.json()["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| file["path"].as_str().unwrap().to_owned())
        .collect();
    assert!(listed.contains(&"compositions/a.yaml".to_owned()), "{listed:?}");
    for hidden in ["segue.yaml", ".mcp.json", "hard", "data/runs.db", "hard.db"] {
        assert!(!listed.contains(&hidden.to_owned()), "{hidden}: {listed:?}");
    }
}

/// D1: a principal that may run served compositions gains no further rights.
#[test]
fn a_principal_with_run_does_not_become_the_administrator() {
    let world = World::new();
    let hash = hex_digest(b"runner-token");
    let config = format!(
        "compositions: ['lib/*.yaml']\nbuiltins: {{ files: {{ root: . }} }}\nserver:\n  token: {TOKEN}\n  \
         principals: {{ runner: {{ token: 'sha256:{hash}', rights: [run] }} }}\n"
    );
    world.file("segue.yaml", &config);
    world.file(
        "lib/put.yaml",
        "name: put\ninput: { type: object, properties: { path: { type: string }, content: { type: string } } }\n\
         steps: [ { id: a, tool: files_write, parameters: { path: '{{ input.path }}', content: '{{ input.content }}' } } ]\n",
    );
    let served = Served::start(&world, "memory", &[]);
    let put = |path: &str, content: &str| {
        let body = json!({ "name": "put", "input": { "path": path, "content": content } });
        served.send_by("runner-token", "POST", "/api/v1/compositions/execute", &[], &body).json()
    };
    let rights = config.replace("rights: [run]", "rights: [admin]");
    let evil = "name: evil\nsteps: [ { id: a, tool: files_list } ]\n";
    for (path, content) in [("segue.yaml", &*rights), ("lib/evil.yaml", evil), (".mcp.json", "{}")]
    {
        let answer = put(path, content);
        let said = answer.to_string();
        assert!(
            said.contains("Segue") || said.contains("composition or a template"),
            "{path}: {said}"
        );
    }
    assert_eq!(fs::read_to_string(world.path("segue.yaml")).unwrap(), config);
    assert!(!world.path("lib/evil.yaml").exists() && !world.path(".mcp.json").exists());
}

/// What a found configuration could grant: everything but what merely limits and names documents.
const GRANTS: &[(&str, &str)] = &[
    ("builtins", "builtins: { files: { root: /etc } }"),
    ("builtins", "builtins: { http: { allow: ['127.0.0.1:*'] } }"),
    ("builtins", "builtins: { files: { overwrite: ['**'] } }"),
    ("tools", "tools: { files_delete: { confirm: never } }"),
    ("tools", "tools: { files_delete: { read_only: true } }"),
    ("http", "http: { tell: { url: 'http://127.0.0.1:9/x', method: POST } }"),
    ("store", "store: sqlite:theirs.db"),
    ("server", "server: { token: abcdefghijklmnopqrstuvwxyz0123456789, listen: '0.0.0.0:7433' }"),
    ("retention", "retention: { keep: 0 }"),
    ("commands", "commands: { shout: { argv: ['tr', 'a-z', 'A-Z'] } }"),
    ("mcpServers", "mcpServers: { s: { command: cat } }"),
    ("llm", "llm: { provider: openai, base_url: 'http://127.0.0.1:9/v1', model: m, api_key: k }"),
    ("observe", "observe: { otlp: { endpoint: 'http://127.0.0.1:9' } }"),
];

/// D2: each part of a found configuration that grants reach waits for trust, is shown by `trust`, and
/// asks anew once it is changed.
#[test]
fn every_setting_that_grants_access_needs_trust() {
    for (part, text) in GRANTS {
        let world = World::found();
        world.file("segue.yaml", text);
        world.file("c.yaml", "name: c\nsteps: [ { id: a, tool: echo, parameters: { a: 1 } } ]\n");
        let untrusted = |world: &World| {
            let done = world.segue(&["run", "c.yaml"]).exits(0);
            done.stderr.contains("segue trust") && done.stderr.contains(&format!("`{part}`"))
        };
        assert!(untrusted(&world), "{text}");
        let shown = world.segue(&["trust"]).exits(0).stderr;
        assert!(shown.contains(part), "{text}: {shown}");
        let said = world.segue(&["run", "c.yaml"]).exits(0).stderr;
        assert!(!said.contains("segue trust"), "{text}: {said}");
        // What grants nothing may change, and a limit is no grant.
        world.file("segue.yaml", format!("{text}\nlimits: {{ steps_max: 50 }}\n"));
        assert!(!untrusted(&world), "{text}");
        let more = if *part == "http" {
            "store: memory"
        } else {
            "http: { o: { url: 'https://e.example/' } }"
        };
        world.file("segue.yaml", format!("{text}\n{more}\n"));
        assert!(untrusted(&world), "{text}");
    }
}

/// D2: what was not allowed has no effect: the defaults hold.
#[test]
fn an_untrusted_configuration_grants_nothing() {
    let world = World::found();
    world.file(
        "segue.yaml",
        "builtins: { files: { root: /etc } }\ntools: { files_delete: { confirm: never } }\nstore: sqlite:theirs.db\n",
    );
    world.file("mine.txt", "mine");
    let read = |path: &str| world.segue(&["call", "files_read", "-i", &format!("path={path}")]);
    assert_ne!(read("passwd").code, Some(0), "the root of a stranger");
    read("mine.txt").exits(0);
    let deleted = world.segue(&["call", "files_delete", "-i", "path=mine.txt"]);
    assert!(deleted.code != Some(0) && world.path("mine.txt").exists(), "{deleted:?}");
    world.file("c.yaml", "name: c\nsteps: [ { id: a, tool: echo, parameters: { a: 1 } } ]\n");
    world.segue(&["run", "c.yaml"]).exits(0);
    assert!(!world.path("theirs.db").exists());
    world.segue(&["trust"]).exits(0);
    read("passwd").exits(0);
}

/// D2, D5: what was allowed can be listed and forgotten, and no secret is shown.
#[test]
fn trust_is_listed_and_forgotten_and_shows_no_secret() {
    let world = World::found();
    let canary = "sk-canary-0123456789";
    world.file(
        "segue.yaml",
        format!(
            "mcpServers:\n  s: {{ command: cat, args: ['--token', '{canary}a', '--key={canary}b'], env: {{ MODE: '{canary}c', K: '${{HOME}}' }} }}\n  \
             h: {{ url: 'http://u:{canary}d@127.0.0.1:9/?api_key={canary}e', headers: {{ X-Any: '{canary}f' }} }}\n\
             commands: {{ c: {{ argv: ['cat', '--password', '{canary}g'], env: {{ A: '{canary}h' }} }} }}\n\
             llm: {{ provider: openai, base_url: 'http://127.0.0.1:9/v1', model: m, api_key: '{canary}i' }}\n\
             server: {{ token: '{canary}-{canary}' }}\n\
             observe: {{ otlp: {{ endpoint: 'http://127.0.0.1:9', headers: {{ a: '{canary}j' }} }} }}\n"
        ),
    );
    let shown = world.segue(&["trust"]).exits(0).stderr;
    assert!(shown.contains("${HOME}") && shown.contains("127.0.0.1:9"), "{shown}");
    assert!(!shown.contains("canary"), "{shown}");
    let listed = world.segue(&["trust", "--list"]).exits(0).stdout;
    assert!(listed.contains("segue.yaml"), "{listed}");
    world.segue(&["trust", "--forget"]).exits(0);
    let listed = world.segue(&["trust", "--list"]).exits(0).stdout;
    assert!(!listed.contains("segue.yaml"), "{listed}");
    let refused = world.segue(&["call", "c", "--yes"]);
    assert!(refused.code != Some(0) && refused.stderr.contains("segue trust"), "{refused:?}");
}

/// What writes `done` to a file by that name.
const WRITES: &str = "name: w\nsteps: [ { id: a, tool: files_write, parameters: { path: out/a.md, content: done } } ]\n";

/// D1: a file that appears after its write was decided, while the call waits at the gate, is not
/// replaced: no question covered it.
#[test]
fn what_appears_before_a_write_is_not_overwritten() {
    let world = World::with(
        "name: c\nsteps:\n  - { id: a, tool: 'command:make' }\n\
         \x20 - { id: b, tool: files_write, parameters: { path: late.txt, content: x } }\n",
    );
    // One call at a time: `b` is decided together with `a`, and waits for its end.
    world.file(
        "segue.yaml",
        "builtins: { files: { root: . } }\nlimits: { calls_max: 1 }\ncommands:\n\
         \x20 make: { argv: [sh, -c, 'echo precious > late.txt'], read_only: false }\n\
         tools: { 'command:make': { destructive: false } }\n",
    );
    let content = || fs::read_to_string(world.path("late.txt")).unwrap();
    let run = |more: &[&str]| {
        let args = [&["run", "c.yaml", "--config", "segue.yaml", "--json"], more].concat();
        world.segue(&args).json()
    };
    let view = run(&[]);
    assert_eq!(view["steps"][1]["error"]["code"], "denied", "{view:#}");
    assert_eq!(content(), "precious\n");
    // A yes to everything covers it.
    fs::remove_file(world.path("late.txt")).unwrap();
    assert_eq!(run(&["--yes"])["status"], "success");
    assert_eq!(content(), "x");
}

/// D1: a new file takes nothing away; what replaces one asks, unless the operator has said that it may.
#[test]
fn overwriting_asks_unless_the_operator_said_that_it_may() {
    let world = World::with(WRITES);
    let content = || fs::read_to_string(world.path("out/a.md")).unwrap();
    world.segue(&["run", "c.yaml"]).exits(0);
    world.file("out/a.md", "mine");
    for refused in [
        world.segue(&["run", "c.yaml"]),
        world.segue(&["call", "files_write", "-i", "path=out/a.md", "-i", "content=x"]),
        world.segue(&[
            "call",
            "files_edit",
            "-i",
            "path=out/a.md",
            "-i",
            "find=mine",
            "-i",
            "replace=x",
        ]),
        world.segue(&[
            "call",
            "atomic_edit",
            "-i",
            "path=out/a.md",
            "-i",
            "find=mine",
            "-i",
            "replace=x",
        ]),
    ] {
        assert_eq!(refused.code, Some(3), "{refused:?}");
        assert_eq!(content(), "mine");
    }
    let dry = |world: &World| {
        let view = world.run(0, &["--dry-run"]);
        view["steps"][0]["would"]["confirms"].clone()
    };
    assert_eq!(dry(&world), true);
    world.segue(&["run", "c.yaml", "--yes"]).exits(0);
    assert_eq!(content(), "done");
    // For every run, by the configuration.
    world.file("segue.yaml", "builtins: { files: { root: ., overwrite: ['out/*.md'] } }\n");
    assert_eq!(dry(&world), false);
    world.file("out/a.md", "mine");
    world.segue(&["run", "c.yaml"]).exits(0);
    assert_eq!(content(), "done");
    fs::remove_file(world.path("segue.yaml")).unwrap();
    // For its own runs, by a composition that its user names.
    world.file("c.yaml", format!("overwrites: ['out/**']\n{WRITES}"));
    world.file("out/a.md", "mine");
    world.segue(&["run", "c.yaml"]).exits(0);
    assert_eq!(content(), "done");
    world.file("c.yaml", format!("overwrites: ['other/**']\n{WRITES}"));
    world.segue(&["run", "c.yaml"]).exits(3);
}

/// D1: what a composition says of itself counts for the operator's only: not for one that a caller brings,
/// nor for one of a configuration that was merely found.
#[test]
fn a_principal_cannot_consent_for_others() {
    let text = format!("overwrites: ['**']\n{WRITES}");
    let world = World::new();
    world.file(
        "segue.yaml",
        format!(
            "compositions: ['lib/*.yaml']\nserver: {{ token: {TOKEN} }}\nbuiltins: {{ files: {{ root: . }} }}\n"
        ),
    );
    world.file("lib/w.yaml", &text);
    world.file("out/a.md", "mine");
    let served = Served::start(&world, "memory", &[]);
    let run = |body| served.send("POST", "/api/v1/compositions/execute", &[], &body);
    run(json!({ "composition": text.replace("name: w", "name: w2") })).is(202);
    assert_eq!(fs::read_to_string(world.path("out/a.md")).unwrap(), "mine");
    assert_eq!(run(json!({ "name": "w" })).is(200)["success"], true);
    assert_eq!(fs::read_to_string(world.path("out/a.md")).unwrap(), "done");
    drop(served);
    let world = World::found();
    world.file("segue.yaml", "compositions: ['lib/*.yaml']\n");
    world.file("lib/w.yaml", &text);
    world.file("out/a.md", "mine");
    world.segue(&["run", "w"]).exits(3);
    world.segue(&["trust"]).exits(0);
    world.segue(&["run", "w"]).exits(0);
}

/// D1: a run that another process resumes asks as it would have here.
#[test]
fn a_run_that_goes_on_elsewhere_asks_for_what_is_there_only() {
    let world = World::with(
        "name: c\nsteps:\n  - { id: ok, approve: { message: go on } }\n  \
         - { id: a, tool: files_write, parameters: { path: new.md, content: x }, depends_on: ok }\n",
    );
    let view = world.run(3, &[]);
    let id = view["run_id"].as_str().unwrap();
    world.segue(&["approve", id]).exits(0);
    assert!(world.path("new.md").exists());
}

/// Every way in which a tool might print a secret.
const PRINTS: &str = r#"
import base64, json, os, sys
s = os.environ["KEY"]; b = s.encode()
forms = [s, json.dumps(s), json.dumps(s, ensure_ascii=False), json.dumps(json.dumps(s)),
  "".join("%%%02X" % c for c in b), "".join("%%%02x" % c for c in b),
  "".join(chr(c) if chr(c).isalnum() and c < 128 else "%%%02x" % c for c in b),
  "".join("\\u%04x" % ord(c) for c in s), b.hex(), b.hex().upper(),
  base64.b64encode(b).decode(), base64.urlsafe_b64encode(b).decode(), base64.b64encode(b"user:" + b).decode()]
open("forms.json", "w").write(json.dumps([f.strip('"') for f in forms]))
text = "\n".join("<" + f + ">" for f in forms)
print(json.dumps({"text": text}) if len(sys.argv) < 2 else text, file=sys.stdout if len(sys.argv) < 2 else sys.stderr)
sys.exit(0 if len(sys.argv) < 2 else 1)
"#;

/// D5: no form of a secret of the configuration, and none of what a run is given, stands in a result, an
/// error, a journal, a log or the store.
#[test]
#[cfg(unix)]
fn no_form_of_a_secret_is_on_any_surface() {
    for secret in ["s3cr3t/+\"token\" é1", "plain-secret-0123456789", "100% \\ sure/§ of it"] {
        let world = World::new();
        world.file("prints.py", PRINTS);
        world.file(
            "segue.yaml",
            "store: sqlite:runs.db\ncommands:\n  good: { argv: [python3, prints.py], env: { KEY: '${CANARY}' }, read_only: true }\n  \
             bad: { argv: [python3, prints.py, x], env: { KEY: '${CANARY}' }, read_only: true }\n",
        );
        world.file(
            "c.yaml",
            "name: c\ninput: { type: object, properties: { key: { type: string, writeOnly: true } } }\nsteps:\n  \
             - { id: told, tool: echo, parameters: { a: '{{ {\"k\": input.key} | tojson }}', b: '{{ input.key }}' } }\n  \
             - { id: good, tool: good, depends_on: told }\n  \
             - { id: bad, tool: bad, depends_on: good }\n",
        );
        let segue = |args: &[&str]| {
            let mut command = world.command(crate::support::SEGUE);
            command.args(args).env("CANARY", secret).env("SEGUE_LOG", "trace");
            Done::of(command.output().unwrap())
        };
        let given = format!("key={secret}");
        let mut seen = vec![segue(&["run", "c.yaml", "--dry-run", "--json", "-i", &given])];
        seen.push(segue(&["run", "c.yaml", "--dry-run", "-i", &given]));
        seen.push(segue(&["run", "c.yaml", "--dry-run", "--reads", "--json", "-i", &given]));
        let run = segue(&["run", "c.yaml", "--json", "-i", &given]);
        let id = run.json()["run_id"].as_str().unwrap().to_owned();
        seen.push(run);
        seen.push(segue(&["runs", "show", &id, "--json"]));
        seen.push(segue(&["runs", "show", &id]));
        let forms: Vec<String> =
            serde_json::from_slice(&fs::read(world.path("forms.json")).unwrap()).unwrap();
        let kept =
            ["runs.db", "runs.db-wal"].map(|name| fs::read(world.path(name)).unwrap_or_default());
        for form in &forms {
            for done in &seen {
                for text in [&done.stdout, &done.stderr] {
                    assert!(!text.contains(form.as_str()), "{form} of {secret} in:\n{text}");
                }
            }
            for bytes in &kept {
                let is_there = bytes.windows(form.len()).any(|part| part == form.as_bytes());
                assert!(!is_there, "{form} of {secret} in the store");
            }
        }
        let shown = &seen[4].stdout;
        assert!(shown.contains("«secret»") && shown.contains("«sensitive»"), "{shown}");
    }
}

/// D5: whatever is asked for, libraries tell no more than what grants no look into messages.
#[test]
fn libraries_do_not_log_messages() {
    let world = World::new();
    world.file("segue.yaml", "builtins: { http: { allow: ['127.0.0.1:*'] } }\n");
    for level in ["trace", "hyper=trace,hyper_util=trace,reqwest=trace,rmcp=trace,segue=info"] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let answers = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok";
            stream.write_all(answer).unwrap();
        });
        let args = json!({ "url": format!("http://{address}/"), "headers": { "authorization": "Bearer canary-2" } });
        let done = world
            .segue(&["--log-level", level, "call", "http_get", "--input", &args.to_string()])
            .exits(0);
        answers.join().unwrap();
        assert!(!done.stderr.contains("canary-2"), "{level}: {}", done.stderr);
        for library in
            [" DEBUG hyper", " TRACE hyper", " DEBUG reqwest", " TRACE reqwest", " DEBUG rmcp"]
        {
            assert!(!done.stderr.contains(library), "{level}: {}", done.stderr);
        }
    }
}

/// D6: a server that ignores the end of its input is ended by the next Segue, although no run was
/// interrupted.
#[test]
#[cfg(target_os = "linux")]
fn a_server_that_stays_is_ended_by_the_next_segue() {
    let world = World::new();
    world.file(
        "segue.yaml",
        "mcpServers:\n  s: { command: sh, args: ['-c', 'echo $$ > pid; exec sleep 1000'] }\n",
    );
    let mut command = world.command(crate::support::SEGUE);
    let mut child = command.args(["call", "s:t"]).spawn().unwrap();
    let server = crate::support::until(|| {
        let text = fs::read_to_string(world.path("pid")).ok()?;
        text.ends_with('\n').then(|| text.trim().to_owned())
    });
    // Dead, not merely removed from the list.
    let is_over = || {
        let stat = fs::read_to_string(format!("/proc/{server}/stat")).unwrap_or_default();
        stat.is_empty() || stat.rsplit(')').next().unwrap().starts_with(" Z")
    };
    child.kill().unwrap();
    child.wait().unwrap();
    fs::remove_file(world.path("segue.yaml")).unwrap();
    world.segue(&["call", "echo"]).exits(0);
    // Another Segue on this machine may be the next one, and still be at it.
    crate::support::until(|| is_over().then_some(()));
}

/// D6: a server that was started in a session of its own is ended as well. What a server has sent away into
/// another session, with an output of its own, stays.
#[test]
#[cfg(target_os = "linux")]
fn a_server_in_a_session_of_its_own_is_ended_by_the_next_segue() {
    const SERVER: &str = "trap '' TERM\n\
        setsid sh -c 'echo $$ > away; exec sleep 1000' > /dev/null 2>&1 &\n\
        sleep 1000 > /dev/null 2>&1 & echo $! > part\n\
        while [ ! -s away ]; do :; done\n\
        echo $$ > server\n\
        while :; do sleep 1; done\n";
    let world = World::new();
    world.file("server.sh", SERVER);
    world.file("segue.yaml", "mcpServers:\n  s: { command: setsid, args: [sh, server.sh] }\n");
    let mut command = world.command(crate::support::SEGUE);
    let mut child = command.args(["call", "s:t"]).spawn().unwrap();
    let number = |name: &str| {
        let text = fs::read_to_string(world.path(name)).ok()?;
        text.ends_with('\n').then(|| text.trim().to_owned())
    };
    let server = crate::support::until(|| number("server"));
    let (part, away) = (number("part").unwrap(), number("away").unwrap());
    let is_over = |number: &str| {
        let stat = fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
        stat.is_empty() || stat.rsplit(')').next().unwrap().starts_with(" Z")
    };
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!is_over(&server));
    fs::remove_file(world.path("segue.yaml")).unwrap();
    world.segue(&["call", "echo"]).exits(0);
    let begun = std::time::Instant::now();
    // Another Segue on this machine may be the next one, and still be at it.
    while !is_over(&server) && begun.elapsed() < std::time::Duration::from_secs(10) {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let found = [&server, &part, &away].map(|number| is_over(number));
    for number in [&server, &part, &away] {
        let _ = std::process::Command::new("kill").args(["-9", number]).status();
    }
    assert_eq!(found, [true, true, false], "the server, a part of it, what it has sent away");
}

/// A pattern that goes through a folder which is not there yet means files all the same.
#[test]
#[cfg(unix)]
fn a_pattern_through_a_missing_folder_keeps_its_files_out_of_reach() {
    for pattern in [
        "nx/../late/*.yaml",
        "nx/deep/../../late/*.yaml",
        "late/nx/../*.yaml",
        "nx/../lib/../late/**",
    ] {
        let world = World::new();
        world.file(
            "segue.yaml",
            format!("compositions: ['{pattern}']\nbuiltins: {{ files: {{ root: . }} }}\n"),
        );
        let write = |path: &str| {
            world.segue(&[
                "call",
                "--yes",
                "files_write",
                "-i",
                &format!("path={path}"),
                "-i",
                "content=x",
            ])
        };
        let refused = write("late/x.yaml");
        assert_eq!(refused.code, Some(1), "{pattern}: {refused:?}");
        assert!(refused.stderr.contains("composition"), "{pattern}: {refused:?}");
        // One that is there already is none that may be changed.
        world.file("late/y.yaml", "name: y\nsteps: []\n");
        assert_eq!(write("late/y.yaml").code, Some(1), "{pattern}");
        write("other/x.yaml").exits(0);
    }
}

/// What may be overwritten is said of the file that is written, and not of a link that leads to it.
#[test]
#[cfg(unix)]
fn a_link_does_not_widen_what_may_be_overwritten() {
    let steps = |path: &str| {
        format!(
            "steps: [ {{ id: a, tool: files_write, parameters: {{ path: '{path}', content: done }} }} ]\n"
        )
    };
    let world = World::new();
    world.file("segue.yaml", "builtins: { files: { root: . } }\n");
    world.file("out/p.txt", "mine");
    world.file("notes/p.txt", "mine");
    world.file("notes/{{", "mine");
    std::os::unix::fs::symlink("../notes", world.path("out/link")).unwrap();
    std::os::unix::fs::symlink("notes", world.path("linked")).unwrap();
    let run = |overwrites: &str, path: &str| {
        world.file("c.yaml", format!("name: c\noverwrites: ['{overwrites}']\n{}", steps(path)));
        world.segue(&["run", "c.yaml"])
    };
    for (overwrites, path) in [
        ("linked/**", "linked/p.txt"),
        ("out/**", "out/link/p.txt"),
        ("linked/**", "linked/{{ \"{{\" }}"),
    ] {
        let refused = run(overwrites, path);
        assert_eq!(refused.code, Some(3), "{path}: {refused:?}");
    }
    let config = "builtins: { files: { root: ., overwrite: ['linked/**'] } }\n";
    world.file("segue.yaml", config);
    assert_eq!(run("none", "linked/p.txt").code, Some(3));
    let now = |path: &str| fs::read_to_string(world.path(path)).unwrap();
    assert_eq!((now("notes/p.txt"), now("notes/{{")), ("mine".to_owned(), "mine".to_owned()));
    run("out/**", "out/p.txt").exits(0);
    run("notes/*", "linked/p.txt").exits(0);
    assert_eq!((now("out/p.txt"), now("notes/p.txt")), ("done".to_owned(), "done".to_owned()));
    run("out/**", "out/new/p.txt").exits(0);
}
