//! A turn of a run and a plan, in the form in which every durable store keeps them.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use segue_core::diagnostic::Code;
use segue_core::limits::Limits;
use segue_core::plan::Plan;
use segue_core::plan::bundle::unbundle;
use segue_core::view::RunStatus;

use super::pack::{Hash, Packed, hash, pack};
use super::rules::stopped_by;
use super::{AppendRecord, RunRow, StoreError};

/// Plans to keep in memory.
const PLANS_MAX: usize = 64;

/// What a turn adds.
#[derive(Debug)]
pub(super) struct PackedRecord {
    pub(super) expected: u64,
    /// How many entries.
    pub(super) count: u64,
    pub(super) entries: Packed,
    pub(super) status: RunStatus,
    pub(super) at_ms: Option<u64>,
    /// What stopped the run, for the statistics; unknown for turns from a legacy log.
    pub(super) stopped_by: Option<Code>,
    /// Whether the end of the run counts as no call of its composition.
    pub(super) is_part: bool,
    /// Whether the run made progress with it.
    pub(super) makes_progress: bool,
}

impl PackedRecord {
    pub(super) fn new(record: AppendRecord<'_>, value_bytes_max: usize) -> PackedRecord {
        PackedRecord {
            expected: record.expected,
            count: record.entries.len() as u64,
            entries: pack(record.entries, value_bytes_max),
            status: record.status,
            at_ms: record.entries.last().map(|entry| entry.at_ms),
            stopped_by: stopped_by(record.entries),
            is_part: record.is_part,
            makes_progress: record.entries.iter().any(|entry| entry.fact.is_progress()),
        }
    }
}

/// What the first turn of a run brings beside its entries.
#[derive(Debug)]
pub(super) struct NewRunRow {
    /// The row of the run before its first entries.
    pub(super) row: RunRow,
    /// Its plan.
    pub(super) bundle: PlanBundle,
}

/// The stored form of a plan, and its hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlanBundle {
    pub(super) hash: Hash,
    pub(super) text: Arc<str>,
}

/// The plans that a store used last, with their stored forms.
#[derive(Default)]
pub(super) struct PlanCache(Mutex<VecDeque<KnownPlan>>);

#[derive(Clone)]
struct KnownPlan {
    plan: Arc<Plan>,
    bundle: PlanBundle,
}

impl PlanCache {
    /// The stored form of a plan.
    pub(super) fn bundle(&self, plan: &Arc<Plan>) -> PlanBundle {
        if let Some(known) = self.find(|known| Arc::ptr_eq(&known.plan, plan)) {
            return known.bundle;
        }
        let text: Arc<str> = plan.bundle().into();
        let bundle = PlanBundle { hash: hash(text.as_bytes()), text };
        self.remember(KnownPlan { plan: plan.clone(), bundle: bundle.clone() });
        bundle
    }

    /// The plan with a stored form of this hash, if it is known.
    pub(super) fn known(&self, bundle: &Hash) -> Option<Arc<Plan>> {
        self.find(|known| known.bundle.hash == *bundle).map(|known| known.plan)
    }

    /// The plan of a run from its stored form; none when the text is missing or changed.
    pub(super) fn read(
        &self,
        run_id: &Arc<str>,
        bundle: Hash,
        text: Option<String>,
        limits: &Limits,
    ) -> Result<Arc<Plan>, StoreError> {
        let text = checked_bundle(run_id, &bundle, text)?;
        let plan = unbundle(&text, limits)
            .map_err(|reason| StoreError::PlanUnavailable { run_id: run_id.clone(), reason })?;
        let bundle = PlanBundle { hash: bundle, text: text.into() };
        self.remember(KnownPlan { plan: plan.clone(), bundle });
        Ok(plan)
    }

    fn find(&self, which: impl FnMut(&&KnownPlan) -> bool) -> Option<KnownPlan> {
        self.0.lock().iter().find(which).cloned()
    }

    fn remember(&self, known: KnownPlan) {
        let mut plans = self.0.lock();
        plans.push_front(known);
        plans.truncate(PLANS_MAX);
    }
}

/// The text of a plan, if it has its hash.
pub(super) fn checked_bundle(
    run_id: &Arc<str>,
    bundle: &Hash,
    text: Option<String>,
) -> Result<String, StoreError> {
    let what = "its plan is missing or changed".to_owned();
    text.filter(|text| hash(text.as_bytes()) == *bundle).ok_or_else(|| StoreError::Damaged {
        run_id: run_id.clone(),
        seq: 0,
        what,
    })
}
