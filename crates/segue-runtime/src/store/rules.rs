//! Rules that all stores share.

use std::sync::Arc;
use std::time::Duration;

use segue_core::diagnostic::Code;
use segue_core::id::ToolId;
use segue_core::run::{Entry, Fact};
use segue_core::tool::COMPOSITION;
use segue_core::value::Value;
use segue_core::view::RunStatus;

use super::{
    AppendRecord, Lease, Measured, NewRun, Precondition, RunQuery, RunRow, StoreError, StoredItem,
    TakeOver,
};

/// Why a run is set aside.
pub(super) const DIED_TWICE: &str =
    "two processes in a row died while they drove it, and it made no progress in between";

/// Whether a run with this status has ended.
pub(super) fn is_final(status: RunStatus) -> bool {
    !matches!(status, RunStatus::Pending | RunStatus::Running | RunStatus::Waiting)
}

/// Whether a run matches a query.
pub(super) fn matches_query(query: &RunQuery, run: &RunRow) -> bool {
    (query.statuses.is_empty() || query.statuses.contains(&run.status))
        && query.name.as_ref().is_none_or(|name| run.name.contains(&**name))
        && query.since_ms.is_none_or(|since| run.started_ms >= since)
        && query.before_ms.is_none_or(|before| run.started_ms < before)
        && query.principal.as_ref().is_none_or(|principal| {
            run.caller.as_ref().is_some_and(|caller| caller.principal == *principal)
        })
}

/// The fence: an append needs the current epoch and the current length.
pub(super) fn check_fence(row: &RunRow, lease: &Lease, expected: u64) -> Result<(), StoreError> {
    let run_id = row.run_id.clone();
    if row.epoch != lease.epoch {
        return Err(StoreError::Lost { run_id, epoch: lease.epoch, actual: row.epoch });
    }
    if row.length != expected {
        return Err(StoreError::Fenced { run_id, expected, actual: row.length });
    }
    Ok(())
}

/// The next version of an item, if the precondition holds.
pub(super) fn next_version(
    item: &StoredItem,
    there: Option<u64>,
    expect: Precondition,
) -> Result<u64, StoreError> {
    let fits = match expect {
        Precondition::Anything => true,
        Precondition::Absent => there.is_none(),
        Precondition::Version(version) => there == Some(version),
    };
    if !fits {
        return Err(StoreError::Changed { key: item.key.clone(), version: there });
    }
    Ok(there.unwrap_or(0).saturating_add(1))
}

/// An ended run as a call of its composition, which is a tool.
pub(super) fn composition_ended(
    composition: &str,
    took_ms: u64,
    status: RunStatus,
    stopped_by: Option<Code>,
) -> Measured {
    run_ended(ToolId::new(COMPOSITION, composition), status, stopped_by, took_ms)
}

/// The failure that stopped a run as a whole, from its last entries.
pub(crate) fn stopped_by(entries: &[Entry]) -> Option<Code> {
    entries.iter().rev().find_map(|entry| match &entry.fact {
        Fact::Finished { failure, .. } => Some(failure.as_ref()?.code),
        _ => None,
    })
}

/// An ended run as a call of `tool`.
pub(crate) fn run_ended(
    tool: ToolId,
    status: RunStatus,
    stopped_by: Option<Code>,
    took_ms: u64,
) -> Measured {
    let result = match status {
        RunStatus::Success => Ok(Value::Null),
        RunStatus::Cancelled => Err(Code::Cancelled),
        RunStatus::Denied => Err(Code::Denied),
        RunStatus::RollbackFailed => Err(Code::RollbackFailed),
        _ => Err(stopped_by.unwrap_or(Code::ToolError)),
    };
    Measured { tool, took: Duration::from_millis(took_ms), result, has_schema: true }
}

/// Takes a run over for `me`, or sets it aside: the row afterwards says which. `claim` is its length when a
/// process took it over from a dead one; none as soon as it makes progress.
pub(super) fn take_over(
    row: &mut RunRow,
    claim: &mut Option<u64>,
    how: TakeOver,
    me: &Arc<str>,
    is_alive: impl FnOnce(&str) -> bool,
) -> Result<(), StoreError> {
    let run_id = row.run_id.clone();
    if row.ended_ms.is_some() && how != TakeOver::Reopen {
        return Err(StoreError::Ended { run_id, status: row.status });
    }
    let died = row.owner.clone();
    if let Some(owner) = &died
        && how != TakeOver::Force
        && is_alive(owner)
    {
        return Err(StoreError::Owned { run_id, owner: owner.clone() });
    }
    if how == TakeOver::Recover {
        if let Some(reason) = row.set_aside.clone() {
            return Err(StoreError::SetAside { run_id, reason });
        }
        // A run that made no progress since the last such note is set aside, also while it waits for a
        // person: the answer to its question may be what kills processes.
        if died.is_some() && claim.is_some() {
            row.set_aside = Some(DIED_TWICE.into());
        }
        *claim = died.is_some().then_some(row.length);
    } else {
        (*claim, row.set_aside) = (None, None);
    }
    row.owner = row.set_aside.is_none().then(|| me.clone());
    row.epoch += 1;
    Ok(())
}

/// The lease of a run that [`take_over`] took, unless it set the run aside.
pub(super) fn taken(row: &RunRow) -> Result<Lease, StoreError> {
    let run_id = row.run_id.clone();
    match row.set_aside.clone() {
        Some(reason) => Err(StoreError::SetAside { run_id, reason }),
        None => Ok(Lease { run_id, epoch: row.epoch }),
    }
}

/// The row of a run before its first entries.
pub(super) fn new_row(run: &NewRun<'_>, record: &AppendRecord<'_>, owner: &Arc<str>) -> RunRow {
    let started_ms = record.entries.first().map_or(0, |entry| entry.at_ms);
    RunRow {
        run_id: run.run_id.clone(),
        name: run.plan.composition.name.clone(),
        status: RunStatus::Pending,
        plan_hash: run.plan.hash().clone(),
        started_ms,
        updated_ms: started_ms,
        ended_ms: None,
        length: 0,
        owner: Some(owner.clone()),
        epoch: 1,
        caller: record.entries.iter().find_map(|entry| match &entry.fact {
            Fact::Started(started) => started.caller.clone(),
            _ => None,
        }),
        set_aside: None,
    }
}
