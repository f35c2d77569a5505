//! What a run is made of: activations of compositions, of their bodies, and of the steps in them.

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

/// One activation of a composition: the run's own, or one that a step entered.
#[derive(Debug)]
pub(super) struct Activation {
    pub(super) plan: Arc<Plan>,
    pub(super) input: Value,
    /// The activation of its own steps.
    pub(super) root: u32,
    /// The composition around it.
    pub(super) parent: Option<u32>,
    /// How many compositions are around it.
    pub(super) depth: usize,
    /// Whether it takes back the step that entered it.
    pub(super) is_rollback: bool,
    /// Whether it takes something back, or is inside what does.
    pub(super) is_inside_rollback: bool,
    /// The activation that somebody has allowed as a whole: this one, or one around it.
    pub(super) covered_by: Option<u32>,
    /// Steps of this activation, and of those inside it, that hold a slot.
    pub(super) running: u32,
    pub(super) max_concurrency: u32,
    pub(super) strategy: Strategy,
    /// Steps whose needs are met, the most urgent first.
    pub(super) ready: BinaryHeap<ReadyStep>,
    /// Whether it is among those that may have a step to start.
    pub(super) is_runnable: bool,
    /// Activations of bodies, here and inside, that are not over.
    pub(super) open_frames: u32,
    /// What a chain knows by name.
    pub(super) names: Value,
    /// How it is taken back, once that has begun.
    pub(super) rollback: Option<Rollback>,
}

/// A composition on its way back.
#[derive(Debug)]
pub(super) struct Rollback {
    /// The failure that everything is taken back for.
    pub(super) cause: Arc<Failure>,
    /// What is still to be taken back, the next one last.
    pub(super) remaining: Vec<NodeId>,
    /// What is being taken back.
    pub(super) current: Option<NodeId>,
    /// Steps that stay, each with the later one that cannot be taken back.
    pub(super) blocked: BTreeMap<NodeId, NodeId>,
}

impl Activation {
    /// Whether a failure takes back what it did.
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

/// A step whose needs are met. Of two, the one with the longer way to the end goes first when
/// durations are known; otherwise declaration order decides.
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
    /// How many activations its step had opened before.
    pub(super) ordinal: u32,
    /// The steps of a graph in the order of the text; of a program, in the order of visits.
    pub(super) nodes: Vec<StepState>,
    /// Where a program has been.
    pub(super) visits: Option<Visits>,
    /// Steps that are not settled.
    pub(super) unsettled: u32,
    /// Steps that have begun and are not settled.
    pub(super) active: u32,
    /// Why nothing new starts in here.
    pub(super) stopped: Option<Arc<Failure>>,
    pub(super) closed: bool,
}

impl Frame {
    /// The position in the body of the step behind a node.
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

/// Where a program has been.
#[derive(Debug)]
pub(super) struct Visits {
    /// The steps, by position in the body, in the order of visits.
    pub(super) order: Vec<u32>,
    /// How often each step was visited.
    pub(super) counts: Vec<u32>,
    /// The last visit of each step that is over.
    pub(super) latest: Vec<Option<u32>>,
}

impl Visits {
    pub(super) fn new(steps: usize) -> Visits {
        Visits { order: Vec::new(), counts: vec![0; steps], latest: vec![None; steps] }
    }
}

/// A step and what is remembered of it.
#[derive(Debug, Default)]
pub(super) struct StepState {
    /// Which step of the plan it is.
    pub(super) step: StepIndex,
    pub(super) node: NodeState,
    /// Needs that are not settled.
    pub(super) waiting: u32,
    pub(super) attempts: u32,
    /// Attempts of the tool or fallback at hand.
    pub(super) candidate_attempts: u32,
    pub(super) started_ms: u64,
    /// When the attempt at hand began.
    pub(super) attempt_ms: u64,
    pub(super) ended_ms: u64,
    /// When its rest or wait is over, and how long it is.
    pub(super) wake_ms: u64,
    pub(super) backoff_ms: u64,
    pub(super) args: Value,
    /// How the call at hand is found again.
    pub(super) resume_handle: ResumeHandle,
    pub(super) assigned_names: Option<Shared<Map>>,
    /// The activations of its bodies.
    pub(super) frames: Vec<u32>,
    /// The activations of compositions that take it back.
    pub(super) rollback_frames: Vec<u32>,
    /// When it was settled, in the order of the journal.
    pub(super) settled_seq: u64,
    /// The entry with which it asked a person last.
    pub(super) asked_seq: u64,
    /// Whether a person said yes to the call at hand.
    pub(super) is_confirmed: bool,
    /// Which visit of its step it is, in a program.
    pub(super) visit: u32,
    /// Whether its value is that of an earlier run.
    pub(super) is_reused: bool,
    /// Attempts to take it back, and what the last one was given.
    pub(super) rollback_attempts: u32,
    pub(super) rollback_args: Value,
    /// Whether an earlier attempt may have done its work although it failed.
    pub(super) was_in_doubt: bool,
    /// Whether an earlier attempt did its work although it failed.
    pub(super) has_acted: bool,
    /// Why nobody knows whether its call did its work, while a probe or a person is asked.
    pub(super) doubt: Option<Arc<Failure>>,
    /// How often the probe was asked.
    pub(super) probes: u32,
    /// How often it was asked about the doubt at hand.
    pub(super) probe_attempts: u32,
    /// 0 when the tool itself was tried last, n when it was the n-th fallback.
    pub(super) candidate: u16,
    /// Why its bodies were ended before they were over.
    pub(super) ended_by: Option<Arc<Failure>>,
    /// How the attempt before this one failed.
    pub(super) last_failure: Option<Arc<Failure>>,
    /// How many of its activations are over.
    pub(super) closed: u32,
    /// Whether one of those that are over failed.
    pub(super) has_failed_body: bool,
    /// Whether one failed in a way that nobody may continue over.
    pub(super) has_final_failure: bool,
    /// References in its arguments that have no value and were kept.
    pub(super) kept: Vec<Arc<str>>,
    /// The items of a loop.
    pub(super) items: Option<Shared<Vec<Value>>>,
}

impl StepState {
    /// An attempt failed and another follows; whether one left something behind is never forgotten.
    pub(super) fn note_failure(&mut self, failure: &Arc<Failure>) {
        self.was_in_doubt |= failure.in_doubt;
        self.has_acted |= failure.acted;
        self.last_failure = Some(failure.clone());
    }
}
