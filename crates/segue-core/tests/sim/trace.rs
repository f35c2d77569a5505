//! When things happened: the frames and steps of a run and their times, read off its journal.
//!
//! Nothing here says how a step ended; that is for the model to work out.

use std::collections::BTreeMap;
use std::sync::Arc;

use segue_core::composition::{Flow, Step};
use segue_core::expr::StepIndex;
use segue_core::plan::{BodyIndex, Plan};
use segue_core::run::{Entry, Fact, LoopItem, NodeId};

/// One activation of a body.
pub(crate) struct Frame {
    pub(crate) parent: Option<NodeId>,
    pub(crate) plan: Arc<Plan>,
    /// Counts the activations of compositions.
    pub(crate) activation: usize,
    pub(crate) body: BodyIndex,
    pub(crate) item: Option<LoopItem>,
    /// The positions of the steps that a program visited.
    visits: Vec<u32>,
    pub(crate) stopped: Option<u64>,
    pub(crate) closed: Option<u64>,
}

/// The frames of a run.
pub(crate) struct Trace {
    pub(crate) frames: Vec<Frame>,
    children: BTreeMap<NodeId, Vec<u32>>,
    /// For each retry of a step: how many bodies it had opened, and the entry.
    retries: BTreeMap<NodeId, Vec<(usize, u64)>>,
    /// The facts about each step, in order.
    facts: BTreeMap<NodeId, Vec<usize>>,
}

impl Trace {
    pub(crate) fn new(plan: &Arc<Plan>, journal: &[Entry]) -> Trace {
        let mut trace = Trace {
            frames: Vec::new(),
            children: BTreeMap::new(),
            retries: BTreeMap::new(),
            facts: BTreeMap::new(),
        };
        let mut activations = 0;
        for (at, entry) in journal.iter().enumerate() {
            if let Some(node) = node_of(&entry.fact) {
                trace.facts.entry(node).or_default().push(at);
            }
            match &entry.fact {
                Fact::Started(_) => trace.open(plan.clone(), 0, 0, None, None),
                Fact::Opened { node, body, item } => {
                    let around = &trace.frames[node.frame as usize];
                    let (plan, activation) = (around.plan.clone(), around.activation);
                    trace.open(plan, activation, *body, Some(*node), item.clone());
                }
                Fact::Entered { node, candidate, .. } => {
                    activations += 1;
                    let nested = trace.planned(*node).nested[candidate].clone();
                    trace.open(nested, activations, 0, Some(*node), None);
                }
                Fact::RollbackEntered { node, .. } => {
                    activations += 1;
                    let plans = &trace.planned(*node).rollback_plans;
                    let plan = plans.values().next().unwrap().clone();
                    trace.open(plan, activations, 0, None, None);
                }
                Fact::Expanded { node, plan, .. } => {
                    activations += 1;
                    trace.open(plan.clone(), activations, 0, Some(*node), None);
                }
                Fact::Visited { frame, position } => {
                    trace.frames[*frame as usize].visits.push(*position);
                }
                Fact::BackedOff { node, .. } => {
                    let opened = trace.children(*node).len();
                    trace.retries.entry(*node).or_default().push((opened, entry.seq));
                }
                Fact::Stopped { frame, .. } => {
                    trace.frames[*frame as usize].stopped.get_or_insert(entry.seq);
                }
                Fact::Closed { frame, .. } => {
                    trace.frames[*frame as usize].closed.get_or_insert(entry.seq);
                }
                _ => {}
            }
        }
        trace
    }

    fn open(
        &mut self,
        plan: Arc<Plan>,
        activation: usize,
        body: BodyIndex,
        parent: Option<NodeId>,
        item: Option<LoopItem>,
    ) {
        let frame = u32::try_from(self.frames.len()).unwrap();
        if let Some(parent) = parent {
            self.children.entry(parent).or_default().push(frame);
        }
        let (visits, stopped, closed) = (Vec::new(), None, None);
        self.frames.push(Frame { parent, plan, activation, body, item, visits, stopped, closed });
    }

    pub(crate) fn frame(&self, frame: u32) -> &Frame {
        &self.frames[frame as usize]
    }

    pub(crate) fn children(&self, node: NodeId) -> &[u32] {
        self.children.get(&node).map_or(&[], Vec::as_slice)
    }

    /// How many bodies a step had opened at each of its retries, and the entry of the retry.
    pub(crate) fn retries(&self, node: NodeId) -> &[(usize, u64)] {
        self.retries.get(&node).map_or(&[], Vec::as_slice)
    }

    /// The bodies of the attempt of a step that was under way at an entry.
    pub(crate) fn attempt_at(&self, node: NodeId, seq: u64) -> &[u32] {
        let retries = self.retries(node);
        let before = retries.partition_point(|(_, at)| *at < seq);
        self.attempt(node, before)
    }

    /// The bodies of one attempt of a step, counting from zero.
    pub(crate) fn attempt(&self, node: NodeId, number: usize) -> &[u32] {
        let (all, retries) = (self.children(node), self.retries(node));
        let from = number.checked_sub(1).map_or(0, |before| retries[before].0);
        let to = retries.get(number).map_or(all.len(), |(opened, _)| *opened);
        &all[from..to]
    }

    /// Where the facts about a step stand in the journal.
    pub(crate) fn facts(&self, node: NodeId) -> &[usize] {
        self.facts.get(&node).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn index(&self, node: NodeId) -> StepIndex {
        let frame = self.frame(node.frame);
        let body = &frame.plan.bodies[frame.body as usize];
        let position = match body.flow {
            Flow::Graph => node.position,
            Flow::Program => frame.visits[node.position as usize],
        };
        body.steps[position as usize]
    }

    pub(crate) fn planned(&self, node: NodeId) -> &segue_core::plan::PlanStep {
        self.frame(node.frame).plan.step(self.index(node))
    }

    pub(crate) fn step(&self, node: NodeId) -> &Arc<Step> {
        &self.planned(node).step
    }

    /// Every step of every frame.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.frames.iter().enumerate().flat_map(|(frame, open)| {
            let body = &open.plan.bodies[open.body as usize];
            let steps = match body.flow {
                Flow::Graph => body.steps.len(),
                Flow::Program => open.visits.len(),
            };
            (0..steps).map(move |position| NodeId {
                frame: u32::try_from(frame).unwrap(),
                position: u32::try_from(position).unwrap(),
            })
        })
    }

    /// The own steps of each composition around a frame, from the inside out.
    pub(crate) fn roots(&self, frame: u32) -> Vec<u32> {
        let mut roots = Vec::new();
        let mut at = frame;
        loop {
            let here = self.frame(at);
            let outer = here.parent.map(|parent| parent.frame);
            if outer.is_none_or(|outer| self.frame(outer).activation != here.activation) {
                roots.push(at);
            }
            match outer {
                Some(outer) => at = outer,
                None => return roots,
            }
        }
    }

    /// Whether a frame is this one or inside it.
    pub(crate) fn is_inside(&self, frame: u32, root: u32) -> bool {
        let outer = |frame: &u32| self.frame(*frame).parent.map(|parent| parent.frame);
        std::iter::successors(Some(frame), outer).any(|at| at == root)
    }

    /// Whether a frame, or one around it, had stopped before an entry.
    pub(crate) fn stopped_before(&self, frame: u32, seq: u64) -> bool {
        self.frame(frame).stopped.is_some_and(|stopped| stopped < seq)
    }

    /// For people: `each[2]/parse`.
    pub(crate) fn path(&self, node: NodeId) -> String {
        if node == NodeId::RUN {
            return "the run".to_owned();
        }
        let id = &self.step(node).id;
        let frame = self.frame(node.frame);
        match (frame.parent, &frame.item) {
            (None, _) => id.to_string(),
            (Some(parent), Some(item)) => format!("{}[{}]/{id}", self.path(parent), item.index),
            (Some(parent), None) => format!("{}/{id}", self.path(parent)),
        }
    }
}

/// The step that a fact is about.
pub(crate) fn node_of(fact: &Fact) -> Option<NodeId> {
    fact.node()
}

/// Whether a fact settles its step on the way forward.
pub(crate) fn settles(fact: &Fact) -> bool {
    matches!(
        fact,
        Fact::Succeeded { .. }
            | Fact::Tolerated { .. }
            | Fact::Failed { .. }
            | Fact::Skipped { .. }
            | Fact::Cancelled { .. }
    )
}
