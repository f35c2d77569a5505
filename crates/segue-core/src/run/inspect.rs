//! One step of a run, with everything that is known of it.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use super::Run;
use super::journal::{Entry, Fact, NodeId};
use crate::source::Source;
use crate::value::Value;
use crate::view::source::{PlaceView, Places, file_name};
use crate::view::{AttemptView, DecisionView, RollbackView, Timestamp};

/// A step of a run, beyond its view.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct StepInspection {
    /// Its arguments as written, with their expressions; null if it calls no tool.
    pub template: Value,
    /// Its place in the text.
    pub source: Option<StepSourceView>,
    /// Its attempts.
    pub attempts: Vec<AttemptView>,
    /// The decisions of people about it.
    pub decisions: Vec<DecisionView>,
    /// Its rollback.
    pub rollback: StepRollbackView,
}

/// The place of a step in a text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StepSourceView {
    /// The composition that contains it: the run's own, or one that the run calls.
    pub composition: Arc<str>,
    /// The file of that composition; absent if it came with a request.
    pub file: Option<Arc<str>>,
    /// The place.
    #[serde(flatten)]
    pub place: PlaceView,
}

/// The rollback of a step: planned, and as far as it happened.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct StepRollbackView {
    /// The plan.
    pub planned: RollbackView,
    /// What happened, in order.
    pub events: Vec<RollbackEventView>,
}

/// An event of a rollback.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RollbackEventView {
    /// The time.
    pub at: Timestamp,
    /// `called`, `retrying`, `rolled_back` or `failed`.
    pub what: &'static str,
    /// The arguments of the call.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub arguments: Value,
    /// The failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl Run {
    /// The step of this path; the last one, if several attempts of a body have it.
    pub fn find_step(&self, path: &str) -> Option<NodeId> {
        let last = path.rsplit('/').next().unwrap_or(path);
        let id = last.split('#').next().unwrap_or(last);
        let frames = (0..u32::try_from(self.state.frames.len()).unwrap_or(u32::MAX)).rev();
        let mut nodes = frames.flat_map(|frame| self.state.nodes_of(frame));
        nodes.find(|node| &*self.state.step(*node).id == id && *self.state.path(*node) == *path)
    }

    /// Everything that is known of a step, beyond its view.
    pub fn inspect(&self, node: NodeId, journal: &[Entry]) -> StepInspection {
        let own = journal.iter().filter(|entry| entry.fact.node() == Some(node));
        let own: Vec<Entry> = own.cloned().collect();
        let candidate = self.state.step_state(node).candidate;
        StepInspection {
            template: self.args_template(node, candidate),
            source: self.step_source(node),
            attempts: self.attempts(&own),
            decisions: self.decisions(&own),
            rollback: StepRollbackView {
                planned: RollbackView::of_planned(self.state.planned(node)),
                events: own.iter().filter_map(|entry| self.rollback_event(entry)).collect(),
            },
        }
    }

    fn step_source(&self, node: NodeId) -> Option<StepSourceView> {
        let composition = &self.state.plan_of(node.frame).composition;
        let source: &Source = &composition.source;
        if source.text().is_empty() {
            return None;
        }
        let place = Places::new(source).place(self.state.step(node).span);
        let (composition, file) = (composition.name.clone(), file_name(source));
        Some(StepSourceView { composition, file, place })
    }

    fn rollback_event(&self, entry: &Entry) -> Option<RollbackEventView> {
        let (what, arguments, failure) = match &entry.fact {
            Fact::RollbackCalled { args, .. } => ("called", self.redact_value(args), None),
            Fact::RollbackEntered { .. } => ("called", Value::Null, None),
            Fact::RollbackBackedOff { failure, .. } => ("retrying", Value::Null, Some(failure)),
            Fact::RolledBack { .. } => ("rolled_back", Value::Null, None),
            Fact::RollbackFailed { failure, .. } => ("failed", Value::Null, Some(failure)),
            _ => return None,
        };
        let message = failure.map(|failure| {
            let message = self.redact_value(&Value::String(failure.message.clone()));
            message.as_str().unwrap_or_default().to_owned()
        });
        Some(RollbackEventView { at: Timestamp(entry.at_ms), what, arguments, message })
    }
}
