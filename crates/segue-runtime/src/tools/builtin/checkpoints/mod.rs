//! `checkpoint_*`: saved texts with full-text search.
//!
//! A search that asks for it (`manual`) also searches a small manual shipped with
//! the program, so that the first search on a fresh machine has a result.
//!
//! Each run sees only the checkpoints of its owner.
//!
//! Not here: the database ([`store`]).

mod manual;
mod store;

use std::sync::Arc;

use async_trait::async_trait;
use segue_core::limits::Limits;
use segue_core::tool::{Annotations, ConfirmPolicy};
use segue_core::value::Value;
use uuid::Uuid;

use super::args::ToolArgs;
use super::{
    BuiltinRollback, BuiltinSpec, CheckpointLocation, READS, WRITES, over_limit, run_blocking,
};
use crate::tools::{Tool, ToolError, ToolRequest, ToolRunner};
use store::{Checkpoint, CheckpointOwner, CheckpointQuery, CheckpointStore, DatabaseLocation};

/// Each call adds a checkpoint.
const ADDS: Annotations = WRITES;

const DELETES: Annotations =
    Annotations { destructive: Some(true), idempotent: Some(true), ..WRITES };

const RESTORES: Annotations = Annotations { idempotent: Some(true), ..WRITES };

type Run = fn(&Checkpoints, &CheckpointOwner, ToolArgs<'_>) -> Result<Value, ToolError>;

const TOOLS: &[(BuiltinSpec, Run)] = &[
    (
        BuiltinSpec {
            name: "checkpoint_save",
            description: "Saves a text, which a full-text search finds again",
            input: r#"{"type":"object","required":["content"],"additionalProperties":false,"properties":{
                "content":{"type":"string"},
                "summary":{"type":"string","description":"one line; by default the first line of the content"},
                "tags":{"type":"array","items":{"type":"string"},"maxItems":100}}}"#,
            output: r#"{"type":"object","required":["id","summary","created_at"],"additionalProperties":false,"properties":{
                "id":{"type":"string"},"summary":{"type":"string"},"created_at":{"type":"string","format":"date-time"}}}"#,
            annotations: ADDS,
            rollback: BuiltinRollback::Call("checkpoint_delete", &[("id", "{{ output.id }}")]),
            confirm: ConfirmPolicy::ByEffect,
        },
        save,
    ),
    (
        BuiltinSpec {
            name: "checkpoint_search",
            description: "Finds checkpoints by words, best first",
            input: r#"{"type":"object","required":["query"],"additionalProperties":false,"properties":{
                "query":{"type":"string","description":"words; those that have all of them, else those that have any"},
                "top_k":{"type":"integer","minimum":1,"maximum":100,"default":10},
                "tags":{"type":"array","items":{"type":"string"},"description":"tags that a checkpoint must all have"},
                "manual":{"enum":["if_empty","always","never"],"default":"never","description":"whether Segue's own manual is searched too"}}}"#,
            output: r#"{"type":"object","required":["content","results","count"],"additionalProperties":false,"properties":{
                "content":{"type":"string","description":"the texts of all results, with blank lines between them"},
                "count":{"type":"integer"},
                "results":{"type":"array","items":{"type":"object","required":["id","summary","content","tags","score","source"],
                    "additionalProperties":false,"properties":{
                        "id":{"type":"string"},"summary":{"type":"string"},"content":{"type":"string"},
                        "tags":{"type":"array","items":{"type":"string"}},
                        "score":{"type":"number"},"source":{"enum":["store","manual"]}}}}}}"#,
            annotations: READS,
            rollback: BuiltinRollback::NotNeeded,
            confirm: ConfirmPolicy::ByEffect,
        },
        search,
    ),
    (
        BuiltinSpec::reads(
            "checkpoint_list",
            "Lists checkpoints, newest first",
            r#"{"type":"object","additionalProperties":false,"properties":{
                "tags":{"type":"array","items":{"type":"string"},"description":"tags that a checkpoint must all have"},
                "limit":{"type":"integer","minimum":1,"maximum":1000,"default":50}}}"#,
            r#"{"type":"object","required":["checkpoints"],"additionalProperties":false,"properties":{
                "checkpoints":{"type":"array","items":{"type":"object","required":["id","summary","tags","created_at"],
                    "additionalProperties":false,"properties":{
                        "id":{"type":"string"},"summary":{"type":"string"},
                        "tags":{"type":"array","items":{"type":"string"}},
                        "created_at":{"type":"string","format":"date-time"}}}}}}"#,
        ),
        list,
    ),
    (
        BuiltinSpec {
            name: "checkpoint_delete",
            description: "Deletes a checkpoint; a missing one is no failure",
            input: r#"{"type":"object","required":["id"],"additionalProperties":false,"properties":{
                "id":{"type":"string"}}}"#,
            output: r#"{"type":"object","required":["id","deleted","previous"],"additionalProperties":false,"properties":{
                "id":{"type":"string"},"deleted":{"type":"boolean"},
                "previous":{"type":["object","null"],"description":"the whole checkpoint, to be put back"}}}"#,
            annotations: DELETES,
            rollback: BuiltinRollback::Call(
                "checkpoint_restore",
                &[("checkpoint", "{{ output.previous }}")],
            ),
            confirm: ConfirmPolicy::ByEffect,
        },
        delete,
    ),
    (
        BuiltinSpec {
            name: "checkpoint_restore",
            description: "Restores a deleted checkpoint: the rollback of checkpoint_delete",
            input: r#"{"type":"object","required":["checkpoint"],"additionalProperties":false,"properties":{
                "checkpoint":{"type":["object","null"],"required":["id","summary","content","tags","created_at"],
                    "additionalProperties":false,"properties":{
                        "id":{"type":"string"},"summary":{"type":"string"},"content":{"type":"string"},
                        "tags":{"type":"array","items":{"type":"string"}},"created_at":{"type":"string"}}}}}"#,
            output: r#"{"type":"object","required":["id","restored"],"additionalProperties":false,"properties":{
                "id":{"type":"string","description":"empty when there was nothing to put back"},"restored":{"type":"boolean"}}}"#,
            annotations: RESTORES,
            rollback: BuiltinRollback::Call("checkpoint_delete", &[("id", "{{ output.id }}")]),
            confirm: ConfirmPolicy::ByEffect,
        },
        restore,
    ),
];

pub(super) fn tools(at: CheckpointLocation, limits: &Arc<Limits>) -> Vec<Tool> {
    let place = match at {
        CheckpointLocation::Memory => DatabaseLocation::Memory,
        CheckpointLocation::File(path) => DatabaseLocation::File(path),
    };
    let checkpoints = Arc::new(Checkpoints {
        store: CheckpointStore::new(place),
        manual: CheckpointStore::new(DatabaseLocation::Filled(manual::checkpoints)),
        bytes_max: limits.value_bytes_max,
    });
    let runner = |run: Run| Arc::new(Runner { checkpoints: checkpoints.clone(), run });
    TOOLS.iter().map(|(declared, run)| declared.tool(runner(*run))).collect()
}

struct Checkpoints {
    store: CheckpointStore,
    manual: CheckpointStore,
    bytes_max: usize,
}

struct Runner {
    checkpoints: Arc<Checkpoints>,
    run: Run,
}

#[async_trait]
impl ToolRunner for Runner {
    async fn call(&self, call: ToolRequest) -> Result<Value, ToolError> {
        let (checkpoints, run) = (self.checkpoints.clone(), self.run);
        run_blocking(move || {
            run(&checkpoints, &CheckpointOwner::of(call.owner.as_deref()), ToolArgs(&call.args))
        })
        .await
    }
}

fn save(
    checkpoints: &Checkpoints,
    owner: &CheckpointOwner,
    args: ToolArgs<'_>,
) -> Result<Value, ToolError> {
    let content = args.text("content")?;
    let summary =
        args.optional_text("summary")?.map_or_else(|| first_line(content), ToString::to_string);
    let mut tags: Vec<String> = args.texts("tags")?.into_iter().map(str::to_owned).collect();
    tags.sort_unstable();
    tags.dedup();
    let mut checkpoint = Checkpoint {
        id: format!("chk_{}", Uuid::now_v7()),
        summary,
        content: content.to_string(),
        tags,
        created_at: String::new(),
    };
    checkpoint.created_at = checkpoints.store.insert(owner, &checkpoint)?;
    Ok(Value::object([
        ("id", Value::from(checkpoint.id)),
        ("summary", Value::from(checkpoint.summary)),
        ("created_at", Value::from(checkpoint.created_at)),
    ]))
}

/// The first line with text, cut to the length of a summary.
fn first_line(content: &str) -> String {
    const SUMMARY_CHARS_MAX: usize = 120;
    let line = content.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("");
    let line = line.trim_start_matches('#').trim_start();
    match line.char_indices().nth(SUMMARY_CHARS_MAX) {
        Some((cut, _)) => format!("{}…", line[..cut].trim_end()),
        None => line.to_owned(),
    }
}

fn search(
    checkpoints: &Checkpoints,
    owner: &CheckpointOwner,
    args: ToolArgs<'_>,
) -> Result<Value, ToolError> {
    let query = CheckpointQuery {
        words: args.text("query")?,
        tags: args.texts("tags")?,
        limit: args.count_or("top_k", 10)?,
    };
    let mut found: Vec<(Checkpoint, f64, &str)> = Vec::new();
    let own = checkpoints.store.search(owner, &query)?;
    found.extend(own.into_iter().map(|(checkpoint, score)| (checkpoint, score, "store")));
    let manual = match args.text_or("manual", "never")? {
        "always" => true,
        "if_empty" => found.is_empty(),
        _ => false,
    };
    if manual {
        let texts = checkpoints.manual.search(&CheckpointOwner::default(), &query)?;
        found.extend(texts.into_iter().map(|(checkpoint, score)| (checkpoint, score, "manual")));
        found.truncate(query.limit);
    }
    let bytes: usize = found.iter().map(|(checkpoint, ..)| 2 * checkpoint.content.len()).sum();
    if bytes > checkpoints.bytes_max {
        return Err(over_limit("the size of the results", checkpoints.bytes_max, "bytes"));
    }
    Ok(results(&found))
}

fn results(found: &[(Checkpoint, f64, &str)]) -> Value {
    let texts: Vec<&str> =
        found.iter().map(|(checkpoint, ..)| checkpoint.content.as_str()).collect();
    let results: Vec<Value> = found
        .iter()
        .map(|(checkpoint, score, source)| {
            Value::object([
                ("id", Value::from(checkpoint.id.as_str())),
                ("summary", Value::from(checkpoint.summary.as_str())),
                ("content", Value::from(checkpoint.content.as_str())),
                ("tags", texts_value(&checkpoint.tags)),
                ("score", super::rounded(*score)),
                ("source", Value::from(*source)),
            ])
        })
        .collect();
    Value::object([
        ("content", Value::from(texts.join("\n\n"))),
        ("count", Value::from(results.len())),
        ("results", Value::from(results)),
    ])
}

fn list(
    checkpoints: &Checkpoints,
    owner: &CheckpointOwner,
    args: ToolArgs<'_>,
) -> Result<Value, ToolError> {
    let found = checkpoints.store.list(owner, &args.texts("tags")?, args.count_or("limit", 50)?)?;
    let found: Vec<Value> = found
        .into_iter()
        .map(|checkpoint| {
            Value::object([
                ("id", Value::from(checkpoint.id)),
                ("summary", Value::from(checkpoint.summary)),
                ("tags", texts_value(&checkpoint.tags)),
                ("created_at", Value::from(checkpoint.created_at)),
            ])
        })
        .collect();
    Ok(Value::object([("checkpoints", Value::from(found))]))
}

fn delete(
    checkpoints: &Checkpoints,
    owner: &CheckpointOwner,
    args: ToolArgs<'_>,
) -> Result<Value, ToolError> {
    let id = args.text("id")?;
    let previous = checkpoints.store.delete(owner, id)?;
    Ok(Value::object([
        ("id", Value::String(id.clone())),
        ("deleted", Value::Bool(previous.is_some())),
        ("previous", previous.map_or(Value::Null, whole)),
    ]))
}

fn restore(
    checkpoints: &Checkpoints,
    owner: &CheckpointOwner,
    args: ToolArgs<'_>,
) -> Result<Value, ToolError> {
    let restored = |id, restored| Value::object([("id", id), ("restored", Value::Bool(restored))]);
    let Some(kept) = args.value("checkpoint").filter(|value| !value.is_null()).map(ToolArgs) else {
        return Ok(restored(Value::from(""), false));
    };
    let checkpoint = Checkpoint {
        id: kept.text("id")?.to_string(),
        summary: kept.text("summary")?.to_string(),
        content: kept.text("content")?.to_string(),
        tags: kept.texts("tags")?.into_iter().map(str::to_owned).collect(),
        created_at: kept.text("created_at")?.to_string(),
    };
    checkpoints.store.insert(owner, &checkpoint)?;
    Ok(restored(Value::from(checkpoint.id), true))
}

/// A checkpoint with every field, so that it can be restored.
fn whole(checkpoint: Checkpoint) -> Value {
    Value::object([
        ("id", Value::from(checkpoint.id)),
        ("summary", Value::from(checkpoint.summary)),
        ("content", Value::from(checkpoint.content)),
        ("tags", texts_value(&checkpoint.tags)),
        ("created_at", Value::from(checkpoint.created_at)),
    ])
}

fn texts_value(texts: &[String]) -> Value {
    texts.iter().map(|text| Value::from(text.as_str())).collect::<Vec<_>>().into()
}
