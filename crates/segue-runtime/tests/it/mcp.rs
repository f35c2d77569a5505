//! MCP servers that misbehave: a scripted one, over pipes. Each behaviour has its outcome.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::stream::{self, StreamExt as _};
use segue_core::diagnostic::Code;
use segue_core::id::ToolId;
use segue_core::limits::Limits;
use segue_core::run::{Overwrites, Purpose, Question, QuestionKind};
use segue_core::source::Source;
use segue_core::tool::Backend;
use segue_core::value::Value;
use segue_runtime::confirm::{Confirmer, Decision};
use segue_runtime::engine::{Engine, RunRequest};
use segue_runtime::tools::mcp::{
    InProcess, Listing, ServerConfig, ServerTransport, StdioConfig, UpstreamServer,
};
use segue_runtime::tools::{ToolError, ToolRequest};

fn limits() -> Limits {
    Limits {
        mcp_message_bytes_max: 1_000_000,
        mcp_start_ms: 20_000,
        mcp_idle_ms: 1_500,
        mcp_call_ms: 4_000,
        ..Limits::default()
    }
}

fn server_with(behaviour: &str, limits: &Limits, file: Option<PathBuf>) -> Arc<UpstreamServer> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/mcp/hostile.py");
    let mut args = vec![script.to_owned(), behaviour.to_owned()];
    args.extend(file.map(|file| file.display().to_string()));
    let reach = ServerTransport::Stdio(StdioConfig {
        command: "python3".to_owned(),
        args,
        env: [("DECLARED".to_owned(), "yes".to_owned())].into(),
        cwd: None,
    });
    let config = ServerConfig { name: "h".into(), reach, identity: "h".into(), timeout: None };
    Arc::new(UpstreamServer::new(config, limits, None))
}

/// A server whose definitions are recorded.
fn recorded_in(folder: &Path, behaviour: &str) -> Arc<UpstreamServer> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/mcp/hostile.py");
    let reach = ServerTransport::Stdio(StdioConfig {
        command: "python3".to_owned(),
        args: vec![script.to_owned(), behaviour.to_owned()],
        ..StdioConfig::default()
    });
    let config = ServerConfig { name: "h".into(), reach, identity: "abc".into(), timeout: None };
    Arc::new(UpstreamServer::new(config, &limits(), Some(folder)))
}

fn server(behaviour: &str) -> Arc<UpstreamServer> {
    server_with(behaviour, &limits(), None)
}

/// A call of the tool `t`.
pub(crate) fn call(args: Value) -> ToolRequest {
    ToolRequest {
        tool: ToolId::new("h", "t"),
        args,
        run_id: "run".into(),
        step: "a".into(),
        attempt: 1,
        key: "the-key".into(),
        purpose: Purpose::Work,
        owner: None,
        traceparent: None,
        overwrites: Overwrites::Everything,
        asker: None,
        follows: None,
    }
}

/// Calls the tool `t` once.
async fn call_t(
    server: &Arc<UpstreamServer>,
    listing: &Listing,
    args: Value,
) -> Result<Value, ToolError> {
    let tools = server.tools(listing);
    let tool = tools.iter().find(|tool| tool.spec.id.as_str() == "h:t").expect("`t` is listed");
    assert_eq!(tool.spec.backend, Backend::Mcp);
    tool.runner.call(call(args)).await
}

/// The expected outcome.
enum Outcome {
    /// The server cannot be used, for a reason that contains this text.
    Absent(&'static str),
    /// Its tool returns this.
    Value(&'static str),
    /// Its tool refuses: the code, a part of the message, whether a retry may help.
    Refused(Code, &'static str, bool),
    /// The outcome of the call is unknown.
    Silent(&'static str),
    /// Its tool works, and the listing has this note.
    Noted(&'static str),
}

use Outcome::{Absent, Noted, Refused, Silent, Value as Returns};

/// reliability.md rows 1, 2, 33, 34, 38, 39.
const BEHAVIOURS: &[(&str, Outcome)] = &[
    // Starting
    ("good", Returns("\"ok\"")),
    ("early_exit", Absent("no licence")),
    ("exit_after_init", Absent("it ended (exit code 3)")),
    ("silent_discover", Returns("\"ok\"")),
    ("slow_start", Returns("\"ok\"")),
    ("stderr_flood", Returns("\"ok\"")),
    ("log_lines", Returns("\"ok\"")),
    ("odd_bytes", Returns("\"ok\"")),
    ("bom_crlf", Returns("\"ok\"")),
    ("batch", Returns("\"ok\"")),
    ("early_notifications", Returns("\"ok\"")),
    ("slow_modern", Returns("\"ok\"")),
    ("old_version", Returns("\"ok\"")),
    ("modern", Returns("\"ok\"")),
    ("init_error", Absent("not today")),
    ("init_of_wrong_type", Absent("no handshake")),
    // Listing
    ("cursor_loop", Noted("repeats a cursor")),
    ("endless_cursors", Noted("is too long")),
    ("huge_list", Noted("more than 10000 tools")),
    ("list_of_wrong_type", Absent("cannot be read")),
    ("list_of_wrong_items", Noted("has no name")),
    ("list_error", Absent("no tools today")),
    ("lookalikes", Noted("look alike")),
    ("homoglyph", Noted("is not letters")),
    ("twins", Noted("look alike")),
    ("colon_in_name", Noted("is not letters")),
    ("bad_schema", Noted("not a schema")),
    ("deep_schema", Noted("a tool")),
    ("list_too_large", Absent("over the limit")),
    // Answering
    ("is_error", Refused(Code::ToolError, "the disk is full", true)),
    ("is_error_without_text", Refused(Code::ToolError, "did not say why", true)),
    ("content_of_wrong_type", Refused(Code::ToolError, "not a list", false)),
    ("result_of_wrong_type", Refused(Code::ToolError, "cannot be used", false)),
    ("structured", Returns("{\"n\":1}")),
    ("image", Returns("[{\"type\":\"image\",\"data\":\"AA==\",\"mimeType\":\"image/png\"}]")),
    ("empty", Returns("null")),
    ("cut_answer", Refused(Code::ToolError, "is not a message", false)),
    ("bad_utf8_answer", Refused(Code::ToolError, "UTF-8", false)),
    ("result_and_error", Refused(Code::ToolError, "both", false)),
    ("neither", Refused(Code::ToolError, "neither", false)),
    ("null_result", Refused(Code::ToolError, "neither", false)),
    ("wrong_version", Refused(Code::ToolError, "JSON-RPC 2.0", false)),
    ("twice_the_same_key", Refused(Code::ToolError, "is not a message", false)),
    ("text_id", Silent("no answer within")),
    ("float_id", Silent("no answer within")),
    ("answers_twice", Returns("\"first\"")),
    ("unknown_ids", Returns("\"ok\"")),
    ("error_params", Refused(Code::ToolError, "unknown parameter: {\"name\":\"q\"}", false)),
    ("error_internal", Refused(Code::ToolError, "try later", true)),
    ("error_of_wrong_type", Refused(Code::ToolError, "no code and message", false)),
    ("unknown_result_type", Refused(Code::ToolError, "task", false)),
    ("input_required", Refused(Code::Denied, "`h` asks a person: “Your password?”", false)),
    ("deep_answer", Refused(Code::Limit, "", false)),
    ("bottomless_answer", Refused(Code::Limit, "", false)),
    // Floods
    ("huge_answer", Refused(Code::Limit, "over the limit of 1000000 bytes", false)),
    ("huge_answer_id_last", Refused(Code::Limit, "over the limit", false)),
    ("endless_answer", Refused(Code::Limit, "over the limit", false)),
    ("endless_noise", Silent("does not end")),
    ("notification_storm", Returns("\"ok\"")),
    ("list_changed_storm", Returns("\"ok\"")),
    ("request_storm", Silent("")),
    // Time
    ("silent", Silent("no answer within 1500 ms")),
    ("progress", Returns("\"ok\"")),
    ("stuck_progress", Silent("no answer within 1500 ms")),
    ("endless_progress", Silent("no answer within 4000 ms")),
    ("progress_for_others", Silent("no answer within 1500 ms")),
    // Asking back and going away
    ("elicits", Refused(Code::Denied, "`h` asks a person: “Your card number?”", false)),
    ("samples", Returns("\"error\"")),
    ("unknown_request", Returns("\"error\"")),
    ("exits", Silent("giving up")),
    ("closes_output", Silent("")),
];

async fn check(behaviour: &str, expected: &Outcome) -> Result<(), String> {
    // A storm takes as long as the machine needs to read it; how patient a call is, others show.
    let patient = Limits { mcp_idle_ms: 10_000, mcp_call_ms: 15_000, ..limits() };
    let server = match expected {
        Returns(_) if behaviour.ends_with("_storm") => server_with(behaviour, &patient, None),
        _ => server(behaviour),
    };
    let listing = match (server.listing().await, expected) {
        (Err(error), Absent(words)) if error.why.contains(words) => return Ok(()),
        (Err(error), _) => return Err(format!("unusable: {}", error.why)),
        (Ok(_), Absent(_)) => return Err("usable".to_owned()),
        (Ok(listing), _) => listing,
    };
    let begun = Instant::now();
    let got = call_t(&server, &listing, Value::empty_object()).await;
    let time = begun.elapsed();
    server.close().await;
    let fits = match (&got, expected) {
        (Ok(value), Returns(json)) => value.to_json() == *json,
        (Ok(_), Noted(words)) => listing.notes.iter().any(|note| note.contains(words)),
        (
            Err(ToolError::Refused { code, message, retryable }),
            Refused(expected, words, expected_retryable),
        ) => code == expected && message.contains(words) && retryable == expected_retryable,
        (Err(ToolError::NoAnswer { message }), Silent(words)) => message.contains(words),
        _ => false,
    };
    // The end of patience, and a generous machine's share on top.
    let in_time = time < Duration::from_secs(20);
    if fits && in_time {
        return Ok(());
    }
    Err(format!("{got:?} after {time:?}, notes {:?}", listing.notes))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_misbehaviour_has_its_outcome() {
    let checks = stream::iter(BEHAVIOURS).map(|(behaviour, expected)| async move {
        check(behaviour, expected).await.err().map(|why| format!("{behaviour}: {why}"))
    });
    let wrong: Vec<String> =
        checks.buffer_unordered(4).filter_map(std::future::ready).collect().await;
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), BEHAVIOURS.len(), wrong.join("\n"));
}

/// Gives the same answer to every question, and records the questions.
pub(crate) struct Helpful {
    data: Value,
    asked: Mutex<Vec<String>>,
}

impl Helpful {
    pub(crate) fn new(data: Value) -> Helpful {
        Helpful { data, asked: Mutex::default() }
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

#[async_trait::async_trait]
impl Confirmer for Helpful {
    async fn confirm(&self, question: &Question) -> Option<Decision> {
        if let QuestionKind::Approval { message, .. } = &question.kind {
            self.asked.lock().unwrap().push(format!("{}: {message}", question.step));
        }
        Some(Decision { granted: true, by: "ada".into(), data: self.data.clone() })
    }
}

/// A server's question to a person is asked, naming the server, in both eras; without an answer
/// that fits, it is declined.
#[tokio::test]
async fn a_server_asks_a_person_in_the_middle_of_a_call() {
    for behaviour in ["asks_and_goes_on", "asks_by_answering"] {
        for (name, expected) in [(Value::from("Ada"), Some("hello Ada")), (Value::from(3), None)] {
            let server = server(behaviour);
            let listing = server.listing().await.unwrap();
            let (engine, _) = Engine::builder().tools(server.tools(&listing)).build();
            let text = "name: c\nsteps: [{ id: a, tool: 'h:t' }]\noutput: '{{ a }}'\n";
            let (plan, findings) = engine.plan(&Source::new("c.yaml", text));
            let plan = plan.unwrap_or_else(|| panic!("{findings:?}"));
            let helpful = Helpful::new(Value::object([("name", name)]));
            let mut request = RunRequest::new(plan, Value::empty_object());
            request.confirmer = &helpful;
            request.options.approved = true;
            let view = engine.run(request).await.unwrap();
            assert_eq!(helpful.asked(), ["a: the MCP server `h` asks: Which name?"], "{behaviour}");
            match expected {
                Some(expected) => assert_eq!(view.output, Value::from(expected), "{behaviour}"),
                None => {
                    assert_eq!(view.errors[0].code, Code::Denied, "{behaviour}: {:?}", view.errors);
                }
            }
            server.close().await;
        }
    }
}

#[tokio::test]
async fn a_server_without_tools_is_no_mistake() {
    let server = server("no_tools_method");
    assert_eq!(server.listing().await.unwrap().tools.len(), 0);
    server.close().await;
}

#[tokio::test]
async fn what_cannot_be_seen_is_not_shown() {
    let server = server("hidden_text");
    let listing = server.listing().await.unwrap();
    assert_eq!(&*listing.tools["t"].spec.description, "reads files[2J");
    server.close().await;
}

#[tokio::test]
async fn a_server_that_never_speaks_is_given_up() {
    for behaviour in ["mute", "silent_list"] {
        let limits = Limits { mcp_start_ms: 1_000, ..limits() };
        let server = server_with(behaviour, &limits, None);
        let unusable = server.listing().await.unwrap_err();
        assert!(unusable.why.contains("within 1000 ms"), "{}", unusable.why);
        // Restarts are paused, and callers meanwhile fail at once.
        let again = server.listing().await.unwrap_err();
        assert!(again.retry_after.is_some());
        server.close().await;
    }
}

#[tokio::test]
async fn a_program_that_is_not_there_is_named() {
    let reach = ServerTransport::Stdio(StdioConfig {
        command: "no-such-program".into(),
        ..Default::default()
    });
    let config = ServerConfig { name: "h".into(), reach, identity: "h".into(), timeout: None };
    let server = UpstreamServer::new(config, &limits(), None);
    assert!(
        server.listing().await.unwrap_err().why.contains("`no-such-program` cannot be started")
    );
}

/// Killing a server during a call: the call is in doubt, the next one restarts the server.
#[tokio::test]
async fn a_server_that_died_is_started_again() {
    let folder = tempfile::tempdir().unwrap();
    let server = server_with("exit_once", &limits(), Some(folder.path().join("starts")));
    let listing = server.listing().await.unwrap();
    let lost = call_t(&server, &listing, Value::empty_object()).await;
    assert!(matches!(lost, Err(ToolError::NoAnswer { .. })), "{lost:?}");
    assert_eq!(call_t(&server, &listing, Value::empty_object()).await, Ok(Value::from("ok")));
    server.close().await;
}

#[tokio::test]
async fn a_definition_that_changed_is_not_called() {
    for behaviour in ["changes", "removed"] {
        let server = server(behaviour);
        let listing = server.listing().await.unwrap();
        assert_eq!(call_t(&server, &listing, Value::empty_object()).await, Ok(Value::from("ok")));
        let mut again = call_t(&server, &listing, Value::empty_object()).await;
        // The word of the change and the second call cross; one of the next ones must know.
        for _ in 0..20 {
            if again.is_err() {
                break;
            }
            again = call_t(&server, &listing, Value::empty_object()).await;
        }
        let refused =
            matches!(again, Err(ToolError::Refused { code: Code::DefinitionChanged, .. }));
        assert!(refused, "{behaviour}: {again:?}");
        server.close().await;
    }
}

#[tokio::test]
async fn a_definition_that_changes_between_starts_is_not_called() {
    let folder = tempfile::tempdir().unwrap();
    let server = server_with("rug_pull_at_restart", &limits(), Some(folder.path().join("starts")));
    let listing = server.listing().await.unwrap();
    server.close().await;
    let refused = call_t(&server, &listing, Value::empty_object()).await;
    assert!(
        matches!(refused, Err(ToolError::Refused { code: Code::DefinitionChanged, .. })),
        "{refused:?}"
    );
    server.close().await;
}

#[tokio::test]
async fn a_call_that_is_dropped_is_cancelled() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("received");
    let server = server_with("waits_for_cancel", &limits(), Some(file.clone()));
    let listing = server.listing().await.unwrap();
    let calling = call_t(&server, &listing, Value::empty_object());
    assert!(tokio::time::timeout(Duration::from_millis(500), calling).await.is_err());
    server.close().await;
    let received = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(received.contains("notifications/cancelled"), "{received}");
}

#[tokio::test]
async fn a_server_sees_little_of_our_environment_and_the_key_of_a_call() {
    let server = server("environment");
    let listing = server.listing().await.unwrap();
    let seen = call_t(&server, &listing, Value::empty_object()).await.unwrap();
    assert_eq!(seen.get("DECLARED"), Some(&Value::from("yes")));
    assert!(seen.get("PATH").is_some());
    assert!(seen.get("CARGO_MANIFEST_DIR").is_none(), "what a server was not given");
    server.close().await;

    let server = self::server("metadata");
    let listing = server.listing().await.unwrap();
    let meta = call_t(&server, &listing, Value::empty_object()).await.unwrap();
    assert_eq!(meta.get("segue/idempotencyKey"), Some(&Value::from("the-key")));
    server.close().await;
}

/// S2-66: the order of keys and the digits of numbers survive both ways, through a tool of a
/// server.
#[tokio::test]
async fn arguments_and_values_are_exact() {
    let server = server("exact");
    let listing = server.listing().await.unwrap();
    let json = r#"{"z":18446744073709551616,"a":{"c":1.5,"b":null}}"#;
    let args = segue_core::document::read_json_value(json, &limits()).unwrap();
    let value = call_t(&server, &listing, args).await.unwrap();
    assert_eq!(value.to_json(), json);
    server.close().await;
}

/// A server that ignores its stdin and SIGTERM is killed, and its descendants with it.
#[tokio::test]
async fn a_server_that_ignores_its_end_is_ended() {
    let server = server("ignores_end");
    server.listing().await.unwrap();
    let begun = Instant::now();
    server.close().await;
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
}

/// `check --offline` uses the definitions that were listed before.
#[tokio::test]
async fn what_was_seen_is_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/mcp/hostile.py");
    let reach = ServerTransport::Stdio(StdioConfig {
        command: "python3".to_owned(),
        args: vec![script.to_owned(), "good".to_owned()],
        ..StdioConfig::default()
    });
    let config = ServerConfig { name: "h".into(), reach, identity: "abc".into(), timeout: None };
    let server = Arc::new(UpstreamServer::new(config.clone(), &limits(), Some(folder.path())));
    assert!(server.recorded().is_none());
    let live = server.listing().await.unwrap();
    server.close().await;
    let later = UpstreamServer::new(config.clone(), &limits(), Some(folder.path()));
    let recorded = later.recorded().expect("the listing was written down");
    assert_eq!(recorded.tools["t"].pin, live.tools["t"].pin);
    // Another command line is another server.
    let other = ServerConfig { identity: "abd".into(), ..config };
    assert!(UpstreamServer::new(other, &limits(), Some(folder.path())).recorded().is_none());
}

/// A server that only repeats the requested version stays in the era of its handshake, at every
/// start.
#[tokio::test]
async fn a_server_stays_in_its_era() {
    let folder = tempfile::tempdir().unwrap();
    for _ in 0..3 {
        let server = recorded_in(folder.path(), "good");
        server.listing().await.unwrap();
        server.close().await;
        let record = std::fs::read_to_string(server.record().unwrap()).unwrap();
        assert!(record.contains(r#""era":"legacy""#), "{record}");
    }
}

/// A server that exits when its first message is not `initialize` gets `initialize`.
#[tokio::test]
async fn a_server_that_ends_when_asked_for_its_era_is_greeted() {
    let server = server("ends_at_discover");
    let listing = server.listing().await.unwrap();
    assert_eq!(call_t(&server, &listing, Value::empty_object()).await.unwrap(), Value::from("ok"));
    server.close().await;
}

/// A server in this process whose only tool answers once 64 calls are in flight.
#[derive(Clone)]
struct Patient(Arc<tokio::sync::Barrier>);

impl rmcp::ServerHandler for Patient {
    fn get_info(&self) -> rmcp::model::ServerConfig {
        use rmcp::model::{ServerCapabilities, ServerConfig};
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _request: Option<rmcp::model::PaginatedRequestParams>,
        _context: rmcp::service::RequestContext<rmcp::RoleServer>,
    ) -> Result<rmcp::model::ListToolsResult, rmcp::ErrorData> {
        let tool = rmcp::model::Tool::new("t", "waits for others", rmcp::model::JsonObject::new());
        Ok(rmcp::model::ListToolsResult::with_all_items(vec![tool]))
    }

    async fn call_tool(
        &self,
        params: rmcp::model::CallToolRequestParams,
        _context: rmcp::service::RequestContext<rmcp::RoleServer>,
    ) -> Result<rmcp::model::CallToolResponse, rmcp::ErrorData> {
        self.0.wait().await;
        let given = serde_json::Value::Object(params.arguments.unwrap_or_default());
        Ok(rmcp::model::CallToolResult::structured(given).into())
    }
}

/// Calls on one connection do not wait for each other: none is answered before the last one has
/// arrived. A server in this process works like any other: it is opened at its first use, and again
/// after it was closed.
#[tokio::test]
async fn calls_at_once_are_all_under_way() {
    let open = || {
        let (ours, theirs) = tokio::io::duplex(4096);
        tokio::spawn(async move {
            use rmcp::ServiceExt as _;
            let patient = Patient(Arc::new(tokio::sync::Barrier::new(64)));
            if let Ok(service) = patient.serve(theirs).await {
                let _ = service.waiting().await;
            }
        });
        ours
    };
    let reach = ServerTransport::Local(InProcess::new(open));
    let config = ServerConfig { name: "h".into(), reach, identity: "h".into(), timeout: None };
    let server = Arc::new(UpstreamServer::new(config, &limits(), None));
    let listing = server.listing().await.unwrap();
    for _ in 0..2 {
        let calls = (0..64_i64).map(|n| {
            let (server, listing) = (&server, &listing);
            async move { call_t(server, listing, serde_json::json!({ "n": n }).into()).await }
        });
        let answers = futures_util::future::join_all(calls).await;
        for (n, answer) in answers.into_iter().enumerate() {
            assert_eq!(answer.unwrap().to_json(), format!("{{\"n\":{n}}}"));
        }
        server.close().await;
    }
}
