//! The parts of a run's state: activations of compositions, of their bodies, and of steps.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use super::journal::{Failure, LoopItem, NodeId};
use super::node::NodeState;
use super::resume::ResumeHandle;
use crate::composition::Strategy;
use crate::expr::StepIndex;
use crate::plan::{BodyIndex, Plan};
use crate::value::{Map, Shared, Value};
use crate::view::StepOrigin;

/// One activation of a composition: the run's own, or one that a step entered.
#[derive(Debug)]
pub(super) struct Activation {
    pub(super) plan: Arc<Plan>,
    pub(super) input: Value,
    /// The frame of its own steps.
    pub(super) root: u32,
    /// The composition around it.
    pub(super) parent: Option<u32>,
    /// The number of compositions around it.
    pub(super) depth: usize,
    /// Whether it rolls back the step that entered it.
    pub(super) is_rollback: bool,
    /// Whether it is a rollback, or inside one.
    pub(super) is_inside_rollback: bool,
    /// The activation with consent as a whole: this one, or one around it.
    pub(super) covered_by: Option<u32>,
    /// Steps of this activation, and of inner ones, that hold a concurrency slot.
    pub(super) running: u32,
    pub(super) max_concurrency: u32,
    pub(super) strategy: Strategy,
    /// Steps whose needs are met, the most urgent first.
    pub(super) ready: BinaryHeap<ReadyStep>,
    /// Whether it is queued as having a step to start.
    pub(super) is_runnable: bool,
    /// Open frames, here and inside.
    pub(super) open_frames: u32,
    /// The state of a chain.
    pub(super) names: Value,
    /// Its rollback, once started.
    pub(super) rollback: Option<Rollback>,
}

/// The rollback of a composition, or of a failed attempt of a step with bodies.
#[derive(Debug)]
pub(super) struct Rollback {
    /// The failure that caused the rollback.
    pub(super) cause: Arc<Failure>,
    /// Steps still to roll back, the next one last.
    pub(super) remaining: Vec<NodeId>,
    /// The step that is being rolled back.
    pub(super) current: Option<NodeId>,
    /// Steps that are not rolled back, each with the later step that cannot be.
    pub(super) blocked: BTreeMap<NodeId, NodeId>,
}

impl Rollback {
    /// A step of this rollback changed; false if it is not the next or current one.
    pub(super) fn advance(&mut self, node: NodeId, is_over: bool) -> bool {
        if self.remaining.last() == Some(&node) {
            self.remaining.pop();
        } else if self.current != Some(node) {
            return false;
        }
        self.current = (!is_over).then_some(node);
        true
    }
}

impl Activation {
    /// Whether a failure rolls this composition back.
    pub(super) fn rolls_back_on_failure(&self) -> bool {
        let handling = &self.plan.composition.error_handling;
        handling.rollback_on_failure || self.strategy == Strategy::Rollback
    }

    pub(super) fn new(plan: Arc<Plan>, input: Value, root: u32) -> Activation {
        let composition = &plan.composition;
        Activation {
            max_concurrency: composition.max_concurrency,
            strategy: composition.error_handling.strategy,
            running: 0,
            ready: BinaryHeap::new(),
            is_runnable: false,
            root,
            parent: None,
            depth: 0,
            is_rollback: false,
            is_inside_rollback: false,
            covered_by: None,
            open_frames: 0,
            names: Value::Null,
            rollback: None,
            input,
            plan,
        }
    }
}

/// A step whose needs are met. The one with the longer path to the end goes first if durations are
/// known; otherwise the order of the text decides.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ReadyStep {
    remaining_ms: u64,
    order: Reverse<(u32, u32)>,
}

impl ReadyStep {
    pub(super) fn new(node: NodeId, remaining_ms: u64) -> ReadyStep {
        ReadyStep { remaining_ms, order: Reverse((node.frame, node.position)) }
    }

    pub(super) fn node(&self) -> NodeId {
        let Reverse((frame, position)) = self.order;
        NodeId { frame, position }
    }
}

/// One activation of a body.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) activation: u32,
    pub(super) body: BodyIndex,
    pub(super) parent: Option<NodeId>,
    pub(super) item: Option<LoopItem>,
    /// How many frames its step had opened before.
    pub(super) ordinal: u32,
    /// The steps of a graph in the order of the text; of a program, in the order of visits.
    pub(super) nodes: Vec<StepState>,
    /// The visits of a program.
    pub(super) visits: Option<Visits>,
    /// Steps that are not settled.
    pub(super) unsettled: u32,
    /// Steps that have started and are not settled.
    pub(super) active: u32,
    /// Why nothing new starts in this frame.
    pub(super) stopped: Option<Arc<Failure>>,
    pub(super) closed: bool,
}

impl Frame {
    /// The position in the body of a node's step.
    pub(super) fn step_position(&self, node: u32) -> u32 {
        self.visits.as_ref().map_or(node, |visits| visits.order[node as usize])
    }

    /// The node of a step: its only one, or that of its last visit.
    pub(super) fn node_of(&self, position: u32) -> Option<u32> {
        match &self.visits {
            None => Some(position),
            Some(visits) => visits.latest[position as usize],
        }
    }
}

/// The visits of a program.
#[derive(Debug)]
pub(super) struct Visits {
    /// The steps, by position in the body, in the order of visits.
    pub(super) order: Vec<u32>,
    /// How often each step was visited.
    pub(super) counts: Vec<u32>,
    /// The last finished visit of each step.
    pub(super) latest: Vec<Option<u32>>,
}

impl Visits {
    pub(super) fn new(steps: usize) -> Visits {
        Visits { order: Vec::new(), counts: vec![0; steps], latest: vec![None; steps] }
    }
}

/// The state of a step.
#[derive(Debug, Default)]
pub(super) struct StepState {
    /// Its index in the plan.
    pub(super) step: StepIndex,
    pub(super) node: NodeState,
    /// The number of unsettled needs.
    pub(super) waiting: u32,
    pub(super) attempts: u32,
    /// Attempts of the current tool or fallback.
    pub(super) candidate_attempts: u32,
    pub(super) started_ms: u64,
    /// Start of the current attempt.
    pub(super) attempt_ms: u64,
    pub(super) ended_ms: u64,
    /// End and length of its delay or wait.
    pub(super) wake_ms: u64,
    pub(super) backoff_ms: u64,
    pub(super) args: Value,
    /// The handle that finds the current call again.
    pub(super) resume_handle: ResumeHandle,
    pub(super) assigned_names: Option<Shared<Map>>,
    /// The frames of its bodies, of every attempt.
    pub(super) frames: Vec<u32>,
    /// Where the frames of the current attempt begin, if the step has bodies.
    pub(super) attempt_from: usize,
    /// The rollback of its failed attempt, before the next one.
    pub(super) attempt_rollback: Option<Box<Rollback>>,
    /// The frames of compositions that roll it back.
    pub(super) rollback_frames: Vec<u32>,
    /// When it was settled, in the order of the journal.
    pub(super) settled_seq: u64,
    /// The entry of its last question to a person.
    pub(super) asked_seq: u64,
    /// Whether a person confirmed the current call.
    pub(super) is_confirmed: bool,
    /// The number of this visit, in a program.
    pub(super) visit: u32,
    /// Why this run does not perform it; `None` if it does.
    pub(super) origin: Option<StepOrigin>,
    /// Rollback attempts, and the arguments of the last one.
    pub(super) rollback_attempts: u32,
    pub(super) rollback_args: Value,
    /// Whether an earlier attempt failed with an unknown outcome.
    pub(super) was_in_doubt: bool,
    /// Whether an earlier attempt failed after it did its work.
    pub(super) has_acted: bool,
    /// Why the outcome of its call is unknown, while a probe or a person is asked.
    pub(super) doubt: Option<Arc<Failure>>,
    /// How often the probe was called.
    pub(super) probes: u32,
    /// How often it was called for the current doubt.
    pub(super) probe_attempts: u32,
    /// 0 if the tool itself was tried last, n if it was the n-th fallback.
    pub(super) candidate: u16,
    /// Why its bodies were ended early.
    pub(super) ended_by: Option<Arc<Failure>>,
    /// The failure of the previous attempt.
    pub(super) last_failure: Option<Arc<Failure>>,
    /// How many of its frames are closed.
    pub(super) closed: u32,
    /// Whether one of them failed.
    pub(super) has_failed_body: bool,
    /// Whether one of them failed in a way that `continue` does not cover.
    pub(super) has_final_failure: bool,
    /// References without a value that stayed in its arguments.
    pub(super) kept: Vec<Arc<str>>,
    /// The items of a loop.
    pub(super) items: Option<Shared<Vec<Value>>>,
}

impl StepState {
    /// The frames of the current attempt of a step with bodies.
    pub(super) fn attempt_frames(&self) -> &[u32] {
        &self.frames[self.attempt_from..]
    }

    /// Records a failed attempt that another one follows; side effects of any attempt are
    /// remembered.
    pub(super) fn note_failure(&mut self, failure: &Arc<Failure>) {
        self.was_in_doubt |= failure.in_doubt;
        self.has_acted |= failure.acted;
        self.last_failure = Some(failure.clone());
    }
}
