//! The expected end of a composition, and its rollback.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use segue_core::composition::{ResolvedRollback, StepKind, Strategy, ToolCall};
use segue_core::diagnostic::Code;
use segue_core::run::{Answer, CallId, Fact, Failure, NodeId};
use segue_core::tool::Impact;
use segue_core::value::Value;
use segue_core::view::RunStatus;

use super::scope::Sight;
use super::tool::candidate_call;
use super::{Back, End, Made, Model, Verdict, sibling};

/// Maximum attempts to roll one step back.
const ROLLBACK_TRIES: usize = 5;

impl Model<'_> {
    /// Forward execution is known: the status of the run.
    pub(super) fn ending(mut self) -> Verdict {
        let forward = self.forward_status();
        let went_back = self.rolls_back(0);
        let result = match forward {
            RunStatus::Success | RunStatus::Partial => {
                self.result(0, forward == RunStatus::Success)
            }
            _ => Ok(Value::Null),
        };
        let outcomes = || self.back.iter().flat_map(|(_, steps)| steps.iter());
        let left = outcomes().any(|(_, outcome)| *outcome == Back::Left);
        let (status, output) = if !went_back || outcomes().next().is_none() {
            match result {
                Ok(output) => (forward, output),
                Err(_) => (RunStatus::Failed, Value::Null),
            }
        } else {
            match (left, forward) {
                (true, _) => (RunStatus::RollbackFailed, Value::Null),
                (false, RunStatus::Partial) => (RunStatus::Partial, self.remaining()),
                (false, _) => (RunStatus::RolledBack, Value::Null),
            }
        };
        let Model { ends, calls, wrong, back, kept, .. } = self;
        Verdict { status, output, ends, calls, back, kept, wrong }
    }

    /// The steps that were rolled back so far, or could not be.
    fn handled(&self) -> BTreeSet<NodeId> {
        self.back.iter().flat_map(|(_, steps)| steps.iter().map(|(node, _)| *node)).collect()
    }

    /// The result without the steps that were rolled back.
    fn remaining(&self) -> Value {
        let result = self.result(0, false).unwrap_or_default();
        if self.story.plan.composition.output.is_some() {
            return result;
        }
        let rolled_back = self.handled();
        let Value::Object(members) = &result else { return result };
        let mut left = (**members).clone();
        for node in self.nodes_of(0) {
            let step = self.trace.step(node);
            let key = step.output_key.as_ref().map_or(&step.id, |(key, _)| key);
            if rolled_back.contains(&node) {
                left.shift_remove(key);
            }
        }
        left.into()
    }

    fn forward_status(&self) -> RunStatus {
        if self.trace.frame(0).stopped.is_some() {
            return match self.stop_failure(0).code {
                Code::Cancelled => RunStatus::Cancelled,
                Code::Denied => RunStatus::Denied,
                _ => RunStatus::Failed,
            };
        }
        let nodes = self.nodes_of(0);
        if !nodes.iter().any(|node| matches!(self.ends[node].end, End::Failed(_))) {
            let tolerated = self.has_tolerated(0);
            return if tolerated { RunStatus::Partial } else { RunStatus::Success };
        }
        let reached = nodes.iter().any(|node| {
            self.trace.planned(*node).dependants.is_empty() && self.ends[node].end.value().is_some()
        });
        if reached { RunStatus::Partial } else { RunStatus::Failed }
    }

    /// A failed composition rolls back, if it is configured to; returns whether it did.
    pub(super) fn rolls_back(&mut self, root: u32) -> bool {
        let handling = &self.trace.frame(root).plan.composition.error_handling;
        let wanted = handling.rollback_on_failure || self.strategy(root) == Strategy::Rollback;
        let fails = self.trace.frame(root).stopped.is_some()
            || self.nodes_of(root).iter().any(|n| matches!(self.ends[n].end, End::Failed(_)))
            || self.result(root, true).is_err();
        if !wanted || !fails {
            return false;
        }
        let steps = self.to_roll_back(&[root], false);
        let back = self.roll_back_all(steps);
        self.back.push((root, back));
        true
    }

    /// Rolls back the failed attempt of a step with bodies, if its composition rolls back; whether
    /// nothing is left of it, and where that was over.
    pub(super) fn roll_back_attempt(&mut self, node: NodeId) -> (bool, Option<u64>) {
        let handling = &self.trace.frame(node.frame).plan.composition.error_handling;
        let wanted =
            handling.rollback_on_failure || self.strategy(node.frame) == Strategy::Rollback;
        let frames = self.children(node).to_vec();
        let steps = if wanted { self.to_roll_back(&frames, true) } else { Vec::new() };
        if steps.is_empty() {
            return (true, None);
        }
        let last = steps.last().copied();
        let back = self.roll_back_all(steps);
        self.back.push((frames[0], back));
        let inside = |node: &NodeId| frames.iter().any(|f| self.trace.is_inside(node.frame, *f));
        let mut all = self.back.iter().flat_map(|(_, steps)| steps);
        let is_clean = !all.any(|(node, outcome)| inside(node) && *outcome == Back::Left);
        (is_clean, last.and_then(|node| self.rolled_back_at(node)))
    }

    /// Where the rollback of a step was over.
    fn rolled_back_at(&self, node: NodeId) -> Option<u64> {
        let facts = self.trace.facts(node).iter().map(|at| &self.story.journal[*at]);
        facts
            .filter(|entry| {
                matches!(entry.fact, Fact::RolledBack { .. } | Fact::RollbackFailed { .. })
            })
            .map(|entry| entry.seq)
            .next()
    }

    fn roll_back_all(&mut self, steps: Vec<NodeId>) -> Vec<(NodeId, Back)> {
        let pivots: Vec<NodeId> = steps.iter().copied().filter(|n| self.is_pivot(*n)).collect();
        let mut back = Vec::new();
        for node in steps {
            // A dependency of an irreversible step stays.
            let kept = pivots.iter().any(|pivot| self.leads_to(node, *pivot));
            if kept {
                self.kept.insert(node);
            }
            let outcome = if kept { Back::Left } else { self.roll_back(node) };
            back.push((node, outcome));
        }
        back
    }

    /// Everything below that was done, or may have been, and is to be rolled back; last settled
    /// first.
    fn to_roll_back(&self, roots: &[u32], is_attempt: bool) -> Vec<NodeId> {
        let handled = self.handled();
        let mut nodes: Vec<NodeId> = self
            .trace
            .nodes()
            .filter(|node| roots.iter().any(|root| self.trace.is_inside(node.frame, *root)))
            .filter(|node| !handled.contains(node))
            .filter(|node| self.ends.get(node).is_some_and(|ended| ended.end.left_a_trace()))
            .filter(|node| self.is_traceable(*node))
            .filter(|node| !self.is_covered(*node))
            .filter(|node| is_attempt || !self.led_to_a_result(*node, roots[0]))
            .collect();
        nodes.sort_by_key(|node| Reverse(self.settled_seq(*node)));
        nodes
    }

    fn rollback_of(&self, node: NodeId) -> &ResolvedRollback {
        let step = self.trace.step(node);
        match self.ends[&node].candidate {
            0 => &step.resolved_rollback,
            fallback => &step.fallback_rollbacks[usize::from(fallback) - 1],
        }
    }

    /// Whether a step may have side effects to roll back.
    fn is_traceable(&self, node: NodeId) -> bool {
        let step = self.trace.step(node);
        match self.rollback_of(node) {
            ResolvedRollback::NotNeeded => false,
            ResolvedRollback::Call(_) | ResolvedRollback::Impossible { .. } => true,
            ResolvedRollback::Unknown if matches!(step.kind, StepKind::Tool(_)) => {
                let call = candidate_call(step, self.ends[&node].candidate);
                let tool = call.tool.as_ref().unwrap();
                let impact = tool.annotations.impact();
                tool.composition.is_none() && !matches!(impact, Impact::None | Impact::Reads)
            }
            ResolvedRollback::Unknown => false,
        }
    }

    /// Whether an enclosing step has a rollback of its own for the attempt that contained this one.
    fn is_covered(&self, node: NodeId) -> bool {
        let mut frame = node.frame;
        while let Some(around) = self.trace.frame(frame).parent {
            let is_last = self.trace.children(around).last() == Some(&frame);
            let ended = self.ends.get(&around);
            let done = ended.is_some_and(|ended| matches!(ended.end, End::Done(_)));
            if is_last && done && matches!(self.rollback_of(around), ResolvedRollback::Call(_)) {
                return true;
            }
            frame = around.frame;
        }
        false
    }

    /// Under `partial_success`, steps that contributed to a result stay.
    fn led_to_a_result(&self, node: NodeId, root: u32) -> bool {
        if self.strategy(root) != Strategy::PartialSuccess
            || self.trace.frame(root).stopped.is_some()
        {
            return false;
        }
        let mut top = node;
        while let (true, Some(parent)) = (top.frame != root, self.trace.frame(top.frame).parent) {
            top = parent;
        }
        self.reaches_a_sink(top)
    }

    /// A step without a value contributes nothing.
    fn reaches_a_sink(&self, node: NodeId) -> bool {
        let dependants = &self.trace.planned(node).dependants;
        self.ends[&node].end.value().is_some()
            && (dependants.is_empty()
                || dependants.iter().any(|at| self.reaches_a_sink(sibling(node, *at as usize))))
    }

    fn is_pivot(&self, node: NodeId) -> bool {
        matches!(self.ends[&node].end, End::Done(_))
            && matches!(self.rollback_of(node), ResolvedRollback::Impossible { .. })
    }

    /// Whether one step is a dependency of another, directly or indirectly.
    fn leads_to(&self, first: NodeId, second: NodeId) -> bool {
        let above = |node: NodeId| {
            std::iter::successors(Some(node), |node| self.trace.frame(node.frame).parent)
        };
        let common = above(first)
            .find_map(|one| above(second).find(|two| two.frame == one.frame).map(|two| (one, two)));
        common.is_some_and(|(one, two)| self.needed_by(one, two))
    }

    fn needed_by(&self, one: NodeId, two: NodeId) -> bool {
        self.trace
            .planned(one)
            .dependants
            .iter()
            .any(|at| *at == two.position || self.needed_by(sibling(one, *at as usize), two))
    }

    fn roll_back(&mut self, node: NodeId) -> Back {
        let ResolvedRollback::Call(call) = self.rollback_of(node).clone() else {
            return Back::Left;
        };
        let Ok(args) = self.rollback_arguments(node, &call) else { return Back::Left };
        let tool = call.tool.clone().unwrap();
        let first = self.ends[&node].attempts + 1;
        for (tries, attempt) in (1..).zip(first..) {
            let id = CallId { node, attempt };
            self.calls.push(Made { call: id, tool: tool.id.to_string(), args: args.clone() });
            let Some((_, answer)) = self.answer(id) else {
                self.puzzled(node, "its undo was never answered");
                return Back::Left;
            };
            let again = match answer {
                // Its engine stopped.
                None if tool.is_repeatable() => continue,
                None => false,
                Some(Answer::Value(_)) => return Back::RolledBack,
                Some(Answer::Failure(failure)) => {
                    failure.retryable && (!failure.in_doubt || tool.is_repeatable())
                }
                Some(Answer::TimedOut | Answer::Aborted) => tool.is_repeatable(),
                Some(Answer::Unsent) => true,
            };
            if !again || tries >= ROLLBACK_TRIES {
                break;
            }
        }
        Back::Left
    }

    fn rollback_arguments(&self, node: NodeId, call: &ToolCall) -> Result<Value, Failure> {
        let ended = &self.ends[&node];
        let mut sight = Sight::new(self, node.frame);
        (sight.output, sight.args) = (ended.end.value(), Some(&ended.args));
        let args =
            call.parameters.template.eval(&sight, &self.limits).map_err(super::expression)?;
        let fits = call.tool.as_ref().unwrap().input.violations(&args).is_empty();
        if fits { Ok(args) } else { Err(Failure::permanent(Code::RollbackFailed, "arguments")) }
    }
}
