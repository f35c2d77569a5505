//! Checkpoints over a real database.

use std::fs;

use segue_core::tool::DeclaredRollback;
use segue_runtime::tools::builtin::CheckpointLocation;
use segue_runtime::tools::{ToolError, ToolRequest};
use tempfile::TempDir;

use crate::support::{Bench, Json, call_of, json};

fn in_file(dir: &TempDir) -> Bench {
    let path = dir.path().join("data/checkpoints.db");
    Bench::with(|config| config.checkpoints = CheckpointLocation::File(path))
}

async fn ids(bench: &Bench, args: Json) -> Vec<String> {
    let found = bench.ok("checkpoint_search", args).await;
    let results = found["results"].as_array().unwrap();
    results.iter().map(|result| result["id"].as_str().unwrap().to_owned()).collect()
}

async fn save(bench: &Bench, args: Json) -> String {
    bench.ok("checkpoint_save", args).await["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn what_is_saved_is_found_again_also_by_the_next_process() {
    let dir = TempDir::new().unwrap();
    let first = in_file(&dir);
    let saved = first
        .ok("checkpoint_save", json!({"content": "# Retrying\nCalls are retried with jitter", "tags": ["b", "a", "a"]}))
        .await;
    assert_eq!(saved["summary"], "Retrying");
    let id = saved["id"].as_str().unwrap();
    assert!(id.starts_with("chk_") && id.len() == 40, "{id}");
    assert!(saved["created_at"].as_str().unwrap().ends_with('Z'), "{saved}");
    drop(first);
    let second = in_file(&dir);
    let found = second.ok("checkpoint_search", json!({"query": "retry JITTER"})).await;
    assert_eq!(found["count"], 1, "stemmed, and in any case: {found}");
    assert_eq!(found["content"], "# Retrying\nCalls are retried with jitter");
    let result = &found["results"][0];
    assert_eq!((&result["id"], &result["tags"]), (&saved["id"], &json!(["a", "b"])));
    assert_eq!(result["source"], "store");
    assert!(result["score"].is_number());
}

#[tokio::test]
async fn better_matches_come_first_and_all_words_before_any() {
    let bench = Bench::new();
    let both = save(&bench, json!({"content": "apples and pears in one basket"})).await;
    let one = save(&bench, json!({"content": "apples only"})).await;
    let title = save(&bench, json!({"content": "a basket of fruit", "summary": "pears"})).await;
    let search = |query: &str| ids(&bench, json!({"query": query, "manual": "never"}));
    assert_eq!(search("pears apples").await, [both]);
    assert_eq!(search("apples zebras").await.len(), 2, "any word, when no text has all");
    assert_eq!(search("pear").await[0], title, "a summary counts more");
    assert!(search("äpples").await.contains(&one), "marks above letters do not matter");
    assert_eq!(ids(&bench, json!({"query": "basket", "top_k": 1})).await.len(), 1);
    assert!(!search("the of and").await.is_empty());
}

#[tokio::test]
async fn tags_must_all_be_there() {
    let bench = Bench::new();
    let tagged = save(&bench, json!({"content": "x one", "tags": ["a", "it's \"b\""]})).await;
    save(&bench, json!({"content": "x two", "tags": ["a"]})).await;
    let search = |tags: Json| ids(&bench, json!({"query": "x", "tags": tags, "manual": "never"}));
    assert_eq!(search(json!(["a"])).await.len(), 2);
    assert_eq!(search(json!(["it's \"b\"", "a"])).await, std::slice::from_ref(&tagged));
    assert!(search(json!(["c"])).await.is_empty());
    let listed = bench.ok("checkpoint_list", json!({"tags": ["it's \"b\""]})).await;
    assert_eq!(listed["checkpoints"][0]["id"], json!(tagged));
    assert_eq!(listed["checkpoints"].as_array().unwrap().len(), 1);
    let newest = bench.ok("checkpoint_list", json!({"limit": 1})).await;
    assert_eq!(newest["checkpoints"][0]["summary"], "x two");
}

/// A search that asks for the manual finds a result on a fresh machine, which names its source.
#[tokio::test]
async fn without_a_match_the_manual_answers() {
    let bench = Bench::new();
    for query in [
        "how do retries work",
        "rollback a failed run",
        "run steps in parallel",
        "template expression",
        "resume after crash",
        "who confirms a destructive tool",
        "check before running",
        "loop over items",
        "timeout of a step",
        "where do secrets go",
        "composition as a tool",
        "call in doubt",
    ] {
        let found = bench
            .ok("checkpoint_search", json!({"query": query, "top_k": 3, "manual": "if_empty"}))
            .await;
        assert!(found["count"].as_u64() >= Some(1), "{query}");
        assert_eq!(found["results"][0]["source"], "manual");
        assert!(found["content"].as_str().unwrap().len() > 200);
    }
    let unasked = bench.ok("checkpoint_search", json!({"query": "retries"})).await;
    assert_eq!(unasked["count"], 0, "the manual answers only when it is asked for");
    let never = bench.ok("checkpoint_search", json!({"query": "retries", "manual": "never"})).await;
    assert_eq!(never, json!({"content": "", "results": [], "count": 0}));
    save(&bench, json!({"content": "my own note on retries"})).await;
    let own =
        bench.ok("checkpoint_search", json!({"query": "retries", "manual": "if_empty"})).await;
    assert_eq!((&own["count"], &own["results"][0]["source"]), (&json!(1), &json!("store")));
    let both = bench.ok("checkpoint_search", json!({"query": "retries", "manual": "always"})).await;
    assert_eq!(both["results"][0]["source"], "store");
    assert!(both["count"].as_u64() > Some(1));
}

/// S0-56: deleting rolls back saving; restoring the same checkpoint rolls back deleting.
#[tokio::test]
async fn checkpoints_are_taken_back_and_put_back() {
    let bench = Bench::new();
    assert_eq!(
        bench.tool("checkpoint_save").spec.rollback,
        DeclaredRollback::Call {
            tool: "checkpoint_delete".into(),
            parameters: json!({"id": "{{ output.id }}"}).into(),
        }
    );
    let id = save(&bench, json!({"content": "kept text", "summary": "s", "tags": ["t"]})).await;
    let before = bench.ok("checkpoint_search", json!({"query": "kept"})).await;
    let deleted = bench.ok("checkpoint_delete", json!({"id": id})).await;
    assert_eq!(deleted["deleted"], true);
    assert!(ids(&bench, json!({"query": "kept", "manual": "never"})).await.is_empty());
    let args = json!({"checkpoint": deleted["previous"]});
    assert_eq!(
        bench.ok("checkpoint_restore", args.clone()).await,
        json!({"id": id, "restored": true})
    );
    bench.ok("checkpoint_restore", args).await;
    assert_eq!(bench.ok("checkpoint_search", json!({"query": "kept"})).await, before);
    let again = bench.ok("checkpoint_delete", json!({"id": "chk_none"})).await;
    assert_eq!(again, json!({"id": "chk_none", "deleted": false, "previous": null}));
    let nothing = bench.ok("checkpoint_restore", json!({"checkpoint": null})).await;
    assert_eq!(nothing["restored"], false);
}

/// Calls a tool in a run of this owner.
async fn as_owner(bench: &Bench, owner: Option<&str>, name: &str, args: Json) -> Json {
    let tool = bench.tool(name);
    let call = ToolRequest { owner: owner.map(Into::into), ..call_of(tool, args) };
    serde_json::to_value(tool.runner.call(call).await.unwrap()).unwrap()
}

/// D3: checkpoints belong to their principal: those of others look absent in every request, and
/// restoring one cannot take over the id of another principal's.
#[tokio::test]
async fn checkpoints_are_their_principal_s() {
    let bench = Bench::new();
    let owners = [None, Some("ada"), Some("bob")];
    let mut saved = Vec::new();
    for owner in owners {
        let args = json!({"content": format!("a secret of {owner:?}"), "tags": ["t"]});
        saved.push(as_owner(&bench, owner, "checkpoint_save", args).await["id"].clone());
    }
    for (owner, own) in owners.into_iter().zip(&saved) {
        let query = json!({"query": "secret", "manual": "never"});
        let found = as_owner(&bench, owner, "checkpoint_search", query).await;
        assert_eq!((&found["count"], &found["results"][0]["id"]), (&json!(1), own), "{owner:?}");
        let listed = as_owner(&bench, owner, "checkpoint_list", json!({"tags": ["t"]})).await;
        assert_eq!(listed["checkpoints"].as_array().unwrap().len(), 1, "{owner:?}");
        assert_eq!(&listed["checkpoints"][0]["id"], own);
        for other in saved.iter().filter(|other| *other != own) {
            let absent = json!({"id": "chk_none"});
            let absent = as_owner(&bench, owner, "checkpoint_delete", absent).await;
            let told = as_owner(&bench, owner, "checkpoint_delete", json!({"id": other})).await;
            assert_eq!(told["deleted"], absent["deleted"]);
            assert_eq!(told["previous"], absent["previous"]);
            let squat = json!({"checkpoint": {"id": other, "summary": "s", "content": "mine",
                "tags": [], "created_at": "2020-01-01T00:00:00.000Z"}});
            let told = as_owner(&bench, owner, "checkpoint_restore", squat).await;
            assert_eq!(told, json!({"id": other, "restored": true}));
            let taken = as_owner(&bench, owner, "checkpoint_delete", json!({"id": other})).await;
            assert_eq!(taken["previous"]["content"], "mine", "{owner:?}");
        }
    }
}

/// Checkpoints from before owners existed belong to the operator.
#[tokio::test]
async fn checkpoints_from_before_are_the_operator_s() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("checkpoints.db");
    let old = rusqlite::Connection::open(&path).unwrap();
    old.execute_batch(
        "CREATE TABLE checkpoint (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE,
             summary TEXT NOT NULL, content TEXT NOT NULL, tags TEXT NOT NULL,
             created_at TEXT NOT NULL) STRICT;
         INSERT INTO checkpoint (id, summary, content, tags, created_at)
             VALUES ('chk_old', 's', 'c', '[]', '2020-01-01T00:00:00.000Z');",
    )
    .unwrap();
    drop(old);
    let bench = Bench::with(|config| config.checkpoints = CheckpointLocation::File(path));
    let listed = |owner| as_owner(&bench, owner, "checkpoint_list", json!({}));
    assert_eq!(listed(None).await["checkpoints"][0]["id"], "chk_old");
    assert_eq!(listed(Some("ada")).await["checkpoints"], json!([]));
}

/// A query is a list of words: no part of it is an operator of the index or SQL.
#[tokio::test]
async fn hostile_queries_find_words_or_nothing() {
    let bench = Bench::new();
    save(&bench, json!({"content": "and or not near needle"})).await;
    for query in [
        "\"",
        "\"\"",
        "'",
        "''; DROP TABLE checkpoint; --",
        "needle*",
        "*",
        "**",
        "-needle",
        "NOT needle",
        "needle AND",
        "AND",
        "OR OR",
        "NEAR(needle, 2)",
        "NEAR(",
        "summary:needle",
        "content : needle",
        "{summary content}:needle",
        "^needle",
        "needle +",
        "(((",
        ")",
        "((needle)",
        "\u{0}",
        "needle\u{0}",
        "%",
        "_",
        "\\",
        "needle\\",
        "🦀",
        "日本語",
        "a\"b\"c",
        "x' OR '1'='1",
        "checkpoint_words",
        "rank",
        "bm25(checkpoint_words)",
        "\u{202e}needle",
        "\n\t",
        "",
    ] {
        bench.ok("checkpoint_search", json!({"query": query})).await;
    }
    let long = "needle ".repeat(20_000);
    assert_eq!(ids(&bench, json!({"query": long, "manual": "never"})).await.len(), 1);
    let many = (0..20_000).map(|n| format!("w{n}")).collect::<Vec<_>>().join(" ");
    bench.ok("checkpoint_search", json!({"query": many})).await;
    assert_eq!(ids(&bench, json!({"query": "needle", "manual": "never"})).await.len(), 1);
}

#[tokio::test]
async fn a_damaged_or_missing_store_is_said_to_be_so() {
    let dir = TempDir::new().unwrap();
    let bench = in_file(&dir);
    fs::create_dir(dir.path().join("data")).unwrap();
    fs::write(dir.path().join("data/checkpoints.db"), "this is not a database, at all".repeat(100))
        .unwrap();
    let (_, message) = bench.refused("checkpoint_list", json!({})).await;
    assert!(message.contains("checkpoints.db") && message.contains("not a database"), "{message}");
    let bench = Bench::with(|config| {
        config.checkpoints = CheckpointLocation::File("/proc/none/x.db".into());
    });
    let (_, message) = bench.refused("checkpoint_list", json!({})).await;
    assert!(message.contains("cannot be opened"), "{message}");
}

/// A store that another process holds is a retryable failure, and a retry works.
#[tokio::test]
async fn a_locked_store_may_be_tried_again() {
    let dir = TempDir::new().unwrap();
    let bench = in_file(&dir);
    save(&bench, json!({"content": "first"})).await;
    let other = rusqlite::Connection::open(dir.path().join("data/checkpoints.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    match bench.call("checkpoint_save", json!({"content": "second"})).await {
        Err(ToolError::Refused { message, retryable: true, .. }) => {
            assert!(message.contains("locked"), "{message}");
        }
        other => panic!("{other:?}"),
    }
    other.execute_batch("COMMIT").unwrap();
    save(&bench, json!({"content": "second"})).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_calls_at_once_are_all_kept() {
    let dir = TempDir::new().unwrap();
    let (first, second) = (in_file(&dir), in_file(&dir));
    let saves = (0..40).map(|n| {
        let bench = if n % 2 == 0 { &first } else { &second };
        save(bench, json!({"content": format!("number n{n}")}))
    });
    futures_util::future::join_all(saves).await;
    let listed = first.ok("checkpoint_list", json!({"limit": 1000})).await;
    assert_eq!(listed["checkpoints"].as_array().unwrap().len(), 40);
}
