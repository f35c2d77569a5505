//! What editors are answered. Positions are UTF-16 offsets from the beginning of the text.

use std::sync::Arc;

use schemars::JsonSchema;
use segue_core::diagnostic::{Code, DiagnosticView};
use segue_core::language::edit::NewText;
use segue_core::language::{CompletionKind, OutlineKind, TokenKind};
use segue_core::value::Value;
use segue_core::view::source::StepPlaceView;
use segue_core::view::{PlanStepView, PlanView};
use serde::Serialize;

/// What is known about a text.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TextAnalysis {
    /// The SHA-256 of the text.
    pub hash: String,
    /// Whether it has no error.
    pub valid: bool,
    /// Every finding, in the order of the text.
    pub findings: Vec<TextFinding>,
    /// The steps as a plan shows them, also of a text with errors; empty if it has no readable steps.
    pub steps: Vec<PlanStepView>,
    /// The place of each step.
    pub spans: Vec<StepRange>,
    /// The parts of the composition.
    pub outline: Vec<OutlineEntry>,
    /// The tokens inside expressions, in the order of the text.
    pub tokens: Vec<TokenRange>,
    /// The parts that lead somewhere.
    pub links: Vec<LinkRange>,
    /// The plan; absent if there is an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanView>,
    /// The JSON Schema of the input; absent if there is an error, or no input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inputs: Option<Value>,
}

/// A finding with its offsets.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TextFinding {
    /// The finding.
    #[serde(flatten)]
    pub finding: DiagnosticView,
    /// The beginning of its span.
    pub start: u32,
    /// The end of its span.
    pub end: u32,
}

/// The place of a step.
#[derive(Debug, Serialize, JsonSchema)]
pub struct StepRange {
    /// The step, with lines and columns.
    #[serde(flatten)]
    pub place: StepPlaceView,
    /// The beginning.
    pub start: u32,
    /// The end.
    pub end: u32,
}

/// A part of a composition, with its own parts.
#[derive(Debug, Serialize, JsonSchema)]
pub struct OutlineEntry {
    /// Its name.
    pub name: String,
    /// Its kind: `input`, `step`, `body` or `output`.
    pub kind: &'static str,
    /// More about it in one line: the tool of a step, the type of an input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The beginning of the part.
    pub start: u32,
    /// The end of the part.
    pub end: u32,
    /// The beginning of its name.
    pub name_start: u32,
    /// The end of its name.
    pub name_end: u32,
    /// Its parts.
    pub children: Vec<OutlineEntry>,
}

/// A token inside an expression.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TokenRange {
    /// The beginning.
    pub start: u32,
    /// The end.
    pub end: u32,
    /// Its kind: `brace`, `name`, `member`, `filter`, `test`, `function`, `keyword`, `text`, `number` or
    /// `operator`.
    pub kind: &'static str,
}

/// A part that leads somewhere.
#[derive(Debug, Serialize, JsonSchema)]
pub struct LinkRange {
    /// The beginning.
    pub start: u32,
    /// The end.
    pub end: u32,
    /// Where it leads.
    pub target: LinkView,
}

/// Where a link leads.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum LinkView {
    /// A file of compositions.
    File {
        /// Its path, as `GET /api/v1/files/{path}` takes it.
        path: Arc<str>,
    },
    /// The page about a kind of error.
    Error {
        /// The code.
        code: Code,
    },
    /// An address on the web.
    Url {
        /// The address.
        url: Arc<str>,
    },
}

/// What can be written at a position.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CompletionList {
    /// The best first.
    pub items: Vec<CompletionView>,
}

/// A proposal.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CompletionView {
    /// The name that is shown.
    pub label: String,
    /// Its kind: `field`, `step_kind`, `tool`, `composition`, `parameter`, `value`, `step`, `name`, `member`,
    /// `expression`, `filter`, `test`, `function` or `keyword`.
    pub kind: &'static str,
    /// Its type, in one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Its description.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub documentation: Option<Arc<str>>,
    /// Whether it must be given and is not there yet.
    pub required: bool,
    /// The beginning of the part that it replaces.
    pub start: u32,
    /// The end of the part that it replaces.
    pub end: u32,
    /// The text that replaces it.
    pub text: String,
}

/// What is known about the part of a text at a position.
#[derive(Debug, Serialize, JsonSchema)]
pub struct HoverView {
    /// The beginning of the part.
    pub start: u32,
    /// The end of the part.
    pub end: u32,
    /// The type of its value, in one line.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub ty: Option<String>,
    /// Description, last value, times and the like, as Markdown.
    pub contents: String,
    /// A JSON Schema of its value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
}

/// Where a name stands.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ReferenceList {
    /// Where it is declared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub definition: Option<TextRange>,
    /// Every place that means the same, with the declaration, in the order of the text.
    pub references: Vec<TextRange>,
}

/// A part of the text.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TextRange {
    /// The beginning.
    pub start: u32,
    /// The end.
    pub end: u32,
}

/// A replacement in the text that was sent.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TextEditView {
    /// The beginning of the part that is replaced.
    pub start: u32,
    /// Its end.
    pub end: u32,
    /// The text that replaces it.
    pub text: String,
}

/// Replacements in the text that was sent: sorted, and without overlap.
#[derive(Debug, Serialize, JsonSchema)]
pub struct EditList {
    /// The replacements.
    pub edits: Vec<TextEditView>,
    /// The composition that `extract` makes, for a file of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extracted: Option<NewText>,
}

/// What a step would be called with.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PreviewView {
    /// Each argument, or the template.
    pub fields: Vec<PreviewFieldView>,
}

/// An argument as it would be rendered.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PreviewFieldView {
    /// Its JSON Pointer in the arguments; empty for a template.
    pub field: String,
    /// The type that is known without a run, in one line.
    #[serde(rename = "type")]
    pub ty: String,
    /// The value, cut as previews of runs are; absent if there is an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// Why there is no value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What can be fixed.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ActionList {
    /// Each change.
    pub actions: Vec<ActionView>,
}

/// A change that fixes a finding.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ActionView {
    /// What it does.
    pub title: String,
    /// The code of the finding.
    pub code: Code,
    /// Whether it is the obvious fix.
    pub preferred: bool,
    /// The change.
    pub edits: Vec<TextEditView>,
}

pub(super) fn completion_kind(kind: CompletionKind) -> &'static str {
    match kind {
        CompletionKind::Field => "field",
        CompletionKind::StepKind => "step_kind",
        CompletionKind::Tool => "tool",
        CompletionKind::Composition => "composition",
        CompletionKind::Parameter => "parameter",
        CompletionKind::Value => "value",
        CompletionKind::Step => "step",
        CompletionKind::Name => "name",
        CompletionKind::Member => "member",
        CompletionKind::Expression => "expression",
        CompletionKind::Filter => "filter",
        CompletionKind::Test => "test",
        CompletionKind::Function => "function",
        CompletionKind::Keyword => "keyword",
    }
}

pub(super) fn outline_kind(kind: OutlineKind) -> &'static str {
    match kind {
        OutlineKind::Input => "input",
        OutlineKind::Step => "step",
        OutlineKind::Body => "body",
        OutlineKind::Output => "output",
    }
}

pub(super) fn token_kind(kind: TokenKind) -> &'static str {
    match kind {
        TokenKind::Brace => "brace",
        TokenKind::Name => "name",
        TokenKind::Member => "member",
        TokenKind::Filter => "filter",
        TokenKind::Test => "test",
        TokenKind::Function => "function",
        TokenKind::Keyword => "keyword",
        TokenKind::Text => "text",
        TokenKind::Number => "number",
        TokenKind::Operator => "operator",
    }
}
