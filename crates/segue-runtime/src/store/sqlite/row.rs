//! The row of a run: its name, owner and status, under a checksum.
//!
//! A journal that lost its last turns is still a chain. So the store also writes its length and last
//! hash, under a checksum that every reader compares. The row of an ended run holds them. Those of an
//! unfinished run are in a small row of the table `standing`, which every transaction with a turn of it
//! replaces; the large row stays as it is meanwhile.

use std::sync::Arc;

use rusqlite::types::FromSql;
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use segue_core::access::Caller;
use segue_core::view::RunStatus;
use sha2::{Digest as _, Sha256};

use super::ack_log;
use super::error::SqliteError;
use crate::store::pack::Hash;
use crate::store::{RunRow, StoreError};

/// A run, from its two rows.
#[derive(Clone, Debug)]
pub(super) struct StoredRun {
    pub(super) number: i64,
    pub(super) row: RunRow,
    /// The bundle that its plan comes from.
    pub(super) bundle: Hash,
    /// The hash of its last turn.
    pub(super) head: Hash,
    /// The number of its last turn. No checksum: a wrong one leads to a turn with a wrong hash.
    pub(super) last: i64,
    /// Whether its status is in the table `standing`.
    pub(super) is_apart: bool,
    /// Its length when a process took it over from a dead one; none as soon as it makes progress.
    pub(super) claim: Option<u64>,
}

/// Instead of the last hash, in the row of a run whose status is in `standing`.
const APART: Hash = [0; 32];

/// Instead of the last hash of a run that lost entries: no turn can follow it.
const LOST: Hash = [0xff; 32];

const COLUMNS: &str = "run.number, run_id, name, run.status, plan_hash, bundle, started_ms,
    run.updated_ms, ended_ms, run.length, run.head, owner, epoch, run.checksum, run.last,
    standing.status, standing.updated_ms, standing.length, standing.hash, standing.last,
    standing.checksum, principal, toolset, claims, claimed_length, set_aside";

const STANDING: &str = "LEFT JOIN standing ON standing.run = run.number";

/// Enough against chance. It does not protect from a person who changes the file on purpose.
type ShortSum = [u8; 8];

impl StoredRun {
    /// The hash that the row holds.
    fn head_in_row(&self) -> &Hash {
        if self.is_apart { &APART } else { &self.head }
    }

    pub(super) fn checksum(&self) -> Hash {
        self.checksum_with(i64::from(self.claim.is_some()))
    }

    /// The checksum with what the column `claims` holds: earlier builds also wrote 2.
    fn checksum_with(&self, claims: i64) -> Hash {
        let row = &self.row;
        let mut sha = Sha256::new_with_prefix(b"segue run 1");
        let mut add = |bytes: &[u8]| {
            sha.update((bytes.len() as u64).to_le_bytes());
            sha.update(bytes);
        };
        add(&self.number.to_le_bytes());
        add(row.run_id.as_bytes());
        add(row.name.as_bytes());
        add(row.status.as_str().as_bytes());
        add(row.plan_hash.as_bytes());
        add(&self.bundle);
        add(&row.started_ms.to_le_bytes());
        add(&row.updated_ms.to_le_bytes());
        add(&row.ended_ms.map_or([0xff; 8], u64::to_le_bytes));
        add(&row.length.to_le_bytes());
        add(self.head_in_row());
        add(row.owner.as_deref().unwrap_or_default().as_bytes());
        add(&row.epoch.to_le_bytes());
        // Rows from before version 5 keep their checksums.
        if let Some(caller) = &row.caller {
            add(caller.principal.as_bytes());
            add(caller.toolset.as_deref().map_or(&[0xff][..], str::as_bytes));
        }
        // So do rows of runs that no process took over from a dead one.
        if self.claim.is_some() || row.set_aside.is_some() {
            add(&claims.to_le_bytes());
            add(&self.claim.unwrap_or(0).to_le_bytes());
            add(row.set_aside.as_deref().unwrap_or_default().as_bytes());
        }
        sha.finalize().into()
    }

    fn status_checksum(&self) -> ShortSum {
        let mut sha = Sha256::new_with_prefix(self.head);
        for number in [self.number, self.last] {
            sha.update(number.to_le_bytes());
        }
        for number in [self.row.updated_ms, self.row.length] {
            sha.update(number.to_le_bytes());
        }
        sha.update(self.row.status.as_str());
        let sum: Hash = sha.finalize().into();
        let mut short = ShortSum::default();
        short.copy_from_slice(&sum[..8]);
        short
    }

    /// Reads a row that begins with the columns of a run.
    fn read(from: &Row<'_>) -> Result<StoredRun, StoreError> {
        let run_id: Result<Arc<str>, _> = get(from, 1);
        let damaged = |seq: u64, what: String| StoreError::Damaged {
            run_id: run_id.clone().unwrap_or_else(|_| "?".into()),
            seq,
            what,
        };
        let read = StoredRun::columns(from).and_then(|stored| stored.read_status(from));
        let stored = read.map_err(|what| damaged(0, format!("its row is damaged: {what}")))?;
        if stored.head == LOST {
            let what =
                "the entries that follow are lost: the log that held them was damaged".to_owned();
            return Err(damaged(stored.row.length, what));
        }
        Ok(stored)
    }

    fn columns(from: &Row<'_>) -> Result<StoredRun, String> {
        let head: Hash = get(from, 10)?;
        let row = RunRow {
            run_id: get(from, 1)?,
            name: get(from, 2)?,
            status: status(&get::<String>(from, 3)?)?,
            plan_hash: get(from, 4)?,
            started_ms: unsigned(get(from, 6)?)?,
            updated_ms: unsigned(get(from, 7)?)?,
            ended_ms: get::<Option<i64>>(from, 8)?.map(unsigned).transpose()?,
            length: unsigned(get(from, 9)?)?,
            owner: get(from, 11)?,
            epoch: unsigned(get(from, 12)?)?,
            caller: caller(get(from, 21)?, get(from, 22)?)?,
            set_aside: get(from, 25)?,
        };
        let (claims, length) = (get::<i64>(from, 23)?, unsigned(get(from, 24)?)?);
        let claim = (claims > 0).then_some(length);
        let (number, bundle, last) = (get(from, 0)?, get(from, 5)?, get(from, 14)?);
        let stored = StoredRun { number, row, bundle, head, last, is_apart: head == APART, claim };
        if stored.checksum_with(claims) != get::<Hash>(from, 13)? {
            return Err("the checksum does not match".to_owned());
        }
        Ok(stored)
    }

    /// The same run with its current status.
    fn read_status(mut self, from: &Row<'_>) -> Result<StoredRun, String> {
        let found: Option<String> = get(from, 15)?;
        if found.is_some() != self.is_apart {
            return Err("its status is missing, or there twice".to_owned());
        }
        let Some(found) = found else { return Ok(self) };
        self.row.status = status(&found)?;
        self.row.updated_ms = unsigned(get(from, 16)?)?;
        self.row.length = unsigned(get(from, 17)?)?;
        self.head = get(from, 18)?;
        self.last = get(from, 19)?;
        if self.status_checksum() != get::<ShortSum>(from, 20)? {
            return Err("the checksum of its status does not match".to_owned());
        }
        Ok(self)
    }

    /// The run of this id, by the index.
    pub(super) fn indexed(
        connection: &Connection,
        run_id: &str,
    ) -> Result<Option<StoredRun>, SqliteError> {
        let sql = format!("SELECT {COLUMNS} FROM run {STANDING} WHERE run_id = ?1");
        let mut statement = connection.prepare_cached(&sql)?;
        let found = statement.query_row([run_id], |row| Ok(StoredRun::read(row))).optional()?;
        Ok(found.transpose()?)
    }

    /// The runs whose id begins with a prefix, by the index of ids.
    pub(super) fn with_prefix(
        connection: &Connection,
        prefix: &str,
        limit: usize,
    ) -> Result<Vec<StoredRun>, SqliteError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM run {STANDING}
             WHERE run_id >= ?1 AND run_id < ?2 ORDER BY run_id LIMIT ?3"
        );
        // SQLite compares bytes: every id with this prefix is before the prefix and the last character.
        let end = format!("{prefix}{}", char::MAX);
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut statement = connection.prepare_cached(&sql)?;
        let mut rows = statement.query(params![prefix, end, limit])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            found.push(StoredRun::read(row)?);
        }
        Ok(found)
    }

    /// The run of this id. When the index has none, the table decides: a damaged index must not make a run
    /// disappear.
    pub(super) fn find(
        connection: &Connection,
        run_id: &Arc<str>,
    ) -> Result<Option<StoredRun>, SqliteError> {
        if let Some(found) = StoredRun::indexed(connection, run_id)? {
            return Ok(Some(found));
        }
        let mut found = None;
        StoredRun::scan(connection, "WHERE run_id = ?1", [run_id], |stored| {
            found = Some(stored);
            false
        })?;
        match found {
            None => ack_log::check_not_lost(connection, run_id).map(|()| None),
            Some(_) => Err(unknown_run(run_id.clone()).into()),
        }
    }

    /// The runs from `sql`, which follows `SELECT … FROM …`, as long as `each` wants more. Reads the
    /// table and no index.
    pub(super) fn scan(
        connection: &Connection,
        sql: &str,
        parameters: impl rusqlite::Params,
        mut each: impl FnMut(Result<StoredRun, StoreError>) -> bool,
    ) -> Result<(), SqliteError> {
        let sql = format!("SELECT {COLUMNS} FROM run NOT INDEXED {STANDING} {sql}");
        let mut statement = connection.prepare_cached(&sql)?;
        let mut rows = statement.query(parameters)?;
        while let Some(row) = rows.next()? {
            if !each(StoredRun::read(row)) {
                break;
            }
        }
        Ok(())
    }

    /// The number of the next run.
    pub(super) fn next_number(connection: &Connection) -> Result<i64, SqliteError> {
        let sql = "SELECT coalesce(max(number), 0) + 1 FROM run";
        Ok(connection.prepare_cached(sql)?.query_row([], |row| row.get(0))?)
    }

    /// Adds the row.
    pub(super) fn insert(&self, connection: &Connection) -> Result<(), SqliteError> {
        let sql = "INSERT INTO run (number, run_id, name, status, plan_hash, bundle, started_ms,
                       updated_ms, ended_ms, length, head, owner, epoch, checksum, last,
                       principal, toolset)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15,
                       ?16, ?17)";
        let row = &self.row;
        connection.prepare_cached(sql)?.execute(params![
            self.number,
            row.run_id,
            row.name,
            row.status.as_str(),
            row.plan_hash,
            self.bundle,
            signed(row.started_ms),
            signed(row.updated_ms),
            row.ended_ms.map(signed),
            signed(row.length),
            self.head_in_row(),
            row.owner,
            signed(row.epoch),
            self.checksum(),
            self.last,
            row.caller.as_ref().map(|caller| &caller.principal),
            row.caller.as_ref().and_then(|caller| caller.toolset.as_ref()),
        ])?;
        Ok(())
    }

    /// Writes what may change of a row. Two indexes hold the time of its end, and are left alone unless it
    /// differs from `ended_before`.
    pub(super) fn update(
        &self,
        connection: &Connection,
        ended_before: Option<u64>,
    ) -> Result<(), SqliteError> {
        let sql = "UPDATE run SET status = ?2, updated_ms = ?3, length = ?4, head = ?5, owner = ?6,
                       epoch = ?7, checksum = ?8, last = ?9, claims = ?10, claimed_length = ?11,
                       set_aside = ?12
                   WHERE number = ?1";
        let row = &self.row;
        connection.prepare_cached(sql)?.execute(params![
            self.number,
            row.status.as_str(),
            signed(row.updated_ms),
            signed(row.length),
            self.head_in_row(),
            row.owner,
            signed(row.epoch),
            self.checksum(),
            self.last,
            i64::from(self.claim.is_some()),
            signed(self.claim.unwrap_or(0)),
            row.set_aside,
        ])?;
        if row.ended_ms != ended_before {
            let sql = "UPDATE run SET ended_ms = ?2 WHERE number = ?1";
            let ended = row.ended_ms.map(signed);
            connection.prepare_cached(sql)?.execute(params![self.number, ended])?;
        }
        Ok(())
    }

    /// Writes the status of an unfinished run.
    pub(super) fn update_status(&self, connection: &Connection) -> Result<(), SqliteError> {
        let sql = "INSERT OR REPLACE INTO standing
                       (run, status, updated_ms, length, hash, last, checksum)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
        let row = &self.row;
        connection.prepare_cached(sql)?.execute(params![
            self.number,
            row.status.as_str(),
            signed(row.updated_ms),
            signed(row.length),
            self.head,
            self.last,
            self.status_checksum(),
        ])?;
        Ok(())
    }

    /// Marks a run whose last entries are lost: every reader gets an error.
    pub(super) fn mark_lost(mut self, connection: &Connection) -> Result<(), SqliteError> {
        self.head = LOST;
        if self.is_apart {
            self.update_status(connection)
        } else {
            self.update(connection, self.row.ended_ms)
        }
    }

    /// Moves its status into its row, which the caller writes next.
    pub(super) fn merge_status(&mut self, connection: &Connection) -> Result<(), SqliteError> {
        let sql = "DELETE FROM standing WHERE run = ?1";
        connection.prepare_cached(sql)?.execute([self.number])?;
        self.is_apart = false;
        Ok(())
    }
}

/// A run on which the table and its indexes disagree.
pub(super) fn unknown_run(run_id: Arc<str>) -> StoreError {
    let what = "the table of runs and its index disagree".to_owned();
    StoreError::Damaged { run_id, seq: 0, what }
}

fn caller(
    principal: Option<Arc<str>>,
    toolset: Option<Arc<str>>,
) -> Result<Option<Caller>, String> {
    match (principal, toolset) {
        // Only the journal says within which toolset it may expand.
        (Some(principal), toolset) => Ok(Some(Caller { principal, toolset, expands_within: None })),
        (None, None) => Ok(None),
        (None, Some(_)) => Err("a toolset without a caller".to_owned()),
    }
}

fn status(text: &str) -> Result<RunStatus, String> {
    RunStatus::parse(text).ok_or_else(|| "no such status".to_owned())
}

fn get<T: FromSql>(row: &Row<'_>, column: usize) -> Result<T, String> {
    row.get(column).map_err(|error| error.to_string())
}

/// SQLite has only signed numbers. Times, lengths and epochs stay far below their maximum.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> Result<u64, String> {
    u64::try_from(number).map_err(|_| format!("{number} is negative"))
}
