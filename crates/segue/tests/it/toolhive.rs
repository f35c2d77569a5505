//! ToolHive's resources as their users have them: several in a file, definitions referred to by name, servers
//! of a group. The files of others are read where they are, beside the repository.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;

use crate::mcp::with_servers;
use crate::serve::host::{Host, value};
use crate::support::{Json, World, json, repository, step};

/// A file that ToolHive's makers publish as an example. `None` where it is not beside the repository.
fn real(name: &str) -> Option<String> {
    let folder = repository().join("../shared/real/toolhive").canonicalize().ok()?;
    Some(folder.join(name).display().to_string())
}

/// A server that has these tools, as an entry of the configuration.
fn server(world: &World, name: &str, tools: &Json) -> Json {
    let script = repository().join("crates/segue/tests/seeds/server.py").display().to_string();
    world.file(&format!("{name}.json"), tools.to_string());
    json!({ "command": "python3",
            "args": [script, format!("{name}.json"), format!("{name}.calls.jsonl")] })
}

/// What the server of this name was called with, in order.
fn calls(world: &World, name: &str) -> Vec<Json> {
    let text = fs::read_to_string(world.path(&format!("{name}.calls.jsonl"))).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A tool with these parameters, all texts and required, and these answers.
fn tool(parameters: &[&str], answers: &Json) -> Json {
    let properties: serde_json::Map<String, Json> =
        parameters.iter().map(|name| ((*name).to_owned(), json!({ "type": "string" }))).collect();
    let input = json!({ "type": "object", "properties": properties, "required": parameters,
                        "additionalProperties": false });
    json!({ "input": input, "answers": answers })
}

/// The servers of the published examples, with the tools that these call, and others that have tools of the same
/// short names and are not in their group.
fn world(compositions: &[&str]) -> World {
    let world = World::new();
    let fetch = json!({ "fetch": tool(&["url"], &json!([{ "body": "two words" }])) });
    let echo = tool(&["message"], &json!([{ "message": "$message" }]));
    let sse = json!({ "echo": echo, "add": tool(&["a", "b"], &json!([{ "result": 150 }])) });
    let streamable = json!({
        "sampleLLM": tool(&["prompt", "max_tokens"], &json!([{ "response": "alike" }])),
        "longecho": tool(&["message", "duration"], &json!([{ "message": "$message" }])),
    });
    let other = json!({ "fetch": tool(&["url"], &json!(["wrong server"])), "echo": echo });
    let servers = json!({
        "fetch": server(&world, "fetch", &fetch),
        "yardstick-sse": server(&world, "yardstick-sse", &sse),
        "yardstick-streamable": server(&world, "yardstick-streamable", &streamable),
        "other": server(&world, "other", &other),
    });
    let config = json!({ "mcpServers": servers, "compositions": compositions });
    world.file("segue.yaml", config.to_string());
    world
}

#[test]
fn the_simple_example_is_checked_converted_and_run() {
    let Some(file) = real("composite_tool_simple.yaml") else { return };
    let world = world(&[]);
    let report = world.json(0, &["check", &file, "--json"]);
    assert_eq!(report, json!({ "ok": true, "diagnostics": [] }));
    let view = world.json(0, &["run", &file, "-i", "url=http://a.test/x", "--yes", "--json"]);
    assert_eq!(
        (&view["name"], &view["dialect"]),
        (&json!("fetch_and_validate_data"), &json!("toolhive"))
    );
    assert_eq!(view["status"], "success");
    let content = "Fetched content from http://a.test/x: two words";
    assert_eq!(step(&view, "validate_content")["output"], json!({ "message": content }));
    let last = view["output"]["message"].as_str().unwrap();
    assert!(last.starts_with("Successfully fetched and validated data from http://a.test/x at 20"));
    assert_eq!(calls(&world, "fetch"), [json!({ "fetch": { "url": "http://a.test/x" } })]);
    assert_eq!(calls(&world, "yardstick-sse").len(), 2);
    assert_eq!(calls(&world, "other"), [] as [Json; 0], "a server outside the group was called");
    converts_to_the_same_plan(&world, &file);
}

#[test]
fn the_complex_example_is_checked_converted_and_run() {
    let Some(file) = real("composite_tool_complex.yaml") else { return };
    let world = world(&[]);
    let report = world.json(0, &["check", &file, "--json"]);
    assert_eq!(report, json!({ "ok": true, "diagnostics": [] }));
    let urls = ["-i", "source_url_1=http://a.test/1", "-i", "source_url_2=http://a.test/2"];
    let run = [&["run", &file, "--yes", "--json"], &urls[..]].concat();
    let view = world.json(0, &run);
    assert_eq!((&view["status"], &view["steps_executed"]), (&json!("success"), &json!(8)));
    let asked = &calls(&world, "yardstick-streamable")[0]["sampleLLM"]["prompt"];
    let prompt = "Analyze the following data sources and provide insights:\n\n\
                  Source 1: two words\nSource 2: two words\n\nMetrics: 150\n\n\n";
    assert_eq!(asked, prompt, "an absent parameter is an empty text");
    let report = calls(&world, "yardstick-streamable")[1]["longecho"]["message"].clone();
    let report = report.as_str().unwrap();
    assert!(
        report.contains("- Source 2: http://a.test/2") && report.contains("LLM Analysis:\nalike")
    );
    assert!(view["output"]["message"].as_str().unwrap().starts_with("Report generation completed"));
    converts_to_the_same_plan(&world, &file);
}

fn converts_to_the_same_plan(world: &World, file: &str) {
    let converted = world.segue(&["convert", file]).exits(0);
    assert!(!converted.stdout.contains("MCPServer:") && !converted.stdout.contains("kind:"));
    world.file("converted.yaml", &converted.stdout);
    let hash = |file: &str| world.json(0, &["plan", file, "--format", "json"])["hash"].clone();
    assert!(hash(file).is_string());
    assert_eq!(hash(file), hash("converted.yaml"), "{}", converted.stdout);
}

#[test]
fn the_examples_are_served_with_their_titles_and_hints() {
    let files = ["simple", "complex"].map(|kind| real(&format!("composite_tool_{kind}.yaml")));
    let [Some(simple), Some(complex)] = files else { return };
    let world = world(&[&simple, &complex]);
    let mut host = Host::legacy(&world, &json!({}));
    let tools = host.ask("tools/list", json!({}))["result"]["tools"].clone();
    let named = |name: &str| tools.as_array().unwrap().iter().find(|t| t["name"] == name).cloned();
    let simple = named("fetch_and_validate_data").unwrap();
    assert_eq!(simple["title"], "Fetch and Validate Data");
    assert_eq!(simple["annotations"]["openWorldHint"], true);
    assert_eq!(named("process_multi_source_data").unwrap()["title"], "process_multi_source_data");
    let result = host.call("fetch_and_validate_data", json!({ "url": "http://a.test/" }));
    let message = value(&result)["result"]["message"].as_str().unwrap().to_owned();
    assert!(message.starts_with("Successfully fetched and validated data from http://a.test/ at"));
}

/// The same file on servers of the public registries. A text has no `body`, so the reference stays, and the run
/// says so; ToolHive writes `<no value>`.
#[test]
fn the_simple_example_runs_on_published_servers() {
    let Some(file) = real("composite_tool_simple.yaml") else { return };
    let world = World::new();
    let config = json!({ "mcpServers": {
        "fetch": { "command": "mcp-server-fetch", "args": ["--ignore-robots-txt", "--allow-private-ips"] },
        "yardstick-sse": { "command": "mcp-server-everything", "args": ["stdio"] },
    } });
    world.file("segue.yaml", config.to_string());
    let url = format!("url={}", page("two words"));
    let view = with_servers(&world, &["run", &file, "-i", &url, "--yes", "--json"]).exits(0).json();
    assert_eq!(view["status"], "success");
    assert!(step(&view, "fetch_data")["output"].as_str().unwrap().contains("two words"), "{view}");
    let kept = "{{ steps.fetch_data.output.body }}";
    assert!(step(&view, "validate_content")["output"].to_string().contains(kept), "{view}");
    assert!(view["warnings"].to_string().contains("steps.fetch_data.output.body"), "{view}");
    // ToolHive calls the text of a tool `text`.
    let text = fs::read_to_string(&file)
        .unwrap()
        .replace("fetch_data.output.body", "fetch_data.output.text");
    world.file("text.yaml", text);
    let view =
        with_servers(&world, &["run", "text.yaml", "-i", &url, "--yes", "--json"]).exits(0).json();
    assert!(step(&view, "validate_content")["output"].to_string().contains("two words"), "{view}");
    assert_eq!(view["warnings"], json!([]), "{view}");
}

/// The address of a page with this text.
fn page(text: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{text}",
        text.len()
    );
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    format!("http://{address}/")
}

/// Two definitions, one virtual server that refers to both and holds a third tool, and its group.
const SEVERAL: &str = r#"
apiVersion: toolhive.stacklok.dev/v1alpha1
kind: MCPServer
metadata: { name: yardstick-sse }
spec: { groupRef: tools, image: yardstick }
---
apiVersion: toolhive.stacklok.dev/v1alpha1
kind: VirtualMCPCompositeToolDefinition
metadata: { name: say-once }
spec:
  name: say_once
  description: Says it
  steps: [{ id: say, type: tool, tool: yardstick-sse_echo, arguments: { message: once } }]
---
apiVersion: toolhive.stacklok.dev/v1alpha1
kind: VirtualMCPCompositeToolDefinition
metadata: { name: say-twice }
spec:
  name: say_twice
  description: Says it again
  steps:
    - { id: first, type: tool, tool: yardstick-sse.echo, arguments: { message: once } }
    - { id: second, tool: echo, dependsOn: [first], arguments: { message: "{{.steps.first.output.message}} more" } }
---
apiVersion: toolhive.stacklok.dev/v1alpha1
kind: VirtualMCPServer
metadata: { name: v }
spec:
  groupRef: { name: tools }
  compositeToolRefs: [{ name: say-once }, { name: say-twice }]
  config:
    compositeTools:
      - name: add_up
        description: Adds
        steps: [{ id: add, tool: add, arguments: { a: "1", b: "2" } }]
"#;

#[test]
fn a_file_with_several_tools_is_addressed_by_name() {
    let world = world(&[]);
    world.file("several.yaml", SEVERAL);
    for (name, expected) in [
        ("say_once", json!({ "message": "once" })),
        ("say-once", json!({ "message": "once" })),
        ("say_twice", json!({ "message": "once more" })),
        ("add_up", json!({ "result": 150 })),
    ] {
        let view = world.json(0, &["run", &format!("several.yaml#{name}"), "--yes", "--json"]);
        assert_eq!(view["output"], expected, "{name}");
    }
    assert_eq!(calls(&world, "other"), [] as [Json; 0]);
    let names = "`several.yaml` holds several compositions: `say_once`, `say_twice`, `add_up`";
    for command in ["run", "plan", "convert"] {
        let refused = world.segue(&[command, "several.yaml"]).exits(2);
        assert!(refused.stderr.contains(names), "{command}: {}", refused.stderr);
        assert!(refused.stderr.contains("several.yaml#say_once"), "{command}: {}", refused.stderr);
        let refused = world.segue(&[command, "several.yaml#say_thrice"]).exits(2);
        assert!(refused.stderr.contains("no composite tool `say_thrice`"), "{}", refused.stderr);
        assert!(refused.stderr.contains("did you mean `say_twice`?"), "{}", refused.stderr);
    }
    assert_eq!(world.json(0, &["check", "several.yaml", "--json"])["ok"], true);
    let converted = world.segue(&["convert", "several.yaml#say_twice"]).exits(0).stdout;
    assert!(
        converted.contains("name: say_twice") && !converted.contains("say_once"),
        "{converted}"
    );
    // A file with one composition has a name, too.
    world.file("one.yaml", "name: one\nsteps: [{ id: a, set: { x: 1 } }]\n");
    world.segue(&["run", "one.yaml#one"]).exits(0);
    let refused = world.segue(&["run", "one.yaml#two"]).exits(2);
    assert!(refused.stderr.contains("no composition `two`"), "{}", refused.stderr);
}

/// A run that waits for a person goes on with the tool of its file that it began with.
#[test]
fn a_run_of_one_of_several_tools_is_resumed() {
    let world = world(&[]);
    let asks = SEVERAL.replace(
        "- { id: first, type: tool",
        "- { id: ask, type: elicitation, message: go on? }\n    - { id: first, dependsOn: [ask], type: tool",
    );
    world.file("several.yaml", asks);
    let begun = world.segue(&["run", "several.yaml#say_twice", "--json"]);
    let id = begun.json()["run_id"].as_str().unwrap().to_owned();
    assert_eq!(begun.json()["status"], "waiting", "{begun:?}");
    fs::remove_file(world.path("several.yaml")).unwrap();
    let view = world.json(0, &["resume", &id, "--yes", "--json"]);
    assert_eq!(view["output"], json!({ "message": "once more" }), "{view}");
}

#[test]
fn configured_files_serve_all_their_tools_and_those_they_refer_to() {
    let documents: Vec<&str> = SEVERAL.split("---\n").collect();
    let [server, once, twice, virtual_server] = documents.as_slice() else { panic!() };
    // The definitions are in another configured file, and in one beside it.
    let world = world(&["v.yaml", "lib/once.yaml"]);
    world.file("v.yaml", format!("{server}---\n{virtual_server}"));
    world.file("lib/once.yaml", once);
    world.file("twice.yaml", twice);
    let tools = world.json(0, &["tools", "--json"]);
    let listed = tools.to_string();
    for name in ["composition:say_once", "composition:say_twice", "composition:add_up"] {
        assert!(listed.contains(name), "no {name}");
    }
    let view = world.json(0, &["run", "say_twice", "--yes", "--json"]);
    assert_eq!(view["output"], json!({ "message": "once more" }));
    world.json(0, &["run", "v.yaml#say-twice", "--yes", "--json"]);
    fs::remove_file(world.path("twice.yaml")).unwrap();
    let report = world.json(2, &["check", "--json"]);
    let found = report["diagnostics"].as_array().unwrap();
    let about = |finding: &&Json| finding["message"].as_str().unwrap().contains("`say-twice`");
    let finding = found.iter().find(about).unwrap_or_else(|| panic!("{report}"));
    assert_eq!(
        (&finding["code"], &finding["line"], &finding["column"]),
        (&json!("not-found"), &json!(12), &json!(51))
    );
}

#[test]
fn findings_have_the_place_in_the_whole_file() {
    let world = world(&[]);
    world.file(
        "several.yaml",
        SEVERAL.replace("tool: yardstick-sse.echo", "tool: yardstick-sse.ecco"),
    );
    let report = world.json(2, &["check", "several.yaml", "--json"]);
    let found = report["diagnostics"].as_array().unwrap();
    assert_eq!(found.len(), 1, "{report}");
    assert_eq!((&found[0]["line"], &found[0]["column"]), (&json!(22), &json!(38)), "{report}");
    // Other dialects have one document a file.
    world.file("two.yaml", "name: a\nsteps: [{ id: a, set: { x: 1 } }]\n---\nname: b\nsteps: []\n");
    let report = world.json(2, &["check", "two.yaml", "--json"]);
    let finding = &report["diagnostics"][0];
    assert_eq!(
        (&finding["message"], &finding["line"]),
        (&json!("a second document begins here"), &json!(3))
    );
    world.file("mixed.yaml", format!("{SEVERAL}---\nname: b\nsteps: []\n"));
    let report = world.json(2, &["check", "mixed.yaml", "--json"]);
    let message = report["diagnostics"][0]["message"].as_str().unwrap();
    assert_eq!(message, "this document is no resource, and others in the file are");
    assert_eq!(report["diagnostics"].as_array().unwrap().len(), 1, "{report}");
}

/// Hints that promise too much are warned of, and clients see the effects of the calls.
#[test]
fn hints_do_not_hide_effects() {
    let world = world(&["hinted.yaml"]);
    let text = SEVERAL.split("---\n").nth(1).unwrap();
    let hints =
        "  annotations: { title: Say, readOnlyHint: true, idempotentHint: false }\n  steps:";
    world.file("hinted.yaml", text.replace("  steps:", hints));
    let report = world.json(0, &["check", "hinted.yaml", "--json"]);
    let finding = &report["diagnostics"][0];
    assert_eq!(finding["severity"], "warning");
    let message = "`readOnlyHint: true` is not true of its calls: `yardstick-sse:echo` writes";
    assert_eq!(finding["message"], message);
    let mut host = Host::legacy(&world, &json!({}));
    let tools = host.ask("tools/list", json!({}))["result"]["tools"].clone();
    let tool = tools.as_array().unwrap().iter().find(|tool| tool["name"] == "say_once").unwrap();
    assert_eq!(
        (&tool["title"], &tool["annotations"]["readOnlyHint"]),
        (&json!("Say"), &json!(false))
    );
}
