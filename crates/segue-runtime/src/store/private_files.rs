//! Files and folders that only their user may read: journals hold what people and tools said.
//!
//! Existing files keep their permissions. A user who wants to share a store changes those of its file,
//! and new files beside it follow.

use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::path::Path;

/// Creates an empty file, and the folders above it, unless they are there. Errors show when the caller
/// opens the file.
pub(crate) fn make_file(path: &Path) {
    if let Some(parent) = path.parent() {
        let mut folders = DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut folders, 0o700);
        let _ = folders.recursive(true).create(parent);
    }
    let mut file = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut file, 0o600);
    let _ = file.write(true).create_new(true).open(path);
}

/// Creates a folder, unless it is there, for the users who may open this file.
pub(crate) fn make_folder(folder: &Path, file: &Path) -> io::Result<()> {
    let mut folders = DirBuilder::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
        let rights = std::fs::metadata(file)?.permissions().mode() & 0o666;
        // Users who may read the file may enter the folder.
        folders.mode(rights | ((rights & 0o444) >> 2));
    }
    #[cfg(not(unix))]
    let _ = file;
    folders.recursive(true).create(folder)
}
