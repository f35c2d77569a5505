//! The end of a composition: its status and its result.

use std::sync::Arc;

use super::advance::{StepResult, TurnBuilder, evaluation_failure};
use super::frame::StepState;
use super::journal::Fact;
use super::node::NodeState;
use super::scope::FrameScope;
use super::state::RunState;
use crate::compile::given_names;
use crate::composition::Flow;
use crate::diagnostic::Code;
use crate::expr::Template;
use crate::value::{Map, Value};
use crate::view::RunStatus;

impl TurnBuilder<'_> {
    /// Ends the run.
    pub(super) fn finish(&mut self) {
        if self.state.activation_of(0).rollback.is_some() {
            self.finish_rollback();
        } else {
            self.finish_forward();
        }
    }

    /// Forward execution has ended, and there is nothing to roll back.
    pub(super) fn finish_forward(&mut self) {
        let status = self.final_status();
        let result = match status {
            RunStatus::Success => self.result(0, true),
            RunStatus::Partial => self.result(0, false),
            // A failed run has no result: an error is never a value.
            _ => Ok(Value::Null),
        };
        let (status, output, failure) = match result {
            Ok(output) => (status, output, self.state.frame(0).stopped.clone()),
            Err(failure) => (RunStatus::Failed, Value::Null, Some(Arc::new(failure))),
        };
        self.record(Fact::Finished { status, output, failure });
    }

    /// The status from how the run's own steps ended.
    pub(super) fn final_status(&self) -> RunStatus {
        let root = self.state.frame(0);
        match root.stopped.as_ref().map(|failure| failure.code) {
            Some(Code::Cancelled) => return RunStatus::Cancelled,
            Some(Code::Denied) => return RunStatus::Denied,
            Some(_) => return RunStatus::Failed,
            None => {}
        }
        let plan = self.state.plan_of(0);
        let failed = |record: &StepState| {
            let tolerated = matches!(record.node, NodeState::Tolerated { .. });
            record.node.failure().is_some() && !tolerated
        };
        if !root.nodes.iter().any(failed) {
            // A program that continues after a failure succeeds.
            let is_program = plan.composition.body.flow == Flow::Program;
            let partial = !is_program && self.state.has_tolerated(0);
            return if partial { RunStatus::Partial } else { RunStatus::Success };
        }
        // Every step of a part leads to its end, which has no value now.
        if self.state.leaves_out_steps() {
            return RunStatus::Failed;
        }
        // Partial if a step that no other depends on has a value.
        let mut nodes = self.state.nodes_of(0);
        let is_sink = |node| self.state.planned(node).dependants.is_empty();
        if nodes.any(|node| is_sink(node) && self.state.step_state(node).node.output().is_some()) {
            RunStatus::Partial
        } else {
            RunStatus::Failed
        }
    }

    /// The result of a composition: its `output`, else every output key with its value and, of a
    /// chain, the names that it set. After a failure, and if steps are left out, parts that
    /// cannot be evaluated are omitted, instead of a second failure.
    pub(super) fn result(&self, frame: u32, complete: bool) -> StepResult<Value> {
        let plan = self.state.plan_of(frame);
        let complete = complete && !(frame == 0 && self.state.leaves_out_steps());
        if let Some(output) = &plan.composition.output {
            let scope = FrameScope::new(self.state, frame);
            return match output.eval(&scope, self.limits) {
                Ok(value) => Ok(value),
                Err(_) if !complete => Ok(self.partial_output(output, &scope)),
                Err(error) => Err(evaluation_failure(error)),
            };
        }
        let mut results = results(self.state, frame);
        results.extend(names_set(self.state, frame));
        Ok(results.into())
    }
}

impl TurnBuilder<'_> {
    /// The members of an output that can be evaluated.
    fn partial_output(&self, output: &Template, scope: &FrameScope<'_>) -> Value {
        let Template::Object(members) = output else { return Value::Null };
        let known = members.iter().filter_map(|(name, member)| {
            member.eval(scope, self.limits).ok().map(|value| (name.clone(), value))
        });
        known.collect::<Map>().into()
    }
}

/// The names that the steps of a chain set, with their last values. Other dialects have none.
fn names_set(state: &RunState, frame: u32) -> Map {
    let mut set = Map::new();
    if let Value::Object(names) = &state.activation_of(frame).names {
        state.plan_of(frame).composition.body.walk(&mut |step| {
            for name in given_names(step) {
                if let Some(value) = names.get(&name) {
                    set.insert(name, value.clone());
                }
            }
        });
    }
    set
}

/// Every output key of an activation with its value; for a program's step, the last visit's.
pub(super) fn results(state: &RunState, frame: u32) -> Map {
    let mut results = Map::with_capacity(state.frame(frame).nodes.len());
    for node in state.nodes_of(frame) {
        // A rolled back step has no result.
        if let NodeState::Done { output } | NodeState::Tolerated { output, .. } =
            &state.step_state(node).node
        {
            let step = state.step(node);
            let key = step.output_key.as_ref().map_or(&step.id, |(key, _)| key);
            results.insert(key.clone(), output.clone());
        }
    }
    results
}
