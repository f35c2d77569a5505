//! A stored plan: its request, its document and its state.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::PlanningCost;
use crate::compile;
use crate::id::is_composition_name;
use crate::limits::Limits;
use crate::source::Source;
use crate::value::{Map, Value};
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
