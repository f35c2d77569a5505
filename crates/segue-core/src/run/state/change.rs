//! The changes that [`RunState::apply`] is made of: attempts begin, bodies open and close, steps settle.

use std::sync::Arc;

use super::{RunState, index};
use crate::composition::Flow;
use crate::plan::{BodyIndex, Plan};
use crate::run::frame::{Activation, Frame, ReadyStep, StepState, Visits};
use crate::run::journal::{Entry, Fact, LoopItem, NodeId, Started};
use crate::run::node::{IllegalFact, NodeState};
use crate::run::resume::ResumeHandle;
use crate::value::Value;
use crate::view::RunStatus;

impl RunState {
    /// Whether an entry is the next one, about an existing step or frame, of an unfinished run.
    pub(super) fn check_fact(&self, entry: &Entry) -> Result<(), IllegalFact> {
        let is_next = entry.seq == self.seq;
        let begins = matches!(entry.fact, Fact::Started(_));
        let frame = entry.fact.frame().map(|frame| self.frames.get(frame as usize));
        let frame_is = frame.is_none_or(|frame| frame.is_some());
        let node_is = entry.fact.node().is_none_or(|node| {
            let frame = self.frames.get(node.frame as usize);
            frame.is_some_and(|frame| (node.position as usize) < frame.nodes.len())
        });
        let reopens = matches!(entry.fact, Fact::RollbackAsked { .. });
        let is_open = self.status == RunStatus::Running || reopens;
        let fits = is_next && frame_is && node_is && begins == self.started.is_none();
        if fits && (begins || is_open) { Ok(()) } else { Err(IllegalFact) }
    }

    pub(super) fn begin(&mut self, started: &Started, at_ms: u64) {
        self.started_ms = at_ms;
        self.context = started.context.clone();
        self.status = RunStatus::Running;
        let plan = self.plan.clone();
        let options = &started.options;
        self.started = Some(Box::new(started.clone()));
        self.learn_start(started);
        let mut activation = self.activation(plan, &started.input);
        activation.max_concurrency = options.max_concurrency.unwrap_or(activation.max_concurrency);
        activation.strategy = options.strategy.unwrap_or(activation.strategy);
        self.activations.push(activation);
        self.open(0, 0, None, None);
    }

    /// An activation of a composition, whose own steps come with the next frame.
    pub(super) fn activation(&self, plan: Arc<Plan>, input: &Value) -> Activation {
        let root = index(self.frames.len());
        let names = match plan.composition.body.flow {
            Flow::Program => self.chain_names(&plan, input),
            Flow::Graph => Value::Null,
        };
        Activation { names, ..Activation::new(plan, input.clone(), root) }
    }

    /// Starts an attempt: the first of its tool, or another one.
    pub(super) fn begin_attempt(
        &mut self,
        node: NodeId,
        candidate: u16,
        args: &Value,
        entry: &Entry,
    ) -> Result<(), IllegalFact> {
        let again = matches!(self.step_state(node).node, NodeState::RetryReady { .. });
        self.advance(node, entry)?;
        let record = self.step_state_mut(node);
        record.args = args.clone();
        record.resume_handle = ResumeHandle::default();
        record.candidate = candidate;
        record.attempts += 1;
        record.attempt_ms = entry.at_ms;
        record.candidate_attempts = if again { record.candidate_attempts + 1 } else { 1 };
        self.learn(node, args);
        Ok(())
    }

    pub(super) fn enter(
        &mut self,
        node: NodeId,
        plan: Arc<Plan>,
        input: &Value,
        is_rollback: bool,
    ) {
        self.learn_input(&plan, input);
        let parent = self.frame(node.frame).activation;
        let around = &self.activations[parent as usize];
        let activation = Activation {
            parent: Some(parent),
            depth: around.depth + 1,
            is_rollback,
            is_inside_rollback: is_rollback || around.is_inside_rollback,
            covered_by: around.covered_by,
            ..self.activation(plan, input)
        };
        let at = index(self.activations.len());
        self.activations.push(activation);
        self.open(at, 0, Some(node), None);
    }

    /// An atomic composition is entered only after consent to the whole. One that was expanded at
    /// run time is an exception: no question covered it.
    pub(super) fn mark_covered(&mut self) {
        let at = index(self.activations.len() - 1);
        let entered = &mut self.activations[at as usize];
        if entered.plan.composition.atomic {
            entered.covered_by.get_or_insert(at);
        }
    }

    pub(super) fn open(
        &mut self,
        activation: u32,
        body: BodyIndex,
        parent: Option<NodeId>,
        item: Option<LoopItem>,
    ) {
        let frame = index(self.frames.len());
        let plan = self.activations[activation as usize].plan.clone();
        let planned = &plan.bodies[body as usize];
        let mut nodes = Vec::new();
        let mut visits = None;
        match planned.flow {
            Flow::Program => {
                visits = Some(Visits::new(planned.steps.len()));
                self.closable_frames.insert(frame);
            }
            Flow::Graph => {
                nodes.reserve_exact(planned.steps.len());
                for (position, planned) in plan.steps_of(body).enumerate() {
                    let waiting = index(planned.step.needs.len());
                    nodes.push(StepState {
                        step: planned.step.index,
                        waiting,
                        ..StepState::default()
                    });
                    if waiting == 0 {
                        let node = NodeId { frame, position: index(position) };
                        let ready = ReadyStep::new(node, planned.remaining_ms);
                        self.activations[activation as usize].ready.push(ready);
                    }
                }
            }
        }
        self.mark_runnable(activation);
        self.count_open(activation, |open| *open += 1);
        let unsettled = index(nodes.len());
        let is_rollback = self.body_rolls_back(activation, body);
        let opened = parent.map(|parent| {
            let record = self.step_state_mut(parent);
            let frames = if is_rollback { &mut record.rollback_frames } else { &mut record.frames };
            frames.push(frame);
            frames.len() - 1
        });
        self.frames.push(Frame {
            activation,
            body,
            parent,
            item,
            ordinal: index(opened.unwrap_or(0)),
            nodes,
            visits,
            unsettled,
            active: 0,
            stopped: None,
            closed: false,
        });
    }

    /// Whether a body belongs to a composition that rolls a step back.
    pub(in crate::run) fn body_rolls_back(&self, activation: u32, body: BodyIndex) -> bool {
        self.activations[activation as usize].is_rollback && body == 0
    }

    /// Counts an open frame, in its composition and in enclosing ones.
    pub(super) fn count_open(&mut self, activation: u32, count: impl Fn(&mut u32)) {
        let mut at = Some(activation);
        while let Some(activation) = at {
            let around = &mut self.activations[activation as usize];
            count(&mut around.open_frames);
            at = around.parent;
        }
    }

    /// A program continues with a step.
    pub(super) fn visit(&mut self, frame: u32, position: u32) {
        self.visits += 1;
        let here = &mut self.frames[frame as usize];
        let Some(visits) = &mut here.visits else { return };
        visits.order.push(position);
        let count = &mut visits.counts[position as usize];
        *count += 1;
        let plan = &self.activations[here.activation as usize].plan;
        let step = plan.bodies[here.body as usize].steps[position as usize];
        here.nodes.push(StepState { step, visit: *count, ..StepState::default() });
        here.unsettled += 1;
        let node = NodeId { frame, position: index(here.nodes.len() - 1) };
        self.push_ready(node);
    }

    /// A chain's state holds the number of retries of each of its steps.
    pub(super) fn count_retry(&mut self, node: NodeId) {
        if self.is_root(node.frame) {
            let position = self.frame(node.frame).step_position(node.position);
            let name = format!("step_{position}_retry_count").into();
            let tries = self.step_state(node).candidate_attempts;
            self.name(node.frame, name, Value::from(u64::from(tries)));
        }
    }

    /// Applies the transition table to a step.
    pub(super) fn advance(&mut self, node: NodeId, entry: &Entry) -> Result<(), IllegalFact> {
        let held = self.holds_slot(node);
        let frame = &mut self.frames[node.frame as usize];
        let record = &mut frame.nodes[node.position as usize];
        let before = std::mem::take(&mut record.node);
        let was_pending = matches!(before, NodeState::Pending);
        let is_retried = matches!(before, NodeState::RetryReady { .. });
        let (was_busy, asked) = (before.is_busy(), before.awaits_person());
        record.node = before.next(&entry.fact)?;
        if was_pending {
            record.started_ms = entry.at_ms;
        }
        if was_pending || is_retried {
            record.attempt_ms = entry.at_ms;
        }
        match (was_pending, record.node.is_settled()) {
            (true, false) => frame.active += 1,
            (false, true) => frame.active -= 1,
            _ => {}
        }
        let (is_busy, asks) = (record.node.is_busy(), record.node.awaits_person());
        self.busy = self.busy + u32::from(is_busy) - u32::from(was_busy);
        self.awaiting_person = self.awaiting_person + u32::from(asks) - u32::from(asked);
        match (held, self.holds_slot(node)) {
            (false, true) => self.take_slot(node.frame),
            (true, false) => self.free_slot(node.frame),
            _ => {}
        }
        Ok(())
    }

    /// A step is settled: its dependants wait for one step less.
    pub(super) fn settle(&mut self, node: NodeId, entry: &Entry) -> Result<(), IllegalFact> {
        self.advance(node, entry)?;
        let record = self.step_state_mut(node);
        record.ended_ms = entry.at_ms;
        record.settled_seq = entry.seq;
        record.attempt_rollback = None;
        let frame = &mut self.frames[node.frame as usize];
        frame.unsettled -= 1;
        if frame.unsettled == 0 || frame.stopped.is_some() {
            self.closable_frames.insert(node.frame);
        }
        let at = frame.activation;
        self.mark_runnable(at);
        let frame = &mut self.frames[node.frame as usize];
        if let Some(visits) = &mut frame.visits {
            let position = visits.order[node.position as usize];
            visits.latest[position as usize] = Some(node.position);
            return Ok(());
        }
        let activation = &mut self.activations[at as usize];
        let plan = &activation.plan;
        let step = plan.bodies[frame.body as usize].steps[node.position as usize];
        for dependant in &plan.step(step).dependants {
            let record = &mut frame.nodes[*dependant as usize];
            record.waiting -= 1;
            if record.waiting == 0 {
                let ready = NodeId { frame: node.frame, position: *dependant };
                let step = plan.bodies[frame.body as usize].steps[*dependant as usize];
                activation.ready.push(ReadyStep::new(ready, plan.step(step).remaining_ms));
            }
        }
        Ok(())
    }

    pub(super) fn close(&mut self, frame: u32, failed: bool, is_final: bool) {
        let closed = &mut self.frames[frame as usize];
        closed.closed = true;
        let (activation, body) = (closed.activation, closed.body);
        let parent = closed.parent;
        if let Some(parent) = parent.filter(|_| !self.body_rolls_back(activation, body)) {
            let record = self.step_state_mut(parent);
            record.closed += 1;
            record.has_failed_body |= failed;
            record.has_final_failure |= is_final;
        }
        self.count_open(activation, |open| *open -= 1);
        let mut around = parent;
        while let Some(node) = around {
            if self.step_state(node).ended_by.is_some() {
                self.failed_attempts.insert(node);
            }
            around = self.frame(node.frame).parent;
        }
        // A composition whose own steps are done waits for the branches that lost a race.
        let mut at = Some(activation);
        while let Some(activation) = at {
            let around = &self.activations[activation as usize];
            self.closable_frames.insert(around.root);
            at = around.parent;
        }
    }
}
