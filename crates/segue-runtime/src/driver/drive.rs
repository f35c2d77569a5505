//! What a driver is given: everything around a run, and how the run is set in motion.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use segue_core::limits::Limits;
use segue_core::plan::Plan;
use segue_core::run::{EventKind, Failure, ReusedStep, Started};
use segue_core::tool::Catalog;
use segue_core::value::Value;

use super::{CommandRouter, IdSource, Observer, UnreleasedLeases};
use crate::confirm::Confirmer;
use crate::store::{Lease, Store};
use crate::tools::Registry;
use crate::tools::call_scope::CompositionRunner;
use crate::tools::gate::Gate;

/// What a driver needs to move a run.
pub struct DriverContext<'a> {
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
    pub(crate) compositions: &'a dyn CompositionRunner,
    /// Who watches.
    pub observer: &'a dyn Observer,
    /// Randomness.
    pub ids: &'a IdSource,
    /// What compiles a composition that was made at run time.
    pub expand: &'a Expand<'a>,
    /// Resolves when the run should end, to who wants it.
    pub cancel: BoxFuture<'a, Arc<str>>,
    /// What else is wanted of it meanwhile.
    pub(crate) router: &'a Arc<CommandRouter>,
    /// Leases of runs that stopped because of their store.
    pub(crate) unreleased: &'a UnreleasedLeases,
}

/// Compiles and plans a composition that was made at run time, or says why it cannot.
pub type Expand<'a> = dyn Fn(&Value) -> Result<Arc<Plan>, Failure> + Send + Sync + 'a;

/// How a run is set in motion.
pub enum StartMode {
    /// It begins, with what it takes over from an earlier one.
    Start(Box<Started>, Vec<ReusedStep>),
    /// It was read from its journal, and goes on; then this happens.
    Resume {
        /// The right to write it.
        lease: Lease,
        /// Entries that are in the store.
        written: u64,
        /// What is wanted of it, in this order.
        commands: Vec<EventKind>,
        /// The words in the store that some of these came by.
        command_numbers: Vec<u64>,
    },
}
