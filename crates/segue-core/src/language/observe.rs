//! A run → what it showed of the steps of its composition.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Observations;
use crate::id::without_iterations;
use crate::plan::{BodyIndex, Plan};
use crate::view::{RunView, StepStatus};

impl Observations {
    /// The last value of each step of the composition itself, as the view of a run shows it: without
    /// sensitive values, and without steps of compositions that it calls.
    pub fn of_run(plan: &Plan, view: &RunView) -> Observations {
        let ids = step_ids(plan);
        let mut observations = Observations::default();
        for step in view.steps.iter().filter(|step| step.status == StepStatus::Success) {
            if let Some(id) = ids.get(&without_iterations(&step.id)) {
                observations.steps.insert(id.clone(), step.output.clone());
            }
        }
        observations
    }
}

/// The id of each step of the composition itself by its path, without iterations.
pub(super) fn step_ids(plan: &Plan) -> BTreeMap<String, Arc<str>> {
    let mut ids = BTreeMap::new();
    add_paths(plan, 0, "", &mut ids);
    ids
}

/// The path of each step of a body, with its id.
fn add_paths(plan: &Plan, body: BodyIndex, outer: &str, ids: &mut BTreeMap<String, Arc<str>>) {
    for planned in plan.steps_of(body) {
        let path = format!("{outer}{}", planned.step.id);
        for inner in &planned.bodies {
            add_paths(plan, *inner, &format!("{path}/"), ids);
        }
        ids.insert(path, planned.step.id.clone());
    }
}
