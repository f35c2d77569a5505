//! The built-in tools in a temporary directory.

use segue_core::diagnostic::Code;
use segue_core::id::ToolId;
use segue_core::run::{Overwrites, Purpose};
use segue_core::value::Value;
use segue_runtime::engine::{CallRequest, Engine, EngineError};
use segue_runtime::tools::builtin::{BuiltinConfig, tools};
use segue_runtime::tools::{Registry, Tool, ToolError, ToolRequest};
pub(crate) use serde_json::{Value as Json, json};
use tempfile::TempDir;

/// The built-in tools over a temporary directory.
pub(crate) struct Bench {
    pub(crate) dir: TempDir,
    registry: Registry,
    engine: Engine,
}

impl Bench {
    pub(crate) fn new() -> Bench {
        Bench::with(|_| {})
    }

    /// A bench whose configuration is changed first. The files root is `dir/root`.
    pub(crate) fn with(change: impl FnOnce(&mut BuiltinConfig)) -> Bench {
        let dir = TempDir::new().unwrap();
        let files_root = dir.path().join("root");
        std::fs::create_dir(&files_root).unwrap();
        let mut config = BuiltinConfig { files_root, ..BuiltinConfig::default() };
        change(&mut config);
        let mut registry = Registry::default();
        registry.extend(tools(&config));
        let (engine, unloaded) = Engine::builder().tools(tools(&config)).build();
        assert!(unloaded.is_empty(), "{unloaded:?}");
        Bench { dir, registry, engine }
    }

    pub(crate) fn root(&self) -> std::path::PathBuf {
        self.dir.path().join("root")
    }

    pub(crate) fn tool(&self, name: &str) -> &Tool {
        let id = ToolId::new("builtin", name);
        self.registry.get(&id).unwrap_or_else(|| panic!("no tool {name}"))
    }

    /// Calls a tool. Validates arguments and value against its schemas, as the engine does.
    pub(crate) async fn call(&self, name: &str, args: Json) -> Result<Json, ToolError> {
        let tool = self.tool(name);
        if tool.spec.code_tool.is_none() {
            return call(tool, args).await;
        }
        // What calls others needs an engine around it.
        let args = Value::from(args);
        let request = CallRequest { approved: true, ..CallRequest::new(name, args) };
        match self.engine.call(request).await {
            Ok(value) => Ok(Json::from(&value)),
            Err(EngineError::Tool(error)) => Err(error),
            Err(error) => panic!("{name}: {error}"),
        }
    }

    pub(crate) async fn ok(&self, name: &str, args: Json) -> Json {
        self.call(name, args).await.unwrap_or_else(|error| panic!("{name}: {error:?}"))
    }

    /// The code and message of a refused call.
    pub(crate) async fn refused(&self, name: &str, args: Json) -> (Code, String) {
        refusal(self.call(name, args).await)
    }
}

pub(crate) fn call_of(tool: &Tool, args: Json) -> ToolRequest {
    ToolRequest {
        tool: tool.spec.id.clone(),
        args: Value::from(args),
        run_id: "run-1".into(),
        step: "step".into(),
        attempt: 1,
        // Its own: what carries it ends with a call that is given up.
        key: format!("run-1/step/do/{}", uuid::Uuid::new_v4()).into(),
        purpose: Purpose::Work,
        owner: None,
        traceparent: None,
        overwrites: Overwrites::Everything,
        asker: None,
        follows: None,
    }
}

pub(crate) async fn call(tool: &Tool, args: Json) -> Result<Json, ToolError> {
    let call = call_of(tool, args);
    let unfit = tool.spec.input.violations(&call.args);
    assert!(unfit.is_empty(), "{}: {unfit:?}", tool.spec.id);
    let value = tool.runner.call(call).await?;
    if let Some(output) = &tool.spec.output {
        let unfit = output.violations(&value);
        assert!(unfit.is_empty(), "{}: {unfit:?} in {value}", tool.spec.id);
    }
    Ok(Json::from(&value))
}

pub(crate) fn refusal(result: Result<Json, ToolError>) -> (Code, String) {
    match result {
        Err(ToolError::Refused { code, message, .. }) => (code, message),
        other => panic!("expected a refusal, got {other:?}"),
    }
}
