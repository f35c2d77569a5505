//! The calls that a plan may make, for the confirmation question.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::iter::once;

use super::{Plan, PlanStep};
use crate::composition::tool::{DeclaredRollback, Impact, ToolSpec};
use crate::composition::{ResolvedRollback, StepKind, StepRollback, Strategy, ToolCall};
use crate::id::ToolId;
use crate::value::Value;

/// A tool that a run may call, also in inner compositions.
#[derive(Clone, Debug, PartialEq)]
pub struct DeclaredCall {
    /// The tool.
    pub tool: ToolId,
    /// Its effect.
    pub effect: Impact,
    /// The arguments of its first calls, as written; empty if they are not known in advance.
    pub arguments: Vec<Value>,
    /// Whether its calls need confirmation. Rollback calls are confirmed together with their steps,
    /// in advance.
    pub asks: bool,
    /// Whether every step that changes something through it can be rolled back.
    pub can_roll_back: bool,
    /// Whether it is called to roll steps back. A tool that also does forward work is listed twice.
    pub is_rollback: bool,
}

/// The calls found, in the order of the list.
type DeclaredCalls = BTreeMap<(bool, ToolId), DeclaredCall>;

impl Plan {
    /// Every tool that a run may call, by id, followed by the rollback tools. Includes the tools of
    /// inner compositions and the declared parts of code tools.
    pub fn declared_calls(&self) -> Vec<DeclaredCall> {
        self.declared_calls_of(&|_| true)
    }

    /// The same for a run that performs only some of the composition's own steps, by position.
    pub fn declared_calls_of(&self, performs: &dyn Fn(u32) -> bool) -> Vec<DeclaredCall> {
        self.declared_calls_within(false, performs).into_values().collect()
    }

    fn declared_calls_within(
        &self,
        rolls_back: bool,
        performs: &dyn Fn(u32) -> bool,
    ) -> DeclaredCalls {
        let mut found = DeclaredCalls::new();
        self.declare(rolls_back, performs, &mut found);
        found
    }

    /// Whether a run may call a tool, or run a composition of that id.
    pub fn may_call(&self, tool: &ToolId) -> bool {
        self.tools.contains_key(tool)
            || self.steps.iter().any(|step| step.nested.values().any(|plan| plan.may_call(tool)))
    }

    /// The same for a run that performs only some of the composition's own steps, by position.
    pub fn may_call_in(&self, tool: &ToolId, performs: &dyn Fn(u32) -> bool) -> bool {
        let calls = |planned: &PlanStep| {
            let mut own = planned.step.calls().into_iter().filter_map(|call| call.tool.as_ref());
            own.any(|called| called.id == *tool)
                || planned.nested.values().any(|plan| plan.may_call(tool))
        };
        let mut performed = self.steps.iter().filter(|step| performs(self.own_position(step)));
        performed.any(calls)
            || self.declared_calls_of(performs).iter().any(|call| call.tool == *tool)
    }

    /// Whether a run may call unknown tools: it expands a composition at run time.
    pub fn has_expand_step(&self) -> bool {
        self.steps.iter().any(PlanStep::expands)
    }

    /// Whether a run has an `approve` step, also in inner compositions.
    pub fn has_approve_step(&self) -> bool {
        self.steps.iter().any(|step| {
            matches!(step.step.kind, StepKind::Approve { .. })
                || step.nested.values().any(|plan| plan.has_approve_step())
        })
    }

    /// Whether the composition rolls back on failure.
    pub fn rolls_back_on_failure(&self) -> bool {
        let handling = &self.composition.error_handling;
        handling.rollback_on_failure || handling.strategy == Strategy::Rollback
    }

    /// Whether a run needs one confirmation before it starts: it is atomic, and one of its calls
    /// needs confirmation.
    pub fn needs_run_consent(&self) -> bool {
        self.needs_run_consent_within(false)
    }

    /// The same for a composition whose outer composition may roll it back.
    pub fn needs_run_consent_within(&self, rolls_back: bool) -> bool {
        self.needs_run_consent_of(rolls_back, &|_| true)
    }

    /// The same for a run that performs only some of the composition's own steps, by position.
    pub fn needs_run_consent_of(&self, rolls_back: bool, performs: &dyn Fn(u32) -> bool) -> bool {
        self.composition.atomic && self.may_ask(rolls_back, performs)
    }

    fn may_ask(&self, rolls_back: bool, performs: &dyn Fn(u32) -> bool) -> bool {
        let mut performed = self.steps.iter().filter(|step| performs(self.own_position(step)));
        performed.any(PlanStep::expands)
            || self.declared_calls_within(rolls_back, performs).values().any(|call| call.asks)
    }

    fn declare(&self, rolls_back: bool, performs: &dyn Fn(u32) -> bool, found: &mut DeclaredCalls) {
        let rolls_back = rolls_back || self.rolls_back_on_failure();
        for planned in self.steps.iter().filter(|step| performs(self.own_position(step))) {
            let step = &planned.step;
            let mut add = |call: &ToolCall, rollback: &ResolvedRollback| {
                let Some(tool) = &call.tool else { return };
                if tool.composition.is_none() {
                    add_call(found, tool, call, rollback);
                    declare_parts(tool, can_roll_back(rollback), found);
                }
            };
            if let StepKind::Tool(call) = &step.kind {
                add(call, &step.resolved_rollback);
            }
            for (call, rollback) in step.fallback.iter().zip(&step.fallback_rollbacks) {
                add(call, rollback);
            }
            if let Some(probe) = &step.probe {
                add(&probe.call, &ResolvedRollback::NotNeeded);
            }
            planned.nested.values().for_each(|plan| plan.declare(rolls_back, &|_| true, found));
            planned.declare_rollbacks(rolls_back, found);
        }
    }
}

impl PlanStep {
    /// Whether it expands a composition at run time, itself or in a composition that it calls.
    fn expands(&self) -> bool {
        matches!(self.step.kind, StepKind::Expand(_))
            || self.nested.values().any(|plan| plan.has_expand_step())
    }

    /// The rollback call of a step that only the composition declares, neither the tool nor its
    /// operator. Candidate 0 is the step itself, n its n-th fallback.
    pub fn untrusted_rollback(&self, candidate: u16) -> Option<&ToolCall> {
        let StepRollback::Call(own) = &self.step.rollback else { return None };
        let ResolvedRollback::Call(_) = self.resolved_rollback(candidate)? else { return None };
        let called = match (&self.step.kind, candidate) {
            (StepKind::Tool(call), 0) => Some(call),
            (_, 0) => None,
            (_, fallback) => self.step.fallback.get(usize::from(fallback) - 1),
        };
        let declared = called.and_then(|call| call.tool.as_ref()).map(|tool| &tool.rollback);
        let is_vouched = matches!(declared, Some(DeclaredRollback::Call { tool, parameters })
            if (own.name == *tool || own.tool.as_ref().is_some_and(|own| own.id.shared() == tool))
                && own.parameters.template.to_value() == *parameters);
        (!is_vouched).then_some(own)
    }

    /// Whether a call needs confirmation because of its rollback: when the rollback runs, no person
    /// may be there to confirm it.
    pub fn rollback_needs_confirmation(&self, candidate: u16) -> bool {
        let asks = |call: &ToolCall| match self.rollback_plans.get(&candidate) {
            Some(plan) => plan.may_ask(false, &|_| true),
            None => call.tool.as_ref().is_none_or(|tool| tool.may_ask_person()),
        };
        self.untrusted_rollback(candidate).is_some_and(asks)
    }

    /// Whether the effect of a call can be rolled back, if it is not a composition.
    pub(crate) fn can_roll_back(&self, candidate: u16) -> bool {
        self.resolved_rollback(candidate).is_some_and(can_roll_back)
    }

    fn resolved_rollback(&self, candidate: u16) -> Option<&ResolvedRollback> {
        match candidate.checked_sub(1) {
            None => Some(&self.step.resolved_rollback),
            Some(fallback) => self.step.fallback_rollbacks.get(usize::from(fallback)),
        }
    }

    fn declare_rollbacks(&self, rolls_back: bool, found: &mut DeclaredCalls) {
        for (candidate, rollback) in
            (0..).zip(once(&self.step.resolved_rollback).chain(&self.step.fallback_rollbacks))
        {
            let ResolvedRollback::Call(call) = rollback else { continue };
            let mut inside = DeclaredCalls::new();
            match (self.rollback_plans.get(&candidate), &call.tool) {
                (Some(plan), _) => plan.declare(false, &|_| true, &mut inside),
                (None, Some(tool)) => {
                    add_call(&mut inside, tool, call, &ResolvedRollback::NotNeeded);
                    declare_parts(tool, true, &mut inside);
                }
                (None, None) => {}
            }
            let asks = rolls_back && self.untrusted_rollback(candidate).is_some();
            // Rollbacks are not rolled back themselves.
            for call in inside.into_values().filter(|call| !call.is_rollback) {
                let asks = asks && call.asks;
                let own =
                    DeclaredCall { asks: false, can_roll_back: true, is_rollback: true, ..call };
                match found.entry((true, own.tool.clone())) {
                    Entry::Occupied(mut listed) => {
                        listed.get_mut().asks |= asks;
                        own.arguments.into_iter().for_each(|it| listed.get_mut().add(|| it));
                    }
                    Entry::Vacant(free) => free.insert(own).asks = asks,
                }
            }
        }
    }
}

/// The number of calls of one tool whose arguments are listed; people read no more before
/// confirming.
const ARGUMENTS_MAX: usize = 50;

impl DeclaredCall {
    /// Adds the arguments of a call.
    fn add(&mut self, arguments: impl FnOnce() -> Value) {
        if self.arguments.len() == ARGUMENTS_MAX {
            return;
        }
        let arguments = arguments();
        if !self.arguments.contains(&arguments) {
            self.arguments.push(arguments);
        }
    }
}

fn add_call(
    found: &mut DeclaredCalls,
    tool: &ToolSpec,
    call: &ToolCall,
    rollback: &ResolvedRollback,
) {
    let effect = tool.annotations.impact();
    let declared = found.entry((false, tool.id.clone())).or_insert_with(|| DeclaredCall {
        tool: tool.id.clone(),
        effect,
        arguments: Vec::new(),
        asks: tool.needs_confirmation(),
        can_roll_back: true,
        is_rollback: false,
    });
    declared.add(|| call.parameters.template.to_value());
    declared.can_roll_back &= effect <= Impact::Reads || can_roll_back(rollback);
}

fn can_roll_back(rollback: &ResolvedRollback) -> bool {
    matches!(rollback, ResolvedRollback::Call(_) | ResolvedRollback::NotNeeded)
}

/// Every tool that a call may reach through its parts, by id, for the confirmation question.
pub fn reachable_calls(tool: &ToolSpec) -> Vec<DeclaredCall> {
    let mut found = DeclaredCalls::new();
    declare_parts(tool, tool.can_roll_back(), &mut found);
    found.into_values().collect()
}

/// Adds what a call may reach through parts. Compositions are seen through.
fn declare_parts(tool: &ToolSpec, can_roll_back: bool, found: &mut DeclaredCalls) {
    let Some(composed) = &tool.code_tool else { return };
    for part in composed.parts.values() {
        declare(part, can_roll_back, found);
    }
}

fn declare(part: &ToolSpec, can_roll_back: bool, found: &mut DeclaredCalls) {
    if found.contains_key(&(false, part.id.clone())) {
        return;
    }
    if let Some(composition) = &part.composition {
        composition.body.walk_calls(&mut |call| {
            if let Some(tool) = &call.tool {
                declare(tool, can_roll_back, found);
            }
        });
        return;
    }
    let effect = part.annotations.impact();
    let declared = DeclaredCall {
        tool: part.id.clone(),
        effect,
        // The code decides the arguments at run time.
        arguments: Vec::new(),
        asks: part.needs_confirmation(),
        can_roll_back: can_roll_back || effect <= Impact::Reads,
        is_rollback: false,
    };
    found.insert((false, part.id.clone()), declared);
    declare_parts(part, can_roll_back, found);
}
