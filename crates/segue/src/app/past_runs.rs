//! What earlier runs showed, for editors: the last value of each step of a composition, and the times of tools.
//!
//! They come from the store of the configuration, if there is one, as every surface shows them: without
//! sensitive values. Nothing is written, and no store is made.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use segue_core::composition::tool::ObservedStats;
use segue_core::id::ToolId;
use segue_core::language::Observations;
use segue_core::limits::Limits;
use segue_core::run::Run;
use segue_core::value::Value;
use segue_core::view::cut::{CutBudget, VALUE_BYTES_MAX};
use segue_runtime::store::{RunQuery, RunRow, Store, StoreError};

use super::store;
use crate::config::StoreLocation;

/// The time between two looks at a store.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// How many of the newest runs are looked at.
const RUNS_MAX: usize = 200;

/// The entries of the longest run whose values are read.
const ENTRIES_MAX: u64 = 20_000;

/// The last value of each step, by its id.
type StepValues = BTreeMap<Arc<str>, Value>;

/// What earlier runs showed.
#[derive(Default)]
pub(crate) struct PastRuns {
    /// By the name of the composition.
    steps: BTreeMap<Arc<str>, StepValues>,
    tools: BTreeMap<ToolId, ObservedStats>,
}

impl PastRuns {
    /// What the runs of a composition showed.
    pub(crate) fn of(&self, composition: Option<&Arc<str>>) -> Observations {
        let steps = composition.and_then(|name| self.steps.get(name)).cloned();
        Observations { steps: steps.unwrap_or_default(), tools: self.tools.clone() }
    }
}

/// Reads a store again whenever runs have got entries.
pub(super) struct PastRunsReader {
    location: StoreLocation,
    store: Option<Arc<dyn Store>>,
    /// The place among the changes that was read last.
    since: Option<u64>,
    looked_at: Option<Instant>,
    /// By the name of the composition: the run that its values are of.
    known: BTreeMap<Arc<str>, (Arc<str>, StepValues)>,
    /// Runs that show nothing: parts of a composition, and what cannot be read.
    parts: BTreeSet<Arc<str>>,
}

impl PastRunsReader {
    pub(super) fn new(location: StoreLocation) -> PastRunsReader {
        let (store, since, looked_at, known) = (None, None, None, BTreeMap::new());
        PastRunsReader { location, store, since, looked_at, known, parts: BTreeSet::new() }
    }

    /// What earlier runs showed, if it may be something else than before.
    pub(super) async fn look(&mut self, limits: &Arc<Limits>) -> Option<PastRuns> {
        if self.looked_at.is_some_and(|at| at.elapsed() < LOOK_INTERVAL) {
            return None;
        }
        self.looked_at = Some(Instant::now());
        let store = self.opened().await?;
        match self.changed(&*store, limits).await {
            Ok(changed) => changed,
            Err(error) => {
                tracing::debug!("the store cannot be read: {error}");
                // The next look opens it again: the file may have been replaced.
                self.store = None;
                None
            }
        }
    }

    /// The store, once it exists.
    async fn opened(&mut self) -> Option<Arc<dyn Store>> {
        if self.store.is_none() {
            let location = self.location.clone();
            let open = tokio::task::spawn_blocking(move || store::open_existing(&location));
            self.store = open.await.ok().flatten().and_then(Result::ok);
            self.since = None;
        }
        self.store.clone()
    }

    async fn changed(
        &mut self,
        store: &dyn Store,
        limits: &Arc<Limits>,
    ) -> Result<Option<PastRuns>, StoreError> {
        let changes = store.changes(self.since).await?;
        let is_same = self.since.is_some() && changes.runs.is_empty() && !changes.is_gap;
        self.since = Some(changes.next);
        if is_same {
            return Ok(None);
        }
        let query = RunQuery { limit: RUNS_MAX, ..RunQuery::default() };
        let (mut known, mut parts) = (BTreeMap::new(), BTreeSet::new());
        for row in store.runs(&query).await?.runs {
            let is_read = row.ended_ms.is_some() && row.length <= ENTRIES_MAX;
            if !is_read || known.contains_key(&row.name) {
                continue;
            }
            let values = match self.known.get(&row.name) {
                Some((run, values)) if *run == row.run_id => Some(values.clone()),
                _ if self.parts.contains(&row.run_id) => None,
                _ => values_of(store, &row, limits).await,
            };
            // A part of a composition hides no run of the whole one.
            match values {
                Some(values) => _ = known.insert(row.name, (row.run_id, values)),
                None => _ = parts.insert(row.run_id),
            }
        }
        (self.known, self.parts) = (known, parts);
        let steps = self.known.iter().map(|(name, (_, values))| (name.clone(), values.clone()));
        let stats = store.tool_stats().await?;
        let tools = stats.iter().filter_map(|stats| Some((stats.tool.clone(), stats.observed()?)));
        Ok(Some(PastRuns { steps: steps.collect(), tools: tools.collect() }))
    }
}

/// The values of the steps of a run; none if it cannot be read, or is a run of a part: its values may
/// have been given.
async fn values_of(store: &dyn Store, row: &RunRow, limits: &Arc<Limits>) -> Option<StepValues> {
    let plan = store.plan(&row.run_id, limits).await.ok()?;
    let journal = store.load(&row.run_id).await.ok()?;
    let run = Run::replay(plan.clone(), limits.clone(), &journal).ok()?;
    if run.is_part() {
        return None;
    }
    let seen = Observations::of_run(&plan, &run.view());
    let cut = |(id, value)| (id, CutBudget::new(VALUE_BYTES_MAX).cut(&value));
    Some(seen.steps.into_iter().map(cut).collect())
}
