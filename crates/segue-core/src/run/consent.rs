//! Consent for a whole run, or for an atomic composition that a step enters.
//!
//! The question comes before the first call and lists every tool that may be called. The consent
//! covers only those tools, and ends with the composition that it was given for.

use std::sync::Arc;

use super::advance::{TurnBuilder, candidate_call, tool_spec};
use super::journal::{Entry, Fact, Failure, NodeId};
use super::node::IllegalFact;
use super::state::RunState;
use super::{Effect, Overwrites, Question, QuestionId, QuestionKind};
use crate::composition::tool::{ConfirmPolicy, ToolSpec};
use crate::composition::{Step, ToolCall};
use crate::diagnostic::Code;
use crate::plan::{DeclaredCall, reachable_calls};
use crate::value::Value;

/// The state of the run's consent question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RunConsent {
    /// Not asked.
    #[default]
    NotAsked,
    /// Asked, by the entry of this number.
    Asked { seq: u64 },
    /// Granted.
    Given,
}

impl RunConsent {
    /// The state after a fact.
    pub(super) fn next(self, entry: &Entry) -> Result<RunConsent, IllegalFact> {
        match (self, &entry.fact) {
            (RunConsent::NotAsked, Fact::ConsentAsked) => Ok(RunConsent::Asked { seq: entry.seq }),
            (RunConsent::Asked { .. }, Fact::Consented { .. }) => Ok(RunConsent::Given),
            _ => Err(IllegalFact),
        }
    }
}

impl NodeId {
    /// Stands for the run itself, where the run asks.
    pub const RUN: NodeId = NodeId { frame: u32::MAX, position: u32::MAX };
}

impl RunState {
    /// Whether the run waits for consent before its first step.
    pub(super) fn awaits_consent(&self) -> bool {
        let stopped = self.frames.first().is_some_and(|root| root.stopped.is_some());
        matches!(self.consent, RunConsent::Asked { .. }) && !stopped
    }

    /// The consent question of the run, while it is open.
    pub(super) fn consent_question(&self) -> Option<Question> {
        let RunConsent::Asked { seq } = self.consent else { return None };
        let started = self.started.as_ref().filter(|_| self.awaits_consent())?;
        let plan = self.plan_of(0);
        let name = plan.composition.name.clone();
        let kind = QuestionKind::Run {
            composition: name.clone(),
            input: self.redact_input(plan, &started.input),
            calls: plan.declared_calls_of(&|own| self.performs(own)),
        };
        Some(Question { id: QuestionId { node: NodeId::RUN, seq }, step: name, kind })
    }

    /// The activation around a body that has consent as a whole.
    fn consented_activation(&self, frame: u32) -> Option<u32> {
        let given = self.options().is_some_and(|options| options.consented);
        if given || self.consent == RunConsent::Given {
            return Some(0);
        }
        self.activation_of(frame).covered_by
    }

    /// Whether the consent to an activation covers calls of a tool.
    fn consent_covers(&self, activation: u32, tool: &ToolSpec) -> bool {
        let plan = &self.activations[activation as usize].plan;
        if activation == 0 && self.is_part() {
            plan.may_call_in(&tool.id, &|own| self.performs(own))
        } else {
            plan.may_call(&tool.id)
        }
    }

    /// Whether the run needs consent before its first step.
    fn needs_run_consent(&self, rolls_back: bool) -> bool {
        // A step whose value was refused may have ended the run already.
        self.frame(0).stopped.is_none()
            && self.plan_of(0).needs_run_consent_of(rolls_back, &|own| self.performs(own))
    }

    /// Whether a failure rolls back a body: its composition, or one around it, says so.
    pub(super) fn rolls_back_on_failure(&self, frame: u32) -> bool {
        let mut at = Some(self.frame(frame).activation);
        while let Some(activation) = at.map(|at| &self.activations[at as usize]) {
            if activation.rolls_back_on_failure() {
                return true;
            }
            at = activation.parent;
        }
        false
    }

    /// The rollback of a step, if it needs confirmation. When the rollback runs, no person may be
    /// there to confirm it, so the step asks for both.
    pub(super) fn rollback_to_confirm(&self, node: NodeId, candidate: u16) -> Option<&ToolCall> {
        let planned = self.planned(node);
        let asks = self.rolls_back_on_failure(node.frame)
            && planned.rollback_needs_confirmation(candidate);
        planned.untrusted_rollback(candidate).filter(|_| asks)
    }

    /// Files that the run may overwrite without confirmation: those that its own composition names,
    /// if that belongs to the operator.
    fn overwrites(&self) -> &[Arc<str>] {
        let is_vouched = self.options().is_some_and(|options| options.vouched);
        if is_vouched { &self.plan_of(0).composition.overwrites } else { &[] }
    }

    /// Whether every call is approved in advance.
    fn is_approved(&self, frame: u32) -> bool {
        // The consent to a step included its rollback.
        self.options().is_some_and(|options| options.approved)
            || self.activation_of(frame).is_inside_rollback
    }
}

impl TurnBuilder<'_> {
    /// Asks for consent to the whole run, if it needs it.
    pub(super) fn ask_for_consent(&mut self) {
        let is_given = self.state.options().is_some_and(|given| given.approved || given.consented);
        let rolls_back = self.state.rolls_back_on_failure(0);
        if !is_given && self.state.needs_run_consent(rolls_back) {
            self.record(Fact::ConsentAsked);
            self.ask_consent_again();
        }
    }

    /// Asks for consent, again after a restart.
    pub(super) fn ask_consent_again(&mut self) {
        let question = self.state.consent_question();
        self.turn.perform.extend(question.map(Effect::Ask));
    }

    /// Handles the answer to the consent question.
    pub(super) fn consent_decided(&mut self, seq: u64, granted: bool, by: Arc<str>) {
        if self.state.consent != (RunConsent::Asked { seq }) || !self.state.awaits_consent() {
            return;
        }
        if granted {
            return self.record(Fact::Consented { by });
        }
        self.record(Fact::Refused { node: None, by });
        let name = &self.state.plan_of(0).composition.name;
        let failure = denied_failure(format!("`{name}` was not allowed to run"));
        self.stop(0, &Arc::new(failure));
    }

    /// Whether the calls of a step need no confirmation.
    pub(super) fn covers_parts(&self, node: NodeId) -> bool {
        self.state.is_approved(node.frame) || self.state.consented_activation(node.frame).is_some()
    }

    /// The files that a call of a step may overwrite.
    pub(super) fn overwrites_for(&self, node: NodeId, tool: &ToolSpec) -> Overwrites {
        let is_allowed = self.covers_parts(node) || self.state.step_state(node).is_confirmed;
        if is_allowed || tool.confirm == ConfirmPolicy::Never {
            return Overwrites::Everything;
        }
        Overwrites::Only(self.state.overwrites().to_vec())
    }

    /// Why the consent does not cover a call.
    pub(super) fn consent_violation(&self, node: NodeId, tool: &ToolSpec) -> Option<Failure> {
        let covering = self.state.consented_activation(node.frame)?;
        let is_covered =
            self.state.is_approved(node.frame) || self.state.consent_covers(covering, tool);
        let message = || format!("`{}` was not declared when the run was approved", tool.id);
        (!is_covered).then(|| Failure::permanent(Code::Denied, message()))
    }

    /// The same for the rollback of a step.
    pub(super) fn rollback_consent_violation(
        &self,
        node: NodeId,
        candidate: u16,
    ) -> Option<Failure> {
        let rollback = self.state.planned(node).untrusted_rollback(candidate)?;
        self.consent_violation(node, tool_spec(rollback))
    }

    /// Whether a call needs confirmation. An atomic composition asks once for all its calls, any
    /// other one for each.
    pub(super) fn needs_confirmation(
        &self,
        node: NodeId,
        step: &Step,
        candidate: u16,
        args: &Value,
    ) -> bool {
        if self.covers_parts(node) {
            return false;
        }
        let by_itself = match self.state.planned(node).nested.get(&candidate) {
            Some(nested) => {
                nested.needs_run_consent_within(self.state.rolls_back_on_failure(node.frame))
            }
            None => {
                let tool = tool_spec(candidate_call(step, candidate));
                tool.must_confirm_within(args, self.state.overwrites())
            }
        };
        by_itself || self.state.rollback_to_confirm(node, candidate).is_some()
    }
}

/// The tools that a call may reach, beside its own tool and its rollback.
pub(super) fn declared_calls(state: &RunState, node: NodeId, candidate: u16) -> Vec<DeclaredCall> {
    match state.planned(node).nested.get(&candidate) {
        Some(nested) => nested.declared_calls(),
        None => reachable_calls(tool_spec(candidate_call(state.step(node), candidate))),
    }
}

/// The ways to confirm through each surface: the journal keeps the hint, and every surface may show it.
const CONFIRM_HINT: &str = "confirm it when asked, or in advance: `--yes` at the command line, \
    `options.approved` over REST and GraphQL; over MCP, use a host that asks people (elicitation)";

/// The failure of a denied question.
pub(super) fn denied_failure(message: String) -> Failure {
    let mut failure = Failure::permanent(Code::Denied, message);
    failure.hint = Some(CONFIRM_HINT.into());
    failure
}
