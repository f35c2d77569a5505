//! Having something run that somebody describes, and waiting for it: what every door does alike.

use std::sync::Arc;
use std::time::Duration;

use segue_core::access::Principal;
use segue_core::plan::Plan;
use segue_core::planner::StoredPlan;
use segue_core::run::admit;
use segue_core::value::Value;
use segue_core::view::{ErrorView, RunStatus, RunView};
use segue_runtime::engine::{EngineError, PlanningError};

use super::acting::awaited;
use super::active::Asking;
use super::execution::{Execution, Undescribed, execution, is_dry, options};
use super::hall::{Hall, Wanted};
use super::keys::{self, Claim, Unclaimed};
use super::plans::{self, Kept, Unbegun};
use super::threads::calculate;
use crate::observe::RequestOrigin;

/// Why nothing runs.
#[derive(Debug)]
pub enum Unexecuted {
    /// What is described cannot run.
    Undescribed(Undescribed),
    /// It cannot begin with what it is given.
    Refused(Vec<ErrorView>),
    /// The key of the request is of no use.
    Unclaimed(Unclaimed),
    /// It does not begin now.
    Unbegun(Unbegun),
    /// The engine could not, or would not.
    Engine(EngineError),
}

impl From<Undescribed> for Unexecuted {
    fn from(error: Undescribed) -> Unexecuted {
        Unexecuted::Undescribed(error)
    }
}

impl From<Unclaimed> for Unexecuted {
    fn from(error: Unclaimed) -> Unexecuted {
        Unexecuted::Unclaimed(error)
    }
}

impl From<Unbegun> for Unexecuted {
    fn from(error: Unbegun) -> Unexecuted {
        Unexecuted::Unbegun(error)
    }
}

impl From<PlanningError> for Unexecuted {
    fn from(error: PlanningError) -> Unexecuted {
        Unexecuted::Unbegun(Unbegun::Plan(error))
    }
}

impl From<EngineError> for Unexecuted {
    fn from(error: EngineError) -> Unexecuted {
        Unexecuted::Engine(error)
    }
}

/// Runs what is described and waits for it so long. The same key is the same run.
pub async fn execute(
    hall: &Arc<Hall>,
    (who, origin): (&Principal, &RequestOrigin),
    key: Option<&str>,
    described: &Value,
    patience: Duration,
) -> Result<RunView, Unexecuted> {
    let Execution { plan, input, context, options, dry_run, who } =
        execution(hall, who, described).await?;
    let who = &who;
    if dry_run {
        return rehearse(hall, who, &plan, input, context);
    }
    admit(&plan, input.clone(), &context, &hall.limits()).map_err(Unexecuted::Refused)?;
    let (asking, run_id, origin) = (Asking::Later, None, origin.clone());
    let mut wanted = Wanted { plan, input, context, options, asking, run_id, origin };
    let Some(key) = key else {
        let active = hall.start(who, wanted).await?;
        return Ok(awaited(hall, who, &active, patience).await?);
    };
    let run_id = match keys::claim(hall, who, key, described).await? {
        Claim::Begun(run_id) => run_id,
        Claim::New(run_id) => {
            wanted.run_id = Some(run_id.clone());
            hall.start(who, wanted).await?;
            run_id
        }
    };
    again(hall, who, &run_id, patience).await
}

/// Executes a plan that is kept, as it is described, and waits for it so long. The same key is the same
/// run.
pub async fn execute_plan(
    hall: &Arc<Hall>,
    (who, origin): (&Principal, &RequestOrigin),
    key: Option<&str>,
    record: &StoredPlan,
    described: &Value,
    patience: Duration,
) -> Result<RunView, Unexecuted> {
    let who = &who.as_author();
    let (_, plan, _) = hall.served(who).engine.plan_of(record)?;
    let given = described.get("context").filter(|context| !context.is_null());
    let context = given.cloned().unwrap_or_else(Value::empty_object);
    let input = Value::empty_object();
    if is_dry(described) {
        return rehearse(hall, who, &plan, input, context);
    }
    admit(&plan, input.clone(), &context, &hall.limits()).map_err(Unexecuted::Refused)?;
    let may_again = described.get("again").and_then(Value::as_bool).unwrap_or(false);
    let mut kept = Kept { plan_id: record.plan_id.clone(), again: may_again };
    let options = options(who, described)?;
    let (asking, run_id, origin) = (Asking::Later, None, origin.clone());
    let mut wanted = Wanted { plan, input, context, options, asking, run_id, origin };
    if let Some(key) = key {
        let asked = Value::object([
            ("plan", Value::String(record.plan_id.clone())),
            ("described", described.clone()),
        ]);
        match keys::claim(hall, who, key, &asked).await? {
            Claim::Begun(run_id) => return again(hall, who, &run_id, patience).await,
            Claim::New(run_id) => {
                // It was taken for this very run, which never began.
                kept.again |= record.run_id.as_ref() == Some(&run_id);
                wanted.run_id = Some(run_id);
            }
        }
    }
    let active = plans::begin(hall, who, &kept, wanted).await?;
    Ok(awaited(hall, who, &active, patience).await?)
}

/// What a run would do.
fn rehearse(
    hall: &Hall,
    who: &Principal,
    plan: &Arc<Plan>,
    input: Value,
    context: Value,
) -> Result<RunView, Unexecuted> {
    let engine = hall.served(who).engine;
    let view = calculate(|| engine.dry_run(plan, input, context));
    match view.status {
        RunStatus::DryRun => Ok(view),
        _ => Err(Unexecuted::Refused(view.errors)),
    }
}

/// A run whose request has a key: what its journal says, so that it is the same each time.
async fn again(
    hall: &Arc<Hall>,
    who: &Principal,
    run_id: &Arc<str>,
    patience: Duration,
) -> Result<RunView, Unexecuted> {
    if let Some(active) = hall.active(who, run_id) {
        active.begun().await?;
        let view = awaited(hall, who, &active, patience).await?;
        if view.status == RunStatus::Running {
            return Ok(view);
        }
    }
    Ok(hall.stored(who, run_id).await?.view())
}
