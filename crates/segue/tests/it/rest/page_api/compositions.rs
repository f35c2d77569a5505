//! Compositions with their text, findings and tests, and files that are not served.

use super::super::world;
use super::served_to_two;
use crate::served::Served;
use crate::support::{json, until};

const TESTS: &str = "\
tests:
  - name: doubles
    input: { n: 2 }
    tools: { a: { returns: { n: 4 } } }
    expect: { output: { n: 4 } }
  - name: triples
    input: { n: 2 }
    tools: { a: { returns: { n: 4 } } }
    expect: { output: { n: 6 } }
";

/// A composition has its text with the place of each step, its plan and its tests, which run.
#[test]
fn a_composition_has_its_text_and_tests() {
    let world = world("");
    world.file("lib/double.test.yaml", TESTS);
    let served = Served::start(&world, "memory", &[]);
    let found = served.get("/api/v1/compositions/double-it").is(200);
    assert_eq!(found["text"], crate::serve::DOUBLE);
    assert_eq!((&found["format"], &found["dialect"]), (&json!("yaml"), &json!("composition")));
    assert!(found["file"].as_str().unwrap().ends_with("lib/double.yaml"), "{found}");
    let place = json!({ "step": "a", "line": 4, "column": 10, "end_line": 4, "end_column": 71 });
    assert_eq!(found["spans"], json!([place]));
    assert_eq!(
        (&found["summary"]["name"], &found["plan"]["name"]),
        (&json!("double-it"), &json!("double-it"))
    );
    let names: Vec<_> = found["tests"].as_array().unwrap().iter().map(|t| &t["name"]).collect();
    assert_eq!(names, ["doubles", "triples"]);
    let problem = served.get("/api/v1/compositions/doble-it").is_problem(404, "not-found");
    assert!(problem["help"].as_str().unwrap().contains("double-it"), "{problem}");
    let path = "/api/v1/compositions/double-it/test";
    let report = served.post(path, &json!({})).is(200);
    assert_eq!((&report["passed"], &report["failed"]), (&json!(1), &json!(1)), "{report}");
    let miss = &report["files"][0]["tests"][1]["misses"][0];
    assert_eq!((&miss["expected"], &miss["actual"]), (&json!({ "n": 6 }), &json!({ "n": 4 })));
    // The same as the command line reports.
    let mut printed = world.segue(&["test", "lib", "--json"]).exits(1).json();
    let mut sent = report;
    for report in [&mut printed, &mut sent] {
        report["files"][0]["file"] = json!("");
        for test in report["files"][0]["tests"].as_array_mut().unwrap() {
            test["duration_ms"] = json!(0);
        }
    }
    assert_eq!(sent, printed);
    let one = served.post(path, &json!({ "test": "doubles" })).is(200);
    assert_eq!((&one["ok"], &one["passed"]), (&json!(true), &json!(1)));
    served.post(path, &json!({ "test": "none" })).is_problem(404, "not-found");
}

/// A file that cannot be served is listed with its findings, until it can, to administrators.
#[test]
fn broken_files_are_listed() {
    let (world, served) = served_to_two("memory");
    assert_eq!(served.get("/api/v1/compositions").is(200)["broken"], json!(null));
    world.file("lib/broken.yaml", "name: broken\nsteps: [{ id: a, tool: no-such-tool }]\n");
    let broken = until(|| {
        let listed = served.get("/api/v1/compositions").is(200);
        listed["broken"].as_array().cloned()
    });
    assert!(broken[0]["file"].as_str().unwrap().ends_with("broken.yaml"), "{broken:?}");
    assert_eq!(broken[0]["findings"][0]["code"], "unknown-tool", "{broken:?}");
    let path = "/api/v1/compositions";
    let others = served.send_by("bob-token", "GET", path, &[], &json!(null)).is(200);
    assert_eq!(
        (&others["broken"], &others["compositions"][0]["name"]),
        (&json!(null), &json!("double-it"))
    );
    let path = "/api/v1/compositions/double-it";
    let theirs = served.send_by("bob-token", "GET", path, &[], &json!(null)).is(200);
    assert_eq!(theirs["file"], "double.yaml", "no path of the server");
    world.file("lib/broken.yaml", "name: broken\nsteps: [{ id: a, tool: echo }]\n");
    until(|| served.get("/api/v1/compositions").is(200)["broken"].is_null().then_some(()));
}
