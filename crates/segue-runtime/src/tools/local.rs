//! Tools that are code of the program which embeds Segue.
//!
//! A tool is called with a context: the tools that it declared, under their own rules, and a
//! directory of its own. Both end with the call. What the code may call, and what asks a person, is
//! decided by the core, from what is declared here ([`segue_core::composed`]).

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

/// A tool in Rust. Everything but a name, a description, parameters and the work is optional.
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
    /// What it is called: `name`, which becomes `local:name`, or `namespace:name`.
    fn name(&self) -> &str;

    /// What it does, for people and models.
    fn description(&self) -> &str;

    /// JSON Schema of its arguments, which fit it when [`LocalTool::execute`] gets them.
    fn parameters(&self) -> Value;

    /// JSON Schema of its value.
    fn output(&self) -> Option<Value> {
        None
    }

    /// Whether it changes nothing. Then none of the tools that it calls may change anything.
    fn read_only(&self) -> bool {
        false
    }

    /// What it does to the world. Where it says nothing, that is what the tools do that it calls;
    /// without any, the worst is assumed, and each call asks.
    fn annotations(&self) -> Annotations {
        Annotations { read_only: self.read_only().then_some(true), ..Annotations::default() }
    }

    /// How its work is taken back.
    fn rollback(&self) -> DeclaredRollback {
        DeclaredRollback::Unknown
    }

    /// The tools that it calls, by the names that compositions use. It can call no others.
    fn composed_of(&self) -> Vec<&str> {
        Vec::new()
    }

    /// Whether one yes covers the call and those of its tools. Otherwise each of them asks that
    /// would ask by itself. This is about asking: what was done before a failure stays, unless
    /// [`LocalTool::rollback`] or the code takes it back.
    fn atomic(&self) -> bool {
        false
    }

    /// With which arguments a person is asked first, beside what follows from its effect.
    fn requires_confirmation(&self) -> Option<ConfirmWhen> {
        None
    }

    /// Does the work. Dropping the future ends it.
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

/// What a call of a [`LocalTool`] has to work with. It ends with the call.
#[derive(Debug)]
pub struct ToolContext {
    /// The run that asks.
    pub run_id: Arc<str>,
    /// The step that asks.
    pub step: Arc<str>,
    /// Counts from one.
    pub attempt: u32,
    /// The same for every attempt of the same work, never for any other.
    pub key: Arc<str>,
    registry: ScopedRegistry,
    temporary: OnceLock<Temporary>,
}

impl ToolContext {
    /// The tools that it declared.
    pub fn registry(&self) -> &ScopedRegistry {
        &self.registry
    }

    /// A directory for this call alone. It is made when it is first asked for, and removed with
    /// everything in it when the call is over.
    pub fn temporary_directory(&self) -> Result<&Path, ToolError> {
        if let Some(made) = self.temporary.get() {
            return Ok(&made.0);
        }
        let made = Temporary::new().map_err(|error| {
            ToolError::failed(format!("no temporary directory could be made: {error}"))
        })?;
        Ok(&self.temporary.get_or_init(|| made).0)
    }
}

/// The tools that a [`LocalTool`] declared, for the duration of one call of it.
#[derive(Clone, Debug)]
pub struct ScopedRegistry(Option<CallChannel>);

impl ScopedRegistry {
    /// Calls a tool once, under the rules of every call: arguments and value must fit its schemas,
    /// it waits for its turn, and a person is asked first where that is not covered already. What is
    /// not declared is refused, and so is everything when the call is over that this was given to.
    pub async fn execute(&self, name: &str, args: Value) -> Result<Value, ToolError> {
        match &self.0 {
            Some(asker) => asker.call(name, args).await,
            None => {
                Err(ToolError::refused(Code::ToolNotAllowed, "nothing can be called from here"))
            }
        }
    }
}

/// A directory that goes away with this.
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
    /// Here and nowhere else: a call ends when its future is dropped.
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
