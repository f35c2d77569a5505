//! Configuration → engine, as every command needs it.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use segue_core::access::INLINE;
use segue_core::compile::source::{Position, Source, Span};
use segue_core::diagnostic::{Code, Diagnostic, Severity, nearest_name};
use segue_core::plan::Plan;
use segue_core::planner::{ModelReply, Prompt};
use segue_core::run::Failure;
use segue_core::toolset::ToolsetBuilder;
use segue_core::value::Value;
use segue_runtime::engine::{Engine, EngineBuilder, EngineError, LoadError, UnavailableTools};
use segue_runtime::inject::{Fault, Faults};
use segue_runtime::library::{Library, UnreadableTemplate};
use segue_runtime::llm::{self, Model};
use segue_runtime::recorder::Recorder;
use segue_runtime::store::{SqliteOptions, SqliteStore, ToolStatistics as _, ToolStats};
use segue_runtime::tools::builtin::{self, BuiltinConfig, CheckpointLocation};
use segue_runtime::tools::gate::Concurrency;
use segue_runtime::tools::redact::Secrets;
use segue_runtime::tools::{
    Tool, ToolError, ToolRequest, ToolRunner, command, end_left_servers, http,
};

use super::load::load_config;
use super::overrides::{self, matches};
use super::protected_files::protected_files;
use super::upstream::{ServerSelection, UpstreamServers};
use super::{Exit, Global, print_error, print_status};
use crate::config::documents::{
    composition_files, composition_paths, empty_patterns, read_source, template_files,
    withheld_patterns,
};
use crate::config::{self, Config, StoreLocation, TrustFile};
use crate::observe::Observers;
use crate::observe::metrics::Metrics;
use crate::observe::traces::Traces;
use crate::print::{TerminalStyle, display_path, escape_control, render};

/// A configured engine.
pub(super) struct App {
    pub(super) engine: Engine,
    pub(super) config: Config,
    /// Read when somebody asks for it: most commands do not.
    library: OnceCell<Library>,
    is_quiet: bool,
    pub(super) unloaded: Vec<LoadError>,
    builtins: Builtins,
    sending: TraceExport,
    // Last, because everything else may still hold connections of its servers.
    pub(super) upstream: UpstreamServers,
}

impl App {
    /// An engine that keeps nothing, for those who only look. It knows what earlier runs have shown.
    pub(super) fn open(global: &Global, wanted: &ServerSelection<'_>) -> Result<App, Exit> {
        App::open_with(global, wanted, |_| {})
    }

    /// The same of a configuration with a change.
    pub(super) fn open_with(
        global: &Global,
        wanted: &ServerSelection<'_>,
        change: impl FnOnce(&mut Config),
    ) -> Result<App, Exit> {
        let mut config = load_config(global)?;
        change(&mut config);
        let file = store_file(&config.store).filter(|file| file.exists());
        let store = file.and_then(|file| SqliteStore::open(&file, SqliteOptions::default()).ok());
        let stats = store.map(|store| stats_of(&store)).unwrap_or_default();
        App::build(global, config, wanted, |builder| builder.tool_stats(&stats))
    }

    /// An engine with the store of runs, in which these things break on purpose.
    pub(super) fn open_stored(
        global: &Global,
        wanted: &ServerSelection<'_>,
        faults: &[Fault],
    ) -> Result<App, Exit> {
        App::open_recorded(global, wanted, faults, None)
    }

    /// The same, and what its tools answer is written down.
    pub(super) fn open_recorded(
        global: &Global,
        wanted: &ServerSelection<'_>,
        faults: &[Fault],
        recorder: Option<Recorder>,
    ) -> Result<App, Exit> {
        App::open_loaded(global, load_config(global)?, wanted, faults, recorder)
    }

    /// An engine that serves. Its command has read the configuration before, and said what is to be
    /// said about it.
    pub(super) fn open_served(global: &Global) -> Result<App, Exit> {
        let config = load_config(&Global { quiet: true, ..global.clone() })?;
        App::open_loaded(global, config, &ServerSelection::Served, &[], None)
    }

    fn open_loaded(
        global: &Global,
        config: Config,
        wanted: &ServerSelection<'_>,
        faults: &[Fault],
        recorder: Option<Recorder>,
    ) -> Result<App, Exit> {
        let store = match store_file(&config.store) {
            None => None,
            Some(file) => match SqliteStore::open(&file, SqliteOptions::default()) {
                Ok(store) => Some(Arc::new(store)),
                Err(error) => {
                    let message = format!("cannot open the store `{}`: {error}", file.display());
                    print_error(
                        &message,
                        Some("`--store sqlite:FILE` names another, `--store memory` none"),
                    );
                    return Err(Exit::Usage);
                }
            },
        };
        App::build(global, config, wanted, |mut builder| {
            if let Some(store) = store {
                builder = builder.tool_stats(&stats_of(&store)).store(store);
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

    fn build(
        global: &Global,
        config: Config,
        wanted: &ServerSelection<'_>,
        change: impl FnOnce(EngineBuilder) -> EngineBuilder,
    ) -> Result<App, Exit> {
        // Before others are started that may need what they hold.
        end_left_servers();
        let builtins = Builtins::new(&config);
        let tools = own_tools(&config, &builtins).map_err(|message| said(&message))?;
        let mut upstream = UpstreamServers::open(&config, wanted, &tools);
        let (engine, unloaded) = built(global, &config, tools, &mut upstream, &[], change)?;
        let (library, is_quiet) = (OnceCell::new(), global.quiet);
        let patience = Duration::from_millis(config.limits.traces_leave_ms);
        let sending = TraceExport(OnceCell::new(), patience);
        Ok(App { engine, config, library, is_quiet, unloaded, builtins, sending, upstream })
    }

    /// Goes on with the configuration as it is now, or as it was when that cannot be used. What is under
    /// way keeps what it was begun with.
    pub(super) async fn reconfigure(&mut self, global: &Global) -> Result<(), Exit> {
        let mut config = load_config(global)?;
        if config.store != self.config.store {
            print_status("note: `store` is another one from the next start on");
            config.store = self.config.store.clone();
        }
        let builtins = Builtins::new(&config);
        let builtins =
            if builtins.is_same(&self.builtins) { self.builtins.clone() } else { builtins };
        let tools = own_tools(&config, &builtins).map_err(|message| said(&message))?;
        let mut upstream = UpstreamServers::reopen(&config, &tools, &self.upstream).await;
        // What was seen of tools are hints, and no reason to stop when they cannot be had.
        let stats = self.engine.store().tool_stats().await.unwrap_or_default();
        let change = |builder: EngineBuilder| builder.tool_stats(&stats).reuse(&self.engine);
        let (engine, unloaded) = built(global, &config, tools, &mut upstream, &[], change)?;
        self.upstream.replace_servers(upstream);
        (self.engine, self.config, self.unloaded) = (engine, config, unloaded);
        (self.library, self.builtins) = (OnceCell::new(), builtins);
        Ok(())
    }

    /// Goes on with what is known of the servers now.
    pub(super) async fn refresh(&mut self, global: &Global) -> Result<(), Exit> {
        let App { config, builtins, upstream, .. } = self;
        let tools = own_tools(config, builtins).map_err(|message| said(&message))?;
        upstream.rebuild_tools();
        let stats = self.engine.store().tool_stats().await.unwrap_or_default();
        let change = |builder: EngineBuilder| builder.tool_stats(&stats).reuse(&self.engine);
        let (engine, unloaded) = built(global, config, tools, upstream, &self.unloaded, change)?;
        (self.engine, self.unloaded, self.library) = (engine, unloaded, OnceCell::new());
        Ok(())
    }

    /// The templates.
    pub(super) fn library(&self) -> &Library {
        self.library.get_or_init(|| library(self.is_quiet, &self.config, &self.engine))
    }

    /// Those who are told of runs.
    pub(super) fn observers(&self) -> Observers {
        let traces = self.sending.0.get_or_init(|| traces(&self.config));
        Observers { metrics: None, traces: traces.clone() }
    }

    /// The same, and who counts.
    pub(super) fn served_observers(&self) -> Observers {
        let servers = self.upstream.server_source();
        let upstream = move || {
            let servers = servers();
            let figures = servers.iter().map(|server| (server.name().clone(), server.figures()));
            figures.map(|(name, it)| (name, it.is_up, it.starts, it.failures)).collect()
        };
        let metrics = Metrics::new(&self.config.limits, Box::new(upstream));
        Observers { metrics: Some(Arc::new(metrics)), ..self.observers() }
    }

    /// What calls are made on.
    pub(super) fn runtime(&self) -> &Rc<tokio::runtime::Runtime> {
        self.upstream.runtime()
    }

    /// Plans a text. Of tools that are unknown because their server cannot be used it is said why;
    /// the flag says whether there are any.
    pub(super) fn plan(&self, source: &Source) -> (Option<Arc<Plan>>, Vec<Diagnostic>, bool) {
        let (plan, diagnostics) = self.engine.plan(source);
        let absent = self.engine.unavailable();
        let unreachable = plan.is_none() && absent.explains_any(&diagnostics, source);
        (plan, diagnostics, unreachable)
    }

    /// Says of a tool that is not known what may be the reason, and how the command ends.
    pub(super) fn report_unknown(&self, error: &EngineError, name: &str) -> Exit {
        let namespace = name.split(':').next().unwrap_or("");
        if let Some(why) = self.upstream.failed.get(namespace) {
            let message = format!("the MCP server `{namespace}` cannot be used: {why}");
            print_error(&message, Some("`segue doctor` looks at every server"));
            return Exit::Unreachable;
        }
        if let Some(id) = self.engine.unavailable().changed_tool(name) {
            let message = format!("`{id}` is not what was accepted of it");
            print_error(&message, Some(&UnavailableTools::change_help(id)));
            return Exit::Usage;
        }
        print_error(&error.to_string(), super::call::hint(error).as_deref());
        // Whoever names a source means no other one.
        if name.contains(':') {
            return Exit::Usage;
        }
        for (name, why) in &self.upstream.failed {
            print_status(&format!(
                "note: the MCP server `{name}` cannot be used: {}",
                escape_control(why)
            ));
        }
        if self.upstream.failed.is_empty() { Exit::Usage } else { Exit::Unreachable }
    }

    /// The text of a composition: a file, the name of one that is configured, or the id of a
    /// template. The error is what is wrong and what to do.
    pub(super) fn find(&self, name: &str) -> Result<Source, (String, Option<String>)> {
        let file = Path::new(name).is_file().then(|| PathBuf::from(name));
        let Some(path) = file.or_else(|| self.file_of(name)) else {
            if let Ok(volume) = self.runtime().block_on(self.library().stored_template(name)) {
                return Ok(volume.source);
            }
            let names = self.names();
            let help = if names.is_empty() {
                "`segue init` writes an example".to_owned()
            } else {
                format!("configured compositions: {}", names.join(", "))
            };
            let message = format!("there is no file, no composition and no template `{name}`");
            return Err((message, Some(help)));
        };
        read_source(&path, self.config.limits.document_bytes_max).map_err(|message| (message, None))
    }

    /// The same, saying what is wrong.
    pub(super) fn source(&self, name: &str) -> Result<Source, Exit> {
        self.find(name).map_err(|(message, help)| {
            print_error(&message, help.as_deref());
            Exit::Usage
        })
    }

    /// What keeps a configured file from being loaded that is not wrong with it by itself: another
    /// one has its name.
    pub(super) fn clashes_of(&self, file: &Path) -> Vec<Diagnostic> {
        let same = |other: &Path| matches!((file.canonicalize(), other.canonicalize()), (Ok(a), Ok(b)) if a == b);
        let unloaded = self.unloaded.iter().filter(|u| same(Path::new(&**u.source.name())));
        let clashes = unloaded.flat_map(|u| &u.diagnostics);
        clashes
            .filter(|d| d.code == Code::DuplicateId && d.span == Span::default())
            .cloned()
            .collect()
    }

    /// The files of the configured compositions.
    pub(super) fn composition_paths(&self) -> Vec<PathBuf> {
        composition_paths(&self.config)
    }

    fn names(&self) -> Vec<String> {
        let tools = self.engine.catalog().tools();
        tools.filter(|t| t.composition.is_some()).map(|t| t.id.name().to_owned()).collect()
    }

    fn file_of(&self, name: &str) -> Option<PathBuf> {
        composition_paths(&self.config).into_iter().find(|path| {
            let source = read_source(path, self.config.limits.document_bytes_max).ok();
            let header = source
                .and_then(|source| segue_core::compile::read_header(&source, &self.config.limits));
            header.is_some_and(|header| &*header.name == name)
        })
    }
}

/// A note that a composition was not loaded, where it is wrong and why.
pub(super) fn not_loaded_message(source: &Source, diagnostics: &[Diagnostic]) -> String {
    let is_error = |finding: &&Diagnostic| finding.severity == Severity::Error;
    let Some(first) = diagnostics.iter().find(is_error).or(diagnostics.first()) else {
        return format!("note: `{}` was not loaded", source.name());
    };
    let Position { line, column } = source.position(first.span.start);
    let help = first.help.as_ref().map(|help| format!(" ({help})")).unwrap_or_default();
    let reason = escape_control(&format!("{}{help}", first.message)).into_owned();
    format!("note: `{}:{line}:{column}` was not loaded: {reason}", source.name())
}

/// The toolset that is meant, saying so when there is none.
pub(super) fn toolset_of(config: &Config, name: &str) -> Result<ToolsetBuilder, Exit> {
    config.toolset(name).ok_or_else(|| {
        let names: Vec<&str> = config.toolsets.keys().map(|name| &**name).collect();
        let help = match (nearest_name(name, names.iter().copied()), names.as_slice()) {
            (Some(near), _) => format!("did you mean `{near}`?"),
            (None, []) => "`toolsets` in `segue.yaml` defines them".to_owned(),
            (None, names) => format!("configured toolsets: {}", names.join(", ")),
        };
        print_error(&format!("there is no toolset `{name}`"), Some(&help));
        Exit::Usage
    })
}

/// The library of an engine; files that are no templates are named.
pub(super) fn library(is_quiet: bool, config: &Config, engine: &Engine) -> Library {
    let files = template_files(config);
    let (library, unread) = Library::new(engine.clone(), files);
    if !is_quiet {
        for UnreadableTemplate { source, diagnostics } in &unread {
            let reason = diagnostics.first().map_or("", |finding| &finding.message);
            print_status(&format!(
                "note: `{}` is no template: {}",
                source.name(),
                escape_control(reason)
            ));
        }
    }
    library
}

/// The built-in tools, which keep things in memory and so are kept themselves.
#[derive(Clone)]
struct Builtins {
    config: BuiltinConfig,
    tools: OnceCell<Vec<Tool>>,
}

impl Builtins {
    fn new(config: &Config) -> Builtins {
        let file = store_file(&config.store);
        let config = BuiltinConfig {
            files_root: config.files_root.clone().unwrap_or_else(|| PathBuf::from(".")),
            own_files: protected_files(config),
            overwrite: config.overwrite.clone(),
            http_allow: config.http_allow.clone(),
            checkpoints: file.map_or(CheckpointLocation::Memory, CheckpointLocation::File),
            limits: config.limits.clone(),
        };
        Builtins { config, tools: OnceCell::new() }
    }

    fn tools(&self) -> Vec<Tool> {
        self.tools.get_or_init(|| builtin::tools(&self.config)).clone()
    }

    fn is_same(&self, other: &Builtins) -> bool {
        self.config == other.config
    }
}

/// Says what is wrong with a configuration.
fn said(message: &str) -> Exit {
    print_error(message, None);
    Exit::Usage
}

/// An engine of these tools and those of the servers, saying what is odd about either and was not
/// before.
fn built(
    global: &Global,
    config: &Config,
    mut tools: Vec<Tool>,
    upstream: &mut UpstreamServers,
    before: &[LoadError],
    change: impl FnOnce(EngineBuilder) -> EngineBuilder,
) -> Result<(Engine, Vec<LoadError>), Exit> {
    tools.append(&mut upstream.tools);
    let notes = overrides::apply(config, &mut tools, upstream).map_err(|message| said(&message))?;
    if !global.quiet {
        notes.iter().for_each(|note| print_status(&format!("note: {note}")));
    }
    let concurrency = concurrency(config, &tools, upstream).map_err(|message| said(&message))?;
    let toolset = global.toolset.as_deref().map(|name| toolset_of(config, name)).transpose()?;
    let mut builder = Engine::builder()
        .tools(tools)
        .concurrency(concurrency)
        .limits(config.limits.clone())
        .secrets(Secrets::new(config.secrets.iter().cloned()))
        .unavailable(absent(config, upstream))
        .compositions(composition_files(config));
    let trusted = TrustFile::load().overwrites(config);
    builder = builder.trust_overwrites_if(move |composition| trusted.has(composition));
    if let Some(toolset) = toolset {
        builder = builder.toolset(toolset);
    }
    if let Some(inline) = config.toolset(INLINE) {
        builder = builder.inline_toolset(inline);
    }
    if let Some(model) = model_of(config) {
        builder = builder.model(model);
    }
    let (engine, unloaded) = change(builder).build();
    if !global.quiet {
        let notes = upstream.notes.iter().cloned().chain(empty_patterns(config));
        let notes = notes.chain(withheld_patterns(config)).chain(untrusted_overwrites(&engine));
        notes.for_each(|note| print_status(&format!("note: {}", escape_control(&note))));
        let note =
            |LoadError { source, diagnostics }: &LoadError| not_loaded_message(source, diagnostics);
        let said: BTreeSet<String> = before.iter().map(note).collect();
        unloaded
            .iter()
            .map(note)
            .filter(|note| !said.contains(note))
            .for_each(|note| print_status(&note));
    }
    Ok((engine, unloaded))
}

/// Says which compositions may overwrite nothing without a question, although they say so.
pub(super) fn untrusted_overwrites(engine: &Engine) -> Option<String> {
    let files = engine.untrusted_overwrites();
    let files: Vec<String> =
        files.iter().map(|file| format!("`{}`", display_path(Path::new(&**file)))).collect();
    (!files.is_empty()).then(|| {
        format!(
            "`overwrites` of {} is not trusted and has no effect: read it, then run `segue trust`",
            files.join(", ")
        )
    })
}

/// What is not there.
fn absent(config: &Config, upstream: &UpstreamServers) -> UnavailableTools {
    let mut absent = upstream.unavailable();
    if !TrustFile::load().allows(config) {
        let sources = [(command::COMMAND, config.commands.len()), (http::HTTP, config.http.len())];
        let there = sources.into_iter().filter(|(_, count)| *count > 0);
        absent.untrusted.extend(there.map(|(source, _)| source.into()));
    }
    absent
}

/// The tools that need no server. One that is not trusted and cannot be made is not there: what it
/// lacks may be a variable, which it is not given.
fn own_tools(config: &Config, builtins: &Builtins) -> Result<Vec<Tool>, String> {
    let mut tools = builtins.tools();
    let trusted = TrustFile::load().allows(config);
    let commands = config.commands.iter().map(|(name, command)| {
        command::tool(name, command, &config.limits)
            .map_err(|message| format!("command `{name}`: {message}"))
    });
    let operations = config.http.iter().map(|(name, operation)| {
        http::tool(name, operation, &config.limits)
            .map_err(|message| format!("HTTP operation `{name}`: {message}"))
    });
    for tool in commands.chain(operations) {
        match tool {
            Ok(tool) if trusted => tools.push(tool),
            Ok(tool) => tools.push(untrusted(&tool)),
            Err(message) if trusted => return Err(message),
            Err(_) => {}
        }
    }
    Ok(tools)
}

/// Spans that are sent while a command is there.
struct TraceExport(OnceCell<Option<Arc<Traces>>>, Duration);

impl Drop for TraceExport {
    // Work in `Drop`, because a command ends in many places and what it did should be told in all.
    fn drop(&mut self) {
        if let Some(Some(traces)) = self.0.get() {
            traces.close(self.1);
        }
    }
}

/// Who is sent spans, where the environment says so, or a configuration that may.
fn traces(config: &Config) -> Option<Arc<Traces>> {
    let configured = config.traces.as_ref().filter(|_| TrustFile::load().allows(config));
    let env = |name: &str| std::env::var(name).ok();
    match Traces::open(configured, &env, &config.limits) {
        Ok(traces) => traces.map(Arc::new),
        Err(message) => {
            print_error(
                &format!("nobody is told of runs: {message}"),
                Some("look at `observe.otlp`"),
            );
            None
        }
    }
}

/// How many calls may be under way at once, by the ids of tools and their sources.
fn concurrency(
    config: &Config,
    tools: &[Tool],
    upstream: &UpstreamServers,
) -> Result<Concurrency, String> {
    for source in config.sources.keys().filter(|source| !upstream.is_server(source)) {
        let names: BTreeSet<&str> = tools.iter().map(|tool| tool.spec.id.namespace()).collect();
        if !names.contains(&**source) {
            let names = Vec::from_iter(names).join("`, `");
            return Err(format!("`sources` speaks of `{source}`; there are `{names}`"));
        }
    }
    let limited = config.tools.iter().filter_map(|(name, known)| {
        let id = &tools.iter().find(|tool| matches(tool, name))?.spec.id;
        Some((id.clone(), known.max_concurrency?))
    });
    Ok(Concurrency { tools: limited.collect(), sources: config.sources.clone() })
}

/// What earlier runs have shown of tools: hints, and no reason to stop when they cannot be had.
fn stats_of(store: &SqliteStore) -> Vec<ToolStats> {
    super::run::runtime().block_on(store.tool_stats()).unwrap_or_default()
}

/// The file in which runs and checkpoints are kept, if there is one.
pub(super) fn store_file(store: &StoreLocation) -> Option<PathBuf> {
    match store {
        StoreLocation::Memory => None,
        StoreLocation::Sqlite(file) => Some(file.clone()),
        StoreLocation::Default => config::data_folder().map(|folder| folder.join("segue.db")),
    }
}

/// The configured model, which answers only where its configuration is trusted: it is sent a key.
fn model_of(config: &Config) -> Option<Arc<dyn Model>> {
    let known = config.llm.as_ref()?;
    if TrustFile::load().allows(config) {
        return llm::model(known, &config.limits).ok();
    }
    Some(Arc::new(UntrustedModel(known.model.as_str().into())))
}

/// A model that is known but must not be asked.
struct UntrustedModel(Arc<str>);

#[async_trait]
impl Model for UntrustedModel {
    fn name(&self) -> &Arc<str> {
        &self.0
    }

    async fn answer(&self, _prompt: &Prompt) -> Result<ModelReply, Failure> {
        let message = "it comes from a configuration that was found here and not allowed yet";
        let hint = Some("look at its `llm`, then run `segue trust`".into());
        Err(Failure { hint, ..Failure::permanent(Code::PolicyViolation, message) })
    }
}

/// A command or an operation that is known but must not be called.
fn untrusted(tool: &Tool) -> Tool {
    Tool { spec: tool.spec.clone(), runner: Arc::new(UntrustedTool) }
}

struct UntrustedTool;

#[async_trait]
impl ToolRunner for UntrustedTool {
    async fn call(&self, call: ToolRequest) -> Result<Value, ToolError> {
        let message = format!(
            "`{}` comes from a configuration that was found here and not allowed yet: \
             look at it, then run `segue trust`",
            call.tool
        );
        Err(ToolError::refused(Code::PolicyViolation, message))
    }
}

/// Draws findings, worst news last so that it stays on the screen.
pub(super) fn print_diagnostics(diagnostics: &[Diagnostic], source: &Source) {
    let look = TerminalStyle::of_stderr();
    for finding in diagnostics {
        print_status(&render(finding, source, look));
        print_status("");
    }
}
