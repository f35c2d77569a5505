//! Requests that one process writes down and another one performs: the beginning of a run, and the rollback
//! of a run that has ended.
//!
//! Such a turn has no effects. The process that drives the run next resumes it: it sets the timers, asks the
//! questions and starts the steps.

use std::sync::Arc;

use super::advance::TurnBuilder;
use super::journal::{Entry, Started};
use super::{Run, StepSelection, Turn};

impl Run {
    /// Begins the run without starting a step: returns the entries to store.
    pub fn begin(&mut self, at_ms: u64, started: Started, selection: StepSelection) -> Vec<Entry> {
        self.without_effects(at_ms, |turn| turn.start_part(Box::new(started), selection))
    }

    /// Requests the rollback of the run without starting it: returns the entries to store.
    pub fn request_rollback(&mut self, at_ms: u64, by: Arc<str>) -> Vec<Entry> {
        self.without_effects(at_ms, |turn| turn.request_rollback(by))
    }

    fn without_effects(
        &mut self,
        at_ms: u64,
        work: impl FnOnce(&mut TurnBuilder<'_>),
    ) -> Vec<Entry> {
        let mut builder = TurnBuilder {
            state: &mut self.state,
            limits: &self.limits,
            at_ms,
            entropy: 0,
            ends_on_resume: false,
            turn: Turn::default(),
        };
        work(&mut builder);
        builder.turn.record
    }
}
