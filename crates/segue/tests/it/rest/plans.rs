//! Plans from natural language over REST: created, read, executed once, kept as a composition.

use segue_core::tool::hex_digest;

use super::served;
use crate::planning::{Model, calls, good, world};
use crate::served::{Served, TOKEN};
use crate::support::{Json, World, json};

const ASK: &str = "/api/v1/plans/ask";

/// A server whose model says the plan of the seed.
pub(crate) fn planning(model: &Model) -> (World, Served) {
    let world = world(model);
    let config = std::fs::read_to_string(world.path("segue.yaml")).unwrap();
    let mut config: Json = serde_json::from_str(&config).unwrap();
    config["server"] = json!({ "token": TOKEN });
    world.file("segue.yaml", config.to_string());
    let served = Served::start(&world, "sqlite:s.db", &[]);
    (world, served)
}

/// S4-04, S4-05, S4-07, S4-08, S4-09: a plan first and a run later, each found by the request's id.
#[test]
fn words_become_a_plan_and_then_a_run() {
    let model = Model::saying(&[&good().to_string()]);
    let (world, served) = planning(&model);
    let answer = served.post(ASK, &json!({ "query": "An author, then a blog" }));
    let planned = answer.is(201);
    let (plan, request) =
        (planned["plan_id"].as_str().unwrap(), planned["request_id"].as_str().unwrap());
    assert_eq!(answer.headers["location"], format!("/api/v1/plans/{plan}"));
    assert_eq!((&planned["state"], &planned["versions"]), (&json!("pending"), &json!([plan])));
    assert_eq!(planned["plan"]["tools"], good()["tools"]);
    assert_eq!(planned["checked"]["steps"][1]["needs"], json!(["createAuthor"]));
    assert!(calls(&world).is_empty(), "nothing is called while a plan is made");

    let execute = format!("/api/v1/plans/{request}/execute");
    let dry = json!({ "options": { "dry_run": true } });
    assert_eq!(served.post(&execute, &dry).is(200)["status"], "dry_run");
    assert!(calls(&world).is_empty());
    let ran = served.post(&execute, &json!({})).is(200);
    assert_eq!(ran["output"]["createBlog"]["authorId"], "507f1f77bcf86cd799439011");
    let shown = served.get(&format!("/api/v1/plans/{request}")).is(200);
    assert_eq!((&shown["plan_id"], &shown["state"]), (&json!(plan), &json!("completed")));
    assert_eq!(shown["result"]["run_id"], ran["run_id"]);

    // Once, unless it is said otherwise.
    let again = served.post(&execute, &json!({})).is_problem(409, "conflict");
    assert_eq!((&again["run_id"], calls(&world).len()), (&ran["run_id"], 2));
    served.post(&execute, &json!({ "again": true })).is(200);
    assert_eq!(calls(&world).len(), 4);
    // A request that comes twice is one run.
    let (key, again) = ([("Idempotency-Key", "once")], json!({ "again": true }));
    let keyed =
        [0, 1].map(|_| served.send("POST", &execute, &key, &again).is(200)["run_id"].clone());
    assert_eq!((&keyed[0], calls(&world).len()), (&keyed[1], 6));
    served.send("POST", &execute, &key, &json!({})).is_problem(422, "conflict");
}

/// Plans that worked for similar words are mentioned, also where the model gives none.
#[test]
fn plans_that_worked_are_mentioned() {
    let model = Model::saying(&[&good().to_string(), &good().to_string(), "I would rather not."]);
    let (_world, served) = planning(&model);
    let planned = served.post(ASK, &json!({ "query": "An author, then a blog" })).is(201);
    assert!(planned.get("used_before").is_none(), "{planned}");
    let path = format!("/api/v1/plans/{}/execute", planned["plan_id"].as_str().unwrap());
    served.post(&path, &json!({})).is(200);
    let alike = json!({ "query": "An author, then a blog, please" });
    let offered = served.post(ASK, &alike).is(201)["used_before"].clone();
    assert_eq!(offered[0]["plan_id"], planned["plan_id"], "{offered}");
    assert_eq!(offered[0]["query"], "An author, then a blog");
    let problem = served.post(ASK, &alike).is_problem(502, "llm");
    assert_eq!(problem["used_before"], offered, "{problem}");
    let query = json!({ "query": "mutation { createPlanWithRequestId(query: \"An author, a blog\") { planId } }" });
    let failed = served.post("/graphql", &query).is(200);
    let error = &failed["errors"][0]["extensions"];
    assert_eq!(error["usedBefore"][0]["plan_id"], planned["plan_id"], "{failed}");
    assert_eq!(failed["data"], json!({ "createPlanWithRequestId": null }));
}

/// S4-19, S4-20: an order that contradicts what calls need is overruled, and that is said.
#[test]
fn an_order_that_cannot_be_kept_is_overruled() {
    let mut plan = good();
    plan["executionOrder"] = json!(["createBlog", "createAuthor"]);
    let model = Model::saying(&[&plan.to_string()]);
    let (_world, served) = planning(&model);
    let planned = served.post(ASK, &json!({ "query": "An author, then a blog" })).is(201);
    assert_eq!(planned["plan"]["executionOrder"], json!(["createAuthor", "createBlog"]));
    assert!(planned["warnings"][0].as_str().unwrap().contains("executionOrder"), "{planned}");
    let query = format!(
        "{{ plan(planId: {}) {{ executionOrder warnings usedBefore {{ planId }} }} }}",
        planned["plan_id"]
    );
    let seen = served.post("/graphql", &json!({ "query": query })).is(200)["data"]["plan"].clone();
    assert_eq!(seen["executionOrder"], json!(["createAuthor", "createBlog"]));
    assert_eq!((&seen["warnings"], &seen["usedBefore"]), (&planned["warnings"], &json!([])));
}

/// S4-07: several versions in a request; what is listed; a plan as a composition; what is thrown away.
#[test]
fn a_request_has_versions() {
    let model = Model::saying(&[&good().to_string()]);
    let (world, served) = planning(&model);
    let ask = |more: Json| {
        let mut body = json!({ "query": "An author, then a blog", "fresh": true });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        served.post(ASK, &body).is(201)
    };
    let first = ask(json!({}));
    let request = first["request_id"].as_str().unwrap();
    let second = ask(json!({ "request_id": request }));
    assert_eq!((&second["version"], &second["request_id"]), (&json!(2), &json!(request)));
    let other = ask(json!({}));
    let ids = |path: &str| -> Vec<Json> {
        let page = served.get(path).is(200);
        page["plans"].as_array().unwrap().iter().map(|plan| plan["plan_id"].clone()).collect()
    };
    let of_request = format!("/api/v1/plans?request_id={request}");
    assert_eq!(ids(&of_request), [first["plan_id"].clone(), second["plan_id"].clone()]);
    assert_eq!(ids("/api/v1/plans").len(), 3);
    assert_eq!(ids("/api/v1/plans?state=completed").len(), 0);
    let page = served.get("/api/v1/plans?limit=2").is(200);
    let next = page["next"].as_str().unwrap();
    assert_eq!(ids(&format!("/api/v1/plans?limit=2&cursor={next}")).len(), 1);
    served.get("/api/v1/plans?cursor=nothing").is_problem(400, "invalid-field");
    // The request's plan is the last one.
    let shown = served.get(&format!("/api/v1/plans/{request}")).is(200);
    assert_eq!(shown["plan_id"], second["plan_id"]);

    let text = served.get(&format!("/api/v1/plans/{request}/composition?name=make-blog"));
    assert_eq!((text.status, &*text.headers["content-type"]), (200, "application/yaml"));
    assert!(text.body.starts_with("name: make-blog\n"), "{}", text.body);
    let misnamed = served.get(&format!("/api/v1/plans/{request}/composition?name=My%20Comp%0Ax"));
    misnamed.is_problem(422, "invalid-field");
    let ran = served.post("/api/v1/compositions/execute", &json!({ "composition": text.body }));
    assert_eq!((&ran.is(200)["status"], calls(&world).len()), (&json!("success"), 2));

    let path = format!("/api/v1/plans/{}", other["plan_id"].as_str().unwrap());
    assert_eq!(served.send("DELETE", &path, &[], &json!(null)).status, 204);
    served.get(&path).is_problem(404, "not-found");
    served.send("DELETE", &path, &[], &json!(null)).is_problem(404, "not-found");
}

/// D3: a plan and its request are visible only to their creator and to the administrator.
#[test]
fn a_plan_belongs_to_the_principal_that_requested_it() {
    let model = Model::saying(&[&good().to_string()]);
    let world = world(&model);
    let config = std::fs::read_to_string(world.path("segue.yaml")).unwrap();
    let mut config: Json = serde_json::from_str(&config).unwrap();
    let key = |name: &str| {
        let hash = hex_digest(name.as_bytes());
        json!({ "token": format!("sha256:{hash}"), "rights": ["read", "run", "compose", "write"] })
    };
    let principals = json!({ "ada": key("ada"), "bob": key("bob") });
    config["server"] = json!({ "token": TOKEN, "principals": principals });
    world.file("segue.yaml", config.to_string());
    let served = Served::start(&world, "sqlite:s.db", &[]);
    let ask = json!({ "query": "An author, then a blog" });
    let planned = served.send_by("ada", "POST", ASK, &[], &ask).is(201);
    let named = [("X-Request-Id", "this")];
    for (id, unknown) in [
        (&planned["request_id"], "req_1704123456_abc123def"),
        (&planned["plan_id"], "plan_1704123456_abc123def"),
    ] {
        let id = id.as_str().unwrap();
        let one = json!({});
        for (method, more, body) in [
            ("GET", "", &Json::Null),
            ("GET", "/composition", &Json::Null),
            ("POST", "/execute", &one),
        ] {
            let path = |id: &str| format!("/api/v1/plans/{id}{more}");
            let theirs = served.send_by("bob", method, &path(id), &named, body);
            let none = served.send_by("bob", method, &path(unknown), &named, body);
            theirs.is_problem(404, "not-found");
            assert_eq!(theirs.body.replace(id, unknown), none.body, "{method} {more}");
        }
        for token in ["ada", TOKEN] {
            let path = format!("/api/v1/plans/{id}");
            let shown = served.send_by(token, "GET", &path, &[], &json!(null)).is(200);
            assert_eq!(shown["plan_id"], planned["plan_id"]);
        }
    }
    let listed = served.send_by("bob", "GET", "/api/v1/plans", &[], &json!(null)).is(200);
    assert_eq!(listed["plans"], json!([]));
    assert!(calls(&world).is_empty());
}

/// S4-49, and what else goes wrong: no model, a model that gives no plan, a request that is not there.
#[test]
fn what_cannot_be_planned_is_a_problem() {
    let (_world, without) = served("");
    let problem = without.post(ASK, &json!({ "query": "x" })).is_problem(409, "llm");
    assert!(problem["help"].as_str().unwrap().contains("llm: { provider: openai"), "{problem}");
    without.post(ASK, &json!({})).is_problem(422, "invalid-field");

    let model = Model::saying(&["I would rather not."]);
    let (world, served) = planning(&model);
    let problem = served.post(ASK, &json!({ "query": "x" })).is_problem(502, "llm");
    assert_eq!(problem["errors"][0]["code"], "llm", "{problem}");
    // What is wrong with the words is no fault of the model.
    served.post(ASK, &json!({ "query": " " })).is_problem(422, "invalid-field");
    served.post(ASK, &json!({ "query": "x".repeat(20_000) })).is_problem(413, "limit");
    assert_eq!(served.get("/api/v1/plans").is(200)["plans"], json!([]));
    let unknown = "req_1704123456_abc123def";
    for (method, path) in [("GET", ""), ("POST", "/execute"), ("GET", "/composition")] {
        let path = format!("/api/v1/plans/{unknown}{path}");
        let problem = served.send(method, &path, &[], &json!(null)).is_problem(404, "not-found");
        assert_eq!(problem["detail"], format!("Plan not found for requestId: {unknown}"));
    }
    let body = json!({ "query": "x", "request_id": unknown });
    served.post(ASK, &body).is_problem(404, "not-found");
    assert!(calls(&world).is_empty());
}

/// A plan whose call asks leaves a run that waits, and is in progress until a person answers.
#[test]
fn a_plan_that_asks_waits() {
    let wipe =
        json!({ "tools": [{ "name": "wipe", "parameters": {} }], "executionOrder": ["wipe"] });
    let model = Model::saying(&[&wipe.to_string()]);
    let (world, served) = planning(&model);
    let planned = served.post(ASK, &json!({ "query": "Clean up" })).is(201);
    let path = format!("/api/v1/plans/{}", planned["plan_id"].as_str().unwrap());
    let waiting = served.post(&format!("{path}/execute"), &json!({})).is(202);
    assert_eq!((&waiting["status"], calls(&world).len()), (&json!("waiting"), 0));
    assert_eq!(served.get(&path).is(200)["state"], "in-progress");
    served.post(&format!("{path}/execute"), &json!({ "again": true })).is_problem(409, "conflict");
    let approve = format!("/api/v1/runs/{}/approve", waiting["run_id"].as_str().unwrap());
    assert_eq!(served.post(&approve, &json!({ "approved": true })).is(200)["status"], "success");
    assert_eq!(
        (&served.get(&path).is(200)["state"], calls(&world).len()),
        (&json!("completed"), 1)
    );
    // With an approval in advance no person is asked.
    let approved = json!({ "again": true, "options": { "approved": true } });
    assert_eq!(served.post(&format!("{path}/execute"), &approved).is(200)["status"], "success");
}
