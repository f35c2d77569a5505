//! The gate that every call goes through: how many are under way at once, across all runs.
//!
//! A call waits for a slot of its tool, then of its source, then of the process, each first come,
//! first served. Always in this order, so nobody waits in a circle, and nobody holds a slot of the
//! process while waiting for a busy tool. A call that is dropped while it waits holds nothing and
//! was not sent. A call whose code calls other tools holds no slot that these may need: they have
//! their own. What is known of a tool's health may turn a call away; see `health`.
//!
//! Not here: what a refusal leads to (the core's), how long a call may take (the driver's).

mod health;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use segue_core::diagnostic::Code;
use segue_core::id::ToolId;
use segue_core::limits::Limits;
use segue_core::tool::{BUILTIN, ToolSpec};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use self::health::{CallOutcome, GateRefusal, Health};
use super::ToolError;

/// How many calls may be under way at once, beside the bound of all calls in [`Limits`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Concurrency {
    /// Of one tool.
    pub tools: BTreeMap<ToolId, u32>,
    /// Of all tools of one source: the namespace of their ids.
    pub sources: BTreeMap<Arc<str>, u32>,
}

/// Where calls wait before they leave.
pub struct Gate {
    all: Arc<CallLimit>,
    sources: BTreeMap<Arc<str>, Arc<CallLimit>>,
    tools: BTreeMap<ToolId, ToolLimits>,
    /// What time is counted from.
    since: Instant,
    /// For what is said when there are too many retries.
    retry_percent_max: u32,
}

/// So many at once.
struct CallLimit {
    max: usize,
    slots: Semaphore,
}

impl CallLimit {
    /// A bound of so many: the one before, if it was that, so that those who are behind it count.
    fn of(max: usize, before: Option<&Arc<CallLimit>>) -> Arc<CallLimit> {
        let max = max.min(Semaphore::MAX_PERMITS);
        let same = before.filter(|before| before.max == max).cloned();
        same.unwrap_or_else(|| Arc::new(CallLimit { max, slots: Semaphore::new(max) }))
    }
}

/// What concerns the calls of one tool.
struct ToolLimits {
    tool: Option<Arc<CallLimit>>,
    source: Option<Arc<CallLimit>>,
    /// Whether its calls wait for calls of other tools. They hold no slot that those need.
    waits_for_parts: bool,
    /// Built-in tools have none: they are this process, or reach a different host each time.
    health: Option<Mutex<Health>>,
}

impl Gate {
    /// A gate for these tools. Whoever is behind a gate `before` it counts here, too, where the bound is
    /// the same.
    pub fn new<'a>(
        tools: impl Iterator<Item = &'a ToolSpec>,
        concurrency: &Concurrency,
        limits: &Limits,
        before: Option<&Gate>,
    ) -> Gate {
        let known = |name: &Arc<str>| before.and_then(|gate| gate.sources.get(name));
        let sources: BTreeMap<Arc<str>, Arc<CallLimit>> = concurrency
            .sources
            .iter()
            .map(|(name, max)| (name.clone(), CallLimit::of(*max as usize, known(name))))
            .collect();
        let lane = |tool: &ToolSpec| {
            let known = before.and_then(|gate| gate.tools.get(&tool.id)?.tool.as_ref());
            let bound = |max: &u32| CallLimit::of(*max as usize, known);
            let source = sources.get(tool.id.namespace());
            ToolLimits {
                tool: concurrency.tools.get(&tool.id).map(bound),
                source: source.filter(|_| tool.code_tool.is_none()).cloned(),
                waits_for_parts: tool.code_tool.is_some(),
                health: (tool.id.namespace() != BUILTIN).then(|| Mutex::new(Health::new(limits))),
            }
        };
        Gate {
            all: CallLimit::of(limits.calls_max, before.map(|gate| &gate.all)),
            tools: tools.map(|tool| (tool.id.clone(), lane(tool))).collect(),
            sources,
            since: Instant::now(),
            retry_percent_max: limits.retry_percent_max,
        }
    }

    /// Waits until a call may leave. The error is why it must not, and is surely not in doubt.
    pub async fn enter(&self, tool: &ToolId, is_retry: bool) -> Result<Permit<'_>, ToolError> {
        if let Some(entered) = self.try_enter(tool, is_retry) {
            return entered;
        }
        let lane = self.limits_of(tool)?;
        // Before the queue, so that a source in trouble does not make everybody wait for a no; and
        // behind it again, because it may have got into trouble meanwhile.
        if let Some(health) = lane.health() {
            let now = self.millis(Instant::now());
            health.check(now).map_err(|refusal| self.refuse(tool, refusal))?;
        }
        let slots = [
            acquire(lane.tool.as_deref()).await,
            acquire(lane.source.as_deref()).await,
            acquire(self.all(lane)).await,
        ];
        self.admit(tool, lane, slots, is_retry)
    }

    /// The same for a call that need not wait; nothing when it has to.
    pub fn try_enter(
        &self,
        tool: &ToolId,
        is_retry: bool,
    ) -> Option<Result<Permit<'_>, ToolError>> {
        let lane = match self.limits_of(tool) {
            Ok(lane) => lane,
            Err(unknown) => return Some(Err(unknown)),
        };
        let slots = self.free_slots(lane)?;
        Some(self.admit(tool, lane, slots, is_retry))
    }

    fn limits_of(&self, tool: &ToolId) -> Result<&ToolLimits, ToolError> {
        self.tools.get(tool).ok_or_else(|| {
            let message = format!("Tool not found in registry: {tool}");
            ToolError::refused(Code::UnknownTool, message)
        })
    }

    /// Lets a call that has its slots leave, if the health of its tool allows that.
    fn admit<'a>(
        &'a self,
        tool: &ToolId,
        lane: &'a ToolLimits,
        slots: Slots<'a>,
        is_retry: bool,
    ) -> Result<Permit<'a>, ToolError> {
        let entered = Instant::now();
        let is_probe = match lane.health() {
            None => false,
            Some(mut health) => health
                .admit(self.millis(entered), is_retry)
                .map_err(|refusal| self.refuse(tool, refusal))?,
        };
        Ok(Permit { gate: self, lane, entered, is_probe, settled: false, _slots: slots })
    }

    /// Every slot that a call needs, when nobody waits for any of them.
    fn free_slots<'a>(&'a self, lane: &'a ToolLimits) -> Option<Slots<'a>> {
        let free = |bound: Option<&'a CallLimit>| match bound {
            None => Some(None),
            Some(bound) => bound.slots.try_acquire().ok().map(Some),
        };
        Some([free(lane.tool.as_deref())?, free(lane.source.as_deref())?, free(self.all(lane))?])
    }

    /// The slots of the process, for a call that takes one.
    fn all(&self, lane: &ToolLimits) -> Option<&CallLimit> {
        (!lane.waits_for_parts).then_some(&*self.all)
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
                message: format!("`{tool}` did not answer many times in a row and is left alone"),
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
    Some(bound?.slots.acquire().await.expect("nobody closes a gate"))
}

/// A call that may leave, with the slots that it holds until it is over.
#[must_use]
pub struct Permit<'a> {
    gate: &'a Gate,
    lane: &'a ToolLimits,
    entered: Instant,
    is_probe: bool,
    settled: bool,
    _slots: Slots<'a>,
}

/// Of its tool, of its source, of the process.
type Slots<'a> = [Option<SemaphorePermit<'a>>; 3];

impl Permit<'_> {
    /// Says how the call went, and hears how long it took.
    pub fn finish(mut self, answered: bool) -> Duration {
        let now = Instant::now();
        self.tell(if answered { CallOutcome::Answered } else { CallOutcome::Absent }, now);
        now.duration_since(self.entered)
    }

    fn tell(&mut self, sign: CallOutcome, now: Instant) {
        self.settled = true;
        if let Some(mut health) = self.lane.health() {
            health.settle(self.gate.millis(now), self.is_probe, sign);
        }
    }
}

impl Drop for Permit<'_> {
    /// A call that was given up has shown nothing; only the next one may be a probe again.
    fn drop(&mut self) {
        if !self.settled {
            self.tell(CallOutcome::None, Instant::now());
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
        Gate::new([spec].into_iter(), &concurrency, &limits, before)
    }

    /// Calls that are under way when another configuration comes count against its bounds, unless
    /// these are others.
    #[tokio::test]
    async fn who_is_behind_the_gate_before_counts() {
        let id = ToolId::new("crm", "find");
        let spec = ToolSpec::new(id.clone(), "", Schema::any_object());
        for bounds in [[1, 9, 9], [9, 1, 9], [9, 9, 1]] {
            let old = gate(&spec, bounds, None);
            let pass = old.enter(&id, false).await.unwrap();
            let new = gate(&spec, bounds, Some(&old));
            assert!(new.try_enter(&id, false).is_none(), "{bounds:?}");
            let wider = gate(&spec, bounds.map(|bound| bound + 1), Some(&new));
            assert!(wider.try_enter(&id, false).is_some(), "{bounds:?}");
            pass.finish(true);
            assert!(new.try_enter(&id, false).is_some(), "{bounds:?}");
        }
    }
}
