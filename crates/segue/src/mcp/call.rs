//! One call of a tool: it starts or finds a run, follows it, asks a person, and returns the result.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::http::request::Parts;
use rmcp::RoleServer;
use rmcp::model::{
    CallToolResponse, ClientResult, CreateTaskResult, ErrorData, InputRequiredResult,
    InputResponses, ProtocolVersion, ServerRequest, Task, TaskStatus,
};
use rmcp::service::RequestContext;
use segue_core::access::{Principal, Right};
use segue_core::composition::Strategy;
use segue_core::plan::Plan;
use segue_core::run::{Options, Question, StepSelection, admit};
use segue_core::value::Value;
use segue_core::view::rfc3339;
use segue_runtime::confirm::{Confirmer as _, Decision, DenyAll};
use segue_runtime::driver::RunCommand;
use segue_runtime::driver::now_ms;
use segue_runtime::engine::{Engine, EngineError};
use segue_runtime::store::{Collection, Precondition, StoreError, StoredItem};
use tokio::sync::watch;
use tokio::time::Instant;

use super::progress::ProgressReporter;
use super::request_state::{RequestState, bound_to};
use super::server::{CALL_RIGHT, Server};
use super::translate;
use crate::api::error::{Error, ErrorKind, require};
use crate::api::plans::{self, PlanRef};
use crate::api::questions::{self, FormReply, QuestionForm};
use crate::api::result::{RenderOptions, ResultPart, ToolResult};
use crate::api::runs::act;
use crate::api::runs::handle::{OpenQuestion, QuestionPolicy, RunHandle, RunProgress};
use crate::api::runs::{RunService, StartRun};
use crate::print::escape_control;

/// How long a client that knows tasks waits for a result before it gets a task.
const TASK_AFTER: Duration = Duration::from_millis(500);

/// How often a client should poll a task, in milliseconds.
pub(super) const POLL_MS: u64 = 1_000;

/// How often a person is asked the same question when the answers do not fit.
const ROUNDS_MAX: usize = 3;

/// The name of the one question of an atomic composition.
const CONSENT: &str = "consent";

/// How a person is asked through this client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AskMethod {
    /// By a request to the client, while it waits.
    Elicitation,
    /// By a response that asks; the client calls again.
    InputRequired,
    /// Not at all.
    None,
}

/// A run that a call starts.
pub(super) struct ToolRun {
    /// The principal that it runs as, held to the tools that it may use.
    pub(super) who: Principal,
    pub(super) plan: Arc<Plan>,
    /// The steps that it performs, and values for others.
    pub(super) selection: StepSelection,
    pub(super) input: Value,
    pub(super) context: Value,
    pub(super) options: Options,
    pub(super) part: ResultPart,
    /// The stored plan that it executes, if it is one.
    pub(super) plan_ref: Option<PlanRef>,
}

impl ToolRun {
    /// A run that executes a stored plan.
    pub(super) fn of_plan(who: Principal, plan: Arc<Plan>, plan_ref: PlanRef) -> ToolRun {
        let (input, context) = (Value::empty_object(), Value::empty_object());
        let (options, part) = (Options::default(), ResultPart::Run);
        let (plan_ref, selection) = (Some(plan_ref), StepSelection::default());
        ToolRun { who, plan, selection, input, context, options, part, plan_ref }
    }
}

/// A call.
pub(super) struct IncomingCall<'a> {
    pub(super) server: &'a Server,
    pub(super) service: Arc<RunService>,
    pub(super) who: &'a Principal,
    pub(super) context: &'a RequestContext<RoleServer>,
    pub(super) tool: &'a str,
    pub(super) args: &'a Value,
}

type CallResult = Result<CallToolResponse, ErrorData>;

/// Why answers do not fit, by the names of their questions.
pub(super) type InvalidAnswers = BTreeMap<String, String>;

impl IncomingCall<'_> {
    /// Makes a call, or continues it after its client was asked.
    pub(super) async fn run(
        &self,
        run: ToolRun,
        state: Option<&str>,
        responses: Option<InputResponses>,
    ) -> CallResult {
        if let Some(refused) = self.missing_capability(&run.plan) {
            return refused;
        }
        let limits = self.service.limits();
        if let Err(errors) = admit(&run.plan, run.input.clone(), &run.context, &limits) {
            let refused = Ok(Engine::refused_view(&run.plan, errors));
            return Ok(respond(ToolResult::outcome(&refused, self.render_options(run.part))));
        }
        let responses = responses.unwrap_or_default();
        let Some(sealed) = state else {
            let rolls_back = run.options.strategy == Some(Strategy::Rollback);
            // Without the right to approve the run starts, and waits for a principal who has it.
            if self.may_answer(Some(&self.who.name))
                && run.plan.needs_run_consent_of(rolls_back, &|own| run.selection.performs(own))
            {
                return self.ask_consent(run).await;
            }
            return self.start(run).await;
        };
        let state = self.open_state(sealed).await?;
        if state.plan != **run.plan.hash() {
            return Err(unusable("the composition has changed since"));
        }
        match &state.run_id {
            None => match responses.get(CONSENT) {
                Some(response) => self.consented(run, parse_reply(response)).await,
                None => self.ask_consent(run).await,
            },
            Some(run_id) => self.answered(run_id, &run, &responses).await,
        }
    }

    /// Refuses a client that lacks a capability which the composition requires. Older revisions of the
    /// protocol have no error for that, so that their clients read it in the text of the answer.
    fn missing_capability(&self, plan: &Plan) -> Option<CallResult> {
        let declared = self.context.client_capabilities().map(serde_json::to_value);
        let declared = declared.and_then(Result::ok).unwrap_or_default();
        let required = plan.composition.requires_capabilities.iter();
        let is_missing =
            |name: &&Arc<str>| declared.get(&***name).is_none_or(serde_json::Value::is_null);
        let missing: Vec<&Arc<str>> = required.filter(is_missing).collect();
        if missing.is_empty() {
            return None;
        }
        if !is_modern(self.context) {
            let names = missing.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>();
            let names = names.join(", ");
            let text = format!("`{}` needs a host that declares {names}", plan.composition.name);
            return Some(Ok(respond(ToolResult::error(text))));
        }
        let required = missing.into_iter().map(|name| (name.to_string(), serde_json::json!({})));
        let required = serde_json::from_value(serde_json::Value::Object(required.collect()));
        let required = required.unwrap_or_default();
        Some(Err(ErrorData::missing_required_client_capability(required)))
    }

    /// Asks the one question of an atomic composition, before anything is called.
    async fn ask_consent(&self, run: ToolRun) -> CallResult {
        let calls = run.plan.declared_calls_of(&|own| run.selection.performs(own));
        let form = questions::consent(&run.plan.composition.name, &run.input, &calls);
        match self.ask_method(Some(&self.who.name)) {
            AskMethod::None if self.leaves_open() => self.start(run).await,
            AskMethod::None => {
                Ok(self.not_asked(&run, "this host cannot ask (it does not declare elicitation)"))
            }
            AskMethod::InputRequired => {
                let state = RequestState::new(None, run.plan.hash());
                self.input_required(&BTreeMap::from([(CONSENT.to_owned(), form)]), &state)
            }
            AskMethod::Elicitation => {
                let reply = tokio::select! {
                    reply = self.elicit(&form) => reply,
                    () = self.context.ct.cancelled() => Ok(FormReply::Dismissed),
                };
                match reply {
                    Ok(reply) => self.consented(run, reply).await,
                    // The client declared elicitation and does not have it.
                    Err(_) if self.leaves_open() => self.start(run).await,
                    Err(error) => {
                        let why = format!(
                            "no person could be asked ({})",
                            escape_control(&error.message)
                        );
                        Ok(self.not_asked(&run, &why))
                    }
                }
            }
        }
    }

    /// The response when no person can be asked about an atomic composition.
    fn not_asked(&self, run: &ToolRun, why: &str) -> CallToolResponse {
        respond(ToolResult::error(format!(
            "`{}` asks a person before it begins, and {why}. Nothing was called. A person who may \
             decide can run `segue run {} --yes`, or set `confirm: never` for its tools in \
             `segue.yaml`. With `server.approvals.without_elicitation: wait` such a run waits for an \
             answer.",
            self.tool, run.plan.composition.name
        )))
    }

    async fn consented(&self, mut run: ToolRun, reply: FormReply) -> CallResult {
        match reply {
            // The rules have changed since the question.
            FormReply::Accepted(_) if !self.may_answer(Some(&self.who.name)) => {
                self.start(run).await
            }
            FormReply::Accepted(_) => {
                run.options.consented = true;
                self.start(run).await
            }
            FormReply::Declined | FormReply::Dismissed => Ok(respond(ToolResult::error(format!(
                "`{}` was not allowed to run: denied. Nothing was called.",
                self.tool
            )))),
        }
    }

    async fn start(&self, run: ToolRun) -> CallResult {
        let limits = self.service.limits();
        let policy = match self.ask_method(Some(&self.who.name)) {
            AskMethod::None if self.leaves_open() => QuestionPolicy::Defer,
            AskMethod::None => QuestionPolicy::Deny,
            _ => QuestionPolicy::Ask(Duration::from_millis(limits.served_question_ms)),
        };
        let ToolRun { who, plan, selection, input, context, options, part, plan_ref } = run;
        let (hash, origin) = (plan.hash().clone(), translate::origin(self.context));
        let run_id = None;
        let start = StartRun { plan, input, context, options, policy, run_id, origin, selection };
        let started = match &plan_ref {
            Some(plan_ref) => plans::start(&self.service, &who, plan_ref, start).await,
            None => self.service.start(&who, start).await,
        };
        match started {
            Ok(handle) => self.follow(&handle, part, &hash, InvalidAnswers::new()).await,
            Err(error) => Ok(respond(ToolResult::from(error))),
        }
    }

    /// Continues a run that asked, with the answers.
    async fn answered(
        &self,
        run_id: &str,
        run: &ToolRun,
        responses: &InputResponses,
    ) -> CallResult {
        let Some(handle) = self.service.handle(self.who, run_id) else {
            return match self.service.stored(self.who, run_id).await {
                Ok(stored) => {
                    let options = self.render_options(run.part);
                    Ok(respond(ToolResult::outcome(&Ok(stored.view()), options)))
                }
                Err(error) => Ok(respond(ToolResult::error(error.to_string()))),
            };
        };
        let invalid = self.answer_all(&handle, responses).await;
        self.follow(&handle, run.part, run.plan.hash(), invalid).await
    }

    /// Opens the state of a request, once in all processes that share the store.
    async fn open_state(&self, sealed: &str) -> Result<RequestState, ErrorData> {
        let bound = bound_to(&self.who.name, self.tool, self.args);
        let state = self.server.sealer().open(sealed, &bound).map_err(|why| unusable(&why))?;
        let store = self.service.store();
        if store.is_shared() {
            let used =
                StoredItem { key: state.used_key(), text: "".into(), version: 0, at_ms: now_ms() };
            let first = store.key_value().put(Collection::Answers, &used, Precondition::Absent);
            first.await.map_err(|error| match error {
                StoreError::Changed { .. } => unusable("it was used already"),
                other => ErrorData::internal_error(other.to_string(), None),
            })?;
        }
        Ok(state)
    }

    /// Resumes a run that waits, and asks the person at this host its question.
    pub(super) async fn resume(
        &self,
        run_id: &str,
        state: Option<&str>,
        responses: Option<InputResponses>,
    ) -> CallResult {
        let mut invalid = InvalidAnswers::new();
        if let Some(sealed) = state {
            self.open_state(sealed).await?;
            if let Some(handle) = self.service.handle(self.who, run_id) {
                invalid = self.answer_all(&handle, &responses.unwrap_or_default()).await;
            }
        }
        let timeout = Duration::from_millis(self.service.limits().served_question_ms);
        loop {
            let stored = match self.service.stored(self.who, run_id).await {
                Ok(stored) => stored,
                Err(error) => return Ok(respond(ToolResult::error(error.to_string()))),
            };
            let starter = stored.row.caller.as_ref().map(|caller| &*caller.principal);
            let policy = match self.ask_method(starter) {
                AskMethod::None => QuestionPolicy::Defer,
                _ => QuestionPolicy::Ask(timeout),
            };
            if stored.run.is_finished() {
                let options = self.render_options(ResultPart::Run);
                return Ok(respond(ToolResult::outcome(&Ok(stored.view()), options)));
            }
            let joined = self.service.join_or_resume(self.who, &stored, policy).await;
            let handle = match joined {
                Ok(handle) => handle,
                Err(error) => return Ok(respond(ToolResult::from(Error::from(error)))),
            };
            // The run was resumed by a caller that leaves its questions open; ours comes after it.
            if handle.policy == QuestionPolicy::Defer && policy != QuestionPolicy::Defer {
                tokio::select! {
                    _ = handle.ended() => continue,
                    () = tokio::time::sleep(self.wait_timeout(false)) => {
                        return Ok(self.later(&handle, ResultPart::Run).await);
                    }
                    () = self.context.ct.cancelled() => {
                        return Ok(respond(ToolResult::running(&handle.run_id)));
                    }
                }
            }
            return self.follow(&handle, ResultPart::Run, stored.plan.hash(), invalid).await;
        }
    }

    /// Records the answers of a client to the questions of a task: each is durable before the client is
    /// told that it arrived.
    pub(super) async fn answer_task(
        &self,
        run_id: &str,
        responses: &InputResponses,
    ) -> Result<(), ErrorData> {
        self.require(Right::Approve)?;
        let invalid = |message: String| ErrorData::invalid_params(message, None);
        let stored = self.service.stored(self.who, run_id).await;
        let stored = stored.map_err(|error| unknown_task(&error))?;
        act::may_answer(self.service.approvals(), Some(&self.who.name), &stored)
            .map_err(|error| ErrorData::invalid_request(error.to_string(), None))?;
        let mut commands = Vec::new();
        for question in stored.run.questions() {
            let Some(response) = responses.get(&*question.step) else { continue };
            let decision = questions::decision(&question, parse_reply(response), &self.person());
            let Some(Decision { granted, by, data }) = decision else { continue };
            let error = questions::data_error(&question, &data, &stored.plan).filter(|_| granted);
            error.map_or(Ok(()), |error| Err(invalid(error)))?;
            commands.push(RunCommand::Decide { question: question.id, granted, by, data });
        }
        for command in commands {
            self.record(&stored.row.run_id, command).await?;
        }
        Ok(())
    }

    /// Cancels a task, unless it has finished.
    pub(super) async fn cancel_task(&self, run_id: &str) -> Result<(), ErrorData> {
        self.require(CALL_RIGHT)?;
        let stored = self.service.stored(self.who, run_id).await;
        let stored = stored.map_err(|error| unknown_task(&error))?;
        if stored.run.is_finished() {
            return Ok(());
        }
        let wish = RunCommand::Cancel { by: self.who.name.clone() };
        self.record(&stored.row.run_id, wish).await
    }

    /// Records an action on a run. The client sees its effect by polling the task.
    async fn record(&self, run_id: &Arc<str>, wish: RunCommand) -> Result<(), ErrorData> {
        match act::record(&self.service, self.who, run_id, wish).await {
            Ok(_) => Ok(()),
            // A run that has finished meanwhile stays as it is.
            Err(error) if error.kind == ErrorKind::Finished => Ok(()),
            Err(error) => Err(ErrorData::internal_error(error.to_string(), None)),
        }
    }

    /// Refuses a caller that lacks a right.
    fn require(&self, right: Right) -> Result<(), ErrorData> {
        require(self.who, right)
            .map_err(|error| ErrorData::invalid_request(error.to_string(), None))
    }

    /// Answers the open questions of a run. Answers that do not fit are returned, and their questions
    /// stay open.
    async fn answer_all(&self, handle: &RunHandle, responses: &InputResponses) -> InvalidAnswers {
        let mut invalid = InvalidAnswers::new();
        if !self.may_answer(handle.principal.as_deref()) {
            return invalid;
        }
        for open in &handle.questions() {
            let Some(response) = responses.get(&key(open)) else { continue };
            match self.decided(open, parse_reply(response)) {
                Ok(decision) => drop(handle.answer(open.id, decision).await),
                Err(why) => drop(invalid.insert(key(open), why)),
            }
        }
        invalid
    }

    /// The decision of an answer, or why it is none.
    fn decided(&self, open: &OpenQuestion, reply: FormReply) -> Result<Option<Decision>, String> {
        let decision = questions::decision(&open.question, reply, &self.person());
        let granted = decision.as_ref().filter(|decision| decision.granted);
        let error = granted.and_then(|it| questions::form_error(&open.question, &it.data));
        error.map_or(Ok(decision), Err)
    }

    /// Follows a run until it has finished, asks something, or takes longer than the client waits.
    async fn follow(
        &self,
        handle: &Arc<RunHandle>,
        part: ResultPart,
        plan: &str,
        invalid: InvalidAnswers,
    ) -> CallResult {
        let mut progress = handle.watch();
        let mut reporter = ProgressReporter::new(self.context, handle);
        let mut until = Instant::now() + self.wait_timeout(reporter.is_wanted());
        loop {
            let now = progress.borrow_and_update().clone();
            if let Some(outcome) = &now.outcome {
                return Ok(respond(ToolResult::outcome(outcome, self.render_options(part))));
            }
            reporter.report(&now).await;
            let starter = handle.principal.as_deref();
            if let Some(open) = now.questions.first().filter(|_| self.may_answer(starter)) {
                if self.ask_method(starter) == AskMethod::InputRequired {
                    let state = RequestState::new(Some(&handle.run_id), plan);
                    let forms = forms(handle, &now.questions).into_iter();
                    let forms = forms.map(|(key, form)| {
                        let form = form.again(invalid.get(&key));
                        (key, form)
                    });
                    return self.input_required(&forms.collect(), &state);
                }
                let before = Instant::now();
                self.ask(handle, open, &mut progress).await;
                until += before.elapsed();
                if self.context.ct.is_cancelled() {
                    return Ok(self.cancelled(handle).await);
                }
                continue;
            }
            tokio::select! {
                _ = progress.changed() => {}
                () = reporter.overdue() => reporter.report_between(&now).await,
                () = tokio::time::sleep_until(until) => return Ok(self.later(handle, part).await),
                () = self.context.ct.cancelled() => return Ok(self.cancelled(handle).await),
            }
        }
    }

    /// Asks a question through the client, until it is answered or closed.
    async fn ask(
        &self,
        handle: &RunHandle,
        open: &OpenQuestion,
        progress: &mut watch::Receiver<RunProgress>,
    ) {
        let is_closed = |now: &RunProgress| !now.questions.iter().any(|other| other.id == open.id);
        let decision = tokio::select! {
            decision = self.ask_person(handle, open) => decision,
            () = async { drop(progress.wait_for(is_closed).await) } => return,
            () = self.context.ct.cancelled() => return,
        };
        // If the run was detached before the answer was durable, its outcome says so.
        handle.answer(open.id, decision).await;
    }

    /// The decision of the person; nothing leaves the question open, as do answers that never fit.
    async fn ask_person(&self, handle: &RunHandle, open: &OpenQuestion) -> Option<Decision> {
        let mut error = None;
        for _ in 0..ROUNDS_MAX {
            let form = questions::form(&handle.composition, &open.question).again(error.as_ref());
            match self.elicit(&form).await {
                Ok(reply) => match self.decided(open, reply) {
                    Ok(decision) => return decision,
                    Err(why) => error = Some(why),
                },
                // The client declared elicitation and does not have it.
                Err(_) if self.leaves_open() => return None,
                Err(_) => return DenyAll.confirm(&open.question).await,
            }
        }
        None
    }

    async fn elicit(&self, form: &QuestionForm) -> Result<FormReply, ErrorData> {
        let request = ServerRequest::ElicitRequest(translate::elicitation(form)?);
        match self.context.peer.send_request(request).await {
            Ok(ClientResult::ElicitResult(result)) => Ok(translate::reply(result)),
            Ok(_) => Err(ErrorData::internal_error("the client answered something else", None)),
            Err(error) => Err(ErrorData::internal_error(error.to_string(), None)),
        }
    }

    /// The client cancelled the call, which cancels the run. A client that only disconnected does not.
    async fn cancelled(&self, handle: &RunHandle) -> CallToolResponse {
        if !self.server.client_gone().is_set() {
            self.service.cancel_handle(handle, self.who.name.clone()).await;
            handle.ended().await;
        }
        respond(ToolResult::running(&handle.run_id))
    }

    /// The response when the client has waited long enough.
    async fn later(&self, handle: &RunHandle, part: ResultPart) -> CallToolResponse {
        if self.has_tasks() {
            self.server.remember(handle.run_id.clone(), part);
            // The same times as when the client polls the task.
            let row = self.service.row(self.who, &handle.run_id).await;
            let times = row.map_or((now_ms(), now_ms()), |row| (row.started_ms, row.updated_ms));
            let (created, updated) = (rfc3339(times.0), rfc3339(times.1));
            let task = Task::new(&*handle.run_id, TaskStatus::Working, created, updated);
            return CreateTaskResult::new(task.with_poll_interval_ms(POLL_MS)).into();
        }
        respond(ToolResult::running(&handle.run_id))
    }

    fn wait_timeout(&self, has_progress: bool) -> Duration {
        let limits = self.service.limits();
        match (self.has_tasks(), has_progress) {
            (true, _) => TASK_AFTER.min(Duration::from_millis(limits.served_wait_ms)),
            (false, true) => Duration::from_millis(limits.served_wait_ms_max),
            (false, false) => Duration::from_millis(limits.served_wait_ms),
        }
    }

    fn input_required(
        &self,
        forms: &BTreeMap<String, QuestionForm>,
        state: &RequestState,
    ) -> CallResult {
        let bound = bound_to(&self.who.name, self.tool, self.args);
        let sealed = self.server.sealer().seal(state, &bound);
        let requests = translate::input_requests(forms)?;
        Ok(InputRequiredResult::new(Some(requests), Some(sealed)).into())
    }

    /// How this client is shown a run.
    pub(super) fn render_options(&self, part: ResultPart) -> RenderOptions {
        let can_ask = self.ask_method(Some(&self.who.name)) != AskMethod::None;
        RenderOptions::new(part, &self.service.limits(), can_ask)
    }

    /// Whether the caller may answer the questions of a run that `starter` started.
    fn may_answer(&self, starter: Option<&str>) -> bool {
        self.service.answer_refusal(self.who, starter).is_none()
    }

    /// Whether the questions of the caller's runs wait for another person when this client cannot ask.
    fn leaves_open(&self) -> bool {
        self.service.approvals().unasked_wait || !self.may_answer(Some(&self.who.name))
    }

    fn ask_method(&self, starter: Option<&str>) -> AskMethod {
        if !self.may_answer(starter) {
            return AskMethod::None;
        }
        let capabilities = self.context.client_capabilities();
        let elicitation = capabilities.and_then(|capabilities| capabilities.elicitation);
        // A client that names no kind of elicitation means forms.
        let has_forms = elicitation.is_some_and(|e| e.form.is_some() || e.url.is_none());
        match (has_forms, is_modern(self.context)) {
            (false, _) => AskMethod::None,
            (true, true) => AskMethod::InputRequired,
            (true, false) => AskMethod::Elicitation,
        }
    }

    fn has_tasks(&self) -> bool {
        let capabilities = self.context.client_capabilities();
        is_modern(self.context) && capabilities.is_some_and(|c| c.supports_tasks())
    }

    /// The name of the person who answers, for the journal.
    fn person(&self) -> Arc<str> {
        let client = self.context.client_info();
        let person =
            client.map_or_else(|| "an MCP host".into(), |c| format!("the user of {}", c.name));
        if self.context.extensions.get::<Parts>().is_none() {
            return person.into();
        }
        format!("{}, {person}", self.who.name).into()
    }
}

/// A response with a result.
pub(super) fn respond(result: ToolResult) -> CallToolResponse {
    translate::result(result).into()
}

/// Whether a request is of a protocol version without `initialize`.
pub(super) fn is_modern(context: &RequestContext<RoleServer>) -> bool {
    let version = context.protocol_version();
    version.is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str())
}

/// The forms of open questions, by their names.
pub(super) fn forms(
    handle: &RunHandle,
    questions: &[Arc<OpenQuestion>],
) -> BTreeMap<String, QuestionForm> {
    let form = |open: &Arc<OpenQuestion>| questions::form(&handle.composition, &open.question);
    questions.iter().map(|open| (key(open), form(open))).collect()
}

/// The forms of questions that wait in the store, by their names.
pub(super) fn stored_forms(
    composition: &str,
    questions: &[Question],
) -> BTreeMap<String, QuestionForm> {
    let form = |question: &Question| questions::form(composition, question);
    questions.iter().map(|question| (question.step.to_string(), form(question))).collect()
}

fn unknown_task(error: &EngineError) -> ErrorData {
    ErrorData::invalid_params(format!("there is no such task: {error}"), None)
}

fn unusable(why: &str) -> ErrorData {
    ErrorData::invalid_params(format!("this requestState cannot be used: {why}"), None)
}

/// The name of a question: that of its step, which asks one thing at a time.
fn key(open: &OpenQuestion) -> String {
    open.question.step.to_string()
}

fn parse_reply(response: &serde_json::Value) -> FormReply {
    serde_json::from_value(response.clone()).map_or(FormReply::Dismissed, translate::reply)
}
