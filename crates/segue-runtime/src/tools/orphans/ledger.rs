//! A file per Segue process that lists the processes it started, for a later Segue to find.
//!
//! The first line names the owner. Each further line holds a process id and its start time, since a
//! process id may be reused. Nothing is synced: a crash of the machine ends the processes too.
//! Where there can be no such file, nothing is written. A process may be missing if it started at
//! the moment when its owner was killed.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rustix::process::{Pid, geteuid};

use super::system::{began, is_alive, namespace, owner};

/// A fixed path: a later process may have another `TMPDIR`.
const PLACE: &str = "/tmp";

/// After so many lines the file is rewritten without the processes that have ended.
const LINES_MAX: usize = 1_024;

/// A process that was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProcessEntry {
    number: i32,
    began: String,
    /// The key of the call that it serves; a server has none.
    pub(super) key: Option<String>,
    /// The Segue process that started it.
    pub(super) owner: Arc<str>,
}

impl ProcessEntry {
    fn is_alive(&self) -> bool {
        is_alive(self.number, &self.began)
    }

    fn text(&self) -> String {
        format!("{} {} {}\n", self.number, self.began, self.key.as_deref().unwrap_or("-"))
    }
}

/// All ledger files together.
#[derive(Default)]
pub(super) struct ProcessLedger(BTreeMap<i32, ProcessEntry>);

impl ProcessLedger {
    pub(super) fn read() -> ProcessLedger {
        let files = folder().and_then(|folder| std::fs::read_dir(folder).ok());
        let texts = files.into_iter().flatten().flatten();
        let texts = texts.filter_map(|file| std::fs::read_to_string(file.path()).ok());
        let texts = texts.filter(|text| is_of_here(text));
        let lines = texts.flat_map(|text| lines(&text)).filter(ProcessEntry::is_alive);
        ProcessLedger(lines.map(|line| (line.number, line)).collect())
    }

    /// The entry of a process, if its id was not reused.
    pub(super) fn line_of(&self, pid: Pid) -> Option<&ProcessEntry> {
        self.0.get(&pid.as_raw_nonzero().get()).filter(|line| line.is_alive())
    }
}

/// Whether a file's process ids belong to this PID namespace; another container has its own.
fn is_of_here(text: &str) -> bool {
    namespace().is_some_and(|here| text.split(' ').next() == Some(&*here))
}

/// The entries of a file. An incomplete line is left out.
fn lines(text: &str) -> Vec<ProcessEntry> {
    let Some((owner, rest)) = text.split_once('\n') else { return Vec::new() };
    let owner: Arc<str> = owner.into();
    let line = |text: &str| {
        let mut parts = text.strip_suffix('\n')?.splitn(3, ' ');
        let (number, began) = (parts.next()?.parse().ok()?, parts.next()?.to_owned());
        let key = Some(parts.next()?).filter(|key| *key != "-").map(str::to_owned);
        Some(ProcessEntry { number, began, key, owner: owner.clone() })
    };
    rest.split_inclusive('\n').filter_map(line).collect()
}

/// The ledger of this process.
struct OwnLedger {
    owner: Arc<str>,
    path: PathBuf,
    file: File,
    lines: Vec<ProcessEntry>,
    /// How many lines are written before the file is rewritten.
    lines_max: usize,
}

impl OwnLedger {
    fn begin() -> Option<OwnLedger> {
        let (folder, owner) = (folder()?, owner()?);
        tidy(&folder);
        let path = folder.join(owner.replace(['/', ' '], "-"));
        let file = written(&path, &format!("{owner}\n"))?;
        Some(OwnLedger { owner: owner.into(), path, file, lines: Vec::new(), lines_max: LINES_MAX })
    }

    fn add(&mut self, number: i32, began: String, key: Option<&str>) -> Option<()> {
        if self.lines.len() >= self.lines_max {
            self.lines.retain(ProcessEntry::is_alive);
            self.lines_max = LINES_MAX.max(self.lines.len() * 2);
            // Written beside it and renamed: another process may read it at any time.
            let other = self.path.with_extension("new");
            let lines: String = self.lines.iter().map(ProcessEntry::text).collect();
            self.file = written(&other, &format!("{}\n{lines}", self.owner))?;
            std::fs::rename(other, &self.path).ok()?;
        }
        let (key, owner) = (key.map(str::to_owned), self.owner.clone());
        let line = ProcessEntry { number, began, key, owner };
        self.file.write_all(line.text().as_bytes()).ok()?;
        self.lines.push(line);
        Some(())
    }
}

/// Records a process that this one started. When that fails, the process can be found only by its
/// environment.
pub(super) fn note(number: i32, key: Option<&str>) {
    static OWN: OnceLock<Option<Mutex<OwnLedger>>> = OnceLock::new();
    let Some(own) = OWN.get_or_init(|| OwnLedger::begin().map(Mutex::new)) else { return };
    if let Some(began) = began(number) {
        own.lock().add(number, began, key);
    }
}

/// Creates a file with this text, open for appending.
fn written(path: &Path, text: &str) -> Option<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(path).ok()?;
    file.write_all(text.as_bytes()).ok()?;
    Some(file)
}

/// The path of the ledger folder.
pub(super) fn place() -> PathBuf {
    Path::new(PLACE).join(format!("segue-{}", geteuid().as_raw()))
}

/// The ledger folder, if it belongs to this user alone.
fn folder() -> Option<PathBuf> {
    let (user, folder) = (geteuid().as_raw(), place());
    // The folder may exist already.
    let _ = DirBuilder::new().mode(0o700).create(&folder);
    let found = std::fs::symlink_metadata(&folder).ok()?;
    let is_ours = found.is_dir() && found.uid() == user && found.mode() & 0o777 == 0o700;
    is_ours.then_some(folder)
}

/// The ledger files whose owner has ended.
fn of_ended(folder: &Path) -> impl Iterator<Item = (PathBuf, String)> {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    // An empty file was only just created.
    let texts = files.map(|file| {
        let text = std::fs::read_to_string(file.path()).unwrap_or_default();
        (file.path(), text)
    });
    texts.filter(|(_, text)| is_of_here(text)).filter(|(_, text)| {
        let who: Vec<&str> = text.lines().next().unwrap_or("").split(' ').collect();
        match who[..] {
            [_, number, began, _] => !number.parse().is_ok_and(|number| is_alive(number, began)),
            _ => true,
        }
    })
}

/// Whether an owner that started processes has ended.
pub(super) fn has_ended_owner() -> bool {
    // Read only: the folder is not created for this.
    of_ended(&place()).next().is_some()
}

/// Removes the ledgers of owners that have ended, if none of their processes is alive.
pub(super) fn forget_ended() {
    tidy(&place());
}

/// Removes ledgers whose owner and processes have all ended.
fn tidy(folder: &Path) {
    for (file, text) in of_ended(folder) {
        if !lines(&text).iter().any(ProcessEntry::is_alive) {
            let _ = std::fs::remove_file(file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_not_whole_is_left_out() {
        let text = "pid:[1] 7 99 0\n8 100 key of a call\n9 101 -\nnonsense\n10 102 ke";
        let owner: Arc<str> = "pid:[1] 7 99 0".into();
        let line = |number, began: &str, key: Option<&str>| {
            let (began, key) = (began.to_owned(), key.map(str::to_owned));
            ProcessEntry { number, began, key, owner: owner.clone() }
        };
        let expected = [line(8, "100", Some("key of a call")), line(9, "101", None)];
        assert_eq!(lines(text), expected);
        let written: String = expected.iter().map(ProcessEntry::text).collect();
        assert_eq!(lines(&format!("{owner}\n{written}")), expected);
    }

    #[test]
    fn what_has_ended_is_left_out_when_there_is_much() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("own");
        let file = written(&path, "me\n").unwrap();
        let owner = "me".into();
        let mut own =
            OwnLedger { owner, path: path.clone(), file, lines: Vec::new(), lines_max: 4 };
        let me = std::process::id().cast_signed();
        own.add(me, began(me).unwrap(), None).unwrap();
        for number in 0..4 {
            own.add(me, format!("another time {number}"), None).unwrap();
        }
        let left = std::fs::read_to_string(path).unwrap();
        assert_eq!(left.lines().count(), 3, "the owner, the live process, the last one: {left}");
    }
}
