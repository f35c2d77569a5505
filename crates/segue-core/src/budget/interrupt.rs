//! A flag that stops an evaluation from outside.
//!
//! The core has no clock, so it cannot know that a deadline has passed while it evaluates. The driver
//! knows: it raises the flag from another thread, and the evaluation ends with an error at its next
//! look. The error becomes a fact like every other one, so a replay needs no flag.
//!
//! A run that works through many steps at a stretch is asked to pause: it stops between two steps, and
//! no evaluation fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

const LOWERED: u8 = 0;
const PAUSES: u8 = 1;
const STOPS: u8 = 2;

/// A flag that the driver raises and evaluations look at. Clones share the flag.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicU8>);

impl Interrupt {
    /// Stops the evaluation under way and every later one.
    pub fn raise(&self) {
        self.0.store(STOPS, Ordering::Relaxed);
    }

    /// Has the run stop before its next step.
    pub fn pause(&self) {
        self.0.fetch_max(PAUSES, Ordering::Relaxed);
    }

    /// Lets later evaluations go on.
    pub fn clear(&self) {
        self.0.store(LOWERED, Ordering::Relaxed);
    }

    /// Does something whose evaluations stop when this flag is raised.
    pub fn run_interruptible<T>(&self, work: impl FnOnce() -> T) -> T {
        super::interruptible(self, work)
    }

    /// Whether evaluations should stop.
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed) == STOPS
    }

    /// Whether nothing more should start: a pause, or a stop.
    pub fn is_paused(&self) -> bool {
        self.0.load(Ordering::Relaxed) != LOWERED
    }
}
