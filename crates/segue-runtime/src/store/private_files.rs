//! Files and folders that nobody else may read: journals hold what people and tools said.
//!
//! Only what is made here is made so. Whoever wants to share a store gives its file other rights, and
//! what is made beside it follows.

use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::path::Path;

/// Makes an empty file, and the folders above it, unless they are there. What goes wrong is said better
/// by whoever opens the file then.
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

/// Makes a folder, unless it is there, for those who may open this file.
pub(crate) fn make_folder(folder: &Path, file: &Path) -> io::Result<()> {
    let mut folders = DirBuilder::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
        let rights = std::fs::metadata(file)?.permissions().mode() & 0o666;
        // Whoever may read may look inside.
        folders.mode(rights | ((rights & 0o444) >> 2));
    }
    #[cfg(not(unix))]
    let _ = file;
    folders.recursive(true).create(folder)
}
