//! Evaluations in progress, and how another thread stops them.
//!
//! A run evaluates expressions on the thread that drives it. Meanwhile it receives nothing: neither
//! its timer nor a cancel. A watcher thread checks the runs that should stop, and raises the flag
//! of an evaluation that it has seen at two checks in a row. The flag holds for that evaluation
//! alone: a short one never sees it, and the next one, such as an evaluation for a rollback, begins
//! with it down.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use segue_core::interrupt::Interrupt;

use super::now_ms;

/// The pause between two checks of the evaluations in progress.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// How long a run works through steps before it pauses, so that other runs have their turn and
/// commands arrive. The time that one evaluation may take counts from the last pause.
const PAUSE_AFTER: Duration = Duration::from_millis(500);

/// The watcher thread ends after so many checks that found nothing.
const IDLE_CHECKS_MAX: u32 = 50;

/// The runs that this process drives.
#[derive(Default)]
pub(crate) struct Evaluations {
    runs: Mutex<TrackedRuns>,
}

#[derive(Default)]
struct TrackedRuns {
    by_id: BTreeMap<Arc<str>, Arc<Evaluation>>,
    /// Whether the watcher thread runs.
    is_watched: bool,
    /// Whether the process is shutting down: every evaluation stops.
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
    /// The number of the evaluation in progress, or of the last one.
    number: u64,
    /// The evaluation seen at the last check, and at how many checks before.
    seen: u64,
    looks: u32,
    /// How long one evaluation may take.
    timeout_ms: u64,
    /// Whether the current evaluation was stopped only because it took too long: its run continues.
    was_too_long: bool,
    /// The run's deadline, in milliseconds since 1970.
    deadline_ms: Option<u64>,
    /// Whether a command stops the run, and the run has not received it yet.
    should_stop: bool,
    is_leaving: bool,
}

impl State {
    /// Whether an evaluation of this run should be stopped.
    fn is_due(&self, now: u64) -> bool {
        self.should_stop || self.deadline_ms.is_some_and(|deadline| deadline <= now)
    }

    /// How long the evaluation seen last has taken, at least. Counted in checks: a changed clock or
    /// a suspended process must not count against it.
    fn taken(&self) -> Duration {
        CHECK_INTERVAL * self.looks
    }
}

impl Evaluation {
    /// Raises the flag of an evaluation that was seen at the last check, too, and should stop.
    fn interrupt_if_due(&self, now: u64) {
        let mut state = self.state.lock();
        if !state.is_under_way {
            return;
        }
        if state.seen != state.number {
            (state.seen, state.looks) = (state.number, 0);
            return;
        }
        state.looks += 1;
        let is_due = state.is_due(now);
        if is_due || state.taken() >= Duration::from_millis(state.timeout_ms) {
            state.was_too_long = !is_due;
            self.interrupt.raise();
        } else if state.taken() >= PAUSE_AFTER {
            self.interrupt.pause();
        }
    }
}

impl Evaluations {
    /// Registers a run that is driven from now on, until the returned value is dropped.
    pub(crate) fn enter(
        self: &Arc<Evaluations>,
        run_id: &Arc<str>,
        interrupt: Interrupt,
        timeout_ms: u64,
    ) -> Evaluating {
        let mut runs = self.runs.lock();
        let state = State { is_leaving: runs.is_leaving, timeout_ms, ..State::default() };
        let evaluation = Arc::new(Evaluation { interrupt, state: Mutex::new(state) });
        runs.by_id.insert(run_id.clone(), evaluation.clone());
        self.watch(&mut runs);
        Evaluating { run_id: run_id.clone(), evaluation, all: self.clone() }
    }

    /// Stops a run's evaluation, because a command ends the run.
    pub(crate) fn stop(&self, run_id: &str) {
        let runs = self.runs.lock();
        let Some(evaluation) = runs.by_id.get(run_id) else { return };
        evaluation.state.lock().should_stop = true;
    }

    /// Runs a function that evaluates outside a run, and stops it when it takes too long.
    pub(crate) fn bounded<T>(
        self: &Arc<Evaluations>,
        timeout_ms: u64,
        work: impl FnOnce() -> T,
    ) -> T {
        let interrupt = Interrupt::default();
        // Run ids never look like this, and each address is unique while it is in use.
        let id: Arc<str> = format!("bounded {:p}", &raw const interrupt).into();
        let evaluating = self.enter(&id, interrupt.clone(), timeout_ms);
        evaluating.begin();
        let done = interrupt.run_interruptible(work);
        evaluating.end();
        done
    }

    /// Stops every evaluation because the process shuts down; their results are not written.
    pub(crate) fn stop_all(&self) {
        let mut runs = self.runs.lock();
        runs.is_leaving = true;
        for evaluation in runs.by_id.values() {
            let mut state = evaluation.state.lock();
            state.is_leaving = true;
            if state.is_under_way {
                evaluation.interrupt.raise();
            }
        }
    }

    /// Starts the watcher thread, if it does not run.
    fn watch(self: &Arc<Evaluations>, runs: &mut TrackedRuns) {
        if runs.is_watched {
            return;
        }
        let all = Arc::downgrade(self);
        let thread = std::thread::Builder::new().name("deadlines".to_owned());
        // Without the thread only budgets end an evaluation.
        runs.is_watched = thread.spawn(move || watch_deadlines(&all)).is_ok();
    }
}

/// Checks evaluations while there is one that may have to be stopped.
fn watch_deadlines(all: &Weak<Evaluations>) {
    let mut idle = 0;
    loop {
        std::thread::sleep(CHECK_INTERVAL);
        let Some(all) = all.upgrade() else { return };
        let mut runs = all.runs.lock();
        let now = now_ms();
        runs.by_id.values().for_each(|evaluation| evaluation.interrupt_if_due(now));
        idle = if runs.by_id.is_empty() { idle + 1 } else { 0 };
        if idle > IDLE_CHECKS_MAX {
            runs.is_watched = false;
            return;
        }
    }
}

/// How an evaluation of a run ended.
pub(crate) struct Ended {
    /// The watcher stopped it.
    pub(crate) is_interrupted: bool,
    /// It paused, or was stopped only because it took too long.
    pub(crate) goes_on: bool,
    /// Its result must not be written, because the process shuts down.
    pub(crate) is_leaving: bool,
}

/// A run that is being driven.
pub(crate) struct Evaluating {
    run_id: Arc<str>,
    evaluation: Arc<Evaluation>,
    all: Arc<Evaluations>,
}

impl Evaluating {
    /// Marks the start of an evaluation.
    pub(crate) fn begin(&self) {
        let mut state = self.evaluation.state.lock();
        state.is_under_way = true;
        state.number += 1;
        if state.is_leaving {
            self.evaluation.interrupt.raise();
        }
    }

    /// Marks the end of an evaluation.
    pub(crate) fn end(&self) -> Ended {
        let mut state = self.evaluation.state.lock();
        state.is_under_way = false;
        let is_interrupted = self.evaluation.interrupt.is_raised();
        let is_paused = self.evaluation.interrupt.is_paused() && !is_interrupted;
        self.evaluation.interrupt.clear();
        let goes_on = is_paused || (std::mem::take(&mut state.was_too_long) && is_interrupted);
        Ended { is_interrupted, goes_on, is_leaving: state.is_leaving }
    }

    /// Sets the run's deadline; `None` once the run has handled its timeout.
    pub(crate) fn set_deadline(&self, deadline_ms: Option<u64>) {
        self.evaluation.state.lock().deadline_ms = deadline_ms;
    }

    /// Clears the stop: the run has received the command.
    pub(crate) fn clear_stop(&self) {
        self.evaluation.state.lock().should_stop = false;
    }
}

impl Drop for Evaluating {
    // In `Drop`, because the driver's future may be dropped at any await.
    fn drop(&mut self) {
        let mut runs = self.all.runs.lock();
        let known = runs.by_id.get(&self.run_id);
        if known.is_some_and(|known| Arc::ptr_eq(known, &self.evaluation)) {
            runs.by_id.remove(&self.run_id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Evaluates until the flag is raised; without it the test would hang.
    fn evaluate(evaluating: &Evaluating, interrupt: &Interrupt) -> bool {
        evaluating.begin();
        while !interrupt.is_raised() {
            std::thread::yield_now();
        }
        evaluating.end().is_leaving
    }

    /// An evaluation that no command stops ends too.
    #[test]
    fn an_evaluation_that_takes_too_long_is_stopped() {
        let (all, interrupt) = (Arc::new(Evaluations::default()), Interrupt::default());
        let evaluating = all.enter(&"r".into(), interrupt.clone(), 1);
        assert!(!evaluate(&evaluating, &interrupt));
    }

    /// Many short evaluations in a row are paused, and none of them fails: the time that one may
    /// take counts from the last pause.
    #[test]
    fn a_run_that_works_for_long_pauses() {
        let interrupt = Interrupt::default();
        let state = Mutex::new(State { timeout_ms: 1_000, ..State::default() });
        let evaluation = Arc::new(Evaluation { interrupt: interrupt.clone(), state });
        let all = Arc::default();
        let evaluating = Evaluating { run_id: "r".into(), evaluation: evaluation.clone(), all };
        let look_until = |done: &dyn Fn() -> bool| {
            let mut looks = 0;
            while !done() {
                evaluation.interrupt_if_due(now_ms());
                looks += 1;
            }
            CHECK_INTERVAL * looks
        };
        for _ in 0..2 {
            evaluating.begin();
            assert!(look_until(&|| interrupt.is_paused()) >= PAUSE_AFTER);
            assert!(!interrupt.is_raised());
            let ended = evaluating.end();
            assert!(ended.goes_on && !ended.is_interrupted);
        }
        evaluating.begin();
        assert!(look_until(&|| interrupt.is_raised()) >= Duration::from_secs(1));
        let ended = evaluating.end();
        assert!(ended.goes_on && ended.is_interrupted && !interrupt.is_paused());
    }

    #[test]
    fn a_deadline_a_command_and_the_end_of_the_process_reach_an_evaluation() {
        let (all, interrupt) = (Arc::new(Evaluations::default()), Interrupt::default());
        let run_id: Arc<str> = "r".into();
        let evaluating = all.enter(&run_id, interrupt.clone(), u64::MAX);
        evaluating.set_deadline(Some(now_ms()));
        assert!(!evaluate(&evaluating, &interrupt));
        assert!(!interrupt.is_raised(), "the next evaluation begins without it");
        // Once the run has received the stop, it evaluates undisturbed.
        evaluating.set_deadline(None);
        assert!(!evaluating.evaluation.state.lock().is_due(now_ms()));
        all.stop(&run_id);
        assert!(!evaluate(&evaluating, &interrupt));
        evaluating.clear_stop();
        assert!(!evaluating.evaluation.state.lock().is_due(now_ms()));
        std::thread::scope(|scope| {
            let evaluation = scope.spawn(|| evaluate(&evaluating, &interrupt));
            while !evaluating.evaluation.state.lock().is_under_way {
                std::thread::yield_now();
            }
            all.stop_all();
            assert!(evaluation.join().unwrap(), "its result is not written");
        });
        let later = all.enter(&"later".into(), Interrupt::default(), u64::MAX);
        later.begin();
        assert!(later.end().is_leaving, "no evaluation begins any more");
    }
}
