//! `segue run`

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use futures_util::FutureExt as _;
use segue_core::composition::Strategy;
use segue_core::diagnostic::{Code, Diagnostic, Severity};
use segue_core::plan::{Plan, explain};
use segue_core::planner::StoredPlan;
use segue_core::result;
use segue_core::run::{Options, ReusedStep, TraceContext};
use segue_core::tool::Impact;
use segue_core::value::Value;
use segue_core::view::{ErrorView, RunStatus, RunView, StepStatus, StepView, format_duration};
use segue_runtime::driver::{DenyAll, NoObserver, now_ms};
use segue_runtime::engine::{
    Engine, EngineError, LoadedRun, PlanningError, RunRequest, not_started_view, source_of,
};
use segue_runtime::inject::Fault;

use super::app::{App, print_diagnostics};
use super::current_user::current_user;
use super::progress;
use super::prompt;
use super::record::TestRecording;
use super::run_actions::help_for;
use super::signals::interrupted;
use super::upstream::ServerSelection;
use super::{
    Exit, Global, Output, input, print_data, print_error, print_json, print_status, to_json,
};
use crate::api::questions::waiting_text;
use crate::observe::{Observers, RequestOrigin};
use crate::print::escape_control;

/// Run a composition
#[derive(Args, Debug)]
pub(super) struct RunArgs {
    /// A file, the name of a configured composition, or a plan that was made of words
    #[arg(value_name = "FILE|NAME|PLAN", required_unless_present_any = ["request", "run"])]
    composition: Option<String>,
    /// Execute the plan of this request
    #[arg(long, value_name = "REQUEST", conflicts_with = "composition")]
    request: Option<String>,
    /// Execute a plan once more that was executed already
    #[arg(long)]
    again: bool,
    /// An input: `name=value` by the type of the input, `name:=JSON`, `name=@file`
    #[arg(short, value_name = "NAME=VALUE")]
    input: Vec<String>,
    /// The whole input: JSON, `@file`, or `-` for standard input
    #[arg(long = "input", value_name = "JSON|@FILE|-")]
    whole: Option<String>,
    /// Something that the caller brings along, such as `user_id=7`
    #[arg(long, value_name = "NAME=VALUE")]
    context: Vec<String>,
    /// Show what would be called, and call nothing
    #[arg(long)]
    dry_run: bool,
    /// With `--dry-run`: really call what only reads
    #[arg(long, requires = "dry_run")]
    reads: bool,
    /// Consent to every call that would ask
    #[arg(long)]
    yes: bool,
    /// For the whole run, such as `2m`
    #[arg(long, value_name = "DURATION", value_parser = parse_timeout)]
    timeout: Option<u64>,
    /// Steps that run at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    max_concurrency: Option<u32>,
    /// What a failed step means, in place of the composition's own word
    #[arg(long, value_name = "STRATEGY", value_parser = parse_strategy)]
    error_strategy: Option<Strategy>,
    /// Begin with this step; what comes before it has the values of the run given by `--run`
    #[arg(long, value_name = "STEP", requires = "run", conflicts_with = "dry_run")]
    from: Option<String>,
    /// With `--from`: the earlier run, whose input and composition are used unless others are given
    #[arg(long, value_name = "RUN", requires = "from")]
    run: Option<String>,
    /// Print the result in the shape that the document's own dialect has
    #[arg(long, conflicts_with = "dry_run")]
    dialect_result: bool,
    /// Write a test that tells this run again: `NAME.test.yaml`, or `.json`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["dry_run", "from"])]
    record: Option<PathBuf>,
    /// Break something on purpose: `fail=STEP[:N]`, `slow=STEP:500ms`, `lost=STEP[:N]`,
    /// `rollback-fail=STEP`, `crash-after=N`
    #[arg(long, value_name = "FAULT", conflicts_with = "dry_run")]
    inject: Vec<Fault>,
}

fn parse_timeout(text: &str) -> Result<u64, String> {
    segue_core::compile::dialect::parse_duration(text)
        .ok_or_else(|| "write a number with a unit, such as `500ms`, `30s` or `2m`".to_owned())
}

fn parse_strategy(word: &str) -> Result<Strategy, String> {
    Strategy::parse(word).ok_or_else(|| format!("the words are {}", Strategy::WORDS.join(", ")))
}

pub(super) fn run(global: &Global, args: &RunArgs) -> Exit {
    match prepare(global, args) {
        Ok(prepared) => prepared.run(global, args),
        Err(refusal) => refusal.show(global),
    }
}

/// Why a run did not begin.
struct StartError {
    code: Code,
    message: String,
    help: Option<String>,
    /// Whether the reason has been drawn already.
    said: bool,
    view: Option<Box<RunView>>,
    /// Whether the reason is a source of tools that cannot be reached.
    unreachable: bool,
}

impl StartError {
    fn new(code: Code, message: impl Into<String>) -> StartError {
        let message = message.into();
        StartError { code, message, help: None, said: false, view: None, unreachable: false }
    }

    /// One run view on standard output, whatever happened; the reason on standard error.
    fn show(self, global: &Global) -> Exit {
        if global.is_json() {
            let error = ErrorView::check(self.code, self.message.clone(), self.help.clone());
            let view = self.view.unwrap_or_else(|| Box::new(not_started_view(vec![error])));
            print_json(global, &view);
        }
        if !self.said {
            print_error(&self.message, self.help.as_deref());
        }
        if self.unreachable { Exit::Unreachable } else { Exit::Usage }
    }
}

/// A run that can begin.
struct PreparedRun {
    app: App,
    record: Option<TestRecording>,
    plan: Arc<Plan>,
    input: Value,
    context: Value,
    reused: Vec<ReusedStep>,
    /// The plan that it executes, when that is one that is kept.
    plan_id: Option<Arc<str>>,
}

/// What is to run.
enum Target {
    /// A file, or the name of a configured composition.
    Named(String),
    /// A plan that is kept.
    Stored(Box<StoredPlan>),
    /// What an earlier run executed.
    Earlier(String),
}

impl Target {
    fn of(global: &Global, args: &RunArgs) -> Result<Target, StartError> {
        if let (None, None, Some(run)) = (&args.composition, &args.request, &args.run) {
            return Ok(Target::Earlier(run.clone()));
        }
        let named = args.composition.clone().unwrap_or_default();
        let id = args.request.as_ref().unwrap_or(&named);
        let is_plan = id.starts_with("plan_") && !Path::new(id).exists();
        if args.request.is_none() && !is_plan {
            return Ok(Target::Named(named));
        }
        let unusable = |_| StartError { said: true, ..StartError::new(Code::Config, UNUSABLE) };
        let app = App::open_stored(global, &ServerSelection::Recorded, &[]).map_err(unusable)?;
        let found = app.runtime().block_on(app.engine.find_plan(id));
        found.map(|record| Target::Stored(Box::new(record))).map_err(|error| of_plan(&error))
    }

    /// What it may call, so that only those servers start.
    fn names(&self) -> Vec<&str> {
        match self {
            Target::Named(name) => vec![name],
            Target::Earlier(_) => Vec::new(),
            Target::Stored(record) => {
                let calls = record.document.get("tools").and_then(Value::as_array);
                let calls = calls.into_iter().flat_map(|calls| calls.iter());
                calls.filter_map(|call| call.get("name")?.as_str()).collect()
            }
        }
    }
}

const UNUSABLE: &str = "the configuration cannot be used";

/// Why a plan that is kept is not executed.
fn of_plan(error: &PlanningError) -> StartError {
    StartError { help: error.help(), ..StartError::new(error.code(), error.to_string()) }
}

fn prepare(global: &Global, args: &RunArgs) -> Result<PreparedRun, StartError> {
    let said = |message: &str| StartError { said: true, ..StartError::new(Code::Config, message) };
    let target = Target::of(global, args)?;
    let wanted = match &target {
        Target::Earlier(_) => ServerSelection::Recorded,
        _ => ServerSelection::Compositions(target.names()),
    };
    let record = args.record.as_deref().map(TestRecording::new).transpose();
    let record = record.map_err(|message| StartError::new(Code::Conflict, message))?;
    let app = if args.dry_run {
        App::open(global, &wanted)
    } else {
        let recorder = record.as_ref().map(|record| record.recorder.clone());
        App::open_recorded(global, &wanted, &args.inject, recorder)
    };
    let app = app.map_err(|_| said(UNUSABLE))?;
    let (plan, kept) = planned(global, &app, &target)?;
    for fault in &args.inject {
        fault.check(&plan).map_err(not_found)?;
    }
    let limits = app.engine.limits();
    let schema = plan.composition.input.as_deref();
    let wrong = |message: String| StartError::new(Code::InputSchema, message);
    let input = input::read(args.whole.as_deref(), &args.input, schema, limits).map_err(wrong)?;
    let context = input::read(None, &args.context, None, limits).map_err(wrong)?;
    let mut prepared =
        PreparedRun { app, record, plan, input, context, reused: Vec::new(), plan_id: kept };
    if let (Some(from), Some(run)) = (&args.from, &args.run) {
        prepared
            .take_over(from, run)
            .map_err(|message| StartError::new(Code::NotFound, message))?;
    }
    Ok(prepared)
}

/// The plan to execute, and its id when it is one that is kept.
fn planned(
    global: &Global,
    app: &App,
    target: &Target,
) -> Result<(Arc<Plan>, Option<Arc<str>>), StartError> {
    let (source, kept) = match target {
        Target::Named(name) => (app.find(name).map_err(not_found)?, None),
        Target::Stored(record) => (source_of(record), Some(record.plan_id.clone())),
        Target::Earlier(run) => {
            let missing = |message| StartError::new(Code::NotFound, message);
            let plan = earlier(app, run).map_err(missing)?.plan;
            let unfit = |error: EngineError| {
                let help = help_for(&error);
                StartError { help, ..StartError::new(Code::DefinitionChanged, error.to_string()) }
            };
            app.engine.check_requirements(&plan).map_err(unfit)?;
            return Ok((plan, None));
        }
    };
    let (plan, diagnostics, unreachable) = app.plan(&source);
    let Some(plan) = plan else {
        print_diagnostics(&diagnostics, &source);
        let message = format!("`{}` was not run", source.name());
        let view = Some(Box::new(Engine::compile_failed_view(&diagnostics)));
        return Err(StartError { view, unreachable, ..StartError::new(Code::Parse, message) });
    };
    if !global.quiet {
        let worth_saying = |d: &&Diagnostic| d.severity == Severity::Warning;
        print_diagnostics(
            &diagnostics.iter().filter(worth_saying).cloned().collect::<Vec<_>>(),
            &source,
        );
    }
    if global.verbose {
        print_status(&format!("validated: {} findings, none of them an error", diagnostics.len()));
        let (steps, hash) = (plan.steps.len(), &plan.hash()[..12]);
        print_status(&format!("planned: {steps} steps, hash {hash}"));
    }
    Ok((plan, kept))
}

/// A run that is in the store.
fn earlier(app: &App, run: &str) -> Result<LoadedRun, String> {
    app.runtime().block_on(async {
        let run_id = super::runs::find(app, run).await?;
        app.engine.load_run(&run_id).await.map_err(|error| error.to_string())
    })
}

fn not_found((message, help): (String, Option<String>)) -> StartError {
    StartError { help, ..StartError::new(Code::NotFound, message) }
}

impl PreparedRun {
    /// Takes over what an earlier run has found out, and its input where nothing else is given.
    fn take_over(&mut self, from: &str, run: &str) -> Result<(), String> {
        let stored = earlier(&self.app, run)?;
        let (name, earlier) = (&self.plan.composition.name, stored.run.name());
        if name != earlier {
            return Err(format!("the earlier run is one of `{earlier}`, and not of `{name}`"));
        }
        self.reused = stored.run.reusable_steps(&self.plan, from)?;
        let (input, context) = stored.run.input_and_context();
        self.input = merged(input, &self.input);
        self.context = merged(context, &self.context);
        for (given, option) in [(&self.input, "-i"), (&self.context, "--context")] {
            if let Some(name) = stored.run.redacted_member(given) {
                return Err(format!(
                    "`{name}` is sensitive and was not kept: give it again with `{option} {name}=…`"
                ));
            }
        }
        Ok(())
    }

    fn run(self, global: &Global, args: &RunArgs) -> Exit {
        let PreparedRun { app, record, plan, input, context, reused, plan_id: kept } = self;
        if args.dry_run && !args.reads {
            return show_dry_run(global, &app.engine.dry_run(&plan, input, context));
        }
        let name = plan.composition.name.clone();
        let progress = progress::for_plan(global, &plan);
        let confirmer = prompt::confirmer(&progress, DenyAll);
        let options = Options {
            timeout_ms: args.timeout,
            max_concurrency: args.max_concurrency,
            strategy: args.error_strategy,
            approved: args.yes,
            consented: false,
            // Whoever names a file means it, as with a configuration.
            vouched: args.composition.as_deref().is_some_and(|name| Path::new(name).is_file()),
        };
        let observer = if args.dry_run { &NoObserver } else { progress.observer() };
        let listener = record.map(|record| record.observe_run(&app, &plan, &options, observer));
        let observer = listener.as_ref().map_or(observer, |listener| listener);
        let run_id = app.engine.new_run_id();
        let observing = if args.dry_run { Observers::default() } else { app.observers() };
        let origin = RequestOrigin { trace: asked_within(), ..RequestOrigin::default() };
        let watch = observing.watch(observer, &name, &origin);
        let request = RunRequest {
            plan,
            input,
            context,
            options,
            caller: None,
            trace: observing.trace(&run_id, origin.trace.clone()),
            run_id: Some(run_id),
            reused,
            confirmer: &*confirmer,
            observer: &watch,
            cancel: Box::pin(interrupted(app.engine.store()).map(|()| current_user())),
        };
        let outcome = if args.dry_run {
            app.runtime().block_on(app.engine.run_rehearsal(request))
        } else if let Some(plan_id) = &kept {
            let executing = app.engine.execute_plan(plan_id, args.again, request);
            match app.runtime().block_on(executing) {
                Ok(view) => Ok(view),
                Err(PlanningError::Engine(error)) => Err(error),
                Err(error) => {
                    progress.finish();
                    return of_plan(&error).show(global);
                }
            }
        } else {
            app.runtime().block_on(app.engine.run(request))
        };
        progress.finish();
        let recorded = listener.map(|listener| listener.write(&name));
        let exit = match outcome {
            Ok(view) if args.dry_run => show_dry_run(global, &view),
            Ok(view) if args.dialect_result => show_dialect_result(global, &app, &view),
            Ok(view) => show(global, &view),
            Err(error) => stopped(global, name, &error),
        };
        match recorded {
            None => exit,
            Some(Ok(said)) => {
                print_status(&said);
                exit
            }
            Some(Err(message)) => {
                print_error(&message, None);
                Exit::Usage
            }
        }
    }
}

/// The trace that this command is a part of, as whoever started it says.
fn asked_within() -> Option<TraceContext> {
    TraceContext::parse(&std::env::var("TRACEPARENT").ok()?)
}

/// The store failed. A run that had begun is where it was, and not over: whoever reads that it failed
/// might begin it again.
fn stopped(global: &Global, name: Arc<str>, error: &EngineError) -> Exit {
    let (message, hint) = (error.to_string(), help_for(error));
    if global.is_json() {
        let mut view = not_started_view(vec![ErrorView {
            phase: "store",
            ..ErrorView::check(Code::Internal, message.clone(), hint.clone())
        }]);
        view.name = name;
        if let EngineError::Stopped { run_id, .. } = error {
            (view.run_id, view.status) = (run_id.clone(), RunStatus::Running);
        }
        print_json(global, &view);
    }
    print_error(&message, hint.as_deref());
    Exit::RunFailed
}

/// An object with the members of another in place of its own.
fn merged(earlier: &Value, edited: &Value) -> Value {
    match (earlier, edited) {
        (Value::Object(earlier), Value::Object(edited)) => {
            let mut all = (**earlier).clone();
            all.extend(edited.iter().map(|(name, value)| (name.clone(), value.clone())));
            all.into()
        }
        _ => edited.clone(),
    }
}

/// One thread is enough: calls wait, they do not calculate.
pub(super) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime needs nothing that could be missing")
}

pub(super) fn show(global: &Global, view: &RunView) -> Exit {
    match global.output() {
        Output::Json | Output::Ndjson => print_json(global, view),
        Output::Rich | Output::Plain => {
            if !view.output.is_null() {
                print_data(&to_json(&view.output));
            }
            show_errors(view);
            show_questions(view);
            if !global.quiet {
                print_status(&summary(view));
            }
        }
    }
    exit_code(view)
}

/// The result as the document's dialect has it. A run that did not begin has none.
fn show_dialect_result(global: &Global, app: &App, view: &RunView) -> Exit {
    if view.started_at.is_none() {
        return show(global, view);
    }
    match app.runtime().block_on(app.engine.load_run(&view.run_id)) {
        Ok(stored) => {
            print_json(global, &result::dialect_result(view, &stored.run, &stored.journal));
            if !global.is_json() {
                show_errors(view);
                show_questions(view);
            }
            exit_code(view)
        }
        Err(error) => {
            print_error(&error.to_string(), help_for(&error).as_deref());
            Exit::RunFailed
        }
    }
}

/// A composition that was called as a tool: its output, or what went wrong.
pub(super) fn show_result(view: &RunView) -> Exit {
    if view.success {
        print_data(&to_json(&view.output));
    }
    show_errors(view);
    exit_code(view)
}

/// What a waiting run waits for.
pub(super) fn show_questions(view: &RunView) {
    let waits: Vec<_> = view.waiting_for.iter().filter(|wait| wait.kind != "doubt").collect();
    for wait in &waits {
        let message = format!("step `{}` waits for an answer: {}", wait.step, waiting_text(wait));
        let step = if waits.len() > 1 { format!(" --step '{}'", wait.step) } else { String::new() };
        let help = format!("`segue approve {}{step}`, or with `--deny`", view.run_id);
        print_error(&message, Some(&help));
    }
}

pub(super) fn show_errors(view: &RunView) {
    for error in &view.errors {
        let place = match (&error.step, &error.tool) {
            (Some(step), Some(tool)) => format!("step `{step}` ({tool}): "),
            (Some(step), None) => format!("step `{step}`: "),
            _ => String::new(),
        };
        let doubt = if error.in_doubt { " — it may have done its work nevertheless" } else { "" };
        let message = format!("[{}] {place}{}{doubt}", error.code, error.message);
        print_error(&message, error.hint.as_deref().or_else(|| hint_for(error)));
    }
}

/// How something is given here that a run could not begin without.
fn hint_for(error: &ErrorView) -> Option<&'static str> {
    match (error.phase, error.code) {
        ("check", Code::InputSchema) => {
            Some("`-i name=value` gives an input, `segue plan` shows which there are")
        }
        ("check", Code::PolicyViolation) => Some("`--context name=value` gives it"),
        _ => None,
    }
}

pub(super) fn summary(view: &RunView) -> String {
    let word = view.status.as_str().replace('_', " ");
    let took = match view.started_at {
        // One that waits is not over.
        Some(began) if view.completed_at.is_none() => now_ms().saturating_sub(began.0),
        _ => view.duration_ms,
    };
    format!(
        "{}: {word} · {} of {} steps · {}",
        view.name,
        view.steps_succeeded,
        view.steps.len(),
        format_duration(took)
    )
}

pub(super) fn exit_code(view: &RunView) -> Exit {
    let refused = !view.errors.is_empty() && view.errors.iter().all(|error| error.phase == "check");
    match view.status {
        RunStatus::Success => Exit::Success,
        RunStatus::DryRun if view.success => Exit::Success,
        RunStatus::Denied | RunStatus::Waiting => Exit::Denied,
        RunStatus::Cancelled => Exit::Interrupted,
        // Taken back because it was interrupted is still interrupted.
        _ if view.errors.iter().any(|error| error.code == Code::Cancelled) => Exit::Interrupted,
        _ if refused => Exit::Usage,
        _ if view.errors.iter().any(|error| error.code == Code::Unreachable) => Exit::Unreachable,
        _ => Exit::RunFailed,
    }
}

/// The effect plan: which calls would be made with which arguments, what each would do, and what
/// would take it back.
fn show_dry_run(global: &Global, view: &RunView) -> Exit {
    if global.is_json() {
        print_json(global, view);
        return exit_code(view);
    }
    for step in &view.steps {
        print_data(&effect_line(step));
        if let (Some(_), Value::Object(args)) = (&step.tool, &step.input) {
            args.iter().for_each(|(name, value)| {
                print_data(&format!("    {name}: {}", escape_control(&value.to_json())));
            });
        }
    }
    show_errors(view);
    if !global.quiet && view.status == RunStatus::DryRun {
        print_status(&match view.steps_executed {
            0 => "nothing was called".to_owned(),
            1 => "1 step only reads and was called; nothing else was".to_owned(),
            n => format!("{n} steps only read and were called; nothing else was"),
        });
    }
    exit_code(view)
}

/// `write  builtin:files_write  writes · undo: builtin:files_restore`
fn effect_line(step: &StepView) -> String {
    let what = step.tool.as_deref().unwrap_or(step.kind);
    let mut notes = Vec::new();
    if let Some(would) = &step.would {
        notes.push(explain::effect_label(would.effect).to_owned());
        let changes = !matches!(would.effect, Impact::None | Impact::Reads);
        notes.extend(
            Some(explain::rollback_label(&would.rollback)).filter(|w| changes && !w.is_empty()),
        );
        notes.extend(would.confirms.then(|| "asks first".to_owned()));
        notes.extend(would.called.then(|| "called".to_owned()));
    }
    match step.status {
        StepStatus::Failed => notes.push("failed".to_owned()),
        StepStatus::InDoubt => notes.push("in doubt".to_owned()),
        StepStatus::Cancelled => notes.push("cancelled".to_owned()),
        _ => {}
    }
    notes.extend(step.reason.as_ref().map(|reason| format!("skipped: {reason}")));
    format!("{}  {what}  {}", step.id, notes.join(" · "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_have_their_exit_codes() {
        let view = |status| RunView { status, ..RunView::default() };
        assert_eq!(exit_code(&view(RunStatus::Success)), Exit::Success);
        assert_eq!(exit_code(&view(RunStatus::Partial)), Exit::RunFailed);
        assert_eq!(exit_code(&view(RunStatus::RolledBack)), Exit::RunFailed);
        assert_eq!(exit_code(&view(RunStatus::Denied)), Exit::Denied);
        assert_eq!(exit_code(&view(RunStatus::Cancelled)), Exit::Interrupted);
    }
}
