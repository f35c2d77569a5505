//! MCP servers whose tools work as tasks, in both generations: a scripted one, over pipes.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use segue_core::diagnostic::Code;
use segue_core::limits::Limits;
use segue_core::run::{Question, QuestionKind};
use segue_core::source::Source;
use segue_core::value::{Number, Value};
use segue_runtime::confirm::{Confirmer, Decision};
use segue_runtime::engine::{Engine, RunRequest};
use segue_runtime::tools::ToolError;
use segue_runtime::tools::mcp::{ServerConfig, ServerTransport, StdioConfig, UpstreamServer};

use crate::support::{call_of, json};

const GENERATIONS: [&str; 2] = ["core", "extension"];

fn server(generation: &str, behaviour: &str, file: Option<PathBuf>) -> Arc<UpstreamServer> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/mcp/tasks.py");
    let mut args = vec![script.to_owned(), generation.to_owned(), behaviour.to_owned()];
    args.extend(file.map(|file| file.display().to_string()));
    let reach = ServerTransport::Stdio(StdioConfig {
        command: "python3".to_owned(),
        args,
        ..Default::default()
    });
    let limits = Limits {
        mcp_start_ms: 20_000,
        mcp_idle_ms: 1_500,
        mcp_call_ms: 4_000,
        ..Limits::default()
    };
    // Long enough that a tool which may be called as a task is.
    let timeout = (behaviour == "optional").then_some(Duration::from_mins(2));
    let config = ServerConfig { name: "h".into(), reach, identity: "h".into(), timeout };
    Arc::new(UpstreamServer::new(config, &limits, None))
}

async fn called(server: &Arc<UpstreamServer>) -> Result<Value, ToolError> {
    let listing = server.listing().await.unwrap_or_else(|unusable| panic!("{}", unusable.why));
    let tool = server.tools(&listing).remove(0);
    tool.runner.call(call_of(&tool, json!({}))).await
}

/// The end of a task: `Ok` with a value, a refusal with a code and a text, or doubt with a text.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_is_followed_to_its_end() {
    let refused = |code, words| Err((Some(code), words));
    let doubtful = |words| Err((None, words));
    for (behaviour, generations, expected) in [
        ("good", &GENERATIONS[..], Ok("ok")),
        ("optional", &GENERATIONS[..1], Ok("ok")),
        ("at_once", &GENERATIONS, Ok("at once")),
        ("fails", &GENERATIONS, refused(Code::ToolError, "the disk is full")),
        ("breaks", &GENERATIONS, refused(Code::ToolError, "out of memory")),
        ("asks", &GENERATIONS, refused(Code::Denied, "`h` asks a person: “Which name?”")),
        ("asks_for_a_model", &GENERATIONS[1..], refused(Code::Denied, "not a form")),
        ("odd", &GENERATIONS, refused(Code::ToolError, "`sleeping`")),
        ("empty", &GENERATIONS[1..], refused(Code::ToolError, "no result")),
        ("cancels", &GENERATIONS, doubtful("cancelled its task")),
        ("forgets", &GENERATIONS, doubtful("Task not found")),
        ("dies", &GENERATIONS, doubtful("; the server's last output:\ngiving up")),
    ] {
        for generation in generations {
            let server = server(generation, behaviour, None);
            let got = called(&server).await;
            server.close().await;
            let fits = match (&got, expected) {
                (Ok(value), Ok(text)) => value.as_str() == Some(text),
                (Err(ToolError::Refused { code, message, .. }), Err((Some(expected), words))) => {
                    *code == expected && message.contains(words)
                }
                (Err(ToolError::NoAnswer { message }), Err((None, words))) => {
                    message.contains(words)
                }
                _ => false,
            };
            assert!(fits, "{generation} {behaviour}: {got:?}");
        }
    }
}

/// A task that times out, and one whose caller is dropped, is cancelled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_without_a_waiting_caller_is_cancelled() {
    for generation in GENERATIONS {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("received");
        let late = server(generation, "endless", Some(file.clone()));
        let begun = Instant::now();
        let got = called(&late).await;
        late.close().await;
        let in_doubt =
            matches!(&got, Err(ToolError::NoAnswer { message }) if message.contains("4000 ms"));
        assert!(in_doubt && begun.elapsed() < Duration::from_secs(20), "{got:?}");
        let received = std::fs::read_to_string(&file).unwrap();
        assert_eq!(received.matches("\"tasks/cancel\"").count(), 1, "{generation}");
        assert!(received.matches("\"tasks/get\"").count() > 3, "{generation}");

        // A dropped caller sends a cancellation, and a server's poll interval is respected.
        let file = folder.path().join("dropped");
        let dropped = server(generation, "never_look", Some(file.clone()));
        assert!(dropped.listing().await.is_ok());
        assert!(tokio::time::timeout(Duration::from_millis(700), called(&dropped)).await.is_err());
        dropped.close().await;
        let received = std::fs::read_to_string(&file).unwrap();
        assert_eq!(received.matches("\"tasks/cancel\"").count(), 1, "{generation}: {received}");
        assert_eq!(received.matches("\"tasks/get\"").count(), 0, "{generation}: {received}");
    }
}

/// An interrupted run leaves its task running, so that the resumed run finds it; a step that timed
/// out cancels its task.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_can_be_looked_up_is_not_cancelled() {
    for generation in GENERATIONS {
        let folder = tempfile::tempdir().unwrap();
        for (step, cancelled) in
            [("{ id: a, tool: 'h:t' }", 0), ("{ id: a, tool: 'h:t', timeout: 700ms }", 1)]
        {
            let file = folder.path().join(cancelled.to_string());
            let server = server(generation, "never_look", Some(file.clone()));
            let listing = server.listing().await.unwrap();
            let (engine, _) = Engine::builder().tools(server.tools(&listing)).build();
            let text = format!("name: c\nsteps: [{step}]\n");
            let plan = engine.plan(&Source::new("c.yaml", text)).0.unwrap();
            let mut request = RunRequest::new(plan, Value::empty_object());
            request.options.approved = true;
            let left =
                tokio::time::timeout(Duration::from_millis(1_500), engine.run(request)).await;
            assert_eq!(left.is_err(), cancelled == 0, "{generation}: {left:?}");
            server.close().await;
            let received = std::fs::read_to_string(&file).unwrap();
            assert_eq!(received.matches("\"tools/call\"").count(), 1, "{generation}: {received}");
            let count = received.matches("\"tasks/cancel\"").count();
            assert_eq!(count, cancelled, "{generation}: {received}");
        }
    }
}

/// Approves everything, and records the questions.
struct Helpful(Mutex<Vec<String>>, Value);

#[async_trait::async_trait]
impl Confirmer for Helpful {
    async fn confirm(&self, question: &Question) -> Option<Decision> {
        if let QuestionKind::Approval { message, .. } = &question.kind {
            self.0.lock().unwrap().push(message.to_string());
        }
        let data = Value::object([("name", self.1.clone())]);
        Some(Decision { granted: true, by: "ada".into(), data })
    }
}

/// The result of the tool's run when a person answers so, and the questions.
async fn answered(generation: &str, behaviour: &str, answer: Value) -> (Value, Vec<String>) {
    let server = server(generation, behaviour, None);
    let listing = server.listing().await.unwrap();
    let (engine, _) = Engine::builder().tools(server.tools(&listing)).build();
    let text = "name: c\nsteps: [{ id: a, tool: 'h:t' }]\noutput: '{{ a }}'\n";
    let plan = engine.plan(&Source::new("c.yaml", text)).0.unwrap();
    let helpful = Helpful(Mutex::default(), answer);
    let mut request = RunRequest::new(plan, Value::empty_object());
    request.confirmer = &helpful;
    request.options.approved = true;
    let view = engine.run(request).await.unwrap();
    server.close().await;
    assert!(view.success, "{generation} {behaviour}: {:?}", view.errors);
    (view.output, helpful.0.into_inner().unwrap())
}

/// A question of a task goes to the run's confirmer, naming the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_asks_a_person() {
    for generation in GENERATIONS {
        let (output, asked) = answered(generation, "asks", Value::from("Ada")).await;
        assert_eq!(output, Value::from("hello Ada"), "{generation}");
        assert_eq!(asked, ["the MCP server `h` asks: Which name?"], "{generation}");
    }
}

/// A person's number reaches the server with all its digits: in answer to a request, in an update
/// of a task, and in a repeated call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_number_of_a_person_keeps_its_digits() {
    let large = "123456789012345678901234567890";
    for (generation, behaviour) in [
        ("core", "asks_number"),
        ("extension", "asks_number"),
        ("extension", "at_once_asks_number"),
    ] {
        let number = Value::Number(Number::from_literal(large));
        let (output, _) = answered(generation, behaviour, number).await;
        assert_eq!(output, Value::from(format!("hello {large}")), "{generation} {behaviour}");
    }
}
