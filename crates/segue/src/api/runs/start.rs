//! Starting runs: a request → a plan, admitted → a run whose first entry is durable.

use std::sync::Arc;
use std::time::Duration;

use segue_core::access::{Principal, Right};
use segue_core::composition::{Flow, StepKind};
use segue_core::id::ToolId;
use segue_core::plan::Plan;
use segue_core::planner::StoredPlan;
use segue_core::run::{Options, StepSelection, admit};
use segue_core::tool::COMPOSITION;
use segue_core::value::{Map, Value};
use segue_core::view::{RunStatus, RunView};
use segue_runtime::engine::{Engine, RunRequest};

use super::RunService;
use super::act::wait;
use super::handle::{QuestionConfirmer, QuestionPolicy, RunHandle};
use super::idempotency::{self, Claim};
use super::part::{SelectedPart, select};
use super::registry::Added;
use crate::api::documents::ResolvedDocument;
use crate::api::error::{Error, require_for};
use crate::api::plans::{self, PlanRef};
use crate::api::requests::{ExecuteComposition, ExecutePlan, ExecutionOptions, fingerprint};
use crate::api::threads::calculate;
use crate::observe::RequestOrigin;

/// A run to start.
pub struct StartRun {
    /// What to run.
    pub plan: Arc<Plan>,
    /// Its input.
    pub input: Value,
    /// The context that the caller brings.
    pub context: Value,
    /// The caller's options.
    pub options: Options,
    /// Who answers its questions.
    pub policy: QuestionPolicy,
    /// The id of the run, where it is decided already; a run that has it is joined.
    pub run_id: Option<Arc<str>>,
    /// The request that starts it.
    pub origin: RequestOrigin,
    /// The steps that it performs, and values for others.
    pub selection: StepSelection,
}

/// A run that a request describes, resolved: what to run, as whom, and how.
pub struct Execution {
    /// What to run.
    pub plan: Arc<Plan>,
    /// The steps that it performs, and values for others.
    pub selection: StepSelection,
    /// Its input.
    pub input: Value,
    /// The context that the caller brings.
    pub context: Value,
    /// The caller's options.
    pub options: Options,
    /// Whether nothing is to be called.
    pub dry_run: bool,
    /// The principal that it runs as, held to the tools that it may use.
    pub who: Principal,
}

/// Who waits for a run, how long, and with which idempotency key.
#[derive(Clone, Copy)]
pub struct CallOptions<'a> {
    /// The request that starts the run.
    pub origin: &'a RequestOrigin,
    /// The same key with the same request is the same run.
    pub key: Option<&'a str>,
    /// How long the caller waits for the end of the run.
    pub timeout: Duration,
}

/// Finds and plans what a request describes, and checks the rights that it takes.
pub async fn resolve(
    service: &Arc<RunService>,
    who: &Principal,
    request: &ExecuteComposition,
) -> Result<Execution, Error> {
    let mut composition = ResolvedDocument::find(service, who, request.document()?).await?;
    if request.is_part() {
        composition = composition.written_by_caller();
    }
    let dry_run = is_dry_run(request.options.as_ref());
    // A dry run calls nothing: it is a way to check.
    if matches!(composition, ResolvedDocument::Inline(_)) && !dry_run {
        let action = if request.is_part() {
            "run a part of a composition"
        } else {
            "run a composition that it wrote"
        };
        require_for(who, Right::Compose, action, "what is served needs `run`")?;
    }
    let runs_as = composition.runs_as(who);
    let plan = composition.plan(service, &runs_as)?;
    let given = (object(request.input.as_ref()), object(request.context.as_ref()));
    let SelectedPart { selection, input, context } =
        select(service, who, request, &plan, given).await?;
    let options = run_options(service, &runs_as, request.options.as_ref())?;
    Ok(Execution { plan, selection, input, context, options, dry_run, who: runs_as })
}

fn object(members: Option<&Map>) -> Value {
    members.cloned().unwrap_or_default().into()
}

fn is_dry_run(options: Option<&ExecutionOptions>) -> bool {
    options.is_some_and(|options| options.dry_run)
}

/// The options of a run, as the engine takes them. Consent beforehand needs the right to approve.
pub(super) fn run_options(
    service: &RunService,
    who: &Principal,
    options: Option<&ExecutionOptions>,
) -> Result<Options, Error> {
    let Some(options) = options else { return Ok(Options::default()) };
    if options.approved {
        let instead = "without `approved` the run asks, and waits for a principal who may approve";
        let action = "consent beforehand with `options.approved`";
        require_for(who, Right::Approve, action, instead)?;
        // Who consents here is who starts the run.
        if let Some(reason) = service.approvals().refusal(Some(&who.name), Some(&who.name)) {
            let instead = "without `approved` the run asks, and waits for another person";
            return Err(Error::forbidden(reason).help(instead));
        }
    }
    Ok(options.into())
}

/// Runs what a request describes, and waits for it. The same key is the same run.
pub async fn execute(
    service: &Arc<RunService>,
    who: &Principal,
    request: &ExecuteComposition,
    call: CallOptions<'_>,
) -> Result<RunView, Error> {
    let execution = resolve(service, who, request).await?;
    run_execution(service, execution, &fingerprint(request), call).await
}

/// Starts a resolved execution, and waits for the run. The same key with the same `keyed` is the same run.
pub(super) async fn run_execution(
    service: &Arc<RunService>,
    execution: Execution,
    keyed: &Value,
    call: CallOptions<'_>,
) -> Result<RunView, Error> {
    let Execution { plan, selection, input, context, options, dry_run, who } = execution;
    let who = &who;
    if dry_run {
        return rehearse(service, who, &plan, input, context);
    }
    admit(&plan, input.clone(), &context, &service.limits()).map_err(Error::not_admitted)?;
    let (policy, run_id, origin) = (QuestionPolicy::Defer, None, call.origin.clone());
    let mut start = StartRun { plan, input, context, options, policy, run_id, origin, selection };
    let Some(key) = call.key else {
        let handle = service.start(who, start).await?;
        return wait(service, who, &handle, call.timeout).await;
    };
    let run_id = match idempotency::claim(service, who, key, keyed).await? {
        Claim::Started(run_id) => run_id,
        Claim::New(run_id) => {
            start.run_id = Some(run_id.clone());
            let started = service.start(who, start).await;
            // Another process may have started it for the same key at the same time.
            if started.is_err() && service.store().run(&run_id).await?.is_none() {
                started?;
            }
            run_id
        }
    };
    repeated(service, who, &run_id, call.timeout).await
}

/// Executes a stored plan, and waits for it. The same key is the same run.
pub async fn execute_plan(
    service: &Arc<RunService>,
    who: &Principal,
    record: &StoredPlan,
    request: &ExecutePlan,
    call: CallOptions<'_>,
) -> Result<RunView, Error> {
    let who = &who.as_author();
    let (_, plan, _) = service.catalog(who).engine.plan_of(record)?;
    let (input, context) = (Value::empty_object(), object(request.context.as_ref()));
    if is_dry_run(request.options.as_ref()) {
        return rehearse(service, who, &plan, input, context);
    }
    admit(&plan, input.clone(), &context, &service.limits()).map_err(Error::not_admitted)?;
    let mut plan_ref = PlanRef { plan_id: record.plan_id.clone(), again: request.again };
    let options = run_options(service, who, request.options.as_ref())?;
    let (policy, run_id, origin) = (QuestionPolicy::Defer, None, call.origin.clone());
    let selection = StepSelection::default();
    let mut start = StartRun { plan, input, context, options, policy, run_id, origin, selection };
    if let Some(key) = call.key {
        let keyed = Value::object([
            ("plan", Value::String(record.plan_id.clone())),
            ("described", fingerprint(request)),
        ]);
        match idempotency::claim(service, who, key, &keyed).await? {
            Claim::Started(run_id) => return repeated(service, who, &run_id, call.timeout).await,
            Claim::New(run_id) => {
                // The plan was taken for this very run, which never started.
                plan_ref.again |= record.run_id.as_ref() == Some(&run_id);
                start.run_id = Some(run_id);
            }
        }
    }
    let handle = plans::start(service, who, &plan_ref, start).await?;
    wait(service, who, &handle, call.timeout).await
}

/// What a run would do.
fn rehearse(
    service: &RunService,
    who: &Principal,
    plan: &Arc<Plan>,
    input: Value,
    context: Value,
) -> Result<RunView, Error> {
    let view = dry_run(service, who, plan, input, context);
    match view.status {
        RunStatus::DryRun => Ok(view),
        _ => Err(Error::not_admitted(view.errors)),
    }
}

/// What a run would do; of one that could not start, why.
pub fn dry_run(
    service: &RunService,
    who: &Principal,
    plan: &Arc<Plan>,
    input: Value,
    context: Value,
) -> RunView {
    let engine = service.catalog(who).engine;
    calculate(|| engine.dry_run(plan, input, context))
}

/// A run whose request has a key: its view from the journal, so that it is the same each time.
async fn repeated(
    service: &Arc<RunService>,
    who: &Principal,
    run_id: &Arc<str>,
    timeout: Duration,
) -> Result<RunView, Error> {
    if let Some(handle) = service.handle_or_follow(who, run_id).await? {
        handle.started().await?;
        let view = wait(service, who, &handle, timeout).await?;
        if view.status == RunStatus::Running {
            return Ok(view);
        }
    }
    Ok(service.stored(who, run_id).await?.view())
}

impl RunService {
    /// Starts a run of the caller, unless too many runs are driven, and waits until its first entry is
    /// durable: only then may the caller be told its id.
    pub async fn start(
        self: &Arc<RunService>,
        who: &Principal,
        start: StartRun,
    ) -> Result<Arc<RunHandle>, Error> {
        if self.leaves_to_others()
            && let Some(handle) = self.enqueue(who, &start).await?
        {
            return Ok(handle);
        }
        let handle = self.spawn_run(who, start)?;
        handle.started().await?;
        Ok(handle)
    }

    fn spawn_run(
        self: &Arc<RunService>,
        who: &Principal,
        start: StartRun,
    ) -> Result<Arc<RunHandle>, Error> {
        let (engine, caller) = (self.catalog(who).engine, who.caller());
        let runs_max = engine.limits().served_runs_max;
        let added = self.registry.add(start.run_id.as_ref(), runs_max, || {
            let run_id = start.run_id.clone().unwrap_or_else(|| engine.new_run_id());
            let name = start.plan.composition.name.clone();
            let (steps, principal) = (step_count(&start.plan), Some(caller.principal.clone()));
            RunHandle::new(run_id, name, steps, start.policy, principal)
        });
        let handle = match added {
            Added::New(handle) => handle,
            Added::Existing(handle) => return Ok(handle),
            Added::Full => {
                let message = format!("{runs_max} runs are under way already; try again later");
                return Err(Error::busy(message));
            }
        };
        let (driven, observing) = (handle.clone(), self.observing.clone());
        self.drive(handle.clone(), engine.clone(), async move {
            let name = metric_name(&engine, &driven.composition);
            let watch = observing.watch(&*driven, name, &start.origin);
            let questions = QuestionConfirmer { handle: driven.clone() };
            let request = RunRequest {
                context: start.context,
                options: start.options,
                caller: Some(caller),
                run_id: Some(driven.run_id.clone()),
                selection: start.selection,
                trace: observing.trace(&driven.run_id, start.origin.trace.clone()),
                confirmer: &questions,
                observer: &watch,
                cancel: Box::pin(driven.cancelled()),
                ..RunRequest::new(start.plan, start.input)
            };
            engine.run(request).await
        });
        Ok(handle)
    }
}

/// The name that metrics count the runs of a composition under: its own, if it is served. A caller may
/// give any name to a composition that it sends.
pub(super) fn metric_name<'a>(engine: &Engine, name: &'a str) -> &'a str {
    let is_served = engine.catalog().get(&ToolId::new(COMPOSITION, name)).is_some();
    if is_served { name } else { "other" }
}

/// How many steps will run, where the plan alone decides it.
pub(super) fn step_count(plan: &Plan) -> Option<u32> {
    let is_fixed = plan.composition.body.flow == Flow::Graph
        && plan.steps.iter().all(|step| {
            step.bodies.is_empty()
                && step.nested.is_empty()
                && !matches!(step.step.kind, StepKind::Expand(_))
        });
    is_fixed.then(|| u32::try_from(plan.steps.len()).unwrap_or(u32::MAX))
}
