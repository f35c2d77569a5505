//! Acting on a run: cancel, roll back, resume, approve.

use std::sync::Arc;
use std::time::Duration;

use segue_core::access::{ApprovalRules, Principal};
use segue_core::diagnostic::Code;
use segue_core::run::Question;
use segue_core::value::Value;
use segue_core::view::{RunStatus, RunView, Timestamp};
use segue_runtime::driver::RunCommand;
use segue_runtime::driver::now_ms;
use segue_runtime::engine::{EngineError, LoadedRun};
use segue_runtime::store::{StoreError, TakeOver};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::RunService;
use super::handle::{QuestionPolicy, RunHandle};
use super::recover::Acquire;
use crate::api::error::{Error, ErrorKind};
use crate::api::questions::{AmbiguousQuestion, data_error, find_question};
use crate::api::requests::{ApproveRun, Assume, ResumeRun};

/// What a caller wants of a run.
#[derive(Debug)]
pub enum RunAction {
    /// End it.
    Cancel,
    /// Roll it back.
    RollBack,
    /// Resume it, with what is known of a call that was never answered.
    Resume(ResumeRun),
    /// Answer the question that it waits for, and resume it.
    Approve(ApproveRun),
}

impl RunAction {
    /// The command to the run, in the name of `by`. An answer is checked against its question and against
    /// the rules: `answers` is the principal that answers, or `None` at the command line.
    pub fn command(
        self,
        stored: &LoadedRun,
        by: &Arc<str>,
        answers: Option<&str>,
        rules: ApprovalRules,
    ) -> Result<RunCommand, Error> {
        let allowed = || may_answer(rules, answers, stored);
        match self {
            RunAction::Cancel => Ok(RunCommand::Cancel { by: by.clone() }),
            RunAction::RollBack => Ok(RunCommand::RollBack { by: by.clone() }),
            RunAction::Resume(ResumeRun { assume: None, .. }) => Ok(RunCommand::Resume),
            RunAction::Resume(ResumeRun { assume: Some(assume), value, step }) => {
                allowed()?;
                let (granted, data) = (assume == Assume::Done, value.unwrap_or_default());
                decide(stored, QuestionAnswer { step, granted, data }, true, by)
            }
            RunAction::Approve(ApproveRun { approved, step, data }) => {
                allowed()?;
                let (granted, data) = (approved, data.unwrap_or_default());
                decide(stored, QuestionAnswer { step, granted, data }, false, by)
            }
        }
    }
}

/// Refuses a person that may not answer the questions of a run.
pub fn may_answer(
    rules: ApprovalRules,
    answers: Option<&str>,
    stored: &LoadedRun,
) -> Result<(), Error> {
    let starter = stored.row.caller.as_ref().map(|caller| &*caller.principal);
    let Some(reason) = rules.refusal(answers, starter) else { return Ok(()) };
    Err(Error::forbidden(reason).help(FOUR_EYES).of_run(&stored.row.run_id))
}

/// The help for a person that may not answer.
pub const FOUR_EYES: &str = "`server.approvals.four_eyes` is on: another principal with the right `admin` \
                             answers, or `segue approve` for a run that a principal started";

/// An answer to a question of a run.
struct QuestionAnswer {
    /// The step that asks, when several do.
    step: Option<Arc<str>>,
    /// Yes or no; of a call in doubt: whether it did its work.
    granted: bool,
    /// The data of a yes.
    data: Value,
}

/// Acts on a run, and waits for its end at most so long. The action happens although the caller
/// disconnects.
pub async fn act(
    service: &Arc<RunService>,
    who: &Principal,
    run_id: &str,
    action: RunAction,
    timeout: Duration,
) -> Result<RunView, Error> {
    let (stored, by) = (service.stored(who, run_id).await?, &who.name);
    // A finished run accepts only `rollback`.
    if stored.run.is_finished() && !matches!(action, RunAction::RollBack) {
        let (run_id, status) = (stored.row.run_id.clone(), stored.row.status);
        return Err(StoreError::Ended { run_id, status }.into());
    }
    let command = action.command(&stored, by, Some(by), service.approvals())?;
    let acting = match record(service, who, &stored.row.run_id, command).await? {
        Recorded::Acting(acting) => acting,
        Recorded::Finished(view) => return Ok(*view),
    };
    match tokio::time::timeout(timeout, acting).await {
        Ok(Ok(outcome)) => Ok(outcome?),
        Ok(Err(_)) => Err(panicked()),
        Err(_) => {
            let now = service.stored(who, run_id).await?;
            Ok(current_view(service, who, &now))
        }
    }
}

fn panicked() -> Error {
    Error::internal("the run could not be acted on")
}

/// What became of an action.
pub enum Recorded {
    /// It is durable, and the run goes on.
    Acting(JoinHandle<Result<RunView, EngineError>>),
    /// The run has finished, or waits.
    Finished(Box<RunView>),
}

/// Acts on a run, and waits until that is durable: only then may it be acknowledged. The action happens
/// although the caller disconnects.
pub async fn record(
    service: &Arc<RunService>,
    who: &Principal,
    run_id: &Arc<str>,
    command: RunCommand,
) -> Result<Recorded, Error> {
    let (recorded, mut is_recorded) = watch::channel(false);
    let (service, who, run_id) = (service.clone(), who.clone(), run_id.clone());
    let acting =
        tokio::spawn(
            async move { service.act_until_recorded(&who, &run_id, command, &recorded).await },
        );
    // The task drops the sender when it ends.
    if is_recorded.wait_for(|recorded| *recorded).await.is_ok() {
        return Ok(Recorded::Acting(acting));
    }
    Ok(Recorded::Finished(Box::new(acting.await.map_err(|_| panicked())??)))
}

/// The open question of a run: of a call in doubt, or any other.
pub fn open_question(
    stored: &LoadedRun,
    step: Option<&str>,
    is_doubt: bool,
) -> Result<Question, Error> {
    let found = find_question(&stored.run, step, is_doubt);
    found.map_err(|ambiguous| {
        let error = match (ambiguous, step) {
            (AmbiguousQuestion::Several(steps), _) => {
                let steps: Vec<String> = steps.iter().map(|step| format!("`{step}`")).collect();
                let message = format!("several steps ask a question: {}", steps.join(", "));
                Error::conflict(message).help("`step` chooses one, `--step` on the command line")
            }
            (AmbiguousQuestion::None, Some(step)) => {
                Error::conflict(format!("step `{step}` has no question of this kind"))
            }
            (AmbiguousQuestion::None, None) if is_doubt => {
                Error::conflict("no call is in doubt in this run")
            }
            (AmbiguousQuestion::None, None) => Error::conflict("this run has no open question"),
        };
        error.of_run(&stored.row.run_id)
    })
}

/// The answer to the question that the caller means.
fn decide(
    stored: &LoadedRun,
    answer: QuestionAnswer,
    is_doubt: bool,
    by: &Arc<str>,
) -> Result<RunCommand, Error> {
    let question = open_question(stored, answer.step.as_deref(), is_doubt)?;
    let error = data_error(&question, &answer.data, &stored.plan);
    if let Some(error) = error.filter(|_| answer.granted) {
        return Err(Error::new(ErrorKind::Invalid, Code::InputSchema, error));
    }
    let QuestionAnswer { granted, data, .. } = answer;
    Ok(RunCommand::Decide { question: question.id, granted, by: by.clone(), data })
}

/// The state of a run. One that has started here is running, even if its journal does not say so yet,
/// and its duration grows.
pub fn current_view(service: &RunService, who: &Principal, stored: &LoadedRun) -> RunView {
    brought_up_to_date(service, who, stored.view())
}

/// The same for a view that was made of a journal.
pub(super) fn brought_up_to_date(
    service: &RunService,
    who: &Principal,
    mut view: RunView,
) -> RunView {
    if view.status == RunStatus::Pending && service.handle(who, &view.run_id).is_some() {
        view.status = RunStatus::Running;
    }
    if let (RunStatus::Running, Some(Timestamp(began))) = (view.status, view.started_at) {
        view.duration_ms = view.duration_ms.max(now_ms().saturating_sub(began));
        view.duration = view.duration.max(view.duration_ms.saturating_mul(1_000_000));
    }
    view
}

/// Waits for the end of a run at most so long; the state of a run that goes on, here or after a restart.
pub async fn wait(
    service: &RunService,
    who: &Principal,
    handle: &RunHandle,
    timeout: Duration,
) -> Result<RunView, Error> {
    if let Ok(outcome) = tokio::time::timeout(timeout, handle.ended()).await
        && !handle.is_detached()
    {
        return Ok(outcome.as_ref().clone()?);
    }
    Ok(current_view(service, who, &service.stored(who, &handle.run_id).await?))
}

impl RunService {
    /// Cancels a run of the caller, whichever process drives it.
    pub async fn cancel(
        self: &Arc<RunService>,
        who: &Principal,
        run_id: &str,
    ) -> Result<RunView, Error> {
        let (command, recorded) =
            (RunCommand::Cancel { by: who.name.clone() }, watch::Sender::default());
        Ok(self.act_until_recorded(who, run_id, command, &recorded).await?)
    }

    /// Cancels a run that this process drives, and interrupts its evaluation. Whether that is durable.
    pub async fn cancel_handle(&self, handle: &RunHandle, by: Arc<str>) -> bool {
        handle.cancel(by, || self.full_catalog().engine.stop(&handle.run_id)).await
    }

    /// Acts on a run of the caller, whichever process drives it, and waits until the run has finished or
    /// waits for a person. Says when the action is durable, and may be acknowledged.
    pub(super) async fn act_until_recorded(
        self: &Arc<RunService>,
        who: &Principal,
        run_id: &str,
        command: RunCommand,
        recorded: &watch::Sender<bool>,
    ) -> Result<RunView, EngineError> {
        loop {
            if !self.drives() && self.driven_handle(who, run_id).is_none() {
                return self.act_elsewhere(who, run_id, &command, recorded).await;
            }
            let Some((handle, is_recorded)) = self.deliver(who, run_id, &command).await? else {
                continue;
            };
            if is_recorded {
                recorded.send_replace(true);
            }
            match &*handle.ended().await {
                // Another process drives it, and is told through the store.
                Err(EngineError::Store(StoreError::Owned { .. }))
                    if command != RunCommand::Resume =>
                {
                    let engine = self.full_catalog().engine;
                    if engine.send_command(&handle.run_id, &command).await? {
                        recorded.send_replace(true);
                        return engine.follow(&handle.run_id).await;
                    }
                }
                // Another process that shares the store may have the tools.
                Err(error) if !is_recorded && error.is_of_this_process() && self.is_shared() => {
                    return self.act_elsewhere(who, run_id, &command, recorded).await;
                }
                // This process ends, and the next start resumes the run.
                Err(_) if is_recorded && handle.is_detached() => {
                    return Ok(self.stored(who, run_id).await?.view());
                }
                // It began to wait for a person before it received the action.
                Ok(view) if !is_recorded && view.status == RunStatus::Waiting => {}
                other => return other.clone(),
            }
        }
    }

    /// Hands an action to a run; whether it is durable. Nothing when the run ended meanwhile, and the
    /// caller has to try again.
    async fn deliver(
        self: &Arc<RunService>,
        who: &Principal,
        run_id: &str,
        command: &RunCommand,
    ) -> Result<Option<(Arc<RunHandle>, bool)>, EngineError> {
        let Some(handle) = self.driven_handle(who, run_id) else {
            let row = self.row(who, run_id).await?;
            // A finished run is opened again only to roll it back.
            let take_over = match command {
                RunCommand::RollBack { .. } => TakeOver::Reopen,
                RunCommand::Resume | RunCommand::Cancel { .. } | RunCommand::Decide { .. } => {
                    TakeOver::IfAbandoned
                }
            };
            let acquire = Acquire::Take(take_over);
            let handle = self.resume(&row, command.clone(), acquire, QuestionPolicy::Defer);
            let is_recorded = handle.started().await.is_ok();
            return Ok(Some((handle, is_recorded)));
        };
        let is_recorded = match command {
            RunCommand::Cancel { by } => self.cancel_handle(&handle, by.clone()).await,
            RunCommand::Resume => handle.started().await.is_ok(),
            command => {
                if !self.full_catalog().engine.send_command(&handle.run_id, command).await? {
                    // It ended meanwhile, because it waits for a person.
                    handle.ended().await;
                    return Ok(None);
                }
                true
            }
        };
        Ok(Some((handle, is_recorded)))
    }
}
