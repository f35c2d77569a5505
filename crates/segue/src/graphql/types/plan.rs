//! Stored plans.

use std::sync::Arc;

use async_graphql::{ComplexObject, Context, Enum, ID, Result, SimpleObject};
use segue_core::planner::{PlanOrigin, PlanState, PlannedCall, PlannedCalls, StoredPlan};
use segue_core::value::Value;
use segue_core::view::{RunStatus, RunView, Timestamp};

use super::run::{Run, RunError, Status, shown};
use crate::api::plans::{self, PlanOffer};
use crate::api::result::json_of;
use crate::graphql::context::{CallerContext, graphql_error};
use crate::graphql::json::Json;

/// The state of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[graphql(name = "PlanState", remote = "PlanState", rename_items = "snake_case")]
pub(in crate::graphql) enum State {
    /// It can be executed.
    Pending,
    /// A run executes it, or waits for a person.
    InProgress,
    /// Its last run succeeded.
    Completed,
    /// Its last run did not succeed.
    Failed,
}

/// A plan that a model made of words.
#[derive(SimpleObject)]
#[graphql(complex)]
pub(in crate::graphql) struct Plan {
    /// The request that it belongs to: `req_…`.
    request_id: ID,
    /// Its own id: `plan_…`.
    plan_id: ID,
    /// Its version within the request, from 1.
    version: u32,
    /// The words of the request.
    query: Arc<str>,
    /// Its state.
    state: State,
    /// RFC 3339.
    created_at: String,
    /// Where it comes from.
    origin: PlanOriginObject,
    /// Its last run.
    run_id: Option<ID>,
    /// The calls.
    tools: Vec<ToolExecution>,
    /// The calls, in order.
    execution_order: Vec<Arc<str>>,
    /// Why, in the model's words.
    reasoning: Option<Arc<str>>,
    /// Warnings about the model's answer, such as an impossible order.
    warnings: Vec<Arc<str>>,
    /// The stored document.
    document: Json,
    #[graphql(skip)]
    record: StoredPlan,
    /// The dry run, if one was asked for.
    #[graphql(skip)]
    dry_run: Option<RunView>,
}

#[ComplexObject]
impl Plan {
    /// The plans of its request, the first version first.
    async fn versions(&self, ctx: &Context<'_>) -> Result<Option<Vec<PlanSummary>>> {
        let CallerContext { service, who, .. } = CallerContext::of(ctx)?;
        let records = plans::list(service, who, Some(&self.record.request_id), None).await;
        Ok(Some(records.map_err(graphql_error)?.iter().map(PlanSummary::from).collect()))
    }

    /// Earlier plans that succeeded for similar words; `use` takes one.
    async fn used_before(&self, ctx: &Context<'_>) -> Result<Option<Vec<PlanOfferObject>>> {
        let CallerContext { service, who, .. } = CallerContext::of(ctx)?;
        let found = plans::used_before(service, who, &self.record.query).await;
        let found = found.map_err(graphql_error)?;
        let others = found.into_iter().filter(|offer| offer.plan_id != self.record.plan_id);
        Ok(Some(others.map(PlanOfferObject::from).collect()))
    }

    /// Order, effects and rollback; absent when it does not fit the tools that exist now.
    async fn checked(&self, ctx: &Context<'_>) -> Result<Option<Json>> {
        let CallerContext { service, who, .. } = CallerContext::of(ctx)?;
        Ok(plans::checked(service, who, &self.record).map(|view| Json(json_of(&view))))
    }

    /// The result of its last run; absent before it is executed, and when the run was deleted.
    async fn execution_results(&self, ctx: &Context<'_>) -> Result<Option<ExecutionResults>> {
        Ok(self.view(ctx).await?.map(|view| ExecutionResults {
            run_id: (&*view.run_id).into(),
            status: view.status.into(),
            success: view.success,
            results: Json(Value::Object(view.results.clone())),
            outputs: Json(Value::Object(view.results)),
            errors: view.errors.into_iter().map(RunError::from).collect(),
            warnings: view.warnings,
            dialect_result: view.dialect_result.map(Json),
        }))
    }

    /// Its last run.
    async fn run(&self, ctx: &Context<'_>) -> Result<Option<Run>> {
        Ok(self.view(ctx).await?.map(Run::from))
    }

    /// The plan as a composition, as YAML.
    async fn composition(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "the name of the composition")] name: Option<String>,
    ) -> Result<Option<Arc<str>>> {
        let service = &CallerContext::of(ctx)?.service;
        let text = plans::composition(service, &self.record, name.as_deref());
        Ok(Some(text.map_err(graphql_error)?))
    }
}

impl Plan {
    /// A plan with its current state.
    pub(in crate::graphql) fn of(caller: &CallerContext, record: StoredPlan) -> Plan {
        let record = plans::with_state(&caller.service, &caller.who, record);
        let PlannedCalls { tools, execution_order, reasoning } = record.calls();
        Plan {
            request_id: (&*record.request_id).into(),
            plan_id: (&*record.plan_id).into(),
            version: record.version,
            query: record.query.clone(),
            state: record.state.into(),
            created_at: shown(Timestamp(record.created_ms)),
            origin: PlanOriginObject::from(&record.origin),
            run_id: record.run_id.as_deref().map(ID::from),
            tools: tools.into_iter().map(ToolExecution::from).collect(),
            execution_order,
            reasoning,
            warnings: record.warnings.clone(),
            document: Json(record.document.clone()),
            record,
            dry_run: None,
        }
    }

    /// The same after a run; a dry run is stored nowhere else.
    pub(in crate::graphql) fn after(self, view: RunView) -> Plan {
        let is_dry = view.status == RunStatus::DryRun;
        Plan { dry_run: is_dry.then_some(view), ..self }
    }

    async fn view(&self, ctx: &Context<'_>) -> Result<Option<RunView>> {
        match &self.dry_run {
            Some(view) => Ok(Some(view.clone())),
            None => {
                let CallerContext { service, who, .. } = CallerContext::of(ctx)?;
                Ok(plans::last_run(service, who, &self.record).await)
            }
        }
    }
}

/// A call of a plan.
#[derive(SimpleObject)]
pub(in crate::graphql) struct ToolExecution {
    /// Its id in other calls.
    id: Arc<str>,
    /// The tool.
    tool_name: Arc<str>,
    /// Its arguments; `{{tool.field}}` is the output of an earlier call.
    parameters: Json,
    /// The calls that come first.
    depends_on: Vec<Arc<str>>,
    /// The names of its outputs.
    output_mapping: Json,
}

impl From<PlannedCall> for ToolExecution {
    fn from(call: PlannedCall) -> ToolExecution {
        ToolExecution {
            id: call.id().clone(),
            depends_on: call.depends_on().to_vec(),
            tool_name: call.name,
            parameters: Json(call.parameters),
            output_mapping: Json(call.output_mapping),
        }
    }
}

/// Where a plan comes from.
#[derive(SimpleObject)]
#[graphql(name = "PlanOrigin")]
pub(in crate::graphql) struct PlanOriginObject {
    /// The model that proposed it.
    model: Option<Arc<str>>,
    /// How many answers of the model were checked.
    rounds: Option<u32>,
    /// How many tokens the model used.
    tokens: Option<f64>,
    /// The plan that it is a copy of.
    used_before: Option<ID>,
}

impl From<&PlanOrigin> for PlanOriginObject {
    fn from(origin: &PlanOrigin) -> PlanOriginObject {
        match origin {
            PlanOrigin::Model { model, cost } => PlanOriginObject {
                model: Some(model.clone()),
                rounds: Some(cost.rounds),
                tokens: Some(cost.usage.total() as f64),
                used_before: None,
            },
            PlanOrigin::UsedBefore { plan_id } => PlanOriginObject {
                model: None,
                rounds: None,
                tokens: None,
                used_before: Some((&**plan_id).into()),
            },
        }
    }
}

/// An earlier plan that succeeded for similar words.
#[derive(SimpleObject)]
#[graphql(name = "PlanOffer")]
pub(in crate::graphql) struct PlanOfferObject {
    /// The plan.
    plan_id: ID,
    /// The words of that time.
    query: Arc<str>,
    /// RFC 3339.
    created_at: String,
}

impl From<PlanOffer> for PlanOfferObject {
    fn from(offer: PlanOffer) -> PlanOfferObject {
        let created_at = shown(offer.created_at);
        PlanOfferObject { plan_id: (&*offer.plan_id).into(), query: offer.query, created_at }
    }
}

/// The result of a plan.
#[derive(SimpleObject)]
pub(in crate::graphql) struct ExecutionResults {
    /// The run.
    run_id: ID,
    /// Its state.
    status: Status,
    /// Whether every step succeeded.
    success: bool,
    /// The output of each tool that succeeded, by its name; also of a plan that failed.
    results: Json,
    /// The same, under the name that the plan dialect gives it.
    outputs: Json,
    /// The errors.
    errors: Vec<RunError>,
    /// The warnings.
    warnings: Vec<String>,
    /// The result in the format of the plan dialect: `state`, and `executionResults` with the calls in
    /// order.
    dialect_result: Option<Json>,
}

/// The summary of a plan.
#[derive(SimpleObject)]
pub(in crate::graphql) struct PlanSummary {
    /// The request that it belongs to.
    request_id: ID,
    /// Its own id.
    plan_id: ID,
    /// Its version within the request, from 1.
    version: u32,
    /// The words of the request.
    query: Arc<str>,
    /// Its state.
    state: State,
    /// RFC 3339.
    created_at: String,
    /// Its last run.
    run_id: Option<ID>,
}

impl From<&StoredPlan> for PlanSummary {
    fn from(record: &StoredPlan) -> PlanSummary {
        PlanSummary {
            request_id: (&*record.request_id).into(),
            plan_id: (&*record.plan_id).into(),
            version: record.version,
            query: record.query.clone(),
            state: record.state.into(),
            created_at: shown(Timestamp(record.created_ms)),
            run_id: record.run_id.as_deref().map(ID::from),
        }
    }
}

/// A page of plans, newest first; those of one request from the first version.
#[derive(SimpleObject)]
pub(in crate::graphql) struct PlanPage {
    /// Summaries; `plan` has the rest.
    pub(in crate::graphql) nodes: Vec<PlanSummary>,
    /// `after` of the next page; absent on the last one.
    pub(in crate::graphql) next: Option<String>,
}
