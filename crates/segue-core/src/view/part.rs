//! What a run says of the part of its composition that it performs.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which part of its composition a run performs. A run of the whole composition has none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "RunPart")]
pub struct PerformedPart {
    /// The run ends with this step; it performs the steps that this one depends on, and no others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Arc<str>>,
    /// The run performs only this step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub only: Option<Arc<str>>,
    /// With `only`: the earlier run that the other values are from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<Arc<str>>,
    /// The steps whose values were given. Nothing was called for them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pinned: Vec<Arc<str>>,
}

impl PerformedPart {
    /// Whether steps are left out.
    pub fn leaves_out_steps(&self) -> bool {
        self.until.is_some() || self.only.is_some()
    }
}

/// Why a run did not perform one of its steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StepOrigin {
    /// Its value was given; nothing was called.
    Pinned,
    /// Its value is from an earlier run.
    Reused,
    /// It is not part of this run.
    LeftOut,
}

impl StepOrigin {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            StepOrigin::Pinned => "pinned",
            StepOrigin::Reused => "reused",
            StepOrigin::LeftOut => "left_out",
        }
    }
}
