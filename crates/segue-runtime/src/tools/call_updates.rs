//! What calls that are under way tell of themselves, until whoever drives the run takes it.
//!
//! A call is a future, and a future says one thing, at its end. What it says before is left here. It
//! is left while the call is polled, by whoever polls it, so nobody has to be woken for it.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use segue_core::run::CallId;
use segue_core::value::Value;
use tokio::sync::Notify;

/// What a call tells of itself.
#[derive(Clone, Debug)]
pub(crate) enum CallUpdate {
    /// It can be found again by this.
    Handle(Value),
    /// It goes on.
    Progress(Progress),
}

/// How far a call has got, as whoever was called says. Nothing of it is in the journal.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// Grows as the work goes on, where it is counted.
    pub progress: Option<f64>,
    /// What it grows up to, where that is known.
    pub total: Option<f64>,
    /// In words.
    pub message: Option<Arc<str>>,
}

impl Progress {
    /// How much of the work is done, from 0 to 1, where that is known.
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

/// The notes of the calls of one run.
#[derive(Debug, Default)]
pub(crate) struct CallUpdates {
    inner: Mutex<Inner>,
    /// Told when another call settles.
    settles: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    left: Vec<(CallId, CallUpdate)>,
    /// Calls that are wanted, and that whoever goes on with the run can find.
    findable: BTreeSet<CallId>,
    /// Calls whose run has stopped, and whose answers are awaited.
    settling: BTreeSet<CallId>,
}

impl CallUpdates {
    /// Leaves a note.
    pub(crate) fn push(&self, call: CallId, note: CallUpdate) {
        self.inner.lock().left.push((call, note));
    }

    /// What was left since this was last asked.
    pub(crate) fn take(&self) -> Vec<(CallId, CallUpdate)> {
        std::mem::take(&mut self.inner.lock().left)
    }

    /// How to find a call is written down.
    pub(crate) fn mark_findable(&self, call: CallId) {
        self.inner.lock().findable.insert(call);
    }

    /// Nobody wants to find it any more.
    pub(crate) fn unmark_findable(&self, call: CallId) {
        self.inner.lock().findable.remove(&call);
    }

    /// The run of a call has stopped: the call starts nothing more.
    pub(crate) fn mark_settling(&self, call: CallId) {
        self.inner.lock().settling.insert(call);
        self.settles.notify_waiters();
    }

    /// Whether the run of a call has stopped.
    pub(crate) fn is_settling(&self, call: CallId) -> bool {
        self.inner.lock().settling.contains(&call)
    }

    /// Comes when the run of a call stops.
    pub(crate) async fn wait_settling(&self, call: CallId) {
        loop {
            let settles = self.settles.notified();
            if self.is_settling(call) {
                return;
            }
            settles.await;
        }
    }

    /// Whether whoever goes on with the run will look for a call.
    pub(crate) fn is_findable(&self, call: CallId) -> bool {
        self.inner.lock().findable.contains(&call)
    }
}
