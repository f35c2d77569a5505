//! What editors ask about a text. Positions are UTF-16 offsets from its beginning.

use std::sync::Arc;

use schemars::JsonSchema;
use segue_core::language::edit::Edit;
use segue_core::value::Value;
use serde::{Deserialize, Serialize};

use crate::api::requests::impl_request;

impl_request!(
    AnalyzeText,
    CompleteText,
    HoverText,
    FindReferences,
    RenameSymbol,
    FindActions,
    EditText,
    PreviewStep,
    PinOutput,
    CompareTexts,
);

/// Analyses a text.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AnalyzeRequest")]
pub struct AnalyzeText {
    /// The text.
    pub text: String,
    /// Its name in findings, usually its path.
    pub name: Option<Arc<str>>,
}

/// Asks what can be written at a position.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "CompleteRequest")]
pub struct CompleteText {
    /// The text.
    pub text: String,
    /// Its name.
    pub name: Option<Arc<str>>,
    /// The position.
    pub at: u32,
    /// The id of a run whose values show which members there are.
    pub run: Option<Arc<str>>,
}

/// Asks what is at a position.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "HoverRequest")]
pub struct HoverText {
    /// The text.
    pub text: String,
    /// Its name.
    pub name: Option<Arc<str>>,
    /// The position.
    pub at: u32,
    /// The id of a run whose values are shown.
    pub run: Option<Arc<str>>,
}

/// Asks where the name at a position stands.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ReferencesRequest")]
pub struct FindReferences {
    /// The text.
    pub text: String,
    /// Its name.
    pub name: Option<Arc<str>>,
    /// The position.
    pub at: u32,
}

/// Renames what the name at a position means.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "RenameRequest")]
pub struct RenameSymbol {
    /// The text.
    pub text: String,
    /// Its name.
    pub name: Option<Arc<str>>,
    /// The position.
    pub at: u32,
    /// The new name.
    pub to: String,
}

/// Asks what can be fixed in a part of the text.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ActionsRequest")]
pub struct FindActions {
    /// The text.
    pub text: String,
    /// Its name.
    pub name: Option<Arc<str>>,
    /// The beginning of the part.
    pub start: u32,
    /// Its end.
    pub end: u32,
}

/// Asks how a text changes with a change of its composition.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "EditRequest")]
pub struct EditText {
    /// The text.
    pub text: String,
    /// Its name.
    pub name: Option<Arc<str>>,
    /// The change.
    pub edit: Edit,
}

/// Asks what the arguments of a step, or a template, would be with the data of a run.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "PreviewRequest")]
pub struct PreviewStep {
    /// The text.
    pub text: String,
    /// Its name.
    pub name: Option<Arc<str>>,
    /// The step; without one, the template is one of the composition's output.
    pub step: Option<Arc<str>>,
    /// Only this argument of the step, as a JSON Pointer such as `/url`.
    pub field: Option<Arc<str>>,
    /// A value with expressions, in place of the arguments of the step.
    pub template: Option<Value>,
    /// The id of the run whose data is used; without one, only what needs no run has a value.
    pub run: Option<Arc<str>>,
    /// The number of the item that loops are shown at, from 0.
    pub item: Option<u32>,
}

/// Asks how a test file keeps the output of a step as a mock.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "PinRequest")]
pub struct PinOutput {
    /// The text of the test file; absent for a new one.
    pub test_text: Option<String>,
    /// The composition: its name, or its file as the test file names it.
    pub composition: Arc<str>,
    /// The step.
    pub step: Arc<str>,
    /// The output.
    pub output: Value,
}

/// Compares two versions of a composition.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "CompareRequest")]
pub struct CompareTexts {
    /// The old text.
    pub before: String,
    /// The new text.
    pub after: String,
    /// Their name.
    pub name: Option<Arc<str>>,
}
