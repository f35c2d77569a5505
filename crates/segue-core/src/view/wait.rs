//! The questions of a waiting run, and what an answer covers.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use crate::composition::tool::Impact;
use crate::value::Value;

/// A question that a run waits for.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct WaitView {
    /// The step that asks.
    pub step: Arc<str>,
    /// `run`: may an atomic composition run; `call`: may a tool be called; `approval`: the question
    /// of an `approve` step; `doubt`: did a call do its work.
    pub kind: &'static str,
    /// The tool, for a call.
    pub tool: Option<Arc<str>>,
    /// The question.
    pub message: Arc<str>,
    /// The tool's arguments.
    pub args: Value,
    /// JSON Schema of the data in a yes, for an approval that requires some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// The tools that a yes covers: forward calls, then rollback calls.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub covers: Vec<CoveredView>,
}

/// A tool that a yes covers.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CoveredView {
    /// The tool.
    pub tool: Arc<str>,
    /// Its effect.
    pub effect: Impact,
    /// Its arguments, if they are known in advance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Value>,
    /// Whether its effect can be rolled back.
    #[serde(rename = "can_be_undone")]
    pub can_roll_back: bool,
    /// Whether it is called to roll something back.
    #[serde(rename = "takes_back")]
    pub is_rollback: bool,
}
