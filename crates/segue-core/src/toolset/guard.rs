//! Guards that a program adds to a toolset: each may refuse a composition before it is planned.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use crate::composition::Composition;
use crate::diagnostic::Code;

/// Why a guard refuses a composition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct GuardError {
    /// The kind of the error; [`Code::PolicyViolation`] unless another one fits better.
    pub code: Code,
    /// What the composition violates.
    pub message: String,
}

impl GuardError {
    /// A violation of a policy.
    pub fn policy(message: impl Into<String>) -> GuardError {
        GuardError { code: Code::PolicyViolation, message: message.into() }
    }
}

/// A check that a composition must pass before it is planned.
///
/// A guard must be pure: the same composition gives the same result, and a check changes nothing.
/// Threads share toolsets, so several of them may check at the same time; a guard that is not
/// thread-safe does not compile:
///
/// ```compile_fail
/// use std::cell::Cell;
/// use segue_core::toolset::Toolset;
///
/// let count = Cell::new(0);
/// let guard = move |_: &segue_core::composition::Composition| {
///     count.set(count.get() + 1);
///     Ok(())
/// };
/// Toolset::builder("t").guard(guard);
/// ```
pub trait Guard: Send + Sync {
    /// Checks a composition that has no other errors; its tools are resolved. The compositions that
    /// it calls are checked by themselves.
    fn check(&self, composition: &Composition) -> Result<(), GuardError>;
}

impl<F> Guard for F
where
    F: Fn(&Composition) -> Result<(), GuardError> + Send + Sync,
{
    fn check(&self, composition: &Composition) -> Result<(), GuardError> {
        self(composition)
    }
}

/// A guard that toolsets share. Two of them are equal if they are the same object.
#[derive(Clone)]
pub(super) struct SharedGuard(pub(super) Arc<dyn Guard>);

impl PartialEq for SharedGuard {
    fn eq(&self, other: &SharedGuard) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for SharedGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Guard")
    }
}

/// Why guards refuse a composition or one that it calls, if so. Each composition is checked once.
pub(super) fn refusal(guards: &[SharedGuard], composition: &Composition) -> Option<GuardError> {
    if guards.is_empty() { None } else { refusal_of(guards, composition, &mut BTreeSet::new()) }
}

fn refusal_of(
    guards: &[SharedGuard],
    composition: &Composition,
    checked: &mut BTreeSet<*const Composition>,
) -> Option<GuardError> {
    if !checked.insert(std::ptr::from_ref(composition)) {
        return None;
    }
    let mut refusal = guards.iter().find_map(|guard| guard.0.check(composition).err());
    composition.body.walk_calls(&mut |call| {
        let Some(tool) = call.tool.as_ref().filter(|_| refusal.is_none()) else { return };
        let inside = tool.composition.as_ref().and_then(|inner| refusal_of(guards, inner, checked));
        refusal = inside.map(|GuardError { code, message }| GuardError {
            code,
            message: format!("`{}` cannot be called: {message}", tool.id),
        });
    });
    refusal
}
