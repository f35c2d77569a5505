//! `segue run`: its view, its inputs, its exit codes and what it does with failures.

use std::fs;

use crate::support::{Done, Json, SEGUE, World, has_keys, json, keys, repository, step};

const TWO: &str = "\
name: two
steps:
  - { id: a, tool: echo, parameters: { n: 20 }, output_key: first }
  - { id: b, tool: echo, parameters: { n: '{{ first.n + 1 }}', same: '{{ a.n }}' } }
";

fn text(value: &Json) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}

#[track_caller]
fn looks_like(value: &Json, pattern: &str) {
    let pattern = regex::Regex::new(&format!("^(?:{pattern})$")).unwrap();
    assert!(pattern.is_match(text(value)), "{value} does not look like {pattern}");
}

/// The only error of a run.
#[track_caller]
fn error(view: &Json) -> &Json {
    let errors = view["errors"].as_array().unwrap();
    assert_eq!(errors.len(), 1, "{:#}", view["errors"]);
    &errors[0]
}

/// S0-81, S0-84, S0-85, S1-47, S4-01, S4-02, S4-03: what every run says of itself.
#[test]
fn the_view_has_every_key_and_its_ids_their_shape() {
    let view = World::with(TWO).run(0, &[]);
    has_keys(
        &view,
        "run_id request_id plan_id chain_id name dialect status success output results errors \
         warnings steps state steps_executed steps_succeeded steps_failed started_at completed_at \
         duration duration_ms",
    );
    const UUID: &str = "[0-9a-f]{8}-[0-9a-f]{4}-V[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}";
    looks_like(&view["run_id"], &UUID.replace('V', "7"));
    looks_like(&view["chain_id"], &UUID.replace('V', "4"));
    looks_like(&view["request_id"], r"req_\d{10}_[a-z0-9]{9}");
    looks_like(&view["plan_id"], r"plan_\d{10}_[a-z0-9]{9}");
    for time in ["started_at", "completed_at"] {
        looks_like(&view[time], r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z");
    }
    assert_eq!(view["name"], "two");
    assert_eq!(view["dialect"], "composition");
    assert_eq!(view["status"], "success");
    assert_eq!(view["success"], true);
    assert_eq!(view["errors"], json!([]));
    assert_eq!(view["steps_executed"], 2);
    assert_eq!(view["steps_succeeded"], 2);
    assert_eq!(view["steps_failed"], 0);
    assert!(view["duration"].is_u64() && view["duration_ms"].is_u64());
}

/// S0-23, S0-24, S0-82: by the key, else by the id.
#[test]
fn results_are_by_output_key_and_steps_say_all_of_themselves() {
    let view = World::with(TWO).run(0, &[]);
    assert_eq!(view["results"], json!({ "first": { "n": 20 }, "b": { "n": 21, "same": 20 } }));
    assert_eq!(view["output"], view["results"]);
    let a = step(&view, "a");
    has_keys(a, "id tool status attempts duration_ms output input kind started_at completed_at");
    assert_eq!(a["tool"], "builtin:echo");
    assert_eq!(a["status"], "success");
    assert_eq!(a["attempts"], 1);
    assert_eq!(a["output"], json!({ "n": 20 }));
    assert_eq!(step(&view, "b")["input"], json!({ "n": 21, "same": 20 }));
}

#[test]
fn a_declared_output_is_the_result() {
    let world = World::with(&format!("{TWO}output: {{ sum: '{{{{ a.n + b.n }}}}' }}\n"));
    let view = world.run(0, &[]);
    assert_eq!(view["output"], json!({ "sum": 41 }));
    assert_eq!(keys(&view["results"]), ["first", "b"]);
    let plain = world.segue(&["run", "c.yaml", "-q"]).exits(0);
    assert_eq!(plain.json(), json!({ "sum": 41 }));
    assert_eq!(plain.stderr, "");
}

const TYPED: &str = "\
name: typed
input:
  type: object
  required: [n]
  properties:
    n: { type: integer }
    s: { type: string }
    b: { type: boolean }
    l: { type: array, items: { type: integer } }
    o: { type: object }
    f: { type: number }
steps:
  - { id: a, tool: echo, parameters: { got: '{{ input }}' } }
output: '{{ a.got }}'
";

/// S0-29: what the caller gives is what steps see.
#[test]
fn inputs_are_read_by_their_types() {
    let world = World::with(TYPED);
    world.file("s.txt", "from a file");
    world.file("l.json", "[1, 2]");
    let cases: &[(&[&str], Json)] = &[
        (&["-i", "n=41"], json!({ "n": 41 })),
        (&["-i", "n:=41"], json!({ "n": 41 })),
        (&["-i", "n=1", "-i", "s=42"], json!({ "n": 1, "s": "42" })),
        (&["-i", "n=1", "-i", "s=a=b"], json!({ "n": 1, "s": "a=b" })),
        (&["-i", "n=1", "-i", "b=true"], json!({ "n": 1, "b": true })),
        (&["-i", "n=1", "-i", "l=[3,4]"], json!({ "n": 1, "l": [3, 4] })),
        (&["-i", "n=1", "-i", "o={\"k\":null}"], json!({ "n": 1, "o": { "k": null } })),
        (&["-i", "n=1", "-i", "f=1.5"], json!({ "n": 1, "f": 1.5 })),
        (&["-i", "n=1", "-i", "undeclared=7"], json!({ "n": 1, "undeclared": "7" })),
        (&["-i", "n=1", "-i", "undeclared:=7"], json!({ "n": 1, "undeclared": 7 })),
        (&["-i", "n=1", "-i", "s=@s.txt"], json!({ "n": 1, "s": "from a file" })),
        (&["-i", "n=1", "-i", "l:=@l.json"], json!({ "n": 1, "l": [1, 2] })),
        (&["-i", "n=9007199254740993"], json!({ "n": 9_007_199_254_740_993_u64 })),
        (&["-i", "n=1", "-i", "n=2"], json!({ "n": 2 })),
    ];
    for (args, expected) in cases {
        assert_eq!(&world.run(0, args)["output"], expected, "{args:?}");
    }
}

#[test]
fn the_whole_input_comes_as_json_from_a_file_or_from_standard_input() {
    let world = World::with(TYPED);
    world.file("in.json", r#"{"n": 41}"#);
    world.file("in.yaml", "n: 41\n");
    for whole in [r#"{"n": 41}"#, "@in.json", "@in.yaml"] {
        assert_eq!(world.run(0, &["--input", whole])["output"]["n"], 41, "{whole}");
    }
    let args = ["run", "c.yaml", "--json", "--input", "-"];
    let read = world.segue_reading(r#"{"n": 41, "s": "x"}"#, &args).exits(0).json();
    assert_eq!(read["output"], json!({ "n": 41, "s": "x" }));
    // Single inputs are laid over the whole.
    let both = world.run(0, &["--input", "@in.json", "-i", "n=42"]);
    assert_eq!(both["output"]["n"], 42);
}

#[test]
fn defaults_are_filled_in() {
    let world = World::with(
        "name: d\ninput: { type: object, properties: { who: { type: string, default: world } } }\n\
         steps:\n  - { id: a, tool: echo, parameters: { who: '{{ input.who }}' } }\n",
    );
    assert_eq!(world.run(0, &[])["results"]["a"]["who"], "world");
    assert_eq!(world.run(0, &["-i", "who=Ada"])["results"]["a"]["who"], "Ada");
}

#[test]
fn an_input_that_does_not_fit_calls_nothing() {
    let world = World::with(TYPED);
    let view = world.run(2, &[]);
    assert_eq!(view["status"], "failed");
    assert_eq!(view["success"], false);
    assert_eq!(error(&view)["phase"], "check");
    assert_eq!(error(&view)["code"], "input-schema");
    assert!(text(&error(&view)["message"]).contains('n'));
    assert_eq!(view["steps_executed"], 0);
    assert_eq!(world.run(2, &["--input", r#"{"n": "many"}"#])["errors"][0]["phase"], "check");
    for wrong in [&["-i", "n=many"], &["-i", "n"], &["-i", "n:={"], &["--input", "[1]"]] {
        let done = world.segue(&[&["run", "c.yaml"][..], wrong].concat()).exits(2);
        assert!(done.stderr.starts_with("error: "), "{wrong:?}: {}", done.stderr);
    }
    world.segue(&["run", "c.yaml", "-i", "n=1", "-i", "s=@nowhere.txt"]).exits(2);
}

#[test]
fn what_the_context_must_carry_is_asked_for() {
    let world = World::with(
        "name: c\nrequires: { context: [user_id] }\n\
         steps:\n  - { id: a, tool: echo, parameters: { by: '{{ context.user_id }}' } }\n",
    );
    let refused = world.run(2, &[]);
    assert_eq!(error(&refused)["code"], "policy-violation");
    assert_eq!(error(&refused)["phase"], "check");
    assert_eq!(world.run(0, &["--context", "user_id=7"])["results"]["a"]["by"], "7");
}

#[test]
fn what_does_not_compile_is_a_failed_run_of_phase_check() {
    let world = World::with("name: x\nsteps: []\n");
    let view = world.run(2, &[]);
    assert_eq!(view["status"], "failed");
    assert_eq!(view["success"], false);
    assert_eq!(error(&view)["phase"], "check");
    assert_eq!(error(&view)["code"], "no-steps");
    looks_like(&view["request_id"], r"req_\d{10}_[a-z0-9]{9}");
    has_keys(&view, "run_id name results steps steps_executed duration_ms");
}

#[test]
fn a_run_under_json_always_prints_a_view() {
    let world = World::with(TYPED);
    let cases: &[&[&str]] = &[
        &["run", "nowhere.yaml", "--json"],
        &["run", "c.yaml", "--json", "-i", "n=many"],
        &["run", "c.yaml", "--json", "--input", "{"],
    ];
    for args in cases {
        let view = world.json(2, args);
        assert_eq!(view["status"], "failed", "{args:?}");
        assert_eq!(view["errors"][0]["phase"], "check", "{args:?}");
    }
}

/// S0-86: step, tool, message, attempts and phase.
#[test]
fn a_tool_that_fails_fails_the_run() {
    let world = World::with(
        "name: x\nsteps:\n  - { id: a, tool: fail, parameters: { message: out of paper } }\n",
    );
    let view = world.run(1, &[]);
    assert_eq!(view["status"], "failed");
    assert_eq!(view["success"], false);
    assert_eq!(view["steps_failed"], 1);
    let error = error(&view);
    has_keys(error, "step tool code message attempts phase retryable in_doubt");
    assert_eq!(error["step"], "a");
    assert_eq!(error["tool"], "builtin:fail");
    assert_eq!(error["code"], "tool-error");
    assert_eq!(error["phase"], "call");
    assert_eq!(error["attempts"], 1);
    assert!(text(&error["message"]).contains("out of paper"));
    assert_eq!(step(&view, "a")["status"], "failed");
    let plain = world.segue(&["run", "c.yaml", "-q"]).exits(1);
    assert!(plain.stderr.contains("[tool-error] step `a` (builtin:fail)"), "{}", plain.stderr);
}

#[test]
fn after_a_failure_nothing_new_starts() {
    let world = World::with(
        "name: x\nsteps:\n  - { id: bad, tool: fail }\n  - { id: nap, tool: sleep, parameters: { ms: 50 } }\n\
         \x20 - { id: after, tool: echo, parameters: { x: '{{ nap.slept_ms }}' } }\n\
         \x20 - { id: reads, tool: echo, parameters: { x: '{{ bad.value }}' } }\n",
    );
    let view = world.run(1, &[]);
    assert_eq!(view["status"], "failed");
    assert_ne!(step(&view, "after")["status"], "success");
    assert_ne!(step(&view, "reads")["status"], "success");
    let partial = world.run(1, &["--error-strategy", "partial_success"]);
    assert_eq!(partial["status"], "partial");
    assert_eq!(partial["success"], false);
    assert_eq!(step(&partial, "after")["status"], "success");
    assert_eq!(step(&partial, "reads")["status"], "skipped");
    assert!(text(&step(&partial, "reads")["reason"]).contains("bad"));
    assert_eq!(partial["results"]["after"]["x"], 50);
    assert_eq!(error(&partial)["step"], "bad");
    world.segue(&["run", "c.yaml", "--error-strategy", "hope"]).exits(2);
}

const DELETES: &str =
    "name: x\nsteps:\n  - { id: a, tool: files_delete, parameters: { path: kept.txt } }\n";

#[test]
fn what_destroys_is_denied_without_a_person_and_done_with_a_yes() {
    let world = World::with(DELETES);
    world.file("kept.txt", "kept");
    let denied = world.run(3, &[]);
    assert_eq!(denied["status"], "denied");
    assert_eq!(denied["success"], false);
    assert_eq!(error(&denied)["code"], "denied");
    assert_eq!(fs::read_to_string(world.path("kept.txt")).unwrap(), "kept");
    // What merely stands on standard input is not a person.
    let piped = world.segue_reading("y\n", &["run", "c.yaml", "--json"]).exits(3).json();
    assert_eq!(piped["status"], "denied");
    assert!(world.path("kept.txt").exists());
    let done = world.run(0, &["--yes"]);
    assert_eq!(done["status"], "success");
    assert!(!world.path("kept.txt").exists());
}

#[test]
fn a_dry_run_calls_nothing_and_shows_what_it_knows() {
    let world = World::with(
        "name: x\ninput: { type: object, required: [p], properties: { p: { type: string } } }\nsteps:\n\
         \x20 - { id: write, tool: files_write, parameters: { path: '{{ input.p }}', content: hello } }\n\
         \x20 - { id: read, tool: files_read, parameters: { path: '{{ write.path }}' } }\n\
         \x20 - { id: gone, tool: files_delete, parameters: { path: '{{ input.p }}' }, depends_on: [read] }\n\
         \x20 - { id: never, tool: echo, when: '{{ input.p == \"other\" }}' }\n",
    );
    let view = world.run(0, &["--dry-run", "-i", "p=a.txt"]);
    assert_eq!(view["status"], "dry_run");
    assert_eq!(view["steps_executed"], 0);
    assert_eq!(step(&view, "write")["input"], json!({ "path": "a.txt", "content": "hello" }));
    assert_eq!(step(&view, "gone")["input"], json!({ "path": "a.txt" }));
    assert_eq!(step(&view, "read")["input"]["path"], "{{ write.path }}");
    assert_eq!(step(&view, "never")["status"], "skipped");
    assert!(view["steps"].as_array().unwrap().iter().all(|step| step["attempts"] == 0));
    assert!(!world.path("a.txt").exists());
    let plain = world.segue(&["run", "c.yaml", "--dry-run", "-i", "p=a.txt"]).exits(0);
    assert!(plain.stdout.contains("\"a.txt\""), "{}", plain.stdout);
    assert!(plain.stderr.contains("nothing was called"), "{}", plain.stderr);
    assert!(!world.path("a.txt").exists());
    world.segue(&["run", "c.yaml", "--dry-run"]).exits(2);
}

/// S0-77: by the word of the caller.
#[test]
fn the_time_of_a_run_is_bounded() {
    let world =
        World::with("name: x\nsteps:\n  - { id: a, tool: sleep, parameters: { ms: 600000 } }\n");
    let view = world.run(1, &["--timeout", "50ms"]);
    assert_eq!(view["status"], "failed");
    assert!(view["errors"].to_string().contains("timeout"), "{:#}", view["errors"]);
    world.segue(&["run", "c.yaml", "--timeout", "soon"]).exits(2);
}

#[test]
fn the_time_of_an_attempt_is_bounded() {
    let world = World::with(
        "name: x\nsteps:\n  - { id: a, tool: sleep, parameters: { ms: 600000 }, timeout: 50ms }\n",
    );
    let view = world.run(1, &[]);
    assert_eq!(error(&view)["code"], "timeout");
    assert_eq!(error(&view)["step"], "a");
}

const THREE_NAPS: &str = "\
name: naps
steps:
  - { id: long, tool: sleep, parameters: { ms: 400 } }
  - { id: middle, tool: sleep, parameters: { ms: 300 } }
  - { id: short, tool: sleep, parameters: { ms: 200 } }
";

/// When each of these steps began and ended. The texts sort as the times do.
fn times<'a>(view: &'a Json, ids: &[&str]) -> Vec<(&'a str, &'a str)> {
    let time = |id: &&str| {
        let step = step(view, id);
        (text(&step["started_at"]), text(&step["completed_at"]))
    };
    ids.iter().map(time).collect()
}

#[test]
fn independent_steps_run_together() {
    let view = World::with(THREE_NAPS).run(0, &[]);
    let times = times(&view, &["long", "middle", "short"]);
    let last_start = times.iter().map(|(start, _)| start).max().unwrap();
    let first_end = times.iter().map(|(_, end)| end).min().unwrap();
    assert!(last_start < first_end, "{times:?}");
}

#[test]
fn one_at_a_time_is_one_at_a_time() {
    let view = World::with(THREE_NAPS).run(0, &["--max-concurrency", "1"]);
    let times = times(&view, &["long", "middle", "short"]);
    assert!(times.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{times:?}");
    World::with(THREE_NAPS).segue(&["run", "c.yaml", "--max-concurrency", "0"]).exits(2);
}

#[test]
fn a_slow_branch_does_not_delay_the_dependants_of_another() {
    let view = World::with(
        "name: branches\nsteps:\n\
         \x20 - { id: slow, tool: sleep, parameters: { ms: 1000 } }\n\
         \x20 - { id: quick, tool: sleep, parameters: { ms: 20 } }\n\
         \x20 - { id: after-quick, tool: sleep, parameters: { ms: '{{ quick.slept_ms }}' } }\n\
         \x20 - { id: last, tool: echo, parameters: { x: '{{ after-quick.slept_ms }}' } }\n\
         \x20 - { id: both, tool: echo, parameters: { x: ['{{ slow.slept_ms }}', '{{ last.x }}'] } }\n",
    )
    .run(0, &[]);
    let times = times(&view, &["slow", "last", "both"]);
    let (slow, last, both) = (times[0], times[1], times[2]);
    assert!(last.1 < slow.1, "`last` waited for `slow`: {times:?}");
    assert!(both.0 >= slow.1, "`both` did not wait for `slow`: {times:?}");
}

#[test]
fn json_stands_alone_on_standard_output_without_colours() {
    let world = World::with(TWO);
    let mut forced = world.command(crate::support::SEGUE);
    forced.args(["run", "c.yaml", "--json"]).env_remove("NO_COLOR");
    let bad = World::with("name: x\nsteps: [ { id: a, tool: fail } ]\n");
    let worse = World::with("name: x\nsteps: [ { id: a, tol: fail } ]\n");
    let runs = [
        world.segue(&["run", "c.yaml", "--json"]),
        crate::support::Done::of(forced.output().unwrap()),
        bad.segue(&["run", "c.yaml", "--json"]),
        worse.segue(&["run", "c.yaml", "-o", "json"]),
    ];
    for done in &runs {
        assert!(done.json()["run_id"].is_string());
        assert!(!done.stdout.contains('\u{1b}') && !done.stderr.contains('\u{1b}'), "{done:?}");
    }
    assert_eq!(runs[0].stderr, "");
}

#[test]
fn ndjson_is_an_event_per_line_and_the_view_at_the_end() {
    let done = World::with(TWO).segue(&["run", "c.yaml", "-o", "ndjson"]).exits(0);
    let lines: Vec<Json> =
        done.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (view, events) = lines.split_last().unwrap();
    assert_eq!(view["status"], "success");
    let told: Vec<String> = events
        .iter()
        .map(|event| format!("{} {}", text(&event["step"]), text(&event["event"])))
        .collect();
    assert_eq!(
        told,
        ["a step_started", "a step_succeeded", "b step_started", "b step_succeeded"],
        "{}",
        done.stdout
    );
}

#[test]
fn ndjson_is_a_document_per_line_also_without_a_run() {
    let refused = World::with("name: x\nsteps: []\n").segue(&["run", "c.yaml", "-o", "ndjson"]);
    let dry = World::with(TWO).segue(&["run", "c.yaml", "-o", "ndjson", "--dry-run"]);
    for line in refused.exits(2).stdout.lines().chain(dry.exits(0).stdout.lines()) {
        serde_json::from_str::<Json>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    }
}

#[test]
fn plain_output_narrates_on_standard_error_and_quiet_does_not() {
    let world = World::with(TWO);
    let plain = world.segue(&["run", "c.yaml"]).exits(0);
    assert_eq!(plain.json()["b"]["n"], 21);
    for part in ["[a] builtin:echo", "[b] done in", "two: success · 2 of 2 steps"] {
        assert!(plain.stderr.contains(part), "no {part:?} in\n{}", plain.stderr);
    }
    let quiet = world.segue(&["run", "c.yaml", "-q"]).exits(0);
    assert_eq!((quiet.stdout, &*quiet.stderr), (plain.stdout, ""));
}

#[test]
fn what_is_neither_a_file_nor_a_name_is_wrong_usage() {
    let world = World::new();
    let done = world.segue(&["run", "nowhere"]).exits(2);
    assert!(done.stderr.contains("`nowhere`"), "{}", done.stderr);
    world.segue(&["run", "nowhere.yaml", "--json"]).exits(2);
}

#[test]
fn failures_are_tried_again_as_often_as_allowed() {
    let world = World::with(
        "name: x\nerror_handling: { backoff: { initial: 1ms, jitter: false } }\n\
         steps:\n  - { id: a, tool: fail, parameters: { times: 2, value: done }, retry_count: 2 }\n",
    );
    let view = world.run(0, &[]);
    assert_eq!(step(&view, "a")["attempts"], 3);
    assert_eq!(view["results"]["a"]["value"], "done");
    assert_eq!(view["steps_executed"], 1);
    assert_eq!(view["steps_failed"], 0);

    let world = World::with(
        "name: x\nerror_handling: { max_retries: 1, backoff: { initial: 1ms } }\n\
         steps:\n  - { id: a, tool: fail, parameters: { times: 2, message: no } }\n",
    );
    let view = world.run(1, &[]);
    assert_eq!(error(&view)["code"], "retries-exhausted");
    assert_eq!(error(&view)["attempts"], 2);
    let message = text(&error(&view)["message"]);
    assert!(message.starts_with("Max retries (1) exceeded for step a"), "{message}");
    assert!(message.ends_with("no"), "{message}");
}

#[test]
fn fallbacks_are_tried_in_order() {
    let view = World::with(
        "name: x\nsteps:\n  - id: a\n    tool: fail\n    fallback:\n\
         \x20     - { tool: fail, parameters: { message: second } }\n\
         \x20     - { tool: echo, parameters: { value: third } }\n\
         \x20     - { tool: echo, parameters: { value: fourth } }\n",
    )
    .run(0, &[]);
    assert_eq!(view["status"], "success");
    assert_eq!(view["results"]["a"], json!({ "value": "third" }));
    assert_eq!(view["errors"], json!([]));
}

#[test]
fn a_tolerated_failure_goes_on_with_its_default() {
    let view = World::with(
        "name: x\nsteps:\n\
         \x20 - { id: a, tool: fail, parameters: { message: gone }, on_failure: { action: continue, default: { value: '{{ error.code }}' } } }\n\
         \x20 - { id: b, tool: echo, parameters: { got: '{{ a.value }}' } }\n",
    )
    .run(1, &[]);
    assert_eq!(view["status"], "partial");
    assert_eq!(view["success"], false);
    assert_eq!(view["results"]["b"]["got"], "tool-error");
    assert_eq!(error(&view)["step"], "a");
}

#[test]
fn a_false_condition_skips_a_step_and_what_reads_it() {
    let view = World::with(
        "name: x\ninput: { type: object, properties: { go: { type: boolean, default: false } } }\nsteps:\n\
         \x20 - { id: maybe, tool: echo, parameters: { x: 1 }, when: '{{ input.go }}' }\n\
         \x20 - { id: reads, tool: echo, parameters: { x: '{{ maybe.x }}' } }\n\
         \x20 - { id: copes, tool: echo, parameters: { x: '{{ maybe.x | default(7) }}' } }\n\
         \x20 - { id: after, tool: echo, depends_on: [maybe] }\n",
    )
    .run(0, &[]);
    assert_eq!(view["status"], "success");
    assert_eq!(step(&view, "maybe")["status"], "skipped");
    assert!(text(&step(&view, "maybe")["reason"]).contains("when"));
    assert_eq!(step(&view, "reads")["status"], "skipped");
    assert_eq!(view["results"]["copes"]["x"], 7);
    assert_eq!(step(&view, "after")["status"], "success");
    assert_eq!(view["steps_executed"], 2);
}

#[test]
fn loops_keep_the_order_of_their_items() {
    let view = World::with(
        "name: x\nsteps:\n  - id: each\n    loop:\n      over: [60, 30, 1]\n      as: ms\n      steps:\n\
         \x20       - { id: nap, tool: sleep, parameters: { ms: '{{ ms }}' } }\n\
         \x20     output: '{{ loop.index }}:{{ nap.slept_ms }}'\n",
    )
    .run(0, &[]);
    assert_eq!(view["results"]["each"], json!(["0:60", "1:30", "2:1"]));
}

const TWICE: &str = "\
name: twice
description: doubles
input: { type: object, required: [n], properties: { n: { type: integer } } }
steps: [ { id: a, tool: echo, parameters: { sum: '{{ input.n + input.n }}' } } ]
output: { n: '{{ a.sum }}' }
";

#[test]
fn configured_compositions_are_called_by_name_and_from_others() {
    let world = World::with(
        "name: four-times\nsteps:\n  - { id: once, tool: twice, parameters: { n: 10 } }\n\
         \x20 - { id: again, tool: 'composition:twice', parameters: { n: '{{ once.n }}' } }\n\
         output: '{{ again.n }}'\n",
    );
    world.file("segue.yaml", "compositions: ['lib/*.yaml']\n");
    world.file("lib/twice.yaml", TWICE);
    assert_eq!(world.json(0, &["run", "twice", "-i", "n=21", "--json"])["output"]["n"], 42);
    let view = world.run(0, &[]);
    assert_eq!(view["output"], 40);
    assert_eq!(step(&view, "once/a")["output"]["sum"], 20);
    let none = world.segue(&["run", "thrice"]).exits(2);
    assert!(none.stderr.contains("configured compositions: twice"), "{}", none.stderr);
    // What is wrong with its input is found before anything runs.
    world.file("c.yaml", "name: x\nsteps: [ { id: a, tool: twice, parameters: { m: 1 } } ]\n");
    let refused = world.run(2, &[]);
    assert!(refused["errors"].as_array().unwrap().iter().all(|e| e["phase"] == "check"));
}

const COMMANDS: &str = "\
commands:
  shout:
    argv: [tr, a-z, A-Z]
    read_only: true
";

const SHOUTS: &str = "name: x\nsteps: [ { id: a, tool: shout, parameters: { text: hello } } ]\noutput: '{{ a.TEXT }}'\n";

#[cfg(unix)]
#[test]
fn commands_of_a_named_configuration_run() {
    let world = World::with(SHOUTS);
    world.file("mine.yaml", COMMANDS);
    let view = world.json(0, &["--config", "mine.yaml", "run", "c.yaml", "--json"]);
    assert_eq!(view["output"], "HELLO");
    let mut by_variable = world.command(crate::support::SEGUE);
    by_variable.args(["run", "c.yaml", "--json"]).env("SEGUE_CONFIG", "mine.yaml");
    let done = crate::support::Done::of(by_variable.output().unwrap()).exits(0);
    assert_eq!(done.json()["output"], "HELLO");
}

#[cfg(unix)]
#[test]
fn commands_of_a_found_configuration_wait_for_trust() {
    let world = World::with(SHOUTS).merely_found();
    world.file("segue.yaml", COMMANDS);
    let refused = world.run(1, &[]);
    assert_eq!(error(&refused)["code"], "policy-violation");
    assert!(text(&error(&refused)["message"]).contains("segue trust"));
    world.segue(&["check", "c.yaml"]).exits(0);
    world.segue(&["doctor"]).exits(2);
    let trusted = world.segue(&["trust"]).exits(0);
    assert!(trusted.stderr.contains(r#"["tr","a-z","A-Z"]"#), "{}", trusted.stderr);
    assert_eq!(world.run(0, &[])["output"], "HELLO");
    world.segue(&["doctor"]).exits(0);
    // Trust is in these commands, as they are.
    world.file("segue.yaml", COMMANDS.replace("A-Z", "A-Y"));
    assert_eq!(error(&world.run(1, &[]))["code"], "policy-violation");
}

#[test]
fn a_source_that_cannot_be_reached_ends_with_4() {
    // A port that was free a moment ago, and that has no listener now.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let world = World::with(&format!(
        "name: x\nsteps:\n  - {{ id: a, tool: http_request, parameters: {{ url: 'http://{address}/' }} }}\n"
    ));
    world.file("segue.yaml", "builtins: { http: { allow: ['127.0.0.1:*'] } }\n");
    let view = world.run(4, &["--yes"]);
    assert_eq!(view["status"], "failed");
    assert_eq!(error(&view)["code"], "unreachable");
}

#[test]
fn what_a_tool_says_cannot_command_a_terminal() {
    let world = World::with(
        "name: x\nsteps: [ { id: a, tool: fail, parameters: { message: \"\\e[2J\\e]0;title\\a gone\" } } ]\n",
    );
    for args in [&["run", "c.yaml"][..], &["run", "c.yaml", "-q"], &["run", "c.yaml", "--json"]] {
        let mut command = world.command(crate::support::SEGUE);
        command.args(args).env_remove("NO_COLOR").env("CLICOLOR_FORCE", "1");
        let done = crate::support::Done::of(command.output().unwrap()).exits(1);
        let said = format!("{}{}", done.stdout, done.stderr);
        assert!(said.contains("gone"), "{said:?}");
        assert!(!said.contains("\u{1b}[2J") && !said.contains("\u{1b}]0"), "{args:?}: {said:?}");
    }
}

#[cfg(unix)]
/// Runs Segue at a terminal where a person types lines when asked.
#[cfg(unix)]
pub(crate) fn at_a_terminal(world: &World, lines: &str, args: &[&str]) -> Done {
    let script = repository().join("crates/segue/tests/it/at_a_terminal.py");
    let mut command = world.command("python3");
    command.arg(script).arg(lines).arg(SEGUE).args(args);
    Done::of(command.output().unwrap())
}

/// At a terminal a person is asked, and fills in forms: what does not fit is asked again.
#[test]
#[cfg(unix)]
fn a_person_at_a_terminal_is_asked() {
    let world = World::with(
        "name: c\nsteps:\n  - id: ask\n    approve:\n      message: How many?\n      schema:\n        \
         { type: object, properties: { copies: { type: integer } }, required: [copies] }\n\
         output: '{{ ask.data.copies }}'\n",
    );
    let args = ["run", "c.yaml", "-q"];
    let said = at_a_terminal(&world, "y|many|3", &args).exits(0).stdout;
    assert!(said.contains("step `ask` asks: How many?"), "{said}");
    assert!(said.contains("copies* (integer): "), "{said}");
    assert!(said.contains("`copies` must be integer, found `many`"), "{said}");
    assert!(said.trim_end().ends_with('3'), "{said}");
    at_a_terminal(&world, "n", &args).exits(3);
}

/// A composition that calls a destructive tool, which leaves a mark.
#[cfg(unix)]
fn marking(parameters: &str) -> World {
    let world = World::with(&format!(
        "name: c\nsteps: [ {{ id: a, tool: mark, parameters: {parameters} }} ]\noutput: done\n"
    ));
    world.file(
        "segue.yaml",
        "commands: { mark: { argv: [sh, -c, 'echo x >> marks'], destructive: true, \
         input: { type: object, properties: { n: { type: string } } } } }\n",
    );
    world
}

/// Input typed before a question was shown is no answer to it.
#[test]
#[cfg(unix)]
fn what_was_typed_before_a_question_is_no_answer() {
    let world = marking("{ n: x }");
    let args = ["run", "c.yaml", "-q", "--config", "segue.yaml"];
    at_a_terminal(&world, "^y", &args).exits(3);
    assert!(!world.path("marks").exists());
    at_a_terminal(&world, "^n|y", &args).exits(0);
    assert!(world.path("marks").exists());
}

/// The person who is asked sees every character of the arguments, the effect, and that it lasts: at
/// a terminal, and in the view of the waiting run.
#[test]
#[cfg(unix)]
fn a_question_shows_what_a_yes_allows() {
    let world = marking(r#"{ n: "keep\u202Eeteled\u200B\x9B2J\x7F" }"#);
    let args = ["run", "c.yaml", "-q", "--config", "segue.yaml"];
    let said = at_a_terminal(&world, "n", &args).exits(3).stdout;
    for hidden in ['\u{202e}', '\u{200b}', '\u{9b}', '\u{7f}'] {
        assert!(!said.contains(hidden), "{said:?}");
        assert!(said.contains(&hidden.escape_default().to_string()), "{said:?}");
    }
    assert!(said.contains("may destroy something, and that cannot be rolled back"), "{said}");
    // The view of a waiting run says the same.
    world.file(
        "c.yaml",
        "name: c\nsteps: [ { id: ask, approve: { message: \"Go\\e[2J on?\\u202E\" } } ]\n",
    );
    world.segue(&["run", "c.yaml", "-q", "--config", "segue.yaml"]).exits(3);
    let shown = world.segue(&["--config", "segue.yaml", "runs", "show", "last"]).exits(0);
    let said = shown.stdout + &shown.stderr;
    assert!(!said.contains(['\u{1b}', '\u{202e}']), "{said:?}");
    assert!(said.contains("Go\\u{1b}[2J on?\\u{202e}"), "{said:?}");
}

/// A run continues while a person is asked, and ends without an answer when it is too late for one.
#[test]
#[cfg(unix)]
fn a_question_does_not_delay_other_steps() {
    let world = World::with(
        "name: c\noverwrites: [two.txt]\nsteps:\n  - { id: ask, approve: { message: 'Go on?' } }\n\
         \x20 - { id: one, tool: echo, parameters: { n: 1 } }\n\
         \x20 - { id: two, tool: files_write, parameters: { path: two.txt, content: x }, depends_on: one }\n\
         \x20 - { id: say, tool: echo, parameters: { by: '{{ ask.by }}' } }\n",
    );
    let args = ["run", "c.yaml", "-o", "rich"];
    // Answered when something else has happened, which it would not if the run stood still.
    let until = "timeout 20 sh -c 'until test -e two.txt; do sleep 0.05; done'!!y";
    at_a_terminal(&world, until, &args).exits(0);
    // Another process answers.
    let said = at_a_terminal(&world, &format!("{SEGUE} approve last!!"), &args).exits(0).stdout;
    let (_, behind) = said.split_once("step `ask` no longer asks").unwrap();
    assert!(behind.contains("✓ two"), "{said}");
    // No answer comes in time.
    let text = fs::read_to_string(world.path("c.yaml")).unwrap();
    world.file("c.yaml", text.replace("'Go on?'", "'Go on?', timeout: 50ms"));
    let said = at_a_terminal(&world, "true!!", &args).exits(3).stdout;
    assert!(said.contains("step `ask` no longer asks"), "{said}");
}

/// An atomic composition of several destructive calls asks once, and after a no nothing is called.
/// S3-12, S3-17, S3-20, S3-21, S3-24, S3-26: where no person can be asked the answer is no.
#[test]
#[cfg(unix)]
fn an_atomic_composition_asks_once() {
    let step = |n| format!("  - {{ id: s{n}, tool: mark, parameters: {{ n: {n} }} }}\n");
    let steps = (0..6).map(step).collect::<Vec<_>>().concat();
    let world = World::with(&format!("name: c\natomic: true\nsteps:\n{steps}output: done\n"));
    world.file(
        "segue.yaml",
        "commands: { mark: { argv: [sh, -c, 'echo $1 >> marks', mark, '{{ args.n }}'], destructive: true, \
         input: { type: object, properties: { n: { type: integer } } } } }\n",
    );
    let args = ["run", "c.yaml", "-q", "--config", "segue.yaml"];
    let marks = || fs::read_to_string(world.path("marks")).map_or(0, |text| text.lines().count());
    world.segue(&args).exits(3);
    at_a_terminal(&world, "n", &args).exits(3);
    assert_eq!(marks(), 0, "after a no nothing is called");
    let said = at_a_terminal(&world, "y", &args).exits(0).stdout;
    assert_eq!(said.matches("[y/N]").count(), 1, "{said}");
    assert_eq!(marks(), 6);
    let text = fs::read_to_string(world.path("c.yaml")).unwrap();
    world.file("c.yaml", text.replace("atomic: true\n", ""));
    let said = at_a_terminal(&world, "y|y|y|y|y|y", &args).exits(0).stdout;
    assert_eq!(said.matches("[y/N]").count(), 6, "{said}");
}

#[test]
fn an_interrupted_run_ends_with_130() {
    use std::io::{BufRead as _, BufReader};
    use std::process::{Command, Stdio};

    let world = World::with(
        "name: x\nsteps:\n  - { id: first, tool: sleep, parameters: { ms: 20 } }\n\
         \x20 - { id: second, tool: sleep, parameters: { ms: 600000 }, depends_on: [first] }\n",
    );
    let mut command = world.command(crate::support::SEGUE);
    command.args(["run", "c.yaml", "-o", "ndjson"]).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    // By the time that the second step begins, the run has been waiting for Ctrl-C before.
    lines.find(|line| line.contains("\"second\"")).unwrap();
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let view: Json = serde_json::from_str(&lines.last().unwrap()).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(view["status"], "cancelled");
    assert_eq!(step(&view, "first")["status"], "success");
    assert_eq!(step(&view, "second")["status"], "cancelled");
}
