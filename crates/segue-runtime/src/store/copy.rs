//! Copies what one store has of the past into another one: ended runs with their plans, templates, plans,
//! requests, answers, and statistics of tools.
//!
//! A run is added whole or not at all, and is read back and compared with the original. What the other store
//! has already stays as it is, so a copy that was interrupted can be repeated. Runs that have not ended
//! belong to the processes that drive them: they are named, and not copied.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Collection, Precondition, RunQuery, Store, StoreError};

/// Runs and items that one reading takes.
const PAGE: usize = 500;

/// How many were copied, and how many were there already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Added by this copy.
    pub added: u64,
    /// Already there.
    pub present: u64,
}

impl Copied {
    fn note(&mut self, is_added: bool) {
        *(if is_added { &mut self.added } else { &mut self.present }) += 1;
    }
}

/// What a copy did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyReport {
    /// Ended runs.
    pub runs: Copied,
    /// Items of each collection.
    pub items: BTreeMap<Collection, Copied>,
    /// Tools with statistics.
    pub tools: Copied,
    /// Runs that have not ended, which were not copied.
    pub unfinished: Vec<Arc<str>>,
    /// Runs and items that are damaged in the first store, or different in the second one: not copied.
    pub refused: Vec<StoreError>,
}

/// Copies everything that has ended; `progress` hears how many runs of how many were looked at. An error says
/// that a store cannot be used: repeat the copy later.
pub async fn copy(
    from: &dyn Store,
    to: &dyn Store,
    mut progress: impl FnMut(usize, usize) + Send,
) -> Result<CopyReport, StoreError> {
    let mut report = CopyReport::default();
    let runs = all_runs(from, &mut report).await?;
    progress(0, runs.len());
    // The oldest first: lists of runs have the same order in both stores.
    for (done, run_id) in runs.iter().rev().enumerate() {
        copy_run(from, to, run_id, &mut report).await?;
        progress(done + 1, runs.len());
    }
    for collection in Collection::ALL {
        copy_items(from, to, collection, &mut report).await?;
    }
    let stats = from.tool_stats().await?;
    report.tools.added = to.import_stats(&stats).await?;
    report.tools.present = (stats.len() as u64).saturating_sub(report.tools.added);
    Ok(report)
}

/// The ids of all ended runs, the newest first.
async fn all_runs(from: &dyn Store, report: &mut CopyReport) -> Result<Vec<Arc<str>>, StoreError> {
    let mut runs = Vec::new();
    let mut query = RunQuery { limit: PAGE, ..RunQuery::default() };
    loop {
        let page = from.runs(&query).await?;
        report.refused.extend(page.damaged);
        for row in page.runs {
            let is_over = row.ended_ms.is_some();
            (if is_over { &mut runs } else { &mut report.unfinished }).push(row.run_id);
        }
        if page.next.is_none() {
            return Ok(runs);
        }
        query.after = page.next;
    }
}

async fn copy_run(
    from: &dyn Store,
    to: &dyn Store,
    run_id: &Arc<str>,
    report: &mut CopyReport,
) -> Result<(), StoreError> {
    let run = match from.export_run(run_id).await {
        Ok(Some(run)) => Arc::new(run),
        Ok(None) => {
            // It was deleted meanwhile, or a process rolls it back.
            if from.run(run_id).await?.is_some() {
                report.unfinished.push(run_id.clone());
            }
            return Ok(());
        }
        Err(damaged @ (StoreError::Damaged { .. } | StoreError::PlanUnavailable { .. })) => {
            report.refused.push(damaged);
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let is_added = to.import_run(&run).await?;
    let missing = || StoreError::Unknown { run_id: run_id.clone() };
    let there = to.export_run(run_id).await.and_then(|there| there.ok_or_else(missing));
    match there.map(|there| run.difference(&there)) {
        Ok(None) => report.runs.note(is_added),
        Ok(Some(refused))
        | Err(refused @ (StoreError::Damaged { .. } | StoreError::Unknown { .. })) => {
            report.refused.push(refused);
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

async fn copy_items(
    from: &dyn Store,
    to: &dyn Store,
    collection: Collection,
    report: &mut CopyReport,
) -> Result<(), StoreError> {
    let mut copied = Copied::default();
    let mut after = None;
    loop {
        let page = from.key_value().list(collection, after, PAGE).await?;
        report.refused.extend(page.damaged);
        for item in &page.items {
            let put = to.key_value().put(collection, item, Precondition::Absent).await;
            match put {
                Ok(_) => copied.note(true),
                Err(StoreError::Changed { .. }) => copied.note(false),
                Err(damaged @ StoreError::DamagedItem { .. }) => report.refused.push(damaged),
                Err(error) => return Err(error),
            }
        }
        if page.next.is_none() {
            break;
        }
        after = page.next;
    }
    report.items.insert(collection, copied);
    Ok(())
}
