//! What an entry of a journal is to somebody who watches: a change of a step, in words and as an event.

use std::sync::{Arc, OnceLock};

use schemars::JsonSchema;
use segue_core::run::{Entry, Fact, NodeId, Run};
use segue_core::view::{StepStatus, duration};
use segue_runtime::driver::now_ms;
use segue_runtime::tools::Progress;
use serde::Serialize;

use crate::print::clean;

/// What happened to a step, in words.
pub enum Change {
    /// A call or a wait begins.
    Started(String),
    /// A body opens; several may, and one line says enough.
    Opened(String),
    /// It will be tried again, or somebody has to look.
    Retrying(String),
    /// It worked.
    Done,
    /// It did not work.
    Failed(String),
    /// It was not needed.
    Skipped(String),
    /// It was stopped, and has done nothing.
    Cancelled,
    /// Nobody knows whether it did its work, and nobody finds out any more; why.
    InDoubt(String),
    /// What it did was taken back.
    Undone,
}

/// The change that an entry is to a person, if it is one.
pub fn change(run: &Run, entry: &Entry) -> Option<(NodeId, Change)> {
    if let (Some(StepStatus::InDoubt), Some(node)) =
        (run.settled_as(&entry.fact), entry.fact.node())
    {
        let why = match &entry.fact {
            Fact::Failed { failure, .. } => clean(&failure.message).into_owned(),
            _ => "it was ended before it answered".to_owned(),
        };
        return Some((node, Change::InDoubt(why)));
    }
    Some(match &entry.fact {
        Fact::Called { node, candidate, .. } | Fact::Entered { node, candidate, .. } => {
            (*node, Change::Started(run.tool_of(*node, *candidate)))
        }
        Fact::Asked { node, .. } => (*node, Change::Started("waits for a yes".to_owned())),
        Fact::Slept { node, until_ms } | Fact::Paused { node, until_ms } => {
            let wait = duration(until_ms.saturating_sub(entry.at_ms));
            (*node, Change::Started(format!("waits {wait}")))
        }
        Fact::Opened { node, .. } | Fact::Looped { node, .. } => {
            (*node, Change::Opened(run.tool_of(*node, 0)))
        }
        Fact::Expanded { node, plan, .. } => {
            (*node, Change::Started(format!("becomes `{}`", plan.composition.name)))
        }
        Fact::Probed { node, failure, .. } => {
            (*node, Change::Retrying(format!("in doubt, probing: {}", clean(&failure.message))))
        }
        Fact::Doubted { node, failure } => {
            (*node, Change::Retrying(format!("in doubt: {}", clean(&failure.message))))
        }
        Fact::Sought { node } => (*node, Change::Retrying("is looked for".to_owned())),
        Fact::Lost { node } => (*node, Change::Retrying("was lost, again".to_owned())),
        Fact::Rested { node, failure, until_ms } => {
            let wait = duration(until_ms.saturating_sub(entry.at_ms));
            (*node, Change::Retrying(format!("again in {wait}: {}", clean(&failure.message))))
        }
        Fact::GaveUp { node, failure } => {
            (*node, Change::Retrying(format!("falls back: {}", clean(&failure.message))))
        }
        Fact::Reused { node, .. } => (*node, Change::Skipped("done by an earlier run".to_owned())),
        Fact::Succeeded { node, .. } => (*node, Change::Done),
        Fact::Tolerated { node, failure, .. } => {
            (*node, Change::Failed(format!("{} (tolerated)", clean(&failure.message))))
        }
        Fact::Failed { node, failure } => {
            (*node, Change::Failed(clean(&failure.message).into_owned()))
        }
        Fact::Skipped { node, reason, .. } => (*node, Change::Skipped(reason.to_string())),
        Fact::Cancelled { node, .. } => (*node, Change::Cancelled),
        Fact::UndoCalled { node, .. } | Fact::UndoEntered { node, .. } => {
            (*node, Change::Started("is being undone".to_owned()))
        }
        Fact::UndoRested { node, failure, until_ms } => {
            let wait = duration(until_ms.saturating_sub(entry.at_ms));
            (*node, Change::Retrying(format!("undo again in {wait}: {}", clean(&failure.message))))
        }
        Fact::Undone { node } => (*node, Change::Undone),
        Fact::UndoFailed { node, failure } => {
            (*node, Change::Failed(clean(&failure.message).into_owned()))
        }
        Fact::Started(_)
        | Fact::Expanding { .. }
        | Fact::Followed { .. }
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
        | Fact::Kept { .. }
        | Fact::Late { .. }
        | Fact::ConsentAsked
        | Fact::Consented { .. }
        | Fact::Finished { .. } => return None,
    })
}

/// A change of a step, for programs: a line of `-o ndjson`, and what followers of a run are sent.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Event {
    /// What happened.
    pub event: &'static str,
    /// The number of the journal's entry; of what is in no journal, that of the last one before it.
    pub seq: u64,
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// The request that the run belongs to.
    pub request_id: Arc<str>,
    /// The step, with the bodies and iterations around it.
    pub step: Arc<str>,
    /// More about it, in words.
    pub detail: Option<String>,
    /// How much of a call is done, from 0 to 1, where its tool says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fraction: Option<f64>,
    /// The same as a line of JSON, once somebody wanted it.
    #[serde(skip)]
    line: OnceLock<String>,
}

impl Event {
    /// The event as a line of JSON, made once for all who are told.
    pub fn line(&self) -> &str {
        self.line.get_or_init(|| serde_json::to_string(self).unwrap_or_default())
    }

    /// Whether it is in no journal: who was not there when it happened is not told of it.
    pub fn is_passing(&self) -> bool {
        self.event == PROGRESS
    }
}

/// What the progress of a call is called.
const PROGRESS: &str = "step_progress";

/// The event that a step's call has got further, after the entry with this number.
pub fn progress_event(run: &Run, node: NodeId, seq: u64, progress: &Progress) -> Event {
    Event {
        event: PROGRESS,
        seq,
        at_ms: now_ms(),
        request_id: run.request_id().into(),
        step: run.path(node),
        detail: Some(clean(&progress.to_string()).into_owned()),
        fraction: progress.fraction(),
        line: OnceLock::new(),
    }
}

/// The event that an entry is, if it is one.
pub fn event(run: &Run, entry: &Entry) -> Option<Event> {
    let (node, change) = change(run, entry)?;
    let (event, detail) = match change {
        Change::Started(what) => ("step_started", Some(what)),
        Change::Opened(what) => ("step_opened", Some(what)),
        Change::Retrying(what) => ("step_retrying", Some(what)),
        Change::Done => ("step_succeeded", None),
        Change::Failed(message) => ("step_failed", Some(message)),
        Change::Skipped(reason) => ("step_skipped", Some(reason)),
        Change::Cancelled => ("step_cancelled", None),
        Change::InDoubt(why) => ("step_in_doubt", Some(why)),
        Change::Undone => ("step_rolled_back", None),
    };
    Some(Event {
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
