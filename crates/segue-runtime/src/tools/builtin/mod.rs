//! The built-in tools: enough to run real compositions on a fresh machine without a server.
//!
//! Each family is one file with a table that declares its tools and a function for each. Declaring
//! a tool opens no file, database or connection; calling it does.
//!
//! Not here: retries, waiting and confirmation (the core's), tools that the configuration declares
//! ([`super::command`], [`super::http`]).

mod args;
mod basic;
mod checkpoints;
mod files;
mod fold;
mod http;
mod json;
mod text;
mod tokenize;

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use segue_core::diagnostic::Code;
use segue_core::id::ToolId;
use segue_core::limits::Limits;
use segue_core::schema::Schema;
use segue_core::tool::{Annotations, BUILTIN, ConfirmPolicy, DeclaredRollback, ToolSpec};
use segue_core::value::{Number, Value};

pub use files::{
    DocumentChangeError, DocumentFolder, DocumentPath, DocumentStamp, DocumentText, ProtectedFiles,
};

use super::{Tool, ToolError, ToolRequest, ToolRunner};

/// The configuration of the built-in tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuiltinConfig {
    /// The directory that the file tools never leave.
    pub files_root: PathBuf,
    /// Segue's own files, which the file tools do not touch even below this directory.
    pub own_files: ProtectedFiles,
    /// Patterns of files below it that may be overwritten without asking.
    pub overwrite: Vec<String>,
    /// Hosts that the HTTP tools may reach although they are not public: `127.0.0.1:*`,
    /// `intranet.example:443`, `10.0.0.0/8:*`.
    pub http_allow: Vec<String>,
    /// Where checkpoints are stored.
    pub checkpoints: CheckpointLocation,
    /// The limits.
    pub limits: Limits,
}

impl Default for BuiltinConfig {
    /// The working directory without protected files, public hosts only, and checkpoints in memory.
    fn default() -> BuiltinConfig {
        BuiltinConfig {
            files_root: PathBuf::from("."),
            own_files: ProtectedFiles::default(),
            overwrite: Vec::new(),
            http_allow: Vec::new(),
            checkpoints: CheckpointLocation::Memory,
            limits: Limits::default(),
        }
    }
}

/// Where checkpoints are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckpointLocation {
    /// In memory: they end with the process.
    Memory,
    /// In an SQLite file, which may hold other tables and be shared with other processes.
    File(PathBuf),
}

/// Every built-in tool.
pub fn tools(config: &BuiltinConfig) -> Vec<Tool> {
    let limits = Arc::new(config.limits.clone());
    let mut tools = basic::tools();
    tools.extend(text::tools(&limits));
    tools.extend(json::tools(&limits));
    tools.extend(fold::tools(&limits));
    tools.extend(files::tools(config));
    tools.extend(http::tools(&config.http_allow, &limits));
    tools.extend(checkpoints::tools(config.checkpoints.clone(), &limits));
    tools
}

/// A language model that built-in tools ask.
#[async_trait]
pub trait TextModel: Send + Sync {
    /// The model's name.
    fn name(&self) -> &Arc<str>;

    /// Asks it once; an error is the reason for people.
    async fn write(&self, request: TextRequest) -> Result<Arc<str>, String>;
}

/// A request to a model.
#[derive(Clone, Debug)]
pub struct TextRequest {
    /// What the model is to do. It never contains external text.
    pub instructions: &'static str,
    /// The data, as JSON.
    pub message: String,
    /// The maximum length of the answer, in tokens.
    pub answer_tokens_max: usize,
}

/// `context_fold` with a model for `strategy: abstractive`, in place of the one in [`tools`].
pub fn fold_with_model(model: Arc<dyn TextModel>, limits: &Limits) -> Tool {
    fold::tool_with_model(model, limits)
}

/// Tools without side effects: their answers follow from their arguments, at once.
pub fn pure() -> Vec<ToolId> {
    let limits = Arc::new(Limits::default());
    let mut tools = basic::tools();
    // `sleep` takes time, which tests do not have.
    tools.retain(|tool| tool.spec.id.name() != "sleep");
    tools.extend(text::tools(&limits));
    tools.extend(json::tools(&limits));
    tools.extend(fold::tools(&limits));
    tools.into_iter().map(|tool| tool.spec.id.clone()).collect()
}

/// A row in the table of a family.
struct BuiltinSpec {
    name: &'static str,
    description: &'static str,
    /// JSON Schema of the arguments.
    input: &'static str,
    /// JSON Schema of the value.
    output: &'static str,
    annotations: Annotations,
    rollback: BuiltinRollback,
    confirm: ConfirmPolicy,
}

/// How a built-in tool is rolled back.
enum BuiltinRollback {
    NotNeeded,
    /// The tool that rolls it back, and its arguments.
    Call(&'static str, &'static [(&'static str, &'static str)]),
    Impossible(&'static str),
}

/// Changes nothing and stays on this machine.
const READS: Annotations = Annotations {
    read_only: Some(true),
    destructive: Some(false),
    idempotent: Some(true),
    open_world: Some(false),
};

/// Changes something that its rollback restores. Not idempotent: a second call would record the
/// first one's result as the previous content, and its rollback would restore that.
const WRITES: Annotations = Annotations {
    read_only: Some(false),
    destructive: Some(false),
    idempotent: Some(false),
    open_world: Some(false),
};

impl BuiltinSpec {
    /// A tool that only reads.
    const fn reads(
        name: &'static str,
        description: &'static str,
        input: &'static str,
        output: &'static str,
    ) -> BuiltinSpec {
        let (annotations, rollback, confirm) =
            (READS, BuiltinRollback::NotNeeded, ConfirmPolicy::ByEffect);
        BuiltinSpec { name, description, input, output, annotations, rollback, confirm }
    }

    fn tool(&self, runner: Arc<dyn ToolRunner>) -> Tool {
        Tool { spec: Arc::new(self.spec()), runner }
    }

    fn spec(&self) -> ToolSpec {
        let id = ToolId::new(BUILTIN, self.name);
        ToolSpec {
            output: Some(schema(self.output)),
            annotations: self.annotations,
            rollback: self.rollback.declared(),
            confirm: self.confirm,
            ..ToolSpec::new(id, self.description, schema(self.input))
        }
    }
}

impl BuiltinRollback {
    fn declared(&self) -> DeclaredRollback {
        match self {
            BuiltinRollback::NotNeeded => DeclaredRollback::NotNeeded,
            BuiltinRollback::Impossible(reason) => {
                DeclaredRollback::Impossible { reason: (*reason).into() }
            }
            BuiltinRollback::Call(tool, parameters) => DeclaredRollback::Call {
                tool: (*tool).into(),
                parameters: Value::object(parameters.iter().map(|(k, v)| (*k, Value::from(*v)))),
            },
        }
    }
}

/// Parses a schema of our own tables. Invalid JSON becomes a schema that `check` rejects, so that a
/// mistake in a table fails the tests and not a user's process.
fn schema(json: &str) -> Arc<Schema> {
    Arc::new(Schema::new(parsed(json)))
}

fn parsed(json: &str) -> Value {
    serde_json::from_str(json).unwrap_or_else(|_| Value::from(json))
}

/// A tool that is a function of its arguments.
struct Pure {
    limits: Arc<Limits>,
    run: PureFn,
    /// Whether even small arguments may take long.
    slow: bool,
}

type PureFn = fn(&Value, &Limits) -> Result<Value, ToolError>;

/// Larger arguments are handled on a blocking thread, which costs two thread switches.
const INLINE_BYTES_MAX: usize = 32 * 1024;

#[async_trait]
impl ToolRunner for Pure {
    async fn call(&self, call: ToolRequest) -> Result<Value, ToolError> {
        if !self.slow && call.args.size() <= INLINE_BYTES_MAX {
            return (self.run)(&call.args, &self.limits);
        }
        let (run, limits) = (self.run, self.limits.clone());
        run_blocking(move || run(&call.args, &limits)).await
    }
}

/// Runs blocking work on another thread. It runs to its end even when the caller is gone: stopping
/// a write half-way would be worse.
async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|_| Err(ToolError::refused(Code::Internal, "the tool's own code panicked")))
}

/// The failure for an exceeded limit.
fn over_limit(what: &str, max: usize, unit: &str) -> ToolError {
    ToolError::refused(Code::Limit, format!("{what} is over the limit of {max} {unit}"))
}

/// A number rounded for people.
fn rounded(number: f64) -> Value {
    let number = (number * 1e6).round() / 1e6;
    Value::Number(Number::Float(if number.is_finite() { number } else { 0.0 }))
}
