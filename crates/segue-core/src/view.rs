//! The published JSON shapes of runs and plans.

pub mod compare;
pub mod cut;
pub mod explain;
mod part;
pub mod source;
mod status;
mod svg;
mod template;
mod time;
mod wait;

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use crate::composition::tool::{Impact, ToolSpec};
use crate::composition::{
    Body, Dialect, Flow, Need, ResolvedRollback, Step, StepKind, Target, Transitions,
};
use crate::diagnostic::Code;
use crate::plan::{BodyIndex, Plan, PlanStep};
use crate::value::{Map, Shared, Value};

pub use part::{PerformedPart, StepOrigin};
pub use status::{RunStatus, StepStatus};
pub use template::{TemplateMetadata, TemplateValidation, TemplateView};
pub use time::{Timestamp, parse_rfc3339, rfc3339};
pub use wait::{CoveredView, WaitView};

/// One run, as every surface shows it.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct RunView {
    /// UUIDv7.
    pub run_id: Arc<str>,
    /// `req_…`
    pub request_id: Arc<str>,
    /// `plan_…`
    pub plan_id: Arc<str>,
    /// UUIDv4.
    pub chain_id: Arc<str>,
    /// The composition's name.
    pub name: Arc<str>,
    /// The composition's dialect.
    pub dialect: Dialect,
    /// Its status.
    pub status: RunStatus,
    /// Whether everything worked.
    pub success: bool,
    /// The composition's result.
    pub output: Value,
    /// Every output key with its value.
    pub results: Shared<Map>,
    /// Errors.
    pub errors: Vec<ErrorView>,
    /// Warnings.
    pub warnings: Vec<String>,
    /// Open questions, while the run waits for a person.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waiting_for: Vec<WaitView>,
    /// Every step.
    pub steps: Vec<StepView>,
    /// Names that steps set.
    pub state: Map,
    /// Steps that ran, each counted once.
    pub steps_executed: usize,
    /// Steps that succeeded.
    pub steps_succeeded: usize,
    /// Steps that failed.
    pub steps_failed: usize,
    /// RFC 3339, absent before the start.
    pub started_at: Option<Timestamp>,
    /// RFC 3339, absent before the end.
    pub completed_at: Option<Timestamp>,
    /// Nanoseconds.
    pub duration: u64,
    /// Milliseconds.
    pub duration_ms: u64,
    /// The hash of the plan.
    pub plan_hash: Option<Arc<str>>,
    /// The part of the composition that it performs; absent if it performs all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<PerformedPart>,
    /// The result in the format of the document's dialect: of a chain, a skill or a plan that
    /// started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dialect_result: Option<Value>,
}

/// One step of a run.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct StepView {
    /// Its path, with enclosing bodies and iterations.
    pub id: Arc<str>,
    /// The kind of step.
    pub kind: &'static str,
    /// The tool, for steps that call one.
    pub tool: Option<Arc<str>>,
    /// Its status.
    pub status: StepStatus,
    /// The number of attempts.
    pub attempts: u32,
    /// Its arguments.
    pub input: Value,
    /// Its value.
    pub output: Value,
    /// Its failure.
    pub error: Option<ErrorView>,
    /// Why it was skipped.
    pub reason: Option<String>,
    /// RFC 3339.
    pub started_at: Option<Timestamp>,
    /// RFC 3339.
    pub completed_at: Option<Timestamp>,
    /// Milliseconds from its first attempt to its end.
    pub duration_ms: u64,
    /// What it would do; in dry runs only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub would: Option<EffectView>,
    /// Why this run did not perform it; absent if it did, or may still.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<StepOrigin>,
}

/// The effect of a step in a dry run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct EffectView {
    /// The effect, at worst.
    pub effect: Impact,
    /// Its rollback.
    pub rollback: RollbackView,
    /// Whether it needs confirmation.
    pub confirms: bool,
    /// Whether it was really called, because it only reads.
    pub called: bool,
}

impl EffectView {
    /// The effect of a step of a plan, with its arguments as far as they are known.
    pub fn of(plan: &Plan, planned: &PlanStep, given: Option<&Value>) -> EffectView {
        EffectView {
            effect: planned.effect,
            rollback: RollbackView::of_planned(planned),
            confirms: confirms(plan, planned, given),
            called: false,
        }
    }
}

/// A decision of a person in a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DecisionView {
    /// The time.
    pub at: Timestamp,
    /// The person.
    pub by: Arc<str>,
    /// The decision, in words.
    pub what: String,
}

/// One attempt of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AttemptView {
    /// The step.
    pub step: Arc<str>,
    /// The tool.
    pub tool: String,
    /// When it was recorded.
    pub started_at: Timestamp,
    /// Its duration; absent while it is open.
    pub duration_ms: Option<u64>,
    /// `done`, `failed`, `in_doubt`, `lost` if the engine stopped during it, `cancelled`, or
    /// `open`.
    pub outcome: &'static str,
    /// The kind of failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<Code>,
    /// The message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The pause after it, before the next attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause_ms: Option<u64>,
}

/// One failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ErrorView {
    /// The step.
    pub step: Option<Arc<str>>,
    /// The tool.
    pub tool: Option<Arc<str>>,
    /// The kind of failure.
    pub code: Code,
    /// The message.
    pub message: String,
    /// The number of attempts.
    pub attempts: u32,
    /// The phase: `check`, `call`, `rollback`, …
    pub phase: &'static str,
    /// Whether trying again may help.
    pub retryable: bool,
    /// Whether the tool may have done its work nevertheless.
    pub in_doubt: bool,
    /// What to do.
    pub hint: Option<String>,
}

impl ErrorView {
    /// A failure before anything ran.
    pub fn check(code: Code, message: impl Into<String>, hint: Option<String>) -> ErrorView {
        ErrorView {
            step: None,
            tool: None,
            code,
            message: message.into(),
            attempts: 0,
            phase: "check",
            retryable: false,
            in_doubt: false,
            hint,
        }
    }
}

/// A plan as surfaces publish it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PlanView {
    /// The hash of its meaning.
    pub hash: Arc<str>,
    /// The composition's name.
    pub name: Arc<str>,
    /// Its description.
    pub description: Arc<str>,
    /// Its version, as written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<Arc<str>>,
    /// The author's `documentation.summary`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<Arc<str>>,
    /// The composition's dialect.
    pub dialect: Dialect,
    /// One confirmation for the whole run.
    pub atomic: bool,
    /// Its effect, at worst.
    pub effect: Impact,
    /// The typical duration: as measured, else the author's estimate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimated_duration_ms: Option<u64>,
    /// JSON Schema of its input.
    pub inputs: Value,
    /// Its result.
    pub output: Value,
    /// Its steps, in the order of the text.
    pub steps: Vec<PlanStepView>,
    /// Steps that may run in parallel, by the number of steps before them.
    pub together: Vec<Vec<Arc<str>>>,
    /// The longest chain of steps.
    pub longest_path: Vec<Arc<str>>,
    /// The hash of each tool's pinned definition.
    pub tools: BTreeMap<String, String>,
    /// Error handling.
    pub error_handling: ErrorHandlingView,
    /// Metadata of its author, as written.
    #[serde(skip_serializing_if = "says_nothing")]
    pub metadata: Value,
}

fn says_nothing(metadata: &Value) -> bool {
    metadata.as_object().is_none_or(|members| members.is_empty())
}

/// Error handling.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ErrorHandlingView {
    /// The strategy when a step fails for good.
    pub failure_strategy: &'static str,
    /// Whether completed steps are rolled back.
    pub rollback_on_failure: bool,
    /// Retries of a step that sets none itself.
    pub max_retries: Option<u32>,
}

/// One step of a plan.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PlanStepView {
    /// Its id.
    pub id: Arc<str>,
    /// The kind of step.
    pub kind: &'static str,
    /// The tool's id.
    pub tool: Option<Arc<str>>,
    /// Steps that must finish first.
    pub needs: Vec<Arc<str>>,
    /// Those of `needs` that only `depends_on` names: the step refers to nothing of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<Arc<str>>,
    /// Where a program may continue after it; empty in a graph.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ways: Vec<TransitionView>,
    /// Its effect.
    pub effect: Impact,
    /// Its rollback.
    pub rollback: RollbackView,
    /// Its condition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// The name of its value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_key: Option<Arc<str>>,
    /// For one attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Whether it needs confirmation.
    pub confirms: bool,
    /// Whether that depends on its arguments.
    #[serde(skip)]
    pub confirms_sometimes: bool,
    /// Its nested bodies, with their steps.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bodies: Vec<PlanBodyView>,
}

/// A transition of a program after a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TransitionView {
    /// The outcome of the step.
    pub after: TransitionCause,
    /// The id of the next step; absent means the end of the program.
    pub to: Option<Arc<str>>,
    /// Whether it is the next step in the text.
    pub in_sequence: bool,
}

/// The outcome of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TransitionCause {
    /// It succeeded.
    Success,
    /// It was skipped.
    Skip,
    /// It failed, and the failure is tolerated.
    Failure,
}

/// A nested body of a step.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PlanBodyView {
    /// The branch's id, the case's condition, or another label that is unique among its siblings.
    pub label: String,
    /// Its steps.
    pub steps: Vec<PlanStepView>,
}

/// The rollback of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum RollbackView {
    /// Not needed: it has no side effects.
    NotNeeded,
    /// Not declared.
    Unknown,
    /// By a call.
    Call {
        /// The rollback tool.
        tool: Arc<str>,
    },
    /// Impossible.
    Impossible {
        /// The reason.
        reason: Arc<str>,
    },
    /// By rolling back the steps inside.
    Inside,
}

impl PlanView {
    /// The view of a plan.
    pub fn from_plan(plan: &Plan) -> PlanView {
        let composition = &plan.composition;
        let documentation = composition.metadata.get("documentation");
        let summary = documentation.and_then(|known| known.get("summary"));
        let (together, longest_path) = match composition.body.flow {
            Flow::Graph => graph_order(plan),
            Flow::Program => program_order(plan),
        };
        PlanView {
            hash: plan.hash().clone(),
            name: composition.name.clone(),
            description: composition.description.clone(),
            version: composition.version.clone(),
            summary: summary.and_then(Value::as_str).map(Arc::from),
            dialect: composition.dialect,
            atomic: composition.atomic,
            effect: plan.impact(),
            estimated_duration_ms: Some(plan.typical_ms()).filter(|ms| *ms > 0).or_else(|| {
                composition.metadata.get("estimated_duration_ms").and_then(Value::as_u64)
            }),
            inputs: composition.input.as_ref().map_or(Value::Null, |s| s.json().clone()),
            output: composition
                .output
                .as_ref()
                .map_or(Value::Null, crate::expr::Template::to_value),
            steps: step_views(plan, 0, &composition.body),
            together,
            longest_path,
            tools: plan.tools.iter().map(|(id, tool)| (id.to_string(), tool.hash())).collect(),
            error_handling: ErrorHandlingView {
                failure_strategy: composition.error_handling.strategy.as_str(),
                rollback_on_failure: composition.error_handling.rollback_on_failure,
                max_retries: composition.error_handling.max_retries,
            },
            metadata: composition.metadata.clone(),
        }
    }
}

/// Groups of steps that may run in parallel, and the longest chain of steps.
type ExecutionOrder = (Vec<Vec<Arc<str>>>, Vec<Arc<str>>);

fn graph_order(plan: &Plan) -> ExecutionOrder {
    let levels = plan.levels(0);
    let mut together = vec![Vec::new(); levels.iter().max().map_or(0, |max| max + 1)];
    for (step, level) in plan.steps_of(0).zip(&levels) {
        together[*level].push(step.step.id.clone());
    }
    (together, plan.longest_path().iter().map(|step| step.step.id.clone()).collect())
}

/// One step at a time; the longest path is the one on which everything succeeds.
fn program_order(plan: &Plan) -> ExecutionOrder {
    let body = &plan.composition.body;
    let ways = body.transitions();
    let mut path = Vec::new();
    let mut met = vec![false; body.steps.len()];
    let mut at = (!body.steps.is_empty()).then_some(0);
    while let Some(position) = at.filter(|at| !met[*at]) {
        met[position] = true;
        path.push(body.steps[position].id.clone());
        at = match ways[position].success {
            Target::Step(next) => Some(next as usize),
            Target::End => None,
        };
    }
    (body.steps.iter().map(|step| vec![step.id.clone()]).collect(), path)
}

/// The views of a body's steps.
pub(crate) fn step_views(plan: &Plan, body: BodyIndex, steps: &Body) -> Vec<PlanStepView> {
    let views = plan.steps_of(body).map(|step| PlanStepView::of(plan, step));
    if steps.flow == Flow::Graph {
        return views.collect();
    }
    let ways = steps.transitions();
    views
        .zip(&ways)
        .zip(&steps.steps)
        .map(|((view, ways), step)| PlanStepView { ways: way_views(steps, step, ways), ..view })
        .collect()
}

fn way_views(body: &Body, step: &Step, ways: &Transitions) -> Vec<TransitionView> {
    let way = |after: TransitionCause, target: Target| TransitionView {
        after,
        to: match target {
            Target::Step(at) => Some(body.steps[at as usize].id.clone()),
            Target::End => None,
        },
        in_sequence: target == ways.in_sequence,
    };
    let skip = step.when.is_some() && ways.success != ways.in_sequence;
    let skip = skip.then(|| way(TransitionCause::Skip, ways.in_sequence));
    let failure = ways.failure.map(|target| way(TransitionCause::Failure, target));
    [Some(way(TransitionCause::Success, ways.success)), skip, failure]
        .into_iter()
        .flatten()
        .collect()
}

impl PlanStepView {
    fn of(plan: &Plan, planned: &PlanStep) -> PlanStepView {
        let step = &planned.step;
        let siblings = &plan.bodies[planned.body as usize].steps;
        let tool = match &step.kind {
            StepKind::Tool(call) => call.tool.as_ref(),
            _ => None,
        };
        let body = |((body, steps), label): ((&BodyIndex, &Body), String)| PlanBodyView {
            label,
            steps: step_views(plan, *body, steps),
        };
        let of_step = planned.bodies.iter().zip(step.kind.bodies()).zip(body_labels(step));
        let mut bodies: Vec<PlanBodyView> = of_step.map(body).collect();
        for nested in planned.nested.values() {
            bodies.push(PlanBodyView {
                label: nested.composition.name.to_string(),
                steps: step_views(nested, 0, &nested.composition.body),
            });
        }
        let is_container = !bodies.is_empty();
        let needed = |need: &Need| plan.step(siblings[need.position]).step.id.clone();
        PlanStepView {
            id: step.id.clone(),
            kind: step.kind.keyword(),
            tool: tool.map(|tool| tool.id.as_str().into()),
            needs: step.needs.iter().map(needed).collect(),
            depends_on: step.needs.iter().filter(|need| !need.is_reference).map(needed).collect(),
            ways: Vec::new(),
            effect: planned.effect,
            rollback: RollbackView::of(step, is_container),
            when: step.when.as_ref().map(|when| when.text().trim().to_owned()),
            output_key: step.output_key.as_ref().map(|(key, _)| key.clone()),
            timeout_ms: step.timeout_ms,
            confirms: confirms(plan, planned, None),
            confirms_sometimes: !confirms(plan, planned, Some(&Value::Null)),
            bodies,
        }
    }
}

/// Whether a forward call of a run, or its rollback, needs confirmation, with these arguments or
/// with any.
fn confirms(plan: &Plan, planned: &PlanStep, given: Option<&Value>) -> bool {
    let step = &planned.step;
    let candidates = 0..=u16::try_from(step.fallback.len()).unwrap_or(u16::MAX);
    if plan.rolls_back_on_failure()
        && candidates.into_iter().any(|candidate| planned.rollback_needs_confirmation(candidate))
    {
        return true;
    }
    let own = match &step.kind {
        StepKind::Tool(call) => Some(call),
        _ => None,
    };
    let tools = own.into_iter().chain(&step.fallback).filter_map(|call| call.tool.as_ref());
    let asks = |tool: &ToolSpec| match given {
        Some(args) if tool.code_tool.is_none() && tool.confirms_conditionally() => {
            tool.must_confirm(args)
        }
        _ => tool.may_ask_person(),
    };
    tools.into_iter().any(|tool| tool.composition.is_none() && asks(tool))
}

impl RollbackView {
    /// The rollback of a step of a plan.
    pub fn of_planned(planned: &PlanStep) -> RollbackView {
        let is_container = !planned.bodies.is_empty() || !planned.nested.is_empty();
        RollbackView::of(&planned.step, is_container)
    }

    fn of(step: &Step, is_container: bool) -> RollbackView {
        match &step.resolved_rollback {
            ResolvedRollback::Call(call) => RollbackView::Call {
                tool: call.tool.as_ref().map_or(call.name.clone(), |tool| tool.id.as_str().into()),
            },
            ResolvedRollback::Impossible { reason } => {
                RollbackView::Impossible { reason: reason.clone() }
            }
            _ if is_container => RollbackView::Inside,
            ResolvedRollback::NotNeeded => RollbackView::NotNeeded,
            ResolvedRollback::Unknown => RollbackView::Unknown,
        }
    }
}

/// Labels of a step's bodies.
pub(crate) fn body_labels(step: &Step) -> Vec<String> {
    match &step.kind {
        StepKind::Parallel { branches, .. } => branches.iter().map(|b| b.id.to_string()).collect(),
        StepKind::Loop(each) => vec![format!("each {}", each.item)],
        StepKind::Repeat(repeat) => vec![format!("until {}", repeat.until.text().trim())],
        StepKind::Choose { cases, otherwise } => cases
            .iter()
            .map(|case| format!("when {}", case.when.text().trim()))
            .chain(otherwise.iter().map(|_| "otherwise".to_owned()))
            .collect(),
        _ => Vec::new(),
    }
}
