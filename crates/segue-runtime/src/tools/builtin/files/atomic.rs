//! `atomic_edit`: reads a file, checks the result of an edit, and makes the edit, with one
//! approval.
//!
//! It touches no file itself: it calls `files_read` and `files_edit`. The edit is refused when the
//! file has changed since it was read.

use async_trait::async_trait;
use segue_core::tool::ConfirmWhen;
use segue_core::tool::{Annotations, BUILTIN, DeclaredRollback};
use segue_core::value::Value;

use super::super::args::ToolArgs;
use super::super::{WRITES, over_limit, parsed, run_blocking};
use super::{RESTORE, refuse};
use crate::tools::ToolError;
use crate::tools::local::{LocalTool, ToolContext};

const INPUT: &str = r#"{"type":"object","required":["path","find","replace"],"additionalProperties":false,"properties":{
    "path":{"type":"string","minLength":1},
    "find":{"type":"string","minLength":1},
    "replace":{"type":"string"},
    "check":{"type":"object","additionalProperties":false,"properties":{
        "replacements":{"type":"integer","minimum":1,"default":1,"description":"how often `find` must occur"},
        "contains":{"type":"string","description":"what the result must contain"},
        "lacks":{"type":"string","minLength":1,"description":"what the result must not contain"}}}}}"#;

pub(super) struct AtomicEdit {
    /// The size limit of a file.
    pub(super) bytes_max: usize,
}

#[async_trait]
impl LocalTool for AtomicEdit {
    fn name(&self) -> &'static str {
        "builtin:atomic_edit"
    }

    fn description(&self) -> &'static str {
        "Reads a file, replaces a text, checks the result and writes it, as one confirmed call: nothing is written unless every check holds"
    }

    fn parameters(&self) -> Value {
        parsed(INPUT)
    }

    fn output(&self) -> Option<Value> {
        Some(parsed(super::EDITED))
    }

    fn annotations(&self) -> Annotations {
        WRITES
    }

    fn rollback(&self) -> DeclaredRollback {
        RESTORE.declared()
    }

    fn composed_of(&self) -> Vec<&str> {
        vec!["builtin:files_read", "builtin:files_edit"]
    }

    fn atomic(&self) -> bool {
        true
    }

    fn requires_confirmation(&self) -> Option<ConfirmWhen> {
        Some(ConfirmWhen::new(|_| true))
    }

    async fn execute(&self, args: Value, context: &ToolContext) -> Result<Value, ToolError> {
        let path = || args.get("path").cloned().unwrap_or_default();
        let file = Value::object([("path", path())]);
        let file = context.registry().execute(&format!("{BUILTIN}:files_read"), file).await?;
        let content = file.get("content").cloned().unwrap_or_default();
        let (wanted, current, bytes_max) = (args.clone(), content.clone(), self.bytes_max);
        run_blocking(move || check(ToolArgs(&wanted), current.as_str().unwrap_or(""), bytes_max))
            .await?;
        let edit = Value::object([
            ("path", path()),
            ("find", args.get("find").cloned().unwrap_or_default()),
            ("replace", args.get("replace").cloned().unwrap_or_default()),
            ("all", Value::Bool(true)),
            ("expected", content),
        ]);
        context.registry().execute(&format!("{BUILTIN}:files_edit"), edit).await
    }
}

/// Checks that the edit would give the wanted result.
fn check(args: ToolArgs<'_>, content: &str, bytes_max: usize) -> Result<(), ToolError> {
    let (find, replace) = (args.text("find")?, args.text("replace")?);
    let empty = Value::empty_object();
    let check = ToolArgs(args.value("check").unwrap_or(&empty));
    let expected = check.count_or("replacements", 1)?;
    let found = content.matches(&**find).count();
    if found != expected {
        let path = args.text("path")?;
        let message = format!("the text to find occurs {found} times in `{path}`, not {expected}");
        return Err(refuse(message));
    }
    let (contains, lacks) = (check.optional_text("contains")?, check.optional_text("lacks")?);
    if contains.is_none() && lacks.is_none() {
        return Ok(());
    }
    let bytes = content.len().saturating_add(found.saturating_mul(replace.len()));
    if bytes > bytes_max {
        return Err(over_limit("the size of the file", bytes_max, "bytes"));
    }
    let result = content.replace(&**find, replace);
    if contains.is_some_and(|text| !result.contains(&**text)) {
        return Err(refuse("the result does not contain `check.contains`; nothing was written"));
    }
    if lacks.is_some_and(|text| result.contains(&**text)) {
        return Err(refuse("the result contains `check.lacks`; nothing was written"));
    }
    Ok(())
}
