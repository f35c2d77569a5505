//! Tools and people of a dry run: tools that only read are called; samples stand in for the rest.

use std::sync::Arc;

use async_trait::async_trait;
use segue_core::diagnostic::Code;
use segue_core::dry_run::calls_really;
use segue_core::run::{Question, QuestionKind};
use segue_core::tool::ToolSpec;
use segue_core::value::Value;

use crate::confirm::{Confirmer, Decision};
use crate::tools::{Tool, ToolError, ToolRequest, ToolRunner};

/// The tool as a dry run calls it.
pub(crate) fn wrap(tool: Tool) -> Tool {
    if calls_really(&tool.spec) {
        return tool;
    }
    Tool { spec: tool.spec.clone(), runner: Arc::new(SampleTool { spec: tool.spec }) }
}

struct SampleTool {
    spec: Arc<ToolSpec>,
}

#[async_trait]
impl ToolRunner for SampleTool {
    async fn call(&self, _call: ToolRequest) -> Result<Value, ToolError> {
        // The tool declares no output schema, so any object will do.
        let Some(output) = &self.spec.output else { return Ok(Value::empty_object()) };
        output.sample().ok_or_else(|| {
            let message = format!("no sample fits the output schema of `{}`", self.spec.id);
            ToolError::refused(Code::OutputSchema, message)
        })
    }
}

/// Approves everything, since the dry run calls nothing that asks. Samples stand in for the data
/// that a person would add.
pub(crate) struct ApproveAll;

#[async_trait]
impl Confirmer for ApproveAll {
    async fn confirm(&self, question: &Question) -> Option<Decision> {
        let data = match &question.kind {
            QuestionKind::Approval { schema: Some(schema), .. } => schema.sample(),
            _ => None,
        };
        let by = "the dry run".into();
        Some(Decision { granted: true, by, data: data.unwrap_or_default() })
    }
}
