//! What one yes covers: a whole run, or an atomic composition that a step enters.
//!
//! The question comes before anything is called, and names every tool that may be. The yes holds for
//! those and for no other, and ends with what it was given for.

use std::sync::Arc;

use super::forward::{Moment, candidate_call, spec};
use super::journal::{Entry, Fact, Failure, NodeId};
use super::node::IllegalFact;
use super::state::State;
use super::{Effect, Overwrites, Question, QuestionId, QuestionKind};
use crate::composed;
use crate::composition::{Step, ToolCall};
use crate::diagnostic::Code;
use crate::plan::{Declared, Plan};
use crate::tool::{Confirm, ToolSpec};
use crate::value::Value;

/// How the one question of a run stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Consent {
    /// Nobody was asked.
    #[default]
    NotAsked,
    /// Somebody is being asked, with the entry of this number.
    Asked { seq: u64 },
    /// Somebody said yes.
    Given,
}

impl Consent {
    /// What follows from a fact.
    pub(super) fn next(self, entry: &Entry) -> Result<Consent, IllegalFact> {
        match (self, &entry.fact) {
            (Consent::NotAsked, Fact::ConsentAsked) => Ok(Consent::Asked { seq: entry.seq }),
            (Consent::Asked { .. }, Fact::Consented { .. }) => Ok(Consent::Given),
            _ => Err(IllegalFact),
        }
    }
}

impl NodeId {
    /// No step: the run itself, where it asks.
    pub const RUN: NodeId = NodeId { frame: u32::MAX, position: u32::MAX };
}

impl State {
    /// Whether nothing begins before somebody has allowed the run.
    pub(super) fn awaits_consent(&self) -> bool {
        let stopped = self.frames.first().is_some_and(|root| root.stopped.is_some());
        matches!(self.consent, Consent::Asked { .. }) && !stopped
    }

    /// The one question of the run, while it stands.
    pub(super) fn consent_question(&self) -> Option<Question> {
        let Consent::Asked { seq } = self.consent else { return None };
        let started = self.started.as_ref().filter(|_| self.awaits_consent())?;
        let plan = self.plan_of(0);
        let name = plan.composition.name.clone();
        let kind = QuestionKind::Run {
            composition: name.clone(),
            input: self.written_input(plan, &started.input),
            calls: plan.declared(),
        };
        Some(Question { id: QuestionId { node: NodeId::RUN, seq }, step: name, kind })
    }

    /// The plan that somebody has allowed as a whole, around a body.
    fn covering(&self, frame: u32) -> Option<&Arc<Plan>> {
        let given = self.options().is_some_and(|options| options.consented);
        if given || self.consent == Consent::Given {
            return self.activations.first().map(|root| &root.plan);
        }
        let around = self.activation_of(frame).covered_by?;
        Some(&self.activations[around as usize].plan)
    }

    /// Whether a failure takes back what is done in a body: by the word of its composition, or of one
    /// around it.
    pub(super) fn may_go_back(&self, frame: u32) -> bool {
        let mut at = Some(self.frame(frame).activation);
        while let Some(activation) = at.map(|at| &self.activations[at as usize]) {
            if activation.takes_back() {
                return true;
            }
            at = activation.parent;
        }
        false
    }

    /// What would take a step back, where that asks: once it is to be done there may be nobody to
    /// ask, so the step asks for it too.
    pub(super) fn asking_undo(&self, node: NodeId, candidate: u16) -> Option<&ToolCall> {
        let planned = self.planned(node);
        let asks = self.may_go_back(node.frame) && planned.undo_asks(candidate);
        planned.unvouched_undo(candidate).filter(|_| asks)
    }

    /// Files that the run may overwrite without asking: those that its own composition names, where
    /// that is the operator's.
    fn overwrites(&self) -> &[Arc<str>] {
        let is_vouched = self.options().is_some_and(|options| options.vouched);
        if is_vouched { &self.plan_of(0).composition.overwrites } else { &[] }
    }

    /// Whether nobody is asked, whatever is called.
    fn is_approved(&self, frame: u32) -> bool {
        // Whoever allowed a step was told of what takes it back.
        self.options().is_some_and(|options| options.approved)
            || self.activation_of(frame).is_inside_undo
    }
}

impl Moment<'_> {
    /// Asks once for the whole run, if it is to be asked for.
    pub(super) fn ask_for_consent(&mut self) {
        let is_given = self.state.options().is_some_and(|given| given.approved || given.consented);
        let takes_back = self.state.may_go_back(0);
        if !is_given && self.state.plan_of(0).asks_once_within(takes_back) {
            self.record(Fact::ConsentAsked);
            self.repeat_consent();
        }
    }

    /// Puts the one question of the run, again after a restart.
    pub(super) fn repeat_consent(&mut self) {
        let question = self.state.consent_question();
        self.turn.perform.extend(question.map(Effect::Ask));
    }

    /// Somebody has answered the one question of the run.
    pub(super) fn consent_decided(&mut self, seq: u64, granted: bool, by: Arc<str>) {
        if self.state.consent != (Consent::Asked { seq }) || !self.state.awaits_consent() {
            return;
        }
        if granted {
            return self.record(Fact::Consented { by });
        }
        self.record(Fact::Refused { node: None, by });
        let name = &self.state.plan_of(0).composition.name;
        let failure = denial(format!("`{name}` was not allowed to run"));
        self.stop(0, &Arc::new(failure));
    }

    /// Whether nobody is asked about calls of a step.
    pub(super) fn all_is_allowed(&self, node: NodeId) -> bool {
        self.state.is_approved(node.frame) || self.state.covering(node.frame).is_some()
    }

    /// What the call of a step may overwrite.
    pub(super) fn may_overwrite(&self, node: NodeId, tool: &ToolSpec) -> Overwrites {
        let is_allowed = self.all_is_allowed(node) || self.state.record(node).is_granted;
        if is_allowed || tool.confirm == Confirm::Never {
            return Overwrites::Everything;
        }
        Overwrites::Only(self.state.overwrites().to_vec())
    }

    /// Why a call is not covered by the yes that was given for everything around it.
    pub(super) fn not_covered(&self, node: NodeId, tool: &ToolSpec) -> Option<Failure> {
        let covering = self.state.covering(node.frame)?;
        let is_covered = self.state.is_approved(node.frame) || covering.declares(&tool.id);
        let message = || format!("`{}` was not declared when the run was allowed", tool.id);
        (!is_covered).then(|| Failure::lasting(Code::Denied, message()))
    }

    /// The same for what would take a step back.
    pub(super) fn undo_not_covered(&self, node: NodeId, candidate: u16) -> Option<Failure> {
        let undo = self.state.planned(node).unvouched_undo(candidate)?;
        self.not_covered(node, spec(undo))
    }

    /// Whether a call asks a person first. An atomic composition asks once for all of its calls, any
    /// other one for each of them.
    pub(super) fn asks(&self, node: NodeId, step: &Step, candidate: u16, args: &Value) -> bool {
        if self.all_is_allowed(node) {
            return false;
        }
        let by_itself = match self.state.planned(node).nested.get(&candidate) {
            Some(nested) => nested.asks_once_within(self.state.may_go_back(node.frame)),
            None => {
                let tool = spec(candidate_call(step, candidate));
                tool.asks_within(args, self.state.overwrites())
            }
        };
        by_itself || self.state.asking_undo(node, candidate).is_some()
    }
}

/// What a call may reach, beside its own tool and what takes it back.
pub(super) fn declared(state: &State, node: NodeId, candidate: u16) -> Vec<Declared> {
    match state.planned(node).nested.get(&candidate) {
        Some(nested) => nested.declared(),
        None => composed::declared(spec(candidate_call(state.step(node), candidate))),
    }
}

/// A no of whoever was asked.
pub(super) fn denial(message: String) -> Failure {
    let mut failure = Failure::lasting(Code::Denied, message);
    failure.hint =
        Some("confirm it when asked, or consent beforehand: `--yes`, or `options.approved`".into());
    failure
}
