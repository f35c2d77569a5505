//! Tools written in the Rust code of the program that embeds Segue.
//!
//! Each call gets a context: the declared tools, under their own rules, and a temporary directory.
//! Both end with the call. The core decides from the declaration which tools the code may call and
//! which calls ask first ([`segue_core::code_tools`]).

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use segue_core::diagnostic::Code;
use segue_core::id::ToolId;
use segue_core::schema::Schema;
use segue_core::tool::{Annotations, DeclaredRollback, LOCAL, ToolSpec};
use segue_core::tool::{CodeTool, ConfirmWhen};
use segue_core::value::Value;
use uuid::Uuid;

use super::{CallChannel, Tool, ToolError, ToolRequest, ToolRunner};

/// A tool in Rust. Only name, description, parameters and `execute` are required.
///
/// ```
/// use async_trait::async_trait;
/// use segue_core::value::Value;
/// use segue_runtime::tools::ToolError;
/// use segue_runtime::tools::local::{LocalTool, ToolContext};
///
/// struct Shout;
///
/// #[async_trait]
/// impl LocalTool for Shout {
///     fn name(&self) -> &str {
///         "shout"
///     }
///     fn description(&self) -> &str {
///         "Turns a text into capitals"
///     }
///     fn parameters(&self) -> Value {
///         serde_json::from_str(
///             r#"{"type":"object","required":["text"],"properties":{"text":{"type":"string"}}}"#,
///         )
///         .expect("it is JSON")
///     }
///     fn read_only(&self) -> bool {
///         true
///     }
///     async fn execute(&self, args: Value, _context: &ToolContext) -> Result<Value, ToolError> {
///         let text = args.get("text").and_then(Value::as_str).unwrap_or_default();
///         Ok(Value::object([("text", Value::from(text.to_uppercase()))]))
///     }
/// }
/// ```
#[async_trait]
pub trait LocalTool: Send + Sync {
    /// The name: `name`, which becomes `local:name`, or `namespace:name`.
    fn name(&self) -> &str;

    /// The description for people and models.
    fn description(&self) -> &str;

    /// JSON Schema of the arguments. [`LocalTool::execute`] gets only arguments that fit it.
    fn parameters(&self) -> Value;

    /// JSON Schema of its value.
    fn output(&self) -> Option<Value> {
        None
    }

    /// Whether the tool changes nothing. Then none of the tools that it calls may change anything.
    fn read_only(&self) -> bool {
        false
    }

    /// The effects of the tool. A missing annotation is derived from the tools that it calls. A
    /// tool that calls none is assumed to be destructive, and each call asks.
    fn annotations(&self) -> Annotations {
        Annotations { read_only: self.read_only().then_some(true), ..Annotations::default() }
    }

    /// How the tool is rolled back.
    fn rollback(&self) -> DeclaredRollback {
        DeclaredRollback::Unknown
    }

    /// The tools that it calls, by the names that compositions use. It can call no others.
    fn composed_of(&self) -> Vec<&str> {
        Vec::new()
    }

    /// Whether one approval covers the call and the calls of its parts. Otherwise each part asks
    /// where it would ask by itself. This concerns only questions: work done before a failure
    /// stays, unless [`LocalTool::rollback`] or the code itself rolls it back.
    fn atomic(&self) -> bool {
        false
    }

    /// Which arguments require a confirmation, in addition to those that the effect requires.
    fn requires_confirmation(&self) -> Option<ConfirmWhen> {
        None
    }

    /// Does the work. Dropping the future aborts it.
    async fn execute(&self, args: Value, context: &ToolContext) -> Result<Value, ToolError>;
}

impl Tool {
    /// A tool of the program's own code.
    pub fn local(tool: impl LocalTool + 'static) -> Tool {
        let tool: Arc<dyn LocalTool> = Arc::new(tool);
        let id = match tool.name() {
            id if id.contains(':') => ToolId::from(id),
            name => ToolId::new(LOCAL, name),
        };
        let parts = tool.composed_of();
        let spec = ToolSpec {
            output: tool.output().map(|schema| Arc::new(Schema::new(schema))),
            annotations: tool.annotations(),
            rollback: tool.rollback(),
            confirm_when: tool.requires_confirmation(),
            code_tool: (!parts.is_empty()).then(|| CodeTool::new(parts, tool.atomic())),
            ..ToolSpec::new(id, tool.description(), Arc::new(Schema::new(tool.parameters())))
        };
        Tool { spec: Arc::new(spec), runner: Arc::new(LocalRunner(tool)) }
    }
}

struct LocalRunner(Arc<dyn LocalTool>);

#[async_trait]
impl ToolRunner for LocalRunner {
    async fn call(&self, call: ToolRequest) -> Result<Value, ToolError> {
        let ToolRequest { args, run_id, step, attempt, key, asker, .. } = call;
        let registry = ScopedRegistry(asker);
        let temporary = OnceLock::new();
        let context = ToolContext { run_id, step, attempt, key, registry, temporary };
        self.0.execute(args, &context).await
    }

    fn may_ask(&self) -> bool {
        true
    }
}

/// The context of one call of a [`LocalTool`]. It ends with the call.
#[derive(Debug)]
pub struct ToolContext {
    /// The run that makes the call.
    pub run_id: Arc<str>,
    /// The step that makes the call.
    pub step: Arc<str>,
    /// The attempt, from 1.
    pub attempt: u32,
    /// Idempotency key: equal for all attempts of the same work, and unique to it.
    pub key: Arc<str>,
    registry: ScopedRegistry,
    temporary: OnceLock<Temporary>,
}

impl ToolContext {
    /// The declared tools.
    pub fn registry(&self) -> &ScopedRegistry {
        &self.registry
    }

    /// A directory for this call alone. The first use creates it; the end of the call removes it
    /// with its content.
    pub fn temporary_directory(&self) -> Result<&Path, ToolError> {
        if let Some(made) = self.temporary.get() {
            return Ok(&made.0);
        }
        let made = Temporary::new().map_err(|error| {
            ToolError::failed(format!("cannot create a temporary directory: {error}"))
        })?;
        Ok(&self.temporary.get_or_init(|| made).0)
    }
}

/// The tools that a [`LocalTool`] declared, for the duration of one call.
#[derive(Clone, Debug)]
pub struct ScopedRegistry(Option<CallChannel>);

impl ScopedRegistry {
    /// Calls a tool once, under the rules of every call: arguments and value must fit its schemas,
    /// the call waits at the gate, and it asks first unless an approval covers it. Undeclared tools
    /// are refused, and so is every call after the outer call has ended.
    pub async fn execute(&self, name: &str, args: Value) -> Result<Value, ToolError> {
        match &self.0 {
            Some(asker) => asker.call(name, args).await,
            None => {
                Err(ToolError::refused(Code::ToolNotAllowed, "this tool declares no tools to call"))
            }
        }
    }
}

/// A directory that is removed on drop.
#[derive(Debug)]
struct Temporary(PathBuf);

impl Temporary {
    fn new() -> std::io::Result<Temporary> {
        let path = std::env::temp_dir().join(format!("segue-{}", Uuid::new_v4().simple()));
        let mut builder = std::fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&path)?;
        Ok(Temporary(path))
    }
}

impl Drop for Temporary {
    /// In `Drop`, because a call ends when its future is dropped.
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
