//! Legacy logs: versions 5 and 6 of the store wrote turns into files in `FILE-slates` first, and copied
//! them into the store a moment later. This version copies what such a process left there when it
//! opens the store, deletes the files, and never writes one.
//!
//! A legacy log is a file of pages. Turns that were written together are a unit, which begins on a page
//! with a mark, generation, index, length and hash. The first page says which generation is valid; the
//! units of that generation follow one another. A gap before a unit is damage: a run that may have lost
//! a turn there is marked, and does not go on.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;

use segue_core::access::Caller;
use segue_core::view::RunStatus;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use twox_hash::{XxHash3_64, XxHash3_128};

use super::ack_log;
use super::append_batch::AppendBatch;
use super::error::{SqliteError, broken};
use super::owner::Owners;
use super::row::StoredRun;
use super::run_cache::RunCache;
use super::schema::sibling_path;
use crate::store::pack::{Hash, Packed};
use crate::store::packed_record::{NewRunRow, PackedRecord, PlanBundle};
use crate::store::private_files::make_folder;
use crate::store::{Lease, RunRow};

const PAGE_BYTES: usize = 4_096;

/// Pages of a whole log. A file that is longer by [`EMPTIED_BYTES`] was copied before.
const PAGES: [usize; 2] = [1_024, 4_096];
const EMPTIED_BYTES: usize = 2;

const UNIT_BYTES_MAX: usize = 64 * PAGE_BYTES;

/// The first bytes of a unit, in version 6 and in version 5, which had another hash.
const MARK: [u8; 4] = *b"SgS2";
const MARK_BEFORE: [u8; 4] = *b"SgS1";

const FIELDS_BYTES: usize = 4 + 8 + 8 + 4;
const HEADER_BYTES: usize = FIELDS_BYTES + 32;

/// Copies every legacy log into the store, and deletes them. Damaged ones go to `FILE-damaged`, for a
/// person to look at.
pub(super) fn drain(
    cache: &mut RunCache,
    store: &Path,
    owners: &Owners,
) -> Result<(), SqliteError> {
    let folder = sibling_path(store, "-slates");
    let fault =
        |error: io::Error| SqliteError::Unavailable(format!("`{}`: {error}", folder.display()));
    let entries = match std::fs::read_dir(&folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(fault)?,
    };
    for entry in entries {
        let path = entry.map_err(fault)?.path();
        let owner = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if owners.is_alive(owner) {
            let message =
                format!("an older Segue (process {owner}) still uses the store: end it first");
            return Err(SqliteError::Unavailable(message));
        }
        let mut bytes = Vec::new();
        File::open(&path).and_then(|mut file| file.read_to_end(&mut bytes)).map_err(fault)?;
        let unreadable =
            |what: String| broken(format!("the log `{}` cannot be read: {what}", path.display()));
        let log = LegacyLog::read(&bytes).map_err(unreadable)?;
        cache.transaction(|cache| log.copy(cache, owner))?;
        if log.behind.is_empty() {
            std::fs::remove_file(&path).map_err(fault)?;
        } else {
            let damaged = sibling_path(store, "-damaged");
            make_folder(&damaged, store).map_err(fault)?;
            std::fs::rename(&path, damaged.join(owner)).map_err(fault)?;
        }
    }
    std::fs::remove_dir(&folder).map_err(fault)
}

/// The turns of a legacy log.
struct LegacyLog {
    /// Turns without a gap from the beginning.
    turns: Vec<AppendBatch>,
    /// Runs with turns behind a gap, and their lengths with the last one.
    behind: BTreeMap<Arc<str>, u64>,
}

impl LegacyLog {
    fn read(bytes: &[u8]) -> Result<LegacyLog, String> {
        let mut log = LegacyLog { turns: Vec::new(), behind: BTreeMap::new() };
        let was_emptied = PAGES.contains(&(bytes.len() / PAGE_BYTES))
            && bytes.len() % PAGE_BYTES == EMPTIED_BYTES;
        if was_emptied {
            return Ok(log);
        }
        let current = Unit::at(bytes, 0)?.map(|unit| unit.generation);
        let mut bundles = HashMap::new();
        let (mut page, mut next) = (1, 1);
        while page * PAGE_BYTES < bytes.len() {
            let Some(unit) = Unit::at(bytes, page)? else {
                page += 1;
                continue;
            };
            page += (HEADER_BYTES + unit.content.len()).div_ceil(PAGE_BYTES);
            // Units of older generations were copied before this one began.
            if current.is_some_and(|current| current != unit.generation) {
                continue;
            }
            let is_next = current.is_some() && unit.index == next;
            next += u64::from(is_next);
            let mut rest = unit.content;
            while !rest.is_empty() {
                let (head, entries, text) = head(&mut rest)?;
                if is_next {
                    log.turns.push(turn(head, entries, text, &mut bundles)?);
                } else {
                    log.behind.insert((&*head.run).into(), head.expected + head.count);
                }
            }
        }
        Ok(log)
    }

    /// Copies the turns that the file lacks, and marks runs that lost some.
    fn copy(&self, cache: &mut RunCache, owner: &str) -> Result<(), SqliteError> {
        for turn in &self.turns {
            let there = match StoredRun::indexed(&cache.connection, &turn.lease.run_id) {
                // The row of this run is damaged, and named when it is read.
                Err(SqliteError::Refused(_)) => continue,
                there => there?.map(|stored| stored.row.length),
            };
            let is_known = match there {
                Some(length) => turn.record.expected + turn.record.count <= length,
                // Without a beginning: the run ended, and was deleted since.
                None => turn.begins.is_none(),
            };
            if !is_known {
                // A refused turn is of another store.
                match turn.write(cache) {
                    Ok(()) | Err(SqliteError::Refused(_)) => cache.write_statuses()?,
                    Err(fault) => return Err(fault),
                }
            }
        }
        if self.behind.is_empty() {
            return Ok(());
        }
        let mut lost: Vec<StoredRun> = Vec::new();
        StoredRun::scan(&cache.connection, "WHERE ended_ms IS NULL", [], |stored| {
            let may_have_lost = |stored: &StoredRun| {
                let is_short = |length: &u64| stored.row.length < *length;
                let is_theirs = stored.row.owner.as_deref() == Some(owner);
                self.behind.get(&stored.row.run_id).map_or(is_theirs, is_short)
            };
            lost.extend(stored.ok().filter(may_have_lost));
            true
        })?;
        cache.clear();
        lost.into_iter().try_for_each(|stored| stored.mark_lost(&cache.connection))?;
        for (run_id, length) in &self.behind {
            if let Ok(None) = StoredRun::indexed(&cache.connection, run_id) {
                ack_log::note_lost(&cache.connection, run_id, *length)?;
            }
        }
        Ok(())
    }
}

/// Turns that were written together.
struct Unit<'a> {
    generation: u64,
    index: u64,
    content: &'a [u8],
}

impl<'a> Unit<'a> {
    /// The unit that begins on a page, if one does.
    fn at(bytes: &'a [u8], page: usize) -> Result<Option<Unit<'a>>, String> {
        let Some((header, rest)) =
            bytes.get(page * PAGE_BYTES..).and_then(|page| page.split_at_checked(HEADER_BYTES))
        else {
            return Ok(None);
        };
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
        let length = (number(16) >> 32) as usize;
        let content = rest.get(..length).filter(|_| length <= UNIT_BYTES_MAX);
        let whole = content.filter(|content| sum(fields, content) == *hash);
        Ok(whole.map(|content| Unit { generation: number(4), index: number(12), content }))
    }
}

fn sum(fields: &[u8], content: &[u8]) -> Hash {
    if fields.starts_with(&MARK_BEFORE) {
        return Sha256::new_with_prefix(fields).chain_update(content).finalize().into();
    }
    let mut hash = Hash::default();
    let seed = XxHash3_64::oneshot(fields);
    hash[..16].copy_from_slice(&XxHash3_128::oneshot_with_seed(seed, content).to_le_bytes());
    hash
}

/// The header of a turn, one line of JSON. Its entries follow and, once, the bundle of a run that begins.
#[derive(Deserialize)]
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

#[derive(Deserialize)]
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
    /// How many bytes of its text follow, unless they were there before.
    text: Option<usize>,
}

fn wrong() -> String {
    "a turn cannot be read".to_owned()
}

/// The next turn of a unit, its entries, and the text of its bundle.
fn head<'a>(unit: &mut &'a [u8]) -> Result<(Head<'a>, &'a [u8], &'a [u8]), String> {
    let end = unit.iter().position(|byte| *byte == b'\n').ok_or_else(wrong)?;
    let head: Head<'_> = serde_json::from_slice(&unit[..end]).map_err(|_| wrong())?;
    let (entries, rest) = unit[end + 1..].split_at_checked(head.entries).ok_or_else(wrong)?;
    let text = head.begins.as_ref().and_then(|begun| begun.text).unwrap_or(0);
    let (text, rest) = rest.split_at_checked(text).ok_or_else(wrong)?;
    *unit = rest;
    Ok((head, entries, text))
}

fn turn(
    head: Head<'_>,
    entries: &[u8],
    text: &[u8],
    bundles: &mut HashMap<Hash, Arc<str>>,
) -> Result<AppendBatch, String> {
    let run_id: Arc<str> = head.run.into();
    let begins = head.begins.map(|begun| {
        if begun.text.is_some() {
            let text = std::str::from_utf8(text).map_err(|_| wrong())?;
            bundles.insert(begun.bundle, text.into());
        }
        let text = bundles.get(&begun.bundle).cloned().ok_or_else(wrong)?;
        let toolset = begun.toolset.map(Arc::from);
        let caller = |principal: Cow<'_, str>| Caller {
            principal: principal.into(),
            toolset,
            expands_within: None,
        };
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
            set_aside: None,
        };
        Ok::<_, String>(NewRunRow { row, bundle: PlanBundle { hash: begun.bundle, text } })
    });
    let record = PackedRecord {
        expected: head.expected,
        count: head.count,
        entries: Packed { bytes: entries.to_vec(), ..Packed::default() },
        status: RunStatus::parse(&head.status).ok_or_else(wrong)?,
        at_ms: head.at,
        stopped_by: None,
        is_part: false,
        makes_progress: true,
    };
    Ok(AppendBatch {
        lease: Lease { run_id, epoch: head.epoch },
        begins: begins.transpose()?,
        record,
    })
}
