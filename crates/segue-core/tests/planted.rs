//! Whether the simulator would notice: bugs that are planted into a copy of the machine, each of
//! which must turn the check of its promise red.
//!
//! `planted.yaml` lists the bugs. The usual test run checks that the list still fits the sources;
//! `just planted` plants them one after the other.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a broken fixture ends the test"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use segue_core::compile::document::{Node, ReadLimits, read};
use segue_core::compile::source::Source;
use segue_core::limits::Limits;

/// Promises that one run of the machine can break, and that are checked by the simulator.
const PROMISES: &[&str] = &[
    "J2", "J3", "J4", "J6", "J9", "J10", "E1", "E2", "E3", "E4", "E5", "E6", "E7", "E8", "E9",
    "E11", "E12", "S1", "S2", "S3", "S4", "S5", "S6", "S7", "S8", "S9", "S10", "S11", "S12", "S13",
    "S14", "S15", "S16", "C1", "C2", "C3", "C4", "C6", "C7", "A1", "A4", "MODEL",
];

/// Seeds in which a planted bug must show itself.
const SEEDS: &str = "1500";

struct Edit {
    file: String,
    text: String,
    with: String,
}

struct Bug {
    breaks: String,
    edits: Vec<Edit>,
}

fn bugs() -> Vec<Bug> {
    let source = Source::new("planted.yaml", include_str!("planted.yaml"));
    let root = read(&source, ReadLimits::for_documents(&Limits::default())).unwrap();
    let text = |node: &Node, name: &str| node.get(name).and_then(Node::as_str).unwrap().to_string();
    let bugs = root.get("bugs").unwrap().items().iter().map(|bug| Bug {
        breaks: text(bug, "breaks"),
        edits: bug
            .get("edits")
            .unwrap()
            .items()
            .iter()
            .map(|edit| Edit {
                file: text(edit, "file"),
                text: text(edit, "text"),
                with: text(edit, "with"),
            })
            .collect(),
    });
    bugs.collect()
}

fn this_crate() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn every_planted_bug_still_has_its_place() {
    let bugs = bugs();
    let mut wrong = Vec::new();
    for Bug { breaks, edits } in &bugs {
        for edit in edits {
            let source = fs::read_to_string(this_crate().join(&edit.file)).unwrap();
            let count = source.matches(&edit.text).count();
            if count != 1 {
                wrong.push(format!("{breaks}: {count} times in {}: {}", edit.file, edit.text));
            }
        }
    }
    assert!(wrong.is_empty(), "texts that must occur once:\n{}", wrong.join("\n"));
    let broken: BTreeSet<&str> = bugs.iter().map(|bug| bug.breaks.as_str()).collect();
    let missing: Vec<_> = PROMISES.iter().filter(|name| !broken.contains(**name)).collect();
    assert!(missing.is_empty(), "promises without a planted bug: {missing:?}");
}

/// A copy of this crate that can be built by itself.
fn copy_to(folder: &Path) {
    let repository = this_crate().parent().and_then(Path::parent).unwrap();
    let _ = fs::remove_dir_all(folder);
    let manifest = fs::read_to_string(repository.join("Cargo.toml")).unwrap();
    let lines = manifest.lines().filter_map(|line| match line {
        line if line.starts_with("members") => Some("members = [\"crates/segue-core\"]"),
        line if line.starts_with("default-members") => None,
        line => Some(line),
    });
    let manifest: String = lines.collect::<Vec<_>>().join("\n");
    let inside = folder.join("crates/segue-core");
    fs::create_dir_all(&inside).unwrap();
    fs::write(folder.join("Cargo.toml"), manifest).unwrap();
    fs::copy(repository.join("Cargo.lock"), folder.join("Cargo.lock")).unwrap();
    fs::copy(this_crate().join("Cargo.toml"), inside.join("Cargo.toml")).unwrap();
    for part in ["src", "tests/sim", "tests/support"] {
        copy_folder(&this_crate().join(part), &inside.join(part));
    }
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path: PathBuf = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy_folder(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}

/// Runs the simulator in a folder; returns whether it found the bug, and its output.
fn simulate(folder: &Path, wanted: &str) -> (bool, String) {
    let output = Command::new(env!("CARGO"))
        .args(["test", "--offline", "--quiet", "--package", "segue-core", "--test", "sim"])
        .args(["the_machine_keeps", "--", "--nocapture"])
        .current_dir(folder)
        .env("CARGO_TARGET_DIR", folder.with_extension("target"))
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env("SEGUE_SIM_SEEDS", SEEDS)
        .env("SEGUE_SIM_WANTED", wanted)
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    (text.contains("the planted bug is found"), text)
}

/// Takes minutes: `just planted`.
#[test]
#[ignore = "builds the machine once for every bug"]
fn every_planted_bug_turns_its_promise_red() {
    let folder = std::env::temp_dir().join("segue-planted");
    copy_to(&folder);
    let only = std::env::var("SEGUE_PLANTED").ok();
    let (mut missed, began) = (Vec::new(), Instant::now());
    println!("{:<8} {:<8} {:>6}  also broken", "promise", "", "s");
    for Bug { breaks, edits } in bugs() {
        if only.as_ref().is_some_and(|only| *only != breaks) {
            continue;
        }
        let start = Instant::now();
        let paths: Vec<PathBuf> =
            edits.iter().map(|edit| folder.join("crates/segue-core").join(&edit.file)).collect();
        for (edit, path) in edits.iter().zip(&paths) {
            let source = fs::read_to_string(path).unwrap();
            fs::write(path, source.replacen(&edit.text, &edit.with, 1)).unwrap();
        }
        let (found, text) = simulate(&folder, &breaks);
        for (edit, path) in edits.iter().zip(&paths) {
            fs::copy(this_crate().join(&edit.file), path).unwrap();
        }
        let said = text.lines().find(|line| line.starts_with("broken: ")).unwrap_or("broken: ?");
        let word = if found { "found" } else { "MISSED" };
        let took = start.elapsed().as_secs_f64();
        println!("{breaks:<8} {word:<8} {took:>6.1}  {}", &said["broken: ".len()..]);
        if !found {
            let tail: Vec<&str> = text.lines().filter(|line| line.contains("error")).collect();
            missed.push(format!("{breaks}: {}", tail.join("\n")));
        }
    }
    println!("{:.0} s in all", began.elapsed().as_secs_f64());
    assert!(missed.is_empty(), "not found:\n{}", missed.join("\n"));
}
