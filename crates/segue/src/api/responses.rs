//! What the service answers, beyond the views of the core: the documented shapes of REST.

use std::sync::Arc;

use schemars::JsonSchema;
use segue_core::diagnostic::DiagnosticView;
use segue_core::planner::PlannedView;
use segue_core::tool::Impact;
use segue_core::value::{Map, Shared, Value};
use segue_core::view::TemplateView;
use segue_core::view::{
    ErrorView, PerformedPart, PlanView, RunStatus, RunView, StepView, Timestamp, WaitView,
};
use segue_runtime::store::RunRow;
use serde::Serialize;

use super::compositions::BrokenComposition;
use super::plans::PlanOffer;

/// The result of a run.
#[derive(Serialize, JsonSchema)]
pub struct CompositionResult {
    /// Whether every step succeeded.
    pub success: bool,
    /// Every output key with its value.
    pub results: Shared<Map>,
    /// The errors; absent when there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<ErrorView>,
    /// Nanoseconds.
    pub duration: u64,
    /// How many steps ran.
    pub steps_executed: usize,
    /// The id of the run; that of a dry run cannot be found again.
    pub run_id: Arc<str>,
    /// The composition's name.
    pub name: Arc<str>,
    /// The status of the run.
    pub status: RunStatus,
    /// The composition's result.
    pub output: Value,
    /// The warnings.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The questions that the run waits for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waiting_for: Vec<WaitView>,
    /// The steps; in dry runs only.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepView>,
    /// RFC 3339, absent before the start.
    pub started_at: Option<Timestamp>,
    /// RFC 3339, absent before the end.
    pub completed_at: Option<Timestamp>,
    /// Milliseconds.
    pub duration_ms: u64,
    /// The id of the chain.
    pub chain_id: Arc<str>,
    /// Names that steps set.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub state: Map,
    /// The part of the composition that it performs; absent if it performs all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<PerformedPart>,
    /// The result in the format of the document's dialect: of a chain, a skill or a plan that started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dialect_result: Option<Value>,
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
            chain_id: view.chain_id,
            state: view.state,
            part: view.part,
            dialect_result: view.dialect_result,
        }
    }
}

/// A plan that a model made of words.
#[derive(Serialize, JsonSchema)]
pub struct PlanDetails<'a> {
    /// Its record.
    #[serde(flatten)]
    pub record: PlannedView<'a>,
    /// The plans of its request, the first version first.
    pub versions: Vec<Arc<str>>,
    /// Order, effects and rollback; absent when it does not fit the tools that exist now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checked: Option<PlanView>,
    /// Its last run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<RunView>,
    /// When it is new: earlier plans that succeeded for similar words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub used_before: Vec<PlanOffer>,
}

/// A page of plans, newest first; those of one request from the first version.
#[derive(Serialize, JsonSchema)]
pub struct PlanList<'a> {
    /// Without the plans themselves.
    pub plans: Vec<PlannedView<'a>>,
    /// The `cursor` of the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<Arc<str>>,
}

/// The result of checking a composition.
#[derive(Serialize, JsonSchema)]
pub struct ValidationResult {
    /// Whether it could run.
    pub ok: bool,
    /// Every finding, at its line.
    pub diagnostics: Vec<DiagnosticView>,
    /// The plan; absent when it could not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanView>,
}

/// Templates, without their compositions.
#[derive(Serialize, JsonSchema)]
pub struct TemplateList {
    /// By id, or the best first.
    pub templates: Vec<TemplateView>,
}

/// The served compositions.
#[derive(Serialize, JsonSchema)]
pub struct CompositionList {
    /// By name.
    pub compositions: Vec<CompositionSummary>,
    /// For administrators: configured files that are not served, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub broken: Vec<BrokenComposition>,
}

/// A page of runs, newest first.
#[derive(Serialize, JsonSchema)]
pub struct RunList {
    /// Newest first.
    pub runs: Vec<RunSummary>,
    /// Runs that are set aside because their records are damaged.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub damaged: Vec<String>,
    /// The `cursor` of the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Of a search: how many runs were read. A page of a search may be short, or empty, and have a
    /// `next`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub searched: Option<usize>,
}

/// Whether runs can start.
#[derive(Serialize, JsonSchema)]
pub struct Readiness {
    /// Whether the store can be written.
    pub ready: bool,
    /// How many compositions are served.
    pub compositions: usize,
    /// How many runs this process drives.
    pub runs: usize,
}

/// The summary of a run.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RunSummary {
    /// UUIDv7.
    pub run_id: Arc<str>,
    /// The composition's name.
    pub name: Arc<str>,
    /// Its status.
    pub status: RunStatus,
    /// Whether every step succeeded.
    pub success: bool,
    /// RFC 3339.
    pub started_at: Timestamp,
    /// RFC 3339, absent before the end.
    pub completed_at: Option<Timestamp>,
    /// Milliseconds, until now if it has not finished.
    pub duration_ms: u64,
    /// The hash of its plan.
    pub plan_hash: Arc<str>,
    /// The principal that started it over HTTP or MCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub principal: Option<Arc<str>>,
    /// Why it is set aside until a person resumes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set_aside: Option<Arc<str>>,
    /// Whether it has not ended and no process runs it.
    pub interrupted: bool,
    /// How many steps will run, where the plan alone decides it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps_total: Option<u32>,
    /// How many steps have finished, of a run that has not ended. Absent if its journal is long and another
    /// process runs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps_done: Option<u32>,
    /// The first few tools of its plan.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Arc<str>>,
}

impl From<&RunRow> for RunSummary {
    fn from(run: &RunRow) -> RunSummary {
        RunSummary {
            run_id: run.run_id.clone(),
            name: run.name.clone(),
            status: run.status,
            success: run.status == RunStatus::Success,
            started_at: Timestamp(run.started_ms),
            completed_at: run.ended_ms.map(Timestamp),
            duration_ms: run.ended_ms.unwrap_or(run.updated_ms).saturating_sub(run.started_ms),
            plan_hash: run.plan_hash.clone(),
            principal: run.caller.as_ref().map(|caller| caller.principal.clone()),
            set_aside: run.set_aside.clone(),
            interrupted: false,
            steps_total: None,
            steps_done: None,
            tools: Vec::new(),
        }
    }
}

/// A served composition.
#[derive(Clone, Serialize, JsonSchema)]
pub struct CompositionSummary {
    /// Its name.
    pub name: Arc<str>,
    /// What it does and calls, and whether it can be rolled back.
    pub description: String,
    /// JSON Schema of its input.
    pub input: Value,
    /// JSON Schema of its result.
    pub output: Value,
    /// Its worst effect.
    pub effect: Impact,
    /// The hash of its plan.
    pub plan_hash: Arc<str>,
}
