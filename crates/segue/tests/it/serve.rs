//! `segue mcp` from a host's side, in both eras of the protocol.

pub(crate) mod host;
pub(crate) mod http;
mod planning;
mod real;
mod undo;
mod upstream;
mod waiting;

use std::fs;

use host::{Host, error, text, value};

use crate::support::{Json, World, json};

pub(crate) const CONFIG: &str = "\
compositions: ['lib/*.yaml']
builtins: { files: { root: . } }
commands:
  note: { argv: [sh, -c, 'cat >> notes.txt; echo >> notes.txt'], read_only: false }
tools: { 'command:note': { destructive: true } }
";

/// What a host writes itself may use every tool.
pub(crate) const ANY_TOOL: &str = "toolsets: { any: { allow: ['*'] } }\nserver: { inline: any }\n";

pub(crate) const DOUBLE: &str = "\
name: double-it
description: Doubles a number
input: { type: object, required: [n], properties: { n: { type: integer } } }
steps: [ { id: a, tool: echo, parameters: { n: '{{ input.n * 2 }}' } } ]
output: { n: '{{ a.n }}' }
";

/// Writes a note, which asks first.
const NOTE: &str = "\
name: note
input: { type: object, required: [text], properties: { text: { type: string } } }
steps: [ { id: write, tool: 'command:note', parameters: { text: '{{ input.text }}' } } ]
output: { written: true }
";

/// Writes two notes, and asks once for both.
const ATOMIC: &str = "\
name: both
atomic: true
input: { type: object, required: [text], properties: { text: { type: string } } }
steps:
  - { id: one, tool: 'command:note', parameters: { text: '{{ input.text }}' } }
  - { id: two, tool: 'command:note', parameters: { text: again }, depends_on: [one] }
output: { written: 2 }
";

/// Counts a step, then takes a while.
const SLOW: &str = "\
name: slow
input: { type: object, required: [ms], properties: { ms: { type: integer } } }
steps:
  - { id: first, tool: echo, parameters: { n: 1 } }
  - { id: rest, tool: sleep, parameters: { ms: '{{ input.ms }}', value: '{{ first.n }}' } }
output: { n: '{{ rest.value }}' }
";

fn world(limits: &str, compositions: &[(&str, &str)]) -> World {
    let world = World::new();
    world.file("segue.yaml", format!("{CONFIG}{limits}"));
    for (name, text) in compositions {
        world.file(&format!("lib/{name}.yaml"), text);
    }
    world
}

fn forms() -> Json {
    json!({ "elicitation": { "form": {} } })
}

fn notes(world: &World) -> usize {
    fs::read_to_string(world.path("notes.txt")).map_or(0, |text| text.lines().count())
}

/// Every tool takes an object and nothing else, as hosts demand of all of them. What cannot take one is
/// not loaded.
#[test]
fn every_tool_takes_an_object() {
    let of = |name: &str, input: &str| {
        format!("name: {name}\ninput: {input}\nsteps: [ {{ id: a, tool: echo }} ]\n")
    };
    let names = ["word", "maybe", "any"];
    let texts = [
        of("word", "{ type: string }"),
        of("maybe", "{ type: [object, 'null'] }"),
        of("any", "true"),
    ];
    let files: Vec<(&str, &str)> = names.into_iter().zip(texts.iter().map(|t| &**t)).collect();
    let world = world("", &files);
    let mut host = Host::legacy(&world, &json!({}));
    let tools = host.ask("tools/list", json!({}))["result"]["tools"].clone();
    for tool in tools.as_array().unwrap() {
        assert_eq!(tool["inputSchema"]["type"], "object", "{tool}");
    }
    let is_offered = |name: &&str| tools.as_array().unwrap().iter().any(|t| t["name"] == **name);
    assert_eq!(names.into_iter().filter(is_offered).collect::<Vec<_>>(), ["maybe", "any"]);
    let shown = world.segue(&["--config", "segue.yaml", "check", "lib/word.yaml"]).exits(2);
    assert!(shown.stderr.contains("`input` must take an object"), "{}", shown.stderr);
}

/// SX-04: whatever its dialect, a document is one tool of a host, with an input schema, and a step of
/// another document.
#[test]
fn every_dialect_is_one_tool_and_one_step() {
    let input = "{ type: object, required: [n], properties: { n: { type: integer } } }";
    let said = |name: &str, steps: &str| format!("name: {name}\ninput: {input}\n{steps}\n");
    let echo = "{ n: '{{ input.n }}' }";
    let texts = [
        ("native", said("native", &format!("steps: [{{ id: a, tool: echo, parameters: {echo} }}]\noutput: '{{{{ a.n }}}}'"))),
        ("chained", "name: chained\ndialect: chain\nparameters: [{ name: n, type: integer, required: true }]\n\
            steps: [{ name: a, tool: echo, inputs: { n: '{{ state.n }}' }, on_success: { map_outputs: { n: out } } }]\n\
            output: '{{ state.out }}'\n".to_owned()),
        ("skilled", said("skilled", &format!("steps: [{{ id: a, tool_id: echo, inputs: {echo} }}]\noutput: '{{{{ a.n }}}}'"))),
        ("planned", said("planned", &format!("tools: [{{ name: echo, parameters: {echo} }}]\noutput: '{{{{ echo.n }}}}'"))),
        ("outer", "name: outer\nsteps:\n\
            \x20 - { id: a, tool: native, parameters: { n: 1 } }\n  - { id: b, tool: chained, parameters: { n: 20 } }\n\
            \x20 - { id: c, tool: skilled, parameters: { n: 300 } }\n  - { id: d, tool: planned, parameters: { n: 4000 } }\n\
            output: { sum: '{{ a + b + c + d }}' }\n".to_owned()),
    ];
    let files: Vec<(&str, &str)> = texts.iter().map(|(name, text)| (*name, &**text)).collect();
    let world = world("", &files);
    let mut host = Host::legacy(&world, &json!({}));
    let tools = host.ask("tools/list", json!({}))["result"]["tools"].clone();
    for (name, _) in &texts[..4] {
        let offered = tools.as_array().unwrap().iter().find(|tool| tool["name"] == **name);
        let schema = &offered.unwrap_or_else(|| panic!("no `{name}` in {tools}"))["inputSchema"];
        assert_eq!(schema["required"], json!(["n"]), "{name}: {schema}");
        assert_eq!(schema["properties"]["n"]["type"], "integer", "{name}: {schema}");
        let called = host.call(name, json!({ "n": 7 }));
        assert_ne!(called["isError"], true, "{name}: {called}");
        assert!(called.to_string().contains('7'), "{name}: {called}");
    }
    let called = host.call("outer", json!({}));
    assert_eq!(value(&called)["sum"], 4321, "{called}");
}

/// Both eras, with what a client declares.
fn hosts(world: &World, capabilities: &Json) -> [Host; 2] {
    [Host::legacy(world, capabilities), Host::modern(world, capabilities)]
}

/// A composition is a tool: schemas, hints, what it calls; its result as value and as text.
#[test]
fn a_composition_is_a_tool() {
    let world = world("", &[("double", DOUBLE), ("note", NOTE), ("both", ATOMIC)]);
    for mut host in hosts(&world, &json!({})) {
        let listed = host.ask("tools/list", json!({}))["result"].clone();
        let tools = listed["tools"].as_array().unwrap();
        let names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        assert!(names.is_sorted(), "{names:?}");
        for name in "composition_execute composition_validate composition_list_templates \
                     composition_get_template composition_create_template \
                     composition_delete_template run_get run_cancel run_resume double_it note both"
            .split_whitespace()
        {
            assert!(names.contains(&name), "{name} of {names:?}");
        }
        let tool = |name: &str| tools.iter().find(|tool| tool["name"] == name).unwrap();
        let double = tool("double_it");
        assert_eq!(double["inputSchema"]["properties"]["n"]["type"], "integer");
        assert_eq!(double["outputSchema"]["type"], "object");
        assert_eq!(
            double["annotations"],
            json!({ "readOnlyHint": true, "destructiveHint": false, "idempotentHint": true, "openWorldHint": false })
        );
        let description = double["description"].as_str().unwrap();
        assert!(
            description.contains("Doubles a number")
                && description.contains("builtin:echo (reads)")
        );
        let note = tool("note");
        assert_eq!(note["annotations"]["readOnlyHint"], false);
        assert_eq!(note["annotations"]["destructiveHint"], true);
        let description = note["description"].as_str().unwrap();
        assert!(description.contains("Asks a person before: command:note"), "{description}");
        assert!(tool("both")["description"].as_str().unwrap().contains("Asks a person once"));

        assert_eq!(value(&host.call("double_it", json!({ "n": 21 }))), json!({ "n": 42 }));
        let wrong = host.call("double_it", json!({ "n": "x" }));
        assert!(error(&wrong).contains("does not fit"), "{}", text(&wrong));
        let unknown = host.ask("tools/call", json!({ "name": "nothing", "arguments": {} }));
        assert_eq!(unknown["error"]["code"], -32602);
        let wrong = host.ask("tools/call", json!({ "arguments": {} }));
        assert_eq!(wrong["error"]["code"], -32602, "{wrong}");
        assert_eq!(host.ask("prompts/list", json!({}))["error"]["code"], -32601);
        assert_eq!(host.leave(), Some(0));
    }
}

/// Requests of the era without `initialize` say who asks, and lists say how long they hold.
#[test]
fn the_modern_era_is_kept_apart() {
    let world = world("", &[("double", DOUBLE)]);
    let mut host = Host::modern(&world, &json!({}));
    let listed = host.ask("tools/list", json!({}))["result"].clone();
    assert_eq!(
        (&listed["resultType"], &listed["ttlMs"], &listed["cacheScope"]),
        (&json!("complete"), &json!(0), &json!("private"))
    );
    assert_eq!(host.ask("ping", json!({}))["error"]["code"], -32601);
    let id = 99;
    host.send(&json!({ "jsonrpc": "2.0", "id": id, "method": "tools/list", "params": {} }));
    assert_eq!(host.answer(id)["error"]["code"], -32602);
    let mut host = Host::legacy(&world, &json!({}));
    let listed = host.ask("tools/list", json!({}))["result"].clone();
    assert!(listed.get("resultType").is_none());
    assert!(host.ask("ping", json!({})).get("result").is_some());
}

/// Numbers that no float holds reach the composition as they were written.
#[test]
fn numbers_arrive_exactly() {
    let echo = "name: same\nsteps: [ { id: a, tool: echo, parameters: { n: '{{ input.n }}' } } ]\noutput: { text: '{{ a.n }}!' }\n";
    let world = world("", &[("same", echo)]);
    let mut host = Host::legacy(&world, &json!({}));
    host.send_line(
        r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"same","arguments":{"n":18446744073709551617}}}"#,
    );
    assert_eq!(value(&host.answer(7)["result"])["text"], "18446744073709551617!");
}

/// Numbers that no float holds stay exact, also in the value, and no text can forge one.
#[test]
fn numbers_leave_exactly() {
    let big = "name: big\nsteps: [ { id: a, tool: echo, parameters: { n: 18446744073709551617, pi: 3.14159265358979323846264338327950288 } } ]\noutput: '{{ a }}'\n";
    let world = world("", &[("big", big)]);
    for mut host in hosts(&world, &json!({})) {
        let id = host.begin("tools/call", json!({ "name": "big", "arguments": {} }));
        host.answer(id);
        let exact = r#""structuredContent":{"n":18446744073709551617,"pi":3.14159265358979323846264338327950288}"#;
        assert!(host.line().contains(exact), "{}", host.line());
    }
}

/// Lines that are no messages are answered, and do no harm.
#[test]
fn nonsense_is_answered_and_survived() {
    let world = world("limits: { mcp_message_bytes_max: 20000 }\n", &[("double", DOUBLE)]);
    let mut host = Host::start(&world);
    host.send(&json!({ "jsonrpc": "2.0", "method": "notifications/early" }));
    host.send_line("not json");
    assert_eq!(host.wait(|m| m["error"]["code"] == -32700)["id"], Json::Null);
    host.send_line(r#"{"id":5,"hello":true}"#);
    assert_eq!(host.wait(|m| m["error"]["code"] == -32600)["id"], 5);
    host.send_line(&format!(r#"{{"jsonrpc":"2.0","id":6,"method":"{}"}}"#, "x".repeat(30_000)));
    assert!(host.answer(6)["error"]["message"].as_str().unwrap().contains("20000 bytes"));
    drop(host);
    let mut host = Host::legacy(&world, &json!({}));
    host.send_line("[]");
    host.wait(|m| m["error"]["code"] == -32600);
    assert_eq!(value(&host.call("double_it", json!({ "n": 1 }))), json!({ "n": 2 }));
}

/// A failure says everything in its text.
#[test]
fn a_failure_says_everything_in_words() {
    let failing = "\
name: failing
error_handling: { rollback_on_failure: true }
steps:
  - { id: made, tool: files_write, parameters: { path: a.txt, content: x } }
  - { id: broken, tool: fail, parameters: { message: no luck }, depends_on: [made] }
";
    let world = world("", &[("failing", failing)]);
    for mut host in hosts(&world, &forms()) {
        let result = host.call("failing", json!({}));
        let text = error(&result);
        for words in [
            "rolled back",
            "`broken`",
            "builtin:fail",
            "no luck",
            "tool-error",
            "Rolled back: `made`",
            "run_id: ",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(!world.path("a.txt").exists());
        let run_id = result["_meta"]["segue/runId"].as_str().unwrap().to_owned();
        let run = value(&host.call("run_get", json!({ "run_id": run_id, "steps": true })));
        assert_eq!(
            (&run["status"], run["steps"].as_array().unwrap().len()),
            (&json!("rolled_back"), 2)
        );
    }
}

/// A draft is checked without side effects, dry-run, and run.
#[test]
fn a_composition_of_the_caller_is_checked_and_run() {
    let world = world(ANY_TOOL, &[("double", DOUBLE)]);
    let draft = "name: d\nsteps:\n  - { id: w, tool: files_write, parameters: { path: d.txt, content: hi } }\n";
    let mut host = Host::legacy(&world, &json!({}));
    let checked = value(&host.call("composition_validate", json!({ "composition": draft })));
    assert_eq!((&checked["ok"], &checked["plan"]["steps"][0]["id"]), (&json!(true), &json!("w")));
    let dry = json!({ "composition": draft, "options": { "dry_run": true } });
    assert_eq!(value(&host.call("composition_execute", dry))["status"], "dry_run");
    assert!(!world.path("d.txt").exists());
    let wrong = json!({ "composition": { "name": "d", "steps": [{ "id": "w", "tool": "ech" }] } });
    let checked = value(&host.call("composition_validate", wrong.clone()));
    assert_eq!(checked["diagnostics"][0]["code"], "unknown-tool");
    assert!(error(&host.call("composition_execute", wrong)).contains("unknown-tool"));
    let ran = value(&host.call("composition_execute", json!({ "composition": draft })));
    assert_eq!((&ran["status"], &ran["success"]), (&json!("success"), &json!(true)));
    assert!(world.path("d.txt").exists());
    let named = json!({ "name": "double-it", "input": { "n": 4 } });
    assert_eq!(value(&host.call("composition_execute", named))["output"], json!({ "n": 8 }));
    let echo = "name: e\nsteps: [ { id: v, tool: echo } ]\n";
    let part = json!({ "composition": echo, "mocks": { "v": { "returns": {} } } });
    let part = value(&host.call("composition_execute", part));
    assert_eq!((&part["part"], &part["steps_executed"]), (&json!({ "pinned": ["v"] }), &json!(0)));
    let until = json!({ "composition": draft, "until": "x" });
    assert!(error(&host.call("composition_execute", until)).contains("no step `x`"));
    assert!(error(&host.call("composition_execute", json!({}))).contains("one of"));
    assert!(error(&host.call("composition_validate", json!({}))).contains("composition"));

    let template = json!({ "id": "greet", "composition": "name: g\nsteps: [ { id: a, tool: echo, parameters: { hi: 1 } } ]\n" });
    value(&host.call("composition_create_template", template.clone()));
    assert!(error(&host.call("composition_create_template", template)).contains("replace"));
    assert!(
        error(&host.call("composition_get_template", json!({ "id": "../x" })))
            .contains("no template")
    );
    let listed = value(&host.call("composition_list_templates", json!({ "search": "greet" })));
    assert_eq!(listed["templates"][0]["validation"]["required_tools"], json!(["builtin:echo"]));
    let ran = value(&host.call("composition_execute", json!({ "template_id": "greet" })));
    assert_eq!(ran["output"]["a"], json!({ "hi": 1 }));
    value(&host.call("composition_delete_template", json!({ "id": "greet" })));
    assert!(
        error(&host.call("composition_get_template", json!({ "id": "greet" })))
            .contains("no template")
    );
}

/// What destroys asks through the host; without a way to ask nothing is called.
#[test]
fn a_call_asks_through_the_host() {
    let world = world("", &[("note", NOTE)]);
    let mut host = Host::legacy(&world, &forms());
    for (action, expected) in [("decline", 0), ("cancel", 0), ("accept", 1)] {
        let id =
            host.begin("tools/call", json!({ "name": "note", "arguments": { "text": "hey" } }));
        let asked = host.request("elicitation/create");
        let message = asked["params"]["message"].as_str().unwrap();
        assert!(message.contains("command:note") && message.contains("hey"), "{message}");
        host.reply(&asked, json!({ "action": action, "content": {} }));
        let result = host.answer(id)["result"].clone();
        assert_eq!(notes(&world), expected);
        if expected == 0 {
            let words = error(&result);
            assert!(words.contains("denied") && !words.contains("--yes"), "{words}");
        } else {
            assert_eq!(value(&result), json!({ "written": true }));
        }
    }
    for mut host in hosts(&world, &json!({})) {
        let refused = host.call("note", json!({ "text": "x" }));
        let words = error(&refused);
        assert!(words.contains("was not confirmed") && words.contains("confirm: never"), "{words}");
        assert_eq!(notes(&world), 1);
    }
}

/// The modern era: an answer that asks, and a state that is good once, for this caller's call.
#[test]
fn a_call_asks_by_an_answer() {
    let world = world("", &[("note", NOTE), ("other", &NOTE.replace("name: note", "name: other"))]);
    let mut host = Host::modern(&world, &forms());
    let first = host.call("note", json!({ "text": "hey" }));
    assert_eq!(first["resultType"], "input_required");
    let (name, asked) = first["inputRequests"].as_object().unwrap().iter().next().unwrap();
    assert_eq!(asked["method"], "elicitation/create");
    let state = first["requestState"].as_str().unwrap().to_owned();
    let yes = json!({ name: { "action": "accept", "content": {} } });
    let again = |tool: &str, text: &str, state: &str| json!({ "name": tool, "arguments": { "text": text }, "inputResponses": yes, "requestState": state });
    let mut turned = state.clone().into_bytes();
    let at = turned.len() - 3;
    turned[at] = if turned[at] == b'A' { b'B' } else { b'A' };
    for wrong in [
        again("note", "other", &state),
        again("other", "hey", &state),
        again("note", "hey", &String::from_utf8(turned).unwrap()),
        again("note", "hey", "nonsense"),
    ] {
        let refused = host.ask("tools/call", wrong);
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
    }
    assert_eq!(notes(&world), 0);
    let done = host.ask("tools/call", again("note", "hey", &state))["result"].clone();
    assert_eq!(value(&done), json!({ "written": true }));
    assert_eq!(host.ask("tools/call", again("note", "hey", &state))["error"]["code"], -32602);
    assert_eq!(notes(&world), 1);
}

/// S3: one question for an atomic composition, in both eras; a no calls nothing.
#[test]
fn an_atomic_composition_asks_once() {
    let world = world("", &[("both", ATOMIC)]);
    let mut host = Host::legacy(&world, &forms());
    let arguments = json!({ "name": "both", "arguments": { "text": "hey" } });
    for (action, expected) in [("decline", 0), ("accept", 2)] {
        let id = host.begin("tools/call", arguments.clone());
        let asked = host.request("elicitation/create");
        let message = asked["params"]["message"].as_str().unwrap();
        assert!(message.contains("command:note: may destroy, cannot be rolled back"), "{message}");
        host.reply(&asked, json!({ "action": action, "content": {} }));
        let result = host.answer(id)["result"].clone();
        assert_eq!((notes(&world), host.unread("elicitation/create")), (expected, 0), "{result}");
    }
    let mut host = Host::modern(&world, &forms());
    let first = host.ask("tools/call", arguments.clone())["result"].clone();
    assert_eq!(first["inputRequests"].as_object().unwrap().len(), 1);
    let mut retry = arguments.clone();
    retry["requestState"] = first["requestState"].clone();
    retry["inputResponses"] = json!({ "consent": { "action": "accept" } });
    assert_eq!(value(&host.ask("tools/call", retry)["result"]), json!({ "written": 2 }));
    assert_eq!(notes(&world), 4);
    let mut host = Host::legacy(&world, &json!({}));
    let refused = host.call("both", json!({ "text": "x" }));
    assert!(error(&refused).contains("--yes") && notes(&world) == 4, "{}", text(&refused));
}

/// An `approve` step asks with its own form.
#[test]
fn an_approval_brings_data() {
    let approve = "\
name: ask
steps:
  - id: who
    approve:
      message: Who is it for?
      schema: { type: object, required: [name], properties: { name: { type: string } } }
output: { name: '{{ who.data.name }}', by: '{{ who.by }}' }
";
    let world = world("", &[("ask", approve)]);
    let mut host = Host::legacy(&world, &forms());
    let id = host.begin("tools/call", json!({ "name": "ask", "arguments": {} }));
    let asked = host.request("elicitation/create");
    assert_eq!(asked["params"]["requestedSchema"]["properties"]["name"]["type"], "string");
    host.reply(&asked, json!({ "action": "accept", "content": { "name": "Ada" } }));
    let expected = json!({ "name": "Ada", "by": "the user of raw" });
    assert_eq!(value(&host.answer(id)["result"]), expected);
    // No person to ask: the run waits, and says how it can be answered.
    let mut host = Host::legacy(&world, &json!({}));
    let waiting = host.call("ask", json!({}));
    assert!(error(&waiting).contains("segue approve"), "{}", text(&waiting));
    let run_id = waiting["_meta"]["segue/runId"].as_str().unwrap().to_owned();
    let run = value(&host.call("run_get", json!({ "run_id": run_id })));
    assert_eq!(run["status"], "waiting");
    let ended = value(&host.call("run_cancel", json!({ "run_id": run_id })));
    assert_eq!(ended["status"], "cancelled");
}

/// A run that takes longer than its caller waits continues, and is found by its id.
#[test]
fn a_long_run_gives_a_reference() {
    let world = world("limits: { served_wait_ms: 50 }\n", &[("slow", SLOW)]);
    let mut host = Host::legacy(&world, &json!({}));
    let reference = value(&host.call("slow", json!({ "ms": 400 })));
    assert_eq!(reference["status"], "running");
    let listed = host.ask("tools/list", json!({}))["result"]["tools"].clone();
    let tool = listed.as_array().unwrap().iter().find(|tool| tool["name"] == "slow").unwrap();
    assert!(jsonschema::is_valid(&tool["outputSchema"], &reference));
    let run = json!({ "run_id": reference["run_id"], "wait_ms": 30_000 });
    let run = value(&host.call("run_get", run));
    assert_eq!((&run["status"], &run["output"]), (&json!("success"), &json!({ "n": 1 })));
    assert!(error(&host.call("run_get", json!({ "run_id": "nothing" }))).contains("no run"));
}

/// Who wants to be told how it goes is, and waits longer.
#[test]
fn progress_is_told_to_who_asks_for_it() {
    let world = world("limits: { served_wait_ms: 50 }\n", &[("slow", SLOW)]);
    for mut host in hosts(&world, &json!({})) {
        let id = host.begin(
            "tools/call",
            json!({ "name": "slow", "arguments": { "ms": 400 }, "_meta": { "progressToken": "p" } }),
        );
        let told = host.notification("notifications/progress")["params"].clone();
        assert_eq!((&told["progressToken"], &told["total"]), (&json!("p"), &json!(2.0)));
        assert!(told["_meta"]["segue/runId"].is_string());
        assert_eq!(value(&host.answer(id)["result"]), json!({ "n": 1 }));
    }
}

/// Cancelling a call cancels its run.
#[test]
fn a_cancelled_call_ends_its_run() {
    let world = world("", &[("slow", SLOW)]);
    for mut host in hosts(&world, &json!({})) {
        let id = host.begin(
            "tools/call",
            json!({ "name": "slow", "arguments": { "ms": 60_000 }, "_meta": { "progressToken": 1 } }),
        );
        let told = host.notification("notifications/progress")["params"].clone();
        host.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } }));
        let run = json!({ "run_id": told["_meta"]["segue/runId"], "wait_ms": 30_000 });
        assert_eq!(value(&host.call("run_get", run))["status"], "cancelled");
    }
}

/// A client that declares tasks gets one, and comes back for its result.
#[test]
fn a_long_run_is_a_task_where_tasks_are_known() {
    let world = world("limits: { served_wait_ms: 50 }\n", &[("slow", SLOW), ("note", NOTE)]);
    let tasks = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} }, "elicitation": { "form": {} } });
    let mut host = Host::modern(&world, &tasks);
    let task = host.call("slow", json!({ "ms": 300 }));
    assert_eq!((&task["resultType"], &task["status"]), (&json!("task"), &json!("working")));
    let id = task["taskId"].clone();
    value(&host.call("run_get", json!({ "run_id": id, "wait_ms": 30_000 })));
    let done = host.ask("tasks/get", json!({ "taskId": id }))["result"].clone();
    assert_eq!(done["status"], "completed", "{done}");
    assert_eq!(value(&done["result"]), json!({ "n": 1 }));
    assert_eq!(done["createdAt"], task["createdAt"]);
    let task = host.call("slow", json!({ "ms": 60_000 }));
    let id = task["taskId"].clone();
    assert!(host.ask("tasks/cancel", json!({ "taskId": id })).get("result").is_some());
    value(&host.call("run_get", json!({ "run_id": id, "wait_ms": 30_000 })));
    let done = host.ask("tasks/get", json!({ "taskId": id }))["result"].clone();
    assert_eq!(done["status"], "cancelled");
    assert_eq!(host.ask("tasks/get", json!({ "taskId": "x" }))["error"]["code"], -32602);
}

/// A result that is too large is shown in part, with where to read the whole.
#[test]
fn a_large_result_is_a_link() {
    let large = "name: large\nsteps: [ { id: a, tool: echo, parameters: { text: '{{ \"x\" * 5000 }}' } } ]\noutput: { text: '{{ a.text }}' }\n";
    let world = world("limits: { served_result_bytes_max: 1000 }\n", &[("large", large)]);
    for mut host in hosts(&world, &json!({})) {
        let result = host.call("large", json!({}));
        let reference = value(&result);
        assert_eq!(reference["status"], "success");
        assert!(reference["preview"].as_str().unwrap().len() <= 1000);
        let link = &result["content"][1];
        assert_eq!((&link["type"], &link["uri"]), (&json!("resource_link"), &reference["uri"]));
        let read = host.ask("resources/read", json!({ "uri": reference["uri"] }))["result"].clone();
        let whole: Json =
            serde_json::from_str(read["contents"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(whole["text"].as_str().unwrap().len(), 5000);
        let run = json!({ "run_id": reference["run_id"], "steps": true });
        let uri = value(&host.call("run_get", run))["uri"].clone();
        let read = host.ask("resources/read", json!({ "uri": uri }))["result"].clone();
        let text = read["contents"][0]["text"].as_str().unwrap();
        let run: Json = serde_json::from_str(text).unwrap();
        assert_eq!((&run["steps"][0]["id"], &run["output"]), (&json!("a"), &whole));
        let none = host.ask("resources/read", json!({ "uri": "segue://runs/x/output" }));
        assert!(none["error"]["code"] == -32602 || none["error"]["code"] == -32002);
    }
}

/// A changed configuration changes the offered tools, and clients are notified.
#[test]
fn a_changed_configuration_is_served() {
    let world = world("", &[("double", DOUBLE)]);
    world.file("more/slow.yaml", SLOW);
    let mut host = Host::watching(&world);
    assert_eq!(value(&host.call("double_it", json!({ "n": 1 }))), json!({ "n": 2 }));
    world.file("segue.yaml", CONFIG.replace("'lib/*.yaml'", "'lib/*.yaml', 'more/*.yaml'"));
    host.notification("notifications/tools/list_changed");
    assert_eq!(value(&host.call("slow", json!({ "ms": 1 }))), json!({ "n": 1 }));
}

/// Changed files change the offered tools, and clients are notified.
#[test]
fn a_changed_file_is_served() {
    let world = world("", &[("double", DOUBLE)]);
    let mut legacy = Host::legacy(&world, &json!({}));
    let mut modern = Host::modern(&world, &json!({}));
    modern.begin("subscriptions/listen", json!({ "notifications": { "toolsListChanged": true } }));
    modern.notification("notifications/subscriptions/acknowledged");
    assert_eq!(value(&legacy.call("double_it", json!({ "n": 1 }))), json!({ "n": 2 }));
    world.file("lib/new.yaml", "name: new\nsteps: [ { id: a, tool: echo, parameters: {} } ]\n");
    world.file("lib/broken.yaml", "name: broken\nsteps: []\n");
    for host in [&mut legacy, &mut modern] {
        host.notification("notifications/tools/list_changed");
        let listed = host.ask("tools/list", json!({}))["result"]["tools"].to_string();
        assert!(listed.contains("\"new\"") && !listed.contains("\"broken\""));
        value(&host.call("new", json!({})));
    }
}

/// Who goes away loses nothing: the run is finished before Segue ends.
#[test]
fn who_goes_away_loses_nothing() {
    let world = world("", &[("slow", SLOW)]);
    for mut host in hosts(&world, &json!({})) {
        host.begin(
            "tools/call",
            json!({ "name": "slow", "arguments": { "ms": 300 }, "_meta": { "progressToken": 1 } }),
        );
        let told = host.notification("notifications/progress")["params"].clone();
        assert_eq!(host.leave(), Some(0));
        let run_id = told["_meta"]["segue/runId"].as_str().unwrap().to_owned();
        let shown = world.json(0, &["--store", "sqlite:s.db", "runs", "show", &run_id, "--json"]);
        assert_eq!(shown["status"], "success");
    }
}

/// A host whose Segue gets a signal while a slow run is under way, and what was told of that run.
#[cfg(unix)]
fn ended_in_the_middle(world: &World, signal: rustix::process::Signal) -> (Host, Json) {
    let mut host = Host::legacy(world, &json!({}));
    host.begin(
        "tools/call",
        json!({ "name": "slow", "arguments": { "ms": 1_000 }, "_meta": { "progressToken": 1 } }),
    );
    let told = host.notification("notifications/progress")["params"].clone();
    let pid = rustix::process::Pid::from_raw(i32::try_from(host.pid()).unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
    (host, told)
}

/// Killed in the middle, a run resumes at the next start and is found by its id. Runs whose tools
/// are not ours are left alone.
#[cfg(unix)]
#[test]
fn a_killed_run_goes_on_at_the_next_start() {
    let world = world("", &[("slow", SLOW)]);
    let (host, told) = ended_in_the_middle(&world, rustix::process::Signal::KILL);
    drop(host);
    let run_id = told["_meta"]["segue/runId"].as_str().unwrap().to_owned();
    let mut host = Host::modern(&world, &json!({}));
    let run =
        value(&host.call("run_get", json!({ "run_id": run_id, "wait_ms": 30_000, "steps": true })));
    assert_eq!((&run["status"], &run["output"]), (&json!("success"), &json!({ "n": 1 })));
    assert_eq!(run["steps"][0]["attempts"], 1, "what was done is not done again");
}

/// The store may be shared: a run whose tools are not ours is left as it is.
#[cfg(unix)]
#[test]
fn a_run_of_another_project_is_not_resumed() {
    let nap = "name: nap\nsteps: [ { id: a, tool: echo, parameters: { n: 1 } }, { id: b, tool: 'command:nap', parameters: {}, depends_on: [a] } ]\n";
    let world = world("", &[("nap", nap), ("slow", SLOW)]);
    let theirs = CONFIG
        .replace("commands:\n", "commands:\n  nap: { argv: [sleep, '30'], read_only: false }\n")
        .replace("tools: {", "tools: { 'command:nap': { confirm: never },");
    world.file("segue.yaml", theirs);
    let mut host = Host::legacy(&world, &json!({}));
    host.begin(
        "tools/call",
        json!({ "name": "nap", "arguments": {}, "_meta": { "progressToken": 1 } }),
    );
    let told = host.notification("notifications/progress")["params"].clone();
    drop(host);
    world.file("segue.yaml", CONFIG);
    let mut host = Host::legacy(&world, &json!({}));
    let run = json!({ "run_id": told["_meta"]["segue/runId"], "wait_ms": 100 });
    assert_eq!(value(&host.call("run_get", run))["status"], "running");
    assert_eq!(value(&host.call("slow", json!({ "ms": 1 }))), json!({ "n": 1 }));
}

/// The effect of a composition made at run time cannot be declared: it weakens the hints, and the
/// approval of an atomic composition does not cover it.
#[test]
fn a_yes_covers_what_was_declared() {
    let expanding = "\
name: expanding
atomic: true
input: { type: object, required: [plan], properties: { plan: { type: object } } }
steps:
  - { id: fixed, tool: 'command:note', parameters: { text: fixed } }
  - { id: made, expand: '{{ input.plan }}', depends_on: [fixed] }
";
    let world = world("", &[("expanding", expanding)]);
    // The host may compose of both: what a yes covers is another question.
    let may =
        "toolsets: { both: { allow: ['command:note', files_write] } }\nserver: { inline: both }\n";
    world.file("segue.yaml", format!("{CONFIG}{may}"));
    let mut host = Host::legacy(&world, &forms());
    let listed = host.ask("tools/list", json!({}))["result"]["tools"].clone();
    let tool = listed.as_array().unwrap().iter().find(|tool| tool["name"] == "expanding").unwrap();
    assert_eq!(
        (&tool["annotations"]["readOnlyHint"], &tool["annotations"]["destructiveHint"]),
        (&json!(false), &json!(true))
    );
    for (tool, works) in [("command:note", true), ("files_write", false)] {
        let step = json!({ "id": "s", "tool": tool, "parameters": if works { json!({ "text": "x" }) } else { json!({ "path": "x", "content": "x" }) } });
        let plan = json!({ "name": "made", "steps": [step] });
        let id =
            host.begin("tools/call", json!({ "name": "expanding", "arguments": { "plan": plan } }));
        let asked = host.request("elicitation/create");
        host.reply(&asked, json!({ "action": "accept", "content": {} }));
        let result = host.answer(id)["result"].clone();
        assert_eq!(host.unread("elicitation/create"), 0);
        if works {
            value(&result);
        } else {
            assert!(error(&result).contains("was not declared"), "{}", text(&result));
        }
    }
    assert!(!world.path("x").exists());
}

/// Stopping Segue during a run leaves the run where it was: its calls are not failures.
#[cfg(unix)]
#[test]
fn a_run_is_left_where_it_was_when_segue_is_told_to_end() {
    let world = world("", &[("slow", SLOW)]);
    let (host, told) = ended_in_the_middle(&world, rustix::process::Signal::TERM);
    assert_eq!(host.leave(), Some(0));
    let mut host = Host::legacy(&world, &json!({}));
    let run = json!({ "run_id": told["_meta"]["segue/runId"], "wait_ms": 30_000 });
    assert_eq!(value(&host.call("run_get", run))["status"], "success");
}

/// A question that the host does not answer may be answered at the command line, and a run of one
/// process be ended through another.
#[test]
fn a_question_is_answered_elsewhere() {
    let ask = "name: ask\nsteps:\n  - { id: a, tool: echo, parameters: {} }\n  - { id: b, approve: { message: Well? }, depends_on: [a] }\noutput: { by: '{{ b.by }}' }\n";
    let world = world("", &[("ask", ask), ("slow", SLOW)]);
    let mut host = Host::legacy(&world, &forms());
    let id = host.begin(
        "tools/call",
        json!({ "name": "ask", "arguments": {}, "_meta": { "progressToken": 1 } }),
    );
    host.request("elicitation/create");
    let told = host.notification("notifications/progress")["params"].clone();
    let run_id = told["_meta"]["segue/runId"].as_str().unwrap().to_owned();
    world.segue(&["--config", "segue.yaml", "--store", "sqlite:s.db", "approve", &run_id]).exits(0);
    assert!(value(&host.answer(id)["result"])["by"].is_string());

    let id = host.begin(
        "tools/call",
        json!({ "name": "slow", "arguments": { "ms": 60_000 }, "_meta": { "progressToken": 2 } }),
    );
    let told = host.wait(|message| message["params"]["progressToken"] == 2)["params"].clone();
    let mut other = Host::modern(&world, &json!({}));
    let ended = value(&other.call("run_cancel", json!({ "run_id": told["_meta"]["segue/runId"] })));
    assert_eq!(ended["status"], "cancelled");
    assert!(error(&host.answer(id)["result"]).contains("cancelled"));
}
