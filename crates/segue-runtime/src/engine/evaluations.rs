//! Evaluations that are under way, and what stops them from another thread.
//!
//! A run evaluates on the thread that moves it, and hears nothing meanwhile: neither its timer nor a
//! cancel. A thread of its own looks at the runs that should stop, and raises the flag of an evaluation
//! that it has seen under way twice. The flag holds for that evaluation alone: a short one never sees
//! it, and the next one, such as that of an undo, begins with it down.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use segue_core::interrupt::Interrupt;

use crate::driver::now_ms;

/// How long between two looks at the evaluations that are under way.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Looks without anything to look at before the thread ends.
const IDLE_LOOKS_MAX: u32 = 50;

/// The runs of this process that are being moved.
#[derive(Default)]
pub(crate) struct Evaluations {
    runs: Mutex<Runs>,
}

#[derive(Default)]
struct Runs {
    by_id: BTreeMap<Arc<str>, Arc<Evaluation>>,
    /// Whether the thread looks.
    is_watched: bool,
    /// Whether the process ends: no evaluation goes on.
    is_leaving: bool,
}

/// The evaluations of one run, one after another.
struct Evaluation {
    interrupt: Interrupt,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    is_under_way: bool,
    /// Which evaluation is under way, or was last.
    number: u64,
    /// The one that was seen under way at the last look.
    seen: u64,
    /// When the run's time is over, in milliseconds since 1970.
    deadline_ms: Option<u64>,
    /// Whether somebody wants the run to stop, and the run has not heard yet.
    should_stop: bool,
    is_leaving: bool,
}

impl State {
    /// Whether an evaluation of this run would have to be stopped.
    fn is_due(&self, now: u64) -> bool {
        self.should_stop || self.deadline_ms.is_some_and(|deadline| deadline <= now)
    }

    fn is_watched(&self) -> bool {
        self.should_stop || self.deadline_ms.is_some()
    }
}

impl Evaluation {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Raises the flag if an evaluation is under way that was so at the last look and should stop.
    fn look(&self, now: u64) {
        let mut state = self.state();
        if !state.is_under_way || !state.is_due(now) {
            return;
        }
        if state.seen == state.number {
            self.interrupt.raise();
        }
        state.seen = state.number;
    }
}

impl Evaluations {
    fn runs(&self) -> MutexGuard<'_, Runs> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A run is moved from now on, until the answer is dropped.
    pub(crate) fn enter(
        self: &Arc<Evaluations>,
        run_id: &Arc<str>,
        interrupt: Interrupt,
    ) -> Evaluating {
        let mut runs = self.runs();
        let state = State { is_leaving: runs.is_leaving, ..State::default() };
        let evaluation = Arc::new(Evaluation { interrupt, state: Mutex::new(state) });
        runs.by_id.insert(run_id.clone(), evaluation.clone());
        Evaluating { run_id: run_id.clone(), evaluation, all: self.clone() }
    }

    /// Somebody wants a run to stop: what it evaluates meanwhile is not waited for.
    pub(crate) fn stop(self: &Arc<Evaluations>, run_id: &str) {
        let mut runs = self.runs();
        let Some(evaluation) = runs.by_id.get(run_id) else { return };
        evaluation.state().should_stop = true;
        self.watch(&mut runs);
    }

    /// The process ends: every evaluation stops, and nothing that follows from it is written.
    pub(crate) fn leave(&self) {
        let mut runs = self.runs();
        runs.is_leaving = true;
        for evaluation in runs.by_id.values() {
            let mut state = evaluation.state();
            state.is_leaving = true;
            if state.is_under_way {
                evaluation.interrupt.raise();
            }
        }
    }

    /// Has the thread look, if it does not.
    fn watch(self: &Arc<Evaluations>, runs: &mut Runs) {
        if runs.is_watched {
            return;
        }
        let all = Arc::downgrade(self);
        let thread = std::thread::Builder::new().name("deadlines".to_owned());
        // Without a thread evaluations end by their budgets only.
        runs.is_watched = thread.spawn(move || look_out(&all)).is_ok();
    }
}

/// Looks at evaluations as long as there is one that may have to be stopped.
fn look_out(all: &Weak<Evaluations>) {
    let mut idle = 0;
    loop {
        std::thread::sleep(LOOK_EVERY);
        let Some(all) = all.upgrade() else { return };
        let mut runs = all.runs();
        let now = now_ms();
        runs.by_id.values().for_each(|evaluation| evaluation.look(now));
        let is_needed = runs.by_id.values().any(|evaluation| evaluation.state().is_watched());
        idle = if is_needed { 0 } else { idle + 1 };
        if idle > IDLE_LOOKS_MAX {
            runs.is_watched = false;
            return;
        }
    }
}

/// A run that is being moved.
pub(crate) struct Evaluating {
    run_id: Arc<str>,
    evaluation: Arc<Evaluation>,
    all: Arc<Evaluations>,
}

impl Evaluating {
    /// The run begins to evaluate.
    pub(crate) fn begin(&self) {
        let mut state = self.evaluation.state();
        state.is_under_way = true;
        state.number += 1;
        if state.is_leaving {
            self.evaluation.interrupt.raise();
        }
    }

    /// The run has evaluated. Whether what came of it must not be written, because the process ends.
    pub(crate) fn end(&self) -> bool {
        let mut state = self.evaluation.state();
        state.is_under_way = false;
        self.evaluation.interrupt.clear();
        state.is_leaving
    }

    /// Sets when the run's time is over; nothing means that it has heard of that.
    pub(crate) fn set_deadline(&self, deadline_ms: Option<u64>) {
        self.evaluation.state().deadline_ms = deadline_ms;
        if deadline_ms.is_some() {
            self.all.watch(&mut self.all.runs());
        }
    }

    /// The run hears that it shall stop.
    pub(crate) fn hears(&self) {
        self.evaluation.state().should_stop = false;
    }
}

impl Drop for Evaluating {
    // Work in `Drop`, because whoever moves a run may be ended in the middle.
    fn drop(&mut self) {
        let mut runs = self.all.runs();
        let known = runs.by_id.get(&self.run_id);
        if known.is_some_and(|known| Arc::ptr_eq(known, &self.evaluation)) {
            runs.by_id.remove(&self.run_id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Evaluates until somebody raises the flag, which the test would hang without.
    fn evaluate(evaluating: &Evaluating, interrupt: &Interrupt) -> bool {
        evaluating.begin();
        while !interrupt.is_raised() {
            std::thread::yield_now();
        }
        evaluating.end()
    }

    #[test]
    fn a_deadline_a_wish_and_the_end_of_the_process_reach_an_evaluation() {
        let (all, interrupt) = (Arc::new(Evaluations::default()), Interrupt::default());
        let run_id: Arc<str> = "r".into();
        let evaluating = all.enter(&run_id, interrupt.clone());
        evaluating.set_deadline(Some(now_ms()));
        assert!(!evaluate(&evaluating, &interrupt));
        assert!(!interrupt.is_raised(), "the next evaluation begins without it");
        // Once the run has heard, it evaluates undisturbed: nothing is watched any more.
        evaluating.set_deadline(None);
        assert!(!evaluating.evaluation.state().is_watched());
        all.stop(&run_id);
        assert!(!evaluate(&evaluating, &interrupt));
        evaluating.hears();
        assert!(!evaluating.evaluation.state().is_watched());
        std::thread::scope(|scope| {
            let evaluation = scope.spawn(|| evaluate(&evaluating, &interrupt));
            while !evaluating.evaluation.state().is_under_way {
                std::thread::yield_now();
            }
            all.leave();
            assert!(evaluation.join().unwrap(), "what came of it is not written");
        });
        let later = all.enter(&"later".into(), Interrupt::default());
        later.begin();
        assert!(later.end(), "nothing is begun any more");
    }
}
