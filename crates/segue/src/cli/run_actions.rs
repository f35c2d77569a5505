//! `segue resume`, `cancel`, `rollback` and `approve`: commands to a stored run.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use futures_util::FutureExt as _;
use segue_core::run::{Question, QuestionKind};
use segue_core::view::{RunStatus, RunView, WaitView};
use segue_runtime::confirm::Defer;
use segue_runtime::driver::{NoObserver, RunCommand};
use segue_runtime::engine::{EngineError, LoadedRun, Recovered, ResumeRequest};
use segue_runtime::store::{Due, RunRow, StoreError, TakeOver};

use super::current_user::current_user;
use super::error::{engine_error, input_error, report_error, store_error};
use super::prompt::{ApproveInAdvance, confirmer};
use super::run_view::show;
use super::{Exit, Global, completions, input, progress};
use crate::api::error::Error;
use crate::api::questions::waiting_text;
use crate::api::requests::{ApproveRun, Assume, ResumeRun};
use crate::api::runs::act::{RunAction, may_answer, open_question};
use crate::app::service::dispatcher;
use crate::app::signals::interrupted;
use crate::app::{App, ServerSelection};
use crate::observe::{Observers, RequestOrigin};
use crate::print::{print_error, print_note, print_status};

/// Resume a run that was interrupted or waits for a person
///
/// Drives the run to its end and prints its output, as `segue run` does.
#[derive(Args, Debug)]
#[command(override_usage = "segue resume [OPTIONS] <RUN>\n       segue resume [OPTIONS] --all")]
pub(super) struct ResumeArgs {
    /// The run: its id, the start or the end of its id, or `last`
    #[arg(value_name = "RUN", required_unless_present = "all", add = completions::runs())]
    run: Option<String>,
    /// Resume every interrupted run
    #[arg(long, conflicts_with_all = ["run", "assume", "yes"])]
    all: bool,
    /// Settle a call in doubt: whether it took effect
    #[arg(long, value_name = "OUTCOME", value_parser = assume_parser())]
    assume: Option<Assume>,
    /// With `--assume done`: the result of the call
    #[arg(long = "value", value_name = "JSON", requires = "assume")]
    value: Option<String>,
    /// With `--assume`: the step, if several are in doubt
    #[arg(long, value_name = "STEP", requires = "assume")]
    step: Option<String>,
    /// Take the run over from the process that runs it, even if that process is alive
    #[arg(long)]
    take_over: bool,
    /// Approve every call that asks for confirmation, from now on
    #[arg(long)]
    yes: bool,
}

/// Cancel a run
///
/// If another process runs it, that process gets the command. `segue rollback` also rolls back what the
/// run did.
#[derive(Args, Debug)]
pub(super) struct CancelArgs {
    /// The run: its id, the start or the end of its id, or `last`
    #[arg(add = completions::runs())]
    run: String,
    /// Take the run over from the process that runs it, even if that process is alive
    #[arg(long)]
    take_over: bool,
}

/// Roll back what a run did
///
/// Calls the rollback of every step that is done, the last one first.
#[derive(Args, Debug)]
pub(super) struct RollbackArgs {
    /// The run: its id, the start or the end of its id, or `last`
    #[arg(add = completions::runs())]
    run: String,
    /// Approve every call that asks for confirmation
    #[arg(long)]
    yes: bool,
}

/// Approve or deny the question that a run waits for, and resume it
///
/// For example: `segue approve last -i reason="checked by hand"`
#[derive(Args, Debug)]
pub(super) struct ApproveArgs {
    /// The run: its id, the start or the end of its id, or `last`
    #[arg(add = completions::runs())]
    run: String,
    /// Deny instead of approve
    #[arg(long)]
    deny: bool,
    /// The step that asks, if several do
    #[arg(long, value_name = "STEP")]
    step: Option<String>,
    /// A value that the question asks for: `name=value` or `name:=JSON`
    #[arg(short, value_name = "NAME=VALUE", conflicts_with = "deny")]
    input: Vec<String>,
    /// Also approve every later call that asks for confirmation
    #[arg(long, conflicts_with = "deny")]
    yes: bool,
}

/// Parses what became of a call in doubt.
fn assume_parser() -> impl TypedValueParser<Value = Assume> {
    let done = PossibleValue::new("done").help("The call took effect");
    let failed = PossibleValue::new("failed").help("The call had no effect");
    let parser = PossibleValuesParser::new([done, failed]);
    parser.map(|word| if word == "done" { Assume::Done } else { Assume::Failed })
}

/// The pause between two looks at a run of another process.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// How a command acts on a run: whose run it may take, and whether it approves in advance.
#[derive(Clone, Copy)]
struct ActOptions {
    take_over: TakeOver,
    approves: bool,
}

pub(super) fn resume(global: &Global, args: &ResumeArgs) -> Exit {
    let Some(run) = &args.run else { return resume_all(global) };
    let options = ActOptions { take_over: take_over_mode(args.take_over), approves: args.yes };
    act(global, run, options, |app, _| {
        let json = |text: &String| input::json("--value", text, app.engine.limits());
        let value = args.value.as_ref().map(json).transpose().map_err(input_error)?;
        let step = args.step.as_deref().map(Arc::from);
        Ok(RunAction::Resume(ResumeRun { assume: args.assume, value, step }))
    })
}

pub(super) fn cancel(global: &Global, args: &CancelArgs) -> Exit {
    let options = ActOptions { take_over: take_over_mode(args.take_over), approves: false };
    act(global, &args.run, options, |_, _| Ok(RunAction::Cancel))
}

fn take_over_mode(takes_over: bool) -> TakeOver {
    if takes_over { TakeOver::Force } else { TakeOver::IfAbandoned }
}

pub(super) fn rollback(global: &Global, args: &RollbackArgs) -> Exit {
    let options = ActOptions { take_over: TakeOver::Reopen, approves: args.yes };
    act(global, &args.run, options, |_, _| Ok(RunAction::RollBack))
}

/// The exit code after a command: a rollback or a cancellation that was requested is a success.
fn exit_after(command: &RunCommand, status: RunStatus, exit: Exit) -> Exit {
    match (command, status) {
        (RunCommand::RollBack { .. } | RunCommand::Cancel { .. }, RunStatus::RolledBack)
        | (RunCommand::Cancel { .. }, RunStatus::Cancelled) => Exit::Success,
        _ => exit,
    }
}

pub(super) fn approve(global: &Global, args: &ApproveArgs) -> Exit {
    let options = ActOptions { take_over: TakeOver::IfAbandoned, approves: args.yes };
    act(global, &args.run, options, |app, stored| {
        let question = open_question(stored, args.step.as_deref(), false)?;
        let schema = match &question.kind {
            QuestionKind::Approval { schema, .. } => schema.clone(),
            _ => None,
        };
        let data = match &*args.input {
            [] => None,
            input => {
                let limits = app.engine.limits();
                Some(input::read(None, input, schema.as_deref(), limits).map_err(input_error)?)
            }
        };
        show_answered(global, stored, &question);
        let step = Some(question.step);
        Ok(RunAction::Approve(ApproveRun { approved: !args.deny, step, data }))
    })
}

/// Prints the question that is being answered, so that a person sees what the answer covers.
fn show_answered(global: &Global, stored: &LoadedRun, question: &Question) {
    if global.quiet || global.is_json() {
        return;
    }
    let view = stored.view();
    let is_it = |wait: &&WaitView| wait.kind != "doubt" && wait.step == question.step;
    if let Some(wait) = view.waiting_for.iter().find(is_it) {
        print_status(&format!("step `{}` asks: {}", wait.step, waiting_text(wait)));
    }
}

fn act(
    global: &Global,
    run: &str,
    options: ActOptions,
    action: impl FnOnce(&App, &LoadedRun) -> Result<RunAction, Error>,
) -> Exit {
    let app = match global.open_stored(&ServerSelection::Recorded) {
        Ok(app) => app,
        Err(exit) => return exit,
    };
    let runtime = app.runtime();
    let stored = runtime.block_on(super::runs::stored(&app, run));
    let commanded = stored.and_then(|stored| {
        let rules = app.config.server.approvals;
        if options.approves {
            may_answer(rules, None, &stored)?;
        }
        let command = action(&app, &stored)?.command(&stored, &current_user(), None, rules)?;
        Ok((stored, command))
    });
    let (stored, command) = match commanded {
        Ok(commanded) => commanded,
        Err(error) => return report_error(&error),
    };
    let observing = app.observers();
    runtime.block_on(execute(global, &app, &stored, (command, options), &observing))
}

/// Drives the run here; if another process drives it, sends the command there and follows the run.
async fn execute(
    global: &Global,
    app: &App,
    stored: &LoadedRun,
    (command, options): (RunCommand, ActOptions),
    observing: &Observers,
) -> Exit {
    let progress = progress::for_plan(global, &stored.plan);
    let mut confirmer = match may_answer(app.config.server.approvals, None, stored) {
        Ok(()) => confirmer(&progress, Defer),
        Err(_) => Box::new(Defer),
    };
    if options.approves {
        confirmer = Box::new(ApproveInAdvance(confirmer));
    }
    let run_id = &stored.row.run_id;
    let outcome = loop {
        let origin = RequestOrigin::default();
        let watch = observing.watch(progress.observer(), &stored.row.name, &origin);
        let request = ResumeRequest {
            command: command.clone(),
            take_over: options.take_over,
            confirmer: &*confirmer,
            observer: &watch,
            cancel: Box::pin(interrupted(app.engine.store()).map(|()| current_user())),
            ..ResumeRequest::new(run_id.clone())
        };
        let outcome = app.engine.resume(request).await;
        if let Err(error) = &outcome
            && error.is_of_this_process()
            && app.engine.store().is_shared()
        {
            print_note(&format!("{error}: the command is left to the workers"));
            break left_to_workers(app, run_id, &command).await;
        }
        let is_owned = matches!(outcome, Err(EngineError::Store(StoreError::Owned { .. })));
        if !is_owned || command == RunCommand::Resume {
            break outcome;
        }
        // Another process drives the run and carries out the command.
        match app.engine.send_command(run_id, &command).await {
            Ok(true) => break app.engine.follow(run_id).await,
            Ok(false) => {}
            Err(error) => break Err(error),
        }
    };
    progress.finish();
    match outcome {
        Ok(view) => exit_after(&command, view.status, show(global, &view)),
        Err(EngineError::Store(StoreError::Ended { .. }))
            if command == RunCommand::Resume && global.is_json() =>
        {
            print_status("the run has ended already; nothing was resumed");
            show(global, &stored.view())
        }
        Err(error) => report_error(&engine_error(error)),
    }
}

/// Leaves a command to the process that drives the run next, and follows the run. Ctrl-C ends only that.
async fn left_to_workers(
    app: &App,
    run_id: &Arc<str>,
    command: &RunCommand,
) -> Result<RunView, EngineError> {
    let engine = &app.engine;
    let posted = engine.post_command(run_id, command).await?;
    if let Ok(Some(dispatcher)) = dispatcher(&app.config)
        && let Err(error) = dispatcher.dispatch(run_id, Due::Now).await
    {
        print_note(&format!("{error}; the run is sent again later"));
    }
    let acted = async {
        while !engine.is_taken(&posted).await? {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        engine.follow(run_id).await
    };
    tokio::select! {
        outcome = acted => outcome,
        () = interrupted(engine.store()) => Ok(engine.load_run(run_id).await?.view()),
    }
}

/// The help for a run that is set aside.
pub(super) const SET_ASIDE_HELP: &str =
    "`segue resume RUN` resumes it, `segue cancel RUN` cancels it";

/// The outcomes of `segue resume --all`.
#[derive(Default)]
struct RecoveryCounts {
    resumed: usize,
    waiting: usize,
    not_resumed: usize,
    interrupted: bool,
    failed: bool,
}

impl RecoveryCounts {
    /// Counts and prints the outcome of one run.
    fn add(&mut self, Recovered { run_id, waited, outcome }: Recovered) {
        match outcome {
            Ok(view) => {
                self.failed |= view.status != RunStatus::Waiting && !view.success;
                self.interrupted |= view.status == RunStatus::Cancelled;
                let waits = view.status == RunStatus::Waiting;
                self.waiting += usize::from(waits);
                if !(waits && waited) {
                    self.resumed += 1;
                    print_status(&format!("{run_id} {}: {}", view.name, view.status.as_str()));
                }
            }
            // A process with another configuration may have the tool.
            Err(error @ EngineError::MissingTool { .. }) => {
                self.not_resumed += 1;
                print_status(&format!("{run_id} was not resumed: {error}"));
            }
            Err(EngineError::Store(error @ StoreError::SetAside { .. })) => {
                self.not_resumed += 1;
                print_error(&error.to_string(), Some(SET_ASIDE_HELP));
            }
            // The message names the run.
            Err(EngineError::Store(error)) => {
                self.failed = true;
                report_error(&store_error(error));
            }
            Err(error) => {
                self.failed = true;
                let error = engine_error(error);
                print_error(&format!("{run_id}: {error}"), error.help.as_deref());
            }
        }
    }

    fn summary(&self) -> String {
        let runs = |count| if count == 1 { "1 run".to_owned() } else { format!("{count} runs") };
        let mut parts = vec![format!("{} resumed", runs(self.resumed))];
        if self.waiting > 0 {
            let wait = if self.waiting == 1 { "waits" } else { "wait" };
            parts.push(format!("{} {wait} for a person", self.waiting));
        }
        if self.not_resumed > 0 {
            parts.push(format!("{} not resumed", self.not_resumed));
        }
        parts.join(" · ")
    }

    fn exit(&self) -> Exit {
        match self {
            RecoveryCounts { interrupted: true, .. } => Exit::Interrupted,
            RecoveryCounts { failed: true, .. } => Exit::RunFailed,
            RecoveryCounts { waiting: 1.., .. } => Exit::Denied,
            _ => Exit::Success,
        }
    }
}

/// Resumes every run that no process owns.
fn resume_all(global: &Global) -> Exit {
    let app = match global.open_stored(&ServerSelection::Recorded) {
        Ok(app) => app,
        Err(exit) => return exit,
    };
    let observing = app.observers();
    let mut counts = RecoveryCounts::default();
    let outcome = app.runtime().block_on(async {
        let watch =
            |row: &RunRow| observing.watch(&NoObserver, &row.name, &RequestOrigin::default());
        // Shared by all runs, so that the signal is reported once.
        let interrupted = interrupted(app.engine.store()).map(|()| current_user()).boxed().shared();
        let cancel = || interrupted.clone().boxed();
        app.engine.recover_observed(watch, cancel, |one| counts.add(one)).await
    });
    if let Err(error) = outcome {
        return report_error(&engine_error(error));
    }
    if !global.quiet {
        print_status(&counts.summary());
    }
    counts.exit()
}
