//! The gate that every call goes through: how many are under way at once, across all runs.
//!
//! A call waits for a slot of its tool, then of its source, then of the process, each first come,
//! first served. Always in this order, so nobody waits in a circle, and nobody holds a slot of the
//! process while waiting for a busy tool. A call that is dropped while it waits holds nothing and
//! was not sent. What is known of a tool's health may turn a call away; see `health`.
//!
//! Not here: what a refusal leads to (the core's), how long a call may take (the driver's).

mod health;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use segue_core::diagnostic::Code;
use segue_core::id::ToolId;
use segue_core::limits::Limits;
use segue_core::tool::BUILTIN;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use self::health::{Health, Refusal, Sign};
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
    all: Semaphore,
    lanes: BTreeMap<ToolId, Lane>,
    /// What time is counted from.
    since: Instant,
    /// For what is said when there are too many retries.
    retry_percent_max: u32,
}

/// What concerns the calls of one tool.
struct Lane {
    tool: Option<Semaphore>,
    source: Option<Arc<Semaphore>>,
    /// Built-in tools have none: they are this process, or reach a different host each time.
    health: Option<Mutex<Health>>,
}

impl Gate {
    /// A gate for these tools.
    pub fn new<'a>(
        tools: impl Iterator<Item = &'a ToolId>,
        concurrency: &Concurrency,
        limits: &Limits,
    ) -> Gate {
        let semaphore = |max: &u32| Semaphore::new(*max as usize);
        let sources: BTreeMap<&str, Arc<Semaphore>> = concurrency
            .sources
            .iter()
            .map(|(name, max)| (&**name, Arc::new(semaphore(max))))
            .collect();
        let lane = |id: &ToolId| Lane {
            tool: concurrency.tools.get(id).map(semaphore),
            source: sources.get(id.namespace()).cloned(),
            health: (id.namespace() != BUILTIN).then(|| Mutex::new(Health::new(limits))),
        };
        Gate {
            all: Semaphore::new(limits.calls_max.min(Semaphore::MAX_PERMITS)),
            lanes: tools.map(|id| (id.clone(), lane(id))).collect(),
            since: Instant::now(),
            retry_percent_max: limits.retry_percent_max,
        }
    }

    /// Waits until a call may leave. The error is why it must not, and is surely not in doubt.
    pub async fn enter(&self, tool: &ToolId, is_retry: bool) -> Result<Pass<'_>, ToolError> {
        let Some(lane) = self.lanes.get(tool) else {
            let message = format!("Tool not found in registry: {tool}");
            return Err(ToolError::refused(Code::UnknownTool, message));
        };
        let slots = match self.free_slots(lane) {
            Some(slots) => slots,
            None => {
                // Before the queue, so that a source in trouble does not make everybody wait for
                // a no; and behind it again, because it may have got into trouble meanwhile.
                if let Some(health) = lane.health() {
                    health.check(self.now_ms()).map_err(|refusal| self.refuse(tool, refusal))?;
                }
                [
                    acquire(lane.tool.as_ref()).await,
                    acquire(lane.source.as_deref()).await,
                    acquire(Some(&self.all)).await,
                ]
            }
        };
        let is_probe = match lane.health() {
            None => false,
            Some(mut health) => health
                .admit(self.now_ms(), is_retry)
                .map_err(|refusal| self.refuse(tool, refusal))?,
        };
        Ok(Pass { gate: self, lane, is_probe, settled: false, _slots: slots })
    }

    /// Every slot that a call needs, when nobody waits for any of them.
    fn free_slots<'a>(&'a self, lane: &'a Lane) -> Option<Slots<'a>> {
        let free = |slots: Option<&'a Semaphore>| match slots {
            None => Some(None),
            Some(slots) => slots.try_acquire().ok().map(Some),
        };
        Some([free(lane.tool.as_ref())?, free(lane.source.as_deref())?, free(Some(&self.all))?])
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn refuse(&self, tool: &ToolId, refusal: Refusal) -> ToolError {
        match refusal {
            Refusal::NoBudget => {
                let message = format!(
                    "the retry budget of `{tool}` is used up: more than {} % of its calls were \
                     retries",
                    self.retry_percent_max
                );
                ToolError::refused(Code::Limit, message)
            }
            Refusal::Open { retry_after_ms } => ToolError::Unreachable {
                message: format!("`{tool}` did not answer many times in a row and is left alone"),
                retry_after: Some(Duration::from_millis(retry_after_ms)),
            },
        }
    }
}

impl Lane {
    fn health(&self) -> Option<MutexGuard<'_, Health>> {
        // Numbers that are changed one at a time: a panic leaves nothing half done.
        Some(self.health.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

async fn acquire(slots: Option<&Semaphore>) -> Option<SemaphorePermit<'_>> {
    Some(slots?.acquire().await.expect("nobody closes a gate"))
}

/// A call that may leave, with the slots that it holds until it is over.
#[must_use]
pub struct Pass<'a> {
    gate: &'a Gate,
    lane: &'a Lane,
    is_probe: bool,
    settled: bool,
    _slots: Slots<'a>,
}

/// Of its tool, of its source, of the process.
type Slots<'a> = [Option<SemaphorePermit<'a>>; 3];

impl Pass<'_> {
    /// Says how the call went.
    pub fn settle(mut self, answered: bool) {
        self.tell(if answered { Sign::Answered } else { Sign::Absent });
    }

    fn tell(&mut self, sign: Sign) {
        self.settled = true;
        if let Some(mut health) = self.lane.health() {
            health.settle(self.gate.now_ms(), self.is_probe, sign);
        }
    }
}

impl Drop for Pass<'_> {
    /// A call that was given up has shown nothing; only the next one may be a probe again.
    fn drop(&mut self) {
        if !self.settled {
            self.tell(Sign::None);
        }
    }
}
