//! A flag that stops an evaluation from outside.
//!
//! The core has no clock, so an evaluation cannot see that a deadline passed. The driver raises the
//! flag from another thread, and the evaluation ends with an error at its next check. The journal
//! records the error like any other, so a replay needs no flag.
//!
//! The driver can also ask a run that works through many steps to pause: it stops between two
//! steps, and no evaluation fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

const LOWERED: u8 = 0;
const PAUSES: u8 = 1;
const STOPS: u8 = 2;

/// A flag that the driver raises and evaluations check. Clones share the flag.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicU8>);

impl Interrupt {
    /// Stops the current evaluation and every later one.
    pub fn raise(&self) {
        self.0.store(STOPS, Ordering::Relaxed);
    }

    /// Makes the run stop before its next step.
    pub fn pause(&self) {
        self.0.fetch_max(PAUSES, Ordering::Relaxed);
    }

    /// Allows evaluations again.
    pub fn clear(&self) {
        self.0.store(LOWERED, Ordering::Relaxed);
    }

    /// Runs `work`, whose evaluations stop when this flag is raised.
    pub fn run_interruptible<T>(&self, work: impl FnOnce() -> T) -> T {
        super::interruptible(self, work)
    }

    /// Whether evaluations should stop.
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed) == STOPS
    }

    /// Whether nothing more should start: after `pause` or `raise`.
    pub fn is_paused(&self) -> bool {
        self.0.load(Ordering::Relaxed) != LOWERED
    }
}
