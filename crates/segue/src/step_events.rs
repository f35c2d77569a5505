//! A journal entry as the change of a step: as text for people, as an event for programs.

use std::sync::{Arc, OnceLock};

use schemars::JsonSchema;
use segue_core::run::{Entry, Fact, NodeId, Run};
use segue_core::view::{StepStatus, format_duration};
use segue_runtime::driver::now_ms;
use segue_runtime::tools::Progress;
use serde::Serialize;

use crate::print::escape_control;

/// The change of a step.
pub enum StepChange {
    /// A call or a wait begins.
    Started(String),
    /// A body opens; several may, and one line says enough.
    Opened(String),
    /// It will be retried, or a person has to look.
    Retrying(String),
    /// It succeeded.
    Done,
    /// It failed.
    Failed(String),
    /// It was skipped.
    Skipped(String),
    /// It was cancelled, and has done nothing.
    Cancelled,
    /// It is unknown whether it did its work, and will stay so; why.
    InDoubt(String),
    /// It was rolled back.
    RolledBack,
}

/// The change of a step that an entry is, if it is one.
pub fn step_change(run: &Run, entry: &Entry) -> Option<(NodeId, StepChange)> {
    if let (Some(StepStatus::InDoubt), Some(node)) =
        (run.settled_status(&entry.fact), entry.fact.node())
    {
        let why = match &entry.fact {
            Fact::Failed { failure, .. } => escape_control(&failure.message).into_owned(),
            _ => "it was ended before it answered".to_owned(),
        };
        return Some((node, StepChange::InDoubt(why)));
    }
    Some(match &entry.fact {
        Fact::Called { node, candidate, .. } | Fact::Entered { node, candidate, .. } => {
            (*node, StepChange::Started(run.tool_name(*node, *candidate)))
        }
        Fact::Asked { node, .. } => (*node, StepChange::Started("waits for a yes".to_owned())),
        Fact::Slept { node, until_ms } | Fact::Paused { node, until_ms } => {
            let wait = format_duration(until_ms.saturating_sub(entry.at_ms));
            (*node, StepChange::Started(format!("waits {wait}")))
        }
        Fact::Opened { node, .. } | Fact::Looped { node, .. } => {
            (*node, StepChange::Opened(run.tool_name(*node, 0)))
        }
        Fact::Expanded { node, plan, .. } => {
            (*node, StepChange::Started(format!("becomes `{}`", plan.composition.name)))
        }
        Fact::Probed { node, failure, .. } => (
            *node,
            StepChange::Retrying(format!(
                "in doubt, probing: {}",
                escape_control(&failure.message)
            )),
        ),
        Fact::Doubted { node, failure } => {
            (*node, StepChange::Retrying(format!("in doubt: {}", escape_control(&failure.message))))
        }
        Fact::ResumeSent { node } => (*node, StepChange::Retrying("is looked for".to_owned())),
        Fact::Lost { node } => (*node, StepChange::Retrying("was lost, again".to_owned())),
        Fact::BackedOff { node, failure, until_ms } => {
            let wait = format_duration(until_ms.saturating_sub(entry.at_ms));
            (
                *node,
                StepChange::Retrying(format!(
                    "again in {wait}: {}",
                    escape_control(&failure.message)
                )),
            )
        }
        Fact::GaveUp { node, failure } => (
            *node,
            StepChange::Retrying(format!("falls back: {}", escape_control(&failure.message))),
        ),
        Fact::Reused { node, .. } => {
            (*node, StepChange::Skipped("done by an earlier run".to_owned()))
        }
        Fact::Succeeded { node, .. } => (*node, StepChange::Done),
        Fact::Tolerated { node, failure, .. } => {
            (*node, StepChange::Failed(format!("{} (tolerated)", escape_control(&failure.message))))
        }
        Fact::Failed { node, failure } => {
            (*node, StepChange::Failed(escape_control(&failure.message).into_owned()))
        }
        Fact::Skipped { node, reason, .. } => (*node, StepChange::Skipped(reason.to_string())),
        Fact::Cancelled { node, .. } => (*node, StepChange::Cancelled),
        Fact::RollbackCalled { node, .. } | Fact::RollbackEntered { node, .. } => {
            (*node, StepChange::Started("is being undone".to_owned()))
        }
        Fact::RollbackBackedOff { node, failure, until_ms } => {
            let wait = format_duration(until_ms.saturating_sub(entry.at_ms));
            (
                *node,
                StepChange::Retrying(format!(
                    "undo again in {wait}: {}",
                    escape_control(&failure.message)
                )),
            )
        }
        Fact::RolledBack { node } => (*node, StepChange::RolledBack),
        Fact::RollbackFailed { node, failure } => {
            (*node, StepChange::Failed(escape_control(&failure.message).into_owned()))
        }
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
        | Fact::Stopped { .. }
        | Fact::Closed { .. }
        | Fact::ReferencesKept { .. }
        | Fact::AnsweredLate { .. }
        | Fact::ConsentAsked
        | Fact::Consented { .. }
        | Fact::Finished { .. } => return None,
    })
}

/// A change of a step, for programs: a line of `-o ndjson`, and an event of the stream of a run.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct StepEvent {
    /// What happened.
    pub event: &'static str,
    /// The number of the journal's entry; of progress, which is in no journal, that of the last entry.
    pub seq: u64,
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// The request that the run belongs to.
    pub request_id: Arc<str>,
    /// The step, with the bodies and iterations around it.
    pub step: Arc<str>,
    /// More about it.
    pub detail: Option<String>,
    /// The progress of a call, from 0 to 1, where its tool reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fraction: Option<f64>,
    /// The event as a line of JSON, once it was needed.
    #[serde(skip)]
    line: OnceLock<String>,
}

impl StepEvent {
    /// The event as a line of JSON, made once for all clients.
    pub fn json_line(&self) -> &str {
        self.line.get_or_init(|| serde_json::to_string(self).unwrap_or_default())
    }

    /// Whether it is in no journal: clients that follow later do not get it.
    pub fn is_transient(&self) -> bool {
        self.event == PROGRESS
    }
}

/// The name of a progress event.
const PROGRESS: &str = "step_progress";

/// The progress of a step's call, after the entry with this number.
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

/// The event of an entry, if it has one.
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
