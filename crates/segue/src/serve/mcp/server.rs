//! What the protocol's requests are answered with.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::request::Parts;
use rmcp::model::{
    CacheScope, CallToolRequestMethod, CallToolRequestParams, CallToolResponse, CancelTaskParams,
    ConstString as _, CustomRequest, CustomResult, DetailedTask, ErrorCode, ErrorData,
    GetTaskParams, GetTaskResult, Implementation, ListPromptsRequestMethod, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, ResourceContents,
    ResourceTemplate, ServerCapabilities, ServerConfig, SubscriptionFilter, TASKS_EXTENSION_ID,
    Task, TaskPayload, TaskStatus, Tool, UpdateTaskParams,
};
use rmcp::service::{NotificationContext, Peer, RequestContext, SubscriptionContext};
use rmcp::{RoleServer, ServerHandler};
use segue_core::access::{Principal, Right};
use segue_core::limits::Limits;
use segue_core::run::Options;
use segue_core::value::Value;
use segue_core::view::{RunStatus, rfc3339};

use super::Opening;
use super::call::{Caller, Job, forms, stored_forms, told};
use super::seal::Seal;
use super::stdio::Line;
use super::wire;
use crate::serve::active::Outcome;
use crate::serve::content::{self, Held};
use crate::serve::execution::Execution;
use crate::serve::hall::Hall;
use crate::serve::own::{self, Desk};
use crate::serve::rest::problem::Problem;
use crate::serve::threads::{Panicked, calculate};
use crate::serve::told::{Shape, Telling, Told, run_of_uri, run_value};

/// Tasks whose shape is remembered; of others, the composition's name says it.
const SHAPES_MAX: usize = 10_000;

/// What calling a composition needs, and ending a run.
pub(super) const OFFERS_NEED: Right = Right::Run;

const INSTRUCTIONS: &str = "Each tool is a composition of other tools that runs as one. A run that \
    takes long gives a run_id: call run_get with it. To compose tools yourself, write a composition, \
    check it with composition_validate, which also says which tools you may use in one, and run it with \
    composition_execute.";

/// Segue, to a client. Cheap to clone.
#[derive(Clone)]
pub(super) struct Server {
    shared: Arc<Shared>,
}

struct Shared {
    /// Who calls when nobody came in by a door: whoever started us.
    local: Principal,
    opening: Opening,
    seal: Seal,
    line: Line,
    /// Whether it is said what was done, and by whom: where somebody came in.
    is_audited: bool,
    shapes: Mutex<HashMap<Arc<str>, Shape>>,
}

impl Server {
    pub(super) fn new(
        local: Principal,
        opening: Opening,
        limits: &Limits,
        line: Line,
        is_audited: bool,
    ) -> Server {
        let seal = Seal::new(Duration::from_millis(limits.served_question_ms));
        let shared = Shared { local, opening, seal, line, is_audited, shapes: Mutex::default() };
        Server { shared: Arc::new(shared) }
    }

    /// Who calls: over HTTP the door has said so.
    pub(super) fn who(&self, context: &RequestContext<RoleServer>) -> Principal {
        match context.extensions.get::<Parts>() {
            None => self.shared.local.clone(),
            Some(parts) => {
                let who = parts.extensions.get::<Principal>().cloned();
                who.unwrap_or_else(Principal::anonymous)
            }
        }
    }

    pub(super) fn seal(&self) -> &Seal {
        &self.shared.seal
    }

    pub(super) fn line(&self) -> &Line {
        &self.shared.line
    }

    /// Remembers what part of a run the result of its task is.
    pub(super) fn remember(&self, run_id: Arc<str>, shape: Shape) {
        let mut shapes = self.shapes();
        if shapes.len() < SHAPES_MAX {
            shapes.insert(run_id, shape);
        }
    }

    fn shapes(&self) -> MutexGuard<'_, HashMap<Arc<str>, Shape>> {
        self.shared.shapes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The hall, as soon as it is open.
    async fn hall(&self) -> Result<Arc<Hall>, ErrorData> {
        let mut opening = self.shared.opening.clone();
        let open = opening.wait_for(Option::is_some).await;
        let hall = open.ok().and_then(|hall| hall.clone());
        hall.ok_or_else(|| ErrorData::internal_error("Segue could not start", None))
    }

    /// Works on a request beside the thread that serves. A panic of ours is an error.
    async fn aside<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, ErrorData>> + Send + 'static,
    ) -> Result<T, ErrorData> {
        let answered = self.hall().await?.threads().answer(work).await;
        answered.unwrap_or_else(|Panicked| {
            let message = Problem::panicked().view().detail.clone();
            Err(ErrorData::internal_error(message, None))
        })
    }

    async fn call(
        self,
        params: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let (who, tool) = (self.who(&context), params.name.clone());
        let answer = self.called(&who, params, &context).await;
        let only_looks = own::find(&tool).is_some_and(|own| own.right == Right::Read);
        if self.shared.is_audited && !only_looks {
            let origin = wire::origin(&context);
            wire::tell(&who, &tool, &answer, origin.request_id.as_deref());
        }
        answer
    }

    async fn read(
        self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let unknown = || {
            let data = serde_json::json!({ "uri": request.uri });
            ErrorData::resource_not_found("there is no such resource", Some(data))
        };
        let place = content::place_of_uri(&request.uri);
        let whole = run_of_uri(&request.uri);
        let run_id = place.map(|(run_id, _)| run_id).or(whole.map(|(run_id, _)| run_id));
        let hall = self.hall().await?;
        let who = self.who(&context);
        let stored = hall.stored(&who, run_id.ok_or_else(unknown)?).await.map_err(|_| unknown())?;
        let view = stored.view();
        let contents = match place {
            Some((_, at)) => held(&view.output, at, &request.uri).ok_or_else(unknown)?,
            None => {
                let is_all = whole.is_some_and(|(_, is_all)| is_all);
                let value = if is_all { run_value(&view, true) } else { view.output };
                ResourceContents::text(value.to_json(), &request.uri)
                    .with_mime_type("application/json")
            }
        };
        let mut result = ReadResourceResult::new(vec![contents]);
        (result.ttl_ms, result.cache_scope) = (Some(0), Some(CacheScope::Private));
        Ok(result.into())
    }

    /// The caller of a request about a task.
    async fn caller<'a>(
        &'a self,
        who: &'a Principal,
        context: &'a RequestContext<RoleServer>,
        args: &'a Value,
    ) -> Result<Caller<'a>, ErrorData> {
        let hall = self.hall().await?;
        Ok(Caller { server: self, hall, who, context, tool: "", args })
    }

    /// Tells a client of the era with `initialize` when what is offered changes.
    async fn tell_changes(self, peer: Peer<RoleServer>) {
        let Ok(hall) = self.hall().await else { return };
        let mut changes = hall.changes();
        while changes.changed().await.is_ok() {
            if peer.notify_tool_list_changed().await.is_err() {
                return;
            }
        }
    }

    /// How a run stands, as a task.
    async fn task(
        &self,
        hall: &Hall,
        who: &Principal,
        run_id: &str,
    ) -> Result<DetailedTask, ErrorData> {
        let unknown =
            |error| ErrorData::invalid_params(format!("there is no such task: {error}"), None);
        let active = hall.active(who, run_id);
        let questions = active.as_ref().map(|active| active.questions());
        let stored = hall.stored(who, run_id).await.map_err(unknown)?;
        let view = stored.view();
        let at = |millis: u64| rfc3339(millis);
        let mut task = Task::new(
            run_id,
            TaskStatus::Working,
            at(stored.row.started_ms),
            at(stored.row.updated_ms),
        );
        task.poll_interval_ms = Some(1_000);
        let payload = match (view.status, &active, questions) {
            (_, Some(active), Some(questions)) if !questions.is_empty() => {
                let requests: Result<_, ErrorData> = forms(active, &questions)
                    .iter()
                    .map(|(name, form)| Ok((name.clone(), wire::input_request(form)?)))
                    .collect();
                TaskPayload::InputRequired { input_requests: requests? }
            }
            // It waits, and nobody drives it: after a restart, say.
            (RunStatus::Waiting, None, _) if !stored.run.questions().is_empty() => {
                let requests: Result<_, ErrorData> =
                    stored_forms(&view.name, &stored.run.questions())
                        .iter()
                        .map(|(name, form)| Ok((name.clone(), wire::input_request(form)?)))
                        .collect();
                TaskPayload::InputRequired { input_requests: requests? }
            }
            (RunStatus::Pending | RunStatus::Running, ..) | (_, Some(_), _) => TaskPayload::Working,
            (RunStatus::Cancelled, ..) => TaskPayload::Cancelled,
            _ => {
                let shape = self.shape_of(hall, run_id, &view.name);
                let bytes_max = hall.limits().served_result_bytes_max;
                let content_bytes_max = hall.limits().served_content_bytes_max;
                // A task asks by its state; what was denied was denied by a person.
                let telling = Telling { shape, bytes_max, content_bytes_max, can_ask: true };
                let result = wire::result(Told::outcome(&Ok(view), telling));
                let result = serde_json::to_value(result).unwrap_or_default();
                TaskPayload::Completed { result: result.as_object().cloned().unwrap_or_default() }
            }
        };
        Ok(DetailedTask::new(task, payload))
    }

    fn shape_of(&self, hall: &Hall, run_id: &str, composition: &str) -> Shape {
        let known = self.shapes().get(run_id).copied();
        known.unwrap_or_else(|| {
            let served = hall.everything();
            let offer = served.offers.of_composition(composition);
            offer.map_or(Shape::Run, |offer| Shape::Output { is_wrapped: offer.is_wrapped })
        })
    }

    /// What a call of a tool is answered.
    async fn called(
        &self,
        who: &Principal,
        params: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let hall = self.hall().await?;
        let limits = hall.limits();
        let args = wire::arguments(&params, context, &limits)?;
        let served = hall.served(who);
        let caller = Caller {
            server: self,
            hall: hall.clone(),
            who,
            context,
            tool: &params.name,
            args: &args,
        };
        let job = if let Some(own) = own::find(&params.name) {
            if let Some(missing) = own.missing(who, &served.engine) {
                let message = format!("there is no tool `{}` {missing}", params.name);
                return Err(ErrorData::invalid_params(message, None));
            }
            if let Some(violation) = own.violation(&args) {
                return Ok(told(Told::error(violation)));
            }
            let desk = Desk { hall: &hall, who };
            if own.name == "run_resume" {
                let run_id = args.get("run_id").and_then(Value::as_str).unwrap_or("");
                let state = params.request_state.as_deref();
                return caller.resume(run_id, state, params.input_responses.clone()).await;
            }
            if own.name == "plan_execute" {
                match desk.kept_plan(&args).await {
                    Ok((plan, kept)) => Job::of_kept(who.as_author(), plan, kept),
                    Err(refusal) => return Ok(told(refusal)),
                }
            } else if own.name == "composition_execute" {
                let described = desk.execution(&args).await;
                let Execution { plan, input, context, options, dry_run, who } = match described {
                    Ok(execution) => execution,
                    Err(refusal) => return Ok(told(refusal)),
                };
                if dry_run {
                    let engine = hall.served(&who).engine;
                    let outcome: Outcome = Ok(calculate(|| engine.dry_run(&plan, input, context)));
                    return Ok(told(Told::rehearsed(&outcome, caller.telling(Shape::Run))));
                }
                Job { who, plan, input, context, options, shape: Shape::Run, kept: None }
            } else {
                return Ok(told(desk.answer(own, &args).await));
            }
        } else {
            let offer = served.offers.get(&params.name).filter(|_| who.may(OFFERS_NEED));
            let Some(offer) = offer else {
                let message = format!("there is no tool `{}`", params.name);
                return Err(ErrorData::invalid_params(message, None));
            };
            Job {
                who: who.clone(),
                plan: offer.plan.clone(),
                input: args.clone(),
                context: wire::caller_context(&context.meta, &limits),
                options: Options::default(),
                shape: Shape::Output { is_wrapped: offer.is_wrapped },
                kept: None,
            }
        };
        caller.run(job, params.request_state.as_deref(), params.input_responses.clone()).await
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let mut capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_resources()
            .build();
        let tasks = [(TASKS_EXTENSION_ID.to_owned(), serde_json::Map::new())];
        capabilities.extensions = Some(tasks.into_iter().collect());
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("segue", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        if request.and_then(|request| request.cursor).is_some() {
            return Err(ErrorData::invalid_params("there is one page, and no cursor", None));
        }
        let hall = self.hall().await?;
        let who = self.who(&context);
        let served = hall.served(&who);
        let own = own::OWN.iter().filter(|own| own.is_offered(&who, &served.engine));
        let own = own.map(wire::tool_of_own);
        let offers = served.offers.iter().filter(|_| who.may(OFFERS_NEED));
        let mut tools: Vec<_> = offers.map(|offer| wire::tool_of_offer(offer)).chain(own).collect();
        tools.sort_by(|a, b| a.name.cmp(&b.name));
        let mut result = ListToolsResult::with_all_items(tools);
        // Somebody else's compositions are not this one's.
        (result.ttl_ms, result.cache_scope) = (Some(0), Some(CacheScope::Private));
        Ok(result)
    }

    /// What the library holds the headers of a call against. Ours are given none.
    fn get_tool(&self, name: &str) -> Option<Tool> {
        let hall = self.shared.opening.borrow().clone()?;
        hall.everything().offers.get(name).map(|offer| wire::tool_of_offer(offer))
    }

    async fn call_tool(
        &self,
        params: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.aside(self.clone().call(params, context)).await
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        // Results are found by the links that lead to them.
        let mut result = ListResourcesResult::default();
        (result.ttl_ms, result.cache_scope) = (Some(0), Some(CacheScope::Private));
        Ok(result)
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let parts = [
            ("output", "The result of a run, as JSON"),
            ("view", "Everything of a run, its steps included, as JSON"),
        ];
        let template = |(part, about): (&str, &str)| {
            ResourceTemplate::new(format!("segue://runs/{{run_id}}/{part}"), part)
                .with_description(about)
                .with_mime_type("application/json")
        };
        let templates = parts.into_iter().map(template).collect();
        let mut result = ListResourceTemplatesResult::with_all_items(templates);
        (result.ttl_ms, result.cache_scope) = (Some(0), Some(CacheScope::Private));
        Ok(result)
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        self.aside(self.clone().read(request, context)).await
    }

    async fn list_prompts(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListPromptsRequestMethod>())
    }

    async fn complete(
        &self,
        _request: rmcp::model::CompleteRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<rmcp::model::CompleteResult, ErrorData> {
        Err(ErrorData::method_not_found::<rmcp::model::CompleteRequestMethod>())
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        // The library reads a known request with wrong parameters as an unknown one.
        let known = [CallToolRequestMethod::VALUE, "resources/read", "tasks/get"];
        let is_known = known.contains(&request.method.as_str());
        let code = if is_known { ErrorCode::INVALID_PARAMS } else { ErrorCode::METHOD_NOT_FOUND };
        let what = if is_known { "these are no parameters of" } else { "there is no method" };
        Err(ErrorData::new(code, format!("{what} `{}`", request.method), None))
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        tokio::spawn(self.clone().tell_changes(context.peer));
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        let mut accepted = SubscriptionFilter::default();
        accepted.tools_list_changed = requested.tools_list_changed;
        Some(accepted)
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let hall = self.hall().await?;
        let mut changes = hall.changes();
        loop {
            tokio::select! {
                changed = changes.changed() => {
                    if changed.is_err() || context.sink().notify_tool_list_changed().await.is_err() {
                        return Ok(());
                    }
                }
                () = context.cancelled() => return Ok(()),
            }
        }
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        let server = self.clone();
        self.aside(async move {
            let hall = server.hall().await?;
            let who = server.who(&context);
            Ok(GetTaskResult::new(server.task(&hall, &who, &request.task_id).await?))
        })
        .await
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let server = self.clone();
        self.aside(async move {
            let (args, who) = (Value::Null, server.who(&context));
            let caller = server.caller(&who, &context, &args).await?;
            caller.answer_task(&request.task_id, &request.input_responses).await
        })
        .await
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let server = self.clone();
        self.aside(async move {
            let (args, who) = (Value::Null, server.who(&context));
            let caller = server.caller(&who, &context, &args).await?;
            caller.cancel_task(&request.task_id).await
        })
        .await
    }
}

/// What stands at a place of a result, as the protocol reads it.
fn held(output: &Value, at: usize, uri: &str) -> Option<ResourceContents> {
    let Held { text, is_blob, mime_type } = content::held(output, at)?;
    let contents =
        if is_blob { ResourceContents::blob(text, uri) } else { ResourceContents::text(text, uri) };
    Some(match mime_type {
        Some(mime_type) => contents.with_mime_type(mime_type),
        None => contents,
    })
}
