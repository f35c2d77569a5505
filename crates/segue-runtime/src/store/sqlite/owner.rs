//! Which owners of runs are alive. Each process that writes holds a lock on a file of its own in
//! `FILE-owners`; the system releases it when the process ends, however it ends.
//!
//! All processes of a store are on one machine, because SQLite's log uses shared memory. So the lock
//! tells exactly whether an owner is alive, at once and without a clock. An owner that hangs is alive:
//! only a person may take its runs over. An owner also writes its acknowledgements into its file
//! ([`super::ack_log`]).

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::ack_log::{AckLog, Acknowledged};
use super::error::SqliteError;
use crate::store::private_files::make_folder;

/// Locked by the process that opens the store: SQLite does not order processes that create a file at the
/// same time.
const OPENING: &str = ".opening";

/// How long to wait for a process that opens the store: it may have been stopped meanwhile.
const OPENING_WAIT: Duration = Duration::from_secs(5);

/// The folder with the files of owners.
#[derive(Clone, Debug)]
pub(super) struct Owners {
    pub(super) folder: PathBuf,
    /// The store's file.
    pub(super) store: PathBuf,
}

/// An owner of runs, alive until dropped.
#[derive(Debug)]
pub(super) struct Owner {
    pub(super) name: Arc<str>,
    pub(super) ack_log: Arc<AckLog>,
    path: PathBuf,
    /// Locked as long as it is open.
    _file: File,
}

impl Owners {
    fn fault(&self, error: &io::Error) -> SqliteError {
        SqliteError::Unavailable(format!("`{}`: {error}", self.folder.display()))
    }

    /// A new owner. Its file gets its name after it is locked, so that no process takes it for a dead
    /// owner's.
    pub(super) fn register(&self) -> Result<Owner, SqliteError> {
        let name: Arc<str> = format!("{}-{}", std::process::id(), Uuid::now_v7()).into();
        let path = self.folder.join(&*name);
        let make = || -> io::Result<Owner> {
            make_folder(&self.folder, &self.store)?;
            let unnamed = self.folder.join(format!(".{name}"));
            let file = OpenOptions::new().write(true).create_new(true).open(&unnamed)?;
            file.lock()?;
            let ack_log = Arc::new(AckLog::new(file.try_clone()?));
            std::fs::rename(unnamed, &path)?;
            Ok(Owner { name: name.clone(), ack_log, path: path.clone(), _file: file })
        };
        make().map_err(|error| self.fault(&error))
    }

    /// Whether an owner is alive.
    pub(super) fn is_alive(&self, name: &str) -> bool {
        match File::open(self.folder.join(name)) {
            // Shared: two processes that look at once do not take each other for the owner.
            Ok(file) => matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)),
            // An owner whose file cannot be opened counts as alive.
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }

    /// Waits until no other process opens the store. Without this lock, opening may fail, and nothing else.
    pub(super) fn begin_opening(&self) -> Option<File> {
        make_folder(&self.folder, &self.store).ok()?;
        let path = self.folder.join(OPENING);
        let file = OpenOptions::new().create(true).append(true).open(path).ok()?;
        let began = Instant::now();
        while let Err(TryLockError::WouldBlock) = file.try_lock() {
            if began.elapsed() > OPENING_WAIT {
                return None;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Some(file)
    }

    /// The files of dead owners, and the acknowledgements in them.
    pub(super) fn dead(&self) -> (Vec<PathBuf>, Acknowledged) {
        let (mut files, mut acknowledged) = (Vec::new(), Acknowledged::default());
        for entry in std::fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some(name) = name.to_str().filter(|name| !name.starts_with('.')) else { continue };
            if !self.is_alive(name) {
                acknowledged.add(&std::fs::read(entry.path()).unwrap_or_default());
                files.push(entry.path());
            }
        }
        (files, acknowledged)
    }

    /// Names the processes that may hold the lock of the file, and says what to do.
    pub(super) fn describe_holders(&self) -> String {
        let pids = self.alive().filter_map(|name| Some(name.split_once('-')?.0.to_owned()));
        let me = std::process::id().to_string();
        let pids: Vec<String> = pids.filter(|pid| *pid != me).collect();
        format!(
            "another process holds its lock and does not go on (process {}): let it go on with \
             `kill -CONT PID`, or end it with `kill -KILL PID`, then retry",
            pids.join(" or ")
        )
    }

    /// Whether any owner is alive.
    pub(super) fn has_live_owner(&self) -> bool {
        self.alive().next().is_some()
    }

    fn alive(&self) -> impl Iterator<Item = String> {
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| !name.starts_with('.') && self.is_alive(name))
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // Commits that only the log holds still need their acknowledgements.
        if self.ack_log.is_settled() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
