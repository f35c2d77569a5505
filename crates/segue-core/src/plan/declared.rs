//! What a plan says beforehand of the calls that it may make: what a person is told before a yes.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::iter::once;

use super::{Plan, PlanStep};
use crate::composed;
use crate::composition::{StepKind, StepRollback, Strategy, ToolCall, Undo};
use crate::id::ToolId;
use crate::tool::{DeclaredRollback, Impact, ToolSpec};
use crate::value::Value;

/// A tool that a run may call, in compositions inside too.
#[derive(Clone, Debug, PartialEq)]
pub struct Declared {
    /// The tool.
    pub tool: ToolId,
    /// What it does to the world.
    pub effect: Impact,
    /// What its calls are given, as it is written, of the first few; empty where that is not known before.
    pub arguments: Vec<Value>,
    /// Whether its calls ask first. What takes steps back asks with them, before they are made.
    pub asks: bool,
    /// Whether every step that changes something through it can be taken back.
    pub is_undoable: bool,
    /// Whether it is called to take steps back. A tool that also does work is listed twice.
    pub takes_back: bool,
}

/// What was found, in the order in which it is listed.
pub(crate) type Found = BTreeMap<(bool, ToolId), Declared>;

impl Plan {
    /// Every tool that a run may call, by id, and after them those that take steps back. Compositions
    /// are seen through, and so is code that declares what it calls.
    pub fn declared(&self) -> Vec<Declared> {
        self.declared_within(false).into_values().collect()
    }

    fn declared_within(&self, takes_back: bool) -> Found {
        let mut found = Found::new();
        self.declare(takes_back, &mut found);
        found
    }

    /// Whether a run may call a tool, or enter a composition of that id.
    pub fn declares(&self, tool: &ToolId) -> bool {
        self.tools.contains_key(tool)
            || self.steps.iter().any(|step| step.nested.values().any(|plan| plan.declares(tool)))
    }

    /// Whether a run may call what is not known before: a composition that is made at run time.
    pub fn expands(&self) -> bool {
        self.steps.iter().any(|step| {
            matches!(step.step.kind, StepKind::Expand(_))
                || step.nested.values().any(|plan| plan.expands())
        })
    }

    /// Whether a run asks a person on its way: it has an `approve` step, in compositions inside too.
    pub fn approves(&self) -> bool {
        self.steps.iter().any(|step| {
            matches!(step.step.kind, StepKind::Approve { .. })
                || step.nested.values().any(|plan| plan.approves())
        })
    }

    /// Whether a failure takes back what was done, by the composition's own word.
    pub fn takes_back(&self) -> bool {
        let handling = &self.composition.error_handling;
        handling.rollback_on_failure || handling.strategy == Strategy::Rollback
    }

    /// Whether a run asks once before it begins: it is atomic, and one of its calls would ask.
    pub fn asks_once(&self) -> bool {
        self.asks_once_within(false)
    }

    /// The same where something around it takes back what it did.
    pub fn asks_once_within(&self, takes_back: bool) -> bool {
        self.composition.atomic && self.may_ask(takes_back)
    }

    fn may_ask(&self, takes_back: bool) -> bool {
        self.expands() || self.declared_within(takes_back).values().any(|call| call.asks)
    }

    fn declare(&self, takes_back: bool, found: &mut Found) {
        let takes_back = takes_back || self.takes_back();
        for planned in &self.steps {
            let step = &planned.step;
            let mut add = |call: &ToolCall, undo: &Undo| {
                let Some(tool) = &call.tool else { return };
                if tool.composition.is_none() {
                    add_call(found, tool, call, undo);
                    composed::declare_parts(tool, is_undoable(undo), found);
                }
            };
            if let StepKind::Tool(call) = &step.kind {
                add(call, &step.undo);
            }
            for (call, undo) in step.fallback.iter().zip(&step.fallback_undos) {
                add(call, undo);
            }
            if let Some(probe) = &step.probe {
                add(&probe.call, &Undo::NotNeeded);
            }
            planned.nested.values().for_each(|plan| plan.declare(takes_back, found));
            planned.declare_undos(takes_back, found);
        }
    }
}

impl PlanStep {
    /// What takes a call of the step back, by the word of the composition alone: neither the tool nor
    /// its operator vouches for it. 0 is the step itself, n its n-th fallback.
    pub fn unvouched_undo(&self, candidate: u16) -> Option<&ToolCall> {
        let StepRollback::Call(own) = &self.step.rollback else { return None };
        let Undo::Call(_) = self.undo(candidate)? else { return None };
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
    pub fn undo_asks(&self, candidate: u16) -> bool {
        let asks = |call: &ToolCall| match self.undo_plans.get(&candidate) {
            Some(plan) => plan.may_ask(false),
            None => call.tool.as_ref().is_none_or(|tool| tool.may_ask()),
        };
        self.unvouched_undo(candidate).is_some_and(asks)
    }

    /// Whether what a call of the step does can be taken back, where it is not a composition.
    pub(crate) fn can_be_undone(&self, candidate: u16) -> bool {
        self.undo(candidate).is_some_and(is_undoable)
    }

    fn undo(&self, candidate: u16) -> Option<&Undo> {
        match candidate.checked_sub(1) {
            None => Some(&self.step.undo),
            Some(fallback) => self.step.fallback_undos.get(usize::from(fallback)),
        }
    }

    fn declare_undos(&self, takes_back: bool, found: &mut Found) {
        for (candidate, undo) in (0..).zip(once(&self.step.undo).chain(&self.step.fallback_undos)) {
            let Undo::Call(call) = undo else { continue };
            let mut inside = Found::new();
            match (self.undo_plans.get(&candidate), &call.tool) {
                (Some(plan), _) => plan.declare(false, &mut inside),
                (None, Some(tool)) => {
                    add_call(&mut inside, tool, call, &Undo::NotNeeded);
                    composed::declare_parts(tool, true, &mut inside);
                }
                (None, None) => {}
            }
            let asks = takes_back && self.unvouched_undo(candidate).is_some();
            // What takes something back is not taken back itself.
            for call in inside.into_values().filter(|call| !call.takes_back) {
                let asks = asks && call.asks;
                let own = Declared { asks: false, is_undoable: true, takes_back: true, ..call };
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

impl Declared {
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

fn add_call(found: &mut Found, tool: &ToolSpec, call: &ToolCall, undo: &Undo) {
    let effect = tool.annotations.impact();
    let declared = found.entry((false, tool.id.clone())).or_insert_with(|| Declared {
        tool: tool.id.clone(),
        effect,
        arguments: Vec::new(),
        asks: tool.needs_confirmation(),
        is_undoable: true,
        takes_back: false,
    });
    declared.add(|| call.parameters.template.to_value());
    declared.is_undoable &= effect <= Impact::Reads || is_undoable(undo);
}

fn is_undoable(undo: &Undo) -> bool {
    matches!(undo, Undo::Call(_) | Undo::NotNeeded)
}
