//! Rollbacks, as hosts and people see them before they can happen.

use super::host::{Host, error, text, value};
use super::{forms, notes, world};
use crate::support::json;

/// Saves something, with a note as its rollback.
const BACK: &str = "\
name: back
error_handling: { rollback_on_failure: true }
steps:
  - id: save
    tool: checkpoint_save
    parameters: { content: x }
    rollback: { tool: 'command:note', parameters: { text: 'gone for {{ output.id }}' } }
  - { id: bad, tool: fail, depends_on: [save] }
";

/// S0-54, S3: the composition's rollback of a step is approved together with the step, and named in
/// the question; without an approval, neither is called.
#[test]
fn an_undo_that_destroys_is_asked_for_with_its_step() {
    let world = world("", &[("back", BACK)]);
    let mut host = Host::legacy(&world, &json!({}));
    let refused = host.call("back", json!({}));
    assert!(error(&refused).contains("with `command:note` to roll it back"), "{}", text(&refused));
    assert_eq!(notes(&world), 0);
    let mut host = Host::legacy(&world, &forms());
    for (action, expected) in [("decline", 0), ("accept", 1)] {
        let id = host.begin("tools/call", json!({ "name": "back", "arguments": {} }));
        let asked = host.request("elicitation/create");
        let message = asked["params"]["message"].as_str().unwrap();
        assert!(message.contains("builtin:checkpoint_save"), "{message}");
        assert!(message.contains("`command:note` rolls it back with"), "{message}");
        assert!(message.contains("gone for {{ output.id }}"), "{message}");
        host.reply(&asked, json!({ "action": action, "content": {} }));
        let result = host.answer(id)["result"].clone();
        assert_eq!(notes(&world), expected, "{result}");
    }
}

/// The question shows the arguments of the rollback that are known already. It keeps what depends on the
/// output as written, and redacts what the step declares sensitive.
#[test]
fn a_question_shows_the_arguments_of_the_rollback() {
    let text =
        "'{{ args.content }}{{ args.content | upper }} of {{ args.summary }} {{ output.id }}'";
    let known = BACK.replace("{ content: x }", "{ content: draft, summary: notes }");
    let known = known.replace("'gone for {{ output.id }}'", text);
    let hidden = known.replace("name: back", "name: hidden");
    let hidden = hidden.replace("    rollback:", "    sensitive: [/content]\n    rollback:");
    let world = world("", &[("back", &known), ("hidden", &hidden)]);
    let mut host = Host::legacy(&world, &forms());
    for (name, expected) in [
        ("back", "  \"text\": \"draft{{ args.content | upper }} of notes {{ output.id }}\""),
        ("hidden", "{{ args.content | upper }} of notes {{ output.id }}\""),
    ] {
        let id = host.begin("tools/call", json!({ "name": name, "arguments": {} }));
        let asked = host.request("elicitation/create");
        let message = asked["params"]["message"].as_str().unwrap();
        assert!(message.contains(expected), "{message}");
        assert_eq!(message.contains("draft"), name == "back", "{message}");
        host.reply(&asked, json!({ "action": "decline", "content": {} }));
        host.answer(id);
    }
}

/// S3: the one question of an atomic composition, and the descriptions of tools, name what takes
/// steps back; a description says that a person is asked on the way.
#[test]
fn undos_are_named_beforehand() {
    let atomic = BACK.replace("name: back\n", "name: once\natomic: true\n");
    let ask =
        "name: ask\nsteps: [ { id: ok, approve: { message: Sure? } } ]\noutput: { ok: true }\n";
    let world = world("", &[("back", BACK), ("once", &atomic), ("ask", ask)]);
    let mut host = Host::legacy(&world, &forms());
    let listed = host.ask("tools/list", json!({}))["result"].clone();
    let tools = listed["tools"].as_array().unwrap();
    let tool = |name: &str| tools.iter().find(|tool| tool["name"] == name).unwrap();
    let description = |name: &str| tool(name)["description"].as_str().unwrap().to_owned();
    for (name, asks) in
        [("back", "Asks a person before: command:note."), ("once", "Asks a person once")]
    {
        let description = description(name);
        assert!(
            description.contains("To roll that back: command:note (may destroy)."),
            "{description}"
        );
        assert!(description.contains(asks), "{description}");
        assert_eq!(tool(name)["annotations"]["destructiveHint"], true);
    }
    assert!(description("ask").contains("Asks a person on its way."), "{}", description("ask"));
    let id = host.begin("tools/call", json!({ "name": "once", "arguments": {} }));
    let asked = host.request("elicitation/create");
    let message = asked["params"]["message"].as_str().unwrap();
    let named = "To roll that back, it may call:\n- command:note: may destroy\n";
    assert!(message.contains(named), "{message}");
    host.reply(&asked, json!({ "action": "decline", "content": {} }));
    assert!(error(&host.answer(id)["result"]).contains("Nothing was called"));
    assert_eq!(notes(&world), 0);
    let id = host.begin("tools/call", json!({ "name": "ask", "arguments": {} }));
    let asked = host.request("elicitation/create");
    host.reply(&asked, json!({ "action": "accept", "content": {} }));
    assert_eq!(value(&host.answer(id)["result"]), json!({ "ok": true }));
}
