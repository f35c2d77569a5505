//! A composition, perhaps with errors → its steps as a plan shows them.

use std::sync::Arc;

use crate::composition::{Body, Composition, Step};
use crate::limits::Limits;
use crate::plan::plan;
use crate::view::{PlanStepView, step_views};

pub(super) fn of(
    composition: &Arc<Composition>,
    is_sound: bool,
    limits: &Limits,
) -> Vec<PlanStepView> {
    let composition = if is_sound {
        composition.clone()
    } else {
        // A step that could not be read leaves a gap in the indices, which a plan cannot have.
        let mut numbered = (**composition).clone();
        number(&mut numbered.body, &mut 0);
        Arc::new(numbered)
    };
    let Ok(plan) = plan(&composition, limits) else { return Vec::new() };
    step_views(&plan, 0, &composition.body)
}

fn number(body: &mut Body, next: &mut u32) {
    for step in &mut body.steps {
        let step: &mut Step = Arc::make_mut(step);
        step.index = *next;
        *next += 1;
        step.kind.bodies_mut().into_iter().for_each(|inner| number(inner, next));
    }
}
