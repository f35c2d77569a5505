//! Lists the entries of a directory, sorted and limited.

use std::collections::BTreeSet;

use cap_std::fs::{Dir, DirEntry, FileType, Metadata};
use globset::{GlobBuilder, GlobMatcher};
use segue_core::diagnostic::Code;
use segue_core::value::Value;

use super::protected_files::{FileIdentity, is_configuration};
use super::root::{FileRoot, failure, relative};
use crate::tools::ToolError;

/// How many entries one result holds; beyond that it is marked as truncated.
const LISTED_MAX: usize = 10_000;

/// How many entries are visited for one result.
const SEEN_MAX: usize = 200_000;

/// How deep directories are followed.
const DEPTH_MAX: usize = 64;

pub(super) fn list(
    root: &FileRoot,
    path: &str,
    pattern: Option<&str>,
    recursive: bool,
) -> Result<Value, ToolError> {
    let path = relative(path)?;
    let dir = root.open()?.open_dir(&path).map_err(|error| failure(&path, &error))?;
    let recursive = recursive || pattern.is_some_and(|p| p.contains("**") || p.contains('/'));
    let mut walk = Walk {
        pattern: pattern.map(Pattern::parse).transpose()?,
        recursive,
        base: if path == "." { String::new() } else { format!("{path}/") },
        hidden: root.own().hidden(),
        seen: 0,
        files: Vec::new(),
        truncated: false,
    };
    walk.visit(&dir, "", 0);
    walk.files.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    let files: Vec<Value> = walk.files.into_iter().map(|(_, entry)| entry).collect();
    let truncated = Value::Bool(walk.truncated);
    Ok(Value::object([("files", Value::from(files)), ("truncated", truncated)]))
}

/// A glob for names, or for whole paths below the listed directory.
struct Pattern {
    glob: GlobMatcher,
    about_paths: bool,
}

impl Pattern {
    fn parse(pattern: &str) -> Result<Pattern, ToolError> {
        let glob = GlobBuilder::new(pattern).literal_separator(true).build().map_err(|error| {
            let message = format!("`{pattern}` is not a pattern: {}", error.kind());
            ToolError::refused(Code::InputSchema, message)
        })?;
        let about_paths = pattern.contains('/') || pattern.contains("**");
        Ok(Pattern { glob: glob.compile_matcher(), about_paths })
    }

    fn matches(&self, name: &str, path: &str) -> bool {
        self.glob.is_match(if self.about_paths { path } else { name })
    }
}

struct Walk {
    pattern: Option<Pattern>,
    recursive: bool,
    /// The prefix of all paths, relative to the root.
    base: String,
    /// Segue's own files, which are not listed.
    hidden: BTreeSet<FileIdentity>,
    seen: usize,
    files: Vec<(String, Value)>,
    truncated: bool,
}

impl Walk {
    /// Lists `dir`, whose path below the listed directory is `below`. A directory that cannot be
    /// read, or is gone by now, has no entries.
    fn visit(&mut self, dir: &Dir, below: &str, depth: usize) {
        for (name, entry) in self.sorted(dir) {
            let path = format!("{below}{name}");
            let Ok(kind) = entry.file_type() else { continue };
            if self.is_hidden(&name, &entry) {
                continue;
            }
            if self.pattern.as_ref().is_none_or(|pattern| pattern.matches(&name, &path)) {
                self.add(&path, kind, &entry);
            }
            if self.truncated && self.files.len() == LISTED_MAX {
                return;
            }
            if self.recursive && kind.is_dir() {
                if depth == DEPTH_MAX {
                    self.truncated = true;
                } else if let Ok(inner) = entry.open_dir() {
                    self.visit(&inner, &format!("{path}/"), depth + 1);
                }
            }
        }
    }

    fn is_hidden(&self, name: &str, entry: &DirEntry) -> bool {
        is_configuration(name)
            || !self.hidden.is_empty()
                && entry.metadata().is_ok_and(|found| is_one_of(&self.hidden, &found))
    }

    fn sorted(&mut self, dir: &Dir) -> Vec<(String, DirEntry)> {
        let Ok(entries) = dir.entries() else { return Vec::new() };
        let left = SEEN_MAX - self.seen;
        let mut entries: Vec<(String, DirEntry)> = entries
            .flatten()
            .take(left + 1)
            .map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry))
            .collect();
        if entries.len() > left {
            entries.truncate(left);
            self.truncated = true;
        }
        self.seen += entries.len();
        entries.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        entries
    }

    fn add(&mut self, path: &str, kind: FileType, entry: &DirEntry) {
        if self.files.len() == LISTED_MAX {
            self.truncated = true;
            return;
        }
        let bytes =
            if kind.is_file() { entry.metadata().map_or(0, |found| found.len()) } else { 0 };
        let path = format!("{}{path}", self.base);
        let entry = Value::object([
            ("path", Value::from(path.as_str())),
            ("bytes", Value::from(bytes)),
            ("kind", Value::from(word(kind))),
        ]);
        self.files.push((path, entry));
    }
}

#[cfg(unix)]
fn is_one_of(known: &BTreeSet<FileIdentity>, found: &Metadata) -> bool {
    use cap_std::fs::MetadataExt as _;
    known.contains(&(found.dev(), found.ino()))
}

#[cfg(not(unix))]
fn is_one_of(_known: &BTreeSet<FileIdentity>, _found: &Metadata) -> bool {
    false
}

fn word(kind: FileType) -> &'static str {
    if kind.is_file() {
        "file"
    } else if kind.is_dir() {
        "directory"
    } else if kind.is_symlink() {
        "symlink"
    } else {
        "other"
    }
}
