//! Updates that calls in flight send before their answer, queued for the driver.
//!
//! A call is a future and yields one value, at its end. Its earlier updates are queued here. They
//! are pushed while the driver polls the call, so the driver needs no wake-up for them.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use segue_core::run::CallId;
use segue_core::value::Value;
use tokio::sync::Notify;

/// An update of a call in flight.
#[derive(Clone, Debug)]
pub(crate) enum CallUpdate {
    /// The handle by which the call can be found again.
    Handle(Value),
    /// Progress.
    Progress(Progress),
}

/// The progress of a call, as its server reports it. The journal does not hold it.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// Grows with the work, if the server counts it.
    pub progress: Option<f64>,
    /// The final value of `progress`, if known.
    pub total: Option<f64>,
    /// A message for people.
    pub message: Option<Arc<str>>,
}

impl Progress {
    /// How much of the work is done, from 0 to 1, if known.
    pub fn fraction(&self) -> Option<f64> {
        let total = self.total.filter(|total| *total > 0.0)?;
        Some((self.progress? / total).clamp(0.0, 1.0))
    }
}

impl std::fmt::Display for Progress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.progress, self.total) {
            (Some(progress), Some(total)) => write!(f, "{progress} of {total}")?,
            (Some(progress), None) => write!(f, "{progress}")?,
            (None, _) => {}
        }
        match (&self.message, self.progress) {
            (Some(message), Some(_)) => write!(f, ": {message}"),
            (Some(message), None) => f.write_str(message),
            (None, _) => Ok(()),
        }
    }
}

/// The updates of the calls of one run.
#[derive(Debug, Default)]
pub(crate) struct CallUpdates {
    inner: Mutex<Inner>,
    /// Wakes waiters when a call starts to settle.
    settles: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    left: Vec<(CallId, CallUpdate)>,
    /// Calls whose handle is durable, so that a resumed run can find them.
    findable: BTreeSet<CallId>,
    /// Calls whose run has stopped and waits for their answers.
    settling: BTreeSet<CallId>,
}

impl CallUpdates {
    /// Queues an update.
    pub(crate) fn push(&self, call: CallId, update: CallUpdate) {
        self.inner.lock().left.push((call, update));
    }

    /// Takes the queued updates.
    pub(crate) fn take(&self) -> Vec<(CallId, CallUpdate)> {
        std::mem::take(&mut self.inner.lock().left)
    }

    /// The call's handle is durable.
    pub(crate) fn mark_findable(&self, call: CallId) {
        self.inner.lock().findable.insert(call);
    }

    /// The call is not needed any more.
    pub(crate) fn unmark_findable(&self, call: CallId) {
        self.inner.lock().findable.remove(&call);
    }

    /// The call's run has stopped: the call starts nothing more.
    pub(crate) fn mark_settling(&self, call: CallId) {
        self.inner.lock().settling.insert(call);
        self.settles.notify_waiters();
    }

    /// Whether the call's run has stopped.
    pub(crate) fn is_settling(&self, call: CallId) -> bool {
        self.inner.lock().settling.contains(&call)
    }

    /// Resolves when the call's run stops.
    pub(crate) async fn wait_settling(&self, call: CallId) {
        loop {
            let settles = self.settles.notified();
            if self.is_settling(call) {
                return;
            }
            settles.await;
        }
    }

    /// Whether a resumed run would find the call again.
    pub(crate) fn is_findable(&self, call: CallId) -> bool {
        self.inner.lock().findable.contains(&call)
    }
}
