//! The gate limits how many calls are in flight, across all runs.
//!
//! With a store that processes share, the limit of a source holds for all of them together, unless its
//! calls run on this machine: a call also waits for a slot of the store. Other limits, budgets and breakers
//! are those of this process.
//!
//! A call waits for a slot of its tool, then of its source, then of the process, each first come,
//! first served. The fixed order prevents deadlocks, and no call holds a slot of the process while
//! it waits for a busy tool. A call that is dropped while it waits holds nothing and was not sent.
//! A call whose code calls other tools holds no slot that these may need: they take their own. The
//! gate also refuses calls of an unhealthy tool; see `health`.
//!
//! Not here: the consequence of a refusal (the core's), call timeouts (the driver's).

mod health;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use segue_core::diagnostic::Code;
use segue_core::id::ToolId;
use segue_core::limits::Limits;
use segue_core::tool::{BUILTIN, LOCAL, ToolSpec};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use self::health::{CallOutcome, GateRefusal, Health};
use super::ToolError;
use super::command::COMMAND;
use crate::store::{SharedSlot, Store};

/// How many calls may be in flight, in addition to the total in [`Limits`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Concurrency {
    /// Per tool.
    pub tools: BTreeMap<ToolId, u32>,
    /// Per source, which is the namespace of the tools' ids.
    pub sources: BTreeMap<Arc<str>, u32>,
}

/// Limits the calls in flight.
pub struct Gate {
    all: Arc<CallLimit>,
    sources: BTreeMap<Arc<str>, Arc<CallLimit>>,
    tools: BTreeMap<ToolId, ToolLimits>,
    /// The origin of the gate's clock.
    since: Instant,
    /// For the message about an exhausted retry budget.
    retry_percent_max: u32,
    /// Holds the limits of sources, when processes share it.
    store: Option<Arc<dyn Store>>,
}

/// A limit on calls in flight.
struct CallLimit {
    max: usize,
    slots: Semaphore,
}

impl CallLimit {
    /// A limit of `max` calls. An earlier limit of the same size is reused, so that its calls count
    /// here.
    fn of(max: usize, before: Option<&Arc<CallLimit>>) -> Arc<CallLimit> {
        let max = max.min(Semaphore::MAX_PERMITS);
        let same = before.filter(|before| before.max == max).cloned();
        same.unwrap_or_else(|| Arc::new(CallLimit { max, slots: Semaphore::new(max) }))
    }
}

/// The limits of one tool.
struct ToolLimits {
    tool: Option<Arc<CallLimit>>,
    source: Option<Arc<CallLimit>>,
    /// The source, and its limit across processes.
    shared: Option<(Arc<str>, u32)>,
    /// Whether its calls wait for calls of other tools. They hold no slot that those need.
    waits_for_parts: bool,
    /// `None` for built-in tools: they run in this process, or reach a different host each time.
    health: Option<Mutex<Health>>,
}

impl Gate {
    /// A gate for these tools. Calls in flight at the gate `before` it count here too, where the
    /// limit is the same.
    pub fn new<'a>(
        tools: impl Iterator<Item = &'a ToolSpec>,
        concurrency: &Concurrency,
        limits: &Limits,
        before: Option<&Gate>,
        store: Option<&Arc<dyn Store>>,
    ) -> Gate {
        let store = store.filter(|store| store.is_shared());
        let known = |name: &Arc<str>| before.and_then(|gate| gate.sources.get(name));
        let sources: BTreeMap<Arc<str>, Arc<CallLimit>> = concurrency
            .sources
            .iter()
            .map(|(name, max)| (name.clone(), CallLimit::of(*max as usize, known(name))))
            .collect();
        let tool_limits = |tool: &ToolSpec| {
            let known = before.and_then(|gate| gate.tools.get(&tool.id)?.tool.as_ref());
            let bound = |max: &u32| CallLimit::of(*max as usize, known);
            let source = sources.get(tool.id.namespace());
            let shared = concurrency.sources.get_key_value(tool.id.namespace());
            let is_remote = ![BUILTIN, LOCAL, COMMAND].contains(&tool.id.namespace());
            let is_shared = store.is_some() && is_remote && tool.code_tool.is_none();
            ToolLimits {
                shared: shared.filter(|_| is_shared).map(|(name, max)| (name.clone(), *max)),
                tool: concurrency.tools.get(&tool.id).map(bound),
                source: source.filter(|_| tool.code_tool.is_none()).cloned(),
                waits_for_parts: tool.code_tool.is_some(),
                health: (tool.id.namespace() != BUILTIN).then(|| Mutex::new(Health::new(limits))),
            }
        };
        Gate {
            all: CallLimit::of(limits.calls_max, before.map(|gate| &gate.all)),
            tools: tools.map(|tool| (tool.id.clone(), tool_limits(tool))).collect(),
            sources,
            since: Instant::now(),
            retry_percent_max: limits.retry_percent_max,
            store: store.cloned(),
        }
    }

    /// Waits for a permit. On an error the call was not sent, so it is not in doubt.
    pub async fn enter(&self, tool: &ToolId, is_retry: bool) -> Result<Permit<'_>, ToolError> {
        if let Some(entered) = self.try_enter(tool, is_retry) {
            return entered;
        }
        let limits = self.limits_of(tool)?;
        // Checked before the queue, so that calls of a failing source do not wait for a refusal;
        // and again behind it, because the source may fail meanwhile.
        if let Some(health) = limits.health() {
            let now = self.millis(Instant::now());
            health.check(now).map_err(|refusal| self.refuse(tool, refusal))?;
        }
        let (own, source) =
            (acquire(limits.tool.as_deref()).await, acquire(limits.source.as_deref()).await);
        // After the slots of this process, so that few calls of it ask the store.
        let shared = self.shared_slot(limits).await?;
        let slots =
            Slots { _shared: shared, _local: [own, source, acquire(self.all(limits)).await] };
        self.admit(tool, limits, slots, is_retry)
    }

    /// A permit for a call that need not wait; `None` when it has to.
    pub fn try_enter(
        &self,
        tool: &ToolId,
        is_retry: bool,
    ) -> Option<Result<Permit<'_>, ToolError>> {
        let limits = match self.limits_of(tool) {
            Ok(limits) => limits,
            Err(unknown) => return Some(Err(unknown)),
        };
        let slots = self.free_slots(limits)?;
        Some(self.admit(tool, limits, slots, is_retry))
    }

    /// A slot of the limit that all processes keep together, for a call that counts against one.
    async fn shared_slot(&self, limits: &ToolLimits) -> Result<Option<SharedSlot>, ToolError> {
        let (Some((name, max)), Some(store)) = (&limits.shared, &self.store) else {
            return Ok(None);
        };
        store.shared_slot(name, *max).await.map_err(|error| ToolError::Unreachable {
            message: format!("the limit of `{name}` is in the store: {error}"),
            retry_after: None,
        })
    }

    fn limits_of(&self, tool: &ToolId) -> Result<&ToolLimits, ToolError> {
        self.tools.get(tool).ok_or_else(|| {
            let message = format!("Tool not found in registry: {tool}");
            ToolError::refused(Code::UnknownTool, message)
        })
    }

    /// Permits a call that has its slots, if the health of its tool allows it.
    fn admit<'a>(
        &'a self,
        tool: &ToolId,
        limits: &'a ToolLimits,
        slots: Slots<'a>,
        is_retry: bool,
    ) -> Result<Permit<'a>, ToolError> {
        let entered = Instant::now();
        let is_probe = match limits.health() {
            None => false,
            Some(mut health) => health
                .admit(self.millis(entered), is_retry)
                .map_err(|refusal| self.refuse(tool, refusal))?,
        };
        Ok(Permit { gate: self, limits, entered, is_probe, settled: false, _slots: slots })
    }

    /// All slots that a call needs, if they are free. A slot of the store takes a while.
    fn free_slots<'a>(&'a self, limits: &'a ToolLimits) -> Option<Slots<'a>> {
        if limits.shared.is_some() {
            return None;
        }
        let free = |bound: Option<&'a CallLimit>| match bound {
            None => Some(None),
            Some(bound) => bound.slots.try_acquire().ok().map(Some),
        };
        let local = [
            free(limits.tool.as_deref())?,
            free(limits.source.as_deref())?,
            free(self.all(limits))?,
        ];
        Some(Slots { _shared: None, _local: local })
    }

    /// The limit of the process, for a call that counts against it.
    fn all(&self, limits: &ToolLimits) -> Option<&CallLimit> {
        (!limits.waits_for_parts).then_some(&*self.all)
    }

    fn millis(&self, at: Instant) -> u64 {
        u64::try_from(at.duration_since(self.since).as_millis()).unwrap_or(u64::MAX)
    }

    fn refuse(&self, tool: &ToolId, refusal: GateRefusal) -> ToolError {
        match refusal {
            GateRefusal::NoBudget => {
                let message = format!(
                    "the retry budget of `{tool}` is used up: more than {} % of its calls were \
                     retries",
                    self.retry_percent_max
                );
                ToolError::refused(Code::Limit, message)
            }
            GateRefusal::Open { retry_after_ms } => ToolError::Unreachable {
                message: format!(
                    "`{tool}` did not answer several times in a row; calls to it are paused"
                ),
                retry_after: Some(Duration::from_millis(retry_after_ms)),
            },
        }
    }
}

impl ToolLimits {
    fn health(&self) -> Option<MutexGuard<'_, Health>> {
        Some(self.health.as_ref()?.lock())
    }
}

async fn acquire(bound: Option<&CallLimit>) -> Option<SemaphorePermit<'_>> {
    Some(bound?.slots.acquire().await.expect("the semaphore is never closed"))
}

/// Permits one call, and holds its slots until the call is over.
#[must_use]
pub struct Permit<'a> {
    gate: &'a Gate,
    limits: &'a ToolLimits,
    entered: Instant,
    is_probe: bool,
    settled: bool,
    _slots: Slots<'a>,
}

/// The slots of a call: that of the store is freed first, because the next call of this process asks for it.
struct Slots<'a> {
    _shared: Option<SharedSlot>,
    /// Of the tool, the source and the process.
    _local: [Option<SemaphorePermit<'a>>; 3],
}

impl Permit<'_> {
    /// Reports the outcome of the call, and returns how long it took.
    pub fn finish(mut self, answered: bool) -> Duration {
        let now = Instant::now();
        self.report(if answered { CallOutcome::Answered } else { CallOutcome::Absent }, now);
        now.duration_since(self.entered)
    }

    fn report(&mut self, sign: CallOutcome, now: Instant) {
        self.settled = true;
        if let Some(mut health) = self.limits.health() {
            health.settle(self.gate.millis(now), self.is_probe, sign);
        }
    }
}

impl Drop for Permit<'_> {
    /// A dropped call says nothing about its tool; if it was the probe, the next call is the probe.
    fn drop(&mut self) {
        if !self.settled {
            self.report(CallOutcome::None, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use segue_core::schema::Schema;

    use super::*;

    fn gate(spec: &ToolSpec, [calls, source, tool]: [u32; 3], before: Option<&Gate>) -> Gate {
        let concurrency = Concurrency {
            tools: [(spec.id.clone(), tool)].into(),
            sources: [(spec.id.namespace().into(), source)].into(),
        };
        let limits = Limits { calls_max: calls as usize, ..Limits::default() };
        Gate::new([spec].into_iter(), &concurrency, &limits, before, None)
    }

    /// Calls in flight count against the limits of a new configuration, where these are the same.
    #[tokio::test]
    async fn who_is_behind_the_gate_before_counts() {
        let id = ToolId::new("crm", "find");
        let spec = ToolSpec::new(id.clone(), "", Schema::any_object());
        for bounds in [[1, 9, 9], [9, 1, 9], [9, 9, 1]] {
            let old = gate(&spec, bounds, None);
            let permit = old.enter(&id, false).await.unwrap();
            let new = gate(&spec, bounds, Some(&old));
            assert!(new.try_enter(&id, false).is_none(), "{bounds:?}");
            let wider = gate(&spec, bounds.map(|bound| bound + 1), Some(&new));
            assert!(wider.try_enter(&id, false).is_some(), "{bounds:?}");
            permit.finish(true);
            assert!(new.try_enter(&id, false).is_some(), "{bounds:?}");
        }
    }
}
