//! Patterns of a configuration → the files of its compositions and templates.

use std::path::{Path, PathBuf};

use segue_core::source::Source;

use super::Config;

/// A pattern of document files.
#[derive(Clone)]
pub struct DocumentPattern {
    /// As written, and as shown: the values of its variables may be secrets.
    pub as_written: String,
    /// With its variables expanded; `None` if it is not trusted.
    pub expanded: Option<String>,
}

/// Reads a document file. Checks the size limit before reading.
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

/// The document files that match patterns.
fn documents(config: &Config, patterns: &[DocumentPattern]) -> Vec<PathBuf> {
    let patterns = patterns.iter().filter_map(|pattern| pattern.expanded.as_deref());
    let matching = patterns.filter_map(|pattern| matching_files(config, pattern).ok());
    let mut paths: Vec<PathBuf> = matching.flatten().collect();
    paths.sort();
    paths.dedup();
    paths
}

/// The document files that match one pattern. The error says why it is not a pattern.
fn matching_files(config: &Config, pattern: &str) -> Result<Vec<PathBuf>, String> {
    let pattern = absolute_pattern(&config.folder(), pattern);
    let found = glob::glob(&pattern).map_err(|error| error.msg.to_owned())?;
    let is_document = |path: &PathBuf| {
        let extension = path.extension().and_then(|e| e.to_str());
        matches!(extension, Some("yaml" | "yml" | "json")) && !is_test_file(path)
    };
    Ok(found.filter_map(Result::ok).filter(is_document).collect())
}

/// A pattern with the folder that it is relative to.
pub(crate) fn absolute_pattern(folder: &Path, pattern: &str) -> String {
    // For the library, `**` at the end matches folders only; users mean the files in them.
    let pattern = match pattern.strip_suffix("**") {
        Some(before) if before.is_empty() || before.ends_with('/') => format!("{pattern}/*"),
        _ => pattern.to_owned(),
    };
    // The folder is a name, not a pattern.
    let folder = glob::Pattern::escape(&folder.to_string_lossy());
    Path::new(&folder).join(pattern).to_string_lossy().into_owned()
}

/// Notes about patterns that match no file.
pub(crate) fn empty_patterns(config: &Config) -> Vec<String> {
    let notes = patterns(config).filter_map(|(field, DocumentPattern { as_written, expanded })| {
        match matching_files(config, expanded.as_deref()?) {
            Ok(found) if !found.is_empty() => None,
            Ok(_) => Some(format!("`{as_written}` of `{field}` matches no file")),
            Err(why) => Some(format!("`{as_written}` of `{field}` is not a pattern: {why}")),
        }
    });
    notes.collect()
}

/// Notes about patterns that are ignored, because they are not trusted.
pub(crate) fn withheld_patterns(config: &Config) -> Vec<String> {
    let withheld = patterns(config).filter(|(_, pattern)| pattern.expanded.is_none());
    let note = |(field, DocumentPattern { as_written, .. }): (_, &DocumentPattern)| {
        format!(
            "`{as_written}` of `{field}` uses a variable, which is not expanded before `segue trust`"
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

/// Whether a file is a test file.
pub(crate) fn is_test_file(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    [".test.yaml", ".test.yml", ".test.json"].iter().any(|ending| name.ends_with(ending))
}
