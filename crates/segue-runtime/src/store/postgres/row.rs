//! The row of a run.

use std::collections::HashMap;
use std::sync::Arc;

use segue_core::access::Caller;
use segue_core::view::RunStatus;
use tokio_postgres::Row;

use super::owner::HeldRun;
use super::session::{DbSession, SqlParameter};
use crate::store::pack::Hash;
use crate::store::rules::check_fence;
use crate::store::{Lease, RunRow, StoreError};

/// A run, from its row.
#[derive(Clone, Debug)]
pub(super) struct DbRun {
    pub(super) number: i64,
    pub(super) row: RunRow,
    /// The bundle that its plan comes from.
    pub(super) bundle: Hash,
    /// The hash of its last turn.
    pub(super) head: Hash,
    /// The number of its last turn. A wrong one leads to a turn with a wrong hash.
    pub(super) last: i64,
    /// Its length when a process took it over from a dead one; none as soon as it makes progress.
    pub(super) claim: Option<u64>,
}

/// A statement that selects runs: the text follows `FROM run`.
macro_rules! select_runs {
    ($rest:literal) => {
        concat!(
            "SELECT run.number, run.run_id, run.name, run.status, run.plan_hash, run.bundle,
                run.started_ms, run.updated_ms, run.ended_ms, run.length, run.head, run.last,
                run.owner, run.epoch, run.claim, run.set_aside, run.principal, run.toolset
            FROM run ",
            $rest
        )
    };
}
pub(super) use select_runs;

impl DbRun {
    /// Reads the columns of [`select_runs`].
    pub(super) fn read(from: &Row) -> Result<DbRun, StoreError> {
        let run_id: Arc<str> = from.get::<_, &str>(1).into();
        DbRun::columns(from, run_id.clone()).map_err(|what| {
            let what = format!("its row is damaged: {what}");
            StoreError::Damaged { run_id, seq: 0, what }
        })
    }

    fn columns(from: &Row, run_id: Arc<str>) -> Result<DbRun, String> {
        let text =
            |column| -> Option<Arc<str>> { from.get::<_, Option<&str>>(column).map(Into::into) };
        let needed = |column| text(column).unwrap_or_default();
        let status = RunStatus::parse(&needed(3)).ok_or("no such status")?;
        let toolset = text(17);
        let caller = text(16).map(|principal| Caller { principal, toolset, expands_within: None });
        let row = RunRow {
            run_id,
            name: needed(2),
            status,
            plan_hash: needed(4),
            started_ms: unsigned(from.get(6))?,
            updated_ms: unsigned(from.get(7))?,
            ended_ms: from.get::<_, Option<i64>>(8).map(unsigned).transpose()?,
            length: unsigned(from.get(9))?,
            owner: text(12),
            epoch: unsigned(from.get(13))?,
            caller,
            set_aside: text(15),
        };
        Ok(DbRun {
            number: from.get(0),
            row,
            bundle: hash_of(from.get(5))?,
            head: hash_of(from.get(10))?,
            last: from.get(11),
            claim: from.get::<_, Option<i64>>(14).map(unsigned).transpose()?,
        })
    }

    /// The fence of an append.
    pub(super) fn check_fence(&self, lease: &Lease, expected: u64) -> Result<(), StoreError> {
        check_fence(&self.row, lease, expected)
    }

    /// The run as its owner remembers it.
    pub(super) fn held(&self) -> HeldRun {
        HeldRun {
            number: self.number,
            epoch: self.row.epoch,
            length: self.row.length,
            head: self.head,
            last: self.last,
            name: self.row.name.clone(),
            started_ms: self.row.started_ms,
            updated_ms: self.row.updated_ms,
            owner: self.row.owner.clone().unwrap_or_default(),
            is_unsettled: false,
        }
    }
}

/// The run of this id.
pub(super) async fn find(session: &DbSession, run_id: &str) -> Result<Option<DbRun>, StoreError> {
    if run_id.contains('\0') {
        return Ok(None);
    }
    let found = session.query_opt(select_runs!("WHERE run.run_id = $1"), &[&run_id]).await?;
    found.as_ref().map(DbRun::read).transpose()
}

/// The runs of these ids.
pub(super) async fn find_many(
    session: &DbSession,
    ids: impl Iterator<Item = &str>,
) -> Result<HashMap<Arc<str>, Result<DbRun, StoreError>>, StoreError> {
    let ids: Vec<&str> = ids.filter(|id| !id.contains('\0')).collect();
    let rows = session.query(select_runs!("WHERE run.run_id = ANY ($1)"), &[&ids]).await?;
    Ok(rows.iter().map(|row| (row.get::<_, &str>(1).into(), DbRun::read(row))).collect())
}

/// The rows of a statement of [`select_runs`].
pub(super) async fn select(
    session: &DbSession,
    sql: &'static str,
    parameters: &[SqlParameter<'_>],
) -> Result<Vec<Result<DbRun, StoreError>>, StoreError> {
    Ok(session.query(sql, parameters).await?.iter().map(DbRun::read).collect())
}

pub(super) fn hash_of(bytes: &[u8]) -> Result<Hash, String> {
    Hash::try_from(bytes).map_err(|_| "a hash has not its length".to_owned())
}

fn unsigned(number: i64) -> Result<u64, String> {
    u64::try_from(number).map_err(|_| format!("{number} is negative"))
}
