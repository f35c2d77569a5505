//! For operators: metrics, traces, logs, manual pages, and the files to deploy with.

mod collector;
mod deploy;

use std::net::TcpListener;
use std::time::{Duration, Instant};

use collector::{Collector, Span};

use crate::serve::{CONFIG, DOUBLE};
use crate::served::{Served, TOKEN};
use crate::support::{Done, Json, SEGUE, World, json, repository};

/// A retry, a body, a composition, and a server of others.
const MIXED: &str = "\
name: mixed
steps:
  - { id: flaky, tool: fail, parameters: { times: 1, value: canary-output }, retry: { max: 1, backoff: { initial: 1ms } } }
  - { id: there, tool: 'h:t', parameters: { secret: canary-input } }
  - id: each
    loop: { over: [1, 2], steps: [ { id: one, tool: echo, parameters: { n: '{{ item }}' } } ] }
output: { there: '{{ there }}' }
";

const OTHER_TRACE: &str = "00-11111111111111111111111111111111-2222222222222222-01";

const GIVEN: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn traced(collector: &Collector, more: &str) -> World {
    let world = World::with(MIXED);
    let script = repository().join("crates/segue-runtime/tests/fixtures/mcp/hostile.py");
    let server = json!({ "command": "python3", "args": [script, "metadata"] });
    let otlp = format!(
        "observe: {{ otlp: {{ endpoint: '{}', headers: {{ x-team: canary-header }} }} }}\n",
        collector.address
    );
    world.file("segue.yaml", format!("mcpServers: {{ h: {server} }}\n{otlp}{more}"));
    world
}

fn run(world: &World, env: &[(&str, &str)], args: &[&str]) -> Done {
    let mut command = world.command(SEGUE);
    command.args(["--config", "segue.yaml", "--store", "sqlite:runs.db"]).args(args);
    command.envs(env.iter().copied());
    Done::of(command.output().unwrap())
}

#[track_caller]
fn only<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    let named: Vec<&Span> = spans.iter().filter(|span| span.name == name).collect();
    assert_eq!(named.len(), 1, "{name} in {spans:#?}");
    named[0]
}

/// Spans below a span, by when they began.
fn below<'a>(spans: &'a [Span], parent: &Span) -> Vec<&'a Span> {
    let mut found: Vec<&Span> = spans.iter().filter(|span| span.parent == parent.id).collect();
    found.sort_by_key(|span| span.began);
    found
}

/// One trace, within the caller's: the run, a span per step, a span per attempt. It holds no
/// arguments or values (D2). A called server continues the trace.
#[test]
fn a_run_is_one_trace_with_a_span_per_step_and_attempt() {
    let collector = Collector::start();
    let world = traced(&collector, "");
    let done = run(&world, &[("TRACEPARENT", GIVEN)], &["run", "c.yaml", "--yes", "--json"]);
    let view = done.exits(0).json();
    let spans = collector.spans();
    assert!(spans.iter().all(|span| span.trace_id == GIVEN[3..35]), "{spans:#?}");
    assert!(spans.iter().all(|span| span.began <= span.ended && span.began > 0));
    assert!(spans.iter().all(|span| span.attribute("segue.request.id").starts_with("req_")));
    let root = only(&spans, "run mixed");
    assert_eq!(root.parent, GIVEN[36..52]);
    assert_eq!(root.attribute("segue.run.id"), view["run_id"]);
    assert_eq!((root.attribute("segue.run.status"), root.status), ("success", 1));

    let steps: Vec<&str> = below(&spans, root).iter().map(|span| &*span.name).collect();
    assert_eq!(steps.len(), 3, "{steps:?}");
    let flaky = only(&spans, "step flaky");
    assert_eq!(flaky.parent, root.id);
    let attempts = below(&spans, flaky);
    assert_eq!(attempts.len(), 2);
    for (attempt, nth) in attempts.iter().zip(["1", "2"]) {
        assert_eq!(attempt.name, "execute_tool fail");
        assert_eq!(attempt.attribute("gen_ai.operation.name"), "execute_tool");
        assert_eq!(attempt.attribute("gen_ai.tool.name"), "fail");
        assert_eq!(attempt.attribute("segue.step.path"), "flaky");
        assert_eq!(attempt.attribute("segue.attempt"), nth);
    }
    assert_eq!((attempts[0].status, attempts[0].attribute("error.type")), (2, "tool-error"));
    assert_eq!((attempts[1].status, attempts[1].attributes.get("error.type")), (1, None));
    assert_eq!(attempts[0].status_message, "tool-error");

    let each = only(&spans, "step each");
    let rounds = below(&spans, each);
    assert_eq!(rounds.len(), 2);
    let paths: Vec<&str> = rounds.iter().map(|span| span.attribute("segue.step.path")).collect();
    assert!(paths.contains(&"each[0]/one") && paths.contains(&"each[1]/one"), "{paths:?}");
    assert!(rounds.iter().all(|round| below(&spans, round).len() == 1));

    let call = only(&spans, "tools/call t");
    assert_eq!(call.parent, only(&spans, "step there").id);
    assert_eq!(call.attribute("mcp.method.name"), "tools/call");
    assert!(call.is_client);
    // The server answers with what it was told.
    let told = view["output"]["there"].to_string();
    let expected = format!("00-{}-{}-01", call.trace_id, call.id);
    assert!(told.contains(&expected), "{expected} is not in {told}");

    for canary in ["canary-input", "canary-output", "canary-header"] {
        assert!(!collector.has(canary), "{canary}");
    }
    let head = &collector.heads()[0];
    assert!(head.starts_with("POST /v1/traces HTTP/1.1"), "{head}");
    assert!(head.contains("x-team: canary-header"), "{head}");
    assert!(collector.services().iter().all(|service| service == "segue"));
}

/// The standard variables do the same; a run of its own has the trace of its id.
#[test]
fn the_environment_says_where_spans_go() {
    let collector = Collector::start();
    let world =
        World::with("name: small\nsteps: [ { id: a, tool: echo, parameters: { n: 1 } } ]\n");
    world.file("segue.yaml", "");
    let env = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &*collector.address),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-team=blue"),
        ("OTEL_SERVICE_NAME", "orders"),
    ];
    let view = run(&world, &env, &["run", "c.yaml", "--json"]).exits(0).json();
    let spans = collector.spans();
    assert_eq!(spans.len(), 3, "{spans:#?}");
    let run_id = view["run_id"].as_str().unwrap().replace('-', "");
    assert!(spans.iter().all(|span| span.trace_id == run_id));
    assert_eq!(only(&spans, "run small").parent, "");
    assert!(collector.heads()[0].contains("x-team: blue"));
    assert_eq!(collector.services(), ["orders"]);
}

/// A resumed run stays in its trace: spans keep their original start.
#[test]
fn a_run_that_goes_on_stays_in_its_trace() {
    goes_on_in_its_trace("last");
    goes_on_in_its_trace("--all");
}

fn goes_on_in_its_trace(which: &str) {
    let collector = Collector::start();
    let world = traced(&collector, "");
    world.file(
        "two.yaml",
        "name: two\nsteps:\n  - { id: a, tool: echo, parameters: { n: 1 } }\n  \
         - { id: b, tool: echo, parameters: { n: '{{ a.n }}' } }\n",
    );
    let env = [("TRACEPARENT", GIVEN)];
    let crashed = run(&world, &env, &["run", "two.yaml", "--inject", "crash-after=2"]);
    assert_ne!(crashed.code, Some(0), "{crashed:?}");
    run(&world, &[], &["resume", which]).exits(0);
    let spans = collector.spans();
    assert!(spans.iter().all(|span| span.trace_id == GIVEN[3..35]), "{spans:#?}");
    let root = only(&spans, "run two");
    assert_eq!(root.parent, GIVEN[36..52]);
    let b = only(&spans, "step b");
    assert_eq!(b.parent, root.id);
    // The process that resumes reports the call in flight, with its original start.
    let attempts = below(&spans, b);
    assert_eq!(attempts.len(), 2, "{spans:#?}");
    assert_eq!((attempts[0].attribute("error.type"), attempts[0].began), ("lost", b.began));
    assert_eq!((attempts[1].attribute("segue.attempt"), attempts[1].status), ("2", 1));
}

/// The span of a run that was asked for in a session of MCP names the session.
#[test]
fn a_session_is_named() {
    let collector = Collector::start();
    let world = World::new();
    let otlp = format!("observe: {{ otlp: {{ endpoint: '{}' }} }}\n", collector.address);
    world.file("segue.yaml", format!("{CONFIG}server: {{ token: {TOKEN} }}\n{otlp}"));
    world.file("lib/double.yaml", DOUBLE);
    let served = Served::start(&world, "memory", &[]);
    let session = served.mcp_session();
    let call = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
        "name": "double_it", "arguments": { "n": 1 } } });
    assert_eq!(served.mcp(Some(&session), &call).status, 200);
    let pid = rustix::process::Pid::from_raw(i32::try_from(served.pid()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(served.wait().success());
    let spans = collector.spans();
    assert_eq!(only(&spans, "run double-it").attribute("mcp.session.id"), session);
}

/// A configuration that was merely found sends nothing anywhere until it is trusted.
#[test]
fn a_collector_that_was_merely_found_is_told_nothing() {
    let collector = Collector::start();
    let world =
        World::with("name: small\nsteps: [ { id: a, tool: echo, parameters: { n: 1 } } ]\n")
            .merely_found();
    let otlp = format!("observe: {{ otlp: {{ endpoint: '{}' }} }}\n", collector.address);
    world.file("segue.yaml", otlp);
    world.segue(&["run", "c.yaml"]).exits(0);
    assert!(collector.heads().is_empty());
    let said = world.segue(&["trust"]).exits(0).stderr;
    assert!(said.contains(&collector.address), "{said}");
    world.segue(&["run", "c.yaml"]).exits(0);
    assert_eq!(collector.spans().len(), 3);
}

/// A collector that is unreachable or silent changes no run, and delays the program no longer than
/// the limit.
#[test]
fn a_collector_that_is_not_there_costs_nothing_but_the_spans() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = format!("http://{}", silent.local_addr().unwrap());
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let world =
        World::with("name: small\nsteps: [ { id: a, tool: echo, parameters: { n: 1 } } ]\n");
    for endpoint in [taken, format!("http://{gone}")] {
        let otlp = format!("observe: {{ otlp: {{ endpoint: '{endpoint}' }} }}\n");
        world.file("segue.yaml", format!("{otlp}limits: {{ traces_leave_ms: 300 }}\n"));
        let began = Instant::now();
        let view = run(&world, &[], &["run", "c.yaml", "--json"]).exits(0).json();
        assert_eq!(view["status"], "success");
        assert!(view["duration_ms"].as_u64().unwrap() < 2_000, "{view}");
        assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    }
}

/// The walk of `examples/search-fold-store/over-rest`, counted and told: per-step and total timings are
/// metrics, and there is a system of metrics. S0-91, S0-95.
#[test]
fn the_walk_is_counted_and_told() {
    let collector = Collector::start();
    let world = World::new();
    let otlp = format!("observe: {{ otlp: {{ endpoint: '{}' }} }}\n", collector.address);
    world.file("segue.yaml", format!("{CONFIG}server: {{ token: {TOKEN} }}\n{otlp}"));
    world.file("lib/double.yaml", DOUBLE);
    let served = Served::start(&world, "sqlite:runs.db", &[]);
    let mut walk = world.command("bash");
    walk.arg(repository().join("examples/search-fold-store/over-rest"));
    walk.env("SEGUE_TOKEN", TOKEN).env("SEGUE_URL", format!("http://{}", served.address));
    assert!(walk.output().unwrap().status.success());
    let asked = [("traceparent", GIVEN)];
    let body = json!({ "name": "double-it", "input": { "n": 21 } });
    let doubled = served.send("POST", "/api/v1/compositions/execute", &asked, &body).is(200);

    // A call of MCP says in its metadata where it stands, or in the header of its request.
    let (mut message, mut headers) = crate::serve::http::call();
    let bearer = format!("Bearer {TOKEN}");
    headers.extend([("Authorization", &*bearer), ("traceparent", OTHER_TRACE)]);
    assert_eq!(served.call(&headers, &message).0, 200);
    message["params"]["_meta"]["traceparent"] = json!(GIVEN);
    assert_eq!(served.call(&headers, &message).0, 200);

    let metrics = served.get("/metrics");
    assert!(metrics.headers["content-type"].starts_with("application/openmetrics-text"));
    let text = &metrics.body;
    assert_eq!(served.ask("GET", "/metrics", &[], "").status, 401);
    let value = |line: &str| {
        let found = text.lines().find_map(|known| known.strip_prefix(line)?.strip_prefix(' '));
        found.unwrap_or_else(|| panic!("{line} is not in {text}")).parse::<f64>().unwrap()
    };
    assert!((value("segue_runs_started_total{composition=\"double-it\"}") - 3.0).abs() < 0.1);
    assert!((value("segue_http_requests_total{route=\"mcp\",status=\"200\"}") - 2.0).abs() < 0.1);
    assert!((value("segue_runs_started_total{composition=\"other\"}") - 4.0).abs() < 0.1);
    let finished = "segue_runs_finished_total{composition=\"other\",status=\"success\"}";
    assert!((value(finished) - 4.0).abs() < 0.1, "{text}");
    assert!(value("segue_run_duration_seconds_count{composition=\"other\"}") >= 4.0);
    // The nap takes 200 ms, which its step and its call have to show.
    assert!(value("segue_step_duration_seconds_sum{tool=\"builtin:sleep\"}") >= 0.2);
    assert!(value("segue_call_duration_seconds_sum{tool=\"builtin:sleep\"}") >= 0.2);
    assert!(value("segue_steps_total{tool=\"builtin:context_fold\",outcome=\"succeeded\"}") >= 2.0);
    let attempts =
        "segue_attempts_total{tool=\"builtin:files_delete\",purpose=\"do\",outcome=\"succeeded\"}";
    assert!((value(attempts) - 1.0).abs() < 0.1);
    assert!(value("segue_store_appends_total") > 8.0 && value("segue_store_syncs_total") > 4.0);
    assert!(value("segue_store_sync_seconds_total") > 0.0);
    assert!(value("segue_store_size_bytes") > 4096.0);
    assert!(value("segue_runs_active").abs() < 0.1 && value("segue_runs_waiting").abs() < 0.1);
    let executed = "segue_http_requests_total{route=\"executeComposition\",status=\"200\"}";
    assert!(value(executed) >= 3.0);
    assert!(value("segue_http_request_duration_seconds_count{route=\"followRun\"}") >= 1.0);
    assert!(value("process_resident_memory_bytes") > 1_000_000.0);

    // What was asked for within a trace is in it; every other run has its own.
    let pid = rustix::process::Pid::from_raw(i32::try_from(served.pid()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(served.wait().success());
    let spans = collector.spans();
    let of_run = |run_id: &Json| -> Vec<Span> {
        let is_of =
            |span: &&Span| span.attributes.get("segue.run.id").is_some_and(|id| id == run_id);
        spans.iter().filter(is_of).cloned().collect()
    };
    let doubled = of_run(&doubled["run_id"]);
    assert_eq!(doubled.len(), 3, "{doubled:#?}");
    assert!(doubled.iter().all(|span| span.trace_id == GIVEN[3..35]));
    assert_eq!(only(&doubled, "run double-it").parent, GIVEN[36..52]);
    let roots: Vec<&Span> = spans.iter().filter(|span| span.name.starts_with("run ")).collect();
    assert_eq!(roots.len(), 7, "{roots:#?}");
    let within = |given: &str| {
        roots.iter().filter(|r| r.trace_id == given[3..35] && r.parent == given[36..52]).count()
    };
    assert_eq!((within(GIVEN), within(OTHER_TRACE)), (2, 1));
    for root in &roots {
        let whole = of_run(&Json::from(root.attribute("segue.run.id")));
        assert!(whole.iter().all(|span| span.trace_id == root.trace_id));
        let ids: Vec<&String> = whole.iter().map(|span| &span.id).collect();
        let is_inside = |span: &&Span| ids.contains(&&span.parent);
        assert_eq!(whole.iter().filter(is_inside).count(), whole.len() - 1, "{whole:#?}");
    }
    let fold = spans.iter().find(|span| span.name == "execute_tool context_fold").unwrap();
    assert_eq!(fold.attribute("segue.tool.id"), "builtin:context_fold");
}

/// An MCP server that comes and goes is seen to.
#[test]
fn servers_of_others_are_counted() {
    let collector = Collector::start();
    let world = traced(
        &collector,
        "server: { token: open-sesame-open-sesame-open-sesame }\ncompositions: ['c.yaml']\n",
    );
    let served = Served::start(&world, "memory", &[]);
    let text = served.get("/metrics").body;
    for line in ["segue_upstream_up{server=\"h\"} 1", "segue_upstream_starts_total{server=\"h\"} 1"]
    {
        assert!(text.lines().any(|known| known == line), "{line} is not in {text}");
    }
}

/// S4-06. Lines for programs: who did what, in which request and run; what a request is called, in its answer
/// and in problems. No token is in any of it.
#[test]
fn lines_and_answers_name_the_request_and_the_run() {
    let world = World::new();
    world.file("segue.yaml", format!("{CONFIG}server: {{ token: {TOKEN} }}\n"));
    world.file("lib/double.yaml", DOUBLE);
    let served = Served::start(&world, "memory", &["--log-format", "json", "--log-level", "debug"]);
    let body = json!({ "name": "double-it", "input": { "n": 21 } });
    let named = [("X-Request-Id", "order-7")];
    let answer = served.send("POST", "/api/v1/compositions/execute", &named, &body);
    assert_eq!(answer.headers["x-request-id"], "order-7");
    let run_id = answer.is(200)["run_id"].clone();
    let line = |part: &str| -> Json { serde_json::from_str(&served.said(part)).unwrap() };
    let audit = line("\"message\":\"audit\"");
    assert_eq!(audit["target"], "segue::audit");
    assert_eq!((&audit["run_id"], &audit["http_request_id"]), (&run_id, &json!("order-7")));
    assert_eq!((&audit["who"], &audit["status"]), (&json!("the token"), &json!(200)));
    assert_eq!(audit["what"], "executeComposition");
    // The request that the run's plan belongs to, as its view has it.
    let view = served.get(&format!("/api/v1/runs/{}", run_id.as_str().unwrap())).is(200);
    let request_id = view["request_id"].clone();
    assert!(request_id.as_str().unwrap().starts_with("req_"), "{view}");
    for message in ["run started", "run ended", "attempt ended"] {
        let line = line(message);
        let named = (&line["run_id"], &line["http_request_id"]);
        assert_eq!(named, (&run_id, &json!("order-7")), "{line}");
        assert_eq!(line["request_id"], request_id, "{line}");
        assert!(line["level"].is_string() && line["timestamp"].is_string(), "{line}");
    }
    assert_eq!(line("request answered")["route"], "getHealth");

    // One that cannot stand in a line gets another name, which problems tell.
    let odd = [("X-Request-Id", "a\"b c")];
    let missing = served.send("GET", "/api/v1/runs/nothing", &odd, &json!(null));
    let problem = missing.is_problem(404, "not-found");
    assert_eq!(problem["request_id"], missing.headers["x-request-id"]);
    assert_eq!(missing.headers["x-request-id"].len(), 36);
    let stranger = served.ask("GET", "/api/v1/runs", &[], "");
    assert_eq!(stranger.is(401)["request_id"], stranger.headers["x-request-id"]);
    let knock = line("not let in");
    assert_eq!((&knock["level"], &knock["status"]), (&json!("WARN"), &json!(401)), "{knock}");
    assert_eq!(knock["http_request_id"], stranger.headers["x-request-id"], "{knock}");
    assert!(!served.has_said(TOKEN) && !served.has_said("a\\\"b"));
}

/// Who reads lines as JSON reads all of them so: also the token, and what is wrong with files and with a
/// configuration that changes.
#[test]
fn every_line_is_one_for_programs() {
    let world = World::new();
    world.file("segue.yaml", CONFIG);
    world.file("lib/double.yaml", DOUBLE);
    let args = ["--watch", "--log-format", "json", "--log-level", "warn"];
    let served = Served::start(&world, "memory", &args);
    served.said("token: segue_");
    world.file("lib/broken.yaml", "name: broken\nsteps: []\n");
    served.said("broken.yaml");
    world.file("segue.yaml", format!("{CONFIG}compositons: []\n"));
    served.said("the previous one stays in use");
    for line in served.lines() {
        let line: Json = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e} in {line}"));
        assert!(line["level"].is_string() && line["message"].is_string(), "{line}");
    }
}

#[test]
fn a_level_that_cannot_be_meant_is_refused() {
    let world = World::new();
    let done = world.segue(&["tools", "--log-level", "segue=loud"]).exits(2);
    assert!(done.stderr.contains("`segue=loud` is not a log level"), "{}", done.stderr);
    let quiet =
        World::with("name: small\nsteps: [ { id: a, tool: echo, parameters: { n: 1 } } ]\n");
    assert!(!quiet.segue(&["run", "c.yaml"]).exits(0).stderr.contains("run started"));
    let said = quiet.segue(&["run", "c.yaml", "--log-level", "info"]).exits(0).stderr;
    assert!(said.contains("run started") && said.contains("run ended"), "{said}");
}

/// Each command has a manual page, which names its options.
#[test]
fn each_command_has_a_manual_page() {
    let world = World::new();
    world.segue(&["man", "--dir", "man"]).exits(0);
    let help = world.segue(&["--help"]).exits(0).stdout;
    let commands = help.split("Start:").nth(1).unwrap().split("Options:").next().unwrap();
    let names = commands.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let names: Vec<&str> = names.filter(|name| !name.is_empty() && *name != "help").collect();
    assert!(names.len() > 20, "{names:?}");
    for name in names {
        let page = std::fs::read_to_string(world.path(&format!("man/segue-{name}.1")))
            .unwrap_or_else(|_| panic!("`{name}` has no page"));
        assert!(page.starts_with(".ie") || page.contains(".TH segue-"), "{page:.200}");
        assert!(page.contains("log\\-level"), "{name}");
    }
    let whole = world.segue(&["man"]).exits(0).stdout;
    assert!(whole.contains(".TH segue 1") && whole.contains("Exit codes"), "{whole:.300}");
}
