//! What a plan says beforehand of the calls that it may make: what a person is told before a yes.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::iter::once;

use super::{Plan, PlanStep};
use crate::composition::tool::{DeclaredRollback, Impact, ToolSpec};
use crate::composition::{ResolvedRollback, StepKind, StepRollback, Strategy, ToolCall};
use crate::id::ToolId;
use crate::value::Value;

/// A tool that a run may call, in compositions inside too.
#[derive(Clone, Debug, PartialEq)]
pub struct DeclaredCall {
    /// The tool.
    pub tool: ToolId,
    /// What it does to the world.
    pub effect: Impact,
    /// What its calls are given, as it is written, of the first few; empty where that is not known before.
    pub arguments: Vec<Value>,
    /// Whether its calls ask first. What takes steps back asks with them, before they are made.
    pub asks: bool,
    /// Whether every step that changes something through it can be taken back.
    pub can_roll_back: bool,
    /// Whether it is called to take steps back. A tool that also does work is listed twice.
    pub is_rollback: bool,
}

/// What was found, in the order in which it is listed.
type DeclaredCalls = BTreeMap<(bool, ToolId), DeclaredCall>;

impl Plan {
    /// Every tool that a run may call, by id, and after them those that take steps back. Compositions
    /// are seen through, and so is code that declares what it calls.
    pub fn declared_calls(&self) -> Vec<DeclaredCall> {
        self.declared_calls_within(false).into_values().collect()
    }

    fn declared_calls_within(&self, rolls_back: bool) -> DeclaredCalls {
        let mut found = DeclaredCalls::new();
        self.declare(rolls_back, &mut found);
        found
    }

    /// Whether a run may call a tool, or enter a composition of that id.
    pub fn may_call(&self, tool: &ToolId) -> bool {
        self.tools.contains_key(tool)
            || self.steps.iter().any(|step| step.nested.values().any(|plan| plan.may_call(tool)))
    }

    /// Whether a run may call what is not known before: a composition that is made at run time.
    pub fn has_expand_step(&self) -> bool {
        self.steps.iter().any(|step| {
            matches!(step.step.kind, StepKind::Expand(_))
                || step.nested.values().any(|plan| plan.has_expand_step())
        })
    }

    /// Whether a run asks a person on its way: it has an `approve` step, in compositions inside too.
    pub fn has_approve_step(&self) -> bool {
        self.steps.iter().any(|step| {
            matches!(step.step.kind, StepKind::Approve { .. })
                || step.nested.values().any(|plan| plan.has_approve_step())
        })
    }

    /// Whether a failure takes back what was done, by the composition's own word.
    pub fn rolls_back_on_failure(&self) -> bool {
        let handling = &self.composition.error_handling;
        handling.rollback_on_failure || handling.strategy == Strategy::Rollback
    }

    /// Whether a run asks once before it begins: it is atomic, and one of its calls would ask.
    pub fn needs_run_consent(&self) -> bool {
        self.needs_run_consent_within(false)
    }

    /// The same where something around it takes back what it did.
    pub fn needs_run_consent_within(&self, rolls_back: bool) -> bool {
        self.composition.atomic && self.may_ask(rolls_back)
    }

    fn may_ask(&self, rolls_back: bool) -> bool {
        self.has_expand_step()
            || self.declared_calls_within(rolls_back).values().any(|call| call.asks)
    }

    fn declare(&self, rolls_back: bool, found: &mut DeclaredCalls) {
        let rolls_back = rolls_back || self.rolls_back_on_failure();
        for planned in &self.steps {
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
            planned.nested.values().for_each(|plan| plan.declare(rolls_back, found));
            planned.declare_rollbacks(rolls_back, found);
        }
    }
}

impl PlanStep {
    /// What takes a call of the step back, by the word of the composition alone: neither the tool nor
    /// its operator vouches for it. 0 is the step itself, n its n-th fallback.
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

    /// Whether a call of the step asks because of what would take it back: when that is to be done
    /// there may be nobody to ask.
    pub fn rollback_needs_confirmation(&self, candidate: u16) -> bool {
        let asks = |call: &ToolCall| match self.rollback_plans.get(&candidate) {
            Some(plan) => plan.may_ask(false),
            None => call.tool.as_ref().is_none_or(|tool| tool.may_ask_person()),
        };
        self.untrusted_rollback(candidate).is_some_and(asks)
    }

    /// Whether what a call of the step does can be taken back, where it is not a composition.
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
                (Some(plan), _) => plan.declare(false, &mut inside),
                (None, Some(tool)) => {
                    add_call(&mut inside, tool, call, &ResolvedRollback::NotNeeded);
                    declare_parts(tool, true, &mut inside);
                }
                (None, None) => {}
            }
            let asks = rolls_back && self.untrusted_rollback(candidate).is_some();
            // What takes something back is not taken back itself.
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

/// Calls of one tool whose arguments are listed: nobody reads more before a yes.
const ARGUMENTS_MAX: usize = 50;

impl DeclaredCall {
    /// Adds what one of its calls is given.
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

/// Every tool that a call may reach through its parts, by id: what a person is told before a yes.
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
        // Code makes them.
        arguments: Vec::new(),
        asks: part.needs_confirmation(),
        can_roll_back: can_roll_back || effect <= Impact::Reads,
        is_rollback: false,
    };
    found.insert((false, part.id.clone()), declared);
    declare_parts(part, can_roll_back, found);
}
