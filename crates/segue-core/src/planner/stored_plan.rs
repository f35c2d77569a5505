//! What is kept of a plan that was asked for: where it came from, what it is, how it stands.

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

/// How a stored plan stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PlanState {
    /// It can be executed.
    Pending,
    /// A run executes it, or waits for a person.
    InProgress,
    /// Its last run did all of it.
    Completed,
    /// Its last run did not.
    Failed,
}

impl PlanState {
    /// Every state.
    pub const ALL: &'static [PlanState] =
        &[PlanState::Pending, PlanState::InProgress, PlanState::Completed, PlanState::Failed];

    /// The state of this word.
    pub fn parse(word: &str) -> Option<PlanState> {
        PlanState::ALL.iter().copied().find(|state| state.as_str() == word)
    }

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            PlanState::Pending => "pending",
            PlanState::InProgress => "in-progress",
            PlanState::Completed => "completed",
            PlanState::Failed => "failed",
        }
    }

    /// How a plan stands whose last run stands so.
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

/// How a plan came about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PlanOrigin {
    /// A model proposed it.
    Model {
        /// Which one.
        model: Arc<str>,
        /// What that took.
        #[serde(flatten)]
        cost: PlanningCost,
    },
    /// It had done its work before.
    UsedBefore {
        /// The plan that it is a copy of.
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
    /// Which of the plans of its request, from 1.
    pub version: u32,
    /// What was asked for.
    pub query: Arc<str>,
    /// How it stands.
    pub state: PlanState,
    /// When it was made, in milliseconds since 1970.
    pub created_ms: u64,
    /// How it came about.
    pub origin: PlanOrigin,
    /// The run that executes it, or was the last to.
    pub run_id: Option<Arc<str>>,
    /// The plan itself.
    pub document: Value,
    /// What was noticed of the answer that it was made of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Arc<str>>,
    /// Who asked for it, where somebody came in to do so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<Arc<str>>,
}

impl StoredPlan {
    /// The record as surfaces show it; `plan` is the plan itself, where somebody wants to see it.
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

    /// The plan as a composition of its own, to keep in a repository, edit and serve, as it would stand
    /// in a file of this name. Only its query says where it came from.
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

/// A stored plan as it crosses a surface.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PlannedView<'a> {
    /// The request that it belongs to.
    pub request_id: &'a str,
    /// Its own id.
    pub plan_id: &'a str,
    /// Which of the plans of its request.
    pub version: u32,
    /// What was asked for.
    pub query: &'a str,
    /// How it stands.
    pub state: PlanState,
    /// When it was made.
    pub created_at: Timestamp,
    /// How it came about.
    pub origin: &'a PlanOrigin,
    /// The run that executes it, or was the last to.
    pub run_id: Option<&'a str>,
    /// What was noticed of the answer that it was made of, such as an order that cannot be kept.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub warnings: &'a [Arc<str>],
    /// The plan itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<&'a Value>,
}
