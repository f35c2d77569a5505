//! The files of compositions, tests and templates, for an editor: list, read, save, rename, delete.
//!
//! A file is within reach if a pattern of the configuration matches its path ([`patterns`]) and
//! [`DocumentFolder`] opens it. A change names the text that it replaces by its hash, so that a change on
//! disk meanwhile is shown and never overwritten.
//!
//! Who saves a composition decides what others run, as the author of a template does: it needs `write` and
//! `compose`. A principal that is bound to a toolset reaches only the files of compositions that it may run,
//! and saves only texts that compile with its tools.

mod known;
pub mod patterns;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use schemars::JsonSchema;
use segue_core::access::{Principal, Right};
use segue_core::compile::{compositions_in, read_header};
use segue_core::diagnostic::Code;
use segue_core::limits::Limits;
use segue_core::source::Source;
use segue_runtime::tools::ToolError;
use segue_runtime::tools::builtin::{
    DocumentChangeError, DocumentFolder, DocumentPath, DocumentText, ProtectedFiles,
};
use serde::Serialize;

use super::error::{Error, ErrorKind, require_for};
use super::requests::{RenameFile, SaveFile};
use super::runs::RunService;
use super::threads::calculate;
use known::KnownFile;
pub use known::KnownFiles;
use patterns::{FileKind, FilePatterns, FileRootView};

/// The files of a configuration. A reload replaces them.
pub struct EditableFiles {
    /// Opens them.
    pub folder: DocumentFolder,
    /// Which paths are within reach.
    pub patterns: FilePatterns,
    /// Whether they may be changed here.
    pub is_writable: bool,
    /// What those hold that were listed.
    pub known: KnownFiles,
}

impl EditableFiles {
    /// No files.
    pub fn none() -> EditableFiles {
        let folder = DocumentFolder::new(PathBuf::new(), ProtectedFiles::default(), 0);
        let (patterns, known) = (FilePatterns::default(), KnownFiles::default());
        EditableFiles { folder, patterns, is_writable: false, known }
    }

    /// What a file holds that may not be listed.
    fn known_file(&self, path: &DocumentPath, limits: &Limits) -> Option<Arc<KnownFile>> {
        let stamp = self.folder.stamp(path).ok()?;
        self.known.get(&self.folder, path, stamp, limits)
    }

    /// The path of a file within reach, from the path that the server opens it by.
    pub(super) fn path_of(&self, file: &Path) -> Option<Arc<str>> {
        let absolute = std::path::absolute(file).ok()?;
        let below = absolute.strip_prefix(&self.patterns.root).ok()?.to_str()?;
        let path = DocumentPath::parse(below).ok()?;
        self.patterns.kind(&path).map(|_| path.as_str().into())
    }
}

/// The files within reach.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FileList {
    /// Whether the caller may save files here.
    pub writable: bool,
    /// The places for new files.
    pub roots: Vec<FileRootView>,
    /// By path.
    pub files: Vec<FileSummary>,
    /// Whether there are more files than are listed.
    pub truncated: bool,
}

/// A file.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FileSummary {
    /// Its path, relative to the folder of the configuration.
    pub path: Arc<str>,
    /// The SHA-256 of its text.
    pub hash: String,
    /// What it holds.
    pub kind: FileKind,
    /// The composition that it holds, or tests, if it is one.
    pub composition: Option<Arc<str>>,
}

/// A file with its text.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FileText {
    /// Its path, relative to the folder of the configuration.
    pub path: Arc<str>,
    /// Its text.
    pub text: String,
    /// The SHA-256 of the text.
    pub hash: String,
    /// What it holds.
    pub kind: FileKind,
}

/// A file that was saved or renamed.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SavedFile {
    /// Its path, relative to the folder of the configuration.
    pub path: Arc<str>,
    /// The SHA-256 of its text.
    pub hash: String,
}

/// What a file holds on disk, when a request expects another text.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CurrentText {
    /// Its text; null if there is no such file.
    pub text: Option<String>,
    /// The SHA-256 of the text; null if there is no such file.
    pub hash: Option<String>,
}

/// What a request expects of a file that it changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilePrecondition {
    /// There is none: `If-None-Match: *`.
    Missing,
    /// Its text has this hash: `If-Match: "…"`.
    Hash(String),
}

impl FilePrecondition {
    /// The precondition that the headers of a request state.
    pub fn of(
        if_match: Option<&str>,
        if_none_match: Option<&str>,
    ) -> Result<FilePrecondition, Error> {
        let hash = |tag: &str| {
            let hash = tag.trim().strip_prefix('"')?.strip_suffix('"')?;
            let is_hash = hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
            is_hash.then(|| FilePrecondition::Hash(hash.to_ascii_lowercase()))
        };
        let precondition = match (if_match, if_none_match.map(str::trim)) {
            (Some(tag), None) => hash(tag),
            (None, Some("*")) => Some(FilePrecondition::Missing),
            _ => None,
        };
        precondition.ok_or_else(|| {
            Error::malformed("a change of a file says what it replaces")
                .help("send `If-Match: \"HASH\"` with the hash that was read, or `If-None-Match: *` for a new file")
        })
    }
}

/// The files of the compositions, tests and templates that a caller may read.
pub fn list(service: &RunService, who: &Principal) -> FileList {
    calculate(|| {
        let (files, limits) = (service.files(), service.limits());
        let (paths, mut truncated) = files.patterns.existing(limits.served_files_max);
        let seen = VisibleFiles::of(service, who, &files);
        let (mut summaries, mut bytes_left) = (Vec::new(), limits.served_files_bytes_max);
        for path in &paths {
            let Ok(stamp) = files.folder.stamp(path) else { continue };
            let Some(left) = bytes_left.checked_sub(stamp.bytes) else {
                truncated = true;
                break;
            };
            bytes_left = left;
            let known = files.known.get(&files.folder, path, stamp, &limits);
            let (Some(known), Some(kind)) = (known, files.patterns.kind(path)) else { continue };
            if seen.may_see(path, kind, &known) {
                let (kind, composition) = content(&files, path, kind, &known, &limits);
                let (path, hash) = (path.as_str().into(), known.hash.clone());
                summaries.push(FileSummary { path, hash, kind, composition });
            }
        }
        files.known.retain(&paths);
        FileList {
            writable: files.is_writable && may_change(who).is_ok(),
            roots: files.patterns.roots(),
            files: summaries,
            truncated,
        }
    })
}

/// What a file holds, and the name of its one composition, or of the one that it tests.
fn content(
    files: &EditableFiles,
    path: &DocumentPath,
    kind: FileKind,
    known: &KnownFile,
    limits: &Limits,
) -> (FileKind, Option<Arc<str>>) {
    match kind {
        FileKind::Composition if known.compositions.is_empty() => (FileKind::Other, None),
        FileKind::Composition => (kind, known.only()),
        FileKind::Test => {
            let tested = files.patterns.tested_by(path).into_iter();
            let tested = tested.into_iter().find_map(|path| files.known_file(&path, limits));
            (kind, tested.and_then(|tested| tested.only()))
        }
        FileKind::Template | FileKind::Other => (kind, None),
    }
}

/// A file with its text.
pub fn read(service: &RunService, who: &Principal, path: &str) -> Result<FileText, Error> {
    let (files, limits) = (service.files(), service.limits());
    let (path, kind) = find(&files, path)?;
    calculate(|| {
        let document = files.folder.read(&path).map_err(|error| unreadable(&error, &path))?;
        let known = KnownFile::of(&document, &limits);
        if !VisibleFiles::of(service, who, &files).may_see(&path, kind, &known) {
            return Err(no_file(path.as_str()));
        }
        let (kind, _) = content(&files, &path, kind, &known, &limits);
        let DocumentText { text, hash } = document;
        Ok(FileText { path: path.as_str().into(), text, hash, kind })
    })
}

/// Saves a file; whether it is new.
pub fn save(
    service: &RunService,
    who: &Principal,
    path: &str,
    request: &SaveFile,
    precondition: &FilePrecondition,
) -> Result<(SavedFile, bool), Error> {
    let files = writable(service, who)?;
    let (path, _) = target(&files, path)?;
    check_consent(service, who, &files, &path, &request.text)?;
    let is_new = *precondition == FilePrecondition::Missing;
    let saved = match precondition {
        FilePrecondition::Missing => files.folder.create(&path, &request.text),
        FilePrecondition::Hash(hash) => files.folder.replace(&path, &request.text, hash),
    };
    let hash = saved.map_err(|error| not_changed(error, &path))?;
    service.note_changed_files();
    Ok((SavedFile { path: path.as_str().into(), hash }, is_new))
}

/// Deletes a file whose text has a hash.
pub fn delete(
    service: &RunService,
    who: &Principal,
    path: &str,
    precondition: &FilePrecondition,
) -> Result<(), Error> {
    let files = writable(service, who)?;
    let (path, _) = find(&files, path)?;
    let hash = existing(precondition)?;
    files.folder.remove(&path, hash).map_err(|error| not_changed(error, &path))?;
    service.note_changed_files();
    Ok(())
}

/// Gives a file whose text has a hash another path, where there is no file.
pub fn rename(
    service: &RunService,
    who: &Principal,
    path: &str,
    request: &RenameFile,
    precondition: &FilePrecondition,
) -> Result<SavedFile, Error> {
    let files = writable(service, who)?;
    let (path, kind) = find(&files, path)?;
    let (to, new_kind) = target(&files, &request.to)?;
    if kind != new_kind {
        let message = format!("`{}` would not be what `{}` is", to.as_str(), path.as_str());
        return Err(Error::invalid(message).help("tests stay tests, and templates templates"));
    }
    let hash = existing(precondition)?;
    files.folder.rename(&path, &to, hash).map_err(|error| not_changed(error, &path))?;
    service.note_changed_files();
    Ok(SavedFile { path: to.as_str().into(), hash: hash.to_owned() })
}

fn existing(precondition: &FilePrecondition) -> Result<&str, Error> {
    match precondition {
        FilePrecondition::Hash(hash) => Ok(hash),
        FilePrecondition::Missing => Err(Error::malformed("this changes a file that exists")
            .help("send `If-Match: \"HASH\"` with the hash that was read")),
    }
}

/// The files, for a caller who may change them.
fn writable(service: &RunService, who: &Principal) -> Result<Arc<EditableFiles>, Error> {
    may_change(who)?;
    let files = service.files();
    if !files.is_writable {
        return Err(Error::conflict("this server does not change files")
            .help("`segue dev` does; for `segue serve`, set `server.edit: true`"));
    }
    Ok(files)
}

/// A file may be tested, expanded and called by others, with their tools: a caller with a toolset would leave it.
fn may_change(who: &Principal) -> Result<(), Error> {
    if who.toolset.is_some() {
        let message = "a principal with a toolset cannot change a file";
        return Err(
            Error::forbidden(message).help("others run what is in a file with their own tools")
        );
    }
    let why = "the author of a file decides what others run";
    require_for(who, Right::Write, "change a file", why)?;
    require_for(who, Right::Compose, "change a file", why)
}

/// The path of a file within reach, and what a file there is.
fn find(files: &EditableFiles, path: &str) -> Result<(DocumentPath, FileKind), Error> {
    let found = DocumentPath::parse(path).ok();
    let found = found.and_then(|path| Some((files.patterns.kind(&path)?, path)));
    found.map(|(kind, path)| (path, kind)).ok_or_else(|| no_file(path))
}

/// The same for a path that a request writes to.
fn target(files: &EditableFiles, path: &str) -> Result<(DocumentPath, FileKind), Error> {
    let parsed = DocumentPath::parse(path).map_err(|error| Error::invalid(error.to_string()))?;
    if let Some(kind) = files.patterns.kind(&parsed) {
        return Ok((parsed, kind));
    }
    let patterns = files.patterns.roots().into_iter().map(|root| format!("`{}`", root.pattern));
    let patterns: Vec<String> = patterns.collect();
    let message = format!("`{}` is not the path of a composition", parsed.as_str());
    Err(Error::invalid(message).help(match &*patterns {
        [] => "the configuration has no `compositions` below its folder".to_owned(),
        patterns => {
            format!("paths match {}, and end in `.yaml`, `.yml` or `.json`", patterns.join(", "))
        }
    }))
}

fn no_file(path: &str) -> Error {
    Error::not_found(format!("there is no file `{}` of a composition", path.escape_debug()))
}

/// Fails if a text lets its runs overwrite files unasked that the text on disk does not, unless the caller
/// may approve: `overwrites` is consent beforehand.
fn check_consent(
    service: &RunService,
    who: &Principal,
    files: &EditableFiles,
    path: &DocumentPath,
    text: &str,
) -> Result<(), Error> {
    if who.may(Right::Approve) {
        return Ok(());
    }
    let limits = service.limits();
    let overwrites = |text: &str| {
        let listed = compositions_in(&Source::new("file", text), &limits).compositions;
        let headers = listed.iter().filter_map(|listed| read_header(&listed.source, &limits));
        headers.flat_map(|header| header.overwrites).collect::<BTreeSet<Arc<str>>>()
    };
    calculate(|| {
        let new = overwrites(text);
        let before = || files.folder.read(path).map(|it| overwrites(&it.text)).unwrap_or_default();
        if new.is_empty() || new.is_subset(&before()) {
            return Ok(());
        }
        let instead = "without it the composition asks before it overwrites a file";
        require_for(who, Right::Approve, "add `overwrites`", instead)
    })
}

/// The files that a caller may read: all, or those whose compositions its toolset lets it run.
struct VisibleFiles<'a> {
    files: &'a EditableFiles,
    limits: Arc<Limits>,
    /// The names of the visible compositions, each with its file; `None` if everything is visible.
    compositions: Option<BTreeSet<(PathBuf, Arc<str>)>>,
}

impl VisibleFiles<'_> {
    fn of<'a>(
        service: &'a RunService,
        who: &Principal,
        files: &'a EditableFiles,
    ) -> VisibleFiles<'a> {
        let compositions = who.toolset.is_some().then(|| {
            let tools = service.catalog(who).tools;
            let visible = tools.iter().filter_map(|tool| {
                let file = PathBuf::from(&**tool.plan.composition.source.name());
                Some((file.canonicalize().ok()?, tool.composition.clone()))
            });
            visible.collect()
        });
        VisibleFiles { files, limits: service.limits(), compositions }
    }

    fn may_see(&self, path: &DocumentPath, kind: FileKind, known: &KnownFile) -> bool {
        let Some(visible) = &self.compositions else { return true };
        match kind {
            FileKind::Test => self.may_see_tested(path),
            FileKind::Composition => {
                let Ok(file) = self.files.patterns.root.join(path.as_str()).canonicalize() else {
                    return false;
                };
                let is_visible = |name: &Option<Arc<str>>| {
                    name.as_ref().is_some_and(|it| visible.contains(&(file.clone(), it.clone())))
                };
                !known.compositions.is_empty() && known.compositions.iter().all(is_visible)
            }
            FileKind::Template | FileKind::Other => false,
        }
    }

    /// Whether the caller may see a composition that a test file at a path tests.
    fn may_see_tested(&self, path: &DocumentPath) -> bool {
        self.files.patterns.tested_by(path).iter().any(|path| {
            let known = self.files.known_file(path, &self.limits);
            known.is_some_and(|known| self.may_see(path, FileKind::Composition, &known))
        })
    }
}

/// Why a file was not changed.
fn not_changed(error: DocumentChangeError, path: &DocumentPath) -> Error {
    match error {
        DocumentChangeError::Refused(error) => refused(&error, path),
        DocumentChangeError::Changed(present) => {
            let message = match &present {
                Some(_) => {
                    format!("`{}` holds another text than the request expects", path.as_str())
                }
                None => format!("`{}` does not exist any more", path.as_str()),
            };
            let (text, hash) = present.map(|it| (it.text, it.hash)).unzip();
            Error::new(ErrorKind::Precondition, Code::Conflict, message)
                .help("`text` is what is on disk; merge it, and send its `hash` with `If-Match`")
                .current_text(CurrentText { text, hash })
        }
    }
}

/// Why a file cannot be read. One that is out of reach does not exist for the caller.
fn unreadable(error: &ToolError, path: &DocumentPath) -> Error {
    match error {
        ToolError::Refused { code: Code::PolicyViolation, .. } => no_file(path.as_str()),
        ToolError::Refused { code: Code::Limit, .. } => Error::conflict(error.to_string()),
        _ => refused(error, path),
    }
}

fn refused(error: &ToolError, path: &DocumentPath) -> Error {
    let message = error.to_string();
    match error {
        ToolError::Refused { code: Code::NotFound, .. } => no_file(path.as_str()),
        ToolError::Refused { code: Code::Conflict, .. } => Error::conflict(message),
        ToolError::Refused { code: Code::Limit, .. } => {
            Error::new(ErrorKind::TooLarge, Code::Limit, message)
        }
        ToolError::Refused { code: Code::PolicyViolation, .. } => Error::invalid(message),
        ToolError::Refused { .. } => Error::conflict(message),
        ToolError::Unreachable { .. } | ToolError::NoAnswer { .. } => {
            Error::new(ErrorKind::Unavailable, Code::Unreachable, message)
        }
    }
}
