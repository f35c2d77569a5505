//! The slates of everybody who has the store open, or had it.
//!
//! Whoever opens a store copies what stands on them: then it sees all that was acknowledged before.
//! The slate of an owner who is dead is thrown away with that. So is that of an owner whose run is
//! taken from it: it is emptied while it is locked, which the owner notices before it writes again.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::desk::Desk;
use super::fault::{Fault, broken};
use super::owner::Owners;
use super::schema::{beside, sync_log};
use super::slate::Reading;

/// The folder with slates. What is copied is copied inside the writer's transactions.
#[derive(Clone)]
pub(super) struct Slates {
    folder: PathBuf,
    /// The store's file.
    store: PathBuf,
    /// How far those of others were read.
    readings: Arc<Mutex<HashMap<PathBuf, Reading>>>,
}

/// Whose slates are copied.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose<'a> {
    /// Those of everybody else than this one.
    Others(Option<&'a str>),
    /// The same, and they are emptied.
    Emptied(Option<&'a str>),
    /// That of one whose runs are taken from it.
    Taken(&'a str),
}

/// A slate that is locked until what stands on it is committed.
pub(super) struct Held {
    file: File,
    path: PathBuf,
    slates: Slates,
    reading: Reading,
    /// Whether it is thrown away then.
    is_taken: bool,
}

impl Held {
    /// What stands on it is committed.
    pub(super) fn copied(self) {
        let Held { file, path, slates, reading, is_taken } = self;
        if !is_taken {
            slates.readings().insert(path, reading);
            return;
        }
        // Its owner may have copied some of it without waiting until that is durable.
        if sync_log(&slates.store).is_ok() && file.set_len(0).is_ok() {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Slates {
    pub(super) fn of(store: &Path) -> Slates {
        Slates {
            folder: beside(store, "-slates"),
            store: store.to_owned(),
            readings: Arc::default(),
        }
    }

    fn readings(&self) -> MutexGuard<'_, HashMap<PathBuf, Reading>> {
        self.readings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The slate of an owner.
    pub(super) fn path(&self, owner: &str) -> PathBuf {
        self.folder.join(owner)
    }

    /// Who has one, or had.
    fn owners(&self) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(&self.folder) else { return Vec::new() };
        entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    /// Whether anybody else has one.
    pub(super) fn has_others(&self, me: Option<&str>) -> bool {
        self.owners().iter().any(|owner| Some(&**owner) != me)
    }

    /// Copies what stands on slates and is not in the file.
    pub(super) fn copy(
        &self,
        desk: &mut Desk,
        owners: &Owners,
        whose: Whose<'_>,
    ) -> Result<(), Fault> {
        for owner in self.owners() {
            let is_wanted = match whose {
                Whose::Others(me) | Whose::Emptied(me) => Some(&*owner) != me,
                Whose::Taken(taken) => owner == taken,
            };
            if is_wanted {
                let is_taken = !matches!(whose, Whose::Others(_)) || !owners.is_alive(&owner);
                self.copy_one(desk, &self.path(&owner), is_taken)?;
            }
        }
        desk.settle()
    }

    fn copy_one(&self, desk: &mut Desk, path: &Path, is_taken: bool) -> Result<(), Fault> {
        // In the same transaction: nothing can have been added since.
        if let Some(held) = desk.held(|held| held.path == path) {
            held.is_taken |= is_taken;
            return Ok(());
        }
        let unreadable =
            |what: String| broken(format!("the slate `{}` cannot be read: {what}", path.display()));
        let mut file = match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => file,
            // Its owner has closed the store meanwhile, and copied everything.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(unreadable(error.to_string())),
        };
        file.lock().map_err(|error| unreadable(error.to_string()))?;
        // One that is thrown away is read from its beginning, whatever was read of it before.
        let read = self.readings().remove(path).filter(|_| !is_taken);
        let mut reading = read.unwrap_or_default();
        for turn in reading.news(&mut file).map_err(unreadable)? {
            turn.copy(desk)?;
        }
        if is_taken && reading.is_cut(&mut file).map_err(unreadable)? {
            let what = "it is damaged in its middle; moved away, it is not looked at";
            return Err(unreadable(what.to_owned()));
        }
        let slates = self.clone();
        desk.hold(Held { file, path: path.to_owned(), slates, reading, is_taken });
        Ok(())
    }
}
