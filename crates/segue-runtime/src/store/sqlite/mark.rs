//! Whose a slate is. Its length says so, which one can have without changing anything.
//!
//! Whoever takes a slate from its owner makes it a byte longer, and whoever empties it another one. Its
//! owner may be writing on it meanwhile, and nothing that it writes makes it longer than it was.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};

/// What is written is whole pages, so that nothing has to be read before.
pub(super) const PAGE_BYTES: usize = 4_096;

/// Pages of a slate at first, and of one that is often full. All of them are written when it is made, so
/// whoever writes little should not have to wait for many.
pub(super) const PAGES_MIN: u64 = 1_024;
pub(super) const PAGES_MAX: u64 = 4 * PAGES_MIN;

/// What a slate that was taken is longer than whole pages.
const TAKEN_BYTES: u64 = 1;

/// The same for one that was emptied.
const EMPTIED_BYTES: u64 = 2;

/// Whose a slate is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// Its owner's.
    Owned,
    /// Somebody's who has its owner's runs copied. Its owner acknowledges nothing more that it writes there,
    /// also when whoever took it did not come to empty it.
    Taken,
    /// Nobody's: all that stood on it was copied, and may be forgotten since.
    Emptied,
    /// It is being made, and nothing stands on it; or it was cut.
    Partial,
}

impl Mark {
    pub(super) fn of(file: &mut File) -> io::Result<Mark> {
        let length = file.seek(SeekFrom::End(0))?;
        if ![PAGES_MIN, PAGES_MAX].contains(&(length / PAGE_BYTES as u64)) {
            return Ok(Mark::Partial);
        }
        Ok(match length % PAGE_BYTES as u64 {
            0 => Mark::Owned,
            TAKEN_BYTES => Mark::Taken,
            EMPTIED_BYTES => Mark::Emptied,
            _ => Mark::Partial,
        })
    }
}

/// How many pages a slate has.
pub(super) fn pages_in(file: &mut File) -> io::Result<u64> {
    Ok(file.seek(SeekFrom::End(0))? / PAGE_BYTES as u64)
}

/// Takes a slate from its owner. An emptied one was taken before.
pub(super) fn take(file: &mut File) -> io::Result<()> {
    match Mark::of(file)? {
        Mark::Owned => {
            let bytes = pages_in(file)? * PAGE_BYTES as u64;
            file.set_len(bytes + TAKEN_BYTES)
        }
        Mark::Taken | Mark::Emptied | Mark::Partial => Ok(()),
    }
}

/// Empties a slate whose owner is dead, and makes sure that it stays so.
pub(super) fn cut(file: &File) -> io::Result<()> {
    file.set_len(0)?;
    file.sync_all()
}

/// Empties a slate that was taken, and makes sure that it stays so. Its owner may be writing on it, so
/// the length stays; and the mark is durable before anything is gone, else that looks like damage.
pub(super) fn empty(file: &mut File) -> io::Result<()> {
    if !matches!(Mark::of(file)?, Mark::Taken | Mark::Emptied) {
        return Ok(());
    }
    let bytes = pages_in(file)? * PAGE_BYTES as u64;
    file.set_len(bytes + EMPTIED_BYTES)?;
    file.sync_all()?;
    file.seek(SeekFrom::Start(0))?;
    io::copy(&mut io::repeat(0).take(bytes), file)?;
    file.sync_all()
}
