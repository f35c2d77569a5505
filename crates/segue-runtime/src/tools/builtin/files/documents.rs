//! The files of compositions and templates, for an editor: read, saved, renamed and removed below one folder.
//!
//! The opposite of the file tools in one respect: these files are what the tools must not touch. In all
//! others it is stricter. No link is followed, not even one that stays inside the folder; hidden files
//! and Segue's other own files are out of reach; and a change names the hash of the text that it
//! replaces, so that it never overwrites what its author has not seen. A program that writes the file in
//! the instant between the comparison and the change is not noticed: no file system compares and renames
//! in one step.

use std::path::PathBuf;
use std::time::SystemTime;

use cap_std::fs::{Dir, Metadata};
use parking_lot::Mutex;
use segue_core::diagnostic::Code;
use segue_core::tool::hex_digest;

use super::protected_files::{FileUse, ProtectedFiles, folded};
use super::root::{Existing, FileRoot, Leaf, absent, failure, forbidden, relative};
use crate::tools::ToolError;

/// One change at a time in this process: a reload makes another folder while requests hold this one.
static CHANGING: Mutex<()> = Mutex::new(());

/// The path of a document below the folder: plain names joined by `/`, none of them hidden.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DocumentPath(String);

impl DocumentPath {
    /// The path that a text means, or why it is refused.
    pub fn parse(text: &str) -> Result<DocumentPath, ToolError> {
        let path = relative(text)?;
        if path.split('/').any(|name| name.starts_with('.')) {
            let message = format!("`{path}` is hidden: a name in it begins with `.`");
            return Err(forbidden(message));
        }
        Ok(DocumentPath(path))
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The folder and the file name.
    fn parts(&self) -> (&str, &str) {
        self.0.rsplit_once('/').unwrap_or(("", &self.0))
    }
}

/// The text of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentText {
    /// Every byte of the file, which is UTF-8.
    pub text: String,
    /// The SHA-256 of the text.
    pub hash: String,
}

impl DocumentText {
    fn new(text: String) -> DocumentText {
        DocumentText { hash: hex_digest(text.as_bytes()), text }
    }
}

/// What changes when a document does, at least unless it is written twice within moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DocumentStamp {
    /// Its size.
    pub bytes: u64,
    /// When its content was written.
    pub modified: Option<SystemTime>,
    /// Which file it is, on which device; and when its content or its attributes changed.
    identity: (u64, u64, i64, i64),
}

impl DocumentStamp {
    #[cfg(unix)]
    fn of(found: &Metadata) -> DocumentStamp {
        use cap_std::fs::MetadataExt as _;
        let modified = found.modified().ok().map(cap_std::time::SystemTime::into_std);
        let identity = (found.dev(), found.ino(), found.ctime(), found.ctime_nsec());
        DocumentStamp { bytes: found.len(), modified, identity }
    }

    /// Without inodes, the time and the size have to do.
    #[cfg(not(unix))]
    fn of(found: &Metadata) -> DocumentStamp {
        let modified = found.modified().ok().map(cap_std::time::SystemTime::into_std);
        DocumentStamp { bytes: found.len(), modified, identity: (0, 0, 0, 0) }
    }
}

/// Why a document was not changed.
#[derive(Debug)]
pub enum DocumentChangeError {
    /// It holds another text than the one that the change is for; `None`: there is no file.
    Changed(Option<DocumentText>),
    /// It is not allowed or not possible, as the error says.
    Refused(ToolError),
}

impl From<ToolError> for DocumentChangeError {
    fn from(error: ToolError) -> DocumentChangeError {
        DocumentChangeError::Refused(error)
    }
}

/// The folder of the documents.
pub struct DocumentFolder {
    root: FileRoot,
}

impl DocumentFolder {
    /// The documents below a folder, each of at most `bytes_max` bytes, without Segue's other own files.
    pub fn new(path: PathBuf, own: ProtectedFiles, bytes_max: usize) -> DocumentFolder {
        let own = ProtectedFiles { documents: Vec::new(), ..own };
        DocumentFolder { root: FileRoot::new(path, own, bytes_max) }
    }

    /// The text of a document.
    pub fn read(&self, path: &DocumentPath) -> Result<DocumentText, ToolError> {
        let leaf = self.leaf(path, false)?;
        let text = leaf.text()?.ok_or_else(|| absent(path.as_str()))?;
        Ok(DocumentText::new(text))
    }

    /// What tells this content of a document from others, without reading it.
    pub fn stamp(&self, path: &DocumentPath) -> Result<DocumentStamp, ToolError> {
        let found = self.leaf(path, false)?.metadata()?.ok_or_else(|| absent(path.as_str()))?;
        Ok(DocumentStamp::of(&found))
    }

    /// Writes a new document. Returns its hash.
    pub fn create(&self, path: &DocumentPath, text: &str) -> Result<String, DocumentChangeError> {
        let _changing = CHANGING.lock();
        self.root.fits(text.len())?;
        let leaf = self.leaf(path, true)?;
        if let Some(present) = leaf.text()? {
            return Err(DocumentChangeError::Changed(Some(DocumentText::new(present))));
        }
        refuse_namesake(&leaf, None)?;
        leaf.put(text, Existing::Refuse)?;
        Ok(hex_digest(text.as_bytes()))
    }

    /// Replaces the text of a document that has this hash. Returns the hash of the new one.
    pub fn replace(
        &self,
        path: &DocumentPath,
        text: &str,
        expected: &str,
    ) -> Result<String, DocumentChangeError> {
        let _changing = CHANGING.lock();
        self.root.fits(text.len())?;
        self.unchanged(path, expected)?.put(text, Existing::Replace)?;
        Ok(hex_digest(text.as_bytes()))
    }

    /// Removes a document that has this hash.
    pub fn remove(&self, path: &DocumentPath, expected: &str) -> Result<(), DocumentChangeError> {
        let _changing = CHANGING.lock();
        Ok(self.unchanged(path, expected)?.remove()?)
    }

    /// Gives a document that has this hash another path, where there is no file.
    pub fn rename(
        &self,
        path: &DocumentPath,
        to: &DocumentPath,
        expected: &str,
    ) -> Result<(), DocumentChangeError> {
        let _changing = CHANGING.lock();
        let from = self.unchanged(path, expected)?;
        let leaf = self.leaf(to, true)?;
        let same_folder = path.parts().0 == to.parts().0;
        refuse_namesake(&leaf, same_folder.then_some(from.name()))?;
        // First both names, then the new one: a crash between the two loses nothing.
        from.link(&leaf)?;
        Ok(from.remove()?)
    }

    /// The place of a document that has this hash.
    fn unchanged(
        &self,
        path: &DocumentPath,
        expected: &str,
    ) -> Result<Leaf<'_>, DocumentChangeError> {
        let leaf = match self.leaf(path, false) {
            Err(ToolError::Refused { code: Code::NotFound, .. }) => {
                return Err(DocumentChangeError::Changed(None));
            }
            leaf => leaf?,
        };
        match leaf.text()?.map(DocumentText::new) {
            Some(present) if present.hash == expected => Ok(leaf),
            present => Err(DocumentChangeError::Changed(present)),
        }
    }

    /// The place of a document, with its folder held open; `makes_folders` makes those that are missing.
    fn leaf(&self, path: &DocumentPath, makes_folders: bool) -> Result<Leaf<'_>, ToolError> {
        self.root.is_free(path.as_str(), FileUse::Change)?;
        let (folder, name) = path.parts();
        let mut dir = self.root.open()?;
        for part in folder.split('/').filter(|part| !part.is_empty()) {
            dir = enter(&dir, part, path.as_str(), makes_folders)?;
        }
        Ok(self.root.leaf_in(dir, name, path.as_str()))
    }
}

/// Opens a folder of a folder, which is not a link. A missing one is made if `makes` is set.
fn enter(dir: &Dir, name: &str, shown: &str, makes: bool) -> Result<Dir, ToolError> {
    let found = match dir.symlink_metadata(name) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && makes => {
            dir.create_dir(name).map_err(|error| failure(shown, &error))?;
            dir.symlink_metadata(name)
        }
        found => found,
    };
    let found = found.map_err(|error| failure(shown, &error))?;
    if !found.is_dir() {
        let message = format!("`{name}` in `{shown}` is not a folder; links are not followed");
        return Err(forbidden(message));
    }
    let inner = dir.open_dir(name).map_err(|error| failure(shown, &error))?;
    // A link that replaced the folder in between leads to another one.
    let opened = inner.dir_metadata().map_err(|error| failure(shown, &error))?;
    if !is_same(&found, &opened) {
        return Err(forbidden(format!("`{name}` in `{shown}` was replaced just now")));
    }
    Ok(inner)
}

#[cfg(unix)]
fn is_same(found: &cap_std::fs::Metadata, opened: &cap_std::fs::Metadata) -> bool {
    use cap_std::fs::MetadataExt as _;
    (found.dev(), found.ino()) == (opened.dev(), opened.ino())
}

/// Without inodes nothing more can be compared.
#[cfg(not(unix))]
fn is_same(_found: &cap_std::fs::Metadata, _opened: &cap_std::fs::Metadata) -> bool {
    true
}

/// Refuses a name that some file systems take for that of another file in its folder, such as `A.yaml`
/// beside `a.yaml`; `leaving` is the name that goes away.
fn refuse_namesake(leaf: &Leaf<'_>, leaving: Option<&str>) -> Result<(), ToolError> {
    let wanted = folded(leaf.name());
    for name in leaf.siblings()? {
        if folded(&name) == wanted && Some(&*name) != leaving {
            let message = format!(
                "there is `{name}` beside `{}`, and some file systems take the two for one file",
                leaf.path()
            );
            return Err(ToolError::refused(Code::Conflict, message));
        }
    }
    Ok(())
}
