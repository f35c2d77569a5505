//! One call of a tool: a run is begun or found again, followed, asked for, and told.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::http::request::Parts;
use rmcp::RoleServer;
use rmcp::model::{
    CallToolResponse, ClientResult, CreateTaskResult, ErrorData, InputRequiredResult,
    InputResponses, NotificationMetaObject, ProgressNotification, ProgressNotificationParam,
    ProgressToken, ProtocolVersion, ServerRequest, Task, TaskStatus,
};
use rmcp::service::RequestContext;
use segue_core::access::{Principal, Right};
use segue_core::composition::Strategy;
use segue_core::plan::Plan;
use segue_core::run::{Options, Question, admit};
use segue_core::value::Value;
use segue_core::view::rfc3339;
use segue_runtime::confirm::{Confirmer as _, Decision, DenyAll};
use segue_runtime::driver::{RunCommand, now_ms};
use segue_runtime::engine::{Engine, EngineError};
use segue_runtime::store::StoreError;
use tokio::sync::watch;
use tokio::time::Instant;

use super::seal::{State, bound_to};
use super::server::{OFFERS_NEED, Server};
use super::wire;
use crate::print::escape_control;
use crate::serve::acting::{self, Unacted};
use crate::serve::active::{Active, Asked, Asking, Standing};
use crate::serve::hall::{Hall, Wanted};
use crate::serve::plans::{self, Kept, Unbegun, plan_error};
use crate::serve::question::{self, Form, Reply};
use crate::serve::told::{Shape, Telling, Told};

/// The longest silence towards a caller who wants to be told how it goes.
const SILENCE_MAX: Duration = Duration::from_secs(15);

/// The shortest time between two such words.
const SILENCE_MIN: Duration = Duration::from_millis(250);

/// How long a client that can come back for a result waits for it.
const TASK_AFTER: Duration = Duration::from_millis(500);

/// How often a client should come back, in milliseconds.
const POLL_MS: u64 = 1_000;

/// How often a person is asked the same through a client that waits, when answers do not fit.
const ROUNDS_MAX: usize = 3;

/// The name of the one question of an atomic composition.
const CONSENT: &str = "consent";

/// How a person is asked through this client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// By a request to the client, while it waits.
    Elicitation,
    /// By an answer that asks; the client calls again.
    InputRequired,
    /// Not at all.
    None,
}

/// A run that a call is about.
pub(super) struct Job {
    /// Whose run it is, held to the tools that it may use.
    pub(super) who: Principal,
    pub(super) plan: Arc<Plan>,
    pub(super) input: Value,
    pub(super) context: Value,
    pub(super) options: Options,
    pub(super) shape: Shape,
    /// The plan that it executes, when that is one that is kept.
    pub(super) kept: Option<Kept>,
}

impl Job {
    /// A run that executes a plan that is kept.
    pub(super) fn of_kept(who: Principal, plan: Arc<Plan>, kept: Kept) -> Job {
        let (input, context) = (Value::empty_object(), Value::empty_object());
        let options = Options::default();
        Job { who, plan, input, context, options, shape: Shape::Run, kept: Some(kept) }
    }
}

/// Who calls.
pub(super) struct Caller<'a> {
    pub(super) server: &'a Server,
    pub(super) hall: Arc<Hall>,
    pub(super) who: &'a Principal,
    pub(super) context: &'a RequestContext<RoleServer>,
    pub(super) tool: &'a str,
    pub(super) args: &'a Value,
}

type Answer = Result<CallToolResponse, ErrorData>;

/// What is wrong with answers that do not fit, by the names of their questions.
pub(super) type Unfit = BTreeMap<String, String>;

impl Caller<'_> {
    /// A call from its beginning, or from where it was when its caller was asked something.
    pub(super) async fn run(
        &self,
        job: Job,
        state: Option<&str>,
        responses: Option<InputResponses>,
    ) -> Answer {
        let limits = self.hall.limits();
        if let Err(errors) = admit(&job.plan, job.input.clone(), &job.context, &limits) {
            let refused = Ok(Engine::refused_view(&job.plan, errors));
            return Ok(told(Told::outcome(&refused, self.telling(job.shape))));
        }
        let responses = responses.unwrap_or_default();
        let Some(sealed) = state else {
            let takes_back = job.options.strategy == Some(Strategy::Rollback);
            // Whoever may not consent begins it, and it waits for somebody who may.
            if self.who.may(Right::Approve) && job.plan.needs_run_consent_within(takes_back) {
                return self.ask_once(job).await;
            }
            return self.begin(job).await;
        };
        let bound = bound_to(&self.who.name, self.tool, self.args);
        let state = self.server.seal().open(sealed, &bound).map_err(|why| unusable(&why))?;
        if state.plan != **job.plan.hash() {
            return Err(unusable("the composition has changed since"));
        }
        match &state.run_id {
            None => match responses.get(CONSENT) {
                Some(response) => self.consented(job, parse_reply(response)).await,
                None => self.ask_once(job).await,
            },
            Some(run_id) => self.go_on(run_id, &job, &responses).await,
        }
    }

    /// The one question of an atomic composition, before anything is called.
    async fn ask_once(&self, job: Job) -> Answer {
        let form =
            question::consent(&job.plan.composition.name, &job.input, &job.plan.declared_calls());
        match self.way() {
            Way::None => {
                Ok(self.unasked(&job, "this host cannot ask (it does not declare elicitation)"))
            }
            Way::InputRequired => {
                let state = State::new(None, job.plan.hash());
                self.input_required(&BTreeMap::from([(CONSENT.to_owned(), form)]), &state)
            }
            Way::Elicitation => {
                let reply = tokio::select! {
                    reply = self.elicit(&form) => reply,
                    () = self.context.ct.cancelled() => Ok(Reply::Dismissed),
                };
                match reply {
                    Ok(reply) => self.consented(job, reply).await,
                    // It said that it can ask, and it cannot.
                    Err(error) => {
                        let why =
                            format!("nobody could be asked ({})", escape_control(&error.message));
                        Ok(self.unasked(&job, &why))
                    }
                }
            }
        }
    }

    /// An atomic composition that nobody can be asked about.
    fn unasked(&self, job: &Job, why: &str) -> CallToolResponse {
        told(Told::error(format!(
            "`{}` asks a person before it begins, and {why}. Nothing was called. Somebody who may \
             decide can run `segue run {} --yes`, or say `confirm: never` for its tools in \
             `segue.yaml`.",
            self.tool, job.plan.composition.name
        )))
    }

    async fn consented(&self, mut job: Job, reply: Reply) -> Answer {
        match reply {
            Reply::Accepted(_) => {
                job.options.consented = true;
                self.begin(job).await
            }
            Reply::Declined | Reply::Dismissed => Ok(told(Told::error(format!(
                "`{}` was not allowed to run: denied. Nothing was called.",
                self.tool
            )))),
        }
    }

    async fn begin(&self, job: Job) -> Answer {
        let limits = self.hall.limits();
        let asking = match self.way() {
            Way::None if !self.who.may(Right::Approve) => Asking::Later,
            Way::None => Asking::Nobody,
            _ => Asking::Whoever(Duration::from_millis(limits.served_question_ms)),
        };
        let Job { who, plan, input, context, options, shape, kept } = job;
        let (hash, origin) = (plan.hash().clone(), wire::origin(self.context));
        let wanted = Wanted { plan, input, context, options, asking, run_id: None, origin };
        let begun = match &kept {
            Some(kept) => plans::begin(&self.hall, &who, kept, wanted).await,
            None => self.hall.start(&who, wanted).await,
        };
        match begun {
            Ok(active) => self.follow(&active, shape, &hash, Unfit::new()).await,
            Err(Unbegun::Plan(error)) => Ok(told(plan_error(&error))),
            Err(Unbegun::Busy(why)) => Ok(told(Told::error(why))),
            Err(Unbegun::Engine(error)) => {
                Ok(told(Told::outcome(&Err(error), self.telling(shape))))
            }
        }
    }

    /// A run that asked, with what was answered.
    async fn go_on(&self, run_id: &str, job: &Job, responses: &InputResponses) -> Answer {
        let Some(active) = self.hall.active(self.who, run_id) else {
            return match self.hall.stored(self.who, run_id).await {
                Ok(stored) => Ok(told(Told::outcome(&Ok(stored.view()), self.telling(job.shape)))),
                Err(error) => Ok(told(Told::error(error.to_string()))),
            };
        };
        let unfit = self.answer_all(&active, responses).await;
        self.follow(&active, job.shape, job.plan.hash(), unfit).await
    }

    /// A run that waits goes on, and whoever is at this host is asked what it waits for.
    pub(super) async fn resume(
        &self,
        run_id: &str,
        state: Option<&str>,
        responses: Option<InputResponses>,
    ) -> Answer {
        let mut unfit = Unfit::new();
        if let Some(sealed) = state {
            let bound = bound_to(&self.who.name, self.tool, self.args);
            self.server.seal().open(sealed, &bound).map_err(|why| unusable(&why))?;
            if let Some(active) = self.hall.active(self.who, run_id) {
                unfit = self.answer_all(&active, &responses.unwrap_or_default()).await;
            }
        }
        let patience = Duration::from_millis(self.hall.limits().served_question_ms);
        let asking = match self.way() {
            Way::None => Asking::Later,
            _ => Asking::Whoever(patience),
        };
        loop {
            let stored = match self.hall.stored(self.who, run_id).await {
                Ok(stored) => stored,
                Err(error) => return Ok(told(Told::error(error.to_string()))),
            };
            let telling = self.telling(Shape::Run);
            if stored.run.is_finished() {
                return Ok(told(Told::outcome(&Ok(stored.view()), telling)));
            }
            let active = self.hall.take_up(self.who, &stored, asking);
            // Whoever goes on with it leaves its questions open; then it is our turn.
            if active.asking == Asking::Later && asking != Asking::Later {
                tokio::select! {
                    _ = active.ended() => continue,
                    () = tokio::time::sleep(self.patience(false)) => {
                        return Ok(self.later(&active, Shape::Run).await);
                    }
                    () = self.context.ct.cancelled() => {
                        return Ok(told(Told::under_way(&active.run_id)));
                    }
                }
            }
            return self.follow(&active, Shape::Run, stored.plan.hash(), unfit).await;
        }
    }

    /// Answers of a client to a task: each is in its journal before the client is told that it came.
    pub(super) async fn answer_task(
        &self,
        run_id: &str,
        responses: &InputResponses,
    ) -> Result<(), ErrorData> {
        self.require(Right::Approve)?;
        let invalid = |message: String| ErrorData::invalid_params(message, None);
        let stored = self.hall.stored(self.who, run_id).await;
        let stored = stored.map_err(|error| unknown_task(&error))?;
        let mut wishes = Vec::new();
        for asked in stored.run.questions() {
            let Some(response) = responses.get(&*asked.step) else { continue };
            let decision = question::decision(&asked, parse_reply(response), &self.person());
            let Some(Decision { granted, by, data }) = decision else { continue };
            let misfit = question::misfit(&asked, &data, &stored.plan).filter(|_| granted);
            misfit.map_or(Ok(()), |misfit| Err(invalid(misfit)))?;
            wishes.push(RunCommand::Decide { question: asked.id, granted, by, data });
        }
        for wish in wishes {
            self.record(&stored.row.run_id, wish).await?;
        }
        Ok(())
    }

    /// Ends a task, unless it is over.
    pub(super) async fn cancel_task(&self, run_id: &str) -> Result<(), ErrorData> {
        self.require(OFFERS_NEED)?;
        let stored = self.hall.stored(self.who, run_id).await;
        let stored = stored.map_err(|error| unknown_task(&error))?;
        if stored.run.is_finished() {
            return Ok(());
        }
        let wish = RunCommand::Cancel { by: self.who.name.clone() };
        self.record(&stored.row.run_id, wish).await
    }

    /// Has what is wanted of a run written down. What comes of it is seen by looking at the task.
    async fn record(&self, run_id: &Arc<str>, wish: RunCommand) -> Result<(), ErrorData> {
        match acting::record(&self.hall, self.who, run_id, wish).await {
            // One that has ended meanwhile is left as it is.
            Ok(_) | Err(Unacted::Engine(EngineError::Store(StoreError::Ended { .. }))) => Ok(()),
            Err(Unacted::Engine(error)) => Err(ErrorData::internal_error(error.to_string(), None)),
            Err(_) => Err(ErrorData::internal_error("the run could not be acted on", None)),
        }
    }

    /// Refuses a caller that lacks a right.
    fn require(&self, right: Right) -> Result<(), ErrorData> {
        if self.who.may(right) {
            return Ok(());
        }
        let needed = right.as_str();
        let message = format!("`{}` may not do this: it needs `{needed}`", self.who.name);
        Err(ErrorData::invalid_request(message, None))
    }

    /// Answers the questions of a run that these are responses to. Those that do not fit are given
    /// back, and their questions stand.
    async fn answer_all(&self, active: &Active, responses: &InputResponses) -> Unfit {
        let mut unfit = Unfit::new();
        for asked in &active.questions() {
            let Some(response) = responses.get(&key(asked)) else { continue };
            match self.decided(asked, parse_reply(response)) {
                Ok(decision) => drop(active.answer(asked.id, decision).await),
                Err(why) => drop(unfit.insert(key(asked), why)),
            }
        }
        unfit
    }

    /// What an answer means, or why it means nothing.
    fn decided(&self, asked: &Asked, reply: Reply) -> Result<Option<Decision>, String> {
        let decision = question::decision(&asked.question, reply, &self.person());
        let unfit = decision.as_ref().filter(|decision| decision.granted);
        let unfit = unfit.and_then(|it| question::unfilled(&asked.question, &it.data));
        unfit.map_or(Ok(decision), Err)
    }

    /// Follows a run until it is over, asks something, or takes longer than the caller waits.
    async fn follow(&self, active: &Arc<Active>, shape: Shape, plan: &str, unfit: Unfit) -> Answer {
        let mut standing = active.watch();
        let mut progress = Progress::new(self.context, active);
        let mut until = Instant::now() + self.patience(progress.is_wanted());
        loop {
            let now = standing.borrow_and_update().clone();
            if let Some(outcome) = &now.outcome {
                return Ok(told(Told::outcome(outcome, self.telling(shape))));
            }
            progress.tell(&now).await;
            if let Some(asked) = now.questions.first() {
                if self.way() == Way::InputRequired {
                    let state = State::new(Some(&active.run_id), plan);
                    let forms = forms(active, &now.questions).into_iter();
                    let forms = forms.map(|(key, form)| {
                        let form = form.again(unfit.get(&key));
                        (key, form)
                    });
                    return self.input_required(&forms.collect(), &state);
                }
                let before = Instant::now();
                self.put(active, asked, &mut standing).await;
                until += before.elapsed();
                if self.context.ct.is_cancelled() {
                    return Ok(self.give_up(active).await);
                }
                continue;
            }
            tokio::select! {
                _ = standing.changed() => {}
                () = progress.silence() => progress.break_silence(&now).await,
                () = tokio::time::sleep_until(until) => return Ok(self.later(active, shape).await),
                () = self.context.ct.cancelled() => return Ok(self.give_up(active).await),
            }
        }
    }

    /// Puts a question to the client, until it is answered or no longer stands.
    async fn put(&self, active: &Active, asked: &Asked, standing: &mut watch::Receiver<Standing>) {
        let is_gone = |now: &Standing| !now.questions.iter().any(|other| other.id == asked.id);
        let decision = tokio::select! {
            decision = self.word(active, asked) => decision,
            () = async { drop(standing.wait_for(is_gone).await) } => return,
            () = self.context.ct.cancelled() => return,
        };
        // A run that was left before the answer was durable says so by its outcome.
        active.answer(asked.id, decision).await;
    }

    /// What a person says to a question; nothing leaves it open, as do answers that never fit.
    async fn word(&self, active: &Active, asked: &Asked) -> Option<Decision> {
        let mut unfit = None;
        for _ in 0..ROUNDS_MAX {
            let form = question::form(&active.composition, &asked.question).again(unfit.as_ref());
            match self.elicit(&form).await {
                Ok(reply) => match self.decided(asked, reply) {
                    Ok(decision) => return decision,
                    Err(why) => unfit = Some(why),
                },
                // It said that it can ask, and it cannot.
                Err(_) => return DenyAll.confirm(&asked.question).await,
            }
        }
        None
    }

    async fn elicit(&self, form: &Form) -> Result<Reply, ErrorData> {
        let request = ServerRequest::ElicitRequest(wire::elicitation(form)?);
        match self.context.peer.send_request(request).await {
            Ok(ClientResult::ElicitResult(result)) => Ok(wire::reply(result)),
            Ok(_) => Err(ErrorData::internal_error("the client answered something else", None)),
            Err(error) => Err(ErrorData::internal_error(error.to_string(), None)),
        }
    }

    /// The caller does not want it any more; one that has only gone away leaves the run alone.
    async fn give_up(&self, active: &Active) -> CallToolResponse {
        if !self.server.line().is_closed() {
            self.hall.cancel_active(active, self.who.name.clone()).await;
            active.ended().await;
        }
        told(Told::under_way(&active.run_id))
    }

    /// The caller has waited long enough.
    async fn later(&self, active: &Active, shape: Shape) -> CallToolResponse {
        if self.has_tasks() {
            self.server.remember(active.run_id.clone(), shape);
            // The same times that the task has when it is looked at.
            let row = self.hall.row(self.who, &active.run_id).await;
            let times = row.map_or((now_ms(), now_ms()), |row| (row.started_ms, row.updated_ms));
            let (created, updated) = (rfc3339(times.0), rfc3339(times.1));
            let task = Task::new(&*active.run_id, TaskStatus::Working, created, updated);
            return CreateTaskResult::new(task.with_poll_interval_ms(POLL_MS)).into();
        }
        told(Told::under_way(&active.run_id))
    }

    fn patience(&self, is_told: bool) -> Duration {
        let limits = self.hall.limits();
        match (self.has_tasks(), is_told) {
            (true, _) => TASK_AFTER.min(Duration::from_millis(limits.served_wait_ms)),
            (false, true) => Duration::from_millis(limits.served_wait_ms_max),
            (false, false) => Duration::from_millis(limits.served_wait_ms),
        }
    }

    fn input_required(&self, forms: &BTreeMap<String, Form>, state: &State) -> Answer {
        let bound = bound_to(&self.who.name, self.tool, self.args);
        let sealed = self.server.seal().seal(state, &bound);
        let requests: Result<_, ErrorData> = forms
            .iter()
            .map(|(name, form)| Ok((name.clone(), wire::input_request(form)?)))
            .collect();
        Ok(InputRequiredResult::new(Some(requests?), Some(sealed)).into())
    }

    /// How this caller is told of a run.
    pub(super) fn telling(&self, shape: Shape) -> Telling {
        let limits = self.hall.limits();
        let bytes_max = limits.served_result_bytes_max;
        let content_bytes_max = limits.served_content_bytes_max;
        Telling { shape, bytes_max, content_bytes_max, can_ask: self.way() != Way::None }
    }

    fn way(&self) -> Way {
        if !self.who.may(Right::Approve) {
            return Way::None;
        }
        let capabilities = self.context.client_capabilities();
        let elicitation = capabilities.and_then(|capabilities| capabilities.elicitation);
        // Without a word of which kind, forms are meant.
        let has_forms = elicitation.is_some_and(|e| e.form.is_some() || e.url.is_none());
        match (has_forms, is_modern(self.context)) {
            (false, _) => Way::None,
            (true, true) => Way::InputRequired,
            (true, false) => Way::Elicitation,
        }
    }

    fn has_tasks(&self) -> bool {
        let capabilities = self.context.client_capabilities();
        is_modern(self.context) && capabilities.is_some_and(|c| c.supports_tasks())
    }

    /// Whose word an answer is, as far as it is known.
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

/// An answer.
pub(super) fn told(told: Told) -> CallToolResponse {
    wire::result(told).into()
}

/// Whether a request is of the era without `initialize`.
pub(super) fn is_modern(context: &RequestContext<RoleServer>) -> bool {
    let version = context.protocol_version();
    version.is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str())
}

/// The forms of questions, by their names.
pub(super) fn forms(active: &Active, questions: &[Arc<Asked>]) -> BTreeMap<String, Form> {
    let form = |asked: &Arc<Asked>| question::form(&active.composition, &asked.question);
    questions.iter().map(|asked| (key(asked), form(asked))).collect()
}

/// The forms of questions that wait in the store, by their names.
pub(super) fn stored_forms(composition: &str, questions: &[Question]) -> BTreeMap<String, Form> {
    let form = |asked: &Question| question::form(composition, asked);
    questions.iter().map(|asked| (asked.step.to_string(), form(asked))).collect()
}

fn unknown_task(error: &EngineError) -> ErrorData {
    ErrorData::invalid_params(format!("there is no such task: {error}"), None)
}

fn unusable(why: &str) -> ErrorData {
    ErrorData::invalid_params(format!("this requestState cannot be used: {why}"), None)
}

/// The name of a question: that of its step, which asks one thing at a time.
fn key(asked: &Asked) -> String {
    asked.question.step.to_string()
}

fn parse_reply(response: &serde_json::Value) -> Reply {
    serde_json::from_value(response.clone()).map_or(Reply::Dismissed, wire::reply)
}

/// Tells a caller who wants to know it how a run goes.
struct Progress<'a> {
    context: &'a RequestContext<RoleServer>,
    run_id: Arc<str>,
    token: Option<ProgressToken>,
    total: Option<f64>,
    told: f64,
    told_steps: u32,
    /// What of a call's own progress was told.
    told_calls: u64,
    /// How often something was said although nothing is over.
    said: f64,
    told_at: Instant,
}

impl<'a> Progress<'a> {
    fn new(context: &'a RequestContext<RoleServer>, active: &Active) -> Progress<'a> {
        Progress {
            context,
            run_id: active.run_id.clone(),
            token: context.meta.get_progress_token(),
            total: active.steps.map(f64::from),
            told: 0.0,
            told_steps: 0,
            told_calls: 0,
            said: 0.0,
            told_at: Instant::now(),
        }
    }

    fn is_wanted(&self) -> bool {
        self.token.is_some()
    }

    /// Resolves when nothing was said for so long that the caller may think nobody is there.
    async fn silence(&self) {
        if self.is_wanted() {
            tokio::time::sleep_until(self.told_at + SILENCE_MAX).await;
        } else {
            std::future::pending::<()>().await;
        }
    }

    /// Says that steps are over, or that a call has got further, if it was not said just now.
    async fn tell(&mut self, standing: &Standing) {
        let is_over = standing.steps_done > self.told_steps;
        let is_first = self.told_steps == 0 && self.told_calls == 0;
        if !is_first && self.told_at.elapsed() < SILENCE_MIN {
            return;
        }
        if is_over {
            self.say(f64::from(standing.steps_done), standing).await;
        } else if standing.progressed > self.told_calls {
            self.break_silence(standing).await;
        }
    }

    /// Says something although nothing is over. It has to be more than before, and less than a step:
    /// what a call says of itself, where that is more; else a part of what is left, a smaller one each
    /// time, so that there is always some left.
    async fn break_silence(&mut self, standing: &Standing) {
        self.said += 1.0;
        let next = self.told.floor() + 1.0;
        let least = self.told + (next - self.told) / (self.said + 1.0);
        let part = standing.fraction.filter(|part| *part < 1.0).unwrap_or(0.0);
        let own = f64::from(standing.steps_done) + part;
        self.say(if own > self.told { own } else { least }, standing).await;
    }

    async fn say(&mut self, progress: f64, standing: &Standing) {
        if progress.floor() > self.told.floor() {
            self.said = 0.0;
        }
        (self.told, self.told_steps, self.told_at) =
            (progress, standing.steps_done, Instant::now());
        self.told_calls = standing.progressed;
        let Some(token) = self.token.clone() else { return };
        let mut params = ProgressNotificationParam::new(token, progress);
        params.total = self.total;
        params.message = Some(standing.message.to_string());
        // Whoever loses us in the middle knows what to ask for afterwards.
        let mut meta = NotificationMetaObject::new();
        meta.insert(wire::RUN_ID.to_owned(), (*self.run_id).into());
        params.meta = Some(meta);
        let notification = ProgressNotification::new(params);
        let _ = self.context.peer.send_notification(notification.into()).await;
    }
}
