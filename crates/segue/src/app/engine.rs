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
use super::{AppError, AppOptions, UpstreamServers};
use crate::config::documents::{
    composition_files, empty_patterns, template_files, withheld_patterns,
};
use crate::config::{Config, TrustFile};
use crate::print::{display_path, escape_control, print_status};

/// An engine of these tools and those of the servers. Prints notes, except those about compositions
/// that were not loaded `before` for the same reason.
pub(super) fn build_engine(
    options: &AppOptions,
    config: &Config,
    mut tools: Vec<Tool>,
    upstream: &mut UpstreamServers,
    before: &[LoadError],
    change: impl FnOnce(EngineBuilder) -> EngineBuilder,
) -> Result<(Engine, Vec<LoadError>), AppError> {
    tools.append(&mut upstream.tools);
    let notes = overrides::apply(config, &mut tools, upstream)?;
    if !options.quiet {
        notes.iter().for_each(|note| print_status(&format!("note: {note}")));
    }
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
    if !options.quiet {
        let notes = upstream.notes.iter().cloned().chain(empty_patterns(config));
        let notes = notes.chain(withheld_patterns(config)).chain(untrusted_overwrites(&engine));
        notes.for_each(|note| print_status(&format!("note: {}", escape_control(&note))));
        let printed: BTreeSet<String> = before.iter().map(not_loaded_note).collect();
        let notes = not_loaded.iter().map(not_loaded_note);
        notes.filter(|note| !printed.contains(note)).for_each(|note| print_status(&note));
    }
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

/// The note that a composition was not loaded: where the first error is and what it says.
pub(super) fn not_loaded_note(LoadError { source, diagnostics }: &LoadError) -> String {
    let is_error = |finding: &&Diagnostic| finding.severity == Severity::Error;
    let Some(first) = diagnostics.iter().find(is_error).or(diagnostics.first()) else {
        return format!("note: `{}` was not loaded", source.name());
    };
    let Position { line, column } = source.position(first.span.start);
    let help = first.help.as_ref().map(|help| format!(" ({help})")).unwrap_or_default();
    let reason = escape_control(&format!("{}{help}", first.message)).into_owned();
    format!("note: `{}:{line}:{column}` was not loaded: {reason}", source.name())
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
            print_status(&format!(
                "note: `{}` is not a template: {}",
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
