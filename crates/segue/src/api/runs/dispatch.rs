//! Runs that another program schedules: it decides which process drives a run, and when.
//!
//! The store has the run and everything that happened in it. A dispatcher knows only the run's id and when it
//! is due. It asks a process to drive the run ([`RunService::drive_dispatched`]), and learns from the answer
//! when to ask again.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use segue_core::view::RunStatus;
use segue_runtime::driver::RunCommand;
use segue_runtime::engine::EngineError;
use segue_runtime::store::{Due, RunRow, StoreError, TakeOver};

use super::RunService;
use super::handle::{QuestionPolicy, RunHandle};
use super::recover::Acquire;
use crate::api::error::Error;

/// Decides which process drives a run, and when. Without one, workers claim from the store.
#[async_trait]
pub trait Dispatcher: Send + Sync {
    /// Asks for a run to be driven when it is due. The run's row is written and has no owner. Idempotent.
    async fn dispatch(&self, run_id: &Arc<str>, due: Due) -> Result<(), DispatchError>;
}

/// The dispatcher cannot be reached: the run stays in the store and is sent again later. The text has no
/// content of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DispatchError(pub Arc<str>);

impl fmt::Display for DispatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the dispatcher cannot be reached: {}", self.0)
    }
}

impl std::error::Error for DispatchError {}

/// What came of driving a run for a dispatcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Driven {
    /// It has ended.
    Over,
    /// It waits until it is due. A run that is set aside waits for a person's command.
    Waits(Due),
    /// Another process drives it: ask again later, because that process may die.
    OwnedElsewhere,
    /// This process cannot drive it, and why: another one may.
    CannotHere(Arc<str>),
}

impl RunService {
    /// Has runs driven by the processes that this dispatcher chooses.
    pub fn set_dispatcher(&self, dispatcher: Arc<dyn Dispatcher>) {
        *self.dispatcher.write() = Some(dispatcher);
    }

    /// Takes the run if no living process owns it, drives it until it ends or waits, releases it with its
    /// due time.
    pub async fn drive_dispatched(
        self: &Arc<RunService>,
        run_id: &Arc<str>,
    ) -> Result<Driven, Error> {
        match self.drive_once(run_id).await? {
            // It may be this process that took it, for another request at the same time.
            Driven::OwnedElsewhere => self.drive_once(run_id).await,
            driven => Ok(driven),
        }
    }

    async fn drive_once(self: &Arc<RunService>, run_id: &Arc<str>) -> Result<Driven, Error> {
        if let Some(handle) = self.registry.get(run_id) {
            return self.driven(&handle).await;
        }
        let unknown = || StoreError::Unknown { run_id: run_id.clone() };
        let row = self.store().run(run_id).await?.ok_or_else(unknown)?;
        if row.ended_ms.is_some() {
            return Ok(Driven::Over);
        }
        if row.set_aside.is_some() {
            return Ok(Driven::Waits(Due::OnCommand));
        }
        if let Some(reason) = self.missing_here(&row).await? {
            return Ok(Driven::CannotHere(reason));
        }
        self.wait_for_room().await;
        let acquire = Acquire::Take(TakeOver::Recover);
        let handle = self.resume(&row, RunCommand::Resume, acquire, QuestionPolicy::Defer);
        self.driven(&handle).await
    }

    /// Why this process cannot drive a run, if its plan tells that.
    async fn missing_here(&self, row: &RunRow) -> Result<Option<Arc<str>>, Error> {
        let engine = self.full_catalog().engine;
        let plan = engine.store().plan(&row.run_id, engine.limits()).await?;
        let missing = engine.check_requirements(&plan).err();
        Ok(missing.map(|error| error.to_string().into()))
    }

    /// Waits for the end of a run that this process drives.
    async fn driven(&self, handle: &RunHandle) -> Result<Driven, Error> {
        match &*handle.ended().await {
            Ok(view) if view.status == RunStatus::Waiting => {
                let at_ms = self.full_catalog().engine.resumes_at(&handle.run_id).await?;
                Ok(Driven::Waits(at_ms.map_or(Due::OnCommand, Due::At)))
            }
            Ok(_) => Ok(Driven::Over),
            Err(EngineError::Store(
                StoreError::Owned { .. } | StoreError::Lost { .. } | StoreError::Fenced { .. },
            )) => Ok(Driven::OwnedElsewhere),
            Err(EngineError::Store(StoreError::SetAside { .. })) => {
                Ok(Driven::Waits(Due::OnCommand))
            }
            Err(error) if error.is_of_this_process() => {
                Ok(Driven::CannotHere(error.to_string().into()))
            }
            Err(error) => Err(error.clone().into()),
        }
    }
}
