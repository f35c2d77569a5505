//! `segue resume`, `cancel`, `rollback`, `approve`: acting on a run that is in the store.

use clap::{Args, ValueEnum};
use futures_util::FutureExt as _;
use segue_core::run::{Question, QuestionKind};
use segue_core::value::Value;
use segue_core::view::{RunStatus, WaitView};
use segue_runtime::driver::{Defer, NoObserver};
use segue_runtime::engine::{EngineError, LoadedRun, Recovered, ResumeRequest, RunCommand};
use segue_runtime::store::{RunRow, StoreError, TakeOver};

use super::app::App;
use super::current_user::current_user;
use super::prompt::confirmer;
use super::run::show;
use super::runs::find;
use super::signals::interrupted;
use super::upstream::ServerSelection;
use super::{Exit, Global, input, print_error, print_status, progress};
use crate::api::questions::{AmbiguousQuestion, data_error, find_question, waiting_text};
use crate::observe::{Observers, RequestOrigin};

/// Go on with a run that was interrupted or waits for a person
#[derive(Args, Debug)]
#[command(override_usage = "segue resume [OPTIONS] <RUN>\n       segue resume [OPTIONS] --all")]
pub(super) struct ResumeArgs {
    /// The run: its id, the beginning or the end of it, or `last`
    #[arg(value_name = "RUN", required_unless_present = "all")]
    run: Option<String>,
    /// Every run that was interrupted
    #[arg(long, conflicts_with_all = ["run", "assume"])]
    all: bool,
    /// What is known of a call that was never answered
    #[arg(long, value_name = "OUTCOME")]
    assume: Option<Assume>,
    /// With `--assume done`: what the call returned
    #[arg(long = "value", value_name = "JSON", requires = "assume")]
    value: Option<String>,
    /// With `--assume`: the step that is meant, when several are in doubt
    #[arg(long, value_name = "STEP", requires = "assume")]
    step: Option<String>,
    /// Take the run from whoever has it, even if it is alive
    #[arg(long)]
    take_over: bool,
}

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Assume {
    /// It did its work
    Done,
    /// It did nothing
    Failed,
}

/// End a run that waits or was interrupted
#[derive(Args, Debug)]
pub(super) struct CancelArgs {
    /// The run: its id, the beginning or the end of it, or `last`
    run: String,
    /// Take the run from whoever has it, even if it is alive
    #[arg(long)]
    take_over: bool,
}

/// Take back what a run did
#[derive(Args, Debug)]
pub(super) struct RollbackArgs {
    /// The run: its id, the beginning or the end of it, or `last`
    run: String,
}

/// Answer the question that a run waits for, and go on
#[derive(Args, Debug)]
pub(super) struct ApproveArgs {
    /// The run: its id, the beginning or the end of it, or `last`
    run: String,
    /// Say no
    #[arg(long)]
    deny: bool,
    /// The step that asks, when several do
    #[arg(long, value_name = "STEP")]
    step: Option<String>,
    /// Data that belongs to the answer: `name=value`, `name:=JSON`
    #[arg(short, value_name = "NAME=VALUE", conflicts_with = "deny")]
    input: Vec<String>,
}

/// What is wanted of a run, in the words of the command line.
struct ActOptions {
    command: RunCommand,
    take_over: TakeOver,
}

impl ActOptions {
    fn new(command: RunCommand) -> ActOptions {
        ActOptions { command, take_over: TakeOver::IfAbandoned }
    }
}

pub(super) fn resume(global: &Global, args: &ResumeArgs) -> Exit {
    let Some(run) = &args.run else { return resume_all(global) };
    let take_over = how(args.take_over);
    act(global, run, |app, stored| {
        let act = ActOptions { take_over, ..ActOptions::new(RunCommand::Resume) };
        let Some(assume) = args.assume else { return Ok(act) };
        let question = the_question(stored, args.step.as_deref(), true)?;
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
    let take_over = how(args.take_over);
    act(global, &args.run, |_, _| {
        Ok(ActOptions { take_over, ..ActOptions::new(RunCommand::Cancel { by: current_user() }) })
    })
}

fn how(takes_over: bool) -> TakeOver {
    if takes_over { TakeOver::Force } else { TakeOver::IfAbandoned }
}

pub(super) fn rollback(global: &Global, args: &RollbackArgs) -> Exit {
    act(global, &args.run, |_, _| {
        Ok(ActOptions {
            take_over: TakeOver::Reopen,
            ..ActOptions::new(RunCommand::RollBack { by: current_user() })
        })
    })
}

/// Whether what was wanted happened: a run that was taken back as somebody wished is no failure.
fn exit_of_wish(wish: &RunCommand, status: RunStatus, exit: Exit) -> Exit {
    match (wish, status) {
        (RunCommand::RollBack { .. } | RunCommand::Cancel { .. }, RunStatus::RolledBack)
        | (RunCommand::Cancel { .. }, RunStatus::Cancelled) => Exit::Success,
        _ => exit,
    }
}

pub(super) fn approve(global: &Global, args: &ApproveArgs) -> Exit {
    act(global, &args.run, |app, stored| {
        let question = the_question(stored, args.step.as_deref(), false)?;
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
        Ok(ActOptions::new(answer(&question, !args.deny, data)))
    })
}

/// Shows the question that is being answered, so that a person sees what the answer covers.
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

/// The question that is meant: of a call in doubt, or any other.
fn the_question(
    stored: &LoadedRun,
    step: Option<&str>,
    is_doubt: bool,
) -> Result<Question, String> {
    find_question(&stored.run, step, is_doubt).map_err(|unclear| match (unclear, step) {
        (AmbiguousQuestion::Several(steps), _) => {
            let steps: Vec<String> = steps.iter().map(|step| format!("`{step}`")).collect();
            format!("several steps ask, say which with `--step`: {}", steps.join(", "))
        }
        (AmbiguousQuestion::None, Some(step)) => format!("step `{step}` asks nothing of this kind"),
        (AmbiguousQuestion::None, None) if is_doubt => "no call is in doubt in this run".to_owned(),
        (AmbiguousQuestion::None, None) => "nothing is asked in this run".to_owned(),
    })
}

fn act(
    global: &Global,
    run: &str,
    wanted: impl FnOnce(&App, &LoadedRun) -> Result<ActOptions, String>,
) -> Exit {
    let app = match App::open_stored(global, &ServerSelection::Recorded, &[]) {
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
    runtime.block_on(go_on(global, &app, &stored, act, &observing))
}

async fn go_on(
    global: &Global,
    app: &App,
    stored: &LoadedRun,
    act: ActOptions,
    observing: &Observers,
) -> Exit {
    let progress = progress::for_plan(global, &stored.plan);
    let confirmer = confirmer(&progress, Defer);
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
        // Somebody drives it: whoever does is told, and does what is wanted.
        match app.engine.send_command(run_id, &act.command).await {
            Ok(true) => break app.engine.follow(run_id).await,
            Ok(false) => {}
            Err(error) => break Err(error),
        }
    };
    match outcome {
        Ok(view) => {
            progress.finish();
            exit_of_wish(&act.command, view.status, show(global, &view))
        }
        Err(error) => {
            print_error(&error.to_string(), help_for(&error).as_deref());
            Exit::RunFailed
        }
    }
}

/// What to do about an error of the engine.
pub(super) fn help_for(error: &EngineError) -> Option<String> {
    let help = match error {
        EngineError::Stopped { run_id, .. } => {
            return Some(format!("nothing is lost; `segue resume {run_id}` goes on with it"));
        }
        EngineError::Store(StoreError::Owned { .. }) => {
            "it is being run now; `segue runs show RUN --watch` follows it"
        }
        EngineError::Store(StoreError::Ended { .. }) => {
            "`segue rollback RUN` takes back what it did, `segue run` starts another"
        }
        EngineError::DefinitionChanged { .. } => {
            "bring the tool back to what it was, or `segue cancel RUN` and run it again"
        }
        EngineError::NotReceived { .. } => {
            "`segue cancel RUN --take-over` ends a run whose process hangs, `segue resume RUN \
             --take-over` goes on with it"
        }
        EngineError::MissingTool { is_untrusted: true, .. } => {
            "it is left as it was; look at the configuration, then run `segue trust`"
        }
        EngineError::MissingTool { .. } => {
            "it is left as it was; go on with it where the tool is configured, or say so with \
             `--config FILE`; `segue cancel RUN` ends it"
        }
        _ => return None,
    };
    Some(help.to_owned())
}

/// What a person may do with a run that is set aside.
pub(super) const SET_ASIDE_HELP: &str =
    "`segue resume RUN` goes on with it, `segue cancel RUN` ends it";

/// What became of the runs that nobody had.
#[derive(Default)]
struct RecoveryCounts {
    went_on: usize,
    waiting: usize,
    left_alone: usize,
    interrupted: bool,
    failed: bool,
}

impl RecoveryCounts {
    /// Tells of one, as soon as it does not go on any more.
    fn tell(&mut self, Recovered { run_id, waited, outcome }: Recovered) {
        match outcome {
            Ok(view) => {
                self.failed |= view.status != RunStatus::Waiting && !view.success;
                self.interrupted |= view.status == RunStatus::Cancelled;
                let waits = view.status == RunStatus::Waiting;
                self.waiting += usize::from(waits);
                if !(waits && waited) {
                    self.went_on += 1;
                    print_status(&format!("{run_id} {}: {}", view.name, view.status.as_str()));
                }
            }
            // Somewhere else it can go on.
            Err(error @ EngineError::MissingTool { .. }) => {
                self.left_alone += 1;
                print_status(&format!("{run_id} is left alone: {error}"));
            }
            Err(EngineError::Store(error @ StoreError::SetAside { .. })) => {
                self.left_alone += 1;
                print_error(&error.to_string(), Some(SET_ASIDE_HELP));
            }
            // Says itself which run it is about.
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
        let mut parts = vec![format!("{} went on", runs(self.went_on))];
        if self.waiting > 0 {
            let wait = if self.waiting == 1 { "waits" } else { "wait" };
            parts.push(format!("{} {wait} for a person", self.waiting));
        }
        if self.left_alone > 0 {
            parts.push(format!("{} left alone", self.left_alone));
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

/// Goes on with every run that nobody has.
fn resume_all(global: &Global) -> Exit {
    let app = match App::open_stored(global, &ServerSelection::Recorded, &[]) {
        Ok(app) => app,
        Err(exit) => return exit,
    };
    let observing = app.observers();
    let mut tally = RecoveryCounts::default();
    let outcome = app.runtime().block_on(async {
        let watch =
            |row: &RunRow| observing.watch(&NoObserver, &row.name, &RequestOrigin::default());
        // One for all of them: it says so once.
        let interrupted = interrupted(app.engine.store()).map(|()| current_user()).boxed().shared();
        let cancel = || interrupted.clone().boxed();
        app.engine.recover_observed(watch, cancel, |one| tally.tell(one)).await
    });
    if let Err(error) = outcome {
        print_error(&error.to_string(), None);
        return Exit::RunFailed;
    }
    if !global.quiet {
        print_status(&tally.summary());
    }
    tally.exit()
}

/// The answer to one question; every other one is asked.
fn answer(question: &Question, granted: bool, data: Value) -> RunCommand {
    RunCommand::Decide { question: question.id, granted, by: current_user(), data }
}
