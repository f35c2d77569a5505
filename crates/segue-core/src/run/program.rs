//! The flow of a program: one step at a time, with jumps.

use std::sync::Arc;

use super::advance::TurnBuilder;
use super::journal::{Fact, Failure};
use super::node::NodeState;
use crate::composition::{Next, Target};
use crate::diagnostic::Code;

impl TurnBuilder<'_> {
    /// Moves a program to its next step; false if there is none.
    pub(super) fn advance_program(&mut self, frame: u32) -> bool {
        let Some(position) = self.next_position(frame) else { return false };
        if let Some(failure) = self.visit_limit_failure(frame, position) {
            self.stop(frame, &Arc::new(failure));
            return true;
        }
        self.record(Fact::Visited { frame, position });
        true
    }

    /// The next step of a program.
    fn next_position(&self, frame: u32) -> Option<u32> {
        let here = self.state.frame(frame);
        let visits = here.visits.as_ref()?;
        if here.stopped.is_some() || here.closed {
            return None;
        }
        let planned = &self.state.plan_of(frame).bodies[here.body as usize];
        let Some((last, position)) = here.nodes.last().zip(visits.order.last()) else {
            return (!planned.steps.is_empty()).then_some(0);
        };
        let step = &self.state.plan_of(frame).step(planned.steps[*position as usize]).step;
        let jump: &Option<Next> = match last.node {
            NodeState::Done { .. } => &step.on_success.next,
            NodeState::Tolerated { .. } => &step.on_failure.next,
            NodeState::Skipped { .. } => &None,
            _ => return None,
        };
        match jump.as_ref().map(|next| next.target) {
            None => planned.sequence[*position as usize],
            Some(Target::End) => None,
            Some(Target::Step(target)) => Some(target),
        }
    }

    fn visit_limit_failure(&self, frame: u32, position: u32) -> Option<Failure> {
        let here = self.state.frame(frame);
        let count = here.visits.as_ref()?.counts[position as usize];
        let message = if count >= self.limits.step_visits_max {
            let planned = &self.state.plan_of(frame).bodies[here.body as usize];
            let step = &self.state.plan_of(frame).step(planned.steps[position as usize]).step;
            format!("step `{}` has started {count} times", step.id)
        } else if self.state.visits >= self.limits.run_visits_max {
            format!("the steps of the run have started {} times", self.state.visits)
        } else {
            return None;
        };
        let mut failure = Failure::permanent(Code::LoopLimit, message);
        failure.hint = Some("make sure that the jumps of the chain end".into());
        Some(failure)
    }
}
