//! Documents of other dialects with the real program: running, own results, converting.

use crate::support::{World, json};

/// Example 1 of the chains' document, with a tool of that name.
const ECHO_CHAIN: &str = r#"
name: echo_chain_demo
display_name: "Echo Chain Demo"
description: "Chains three echo_tool calls sequentially"
category: "demo"

parameters:
  - name: initial_message
    type: string
    required: true

implementation:
  type: composite
  composite:
    steps:
      - tool: echo_tool
        inputs:
          message: "{{ state.initial_message }}"
          session_id: "chain_session"
        on_success:
          map_outputs:
            data: "step1_result"

      - tool: echo_tool
        inputs:
          message: "Step 2: {{ state.step1_result }}"
          session_id: "chain_session"
        on_success:
          map_outputs:
            data: "step2_result"

      - tool: echo_tool
        inputs:
          message: "Step 3: {{ state.step2_result }}"
          session_id: "chain_session"
        on_success:
          map_outputs:
            data: "final_result"
"#;

/// The tool that the chain calls, as a composition over a built-in one.
const ECHO_TOOL: &str = r#"
name: echo_tool
input: { type: object, required: [message], properties: { message: { type: string }, session_id: { type: string } } }
steps: [{ id: say, tool: echo, parameters: { message: "{{ input.message }}" } }]
output: { data: "{{ say.message }}" }
"#;

fn world() -> World {
    let world = World::with(ECHO_CHAIN);
    world.file("echo_tool.yaml", ECHO_TOOL);
    world.file("segue.yaml", "compositions: [echo_tool.yaml]\n");
    world
}

/// S1-01, S1-37, S1-57, SX-04: the wrapper says what the document promises; a composition is a tool.
#[test]
fn a_composite_tool_returns_its_wrapper() {
    let result = world()
        .json(0, &["run", "c.yaml", "-i", "initial_message=Hello", "--dialect-result", "-q"]);
    assert_eq!(result["tool"], "echo_chain_demo");
    assert_eq!(result["status"], "success");
    assert_eq!(result["data"]["results"].as_array().unwrap().len(), 3);
    let state = &result["data"]["final_state"];
    assert_eq!(state["final_result"], "Step 3: Step 2: Hello");
    assert_eq!(state["chain_id"], result["chain_id"]);
}

/// S1-02, S1-05: the fields at the top of a chain and its parameters are kept, and shown with its
/// plan.
#[test]
fn what_a_chain_says_of_itself_is_shown() {
    let world = world();
    world.file("c.yaml", ECHO_CHAIN.replace("category:", "version: \"1.2.0\"\ncategory:"));
    let plan = world.json(0, &["plan", "c.yaml", "--format", "json"]);
    assert_eq!((&plan["name"], &plan["version"]), (&json!("echo_chain_demo"), &json!("1.2.0")));
    assert_eq!(plan["description"], "Chains three echo_tool calls sequentially");
    assert_eq!(plan["metadata"]["display_name"], "Echo Chain Demo");
    assert_eq!(plan["metadata"]["category"], "demo");
    let parameters = "parameters:\n  - { name: max_results, type: integer, default: 10, description: At most so many }\n";
    world.file("c.yaml", ECHO_CHAIN.replace("parameters:\n", parameters));
    let inputs = &world.json(0, &["plan", "c.yaml", "--format", "json"])["inputs"];
    assert_eq!(inputs["required"], json!(["initial_message"]), "{inputs}");
    assert_eq!(inputs["properties"]["initial_message"]["type"], "string");
    let described = json!({ "type": "integer", "default": 10, "description": "At most so many" });
    assert_eq!(inputs["properties"]["max_results"], described);
}

/// S1-06, S1-63: what is missing stops a chain before its first step.
#[test]
fn a_missing_parameter_and_a_missing_casefile_stop_it_before_any_step() {
    let view = world().run(2, &[]);
    assert_eq!(view["errors"][0]["code"], "input-schema");
    assert_eq!(view["steps_executed"], 0);
    let needy = ECHO_CHAIN.replace("category:", "requires: { context: [casefile_id] }\ncategory:");
    let world = world();
    world.file("c.yaml", needy);
    let view = world.run(2, &["-i", "initial_message=Hello"]);
    assert_eq!(view["errors"][0]["code"], "policy-violation");
    let given = ["-i", "initial_message=Hello", "--context", "casefile_id=7"];
    assert_eq!(world.run(0, &given)["success"], true);
}

/// S4-04, S4-36: the seed's shape of a plan, with tools that are there.
#[test]
fn a_plan_runs_as_it_is_written() {
    let world = World::with(
        r#"{ "requestId": "req_1704123456_abc123def",
             "tools": [
               { "name": "checkpoint_save", "parameters": { "content": "Hello" }, "dependsOn": null },
               { "name": "echo", "parameters": { "id": "{{checkpoint_save.id}}" }, "dependsOn": "checkpoint_save" } ],
             "executionOrder": ["checkpoint_save", "echo"] }"#,
    );
    let view = world.run(0, &[]);
    assert_eq!(view["dialect"], "plan");
    assert_eq!(view["request_id"], "req_1704123456_abc123def");
    assert_eq!(view["output"]["echo"]["id"], view["output"]["checkpoint_save"]["id"]);
}

/// A converted file has the hash of what it was made of, and says so to `segue plan`.
#[test]
fn a_converted_document_is_the_same_plan() {
    let world = world();
    let native = world.segue(&["convert", "c.yaml", "--to", "composition"]).exits(0).stdout;
    world.file("native.yaml", &native);
    let before = world.json(0, &["plan", "c.yaml", "--format", "json"]);
    let after = world.json(0, &["plan", "native.yaml", "--format", "json"]);
    assert_eq!(before["hash"], after["hash"]);
    assert_eq!((&before["dialect"], &after["dialect"]), (&json!("chain"), &json!("composition")));
    let broken = world.segue(&["convert", "segue.yaml"]).exits(2);
    assert!(broken.stdout.is_empty());
    let report = world.json(0, &["convert", "c.yaml", "--json"]);
    assert_eq!(report["ok"], true);
    assert_eq!(report["composition"].as_str().unwrap().trim_end(), native.trim_end());
    let report = world.json(2, &["convert", "segue.yaml", "--json"]);
    assert_eq!((&report["ok"], &report["composition"]), (&json!(false), &json!(null)));
    assert_eq!(report["diagnostics"][0]["severity"], "error");
    world.segue(&["convert", "nothing.yaml"]).exits(2);
}
