//! The handle that every surface holds: cheap to clone, without type parameters.
//!
//! An engine knows the tools and the compositions. It compiles and plans through the core, and
//! hands runs to the driver.

mod call;
mod error;
mod expand;
mod left_to_others;
mod load;
mod overwrites;
mod planning;
mod rehearsal;
mod stored_runs;
mod test_runs;
mod unavailable_tools;
mod waiting_runs;

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use segue_core::access::Caller;
use segue_core::catalog::{Catalog, ToolLookup};
use segue_core::compile::{self, Compiled};
use segue_core::composition::{Composition, Dialect};
use segue_core::diagnostic::{Diagnostic, Severity};
use segue_core::id::ToolId;
use segue_core::limits::Limits;
use segue_core::plan::{self, Plan};
use segue_core::run::{self, Options, Run, Started, StepSelection, TraceContext};
use segue_core::source::Source;
use segue_core::tool::{COMPOSITION, ObservedStats, ToolSpec};
use segue_core::toolset::{Toolset, ToolsetBuilder};
use segue_core::value::Value;
use segue_core::version;
use segue_core::view::{ErrorView, RunStatus, RunView};

use crate::confirm::{Confirmer, DenyAll};
use crate::driver::{
    self, CommandRouter, DriverContext, Expand, IdSource, NoObserver, Observer, StartMode,
    UnreleasedLeases,
};
use crate::inject::Faults;
use crate::llm::Model;
use crate::recorder::Recorder;
use crate::store::{MemoryStore, Store, StoreError, ToolStats};
use crate::tools::gate::{Concurrency, Gate};
use crate::tools::orphans::Orphans;
use crate::tools::redact::Secrets;
use crate::tools::{Registry, Tool, toolset_guard};
use crate::wrap::Wrapper;

pub use call::CallRequest;
use call::Nested;
pub use error::EngineError;
pub use left_to_others::PostedCommand;
use overwrites::OverwriteTrust;
pub use planning::{
    ClaimedPlan, Planned, PlanningError, PlanningEvent, PlanningRequest, Reuse, is_request_id,
    source_of,
};
use stored_runs::view_of;
pub use stored_runs::{LoadedRun, Recovered, ResumeRequest};
pub use unavailable_tools::UnavailableTools;
use waiting_runs::WaitingRuns;

/// The engine.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

#[derive(Clone)]
struct Inner {
    registry: Registry,
    wrappers: Vec<Wrapper>,
    gate: Arc<Gate>,
    catalog: Catalog,
    limits: Arc<Limits>,
    store: Arc<dyn Store>,
    router: Arc<CommandRouter>,
    waiting_runs: Arc<WaitingRuns>,
    unreleased: Arc<UnreleasedLeases>,
    orphans: Arc<Orphans>,
    ids: Arc<IdSource>,
    model: Option<Arc<dyn Model>>,
    /// Selects the engine's tools; applied again when compositions are reloaded.
    toolset: Option<ToolsetBuilder>,
    /// Limits what inline compositions of a host on stdio may call.
    inline: ToolsetBuilder,
    unavailable: UnavailableTools,
    overwrites: OverwriteTrust,
    secrets: Secrets,
}

/// The parts of an engine.
#[derive(Default)]
pub struct EngineBuilder {
    registry: Registry,
    concurrency: Concurrency,
    limits: Limits,
    store: Option<Arc<dyn Store>>,
    faults: Option<Faults>,
    recorder: Option<Recorder>,
    secrets: Secrets,
    observed: BTreeMap<ToolId, ObservedStats>,
    wrappers: Vec<Wrapper>,
    compositions: Vec<Source>,
    toolset: Option<ToolsetBuilder>,
    inline: Option<ToolsetBuilder>,
    model: Option<Arc<dyn Model>>,
    unavailable: UnavailableTools,
    overwrites: OverwriteTrust,
    before: Option<Engine>,
}

/// A composition, or a tool that declares its calls, that could not be loaded, and why.
#[derive(Clone, Debug)]
pub struct LoadError {
    /// Its text.
    pub source: Source,
    /// The errors.
    pub diagnostics: Vec<Diagnostic>,
}

impl EngineBuilder {
    /// Adds tools.
    #[must_use]
    pub fn tools(mut self, tools: impl IntoIterator<Item = Tool>) -> EngineBuilder {
        self.registry.extend(tools);
        self
    }

    /// Sets the limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> EngineBuilder {
        self.limits = limits;
        self
    }

    /// Sets how many calls of a tool or a source may be under way at once.
    #[must_use]
    pub fn concurrency(mut self, concurrency: Concurrency) -> EngineBuilder {
        self.concurrency = concurrency;
        self
    }

    /// Sets the store; journals are kept in memory otherwise.
    #[must_use]
    pub fn store(mut self, store: Arc<dyn Store>) -> EngineBuilder {
        self.store = Some(store);
        self
    }

    /// Decides which compositions are trusted to overwrite files. The `overwrites` field of the
    /// others has no effect. The engine asks when a run starts, also for reloaded compositions.
    #[must_use]
    pub fn trust_overwrites_if(
        mut self,
        is_trusted: impl Fn(&Composition) -> bool + Send + Sync + 'static,
    ) -> EngineBuilder {
        self.overwrites = OverwriteTrust::TrustedIf(Arc::new(is_trusted));
        self
    }

    /// Sets the secrets, which the engine redacts from every tool answer.
    #[must_use]
    pub fn secrets(mut self, secrets: Secrets) -> EngineBuilder {
        self.secrets = secrets;
        self
    }

    /// Sets what earlier calls have shown about the tools.
    #[must_use]
    pub fn tool_stats(mut self, stats: &[ToolStats]) -> EngineBuilder {
        let known = stats.iter().filter_map(|stats| Some((stats.tool.clone(), stats.observed()?)));
        self.observed = known.collect();
        self
    }

    /// Injects faults.
    #[must_use]
    pub fn faults(mut self, faults: Faults) -> EngineBuilder {
        self.faults = Some(faults);
        self
    }

    /// Adds a wrapper around a tool; compositions may call it by its name.
    #[must_use]
    pub fn wrapper(mut self, wrapper: Wrapper) -> EngineBuilder {
        self.wrappers.push(wrapper);
        self
    }

    /// Records every tool answer.
    #[must_use]
    pub fn recorder(mut self, recorder: Recorder) -> EngineBuilder {
        self.recorder = Some(recorder);
        self
    }

    /// Adds compositions; other compositions may call them by name.
    #[must_use]
    pub fn compositions(mut self, sources: impl IntoIterator<Item = Source>) -> EngineBuilder {
        self.compositions.extend(sources);
        self
    }

    /// Limits everything that is compiled and called to a toolset of the engine's tools.
    #[must_use]
    pub fn toolset(mut self, toolset: ToolsetBuilder) -> EngineBuilder {
        self.toolset = Some(toolset);
        self
    }

    /// Sets the toolset that limits inline compositions of a host on stdio, also those that a step
    /// makes.
    #[must_use]
    pub fn inline_toolset(mut self, toolset: ToolsetBuilder) -> EngineBuilder {
        self.inline = Some(toolset);
        self
    }

    /// Sets which configured tools are unavailable, and why.
    #[must_use]
    pub fn unavailable(mut self, absent: UnavailableTools) -> EngineBuilder {
        self.unavailable = absent;
        self
    }

    /// Sets the model that makes plans.
    #[must_use]
    pub fn model(mut self, model: Arc<dyn Model>) -> EngineBuilder {
        self.model = Some(model);
        self
    }

    /// Replaces another engine whose runs may still be in progress. Both share the store and the
    /// command router, so a command sent through either engine reaches the runs of the other.
    #[must_use]
    pub fn reuse(mut self, before: &Engine) -> EngineBuilder {
        self.store = Some(before.inner.store.clone());
        self.before = Some(before.clone());
        self
    }

    /// Builds the engine, and returns what it could not load.
    pub fn build(mut self) -> (Engine, Vec<LoadError>) {
        self.registry.observe(&self.observed);
        let (mut catalog, mut unloaded) =
            load::load(&self.registry, &self.wrappers, self.compositions, &self.limits);
        explain(&self.unavailable, &mut unloaded);
        if let Some(toolset) = build_toolset_from(self.toolset.as_ref(), &catalog) {
            self.registry = self.registry.map(|tool| toolset_guard::wrap(tool, &toolset));
            let own = toolset.guards().max_tool_calls.unwrap_or(u64::MAX);
            self.limits.run_calls_max = self.limits.run_calls_max.min(own);
            catalog.restrict(toolset);
        }
        let limits = Arc::new(self.limits);
        let gate = Arc::new(Gate::new(
            self.registry.specs().map(|spec| &**spec),
            &self.concurrency,
            &limits,
            self.before.as_ref().map(|before| &*before.inner.gate),
            self.store.as_ref(),
        ));
        let (mut registry, mut store) =
            (self.registry, self.store.unwrap_or_else(|| Arc::new(MemoryStore::default())));
        let secrets = self.secrets;
        registry = registry.map(|tool| secrets.wrap(tool));
        if let Some(faults) = self.faults {
            registry = registry.map(|tool| faults.wrap_tool(tool));
            store = faults.wrap_store(store);
        }
        if let Some(recorder) = self.recorder {
            registry = registry.map(|tool| recorder.wrap(tool));
        }
        let (orphans, ids, commands) = match &self.before {
            Some(Engine { inner }) => {
                (inner.orphans.clone(), inner.ids.clone(), inner.router.clone())
            }
            None => (Arc::default(), Arc::default(), CommandRouter::new(store.clone())),
        };
        let before = self.before.as_ref().map(|before| &before.inner);
        let waiting = before.map(|inner| inner.waiting_runs.clone()).unwrap_or_default();
        let unreleased = before.map(|inner| inner.unreleased.clone()).unwrap_or_default();
        let (wrappers, model) = (self.wrappers, self.model);
        let inner = Inner {
            registry,
            wrappers,
            gate,
            catalog,
            limits,
            store,
            router: commands,
            waiting_runs: waiting,
            unreleased,
            orphans,
            ids,
            model,
            toolset: self.toolset,
            inline: self.inline.unwrap_or_else(|| ToolsetBuilder::inline(None)),
            unavailable: self.unavailable,
            overwrites: self.overwrites,
            secrets,
        };
        (Engine { inner: Arc::new(inner) }, unloaded)
    }
}

/// Adds to the findings why a missing tool is unavailable.
fn explain(absent: &UnavailableTools, unloaded: &mut [LoadError]) {
    for LoadError { source, diagnostics } in unloaded {
        absent.explain(diagnostics, source);
    }
}

/// A run to start.
pub struct RunRequest<'a> {
    /// The plan to run.
    pub plan: Arc<Plan>,
    /// Its input.
    pub input: Value,
    /// The caller's context.
    pub context: Value,
    /// The caller's options, beyond those of the composition.
    pub options: Options,
    /// The authenticated caller, who then owns the run.
    pub caller: Option<Caller>,
    /// The run's id, for a caller who must know it before: see [`Engine::new_run_id`].
    pub run_id: Option<Arc<str>>,
    /// The run's place in a trace, if it is traced.
    pub trace: Option<TraceContext>,
    /// The steps that it performs, and values for others.
    pub selection: StepSelection,
    /// Answers before a destructive call; [`DenyAll`] denies it.
    pub confirmer: &'a dyn Confirmer,
    /// Watches the run.
    pub observer: &'a dyn Observer,
    /// Resolves when the run should be cancelled, to the name of who cancels it.
    pub cancel: BoxFuture<'a, Arc<str>>,
}

impl RunRequest<'_> {
    /// A run of this plan with this input, without an observer. Questions are denied.
    pub fn new(plan: Arc<Plan>, input: Value) -> RunRequest<'static> {
        RunRequest {
            plan,
            input,
            context: Value::empty_object(),
            options: Options::default(),
            caller: None,
            run_id: None,
            trace: None,
            selection: StepSelection::default(),
            confirmer: &DenyAll,
            observer: &NoObserver,
            cancel: Box::pin(std::future::pending()),
        }
    }
}

impl Engine {
    /// Starts building an engine.
    pub fn builder() -> EngineBuilder {
        EngineBuilder::default()
    }

    /// The same engine with other compositions, and those that it could not load. Runs in progress
    /// keep theirs; tools, store and limits are shared.
    pub fn with_compositions(
        &self,
        sources: impl IntoIterator<Item = Source>,
    ) -> (Engine, Vec<LoadError>) {
        let Inner { registry, wrappers, limits, toolset, unavailable: absent, .. } = &*self.inner;
        let (mut catalog, mut unloaded) = load::load(registry, wrappers, sources, limits);
        explain(absent, &mut unloaded);
        if let Some(toolset) = build_toolset_from(toolset.as_ref(), &catalog) {
            catalog.restrict(toolset);
        }
        let inner = Inner { catalog, ..(*self.inner).clone() };
        (Engine { inner: Arc::new(inner) }, unloaded)
    }

    /// The same engine, limited to a toolset of its tools. Tools, store and runs in progress are
    /// shared.
    #[must_use]
    pub fn with_toolset(&self, toolset: ToolsetBuilder) -> Engine {
        let made = self.build_toolset(toolset);
        let registry = self.inner.registry.clone().map(|tool| toolset_guard::wrap(tool, &made));
        let mut limits = (*self.inner.limits).clone();
        limits.run_calls_max =
            limits.run_calls_max.min(made.guards().max_tool_calls.unwrap_or(u64::MAX));
        let mut catalog = self.inner.catalog.clone();
        catalog.restrict(made);
        let limits = Arc::new(limits);
        let inner = Inner { registry, catalog, limits, ..(*self.inner).clone() };
        Engine { inner: Arc::new(inner) }
    }

    /// The tools that a toolset selects from those of this engine.
    fn build_toolset(&self, toolset: ToolsetBuilder) -> Toolset {
        let own = self.toolset();
        let made = toolset.from_tools(own.tools().cloned()).build();
        made.expect("tools are a source").bounded_by(&own)
    }

    /// The known tools.
    pub fn catalog(&self) -> &Catalog {
        &self.inner.catalog
    }

    /// The tools that may be called: those of the engine's toolset, or all when it has none.
    pub fn toolset(&self) -> Toolset {
        let catalog = &self.inner.catalog;
        catalog.toolset().cloned().unwrap_or_else(|| {
            let all = Toolset::builder("all").from_catalog(catalog).build();
            all.expect("a catalog is a source")
        })
    }

    /// The limits in force.
    pub fn limits(&self) -> &Arc<Limits> {
        &self.inner.limits
    }

    /// Compiles a text against the known tools.
    pub fn compile(&self, source: &Source) -> Compiled {
        compile::compile(source, &self.inner.catalog, &self.inner.limits)
    }

    /// Compiles a text and plans it; the findings say why there is no plan.
    pub fn plan(&self, source: &Source) -> (Option<Arc<Plan>>, Vec<Diagnostic>) {
        let (catalog, limits) = (&self.inner.catalog, &self.inner.limits);
        let (plan, mut findings) = self.bounded(|| plan::plan_text(source, catalog, limits));
        self.inner.unavailable.explain(&mut findings, source);
        (plan, findings)
    }

    /// Runs a function that compiles or evaluates, within the evaluation timeout.
    pub fn bounded<T>(&self, work: impl FnOnce() -> T) -> T {
        let Inner { router: commands, limits, .. } = &*self.inner;
        commands.evaluations.bounded(limits.evaluation_timeout_ms, work)
    }

    /// Configured tools that are unavailable, and why.
    pub fn unavailable(&self) -> &UnavailableTools {
        &self.inner.unavailable
    }

    /// The plan of a loaded composition, unless the toolset refuses it.
    pub fn plan_named(&self, name: &str) -> Option<Arc<Plan>> {
        let tool = self.inner.catalog.get(&ToolId::new(COMPOSITION, name))?;
        let composition = tool.composition.as_ref()?;
        let toolset = self.inner.catalog.toolset();
        if toolset.is_some_and(|toolset| toolset.run_error(composition).is_some()) {
            return None;
        }
        plan::plan(composition, &self.inner.limits).ok().map(Arc::new)
    }

    /// Runs a plan to its end.
    pub async fn run(&self, request: RunRequest<'_>) -> Result<RunView, EngineError> {
        self.run_as(request, None).await
    }

    /// The same, as part of the chain with this id.
    pub(crate) async fn run_as(
        &self,
        request: RunRequest<'_>,
        chain_id: Option<Arc<str>>,
    ) -> Result<RunView, EngineError> {
        let (inner, caller) = (&self.inner, request.caller.clone());
        let expand = |document: &Value| self.expand(document, caller.as_ref());
        self.run_with(request, &inner.registry, &*inner.store, &expand, chain_id).await
    }

    /// A fresh id of a chain.
    pub(crate) fn chain_id(&self) -> Arc<str> {
        self.inner.ids.random_id()
    }

    /// A run that is ready to start; the view of one that is refused.
    fn prepare(
        &self,
        request: &mut RunRequest<'_>,
        chain_id: Option<Arc<str>>,
    ) -> Result<(Run, Started), Box<RunView>> {
        let (inner, plan) = (&self.inner, &request.plan);
        let (input, context) =
            (std::mem::take(&mut request.input), std::mem::take(&mut request.context));
        let input = run::admit(plan, input, &context, &inner.limits)
            .map_err(|errors| Box::new(Engine::refused_view(plan, errors)))?;
        let mut started = self.started(plan, input, context, std::mem::take(&mut request.options));
        started.options.vouched |= self.trusts(plan);
        started.run_id = request.run_id.take().unwrap_or(started.run_id);
        started.trace = request.trace.take();
        started.chain_id = chain_id.unwrap_or(started.chain_id);
        started.caller = request.caller.take();
        let mut run = Run::new(plan.clone(), inner.limits.clone());
        let selection = &request.selection;
        let given = selection.pinned.iter().map(|step| &step.output);
        let reused = selection.reused.iter().map(|step| &step.output);
        for given in [&started.input, &started.context].into_iter().chain(given).chain(reused) {
            run.redact_texts(inner.secrets.found_in(given));
        }
        Ok((run, started))
    }

    async fn run_with(
        &self,
        mut request: RunRequest<'_>,
        registry: &Registry,
        store: &dyn Store,
        expand: &Expand<'_>,
        chain_id: Option<Arc<str>>,
    ) -> Result<RunView, EngineError> {
        let inner = &self.inner;
        let (mut run, started) = match self.prepare(&mut request, chain_id) {
            Ok(prepared) => prepared,
            Err(refused) => return Ok(*refused),
        };
        let caller = started.caller.clone();
        let drive = DriverContext {
            plan: request.plan,
            registry,
            gate: &inner.gate,
            store,
            confirmer: request.confirmer,
            catalog: &inner.catalog,
            limits: &inner.limits,
            compositions: &Nested { engine: self, registry, caller },
            observer: request.observer,
            ids: &inner.ids,
            expand,
            cancel: request.cancel,
            router: &inner.router,
            unreleased: &inner.unreleased,
        };
        let run_id = started.run_id.clone();
        let first = StartMode::Start(Box::new(started), request.selection);
        let driven = driver::drive(&mut run, first, drive).await;
        if let Err(error) = driven {
            return Err(stop_error(store, run_id, error).await);
        }
        let view = view_of(store, &run).await;
        inner.waiting_runs.insert(run);
        Ok(view)
    }

    /// What a run would do, without calling anything.
    pub fn dry_run(&self, plan: &Plan, input: Value, context: Value) -> RunView {
        match run::admit(plan, input, &context, &self.inner.limits) {
            Ok(input) => {
                let started = self.started(plan, input, context, Options::default());
                let mut view = self.bounded(|| run::dry_run(plan, &started, &self.inner.limits));
                for step in &mut view.steps {
                    let input = std::mem::take(&mut step.input);
                    step.input = self.inner.secrets.redact_value(input);
                }
                view
            }
            Err(errors) => Engine::refused_view(plan, errors),
        }
    }

    /// The view of a run that could not begin.
    pub fn refused_view(plan: &Plan, errors: Vec<ErrorView>) -> RunView {
        let mut view = not_started_view(errors);
        view.name = plan.composition.name.clone();
        view.dialect = plan.composition.dialect;
        view
    }

    /// The view of a run whose text does not compile.
    pub fn compile_failed_view(diagnostics: &[Diagnostic]) -> RunView {
        let errors = diagnostics.iter().filter(|finding| finding.severity == Severity::Error).map(
            |finding| ErrorView::check(finding.code, finding.message.clone(), finding.help.clone()),
        );
        not_started_view(errors.collect())
    }

    fn started(&self, plan: &Plan, input: Value, context: Value, mut options: Options) -> Started {
        let guard = self.inner.catalog.toolset().and_then(|toolset| toolset.guards().timeout_ms);
        if let Some(guard) = guard {
            let own = options.timeout_ms.or(plan.composition.timeout_ms);
            options.timeout_ms = Some(own.map_or(guard, |own| own.min(guard)));
        }
        let ids = &self.inner.ids;
        // A stored plan belongs to the request that it was made for.
        let known = |name: &str, prefix: &str| {
            let id = plan.composition.metadata.get(name).and_then(Value::as_str);
            let id = id.filter(|_| plan.composition.dialect == Dialect::Plan);
            let id = id.filter(|id| is_stamped(id, prefix)).map(Arc::from);
            id.unwrap_or_else(|| ids.stamped_id(prefix))
        };
        Started {
            run_id: ids.ordered_id(),
            request_id: known("request_id", "req"),
            plan_id: known("plan_id", "plan"),
            chain_id: ids.random_id(),
            input,
            context,
            options,
            plan_hash: Some(plan.hash().clone()),
            engine: version::ENGINE.into(),
            caller: None,
            trace: None,
            part: None,
        }
    }

    /// A new run id.
    pub fn new_run_id(&self) -> Arc<str> {
        self.inner.ids.ordered_id()
    }

    /// The tool of this name, if it may be called; a tool that may not be called is unknown.
    pub fn usable_tool(&self, name: &str) -> Result<&Arc<ToolSpec>, EngineError> {
        let tool = self.tool(name)?;
        let is_refused = |toolset: &Toolset| toolset.access_error(&tool.id).is_some();
        if self.inner.catalog.toolset().is_some_and(is_refused) {
            return Err(EngineError::UnknownTool { name: name.to_owned(), nearest: None });
        }
        Ok(tool)
    }

    /// The tool of this name.
    pub fn tool(&self, name: &str) -> Result<&Arc<ToolSpec>, EngineError> {
        match self.inner.catalog.find(name) {
            ToolLookup::Found(tool) => Ok(tool),
            ToolLookup::Ambiguous(ids) => Err(EngineError::UnknownTool {
                name: name.to_owned(),
                nearest: ids.first().map(ToString::to_string),
            }),
            ToolLookup::Missing { nearest } => {
                Err(EngineError::UnknownTool { name: name.to_owned(), nearest })
            }
        }
    }
}

/// The toolset that a builder selects from the catalog.
fn build_toolset_from(toolset: Option<&ToolsetBuilder>, catalog: &Catalog) -> Option<Toolset> {
    let made = toolset?.clone().from_catalog(catalog).build();
    Some(made.expect("a catalog is a source"))
}

/// Whether an id is a prefix, ten digits and nine of `[a-z0-9]`.
fn is_stamped(id: &str, prefix: &str) -> bool {
    let parts: Vec<&str> = id.split('_').collect();
    let [word, seconds, ids] = parts.as_slice() else { return false };
    *word == prefix
        && (seconds.len() == 10 && seconds.bytes().all(|byte| byte.is_ascii_digit()))
        && ids.len() == 9
        && ids.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_lowercase())
}

/// Why a driver stopped. A run that has begun can be resumed later.
async fn stop_error(store: &dyn Store, run_id: Arc<str>, error: StoreError) -> EngineError {
    let is_for_now = matches!(error, StoreError::Unavailable { .. } | StoreError::Broken { .. });
    // A run that cannot be read may have begun.
    let has_begun = !matches!(store.run(&run_id).await, Ok(None));
    if is_for_now && has_begun {
        EngineError::Stopped { run_id, why: error.to_string() }
    } else {
        error.into()
    }
}

/// The view of a run that never began.
pub fn not_started_view(errors: Vec<ErrorView>) -> RunView {
    let ids = IdSource::default();
    RunView {
        run_id: ids.ordered_id(),
        request_id: ids.stamped_id("req"),
        plan_id: ids.stamped_id("plan"),
        chain_id: ids.random_id(),
        status: RunStatus::Failed,
        errors,
        ..RunView::default()
    }
}
