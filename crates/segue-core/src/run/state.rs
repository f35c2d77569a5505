//! The state of a run. Only [`RunState::apply`] changes it, live or replayed; it is a table with
//! one arm per fact.

mod change;

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::sync::Arc;

use super::consent::RunConsent;
use super::frame::{Activation, Frame, StepState};
use super::journal::{Entry, Fact, Failure, NodeId, Options, Started};
use super::node::{IllegalFact, NodeState};
use super::redact::{SecretValues, has_sensitive};
use super::resume::ResumeHandle;
use crate::composition::{Step, StepKind};
use crate::expr::StepIndex;
use crate::plan::{Plan, PlanStep};
use crate::value::Value;
use crate::view::{RunStatus, StepOrigin, rfc3339};

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
                record.origin = Some(StepOrigin::Reused);
            }
            Fact::Pinned { node, given, output } => {
                self.settle(*node, entry)?;
                self.value_bytes = self.value_bytes.saturating_add(output.size());
                self.learn(*node, output);
                let record = self.step_state_mut(*node);
                record.assigned_names.clone_from(given);
                record.origin = Some(StepOrigin::Pinned);
            }
            Fact::LeftOut { node } => {
                self.settle(*node, entry)?;
                self.step_state_mut(*node).origin = Some(StepOrigin::LeftOut);
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
}

pub(super) fn index(position: usize) -> u32 {
    u32::try_from(position).expect("a run has far fewer than 2^32 steps")
}
