//! What a run that waits asks, and what an answer covers.

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
    /// `run`: may an atomic composition run; `call`: may a tool be called; `approval`: what an `approve` step asks; `doubt`: did a call do
    /// its work.
    pub kind: &'static str,
    /// The tool, of a call.
    pub tool: Option<Arc<str>>,
    /// The question, in words.
    pub message: Arc<str>,
    /// What the tool is called with.
    pub args: Value,
    /// JSON Schema of the data that belongs to a yes, of an approval that wants some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// The tools that a yes covers: those that are called, then what may take that back.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub covers: Vec<CoveredView>,
}

/// A tool that a yes covers.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CoveredView {
    /// The tool.
    pub tool: Arc<str>,
    /// What it does to the world.
    pub effect: Impact,
    /// What it is called with, where that is known before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Value>,
    /// Whether what it does can be taken back.
    #[serde(rename = "can_be_undone")]
    pub can_roll_back: bool,
    /// Whether it is called to take something back.
    #[serde(rename = "takes_back")]
    pub is_rollback: bool,
}
