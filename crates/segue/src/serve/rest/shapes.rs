//! What is asked and answered, beyond the views that every surface has.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use segue_core::diagnostic::DiagnosticView;
use segue_core::planner::PlannedView;
use segue_core::value::{Map, Shared, Value};
use segue_core::view::TemplateView;
use segue_core::view::{ErrorView, PlanView, RunStatus, RunView, StepView, Timestamp, WaitView};
use serde::Serialize;

use crate::serve::listing::{CompositionLine, RunLine};
use crate::serve::plans::PlanOffer;

/// A run that is wanted: one of `composition`, `template_id` and `name`.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "it is read as a value; this is its schema")]
pub struct CompositionRequest {
    /// The id of a template.
    template_id: Option<String>,
    /// A composition of any dialect, as an object or as YAML or JSON text.
    composition: Option<Document>,
    /// The name of a served composition.
    name: Option<String>,
    /// Its input.
    input: Option<BTreeMap<String, Value>>,
    /// What it requires of its caller.
    context: Option<BTreeMap<String, Value>>,
    /// How it is run.
    options: Option<ExecutionOptions>,
}

/// How a composition is run.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "it is read as a value; this is its schema")]
pub struct ExecutionOptions {
    /// For the whole run: text such as `30s` or `2m`, or whole nanoseconds.
    timeout: Option<Timeout>,
    /// Steps that run at once.
    #[schemars(range(min = 1, max = 1024))]
    max_concurrency: Option<u32>,
    /// In place of the composition's own.
    error_strategy: Option<ErrorStrategy>,
    /// Calls nothing, and shows what would be called.
    #[schemars(default)]
    dry_run: bool,
    /// Consent to every call that would ask a person.
    #[schemars(default)]
    approved: bool,
}

/// A composition: an object, or YAML or JSON text.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "it is read as a value; this is its schema")]
enum Document {
    Object(BTreeMap<String, Value>),
    Text(String),
}

/// A duration.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "it is read as a value; this is its schema")]
enum Timeout {
    /// Text such as `500ms`, `30s` or `2m`.
    Text(String),
    /// Whole nanoseconds.
    Nanoseconds(u64),
}

/// What is done when a step fails for good.
#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
#[expect(dead_code, reason = "it is read as a value; this is its schema")]
enum ErrorStrategy {
    FailFast,
    PartialSuccess,
    Rollback,
    Retry,
}

/// What became of a run.
#[derive(Serialize, JsonSchema)]
pub struct CompositionResult {
    /// Whether everything worked.
    pub success: bool,
    /// Every output key with its value.
    pub results: Shared<Map>,
    /// What went wrong; absent when nothing did.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<ErrorView>,
    /// Nanoseconds.
    pub duration: u64,
    /// Steps that ran, however often.
    pub steps_executed: usize,
    /// The run; a dry run has none that could be found again.
    pub run_id: Arc<str>,
    /// The composition's name.
    pub name: Arc<str>,
    /// How the run stands.
    pub status: RunStatus,
    /// The composition's result.
    pub output: Value,
    /// What was noticed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// What a person is asked, while the run waits.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waiting_for: Vec<WaitView>,
    /// What each step would do; in dry runs only.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepView>,
    /// RFC 3339, absent before the start.
    pub started_at: Option<Timestamp>,
    /// RFC 3339, absent before the end.
    pub completed_at: Option<Timestamp>,
    /// Milliseconds.
    pub duration_ms: u64,
}

impl From<RunView> for CompositionResult {
    fn from(view: RunView) -> CompositionResult {
        let is_dry = view.status == RunStatus::DryRun;
        CompositionResult {
            success: view.success,
            results: view.results,
            errors: view.errors,
            duration: view.duration,
            steps_executed: view.steps_executed,
            run_id: view.run_id,
            name: view.name,
            status: view.status,
            output: view.output,
            warnings: view.warnings,
            waiting_for: view.waiting_for,
            steps: if is_dry { view.steps } else { Vec::new() },
            started_at: view.started_at,
            completed_at: view.completed_at,
            duration_ms: view.duration_ms,
        }
    }
}

/// A composition that is to be looked at: one of `composition`, `template_id` and `name`.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "it is read as a value; this is its schema")]
pub struct PlanRequest {
    /// The id of a template.
    template_id: Option<String>,
    /// A composition of any dialect, as an object or as YAML or JSON text.
    composition: Option<Document>,
    /// The name of a served composition.
    name: Option<String>,
}

/// What somebody wants a plan for.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "it is read as a value; this is its schema")]
pub struct AskRequest {
    /// In their own words.
    query: String,
    /// The request that the plan is another version of.
    request_id: Option<String>,
    /// Take this plan, which worked before.
    #[schemars(rename = "use")]
    used: Option<String>,
    /// Ask the model, whatever worked before.
    #[schemars(default)]
    fresh: bool,
}

/// How a plan is executed.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "it is read as a value; this is its schema")]
pub struct ExecutePlanRequest {
    /// Execute it although it was executed already.
    #[schemars(default)]
    again: bool,
    /// What it requires of its caller.
    context: Option<BTreeMap<String, Value>>,
    /// How it is run.
    options: Option<ExecutionOptions>,
}

/// A plan that was made of words.
#[derive(Serialize, JsonSchema)]
pub struct KeptPlan<'a> {
    /// What is kept of it.
    #[serde(flatten)]
    pub record: PlannedView<'a>,
    /// The plans of its request, the first one first.
    pub versions: Vec<Arc<str>>,
    /// Order, effects and what can be rolled back; absent when it does not fit the tools as they are now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checked: Option<PlanView>,
    /// Its last run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<RunView>,
    /// When it has just been made: others that worked for words like these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub used_before: Vec<PlanOffer>,
}

/// Plans, newest first, a page at a time; those of one request from the first.
#[derive(Serialize, JsonSchema)]
pub struct PlanList<'a> {
    /// Without the plans themselves.
    pub plans: Vec<PlannedView<'a>>,
    /// The `cursor` of the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<Arc<str>>,
}

/// One operation of GraphQL.
#[derive(JsonSchema)]
#[schemars(rename = "GraphQLRequest", rename_all = "camelCase")]
#[expect(dead_code, reason = "it is read as a value; this is its schema")]
pub struct GraphqlRequest {
    /// The document.
    query: String,
    /// Which of its operations, when it has several.
    operation_name: Option<String>,
    /// Values of its variables.
    variables: Option<BTreeMap<String, Value>>,
    /// Not looked at.
    extensions: Option<BTreeMap<String, Value>>,
}

/// What GraphQL answers.
#[derive(JsonSchema)]
#[schemars(rename = "GraphQLResponse")]
#[expect(dead_code, reason = "it is answered as text; this is its schema")]
pub struct GraphqlResponse {
    /// What was asked for; absent when nothing was executed.
    #[schemars(skip_serializing_if = "Option::is_none")]
    data: Option<Value>,
    /// What went wrong; each has `extensions.code`.
    #[schemars(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<BTreeMap<String, Value>>,
}

/// What was found in a composition.
#[derive(Serialize, JsonSchema)]
pub struct ValidationResult {
    /// Whether it could run.
    pub ok: bool,
    /// Every finding, at its line.
    pub diagnostics: Vec<DiagnosticView>,
    /// What would run; absent when it could not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanView>,
}

/// A template as it is given.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "it is read as a value; this is its schema")]
pub struct TemplateRequest {
    /// Small letters, digits, `-` and `_`; in the path when a template is replaced.
    id: Option<String>,
    /// What people call it; the composition's name unless given.
    name: Option<String>,
    /// What it is for; the composition's description unless given.
    description: Option<String>,
    /// A composition of any dialect, as an object or as YAML or JSON text.
    composition: Document,
    /// Category, tags and what else is known of it.
    metadata: Option<BTreeMap<String, Value>>,
    /// What it needs: `required_tools`, `min_version`.
    validation: Option<BTreeMap<String, Value>>,
}

/// Templates, without their compositions.
#[derive(Serialize, JsonSchema)]
pub struct TemplateList {
    /// By id, or the best first.
    pub templates: Vec<TemplateView>,
}

/// The compositions that are served.
#[derive(Serialize, JsonSchema)]
pub struct CompositionList {
    /// By name.
    pub compositions: Vec<CompositionLine>,
}

/// Runs, newest first, a page at a time.
#[derive(Serialize, JsonSchema)]
pub struct RunList {
    /// Newest first.
    pub runs: Vec<RunLine>,
    /// Runs that are set aside because what was kept of them is damaged.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub damaged: Vec<String>,
    /// The `cursor` of the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// An answer to what a run waits for.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "it is read as a value; this is its schema")]
pub struct ApproveRequest {
    /// Yes, or no: nobody's silence is a yes.
    approved: bool,
    /// The step that asks, when several do.
    step: Option<String>,
    /// What belongs to a yes, where the question has a schema.
    data: Option<Value>,
}

/// How a run goes on.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "it is read as a value; this is its schema")]
pub struct ResumeRequest {
    /// What is known of a call that was never answered.
    assume: Option<Assume>,
    /// With `assume: done`: what the call returned.
    value: Option<Value>,
    /// The step that is in doubt, when several are.
    step: Option<String>,
}

/// What became of a call.
#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
#[expect(dead_code, reason = "it is read as a value; this is its schema")]
enum Assume {
    /// It did its work.
    Done,
    /// It did nothing.
    Failed,
}

/// Tools that may be used.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "it is answered as a value; this is its schema")]
pub struct ToolList {
    /// By id.
    tools: Vec<Tool>,
}

/// A tool, with everything that is known of it.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "it is answered as a value; this is its schema")]
pub struct Tool {
    /// `namespace:name`
    id: String,
    /// What it does.
    description: String,
    /// JSON Schema of its arguments.
    input_schema: Value,
    /// JSON Schema of what it returns.
    #[schemars(skip_serializing_if = "Option::is_none")]
    output_schema: Option<Value>,
    /// What its source says it does to the world.
    annotations: BTreeMap<String, Value>,
    /// What it does to the world, in a word.
    effect: String,
    /// How its work is taken back.
    #[schemars(skip_serializing_if = "Option::is_none")]
    rollback: Option<Value>,
    /// Whether a person is asked before it is called.
    confirms: bool,
    /// The hash of its definition.
    hash: String,
}

/// Definitions for another host, and what was lost on the way.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "it is answered as a value; this is its schema")]
pub struct ExportReport {
    /// The definitions, in the host's shape.
    tools: Value,
    /// What the host does not take.
    losses: Vec<BTreeMap<String, Value>>,
    /// Tools that could not be converted.
    errors: Vec<BTreeMap<String, Value>>,
    /// The tool behind each name.
    names: BTreeMap<String, String>,
}

/// Whether runs can be begun.
#[derive(Serialize, JsonSchema)]
pub struct Readiness {
    /// Whether the store can be written.
    pub ready: bool,
    /// Compositions that are served.
    pub compositions: usize,
    /// Runs that are under way here.
    pub runs: usize,
}

/// What we are to those who look for somebody to give them a token: RFC 9728.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ProtectedResource {
    /// Our address.
    pub resource: String,
    /// Who gives tokens for it.
    pub authorization_servers: Vec<String>,
    /// Scopes that mean something here.
    pub scopes_supported: Vec<String>,
    /// How a token is brought.
    pub bearer_methods_supported: Vec<String>,
}
