//! Runs of a part of a composition: which steps a request selects, and what it takes from an earlier run.

use std::sync::Arc;

use segue_core::access::Principal;
use segue_core::plan::Plan;
use segue_core::run::{PartTarget, StepSelection};
use segue_core::value::Value;

use super::RunService;
use super::rerun::Rerun;
use crate::api::error::Error;
use crate::api::requests::{ExecuteComposition, RequestedPart};
use crate::api::threads::calculate;

/// The steps that a run performs, and what it is given.
pub(super) struct SelectedPart {
    /// Its steps.
    pub selection: StepSelection,
    /// Its input.
    pub input: Value,
    /// Its context.
    pub context: Value,
}

/// Selects the steps of a run of `plan` that a request asks for. The earlier run has to be the
/// caller's.
pub(super) async fn select(
    service: &Arc<RunService>,
    who: &Principal,
    request: &ExecuteComposition,
    plan: &Plan,
    (input, context): (Value, Value),
) -> Result<SelectedPart, Error> {
    let mocks = request.mocks.iter().flatten();
    let pinned: Vec<(Arc<str>, Value)> =
        mocks.map(|(step, mock)| (step.clone(), mock.returns.clone())).collect();
    let limits = service.limits();
    let selected = |target: PartTarget<'_>| {
        let selection = calculate(|| StepSelection::new(plan, target, &pinned, &limits));
        selection.map_err(Error::not_admitted)
    };
    let (step, run) = match request.part()? {
        RequestedPart::Whole => {
            let selection = selected(PartTarget::Whole)?;
            return Ok(SelectedPart { selection, input, context });
        }
        RequestedPart::Until(step) => {
            let selection = selected(PartTarget::Until(step))?;
            return Ok(SelectedPart { selection, input, context });
        }
        RequestedPart::Only { step, run } => (step, run),
    };
    let earlier = service.read_run(who, run).await?;
    let taken = Rerun::prepare(&earlier.loaded, plan, None, (&input, &context))?;
    let selection = selected(PartTarget::Only { step, earlier: &earlier.loaded.run })?;
    let Rerun { input, context, selection } =
        Rerun { selection, ..taken }.with_approvals_of(&earlier.loaded, plan);
    Ok(SelectedPart { selection, input, context })
}
