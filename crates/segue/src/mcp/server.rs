//! The MCP server: what the requests of the protocol are answered with.

use std::sync::Arc;
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
use segue_core::diagnostic::nearest_name;
use segue_core::limits::Limits;
use segue_core::run::{Options, StepSelection};
use segue_core::value::Value;
use segue_core::view::{RunStatus, rfc3339};

use super::ServiceReceiver;
use super::builtin::{self, BUILTIN_TOOLS, BuiltinCall, BuiltinOutcome};
use super::call::{IncomingCall, POLL_MS, ToolRun, forms, respond, stored_forms};
use super::request_state::StateSealer;
use super::stdio::ClientGone;
use super::task_results::TaskResults;
use super::translate;
use crate::api::content::{self, ContentData};
use crate::api::documents::load_failure;
use crate::api::error::Error;
use crate::api::result::{RenderOptions, ResultPart, ToolResult, run_of_uri};
use crate::api::runs::RunService;
use crate::api::threads::Panicked;

/// The right to call a composition, and to cancel a run.
pub(super) const CALL_RIGHT: Right = Right::Run;

const INSTRUCTIONS: &str = "Each tool is a composition of other tools that runs as one. A run that \
    takes long gives a run_id: call run_get with it. To compose tools yourself, write a composition, \
    check it with composition_validate, which also says which tools you may use in one, and run it with \
    composition_execute.";

/// Segue as an MCP server. Cheap to clone.
#[derive(Clone)]
pub(super) struct Server {
    shared: Arc<Shared>,
}

struct Shared {
    /// The principal of requests that did not come over HTTP: the host that started us.
    local: Principal,
    service: ServiceReceiver,
    sealer: StateSealer,
    client_gone: ClientGone,
    /// Whether calls are written to the audit log: those over HTTP.
    is_audited: bool,
    task_results: TaskResults,
}

impl Server {
    pub(super) fn new(
        local: Principal,
        service: ServiceReceiver,
        limits: &Limits,
        client_gone: ClientGone,
        is_audited: bool,
        state_key: Option<&str>,
    ) -> Server {
        let life = Duration::from_millis(limits.served_question_ms);
        let sealer = StateSealer::new(life, state_key);
        let task_results = TaskResults::default();
        let shared = Shared { local, service, sealer, client_gone, is_audited, task_results };
        Server { shared: Arc::new(shared) }
    }

    /// The principal of a request: over HTTP the auth layer has found it.
    pub(super) fn who(&self, context: &RequestContext<RoleServer>) -> Principal {
        match context.extensions.get::<Parts>() {
            None => self.shared.local.clone(),
            Some(parts) => {
                let who = parts.extensions.get::<Principal>().cloned();
                who.unwrap_or_else(Principal::anonymous)
            }
        }
    }

    pub(super) fn sealer(&self) -> &StateSealer {
        &self.shared.sealer
    }

    pub(super) fn client_gone(&self) -> &ClientGone {
        &self.shared.client_gone
    }

    /// Remembers which part of a run is the result of its task.
    pub(super) fn remember(&self, run_id: Arc<str>, part: ResultPart) {
        self.shared.task_results.insert(run_id, part);
    }

    /// The service, as soon as it has started.
    async fn service(&self) -> Result<Arc<RunService>, ErrorData> {
        let mut receiver = self.shared.service.clone();
        let started = receiver.wait_for(Option::is_some).await;
        let service = started.ok().and_then(|service| service.clone());
        service.ok_or_else(|| ErrorData::internal_error("Segue could not start", None))
    }

    /// Works on a request in the pool of requests. A panic of ours is an error.
    async fn on_worker<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, ErrorData>> + Send + 'static,
    ) -> Result<T, ErrorData> {
        let answered = self.service().await?.threads().answer(work).await;
        answered.unwrap_or_else(|Panicked| {
            Err(ErrorData::internal_error(Error::panicked().to_string(), None))
        })
    }

    async fn call(
        self,
        params: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let (who, tool) = (self.who(&context), params.name.clone());
        let answer = self.call_as(&who, params, &context).await;
        let only_reads = builtin::find(&tool).is_some_and(|tool| tool.right == Right::Read);
        if self.shared.is_audited && !only_reads {
            let origin = translate::origin(&context);
            translate::audit(&who, &tool, &answer, origin.request_id.as_deref());
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
        let service = self.service().await?;
        let who = self.who(&context);
        let stored = service.stored(&who, run_id.ok_or_else(unknown)?).await;
        let view = stored.map_err(|_| unknown())?.view();
        let contents = match place {
            Some((_, at)) => resource(&view.output, at, &request.uri).ok_or_else(unknown)?,
            None => {
                let (_, part) = whole.ok_or_else(unknown)?;
                ResourceContents::text(part.value(&view).to_json(), &request.uri)
                    .with_mime_type("application/json")
            }
        };
        let mut result = ReadResourceResult::new(vec![contents]);
        (result.ttl_ms, result.cache_scope) = (Some(0), Some(CacheScope::Private));
        Ok(result.into())
    }

    /// A request about a task.
    async fn task_call<'a>(
        &'a self,
        who: &'a Principal,
        context: &'a RequestContext<RoleServer>,
        args: &'a Value,
    ) -> Result<IncomingCall<'a>, ErrorData> {
        let service = self.service().await?;
        Ok(IncomingCall { server: self, service, who, context, tool: "", args })
    }

    /// Notifies a client that sent `initialize` when the served tools change.
    async fn notify_changes(self, peer: Peer<RoleServer>) {
        let Ok(service) = self.service().await else { return };
        let mut changes = service.changes();
        while changes.changed().await.is_ok() {
            if peer.notify_tool_list_changed().await.is_err() {
                return;
            }
        }
    }

    /// The state of a run, as a task.
    async fn task(
        &self,
        service: &RunService,
        who: &Principal,
        run_id: &str,
    ) -> Result<DetailedTask, ErrorData> {
        let unknown =
            |error| ErrorData::invalid_params(format!("there is no such task: {error}"), None);
        let handle = service.handle(who, run_id);
        let questions = handle.as_ref().map(|handle| handle.questions());
        let stored = service.stored(who, run_id).await.map_err(unknown)?;
        let view = stored.view();
        let (created, updated) = (rfc3339(stored.row.started_ms), rfc3339(stored.row.updated_ms));
        let mut task = Task::new(run_id, TaskStatus::Working, created, updated);
        task.poll_interval_ms = Some(POLL_MS);
        let input_required = |forms| {
            let input_requests = translate::input_requests(&forms)?;
            Ok::<_, ErrorData>(TaskPayload::InputRequired { input_requests })
        };
        let starter = stored.row.caller.as_ref().map(|caller| &*caller.principal);
        let may_answer = service.answer_refusal(who, starter).is_none();
        let open = stored.run.questions();
        let payload = match (view.status, &handle, questions) {
            (_, Some(handle), Some(questions)) if may_answer && !questions.is_empty() => {
                input_required(forms(handle, &questions))?
            }
            // It waits, and no process drives it: after a restart, say.
            (RunStatus::Waiting, None, _) if may_answer && !open.is_empty() => {
                input_required(stored_forms(&view.name, &open))?
            }
            // It waits for another principal.
            (RunStatus::Waiting, None, _) if !open.is_empty() => TaskPayload::Working,
            (RunStatus::Pending | RunStatus::Running, ..) | (_, Some(_), _) => TaskPayload::Working,
            (RunStatus::Cancelled, ..) => TaskPayload::Cancelled,
            _ => {
                let part = self.result_part(service, run_id, &view.name);
                // A task asks through its state, so a person denied what was denied.
                let options = RenderOptions::new(part, &service.limits(), true);
                let result = translate::result(ToolResult::outcome(&Ok(view), options));
                let result = serde_json::to_value(result).unwrap_or_default();
                TaskPayload::Completed { result: result.as_object().cloned().unwrap_or_default() }
            }
        };
        Ok(DetailedTask::new(task, payload))
    }

    fn result_part(&self, service: &RunService, run_id: &str, composition: &str) -> ResultPart {
        let known = self.shared.task_results.get(run_id);
        known.unwrap_or_else(|| {
            let catalog = service.full_catalog();
            let tool = catalog.tools.of_composition(composition);
            tool.map_or(ResultPart::Run, |tool| ResultPart::Output { is_wrapped: tool.is_wrapped })
        })
    }

    /// The response to a call of a tool.
    async fn call_as(
        &self,
        who: &Principal,
        params: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let service = self.service().await?;
        let limits = service.limits();
        let args = translate::arguments(&params, context, &limits)?;
        let catalog = service.catalog(who);
        let (tool, args) = (&*params.name, &args);
        let call =
            IncomingCall { server: self, service: service.clone(), who, context, tool, args };
        let (state, responses) = (params.request_state.as_deref(), params.input_responses.clone());
        let Some(builtin) = builtin::find(tool) else {
            let served = catalog.tools.get(tool).filter(|_| who.may(CALL_RIGHT));
            let Some(served) = served else {
                return Err(ErrorData::invalid_params(unknown_tool(&service, who, tool), None));
            };
            let run = ToolRun {
                who: who.clone(),
                plan: served.plan.clone(),
                selection: StepSelection::default(),
                input: args.clone(),
                context: translate::caller_context(&context.meta, &limits),
                options: Options::default(),
                part: ResultPart::Output { is_wrapped: served.is_wrapped },
                plan_ref: None,
            };
            return call.run(run, state, responses).await;
        };
        if let Some(missing) = builtin.missing(who, &catalog.engine) {
            let message = format!("there is no tool `{tool}` {missing}");
            return Err(ErrorData::invalid_params(message, None));
        }
        let render = call.render_options(ResultPart::Run);
        match builtin.call(BuiltinCall { service: &service, who, render }, args).await {
            Ok(BuiltinOutcome::Done(result)) => Ok(respond(result)),
            Ok(BuiltinOutcome::Start(run)) => call.run(*run, state, responses).await,
            Ok(BuiltinOutcome::Resume(run_id)) => call.resume(&run_id, state, responses).await,
            Err(error) => Ok(respond(ToolResult::from(error))),
        }
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
        let service = self.service().await?;
        let who = self.who(&context);
        let catalog = service.catalog(&who);
        let builtin =
            BUILTIN_TOOLS.iter().filter(|tool| tool.missing(&who, &catalog.engine).is_none());
        let builtin = builtin.map(translate::builtin_tool);
        let served = catalog.tools.iter().filter(|_| who.may(CALL_RIGHT));
        let mut tools: Vec<_> =
            served.map(|tool| translate::served_tool(tool)).chain(builtin).collect();
        tools.sort_by(|a, b| a.name.cmp(&b.name));
        let mut result = ListToolsResult::with_all_items(tools);
        // Each principal has its own list.
        (result.ttl_ms, result.cache_scope) = (Some(0), Some(CacheScope::Private));
        Ok(result)
    }

    /// The library checks the headers of a call against this definition. Our own tools have none.
    fn get_tool(&self, name: &str) -> Option<Tool> {
        let service = self.shared.service.borrow().clone()?;
        service.full_catalog().tools.get(name).map(|tool| translate::served_tool(tool))
    }

    async fn call_tool(
        &self,
        params: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        Box::pin(self.on_worker(self.clone().call(params, context))).await
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        // Clients find results by the links in tool results.
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
            ("result", "The result of a run in the format of the document's dialect, as JSON"),
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
        self.on_worker(self.clone().read(request, context)).await
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
        tokio::spawn(self.clone().notify_changes(context.peer));
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
        let service = self.service().await?;
        let mut changes = service.changes();
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
        self.on_worker(async move {
            let service = server.service().await?;
            let who = server.who(&context);
            Ok(GetTaskResult::new(server.task(&service, &who, &request.task_id).await?))
        })
        .await
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let server = self.clone();
        self.on_worker(async move {
            let (args, who) = (Value::Null, server.who(&context));
            let call = server.task_call(&who, &context, &args).await?;
            call.answer_task(&request.task_id, &request.input_responses).await
        })
        .await
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let server = self.clone();
        self.on_worker(async move {
            let (args, who) = (Value::Null, server.who(&context));
            let call = server.task_call(&who, &context, &args).await?;
            call.cancel_task(&request.task_id).await
        })
        .await
    }
}

/// Why a caller has no tool of this name.
fn unknown_tool(service: &RunService, who: &Principal, tool: &str) -> String {
    if let Some(failure) = load_failure(service, who, tool) {
        return failure.text();
    }
    let catalog = service.catalog(who);
    let near = nearest_name(tool, catalog.tools.iter().map(|tool| &*tool.name));
    let near = near.filter(|_| who.may(CALL_RIGHT));
    let near = near.map(|near| format!("; did you mean `{near}`?"));
    format!("there is no tool `{tool}`{}", near.unwrap_or_default())
}

/// An item of content in a result, as a resource.
fn resource(output: &Value, at: usize, uri: &str) -> Option<ResourceContents> {
    let ContentData { text, is_blob, mime_type } = content::find(output, at)?;
    let contents =
        if is_blob { ResourceContents::blob(text, uri) } else { ResourceContents::text(text, uri) };
    Some(match mime_type {
        Some(mime_type) => contents.with_mime_type(mime_type),
        None => contents,
    })
}
