//! Queries. A field that fails is null, and the others are returned.

use std::sync::Arc;

use async_graphql::{Context, ID, Object, Result};
use segue_core::access::Right;
use segue_core::view::RunStatus;
use segue_runtime::store::RunQuery;

use super::context::{CallerContext, PageArgs, RequireRight, graphql_error};
use super::types::catalog::{Composition, CompositionPage, Template, TemplatePage, Tool, ToolPage};
use super::types::plan::{Plan, PlanPage, PlanSummary, State};
use super::types::run::{Run, RunPage, Status};
use crate::api::error::Error;
use crate::api::responses::RunSummary as Summary;
use crate::api::tools::compositions;
use crate::api::{plans, templates, tools};

/// The root of queries.
pub(super) struct Query;

#[Object]
impl Query {
    /// A stored plan: by its id, or the last one of a request.
    #[graphql(guard = "RequireRight(Right::Read)")]
    async fn plan(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "the request whose last plan is meant")] request_id: Option<ID>,
        #[graphql(desc = "or the plan itself")] plan_id: Option<ID>,
    ) -> Result<Option<Plan>> {
        let caller = CallerContext::of(ctx)?;
        let id = one_of(request_id, plan_id)?;
        let record = plans::find_any(&caller.service, &caller.who, &id).await;
        let record = record.map_err(graphql_error)?;
        Ok(Some(Plan::of(caller, record)))
    }

    /// Stored plans, newest first; those of a request are its versions, the first one first.
    #[graphql(guard = "RequireRight(Right::Read)")]
    async fn plans(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "filter by request")] request_id: Option<ID>,
        #[graphql(desc = "filter by state")] state: Option<State>,
        #[graphql(desc = "the page size; 50 unless given")] first: Option<i32>,
        #[graphql(desc = "`next` of the page before")] after: Option<String>,
    ) -> Result<Option<PlanPage>> {
        let caller = CallerContext::of(ctx)?;
        let request_id = request_id.as_ref().map(|id| id.as_str());
        let state = state.map(Into::into);
        let found = plans::list(&caller.service, &caller.who, request_id, state).await;
        let records = found.map_err(graphql_error)?;
        let (records, next) =
            caller.page(&records, &PageArgs { first, after }, |record| &record.plan_id)?;
        Ok(Some(PlanPage { nodes: records.iter().map(PlanSummary::from).collect(), next }))
    }

    /// A run: steps, attempts, inputs, outputs, timings.
    #[graphql(guard = "RequireRight(Right::Read)")]
    async fn run(&self, ctx: &Context<'_>, run_id: ID) -> Result<Option<Run>> {
        let caller = CallerContext::of(ctx)?;
        let view = caller.service.view(&caller.who, &run_id).await.map_err(graphql_error)?;
        Ok(Some(view.into()))
    }

    /// Runs, newest first.
    #[graphql(guard = "RequireRight(Right::Read)")]
    async fn runs(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "filter by status")] status: Option<Vec<Status>>,
        #[graphql(desc = "filter by a part of the composition's name")] name: Option<String>,
        #[graphql(desc = "the page size; 50 unless given")] first: Option<i32>,
        #[graphql(desc = "`next` of the page before")] after: Option<String>,
    ) -> Result<Option<RunPage>> {
        let caller = CallerContext::of(ctx)?;
        let (limit, after) = caller.window(&PageArgs { first, after })?;
        let query = RunQuery {
            statuses: status.unwrap_or_default().into_iter().map(RunStatus::from).collect(),
            name: name.map(Arc::from),
            after,
            limit,
            ..RunQuery::default()
        };
        let found = caller.service.runs(&caller.who, query).await.map_err(graphql_error)?;
        let lines = found.runs.iter().map(|row| Summary::from(row).into());
        Ok(Some(RunPage { nodes: lines.collect(), next: found.next.map(|next| next.to_string()) }))
    }

    /// The tools that may be used, by id.
    #[graphql(guard = "RequireRight(Right::Read)")]
    async fn tools(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "filter by words of the name and the description")] search: Option<String>,
        #[graphql(desc = "the page size; 50 unless given")] first: Option<i32>,
        #[graphql(desc = "`next` of the page before")] after: Option<String>,
    ) -> Result<Option<ToolPage>> {
        let caller = CallerContext::of(ctx)?;
        let tools = tools::list(&caller.service, &caller.who, &search.unwrap_or_default());
        let (tools, next) = caller.page(&tools, &PageArgs { first, after }, |tool| &tool.id)?;
        Ok(Some(ToolPage { nodes: tools.into_iter().map(Tool::from).collect(), next }))
    }

    /// A tool: its definition, its effect and its statistics.
    #[graphql(guard = "RequireRight(Right::Read)")]
    async fn tool(&self, ctx: &Context<'_>, id: ID) -> Result<Option<Tool>> {
        let caller = CallerContext::of(ctx)?;
        Ok(Some(tools::find(&caller.service, &caller.who, &id).map_err(graphql_error)?.into()))
    }

    /// The templates: compositions to start from.
    #[graphql(guard = "RequireRight(Right::Read)")]
    async fn templates(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "filter by words; the best match first")] search: Option<String>,
        #[graphql(desc = "the page size; 50 unless given")] first: Option<i32>,
        #[graphql(desc = "`next` of the page before")] after: Option<String>,
    ) -> Result<Option<TemplatePage>> {
        let caller = CallerContext::of(ctx)?;
        let search = search.unwrap_or_default();
        let found = templates::list(&caller.service, &caller.who, &search).await;
        let found = found.map_err(graphql_error)?;
        let (views, next) = caller.page(&found, &PageArgs { first, after }, |view| &view.id)?;
        Ok(Some(TemplatePage { nodes: views.into_iter().map(Template::from).collect(), next }))
    }

    /// A template, with its composition.
    #[graphql(guard = "RequireRight(Right::Read)")]
    async fn template(&self, ctx: &Context<'_>, id: ID) -> Result<Option<Template>> {
        let caller = CallerContext::of(ctx)?;
        let found = templates::find(&caller.service, &caller.who, &id).await;
        Ok(Some(found.map_err(graphql_error)?.into()))
    }

    /// The compositions that are served, by name.
    #[graphql(guard = "RequireRight(Right::Read)")]
    async fn compositions(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "the page size; 50 unless given")] first: Option<i32>,
        #[graphql(desc = "`next` of the page before")] after: Option<String>,
    ) -> Result<Option<CompositionPage>> {
        let caller = CallerContext::of(ctx)?;
        let lines = compositions(&caller.service, &caller.who);
        let (lines, next) = caller.page(&lines, &PageArgs { first, after }, |line| &line.name)?;
        Ok(Some(CompositionPage {
            nodes: lines.into_iter().map(Composition::from).collect(),
            next,
        }))
    }
}

/// The one id that is given.
pub(super) fn one_of(request_id: Option<ID>, plan_id: Option<ID>) -> Result<ID> {
    match (request_id, plan_id) {
        (Some(id), None) if id.starts_with("plan_") => Err(wrong_prefix("requestId", "req_")),
        (None, Some(id)) if id.starts_with("req_") => Err(wrong_prefix("planId", "plan_")),
        (Some(id), None) | (None, Some(id)) => Ok(id),
        _ => Err(graphql_error(Error::invalid("give one of `requestId` and `planId`"))),
    }
}

fn wrong_prefix(name: &str, begin: &str) -> async_graphql::Error {
    graphql_error(Error::invalid(format!("`{name}` begins with `{begin}`")))
}
