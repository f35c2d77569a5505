//! Journal entries → changes of steps, as text for people and as events for programs.

use std::sync::{Arc, OnceLock};

use schemars::JsonSchema;
use segue_core::duration::format_duration;
use segue_core::run::{Entry, Fact, Failure, NodeId, Run};
use segue_core::view::StepStatus;
use segue_runtime::driver::now_ms;
use segue_runtime::tools::Progress;
use serde::Serialize;

use crate::print::escape_control;

/// A change of a step, with text for people.
pub enum StepChange {
    /// A call or a wait starts.
    Started(String),
    /// A body opens. Several may open for one step; one line is enough.
    Opened(String),
    /// The call is retried or probed, or it is in doubt for now.
    Retrying(String),
    /// The step succeeded.
    Done,
    /// The step failed.
    Failed(String),
    /// The step was skipped.
    Skipped(String),
    /// The step was cancelled without effect.
    Cancelled,
    /// The call stays in doubt: it may have taken effect. The text says why.
    InDoubt(String),
    /// The step was rolled back.
    RolledBack,
}

/// The change of a step that an entry stands for, if any.
pub fn step_change(run: &Run, entry: &Entry) -> Option<(NodeId, StepChange)> {
    let fact = &entry.fact;
    let node = fact.node()?;
    let change = if run.settled_status(fact) == Some(StepStatus::InDoubt) {
        StepChange::InDoubt(match fact {
            Fact::Failed { failure, .. } => message(failure),
            _ => "it was stopped before it answered".to_owned(),
        })
    } else {
        match started_change(run, entry, node).or_else(|| retry_change(entry)) {
            Some(change) => change,
            None => settled_change(fact)?,
        }
    };
    Some((node, change))
}

/// A call, a wait or a body starts.
fn started_change(run: &Run, entry: &Entry, node: NodeId) -> Option<StepChange> {
    Some(match &entry.fact {
        Fact::Called { candidate, .. } | Fact::Entered { candidate, .. } => {
            StepChange::Started(run.tool_name(node, *candidate))
        }
        Fact::Asked { .. } => StepChange::Started("waits for approval".to_owned()),
        Fact::Slept { until_ms, .. } | Fact::Paused { until_ms, .. } => {
            StepChange::Started(format!("waits {}", wait(entry, *until_ms)))
        }
        Fact::Opened { .. } | Fact::Looped { .. } => StepChange::Opened(run.tool_name(node, 0)),
        Fact::Expanded { plan, .. } => {
            StepChange::Started(format!("becomes `{}`", plan.composition.name))
        }
        Fact::RollbackCalled { .. } | Fact::RollbackEntered { .. } => {
            StepChange::Started("is being rolled back".to_owned())
        }
        _ => return None,
    })
}

/// A call is retried, probed or in doubt for now.
fn retry_change(entry: &Entry) -> Option<StepChange> {
    Some(StepChange::Retrying(match &entry.fact {
        Fact::Probed { failure, .. } => format!("in doubt, probing: {}", message(failure)),
        Fact::Doubted { failure, .. } => format!("in doubt: {}", message(failure)),
        Fact::ResumeSent { .. } => "looking for its call".to_owned(),
        Fact::Lost { .. } => "was lost, calling again".to_owned(),
        Fact::BackedOff { failure, until_ms, .. } => {
            format!("retrying in {}: {}", wait(entry, *until_ms), message(failure))
        }
        Fact::GaveUp { failure, .. } => format!("falls back: {}", message(failure)),
        Fact::RollbackBackedOff { failure, until_ms, .. } => {
            format!("rollback retried in {}: {}", wait(entry, *until_ms), message(failure))
        }
        _ => return None,
    }))
}

/// A step ends, or its rollback does. Lists every fact, so that a new one must be considered.
fn settled_change(fact: &Fact) -> Option<StepChange> {
    Some(match fact {
        Fact::Reused { .. } => StepChange::Skipped("done by an earlier run".to_owned()),
        Fact::Pinned { .. } => StepChange::Skipped("its value was given".to_owned()),
        Fact::LeftOut { .. } => StepChange::Skipped("it is not part of this run".to_owned()),
        Fact::Succeeded { .. } => StepChange::Done,
        Fact::Tolerated { failure, .. } => {
            StepChange::Failed(format!("{} (tolerated)", message(failure)))
        }
        Fact::Failed { failure, .. } | Fact::RollbackFailed { failure, .. } => {
            StepChange::Failed(message(failure))
        }
        Fact::Skipped { reason, .. } => StepChange::Skipped(reason.to_string()),
        Fact::Cancelled { .. } => StepChange::Cancelled,
        Fact::RolledBack { .. } => StepChange::RolledBack,
        // Changes of [`started_change`] and [`retry_change`].
        Fact::Called { .. }
        | Fact::Entered { .. }
        | Fact::Asked { .. }
        | Fact::Slept { .. }
        | Fact::Paused { .. }
        | Fact::Opened { .. }
        | Fact::Looped { .. }
        | Fact::Expanded { .. }
        | Fact::RollbackCalled { .. }
        | Fact::RollbackEntered { .. }
        | Fact::Probed { .. }
        | Fact::Doubted { .. }
        | Fact::ResumeSent { .. }
        | Fact::Lost { .. }
        | Fact::BackedOff { .. }
        | Fact::GaveUp { .. }
        | Fact::RollbackBackedOff { .. } => return None,
        // No change of a step.
        Fact::Started(_)
        | Fact::Expanding { .. }
        | Fact::HandleReceived { .. }
        | Fact::Visited { .. }
        | Fact::Resolved { .. }
        | Fact::Granted { .. }
        | Fact::Refused { .. }
        | Fact::CancelAsked { .. }
        | Fact::Woke { .. }
        | Fact::RollbackAsked { .. }
        | Fact::RollbackStarted { .. }
        | Fact::TimedOut { .. }
        | Fact::FailureDecided { .. }
        | Fact::AttemptRollbackStarted { .. }
        | Fact::Stopped { .. }
        | Fact::Closed { .. }
        | Fact::ReferencesKept { .. }
        | Fact::AnsweredLate { .. }
        | Fact::ConsentAsked
        | Fact::Consented { .. }
        | Fact::Finished { .. } => return None,
    })
}

fn message(failure: &Failure) -> String {
    escape_control(&failure.message).into_owned()
}

fn wait(entry: &Entry, until_ms: u64) -> String {
    format_duration(until_ms.saturating_sub(entry.at_ms))
}

/// A change of a step for programs: a line of `-o ndjson`, and an event of a followed run.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct StepEvent {
    /// What happened.
    pub event: &'static str,
    /// The number of the journal entry; for progress, which is not in the journal, that of the last one.
    pub seq: u64,
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// The request that the run belongs to.
    pub request_id: Arc<str>,
    /// The step, with the bodies and iterations around it.
    pub step: Arc<str>,
    /// Details for people.
    pub detail: Option<String>,
    /// The progress of a call from 0 to 1, if its tool reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fraction: Option<f64>,
    /// The event as JSON, made on first use.
    #[serde(skip)]
    line: OnceLock<String>,
}

impl StepEvent {
    /// The event as a line of JSON, made once for all followers.
    pub fn json_line(&self) -> &str {
        self.line.get_or_init(|| serde_json::to_string(self).unwrap_or_default())
    }

    /// Whether it is not in the journal, so that a late follower never gets it.
    pub fn is_transient(&self) -> bool {
        self.event == PROGRESS
    }
}

/// The name of progress events.
const PROGRESS: &str = "step_progress";

/// The event for progress of a call, after the entry with this number.
pub fn progress_event(run: &Run, node: NodeId, seq: u64, progress: &Progress) -> StepEvent {
    StepEvent {
        event: PROGRESS,
        seq,
        at_ms: now_ms(),
        request_id: run.request_id().into(),
        step: run.path(node),
        detail: Some(escape_control(&progress.to_string()).into_owned()),
        fraction: progress.fraction(),
        line: OnceLock::new(),
    }
}

/// The event that an entry stands for, if any.
pub fn step_event(run: &Run, entry: &Entry) -> Option<StepEvent> {
    let (node, change) = step_change(run, entry)?;
    let (event, detail) = match change {
        StepChange::Started(what) => ("step_started", Some(what)),
        StepChange::Opened(what) => ("step_opened", Some(what)),
        StepChange::Retrying(what) => ("step_retrying", Some(what)),
        StepChange::Done => ("step_succeeded", None),
        StepChange::Failed(message) => ("step_failed", Some(message)),
        StepChange::Skipped(reason) => ("step_skipped", Some(reason)),
        StepChange::Cancelled => ("step_cancelled", None),
        StepChange::InDoubt(why) => ("step_in_doubt", Some(why)),
        StepChange::RolledBack => ("step_rolled_back", None),
    };
    Some(StepEvent {
        event,
        seq: entry.seq,
        at_ms: entry.at_ms,
        request_id: run.request_id().into(),
        step: run.path(node),
        detail,
        fraction: None,
        line: OnceLock::new(),
    })
}
