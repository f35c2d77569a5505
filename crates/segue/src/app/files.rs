//! The files of compositions that a server lets an editor change, from the patterns of the configuration.

use std::path::PathBuf;

use segue_runtime::tools::builtin::DocumentFolder;

use super::protected_files::protected_files;
use crate::api::files::patterns::{FilePattern, FilePatterns, PatternKind};
use crate::api::files::{EditableFiles, KnownFiles};
use crate::config::Config;
use crate::config::documents::{DocumentPattern, absolute_pattern};

/// The files of a configuration; `edits` allows changes whatever is configured.
pub(super) fn editable_files(config: &Config, edits: bool) -> EditableFiles {
    let absolute = |path: PathBuf| {
        let path = if path.as_os_str().is_empty() { PathBuf::from(".") } else { path };
        std::path::absolute(&path).unwrap_or(path)
    };
    // Where none are configured, the compositions are those of the working directory.
    let root = if config.has_found_compositions { PathBuf::from(".") } else { config.folder() };
    let root = absolute(root);
    let config_folder = absolute(config.folder());
    let pattern = |kind| {
        let config_folder = config_folder.clone();
        move |pattern: &DocumentPattern| {
            let expanded = pattern.expanded.as_deref()?;
            let glob = absolute_pattern(&config_folder, expanded);
            Some(FilePattern { glob, kind, skips_projects: pattern.is_default })
        }
    };
    let compositions = config.compositions.iter().filter_map(pattern(PatternKind::Composition));
    let templates = config.templates.iter().filter_map(pattern(PatternKind::Template));
    let patterns = compositions.chain(templates).collect();
    let file = config.file.clone().map(absolute);
    let bytes_max = config.limits.document_bytes_max;
    EditableFiles {
        folder: DocumentFolder::new(root.clone(), protected_files(config), bytes_max),
        patterns: FilePatterns { root, patterns, config: file },
        is_writable: edits || config.server.edit,
        known: KnownFiles::default(),
    }
}
