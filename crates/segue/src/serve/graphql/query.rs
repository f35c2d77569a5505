//! What can be looked at. One thing that is not there is null, and leaves the others to be seen.

use std::sync::Arc;

use async_graphql::{Context, ID, Object, Result};
use segue_core::access::Right;
use segue_core::tool::ToolSpec;
use segue_core::view::RunStatus;
use segue_runtime::store::RunQuery;

use super::caller::{Caller, May, Wanted, fault};
use super::types::catalog::{Composition, CompositionPage, Template, TemplatePage, Tool, ToolPage};
use super::types::plan::{Plan, PlanPage, PlanSummary, State};
use super::types::run::{Run, RunPage, Status};
use crate::serve::acting::seen;
use crate::serve::listing::{RunLine, compositions, has_words};
use crate::serve::plans::listed;
use crate::serve::rest::problem::Problem;

/// What can be looked at.
pub(super) struct Query;

#[Object]
impl Query {
    /// A plan that was made of words: by its id, or the last one of a request.
    #[graphql(guard = "May(Right::Read)")]
    async fn plan(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "the request whose last plan is meant")] request_id: Option<ID>,
        #[graphql(desc = "or the plan itself")] plan_id: Option<ID>,
    ) -> Result<Option<Plan>> {
        let caller = Caller::of(ctx)?;
        let id = one_of(request_id, plan_id)?;
        let record = caller.hall().find_plan(&caller.who, &id).await.map_err(fault)?;
        Ok(Some(Plan::of(caller, record)))
    }

    /// Plans that were made of words, newest first; those of a request are its versions, the first one
    /// first.
    #[graphql(guard = "May(Right::Read)")]
    async fn plans(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "only those of this request")] request_id: Option<ID>,
        #[graphql(desc = "only those that stand so")] state: Option<State>,
        #[graphql(desc = "how many at most; 50 unless given")] first: Option<i32>,
        #[graphql(desc = "`next` of the page before")] after: Option<String>,
    ) -> Result<Option<PlanPage>> {
        let caller = Caller::of(ctx)?;
        let request_id = request_id.as_ref().map(|id| id.as_str());
        let found = listed(caller.hall(), &caller.who, request_id, state.map(Into::into)).await;
        let records = found.map_err(fault)?;
        let (records, next) =
            caller.page(&records, &Wanted { first, after }, |record| &record.plan_id)?;
        Ok(Some(PlanPage { nodes: records.iter().map(PlanSummary::from).collect(), next }))
    }

    /// A run: steps, attempts, inputs, outputs, timings.
    #[graphql(guard = "May(Right::Read)")]
    async fn run(&self, ctx: &Context<'_>, run_id: ID) -> Result<Option<Run>> {
        let caller = Caller::of(ctx)?;
        let stored = caller.hall().stored(&caller.who, &run_id).await.map_err(fault)?;
        Ok(Some(seen(caller.hall(), &caller.who, &stored).into()))
    }

    /// Runs, newest first.
    #[graphql(guard = "May(Right::Read)")]
    async fn runs(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "only those that stand so")] status: Option<Vec<Status>>,
        #[graphql(desc = "only those whose composition's name contains this")] name: Option<String>,
        #[graphql(desc = "how many at most; 50 unless given")] first: Option<i32>,
        #[graphql(desc = "`next` of the page before")] after: Option<String>,
    ) -> Result<Option<RunPage>> {
        let caller = Caller::of(ctx)?;
        let (limit, after) = caller.window(&Wanted { first, after })?;
        let query = RunQuery {
            statuses: status.unwrap_or_default().into_iter().map(RunStatus::from).collect(),
            name: name.map(Arc::from),
            after,
            limit,
            ..RunQuery::default()
        };
        let found = caller.hall().runs(&caller.who, query).await.map_err(fault)?;
        let lines = found.runs.iter().map(|row| RunLine::from(row).into());
        Ok(Some(RunPage { nodes: lines.collect(), next: found.next.map(|next| next.to_string()) }))
    }

    /// The tools that may be used, by id.
    #[graphql(guard = "May(Right::Read)")]
    async fn tools(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "only those whose name and description have all of these words")]
        search: Option<String>,
        #[graphql(desc = "how many at most; 50 unless given")] first: Option<i32>,
        #[graphql(desc = "`next` of the page before")] after: Option<String>,
    ) -> Result<Option<ToolPage>> {
        let caller = Caller::of(ctx)?;
        let (toolset, words) = (caller.served().engine.toolset(), search.unwrap_or_default());
        let found = toolset.tools().filter(|tool| has_words(tool, &words));
        let tools: Vec<(String, Arc<ToolSpec>)> =
            found.map(|tool| (tool.id.to_string(), tool.clone())).collect();
        let (tools, next) = caller.page(&tools, &Wanted { first, after }, |(id, _)| id)?;
        Ok(Some(ToolPage {
            nodes: tools.iter().map(|(_, tool)| Tool::from(&**tool)).collect(),
            next,
        }))
    }

    /// Everything that is known of one tool.
    #[graphql(guard = "May(Right::Read)")]
    async fn tool(&self, ctx: &Context<'_>, id: ID) -> Result<Option<Tool>> {
        let engine = Caller::of(ctx)?.served().engine;
        Ok(Some(Tool::from(&**engine.usable_tool(&id).map_err(fault)?)))
    }

    /// The templates: compositions to start from.
    #[graphql(guard = "May(Right::Read)")]
    async fn templates(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "only those with these words, the best first")] search: Option<String>,
        #[graphql(desc = "how many at most; 50 unless given")] first: Option<i32>,
        #[graphql(desc = "`next` of the page before")] after: Option<String>,
    ) -> Result<Option<TemplatePage>> {
        let caller = Caller::of(ctx)?;
        let library = caller.served().library;
        let found = library.list(&search.unwrap_or_default()).await.map_err(fault)?;
        let (views, next) = caller.page(&found, &Wanted { first, after }, |view| &view.id)?;
        Ok(Some(TemplatePage { nodes: views.into_iter().map(Template::from).collect(), next }))
    }

    /// A template, with its composition.
    #[graphql(guard = "May(Right::Read)")]
    async fn template(&self, ctx: &Context<'_>, id: ID) -> Result<Option<Template>> {
        let library = Caller::of(ctx)?.served().library;
        Ok(Some(library.get(&id).await.map_err(fault)?.into()))
    }

    /// The compositions that are served, by name.
    #[graphql(guard = "May(Right::Read)")]
    async fn compositions(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "how many at most; 50 unless given")] first: Option<i32>,
        #[graphql(desc = "`next` of the page before")] after: Option<String>,
    ) -> Result<Option<CompositionPage>> {
        let caller = Caller::of(ctx)?;
        let lines = compositions(caller.hall(), &caller.who);
        let (lines, next) = caller.page(&lines, &Wanted { first, after }, |line| &line.name)?;
        Ok(Some(CompositionPage {
            nodes: lines.into_iter().map(Composition::from).collect(),
            next,
        }))
    }
}

/// The id that is there, when it is one.
pub(super) fn one_of(request_id: Option<ID>, plan_id: Option<ID>) -> Result<ID> {
    match (request_id, plan_id) {
        (Some(id), None) if id.starts_with("plan_") => Err(misnamed("requestId", "req_")),
        (None, Some(id)) if id.starts_with("req_") => Err(misnamed("planId", "plan_")),
        (Some(id), None) | (None, Some(id)) => Ok(id),
        _ => {
            let detail = "give one of `requestId` and `planId`";
            Err(fault(Problem::wrong(segue_core::diagnostic::Code::InvalidField, detail)))
        }
    }
}

fn misnamed(name: &str, begin: &str) -> async_graphql::Error {
    let detail = format!("`{name}` begins with `{begin}`");
    fault(Problem::wrong(segue_core::diagnostic::Code::InvalidField, detail))
}
