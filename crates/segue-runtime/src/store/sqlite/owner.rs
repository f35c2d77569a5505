//! Who is alive. Each store that is open for writing holds a lock on a file of its own; the system
//! lets go of it when the process ends, however it ends.
//!
//! A store is on one machine, because its log is shared memory. So the lock says exactly whether an
//! owner is there, at once and without a clock. An owner that hangs is alive: only a person may take
//! its runs. In its file an owner also writes what it acknowledged ([`super::witness`]).

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::ack_log::{AckLog, Acknowledged};
use super::error::SqliteError;
use crate::store::private_files::make_folder;

/// Held while a store is opened: SQLite has no order for several who make a file at the same time.
const OPENING: &str = ".opening";

/// A process that was stopped while it opened the store is not waited for longer than this.
const OPENING_WAIT: Duration = Duration::from_secs(5);

/// The folder with the files of owners.
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
    pub(super) witness: Arc<AckLog>,
    path: PathBuf,
    /// Locked as long as it is open.
    _file: File,
}

impl Owners {
    fn fault(&self, error: &io::Error) -> SqliteError {
        SqliteError::Unavailable(format!("`{}`: {error}", self.folder.display()))
    }

    /// A new owner. Its file gets its name when it is locked, so that nobody takes it for a dead one's.
    pub(super) fn register(&self) -> Result<Owner, SqliteError> {
        let name: Arc<str> = format!("{}-{}", std::process::id(), Uuid::now_v7()).into();
        let path = self.folder.join(&*name);
        let make = || -> io::Result<Owner> {
            make_folder(&self.folder, &self.store)?;
            let unnamed = self.folder.join(format!(".{name}"));
            let file = OpenOptions::new().write(true).create_new(true).open(&unnamed)?;
            file.lock()?;
            let witness = Arc::new(AckLog::new(file.try_clone()?));
            std::fs::rename(unnamed, &path)?;
            Ok(Owner { name: name.clone(), witness, path: path.clone(), _file: file })
        };
        make().map_err(|error| self.fault(&error))
    }

    /// Whether an owner is there still.
    pub(super) fn is_alive(&self, name: &str) -> bool {
        match File::open(self.folder.join(name)) {
            // Shared: two that look at once are no owner.
            Ok(file) => matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)),
            // Whoever cannot be looked at is taken to be there.
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }

    /// Waits until nobody else opens the store. Without it, opening may fail and nothing else.
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

    /// The files of the dead, and what they say was acknowledged.
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

    /// Says which processes may hold the lock of the file, and what to do.
    pub(super) fn describe_holders(&self) -> String {
        let pids = self.alive().filter_map(|name| Some(name.split_once('-')?.0.to_owned()));
        let me = std::process::id().to_string();
        let pids: Vec<String> = pids.filter(|pid| *pid != me).collect();
        format!(
            "another process holds its lock and does not go on (process {}): let it go on with \
             `kill -CONT PID`, or end it with `kill -KILL PID`, then try again",
            pids.join(" or ")
        )
    }

    /// Whether somebody has the store open to write.
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
        // What stands in the log alone needs its witness.
        if self.witness.is_settled() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
