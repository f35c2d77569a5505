//! The built-in tools as a whole, and the small families.

use std::collections::BTreeSet;
use std::time::Instant;

use segue_core::diagnostic::Code;
use segue_core::tool::DeclaredRollback;
use segue_core::value::Value;
use segue_runtime::tools::ToolError;
use segue_runtime::tools::builtin::{BuiltinConfig, CheckpointLocation, tools};

use crate::server::{Reply, serve};
use crate::support::{Bench, Json, call_of, json};

fn config() -> BuiltinConfig {
    BuiltinConfig { http_allow: vec!["127.0.0.1:*".to_owned()], ..BuiltinConfig::default() }
}

/// Every schema compiles, every annotation is given, every rollback names a tool that exists and
/// arguments that it has.
#[test]
fn every_tool_is_declared_soundly() {
    let all = tools(&config());
    let names: BTreeSet<&str> = all.iter().map(|tool| tool.spec.id.name()).collect();
    assert_eq!(names.len(), all.len());
    for tool in &all {
        let spec = &tool.spec;
        assert_eq!(spec.id.namespace(), "builtin");
        spec.input.check().unwrap_or_else(|error| panic!("{}: {error}", spec.id));
        let output = spec.output.as_ref().unwrap_or_else(|| panic!("{} has no output", spec.id));
        output.check().unwrap_or_else(|error| panic!("{}: {error}", spec.id));
        let closed = spec.input.json().get("additionalProperties") == Some(&Value::Bool(false));
        assert_eq!(closed, spec.id.name() != "echo", "{}", spec.id);
        let annotations = spec.annotations;
        assert!(annotations.read_only.is_some() && annotations.destructive.is_some());
        assert!(annotations.idempotent.is_some() && annotations.open_world.is_some());
        match &spec.rollback {
            DeclaredRollback::Unknown => panic!("{} says nothing about rollback", spec.id),
            DeclaredRollback::NotNeeded => assert_eq!(annotations.read_only, Some(true)),
            DeclaredRollback::Impossible { .. } => assert_eq!(annotations.read_only, Some(false)),
            DeclaredRollback::Call { tool, parameters } => {
                let undo = all.iter().find(|other| other.spec.id.name() == &**tool).unwrap();
                let known = undo.spec.input.json().get("properties").unwrap();
                for name in parameters.as_object().unwrap().keys() {
                    assert!(known.get(name).is_some(), "{}: {name}", spec.id);
                }
            }
        }
    }
}

/// Every tool returns a value that fits its own output schema ([`Bench::call`] validates it).
#[tokio::test]
async fn every_tool_gives_what_it_declares() {
    let server = serve(|_| Reply::json(200, r#"{"ok":true}"#)).await;
    let bench = Bench::with(|config| config.http_allow = vec!["127.0.0.1:*".to_owned()]);
    let id = bench.ok("checkpoint_save", json!({"content": "kept"})).await["id"].clone();
    let deleted = bench.ok("checkpoint_delete", json!({"id": id})).await["previous"].clone();
    let examples = [
        ("echo", json!({"a": [1, null]})),
        ("fail", json!({"times": 0, "value": 1})),
        ("sleep", json!({"ms": 0})),
        ("text_split", json!({"text": "a\nb"})),
        ("text_join", json!({"parts": ["a", 1]})),
        ("text_replace", json!({"text": "a", "find": "a", "replace": "b"})),
        ("text_extract", json!({"text": "a1", "pattern": "(?P<l>[a-z])(x)?"})),
        ("text_truncate", json!({"text": "abc", "max_chars": 2})),
        ("text_stats", json!({"text": "a b"})),
        ("json_query", json!({"value": {"a": 1}, "query": ".a"})),
        ("context_fold", json!({"content": "One. Two.", "strategy": "abstractive"})),
        ("files_write", json!({"path": "a.txt", "content": "one"})),
        ("files_read", json!({"path": "a.txt"})),
        ("files_edit", json!({"path": "a.txt", "find": "one", "replace": "two"})),
        ("atomic_edit", json!({"path": "a.txt", "find": "two", "replace": "three"})),
        ("files_list", json!({})),
        ("files_delete", json!({"path": "a.txt"})),
        ("files_restore", json!({"path": "a.txt", "content": "one"})),
        ("http_get", json!({"url": server.url("/")})),
        ("http_request", json!({"url": server.url("/"), "method": "POST", "body": {}})),
        ("checkpoint_restore", json!({"checkpoint": deleted})),
        ("checkpoint_save", json!({"content": "text", "tags": ["a"]})),
        ("checkpoint_search", json!({"query": "text"})),
        ("checkpoint_list", json!({})),
        ("checkpoint_delete", json!({"id": "chk_none"})),
    ];
    for (name, args) in &examples {
        bench.ok(name, args.clone()).await;
    }
    let called: BTreeSet<&str> = examples.iter().map(|(name, _)| *name).collect();
    for tool in tools(&config()) {
        assert!(called.contains(tool.spec.id.name()), "{} has no example", tool.spec.id);
    }
}

/// Declaring the tools opens nothing and costs almost nothing. The limit is generous, because tests
/// are not optimised; `--release -- --nocapture` shows the real cost.
#[test]
fn declaring_the_tools_is_cheap() {
    let config = BuiltinConfig {
        files_root: "/nowhere".into(),
        checkpoints: CheckpointLocation::File("/nowhere/x.db".into()),
        ..config()
    };
    let mut best = std::time::Duration::MAX;
    for _ in 0..20 {
        let start = Instant::now();
        assert!(tools(&config).len() > 20);
        best = best.min(start.elapsed());
    }
    println!("tools(): {best:?}");
    assert!(best.as_millis() < 20, "{best:?}");
}

/// S3-29: `atomic_edit` asks every time.
#[test]
fn atomic_edit_asks_first() {
    let bench = Bench::new();
    assert!(bench.tool("atomic_edit").spec.must_confirm(&Value::empty_object()));
    assert!(bench.tool("files_delete").spec.needs_confirmation());
    assert!(bench.tool("http_request").spec.needs_confirmation());
    assert!(bench.tool("files_write").spec.confirms_conditionally());
    for name in ["checkpoint_save", "http_get", "echo"] {
        assert!(!bench.tool(name).spec.needs_confirmation(), "{name}");
    }
}

#[tokio::test]
async fn echo_returns_numbers_exactly() {
    let bench = Bench::new();
    let tool = bench.tool("echo");
    let mut call = call_of(tool, json!({}));
    call.args = serde_json::from_str(r#"{"n":9007199254740993,"u":18446744073709551615}"#).unwrap();
    let expected = call.args.clone();
    assert_eq!(tool.runner.call(call).await.unwrap(), expected);
}

#[tokio::test]
async fn fail_fails_as_often_as_asked() {
    let bench = Bench::new();
    let tool = bench.tool("fail");
    let attempt = |attempt, args: Json| {
        let mut call = call_of(tool, args);
        call.attempt = attempt;
        tool.runner.call(call)
    };
    let twice = json!({"times": 2, "value": 7, "message": "not yet"});
    for n in [1, 2] {
        let error = attempt(n, twice.clone()).await.unwrap_err();
        assert_eq!(error, ToolError::failed("not yet"));
    }
    assert_eq!(attempt(3, twice).await.unwrap().to_json(), r#"{"value":7}"#);
    assert!(attempt(1000, json!({})).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn sleep_sleeps() {
    let value = Bench::new().ok("sleep", json!({"ms": 3_000_000, "value": "x"})).await;
    assert_eq!(value, json!({"slept_ms": 3_000_000, "value": "x"}));
}

#[tokio::test]
async fn json_query_reshapes_and_refuses_what_need_not_end() {
    let bench = Bench::new();
    let value = json!({"items": [{"n": 1}, {"n": 2}]});
    let found = bench.ok("json_query", json!({"value": value, "query": ".items[].n"})).await;
    assert_eq!(found, json!({"result": [1, 2]}));
    let (_, message) = bench.refused("json_query", json!({"value": 1, "query": "repeat(.)"})).await;
    assert!(message.contains("repeat"), "{message}");
}

#[tokio::test]
async fn text_tools_work_on_text() {
    let bench = Bench::new();
    let ok = |name, args| bench.ok(name, args);
    let parts = ok("text_split", json!({"text": "a,b,,c", "separator": ","})).await;
    assert_eq!(parts, json!({"parts": ["a", "b", "", "c"]}));
    let joined = ok("text_join", json!({"parts": ["a", 1, null], "separator": "-"})).await;
    assert_eq!(joined, json!({"text": "a-1-null"}));
    let args = json!({"text": "a.a.", "find": ".", "replace": "$0"});
    let literal = ok("text_replace", args).await;
    assert_eq!(literal, json!({"text": "a$0a$0", "replacements": 2}));
    let args = json!({"text": "x=1", "find": r"(\w)=(\d)", "replace": "$2=$1", "regex": true});
    assert_eq!(ok("text_replace", args).await, json!({"text": "1=x", "replacements": 1}));
    let args = json!({"text": "v1.20 v3", "pattern": r"v(?P<major>\d+)(?:\.(\d+))?"});
    assert_eq!(
        ok("text_extract", args).await,
        json!({"matches": [
            {"text": "v1.20", "groups": ["1", "20"], "named": {"major": "1"}},
            {"text": "v3", "groups": ["3", null], "named": {"major": "3"}}]})
    );
    let cut = ok("text_truncate", json!({"text": "häuser", "max_chars": 4})).await;
    assert_eq!(cut, json!({"text": "häu…", "truncated": true}));
    let whole = ok("text_truncate", json!({"text": "häuser", "max_chars": 6})).await;
    assert_eq!(whole, json!({"text": "häuser", "truncated": false}));
    let stats = ok("text_stats", json!({"text": "eins zwei\ndrei ä"})).await;
    assert_eq!(stats, json!({"chars": 16, "words": 4, "lines": 2}));
}

/// Hostile input 10 and 14: growth ends in `limit`, patterns are linear and small.
#[tokio::test]
async fn text_tools_are_bounded() {
    let bench = Bench::with(|config| config.limits.value_bytes_max = 10_000);
    let many = "a".repeat(5_000);
    let args = json!({"text": many, "find": "a", "replace": "bbb"});
    assert_eq!(bench.refused("text_replace", args).await.0, Code::Limit);
    let args = json!({"text": many, "find": "a", "replace": "$0$0$0", "regex": true});
    assert_eq!(bench.refused("text_replace", args).await.0, Code::Limit);
    let args = json!({"text": many, "find": "a+", "replace": "$0".repeat(3), "regex": true});
    assert_eq!(bench.refused("text_replace", args).await.0, Code::Limit);
    let args = json!({"parts": [many, many, many]});
    assert_eq!(bench.refused("text_join", args).await.0, Code::Limit);
    let args = json!({"text": "a,".repeat(200_000), "separator": ","});
    assert_eq!(bench.refused("text_split", args).await.0, Code::Limit);
    let args = json!({"text": "a", "pattern": r"\w{1000}{1000}"});
    assert_eq!(bench.refused("text_extract", args).await.0, Code::Limit);
    let args = json!({"text": "a", "pattern": "("});
    assert_eq!(bench.refused("text_extract", args).await.0, Code::InputSchema);
    let args = json!({"text": format!("{}b", "a".repeat(100_000)), "pattern": "(a+)+$"});
    assert_eq!(bench.ok("text_extract", args).await, json!({"matches": []}));
}
