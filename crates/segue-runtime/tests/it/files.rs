//! The file tools over real files: D6, hostile input 19 and 20.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use segue_core::diagnostic::Code;
use segue_core::expr::ArgsTemplate;
use segue_core::limits::Limits;
use segue_core::tool::DeclaredRollback;
use segue_core::value::Value;

use crate::support::{Bench, Json, json};

/// Rolls back a tool's change, as its declaration says.
async fn undo(bench: &Bench, name: &str, output: &Json) {
    let DeclaredRollback::Call { tool, parameters } = &bench.tool(name).spec.rollback else {
        panic!("{name} has no rollback");
    };
    // Over `args`, because that is the one name which templates of configuration know.
    let text = parameters.to_json().replace("output.", "args.");
    let template = ArgsTemplate::parse(&serde_json::from_str(&text).unwrap(), &Limits::default());
    let args = template.unwrap().eval(&Value::from(output.clone()), &Limits::default()).unwrap();
    bench.ok(tool, Json::from(&args)).await;
}

/// Names and contents of everything below a directory.
fn snapshot(dir: &Path) -> Vec<(String, Option<Vec<u8>>)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        let content = fs::read(&path).ok();
        if content.is_none() && path.is_dir() {
            all.extend(snapshot(&path));
        }
        all.push((path.display().to_string(), content));
    }
    all.sort();
    all
}

#[tokio::test]
async fn files_are_written_edited_listed_and_deleted() {
    let bench = Bench::new();
    let written =
        bench.ok("files_write", json!({"path": "./a//b.txt", "content": "one two two"})).await;
    assert_eq!(written, json!({"path": "a/b.txt", "bytes": 11, "created": true, "previous": null}));
    let again = bench.ok("files_write", json!({"path": "a/b.txt", "content": "1 2 2"})).await;
    assert_eq!((&again["created"], &again["previous"]), (&json!(false), &json!("one two two")));
    let edit = json!({"path": "a/b.txt", "find": "2", "replace": "3"});
    let (_, message) = bench.refused("files_edit", edit.clone()).await;
    assert!(message.contains("occurs 2 times"), "{message}");
    let (_, message) =
        bench.refused("files_edit", json!({"path": "a/b.txt", "find": "x", "replace": ""})).await;
    assert!(message.contains("does not occur"), "{message}");
    let mut all = edit;
    all["all"] = json!(true);
    let edited = bench.ok("files_edit", all).await;
    assert_eq!(edited, json!({"path": "a/b.txt", "replacements": 2, "previous": "1 2 2"}));
    let read = bench.ok("files_read", json!({"path": "a/b.txt"})).await;
    assert_eq!(read, json!({"path": "a/b.txt", "content": "1 3 3", "bytes": 5}));
    let deleted = bench.ok("files_delete", json!({"path": "a/b.txt"})).await;
    assert_eq!(deleted, json!({"path": "a/b.txt", "deleted": true, "previous": "1 3 3"}));
    let gone = bench.ok("files_delete", json!({"path": "no/such.txt"})).await;
    assert_eq!(gone, json!({"path": "no/such.txt", "deleted": false, "previous": null}));
    let (code, message) = bench.refused("files_read", json!({"path": "a/b.txt"})).await;
    assert_eq!(code, Code::NotFound);
    let root = bench.root();
    assert_eq!(message, format!("`a/b.txt` does not exist in `{}`", root.display()));
    assert_eq!(snapshot(&bench.root()).len(), 1, "no temporary file is left (R2)");
}

#[tokio::test]
async fn files_exist_or_not_as_the_caller_says() {
    let bench = Bench::new();
    let new = json!({"path": "a.txt", "content": "x", "overwrite": false});
    bench.ok("files_write", new.clone()).await;
    assert_eq!(bench.refused("files_write", new).await.0, Code::Conflict);
    let deep = json!({"path": "b/c.txt", "content": "x", "create_dirs": false});
    assert_eq!(bench.refused("files_write", deep).await.0, Code::NotFound);
    assert_eq!(snapshot(&bench.root()).len(), 1, "no temporary file is left (R2)");
}

#[tokio::test]
async fn a_replaced_file_keeps_its_rights() {
    let bench = Bench::new();
    let script = bench.root().join("run.sh");
    fs::write(&script, "old").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o750)).unwrap();
    bench.ok("files_write", json!({"path": "run.sh", "content": "new"})).await;
    assert_eq!(fs::metadata(&script).unwrap().permissions().mode() & 0o777, 0o750);
}

/// S0-56: the declared rollback of each tool restores its change.
#[tokio::test]
async fn every_change_can_be_rolled_back() {
    let bench = Bench::new();
    fs::write(bench.root().join("old.txt"), "a b").unwrap();
    let before = snapshot(&bench.root());
    let changes = [
        ("files_write", json!({"path": "new.txt", "content": "{{ args.x }}"})),
        ("files_write", json!({"path": "old.txt", "content": "c"})),
        ("files_edit", json!({"path": "old.txt", "find": "a", "replace": "c"})),
        ("atomic_edit", json!({"path": "old.txt", "find": "a", "replace": "c"})),
        ("files_delete", json!({"path": "old.txt"})),
        ("files_delete", json!({"path": "none.txt"})),
    ];
    for (name, args) in changes {
        let output = bench.ok(name, args).await;
        undo(&bench, name, &output).await;
        assert_eq!(snapshot(&bench.root()), before, "{name}");
    }
}

/// S3-29: read, edit, check and write are one call; nothing is written unless every check holds.
#[tokio::test]
async fn atomic_edit_writes_all_or_nothing() {
    let bench = Bench::new();
    fs::write(bench.root().join("a.txt"), "x x y").unwrap();
    let before = snapshot(&bench.root());
    let edit = |check: Json| json!({"path": "a.txt", "find": "x", "replace": "z", "check": check});
    for check in [
        json!({}),
        json!({"replacements": 3}),
        json!({"replacements": 2, "contains": "q"}),
        json!({"replacements": 2, "lacks": "y"}),
    ] {
        bench.refused("atomic_edit", edit(check)).await;
        assert_eq!(snapshot(&bench.root()), before);
    }
    let done = bench
        .ok("atomic_edit", edit(json!({"replacements": 2, "contains": "z z", "lacks": "x"})))
        .await;
    assert_eq!(done, json!({"path": "a.txt", "replacements": 2, "previous": "x x y"}));
}

/// Two edits at the same time both take effect.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edits_do_not_lose_each_other() {
    let bench = Bench::new();
    let words: Vec<String> = (0..20).map(|n| format!("<{n}>")).collect();
    fs::write(bench.root().join("a.txt"), words.join(" ")).unwrap();
    let edits = (0..20).map(|n| {
        bench
            .ok("files_edit", json!({"path": "a.txt", "find": format!("<{n}>"), "replace": "done"}))
    });
    futures_util::future::join_all(edits).await;
    let text = fs::read_to_string(bench.root().join("a.txt")).unwrap();
    assert_eq!(text.matches("done").count(), 20, "{text}");
}

#[tokio::test]
async fn listing_is_sorted_filtered_and_shows_kinds() {
    let bench = Bench::new();
    let root = bench.root();
    for dir in ["docs/deep", "src"] {
        fs::create_dir_all(root.join(dir)).unwrap();
    }
    for file in ["b.md", "a.txt", "docs/c.md", "docs/deep/d.md", "src/e.rs"] {
        fs::write(root.join(file), "12").unwrap();
    }
    symlink("/etc", root.join("etc")).unwrap();
    let paths = |listed: &Json| {
        let files = listed["files"].as_array().unwrap().iter();
        files.map(|file| file["path"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let top = bench.ok("files_list", json!({})).await;
    assert_eq!(paths(&top), ["a.txt", "b.md", "docs", "etc", "src"]);
    assert_eq!(top["files"][0], json!({"path": "a.txt", "bytes": 2, "kind": "file"}));
    assert_eq!(top["files"][3]["kind"], "symlink");
    for (args, expected) in [
        (json!({"pattern": "*.md"}), vec!["b.md"]),
        (
            json!({"pattern": "*.md", "recursive": true}),
            vec!["b.md", "docs/c.md", "docs/deep/d.md"],
        ),
        (json!({"pattern": "**/*.md"}), vec!["b.md", "docs/c.md", "docs/deep/d.md"]),
        (json!({"pattern": "docs/*.md"}), vec!["docs/c.md"]),
        (json!({"path": "docs", "pattern": "*.md"}), vec!["docs/c.md"]),
        (
            json!({"path": "docs", "recursive": true}),
            vec!["docs/c.md", "docs/deep", "docs/deep/d.md"],
        ),
        (json!({"pattern": "*.{rs,txt}", "recursive": true}), vec!["a.txt", "src/e.rs"]),
    ] {
        assert_eq!(paths(&bench.ok("files_list", args.clone()).await), expected, "{args}");
    }
    assert_eq!(bench.refused("files_list", json!({"pattern": "a[", })).await.0, Code::InputSchema);
    assert_eq!(bench.refused("files_list", json!({"path": "etc"})).await.0, Code::PolicyViolation);
    assert_eq!(bench.refused("files_list", json!({"path": ".."})).await.0, Code::PolicyViolation);
}

#[tokio::test]
async fn only_text_in_regular_files_of_a_bounded_size() {
    let bench = Bench::with(|config| config.limits.value_bytes_max = 1000);
    let root = bench.root();
    fs::write(root.join("binary"), b"\xff\xfe\x00").unwrap();
    fs::write(root.join("large"), "x".repeat(1001)).unwrap();
    fs::create_dir(root.join("dir")).unwrap();
    rustix::fs::mknodat(CWD, root.join("pipe"), rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    let before = snapshot_names(&root);
    for (path, code) in [
        ("binary", Code::ToolError),
        ("large", Code::Limit),
        ("dir", Code::ToolError),
        ("pipe", Code::ToolError),
    ] {
        assert_eq!(bench.refused("files_read", json!({"path": path})).await.0, code, "{path}");
        // What could not be put back is not overwritten.
        assert_eq!(
            bench.refused("files_write", json!({"path": path, "content": "x"})).await.0,
            code
        );
        assert_eq!(bench.refused("files_delete", json!({"path": path})).await.0, code);
    }
    let large = json!({"path": "new", "content": "x".repeat(1001)});
    assert_eq!(bench.refused("files_write", large).await.0, Code::Limit);
    fs::write(root.join("grow"), "a".repeat(900)).unwrap();
    let edit = json!({"path": "grow", "find": "a", "replace": "bb", "all": true});
    assert_eq!(bench.refused("files_edit", edit).await.0, Code::Limit);
    fs::remove_file(root.join("grow")).unwrap();
    assert_eq!(snapshot_names(&root), before);
}

fn snapshot_names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().flatten().map(|e| e.file_name().display().to_string()).collect();
    names.sort();
    names
}

/// D6, hostile input 19: no spelling of a path leads outside.
#[tokio::test]
async fn no_path_leads_out_of_the_root() {
    let bench = Bench::new();
    let outside = bench.dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret.txt"), "SECRET").unwrap();
    fs::create_dir(bench.dir.path().join("root_evil")).unwrap();
    fs::write(bench.dir.path().join("root_evil/secret.txt"), "SECRET").unwrap();
    let root = bench.root();
    fs::create_dir(root.join("sub")).unwrap();
    for (link, to) in [
        ("out", "../outside"),
        ("abs", outside.to_str().unwrap()),
        ("file", "../outside/secret.txt"),
        ("sub/up", "../../outside"),
        ("sub/chain", "../out"),
        ("loop", "loop"),
        ("proc", "/proc/self/root"),
        ("new", "../outside/new.txt"),
        ("dot", ".."),
    ] {
        symlink(to, root.join(link)).unwrap();
    }
    let before = snapshot(&outside);
    let absolute = outside.join("secret.txt").display().to_string();
    let payloads = [
        "../outside/secret.txt",
        "..",
        "../",
        "../..",
        "./../outside/secret.txt",
        "sub/../../outside/secret.txt",
        "sub/../../../etc/passwd",
        "....//outside/secret.txt",
        "..../outside/secret.txt",
        ".../outside/secret.txt",
        "..\\outside\\secret.txt",
        "..\\..\\etc\\passwd",
        "sub\\..\\..\\outside\\secret.txt",
        "%2e%2e/outside/secret.txt",
        "%2e%2e%2foutside%2fsecret.txt",
        "..%2foutside%2fsecret.txt",
        "%252e%252e%252foutside",
        "..%c0%afoutside/secret.txt",
        "..%ef%bc%8foutside",
        "\u{ff0e}\u{ff0e}/outside/secret.txt",
        "\u{2025}/outside/secret.txt",
        "..\u{2215}outside",
        "/etc/passwd",
        "//etc/passwd",
        "///etc/passwd",
        "/",
        &absolute,
        "/proc/self/environ",
        "/proc/self/mem",
        "/dev/zero",
        "/dev/tcp/127.0.0.1/80",
        "/proc/self/fd/0",
        "~/.ssh/id_rsa",
        "~root/.profile",
        "$HOME/.profile",
        "${HOME}/.profile",
        "file:///etc/passwd",
        "file:/etc/passwd",
        "C:\\Windows\\win.ini",
        "C:/Windows/win.ini",
        "\\\\server\\share\\x",
        "\\\\?\\C:\\x",
        "//server/share",
        "../root_evil/secret.txt",
        "_evil/secret.txt",
        "out/secret.txt",
        "out/../outside/secret.txt",
        "abs/secret.txt",
        "file",
        "sub/up/secret.txt",
        "sub/chain/secret.txt",
        "loop",
        "loop/secret.txt",
        "proc/etc/passwd",
        "new",
        "dot/outside/secret.txt",
        "sub/../dot/outside/secret.txt",
        "secret.txt\0.md",
        "../outside/secret.txt\0",
        "a\n../outside",
        "a\r\nb",
        "\u{1b}[2J",
        "",
        ".",
        "./",
        "./.",
        "sub/.",
        "sub/..",
        "sub/../..",
        "-",
        "--help",
        ".\u{200b}./outside/secret.txt",
    ];
    for path in payloads {
        for (name, args) in [
            ("files_read", json!({"path": path})),
            ("files_list", json!({"path": path, "recursive": true})),
            ("files_delete", json!({"path": path})),
            ("files_edit", json!({"path": path, "find": "SECRET", "replace": "x"})),
            ("atomic_edit", json!({"path": path, "find": "SECRET", "replace": "x"})),
            ("files_restore", json!({"path": path, "content": "x"})),
            ("files_restore", json!({"path": path, "content": null})),
            ("files_write", json!({"path": path, "content": "x"})),
        ] {
            let tool = bench.tool(name);
            let result = tool.runner.call(crate::support::call_of(tool, args)).await;
            let said = format!("{result:?}");
            assert!(
                !said.contains("SECRET") && !said.contains("root:x:0"),
                "{name} {path:?}: {said}"
            );
        }
        assert_eq!(snapshot(&outside), before, "{path:?}");
    }
    assert!(payloads.len() >= 60);
    assert_eq!(
        fs::read_to_string(bench.dir.path().join("root_evil/secret.txt")).unwrap(),
        "SECRET"
    );
}

/// Links that stay inside the root are read through, and never written through.
#[tokio::test]
async fn links_inside_the_root_are_read_and_not_written() {
    let bench = Bench::new();
    fs::create_dir(bench.root().join("v2")).unwrap();
    fs::write(bench.root().join("v2/a.txt"), "inside").unwrap();
    symlink("v2/a.txt", bench.root().join("latest")).unwrap();
    assert_eq!(bench.ok("files_read", json!({"path": "latest"})).await["content"], "inside");
    for (name, args) in [
        ("files_write", json!({"path": "latest", "content": "x"})),
        ("files_edit", json!({"path": "latest", "find": "in", "replace": "x"})),
        ("files_delete", json!({"path": "latest"})),
    ] {
        let (_, message) = bench.refused(name, args).await;
        assert!(message.contains("symbolic link"), "{message}");
    }
}

/// Hostile input 20: a write never changes a file through another hard link.
#[tokio::test]
async fn hard_links_elsewhere_keep_their_text() {
    let bench = Bench::new();
    let outside = bench.dir.path().join("outside.txt");
    fs::write(&outside, "mine").unwrap();
    fs::hard_link(&outside, bench.root().join("a.txt")).unwrap();
    bench.ok("files_write", json!({"path": "a.txt", "content": "theirs"})).await;
    assert_eq!(fs::read_to_string(&outside).unwrap(), "mine");
}

/// D6 under a race: a directory is swapped with a link to the outside, as fast as possible.
#[tokio::test]
async fn a_swapped_link_never_leads_outside() {
    let bench = Bench::new();
    let outside = bench.dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("x.txt"), "SECRET").unwrap();
    let before = snapshot(&outside);
    let (root, stop) = (bench.root(), Arc::new(AtomicBool::new(false)));
    fs::create_dir(root.join("d")).unwrap();
    fs::write(root.join("d/x.txt"), "fine").unwrap();
    symlink("../outside", root.join("link")).unwrap();
    let swapping = std::thread::spawn({
        let (root, stop) = (root.clone(), stop.clone());
        move || {
            let mut swaps = 0_u32;
            while !stop.load(Ordering::Relaxed) {
                // In one step, so that there is always something at `d`.
                renameat_with(CWD, root.join("d"), CWD, root.join("link"), RenameFlags::EXCHANGE)
                    .unwrap();
                swaps += 1;
            }
            swaps
        }
    });
    let until = Instant::now() + Duration::from_millis(500);
    let (mut read, mut failed, mut round) = (0, 0, 0);
    while Instant::now() < until && round < 20_000 {
        round += 1;
        let (name, args) = match round % 8 {
            0 => ("files_write", json!({"path": "d/x.txt", "content": "fine"})),
            1 => ("files_list", json!({"path": "d"})),
            2 => ("files_restore", json!({"path": "d/y.txt", "content": null})),
            _ => ("files_read", json!({"path": "d/x.txt"})),
        };
        match bench.call(name, args).await {
            Ok(value) => {
                assert!(!value.to_string().contains("SECRET"), "{value}");
                read += 1;
            }
            Err(_) => failed += 1,
        }
    }
    stop.store(true, Ordering::Relaxed);
    let swaps = swapping.join().unwrap();
    assert_eq!(snapshot(&outside), before);
    assert!(read > 0 && failed > 0 && swaps > 100, "{read} {failed} {swaps}");
}

#[tokio::test]
async fn a_missing_root_is_said_to_be_missing() {
    let bench = Bench::with(|config| config.files_root = "/nowhere/at/all".into());
    let (code, message) = bench.refused("files_read", json!({"path": "a"})).await;
    assert_eq!(code, Code::Config);
    assert!(message.contains("/nowhere/at/all"), "{message}");
}
