//! Seed 000's endpoints: executing, validating, templates.

use super::{one, served, world};
use crate::served::Served;
use crate::support::{Json, json};

const EXECUTE: &str = "/api/v1/compositions/execute";
const VALIDATE: &str = "/api/v1/compositions/validate";
const TEMPLATES: &str = "/api/v1/compositions/templates";

/// Three steps, of which the last reads the others.
fn three() -> Json {
    json!({ "name": "three", "steps": [
        { "id": "a", "tool": "echo", "parameters": { "n": "{{ input.n }}" }, "output_key": "first" },
        { "id": "b", "tool": "echo", "parameters": { "n": "{{ first.n + 1 }}" }, "output_key": "second" },
        { "id": "c", "tool": "echo", "parameters": { "sum": "{{ first.n + second.n }}" }, "output_key": "third" },
    ] })
}

/// S0-81…85, S0-89: the result has the seed's fields.
#[test]
fn a_composition_is_executed() {
    let (_world, served) = served("");
    let result =
        served.post(EXECUTE, &json!({ "composition": three(), "input": { "n": 20 } })).is(200);
    assert_eq!(result["success"], true);
    assert_eq!(
        result["results"],
        json!({ "first": { "n": 20 }, "second": { "n": 21 }, "third": { "sum": 41 } })
    );
    assert!(result.get("errors").is_none(), "{result}");
    // Both are of whole milliseconds, and a fast run takes less than one.
    let nanoseconds = result["duration_ms"].as_u64().map(|ms| ms * 1_000_000);
    assert_eq!(result["duration"].as_u64().unwrap(), nanoseconds.unwrap());
    assert_eq!(result["steps_executed"], 3);
    assert_eq!(result["status"], "success");
    // The same as text, by name, and with what Go writes for nothing.
    let text = "name: t\nsteps: [ { id: a, tool: echo, parameters: { x: 1 } } ]\n";
    let result = served.post(EXECUTE, &json!({ "composition": text, "input": null })).is(200);
    assert_eq!(result["output"], json!({ "a": { "x": 1 } }));
    let named = json!({ "name": "double-it", "input": { "n": 9_007_199_254_740_993_u64 } });
    let answer = served.post(EXECUTE, &named);
    assert!(answer.body.contains("18014398509481986"), "numbers stay exact: {}", answer.body);
}

/// S0-75: `template_id` or `composition`, each with `input` and `options`; what is left out has a
/// default, and nothing is passed over.
#[test]
fn a_request_has_four_fields() {
    let (_world, served) = served("");
    served.post(TEMPLATES, &json!({ "id": "three-v1", "composition": three() })).is(201);
    let failing = json!({ "name": "f", "steps": [
        { "id": "bad", "tool": "fail", "parameters": { "message": "no {{ input.n | default('number') }}" } },
        { "id": "good", "tool": "echo", "parameters": { "n": "{{ input.n | default(0) }}" } },
    ] });
    served.post(TEMPLATES, &json!({ "id": "failing-v1", "composition": failing })).is(201);
    for what in [("template_id", json!("three-v1")), ("composition", three())] {
        let request = |more: Json| {
            let mut request = more;
            request[what.0] = what.1.clone();
            served.post(EXECUTE, &request).is(200)
        };
        let result = request(json!({ "input": { "n": 1 } }));
        assert_eq!(result["results"]["third"]["sum"], 3, "{result}");
        let dry = request(json!({ "input": { "n": 1 }, "options": { "dry_run": true } }));
        assert_eq!((&dry["status"], &dry["steps_executed"]), (&json!("dry_run"), &json!(0)));
    }
    for what in [("template_id", json!("failing-v1")), ("composition", failing)] {
        let request = |more: Json| {
            let mut request = more;
            request[what.0] = what.1.clone();
            served.post(EXECUTE, &request).is(200)
        };
        let result = request(json!({}));
        assert_eq!(result["status"], "failed");
        assert_eq!(result["errors"][0]["message"], "no number");
        let options = json!({ "error_strategy": "partial_success" });
        let result = request(json!({ "input": { "n": 7 }, "options": options }));
        assert_eq!(result["status"], "partial", "{result}");
        assert_eq!(result["results"]["good"]["n"], 7);
    }
}

/// S0-76: neither or both is an error of the request; what is not there is not found.
#[test]
fn a_request_says_what_to_run_once() {
    let (_world, served) = served("");
    for wrong in [
        json!({}),
        json!({ "input": {} }),
        json!({ "template_id": "x", "composition": three() }),
        json!({ "name": "double-it", "composition": three() }),
    ] {
        served.post(EXECUTE, &wrong).is_problem(422, "invalid-field");
    }
    served.post(EXECUTE, &json!({ "template_id": "missing" })).is_problem(404, "not-found");
    served.post(EXECUTE, &json!({ "name": "missing" })).is_problem(404, "not-found");
    served
        .post(EXECUTE, &json!({ "composition": three(), "inputs": {} }))
        .is_problem(422, "invalid-field");
    let options = json!({ "composition": three(), "options": { "dryrun": true } });
    served.post(EXECUTE, &options).is_problem(422, "invalid-field");
}

/// S0-77…80, S0-86: the options.
#[test]
fn options_are_heeded() {
    let (_world, served) = served("");
    let slow = one("sleep", &json!({ "ms": 60_000 }));
    for timeout in [json!("50ms"), json!(50_000_000)] {
        let request = json!({ "composition": slow, "options": { "timeout": timeout } });
        let result = served.post(EXECUTE, &request).is(200);
        assert_eq!((&result["success"], &result["status"]), (&json!(false), &json!("failed")));
        assert_eq!(result["errors"][0]["code"], "timeout");
    }
    let wrong = json!({ "composition": slow, "options": { "timeout": "soon" } });
    served.post(EXECUTE, &wrong).is_problem(422, "invalid-field");
    let failing = json!({ "name": "f", "steps": [
        { "id": "bad", "tool": "fail", "parameters": { "message": "no" } },
        { "id": "good", "tool": "echo", "parameters": { "x": 1 }, "output_key": "good" },
    ] });
    let with = |strategy: &str| {
        let options = json!({ "error_strategy": strategy, "max_concurrency": 1 });
        served.post(EXECUTE, &json!({ "composition": failing, "options": options })).is(200)
    };
    // An error names step, tool, message, attempts and phase.
    let result = with("fail_fast");
    assert_eq!(result["status"], "failed");
    assert!(result["results"].get("good").is_none());
    let error = &result["errors"][0];
    assert_eq!(
        (&error["step"], &error["attempts"], &error["phase"]),
        (&json!("bad"), &json!(1), &json!("call"))
    );
    assert!(error["tool"].as_str().unwrap().contains("fail") && error["message"].is_string());
    let result = with("partial_success");
    assert_eq!(
        (&result["status"], &result["results"]["good"]["x"]),
        (&json!("partial"), &json!(1))
    );
    served
        .post(EXECUTE, &json!({ "composition": failing, "options": { "error_strategy": "hope" } }))
        .is_problem(422, "invalid-field");
    // Nothing is called in a dry run, and nothing is kept.
    let dry = json!({ "composition": one("fail", &json!({})), "options": { "dry_run": true } });
    let result = served.post(EXECUTE, &dry).is(200);
    assert_eq!((&result["status"], &result["steps_executed"]), (&json!("dry_run"), &json!(0)));
    assert_eq!(result["steps"][0]["would"]["effect"], "reads");
    let runs = served.get("/api/v1/runs").is(200);
    assert!(
        runs["runs"].as_array().unwrap().iter().all(|run| run["status"] != "dry_run"),
        "{runs}"
    );
}

/// S0-90: every finding at once, and nothing runs. What does not compile is a problem to who executes it.
#[test]
fn a_composition_is_validated() {
    let (_world, served) = served("");
    let broken = json!({ "name": "b", "steps": [
        { "id": "a", "tool": "ehco", "parameters": {} },
        { "id": "b", "tool": "echo", "parameters": { "x": "{{ missing.x }}" } },
        { "id": "b", "tool": "echo", "parameters": {} },
    ] });
    let result = served.post(VALIDATE, &json!({ "composition": broken })).is(200);
    assert_eq!(result["ok"], false);
    let codes: Vec<&str> = result["diagnostics"]
        .as_array()
        .unwrap()
        .iter()
        .map(|d| d["code"].as_str().unwrap())
        .collect();
    for code in ["unknown-tool", "unresolved-reference", "duplicate-id"] {
        assert!(codes.contains(&code), "{codes:?}");
    }
    assert!(result["diagnostics"][0]["line"].as_u64().unwrap() > 1);
    let problem = served.post(EXECUTE, &json!({ "composition": broken }));
    let problem = problem.is_problem(422, codes[0]);
    assert_eq!(problem["diagnostics"].as_array().unwrap().len(), codes.len());
    let result = served.post(VALIDATE, &json!({ "composition": three() })).is(200);
    assert_eq!((&result["ok"], &result["plan"]["name"]), (&json!(true), &json!("three")));
    assert_eq!(served.post(VALIDATE, &json!({ "name": "double-it" })).is(200)["ok"], true);
    // The input is held against its schema before anything begins.
    let wrong = json!({ "name": "double-it", "input": { "n": "many" } });
    let problem = served.post(EXECUTE, &wrong).is_problem(422, "input-schema");
    assert_eq!(problem["errors"][0]["phase"], "check");
    // The help uses the terms of the caller's surface.
    assert!(problem["help"].as_str().unwrap().contains("`input` of the request"), "{problem}");
    assert!(!problem.to_string().contains("-i name"), "{problem}");
    assert_eq!(served.get("/api/v1/runs").is(200)["runs"], json!([]));
    // A name that the schema does not declare, but nearly, is a mistake; one that it expressly allows is none.
    for (others, status) in [(json!(null), 422), (json!(false), 422), (json!({}), 200)] {
        let mut schema =
            json!({ "type": "object", "properties": { "query": { "type": "integer" } } });
        if !others.is_null() {
            schema["additionalProperties"] = others;
        }
        let steps = json!([{ "id": "a", "set": { "x": 1 } }]);
        let composition = json!({ "name": "open", "input": schema, "steps": steps });
        let request = json!({ "composition": composition, "input": { "qery": 1 } });
        let answer = served.post(EXECUTE, &request);
        assert_eq!(answer.status, status, "{answer:?}");
        let names_it = answer.body.contains("there is no input `qery`; did you mean `query`?");
        assert_eq!(names_it, status == 422, "{answer:?}");
    }
}

/// S0-87, S0-88: templates are listed, fetched, kept, replaced, run and forgotten.
#[test]
fn templates_are_kept() {
    let (_world, served) = served("");
    // A library comes along.
    let shipped = served.get(TEMPLATES).is(200)["templates"].as_array().unwrap().len();
    assert!(shipped >= 10, "{shipped}");
    let new =
        json!({ "id": "three-v1", "composition": three(), "metadata": { "category": "analysis" } });
    let answer = served.post(TEMPLATES, &new);
    let template = answer.is(201);
    assert_eq!(answer.headers["location"], format!("{TEMPLATES}/three-v1"));
    assert_eq!((&template["id"], &template["name"]), (&json!("three-v1"), &json!("three")));
    let taken = served.post(TEMPLATES, &new).is_problem(409, "conflict");
    assert!(taken["help"].as_str().unwrap().starts_with("`PUT` replaces it"), "{taken}");
    assert_eq!(served.get(TEMPLATES).is(200)["templates"].as_array().unwrap().len(), shipped + 1);
    let listed = served.get(&format!("{TEMPLATES}?search=three-v1")).is(200);
    assert_eq!(listed["templates"][0]["metadata"]["category"], "analysis");
    assert!(listed["templates"][0].get("composition").is_none());
    assert_eq!(served.get(&format!("{TEMPLATES}/three-v1")).is(200)["composition"], three());
    let run = json!({ "template_id": "three-v1", "input": { "n": 1 } });
    assert_eq!(served.post(EXECUTE, &run).is(200)["results"]["third"]["sum"], 3);
    let path = format!("{TEMPLATES}/three-v1");
    let other = json!({ "composition": one("echo", &json!({ "x": 2 })) });
    assert_eq!(served.send("PUT", &path, &[], &other).is(200)["name"], "one");
    assert_eq!(served.post(EXECUTE, &run).is(200)["results"], json!({ "a": { "x": 2 } }));
    let elsewhere = json!({ "id": "other", "composition": three() });
    served.send("PUT", &path, &[], &elsewhere).is_problem(422, "invalid-field");
    served
        .send("PUT", &path, &[], &json!({ "composition": { "name": "x", "steps": [] } }))
        .is_problem(422, "no-steps");
    assert_eq!(served.send("DELETE", &path, &[], &json!(null)).status, 204);
    served.send("DELETE", &path, &[], &json!(null)).is_problem(404, "not-found");
    served.get(&path).is_problem(404, "not-found");
    assert_eq!(served.send("PUT", &path, &[], &other).is(201)["id"], "three-v1");
    let odd = json!({ "composition": three(), "metadata": { "category": 5 } });
    served.send("PUT", &path, &[], &odd).is_problem(422, "invalid-field");
    let strategy = json!({ "composition": three(), "options": { "error_strategy": "give_up" } });
    let problem = served.post(EXECUTE, &strategy).is_problem(422, "invalid-field");
    assert!(problem["detail"].as_str().unwrap().contains("partial_success"), "{problem}");
    for id in ["..%2Fsecret", "A", "x%00"] {
        let path = format!("{TEMPLATES}/{id}");
        served
            .send("PUT", &path, &[], &json!({ "composition": three() }))
            .is_problem(422, "invalid-field");
    }
}

/// The same key with the same body is the same run and the same answer, to the byte; with another body
/// it is a mistake. So it is after a restart.
#[test]
fn a_key_makes_a_request_one() {
    let world = world("");
    let first = Served::start(&world, "sqlite:s.db", &[]);
    let request = json!({ "composition": one("command:note", &json!({ "text": "x" })), "options": { "approved": true } });
    let key = [("Idempotency-Key", "k-1")];
    let ask = |served: &Served| served.send("POST", EXECUTE, &key, &request);
    let answer = ask(&first);
    let run_id = answer.is(200)["run_id"].clone();
    assert_eq!(ask(&first).body, answer.body);
    let other = json!({ "composition": one("echo", &json!({})) });
    first.send("POST", EXECUTE, &key, &other).is_problem(422, "conflict");
    first
        .send("POST", EXECUTE, &[("Idempotency-Key", "")], &other)
        .is_problem(422, "invalid-field");
    drop(first);
    let second = Served::start(&world, "sqlite:s.db", &[]);
    assert_eq!(ask(&second).body, answer.body);
    second.send("POST", EXECUTE, &key, &other).is_problem(422, "conflict");
    let runs = second.get("/api/v1/runs").is(200);
    assert_eq!(runs["runs"].as_array().unwrap().len(), 1);
    assert_eq!(runs["runs"][0]["run_id"], run_id);
    let notes = std::fs::read_to_string(world.path("notes.txt")).unwrap();
    assert_eq!(notes.lines().count(), 1, "{notes}");
    // Many at once are one, too.
    let slow = json!({ "composition": one("sleep", &json!({ "ms": 200 })) });
    let key = [("Idempotency-Key", "k-2")];
    let ids = std::thread::scope(|scope| {
        let asked: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| second.send("POST", EXECUTE, &key, &slow).body))
            .collect();
        asked.into_iter().map(|asked| asked.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(ids.iter().all(|body| *body == ids[0]), "{ids:?}");
    assert_eq!(second.get("/api/v1/runs").is(200)["runs"].as_array().unwrap().len(), 2);
}

/// An atomic composition asks once, before anything is called; with consent from the start not at all.
#[test]
fn an_atomic_composition_waits_for_its_one_yes() {
    let (world, served) = served("");
    let atomic = json!({ "name": "both", "atomic": true, "steps": [
        { "id": "one", "tool": "command:note", "parameters": { "text": "1" } },
        { "id": "two", "tool": "command:note", "parameters": { "text": "2" } },
    ] });
    let answer = served.post(EXECUTE, &json!({ "composition": atomic }));
    assert_eq!(answer.is(202)["waiting_for"].as_array().unwrap().len(), 1, "{answer:?}");
    assert!(!world.path("notes.txt").exists());
    let approve = format!("{}/approve", answer.headers["location"]);
    assert_eq!(served.post(&approve, &json!({ "approved": true })).is(200)["status"], "success");
    let request = json!({ "composition": atomic, "options": { "approved": true } });
    assert_eq!(served.post(EXECUTE, &request).is(200)["success"], true);
}
