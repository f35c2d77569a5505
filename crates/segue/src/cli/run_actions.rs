//! `segue resume`, `cancel`, `rollback` and `approve`: commands to a stored run.

use clap::{Args, ValueEnum};
use futures_util::FutureExt as _;
use segue_core::run::{Question, QuestionKind};
use segue_core::value::Value;
use segue_core::view::{RunStatus, WaitView};
use segue_runtime::confirm::Defer;
use segue_runtime::driver::{NoObserver, RunCommand};
use segue_runtime::engine::{EngineError, LoadedRun, Recovered, ResumeRequest};
use segue_runtime::store::{RunRow, StoreError, TakeOver};

use super::current_user::current_user;
use super::prompt::{ApproveInAdvance, confirmer};
use super::run_ids::find;
use super::run_view::show;
use super::{Exit, Global, completions, input, progress};
use crate::api::questions::{AmbiguousQuestion, data_error, find_question, waiting_text};
use crate::app::signals::interrupted;
use crate::app::{App, ServerSelection};
use crate::observe::{Observers, RequestOrigin};
use crate::print::{print_error, print_status};

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
    #[arg(long, value_name = "OUTCOME")]
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

/// Whether a call in doubt took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Assume {
    /// The call took effect
    Done,
    /// The call had no effect
    Failed,
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

/// A command to a run, whose run it may take, and whether it approves in advance.
struct ActOptions {
    command: RunCommand,
    take_over: TakeOver,
    approves: bool,
}

impl ActOptions {
    fn new(command: RunCommand) -> ActOptions {
        ActOptions { command, take_over: TakeOver::IfAbandoned, approves: false }
    }
}

pub(super) fn resume(global: &Global, args: &ResumeArgs) -> Exit {
    let Some(run) = &args.run else { return resume_all(global) };
    let take_over = take_over_mode(args.take_over);
    act(global, run, |app, stored| {
        let act =
            ActOptions { take_over, approves: args.yes, ..ActOptions::new(RunCommand::Resume) };
        let Some(assume) = args.assume else { return Ok(act) };
        let question = open_question(stored, args.step.as_deref(), true)?;
        let data = match &args.value {
            None => Value::Null,
            Some(text) => input::json("--value", text, app.engine.limits())?,
        };
        if let Some(misfit) = data_error(&question, &data, &stored.plan) {
            return Err(misfit);
        }
        let granted = assume == Assume::Done;
        Ok(ActOptions { command: answer(&question, granted, data), ..act })
    })
}

pub(super) fn cancel(global: &Global, args: &CancelArgs) -> Exit {
    let take_over = take_over_mode(args.take_over);
    act(global, &args.run, |_, _| {
        Ok(ActOptions { take_over, ..ActOptions::new(RunCommand::Cancel { by: current_user() }) })
    })
}

fn take_over_mode(takes_over: bool) -> TakeOver {
    if takes_over { TakeOver::Force } else { TakeOver::IfAbandoned }
}

pub(super) fn rollback(global: &Global, args: &RollbackArgs) -> Exit {
    act(global, &args.run, |_, _| {
        Ok(ActOptions {
            take_over: TakeOver::Reopen,
            approves: args.yes,
            ..ActOptions::new(RunCommand::RollBack { by: current_user() })
        })
    })
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
    act(global, &args.run, |app, stored| {
        let question = open_question(stored, args.step.as_deref(), false)?;
        let schema = match &question.kind {
            QuestionKind::Approval { schema, .. } => schema.clone(),
            _ => None,
        };
        let data = if args.input.is_empty() {
            Value::Null
        } else {
            input::read(None, &args.input, schema.as_deref(), app.engine.limits())?
        };
        if let Some(misfit) = data_error(&question, &data, &stored.plan).filter(|_| !args.deny) {
            return Err(misfit);
        }
        show_answered(global, stored, &question);
        let command = answer(&question, !args.deny, data);
        Ok(ActOptions { approves: args.yes, ..ActOptions::new(command) })
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

/// The open question of a run: about a call in doubt, or any other.
fn open_question(
    stored: &LoadedRun,
    step: Option<&str>,
    is_doubt: bool,
) -> Result<Question, String> {
    find_question(&stored.run, step, is_doubt).map_err(|unclear| match (unclear, step) {
        (AmbiguousQuestion::Several(steps), _) => {
            let steps: Vec<String> = steps.iter().map(|step| format!("`{step}`")).collect();
            format!("several steps ask a question; choose one with `--step`: {}", steps.join(", "))
        }
        (AmbiguousQuestion::None, Some(step)) => {
            format!("step `{step}` has no question of this kind")
        }
        (AmbiguousQuestion::None, None) if is_doubt => "no call is in doubt in this run".to_owned(),
        (AmbiguousQuestion::None, None) => "this run has no open question".to_owned(),
    })
}

fn act(
    global: &Global,
    run: &str,
    wanted: impl FnOnce(&App, &LoadedRun) -> Result<ActOptions, String>,
) -> Exit {
    let app = match global.open_stored(&ServerSelection::Recorded) {
        Ok(app) => app,
        Err(exit) => return exit,
    };
    let runtime = app.runtime();
    let stored = runtime.block_on(async {
        let run_id = find(&app, run).await?;
        app.engine.load_run(&run_id).await.map_err(|error| error.to_string())
    });
    let wanted = stored.and_then(|stored| wanted(&app, &stored).map(|act| (stored, act)));
    let (stored, act) = match wanted {
        Ok(wanted) => wanted,
        Err(message) => {
            print_error(&message, None);
            return Exit::Usage;
        }
    };
    let observing = app.observers();
    runtime.block_on(execute(global, &app, &stored, act, &observing))
}

/// Drives the run here; if another process drives it, sends the command there and follows the run.
async fn execute(
    global: &Global,
    app: &App,
    stored: &LoadedRun,
    act: ActOptions,
    observing: &Observers,
) -> Exit {
    let progress = progress::for_plan(global, &stored.plan);
    let mut confirmer = confirmer(&progress, Defer);
    if act.approves {
        confirmer = Box::new(ApproveInAdvance(confirmer));
    }
    let run_id = &stored.row.run_id;
    let outcome = loop {
        let origin = RequestOrigin::default();
        let watch = observing.watch(progress.observer(), &stored.row.name, &origin);
        let request = ResumeRequest {
            command: act.command.clone(),
            take_over: act.take_over,
            confirmer: &*confirmer,
            observer: &watch,
            cancel: Box::pin(interrupted(app.engine.store()).map(|()| current_user())),
            ..ResumeRequest::new(run_id.clone())
        };
        let outcome = app.engine.resume(request).await;
        let is_owned = matches!(outcome, Err(EngineError::Store(StoreError::Owned { .. })));
        if !is_owned || act.command == RunCommand::Resume {
            break outcome;
        }
        // Another process drives the run and carries out the command.
        match app.engine.send_command(run_id, &act.command).await {
            Ok(true) => break app.engine.follow(run_id).await,
            Ok(false) => {}
            Err(error) => break Err(error),
        }
    };
    progress.finish();
    match outcome {
        Ok(view) => exit_after(&act.command, view.status, show(global, &view)),
        Err(EngineError::Store(StoreError::Ended { .. }))
            if act.command == RunCommand::Resume && global.is_json() =>
        {
            print_status("the run has ended already; nothing was resumed");
            show(global, &stored.view())
        }
        Err(error) => {
            print_error(&error.to_string(), help_for(&error).as_deref());
            Exit::RunFailed
        }
    }
}

/// The help for an error of the engine.
pub(super) fn help_for(error: &EngineError) -> Option<String> {
    let help = match error {
        EngineError::Stopped { run_id, .. } => {
            return Some(format!("nothing is lost; `segue resume {run_id}` resumes it"));
        }
        EngineError::Store(StoreError::Owned { .. }) => {
            "another process is running it; `segue runs show RUN --watch` follows it"
        }
        EngineError::Store(StoreError::Ended { .. }) => {
            "`segue rollback RUN` rolls back what it did, `segue run` starts a new run"
        }
        EngineError::DefinitionChanged { .. } => {
            "restore the tool's former definition, or `segue cancel RUN` and run it again"
        }
        EngineError::NotReceived { .. } => {
            "`segue cancel RUN --take-over` cancels a run whose process hangs, `segue resume RUN \
             --take-over` resumes it"
        }
        EngineError::MissingTool { is_untrusted: true, .. } => {
            "the run is unchanged; read the configuration, then run `segue trust`"
        }
        EngineError::MissingTool { .. } => {
            "the run is unchanged; resume it where the tool is configured, or with `--config FILE`; \
             `segue cancel RUN` cancels it"
        }
        _ => return None,
    };
    Some(help.to_owned())
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
            Err(error @ EngineError::Store(_)) => {
                self.failed = true;
                print_error(&error.to_string(), help_for(&error).as_deref());
            }
            Err(error) => {
                self.failed = true;
                print_error(&format!("{run_id}: {error}"), help_for(&error).as_deref());
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
        print_error(&error.to_string(), None);
        return Exit::RunFailed;
    }
    if !global.quiet {
        print_status(&counts.summary());
    }
    counts.exit()
}

/// The answer to one question. The run asks every other one.
fn answer(question: &Question, granted: bool, data: Value) -> RunCommand {
    RunCommand::Decide { question: question.id, granted, by: current_user(), data }
}
