//! `files_*` and `atomic_edit`: text files under one root.
//!
//! Every change returns the previous content, and its rollback, `files_restore`, restores that. A
//! file that is not text could not be restored, so it is not overwritten.
//!
//! Not here: how paths stay inside the root ([`root`]), which files are Segue's own
//! ([`protected_files`]), which changes ask first ([`overwrite`]), `atomic_edit`, which is made
//! of these tools ([`atomic`]), and what an editor does with documents ([`documents`]).

mod atomic;
mod documents;
mod list;
mod overwrite;
mod protected_files;
mod root;

use std::sync::Arc;

use async_trait::async_trait;
use segue_core::diagnostic::Code;
use segue_core::run::Overwrites;
use segue_core::tool::{Annotations, ConfirmPolicy};
use segue_core::value::Value;

use super::args::ToolArgs;
use super::{BuiltinConfig, BuiltinRollback, BuiltinSpec, WRITES, run_blocking};
use crate::tools::{Tool, ToolError, ToolRequest, ToolRunner};
use atomic::AtomicEdit;
pub use documents::{
    DocumentChangeError, DocumentFolder, DocumentPath, DocumentStamp, DocumentText,
};
use overwrite::Overwrite;
pub use protected_files::ProtectedFiles;
use root::{Existing, FileRoot, Parents};

/// How a change is rolled back.
const RESTORE: BuiltinRollback = BuiltinRollback::Call(
    "files_restore",
    &[("path", "{{ output.path }}"), ("content", "{{ output.previous }}")],
);

/// Removes a file's content. The call returns it, but for a person the content is gone.
const DESTROYS: Annotations = Annotations { destructive: Some(true), ..WRITES };

/// Gives a file a content, whatever it holds now.
const RESTORES: Annotations = Annotations { idempotent: Some(true), ..DESTROYS };

/// JSON Schema of an edit's value.
const EDITED: &str = r#"{"type":"object","required":["path","replacements","previous"],"additionalProperties":false,"properties":{
    "path":{"type":"string"},"replacements":{"type":"integer","minimum":1},"previous":{"type":"string"}}}"#;

type Run = fn(&FileRoot, ToolArgs<'_>, &Allowed<'_>) -> Result<Value, ToolError>;

/// What a call may overwrite, checked right before the change: the file may have appeared since the
/// question was asked.
struct Allowed<'a> {
    root: &'a FileRoot,
    always: &'a Overwrite,
    by_call: &'a Overwrites,
}

impl Allowed<'_> {
    fn check(&self, path: &str, exists: bool) -> Result<(), ToolError> {
        let refusal = exists.then(|| self.always.refusal(path, self.root, self.by_call)).flatten();
        refusal.map_or(Ok(()), Err)
    }
}

const TOOLS: &[(BuiltinSpec, Run)] = &[
    (
        BuiltinSpec::reads(
            "files_read",
            "Reads a text file (UTF-8) under the files root",
            r#"{"type":"object","required":["path"],"additionalProperties":false,"properties":{
                "path":{"type":"string","minLength":1,"description":"relative to the root, with `/`"}}}"#,
            r#"{"type":"object","required":["path","content","bytes"],"additionalProperties":false,"properties":{
                "path":{"type":"string"},"content":{"type":"string"},"bytes":{"type":"integer"}}}"#,
        ),
        read,
    ),
    (
        BuiltinSpec {
            name: "files_write",
            description: "Writes a text file under the files root atomically: readers see the old content or the new one",
            input: r#"{"type":"object","required":["path","content"],"additionalProperties":false,"properties":{
                "path":{"type":"string","minLength":1,"description":"relative to the root, with `/`"},
                "content":{"type":"string"},
                "overwrite":{"type":"boolean","default":true,"description":"false: fail when the file exists"},
                "create_dirs":{"type":"boolean","default":true,"description":"make missing directories"}}}"#,
            output: r#"{"type":"object","required":["path","bytes","created","previous"],"additionalProperties":false,"properties":{
                "path":{"type":"string"},"bytes":{"type":"integer"},"created":{"type":"boolean"},
                "previous":{"type":["string","null"],"description":"what was there before; null: no file"}}}"#,
            annotations: DESTROYS,
            rollback: RESTORE,
            confirm: ConfirmPolicy::ByEffect,
        },
        write,
    ),
    (
        BuiltinSpec {
            name: "files_edit",
            description: "Replaces a text in a file: the only occurrence, or all of them with `all`",
            input: r#"{"type":"object","required":["path","find","replace"],"additionalProperties":false,"properties":{
                "path":{"type":"string","minLength":1},
                "find":{"type":"string","minLength":1},
                "replace":{"type":"string"},
                "all":{"type":"boolean","default":false},
                "expected":{"type":"string","description":"fail when the file holds anything but this"}}}"#,
            output: EDITED,
            annotations: DESTROYS,
            rollback: RESTORE,
            confirm: ConfirmPolicy::ByEffect,
        },
        edit,
    ),
    (
        BuiltinSpec::reads(
            "files_list",
            "Lists files and directories under the files root, sorted by path; links are listed, never followed",
            r#"{"type":"object","additionalProperties":false,"properties":{
                "path":{"type":"string","default":"."},
                "pattern":{"type":"string","minLength":1,"maxLength":1024,"description":"a glob such as `*.md` or `docs/**/*.md`; without `/` it is about names, with it about paths below `path`"},
                "recursive":{"type":"boolean","default":false,"description":"also what is in directories; implied by a pattern with `/` or `**`"}}}"#,
            r#"{"type":"object","required":["files","truncated"],"additionalProperties":false,"properties":{
                "files":{"type":"array","items":{"type":"object","required":["path","bytes","kind"],"additionalProperties":false,"properties":{
                    "path":{"type":"string"},"bytes":{"type":"integer"},
                    "kind":{"enum":["file","directory","symlink","other"]}}}},
                "truncated":{"type":"boolean","description":"whether there is more than is listed"}}}"#,
        ),
        list,
    ),
    (
        BuiltinSpec {
            name: "files_delete",
            description: "Deletes a text file under the files root; a missing file is no failure",
            input: r#"{"type":"object","required":["path"],"additionalProperties":false,"properties":{
                "path":{"type":"string","minLength":1}}}"#,
            output: r#"{"type":"object","required":["path","deleted","previous"],"additionalProperties":false,"properties":{
                "path":{"type":"string"},"deleted":{"type":"boolean"},"previous":{"type":["string","null"]}}}"#,
            annotations: DESTROYS,
            rollback: RESTORE,
            confirm: ConfirmPolicy::ByEffect,
        },
        delete,
    ),
    (
        BuiltinSpec {
            name: "files_restore",
            description: "Restores a file's content, or deletes the file when the content is null: the rollback of the other file tools",
            input: r#"{"type":"object","required":["path","content"],"additionalProperties":false,"properties":{
                "path":{"type":"string","minLength":1},"content":{"type":["string","null"]}}}"#,
            output: r#"{"type":"object","required":["path","bytes","previous"],"additionalProperties":false,"properties":{
                "path":{"type":"string"},"bytes":{"type":"integer"},"previous":{"type":["string","null"]}}}"#,
            annotations: RESTORES,
            rollback: RESTORE,
            confirm: ConfirmPolicy::ByEffect,
        },
        restore,
    ),
];

pub(super) fn tools(config: &BuiltinConfig) -> Vec<Tool> {
    let bytes_max = config.limits.value_bytes_max;
    let root = FileRoot::new(config.files_root.clone(), config.own_files.clone(), bytes_max);
    let (root, overwrite) = (Arc::new(root), Overwrite::new(&config.overwrite));
    let tool = |(declared, run): &(BuiltinSpec, Run)| {
        let mut spec = declared.spec();
        spec.confirm_when = overwrite.asks_when(declared.name, &root);
        Tool {
            spec: spec.into(),
            runner: Arc::new(Files { root: root.clone(), overwrite: overwrite.clone(), run: *run }),
        }
    };
    let composed = Tool::local(AtomicEdit { bytes_max });
    TOOLS.iter().map(tool).chain([composed]).collect()
}

struct Files {
    root: Arc<FileRoot>,
    overwrite: Overwrite,
    run: Run,
}

#[async_trait]
impl ToolRunner for Files {
    async fn call(&self, call: ToolRequest) -> Result<Value, ToolError> {
        let (root, overwrite, run) = (self.root.clone(), self.overwrite.clone(), self.run);
        run_blocking(move || {
            let allowed = Allowed { root: &root, always: &overwrite, by_call: &call.overwrites };
            run(&root, ToolArgs(&call.args), &allowed).map_err(|error| root.name_in(error))
        })
        .await
    }
}

fn read(root: &FileRoot, args: ToolArgs<'_>, _: &Allowed<'_>) -> Result<Value, ToolError> {
    let (path, content) = root.read(args.text("path")?)?;
    let bytes = Value::from(content.len());
    Ok(Value::object([
        ("path", Value::from(path)),
        ("content", Value::from(content)),
        ("bytes", bytes),
    ]))
}

fn write(root: &FileRoot, args: ToolArgs<'_>, allowed: &Allowed<'_>) -> Result<Value, ToolError> {
    let content = args.text("content")?;
    let existing =
        if args.flag_or("overwrite", true)? { Existing::Replace } else { Existing::Refuse };
    let parents =
        if args.flag_or("create_dirs", true)? { Parents::Create } else { Parents::Expect };
    let _writing = root.lock();
    let leaf = root.leaf(args.text("path")?, parents)?;
    let previous = leaf.text()?;
    if matches!(existing, Existing::Replace) {
        allowed.check(leaf.path(), previous.is_some())?;
    }
    leaf.put(content, existing)?;
    Ok(Value::object([
        ("path", Value::from(leaf.path())),
        ("bytes", Value::from(content.len())),
        ("created", Value::Bool(previous.is_none())),
        ("previous", text_or_null(previous)),
    ]))
}

/// Replaces a text. Holds the lock of the root, so that no concurrent edit is lost.
fn edit(root: &FileRoot, args: ToolArgs<'_>, allowed: &Allowed<'_>) -> Result<Value, ToolError> {
    let (find, replace) = (args.text("find")?, args.text("replace")?);
    let (all, expected) = (args.flag_or("all", false)?, args.optional_text("expected")?);
    let _writing = root.lock();
    let leaf = root.leaf(args.text("path")?, Parents::Expect)?;
    let previous = leaf.text()?.ok_or_else(|| root::absent(leaf.path()))?;
    allowed.check(leaf.path(), true)?;
    if expected.is_some_and(|expected| **expected != *previous) {
        return Err(refuse(format!("`{}` has changed since it was read", leaf.path())));
    }
    let found = previous.matches(&**find).count();
    let why = match found {
        0 => Some("does not occur".to_owned()),
        1 => None,
        _ if all => None,
        several => Some(format!(
            "occurs {several} times; set `all`, or include more of the surrounding text"
        )),
    };
    if let Some(why) = why {
        return Err(refuse(format!("the text to find {why} in `{}`", leaf.path())));
    }
    root.fits(previous.len().saturating_add(found.saturating_mul(replace.len())))?;
    leaf.put(&previous.replace(&**find, replace), Existing::Replace)?;
    Ok(Value::object([
        ("path", Value::from(leaf.path())),
        ("replacements", Value::from(found)),
        ("previous", Value::from(previous)),
    ]))
}

fn list(root: &FileRoot, args: ToolArgs<'_>, _: &Allowed<'_>) -> Result<Value, ToolError> {
    let pattern = args.optional_text("pattern")?.map(|pattern| &**pattern);
    list::list(root, args.text_or("path", ".")?, pattern, args.flag_or("recursive", false)?)
}

fn delete(root: &FileRoot, args: ToolArgs<'_>, _: &Allowed<'_>) -> Result<Value, ToolError> {
    let path = args.text("path")?;
    let previous = remove(root, path)?;
    Ok(Value::object([
        ("path", Value::from(root::relative(path)?)),
        ("deleted", Value::Bool(previous.is_some())),
        ("previous", text_or_null(previous)),
    ]))
}

fn restore(root: &FileRoot, args: ToolArgs<'_>, _: &Allowed<'_>) -> Result<Value, ToolError> {
    let path = args.text("path")?;
    let (previous, bytes) = match args.value("content") {
        Some(Value::String(content)) => {
            let _writing = root.lock();
            let leaf = root.leaf(path, Parents::Create)?;
            let previous = leaf.text()?;
            leaf.put(content, Existing::Replace)?;
            (previous, content.len())
        }
        Some(Value::Null) => (remove(root, path)?, 0),
        _ => return Err(ToolError::refused(Code::InputSchema, "`content` is not text or null")),
    };
    Ok(Value::object([
        ("path", Value::from(root::relative(path)?)),
        ("bytes", Value::from(bytes)),
        ("previous", text_or_null(previous)),
    ]))
}

/// Deletes a file and returns its content; `None` when there is no file.
fn remove(root: &FileRoot, path: &str) -> Result<Option<String>, ToolError> {
    let _writing = root.lock();
    let leaf = match root.leaf(path, Parents::Expect) {
        Err(ToolError::Refused { code: Code::NotFound, .. }) => return Ok(None),
        leaf => leaf?,
    };
    let previous = leaf.text()?;
    if previous.is_some() {
        leaf.remove()?;
    }
    Ok(previous)
}

fn text_or_null(text: Option<String>) -> Value {
    text.map_or(Value::Null, Value::from)
}

fn refuse(message: impl Into<String>) -> ToolError {
    ToolError::refused(Code::ToolError, message)
}
