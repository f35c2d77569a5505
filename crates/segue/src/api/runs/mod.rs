//! The service that starts runs, finds them again and acts on them, for every surface alike.
//!
//! ```text
//! registry.rs, handle.rs    runs that this process drives: which, and how far they are
//! start.rs                  a request → a run, once for each idempotency key (idempotency.rs)
//! recover.rs                runs that were interrupted go on; a run is driven to its end
//! worker.rs                 runs of a shared store are claimed here, or left to other processes
//! follow.rs                 runs that other processes drive, for the clients of this one
//! dispatch.rs               runs that another program schedules
//! act.rs                    cancel, roll back, resume, approve
//! events.rs                 the events of a run, for clients that follow it
//! feed.rs, all_events.rs    the changes of all runs, and all that a client asks for in one stream
//! summaries.rs              runs in short; step_counts.rs: how far runs of other processes are
//! search.rs, rerun.rs       runs by text; a run again, from one of its steps on
//! loaded.rs, inspect.rs     runs that were read lately; a run in pieces that are small
//! ```
//!
//! A run belongs to the service and not to the request that started it: a client that disconnects loses
//! nothing. Every method takes the principal that calls. Its toolset limits what is served to it, and it
//! sees only its own runs: the core decides both.

pub mod act;
pub mod all_events;
pub mod dispatch;
pub mod events;
pub mod feed;
mod follow;
pub mod handle;
pub mod idempotency;
pub mod inspect;
mod loaded;
mod part;
mod recover;
mod registry;
pub mod rerun;
pub mod search;
pub mod start;
mod step_counts;
pub mod summaries;
pub mod worker;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::RwLock;
use segue_core::access::{ApprovalRules, Principal, Right};
use segue_core::limits::Limits;
use segue_core::source::Source;
use segue_core::toolset::ToolsetBuilder;
use segue_core::view::RunView;
use segue_runtime::engine::{Engine, EngineError, LoadError, LoadedRun};
use segue_runtime::library::Library;
use segue_runtime::store::{RunListing, RunQuery, RunRow, Store, StoreError};
use tokio::sync::{Notify, watch};

use super::error::Error;
use super::files::EditableFiles;
use super::installation::Installation;
use super::served::{Catalogs, ServedCatalog};
use super::threads::Threads;
use crate::observe::Observers;
use dispatch::Dispatcher;
use follow::ChangeWatch;
use handle::RunHandle;
use loaded::ReadRuns;
use registry::RunRegistry;
use step_counts::StepCounts;
use worker::Sharing;

pub use registry::StartReservation;
pub use start::StartRun;

/// The service.
pub struct RunService {
    catalogs: Catalogs,
    registry: RunRegistry,
    /// The thread pools that drive runs and work on requests.
    threads: Threads,
    /// Becomes true when this process leaves its runs to the next one.
    leaving: watch::Sender<bool>,
    observing: Observers,
    /// Runs that were read from the store lately.
    read_runs: ReadRuns,
    /// How far runs of other processes are.
    step_counts: StepCounts,
    /// What operators see; a reload replaces it.
    installation: RwLock<Arc<Installation>>,
    /// Who may answer questions; a reload replaces it.
    approvals: RwLock<ApprovalRules>,
    /// The files of compositions; a reload replaces them.
    files: RwLock<Arc<EditableFiles>>,
    /// Notified when a request has changed a file.
    changed_files: Notify,
    /// Decides which process drives a run; without one, workers claim from the store.
    dispatcher: RwLock<Option<Arc<dyn Dispatcher>>>,
    /// How this process shares its store with others.
    sharing: Sharing,
    /// The runs of other processes that clients of this one follow.
    change_watch: ChangeWatch,
}

impl RunService {
    /// A service for the compositions and templates of an engine. A caller may be held to one of the
    /// toolsets. Tools of compositions never take a name of `reserved`.
    pub fn new(
        engine: Engine,
        library: Library,
        toolsets: BTreeMap<Arc<str>, ToolsetBuilder>,
        reserved: BTreeSet<&'static str>,
        threads: Threads,
        observing: Observers,
    ) -> Arc<RunService> {
        Arc::new(RunService {
            catalogs: Catalogs::new(engine, library, toolsets, reserved),
            registry: RunRegistry::default(),
            threads,
            leaving: watch::Sender::default(),
            observing,
            read_runs: ReadRuns::default(),
            step_counts: StepCounts::default(),
            installation: RwLock::default(),
            approvals: RwLock::default(),
            files: RwLock::new(Arc::new(EditableFiles::none())),
            changed_files: Notify::new(),
            dispatcher: RwLock::default(),
            sharing: Sharing::default(),
            change_watch: ChangeWatch::default(),
        })
    }

    /// The thread pools.
    pub fn threads(&self) -> &Threads {
        &self.threads
    }

    /// Metrics and traces.
    pub fn observing(&self) -> &Observers {
        &self.observing
    }

    /// What operators see of this installation.
    pub fn installation(&self) -> Arc<Installation> {
        self.installation.read().clone()
    }

    /// Replaces what operators see of this installation.
    pub fn set_installation(&self, installation: Installation) {
        *self.installation.write() = Arc::new(installation);
    }

    /// Who may answer questions, beyond having the right to approve.
    pub fn approvals(&self) -> ApprovalRules {
        *self.approvals.read()
    }

    /// Why a caller may not answer the questions of a run that `starter` started; `None` if it may.
    pub fn answer_refusal(&self, who: &Principal, starter: Option<&str>) -> Option<&'static str> {
        if !who.may(Right::Approve) {
            return Some("this needs the right `approve`");
        }
        self.approvals().refusal(Some(&who.name), starter)
    }

    /// Replaces who may answer questions.
    pub fn set_approvals(&self, rules: ApprovalRules) {
        *self.approvals.write() = rules;
    }

    /// The files of compositions.
    pub fn files(&self) -> Arc<EditableFiles> {
        self.files.read().clone()
    }

    /// Replaces the files of compositions.
    pub fn set_files(&self, files: EditableFiles) {
        *self.files.write() = Arc::new(files);
    }

    /// Says that a request has changed a file.
    pub fn note_changed_files(&self) {
        self.changed_files.notify_one();
    }

    /// Waits until a request has changed a file.
    pub async fn changed_files(&self) {
        self.changed_files.notified().await;
    }

    /// What is served to a caller now.
    pub fn catalog(&self, who: &Principal) -> ServedCatalog {
        self.catalogs.within(who.toolset.as_ref())
    }

    /// What is served to a caller without a toolset.
    pub fn full_catalog(&self) -> ServedCatalog {
        self.catalogs.all()
    }

    /// A toolset by its name.
    pub fn toolset(&self, name: &str) -> Option<ToolsetBuilder> {
        self.catalogs.toolset(name)
    }

    /// The names of all toolsets.
    pub fn toolset_names(&self) -> Vec<Arc<str>> {
        self.catalogs.toolset_names()
    }

    /// The store of runs.
    pub fn store(&self) -> Arc<dyn Store> {
        self.full_catalog().engine.store().clone()
    }

    /// A fresh run id.
    pub fn new_run_id(&self) -> Arc<str> {
        self.full_catalog().engine.new_run_id()
    }

    /// The limits in force.
    pub fn limits(&self) -> Arc<Limits> {
        self.full_catalog().engine.limits().clone()
    }

    /// Changes whenever the served tools do.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.catalogs.changes()
    }

    /// Changes whenever compositions or tools were read again, also if no served tool changed.
    pub fn reloads(&self) -> watch::Receiver<u64> {
        self.catalogs.reloads()
    }

    /// The configured compositions that could not be loaded.
    pub fn broken_compositions(&self) -> Arc<Vec<LoadError>> {
        self.catalogs.broken()
    }

    /// Says which configured compositions could not be loaded.
    pub fn set_broken(&self, broken: &[LoadError]) {
        self.catalogs.set_broken(broken);
    }

    /// Serves other compositions from now on, and the templates that `library` makes of the engine. Runs
    /// that have started keep their engine.
    pub fn reload(
        &self,
        sources: Vec<Source>,
        library: impl FnOnce(&Engine) -> Library,
    ) -> Vec<LoadError> {
        self.catalogs.reload(sources, library)
    }

    /// Serves another engine from now on. Runs that have started, and those that wait for a person, keep
    /// theirs.
    pub fn replace(
        &self,
        engine: Engine,
        library: Library,
        toolsets: BTreeMap<Arc<str>, ToolsetBuilder>,
    ) {
        self.catalogs.replace(engine, library, toolsets);
    }

    /// How many runs of a caller this process drives.
    pub fn active_count(&self, who: &Principal) -> usize {
        self.registry.count(who)
    }

    /// A run of the caller that this process drives, or follows.
    pub fn handle(&self, who: &Principal, run_id: &str) -> Option<Arc<RunHandle>> {
        self.registry.handle(who, run_id)
    }

    /// A run of the caller that this process drives.
    pub(super) fn driven_handle(&self, who: &Principal, run_id: &str) -> Option<Arc<RunHandle>> {
        self.registry.get(run_id).filter(|handle| who.can_see(handle.principal.as_deref()))
    }

    /// The row of a run of the caller.
    pub async fn row(&self, who: &Principal, run_id: &str) -> Result<RunRow, StoreError> {
        let run_id: Arc<str> = run_id.into();
        let found = match self.store().run(&run_id).await {
            // The owner of a damaged run is unknown.
            Err(StoreError::Damaged { .. }) if !who.may(Right::Admin) => None,
            found => found?,
        };
        let theirs = found.filter(|row| who.can_see(owner(row).as_deref()));
        theirs.ok_or(StoreError::Unknown { run_id })
    }

    /// A run of the caller, from the store.
    pub async fn stored(&self, who: &Principal, run_id: &str) -> Result<LoadedRun, EngineError> {
        let row = self.row(who, run_id).await?;
        self.full_catalog().engine.load_run(&row.run_id).await
    }

    /// The state of a run of the caller.
    pub async fn view(&self, who: &Principal, run_id: &str) -> Result<RunView, Error> {
        Ok(act::current_view(self, who, &self.stored(who, run_id).await?))
    }

    /// A page of the caller's runs; an administrator sees all.
    pub async fn runs(&self, who: &Principal, mut query: RunQuery) -> Result<RunListing, Error> {
        if who.may(Right::Admin) {
            return Ok(self.store().runs(&query).await?);
        }
        query.principal = Some(who.name.clone());
        let found = self.store().runs(&query).await?;
        Ok(RunListing { damaged: Vec::new(), ..found })
    }

    /// Becomes true when this process leaves its runs to the next one.
    pub fn leaving(&self) -> watch::Receiver<bool> {
        self.leaving.subscribe()
    }
}

/// The principal that started a run.
fn owner(row: &RunRow) -> Option<Arc<str>> {
    row.caller.as_ref().map(|caller| caller.principal.clone())
}
