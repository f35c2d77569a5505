//! Runs of a part of a composition: until a step, one step on values of an earlier run, given outputs.

use segue_core::tool::hex_digest;

use super::{served, world};
use crate::served::Served;
use crate::support::{Json, World, json, step};

const EXECUTE: &str = "/api/v1/compositions/execute";

/// Three steps in a row, and one beside them. `write` writes a note, and asks first.
const TEXT: &str = "\
name: parts
input: { type: object, properties: { n: { type: integer, default: 1 } } }
steps:
  - { id: fetch, tool: echo, parameters: { n: '{{ input.n }}' } }
  - { id: write, tool: 'command:note', parameters: { text: '{{ fetch.n }}' } }
  - { id: report, tool: echo, parameters: { text: 'n is {{ fetch.n }}' }, depends_on: [write] }
  - id: each
    loop: { over: '{{ range(2) }}', steps: [{ id: inner, tool: echo, parameters: { n: '{{ item }}' } }] }
output: { report: '{{ report.text }}', items: '{{ each | length }}' }
";

fn notes(world: &World) -> usize {
    std::fs::read_to_string(world.path("notes.txt")).map_or(0, |text| text.lines().count())
}

fn with(more: &Json) -> Json {
    let mut body = json!({ "composition": TEXT });
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

fn view(served: &Served, result: &Json) -> Json {
    let id = result["run_id"].as_str().unwrap();
    served.get(&format!("/api/v1/runs/{id}")).is(200)
}

fn origins(view: &Json) -> Vec<(&str, &Json)> {
    let own = view["steps"].as_array().unwrap().iter();
    let own = own.filter(|step| !step["id"].as_str().unwrap().contains('/'));
    own.map(|step| (step["id"].as_str().unwrap(), &step["origin"])).collect()
}

#[test]
fn a_run_ends_at_a_step() {
    let (world, served) = served("");
    let done =
        served.post(EXECUTE, &with(&json!({ "until": "fetch", "input": { "n": 7 } }))).is(200);
    assert_eq!((&done["success"], &done["status"]), (&json!(true), &json!("success")), "{done}");
    assert_eq!(done["part"], json!({ "until": "fetch" }));
    assert_eq!((&done["output"], &done["results"]), (&json!({}), &json!({ "fetch": { "n": 7 } })));
    let seen = view(&served, &done);
    let left = json!("left_out");
    let none = json!(null);
    assert_eq!(
        origins(&seen),
        [("fetch", &none), ("write", &left), ("report", &left), ("each", &left)]
    );
    assert_eq!(
        (&step(&seen, "write")["status"], &seen["steps_executed"]),
        (&json!("skipped"), &json!(1))
    );
    assert_eq!((&seen["part"], notes(&world)), (&json!({ "until": "fetch" }), 0));
    // It asks for what it really calls.
    let asks = served.post(EXECUTE, &with(&json!({ "until": "report" }))).is(202);
    assert_eq!(asks["waiting_for"][0]["step"], "write", "{asks}");
    assert_eq!(notes(&world), 0);
}

#[test]
fn one_step_runs_on_the_values_of_an_earlier_run() {
    let (world, served) = served("");
    let given = json!({ "input": { "n": 3 }, "options": { "approved": true } });
    let whole = served.post(EXECUTE, &with(&given)).is(200);
    assert_eq!((notes(&world), whole.get("part")), (1, None), "{whole}");
    let run = whole["run_id"].clone();
    // The text has changed meanwhile: what the step reads is still there.
    let changed = TEXT.replace("n is {{ fetch.n }}", "now {{ fetch.n }} of {{ input.n }}");
    let body = json!({ "composition": changed, "only": "report", "run": run });
    let done = served.post(EXECUTE, &body).is(200);
    assert_eq!(done["output"], json!({ "report": "now 3 of 3", "items": 2 }), "{done}");
    assert_eq!((&done["part"], notes(&world)), (&json!({ "only": "report", "run": run }), 1));
    let seen = view(&served, &done);
    let (none, reused) = (json!(null), json!("reused"));
    let expected = [("fetch", &reused), ("write", &reused), ("report", &none), ("each", &reused)];
    assert_eq!(origins(&seen), expected);
    // And the values of that run, in turn; a step may be given meanwhile.
    let body = json!({ "composition": TEXT, "only": "report", "run": done["run_id"],
        "mocks": { "fetch": { "returns": { "n": 9 } } } });
    let again = served.post(EXECUTE, &body).is(200);
    assert_eq!(
        (&again["output"]["report"], &again["part"]["pinned"]),
        (&json!("n is 9"), &json!(["fetch"]))
    );
    // What a pinned value was is said in runs that take it over.
    let body = json!({ "composition": TEXT, "only": "report", "run": again["run_id"] });
    let taken = served.post(EXECUTE, &body).is(200);
    assert_eq!(taken["part"]["pinned"], json!(["fetch"]), "{taken}");
    assert_eq!(step(&view(&served, &taken), "fetch")["origin"], "pinned");
    let path = format!("/api/v1/runs/{}/rerun", again["run_id"].as_str().unwrap());
    let rerun = served.post(&path, &json!({ "from": "report" })).is(200);
    assert_eq!(rerun["part"]["pinned"], json!(["fetch"]), "{rerun}");
    // A run that has not come so far.
    let short = served.post(EXECUTE, &with(&json!({ "until": "fetch" }))).is(200);
    let body = with(&json!({ "only": "report", "run": short["run_id"] }));
    let refused = served.post(EXECUTE, &body).is_problem(422, "unresolved-reference");
    let detail = refused["detail"].as_str().unwrap();
    assert!(
        detail.contains("`report` needs `write`") && detail.contains("did not run"),
        "{refused}"
    );
}

#[test]
fn given_outputs_are_not_called() {
    let (world, served) = served("");
    let mocks = json!({ "write": { "returns": null }, "fetch": { "returns": { "n": 5 } } });
    let done = served.post(EXECUTE, &with(&json!({ "mocks": mocks }))).is(200);
    assert_eq!(done["output"], json!({ "report": "n is 5", "items": 2 }), "{done}");
    assert_eq!((&done["part"], notes(&world)), (&json!({ "pinned": ["fetch", "write"] }), 0));
    let seen = view(&served, &done);
    let fetch = step(&seen, "fetch");
    assert_eq!((&fetch["origin"], &fetch["attempts"]), (&json!("pinned"), &json!(0)));
    assert!(fetch["reason"].as_str().unwrap().contains("nothing was called"), "{fetch}");
    // With `until`: what only a given step needs does not run either.
    let body = with(&json!({ "until": "report", "mocks": { "write": { "returns": 1 } } }));
    let done = served.post(EXECUTE, &body).is(200);
    assert_eq!((&done["steps_executed"], notes(&world)), (&json!(2), 0), "{done}");
}

/// Errors name what is wrong before anything runs; other people's runs do not exist.
#[test]
fn what_cannot_be_a_part_is_refused() {
    let principal = |name: &str, rights: &str| {
        let hash = hex_digest(format!("{name}-token").as_bytes());
        format!("    {name}: {{ token: 'sha256:{hash}', rights: [{rights}] }}\n")
    };
    let principals =
        [principal("ada", "read, run, compose"), principal("eve", "read, run")].concat();
    let head = "server:\n  token: open-sesame-open-sesame-open-sesame\n  principals:\n";
    let world = world(&format!("{head}{principals}"));
    let served = Served::start(&world, "memory", &[]);
    let run = served.post(EXECUTE, &with(&json!({ "options": { "approved": true } }))).is(200);
    let run = run["run_id"].as_str().unwrap();
    let refused = |more: &Json, code: &str, says: &str| {
        let problem = served.post(EXECUTE, &with(more)).is_problem(422, code);
        let text = problem.to_string();
        assert!(text.contains(says), "{says}: {text}");
    };
    refused(&json!({ "until": "raport" }), "unknown-step", "did you mean `report`?");
    refused(&json!({ "until": "inner" }), "invalid-field", "`inner` is inside `each`");
    refused(&json!({ "until": "each[0]/inner" }), "invalid-field", "name `each`");
    refused(&json!({ "until": "a", "only": "b" }), "invalid-field", "one of `until` and `only`");
    refused(&json!({ "only": "report" }), "invalid-field", "`only` needs `run`");
    refused(&json!({ "run": run }), "invalid-field", "`run` is for `only`");
    let dry = json!({ "until": "fetch", "options": { "dry_run": true } });
    refused(&dry, "invalid-field", "a dry run shows the whole composition");
    let mock = |step: &str, more: Json| json!({ "mocks": { step: more } });
    refused(&mock("fetsch", json!({ "returns": 1 })), "unknown-step", "did you mean `fetch`?");
    refused(
        &mock("fetch", json!({ "error": "no" })),
        "invalid-field",
        "('error' was unexpected) at `/mocks/fetch`",
    );
    let mocked = json!({ "until": "fetch", "mocks": { "fetch": { "returns": {} } } });
    refused(&mocked, "invalid-field", "leave `fetch` out of `mocks`");
    let many: serde_json::Map<String, Json> =
        (0..5_000).map(|n| (format!("s{n}"), json!({ "returns": n }))).collect();
    refused(&json!({ "mocks": many }), "limit", "5000 outputs are given");
    let huge = mock("fetch", json!({ "returns": "x".repeat(32 << 20) }));
    assert_eq!(served.post(EXECUTE, &with(&huge)).status, 413);
    // A run of another composition, of another principal, or of nobody.
    let other = json!({ "composition": TEXT.replace("name: parts", "name: others"), "only": "report", "run": run });
    let problem = served.post(EXECUTE, &other).is_problem(422, "invalid-field");
    assert!(problem["detail"].as_str().unwrap().contains("is a run of `parts`"), "{problem}");
    let only = with(&json!({ "only": "report", "run": run }));
    served.send_by("ada-token", "POST", EXECUTE, &[], &only).is_problem(404, "not-found");
    let unknown = with(&json!({ "only": "report", "run": "01990000-0000-7000-8000-000000000000" }));
    served.post(EXECUTE, &unknown).is_problem(404, "not-found");
    // A part of a served composition is another composition: it takes the right to write one.
    let double = |token: &str, more: Json| {
        let mut body = json!({ "name": "double-it", "input": { "n": 2 } });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        served.send_by(token, "POST", EXECUTE, &[], &body)
    };
    double("eve-token", json!({})).is(200);
    for more in [json!({ "until": "a" }), json!({ "mocks": { "a": { "returns": { "n": 666 } } } })]
    {
        double("eve-token", more.clone()).is_problem(403, "unauthorized");
        assert!(double("ada-token", more).is(200)["part"].is_object());
    }
}

/// A person approved one payment. Who may only `run` starts again behind the approval, and the person is asked
/// anew; with the data of the approval `compose` takes it over, and not with other data.
#[test]
fn an_approval_is_for_the_data_that_it_was_given_for() {
    let principal = |name: &str, rights: &str| {
        let hash = hex_digest(format!("{name}-token").as_bytes());
        format!("    {name}: {{ token: 'sha256:{hash}', rights: [{rights}] }}\n")
    };
    let head = "server:\n  token: open-sesame-open-sesame-open-sesame\n  principals:\n";
    let world = world(&format!("{head}{}", principal("eve", "read, run")));
    world.file(
        "lib/pay.yaml",
        "name: pay\ninput: { type: object, properties: { to: { type: string } } }\nsteps:\n  \
         - { id: ask, approve: { message: 'pay {{ input.to }}?' } }\n  \
         - { id: pay, tool: echo, parameters: { to: '{{ input.to }}' }, depends_on: [ask] }\n  \
         - { id: look, tool: echo, parameters: { to: '{{ input.to }}' } }\n",
    );
    let served = Served::start(&world, "memory", &[]);
    let rerun = |token: &str, run: &str, to: &str| {
        let body = json!({ "from": "pay", "input": { "to": to } });
        let path = format!("/api/v1/runs/{run}/rerun");
        served.send_by(token, "POST", &path, &[], &body)
    };
    let body = json!({ "name": "pay", "input": { "to": "alice" } });
    let waits = served.send_by("eve-token", "POST", EXECUTE, &[], &body);
    assert_eq!(waits.json()["status"], "waiting", "{waits:?}");
    let run = waits.json()["run_id"].as_str().unwrap().to_owned();
    let approve = format!("/api/v1/runs/{run}/approve");
    let paid = served.post(&approve, &json!({ "approved": true })).is(200);
    assert_eq!(paid["status"], "success", "{paid}");
    for to in ["mallory", "alice"] {
        let again = rerun("eve-token", &run, to);
        assert_eq!(again.json()["status"], "waiting", "{again:?}");
    }
    let admin = crate::served::TOKEN;
    assert_eq!(rerun(admin, &run, "alice").is(200)["status"], "success");
    assert_eq!(rerun(admin, &run, "mallory").json()["status"], "waiting");
    let only = |to: &str| {
        let body = json!({ "name": "pay", "only": "pay", "run": run, "input": { "to": to } });
        served.post(EXECUTE, &body).json()["status"].clone()
    };
    assert_eq!((only("alice"), only("mallory")), (json!("success"), json!("waiting")));
    // A step that depends on no approval asks nothing, and its run has no approval that a later one could use.
    let body = json!({ "name": "pay", "only": "look", "run": run, "input": { "to": "mallory" } });
    let looked = served.post(EXECUTE, &body).is(200);
    assert_eq!(looked["status"], "success", "{looked}");
    let ask = step(&view(&served, &looked), "ask").clone();
    assert_eq!(ask["origin"], "left_out", "{ask}");
}

/// The same request is the same run; GraphQL and MCP take it as well, with the same rules.
#[test]
fn other_surfaces_run_parts() {
    let (_world, served) = served("");
    let key = [("Idempotency-Key", "k")];
    let until = with(&json!({ "until": "fetch" }));
    let first = served.send("POST", EXECUTE, &key, &until).is(200);
    assert_eq!(served.send("POST", EXECUTE, &key, &until).is(200)["run_id"], first["run_id"]);
    let whole = with(&json!({ "until": "each" }));
    served.send("POST", EXECUTE, &key, &whole).is_problem(422, "conflict");
    let query = "mutation($c: JSON!, $r: ID) { executeComposition(request: {
        composition: $c, only: \"report\", run: $r,
        mocks: { write: { returns: 1 } } }) { part { only run pinned } steps { nodes { id origin } } output } }";
    let variables = json!({ "c": TEXT, "r": first["run_id"] });
    let answer =
        served.post("/graphql", &json!({ "query": query, "variables": variables })).is(200);
    let run = &answer["data"]["executeComposition"];
    assert_eq!(run["part"]["pinned"], json!(["write"]), "{answer}");
    assert_eq!(run["output"], json!({ "report": "n is 1" }));
    assert_eq!(run["steps"]["nodes"][3], json!({ "id": "each", "origin": "left_out" }));
    let wrong = query.replace("returns: 1", "error: 1");
    let refused =
        served.post("/graphql", &json!({ "query": wrong, "variables": variables })).is(200);
    assert!(
        refused["errors"][0]["message"].as_str().unwrap().contains("mocks do not fit"),
        "{refused}"
    );
}
