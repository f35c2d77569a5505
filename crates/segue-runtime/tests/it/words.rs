//! Plans from natural language, over the real protocols of both providers, on a server of the
//! tests.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use segue_core::diagnostic::Code;
use segue_core::id::ToolId;
use segue_core::limits::Limits;
use segue_core::planner::{self, PlanOrigin, PlanState, PlanningFailure, Prompt, Role};
use segue_core::run::Failure;
use segue_core::schema::Schema;
use segue_core::tool::{Annotations, ToolSpec};
use segue_core::value::Value;
use segue_runtime::engine::{
    Engine, Planned, PlanningError, PlanningEvent, PlanningRequest, Reuse, RunRequest,
};
use segue_runtime::llm::{Model, ModelConfig, Provider, model};
use segue_runtime::store::{MemoryStore, SqliteOptions, SqliteStore, Store};
use segue_runtime::tools::{Tool, ToolError, ToolRequest, ToolRunner};

use crate::server::{Reply, Server, serve};
use crate::support::{Json, json};

const KEY: &str = "sk-test-0123456789";
const QUERY: &str = "Create author Alice, then a blog by Alice titled Hello";

/// Authors and blogs, in memory.
#[derive(Default)]
struct Blogs {
    calls: Mutex<Vec<Json>>,
    /// Whether creating blogs fails.
    broken: bool,
}

#[async_trait]
impl ToolRunner for Blogs {
    async fn call(&self, call: ToolRequest) -> Result<Value, ToolError> {
        let args = Json::from(&call.args);
        self.calls.lock().unwrap().push(args.clone());
        if call.tool.name() == "createAuthor" {
            return Ok(json!({"_id": "507f1f77bcf86cd799439011", "name": args["name"]}).into());
        }
        if self.broken {
            return Err(ToolError::refused(Code::ToolError, "no blogs today"));
        }
        Ok(json!({"_id": "507f1f77bcf86cd799439012", "title": args["title"]}).into())
    }
}

fn tool(blogs: &Arc<Blogs>, name: &str, required: &[&str], output: &[&str]) -> Tool {
    let object = |names: &[&str]| {
        let properties: Json = names.iter().map(|n| (*n, json!({"type": "string"}))).collect();
        Arc::new(Schema::new(
            json!({"type": "object", "properties": properties, "required": names}).into(),
        ))
    };
    let mut spec = ToolSpec::new(ToolId::new("blog", name), name, object(required));
    spec.output = Some(object(output));
    let (read_only, destructive) = (Some(false), Some(false));
    spec.annotations = Annotations { read_only, destructive, ..Annotations::default() };
    Tool { spec: Arc::new(spec), runner: blogs.clone() }
}

/// An engine whose model is behind a server.
fn engine_with(server: &Server, provider: Provider, blogs: &Arc<Blogs>, limits: Limits) -> Engine {
    let path = match provider {
        Provider::OpenAi => "/v1",
        Provider::Anthropic => "",
    };
    let config = ModelConfig {
        provider,
        base_url: Some(server.url(path)),
        model: "small-1".to_owned(),
        api_key: Some(KEY.to_owned()),
        timeout: Some(Duration::from_secs(5)),
    };
    let model = model(&config, &limits).unwrap();
    Engine::builder().tools(tools(blogs)).limits(limits).model(model).build().0
}

fn tools(blogs: &Arc<Blogs>) -> [Tool; 2] {
    [
        tool(blogs, "createAuthor", &["name"], &["_id", "name"]),
        tool(blogs, "createBlog", &["authorId", "title"], &["_id", "title"]),
    ]
}

fn engine(server: &Server, provider: Provider) -> Engine {
    engine_with(server, provider, &Arc::default(), Limits::default())
}

fn good() -> String {
    json!({
        "reasoning": "A blog needs an author.",
        "tools": [
            {"name": "createAuthor", "parameters": {"name": "Alice"}, "dependsOn": null},
            {"name": "createBlog", "dependsOn": "createAuthor",
             "parameters": {"authorId": "{{createAuthor._id}}", "title": "Hello"}}
        ],
        "executionOrder": ["createAuthor", "createBlog"]
    })
    .to_string()
}

/// An answer of OpenAI's protocol.
fn openai(text: &str, finish: &str) -> Reply {
    let body = json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "small-1",
        "choices": [{"index": 0, "finish_reason": finish,
                     "message": {"role": "assistant", "content": text, "refusal": null}}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
    });
    Reply::json(200, &body.to_string())
}

/// An answer of Anthropic's.
fn anthropic(text: &str, stop: &str) -> Reply {
    let body = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "small-1",
        "content": [{"type": "text", "text": text}], "stop_reason": stop, "stop_sequence": null,
        "usage": {"input_tokens": 90, "cache_read_input_tokens": 10, "output_tokens": 20}
    });
    Reply::json(200, &body.to_string())
}

/// A server with these replies, one after the other; the last one repeats.
async fn saying(replies: Vec<Box<dyn Fn() -> Reply + Send + Sync>>) -> Server {
    let said = AtomicUsize::new(0);
    serve(move |_| {
        let next = said.fetch_add(1, Ordering::SeqCst).min(replies.len() - 1);
        replies[next]()
    })
    .await
}

fn says(text: impl Into<String>) -> Box<dyn Fn() -> Reply + Send + Sync> {
    let text = text.into();
    Box::new(move || openai(&text, "stop"))
}

async fn asked(engine: &Engine) -> Result<Planned, PlanningError> {
    engine.create_plan(PlanningRequest::new(QUERY)).await
}

async fn unplanned(engine: &Engine) -> PlanningFailure {
    match asked(engine).await.map(|planned| planned.record) {
        Err(PlanningError::Unplanned(unplanned)) => *unplanned,
        other => panic!("{other:?}"),
    }
}

fn body_of(request: &str) -> Json {
    serde_json::from_str(request.split_once("\r\n\r\n").unwrap().1).unwrap()
}

/// S4-10: both protocols, as they are: path, headers, body, tokens.
#[tokio::test]
async fn both_protocols_are_spoken() {
    let server = serve(|_| openai(&good(), "stop")).await;
    let planned = asked(&engine(&server, Provider::OpenAi)).await.unwrap();
    let PlanOrigin::Model { model, cost } = &planned.record.origin else { panic!() };
    assert_eq!((&**model, cost.rounds, cost.usage.total()), ("small-1", 1, 120));
    let request = &server.requests()[0];
    assert!(request.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"), "{request}");
    assert!(request.contains(&format!("authorization: Bearer {KEY}")), "{request}");
    let body = body_of(request);
    assert_eq!(body["messages"][0]["role"], "system");
    assert_eq!(body["messages"][1]["role"], "user");
    assert_eq!((&body["model"], &body["max_tokens"]), (&json!("small-1"), &json!(4096)));

    let server = serve(|_| anthropic(&good(), "end_turn")).await;
    let planned = asked(&engine(&server, Provider::Anthropic)).await.unwrap();
    let PlanOrigin::Model { cost, .. } = &planned.record.origin else { panic!() };
    assert_eq!(cost.usage.total(), 120);
    let request = &server.requests()[0];
    assert!(request.starts_with("POST /v1/messages HTTP/1.1\r\n"), "{request}");
    for line in [&format!("x-api-key: {KEY}"), "anthropic-version: 2023-06-01"] {
        assert!(request.contains(line), "{line}: {request}");
    }
    let body = body_of(request);
    assert!(body["system"].as_str().unwrap().starts_with("You plan calls of tools."));
    assert_eq!(body["messages"].as_array().unwrap().len(), 1);
    assert_eq!(body["messages"][0]["role"], "user");
}

/// Findings about an answer go back to the model, until the plan is sound.
#[tokio::test]
async fn findings_are_the_next_message() {
    let invented = good().replace("createBlog", "createPost");
    let fenced = format!("```json\n{}\n```", good());
    let server = saying(vec![says("Sure, here you go!"), says(invented), says(fenced)]).await;
    let planned = asked(&engine(&server, Provider::OpenAi)).await.unwrap();
    let PlanOrigin::Model { cost, .. } = planned.record.origin else { panic!() };
    assert_eq!((cost.rounds, cost.usage.total()), (3, 360));
    let last = body_of(&server.requests()[2]);
    let roles: Vec<&str> =
        last["messages"].as_array().unwrap().iter().map(|m| m["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "user", "assistant", "user"]);
    let told = last["messages"][5]["content"].as_str().unwrap();
    assert!(told.contains("unknown-tool") && told.contains("createPost"), "{told}");
}

/// A refusal of either provider, a truncated answer, and one that is never sound.
#[tokio::test]
async fn what_models_do_instead_of_planning() {
    let refusal = || {
        let message = json!({"role": "assistant", "content": null, "refusal": "I won't."});
        let body = json!({"choices": [{"finish_reason": "stop", "message": message}]});
        Reply::json(200, &body.to_string())
    };
    let server = serve(move |_| refusal()).await;
    assert_eq!(
        unplanned(&engine(&server, Provider::OpenAi)).await.message,
        "the model refused: I won't."
    );
    let server = serve(|_| anthropic("I can't help with that.", "refusal")).await;
    let refused = unplanned(&engine(&server, Provider::Anthropic)).await;
    assert_eq!(refused.message, "the model refused: I can't help with that.");

    let server = serve(|_| anthropic(&good()[..50], "max_tokens")).await;
    let cut = unplanned(&engine(&server, Provider::Anthropic)).await;
    assert_eq!((cut.cost.rounds, server.requests().len()), (4, 4));
    assert!(cut.findings[0].message.contains("cut off"), "{:?}", cut.findings);

    let server = serve(|_| Reply::json(200, r#"{"object": "something else"}"#)).await;
    let strange = unplanned(&engine(&server, Provider::OpenAi)).await;
    assert!(
        strange.message.contains("does not follow the provider's protocol"),
        "{}",
        strange.message
    );
    assert_eq!(server.requests().len(), 1);
}

/// What each status means for the next attempt. No error contains the key.
#[tokio::test]
async fn failures_are_repeated_only_where_that_helps() {
    let server = serve(|request| {
        let head = "Content-Type: application/json\r\nRetry-After: 7\r\n";
        let says_key = format!(r#"{{"error": {{"message": "Incorrect API key: {KEY}"}}}}"#);
        match body_of(request)["messages"][1]["content"].as_str().unwrap() {
            "busy" => Reply::new(429, head, r#"{"error": {"message": "slow down"}}"#),
            "overloaded" => Reply::new(529, "", "overloaded"),
            "gateway" => Reply::new(502, "", ""),
            "broken" => Reply::new(500, "", "oops"),
            "key" => Reply::new(401, "", &says_key),
            _ => Reply::new(404, "", r#"{"error": "model not found"}"#),
        }
    })
    .await;
    let config = ModelConfig {
        base_url: Some(server.url("/v1")),
        model: "m".to_owned(),
        api_key: Some(KEY.to_owned()),
        ..ModelConfig::default()
    };
    let model = model(&config, &Limits::default()).unwrap();
    let failed = async |says: &str| {
        let messages = vec![(Role::User, Arc::from(says))];
        model
            .answer(&Prompt { instructions: "plan", messages, answer_tokens_max: 10 })
            .await
            .unwrap_err()
    };
    for (says, retryable, wait, message) in [
        ("busy", true, Some(7_000), "slow down"),
        ("overloaded", true, None, "overloaded"),
        ("gateway", true, None, "502"),
        ("broken", true, None, "oops"),
        ("key", false, None, "Incorrect API key: «secret»"),
        ("other", false, None, "model not found"),
    ] {
        let failure = failed(says).await;
        assert_eq!((failure.retryable, failure.retry_after_ms), (retryable, wait), "{says}");
        assert!(failure.message.contains(message), "{}", failure.message);
        assert!(!format!("{failure:?}").contains(KEY));
        assert_eq!(failure.code, Code::Llm);
    }
}

/// A model with these replies, one after the other.
struct Scripted {
    name: Arc<str>,
    script: Mutex<Vec<Result<planner::ModelReply, Failure>>>,
}

#[async_trait]
impl Model for Scripted {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    async fn answer(&self, _prompt: &Prompt) -> Result<planner::ModelReply, Failure> {
        self.script.lock().unwrap().remove(0)
    }
}

/// A busy model is asked again after the delay that it names.
#[tokio::test(start_paused = true)]
async fn a_busy_model_is_waited_for() {
    let busy =
        Failure { retry_after_ms: Some(7_000), ..Failure::transient(Code::Llm, "slow down") };
    let usage = planner::Usage::default();
    let plan =
        planner::ModelReply { text: good().into(), stop: planner::StopReason::Finished, usage };
    let script = Mutex::new(vec![Err(busy), Err(Failure::transient(Code::Llm, "lost")), Ok(plan)]);
    let model = Arc::new(Scripted { name: "scripted".into(), script });
    let engine = Engine::builder().tools(tools(&Arc::default())).model(model).build().0;
    let rests = Mutex::new(Vec::new());
    let told = |meanwhile: PlanningEvent<'_>| {
        if let PlanningEvent::Retrying { ms, why } = meanwhile {
            rests.lock().unwrap().push((ms, why.to_owned()));
        }
    };
    let begun = tokio::time::Instant::now();
    engine
        .create_plan(PlanningRequest { on_event: &told, ..PlanningRequest::new(QUERY) })
        .await
        .unwrap();
    let rests = rests.into_inner().unwrap();
    assert_eq!((rests[0].0, &*rests[0].1, &*rests[1].1), (7_000, "slow down", "lost"));
    assert!(begun.elapsed() >= Duration::from_secs(7));
}

/// A slow answer ends at the timeout, a huge one at the size limit.
#[tokio::test]
async fn a_slow_and_a_huge_answer_end() {
    let limits =
        || Limits { llm_retries_max: 0, llm_answer_bytes_max: 10_000, ..Limits::default() };
    let server =
        serve(|_| Reply::Hang(b"HTTP/1.1 200 X\r\nContent-Length: 9\r\n\r\n".to_vec())).await;
    let config = ModelConfig {
        base_url: Some(server.url("/v1")),
        model: "m".to_owned(),
        timeout: Some(Duration::from_millis(50)),
        ..ModelConfig::default()
    };
    let slow = Engine::builder()
        .tools([tool(&Arc::default(), "createAuthor", &["name"], &["_id"])])
        .limits(limits())
        .model(model(&config, &limits()).unwrap())
        .build()
        .0;
    let gone = unplanned(&slow).await;
    assert!(gone.message.contains("no answer within 50 ms"), "{}", gone.message);
    assert!(gone.help.unwrap().contains("`timeout`"));

    let server = serve(|_| openai(&"x".repeat(20_000), "stop")).await;
    let huge = engine_with(&server, Provider::OpenAi, &Arc::default(), limits());
    let gone = unplanned(&huge).await;
    assert!(gone.message.contains("over 10000 bytes"), "{}", gone.message);
}

/// S4-01, S4-02, S4-04, S4-05, S4-07, S4-08, S4-37, S4-48, S4-49, S4-56: planned now, executed
/// later, found by either id.
#[tokio::test]
async fn a_plan_is_kept_and_executed_later() {
    let server = serve(|_| openai(&good(), "stop")).await;
    let blogs: Arc<Blogs> = Arc::default();
    let engine = engine_with(&server, Provider::OpenAi, &blogs, Limits::default());
    let record = asked(&engine).await.unwrap().record;
    assert_eq!((record.version, record.state), (1, PlanState::Pending));
    assert!(record.request_id.starts_with("req_") && record.plan_id.starts_with("plan_"));

    let found = engine.plan_of_request(&record.request_id).await.unwrap();
    assert_eq!(found, record);
    let (_, plan, _) = engine.plan_of(&found).unwrap();
    let request = RunRequest::new(plan.clone(), Value::empty_object());
    let view = engine.execute_plan(&record.plan_id, false, request).await.unwrap();
    assert!(view.success, "{view:?}");
    assert_eq!((&view.request_id, &view.plan_id), (&record.request_id, &record.plan_id));
    assert_eq!(blogs.calls.lock().unwrap()[1]["authorId"], "507f1f77bcf86cd799439011");

    let after = engine.plan_record(&record.plan_id).await.unwrap();
    assert_eq!((after.state, after.run_id), (PlanState::Completed, Some(view.run_id.clone())));
    let result = engine.plan_result(&record.plan_id).await.unwrap().unwrap();
    assert_eq!(Json::from(&result.output), Json::from(&view.output));

    // Once is what was asked for; twice has to be said.
    let request = || RunRequest::new(plan.clone(), Value::empty_object());
    let twice = engine.execute_plan(&record.plan_id, false, request()).await.unwrap_err();
    assert_eq!((twice.code(), blogs.calls.lock().unwrap().len()), (Code::Conflict, 2));
    engine.execute_plan(&record.plan_id, true, request()).await.unwrap();
    assert_eq!(blogs.calls.lock().unwrap().len(), 4);

    let unknown = engine.plan_of_request(&"req_1704123456_abc123def".into()).await.unwrap_err();
    assert_eq!(unknown.to_string(), "Plan not found for requestId: req_1704123456_abc123def");
    let unknown = engine.plan_record(&"plan_x".into()).await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
}

/// Of many callers that claim a plan at the same moment, one gets it. A store in a file answers
/// later, so that all have read before the first one writes.
#[tokio::test]
async fn a_plan_begins_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&dir.path().join("s.db"), SqliteOptions::default()).unwrap();
    let usage = planner::Usage::default();
    let plan =
        planner::ModelReply { text: good().into(), stop: planner::StopReason::Finished, usage };
    let model = Arc::new(Scripted { name: "scripted".into(), script: Mutex::new(vec![Ok(plan)]) });
    let builder = Engine::builder().tools(tools(&Arc::default())).store(Arc::new(store));
    let engine = builder.model(model).build().0;
    let plan_id = asked(&engine).await.unwrap().record.plan_id;
    let taking = (0..8).map(|_| engine.claim_plan(&plan_id, false, engine.new_run_id()));
    let taken = futures_util::future::join_all(taking).await;
    assert_eq!(taken.iter().filter(|taken| taken.is_ok()).count(), 1, "{taken:?}");
    let refused = taken.into_iter().find_map(Result::err).unwrap();
    assert_eq!(refused.code(), Code::Conflict);
}

/// The state of a claimed plan follows its run, also when no process reported the run's end.
#[tokio::test]
async fn a_plan_stands_as_its_run_does() {
    let server = serve(|_| openai(&good(), "stop")).await;
    let engine = engine(&server, Provider::OpenAi);
    let planned = asked(&engine).await.unwrap();
    let plan_id = &planned.record.plan_id;
    let run_id = engine.new_run_id();
    engine.claim_plan(plan_id, false, run_id.clone()).await.unwrap();
    // A run that never began does not begin again by itself.
    assert_eq!(engine.plan_record(plan_id).await.unwrap().state, PlanState::Failed);
    engine.claim_plan(plan_id, false, engine.new_run_id()).await.unwrap_err();
    engine.claim_plan(plan_id, true, run_id.clone()).await.unwrap();
    let mut request = RunRequest::new(planned.plan, Value::empty_object());
    request.run_id = Some(run_id);
    engine.run(request).await.unwrap();
    assert_eq!(engine.plan_record(plan_id).await.unwrap().state, PlanState::Completed);
}

/// S4-44…48, S4-50: a failure is the plan's state, and earlier results stay.
#[tokio::test]
async fn a_failed_plan_says_so() {
    let server = serve(|_| openai(&good(), "stop")).await;
    let blogs = Arc::new(Blogs { broken: true, ..Blogs::default() });
    let engine = engine_with(&server, Provider::OpenAi, &blogs, Limits::default());
    let planned = asked(&engine).await.unwrap();
    let request = RunRequest::new(planned.plan, Value::empty_object());
    let plan_id = planned.record.plan_id;
    engine.execute_plan(&plan_id, false, request).await.unwrap();
    assert_eq!(engine.plan_record(&plan_id).await.unwrap().state, PlanState::Failed);
    let result = engine.plan_result(&plan_id).await.unwrap().unwrap();
    assert_eq!(result.errors[0].message.as_str(), "no blogs today");
    assert_eq!(result.steps_succeeded, 1);
    // What failed is nothing to offer again.
    assert!(engine.similar_plans(QUERY).await.unwrap().is_empty());
}

/// A request has versions; its current plan is the last one.
#[tokio::test]
async fn a_request_has_versions() {
    let server = serve(|_| openai(&good(), "stop")).await;
    let engine = engine(&server, Provider::OpenAi);
    let first = asked(&engine).await.unwrap().record;
    let request_id = Some(first.request_id.clone());
    let request = PlanningRequest { request_id, ..PlanningRequest::new("Also with a title") };
    let second = engine.create_plan(request).await.unwrap().record;
    assert_eq!((&second.request_id, second.version), (&first.request_id, 2));
    let all = engine.plans_of_request(&first.request_id).await.unwrap();
    assert_eq!(all, [first.clone(), second.clone()]);
    assert_eq!(engine.plan_of_request(&first.request_id).await.unwrap(), second);
    assert_eq!(engine.plans(10).await.unwrap(), [second.clone(), first.clone()]);
    engine.delete_plan(&second.plan_id).await.unwrap();
    assert_eq!(engine.plan_of_request(&first.request_id).await.unwrap(), first);
    let request_id = Some("req_1704123456_abc123def".into());
    let unknown =
        engine.create_plan(PlanningRequest { request_id, ..PlanningRequest::new("x") }).await;
    assert_eq!(unknown.unwrap_err().code(), Code::NotFound);
}

/// Plans that succeeded are offered for similar words, and reused for the same ones, without a
/// model.
#[tokio::test]
async fn what_worked_is_used_again() {
    let server = serve(|_| openai(&good(), "stop")).await;
    let engine = engine(&server, Provider::OpenAi);
    let first = asked(&engine).await.unwrap();
    assert!(engine.similar_plans(QUERY).await.unwrap().is_empty());
    let request = RunRequest::new(first.plan, Value::empty_object());
    engine.execute_plan(&first.record.plan_id, false, request).await.unwrap();

    let alike = QUERY.replace("Alice", "Bob");
    let offered = engine.similar_plans(&alike).await.unwrap();
    assert_eq!(offered[0].plan_id, first.record.plan_id);
    assert!(engine.similar_plans("Delete every comment").await.unwrap().is_empty());

    let again = asked(&engine).await.unwrap().record;
    let plan_id = first.record.plan_id.clone();
    assert_eq!(again.origin, PlanOrigin::UsedBefore { plan_id: plan_id.clone() });
    assert_ne!(again.plan_id, plan_id);
    assert_eq!(again.document.get("planId"), Some(&Value::String(again.plan_id.clone())));
    assert_eq!(server.requests().len(), 1);

    // Similar words ask the model, unless the caller chooses the plan.
    engine.create_plan(PlanningRequest::new(alike.as_str())).await.unwrap();
    assert_eq!(server.requests().len(), 2);
    let reuse = Reuse::This(plan_id);
    engine
        .create_plan(PlanningRequest { reuse, ..PlanningRequest::new(alike.as_str()) })
        .await
        .unwrap();
    assert_eq!(server.requests().len(), 2);
    engine
        .create_plan(PlanningRequest { reuse: Reuse::Nothing, ..PlanningRequest::new(QUERY) })
        .await
        .unwrap();
    assert_eq!(server.requests().len(), 3);
}

#[tokio::test]
async fn without_a_model_it_is_said_how_to_get_one() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let engine = Engine::builder().store(store).build().0;
    let error = asked(&engine).await.unwrap_err();
    assert_eq!(error.code(), Code::Llm);
    assert!(error.help().unwrap().contains("llm: {"));
}
