//! Who is alive. Each store that is open for writing holds a lock on a file of its own; the system
//! lets go of it when the process ends, however it ends.
//!
//! A store is on one machine, because its log is shared memory. So the lock says exactly whether an
//! owner is there, at once and without a clock. An owner that hangs is alive: only a person may take
//! its runs.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::PathBuf;
use std::sync::Arc;

use uuid::Uuid;

use super::fault::Fault;
use crate::store::private::make_folder;

/// The folder with the files of owners. Everything here happens inside the writer's transactions,
/// so that nobody looks while somebody else is between making a file and locking it.
#[derive(Clone, Debug)]
pub(super) struct Owners {
    pub(super) folder: PathBuf,
    /// The store's file.
    pub(super) store: PathBuf,
}

/// Somebody who may have runs; alive until dropped.
#[derive(Debug)]
pub(super) struct Owner {
    pub(super) name: Arc<str>,
    path: PathBuf,
    /// Locked as long as it is open.
    _file: File,
}

impl Owners {
    /// A new owner. Files that the dead left behind are removed.
    pub(super) fn register(&self) -> Result<Owner, Fault> {
        let fault = |error: std::io::Error| {
            Fault::Unavailable(format!("`{}`: {error}", self.folder.display()))
        };
        make_folder(&self.folder, &self.store).map_err(fault)?;
        for entry in std::fs::read_dir(&self.folder).map_err(fault)?.flatten() {
            if entry.file_name().to_str().is_some_and(|name| !self.is_alive(name)) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
        let name: Arc<str> = format!("{}-{}", std::process::id(), Uuid::now_v7()).into();
        let path = self.folder.join(&*name);
        let file = OpenOptions::new().write(true).create_new(true).open(&path).map_err(fault)?;
        file.lock().map_err(fault)?;
        Ok(Owner { name, path, _file: file })
    }

    /// Whether an owner is there still.
    pub(super) fn is_alive(&self, name: &str) -> bool {
        match File::open(self.folder.join(name)) {
            Ok(file) => matches!(file.try_lock(), Err(TryLockError::WouldBlock)),
            // Whoever cannot be looked at is taken to be there.
            Err(error) => error.kind() != std::io::ErrorKind::NotFound,
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
