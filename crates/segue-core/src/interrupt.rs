//! A flag that stops an evaluation from outside.
//!
//! The core has no clock, so it cannot know that a deadline has passed while it evaluates. The driver
//! knows: it raises the flag from another thread, and the evaluation ends with an error at its next
//! look. The error becomes a fact like every other one, so a replay needs no flag.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A flag that the driver raises and evaluations look at. Clones share the flag.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Stops the evaluation under way and every later one.
    pub fn raise(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Lets later evaluations go on.
    pub fn clear(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// Does something whose evaluations stop when this flag is raised.
    pub fn stops<T>(&self, work: impl FnOnce() -> T) -> T {
        crate::budget::interruptible(self, work)
    }

    /// Whether evaluations should stop.
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
