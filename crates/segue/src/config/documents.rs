//! Patterns of a configuration → the files of its compositions and templates.

use std::path::{Path, PathBuf};

use segue_core::source::Source;

use super::Config;

/// A pattern of files with documents.
#[derive(Clone)]
pub struct DocumentPattern {
    /// As it is written, and shown: its variables may hold secrets.
    pub as_written: String,
    /// With its variables in place; nothing when they are not looked up, because it is not trusted.
    pub expanded: Option<String>,
}

/// Reads a file, refusing one that no document may be as large as before it costs memory.
pub(crate) fn read_source(path: &Path, bytes_max: usize) -> Result<Source, String> {
    let shown = path.display();
    let size =
        std::fs::metadata(path).map_err(|error| format!("cannot read `{shown}`: {error}"))?;
    if size.len() > bytes_max as u64 {
        return Err(format!("`{shown}` is larger than the limit of {bytes_max} bytes"));
    }
    let bytes = std::fs::read(path).map_err(|error| format!("cannot read `{shown}`: {error}"))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        format!("`{shown}` is not UTF-8: byte {} is wrong", error.utf8_error().valid_up_to())
    })?;
    Ok(Source::new(shown.to_string(), text))
}

/// The files of the configured compositions.
pub(crate) fn composition_paths(config: &Config) -> Vec<PathBuf> {
    documents(config, &config.compositions)
}

/// The files of the configured templates.
pub(crate) fn template_paths(config: &Config) -> Vec<PathBuf> {
    documents(config, &config.templates)
}

/// Files of documents that patterns of the configuration mean.
fn documents(config: &Config, patterns: &[DocumentPattern]) -> Vec<PathBuf> {
    let patterns = patterns.iter().filter_map(|pattern| pattern.expanded.as_deref());
    let meant = patterns.filter_map(|pattern| meant(config, pattern).ok());
    let mut paths: Vec<PathBuf> = meant.flatten().collect();
    paths.sort();
    paths.dedup();
    paths
}

/// Files of documents that one pattern means. The error says why it cannot mean any.
fn meant(config: &Config, pattern: &str) -> Result<Vec<PathBuf>, String> {
    let pattern = whole_pattern(&config.folder(), pattern);
    let found = glob::glob(&pattern).map_err(|error| error.msg.to_owned())?;
    let is_document = |path: &PathBuf| {
        let extension = path.extension().and_then(|e| e.to_str());
        matches!(extension, Some("yaml" | "yml" | "json")) && !is_test_file(path)
    };
    Ok(found.filter_map(Result::ok).filter(is_document).collect())
}

/// A pattern of the configuration, from its folder on.
pub(crate) fn whole_pattern(folder: &Path, pattern: &str) -> String {
    // The library means only folders by `**` at the end; people mean what is in them.
    let pattern = match pattern.strip_suffix("**") {
        Some(before) if before.is_empty() || before.ends_with('/') => format!("{pattern}/*"),
        _ => pattern.to_owned(),
    };
    // What is special in a pattern is not special in the name of a folder.
    let folder = glob::Pattern::escape(&folder.to_string_lossy());
    Path::new(&folder).join(pattern).to_string_lossy().into_owned()
}

/// What is said of patterns that find nothing: nobody writes one that is meant to.
pub(crate) fn empty_patterns(config: &Config) -> Vec<String> {
    let about =
        patterns(config).filter_map(
            |(field, DocumentPattern { as_written, expanded })| match meant(
                config,
                expanded.as_deref()?,
            ) {
                Ok(found) if !found.is_empty() => None,
                Ok(_) => Some(format!("`{as_written}` of `{field}` finds no file")),
                Err(why) => Some(format!("`{as_written}` of `{field}` is no pattern: {why}")),
            },
        );
    about.collect()
}

/// What is said of patterns that are not looked for.
pub(crate) fn withheld_patterns(config: &Config) -> Vec<String> {
    let withheld = patterns(config).filter(|(_, pattern)| pattern.expanded.is_none());
    let note = |(field, DocumentPattern { as_written, .. }): (_, &DocumentPattern)| {
        format!(
            "`{as_written}` of `{field}` names a variable, which is not looked up before `segue trust`"
        )
    };
    withheld.map(note).collect()
}

/// All patterns, each with its field.
fn patterns(config: &Config) -> impl Iterator<Item = (&'static str, &DocumentPattern)> {
    let compositions = config.compositions.iter().map(|pattern| ("compositions", pattern));
    compositions.chain(config.templates.iter().map(|pattern| ("templates", pattern)))
}

/// The texts of the configured compositions.
pub(crate) fn composition_files(config: &Config) -> Vec<Source> {
    sources(config, &composition_paths(config))
}

/// The texts of the configured templates.
pub(crate) fn template_files(config: &Config) -> Vec<Source> {
    sources(config, &template_paths(config))
}

fn sources(config: &Config, paths: &[PathBuf]) -> Vec<Source> {
    paths.iter().filter_map(|p| read_source(p, config.limits.document_bytes_max).ok()).collect()
}

/// Whether a file is one with tests.
pub(crate) fn is_test_file(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    [".test.yaml", ".test.yml", ".test.json"].iter().any(|ending| name.ends_with(ending))
}
