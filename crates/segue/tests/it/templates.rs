//! The template library: the shipped templates work as described, and users store their own.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};

use serde_json::{Value as Json, json};

use crate::mcp::with_servers;
use crate::support::{World, files_below, repository};

/// Two notes, a log, a table and a changelog.
fn world() -> World {
    let world = World::new();
    world.file("segue.yaml", "builtins: { http: { allow: ['127.0.0.1:*'] } }\n");
    world.file("notes/a.md", "# Sun\nTODO: write\nHello sun. It is warm.\n");
    world.file("notes/b.md", "# Moon\nFIXME later\nHello moon. It is cold.\n");
    world.file("app.log", "1 ERROR: boom\n2 INFO fine\n3 ERROR: bang\n4 FATAL boom\n");
    world.file("rows.json", r#"[{"n":1,"name":"one"},{"n":2}]"#);
    world.file("CHANGELOG.md", "# Changes\n\n## Unreleased\n\n- old\n");
    world
}

/// The view of a run.
#[track_caller]
fn view(world: &World, code: i32, args: &[&str]) -> Json {
    world.json(code, &[&["--json"], args].concat())
}

fn output(world: &World, args: &[&str]) -> Json {
    view(world, 0, &[&["templates", "run"], args, &["--yes"]].concat())["output"].clone()
}

fn read(world: &World, name: &str) -> String {
    fs::read_to_string(world.path(name)).unwrap()
}

/// S0-69, S0-70, S0-71, S0-72, S0-73: four categories, more than ten templates, each valid and with
/// everything that a template has (S0-61, S0-62, S0-63, S0-65, S0-67).
#[test]
fn the_library_is_whole() {
    let world = World::new();
    let listed = world.json(0, &["templates", "--json"]);
    let listed = listed["templates"].as_array().unwrap();
    let files = files_below(&repository().join("templates"), &["yaml"]);
    assert_eq!(listed.len(), files.len(), "every file is shipped");
    assert!(listed.len() >= 14);
    let categories: BTreeSet<&str> =
        listed.iter().map(|t| t["metadata"]["category"].as_str().unwrap()).collect();
    assert_eq!(
        categories,
        BTreeSet::from(["analysis", "automation", "context-management", "integration"])
    );
    for template in listed {
        let id = template["id"].as_str().unwrap();
        assert!(!template["name"].as_str().unwrap().is_empty(), "{id}");
        assert!(!template["description"].as_str().unwrap().is_empty(), "{id}");
        assert!(!template["metadata"]["tags"].as_array().unwrap().is_empty(), "{id}");
        assert!(template["metadata"]["estimated_duration_ms"].is_u64(), "{id}");
        assert!(!template["validation"]["required_tools"].as_array().unwrap().is_empty(), "{id}");
        assert_eq!(template["validation"]["min_version"], "1.0.0", "{id}");
        assert!(template.get("composition").is_none(), "a list is short");
        let file = repository().join(format!("templates/{id}.yaml"));
        if template["metadata"]["server"].is_null() {
            world.segue(&["check", file.to_str().unwrap()]).exits(0);
        }
        let shown = world.json(0, &["templates", "show", id, "--json"]);
        assert!(shown["composition"]["steps"].is_array(), "{id}");
    }
}

/// A library template calls the built-in tools also where a configured tool has the same short name. The
/// template of the document is the exception: there a configured tool is meant to win.
#[test]
fn library_templates_call_built_in_tools_whatever_else_is_configured() {
    let world = World::new();
    let tools = world.json(0, &["tools", "--json"]);
    let names = tools["tools"].as_array().unwrap().iter();
    let names = names.map(|tool| tool["id"].as_str().unwrap().strip_prefix("builtin:").unwrap());
    let command =
        json!({ "argv": ["true"], "input": { "type": "object", "required": ["message"] } });
    let commands: serde_json::Map<String, Json> =
        names.map(|name| (name.to_owned(), command.clone())).collect();
    world.file("mine.yaml", json!({ "commands": commands }).to_string());
    let listed = world.json(0, &["templates", "--json"]);
    let own = listed["templates"].as_array().unwrap().iter().filter(|template| {
        template["metadata"]["server"].is_null() && template["id"] != "search-fold-store-v1"
    });
    for template in own {
        let id = template["id"].as_str().unwrap();
        let file = repository().join(format!("templates/{id}.yaml"));
        let args = ["--config", "mine.yaml", "check", file.to_str().unwrap()];
        let checked = world.segue(&args).exits(0).stderr;
        assert!(checked.contains("nothing found"), "{id}: {checked}");
    }
}

/// S0-61…65, S0-67: the template of the document is read back with everything that it says. Its
/// figures of use are those of this store.
#[test]
fn the_template_of_the_document_is_whole() {
    let seeds = repository().join("crates/segue/tests/seeds");
    let block = |name: &str| fs::read_to_string(seeds.join(name).join("block.json")).unwrap();
    let composition = block("000-composition");
    let text = block("000-template").replace("{ /* full composition object */ }", &composition);
    let world = World::new();
    world.file("seed.json", text);
    world.file("segue.yaml", "templates: [seed.json]\n");
    let shown = world.json(0, &["templates", "show", "search-fold-store-v1", "--json"]);
    assert_eq!(shown["origin"], "file");
    assert_eq!(shown["name"], "Search, Fold, and Store");
    assert_eq!(shown["description"], "Complete workflow for context optimization");
    assert_eq!(shown["composition"], serde_json::from_str::<Json>(&composition).unwrap());
    let metadata = json!({
        "category": "context-management", "tags": ["search", "folding", "storage"],
        "estimated_duration_ms": 500, "success_rate": null, "usage_count": 0,
    });
    assert_eq!(shown["metadata"], metadata);
    let tools = json!(["checkpoint_search", "context_fold", "checkpoint_save"]);
    assert_eq!(shown["validation"], json!({ "required_tools": tools, "min_version": "1.0.0" }));
    view(&world, 0, &["templates", "run", "search-fold-store-v1", "-i", "query=x", "--yes"]);
    let shown = world.json(0, &["templates", "show", "search-fold-store-v1", "--json"]);
    let metadata = &shown["metadata"];
    assert_eq!((&metadata["usage_count"], &metadata["success_rate"]), (&json!(1), &json!(1.0)));
}

/// S0-01: search, fold and store, end to end.
#[test]
fn templates_of_context_management() {
    let world = world();
    let kept = output(&world, &["remember-folder-v1", "-i", "folder=notes"]);
    assert_eq!(kept["kept"], 2);
    let brief = output(&world, &["recall-brief-v1", "-i", r#"subjects:=["sun","moon"]"#]);
    assert_eq!(brief, json!({ "path": "brief.md", "sections": 2 }));
    let text = read(&world, "brief.md");
    assert!(text.contains("## sun\n\n") && text.contains("It is cold."), "{text}");
    // Search, fold, store.
    let stored = output(&world, &["search-fold-store-v1", "-i", "query=sun"]);
    assert_eq!(stored["read"], 1);
    // It asks once, and no is no.
    let merge =
        ["templates", "run", "merge-checkpoints-v1", "-i", "tag=notes", "-i", "query=hello"];
    assert_eq!(view(&world, 3, &merge)["steps_executed"], 0);
    let merged = output(&world, &["merge-checkpoints-v1", "-i", "tag=notes", "-i", "query=hello"]);
    assert_eq!(merged["merged"], 2);
    // The old ones are gone: there is nothing left to merge.
    let again =
        ["templates", "run", "merge-checkpoints-v1", "-i", "tag=notes", "-i", "query=hello"];
    let view = view(&world, 1, &[&again[..], &["--yes"]].concat());
    assert_eq!(view["status"], "failed", "one checkpoint cannot be merged");
}

#[test]
fn templates_of_analysis() {
    let world = world();
    let report = output(&world, &["folder-report-v1", "-i", "folder=notes"]);
    assert_eq!(report, json!({ "files": 2, "report": "report.md" }));
    assert!(read(&world, "report.md").contains("## notes/b.md"));
    let errors = output(&world, &["log-errors-v1", "-i", "log=app.log"]);
    assert_eq!(errors["errors"], 3);
    assert_eq!(errors["kinds"][0], json!({ "message": "boom", "count": 2 }));
    assert!(read(&world, "errors.md").contains("- 2 × boom\n- 1 × bang\n"));
    let compared = ["compare-files-v1", "-i", "left=notes/a.md", "-i", "right=notes/b.md"];
    let compared = output(&world, &compared);
    assert_eq!((&compared["equal"], &compared["left"]["lines"]), (&json!(false), &json!(3)));
    assert_eq!(compared["only_right"][0], "# Moon");
    let table = ["json-table-v1", "-i", "file=rows.json", "-i", r#"columns:=["n","name"]"#];
    assert_eq!(output(&world, &table)["rows"], 2);
    assert_eq!(read(&world, "table.md"), "| n | name |\n|---|---|\n| 1 | one |\n| 2 |  |\n");
}

#[test]
fn templates_of_automation() {
    let world = world();
    let copied = output(&world, &["copy-folder-v1", "-i", "from=notes", "-i", "to=copy"]);
    assert_eq!(copied, json!({ "files": 2, "listing": "copy/COPIED.md", "skipped": [] }));
    assert_eq!(read(&world, "copy/a.md"), read(&world, "notes/a.md"));
    let replace = ["replace-in-files-v1", "-i", "folder=copy", "-i", "find=Hello"];
    let replaced = output(&world, &[&replace[..], &["-i", "replace=Bye"]].concat());
    assert_eq!((&replaced["files"], &replaced["replacements"]), (&json!(2), &json!(2)));
    assert!(read(&world, "copy/b.md").contains("Bye moon"));
    assert!(read(&world, "notes/b.md").contains("Hello moon"));
    output(&world, &["changelog-entry-v1", "-i", "entry=new"]);
    assert_eq!(read(&world, "CHANGELOG.md"), "# Changes\n\n## Unreleased\n\n- new\n- old\n");
    let todos = output(&world, &["collect-todos-v1", "-i", "folder=notes"]);
    assert_eq!(todos["files"], 2);
    assert_eq!(read(&world, "TODO.md"), "# To do\n\n- notes/a.md: write\n- notes/b.md: later\n");
}

/// Folders in folders are no texts, and what is no text is left out and named.
#[test]
fn folders_hold_more_than_texts() {
    let world = world();
    world.file("notes/deep.md/c.md", "TODO: dig\nHello deep\n");
    world.file("notes/picture.md", [0xff, 0xfe, 0x00]);
    let skipped = json!(["notes/picture.md"]);
    let todos = output(&world, &["collect-todos-v1", "-i", "folder=notes"]);
    assert_eq!((&todos["files"], &todos["skipped"]), (&json!(3), &skipped));
    let copied = output(&world, &["copy-folder-v1", "-i", "from=notes", "-i", "to=copy"]);
    assert_eq!((&copied["files"], &copied["skipped"]), (&json!(2), &skipped));
    assert!(!read(&world, "copy/COPIED.md").contains("picture"));
    let replace = ["replace-in-files-v1", "-i", "folder=notes", "-i", "find=Hello"];
    let replaced = output(&world, &[&replace[..], &["-i", "replace=Bye"]].concat());
    assert_eq!((&replaced["files"], &replaced["skipped"]), (&json!(3), &skipped));
    let kept = output(&world, &["remember-folder-v1", "-i", "folder=notes"]);
    assert_eq!((&kept["kept"], &kept["skipped"]), (&json!(3), &skipped));
    std::fs::remove_file(world.path("notes/picture.md")).unwrap();
    assert_eq!(output(&world, &["folder-report-v1", "-i", "folder=notes"])["files"], 2);
}

/// A cell keeps to its cell.
#[test]
fn a_table_is_one_whatever_is_in_it() {
    let world = world();
    world.file("rows.json", r#"[{"a|b":"x|y\nz"}]"#);
    output(&world, &["json-table-v1", "-i", "file=rows.json", "-i", r#"columns:=["a|b"]"#]);
    assert_eq!(read(&world, "table.md"), "| a\\|b |\n|---|\n| x\\|y<br>z |\n");
}

/// What a small service has, and every request that it got.
#[derive(Default)]
struct Service {
    records: Vec<Json>,
    asked: Vec<String>,
    /// Refuses to create the record of this id.
    refuses: Option<i64>,
}

/// A service of records at `/records`, and of others at `/others`, until the test ends.
fn service(state: Service) -> (SocketAddr, Arc<Mutex<Service>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let shared = Arc::new(Mutex::new(state));
    let state = shared.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let (mut line, mut length) = (String::new(), 0);
            reader.read_line(&mut line).unwrap();
            loop {
                let mut header = String::new();
                reader.read_line(&mut header).unwrap();
                let (name, value) = header.split_once(':').unwrap_or(("", ""));
                if name.eq_ignore_ascii_case("content-length") {
                    length = value.trim().parse().unwrap();
                }
                if header.trim().is_empty() {
                    break;
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let (status, answer) = state.lock().unwrap().answer(&line, &body);
            let answer = answer.to_string();
            let head = "content-type: application/json\r\nconnection: close";
            let length = answer.len();
            write!(
                stream,
                "HTTP/1.1 {status} x\r\n{head}\r\ncontent-length: {length}\r\n\r\n{answer}"
            )
            .unwrap();
        }
    });
    (at, shared)
}

impl Service {
    fn answer(&mut self, line: &str, body: &[u8]) -> (u16, Json) {
        let mut words = line.split(' ');
        let (method, path) = (words.next().unwrap(), words.next().unwrap());
        self.asked.push(format!("{method} {path}"));
        match (method, path) {
            ("GET", "/others") => (200, json!([{ "id": 1 }, { "id": 2 }, { "id": 3 }])),
            ("GET", _) => (200, json!(self.records)),
            ("POST", _) => {
                let record: Json = serde_json::from_slice(body).unwrap();
                if record["id"].as_i64().is_some_and(|id| Some(id) == self.refuses) {
                    return (409, json!({ "no": record }));
                }
                self.records.push(record);
                (201, json!({}))
            }
            ("DELETE", path) => {
                let id: i64 = path.rsplit('/').next().unwrap().parse().unwrap();
                self.records.retain(|record| record["id"] != id);
                (200, json!({}))
            }
            _ => (404, json!({})),
        }
    }
}

#[test]
fn templates_of_integration() {
    let world = world();
    let (at, state) = service(Service { records: vec![json!({ "id": 1 })], ..Service::default() });
    let records = format!("http://{at}/records");
    let url = format!("url={records}");
    assert_eq!(output(&world, &["wait-until-up-v1", "-i", &url])["status"], 200);
    let fetch = ["fetch-json-v1", "-i", &url, "-i", "select=.[0].id", "-i", "path=out/first.json"];
    output(&world, &fetch);
    assert_eq!(read(&world, "out/first.json"), "1\n");
    let (from, to) = (format!("from=http://{at}/others"), format!("to={records}"));
    let synced = output(&world, &["sync-records-v1", "-i", &from, "-i", &to]);
    assert_eq!(synced, json!({ "created": 2, "keys": [2, 3] }));
    let posted = output(&world, &["folder-to-webhook-v1", "-i", "folder=notes", "-i", &url]);
    assert_eq!(posted, json!({ "status": 201, "files": 2 }));
    let hooked = state.lock().unwrap().records.pop().unwrap();
    assert_eq!((&hooked["folder"], &hooked["files"]), (&json!("notes"), &json!(2)));
    // The created record is rolled back when the service refuses the next one.
    *state.lock().unwrap() = Service { refuses: Some(2), ..Service::default() };
    let sync = ["templates", "run", "sync-records-v1", "-i", &from, "-i", &to, "--yes"];
    let view = view(&world, 1, &sync);
    assert_eq!(view["status"], "rolled_back", "{view}");
    let state = state.lock().unwrap();
    assert!(state.records.is_empty(), "{:?}", state.records);
    assert_eq!(state.asked.last().unwrap(), "DELETE /records/1");
}

#[test]
fn templates_over_real_servers() {
    let world = world();
    let servers = "mcpServers:\n  git: { command: mcp-server-git }\n  memory: { command: mcp-server-memory, env: { MEMORY_FILE_PATH: '${MEMORY_FILE}' } }\n";
    world.file("segue.yaml", servers);
    for args in [&["init", "-q", "."][..], &["add", "."], &["commit", "-qm", "first words"]] {
        let mut git = world.command("git");
        git.args(["-c", "user.name=A", "-c", "user.email=a@localhost"]).args(args);
        assert!(git.status().unwrap().success());
    }
    let run = ["run", "git-digest-v1", "-i", "repository=.", "--yes"];
    with_servers(&world, &run).exits(0);
    assert!(read(&world, "digest.md").contains("first words"));
    let run = ["--json", "run", "notes-to-graph-v1", "-i", "folder=notes", "--yes"];
    let done = with_servers(&world, &run).exits(0).json();
    assert_eq!(done["output"]["notes"], json!(["notes/a.md", "notes/b.md"]));
    assert!(read(&world, "memory.json").contains("Moon"));
}

/// S0-64: how often a template was used and how well that went is counted by its runs.
#[test]
fn use_and_success_are_counted() {
    let world = world();
    let metadata = || {
        let shown = world.json(0, &["templates", "show", "compare-files-v1", "--json"]);
        shown["metadata"].clone()
    };
    assert_eq!(
        (&metadata()["usage_count"], &metadata()["success_rate"]),
        (&json!(0), &json!(null))
    );
    let run = |left: &str, code| {
        let left = format!("left={left}");
        let args = ["templates", "run", "compare-files-v1", "-i", &left, "-i", "right=notes/b.md"];
        view(&world, code, &args)
    };
    run("notes/a.md", 0);
    run("notes/b.md", 0);
    run("notes/b.md", 0);
    run("missing.md", 1);
    // Another composition of the same name is none of its runs.
    world.file(
        "c.yaml",
        "name: compare-files\nsteps: [ { id: a, tool: files_read, parameters: { path: no } } ]\n",
    );
    view(&world, 1, &["run", "c.yaml"]);
    assert_eq!(
        (&metadata()["usage_count"], &metadata()["success_rate"]),
        (&json!(4), &json!(0.75))
    );
    let listed = world.segue(&["templates", "list", "--search", "compare lines"]).exits(0);
    assert!(listed.stdout.contains("4× 75%"), "{}", listed.stdout);
}

/// S0-99: what runs have shown is used: of templates that match equally well, the one that succeeded
/// more often comes first; failures count for nothing.
#[test]
fn what_worked_is_found_first() {
    let world = World::new();
    for id in ["greet-a", "greet-b", "greet-c"] {
        let text = format!(
            "id: {id}\nname: Greeting\ncomposition: {{ name: {id}, steps: [{{ id: a, tool: fail, parameters: {{ message: 'no' }}, when: '{{{{ input.fails | default(false) }}}}' }}] }}\n"
        );
        world.file("t.yaml", text);
        world.segue(&["templates", "add", "t.yaml"]).exits(0);
    }
    let found = || {
        let listed = world.json(0, &["templates", "list", "--search", "greeting", "--json"]);
        let templates = listed["templates"].as_array().unwrap();
        templates.iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(found(), ["greet-a", "greet-b", "greet-c"]);
    view(&world, 0, &["templates", "run", "greet-c"]);
    view(&world, 0, &["templates", "run", "greet-c"]);
    view(&world, 0, &["templates", "run", "greet-b"]);
    for _ in 0..3 {
        view(&world, 1, &["templates", "run", "greet-a", "-i", "fails:=true"]);
    }
    assert_eq!(found(), ["greet-c", "greet-b", "greet-a"]);
}

/// S0-74, S0-95: people's own templates, in the store and in files that the configuration names.
#[test]
fn people_keep_their_own() {
    let world = World::new();
    let template = "id: mine\nname: Mine\ncomposition: { name: mine, steps: [{ id: a, tool: echo, parameters: { x: 1 } }] }\n";
    world.file("mine.yaml", template);
    world.segue(&["templates", "add", "mine.yaml"]).exits(0);
    let again = world.segue(&["templates", "add", "mine.yaml"]).exits(2);
    assert!(again.stderr.contains("--replace"), "{}", again.stderr);
    world.segue(&["templates", "add", "mine.yaml", "--replace"]).exits(0);
    let shown = world.json(0, &["templates", "show", "mine", "--json"]);
    assert_eq!(shown["origin"], "store");
    assert_eq!(shown["validation"]["required_tools"], json!(["builtin:echo"]), "read off its plan");
    assert_eq!(view(&world, 0, &["run", "mine"])["output"]["a"], json!({ "x": 1 }));
    world.segue(&["templates", "remove", "mine"]).exits(0);
    world.segue(&["templates", "show", "mine"]).exits(2);
    let shipped = world.segue(&["templates", "remove", "log-errors-v1"]).exits(2);
    assert!(shipped.stderr.contains("not in the store"), "{}", shipped.stderr);
    // A file of the project.
    world.file("segue.yaml", "templates: ['mine.yaml', 'other.yaml']\n");
    world.file("other.yaml", "steps: []\n");
    let listed = world.segue(&["templates", "list", "--search", "mine"]).exits(0);
    assert!(listed.stdout.starts_with("mine "), "{}", listed.stdout);
    assert!(listed.stderr.contains("other.yaml` is not a template"), "{}", listed.stderr);
    let taken = world.segue(&["templates", "add", "mine.yaml"]).exits(2);
    assert!(taken.stderr.contains("choose another id"), "{}", taken.stderr);
}

/// S0-66, S0-68: what a template needs and is not there is said before anything runs.
#[test]
fn what_a_template_needs_is_checked() {
    let world = World::new();
    let template = |validation: &str| {
        format!(
            "id: t\nvalidation: {validation}\ncomposition: {{ name: t, steps: [{{ id: a, tool: echo }}] }}\n"
        )
    };
    for (validation, code, words) in [
        ("{ required_tools: [echo, crm_find] }", "unknown-tool", "crm_find"),
        ("{ min_version: 1.0.1 }", "unsupported", "version 1.0.1"),
        ("{ min_version: soon }", "invalid-field", "semantic version"),
        ("{ min_versoin: 1.0.0 }", "invalid-field", "min_versoin"),
    ] {
        world.file("t.yaml", template(validation));
        let checked = world.json(2, &["check", "t.yaml", "--json"]);
        let finding = &checked["diagnostics"][0];
        assert_eq!(finding["code"], code, "{finding}");
        assert!(finding["message"].as_str().unwrap().contains(words), "{finding}");
        assert_eq!(finding["line"], 2, "{finding}");
        let run = view(&world, 2, &["run", "t.yaml"]);
        assert_eq!(run["steps_executed"], 0);
    }
    world.file("t.yaml", template("{ required_tools: [echo], min_version: 0.9.9 }"));
    world.segue(&["check", "t.yaml"]).exits(0);
}
