//! Acting on a run: what somebody wants of it, held against how it stands.

use std::sync::Arc;
use std::time::Duration;

use segue_core::access::Principal;
use segue_core::run::Question;
use segue_core::value::Value;
use segue_core::view::{RunStatus, RunView, Timestamp};
use segue_runtime::driver::{RunCommand, now_ms};
use segue_runtime::engine::{EngineError, LoadedRun};
use segue_runtime::store::StoreError;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::active::Active;
use super::hall::Hall;
use super::question::{Unclear, meant, misfit};

/// What somebody wants of a run.
pub enum Deed {
    /// That it ends.
    Cancel,
    /// That what it did is taken back.
    RollBack,
    /// That it goes on; with what is known of a call that was never answered.
    Resume(Option<Verdict>),
    /// That it goes on with this answer to what it asks.
    Approve(Verdict),
}

impl Deed {
    /// Going on, as it is described: with `assume`, perhaps `value` and `step`.
    pub fn resuming(described: &Value) -> Deed {
        let assumed = described.get("assume").and_then(Value::as_str);
        Deed::Resume(assumed.map(|word| Verdict::of(described, word == "done", "value")))
    }

    /// An answer, as it is described: with `approved`, perhaps `data` and `step`. Only a yes is one.
    pub fn approving(described: &Value) -> Deed {
        let granted = described.get("approved").and_then(Value::as_bool).unwrap_or(false);
        Deed::Approve(Verdict::of(described, granted, "data"))
    }
}

/// An answer to a question of a run.
pub struct Verdict {
    /// The step that asks, when several do.
    pub step: Option<Arc<str>>,
    /// Yes or no; of a call in doubt: whether it did its work.
    pub granted: bool,
    /// What belongs to a yes.
    pub data: Value,
}

impl Verdict {
    fn of(described: &Value, granted: bool, data: &str) -> Verdict {
        let step = described.get("step").and_then(Value::as_str).map(Arc::from);
        Verdict { step, granted, data: described.get(data).cloned().unwrap_or_default() }
    }
}

/// Why nothing was done to a run.
#[derive(Debug)]
pub enum Unacted {
    /// The engine could not, or would not.
    Engine(EngineError),
    /// Nothing of this kind is asked in it.
    Unasked(Arc<str>),
    /// Several steps of it ask.
    Several(Arc<str>, Vec<Arc<str>>),
    /// What came with the answer is not what is asked for.
    Misfit(String),
    /// Our own code panicked.
    Lost,
}

impl From<EngineError> for Unacted {
    fn from(error: EngineError) -> Unacted {
        Unacted::Engine(error)
    }
}

/// Has what is wanted of a run happen, whether or not its caller waits for it.
pub async fn act(
    hall: &Arc<Hall>,
    who: &Principal,
    run_id: &str,
    deed: &Deed,
    patience: Duration,
) -> Result<RunView, Unacted> {
    let (stored, by) = (hall.stored(who, run_id).await?, &who.name);
    // What is over is only ever taken back.
    if stored.run.is_finished() && !matches!(deed, Deed::RollBack) {
        let (run_id, status) = (stored.row.run_id.clone(), stored.row.status);
        return Err(EngineError::Store(StoreError::Ended { run_id, status }).into());
    }
    let wish = match deed {
        Deed::Cancel => RunCommand::Cancel { by: by.clone() },
        Deed::RollBack => RunCommand::RollBack { by: by.clone() },
        Deed::Resume(None) => RunCommand::Resume,
        Deed::Resume(Some(verdict)) => decide(&stored, verdict, true, by)?,
        Deed::Approve(verdict) => decide(&stored, verdict, false, by)?,
    };
    let acting = match record(hall, who, &stored.row.run_id, wish).await? {
        Recorded::GoesOn(acting) => acting,
        Recorded::Over(view) => return Ok(*view),
    };
    match tokio::time::timeout(patience, acting).await {
        Ok(Ok(outcome)) => Ok(outcome?),
        Ok(Err(_)) => Err(Unacted::Lost),
        Err(_) => {
            let now = hall.stored(who, run_id).await?;
            Ok(seen(hall, who, &now))
        }
    }
}

/// What became of what was wanted of a run.
pub enum Recorded {
    /// It is durable, and the run goes on.
    GoesOn(JoinHandle<Result<RunView, EngineError>>),
    /// The run goes on no more.
    Over(Box<RunView>),
}

/// Has what is wanted of a run happen, and waits until it is durable: only then may it be acknowledged.
/// It happens although the caller goes away.
pub async fn record(
    hall: &Arc<Hall>,
    who: &Principal,
    run_id: &Arc<str>,
    wish: RunCommand,
) -> Result<Recorded, Unacted> {
    let (recorded, mut is_recorded) = watch::channel(false);
    let (hall, who, run_id) = (hall.clone(), who.clone(), run_id.clone());
    let acting =
        tokio::spawn(async move { hall.act_telling(&who, &run_id, wish, &recorded).await });
    // The sender goes away with the act.
    if is_recorded.wait_for(|recorded| *recorded).await.is_ok() {
        return Ok(Recorded::GoesOn(acting));
    }
    Ok(Recorded::Over(Box::new(acting.await.map_err(|_| Unacted::Lost)??)))
}

/// The answer to the question that is meant.
fn decide(
    stored: &LoadedRun,
    verdict: &Verdict,
    is_doubt: bool,
    by: &Arc<str>,
) -> Result<RunCommand, Unacted> {
    let run_id = stored.row.run_id.clone();
    let found = meant(&stored.run, verdict.step.as_deref(), is_doubt);
    let question: Question = found.map_err(|unclear| match unclear {
        Unclear::None => Unacted::Unasked(run_id.clone()),
        Unclear::Several(steps) => Unacted::Several(run_id.clone(), steps),
    })?;
    let misfit = misfit(&question, &verdict.data, &stored.plan);
    if let Some(misfit) = misfit.filter(|_| verdict.granted) {
        return Err(Unacted::Misfit(misfit));
    }
    let (granted, data) = (verdict.granted, verdict.data.clone());
    Ok(RunCommand::Decide { question: question.id, granted, by: by.clone(), data })
}

/// A run as it stands. One that has begun here is running, whatever its journal says yet, and the time
/// that it takes goes on.
pub fn seen(hall: &Hall, who: &Principal, stored: &LoadedRun) -> RunView {
    let mut view = stored.view();
    if view.status == RunStatus::Pending && hall.active(who, &view.run_id).is_some() {
        view.status = RunStatus::Running;
    }
    if let (RunStatus::Running, Some(Timestamp(began))) = (view.status, view.started_at) {
        view.duration_ms = view.duration_ms.max(now_ms().saturating_sub(began));
        view.duration = view.duration.max(view.duration_ms.saturating_mul(1_000_000));
    }
    view
}

/// What became of a run that is waited for so long, or how it stands when it goes on: here, or when Segue
/// starts again.
pub async fn awaited(
    hall: &Hall,
    who: &Principal,
    active: &Active,
    patience: Duration,
) -> Result<RunView, EngineError> {
    if let Ok(outcome) = tokio::time::timeout(patience, active.ended()).await
        && !active.is_left()
    {
        return outcome.as_ref().clone();
    }
    Ok(seen(hall, who, &hall.stored(who, &active.run_id).await?))
}
