//! Paths → files that are certainly inside the root (D6).
//!
//! A path is checked twice: as text, where only plain relative names pass, and by the operating
//! system, which resolves it below an open directory handle (`cap-std`, on Linux `openat2` with
//! `RESOLVE_BENEATH`). No path is checked and then used by name: a link swapped in between leads to
//! an error, never outside.
//!
//! A change is written to a temporary file, which is then renamed. Readers see the old text or the
//! new one, and a hard link elsewhere keeps the old one.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, Metadata, OpenOptions};
use parking_lot::{Mutex, MutexGuard};
use segue_core::diagnostic::Code;
use uuid::Uuid;

use super::super::over_limit;
use super::protected_files::{FileUse, ProtectedFiles};
use crate::tools::ToolError;

/// The longest path, in bytes.
const PATH_BYTES_MAX: usize = 4096;

/// The directory that the file tools never leave.
pub(super) struct FileRoot {
    path: PathBuf,
    own: ProtectedFiles,
    bytes_max: usize,
    writing: Mutex<()>,
}

/// Whether missing directories are created.
#[derive(Clone, Copy)]
pub(super) enum Parents {
    Create,
    Expect,
}

/// Whether an existing file is replaced.
#[derive(Clone, Copy)]
pub(super) enum Existing {
    Replace,
    Refuse,
}

/// A file name in an open directory; the file may not exist.
pub(super) struct Leaf<'a> {
    root: &'a FileRoot,
    dir: Dir,
    name: String,
    path: String,
}

impl FileRoot {
    pub(super) fn new(path: PathBuf, own: ProtectedFiles, bytes_max: usize) -> FileRoot {
        FileRoot { path, own, bytes_max, writing: Mutex::new(()) }
    }

    /// The files below the root that are out of reach.
    pub(super) fn own(&self) -> &ProtectedFiles {
        &self.own
    }

    /// Whether a change at this path would replace something. A file that no tool may change counts
    /// as missing.
    pub(super) fn has(&self, path: &str) -> bool {
        let Ok(path) = relative(path) else { return false };
        let is_there = || self.open().is_ok_and(|dir| dir.symlink_metadata(&path).is_ok());
        is_there() && self.is_free(&path, FileUse::Change).is_ok()
    }

    /// The path, below the root, of the file that a change would write: links among its folders are
    /// followed, a link in place of the file is not. `None` when the folder does not exist.
    pub(super) fn written_path(&self, path: &str) -> Option<PathBuf> {
        let path = relative(path).ok()?;
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", &path));
        let folder = std::fs::canonicalize(self.path.join(folder)).ok()?;
        let root = std::fs::canonicalize(&self.path).ok()?;
        folder.strip_prefix(root).ok().map(|folder| folder.join(name))
    }

    /// Refuses Segue's own files.
    pub(super) fn is_free(&self, path: &str, using: FileUse) -> Result<(), ToolError> {
        let Some(why) = self.own.refusal(&self.path.join(path), using) else { return Ok(()) };
        let verb = if using == FileUse::Read { "read" } else { "change" };
        Err(forbidden(format!("`{path}` {why}; file tools do not {verb} Segue's own files")))
    }

    /// Adds the root to the message that a path does not exist, unless it is the working directory.
    pub(super) fn name_in(&self, error: ToolError) -> ToolError {
        match error {
            ToolError::Refused { code: Code::NotFound, message, retryable }
                if self.path != Path::new(".") =>
            {
                let message = format!("{message} in `{}`", self.path.display());
                ToolError::Refused { code: Code::NotFound, message, retryable }
            }
            other => other,
        }
    }

    /// Blocks other changes, so that reading, changing and writing is one step.
    pub(super) fn lock(&self) -> MutexGuard<'_, ()> {
        self.writing.lock()
    }

    /// Opens the root. Each call does, because it may be created, moved or mounted in between.
    pub(super) fn open(&self) -> Result<Dir, ToolError> {
        Dir::open_ambient_dir(&self.path, ambient_authority()).map_err(|error| {
            let message =
                format!("the files root `{}` cannot be opened: {error}", self.path.display());
            ToolError::refused(Code::Config, message)
        })
    }

    /// The path for messages, and the text of the file. Links that stay inside the root are
    /// followed.
    pub(super) fn read(&self, path: &str) -> Result<(String, String), ToolError> {
        let path = relative(path)?;
        self.is_free(&path, FileUse::Read)?;
        let dir = self.open()?;
        let found = dir.metadata(&path).map_err(|error| failure(&path, &error))?;
        regular(&path, &found)?;
        let text = self.text_of(&dir, &path, &path)?;
        Ok((path, text))
    }

    /// The location of a file, with its directory held open.
    pub(super) fn leaf(&self, path: &str, parents: Parents) -> Result<Leaf<'_>, ToolError> {
        let path = relative(path)?;
        // Checked before any directory is created.
        self.is_free(&path, FileUse::Change)?;
        if matches!(parents, Parents::Create) {
            std::fs::create_dir_all(&self.path).map_err(|error| failure(&path, &error))?;
        }
        let root = self.open()?;
        let (parent, name) = match path.rsplit_once('/') {
            Some((parent, name)) => (parent, name.to_owned()),
            None => ("", path.clone()),
        };
        if name == "." {
            return Err(forbidden(format!("`{path}` is the files root, not a file")));
        }
        if parent.is_empty() {
            return Ok(Leaf { root: self, dir: root, name, path });
        }
        if matches!(parents, Parents::Create) {
            root.create_dir_all(parent).map_err(|error| failure(&path, &error))?;
        }
        let dir = root.open_dir(parent).map_err(|error| failure(&path, &error))?;
        Ok(Leaf { root: self, dir, name, path })
    }

    /// A file of this name in an open directory.
    pub(super) fn leaf_in(&self, dir: Dir, name: &str, path: &str) -> Leaf<'_> {
        Leaf { root: self, dir, name: name.to_owned(), path: path.to_owned() }
    }

    /// Checks the size limit of a file.
    pub(super) fn fits(&self, bytes: usize) -> Result<(), ToolError> {
        if bytes > self.bytes_max {
            return Err(over_limit("the size of the file", self.bytes_max, "bytes"));
        }
        Ok(())
    }

    fn text_of(&self, dir: &Dir, name: &str, shown: &str) -> Result<String, ToolError> {
        let file = dir.open_with(name, &reading()).map_err(|error| failure(shown, &error))?;
        // Checked again on the opened file.
        let found = file.metadata().map_err(|error| failure(shown, &error))?;
        regular(shown, &found)?;
        self.fits(usize::try_from(found.len()).unwrap_or(usize::MAX))?;
        let mut bytes = Vec::new();
        let bytes_max = self.bytes_max as u64;
        file.take(bytes_max.saturating_add(1))
            .read_to_end(&mut bytes)
            .map_err(|error| failure(shown, &error))?;
        self.fits(bytes.len())?;
        String::from_utf8(bytes).map_err(|_| {
            ToolError::refused(Code::ToolError, format!("`{shown}` is not UTF-8 text"))
        })
    }
}

impl Leaf<'_> {
    /// The path for messages: relative to the root, normalised.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// The file's name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The names in its directory.
    pub(super) fn siblings(&self) -> Result<Vec<String>, ToolError> {
        let entries = self.dir.entries().map_err(|error| failure(&self.path, &error))?;
        let names = entries.flatten().map(|entry| entry.file_name());
        Ok(names.map(|name| name.to_string_lossy().into_owned()).collect())
    }

    /// Gives the file a second name, which no file has.
    pub(super) fn link(&self, to: &Leaf<'_>) -> Result<(), ToolError> {
        let linked = self.dir.hard_link(&self.name, &to.dir, &to.name);
        linked.map_err(|error| to.put_failure(&error))
    }

    /// What the directory says of the file; `None` when it does not exist.
    pub(super) fn metadata(&self) -> Result<Option<Metadata>, ToolError> {
        let found = match self.dir.symlink_metadata(&self.name) {
            Ok(found) => found,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failure(&self.path, &error)),
        };
        regular(&self.path, &found)?;
        Ok(Some(found))
    }

    /// The file's content; `None` when it does not exist.
    pub(super) fn text(&self) -> Result<Option<String>, ToolError> {
        if self.metadata()?.is_none() {
            return Ok(None);
        }
        self.root.text_of(&self.dir, &self.name, &self.path).map(Some)
    }

    /// Replaces the file's content, all of it or nothing.
    pub(super) fn put(&self, content: &str, existing: Existing) -> Result<(), ToolError> {
        self.root.fits(content.len())?;
        let temporary = format!(".segue-{}.tmp", Uuid::new_v4().simple());
        let done = self
            .write_new(&temporary, content)
            .and_then(|()| self.move_into_place(&temporary, existing));
        if done.is_err() || matches!(existing, Existing::Refuse) {
            let _ = self.dir.remove_file(&temporary);
        }
        done.map_err(|error| self.put_failure(&error))
    }

    fn put_failure(&self, error: &io::Error) -> ToolError {
        match error.kind() {
            ErrorKind::AlreadyExists => {
                let message = format!("`{}` exists already", self.path);
                ToolError::refused(Code::Conflict, message)
            }
            _ => failure(&self.path, error),
        }
    }

    pub(super) fn remove(&self) -> Result<(), ToolError> {
        self.dir.remove_file(&self.name).map_err(|error| failure(&self.path, &error))
    }

    /// Writes a new file with the permissions of the file that it will replace.
    fn write_new(&self, name: &str, content: &str) -> io::Result<()> {
        let replaced = self.dir.symlink_metadata(&self.name).ok().filter(Metadata::is_file);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        let mut file = self.dir.open_with(name, &options)?;
        file.write_all(content.as_bytes())?;
        if let Some(replaced) = replaced {
            file.set_permissions(replaced.permissions())?;
        }
        // A step recorded as done stays done after a power failure.
        file.sync_all()
    }

    fn move_into_place(&self, temporary: &str, existing: Existing) -> io::Result<()> {
        match existing {
            Existing::Replace => self.dir.rename(temporary, &self.dir, &self.name)?,
            // Unlike a rename, a hard link never replaces an existing file, not even one just
            // created.
            Existing::Refuse => self.dir.hard_link(temporary, &self.dir, &self.name)?,
        }
        // The handle is opened with `O_PATH`; syncing needs a directory that is open for reading.
        #[cfg(unix)]
        self.dir.open(".")?.sync_all()?;
        Ok(())
    }
}

/// A path as plain names joined by `/`, or why it is refused.
pub(super) fn relative(path: &str) -> Result<String, ToolError> {
    let refuse = |why: &str| Err(forbidden(format!("`{}` {why}", path.escape_debug())));
    if path.is_empty() || path.len() > PATH_BYTES_MAX {
        return Err(forbidden("a path has between 1 and 4096 bytes"));
    }
    if path.chars().any(char::is_control) {
        return refuse("contains control characters");
    }
    if path.starts_with('/') {
        return refuse("is absolute; paths are relative to the files root");
    }
    // A separator on Windows and a letter elsewhere: refused, so that a path means the same
    // everywhere.
    if path.contains('\\') {
        return refuse("contains `\\`; the separator is `/`");
    }
    if path.split('/').any(|name| name == "..") {
        return refuse("contains `..`; paths stay below the files root");
    }
    let names: Vec<&str> = path.split('/').filter(|name| !matches!(*name, "" | ".")).collect();
    Ok(if names.is_empty() { ".".to_owned() } else { names.join("/") })
}

/// Opening must not block: a pipe without a writer would hold the call for ever.
fn reading() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use cap_std::fs::OpenOptionsExt as _;
        let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
        options.custom_flags(flags.bits().cast_signed());
    }
    options
}

/// Refuses directories, links, pipes and devices.
fn regular(path: &str, found: &Metadata) -> Result<(), ToolError> {
    if found.is_file() {
        return Ok(());
    }
    let kind = if found.is_dir() {
        "a directory"
    } else if found.is_symlink() {
        "a symbolic link"
    } else {
        "not a regular file"
    };
    Err(ToolError::refused(Code::ToolError, format!("`{path}` is {kind}")))
}

pub(super) fn absent(path: &str) -> ToolError {
    ToolError::refused(Code::NotFound, format!("`{path}` does not exist"))
}

/// Translates an I/O failure for the caller. A path that would leave the root fails as "permission
/// denied", like any other forbidden place.
pub(super) fn failure(path: &str, error: &io::Error) -> ToolError {
    match error.kind() {
        ErrorKind::NotFound => absent(path),
        ErrorKind::PermissionDenied => {
            forbidden(format!("`{path}` leads out of the files root or is not accessible: {error}"))
        }
        ErrorKind::StorageFull | ErrorKind::Interrupted | ErrorKind::ResourceBusy => {
            ToolError::failed(format!("`{path}`: {error}"))
        }
        _ => ToolError::refused(Code::ToolError, format!("`{path}`: {error}")),
    }
}

pub(super) fn forbidden(message: impl Into<String>) -> ToolError {
    ToolError::refused(Code::PolicyViolation, message)
}
