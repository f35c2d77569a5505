//! The slates of everybody who has the store open, or had it.
//!
//! Whoever opens a store copies what stands on them: then it sees all that was acknowledged before.
//! The slate of an owner who is dead is thrown away with that. That of an owner whose run is taken from
//! it is marked before it is read and before anything is committed, and emptied afterwards: the owner
//! notices before it acknowledges anything more.

use std::collections::HashMap;
use std::fs::{DirEntry, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::desk::Desk;
use super::fault::{Fault, broken};
use super::mark::{self, Mark};
use super::owner::Owners;
use super::salvage;
use super::schema::{beside, sync_log};
use super::slate::{Reading, sync_folder};
use super::turn;
use crate::store::StoreError;
use crate::store::private::make_folder;

/// The folder with slates. What is copied is copied inside the writer's transactions.
#[derive(Clone)]
pub(super) struct Slates {
    folder: PathBuf,
    /// Where those go that are damaged.
    damaged: PathBuf,
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

/// A slate that was read, until what stands on it is committed.
pub(super) struct Held {
    file: File,
    path: PathBuf,
    slates: Slates,
    reading: Reading,
    /// Whether it is emptied then.
    is_taken: bool,
    /// Whether it is also thrown away. That of an owner who is alive is its own to throw away.
    is_left: bool,
    /// Whether it is kept for a person to look at instead.
    is_damaged: bool,
}

impl Held {
    /// Takes it from its owner, who acknowledges nothing more that it writes there: before anything is
    /// committed, because nobody may come to do it afterwards.
    fn take(&mut self) -> Result<(), Fault> {
        mark::take(&mut self.file).map_err(|error| unreadable(&self.path, &error.to_string()))?;
        self.is_taken = true;
        Ok(())
    }

    /// Copies what stands on it and was not read yet.
    fn copy(&mut self, desk: &mut Desk) -> Result<(), Fault> {
        let Held { file, path, reading, .. } = self;
        let unreadable = |what: String| unreadable(path, &what);
        let is_empty = |file: &mut File| {
            let mark = Mark::of(file).map_err(|error| unreadable(error.to_string()))?;
            Ok::<_, Fault>(mark == Mark::Emptied)
        };
        if is_empty(file)? {
            return Ok(());
        }
        turn::copy(&reading.news(file).map_err(unreadable)?, desk)?;
        // Somebody may have been about to empty it when its owner died.
        if self.is_left && reading.is_cut(file).map_err(unreadable)? && !is_empty(file)? {
            let owner = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            salvage::copy(file, owner, desk)?;
            self.is_damaged = true;
        }
        Ok(())
    }

    /// What stands on it is committed.
    pub(super) fn copied(self) {
        let Held { mut file, path, slates, reading, is_taken, is_left, is_damaged } = self;
        if is_damaged {
            // Left there, it is copied again by whoever opens the store next, which changes nothing.
            let _ = sync_log(&slates.store).and_then(|()| slates.set_aside(&path));
            return;
        }
        if !is_taken {
            slates.readings().insert(path, reading);
            return;
        }
        // Its owner may have copied some of it without waiting until that is durable.
        let emptied = sync_log(&slates.store)
            .and_then(|()| if is_left { mark::cut(&file) } else { mark::empty(&mut file) });
        if emptied.is_ok() && is_left {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Slates {
    pub(super) fn of(store: &Path) -> Slates {
        Slates {
            folder: beside(store, "-slates"),
            damaged: beside(store, "-damaged"),
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
    fn owners(&self) -> Result<Vec<String>, Fault> {
        let unknown =
            |error: io::Error| Fault::Unavailable(format!("`{}`: {error}", self.folder.display()));
        let entries = match std::fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(unknown)?,
        };
        let names = entries.map(|entry| Ok(entry.map_err(unknown)?.file_name()));
        let names = names.collect::<Result<Vec<_>, Fault>>()?;
        Ok(names.into_iter().filter_map(|name| name.into_string().ok()).collect())
    }

    /// Whether anybody else may have one.
    pub(super) fn has_others(&self, me: Option<&str>) -> bool {
        let owners = self.owners();
        owners.map_or(true, |owners| owners.iter().any(|owner| Some(&**owner) != me))
    }

    /// Makes sure that what was emptied or thrown away stays so, whatever happens.
    pub(super) fn sync(&self) -> Result<(), StoreError> {
        let fault = |what: String| StoreError::Unavailable { message: what };
        for owner in self.owners()? {
            // Whoever threw it away has made sure of that.
            let Ok(mut file) = File::open(self.path(&owner)) else { continue };
            let is_empty = match Mark::of(&mut file) {
                Ok(Mark::Emptied) => file.sync_all().is_ok(),
                mark => !matches!(mark, Ok(Mark::Taken)),
            };
            if !is_empty {
                return Err(fault(format!("the slate of {owner} could not be emptied")));
            }
        }
        let synced = if self.folder.exists() { sync_folder(&self.folder) } else { Ok(()) };
        synced.map_err(|error| fault(error.to_string()))
    }

    /// Moves a damaged slate to where nobody looks for one.
    fn set_aside(&self, path: &Path) -> io::Result<()> {
        make_folder(&self.damaged, &self.store)?;
        std::fs::rename(path, self.damaged.join(path.file_name().unwrap_or_default()))?;
        sync_folder(&self.damaged).and_then(|()| sync_folder(&self.folder))
    }

    /// Slates that were set aside.
    pub(super) fn damaged(&self) -> Vec<StoreError> {
        let entries = std::fs::read_dir(&self.damaged).into_iter().flatten().flatten();
        let path = |entry: DirEntry| entry.path().display().to_string();
        entries.map(|entry| StoreError::Cut { path: path(entry) }).collect()
    }

    /// Throws those away.
    pub(super) fn discard_damaged(&self) -> Result<(), StoreError> {
        match std::fs::remove_dir_all(&self.damaged) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(StoreError::Unavailable { message: error.to_string() })
            }
            _ => Ok(()),
        }
    }

    /// Copies what stands on slates and is not in the file.
    pub(super) fn copy(
        &self,
        desk: &mut Desk,
        owners: &Owners,
        whose: Whose<'_>,
    ) -> Result<(), Fault> {
        for owner in self.owners()? {
            let is_wanted = match whose {
                Whose::Others(me) | Whose::Emptied(me) => Some(&*owner) != me,
                Whose::Taken(taken) => owner == taken,
            };
            if is_wanted {
                let is_left = !owners.is_alive(&owner);
                let is_taken = is_left || !matches!(whose, Whose::Others(_));
                self.copy_one(desk, &self.path(&owner), (is_taken, is_left))?;
            }
        }
        desk.settle()
    }

    fn copy_one(
        &self,
        desk: &mut Desk,
        path: &Path,
        (is_taken, is_left): (bool, bool),
    ) -> Result<(), Fault> {
        // In the same transaction. What stood on it was copied; more may stand there since, and its owner
        // may have died.
        if let Some(mut held) = desk.let_go(|held| held.path == path) {
            held.is_left |= is_left;
            let copied = if is_taken { held.take().and_then(|()| held.copy(desk)) } else { Ok(()) };
            desk.hold(held);
            return copied;
        }
        let mut file = match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => file,
            // Its owner has closed the store meanwhile, and copied everything.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.readings().remove(path);
                return Ok(());
            }
            Err(error) => return Err(unreadable(path, &error.to_string())),
        };
        let mark = Mark::of(&mut file).map_err(|error| unreadable(path, &error.to_string()))?;
        if !is_left && mark == Mark::Partial {
            // Its owner is making it. What it has of runs that are known here comes into the file first.
            return Ok(());
        }
        // One that is left is read from its beginning, whatever was read of it before.
        let read = self.readings().remove(path).filter(|_| !is_left);
        let (slates, path, reading) = (self.clone(), path.to_owned(), read.unwrap_or_default());
        let mut held =
            Held { file, path, slates, reading, is_taken: false, is_left, is_damaged: false };
        // Before it is read: what its owner adds to it after that is not acknowledged. One that nobody
        // adds to is left as it is if it cannot be read.
        if is_taken && !is_left {
            held.take()?;
        }
        held.copy(desk)?;
        if is_taken && is_left {
            held.take()?;
        }
        desk.hold(held);
        Ok(())
    }
}

fn unreadable(path: &Path, what: &str) -> Fault {
    broken(format!("the slate `{}` cannot be read: {what}", path.display()))
}
