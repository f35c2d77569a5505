//! The tools that need no MCP server: built-in tools, commands and HTTP operations.

use std::cell::OnceCell;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use segue_core::diagnostic::Code;
use segue_core::value::Value;
use segue_runtime::llm::{self, Model};
use segue_runtime::tools::builtin::{self, BuiltinConfig, CheckpointLocation};
use segue_runtime::tools::{Tool, ToolError, ToolRequest, ToolRunner, command, http};

use super::protected_files::protected_files;
use crate::config::{Config, TrustFile};

/// The built-in tools. Some hold state in memory, so a new configuration reuses them where it can.
#[derive(Clone)]
pub(super) struct Builtins {
    config: BuiltinConfig,
    tools: OnceCell<Vec<Tool>>,
}

impl Builtins {
    pub(super) fn new(config: &Config) -> Builtins {
        let file = config.store.checkpoint_file();
        let config = BuiltinConfig {
            files_root: config.files_root.clone().unwrap_or_else(|| PathBuf::from(".")),
            own_files: protected_files(config),
            overwrite: config.overwrite.clone(),
            http_allow: config.http_allow.clone(),
            checkpoints: file.map_or(CheckpointLocation::Memory, CheckpointLocation::File),
            limits: config.limits.clone(),
        };
        Builtins { config, tools: OnceCell::new() }
    }

    fn tools(&self) -> Vec<Tool> {
        self.tools.get_or_init(|| builtin::tools(&self.config)).clone()
    }

    pub(super) fn is_same(&self, other: &Builtins) -> bool {
        self.config == other.config
    }
}

/// The tools that need no server, `model` being the one that they may ask. A tool of an untrusted configuration refuses calls, or is left out
/// where it cannot be made: what it lacks may be a variable that is not expanded yet.
pub(super) fn own_tools(
    config: &Config,
    builtins: &Builtins,
    model: Option<Arc<dyn Model>>,
) -> Result<Vec<Tool>, String> {
    let mut tools = builtins.tools();
    if let Some(model) = model {
        let fold = builtin::fold_with_model(llm::text_model(model), &config.limits);
        tools.retain(|tool| tool.spec.id != fold.spec.id);
        tools.push(fold);
    }
    let trusted = TrustFile::load().allows(config);
    let commands = config.commands.iter().map(|(name, command)| {
        command::tool(name, command, &config.limits)
            .map_err(|message| format!("command `{name}`: {message}"))
    });
    let operations = config.http.iter().map(|(name, operation)| {
        http::tool(name, operation, &config.limits)
            .map_err(|message| format!("HTTP operation `{name}`: {message}"))
    });
    for tool in commands.chain(operations) {
        match tool {
            Ok(tool) if trusted => tools.push(tool),
            Ok(tool) => tools.push(untrusted(&tool)),
            Err(message) if trusted => return Err(message),
            Err(_) => {}
        }
    }
    Ok(tools)
}

/// The tool with its definition, but a runner that refuses every call.
fn untrusted(tool: &Tool) -> Tool {
    Tool { spec: tool.spec.clone(), runner: Arc::new(UntrustedTool) }
}

struct UntrustedTool;

#[async_trait]
impl ToolRunner for UntrustedTool {
    async fn call(&self, call: ToolRequest) -> Result<Value, ToolError> {
        let message = format!(
            "`{}` comes from a configuration that was found here and is not trusted: read it, then \
             run `segue trust`",
            call.tool
        );
        Err(ToolError::refused(Code::PolicyViolation, message))
    }
}
