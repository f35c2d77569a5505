//! The row of a run: what is known of it without its journal, and proof that it is what was written.
//!
//! A journal that lost its last entries is still a journal. So the row says how long it is and what
//! its last hash is, and is itself held against a checksum whenever it is read.

use std::sync::Arc;

use rusqlite::types::FromSql;
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use segue_core::view::RunStatus;
use sha2::{Digest as _, Sha256};

use super::fault::Fault;
use super::pack::Hash;
use crate::store::{RunRow, StoreError};

/// A row of the table `run`.
#[derive(Clone, Debug)]
pub(super) struct StoredRun {
    pub(super) number: i64,
    pub(super) row: RunRow,
    /// The bundle that its plan comes from.
    pub(super) bundle: Hash,
    /// The hash of its last entry.
    pub(super) head: Hash,
}

const COLUMNS: &str = "number, run_id, name, status, plan_hash, bundle, started_ms, updated_ms,
    ended_ms, length, head, owner, epoch, checksum";

impl StoredRun {
    fn checksum(&self) -> Hash {
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
        add(&self.head);
        add(row.owner.as_deref().unwrap_or_default().as_bytes());
        add(&row.epoch.to_le_bytes());
        sha.finalize().into()
    }

    /// Reads a row that begins with the columns of `run`.
    pub(super) fn read(from: &Row<'_>) -> Result<StoredRun, StoreError> {
        let run_id: Result<Arc<str>, _> = get(from, 1);
        let damaged = |what: String| StoreError::Damaged {
            run_id: run_id.clone().unwrap_or_else(|_| "?".into()),
            seq: 0,
            what: format!("its row cannot be trusted: {what}"),
        };
        let (stored, checksum) = StoredRun::columns(from).map_err(&damaged)?;
        if stored.checksum() != checksum {
            return Err(damaged("the checksum does not fit".to_owned()));
        }
        Ok(stored)
    }

    fn columns(from: &Row<'_>) -> Result<(StoredRun, Hash), String> {
        let status: String = get(from, 3)?;
        let status = RunStatus::parse(&status).ok_or_else(|| "no such status".to_owned())?;
        let row = RunRow {
            run_id: get(from, 1)?,
            name: get(from, 2)?,
            status,
            plan_hash: get(from, 4)?,
            started_ms: unsigned(get(from, 6)?)?,
            updated_ms: unsigned(get(from, 7)?)?,
            ended_ms: get::<Option<i64>>(from, 8)?.map(unsigned).transpose()?,
            length: unsigned(get(from, 9)?)?,
            owner: get(from, 11)?,
            epoch: unsigned(get(from, 12)?)?,
        };
        let stored =
            StoredRun { number: get(from, 0)?, row, bundle: get(from, 5)?, head: get(from, 10)? };
        Ok((stored, get(from, 13)?))
    }

    /// The run of this name, as the index knows it.
    pub(super) fn indexed(
        connection: &Connection,
        run_id: &str,
    ) -> Result<Option<StoredRun>, Fault> {
        let sql = format!("SELECT {COLUMNS} FROM run WHERE run_id = ?1");
        let mut statement = connection.prepare_cached(&sql)?;
        let found = statement.query_row([run_id], |row| Ok(StoredRun::read(row))).optional()?;
        Ok(found.transpose()?)
    }

    /// The run of this name. That there is none is believed only when the table says so too: an
    /// index that was damaged has forgotten a run, and must not make it disappear.
    pub(super) fn find(
        connection: &Connection,
        run_id: &Arc<str>,
    ) -> Result<Option<StoredRun>, Fault> {
        if let Some(found) = StoredRun::indexed(connection, run_id)? {
            return Ok(Some(found));
        }
        let mut found = None;
        let sql = "NOT INDEXED WHERE run_id = ?1";
        StoredRun::scan(connection, sql, [run_id], |stored| {
            found = Some(stored);
            false
        })?;
        match found {
            None => Ok(None),
            Some(_) => Err(unlisted(run_id.clone()).into()),
        }
    }

    /// The runs from `sql`, which goes on behind `SELECT … FROM run`, as long as `each` wants more.
    pub(super) fn scan(
        connection: &Connection,
        sql: &str,
        parameters: impl rusqlite::Params,
        mut each: impl FnMut(Result<StoredRun, StoreError>) -> bool,
    ) -> Result<(), Fault> {
        let sql = format!("SELECT {COLUMNS} FROM run {sql}");
        let mut statement = connection.prepare_cached(&sql)?;
        let mut rows = statement.query(parameters)?;
        while let Some(row) = rows.next()? {
            if !each(StoredRun::read(row)) {
                break;
            }
        }
        Ok(())
    }

    /// Adds the row, under the next number.
    pub(super) fn insert(&mut self, connection: &Connection) -> Result<(), Fault> {
        let sql = "SELECT coalesce(max(number), 0) + 1 FROM run";
        self.number = connection.prepare_cached(sql)?.query_row([], |row| row.get(0))?;
        let sql = "INSERT INTO run (number, run_id, name, status, plan_hash, bundle, started_ms,
                       updated_ms, ended_ms, length, head, owner, epoch, checksum)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)";
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
            self.head,
            row.owner,
            signed(row.epoch),
            self.checksum(),
        ])?;
        Ok(())
    }

    /// Writes what may change of a row. When it ended stands in two indexes, which are left alone
    /// unless it is another time than `ended_before`.
    pub(super) fn update(
        &self,
        connection: &Connection,
        ended_before: Option<u64>,
    ) -> Result<(), Fault> {
        let sql = "UPDATE run SET status = ?2, updated_ms = ?3, length = ?4, head = ?5, owner = ?6,
                       epoch = ?7, checksum = ?8 WHERE number = ?1";
        let row = &self.row;
        connection.prepare_cached(sql)?.execute(params![
            self.number,
            row.status.as_str(),
            signed(row.updated_ms),
            signed(row.length),
            self.head,
            row.owner,
            signed(row.epoch),
            self.checksum(),
        ])?;
        if row.ended_ms != ended_before {
            let sql = "UPDATE run SET ended_ms = ?2 WHERE number = ?1";
            let ended = row.ended_ms.map(signed);
            connection.prepare_cached(sql)?.execute(params![self.number, ended])?;
        }
        Ok(())
    }
}

/// A run that the table and its indexes do not agree about.
pub(super) fn unlisted(run_id: Arc<str>) -> StoreError {
    let what = "the table of runs and its index do not agree".to_owned();
    StoreError::Damaged { run_id, seq: 0, what }
}

fn get<T: FromSql>(row: &Row<'_>, column: usize) -> Result<T, String> {
    row.get(column).map_err(|error| error.to_string())
}

/// SQLite has no unsigned numbers. Times, lengths and epochs stay far below the half that it has.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> Result<u64, String> {
    u64::try_from(number).map_err(|_| format!("{number} is negative"))
}
