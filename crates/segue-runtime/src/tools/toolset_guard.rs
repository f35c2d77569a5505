//! A toolset, at each call: what it does not have is refused, whoever asks.
//!
//! Compositions are held to a toolset when they are planned. A run that was planned without it, and a
//! tool that is called by itself, meet it here.

use std::sync::Arc;

use async_trait::async_trait;
use segue_core::diagnostic::Code;
use segue_core::run::Purpose;
use segue_core::toolset::Toolset;
use segue_core::value::Value;

use super::{Tool, ToolError, ToolRequest, ToolRunner};

/// The tool, which refuses calls when it is not in the toolset.
pub(crate) fn wrap(tool: Tool, toolset: &Toolset) -> Tool {
    // Where compositions come whole, a call alone does not say whose it is. What calls it was held to
    // the toolset when it was planned, also what a run makes as it goes.
    if toolset.allows_inner_tools() {
        return tool;
    }
    let Some((code, message)) = toolset.access_error(&tool.spec.id) else { return tool };
    let runner = ExcludedTool { code, message, inner: tool.runner };
    Tool { spec: tool.spec, runner: Arc::new(runner) }
}

struct ExcludedTool {
    code: Code,
    message: String,
    inner: Arc<dyn ToolRunner>,
}

#[async_trait]
impl ToolRunner for ExcludedTool {
    async fn call(&self, call: ToolRequest) -> Result<Value, ToolError> {
        // What was done is taken back, whatever else is allowed.
        if call.purpose == Purpose::Rollback {
            return self.inner.call(call).await;
        }
        Err(ToolError::refused(self.code, self.message.clone()))
    }

    fn may_ask(&self) -> bool {
        self.inner.may_ask()
    }
}
