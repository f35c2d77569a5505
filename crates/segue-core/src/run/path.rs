//! What a step is called, and what can be told of it from its place in the run.

use std::fmt::Write as _;
use std::sync::Arc;

use super::Purpose;
use super::frame::StepState;
use super::journal::NodeId;
use super::node::NodeState;
use super::state::{RunState, index};
use crate::composition::{ResolvedRollback, StepKind, WaitFor};
use crate::value::Value;

/// Room for what a key has after the run's id; longer ones grow.
const KEY_BYTES: usize = 64;

impl RunState {
    /// The step's id with the bodies and iterations around it: `each[2]/parse`. A later visit of
    /// a program's step says which it is: `poll#2`.
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

    /// What tells the work of a step from all other work: the run, the step's path with the rounds
    /// and attempts around it that a path does not show, and the fallback at hand. Written in one
    /// go, for every call has one.
    pub(super) fn call_key(&self, node: NodeId, purpose: Purpose) -> Arc<str> {
        let run = self.started.as_ref().map_or("", |started| &*started.run_id);
        let mut key = String::with_capacity(run.len() + KEY_BYTES);
        key.push_str(run);
        key.push('/');
        self.write_key(&mut key, node);
        key.push_str(match purpose {
            Purpose::Work => "",
            // Other keys than the step's own: it is other work.
            Purpose::Rollback => "/undo",
            Purpose::Probe => "/probe",
        });
        key.into()
    }

    /// The keys of the calls that were announced and are not answered.
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

    /// What takes a step back: of the tool that was tried last.
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

    /// Whether nobody knows if a call below, that failed or was ended, did its work.
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

    /// The bodies that a step's outcome comes from: of a race that was won, the winner's; of several
    /// attempts at a composition, the last one's, unless a call followed.
    pub(super) fn outcome_frames(&self, node: NodeId) -> &[u32] {
        let record = self.step_state(node);
        match &self.step(node).kind {
            StepKind::Parallel { branches, wait_for: WaitFor::Any | WaitFor::FirstSuccess } => {
                let value = record.node.output().filter(|_| record.node.failure().is_none());
                let Some(value) = value else { return &record.frames };
                let winner = value.get("winner").and_then(Value::as_str);
                let position = branches.iter().position(|branch| Some(&*branch.id) == winner);
                position.map_or(&[], |position| &record.frames[position..=position])
            }
            StepKind::Tool(_) if !self.planned(node).nested.contains_key(&record.candidate) => &[],
            StepKind::Tool(_) => record.frames.last().map_or(&[], std::slice::from_ref),
            _ => &record.frames,
        }
    }
}
