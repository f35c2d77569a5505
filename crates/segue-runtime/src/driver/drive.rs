//! What a driver is given: everything around a run, and how the run is set in motion.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use segue_core::limits::Limits;
use segue_core::plan::Plan;
use segue_core::run::{EventKind, Failure, Reused, Started};
use segue_core::tool::Catalog;
use segue_core::value::Value;

use super::{Chance, Confirmer, Observer};
use crate::engine::{Ears, Unreleased};
use crate::store::{Lease, Store};
use crate::tools::Registry;
use crate::tools::gate::Gate;
use crate::tools::reach::Compositions;

/// What a driver needs to move a run.
pub struct Drive<'a> {
    /// What the run executes.
    pub plan: Arc<Plan>,
    /// The tools.
    pub registry: &'a Registry,
    /// Where calls wait for their turn.
    pub gate: &'a Gate,
    /// Where the journal goes.
    pub store: &'a dyn Store,
    /// Who is asked.
    pub confirmer: &'a dyn Confirmer,
    /// What is known of the tools.
    pub catalog: &'a Catalog,
    /// Every bound.
    pub limits: &'a Limits,
    /// What runs compositions that code calls.
    pub(crate) compositions: &'a dyn Compositions,
    /// Who watches.
    pub observer: &'a dyn Observer,
    /// Randomness.
    pub chance: &'a Chance,
    /// What compiles a composition that was made at run time.
    pub expand: &'a Expand<'a>,
    /// Resolves when the run should end, to who wants it.
    pub cancel: BoxFuture<'a, Arc<str>>,
    /// What else is wanted of it meanwhile.
    pub(crate) ears: &'a Arc<Ears>,
    /// Leases of runs that stopped because of their store.
    pub(crate) unreleased: &'a Unreleased,
}

/// Compiles and plans a composition that was made at run time, or says why it cannot.
pub type Expand<'a> = dyn Fn(&Value) -> Result<Arc<Plan>, Failure> + Send + Sync + 'a;

/// How a run is set in motion.
pub enum First {
    /// It begins, with what it takes over from an earlier one.
    Start(Box<Started>, Vec<Reused>),
    /// It was read from its journal, and goes on; then this happens.
    Resume {
        /// The right to write it.
        lease: Lease,
        /// Entries that are in the store.
        written: u64,
        /// What is wanted of it, in this order.
        wishes: Vec<EventKind>,
        /// The words in the store that some of these came by.
        words: Vec<u64>,
    },
}
