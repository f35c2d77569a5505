//! Plans that are made of words.

use std::sync::Arc;

use async_graphql::{ComplexObject, Context, Enum, ID, Result, SimpleObject};
use segue_core::planner::{PlanOrigin, PlanState, StoredPlan};
use segue_core::value::Value;
use segue_core::view::{PlanView, RunStatus, RunView, Timestamp};

use super::run::{Run, RunError, Status, shown};
use crate::serve::graphql::caller::{Caller, fault};
use crate::serve::graphql::json::Json;
use crate::serve::own::json_of;
use crate::serve::plans::{PlanOffer, listed, result_of, standing, used_before, written};

/// How a plan stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[graphql(name = "PlanState", remote = "PlanState", rename_items = "snake_case")]
pub(in crate::serve::graphql) enum State {
    /// It can be executed.
    Pending,
    /// A run executes it, or waits for a person.
    InProgress,
    /// Its last run did all of it.
    Completed,
    /// Its last run did not.
    Failed,
}

/// A plan that was made of words.
#[derive(SimpleObject)]
#[graphql(complex)]
pub(in crate::serve::graphql) struct Plan {
    /// The request that it belongs to: `req_…`.
    request_id: ID,
    /// Its own id: `plan_…`.
    plan_id: ID,
    /// Which of the plans of its request, from 1.
    version: u32,
    /// What was asked for.
    query: Arc<str>,
    /// How it stands.
    state: State,
    /// RFC 3339.
    created_at: String,
    /// How it came about.
    origin: PlanOriginObject,
    /// The run that executes it, or was the last to.
    run_id: Option<ID>,
    /// What is called.
    tools: Vec<ToolExecution>,
    /// What is called, in order.
    execution_order: Vec<String>,
    /// Why, in the model's words.
    reasoning: Option<String>,
    /// What was noticed of the model's answer, such as an order that cannot be kept.
    warnings: Vec<Arc<str>>,
    /// The plan as it is kept.
    document: Json,
    #[graphql(skip)]
    record: StoredPlan,
    /// What it would do, where that was asked.
    #[graphql(skip)]
    rehearsal: Option<RunView>,
}

#[ComplexObject]
impl Plan {
    /// The plans of its request, the first one first.
    async fn versions(&self, ctx: &Context<'_>) -> Result<Option<Vec<PlanSummary>>> {
        let Caller { rest, who, .. } = Caller::of(ctx)?;
        let records = listed(&rest.hall, who, Some(&self.record.request_id), None).await;
        Ok(Some(records.map_err(fault)?.iter().map(PlanSummary::from).collect()))
    }

    /// Others that worked for words like these; `use` takes one.
    async fn used_before(&self, ctx: &Context<'_>) -> Result<Option<Vec<Offer>>> {
        let Caller { rest, who, .. } = Caller::of(ctx)?;
        let found = used_before(&rest.hall, who, &self.record.query).await.map_err(fault)?;
        let others = found.into_iter().filter(|offer| offer.plan_id != self.record.plan_id);
        Ok(Some(others.map(Offer::from).collect()))
    }

    /// Order, effects and what can be rolled back; absent when it does not fit the tools as they are now.
    async fn checked(&self, ctx: &Context<'_>) -> Result<Option<Json>> {
        let planned = Caller::of(ctx)?.served().engine.plan_of(&self.record);
        Ok(planned.ok().map(|(_, plan, _)| Json(json_of(&PlanView::from_plan(&plan)))))
    }

    /// What came of it; absent before it is executed, and when its run is forgotten.
    async fn execution_results(&self, ctx: &Context<'_>) -> Result<Option<ExecutionResults>> {
        Ok(self.view(ctx).await?.map(|view| ExecutionResults {
            run_id: (&*view.run_id).into(),
            status: view.status.into(),
            success: view.success,
            results: Json(view.output),
            errors: view.errors.into_iter().map(RunError::from).collect(),
        }))
    }

    /// The run that executes it, or was the last to.
    async fn run(&self, ctx: &Context<'_>) -> Result<Option<Run>> {
        Ok(self.view(ctx).await?.map(Run::from))
    }

    /// The plan as a composition of its own, as YAML.
    async fn composition(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "what the composition is called")] name: Option<String>,
    ) -> Result<Option<Arc<str>>> {
        let limits = Caller::of(ctx)?.hall().limits();
        Ok(Some(written(&self.record, name.as_deref(), &limits).map_err(fault)?))
    }
}

impl Plan {
    /// A plan as it stands.
    pub(in crate::serve::graphql) fn of(caller: &Caller, record: StoredPlan) -> Plan {
        let record = standing(caller.hall(), &caller.who, record);
        let document = &record.document;
        let items = |name: &str| -> Vec<Value> {
            document.get(name).and_then(Value::as_array).map(|all| all.to_vec()).unwrap_or_default()
        };
        let order = items("executionOrder");
        Plan {
            request_id: (&*record.request_id).into(),
            plan_id: (&*record.plan_id).into(),
            version: record.version,
            query: record.query.clone(),
            state: record.state.into(),
            created_at: shown(Timestamp(record.created_ms)),
            origin: PlanOriginObject::from(&record.origin),
            run_id: record.run_id.as_deref().map(ID::from),
            tools: items("tools").iter().map(ToolExecution::from).collect(),
            execution_order: order.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            reasoning: document.get("reasoning").and_then(Value::as_str).map(str::to_owned),
            warnings: record.warnings.clone(),
            document: Json(document.clone()),
            record,
            rehearsal: None,
        }
    }

    /// The same with what became of a run; a dry one is kept nowhere else.
    pub(in crate::serve::graphql) fn after(self, view: RunView) -> Plan {
        let is_dry = view.status == RunStatus::DryRun;
        Plan { rehearsal: is_dry.then_some(view), ..self }
    }

    async fn view(&self, ctx: &Context<'_>) -> Result<Option<RunView>> {
        match &self.rehearsal {
            Some(view) => Ok(Some(view.clone())),
            None => {
                let Caller { rest, who, .. } = Caller::of(ctx)?;
                Ok(result_of(&rest.hall, who, &self.record).await)
            }
        }
    }
}

/// A call of a plan.
#[derive(SimpleObject)]
pub(in crate::serve::graphql) struct ToolExecution {
    /// What other calls know it as.
    id: String,
    /// The tool.
    tool_name: String,
    /// What it is called with; `{{tool.field}}` is what an earlier one returns.
    parameters: Json,
    /// The calls that come first.
    depends_on: Vec<String>,
    /// What its result is called.
    output_mapping: Json,
}

impl From<&Value> for ToolExecution {
    fn from(call: &Value) -> ToolExecution {
        let text = |name: &str| call.get(name).and_then(Value::as_str).map(str::to_owned);
        let tool_name = text("name").unwrap_or_default();
        let depends_on = match call.get("dependsOn") {
            Some(Value::String(one)) => vec![one.to_string()],
            Some(Value::Array(all)) => {
                all.iter().filter_map(Value::as_str).map(str::to_owned).collect()
            }
            _ => Vec::new(),
        };
        ToolExecution {
            id: text("id").unwrap_or_else(|| tool_name.clone()),
            tool_name,
            parameters: Json(call.get("parameters").cloned().unwrap_or_default()),
            depends_on,
            output_mapping: Json(call.get("outputMapping").cloned().unwrap_or_default()),
        }
    }
}

/// How a plan came about.
#[derive(SimpleObject)]
#[graphql(name = "PlanOrigin")]
pub(in crate::serve::graphql) struct PlanOriginObject {
    /// The model that proposed it.
    model: Option<Arc<str>>,
    /// Answers of the model that were looked at.
    rounds: Option<u32>,
    /// Tokens that were paid for.
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

/// A plan that worked for words like these.
#[derive(SimpleObject)]
#[graphql(name = "PlanOffer")]
pub(in crate::serve::graphql) struct Offer {
    /// The plan.
    plan_id: ID,
    /// What was asked for then.
    query: Arc<str>,
    /// RFC 3339.
    created_at: String,
}

impl From<PlanOffer> for Offer {
    fn from(offer: PlanOffer) -> Offer {
        let created_at = shown(offer.created_at);
        Offer { plan_id: (&*offer.plan_id).into(), query: offer.query, created_at }
    }
}

/// What came of a plan.
#[derive(SimpleObject)]
pub(in crate::serve::graphql) struct ExecutionResults {
    /// The run.
    run_id: ID,
    /// How it stands.
    status: Status,
    /// Whether everything worked.
    success: bool,
    /// What each tool returned, by its name.
    results: Json,
    /// What went wrong.
    errors: Vec<RunError>,
}

/// A plan in short.
#[derive(SimpleObject)]
pub(in crate::serve::graphql) struct PlanSummary {
    /// The request that it belongs to.
    request_id: ID,
    /// Its own id.
    plan_id: ID,
    /// Which of the plans of its request, from 1.
    version: u32,
    /// What was asked for.
    query: Arc<str>,
    /// How it stands.
    state: State,
    /// RFC 3339.
    created_at: String,
    /// The run that executes it, or was the last to.
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

/// Plans, newest first; those of one request from the first.
#[derive(SimpleObject)]
pub(in crate::serve::graphql) struct PlanPage {
    /// In short; `plan` has the rest.
    pub(in crate::serve::graphql) nodes: Vec<PlanSummary>,
    /// `after` of the next page; absent on the last one.
    pub(in crate::serve::graphql) next: Option<String>,
}
