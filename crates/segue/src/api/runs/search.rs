//! Search of runs by their names, their tools, and the text of their inputs and outputs.
//!
//! The store has no index of texts: a search reads runs, newest first, until it has found enough or has
//! worked long enough. Then the caller goes on with the next page.

use std::sync::Arc;
use std::time::Duration;

use segue_core::access::{Principal, Right};
use segue_core::limits::Limits;
use segue_core::run::SearchText;
use segue_runtime::store::{RunListing, RunQuery, RunRow, Store, StoreError};
use tokio::time::Instant;

use super::RunService;
use crate::api::error::Error;
use crate::api::responses::RunList;
use crate::api::threads::calculate;

/// How long one page may take.
const TIME_MAX: Duration = Duration::from_secs(1);

/// How many runs one page may read.
const READ_MAX: usize = 1_000;

/// How many runs are read between two looks at the time.
const READ_TOGETHER: usize = 10;

/// What runs are searched for.
#[derive(Clone, Debug, Default)]
pub struct RunSearch {
    /// Text in the name, the id, the tools, or the inputs, outputs and failures.
    pub text: Option<Arc<str>>,
    /// Text in the id of a tool of its plan.
    pub tool: Option<Arc<str>>,
}

impl RunSearch {
    /// Whether every run fits.
    pub fn is_empty(&self) -> bool {
        self.text.is_none() && self.tool.is_none()
    }
}

/// A page of runs that fit.
#[derive(Debug, Default)]
pub struct SearchedRuns {
    /// The runs.
    pub found: RunListing,
    /// How many runs were read.
    pub searched: usize,
}

/// Searches the runs that a query means. Reads a bounded part of them: `next` goes on.
pub async fn search(
    store: &dyn Store,
    limits: &Limits,
    mut query: RunQuery,
    wanted: &RunSearch,
) -> Result<SearchedRuns, StoreError> {
    let (began, limit) = (Instant::now(), query.limit);
    let searcher = Searcher {
        store,
        limits,
        text: wanted.text.as_deref().map(SearchText::new),
        tool: wanted.tool.as_deref().map(SearchText::new),
    };
    let mut result = SearchedRuns::default();
    loop {
        query.limit = READ_TOGETHER.min(limit - result.found.runs.len());
        let page = store.runs(&query).await?;
        result.searched += page.runs.len();
        // Each page names the damaged runs from its place on.
        result.found.damaged.extend(page.damaged);
        for row in page.runs {
            if searcher.fits(&row).await? {
                result.found.runs.push(row);
            }
        }
        (query.after, result.found.next) = (page.next, page.next);
        let is_enough = result.found.runs.len() >= limit
            || result.searched >= READ_MAX
            || began.elapsed() >= TIME_MAX;
        if page.next.is_none() || is_enough {
            result.found.damaged.dedup();
            return Ok(result);
        }
    }
}

struct Searcher<'a> {
    store: &'a dyn Store,
    limits: &'a Limits,
    text: Option<SearchText>,
    tool: Option<SearchText>,
}

impl Searcher<'_> {
    async fn fits(&self, row: &RunRow) -> Result<bool, StoreError> {
        if let Some(tool) = &self.tool
            && !self.calls(row, tool).await?
        {
            return Ok(false);
        }
        let Some(text) = &self.text else { return Ok(true) };
        if text.is_in(&row.name) || text.is_in(&row.run_id) || self.calls(row, text).await? {
            return Ok(true);
        }
        match self.store.load(&row.run_id).await {
            Ok(journal) => Ok(calculate(|| text.is_in_journal(&journal))),
            // A damaged run is named elsewhere.
            Err(StoreError::Damaged { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn calls(&self, row: &RunRow, tool: &SearchText) -> Result<bool, StoreError> {
        match self.store.plan(&row.run_id, self.limits).await {
            Ok(plan) => Ok(plan.tools.keys().any(|id| tool.is_in(id.as_str()))),
            Err(StoreError::Damaged { .. } | StoreError::PlanUnavailable { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl RunService {
    /// A page of the caller's runs that fit; an administrator searches all.
    pub async fn search_runs(
        &self,
        who: &Principal,
        mut query: RunQuery,
        wanted: &RunSearch,
    ) -> Result<RunList, Error> {
        if wanted.is_empty() {
            return self.run_list(who, query).await;
        }
        let is_admin = who.may(Right::Admin);
        if !is_admin {
            query.principal = Some(who.name.clone());
        }
        let SearchedRuns { mut found, searched } =
            search(&*self.store(), &self.limits(), query, wanted).await?;
        if !is_admin {
            found.damaged.clear();
        }
        Ok(RunList { searched: Some(searched), ..self.summaries(found).await })
    }
}
