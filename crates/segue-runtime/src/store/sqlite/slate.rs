//! A slate: where a run that is alone writes, before it is copied into the file.
//!
//! A transaction of SQLite costs more than the sync at its end: locks, pages, indexes. A run that is
//! alone waits for all of it. So it puts its turn on a slate, which is one page of a file that has
//! its full length already, and one sync. That is as durable as the file. The turn is copied into
//! the file soon after, together with others, by somebody for whom nobody waits.
//!
//! A slate belongs to one owner, who alone writes on it. Anybody may copy what stands on it, as often as
//! they like: what is in the file already is left out. Whoever takes a run from an owner has to, and
//! marks the slate before ([`super::slates`]). The owner looks for the mark after each write: what was
//! written before the mark is read by whoever made it, and what was written after it is not acknowledged.
//! So nobody waits for anybody, also not for an owner that was stopped in the middle of something.
//!
//! The first page says of which generation the slate is. The others are filled one after the other.
//! When all that stands there is in the file and durable, the slate is wiped: the first page is
//! replaced, which no crash can leave half done, and the others are filled again.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use segue_core::access::Caller;
use segue_core::view::RunStatus;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use twox_hash::{XxHash3_64, XxHash3_128};
use uuid::Uuid;

use super::fault::Fault;
use super::json::{self, Known};
use super::mark::{Mark, PAGE_BYTES, pages_in};
use super::pack::{Hash, Packed};
use super::turn::{Begins, Bundle, PackedRecord, Turn};
use crate::store::private::make_folder;
use crate::store::rules::is_over;
use crate::store::{Lease, RunRow};

/// One that is full so soon after it was begun is too small.
const FULL_SOON: Duration = Duration::from_secs(2);

/// Turns that take more together go into the file at once.
const UNIT_PAGES_MAX: usize = 64;

/// Turns that are written together are a unit. It begins with a mark that has the version of this
/// form, generation, index, length of what follows, and a hash over all of it.
const MARK: [u8; 4] = *b"SgS2";

/// The same with another hash, as version 5 of the store wrote it.
const MARK_BEFORE: [u8; 4] = *b"SgS1";

const FIELDS_BYTES: usize = 4 + 8 + 8 + 4;
const HEADER_BYTES: usize = FIELDS_BYTES + 32;

/// Where to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    generation: u64,
    /// How many units were before it in its generation.
    index: u64,
    page: u64,
}

impl Place {
    /// Behind the page that says of which generation the slate is.
    fn beginning(generation: u64) -> Place {
        Place { generation, index: 1, page: 1 }
    }
}

/// What became of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Put {
    /// They are durable.
    Durable,
    /// Somebody has taken the slate: they do not count, unless whoever took it has seen them.
    Taken,
}

/// Where pages go.
pub(super) trait Medium: Send {
    /// Makes pages durable, and says whether the slate was its owner's then.
    fn put(&mut self, page: u64, bytes: &[u8]) -> io::Result<Put>;
}

#[cfg(unix)]
fn write_all_at(file: &mut File, bytes: &[u8], place: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, place)
}

#[cfg(not(unix))]
fn write_all_at(file: &mut File, bytes: &[u8], place: u64) -> io::Result<()> {
    file.seek(SeekFrom::Start(place))?;
    io::Write::write_all(file, bytes)
}

/// A file with pages.
pub(super) struct Pages {
    file: File,
    /// Whether what was written is durable without a word more.
    is_durable: bool,
}

impl Pages {
    /// Bytes that go to the disk past the system's own memory are there sooner, and durable by one
    /// call; a disk that can write through its own memory does that, and spares a second request. Not
    /// every file system can.
    pub(super) fn open(path: &Path) -> io::Result<Pages> {
        #[cfg(target_os = "linux")]
        {
            use std::os::unix::fs::OpenOptionsExt as _;

            // Not `O_SYNC`, which rustix has under this name: that waits for the file's times, too.
            let flags = libc::O_DIRECT | libc::O_DSYNC;
            if let Ok(file) = OpenOptions::new().write(true).custom_flags(flags).open(path) {
                return Ok(Pages { file, is_durable: true });
            }
        }
        let file = OpenOptions::new().write(true).open(path)?;
        Ok(Pages { file, is_durable: false })
    }
}

impl Medium for Pages {
    fn put(&mut self, page: u64, bytes: &[u8]) -> io::Result<Put> {
        let Pages { file, is_durable } = self;
        write_all_at(file, bytes, page * PAGE_BYTES as u64)?;
        if !*is_durable {
            file.sync_data()?;
        }
        // Not by asking for what is known of the file: whose times somebody has asked for gets new
        // ones with the next write, and these are synced too.
        Ok(if Mark::of(file)? == Mark::Owned { Put::Durable } else { Put::Taken })
    }
}

/// Looks at a slate, without waiting for whoever writes on it.
pub(super) struct Probe(File);

impl Probe {
    /// Whether what stands on the slate is to be copied, asked inside a transaction. Whoever has
    /// emptied it has copied everything, which may be gone again by now. One that was only taken is
    /// copied: what is in the file already is left out, and nothing of it is forgotten before it is
    /// emptied.
    pub(super) fn is_to_copy(&mut self) -> Result<bool, Fault> {
        let mark = Mark::of(&mut self.0);
        Ok(mark.map_err(|error| Fault::Unavailable(error.to_string()))? != Mark::Emptied)
    }
}

/// How far a run has come, as whoever writes on the slate knows it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Reached {
    epoch: u64,
    length: u64,
}

/// A slate that one writes on.
pub(super) struct Slate {
    medium: Box<dyn Medium>,
    path: PathBuf,
    /// Knows the runs in the file.
    file: Connection,
    pages: u64,
    place: Place,
    /// When it was begun.
    began: Instant,
    /// Bundles that stand on it already.
    bundles: Vec<Hash>,
    /// Runs that begin on it.
    begun: HashSet<Arc<str>>,
    /// Runs that nobody else can have changed since.
    runs: HashMap<Arc<str>, Reached>,
    /// Pages for the next unit.
    buffer: Vec<u8>,
    /// How much of them the last one has filled.
    used: usize,
    /// Room for the head of a turn.
    line: Vec<u8>,
    /// Whether nothing more may be written on it: it could not be written, or could not be copied.
    is_shut: bool,
}

impl Slate {
    /// A new slate. Made at its full length: a sync of bytes in the middle of a file is several times
    /// faster than one that also makes the file longer.
    pub(super) fn make(
        path: PathBuf,
        file: Connection,
        like: &Path,
        pages: u64,
    ) -> io::Result<(Slate, Probe)> {
        if let Some(folder) = path.parent() {
            make_folder(folder, like)?;
        }
        let permissions = std::fs::metadata(like)?.permissions();
        let mut blank = OpenOptions::new().write(true).create_new(true).open(&path)?;
        // Such that nobody has read another one of this generation.
        let generation = Uuid::new_v4().as_u64_pair().0 >> 1;
        let mut zeros = vec![0; PAGE_BYTES * usize::try_from(pages).unwrap_or_default()];
        zeros[..HEADER_BYTES].copy_from_slice(&header(generation, 0, &[]));
        let made = blank
            .set_permissions(permissions)
            .and_then(|()| blank.set_len(zeros.len() as u64))
            .and_then(|()| blank.write_all(&zeros))
            .and_then(|()| blank.sync_all())
            .map(|()| leave_cache(&blank))
            .and_then(|()| path.ancestors().skip(1).take(2).try_for_each(sync_folder))
            .and_then(|()| Ok((Pages::open(&path)?, Probe(File::open(&path)?))));
        let (medium, probe) = made.inspect_err(|_| drop(std::fs::remove_file(&path)))?;
        let slate = Slate {
            medium: Box::new(medium),
            path,
            file,
            pages,
            place: Place::beginning(generation),
            began: Instant::now(),
            bundles: Vec::new(),
            begun: HashSet::new(),
            runs: HashMap::new(),
            buffer: vec![0; (UNIT_PAGES_MAX + 1) * PAGE_BYTES],
            used: 0,
            line: Vec::new(),
            is_shut: false,
        };
        Ok((slate, probe))
    }

    #[cfg(test)]
    pub(super) fn replace_medium(&mut self, medium: Box<dyn Medium>) {
        self.medium = medium;
    }

    /// Writes turns together, each of another run; the answer is whether they are durable. If not,
    /// they have to go into the file.
    pub(super) fn write(&mut self, turns: &[&Arc<Turn>]) -> bool {
        // Of two of the same run the later one does not follow yet.
        if self.is_shut || !turns.iter().all(|turn| self.follows(turn).unwrap_or(false)) {
            return false;
        }
        let known = self.bundles.len();
        let Some(pages) = self.fill(turns) else {
            self.bundles.truncate(known);
            return false;
        };
        let start = self.buffer.as_ptr().align_offset(PAGE_BYTES);
        let bytes = &self.buffer[start..start + pages * PAGE_BYTES];
        let put = self.medium.put(self.place.page, bytes);
        if !matches!(put, Ok(Put::Durable)) {
            // It is not known whether they stand there. They go into the file, unless somebody has
            // copied them there already.
            turns.iter().for_each(|turn| turn.doubt());
            self.is_shut = true;
            self.bundles.truncate(known);
            return false;
        }
        self.place.index += 1;
        self.place.page += pages as u64;
        for turn in turns {
            if turn.begins.is_some() {
                self.begun.insert(turn.lease.run_id.clone());
            }
            self.know(turn);
        }
        true
    }

    /// Whether a turn goes on where its run is, or begins one. What is not known here the file has
    /// to say.
    fn follows(&self, turn: &Turn) -> Result<bool, Fault> {
        let Turn { lease, begins, record, .. } = turn;
        if record.count == 0 || !record.entries.parts.is_empty() {
            return Ok(false);
        }
        let Some(Begins { is_drawn, .. }) = begins else {
            let reached = Reached { epoch: lease.epoch, length: record.expected };
            return Ok(self.runs.get(&lease.run_id) == Some(&reached));
        };
        if record.expected > 0 || self.begun.contains(&lease.run_id) {
            return Ok(false);
        }
        if *is_drawn {
            return Ok(true);
        }
        let mut select = self.file.prepare_cached("SELECT 1 FROM run WHERE run_id = ?1")?;
        Ok(!select.exists([&lease.run_id])?)
    }

    /// Makes the pages of a unit; the answer is how many, if there is room for them.
    fn fill(&mut self, turns: &[&Arc<Turn>]) -> Option<usize> {
        let start = self.buffer.as_ptr().align_offset(PAGE_BYTES);
        let room = &mut self.buffer[start..start + UNIT_PAGES_MAX * PAGE_BYTES];
        // All of it, if this comes to nothing.
        let before = std::mem::replace(&mut self.used, room.len());
        let (head, content) = room.split_at_mut(HEADER_BYTES);
        let all = content.len();
        let mut rest = &mut *content;
        for turn in turns {
            write_turn(turn, &mut self.bundles, &mut self.line, &mut rest).ok()?;
        }
        let left = rest.len();
        let content = &content[..all - left];
        let Place { generation, index, page } = self.place;
        head.copy_from_slice(&header(generation, index, content));
        let used = HEADER_BYTES + content.len();
        let pages = used.div_ceil(PAGE_BYTES);
        // Behind the last unit everything is zero already.
        room[used..before.max(used)].fill(0);
        self.used = used;
        (page + pages as u64 <= self.pages).then_some(pages)
    }

    /// Remembers how far a run has come with a turn that is durable.
    pub(super) fn know(&mut self, Turn { lease, record, .. }: &Turn) {
        if is_over(record.status) {
            self.runs.remove(&lease.run_id);
        } else {
            let reached = Reached { epoch: lease.epoch, length: record.length() };
            match self.runs.get_mut(&lease.run_id) {
                Some(known) => *known = reached,
                None => drop(self.runs.insert(lease.run_id.clone(), reached)),
            }
        }
    }

    /// Something else than a turn may change any run: the file has to say how far they are.
    pub(super) fn forget(&mut self) {
        self.runs.clear();
    }

    /// Nothing more is written on it.
    pub(super) fn shut(&mut self) {
        self.is_shut = true;
    }

    /// Whether nothing more is written on it.
    pub(super) fn is_shut(&self) -> bool {
        self.is_shut
    }

    /// Whether it is time to wipe it.
    pub(super) fn is_full(&self) -> bool {
        self.place.page > self.pages / 4 * 3
    }

    /// Whether it was full so soon that a larger one would be better.
    pub(super) fn was_full_soon(&self) -> bool {
        self.is_full() && self.began.elapsed() < FULL_SOON
    }

    /// Whether anything stands on it.
    pub(super) fn is_blank(&self) -> bool {
        self.place.index == 1
    }

    /// Begins it anew. Everything that stands on it is in the file, and durable.
    fn wipe(&mut self) {
        let generation = self.place.generation + 1;
        let start = self.buffer.as_ptr().align_offset(PAGE_BYTES);
        let page = &mut self.buffer[start..start + PAGE_BYTES];
        page.fill(0);
        page[..HEADER_BYTES].copy_from_slice(&header(generation, 0, &[]));
        self.is_shut |= !matches!(self.medium.put(0, page), Ok(Put::Durable));
        self.place = Place::beginning(generation);
        self.began = Instant::now();
        self.bundles.clear();
        self.begun.clear();
    }

    /// Begins it anew, or throws it away when nothing more may be written on it. Everything that
    /// stands on it is in the file, and durable.
    pub(super) fn tidied(mut self) -> (Option<Slate>, io::Result<()>) {
        if !self.is_shut {
            self.wipe();
        }
        if !self.is_shut {
            return (Some(self), Ok(()));
        }
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => (Some(self), Err(error)),
            _ => (None, Ok(())),
        }
    }
}

/// What is written past the system's memory need not be thrown out of it before.
fn leave_cache(file: &File) {
    #[cfg(target_os = "linux")]
    let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed);
    #[cfg(not(target_os = "linux"))]
    let _ = file;
}

/// A file is there after a crash when its folder says so, and gone when it does not.
pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// What stands before the content of a unit.
fn header(generation: u64, index: u64, content: &[u8]) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    let length = u32::try_from(content.len()).expect("a unit has few pages");
    header[..4].copy_from_slice(&MARK);
    header[4..12].copy_from_slice(&generation.to_le_bytes());
    header[12..20].copy_from_slice(&index.to_le_bytes());
    header[20..FIELDS_BYTES].copy_from_slice(&length.to_le_bytes());
    let hash = sum(&header[..FIELDS_BYTES], content);
    header[FIELDS_BYTES..].copy_from_slice(&hash);
    header
}

/// The hash of a unit. Nothing but damage is to be found by it: whoever may write here may also write into
/// the file, whose hashes are chained.
fn sum(fields: &[u8], content: &[u8]) -> Hash {
    if fields.starts_with(&MARK_BEFORE) {
        return Sha256::new_with_prefix(fields).chain_update(content).finalize().into();
    }
    let seed = XxHash3_64::oneshot(fields);
    let mut hash = Hash::default();
    let sum = XxHash3_128::oneshot_with_seed(seed, content).to_le_bytes();
    hash[..sum.len()].copy_from_slice(&sum);
    hash
}

/// A turn in short, one line of JSON. Behind it stand its entries and, once, the bundle of a run that
/// begins.
#[derive(Serialize, Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    run: Cow<'a, str>,
    epoch: u64,
    expected: u64,
    count: u64,
    #[serde(borrow)]
    status: Cow<'a, str>,
    at: Option<u64>,
    /// How many bytes of entries follow.
    entries: usize,
    #[serde(borrow)]
    begins: Option<Begun<'a>>,
}

#[derive(Serialize, Deserialize)]
struct Begun<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    plan: Cow<'a, str>,
    started: u64,
    #[serde(borrow)]
    owner: Option<Cow<'a, str>>,
    #[serde(borrow)]
    principal: Option<Cow<'a, str>>,
    #[serde(borrow)]
    toolset: Option<Cow<'a, str>>,
    bundle: Hash,
    /// How many bytes of its text follow, unless it stands there already.
    text: Option<usize>,
}

/// Writes a turn, and remembers the bundle that it brings.
fn write_turn(
    turn: &Turn,
    bundles: &mut Vec<Hash>,
    line: &mut Vec<u8>,
    mut to: impl io::Write,
) -> io::Result<()> {
    let Turn { lease, begins, record, .. } = turn;
    let mut text = None;
    let begun = begins.as_ref().map(|Begins { row, bundle, .. }| {
        if !bundles.contains(&bundle.hash) {
            bundles.push(bundle.hash);
            text = Some(&bundle.text);
        }
        let caller = row.caller.as_ref();
        Begun {
            name: (&*row.name).into(),
            plan: (&*row.plan_hash).into(),
            started: row.started_ms,
            owner: row.owner.as_deref().map(Cow::from),
            principal: caller.map(|caller| (&*caller.principal).into()),
            toolset: caller.and_then(|caller| Some(caller.toolset.as_deref()?.into())),
            bundle: bundle.hash,
            text: text.map(|text| text.len()),
        }
    });
    let head = Head {
        run: (&*lease.run_id).into(),
        epoch: lease.epoch,
        expected: record.expected,
        count: record.count,
        status: record.status.as_str().into(),
        at: record.at_ms,
        entries: record.entries.bytes.len(),
        begins: begun,
    };
    line.clear();
    json::write(&head, line, usize::MAX, &mut Known::default()).map_err(io::Error::other)?;
    line.push(b'\n');
    to.write_all(line)?;
    to.write_all(&record.entries.bytes)?;
    text.map_or(Ok(()), |text| to.write_all(text.as_bytes()))
}

/// A slate that one reads from, and how far one has come.
#[derive(Default)]
pub(super) struct Reading {
    place: Option<Place>,
    bundles: HashMap<Hash, Arc<str>>,
}

impl Reading {
    /// The turns that were not read yet.
    pub(super) fn news(&mut self, file: &mut File) -> Result<Vec<Arc<Turn>>, String> {
        // A page that is being written is none yet: its hash does not fit.
        let Some((generation, 0, _)) = written_at(file, 0)? else { return Ok(Vec::new()) };
        let same = self.place.filter(|place| place.generation == generation);
        let mut place = same.unwrap_or_else(|| {
            self.bundles.clear();
            Place::beginning(generation)
        });
        let mut turns = Vec::new();
        while let Some((generation, index, content)) = written_at(file, place.page)? {
            if (generation, index) != (place.generation, place.index) {
                break;
            }
            let mut rest = &*content;
            while !rest.is_empty() {
                turns.push(Arc::new(self.turn(&mut rest, &|_| None)?));
            }
            place.index += 1;
            place.page += pages_of(&content);
        }
        self.place = Some(place);
        Ok(turns)
    }

    /// Whether something stands behind what was read: then what is between is damaged.
    pub(super) fn is_cut(&self, file: &mut File) -> Result<bool, String> {
        let pages = pages_in(file).map_err(|error| error.to_string())?;
        for page in 1..pages {
            let Some((generation, index, _)) = written_at(file, page)? else { continue };
            let is_behind = |place: Place| generation == place.generation && index > place.index;
            if self.place.is_none_or(is_behind) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The next turn of a unit. A bundle that does not stand on the slate may be `known`.
    pub(super) fn turn(
        &mut self,
        unit: &mut &[u8],
        known: &dyn Fn(&Hash) -> Option<Arc<str>>,
    ) -> Result<Turn, String> {
        let wrong = || "a turn cannot be read".to_owned();
        let end = unit.iter().position(|byte| *byte == b'\n').ok_or_else(wrong)?;
        let head: Head<'_> = serde_json::from_slice(&unit[..end]).map_err(|_| wrong())?;
        let (entries, rest) = unit[end + 1..].split_at_checked(head.entries).ok_or_else(wrong)?;
        if entries.len() < 2 {
            return Err(wrong());
        }
        let text = head.begins.as_ref().and_then(|begun| begun.text);
        let (text, rest) = rest.split_at_checked(text.unwrap_or(0)).ok_or_else(wrong)?;
        *unit = rest;
        let run_id: Arc<str> = head.run.into();
        let begins = head.begins.map(|begun| {
            let hash = begun.bundle;
            if begun.text.is_some() {
                let text = std::str::from_utf8(text).map_err(|_| wrong())?;
                self.bundles.insert(hash, text.into());
            }
            let text =
                self.bundles.get(&hash).cloned().or_else(|| known(&hash)).ok_or_else(wrong)?;
            let toolset = begun.toolset.map(Arc::from);
            let caller = |principal: Cow<'_, str>| Caller { principal: principal.into(), toolset };
            let row = RunRow {
                run_id: run_id.clone(),
                name: begun.name.into(),
                status: RunStatus::Pending,
                plan_hash: begun.plan.into(),
                started_ms: begun.started,
                updated_ms: begun.started,
                ended_ms: None,
                length: 0,
                owner: begun.owner.map(Arc::from),
                epoch: head.epoch,
                caller: begun.principal.map(caller),
            };
            Ok::<_, String>(Begins { row, bundle: Bundle { hash, text }, is_drawn: false })
        });
        let record = PackedRecord {
            expected: head.expected,
            count: head.count,
            entries: Packed { bytes: entries.to_vec(), ..Packed::default() },
            status: RunStatus::parse(&head.status).ok_or_else(wrong)?,
            at_ms: head.at,
            stopped_by: None,
        };
        let lease = Lease { run_id, epoch: head.epoch };
        Ok(Turn::new(lease, begins.transpose()?, record))
    }
}

/// Pages that a unit with this content takes.
pub(super) fn pages_of(content: &[u8]) -> u64 {
    (HEADER_BYTES + content.len()).div_ceil(PAGE_BYTES) as u64
}

/// Generation, index and content of the unit that begins on a page, if one does.
pub(super) fn written_at(
    file: &mut File,
    page: u64,
) -> Result<Option<(u64, u64, Vec<u8>)>, String> {
    let error = |error: io::Error| error.to_string();
    file.seek(SeekFrom::Start(page * PAGE_BYTES as u64)).map_err(error)?;
    let mut header = [0; HEADER_BYTES];
    match file.read_exact(&mut header) {
        Err(short) if short.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other.map_err(error)?,
    }
    let (fields, hash) = header.split_at(FIELDS_BYTES);
    if ![MARK, MARK_BEFORE].iter().any(|mark| fields.starts_with(mark)) {
        if fields[..3] == MARK[..3] && page == 0 {
            return Err("it was written by another version of Segue".to_owned());
        }
        return Ok(None);
    }
    let number = |at: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&fields[at..at + 8]);
        u64::from_le_bytes(bytes)
    };
    let (generation, index) = (number(4), number(12));
    let length = (number(16) >> 32) as usize;
    if length > UNIT_PAGES_MAX * PAGE_BYTES {
        return Ok(None);
    }
    let mut content = vec![0; length];
    match file.read_exact(&mut content) {
        Err(short) if short.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other.map_err(error)?,
    }
    Ok((sum(fields, &content) == *hash).then_some((generation, index, content)))
}
