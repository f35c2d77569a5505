//! A run that takes over what an earlier one has found out.

use std::sync::Arc;

use super::Run;
use super::forward::Moment;
use super::journal::{Fact, NodeId, Started};
use super::node::Node;
use crate::composition::Flow;
use crate::diagnostic::nearest;
use crate::plan::Plan;
use crate::value::{Map, Value};

/// A step's value out of an earlier run.
#[derive(Clone, Debug)]
pub struct Reused {
    /// The step's position among the composition's own.
    pub position: u32,
    /// Its value.
    pub output: Value,
    /// Names that it gave.
    pub given: Option<Arc<Map>>,
}

impl Run {
    /// What a run of `plan` from a step on takes over from this one: the value of every step that
    /// was done and comes before it, or has nothing to do with it. The plan may have changed
    /// meanwhile; steps are the same when they are called the same.
    pub fn reusable(&self, plan: &Plan, from: &str) -> Result<Vec<Reused>, String> {
        if plan.bodies[0].flow == Flow::Program {
            return Err(
                "a chain cannot be run from a step on: where it goes depends on how it got there"
                    .to_owned(),
            );
        }
        let ids = || plan.steps_of(0).map(|step| &*step.step.id);
        let Some(start) = ids().position(|id| id == from) else {
            let near = nearest(from, ids())
                .map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
            return Err(format!("there is no step `{from}` that a run could begin with{near}"));
        };
        let again = downstream(plan, start);
        let mut reused = Vec::new();
        for (position, step) in plan.steps_of(0).enumerate().filter(|(at, _)| !again[*at]) {
            let known =
                self.state.nodes_of(0).find(|node| self.state.step(*node).id == step.step.id);
            let Some(record) = known.map(|node| self.state.record(node)) else { continue };
            if let Node::Done { output } = &record.node
                && self.state.forgotten(output).is_none()
            {
                let position = u32::try_from(position).unwrap_or(u32::MAX);
                reused.push(Reused {
                    position,
                    output: output.clone(),
                    given: record.given.clone(),
                });
            }
        }
        Ok(reused)
    }
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

impl Moment<'_> {
    /// The run begins with values of an earlier one.
    pub(super) fn start_again(&mut self, started: Box<Started>, reused: Vec<Reused>) {
        if self.state.started.is_some() {
            return;
        }
        self.start_run(started);
        for Reused { position, output, given } in reused {
            let node = NodeId { frame: 0, position };
            self.record(Fact::Reused { node, output, given });
        }
    }
}
