//! Segue's own tools beside the compositions: one table from a name to a typed handler.
//!
//! They check and run a composition that a caller writes, store templates, plan from words, and read,
//! resume and cancel runs. The schemas of their arguments and results come from the types.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use segue_core::access::{Principal, Right};
use segue_core::plan::Plan;
use segue_core::planner::{PlannedView, StoredPlan};
use segue_core::tool::Annotations;
use segue_core::value::{Map, Value};
use segue_core::view::TemplateView;
use segue_core::view::{PlanView, RunStatus, RunView};
use segue_runtime::engine::Engine;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::call::ToolRun;
use super::schema::{input_schema, output_schema, output_schema_without};
use crate::api::error::Error;
use crate::api::plans::{self, NewPlan, PlanOffer, PlanRef};
use crate::api::requests::{
    CreatePlan, Document, DocumentRef, ExecuteComposition, PutTemplate, Request, impl_request,
    read_with,
};
use crate::api::responses::{TemplateList, ValidationResult};
use crate::api::result::{
    HIDDEN_RUN_FIELDS, RenderOptions, ResultPart, ToolResult, json_of, run_value,
};
use crate::api::runs::RunService;
use crate::api::runs::act::current_view;
use crate::api::runs::start::{self, Execution};
use crate::api::{documents, templates};

/// How often the store is read for a run that another process drives.
const POLL_EVERY: Duration = Duration::from_millis(200);

/// Why a caller of a tool cannot consent.
const APPROVED: &str = "`options.approved` is not for callers of a tool: what asks is put to the person, \
                        who answers through this host, `segue approve` or the API";

/// One of our tools.
pub struct BuiltinTool {
    /// Its name.
    pub name: &'static str,
    /// The right that its caller needs.
    pub right: Right,
    /// What it does.
    pub description: &'static str,
    /// Its effects.
    pub annotations: Annotations,
    /// Whether it needs a model.
    needs_model: bool,
    input: fn() -> Value,
    output: fn() -> Value,
    handler: Handler,
}

/// Reads the arguments and answers.
type Handler =
    for<'a> fn(BuiltinCall<'a>, &'a Value) -> BoxFuture<'a, Result<BuiltinOutcome, Error>>;

/// What a tool does after its arguments were read.
pub(super) enum BuiltinOutcome {
    /// It has its result.
    Done(ToolResult),
    /// It starts a run.
    Start(Box<ToolRun>),
    /// It resumes a run.
    Resume(Arc<str>),
}

const READS: Annotations = Annotations {
    read_only: Some(true),
    destructive: Some(false),
    idempotent: Some(true),
    open_world: Some(false),
};
const WRITES: Annotations =
    Annotations { read_only: Some(false), destructive: Some(false), ..READS };
const DESTROYS: Annotations =
    Annotations { read_only: Some(false), destructive: Some(true), ..READS };
const ANYTHING: Annotations = Annotations {
    read_only: Some(false),
    destructive: Some(true),
    idempotent: Some(false),
    open_world: Some(true),
};

fn run_output() -> Value {
    output_schema_without::<RunView>(&HIDDEN_RUN_FIELDS, &["run_id", "status"])
}

fn template_output() -> Value {
    output_schema::<TemplateView>(&["id", "composition"])
}

fn plan_output() -> Value {
    output_schema::<PlanReport<'_>>(&["request_id", "plan_id", "state"])
}

/// Every tool, by name.
pub const BUILTIN_TOOLS: &[BuiltinTool] = &[
    BuiltinTool {
        name: "composition_create_template",
        right: Right::Write,
        description: "Stores a composition as a template under an id, after checking it. Runs nothing.",
        annotations: WRITES,
        needs_model: false,
        input: input_schema::<CreateTemplate>,
        output: template_output,
        handler: |call, args| Box::pin(async move { call.create_template(read(args)?).await }),
    },
    BuiltinTool {
        name: "composition_delete_template",
        right: Right::Write,
        description: "Deletes a template.",
        annotations: DESTROYS,
        needs_model: false,
        input: input_schema::<TemplateById>,
        output: || output_schema::<DeletedTemplate>(&["id", "deleted"]),
        handler: |call, args| Box::pin(async move { call.delete_template(read(args)?).await }),
    },
    BuiltinTool {
        name: "composition_execute",
        right: Right::Run,
        description: "Runs a composition: one that you write, a template, or a served one by name. Steps that may destroy something ask a person first. Check a draft with composition_validate. With options.dry_run nothing is called and the result shows what would be called.",
        annotations: ANYTHING,
        needs_model: false,
        input: input_schema::<ExecuteComposition>,
        output: run_output,
        handler: |call, args| Box::pin(async move { call.execute(read(args)?).await }),
    },
    BuiltinTool {
        name: "composition_get_template",
        right: Right::Read,
        description: "Returns a template, with its composition.",
        annotations: READS,
        needs_model: false,
        input: input_schema::<TemplateById>,
        output: template_output,
        handler: |call, args| Box::pin(async move { call.find_template(read(args)?).await }),
    },
    BuiltinTool {
        name: "composition_list_templates",
        right: Right::Read,
        description: "Lists the templates: compositions to start from, with how often they were used and how often they succeeded.",
        annotations: READS,
        needs_model: false,
        input: input_schema::<ListTemplates>,
        output: || output_schema::<TemplateList>(&["templates"]),
        handler: |call, args| Box::pin(async move { call.list_templates(read(args)?).await }),
    },
    BuiltinTool {
        name: "composition_validate",
        right: Right::Read,
        description: "Checks a composition without running anything: every mistake at its line with a suggestion, and when there is none, the plan: order, effects and what can be rolled back.",
        annotations: READS,
        needs_model: false,
        input: input_schema::<ValidateComposition>,
        output: || output_schema::<ValidationResult>(&["ok", "diagnostics"]),
        handler: |call, args| Box::pin(async move { call.validate(read(args)?).await }),
    },
    BuiltinTool {
        name: "plan_ask",
        right: Right::Compose,
        description: "Asks a model to plan calls of the tools for a task in the user's own words. The plan is checked and stored; nothing is called. Show it, then run it with plan_execute. The same words get the plan that succeeded before, unless fresh.",
        annotations: Annotations { open_world: Some(true), idempotent: Some(false), ..WRITES },
        needs_model: true,
        input: input_schema::<CreatePlan>,
        output: plan_output,
        handler: |call, args| Box::pin(async move { call.create_plan(read(args)?).await }),
    },
    BuiltinTool {
        name: "plan_execute",
        right: Right::Compose,
        description: "Executes a plan of plan_ask, once: the plan, or the last one of a request. Calls that may destroy something ask a person first. With again it is executed once more.",
        annotations: ANYTHING,
        needs_model: true,
        input: input_schema::<ExecuteStoredPlan>,
        output: run_output,
        handler: |call, args| Box::pin(async move { call.execute_plan(read(args)?).await }),
    },
    BuiltinTool {
        name: "plan_get",
        right: Right::Read,
        description: "Returns a plan of plan_ask: the calls, its state (pending, in-progress, completed or failed) and, when it was executed, its result. By its id, or the last one of a request.",
        annotations: READS,
        needs_model: true,
        input: input_schema::<PlanById>,
        output: plan_output,
        handler: |call, args| Box::pin(async move { call.find_plan(read(args)?).await }),
    },
    BuiltinTool {
        name: "run_cancel",
        right: Right::Run,
        description: "Cancels a run. What it did stays, unless its composition rolls back.",
        annotations: DESTROYS,
        needs_model: false,
        input: input_schema::<RunById>,
        output: run_output,
        handler: |call, args| Box::pin(async move { call.cancel(read(args)?).await }),
    },
    BuiltinTool {
        name: "run_get",
        right: Right::Read,
        description: "Returns the status of a run and, when it has finished, its result. With wait_ms it waits that long for the end.",
        annotations: READS,
        needs_model: false,
        input: input_schema::<FindRun>,
        output: run_output,
        handler: |call, args| Box::pin(async move { call.find_run(read(args)?).await }),
    },
    BuiltinTool {
        name: "run_resume",
        right: Right::Run,
        description: "Resumes a run that waits for a person, also after a restart: the person at this host is asked the question of the run. You cannot answer in their place.",
        annotations: ANYTHING,
        needs_model: false,
        input: input_schema::<RunById>,
        output: run_output,
        handler: |_, args| {
            Box::pin(async move { Ok(BuiltinOutcome::Resume(read::<RunById>(args)?.run_id)) })
        },
    },
];

/// The names of all our tools.
pub fn names() -> BTreeSet<&'static str> {
    BUILTIN_TOOLS.iter().map(|tool| tool.name).collect()
}

/// The tool of a name.
pub(super) fn find(name: &str) -> Option<&'static BuiltinTool> {
    BUILTIN_TOOLS.iter().find(|tool| tool.name == name)
}

impl BuiltinTool {
    /// What is missing to serve it to a caller: a right, or a model.
    pub(super) fn missing(&self, who: &Principal, engine: &Engine) -> Option<String> {
        if !who.may(self.right) {
            return Some(format!("for `{}`: it needs `{}`", who.name, self.right.as_str()));
        }
        let has_model = !self.needs_model || engine.has_model();
        (!has_model).then(|| "without a model: `llm` configures one".to_owned())
    }

    /// JSON Schema of its arguments.
    pub(super) fn input_schema(&self) -> Value {
        (self.input)()
    }

    /// JSON Schema of its result, which may also be a reference to a run.
    pub(super) fn output_schema(&self) -> Value {
        (self.output)()
    }

    /// Reads the arguments and calls the handler.
    pub(super) async fn call(
        &self,
        call: BuiltinCall<'_>,
        args: &Value,
    ) -> Result<BuiltinOutcome, Error> {
        (self.handler)(call, args).await
    }
}

/// Reads arguments.
fn read<T: Request>(args: &Value) -> Result<T, Error> {
    read_with(T::schema(), "arguments", args)
}

impl_request!(
    CreateTemplate,
    TemplateById,
    ListTemplates,
    ValidateComposition,
    ExecuteStoredPlan,
    PlanById,
    RunById,
    FindRun,
);

/// Stores a template under its id.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CreateTemplate {
    /// Small letters, digits, - and _.
    id: Arc<str>,
    /// The title; the composition's name unless given.
    name: Option<Arc<str>>,
    /// What it is for; the composition's description unless given.
    description: Option<Arc<str>>,
    /// The composition, as an object or as YAML or JSON text.
    composition: Document,
    /// Category, tags and other facts about it.
    metadata: Option<Map>,
    /// Whether to replace a template of this id.
    #[serde(default)]
    replace: bool,
}

impl From<CreateTemplate> for PutTemplate {
    fn from(request: CreateTemplate) -> PutTemplate {
        let CreateTemplate { id, name, description, composition, metadata, .. } = request;
        PutTemplate { id: Some(id), name, description, composition, metadata, validation: None }
    }
}

/// Names a template.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TemplateById {
    /// The template.
    id: Arc<str>,
}

/// Finds templates.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListTemplates {
    /// Words that the template should have.
    search: Option<Arc<str>>,
}

/// Checks a composition that the caller wrote.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ValidateComposition {
    /// The composition, as an object or as YAML or JSON text.
    composition: Document,
}

/// Names a stored plan: by its id, or the last one of a request.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PlanById {
    /// `plan_…`
    plan_id: Option<Arc<str>>,
    /// `req_…`
    request_id: Option<Arc<str>>,
}

/// Executes a stored plan.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ExecuteStoredPlan {
    /// `plan_…`
    plan_id: Option<Arc<str>>,
    /// `req_…`
    request_id: Option<Arc<str>>,
    /// Execute it although it was executed already.
    #[serde(default)]
    again: bool,
}

/// Names a run.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RunById {
    /// The run.
    run_id: Arc<str>,
}

/// Finds a run, and perhaps waits for its end.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FindRun {
    /// The run.
    run_id: Arc<str>,
    /// How long to wait for its end, in milliseconds.
    #[serde(default)]
    #[schemars(range(min = 0, max = 45_000))]
    wait_ms: u64,
    /// Whether to return every step.
    #[serde(default)]
    steps: bool,
}

/// A template that was deleted.
#[derive(Serialize, JsonSchema)]
struct DeletedTemplate {
    /// The template.
    id: Arc<str>,
    /// Always true.
    deleted: bool,
}

/// A plan, as its tools return it.
#[derive(Serialize, JsonSchema)]
struct PlanReport<'a> {
    #[serde(flatten)]
    record: PlannedView<'a>,
    /// Order, effects and what can be rolled back.
    #[serde(skip_serializing_if = "Option::is_none")]
    checked: Option<PlanView>,
    /// Its last run.
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Value>,
    /// Earlier plans that succeeded for similar words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    used_before: Vec<PlanOffer>,
}

/// A call of one of our tools.
#[derive(Clone, Copy)]
pub(super) struct BuiltinCall<'a> {
    /// The service.
    pub(super) service: &'a Arc<RunService>,
    /// The caller.
    pub(super) who: &'a Principal,
    /// How the caller is shown a run.
    pub(super) render: RenderOptions,
}

impl BuiltinCall<'_> {
    fn done(&self, view: &impl Serialize) -> BuiltinOutcome {
        BuiltinOutcome::Done(ToolResult::value(json_of(view), self.render.bytes_max, None))
    }

    async fn create_template(self, request: CreateTemplate) -> Result<BuiltinOutcome, Error> {
        let replace = request.replace;
        let stored = templates::create(self.service, self.who, request.into(), replace).await?;
        Ok(self.done(&stored))
    }

    async fn delete_template(self, request: TemplateById) -> Result<BuiltinOutcome, Error> {
        templates::delete(self.service, self.who, &request.id).await?;
        Ok(self.done(&DeletedTemplate { id: request.id, deleted: true }))
    }

    async fn find_template(self, request: TemplateById) -> Result<BuiltinOutcome, Error> {
        Ok(self.done(&templates::find(self.service, self.who, &request.id).await?))
    }

    async fn list_templates(self, request: ListTemplates) -> Result<BuiltinOutcome, Error> {
        let search = request.search.as_deref().unwrap_or("");
        let templates = templates::list(self.service, self.who, search).await?;
        Ok(self.done(&TemplateList { templates }))
    }

    async fn validate(self, request: ValidateComposition) -> Result<BuiltinOutcome, Error> {
        let document = DocumentRef::Inline(&request.composition);
        Ok(self.done(&documents::validate(self.service, self.who, document).await?))
    }

    async fn execute(self, request: ExecuteComposition) -> Result<BuiltinOutcome, Error> {
        if request.options.as_ref().is_some_and(|options| options.approved) {
            return Err(Error::invalid(APPROVED));
        }
        let Execution { plan, selection, input, context, options, dry_run, who } =
            start::resolve(self.service, self.who, &request).await?;
        if dry_run {
            let outcome = Ok(start::dry_run(self.service, &who, &plan, input, context));
            return Ok(BuiltinOutcome::Done(ToolResult::dry_run(&outcome, self.render)));
        }
        let (part, plan_ref) = (ResultPart::Run, None);
        Ok(BuiltinOutcome::Start(Box::new(ToolRun {
            who,
            plan,
            selection,
            input,
            context,
            options,
            part,
            plan_ref,
        })))
    }

    async fn create_plan(self, request: CreatePlan) -> Result<BuiltinOutcome, Error> {
        let NewPlan { planned, used_before } =
            plans::create(self.service, self.who, request).await?;
        Ok(self.done(&PlanReport {
            record: planned.record.view(true),
            checked: Some(PlanView::from_plan(&planned.plan)),
            result: None,
            used_before,
        }))
    }

    async fn execute_plan(self, request: ExecuteStoredPlan) -> Result<BuiltinOutcome, Error> {
        let ExecuteStoredPlan { plan_id, request_id, again } = request;
        let record = self.record(&PlanById { plan_id, request_id }).await?;
        let who = self.who.as_author();
        let (_, plan, _): (_, Arc<Plan>, _) = self.service.catalog(&who).engine.plan_of(&record)?;
        let plan_ref = PlanRef { plan_id: record.plan_id, again };
        Ok(BuiltinOutcome::Start(Box::new(ToolRun::of_plan(who, plan, plan_ref))))
    }

    async fn find_plan(self, request: PlanById) -> Result<BuiltinOutcome, Error> {
        let record = self.record(&request).await?;
        let record = plans::with_state(self.service, self.who, record);
        let run = plans::last_run(self.service, self.who, &record).await;
        let report = PlanReport {
            record: record.view(true),
            checked: None,
            result: run.as_ref().map(|view| run_value(view, false)),
            used_before: Vec::new(),
        };
        let value = json_of(&report);
        Ok(BuiltinOutcome::Done(ToolResult::value(value, self.render.bytes_max, run.as_ref())))
    }

    async fn record(self, request: &PlanById) -> Result<StoredPlan, Error> {
        match (&request.plan_id, &request.request_id) {
            (Some(plan_id), None) => plans::find(self.service, self.who, plan_id).await,
            (None, Some(request_id)) => plans::last_of(self.service, self.who, request_id).await,
            _ => Err(Error::invalid("give one of `plan_id` and `request_id`")),
        }
    }

    async fn cancel(self, request: RunById) -> Result<BuiltinOutcome, Error> {
        let view = self.service.cancel(self.who, &request.run_id).await?;
        Ok(BuiltinOutcome::Done(ToolResult::value(
            run_value(&view, false),
            self.render.bytes_max,
            None,
        )))
    }

    async fn find_run(self, request: FindRun) -> Result<BuiltinOutcome, Error> {
        let FindRun { run_id, wait_ms, steps } = request;
        let (service, who) = (self.service, self.who);
        let until = Instant::now() + Duration::from_millis(wait_ms);
        let stored = loop {
            if let Some(handle) = service.handle(who, &run_id) {
                let _ = tokio::time::timeout_at(until, handle.ended()).await;
            }
            let stored = service.stored(who, &run_id).await?;
            // A run that this process does not drive may start soon, or another process drives it.
            let goes_on = matches!(stored.view().status, RunStatus::Pending | RunStatus::Running);
            if !goes_on || Instant::now() >= until {
                break stored;
            }
            tokio::time::sleep_until(until.min(Instant::now() + POLL_EVERY)).await;
        };
        let mut view = current_view(service, who, &stored);
        if view.status == RunStatus::Pending {
            view.status = RunStatus::Running;
        }
        Ok(BuiltinOutcome::Done(ToolResult::run(&view, steps, self.render.bytes_max)))
    }
}
