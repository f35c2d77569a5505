//! Paths and keys of steps, and properties that follow from a step's place in the run.

use std::fmt::Write as _;
use std::sync::Arc;

use super::Purpose;
use super::frame::StepState;
use super::journal::NodeId;
use super::node::NodeState;
use super::state::{RunState, index};
use crate::composition::{ResolvedRollback, StepKind, WaitFor};
use crate::value::Value;

/// Capacity for the part of a key after the run's id; longer keys grow.
const KEY_BYTES: usize = 64;

impl RunState {
    /// The step's path, with enclosing bodies and iterations: `each[2]/parse`. A later visit of a
    /// program's step has a number: `poll#2`.
    pub(super) fn path(&self, node: NodeId) -> Arc<str> {
        let id = &self.step(node).id;
        let again = self.step_state(node).visit;
        let again = if again > 1 { Some(Arc::from(format!("{id}#{again}"))) } else { None };
        let id = again.as_ref().unwrap_or(id);
        let frame = self.frame(node.frame);
        match frame.parent {
            None => id.clone(),
            Some(parent) => {
                let mut outer = self.path(parent);
                if self.body_rolls_back(frame.activation, frame.body) {
                    outer = format!("{outer}~undo").into();
                }
                match &frame.item {
                    Some(item) => format!("{outer}[{}]/{id}", item.index).into(),
                    None => format!("{outer}/{id}").into(),
                }
            }
        }
    }

    /// The idempotency key of a step's work: the run, the step's path with enclosing rounds and
    /// attempts that a path does not show, and the current fallback. Built in one allocation,
    /// because every call has one.
    pub(super) fn call_key(&self, node: NodeId, purpose: Purpose) -> Arc<str> {
        let run = self.started.as_ref().map_or("", |started| &*started.run_id);
        let mut key = String::with_capacity(run.len() + KEY_BYTES);
        key.push_str(run);
        key.push('/');
        self.write_key(&mut key, node);
        key.push_str(match purpose {
            Purpose::Work => "",
            // Rollbacks and probes have keys of their own: they are other work.
            Purpose::Rollback => "/undo",
            Purpose::Probe => "/probe",
        });
        key.into()
    }

    /// The keys of recorded calls without an answer.
    pub(super) fn open_call_keys(&self) -> Vec<Arc<str>> {
        let nodes = (0..index(self.frames.len())).flat_map(|frame| self.nodes_of(frame));
        let open = nodes.filter_map(|node| {
            let purpose = match self.step_state(node).node {
                NodeState::Calling { .. } => Purpose::Work,
                NodeState::Probing { .. } => Purpose::Probe,
                NodeState::RollingBack { .. } => Purpose::Rollback,
                _ => return None,
            };
            Some(self.call_key(node, purpose))
        });
        open.collect()
    }

    fn write_key(&self, key: &mut String, node: NodeId) {
        let frame = self.frame(node.frame);
        if let Some(parent) = frame.parent {
            self.write_key(key, parent);
            let back =
                if self.body_rolls_back(frame.activation, frame.body) { "~undo" } else { "" };
            let _ = write!(key, "{back}[{}]/", frame.ordinal);
        }
        key.push_str(&self.step(node).id);
        let StepState { candidate, visit, .. } = *self.step_state(node);
        if visit > 1 {
            let _ = write!(key, "#{visit}");
        }
        if candidate > 0 {
            let _ = write!(key, "~{candidate}");
        }
    }

    /// The rollback of a step, for the tool that was tried last.
    pub(super) fn resolved_rollback(&self, node: NodeId) -> &ResolvedRollback {
        let step = self.step(node);
        match self.step_state(node).candidate {
            0 => &step.resolved_rollback,
            fallback => &step.fallback_rollbacks[usize::from(fallback) - 1],
        }
    }

    /// Whether a failure was tolerated anywhere below; branches that lost a race do not count.
    pub(super) fn has_tolerated(&self, frame: u32) -> bool {
        self.frame(frame).nodes.iter().enumerate().any(|(position, record)| {
            let node = NodeId { frame, position: index(position) };
            let kind = &self.step(node).kind;
            let done = matches!(record.node, NodeState::Done { .. });
            let loses_an_item = done && matches!(kind, StepKind::Loop(_)) && record.has_failed_body;
            matches!(record.node, NodeState::Tolerated { .. })
                || loses_an_item
                || self.outcome_frames(node).iter().any(|inner| self.has_tolerated(*inner))
        })
    }

    /// Whether the outcome of a failed or aborted call below is unknown.
    pub(super) fn has_doubt(&self, frame: u32) -> bool {
        self.frame(frame).nodes.iter().any(|record| {
            let doubt = match &record.node {
                NodeState::Failed { failure } | NodeState::Tolerated { failure, .. } => {
                    failure.in_doubt
                }
                NodeState::Cancelled { in_doubt } => *in_doubt,
                _ => false,
            };
            doubt || record.frames.iter().any(|inner| self.has_doubt(*inner))
        })
    }

    /// The frames that decide a step's outcome: the winner of a race; the last of several attempts
    /// of a composition, unless a call followed.
    pub(super) fn outcome_frames(&self, node: NodeId) -> &[u32] {
        let record = self.step_state(node);
        match &self.step(node).kind {
            StepKind::Parallel { branches, wait_for: WaitFor::Any | WaitFor::FirstSuccess } => {
                let value = record.node.output().filter(|_| record.node.failure().is_none());
                let Some(value) = value else { return record.attempt_frames() };
                let winner = value.get("winner").and_then(Value::as_str);
                let position = branches.iter().position(|branch| Some(&*branch.id) == winner);
                // A step whose value was given or reused has no frames.
                let frames = record.attempt_frames();
                position.and_then(|at| frames.get(at..=at)).unwrap_or_default()
            }
            StepKind::Tool(_) if !self.planned(node).nested.contains_key(&record.candidate) => &[],
            StepKind::Tool(_) => record.frames.last().map_or(&[], std::slice::from_ref),
            _ => record.attempt_frames(),
        }
    }
}
