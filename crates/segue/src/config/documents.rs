//! Patterns of a configuration → the files of its compositions and templates.

use std::path::{Path, PathBuf};

use segue_core::compile::{
    ListedComposition, MissingDefinition, TextCompositions, compositions_in,
};
use segue_core::limits::Limits;
use segue_core::source::Source;

use super::Config;

/// The most files of a folder in which a definition is looked for.
const FOLDER_FILES_MAX: usize = 1_000;

/// A pattern of document files.
#[derive(Clone)]
pub struct DocumentPattern {
    /// As written, and as shown: the values of its variables may be secrets.
    pub as_written: String,
    /// With its variables expanded; `None` if it is not trusted.
    pub expanded: Option<String>,
    /// Whether it may match no file, and leaves out folders with a configuration of their own.
    pub is_default: bool,
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

/// A file and, after `#`, which of its compositions is meant; `None` if there is no such file.
pub(crate) fn file_and_part(name: &str) -> Option<(PathBuf, Option<&str>)> {
    if Path::new(name).is_file() {
        return Some((name.into(), None));
    }
    let (file, part) = name.rsplit_once('#')?;
    Path::new(file).is_file().then(|| (file.into(), Some(part)))
}

/// Where definitions are looked for that a file refers to by name.
#[derive(Clone, Copy)]
pub(crate) struct DocumentSearch<'a> {
    /// The configured files; those of the file's folder come after them.
    pub(crate) configured: &'a [PathBuf],
    pub(crate) limits: &'a Limits,
}

impl DocumentSearch<'_> {
    /// The compositions of a file, and of other files that it refers to. None if it holds resources
    /// without a composite tool.
    pub(crate) fn compositions(self, path: &Path, source: &Source) -> Vec<ListedComposition> {
        let TextCompositions { mut compositions, missing } = compositions_in(source, self.limits);
        let mut found = self.definitions(path, &missing);
        for MissingDefinition { name, servers } in missing {
            let is_it = |it: &ListedComposition| it.resource.as_ref() == Some(&name);
            let elsewhere = found.iter().position(is_it).map(|at| found.swap_remove(at));
            // Without one, compiling reports the reference.
            let listed = elsewhere.unwrap_or_else(|| ListedComposition {
                source: source.clone().with_part(Some(name.clone())),
                resource: None,
                name: Some(name),
            });
            let source = listed.source.with_servers(servers);
            compositions.push(ListedComposition { source, ..listed });
        }
        compositions
    }

    /// The compositions that `FILE` or `FILE#NAME` means.
    pub(crate) fn read(self, path: &Path, part: Option<&str>) -> Result<Vec<Source>, String> {
        let source = read_source(path, self.limits.document_bytes_max)?;
        let listed = self.compositions(path, &source);
        let Some(part) = part else {
            let sources: Vec<Source> = listed.into_iter().map(|it| it.source).collect();
            return Ok(if sources.is_empty() { vec![source] } else { sources });
        };
        let is_it = |it: &ListedComposition| {
            [&it.name, &it.resource].iter().any(|name| name.as_deref() == Some(part))
        };
        let named = listed.into_iter().find(is_it).map(|it| it.source);
        // Without one, compiling reports the name.
        Ok(vec![named.unwrap_or_else(|| source.with_part(Some(part.into())))])
    }

    /// The one composition that `FILE` or `FILE#NAME` means. The error has a message and help.
    pub(crate) fn read_one(
        self,
        path: &Path,
        part: Option<&str>,
    ) -> Result<Source, (String, Option<String>)> {
        let mut sources = self.read(path, part).map_err(|message| (message, None))?;
        if let [_] = sources.as_slice() {
            return Ok(sources.swap_remove(0));
        }
        let listed =
            self.compositions(path, &Source::new(sources[0].name().clone(), sources[0].text()));
        let names = listed.iter().filter_map(|it| it.name.as_deref());
        let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
        let shown = path.display();
        let message = format!("`{shown}` holds several compositions: {}", names.join(", "));
        let first = listed.iter().find_map(|it| it.name.as_deref()).unwrap_or_default();
        Err((message, Some(format!("write which one is meant, as `{shown}#{first}`"))))
    }

    /// Definitions with these names in the configured files and in the files of a folder.
    fn definitions(self, path: &Path, missing: &[MissingDefinition]) -> Vec<ListedComposition> {
        if missing.is_empty() {
            return Vec::new();
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let entries = std::fs::read_dir(folder.unwrap_or(Path::new("."))).ok();
        let entries = entries.into_iter().flatten().filter_map(Result::ok).take(FOLDER_FILES_MAX);
        let beside = entries.map(|entry| match folder {
            Some(folder) => folder.join(entry.file_name()),
            None => entry.file_name().into(),
        });
        let mut beside: Vec<PathBuf> = beside.filter(|path| is_document(path)).collect();
        beside.sort();
        let mut found: Vec<ListedComposition> = Vec::new();
        for other in self.configured.iter().chain(&beside).filter(|other| *other != path) {
            let Ok(source) = read_source(other, self.limits.document_bytes_max) else { continue };
            let listed = compositions_in(&source, self.limits).compositions;
            for listed in listed {
                let is_known =
                    found.iter().any(|known: &ListedComposition| known.resource == listed.resource);
                let is_missing =
                    missing.iter().any(|it| Some(&it.name) == listed.resource.as_ref());
                if is_missing && !is_known {
                    found.push(listed);
                }
            }
        }
        found
    }
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
    let matching = patterns.iter().filter_map(|pattern| {
        let mut files = matching_files(config, pattern.expanded.as_deref()?).ok()?;
        files.retain(|file| !pattern.is_default || !has_own_config(config, file));
        Some(files)
    });
    let mut paths: Vec<PathBuf> = matching.flatten().collect();
    paths.sort();
    paths.dedup();
    paths
}

/// The places where `segue dev` looks for compositions if none are configured.
const DEFAULTS: &[&str] = &["compositions/**", "*.segue.yaml", "examples/*/composition.*"];

/// The patterns of compositions where none are configured: those of the working directory.
pub(crate) fn default_patterns(config: &Config) -> Vec<DocumentPattern> {
    // Patterns begin at the folder of the configuration, which may be the user's own.
    let folder = config.file.as_ref().and_then(|_| std::env::current_dir().ok());
    let expanded = |pattern: &str| match &folder {
        Some(folder) => absolute_pattern(folder, pattern),
        None => pattern.to_owned(),
    };
    let patterns = DEFAULTS.iter().map(|pattern| DocumentPattern {
        as_written: (*pattern).to_owned(),
        expanded: Some(expanded(pattern)),
        is_default: true,
    });
    patterns.collect()
}

/// Whether a file lies in a folder below that of the configuration that has a configuration, too.
fn has_own_config(config: &Config, file: &Path) -> bool {
    let Some(folder) = file.parent() else { return false };
    let other = folder.join("segue.yaml");
    other.is_file() && config.file.as_ref().is_none_or(|file| *file != other)
}

/// The document files that match one pattern. The error says why it is not a pattern.
fn matching_files(config: &Config, pattern: &str) -> Result<Vec<PathBuf>, String> {
    let pattern = absolute_pattern(&config.folder(), pattern);
    let found = glob::glob(&pattern).map_err(|error| error.msg.to_owned())?;
    // `*.yaml` also matches the configuration, which is no document.
    let own = config.file.as_ref().and_then(|file| file.canonicalize().ok());
    let is_own = |path: &Path| own.is_some() && path.canonicalize().ok() == own;
    Ok(found.filter_map(Result::ok).filter(|path| is_document(path) && !is_own(path)).collect())
}

/// Whether a file may hold a composition, by its name.
fn is_document(path: &Path) -> bool {
    let extension = path.extension().and_then(|e| e.to_str());
    matches!(extension, Some("yaml" | "yml" | "json")) && !is_test_file(path)
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
    let written = patterns(config).filter(|(_, pattern)| !pattern.is_default);
    let notes = written.filter_map(|(field, DocumentPattern { as_written, expanded, .. })| {
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

/// The texts of the configured compositions, one for each composition.
pub(crate) fn composition_files(config: &Config) -> Vec<Source> {
    let paths = composition_paths(config);
    let search = DocumentSearch { configured: &paths, limits: &config.limits };
    let mut found: Vec<Source> = Vec::new();
    for path in &paths {
        let Ok(source) = read_source(path, config.limits.document_bytes_max) else { continue };
        for listed in search.compositions(path, &source) {
            // Several files may refer to one definition; one that names servers says more.
            match found.iter_mut().find(|known| known.is_same_place(&listed.source)) {
                Some(known) if known.servers().is_empty() => *known = listed.source,
                Some(_) => {}
                None => found.push(listed.source),
            }
        }
    }
    found
}

/// The texts of the configured templates.
pub(crate) fn template_files(config: &Config) -> Vec<Source> {
    let paths = template_paths(config);
    paths.iter().filter_map(|p| read_source(p, config.limits.document_bytes_max).ok()).collect()
}

/// Whether a file is a test file.
pub(crate) fn is_test_file(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    [".test.yaml", ".test.yml", ".test.json"].iter().any(|ending| name.ends_with(ending))
}
