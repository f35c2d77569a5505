//! Everything that is true of a run. Changed by [`State::apply`] alone, live or replayed; it is a
//! table, one arm for each fact.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};
use std::sync::Arc;

use super::journal::{Entry, Fact, Failure, Item, NodeId, Options, Started};
use super::node::Node;
use crate::composition::{Flow, Step, StepKind, Strategy, Undo, WaitFor};
use crate::expr::StepIndex;
use crate::plan::{BodyIndex, Plan, PlanStep};
use crate::value::{Map, Value};
use crate::view::{RunStatus, rfc3339};

/// One activation of a composition: the run's own, or one that a step entered.
#[derive(Debug)]
pub(super) struct Activation {
    pub(super) plan: Arc<Plan>,
    pub(super) input: Value,
    /// Steps of this activation that hold a slot.
    pub(super) running: u32,
    pub(super) max_concurrency: u32,
    pub(super) strategy: Strategy,
    /// Steps whose needs are met, the most urgent first.
    pub(super) ready: BinaryHeap<Ready>,
}

/// A step whose needs are met. Of two, the one with the longer way to the end goes first when
/// durations are known; until then declaration order decides.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ready(Reverse<(u32, u32)>);

impl Ready {
    fn new(node: NodeId) -> Ready {
        Ready(Reverse((node.frame, node.position)))
    }

    pub(super) fn node(&self) -> NodeId {
        let Reverse((frame, position)) = self.0;
        NodeId { frame, position }
    }
}

/// One activation of a body.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) activation: u32,
    pub(super) body: BodyIndex,
    pub(super) parent: Option<NodeId>,
    pub(super) item: Option<Item>,
    /// How many activations its step had opened before.
    pub(super) ordinal: u32,
    pub(super) nodes: Vec<Record>,
    /// Steps that are not settled.
    pub(super) unsettled: u32,
    /// Steps that have begun and are not settled.
    pub(super) active: u32,
    /// Why nothing new starts in here.
    pub(super) stopped: Option<Arc<Failure>>,
    pub(super) closed: bool,
}

/// A step and what is remembered of it.
#[derive(Debug, Default)]
pub(super) struct Record {
    pub(super) node: Node,
    /// Needs that are not settled.
    pub(super) waiting: u32,
    pub(super) attempts: u32,
    /// Attempts of the tool or fallback at hand.
    pub(super) tries: u32,
    pub(super) started_ms: u64,
    pub(super) ended_ms: u64,
    pub(super) args: Value,
    pub(super) given: Option<Arc<Map>>,
    /// The activations of its bodies.
    pub(super) frames: Vec<u32>,
    /// When it was settled, in the order of the journal.
    pub(super) settled_seq: u64,
    /// Attempts to take it back, and what the last one was given.
    pub(super) undo_tries: u32,
    pub(super) undo_args: Value,
    /// Whether an earlier attempt may have done its work although it failed.
    pub(super) was_in_doubt: bool,
    /// 0 when the tool itself was tried last, n when it was the n-th fallback.
    pub(super) candidate: u16,
    /// Why its bodies were ended before they were over.
    pub(super) ended_by: Option<Arc<Failure>>,
    /// How the attempt before this one failed.
    pub(super) last_failure: Option<Arc<Failure>>,
    /// How many of them are over.
    pub(super) closed: u32,
    /// Whether one of those that are over failed.
    pub(super) has_failed_body: bool,
    /// Whether one failed in a way that nobody may continue over.
    pub(super) has_final_failure: bool,
    /// The items of a loop.
    pub(super) items: Option<Arc<Vec<Value>>>,
}

impl Record {
    /// An attempt failed and another follows; whether one was in doubt is never forgotten.
    fn remember(&mut self, failure: &Arc<Failure>) {
        self.was_in_doubt |= failure.in_doubt;
        self.last_failure = Some(failure.clone());
    }
}

/// The state of a run.
#[derive(Debug)]
pub(super) struct State {
    pub(super) started: Option<Box<Started>>,
    pub(super) started_ms: u64,
    pub(super) ended_ms: u64,
    pub(super) context: Value,
    pub(super) status: RunStatus,
    pub(super) output: Value,
    pub(super) failure: Option<Arc<Failure>>,
    pub(super) activations: Vec<Activation>,
    pub(super) frames: Vec<Frame>,
    pub(super) calls: u64,
    pub(super) seq: u64,
    /// The failure that everything is taken back for.
    pub(super) rollback: Option<Arc<Failure>>,
    /// What is still to be taken back, the next one last.
    pub(super) to_undo: Vec<NodeId>,
    /// What is being taken back.
    pub(super) undoing: Option<NodeId>,
    /// Activations of bodies that are not over.
    pub(super) open_frames: u32,
    /// Activations that may have a step to start.
    awake: BTreeSet<u32>,
    /// Frames that may be over.
    ending: VecDeque<u32>,
    plan: Arc<Plan>,
}

impl State {
    pub(super) fn new(plan: Arc<Plan>) -> State {
        State {
            started: None,
            started_ms: 0,
            ended_ms: 0,
            context: Value::Null,
            status: RunStatus::Pending,
            output: Value::Null,
            failure: None,
            activations: Vec::new(),
            frames: Vec::new(),
            calls: 0,
            seq: 0,
            rollback: None,
            to_undo: Vec::new(),
            undoing: None,
            open_frames: 0,
            awake: BTreeSet::new(),
            ending: VecDeque::new(),
            plan,
        }
    }

    pub(super) fn options(&self) -> Option<&Options> {
        self.started.as_ref().map(|started| &started.options)
    }

    pub(super) fn frame(&self, frame: u32) -> &Frame {
        &self.frames[frame as usize]
    }

    pub(super) fn frame_is_closed(&self, frame: u32) -> bool {
        self.frames.get(frame as usize).is_some_and(|frame| frame.closed)
    }

    pub(super) fn record(&self, node: NodeId) -> &Record {
        &self.frames[node.frame as usize].nodes[node.position as usize]
    }

    fn record_mut(&mut self, node: NodeId) -> &mut Record {
        &mut self.frames[node.frame as usize].nodes[node.position as usize]
    }

    pub(super) fn activation_of(&self, frame: u32) -> &Activation {
        &self.activations[self.frame(frame).activation as usize]
    }

    fn activation_mut(&mut self, frame: u32) -> &mut Activation {
        &mut self.activations[self.frames[frame as usize].activation as usize]
    }

    pub(super) fn plan_of(&self, frame: u32) -> &Arc<Plan> {
        &self.activation_of(frame).plan
    }

    pub(super) fn step_index(&self, node: NodeId) -> StepIndex {
        let body = self.frame(node.frame).body;
        self.plan_of(node.frame).bodies[body as usize].steps[node.position as usize]
    }

    pub(super) fn planned(&self, node: NodeId) -> &PlanStep {
        self.plan_of(node.frame).step(self.step_index(node))
    }

    pub(super) fn step(&self, node: NodeId) -> &Arc<Step> {
        &self.planned(node).step
    }

    /// The activation around this one, within the same composition.
    pub(super) fn outer(&self, frame: u32) -> Option<u32> {
        let here = self.frame(frame);
        let outer = here.parent?.frame;
        (self.frame(outer).activation == here.activation).then_some(outer)
    }

    /// The step's id with the bodies and iterations around it: `each[2]/parse`.
    pub(super) fn path(&self, node: NodeId) -> Arc<str> {
        let id = &self.step(node).id;
        let frame = self.frame(node.frame);
        match frame.parent {
            None => id.clone(),
            Some(parent) => {
                let outer = self.path(parent);
                match &frame.item {
                    Some(item) => format!("{outer}[{}]/{id}", item.index).into(),
                    None => format!("{outer}/{id}").into(),
                }
            }
        }
    }

    /// What tells the work of a step from all other work of the run: its path, with the rounds and
    /// attempts around it that a path does not show, and the fallback at hand.
    pub(super) fn key(&self, node: NodeId) -> String {
        let mut key = match self.frame(node.frame).parent {
            None => self.step(node).id.to_string(),
            Some(parent) => {
                let frame = self.frame(node.frame);
                format!("{}[{}]/{}", self.key(parent), frame.ordinal, self.step(node).id)
            }
        };
        let candidate = self.record(node).candidate;
        if candidate > 0 {
            key = format!("{key}~{candidate}");
        }
        key
    }

    /// What takes a step back: of the tool that was tried last.
    pub(super) fn undo_of(&self, node: NodeId) -> &Undo {
        let step = self.step(node);
        match self.record(node).candidate {
            0 => &step.undo,
            fallback => &step.fallback_undos[usize::from(fallback) - 1],
        }
    }

    /// Whether a failure was tolerated anywhere below; branches that lost a race do not count.
    pub(super) fn has_tolerated(&self, frame: u32) -> bool {
        self.frame(frame).nodes.iter().enumerate().any(|(position, record)| {
            let node = NodeId { frame, position: index(position) };
            let kind = &self.step(node).kind;
            let done = matches!(record.node, Node::Done { .. });
            let lost = matches!(
                kind,
                StepKind::Parallel { wait_for: WaitFor::Any | WaitFor::FirstSuccess, .. }
            );
            matches!(record.node, Node::Tolerated { .. })
                || (done && matches!(kind, StepKind::Loop(_)) && record.has_failed_body)
                || (!(lost && done) && record.frames.iter().any(|inner| self.has_tolerated(*inner)))
        })
    }

    /// Whether a call below may have done its work although it failed or was ended.
    pub(super) fn has_doubt(&self, frame: u32) -> bool {
        self.frame(frame).nodes.iter().any(|record| {
            let doubt = match &record.node {
                Node::Failed { failure } | Node::Tolerated { failure, .. } => failure.in_doubt,
                Node::Cancelled { in_doubt } => *in_doubt,
                _ => false,
            };
            doubt || record.frames.iter().any(|inner| self.has_doubt(*inner))
        })
    }

    pub(super) fn about_run(&self) -> Value {
        let text = |text: &Arc<str>| Value::String(text.clone());
        let id = self.started.as_ref().map_or(Value::Null, |started| text(&started.run_id));
        Value::object([
            ("id", id),
            ("name", text(&self.plan.composition.name)),
            ("started_at", Value::from(rfc3339(self.started_ms))),
        ])
    }

    /// The only function that changes a run.
    pub(super) fn apply(&mut self, entry: &Entry) {
        self.seq = entry.seq + 1;
        match &entry.fact {
            Fact::Started(started) => self.begin(started, entry.at_ms),
            Fact::Opened { node, body, item } => {
                self.advance(*node, entry);
                let activation = self.frame(node.frame).activation;
                self.open(activation, *body, Some(*node), item.clone());
            }
            Fact::Looped { node, items } => {
                self.advance(*node, entry);
                self.record_mut(*node).items = Some(items.clone());
            }
            Fact::Entered { node, candidate, input } => {
                let had_slot = self.holds_slot(*node);
                self.begin_attempt(*node, *candidate, input, entry);
                self.enter(*node, *candidate, input);
                if had_slot {
                    self.free_slot(node.frame);
                }
            }
            Fact::Asked { node, args, .. } => {
                let had_slot = self.holds_slot(*node);
                self.advance(*node, entry);
                self.record_mut(*node).args = args.clone();
                if had_slot {
                    self.free_slot(node.frame);
                }
            }
            Fact::Called { node, candidate, args } => {
                let had_slot = self.holds_slot(*node);
                self.begin_attempt(*node, *candidate, args, entry);
                self.calls += 1;
                if !had_slot {
                    self.activation_mut(node.frame).running += 1;
                }
            }
            Fact::Rested { node, failure, .. } => {
                let had_slot = self.holds_slot(*node);
                self.advance(*node, entry);
                self.record_mut(*node).remember(failure);
                if had_slot {
                    self.free_slot(node.frame);
                }
            }
            Fact::GaveUp { node, failure } => {
                // A composition held no slot; what follows it takes one or gives it back.
                if !self.holds_slot(*node) {
                    self.activation_mut(node.frame).running += 1;
                }
                self.advance(*node, entry);
                self.record_mut(*node).remember(failure);
            }
            Fact::Granted { node, .. } | Fact::Woke { node } => {
                self.advance(*node, entry);
                self.push_ready(*node);
            }
            Fact::Slept { node, .. } => self.advance(*node, entry),
            Fact::Succeeded { node, given, .. } => {
                let given = given.clone();
                self.settle(*node, entry);
                self.record_mut(*node).given = given;
            }
            Fact::TimedOut { node, failure } => {
                self.record_mut(*node).ended_by = Some(failure.clone());
            }
            Fact::Tolerated { node, .. }
            | Fact::Failed { node, .. }
            | Fact::Skipped { node, .. }
            | Fact::Cancelled { node, .. } => self.settle(*node, entry),
            Fact::Stopped { frame, failure } => {
                self.frames[*frame as usize].stopped = Some(failure.clone());
                self.ending.push_back(*frame);
            }
            Fact::Closed { frame, failed, is_final } => self.close(*frame, *failed, *is_final),
            Fact::RollbackStarted { failure, steps } => {
                self.rollback = Some(failure.clone());
                self.to_undo = steps.iter().rev().copied().collect();
            }
            Fact::UndoCalled { node, args } => {
                self.move_back(*node, entry);
                let record = self.record_mut(*node);
                record.attempts += 1;
                record.undo_tries += 1;
                record.undo_args = args.clone();
                self.calls += 1;
            }
            Fact::UndoRested { node, .. }
            | Fact::Undone { node }
            | Fact::UndoFailed { node, .. } => {
                self.move_back(*node, entry);
            }
            Fact::Late { .. } => {}
            Fact::Finished { status, output, failure } => {
                self.status = *status;
                self.output = output.clone();
                self.failure.clone_from(failure);
                self.ended_ms = entry.at_ms;
            }
        }
    }

    fn begin(&mut self, started: &Started, at_ms: u64) {
        self.started_ms = at_ms;
        self.context = started.context.clone();
        self.status = RunStatus::Running;
        let plan = self.plan.clone();
        let options = &started.options;
        let mut activation = Activation::new(plan, started.input.clone());
        activation.max_concurrency = options.max_concurrency.unwrap_or(activation.max_concurrency);
        activation.strategy = options.strategy.unwrap_or(activation.strategy);
        self.started = Some(Box::new(started.clone()));
        self.activations.push(activation);
        self.open(0, 0, None, None);
    }

    /// An attempt begins: the first of its tool, or one more of the same.
    fn begin_attempt(&mut self, node: NodeId, candidate: u16, args: &Value, entry: &Entry) {
        let again = matches!(self.record(node).node, Node::Waking { .. });
        self.advance(node, entry);
        let record = self.record_mut(node);
        record.args = args.clone();
        record.candidate = candidate;
        record.attempts += 1;
        record.tries = if again { record.tries + 1 } else { 1 };
    }

    fn enter(&mut self, node: NodeId, candidate: u16, input: &Value) {
        let nested = self.planned(node).nested.get(&candidate);
        let plan = nested.cloned().expect("only a composition is entered");
        let activation = index(self.activations.len());
        self.activations.push(Activation::new(plan, input.clone()));
        self.open(activation, 0, Some(node), None);
    }

    fn open(
        &mut self,
        activation: u32,
        body: BodyIndex,
        parent: Option<NodeId>,
        item: Option<Item>,
    ) {
        let frame = index(self.frames.len());
        let plan = self.activations[activation as usize].plan.clone();
        let mut nodes = Vec::with_capacity(plan.bodies[body as usize].steps.len());
        for (position, planned) in plan.steps_of(body).enumerate() {
            let waiting = index(planned.step.needs.len());
            nodes.push(Record { waiting, ..Record::default() });
            if waiting == 0 {
                let node = NodeId { frame, position: index(position) };
                self.activations[activation as usize].ready.push(Ready::new(node));
            }
        }
        self.awake.insert(activation);
        self.open_frames += 1;
        let unsettled = index(nodes.len());
        debug_assert_eq!(plan.composition.body.flow, Flow::Graph);
        self.frames.push(Frame {
            activation,
            body,
            parent,
            item,
            ordinal: parent.map_or(0, |parent| index(self.record(parent).frames.len())),
            nodes,
            unsettled,
            active: 0,
            stopped: None,
            closed: false,
        });
        if let Some(parent) = parent {
            self.record_mut(parent).frames.push(frame);
        }
    }

    /// Moves a step along its table.
    fn advance(&mut self, node: NodeId, entry: &Entry) {
        let frame = &mut self.frames[node.frame as usize];
        let record = &mut frame.nodes[node.position as usize];
        let before = std::mem::take(&mut record.node);
        let was_pending = matches!(before, Node::Pending);
        record.node = before.next(&entry.fact).expect("the machine records legal facts only");
        if was_pending {
            record.started_ms = entry.at_ms;
        }
        match (was_pending, record.node.is_settled()) {
            (true, false) => frame.active += 1,
            (false, true) => frame.active -= 1,
            _ => {}
        }
    }

    /// Moves a settled step along its table; nobody waits for that.
    fn move_back(&mut self, node: NodeId, entry: &Entry) {
        let record = self.record_mut(node);
        let before = std::mem::take(&mut record.node);
        record.node = before.next(&entry.fact).expect("the machine records legal facts only");
        let is_over = matches!(record.node, Node::Undone { .. } | Node::UndoFailed { .. });
        self.undoing = if is_over { None } else { Some(node) };
        if self.to_undo.last() == Some(&node) {
            self.to_undo.pop();
        }
    }

    fn push_ready(&mut self, node: NodeId) {
        let activation = self.frame(node.frame).activation;
        self.activations[activation as usize].ready.push(Ready::new(node));
        self.awake.insert(activation);
    }

    fn free_slot(&mut self, frame: u32) {
        let activation = self.frame(frame).activation;
        self.activations[activation as usize].running -= 1;
        self.awake.insert(activation);
    }

    fn holds_slot(&self, node: NodeId) -> bool {
        matches!(self.record(node).node, Node::Calling { .. } | Node::GivingUp)
    }

    /// A step's last fact: whoever waits for it waits for one less.
    fn settle(&mut self, node: NodeId, entry: &Entry) {
        if self.holds_slot(node) {
            self.free_slot(node.frame);
        }
        self.advance(node, entry);
        let record = self.record_mut(node);
        record.ended_ms = entry.at_ms;
        record.settled_seq = entry.seq;
        let frame = &mut self.frames[node.frame as usize];
        frame.unsettled -= 1;
        if frame.unsettled == 0 || frame.stopped.is_some() {
            self.ending.push_back(node.frame);
        }
        self.awake.insert(frame.activation);
        let activation = &mut self.activations[frame.activation as usize];
        let plan = activation.plan.clone();
        let step = plan.bodies[frame.body as usize].steps[node.position as usize];
        for dependant in &plan.step(step).dependants {
            let record = &mut frame.nodes[*dependant as usize];
            record.waiting -= 1;
            if record.waiting == 0 {
                let ready = NodeId { frame: node.frame, position: *dependant };
                activation.ready.push(Ready::new(ready));
            }
        }
    }

    fn close(&mut self, frame: u32, failed: bool, is_final: bool) {
        self.open_frames -= 1;
        let closed = &mut self.frames[frame as usize];
        closed.closed = true;
        if let Some(parent) = closed.parent {
            let record = self.record_mut(parent);
            record.closed += 1;
            record.has_failed_body |= failed;
            record.has_final_failure |= is_final;
        }
    }

    /// Takes an activation of a body that is over: all settled, or stopped with nothing under way.
    pub(super) fn next_over(&mut self) -> Option<u32> {
        while let Some(at) = self.ending.pop_front() {
            let frame = self.frame(at);
            let is_over = frame.unsettled == 0 || (frame.stopped.is_some() && frame.active == 0);
            if is_over && !frame.closed {
                return Some(at);
            }
        }
        None
    }

    /// Takes the next step whose turn it is; steps of stopped bodies are passed over.
    pub(super) fn next_ready(&mut self) -> Option<NodeId> {
        while let Some(at) = self.awake.first().copied() {
            let activation = &mut self.activations[at as usize];
            let has_room = activation.running < activation.max_concurrency;
            let Some(ready) = has_room.then(|| activation.ready.pop()).flatten() else {
                self.awake.remove(&at);
                continue;
            };
            let node = ready.node();
            let waits = matches!(
                self.record(node).node,
                Node::Pending | Node::Granted { .. } | Node::Waking { .. }
            );
            if waits && self.frame(node.frame).stopped.is_none() {
                return Some(node);
            }
        }
        None
    }
}

impl Activation {
    fn new(plan: Arc<Plan>, input: Value) -> Activation {
        let composition = &plan.composition;
        Activation {
            max_concurrency: composition.max_concurrency,
            strategy: composition.error_handling.strategy,
            running: 0,
            ready: BinaryHeap::new(),
            input,
            plan,
        }
    }
}

fn index(position: usize) -> u32 {
    u32::try_from(position).expect("a run has far fewer than 2^32 steps")
}
