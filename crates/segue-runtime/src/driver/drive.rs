//! The input of a driver: the context of a run, and how it starts.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use segue_core::catalog::Catalog;
use segue_core::limits::Limits;
use segue_core::plan::Plan;
use segue_core::run::{EventKind, Failure, Started, StepSelection};
use segue_core::value::Value;

use super::{CommandRouter, IdSource, Observer, UnreleasedLeases};
use crate::confirm::Confirmer;
use crate::store::{Lease, Store};
use crate::tools::Registry;
use crate::tools::call_scope::CompositionRunner;
use crate::tools::gate::Gate;

/// Everything a driver needs to move a run.
pub struct DriverContext<'a> {
    /// The plan that the run executes.
    pub plan: Arc<Plan>,
    /// The tools.
    pub registry: &'a Registry,
    /// Limits how many calls of a tool are in flight.
    pub gate: &'a Gate,
    /// Stores the journal.
    pub store: &'a dyn Store,
    /// Answers questions.
    pub confirmer: &'a dyn Confirmer,
    /// What is known about the tools.
    pub catalog: &'a Catalog,
    /// The limits.
    pub limits: &'a Limits,
    /// Runs compositions that code calls.
    pub(crate) compositions: &'a dyn CompositionRunner,
    /// Receives the entries of each turn.
    pub observer: &'a dyn Observer,
    /// Random bits and ids.
    pub ids: &'a IdSource,
    /// Compiles a composition that a step made.
    pub expand: &'a Expand<'a>,
    /// Resolves when the run should be cancelled, to the name of who cancels it.
    pub cancel: BoxFuture<'a, Arc<str>>,
    /// Delivers commands to the run.
    pub(crate) router: &'a Arc<CommandRouter>,
    /// Leases of runs that stopped because their store failed.
    pub(crate) unreleased: &'a UnreleasedLeases,
}

/// Compiles and plans a composition that a step made, or says why it cannot.
pub type Expand<'a> = dyn Fn(&Value) -> Result<Arc<Plan>, Failure> + Send + Sync + 'a;

/// How a run starts.
pub enum StartMode {
    /// A new run, with the steps that it performs.
    Start(Box<Started>, StepSelection),
    /// A run restored from its journal.
    Resume {
        /// The right to write the run.
        lease: Lease,
        /// How many entries are in the store.
        written: u64,
        /// The commands for the run, in order.
        commands: Vec<EventKind>,
        /// The numbers of those commands that came through the store.
        command_numbers: Vec<u64>,
    },
}
