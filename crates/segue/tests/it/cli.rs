//! The command line as people meet it: lists of runs, short ids, help, completion.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use crate::support::{Done, Json, SEGUE, World, json};

const NOTE: &str = "
name: note
steps:
  - { id: save, tool: checkpoint_save, parameters: { content: kept } }
  - { id: say, tool: echo, parameters: { id: '{{ save.id }}' } }
";

/// A run whose process died is not listed as running, and the list names the command that resumes it.
#[test]
fn a_run_without_its_process_is_listed_as_interrupted() {
    let world = World::with(NOTE);
    world.segue(&["run", "c.yaml", "-q", "--inject", "crash-after=2"]);
    let listed = world.segue(&["runs"]).exits(0);
    assert!(listed.stdout.contains("  interrupted  "), "{listed:?}");
    assert!(listed.stderr.contains("`segue resume RUN`"), "{listed:?}");
    let shown = world.segue(&["runs", "show", "last"]).exits(0).stdout;
    assert!(shown.lines().next().unwrap().ends_with("interrupted"), "{shown}");
    assert!(shown.contains("no process is running it; `segue resume "), "{shown}");
    let run = &world.json(0, &["runs", "--json"])["runs"][0];
    assert_eq!((&run["status"], &run["interrupted"]), (&json!("running"), &json!(true)));
    assert_eq!(world.json(0, &["runs", "show", "last", "--json"])["interrupted"], true);
    world.segue(&["resume", "last"]).exits(0);
    let listed = world.segue(&["runs"]).exits(0);
    assert!(listed.stdout.contains("  success  ") && listed.stderr.is_empty(), "{listed:?}");
    assert_eq!(world.json(0, &["runs", "show", "last", "--json"])["interrupted"], false);
}

/// `segue runs` prints short ids, and every command that takes a run takes them. A text that fits several
/// runs is refused with their ids.
#[test]
fn runs_have_short_ids() {
    let world = World::with(NOTE);
    for _ in 0..3 {
        world.run(0, &[]);
    }
    let listed = world.segue(&["runs"]).exits(0).stdout;
    let short: Vec<&str> = listed.lines().map(|line| line.split(' ').next().unwrap()).collect();
    let all = world.json(0, &["runs", "--json"]);
    assert_eq!(short.len(), 3);
    for (short, run) in short.iter().zip(all["runs"].as_array().unwrap()) {
        let id = run["run_id"].as_str().unwrap();
        assert!((8..30).contains(&short.len()) && id.starts_with(short), "{short} {id}");
        assert_eq!(world.json(0, &["runs", "show", short, "--json"])["run_id"], run["run_id"]);
    }
    world.segue(&["runs", "compare", short[0], short[1]]).exits(0);
    world.segue(&["rollback", short[0]]).exits(0);
    world.segue(&["run", "--from", "say", "--run", short[1]]).exits(0);
    // Every run of today begins with these.
    let refused = world.segue(&["runs", "show", &short[0][..4]]).exits(2).stderr;
    assert!(refused.contains("means 4 runs, write more of the id: "), "{refused}");
    for run in all["runs"].as_array().unwrap() {
        assert!(refused.contains(run["run_id"].as_str().unwrap()), "{refused}");
    }
}

/// What a shell offers for a command line that ends in this text.
fn offered(world: &World, words: &[&str]) -> Vec<String> {
    let mut command = world.command(SEGUE);
    let index = words.len().to_string();
    let env = [("SEGUE_COMPLETE", "bash"), ("_CLAP_COMPLETE_INDEX", &index), ("_CLAP_IFS", "\n")];
    command.envs(env).env("_CLAP_COMPLETE_COMP_TYPE", "9").env("_CLAP_COMPLETE_SPACE", "true");
    let done = Done::of(command.args(["--", "segue"]).args(words).output().unwrap()).exits(0);
    assert!(done.stderr.is_empty(), "{done:?}");
    done.stdout.lines().map(str::to_owned).collect()
}

/// Completion offers commands, configured compositions, files and runs.
#[test]
fn shells_complete_names_and_runs() {
    let world = World::with(NOTE);
    world.file("segue.yaml", "compositions: [c.yaml]\n");
    let id = world.run(0, &[])["run_id"].as_str().unwrap().to_owned();
    assert_eq!(offered(&world, &["res"]), ["resume"]);
    assert_eq!(offered(&world, &["run", "no"]), ["note"]);
    assert_eq!(offered(&world, &["plan", "c"]), ["c.yaml"]);
    for command in ["resume", "cancel", "rollback", "approve"] {
        assert_eq!(offered(&world, &[command, &id[..4]]), [&*id], "{command}");
    }
    assert_eq!(offered(&world, &["runs", "show", "la"]), ["last"]);
    // A store that is not there is not created.
    let empty = World::new();
    assert_eq!(offered(&empty, &["resume", "0"]), Vec::<String>::new());
}

/// The overview groups the commands; the help of a command shows its own options first.
#[test]
fn help_is_grouped() {
    let world = World::new();
    for flag in ["-h", "--help"] {
        let help = world.segue(&[flag]).exits(0).stdout;
        let titles = ["Start:", "Write and check:", "Run:", "Look at runs", "Tools and hosts:"];
        let places: Vec<usize> = titles.iter().map(|title| help.find(title).unwrap()).collect();
        assert!(places.is_sorted() && !help.contains("Commands:"), "{help}");
        let check = help.find("\n  check ").unwrap();
        assert!(places[1] < check && check < places[2], "{help}");
    }
    let help = world.segue(&["run", "--help"]).exits(0).stdout;
    let titles = ["Input:", "Calls and failures:", "Results and tests:", "Global options:"];
    let places: Vec<usize> = titles.iter().map(|title| help.find(title).unwrap()).collect();
    assert!(places.is_sorted(), "{help}");
    let refused = world.segue(&["run", "x.yaml", "folder=in"]).exits(2).stderr;
    assert!(refused.contains("to give an input, use '-i folder=in'"), "{refused}");
    for other in [["run", "x.yaml", "folder"], ["check", "x.yaml", "--folder=in"]] {
        let refused = world.segue(&other).exits(2).stderr;
        assert!(!refused.contains("to give an input"), "{refused}");
    }
    // A wrong call shows the overview, too.
    assert!(world.segue(&[]).exits(2).stderr.contains("Write and check:"));
}

const ASK_TWICE: &str = "
name: ask
steps:
  - { id: save, tool: checkpoint_save, parameters: { content: kept } }
  - { id: ask, approve: { message: 'go on?' }, depends_on: [save] }
  - { id: drop, tool: checkpoint_delete, parameters: { id: '{{ save.id }}' }, depends_on: [ask] }
";

/// `--yes` of `resume` and `approve` approves what `run --yes` approves.
#[test]
fn stored_runs_take_yes() {
    let world = World::with(ASK_TWICE);
    world.run(3, &[]);
    world.segue(&["approve", "last"]).exits(3);
    assert_eq!(world.json(0, &["approve", "last", "--yes", "--json"])["status"], "success");
    world.run(3, &[]);
    let resumed = world.json(0, &["resume", "last", "--yes", "--json"]);
    assert_eq!(resumed["status"], "success", "{resumed:#}");
    assert_ne!(resumed["results"]["ask"]["by"], "approval in advance");
    // What a person must find out stays open.
    let world = World::with(NOTE);
    world.run(3, &["--inject", "lost=save"]);
    world.segue(&["resume", "last", "--yes"]).exits(3);
}

/// `rollback --yes` approves the rollback's own calls.
#[test]
fn a_rollback_takes_yes() {
    let world = World::with(
        "name: c\nsteps:\n  - { id: save, tool: checkpoint_save, parameters: { content: kept } }\n",
    );
    world.run(0, &[]);
    let view = world.json(0, &["rollback", "last", "--yes", "--json"]);
    assert_eq!(view["status"], "rolled_back", "{view:#}");
}

/// `resume --json` of a run that has ended prints its view, with the exit code of its status.
#[test]
fn resuming_an_ended_run_prints_its_view() {
    let world = World::with(NOTE);
    let ran = world.run(0, &[]);
    let done = world.segue(&["resume", "last", "--json"]).exits(0);
    assert_eq!((&done.json()["run_id"], &done.json()["output"]), (&ran["run_id"], &ran["output"]));
    assert!(done.stderr.contains("has ended already"), "{done:?}");
    world.segue(&["resume", "last"]).exits(1);
}

/// Without a terminal a run says before its first step which calls it will deny, and what allows them.
#[test]
fn denied_calls_are_named_before_the_run_starts() {
    let world = World::with("name: c\nsteps: [{ id: a, tool: touch }]\n");
    world.file("segue.yaml", "commands:\n  touch: { argv: [touch, made] }\n");
    let denied = world.segue(&["run", "c.yaml"]).exits(3).stderr;
    let warned = denied.find("there is no terminal to ask at").unwrap();
    assert!(warned < denied.find("[a]").unwrap(), "{denied}");
    for part in ["touch` (effect unknown: it has no annotations)", "`--yes`", "confirm: never"] {
        assert!(denied.contains(part), "no {part:?} in {denied}");
    }
    let allowed = world.segue(&["run", "c.yaml", "--yes"]).exits(0).stderr;
    assert!(!allowed.contains("no terminal"), "{allowed}");
    // The setting that the warning names.
    let setting = denied.split("`tools: ").nth(1).unwrap().split('`').next().unwrap();
    world.file(
        "segue.yaml",
        format!("commands:\n  touch: {{ argv: [touch, made] }}\ntools: {setting}\n"),
    );
    let allowed = world.segue(&["run", "c.yaml"]).exits(0).stderr;
    assert!(!allowed.contains("no terminal"), "{allowed}");
}

/// `--port` and `--host` replace one part of the address.
#[test]
fn a_server_takes_host_and_port() {
    let world = World::new();
    world.file("segue.yaml", "server: { listen: '127.0.0.1:1' }\n");
    let mut command = world.command(SEGUE);
    command.args(["serve", "--host", "localhost", "--port", "0"]).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let said = lines.find(|line| line.contains("listening at ")).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(said.contains("http://127.0.0.1:") && !said.contains(":1 "), "{said}");
    let refused = world.segue(&["serve", "--port", "1", "--listen", "127.0.0.1:2"]).exits(2);
    assert!(refused.stderr.contains("cannot be used with"), "{refused:?}");
    let refused = world.segue(&["serve", "--host", "nowhere.example"]).exits(2).stderr;
    assert!(refused.contains("write an IP address, or `localhost`"), "{refused}");
}

/// A tool whose server is down is not merely unknown: the headline says so, with the last output of the
/// server's program and a command to find out more.
#[test]
fn a_dead_server_is_the_headline() {
    let world = World::with("name: c\nsteps: [{ id: a, tool: 'files:read' }]\n");
    let script = "echo 'cannot find module x' >&2; exit 7";
    world.file(
        "segue.yaml",
        format!("mcpServers:\n  files: {{ command: sh, args: ['-c', \"{script}\"] }}\n"),
    );
    for command in [&["run", "c.yaml"][..], &["check", "c.yaml"]] {
        let said = world.segue(command).exits(4).stderr;
        let headline = said.lines().next().unwrap();
        assert!(headline.contains("the MCP server `files` is down: "), "{said}");
        assert!(headline.contains("exit code 7"), "{said}");
        for part in ["cannot find module x", "`segue doctor`"] {
            assert!(said.contains(part), "no {part:?} in {said}");
        }
    }
}

/// A server sees the proxies and certificates of the network, and no other variable of this process.
#[test]
fn servers_see_proxies_and_certificates() {
    let world = World::with("name: c\nsteps: [{ id: a, tool: 'net:get' }]\n");
    let script =
        "echo $HTTPS_PROXY $no_proxy $SSL_CERT_FILE $NODE_EXTRA_CA_CERTS [$AWS_KEY] >&2; exit 1";
    world.file(
        "segue.yaml",
        format!("mcpServers:\n  net: {{ command: sh, args: ['-c', '{script}'] }}\n"),
    );
    let mut command = world.command(SEGUE);
    command.args(["check", "c.yaml"]);
    command.envs([("HTTPS_PROXY", "proxy.example:3128"), ("no_proxy", "localhost")]);
    command.envs([("SSL_CERT_FILE", "/ca.pem"), ("NODE_EXTRA_CA_CERTS", "/node.pem")]);
    let said = Done::of(command.env("AWS_KEY", "hidden").output().unwrap()).exits(4).stderr;
    assert!(said.contains("proxy.example:3128 localhost /ca.pem /node.pem []"), "{said}");
}

/// A named configuration stands alone: a note names the `.mcp.json` beside it, which `init` imports.
#[test]
fn an_ignored_mcp_json_is_named_and_init_imports_it() {
    let world = World::new();
    world.file(".mcp.json", r#"{ "mcpServers": { "blog": { "command": "true" } } }"#);
    world.file("mine.yaml", "compositions: []\n");
    let said = world.segue(&["--config", "mine.yaml", "tools"]).exits(0).stderr;
    for part in [".mcp.json` is not read", "`blog`", "`segue init --from"] {
        assert!(said.contains(part), "no {part:?} in {said}");
    }
    let quiet = world.segue(&["-q", "--config", "mine.yaml", "tools"]).exits(0).stderr;
    assert!(!quiet.contains(".mcp.json"), "{quiet}");
    let said = world.segue(&["init"]).exits(0).stderr;
    assert!(said.contains("imported the MCP servers of ./.mcp.json"), "{said}");
    let written = std::fs::read_to_string(world.path("segue.yaml")).unwrap();
    assert!(written.contains("mcpServers:") && written.contains("blog"), "{written}");
    // Nothing is missing any more.
    let said = world.segue(&["--config", "segue.yaml", "tools"]).exits(0).stderr;
    assert!(!said.contains("is not read"), "{said}");
    // Segue ignores a file that it cannot read.
    let broken = World::new();
    broken.file(".mcp.json", "{ this is no JSON");
    let said = broken.segue(&["init"]).exits(0).stderr;
    assert!(said.contains("note: not imported: "), "{said}");
}

/// S2-65: the documentation of a tool: `tools show` prints the whole schema of the input, as of the output.
#[test]
fn a_tool_is_shown_with_its_input_schema() {
    let world = World::new();
    let shown = world.segue(&["tools", "show", "checkpoint_save"]).exits(0).stdout;
    let (_, rest) = shown.split_once("\ninput schema:\n").unwrap();
    let (input, output) = rest.split_once("\n\noutput schema:\n").unwrap();
    let details = world.json(0, &["tools", "show", "checkpoint_save", "--json"]);
    let parsed = |text: &str| serde_json::from_str::<Json>(text).unwrap();
    assert_eq!(parsed(input), details["input_schema"]);
    assert_eq!(parsed(output), details["output_schema"]);
}

/// S2-65: the text search over the index: the tool comes first whose name fits, and a typo is forgiven.
#[test]
fn a_search_is_ranked_and_forgives_typos() {
    let world = World::new();
    let first = |words: &str| {
        let found = world.segue(&["tools", "--search", words]).exits(0).stdout;
        found.lines().next().unwrap_or("").split(' ').next().unwrap().to_owned()
    };
    assert_eq!(first("save"), "builtin:checkpoint_save");
    assert_eq!(first("chekpoint save"), "builtin:checkpoint_save");
    assert_eq!(first("delete file"), "builtin:files_delete");
    assert_eq!(first("xyzzy"), "");
}

/// The rollback of a step is no second attempt of it.
#[test]
fn a_rollback_is_numbered_by_itself() {
    let world = World::with(
        "name: c\nerror_handling: { rollback_on_failure: true }\nsteps:\n  \
         - { id: save, tool: checkpoint_save, parameters: { content: kept } }\n  \
         - { id: bad, tool: fail, depends_on: [save] }\n",
    );
    let args = ["run", "c.yaml", "-q", "--log-level", "segue=debug", "--log-format", "json"];
    let said = world.segue(&args).exits(1).stderr;
    let lines = said.lines().filter_map(|line| serde_json::from_str::<Json>(line).ok());
    let ended: Vec<Json> =
        lines.filter(|line| line.to_string().contains("attempt ended")).collect();
    let of = |purpose: &str| {
        let is_it = |line: &&Json| {
            let text = line.to_string();
            text.contains("\"save\"") && text.contains(&format!("\"{purpose}\""))
        };
        ended.iter().find(is_it).unwrap_or_else(|| panic!("no {purpose} in {said}")).to_string()
    };
    for purpose in ["do", "undo"] {
        assert!(of(purpose).contains("\"attempt\":1"), "{purpose}: {said}");
    }
}

/// A command that needs no server says nothing about compositions whose servers it did not start.
#[test]
fn what_is_not_known_yet_is_no_mistake() {
    let world = World::new();
    world.file("now.yaml", "name: now\nsteps: [{ id: a, tool: 'clock:now' }]\n");
    world.file("hi.yaml", "name: hi\nsteps: [{ id: a, tool: echo, parameters: { x: 1 } }]\n");
    world.file(
        "segue.yaml",
        "compositions: [now.yaml, hi.yaml]\nmcpServers:\n  clock: { command: sh, args: ['-c', 'exit 7'] }\n",
    );
    let said = world.segue(&["run", "hi.yaml"]).exits(0).stderr;
    assert!(!said.contains("was not loaded"), "{said}");
    let said = world.segue(&["check", "--offline", "now.yaml"]).exits(2).stderr;
    let headline = said.lines().next().unwrap();
    assert!(headline.contains("the tools of the MCP server `clock` are not known yet"), "{said}");
    assert!(said.contains("`segue tools` starts every server"), "{said}");
    // A mistake beside it is still named.
    world.file(
        "now.yaml",
        "name: now\nsteps: [{ id: a, tool: 'clock:now' }, { id: b, tool: ehco }]\n",
    );
    let said = world.segue(&["run", "hi.yaml"]).exits(0).stderr;
    assert!(said.contains("was not loaded"), "{said}");
}
