//! Runs, their steps and their events.

use std::sync::Arc;

use async_graphql::{ComplexObject, Context, Enum, ID, Result, SimpleObject};
use segue_core::view::{
    CoveredView, ErrorView, PerformedPart, RunStatus, RunView, StepOrigin, StepStatus, StepView,
    Timestamp, WaitView,
};

use super::catalog::word;
use crate::api::responses;
use crate::graphql::context::{CallerContext, PageArgs};
use crate::graphql::json::Json;
use crate::step_events::StepEvent;

/// The status of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[graphql(name = "RunStatus", remote = "RunStatus", rename_items = "snake_case")]
pub(in crate::graphql) enum Status {
    /// Not started.
    Pending,
    /// Running.
    Running,
    /// Waiting for a person or a time.
    Waiting,
    /// Every step succeeded.
    Success,
    /// Some steps succeeded.
    Partial,
    /// It failed.
    Failed,
    /// It failed, and was rolled back.
    RolledBack,
    /// It failed, and could not be rolled back completely.
    RollbackFailed,
    /// A caller cancelled it.
    Cancelled,
    /// A person denied it.
    Denied,
    /// A dry run: nothing was called.
    DryRun,
}

/// The status of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[graphql(name = "StepStatus", remote = "StepStatus", rename_items = "snake_case")]
pub(in crate::graphql) enum StepState {
    /// Not started.
    Pending,
    /// Running.
    Running,
    /// It succeeded.
    Success,
    /// It failed.
    Failed,
    /// It was skipped.
    Skipped,
    /// It was cancelled.
    Cancelled,
    /// It is unknown whether it succeeded.
    InDoubt,
    /// It was rolled back.
    RolledBack,
    /// It could not be rolled back.
    RollbackFailed,
}

/// One run.
#[derive(SimpleObject)]
#[graphql(complex)]
pub(in crate::graphql) struct Run {
    /// UUIDv7.
    run_id: ID,
    /// `req_…`
    request_id: ID,
    /// `plan_…`
    plan_id: ID,
    /// UUIDv4.
    chain_id: ID,
    /// The composition's name.
    name: Arc<str>,
    /// The dialect of the document.
    dialect: String,
    /// Its status.
    status: Status,
    /// Whether every step succeeded.
    success: bool,
    /// The composition's result.
    output: Json,
    /// The result in the format of the document's dialect: of a chain, a skill or a plan that started.
    dialect_result: Option<Json>,
    /// Names that steps set.
    state: Json,
    /// Every output key with its value.
    results: Json,
    /// The errors.
    errors: Vec<RunError>,
    /// The warnings.
    warnings: Vec<String>,
    /// The questions that the run waits for.
    waiting_for: Vec<Wait>,
    /// How many steps ran.
    steps_executed: usize,
    /// How many steps succeeded.
    steps_succeeded: usize,
    /// How many steps failed.
    steps_failed: usize,
    /// RFC 3339, absent before the start.
    started_at: Option<String>,
    /// RFC 3339, absent before the end.
    completed_at: Option<String>,
    /// Milliseconds.
    duration_ms: f64,
    /// The hash of the plan.
    plan_hash: Option<Arc<str>>,
    /// The part of the composition that it performs; null if it performs all of it.
    part: Option<Part>,
    #[graphql(skip)]
    all_steps: Vec<Arc<StepView>>,
}

#[ComplexObject]
impl Run {
    /// Its steps, a page at a time.
    async fn steps(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "filter by status")] status: Option<StepState>,
        #[graphql(desc = "the page size; 50 unless given")] first: Option<i32>,
        #[graphql(desc = "`next` of the page before")] after: Option<String>,
    ) -> Result<Option<StepPage>> {
        let status = status.map(StepStatus::from);
        let fits = |step: &&Arc<StepView>| status.is_none_or(|status| step.status == status);
        let steps: Vec<Arc<StepView>> = self.all_steps.iter().filter(fits).cloned().collect();
        let (steps, next) =
            CallerContext::of(ctx)?.page(&steps, &PageArgs { first, after }, |step| &step.id)?;
        let nodes = steps.iter().map(|step| Step::from(&**step)).collect();
        Ok(Some(StepPage { nodes, next }))
    }
}

impl From<RunView> for Run {
    fn from(view: RunView) -> Run {
        Run {
            run_id: (&*view.run_id).into(),
            request_id: (&*view.request_id).into(),
            plan_id: (&*view.plan_id).into(),
            chain_id: (&*view.chain_id).into(),
            name: view.name,
            dialect: word(&view.dialect),
            status: view.status.into(),
            success: view.success,
            output: Json(view.output),
            dialect_result: view.dialect_result.map(Json),
            state: Json(view.state.into()),
            results: Json(segue_core::value::Value::Object(view.results)),
            errors: view.errors.into_iter().map(RunError::from).collect(),
            warnings: view.warnings,
            waiting_for: view.waiting_for.into_iter().map(Wait::from).collect(),
            steps_executed: view.steps_executed,
            steps_succeeded: view.steps_succeeded,
            steps_failed: view.steps_failed,
            started_at: view.started_at.map(shown),
            completed_at: view.completed_at.map(shown),
            duration_ms: view.duration_ms as f64,
            plan_hash: view.plan_hash,
            part: view.part.map(Part::from),
            all_steps: view.steps.into_iter().map(Arc::new).collect(),
        }
    }
}

/// Which part of its composition a run performs.
#[derive(SimpleObject)]
#[graphql(name = "RunPart")]
pub(in crate::graphql) struct Part {
    /// It ends with this step; it performs the steps that this one depends on, and no others.
    until: Option<Arc<str>>,
    /// It performs only this step.
    only: Option<Arc<str>>,
    /// With `only`: the earlier run that the other values are from.
    run: Option<ID>,
    /// The steps whose values were given. Nothing was called for them.
    pinned: Vec<Arc<str>>,
}

impl From<PerformedPart> for Part {
    fn from(part: PerformedPart) -> Part {
        let PerformedPart { until, only, run, pinned } = part;
        Part { until, only, run: run.map(|run| (&*run).into()), pinned }
    }
}

/// A timestamp as text.
pub(super) fn shown(moment: Timestamp) -> String {
    moment.to_string()
}

/// One step of a run.
#[derive(SimpleObject)]
pub(in crate::graphql) struct Step {
    /// Its id, with the bodies and iterations around it.
    id: Arc<str>,
    /// Its kind.
    kind: &'static str,
    /// The tool, for steps that call one.
    tool: Option<Arc<str>>,
    /// Its status.
    status: StepState,
    /// How many attempts it had.
    attempts: u32,
    /// Its input.
    input: Json,
    /// Its output.
    output: Json,
    /// Its error.
    error: Option<RunError>,
    /// Why it was skipped.
    reason: Option<String>,
    /// Why this run did not perform it: `pinned`, `reused` or `left_out`.
    origin: Option<&'static str>,
    /// RFC 3339.
    started_at: Option<String>,
    /// RFC 3339.
    completed_at: Option<String>,
    /// Milliseconds from its first attempt to its end.
    duration_ms: f64,
}

impl From<&StepView> for Step {
    fn from(view: &StepView) -> Step {
        Step {
            id: view.id.clone(),
            kind: view.kind,
            tool: view.tool.clone(),
            status: view.status.into(),
            attempts: view.attempts,
            input: Json(view.input.clone()),
            output: Json(view.output.clone()),
            error: view.error.clone().map(RunError::from),
            reason: view.reason.clone(),
            origin: view.origin.map(StepOrigin::as_str),
            started_at: view.started_at.map(shown),
            completed_at: view.completed_at.map(shown),
            duration_ms: view.duration_ms as f64,
        }
    }
}

/// Steps, in their order.
#[derive(SimpleObject)]
pub(in crate::graphql) struct StepPage {
    /// The steps.
    nodes: Vec<Step>,
    /// `after` of the next page; absent on the last one.
    next: Option<String>,
}

/// One failure.
#[derive(SimpleObject)]
pub(in crate::graphql) struct RunError {
    /// The step.
    step: Option<Arc<str>>,
    /// The tool.
    tool: Option<Arc<str>>,
    /// Its code; each has a page in the manual.
    code: &'static str,
    /// What went wrong.
    message: String,
    /// How many attempts it had.
    attempts: u32,
    /// When: `check`, `call`, `rollback`, …
    phase: &'static str,
    /// Whether a retry may succeed.
    retryable: bool,
    /// Whether the tool may have done its work.
    in_doubt: bool,
    /// What to do.
    hint: Option<String>,
}

impl From<ErrorView> for RunError {
    fn from(view: ErrorView) -> RunError {
        RunError {
            step: view.step,
            tool: view.tool,
            code: view.code.as_str(),
            message: view.message,
            attempts: view.attempts,
            phase: view.phase,
            retryable: view.retryable,
            in_doubt: view.in_doubt,
            hint: view.hint,
        }
    }
}

/// A question that a run waits for.
#[derive(SimpleObject)]
pub(in crate::graphql) struct Wait {
    /// The step that asks.
    step: Arc<str>,
    /// `run`, `call`, `approval` or `doubt`.
    kind: &'static str,
    /// The tool, of a call.
    tool: Option<Arc<str>>,
    /// The question.
    message: Arc<str>,
    /// The arguments of the call.
    args: Json,
    /// JSON Schema of the data of a yes, for an approval that needs some.
    schema: Option<Json>,
    /// The tools that a yes covers: those that are called, then those of a rollback.
    covers: Vec<Covered>,
}

/// A tool that a yes covers.
#[derive(SimpleObject)]
pub(in crate::graphql) struct Covered {
    /// The tool.
    tool: Arc<str>,
    /// Its effect.
    effect: String,
    /// Its arguments, where they are known before.
    arguments: Option<Json>,
    /// Whether its call can be rolled back.
    can_be_undone: bool,
    /// Whether it is called for a rollback.
    takes_back: bool,
}

impl From<CoveredView> for Covered {
    fn from(view: CoveredView) -> Covered {
        let CoveredView {
            tool,
            effect,
            arguments,
            can_roll_back: can_be_undone,
            is_rollback: takes_back,
        } = view;
        let (effect, arguments) = (word(&effect), arguments.map(Json));
        Covered { tool, effect, arguments, can_be_undone, takes_back }
    }
}

impl From<WaitView> for Wait {
    fn from(view: WaitView) -> Wait {
        let WaitView { step, kind, tool, message, args, schema, covers } = view;
        let covers = covers.into_iter().map(Covered::from).collect();
        Wait { step, kind, tool, message, args: Json(args), schema: schema.map(Json), covers }
    }
}

/// The summary of a run.
#[derive(SimpleObject)]
pub(in crate::graphql) struct RunSummary {
    /// UUIDv7.
    run_id: ID,
    /// The composition's name.
    name: Arc<str>,
    /// Its status.
    status: Status,
    /// Whether every step succeeded.
    success: bool,
    /// RFC 3339.
    started_at: String,
    /// RFC 3339, absent before the end.
    completed_at: Option<String>,
    /// Milliseconds, until now if it has not finished.
    duration_ms: f64,
    /// The hash of its plan.
    plan_hash: Arc<str>,
    /// Why it is set aside until a person resumes it.
    set_aside: Option<Arc<str>>,
}

impl From<responses::RunSummary> for RunSummary {
    fn from(line: responses::RunSummary) -> RunSummary {
        RunSummary {
            run_id: (&*line.run_id).into(),
            name: line.name,
            status: line.status.into(),
            success: line.success,
            started_at: shown(line.started_at),
            completed_at: line.completed_at.map(shown),
            duration_ms: line.duration_ms as f64,
            plan_hash: line.plan_hash,
            set_aside: line.set_aside,
        }
    }
}

/// Runs, newest first.
#[derive(SimpleObject)]
pub(in crate::graphql) struct RunPage {
    /// Summaries; `run` has the rest.
    pub(in crate::graphql) nodes: Vec<RunSummary>,
    /// `after` of the next page; absent on the last one.
    pub(in crate::graphql) next: Option<String>,
}

/// An event of a run.
#[derive(SimpleObject)]
pub(in crate::graphql) struct RunEvent {
    /// The number of the journal's entry; `after` continues behind it.
    seq: u64,
    /// Its name: `step_started`, `step_succeeded`, …; the last one is `run`.
    event: &'static str,
    /// RFC 3339; absent of the last one.
    at: Option<String>,
    /// The step, with the bodies and iterations around it; absent of the last one.
    step: Option<Arc<str>>,
    /// More about it.
    detail: Option<String>,
    /// The whole run, of the last one.
    run: Option<Run>,
}

impl From<&StepEvent> for RunEvent {
    fn from(event: &StepEvent) -> RunEvent {
        RunEvent {
            seq: event.seq,
            event: event.event,
            at: Some(shown(Timestamp(event.at_ms))),
            step: Some(event.step.clone()),
            detail: event.detail.clone(),
            run: None,
        }
    }
}

impl RunEvent {
    /// The last one.
    pub(in crate::graphql) fn end(seq: u64, view: RunView) -> RunEvent {
        let run = Some(view.into());
        RunEvent { seq, event: "run", at: None, step: None, detail: None, run }
    }
}
