//! Configuration → engine, with the tools, the store and the MCP servers that it names.
//!
//! [`App`] is what a command holds: an engine, its configuration and the servers behind it.
//! A command that serves also keeps it current: [`reload`] reads changed files again, [`service`]
//! makes the run service, [`signals`] says when to stop. [`language`] gives editors the tools of a folder.
//!
//! Notes for people go to standard error as they arise. Errors are returned as [`AppError`]; the
//! command decides how it ends. Not here: arguments, output and exit codes (`cli`).

pub(crate) mod doctor;
mod engine;
mod error;
mod files;
pub(crate) mod language;
mod load;
mod overrides;
mod past_runs;
mod protected_files;
pub(crate) mod reload;
pub(crate) mod service;
mod settings;
pub(crate) mod shared_store;
pub(crate) mod signals;
mod start_progress;
pub(crate) mod store;
mod tools;
mod upstream;

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use segue_core::diagnostic::{Code, Diagnostic, nearest_name};
use segue_core::plan::Plan;
use segue_core::source::{Source, Span};
use segue_runtime::engine::{Engine, EngineBuilder, LoadError};
use segue_runtime::inject::{Fault, Faults};
use segue_runtime::library::Library;
use segue_runtime::recorder::Recorder;
use segue_runtime::store::{Store, ToolStats};
use segue_runtime::tools::end_left_servers;
use tokio::runtime::Runtime;

use crate::api::files::EditableFiles;
use crate::api::installation::Installation;
use crate::config::documents::{
    DocumentSearch, composition_files, composition_paths, file_and_part,
};
use crate::config::{Config, TrustFile};
use crate::observe::Observers;
use crate::observe::metrics::Metrics;
use crate::observe::traces::Traces;
use crate::print::{print_error, print_note};

pub(crate) use engine::toolset_named;
pub(crate) use error::AppError;
pub(crate) use load::{load_config, load_config_as_written};
pub(crate) use upstream::{ServerSelection, UpstreamServers, configured_servers};

use engine::{build_engine, model_of, open_library};
use tools::{Builtins, own_tools};

/// What a command line says about the configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct AppOptions {
    /// The folder to find the configuration for, in place of the working directory.
    pub(crate) folder: Option<PathBuf>,
    /// The configuration file, in place of the one that is found.
    pub(crate) config: Option<PathBuf>,
    /// The store, in place of the configured one.
    pub(crate) store: Option<String>,
    /// The toolset that the engine is limited to.
    pub(crate) toolset: Option<String>,
    /// Print no notes.
    pub(crate) quiet: bool,
    /// Print more notes.
    pub(crate) verbose: bool,
    /// Tell a person what a command waits for.
    pub(crate) shows_waits: bool,
    /// Where no compositions are configured, use those of the working directory.
    pub(crate) finds_compositions: bool,
    /// Callers may change the files of compositions, whatever is configured.
    pub(crate) edits: bool,
    /// The compositions whose findings the command prints itself: no notes about them.
    pub(crate) reported: ReportedFiles,
}

/// Compositions that a command reports about itself.
#[derive(Clone, Debug, Default)]
pub(crate) enum ReportedFiles {
    #[default]
    None,
    /// These, given by file or name.
    Named(Vec<String>),
    /// All that are configured.
    All,
}

/// A configured engine.
pub(crate) struct App {
    pub(crate) engine: Engine,
    pub(crate) config: Config,
    options: AppOptions,
    /// Read on first use: most commands need no template.
    library: OnceCell<Library>,
    /// Configured compositions that could not be loaded.
    not_loaded: Vec<LoadError>,
    /// The notes about the present configuration that were printed.
    printed: BTreeSet<String>,
    builtins: Builtins,
    trace_export: TraceExport,
    // Last, because everything else may still hold connections of its servers.
    pub(crate) upstream: UpstreamServers,
}

impl App {
    /// An engine whose runs are not stored. It uses the statistics of earlier runs.
    pub(crate) fn open(
        options: &AppOptions,
        selection: &ServerSelection<'_>,
    ) -> Result<App, AppError> {
        App::open_with(options, selection, |_| {})
    }

    /// The same with a change to the configuration.
    pub(crate) fn open_with(
        options: &AppOptions,
        selection: &ServerSelection<'_>,
        change: impl FnOnce(&mut Config),
    ) -> Result<App, AppError> {
        let mut config = load_config(options)?;
        change(&mut config);
        let store = store::open_existing(&config.store).and_then(Result::ok);
        let stats = store.map(|store| stats_of(&*store)).unwrap_or_default();
        App::build(options, config, selection, |builder| builder.tool_stats(&stats))
    }

    /// An engine with the store of runs.
    pub(crate) fn open_stored(
        options: &AppOptions,
        selection: &ServerSelection<'_>,
    ) -> Result<App, AppError> {
        App::open_recorded(options, selection, &[], None)
    }

    /// The same with injected faults, and with a recorder of what tools answer.
    pub(crate) fn open_recorded(
        options: &AppOptions,
        selection: &ServerSelection<'_>,
        faults: &[Fault],
        recorder: Option<Recorder>,
    ) -> Result<App, AppError> {
        App::open_loaded(options, load_config(options)?, selection, faults, recorder)
    }

    /// An engine for a server. Its command has loaded the configuration before and printed the notes
    /// about it, so this does not repeat them.
    pub(crate) fn open_served(options: &AppOptions) -> Result<App, AppError> {
        let config = load_config(&AppOptions { quiet: true, ..options.clone() })?;
        App::open_loaded(options, config, &ServerSelection::Served, &[], None)
    }

    fn open_loaded(
        options: &AppOptions,
        config: Config,
        selection: &ServerSelection<'_>,
        faults: &[Fault],
        recorder: Option<Recorder>,
    ) -> Result<App, AppError> {
        let store = store::open(&config.store, config.worker.lease)?;
        App::build(options, config, selection, |mut builder| {
            if let Some(store) = store {
                builder = builder.tool_stats(&stats_of(&*store)).store(store);
            }
            if !faults.is_empty() {
                builder = builder.faults(Faults::new(faults.to_vec()));
            }
            if let Some(recorder) = recorder {
                builder = builder.recorder(recorder);
            }
            builder
        })
    }

    /// An engine of the built-in tools, for an editor whose configuration cannot be used.
    fn open_unconfigured(options: &AppOptions) -> Result<App, AppError> {
        let selection = ServerSelection::Recorded;
        App::build(options, Config::default(), &selection, |builder| builder)
    }

    fn build(
        options: &AppOptions,
        config: Config,
        selection: &ServerSelection<'_>,
        change: impl FnOnce(EngineBuilder) -> EngineBuilder,
    ) -> Result<App, AppError> {
        // Before new servers start: they may need a port or a lock that an old one still holds.
        end_left_servers();
        let builtins = Builtins::new(&config);
        // Tests and offline checks reach nothing, so they have no model either.
        let is_offline = matches!(selection, ServerSelection::Recorded);
        let model = if is_offline { None } else { model_of(&config) };
        let tools = own_tools(&config, &builtins, model)?;
        let mut upstream = UpstreamServers::open(&config, selection, &tools, options.shows_waits);
        let mut printed = BTreeSet::new();
        let (engine, not_loaded) =
            build_engine(options, &config, tools, &mut upstream, &mut printed, change)?;
        let trace_export = TraceExport {
            traces: OnceCell::new(),
            flush_timeout: Duration::from_millis(config.limits.traces_leave_ms),
        };
        let (options, library) = (options.clone(), OnceCell::new());
        Ok(App {
            engine,
            config,
            options,
            library,
            not_loaded,
            printed,
            builtins,
            trace_export,
            upstream,
        })
    }

    /// Loads the configuration again and uses it from now on; an error leaves the one before in use.
    /// Runs under way keep the plan and the tools they started with.
    pub(crate) async fn reconfigure(&mut self) -> Result<(), AppError> {
        let mut config = load_config(&self.options)?;
        if config.store != self.config.store {
            print_note("the new `store` takes effect at the next start");
            config.store = self.config.store.clone();
        }
        let builtins = Builtins::new(&config);
        let builtins =
            if builtins.is_same(&self.builtins) { self.builtins.clone() } else { builtins };
        let tools = own_tools(&config, &builtins, model_of(&config))?;
        let mut upstream = UpstreamServers::reopen(&config, &tools, &self.upstream).await;
        // Statistics are hints: without them the engine works all the same.
        let stats = self.engine.store().tool_stats().await.unwrap_or_default();
        let change = |builder: EngineBuilder| builder.tool_stats(&stats).reuse(&self.engine);
        // A person who reloads the configuration wants to see its warnings again.
        let mut printed = BTreeSet::new();
        let (engine, not_loaded) =
            build_engine(&self.options, &config, tools, &mut upstream, &mut printed, change)?;
        self.printed = printed;
        self.upstream.replace_servers(upstream);
        (self.engine, self.config, self.not_loaded) = (engine, config, not_loaded);
        (self.library, self.builtins) = (OnceCell::new(), builtins);
        Ok(())
    }

    /// Builds the engine anew from what the MCP servers list now.
    pub(crate) async fn refresh(&mut self) -> Result<(), AppError> {
        let App { config, builtins, upstream, options, printed, .. } = self;
        let tools = own_tools(config, builtins, model_of(config))?;
        upstream.rebuild_tools();
        let stats = self.engine.store().tool_stats().await.unwrap_or_default();
        let change = |builder: EngineBuilder| builder.tool_stats(&stats).reuse(&self.engine);
        let (engine, not_loaded) = build_engine(options, config, tools, upstream, printed, change)?;
        (self.engine, self.not_loaded, self.library) = (engine, not_loaded, OnceCell::new());
        Ok(())
    }

    /// The templates.
    pub(crate) fn library(&self) -> &Library {
        self.library.get_or_init(|| open_library(self.options.quiet, &self.config, &self.engine))
    }

    /// Observers of a run that a command starts: traces, where they are configured.
    pub(crate) fn observers(&self) -> Observers {
        let traces = self.trace_export.traces.get_or_init(|| open_traces(&self.config));
        Observers { metrics: None, traces: traces.clone() }
    }

    /// Observers of a server: traces and metrics.
    pub(crate) fn served_observers(&self) -> Observers {
        let servers = self.upstream.server_source();
        let upstream = move || {
            let servers = servers();
            let figures = servers.iter().map(|server| (server.name().clone(), server.figures()));
            figures.map(|(name, it)| (name, it.is_up, it.starts, it.failures)).collect()
        };
        let metrics = Metrics::new(&self.config.limits, Box::new(upstream));
        Observers { metrics: Some(Arc::new(metrics)), ..self.observers() }
    }

    /// What operators see of this installation, for the service.
    pub(crate) fn installation(&self) -> Installation {
        Installation {
            servers: self.upstream.servers().map(Arc::downgrade).collect(),
            failed: self.upstream.failed.clone(),
            checks: doctor::checks(self),
            settings: settings::settings(&self.config, &self.options),
        }
    }

    /// The files of compositions, for an editor.
    pub(crate) fn editable_files(&self) -> EditableFiles {
        files::editable_files(&self.config, self.options.edits)
    }

    /// The runtime that the engine's calls run on.
    pub(crate) fn runtime(&self) -> &Rc<Runtime> {
        self.upstream.runtime()
    }

    /// Plans a text. The flag says whether it calls tools whose server cannot be reached; the findings
    /// say why.
    pub(crate) fn plan(&self, source: &Source) -> (Option<Arc<Plan>>, Vec<Diagnostic>, bool) {
        let (plan, diagnostics) = self.engine.plan(source);
        let unavailable = self.engine.unavailable();
        let unreachable = plan.is_none() && unavailable.explains_any(&diagnostics, source);
        (plan, diagnostics, unreachable)
    }

    /// The text of a composition: a file, the name of a configured composition, or the id of a
    /// template.
    pub(crate) fn find(&self, name: &str) -> Result<Source, AppError> {
        if let Some((path, part)) = file_and_part(name) {
            let configured = composition_paths(&self.config);
            let search = DocumentSearch { configured: &configured, limits: &self.config.limits };
            return search
                .read_one(&path, part)
                .map_err(|(message, help)| AppError::new(message, help));
        }
        self.configured_composition(name).map_or_else(|| self.find_template(name), Ok)
    }

    fn find_template(&self, name: &str) -> Result<Source, AppError> {
        if let Ok(template) = self.runtime().block_on(self.library().stored_template(name)) {
            return Ok(template.source);
        }
        let help = self.help_for_unknown(name);
        let message = format!("there is no file, no composition and no template `{name}`");
        Err(AppError::new(message, Some(help)))
    }

    /// What a person meant by a name that no file, composition or template has.
    fn help_for_unknown(&self, name: &str) -> String {
        let endings = ["yaml", "yml", "json"];
        let files = endings.map(|ending| format!("{name}.{ending}"));
        if let Some(file) = files.iter().find(|file| Path::new(file).is_file()) {
            return format!("did you mean `{file}`?");
        }
        let names = self.composition_names();
        let templates = self.runtime().block_on(self.library().list("")).unwrap_or_default();
        let known = names.iter().map(String::as_str);
        let known = known.chain(templates.iter().map(|template| &*template.id));
        match nearest_name(name, known) {
            Some(near) => format!("did you mean `{near}`?"),
            None if names.is_empty() => "`segue init` writes an example".to_owned(),
            None => format!("configured compositions: {}", names.join(", ")),
        }
    }

    /// Findings about a configured file that its text alone does not show: another file has the same
    /// composition name.
    pub(crate) fn name_clashes(&self, file: &Path) -> Vec<Diagnostic> {
        let same = |other: &Path| matches!((file.canonicalize(), other.canonicalize()), (Ok(a), Ok(b)) if a == b);
        let errors = self.not_loaded.iter().filter(|it| same(Path::new(&**it.source.name())));
        let findings = errors.flat_map(|error| &error.diagnostics);
        findings
            .filter(|d| d.code == Code::DuplicateId && d.span == Span::default())
            .cloned()
            .collect()
    }

    /// The configured compositions that could not be loaded.
    pub(crate) fn not_loaded(&self) -> &[LoadError] {
        &self.not_loaded
    }

    fn composition_names(&self) -> Vec<String> {
        let tools = self.engine.catalog().tools();
        tools.filter(|t| t.composition.is_some()).map(|t| t.id.name().to_owned()).collect()
    }

    fn configured_composition(&self, name: &str) -> Option<Source> {
        composition_files(&self.config).into_iter().find(|source| {
            let header = segue_core::compile::read_header(source, &self.config.limits);
            header.is_some_and(|header| &*header.name == name)
        })
    }
}

/// The exporter of spans, opened on first use.
struct TraceExport {
    traces: OnceCell<Option<Arc<Traces>>>,
    /// How long the last spans may take to be sent.
    flush_timeout: Duration,
}

impl Drop for TraceExport {
    // Work in `Drop`, because a command ends in many places and each must send its last spans.
    fn drop(&mut self) {
        if let Some(Some(traces)) = self.traces.get() {
            traces.close(self.flush_timeout);
        }
    }
}

/// The exporter of spans that the environment or a trusted configuration asks for.
fn open_traces(config: &Config) -> Option<Arc<Traces>> {
    let configured = config.traces.as_ref().filter(|_| TrustFile::load().allows(config));
    let env = |name: &str| std::env::var(name).ok();
    match Traces::open(configured, &env, &config.limits) {
        Ok(traces) => traces.map(Arc::new),
        Err(message) => {
            print_error(
                &format!("traces are not sent: {message}"),
                Some("check `observe.otlp` in `segue.yaml`"),
            );
            None
        }
    }
}

/// Statistics of earlier runs. They are hints: without them the engine works all the same.
fn stats_of(store: &dyn Store) -> Vec<ToolStats> {
    current_thread_runtime().block_on(store.tool_stats()).unwrap_or_default()
}

/// A runtime of one thread, which is enough for a command: its calls wait, they do not compute.
pub(crate) fn current_thread_runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime needs nothing that could be missing")
}
