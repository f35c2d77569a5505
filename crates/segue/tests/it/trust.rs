//! `segue trust`: what it shows, what it is bound to, and what happens before it.

#![cfg(unix)]

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::process::Stdio;

use crate::serve::ANY_TOOL;
use crate::serve::host::Host;
use crate::served::{Served, TOKEN};
use crate::support::{Done, SEGUE, World, json, until};

/// A secret whose form does not look like one.
const CANARY: &str = "canary";

/// Configurations with a mistake and a secret near it, and a word that the finding still shows.
const MISTAKES: &[(&str, &str)] = &[
    ("server:\n  token: canary\n  tokn: canary\n", "tokn"),
    ("server: { token: canary, tokn: 1 }\n", "tokn"),
    ("server: { token: canary\n", "-->"),
    ("server:\n  token: canary\n  bad: [\n", "-->"),
    ("server:\n  token:canary\n", "server"),
    ("server: # token canary\n  tokn: canary\n", "tokn"),
    ("server:\n  token: 'a'\n  token: canary\n", "token"),
    ("server: { token: [canary] }\n", "token"),
    ("{\"server\": {\"token\": \"canary\", \"tokn\": 1}}", "tokn"),
    ("{\"server\": {\"token\": \"canary\", \"tokn\": 1}", "-->"),
    ("llm: { model: m, api_key: canary, provder: x }\n", "provder"),
    ("mcpServers:\n  s: { command: cat, env: { MODE: canary }, timeout: soon }\n", "timeout"),
    (
        "mcpServers:\n  s: { url: 'http://h.example', headers: { X-Any: canary }, timeout: x }\n",
        "headers",
    ),
    ("mcpServers:\n  s: { url: 'ftp://u:canary@h.example/?sig=canary' }\n", "url"),
    (
        "mcpServers:\n  s:\n    command: cat\n    env:\n      MODE: |\n        canary\n        canary\n    timeout: x\n",
        "MODE",
    ),
    ("http: { o: { url: 'https://h.example/?sig=canary', methd: GET } }\n", "methd"),
    ("http: { o: { url: 'https://u:canary@h.example/', methd: GET } }\n", "methd"),
    ("commands: { c: { argv: [curl, -u, 'me:canary'], cwdd: x } }\n", "cwdd"),
    (
        "commands: { c: { argv: [sh, -c, 'mysql -pcanary'], env: { A: canary }, cwdd: x } }\n",
        "cwdd",
    ),
    ("store: 'mysql://u:canary@h.example/db'\n", "store"),
    ("store: '${GIVEN}'\n", "store"),
    ("llm: { model: m, credentails: canary }\n", "credentails"),
    ("server: { acess_tokn: canary }\n", "acess_tokn"),
    (
        "observe: { otlp: { endpoint: 'h.example?token=canary', headers: { a: canary } } }\n",
        "endpoint",
    ),
    ("llm: { model: m, api_key: &k canary, provder: *k }\n", "provder"),
    ("mcpServers: { s: { command: 'npx srv --password canary', timeout: x } }\n", "timeout"),
    ("commands: { c: { argv: 'mysql -pcanary', cwdd: x } }\n", "cwdd"),
];

/// A finding about a configuration quotes its lines without the secrets in them.
#[test]
fn findings_of_a_configuration_quote_no_secret() {
    let mut leaks = Vec::new();
    for (text, shown) in MISTAKES {
        let world = World::new();
        world.file("segue.yaml", text);
        let output = world.command(SEGUE).args(["tools"]).env("GIVEN", CANARY).output().unwrap();
        let done = Done::of(output).exits(2);
        if done.stderr.contains(CANARY) || !done.stderr.contains(shown) {
            leaks.push(format!("{text}\n{}", done.stderr));
        }
    }
    assert!(leaks.is_empty(), "{}", leaks.join("\n---\n"));
}

/// Command lines with a secret, as lists in YAML, and a part of each that is shown.
const SPELLINGS: &[(&str, &str)] = &[
    ("[curl, -u, 'me:canary', 'https://h.example/a']", "https://h.example/a"),
    ("[curl, '-ume:canary', x]", "curl"),
    ("[curl, --user, 'me:canary']", "--user"),
    ("[curl, '--user=me:canary']", "--user"),
    ("[curl, --proxy-user, 'me:canary']", "--proxy-user"),
    ("[curl, -U, 'me:canary']", "-U"),
    ("[curl, -H, 'X-Api-Key: canary']", "X-Api-Key"),
    ("[curl, -b, 'session=canary']", "-b"),
    ("[curl, 'https://h.example/x?sig=canary&mode=fast']", "mode=fast"),
    ("[curl, 'https://h.example/x?X-Amz-Signature=canary']", "https://h.example/x"),
    ("[curl, 'https://h.example/x?code=canary']", "https://h.example/x"),
    ("[curl, 'https://canary@h.example/x']", "h.example/x"),
    ("[curl, 'https://canary:x-oauth-basic@h.example/x']", "h.example/x"),
    ("[curl, 'https://a.example', 'https://u:canary@h.example/x']", "https://a.example"),
    ("[mysql, -pcanary, -u, root]", "root"),
    ("[mysql, -p, canary]", "-p"),
    ("[/usr/bin/sshpass, -p, canary, ssh, me@h.example]", "me@h.example"),
    ("[7z, x, '-pcanary', a.7z]", "a.7z"),
    ("[tool, --password, canary]", "--password"),
    ("[tool, --password, 1234567canary]", "--password"),
    ("[tool, -password, canary]", "-password"),
    ("[tool, --password=canary]", "--password"),
    ("[tool, --pass, canary]", "--pass"),
    ("[tool, /password:canary]", "tool"),
    ("[redis-cli, -a, canary]", "-a"),
    ("[sqlcmd, -P, canary]", "-P"),
    ("[ldapsearch, -w, canary]", "-w"),
    ("[smbclient, -U, 'me%canary']", "-U"),
    ("[sh, -c, 'tool --password canary --quiet']", "--quiet"),
    ("[sh, -c, \"tool --password 'canary' --quiet\"]", "--quiet"),
    ("[sh, -c, \"tool --password 'a canary' --quiet\"]", "--quiet"),
    ("[sh, -c, 'cd /x && mysql -pcanary db']", "cd /x"),
    ("[sh, -c, 'mysql -p canary db']", "db"),
    ("[sh, -c, 'curl -u me:canary https://h.example/a']", "https://h.example/a"),
    ("[sh, -c, 'curl https://a.example; curl https://u:canary@h.example/x']", "https://a.example"),
    ("[sh, -c, 'curl https://a.example https://h.example/?sig=canary']", "https://a.example"),
    ("[sh, -c, 'curl \"https://h.example/?a=b&sig=canary\" -o out']", "-o out"),
    ("[sh, -c, 'PGPASSWORD=canary psql']", "PGPASSWORD"),
    ("[sh, -c, 'cd /x; PGPASSWORD=canary psql -l']", "psql -l"),
    ("[env, PGPASSWORD=canary, psql]", "psql"),
    ("[bash, -lc, \"sshpass -p'canary' ssh me@h.example\"]", "me@h.example"),
];

/// Command lines in which nothing is secret, which are shown in full.
const PLAIN: &[&str] = &[
    r#"["mkdir","-p","some/folder"]"#,
    r#"["npx","-y","-p","@scope/server","serve"]"#,
    r#"["docker","run","-p","8080:80","image:1.2"]"#,
    r#"["ssh","-p","2222","me@h.example"]"#,
    r#"["python","-u","main.py"]"#,
    r#"["find",".","-path","./x","-prune","-print0"]"#,
    r#"["sh","-c","mkdir -p a/b && ssh -p 22 me@h.example"]"#,
    r#"["tool","-port","80","--profile","dev","-path=/x"]"#,
    // What would run is shown, whatever it is dressed as.
    r#"["time","-p","rm","-rf","x"]"#,
    r#"["perl","-pesystem(1)"]"#,
    r#"["sh","-c","x --password \"$(curl h.example | sh)\""]"#,
    r#"["sh","-c","PGPASSWORD=`curl h.example` psql"]"#,
];

/// However a command line gives a secret to its program, `trust` does not show it, and shows the rest.
#[test]
fn trust_shows_no_secret_of_a_command_line() {
    let world = World::found();
    let command = |(at, argv): (usize, &str)| format!("  c{at}: {{ argv: {argv} }}\n");
    let server = |(at, argv): (usize, &str)| {
        let (program, args) = argv[1..].split_once(", ").unwrap();
        format!("  s{at}: {{ command: {program}, args: [{args} }}\n")
    };
    let spellings = || SPELLINGS.iter().map(|(argv, _)| *argv).enumerate();
    let plain = PLAIN.iter().enumerate().map(|(at, argv)| format!("  p{at}: {{ argv: {argv} }}\n"));
    let text = format!(
        "commands:\n{}{}mcpServers:\n{}",
        spellings().map(command).collect::<String>(),
        plain.collect::<String>(),
        spellings().map(server).collect::<String>()
    );
    world.file("segue.yaml", text);
    let said = world.segue(&["trust"]).exits(0).stderr;
    let line = |name: String| said.lines().find(|line| line.contains(&name)).unwrap();
    let mut wrong = Vec::new();
    for (at, (_, shown)) in SPELLINGS.iter().enumerate() {
        for line in [line(format!("commands.c{at}:")), line(format!("mcpServers.s{at}:"))] {
            let has_it = line.replace("\\\"", "\"").contains(shown);
            if line.contains(CANARY) || !has_it && line.starts_with("  commands") {
                wrong.push(line.to_owned());
            }
        }
    }
    for (at, argv) in PLAIN.iter().enumerate() {
        let line = line(format!("commands.p{at}:"));
        if !line.contains(argv) {
            wrong.push(line.to_owned());
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Numbers are secrets too where a secret stands.
#[test]
fn trust_shows_no_number_in_the_place_of_a_secret() {
    let world = World::found();
    world.file(
        "segue.yaml",
        "commands: { c: { argv: [tool, --pin-token, 7351, --password, 7352], env: { PIN: '7353' } } }\n\
         http: { o: { url: 'https://h.example/', headers: { X-Pin: '7354' }, body: { password: 7355 } } }\n",
    );
    let said = world.segue(&["trust"]).exits(0).stderr;
    assert!(!said.contains("735"), "{said}");
}

/// A link to a trusted configuration does not bring its trust into another folder, where its relative
/// commands would be others.
#[test]
fn a_link_to_a_trusted_configuration_is_not_trusted() {
    let world = World::found();
    let script = |text: &str| format!("#!/bin/sh\necho {text}\n");
    for (folder, text) in [("mine", "mine"), ("theirs", "theirs")] {
        world.file(&format!("{folder}/run.sh"), script(text));
    }
    world.file("mine/segue.yaml", "commands: { go: { argv: [sh, ./run.sh], read_only: true } }\n");
    world.file("mine/.mcp.json", r#"{ "mcpServers": { "s": { "command": "./server" } } }"#);
    symlink(world.path("mine/segue.yaml"), world.path("theirs/segue.yaml")).unwrap();
    symlink(world.path("mine/.mcp.json"), world.path("theirs/.mcp.json")).unwrap();
    symlink(world.path("mine"), world.path("linked")).unwrap();
    let segue = |folder: &str, args: &[&str]| {
        let mut command = world.command(SEGUE);
        Done::of(command.current_dir(world.path(folder)).args(args).output().unwrap())
    };
    segue("mine", &["trust"]).exits(0);
    assert!(segue("mine", &["call", "go"]).exits(0).stdout.contains("mine"));
    assert!(segue("linked", &["call", "go"]).exits(0).stdout.contains("mine"), "the same folder");
    let refused = segue("theirs", &["call", "go"]).exits(1);
    assert!(refused.stderr.contains("segue trust"), "{}", refused.stderr);
    let doctor = segue("theirs", &["doctor"]);
    assert!(doctor.stdout.contains(".mcp.json"), "{}", doctor.stdout);
    segue("theirs", &["trust"]).exits(0);
    assert!(segue("theirs", &["call", "go"]).exits(0).stdout.contains("theirs"));
}

/// Folders of any name are told apart, and have a line of the list each.
#[test]
fn trust_tells_folders_of_odd_names_apart() {
    let world = World::found();
    let names: &[&[u8]] =
        &[b"a b", b"a\nb", b"a\xffb", b"a\xfeb", b"%61", b"a\\nb", b"a\n0 etc", b"a\x1b[31m"];
    let segue = |name: &[u8], args: &[&str]| {
        let folder = world.folder().join(std::ffi::OsStr::from_bytes(name));
        let mut command = world.command(SEGUE);
        Done::of(command.current_dir(folder).args(args).output().unwrap())
    };
    for name in names {
        let folder = world.folder().join(std::ffi::OsStr::from_bytes(name));
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("segue.yaml"), "commands: { go: { argv: ['true'] } }\n").unwrap();
    }
    for (at, name) in names.iter().enumerate() {
        assert!(segue(name, &["tools"]).stderr.contains("segue trust"), "{name:?}");
        segue(name, &["trust"]).exits(0);
        assert!(!segue(name, &["tools"]).stderr.contains("segue trust"), "{name:?}");
        let listed = world.segue(&["trust", "--list"]).exits(0).stdout;
        assert_eq!(listed.lines().count(), at + 1, "{listed}");
        assert!(listed.lines().all(|line| line.starts_with("trusted ")), "{listed}");
        assert!(!listed.contains('\u{1b}'), "{listed}");
    }
    for name in names {
        let said = segue(name, &["trust", "--forget"]).exits(0).stderr;
        assert!(said.contains("not trusted any more") && !said.contains('\u{1b}'), "{said}");
        assert!(segue(name, &["tools"]).stderr.contains("segue trust"), "{name:?}");
    }
    assert_eq!(world.segue(&["trust", "--list"]).exits(0).stdout, "");
}

/// Parts of a configuration that name a variable which is not set.
const UNSET: &[&str] = &[
    "commands: { c: { argv: [cat, '${SURELY_UNSET}'], timeout: '${SURELY_UNSET}' } }\n",
    "http: { o: { url: '${SURELY_UNSET}' } }\n",
    "mcpServers: { s: { url: '${SURELY_UNSET}', headers: { A: '${SURELY_UNSET}' } } }\n",
    "builtins: { files: { root: '${SURELY_UNSET}' } }\n",
    "builtins: { http: { allow: ['${SURELY_UNSET}'] } }\n",
    "tools: { files_delete: { confirm: '${SURELY_UNSET}' } }\n",
    "store: '${SURELY_UNSET}'\n",
    "server: { token: '${SURELY_UNSET}', principals: { a: { token: '${SURELY_UNSET}', rights: [run] } } }\n",
    "llm: { provider: '${SURELY_UNSET}', model: m, api_key: '${SURELY_UNSET}' }\n",
    "observe: { otlp: { endpoint: '${SURELY_UNSET}' } }\n",
];

/// A variable that is not set, in a part that is not trusted, stops nothing.
#[test]
fn what_is_not_trusted_needs_no_variables() {
    for text in UNSET {
        let world = World::found();
        world.file("segue.yaml", text);
        world.file("c.yaml", "name: c\nsteps: [ { id: a, tool: echo, parameters: { a: 1 } } ]\n");
        for args in [&["run", "c.yaml"][..], &["tools"], &["check", "c.yaml"]] {
            let said = world.segue(args).exits(0).stderr;
            assert!(said.contains("segue trust"), "{text}: {said}");
        }
        let doctor = world.segue(&["doctor"]);
        assert!(doctor.stdout.contains("trust"), "{text}: {doctor:?}");
        let shown = world.segue(&["trust"]).exits(0).stderr;
        assert!(shown.contains("is trusted now"), "{text}: {shown}");
    }
}

/// An untrusted configuration does not see the environment.
#[test]
fn what_is_not_trusted_is_not_given_variables() {
    let world = World::found();
    world
        .file("segue.yaml", "commands: { c: { argv: ['cat'], description: 'It is ${GIVEN}.' } }\n");
    let tools = || {
        let mut command = world.command(SEGUE);
        Done::of(
            command.args(["tools", "show", "c", "--json"]).env("GIVEN", CANARY).output().unwrap(),
        )
    };
    let untrusted = tools();
    assert!(!format!("{untrusted:?}").contains(CANARY), "{untrusted:?}");
    world.segue(&["trust"]).exits(0);
    assert!(tools().exits(0).stdout.contains(CANARY));
}

/// The note names the settings without effect, once, and with names that contain no terminal
/// controls.
#[test]
fn the_note_about_trust_is_right_and_said_once() {
    let note = |text: &str, args: &[&str]| -> String {
        let world = World::found();
        world.file("odd\u{1b}[31m\u{202e}\n name/segue.yaml", text);
        let folder = world.path("odd\u{1b}[31m\u{202e}\n name");
        let mut command = world.command(SEGUE);
        let said = Done::of(command.current_dir(folder).args(args).output().unwrap()).stderr;
        let notes: Vec<&str> = said.lines().filter(|line| line.contains("not trusted")).collect();
        assert_eq!(notes.len(), 1, "{args:?}: {said}");
        assert!(!said.contains(['\u{1b}', '\u{202e}']), "{said:?}");
        assert!(notes[0].contains("odd\\u{1b}[31m\\u{202e}\\n name"), "{said}");
        notes[0].to_owned()
    };
    // A server that cannot listen there ends.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = (taken.local_addr().unwrap().to_string(), taken);
    for args in [&["tools"][..], &["mcp"], &["serve", "--listen", &taken.0]] {
        let one = note("commands: { c: { argv: ['cat'] } }\n", args);
        assert!(one.contains("`commands` has no effect"), "{one}");
    }
    let two = note("commands: { c: { argv: ['cat'] } }\nstore: memory\n", &["tools"]);
    assert!(two.contains("`commands` and `store` have no effect"), "{two}");
    let inside = "builtins: { files: { root: files, overwrite: ['*'] } }\nstore: memory\nllm: { model: m }\n";
    let three = note(inside, &["tools"]);
    let said = "`builtins` (except `files.root`), `store` and `llm` have no effect";
    assert!(three.contains(said), "{three}");
}

/// A command line written as one text is shown without its secrets, too.
#[test]
fn trust_shows_no_secret_of_a_command_in_one_text() {
    let world = World::found();
    world
        .file("segue.yaml", "mcpServers: { s: { command: 'npx srv --password canary --fast' } }\n");
    let shown = world.segue(&["trust"]);
    let said = format!("{}{}", shown.stdout, shown.stderr);
    assert!(said.contains("npx srv") && said.contains("--fast"), "{said}");
    assert!(!said.contains(CANARY), "{said}");
}

/// A configuration that was merely found does not give hosts more tools for compositions of their own.
#[test]
fn an_untrusted_toolset_for_hosts_has_no_effect() {
    let world = World::found();
    world.file("segue.yaml", ANY_TOOL);
    let steps =
        json!([{ "id": "a", "tool": "files_write", "parameters": { "path": "x", "content": "" } }]);
    let execute = json!({ "composition": { "name": "c", "steps": steps } });
    let said = |args: &[&str]| {
        let mut command = world.command(SEGUE);
        command.args(args).args(["--store", "sqlite:s.db", "mcp"]);
        let mut host = Host::of(command);
        host.greet(&json!({}));
        host.call("composition_execute", execute.clone()).to_string()
    };
    let untrusted = said(&[]);
    assert!(untrusted.contains("toolset"), "{untrusted}");
    assert!(!world.path("x").exists());
    let trusted = said(&["--config", "segue.yaml"]);
    assert!(!trusted.contains("toolset"), "{trusted}");
}

/// Every one of many `segue trust` at the same moment is remembered, and so is every `--forget`.
#[test]
fn trust_given_at_the_same_moment_is_all_remembered() {
    let world = World::found();
    let folders: Vec<String> = (0..16).map(|at| format!("f{at}")).collect();
    for folder in &folders {
        world.file(&format!("{folder}/segue.yaml"), "commands: { go: { argv: ['true'] } }\n");
    }
    let all_at_once = |args: &[&str]| {
        let start = |folder: &String| {
            let mut command = world.command(SEGUE);
            let folder = world.path(folder);
            command.args(args).current_dir(folder).stderr(Stdio::null()).spawn().unwrap()
        };
        let started: Vec<_> = folders.iter().map(start).collect();
        for mut child in started {
            assert!(child.wait().unwrap().success());
        }
        world.segue(&["trust", "--list"]).exits(0).stdout.lines().count()
    };
    assert_eq!(all_at_once(&["trust"]), folders.len());
    assert_eq!(all_at_once(&["trust", "--forget"]), 0);
}

/// A composition that writes a file in `out`, and what it says before its steps.
fn writes(name: &str, more: &str) -> String {
    format!(
        "name: {name}\n{more}steps: [ {{ id: a, tool: files_write, parameters: {{ path: out/{name}.md, content: done }} }} ]\n"
    )
}

/// What a composition of a found configuration may overwrite is part of what is trusted, list by list.
#[test]
fn a_changed_list_of_files_to_overwrite_has_to_be_trusted_again() {
    let world = World::found();
    world.file(
        "segue.yaml",
        "compositions: ['lib/*.yaml']\ncommands: { go: { argv: ['true'], read_only: true } }\n",
    );
    world.file("lib/v.yaml", writes("v", "overwrites: [out/v.md]\n"));
    world.file("lib/w.yaml", writes("w", ""));
    let runs = |name: &str, code: i32| {
        world.file(&format!("out/{name}.md"), "mine");
        let said = world.segue(&["run", name]).exits(code).stderr;
        let now = fs::read_to_string(world.path(&format!("out/{name}.md"))).unwrap();
        assert_eq!(now, if code == 0 { "done" } else { "mine" }, "{said}");
        said
    };
    let list = || world.segue(&["trust", "--list"]).exits(0).stdout;
    runs("v", 3);
    let shown = world.segue(&["trust"]).exits(0).stderr;
    assert!(shown.contains("lib/v.yaml") && shown.contains(r#"["out/v.md"]"#), "{shown}");
    assert!(!runs("v", 0).contains("segue trust"));
    runs("w", 3);
    assert!(list().starts_with("trusted "), "{}", list());
    // Its own list alone has no effect any more.
    world.file("lib/w.yaml", writes("w", "overwrites: ['**']\n"));
    let said = runs("w", 3);
    let note = said.lines().find(|line| line.contains("segue trust")).unwrap_or_default();
    assert!(note.contains("lib/w.yaml") && !note.contains("lib/v.yaml"), "{said}");
    runs("v", 0);
    world.segue(&["call", "go"]).exits(0);
    assert!(list().starts_with("changed since "), "{}", list());
    // A list is trusted of its file.
    world.file("lib/x.yaml", writes("x", "overwrites: [out/v.md]\n"));
    assert!(runs("x", 3).contains("lib/x.yaml"));
    let shown = world.segue(&["trust"]).exits(0).stderr;
    assert!(shown.contains("lib/w.yaml") && shown.contains(r#"["**"]"#), "{shown}");
    assert!(list().starts_with("trusted "), "{}", list());
    runs("w", 0);
    runs("v", 0);
    // Its steps may change.
    world.file("lib/v.yaml", writes("v", "description: d\noverwrites: [out/v.md]\n"));
    runs("v", 0);
    world.segue(&["trust", "--forget"]).exits(0);
    runs("v", 3);
}

/// A server that reads a composition again does not take its new list for trusted.
#[test]
fn a_list_that_changes_while_it_is_served_is_not_trusted() {
    let world = World::found();
    world.file(
        "segue.yaml",
        format!("compositions: ['lib/*.yaml']\nserver: {{ token: {TOKEN} }}\n"),
    );
    world.file("lib/w.yaml", writes("w", "overwrites: [out/w.md]\n"));
    world.file("out/w.md", "mine");
    world.segue(&["trust"]).exits(0);
    let served = Served::start_found(world.command(SEGUE), "memory", &[]);
    let run = || served.send("POST", "/api/v1/compositions/execute", &[], &json!({ "name": "w" }));
    assert_eq!(run().is(200)["success"], true);
    world.file("out/w.md", "mine");
    world.file("lib/w.yaml", writes("w", "description: changed\noverwrites: ['**']\n"));
    until(|| {
        let listed = served.get("/api/v1/compositions").is(200).to_string();
        listed.contains("changed").then_some(())
    });
    run().is(202);
    assert_eq!(fs::read_to_string(world.path("out/w.md")).unwrap(), "mine");
}

/// Parts that grant nothing by themselves are not given the environment either, before they are trusted.
#[test]
fn harmless_parts_that_are_not_trusted_are_not_given_variables() {
    for (text, written) in [
        ("compositions: ['${GIVEN}/*.yaml']\n", "`${GIVEN}/*.yaml` of `compositions`"),
        (
            "compositions: ['lib/*.yaml', '${GIVEN}/*.yaml']\n",
            "`${GIVEN}/*.yaml` of `compositions`",
        ),
        ("templates: ['${GIVEN}/*.yaml']\n", "`${GIVEN}/*.yaml` of `templates`"),
        ("compositions: '${GIVEN}/[.yaml'\n", "`${GIVEN}/[.yaml` of `compositions`"),
        (
            "compositions: ['${SURELY_UNSET}/*.yaml']\n",
            "`${SURELY_UNSET}/*.yaml` of `compositions`",
        ),
        (
            "toolsets: { some: { allow: ['${GIVEN}'], guards: { timeout: '${GIVEN}' } } }\n",
            "`toolsets`",
        ),
        ("builtins: { files: { root: '${GIVEN}' } }\n", "`builtins`"),
    ] {
        let world = World::found();
        world.file("segue.yaml", text);
        world.file(
            "lib/c.yaml",
            "name: c\nsteps: [ { id: a, tool: files_read, parameters: { path: x } } ]\n",
        );
        let segue = |args: &[&str]| {
            let mut command = world.command(SEGUE);
            Done::of(command.args(args).env("GIVEN", CANARY).output().unwrap())
        };
        for args in [
            &["tools"][..],
            &["run", "lib/c.yaml"],
            &["doctor"],
            &["check"],
            &["--toolset", "some", "tools"],
        ] {
            let done = segue(args);
            assert!(!format!("{done:?}").contains(CANARY), "{text}: {done:?}");
        }
        let said = segue(&["tools"]).exits(0).stderr;
        let note = |line: &str| line.contains(written) && line.contains("segue trust");
        assert!(said.lines().any(note), "{text}: {said}");
        if text.contains("lib/") {
            assert!(segue(&["tools"]).stdout.contains("composition:c"), "the others are there");
        }
    }
}

/// What is said of a pattern shows it as it is written, also when it is trusted.
#[test]
fn notes_about_patterns_show_them_as_written() {
    let world = World::found();
    let text = "compositions: ['${GIVEN}/*.yaml']\ntemplates: ['${GIVEN}/[.yaml']\n";
    world.file("segue.yaml", text);
    let segue = |args: &[&str]| {
        let mut command = world.command(SEGUE);
        Done::of(command.args(args).env("GIVEN", CANARY).output().unwrap())
    };
    let shown = segue(&["trust"]).exits(0).stderr;
    assert!(shown.contains("${GIVEN}/*.yaml"), "{shown}");
    let done = segue(&["tools"]).exits(0);
    assert!(!format!("{done:?}").contains(CANARY), "{done:?}");
    assert!(
        done.stderr.contains("`${GIVEN}/*.yaml` of `compositions` matches no file"),
        "{done:?}"
    );
    assert!(done.stderr.contains("`${GIVEN}/[.yaml` of `templates` is not a pattern"), "{done:?}");
    world.file("canary/c.yaml", writes("c", "overwrites: [out/c.md]\n"));
    assert!(segue(&["run", "c"]).stderr.contains("`overwrites`"));
    assert!(segue(&["trust"]).exits(0).stderr.contains(r#"["out/c.md"]"#));
    world.file("out/c.md", "mine");
    segue(&["run", "c"]).exits(0);
}
