//! The budget of one evaluation: operations, bytes, and the driver's interrupt flag.
//!
//! Expressions, jq programs, regular expressions and JSON Schemas run in part inside libraries that
//! know no budget, so their work is counted where they touch our values. Our own functions return
//! an error when the budget is spent. A callback from a library cannot return one: it unwinds
//! through the library up to [`catch_unwound`], which turns the unwinding into an error. No panic
//! hook sees that.
//!
//! The budget is a thread-local, because values carry no reference to the evaluation that uses
//! them.

pub mod interrupt;

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use interrupt::Interrupt;

/// Operations between two checks of the interrupt flag.
const CHECK_INTERVAL: u64 = 1 << 10;

/// Bytes that cost as much as one operation.
pub(crate) const BYTES_PER_OPERATION: usize = 64;

/// Why an evaluation ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BudgetExceeded {
    /// It took more operations than the limit.
    Operations(u64),
    /// It made more bytes than the limit.
    Bytes(usize),
    /// It nested values deeper than the limit.
    Depth(usize),
    /// The driver raised the flag: a deadline passed, or the run was cancelled.
    Interrupted,
    /// A library panicked.
    Fault(String),
}

impl fmt::Display for BudgetExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BudgetExceeded::Operations(max) => write!(f, "the evaluation takes more than {max} operations"),
            BudgetExceeded::Bytes(max) => write!(f, "the evaluation makes more than {max} bytes of data"),
            BudgetExceeded::Depth(max) => write!(f, "a value nests deeper than the limit of {max}"),
            BudgetExceeded::Interrupted => f.write_str(
                "the evaluation was stopped: it took too long, its deadline passed, or the run was cancelled",
            ),
            BudgetExceeded::Fault(message) => write!(f, "the evaluation failed inside Segue: {message}"),
        }
    }
}

#[derive(Clone, Copy)]
struct Meter {
    operations: u64,
    bytes: usize,
    operations_max: u64,
    bytes_max: usize,
}

const UNBOUNDED: Meter = Meter {
    operations: u64::MAX,
    bytes: usize::MAX,
    operations_max: u64::MAX,
    bytes_max: usize::MAX,
};

thread_local! {
    static METER: Cell<Meter> = const { Cell::new(UNBOUNDED) };
    static INTERRUPT: RefCell<Option<Interrupt>> = const { RefCell::new(None) };
}

#[cfg(test)]
thread_local! {
    /// Operations that the last metered work of this thread took.
    static SPENT: Cell<u64> = const { Cell::new(0) };
}

/// Operations that the last metered work of this thread took.
#[cfg(test)]
pub(crate) fn spent() -> u64 {
    SPENT.get()
}

/// Runs `work` with a budget of operations and bytes.
pub(crate) fn metered<T>(operations: u64, bytes: usize, work: impl FnOnce() -> T) -> T {
    struct RestoreMeter(Meter);
    impl Drop for RestoreMeter {
        fn drop(&mut self) {
            #[cfg(test)]
            SPENT.set(METER.get().operations_max - METER.get().operations);
            METER.set(self.0);
        }
    }
    let meter = Meter { operations, bytes, operations_max: operations, bytes_max: bytes };
    let _before = RestoreMeter(METER.replace(meter));
    work()
}

/// Runs `work` so that it stops when this flag is raised.
pub(crate) fn interruptible<T>(interrupt: &Interrupt, work: impl FnOnce() -> T) -> T {
    struct RestoreInterrupt(Option<Interrupt>);
    impl Drop for RestoreInterrupt {
        fn drop(&mut self) {
            INTERRUPT.set(self.0.take());
        }
    }
    let _before = RestoreInterrupt(INTERRUPT.replace(Some(interrupt.clone())));
    work()
}

/// Whether evaluations of this thread should stop.
pub(crate) fn check_interrupt() -> Result<(), BudgetExceeded> {
    let raised = INTERRUPT.with_borrow(|flag| flag.as_ref().is_some_and(Interrupt::is_raised));
    if raised { Err(BudgetExceeded::Interrupted) } else { Ok(()) }
}

/// Whether this thread should start no further work for now.
pub(crate) fn should_pause() -> bool {
    INTERRUPT.with_borrow(|flag| flag.as_ref().is_some_and(Interrupt::is_paused))
}

/// Spends operations.
pub(crate) fn spend(work: u64) -> Result<(), BudgetExceeded> {
    let mut meter = METER.get();
    let left = meter
        .operations
        .checked_sub(work)
        .ok_or(BudgetExceeded::Operations(meter.operations_max))?;
    if left / CHECK_INTERVAL != meter.operations / CHECK_INTERVAL {
        check_interrupt()?;
    }
    meter.operations = left;
    METER.set(meter);
    Ok(())
}

/// Spends bytes of new data, and the operations that copy them.
pub(crate) fn charge(bytes: usize) -> Result<(), BudgetExceeded> {
    let mut meter = METER.get();
    meter.bytes = meter.bytes.checked_sub(bytes).ok_or(BudgetExceeded::Bytes(meter.bytes_max))?;
    METER.set(meter);
    spend(1 + (bytes / BYTES_PER_OPERATION) as u64)
}

/// [`spend`] for callbacks of a library: unwinds when the budget is spent.
pub(crate) fn spend_or_unwind(work: u64) {
    spend(work).unwrap_or_else(|stop| unwind(stop));
}

/// [`charge`] for callbacks of a library.
pub(crate) fn charge_or_unwind(bytes: usize) {
    charge(bytes).unwrap_or_else(|stop| unwind(stop));
}

/// Ends the evaluation by unwinding through the library.
pub(crate) fn unwind(stop: BudgetExceeded) -> ! {
    resume_unwind(Box::new(stop))
}

/// Calls a library, and returns why it was ended, if it was.
pub(crate) fn catch_unwound<T>(work: impl FnOnce() -> T) -> Result<T, BudgetExceeded> {
    // The evaluation owns all half-finished values, so unwinding drops them with it.
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| {
        match payload.downcast::<BudgetExceeded>() {
            Ok(stop) => *stop,
            Err(panic) => BudgetExceeded::Fault(panic_message(&*panic).to_owned()),
        }
    })
}

/// The message of a panic.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_left_in_the_middle() {
        let endless = || -> () {
            loop {
                spend_or_unwind(1);
            }
        };
        assert_eq!(
            metered(5_000, 0, || catch_unwound(endless)),
            Err(BudgetExceeded::Operations(5_000))
        );
        let growing = || -> () {
            loop {
                charge_or_unwind(100);
            }
        };
        assert_eq!(
            metered(u64::MAX, 1_000, || catch_unwound(growing)),
            Err(BudgetExceeded::Bytes(1_000))
        );
        let interrupt = Interrupt::default();
        interrupt.raise();
        assert_eq!(
            interruptible(&interrupt, || catch_unwound(endless)),
            Err(BudgetExceeded::Interrupted)
        );
        let faulty = || -> () { panic!("planted") };
        assert_eq!(catch_unwound(faulty), Err(BudgetExceeded::Fault("planted".to_owned())));
        // No budget or flag is left on the thread.
        assert_eq!((spend(1 << 40), check_interrupt()), (Ok(()), Ok(())));
    }
}
