//! What a plan says beforehand of the calls that it may make: what a person is told before a yes.

use std::collections::BTreeMap;

use super::Plan;
use crate::composed;
use crate::composition::{StepKind, ToolCall, Undo};
use crate::id::ToolId;
use crate::tool::{Impact, ToolSpec};

/// A tool that a run may call, in compositions inside too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    /// The tool.
    pub tool: ToolId,
    /// What it does to the world.
    pub effect: Impact,
    /// Whether its calls ask first.
    pub asks: bool,
    /// Whether every step that changes something through it can be taken back.
    pub is_undoable: bool,
}

impl Plan {
    /// Every tool that a run may call, by id. Compositions are seen through, and so is code that
    /// declares what it calls; what takes steps back
    /// is not listed, because it is allowed with them.
    pub fn declared(&self) -> Vec<Declared> {
        let mut found = BTreeMap::new();
        self.declare(&mut found);
        found.into_values().collect()
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

    /// Whether a run asks once before it begins: it is atomic, and one of its calls would ask.
    pub fn asks_once(&self) -> bool {
        self.composition.atomic && (self.expands() || self.declared().iter().any(|call| call.asks))
    }

    fn declare(&self, found: &mut BTreeMap<ToolId, Declared>) {
        for planned in &self.steps {
            let step = &planned.step;
            let mut add = |call: &ToolCall, undo: &Undo| {
                let Some(tool) = &call.tool else { return };
                if tool.composition.is_none() {
                    add_tool(found, tool, undo);
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
            planned.nested.values().for_each(|plan| plan.declare(found));
        }
    }
}

fn add_tool(found: &mut BTreeMap<ToolId, Declared>, tool: &ToolSpec, undo: &Undo) {
    let effect = tool.annotations.impact();
    let declared = found.entry(tool.id.clone()).or_insert_with(|| Declared {
        tool: tool.id.clone(),
        effect,
        asks: tool.needs_confirmation(),
        is_undoable: true,
    });
    declared.is_undoable &= effect <= Impact::Reads || is_undoable(undo);
}

fn is_undoable(undo: &Undo) -> bool {
    matches!(undo, Undo::Call(_) | Undo::NotNeeded)
}
