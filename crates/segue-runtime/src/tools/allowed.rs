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

use super::{Call, Tool, ToolError, ToolRunner};

/// The tool, which refuses calls when it is not in the toolset.
pub(crate) fn around_tool(tool: Tool, toolset: &Toolset) -> Tool {
    // Where compositions come whole, a call alone does not say whose it is. What calls it was held to
    // the toolset when it was planned, also what a run makes as it goes.
    if toolset.is_whole() {
        return tool;
    }
    let Some((code, message)) = toolset.refusal(&tool.spec.id) else { return tool };
    let runner = Excluded { code, message, inner: tool.runner };
    Tool { spec: tool.spec, runner: Arc::new(runner) }
}

struct Excluded {
    code: Code,
    message: String,
    inner: Arc<dyn ToolRunner>,
}

#[async_trait]
impl ToolRunner for Excluded {
    async fn call(&self, call: Call) -> Result<Value, ToolError> {
        // What was done is taken back, whatever else is allowed.
        if call.purpose == Purpose::Undo {
            return self.inner.call(call).await;
        }
        Err(ToolError::refused(self.code, self.message.clone()))
    }

    fn may_ask(&self) -> bool {
        self.inner.may_ask()
    }
}
