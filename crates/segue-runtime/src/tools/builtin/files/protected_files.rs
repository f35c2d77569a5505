//! Segue's own files, which the file tools never touch.
//!
//! The configuration, the compositions and the store decide what Segue does and who may ask for it,
//! so they are protected. They are recognised by identity, not by spelling: an existing file by its
//! device and inode, so that symbolic and hard links are covered; a missing file by its directory
//! and its name, which is compared as the least exact file system compares names.
//!
//! The file tools cannot create links, so a path cannot change between the check and its use,
//! except by another program with access to the files.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use glob::{MatchOptions, Pattern};

/// Segue's own files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProtectedFiles {
    /// Files that hold secrets or decide what Segue may do: its configuration, private keys.
    /// Neither read nor changed.
    pub private: Vec<PathBuf>,
    /// Folders that hold nothing else, such as the user's data. Neither read nor changed.
    pub folders: Vec<PathBuf>,
    /// Databases, with every file whose name begins with theirs. Neither read nor changed.
    pub stores: Vec<PathBuf>,
    /// Programs and scripts that Segue starts. Not changed.
    pub programs: Vec<PathBuf>,
    /// Patterns of compositions and templates, as absolute paths. None is changed or added.
    pub documents: Vec<String>,
}

/// What a tool is about to do with a file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FileUse {
    Read,
    Change,
}

/// File names of configurations, in any folder.
const CONFIGURATIONS: &[&str] = &["segue.yaml", "segue.yml", ".mcp.json"];

/// File name extensions of documents.
const DOCUMENTS: &[&str] = &[".yaml", ".yml", ".json"];

const CONFIGURATION: &str = "holds Segue's configuration";
const STORE: &str = "belongs to Segue's store";
const DATA: &str = "holds Segue's data";
const PROGRAM: &str = "is a program that Segue starts";
const DOCUMENT: &str = "would be read as a composition or a template";

/// How many entries of Segue's folders are visited to find hard links to them.
const LOOKED_AT_MAX: usize = 10_000;

impl ProtectedFiles {
    /// Why a tool must not use the file at this path.
    pub(super) fn refusal(&self, path: &Path, using: FileUse) -> Option<&'static str> {
        let place = ResolvedPath::of(path);
        if place.rest.iter().any(|name| CONFIGURATIONS.contains(&&**name)) {
            return Some(CONFIGURATION);
        }
        let programs = if using == FileUse::Change { &*self.programs } else { &[] };
        let literal = [
            (&*self.private, NameMatch::Whole, CONFIGURATION),
            (&*self.folders, NameMatch::Whole, DATA),
            (&*self.stores, NameMatch::Start, STORE),
            (programs, NameMatch::Whole, PROGRAM),
        ];
        for (own, name, why) in literal {
            if own.iter().any(|own| place.is_at_or_below(own, name)) {
                return Some(why);
            }
        }
        if place.is_linked && place.file.as_ref().is_some_and(|it| self.hidden().contains(it)) {
            return Some(DATA);
        }
        let is_document = || {
            let means = |pattern: &String| {
                place.is_document(pattern) || place.is_document(&without_detours(pattern))
            };
            self.documents.iter().any(means)
        };
        (using == FileUse::Change && is_document()).then_some(DOCUMENT)
    }

    /// Existing files and folders that are neither read nor changed; they are not listed.
    pub(super) fn hidden(&self) -> BTreeSet<FileIdentity> {
        let mut found: BTreeSet<FileIdentity> =
            self.private.iter().chain(&self.folders).filter_map(|path| identity(path)).collect();
        let stores = self.stores.iter().flat_map(|store| {
            let name = store.file_name().map(|name| folded(&name.to_string_lossy()));
            let is_part = move |path: &PathBuf| {
                let own = path.file_name().map(|name| folded(&name.to_string_lossy()));
                own.zip(name.as_ref()).is_some_and(|(own, name)| own.starts_with(&**name))
            };
            let parent = store.parent().filter(|parent| !parent.as_os_str().is_empty());
            entries(parent.unwrap_or(Path::new("."))).filter(is_part)
        });
        let mut folders: Vec<PathBuf> = self.folders.clone();
        let mut looked_at = 0;
        for path in stores {
            found.extend(identity(&path));
            folders.extend(path.is_dir().then_some(path));
        }
        while let Some(folder) = folders.pop() {
            for path in entries(&folder) {
                looked_at += 1;
                if looked_at > LOOKED_AT_MAX {
                    return found;
                }
                found.extend(identity(&path));
                let is_folder = fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir());
                folders.extend(is_folder.then_some(path));
            }
        }
        found
    }
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// How much of a name must match.
#[derive(Clone, Copy)]
enum NameMatch {
    Whole,
    Start,
}

/// Whether a file name is that of a configuration.
pub(super) fn is_configuration(name: &str) -> bool {
    CONFIGURATIONS.contains(&&*folded(name))
}

/// A path resolved as far as it exists.
struct ResolvedPath {
    /// Every existing directory above, the nearest last, each with the names that follow it.
    above: Vec<(FileIdentity, Vec<String>)>,
    /// The names after the nearest existing directory.
    rest: Vec<String>,
    /// The file itself, if it exists.
    file: Option<FileIdentity>,
    /// Whether the file has other hard links.
    is_linked: bool,
}

impl ResolvedPath {
    fn of(path: &Path) -> ResolvedPath {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        // Links are resolved; a dangling or missing path is taken by its name.
        let real = fs::canonicalize(&path).unwrap_or(path);
        let (mut dir, mut rest) = (real.clone(), Vec::new());
        let found = loop {
            let Some(name) = dir.file_name().map(|name| folded(&name.to_string_lossy())) else {
                break dir;
            };
            rest.insert(0, name);
            dir.pop();
            if let Ok(found) = fs::canonicalize(&dir) {
                break found;
            }
        };
        let mut above = Vec::new();
        for folder in found.ancestors() {
            let names = found.strip_prefix(folder).unwrap_or(Path::new("")).components();
            let names = names.map(|name| folded(&name.as_os_str().to_string_lossy()));
            let names = names.chain(rest.iter().cloned()).collect();
            above.extend(identity(folder).map(|identity| (identity, names)));
        }
        above.reverse();
        ResolvedPath { above, rest, file: identity(&real), is_linked: is_linked(&real) }
    }

    /// Whether it is this path, or inside it.
    fn is_at_or_below(&self, own: &Path, how: NameMatch) -> bool {
        let own_identity = identity(own);
        if own_identity.is_some() && self.file == own_identity {
            return true;
        }
        let own = ResolvedPath::of(own);
        let Some((nearest, _)) = own.above.last() else { return false };
        self.above.iter().any(|(folder, names)| {
            Some(folder) == own_identity.as_ref()
                || folder == nearest && begins(names, &own.rest, how)
        })
    }

    /// Whether a pattern matches it, or would once it exists.
    fn is_document(&self, pattern: &str) -> bool {
        let is_named_so = |name: &String| DOCUMENTS.iter().any(|end| name.ends_with(end));
        let meant = || glob::glob(pattern).into_iter().flatten().flatten();
        if self.file.is_some() && meant().any(|path| identity(&path) == self.file) {
            return true;
        }
        let Some((nearest, _)) = self.above.last() else { return false };
        self.rest.last().is_some_and(is_named_so)
            && splits(pattern).into_iter().any(|(folders, rest)| {
                let Ok(rest) = Pattern::new(&rest.to_lowercase()) else { return false };
                let options = MatchOptions {
                    case_sensitive: false,
                    require_literal_separator: true,
                    require_literal_leading_dot: false,
                };
                rest.matches_with(&self.rest.join("/"), options)
                    && glob::glob(&folders)
                        .into_iter()
                        .flatten()
                        .flatten()
                        .any(|folder| identity(&folder).as_ref() == Some(nearest))
            })
    }
}

/// Whether `names` begins with `own`; `how` says how much of the last one must match.
fn begins(names: &[String], own: &[String], how: NameMatch) -> bool {
    let Some((last, before)) = own.split_last() else { return false };
    let (at, is_last) = (before.len(), |name: &String| match how {
        NameMatch::Whole => name == last,
        NameMatch::Start => name.starts_with(&**last),
    });
    names.starts_with(before) && names.get(at).is_some_and(is_last)
}

/// The pattern without `..`. A folder before `..` may be missing now, so that the pattern matches
/// nothing, and exist when documents are read.
fn without_detours(pattern: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in pattern.split('/') {
        match part {
            // `..` above the first folder is the first folder.
            ".." if parts.len() > 1 => drop(parts.pop()),
            ".." => {}
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

/// Every way to split a pattern into existing directories and names that need not exist.
fn splits(pattern: &str) -> Vec<(String, String)> {
    let is_said = |(at, part): &(usize, &str)| *at == 0 || !matches!(*part, "" | ".");
    let parts: Vec<&str> =
        pattern.split('/').enumerate().filter(is_said).map(|(_, part)| part).collect();
    let mut splits = Vec::new();
    for at in 1..parts.len() {
        let folders = |end: usize| match parts[..end].join("/") {
            empty if empty.is_empty() => "/".to_owned(),
            folders => folders,
        };
        splits.push((folders(at), parts[at..].join("/")));
        if parts[at] == "**" {
            // For `**`: a part of its directories exists, and a part does not.
            splits.push((folders(at + 1), parts[at..].join("/")));
        }
    }
    splits
}

/// A name as the least exact file systems compare it: case, invisible characters, and trailing dots
/// and spaces do not count.
pub(super) fn folded(name: &str) -> String {
    let shows_nothing = |c: char| matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{ad}');
    let name: String =
        name.chars().filter(|c| !shows_nothing(*c)).flat_map(char::to_lowercase).collect();
    let end = name.trim_end_matches(['.', ' ']);
    if end.is_empty() { name } else { end.to_owned() }
}

/// The identity of a file or directory, whichever path leads to it: its device and inode.
#[cfg(unix)]
pub(super) type FileIdentity = (u64, u64);

#[cfg(unix)]
fn identity(path: &Path) -> Option<FileIdentity> {
    use std::os::unix::fs::MetadataExt as _;
    let found = fs::metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

#[cfg(unix)]
fn is_linked(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata(path).is_ok_and(|found| found.nlink() > 1)
}

/// Without inodes: the canonical path.
#[cfg(not(unix))]
pub(super) type FileIdentity = PathBuf;

#[cfg(not(unix))]
fn identity(path: &Path) -> Option<FileIdentity> {
    fs::canonicalize(path).ok()
}

#[cfg(not(unix))]
fn is_linked(_path: &Path) -> bool {
    false
}
