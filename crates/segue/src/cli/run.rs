//! `segue run`

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use futures_util::FutureExt as _;
use segue_core::diagnostic::{Code, Diagnostic, Severity};
use segue_core::limits::Limits;
use segue_core::plan::{DeclaredCall, Plan};
use segue_core::planner::StoredPlan;
use segue_core::result;
use segue_core::run::{Options, PartTarget, StepSelection, TraceContext};
use segue_core::source::Source;
use segue_core::testing::read_pinned_outputs;
use segue_core::tool::Impact;
use segue_core::value::Value;
use segue_core::view::{ErrorView, RunStatus, RunView};
use segue_runtime::confirm::{Confirmer, Defer, DenyAll};
use segue_runtime::driver::NoObserver;
use segue_runtime::engine::{
    Engine, EngineError, LoadedRun, PlanningError, RunRequest, not_started_view, source_of,
};
use segue_runtime::inject::Fault;
use segue_runtime::store::Due;

use super::current_user::current_user;
use super::error::{engine_error, input_error, planning_error, report_error};
use super::progress;
use super::prompt;
use super::record::TestRecording;
use super::run_view::{exit_code, show, show_dry_run, show_errors, show_questions};
use super::runs::stored;
use super::worker::require_shared;
use super::{Exit, Global, completions, input, print_json};
use crate::api::error::{Details, Error, ErrorKind};
use crate::api::requests::{ErrorStrategy, ExecutionOptions, MaxConcurrency, Timeout};
use crate::api::runs::act::FOUR_EYES;
use crate::api::runs::rerun::{Rerun, RerunError};
use crate::app::service::dispatcher;
use crate::app::signals::interrupted;
use crate::app::{App, AppError, ServerSelection};
use crate::observe::{Observers, RequestOrigin};
use crate::print::{
    print_data, print_diagnostics, print_error, print_note, print_status, print_warning,
};

const EXAMPLES: &str = "\
Examples:
  segue run hello.yaml -i name=Ada           run a file
  segue run hello --input @input.json        run a configured composition
  segue run hello.yaml -i name=Ada --dry-run show the calls without making them";

/// The headings of the options in `--help`.
const PART: &str = "A part of the composition";
const INPUT: &str = "Input";
const CALLS: &str = "Calls and failures";
const EARLIER: &str = "Earlier plans and runs";
const TESTS: &str = "Results and tests";

/// Run a composition
///
/// Prints the output of the run as JSON to standard output, and progress to standard error.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct RunArgs {
    /// A composition file, the name of a configured composition, or the id of a template or a plan
    #[arg(
        value_name = "FILE|NAME|PLAN", required_unless_present_any = ["request", "run"],
        add = completions::compositions()
    )]
    composition: Option<String>,
    /// An input: `name=value` (read by the type of the input), `name:=JSON` or `name=@file`
    #[arg(help_heading = INPUT, short, value_name = "NAME=VALUE")]
    input: Vec<String>,
    /// All inputs as one JSON object: JSON, `@file`, or `-` for standard input
    #[arg(help_heading = INPUT, long = "input", value_name = "JSON|@FILE|-")]
    whole: Option<String>,
    /// A value of the run's context, such as `user_id=7`
    #[arg(help_heading = INPUT, long, value_name = "NAME=VALUE")]
    context: Vec<String>,
    /// Show the calls with their arguments and effects, without making them
    #[arg(help_heading = CALLS, long)]
    dry_run: bool,
    /// With `--dry-run`: make the calls that only read
    #[arg(help_heading = CALLS, long, requires = "dry_run")]
    reads: bool,
    /// Approve every call that asks for confirmation
    #[arg(help_heading = CALLS, long)]
    yes: bool,
    /// Leave the run to the workers that share the store, and print its id
    #[arg(help_heading = CALLS, long, conflicts_with_all = ["dry_run", "record", "dialect_result", "inject"])]
    detach: bool,
    /// Timeout of the whole run, such as `2m`
    #[arg(help_heading = CALLS, long, value_name = "DURATION", value_parser = parse_timeout)]
    timeout: Option<Timeout>,
    /// How many steps may run at once
    #[arg(help_heading = CALLS, long, value_name = "N", value_parser = parse_concurrency)]
    max_concurrency: Option<MaxConcurrency>,
    /// Override the composition's error strategy: `fail_fast`, `partial_success`, `retry` or `rollback`
    #[arg(help_heading = CALLS, long, value_name = "STRATEGY", value_parser = parse_strategy)]
    error_strategy: Option<ErrorStrategy>,
    /// Run the latest plan of this planning request
    #[arg(help_heading = EARLIER, long, value_name = "REQUEST", conflicts_with = "composition")]
    request: Option<String>,
    /// Run a plan again that ran already
    #[arg(help_heading = EARLIER, long)]
    again: bool,
    /// Start at this step; earlier steps take their results from the run given by `--run`
    #[arg(help_heading = EARLIER, long, value_name = "STEP", group = "reuse", requires = "run", conflicts_with = "dry_run")]
    from: Option<String>,
    /// With `--from` or `--only`: the earlier run; its composition and inputs are used unless others
    /// are given
    #[arg(help_heading = EARLIER, long, value_name = "RUN", requires = "reuse", add = completions::runs())]
    run: Option<String>,
    /// Run this step and the steps that it depends on, and no others
    #[arg(help_heading = PART, long, value_name = "STEP", conflicts_with_all = ["dry_run", "reuse", "request", "record"])]
    until: Option<String>,
    /// Run this step alone, on the results of the run given by `--run`
    #[arg(help_heading = PART, long, value_name = "STEP", group = "reuse", requires = "run", conflicts_with_all = ["dry_run", "request", "record"])]
    only: Option<String>,
    /// Take the outputs of steps from the `tools` of this file, and do not call them: `NAME.test.yaml`,
    /// or YAML or JSON
    #[arg(help_heading = PART, long, value_name = "FILE", conflicts_with_all = ["dry_run", "from", "request", "record"])]
    mocks: Option<PathBuf>,
    /// Print the result in the format of the document's own dialect
    #[arg(help_heading = TESTS, long, conflicts_with = "dry_run")]
    dialect_result: bool,
    /// Record this run as a test: `NAME.test.yaml` or `NAME.test.json`
    #[arg(help_heading = TESTS, long, value_name = "FILE", conflicts_with_all = ["dry_run", "from"])]
    record: Option<PathBuf>,
    /// Inject a fault: `fail=STEP[:N]`, `slow=STEP:500ms`, `lost=STEP[:N]`, `rollback-fail=STEP` or
    /// `crash-after=N`
    #[arg(help_heading = TESTS, long, value_name = "FAULT", conflicts_with = "dry_run")]
    inject: Vec<Fault>,
}

impl RunArgs {
    fn options(&self) -> Options {
        let options = ExecutionOptions {
            timeout: self.timeout.clone(),
            max_concurrency: self.max_concurrency,
            error_strategy: self.error_strategy,
            dry_run: self.dry_run,
            approved: self.yes,
        };
        // A file that is named on the command line is trusted, like a named configuration.
        let vouched = self.composition.as_deref().is_some_and(|name| Path::new(name).is_file());
        Options { vouched, ..Options::from(&options) }
    }
}

fn parse_timeout(text: &str) -> Result<Timeout, Error> {
    Timeout::parse(text)
}

fn parse_concurrency(text: &str) -> Result<MaxConcurrency, Error> {
    MaxConcurrency::try_from(text.parse().map_or(Value::Null, |number: u64| Value::from(number)))
}

fn parse_strategy(word: &str) -> Result<ErrorStrategy, Error> {
    ErrorStrategy::parse(word)
}

pub(super) fn run(global: &Global, args: &RunArgs) -> Exit {
    match prepare(global, args) {
        Ok(prepared) => prepared.run(global, args),
        Err(refusal) => refusal.show(global),
    }
}

/// Why a run did not start.
struct StartError {
    error: Error,
    /// Whether standard error shows the reason already.
    is_printed: bool,
    view: Option<Box<RunView>>,
}

impl From<Error> for StartError {
    fn from(error: Error) -> StartError {
        StartError { error, is_printed: false, view: None }
    }
}

impl StartError {
    /// Prints one run view to standard output, as every run does, and the reason to standard error.
    fn show(self, global: &Global) -> Exit {
        let Details { code, message, help, .. } = &*self.error;
        if global.is_json() {
            let error = ErrorView::check(*code, message.clone(), help.clone());
            let view = self.view.unwrap_or_else(|| Box::new(not_started_view(vec![error])));
            print_json(global, &view);
        }
        if !self.is_printed {
            print_error(message, help.as_deref());
        }
        match Exit::of_error(&self.error) {
            // No step has failed.
            Exit::RunFailed => Exit::Usage,
            exit => exit,
        }
    }
}

/// A run that is ready to start.
struct PreparedRun {
    app: App,
    record: Option<TestRecording>,
    plan: Arc<Plan>,
    input: Value,
    context: Value,
    selection: StepSelection,
    /// The stored plan that it runs, if it runs one.
    plan_id: Option<Arc<str>>,
}

/// What the arguments name.
enum Target {
    /// A file, or the name of a configured composition.
    Named(String),
    /// A stored plan.
    Stored(Box<StoredPlan>),
    /// The plan of an earlier run.
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
        let app = App::open_stored(&global.options(), &ServerSelection::Recorded);
        let app = app.map_err(|error| of_app(&error))?;
        let found = app.runtime().block_on(app.engine.find_plan(id));
        let record = found.map_err(planning_error)?;
        Ok(Target::Stored(Box::new(record)))
    }

    /// The names it may call, so that only their servers start.
    fn names(&self) -> Vec<Arc<str>> {
        match self {
            Target::Named(name) => vec![name.as_str().into()],
            Target::Earlier(_) => Vec::new(),
            Target::Stored(record) => {
                record.calls().tools.into_iter().map(|call| call.name).collect()
            }
        }
    }
}

/// There is no engine. Standard error says why; programs read that the configuration is at fault.
fn of_app(error: &AppError) -> StartError {
    error.print();
    let message = "the configuration cannot be used";
    let error = Error::new(ErrorKind::Invalid, Code::Config, message);
    StartError { is_printed: true, ..error.into() }
}

fn prepare(global: &Global, args: &RunArgs) -> Result<PreparedRun, StartError> {
    let target = Target::of(global, args)?;
    let names = target.names();
    let wanted = match &target {
        Target::Earlier(_) => ServerSelection::Recorded,
        _ => ServerSelection::Compositions(names.iter().map(|name| &**name).collect()),
    };
    let record = args.record.as_deref().map(TestRecording::new).transpose();
    let record = record.map_err(Error::conflict)?;
    let options = global.options_reporting(&names);
    let app = if args.dry_run {
        App::open(&options, &wanted)
    } else {
        let recorder = record.as_ref().map(|record| record.recorder.clone());
        App::open_recorded(&options, &wanted, &args.inject, recorder)
    };
    let app = app.map_err(|error| of_app(&error))?;
    let (plan, plan_id) = planned(global, &app, &target)?;
    for fault in &args.inject {
        fault.check(&plan).map_err(not_found)?;
    }
    let limits = app.engine.limits();
    let schema = plan.composition.input.as_deref();
    let input = input::read(args.whole.as_deref(), &args.input, schema, limits);
    let input = input.map_err(input_error)?;
    let context = input::read(None, &args.context, None, limits).map_err(input_error)?;
    let selection = StepSelection::default();
    let mut prepared = PreparedRun { app, record, plan, input, context, selection, plan_id };
    let earlier = match &args.run {
        Some(run) => Some(prepared.take_over(args.from.as_deref(), run)?),
        None => None,
    };
    if args.from.is_none() {
        prepared.select(args, earlier.as_ref())?;
    }
    Ok(prepared)
}

/// The plan to run, and its id if it is a stored one.
fn planned(
    global: &Global,
    app: &App,
    target: &Target,
) -> Result<(Arc<Plan>, Option<Arc<str>>), StartError> {
    let (source, plan_id) = match target {
        Target::Named(name) => {
            (app.find(name).map_err(|error| not_found((error.message(), error.help())))?, None)
        }
        Target::Stored(record) => (source_of(record), Some(record.plan_id.clone())),
        Target::Earlier(run) => {
            let plan = app.runtime().block_on(stored(app, run))?.plan;
            app.engine.check_requirements(&plan).map_err(engine_error)?;
            return Ok((plan, None));
        }
    };
    let (plan, diagnostics, unreachable) = app.plan(&source);
    let Some(plan) = plan else {
        print_diagnostics(&diagnostics, &source);
        let message = format!("`{}` was not run", source.name());
        let view = Some(Box::new(Engine::compile_failed_view(&diagnostics)));
        let error = if unreachable {
            Error::new(ErrorKind::Upstream, Code::Unreachable, message)
        } else {
            Error::new(ErrorKind::Invalid, Code::Parse, message)
        };
        return Err(StartError { view, ..error.into() });
    };
    if !global.quiet {
        let is_warning = |d: &&Diagnostic| d.severity == Severity::Warning;
        print_diagnostics(
            &diagnostics.iter().filter(is_warning).cloned().collect::<Vec<_>>(),
            &source,
        );
    }
    if global.verbose {
        print_status(&format!("validated: {} findings, none of them an error", diagnostics.len()));
        let (steps, hash) = (plan.steps.len(), &plan.hash()[..12]);
        print_status(&format!("planned: {steps} steps, hash {hash}"));
    }
    Ok((plan, plan_id))
}

fn not_found((message, help): (String, Option<String>)) -> Error {
    let error = Error::not_found(message);
    match help {
        Some(help) => error.help(help),
        None => error,
    }
}

impl PreparedRun {
    /// Takes over the inputs of an earlier run where the arguments give none, and with `from` the
    /// results that do not depend on that step.
    fn take_over(&mut self, from: Option<&str>, run: &str) -> Result<LoadedRun, Error> {
        let stored = self.app.runtime().block_on(stored(&self.app, run))?;
        let rerun = Rerun::prepare(&stored, &self.plan, from, (&self.input, &self.context));
        let rerun = rerun.map_err(|error| {
            Error::not_found(match error {
                RerunError::Impossible(message) => message,
                RerunError::NotStored { part, name } => {
                    let option = if part == "input" { "-i" } else { "--context" };
                    format!("`{name}` is sensitive and was not stored: give it again with `{option} {name}=…`")
                }
            })
        })?;
        Rerun { input: self.input, context: self.context, selection: self.selection } = rerun;
        Ok(stored)
    }

    /// Selects the steps that the arguments ask for.
    fn select(&mut self, args: &RunArgs, earlier: Option<&LoadedRun>) -> Result<(), StartError> {
        let pinned = match &args.mocks {
            Some(file) => pinned_outputs(file, self.app.engine.limits())?,
            None => Vec::new(),
        };
        let target = match (&args.until, &args.only, earlier) {
            (Some(step), ..) => PartTarget::Until(step),
            (None, Some(step), Some(earlier)) => PartTarget::Only { step, earlier: &earlier.run },
            _ => PartTarget::Whole,
        };
        let is_part = !matches!(target, PartTarget::Whole) || args.mocks.is_some();
        if is_part && self.plan_id.is_some() {
            let message = "a stored plan runs as a whole";
            let help = "save its text with `segue plan show --yaml`, and run that";
            return Err(Error::invalid(message).help(help).into());
        }
        let limits = self.app.engine.limits();
        let selection = StepSelection::new(&self.plan, target, &pinned, limits);
        self.selection = selection.map_err(|errors| StartError {
            view: Some(Box::new(Engine::refused_view(&self.plan, errors.clone()))),
            ..Error::not_admitted(errors).into()
        })?;
        if let Some(earlier) = earlier {
            let (input, context) = (self.input.clone(), self.context.clone());
            let rerun = Rerun { input, context, selection: std::mem::take(&mut self.selection) };
            self.selection = rerun.with_approvals_of(earlier, &self.plan).selection;
        }
        Ok(())
    }

    /// Leaves the run to the processes that drive runs of the store.
    fn detach(self, global: &Global, args: &RunArgs) -> Exit {
        let refused = |error: Error| StartError::from(error).show(global);
        if let Err(error) = require_shared(&self.app.config.store, "`--detach`") {
            return refused(error);
        }
        let four_eyes = self.app.config.server.approvals.refusal(None, None);
        if let Some(reason) = four_eyes.filter(|_| args.yes) {
            return refused(Error::forbidden(reason).help(FOUR_EYES));
        }
        let dispatcher = match dispatcher(&self.app.config) {
            Ok(dispatcher) => dispatcher,
            Err(error) => return of_app(&error).show(global),
        };
        let runtime = self.app.runtime().clone();
        let (app, plan_id, run_id) = (&self.app, self.plan_id, self.app.engine.new_run_id());
        let origin = RequestOrigin { trace: trace_from_env(), ..RequestOrigin::default() };
        let request = RunRequest {
            context: self.context,
            options: args.options(),
            run_id: Some(run_id.clone()),
            trace: app.observers().trace(&run_id, origin.trace),
            selection: self.selection,
            ..RunRequest::new(self.plan, self.input)
        };
        let enqueued = runtime.block_on(async {
            let view = match &plan_id {
                Some(plan_id) => app.engine.enqueue_plan(plan_id, args.again, request).await?,
                None => app.engine.enqueue(request).await?,
            };
            if let Some(dispatcher) = dispatcher.filter(|_| view.started_at.is_some())
                && let Err(error) = dispatcher.dispatch(&run_id, Due::Now).await
            {
                print_note(&format!("{error}; the run is sent again later"));
            }
            if !global.quiet {
                note_workers(app).await;
            }
            Ok::<_, PlanningError>(view)
        });
        match enqueued {
            Ok(view) if view.started_at.is_none() => show(global, &view),
            Ok(view) if global.is_json() => {
                print_json(global, &view);
                Exit::Success
            }
            Ok(view) => {
                print_data(&view.run_id);
                if !global.quiet {
                    let follow = format!("`segue runs show {} --watch` follows it", view.run_id);
                    print_status(&format!("left to the workers; {follow}"));
                }
                Exit::Success
            }
            Err(error) => StartError::from(planning_error(error)).show(global),
        }
    }

    fn run(self, global: &Global, args: &RunArgs) -> Exit {
        let PreparedRun { app, record, plan, input, context, selection, plan_id } = self;
        if args.dry_run && !args.reads {
            return show_dry_run(global, &app.engine.dry_run(&plan, input, context));
        }
        if args.detach {
            let run = PreparedRun { app, record, plan, input, context, selection, plan_id };
            return run.detach(global, args);
        }
        // With four eyes, who runs it here does not answer its questions: they wait for another person.
        let four_eyes = app.config.server.approvals.refusal(None, None);
        let can_ask = four_eyes.is_some() || prompt::can_ask();
        if !args.yes && !args.dry_run && !global.quiet && !can_ask {
            warn_of_denials(&plan, &selection);
        }
        if let Some(reason) = four_eyes.filter(|_| args.yes && !args.dry_run) {
            return report_error(&Error::forbidden(reason).help(FOUR_EYES));
        }
        let name = plan.composition.name.clone();
        let progress = progress::for_plan(global, &plan);
        let confirmer: Box<dyn Confirmer> = match four_eyes {
            Some(_) => Box::new(Defer),
            None => prompt::confirmer(&progress, DenyAll),
        };
        let options = args.options();
        let observer = if args.dry_run { &NoObserver } else { progress.observer() };
        let listener = record.map(|record| record.observe_run(&app, &plan, &options, observer));
        let observer = listener.as_ref().map_or(observer, |listener| listener);
        let run_id = app.engine.new_run_id();
        let observing = if args.dry_run { Observers::default() } else { app.observers() };
        let origin = RequestOrigin { trace: trace_from_env(), ..RequestOrigin::default() };
        let watch = observing.watch(observer, &name, &origin);
        let interrupted = {
            let _context = app.runtime().enter();
            interrupted(app.engine.store())
        };
        let request = RunRequest {
            plan,
            input,
            context,
            options,
            caller: None,
            trace: observing.trace(&run_id, origin.trace.clone()),
            run_id: Some(run_id),
            selection,
            confirmer: &*confirmer,
            observer: &watch,
            cancel: Box::pin(interrupted.map(|()| current_user())),
        };
        let outcome = execute(&app, args, plan_id.as_ref(), request);
        progress.finish();
        let outcome = match outcome {
            Ok(view) => Ok(view),
            Err(PlanningError::Engine(error)) => Err(error),
            Err(error) => return StartError::from(planning_error(error)).show(global),
        };
        let recorded = listener.map(|listener| listener.write(&name));
        let exit = match outcome {
            Ok(view) if args.dry_run => show_dry_run(global, &view),
            Ok(view) if args.dialect_result => show_dialect_result(global, &view),
            Ok(view) => show(global, &view),
            Err(error) => report_stopped(global, name, error),
        };
        match recorded {
            None => exit,
            Some(Ok(note)) => {
                print_status(&note);
                exit
            }
            Some(Err(message)) => {
                print_error(&message, None);
                Exit::Usage
            }
        }
    }
}

/// Says what a run that was left to workers waits for.
async fn note_workers(app: &App) {
    let workers = app.engine.store().workers().await.unwrap_or_default();
    if !workers.iter().any(|worker| worker.is_alive && worker.info.room > 0) {
        print_note("no worker is alive: the run begins when one starts, such as `segue worker`");
    }
}

/// The outputs that a file gives for steps.
fn pinned_outputs(file: &Path, limits: &Limits) -> Result<Vec<(Arc<str>, Value)>, StartError> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        Error::not_found(format!("`{}` cannot be read: {error}", file.display()))
    })?;
    let source = Source::new(file.display().to_string(), text);
    let (pinned, findings) = read_pinned_outputs(&source, limits);
    if findings.is_empty() {
        return Ok(pinned);
    }
    print_diagnostics(&findings, &source);
    let message = format!("`{}` gives no outputs for a run", file.display());
    let view = Some(Box::new(Engine::compile_failed_view(&findings)));
    let error = Error::new(ErrorKind::Invalid, Code::InvalidField, message);
    Err(StartError { view, ..error.into() })
}

/// Names the calls that this run will deny because there is no terminal to ask at, and what allows them.
fn warn_of_denials(plan: &Plan, selection: &StepSelection) {
    let denied = |call: &DeclaredCall| {
        let spec = plan.tools.get(&call.tool);
        call.asks && !spec.is_some_and(|spec| spec.confirms_conditionally())
    };
    let label = |call: &DeclaredCall| match call.effect {
        Impact::Unknown => format!("`{}` (effect unknown: it has no annotations)", call.tool),
        _ => format!("`{}`", call.tool),
    };
    let calls = plan.declared_calls_of(&|own| selection.performs(own));
    let calls: Vec<DeclaredCall> = calls.into_iter().filter(denied).collect();
    let Some(first) = calls.first() else { return };
    let named: Vec<String> = calls.iter().map(label).collect();
    let mut help = format!(
        "`--yes` allows every call of this run; `tools: {{ \"{}\": {{ confirm: never }} }}` in \
         `segue.yaml` always allows this tool",
        first.tool
    );
    if first.effect == Impact::Unknown {
        help.push_str(", `read_only: true` there says that it only reads");
    }
    let message = "there is no terminal to ask at, so calls are denied";
    print_warning(&format!("{message}: {}", named.join(", ")), &help);
}

/// Runs a plan: as a dry run that reads, as a stored plan, or as any other.
fn execute(
    app: &App,
    args: &RunArgs,
    plan_id: Option<&Arc<str>>,
    request: RunRequest<'_>,
) -> Result<RunView, PlanningError> {
    let (runtime, engine) = (app.runtime(), &app.engine);
    match plan_id {
        _ if args.dry_run => {
            runtime.block_on(engine.run_rehearsal(request)).map_err(PlanningError::Engine)
        }
        Some(plan_id) => runtime.block_on(engine.execute_plan(plan_id, args.again, request)),
        None => runtime.block_on(engine.run(request)).map_err(PlanningError::Engine),
    }
}

/// The trace that this command belongs to, from the environment of its parent process.
fn trace_from_env() -> Option<TraceContext> {
    TraceContext::parse(&std::env::var("TRACEPARENT").ok()?)
}

/// The store failed. A run that had started is reported as `running`, not as failed: a client that reads
/// "failed" might start it again.
fn report_stopped(global: &Global, name: Arc<str>, error: EngineError) -> Exit {
    let stopped = match &error {
        EngineError::Stopped { run_id, .. } => Some(run_id.clone()),
        _ => None,
    };
    let error = engine_error(error);
    if global.is_json() {
        let mut view = not_started_view(vec![ErrorView {
            phase: "store",
            ..ErrorView::check(Code::Internal, error.message.clone(), error.help.clone())
        }]);
        view.name = name;
        if let Some(run_id) = stopped {
            (view.run_id, view.status) = (run_id, RunStatus::Running);
        }
        print_json(global, &view);
    }
    report_error(&error)
}

/// Prints the result in the format of the document's dialect. A run that did not start has none.
fn show_dialect_result(global: &Global, view: &RunView) -> Exit {
    if view.started_at.is_none() {
        return show(global, view);
    }
    print_json(global, &result::result_of(view));
    if !global.is_json() {
        show_errors(view);
        show_questions(view);
    }
    exit_code(view)
}
