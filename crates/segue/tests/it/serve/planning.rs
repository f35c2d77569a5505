//! Plans from natural language for a host: created, read, executed once.

use super::host::{Host, error, value};
use crate::planning::{Model, calls, good, world};
use crate::support::{Json, World, json};

/// S4-09: the same operations for a host; what is asked for is a plan first and a run later.
#[test]
fn a_host_plans_and_executes() {
    let model = Model::saying(&[&good().to_string()]);
    let world = world(&model);
    // The model of the host may plan with what writes.
    let text = std::fs::read_to_string(world.path("segue.yaml")).unwrap();
    let mut config: Json = serde_json::from_str(&text).unwrap();
    config["toolsets"] = json!({ "any": { "allow": ["*"] } });
    config["server"] = json!({ "inline": "any" });
    world.file("segue.yaml", config.to_string());
    for mut host in [Host::legacy(&world, &json!({})), Host::modern(&world, &json!({}))] {
        let before = calls(&world).len();
        let asked = json!({ "query": "An author, then a blog", "fresh": true });
        let planned = value(&host.call("plan_ask", asked));
        assert_eq!((&planned["state"], calls(&world).len()), (&json!("pending"), before));
        assert_eq!(planned["checked"]["steps"][1]["id"], "createBlog");
        let request = json!({ "request_id": planned["request_id"] });
        let ran = value(&host.call("plan_execute", request.clone()));
        assert_eq!((&ran["status"], calls(&world).len()), (&json!("success"), before + 2));
        let after = value(&host.call("plan_get", request.clone()));
        assert_eq!((&after["state"], &after["run_id"]), (&json!("completed"), &ran["run_id"]));
        assert_eq!(after["result"]["output"]["createBlog"]["title"], "Hello");
        let again = host.call("plan_execute", request.clone());
        assert!(error(&again).contains("executed already"), "{again}");
        let unknown = host.call("plan_get", json!({ "request_id": "req_1704123456_abc123def" }));
        assert!(error(&unknown).contains("Plan not found for requestId"), "{unknown}");
        let nothing = host.call("plan_execute", json!({}));
        assert!(error(&nothing).contains("one of `plan_id` and `request_id`"), "{nothing}");
        assert_eq!(host.leave(), Some(0));
    }
}

/// Without a model the planning tools are not offered.
#[test]
fn without_a_model_planning_is_not_offered() {
    let world = World::new();
    world.file("segue.yaml", "compositions: []\n");
    let mut host = Host::legacy(&world, &json!({}));
    let listed = host.ask("tools/list", json!({})).to_string();
    assert!(listed.contains("run_get") && !listed.contains("plan_ask"), "{listed}");
    assert_eq!(host.leave(), Some(0));
}
