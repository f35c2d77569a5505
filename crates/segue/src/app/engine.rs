//! Configured tools, servers and compositions → an engine, with notes about what cannot be used.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use segue_core::access::INLINE;
use segue_core::diagnostic::{Code, Diagnostic, Severity, nearest_name};
use segue_core::planner::{ModelReply, Prompt};
use segue_core::run::Failure;
use segue_core::source::Position;
use segue_core::toolset::ToolsetBuilder;
use segue_runtime::engine::{Engine, EngineBuilder, LoadError, UnavailableTools};
use segue_runtime::library::{Library, UnreadableTemplate};
use segue_runtime::llm::{self, Model};
use segue_runtime::tools::gate::Concurrency;
use segue_runtime::tools::redact::Secrets;
use segue_runtime::tools::{Tool, command, http};

use super::overrides::{self, matches};
use super::{AppError, AppOptions, ReportedFiles, UpstreamServers};
use crate::config::documents::{
    composition_files, empty_patterns, template_files, withheld_patterns,
};
use crate::config::{Config, TrustFile};
use crate::print::{display_path, escape_control, print_note};

/// An engine of these tools and those of the servers. Prints the notes that are not `printed` yet: a
/// server builds the engine anew whenever an MCP server lists its tools.
pub(super) fn build_engine(
    options: &AppOptions,
    config: &Config,
    mut tools: Vec<Tool>,
    upstream: &mut UpstreamServers,
    printed: &mut BTreeSet<String>,
    change: impl FnOnce(EngineBuilder) -> EngineBuilder,
) -> Result<(Engine, Vec<LoadError>), AppError> {
    tools.append(&mut upstream.tools);
    let notes = overrides::apply(config, &mut tools, upstream)?;
    let concurrency = concurrency(config, &tools, upstream)?;
    let toolset = options.toolset.as_deref().map(|name| toolset_named(config, name)).transpose()?;
    let mut builder = Engine::builder()
        .tools(tools)
        .concurrency(concurrency)
        .limits(config.limits.clone())
        .secrets(Secrets::new(config.secrets.iter().cloned()))
        .unavailable(unavailable(config, upstream))
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
    let (engine, not_loaded) = change(builder).build();
    let notes = notes.into_iter().chain(upstream.notes.iter().cloned());
    let notes = notes.chain(empty_patterns(config)).chain(withheld_patterns(config));
    let notes = notes.chain(untrusted_overwrites(&engine));
    let notes = notes.map(|note| escape_control(&note).into_owned());
    let unavailable = engine.unavailable();
    let is_unknown =
        |error: &LoadError| unavailable.is_only_not_started(&error.diagnostics, &error.source);
    let unreported = not_loaded.iter().filter(|error| !is_reported(options, config, error));
    let unreported = unreported.filter(|error| !is_unknown(error));
    let notes: Vec<String> = notes.chain(unreported.map(not_loaded_note)).collect();
    if !options.quiet {
        notes.iter().filter(|note| !printed.contains(*note)).for_each(|note| print_note(note));
    }
    *printed = notes.into_iter().collect();
    Ok((engine, not_loaded))
}

/// The note about compositions whose `overwrites` is not trusted: they ask before they overwrite.
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

/// Tools that exist but cannot be called, and why, for the engine's findings.
fn unavailable(config: &Config, upstream: &UpstreamServers) -> UnavailableTools {
    let mut unavailable = upstream.unavailable();
    if !TrustFile::load().allows(config) {
        let sources = [(command::COMMAND, config.commands.len()), (http::HTTP, config.http.len())];
        let used = sources.into_iter().filter(|(_, count)| *count > 0);
        unavailable.untrusted.extend(used.map(|(source, _)| source.into()));
    }
    unavailable
}

/// Whether the command prints the findings about this composition itself.
fn is_reported(
    options: &AppOptions,
    config: &Config,
    LoadError { source, .. }: &LoadError,
) -> bool {
    let names = match &options.reported {
        ReportedFiles::None => return false,
        ReportedFiles::All => return true,
        ReportedFiles::Named(names) => names,
    };
    let file = Path::new(&**source.name()).canonicalize().ok();
    let header = segue_core::compile::read_header(source, &config.limits);
    names.iter().any(|name| {
        header.as_ref().is_some_and(|header| *header.name == **name)
            || file.is_some() && Path::new(name).canonicalize().ok() == file
    })
}

/// The note that a composition was not loaded: where the first error is and what it says.
pub(super) fn not_loaded_note(LoadError { source, diagnostics }: &LoadError) -> String {
    let is_error = |finding: &&Diagnostic| finding.severity == Severity::Error;
    let Some(first) = diagnostics.iter().find(is_error).or(diagnostics.first()) else {
        return format!("`{}` was not loaded", source.name());
    };
    let Position { line, column } = source.position(first.span.start);
    let help = first.help.as_ref().map(|help| format!(" ({help})")).unwrap_or_default();
    let reason = escape_control(&format!("{}{help}", first.message)).into_owned();
    format!("`{}:{line}:{column}` was not loaded: {reason}", source.name())
}

/// A configured toolset.
pub(crate) fn toolset_named(config: &Config, name: &str) -> Result<ToolsetBuilder, AppError> {
    config.toolset(name).ok_or_else(|| {
        let names: Vec<&str> = config.toolsets.keys().map(|name| &**name).collect();
        let help = match (nearest_name(name, names.iter().copied()), names.as_slice()) {
            (Some(near), _) => format!("did you mean `{near}`?"),
            (None, []) => "`toolsets` in `segue.yaml` defines them".to_owned(),
            (None, names) => format!("configured toolsets: {}", names.join(", ")),
        };
        AppError::new(format!("there is no toolset `{name}`"), Some(help))
    })
}

/// The template library of an engine. Prints a note about each file that is not a template.
pub(super) fn open_library(is_quiet: bool, config: &Config, engine: &Engine) -> Library {
    let files = template_files(config);
    let (library, unreadable) = Library::new(engine.clone(), files);
    if !is_quiet {
        for UnreadableTemplate { source, diagnostics } in &unreadable {
            let reason = diagnostics.first().map_or("", |finding| &finding.message);
            print_note(&format!(
                "`{}` is not a template: {}",
                source.name(),
                escape_control(reason)
            ));
        }
    }
    library
}

/// The configured limits of concurrent calls, per tool and per source.
fn concurrency(
    config: &Config,
    tools: &[Tool],
    upstream: &UpstreamServers,
) -> Result<Concurrency, String> {
    for source in config.sources.keys().filter(|source| !upstream.is_server(source)) {
        let names: BTreeSet<&str> = tools.iter().map(|tool| tool.spec.id.namespace()).collect();
        if !names.contains(&**source) {
            let names = Vec::from_iter(names).join("`, `");
            return Err(format!(
                "`sources` names `{source}`, which does not exist; there are `{names}`"
            ));
        }
    }
    let limited = config.tools.iter().filter_map(|(name, known)| {
        let id = &tools.iter().find(|tool| matches(tool, name))?.spec.id;
        Some((id.clone(), known.max_concurrency?))
    });
    Ok(Concurrency { tools: limited.collect(), sources: config.sources.clone() })
}

/// The configured model. It is sent an API key, so an untrusted configuration gets one that refuses.
pub(super) fn model_of(config: &Config) -> Option<Arc<dyn Model>> {
    let known = config.llm.as_ref()?;
    if TrustFile::load().allows(config) {
        return llm::model(known, &config.limits).ok();
    }
    Some(Arc::new(UntrustedModel(known.model.as_str().into())))
}

/// A model of an untrusted configuration, which refuses every prompt.
struct UntrustedModel(Arc<str>);

#[async_trait]
impl Model for UntrustedModel {
    fn name(&self) -> &Arc<str> {
        &self.0
    }

    async fn answer(&self, _prompt: &Prompt) -> Result<ModelReply, Failure> {
        let message = "it comes from a configuration that was found here and is not trusted";
        let hint = Some("read its `llm`, then run `segue trust`".into());
        Err(Failure { hint, ..Failure::permanent(Code::PolicyViolation, message) })
    }
}
