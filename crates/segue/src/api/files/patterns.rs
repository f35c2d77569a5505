//! Which paths are those of compositions, tests and templates: the patterns of the configuration, below its
//! folder.

use std::path::{Path, PathBuf};

use glob::{MatchOptions, Pattern};
use schemars::JsonSchema;
use segue_runtime::tools::builtin::DocumentPath;
use serde::Serialize;

/// The endings of documents.
const ENDINGS: &[&str] = &[".yaml", ".yml", ".json"];

/// What is put before the ending of a test file.
const TEST: &str = ".test";

const MATCHING: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: true,
};

/// What a pattern of the configuration is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PatternKind {
    /// `compositions`.
    Composition,
    /// `templates`.
    Template,
}

/// A pattern of files.
#[derive(Clone, Debug)]
pub struct FilePattern {
    /// As an absolute path.
    pub glob: String,
    /// What it is for.
    pub kind: PatternKind,
    /// Whether it leaves out folders with a configuration of their own.
    pub skips_projects: bool,
}

/// What a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    /// A composition, or a text that is to become one.
    Composition,
    /// Tests of the composition beside it.
    Test,
    /// A template.
    Template,
    /// A document without a composition, such as resources that a composition refers to.
    Other,
}

/// The patterns of a configuration.
#[derive(Clone, Debug, Default)]
pub struct FilePatterns {
    /// The folder that paths are relative to, as an absolute path.
    pub root: PathBuf,
    /// The patterns.
    pub patterns: Vec<FilePattern>,
    /// The configuration, whose folder may hold compositions.
    pub config: Option<PathBuf>,
}

/// A place for new files.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub struct FileRootView {
    /// The folder, relative to that of the configuration; empty for that folder itself.
    pub folder: String,
    /// The pattern that paths below it match.
    pub pattern: String,
    /// Whether its files are templates, and not compositions.
    pub templates: bool,
}

impl FilePatterns {
    /// What a file at this path would be; `None` if no pattern matches it.
    pub fn kind(&self, path: &DocumentPath) -> Option<FileKind> {
        let path = path.as_str();
        let (stem, ending) =
            ENDINGS.iter().find_map(|ending| Some((path.strip_suffix(ending)?, *ending)))?;
        match stem.strip_suffix(TEST) {
            None => self.pattern_of(path).map(|pattern| match pattern.kind {
                PatternKind::Composition => FileKind::Composition,
                PatternKind::Template => FileKind::Template,
            }),
            Some(stem) => {
                let beside = ENDINGS.iter().map(|ending| format!("{stem}{ending}"));
                let is_of_composition = |path: &str| {
                    self.pattern_of(path).is_some_and(|it| it.kind == PatternKind::Composition)
                };
                let is_test = !stem.is_empty()
                    && !stem.ends_with('/')
                    && (is_of_composition(&format!("{stem}{TEST}{ending}"))
                        || beside.into_iter().any(|path| is_of_composition(&path)));
                is_test.then_some(FileKind::Test)
            }
        }
    }

    /// The paths of the compositions that a test file could be for.
    pub fn tested_by(&self, path: &DocumentPath) -> Vec<DocumentPath> {
        let stem = ENDINGS.iter().find_map(|ending| path.as_str().strip_suffix(ending));
        let Some(stem) = stem.and_then(|stem| stem.strip_suffix(TEST)) else { return Vec::new() };
        let beside = ENDINGS.iter().map(|ending| format!("{stem}{ending}"));
        beside.filter_map(|path| DocumentPath::parse(&path).ok()).collect()
    }

    fn pattern_of(&self, path: &str) -> Option<&FilePattern> {
        let whole = self.root.join(path);
        let matches = |pattern: &&FilePattern| {
            let glob = Pattern::new(&plain(&pattern.glob));
            glob.is_ok_and(|glob| glob.matches_path_with(&whole, MATCHING))
                && !(pattern.skips_projects && self.is_of_project(&whole))
        };
        self.patterns.iter().find(matches)
    }

    /// Whether a file lies in the folder of another configuration.
    fn is_of_project(&self, file: &Path) -> bool {
        let other = file.parent().map(|folder| folder.join("segue.yaml"));
        other.is_some_and(|other| other.is_file() && self.config.as_ref() != Some(&other))
    }

    /// At most `max` paths that exist, sorted, and whether there are more.
    pub fn existing(&self, max: usize) -> (Vec<DocumentPath>, bool) {
        let globs = self.patterns.iter().flat_map(|pattern| {
            let plain = plain(&pattern.glob);
            // The tests of `*.segue.yaml` are `*.segue.test.yaml`, which it does not match.
            let beside = ENDINGS.iter().filter_map(|ending| {
                let stem = ENDINGS.iter().find_map(|end| plain.strip_suffix(end))?;
                Some(format!("{stem}{TEST}{ending}"))
            });
            let beside: Vec<String> = beside.collect();
            beside.into_iter().chain([plain])
        });
        let mut found = std::collections::BTreeSet::new();
        for path in globs.filter_map(|glob| glob::glob(&glob).ok()).flatten().flatten() {
            let below = path.strip_prefix(&self.root).ok().and_then(Path::to_str);
            let document = below.and_then(|path| DocumentPath::parse(path).ok());
            let Some(document) = document.filter(|path| self.kind(path).is_some()) else {
                continue;
            };
            if found.len() == max && !found.contains(&document) {
                return (found.into_iter().collect(), true);
            }
            found.insert(document);
        }
        (found.into_iter().collect(), false)
    }

    /// The places for new files.
    pub fn roots(&self) -> Vec<FileRootView> {
        let root = Pattern::escape(&self.root.to_string_lossy());
        let views = self.patterns.iter().filter_map(|pattern| {
            let plain = plain(&pattern.glob);
            let below = plain.strip_prefix(&*root)?.trim_start_matches('/').to_owned();
            if below.split('/').any(|name| name == "..") {
                return None;
            }
            let fixed = below.split('/').take_while(|name| !name.contains(['*', '?', '[']));
            let mut fixed: Vec<&str> = fixed.collect();
            // A pattern without wildcards is one file.
            if fixed.len() == below.split('/').count() {
                fixed.pop();
            }
            let (folder, templates) = (fixed.join("/"), pattern.kind == PatternKind::Template);
            Some(FileRootView { folder, pattern: below, templates })
        });
        let mut views: Vec<FileRootView> = views.collect();
        views.sort();
        views.dedup();
        views
    }
}

/// A pattern without `.` and empty names, which mean nothing.
fn plain(glob: &str) -> String {
    let first = if glob.starts_with('/') { "/" } else { "" };
    let names: Vec<&str> = glob.split('/').filter(|name| !matches!(*name, "" | ".")).collect();
    format!("{first}{}", names.join("/"))
}
