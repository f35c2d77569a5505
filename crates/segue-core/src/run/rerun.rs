//! A run that takes over what an earlier one has found out.

use std::sync::Arc;

use super::Run;
use super::advance::TurnBuilder;
use super::journal::{Fact, NodeId, Started};
use super::node::NodeState;
use super::redact::has_sensitive;
use crate::composition::{Flow, Step};
use crate::diagnostic::nearest_name;
use crate::expr::{Ast, AstKind, ExprRoot, StepIndex};
use crate::plan::Plan;
use crate::value::{Map, Shared, Value};

/// A step's value out of an earlier run.
#[derive(Clone, Debug)]
pub struct ReusedStep {
    /// The step's position among the composition's own.
    pub position: u32,
    /// Its value.
    pub output: Value,
    /// Names that it gave.
    pub given: Option<Shared<Map>>,
}

impl Run {
    /// What a run of `plan` from a step on takes over from this one: the value of every step that
    /// was done and comes before it, or has nothing to do with it. The plan may have changed
    /// meanwhile; steps are the same when they are called the same. A step whose value is needed and
    /// was not kept is not done a second time behind anybody's back: then there is nothing to take
    /// over, and why.
    pub fn reusable_steps(&self, plan: &Plan, from: &str) -> Result<Vec<ReusedStep>, String> {
        if plan.bodies[0].flow == Flow::Program {
            return Err(
                "a chain cannot be run from a step on: where it goes depends on how it got there"
                    .to_owned(),
            );
        }
        let ids = || plan.steps_of(0).map(|step| &*step.step.id);
        let Some(start) = ids().position(|id| id == from) else {
            let near = nearest_name(from, ids())
                .map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
            return Err(format!("there is no step `{from}` that a run could begin with{near}"));
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
                        "the value of `{id}` is sensitive and was not kept, so the run cannot begin \
                         after it: `--from {id}` calls it again"
                    ));
                }
                let position = u32::try_from(position).unwrap_or(u32::MAX);
                reused.push(ReusedStep {
                    position,
                    output: output.clone(),
                    given: record.assigned_names.clone(),
                });
            }
        }
        Ok(reused)
    }

    /// A member of what this run was given, or of what is made of it, that was not kept.
    pub fn redacted_member(&self, given: &Value) -> Option<Arc<str>> {
        let members = given.as_object()?.iter();
        let mut forgotten = members.filter(|(_, member)| self.state.has_redacted_part(member));
        forgotten.next().map(|(name, _)| name.clone())
    }
}

/// Whether one of the steps that run again reads the value of a step that does not, or the output of
/// the composition does.
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

/// Whether an expression names a step, or something that it gave.
fn refers_to(ast: &Ast, step: StepIndex) -> bool {
    if let AstKind::Name { root: ExprRoot::Step(index) | ExprRoot::Given(index, _), .. } = &ast.kind
    {
        return *index == step;
    }
    let mut found = false;
    ast.children(&mut |child| found |= refers_to(child, step));
    found
}

/// The step and everything that needs it, at any distance.
fn downstream(plan: &Plan, start: usize) -> Vec<bool> {
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

impl TurnBuilder<'_> {
    /// The run begins with values of an earlier one.
    pub(super) fn start_rerun(&mut self, started: Box<Started>, reused: Vec<ReusedStep>) {
        if self.state.started.is_some() {
            return;
        }
        self.start_run(started);
        for ReusedStep { position, output, given } in reused {
            let node = NodeId { frame: 0, position };
            self.record(Fact::Reused { node, output, given });
        }
    }
}
