//! What can be done. Each mutation is held against the shape of the REST route that does the same.
//!
//! Answers may be null, so that what one mutation did is told although the next one failed.

#![allow(clippy::too_many_arguments, reason = "a field has the arguments that it has")]

use async_graphql::{Context, Enum, ID, InputObject, Object, Result};
use axum::http::StatusCode;
use segue_core::access::Right;
use segue_core::value::{Map, Value};
use segue_core::view::{RunStatus, RunView};

use super::caller::{Caller, May, fault, object};
use super::json::Json;
use super::query::one_of;
use super::types::catalog::Template;
use super::types::plan::Plan;
use super::types::run::Run;
use crate::serve::acting::{Deed, act};
use crate::serve::executing;
use crate::serve::execution::keep_template;
use crate::serve::plans::ask;
use crate::serve::rest::problem::Problem;

/// What can be done.
pub(super) struct Mutation;

/// How a composition is run.
#[derive(InputObject)]
struct ExecutionOptions {
    /// For the whole run: text such as `30s` or `2m`.
    timeout: Option<String>,
    /// Steps that run at once.
    max_concurrency: Option<i32>,
    /// In place of the composition's own.
    error_strategy: Option<ErrorStrategy>,
    /// Calls nothing, and shows what would be called.
    dry_run: Option<bool>,
    /// Consent to every call that would ask a person.
    approved: Option<bool>,
}

/// What is done when a step fails for good.
#[derive(Clone, Copy, PartialEq, Eq, Enum)]
#[graphql(rename_items = "snake_case")]
enum ErrorStrategy {
    /// Nothing more begins.
    FailFast,
    /// What does not need it goes on.
    PartialSuccess,
    /// What was done is taken back.
    Rollback,
    /// It is tried again.
    Retry,
}

impl ErrorStrategy {
    fn word(self) -> Value {
        Value::from(match self {
            ErrorStrategy::FailFast => "fail_fast",
            ErrorStrategy::PartialSuccess => "partial_success",
            ErrorStrategy::Rollback => "rollback",
            ErrorStrategy::Retry => "retry",
        })
    }
}

impl From<ExecutionOptions> for Value {
    fn from(options: ExecutionOptions) -> Value {
        object([
            ("timeout", options.timeout.map(Value::from)),
            ("max_concurrency", options.max_concurrency.map(Value::from)),
            ("error_strategy", options.error_strategy.map(ErrorStrategy::word)),
            ("dry_run", options.dry_run.map(Value::Bool)),
            ("approved", options.approved.map(Value::Bool)),
        ])
    }
}

/// A run that is wanted: one of `composition`, `templateId` and `name`.
#[derive(InputObject)]
struct CompositionRequest {
    /// A composition of any dialect, as an object or as YAML or JSON text.
    composition: Option<Json>,
    /// The id of a template.
    template_id: Option<ID>,
    /// The name of a served composition.
    name: Option<String>,
    /// Its input.
    input: Option<Json>,
    /// What it requires of its caller.
    context: Option<Json>,
    /// How it is run.
    options: Option<ExecutionOptions>,
}

impl From<CompositionRequest> for Value {
    fn from(request: CompositionRequest) -> Value {
        object([
            ("composition", request.composition.map(|json| json.0)),
            ("template_id", request.template_id.map(|id| Value::from(id.0))),
            ("name", request.name.map(Value::from)),
            ("input", request.input.map(|json| json.0)),
            ("context", request.context.map(|json| json.0)),
            ("options", request.options.map(Value::from)),
        ])
    }
}

/// A template as it is given.
#[derive(InputObject)]
struct TemplateRequest {
    /// Small letters, digits, `-` and `_`.
    id: ID,
    /// What people call it; the composition's name unless given.
    name: Option<String>,
    /// What it is for; the composition's description unless given.
    description: Option<String>,
    /// A composition of any dialect, as an object or as YAML or JSON text.
    composition: Json,
    /// Category, tags and what else is known of it.
    metadata: Option<Json>,
}

/// What became of a call that was never answered.
#[derive(Clone, Copy, PartialEq, Eq, Enum)]
#[graphql(rename_items = "snake_case")]
enum Assume {
    /// It did its work.
    Done,
    /// It did nothing.
    Failed,
}

#[Object]
impl Mutation {
    /// Makes a plan of words, and calls nothing. The configured model proposes it; it is checked against
    /// the tools that exist, and kept under the id of a request.
    #[graphql(guard = "May(Right::Compose)")]
    async fn create_plan_with_request_id(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "what is wanted, in your own words")] query: String,
        #[graphql(desc = "make another version for this request")] request_id: Option<ID>,
        #[graphql(name = "use", desc = "take this plan, which worked before")] used: Option<ID>,
        #[graphql(default, desc = "ask the model, whatever worked before")] fresh: bool,
    ) -> Result<Option<Plan>> {
        let caller = Caller::of(ctx)?;
        let body = object([
            ("query", Some(Value::from(query))),
            ("request_id", request_id.map(|id| Value::from(id.0))),
            ("use", used.map(|id| Value::from(id.0))),
            ("fresh", Some(Value::Bool(fresh))),
        ]);
        caller.rest.fits("askPlan", &body).map_err(fault)?;
        let made = ask(caller.hall(), &caller.who, &body).await.map_err(Problem::from);
        let made = told(caller, "createPlanWithRequestId", made, |_| None)?;
        Ok(Some(Plan::of(caller, made.planned.record)))
    }

    /// Executes a plan: this one, or the last one of a request; once, unless `again`. The answer is the
    /// plan with what came of it, or how it stands when its run waits for a person.
    #[graphql(guard = "May(Right::Compose)")]
    async fn execute_plan(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "the request whose last plan is meant")] request_id: Option<ID>,
        #[graphql(desc = "or the plan itself")] plan_id: Option<ID>,
        #[graphql(default, desc = "although it was executed already")] again: bool,
        #[graphql(desc = "how it is run")] options: Option<ExecutionOptions>,
        #[graphql(desc = "the same key with the same request is the same run")]
        idempotency_key: Option<String>,
        #[graphql(default, desc = "answer as soon as it has begun")] respond_async: bool,
    ) -> Result<Option<Plan>> {
        let caller = Caller::of(ctx)?;
        let (hall, who) = (caller.hall(), &caller.who);
        let id = one_of(request_id, plan_id)?;
        let body =
            object([("again", Some(Value::Bool(again))), ("options", options.map(Value::from))]);
        caller.rest.fits("executePlan", &body).map_err(fault)?;
        let record = hall.find_plan(who, &id).await.map_err(fault)?;
        let patience = caller.patience(respond_async);
        let (by, key) = ((who, &caller.origin), idempotency_key.as_deref());
        let ran = executing::execute_plan(hall, by, key, &record, &body, patience).await;
        let view = told(caller, "executePlan", ran.map_err(Problem::from), |view| Some(view))?;
        let record = hall.plan_record(who, &record.plan_id).await.map_err(fault)?;
        Ok(Some(Plan::of(caller, record).after(view)))
    }

    /// Throws a plan away. The answer is its id.
    #[graphql(guard = "May(Right::Write)")]
    async fn delete_plan(&self, ctx: &Context<'_>, plan_id: ID) -> Result<Option<ID>> {
        let caller = Caller::of(ctx)?;
        let (hall, who) = (caller.hall(), &caller.who);
        let record = hall.plan_record(who, &plan_id.as_str().into()).await.map_err(fault)?;
        let gone = caller.served().engine.delete_plan(&record.plan_id).await.map_err(Problem::from);
        told(caller, "deletePlan", gone, |()| None)?;
        Ok(Some(plan_id))
    }

    /// Runs a composition. A call that needs a confirmation leaves the run `waiting`, unless
    /// `options.approved` is true. A run that failed is an answer, with `success: false`.
    #[graphql(guard = "May(Right::Run)")]
    async fn execute_composition(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "what to run, with what")] request: CompositionRequest,
        #[graphql(desc = "the same key with the same request is the same run")]
        idempotency_key: Option<String>,
        #[graphql(default, desc = "answer as soon as it has begun")] respond_async: bool,
    ) -> Result<Option<Run>> {
        let caller = Caller::of(ctx)?;
        let (body, key) = (Value::from(request), idempotency_key.as_deref());
        caller.rest.fits("executeComposition", &body).map_err(fault)?;
        let (by, patience) = ((&caller.who, &caller.origin), caller.patience(respond_async));
        let ran = executing::execute(caller.hall(), by, key, &body, patience).await;
        let ran = ran.map_err(Problem::from);
        let view = told(caller, "executeComposition", ran, |view| Some(view))?;
        Ok(Some(view.into()))
    }

    /// Ends a run. What it did stays, unless its composition rolls back.
    #[graphql(guard = "May(Right::Run)")]
    async fn cancel_run(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "the run")] run_id: ID,
        #[graphql(default, desc = "answer without waiting for what follows")] respond_async: bool,
    ) -> Result<Option<Run>> {
        done(ctx, "cancelRun", &run_id, &Deed::Cancel, respond_async).await
    }

    /// Goes on with a run that was interrupted.
    #[graphql(guard = "May(Right::Run)")]
    async fn resume_run(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "the run")] run_id: ID,
        #[graphql(desc = "what is known of a call that was never answered")] assume: Option<Assume>,
        #[graphql(desc = "with `done`: what the call returned")] value: Option<Json>,
        #[graphql(desc = "the step that is in doubt, when several are")] step: Option<String>,
        #[graphql(default, desc = "answer without waiting for what follows")] respond_async: bool,
    ) -> Result<Option<Run>> {
        let assume = assume.map(|assume| match assume {
            Assume::Done => Value::from("done"),
            Assume::Failed => Value::from("failed"),
        });
        let body = object([
            ("assume", assume),
            ("value", value.map(|json| json.0)),
            ("step", step.map(Value::from)),
        ]);
        done(ctx, "resumeRun", &run_id, &Deed::resuming(&body), respond_async).await
    }

    /// Takes back what a run did.
    #[graphql(guard = "May(Right::Run)")]
    async fn rollback_run(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "the run")] run_id: ID,
        #[graphql(default, desc = "answer without waiting for what follows")] respond_async: bool,
    ) -> Result<Option<Run>> {
        done(ctx, "rollbackRun", &run_id, &Deed::RollBack, respond_async).await
    }

    /// Answers the question that a run waits for, and goes on.
    #[graphql(guard = "May(Right::Approve)")]
    async fn approve_run(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "the run")] run_id: ID,
        #[graphql(desc = "yes, or no")] approved: bool,
        #[graphql(desc = "what belongs to a yes, where the question has a schema")] data: Option<
            Json,
        >,
        #[graphql(desc = "the step that asks, when several do")] step: Option<String>,
        #[graphql(default, desc = "answer without waiting for what follows")] respond_async: bool,
    ) -> Result<Option<Run>> {
        let body = object([
            ("approved", Some(Value::Bool(approved))),
            ("data", data.map(|json| json.0)),
            ("step", step.map(Value::from)),
        ]);
        done(ctx, "approveRun", &run_id, &Deed::approving(&body), respond_async).await
    }

    /// Keeps a template, after checking its composition.
    #[graphql(guard = "May(Right::Write)")]
    async fn create_template(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "the template")] template: TemplateRequest,
        #[graphql(default, desc = "in place of what is there")] replace: bool,
    ) -> Result<Option<Template>> {
        let caller = Caller::of(ctx)?;
        let body = object([
            ("id", Some(Value::from(template.id.0))),
            ("name", template.name.map(Value::from)),
            ("description", template.description.map(Value::from)),
            ("composition", Some(template.composition.0)),
            ("metadata", template.metadata.map(|json| json.0)),
        ]);
        caller.rest.fits("createTemplate", &body).map_err(fault)?;
        let given: Map = body.as_object().map(|body| (**body).clone()).unwrap_or_default();
        let kept =
            keep_template(caller.hall(), &caller.who, given, replace).await.map_err(Problem::from);
        Ok(Some(told(caller, "createTemplate", kept, |_| None)?.into()))
    }

    /// Forgets a template. The answer is its id.
    #[graphql(guard = "May(Right::Write)")]
    async fn delete_template(&self, ctx: &Context<'_>, id: ID) -> Result<Option<ID>> {
        let caller = Caller::of(ctx)?;
        let gone = caller.served().library.remove(&id).await.map_err(Problem::from);
        told(caller, "deleteTemplate", gone, |()| None)?;
        Ok(Some(id))
    }
}

/// Acts on a run.
async fn done(
    ctx: &Context<'_>,
    what: &str,
    run_id: &str,
    deed: &Deed,
    respond_async: bool,
) -> Result<Option<Run>> {
    let caller = Caller::of(ctx)?;
    let patience = caller.patience(respond_async);
    let acted = act(caller.hall(), &caller.who, run_id, deed, patience).await;
    let view = told(caller, what, acted.map_err(Problem::from), |view| Some(view))?;
    Ok(Some(view.into()))
}

/// What came of a mutation, once it is said who did it.
fn told<T>(
    caller: &Caller,
    what: &str,
    outcome: std::result::Result<T, Problem>,
    run: impl Fn(&T) -> Option<&RunView>,
) -> Result<T> {
    match &outcome {
        Ok(done) => {
            // A dry run could not be found again.
            let ran = run(done).filter(|view| view.status != RunStatus::DryRun);
            let run_id = ran.map(|view| &*view.run_id);
            caller.audit(what, run_id, StatusCode::OK);
        }
        Err(problem) => caller.audit(what, problem.view().run_id.as_deref(), problem.status()),
    }
    outcome.map_err(fault)
}
