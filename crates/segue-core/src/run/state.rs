//! The state of a run. Only [`RunState::apply`] changes it, live or replayed; it is a table with
//! one arm per fact.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::sync::Arc;

use super::consent::RunConsent;
use super::frame::{Activation, Frame, ReadyStep, StepState, Visits};
use super::journal::{Entry, Fact, Failure, LoopItem, NodeId, Options, Started};
use super::node::{IllegalFact, NodeState};
use super::redact::{SecretValues, has_sensitive};
use super::resume::ResumeHandle;
use crate::composition::{Flow, Step, StepKind};
use crate::expr::StepIndex;
use crate::plan::{BodyIndex, Plan, PlanStep};
use crate::value::Value;
use crate::view::{RunStatus, rfc3339};

/// The state of a run.
#[derive(Debug)]
pub(super) struct RunState {
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
    /// The total size of all step values, serialized in full.
    pub(super) value_bytes: usize,
    pub(super) seq: u64,
    /// The consent to the run.
    pub(super) consent: RunConsent,
    /// Who requested a rollback of the whole run.
    pub(super) rollback_asked: Option<Arc<str>>,
    /// Sensitive values.
    pub(super) sensitive: SecretValues,
    /// Whether there can be sensitive values.
    pub(super) has_sensitive: bool,
    /// Visits of programs.
    pub(super) visits: u64,
    /// Steps that progress by themselves, and steps that wait for a person.
    pub(super) busy: u32,
    awaiting_person: u32,
    /// Activations that are being rolled back.
    pub(super) rolling_back: Vec<u32>,
    /// Steps with bodies whose failed attempt is being rolled back.
    pub(super) attempts_rolling_back: Vec<NodeId>,
    /// Steps with bodies whose failed attempt may continue: to its rollback, or to the next one.
    pub(super) failed_attempts: BTreeSet<NodeId>,
    /// Activations that may have a step to start, oldest first, each once. A heap keeps its memory
    /// when it runs empty, which happens after every step.
    pub(super) runnable: BinaryHeap<Reverse<u32>>,
    /// Activations that have a ready step and no free slot.
    pub(super) blocked_by_concurrency: Vec<u32>,
    /// Frames that may close.
    pub(super) closable_frames: BTreeSet<u32>,
    pub(super) plan: Arc<Plan>,
}

impl RunState {
    pub(super) fn new(plan: Arc<Plan>) -> RunState {
        RunState {
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
            value_bytes: 0,
            seq: 0,
            consent: RunConsent::NotAsked,
            rollback_asked: None,
            sensitive: SecretValues::default(),
            has_sensitive: has_sensitive(&plan),
            visits: 0,
            busy: 0,
            awaiting_person: 0,
            rolling_back: Vec::new(),
            attempts_rolling_back: Vec::new(),
            failed_attempts: BTreeSet::new(),
            runnable: BinaryHeap::new(),
            blocked_by_concurrency: Vec::new(),
            closable_frames: BTreeSet::new(),
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

    pub(super) fn step_state(&self, node: NodeId) -> &StepState {
        &self.frames[node.frame as usize].nodes[node.position as usize]
    }

    pub(super) fn step_state_mut(&mut self, node: NodeId) -> &mut StepState {
        &mut self.frames[node.frame as usize].nodes[node.position as usize]
    }

    /// Whether the whole run is being rolled back.
    pub(super) fn is_rolling_back(&self) -> bool {
        self.activations.first().is_some_and(|root| root.rollback.is_some())
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
        self.step_state(node).step
    }

    /// Whether a frame holds a composition's own steps.
    pub(super) fn is_root(&self, frame: u32) -> bool {
        self.activation_of(frame).root == frame
    }

    /// Whether no step progresses by itself and a person is asked.
    pub(super) fn is_waiting(&self) -> bool {
        let asks = self.busy == 0 && self.awaiting_person > 0;
        self.status == RunStatus::Running && (asks || self.awaits_consent())
    }

    /// The nodes of a frame.
    pub(super) fn nodes_of(&self, frame: u32) -> impl Iterator<Item = NodeId> + use<> {
        (0..index(self.frame(frame).nodes.len())).map(move |position| NodeId { frame, position })
    }

    pub(super) fn planned(&self, node: NodeId) -> &PlanStep {
        self.plan_of(node.frame).step(self.step_index(node))
    }

    pub(super) fn step(&self, node: NodeId) -> &Arc<Step> {
        &self.planned(node).step
    }

    /// The frame around this one, within the same composition.
    pub(super) fn outer(&self, frame: u32) -> Option<u32> {
        let here = self.frame(frame);
        let outer = here.parent?.frame;
        (self.frame(outer).activation == here.activation).then_some(outer)
    }

    /// The names that a chain starts with.
    fn chain_names(&self, plan: &Plan, input: &Value) -> Value {
        let mut names = match input {
            Value::Object(given) => (**given).clone(),
            _ => return Value::empty_object(),
        };
        let chain_id = self.started.as_ref().map(|started| started.chain_id.clone());
        names.insert("chain_id".into(), chain_id.map_or(Value::Null, Value::String));
        names.insert("chain_name".into(), Value::String(plan.composition.name.clone()));
        names.insert("started_at".into(), Value::from(rfc3339(self.started_ms)));
        names.into()
    }

    /// Sets a name in the state of the enclosing chain; other dialects have no such state.
    fn name(&mut self, frame: u32, name: Arc<str>, value: Value) {
        if let Value::Object(names) = &mut self.activation_mut(frame).names {
            names.insert(name, value);
        }
    }

    pub(super) fn run_info(&self) -> Value {
        let text = |text: &Arc<str>| Value::String(text.clone());
        let id = self.started.as_ref().map_or(Value::Null, |started| text(&started.run_id));
        Value::object([
            ("id", id),
            ("name", text(&self.plan.composition.name)),
            ("started_at", Value::from(rfc3339(self.started_ms))),
        ])
    }

    /// The only function that changes a run. An illegal fact changes nothing.
    pub(super) fn apply(&mut self, entry: &Entry) -> Result<(), IllegalFact> {
        self.check_fact(entry)?;
        self.seq = entry.seq + 1;
        match &entry.fact {
            Fact::Started(started) => self.begin(started, entry.at_ms),
            Fact::ConsentAsked | Fact::Consented { .. } => {
                self.consent = self.consent.next(entry)?;
            }
            Fact::Opened { node, body, item } => {
                self.advance(*node, entry)?;
                let activation = self.frame(node.frame).activation;
                self.open(activation, *body, Some(*node), item.clone());
            }
            Fact::Looped { node, items } => {
                self.advance(*node, entry)?;
                self.step_state_mut(*node).items = Some(items.clone());
            }
            Fact::Entered { node, candidate, input } => {
                self.begin_attempt(*node, *candidate, input, entry)?;
                let nested = self.planned(*node).nested.get(candidate).cloned();
                self.enter(*node, nested.ok_or(IllegalFact)?, input, false);
                self.mark_covered();
            }
            Fact::Expanding { node, document } => {
                self.advance(*node, entry)?;
                self.step_state_mut(*node).args = document.clone();
            }
            Fact::Expanded { node, plan, input } => {
                self.advance(*node, entry)?;
                self.has_sensitive |= has_sensitive(plan);
                self.enter(*node, plan.clone(), input, false);
            }
            Fact::Visited { frame, position } => self.visit(*frame, *position),
            Fact::Asked { node, args, .. } => {
                self.advance(*node, entry)?;
                self.learn(*node, args);
                let record = self.step_state_mut(*node);
                record.args = args.clone();
                record.asked_seq = entry.seq;
            }
            Fact::Called { node, candidate, args } => {
                self.begin_attempt(*node, *candidate, args, entry)?;
                self.calls += 1;
            }
            Fact::HandleReceived { node, handle } => self.set_resume_handle(*node, handle)?,
            Fact::ResumeSent { node } => self.begin_resume(*node)?,
            Fact::Probed { node, failure, .. } => {
                self.advance(*node, entry)?;
                let record = self.step_state_mut(*node);
                record.attempts += 1;
                record.probes += 1;
                record.probe_attempts += 1;
                record.doubt = Some(failure.clone());
                self.calls += 1;
            }
            Fact::Doubted { node, failure } => {
                self.advance(*node, entry)?;
                let record = self.step_state_mut(*node);
                record.doubt = Some(failure.clone());
                record.asked_seq = entry.seq;
            }
            Fact::Resolved { node, done, .. } => {
                self.advance(*node, entry)?;
                let record = self.step_state_mut(*node);
                record.was_in_doubt &= *done;
                record.doubt = None;
                record.probe_attempts = 0;
            }
            Fact::Lost { node } => {
                self.advance(*node, entry)?;
                let step = self.step(*node).clone();
                let record = self.step_state_mut(*node);
                // A stop of the engine is no attempt of the tool.
                record.candidate_attempts -= 1;
                // An unanswered call may have done its work.
                let tool = super::advance::tool_spec(super::advance::candidate_call(
                    &step,
                    record.candidate,
                ));
                record.was_in_doubt |=
                    tool.annotations.impact() != crate::composition::tool::Impact::Reads;
                self.push_ready(*node);
            }
            Fact::BackedOff { node, failure, until_ms } => {
                self.advance(*node, entry)?;
                let has_bodies = !matches!(self.step(*node).kind, StepKind::Tool(_));
                let record = self.step_state_mut(*node);
                // Another call of a probe is no failed attempt of the tool.
                let is_attempt = record.doubt.is_none();
                if has_bodies {
                    self.forget_attempt(*node, failure);
                } else if is_attempt {
                    record.note_failure(failure);
                }
                let record = self.step_state_mut(*node);
                record.wake_ms = *until_ms;
                record.backoff_ms = until_ms.saturating_sub(entry.at_ms);
                if is_attempt {
                    self.count_retry(*node);
                }
            }
            Fact::GaveUp { node, failure } => {
                self.advance(*node, entry)?;
                let record = self.step_state_mut(*node);
                record.note_failure(failure);
                record.is_confirmed = false;
                self.push_ready(*node);
            }
            Fact::Granted { node, .. } => {
                self.advance(*node, entry)?;
                self.step_state_mut(*node).is_confirmed = true;
                self.push_ready(*node);
            }
            Fact::Woke { node } => {
                self.advance(*node, entry)?;
                self.push_ready(*node);
            }
            Fact::Slept { node, until_ms } | Fact::Paused { node, until_ms } => {
                self.advance(*node, entry)?;
                let record = self.step_state_mut(*node);
                record.wake_ms = *until_ms;
                record.backoff_ms = until_ms.saturating_sub(entry.at_ms);
            }
            Fact::Reused { node, given, output } => {
                self.settle(*node, entry)?;
                self.learn(*node, output);
                let record = self.step_state_mut(*node);
                record.assigned_names.clone_from(given);
                record.is_reused = true;
            }
            Fact::Succeeded { node, given, output } => {
                self.settle(*node, entry)?;
                self.value_bytes = self.value_bytes.saturating_add(output.size());
                self.learn(*node, output);
                for (name, value) in given.iter().flat_map(|given| given.iter()) {
                    self.name(node.frame, name.clone(), value.clone());
                }
                self.step_state_mut(*node).assigned_names.clone_from(given);
            }
            Fact::TimedOut { node, failure } | Fact::FailureDecided { node, failure } => {
                if !matches!(self.step_state(*node).node, NodeState::Open { .. }) {
                    return Err(IllegalFact);
                }
                self.step_state_mut(*node).ended_by = Some(failure.clone());
            }
            Fact::Tolerated { node, .. }
            | Fact::Failed { node, .. }
            | Fact::Skipped { node, .. }
            | Fact::Cancelled { node, .. } => self.settle(*node, entry)?,
            Fact::Stopped { frame, failure } => {
                self.frames[*frame as usize].stopped = Some(failure.clone());
                self.closable_frames.insert(*frame);
            }
            Fact::Closed { frame, failed, is_final } => self.close(*frame, *failed, *is_final),
            // The following facts record the consequence.
            Fact::Refused { .. } | Fact::CancelAsked { .. } => {}
            Fact::RollbackAsked { by } => {
                self.rollback_asked = Some(by.clone());
                self.status = RunStatus::Running;
                self.ended_ms = 0;
            }
            Fact::RollbackStarted { frame, failure, steps } => {
                self.begin_rollback(*frame, failure, steps);
            }
            Fact::AttemptRollbackStarted { node, failure, steps } => {
                self.begin_attempt_rollback(*node, failure, steps)?;
            }
            Fact::RollbackCalled { node, args } => {
                self.advance_rollback(*node, entry)?;
                let record = self.step_state_mut(*node);
                record.attempts += 1;
                record.rollback_attempts += 1;
                record.rollback_args = args.clone();
                record.resume_handle = ResumeHandle::default();
                self.calls += 1;
            }
            Fact::RollbackEntered { node, input } => {
                self.advance_rollback(*node, entry)?;
                let record = self.step_state_mut(*node);
                record.attempts += 1;
                record.rollback_attempts += 1;
                record.rollback_args = input.clone();
                record.resume_handle = ResumeHandle::default();
                record.attempt_ms = entry.at_ms;
                let candidate = record.candidate;
                let plan = self.planned(*node).rollback_plans.get(&candidate).cloned();
                self.enter(*node, plan.ok_or(IllegalFact)?, input, true);
            }
            Fact::RollbackBackedOff { node, until_ms, .. } => {
                self.advance_rollback(*node, entry)?;
                let record = self.step_state_mut(*node);
                record.wake_ms = *until_ms;
                record.backoff_ms = until_ms.saturating_sub(entry.at_ms);
            }
            Fact::RolledBack { node } | Fact::RollbackFailed { node, .. } => {
                self.advance_rollback(*node, entry)?;
            }
            Fact::ReferencesKept { node, references } => {
                self.step_state_mut(*node).kept.extend(references.iter().cloned());
            }
            Fact::AnsweredLate { .. } => {}
            Fact::Finished { status, output, failure } => {
                self.status = *status;
                self.output = output.clone();
                self.failure.clone_from(failure);
                self.ended_ms = entry.at_ms;
            }
        }
        Ok(())
    }

    /// Whether an entry is the next one, about an existing step or frame, of an unfinished run.
    fn check_fact(&self, entry: &Entry) -> Result<(), IllegalFact> {
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

    fn begin(&mut self, started: &Started, at_ms: u64) {
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
    fn activation(&self, plan: Arc<Plan>, input: &Value) -> Activation {
        let root = index(self.frames.len());
        let names = match plan.composition.body.flow {
            Flow::Program => self.chain_names(&plan, input),
            Flow::Graph => Value::Null,
        };
        Activation { names, ..Activation::new(plan, input.clone(), root) }
    }

    /// Starts an attempt: the first of its tool, or another one.
    fn begin_attempt(
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

    fn enter(&mut self, node: NodeId, plan: Arc<Plan>, input: &Value, is_rollback: bool) {
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
    fn mark_covered(&mut self) {
        let at = index(self.activations.len() - 1);
        let entered = &mut self.activations[at as usize];
        if entered.plan.composition.atomic {
            entered.covered_by.get_or_insert(at);
        }
    }

    fn open(
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
    pub(super) fn body_rolls_back(&self, activation: u32, body: BodyIndex) -> bool {
        self.activations[activation as usize].is_rollback && body == 0
    }

    /// Counts an open frame, in its composition and in enclosing ones.
    fn count_open(&mut self, activation: u32, count: impl Fn(&mut u32)) {
        let mut at = Some(activation);
        while let Some(activation) = at {
            let around = &mut self.activations[activation as usize];
            count(&mut around.open_frames);
            at = around.parent;
        }
    }

    /// A program continues with a step.
    fn visit(&mut self, frame: u32, position: u32) {
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
    fn count_retry(&mut self, node: NodeId) {
        if self.is_root(node.frame) {
            let position = self.frame(node.frame).step_position(node.position);
            let name = format!("step_{position}_retry_count").into();
            let tries = self.step_state(node).candidate_attempts;
            self.name(node.frame, name, Value::from(u64::from(tries)));
        }
    }

    /// Applies the transition table to a step.
    fn advance(&mut self, node: NodeId, entry: &Entry) -> Result<(), IllegalFact> {
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
    fn settle(&mut self, node: NodeId, entry: &Entry) -> Result<(), IllegalFact> {
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

    fn close(&mut self, frame: u32, failed: bool, is_final: bool) {
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

pub(super) fn index(position: usize) -> u32 {
    u32::try_from(position).expect("a run has far fewer than 2^32 steps")
}
