//! The statuses of runs and of steps.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The status of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// Not started.
    #[default]
    Pending,
    /// Running.
    Running,
    /// Waiting for a person or a time.
    Waiting,
    /// Success.
    Success,
    /// Some steps succeeded.
    Partial,
    /// Failed.
    Failed,
    /// Failed, and everything was rolled back.
    RolledBack,
    /// Failed, and something could not be rolled back.
    RollbackFailed,
    /// Cancelled.
    Cancelled,
    /// A person denied it.
    Denied,
    /// A dry run.
    DryRun,
}

impl RunStatus {
    /// Every status.
    pub const ALL: &'static [RunStatus] = &[
        RunStatus::Pending,
        RunStatus::Running,
        RunStatus::Waiting,
        RunStatus::Success,
        RunStatus::Partial,
        RunStatus::Failed,
        RunStatus::RolledBack,
        RunStatus::RollbackFailed,
        RunStatus::Cancelled,
        RunStatus::Denied,
        RunStatus::DryRun,
    ];

    /// The status of this name.
    pub fn parse(word: &str) -> Option<RunStatus> {
        RunStatus::ALL.iter().copied().find(|status| status.as_str() == word)
    }

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            RunStatus::Pending => "pending",
            RunStatus::Running => "running",
            RunStatus::Waiting => "waiting",
            RunStatus::Success => "success",
            RunStatus::Partial => "partial",
            RunStatus::Failed => "failed",
            RunStatus::RolledBack => "rolled_back",
            RunStatus::RollbackFailed => "rollback_failed",
            RunStatus::Cancelled => "cancelled",
            RunStatus::Denied => "denied",
            RunStatus::DryRun => "dry_run",
        }
    }
}

/// The status of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StepStatus {
    /// Not started.
    #[default]
    Pending,
    /// Running.
    Running,
    /// Succeeded.
    Success,
    /// Failed.
    Failed,
    /// Skipped.
    Skipped,
    /// Cancelled.
    Cancelled,
    /// The outcome is unknown.
    InDoubt,
    /// Rolled back.
    RolledBack,
    /// Could not be rolled back.
    RollbackFailed,
}

impl StepStatus {
    /// Every status.
    pub const ALL: &'static [StepStatus] = &[
        StepStatus::Pending,
        StepStatus::Running,
        StepStatus::Success,
        StepStatus::Failed,
        StepStatus::Skipped,
        StepStatus::Cancelled,
        StepStatus::InDoubt,
        StepStatus::RolledBack,
        StepStatus::RollbackFailed,
    ];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            StepStatus::Pending => "pending",
            StepStatus::Running => "running",
            StepStatus::Success => "success",
            StepStatus::Failed => "failed",
            StepStatus::Skipped => "skipped",
            StepStatus::Cancelled => "cancelled",
            StepStatus::InDoubt => "in_doubt",
            StepStatus::RolledBack => "rolled_back",
            StepStatus::RollbackFailed => "rollback_failed",
        }
    }
}
