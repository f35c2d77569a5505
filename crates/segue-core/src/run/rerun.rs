//! Reruns: a run that reuses values of an earlier one.

use std::sync::Arc;

use super::Run;
use super::node::NodeState;
use super::redact::has_sensitive;
use crate::composition::{Flow, Step};
use crate::diagnostic::nearest_name;
use crate::expr::{Ast, AstKind, ExprRoot, StepIndex};
use crate::plan::Plan;
use crate::value::{Map, Shared, Value};
use crate::view::StepOrigin;

/// A step's value from an earlier run.
#[derive(Clone, Debug)]
pub struct ReusedStep {
    /// The step's position among the composition's own.
    pub position: u32,
    /// Its value.
    pub output: Value,
    /// Names that it set.
    pub given: Option<Shared<Map>>,
    /// Whether the earlier run did not compute it either: it was given.
    pub is_pinned: bool,
}

impl Run {
    /// The values that a run of `plan` from a step on reuses from this run: those of every finished
    /// step that does not depend on that step. The plan may have changed meanwhile; steps are
    /// matched by id. If a needed value was redacted, the rerun is refused with the reason, instead
    /// of silently calling that step again.
    pub fn reusable_steps(&self, plan: &Plan, from: &str) -> Result<Vec<ReusedStep>, String> {
        if plan.bodies[0].flow == Flow::Program {
            return Err(
                "a chain cannot start at a later step: its path depends on the steps before"
                    .to_owned(),
            );
        }
        let ids = || plan.steps_of(0).map(|step| &*step.step.id);
        let Some(start) = ids().position(|id| id == from) else {
            let near = nearest_name(from, ids())
                .map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
            return Err(format!("there is no step `{from}` to start from{near}"));
        };
        let again = downstream(plan, start);
        let mut reused = Vec::new();
        for (position, step) in plan.steps_of(0).enumerate().filter(|(at, _)| !again[*at]) {
            let known =
                self.state.nodes_of(0).find(|node| self.state.step(*node).id == step.step.id);
            let Some(record) = known.map(|node| self.state.step_state(node)) else { continue };
            if let NodeState::Done { output } = &record.node {
                let given = record.assigned_names.iter().flat_map(|given| given.values());
                let is_forgotten = given.chain([output]).any(|v| self.state.has_redacted_part(v));
                if is_forgotten && (is_read(plan, position, &again) || !has_sensitive(plan)) {
                    let id = &step.step.id;
                    return Err(format!(
                        "the value of `{id}` is sensitive and was not stored, so the run cannot start \
                         after it: `--from {id}` calls it again"
                    ));
                }
                let position = u32::try_from(position).unwrap_or(u32::MAX);
                reused.push(ReusedStep {
                    position,
                    output: output.clone(),
                    given: record.assigned_names.clone(),
                    is_pinned: record.origin == Some(StepOrigin::Pinned),
                });
            }
        }
        Ok(reused)
    }

    /// The first member of the run's parameters, or of a value made from them, that was redacted.
    pub fn redacted_member(&self, given: &Value) -> Option<Arc<str>> {
        let members = given.as_object()?.iter();
        let mut forgotten = members.filter(|(_, member)| self.state.has_redacted_part(member));
        forgotten.next().map(|(name, _)| name.clone())
    }
}

/// Whether a step that runs again, or the composition's output, reads the value of a step that does
/// not.
fn is_read(plan: &Plan, position: usize, again: &[bool]) -> bool {
    let reads =
        |step: &Step| step.needs.iter().any(|need| need.position == position && need.reads_value);
    if plan.steps_of(0).zip(again).any(|(step, again)| *again && reads(&step.step)) {
        return true;
    }
    let index = plan.bodies[0].steps[position];
    let mut is_read = false;
    if let Some(output) = &plan.composition.output {
        output.exprs(&mut |expr| is_read |= refers_to(expr.ast(), index));
    }
    is_read
}

/// Whether an expression names a step, or a name that it set.
fn refers_to(ast: &Ast, step: StepIndex) -> bool {
    if let AstKind::Name { root: ExprRoot::Step(index) | ExprRoot::Given(index, _), .. } = &ast.kind
    {
        return *index == step;
    }
    let mut found = false;
    ast.children(&mut |child| found |= refers_to(child, step));
    found
}

/// The step and all steps that depend on it, directly or indirectly.
pub(super) fn downstream(plan: &Plan, start: usize) -> Vec<bool> {
    let mut found = vec![false; plan.bodies[0].steps.len()];
    let mut work = vec![start];
    while let Some(at) = work.pop() {
        if !std::mem::replace(&mut found[at], true) {
            let step = plan.step(plan.bodies[0].steps[at]);
            work.extend(step.dependants.iter().map(|dependant| *dependant as usize));
        }
    }
    found
}
