//! Enforces a toolset at each call: a call of an excluded tool is refused.
//!
//! The planner holds compositions to the toolset. This guard covers runs that were planned without
//! it, and tools that are called directly.

use std::sync::Arc;

use async_trait::async_trait;
use segue_core::diagnostic::Code;
use segue_core::run::Purpose;
use segue_core::toolset::Toolset;
use segue_core::value::Value;

use super::{Tool, ToolError, ToolRequest, ToolRunner};

/// Returns the tool, with a guard if the toolset excludes it.
pub(crate) fn wrap(tool: Tool, toolset: &Toolset) -> Tool {
    // Where the toolset admits whole compositions, a single call does not show whether it belongs
    // to one. The planner has held its caller to the toolset, also for compositions that a step
    // makes.
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
        // A rollback is always allowed.
        if call.purpose == Purpose::Rollback {
            return self.inner.call(call).await;
        }
        Err(ToolError::refused(self.code, self.message.clone()))
    }

    fn may_ask(&self) -> bool {
        self.inner.may_ask()
    }
}
