//! A stored plan: its request, its document and its state.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::PlanningCost;
use crate::compile;
use crate::id::is_composition_name;
use crate::limits::Limits;
use crate::source::Source;
use crate::value::{Map, Value, from_value};
use crate::view::{RunStatus, Timestamp};

/// The state of a stored plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PlanState {
    /// It can be executed.
    Pending,
    /// A run is executing it, or waits for a person.
    InProgress,
    /// Its last run succeeded.
    Completed,
    /// Its last run did not succeed.
    Failed,
}

impl PlanState {
    /// Every state.
    pub const ALL: &'static [PlanState] =
        &[PlanState::Pending, PlanState::InProgress, PlanState::Completed, PlanState::Failed];

    /// The state of this name.
    pub fn parse(word: &str) -> Option<PlanState> {
        PlanState::ALL.iter().copied().find(|state| state.as_str() == word)
    }

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            PlanState::Pending => "pending",
            PlanState::InProgress => "in-progress",
            PlanState::Completed => "completed",
            PlanState::Failed => "failed",
        }
    }

    /// The state of a plan whose last run has this status.
    pub fn of_run(status: RunStatus) -> PlanState {
        match status {
            RunStatus::Pending | RunStatus::Running | RunStatus::Waiting => PlanState::InProgress,
            RunStatus::Success => PlanState::Completed,
            RunStatus::Partial
            | RunStatus::Failed
            | RunStatus::RolledBack
            | RunStatus::RollbackFailed
            | RunStatus::Cancelled
            | RunStatus::Denied
            | RunStatus::DryRun => PlanState::Failed,
        }
    }
}

/// The origin of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PlanOrigin {
    /// A model proposed it.
    Model {
        /// The model.
        model: Arc<str>,
        /// The cost of planning.
        #[serde(flatten)]
        cost: PlanningCost,
    },
    /// It is a copy of a plan that succeeded before.
    UsedBefore {
        /// The original plan.
        plan_id: Arc<str>,
    },
}

/// A stored plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredPlan {
    /// The request that it belongs to: `req_…`.
    pub request_id: Arc<str>,
    /// Its own id: `plan_…`.
    pub plan_id: Arc<str>,
    /// Its number among the plans of its request, from 1.
    pub version: u32,
    /// The user's request.
    pub query: Arc<str>,
    /// Its state.
    pub state: PlanState,
    /// Creation time, in milliseconds since 1970.
    pub created_ms: u64,
    /// Its origin.
    pub origin: PlanOrigin,
    /// The run that executes it, or the last one that did.
    pub run_id: Option<Arc<str>>,
    /// The plan itself.
    pub document: Value,
    /// Warnings about the model's answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Arc<str>>,
    /// The principal that requested it, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<Arc<str>>,
}

impl StoredPlan {
    /// The published view; with `with_plan` it includes the plan itself.
    pub fn view(&self, with_plan: bool) -> PlannedView<'_> {
        PlannedView {
            request_id: &self.request_id,
            plan_id: &self.plan_id,
            version: self.version,
            query: &self.query,
            state: self.state,
            created_at: Timestamp(self.created_ms),
            origin: &self.origin,
            run_id: self.run_id.as_deref(),
            warnings: &self.warnings,
            plan: with_plan.then_some(&self.document),
        }
    }

    /// The calls of the plan, for display.
    pub fn calls(&self) -> PlannedCalls {
        from_value(&self.document).unwrap_or_default()
    }

    /// The plan as a composition, as it would be in a file of this name: to commit, edit and serve.
    /// Its query records where it came from.
    pub fn composition(&self, file: &str, limits: &Limits) -> Option<Arc<str>> {
        let mut members = self.document.as_object().map_or_else(Map::new, |all| (**all).clone());
        members.retain(|name, _| !matches!(&**name, "requestId" | "planId"));
        let name = file.rsplit_once('.').map_or(file, |(name, _)| name);
        if is_composition_name(name) {
            members.insert("name".into(), Value::from(name));
        }
        let source = Source::new(file, Value::from(members).to_json());
        compile::convert(&source, limits).text
    }
}

/// What a stored plan's document says about its calls.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PlannedCalls {
    /// The calls.
    pub tools: Vec<PlannedCall>,
    /// The ids of the calls, in order.
    pub execution_order: Vec<Arc<str>>,
    /// The model's reasons.
    pub reasoning: Option<Arc<str>>,
}

/// A call of a stored plan.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedCall {
    id: Option<Arc<str>>,
    /// The tool.
    pub name: Arc<str>,
    /// Its arguments.
    #[serde(default)]
    pub parameters: Value,
    depends_on: Option<Dependencies>,
    /// The names of its outputs.
    #[serde(default)]
    pub output_mapping: Value,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
enum Dependencies {
    One(Arc<str>),
    Several(Vec<Arc<str>>),
}

impl PlannedCall {
    /// Its id in other calls: its own, or the name of the tool.
    pub fn id(&self) -> &Arc<str> {
        self.id.as_ref().unwrap_or(&self.name)
    }

    /// The calls that come first.
    pub fn depends_on(&self) -> &[Arc<str>] {
        match &self.depends_on {
            None => &[],
            Some(Dependencies::One(one)) => std::slice::from_ref(one),
            Some(Dependencies::Several(several)) => several,
        }
    }
}

/// A stored plan as surfaces publish it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PlannedView<'a> {
    /// The request that it belongs to.
    pub request_id: &'a str,
    /// Its own id.
    pub plan_id: &'a str,
    /// Its number among the plans of its request.
    pub version: u32,
    /// The user's request.
    pub query: &'a str,
    /// Its state.
    pub state: PlanState,
    /// Creation time.
    pub created_at: Timestamp,
    /// Its origin.
    pub origin: &'a PlanOrigin,
    /// The run that executes it, or the last one that did.
    pub run_id: Option<&'a str>,
    /// Warnings about the model's answer, such as an order that cannot be kept.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub warnings: &'a [Arc<str>],
    /// The plan itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<&'a Value>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The three forms of `dependsOn`, and calls with and without an id.
    #[test]
    fn calls_are_read_from_the_document() {
        let text = r#"{ "reasoning": "why", "executionOrder": ["a", "b", "c"], "tools": [
            { "name": "a", "parameters": { "x": 1 }, "dependsOn": null },
            { "name": "t", "id": "b", "dependsOn": "a" },
            { "name": "c", "dependsOn": ["a", "b"], "outputMapping": { "id": "c_id" } }] }"#;
        let document: Value = serde_json::from_str(text).unwrap();
        let calls: PlannedCalls = from_value(&document).unwrap();
        let read: Vec<_> = calls.tools.iter().map(|c| (&**c.id(), c.depends_on().len())).collect();
        assert_eq!(read, [("a", 0), ("b", 1), ("c", 2)]);
        assert_eq!((calls.execution_order.len(), calls.reasoning.as_deref()), (3, Some("why")));
        assert_eq!(&*calls.tools[1].name, "t");
        assert_eq!(calls.tools[2].output_mapping.to_json(), r#"{"id":"c_id"}"#);
    }
}
