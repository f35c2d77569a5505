//! Runs that evaluate for long, files that cannot be read: neither takes a server down.
//!
//! What an evaluation costs is bounded elsewhere; here nothing depends on where the bound is.

#![cfg(unix)]

use std::fmt::Write as _;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::served::Served;
use crate::support::{World, json};

const EXECUTE: &str = "/api/v1/compositions/execute";

/// Evaluates for minutes, unless something ends it.
const POISON: &str = "\
name: poison
steps:
  - { id: first, tool: echo, parameters: { n: '{{ range(300) }}' } }
  - id: second
    tool: echo
    depends_on: [first]
    parameters:
      n: '{{ first.n | json_query(\". as $a | $a[] as $x | $a[] as $y | $a[] as $z | $a[] as $w | empty\") }}'
";

const QUICK: &str = "name: quick\nsteps: [ { id: a, tool: echo, parameters: { n: 1 } } ]\n";

/// What a health check may take.
const HEALTHY: Duration = Duration::from_millis(100);

fn world() -> World {
    let world = World::new();
    let config = "compositions: ['lib/*.yaml']\nserver: { token: open-sesame-open-sesame-open-sesame }\n\
                  limits: { served_leave_ms: 300 }\n";
    world.file("segue.yaml", config);
    world.file("lib/poison.yaml", POISON);
    world.file("lib/quick.yaml", QUICK);
    world
}

fn poisoned(served: &Served, runs: usize) -> Vec<String> {
    let headers = [("Prefer", "respond-async")];
    let begin = |_| {
        let answer = served.send("POST", EXECUTE, &headers, &json!({ "name": "poison" }));
        let run_id = answer.json()["run_id"].as_str().unwrap().to_owned();
        assert!(matches!(answer.status, 200 | 202), "{answer:?}");
        run_id
    };
    (0..runs).map(begin).collect()
}

/// While runs evaluate, the server answers, and other runs begin and end.
#[test]
fn a_server_answers_while_runs_evaluate() {
    let world = world();
    let served = Served::start(&world, "sqlite:s.db", &[]);
    let ids = poisoned(&served, 3);
    let mut took = Vec::new();
    for _ in 0..30 {
        let began = Instant::now();
        assert_eq!(served.ask("GET", "/healthz", &[], "").status, 200);
        took.push(began.elapsed());
        let quick = served.post(EXECUTE, &json!({ "name": "quick" })).is(200);
        assert_eq!(quick["status"], "success");
        assert_eq!(served.get(&format!("/api/v1/runs/{}", ids[0])).status, 200);
    }
    // The usual one: a machine that does other things may be slow for a moment.
    took.sort();
    assert!(took[took.len() / 2] < HEALTHY, "{took:?}");
}

/// A server that is asked to stop does, whatever its runs evaluate, and the runs resume next time:
/// the interruption is not their fault.
#[test]
fn a_server_ends_while_runs_evaluate() {
    let world = world();
    let served = Served::start(&world, "sqlite:s.db", &[]);
    let ids = poisoned(&served, 2);
    let pid = served.pid().to_string();
    let began = Instant::now();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let ended = served.wait();
    assert!(ended.success(), "{ended:?}");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    for id in ids {
        let args = ["--config", "segue.yaml", "--store", "sqlite:s.db", "--json", "runs", "show"];
        let shown = world.segue(&[&args[..], &[&*id]].concat()).exits(0);
        let run: serde_json::Value = serde_json::from_str(&shown.stdout).unwrap();
        let errors = run["errors"].as_array().unwrap();
        let is_budget = errors.iter().any(|error| error["code"] == "limit");
        assert!(run["status"] == "running" || is_budget, "{run}");
    }
}

/// A file that cannot be read, and appears while a server runs, concerns itself only.
#[test]
fn a_file_that_cannot_be_read_concerns_itself_only() {
    let bad = "name: bad\nsteps: [ { id: a, tool: echo, parameters: { n: '{{ 1 \u{2013}\u{a0}2 }}' } } ]\n";
    let world = world();
    let served = Served::start(&world, "memory", &[]);
    world.file("lib/bad.yaml", bad);
    while !served.has_said("bad.yaml") && !served.has_said("those before stay") {
        std::thread::yield_now();
    }
    served.post(EXECUTE, &json!({ "name": "quick" })).is(200);
}

/// Texts of a few kilobytes whose types would be larger than the memory if nothing bounded them: each is
/// checked, analyzed and shown at once.
#[test]
fn a_small_text_is_checked_at_once_whatever_its_types() {
    let world = world();
    let served = Served::start(&world, "memory", &[]);
    let spread = |name: &str| vec![name; 40].join(", ");
    let mut loops = String::from("name: loops\nsteps:\n");
    for level in 0..8 {
        let pad = " ".repeat(level * 6);
        let over = match level {
            0 => "[1, 2]".to_owned(),
            _ => format!("'{{{{ [{}] }}}}'", spread(&format!("v{}", level - 1))),
        };
        let _ = writeln!(loops, "{pad}  - id: s{level}\n{pad}    loop:\n{pad}      over: {over}");
        let _ = writeln!(loops, "{pad}      as: v{level}\n{pad}      steps:");
    }
    let pad = " ".repeat(8 * 6);
    let _ =
        writeln!(loops, "{pad}  - {{ id: end, tool: echo, parameters: {{ n: '{{{{ v7 }}}}' }} }}");
    let mut doubled = String::from("name: doubled\nsteps:\n  - { id: s0, set: { x0: 1 } }\n");
    for step in 1..60 {
        let before = step - 1;
        let both = format!("'{{{{ [s{before}, {{''a'': s{before}}}] }}}}'");
        let _ = writeln!(doubled, "  - {{ id: s{step}, set: {{ x{step}: {both} }} }}");
    }
    let pairs = "|map(lambda x: {'a': x, 'b': x})".repeat(40);
    let lambdas = format!(
        "name: lambdas\nsteps:\n  - id: a\n    set: {{ x: \"{{{{ [[1]{pairs}, [1]{pairs}] }}}}\" }}\n"
    );
    // Each step reads the next one, which stands below it.
    let mut deep = String::from("name: deep\nsteps:\n");
    for step in 0..5_000 {
        let next = step + 1;
        let _ = writeln!(deep, "  - {{ id: s{step}, set: {{ x{step}: '{{{{ [s{next}] }}}}' }} }}");
    }
    deep += "  - { id: s5000, set: { x5000: 1 } }\n";
    for text in [loops, doubled, lambdas, deep] {
        let checked = served.post("/api/v1/compositions/validate", &json!({ "composition": text }));
        assert_eq!(checked.is(200)["ok"], true, "{text}");
        let analyzed = served.post("/api/v1/language/analyze", &json!({ "text": text }));
        assert_eq!(analyzed.is(200)["findings"], json!([]), "{text}");
    }
}
