//! Mutations: each reads its input as a request of the service, and calls the function that REST calls.
//!
//! Answers may be null, so that the result of one mutation is sent although the next one failed.

#![allow(clippy::too_many_arguments, reason = "a field has the arguments that it has")]

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use async_graphql::{Context, Enum, ID, InputObject, Object, Result};
use axum::http::StatusCode;
use segue_core::access::Right;
use segue_core::schema::Schema;
use segue_core::value::Value;
use segue_core::view::{RunStatus, RunView};

use super::context::{CallerContext, RequireRight, graphql_error};
use super::json::Json;
use super::query::one_of;
use super::types::catalog::Template;
use super::types::plan::Plan;
use super::types::run::Run;
use crate::api::error::Error;
use crate::api::requests::{
    ApproveRun, Assume, CreatePlan, Document, ErrorStrategy, ExecuteComposition, ExecutePlan,
    ExecutionOptions, MaxConcurrency, PutTemplate, ResumeRun, StepMock, Timeout, compile_schema,
    object, read_with,
};
use crate::api::runs::act::{RunAction, act};
use crate::api::runs::start;
use crate::api::{plans, templates};
use crate::http::problem::status;

/// The root of mutations.
pub(super) struct Mutation;

/// How to run a composition.
#[derive(InputObject)]
#[graphql(name = "ExecutionOptions")]
struct ExecutionOptionsInput {
    /// The timeout of the whole run: text such as `30s` or `2m`.
    timeout: Option<String>,
    /// How many steps may run at once.
    max_concurrency: Option<i32>,
    /// Override the composition's error strategy.
    error_strategy: Option<ErrorStrategyInput>,
    /// Call nothing, and show what would be called.
    dry_run: Option<bool>,
    /// Consent to every call that would ask a person.
    approved: Option<bool>,
}

impl TryFrom<ExecutionOptionsInput> for ExecutionOptions {
    type Error = Error;

    fn try_from(input: ExecutionOptionsInput) -> Result<ExecutionOptions, Error> {
        let concurrency = input.max_concurrency.map(Value::from);
        Ok(ExecutionOptions {
            timeout: input.timeout.as_deref().map(Timeout::parse).transpose()?,
            max_concurrency: concurrency.map(MaxConcurrency::try_from).transpose()?,
            error_strategy: input.error_strategy.map(Into::into),
            dry_run: input.dry_run.unwrap_or(false),
            approved: input.approved.unwrap_or(false),
        })
    }
}

/// What a run does when a step has failed for good.
#[derive(Clone, Copy, PartialEq, Eq, Enum)]
#[graphql(name = "ErrorStrategy", remote = "ErrorStrategy", rename_items = "snake_case")]
enum ErrorStrategyInput {
    /// It starts nothing more.
    FailFast,
    /// It goes on with the steps that do not need the failed one.
    PartialSuccess,
    /// It rolls back.
    Rollback,
    /// It retries, then stops.
    Retry,
}

/// A run to start: one of `composition`, `templateId` and `name`.
#[derive(InputObject)]
#[graphql(name = "CompositionRequest")]
struct CompositionInput {
    /// A composition of any dialect, as an object or as YAML or JSON text.
    composition: Option<Json>,
    /// The id of a template.
    template_id: Option<ID>,
    /// The name of a served composition.
    name: Option<String>,
    /// The input of the run.
    input: Option<Json>,
    /// The context that the composition requires of its caller.
    context: Option<Json>,
    /// How to run it.
    options: Option<ExecutionOptionsInput>,
    /// Run only this step and the steps that it depends on.
    until: Option<String>,
    /// Run only this step, on the values of the run `run`.
    only: Option<String>,
    /// With `only`: the id of an earlier run of the same composition. Its input and context are used
    /// unless others are given.
    run: Option<ID>,
    /// Outputs of steps, by id: `{ "fetch": { "returns": … } }`. These steps are not called.
    mocks: Option<Json>,
}

impl TryFrom<CompositionInput> for ExecuteComposition {
    type Error = Error;

    fn try_from(input: CompositionInput) -> Result<ExecuteComposition, Error> {
        let given = |json: Option<Json>| json.map(|json| json.0).filter(|value| !value.is_null());
        Ok(ExecuteComposition {
            template_id: input.template_id.map(|id| id.0.into()),
            composition: given(input.composition).map(Document::try_from).transpose()?,
            name: input.name.map(Into::into),
            input: given(input.input).map(|value| object("input", value)).transpose()?,
            context: given(input.context).map(|value| object("context", value)).transpose()?,
            options: input.options.map(ExecutionOptions::try_from).transpose()?,
            until: input.until.map(Into::into),
            only: input.only.map(Into::into),
            run: input.run.map(|id| id.0.into()),
            mocks: given(input.mocks).map(|value| mocks(&value)).transpose()?,
        })
    }
}

/// Outputs of steps, by id.
fn mocks(value: &Value) -> Result<BTreeMap<Arc<str>, StepMock>, Error> {
    static SCHEMA: OnceLock<Schema> = OnceLock::new();
    let schema = SCHEMA.get_or_init(compile_schema::<BTreeMap<Arc<str>, StepMock>>);
    read_with(schema, "mocks", value)
}

/// A template to store.
#[derive(InputObject)]
#[graphql(name = "TemplateRequest")]
struct TemplateInput {
    /// Small letters, digits, `-` and `_`.
    id: ID,
    /// The title; the composition's name unless given.
    name: Option<String>,
    /// What it is for; the composition's description unless given.
    description: Option<String>,
    /// A composition of any dialect, as an object or as YAML or JSON text.
    composition: Json,
    /// Category, tags and other facts about it.
    metadata: Option<Json>,
}

impl TryFrom<TemplateInput> for PutTemplate {
    type Error = Error;

    fn try_from(input: TemplateInput) -> Result<PutTemplate, Error> {
        let metadata = input.metadata.map(|json| json.0).filter(|value| !value.is_null());
        Ok(PutTemplate {
            id: Some(input.id.0.into()),
            name: input.name.map(Into::into),
            description: input.description.map(Into::into),
            composition: Document::try_from(input.composition.0)?,
            metadata: metadata.map(|value| object("metadata", value)).transpose()?,
            validation: None,
        })
    }
}

/// What became of a call that was never answered.
#[derive(Clone, Copy, PartialEq, Eq, Enum)]
#[graphql(name = "Assume", remote = "Assume", rename_items = "snake_case")]
enum AssumeInput {
    /// It did its work.
    Done,
    /// It did nothing.
    Failed,
}

#[Object]
impl Mutation {
    /// Asks the model for a plan, and calls nothing. The plan is checked against the tools that exist, and
    /// stored under the id of a request.
    #[graphql(guard = "RequireRight(Right::Compose)")]
    async fn create_plan_with_request_id(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "what the plan is for, in your own words")] query: String,
        #[graphql(desc = "make another version for this request")] request_id: Option<ID>,
        #[graphql(name = "use", desc = "use this plan, which succeeded before")] used: Option<ID>,
        #[graphql(
            default,
            desc = "ask the model even if an earlier plan succeeded for the same words"
        )]
        fresh: bool,
    ) -> Result<Option<Plan>> {
        let caller = CallerContext::of(ctx)?;
        let request = CreatePlan {
            query: query.into(),
            request_id: request_id.map(|id| id.0.into()),
            used_plan: used.map(|id| id.0.into()),
            fresh,
        };
        let created = plans::create(&caller.service, &caller.who, request).await;
        let created = audited(caller, "createPlanWithRequestId", created, |_| None)?;
        Ok(Some(Plan::of(caller, created.planned.record)))
    }

    /// Executes a stored plan: this one, or the last one of a request; once, unless `again`. Returns the
    /// plan with its result, or its state when its run waits for a person.
    #[graphql(guard = "RequireRight(Right::Compose)")]
    async fn execute_plan(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "the request whose last plan is meant")] request_id: Option<ID>,
        #[graphql(desc = "or the plan itself")] plan_id: Option<ID>,
        #[graphql(default, desc = "although it was executed already")] again: bool,
        #[graphql(desc = "how to run it")] options: Option<ExecutionOptionsInput>,
        #[graphql(desc = "the same key with the same request is the same run")]
        idempotency_key: Option<String>,
        #[graphql(default, desc = "answer as soon as it has started")] respond_async: bool,
    ) -> Result<Option<Plan>> {
        let caller = CallerContext::of(ctx)?;
        let (service, who) = (&caller.service, &caller.who);
        let id = one_of(request_id, plan_id)?;
        let options = options.map(ExecutionOptions::try_from).transpose().map_err(graphql_error)?;
        let request = ExecutePlan { again, context: None, options };
        let record = plans::find_any(service, who, &id).await.map_err(graphql_error)?;
        let call = caller.call_options(idempotency_key.as_deref(), respond_async);
        let ran = start::execute_plan(service, who, &record, &request, call).await;
        let view = audited(caller, "executePlan", ran, |view| Some(view))?;
        let record = plans::find(service, who, &record.plan_id).await.map_err(graphql_error)?;
        Ok(Some(Plan::of(caller, record).after(view)))
    }

    /// Executes the last plan of a request: the same as `executePlan(requestId: …)`.
    #[graphql(guard = "RequireRight(Right::Compose)")]
    async fn execute_by_request_id(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "the request whose last plan is meant")] request_id: ID,
        #[graphql(default, desc = "although it was executed already")] again: bool,
        #[graphql(desc = "how to run it")] options: Option<ExecutionOptionsInput>,
        #[graphql(desc = "the same key with the same request is the same run")]
        idempotency_key: Option<String>,
        #[graphql(default, desc = "answer as soon as it has started")] respond_async: bool,
    ) -> Result<Option<Plan>> {
        let id = Some(request_id);
        self.execute_plan(ctx, id, None, again, options, idempotency_key, respond_async).await
    }

    /// Deletes a stored plan. Returns its id.
    #[graphql(guard = "RequireRight(Right::Write)")]
    async fn delete_plan(&self, ctx: &Context<'_>, plan_id: ID) -> Result<Option<ID>> {
        let caller = CallerContext::of(ctx)?;
        let deleted = plans::delete(&caller.service, &caller.who, &plan_id).await;
        audited(caller, "deletePlan", deleted, |()| None)?;
        Ok(Some(plan_id))
    }

    /// Runs a composition. A call that needs a confirmation leaves the run `waiting`, unless
    /// `options.approved` is true. A run that failed is an answer, with `success: false`.
    #[graphql(guard = "RequireRight(Right::Run)")]
    async fn execute_composition(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "what to run, with what")] request: CompositionInput,
        #[graphql(desc = "the same key with the same request is the same run")]
        idempotency_key: Option<String>,
        #[graphql(default, desc = "answer as soon as it has started")] respond_async: bool,
    ) -> Result<Option<Run>> {
        let caller = CallerContext::of(ctx)?;
        let request = ExecuteComposition::try_from(request).map_err(graphql_error)?;
        let call = caller.call_options(idempotency_key.as_deref(), respond_async);
        let ran = start::execute(&caller.service, &caller.who, &request, call).await;
        let view = audited(caller, "executeComposition", ran, |view| Some(view))?;
        Ok(Some(view.into()))
    }

    /// Cancels a run. What it did stays, unless its composition rolls back.
    #[graphql(guard = "RequireRight(Right::Run)")]
    async fn cancel_run(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "the run")] run_id: ID,
        #[graphql(default, desc = "answer without waiting for the end of the run")]
        respond_async: bool,
    ) -> Result<Option<Run>> {
        act_on(ctx, "cancelRun", &run_id, RunAction::Cancel, respond_async).await
    }

    /// Resumes a run that was interrupted.
    #[graphql(guard = "RequireRight(Right::Run)")]
    async fn resume_run(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "the run")] run_id: ID,
        #[graphql(desc = "what became of a call that was never answered")] assume: Option<
            AssumeInput,
        >,
        #[graphql(desc = "with `done`: what the call returned")] value: Option<Json>,
        #[graphql(desc = "the step that is in doubt, when several are")] step: Option<String>,
        #[graphql(default, desc = "answer without waiting for the end of the run")]
        respond_async: bool,
    ) -> Result<Option<Run>> {
        let action = RunAction::Resume(ResumeRun {
            assume: assume.map(Into::into),
            value: value.map(|json| json.0),
            step: step.map(Into::into),
        });
        act_on(ctx, "resumeRun", &run_id, action, respond_async).await
    }

    /// Rolls a run back.
    #[graphql(guard = "RequireRight(Right::Run)")]
    async fn rollback_run(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "the run")] run_id: ID,
        #[graphql(default, desc = "answer without waiting for the end of the run")]
        respond_async: bool,
    ) -> Result<Option<Run>> {
        act_on(ctx, "rollbackRun", &run_id, RunAction::RollBack, respond_async).await
    }

    /// Answers the question that a run waits for, and resumes it.
    #[graphql(guard = "RequireRight(Right::Approve)")]
    async fn approve_run(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "the run")] run_id: ID,
        #[graphql(desc = "yes, or no")] approved: bool,
        #[graphql(desc = "the data of a yes, where the question has a schema")] data: Option<Json>,
        #[graphql(desc = "the step that asks, when several do")] step: Option<String>,
        #[graphql(default, desc = "answer without waiting for the end of the run")]
        respond_async: bool,
    ) -> Result<Option<Run>> {
        let (data, step) = (data.map(|json| json.0), step.map(Into::into));
        let action = RunAction::Approve(ApproveRun { approved, step, data });
        act_on(ctx, "approveRun", &run_id, action, respond_async).await
    }

    /// Stores a template, after checking its composition.
    #[graphql(guard = "RequireRight(Right::Write)")]
    async fn create_template(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "the template")] template: TemplateInput,
        #[graphql(default, desc = "in place of an old one")] replace: bool,
    ) -> Result<Option<Template>> {
        let caller = CallerContext::of(ctx)?;
        let template = PutTemplate::try_from(template).map_err(graphql_error)?;
        let stored = templates::create(&caller.service, &caller.who, template, replace).await;
        Ok(Some(audited(caller, "createTemplate", stored, |_| None)?.into()))
    }

    /// Deletes a template. Returns its id.
    #[graphql(guard = "RequireRight(Right::Write)")]
    async fn delete_template(&self, ctx: &Context<'_>, id: ID) -> Result<Option<ID>> {
        let caller = CallerContext::of(ctx)?;
        let deleted = templates::delete(&caller.service, &caller.who, &id).await;
        audited(caller, "deleteTemplate", deleted, |()| None)?;
        Ok(Some(id))
    }
}

/// Acts on a run.
async fn act_on(
    ctx: &Context<'_>,
    field: &str,
    run_id: &str,
    action: RunAction,
    respond_async: bool,
) -> Result<Option<Run>> {
    let caller = CallerContext::of(ctx)?;
    let timeout = caller.timeout(respond_async);
    let acted = act(&caller.service, &caller.who, run_id, action, timeout).await;
    Ok(Some(audited(caller, field, acted, |view| Some(view))?.into()))
}

/// The result of a mutation, which is in the audit log.
fn audited<T>(
    caller: &CallerContext,
    field: &str,
    result: std::result::Result<T, Error>,
    run: impl Fn(&T) -> Option<&RunView>,
) -> Result<T> {
    match &result {
        Ok(done) => {
            // A dry run could not be found again.
            let ran = run(done).filter(|view| view.status != RunStatus::DryRun);
            let run_id = ran.map(|view| &*view.run_id);
            caller.audit(field, run_id, StatusCode::OK);
        }
        Err(error) => caller.audit(field, error.run_id.as_deref(), status(error.kind)),
    }
    result.map_err(graphql_error)
}
